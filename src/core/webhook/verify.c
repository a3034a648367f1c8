/* SPDX-License-Identifier: Apache-2.0 */
/* Verifies a request in three steps: read the headers, compare the timestamp with the clock, and compare signatures. A
 * signature that can't be decoded never matches, and is skipped like one of an unknown version; only when no other is
 * left does it decide what the error is. */
#include "base/hex.h"
#include "core/crypto/mac.h"
#include "core/json/json.h"
#include "core/token/base64.h"
#include "core/webhook/webhook.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>

#define MAC_BYTES sizeof(hx_digest)
#define ED25519_SIGNATURE_BYTES 64u
#define ED25519_TRIES_MAX 16u /* signatures times keys: one costs as much as a thousand comparisons */

typedef struct {
    bool is_ed25519;
    hx_slice bytes;
} signature;

typedef struct {
    const hx_webhook_rules *rules;
    const hx_webhook_request *request;
    hx_arena *arena;
    hx_webhook_result *result;
    hx_slice id;
    hx_slice timestamp; /* digits */
    signature signatures[HX_WEBHOOK_SIGNATURES_MAX];
    size_t count;
    bool is_listed;   /* something with the form of a signature is there, */
    bool has_version; /* of a known version, */
    bool has_secret;  /* for which there is a secret */
} check;

static hx_webhook_error wrong(check *c, hx_webhook_error error, const char *header)
{
    c->result->header = header;
    return error;
}

static hx_webhook_error read_header(check *c, const char *name, hx_slice *value)
{
    size_t lines = c->request->find_header(c->request->user, hx_slice_of(name), value);
    if (lines == 0) return wrong(c, HX_WEBHOOK_HEADER_MISSING, name);
    if (lines > 1) return wrong(c, HX_WEBHOOK_HEADER_REPEATED, name);
    if (value->len == 0 || value->len > HX_WEBHOOK_HEADER_BYTES_MAX) return wrong(c, HX_WEBHOOK_HEADER_MALFORMED, name);
    return HX_WEBHOOK_OK;
}

static bool has_secret_for(const hx_webhook_rules *rules, bool is_ed25519)
{
    for (size_t i = 0; i < rules->secret_count; i++)
        if (rules->secrets[i].is_ed25519 == is_ed25519) return true;
    return false;
}

static bool decode(hx_webhook_encoding encoding, hx_slice text, hx_arena *arena, hx_slice *bytes)
{
    if (encoding == HX_WEBHOOK_BASE64) return hx_base64_decode_any(text, arena, bytes);
    char *out = hx_arena_alloc(arena, text.len / 2 + 1);
    *bytes = (hx_slice){out, text.len / 2};
    return text.len % 2 == 0 && hx_hex_read(out, text.ptr, bytes->len);
}

/* Takes a signature of a known version. */
static void take_signature(check *c, bool is_ed25519, hx_slice text)
{
    hx_slice bytes;
    c->has_version = true;
    if (!has_secret_for(c->rules, is_ed25519)) return;
    c->has_secret = true;
    if (c->count == HX_WEBHOOK_SIGNATURES_MAX) return;
    if (!decode(c->rules->scheme->encoding, text, c->arena, &bytes)) return;
    if (bytes.len != (is_ed25519 ? ED25519_SIGNATURE_BYTES : MAC_BYTES)) return;
    c->signatures[c->count++] = (signature){.is_ed25519 = is_ed25519, .bytes = bytes};
}

static void take_versions(check *c, hx_slice value)
{
    hx_slice item;
    while (hx_slice_next(&value, ' ', &item)) {
        size_t comma = hx_slice_find(item, ',');
        if (comma == SIZE_MAX) continue;
        c->is_listed = true;
        hx_slice version = hx_slice_first(item, comma), text = hx_slice_from(item, comma + 1);
        if (hx_slice_eq(version, HX_LIT("v1"))) take_signature(c, false, text);
        if (hx_slice_eq(version, HX_LIT("v1a"))) take_signature(c, true, text);
    }
}

/* False: it has not one timestamp. */
static bool take_pairs(check *c, hx_slice value)
{
    hx_slice item;
    unsigned timestamps = 0;
    while (hx_slice_next(&value, ',', &item)) {
        size_t equals = hx_slice_find(item, '=');
        if (equals == SIZE_MAX) continue;
        hx_slice name = hx_slice_trim(hx_slice_first(item, equals));
        hx_slice text = hx_slice_trim(hx_slice_from(item, equals + 1));
        c->is_listed = true;
        if (hx_slice_eq(name, HX_LIT("v1"))) take_signature(c, false, text);
        if (!hx_slice_eq(name, HX_LIT("t"))) continue;
        c->timestamp = text;
        timestamps++;
    }
    return timestamps == 1;
}

static hx_webhook_error read_signatures(check *c)
{
    const hx_webhook_scheme *scheme = c->rules->scheme;
    hx_slice value, prefix = hx_slice_of(scheme->prefix);
    hx_webhook_error error = read_header(c, scheme->signature_header, &value);
    if (error != HX_WEBHOOK_OK) return error;
    bool has_form = true;
    switch (scheme->form) {
    case HX_WEBHOOK_VERSIONS: take_versions(c, value); break;
    case HX_WEBHOOK_PAIRS: has_form = take_pairs(c, value); break;
    case HX_WEBHOOK_SINGLE:
        c->is_listed = true;
        if (hx_slice_starts(value, prefix)) take_signature(c, false, hx_slice_from(value, prefix.len));
        break;
    }
    error = !has_form || !c->is_listed ? HX_WEBHOOK_HEADER_MALFORMED
            : !c->has_version          ? HX_WEBHOOK_NO_VERSION
            : !c->has_secret           ? HX_WEBHOOK_NO_SECRET
            : c->count == 0            ? HX_WEBHOOK_HEADER_MALFORMED
                                       : HX_WEBHOOK_OK;
    return error == HX_WEBHOOK_OK ? error : wrong(c, error, scheme->signature_header);
}

bool hx_webhook_is_id(hx_slice id)
{
    for (size_t i = 0; i < id.len; i++)
        if (id.ptr[i] <= ' ' || id.ptr[i] > '~' || id.ptr[i] == '.') return false;
    return id.len > 0 && id.len <= HX_WEBHOOK_ID_BYTES_MAX;
}

static hx_webhook_error read_headers(check *c)
{
    const hx_webhook_scheme *scheme = c->rules->scheme;
    hx_webhook_error error = HX_WEBHOOK_OK;
    if (strstr(scheme->signed_text, "{id}")) {
        error = read_header(c, scheme->id_header, &c->id);
        if (error != HX_WEBHOOK_OK) return error;
        if (!hx_webhook_is_id(c->id)) return wrong(c, HX_WEBHOOK_HEADER_MALFORMED, scheme->id_header);
    }
    if (scheme->timestamp_header) error = read_header(c, scheme->timestamp_header, &c->timestamp);
    return error == HX_WEBHOOK_OK ? read_signatures(c) : error;
}

/* Only digits: text that is signed in the timestamp's place can't be anything else. */
static hx_webhook_error check_timestamp(check *c, hx_ms now)
{
    const hx_webhook_scheme *scheme = c->rules->scheme;
    const char *header = scheme->timestamp_header ? scheme->timestamp_header : scheme->signature_header;
    hx_webhook_result *result = c->result;
    uint64_t seconds;
    if (!scheme->timestamp_header && scheme->form != HX_WEBHOOK_PAIRS) return HX_WEBHOOK_OK;
    if (!hx_slice_to_u64(c->timestamp, &seconds) || seconds > (uint64_t)(INT64_MAX / HX_SECOND / 2))
        return wrong(c, HX_WEBHOOK_HEADER_MALFORMED, header);
    result->has_timestamp = true;
    result->timestamp = (hx_ms)seconds * HX_SECOND;
    result->age = now - result->timestamp;
    if (result->age > c->rules->tolerance) return wrong(c, HX_WEBHOOK_STALE, header);
    return -result->age > c->rules->tolerance ? wrong(c, HX_WEBHOOK_FUTURE, header) : HX_WEBHOOK_OK;
}

/* Fills in what is signed before and after the body. */
static void fill_in(check *c)
{
    static const char body[] = "{body}";
    hx_slice rest = hx_slice_of(c->rules->scheme->signed_text);
    hx_buf before, after, *out = &before;
    size_t bytes_max = rest.len + c->id.len + (rest.len / 11 + 1) * c->timestamp.len;
    hx_buf_init(&before, c->arena, bytes_max);
    hx_buf_init(&after, c->arena, bytes_max);
    while (rest.len > 0) {
        bool is_id = hx_slice_starts(rest, HX_LIT("{id}")), is_body = hx_slice_starts(rest, HX_LIT(body));
        bool is_timestamp = hx_slice_starts(rest, HX_LIT("{timestamp}"));
        if (is_body) out = &after;
        if (is_id) hx_buf_put(out, c->id);
        if (is_timestamp) hx_buf_put(out, c->timestamp);
        if (!is_id && !is_body && !is_timestamp) hx_buf_put(out, hx_slice_first(rest, 1));
        rest = hx_slice_from(rest, is_id ? 4 : is_body ? sizeof body - 1 : is_timestamp ? 11 : 1);
    }
    c->result->before = before.len > 0 ? hx_buf_slice(&before) : HX_EMPTY;
    c->result->after = after.len > 0 ? hx_buf_slice(&after) : HX_EMPTY;
}

static bool ed25519_verifies(hx_slice public_key, hx_slice message, hx_slice bytes)
{
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)public_key.ptr,
                                                public_key.len);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool fine = key && context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestVerify(context, (const unsigned char *)bytes.ptr, bytes.len,
                                 (const unsigned char *)message.ptr, message.len) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error(); /* errors of a forged signature must not be taken for the next call's */
    return fine;
}

/* ed25519 takes its message in one piece. */
static hx_slice joined(const hx_slice parts[3], hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, parts[0].len + parts[1].len + parts[2].len + 1);
    for (size_t i = 0; i < 3; i++) hx_buf_put(&out, parts[i]);
    return hx_buf_slice(&out);
}

static hx_webhook_error compare(check *c)
{
    const hx_webhook_rules *rules = c->rules;
    const hx_slice parts[3] = {c->result->before, c->request->body, c->result->after};
    hx_digest macs[HX_WEBHOOK_SECRETS_MAX];
    hx_slice message = {NULL, 0};
    size_t found = SIZE_MAX, tries = 0;
    for (size_t i = 0; i < rules->secret_count; i++) {
        if (!rules->secrets[i].is_ed25519) macs[i] = hx_mac_plain(rules->secrets[i].key, parts, 3);
        for (size_t s = 0; s < c->count; s++) {
            const signature *given = &c->signatures[s];
            if (given->is_ed25519 != rules->secrets[i].is_ed25519) continue;
            bool same;
            if (given->is_ed25519) {
                if (tries++ >= ED25519_TRIES_MAX) continue;
                if (!message.ptr) message = joined(parts, c->arena);
                same = ed25519_verifies(rules->secrets[i].key, message, given->bytes);
            } else {
                same = CRYPTO_memcmp(macs[i].bytes, given->bytes.ptr, MAC_BYTES) == 0;
            }
            if (same) found = i;
        }
    }
    OPENSSL_cleanse(macs, sizeof macs);
    c->result->secret = found;
    return found == SIZE_MAX ? HX_WEBHOOK_NO_MATCH : HX_WEBHOOK_OK;
}

hx_webhook_error hx_webhook_verify(const hx_webhook_rules *rules, const hx_webhook_request *request, hx_ms now,
                                   hx_arena *arena, hx_webhook_result *result)
{
    check c = {
        .rules = rules, .request = request, .arena = arena, .result = result, .id = HX_EMPTY, .timestamp = HX_EMPTY};
    *result = (hx_webhook_result){.secret = SIZE_MAX};
    result->error = read_headers(&c);
    if (result->error != HX_WEBHOOK_OK) return result->error;
    fill_in(&c);
    result->error = check_timestamp(&c, now);
    if (result->error == HX_WEBHOOK_OK) result->error = compare(&c);
    return result->error;
}

bool hx_webhook_event_id(const hx_webhook_scheme *scheme, const hx_webhook_request *request, hx_arena *arena,
                         hx_slice *id, bool *is_signed)
{
    hx_slice raw;
    *is_signed = !scheme->id_header || strstr(scheme->signed_text, "{id}");
    if (scheme->id_header)
        return request->find_header(request->user, hx_slice_of(scheme->id_header), id) == 1 && id->len > 0;
    return scheme->id_pointer && hx_json_pointer(request->body, hx_slice_of(scheme->id_pointer), &raw) &&
           hx_json_string(raw, arena, id) && id->len > 0;
}

static size_t ed25519_sign(hx_slice private_key, hx_slice message, unsigned char out[ED25519_SIGNATURE_BYTES])
{
    size_t len = ED25519_SIGNATURE_BYTES;
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)private_key.ptr,
                                                 private_key.len);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool fine = key && context && EVP_DigestSignInit(context, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestSign(context, out, &len, (const unsigned char *)message.ptr, message.len) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return fine ? len : 0;
}

hx_slice hx_webhook_secret_write(const uint8_t *key, size_t len, hx_arena *arena)
{
    unsigned char *text = hx_arena_alloc(arena, 4 * len / 3 + 8);
    (void)EVP_EncodeBlock(text, key, (int)len);
    return hx_arena_printf(arena, "whsec_%s", (const char *)text);
}

bool hx_webhook_sign(const hx_webhook_secret *secrets, size_t count, hx_slice id, int64_t seconds, hx_slice body,
                     hx_arena *arena, hx_slice *value)
{
    const hx_slice parts[3] = {hx_arena_printf(arena, "%.*s.%lld.", HX_FMT(id), (long long)seconds), body, HX_EMPTY};
    *value = HX_EMPTY;
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[ED25519_SIGNATURE_BYTES], text[4 * ED25519_SIGNATURE_BYTES / 3 + 8];
        size_t len = MAC_BYTES;
        if (secrets[i].is_ed25519) {
            len = ed25519_sign(secrets[i].private_key, joined(parts, arena), bytes);
        } else {
            hx_digest mac = hx_mac_plain(secrets[i].key, parts, 2);
            memcpy(bytes, mac.bytes, MAC_BYTES);
        }
        if (len == 0) return false;
        (void)EVP_EncodeBlock(text, bytes, (int)len);
        *value = hx_arena_printf(arena, "%.*s%sv1%s,%s", HX_FMT(*value), i > 0 ? " " : "",
                                 secrets[i].is_ed25519 ? "a" : "", (const char *)text);
    }
    return true;
}
