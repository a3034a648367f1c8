/* SPDX-License-Identifier: Apache-2.0 */
/* A cursor is the place of the last item, in hexadecimal: its due time in decimal, NUL, its queue, NUL, its key. */
#include "admin/query.h"

#include "base/hex.h"
#include "base/text.h"
#include "config/problems.h"
#include "core/json/json_writer.h"

bool hx_admin_query_next(hx_slice *query, hx_arena *arena, hx_slice *name, hx_slice *value, const char **wrong)
{
    hx_slice part;
    while (query->len > 0 && hx_slice_next(query, '&', &part)) {
        if (part.len == 0) continue;
        *name = hx_slice_first(part, hx_slice_find(part, '='));
        if (hx_text_percent_decode(hx_slice_from(part, name->len + 1), false, arena, value)) return true;
        *wrong = "the query has a broken % escape";
        return false;
    }
    return false;
}

const char *hx_admin_query(hx_slice query, hx_arena *arena, const hx_admin_word *words, size_t count)
{
    hx_slice name, value;
    const char *wrong = NULL;
    uint32_t given = 0;
    for (size_t i = 0; i < count; i++) *words[i].value = HX_EMPTY;
    while (hx_admin_query_next(&query, arena, &name, &value, &wrong)) {
        size_t i = 0;
        while (i < count && !hx_slice_eq(name, hx_slice_of(words[i].name))) i++;
        if (i == count) return hx_arena_printf(arena, "there is no parameter %s here", hx_quoted(arena, name)).ptr;
        if (given & 1u << i) return hx_arena_printf(arena, "%s is given twice", words[i].name).ptr;
        given |= 1u << i;
        *words[i].value = value;
    }
    return wrong;
}

static bool read_cursor(hx_slice text, hx_arena *arena, hx_item *after)
{
    char *bytes = hx_arena_alloc(arena, text.len / 2 + 1);
    uint64_t due;
    hx_slice rest = {bytes, text.len / 2}, number, queue;
    if (text.len % 2 != 0 || !hx_hex_read(bytes, text.ptr, text.len / 2)) return false;
    if (!hx_slice_next(&rest, '\0', &number) || !hx_slice_next(&rest, '\0', &queue)) return false;
    if (!hx_slice_to_u64(number, &due) || due > INT64_MAX || queue.len > HX_ITEM_QUEUE_MAX || rest.len == 0 ||
        rest.len > HX_ITEM_KEY_MAX)
        return false;
    *after = (hx_item){.key = rest, .queue = queue, .due = (hx_ms)due};
    return true;
}

const char *hx_admin_page(hx_slice limit, hx_slice cursor, hx_arena *arena, hx_item_page *page)
{
    uint64_t number = HX_ADMIN_PAGE_ITEMS;
    if (limit.len > 0 && (!hx_slice_to_u64(limit, &number) || number < 1 || number > HX_ITEM_PAGE_MAX))
        return "limit must be 1 to 1000";
    if (cursor.len > 0 && !read_cursor(cursor, arena, &page->after))
        return "cursor must be one that an earlier page gave";
    page->items_max = (unsigned)number;
    return NULL;
}

void hx_admin_put_cursor(hx_buf *out, const hx_item_page *page)
{
    char bytes[HX_ADMIN_CURSOR_BYTES];
    if (!page->more || page->count == 0) return;
    const hx_item *last = &page->items[page->count - 1];
    hx_buf place = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    hx_buf_put_decimal(&place, (uint64_t)last->due);
    hx_buf_put(&place, (hx_slice){"", 1});
    hx_buf_put(&place, last->queue);
    hx_buf_put(&place, (hx_slice){"", 1});
    hx_buf_put(&place, last->key);
    hx_json_put_hex(out, "cursor", (const uint8_t *)place.data, place.len);
}
