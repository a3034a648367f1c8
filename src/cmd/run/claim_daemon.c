/* SPDX-License-Identifier: Apache-2.0 */
/* The claim at a daemon, by its operations API. The claimant is drawn once, so that a claim whose response was lost is
 * repeated; the input is a hash of the command line; the result has the exit code and the record of the output. The
 * number of attempts is kept as a checkpoint. */
#include "base/check.h"
#include "base/hex.h"
#include "base/rand.h"
#include "cmd/cli/asking.h"
#include "cmd/run/claim.h"
#include "core/crypto/mac.h"
#include "core/json/json.h"
#include "core/json/json_fields.h"
#include "core/json/json_writer.h"
#include "core/token/base64.h"

#include <stdlib.h>
#include <string.h>

#define CALL_TIMEOUT (5 * HX_SECOND)
#define WAIT_FOR (5 * HX_SECOND) /* for another claimant, in one call */
#define BODY_BYTES 4096u         /* of a request, without its output */
#define ATTEMPTS "attempts"      /* the checkpoint */

typedef struct {
    hx_asking call;
    hx_timer timer; /* it takes too long */
    hx_loop *loop;
    bool is_over;
} asking;

typedef struct {
    hx_run_claim claim;
    hx_upstream *upstream;
    hx_slice token, claimant, input;
    asking renewal;
    hx_arena renewal_arena; /* freed with each, so that a command may run for weeks */
    hx_ms renewed_at;       /* when the renewal was asked for */
    unsigned attempts;
} at_daemon;

/* What the API answers; absent members are empty. */
typedef struct {
    unsigned status;
    hx_slice id, state, error_code, detail, fingerprint, given;
    hx_slice result, error, checkpoints;
    uint64_t epoch;
} answer;

/* Of `result` and `error`. */
typedef struct {
    uint64_t exit_code, attempt;
    hx_slice output;
} run_result;

#define MEMBER(type, member, kind) HX_JSON_FIELD(type, member, kind, HX_JSON_STORED)
static const hx_json_field answer_fields[] = {
    MEMBER(answer, id, TEXT),      MEMBER(answer, state, TEXT), MEMBER(answer, error_code, TEXT),
    MEMBER(answer, detail, TEXT),  MEMBER(answer, given, TEXT), MEMBER(answer, fingerprint, TEXT),
    MEMBER(answer, result, RAW),   MEMBER(answer, error, RAW),  MEMBER(answer, checkpoints, RAW),
    MEMBER(answer, epoch, NUMBER),
};
static const hx_json_shape answer_shape = HX_JSON_SHAPE(answer_fields);
static const hx_json_field result_fields[] = {MEMBER(run_result, exit_code, NUMBER),
                                              MEMBER(run_result, attempt, NUMBER), MEMBER(run_result, output, TEXT)};
static const hx_json_shape result_shape = HX_JSON_SHAPE(result_fields);

static at_daemon *of(hx_run_claim *c)
{
    return HX_OWNER(c, at_daemon, claim);
}

/* Asking */

static void took_too_long(hx_timer *timer)
{
    asking *a = HX_OWNER(timer, asking, timer);
    hx_exchange_cancel(&a->call.exchange);
}

static void start(at_daemon *d, asking *a, const char *verb, const hx_buf *body, hx_ms timeout)
{
    const hx_admin_request request = {.method = "POST",
                                      .target = hx_arena_printf(a->call.arena, "/v1/operations/%s", verb),
                                      .body = hx_buf_slice(body)};
    a->loop = d->claim.loop;
    a->call.token = d->token;
    hx_asking_start(d->upstream, &a->call, &request);
    hx_timer_start(a->loop, &a->timer, timeout, took_too_long);
}

/* Reads the response. False: none came, or one that can't be read. */
static bool read_answer(at_daemon *d, const asking *a, answer *out)
{
    hx_run_claim *c = &d->claim;
    hx_error_text unused;
    *out = (answer){.status = a->call.status};
    bool is_read = a->call.is_whole &&
                   hx_json_read(&answer_shape, HX_JSON_STORED, hx_buf_slice(&a->call.body), c->arena, out, unused);
    if (!is_read && !a->call.is_whole)
        (void)hx_fail(c->error, "the daemon can't be reached: %s", hx_upstream_error_text(a->call.error));
    else if (!is_read)
        (void)hx_fail(c->error, "the response of the daemon (%u) can't be read", a->call.status);
    return is_read;
}

static void asked(hx_asking *call)
{
    asking *a = HX_OWNER(call, asking, call);
    hx_timer_stop(a->loop, &a->timer);
    a->is_over = true;
    hx_loop_stop(a->loop);
}

static bool ask(at_daemon *d, const char *verb, const hx_buf *body, hx_ms timeout, answer *out)
{
    asking a = {.call = {.arena = d->claim.arena, .done = asked}};
    start(d, &a, verb, body, timeout);
    while (!a.is_over) hx_loop_run(d->claim.loop);
    return read_answer(d, &a, out);
}

static bool is_code(const answer *a, const char *code)
{
    return hx_slice_eq(a->error_code, hx_slice_of(code));
}

static hx_store_result refused(hx_run_claim *c, const answer *a)
{
    (void)hx_fail(c->error, "the daemon refuses it: %.*s (%u)", HX_FMT(hx_slice_first(a->detail, 200)), a->status);
    c->is_refused = a->status < 500;
    return a->status == 503 && is_code(a, "TRANSIENT.overloaded") ? HX_STORE_FULL : HX_STORE_UNAVAILABLE;
}

static hx_buf begin_body(hx_arena *arena, size_t more)
{
    hx_buf body;
    hx_buf_init(&body, arena, BODY_BYTES + more);
    hx_json_open(&body, NULL, '{');
    return body;
}

/* A request about the operation that is claimed, or was read. */
static hx_buf begin_own(const hx_run_claim *c, hx_arena *arena, size_t more)
{
    hx_buf body = begin_body(arena, more);
    hx_json_put_hex(&body, "id", c->record.op.bytes, sizeof c->record.op.bytes);
    hx_json_put_number(&body, "epoch", c->record.epoch);
    return body;
}

static void put_span(hx_buf *body, const char *name, hx_ms span)
{
    hx_json_put_text(body, name, hx_arena_printf(body->arena, "%lldms", (long long)span));
}

/* What the daemon says of the operation, as a record */

static hx_state state_of(hx_slice name)
{
    for (hx_state state = HX_ABSENT; state <= HX_EXPIRED; state++)
        if (hx_slice_eq(name, hx_slice_of(hx_state_name(state)))) return state;
    return HX_ABSENT;
}

/* The exit code goes by the state where somebody else has settled it, or its result was not kept. */
static void take_result(hx_run_claim *c, const answer *a, hx_record *found)
{
    bool is_completed = found->state == HX_COMPLETED;
    run_result result = {.exit_code = is_completed ? 0 : 1, .attempt = 1, .output = HX_EMPTY};
    hx_error_text unused;
    hx_slice json = is_completed ? a->result : a->error;
    found->unreadable = json.len > 0 && !hx_slice_eq(json, HX_LIT("null")) &&
                        !hx_json_read(&result_shape, HX_JSON_STORED, json, c->arena, &result, unused);
    found->result = hx_arena_printf(c->arena, "%llu", (unsigned long long)result.exit_code);
    found->attempt = (uint16_t)result.attempt;
    found->answer.retained = result.output.len > 0 &&
                             hx_base64_decode_any(hx_slice_from(result.output, 1), c->arena, &found->answer.body);
}

static void take_answer(hx_run_claim *c, const answer *a, hx_record *found)
{
    uint64_t number = 0;
    hx_slice count;
    *found = (hx_record){.state = state_of(a->state), .epoch = a->epoch, .fingerprint = c->record.fingerprint};
    if (!hx_op_read(a->id, &found->op)) found->op = (hx_op){0};
    if (found->state == HX_COMPLETED || found->state == HX_FAILED) take_result(c, a, found);
    if (hx_json_pointer(a->checkpoints, HX_LIT("/" ATTEMPTS), &count) && hx_slice_to_u64(count, &number))
        of(c)->attempts = number < UINT16_MAX ? (unsigned)number : 0;
}

/* Claiming */

/* The claimant is ours, and the daemon was started anew after a claim whose response we did not get. */
static hx_store_result begin_anew(hx_run_claim *c)
{
    answer released;
    hx_buf body = begin_own(c, c->arena, 0);
    hx_json_put_text(&body, "reason", HX_LIT("the command was not started"));
    hx_json_close(&body, '}');
    (void)ask(of(c), "release", &body, CALL_TIMEOUT, &released);
    return HX_STORE_UNAVAILABLE;
}

static hx_store_result mismatched(hx_run_claim *c, const answer *a, hx_record *found)
{
    size_t digits = sizeof c->record.fingerprint.bytes * 2;
    *found = (hx_record){.state = HX_COMPLETED};
    if (a->fingerprint.len != digits || a->given.len != digits) return refused(c, a);
    (void)hx_hex_read((char *)found->fingerprint.bytes, a->fingerprint.ptr, digits / 2);
    (void)hx_hex_read((char *)c->record.fingerprint.bytes, a->given.ptr, digits / 2);
    return HX_STORE_EXISTS;
}

static hx_store_result claim(hx_run_claim *c, hx_record *found)
{
    at_daemon *d = of(c);
    answer a;
    hx_buf body = begin_body(c->arena, c->key.len);
    hx_ms asked_at = c->now();
    hx_json_put_text(&body, "name", HX_LIT(HX_RUN_ROUTE));
    hx_json_put_text(&body, "key", c->key);
    hx_json_put_text(&body, "claimant", d->claimant);
    hx_json_put_text(&body, "input", d->input);
    put_span(&body, "lease", HX_RUN_LEASE);
    if (!c->no_wait) put_span(&body, "wait", WAIT_FOR);
    hx_json_close(&body, '}');
    if (!ask(d, "claim", &body, CALL_TIMEOUT + WAIT_FOR, &a)) return HX_STORE_UNAVAILABLE;
    if (a.status == 200 || a.status == 201) {
        take_answer(c, &a, found);
        bool is_ended = found->state == HX_COMPLETED || found->state == HX_FAILED;
        if (is_ended) return HX_STORE_EXISTS;
        c->record.op = found->op;
        c->record.epoch = found->epoch;
        c->record.lease_until = asked_at + HX_RUN_LEASE;
        c->record.state = HX_PROCESSING;
        return found->state == HX_PROCESSING ? HX_STORE_OK : begin_anew(c);
    }
    if (a.status != 409) return refused(c, &a);
    if (is_code(&a, "CONFLICT.idempotency.payload_mismatch")) return mismatched(c, &a, found);
    bool is_running = is_code(&a, "CONFLICT.idempotency.in_flight");
    if (!is_running && !is_code(&a, "CONFLICT.idempotency.outcome_unknown")) return refused(c, &a);
    *found = (hx_record){.state = is_running ? HX_PROCESSING : HX_UNKNOWN, .fingerprint = c->record.fingerprint};
    found->lease_until = c->now() + HX_RUN_LEASE;
    return HX_STORE_EXISTS;
}

static hx_store_result read_now(hx_run_claim *c, hx_record *found)
{
    answer a;
    hx_buf body = begin_body(c->arena, c->key.len);
    hx_json_put_text(&body, "name", HX_LIT(HX_RUN_ROUTE));
    hx_json_put_text(&body, "key", c->key);
    hx_json_close(&body, '}');
    if (!ask(of(c), "find", &body, CALL_TIMEOUT, &a)) return HX_STORE_UNAVAILABLE;
    *found = (hx_record){.state = HX_ABSENT};
    if (a.status == 404 && is_code(&a, "OPERATION.not_found")) return HX_STORE_OK;
    if (a.status != 200) return refused(c, &a);
    take_answer(c, &a, found);
    return HX_STORE_OK;
}

/* The claim itself has waited, and does so again. */
static void await(hx_run_claim *c, const hx_record *found)
{
    (void)c;
    (void)found;
}

/* Holding it */

/* An operation that a new start of the daemon made unknown still has our epoch: nobody else can begin, and the outcome
 * is accepted. */
static void renewal_done(hx_asking *call)
{
    at_daemon *d = HX_OWNER(call, at_daemon, renewal.call);
    hx_run_claim *c = &d->claim;
    answer a;
    hx_store_result result = HX_STORE_UNAVAILABLE;
    hx_timer_stop(c->loop, &d->renewal.timer);
    if (read_answer(d, &d->renewal, &a)) {
        if (a.status == 200) result = HX_STORE_OK;
        if (is_code(&a, "CONFLICT.operation.fenced") || is_code(&a, "OPERATION.not_found")) result = HX_STORE_STALE;
    }
    if (result == HX_STORE_OK) c->record.lease_until = d->renewed_at + HX_RUN_LEASE;
    c->renewed(c, result);
}

static void renew(hx_run_claim *c)
{
    at_daemon *d = of(c);
    hx_arena_free(&d->renewal_arena);
    d->renewal = (asking){.call = {.arena = &d->renewal_arena, .done = renewal_done}};
    hx_buf body = begin_own(c, &d->renewal_arena, 0);
    put_span(&body, "lease", HX_RUN_LEASE);
    hx_json_close(&body, '}');
    d->renewed_at = c->now();
    start(d, &d->renewal, "renew", &body, CALL_TIMEOUT);
}

/* Ending it */

static void put_result(hx_buf *body, const hx_record *record)
{
    hx_json_open(body, record->state == HX_COMPLETED ? "result" : "error", '{');
    hx_json_put_raw(body, "exit_code", record->result);
    hx_json_put_number(body, "attempt", record->attempt);
    if (record->answer.retained) { /* the dot says that there is output, though it may be empty */
        size_t len = HX_BASE64URL_LEN(record->answer.body.len);
        char *text = hx_arena_alloc(body->arena, len + 1);
        text[0] = '.';
        hx_base64url_encode(text + 1, (const uint8_t *)record->answer.body.ptr, record->answer.body.len);
        hx_json_put_text(body, "output", (hx_slice){text, len + 1});
    }
    hx_json_close(body, '}');
}

static hx_store_result settle(hx_run_claim *c, hx_record *found)
{
    const hx_record *record = &c->record;
    bool is_ended = record->state == HX_COMPLETED || record->state == HX_FAILED;
    const char *verb = record->state == HX_COMPLETED ? "complete"
                       : record->state == HX_FAILED  ? "fail"
                       : record->state == HX_UNKNOWN ? "abandon"
                                                     : "release";
    answer a;
    hx_buf body = begin_own(c, c->arena, HX_BASE64URL_LEN(record->answer.body.len) + 1);
    if (is_ended) {
        put_result(&body, record);
        put_span(&body, "lifetime", c->lifetime);
    } else {
        hx_json_put_text(&body, "reason", record->reason);
    }
    hx_json_close(&body, '}');
    *found = (hx_record){.state = HX_ABSENT};
    if (!ask(of(c), verb, &body, CALL_TIMEOUT, &a)) return HX_STORE_UNAVAILABLE;
    if (a.status == 200) return HX_STORE_OK;
    if (is_code(&a, "CONFLICT.operation.fenced") || is_code(&a, "OPERATION.not_found")) return HX_STORE_STALE;
    return refused(c, &a);
}

static unsigned attempts(hx_run_claim *c)
{
    return of(c)->attempts;
}

static void note_attempts(hx_run_claim *c, unsigned number)
{
    answer unused;
    hx_buf body = begin_own(c, c->arena, 0);
    hx_json_put_text(&body, "name", HX_LIT(ATTEMPTS));
    hx_json_put_number(&body, "value", number);
    hx_json_close(&body, '}');
    (void)ask(of(c), "checkpoint", &body, CALL_TIMEOUT, &unused);
}

/* The daemon counts claims that it refuses. */
static void note_skip(hx_run_claim *c)
{
    (void)c;
}

static void leave(hx_run_claim *c)
{
    at_daemon *d = of(c);
    hx_upstream_free(&d->upstream);
    hx_arena_free(&d->renewal_arena);
    free(d);
}

static hx_slice hex_text(hx_arena *arena, const uint8_t *bytes, size_t len)
{
    hx_buf text;
    hx_buf_init(&text, arena, 2 * len);
    hx_buf_put_hex(&text, bytes, len);
    return hx_buf_slice(&text);
}

/* The daemon makes MACs of what it gets under a secret of its own: this only makes one short text of the words. */
static hx_slice hash_of(const hx_run_claim *c)
{
    static const uint8_t no_secret[32];
    hx_mac *mac = hx_mac_new(no_secret);
    hx_mac_begin(mac, 'R');
    for (char *const *word = c->argv; word && *word; word++) hx_mac_part(mac, hx_slice_of(*word));
    hx_digest digest = hx_mac_end(mac);
    hx_mac_free(&mac);
    return hex_text(c->arena, digest.bytes, sizeof digest.bytes);
}

hx_run_claim *hx_run_claim_at_daemon(const hx_run_claim *given, hx_slice url, hx_slice token, hx_error_text error)
{
    static const hx_run_claim_ops ops = {.claim = claim,
                                         .read = read_now,
                                         .await = await,
                                         .renew = renew,
                                         .settle = settle,
                                         .attempts = attempts,
                                         .note_attempts = note_attempts,
                                         .note_skip = note_skip,
                                         .close = leave};
    uint8_t drawn[16];
    hx_upstream *upstream = hx_asking_connect(given->loop, url, error);
    if (!upstream) return NULL;
    at_daemon *d = calloc(1, sizeof *d);
    if (!d) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_rand_bytes(drawn, sizeof drawn);
    d->claim = *given;
    d->claim.ops = &ops;
    d->claim.now = hx_clock_now;
    d->upstream = upstream;
    d->token = token;
    d->claimant = hex_text(given->arena, drawn, sizeof drawn);
    d->input = hash_of(given);
    return &d->claim;
}
