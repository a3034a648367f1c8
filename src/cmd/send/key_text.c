/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/send/key_text.h"

#include "base/memory/buf.h"
#include "config/config.h"
#include "core/operation/key.h"
#include "core/operation/template.h"

static unsigned no_header(const void *user, hx_slice name, hx_slice *value)
{
    (void)user;
    (void)name;
    (void)value;
    return 0;
}

static bool is_plain(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] == '{') return false;
    return true;
}

bool hx_send_key(hx_slice text, hx_slice body, hx_ms at, hx_arena *arena, hx_slice *key, hx_error_text error)
{
    const char *wrong = NULL;
    if (is_plain(text)) {
        *key = text;
        return true;
    }
    const hx_template *template = hx_template_of_caller(text, hx_config_zone, arena, arena, &wrong);
    if (!template) return hx_fail(error, "--key: %s", wrong);
    for (size_t i = 0; i < template->count; i++)
        if (template->parts[i].kind != HX_TEMPLATE_LITERAL && template->parts[i].kind != HX_TEMPLATE_BODY &&
            template->parts[i].kind != HX_TEMPLATE_DATE && template->parts[i].kind != HX_TEMPLATE_WINDOW &&
            template->parts[i].kind != HX_TEMPLATE_BODY_HASH)
            return hx_fail(error, "--key: %.*s is for routes", HX_FMT(template->parts[i].text));
    hx_template_input in = {.header = no_header, .body_is_json = true, .body = body, .body_hashed = body, .now = at};
    hx_template_values values;
    if (!hx_template_show(template, &in, arena, &values))
        return hx_fail(error, "--key: %.*s: %s", HX_FMT(values.wrong), values.why);
    hx_buf out;
    hx_buf_init(&out, arena, 4096);
    size_t value = 0;
    for (size_t i = 0; i < template->count; i++) {
        const hx_template_part *part = &template->parts[i];
        hx_slice piece = part->kind == HX_TEMPLATE_LITERAL ? part->argument : values.values[value++].value;
        if (!hx_buf_append(&out, piece)) return hx_fail(error, "--key: the key is too long");
    }
    *key = hx_buf_slice(&out);
    return true;
}
