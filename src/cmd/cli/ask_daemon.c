/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/ask_daemon.h"

#include "base/memory/buf.h"
#include "base/check.h"
#include "cmd/keys.h"
#include "net/upstream.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define HEAD_BYTES_MAX (64u * 1024u)
#define ANSWER_BYTES_MAX (64u * 1024u * 1024u)

typedef struct {
    hx_loop *loop;
    hx_exchange exchange;
    unsigned status;
    hx_buf body;
    bool over, whole, too_large;
    hx_upstream_error error;
} question;

static void head_came(hx_exchange *exchange, const hx_answer_head *head)
{
    question *q = exchange->user;
    q->status = head->status;
}

static void body_came(hx_exchange *exchange, hx_slice piece)
{
    question *q = exchange->user;
    if (!hx_buf_append(&q->body, piece)) q->too_large = true;
}

static void ended(hx_exchange *exchange)
{
    question *q = exchange->user;
    q->over = q->whole = true;
    hx_loop_stop(q->loop);
}

static void failed(hx_exchange *exchange, hx_upstream_error error)
{
    question *q = exchange->user;
    q->over = true;
    q->error = error;
    hx_loop_stop(q->loop);
}

/* Explains a failed connect by its errno. */
static int why_unreachable(hx_slice path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path.len >= sizeof address.sun_path) return ENAMETOOLONG;
    if (path.len > 0) memcpy(address.sun_path, path.ptr, path.len);
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0) return errno;
    int why = connect(probe, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    (void)close(probe);
    return why;
}

static void explain(hx_slice address, hx_upstream_error error, bool too_large, hx_error_text out)
{
    hx_slice path = hx_slice_from(address, sizeof("unix:") - 1);
    int why = error == HX_UPSTREAM_UNREACHABLE ? why_unreachable(path) : 0;
    const char *advice = hx_upstream_error_text(error);
    if (too_large)
        advice = "its response is too large. Use a filter";
    else if (why == ENOENT)
        advice = "there is no such socket. Is the daemon running, with this store? Use --admin, --config or --store "
                 "to say where it is";
    else if (why == ECONNREFUSED)
        advice = "no process listens there any more. Start the daemon: `hapax serve`";
    else if (why == EACCES || why == EPERM)
        advice = "permission denied. Run this as the daemon's user or root";
    else if (why != 0)
        advice = strerror(why);
    (void)hx_fail(out, "can't reach the daemon at %.*s: %s", HX_FMT(hx_slice_first(path, 200)), advice);
}

bool hx_ask_daemon(hx_slice address, const hx_admin_request *request, hx_arena *arena, hx_admin_reply *reply,
                   hx_error_text error)
{
    static const hx_exchange_events events = {.head = head_came, .body = body_came, .end = ended, .failed = failed};
    static const hx_upstream_limits limits = {.connect_timeout = 5 * HX_SECOND,
                                              .idle_timeout = HX_SECOND,
                                              .idle_max = 1,
                                              .connections_max = 1,
                                              .waiting_max = 1,
                                              .head_bytes_max = HEAD_BYTES_MAX,
                                              .fields_max = 100};
    hx_error_text why;
    question q = {.loop = hx_loop_new()};
    hx_buf_init(&q.body, arena, ANSWER_BYTES_MAX);
    hx_upstream *daemon = hx_upstream_new(q.loop, address, &limits, why);
    if (daemon) {
        q.exchange = (hx_exchange){.arena = arena,
                                   .events = &events,
                                   .user = &q,
                                   .method = hx_slice_of(request->method),
                                   .target = request->target,
                                   .body = request->body,
                                   .close = true};
        if (request->body.len > 0) {
            q.exchange.framing = HX_FRAMING_LENGTH;
            q.exchange.content_length = request->body.len;
        }
        const char *type = request->body.len > 0 ? "Content-Type: application/json\r\n" : "";
        const char *key = request->key ? request->key : "", *name = request->key ? "Idempotency-Key: " : "";
        q.exchange.header_lines = hx_arena_printf(arena, "Host: hapax\r\n%s%s%s%s", type, name, key,
                                                  *key ? "\r\n" : "");
        hx_exchange_start(daemon, &q.exchange);
        while (!q.over) hx_loop_run(q.loop);
        hx_upstream_free(&daemon);
    }
    hx_loop_free(&q.loop);
    *reply = (hx_admin_reply){.status = q.status, .body = hx_buf_slice(&q.body)};
    if (q.whole && !q.too_large) return true;
    if (q.over)
        explain(address, q.error, q.too_large, error);
    else
        (void)hx_fail(error, "%.*s: %s", HX_FMT(hx_slice_first(address, 200)), why);
    return false;
}

int hx_ask_daemon_refused(const char *command, const hx_admin_reply *reply, hx_arena *arena)
{
    (void)fprintf(stderr, "hapax %s: %s (%u)\n%s\n", command, hx_keys_member(reply->body, "detail", arena),
                  reply->status, hx_keys_member(reply->body, "hint", arena));
    return reply->status >= 500 ? HX_EXIT_STORE : HX_EXIT_USAGE;
}

int hx_ask_daemon_well(const char *command, hx_slice address, const hx_admin_request *request, hx_arena *arena,
                       hx_admin_reply *reply)
{
    hx_error_text error;
    if (!hx_ask_daemon(address, request, arena, reply, error)) {
        (void)fprintf(stderr, "hapax %s: %s\n", command, error);
        return HX_EXIT_STORE;
    }
    return reply->status / 100 == 2 ? -1 : hx_ask_daemon_refused(command, reply, arena);
}
