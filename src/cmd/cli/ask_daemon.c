/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/ask_daemon.h"

#include "base/check.h"
#include "cmd/cli/asking.h"
#include "cmd/keys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct {
    hx_asking call;
    hx_loop *loop;
    bool is_over;
} question;

static void answered(hx_asking *call)
{
    question *q = HX_OWNER(call, question, call);
    q->is_over = true;
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
    hx_error_text why;
    question q = {.call = {.arena = arena, .token = HX_EMPTY, .done = answered}, .loop = hx_loop_new()};
    hx_upstream *daemon = hx_asking_connect(q.loop, address, why);
    if (daemon) {
        hx_asking_start(daemon, &q.call, request);
        while (!q.is_over) hx_loop_run(q.loop);
        hx_upstream_free(&daemon);
    }
    hx_loop_free(&q.loop);
    *reply = (hx_admin_reply){.status = q.call.status, .body = hx_buf_slice(&q.call.body)};
    if (q.call.is_whole) return true;
    if (q.is_over)
        explain(address, q.call.error, q.call.is_too_large, error);
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
