/* SPDX-License-Identifier: Apache-2.0 */
/* The waiting room: watches whose operation was found under way. Who settles it in this process tells them at once,
 * whatever thread they are on, with the answer; what other nodes do is found by looking again, at growing distances.
 *
 * A watch here is in two lists: that of its operation (under the mutex), by own.waiter, and that of its lane (its own
 * thread's), by own.link. Who takes it out of the first one ends it. */
#include "store/postgres/postgres.h"

#include "base/check.h"

#include <string.h>

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
    bool may_wait = hx_waiters_may_add(&p->waiters, &watch->op);
    if (may_wait) hx_waiters_add(&p->waiters, watch);
    pthread_mutex_unlock(&p->mutex);
    return may_wait;
}

bool hx_pg_waiters_leave(hx_postgres *p, hx_store_call *watch)
{
    pthread_mutex_lock(&p->mutex);
    bool was_waiting = hx_waiters_remove(&p->waiters, watch);
    pthread_mutex_unlock(&p->mutex);
    return was_waiting;
}

void hx_pg_waiters_tell(hx_postgres *p, const hx_record *record)
{
    if (atomic_load(&p->waiters.count) == 0) return;
    hx_shared_record *version = NULL;
    hx_link taken;
    pthread_mutex_lock(&p->mutex);
    hx_waiters_take(&p->waiters, &record->op, record->state == HX_PROCESSING ? record->epoch : 0, &taken);
    for (hx_store_call *call; (call = hx_waiters_next(&taken));) {
        if (record->epoch > 0) {
            if (!version) version = hx_shared_record_of(record);
            call->own.shown = hx_shared_record_hold(version);
        } else { /* the operation is absent, or its record can't be read: there are no bytes to show */
            call->found = (hx_record){.op = call->op, .state = record->state};
            call->own.shown = NULL;
        }
        call->own.task.run = told;
        hx_loop_post(call->loop, &call->own.task);
    }
    pthread_mutex_unlock(&p->mutex);
    hx_shared_record_drop(&version);
}

void hx_pg_waiters_nudge(hx_postgres *p, const hx_op *op)
{
    pthread_mutex_lock(&p->mutex);
    const hx_waiter_group *group = hx_waiters_of(&p->waiters, op);
    if (group)
        HX_EACH(link, &group->calls) hx_lane_nudge(HX_OWNER(link, hx_store_call, own.waiter.link)->own.remote.lane);
    pthread_mutex_unlock(&p->mutex);
}
