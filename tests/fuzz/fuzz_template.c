/* SPDX-License-Identifier: Apache-2.0 */
/* Two lines, a template and a query, and a body. A template that is taken is the sum of its parts; a key is the same
 * from its bucket's begin on, and another a moment before. */
#include "base/check.h"
#include "core/operation/template.h"
#include "core/time/zone.h"

#include <string.h>

#define NOW INT64_C(1774753200123) /* 2026-03-29, an hour of which is missing in Europe */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const hx_zone *one_zone(void *user, hx_slice name)
{
    static const char file[] = "TZif2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                               "TZif2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\1"
                               "\0\0\0\0\0\0\0\nEET-2EEST,M3.5.0/0,M10.5.0/0\n";
    const hx_zone *zone = hx_zone_read(name, (hx_slice){file, sizeof file - 1}, user);
    HX_CHECK(zone != NULL);
    return zone;
}

static unsigned header(const void *user, hx_slice name, hx_slice *value)
{
    (void)user;
    *value = HX_LIT("value");
    return name.len > 2 ? 1 : 0;
}

static void check_key(const hx_template *template, hx_template_input *in, hx_mac *mac, hx_arena *arena)
{
    hx_template_result result, other;
    hx_template_values values;
    bool has_key = hx_template_key(template, in, mac, arena, &result);
    bool is_shown = hx_template_show(template, in, arena, &values);
    HX_CHECK(is_shown == has_key && values.value_count <= template->count);
    if (!has_key) {
        HX_CHECK(result.why != NULL && result.wrong.len > 0);
        HX_CHECK(values.why == result.why && hx_slice_eq(values.wrong, result.wrong));
        return;
    }
    HX_CHECK(values.value_count > 0);
    if (!template->has_bucket) return;
    hx_ms began = hx_template_bucket_began(template, in->now);
    HX_CHECK(began <= in->now);
    in->now = began;
    bool is_there = hx_template_key(template, in, mac, arena, &other);
    HX_CHECK(is_there && hx_digest_eq(&result.key, &other.key));
    in->now = began - 1;
    is_there = hx_template_key(template, in, mac, arena, &other);
    HX_CHECK(is_there && !hx_digest_eq(&result.key, &other.key));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t secret[HX_SECRET_BYTES] = {1};
    static hx_mac *mac;
    if (!mac) mac = hx_mac_new(secret);
    hx_slice rest = {(const char *)data, size}, text = HX_EMPTY, query = HX_EMPTY;
    if (!hx_slice_next(&rest, '\n', &text) || !hx_slice_next(&rest, '\n', &query)) return 0;

    hx_arena arena = {0};
    const char *error = NULL;
    const hx_template *template = hx_template_compile(text, one_zone, &arena, &arena, &error);
    HX_CHECK((template == NULL) == (error != NULL));
    if (template) {
        const char *at = template->text.ptr;
        for (size_t i = 0; i < template->count; i++) {
            HX_CHECK(template->parts[i].text.ptr == at && template->parts[i].text.len > 0);
            at += template->parts[i].text.len;
        }
        HX_CHECK(at == template->text.ptr + template->text.len);
        hx_slice body = rest.ptr ? rest : HX_EMPTY;
        hx_template_input in = {.header = header,
                                .path = query,
                                .path_template = HX_LIT("/a/{id}/{b}"),
                                .query = query,
                                .principal = HX_LIT("user"),
                                .body_is_json = true,
                                .body = body,
                                .body_hashed = body,
                                .now = NOW};
        check_key(template, &in, mac, &arena);
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
