/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and backups of a store that others may be using, and what is found under way there. */
#include "base/check.h"
#include "cmd/store_common.h"
#include "store/sync.h"
#include "store/transfer/unfinished.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

typedef struct {
    char folder[64], from[128], to[128], file[128];
    hx_loop *loop;
    hx_arena arena;
} world;

static void world_begin(world *w)
{
    *w = (world){0};
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/hapax-move-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    (void)snprintf(w->from, sizeof w->from, "sqlite:%s/from", w->folder);
    (void)snprintf(w->to, sizeof w->to, "sqlite:%s/to", w->folder);
    (void)snprintf(w->file, sizeof w->file, "%s/file", w->folder);
    w->loop = hx_loop_new();
}

static void world_end(world *w)
{
    static const char *const names[] = {"from",   "from-wal", "from-shm",   "from-reserve", "to",
                                        "to-wal", "to-shm",   "to-reserve", "file"};
    hx_loop_free(&w->loop);
    hx_arena_free(&w->arena);
    hx_arena_pool_drain();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", w->folder, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(w->folder), 0);
}

static hx_store *open_at(world *w, const char *url)
{
    hx_error_text error = "";
    hx_store *store = hx_store_open(hx_slice_of(url), NULL, error);
    if (!store) fail_msg("%s", error);
    hx_store_attach(store, w->loop);
    return store;
}

static hx_record claim(world *w, hx_store *store, uint8_t number, hx_ms lease)
{
    hx_ms now = hx_store_about(store)->now();
    hx_record r = {.op = {{number, 1}},
                   .state = HX_PROCESSING,
                   .created_at = now,
                   .changed_at = now,
                   .lease_until = now + lease,
                   .owner = hx_store_about(store)->owner,
                   .rule_version = 5,
                   .route = HX_LIT("refunds"),
                   .correlation = HX_EMPTY,
                   .reason = HX_EMPTY,
                   .result = HX_EMPTY,
                   .answer = {.headers = HX_EMPTY, .body = HX_EMPTY}};
    hx_awaited call;
    hx_await_begin(&call, w->loop, &w->arena);
    hx_store_claim(store, &call.call, &r, 0);
    assert_int_equal(hx_await(&call), HX_STORE_OK);
    return r;
}

static hx_record read_one(world *w, hx_store *store, const hx_op *op)
{
    hx_awaited call;
    hx_await_begin(&call, w->loop, &w->arena);
    hx_store_read(store, &call.call, op);
    assert_int_equal(hx_await(&call), HX_STORE_OK);
    return call.call.found;
}

static bool is_there(const char *url)
{
    return access(strchr(url, ':') + 1, F_OK) == 0;
}

static void a_store_with_operations_under_way_is_refused_without_live(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    hx_store *from = open_at(&w, w.from);
    hx_record running = claim(&w, from, 1, HX_HOUR);
    hx_store_flags flags = {.json = true, .store = w.from};
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_STORE);
    assert_int_equal(hx_cmd_store_backup(&flags, w.file), HX_EXIT_STORE);
    assert_false(is_there(w.to));
    assert_int_equal(access(w.file, F_OK), -1);

    flags.live = true;
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_OK);
    assert_int_equal(hx_cmd_store_backup(&flags, w.file), HX_EXIT_OK);
    assert_int_equal(read_one(&w, from, &running.op).state, HX_PROCESSING); /* it goes on there */
    hx_store_close(&from);
    hx_store *to = open_at(&w, w.to);
    hx_record found = read_one(&w, to, &running.op);
    assert_int_equal(found.state, HX_UNKNOWN);
    assert_int_equal(found.from_state, HX_PROCESSING);
    assert_int_equal(found.epoch, running.epoch);
    assert_true(hx_slice_eq(found.reason, HX_LIT("copied")));
    hx_record next = claim(&w, to, 2, HX_HOUR);
    assert_true(next.epoch > running.epoch);
    hx_store_close(&to);
    world_end(&w);
}

static void a_claim_whose_lease_is_over_is_in_nobodys_way(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    hx_store *from = open_at(&w, w.from);
    hx_record left = claim(&w, from, 1, -HX_SECOND);
    hx_store_close(&from);
    const hx_store_flags flags = {.json = true};
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_OK);
    hx_store *to = open_at(&w, w.to);
    assert_int_equal(read_one(&w, to, &left.op).state, HX_UNKNOWN);
    hx_store_close(&to);
    world_end(&w);
}

static void a_store_in_which_others_work_is_no_target(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    hx_store *from = open_at(&w, w.from);
    hx_store_close(&from);
    const hx_store_flags flags = {.json = true, .live = true};
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_OK);
    hx_store *to = open_at(&w, w.to);
    hx_record running = claim(&w, to, 1, HX_HOUR);
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_STORE);
    assert_int_equal(read_one(&w, to, &running.op).state, HX_PROCESSING);
    hx_store_close(&to);
    world_end(&w);
}

static void import(world *w, hx_store *store, hx_record *record)
{
    hx_awaited call;
    hx_await_begin(&call, w->loop, &w->arena);
    hx_store_import(store, &call.call, record);
    assert_int_equal(hx_await(&call), HX_STORE_OK);
}

/* As a copy leaves its target that is killed in the middle, with an operation that the source has released since. */
static void an_unfinished_target_is_filled_from_the_beginning(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    hx_store *from = open_at(&w, w.from);
    hx_record kept = claim(&w, from, 1, -HX_SECOND), released = claim(&w, from, 2, -HX_SECOND);
    hx_error_text error = "";
    hx_record note = hx_unfinished_record("copy", released.epoch + 1);
    const hx_store_options options = {.secret = hx_store_about(from)->secret, .unfinished = &note};
    hx_store *to = hx_store_open(hx_slice_of(w.to), &options, error);
    assert_non_null(to);
    hx_store_attach(to, w.loop);
    released.state = HX_UNKNOWN;
    import(&w, to, &released);
    hx_store_close(&to);
    released.state = HX_ABSENT;
    hx_awaited settle;
    hx_await_begin(&settle, w.loop, &w.arena);
    hx_store_settle(from, &settle.call, &released);
    assert_int_equal(hx_await(&settle), HX_STORE_OK);
    hx_store_close(&from);

    const hx_store_flags flags = {.json = true};
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_OK);
    to = open_at(&w, w.to);
    hx_unfinished found;
    assert_true(hx_unfinished_read(to, w.loop, &found));
    assert_false(found.is_there);
    assert_int_equal(read_one(&w, to, &kept.op).state, HX_UNKNOWN);
    assert_int_equal(read_one(&w, to, &released.op).state, HX_ABSENT);
    hx_store_close(&to);
    world_end(&w);
}

/* Two copies into one target: the second takes it over, and the first can't call it whole any more. */
static void a_run_whose_target_was_taken_over_can_not_end_it(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    const uint8_t secret[HX_SECRET_BYTES] = {7};
    hx_error_text error = "";
    hx_record note = hx_unfinished_record("copy", 1000);
    const hx_store_options options = {.secret = secret, .unfinished = &note};
    hx_store *to = hx_store_open(hx_slice_of(w.to), &options, error);
    assert_non_null(to);
    hx_store_attach(to, w.loop);
    hx_unfinished first, second, nothing = {0};
    assert_true(hx_unfinished_read(to, w.loop, &first));
    second = first;
    assert_int_equal(hx_unfinished_take_over(to, w.loop, &second), HX_STORE_OK);
    assert_true(second.epoch > first.epoch);
    assert_int_equal(hx_unfinished_end(to, w.loop, &first, &nothing), HX_STORE_STALE);
    assert_int_equal(hx_unfinished_take_over(to, w.loop, &first), HX_STORE_STALE);
    hx_unfinished found;
    assert_true(hx_unfinished_read(to, w.loop, &found));
    assert_true(found.unfinished && found.epoch == second.epoch);
    assert_string_equal(found.by, "copy");
    assert_int_equal(hx_unfinished_end(to, w.loop, &second, &nothing), HX_STORE_OK);
    hx_store_close(&to);
    world_end(&w);
}

static void an_operation_that_is_in_the_target_already_ends_the_transfer(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    hx_store *from = open_at(&w, w.from), *to = open_at(&w, w.to);
    hx_record moved = claim(&w, from, 1, -HX_SECOND), other = moved;
    other.state = HX_UNKNOWN;
    import(&w, to, &other);
    hx_progress_bar progress;
    hx_progress_begin(&progress, "copying", 1, true);
    hx_transfer transfer = {.from = from, .to = to, .loop = w.loop, .reason = HX_LIT("copied"), .progress = &progress};
    assert_false(hx_transfer_run(&transfer));
    assert_non_null(strstr(transfer.error, "is in the target already"));
    hx_store_close(&from);
    hx_store_close(&to);
    world_end(&w);
}

/* Two copies of one store, one after the other: what the first one drew the second doesn't draw. */
static void copies_made_at_different_times_draw_other_epochs(void **state)
{
    (void)state;
    world w;
    uint64_t drawn[2];
    world_begin(&w);
    hx_store *from = open_at(&w, w.from);
    (void)claim(&w, from, 1, -HX_SECOND);
    hx_store_close(&from);
    const hx_store_flags flags = {.json = true};
    for (int round = 0; round < 2; round++) {
        assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_OK);
        hx_store *to = open_at(&w, w.to);
        drawn[round] = claim(&w, to, 9, HX_HOUR).epoch;
        hx_store_close(&to);
        assert_int_equal(unlink(strchr(w.to, ':') + 1), 0);
        for (hx_ms then = hx_clock_now(); hx_clock_now() == then;) {}
    }
    assert_true(drawn[1] > drawn[0]);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_with_operations_under_way_is_refused_without_live),
        cmocka_unit_test(a_claim_whose_lease_is_over_is_in_nobodys_way),
        cmocka_unit_test(a_store_in_which_others_work_is_no_target),
        cmocka_unit_test(an_unfinished_target_is_filled_from_the_beginning),
        cmocka_unit_test(a_run_whose_target_was_taken_over_can_not_end_it),
        cmocka_unit_test(an_operation_that_is_in_the_target_already_ends_the_transfer),
        cmocka_unit_test(copies_made_at_different_times_draw_other_epochs),
    };
    return cmocka_run_group_tests_name("transfer", tests, NULL, NULL);
}
