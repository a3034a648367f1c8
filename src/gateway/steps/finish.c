/* SPDX-License-Identifier: Apache-2.0 */
/* The last step: nothing of the request is under way any more. What is reported of it is put together here. */
#include "gateway/request.h"
#include "gateway/steps/shadow.h"
#include "observe/access_log.h"
#include "gateway/steps/steps.h"

/* Names what an operator can change so that such a request succeeds. */
static const char *remedy(const hx_request *r)
{
    const char *usual = hx_error_about(r->error)->remedy;
    if (r->error == HX_ERROR_REPLAY_NOT_AUTHORIZED && r->principal.len == 0)
        return "no source of the route's `principal` option distinguishes these callers, so every cookie and API key "
               "has "
               "to be the same: name the one that does, such as cookie:NAME of the session where others change by "
               "themselves, or header:NAME";
    return usual[0] != '\0' ? usual : NULL;
}

static void summarize_error(const hx_request *r, hx_summary *out)
{
    bool went_wrong = r->exchange_state == HX_EXCHANGE_FAILED || r->timed_out;
    out->error_code = hx_error_about(r->error)->code;
    if (went_wrong && hx_slice_starts(hx_slice_of(out->error_code), HX_LIT("DEPENDENCY.")))
        out->failure = hx_request_failure(r);
    out->remedy = remedy(r);
}

static void summarize(hx_request *r, hx_summary *out)
{
    *out = (hx_summary){
        .method = r->stream->request.method,
        .path = r->stream->request.path,
        .correlation = r->correlation,
        .status = r->reply_status,
        .is_timed = true,
        .duration = hx_loop_now(r->worker->loop) - r->started_at,
        .step_ms = r->step_ms,
        .step_names = hx_step_times,
        .step_count = HX_STEP_COUNT,
    };
    bool is_replayed = r->idempotency == HX_IDEMPOTENCY_REPLAYED;
    if (r->key.len > 0 || r->pass_kind == HX_PASS_SHADOW) out->route = r->route;
    if (r->key.len > 0) {
        hx_idempotency status = r->pass_kind == HX_PASS_BYPASS ? HX_IDEMPOTENCY_BYPASSED : r->idempotency;
        out->op = &r->op;
        out->key = hx_request_mac(r, HX_TAG_KEY, r->key);
        out->principal = r->claimant.principal;
        out->result = status == HX_IDEMPOTENCY_NOTHING ? "refused" : hx_idempotency_text(status);
        out->record = hx_request_is_claimed(r) ? &r->record : is_replayed ? &r->found : NULL;
    }
    if (r->policy->result.len > 0 && r->idempotency != HX_IDEMPOTENCY_NOTHING &&
        (is_replayed || hx_request_is_claimed(r)))
        out->result_id = is_replayed ? r->found.result : r->record.result;
    if (r->pass_kind == HX_PASS_SHADOW) hx_shadow_summarize(r, out);
    if (r->reply_kind == HX_REPLY_ERROR && hx_request_is_replied(r)) summarize_error(r, out);
}

/* A timer's request that ran nothing, because its key was taken. */
static bool is_job_conflict(const hx_request *r)
{
    if (r->policy->class != HX_CLASS_SCHEDULED || r->key.len == 0 || hx_request_is_claimed(r)) return false;
    if (r->reply_kind != HX_REPLY_ERROR) return r->idempotency == HX_IDEMPOTENCY_REPLAYED;
    return hx_slice_starts(hx_slice_of(hx_error_about(r->error)->code), HX_LIT("CONFLICT.")) &&
           r->error != HX_ERROR_PAYLOAD_MISMATCH;
}

static void count(hx_request *r)
{
    if (r->policy && is_job_conflict(r)) hx_store_note_conflict(r->worker->gateway->store);
    if (r->idempotency == HX_IDEMPOTENCY_STORED || r->idempotency == HX_IDEMPOTENCY_NOT_RETAINED)
        hx_worker_count(r->worker, HX_COUNT_CREATED);
    if (r->idempotency == HX_IDEMPOTENCY_REPLAYED) hx_worker_count(r->worker, HX_COUNT_REPLAYED);
    if (r->reply_kind != HX_REPLY_ERROR || !hx_request_is_replied(r)) return;
    if (hx_slice_starts(hx_slice_of(hx_error_about(r->error)->code), HX_LIT("CONFLICT.")))
        hx_worker_count(r->worker, HX_COUNT_CONFLICTS);
    if (r->error == HX_ERROR_PAYLOAD_MISMATCH) hx_worker_count(r->worker, HX_COUNT_KEY_REUSED);
}

hx_step_result hx_step_finish(hx_request *r)
{
    hx_worker *worker = r->worker;
    hx_timer_stop(worker->loop, &r->timer);
    count(r);
    if (hx_request_rules(r)->config->access_log == HX_ACCESS_LOG_STDERR) {
        hx_summary summary;
        summarize(r, &summary);
        hx_access_log_line(&summary);
    }
    if (hx_pass_is_tunnel(r)) hx_pass_log_tunnel_end(r);
    hx_worker_drop_lease(r);
    hx_list_remove(&r->link);
    hx_body_free(&r->body);
    worker->request_count--;
    hx_request_drop_rules(r);
    hx_stream_release(r->stream); /* the arena goes, and r with it */
    hx_worker_check_drained(worker);
    return HX_DONE;
}
