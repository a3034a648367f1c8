/* SPDX-License-Identifier: Apache-2.0 */
/* The server of `hapax mcp`: reads messages, answers those of the protocol itself, and runs each call of a tool on a
 * thread of its own, HX_MCP_CALLS_MAX at a time. Whatever a call has begun is written down as an intent first
 * (client/intent.h), so the server may be killed at any moment.
 *
 * A call that is cancelled gets no answer, and `send_once` makes no further attempt; what is under way goes on, and its
 * outcome is written down. At the end of the input the server waits for the calls that are under way. */
#ifndef HX_CMD_MCP_SERVER_H
#define HX_CMD_MCP_SERVER_H

#include "base/memory/buf.h"
#include "base/memory/list.h"
#include "config/config.h"

#include <pthread.h>
#include <stdatomic.h>

#define HX_MCP_CALLS_MAX 16u
#define HX_MCP_TEXT_MAX (256u << 10)  /* of a response's body, in a result */
#define HX_MCP_RESULT_MAX (4u << 20)  /* JSON needs up to six bytes for one */
#define HX_MCP_ANSWER_MAX (32u << 20) /* a result as JSON, and as a text once more */

typedef struct {
    const hx_config_mcp *config;
    const char *requests, *commands; /* the folders of their intents */
    int in, out;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t call_ended;
    hx_link calls;
    size_t call_count;
    pthread_mutex_t out_lock;
} hx_mcp_server;

typedef struct hx_mcp_call {
    hx_mcp_server *server;
    const struct hx_mcp_tool *tool;
    hx_slice id, arguments, progress_token; /* as they were written; no token: empty */
    uint64_t progress;
    atomic_bool is_cancelled;
    hx_link link;
    hx_arena arena;
    hx_texts secrets; /* see hx_mcp_redact */
    bool is_waiting;  /* in hx_mcp_wait_for_other; under the server's lock, as is the intent */
    hx_slice intent;  /* set by hx_mcp_name */
    /* set by the tool */
    const char *outcome;
    hx_buf result; /* a JSON object, which is still open */
    bool is_error;
} hx_mcp_call;

/* A tool gets a call whose arguments are a JSON object, and writes its result: first hx_mcp_say, then details. */
typedef struct hx_mcp_tool {
    const char *name, *title, *description, *schema, *annotations;
    void (*run)(hx_mcp_call *call);
    hx_slice (*allowed)(const hx_config_mcp *mcp, hx_arena *arena); /* ends the description; may be NULL */
} hx_mcp_tool;

extern const hx_mcp_tool hx_mcp_tools[];
extern const size_t hx_mcp_tool_count;

/* Returns when the input has ended and all calls with it. */
void hx_mcp_serve(hx_mcp_server *server);

/* Begins the result: what became of it, and what the agent should do now. */
void hx_mcp_say(hx_mcp_call *call, const char *outcome, bool is_error, hx_slice message, const char *next);
/* Tells a client that asked for it how far the call is. */
void hx_mcp_progress(hx_mcp_call *call, hx_slice message);
/* Says which intent the call is about, before it is opened. */
void hx_mcp_name(hx_mcp_call *call, hx_slice intent);
/* Waits for the end of another call of this server that may have the same intent open. False: there is none. */
bool hx_mcp_wait_for_other(hx_mcp_call *call) HX_MUST_USE;

#endif
