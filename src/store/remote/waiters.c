/* SPDX-License-Identifier: Apache-2.0 */
/* Watches whose operation was found in processing. The call that settles it in this process notifies them at once,
 * whatever thread they are on, and shows them the record; what other nodes do is found by rechecking (upkeep.c).
 *
 * A watch is in two lists: that of its operation, by own.waiter and under the mutex, and that of its lane, by own.link
 * and on its own thread. Whoever takes it out of the first list ends it. */
#include "store/remote/lane.h"

#include "store/shared_record.h"

static void notify_done(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    hx_shared_record *shown = call->own.shown;
    hx_list_remove(&call->own.link);
    if (shown) hx_shared_record_show(shown, call->arena, &call->found);
    hx_shared_record_drop(&shown);
    hx_remote_end(call, HX_STORE_OK);
}

bool hx_remote_waiters_add(hx_remote *r, hx_store_call *watch)
{
    pthread_mutex_lock(&r->mutex);
    bool may_wait = hx_waiters_may_add(&r->waiters, &watch->op);
    if (may_wait) hx_waiters_add(&r->waiters, watch);
    pthread_mutex_unlock(&r->mutex);
    return may_wait;
}

bool hx_remote_waiters_remove(hx_remote *r, hx_store_call *watch)
{
    pthread_mutex_lock(&r->mutex);
    bool was_waiting = hx_waiters_remove(&r->waiters, watch);
    pthread_mutex_unlock(&r->mutex);
    return was_waiting;
}

void hx_remote_waiters_notify(hx_remote *r, const hx_record *record)
{
    if (atomic_load(&r->waiters.count) == 0) return;
    hx_shared_record *shown = NULL;
    hx_link taken;
    pthread_mutex_lock(&r->mutex);
    hx_waiters_take(&r->waiters, &record->op, record->state == HX_PROCESSING ? record->epoch : 0, &taken);
    for (hx_store_call *call; (call = hx_waiters_next(&taken));) {
        if (record->epoch > 0) {
            if (!shown) shown = hx_shared_record_of(record);
            call->own.shown = hx_shared_record_hold(shown);
        } else { /* the operation is absent, or its record can't be read: there are no bytes to show */
            call->found = record->unreadable ? hx_record_unreadable(&call->op, 0) : (hx_record){.op = call->op};
            call->own.shown = NULL;
        }
        call->own.task.run = notify_done;
        hx_loop_post(call->loop, &call->own.task);
    }
    pthread_mutex_unlock(&r->mutex);
    hx_shared_record_drop(&shown);
}

void hx_remote_waiters_recheck(hx_remote *r, const hx_op *op)
{
    pthread_mutex_lock(&r->mutex);
    const hx_waiter_group *group = hx_waiters_of(&r->waiters, op);
    if (group) HX_EACH(link, &group->calls)
    hx_lane_recheck_soon(HX_OWNER(link, hx_store_call, own.waiter.link)->own.remote.lane);
    pthread_mutex_unlock(&r->mutex);
}
