/* SPDX-License-Identifier: Apache-2.0 */
/* The table of schemes, and the secrets that they take. */
#include "core/token/base64.h"
#include "core/webhook/webhook.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <string.h>

#define ED25519_BYTES 32u

static const hx_webhook_scheme schemes[] = {
#define X(name, form, encoding, ...) {name, HX_WEBHOOK_##form, HX_WEBHOOK_##encoding, __VA_ARGS__},
#include "core/webhook/schemes.def"
#undef X
};

const hx_webhook_scheme *hx_webhook_schemes(size_t *count)
{
    *count = sizeof schemes / sizeof *schemes;
    return schemes;
}

const hx_webhook_scheme *hx_webhook_scheme_named(hx_slice name)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (hx_slice_eq(name, hx_slice_of(schemes[i].name))) return &schemes[i];
    return NULL;
}

static size_t occurrences(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) count++;
    return count;
}

const char *hx_webhook_scheme_mistake(const hx_webhook_scheme *scheme)
{
    const char *text = scheme->signed_text;
    if (!scheme->signature_header || !hx_slice_is_token(hx_slice_of(scheme->signature_header)))
        return "The name of the header that has the signature is missing or is not a header's name.";
    if (scheme->timestamp_header && !hx_slice_is_token(hx_slice_of(scheme->timestamp_header)))
        return "The timestamp's header is not a header's name.";
    if (occurrences(text, "{body}") != 1) return "What is signed must have {body} in it, once.";
    size_t stamps = occurrences(text, "{timestamp}"), braces = occurrences(text, "{") + occurrences(text, "}");
    if (braces != 2 * (1 + stamps))
        return "What is signed is text with {timestamp} and {body} in it, and no other braces.";
    if ((stamps > 0) != (scheme->timestamp_header != NULL))
        return "A timestamp needs both its header and a {timestamp} in what is signed: without the latter, anyone can "
               "change it.";
    return NULL;
}

const char *hx_webhook_error_word(hx_webhook_error error)
{
    static const char *const words[] = {
#define X(name, word, text) word,
#include "core/webhook/errors.def"
#undef X
    };
    return words[error];
}

const char *hx_webhook_error_text(hx_webhook_error error)
{
    static const char *const texts[] = {
#define X(name, word, text) text,
#include "core/webhook/errors.def"
#undef X
    };
    return texts[error];
}

/* whsk_: the seed, and perhaps the public key after it, which must then be the seed's. */
static bool read_private_key(hx_slice bytes, hx_arena *arena, hx_webhook_secret *secret)
{
    size_t len = ED25519_BYTES;
    if (bytes.len != ED25519_BYTES && bytes.len != 2 * ED25519_BYTES) return false;
    unsigned char *public_key = hx_arena_alloc(arena, ED25519_BYTES);
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)bytes.ptr,
                                                 ED25519_BYTES);
    bool derived = key && EVP_PKEY_get_raw_public_key(key, public_key, &len) == 1 && len == ED25519_BYTES;
    EVP_PKEY_free(key);
    ERR_clear_error();
    secret->key = (hx_slice){(char *)public_key, ED25519_BYTES};
    secret->private_key = hx_slice_first(bytes, ED25519_BYTES);
    return derived && (bytes.len == ED25519_BYTES || hx_slice_eq(secret->key, hx_slice_from(bytes, ED25519_BYTES)));
}

static hx_webhook_error read_standard(hx_slice text, hx_arena *arena, hx_webhook_secret *secret)
{
    bool is_public = hx_slice_starts(text, HX_LIT("whpk_")), is_private = hx_slice_starts(text, HX_LIT("whsk_"));
    size_t prefix = is_public || is_private ? 5 : hx_slice_starts(text, HX_LIT("whsec_")) ? 6 : 0;
    hx_slice bytes;
    if (!hx_base64_decode_any(hx_slice_from(text, prefix), arena, &bytes)) return HX_WEBHOOK_SECRET_BASE64;
    secret->is_ed25519 = is_public || is_private;
    if (is_private) return read_private_key(bytes, arena, secret) ? HX_WEBHOOK_OK : HX_WEBHOOK_SECRET_KEY;
    if (is_public && bytes.len != ED25519_BYTES) return HX_WEBHOOK_SECRET_KEY;
    secret->key = bytes;
    return bytes.len > 0 ? HX_WEBHOOK_OK : HX_WEBHOOK_SECRET_EMPTY;
}

hx_webhook_error hx_webhook_secret_read(const hx_webhook_scheme *scheme, hx_slice text, hx_arena *arena,
                                        hx_webhook_secret *secret)
{
    hx_slice others = hx_slice_of(scheme->other_keys), prefix;
    *secret = (hx_webhook_secret){.key = text, .private_key = HX_EMPTY};
    if (text.len == 0) return HX_WEBHOOK_SECRET_EMPTY;
    while (hx_slice_next(&others, ' ', &prefix))
        if (prefix.len > 0 && hx_slice_starts(text, prefix)) return HX_WEBHOOK_SECRET_KIND;
    return scheme->form == HX_WEBHOOK_VERSIONS ? read_standard(text, arena, secret) : HX_WEBHOOK_OK;
}
