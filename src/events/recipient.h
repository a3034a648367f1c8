/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine's files share. A recipient is an endpoint as the engine sees it: with its deliveries that are due,
 * and with how it has been doing.
 *
 *     IDLE ──[hx_recipient_nudge, timer]──► LOOKING ──[look_done]──► HAS_WORK ──► (attempts) ──► LOOKING …
 *                                              └── nothing is due: IDLE until the first of its deliveries is
 *
 * Fairness: attempts are limited by class, so that recipients which never answer can't take the places of those that
 * do.
 *
 *     PROVEN    its last attempt succeeded                half of the places
 *     NEW       it was never tried, or has been failing   a sixteenth, and one attempt at a time
 *               for a few seconds only
 *     LATE      as NEW, and has waited for a place for    a sixteenth, and one attempt at a time
 *               more than a second
 *     FAILING   its attempts have been failing, or one    a quarter, and one attempt at a time
 *               was under way for more than a second
 *
 * Within a class, recipients take turns. However many that never answer wait for their first attempt, they are LATE
 * soon, and who comes after them finds a place among the NEW. One that becomes FAILING takes its attempts along, beyond
 * the places of that class: recipients that never answer get there at the rate of a sixteenth a second, or an eighth
 * while others are added all the time, so with the usual time-out all attempts together are fewer than four times
 * attempts_max. */
#ifndef HX_EVENTS_RECIPIENT_H
#define HX_EVENTS_RECIPIENT_H

#include "base/memory/map.h"
#include "core/event/source.h"
#include "events/engine.h"

#define HX_RECIPIENT_PAGE 64u
#define HX_OWN_EVENT_ITEMS 2u

typedef enum {
    HX_RECIPIENT_PROVEN,
    HX_RECIPIENT_NEW,
    HX_RECIPIENT_LATE,
    HX_RECIPIENT_FAILING,
    HX_RECIPIENT_CLASSES
} hx_recipient_class;
typedef enum { HX_RECIPIENT_IDLE, HX_RECIPIENT_LOOKING, HX_RECIPIENT_HAS_WORK } hx_recipient_state;

/* The recipients of one tenant, while it has any. */
typedef struct {
    hx_link recipients;
    size_t count;
    size_t name_len;
    char name[];
} hx_recipient_tenant;

typedef struct hx_recipient {
    hx_engine *engine;
    hx_recipient_tenant *tenant;
    hx_link of_tenant; /* in its list */
    hx_slice name;     /* "TENANT/ID" */
    hx_arena arena;
    hx_endpoint endpoint;
    uint64_t version;        /* of the endpoint's item */
    unsigned read;           /* the number of the last read of all endpoints that had it */
    const hx_source *source; /* the application behind a source of the inbox; NULL: an endpoint */
    hx_recipient_class class;
    hx_recipient_state state;
    bool look_again;      /* something new came while it was looking */
    bool is_listed;       /* `link` is in the engine's list of its class */
    hx_ms listed_at;      /* since then */
    hx_link link;         /* in the list of recipients with work, by class */
    hx_link active;       /* in the list of recipients with attempts */
    unsigned attempts;    /* under way */
    unsigned unleased;    /* of those: not leased yet, so the store still has them as due */
    hx_ms oldest;         /* start of the oldest attempt, about */
    hx_ms not_before;     /* Retry-After, or its rate */
    bool failing_changed; /* endpoint.failing_since is not in the store yet */
    bool is_elsewhere;    /* it is in the configuration of another node only, which has its secrets */
    bool is_gone;         /* it has answered with 410: to be disabled */
    hx_timer timer;
    struct {
        hx_arena arena;
        hx_store_call call;
        hx_item_page page;
        size_t at;       /* the next item of the page */
        uint64_t *marks; /* ordered: of each item, the version of its stream's mark */
        hx_item *marked; /* ordered: the deliveries that marks name */
        size_t marked_count;
        hx_slice last;   /* ordered: the queue that the page ends with, where there may be more */
        bool from_start; /* ordered: all streams were looked at */
        hx_ms next_due;  /* of what isn't due yet; 0: nothing */
    } look;
} hx_recipient;

struct hx_engine {
    hx_engine_needs needs;
    hx_mac *mac;
    hx_map *recipients; /* by name */
    hx_map *tenants;    /* hx_recipient_tenant by name */
    hx_map *events;     /* that attempts share (attempt.c), by key */
    hx_link listed[HX_RECIPIENT_CLASSES];
    hx_link active;
    unsigned places[HX_RECIPIENT_CLASSES]; /* taken */
    unsigned attempts;
    unsigned calls; /* of the engine that are under way, attempts among them */
    uint64_t place; /* the last one that a delivery of an ordered endpoint got */
    hx_task pump;
    bool pumping;
    bool started, stopping;
    void (*stopped)(void *context);
    void *stopped_context;
    hx_timer watch; /* looks for attempts that take long */
    struct {
        hx_timer timer;
        hx_arena arena;
        hx_store_call call;
        hx_item_page page;
        hx_item item;
        uint64_t generation; /* version of the item that changes with every endpoint, as of the last read */
        unsigned reads;      /* of all endpoints */
        hx_ms read_at;
        size_t cursor; /* in the recipients */
        bool is_busy;
        hx_link waiting; /* hx_nodes_wait */
    } nodes;
    struct {
        hx_timer timer;
        hx_arena arena;
        hx_store_call call;
        hx_item_page page;
        size_t at;
        bool is_busy;
        bool all; /* at the start of a store that nobody else uses: no lease from before `began_at` has a holder */
        hx_ms began_at;
        hx_item items[1 + HX_OWN_EVENT_ITEMS];
    } leases;
    struct {
        hx_timer timer;
        hx_arena arena;
        hx_store_call call;
        hx_item_page page;
        bool is_busy, again;
        size_t at;
    } fan_out;
    struct {
        hx_timer timer;
        hx_arena arena;
        hx_store_call call;
        hx_item_page page;
        size_t at;
        hx_item items[1 + HX_OWN_EVENT_ITEMS];
        hx_endpoint_change change;
        size_t cursor;    /* in the recipients */
        hx_recipient *of; /* NULL: nothing is under way */
        bool may_remove;  /* `of` was deleted, and no attempt of any node is under way */
    } housekeeping;
    struct {
        hx_map *by_key; /* events/streams/gate.h */
        hx_link idle;
        size_t idle_count;
    } gates;
    struct hx_redriver *redriver; /* NULL: not started */
    struct {
        hx_timer timer;
        hx_arena arena, home_arena;
        hx_store_call call;
        hx_item item;
        hx_home home; /* in home_arena */
        bool is_known;
    } pause;
    struct {
        hx_timer timer;
        hx_arena arena;
        hx_endpoint_change change;
        size_t at; /* the next endpoint of the configuration */
    } configured;
    struct {
        hx_timer timer;
        hx_arena arena;
        hx_store_call call;
        hx_store_page page;
        size_t at;
        hx_item items[HX_OWN_EVENT_ITEMS];
        uint64_t count;       /* of unknown operations, at the last look */
        hx_ms from, began_at; /* what has changed since is looked at; when the last look began */
    } unknowns;
    struct {
        hx_timer timer;
        hx_arena arena;
        hx_store_call call;
        hx_item_page page;
        size_t at;
        hx_publish publish;
    } outbox;
    hx_engine_counts counts;
    _Atomic uint64_t refused; /* requests to the inbox, on any thread */
};

/* engine.c */
void hx_engine_begin_call(hx_engine *engine, hx_store_call *call, hx_arena *arena, void (*done)(hx_store_call *call));
void hx_engine_end_call(hx_engine *engine); /* `engine` may be over afterwards */
/* Begins attempts soon, as far as there are places. */
void hx_engine_pump(hx_engine *engine);
/* The endpoints were read for the first time. */
void hx_engine_begin_deliveries(hx_engine *engine);

/* recipient.c */
hx_recipient *hx_recipient_find(const hx_engine *engine, hx_slice tenant, hx_slice id);
/* Makes or changes the recipient of an endpoint, whose item has this version. */
hx_recipient *hx_recipient_put(hx_engine *engine, const hx_endpoint *endpoint, uint64_t version);
void hx_recipient_remove(hx_recipient **owned);
/* It may have a delivery that is due at this time. */
void hx_recipient_nudge(hx_recipient *recipient, hx_ms due);
void hx_recipient_classify(hx_recipient *recipient, hx_recipient_class class);
/* The lease of an attempt is durable, or was refused. */
void hx_recipient_leased(hx_recipient *recipient);
/* A response has come; its result is not durable yet. */
void hx_recipient_told(hx_recipient *recipient, const hx_attempt_result *result);
/* An attempt has ended. */
void hx_recipient_tried(hx_recipient *recipient, const hx_attempt_result *result);
/* The next delivery to begin an attempt with; NULL: there is none at the moment. */
const hx_item *hx_recipient_take(hx_recipient *recipient);
void hx_recipient_list(hx_recipient *recipient); /* among those with work, if it has some and may begin an attempt */
unsigned hx_recipient_places(const hx_engine *engine, hx_recipient_class class);

/* A look has ended: the first `due` items of its page are due. */
void hx_recipient_looked(hx_recipient *recipient, size_t due);

/* attempt.c */
void hx_attempt_begin(hx_recipient *recipient, const hx_item *item);

/* recipients/ordered.c: endpoints that get the events of a stream one at a time. */
uint64_t hx_ordered_place(hx_engine *engine, hx_ms now);
/* Looks for the first delivery of each stream; hx_recipient_looked follows. */
void hx_ordered_look(hx_recipient *recipient);
bool hx_ordered_is_mark(const hx_item *item);
/* Adds the mark of the delivery's stream to a commit that begins it, or ends it: PUT, REMOVE. Returns how many items
 * that are, none where there is no order. */
size_t hx_ordered_add(const hx_delivery *delivery, hx_slice key, uint64_t version, hx_item_act act, hx_item *out,
                      hx_arena *arena);

/* recipients/nodes.c: the endpoints as all nodes on the store have them. */
void hx_nodes_start(hx_engine *engine);
void hx_nodes_stop(hx_engine *engine);
/* Adds the generation of the endpoints to a commit: CHECK for one that was decided on them, PUT for one that changes
 * them. Returns how many items that are, none where no other node uses the store. */
size_t hx_nodes_add(const hx_engine *engine, hx_item_act act, hx_item *out);
/* Whether a commit has failed because endpoints were changed elsewhere. */
bool hx_nodes_went_ahead(const hx_store_call *commit);
/* Calls `done` when the endpoints were read again, with false when they could not be. `wait` lives until then. */
void hx_nodes_read_again(hx_engine *engine, hx_nodes_wait *wait, void (*done)(hx_nodes_wait *wait, bool is_read));

/* recipients/own_events.c: add to a commit that ends a delivery, or disables an endpoint, the event that tells of it.
 * They return how many of HX_OWN_EVENT_ITEMS items that are; hx_fan_out_nudge follows the commit. */
size_t hx_own_event_of_delivery(hx_engine *engine, const hx_delivery *delivery, hx_slice key, hx_item *out,
                                hx_arena *arena);
size_t hx_own_event_of_endpoint(hx_engine *engine, const hx_endpoint *endpoint, hx_item *out, hx_arena *arena);
size_t hx_own_event_of_operation(hx_engine *engine, const hx_record *record, hx_item *out, hx_arena *arena);
/* Whether an endpoint wants to be told of unknown operations. */
bool hx_own_event_is_named(const hx_engine *engine);

/* recipients/unknown_operations.c */
void hx_unknowns_start(hx_engine *engine);
void hx_unknowns_stop(hx_engine *engine);

/* recipients/configured.c: makes the endpoints in the store those of the configuration. */
void hx_configured_start(hx_engine *engine);
void hx_configured_stop(hx_engine *engine);
/* The endpoint of the configuration with this tenant and id; NULL: there is none. */
const hx_endpoint *hx_configured_find(const hx_engine *engine, const hx_endpoint *like);

/* leases.c, fan_out.c, housekeeping.c */
/* local_outbox.c */
void hx_local_outbox_start(hx_engine *engine);
void hx_local_outbox_stop(hx_engine *engine);
/* leases.c */
void hx_leases_start(hx_engine *engine);
void hx_leases_stop(hx_engine *engine);
void hx_fan_out_start(hx_engine *engine);
void hx_fan_out_nudge(hx_engine *engine, hx_ms due);
void hx_fan_out_stop(hx_engine *engine);
void hx_housekeeping_start(hx_engine *engine);
void hx_housekeeping_stop(hx_engine *engine);

/* pause.c */
void hx_pause_start(hx_engine *engine);
void hx_pause_stop(hx_engine *engine);

/* jobs/steps.c */
typedef struct hx_redriver hx_redriver;
void hx_redriver_start(hx_engine *engine);
void hx_redriver_stop(hx_engine *engine);
void hx_redriver_free(hx_engine *engine);
/* There may be a job that is due. */
void hx_redriver_nudge(hx_engine *engine);

/* deliveries.c: the item of a delivery, with its texts in the arena. */
hx_item hx_outbox_item(const hx_engine *engine, hx_slice key, uint64_t version, const hx_delivery *delivery,
                       hx_arena *arena);
/* A new delivery that is due at once. */
hx_delivery hx_outbox_delivery(hx_slice event_key, hx_slice tenant, hx_slice endpoint, hx_ms now);
/* Cancels a pending delivery to an endpoint that is gone. On a store that others share an endpoint which is not known
 * here may be a new one of theirs: then it does nothing. */
void hx_outbox_end_orphan(const hx_engine *engine, hx_delivery *delivery, hx_ms now);
/* `recipient` may be NULL: it is gone. */
hx_delivery_rules hx_outbox_rules(const hx_recipient *recipient);
/* The header lines with which the application gets an event that was received. */
hx_slice hx_outbox_received_lines(hx_engine *engine, const hx_event *event, const hx_delivery *delivery,
                                  hx_arena *arena);
/* Logs a change of a delivery that no attempt made. */
void hx_outbox_log(const hx_delivery *delivery, hx_delivery_state from);

#endif
