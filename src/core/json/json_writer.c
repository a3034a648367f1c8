/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json_writer.h"

#include "base/check.h"
#include "core/json/json.h"

static void begin_value(hx_buf *out, const char *name)
{
    char last = out->len > 0 ? out->data[out->len - 1] : '\n';
    if (hx_slice_find(HX_LIT("{[:,\n"), last) == SIZE_MAX) hx_buf_puts(out, ",");
    if (!name) return;
    hx_buf_puts(out, "\"");
    hx_buf_puts(out, name);
    hx_buf_puts(out, "\":");
}

void hx_json_put_name(hx_buf *out, const char *name)
{
    begin_value(out, name);
}

void hx_json_open(hx_buf *out, const char *name, char bracket)
{
    begin_value(out, name);
    hx_buf_put(out, (hx_slice){&bracket, 1});
}

void hx_json_close(hx_buf *out, char bracket)
{
    hx_buf_put(out, (hx_slice){&bracket, 1});
}

void hx_json_put_text(hx_buf *out, const char *name, hx_slice text)
{
    begin_value(out, name);
    bool fits = hx_json_escape(out, text);
    HX_CHECK(fits);
}

void hx_json_put_number(hx_buf *out, const char *name, uint64_t number)
{
    begin_value(out, name);
    hx_buf_put_decimal(out, number);
}

void hx_json_put_bool(hx_buf *out, const char *name, bool value)
{
    begin_value(out, name);
    hx_buf_puts(out, value ? "true" : "false");
}

void hx_json_put_null(hx_buf *out, const char *name)
{
    begin_value(out, name);
    hx_buf_puts(out, "null");
}

void hx_json_put_hex(hx_buf *out, const char *name, const uint8_t *bytes, size_t len)
{
    begin_value(out, name);
    hx_buf_puts(out, "\"");
    hx_buf_put_hex(out, bytes, len);
    hx_buf_puts(out, "\"");
}

void hx_json_put_raw(hx_buf *out, const char *name, hx_slice json)
{
    begin_value(out, name);
    hx_buf_put(out, json);
}

void hx_json_put_list(hx_buf *out, const char *name, const hx_slice *items, size_t count)
{
    hx_json_open(out, name, '[');
    for (size_t i = 0; i < count; i++) hx_json_put_text(out, NULL, items[i]);
    hx_json_close(out, ']');
}

void hx_json_put_lines(hx_buf *out, const char *name, hx_slice lines)
{
    hx_slice line;
    hx_json_open(out, name, '[');
    while (hx_slice_next(&lines, '\n', &line))
        if (line.len > 0) hx_json_put_text(out, NULL, line);
    hx_json_close(out, ']');
}
