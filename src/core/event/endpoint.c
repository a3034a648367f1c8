/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/endpoint.h"

#include "base/text.h"
#include "core/json/json.h"
#include "core/json/json_walk.h"
#include "core/json/json_writer.h"
#include "core/webhook/webhook.h"

#define GIVEN (HX_JSON_GIVEN | HX_JSON_STORED | HX_JSON_SHOWN)
#define OURS (HX_JSON_STORED | HX_JSON_SHOWN)
#define FIELD(name, kind, uses) HX_JSON_FIELD(hx_endpoint, name, kind, uses)
static const hx_json_field fields[] = {
    FIELD(id, TEXT, OURS),
    FIELD(tenant, TEXT, GIVEN),
    FIELD(url, TEXT, GIVEN),
    FIELD(description, TEXT, GIVEN),
    FIELD(types, TEXTS, GIVEN),
    FIELD(filters, RAW, GIVEN),
    FIELD(headers, TEXTS, HX_JSON_GIVEN | HX_JSON_STORED),
    FIELD(secrets, TEXTS, HX_JSON_GIVEN | HX_JSON_STORED),
    FIELD(retiring, TEXTS, HX_JSON_STORED),
    FIELD(retire_at, TIME, HX_JSON_STORED),
    FIELD(rate, NUMBER, GIVEN),
    FIELD(concurrency, NUMBER, GIVEN),
    FIELD(timeout, SPAN, GIVEN),
    FIELD(on_client_error, TEXT, GIVEN),
    FIELD(ordered, BOOL, GIVEN),
    FIELD(configured, BOOL, OURS),
    FIELD(disabled, BOOL, OURS),
    FIELD(disabled_reason, TEXT, OURS),
    FIELD(disabled_at, TIME, OURS),
    FIELD(failing_since, TIME, OURS),
    FIELD(created_at, TIME, OURS),
    FIELD(deleted_at, TIME, HX_JSON_STORED),
};
#undef FIELD
const hx_json_shape hx_endpoint_shape = HX_JSON_SHAPE(fields);

const hx_endpoint hx_endpoint_new = {.id = {"", 0},
                                     .tenant = {"", 0},
                                     .url = {"", 0},
                                     .description = {"", 0},
                                     .filters = {"", 0},
                                     .concurrency = HX_ENDPOINT_CONCURRENCY,
                                     .timeout = HX_ENDPOINT_TIMEOUT,
                                     .on_client_error = {"retry", 5},
                                     .disabled_reason = {"", 0}};

static bool types_fit(const hx_texts *types, hx_error_text error)
{
    if (types->count > HX_ENDPOINT_TYPES_MAX)
        return hx_fail(error, "\"types\" must have up to %u patterns", HX_ENDPOINT_TYPES_MAX);
    for (size_t i = 0; i < types->count; i++) {
        size_t star = hx_slice_find(types->items[i], '*');
        if (!hx_is_event_name(types->items[i]) || (star != SIZE_MAX && star + 1 != types->items[i].len))
            return hx_fail(error, "\"types\" must be names such as \"refund.created\", \"refund.*\" or \"*\"");
    }
    return true;
}

static bool filters_fit(hx_slice filters, hx_arena *arena, hx_error_text error)
{
    hx_slice name, value, pointer;
    size_t count = 0;
    if (filters.len == 0) return true;
    if (filters.ptr[0] != '{') return hx_fail(error, "\"filters\" must be an object such as {\"/amount\": 100}");
    hx_json_walk walk = hx_json_walk_over(filters);
    while (hx_json_walk_next(&walk, &name, &value)) {
        if (!hx_json_string(name, arena, &pointer) || !hx_json_is_pointer(pointer) || pointer.len == 0)
            return hx_fail(error, "\"filters\" must have JSON pointers as names, such as \"/amount\"");
        if (value.ptr[0] == '{' || value.ptr[0] == '[')
            return hx_fail(error, "\"filters\" must compare with a text, a number, true, false or null");
        if (++count > HX_ENDPOINT_FILTERS_MAX)
            return hx_fail(error, "\"filters\" must have up to %u pointers", HX_ENDPOINT_FILTERS_MAX);
    }
    return true;
}

/* Names that the sender writes itself, or that aren't the endpoint's to set. */
static bool is_reserved(hx_slice name)
{
    static const char *const names[] = {
        "host",       "content-length",  "content-type", "transfer-encoding", "connection",
        "expect",     "upgrade",         "te",           "trailer",           "proxy-authorization",
        "keep-alive", "idempotency-key", "user-agent",   "x-correlation-id"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (hx_slice_eq_nocase(name, hx_slice_of(names[i]))) return true;
    return hx_slice_starts_nocase(name, HX_LIT("webhook-")) || hx_slice_starts_nocase(name, HX_LIT("hapax-"));
}

static bool headers_fit(const hx_texts *headers, hx_error_text error)
{
    size_t bytes = 0;
    for (size_t i = 0; i < headers->count; i++) {
        hx_text_header header;
        hx_slice line = headers->items[i];
        bytes += line.len;
        for (size_t at = 0; at < line.len; at++)
            if ((unsigned char)line.ptr[at] < ' ' || line.ptr[at] == 0x7f)
                return hx_fail(error, "\"headers\" must not have control characters");
        if (!hx_text_split_header(line, &header) || !hx_slice_is_token(header.name))
            return hx_fail(error, "\"headers\" must be lines such as \"Authorization: Bearer …\"");
        if (is_reserved(header.name))
            return hx_fail(error, "\"headers\" can't set %.*s, which Hapax writes itself", HX_FMT(header.name));
    }
    return (headers->count <= HX_ENDPOINT_HEADERS_MAX && bytes <= 8192) ||
           hx_fail(error, "\"headers\" must have up to %u lines and 8 KiB", HX_ENDPOINT_HEADERS_MAX);
}

const char *hx_endpoint_secret_error(hx_slice text, hx_arena *arena)
{
    hx_webhook_secret secret;
    hx_webhook_error wrong = hx_webhook_secret_read(hx_webhook_scheme_named(HX_LIT("standard")), text, arena, &secret);
    if (wrong != HX_WEBHOOK_OK) return hx_webhook_error_text(wrong);
    if (secret.is_ed25519)
        return secret.private_key.len > 0 ? NULL : "A public key can't sign; give the private one (whsk_…).";
    bool is_strong = hx_slice_starts(text, HX_LIT("whsec_")) && secret.key.len >= HX_ENDPOINT_SECRET_BYTES_MIN;
    return is_strong ? NULL : "It must be whsec_ and at least 16 random bytes in base64.";
}

static bool secrets_fit(const hx_texts *secrets, hx_arena *arena, hx_error_text error)
{
    if (secrets->count > HX_ENDPOINT_SECRETS_MAX)
        return hx_fail(error, "\"secrets\" must have up to %u", HX_ENDPOINT_SECRETS_MAX);
    for (size_t i = 0; i < secrets->count; i++) {
        const char *wrong = hx_endpoint_secret_error(secrets->items[i], arena);
        if (wrong) return hx_fail(error, "\"secrets\": %s", wrong);
    }
    return true;
}

/* A scheme, a host, and what follows it. A user's name and password would be shown to whoever looks at the endpoint. */
static bool is_url(hx_slice url)
{
    size_t scheme = hx_slice_starts_nocase(url, HX_LIT("https://"))  ? 8
                    : hx_slice_starts_nocase(url, HX_LIT("http://")) ? 7
                                                                     : 0;
    size_t host = 0;
    for (size_t i = scheme; i < url.len; i++)
        if (url.ptr[i] <= ' ' || url.ptr[i] > '~' || url.ptr[i] == '#') return false;
    while (scheme + host < url.len && url.ptr[scheme + host] != '/' && url.ptr[scheme + host] != '?')
        if (url.ptr[scheme + host++] == '@') return false;
    return scheme > 0 && host > 0 && url.ptr[scheme] != ':' && url.len <= HX_ENDPOINT_URL_MAX;
}

bool hx_endpoint_read(hx_slice object, hx_arena *arena, hx_endpoint *endpoint, hx_error_text error)
{
    if (!hx_json_read(&hx_endpoint_shape, HX_JSON_GIVEN, object, arena, endpoint, error)) return false;
    if (!is_url(endpoint->url))
        return hx_fail(
            error,
            "\"url\" must begin with https:// or http:// and a host, without a user and a fragment, and have "
            "up to %u bytes",
            HX_ENDPOINT_URL_MAX);
    if (endpoint->tenant.len > 0 && !hx_is_tenant(endpoint->tenant))
        return hx_fail(error, "\"tenant\" must have 1 to %u letters, digits, - and _", HX_TENANT_MAX);
    if (endpoint->description.len > 512) return hx_fail(error, "\"description\" must have up to 512 bytes");
    if (endpoint->rate > 100000) return hx_fail(error, "\"rate\" must be between 0 and 100000 a second");
    if (endpoint->concurrency < 1 || endpoint->concurrency > 1000)
        return hx_fail(error, "\"concurrency\" must be between 1 and 1000");
    if (endpoint->timeout < HX_SECOND || endpoint->timeout > HX_MINUTE)
        return hx_fail(error, "\"timeout\" must be between 1s and 60s");
    if (!hx_slice_eq(endpoint->on_client_error, HX_LIT("retry")) &&
        !hx_slice_eq(endpoint->on_client_error, HX_LIT("dead")))
        return hx_fail(error, "\"on_client_error\" must be \"retry\" or \"dead\"");
    return types_fit(&endpoint->types, error) && filters_fit(endpoint->filters, arena, error) &&
           headers_fit(&endpoint->headers, error) && secrets_fit(&endpoint->secrets, arena, error);
}

void hx_endpoint_encode(const hx_endpoint *endpoint, hx_buf *meta)
{
    hx_json_open(meta, NULL, '{');
    hx_json_write(&hx_endpoint_shape, HX_JSON_STORED, endpoint, meta);
    hx_json_close(meta, '}');
}

bool hx_endpoint_decode(hx_slice meta, hx_arena *arena, hx_endpoint *endpoint)
{
    hx_error_text error;
    *endpoint = hx_endpoint_new;
    return hx_json_read(&hx_endpoint_shape, HX_JSON_STORED, meta, arena, endpoint, error) && endpoint->id.len > 0;
}

bool hx_event_type_matches(hx_slice pattern, hx_slice type)
{
    if (pattern.len == 0 || pattern.ptr[pattern.len - 1] != '*') return hx_slice_eq(pattern, type);
    return hx_slice_starts(type, hx_slice_first(pattern, pattern.len - 1));
}

/* A number is compared by its value, a text by its characters. */
static bool values_are_equal(hx_slice a, hx_slice b, hx_arena *arena)
{
    hx_buf one, other;
    hx_buf_init(&one, arena, HX_JSON_CANONICAL_BYTES(a.len));
    hx_buf_init(&other, arena, HX_JSON_CANONICAL_BYTES(b.len));
    return hx_json_canonical(a, arena, &one) && hx_json_canonical(b, arena, &other) &&
           hx_slice_eq(hx_buf_slice(&one), hx_buf_slice(&other));
}

static bool filters_match(hx_slice filters, hx_slice data)
{
    hx_arena arena = {0};
    hx_slice name, wanted, pointer, found;
    bool matches = true;
    hx_json_walk walk = hx_json_walk_over(filters);
    while (matches && hx_json_walk_next(&walk, &name, &wanted))
        matches = hx_json_string(name, &arena, &pointer) && hx_json_pointer(data, pointer, &found) &&
                  values_are_equal(found, wanted, &arena);
    hx_arena_free(&arena);
    return matches;
}

bool hx_endpoint_wants(const hx_endpoint *endpoint, hx_slice type, hx_slice data)
{
    bool is_wanted = endpoint->types.count == 0;
    for (size_t i = 0; i < endpoint->types.count && !is_wanted; i++)
        is_wanted = hx_event_type_matches(endpoint->types.items[i], type);
    return is_wanted && (endpoint->filters.len == 0 || filters_match(endpoint->filters, data));
}

bool hx_endpoint_names(const hx_endpoint *endpoint, hx_slice type, hx_slice data)
{
    bool is_named = false;
    for (size_t i = 0; i < endpoint->types.count && !is_named; i++)
        is_named = endpoint->types.items[i].len > 1 && hx_event_type_matches(endpoint->types.items[i], type);
    return is_named && (endpoint->filters.len == 0 || filters_match(endpoint->filters, data));
}

hx_slice hx_endpoint_key(hx_slice tenant, hx_slice id, hx_arena *arena)
{
    return hx_arena_printf(arena, "n/%.*s/%.*s", HX_FMT(tenant), HX_FMT(id));
}
