/* SPDX-License-Identifier: Apache-2.0 */
/* hapax events tail: prints the events of a stream, and goes on as they come. It reads page by page, each behind the
 * last event that was printed, so nothing is missing after a restart of the daemon. */
#include "cmd/events/tail.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "cmd/events/view.h"
#include "cmd/keys.h"
#include "core/json/json.h"

#include <inttypes.h>
#include <time.h>

#define PAUSE_MS 500
#define NUMBER_MAX (UINT64_C(1) << 53)

typedef struct {
    hx_call *call;
    hx_slice stream; /* target of a request that reads it, but for its place */
    hx_slice first;  /* the same, from where the consumer is; empty: from the end */
    hx_arena arena;  /* of one page */
    uint64_t after;
    bool is_placed;      /* `after` is known */
    uint64_t left;       /* events to print */
    bool is_unreachable; /* the daemon is, which was said */
} tail;

static void put_line(hx_slice event, hx_arena *arena)
{
    hx_slice data;
    (void)printf("%-6s  %s  %s  %s  ", hx_keys_member(event, "position", arena),
                 hx_keys_member(event, "accepted_at", arena), hx_keys_member(event, "type", arena),
                 hx_keys_member(event, "id", arena));
    if (hx_json_pointer(event, HX_LIT("/data"), &data)) hx_print_json_line(data, arena);
    (void)printf("\n");
}

static uint64_t number_of(tail *t, const hx_admin_reply *reply, const char *name)
{
    uint64_t number = 0;
    return hx_slice_to_u64(hx_slice_of(hx_keys_member(reply->body, name, &t->arena)), &number) ? number : 0;
}

static void put_events(tail *t, const hx_admin_reply *reply)
{
    size_t count;
    const hx_slice *events = hx_keys_records(reply->body, "/events", &t->arena, &count);
    for (size_t i = 0; i < count && t->left > 0; i++, t->left--) {
        if (t->call->json) {
            hx_print_json_line(events[i], &t->arena);
            (void)printf("\n");
        } else {
            put_line(events[i], &t->arena);
        }
    }
    (void)fflush(stdout);
}

/* One page; -1 to go on. */
static int step(tail *t, bool *is_idle)
{
    hx_admin_request request = {.method = "GET", .body = HX_EMPTY};
    hx_admin_reply reply;
    hx_error_text error;
    bool from_end = !t->is_placed && t->first.len == 0;
    request.target = t->is_placed ? hx_arena_printf(&t->arena, "%.*s&after=%" PRIu64, HX_FMT(t->stream), t->after)
                     : from_end   ? hx_arena_printf(&t->arena, "%.*s&limit=1", HX_FMT(t->stream))
                                  : t->first;
    bool is_answered = hx_ask_daemon(t->call->address, &request, &t->arena, &reply, error);
    *is_idle = true;
    if (!is_answered || reply.status >= 500) {
        if (!t->is_placed) return hx_ask_daemon_well("events", t->call->address, &request, &t->arena, &reply);
        if (!t->is_unreachable) (void)fprintf(stderr, "The daemon can't be reached. Waiting for it.\n");
        t->is_unreachable = true;
        return -1;
    }
    t->is_unreachable = false;
    if (from_end && (reply.status == 200 || reply.status == 410)) { /* 410: the first is not kept any more */
        t->after = number_of(t, &reply, "version");
        t->is_placed = true;
        return -1;
    }
    if (reply.status != 200) return hx_ask_daemon_refused("events", &reply, &t->arena);
    put_events(t, &reply);
    uint64_t after = number_of(t, &reply, "after");
    *is_idle = t->is_placed && after == t->after;
    t->after = after;
    t->is_placed = true;
    return -1;
}

int hx_tail(hx_call *call)
{
    tail t = {.call = call, .first = HX_EMPTY, .left = UINT64_MAX};
    const char *after = hx_call_flag(call, "after");
    if (!hx_call_flag(call, "stream")) return hx_cmd_misused("events", "tail needs --stream");
    if (after && hx_call_flag(call, "consumer"))
        return hx_cmd_misused("events", "--after and --consumer can't be used together");
    t.is_placed = after != NULL;
    if (after && (!hx_slice_to_u64(hx_slice_of(after), &t.after) || t.after > NUMBER_MAX))
        return hx_cmd_misused("events", "--after must be a position, 0 for all events");
    t.stream = hx_call_target(call, "stream tenant", "events", NULL);
    if (hx_call_flag(call, "consumer")) t.first = hx_call_target(call, "stream tenant consumer", "events", NULL);
    int code = hx_call_number(call, "limit", NUMBER_MAX, &t.left);
    while (code < 0 && t.left > 0) {
        bool is_idle = false;
        code = step(&t, &is_idle);
        hx_arena_free(&t.arena);
        const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
        if (code < 0 && t.left > 0 && is_idle) (void)nanosleep(&pause, NULL);
    }
    return code < 0 ? HX_EXIT_OK : code;
}
