/* SPDX-License-Identifier: Apache-2.0 */
/* Three things may have been changed: the body, the secret, and how the signature is written. Each has a list of
 * variants, the first of which is no change, and combinations of them are verified, without regard to the time. */
#include "cmd/webhook/mistakes.h"

#include "base/hex.h"
#include "base/memory/buf.h"
#include "core/json/json.h"
#include "core/token/base64.h"

#include <string.h>

#define VARIANTS_MAX 8u
#define PAIRS_BODY_BYTES_MAX (1024u * 1024u) /* above, one mistake at a time: each costs a MAC over the body */
#define MILLISECONDS_FROM (INT64_C(100000000000) * HX_SECOND) /* as seconds, the year 5138 */

enum {
#define X(name, word, text) name,
#include "cmd/webhook/mistakes.def"
#undef X
    NO_MISTAKE
};

static const hx_verify_mistake mistakes[] = {
#define X(name, word, text) {word, text},
#include "cmd/webhook/mistakes.def"
#undef X
};

typedef struct {
    int mistake;
    hx_slice body;
} body_variant;

typedef struct {
    int mistake;
    hx_webhook_secret secrets[HX_WEBHOOK_SECRETS_MAX];
} secret_variant;

typedef struct {
    int mistake;
    hx_webhook_scheme scheme;
} scheme_variant;

typedef struct {
    const hx_verify_settings *settings;
    const hx_webhook_request *request;
    hx_arena *arena;
    body_variant bodies[VARIANTS_MAX];
    secret_variant secrets[VARIANTS_MAX];
    scheme_variant schemes[VARIANTS_MAX];
    size_t body_count, secret_count, scheme_count;
} search;

static void add_body(search *s, int mistake, hx_slice body)
{
    bool is_new = mistake == NO_MISTAKE || !hx_slice_eq(body, s->request->body);
    if (is_new) s->bodies[s->body_count++] = (body_variant){mistake, body};
}

static hx_slice with_newline(hx_slice bytes, hx_arena *arena)
{
    char *out = hx_arena_alloc(arena, bytes.len + 1);
    memcpy(out, bytes.ptr, bytes.len);
    out[bytes.len] = '\n';
    return (hx_slice){out, bytes.len + 1};
}

/* The body with its line ends replaced; every CR is taken for a part of one. */
static hx_slice with_line_ends(hx_slice body, const char *end, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, 2 * body.len + 1);
    for (size_t i = 0; i < body.len; i++) {
        if (body.ptr[i] == '\n')
            hx_buf_puts(&out, end);
        else if (body.ptr[i] != '\r')
            hx_buf_put(&out, (hx_slice){body.ptr + i, 1});
    }
    return out.len > 0 ? hx_buf_slice(&out) : HX_EMPTY;
}

static void vary_body(search *s)
{
    hx_slice body = s->request->body, shorter = body;
    if (hx_slice_ends(shorter, HX_LIT("\n"))) shorter.len--;
    if (shorter.len < body.len && hx_slice_ends(shorter, HX_LIT("\r"))) shorter.len--;
    add_body(s, NO_MISTAKE, body);
    add_body(s, BODY_NEWLINE_ADDED, shorter);
    add_body(s, BODY_NEWLINE_REMOVED, with_newline(body, s->arena));
    add_body(s, BODY_CRLF_ADDED, with_line_ends(body, "\n", s->arena));
    add_body(s, BODY_CRLF_REMOVED, with_line_ends(body, "\r\n", s->arena));
    add_body(s, BODY_LINES_ADDED, with_line_ends(body, "", s->arena));
    if (hx_slice_starts(body, HX_LIT("\xef\xbb\xbf"))) add_body(s, BODY_BOM_ADDED, hx_slice_from(body, 3));
}

static bool hex_decoded(hx_slice text, hx_arena *arena, hx_slice *bytes)
{
    char *out = hx_arena_alloc(arena, text.len / 2 + 1);
    *bytes = (hx_slice){out, text.len / 2};
    return text.len % 2 == 0 && hx_hex_read(out, text.ptr, bytes->len);
}

/* The key that a sender with this mistake makes of a secret; false: it would be no other one. */
static bool mistaken_key(int mistake, bool is_standard, hx_slice text, hx_arena *arena, hx_slice *key)
{
    bool is_prefixed = hx_slice_starts(text, HX_LIT("whsec_"));
    hx_slice bare = hx_slice_from(text, is_prefixed ? 6 : 0);
    switch (mistake) {
    case SECRET_SPACED: *key = hx_slice_trim(text); return !is_standard && key->len < text.len;
    case SECRET_NEWLINE: *key = with_newline(text, arena); return true;
    case SECRET_NOT_DECODED: *key = text; return is_standard;
    case SECRET_HALF_DECODED: *key = bare; return is_standard && is_prefixed;
    case SECRET_DECODED: return !is_standard && hx_base64_decode_any(bare, arena, key);
    case SECRET_CUT: *key = bare; return !is_standard && is_prefixed;
    default: return !is_standard && hex_decoded(text, arena, key);
    }
}

static void vary_secrets(search *s)
{
    const hx_verify_settings *settings = s->settings;
    bool is_standard = settings->scheme.form == HX_WEBHOOK_VERSIONS;
    s->secrets[s->secret_count].mistake = NO_MISTAKE;
    memcpy(s->secrets[s->secret_count++].secrets, settings->secrets, sizeof settings->secrets);
    for (int mistake = SECRET_SPACED; mistake <= SECRET_HEX; mistake++) {
        secret_variant *variant = &s->secrets[s->secret_count];
        bool is_other = false;
        variant->mistake = mistake;
        memcpy(variant->secrets, settings->secrets, sizeof settings->secrets);
        for (size_t i = 0; i < settings->secret_count; i++) {
            hx_slice key;
            if (settings->secrets[i].is_ed25519 ||
                !mistaken_key(mistake, is_standard, settings->texts[i], s->arena, &key))
                continue;
            variant->secrets[i].key = key;
            is_other = true;
        }
        if (is_other) s->secret_count++;
    }
}

static void vary_scheme(search *s)
{
    const hx_webhook_scheme *given = &s->settings->scheme;
    s->schemes[s->scheme_count++] = (scheme_variant){NO_MISTAKE, *given};
    scheme_variant *variant = &s->schemes[s->scheme_count++];
    *variant = (scheme_variant){SIGNATURE_ENCODING, *given};
    variant->scheme.encoding = given->encoding == HX_WEBHOOK_HEX ? HX_WEBHOOK_BASE64 : HX_WEBHOOK_HEX;
    if (given->form != HX_WEBHOOK_SINGLE) return;
    variant = &s->schemes[s->scheme_count++];
    *variant = (scheme_variant){SIGNATURE_PREFIX, *given};
    variant->scheme.prefix = given->prefix[0] ? "" : "sha256=";
}

static bool is_valid(const search *s, size_t body, size_t secrets, size_t scheme)
{
    hx_webhook_result result;
    hx_webhook_request request = *s->request;
    hx_webhook_rules rules = {.scheme = &s->schemes[scheme].scheme,
                              .secrets = s->secrets[secrets].secrets,
                              .secret_count = s->settings->secret_count,
                              .tolerance = INT64_MAX};
    request.body = s->bodies[body].body;
    return hx_webhook_verify(&rules, &request, 0, s->arena, &result) == HX_WEBHOOK_OK;
}

static void add_mistake(hx_verify_diagnosis *out, int mistake)
{
    if (mistake != NO_MISTAKE) out->mistakes[out->mistake_count++] = &mistakes[mistake];
}

/* Tries all combinations of exactly `changes` mistakes. */
static void try_changes(const search *s, size_t changes, hx_verify_diagnosis *out)
{
    for (size_t body = 0; body < s->body_count && !out->is_signed; body++)
        for (size_t secrets = 0; secrets < s->secret_count && !out->is_signed; secrets++)
            for (size_t scheme = 0; scheme < s->scheme_count && !out->is_signed; scheme++) {
                if ((size_t)(body > 0) + (secrets > 0) + (scheme > 0) != changes) continue;
                if (!is_valid(s, body, secrets, scheme)) continue;
                out->is_signed = true;
                add_mistake(out, s->bodies[body].mistake);
                add_mistake(out, s->secrets[secrets].mistake);
                add_mistake(out, s->schemes[scheme].mistake);
            }
}

static void add_hint(hx_verify_diagnosis *out, const char *hint)
{
    if (out->hint_count < HX_VERIFY_HINTS_MAX) out->hints[out->hint_count++] = hint;
}

/* Headers that tell of another scheme, or of an older signature. */
static void look_for_other_headers(const search *s, hx_verify_diagnosis *out)
{
    size_t count;
    const hx_webhook_scheme *all = hx_webhook_schemes(&count);
    hx_slice value;
    for (size_t i = 0; i < count; i++) {
        const char *header = all[i].signature_header;
        if (!header || strcmp(all[i].name, s->settings->scheme.name) == 0) continue;
        if (s->request->find_header(s->request->user, hx_slice_of(header), &value) == 0) continue;
        add_hint(out, hx_arena_printf(s->arena, "The request has %s: is it --scheme %s?", header, all[i].name).ptr);
    }
    if (strcmp(s->settings->scheme.name, "github") == 0 &&
        s->request->find_header(s->request->user, HX_LIT("X-Hub-Signature"), &value) > 0)
        add_hint(out, "X-Hub-Signature is GitHub's older header, with SHA-1. Take X-Hub-Signature-256 of the same "
                      "request.");
}

static void add_hints(const search *s, const hx_webhook_result *result, hx_verify_diagnosis *out)
{
    hx_slice value;
    switch (result->error) {
    case HX_WEBHOOK_HEADER_MISSING: look_for_other_headers(s, out); break;
    case HX_WEBHOOK_NO_VERSION:
        if (s->request->find_header(s->request->user, hx_slice_of(s->settings->scheme.signature_header), &value) > 0 &&
            hx_slice_starts(value, HX_LIT("sha1=")))
            add_hint(out, "A signature with SHA-1 was given. Take the header with SHA-256 of the same request.");
        break;
    case HX_WEBHOOK_STALE:
    case HX_WEBHOOK_FUTURE:
        if (out->is_signed && out->mistake_count == 0)
            add_hint(out, "But for its time, the signature is valid: the request was kept for long, or a clock is "
                          "wrong. --at TIME verifies as of another time.");
        if (!out->is_signed) add_hint(out, "Whatever the time, no signature matches.");
        break;
    case HX_WEBHOOK_NO_MATCH:
        if (out->is_signed) break;
        add_hint(out, "Is it the secret of this endpoint, and of the same mode (test or live)?");
        if (hx_json_is_clean_object(s->request->body, s->arena))
            add_hint(out, "The body must be the raw bytes as received. JSON that was parsed and written again has "
                          "another signature, and nothing can tell it from a forged one.");
        break;
    default: break;
    }
}

void hx_verify_diagnose(const hx_verify_settings *settings, const hx_webhook_request *request,
                        const hx_webhook_result *result, hx_arena *arena, hx_verify_diagnosis *out)
{
    search s = {.settings = settings, .request = request, .arena = arena};
    *out = (hx_verify_diagnosis){0};
    vary_body(&s);
    vary_secrets(&s);
    vary_scheme(&s);
    bool is_readable = result->error != HX_WEBHOOK_HEADER_MISSING && result->error != HX_WEBHOOK_HEADER_REPEATED;
    size_t changes_max = request->body.len <= PAIRS_BODY_BYTES_MAX ? 2 : 1;
    for (size_t changes = 0; changes <= changes_max && is_readable; changes++)
        if (!out->is_signed) try_changes(&s, changes, out);
    if (out->is_signed && result->error == HX_WEBHOOK_FUTURE && result->timestamp >= MILLISECONDS_FROM)
        add_mistake(out, TIMESTAMP_MILLISECONDS);
    add_hints(&s, result, out);
}
