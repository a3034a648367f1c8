/* SPDX-License-Identifier: Apache-2.0 */
/* did_it_go_through and list_unknown: what is written down, and for commands what their store says. Nothing is sent or
 * run. */
#include "cmd/mcp/tools.h"
#include "cmd/send/view.h"
#include "core/json/json_writer.h"

#include <stdio.h>

#define LISTED_MAX 100u

static const hx_json_field fields[] = {HX_JSON_FIELD(hx_mcp_arguments, intent, TEXT, HX_JSON_GIVEN)};
static const hx_json_shape shape = HX_JSON_SHAPE(fields), nothing = {fields, 0};

/* Opens an intent to look at it. With `locks` *state is "running" if somebody works on it; else, of a command, what the
 * store says. */
static hx_intent_error look(hx_mcp_call *call, hx_intents *intents, hx_slice file, bool is_command, bool locks,
                            hx_intent **intent, hx_slice *state)
{
    hx_error_text error;
    *state = HX_EMPTY;
    hx_intent_error result = hx_intent_open(intents, file, locks, intent, error);
    if (result == HX_INTENT_OK && is_command) *state = hx_mcp_refresh_command(call, *intent);
    if (result == HX_INTENT_BUSY) {
        *state = HX_LIT("running");
        result = hx_intent_open(intents, file, false, intent, error);
    }
    if (result != HX_INTENT_OK && result != HX_INTENT_ABSENT) fprintf(stderr, "hapax mcp: %s.\n", error);
    return result;
}

/* Returns whether there is such an intent; it has been told then. */
static bool tell_about(hx_mcp_call *call, const char *directory, bool is_command)
{
    hx_intents intents;
    hx_intent *intent;
    hx_slice state;
    if (!hx_mcp_open_folder(call, directory, &intents)) return true;
    hx_slice file = hx_intent_file(hx_mcp_intent_name(call, call->intent), HX_EMPTY, &call->arena);
    hx_intent_error result = look(call, &intents, file, is_command, true, &intent, &state);
    bool is_running = hx_slice_eq(state, HX_LIT("running"));
    if (result == HX_INTENT_OK && is_command)
        hx_mcp_tell_command(call, intent, state, true);
    else if (result == HX_INTENT_OK && is_running && intent->outcome.verdict.len == 0)
        hx_mcp_say(call, "running", false, HX_LIT("The request is being sent."),
                   "Call send_once again with the same intent and the same arguments: it waits for the response.");
    else if (result == HX_INTENT_OK)
        hx_mcp_tell_request(call, intent, hx_send_verdict_of(intent), HX_EMPTY, true);
    else if (result != HX_INTENT_ABSENT)
        hx_mcp_say_unusable(call, "an intent can't be read");
    if (result == HX_INTENT_OK && !is_command && intent->outcome.verdict.len == 0)
        hx_json_put_time(&call->result, "begun_at", intent->request.created_at);
    hx_intent_close(&intent);
    hx_intents_close(&intents);
    return result != HX_INTENT_ABSENT;
}

void hx_mcp_did_it_go_through(hx_mcp_call *call)
{
    hx_mcp_arguments given;
    if (!hx_mcp_read(call, &shape, &given)) return;
    bool is_known = tell_about(call, call->server->requests, false);
    size_t whole = call->result.len;
    if (is_known) hx_json_open(&call->result, "run_once", '{'); /* the same intent may name a command, too */
    bool is_command = tell_about(call, call->server->commands, true);
    if (is_known && is_command)
        hx_json_close(&call->result, '}');
    else if (is_known)
        call->result.len = whole;
    if (!is_known && !is_command)
        hx_mcp_say(call, "never_begun", false, HX_LIT("Nothing was begun under this intent by this server."),
                   "If the operation is still wanted, call send_once or run_once with this intent.");
    call->is_error = false; /* the question was answered */
}

static void list_one(hx_mcp_call *call, const hx_intent *intent, bool is_command, hx_slice state, hx_slice name)
{
    hx_buf *out = &call->result;
    bool is_unknown = hx_intent_in_doubt(intent);
    if (is_command && (hx_slice_eq(state, HX_LIT("absent")) || hx_slice_eq(state, HX_LIT("released"))))
        is_unknown = false;
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "intent", name);
    hx_json_put_text(out, "tool", is_command ? HX_LIT("run_once") : HX_LIT("send_once"));
    hx_json_put_text(out, "outcome",
                     hx_slice_eq(state, HX_LIT("running")) ? state
                     : is_unknown                          ? HX_LIT("unknown")
                                                           : HX_LIT("not_done"));
    if (!is_command) hx_json_put_text(out, "method", intent->request.method);
    hx_json_put_text(out, is_command ? "program" : "url", intent->request.url);
    hx_json_put_time(out, "begun_at", intent->request.created_at);
    hx_json_put_number(out, "attempts", intent->attempt_count);
    hx_json_close(out, '}');
}

/* Lists the unfinished intents of this server; returns how many there are. Those of requests are not locked: the folder
 * may be that of `hapax send`, which would take a lock for work. */
static size_t list_folder(hx_mcp_call *call, const char *directory, bool is_command, size_t listed, size_t *unreadable)
{
    hx_intents intents;
    hx_texts files;
    hx_error_text error;
    size_t count = 0;
    hx_slice mine = hx_mcp_intent_name(call, HX_EMPTY), state;
    if (!hx_intents_open(directory, &intents, error)) {
        fprintf(stderr, "hapax mcp: %s.\n", error);
        (*unreadable)++;
        return 0;
    }
    if (!hx_intents_list(&intents, &files, error)) files.count = 0;
    for (size_t i = 0; i < files.count; i++) {
        hx_intent *intent;
        hx_intent_error result = look(call, &intents, files.items[i], is_command, is_command, &intent, &state);
        if (result == HX_INTENT_OK && hx_slice_starts(intent->request.name, mine) && intent->outcome.verdict.len == 0) {
            if (listed + count < LISTED_MAX)
                list_one(call, intent, is_command, state, hx_slice_from(intent->request.name, mine.len));
            count++;
        } else if (result != HX_INTENT_OK && result != HX_INTENT_ABSENT) {
            (*unreadable)++;
        }
        hx_intent_close(&intent);
    }
    hx_intents_close(&intents);
    return count;
}

void hx_mcp_list_unknown(hx_mcp_call *call)
{
    hx_mcp_arguments given;
    size_t unreadable = 0;
    if (!hx_mcp_read(call, &nothing, &given)) return;
    hx_json_open(&call->result, "operations", '[');
    size_t count = list_folder(call, call->server->requests, false, 0, &unreadable);
    count += list_folder(call, call->server->commands, true, count, &unreadable);
    hx_json_close(&call->result, ']');
    hx_json_put_number(&call->result, "count", count);
    hx_json_put_number(&call->result, "unreadable", unreadable);
    hx_mcp_say(call, "listed", false,
               count + unreadable == 0 ? HX_LIT("Every intent has an outcome.")
                                       : HX_LIT("These intents have no known outcome yet."),
               unreadable > 0 ? "Ask did_it_go_through about each. Some intents can't be read: tell the operator of "
                                "this server, whose log names them."
               : count > 0    ? "Ask did_it_go_through about each: it says what to do."
                              : "Nothing is to do.");
}
