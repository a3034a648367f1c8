/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 as credentials and tokens have it (RFC 4648). */
#ifndef HX_CORE_TOKEN_BASE64_H
#define HX_CORE_TOKEN_BASE64_H

#include "base/memory/arena.h"

/* base64url without padding (RFC 7515, 2) and without stray bits: two spellings would be two tokens of one meaning. */
bool hx_base64url_decode(hx_slice text, hx_arena *arena, hx_slice *decoded) HX_MUST_USE;
/* Either alphabet, padded or not: clients of both kinds exist, and what is inside counts. */
bool hx_base64_decode_any(hx_slice text, hx_arena *arena, hx_slice *decoded) HX_MUST_USE;
/* base64url without padding; `out` gets HX_BASE64URL_LEN(len) characters and no terminator. */
#define HX_BASE64URL_LEN(bytes) (((bytes)*4u + 2u) / 3u)
void hx_base64url_encode(char *out, const uint8_t *bytes, size_t len);

#endif
