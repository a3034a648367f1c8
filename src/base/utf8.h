/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as RFC 3629 has it: no overlong form, no surrogate, nothing above U+10FFFF. */
#ifndef HX_BASE_UTF8_H
#define HX_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The number of bytes from `at` on that are printable ASCII, without quotes and backslashes: nearly always all of a
 * text, so eight are looked at together. */
size_t hx_utf8_plain_bytes(const char *at, const char *end);
/* The length of the well-formed character at `at`, or 0. */
size_t hx_utf8_bytes(const char *at, const char *end);
/* Writes a character that isn't a surrogate, and returns its length in bytes. */
size_t hx_utf8_put(char out[4], uint32_t code);
/* The code of a character of two or more bytes that moves a terminal's cursor, ends a line or turns text around; 0 for
 * any other. `len` is what hx_utf8_bytes returned. */
unsigned hx_utf8_harmful(const char *at, size_t len);

#endif
