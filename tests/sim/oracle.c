/* SPDX-License-Identifier: Apache-2.0 */
/* The promises of contract §1, checked by someone who sees the clients, the store and the application at once. */
#include "gateway/request.h"
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
static const char by_class[] = "attempts are made as the route's class has them";
static const char as_written[] = "an answer means what the contract says";
static const char is_finished[] = "what was sent is finished";
static const char is_renewed[] = "a lease is renewed while its exchange lives";
static const char own_lifetime[] = "an outcome lives as long as its route says";
static const char patience_counts[] = "a client's own time-out ends its waiting";
static const char says_what[] = "an answer says what it is";
static const char new_epoch[] = "where the application leaves a mark, what may have happened is sent under a new epoch";
static const char marks_decide[] = "where the application leaves a mark, only that is success";
static const char one_of_hours[] = "what began just before an hour's end is the same operation just after it";
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

/* Attempts are numbered, bounded by the route, and never early. */
static void check_attempt(sim_op *op, const sim_request *request, const hx_exchange *exchange)
{
    sim_life *life = request->life;
    const hx_retry_policy *retry = &sim_policy(op)->retry;
    bool is_new = life->attempt.epoch != request->epoch;
    if (request->attempt == 0 || (!is_new && request->attempt <= life->attempt.number))
        sim_fail(by_class, "attempt %u of %s follows attempt %u", request->attempt, sim_op_name(op),
                 life->attempt.number);
    if (!is_new && world.boot < life->attempt.not_before)
        sim_fail(by_class, "%s is sent again %lld ms before Retry-After said", sim_op_name(op),
                 (long long)(life->attempt.not_before - world.boot));
    unsigned of_epoch = is_new ? 1 : life->attempt.of_epoch + 1;
    if (of_epoch > retry->attempts)
        sim_fail(by_class, "%s is sent for the %u. time; its class has %u", sim_op_name(op), of_epoch, retry->attempts);
    /* Whoever took over can't know how far the one before came. */
    hx_state last = is_new ? HX_ABSENT : life->attempt.means;
    bool after_silence = life->attempt.after_silence || request->epoch != life->first_epoch || last == HX_UNKNOWN ||
                         last == HX_PROCESSING;
    bool after_failure = life->attempt.after_failure || last == HX_FAILED || last == HX_COMPLETED;
    if (sim_is_marked(op) && (last == HX_UNKNOWN || last == HX_PROCESSING))
        sim_fail(new_epoch, "%s is sent again under epoch %llu", sim_op_name(op), (unsigned long long)request->epoch);
    if (sim_is_marked(op)) after_silence = after_failure = false; /* nothing of an older epoch can still happen */
    if (is_new) life->attempt.first_at = world.boot;
    /* How many retries the upstream's budget has paid for in the last seconds. */
    world.app.lately = world.boot - world.app.lately_since > 3 * HX_SECOND ? 0 : world.app.lately + !is_new;
    world.app.lately_since = world.boot;
    life->attempt.client = sim_client_around(exchange);
    life->attempt.epoch = request->epoch;
    life->attempt.number = request->attempt;
    life->attempt.of_epoch = of_epoch;
    life->attempt.not_before = 0;
    life->attempt.means = HX_PROCESSING;
    life->attempt.is_kept = false;
    life->attempt.after_silence = after_silence;
    life->attempt.after_failure = after_failure;
}

/* One that is under way, unknown or young in another hour is this one, as long as the later of the two began soon after
 * its hour did. */
static void check_hours(const sim_op *op)
{
    hx_ms overlap = sim_policy(op)->key.overlap;
    for (unsigned hour = 0; hour < SIM_KEYS_MAX; hour++) {
        const sim_op *other = sim_op_at(op->route, op->principal, hour);
        const sim_life *life = other->life;
        if (other == op || !life || !life->dispatched || sim_op_state(other) == HX_ABSENT) continue;
        hx_ms at = op->key > hour ? sim_now() : life->began_at + world.clock_offset;
        hx_ms began = SIM_HOUR + ((hx_ms)(op->key > hour ? op->key : hour) - 1) * HX_HOUR;
        bool is_open = other->state == HX_PROCESSING || other->state == HX_UNKNOWN;
        if (at - began < overlap && (is_open || sim_now() - life->created_at < overlap))
            sim_fail(one_of_hours, "%s is sent, and %s is %s", sim_op_name(op), sim_op_name(other),
                     hx_state_name(other->state));
    }
}

void sim_oracle_dispatch(const sim_request *request, const hx_exchange *exchange)
{
    if (sim_is_hourly(request->op)) check_hours(request->op);
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
    if (request->epoch >= life->attempt.epoch) check_attempt(op, request, exchange);
    if (life->dispatched) return;
    life->dispatched = true;
    life->proof = request->proof;
    life->payload = request->payload;
}

static hx_state of_word(const char *word, unsigned status)
{
    if (!word) return HX_PROCESSING;
    if (strcmp(word, "store") == 0) return status < 400 ? HX_COMPLETED : HX_FAILED;
    if (strcmp(word, "unknown") == 0) return HX_UNKNOWN;
    return strcmp(word, "release") == 0 && status >= 300 ? HX_ABSENT : HX_PROCESSING;
}

/* Contract §5, as it is written there. */
static hx_state meaning_of(const sim_op *op, const sim_reply *reply)
{
    unsigned status = reply->status;
    bool is_atomic = op->route == SIM_ROUTE_ATOMIC;
    hx_state said = of_word(reply->word, status);
    if (said != HX_PROCESSING) return said;
    if (op->route == SIM_ROUTE_NONE && status == 501) return HX_ABSENT; /* the route's own rule */
    if (status / 100 == 2 || (status >= 301 && status <= 303)) return HX_COMPLETED;
    if (status / 100 == 3 || status == 401 || status == 403) return HX_ABSENT;
    if (status == 408 || status == 421 || status == 425 || status == 429) return HX_ABSENT;
    if (status == 503) return reply->retry_after || is_atomic ? HX_ABSENT : HX_UNKNOWN;
    if (status == 502 || status == 504) return HX_UNKNOWN;
    return status == 500 && is_atomic ? HX_ABSENT : HX_FAILED;
}

typedef struct {
    sim_op *op;
    uint64_t epoch;
    unsigned crashes;
} late_answer;

static void look_whether_taken(void *subject)
{
    const late_answer *late = subject;
    bool excused = world.crashes != late->crashes || world.store.has_failed;
    if (late->op->state == HX_UNKNOWN && late->op->epoch == late->epoch && !excused)
        sim_fail("a late answer is taken", "%s is still unknown, though its answer has come", sim_op_name(late->op));
}

/* It says what became of an operation that was already called unknown. */
static void expect_harvest(sim_op *op)
{
    late_answer *late = hx_arena_alloc(&world.arena, sizeof *late);
    *late = (late_answer){.op = op, .epoch = op->epoch, .crashes = world.crashes};
    sim_after(2 * HX_SECOND, look_whether_taken, late);
}

void sim_oracle_attempt(const sim_request *request, const sim_reply *reply, bool any_byte_sent)
{
    sim_life *life = request->life;
    if (life->attempt.epoch != request->epoch || life->attempt.number != request->attempt) return;
    hx_state means = reply ? meaning_of(request->op, reply) : any_byte_sent ? HX_UNKNOWN : HX_ABSENT;
    bool is_told = reply && of_word(reply->word, reply->status) != HX_PROCESSING;
    /* That this one did nothing, or found it done, says nothing of those before it. */
    bool speaks_of_earlier = reply && (reply->status == 409 || reply->status == 412 || reply->status == 423);
    if (life->attempt.after_silence && !is_told && (means == HX_ABSENT || speaks_of_earlier)) means = HX_UNKNOWN;
    /* What can be probed is settled by what the probe finds. */
    if (reply && request->op->route == SIM_ROUTE_PROBE && (reply->status == 409 || reply->status == 412))
        means = HX_PROCESSING;
    bool is_late = reply && request->op->state == HX_UNKNOWN && request->op->epoch == request->epoch;
    bool says_all = means != HX_UNKNOWN && means != HX_PROCESSING && !life->attempt.after_failure;
    bool is_marks = sim_is_marked(request->op) && means == HX_COMPLETED;
    if (is_late && says_all && !is_marks) expect_harvest(request->op);
    life->attempt.means = means;
    life->attempt.is_kept = reply && !reply->is_stream && reply->body.len <= sim_policy(request->op)->answer_bytes_max;
    bool is_transient = reply &&
                        (reply->status == 408 || reply->status == 421 || reply->status == 425 || reply->status == 429);
    bool is_overruled = reply && of_word(reply->word, reply->status) != HX_PROCESSING;
    life->attempt.may_repeat = (is_transient && !is_overruled) || (!reply && !any_byte_sent);
    if (reply && reply->retry_after) {
        uint64_t seconds = 0;
        (void)!hx_slice_to_u64(sim_line(reply->lines, "Retry-After"), &seconds);
        life->attempt.not_before = world.boot + (hx_ms)seconds * HX_SECOND;
    }
}

void sim_oracle_probed(const sim_request *request, const sim_reply *reply)
{
    sim_life *life = request->op->life;
    bool is_told = reply->status == 200 && hx_slice_starts_nocase(reply->body, HX_LIT("{\"data\":"));
    if (life && life->effect && is_told) life->found_in = world.events + 1;
}

/* Whoever gives up has tried as often as the class allows, unless something else is in the way. */
static void check_effort(const sim_op *op, const sim_life *life, const hx_request *r)
{
    const hx_retry_policy *retry = &sim_policy(op)->retry;
    if (r && r->attempts != life->attempt.of_epoch) return; /* the others were made under another epoch */
    bool may_try = life->attempt.may_repeat && life->attempt.of_epoch < retry->attempts &&
                   world.boot - life->attempt.first_at < retry->total / 2 && life->attempt.not_before == 0;
    bool has_room = op->state == HX_PROCESSING && world.app.lately < 2 && !world.store.has_failed && r &&
                    !r->worker->draining && r->request_timeout.span == HX_TIMEOUT_NONE;
    /* Retries that are reserved and not yet sent take room, too. */
    if (may_try && has_room && hx_retry_budget_left(&r->worker->budgets[sim_policy(op)->upstream], sim_now()) > 0)
        sim_fail(by_class, "%s is given up after %u of %u attempts", sim_op_name(op), life->attempt.of_epoch,
                 retry->attempts);
}

void sim_oracle_settle(const sim_op *op, const hx_record *record, const hx_request *r)
{
    const sim_life *life = sim_life_of(op, record->epoch);
    bool ends = record->state == HX_COMPLETED || record->state == HX_FAILED;
    const hx_policy *policy = sim_policy(op);
    hx_ms tombstone = policy->tombstone > 0 ? record->expires_at + policy->tombstone : 0;
    if (ends && (record->expires_at != record->changed_at + policy->lifetime || record->tombstone_until != tombstone))
        sim_fail(own_lifetime, "%s does not live as long as its route says", sim_op_name(op));
    if (ends && (record->state == HX_COMPLETED) != (record->answer.status < 400))
        sim_fail(as_written, "%s is %s with %u", sim_op_name(op), hx_state_name(record->state), record->answer.status);
    if (life->found_in == world.events + 1 && record->state != HX_COMPLETED)
        sim_fail(as_written, "a probe found %s, which becomes %s", sim_op_name(op), hx_state_name(record->state));
    if (sim_is_marked(op) && record->state == HX_COMPLETED)
        sim_fail(marks_decide, "%s is completed by a node", sim_op_name(op));
    if (record->changed_at != sim_now()) return; /* tried once more: what has come since is not in it */
    if (ends && life->attempt.is_kept && !record->answer.retained && life->attempt.epoch == record->epoch)
        sim_fail(as_written, "the answer of %s is not kept, though it could be", sim_op_name(op));
    bool is_told = life->attempt.epoch == record->epoch && life->attempt.means != HX_PROCESSING;
    if (!is_told || life->attempt.after_failure || op->route == SIM_ROUTE_PROBE) return;
    check_effort(op, life, r);
    /* A server error of what may be sent again is an answer only when nothing more is tried. */
    if (sim_may_repeat(op) && life->attempt.means == HX_FAILED && record->state == HX_UNKNOWN) return;
    hx_state means = life->attempt.means;
    if (sim_is_marked(op) && means == HX_COMPLETED) means = HX_UNKNOWN; /* it has no mark, or this is refused */
    if (means != record->state)
        sim_fail(as_written, "%s must become %s by how its attempt ended, and becomes %s", sim_op_name(op),
                 hx_state_name(means), hx_state_name(record->state));
}

void sim_oracle_cancel(const sim_request *request, hx_ms began_at)
{
    const hx_policy *policy = sim_policy(request->op);
    hx_ms waited = world.boot - began_at, least = policy->upstream_timeout;
    /* What may be sent again is not waited for any longer; a store that fails may have ended it, too. */
    if (!sim_may_repeat(request->op) && !world.store.has_failed) least += policy->grace;
    if (waited + 100 < least)
        sim_fail(is_finished, "the exchange for %s is called off %lld ms after it began, not %lld",
                 sim_op_name(request->op), (long long)waited, (long long)least);
}

void sim_oracle_lapse(const sim_op *op)
{
    if (!world.store.has_failed && sim_server_holds(op))
        sim_fail(is_renewed, "the lease of %s lapses while a node is at work on it", sim_op_name(op));
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
    if (sim_app_is_working(op, life) && !sim_is_marked(op))
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
    unsigned job, route, principal, proof, key, payload;
    if (!number_in(told->body, "job", &job)) return false;
    bool whole = number_in(told->body, "route", &route) && number_in(told->body, "principal", &principal) &&
                 number_in(told->body, "proof", &proof) && number_in(told->body, "key", &key) &&
                 number_in(told->body, "payload", &payload);
    const sim_op *op = whole && sim_is_hourly(told->op) ? sim_op_at(route, principal, key) : told->op;
    if (!whole || principal != told->op->principal || route != op->route || principal != op->principal ||
        key != op->key || payload != told->payload || proof != told->proof)
        sim_fail(own_answer, "a request for %s (proof %u, payload %u) was answered with %.*s", sim_op_name(op),
                 told->proof, told->payload, HX_FMT(told->body));
    /* What a probe found comes without one. */
    bool is_first = op->route != SIM_ROUTE_PROBE && !sim_is_marked(op) &&
                    hx_slice_eq(sim_line(told->lines, "Idempotency-Status"), HX_LIT("stored"));
    if (is_first && sim_app_gave_cookie(op, job) && sim_line(told->lines, "Set-Cookie").len == 0)
        sim_fail(same_answer, "the first client of %s does not get its cookie", sim_op_name(op));
    if (!sim_app_said(op, job, told->body))
        sim_fail(same_answer, "the application never said %.*s", HX_FMT(told->body));
    return true;
}

static bool has_code(const sim_told *told, const char *code)
{
    return hx_slice_starts(sim_line(told->lines, "Error-Code"), hx_slice_of(code));
}

/* A first answer: a replay of it follows, or, where it was too large or endless to keep, an error. */
static bool is_stored(hx_slice as)
{
    return hx_slice_eq(as, HX_LIT("stored")) || hx_slice_eq(as, HX_LIT("not-retained"));
}

/* An error of ours that speaks of an outcome: it has no Idempotency-Status, as it is nothing that was stored. */
static bool refuses_settled(const sim_told *told)
{
    return has_code(told, "CONFLICT.idempotency.response_not_retained") ||
           has_code(told, "CONFLICT.idempotency.duplicate_rejected");
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

/* Whoever is told of success where marks tell is told of something that has happened. */
static void check_marked(const sim_told *told)
{
    bool is_error = sim_line(told->lines, "Error-Code").len > 0;
    if (!sim_is_marked(told->op) || told->status >= 400 || is_error) return;
    for (const sim_life *life = told->op->life; life; life = life->earlier)
        if (life->has_outcome && life->gone_at >= told->asked_at && (life->effects == 1 || life->adopted)) return;
    sim_fail(marks_decide, "%s is answered with %u, and has not happened", sim_op_name(told->op), told->status);
}

static void check_released(const sim_told *told)
{
    bool is_anothers = false;
    for (const sim_life *life = told->op->life; life; life = life->earlier) {
        bool is_it = life->released && life->gone_at >= told->asked_at && life->status == told->status &&
                     (!life->retained || life->body_hash == sim_hash(told->body));
        if (!is_it) continue;
        bool is_personal = told->status == 401 || told->status == 403;
        if (is_personal && life->attempt.client != told->client) { /* unless an earlier one was its own */
            is_anothers = true;
            continue;
        }
        return;
    }
    /* It was given back meanwhile, by whoever took it over: it is free, whatever each was told. */
    if (sim_is_marked(told->op) && told->op->last_stale_at >= told->asked_at) return;
    if (is_anothers)
        sim_fail(own_answer, "%s: %u speaks of another request's credential", sim_op_name(told->op), told->status);
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
    /* Its mark may have outlived its lifetime before the store said that it was there. */
    bool is_over = sim_op_state(op) == HX_ABSENT || sim_op_state(op) == HX_EXPIRED;
    was = was || (sim_is_marked(op) && is_over && op->changed_at >= told->asked_at);
    if (!was) sim_fail(durable_first, "%s is called unknown, but is %s", sim_op_name(op), hx_state_name(op->state));
}

/* The header lines that go with each kind of answer. */
static void check_lines(const sim_told *told, hx_slice as)
{
    bool is_error = sim_line(told->lines, "Error-Code").len > 0;
    bool wants_time = has_code(told, "CONFLICT.idempotency.in_flight") ||
                      has_code(told, "CONFLICT.idempotency.outcome_unknown") || told->status == 503;
    if (is_error && wants_time && sim_line(told->lines, "Retry-After").len == 0)
        sim_fail(says_what, "%s: %u without Retry-After", sim_op_name(told->op), told->status);
    bool is_kept = is_stored(as) || hx_slice_eq(as, HX_LIT("replayed"));
    if (is_kept && is_error) sim_fail(says_what, "%s: an error of ours says %.*s", sim_op_name(told->op), HX_FMT(as));
    if (!is_kept || sim_policy(told->op)->on_duplicate == HX_DUPLICATE_NOOP) return;
    bool is_replay = hx_slice_eq(as, HX_LIT("replayed"));
    if (is_replay != (sim_line(told->lines, "Idempotent-Replayed").len > 0))
        sim_fail(says_what, "%s: Idempotent-Replayed is missing, or not true", sim_op_name(told->op));
    for (const sim_life *life = told->op->life; life; life = life->earlier) {
        char text[HX_RFC3339_BYTES];
        if (hx_slice_eq(hx_rfc3339(life->expires_at, text), sim_line(told->lines, "Idempotency-Expires"))) return;
    }
    sim_fail(says_what, "%s: Idempotency-Expires is not when it expires", sim_op_name(told->op));
}

static void check_patience(const sim_told *told)
{
    if (told->patience == 0 || world.store.has_failed) return;
    hx_ms waited = world.boot - told->asked_at;
    if (waited > told->patience + 6 * HX_SECOND)
        sim_fail(patience_counts, "client %u had %lld ms for %s and was answered after %lld", told->client,
                 (long long)told->patience, sim_op_name(told->op), (long long)waited);
}

/* By the route's `on_duplicate`, which is for completed operations only. */
static bool is_right_replay(const sim_told *told, hx_slice as, hx_state state)
{
    hx_on_duplicate on_duplicate = state == HX_COMPLETED ? sim_policy(told->op)->on_duplicate : HX_DUPLICATE_REPLAY;
    if (!hx_slice_eq(as, HX_LIT("replayed")) && !refuses_settled(told)) return false;
    switch (on_duplicate) {
    case HX_DUPLICATE_REJECT: return has_code(told, "CONFLICT.idempotency.duplicate_rejected");
    case HX_DUPLICATE_NOOP: return told->status == 200 && hx_slice_eq(told->body, HX_LIT("{}"));
    default: break;
    }
    if (!told->op->life->retained) return has_code(told, "CONFLICT.idempotency.response_not_retained");
    return sim_line(told->lines, "Error-Code").len == 0 && matches(told->op->life, told);
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
        bool right = own_proof && same_payload ? is_right_replay(told, as, state)
                     : own_proof               ? has_code(told, "CONFLICT.idempotency.payload_mismatch")
                                               : has_code(told, "AUTH.replay_not_authorized");
        if (!right)
            sim_fail(not_forgotten, "%s is %s, but was answered with %u %.*s %.*s", sim_op_name(op),
                     hx_state_name(state), told->status, HX_FMT(as), HX_FMT(sim_line(told->lines, "Error-Code")));
    } else if (state == HX_EXPIRED) {
        if (!has_code(told, "CONFLICT.idempotency.expired"))
            sim_fail(not_forgotten, "%s has expired, but was answered with %u", sim_op_name(op), told->status);
    } else if (state == HX_PROCESSING) {
        bool right = has_code(told, "CONFLICT.idempotency.in_flight") || has_code(told, "AUTH.replay_not_authorized") ||
                     has_code(told, "CONFLICT.idempotency.payload_mismatch");
        if (!right)
            sim_fail(durable_first, "%s is under way, but was answered with %u %.*s", sim_op_name(op), told->status,
                     HX_FMT(sim_line(told->lines, "Error-Code")));
    } else if (state == HX_UNKNOWN && (!sim_may_repeat(op) || op->is_held) && op->route != SIM_ROUTE_PROBE) {
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
    unsigned hour;
    if (sim_is_hourly(told->op)) { /* of whichever hour */
        sim_told of_hour = *told;
        if (!is_its || !number_in(told->body, "key", &hour)) return;
        of_hour.op = sim_op_at(told->op->route, told->op->principal, hour);
        bool is_kept = hx_slice_starts(sim_line(told->lines, "Idempotency-Status"), HX_LIT("stored")) ||
                       hx_slice_starts(sim_line(told->lines, "Idempotency-Status"), HX_LIT("replayed"));
        if (is_kept) check_settled(&of_hour);
        return;
    }
    hx_slice as = sim_line(told->lines, "Idempotency-Status");
    bool is_settled = is_stored(as) || hx_slice_eq(as, HX_LIT("replayed")) || refuses_settled(told);
    if (is_settled) check_marked(told);
    if (is_settled)
        check_settled(told);
    else if (hx_slice_eq(as, HX_LIT("released")))
        check_released(told);
    else if (hx_slice_eq(as, HX_LIT("unknown")))
        check_unknown(told);
    else if (is_its)
        sim_fail(durable_first, "%s is answered with %u by the application, and nothing was recorded",
                 sim_op_name(told->op), told->status);
    check_expected(told);
    check_lines(told, as);
    check_patience(told);
}
