/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/events/view.h"

#include "base/clock.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/keys.h"
#include "core/json/json.h"
#include "core/time/rfc3339.h"

#include <string.h>

#define EXCERPT_BYTES 80u /* of a response, in a table */

const char *hx_relative_time(hx_slice record, const char *name, hx_arena *arena)
{
    static const struct {
        hx_ms below, unit;
        char letter;
    } scales[] = {{2 * HX_MINUTE, HX_SECOND, 's'},
                  {2 * HX_HOUR, HX_MINUTE, 'm'},
                  {2 * HX_DAY, HX_HOUR, 'h'},
                  {INT64_MAX, HX_DAY, 'd'}};
    const char *text = hx_keys_member(record, name, arena);
    hx_ms at;
    size_t i = 0;
    if (!hx_rfc3339_read(hx_slice_of(text), &at)) return text;
    hx_ms span = hx_clock_wall() - at;
    bool is_past = span >= 0;
    if (!is_past) span = -span;
    while (span >= scales[i].below) i++;
    return hx_arena_printf(arena, is_past ? "%lld%c ago" : "in %lld%c", (long long)(span / scales[i].unit),
                           scales[i].letter)
        .ptr;
}

const char *hx_print_colour(const char *state)
{
    static const struct {
        const char *state, *colour;
    } colours[] = {{"delivered", "\033[32m"}, {"active", "\033[32m"}, {"dead", "\033[31m"},   {"disabled", "\033[31m"},
                   {"unknown", "\033[33m"},   {"held", "\033[33m"},   {"failing", "\033[33m"}};
    for (size_t i = 0; i < sizeof colours / sizeof colours[0]; i++)
        if (strcmp(colours[i].state, state) == 0) return colours[i].colour;
    return "";
}

const char *hx_cell(hx_slice record, const char *name, hx_arena *arena)
{
    const char *text = hx_keys_member(record, name, arena);
    return text[0] ? text : "-";
}

void hx_print_events(const hx_slice *events, size_t count, hx_arena *arena)
{
    hx_table_row *rows = hx_arena_zalloc(arena, (count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"ACCEPTED", "ID", "TYPE", "TENANT", "SOURCE", "RECIPIENTS"}};
    for (size_t i = 0; i < count; i++) {
        size_t recipients;
        (void)hx_keys_records(events[i], "/recipients", arena, &recipients);
        rows[i + 1] = (hx_table_row){.cells = {hx_relative_time(events[i], "accepted_at", arena),
                                               hx_cell(events[i], "id", arena), hx_cell(events[i], "type", arena),
                                               hx_cell(events[i], "tenant", arena), hx_cell(events[i], "source", arena),
                                               hx_arena_printf(arena, "%zu", recipients).ptr}};
    }
    hx_table_print(rows, count + 1, 6);
}

/* The beginning of an attempt's response, on one line. A character that is cut off is shown as '?'. */
static const char *excerpt(hx_slice attempt, hx_arena *arena)
{
    hx_slice raw, text;
    if (!hx_json_pointer(attempt, HX_LIT("/response"), &raw) || !hx_json_string(raw, arena, &text)) return "";
    char *line = hx_arena_terminated(arena, text);
    for (size_t i = 0; i < text.len; i++)
        if (line[i] == '\n' || line[i] == '\r' || line[i] == '\t') line[i] = ' ';
    text = hx_slice_trim((hx_slice){line, text.len});
    if (text.len > EXCERPT_BYTES) text = hx_arena_printf(arena, "%.*s…", (int)EXCERPT_BYTES, text.ptr);
    return hx_keys_clean(text, arena);
}

/* Why a delivery is where it is: its reason, and the error or the response of its last attempt. */
static const char *why(hx_slice delivery, hx_slice attempt, hx_arena *arena)
{
    const char *reason = hx_keys_member(delivery, "reason", arena);
    const char *met = hx_keys_member(attempt, "error", arena);
    if (!met[0]) met = excerpt(attempt, arena);
    if (!reason[0] || !met[0]) return reason[0] ? reason : met[0] ? met : "-";
    return hx_arena_printf(arena, "%s: %s", reason, met).ptr;
}

void hx_print_deliveries(const hx_slice *deliveries, size_t count, hx_arena *arena)
{
    hx_table_row *rows = hx_arena_zalloc(arena, (count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"WHEN", "STATE", "EVENT", "ENDPOINT", "ATTEMPTS", "STATUS", "WHY"}};
    for (size_t i = 0; i < count; i++) {
        hx_slice each = deliveries[i], last = HX_EMPTY;
        size_t tries;
        const hx_slice *attempts = hx_keys_records(each, "/tries", arena, &tries);
        if (tries > 0) last = attempts[tries - 1];
        const char *state = hx_keys_member(each, "state", arena), *when = hx_relative_time(each, "settled_at", arena);
        if (!when[0]) when = hx_relative_time(each, "next_attempt_at", arena);
        rows[i + 1] = (hx_table_row){.cells = {when[0] ? when : "now", state, hx_cell(each, "event", arena),
                                               hx_cell(each, "endpoint", arena), hx_cell(each, "attempts", arena),
                                               hx_cell(last, "status", arena), why(each, last, arena)},
                                     .colour = hx_print_colour(state)};
    }
    hx_table_print(rows, count + 1, 7);
}

void hx_print_delivery(hx_slice delivery, const char *recipient, hx_arena *arena)
{
    size_t count;
    const hx_slice *attempts = hx_keys_records(delivery, "/tries", arena, &count);
    const char *state = hx_keys_member(delivery, "state", arena);
    const char *next = hx_relative_time(delivery, "next_attempt_at", arena);
    const char *settled = hx_relative_time(delivery, "settled_at", arena);
    const char *reason = hx_keys_member(delivery, "reason", arena);
    (void)printf("\nto %s: %s%s%s%s%s\n", recipient, strcmp(state, "absent") == 0 ? "no delivery yet" : state,
                 settled[0] ? " " : "", settled, next[0] ? ", next attempt " : "", next);
    if (reason[0]) (void)printf("%s\n", reason);
    if (count == 0) return;
    hx_table_row *rows = hx_arena_zalloc(arena, (count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"ATTEMPT", "STATUS", "TOOK", "ERROR", "RESPONSE"}};
    for (size_t i = 0; i < count; i++) {
        const char *status = hx_cell(attempts[i], "status", arena), *response = excerpt(attempts[i], arena);
        const char *took = hx_keys_member(attempts[i], "ms", arena);
        rows[i + 1] = (hx_table_row){.cells = {hx_relative_time(attempts[i], "at", arena), status,
                                               hx_arena_printf(arena, "%sms", took).ptr,
                                               hx_cell(attempts[i], "error", arena), response[0] ? response : "-"},
                                     .colour = hx_print_colour(status[0] == '2' ? "delivered" : "dead")};
    }
    hx_table_print(rows, count + 1, 5);
}

void hx_print_json_line(hx_slice json, hx_arena *arena)
{
    char *line = hx_arena_terminated(arena, json);
    for (size_t i = 0; i < json.len; i++)
        if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
    hx_cmd_put_json(stdout, (hx_slice){line, json.len});
}
