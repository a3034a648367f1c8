/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of events: it accepts them, and delivers each to its recipients until they have it, or are dead. Its
 * queue is the store: deliveries that are due are items in queues (store/items.h), and what the engine keeps in memory
 * can be read again from there at any time. Every change of a delivery is decided in core/event/delivery.c.
 *
 *     publish ──commit: event, deliveries──► store ──scan: due──► lease ──commit──► send ──► settle ──commit──► store
 *
 * All functions belong to the thread of one loop, and every completion is called from that loop, once, never inside
 * the call that started it. */
#ifndef HX_EVENTS_ENGINE_H
#define HX_EVENTS_ENGINE_H

#include "base/memory/list.h"
#include "core/event/endpoint.h"
#include "core/event/sequence.h"
#include "events/sender.h"
#include "store/store.h"

typedef struct hx_engine hx_engine;

typedef struct {
    unsigned attempts_max; /* under way at a time, by recipients that respond */
    hx_ms retention;       /* of events and of deliveries that have ended */
    hx_ms dead_retention;  /* of dead letters */
    hx_ms disable_after;   /* an endpoint whose attempts have all failed for so long is disabled; 0: never */
    hx_ms pause_max;       /* deliveries of an endpoint that was disabled for so long are dead */
    uint32_t payload_bytes_max;
    const hx_stream_rule *streams; /* how long their events are kept; outlive the engine */
    size_t stream_count;
    uint32_t response_bytes_max; /* of a response, that are kept with the attempt */
} hx_engine_settings;

/* Gauges, and counters since the start; observe/metrics.def says what each is. */
typedef struct {
#define EVENTS(name, ...) uint64_t name;
#include "observe/metrics.def"
} hx_engine_counts;

typedef struct {
    hx_loop *loop;
    hx_store *store; /* keeps items, and the loop is attached to it */
    hx_sender endpoints;
    hx_sender applications; /* of the inbox: their addresses are the operator's choice, and not guarded */
    hx_engine_settings settings;
    const hx_endpoint *configured; /* endpoints of the configuration, with ids and secrets; they outlive the engine */
    size_t configured_count;
} hx_engine_needs;

hx_engine *hx_engine_new(const hx_engine_needs *needs);
/* Reads the endpoints and begins to deliver. */
void hx_engine_start(hx_engine *engine);
/* Begins no further attempt. Calls `stopped`, perhaps at once, when no attempt and no call is under way any more. */
void hx_engine_stop(hx_engine *engine, void (*stopped)(void *context), void *context);
void hx_engine_free(hx_engine **owned);
const hx_engine_counts *hx_engine_count(hx_engine *engine);
hx_ms hx_engine_now(const hx_engine *engine);
/* Whether it knows its endpoints, and isn't stopping: an event that is published earlier has no recipients. */
bool hx_engine_is_ready(const hx_engine *engine);
/* Whether nothing is attempted at the moment: an operator wants that, or the store is a copy of another. What is
 * published or received is stored all the same. Until the store was asked it is paused. */
bool hx_engine_is_paused(const hx_engine *engine);
/* A MAC under the store's secret, for another part that works beside the engine; owned by the caller. */
hx_mac *hx_engine_new_mac(const hx_engine *engine);

/* The engine's own: what waits until the endpoints have been read (recipients/nodes.c). */
typedef struct hx_nodes_wait {
    hx_link link;
    void (*done)(struct hx_nodes_wait *wait, bool is_read);
} hx_nodes_wait;

/* Publishing */

typedef enum {
    HX_PUBLISHED,          /* the events are durable */
    HX_PUBLISHED_BEFORE,   /* the very same events were published before; `events` are as they were then */
    HX_PUBLISH_CONFLICT,   /* an id, or the key, was used for something else: `detail` says which */
    HX_PUBLISH_VERSION,    /* a stream has another version than the one expected: `version`, `detail` */
    HX_PUBLISH_BUSY,       /* other processes publish to the stream too often: nothing was published */
    HX_PUBLISH_TOO_MANY,   /* recipients, or bytes: `detail` */
    HX_PUBLISH_FULL,       /* the store takes no new events at the moment */
    HX_PUBLISH_UNAVAILABLE /* it may have happened or not: publish again with the same key or ids */
} hx_publish_result;

typedef struct hx_publish {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    hx_event *events;        /* as hx_event_read filled them, with their tenants; get ids, times and recipients */
    size_t count;            /* 1 to HX_PUBLISH_MAX */
    hx_slice principal, key; /* of the request; an empty key: it has none */
    hx_slice only;           /* the endpoint that gets them, whatever it subscribes to; empty: those that do */
    void (*done)(struct hx_publish *publish);
    /* given back */
    hx_publish_result result;
    hx_slice detail;
    uint64_t version;
    /* the engine's own */
    hx_engine *engine;
    hx_store_call call;
    hx_item *items;
    size_t item_count;
    hx_slice key_item; /* key of the item that remembers the request; empty: none */
    hx_digest fingerprint;
    hx_nodes_wait wait;
    unsigned tries, reads;
    struct hx_gate **gates; /* of its streams, while it has its turn */
    size_t gate_count;
    hx_link turn;
    void (*go)(struct hx_publish *publish);
} hx_publish;

#define HX_PUBLISH_MAX 1000u

void hx_engine_publish(hx_engine *engine, hx_publish *publish);

/* Streams: events/streams/reading.h reads them. `woken` is called when this process has published to the stream, until
 * hx_engine_unwatch. */
typedef struct hx_stream_watch {
    void (*woken)(struct hx_stream_watch *watch);
    struct hx_gate *gate;
    hx_link link;
} hx_stream_watch;

void hx_engine_watch(hx_engine *engine, hx_slice tenant, hx_slice stream, hx_stream_watch *watch);
void hx_engine_unwatch(hx_engine *engine, hx_stream_watch *watch);

/* Endpoints */

typedef enum {
    HX_CHANGE_DONE,
    HX_CHANGE_ABSENT,     /* there is no such endpoint, event or delivery */
    HX_CHANGE_REFUSED,    /* its state, or what was given, doesn't allow that: `detail` */
    HX_CHANGE_CONFIGURED, /* only the configuration can change it */
    HX_CHANGE_FULL,       /* the store is full */
    HX_CHANGE_UNAVAILABLE /* it may have happened or not */
} hx_change_result;

typedef enum {
    HX_ENDPOINT_CREATE,  /* `endpoint` has all but id and time */
    HX_ENDPOINT_REPLACE, /* by `given` */
    HX_ENDPOINT_ENABLE,
    HX_ENDPOINT_DISABLE, /* with `reason` */
    HX_ENDPOINT_ROTATE,  /* to `secret`; the others sign along until `retire_at` */
    HX_ENDPOINT_DELETE,
    HX_ENDPOINT_NOTE,        /* the engine's own: failing_since */
    HX_ENDPOINT_CONFIGURE,   /* the engine's own: as `endpoint` of the configuration */
    HX_ENDPOINT_UNCONFIGURE, /* the engine's own: it isn't in the configuration any more */
} hx_endpoint_act;

typedef struct hx_endpoint_change {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    hx_endpoint_act act;
    hx_slice tenant, id;  /* of any act but CREATE */
    hx_endpoint endpoint; /* CREATE */
    hx_slice given;       /* REPLACE: the members to change, as hx_endpoint_read takes them */
    hx_slice reason, secret;
    hx_ms retire_at;
    hx_ms failing_since;
    void (*done)(struct hx_endpoint_change *change);
    /* given back: the endpoint as it is now, in `endpoint` */
    hx_change_result result;
    const char *detail;
    hx_error_text wrong;
    /* the engine's own */
    hx_engine *engine;
    hx_store_call call;
    hx_item items[4]; /* the endpoint's, the generation of all, and an event about it */
    bool has_generation;
    hx_nodes_wait wait;
    unsigned tries;
} hx_endpoint_change;

void hx_engine_change_endpoint(hx_engine *engine, hx_endpoint_change *change);
/* The endpoint as it is in memory; NULL: there is none. Valid until the loop's next turn. */
const hx_endpoint *hx_engine_endpoint(const hx_engine *engine, hx_slice tenant, hx_slice id);

/* Pausing all deliveries */

/* The item of HX_ITEM_HOME. */
typedef struct {
    hx_slice home; /* where the store was when this was written */
    bool paused;
    hx_slice reason, by;
    hx_ms since;
} hx_home;

typedef struct hx_pause_change {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    bool paused;
    hx_slice reason, by;
    void (*done)(struct hx_pause_change *change);
    /* given back */
    hx_change_result result;
    hx_home home; /* as it is now */
    /* the engine's own */
    hx_engine *engine;
    hx_store_call call;
    hx_item item;
    unsigned tries;
} hx_pause_change;

extern const hx_json_shape hx_home_shape;
/* On a shared store the other nodes follow within 5 seconds. */
void hx_engine_change_pause(hx_engine *engine, hx_pause_change *change);
/* The reason and so on, as this node knows it; valid until the loop's next turn. */
const hx_home *hx_engine_home(const hx_engine *engine);

/* Deliveries */

typedef enum { HX_DELIVERY_ACT_REARM, HX_DELIVERY_ACT_CANCEL, HX_DELIVERY_ACT_SKIP } hx_delivery_act;

typedef struct hx_delivery_change {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    hx_delivery_act act;
    hx_slice key; /* of the delivery's item */
    hx_slice reason;
    void (*done)(struct hx_delivery_change *change);
    /* given back */
    hx_change_result result;
    const char *detail;
    hx_delivery delivery; /* as it is now */
    /* the engine's own */
    hx_engine *engine;
    hx_store_call call;
    hx_item item;
    unsigned tries;
} hx_delivery_change;

void hx_engine_change_delivery(hx_engine *engine, hx_delivery_change *change);

#endif
