/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/keys.h"

#include "core/json/json_walk.h"
#include "base/check.h"
#include "base/utf8.h"
#include "cmd/cli/table.h"
#include "core/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const hx_slice *hx_keys_records(hx_slice answer, const char *pointer, hx_arena *arena, size_t *count)
{
    hx_slice array, name, record;
    *count = 0;
    if (!hx_json_pointer(answer, hx_slice_of(pointer), &array)) return NULL;
    hx_json_walk walk = hx_json_walk_over(array);
    while (hx_json_walk_next(&walk, &name, &record)) ++*count;
    hx_slice *records = hx_arena_alloc(arena, (*count + 1) * sizeof *records);
    walk = hx_json_walk_over(array);
    for (size_t i = 0; hx_json_walk_next(&walk, &name, &record); i++) records[i] = record;
    return records;
}

const char *hx_keys_clean(hx_slice text, hx_arena *arena)
{
    char *out = hx_arena_terminated(arena, text);
    for (char *at = out, *end = out + text.len; at < end;) {
        unsigned char c = (unsigned char)*at;
        size_t len = hx_utf8_bytes(at, end);
        bool is_harmful = len > 1 ? hx_utf8_harmful(at, len) > 0 : len == 0 || c < 0x20 || c == 0x7f;
        if (len == 0) len = 1;
        if (is_harmful) memset(at, '?', len);
        at += len;
    }
    return out;
}

const char *hx_keys_member(hx_slice record, const char *name, hx_arena *arena)
{
    hx_slice raw, text;
    if (!hx_json_pointer(record, hx_arena_printf(arena, "/%s", name), &raw) || hx_slice_eq(raw, HX_LIT("null")))
        return "";
    return hx_keys_clean(hx_json_string(raw, arena, &text) ? text : raw, arena);
}

const char *hx_keys_texts(hx_slice record, const char *pointer, hx_arena *arena)
{
    size_t count;
    const hx_slice *raw = hx_keys_records(record, pointer, arena, &count);
    hx_slice out = HX_EMPTY, text;
    for (size_t i = 0; i < count; i++)
        if (hx_json_string(raw[i], arena, &text))
            out = hx_arena_printf(arena, "%.*s%s%.*s", HX_FMT(out), i > 0 ? "," : "", HX_FMT(text));
    return hx_keys_clean(out, arena);
}

/* A member for a cell of a table. */
static const char *cell(hx_slice record, const char *name, hx_arena *arena)
{
    const char *text = hx_keys_member(record, name, arena);
    return text[0] ? text : "-";
}

/* "2026-02-19 12:00:00.123Z" of an RFC 3339 time. */
static const char *time_of(hx_slice record, const char *name, hx_arena *arena)
{
    char *text = hx_arena_terminated(arena, hx_slice_of(hx_keys_member(record, name, arena)));
    char *separator = strchr(text, 'T');
    if (separator) *separator = ' ';
    return text;
}

static const char *colour_of(const char *state)
{
    static const struct {
        const char *state, *colour;
    } colours[] = {{"unknown", "\033[33m"},
                   {"failed", "\033[31m"},
                   {"completed", "\033[32m"},
                   {"processing", "\033[36m"}};
    for (size_t i = 0; i < sizeof colours / sizeof colours[0]; i++)
        if (strcmp(colours[i].state, state) == 0) return colours[i].colour;
    return "";
}

typedef struct {
    const char *changed;
    hx_slice record;
} dated;

static int by_time(const void *a, const void *b)
{
    return strcmp(((const dated *)b)->changed, ((const dated *)a)->changed); /* RFC 3339 in UTC sorts as text */
}

void hx_keys_print_list(const hx_slice *records, size_t count, hx_arena *arena)
{
    dated *sorted = hx_arena_alloc(arena, (count + 1) * sizeof *sorted);
    for (size_t i = 0; i < count; i++)
        sorted[i] = (dated){.changed = hx_keys_member(records[i], "changed_at", arena), .record = records[i]};
    if (count > 0) qsort(sorted, count, sizeof *sorted, by_time);
    hx_table_row *rows = hx_arena_zalloc(arena, (count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"CHANGED", "STATE", "ID", "ROUTE", "ATTEMPT", "STATUS", "REASON"}};
    for (size_t i = 0; i < count; i++) {
        hx_slice record = sorted[i].record;
        const char *state = hx_keys_member(record, "state", arena);
        rows[i + 1] = (hx_table_row){.cells = {time_of(record, "changed_at", arena), state, cell(record, "id", arena),
                                               cell(record, "route", arena), cell(record, "attempt", arena),
                                               cell(record, "status", arena), cell(record, "reason", arena)},
                                     .colour = colour_of(state)};
    }
    hx_table_print(rows, count + 1, 7);
}

void hx_keys_print_history(const hx_slice *records, size_t count, hx_arena *arena)
{
    HX_CHECK(count > 0);
    hx_slice last = records[count - 1];
    hx_table_fact("operation", hx_keys_member(last, "id", arena));
    hx_table_fact("route", hx_keys_member(last, "route", arena));
    hx_table_fact("state", hx_keys_member(last, "state", arena));
    hx_table_fact("epoch", hx_keys_member(last, "epoch", arena));
    hx_table_fact("requested", time_of(last, "created_at", arena));
    hx_table_fact("expires", time_of(last, "expires_at", arena));
    hx_table_fact("result", hx_keys_member(last, "result", arena));
    hx_table_fact("key MAC", hx_keys_member(last, "key", arena));
    hx_table_fact("caller MAC", hx_keys_member(last, "principal", arena));
    hx_table_fact("payload MAC", hx_keys_member(last, "payload_hash", arena));
    (void)printf("\n");
    hx_table_row *rows = hx_arena_zalloc(arena, (count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"TIME", "CHANGE", "ATTEMPT", "EPOCH", "STATUS", "CORRELATION ID", "REASON"}};
    for (size_t i = 0; i < count; i++) {
        const char *state = hx_keys_member(records[i], "state", arena);
        const char *from = hx_keys_member(records[i], "from_state", arena);
        rows[i + 1] = (hx_table_row){.cells = {time_of(records[i], "changed_at", arena),
                                               hx_arena_printf(arena, "%s → %s", from, state).ptr,
                                               cell(records[i], "attempt", arena), cell(records[i], "epoch", arena),
                                               cell(records[i], "status", arena),
                                               cell(records[i], "correlation_id", arena),
                                               cell(records[i], "reason", arena)},
                                     .colour = colour_of(state)};
    }
    hx_table_print(rows, count + 1, 7);
}
