/* SPDX-License-Identifier: Apache-2.0 */
/* A gate is a stream as this process knows it: its item as it was last seen, the publish whose turn it is, and who
 * wants to know of new events. Publishes to one stream take turns here instead of colliding in the store; one that
 * another process was faster than reads the stream's item and tries again.
 *
 *     free ──[hx_gates_take]──► held by one publish ──[hx_gates_release]──► the next that waits, or free
 *
 * A publish to several streams takes all of them at once, or waits for one that is held, holding none. */
#ifndef HX_EVENTS_STREAMS_GATE_H
#define HX_EVENTS_STREAMS_GATE_H

#include "core/event/sequence.h"
#include "events/engine.h"

typedef struct hx_gate {
    hx_slice key;       /* of the stream's item; behind the struct */
    hx_sequence head;   /* the stream as it was last seen, while is_known */
    hx_sequence next;   /* as the commit under way would make it */
    uint64_t version;   /* of its item */
    bool is_known;      /* another process may have changed it meanwhile, which a commit finds out */
    hx_publish *holder; /* NULL: it is free */
    hx_link waiting;    /* publishes, by `turn` */
    hx_link watches;    /* hx_stream_watch */
    hx_link idle;       /* in the list of gates that nobody needs, oldest first */
} hx_gate;

/* The gate of an event's stream, which is made if there is none. */
hx_gate *hx_gate_of(hx_engine *engine, hx_slice tenant, hx_slice stream);
/* Takes the gates of all streams of the publish; `go` is called when it has them, perhaps at once. */
void hx_gates_take(hx_publish *publish, void (*go)(hx_publish *publish));
/* Lets others have their turn; inside this call their `go` may be called. */
void hx_gates_release(hx_publish *publish);
/* An event of a stream whose expected version is not the one that is known; NULL: they all fit. */
const hx_event *hx_gates_misfit(const hx_publish *publish);
/* The items of the streams, to be read, or as the commit leaves them; returns how many. */
size_t hx_gates_items(const hx_publish *publish, hx_item *items, bool with_content);
/* The items were read. False: one is malformed. */
bool hx_gates_learn(hx_publish *publish, const hx_item *items) HX_MUST_USE;
/* The commit has succeeded, with this version. */
void hx_gates_advance(hx_publish *publish, uint64_t version);
/* It is not known whether the commit has succeeded. */
void hx_gates_forget(hx_publish *publish);
/* Nothing waits any more. */
void hx_gates_free(hx_engine *engine);

#endif
