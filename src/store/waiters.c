/* SPDX-License-Identifier: Apache-2.0 */
#include "store/waiters.h"

#include "base/check.h"

#include <stdlib.h>

static hx_slice key_of(const hx_op *op)
{
    return (hx_slice){(const char *)op->bytes, sizeof op->bytes};
}

void hx_waiters_init(hx_waiters *w, const hx_store_options *options)
{
    w->groups = hx_map_new();
    hx_list_init(&w->all);
    hx_list_init(&w->unused);
    hx_waiters_limit(w, options);
}

void hx_waiters_free(hx_waiters *w)
{
    if (!w->groups) return;
    HX_CHECK(hx_list_empty(&w->all) && atomic_load(&w->count) == 0);
    for (hx_link *link = w->unused.next, *next; link != &w->unused; link = next) {
        next = link->next;
        free(HX_OWNER(link, hx_waiter_group, link));
    }
    hx_map_free(&w->groups);
}

void hx_waiters_limit(hx_waiters *w, const hx_store_options *options)
{
    unsigned per_operation = options->waiters_per_op_max, all = options->waiters_max;
    atomic_store(&w->per_operation_max, per_operation > 0 ? per_operation : HX_STORE_WAITERS_PER_OP_MAX);
    atomic_store(&w->max, all > 0 ? all : HX_STORE_WAITERS_MAX);
}

const hx_waiter_group *hx_waiters_of(const hx_waiters *w, const hx_op *op)
{
    if (atomic_load_explicit(&w->count, memory_order_relaxed) == 0) return NULL;
    return hx_map_get(w->groups, key_of(op));
}

bool hx_waiters_may_add(const hx_waiters *w, const hx_op *op)
{
    const hx_waiter_group *group = hx_waiters_of(w, op);
    return (!group || group->count < atomic_load(&w->per_operation_max)) &&
           atomic_load_explicit(&w->count, memory_order_relaxed) < atomic_load(&w->max);
}

static hx_waiter_group *new_group(hx_waiters *w, const hx_op *op)
{
    hx_link *unused = hx_list_take(&w->unused);
    hx_waiter_group *group = unused ? HX_OWNER(unused, hx_waiter_group, link) : malloc(sizeof *group);
    if (!group) hx_fatal(HX_EXIT_BUG, "out of memory");
    *group = (hx_waiter_group){.op = *op};
    hx_list_init(&group->calls);
    hx_list_append(&w->all, &group->link);
    (void)hx_map_put(w->groups, key_of(&group->op), group);
    return group;
}

void hx_waiters_add(hx_waiters *w, hx_store_call *watch)
{
    hx_waiter_group *group = hx_map_get(w->groups, key_of(&watch->op));
    if (!group) group = new_group(w, &watch->op);
    hx_list_append(&group->calls, &watch->own.waiter.link);
    watch->own.waiter.group = group;
    group->count++;
    atomic_fetch_add_explicit(&w->count, 1, memory_order_relaxed);
}

bool hx_waiters_remove(hx_waiters *w, hx_store_call *watch)
{
    hx_waiter_group *group = watch->own.waiter.group;
    if (!group) return false;
    hx_list_remove(&watch->own.waiter.link);
    watch->own.waiter.group = NULL;
    atomic_fetch_sub_explicit(&w->count, 1, memory_order_relaxed);
    if (--group->count > 0) return true;
    (void)hx_map_remove(w->groups, key_of(&group->op));
    hx_list_remove(&group->link);
    hx_list_append(&w->unused, &group->link);
    return true;
}

void hx_waiters_take(hx_waiters *w, const hx_op *op, uint64_t epoch_in_processing, hx_link *out)
{
    hx_list_init(out);
    const hx_waiter_group *group = hx_waiters_of(w, op);
    if (!group) return;
    HX_EACH(link, &group->calls)
    {
        hx_store_call *watch = HX_OWNER(link, hx_store_call, own.waiter.link);
        if (epoch_in_processing > 0 && watch->epoch == epoch_in_processing) continue;
        (void)hx_waiters_remove(w, watch); /* the group stays in memory, as an unused one */
        hx_list_append(out, link);
    }
}
