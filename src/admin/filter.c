/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/filter.h"

#include "admin/query.h"
#include "config/problems.h"
#include "core/json/json.h"
#include "core/json/json_walk.h"
#include "core/operation/key.h"
#include "core/time/rfc3339.h"
#include "core/time/units.h"
#include "gateway/request.h"

static bool read_age(hx_slice text, hx_ms *age)
{
    uint64_t number;
    if (text.len < 2 || !hx_slice_to_u64(hx_slice_first(text, text.len - 1), &number)) return false;
    hx_ms unit = hx_unit_span(hx_slice_from(text, text.len - 1));
    if (unit == 0 || number > (uint64_t)(100 * 366 * HX_DAY / unit)) return false;
    *age = (hx_ms)number * unit;
    return true;
}

bool hx_filter_time(hx_slice text, hx_ms now, hx_ms *at)
{
    hx_ms age;
    if (hx_rfc3339_read(text, at)) return true;
    if (!read_age(text, &age)) return false;
    *at = now > age ? now - age : 1;
    return true;
}

static const char *read_states(const hx_filter_reader *reader, hx_slice value, hx_store_page *page)
{
    static const struct {
        const char *name;
        hx_state state;
    } words[] = {{"processing", HX_PROCESSING}, {"completed", HX_COMPLETED}, {"failed", HX_FAILED},
                 {"unknown", HX_UNKNOWN},       {"expired", HX_EXPIRED},     {"pending", HX_PROCESSING},
                 {"complete", HX_COMPLETED}};
    hx_slice word;
    while (hx_slice_next(&value, ',', &word)) {
        unsigned found = 0;
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (hx_slice_eq(word, hx_slice_of(words[i].name))) found = 1u << words[i].state;
        if (found == 0)
            return hx_arena_printf(reader->arena,
                                   "state must be processing, completed, failed, unknown or expired, not %s",
                                   hx_quoted(reader->arena, word))
                .ptr;
        page->states |= found;
    }
    return page->states != 0 ? NULL : "state must name a state, such as unknown";
}

static const char *read_time(const hx_filter_reader *reader, const char *name, hx_slice value, hx_ms *at)
{
    if (hx_filter_time(value, reader->now, at)) {
        if (*at < 1) *at = 1; /* 0 would exclude nothing */
        return NULL;
    }
    return hx_arena_printf(reader->arena,
                           "%s must be a time such as 2026-02-19T12:00:00Z, or an age such as 30m, 2h or 7d, not %s",
                           name, hx_quoted(reader->arena, value))
        .ptr;
}

static const char *read_key(const hx_filter_reader *reader, hx_slice value, hx_store_page *page)
{
    static const hx_key_rules any = {.format = HX_KEY_ANY, .len_min = 1, .len_max = UINT16_MAX};
    hx_slice key;
    hx_key_error wrong = hx_key_parse(value, &any, reader->arena, &key);
    if (wrong != HX_KEY_OK) return hx_key_error_text(wrong);
    hx_mac_begin(reader->mac, HX_TAG_KEY);
    hx_mac_part(reader->mac, key);
    page->key = hx_mac_end(reader->mac);
    page->has_key = true;
    return NULL;
}

static const char *read_text(const hx_filter_reader *reader, const char *name, hx_slice value, hx_slice *out)
{
    if (value.len == 0 || value.len > HX_RECORD_TEXT_MAX)
        return hx_arena_printf(reader->arena, "%s must have 1 to %u bytes", name, HX_RECORD_TEXT_MAX).ptr;
    *out = hx_arena_copy(reader->arena, value); /* the page outlives the request that it came with */
    return NULL;
}

static bool is_given(const hx_store_page *page, hx_slice name)
{
    return (page->states != 0 && hx_slice_eq(name, HX_LIT("state"))) ||
           (page->route.len > 0 && hx_slice_eq(name, HX_LIT("route"))) ||
           (page->reason.len > 0 && hx_slice_eq(name, HX_LIT("reason"))) ||
           (page->changed_from > 0 && hx_slice_eq(name, HX_LIT("from"))) ||
           (page->changed_before > 0 && hx_slice_eq(name, HX_LIT("before"))) ||
           (page->has_key && hx_slice_eq(name, HX_LIT("key")));
}

/* A filter given twice is refused: one of the two would have no effect. */
static const char *read_word(const hx_filter_reader *reader, hx_slice name, hx_slice value, hx_store_page *page)
{
    if (is_given(page, name))
        return hx_arena_printf(reader->arena, "%s is given twice", hx_quoted(reader->arena, name)).ptr;
    if (hx_slice_eq(name, HX_LIT("state"))) return read_states(reader, value, page);
    if (hx_slice_eq(name, HX_LIT("route"))) return read_text(reader, "route", value, &page->route);
    if (hx_slice_eq(name, HX_LIT("reason"))) return read_text(reader, "reason", value, &page->reason);
    if (hx_slice_eq(name, HX_LIT("from"))) return read_time(reader, "from", value, &page->changed_from);
    if (hx_slice_eq(name, HX_LIT("before"))) return read_time(reader, "before", value, &page->changed_before);
    if (hx_slice_eq(name, HX_LIT("key"))) return read_key(reader, value, page);
    return hx_arena_printf(reader->arena, "there is no filter %s: use state, route, reason, from, before or key",
                           hx_quoted(reader->arena, name))
        .ptr;
}

static const char *read_place(hx_slice name, hx_slice value, hx_store_page *page)
{
    uint64_t number;
    bool is_number = hx_slice_to_u64(value, &number);
    if (hx_slice_eq(name, HX_LIT("cursor"))) {
        page->cursor = is_number ? number : 0;
        return is_number ? NULL : "cursor must be one that an earlier page gave";
    }
    if (!is_number || number < 1 || number > HX_STORE_PAGE_MAX) return "limit must be 1 to 1000";
    page->records_max = (unsigned)number;
    return NULL;
}

const char *hx_filter_query(const hx_filter_reader *reader, hx_slice query, hx_store_page *page)
{
    hx_slice name, value;
    const char *wrong = NULL;
    while (!wrong && hx_admin_query_next(&query, reader->arena, &name, &value, &wrong)) {
        bool is_place = hx_slice_eq(name, HX_LIT("limit")) || hx_slice_eq(name, HX_LIT("cursor"));
        wrong = is_place ? read_place(name, value, page) : read_word(reader, name, value, page);
    }
    return wrong;
}

const char *hx_filter_json(const hx_filter_reader *reader, hx_slice object, hx_store_page *page)
{
    if (object.len == 0 || object.ptr[0] != '{') return "filter must be an object, such as {\"state\": \"unknown\"}";
    hx_json_walk walk = hx_json_walk_over(object);
    hx_slice raw_name, raw_value, name, value;
    while (hx_json_walk_next(&walk, &raw_name, &raw_value)) {
        if (!hx_json_string(raw_name, reader->arena, &name) || !hx_json_string(raw_value, reader->arena, &value))
            return "the members of filter must be strings";
        const char *wrong = read_word(reader, name, value, page);
        if (wrong) return wrong;
    }
    return NULL;
}

bool hx_filter_narrows(const hx_store_page *page)
{
    return page->states != 0 || page->route.len > 0 || page->reason.len > 0 || page->changed_from > 0 ||
           page->changed_before > 0 || page->has_key;
}
