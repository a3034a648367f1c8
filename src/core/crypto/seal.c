/* SPDX-License-Identifier: Apache-2.0 */
#include "core/crypto/seal.h"

#include "base/check.h"
#include "base/rand.h"

#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#define NONCE_BYTES 12u
#define TAG_BYTES 16u

static EVP_CIPHER_CTX *begin(const uint8_t *secret, const uint8_t *nonce, hx_slice purpose, bool seals)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    int unused;
    HX_CHECK(purpose.len <= INT_MAX);
    if (!context || EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, secret, nonce, seals) != 1 ||
        EVP_CipherUpdate(context, NULL, &unused, (const uint8_t *)purpose.ptr, (int)purpose.len) != 1)
        hx_fatal(HX_EXIT_BUG, "OpenSSL has no AES-256-GCM");
    return context;
}

hx_slice hx_seal(const uint8_t secret[HX_SECRET_BYTES], hx_slice purpose, hx_slice plain, hx_arena *arena)
{
    int len = 0, unused;
    HX_CHECK(plain.len <= INT_MAX - HX_SEAL_BYTES);
    uint8_t *out = hx_arena_alloc(arena, plain.len + HX_SEAL_BYTES), *text = out + NONCE_BYTES;
    hx_rand_bytes(out, NONCE_BYTES);
    EVP_CIPHER_CTX *context = begin(secret, out, purpose, true);
    bool sealed = EVP_EncryptUpdate(context, text, &len, (const uint8_t *)plain.ptr, (int)plain.len) == 1 &&
                  (size_t)len == plain.len && EVP_EncryptFinal_ex(context, text + len, &unused) == 1 &&
                  EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, text + len) == 1;
    EVP_CIPHER_CTX_free(context);
    if (!sealed) hx_fatal(HX_EXIT_BUG, "OpenSSL fails to encrypt");
    return (hx_slice){(char *)out, plain.len + HX_SEAL_BYTES};
}

bool hx_seal_open(const uint8_t secret[HX_SECRET_BYTES], hx_slice purpose, hx_slice sealed, hx_arena *arena,
                  hx_slice *plain)
{
    int len = 0, unused;
    if (sealed.len < HX_SEAL_BYTES || sealed.len > INT_MAX) return false;
    size_t plain_len = sealed.len - HX_SEAL_BYTES;
    const uint8_t *in = (const uint8_t *)sealed.ptr, *text = in + NONCE_BYTES;
    uint8_t tag[TAG_BYTES], *out = hx_arena_alloc(arena, plain_len + 1);
    memcpy(tag, text + plain_len, TAG_BYTES);
    EVP_CIPHER_CTX *context = begin(secret, in, purpose, false);
    bool opened = EVP_DecryptUpdate(context, out, &len, text, (int)plain_len) == 1 && (size_t)len == plain_len &&
                  EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, tag) == 1 &&
                  EVP_DecryptFinal_ex(context, out + len, &unused) == 1;
    EVP_CIPHER_CTX_free(context);
    *plain = (hx_slice){(char *)out, plain_len};
    return opened;
}
