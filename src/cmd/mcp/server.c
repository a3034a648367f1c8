/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/mcp/server.h"

#include "base/check.h"
#include "cmd/mcp/rpc.h"
#include "core/json/json.h"
#include "core/json/json_fields.h"
#include "core/json/json_writer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LIST_MAX (64u << 10) /* of tools */

/* What a client should tell its model about this server. */
static const char instructions[] =
    "These tools have effects that take place once, whatever fails. Choose an `intent` for each operation, such as "
    "refund-order-17, and use the same one with the same arguments whenever you repeat the call: after an error, a "
    "timeout, or a restart. Never choose a new intent for an operation whose outcome is unknown. Use did_it_go_through "
    "to find out what became of an intent, and list_unknown at the start of a session.";

/* Writing */

static void write_line(hx_mcp_server *server, const hx_buf *line)
{
    hx_slice rest = hx_buf_slice(line);
    (void)pthread_mutex_lock(&server->out_lock);
    while (rest.len > 0) {
        ssize_t written = write(server->out, rest.ptr, rest.len);
        if (written > 0)
            rest = hx_slice_from(rest, (size_t)written);
        else if (errno == EAGAIN)
            (void)poll(&(struct pollfd){.fd = server->out, .events = POLLOUT}, 1, -1);
        else if (errno != EINTR)
            break; /* nobody reads any more; the end of the input will follow */
    }
    (void)pthread_mutex_unlock(&server->out_lock);
}

static void answer(hx_mcp_server *server, hx_slice id, hx_slice result)
{
    hx_buf line;
    hx_buf_init(&line, NULL, HX_MCP_ANSWER_MAX);
    hx_rpc_put_result(&line, id, result);
    write_line(server, &line);
    hx_buf_free(&line);
}

static void answer_error(hx_mcp_server *server, hx_slice id, int code, const char *why)
{
    hx_buf line;
    hx_buf_init(&line, NULL, 4096);
    hx_rpc_put_error(&line, id, code, why);
    write_line(server, &line);
    hx_buf_free(&line);
}

void hx_mcp_progress(hx_mcp_call *call, hx_slice message)
{
    hx_buf params, line;
    if (call->progress_token.len == 0 || atomic_load(&call->is_cancelled)) return;
    hx_buf_init(&params, &call->arena, 4096);
    hx_buf_init(&line, &call->arena, 8192);
    hx_json_open(&params, NULL, '{');
    hx_json_put_raw(&params, "progressToken", call->progress_token);
    hx_json_put_number(&params, "progress", ++call->progress);
    hx_json_put_text(&params, "message", hx_slice_first(message, 500));
    hx_json_close(&params, '}');
    hx_rpc_put_notification(&line, "notifications/progress", hx_buf_slice(&params));
    write_line(call->server, &line);
}

void hx_mcp_say(hx_mcp_call *call, const char *outcome, bool is_error, hx_slice message, const char *next)
{
    call->outcome = outcome;
    call->is_error = is_error;
    hx_json_put_text(&call->result, "outcome", hx_slice_of(outcome));
    hx_json_put_text(&call->result, "message", message);
    hx_json_put_text(&call->result, "what_next", hx_slice_of(next));
    if (call->intent.len > 0) hx_json_put_text(&call->result, "intent", call->intent);
}

/* Calls */

static void answer_call(hx_mcp_call *call)
{
    hx_buf result;
    hx_slice said = hx_buf_slice(&call->result);
    hx_buf_init(&result, &call->arena, HX_MCP_ANSWER_MAX);
    hx_json_open(&result, NULL, '{');
    hx_json_open(&result, "content", '[');
    hx_json_open(&result, NULL, '{');
    hx_json_put_text(&result, "type", HX_LIT("text"));
    hx_json_put_text(&result, "text", said);
    hx_buf_puts(&result, "}]");
    hx_json_put_raw(&result, "structuredContent", said);
    hx_json_put_bool(&result, "isError", call->is_error);
    hx_json_close(&result, '}');
    if (!atomic_load(&call->is_cancelled)) answer(call->server, call->id, hx_buf_slice(&result));
}

static void *run_call(void *context)
{
    hx_mcp_call *call = context;
    hx_mcp_server *server = call->server;
    hx_buf_init(&call->result, &call->arena, HX_MCP_RESULT_MAX);
    hx_json_open(&call->result, NULL, '{');
    call->tool->run(call);
    hx_json_close(&call->result, '}');
    HX_CHECK(call->outcome);
    fprintf(stderr, "hapax mcp: %s%s%.*s: %s\n", call->tool->name, call->intent.len > 0 ? " " : "",
            HX_FMT(call->intent), call->outcome);
    answer_call(call);
    (void)pthread_mutex_lock(&server->lock);
    hx_list_remove(&call->link);
    server->call_count--;
    (void)pthread_cond_broadcast(&server->call_ended);
    (void)pthread_mutex_unlock(&server->lock);
    hx_arena_free(&call->arena);
    free(call);
    hx_arena_pool_drain();
    return NULL;
}

void hx_mcp_name(hx_mcp_call *call, hx_slice intent)
{
    (void)pthread_mutex_lock(&call->server->lock);
    call->intent = intent;
    (void)pthread_mutex_unlock(&call->server->lock);
}

bool hx_mcp_wait_for_other(hx_mcp_call *call)
{
    hx_mcp_server *server = call->server;
    bool has_other = false;
    (void)pthread_mutex_lock(&server->lock);
    HX_EACH(link, &server->calls)
    {
        const hx_mcp_call *other = HX_OWNER(link, hx_mcp_call, link);
        bool may_have_it = other->intent.len == 0 || hx_slice_eq(other->intent, call->intent);
        has_other = has_other || (other != call && !other->is_waiting && may_have_it);
    }
    call->is_waiting = has_other;
    if (has_other) (void)pthread_cond_wait(&server->call_ended, &server->lock);
    call->is_waiting = false;
    (void)pthread_mutex_unlock(&server->lock);
    return has_other;
}

static void begin_call(hx_mcp_server *server, const hx_rpc_message *message, const hx_mcp_tool *tool,
                       hx_slice arguments)
{
    hx_slice token;
    pthread_t thread;
    pthread_attr_t attributes;
    hx_mcp_call *call = calloc(1, sizeof *call);
    if (!call) hx_fatal(HX_EXIT_BUG, "out of memory");
    call->server = server;
    call->tool = tool;
    call->id = hx_arena_copy(&call->arena, message->id);
    call->arguments = hx_arena_copy(&call->arena, arguments);
    call->progress_token = call->intent = HX_EMPTY;
    if (hx_json_pointer(message->params, HX_LIT("/_meta/progressToken"), &token) && token.len <= HX_RPC_ID_MAX &&
        token.ptr[0] != '{' && token.ptr[0] != '[')
        call->progress_token = hx_arena_copy(&call->arena, token);
    (void)pthread_mutex_lock(&server->lock);
    bool has_room = server->call_count < HX_MCP_CALLS_MAX;
    if (has_room) {
        hx_list_append(&server->calls, &call->link);
        server->call_count++;
    }
    (void)pthread_mutex_unlock(&server->lock);
    if (has_room) {
        (void)pthread_attr_init(&attributes);
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        int why = pthread_create(&thread, &attributes, run_call, call);
        (void)pthread_attr_destroy(&attributes);
        if (why != 0) hx_fatal(HX_EXIT_BUG, "can't start a thread");
        return;
    }
    hx_arena_free(&call->arena);
    free(call);
    answer_error(server, message->id, HX_RPC_INVALID_REQUEST,
                 "16 calls are under way, which is the limit. Nothing was done: call again when one has ended.");
}

static void cancel_call(hx_mcp_server *server, hx_slice params)
{
    hx_slice id;
    if (!hx_json_pointer(params, HX_LIT("/requestId"), &id)) return;
    (void)pthread_mutex_lock(&server->lock);
    HX_EACH(link, &server->calls)
    {
        hx_mcp_call *call = HX_OWNER(link, hx_mcp_call, link);
        if (hx_slice_eq(call->id, id)) atomic_store(&call->is_cancelled, true);
    }
    (void)pthread_mutex_unlock(&server->lock);
}

/* Requests */

static void initialize(hx_mcp_server *server, const hx_rpc_message *message, hx_arena *arena)
{
    static const char *const versions[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};
    hx_slice asked = HX_EMPTY, raw;
    const char *chosen = versions[0];
    if (hx_json_pointer(message->params, HX_LIT("/protocolVersion"), &raw) && !hx_json_string(raw, arena, &asked))
        asked = HX_EMPTY;
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        if (hx_slice_eq(asked, hx_slice_of(versions[i]))) chosen = versions[i];
    hx_buf result;
    hx_buf_init(&result, arena, 4096);
    hx_json_open(&result, NULL, '{');
    hx_json_put_text(&result, "protocolVersion", hx_slice_of(chosen));
    hx_json_put_raw(&result, "capabilities", HX_LIT("{\"tools\":{}}"));
    hx_json_open(&result, "serverInfo", '{');
    hx_json_put_text(&result, "name", HX_LIT("hapax"));
    hx_json_put_text(&result, "version", HX_LIT(HAPAX_VERSION));
    hx_json_close(&result, '}');
    hx_json_put_text(&result, "instructions", HX_LIT(instructions));
    hx_json_close(&result, '}');
    answer(server, message->id, hx_buf_slice(&result));
}

static void list_tools(hx_mcp_server *server, const hx_rpc_message *message, hx_arena *arena)
{
    hx_buf result;
    hx_buf_init(&result, arena, LIST_MAX);
    hx_json_open(&result, NULL, '{');
    hx_json_open(&result, "tools", '[');
    for (size_t i = 0; i < hx_mcp_tool_count; i++) {
        const hx_mcp_tool *tool = &hx_mcp_tools[i];
        hx_slice text = hx_slice_of(tool->description);
        if (tool->allowed)
            text = hx_arena_printf(arena, "%s Allowed here: %.*s.", tool->description,
                                   HX_FMT(tool->allowed(server->config, arena)));
        hx_json_open(&result, NULL, '{');
        hx_json_put_text(&result, "name", hx_slice_of(tool->name));
        hx_json_put_text(&result, "title", hx_slice_of(tool->title));
        hx_json_put_text(&result, "description", text);
        hx_json_put_raw(&result, "inputSchema", hx_slice_of(tool->schema));
        hx_json_put_raw(&result, "annotations", hx_slice_of(tool->annotations));
        hx_json_close(&result, '}');
    }
    hx_buf_puts(&result, "]}");
    answer(server, message->id, hx_buf_slice(&result));
}

static void call_tool(hx_mcp_server *server, const hx_rpc_message *message, hx_arena *arena)
{
    hx_slice raw, name, arguments = HX_LIT("{}");
    if (!hx_json_pointer(message->params, HX_LIT("/name"), &raw) || !hx_json_string(raw, arena, &name)) name = HX_EMPTY;
    if (hx_json_pointer(message->params, HX_LIT("/arguments"), &raw)) arguments = raw;
    if (arguments.ptr[0] != '{') {
        answer_error(server, message->id, HX_RPC_INVALID_PARAMS, "\"arguments\" must be an object.");
        return;
    }
    for (size_t i = 0; i < hx_mcp_tool_count; i++)
        if (hx_slice_eq(name, hx_slice_of(hx_mcp_tools[i].name))) {
            begin_call(server, message, &hx_mcp_tools[i], arguments);
            return;
        }
    answer_error(server, message->id, HX_RPC_INVALID_PARAMS,
                 "There is no such tool: use send_once, run_once, did_it_go_through or list_unknown.");
}

static const struct {
    const char *method;
    void (*run)(hx_mcp_server *server, const hx_rpc_message *message, hx_arena *arena); /* NULL: an empty answer */
} methods[] = {
    {"initialize", initialize},
    {"tools/list", list_tools},
    {"tools/call", call_tool},
    {"ping", NULL},
};

static void take_request(hx_mcp_server *server, const hx_rpc_message *message, hx_arena *arena)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (!hx_slice_eq(message->method, hx_slice_of(methods[i].method))) continue;
        if (methods[i].run)
            methods[i].run(server, message, arena);
        else
            answer(server, message->id, HX_LIT("{}"));
        return;
    }
    answer_error(server, message->id, HX_RPC_UNKNOWN_METHOD, "This server has tools only; it knows no such method.");
}

static void take_line(hx_mcp_server *server, hx_slice line)
{
    hx_arena arena = {0};
    hx_rpc_message message;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r') line.len--;
    if (hx_slice_trim(line).len == 0) return;
    switch (hx_rpc_read(line, &arena, &message)) {
    case HX_RPC_REQUEST: take_request(server, &message, &arena); break;
    case HX_RPC_NOTIFICATION:
        if (hx_slice_eq(message.method, HX_LIT("notifications/cancelled"))) cancel_call(server, message.params);
        break;
    case HX_RPC_RESPONSE: break;
    case HX_RPC_WRONG: answer_error(server, message.id, message.code, message.why); break;
    }
    hx_arena_free(&arena);
}

/* Reading */

/* Takes the whole lines in `buf`. One that is too long is skipped as it comes, and answered at its end. */
static void take_lines(hx_mcp_server *server, hx_buf *buf, size_t *searched, bool *skips)
{
    size_t begin = 0;
    for (;;) {
        const char *from = buf->data + begin + *searched;
        const char *end = memchr(from, '\n', buf->len - begin - *searched);
        *searched = end ? 0 : buf->len - begin;
        if (!end) break;
        if (*skips)
            answer_error(server, HX_LIT("null"), HX_RPC_INVALID_REQUEST,
                         "A message must be shorter than 16 MiB. Nothing was done.");
        else
            take_line(server, (hx_slice){buf->data + begin, (size_t)(end - buf->data) - begin});
        *skips = false;
        begin = (size_t)(end - buf->data) + 1;
    }
    hx_buf_consume(buf, begin);
    if (*skips || buf->len >= HX_RPC_LINE_MAX) {
        *skips = true;
        buf->len = *searched = 0;
    }
}

void hx_mcp_serve(hx_mcp_server *server)
{
    hx_buf buf;
    size_t searched = 0;
    bool skips = false;
    hx_list_init(&server->calls);
    hx_buf_init(&buf, NULL, HX_RPC_LINE_MAX + 65536);
    for (;;) {
        bool has_room = hx_buf_reserve(&buf, 65536);
        HX_CHECK(has_room);
        ssize_t got = read(server->in, buf.data + buf.len, 65536);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) {
            (void)poll(&(struct pollfd){.fd = server->in, .events = POLLIN}, 1, -1);
            continue;
        }
        if (got <= 0) break;
        buf.len += (size_t)got;
        take_lines(server, &buf, &searched, &skips);
    }
    if (!skips && buf.len > 0) take_line(server, hx_buf_slice(&buf));
    hx_buf_free(&buf);
    (void)pthread_mutex_lock(&server->lock);
    while (server->call_count > 0) (void)pthread_cond_wait(&server->call_ended, &server->lock);
    (void)pthread_mutex_unlock(&server->lock);
}
