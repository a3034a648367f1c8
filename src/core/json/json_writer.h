/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON into a buffer, one value after another. A comma goes before a value unless it is the first of its object
 * or array, or follows its name, a comma or a line end: that is seen from the last byte written, so nothing has to be
 * kept between calls.
 *
 *     hx_json_open(out, NULL, '{');
 *     hx_json_put_text(out, "route", route);
 *     hx_json_put_list(out, "methods", methods, count);
 *     hx_json_close(out, '}');
 *
 * `name` is the member's, plain ASCII; NULL for an item of an array and for the value after hx_json_put_name. The
 * buffer must have space: the caller has bounded what it writes, and past the limit it is a bug of ours. */
#ifndef HX_CORE_JSON_JSON_WRITER_H
#define HX_CORE_JSON_JSON_WRITER_H

#include "base/memory/buf.h"

/* `bracket` is one of { [ to open, and of } ] to close. */
void hx_json_open(hx_buf *out, const char *name, char bracket);
void hx_json_close(hx_buf *out, char bracket);
/* Any bytes, as hx_json_escape writes them. */
void hx_json_put_text(hx_buf *out, const char *name, hx_slice text);
void hx_json_put_number(hx_buf *out, const char *name, uint64_t number);
void hx_json_put_bool(hx_buf *out, const char *name, bool value);
void hx_json_put_null(hx_buf *out, const char *name);
/* As a text of lower-case digits. */
void hx_json_put_hex(hx_buf *out, const char *name, const uint8_t *bytes, size_t len);
/* A value that is JSON already. */
void hx_json_put_raw(hx_buf *out, const char *name, hx_slice json);
/* An array of texts. */
void hx_json_put_list(hx_buf *out, const char *name, const hx_slice *items, size_t count);
/* An array with a text for each line that isn't empty. */
void hx_json_put_lines(hx_buf *out, const char *name, hx_slice lines);
/* Only the name: the next call writes its value. */
void hx_json_put_name(hx_buf *out, const char *name);

#endif
