/* SPDX-License-Identifier: Apache-2.0 */
/* Answering the client. By now the outcome, if there is one, is durable. */
#include "base/check.h"
#include "base/text.h"
#include "gateway/messages/cors.h"
#include "gateway/messages/problem.h"
#include "gateway/steps/shadow.h"
#include "gateway/messages/answer_headers.h"
#include "gateway/steps/steps.h"

static void put_number(hx_buf *out, const char *name, uint64_t value)
{
    hx_buf_puts(out, name);
    hx_buf_puts(out, ": ");
    hx_buf_put_decimal(out, value);
    hx_buf_puts(out, "\r\n");
}

static void put_time(hx_buf *out, const char *name, hx_ms at)
{
    char text[HX_RFC3339_BYTES];
    hx_field_write(out, hx_slice_of(name), hx_rfc3339(at, text));
}

static bool is_replay(const hx_request *r)
{
    return r->reply_kind == HX_REPLY_ANSWER && r->idempotency == HX_IDEMPOTENCY_REPLAYED;
}

/* Whether Stripe's clients send the same request again by themselves: never what is final, however it ended. */
static bool is_worth_a_retry(const hx_request *r)
{
    if (r->reply_kind == HX_REPLY_ERROR) return hx_error_about(r->error)->retryable;
    if (r->idempotency != HX_IDEMPOTENCY_RELEASED) return r->idempotency == HX_IDEMPOTENCY_UNKNOWN;
    unsigned status = r->reply_status;
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

static void put_stripe_lines(const hx_request *r, hx_buf *out)
{
    bool is_ours = r->reply_kind == HX_REPLY_ERROR;
    if (is_ours) hx_field_write(out, HX_LIT("Request-Id"), r->correlation);
    if (!is_ours && (r->idempotency == HX_IDEMPOTENCY_NOTHING || r->reply_status < 400)) return;
    hx_field_write(out, HX_LIT("Stripe-Should-Retry"), is_worth_a_retry(r) ? HX_LIT("true") : HX_LIT("false"));
}

static void put_lines(hx_request *r, hx_buf *out)
{
    /* An error of ours is nothing that was stored: it says whether the key is free, or its outcome not known. */
    bool is_shown = r->reply_kind != HX_REPLY_ERROR || r->idempotency == HX_IDEMPOTENCY_RELEASED ||
                    r->idempotency == HX_IDEMPOTENCY_UNKNOWN;
    if (r->idempotency != HX_IDEMPOTENCY_NOTHING && is_shown)
        hx_field_write(out, HX_LIT("Idempotency-Status"), hx_slice_of(hx_idempotency_text(r->idempotency)));
    if (is_replay(r)) {
        hx_buf_puts(out, "Idempotent-Replayed: true\r\n");
        put_time(out, "Original-Request-Time", r->found.created_at);
    }
    if (r->reply_expires_at > 0) put_time(out, "Idempotency-Expires", r->reply_expires_at);
    hx_answer_put_retry_after(r, out);
    hx_field_write(out, HX_LIT("X-Correlation-Id"), r->correlation);
    if (r->policy->dialect == HX_DIALECT_STRIPE) put_stripe_lines(r, out);
    if (r->pass_kind == HX_PASS_SHADOW) hx_shadow_line(r, out);
    if (r->worker->gateway->dev) hx_buf_puts(out, "Hapax-Mode: dev\r\n");
}

static void put_own_cors(const hx_request *r, hx_buf *out)
{
    hx_cors_allow(hx_request_rules(r)->config, &r->stream->request.fields, out);
}

void hx_reply_lines(hx_request *r, hx_buf *out)
{
    put_lines(r, out);
    /* On what only passes there is nothing of ours that a script would look for. */
    if (r->idempotency != HX_IDEMPOTENCY_NOTHING || r->pass_kind == HX_PASS_SHADOW)
        hx_cors_expose(hx_request_rules(r)->config, &r->stream->request.fields, out);
}

/* The lines of an answer that was made for someone else. On a replay Age is raised by the time since: the application's
 * own, where it sent one, is taken out. */
static void put_kept_lines(hx_request *r, bool without_cors, hx_buf *out)
{
    hx_slice rest = r->reply_answer.headers;
    uint64_t age = 0;
    for (hx_text_header header; hx_text_next_header(&rest, &header);) {
        if (without_cors && hx_cors_is_replaced(header.name)) continue;
        if (is_replay(r) && hx_slice_eq_nocase(header.name, HX_LIT("age"))) {
            if (!hx_slice_to_u64(header.value, &age)) age = 0;
            continue;
        }
        hx_buf_put(out, header.line);
    }
    if (!is_replay(r)) return;
    hx_ms since = hx_loop_now(r->worker->loop) - r->found.changed_at;
    put_number(out, "Age", age + (since > 0 ? (uint64_t)since / 1000 : 0));
}

static void send_answer(hx_request *r)
{
    hx_buf lines;
    hx_slice headers = r->reply_answer.headers;
    const hx_fields *request = &r->stream->request.fields;
    bool is_anothers = r->idempotency == HX_IDEMPOTENCY_REPLAYED || !hx_request_is_claimed(r);
    bool replaces = is_anothers && hx_cors_replaces(hx_request_rules(r)->config, request, headers);
    hx_buf_init(&lines, r->arena, headers.len + HX_OUR_LINES_MAX);
    if (is_replay(r) || replaces)
        put_kept_lines(r, replaces, &lines);
    else
        hx_buf_put(&lines, headers);
    r->reply_status = r->reply_answer.status;
    if (replaces) {
        put_lines(r, &lines);
        put_own_cors(r, &lines);
    } else {
        hx_reply_lines(r, &lines);
    }
    hx_slice reason = hx_status_reason(r->reply_status);
    if (r->reply_file)
        hx_stream_answer_file(r->stream, r->reply_status, reason, hx_buf_slice(&lines), *r->reply_file, false);
    else
        hx_stream_answer(r->stream, r->reply_status, reason, hx_buf_slice(&lines), r->reply_answer.body, false);
}

static void send_problem(hx_request *r)
{
    hx_buf lines, body;
    hx_buf_init(&lines, r->arena, HX_PROBLEM_LINES_MAX + HX_OUR_LINES_MAX);
    hx_buf_init(&body, r->arena, HX_PROBLEM_BODY_MAX);
    hx_problem problem = hx_problem_of(r);
    hx_problem_write(&problem, &lines, &body);
    put_lines(r, &lines);
    put_own_cors(r, &lines);
    hx_stream_answer(r->stream, r->reply_status, hx_status_reason(r->reply_status), hx_buf_slice(&lines),
                     hx_buf_slice(&body), true);
}

static void send_noop(hx_request *r)
{
    hx_buf lines;
    hx_buf_init(&lines, r->arena, HX_OUR_LINES_MAX);
    hx_buf_puts(&lines, "Content-Type: application/json\r\n");
    put_lines(r, &lines);
    put_own_cors(r, &lines);
    r->reply_status = 200;
    hx_stream_answer(r->stream, 200, HX_LIT("OK"), hx_buf_slice(&lines), HX_LIT("{}"), true);
}

void hx_reply_early(hx_request *r, hx_error error, hx_slice detail)
{
    HX_CHECK(!hx_request_is_replied(r));
    hx_request_set_error(r, error, detail);
    if (r->client != HX_CLIENT_GONE) send_problem(r);
    r->client = HX_CLIENT_ANSWERED_EARLY;
}

hx_step_result hx_step_reply(hx_request *r)
{
    hx_request_note_reply(r);
    if (r->error == HX_ERROR_PAYLOAD_MISMATCH && r->reply_kind == HX_REPLY_ERROR)
        r->reply_status = hx_problem_status(r->error, r->policy->dialect);
    if (!hx_request_client_is_gone(r)) {
        if (r->reply_kind == HX_REPLY_ANSWER)
            send_answer(r);
        else if (r->reply_kind == HX_REPLY_NOOP)
            send_noop(r);
        else
            send_problem(r);
    }
    return hx_request_go(r, hx_request_is_claimed(r) ? HX_STEP_late_answer : hx_request_end_step(r));
}

void hx_reply_malformed(const hx_worker *worker, hx_stream *stream, unsigned status, hx_slice detail,
                        hx_slice correlation)
{
    hx_buf lines, body;
    const hx_config *config = worker->use->rules->config;
    hx_buf_init(&lines, &stream->arena, HX_PROBLEM_LINES_MAX + HX_OUR_LINES_MAX);
    hx_buf_init(&body, &stream->arena, HX_PROBLEM_BODY_MAX);
    if (status == 405) hx_buf_puts(&lines, "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
    hx_problem problem = {.error = hx_problem_malformed(status),
                          .status = status,
                          .detail = detail,
                          .correlation = correlation,
                          .docs = config->error_docs};
    hx_problem_write(&problem, &lines, &body);
    hx_field_write(&lines, HX_LIT("X-Correlation-Id"), correlation);
    if (worker->gateway->dev) hx_buf_puts(&lines, "Hapax-Mode: dev\r\n");
    hx_cors_allow(config, &stream->request.fields, &lines);
    hx_stream_answer(stream, status, hx_status_reason(status), hx_buf_slice(&lines), hx_buf_slice(&body), true);
}
