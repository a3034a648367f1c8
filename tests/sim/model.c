/* SPDX-License-Identifier: Apache-2.0 */
/* What must stand in the store, by its contract (store.h, G1 to G9) alone. Every call that takes effect is played here
 * too, and its result and what a reader finds afterwards are compared. With it, the lives of operations: a life begins
 * with a claim that found nothing and ends when the operation is absent again. */
#include "world.h"

#include "base/check.h"
#include "core/operation/template.h"

#include <stdio.h>
#include <string.h>

#define STORE_PROMISE "the store keeps its contract"

static unsigned thing(const void *user, hx_slice name, hx_slice *value)
{
    (void)user;
    (void)name;
    *value = HX_LIT("thing");
    return 1;
}

/* The key of that hour, as text. */
static hx_slice hourly_key(unsigned hour)
{
    hx_template_input in = {.header = thing, .now = SIM_HOUR + ((hx_ms)hour - 1) * HX_HOUR};
    hx_template_result result;
    bool good = hx_template_key(world.routes[SIM_ROUTE_WINDOW].key.from, &in, world.mac, &world.arena, &result);
    HX_CHECK(good);
    hx_buf text;
    hx_buf_init(&text, &world.arena, 2 * sizeof result.key.bytes);
    hx_buf_put_hex(&text, result.key.bytes, sizeof result.key.bytes);
    return hx_buf_slice(&text);
}

static hx_op id_of(hx_slice name, unsigned principal, unsigned key, bool is_hourly)
{
    /* As core/identity reads the credentials in server.c. */
    static const struct {
        const char *bytes;
        size_t len;
    } principals[SIM_PRINCIPALS] = {{"basic\0ann", 9}, {"basic\0bob", 9}, {"whole\0Bearer token-of-cid-old", 29}};
    char text[64];
    int len = snprintf(text, sizeof text, "key-%u-of-the-simulation", key);
    hx_slice key_text = is_hourly ? hourly_key(key) : (hx_slice){text, (size_t)len};
    hx_mac_begin(world.mac, 'o');
    hx_mac_part(world.mac, name);
    hx_mac_part(world.mac, (hx_slice){principals[principal].bytes, principals[principal].len});
    hx_mac_part(world.mac, key_text);
    if (is_hourly) {
        hx_mac_part(world.mac, HX_LIT("both"));
        hx_mac_part(world.mac, HX_LIT("natural"));
    }
    hx_digest digest = hx_mac_end(world.mac);
    hx_op id;
    memcpy(id.bytes, digest.bytes, sizeof id.bytes);
    return id;
}

static sim_op *place_of(unsigned route, unsigned principal, unsigned key)
{
    return &world.ops[(route * SIM_PRINCIPALS + principal) * SIM_KEYS_MAX + key];
}

static void begin_to_use(unsigned route, unsigned principal, unsigned key)
{
    sim_op *op = place_of(route, principal, key);
    *op = (sim_op){.route = route,
                   .principal = principal,
                   .key = key,
                   .used = true,
                   .last_unknown_at = INT64_MIN,
                   .last_stale_at = INT64_MIN};
    hx_slice name = route == SIM_ROUTE_DEFAULT ? HX_LIT("POST /other") : world.routes_before[route].name;
    op->id = op->ids[0] = op->ids[1] = id_of(name, principal, key, route == SIM_ROUTE_WINDOW);
    if (route == SIM_ROUTE_RENAMED) op->ids[1] = id_of(HX_LIT("older"), principal, key, false);
}

sim_op *sim_op_at(unsigned route, unsigned principal, unsigned key)
{
    sim_op *op = place_of(route, principal, key);
    if (op->used) return op;
    if (route == SIM_ROUTE_WINDOW) { /* who looks for one looks for those of other hours, too */
        for (unsigned hour = 0; hour < SIM_KEYS_MAX; hour++) begin_to_use(route, principal, hour);
    } else {
        begin_to_use(route, principal, key);
    }
    return op;
}

sim_op *sim_op_of(const hx_op *id)
{
    for (size_t i = 0; i < SIM_OPS_MAX; i++)
        if (world.ops[i].used && (hx_op_eq(&world.ops[i].ids[0], id) || hx_op_eq(&world.ops[i].ids[1], id)))
            return &world.ops[i];
    sim_fail("an operation is named by its route, principal and key", "the store was asked for one that nobody uses");
}

unsigned sim_op_index(const sim_op *op)
{
    return (unsigned)(op - world.ops);
}

const char *sim_op_name(const sim_op *op)
{
    static char names[4][48];
    static unsigned next;
    static const char *const routes[SIM_ROUTES] = {"none",    "atomic", "idempotent",    "probe",
                                                   "renamed", "window", "transactional", "default"};
    char *name = names[next++ % 4];
    (void)snprintf(name, sizeof names[0], "%s/%c/key%u", routes[op->route], "abc"[op->principal], op -> key);
    return name;
}

static hx_state state_at(const sim_op *op, hx_ms now)
{
    if (op->state != HX_COMPLETED && op->state != HX_FAILED) return op->state;
    if (!hx_store_lapsed(op->expires_at, now)) return op->state;
    return op->tombstone_until == 0 || hx_store_lapsed(op->tombstone_until, now) ? HX_ABSENT : HX_EXPIRED;
}

hx_state sim_op_state(const sim_op *op)
{
    return state_at(op, sim_now());
}

sim_life *sim_life_of(const sim_op *op, uint64_t epoch)
{
    for (sim_life *life = op->life; life; life = life->earlier)
        if (epoch >= life->first_epoch) return life;
    return NULL;
}

/* Time alone may have ended its life since it was looked at. */
static void catch_up(sim_op *op)
{
    hx_ms now = sim_now();
    if (op->state == HX_UNKNOWN) op->last_unknown_at = world.boot;
    if ((op->state != HX_COMPLETED && op->state != HX_FAILED) || !hx_store_lapsed(op->expires_at, now)) return;
    if (op->life->gone_at == INT64_MAX) {
        op->life->gone_at = world.boot;
        op->changed_at = world.boot;
        sim_cover_change(SIM_CHANGE_EXPIRE, SIM_FATE_OK);
        SIM_TRACE("%s has expired", sim_op_name(op));
    }
    if (state_at(op, now) == HX_ABSENT && op->state != HX_ABSENT) {
        op->state = HX_ABSENT;
        op->changed_at = world.boot;
    }
}

static void expect(const hx_store_call *call, const sim_op *op, hx_store_result wanted)
{
    if (call->result == wanted) return;
    sim_fail(STORE_PROMISE, "a call (verb %d, epoch %llu) on %s, which was %s with epoch %llu, ended %d instead of %d",
             (int)call->verb, (unsigned long long)call->epoch, sim_op_name(op), hx_state_name(op->state),
             (unsigned long long)op->epoch, (int)call->result, (int)wanted);
}

static void begin_life(sim_op *op, uint64_t epoch)
{
    sim_life *life = hx_arena_zalloc(&world.arena, sizeof *life);
    *life = (sim_life){.earlier = op->life, .first_epoch = epoch, .began_at = world.boot, .gone_at = INT64_MAX};
    op->life = life;
}

/* It has one place at a time, whatever its route is called; what is new begins where everyone looks for it. */
static void check_place(sim_op *op, const hx_store_call *call)
{
    static const char promise[] = "an operation stands in one place";
    if (!hx_op_eq(&call->op, &op->id) && sim_op_state(op) != HX_ABSENT)
        sim_fail(promise, "%s is %s, and is claimed under another name of its route", sim_op_name(op),
                 hx_state_name(op->state));
    if (sim_op_state(op) != HX_ABSENT) return;
    if (!hx_op_eq(&call->op, &op->ids[world.is_renamed]))
        sim_fail(promise, "%s is begun under a name that its route does not begin with", sim_op_name(op));
    op->id = call->op;
}

static void claimed(sim_op *op, const hx_store_call *call, sim_fate fate)
{
    check_place(op, call);
    static const char promise[] = "unknown is never run again";
    const hx_record *record = call->record;
    bool takes_over = op->state == HX_UNKNOWN && call->epoch != 0 && call->epoch == op->epoch;
    if (sim_op_state(op) != HX_ABSENT && !takes_over) {
        expect(call, op, HX_STORE_EXISTS);
        sim_cover_change(SIM_CHANGE_CLAIM_EXISTS, fate);
        return;
    }
    if (call->epoch != 0 && !takes_over) { /* it was to be taken over, and is gone */
        expect(call, op, HX_STORE_STALE);
        sim_cover_change(SIM_CHANGE_STALE, fate);
        return;
    }
    expect(call, op, HX_STORE_OK);
    if (record->epoch <= op->epoch) sim_fail(STORE_PROMISE, "an epoch was used twice on %s", sim_op_name(op));
    if (takes_over && !sim_may_repeat(op))
        sim_fail(promise, "%s was unknown and is claimed anew, though its route declares nothing", sim_op_name(op));
    if (takes_over && op->is_held)
        sim_fail(promise, "%s was answered with success and has no mark, and is claimed anew", sim_op_name(op));
    if (record->lease_until <= sim_now() - 5 * HX_MINUTE || record->lease_until == 0)
        sim_fail(STORE_PROMISE, "%s was claimed without a lease", sim_op_name(op));
    if (!takes_over) {
        begin_life(op, record->epoch);
        op->life->created_at = record->created_at;
        /* Whoever meant to take over takes it for one that may have happened, though an operator freed it just then. */
        op->life->attempt.after_silence = call->epoch != 0;
    }
    sim_cover_change(takes_over ? SIM_CHANGE_TAKE_OVER : SIM_CHANGE_CLAIM, fate);
    op->state = HX_PROCESSING;
    op->is_held = false;
    op->epoch = record->epoch;
    op->lease_until = record->lease_until;
    op->expires_at = op->tombstone_until = 0;
    op->changed_at = world.boot;
}

static void keep_answer(sim_life *life, const hx_answer *answer)
{
    life->outcome_at = world.boot;
    life->status = answer->status;
    life->retained = answer->retained;
    life->lines_hash = sim_lines_hash(answer->headers);
    life->body_hash = sim_hash(answer->body);
}

static sim_change change_of(hx_state from, hx_state to)
{
    bool late = from == HX_UNKNOWN;
    switch (to) {
    case HX_COMPLETED: return late ? SIM_CHANGE_LATE_COMPLETE : SIM_CHANGE_COMPLETE;
    case HX_FAILED: return late ? SIM_CHANGE_LATE_FAIL : SIM_CHANGE_FAIL;
    case HX_ABSENT: return late ? SIM_CHANGE_LATE_RELEASE : SIM_CHANGE_RELEASE;
    default: return SIM_CHANGE_UNKNOWN;
    }
}

void sim_model_lost(const hx_store_call *call, sim_fate fate)
{
    switch (call->verb) {
    case HX_STORE_CLAIM: sim_cover_change(call->epoch != 0 ? SIM_CHANGE_TAKE_OVER : SIM_CHANGE_CLAIM, fate); break;
    case HX_STORE_SETTLE: sim_cover_change(change_of(sim_op_of(&call->op)->state, call->record->state), fate); break;
    case HX_STORE_RENEW: sim_cover_change(SIM_CHANGE_RENEW, fate); break;
    default: break;
    }
}

static void settled(sim_op *op, const hx_store_call *call, sim_fate fate)
{
    const hx_record *record = call->record;
    hx_state from = op->state, to = record->state;
    bool may = op->epoch == call->epoch && (from == HX_PROCESSING || (from == HX_UNKNOWN && to != HX_UNKNOWN));
    if (!may) {
        expect(call, op, HX_STORE_STALE);
        op->last_stale_at = world.boot;
        sim_cover_change(SIM_CHANGE_STALE, fate);
        return;
    }
    expect(call, op, HX_STORE_OK);
    sim_cover_change(change_of(from, to), fate);
    op->state = to;
    op->changed_at = world.boot;
    op->lease_until = 0;
    op->is_held = to == HX_UNKNOWN && record->answer.status != 0 && sim_is_marked(op);
    op->expires_at = record->expires_at;
    op->tombstone_until = record->tombstone_until;
    if (to == HX_COMPLETED || to == HX_FAILED) {
        op->life->has_outcome = true;
        op->life->expires_at = record->expires_at;
        keep_answer(op->life, &record->answer);
    } else if (to == HX_ABSENT) {
        op->life->released = true;
        op->life->gone_at = world.boot;
        keep_answer(op->life, &record->answer);
        sim_oracle_release(op, op->life, from);
    } else {
        op->last_unknown_at = world.boot;
    }
    SIM_TRACE("%s: %s -> %s, epoch %llu, status %u", sim_op_name(op), hx_state_name(from), hx_state_name(to),
              (unsigned long long)op->epoch, (unsigned)record->answer.status);
}

static void renewed(sim_op *op, const hx_store_call *call, sim_fate fate)
{
    if (op->state != HX_PROCESSING || op->epoch != call->epoch) {
        expect(call, op, HX_STORE_STALE);
        sim_cover_change(SIM_CHANGE_STALE, fate);
        return;
    }
    expect(call, op, HX_STORE_OK);
    if (call->lease_until < op->lease_until)
        sim_fail(STORE_PROMISE, "a renewal shortens the lease of %s", sim_op_name(op));
    op->lease_until = call->lease_until;
    sim_cover_change(SIM_CHANGE_RENEW, fate);
}

static void forgotten(sim_op *op, const hx_store_call *call)
{
    hx_state state = sim_op_state(op);
    if (state == HX_ABSENT || state == HX_PROCESSING || (call->epoch != 0 && call->epoch != op->epoch)) {
        expect(call, op, HX_STORE_STALE);
        return;
    }
    expect(call, op, HX_STORE_OK);
    op->state = HX_ABSENT;
    op->changed_at = world.boot;
    op->life->gone_at = world.boot;
    sim_cover_change(SIM_CHANGE_FORGET, SIM_FATE_OK);
}

static void swept(void)
{
    for (size_t i = 0; i < SIM_OPS_MAX; i++) {
        sim_op *op = &world.ops[i];
        if (!op->used || op->state != HX_PROCESSING || op->lease_until == 0 || sim_now() < op->lease_until) continue;
        sim_oracle_lapse(op);
        op->state = HX_UNKNOWN;
        op->changed_at = world.boot;
        op->last_unknown_at = world.boot;
        sim_cover_change(SIM_CHANGE_LAPSE, SIM_FATE_OK);
        SIM_TRACE("%s: the lease is over: unknown", sim_op_name(op));
    }
    sim_model_check_all();
    sim_store_check_watches(NULL);
}

void sim_model_effect(const hx_store_call *call, sim_fate fate)
{
    if (call->verb == HX_STORE_SWEEP) {
        swept();
        return;
    }
    sim_op *op = sim_op_of(&call->op);
    catch_up(op);
    switch (call->verb) {
    case HX_STORE_CLAIM: claimed(op, call, fate); break;
    case HX_STORE_SETTLE: settled(op, call, fate); break;
    case HX_STORE_RENEW: renewed(op, call, fate); break;
    case HX_STORE_FORGET: forgotten(op, call); break;
    default: break;
    }
    sim_model_check(op);
    sim_store_check_watches(op);
}

void sim_model_check(sim_op *op)
{
    hx_arena arena = {0};
    hx_record found;
    catch_up(op);
    hx_state wanted = sim_op_state(op);
    hx_peek peek = world.state->ops->peek(world.state, &op->id, &arena, 0, &found);
    hx_state stands = peek == HX_PEEK_FOUND ? found.state : HX_ABSENT;
    if (stands != wanted)
        sim_fail(STORE_PROMISE, "%s must be %s and is %s", sim_op_name(op), hx_state_name(wanted),
                 hx_state_name(stands));
    bool settled_now = wanted == HX_COMPLETED || wanted == HX_FAILED;
    if (stands != HX_ABSENT && stands != HX_EXPIRED && found.epoch != op->epoch)
        sim_fail(STORE_PROMISE, "%s must carry epoch %llu and carries %llu", sim_op_name(op),
                 (unsigned long long)op->epoch, (unsigned long long)found.epoch);
    if (settled_now && (found.answer.status != op->life->status || sim_hash(found.answer.body) != op->life->body_hash))
        sim_fail(STORE_PROMISE, "the stored answer of %s has changed", sim_op_name(op));
    hx_arena_free(&arena);
}

void sim_model_check_all(void)
{
    for (size_t i = 0; i < SIM_OPS_MAX; i++)
        if (world.ops[i].used) sim_model_check(&world.ops[i]);
}
