/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/request.h"

#include "base/check.h"
#include "base/rand.h"
#include "gateway/parts/memory_budget.h"
#include "gateway/steps/steps.h"
#include "gateway/messages/problem.h"
#include "observe/access_log.h"

#include <string.h>

typedef hx_step_result (*step_function)(hx_request *r);

static const step_function step_functions[] = {
#define X(name, text, test) hx_step_##name,
#include "gateway/steps.def"
#undef X
};

const char *const hx_step_times[] = {
#define X(name, text, test) #name "_ms",
#include "gateway/steps.def"
#undef X
};

const char *hx_idempotency_text(hx_idempotency status)
{
    static const char *const texts[] = {"", "stored", "replayed", "released", "unknown", "not-retained", "bypassed"};
    return texts[status];
}

#define STEP(name) (1u << HX_STEP_##name)

/* Which steps may follow which: the picture in request.h. */
static const unsigned may_follow[] = {
    [HX_STEP_admit] = STEP(locate) | STEP(claim) | STEP(pass) | STEP(shadow) | STEP(publish) | STEP(ask) | STEP(reply) |
                      STEP(finish),
    [HX_STEP_locate] = STEP(claim) | STEP(pass) | STEP(reply),
    [HX_STEP_claim] = STEP(locate) | STEP(yield) | STEP(wait) | STEP(replay) | STEP(forward) | STEP(probe) |
                      STEP(authorize) | STEP(settle) | STEP(pass) | STEP(reply) | STEP(finish),
    [HX_STEP_yield] = STEP(locate) | STEP(forward) | STEP(settle),
    [HX_STEP_wait] = STEP(replay) | STEP(authorize) | STEP(reply),
    [HX_STEP_replay] = STEP(reply),
    [HX_STEP_forward] = STEP(judge) | STEP(settle),
    [HX_STEP_judge] = STEP(retry) | STEP(probe) | STEP(settle) | STEP(late_answer),
    [HX_STEP_retry] = STEP(forward) | STEP(settle) | STEP(pass),
    [HX_STEP_probe] = STEP(claim) | STEP(settle) | STEP(reply),
    [HX_STEP_authorize] = STEP(claim) | STEP(reply),
    [HX_STEP_settle] = STEP(claim) | STEP(reply) | STEP(stream) | STEP(late_answer),
    [HX_STEP_reply] = STEP(late_answer) | STEP(shadow) | STEP(finish),
    [HX_STEP_stream] = STEP(finish),
    [HX_STEP_late_answer] = STEP(judge) | STEP(finish),
    [HX_STEP_pass] = STEP(retry) | STEP(reply) | STEP(shadow) | STEP(finish),
    [HX_STEP_shadow] = STEP(pass) | STEP(finish),
    [HX_STEP_publish] = STEP(reply) | STEP(finish),
    [HX_STEP_ask] = STEP(reply),
    [HX_STEP_finish] = 0,
};

hx_step_result hx_request_go(hx_request *r, hx_step next)
{
    HX_CHECK((may_follow[r->step] & (1u << next)) != 0);
    hx_ms now = hx_loop_now(r->worker->loop);
    r->step_ms[r->step] += (uint32_t)(now - r->step_since);
    r->step_since = now;
    r->step = next;
    return HX_MORE;
}

#define IS(name) (1u << HX_OPERATION_##name)

static const unsigned operation_may_become[] = {
    [HX_OPERATION_NONE] = IS(CLAIMED),
    [HX_OPERATION_CLAIMED] = IS(SETTLING) | IS(RECLAIMING),
    [HX_OPERATION_SETTLING] = IS(SETTLED) | IS(GIVEN_UP),
    [HX_OPERATION_RECLAIMING] = IS(NONE) | IS(SETTLED) | IS(GIVEN_UP),
    [HX_OPERATION_SETTLED] = IS(RESETTLING),
    [HX_OPERATION_RESETTLING] = IS(SETTLED) | IS(GIVEN_UP),
    [HX_OPERATION_GIVEN_UP] = 0,
};

/* The states that the operation may have whenever a step runs. */
static const unsigned operation_at[] = {
    [HX_STEP_admit] = IS(NONE),
    [HX_STEP_locate] = IS(NONE),
    [HX_STEP_claim] = IS(NONE),
    [HX_STEP_yield] = IS(NONE),
    [HX_STEP_wait] = IS(NONE),
    [HX_STEP_replay] = IS(NONE),
    [HX_STEP_forward] = IS(CLAIMED),
    [HX_STEP_judge] = IS(CLAIMED) | IS(SETTLED),
    [HX_STEP_retry] = IS(NONE) | IS(CLAIMED),
    [HX_STEP_probe] = IS(NONE) | IS(CLAIMED),
    [HX_STEP_authorize] = IS(NONE),
    [HX_STEP_settle] = IS(CLAIMED) | IS(SETTLING) | IS(RECLAIMING) | IS(SETTLED) | IS(RESETTLING),
    [HX_STEP_reply] = IS(NONE) | IS(SETTLED),
    [HX_STEP_stream] = IS(SETTLED),
    [HX_STEP_late_answer] = IS(SETTLED) | IS(GIVEN_UP),
    [HX_STEP_pass] = IS(NONE),
    [HX_STEP_shadow] = IS(NONE),
    [HX_STEP_publish] = IS(NONE),
    [HX_STEP_ask] = IS(NONE),
    [HX_STEP_finish] = IS(NONE) | IS(SETTLED) | IS(GIVEN_UP),
};

void hx_request_set_operation(hx_request *r, hx_operation_state next)
{
    HX_CHECK((operation_may_become[r->operation] & (1u << next)) != 0);
    r->operation = next;
}

/* The promises of contract §1, as far as one request can see them. */
static void check_invariants(const hx_request *r)
{
    HX_CHECK((operation_at[r->step] & (1u << r->operation)) != 0);
    /* Nothing of a keyed request leaves before its claim is durable, unless its route says so of a store that is down;
     * a probe and an authorization only ask. */
    if (r->exchange_state != HX_EXCHANGE_NONE && r->key.len > 0 && r->pass_kind != HX_PASS_BYPASS &&
        r->probe_state == HX_PROBE_NONE && r->authorize_state != HX_AUTHORIZE_ASKING)
        HX_CHECK(hx_request_is_claimed(r) && r->record.epoch > 0);
    /* An operation that may have happened is sent again only where the route declares that safe. */
    if (r->step == HX_STEP_forward && r->earlier != HX_EARLIER_NOTHING)
        HX_CHECK(r->policy->guarantee == HX_GUARANTEE_IDEMPOTENT);
    /* Where the application's mark tells, what may have happened is sent under a new epoch only. */
    if (r->step == HX_STEP_forward && r->earlier == HX_EARLIER_UNKNOWN)
        HX_CHECK(r->policy->guarantee != HX_GUARANTEE_TRANSACTIONAL);
    /* A retry is paid for, or given back. */
    if (r->step == HX_STEP_settle || r->step == HX_STEP_finish) HX_CHECK(r->reservation.from == HX_RESERVED_NOTHING);
    /* The client of a claimed operation gets nothing before the outcome is durable. */
    if (hx_request_is_claimed(r) && hx_request_is_replied(r))
        HX_CHECK(hx_request_is_settled(r) || r->client == HX_CLIENT_ANSWERED_EARLY);
    /* A request goes away with nothing of its own under way. */
    if (r->step == HX_STEP_finish) {
        HX_CHECK(r->call_state < HX_CALL_PENDING);
        HX_CHECK(r->exchange_state == HX_EXCHANGE_NONE || r->exchange_state >= HX_EXCHANGE_WHOLE);
    }
}

void hx_request_run(hx_request *r)
{
    hx_step_result progress;
    hx_check_in_hand(r->stream->request.target);
    do {
        check_invariants(r);
        progress = step_functions[r->step](r);
    } while (progress == HX_MORE);
    hx_check_in_hand(HX_EMPTY);
}

void hx_request_set_error(hx_request *r, hx_error error, hx_slice detail)
{
    r->reply_kind = HX_REPLY_ERROR;
    r->error = error;
    r->error_detail = detail;
    r->reply_status = hx_error_about(error)->status;
    /* After an invalid request the bytes that follow it can't be trusted to be one, so the connection is closed. */
    r->stream->close = (r->reply_status == 400 && error != HX_ERROR_KEY_MISSING) || error == HX_ERROR_TOO_SLOW;
}

hx_step_result hx_request_refuse(hx_request *r, hx_error error, hx_slice detail)
{
    hx_request_set_error(r, error, detail);
    return hx_request_go(r, HX_STEP_reply);
}

hx_step_result hx_request_refuse_unknown(hx_request *r)
{
    r->idempotency = HX_IDEMPOTENCY_UNKNOWN;
    r->retry_after = 5 * HX_SECOND;
    return hx_request_refuse(r, HX_ERROR_OUTCOME_UNKNOWN, HX_EMPTY);
}

hx_step_result hx_request_refuse_in_flight(hx_request *r)
{
    r->retry_after = HX_SECOND;
    return hx_request_refuse(r, HX_ERROR_IN_FLIGHT, HX_EMPTY);
}

hx_digest hx_request_mac(hx_request *r, char tag, hx_slice bytes)
{
    hx_mac_begin(r->worker->mac, tag);
    hx_mac_part(r->worker->mac, bytes);
    return hx_mac_end(r->worker->mac);
}

static void timer_rang(hx_timer *timer)
{
    hx_request *r = HX_OWNER(timer, hx_request, timer);
    r->timer_rang = true;
    hx_request_run(r);
}

void hx_request_start_timer(hx_request *r, hx_ms delay)
{
    r->timer_rang = false;
    hx_timer_start(r->worker->loop, &r->timer, delay, timer_rang);
}

void hx_request_stop_timer(hx_request *r)
{
    r->timer_rang = false;
    hx_timer_stop(r->worker->loop, &r->timer);
}

void hx_request_answer_whole(hx_exchange *exchange)
{
    hx_request *r = exchange->user;
    r->exchange_state = HX_EXCHANGE_WHOLE;
    hx_request_run(r);
}

void hx_request_answer_failed(hx_exchange *exchange, hx_upstream_error error)
{
    hx_request *r = exchange->user;
    if (r->exchange_state != HX_EXCHANGE_CANCELLED) r->exchange_error = error;
    r->exchange_state = HX_EXCHANGE_FAILED;
    hx_request_run(r);
}

void hx_request_call_off(hx_request *r, hx_upstream_error why)
{
    if (r->exchange_state == HX_EXCHANGE_CANCELLED) return;
    r->exchange_state = HX_EXCHANGE_CANCELLED;
    r->exchange_error = why;
    hx_exchange_cancel(&r->exchange);
}

/* r->call with the way back to its request. */
typedef struct {
    hx_store_call call;
    hx_request *request;
} request_call;

static void store_done(hx_store_call *call)
{
    hx_request *r = HX_OWNER(call, request_call, call)->request;
    HX_CHECK(r->call_state >= HX_CALL_PENDING);
    r->call_state = HX_CALL_BACK;
    hx_store_health *health = r->worker->gateway->outage;
    hx_health_note(health, call, hx_loop_now(r->worker->loop));
    if (call->verb == HX_STORE_CLAIM && call->result == HX_STORE_OK)
        hx_health_note_rules(health, r->use->rules->policies, r->policy, hx_loop_now(r->worker->loop));
    hx_request_run(r);
}

hx_store_call *hx_request_prepare_call(hx_request *r)
{
    HX_CHECK(r->call_state == HX_CALL_IDLE);
    if (!r->call) {
        request_call *made = hx_arena_alloc(r->arena, sizeof *made);
        made->request = r;
        r->call = &made->call;
    }
    *r->call = (hx_store_call){.loop = r->worker->loop,
                               .arena = hx_memory_for_found(r),
                               .whole_max = HX_WHOLE_ANSWER_BYTES,
                               .done = store_done};
    r->call_state = HX_CALL_PENDING;
    return r->call;
}

void hx_request_start_client_timer(hx_request *r)
{
    hx_ms left = hx_request_time_left(r);
    if (left != HX_TIMEOUT_NONE && !hx_request_is_replied(r)) hx_request_start_timer(r, left);
}

bool hx_request_client_timed_out(const hx_request *r)
{
    return r->timer_rang && !hx_request_is_replied(r) && hx_request_time_left(r) == 0;
}

bool hx_request_take_result(hx_request *r)
{
    if (r->call_state != HX_CALL_BACK) return false;
    r->call_state = HX_CALL_IDLE;
    return true;
}

void hx_request_note_reply(hx_request *r)
{
    HX_CHECK(!hx_request_is_replied(r));
    r->client = r->client == HX_CLIENT_GONE ? HX_CLIENT_ANSWERED_GONE : HX_CLIENT_ANSWERED;
}

static void client_closed(hx_stream *stream)
{
    hx_request *r = stream->user;
    if (r->client == HX_CLIENT_WAITING) r->client = HX_CLIENT_GONE;
    if (r->client == HX_CLIENT_ANSWERED) r->client = HX_CLIENT_ANSWERED_GONE;
    hx_request_run(r);
}

hx_request *hx_request_new(hx_worker *worker, hx_stream *stream)
{
    hx_request *r = hx_arena_alloc(&stream->arena, sizeof *r);
    memset(r, 0, sizeof *r);
    r->worker = worker;
    r->stream = stream;
    r->arena = &stream->arena;
    r->step = HX_STEP_admit;
    r->started_at = r->step_since = hx_loop_now(worker->loop);
    r->body.file = r->answer.file = -1;
    hx_list_init(&r->lease_link);
    hx_list_append(&worker->requests, &r->link);
    worker->request_count++;
    hx_request_take_rules(r);
    stream->user = r;
    return r;
}

static void aside_ended(void *of)
{
    hx_worker *worker = of;
    worker->request_count--;
    hx_worker_check_drained(worker);
}

static void start_request(void *app, hx_stream *stream)
{
    hx_worker *worker = app;
    const hx_gateway *gateway = worker->gateway;
    if (gateway->aside.path.len > 0 && hx_slice_starts(stream->request.path, gateway->aside.path)) {
        worker->request_count++;
        gateway->aside.request(gateway->aside.context, stream, aside_ended, worker);
        return;
    }
    hx_request *r = hx_request_new(app, stream);
    stream->events.closed = client_closed;
    hx_request_run(r);
}

static void refuse_malformed(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    const hx_worker *worker = app;
    hx_slice correlation = hx_arena_printf(&stream->arena, "%016llx%016llx", (unsigned long long)hx_rand_u64(),
                                           (unsigned long long)hx_rand_u64());
    hx_reply_malformed(worker, stream, status, hx_slice_of(detail), correlation);
    if (worker->use->rules->config->access_log == HX_ACCESS_LOG_STDERR)
        hx_access_log_line(&(hx_summary){.method = stream->request.method,
                                         .path = stream->request.path,
                                         .peer = hx_peer_text(&stream->peer),
                                         .correlation = correlation,
                                         .status = status,
                                         .error_code = hx_error_about(hx_problem_malformed(status))->code,
                                         .error_detail = detail});
    hx_stream_release(stream);
}

const hx_server_handler hx_gateway_handler = {.request = start_request, .malformed = refuse_malformed};

hx_upstream_failure hx_request_failure(const hx_request *r)
{
    return (hx_upstream_failure){
        .upstream = hx_request_rules(r)->config->upstreams[r->policy->upstream].url,
        .error = r->timed_out ? "no response in time" : hx_upstream_error_text(r->exchange_error),
        .reason = r->timed_out ? NULL : r->exchange.reason,
    };
}
