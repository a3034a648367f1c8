/* SPDX-License-Identifier: Apache-2.0 */
/* What the outside knows of a store: which changes were asked for and which were acknowledged, in an append-only log
 * in memory that outlasts the process that is killed. Everything else (the truth of each operation, the largest epoch)
 * follows from that log, so a kill in the middle of the bookkeeping loses nothing. */
#ifndef HX_TESTS_CRASH_WORLD_H
#define HX_TESTS_CRASH_WORLD_H

#include "items.h"

#include <stdatomic.h>

#define OPS 160u
#define ENTRIES_MAX 65536u
#define BODY_MAX (20u * 1024u)
#define TROUBLE_BYTES 1024u

/* A change that was asked for. */
typedef struct {
    hx_store_verb verb;
    hx_state state;  /* settle: what it becomes */
    uint64_t epoch;  /* settle, renew, forget; claim: the unknown epoch to take over */
    uint32_t serial; /* tells this change from every other; what it writes follows from it */
    uint32_t body_len;
    hx_ms at;
    hx_ms expires_at;
    hx_ms tombstone_until;
    hx_ms lease_until;
} change;

typedef enum {
    ENTRY_BATCH,       /* number: which one begins */
    ENTRY_TIME,        /* number: the clock from now on */
    ENTRY_ASKED,       /* op, change */
    ENTRY_ANSWERED,    /* op, result, number: the epoch of a claim */
    ENTRY_OPENED,      /* what was processing is now unknown */
    ENTRY_ITEMS_ASKED, /* items */
    ENTRY_ITEMS_ENDED, /* result: OK if the commit has happened; number: its version */
    ENTRY_RESOLVED,    /* op, result: OK if the unanswered change has happened; number: the epoch found */
} entry_kind;

typedef struct {
    entry_kind kind;
    uint32_t op;
    hx_store_result result;
    uint64_t number;
    change change;
    item_change items;
} entry;

/* In shared memory. */
typedef struct {
    _Atomic uint32_t entries;
    _Atomic int64_t now;
    _Atomic uint32_t claims_refused; /* for lack of space */
    _Atomic uint32_t claims_after;   /* claims that succeeded once there was space again */
    char trouble[TROUBLE_BYTES];     /* the first thing that was wrong */
    entry entry[ENTRIES_MAX];
} world;

/* What must be found in the store. */
typedef struct {
    hx_state state;
    uint64_t epoch;
    uint32_t claim_serial;
    uint32_t outcome_serial; /* completed and failed */
    uint32_t body_len;
    hx_ms created_at;
    hx_ms expires_at;
    hx_ms tombstone_until;
    hx_ms lease_until;
    bool asked; /* a change was asked for and not answered */
    change wanted;
} truth;

typedef struct {
    truth op[OPS];
    item_model items;
    uint64_t epoch_max; /* of all that were acknowledged or seen */
    uint64_t batch;
    uint32_t serial;
} model;

extern bool world_leases; /* of SQLite: a start takes nothing for over, what is in processing ends by its lease */
extern world *the_world;
extern model the_model;

/* Writes an entry down and lets it change the model. */
void world_note(const entry *e);
/* Builds the model again from the log. */
void world_recall(void);
hx_ms world_now(void);
/* Says what is wrong, for the parent process, and ends this one. */
_Noreturn void world_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What the operation looks like at `now`: expired ones are absent, or a tombstone. */
hx_state truth_state(const truth *t, hx_ms now);
/* The truth if the change that was asked for has happened, a claim under `epoch`. */
truth truth_after(const truth *t, uint64_t epoch);

hx_op op_of(uint32_t op);
/* The record that a change writes. Its bytes live in `arena`. */
void record_of(uint32_t op, const truth *t, hx_state state, hx_arena *arena, hx_record *out);
/* NULL if `found` is what `t` says it must be in `state`, else the name of what differs. */
const char *record_differs(uint32_t op, const truth *t, hx_state state, const hx_record *found);

uint64_t mix(uint64_t a, uint64_t b);

#endif
