/* SPDX-License-Identifier: Apache-2.0 */
/* The digested bytes are: the tag, then for each part its length (8 bytes, little-endian) and itself. Small parts are
 * gathered, so that a fingerprint's eleven parts are one call into OpenSSL, which need not buffer them again.
 *
 * HMAC (RFC 2104) is two SHA-256 states that have taken the padded key, copied for each message: 100 ns where EVP_MAC
 * takes 200, because that duplicates its provider's contexts on the heap each time. See docs/decisions/0006. */
#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_CTX, which can be copied by assignment */
#include "core/crypto/mac.h"

#include "base/check.h"
#include "core/crypto/sha256.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/sha.h>

#include <stdlib.h>
#include <string.h>

#define GATHER_BYTES 1024u
#define SHORT_KEY_BYTES 16u
#define REMEMBERED 16u /* by the tag's low bits */
#define REMEMBERED_BYTES 48u

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "lengths are digested in the machine's order");

struct hx_mac {
    SHA256_CTX inner, outer; /* after the padded key */
    SHA256_CTX running;      /* when `spilled` */
    EVP_MAC_CTX *siphash;    /* NULL until the first short MAC: needs the default provider of OpenSSL */
    uint8_t short_key[SHORT_KEY_BYTES];
    bool spilled; /* more than fits was gathered */
    size_t gathered;
    uint8_t gather[GATHER_BYTES + HX_SHA256_ROOM];
    /* The last short MAC of each tag: most requests have the method, path and media type of the one before. */
    struct {
        uint64_t value;
        char tag; /* 0: none yet */
        uint8_t len;
        char bytes[REMEMBERED_BYTES];
    } remembered[REMEMBERED];
};

static void must(int ok)
{
    if (!ok) hx_fatal(HX_EXIT_BUG, "OpenSSL can't compute a MAC; is its default provider loaded?");
}

static EVP_MAC_CTX *siphash_new(void)
{
    size_t bytes = sizeof(uint64_t);
    OSSL_PARAM size[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &bytes), OSSL_PARAM_END};
    EVP_MAC *fetched = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    must(fetched != NULL);
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(fetched); /* holds its own reference */
    EVP_MAC_free(fetched);
    must(context != NULL && EVP_MAC_CTX_set_params(context, size));
    return context;
}

/* `key` has up to SHA256_CBLOCK bytes. */
static void take_key(SHA256_CTX *state, const uint8_t *key, size_t len, uint8_t pad)
{
    uint8_t block[SHA256_CBLOCK];
    memset(block, pad, sizeof block);
    for (size_t i = 0; i < len; i++) block[i] ^= key[i];
    must(SHA256_Init(state) && SHA256_Update(state, block, sizeof block));
    OPENSSL_cleanse(block, sizeof block);
}

hx_mac *hx_mac_new(const uint8_t secret[HX_SECRET_BYTES])
{
    hx_mac *mac = calloc(1, sizeof *mac);
    if (!mac) hx_fatal(HX_EXIT_BUG, "out of memory");

    take_key(&mac->inner, secret, HX_SECRET_BYTES, 0x36);
    take_key(&mac->outer, secret, HX_SECRET_BYTES, 0x5c);

    /* The short MAC has a key of its own, so that it says nothing about the secret. */
    hx_mac_begin(mac, 'K');
    hx_mac_part(mac, HX_LIT("hapax short mac"));
    hx_digest derived = hx_mac_end(mac);
    memcpy(mac->short_key, derived.bytes, sizeof mac->short_key);
    OPENSSL_cleanse(&derived, sizeof derived);
    return mac;
}

void hx_mac_free(hx_mac **owned)
{
    hx_mac *mac = *owned;
    *owned = NULL;
    if (!mac) return;
    EVP_MAC_CTX_free(mac->siphash);
    OPENSSL_cleanse(mac, sizeof *mac);
    free(mac);
}

bool hx_digest_eq(const hx_digest *a, const hx_digest *b)
{
    return CRYPTO_memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool hx_secret_eq(hx_slice a, hx_slice b)
{
    return a.len == b.len && (a.len == 0 || CRYPTO_memcmp(a.ptr, b.ptr, a.len) == 0);
}

static void flush(hx_mac *mac)
{
    if (!mac->spilled) mac->running = mac->inner;
    mac->spilled = true;
    if (mac->gathered > 0) must(SHA256_Update(&mac->running, mac->gather, mac->gathered));
    mac->gathered = 0;
}

static void gather(hx_mac *mac, const void *bytes, size_t len)
{
    if (len > GATHER_BYTES - mac->gathered) flush(mac);
    if (len > GATHER_BYTES) {
        must(SHA256_Update(&mac->running, bytes, len));
        return;
    }
    if (len > 0) memcpy(mac->gather + mac->gathered, bytes, len);
    mac->gathered += len;
}

void hx_mac_begin(hx_mac *mac, char tag)
{
    mac->spilled = false;
    mac->gather[0] = (uint8_t)tag;
    mac->gathered = 1;
}

void hx_mac_part(hx_mac *mac, hx_slice bytes)
{
    uint64_t length = bytes.len;
    gather(mac, &length, sizeof length);
    gather(mac, bytes.ptr, bytes.len);
}

hx_digest hx_mac_end(hx_mac *mac)
{
    hx_digest digest;
    if (mac->spilled) {
        flush(mac);
        must(SHA256_Final(digest.bytes, &mac->running));
    } else {
        digest = hx_sha256_end(mac->inner.h, 1, mac->gather, mac->gathered);
    }
    memcpy(mac->gather, digest.bytes, sizeof digest.bytes);
    return hx_sha256_end(mac->outer.h, 1, mac->gather, sizeof digest.bytes);
}

static uint64_t compute_short(hx_mac *mac, char tag, hx_slice bytes)
{
    uint8_t out[8];
    size_t written = 0;
    if (!mac->siphash) mac->siphash = siphash_new();
    /* With the key each time: some 3.0 releases don't start afresh without it, and setting it is two additions. */
    must(EVP_MAC_init(mac->siphash, mac->short_key, sizeof mac->short_key, NULL));
    must(EVP_MAC_update(mac->siphash, (const unsigned char *)&tag, 1));
    if (bytes.len > 0) must(EVP_MAC_update(mac->siphash, (const unsigned char *)bytes.ptr, bytes.len));
    must(EVP_MAC_final(mac->siphash, out, &written, sizeof out));
    HX_CHECK(written == sizeof out);
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof out; i++) value |= (uint64_t)out[i] << (8 * i);
    return value;
}

uint64_t hx_mac_short(hx_mac *mac, char tag, hx_slice bytes)
{
    if (bytes.len > REMEMBERED_BYTES || tag == 0) return compute_short(mac, tag, bytes);
    size_t at = (unsigned char)tag % REMEMBERED;
    if (mac->remembered[at].tag == tag && mac->remembered[at].len == bytes.len &&
        (bytes.len == 0 || memcmp(mac->remembered[at].bytes, bytes.ptr, bytes.len) == 0))
        return mac->remembered[at].value;
    mac->remembered[at].value = compute_short(mac, tag, bytes);
    mac->remembered[at].tag = tag;
    mac->remembered[at].len = (uint8_t)bytes.len;
    if (bytes.len > 0) memcpy(mac->remembered[at].bytes, bytes.ptr, bytes.len);
    return mac->remembered[at].value;
}

hx_digest hx_mac_plain(hx_slice key, const hx_slice *parts, size_t count)
{
    SHA256_CTX state;
    hx_digest digest, hashed_key;
    const uint8_t *bytes = (const uint8_t *)key.ptr;
    size_t len = key.len;
    if (len > SHA256_CBLOCK) {
        must(SHA256_Init(&state) && SHA256_Update(&state, bytes, len) && SHA256_Final(hashed_key.bytes, &state));
        bytes = hashed_key.bytes;
        len = sizeof hashed_key.bytes;
    }
    take_key(&state, bytes, len, 0x36);
    for (size_t i = 0; i < count; i++)
        if (parts[i].len > 0) must(SHA256_Update(&state, parts[i].ptr, parts[i].len));
    must(SHA256_Final(digest.bytes, &state));
    take_key(&state, bytes, len, 0x5c);
    must(SHA256_Update(&state, digest.bytes, sizeof digest.bytes) && SHA256_Final(digest.bytes, &state));
    OPENSSL_cleanse(&state, sizeof state);
    OPENSSL_cleanse(&hashed_key, sizeof hashed_key);
    return digest;
}
