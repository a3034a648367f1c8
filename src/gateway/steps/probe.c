/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the application what became of an operation (contract §5, `on_unknown: probe`). Two ways lead here:
 *
 *     claim   a request found its operation unknown. Found: that becomes its outcome. Not found, and the application
 *             can't still be at work on it: the operation is free, and this request claims it as a new one.
 *     judge   our own attempt was answered as if it had been done before. Found: that is the outcome. Anything else
 *             leaves it unknown.
 *
 * What is found is adopted under the epoch that was asked about: an answer that came meanwhile wins. */
#include "gateway/steps/claim.h"
#include "gateway/parts/memory_budget.h"

#include "base/log.h"
#include "base/text.h"
#include "core/json/json.h"
#include "gateway/messages/upstream_head.h"
#include "gateway/steps/steps.h"
#include "gateway/parts/transactional.h"

#include <string.h>

static const hx_probe *probe_of(const hx_request *r)
{
    return &r->policy->probe;
}

/* The probe's target, with the key in the place of each {key}. */
static hx_slice fill_target(hx_request *r)
{
    const hx_slice name = HX_LIT("{key}");
    hx_slice rest = probe_of(r)->target, key = hx_head_key(r); /* what the application knows it by */
    hx_buf target;
    hx_buf_init(&target, r->arena, (rest.len + 1) * (1 + 3 * key.len));
    while (rest.len > 0) {
        if (hx_slice_starts(rest, name)) {
            hx_text_percent_put(&target, key);
            rest = hx_slice_from(rest, name.len);
        } else {
            hx_buf_put(&target, hx_slice_first(rest, 1));
            rest = hx_slice_from(rest, 1);
        }
    }
    return hx_buf_slice(&target);
}

static void answer_head(hx_exchange *exchange, const hx_answer_head *head)
{
    hx_request *r = exchange->user;
    r->exchange_state = HX_EXCHANGE_ANSWERING;
    r->probe_status = head->status;
    r->probe_type = hx_fields_get(&head->fields, HX_FIELD_CONTENT_TYPE);
    hx_memory_begin_answer(r, head->content_length);
    if (head->status == 101) hx_request_call_off(r, HX_UPSTREAM_BROKEN);
}

static void answer_body(hx_exchange *exchange, hx_slice piece)
{
    hx_request *r = exchange->user;
    if (hx_body_append(&r->answer, piece) != HX_BODY_OK) hx_request_call_off(r, HX_UPSTREAM_TOO_LARGE);
}

static const hx_exchange_events probe_events = {.head = answer_head,
                                                .body = answer_body,
                                                .end = hx_request_answer_whole,
                                                .failed = hx_request_answer_failed};

static hx_step_result ask(hx_request *r)
{
    r->exchange = (hx_exchange){
        .arena = r->arena, .events = &probe_events, .user = r, .repeatable = true, .pooled_idle_max = INT64_MAX};
    hx_head_question(r, probe_of(r)->method, fill_target(r), HX_ASKS_ABOUT_THE_OPERATION, &r->exchange);
    r->probe_state = HX_PROBE_ASKING;
    r->probed_at = hx_loop_now(r->worker->loop);
    r->probe_status = 0;
    r->exchange_state = HX_EXCHANGE_OPEN;
    hx_worker_count(r->worker, HX_COUNT_PROBES);
    hx_exchange_start(r->worker->upstreams[r->policy->upstream], &r->exchange);
    hx_forward_expect_answer(r);
    return HX_PARKED;
}

typedef enum { FOUND, NOT_FOUND, UNCLEAR } finding;

/* Whether the place of the finding is there and empty: for "/data/0" the list at "/data", for "/data/refund" the object
 * there. Any other answer in which it is missing may be about something else, a maintenance say, and proves nothing. */
static bool is_nothing_at(hx_slice body, hx_slice pointer)
{
    hx_slice there, above = pointer;
    do above.len--;
    while (above.ptr[above.len] != '/');
    if (!hx_json_pointer(body, above, &there)) return false;
    hx_slice name = hx_slice_from(pointer, above.len + 1);
    bool is_in_list = name.len > 0;
    for (size_t i = 0; i < name.len; i++) is_in_list = is_in_list && name.ptr[i] >= '0' && name.ptr[i] <= '9';
    size_t inside = 1;
    while (inside < there.len && strchr(" \t\r\n", there.ptr[inside])) inside++;
    return there.ptr[0] == (is_in_list ? '[' : '{') && there.ptr[inside] == (is_in_list ? ']' : '}');
}

/* Not found is what `absent` declares, or the place in a good answer where it would be, empty. A 404 that was not
 * declared may be that of a probe which is misspelt. */
static finding read_answer(hx_request *r, hx_slice *result)
{
    const hx_probe *probe = probe_of(r);
    hx_slice body;
    if (r->exchange_state != HX_EXCHANGE_WHOLE || !hx_memory_answer(r, &body)) return UNCLEAR;
    if (r->probe_status != probe->found_status) return r->probe_status == probe->absent_status ? NOT_FOUND : UNCLEAR;
    if (probe->found_pointer.len > 0) {
        hx_slice there;
        if (!hx_json_pointer(body, HX_EMPTY, &there)) return UNCLEAR; /* no JSON at all */
        if (is_nothing_at(body, probe->found_pointer)) return NOT_FOUND;
        if (!hx_json_pointer(body, probe->found_pointer, &there) || hx_slice_eq(there, HX_LIT("null"))) return UNCLEAR;
    }
    *result = body;
    if (probe->answer_body.len > 0 && !hx_json_pointer(body, probe->answer_body, result)) return UNCLEAR;
    return FOUND;
}

/* The response that every client of the operation gets from now on. */
static hx_answer answer_of(hx_request *r, hx_slice result)
{
    const hx_probe *probe = probe_of(r);
    hx_buf lines;
    char date[HX_HTTP_DATE_BYTES];
    hx_buf_init(&lines, r->arena, r->probe_type.len + 128);
    bool is_part = probe->answer_body.len > 0;
    hx_slice type = is_part || r->probe_type.len == 0 ? HX_LIT("application/json") : r->probe_type;
    if (result.len > 0) hx_field_write(&lines, HX_LIT("Content-Type"), type);
    hx_field_write(&lines, HX_LIT("Date"), hx_http_date(hx_clock_wall(), date));
    return (hx_answer){.status = probe->answer_status ? probe->answer_status : r->probe_status,
                       .retained = true,
                       .headers = hx_buf_slice(&lines),
                       .body = result};
}

#define DUPLICATE "PROVIDER.duplicate"

/* Our own attempt goes on to be settled, with what was found as its answer. */
static hx_step_result end_of_own(hx_request *r, finding found, hx_slice result)
{
    bool is_known = r->policy->provider_duplicate.status == r->answer_status;
    r->probe_state = HX_PROBE_DONE;
    if (found != FOUND) {
        if (is_known) r->probe_reason = HX_LIT(DUPLICATE ", and the probe did not find it");
        return hx_request_go(r, HX_STEP_settle);
    }
    hx_answer answer = answer_of(r, result);
    r->verdict = (hx_verdict){.outcome = HX_OUTCOME_COMPLETED};
    r->probe_reason = is_known ? HX_LIT(DUPLICATE) : HX_LIT("found by the probe");
    r->answer_status = answer.status;
    r->lines_kept = r->lines_first = answer.headers;
    r->answer_whole = answer.body;
    if (answer.body.len == 0) hx_body_reset(&r->answer);
    return hx_request_go(r, HX_STEP_settle);
}

/* When it was asked, the application may still have been at work on what it was sent. The record became unknown after
 * its last byte was sent: what can't be sent whole in time is cut off first. */
static bool may_be_at_work(const hx_request *r)
{
    /* A span that began before this process started can't be measured: the wall clock may have been set since. */
    hx_ms since = r->found.changed_at > r->worker->started_at ? r->found.changed_at : r->worker->started_at;
    return r->probed_at - since < probe_of(r)->settle;
}

/* The application said "already applied": that a probe finds nothing contradicts it, and proves nothing. */
static bool was_applied(const hx_request *r)
{
    return hx_mark_is_of_duplicate(r, &r->found);
}

static hx_step_result record(hx_request *r, hx_state state, hx_slice reason, hx_answer answer)
{
    hx_record *record = &r->record;
    *record = r->found;
    record->from_state = HX_UNKNOWN;
    record->state = state;
    record->changed_at = hx_loop_now(r->worker->loop);
    hx_lifecycle_set_end(record, r->policy);
    record->reason = reason;
    record->answer = answer;
    if (state == HX_COMPLETED) record->result = hx_record_result(r->policy->result, answer.body, r->arena);
    r->probe_state = HX_PROBE_SETTLING;
    hx_store_settle(r->worker->gateway->store, hx_request_prepare_call(r), record);
    return HX_PARKED;
}

static hx_step_result ask_done(hx_request *r)
{
    hx_slice result = HX_EMPTY;
    finding found = read_answer(r, &result);
    hx_request_stop_timer(r);
    if (found == FOUND) hx_worker_count(r->worker, HX_COUNT_PROBES_FOUND);
    if (hx_request_is_claimed(r)) return end_of_own(r, found, result);
    r->exchange_state = HX_EXCHANGE_NONE;
    if (found == FOUND) return record(r, HX_COMPLETED, HX_LIT("found by the probe"), answer_of(r, result));
    if (found == NOT_FOUND && !may_be_at_work(r) && !was_applied(r)) {
        hx_worker_count(r->worker, HX_COUNT_PROBES_FREED);
        return record(r, HX_ABSENT, HX_LIT("not found by the probe"),
                      (hx_answer){.headers = HX_EMPTY, .body = HX_EMPTY});
    }
    r->probe_state = HX_PROBE_DONE;
    return hx_request_refuse_unknown(r);
}

hx_step_result hx_step_probe(hx_request *r)
{
    if (hx_request_take_result(r)) {
        r->probe_state = HX_PROBE_DONE;
        if (r->call->result == HX_STORE_OK) hx_claim_count_key(r);
        if (r->call->result != HX_STORE_UNAVAILABLE)
            return hx_request_go(r, HX_STEP_claim); /* as the store has it now */
        r->retry_after = HX_SECOND;
        return hx_request_refuse(r, HX_ERROR_STORE_UNAVAILABLE, HX_EMPTY);
    }
    if (r->probe_state == HX_PROBE_NONE) {
        bool is_answered = r->exchange_state == HX_EXCHANGE_NONE || r->exchange_state >= HX_EXCHANGE_WHOLE;
        if (is_answered) return ask(r);
        r->answer_streamed = false; /* the rest of a response that is no outcome is not needed */
        hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
        return HX_PARKED;
    }
    if (r->probe_state == HX_PROBE_SETTLING) return HX_PARKED;
    if (r->exchange_state >= HX_EXCHANGE_WHOLE) return ask_done(r);
    if (!r->timer_rang) return HX_PARKED;
    if (hx_request_is_claimed(r) && hx_forward_client_timed_out(r))
        hx_forward_answer_early(r);
    else
        hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
    return HX_PARKED;
}
