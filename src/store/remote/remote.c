/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of store.h on a remote store. */
#include "store/remote/lane.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "base/rand.h"

#include <stdlib.h>

void hx_remote_init(hx_remote *r, const hx_store_ops *ops, const hx_driver *driver, const char *name,
                    const hx_store_options *options)
{
    r->store = (hx_store){.ops = ops,
                          .facts = {.name = name,
                                    .durable = true,
                                    .keeps_items = true,
                                    .shared = true,
                                    .owner = hx_rand_u64(),
                                    .now = options->now ? options->now : hx_clock_now}};
    r->driver = driver;
    r->has_own_time = options->now != NULL;
    pthread_mutex_init(&r->mutex, NULL);
    hx_waiters_init(&r->waiters, options);
}

void hx_remote_free(hx_remote *r)
{
    for (unsigned i = 0; i < r->loop_count; i++)
        for (unsigned k = 0; k < HX_LANES; k++) hx_lane_free(r->loops[i].lanes[k]);
    hx_waiters_free(&r->waiters);
    hx_arena_free(&r->rules_arena);
    pthread_mutex_destroy(&r->mutex);
}

void hx_remote_attach(hx_store *store, hx_loop *loop)
{
    hx_remote *r = (hx_remote *)store;
    HX_CHECK(r->loop_count < HX_LOOPS_MAX);
    hx_lane **lanes = r->loops[r->loop_count].lanes;
    r->loops[r->loop_count].loop = loop;
    for (unsigned i = 0; i < HX_LANES; i++) lanes[i] = hx_lane_new(r, loop);
    lanes[0]->is_listener = r->loop_count == 0 && !r->is_pooled;
    r->loop_count++;
}

static hx_lane *lane_of(hx_remote *r, hx_loop *loop)
{
    for (unsigned i = 0; i < r->loop_count; i++) {
        if (r->loops[i].loop != loop) continue;
        hx_lane **lanes = r->loops[i].lanes;
        for (unsigned k = 0; k < HX_LANES; k++)
            if (hx_lane_is_well(lanes[k])) return lanes[k];
        return lanes[0];
    }
    hx_fatal(HX_EXIT_BUG, "a call from a loop that isn't attached");
}

/* The same outcome has the same ticket, however often its caller settles it: the store recognises it as done. */
static uint64_t settle_ticket(const hx_remote *r, const hx_record *record)
{
    const uint64_t facts[] = {r->store.facts.owner,         record->epoch,
                              (uint64_t)record->state,      (uint64_t)record->from_state,
                              (uint64_t)record->changed_at, record->answer.status};
    uint32_t sum = hx_crc32c(0, (hx_slice){(const char *)facts, sizeof facts});
    uint32_t answer = hx_crc32c(hx_crc32c(sum, record->answer.headers), record->answer.body);
    return (uint64_t)sum << 32 | answer;
}

void hx_remote_submit(hx_store *store, hx_store_call *call)
{
    hx_remote *r = (hx_remote *)store;
    hx_lane *lane = lane_of(r, call->loop);
    call->own.shown = NULL;
    call->own.remote = (hx_remote_call){
        .lane = lane,
        .ticket = call->verb == HX_STORE_SETTLE ? settle_ticket(r, call->record) : hx_rand_u64(),
        .since = hx_loop_now(call->loop),
    };
    hx_lane_submit(lane, call);
}

void hx_remote_end(hx_store_call *call, hx_store_result result)
{
    call->result = result;
    call->done(call);
}

static void cancel_done(hx_task *task)
{
    hx_remote_end(HX_OWNER(task, hx_store_call, own.task), HX_STORE_CANCELLED);
}

/* On the call's own thread. A watch whose first read is in flight ends with that. */
void hx_remote_cancel(hx_store *store, hx_store_call *call)
{
    if (!call->own.remote.is_watching) {
        call->own.remote.is_cancelled = true;
    } else if (hx_remote_waiters_remove((hx_remote *)store, call)) {
        hx_list_remove(&call->own.link);
        call->own.task.run = cancel_done;
        hx_loop_defer(call->loop, &call->own.task);
    }
}

hx_peek hx_remote_peek(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found)
{
    (void)store, (void)op, (void)arena, (void)whole_max, (void)found;
    return HX_PEEK_ASK;
}

void hx_remote_count(hx_store *store, hx_store_counts *out)
{
    hx_remote *r = (hx_remote *)store;
    *out = (hx_store_counts){.live = atomic_load(&r->counted.live),
                             .processing = atomic_load(&r->counted.processing),
                             .unknown = atomic_load(&r->counted.unknown),
                             .bytes = atomic_load(&r->counted.bytes),
                             .watchers = atomic_load(&r->waiters.count),
                             .commits = atomic_load(&r->commits),
                             .stale_writes = atomic_load(&r->stale_writes),
                             .cleaned = atomic_load(&r->cleaned)};
}

void hx_remote_set_rules(hx_remote *r, hx_arena arena, hx_store_rules rules)
{
    pthread_mutex_lock(&r->mutex);
    hx_arena_free(&r->rules_arena);
    r->rules_arena = arena;
    r->rules = rules;
    pthread_mutex_unlock(&r->mutex);
}

void hx_remote_rules(hx_store *store, hx_arena *arena, hx_store_rules *out)
{
    hx_remote *r = (hx_remote *)store;
    *out = (hx_store_rules){0};
    pthread_mutex_lock(&r->mutex);
    for (size_t i = 0; i < r->rules.count; i++) {
        const hx_store_rule *rule = &r->rules.rules[i];
        hx_store_rules_add(out, arena, rule->route, rule->version, rule->live);
    }
    pthread_mutex_unlock(&r->mutex);
}

/* Counts everything without a named route, whatever its path: the rules don't know more. */
uint64_t hx_remote_live_at_most(hx_store *store, hx_slice route)
{
    hx_remote *r = (hx_remote *)store;
    uint64_t live = 0;
    (void)route;
    pthread_mutex_lock(&r->mutex);
    for (size_t i = 0; i < r->rules.count; i++)
        if (r->rules.rules[i].route.len == 0) live += r->rules.rules[i].live;
    pthread_mutex_unlock(&r->mutex);
    return live;
}

bool hx_remote_limit(hx_store *store, const hx_store_options *options, hx_error_text error)
{
    (void)error;
    hx_waiters_limit(&((hx_remote *)store)->waiters, options);
    return true;
}
