/* SPDX-License-Identifier: Apache-2.0 */
/* The waiting room: watches whose operation was found under way. Who settles it in this process tells them at once,
 * whatever thread they are on, with the answer; what other nodes do is found by looking again, at growing distances.
 *
 * A watch here is in two lists: that of its operation (under the mutex), by next_watch, and that of its lane (its own
 * thread's), by own.link. Who takes it out of the first one ends it. */
#include "store/postgres/postgres.h"

#include "base/check.h"

#include <string.h>

static hx_slice key_of(const hx_op *op)
{
    return (hx_slice){(const char *)op->bytes, sizeof op->bytes};
}

static void told(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    hx_shared_record *version = call->own.shown;
    hx_list_remove(&call->own.link);
    if (version) hx_shared_record_show(version, call->arena, &call->found);
    hx_shared_record_drop(&version);
    hx_call_end(call, HX_STORE_OK);
}

bool hx_pg_waiters_enter(hx_postgres *p, hx_store_call *watch)
{
    pthread_mutex_lock(&p->mutex);
    hx_store_call *first = hx_map_get(p->room, key_of(&watch->op));
    uint64_t count = first ? first->own.remote.watch_count : 0;
    bool has_room = count < p->waiters_per_op_max && atomic_load(&p->watchers) < p->waiters_max;
    if (has_room) {
        if (first) (void)hx_map_remove(p->room, key_of(&watch->op)); /* the key of an entry lies in its value */
        (void)hx_map_put(p->room, key_of(&watch->op), watch);
        watch->own.remote.next_watch = first;
        watch->own.remote.watch_count = count + 1;
        atomic_fetch_add(&p->watchers, 1);
    }
    pthread_mutex_unlock(&p->mutex);
    return has_room;
}

/* Under the mutex: these are all that wait for the operation. */
static void set_waiting(hx_postgres *p, const hx_op *op, hx_store_call *first)
{
    (void)hx_map_remove(p->room, key_of(op));
    if (!first) return;
    uint64_t count = 0;
    for (const hx_store_call *call = first; call; call = call->own.remote.next_watch) count++;
    first->own.remote.watch_count = count;
    (void)hx_map_put(p->room, key_of(&first->op), first);
}

bool hx_pg_waiters_leave(hx_postgres *p, hx_store_call *watch)
{
    bool was_there = false;
    pthread_mutex_lock(&p->mutex);
    hx_store_call *first = hx_map_get(p->room, key_of(&watch->op)), *kept = NULL;
    for (hx_store_call *call = first, *next; call; call = next) {
        next = call->own.remote.next_watch;
        if (call == watch) {
            was_there = true;
        } else {
            call->own.remote.next_watch = kept;
            kept = call;
        }
    }
    if (first) set_waiting(p, &watch->op, kept);
    if (was_there) atomic_fetch_sub(&p->watchers, 1);
    pthread_mutex_unlock(&p->mutex);
    return was_there;
}

void hx_pg_waiters_tell(hx_postgres *p, const hx_record *record)
{
    if (atomic_load(&p->watchers) == 0) return;
    hx_shared_record *version = NULL;
    pthread_mutex_lock(&p->mutex);
    hx_store_call *first = hx_map_get(p->room, key_of(&record->op)), *kept = NULL;
    for (hx_store_call *call = first, *next; call; call = next) {
        next = call->own.remote.next_watch;
        if (record->state == HX_PROCESSING && call->epoch == record->epoch) {
            call->own.remote.next_watch = kept;
            kept = call;
            continue;
        }
        if (record->epoch > 0) {
            if (!version) version = hx_shared_record_of(record);
            call->own.shown = hx_shared_record_hold(version);
        } else { /* nothing stands there by now, or nothing that can be read: there are no bytes to show */
            call->found = (hx_record){.op = call->op, .state = record->state};
            call->own.shown = NULL;
        }
        call->own.task.run = told;
        atomic_fetch_sub(&p->watchers, 1);
        hx_loop_post(call->loop, &call->own.task);
    }
    if (first) set_waiting(p, &record->op, kept);
    pthread_mutex_unlock(&p->mutex);
    hx_shared_record_drop(&version);
}

void hx_pg_waiters_nudge(hx_postgres *p, const hx_op *op)
{
    pthread_mutex_lock(&p->mutex);
    for (hx_store_call *call = hx_map_get(p->room, key_of(op)); call; call = call->own.remote.next_watch)
        hx_lane_nudge(call->own.remote.lane);
    pthread_mutex_unlock(&p->mutex);
}
