/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: events of a tenant under one name, in an order that never changes. The position of an event is given by the
 * commit that accepts it, so positions have no gaps, and whoever sees one can see all before it.
 *
 *     s/TENANT/STREAM                the stream: the position of its last event, which is its version
 *     p/TENANT/STREAM/POSITION       an entry: which event has this position (16 hexadecimal digits)
 *     c/TENANT/STREAM/CONSUMER       a consumer: how far somebody has processed the stream
 *
 * What must hold:
 * 1. An entry exists only together with its event.
 * 2. Entries expire in the order of their positions, unless some are kept forever; a reader who misses one is told.
 * 3. A stream's item outlives its last entry, and each of its consumers: a stream that begins anew has none.
 * 4. An acknowledgement never moves a consumer back, nor beyond the stream, nor counts after a seek that its sender
 *    doesn't know of. */
#ifndef HX_CORE_EVENT_SEQUENCE_H
#define HX_CORE_EVENT_SEQUENCE_H

#include "core/event/event.h"

#define HX_STREAM_OUTLIVES (90 * HX_DAY) /* the last of its entries */
#define HX_STREAM_FOREVER 0              /* as a retention */
#define HX_SEQUENCE_META_MAX 1024u       /* of a stream, an entry or a consumer */

/* How long the events of some streams are kept. */
typedef struct {
    hx_slice match; /* a stream's name, or its beginning and "*" */
    hx_ms retention;
} hx_stream_rule;

typedef struct {
    uint64_t last;    /* position of the last event; 0: there was none */
    hx_ms kept_until; /* when its entries have expired, but for those that never do */
    bool is_forever;  /* some never do */
} hx_sequence;

typedef struct {
    hx_slice id; /* of the event */
    hx_slice type;
    uint64_t bytes; /* that reading it takes, about */
} hx_sequence_entry;

typedef struct {
    uint64_t position;   /* of the last event that was processed; 0: none */
    uint64_t generation; /* from 1; a seek begins another */
    hx_ms changed_at;
} hx_consumer;

/* 1 to 128 letters, digits, "-", "_" and ".": the name of a stream or a consumer. */
bool hx_is_stream(hx_slice name);
/* The retention of a stream by the first rule that matches it. */
hx_ms hx_sequence_retention(const hx_stream_rule *rules, size_t count, hx_slice stream, hx_ms otherwise);

hx_slice hx_sequence_key(hx_slice tenant, hx_slice stream, hx_arena *arena);
hx_slice hx_sequence_entry_prefix(hx_slice tenant, hx_slice stream, hx_arena *arena);
hx_slice hx_sequence_entry_key(hx_slice tenant, hx_slice stream, uint64_t position, hx_arena *arena);
/* The position in the key of an entry; 0: it has none. */
uint64_t hx_sequence_entry_position(hx_slice key);
/* An empty stream: those of all streams of the tenant. */
hx_slice hx_consumer_prefix(hx_slice tenant, hx_slice stream, hx_arena *arena);
hx_slice hx_consumer_key(hx_slice tenant, hx_slice stream, hx_slice name, hx_arena *arena);

/* Metas of items, in the arena. Decoding an empty one, of an item that is absent, gives what a new one is. */
hx_slice hx_sequence_encode(const hx_sequence *sequence, hx_arena *arena);
bool hx_sequence_decode(hx_slice meta, hx_arena *arena, hx_sequence *out) HX_MUST_USE;
hx_slice hx_sequence_entry_encode(const hx_sequence_entry *entry, hx_arena *arena);
bool hx_sequence_entry_decode(hx_slice meta, hx_arena *arena, hx_sequence_entry *out) HX_MUST_USE;
hx_slice hx_consumer_encode(const hx_consumer *consumer, hx_arena *arena);
bool hx_consumer_decode(hx_slice meta, hx_arena *arena, hx_consumer *out) HX_MUST_USE;

/* Gives the next position, sequence->last, to an event. Returns when its entry expires; 0: never. */
hx_ms hx_sequence_take(hx_sequence *sequence, hx_ms now, hx_ms retention);
/* When the stream's own item expires; 0: never. */
hx_ms hx_sequence_expiry(const hx_sequence *sequence);

typedef enum {
    HX_ACK_DONE,       /* the consumer has changed, or was there already */
    HX_ACK_BACK,       /* it is further */
    HX_ACK_BEYOND,     /* the stream has no such position yet */
    HX_ACK_GENERATION, /* it was moved since the sender has read */
} hx_ack_result;

hx_ack_result hx_consumer_ack(hx_consumer *consumer, uint64_t last, uint64_t position, uint64_t generation, hx_ms now);
/* Begins a new generation at a position. False: the stream has no such position yet. */
bool hx_consumer_seek(hx_consumer *consumer, uint64_t last, uint64_t position, hx_ms now) HX_MUST_USE;

#endif
