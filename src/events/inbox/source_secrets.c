/* SPDX-License-Identifier: Apache-2.0 */
#include "events/inbox/source_secrets.h"

#include "base/program/read_file.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define SECRET_BYTES_MAX (1024u * 1024u)

/* Someone who gives the secret itself instead of the variable's name doesn't find it in a log. */
static const char *no_variable(const char *name, hx_arena *arena)
{
    static const char usual[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    if (name[strspn(name, usual)] == '\0')
        return hx_arena_printf(arena, "The environment has no variable %s.", name).ptr;
    return "The environment has no such variable. Give the variable's name, not the secret.";
}

const char *hx_source_secret(const hx_webhook_scheme *scheme, const hx_webhook_secret_place *place, hx_arena *arena,
                             hx_slice *text, hx_webhook_secret *secret)
{
    const char *name = hx_arena_terminated(arena, place->name);
    hx_slice bytes, error;
    if (place->is_variable) {
        const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): the environment is never changed
        if (!value) return no_variable(name, arena);
        bytes = hx_slice_of(value);
    } else if (!hx_read_file(name, SECRET_BYTES_MAX, arena, &bytes, &error)) {
        return error.ptr;
    }
    *text = hx_text_without_line_end(bytes);
    hx_webhook_error wrong = hx_webhook_secret_read(scheme, *text, arena, secret);
    if (wrong == HX_WEBHOOK_OK) return NULL;
    bool is_spaced = text->len > 0 && !hx_slice_eq(hx_slice_trim(*text), *text);
    return hx_arena_printf(arena, "%s: %s%s", name, hx_webhook_error_text(wrong),
                           is_spaced ? " There is white space around it." : "")
        .ptr;
}

bool hx_source_open(hx_source *source, hx_arena *arena, hx_error_text error)
{
    for (size_t i = 0; i < source->place_count; i++) {
        hx_slice text;
        const char *wrong = hx_source_secret(&source->scheme, &source->places[i], arena, &text, &source->secrets[i]);
        if (wrong) return hx_fail(error, "source %.*s: %s", HX_FMT(source->name), wrong);
    }
    source->secret_count = source->place_count;
    return true;
}
