/* SPDX-License-Identifier: Apache-2.0 */
/* The message is padded here (FIPS 180-4, 5.1.1), so that OpenSSL is given whole blocks in one call: its own buffering,
 * wiping and padding cost as much as the two to seven blocks that are hashed. */
#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_CTX, whose state can be set and read */
#include "core/crypto/sha256.h"

#include "base/check.h"

#include <openssl/sha.h>

#include <string.h>

hx_digest hx_sha256_end(const uint32_t state[8], uint64_t blocks, uint8_t *bytes, size_t len)
{
    HX_UNINITIALIZED SHA256_CTX context;
    int ok = SHA256_Init(&context);
    if (state) memcpy(context.h, state, sizeof context.h);
    uint64_t bits = __builtin_bswap64((blocks * SHA256_CBLOCK + len) * 8);
    size_t padded = (len + 1 + sizeof bits + SHA256_CBLOCK - 1) / SHA256_CBLOCK * SHA256_CBLOCK;
    memset(bytes + len, 0, padded - len);
    bytes[len] = 0x80;
    memcpy(bytes + padded - sizeof bits, &bits, sizeof bits);
    ok &= SHA256_Update(&context, bytes, padded);
    HX_CHECK(ok == 1);
    hx_digest digest;
    for (size_t i = 0; i < 8; i++) {
        uint32_t word = __builtin_bswap32(context.h[i]);
        memcpy(digest.bytes + 4 * i, &word, sizeof word);
    }
    return digest;
}
