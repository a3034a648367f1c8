/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that only the holder of a secret can read, or change unnoticed: AES-256-GCM under a random nonce. */
#ifndef HX_CORE_CRYPTO_SEAL_H
#define HX_CORE_CRYPTO_SEAL_H

#include "base/memory/arena.h"
#include "core/crypto/mac.h"

#define HX_SEAL_BYTES 28u /* by which the sealed form is longer: the nonce before it, the tag behind it */

/* `purpose` must be the same when it is opened. In the arena. */
hx_slice hx_seal(const uint8_t secret[HX_SECRET_BYTES], hx_slice purpose, hx_slice plain, hx_arena *arena);
/* False: it was sealed under another secret or for another purpose, or was changed. */
bool hx_seal_open(const uint8_t secret[HX_SECRET_BYTES], hx_slice purpose, hx_slice sealed, hx_arena *arena,
                  hx_slice *plain) HX_MUST_USE;

#endif
