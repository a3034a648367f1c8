/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json/json.h"

#include "base/check.h"

void hx_json_put(hx_buf *out, const char *before, hx_slice text)
{
    hx_buf_puts(out, before);
    bool fits = hx_json_escape(out, text);
    HX_CHECK(fits);
}

void hx_json_put_lines(hx_buf *out, const char *before, hx_slice lines)
{
    hx_slice line;
    const char *separator = "";
    hx_buf_puts(out, before);
    hx_buf_puts(out, "[");
    while (hx_slice_next(&lines, '\n', &line)) {
        if (line.len == 0) continue;
        hx_json_put(out, separator, line);
        separator = ",";
    }
    hx_buf_puts(out, "]");
}
