/* SPDX-License-Identifier: Apache-2.0 */
/* Two requests of two callers must never meet, whatever they send: a source counts only where the application sees the
 * same one, so a header that goes no further than this hop is none, and of two there is no telling which it believes.
 */
#include "gateway/parts/caller.h"

#include "gateway/request.h"

#include <string.h>

typedef struct {
    const hx_policy *policy;
    const hx_rules *rules;
    hx_token_cache *tokens;
    const hx_fields *fields;
    hx_ms now;
    hx_arena *arena;
} asked;

/* Whether it is `Authorization: Bearer`, and its token, which may be empty. */
static bool is_bearer(const hx_fields *fields, hx_slice *token)
{
    const hx_slice scheme = HX_LIT("Bearer");
    hx_slice value = hx_slice_trim(hx_fields_get(fields, HX_FIELD_AUTHORIZATION));
    bool ends = value.len == scheme.len || (value.len > scheme.len && (value.ptr[6] == ' ' || value.ptr[6] == '\t'));
    if (!ends || !hx_slice_starts_nocase(value, scheme)) return false;
    *token = hx_slice_trim(hx_slice_from(value, scheme.len));
    return true;
}

static hx_caller_result ambiguous(hx_caller *out, hx_arena *arena, hx_slice name)
{
    out->why = hx_arena_printf(arena, "There are two %.*s headers.", HX_FMT(name));
    return HX_CALLER_AMBIGUOUS;
}

/* How many lines of that header the application sees; *value is the first. */
static unsigned lines_of(const hx_fields *fields, hx_slice name, hx_slice *value)
{
    unsigned count = 0;
    for (size_t i = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        if (!hx_field_goes_on(field) || !hx_slice_eq_nocase(field->name, name)) continue;
        if (count++ == 0) *value = field->value;
    }
    return count;
}

/* "header:x-user:ann": neither a header's nor a cookie's name has a colon. */
static void name_source(hx_caller *out, hx_arena *arena, hx_slice kind, hx_slice name, hx_slice value)
{
    hx_buf text;
    hx_buf_init(&text, arena, kind.len + name.len + value.len + 2);
    hx_buf_put(&text, kind);
    hx_buf_put(&text, HX_LIT(":"));
    hx_buf_put(&text, name);
    hx_buf_put(&text, HX_LIT(":"));
    hx_buf_put(&text, value);
    out->who.kind = kind.ptr;
    out->who.principal = hx_buf_slice(&text);
    out->who.proof = value;
}

static hx_caller_result of_header(hx_slice name, const hx_fields *fields, hx_arena *arena, hx_caller *out)
{
    hx_slice value = HX_EMPTY;
    if (lines_of(fields, name, &value) > 1) return ambiguous(out, arena, name);
    if (value.len == 0) return HX_CALLER_NOBODY;
    name_source(out, arena, HX_LIT("header"), name, value);
    return HX_CALLER_FOUND;
}

static hx_caller_result of_cookie(hx_slice name, const hx_fields *fields, hx_arena *arena, hx_caller *out)
{
    hx_slice value = HX_EMPTY;
    if (fields->lines[HX_FIELD_COOKIE] > 1) return ambiguous(out, arena, HX_LIT("Cookie"));
    if (hx_cookie_value(hx_fields_get(fields, HX_FIELD_COOKIE), name, &value) > 1) {
        out->why = hx_arena_printf(arena, "There are two cookies named %.*s.", HX_FMT(name));
        return HX_CALLER_AMBIGUOUS;
    }
    if (value.len == 0) return HX_CALLER_NOBODY;
    name_source(out, arena, HX_LIT("cookie"), name, value);
    return HX_CALLER_FOUND;
}

/* A token that the route can verify is verified, or refused: a request with an invalid one is never treated as
 * unauthenticated. *payload is empty unless the token was taken apart for that. */
static hx_caller_result check_token(const asked *a, hx_slice token, hx_caller *out, hx_slice *payload)
{
    *payload = HX_EMPTY;
    const hx_jwt_policy *policy = &a->policy->jwt;
    if (!policy->given) return HX_CALLER_FOUND;
    if (!a->rules->jwt_keys[policy->source]) {
        out->why = HX_LIT("The keys that verify tokens can't be had for now.");
        return HX_CALLER_NO_KEYS;
    }
    out->token_error = hx_token_cache_verify(a->tokens, token, a->rules, policy, a->now, a->arena, payload);
    if (out->token_error != HX_JWT_OK) {
        out->why = hx_slice_of(hx_jwt_error_text(out->token_error));
        return HX_CALLER_REFUSED;
    }
    out->verified = true;
    return HX_CALLER_FOUND;
}

static hx_caller_result of_authorization(const asked *a, hx_caller *out)
{
    hx_slice token, payload;
    if (a->fields->lines[HX_FIELD_AUTHORIZATION] == 0) return HX_CALLER_NOBODY;
    if (is_bearer(a->fields, &token)) {
        hx_caller_result result = check_token(a, token, out, &payload);
        if (result != HX_CALLER_FOUND) return result;
    }
    hx_identity_of_authorization(hx_fields_get(a->fields, HX_FIELD_AUTHORIZATION), a->arena, &out->who);
    return out->who.principal.len > 0 ? HX_CALLER_FOUND : HX_CALLER_NOBODY;
}

/* Unauthenticated unless another source knows the caller; `why` then says what is wrong with the token. */
static hx_caller_result of_claim(const asked *a, hx_slice claim, hx_caller *out)
{
    hx_slice token, payload;
    if (!is_bearer(a->fields, &token)) return HX_CALLER_NOBODY;
    hx_caller_result result = check_token(a, token, out, &payload);
    if (result != HX_CALLER_FOUND) return result;
    bool is_token = payload.len > 0 || hx_jwt_payload(token, a->arena, &payload);
    if (is_token && hx_identity_of_claim(payload, claim, a->arena, &out->who)) {
        out->who.proof = token;
        return HX_CALLER_FOUND;
    }
    out->verified = false;
    out->why = !is_token
                   ? HX_LIT("The bearer token is not a JWT.")
                   : hx_arena_printf(a->arena, "The token has no claim \"%.*s\" that is a string or a whole number.",
                                     HX_FMT(claim));
    return HX_CALLER_NOBODY;
}

static hx_caller_result of_source(const asked *a, const hx_principal_source *source, hx_caller *out)
{
    switch (source->kind) {
    case HX_PRINCIPAL_AUTHORIZATION: return of_authorization(a, out);
    case HX_PRINCIPAL_JWT_CLAIM: return of_claim(a, source->name, out);
    case HX_PRINCIPAL_HEADER: return of_header(source->name, a->fields, a->arena, out);
    default: return of_cookie(source->name, a->fields, a->arena, out);
    }
}

/* Beside Authorization, which counts for every caller. */
static const hx_field_id credentials[] = {HX_FIELD_COOKIE,       HX_FIELD_X_API_KEY,      HX_FIELD_API_KEY,
                                          HX_FIELD_X_AUTH_TOKEN, HX_FIELD_X_ACCESS_TOKEN, HX_FIELD_PROXY_AUTHORIZATION};
#define CREDENTIAL_COUNT (sizeof credentials / sizeof credentials[0])

bool hx_caller_has_credential(const hx_fields *fields)
{
    for (size_t i = 0; i < CREDENTIAL_COUNT; i++)
        if (fields->lines[credentials[i]] > 0) return true;
    return fields->lines[HX_FIELD_AUTHORIZATION] > 0;
}

/* Every line of each, behind its place in the list and its length, so that none can pass for another. */
static hx_slice credentials_of(const hx_fields *fields, hx_arena *arena)
{
    hx_buf text;
    size_t bytes = 0;
    for (size_t i = 0; i < fields->count; i++) bytes += 1 + sizeof(size_t) + fields->items[i].value.len;
    hx_buf_init(&text, arena, bytes);
    for (size_t i = 0; i < CREDENTIAL_COUNT; i++) {
        char place = (char)('a' + i);
        for (size_t k = fields->first[credentials[i]]; fields->lines[credentials[i]] > 0 && k < fields->count; k++) {
            const hx_field *field = &fields->items[k];
            if (field->id != credentials[i]) continue;
            hx_buf_put(&text, (hx_slice){&place, 1});
            hx_buf_put(&text, (hx_slice){(const char *)&field->value.len, sizeof field->value.len});
            hx_buf_put(&text, field->value);
        }
    }
    return hx_buf_slice(&text);
}

hx_caller_result hx_caller_find(const hx_policy *policy, const hx_rules *rules, hx_token_cache *tokens,
                                const hx_fields *fields, hx_ms now, hx_arena *arena, hx_caller *out)
{
    const asked a = {policy, rules, tokens, fields, now, arena};
    hx_caller_result result = HX_CALLER_NOBODY;
    *out = (hx_caller){.who = {.principal = HX_EMPTY, .proof = HX_EMPTY, .kind = "none"}, .why = HX_EMPTY};
    if (fields->lines[HX_FIELD_AUTHORIZATION] > 1) return ambiguous(out, arena, HX_LIT("Authorization"));
    for (size_t i = 0; i < policy->principal_count && result == HX_CALLER_NOBODY; i++)
        result = of_source(&a, out->source = &policy->principals[i], out);
    if (result == HX_CALLER_FOUND) return result;
    out->verified = false;
    out->source = NULL;
    if (result == HX_CALLER_NOBODY && hx_caller_has_credential(fields)) out->who.proof = credentials_of(fields, arena);
    /* A token that says nothing is a mistake, and not the same as none. */
    return result == HX_CALLER_NOBODY && out->why.len > 0 ? HX_CALLER_REFUSED : result;
}

hx_op hx_operation_of(const hx_policy *policy, const hx_operation_name *name, hx_mac *mac)
{
    static const hx_slice kinds[] = {[HX_SCOPE_ROUTE_AND_PRINCIPAL] = {"both", 4},
                                     [HX_SCOPE_PRINCIPAL] = {"principal", 9},
                                     [HX_SCOPE_ROUTE] = {"route", 5},
                                     [HX_SCOPE_HOST] = {"host", 4}};
    hx_mac_begin(mac, policy->mode == HX_MODE_SHADOW ? HX_TAG_SHADOW : HX_TAG_OPERATION);
    hx_mac_part(mac, policy->scope == HX_SCOPE_PRINCIPAL ? HX_EMPTY : name->route);
    hx_mac_part(mac, policy->scope == HX_SCOPE_ROUTE ? HX_EMPTY : name->principal);
    hx_mac_part(mac, name->key);
    /* The most common kind of operation has no tag, so that it costs nothing. */
    if (name->natural || policy->scope != HX_SCOPE_ROUTE_AND_PRINCIPAL) {
        hx_mac_part(mac, kinds[policy->scope]);
        hx_mac_part(mac, name->natural ? HX_LIT("natural") : HX_EMPTY);
        if (policy->scope == HX_SCOPE_HOST) hx_mac_part(mac, name->host);
    }
    hx_digest digest = hx_mac_end(mac);
    hx_op op;
    memcpy(op.bytes, digest.bytes, sizeof op.bytes);
    return op;
}
