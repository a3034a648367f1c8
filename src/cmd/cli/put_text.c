/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"
#include "cmd/cli/cmd.h"

void hx_cmd_put_text(FILE *out, hx_slice text)
{
    if (text.len == 0) return; /* an empty slice may have no address */
    const char *end = text.ptr + text.len;
    for (const char *at = text.ptr; at < end;) {
        unsigned char c = (unsigned char)*at;
        size_t len = hx_utf8_bytes(at, end);
        unsigned code = len > 1 ? hx_utf8_harmful(at, len) : c;
        bool is_escaped = len > 1 ? code != 0 : len == 0 || c < 0x20 || c == 0x7f;
        if (is_escaped)
            (void)fprintf(out, "\\u%04x", code);
        else
            (void)fwrite(at, 1, len, out);
        at += len > 0 ? len : 1;
    }
}

void hx_cmd_put_json(FILE *out, hx_slice json)
{
    size_t begin = 0;
    for (size_t i = 0; i <= json.len; i++) {
        bool is_space = i < json.len && (json.ptr[i] == '\n' || json.ptr[i] == '\t' || json.ptr[i] == '\r');
        if (i < json.len && !is_space) continue;
        hx_cmd_put_text(out, hx_slice_first(hx_slice_from(json, begin), i - begin));
        if (is_space) (void)fputc(json.ptr[i] == '\n' ? '\n' : ' ', out);
        begin = i + 1;
    }
}
