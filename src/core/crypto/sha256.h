/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of short messages. */
#ifndef HX_CORE_CRYPTO_SHA256_H
#define HX_CORE_CRYPTO_SHA256_H

#include "core/crypto/mac.h"

#define HX_SHA256_ROOM 72u /* what the padding may take */

/* The digest of `len` bytes that come after `blocks` whole blocks, which `state` stands for; state NULL: after none.
 * Behind the bytes there must be HX_SHA256_ROOM more, which are overwritten. */
hx_digest hx_sha256_end(const uint32_t state[8], uint64_t blocks, uint8_t *bytes, size_t len);

#endif
