/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on the reference store, with a sender that does as it is told. Time is the test's: it stands still until
 * it is moved, and the recipients are then woken. */
#include "base/check.h"
#include "base/text.h"
#include "core/retry/retry_after.h"
#include "events/inbox/inbox.h"
#include "events/recipient.h"
#include "store/backend.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define START ((hx_ms)1798761600000)
#define SENT_MAX 4096

static hx_ms now;

static hx_ms test_clock(void)
{
    return now;
}

typedef struct {
    char url[64];
    char body[512];
    char id[64];
    char key[64];
    bool is_signed;
    hx_ms at;
} sent;

static struct {
    hx_loop *loop;
    hx_store *store;
    hx_engine *engine, *crashed;
    hx_arena arena;
    sent sent[SENT_MAX];
    unsigned count;
    struct {
        hx_task task;
        hx_sending *sending;
        bool hangs;
    } ends[SENT_MAX];
} world;

/* http://STATUS/ answers with that status, http://hang…/ never. */
static void answer(hx_task *task)
{
    unsigned number = (unsigned)(HX_OWNER(task, __typeof__(world.ends[0]), task) - world.ends);
    hx_sending *sending = world.ends[number].sending;
    unsigned status = (unsigned)strtoul(sending->url.ptr + strlen("http://"), NULL, 10);
    sending->result = (hx_attempt_result){.status = status,
                                          .ms = 3,
                                          .retry_after = HX_RETRY_AFTER_NONE,
                                          .response = HX_LIT("a response")};
    sending->done(sending);
}

static void copy(char *out, size_t bytes, hx_slice text)
{
    (void)snprintf(out, bytes, "%.*s", HX_FMT(text));
}

static hx_slice header(hx_slice lines, const char *name)
{
    hx_text_header found;
    while (hx_text_next_header(&lines, &found))
        if (hx_slice_eq(found.name, hx_slice_of(name))) return found.value;
    return HX_EMPTY;
}

static void send_it(void *context, hx_sending *sending)
{
    (void)context;
    HX_CHECK(world.count < SENT_MAX);
    unsigned number = world.count++;
    sent *s = &world.sent[number];
    copy(s->url, sizeof s->url, sending->url);
    copy(s->body, sizeof s->body, sending->body);
    copy(s->id, sizeof s->id, header(sending->header_lines, "webhook-id"));
    copy(s->key, sizeof s->key, header(sending->header_lines, "Idempotency-Key"));
    s->is_signed = hx_slice_starts(header(sending->header_lines, "webhook-signature"), HX_LIT("v1,"));
    s->at = now;
    world.ends[number].sending = sending;
    world.ends[number].task.run = answer;
    world.ends[number].hangs = strncmp(s->url, "http://hang", 11) == 0;
    if (world.ends[number].hangs) return;
    hx_loop_defer(world.loop, &world.ends[number].task);
}

static void settle_down(void)
{
    for (int i = 0; i < 30; i++) hx_loop_turn(world.loop, 1);
}

enum { SIGNED, UNSIGNED, WAITING, BROKEN };
#define SOURCE(id, url, ...)                                                                                           \
    {                                                                                                                  \
        .name = {id, sizeof(id) - 1}, .tenant = {"", 0}, .deliver = {url, sizeof(url) - 1}, .timeout = 20 * HX_SECOND, \
        .concurrency = 4, .window = 7 * HX_DAY, __VA_ARGS__                                                            \
    }
static const hx_source sources[] = {SOURCE("stripe", "http://200/app", .is_strict = false),
                                    SOURCE("github", "http://200/app", .replay_guard = HX_HOUR),
                                    SOURCE("slack", "http://201/app", .waits = true),
                                    SOURCE("broken", "http://500/app", .waits = true)};

static void begin_engine(void)
{
    hx_engine_needs needs = {.loop = world.loop,
                             .store = world.store,
                             .endpoints = {.send = send_it},
                             .applications = {.send = send_it},
                             .settings = {.attempts_max = 64,
                                          .retention = 7 * HX_DAY,
                                          .dead_retention = 30 * HX_DAY,
                                          .disable_after = 3 * HX_DAY,
                                          .pause_max = 5 * HX_DAY,
                                          .payload_bytes_max = 256u << 10}};
    world.engine = hx_engine_new(&needs);
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) hx_engine_add_source(world.engine, &sources[i]);
    hx_engine_start(world.engine);
    settle_down();
}

static int begin(void **state)
{
    (void)state;
    memset(&world, 0, sizeof world);
    now = START;
    world.loop = hx_loop_new();
    world.store = hx_store_memory_open(&(hx_store_options){.now = test_clock});
    hx_store_attach(world.store, world.loop);
    begin_engine();
    return 0;
}

/* What was sent before this time and hangs is cut off: its attempt fails. */
static void cut_off(hx_ms before)
{
    for (unsigned i = 0; i < world.count; i++) {
        if (!world.ends[i].hangs || world.sent[i].at >= before) continue;
        world.ends[i].hangs = false;
        world.ends[i].sending->result = (hx_attempt_result){.error = "cut off",
                                                            .retry_after = HX_RETRY_AFTER_NONE,
                                                            .response = HX_EMPTY};
        world.ends[i].sending->done(world.ends[i].sending);
    }
}

static void stopped(void *context)
{
    *(bool *)context = true;
}

static void end_engine(hx_engine **engine)
{
    bool is_stopped = false;
    hx_engine_stop(*engine, stopped, &is_stopped);
    cut_off(INT64_MAX);
    settle_down();
    assert_true(is_stopped);
    hx_engine_free(engine);
}

static int end(void **state)
{
    (void)state;
    end_engine(&world.engine);
    if (world.crashed) end_engine(&world.crashed);
    hx_store_close(&world.store);
    hx_loop_free(&world.loop);
    hx_arena_free(&world.arena);
    hx_arena_pool_drain();
    return 0;
}

/* The process has died, and another one begins: nothing comes of the old engine any more, but for late answers. */
static void crash(void)
{
    world.engine->stopping = true;
    world.crashed = world.engine;
    now++; /* leases of an earlier process are older than this one */
    begin_engine();
}

static bool flag;

static void changed(hx_endpoint_change *change)
{
    (void)change;
    flag = true;
}

static hx_slice endpoint_for(const char *json)
{
    static hx_endpoint_change change;
    hx_error_text error;
    change = (hx_endpoint_change){.arena = &world.arena, .act = HX_ENDPOINT_CREATE, .done = changed};
    change.endpoint = hx_endpoint_new;
    assert_true(hx_endpoint_read(hx_slice_of(json), &world.arena, &change.endpoint, error));
    flag = false;
    hx_engine_change_endpoint(world.engine, &change);
    while (!flag) hx_loop_turn(world.loop, 10);
    assert_int_equal(change.result, HX_CHANGE_DONE);
    return change.endpoint.id;
}

static hx_change_result change_endpoint(hx_endpoint_act act, hx_slice id)
{
    static hx_endpoint_change change;
    change = (hx_endpoint_change){
        .arena = &world.arena, .act = act, .tenant = HX_EMPTY, .id = id, .reason = HX_LIT("test"), .done = changed};
    flag = false;
    hx_engine_change_endpoint(world.engine, &change);
    while (!flag) hx_loop_turn(world.loop, 10);
    return change.result;
}

static void published(hx_publish *publish)
{
    (void)publish;
    flag = true;
}

static hx_publish publish_as(const char *json, const char *key)
{
    static hx_publish publish;
    static hx_event event;
    hx_error_text error;
    assert_true(hx_event_read(hx_slice_of(json), &world.arena, &event, error));
    publish = (hx_publish){.arena = &world.arena,
                           .events = &event,
                           .count = 1,
                           .principal = HX_LIT("billing"),
                           .key = hx_slice_of(key),
                           .done = published};
    flag = false;
    hx_engine_publish(world.engine, &publish);
    while (!flag) hx_loop_turn(world.loop, 10);
    settle_down();
    return publish;
}

static hx_publish publish(const char *json)
{
    return publish_as(json, "");
}

static void got(hx_store_call *call)
{
    (void)call;
    flag = true;
}

static hx_delivery delivery_of(hx_slice endpoint, const char *event)
{
    hx_delivery delivery;
    hx_item item = {.key = hx_arena_printf(&world.arena, "d//%.*s/e//%s", HX_FMT(endpoint), event)};
    hx_store_call call = {.loop = world.loop, .arena = &world.arena, .done = got};
    flag = false;
    hx_store_get(world.store, &call, &item, 1);
    while (!flag) hx_loop_turn(world.loop, 10);
    assert_true(item.version > 0);
    assert_true(hx_delivery_decode(item.meta, item.body, &world.arena, &delivery));
    return delivery;
}

static void delivery_changed(hx_delivery_change *change)
{
    (void)change;
    flag = true;
}

static hx_change_result change_delivery(hx_delivery_act act, hx_slice endpoint, const char *event)
{
    static hx_delivery_change change;
    change = (hx_delivery_change){.arena = &world.arena,
                                  .act = act,
                                  .key = hx_arena_printf(&world.arena, "d//%.*s/e//%s", HX_FMT(endpoint), event),
                                  .reason = HX_LIT("test"),
                                  .done = delivery_changed};
    flag = false;
    hx_engine_change_delivery(world.engine, &change);
    while (!flag) hx_loop_turn(world.loop, 10);
    return change.result;
}

/* Moves the clock, and lets every recipient see what is due by then. */
static void pass(hx_ms span)
{
    hx_slice name;
    void *value;
    now += span;
    for (size_t cursor = 0; hx_map_next(world.engine->recipients, &cursor, &name, &value);)
        hx_recipient_nudge(value, now);
    settle_down();
}

static void an_event_goes_to_each_endpoint_that_wants_it_signed_and_once(void **state)
{
    (void)state;
    (void)endpoint_for("{\"url\":\"http://200/a\",\"secrets\":[\"whsec_plJ3nmyCDGBKInavdOK15jsl\"]}");
    (void)endpoint_for("{\"url\":\"http://200/b\",\"types\":[\"refund.*\"],\"filters\":{\"/amount\":5.0}}");
    (void)endpoint_for("{\"url\":\"http://200/c\",\"types\":[\"order.created\"]}");
    (void)endpoint_for("{\"url\":\"http://200/d\",\"filters\":{\"/amount\":6}}");
    (void)endpoint_for("{\"url\":\"http://200/e\",\"tenant\":\"other\"}");
    hx_publish p = publish("{\"id\":\"r1\",\"type\":\"refund.created\",\"data\":{\"amount\":5}}");
    assert_int_equal(p.result, HX_PUBLISHED);
    assert_int_equal(world.count, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_string_equal(world.sent[i].id, "r1");
        assert_string_equal(world.sent[i].body, "{\"eventId\":\"r1\",\"eventType\":\"refund.created\",\"timestamp\":"
                                                "\"2027-01-01T00:00:00.000Z\",\"data\":{\"amount\":5}}");
        assert_int_equal(world.sent[i].is_signed, strcmp(world.sent[i].url, "http://200/a") == 0);
    }
    pass(HX_DAY);
    assert_int_equal(world.count, 2);
}

static void a_failed_delivery_keeps_to_its_schedule_and_its_id(void **state)
{
    (void)state;
    static const hx_ms places[] = {5 * HX_SECOND, 30 * HX_SECOND, 2 * HX_MINUTE, 10 * HX_MINUTE, 30 * HX_MINUTE,
                                   HX_HOUR,       6 * HX_HOUR,    12 * HX_HOUR,  24 * HX_HOUR};
    hx_slice endpoint = endpoint_for("{\"url\":\"http://500/\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1}");
    assert_int_equal(world.count, 1);
    for (unsigned i = 0; i < 9; i++) {
        hx_delivery delivery = delivery_of(endpoint, "r1");
        assert_int_equal(delivery.state, HX_DELIVERY_PENDING);
        assert_in_range(delivery.due - START, places[i], places[i] + places[i] / 10);
        pass(delivery.due - 1 - now);
        assert_int_equal(world.count, i + 1);
        now = delivery.due;
        pass(0);
        assert_int_equal(world.count, i + 2);
        assert_string_equal(world.sent[i + 1].id, "r1");
    }
    hx_delivery delivery = delivery_of(endpoint, "r1");
    assert_int_equal(delivery.state, HX_DELIVERY_DEAD);
    assert_int_equal(delivery.attempts, 10);
    assert_int_equal(delivery.responses.len, 10 * strlen("a response"));
}

static void the_same_request_again_is_answered_as_before_and_sends_nothing(void **state)
{
    (void)state;
    (void)endpoint_for("{\"url\":\"http://200/\"}");
    hx_publish first = publish_as("{\"type\":\"t\",\"data\":{\"a\":1,\"b\":2}}", "key-1");
    hx_slice id = first.events[0].id;
    assert_int_equal(first.result, HX_PUBLISHED);
    now += HX_MINUTE;
    hx_publish again = publish_as("{\"type\":\"t\",\"data\":{\"b\":2, \"a\":1.0}}", "key-1");
    assert_int_equal(again.result, HX_PUBLISHED_BEFORE);
    assert_true(hx_slice_eq(again.events[0].id, id));
    assert_int_equal(again.events[0].accepted_at, START);
    assert_int_equal(publish_as("{\"type\":\"t\",\"data\":{\"a\":2}}", "key-1").result, HX_PUBLISH_CONFLICT);
    assert_int_equal(world.count, 1);
    assert_int_equal(publish("{\"id\":\"x\",\"type\":\"t\",\"data\":1}").result, HX_PUBLISHED);
    assert_int_equal(publish("{\"id\":\"x\",\"type\":\"t\",\"data\":1}").result, HX_PUBLISHED_BEFORE);
    assert_int_equal(publish("{\"id\":\"x\",\"type\":\"t\",\"data\":2}").result, HX_PUBLISH_CONFLICT);
    assert_int_equal(world.count, 2);
}

/* Time passes, and the engine looks for attempts that take long. */
static void watch(hx_ms span)
{
    now += span;
    hx_timer_start(world.loop, &world.engine->watch, 0, world.engine->watch.fire);
    cut_off(now - 20 * HX_SECOND);
    settle_down();
}

static void publish_to_many_that_never_answer(void)
{
    char json[128];
    for (int i = 0; i < 300; i++) {
        (void)snprintf(json, sizeof json, "{\"url\":\"http://hang%d/\",\"types\":[\"dead\"]}", i);
        (void)endpoint_for(json);
    }
    for (int i = 0; i < 5; i++) (void)publish("{\"type\":\"dead\",\"data\":1}");
}

static void many_that_never_answer_do_not_delay_one_that_does(void **state)
{
    (void)state;
    publish_to_many_that_never_answer();
    while (world.engine->counts.attempts < 300 || !hx_list_empty(&world.engine->listed[HX_RECIPIENT_LATE])) {
        watch(2 * HX_SECOND);
        assert_in_range(world.engine->attempts, 1, 4 * 64 - 1);
    }
    watch(2 * HX_SECOND); /* the last of them are seen to hang, too */
    hx_slice good = endpoint_for("{\"url\":\"http://200/good\",\"types\":[\"good\"]}");
    for (int i = 0; i < 20; i++) {
        unsigned before = world.count;
        (void)publish("{\"type\":\"good\",\"data\":1}");
        assert_int_equal(world.count, before + 1);
    }
    assert_int_equal(hx_recipient_find(world.engine, HX_EMPTY, good)->class, HX_RECIPIENT_PROVEN);
}

static void one_that_is_added_while_many_wait_for_their_first_attempt_is_sent_to_at_once(void **state)
{
    (void)state;
    publish_to_many_that_never_answer();
    watch(2 * HX_SECOND); /* the first are seen to hang, and others take their places */
    watch(2 * HX_SECOND);
    assert_in_range(world.engine->counts.attempts, 1, 100);
    (void)endpoint_for("{\"url\":\"http://200/good\",\"types\":[\"good\"]}");
    unsigned before = world.count;
    (void)publish("{\"type\":\"good\",\"data\":1}");
    assert_int_equal(world.count, before + 1);
    assert_string_equal(world.sent[before].url, "http://200/good");
}

static void one_failure_does_not_put_an_endpoint_behind_those_that_never_answer(void **state)
{
    (void)state;
    hx_slice good = endpoint_for("{\"url\":\"http://200/good\",\"types\":[\"good\"]}");
    (void)publish("{\"type\":\"good\",\"data\":1}");
    publish_to_many_that_never_answer();
    for (int i = 0; i < 20; i++) watch(2 * HX_SECOND);
    hx_recipient *recipient = hx_recipient_find(world.engine, HX_EMPTY, good);
    recipient->endpoint.url = HX_LIT("http://500/good");
    (void)publish("{\"type\":\"good\",\"data\":1}");
    recipient->endpoint.url = HX_LIT("http://200/good");
    assert_true(recipient->endpoint.failing_since > 0);
    unsigned before = world.count;
    (void)publish("{\"type\":\"good\",\"data\":1}");
    assert_int_equal(world.count, before + 1);
    assert_int_equal(recipient->class, HX_RECIPIENT_PROVEN);
}

static void attempts_of_one_event_share_what_was_read_of_it_until_the_last_has_ended(void **state)
{
    (void)state;
    (void)endpoint_for("{\"url\":\"http://hang/a\"}");
    (void)endpoint_for("{\"url\":\"http://hang/b\"}");
    (void)endpoint_for("{\"url\":\"http://200/c\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":{\"amount\":5}}");
    assert_int_equal(world.count, 3);
    for (unsigned i = 1; i < 3; i++) assert_string_equal(world.sent[i].body, world.sent[0].body);
    assert_int_equal(hx_map_count(world.engine->events), 1);
    cut_off(INT64_MAX);
    settle_down();
    assert_int_equal(hx_map_count(world.engine->events), 0);
    pass(6 * HX_SECOND); /* the second attempts, at their own times */
    assert_int_equal(world.count, 5);
    assert_string_equal(world.sent[4].body, world.sent[0].body);
}

static void what_a_crash_interrupted_is_delivered_under_the_same_id(void **state)
{
    (void)state;
    hx_slice endpoint = endpoint_for("{\"url\":\"http://hang/\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1}");
    assert_int_equal(world.count, 1);
    assert_int_equal(delivery_of(endpoint, "r1").state, HX_DELIVERY_LEASED);
    crash();
    hx_delivery delivery = delivery_of(endpoint, "r1");
    assert_int_equal(delivery.state, HX_DELIVERY_PENDING);
    assert_int_equal(delivery.attempts, 1);
    now = delivery.due;
    pass(0);
    assert_int_equal(world.count, 2);
    assert_string_equal(world.sent[1].id, "r1");
    assert_int_equal(delivery_of(endpoint, "r1").attempts, 2);
}

static void a_disabled_endpoint_pauses_and_goes_on_where_it_was(void **state)
{
    (void)state;
    hx_slice endpoint = endpoint_for("{\"url\":\"http://200/\"}");
    assert_int_equal(change_endpoint(HX_ENDPOINT_DISABLE, endpoint), HX_CHANGE_DONE);
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1}");
    pass(HX_HOUR);
    assert_int_equal(world.count, 0);
    assert_int_equal(delivery_of(endpoint, "r1").attempts, 0);
    assert_int_equal(change_endpoint(HX_ENDPOINT_ENABLE, endpoint), HX_CHANGE_DONE);
    settle_down();
    assert_int_equal(world.count, 1);
    assert_int_equal(change_endpoint(HX_ENDPOINT_DELETE, endpoint), HX_CHANGE_DONE);
    assert_int_equal(change_endpoint(HX_ENDPOINT_ENABLE, endpoint), HX_CHANGE_ABSENT);
    (void)publish("{\"id\":\"r2\",\"type\":\"t\",\"data\":1}");
    assert_int_equal(world.count, 1);
}

/* As if a second had passed. */
static void look_after_endpoints(void)
{
    for (int i = 0; i < 5; i++) {
        if (hx_timer_running(&world.engine->housekeeping.timer))
            hx_timer_start(world.loop, &world.engine->housekeeping.timer, 0, world.engine->housekeeping.timer.fire);
        settle_down();
    }
}

static void gone_disables_an_endpoint_and_its_deliveries_wait(void **state)
{
    (void)state;
    hx_slice endpoint = endpoint_for("{\"url\":\"http://410/\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1}");
    look_after_endpoints();
    assert_true(hx_engine_endpoint(world.engine, HX_EMPTY, endpoint)->disabled);
    assert_int_equal(delivery_of(endpoint, "r1").state, HX_DELIVERY_DEAD);
    (void)publish("{\"id\":\"r2\",\"type\":\"t\",\"data\":1}");
    pass(4 * HX_DAY);
    look_after_endpoints();
    assert_int_equal(delivery_of(endpoint, "r2").state, HX_DELIVERY_PENDING);
    pass(2 * HX_DAY);
    look_after_endpoints();
    assert_int_equal(delivery_of(endpoint, "r2").state, HX_DELIVERY_DEAD);
    assert_int_equal(delivery_of(endpoint, "r2").attempts, 0);
    assert_int_equal(world.count, 1);
}

static const hx_store_ops *whole_ops;

static void refused(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    call->result = HX_STORE_FULL;
    call->done(call);
}

/* A store that is full: it refuses what isn't urgent. */
static void submit_to_full(hx_store *store, hx_store_call *call)
{
    if (call->verb != HX_STORE_COMMIT || call->urgent) {
        whole_ops->submit(store, call);
        return;
    }
    call->own.task.run = refused;
    hx_loop_defer(world.loop, &call->own.task);
}

static void what_a_full_store_refused_to_note_of_an_endpoint_is_noted_later(void **state)
{
    (void)state;
    hx_slice gone = endpoint_for("{\"url\":\"http://410/\"}"), failing = endpoint_for("{\"url\":\"http://500/\"}");
    (void)publish("{\"id\":\"e1\",\"type\":\"t\",\"data\":1}");
    settle_down();
    whole_ops = world.store->ops;
    hx_store_ops full = *whole_ops;
    full.submit = submit_to_full;
    world.store->ops = &full;
    for (int i = 0; i < 4; i++) look_after_endpoints();
    assert_false(hx_engine_endpoint(world.engine, HX_EMPTY, gone)->disabled);
    world.store->ops = whole_ops;
    for (int i = 0; i < 4; i++) look_after_endpoints();
    assert_true(hx_engine_endpoint(world.engine, HX_EMPTY, gone)->disabled);
    crash();
    assert_int_equal(hx_engine_endpoint(world.engine, HX_EMPTY, failing)->failing_since, START);
    assert_int_equal(change_endpoint(HX_ENDPOINT_ENABLE, gone), HX_CHANGE_DONE);
    for (int i = 0; i < 4; i++) look_after_endpoints();
    assert_false(hx_engine_endpoint(world.engine, HX_EMPTY, gone)->disabled);
}

static void an_endpoint_that_fails_for_days_is_disabled_also_across_a_restart(void **state)
{
    (void)state;
    hx_slice endpoint = endpoint_for("{\"url\":\"http://500/\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1}");
    look_after_endpoints();
    assert_int_equal(hx_engine_endpoint(world.engine, HX_EMPTY, endpoint)->failing_since, START);
    crash();
    assert_int_equal(hx_engine_endpoint(world.engine, HX_EMPTY, endpoint)->failing_since, START);
    now += 3 * HX_DAY + 1;
    look_after_endpoints();
    assert_true(hx_engine_endpoint(world.engine, HX_EMPTY, endpoint)->disabled);
}

static void deliveries_to_a_deleted_endpoint_are_cancelled_and_it_goes(void **state)
{
    (void)state;
    hx_slice endpoint = endpoint_for("{\"url\":\"http://500/\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1}");
    assert_int_equal(change_endpoint(HX_ENDPOINT_DELETE, endpoint), HX_CHANGE_DONE);
    look_after_endpoints();
    assert_int_equal(delivery_of(endpoint, "r1").state, HX_DELIVERY_CANCELLED);
    assert_null(hx_recipient_find(world.engine, HX_EMPTY, endpoint));
    pass(HX_DAY);
    assert_int_equal(world.count, 1);
}

static void a_dead_letter_keeps_its_event_and_can_be_sent_again(void **state)
{
    (void)state;
    hx_slice endpoint = endpoint_for("{\"url\":\"http://404/\",\"on_client_error\":\"dead\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1}");
    assert_int_equal(delivery_of(endpoint, "r1").state, HX_DELIVERY_DEAD);
    now += 20 * HX_DAY; /* past the retention of events, before that of dead letters */
    assert_int_equal(change_delivery(HX_DELIVERY_ACT_REARM, endpoint, "r1"), HX_CHANGE_DONE);
    settle_down();
    assert_int_equal(world.count, 2);
    assert_string_equal(world.sent[1].id, "r1");
    assert_int_equal(change_delivery(HX_DELIVERY_ACT_CANCEL, endpoint, "r1"), HX_CHANGE_REFUSED);
    assert_int_equal(change_delivery(HX_DELIVERY_ACT_REARM, endpoint, "r2"), HX_CHANGE_ABSENT);
}

static void an_event_for_later_is_sent_at_its_time(void **state)
{
    (void)state;
    (void)endpoint_for("{\"url\":\"http://200/\"}");
    (void)publish("{\"id\":\"r1\",\"type\":\"t\",\"data\":1,\"deliver_at\":\"2027-01-01T01:00:00Z\"}");
    pass(HX_HOUR - 1);
    hx_fan_out_nudge(world.engine, now);
    settle_down();
    assert_int_equal(world.count, 0);
    now++;
    hx_fan_out_nudge(world.engine, now);
    settle_down();
    assert_int_equal(world.count, 1);
    assert_int_equal(world.sent[0].at, START + HX_HOUR);
}

static void received(hx_receipt *receipt)
{
    (void)receipt;
    flag = true;
}

static hx_receipt receive(unsigned source, const char *id, const char *body)
{
    static hx_receipt receipt;
    receipt = (hx_receipt){.arena = &world.arena,
                           .source = &sources[source],
                           .id_is_signed = source != UNSIGNED,
                           .event = {.id = hx_slice_of(id), .type = HX_EMPTY, .data = hx_slice_of(body)},
                           .done = received};
    receipt.event.correlation_id = receipt.event.content_type = HX_EMPTY;
    flag = false;
    hx_engine_receive(world.engine, &receipt);
    while (!flag) hx_loop_turn(world.loop, 10);
    settle_down();
    return receipt;
}

static void a_webhook_is_stored_then_delivered_once_however_often_it_comes(void **state)
{
    (void)state;
    assert_int_equal(receive(SIGNED, "evt_1", "{}").result, HX_INBOX_RECEIVED);
    assert_int_equal(world.count, 1);
    assert_string_equal(world.sent[0].body, "{}");
    for (int day = 0; day < 6; day++, now += HX_DAY)
        assert_int_equal(receive(SIGNED, "evt_1", "{}").result, HX_INBOX_DUPLICATE);
    assert_int_equal(world.count, 1);
    now += 2 * HX_DAY; /* past the window */
    assert_int_equal(receive(SIGNED, "evt_1", "{}").result, HX_INBOX_RECEIVED);
    assert_int_equal(world.count, 2);
    assert_string_equal(world.sent[0].key, world.sent[1].key);
    assert_int_equal(receive(UNSIGNED, "evt_1", "{}").result, HX_INBOX_RECEIVED); /* another source, another event */
    assert_string_not_equal(world.sent[2].key, world.sent[0].key);
}

static void what_contradicts_an_earlier_event_is_held_until_somebody_sends_it(void **state)
{
    (void)state;
    (void)receive(SIGNED, "evt_1", "{\"a\":1}");
    hx_receipt other = receive(SIGNED, "evt_1", "{\"a\":2}");
    assert_int_equal(other.result, HX_INBOX_HELD);
    assert_int_equal(receive(SIGNED, "evt_1", "{\"a\":2}").result, HX_INBOX_HELD); /* kept once */
    assert_int_equal(receive(SIGNED, "evt_1", "{\"a\":1}").result, HX_INBOX_DUPLICATE);
    assert_int_equal(world.count, 1);
    static hx_delivery_change change;
    change = (hx_delivery_change){.arena = &world.arena,
                                  .act = HX_DELIVERY_ACT_REARM,
                                  .key = other.delivery_key,
                                  .done = delivery_changed};
    hx_engine_change_delivery(world.engine, &change);
    settle_down();
    assert_int_equal(world.count, 2);
    assert_string_equal(world.sent[1].body, "{\"a\":2}");
    assert_string_not_equal(world.sent[1].key, world.sent[0].key);
}

static void a_captured_request_under_another_id_is_held_where_the_id_is_not_signed(void **state)
{
    (void)state;
    assert_int_equal(receive(UNSIGNED, "one", "{\"a\":1}").result, HX_INBOX_RECEIVED);
    assert_int_equal(receive(UNSIGNED, "two", "{\"a\":1}").result, HX_INBOX_HELD);
    assert_int_equal(receive(UNSIGNED, "two", "{\"a\":1}").result, HX_INBOX_DUPLICATE);
    assert_int_equal(receive(UNSIGNED, "three", "{\"a\":3}").result, HX_INBOX_RECEIVED);
    now += HX_HOUR + HX_SECOND;
    assert_int_equal(receive(UNSIGNED, "four", "{\"a\":1}").result, HX_INBOX_RECEIVED);
    assert_int_equal(receive(SIGNED, "five", "{}").result, HX_INBOX_RECEIVED);
    assert_int_equal(receive(SIGNED, "six", "{}").result, HX_INBOX_RECEIVED); /* a signed id is the sender's word */
    assert_int_equal(world.count, 5);
}

static void a_source_that_waits_gets_the_response_and_only_a_success_is_kept(void **state)
{
    (void)state;
    hx_receipt r = receive(WAITING, "evt_1", "{}");
    assert_int_equal(r.result, HX_INBOX_ANSWERED);
    assert_int_equal(r.response.status, 201);
    assert_int_equal(receive(WAITING, "evt_1", "{}").result, HX_INBOX_DUPLICATE);
    assert_int_equal(world.count, 1);
    for (unsigned i = 0; i < 3; i++) {
        r = receive(BROKEN, "evt_1", "{}");
        assert_int_equal(r.result, HX_INBOX_ANSWERED);
        assert_int_equal(r.response.status, 500);
        assert_int_equal(world.count, 2 + i);
    }
}

static void a_duplicate_of_a_dead_event_arms_it_again_at_most_once_a_minute(void **state)
{
    (void)state;
    hx_receipt r = receive(SIGNED, "evt_1", "{}");
    assert_int_equal(r.result, HX_INBOX_RECEIVED);
    hx_recipient *app = hx_recipient_find(world.engine, HX_EMPTY, HX_LIT("in_stripe"));
    app->endpoint.url = HX_LIT("http://410/app");
    (void)receive(SIGNED, "evt_2", "{}");
    assert_int_equal(world.count, 2);
    assert_int_equal(receive(SIGNED, "evt_2", "{}").result, HX_INBOX_DUPLICATE);
    assert_int_equal(world.count, 2);
    now += HX_MINUTE;
    assert_int_equal(receive(SIGNED, "evt_2", "{}").result, HX_INBOX_DUPLICATE);
    assert_int_equal(world.count, 3);
    assert_string_equal(world.sent[1].key, world.sent[2].key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_goes_to_each_endpoint_that_wants_it_signed_and_once, begin, end),
        cmocka_unit_test_setup_teardown(a_failed_delivery_keeps_to_its_schedule_and_its_id, begin, end),
        cmocka_unit_test_setup_teardown(the_same_request_again_is_answered_as_before_and_sends_nothing, begin, end),
        cmocka_unit_test_setup_teardown(a_disabled_endpoint_pauses_and_goes_on_where_it_was, begin, end),
        cmocka_unit_test_setup_teardown(gone_disables_an_endpoint_and_its_deliveries_wait, begin, end),
        cmocka_unit_test_setup_teardown(what_a_full_store_refused_to_note_of_an_endpoint_is_noted_later, begin, end),
        cmocka_unit_test_setup_teardown(an_endpoint_that_fails_for_days_is_disabled_also_across_a_restart, begin, end),
        cmocka_unit_test_setup_teardown(deliveries_to_a_deleted_endpoint_are_cancelled_and_it_goes, begin, end),
        cmocka_unit_test_setup_teardown(a_dead_letter_keeps_its_event_and_can_be_sent_again, begin, end),
        cmocka_unit_test_setup_teardown(an_event_for_later_is_sent_at_its_time, begin, end),
        cmocka_unit_test_setup_teardown(what_a_crash_interrupted_is_delivered_under_the_same_id, begin, end),
        cmocka_unit_test_setup_teardown(attempts_of_one_event_share_what_was_read_of_it_until_the_last_has_ended, begin,
                                        end),
        cmocka_unit_test_setup_teardown(many_that_never_answer_do_not_delay_one_that_does, begin, end),
        cmocka_unit_test_setup_teardown(one_that_is_added_while_many_wait_for_their_first_attempt_is_sent_to_at_once,
                                        begin, end),
        cmocka_unit_test_setup_teardown(one_failure_does_not_put_an_endpoint_behind_those_that_never_answer, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_webhook_is_stored_then_delivered_once_however_often_it_comes, begin, end),
        cmocka_unit_test_setup_teardown(what_contradicts_an_earlier_event_is_held_until_somebody_sends_it, begin, end),
        cmocka_unit_test_setup_teardown(a_captured_request_under_another_id_is_held_where_the_id_is_not_signed, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_source_that_waits_gets_the_response_and_only_a_success_is_kept, begin, end),
        cmocka_unit_test_setup_teardown(a_duplicate_of_a_dead_event_arms_it_again_at_most_once_a_minute, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
