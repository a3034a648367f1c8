/* SPDX-License-Identifier: Apache-2.0 */
/* The document is made anew for each request, in its arena: it is asked for seldom. Its ETag is a digest of its bytes,
 * so that it outlives a restart and changes with the rules. */
#include "gateway/steps/publish.h"

#include "base/check.h"
#include "config/describe/policy_fields.h"
#include "core/json/json.h"
#include "core/crypto/sha256.h"
#include "core/operation/template.h"
#include "gateway/parts/cors.h"
#include "gateway/parts/problem.h"
#include "gateway/request.h"

#include <string.h>

/* Remembers that something didn't fit, so that every piece needn't be asked. */
typedef struct {
    hx_buf *out;
    bool fits;
} writer;

static void put(writer *w, const char *text)
{
    w->fits = w->fits && hx_buf_append(w->out, hx_slice_of(text));
}

static void put_string(writer *w, hx_slice value)
{
    w->fits = w->fits && hx_json_escape(w->out, value);
}

static void put_member(writer *w, const char *name, const char *word)
{
    w->fits = w->fits && hx_buf_printf(w->out, "\"%s\":\"%s\",", name, word);
}

static void put_flag(writer *w, const char *name, bool value)
{
    w->fits = w->fits && hx_buf_printf(w->out, "\"%s\":%s,", name, value ? "true" : "false");
}

static void put_number(writer *w, const char *name, uint64_t value)
{
    w->fits = w->fits && hx_buf_printf(w->out, "\"%s\":%llu,", name, (unsigned long long)value);
}

static void put_seconds(writer *w, const char *name, hx_ms span)
{
    const char *format = span % 1000 == 0 ? "\"%s\":%lld," : "\"%s\":%lld.%03d,";
    w->fits = w->fits && hx_buf_printf(w->out, format, name, (long long)(span / 1000), (int)(span % 1000));
}

/* In place of the last comma, where there is one. */
static void close_with(writer *w, const char *end)
{
    if (w->fits && w->out->len > 0 && w->out->data[w->out->len - 1] == ',') w->out->len--;
    put(w, end);
}

static void put_match(writer *w, const hx_policy *route)
{
    put(w, "\"name\":");
    put_string(w, route->name);
    put(w, ",\"methods\":[");
    for (size_t i = 0; i < route->method_count; i++) {
        put_string(w, route->methods[i]);
        put(w, ",");
    }
    close_with(w, "],\"path\":");
    put_string(w, route->path);
    put(w, ",");
}

static void put_key_rule(writer *w, const hx_policy *policy, bool required)
{
    static const char *const formats[] = {[HX_KEY_ANY] = "any", [HX_KEY_UUID] = "uuid", [HX_KEY_UUID4] = "uuid4"};
    const hx_key_rules *key = &policy->key;
    put(w, "\"key\":{");
    if (key->from) {
        put(w, "\"from\":");
        put_string(w, key->from->text);
        put(w, ",");
        put_flag(w, "shared", key->shared);
        if (key->from->has_bucket) put_seconds(w, "overlap_seconds", key->overlap);
    }
    if (!key->from || key->prefer_header) {
        put_member(w, "header", "Idempotency-Key");
        put_flag(w, "required", required && !key->from);
        put_flag(w, "required_on_put", required && !key->from && policy->require_on_put);
        put_flag(w, "if_match_suffices", policy->if_match_suffices);
        put_member(w, "format", formats[key->format]);
        put_number(w, "min", key->len_min);
        put_number(w, "max", key->len_max);
    }
    close_with(w, "},");
}

/* The fields that the table of policy fields marks as published, as they are written there. */
static void put_fields(writer *w, const hx_config *config, const hx_policy *policy)
{
    size_t count;
    const hx_describe_field *fields = hx_describe_fields(&count);
    for (size_t i = 0; i < count; i++) {
        bool applies = policy->mode != HX_MODE_PASS || strcmp(fields[i].name, "mode") == 0;
        hx_buf value;
        if (!fields[i].published || !applies) continue;
        hx_buf_init(&value, w->out->arena, HX_PUBLISH_BYTES_MAX);
        fields[i].value(config, policy, &value);
        w->fits = w->fits && hx_buf_printf(w->out, "\"%s\":%.*s,", fields[i].name, HX_FMT(hx_buf_slice(&value)));
    }
}

static void put_list(writer *w, const char *prefix, const hx_slice *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put_string(w, hx_arena_printf(w->out->arena, "%s%.*s", prefix, HX_FMT(items[i])));
        put(w, ",");
    }
}

/* What may differ between two attempts, and what more counts. */
static void put_fingerprint(writer *w, const hx_fingerprint_rules *rules)
{
    static const char *const bodies[] = {[HX_FINGERPRINT_CANONICAL] = "\"body\":\"canonical\",",
                                         [HX_FINGERPRINT_RAW] = "\"body\":\"raw\",",
                                         [HX_FINGERPRINT_POINTERS] = "\"body\":[",
                                         [HX_FINGERPRINT_KEY] = "\"body\":\"key\","};
    put(w, "\"fingerprint\":{");
    put(w, bodies[rules->body]);
    if (rules->body == HX_FINGERPRINT_POINTERS) {
        put_list(w, "", rules->pointers, rules->pointer_count);
        close_with(w, "],");
    }
    if (rules->body != HX_FINGERPRINT_KEY) {
        put(w, "\"ignore\":[");
        put_list(w, "", rules->ignored_pointers, rules->ignored_pointer_count);
        put_list(w, "query:", rules->ignored_query, rules->ignored_query_count);
        close_with(w, "],\"headers\":[");
        put_list(w, "", rules->headers, rules->header_count);
        close_with(w, "],");
    }
    close_with(w, "},");
}

static void put_limits(writer *w, const hx_policy *policy)
{
    if (policy->rate.count > 0) {
        put(w, "\"rate\":{");
        put_number(w, "requests", policy->rate.count);
        put_seconds(w, "seconds", policy->rate.per);
        close_with(w, "},");
    }
    if (policy->quota > 0) put_number(w, "quota", policy->quota);
    put_number(w, "body_bytes_max", policy->body_bytes_max);
}

/* What a client does when the answer doesn't come, or isn't what it hoped for: by the dialect, whatever the application
 * guarantees. */
static void put_advice(writer *w, const hx_policy *policy)
{
    bool waits = policy->dialect == HX_DIALECT_PLAIN;
    put(w, "\"retry\":{");
    put_member(w, "with", "the same key and the same request");
    put_member(w, "when", "no answer, 408, 425, 429, 5xx, or 409 with a retryable error_code");
    put_member(w, "final", "Idempotency-Status: stored or replayed");
    put_seconds(w, "duplicates_wait_seconds", waits ? policy->wait : 0);
    close_with(w, "},");
    put(w, "\"statuses\":{");
    put_number(w, "key_missing", hx_problem_status(HX_ERROR_KEY_MISSING, policy->dialect));
    put_number(w, "key_invalid", hx_problem_status(HX_ERROR_KEY_INVALID, policy->dialect));
    put_number(w, "payload_mismatch", hx_problem_status(HX_ERROR_PAYLOAD_MISMATCH, policy->dialect));
    put_number(w, "in_flight", hx_problem_status(HX_ERROR_IN_FLIGHT, policy->dialect));
    close_with(w, "},");
}

static void put_rules(writer *w, const hx_config *config, const hx_policy *policy, bool required)
{
    put_fields(w, config, policy);
    if (policy->mode != HX_MODE_PASS) {
        put_key_rule(w, policy, required);
        put_flag(w, "principal_required", policy->require_principal);
        put_fingerprint(w, &policy->fingerprint);
        put_seconds(w, "lifetime_seconds", policy->lifetime);
        put_seconds(w, "tombstone_seconds", policy->tombstone);
        put_advice(w, policy);
        put_limits(w, policy);
    }
    close_with(w, "}");
}

/* Each code once: rows that share one differ in their words only, and where in their status, the code isn't enough. */
static void put_errors(writer *w)
{
    put(w, "\"errors\":[");
    for (int i = 0; i < HX_ERROR_COUNT; i++) {
        const hx_error_row *row = hx_error_about((hx_error)i);
        bool is_known = false;
        for (int j = 0; j < i && !is_known; j++) {
            const hx_error_row *earlier = hx_error_about((hx_error)j);
            is_known = earlier->status == row->status && strcmp(earlier->code, row->code) == 0;
        }
        if (is_known) continue;
        put(w, "{");
        put_member(w, "error_code", row->code);
        put_number(w, "status", row->status);
        put_flag(w, "retryable", row->retryable);
        close_with(w, "},");
    }
    close_with(w, "]");
}

bool hx_publish_write(const hx_config *config, hx_buf *out)
{
    writer w = {.out = out, .fits = true};
    put(&w, "{\"version\":1,\"error_docs\":");
    put_string(&w, config->error_docs);
    put(&w, ",\"routes\":[");
    for (size_t i = 0; i < config->policies.count; i++) {
        const hx_policy *route = &config->policies.routes[i];
        put(&w, "{");
        put_match(&w, route);
        put_rules(&w, config, route, route->require);
        put(&w, ",");
    }
    close_with(&w, "],\"defaults\":{");
    put_rules(&w, config, &config->policies.defaults, config->policies.require_key);
    put(&w, ",");
    put_errors(&w);
    put(&w, "}\n");
    return w.fits;
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
