/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical text of a JSON number: its exact decimal value, laid out as ECMAScript's Number::toString does.
 *
 * RFC 8785 goes through a double and writes the shortest decimal that reads back as it. The contract departs from that
 * where this would be another decimal number. So either the shortest text is the same decimal number, and laying out
 * our own digits gives that very text; or it isn't, and the digits stay as they are. Both ways it is the number's own
 * digits, and no double is needed: 19.99 = 19.990 = 1.999e1, 9007199254740993 isn't 9007199254740992, 1e400 isn't
 * 1e401, and -0 is 0. Two numbers have the same text exactly when they are the same decimal number. */
#ifndef HX_CORE_JSON_NUMBER_H
#define HX_CORE_JSON_NUMBER_H

#include "base/memory/buf.h"

/* A decimal exponent of more than this is refused; no program means it, and everything stays in 64 bits. */
#define HX_NUMBER_EXPONENT_MAX 1000000000000000

/* `text` must be a number by the grammar of RFC 8259. False when its exponent is out of bounds or `out` is full.
 * Writes at most text.len + HX_NUMBER_GROWTH_BYTES. */
bool hx_number_canonical(hx_slice text, hx_buf *out) HX_MUST_USE;

#define HX_NUMBER_GROWTH_BYTES 24u

/* Whether two such texts are the same decimal number. False when an exponent is out of bounds. */
bool hx_number_same(hx_slice a, hx_slice b);

#endif
