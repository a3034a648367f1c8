/* SPDX-License-Identifier: Apache-2.0 */
#include "world.h"

#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool world_leases;
world *the_world;
model the_model;

uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = a * UINT64_C(0x9e3779b97f4a7c15) + b + UINT64_C(0x632be59bd9b4e019);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

hx_ms world_now(void)
{
    return atomic_load(&the_world->now);
}

_Noreturn void world_wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(the_world->trouble, sizeof the_world->trouble, format, args);
    va_end(args);
    _exit(1);
}

static void happen(truth *t, const change *c, uint64_t epoch)
{
    switch (c->verb) {
    case HX_STORE_CLAIM:
        *t = (truth){.state = HX_PROCESSING,
                     .epoch = epoch,
                     .claim_serial = c->serial,
                     .created_at = c->at,
                     .lease_until = c->lease_until};
        break;
    case HX_STORE_SETTLE:
        t->state = c->state;
        t->outcome_serial = c->serial;
        t->body_len = c->body_len;
        t->expires_at = c->expires_at;
        t->tombstone_until = c->tombstone_until;
        break;
    case HX_STORE_RENEW: t->lease_until = c->lease_until; break;
    case HX_STORE_FORGET: t->state = HX_ABSENT; break;
    default: HX_CHECK(false);
    }
    t->asked = false;
}

truth truth_after(const truth *t, uint64_t epoch)
{
    truth after = *t;
    happen(&after, &t->wanted, epoch);
    return after;
}

static void apply(const entry *e)
{
    truth *t = &the_model.op[e->op];
    bool claims = t->asked && t->wanted.verb == HX_STORE_CLAIM;
    switch (e->kind) {
    case ENTRY_BATCH: the_model.batch = e->number; break;
    case ENTRY_TIME: atomic_store(&the_world->now, (int64_t)e->number); break;
    case ENTRY_ASKED:
        t->asked = true;
        t->wanted = e->change;
        the_model.serial = e->change.serial;
        break;
    case ENTRY_ANSWERED:
    case ENTRY_RESOLVED:
        t->asked = false;
        if (e->result != HX_STORE_OK) break;
        happen(t, &t->wanted, e->number);
        if (claims && e->number > the_model.epoch_max) the_model.epoch_max = e->number;
        if (!world_leases && e->kind == ENTRY_RESOLVED && t->state == HX_PROCESSING) t->state = HX_UNKNOWN;
        break;
    case ENTRY_ITEMS_ASKED:
        the_model.items.asked = true;
        the_model.items.wanted = e->items;
        break;
    case ENTRY_ITEMS_ENDED:
        the_model.items.asked = false;
        if (e->result == HX_STORE_OK) items_happen(&the_model.items, e->number);
        break;
    case ENTRY_OPENED:
        for (unsigned i = 0; i < OPS && !world_leases; i++)
            if (the_model.op[i].state == HX_PROCESSING) the_model.op[i].state = HX_UNKNOWN;
        break;
    }
}

/* The count is what publishes an entry: a kill leaves it whole or not there. */
void world_note(const entry *e)
{
    uint32_t at = atomic_load(&the_world->entries);
    HX_CHECK(at < ENTRIES_MAX);
    the_world->entry[at] = *e;
    atomic_store(&the_world->entries, at + 1);
    apply(e);
}

void world_recall(void)
{
    the_model = (model){0};
    uint32_t count = atomic_load(&the_world->entries);
    for (uint32_t i = 0; i < count; i++) apply(&the_world->entry[i]);
}

hx_state truth_state(const truth *t, hx_ms now)
{
    if (t->state != HX_COMPLETED && t->state != HX_FAILED) return t->state;
    if (!hx_store_lapsed(t->expires_at, now)) return t->state;
    return hx_store_lapsed(t->tombstone_until, now) ? HX_ABSENT : HX_EXPIRED;
}

hx_op op_of(uint32_t op)
{
    hx_op name;
    uint64_t half[2] = {mix(op, 1), mix(op, 2)};
    memcpy(name.bytes, half, sizeof half);
    return name;
}

static hx_digest digest_of(uint32_t serial, uint64_t tag)
{
    hx_digest d;
    for (unsigned i = 0; i < 4; i++) {
        uint64_t word = mix(serial, tag * 16 + i);
        memcpy(d.bytes + i * sizeof word, &word, sizeof word);
    }
    return d;
}

/* Noise, zeros (which look like space nobody has written), or text, as the serial says. */
static hx_slice body_of(uint32_t serial, uint32_t len, hx_arena *arena)
{
    char *body = hx_arena_alloc(arena, len + 8);
    uint64_t kind = mix(serial, 99) % 4;
    if (kind == 0) {
        memset(body, 0, len);
    } else if (kind == 1) {
        memset(body, 'a' + (int)(serial % 26), len);
    } else {
        for (uint32_t i = 0; i < len; i += 8) {
            uint64_t word = mix(serial, 1000 + i);
            memcpy(body + i, &word, sizeof word);
        }
    }
    return (hx_slice){body, len};
}

void record_of(uint32_t op, const truth *t, hx_state state, hx_arena *arena, hx_record *out)
{
    uint32_t claim = t->claim_serial;
    *out = (hx_record){.op = op_of(op),
                       .epoch = t->epoch,
                       .state = state,
                       .created_at = t->created_at,
                       .changed_at = world_now(),
                       .lease_until = state == HX_PROCESSING ? t->lease_until : 0,
                       .fingerprint = digest_of(claim, 1),
                       .principal = digest_of(claim, 2),
                       .proof = digest_of(claim, 3),
                       .key = digest_of(claim, 4),
                       .rule_version = claim,
                       .attempt = 1,
                       .route = hx_arena_printf(arena, "route-%u", claim % 7),
                       .correlation = hx_arena_printf(arena, "correlation-%u", claim)};
    for (unsigned i = 0; i < HX_PART_COUNT; i++) out->parts[i] = mix(claim, 200 + i);
    if (state != HX_COMPLETED && state != HX_FAILED) return;
    uint32_t serial = t->outcome_serial;
    out->expires_at = t->expires_at;
    out->tombstone_until = t->tombstone_until;
    out->result = hx_arena_printf(arena, "result-%u", serial);
    out->answer = (hx_answer){.status = state == HX_COMPLETED ? 201 : 422,
                              .retained = serial % 11 != 0,
                              .headers = HX_EMPTY,
                              .body = HX_EMPTY};
    if (!out->answer.retained) return;
    out->answer.headers = hx_arena_printf(arena, "Content-Type: text/plain\r\nX-Serial: %u\r\n", serial);
    out->answer.body = body_of(serial, t->body_len, arena);
}

const char *record_differs(uint32_t op, const truth *t, hx_state state, const hx_record *found)
{
    if (found->state != state) return "the state";
    if (state == HX_ABSENT) return NULL;
    hx_op name = op_of(op);
    if (!hx_op_eq(&found->op, &name)) return "the operation";
    if (found->epoch != t->epoch) return "the epoch";
    if (state == HX_EXPIRED) return NULL; /* the bare key is all that a tombstone keeps */
    hx_arena arena = {0};
    hx_record want;
    record_of(op, t, state, &arena, &want);
    const char *what = NULL;
    if (found->created_at != want.created_at) what = "created_at";
    if (found->expires_at != want.expires_at) what = "expires_at";
    if (found->tombstone_until != want.tombstone_until) what = "tombstone_until";
    if (memcmp(&found->fingerprint, &want.fingerprint, sizeof want.fingerprint) != 0) what = "the fingerprint";
    if (memcmp(found->parts, want.parts, sizeof want.parts) != 0) what = "the parts";
    if (memcmp(&found->principal, &want.principal, sizeof want.principal) != 0) what = "the principal";
    if (memcmp(&found->proof, &want.proof, sizeof want.proof) != 0) what = "the proof";
    if (memcmp(&found->key, &want.key, sizeof want.key) != 0) what = "the key";
    if (found->rule_version != want.rule_version) what = "the rule's version";
    if (!hx_slice_eq(found->route, want.route)) what = "the route";
    if (!hx_slice_eq(found->correlation, want.correlation)) what = "the correlation";
    if (!hx_slice_eq(found->result, want.result)) what = "the result";
    if (found->answer.status != want.answer.status) what = "the status";
    if (want.answer.status && found->answer.retained != want.answer.retained) what = "whether it is retained";
    if (!hx_slice_eq(found->answer.headers, want.answer.headers)) what = "the headers";
    if (!hx_slice_eq(found->answer.body, want.answer.body)) what = "the body";
    hx_arena_free(&arena);
    return what;
}
