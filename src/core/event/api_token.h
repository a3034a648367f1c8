/* SPDX-License-Identifier: Apache-2.0 */
/* A token of the API: "hpx_" and 32 random bytes in base64url. Whoever has it may do what its scopes say, in its
 * tenant. It is shown once and never stored: its item is found by its MAC under the store's secret.
 *
 *     key    t/MAC      in hexadecimal; the first 12 digits are the token's id
 *     queue  t/NAME/    so that all tokens of a name are found, and listed by name and age
 *     due    created_at
 *     meta   JSON, by hx_api_token_shape */
#ifndef HX_CORE_EVENT_API_TOKEN_H
#define HX_CORE_EVENT_API_TOKEN_H

#include "core/crypto/mac.h"
#include "core/json/json_fields.h"

#define HX_API_TOKEN_RANDOM 32u
#define HX_API_TOKEN_BYTES 47u
#define HX_API_TOKEN_KEY_BYTES 66u /* of its item */
#define HX_API_TOKEN_ID_DIGITS 12u
#define HX_API_TOKEN_NAME_MAX 64u
#define HX_API_TOKEN_META_MAX 4096u

enum {
#define X(id, bit, name, text) HX_SCOPE_##id = (bit),
#include "core/event/scopes.def"
#undef X
};

typedef struct {
    hx_slice id;     /* of its key; not in the meta */
    hx_slice name;   /* the principal of its requests; several tokens may have it, while they rotate */
    hx_texts scopes; /* names of scopes.def, in that order, once each */
    hx_slice tenant; /* the only one it acts in; empty: any */
    hx_ms created_at;
    hx_slice created_by;
} hx_api_token;

extern const hx_json_shape hx_api_token_shape;

/* Writes a token. */
void hx_api_token_write(const uint8_t random[HX_API_TOKEN_RANDOM], char out[HX_API_TOKEN_BYTES]);
/* Finds the token in an Authorization field ("Bearer hpx_…"). False: there is none that could be one of ours. */
bool hx_api_token_find(hx_slice authorization, hx_slice *token) HX_MUST_USE;
/* The key of its item; in the arena. */
hx_slice hx_api_token_key(hx_mac *mac, hx_slice token, hx_arena *arena);
/* The id in a key. */
hx_slice hx_api_token_id(hx_slice key);
bool hx_is_api_token_id(hx_slice text);
bool hx_is_api_token_name(hx_slice text);
/* The prefix of the keys of an id, in either case, and the queue of a name; in the arena. */
hx_slice hx_api_token_keys(hx_slice id, hx_arena *arena);
hx_slice hx_api_token_queue(hx_slice name, hx_arena *arena);
#define HX_API_TOKEN_QUEUES "t/" /* with which all these queues begin */

/* Reads what is asked for: name, scopes and tenant. False with a sentence in `error`. */
bool hx_api_token_read(hx_slice object, hx_arena *arena, hx_api_token *token, hx_error_text error) HX_MUST_USE;
void hx_api_token_encode(const hx_api_token *token, hx_buf *meta);
bool hx_api_token_decode(hx_slice key, hx_slice meta, hx_arena *arena, hx_api_token *token) HX_MUST_USE;
/* Its scopes as bits. A name that isn't known, of a later version, grants nothing. */
unsigned hx_api_token_scopes(const hx_api_token *token);

#endif
