/* SPDX-License-Identifier: Apache-2.0 */
/* Streams on the reference store, published to by two engines, as by two processes, and read back. */
#include "base/check.h"
#include "core/retry/retry_after.h"
#include "events/recipient.h"
#include "events/streams/gate.h"
#include "events/streams/reading.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define START ((hx_ms)1798761600000)
#define PUBLISHES_MAX 200u

static hx_ms now;
static struct {
    hx_loop *loop;
    hx_store *store;
    hx_engine *engines[2];
    hx_arena arena;
    hx_publish publishes[PUBLISHES_MAX];
    unsigned begun, done, woken;
    hx_sending *sending;
    hx_task answer;
} world;

static hx_ms test_clock(void)
{
    return now;
}

static void answer(hx_task *task)
{
    (void)task;
    world.sending->result = (hx_attempt_result){.status = 410,
                                                .retry_after = HX_RETRY_AFTER_NONE,
                                                .response = HX_EMPTY};
    world.sending->done(world.sending);
    world.done++;
}

/* Nobody takes anything: every delivery is a dead letter. */
static void refuse_all(void *context, hx_sending *sending)
{
    (void)context;
    HX_CHECK(world.begun == world.done);
    world.begun++;
    world.sending = sending;
    world.answer.run = answer;
    hx_loop_defer(world.loop, &world.answer);
}

static int begin(void **state)
{
    static const hx_stream_rule rules[] = {{.match = {"audit-*", 7}, .retention = HX_STREAM_FOREVER},
                                           {.match = {"brief", 5}, .retention = HX_HOUR}};
    (void)state;
    memset(&world, 0, sizeof world);
    now = START;
    world.loop = hx_loop_new();
    world.store = hx_store_memory_open(&(hx_store_options){.now = test_clock});
    hx_store_attach(world.store, world.loop);
    for (size_t i = 0; i < 2; i++) {
        world.engines[i] = hx_engine_new(&(hx_engine_needs){.loop = world.loop,
                                                            .store = world.store,
                                                            .endpoints = {.send = refuse_all},
                                                            .applications = {.send = refuse_all},
                                                            .settings = {.attempts_max = 8,
                                                                         .retention = 7 * HX_DAY,
                                                                         .dead_retention = 30 * HX_DAY,
                                                                         .pause_max = 5 * HX_DAY,
                                                                         .streams = rules,
                                                                         .stream_count = 2}});
        hx_engine_start(world.engines[i]);
    }
    return 0;
}

static void stopped(void *context)
{
    *(bool *)context = true;
}

static int end(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        bool is_stopped = false;
        hx_engine_stop(world.engines[i], stopped, &is_stopped);
        while (!is_stopped) hx_loop_turn(world.loop, 10);
        hx_engine_free(&world.engines[i]);
    }
    hx_store_close(&world.store);
    hx_loop_free(&world.loop);
    hx_arena_free(&world.arena);
    hx_arena_pool_drain();
    return 0;
}

static void published(hx_publish *publish)
{
    (void)publish;
    world.done++;
}

/* Begins to publish an event to each of the streams that `streams` names, with spaces between them. */
static hx_publish *begin_publish(size_t engine, const char *streams, const char *more)
{
    hx_error_text error;
    hx_slice rest = hx_slice_of(streams), name;
    hx_publish *publish = &world.publishes[world.begun++];
    *publish = (hx_publish){.arena = &world.arena,
                            .events = hx_arena_alloc(&world.arena, HX_PUBLISH_MAX * sizeof(hx_event)),
                            .principal = HX_LIT("billing"),
                            .key = HX_EMPTY,
                            .done = published};
    while (hx_slice_next(&rest, ' ', &name))
        assert_true(hx_event_read(hx_arena_printf(&world.arena, "{\"type\":\"t\",\"data\":1,\"stream\":\"%.*s\"%s}",
                                                  HX_FMT(name), more),
                                  &world.arena, &publish->events[publish->count++], error));
    hx_engine_publish(world.engines[engine], publish);
    return publish;
}

static void await_all(void)
{
    while (world.done < world.begun) hx_loop_turn(world.loop, 10);
}

static uint64_t publish_one(size_t engine, const char *stream)
{
    const hx_publish *publish = begin_publish(engine, stream, "");
    await_all();
    assert_int_equal(publish->result, HX_PUBLISHED);
    return publish->events[0].position;
}

static void was_read(hx_reading *reading)
{
    (void)reading;
    world.done++;
}

static hx_reading read_after(const char *stream, uint64_t after)
{
    hx_reading reading = {.arena = &world.arena,
                          .tenant = HX_EMPTY,
                          .stream = hx_slice_of(stream),
                          .after = after,
                          .events_max = 1000,
                          .bytes_max = 1u << 20,
                          .done = was_read};
    world.begun++;
    hx_engine_read_stream(world.engines[0], &reading);
    await_all();
    return reading;
}

static void expect_gone(const char *stream, uint64_t after, uint64_t oldest)
{
    hx_reading reading = read_after(stream, after);
    assert_int_equal(reading.result, HX_READING_GONE);
    assert_int_equal(reading.oldest, oldest);
}

static void two_processes_give_each_position_once(void **state)
{
    (void)state;
    bool seen[101] = {false};
    for (unsigned i = 0; i < 100; i++) (void)begin_publish(i % 2, "orders", "");
    await_all();
    for (unsigned i = 0; i < 100; i++) {
        const hx_publish *publish = &world.publishes[i];
        assert_int_equal(publish->result, HX_PUBLISHED);
        assert_in_range(publish->events[0].position, 1, 100);
        assert_false(seen[publish->events[0].position]);
        seen[publish->events[0].position] = true;
    }
    hx_reading reading = read_after("orders", 0);
    assert_int_equal(reading.count, 100);
    assert_int_equal(reading.last, 100);
    for (unsigned i = 0; i < 100; i++) assert_int_equal(reading.events[i].position, i + 1);
}

static void one_process_never_collides_with_itself(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 50; i++) (void)begin_publish(0, "orders", "");
    await_all();
    assert_int_equal(world.publishes[0].tries, 1); /* the stream was not known yet */
    for (unsigned i = 1; i < 50; i++) {
        assert_int_equal(world.publishes[i].tries, 0);
        assert_int_equal(world.publishes[i].events[0].position, i + 1);
    }
}

static void batches_across_streams_wait_for_each_other_and_never_for_ever(void **state)
{
    (void)state;
    static const char *const batches[] = {"a b c", "c b a", "b", "a c a", "c", "b a"};
    for (unsigned i = 0; i < 96; i++) (void)begin_publish(i / 6 % 2, batches[i % 6], "");
    await_all();
    for (unsigned i = 0; i < 96; i++) assert_int_equal(world.publishes[i].result, HX_PUBLISHED);
    assert_int_equal(read_after("a", 0).count, 16 * 5);
    assert_int_equal(read_after("b", 0).count, 16 * 4);
    assert_int_equal(read_after("c", 0).count, 16 * 4);
    assert_int_equal(hx_map_count(world.engines[0]->gates.by_key), 3);
    assert_int_equal(world.engines[0]->gates.idle_count, 3);
}

static void an_expected_version_is_compared_with_the_store(void **state)
{
    (void)state;
    assert_int_equal(publish_one(0, "orders"), 1);
    assert_int_equal(publish_one(1, "orders"), 2); /* the first engine doesn't know */
    const hx_publish *publish = begin_publish(0, "orders orders", ",\"expected_version\":2");
    await_all();
    const hx_publish *late = begin_publish(1, "orders", ",\"expected_version\":2");
    await_all();
    assert_int_equal(publish->result, HX_PUBLISHED);
    assert_int_equal(publish->events[1].position, 4);
    assert_int_equal(late->result, HX_PUBLISH_VERSION);
    assert_int_equal(late->version, 4);
    assert_int_equal(read_after("orders", 0).count, 4);
}

static void changed(hx_endpoint_change *change)
{
    assert_int_equal(change->result, HX_CHANGE_DONE);
    world.done++;
}

/* An endpoint that gets every event; `is_disabled`: its deliveries wait. */
static void add_endpoint(bool is_disabled)
{
    hx_error_text error;
    hx_endpoint_change change = {.arena = &world.arena, .act = HX_ENDPOINT_CREATE, .done = changed};
    change.endpoint = hx_endpoint_new;
    assert_true(hx_endpoint_read(HX_LIT("{\"url\":\"http://a/\"}"), &world.arena, &change.endpoint, error));
    for (int i = 0; i < 30; i++) hx_loop_turn(world.loop, 1); /* the engine has read those that exist */
    world.begun++;
    hx_engine_change_endpoint(world.engines[0], &change);
    await_all();
    if (!is_disabled) return;
    change = (hx_endpoint_change){.arena = &world.arena,
                                  .act = HX_ENDPOINT_DISABLE,
                                  .tenant = HX_EMPTY,
                                  .id = change.endpoint.id,
                                  .reason = HX_LIT("test"),
                                  .done = changed};
    world.begun++;
    hx_engine_change_endpoint(world.engines[0], &change);
    await_all();
}

static void a_batch_of_a_thousand_streams_fits(void **state)
{
    (void)state;
    hx_buf names;
    for (unsigned i = 0; i < 3; i++) add_endpoint(true);
    hx_buf_init(&names, &world.arena, 16000);
    for (unsigned i = 0; i < HX_PUBLISH_MAX; i++) hx_buf_put(&names, hx_arena_printf(&world.arena, "s%u ", i));
    names.len--;
    hx_publish *publish = begin_publish(0, hx_arena_terminated(&world.arena, hx_buf_slice(&names)), "");
    await_all();
    assert_int_equal(publish->result, HX_PUBLISHED);
    assert_int_equal(read_after("s999", 0).count, 1);
}

static void what_has_expired_is_said_and_a_forgotten_stream_begins_anew(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) (void)publish_one(0, "orders");
    (void)publish_one(0, "audit-1");
    (void)publish_one(0, "brief");
    now += 2 * HX_HOUR;
    expect_gone("brief", 0, 2);
    assert_int_equal(read_after("brief", 1).count, 0);
    now += 8 * HX_DAY;
    expect_gone("orders", 0, 4);
    assert_int_equal(publish_one(1, "orders"), 4);
    expect_gone("orders", 1, 4);
    assert_int_equal(read_after("orders", 3).count, 1);
    now += 7 * HX_DAY + HX_STREAM_OUTLIVES + HX_MINUTE;
    assert_int_equal(publish_one(0, "orders"), 1); /* its engine remembers another version */
    expect_gone("orders", 4, 1);
    assert_int_equal(read_after("audit-1", 0).count, 1);
    now += 3650 * HX_DAY;
    assert_int_equal(read_after("audit-1", 0).count, 1);
    assert_int_equal(publish_one(1, "audit-1"), 2);
}

static void a_dead_letter_sets_no_end_to_an_event_that_is_kept_forever(void **state)
{
    (void)state;
    add_endpoint(false);
    (void)publish_one(0, "audit-1");
    while (!world.sending || world.done < world.begun) hx_loop_turn(world.loop, 10);
    for (int i = 0; i < 30; i++) hx_loop_turn(world.loop, 1); /* the result is committed */
    assert_int_equal(hx_engine_count(world.engines[0])->dead, 1);
    now += 365 * HX_DAY;
    assert_int_equal(read_after("audit-1", 0).count, 1);
}

static void committed(hx_store_call *call)
{
    assert_int_equal(call->result, HX_STORE_OK);
    world.done++;
}

static void a_gap_is_never_skipped(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) (void)publish_one(0, "orders");
    hx_item item = {.key = hx_sequence_entry_key(HX_EMPTY, HX_LIT("orders"), 2, &world.arena)};
    hx_store_call call = {.loop = world.loop, .arena = &world.arena, .done = committed};
    world.begun += 2;
    hx_store_get(world.store, &call, &item, 1);
    while (world.done + 1 < world.begun) hx_loop_turn(world.loop, 10);
    item.act = HX_ITEM_REMOVE;
    hx_store_commit(world.store, &call, &item, 1, false);
    await_all();
    hx_reading reading = read_after("orders", 0);
    assert_int_equal(reading.count, 1);
    expect_gone("orders", 1, 3);
    assert_int_equal(read_after("orders", 2).count, 2);
}

static void a_page_ends_when_it_has_bytes_enough(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) (void)publish_one(0, "orders");
    hx_reading reading = {.arena = &world.arena,
                          .tenant = HX_EMPTY,
                          .stream = HX_LIT("orders"),
                          .events_max = 1000,
                          .bytes_max = 2, /* the data of two events */
                          .done = was_read};
    world.begun++;
    hx_engine_read_stream(world.engines[0], &reading);
    await_all();
    assert_int_equal(reading.count, 2);
    reading.bytes_max = 0;
    world.begun++;
    hx_engine_read_stream(world.engines[0], &reading);
    await_all();
    assert_int_equal(reading.count, 1);
}

static void wake(hx_stream_watch *watch)
{
    (void)watch;
    world.woken++;
}

static void watchers_are_told_of_their_stream_only(void **state)
{
    (void)state;
    hx_stream_watch watch = {.woken = wake};
    hx_engine_watch(world.engines[0], HX_EMPTY, HX_LIT("orders"), &watch);
    (void)publish_one(0, "orders");
    assert_int_equal(world.woken, 1);
    (void)publish_one(0, "others");
    (void)publish_one(1, "orders");
    assert_int_equal(world.woken, 1);
    hx_engine_unwatch(world.engines[0], &watch);
    (void)publish_one(0, "orders");
    assert_int_equal(world.woken, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_processes_give_each_position_once, begin, end),
        cmocka_unit_test_setup_teardown(one_process_never_collides_with_itself, begin, end),
        cmocka_unit_test_setup_teardown(batches_across_streams_wait_for_each_other_and_never_for_ever, begin, end),
        cmocka_unit_test_setup_teardown(an_expected_version_is_compared_with_the_store, begin, end),
        cmocka_unit_test_setup_teardown(a_batch_of_a_thousand_streams_fits, begin, end),
        cmocka_unit_test_setup_teardown(what_has_expired_is_said_and_a_forgotten_stream_begins_anew, begin, end),
        cmocka_unit_test_setup_teardown(a_dead_letter_sets_no_end_to_an_event_that_is_kept_forever, begin, end),
        cmocka_unit_test_setup_teardown(a_gap_is_never_skipped, begin, end),
        cmocka_unit_test_setup_teardown(a_page_ends_when_it_has_bytes_enough, begin, end),
        cmocka_unit_test_setup_teardown(watchers_are_told_of_their_stream_only, begin, end),
    };
    return cmocka_run_group_tests_name("streams", tests, NULL, NULL);
}
