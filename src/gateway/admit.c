/* SPDX-License-Identifier: Apache-2.0 */
/* The first step: which rules apply, is there a key and is it valid, who asks, and, once the body is whole, what
 * exactly is asked. Nothing here has an effect; a malformed key never runs unprotected. */
#include "gateway/request.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "core/identity.h"

#include <stdatomic.h>
#include <string.h>

static void put_hex(char *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
}

static bool is_lower_hex(hx_slice s)
{
    bool all_zero = true;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
        all_zero = all_zero && c == '0';
    }
    return !all_zero;
}

/* The trace id of a valid traceparent, version 00 or later. */
static bool trace_of(hx_slice value, hx_slice *trace)
{
    if (value.len < 55 || (value.len > 55 && value.ptr[55] != '-')) return false;
    hx_slice version = hx_slice_first(value, 2);
    if (value.ptr[2] != '-' || value.ptr[35] != '-' || value.ptr[52] != '-') return false;
    if (hx_slice_eq(version, HX_LIT("ff"))) return false;
    if (hx_slice_eq(version, HX_LIT("00")) && value.len != 55) return false;
    *trace = (hx_slice){value.ptr + 3, 32};
    return is_lower_hex(*trace) && is_lower_hex((hx_slice){value.ptr + 36, 16});
}

static bool is_correlation(hx_slice value)
{
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] < 0x21 || value.ptr[i] > 0x7e) return false;
    return value.len > 0 && value.len <= 128;
}

/* The request goes on under the client's trace, or a new one; and under the client's correlation id, or the trace's. */
static void choose_trace(hx_request *r)
{
    const hx_fields *fields = &r->stream->request.fields;
    uint8_t random[24];
    hx_slice trace;
    hx_rand_bytes(random, sizeof random);
    memcpy(r->traceparent, "00-", 3);
    put_hex(r->traceparent + 3, random, 16);
    r->traceparent[35] = '-';
    put_hex(r->traceparent + 36, random + 16, 8);
    memcpy(r->traceparent + 52, "-00", 4);
    hx_slice given = hx_fields_get(fields, HX_FIELD_TRACEPARENT);
    if (fields->lines[HX_FIELD_TRACEPARENT] == 1 && trace_of(given, &trace)) {
        memcpy(r->traceparent + 3, trace.ptr, 32);
        memcpy(r->traceparent + 53, given.ptr + 53, 2);
    }
    hx_slice correlation = hx_fields_get(fields, HX_FIELD_X_CORRELATION_ID);
    r->correlation = is_correlation(correlation) ? correlation : (hx_slice){r->traceparent + 3, 32};
}

static bool method_wants_key(const hx_policy *policy, hx_slice method)
{
    if (hx_slice_eq(method, HX_LIT("PUT"))) return policy->require_on_put;
    return hx_slice_eq(method, HX_LIT("POST")) || hx_slice_eq(method, HX_LIT("PATCH")) ||
           hx_slice_eq(method, HX_LIT("DELETE"));
}

static bool key_is_required(const hx_request *r, const hx_policy *route, hx_slice method)
{
    if (route) return route->require && method_wants_key(route, method);
    return hx_request_rules(r)->policies->require_key && method_wants_key(r->policy, method);
}

static void warn_of_cookie(const hx_request *r)
{
    static atomic_bool warned;
    if (r->stream->request.fields.lines[HX_FIELD_COOKIE] == 0 || atomic_exchange(&warned, true)) return;
    hx_log_begin(HX_LOG_WARN,
                 "a keyed request came with a cookie and no configured principal: all such callers share one "
                 "scope; name the session cookie in the route's `principal` option (cookie:NAME)");
    hx_log_str("path", r->path);
    hx_log_end();
}

/* The first of the route's sources that the request has. Its credential, with Authorization whatever the source, is the
 * proof. */
static bool find_principal(hx_request *r, hx_identity *who)
{
    const hx_fields *fields = &r->stream->request.fields;
    *who = (hx_identity){.principal = HX_EMPTY, .proof = HX_EMPTY, .kind = "none"};
    for (size_t i = 0; i < r->policy->principal_count; i++) {
        const hx_principal_source *source = &r->policy->principals[i];
        if (source->kind == HX_PRINCIPAL_AUTHORIZATION) {
            if (fields->lines[HX_FIELD_AUTHORIZATION] == 0) continue;
            hx_identity_of_authorization(hx_fields_get(fields, HX_FIELD_AUTHORIZATION), r->arena, who);
        } else if (source->kind == HX_PRINCIPAL_HEADER) {
            const hx_field *field = hx_fields_find(fields, source->name);
            if (!field) continue;
            who->principal = hx_arena_printf(r->arena, "header:%.*s:%.*s", HX_FMT(source->name), HX_FMT(field->value));
            who->proof = field->value;
        } else {
            hx_slice value;
            if (!hx_cookie_value(hx_fields_get(fields, HX_FIELD_COOKIE), source->name, &value)) continue;
            who->principal = hx_arena_printf(r->arena, "cookie:%.*s:%.*s", HX_FMT(source->name), HX_FMT(value));
            who->proof = value;
        }
        if (who->principal.len > 0) return true;
    }
    return false;
}

static bool asked_last(const hx_worker *worker, const hx_identity *who, hx_slice authorization)
{
    if (!worker->last.known) return false;
    const char *at = worker->last.bytes;
    hx_slice principal = {at, worker->last.principal_len};
    hx_slice proof = {at + principal.len, worker->last.proof_len};
    hx_slice credential = {at + principal.len + proof.len, worker->last.authorization_len};
    return hx_secret_eq(principal, who->principal) && hx_secret_eq(proof, who->proof) &&
           hx_secret_eq(credential, authorization);
}

static void remember(hx_worker *worker, const hx_identity *who, hx_slice authorization)
{
    worker->last.known = who->principal.len + who->proof.len + authorization.len <= sizeof worker->last.bytes;
    if (!worker->last.known) return;
    hx_buf bytes = {.data = worker->last.bytes, .cap = sizeof worker->last.bytes, .max = sizeof worker->last.bytes};
    hx_buf_put(&bytes, who->principal);
    hx_buf_put(&bytes, who->proof);
    hx_buf_put(&bytes, authorization);
    worker->last.principal_len = who->principal.len;
    worker->last.proof_len = who->proof.len;
    worker->last.authorization_len = authorization.len;
}

/* The MACs of who asks and of the credential that shows it. */
static void digest_identity(hx_request *r, const hx_identity *who)
{
    hx_worker *worker = r->worker;
    hx_slice authorization = hx_fields_get(&r->stream->request.fields, HX_FIELD_AUTHORIZATION);
    if (!asked_last(worker, who, authorization)) {
        worker->last.principal = hx_request_mac(r, HX_TAG_PRINCIPAL, who->principal);
        hx_mac_begin(worker->mac, HX_TAG_PROOF);
        hx_mac_part(worker->mac, who->proof);
        hx_mac_part(worker->mac, authorization);
        worker->last.proof = hx_mac_end(worker->mac);
        remember(worker, who, authorization);
    }
    r->principal = worker->last.principal;
    r->claimant.proof = worker->last.proof;
}

static hx_progress identify(hx_request *r)
{
    hx_mac *mac = r->worker->mac;
    const hx_fields *fields = &r->stream->request.fields;
    hx_identity who;
    /* Of two credentials nobody can say which one the application will believe. */
    if (fields->lines[HX_FIELD_AUTHORIZATION] > 1)
        return hx_request_refuse(r, HX_ERROR_MALFORMED, HX_LIT("There are two Authorization headers."));
    if (!find_principal(r, &who)) {
        if (r->policy->require_principal) return hx_request_refuse(r, HX_ERROR_PRINCIPAL_MISSING, HX_EMPTY);
        warn_of_cookie(r);
    }
    hx_mac_begin(mac, HX_TAG_OPERATION);
    hx_mac_part(mac, r->route);
    hx_mac_part(mac, who.principal);
    hx_mac_part(mac, r->key);
    hx_digest operation = hx_mac_end(mac);
    memcpy(r->op.bytes, operation.bytes, sizeof r->op.bytes);
    digest_identity(r, &who);
    return HX_MORE;
}

static hx_progress check_key(hx_request *r, hx_path_error path_error)
{
    const hx_fields *fields = &r->stream->request.fields;
    if (fields->lines[HX_FIELD_IDEMPOTENCY_KEY] > 1)
        return hx_request_refuse(r, HX_ERROR_KEY_INVALID, HX_LIT("There are two Idempotency-Key headers."));
    hx_slice field = hx_fields_get(fields, HX_FIELD_IDEMPOTENCY_KEY);
    hx_key_error error = hx_key_parse(field, &r->policy->key, r->arena, &r->key);
    if (error != HX_KEY_OK) {
        r->key = HX_EMPTY;
        hx_slice detail = hx_slice_of(hx_key_error_text(error));
        if (error == HX_KEY_TOO_SHORT || error == HX_KEY_TOO_LONG)
            detail = hx_arena_printf(r->arena, "The key has to be %u to %u characters long.",
                                     (unsigned)r->policy->key.len_min, (unsigned)r->policy->key.len_max);
        return hx_request_refuse(r, HX_ERROR_KEY_INVALID, detail);
    }
    if (path_error != HX_PATH_OK) {
        r->key = HX_EMPTY;
        return hx_request_refuse(r, HX_ERROR_MALFORMED, hx_slice_of(hx_path_error_text(path_error)));
    }
    return HX_MORE;
}

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    hx_request *r = stream->user;
    if (r->body_state != HX_BODY_READING) return; /* refused already */
    hx_body_result result = piece.len > 0 ? hx_body_append(&r->body, piece) : HX_BODY_OK;
    if (result != HX_BODY_OK) {
        r->body_state = HX_BODY_BROKEN;
        r->body_error_status = result == HX_BODY_TOO_LARGE ? 413 : 503;
        hx_request_run(r);
    } else if (last) {
        r->body_state = HX_BODY_WHOLE;
        hx_request_run(r);
    }
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    hx_request *r = stream->user;
    if (r->body_state != HX_BODY_READING) return;
    r->body_state = HX_BODY_BROKEN;
    r->body_error_status = status;
    r->body_error_detail = detail;
    hx_request_run(r);
}

static hx_progress refuse_for_room(hx_request *r)
{
    r->retry_after = 5 * HX_SECOND;
    return hx_request_refuse(r, HX_ERROR_OVERLOADED, HX_LIT("There is no room to keep the body."));
}

static hx_progress refuse_body(hx_request *r)
{
    switch (r->body_error_status) {
    case 0: return hx_request_go(r, HX_STEP_finish); /* the client left in mid-body: nothing was sent on */
    case 413:
        return hx_request_refuse(r, HX_ERROR_BODY_TOO_LARGE,
                                 hx_arena_printf(r->arena, "The body is longer than %llu bytes.",
                                                 (unsigned long long)r->policy->body_bytes_max));
    case 503: return refuse_for_room(r);
    default: {
        unsigned status = r->body_error_status;
        hx_progress progress = hx_request_refuse(r, HX_ERROR_MALFORMED, hx_slice_of(r->body_error_detail));
        r->reply_status = status;
        return progress;
    }
    }
}

static hx_progress read_body(hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    if (!head->has_body) {
        r->body_state = HX_BODY_WHOLE;
        return HX_MORE;
    }
    if (head->content_length > 0 && (uint64_t)head->content_length > r->policy->body_bytes_max) {
        r->body_error_status = 413;
        return refuse_body(r);
    }
    const hx_gateway *gateway = r->worker->gateway;
    hx_body_init(&r->body, r->arena, r->policy->body_bytes_max, gateway->spool_bytes, gateway->spool_directory);
    r->body_state = HX_BODY_READING;
    r->stream->events.body = take_body;
    r->stream->events.broken = body_broken;
    hx_stream_read(r->stream);
    return HX_PARKED;
}

/* All lines of a field as one value, as a list field means it. */
static hx_slice joined(hx_request *r, hx_field_id id)
{
    const hx_fields *fields = &r->stream->request.fields;
    hx_slice all = hx_fields_get(fields, id);
    if (fields->lines[id] < 2) return all;
    for (size_t i = fields->first[id] + 1u; i < fields->count; i++)
        if (fields->items[i].id == id)
            all = hx_arena_printf(r->arena, "%.*s, %.*s", HX_FMT(all), HX_FMT(fields->items[i].value));
    return all;
}

static hx_progress fingerprint(hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    hx_fingerprint_input *in = &r->fingerprint_input;
    hx_slice body = HX_EMPTY;
    if (r->body.len > 0 && !hx_body_whole(&r->body, &body)) return refuse_for_room(r);
    *in = (hx_fingerprint_input){
        .method = head->method,
        .path = r->path,
        .query = head->query,
        .has_query = head->has_query,
        .content_type = joined(r, HX_FIELD_CONTENT_TYPE),
        .content_encoding = joined(r, HX_FIELD_CONTENT_ENCODING),
        .if_match = joined(r, HX_FIELD_IF_MATCH),
        .if_none_match = joined(r, HX_FIELD_IF_NONE_MATCH),
        .if_unmodified_since = joined(r, HX_FIELD_IF_UNMODIFIED_SINCE),
        .body = body,
    };
    r->claimant.fingerprint = hx_fingerprint(r->worker->mac, in, r->arena);
    return hx_request_go(r, HX_STEP_claim);
}

/* Of a request that matches none: method and path. */
static hx_slice route_of(hx_request *r)
{
    hx_slice method = r->stream->request.method;
    hx_buf text;
    hx_buf_init(&text, r->arena, method.len + 1 + r->path.len);
    hx_buf_put(&text, method);
    hx_buf_puts(&text, " ");
    hx_buf_put(&text, r->path);
    return hx_buf_slice(&text);
}

static void read_patience(hx_request *r)
{
    const hx_fields *fields = &r->stream->request.fields;
    r->patience.span = HX_CLIENT_BUDGET_NONE;
    if (fields->lines[HX_FIELD_X_REQUEST_TIMEOUT] == 0) return;
    if (hx_client_budget_parse(hx_fields_get(fields, HX_FIELD_X_REQUEST_TIMEOUT), &r->patience)) return;
    hx_worker_count(r->worker, HX_COUNT_BAD_REQUEST_TIMEOUT);
    hx_log_begin(HX_LOG_WARN, "a client sent an X-Request-Timeout that is not like 1500, 1500ms or 10s; it is ignored");
    hx_log_str("value", hx_fields_get(fields, HX_FIELD_X_REQUEST_TIMEOUT));
    hx_log_end();
}

/* Which rules, which key, who. MORE with body_state HX_BODY_UNREAD and a key: go on with the body. */
static hx_progress admit_head(hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    const hx_policy_set *policies = hx_request_rules(r)->policies;
    hx_path_error path_error = hx_path_normalize(head->path, r->arena, &r->path);
    const hx_policy *route = hx_policy_find(policies, head->method, r->path);
    bool keyed = head->fields.lines[HX_FIELD_IDEMPOTENCY_KEY] > 0;
    r->policy = route ? route : &policies->defaults;
    choose_trace(r);
    /* Of a path that can't be read, nobody can say that it is the one which passes. */
    bool passes = r->policy->mode == HX_MODE_PASS && !(keyed && path_error != HX_PATH_OK);
    if (passes || hx_method_is_safe(head->method)) return hx_request_go(r, HX_STEP_pass);
    if (!keyed) {
        if (key_is_required(r, route, head->method)) return hx_request_refuse(r, HX_ERROR_KEY_MISSING, HX_EMPTY);
        return hx_request_go(r, HX_STEP_pass);
    }
    read_patience(r);
    r->route = route ? route->name : route_of(r);
    (void)check_key(r, path_error);
    if (r->step == HX_STEP_admit) (void)identify(r);
    return HX_MORE;
}

hx_progress hx_step_admit(hx_request *r)
{
    if (r->body_state == HX_BODY_UNREAD) {
        hx_progress progress = admit_head(r);
        if (r->step != HX_STEP_admit) return progress;
        progress = read_body(r);
        if (progress == HX_PARKED || r->step != HX_STEP_admit) return progress;
    }
    switch (r->body_state) {
    case HX_BODY_READING:
        /* A client that is gone sends no more; nothing was sent on. */
        return r->client_gone ? hx_request_go(r, HX_STEP_finish) : HX_PARKED;
    case HX_BODY_BROKEN: return refuse_body(r);
    default: return fingerprint(r);
    }
}
