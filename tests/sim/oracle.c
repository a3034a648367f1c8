/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of contract §1, checked by someone who sees the clients, the store and the application at once. */
#include "world.h"

#include <stdio.h>
#include <string.h>

static const char at_most_once[] = "at most one effect, unless the route declares repeating safe";
static const char claim_first[] = "nothing leaves for the application before its claim is durable";
static const char durable_first[] = "no client sees what is not durable";
static const char same_answer[] = "all answers for an operation are the same";
static const char own_answer[] = "nobody sees another's answer";
static const char not_forgotten[] = "nothing acknowledged is forgotten";
static const char stays_unknown[] = "unknown is never folded into anything else";
static const char release_is_proof[] = "only what provably did not happen is freed";

hx_slice sim_line(hx_slice lines, const char *name)
{
    hx_slice wanted = hx_slice_of(name), line;
    while (hx_slice_next(&lines, '\n', &line)) {
        if (line.len <= wanted.len || line.ptr[wanted.len] != ':' || !hx_slice_starts_nocase(line, wanted)) continue;
        if (line.ptr[line.len - 1] == '\r') line.len--;
        return hx_slice_trim(hx_slice_from(line, wanted.len + 1));
    }
    return HX_EMPTY;
}

uint64_t sim_lines_hash(hx_slice lines)
{
    static const char *const varying[] = {
        "Set-Cookie",          "Age",  "Idempotency-Status",    "Retry-After",         "Error-Code",
        "Idempotent-Replayed", "Date", "Original-Request-Time", "Idempotency-Expires", "X-Correlation-Id"};
    uint64_t hash = 0;
    hx_slice line;
    while (hx_slice_next(&lines, '\n', &line)) {
        bool counts = line.len > 1;
        for (size_t i = 0; counts && i < sizeof varying / sizeof varying[0]; i++)
            counts = !hx_slice_starts_nocase(line, hx_slice_of(varying[i]));
        if (counts) hash = hash * 31 + sim_hash(line);
    }
    return hash;
}

void sim_oracle_dispatch(const sim_request *request)
{
    sim_op *op = request->op;
    sim_life *life = request->life;
    if (!life || request->epoch > op->epoch)
        sim_fail(claim_first, "%s is sent with epoch %llu, and the store has %llu", sim_op_name(op),
                 (unsigned long long)request->epoch, (unsigned long long)op->epoch);
    if (!sim_may_repeat(op)) {
        if (request->epoch != op->epoch || (op->state != HX_PROCESSING && op->state != HX_UNKNOWN))
            sim_fail(claim_first, "%s is sent with epoch %llu, but the operation is %s with epoch %llu",
                     sim_op_name(op), (unsigned long long)request->epoch, hx_state_name(op->state),
                     (unsigned long long)op->epoch);
        if (life->effects > 0) sim_fail(at_most_once, "%s is sent again, though it has happened", sim_op_name(op));
        if (sim_app_is_working(op, life))
            sim_fail(at_most_once, "%s is sent again, though the application is at work on it", sim_op_name(op));
    }
    if (life->dispatched) return;
    life->dispatched = true;
    life->proof = request->proof;
    life->payload = request->payload;
}

void sim_oracle_effect(sim_op *op, sim_life *life)
{
    if (++life->effects > 1) sim_fail(at_most_once, "%s has happened %u times", sim_op_name(op), life->effects);
}

void sim_oracle_release(sim_op *op, sim_life *life, hx_state from)
{
    if (life->effects > 0)
        sim_fail(release_is_proof, "%s was %s and is freed, though it has happened", sim_op_name(op),
                 hx_state_name(from));
    if (sim_app_is_working(op, life))
        sim_fail(release_is_proof, "%s was %s and is freed while the application is at work on it", sim_op_name(op),
                 hx_state_name(from));
}

static bool number_in(hx_slice body, const char *name, unsigned *out)
{
    char wanted[32];
    int len = snprintf(wanted, sizeof wanted, "\"%s\":", name);
    for (size_t i = 0; i + (size_t)len < body.len; i++) {
        if (memcmp(body.ptr + i, wanted, (size_t)len) != 0) continue;
        hx_slice rest = hx_slice_trim(hx_slice_from(body, i + (size_t)len));
        size_t digits = 0;
        while (digits < rest.len && rest.ptr[digits] >= '0' && rest.ptr[digits] <= '9') digits++;
        uint64_t number;
        if (!hx_slice_to_u64(hx_slice_first(rest, digits), &number)) return false;
        *out = (unsigned)number;
        return true;
    }
    return false;
}

/* The application writes into each answer whose it is. True when this is one of its own. */
static bool check_owner(const sim_told *told)
{
    unsigned route, principal, proof, key, payload;
    bool is_its = number_in(told->body, "job", &route);
    if (!is_its) return false;
    bool whole = number_in(told->body, "route", &route) && number_in(told->body, "principal", &principal) &&
                 number_in(told->body, "proof", &proof) && number_in(told->body, "key", &key) &&
                 number_in(told->body, "payload", &payload);
    const sim_op *op = told->op;
    if (!whole || route != op->route || principal != op->principal || key != op->key || payload != told->payload ||
        proof != told->proof)
        sim_fail(own_answer, "a request for %s (proof %u, payload %u) was answered with %.*s", sim_op_name(op),
                 told->proof, told->payload, HX_FMT(told->body));
    return true;
}

static bool has_code(const sim_told *told, const char *code)
{
    return hx_slice_starts(sim_line(told->lines, "Error-Code"), hx_slice_of(code));
}

static bool matches(const sim_life *life, const sim_told *told)
{
    if (life->status != told->status) return false;
    if (!life->retained) return true;
    if (told->has_body && life->body_hash != sim_hash(told->body)) return false;
    return life->lines_hash == sim_lines_hash(told->lines) || has_code(told, "");
}

static void check_settled(const sim_told *told)
{
    bool is_replay = hx_slice_eq(sim_line(told->lines, "Idempotency-Status"), HX_LIT("replayed"));
    if (is_replay && sim_line(told->lines, "Set-Cookie").len > 0)
        sim_fail(own_answer, "the cookie of the first client of %s is given to another", sim_op_name(told->op));
    bool is_error = sim_line(told->lines, "Error-Code").len > 0;
    bool any = false;
    for (const sim_life *life = told->op->life; life; life = life->earlier) {
        if (!life->has_outcome || life->gone_at < told->asked_at) continue;
        any = true;
        if (is_replay && sim_policy(told->op)->on_duplicate == HX_DUPLICATE_NOOP && told->status == 200) return;
        if (is_error) {
            if (has_code(told, "CONFLICT.idempotency.response_not_retained") && life->retained) continue;
            return;
        }
        if (matches(life, told)) return;
    }
    if (!any)
        sim_fail(durable_first, "%s is answered with %u as %.*s, but the store has no such outcome",
                 sim_op_name(told->op), told->status, HX_FMT(sim_line(told->lines, "Idempotency-Status")));
    sim_fail(same_answer, "%s is answered with %u \"%.*s\", which is not what the store has", sim_op_name(told->op),
             told->status, HX_FMT(told->body));
}

static void check_released(const sim_told *told)
{
    for (const sim_life *life = told->op->life; life; life = life->earlier) {
        if (!life->released || life->gone_at < told->asked_at) continue;
        if (life->status == told->status && life->body_hash == sim_hash(told->body)) return;
        if (life->status == told->status && !life->retained) return;
    }
    sim_fail(durable_first, "%s is answered with %u as released, but was not released with that", sim_op_name(told->op),
             told->status);
}

static void check_unknown(const sim_told *told)
{
    const sim_op *op = told->op;
    /* One whose outcome came too late may be told no more than that. */
    bool was = op->state == HX_UNKNOWN || op->last_unknown_at >= told->asked_at || op->last_stale_at >= told->asked_at;
    /* Of what can't be recorded nobody knows whether it was: the store will tell, or the lease will end it. */
    bool not_recorded = told->status == 503 && has_code(told, "DEPENDENCY.unavailable");
    was = was || (not_recorded && (op->state == HX_PROCESSING || op->changed_at >= told->asked_at));
    if (!was) sim_fail(durable_first, "%s is called unknown, but is %s", sim_op_name(op), hx_state_name(op->state));
}

/* When nothing changed from the question to the answer, there is one right answer. */
static void check_expected(const sim_told *told)
{
    const sim_op *op = told->op;
    const sim_life *life = op->life;
    if (op->changed_at >= told->asked_at || !life) return;
    bool is_known = life->dispatched; /* who asked first, and for what */
    bool excused = !world.calm && (has_code(told, "DEPENDENCY.") || has_code(told, "TRANSIENT."));
    if (excused) return;
    hx_slice as = sim_line(told->lines, "Idempotency-Status");
    hx_state state = sim_op_state(op);
    bool own_proof = !is_known || life->proof == told->proof;
    bool same_payload = !is_known || life->payload == told->payload;
    if (!is_known && (has_code(told, "AUTH.replay_not_authorized") || has_code(told, "CONFLICT.idempotency.payload_")))
        return;
    if (state == HX_COMPLETED || state == HX_FAILED) {
        bool right = own_proof && same_payload ? hx_slice_eq(as, HX_LIT("replayed"))
                     : own_proof               ? has_code(told, "CONFLICT.idempotency.payload_mismatch")
                                               : has_code(told, "AUTH.replay_not_authorized");
        if (!right)
            sim_fail(not_forgotten, "%s is %s, but was answered with %u %.*s %.*s", sim_op_name(op),
                     hx_state_name(state), told->status, HX_FMT(as), HX_FMT(sim_line(told->lines, "Error-Code")));
    } else if (state == HX_UNKNOWN && !sim_may_repeat(op) && op->route != SIM_ROUTE_PROBE) {
        bool right = has_code(told, "CONFLICT.idempotency.outcome_unknown") ||
                     (!own_proof && has_code(told, "AUTH.replay_not_authorized")) ||
                     (!same_payload && has_code(told, "CONFLICT.idempotency.payload_mismatch"));
        if (!right)
            sim_fail(stays_unknown, "%s is unknown, but was answered with %u %.*s", sim_op_name(op), told->status,
                     HX_FMT(sim_line(told->lines, "Error-Code")));
    }
}

void sim_oracle_told(const sim_told *told)
{
    sim_model_check(told->op);
    bool is_its = told->has_body && check_owner(told);
    hx_slice as = sim_line(told->lines, "Idempotency-Status");
    if (hx_slice_eq(as, HX_LIT("stored")) || hx_slice_eq(as, HX_LIT("replayed")))
        check_settled(told);
    else if (hx_slice_eq(as, HX_LIT("released")))
        check_released(told);
    else if (hx_slice_eq(as, HX_LIT("unknown")))
        check_unknown(told);
    else if (is_its)
        sim_fail(durable_first, "%s is answered with %u by the application, and nothing was recorded",
                 sim_op_name(told->op), told->status);
    check_expected(told);
}
