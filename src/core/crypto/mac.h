/* SPDX-License-Identifier: Apache-2.0 */
/* Keyed digests. Principals, proofs, keys and fingerprints are never stored in the clear: what is stored is
 * HMAC-SHA-256 under the store's own secret, so that a copied store is no oracle for guessing them.
 * One hx_mac per secret and thread: it is used by one thread at a time and costs no allocation once made. */
#ifndef HX_CORE_CRYPTO_MAC_H
#define HX_CORE_CRYPTO_MAC_H

#include "base/slice.h"

#define HX_SECRET_BYTES 32u

typedef struct {
    uint8_t bytes[32];
} hx_digest;

/* Compares in constant time. */
bool hx_digest_eq(const hx_digest *a, const hx_digest *b) HX_MUST_USE;

/* Compares credentials of any length; only the length shows. */
bool hx_secret_eq(hx_slice a, hx_slice b) HX_MUST_USE;

typedef struct hx_mac hx_mac;

/* Never NULL: when there is no memory, hx_fatal is called. */
hx_mac *hx_mac_new(const uint8_t secret[HX_SECRET_BYTES]) __attribute__((returns_nonnull));
void hx_mac_free(hx_mac **owned); /* wipes its memory */

/* begin, any number of parts, end. The tag tells apart what is digested (a key is never a proof); every part carries
 * its length, so that `ab` + `c` is never `a` + `bc`. */
void hx_mac_begin(hx_mac *mac, char tag);
void hx_mac_part(hx_mac *mac, hx_slice bytes);
hx_digest hx_mac_end(hx_mac *mac);

/* 64 bits, for telling which part of two requests differs; too short to decide that they are the same. May be called
 * between begin and end. hx_fatal is called where OpenSSL has no SipHash; nothing else here needs a provider of it. */
uint64_t hx_mac_short(hx_mac *mac, char tag, hx_slice bytes);

/* HMAC-SHA-256 (RFC 2104) over the parts as one message, with a key of any length: as others compute it, without a tag
 * and without lengths. */
hx_digest hx_mac_plain(hx_slice key, const hx_slice *parts, size_t count);

#endif
