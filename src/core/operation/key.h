/* SPDX-License-Identifier: Apache-2.0 */
/* The value of `Idempotency-Key`. A Structured Field string (RFC 8941, its parameters ignored) and a bare value are
 * the same key: `abc` is `"abc"`. A malformed key is refused, so that such a request never runs unprotected. */
#ifndef HX_CORE_OPERATION_KEY_H
#define HX_CORE_OPERATION_KEY_H

#include "base/memory/arena.h"
#include "base/clock.h"

typedef enum { HX_KEY_ANY, HX_KEY_UUID, HX_KEY_UUID4 } hx_key_format;

struct hx_template; /* core/operation/template.h */

typedef struct {
    hx_key_format format;
    uint16_t len_min;
    uint16_t len_max;
    const struct hx_template *from; /* `from`, a natural key; NULL: the key is the header's */
    bool prefer_header;             /* with `from`: a key header, where there is one, takes precedence */
    bool shared;                    /* with `from`: unauthenticated callers may share an operation */
    hx_ms overlap; /* with `from`: for how long after a boundary the bucket before it is looked up first */
} hx_key_rules;

#define HX_KEY_PARAMETERS_MAX 255u

/* The number of buckets of a natural key in which a request is looked up. */
#define HX_KEY_BUCKETS_MAX 64u

#define HX_KEY_RULES_DEFAULT ((hx_key_rules){.format = HX_KEY_ANY, .len_min = 16, .len_max = 255})

/* Errors, each with its sentence. */
#define HX_KEY_ERRORS(X)                                                                                               \
    X(OK, "The key is valid.")                                                                                         \
    X(EMPTY, "The key is empty.")                                                                                      \
    X(CONTROL_BYTE, "The key holds a control byte.")                                                                   \
    X(UNBALANCED_QUOTE, "The key opens a quoted string and does not close it.")                                        \
    X(BAD_BYTE, "The key is neither visible ASCII without space, comma and quote nor a string as in RFC 8941.")        \
    X(LONG_PARAMETERS, "The key has parameters of more than 255 bytes.")                                               \
    X(TOO_SHORT, "The key is shorter than this route allows.")                                                         \
    X(TOO_LONG, "The key is longer than this route allows.")                                                           \
    X(BAD_FORMAT, "The key is not a UUID of the version that this route asks for.")

typedef enum {
#define HX_KEY_ERROR_NAME(name, text) HX_KEY_##name,
    HX_KEY_ERRORS(HX_KEY_ERROR_NAME)
#undef HX_KEY_ERROR_NAME
} hx_key_error;

/* On HX_KEY_OK `key` is the unquoted, unescaped key: it points into `field_value`, or into `arena` where something was
 * escaped. Otherwise `key` is left alone. */
hx_key_error hx_key_parse(hx_slice field_value, const hx_key_rules *rules, hx_arena *arena, hx_slice *key) HX_MUST_USE;
/* The parameters behind the string of a valid field value, such as ";v=1"; empty behind a bare key. */
hx_slice hx_key_parameters(hx_slice field_value);
const char *hx_key_error_text(hx_key_error error);

#endif
