/* SPDX-License-Identifier: Apache-2.0 */
/* Fingerprints, canonical JSON, and the signatures of webhooks. */
#include "base/text.h"
#include "core/json/json.h"
#include "core/operation/fingerprint.h"
#include "core/webhook/webhook.h"
#include "lib/structs.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    hx_slice json;
    char **out;
    size_t *out_bytes;
} canonicalising;

static int canonical_body(hx_guest *call, void *arguments)
{
    canonicalising *c = arguments;
    hx_buf buf;
    hx_buf_init(&buf, &call->arena, HX_JSON_CANONICAL_BYTES(c->json.len));
    if (!hx_json_canonical(c->json, &call->arena, &buf))
        return hx_guest_fail(HAPAX_INVALID, "this is no clean JSON: it isn't JSON or UTF-8, or has a member twice");
    *c->out = malloc(buf.len + 1);
    if (!*c->out) return hx_guest_fail(HAPAX_NO_MEMORY, "out of memory");
    memcpy(*c->out, buf.data, buf.len);
    (*c->out)[buf.len] = '\0';
    *c->out_bytes = buf.len;
    return HAPAX_OK;
}

int hapax_canonical_json(const void *json, size_t bytes, char **canonical, size_t *canonical_bytes)
{
    if (!json || !canonical || !canonical_bytes) return hx_guest_fail(HAPAX_INVALID, "an argument is NULL");
    return hx_guest_run(NULL, canonical_body, &(canonicalising){{json, bytes}, canonical, canonical_bytes});
}

typedef struct {
    const hapax_http_request *request;
    const unsigned char *secret;
    unsigned char *out;
} fingerprinting;

static void free_mac(void *what)
{
    hx_mac *mac = what;
    hx_mac_free(&mac);
}

static int fingerprint_body(hx_guest *call, void *arguments)
{
    fingerprinting *f = arguments;
    hapax_http_request given;
    if (!HX_STRUCT_TAKE(&given, f->request, hapax_http_request)) return HAPAX_INVALID;
    hx_fingerprint_input in = {.method = hx_struct_text(given.method),
                               .host = hx_struct_text(given.host),
                               .path = hx_struct_text(given.path),
                               .query = hx_struct_text(given.query),
                               .has_query = given.query != NULL,
                               .content_type = hx_struct_text(given.content_type),
                               .content_encoding = HX_EMPTY,
                               .if_match = HX_EMPTY,
                               .if_none_match = HX_EMPTY,
                               .if_unmodified_since = HX_EMPTY,
                               .body = {given.body ? given.body : "", given.body_bytes},
                               .key = HX_EMPTY};
    hx_mac *mac = hx_mac_new(f->secret);
    hx_arena_at_end(&call->arena, free_mac, mac);
    hx_digest digest = hx_fingerprint(mac, &in, &call->arena);
    memcpy(f->out, digest.bytes, sizeof digest.bytes);
    return HAPAX_OK;
}

int hapax_fingerprint(const hapax_http_request *request, const unsigned char secret[32], unsigned char fingerprint[32])
{
    if (!secret || !fingerprint) return hx_guest_fail(HAPAX_INVALID, "an argument is NULL");
    return hx_guest_run(NULL, fingerprint_body, &(fingerprinting){request, secret, fingerprint});
}

/* Webhooks */

/* Reads secrets that are separated by spaces. */
static bool take_secrets(const hx_webhook_scheme *scheme, const char *texts, hx_arena *arena, hx_webhook_secret *out,
                         size_t *count)
{
    char *error = hx_guest_message();
    hx_slice rest = hx_struct_text(texts), text;
    *count = 0;
    while (hx_slice_next(&rest, ' ', &text)) {
        if (text.len == 0) continue;
        if (*count == HX_WEBHOOK_SECRETS_MAX) return hx_fail(error, "up to %u secrets", HX_WEBHOOK_SECRETS_MAX);
        hx_webhook_error wrong = hx_webhook_secret_read(scheme, text, arena, &out[(*count)++]);
        if (wrong != HX_WEBHOOK_OK) return hx_fail(error, "%s", hx_webhook_error_text(wrong));
    }
    return *count > 0 || hx_fail(error, "no secret is given");
}

typedef struct {
    const char *secrets, *id;
    int64_t seconds;
    hx_slice body;
    char *out;
    size_t out_bytes;
} signing;

static int sign_body(hx_guest *call, void *arguments)
{
    signing *s = arguments;
    hx_webhook_secret secrets[HX_WEBHOOK_SECRETS_MAX];
    size_t count;
    hx_slice value, id = hx_slice_of(s->id);
    const hx_webhook_scheme *scheme = hx_webhook_scheme_named(HX_LIT("standard"));
    if (!take_secrets(scheme, s->secrets, &call->arena, secrets, &count)) return HAPAX_INVALID;
    if (id.len == 0 || id.len > HX_WEBHOOK_ID_BYTES_MAX || !hx_webhook_is_id(id))
        return hx_guest_fail(HAPAX_INVALID, "the id must be visible ASCII characters without a dot");
    if (!hx_webhook_sign(secrets, count, id, s->seconds, s->body, &call->arena, &value))
        return hx_guest_fail(HAPAX_INVALID, "a public key can't sign");
    if (value.len >= s->out_bytes)
        return hx_guest_fail(HAPAX_INVALID, "the signature has %zu bytes, and a NUL", value.len);
    memcpy(s->out, value.ptr, value.len);
    s->out[value.len] = '\0';
    return HAPAX_OK;
}

int hapax_webhook_sign(const char *secrets, const char *id, int64_t seconds, const void *body, size_t body_bytes,
                       char *signature, size_t signature_bytes)
{
    if (!secrets || !id || !signature || (!body && body_bytes > 0))
        return hx_guest_fail(HAPAX_INVALID, "an argument is NULL");
    return hx_guest_run(NULL, sign_body,
                        &(signing){secrets, id, seconds, {body ? body : "", body_bytes}, signature, signature_bytes});
}

static size_t find_header(const void *user, hx_slice name, hx_slice *value)
{
    const hapax_webhook *webhook = user;
    hx_slice head = hx_struct_text(webhook->head);
    hx_text_header header;
    size_t count = 0;
    while (hx_text_next_header(&head, &header))
        if (hx_slice_eq_nocase(header.name, name) && count++ == 0) *value = header.value;
    return count;
}

typedef struct {
    const hapax_webhook *given;
    char *event_id;
} verifying;

static int verify_body(hx_guest *call, void *arguments)
{
    verifying *v = arguments;
    hapax_webhook given;
    hx_webhook_secret secrets[HX_WEBHOOK_SECRETS_MAX];
    hx_webhook_result result;
    hx_slice id = HX_EMPTY;
    bool is_signed;
    if (!HX_STRUCT_TAKE(&given, v->given, hapax_webhook)) return HAPAX_INVALID;
    hx_webhook_rules rules = {.scheme = hx_webhook_scheme_named(given.scheme ? hx_slice_of(given.scheme)
                                                                             : HX_LIT("standard")),
                              .secrets = secrets,
                              .tolerance = given.tolerance > 0 ? given.tolerance : HX_WEBHOOK_TOLERANCE};
    hx_webhook_request request = {.find_header = find_header,
                                  .user = &given,
                                  .body = {given.body ? given.body : "", given.body_bytes}};
    if (!rules.scheme || strcmp(rules.scheme->name, "hmac") == 0) /* which would need more settings */
        return hx_guest_fail(HAPAX_INVALID, "the scheme must be standard, stripe, github, shopify or slack");
    if (!take_secrets(rules.scheme, given.secrets, &call->arena, secrets, &rules.secret_count)) return HAPAX_INVALID;
    hx_webhook_error wrong = hx_webhook_verify(&rules, &request, given.now > 0 ? given.now : hx_clock_wall(),
                                               &call->arena, &result);
    if (wrong != HX_WEBHOOK_OK) return hx_guest_fail(HAPAX_DENIED, "%s", hx_webhook_error_text(wrong));
    if (!v->event_id) return HAPAX_OK;
    if (!hx_webhook_event_id(rules.scheme, &request, &call->arena, &id, &is_signed)) id = HX_EMPTY;
    if (id.len > HX_WEBHOOK_ID_BYTES_MAX) id = HX_EMPTY;
    memcpy(v->event_id, id.ptr, id.len);
    v->event_id[id.len] = '\0';
    return HAPAX_OK;
}

int hapax_webhook_verify(const hapax_webhook *webhook, char *event_id)
{
    return hx_guest_run(NULL, verify_body, &(verifying){webhook, event_id});
}
