/* SPDX-License-Identifier: Apache-2.0 */
/* Names: looked up outside the loop, few at a time, each for a limited time, and remembered for a short one. */
#include "client_fixture.h"

#include "net/client/lookup.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    hx_lookup_waiter waiter;
    char addresses[512], reason[128];
    int dones;
} look;

static void look_done(hx_lookup_waiter *waiter, const hx_lookup_answer *answer)
{
    look *l = HX_OWNER(waiter, look, waiter);
    l->dones++;
    (void)snprintf(l->addresses, sizeof l->addresses, "%s", answer->addresses ? answer->addresses : "");
    (void)snprintf(l->reason, sizeof l->reason, "%s", answer->addresses ? "" : answer->reason);
}

static void look_start(hx_lookup *lookup, look *l, const char *name, hx_ms time_max)
{
    *l = (look){.waiter.done = look_done};
    hx_lookup_wait(lookup, hx_slice_of(name), time_max, &l->waiter);
    assert_int_equal(l->dones, 0);
}

static void look_wait(hx_loop *loop, look *l)
{
    for (hx_ms from = hx_clock_now(); l->dones == 0;) {
        hx_loop_turn(loop, 10);
        if (hx_clock_now() - from > HX_MINUTE) fail_msg("waited in vain for a lookup");
    }
}

static void an_answer_is_remembered_and_shared(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    hx_lookup *lookup = hx_lookup_new(loop);
    hx_lookup_answer answer;
    look l[10];
    resolve_to("a.example", "192.0.2.1,2001:db8::1,192.0.2.2");
    assert_false(hx_lookup_find(lookup, HX_LIT("a.example"), &answer));
    for (int i = 0; i < 10; i++) look_start(lookup, &l[i], "a.example", HX_MINUTE);
    for (int i = 0; i < 10; i++) look_wait(loop, &l[i]);
    assert_string_equal(l[9].addresses, "192.0.2.1,[2001:db8::1],192.0.2.2");
    assert_true(hx_lookup_find(lookup, HX_LIT("a.example"), &answer));
    assert_string_equal(answer.addresses, "192.0.2.1,[2001:db8::1],192.0.2.2");
    assert_int_equal(lookups_of("a.example"), 1);
    resolve_to("none.example", NULL);
    look_start(lookup, &l[0], "none.example", HX_MINUTE);
    look_wait(loop, &l[0]);
    assert_string_equal(l[0].reason, "Name or service not known");
    assert_true(hx_lookup_find(lookup, HX_LIT("none.example"), &answer));
    assert_null(answer.addresses);
    hx_lookup_free(&lookup);
    hx_loop_free(&loop);
}

static void let_pass(hx_loop *loop, hx_ms span)
{
    hx_clock_raise(hx_clock_now() + span);
    hx_loop_turn(loop, 1);
}

/* Old addresses serve while newer ones are looked up, so that a slow name server delays no request to a known host. */
static void old_answers_are_renewed(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    hx_lookup *lookup = hx_lookup_new(loop);
    hx_lookup_answer answer;
    look l;
    resolve_to("b.example", "192.0.2.1");
    look_start(lookup, &l, "b.example", HX_MINUTE);
    look_wait(loop, &l);
    resolve_to("b.example", "192.0.2.2");
    let_pass(loop, HX_LOOKUP_FOUND_FOR);
    assert_true(hx_lookup_find(lookup, HX_LIT("b.example"), &answer));
    assert_string_equal(answer.addresses, "192.0.2.1");
    for (hx_ms from = hx_clock_now(); strcmp(answer.addresses, "192.0.2.2") != 0;) {
        assert_true(hx_clock_now() - from < HX_LOOKUP_STALE_FOR);
        hx_loop_turn(loop, 10);
        assert_true(hx_lookup_find(lookup, HX_LIT("b.example"), &answer));
    }
    assert_int_equal(lookups_of("b.example"), 1);
    let_pass(loop, HX_LOOKUP_FOUND_FOR + HX_LOOKUP_STALE_FOR);
    assert_false(hx_lookup_find(lookup, HX_LIT("b.example"), &answer));
    resolve_to("b.example", NULL);
    look_start(lookup, &l, "b.example", HX_MINUTE);
    look_wait(loop, &l);
    assert_string_equal(l.addresses, "");
    assert_true(hx_lookup_find(lookup, HX_LIT("b.example"), &answer));
    assert_null(answer.addresses);
    let_pass(loop, HX_LOOKUP_FAILED_FOR);
    assert_false(hx_lookup_find(lookup, HX_LIT("b.example"), &answer));
    hx_lookup_free(&lookup);
    hx_loop_free(&loop);
}

/* Of this process. A lookup has left what it found to the loop when its thread is over. */
static unsigned threads(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count;
}

/* The name server says nothing: who waits gives up in time, and the threads are few. */
static void a_silent_name_server_costs_the_timeout_and_few_threads(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    hx_lookup *lookup = hx_lookup_new(loop);
    static look l[40], again;
    const unsigned others = threads();
    char names[40][32];
    hx_lookup_answer answer;
    resolve_to("name0.example", "192.0.2.1");
    block_names();
    for (int i = 0; i < 40; i++) {
        (void)snprintf(names[i], sizeof names[i], "name%d.example", i);
        look_start(lookup, &l[i], names[i], 100);
    }
    for (int i = 0; i < 40; i++) {
        look_wait(loop, &l[i]);
        assert_string_equal(l[i].reason, "no name server answered in time");
    }
    assert_int_equal(lookups_under_way(), HX_LOOKUP_RUNNING_MAX);
    assert_false(hx_lookup_find(lookup, HX_LIT("name0.example"), &answer));
    look_start(lookup, &again, "name0.example", HX_MINUTE); /* waits for the lookup that was left alone */
    unblock_names();
    look_wait(loop, &again);
    assert_string_equal(again.addresses, "192.0.2.1");
    assert_int_equal(lookups_of("name0.example"), 1);
    assert_int_equal(lookups_at_most(), HX_LOOKUP_RUNNING_MAX);
    while (lookups_under_way() > 0 || threads() > others) hx_loop_turn(loop, 10);
    hx_loop_turn(loop, 0);
    assert_int_equal(lookups_of("name39.example"), 0); /* nobody waited for it any more */
    hx_lookup_free(&lookup);
    hx_loop_free(&loop);
}

static void names_are_bounded_in_number(void **state)
{
    (void)state;
    hx_loop *loop = hx_loop_new();
    hx_lookup *lookup = hx_lookup_new(loop);
    static look l[HX_LOOKUP_NAMES_MAX + 1];
    resolve_to("x", NULL);
    block_names();
    for (size_t i = 0; i <= HX_LOOKUP_NAMES_MAX; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, i < HX_LOOKUP_RUNNING_MAX ? "name%zu.example" : "more%zu.example", i);
        look_start(lookup, &l[i], name, HX_MINUTE);
    }
    look_wait(loop, &l[HX_LOOKUP_NAMES_MAX]);
    assert_string_equal(l[HX_LOOKUP_NAMES_MAX].reason, "too many names are being looked up");
    for (size_t i = 0; i < HX_LOOKUP_NAMES_MAX; i++) {
        assert_int_equal(l[i].dones, 0);
        hx_lookup_leave(&l[i].waiter);
    }
    look_start(lookup, &l[0], "x", 10); /* still none that can be forgotten: all are in the queue */
    look_wait(loop, &l[0]);
    unblock_names();
    while (lookups_under_way() > 0) hx_loop_turn(loop, 10);
    for (int i = 0; i < 3; i++) hx_loop_turn(loop, 0);
    look_start(lookup, &l[0], "x", HX_MINUTE);
    look_wait(loop, &l[0]);
    assert_string_equal(l[0].reason, "Name or service not known");
    hx_lookup_free(&lookup);
    hx_loop_free(&loop);
}

static void requests_whose_name_is_unknown_or_slow_fail_with_nothing_sent(void **state)
{
    (void)state;
    world w;
    call c, other;
    hx_client_limits limits = usual_client_limits;
    limits.lookup_timeout = 100;
    set_up_world(&w, "127.0.0.1", &limits);
    resolve_to("none.example", NULL);
    for (int i = 0; i < 2; i++) {
        run_call(&w, &c, "none.example");
        assert_call(&c, UNRESOLVED, 0);
        assert_int_equal(c.result.bytes_sent, 0);
        assert_string_equal(c.reason, "Name or service not known");
    }
    assert_int_equal(lookups_of("none.example"), 1);
    resolve_to("silent.example", "127.0.0.1");
    block_names();
    prepare_call(&w, &c, "silent.example");
    start_call(&w, &c);
    int peer = ask_call(&w, &other, -1); /* meanwhile others are served */
    send_text(&w.f, peer, OK);
    wait_call(&w, &other);
    assert_call(&other, NONE, 200);
    wait_call(&w, &c);
    assert_call(&c, UNRESOLVED, 0);
    assert_string_equal(c.reason, "no name server answered in time");
    unblock_names();
    while (lookups_under_way() > 0) turn(&w.f);
    prepare_call(&w, &c, "Silent.EXAMPLE");
    start_call(&w, &c);
    int next = accept_one(&w.f);
    read_call(&w, next);
    send_text(&w.f, next, OK);
    wait_call(&w, &c);
    assert_call(&c, NONE, 200);
    assert_int_equal(lookups_of("silent.example"), 1);
    close(peer);
    close(next);
    tear_down_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_remembered_and_shared),
        cmocka_unit_test(old_answers_are_renewed),
        cmocka_unit_test(a_silent_name_server_costs_the_timeout_and_few_threads),
        cmocka_unit_test(names_are_bounded_in_number),
        cmocka_unit_test(requests_whose_name_is_unknown_or_slow_fail_with_nothing_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
