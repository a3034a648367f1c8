/* SPDX-License-Identifier: Apache-2.0 */
/* Two programs that are one consumer: each reads the stream behind the consumer's position, and acknowledges what it
 * has read when it has processed that. Now and then somebody moves the consumer. Their half of the oracle is here, too:
 * positions have no gaps and are given once, and the consumer never goes back or skips but by a seek. */
#include "events.h"

#include "events/streams/reading.h"

#define PROGRAMS 2u
#define AGAIN HX_SECOND
#define NAME HX_LIT("c")

typedef struct {
    ev_node *node;
    unsigned number;
    bool is_seek;
    hx_arena arena;
    hx_store_call call;
    hx_item items[2]; /* the consumer's, and the stream's */
    hx_consumer consumer;
    hx_sequence sequence;
    uint64_t position, generation; /* to be acknowledged */
    hx_reading reading;
    void (*then)(void *program);
} program;

static program programs[PROGRAMS + 1]; /* the last one is who seeks */

static void turn(void *subject);

static unsigned by(const program *p)
{
    return SIM_BY_CLIENT + p->number;
}

/* Whoever has found something looks again soon. */
static void rest(program *p)
{
    hx_ms least = world.calm ? HX_HOUR : p->reading.count > 0 ? AGAIN : HX_HOUR / 2;
    hx_arena_free(&p->arena);
    ev.asking--;
    if (p->is_seek)
        ev.stream.seeks--;
    else
        sim_after(sim_span(by(p), least, least + HX_HOUR), turn, p);
}

static void committed(hx_store_call *call)
{
    rest(HX_OWNER(call, program, call));
}

static void commit(program *p)
{
    p->items[0] = (hx_item){.key = hx_consumer_key(HX_EMPTY, HX_LIT(EV_STREAM), NAME, &p->arena),
                            .version = p->items[0].version,
                            .queue = HX_EMPTY,
                            .meta = hx_consumer_encode(&p->consumer, &p->arena),
                            .body = HX_EMPTY};
    p->call = (hx_store_call){.loop = p->node->loop, .arena = &p->arena, .done = committed};
    hx_store_commit(&p->node->store, &p->call, p->items, 1, false);
}

static void looked(hx_store_call *call)
{
    program *p = HX_OWNER(call, program, call);
    bool is_read = call->result == HX_STORE_OK &&
                   hx_consumer_decode(p->items[0].version > 0 ? p->items[0].meta : HX_EMPTY, &p->arena, &p->consumer) &&
                   hx_sequence_decode(p->items[1].version > 0 ? p->items[1].meta : HX_EMPTY, &p->arena, &p->sequence);
    if (is_read && !ev.ghost_now)
        p->then(p);
    else
        rest(p);
}

/* Reads where the consumer and the stream are, then goes on. */
static void look(program *p, void (*then)(void *program))
{
    p->then = then;
    p->items[0] = (hx_item){.key = hx_consumer_key(HX_EMPTY, HX_LIT(EV_STREAM), NAME, &p->arena)};
    p->items[1] = (hx_item){.key = hx_sequence_key(HX_EMPTY, HX_LIT(EV_STREAM), &p->arena)};
    p->call = (hx_store_call){.loop = p->node->loop, .arena = &p->arena, .done = looked};
    hx_store_get(&p->node->store, &p->call, p->items, 2);
}

static void ack(void *subject)
{
    program *p = subject;
    if (hx_consumer_ack(&p->consumer, p->sequence.last, p->position, p->generation, ev_now(p->node)) == HX_ACK_DONE)
        commit(p);
    else
        rest(p);
}

/* The program has done with what it has read. */
static void processed(void *subject)
{
    program *p = subject;
    p->node = ev_some_node(by(p));
    ev.asking++;
    if (p->node)
        look(p, ack);
    else
        rest(p);
}

static void read_done(hx_reading *reading)
{
    program *p = HX_OWNER(reading, program, reading);
    if (reading->result == HX_READING_GONE && !ev.ghost_now)
        sim_fail("a consumer never skips", "the stream says that %llu is gone", (unsigned long long)reading->after + 1);
    if (reading->result != HX_READING_DONE || reading->count == 0 || ev.ghost_now) {
        rest(p);
        return;
    }
    for (size_t i = 0; i < reading->count; i++) {
        const hx_event *event = &reading->events[i];
        uint64_t position = reading->after + 1 + i;
        if (event->position != position || !hx_slice_eq(event->id, ev.stream.ids[position]))
            sim_fail("a stream is read in its order", "%.*s comes as %llu", HX_FMT(event->id),
                     (unsigned long long)position);
    }
    p->position = reading->after + reading->count;
    if (p->generation == ev.stream.generation && p->position > ev.stream.processed) ev.stream.processed = p->position;
    ev.asking--;
    sim_after(sim_span(by(p), 1, 10 * HX_MINUTE), processed, p);
    if (!world.calm && sim_chance(SIM_BY_TROUBLES, 20)) ev_consumer_seeks();
}

static void read_stream(void *subject)
{
    program *p = subject;
    p->generation = p->consumer.generation;
    p->reading = (hx_reading){.arena = &p->arena,
                              .tenant = HX_EMPTY,
                              .stream = HX_LIT(EV_STREAM),
                              .after = p->consumer.position,
                              .events_max = 1 + sim_choose(by(p), 3),
                              .bytes_max = 1u << 20,
                              .done = read_done};
    hx_engine_read_stream(p->node->engine, &p->reading);
}

static void turn(void *subject)
{
    program *p = subject;
    p->node = ev_some_node(by(p));
    if (!p->node) {
        sim_after(600 * AGAIN, turn, p);
        return;
    }
    ev.asking++;
    p->reading.count = 0;
    look(p, read_stream);
}

static void seek(void *subject)
{
    program *p = subject;
    uint64_t to = sim_choose(SIM_BY_TROUBLES, EV_EVENTS_MAX);
    if (hx_consumer_seek(&p->consumer, p->sequence.last, to, ev_now(p->node)))
        commit(p);
    else
        rest(p);
}

void ev_consumer_seeks(void)
{
    program *p = &programs[PROGRAMS];
    p->node = ev_some_node(SIM_BY_TROUBLES);
    if (!p->node || ev.stream.seeks > 0) return;
    ev.asking++;
    ev.stream.seeks++;
    look(p, seek);
}

void ev_consumers_begin(void)
{
    ev.stream.generation = 1;
    for (unsigned i = 0; i <= PROGRAMS; i++) {
        programs[i] = (program){.number = i, .is_seek = i == PROGRAMS};
        if (i < PROGRAMS) sim_after(sim_span(by(&programs[i]), 1, HX_HOUR), turn, &programs[i]);
    }
}

bool ev_consumers_done(void)
{
    return ev.stream.position == ev.stream.last;
}

void ev_oracle_entry(const hx_item *item, const hx_item *items, size_t count)
{
    hx_sequence_entry entry;
    uint64_t position = hx_sequence_entry_position(item->key);
    bool is_read = item->act == HX_ITEM_PUT && hx_sequence_entry_decode(item->meta, &world.arena, &entry);
    if (!is_read || position != ev.stream.last + 1 || position > EV_EVENTS_MAX)
        sim_fail("positions have no gaps, and are given once", "%llu follows %llu", (unsigned long long)position,
                 (unsigned long long)ev.stream.last);
    hx_slice key = hx_event_key(&(hx_event){.id = entry.id, .tenant = HX_EMPTY}, &world.arena);
    hx_event event = {.position = 0};
    for (size_t i = 0; i < count; i++)
        if (hx_slice_eq(items[i].key, key) && !hx_event_decode(items[i].meta, &world.arena, &event))
            sim_fail("an event never changes", "%.*s", HX_FMT(key));
    if (event.position != position)
        sim_fail("an event and its place in its stream are one commit", "%.*s at %llu", HX_FMT(key),
                 (unsigned long long)position);
    ev.stream.ids[++ev.stream.last] = hx_arena_copy(&world.arena, entry.id);
    ev_count(EV_COUNT_POSITION);
}

void ev_oracle_stream(const hx_item *item)
{
    hx_sequence sequence;
    if (item->act != HX_ITEM_PUT || !hx_sequence_decode(item->meta, &world.arena, &sequence) ||
        sequence.last != ev.stream.last)
        sim_fail("positions have no gaps, and are given once", "the stream's version is not its last position, %llu",
                 (unsigned long long)ev.stream.last);
}

void ev_oracle_consumer(const hx_item *item)
{
    hx_consumer consumer;
    if (item->act != HX_ITEM_PUT || !hx_consumer_decode(item->meta, &world.arena, &consumer))
        sim_fail("a consumer's position is durable", "it was removed or is malformed");
    SIM_TRACE("the consumer is at %llu, generation %llu", (unsigned long long)consumer.position,
              (unsigned long long)consumer.generation);
    if (consumer.generation == ev.stream.generation + 1 && ev.stream.seeks > 0) {
        ev_count(EV_COUNT_SEEK);
        ev.stream.processed = consumer.position;
    } else if (consumer.generation != ev.stream.generation || consumer.position < ev.stream.position) {
        sim_fail("a consumer never goes back", "from %llu to %llu", (unsigned long long)ev.stream.position,
                 (unsigned long long)consumer.position);
    } else {
        ev_count(EV_COUNT_ACK);
    }
    if (consumer.position > ev.stream.processed)
        sim_fail("a consumer never skips", "%llu was acknowledged, %llu was processed",
                 (unsigned long long)consumer.position, (unsigned long long)ev.stream.processed);
    ev.stream.position = consumer.position;
    ev.stream.generation = consumer.generation;
}
