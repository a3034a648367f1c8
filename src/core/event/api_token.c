/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/api_token.h"

#include "base/hex.h"
#include "base/text.h"
#include "core/event/event.h"
#include "core/json/json_writer.h"
#include "core/token/base64.h"

#define TAG_API_TOKEN 'A' /* of hx_mac_begin; HX_TAG_OPERATION and its like are others */

static const char prefix[] = "hpx_";
_Static_assert(sizeof prefix - 1 + HX_BASE64URL_LEN(HX_API_TOKEN_RANDOM) == HX_API_TOKEN_BYTES, "a token's length");

static const struct {
    const char *name;
    unsigned bit;
} scopes[] = {
#define X(id, bit, name, text) {name, bit},
#include "core/event/scopes.def"
#undef X
};
#define SCOPE_COUNT (sizeof scopes / sizeof scopes[0])

#define GIVEN (HX_JSON_GIVEN | HX_JSON_STORED | HX_JSON_SHOWN)
#define OURS (HX_JSON_STORED | HX_JSON_SHOWN)
#define FIELD(name, kind, uses) HX_JSON_FIELD(hx_api_token, name, kind, uses)
static const hx_json_field fields[] = {
    FIELD(id, TEXT, HX_JSON_SHOWN), FIELD(name, TEXT, GIVEN),      FIELD(scopes, TEXTS, GIVEN),
    FIELD(tenant, TEXT, GIVEN),     FIELD(created_at, TIME, OURS), FIELD(created_by, TEXT, OURS),
};
#undef FIELD
const hx_json_shape hx_api_token_shape = HX_JSON_SHAPE(fields);

static const hx_api_token empty = {.id = {"", 0}, .name = {"", 0}, .tenant = {"", 0}, .created_by = {"", 0}};

void hx_api_token_write(const uint8_t random[HX_API_TOKEN_RANDOM], char out[HX_API_TOKEN_BYTES])
{
    memcpy(out, prefix, sizeof prefix - 1);
    hx_base64url_encode(out + sizeof prefix - 1, random, HX_API_TOKEN_RANDOM);
}

/* No token is looked up that can't be one: a request without a proper one costs the store nothing. */
bool hx_api_token_find(hx_slice authorization, hx_slice *token)
{
    const hx_slice scheme = HX_LIT("Bearer ");
    if (!hx_slice_starts_nocase(authorization, scheme)) return false;
    *token = hx_slice_trim(hx_slice_from(authorization, scheme.len));
    hx_slice digits = hx_slice_from(*token, sizeof prefix - 1);
    for (size_t i = 0; i < digits.len; i++) {
        char c = hx_lower(digits.ptr[i]);
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_') return false;
    }
    return token->len == HX_API_TOKEN_BYTES && hx_slice_starts(*token, hx_slice_of(prefix));
}

hx_slice hx_api_token_key(hx_mac *mac, hx_slice token, hx_arena *arena)
{
    hx_buf key;
    hx_mac_begin(mac, TAG_API_TOKEN);
    hx_mac_part(mac, token);
    hx_digest digest = hx_mac_end(mac);
    hx_buf_init(&key, arena, HX_API_TOKEN_KEY_BYTES);
    hx_buf_puts(&key, "t/");
    hx_buf_put_hex(&key, digest.bytes, sizeof digest.bytes);
    return hx_buf_slice(&key);
}

hx_slice hx_api_token_id(hx_slice key)
{
    return hx_slice_first(hx_slice_from(key, 2), HX_API_TOKEN_ID_DIGITS);
}

bool hx_is_api_token_id(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (hx_hex_digit(text.ptr[i]) < 0) return false;
    return text.len == HX_API_TOKEN_ID_DIGITS;
}

/* As for a tenant, so that a name needs no quotes anywhere; and never like an id, so that either can be given. */
bool hx_is_api_token_name(hx_slice text)
{
    return text.len <= HX_API_TOKEN_NAME_MAX && hx_is_tenant(text) && !hx_is_api_token_id(text);
}

hx_slice hx_api_token_keys(hx_slice id, hx_arena *arena)
{
    return hx_arena_printf(arena, "t/%.*s", HX_FMT(hx_text_lower(id, arena)));
}

hx_slice hx_api_token_queue(hx_slice name, hx_arena *arena)
{
    return hx_arena_printf(arena, HX_API_TOKEN_QUEUES "%.*s/", HX_FMT(name));
}

/* The bit of a scope; 0: there is none of that name. */
static unsigned bit_of(hx_slice name)
{
    for (size_t i = 0; i < SCOPE_COUNT; i++)
        if (hx_slice_eq(name, hx_slice_of(scopes[i].name))) return scopes[i].bit;
    return 0;
}

unsigned hx_api_token_scopes(const hx_api_token *token)
{
    unsigned bits = 0;
    for (size_t i = 0; i < token->scopes.count; i++) bits |= bit_of(token->scopes.items[i]);
    return bits;
}

static bool scopes_fit(hx_api_token *token, hx_arena *arena, hx_error_text error)
{
    unsigned bits = hx_api_token_scopes(token);
    bool are_known = token->scopes.count > 0;
    for (size_t i = 0; i < token->scopes.count; i++) are_known = are_known && bit_of(token->scopes.items[i]) != 0;
    if (!are_known)
        return hx_fail(error, "\"scopes\" must be a list of publish, consume, operate and view, with at least one");
    token->scopes = (hx_texts){.items = hx_arena_alloc(arena, SCOPE_COUNT * sizeof(hx_slice))};
    for (size_t i = 0; i < SCOPE_COUNT; i++)
        if (bits & scopes[i].bit) token->scopes.items[token->scopes.count++] = hx_slice_of(scopes[i].name);
    return true;
}

bool hx_api_token_read(hx_slice object, hx_arena *arena, hx_api_token *token, hx_error_text error)
{
    *token = empty;
    if (!hx_json_read(&hx_api_token_shape, HX_JSON_GIVEN, object, arena, token, error)) return false;
    if (!hx_is_api_token_name(token->name))
        return hx_fail(error,
                       "\"name\" must have 1 to %u letters, digits, - and _, and must not look like an id (%u "
                       "hexadecimal digits)",
                       HX_API_TOKEN_NAME_MAX, HX_API_TOKEN_ID_DIGITS);
    if (token->tenant.len > 0 && !hx_is_tenant(token->tenant))
        return hx_fail(error, "\"tenant\" must have 1 to %u letters, digits, - and _", HX_TENANT_MAX);
    return scopes_fit(token, arena, error);
}

void hx_api_token_encode(const hx_api_token *token, hx_buf *meta)
{
    hx_json_open(meta, NULL, '{');
    hx_json_write(&hx_api_token_shape, HX_JSON_STORED, token, meta);
    hx_json_close(meta, '}');
}

bool hx_api_token_decode(hx_slice key, hx_slice meta, hx_arena *arena, hx_api_token *token)
{
    hx_error_text error;
    *token = empty;
    if (!hx_json_read(&hx_api_token_shape, HX_JSON_STORED, meta, arena, token, error)) return false;
    token->id = hx_api_token_id(key);
    return hx_is_api_token_name(token->name) && (token->tenant.len == 0 || hx_is_tenant(token->tenant));
}
