/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/redrive.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#define NOW ((hx_ms)1798761600000)

static hx_arena arena;

static hx_redrive wanted(const char *state)
{
    hx_redrive job = hx_redrive_new;
    job.id = HX_LIT("rd_1");
    job.status = HX_LIT("running");
    job.state = hx_slice_of(state);
    job.started_at = NOW;
    return job;
}

static hx_delivery made(hx_delivery_state state, hx_ms created_at)
{
    return (hx_delivery){.event = HX_LIT("e//evt_1"),
                         .endpoint = HX_LIT("ep_1"),
                         .state = state,
                         .created_at = created_at,
                         .settled_at = created_at,
                         .job = HX_EMPTY};
}

static void what_receivers_may_have_forgotten_is_left_alone_unless_wanted(void **context)
{
    (void)context;
    hx_redrive job = wanted("dead");
    hx_delivery young = made(HX_DELIVERY_DEAD, NOW - 7 * HX_DAY), old = made(HX_DELIVERY_DEAD, NOW - 7 * HX_DAY - 1);
    assert_int_equal(hx_redrive_judge(&job, &young, false, NOW), HX_REDRIVE_ARM);
    assert_int_equal(hx_redrive_judge(&job, &old, false, NOW), HX_REDRIVE_TOO_OLD);
    job.past_window = true;
    assert_int_equal(hx_redrive_judge(&job, &old, false, NOW), HX_REDRIVE_ARM);
}

static void what_it_has_armed_and_what_ended_since_is_not_taken(void **context)
{
    (void)context;
    hx_redrive job = wanted("dead");
    hx_delivery d = made(HX_DELIVERY_DEAD, NOW - HX_DAY);
    d.settled_at = NOW + 1;
    assert_int_equal(hx_redrive_judge(&job, &d, false, NOW + 2), HX_REDRIVE_OTHER);
    d.settled_at = NOW;
    assert_int_equal(hx_redrive_judge(&job, &d, false, NOW + 2), HX_REDRIVE_ARM);
    d.job = HX_LIT("rd_1");
    assert_int_equal(hx_redrive_judge(&job, &d, false, NOW + 2), HX_REDRIVE_OTHER);
}

static void pending_is_paused_only_while_its_endpoint_is_disabled(void **context)
{
    (void)context;
    hx_redrive paused = wanted("paused"), dead = wanted("dead");
    hx_delivery pending = made(HX_DELIVERY_PENDING, NOW - 1), sending = made(HX_DELIVERY_LEASED, NOW - 1);
    assert_int_equal(hx_redrive_judge(&paused, &pending, true, NOW), HX_REDRIVE_ARM);
    assert_int_equal(hx_redrive_judge(&paused, &pending, false, NOW), HX_REDRIVE_SKIP);
    assert_int_equal(hx_redrive_judge(&paused, &sending, true, NOW), HX_REDRIVE_SKIP);
    assert_int_equal(hx_redrive_judge(&dead, &pending, true, NOW), HX_REDRIVE_SKIP);
}

static void a_rate_is_never_exceeded_over_a_second(void **context)
{
    (void)context;
    for (uint64_t rate = 1; rate <= HX_REDRIVE_RATE_MAX; rate++) {
        hx_redrive job = wanted("dead");
        job.rate = rate;
        uint64_t batch = hx_redrive_budget(&job);
        hx_ms gap = hx_redrive_gap(&job, batch);
        assert_true(batch >= 1 && batch <= HX_REDRIVE_STEP);
        assert_true(gap > 0 && batch * 1000 <= (uint64_t)gap * rate + rate); /* to the millisecond */
    }
}

static void a_job_survives_being_stored(void **context)
{
    (void)context;
    hx_redrive job = wanted("dead"), read;
    hx_buf meta;
    job.at_queue = HX_LIT("dead//ep_1/");
    job.at_due = 17;
    job.armed = 5;
    job.stop_after = 1;
    hx_buf_init(&meta, &arena, 4096);
    hx_redrive_encode(&job, &meta);
    assert_true(hx_redrive_decode(hx_buf_slice(&meta), &arena, &read));
    assert_true(hx_redrive_is_running(&read) && read.armed == 5 && read.at_due == 17);
    read.watching = 2;
    assert_int_equal(hx_redrive_budget(&read), HX_REDRIVE_WATCHED_MAX - 2);
    read.failed = 1;
    hx_redrive_finish(&read, NOW);
    assert_false(hx_redrive_is_running(&read));
    assert_false(hx_redrive_decode(HX_LIT("{\"status\":\"running\"}"), &arena, &read));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_receivers_may_have_forgotten_is_left_alone_unless_wanted),
        cmocka_unit_test(what_it_has_armed_and_what_ended_since_is_not_taken),
        cmocka_unit_test(pending_is_paused_only_while_its_endpoint_is_disabled),
        cmocka_unit_test(a_rate_is_never_exceeded_over_a_second),
        cmocka_unit_test(a_job_survives_being_stored),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return failed;
}
