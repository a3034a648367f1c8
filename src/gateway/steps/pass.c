/* SPDX-License-Identifier: Apache-2.0 */
/* Unprotected traffic: safe methods, routes that pass, requests without a key. Streamed both ways with back-pressure,
 * in bounded memory; nothing is kept. An upgrade becomes a tunnel.
 *
 * Where repeating is safe by its method (GET and its like, PUT, DELETE) a request that never reached the application is
 * sent again; with `retry_safe` also one that was cut off or answered 502, 503 or 504 before the client saw a byte. */
#include "base/log.h"
#include "gateway/messages/problem.h"
#include "gateway/steps/shadow.h"
#include "gateway/messages/answer_headers.h"
#include "gateway/messages/upstream_head.h"
#include "gateway/steps/steps.h"

#define KEPT_PIECE_BYTES (64u * 1024u)

bool hx_pass_is_tunnel(const hx_request *r)
{
    return r->upgrade.len > 0 && r->reply_status == 101;
}

/* The application's time runs while it has the next move: not while its request is still coming in. When the client's
 * is over before, a request that can have no effect is given up; any other is not cut off. */
static void expect_answer(hx_request *r)
{
    if (r->exchange_state != HX_EXCHANGE_OPEN) return;
    hx_ms timeout = r->policy->upstream_timeout, left = hx_request_time_left(r);
    bool is_shorter = hx_method_is_safe(r->stream->request.method) && left != HX_TIMEOUT_NONE && left < timeout;
    hx_request_start_timer(r, is_shorter ? left : timeout);
}

/* Once the client has closed its side of a tunnel, only the application can end it, and a client that is gone looks the
 * same. So the application's time runs from each of its bytes to the next, but not while it is the client who is slow,
 * for which the server has limits. */
static void expect_rest_of_tunnel(hx_request *r)
{
    if (!r->tunnel.client_ended || r->exchange_state != HX_EXCHANGE_ANSWERING) return;
    if (r->tunnel.is_held_back)
        hx_request_stop_timer(r);
    else
        hx_request_start_timer(r, r->policy->upstream_timeout);
}

static void upload(hx_stream *stream, hx_slice piece, bool last)
{
    hx_request *r = stream->user;
    bool waits = r->step == HX_STEP_retry; /* the exchange holds what comes meanwhile */
    if (!waits && (r->exchange_state >= HX_EXCHANGE_CANCELLED)) return;
    if (hx_pass_is_tunnel(r)) r->tunnel.bytes_up += piece.len;
    if (piece.len > 0 && !hx_exchange_write(&r->exchange, piece)) {
        r->upload_held_back = true;
        hx_stream_pause(stream);
        expect_answer(r);
    }
    if (last) {
        r->body_state = HX_BODY_WHOLE;
        r->tunnel.client_ended = hx_pass_is_tunnel(r);
        hx_exchange_finish(&r->exchange);
        expect_answer(r);
        expect_rest_of_tunnel(r);
    }
}

static void upload_broken(hx_stream *stream, unsigned status, const char *detail)
{
    hx_request *r = stream->user;
    r->body_state = HX_BODY_BROKEN;
    r->body_error_status = status;
    r->body_error_detail = detail;
    hx_request_run(r);
}

static void client_drained(hx_stream *stream)
{
    hx_request *r = stream->user;
    r->tunnel.is_held_back = false;
    if (r->exchange_state == HX_EXCHANGE_ANSWERING) hx_exchange_resume(&r->exchange);
    expect_rest_of_tunnel(r);
}

/* Hands on what was read of the body before the request was let pass, in pieces and as fast as the application takes
 * them: it may be far more than a connection's buffers hold. */
static void upload_kept(hx_request *r)
{
    while (r->shadow.kept.len > 0 && !r->upload_held_back) {
        hx_slice piece = hx_slice_first(r->shadow.kept, KEPT_PIECE_BYTES);
        r->shadow.kept = hx_slice_from(r->shadow.kept, piece.len);
        upload(r->stream, piece, false);
    }
    if (r->upload_held_back || r->shadow.rest_state == HX_REST_NONE) return;
    bool is_last = r->shadow.rest_state == HX_REST_LAST;
    r->shadow.rest_state = HX_REST_NONE;
    upload(r->stream, r->shadow.rest, is_last);
}

static void upstream_drained(hx_exchange *exchange)
{
    hx_request *r = exchange->user;
    r->upload_held_back = false;
    if (r->body_state != HX_BODY_WHOLE) hx_request_stop_timer(r);
    upload_kept(r);
    if (!r->upload_held_back) hx_stream_resume(r->stream);
}

static hx_slice allowed(const hx_config *config, hx_slice protocol)
{
    for (size_t i = 0; i < config->upgrade_count; i++)
        if (hx_slice_eq_nocase(config->upgrades[i], protocol)) return config->upgrades[i];
    return HX_EMPTY;
}

/* The protocol that the application is asked to switch to: the first that the client asks for and the configuration
 * allows, on a GET that no route protects. What is inside a tunnel can't be seen. */
static hx_slice choose_upgrade(const hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    const hx_rules *rules = hx_request_rules(r);
    if (!head->upgrade || head->has_body || !hx_slice_eq(head->method, HX_LIT("GET"))) return HX_EMPTY;
    if (r->policy != &rules->policies->defaults && r->policy->mode == HX_MODE_PROTECT) return HX_EMPTY;
    for (size_t i = head->fields.first[HX_FIELD_UPGRADE]; i < head->fields.count; i++) {
        if (head->fields.items[i].id != HX_FIELD_UPGRADE) continue;
        hx_slice rest = head->fields.items[i].value, part, found;
        while (hx_slice_next(&rest, ',', &part))
            if ((found = allowed(rules->config, hx_slice_trim(part))).len > 0) return found;
    }
    return HX_EMPTY;
}

static void begin_tunnel_line(const hx_request *r, hx_log_event event)
{
    hx_log_begin(event);
    hx_log_str("path", r->stream->request.path);
    hx_log_str("protocol", r->upgrade);
    hx_log_str("peer", hx_peer_text(&r->stream->peer));
    hx_log_str("correlation_id", r->correlation);
}

static void open_tunnel(hx_request *r)
{
    r->stream->events.body = upload;
    hx_stream_tunnel(r->stream);
    hx_exchange_tunnel(&r->exchange);
    begin_tunnel_line(r, HX_EVENT_tunnel_opened);
    hx_log_end();
}

void hx_pass_log_tunnel_end(const hx_request *r)
{
    begin_tunnel_line(r, HX_EVENT_tunnel_closed);
    hx_log_int("duration_ms", hx_loop_now(r->worker->loop) - r->started_at);
    hx_log_int("bytes_from_client", (int64_t)r->tunnel.bytes_up);
    hx_log_int("bytes_from_application", (int64_t)r->tunnel.bytes_down);
    hx_log_end();
}

static bool is_repeatable(const hx_request *r)
{
    if (r->pass_kind == HX_PASS_SHADOW) return false; /* once, whatever comes */
    hx_slice method = r->stream->request.method;
    return hx_method_is_safe(method) || hx_slice_eq(method, HX_LIT("PUT")) || hx_slice_eq(method, HX_LIT("DELETE"));
}

/* A body that was streamed can't be sent again. */
static bool may_repeat_what_was_sent(const hx_request *r)
{
    bool is_kept = !r->stream->request.has_body || r->pass_kind == HX_PASS_KEPT;
    return r->policy->retry_safe && is_repeatable(r) && is_kept && r->upgrade.len == 0;
}

static bool is_transient(unsigned status)
{
    return status == 502 || status == 503 || status == 504;
}

static void download_head(hx_exchange *exchange, const hx_answer_head *head)
{
    hx_request *r = exchange->user;
    r->exchange_state = HX_EXCHANGE_ANSWERING;
    r->answer_status = head->status;
    hx_request_stop_timer(r);
    if (r->pass_kind == HX_PASS_SHADOW) hx_shadow_answered(r, head);
    if (is_transient(head->status) && may_repeat_what_was_sent(r)) {
        r->answer_retry_after = hx_answer_retry_after(r, &head->fields);
        if (hx_request_schedule_retry(r)) {
            hx_request_run(r);
            return;
        }
        r->retry_after = 0; /* the application's own is among its lines */
    }
    hx_slice protocol = hx_fields_get(&head->fields, HX_FIELD_UPGRADE);
    bool is_what_was_asked = r->upgrade.len > 0 && head->fields.lines[HX_FIELD_UPGRADE] == 1 &&
                             hx_slice_eq_nocase(protocol, r->upgrade);
    if (head->status == 101 && !is_what_was_asked) {
        hx_request_call_off(r, HX_UPSTREAM_BROKEN);
        return;
    }
    hx_buf all = hx_answer_lines(r, &head->fields, true);
    hx_reply_lines(r, &all);
    hx_slice lines = hx_buf_slice(&all);
    r->reply_status = head->status;
    hx_request_note_reply(r);
    if (head->status == 101) {
        lines = hx_arena_printf(r->arena, "Upgrade: %.*s\r\n%.*s", HX_FMT(protocol), HX_FMT(lines));
        hx_stream_begin(r->stream, 101, head->reason, lines, -1);
        open_tunnel(r);
        if (r->worker->draining) hx_request_run(r); /* it began before, and ends at once */
        return;
    }
    hx_stream_begin(r->stream, head->status, head->reason, lines, head->content_length);
}

static void download(hx_exchange *exchange, hx_slice piece)
{
    hx_request *r = exchange->user;
    if (hx_pass_is_tunnel(r)) r->tunnel.bytes_down += piece.len;
    r->tunnel.is_held_back = !hx_stream_write(r->stream, piece);
    if (r->tunnel.is_held_back) hx_exchange_pause(exchange);
    expect_rest_of_tunnel(r);
}

static const hx_exchange_events pass_events = {.head = download_head,
                                               .body = download,
                                               .end = hx_request_answer_whole,
                                               .failed = hx_request_answer_failed,
                                               .drained = upstream_drained};

/* The body as it comes, behind what was already read of it, if anything was. */
static void start_upload(hx_request *r)
{
    bool is_fresh = r->body_state == HX_BODY_UNREAD;
    r->body_state = HX_BODY_READING;
    r->stream->events.body = upload;
    r->stream->events.broken = upload_broken;
    if (is_fresh) {
        hx_stream_read(r->stream);
        return;
    }
    if (r->body.len > 0 &&
        !hx_body_whole(&r->body, &r->shadow.kept)) { /* it can't be read back from where it was spooled */
        hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
        return;
    }
    upload_kept(r);
}

static hx_step_result start(hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    bool is_whole = r->body_state == HX_BODY_WHOLE;
    bool is_streamed = head->has_body && !is_whole;
    r->upgrade = choose_upgrade(r);
    r->exchange = (hx_exchange){
        .arena = r->arena,
        .events = &pass_events,
        .user = r,
        .body = is_whole && r->body.len > 0 ? r->fingerprint_input.body : HX_EMPTY,
        .body_streamed = is_streamed,
        .answer_has_no_body = hx_slice_eq(head->method, HX_LIT("HEAD")),
        .repeatable = hx_method_is_safe(head->method) && !head->has_body,
        .pooled_idle_max = INT64_MAX,
    };
    hx_head_forward(r, false, &r->exchange);
    hx_forward_send(r, false);
    if (is_streamed)
        start_upload(r);
    else
        expect_answer(r);
    r->stream->events.drained = client_drained;
    return HX_PARKED;
}

static hx_step_result start_again(hx_request *r)
{
    bool is_streamed = r->stream->request.has_body && r->pass_kind != HX_PASS_KEPT;
    if (!is_streamed) hx_head_forward(r, false, &r->exchange); /* the client has less time by now */
    hx_forward_send(r, is_streamed && hx_exchange_may_repeat(&r->exchange));
    if (r->body_state != HX_BODY_READING || r->upload_held_back) expect_answer(r);
    return HX_PARKED;
}

static bool tries_again(hx_request *r)
{
    if (hx_request_is_replied(r) || hx_request_client_is_gone(r) || r->timed_out || r->body_state == HX_BODY_BROKEN)
        return false;
    bool was_sent = !hx_exchange_may_repeat(&r->exchange);
    if (was_sent ? !may_repeat_what_was_sent(r) : !is_repeatable(r)) return false;
    return hx_request_schedule_retry(r);
}

/* The exchange ended without a whole answer. */
static hx_step_result broken_off(hx_request *r)
{
    if (tries_again(r)) return hx_request_go(r, HX_STEP_retry);
    if (hx_request_is_replied(r)) {
        if (hx_pass_is_tunnel(r) && r->worker->draining && !hx_request_client_is_gone(r))
            hx_stream_end(r->stream); /* what was sent arrives before the end */
        else
            hx_stream_abort(r->stream);
        return hx_request_go(r, hx_request_end_step(r));
    }
    if (r->body_state == HX_BODY_BROKEN) {
        if (r->body_error_status == 0) return hx_request_go(r, hx_request_end_step(r));
        unsigned status = r->body_error_status;
        hx_step_result progress = hx_request_refuse(r, hx_problem_malformed(status), hx_slice_of(r->body_error_detail));
        r->reply_status = status;
        return progress;
    }
    r->idempotency = HX_IDEMPOTENCY_NOTHING; /* that it was bypassed is said of answers, not of errors */
    hx_slice detail = hx_arena_printf(r->arena, "Request to the upstream: %s.",
                                      hx_upstream_error_text(r->exchange_error));
    if (r->exchange.bytes_sent == 0 && hx_request_time_left(r) == 0)
        return hx_request_refuse(r, HX_ERROR_BUDGET_OVER, detail);
    if (r->exchange.bytes_sent == 0) return hx_request_refuse(r, HX_ERROR_UPSTREAM_UNREACHABLE, detail);
    if (r->timed_out) return hx_request_refuse(r, HX_ERROR_UNKEYED_TIMEOUT, HX_EMPTY);
    return hx_request_refuse(r, HX_ERROR_UNKEYED_BROKEN, detail);
}

hx_step_result hx_step_pass(hx_request *r)
{
    if (r->pass_kind == HX_PASS_SHADOW) hx_shadow_look(r);
    switch (r->exchange_state) {
    case HX_EXCHANGE_NONE:
        if (hx_request_client_is_gone(r)) return hx_request_go(r, hx_request_end_step(r));
        return r->attempts == 0 ? start(r) : start_again(r);
    case HX_EXCHANGE_WHOLE: hx_stream_end(r->stream); return hx_request_go(r, hx_request_end_step(r));
    case HX_EXCHANGE_FAILED: return broken_off(r);
    default: break;
    }
    if (r->reservation.from != HX_RESERVED_NOTHING) return hx_request_go(r, HX_STEP_retry); /* by its status */
    r->timed_out = r->timed_out || r->timer_rang;
    bool is_drained = r->worker->draining && hx_pass_is_tunnel(r);
    bool over = is_drained || hx_request_client_is_gone(r) || r->timed_out || r->body_state == HX_BODY_BROKEN;
    if (over) hx_request_call_off(r, HX_UPSTREAM_CANCELLED);
    return HX_PARKED;
}
