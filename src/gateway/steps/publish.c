/* SPDX-License-Identifier: Apache-2.0 */
/* The document is written for each request, in its arena, because it is requested seldom. Its ETag is a digest of its
 * bytes, so that it outlives a restart and changes with the rules. */
#include "gateway/steps/publish.h"

#include "base/check.h"
#include "config/describe/policy_fields.h"
#include "core/crypto/sha256.h"
#include "core/json/json_writer.h"
#include "core/operation/template.h"
#include "gateway/messages/cors.h"
#include "gateway/messages/problem.h"
#include "gateway/request.h"
#include "gateway/messages/answer_headers.h"

#include <stdio.h>
#include <string.h>

/* Of one route, and of all that follows the routes: lists are bounded, and so are their items. */
#define ROUTE_BYTES_MAX (2u * 1024u * 1024u)

static void put_seconds(hx_buf *out, const char *name, hx_ms span)
{
    char text[32];
    (void)snprintf(text, sizeof text, span % 1000 == 0 ? "%lld" : "%lld.%03d", (long long)(span / 1000),
                   (int)(span % 1000));
    hx_json_put_raw(out, name, hx_slice_of(text));
}

static void put_match(hx_buf *out, const hx_policy *route)
{
    hx_json_put_text(out, "name", route->name);
    hx_json_put_list(out, "methods", route->methods, route->method_count);
    hx_json_put_text(out, "path", route->path);
}

static void put_key_rule(hx_buf *out, const hx_policy *policy, bool required)
{
    static const char *const formats[] = {[HX_KEY_ANY] = "any", [HX_KEY_UUID] = "uuid", [HX_KEY_UUID4] = "uuid4"};
    const hx_key_rules *key = &policy->key;
    hx_json_open(out, "key", '{');
    if (key->from) {
        hx_json_put_text(out, "from", key->from->text);
        hx_json_put_bool(out, "shared", key->shared);
        if (key->from->has_bucket) put_seconds(out, "overlap_seconds", key->overlap);
    }
    if (!key->from || key->prefer_header) {
        hx_json_put_text(out, "header", HX_LIT("Idempotency-Key"));
        hx_json_put_bool(out, "required", required && !key->from);
        hx_json_put_bool(out, "required_on_put", required && !key->from && policy->require_on_put);
        hx_json_put_bool(out, "if_match_suffices", policy->if_match_suffices);
        hx_json_put_text(out, "format", hx_slice_of(formats[key->format]));
        hx_json_put_number(out, "min", key->len_min);
        hx_json_put_number(out, "max", key->len_max);
    }
    hx_json_close(out, '}');
}

/* The fields that the table of policy fields marks as published, as they are written there. */
static void put_fields(hx_buf *out, const hx_config *config, const hx_policy *policy)
{
    size_t count;
    const hx_describe_field *fields = hx_describe_fields(&count);
    for (size_t i = 0; i < count; i++) {
        bool applies = policy->mode != HX_MODE_PASS || strcmp(fields[i].name, "mode") == 0;
        if (!fields[i].published || !applies) continue;
        hx_json_put_name(out, fields[i].name);
        fields[i].value(config, policy, out);
    }
}

static void put_list(hx_buf *out, const char *prefix, const hx_slice *items, size_t count)
{
    for (size_t i = 0; i < count; i++)
        hx_json_put_text(out, NULL, hx_arena_printf(out->arena, "%s%.*s", prefix, HX_FMT(items[i])));
}

/* The parts of a request that the fingerprint counts. */
static void put_fingerprint(hx_buf *out, const hx_fingerprint_rules *rules)
{
    static const char *const bodies[] = {
        [HX_FINGERPRINT_CANONICAL] = "canonical", [HX_FINGERPRINT_RAW] = "raw", [HX_FINGERPRINT_KEY] = "key"};
    hx_json_open(out, "fingerprint", '{');
    if (rules->body == HX_FINGERPRINT_POINTERS)
        hx_json_put_list(out, "body", rules->pointers, rules->pointer_count);
    else
        hx_json_put_text(out, "body", hx_slice_of(bodies[rules->body]));
    if (rules->body != HX_FINGERPRINT_KEY) {
        hx_json_open(out, "ignore", '[');
        put_list(out, "", rules->ignored_pointers, rules->ignored_pointer_count);
        put_list(out, "query:", rules->ignored_query, rules->ignored_query_count);
        hx_json_close(out, ']');
        hx_json_put_list(out, "headers", rules->headers, rules->header_count);
    }
    hx_json_close(out, '}');
}

static void put_limits(hx_buf *out, const hx_policy *policy)
{
    if (policy->rate.count > 0) {
        hx_json_open(out, "rate", '{');
        hx_json_put_number(out, "requests", policy->rate.count);
        put_seconds(out, "seconds", policy->rate.per);
        hx_json_close(out, '}');
    }
    if (policy->quota > 0) hx_json_put_number(out, "quota", policy->quota);
    hx_json_put_number(out, "body_bytes_max", policy->body_bytes_max);
}

/* What a client does when the answer doesn't come, or isn't what it hoped for: by the dialect, whatever the application
 * guarantees. */
static void put_advice(hx_buf *out, const hx_policy *policy)
{
    bool waits = policy->dialect == HX_DIALECT_PLAIN;
    hx_json_open(out, "retry", '{');
    hx_json_put_text(out, "with", HX_LIT("the same key and the same request"));
    hx_json_put_text(out, "when", HX_LIT("no answer, 408, 425, 429, 5xx, or 409 with a retryable error_code"));
    hx_json_put_text(out, "final", HX_LIT("Idempotency-Status: stored or replayed"));
    put_seconds(out, "duplicates_wait_seconds", waits ? policy->wait : 0);
    hx_json_close(out, '}');
    hx_json_open(out, "statuses", '{');
    hx_json_put_number(out, "key_missing", hx_problem_status(HX_ERROR_KEY_MISSING, policy->dialect));
    hx_json_put_number(out, "key_invalid", hx_problem_status(HX_ERROR_KEY_INVALID, policy->dialect));
    hx_json_put_number(out, "payload_mismatch", hx_problem_status(HX_ERROR_PAYLOAD_MISMATCH, policy->dialect));
    hx_json_put_number(out, "in_flight", hx_problem_status(HX_ERROR_IN_FLIGHT, policy->dialect));
    hx_json_close(out, '}');
}

static void put_rules(hx_buf *out, const hx_config *config, const hx_policy *policy, bool required)
{
    put_fields(out, config, policy);
    if (policy->mode != HX_MODE_PASS) {
        put_key_rule(out, policy, required);
        hx_json_put_bool(out, "principal_required", policy->require_principal);
        put_fingerprint(out, &policy->fingerprint);
        put_seconds(out, "lifetime_seconds", policy->lifetime);
        put_seconds(out, "tombstone_seconds", policy->tombstone);
        put_advice(out, policy);
        put_limits(out, policy);
    }
    hx_json_close(out, '}');
}

/* Each code once: rows that share one differ in their words only, and where in their status, the code isn't enough. */
static void put_errors(hx_buf *out)
{
    hx_json_open(out, "errors", '[');
    for (int i = 0; i < HX_ERROR_COUNT; i++) {
        const hx_error_row *row = hx_error_about((hx_error)i);
        bool is_known = false;
        for (int j = 0; j < i && !is_known; j++) {
            const hx_error_row *earlier = hx_error_about((hx_error)j);
            is_known = earlier->status == row->status && strcmp(earlier->code, row->code) == 0;
        }
        if (is_known) continue;
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "error_code", hx_slice_of(row->code));
        hx_json_put_number(out, "status", row->status);
        hx_json_put_bool(out, "retryable", row->retryable);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
}

bool hx_publish_write(const hx_config *config, hx_buf *out)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_number(out, "version", 1);
    hx_json_put_text(out, "error_docs", config->error_docs);
    hx_json_open(out, "routes", '[');
    for (size_t i = 0; i < config->policies.count; i++) {
        const hx_policy *route = &config->policies.routes[i];
        if (out->len > HX_PUBLISH_BYTES_MAX - 2 * ROUTE_BYTES_MAX) return false;
        hx_json_open(out, NULL, '{');
        put_match(out, route);
        put_rules(out, config, route, route->require);
    }
    hx_json_close(out, ']');
    hx_json_open(out, "defaults", '{');
    put_rules(out, config, &config->policies.defaults, config->policies.require_key);
    put_errors(out);
    hx_buf_puts(out, "}\n");
    return true;
}

/* The same on every node that has the same rules. */
static hx_slice etag_of(hx_buf *document)
{
    hx_buf tag;
    hx_buf_init(&tag, document->arena, 34);
    document->max = document->len + HX_SHA256_ROOM;
    bool fits = hx_buf_reserve(document, HX_SHA256_ROOM);
    HX_CHECK(fits);
    hx_digest digest = hx_sha256_end(NULL, 0, (uint8_t *)document->data, document->len);
    hx_buf_puts(&tag, "\"");
    hx_buf_put_hex(&tag, digest.bytes, 16);
    hx_buf_puts(&tag, "\"");
    return hx_buf_slice(&tag);
}

static bool has_it_already(const hx_request *r, hx_slice etag)
{
    const hx_fields *fields = &r->stream->request.fields;
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->items[i].id != HX_FIELD_IF_NONE_MATCH) continue;
        hx_slice rest = fields->items[i].value, part;
        while (hx_slice_next(&rest, ',', &part)) {
            part = hx_slice_trim(part);
            if (hx_slice_starts(part, HX_LIT("W/"))) part = hx_slice_from(part, 2);
            if (hx_slice_eq(part, etag) || hx_slice_eq(part, HX_LIT("*"))) return true;
        }
    }
    return false;
}

hx_step_result hx_step_publish(hx_request *r)
{
    const hx_config *config = hx_request_rules(r)->config;
    hx_buf body, lines;
    hx_buf_init(&body, r->arena, HX_PUBLISH_BYTES_MAX);
    if (!hx_publish_write(config, &body))
        return hx_request_refuse(r, HX_ERROR_OVERLOADED, HX_LIT("The rules are too long to publish."));
    hx_slice etag = etag_of(&body);
    hx_buf_init(&lines, r->arena, HX_OUR_LINES_MAX);
    hx_buf_puts(&lines, "Content-Type: application/json\r\nCache-Control: public, max-age=60\r\n");
    hx_field_write(&lines, HX_LIT("ETag"), etag);
    hx_field_write(&lines, HX_LIT("X-Correlation-Id"), r->correlation);
    hx_cors_allow(config, &r->stream->request.fields, &lines);
    bool is_known = has_it_already(r, etag);
    hx_request_note_reply(r);
    r->reply_status = is_known ? 304 : 200;
    hx_stream_answer(r->stream, r->reply_status, hx_status_reason(r->reply_status), hx_buf_slice(&lines),
                     is_known ? HX_EMPTY : hx_buf_slice(&body), true);
    return hx_request_go(r, HX_STEP_finish);
}
