/* SPDX-License-Identifier: Apache-2.0 */
/* What `hapax events` and `hapax endpoints` share: a table of actions, and requests to the admin socket of a running
 * daemon. Ids, errors and responses come from the network: all text goes through hx_keys_clean or hx_cmd_put_text. */
#ifndef HX_CMD_EVENTS_ACTIONS_H
#define HX_CMD_EVENTS_ACTIONS_H

#include "base/memory/buf.h"
#include "cmd/cli/ask_daemon.h"

#define HX_CALL_FLAGS_MAX 128u
#define HX_CALL_TEXT_MAX 4096u /* bytes of an argument, but for the data of an event */

typedef struct {
    const char *command; /* "events" */
    const char *verb;
    const char *operands[2]; /* after the verb; NULL: none */
    struct {
        const char *name, *value;
    } flags[HX_CALL_FLAGS_MAX]; /* in the order in which they were given */
    size_t flag_count;
    bool too_many_flags, json;
    hx_slice address;
    hx_arena arena;
} hx_call;

typedef struct {
    const char *verb;        /* NULL ends a table */
    const char *operands[2]; /* "ID", or "[ID]" where it may be left out; NULL: none */
    const char *flags;       /* " tenant limit ": those that it takes, but for --json and the daemon's whereabouts */
    int (*run)(hx_call *call);
} hx_action;

/* Reads the arguments and runs the action that they name; returns the exit code. */
int hx_actions_run(int argc, char **argv, const hx_action *actions);

/* The last value of a flag, "" for a switch; NULL: it was not given. */
const char *hx_call_flag(const hx_call *call, const char *name);
/* Reads a flag as a number from 1 to `most` into *out, which stays as it is where the flag was not given. -1 to go
 * on. */
int hx_call_number(const hx_call *call, const char *name, uint64_t most, uint64_t *out) HX_MUST_USE;

/* "/v1/SEGMENT/…?name=value": segments, ended by NULL, are percent-encoded; `query` has the names of the flags that
 * belong to it: "state=dead tenant", where state is "dead" unless the flag says another. */
hx_slice hx_call_target(hx_call *call, const char *query, ...) __attribute__((sentinel));
/* Sends a request. -1 to go on, or the exit code after a message on standard error. */
int hx_call_ask(hx_call *call, const char *method, hx_slice target, hx_slice body, hx_admin_reply *reply) HX_MUST_USE;
/* Prints the answer, for --json. Returns HX_EXIT_OK. */
int hx_call_put(const hx_admin_reply *reply);

/* Whether to go on: --yes, or yes on a terminal. */
bool hx_call_confirmed(const hx_call *call, const char *question);

/* The records of a list. */
typedef struct {
    const hx_slice *items;
    size_t count;
    bool more;
} hx_call_list;

/* Reads up to `limit` records of the member `name`, page by page. -1 to go on. */
int hx_call_list_read(hx_call *call, hx_slice target, const char *name, uint64_t limit, hx_call_list *out) HX_MUST_USE;
/* {"NAME": […], "count": …, "more": …} */
void hx_call_list_put(const hx_call_list *list, const char *name);

#endif
