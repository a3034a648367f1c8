/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/messages/upstream_head.h"

#include "core/operation/identity.h"

#include <string.h>

/* Fields that a keyed request is forwarded without: its response must fit every later client. */
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

/* Whether the peer is one of `trusted_proxies`. One on a unix socket has no address, and isn't. */
static bool is_trusted(const hx_request *r)
{
    const hx_config *config = hx_request_rules(r)->config;
    const hx_peer *peer = &r->stream->peer;
    if (peer->kind != HX_PEER_ADDRESS) return false;
    for (size_t i = 0; i < config->trusted_proxy_count; i++)
        if (hx_network_contains(&config->trusted_proxies[i], peer->address)) return true;
    return false;
}

void hx_head_mark_withheld(hx_request *r)
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
    const hx_peer *client = &r->stream->peer;
    hx_slice peer = client->kind == HX_PEER_ADDRESS ? hx_peer_text(client) : HX_LIT("unknown");
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

hx_slice hx_head_key(const hx_request *r)
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
        put_quoted(hx_head_key(r), out);
    else
        hx_buf_put(out, hx_head_key(r));
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

/* The rest of the client's request timeout. */
static void put_timeout(const hx_request *r, hx_buf *out)
{
    char budget[HX_TIMEOUT_BYTES];
    hx_slice left = hx_timeout_text(r->request_timeout, hx_loop_now(r->worker->loop) - r->started_at, budget);
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

hx_request_body hx_head_body_kind(const hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    if (!head->has_body) return HX_REQUEST_BODY_NONE;
    bool is_usual = hx_slice_eq(head->method, HX_LIT("POST")) || hx_slice_eq(head->method, HX_LIT("PUT")) ||
                    hx_slice_eq(head->method, HX_LIT("PATCH"));
    return is_usual ? HX_REQUEST_BODY_USUAL : HX_REQUEST_BODY_UNUSUAL;
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
        if (field->id == HX_FIELD_X_REQUEST_TIMEOUT && r->request_timeout.span != HX_TIMEOUT_NONE) continue;
        if ((keyed || r->pass_kind == HX_PASS_BYPASS) && field->id == HX_FIELD_IDEMPOTENCY_KEY &&
            is_key_written_anew(r))
            continue;
        hx_field_write(out, field->name, field->value);
    }
    put_forwarded(r, trusted, out);
    put_trace(r, out);
    put_timeout(r, out);
    if (keyed) put_operation(r, out);
    if (r->pass_kind == HX_PASS_BYPASS && is_key_written_anew(r)) put_key(r, out);
}

void hx_head_forward(hx_request *r, bool keyed, hx_exchange *exchange)
{
    hx_buf lines;
    hx_buf_init(&lines, r->arena, 256u * 1024u);
    put_lines(r, keyed, &lines);
    exchange->method = r->stream->request.method;
    exchange->target = r->stream->request.target;
    exchange->header_lines = hx_buf_slice(&lines);
    exchange->upgrade = r->upgrade;
    exchange->body_kind = hx_head_body_kind(r);
    exchange->close = asks_to_close(r, exchange->body_kind);
    set_framing(r, keyed, exchange);
}

/* Fields that describe the body of the original request, or its conditions: a probe goes without. */
static bool is_of_the_body(const hx_field *field)
{
    const hx_slice digest = HX_LIT("digest");
    hx_slice name = field->name, end = name.len < digest.len ? name : hx_slice_from(name, name.len - digest.len);
    return field->id == HX_FIELD_IDEMPOTENCY_KEY || hx_slice_starts_nocase(name, HX_LIT("content-")) ||
           hx_slice_starts_nocase(name, HX_LIT("if-")) || hx_slice_eq_nocase(end, digest);
}

/* Fields that may be covered by a signature, or describe one; none of them is a credential itself. */
static bool may_be_signed(const hx_field *field)
{
    static const char *const beginnings[] = {"x-amz-", "content-", "digest", "repr-digest", "date"};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (hx_slice_starts_nocase(field->name, hx_slice_of(beginnings[i]))) return true;
    return field->id == HX_FIELD_HOST;
}

/* A question about the caller carries the credential that identified it, and no other: the upstream might go by
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

void hx_head_question(hx_request *r, hx_slice method, hx_slice target, hx_question about, hx_exchange *exchange)
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
