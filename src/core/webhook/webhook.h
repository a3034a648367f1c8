/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of webhooks: what senders put into headers so that a receiver can tell their requests from anyone else's.
 * A scheme is a row of schemes.def: which headers there are, how signatures are written in them, and what is signed.
 * Nothing here reads a clock; secrets, headers and the body are the caller's. The body is always the raw bytes as
 * received: JSON that was parsed and written again has another signature. */
#ifndef HX_CORE_WEBHOOK_WEBHOOK_H
#define HX_CORE_WEBHOOK_WEBHOOK_H

#include "base/clock.h"
#include "base/memory/arena.h"

#define HX_WEBHOOK_SECRETS_MAX 8u
#define HX_WEBHOOK_SIGNATURES_MAX 16u     /* that are looked at, of the versions that are known */
#define HX_WEBHOOK_HEADER_BYTES_MAX 8192u /* of a header's value */
#define HX_WEBHOOK_ID_BYTES_MAX 255u
#define HX_WEBHOOK_TOLERANCE (5 * HX_MINUTE) /* what senders document */

typedef enum {
    HX_WEBHOOK_VERSIONS, /* "v1,SIGNATURE v1a,SIGNATURE", Standard Webhooks: v1 is HMAC-SHA256, v1a ed25519 */
    HX_WEBHOOK_PAIRS,    /* "t=SECONDS,v1=SIGNATURE,v1=SIGNATURE", Stripe; other names are skipped */
    HX_WEBHOOK_SINGLE,   /* the prefix, and one signature */
} hx_webhook_form;

typedef enum { HX_WEBHOOK_HEX, HX_WEBHOOK_BASE64 } hx_webhook_encoding;

typedef struct {
    const char *name;
    hx_webhook_form form;
    hx_webhook_encoding encoding;
    const char *signature_header;
    const char *prefix;           /* of SINGLE; may be empty */
    const char *timestamp_header; /* NULL: PAIRS have it beside the signatures, others have none */
    const char *signed_text;      /* what is signed: literal text, {id}, {timestamp}, and {body} once */
    const char *id_header;        /* the event's id: a header, */
    const char *id_pointer;       /* or a pointer into the body; both NULL: unknown */
    const char *other_keys;       /* prefixes of keys that aren't secrets of this scheme, separated by spaces */
    const char *written;          /* the form of the signature header, for people; NULL for SINGLE */
} hx_webhook_scheme;

const hx_webhook_scheme *hx_webhook_schemes(size_t *count);
/* NULL: there is none of that name. */
const hx_webhook_scheme *hx_webhook_scheme_named(hx_slice name);
/* A sentence about what a completed "hmac" scheme lacks; NULL: it can be used. */
const char *hx_webhook_scheme_mistake(const hx_webhook_scheme *scheme);

typedef enum {
#define X(name, word, text) HX_WEBHOOK_##name,
#include "core/webhook/errors.def"
#undef X
} hx_webhook_error;

const char *hx_webhook_error_word(hx_webhook_error error);
const char *hx_webhook_error_text(hx_webhook_error error);

typedef struct {
    bool is_ed25519;      /* else HMAC-SHA256 */
    hx_slice key;         /* of the HMAC, or the public key */
    hx_slice private_key; /* ed25519: the seed; empty: only verifies */
} hx_webhook_secret;

/* Reads a secret as its owner got it. Standard Webhooks: base64 after whsec_ (or after nothing), whpk_ or whsk_; all
 * others: the text itself, a whsec_ included. What it returns points into `text` or is in `arena`; both hold the
 * secret. */
hx_webhook_error hx_webhook_secret_read(const hx_webhook_scheme *scheme, hx_slice text, hx_arena *arena,
                                        hx_webhook_secret *secret) HX_MUST_USE;

/* Where a secret is kept. */
typedef struct {
    hx_slice name; /* of a file, or of a variable of the environment */
    bool is_variable;
} hx_webhook_secret_place;

typedef struct {
    const hx_webhook_scheme *scheme;
    const hx_webhook_secret *secrets; /* any of them may have signed: while they rotate there are two */
    size_t secret_count;              /* 1 to HX_WEBHOOK_SECRETS_MAX */
    hx_ms tolerance;                  /* between timestamp and now, either way */
} hx_webhook_rules;

typedef struct {
    /* Returns the number of lines with that name, whatever its case; *value is the first one's, trimmed. */
    size_t (*find_header)(const void *user, hx_slice name, hx_slice *value);
    const void *user;
    hx_slice body;
} hx_webhook_request;

typedef struct {
    hx_webhook_error error;
    const char *header; /* that the error is about; NULL: none */
    bool has_timestamp;
    hx_ms timestamp;
    hx_ms age;              /* now minus the timestamp; below 0: it is in the future */
    hx_slice before, after; /* what is signed around the body, in the arena; ptr NULL: a header is wrong */
    size_t secret;          /* with OK: which one it was */
} hx_webhook_result;

/* Verifies a request: headers, timestamp, signatures, in that order. Every signature is compared with every secret, in
 * constant time, whether one has matched or not. *result is filled as far as the checks came. */
hx_webhook_error hx_webhook_verify(const hx_webhook_rules *rules, const hx_webhook_request *request, hx_ms now,
                                   hx_arena *arena, hx_webhook_result *result) HX_MUST_USE;

/* The event's id by the scheme; false when the request has none. *is_signed: nobody but the sender can have written
 * it. Where it isn't (GitHub, Shopify), a captured request can be sent again under another id. */
bool hx_webhook_event_id(const hx_webhook_scheme *scheme, const hx_webhook_request *request, hx_arena *arena,
                         hx_slice *id, bool *is_signed) HX_MUST_USE;

/* The value of the signature header by Standard Webhooks, one signature for each secret, in `arena`. False when a
 * secret can only verify. `id` must be one that hx_webhook_is_id takes. */
bool hx_webhook_sign(const hx_webhook_secret *secrets, size_t count, hx_slice id, int64_t seconds, hx_slice body,
                     hx_arena *arena, hx_slice *value) HX_MUST_USE;
/* A key as a secret of Standard Webhooks is given out: "whsec_" and base64; in `arena`. */
hx_slice hx_webhook_secret_write(const uint8_t *key, size_t len, hx_arena *arena);
/* Visible ASCII, and no dot: "a.1" + "2" would be signed like "a" + "1.2". */
bool hx_webhook_is_id(hx_slice id);

#endif
