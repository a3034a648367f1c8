/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a principal are its kind, a NUL, and the name: the name itself where there is one, and each as
 * `length:name` where there are several (iss and sub; consumer and token; iss, a claim's name, type and value), so
 * that none can pass for another. */
#include "core/operation/identity.h"

#include "base/memory/buf.h"
#include "core/token/base64.h"
#include "core/json/json.h"
#include "core/json/number.h"
#include "base/text.h"

#include <string.h>

typedef enum {
#define X(name, text) KIND_##name,
    HX_IDENTITY_KINDS(X)
#undef X
} kind;

static const char *const kind_names[] = {
#define X(name, text) #name,
    HX_IDENTITY_KINDS(X)
#undef X
};

static void name_principal(hx_identity *out, kind which, hx_arena *arena, const hx_slice *names, size_t count)
{
    hx_buf text;
    hx_slice name = hx_slice_of(kind_names[which]);
    size_t bytes = name.len + 1;
    for (size_t i = 0; i < count; i++) bytes += names[i].len + sizeof "18446744073709551615:";
    hx_buf_init(&text, arena, bytes);
    hx_buf_put(&text, name);
    hx_buf_put(&text, (hx_slice){"", 1});
    for (size_t i = 0; i < count; i++) {
        if (count > 1) {
            hx_buf_put_decimal(&text, names[i].len);
            hx_buf_put(&text, HX_LIT(":"));
        }
        hx_buf_put(&text, names[i]);
    }
    out->kind = kind_names[which];
    out->principal = hx_buf_slice(&text);
}

static bool basic_user(hx_slice credentials, hx_arena *arena, hx_slice *user)
{
    hx_slice pair;
    if (!hx_base64_decode_any(credentials, arena, &pair)) return false;
    size_t colon = hx_slice_find(pair, ':');
    /* An empty user name would be shared by all: a token sent as a bare password identifies by the whole value. */
    if (colon == SIZE_MAX || colon == 0) return false;
    *user = hx_slice_first(pair, colon);
    return true;
}

/* A token without an issuer is accepted, with an empty one. False for a payload that isn't clean JSON, or that names
 * its issuer twice or by anything but a string. */
static bool jwt_issuer(hx_slice payload, hx_arena *arena, hx_slice *issuer)
{
    hx_slice raw;
    *issuer = HX_EMPTY;
    hx_json_search found = hx_json_find(payload, HX_LIT("/iss"), &raw);
    return found == HX_JSON_MISSING || (found == HX_JSON_FOUND && hx_json_string(raw, arena, issuer));
}

static bool jwt_subject(hx_slice token, hx_arena *arena, hx_slice names[2])
{
    hx_slice rest = token, header64, payload64, signature64, extra, header, payload, raw;
    if (!hx_slice_next(&rest, '.', &header64) || !hx_slice_next(&rest, '.', &payload64) ||
        !hx_slice_next(&rest, '.', &signature64) || hx_slice_next(&rest, '.', &extra))
        return false;
    if (!hx_base64_decode_any(header64, arena, &header) || !hx_json_pointer(header, HX_LIT("/alg"), &raw)) return false;
    if (!hx_base64_decode_any(payload64, arena, &payload)) return false;

    if (!jwt_issuer(payload, arena, &names[0])) return false;
    if (!hx_json_pointer(payload, HX_LIT("/sub"), &raw) || !hx_json_string(raw, arena, &names[1])) return false;
    return names[1].len > 0;
}

/* Takes `name=value` and the comma behind it off the front of *rest. */
static bool take_parameter(hx_slice *rest, hx_arena *arena, hx_slice *name, hx_slice *value)
{
    size_t equals = hx_slice_find(*rest, '=');
    if (equals == SIZE_MAX) return false;
    *name = hx_slice_trim(hx_slice_first(*rest, equals));
    *rest = hx_slice_trim(hx_slice_from(*rest, equals + 1));
    if (!hx_slice_is_token(*name)) return false;
    if (rest->len > 0 && rest->ptr[0] == '"') {
        if (!hx_text_take_quoted(rest, arena, value)) return false;
        *rest = hx_slice_trim(*rest);
        if (rest->len > 0 && rest->ptr[0] != ',') return false;
        *rest = hx_slice_from(*rest, 1);
        return true;
    }
    size_t comma = hx_slice_find(*rest, ',');
    *value = hx_slice_trim(hx_slice_first(*rest, comma));
    *rest = comma == SIZE_MAX ? HX_EMPTY : hx_slice_from(*rest, comma + 1);
    return true;
}

typedef enum { FOUND, MISSING, MALFORMED } search;

/* The value of the parameter `wanted`. An empty one is missing; twice the same name is malformed. */
static search search_parameter(hx_slice list, hx_slice wanted, hx_arena *arena, hx_slice *found)
{
    bool seen = false;
    *found = HX_EMPTY;
    for (hx_slice rest = hx_slice_trim(list); rest.len > 0; rest = hx_slice_trim(rest)) {
        hx_slice name, value;
        if (rest.ptr[0] == ',') {
            rest = hx_slice_from(rest, 1);
            continue;
        }
        if (!take_parameter(&rest, arena, &name, &value)) return MALFORMED;
        if (!hx_slice_eq_nocase(name, wanted)) continue;
        if (seen) return MALFORMED;
        seen = true;
        *found = value;
    }
    return found->len > 0 ? FOUND : MISSING;
}

/* Counts `name=` in the list, inside quoted values too, where a simpler parser would find it. */
static unsigned count_mentions(hx_slice list, hx_slice name)
{
    unsigned count = 0;
    for (size_t i = 0; i + name.len < list.len; i++) {
        bool begins = i == 0 || list.ptr[i - 1] == ',' || list.ptr[i - 1] == ' ' || list.ptr[i - 1] == '\t';
        if (!begins || !hx_slice_starts_nocase(hx_slice_from(list, i), name)) continue;
        hx_slice behind = hx_slice_trim(hx_slice_from(list, i + name.len));
        count += behind.len > 0 && behind.ptr[0] == '=';
    }
    return count;
}

static bool find_parameter(hx_slice list, const char *wanted, hx_arena *arena, hx_slice *found)
{
    return search_parameter(list, hx_slice_of(wanted), arena, found) == FOUND &&
           count_mentions(list, hx_slice_of(wanted)) == 1;
}

/* Accepts three parameters, in any order, each once and none quoted: anything else could be read in two ways. */
static bool sigv4_key(hx_slice list, hx_arena *arena, hx_slice *id)
{
    static const char *const names[] = {"Credential", "SignedHeaders", "Signature"};
    hx_slice values[3], rest = list, pair;
    size_t count = 0;
    if (hx_slice_find(list, '"') != SIZE_MAX) return false;
    while (hx_slice_next(&rest, ',', &pair)) count++;
    for (size_t i = 0; i < 3; i++)
        if (!find_parameter(list, names[i], arena, &values[i])) return false;
    size_t slash = hx_slice_find(values[0], '/');
    if (count != 3 || slash == SIZE_MAX || slash == 0) return false;
    *id = hx_slice_first(values[0], slash);
    return true;
}

/* The token is missing when a consumer acts for itself. */
static bool oauth1_names(hx_slice list, hx_arena *arena, hx_slice names[2])
{
    if (!find_parameter(list, "oauth_consumer_key", arena, &names[0])) return false;
    return search_parameter(list, HX_LIT("oauth_token"), arena, &names[1]) != MALFORMED;
}

/* Finds the kind of `scheme` and its names; `whole` when the credentials don't follow the scheme. */
static kind names_of(hx_slice scheme, hx_slice credentials, hx_arena *arena, hx_slice names[2], size_t *count)
{
    *count = 1;
    if (hx_slice_eq_nocase(scheme, HX_LIT("Bearer"))) {
        *count = 2;
        return jwt_subject(credentials, arena, names) ? KIND_jwt : KIND_whole;
    }
    if (hx_slice_eq_nocase(scheme, HX_LIT("Basic"))) {
        return basic_user(credentials, arena, names) ? KIND_basic : KIND_whole;
    }
    if (hx_slice_eq_nocase(scheme, HX_LIT("Digest"))) {
        return find_parameter(credentials, "username", arena, names) ? KIND_digest : KIND_whole;
    }
    if (hx_slice_eq_nocase(scheme, HX_LIT("AWS4-HMAC-SHA256")) ||
        hx_slice_eq_nocase(scheme, HX_LIT("AWS4-ECDSA-P256-SHA256"))) {
        return sigv4_key(credentials, arena, names) ? KIND_sigv4 : KIND_whole;
    }
    if (hx_slice_eq_nocase(scheme, HX_LIT("Hawk"))) {
        return find_parameter(credentials, "id", arena, names) ? KIND_hawk : KIND_whole;
    }
    if (hx_slice_eq_nocase(scheme, HX_LIT("Signature"))) {
        return find_parameter(credentials, "keyId", arena, names) ? KIND_signature : KIND_whole;
    }
    if (hx_slice_eq_nocase(scheme, HX_LIT("OAuth"))) {
        *count = 2;
        return oauth1_names(credentials, arena, names) ? KIND_oauth1 : KIND_whole;
    }
    return KIND_whole;
}

void hx_identity_of_authorization(hx_slice value, hx_arena *arena, hx_identity *out)
{
    hx_slice names[2], proof = hx_slice_trim(value);
    size_t count;
    *out = (hx_identity){.principal = HX_EMPTY, .proof = proof, .kind = kind_names[KIND_none]};
    if (proof.len == 0) return;
    size_t space = hx_slice_find(proof, ' ');
    hx_slice scheme = hx_slice_first(proof, space);
    hx_slice credentials = hx_slice_trim(hx_slice_from(proof, space));
    kind which = names_of(scheme, credentials, arena, names, &count);
    if (which == KIND_whole) {
        names[0] = proof;
        count = 1;
    }
    name_principal(out, which, arena, names, count);
}

/* The pointer to a member of the outermost object, whatever its name: claims are often URLs. */
static hx_slice pointer_to(hx_slice member, hx_arena *arena)
{
    hx_buf pointer;
    hx_buf_init(&pointer, arena, 2 * member.len + 1);
    hx_buf_put(&pointer, HX_LIT("/"));
    for (size_t i = 0; i < member.len; i++) {
        char c = member.ptr[i];
        hx_buf_put(&pointer, c == '~' ? HX_LIT("~0") : c == '/' ? HX_LIT("~1") : (hx_slice){&member.ptr[i], 1});
    }
    return hx_buf_slice(&pointer);
}

/* 7, 7.0 and 70e-1 are the same whole number. Above 1e21 the canonical text has an exponent; no id is that large. */
static bool whole_number(hx_slice raw, hx_arena *arena, hx_slice *text)
{
    hx_buf digits;
    if (raw.ptr[0] != '-' && (raw.ptr[0] < '0' || raw.ptr[0] > '9')) return false;
    hx_buf_init(&digits, arena, raw.len + HX_NUMBER_GROWTH_BYTES);
    if (!hx_number_canonical(raw, &digits)) return false;
    *text = hx_buf_slice(&digits);
    return hx_slice_find(*text, '.') == SIZE_MAX && hx_slice_find(*text, 'e') == SIZE_MAX;
}

bool hx_identity_of_claim(hx_slice payload_json, hx_slice claim, hx_arena *arena, hx_identity *out)
{
    hx_slice raw, names[4] = {[1] = claim}; /* issuer, claim, type, value */
    *out = (hx_identity){.principal = HX_EMPTY, .proof = HX_EMPTY, .kind = kind_names[KIND_none]};
    if (claim.len == 0 || !hx_json_pointer(payload_json, HX_EMPTY, &raw) || raw.ptr[0] != '{') return false;
    if (!jwt_issuer(payload_json, arena, &names[0])) return false;
    if (!hx_json_pointer(payload_json, pointer_to(claim, arena), &raw)) return false;
    if (hx_json_string(raw, arena, &names[3])) {
        names[2] = HX_LIT("string");
    } else if (whole_number(raw, arena, &names[3])) {
        names[2] = HX_LIT("number");
    } else {
        return false;
    }
    if (names[3].len == 0) return false;
    name_principal(out, KIND_claim, arena, names, 4);
    return true;
}

unsigned hx_cookie_value(hx_slice cookie_header, hx_slice name, hx_slice *value)
{
    hx_slice rest = cookie_header, pair;
    unsigned count = 0;
    while (hx_slice_next(&rest, ';', &pair)) {
        size_t equals = hx_slice_find(pair, '=');
        if (equals == SIZE_MAX || !hx_slice_eq(hx_slice_trim(hx_slice_first(pair, equals)), name)) continue;
        if (count++ == 0) *value = hx_slice_trim(hx_slice_from(pair, equals + 1));
    }
    return count;
}
