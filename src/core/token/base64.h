/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 as credentials and tokens have it (RFC 4648). */
#ifndef HX_CORE_TOKEN_BASE64_H
#define HX_CORE_TOKEN_BASE64_H

#include "base/memory/arena.h"

/* base64url without padding (RFC 7515, 2) and without stray bits: two spellings would be two tokens of one meaning. */
bool hx_base64url_decode(hx_slice text, hx_arena *arena, hx_slice *decoded) HX_MUST_USE;
/* Either alphabet, padded or not: clients of both kinds exist, and what is inside counts. */
bool hx_base64_decode_any(hx_slice text, hx_arena *arena, hx_slice *decoded) HX_MUST_USE;

#endif
