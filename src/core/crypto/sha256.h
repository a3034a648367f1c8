/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 of short messages. */
#ifndef HX_CORE_CRYPTO_SHA256_H
#define HX_CORE_CRYPTO_SHA256_H

#include "core/crypto/mac.h"

#define HX_SHA256_ROOM 72u /* bytes that the padding may take */

/* The digest of `len` bytes that follow `blocks` whole blocks, whose state is `state`; NULL: they are the whole
 * message. HX_SHA256_ROOM bytes after them are overwritten. */
hx_digest hx_sha256_end(const uint32_t state[8], uint64_t blocks, uint8_t *bytes, size_t len);

#endif
