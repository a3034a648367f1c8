/* SPDX-License-Identifier: Apache-2.0 */
/* Asking the application: one attempt. The claim is durable by now. The answer is collected whole before anything is
 * decided; one that is too large or endless is recorded by its head alone and then handed on.
 * A client that leaves changes nothing here: what was sent is finished and recorded. */
#include "gateway/parts/memory_budget.h"

#include "base/log.h"
#include "core/operation/identity.h"
#include "core/retry/retry_after.h"

#include <arpa/inet.h>
#include <string.h>

/* Of a keyed request: its answer must fit every later client. */
static bool is_withheld_when_keyed(hx_field_id id)
{
    return id == HX_FIELD_ACCEPT_ENCODING || id == HX_FIELD_RANGE || id == HX_FIELD_IF_RANGE ||
           id == HX_FIELD_X_REQUEST_TIMEOUT;
}

/* How the name begins, for applications that can't tell it from ours, and would take the client's word for it. */
static bool is_named_like(const hx_field *field, hx_slice beginning)
{
    return field->name.len >= beginning.len &&
           hx_fields_named_alike(hx_slice_first(field->name, beginning.len), beginning);
}

/* A header that the route names, by its index, or something empty; false behind the last. */
static bool named_by(const hx_policy *policy, size_t i, hx_slice *name)
{
    *name = HX_EMPTY;
    if (i < policy->principal_count) {
        if (policy->principals[i].kind == HX_PRINCIPAL_HEADER) *name = policy->principals[i].name;
        return true;
    }
    i -= policy->principal_count;
    if (i < policy->fingerprint.header_count) {
        *name = policy->fingerprint.headers[i];
        return true;
    }
    i -= policy->fingerprint.header_count;
    if (!policy->key.from || i >= policy->key.from->count) return false;
    const hx_template_part *part = &policy->key.from->parts[i];
    if (part->kind == HX_TEMPLATE_HEADER) *name = part->argument;
    return true;
}

/* Whether an odd field is another spelling of one that Hapax goes by: what it says was not counted here, and the
 * application must not count it either. */
static bool is_alias(const hx_policy *policy, const hx_field *field)
{
    bool is_like_one = false;
    hx_slice name;
    for (size_t i = 0; named_by(policy, i, &name); i++) {
        if (hx_slice_eq_nocase(field->name, name)) return false; /* the route means this very spelling */
        is_like_one = is_like_one || hx_fields_named_alike(field->name, name);
    }
    return is_like_one || hx_field_reads_as(field) != HX_FIELD_OTHER;
}

/* `trusted`: the client is a proxy whose word on where the request came from counts. */
static bool is_replaced(const hx_request *r, const hx_field *field, bool trusted)
{
    switch (field->id) {
    case HX_FIELD_FORWARDED:
    case HX_FIELD_X_FORWARDED_FOR:
    case HX_FIELD_TRACEPARENT:
    case HX_FIELD_X_CORRELATION_ID:
    case HX_FIELD_HAPAX_OUTCOME: return true;
    case HX_FIELD_TRACESTATE: return !r->trace_continues;
    case HX_FIELD_X_FORWARDED_HOST:
    case HX_FIELD_X_FORWARDED_PROTO: return !trusted;
    case HX_FIELD_OTHER:
        if ((field->flags & HX_FIELD_ODD) && is_alias(r->policy, field)) return true;
        return (!trusted && is_named_like(field, HX_LIT("x-forwarded-"))) || is_named_like(field, HX_LIT("hapax-"));
    default: return false;
    }
}

static bool is_inside(const hx_network *network, const uint8_t address[16])
{
    size_t whole = network->bits / 8u, rest = network->bits % 8u;
    if (memcmp(network->bytes, address, whole) != 0) return false;
    return rest == 0 || ((network->bytes[whole] ^ address[whole]) >> (8u - rest)) == 0;
}

/* Whether the peer is one of `trusted_proxies`. One on a unix socket has no address, and isn't. */
static bool is_trusted(const hx_request *r)
{
    const hx_config *config = hx_request_rules(r)->config;
    uint8_t address[16] = {[10] = 0xff, [11] = 0xff}; /* IPv4 as ::ffff:a.b.c.d */
    char text[64];
    hx_slice peer = r->stream->peer;
    if (config->trusted_proxy_count == 0 || peer.len >= sizeof text) return false;
    memcpy(text, peer.ptr, peer.len);
    text[peer.len] = '\0';
    if (inet_pton(AF_INET, text, address + 12) != 1 && inet_pton(AF_INET6, text, address) != 1) return false;
    for (size_t i = 0; i < config->trusted_proxy_count; i++)
        if (is_inside(&config->trusted_proxies[i], address)) return true;
    return false;
}

void hx_forward_mark_withheld(hx_request *r)
{
    hx_fields *fields = &r->stream->request.fields;
    bool trusted = is_trusted(r);
    for (size_t i = 0; i < fields->count; i++)
        if (is_replaced(r, &fields->items[i], trusted)) fields->items[i].flags |= HX_FIELD_WITHHELD;
}

/* "Name: " and, of one who is trusted, what it said before us. */
static void begin_list(const hx_request *r, hx_field_id id, const char *name, bool trusted, hx_buf *out)
{
    const hx_fields *fields = &r->stream->request.fields;
    hx_buf_puts(out, name);
    hx_buf_puts(out, ": ");
    if (!trusted || fields->lines[id] == 0) return;
    for (size_t i = fields->first[id]; i < fields->count; i++) {
        if (fields->items[i].id != id || fields->items[i].value.len == 0) continue;
        hx_buf_put(out, fields->items[i].value);
        hx_buf_puts(out, ", ");
    }
}

static void put_forwarded(const hx_request *r, bool trusted, hx_buf *out)
{
    const hx_fields *fields = &r->stream->request.fields;
    hx_slice host = hx_fields_get(fields, HX_FIELD_HOST);
    hx_slice peer = hx_slice_eq(r->stream->peer, HX_PEER_UNIX) ? HX_LIT("unknown") : r->stream->peer;
    bool is_v6 = hx_slice_find(peer, ':') != SIZE_MAX;
    begin_list(r, HX_FIELD_FORWARDED, "Forwarded", trusted, out);
    hx_buf_puts(out, is_v6 ? "for=\"[" : "for=");
    hx_buf_put(out, peer);
    hx_buf_puts(out, is_v6 ? "]\";host=\"" : ";host=\"");
    hx_buf_put(out, host);
    hx_buf_puts(out, "\";proto=");
    hx_buf_put(out, r->stream->scheme);
    hx_buf_puts(out, "\r\n");
    begin_list(r, HX_FIELD_X_FORWARDED_FOR, "X-Forwarded-For", trusted, out);
    hx_buf_put(out, peer);
    hx_buf_puts(out, "\r\n");
    if (!trusted || fields->lines[HX_FIELD_X_FORWARDED_HOST] == 0)
        hx_field_write(out, HX_LIT("X-Forwarded-Host"), host);
    if (!trusted || fields->lines[HX_FIELD_X_FORWARDED_PROTO] == 0)
        hx_field_write(out, HX_LIT("X-Forwarded-Proto"), r->stream->scheme);
}

/* The application gets a key that is ours instead of the client's. */
static bool is_key_ours(const hx_request *r)
{
    return r->natural || r->policy->forward_key == HX_FORWARD_KEY_SCOPED;
}

hx_slice hx_forwarded_key(const hx_request *r)
{
    if (r->policy->forward_key != HX_FORWARD_KEY_SCOPED) return r->key;
    hx_buf text;
    hx_buf_init(&text, r->arena, 2 * sizeof r->op.bytes);
    hx_buf_put_hex(&text, r->op.bytes, sizeof r->op.bytes);
    return hx_buf_slice(&text);
}

/* As a string of RFC 8941. */
static void put_quoted(hx_slice key, hx_buf *out)
{
    hx_buf_puts(out, "\"");
    for (size_t i = 0; i < key.len; i++) {
        if (key.ptr[i] == '"' || key.ptr[i] == '\\') hx_buf_puts(out, "\\");
        hx_buf_put(out, hx_slice_first(hx_slice_from(key, i), 1));
    }
    hx_buf_puts(out, "\"");
}

/* One of ours, or the client's as it was first spelled. */
static void put_key(const hx_request *r, hx_buf *out)
{
    bool is_quoted = is_key_ours(r) ? r->policy->dialect == HX_DIALECT_IETF : r->record.key_quoted;
    hx_buf_puts(out, "Idempotency-Key: ");
    if (is_quoted)
        put_quoted(hx_forwarded_key(r), out);
    else
        hx_buf_put(out, hx_forwarded_key(r));
    if (!is_key_ours(r)) hx_buf_put(out, r->record.key_parameters);
    hx_buf_puts(out, "\r\n");
}

/* An operation that is taken over goes up as it went before, however it is spelled now. */
static bool is_key_written_anew(const hx_request *r)
{
    return r->key.len > 0 && (is_key_ours(r) || r->taken_over_epoch > 0);
}

static void put_operation(const hx_request *r, hx_buf *out)
{
    if (is_key_written_anew(r)) put_key(r, out);
    hx_buf_puts(out, "Accept-Encoding: identity\r\nHapax-Attempt: ");
    hx_buf_put_decimal(out, r->record.attempt);
    hx_buf_puts(out, "\r\nHapax-Operation: ");
    hx_buf_put_hex(out, r->op.bytes, sizeof r->op.bytes);
    hx_buf_puts(out, ".");
    hx_buf_put_decimal(out, r->record.epoch);
    hx_buf_puts(out, "\r\n");
}

/* What is left of the client's time. */
static void put_patience(const hx_request *r, hx_buf *out)
{
    char budget[HX_TIMEOUT_BYTES];
    hx_slice left = hx_timeout_text(r->patience, hx_loop_now(r->worker->loop) - r->started_at, budget);
    if (left.len > 0) hx_field_write(out, HX_LIT("X-Request-Timeout"), left);
}

static void put_trace(const hx_request *r, hx_buf *out)
{
    hx_field_write(out, HX_LIT("traceparent"), (hx_slice){r->traceparent, 55});
    hx_field_write(out, HX_LIT("X-Correlation-Id"), r->correlation);
}

static void set_framing(const hx_request *r, bool keyed, hx_exchange *exchange)
{
    const hx_request_head *head = &r->stream->request;
    bool is_whole = keyed || r->body_state == HX_BODY_WHOLE;
    exchange->framing = HX_FRAMING_NONE;
    if (!is_whole && head->chunked) {
        exchange->framing = HX_FRAMING_CHUNKED;
    } else if (head->has_body || head->content_length >= 0) {
        exchange->framing = HX_FRAMING_LENGTH;
        exchange->content_length = is_whole ? r->body.len : (uint64_t)head->content_length;
    }
}

/* After a body that it may leave unread, the application must not read on for another request: what it would find there
 * would be executed. */
static bool asks_to_close(const hx_request *r, hx_request_body body_kind)
{
    return !hx_request_rules(r)->config->upstream_keepalive || body_kind == HX_REQUEST_BODY_UNUSUAL;
}

static void put_lines(hx_request *r, bool keyed, hx_buf *out)
{
    const hx_request_head *head = &r->stream->request;
    bool trusted = is_trusted(r);
    if (head->fields.lines[HX_FIELD_HOST] == 0)
        hx_field_write(out, HX_LIT("Host"), hx_upstream_host(r->worker->upstreams[r->policy->upstream]));
    for (size_t i = 0; i < head->fields.count; i++) {
        const hx_field *field = &head->fields.items[i];
        if ((field->flags & (HX_FIELD_HOP | HX_FIELD_FRAMING)) != 0 || is_replaced(r, field, trusted)) continue;
        if (keyed && is_withheld_when_keyed(field->id)) continue;
        if (field->id == HX_FIELD_X_REQUEST_TIMEOUT && r->patience.span != HX_TIMEOUT_NONE) continue;
        if ((keyed || r->pass_kind == HX_PASS_BYPASS) && field->id == HX_FIELD_IDEMPOTENCY_KEY &&
            is_key_written_anew(r))
            continue;
        hx_field_write(out, field->name, field->value);
    }
    put_forwarded(r, trusted, out);
    put_trace(r, out);
    put_patience(r, out);
    if (keyed) put_operation(r, out);
    if (r->pass_kind == HX_PASS_BYPASS && is_key_written_anew(r)) put_key(r, out);
}

void hx_forward_head(hx_request *r, bool keyed, hx_exchange *exchange)
{
    hx_buf lines;
    hx_buf_init(&lines, r->arena, 256u * 1024u);
    put_lines(r, keyed, &lines);
    exchange->method = r->stream->request.method;
    exchange->target = r->stream->request.target;
    exchange->header_lines = hx_buf_slice(&lines);
    exchange->upgrade = r->upgrade;
    exchange->body_kind = hx_forward_body_kind(r);
    exchange->close = asks_to_close(r, exchange->body_kind);
    set_framing(r, keyed, exchange);
}

/* Of the request that a probe asks on behalf of: what describes its body, and its conditions. */
static bool is_of_the_body(const hx_field *field)
{
    const hx_slice digest = HX_LIT("digest");
    hx_slice name = field->name, end = name.len < digest.len ? name : hx_slice_from(name, name.len - digest.len);
    return field->id == HX_FIELD_IDEMPOTENCY_KEY || hx_slice_starts_nocase(name, HX_LIT("content-")) ||
           hx_slice_starts_nocase(name, HX_LIT("if-")) || hx_slice_eq_nocase(end, digest);
}

/* What may be signed with a credential, or describes what was; none of it is a credential itself. */
static bool may_be_signed(const hx_field *field)
{
    static const char *const beginnings[] = {"x-amz-", "content-", "digest", "repr-digest", "date"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (hx_slice_starts_nocase(field->name, hx_slice_of(beginnings[i]))) return true;
    return field->id == HX_FIELD_HOST;
}

/* A question about the caller carries the credential by which it was told, and no other: the application might go by
 * that one, and vouch for somebody else. */
static void put_credential(const hx_request *r, hx_buf *out)
{
    const hx_fields *fields = &r->stream->request.fields;
    hx_slice value = HX_EMPTY;
    switch (r->source->kind) {
    case HX_PRINCIPAL_AUTHORIZATION:
    case HX_PRINCIPAL_JWT_CLAIM:
        hx_field_write(out, HX_LIT("Authorization"), hx_fields_get(fields, HX_FIELD_AUTHORIZATION));
        break;
    case HX_PRINCIPAL_HEADER:
        hx_field_write(out, r->source->name, hx_fields_find(fields, r->source->name)->value);
        break;
    case HX_PRINCIPAL_COOKIE:
        if (hx_cookie_value(hx_fields_get(fields, HX_FIELD_COOKIE), r->source->name, &value) == 1)
            hx_field_write(out, HX_LIT("Cookie"),
                           hx_arena_printf(r->arena, "%.*s=%.*s", HX_FMT(r->source->name), HX_FMT(value)));
        break;
    }
    hx_field_write(out, HX_LIT("X-Original-Method"), r->stream->request.method);
    hx_field_write(out, HX_LIT("X-Original-URI"), r->stream->request.target);
}

static void put_question_lines(hx_request *r, hx_question about, hx_buf *out)
{
    const hx_fields *fields = &r->stream->request.fields;
    bool trusted = is_trusted(r);
    if (fields->lines[HX_FIELD_HOST] == 0)
        hx_field_write(out, HX_LIT("Host"), hx_upstream_host(r->worker->upstreams[r->policy->upstream]));
    for (size_t i = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        if ((field->flags & (HX_FIELD_HOP | HX_FIELD_FRAMING)) != 0 || is_replaced(r, field, trusted)) continue;
        if (is_withheld_when_keyed(field->id)) continue;
        if (about == HX_ASKS_ABOUT_THE_OPERATION && is_of_the_body(field)) continue;
        if (about == HX_ASKS_ABOUT_THE_CALLER && !may_be_signed(field)) continue;
        hx_field_write(out, field->name, field->value);
    }
    if (about == HX_ASKS_ABOUT_THE_CALLER) put_credential(r, out);
    put_forwarded(r, trusted, out);
    put_trace(r, out);
    hx_buf_puts(out, "Accept-Encoding: identity\r\n");
}

void hx_forward_question(hx_request *r, hx_slice method, hx_slice target, hx_question about, hx_exchange *exchange)
{
    hx_buf lines;
    hx_buf_init(&lines, r->arena, 256u * 1024u);
    put_question_lines(r, about, &lines);
    exchange->method = method;
    exchange->target = target;
    exchange->header_lines = hx_buf_slice(&lines);
    exchange->close = asks_to_close(r, HX_REQUEST_BODY_NONE);
    exchange->answer_has_no_body = hx_slice_eq(method, HX_LIT("HEAD"));
}

bool hx_forward_is_ours(const hx_request *r, const hx_field *field)
{
    switch (field->id) {
    case HX_FIELD_IDEMPOTENCY_STATUS:
    case HX_FIELD_IDEMPOTENCY_EXPIRES:
    case HX_FIELD_IDEMPOTENT_REPLAYED:
    case HX_FIELD_ORIGINAL_REQUEST_TIME:
    case HX_FIELD_ERROR_CODE:
    case HX_FIELD_X_CORRELATION_ID:
    case HX_FIELD_HAPAX_OUTCOME: return true;
    case HX_FIELD_OTHER:
        if (hx_slice_starts_nocase(field->name, HX_LIT("hapax-"))) return true;
        return hx_request_is_claimed(r) && r->policy->dialect == HX_DIALECT_STRIPE &&
               hx_slice_eq_nocase(field->name, HX_LIT("stripe-should-retry"));
    default: return false;
    }
}

/* What only the first client gets. */
static bool is_never_kept(const hx_policy *policy, const hx_field *field)
{
    if (field->id == HX_FIELD_SET_COOKIE) return true;
    for (size_t i = 0; i < policy->deny_header_count; i++)
        if (hx_slice_eq_nocase(policy->deny_headers[i], field->name)) return true;
    return false;
}

static size_t lines_len(const hx_fields *fields)
{
    size_t len = HX_OUR_LINES_MAX;
    for (size_t i = 0; i < fields->count; i++) len += fields->items[i].name.len + fields->items[i].value.len + 4;
    return len;
}

hx_slice hx_forward_lines(hx_request *r, const hx_fields *fields, bool whole, bool with_ours)
{
    hx_buf lines;
    bool has_date = false;
    hx_buf_init(&lines, r->arena, lines_len(fields));
    for (size_t i = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        if ((field->flags & (HX_FIELD_HOP | HX_FIELD_FRAMING)) != 0 || hx_forward_is_ours(r, field)) continue;
        if (!whole && is_never_kept(r->policy, field)) continue;
        if (field->id == HX_FIELD_DATE) has_date = true;
        hx_field_write(&lines, field->name, field->value);
    }
    if (!has_date) {
        char date[HX_HTTP_DATE_BYTES];
        hx_field_write(&lines, HX_LIT("Date"), hx_http_date(hx_clock_wall(), date));
    }
    if (with_ours) hx_reply_lines(r, &lines);
    return hx_buf_slice(&lines);
}

static void keep_word(hx_request *r, const hx_fields *fields)
{
    hx_slice value = hx_fields_get(fields, HX_FIELD_HAPAX_OUTCOME);
    if (fields->lines[HX_FIELD_HAPAX_OUTCOME] == 0) return;
    if (fields->lines[HX_FIELD_HAPAX_OUTCOME] == 1 && hx_outcome_word_parse(value, &r->answer_word)) {
        if (r->answer_word == HX_WORD_RELEASE && r->answer_status < 300)
            hx_worker_count(r->worker, HX_COUNT_IGNORED_RELEASE);
        return;
    }
    hx_worker_count(r->worker, HX_COUNT_BAD_OUTCOME_WORD);
    hx_log_begin(HX_EVENT_outcome_header_invalid);
    hx_log_str("value", value);
    hx_log_str("path", r->path);
    hx_log_end();
}

/* By the clock of who answered, which is the one that it writes dates by; else by the wall's, for ours doesn't follow
 * when that is set. */
static hx_ms now_of(const hx_fields *fields)
{
    hx_ms wall = hx_clock_wall(), theirs;
    return hx_retry_after_date(hx_fields_get(fields, HX_FIELD_DATE), wall, &theirs) ? theirs : wall;
}

hx_ms hx_forward_retry_after(hx_request *r, const hx_fields *fields)
{
    if (fields->lines[HX_FIELD_RETRY_AFTER] == 0) return HX_RETRY_AFTER_NONE;
    hx_slice value = HX_EMPTY;
    hx_ms after = HX_RETRY_AFTER_NONE, now = now_of(fields);
    for (size_t i = fields->first[HX_FIELD_RETRY_AFTER]; i < fields->count; i++) { /* the latest of several */
        if (fields->items[i].id != HX_FIELD_RETRY_AFTER) continue;
        hx_ms one = hx_retry_after(fields->items[i].value, now, HX_RETRY_AFTER_MAX);
        if (one > after) after = one;
        value = fields->items[i].value;
    }
    if (after != HX_RETRY_AFTER_NONE) return after;
    hx_worker_count(r->worker, HX_COUNT_BAD_RETRY_AFTER);
    hx_log_begin(HX_EVENT_retry_after_invalid);
    hx_log_str("value", value);
    hx_log_str("path", r->path);
    hx_log_end();
    return HX_RETRY_AFTER_NONE;
}

static void keep_head(hx_request *r, const hx_answer_head *head)
{
    r->answer_status = head->status;
    r->answer_length = head->content_length;
    r->answer_retry_after = hx_forward_retry_after(r, &head->fields);
    keep_word(r, &head->fields);
    r->lines_kept = hx_forward_lines(r, &head->fields, false, false);
    bool differ = head->fields.lines[HX_FIELD_SET_COOKIE] > 0 || r->policy->deny_header_count > 0;
    r->lines_first = differ ? hx_forward_lines(r, &head->fields, true, false) : r->lines_kept;
}

static bool is_event_stream(const hx_answer_head *head)
{
    return hx_slice_starts_nocase(hx_fields_get(&head->fields, HX_FIELD_CONTENT_TYPE), HX_LIT("text/event-stream"));
}

/* From here on the answer isn't kept: it stops flowing until its outcome is durable and the client can have it. */
static void stop_keeping(hx_request *r)
{
    r->answer_streamed = true;
    hx_exchange_pause(&r->exchange);
    hx_request_run(r);
}

static void answer_head(hx_exchange *exchange, const hx_answer_head *head)
{
    hx_request *r = exchange->user;
    r->exchange_state = HX_EXCHANGE_ANSWERING;
    keep_head(r, head);
    hx_memory_begin_answer(r, head->content_length);
    bool too_large = head->content_length > 0 && (uint64_t)head->content_length > r->policy->answer_bytes_max;
    bool has_body = !exchange->answer_has_no_body && head->status != 204 && head->status != 304;
    if (head->status == 101) {
        hx_request_call_off(r, HX_UPSTREAM_BROKEN); /* a protected request never asks for an upgrade */
    } else if (has_body && (too_large || is_event_stream(head))) {
        stop_keeping(r);
    }
}

/* What an exchange may still bring after it was held back. */
#define REST_BYTES_MAX (256u * 1024u)

static void answer_body(hx_exchange *exchange, hx_slice piece)
{
    hx_request *r = exchange->user;
    if (!r->answer_streamed && hx_body_append(&r->answer, piece) == HX_BODY_OK) return;
    /* What is over the limit, or finds no room in a file, is streamed; this is the first of it, and waits. */
    if (!r->answer_rest.arena) hx_buf_init(&r->answer_rest, r->arena, REST_BYTES_MAX);
    if (!hx_buf_append(&r->answer_rest, piece)) hx_request_call_off(r, HX_UPSTREAM_BROKEN);
    if (!r->answer_streamed) stop_keeping(r);
}

static const hx_exchange_events forward_events = {.head = answer_head,
                                                  .body = answer_body,
                                                  .end = hx_request_answer_whole,
                                                  .failed = hx_request_answer_failed};

void hx_forward_expect_answer(hx_request *r)
{
    hx_ms now = hx_loop_now(r->worker->loop), timeout = r->policy->upstream_timeout;
    hx_ms left = hx_request_patience_left(r);
    bool is_shorter = r->client != HX_CLIENT_ANSWERED_EARLY && left != HX_TIMEOUT_NONE && left < timeout;
    r->answer_due = now + timeout;
    r->timed_out = false;
    hx_request_start_timer(r, is_shorter ? left : timeout);
}

bool hx_forward_patience_ends(hx_request *r)
{
    return r->timer_rang && !hx_request_is_replied(r) && hx_loop_now(r->worker->loop) < r->answer_due;
}

void hx_forward_end_patience(hx_request *r)
{
    hx_request_start_timer(r, r->answer_due - hx_loop_now(r->worker->loop));
    r->retry_after = HX_SECOND;
    bool is_unsent = r->step == HX_STEP_forward && r->exchange.bytes_sent == 0 && r->earlier == HX_EARLIER_NOTHING;
    hx_reply_early(r, is_unsent ? HX_ERROR_BUDGET_OVER_UNSENT : HX_ERROR_UPSTREAM_TIMEOUT,
                   HX_LIT("The time that X-Request-Timeout gave is over; the operation goes on."));
}

bool hx_forward_sent_whole(const hx_request *r)
{
    return r->exchange.bytes_sent > 0 && r->exchange.bytes_sent == r->exchange.bytes_all;
}

void hx_forward_send(hx_request *r, bool repeat)
{
    hx_ms now = hx_loop_now(r->worker->loop);
    hx_worker_count(r->worker, HX_COUNT_ATTEMPTS);
    if (r->attempts++ == 0) {
        r->first_attempt_at = now;
        hx_retry_budget_request(hx_request_budget(r), now);
    }
    r->exchange_state = HX_EXCHANGE_OPEN;
    hx_upstream *upstream = r->worker->upstreams[r->policy->upstream];
    if (repeat)
        hx_exchange_repeat(upstream, &r->exchange);
    else
        hx_exchange_start(upstream, &r->exchange);
}

/* The claim took longer to become durable than its lease, so that it may be another's by now (a store that hung, a
 * process that was stopped), or than the client waits. Nothing of this attempt was sent, and nothing will be. */
static bool is_too_late(hx_request *r)
{
    hx_ms now = hx_loop_now(r->worker->loop);
    bool is_lease_over = now >= r->lease_until;
    bool is_timeout_over = r->attempts == 0 && hx_request_patience_left(r) == 0;
    r->unsent = is_timeout_over ? HX_UNSENT_TIMEOUT_OVER : is_lease_over ? HX_UNSENT_LEASE_OVER : HX_UNSENT_NOT;
    return r->unsent != HX_UNSENT_NOT;
}

static hx_step_result give_back(hx_request *r)
{
    hx_outcome first = r->earlier == HX_EARLIER_NOTHING ? HX_OUTCOME_NOT_EXECUTED : HX_OUTCOME_UNKNOWN;
    if (r->attempts == 0) r->verdict = (hx_verdict){.outcome = first};
    return hx_request_go(r, HX_STEP_settle);
}

hx_request_body hx_forward_body_kind(const hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    if (!head->has_body) return HX_REQUEST_BODY_NONE;
    bool is_usual = hx_slice_eq(head->method, HX_LIT("POST")) || hx_slice_eq(head->method, HX_LIT("PUT")) ||
                    hx_slice_eq(head->method, HX_LIT("PATCH"));
    return is_usual ? HX_REQUEST_BODY_USUAL : HX_REQUEST_BODY_UNUSUAL;
}

static hx_step_result start(hx_request *r)
{
    if (is_too_late(r)) return give_back(r);
    if (r->attempts_of_claim++ > 0 && r->record.attempt < UINT16_MAX) r->record.attempt++;
    r->exchange = (hx_exchange){
        .arena = r->arena,
        .events = &forward_events,
        .user = r,
        .body = r->fingerprint_input.body,
        .pooled_idle_max = HX_SECOND, /* a stale keep-alive would be an unknown */
    };
    hx_forward_head(r, true, &r->exchange);
    r->answer_retry_after = HX_RETRY_AFTER_NONE;
    r->answer_word = HX_WORD_NONE;
    hx_forward_send(r, false);
    hx_forward_expect_answer(r);
    return HX_PARKED;
}

hx_step_result hx_step_forward(hx_request *r)
{
    if (r->exchange_state == HX_EXCHANGE_NONE) return start(r);
    if (r->exchange_state >= HX_EXCHANGE_WHOLE || r->answer_streamed) return hx_request_go(r, HX_STEP_judge);
    if (!r->timer_rang) return HX_PARKED;
    if (hx_forward_patience_ends(r)) {
        hx_forward_end_patience(r);
        return HX_PARKED;
    }
    r->timed_out = true;
    if (hx_forward_sent_whole(r)) return hx_request_go(r, HX_STEP_judge);
    /* Where not one byte was sent, none will be: provably nothing happened. Where some were, the rest must not follow
     * once the operation is called unknown: half a request can't be executed later. */
    hx_request_call_off(r, r->exchange.bytes_sent > 0 ? HX_UPSTREAM_CANCELLED : HX_UPSTREAM_CONNECT_TIMEOUT);
    return HX_PARKED;
}
