/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/messages/problem.h"

#include "core/json/json_writer.h"
#include "gateway/messages/answer_headers.h"

unsigned hx_problem_status(hx_error error, hx_dialect dialect)
{
    static const unsigned mismatch[] = {[HX_DIALECT_PLAIN] = 409, [HX_DIALECT_IETF] = 422, [HX_DIALECT_STRIPE] = 400};
    return error == HX_ERROR_PAYLOAD_MISMATCH ? mismatch[dialect] : hx_error_about(error)->status;
}

static hx_slice docs_of(const hx_problem *problem, hx_arena *arena)
{
    return hx_arena_printf(arena, "%.*s%s", HX_FMT(problem->docs), hx_error_about(problem->error)->code);
}

static void put_problem(const hx_problem *problem, unsigned status, hx_slice detail, hx_buf *body)
{
    const hx_error_row *row = hx_error_about(problem->error);
    hx_slice instance = hx_arena_printf(body->arena, "urn:hapax:request:%.*s", HX_FMT(problem->correlation));
    hx_json_open(body, NULL, '{');
    hx_json_put_text(body, "type", docs_of(problem, body->arena));
    hx_json_put_text(body, "title", hx_slice_of(row->title));
    hx_json_put_number(body, "status", status);
    hx_json_put_text(body, "detail", detail);
    hx_json_put_text(body, "instance", instance);
    hx_json_put_text(body, "error_code", hx_slice_of(row->code));
    if (problem->original_time > 0) {
        char time[HX_RFC3339_BYTES];
        hx_json_put_text(body, "original_time", hx_rfc3339(problem->original_time, time));
    }
    hx_json_put_bool(body, "retryable", row->retryable);
    hx_json_put_text(body, "hint", hx_slice_of(row->hint));
    hx_buf_puts(body, "}\n");
}

/* The type by which Stripe's client libraries choose the class of an error, besides its status. */
static const char *stripe_type(const hx_error_row *row)
{
    hx_slice code = hx_slice_of(row->code);
    if (hx_slice_starts(code, HX_LIT("CONFLICT.idempotency."))) return "idempotency_error";
    return row->status < 500 ? "invalid_request_error" : "api_error";
}

/* Stripe's word where it has one, else the end of ours. */
static hx_slice stripe_code(hx_error error)
{
    if (error == HX_ERROR_IN_FLIGHT) return HX_LIT("idempotency_key_in_use");
    if (error == HX_ERROR_RATE_LIMITED || error == HX_ERROR_QUOTA_EXCEEDED) return HX_LIT("rate_limit");
    hx_slice code = hx_slice_of(hx_error_about(error)->code), part;
    hx_slice rest = code;
    while (hx_slice_next(&rest, '.', &part)) code = part;
    return code;
}

static void put_stripe_error(const hx_problem *problem, hx_slice detail, hx_buf *body)
{
    const hx_error_row *row = hx_error_about(problem->error);
    const char *stop = hx_slice_ends(detail, HX_LIT(".")) ? "" : ".";
    hx_json_open(body, NULL, '{');
    hx_json_open(body, "error", '{');
    hx_json_put_text(body, "type", hx_slice_of(stripe_type(row)));
    hx_json_put_text(body, "code", stripe_code(problem->error));
    hx_json_put_text(body, "message", hx_arena_printf(body->arena, "%.*s%s %s", HX_FMT(detail), stop, row->hint));
    hx_json_put_text(body, "doc_url", docs_of(problem, body->arena));
    hx_buf_puts(body, "}}\n");
}

/* RFC 9110, 15.5.2 and RFC 6750, 3. Browsers open no password dialog for the scheme Bearer. */
static void put_challenge(const hx_problem *problem, hx_slice detail, hx_buf *lines)
{
    hx_buf_puts(lines, "WWW-Authenticate: Bearer realm=\"hapax\"");
    if (problem->error == HX_ERROR_TOKEN_INVALID) {
        hx_buf_puts(lines, ", error=\"invalid_token\", error_description=\"");
        hx_buf_put(lines, detail); /* a row of HX_JWT_ERRORS, which have no quotes */
        hx_buf_puts(lines, "\"");
    }
    hx_buf_puts(lines, "\r\n");
}

void hx_problem_write(const hx_problem *problem, hx_buf *lines, hx_buf *body)
{
    const hx_error_row *row = hx_error_about(problem->error);
    bool is_stripe = problem->dialect == HX_DIALECT_STRIPE;
    hx_slice detail = hx_slice_first(problem->detail, 1024);
    if (detail.len == 0) detail = hx_slice_of(row->title);
    hx_buf_puts(lines, is_stripe ? "Content-Type: application/json\r\n" : "Content-Type: application/problem+json\r\n");
    hx_buf_puts(lines, "Content-Language: en\r\n");
    hx_field_write(lines, HX_LIT("Error-Code"), hx_slice_of(row->code));
    if (row->status == 401) put_challenge(problem, detail, lines);
    if (problem->dialect == HX_DIALECT_IETF) {
        hx_buf_puts(lines, "Link: <");
        hx_buf_put(lines, docs_of(problem, lines->arena));
        hx_buf_puts(lines, ">; rel=\"describedby\"\r\n");
    }
    if (is_stripe)
        put_stripe_error(problem, detail, body);
    else
        put_problem(problem, problem->status ? problem->status : row->status, detail, body);
}

hx_problem hx_problem_of(const hx_request *r)
{
    return (hx_problem){.error = r->error,
                        .status = r->reply_status,
                        .detail = r->error_detail,
                        .original_time = r->error_original_time,
                        .correlation = r->correlation,
                        .docs = hx_request_rules(r)->config->error_docs,
                        .dialect = r->policy->dialect};
}

void hx_problem_answer(hx_request *r, hx_answer *answer)
{
    hx_buf lines, body;
    hx_buf_init(&lines, r->arena, HX_PROBLEM_LINES_MAX);
    hx_buf_init(&body, r->arena, HX_PROBLEM_BODY_MAX);
    hx_problem problem = hx_problem_of(r);
    hx_problem_write(&problem, &lines, &body);
    char date[HX_HTTP_DATE_BYTES];
    hx_field_write(&lines, HX_LIT("Date"), hx_http_date(hx_clock_wall(), date));
    hx_answer_put_retry_after(r, &lines);
    *answer = (hx_answer){.status = (uint16_t)r->reply_status,
                          .retained = true,
                          .headers = hx_buf_slice(&lines),
                          .body = hx_buf_slice(&body)};
}
