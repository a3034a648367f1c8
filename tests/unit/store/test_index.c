/* SPDX-License-Identifier: Apache-2.0 */
/* The index against a plain array, and with readers while it grows. */
#include "store/journal/index.h"

#include "base/rand.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define OPERATIONS 20000u

static hx_index_entry entry_of(uint64_t number, uint32_t version)
{
    hx_index_entry e = {.state = version % 2 ? HX_PROCESSING : HX_COMPLETED,
                        .segment = 1 + version,
                        .unit = 8 + version,
                        .size_class = (uint8_t)(version % 16),
                        .epoch = version + 1,
                        .rule = (uint16_t)(version % 7)};
    memcpy(e.op.bytes, &number, sizeof number);
    if (e.state == HX_PROCESSING) {
        e.lease_until = (hx_ms)version * 1000;
        e.until_s = HX_UNTIL_NEVER;
    } else {
        e.until_s = version * 3;
        e.changed_min = version & 0xffffff;
        e.principal = (uint8_t)version;
    }
    return e;
}

static void same(const hx_index_entry *a, const hx_index_entry *b)
{
    assert_memory_equal(&a->op, &b->op, sizeof a->op);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->segment, b->segment);
    assert_int_equal(a->unit, b->unit);
    assert_int_equal(a->size_class, b->size_class);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->rule, b->rule);
    assert_int_equal(a->until_s, b->until_s);
    assert_int_equal(a->changed_min, b->changed_min);
    assert_int_equal(a->principal, b->principal);
    assert_int_equal(a->lease_until, b->lease_until);
}

static void it_holds_what_a_plain_array_holds(void **state)
{
    (void)state;
    hx_reclaim *readers = hx_reclaim_new();
    hx_index *x = hx_index_new(readers, 0);
    uint32_t *versions = calloc(OPERATIONS, sizeof *versions); /* 0: absent */
    size_t count = 0;
    for (uint32_t step = 1; step < 400000; step++) {
        uint64_t number = hx_rand_below(step < 200000 ? OPERATIONS : OPERATIONS / 4);
        hx_index_entry before, e = entry_of(number, step);
        if (hx_rand_below(3) == 0) {
            hx_index_remove(x, &e.op, &before);
            count -= versions[number] != 0;
        } else {
            hx_index_put(x, &e, &before);
            count += versions[number] == 0;
        }
        hx_index_entry expected = entry_of(number, versions[number]);
        assert_int_equal(before.state != HX_ABSENT, versions[number] != 0);
        if (versions[number]) same(&before, &expected);
        versions[number] = hx_index_get(x, &e.op, &before) ? step : 0;
        if (versions[number]) same(&before, &e);
        if (step % 100 == 0) hx_reclaim_run(readers);
    }
    assert_int_equal(hx_index_count(x), count);
    uint32_t cursor = 0, steps = UINT32_MAX;
    hx_index_entry e;
    size_t walked = 0;
    for (; hx_index_next(x, &cursor, &steps, &e); walked++) {
        uint64_t number;
        memcpy(&number, e.op.bytes, sizeof number);
        hx_index_entry expected = entry_of(number, versions[number]);
        same(&e, &expected);
    }
    assert_int_equal(walked, count);
    assert_true(hx_index_at_end(x, cursor));
    free(versions);
    hx_reclaim_free(&readers);
    hx_index_free(&x);
}

static struct {
    hx_reclaim *readers;
    hx_index *index;
    atomic_bool stop;
    _Atomic uint64_t reads, misses;
} shared;

/* The first OPERATIONS / 2 are always there; what is read must belong together. */
static void *read_all(void *unused)
{
    (void)unused;
    while (!atomic_load(&shared.stop)) {
        uint64_t number = hx_rand_below(OPERATIONS / 2);
        hx_index_entry e = entry_of(number, 0), found;
        hx_reclaim_enter(shared.readers);
        bool there = hx_index_find(shared.index, &e.op, &found);
        hx_reclaim_leave(shared.readers);
        if (!there) atomic_fetch_add(&shared.misses, 1);
        hx_index_entry expected = entry_of(number, (uint32_t)found.epoch - 1);
        if (there && (found.unit != expected.unit || found.until_s != expected.until_s ||
                      found.lease_until != expected.lease_until || found.state != expected.state))
            atomic_fetch_add(&shared.misses, 1);
        atomic_fetch_add(&shared.reads, 1);
    }
    return NULL;
}

static void readers_never_miss_or_mix_while_it_grows_and_changes(void **state)
{
    (void)state;
    pthread_t threads[2];
    hx_index_entry before;
    shared.readers = hx_reclaim_new();
    shared.index = hx_index_new(shared.readers, 0);
    for (uint64_t i = 0; i < OPERATIONS / 2; i++) {
        hx_index_entry e = entry_of(i, 0);
        hx_index_put(shared.index, &e, &before);
    }
    for (int t = 0; t < 2; t++) pthread_create(&threads[t], NULL, read_all, NULL);
    for (uint32_t step = 1; step < 300000 || atomic_load(&shared.reads) < 100000; step++) {
        uint64_t number = hx_rand_below(OPERATIONS);
        hx_index_entry e = entry_of(number, step);
        if (number >= OPERATIONS / 2 && hx_rand_below(2))
            hx_index_remove(shared.index, &e.op, &before);
        else
            hx_index_put(shared.index, &e, &before);
        if (step % 64 == 0) hx_reclaim_run(shared.readers);
    }
    atomic_store(&shared.stop, true);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    assert_int_equal(atomic_load(&shared.misses), 0);
    hx_reclaim_free(&shared.readers);
    hx_index_free(&shared.index);
}

/* One operation that is changed without a pause: hardly a look doesn't meet a change. */
static void *read_one(void *unused)
{
    (void)unused;
    hx_index_entry e = entry_of(1, 0), found;
    while (!atomic_load(&shared.stop)) {
        hx_reclaim_enter(shared.readers);
        bool there = hx_index_find(shared.index, &e.op, &found);
        hx_reclaim_leave(shared.readers);
        hx_index_entry expected = entry_of(1, (uint32_t)found.epoch - 1);
        if (!there || found.unit != expected.unit || found.until_s != expected.until_s ||
            found.lease_until != expected.lease_until || found.state != expected.state)
            atomic_fetch_add(&shared.misses, 1);
        atomic_fetch_add(&shared.reads, 1);
    }
    return NULL;
}

static void a_reader_never_mixes_two_versions_of_one_operation(void **state)
{
    (void)state;
    pthread_t threads[2];
    hx_index_entry before, e = entry_of(1, 0);
    shared.readers = hx_reclaim_new();
    shared.index = hx_index_new(shared.readers, 0);
    atomic_store(&shared.stop, false);
    atomic_store(&shared.reads, 0);
    atomic_store(&shared.misses, 0);
    hx_index_put(shared.index, &e, &before);
    for (int t = 0; t < 2; t++) pthread_create(&threads[t], NULL, read_one, NULL);
    for (uint32_t step = 1; step < 3000000 || atomic_load(&shared.reads) < 300000; step++) {
        e = entry_of(1, step % 1000000);
        hx_index_put(shared.index, &e, &before);
    }
    atomic_store(&shared.stop, true);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    assert_int_equal(atomic_load(&shared.misses), 0);
    hx_reclaim_free(&shared.readers);
    hx_index_free(&shared.index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_holds_what_a_plain_array_holds),
        cmocka_unit_test(readers_never_miss_or_mix_while_it_grows_and_changes),
        cmocka_unit_test(a_reader_never_mixes_two_versions_of_one_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
