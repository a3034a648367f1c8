/* SPDX-License-Identifier: Apache-2.0 */
/* Epoch-based: a number grows with each retirement; a reader writes the number it entered with into its thread's slot.
 * Retired with number n may go when no slot holds a number up to n. Sequentially consistent order between "slot is
 * set" / "pointer is read" here and "pointer is replaced" / "slots are read" there makes one of both see the other. */
#include "base/memory/epoch_reclaim.h"

#include "base/check.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#define THREADS_MAX 256u

typedef struct retired {
    struct retired *next;
    uint64_t number;
    void *memory;
    void (*give_back)(void *memory);
} retired;

struct hx_reclaim {
    _Atomic uint64_t number;
    retired *oldest, **newest;
    struct {
        alignas(64) _Atomic uint64_t entered; /* 0: not reading */
    } slots[THREADS_MAX];
};

/* A thread has the same slot in every store, and releases it when it ends. */
static struct {
    pthread_once_t once;
    pthread_key_t at_exit;
    atomic_bool taken[THREADS_MAX];
} threads = {.once = PTHREAD_ONCE_INIT};
static _Thread_local unsigned my_slot_plus_1;

static void give_slot_back(void *slot_plus_1)
{
    atomic_store(&threads.taken[(uintptr_t)slot_plus_1 - 1], false);
}

static void make_key(void)
{
    pthread_key_create(&threads.at_exit, give_slot_back);
}

static unsigned my_slot(void)
{
    if (my_slot_plus_1 > 0) return my_slot_plus_1 - 1;
    pthread_once(&threads.once, make_key);
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        if (atomic_exchange(&threads.taken[i], true)) continue;
        my_slot_plus_1 = i + 1;
        pthread_setspecific(threads.at_exit, (void *)(uintptr_t)my_slot_plus_1); /* NOLINT */
        return i;
    }
    hx_fatal(HX_EXIT_BUG, "more than %u threads read the store", THREADS_MAX);
}

hx_reclaim *hx_reclaim_new(void)
{
    hx_reclaim *r = aligned_alloc(64, sizeof *r);
    if (!r) hx_fatal(HX_EXIT_BUG, "out of memory");
    atomic_init(&r->number, 1);
    r->oldest = NULL;
    r->newest = &r->oldest;
    for (unsigned i = 0; i < THREADS_MAX; i++) atomic_init(&r->slots[i].entered, 0);
    return r;
}

void hx_reclaim_enter(hx_reclaim *r)
{
    atomic_store(&r->slots[my_slot()].entered, atomic_load(&r->number));
}

void hx_reclaim_leave(hx_reclaim *r)
{
    atomic_store_explicit(&r->slots[my_slot()].entered, 0, memory_order_release);
}

bool hx_reclaim_is_entered(const hx_reclaim *r)
{
    return my_slot_plus_1 > 0 && atomic_load_explicit(&r->slots[my_slot_plus_1 - 1].entered, memory_order_relaxed) > 0;
}

void hx_reclaim_retire(hx_reclaim *r, void *memory, void (*give_back)(void *memory))
{
    retired *item = malloc(sizeof *item);
    if (!item) hx_fatal(HX_EXIT_BUG, "out of memory");
    *item = (retired){.number = atomic_fetch_add(&r->number, 1), .memory = memory, .give_back = give_back};
    *r->newest = item;
    r->newest = &item->next;
}

static void take_oldest(hx_reclaim *r)
{
    retired *item = r->oldest;
    r->oldest = item->next;
    if (!r->oldest) r->newest = &r->oldest;
    item->give_back(item->memory);
    free(item);
}

void hx_reclaim_run(hx_reclaim *r)
{
    if (!r->oldest) return;
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        uint64_t entered = atomic_load(&r->slots[i].entered);
        if (entered > 0 && entered < least) least = entered;
    }
    while (r->oldest && r->oldest->number < least) take_oldest(r);
}

void hx_reclaim_free(hx_reclaim **owned)
{
    if (!*owned) return;
    while ((*owned)->oldest) take_oldest(*owned);
    free(*owned);
    *owned = NULL;
}
