/* SPDX-License-Identifier: Apache-2.0 */
/* send_once: `hapax send` for agents, with the operator's allow-list, credentials and address guard. */
#include "cmd/mcp/allow.h"
#include "cmd/mcp/tools.h"
#include "cmd/send/perform.h"
#include "cmd/send/view.h"
#include "core/json/json.h"
#include "core/json/json_walk.h"
#include "core/json/json_writer.h"

#include <stdio.h>

#define HEADERS_MAX 20u
#define HEADER_MAX 1000u
#define KEY_LIFETIME (23 * HX_HOUR)

#define FIELD(member, kind) HX_JSON_FIELD(hx_mcp_arguments, member, kind, HX_JSON_GIVEN)
static const hx_json_field fields[] = {FIELD(intent, TEXT), FIELD(method, TEXT), FIELD(url, TEXT), FIELD(headers, RAW),
                                       FIELD(body, RAW)};
static const hx_json_shape shape = HX_JSON_SHAPE(fields);

/* The request */

static bool is_line(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 0x7f) return false;
    return true;
}

/* Canonical JSON, so that an agent that writes the same value again in another order repeats the request. */
static bool canonical(hx_slice json, hx_arena *arena, hx_slice *out)
{
    hx_buf buf;
    hx_buf_init(&buf, arena, HX_JSON_CANONICAL_BYTES(json.len));
    if (!hx_json_canonical(json, arena, &buf)) return false;
    *out = hx_buf_slice(&buf);
    return true;
}

/* Adds the agent's headers; *has_type: one of them is the Content-Type. */
static bool read_headers(hx_mcp_call *call, const hx_agent_host *host, hx_slice given, hx_texts *headers,
                         bool *has_type, hx_error_text error)
{
    hx_slice raw_name, raw, name, value, sorted;
    if (given.len == 0) return true;
    if (given.ptr[0] != '{' || !canonical(given, &call->arena, &sorted))
        return hx_fail(error, "\"headers\" must be an object of texts");
    hx_json_walk walk = hx_json_walk_over(sorted);
    while (hx_json_walk_next(&walk, &raw_name, &raw)) {
        if (headers->count == HEADERS_MAX) return hx_fail(error, "there are more than %u headers", HEADERS_MAX);
        if (raw_name.len + raw.len > HEADER_MAX || !hx_json_string(raw_name, &call->arena, &name) ||
            !hx_slice_is_token(name) || !hx_json_string(raw, &call->arena, &value) || !is_line(value))
            return hx_fail(error, "a header is a name and a text without line ends, of up to %u bytes", HEADER_MAX);
        if (!hx_mcp_allows_header(host, name))
            return hx_fail(error, "the header %.*s is not allowed", (int)(name.len < 60 ? name.len : 60), name.ptr);
        *has_type = *has_type || hx_slice_eq_nocase(name, HX_LIT("content-type"));
        headers->items[headers->count++] = hx_arena_printf(&call->arena, "%.*s: %.*s", HX_FMT(name), HX_FMT(value));
    }
    return true;
}

/* A text is sent as it is, unless it is JSON and nothing else is said about it. */
static bool read_body(hx_mcp_call *call, hx_slice given, bool has_type, hx_slice *body, const char **type)
{
    *type = NULL;
    *body = HX_EMPTY;
    if (given.len == 0) return true;
    bool is_text = given.ptr[0] == '"';
    if (is_text && !hx_json_string(given, &call->arena, body)) return false;
    if (!is_text) *body = given;
    if (!is_text || !has_type) {
        bool is_json = canonical(*body, &call->arena, body);
        *type = is_json ? "application/json" : "text/plain; charset=utf-8";
    }
    if (has_type) *type = NULL;
    return true;
}

static bool read_request(hx_mcp_call *call, const hx_mcp_arguments *given, const hx_agent_host *host,
                         hx_intent_request *request, hx_error_text error)
{
    const char *type;
    bool has_type = false;
    *request = (hx_intent_request){.method = given->method,
                                   .url = given->url,
                                   .class = HX_EMPTY,
                                   .key_lifetime = KEY_LIFETIME};
    request->headers.items = hx_arena_alloc(&call->arena, (HEADERS_MAX + 2) * sizeof *request->headers.items);
    if (!read_headers(call, host, given->headers, &request->headers, &has_type, error)) return false;
    if (!read_body(call, given->body, has_type, &request->body, &type)) return hx_fail(error, "\"body\" is malformed");
    if (request->body.len > HX_INTENT_BODY_MAX) return hx_fail(error, "\"body\" has more than 8 MiB");
    if (type)
        request->headers.items[request->headers.count++] = hx_arena_printf(&call->arena, "Content-Type: %s", type);
    if (host->credentials.len > 0) /* read at each attempt, and written down as a name only */
        request->headers.items[request->headers.count++] = hx_arena_printf(&call->arena, "@%.*s",
                                                                           HX_FMT(host->credentials));
    return true;
}

/* The result */

static void put_response(hx_mcp_call *call, const hx_intent_outcome *outcome)
{
    hx_buf *out = &call->result;
    hx_slice body = hx_mcp_redact(call, outcome->body);
    hx_json_put_number(out, "status", outcome->status);
    hx_json_put_bool(out, "replayed_by_server", outcome->replayed);
    hx_json_put_time(out, "at", outcome->at);
    hx_json_put_text(out, "content_type", hx_mcp_redact(call, outcome->content_type));
    hx_json_put_bool(out, "body_is_cut", body.len > HX_MCP_TEXT_MAX);
    hx_json_put_text(out, "body", hx_slice_first(body, HX_MCP_TEXT_MAX));
}

static void tell_end(hx_mcp_call *call, const hx_intent_outcome *outcome, bool is_done, bool is_old)
{
    hx_arena *arena = &call->arena;
    char text[HX_RFC3339_BYTES];
    hx_slice at = hx_rfc3339(outcome->at, text), message;
    if (outcome->original_time.len > 0) at = hx_mcp_redact(call, hx_slice_first(outcome->original_time, 40));
    if (is_old)
        message = hx_arena_printf(arena, "%s at %.*s, not repeated. This is the response from then.",
                                  is_done ? "Already done" : "Already refused", HX_FMT(at));
    else if (outcome->replayed)
        message = hx_arena_printf(arena, "%s at %.*s, not repeated: the server had the response to an earlier attempt.",
                                  is_done ? "Already done" : "Already refused", HX_FMT(at));
    else
        message = hx_slice_of(is_done ? "Done." : "Refused: the server said no, and nothing was done.");
    hx_mcp_say(call, is_done ? "done" : "refused", !is_done, message,
               is_done ? "Nothing more is to do. Only to do it a second time on purpose, choose a new intent."
                       : "Don't repeat this. Read the response; a corrected request is another operation and needs a "
                         "new intent.");
    put_response(call, outcome);
}

void hx_mcp_tell_request(hx_mcp_call *call, const hx_intent *intent, hx_careful_verdict verdict, hx_slice why,
                         bool is_old)
{
    hx_arena *arena = &call->arena;
    hx_slice reason = hx_mcp_redact(call, why);
    if (hx_slice_ends(reason, HX_LIT("."))) reason.len--;
    if (verdict == HX_CAREFUL_DONE || verdict == HX_CAREFUL_REFUSED)
        tell_end(call, &intent->outcome, verdict == HX_CAREFUL_DONE, is_old);
    else if (verdict == HX_CAREFUL_UNKNOWN && hx_clock_wall() >= hx_intent_key_end(intent))
        hx_mcp_say(call, "unknown", true,
                   HX_LIT("It may have been done, and the server may have forgotten the key by now, so nothing is sent "
                          "any more."),
                   "Find out at the server whether it was done, or ask a person. Don't send it with a new intent "
                   "before that.");
    else if (verdict == HX_CAREFUL_UNKNOWN)
        hx_mcp_say(call, "unknown", true,
                   hx_arena_printf(arena, "It may have been done, or not%s%.*s.", reason.len > 0 ? ": " : "",
                                   HX_FMT(reason)),
                   "Call send_once again with the same intent and the same arguments: it asks with the same key, so "
                   "nothing happens twice. Don't choose a new intent.");
    else
        hx_mcp_say(call, "not_done", true,
                   hx_arena_printf(arena, "It was not done%s%.*s.", reason.len > 0 ? ": " : "", HX_FMT(reason)),
                   "Call send_once again later with the same intent and the same arguments.");
    hx_json_put_text(&call->result, "tool", HX_LIT("send_once"));
    hx_json_put_text(&call->result, "method", intent->request.method);
    hx_json_put_text(&call->result, "url", intent->request.url);
    hx_json_put_number(&call->result, "attempts", intent->attempt_count);
    if (intent->outcome.verdict.len == 0 && intent->attempt_count > 0) {
        const hx_intent_attempt *last = &intent->attempts[intent->attempt_count - 1];
        hx_json_put_text(&call->result, "last_attempt",
                         last->has_result ? hx_mcp_redact(call, last->note) : HX_LIT("interrupted"));
    }
}

/* The call */

static void tell_waiting(void *user, const char *why, unsigned attempt, hx_ms delay)
{
    hx_mcp_call *call = user;
    hx_mcp_progress(call,
                    hx_arena_printf(&call->arena, "%s; attempt %u in %.1f s", why, attempt, (double)delay / HX_SECOND));
}

static bool is_cancelled(void *user)
{
    return atomic_load(&((hx_mcp_call *)user)->is_cancelled);
}

static void perform(hx_mcp_call *call, hx_intent *intent)
{
    const hx_config_mcp *mcp = call->server->config;
    hx_guard guard = {.allowed = mcp->allow, .allowed_count = mcp->allow_count};
    hx_send_settings settings = {.policy = hx_retry_policy_of_class(HX_CLASS_USER),
                                 .timeout = mcp->timeout,
                                 .budget = mcp->budget,
                                 .guard = &guard,
                                 .user = call,
                                 .waits = tell_waiting,
                                 .ends = is_cancelled};
    hx_send_end end;
    hx_error_text error;
    if (mcp->ca_file.len > 0) settings.ca_file = hx_arena_terminated(&call->arena, mcp->ca_file);
    bool is_old = intent->outcome.verdict.len > 0;
    size_t before = intent->attempt_count;
    if (is_old)
        hx_mcp_tell_request(call, intent, hx_send_verdict_of(intent), HX_EMPTY, true);
    else if (hx_send_perform(intent, &settings, &call->arena, &end, error))
        hx_mcp_tell_request(call, intent, end.verdict, end.why, false);
    else if (intent->attempt_count > before)
        hx_mcp_tell_request(call, intent, HX_CAREFUL_UNKNOWN, HX_LIT("the outcome could not be written down"), false);
    else
        hx_mcp_say_unusable(call, error);
}

void hx_mcp_send_once(hx_mcp_call *call)
{
    hx_mcp_arguments given;
    hx_intent_request request;
    hx_intents intents;
    hx_error_text error;
    if (!hx_mcp_read(call, &shape, &given)) return;
    const hx_config_mcp *mcp = call->server->config;
    const hx_agent_host *host = hx_mcp_allowed_host(mcp, given.method, given.url, &call->arena, error);
    if (!host || !read_request(call, &given, host, &request, error)) {
        hx_slice allowed = hx_mcp_allowed_requests(mcp, &call->arena);
        hx_mcp_say(call, "not_allowed", true,
                   hx_arena_printf(&call->arena, "Refused here: %s. Nothing was sent. Allowed: %.*s.", error,
                                   HX_FMT(allowed)),
                   "Use an allowed request, written as the list has it, or ask the operator of this server to allow "
                   "yours.");
        return;
    }
    if (!hx_mcp_open_folder(call, call->server->requests, &intents)) return;
    hx_intent *intent = hx_mcp_open(call, &intents, &request);
    if (intent) perform(call, intent);
    hx_intent_close(&intent);
    hx_intents_close(&intents);
}
