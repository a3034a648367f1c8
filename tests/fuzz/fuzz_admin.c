/* SPDX-License-Identifier: Apache-2.0 */
/* What an operator's request may hold: a first byte that chooses, then a query, a filter or an act. What is taken keeps
 * its limits, and an answer's header lines are lines. */
#include "admin/operator_act.h"
#include "admin/filter.h"
#include "base/check.h"
#include "core/json/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_lines(hx_slice headers)
{
    hx_slice rest = headers, line;
    while (rest.len > 0 && hx_slice_next(&rest, '\n', &line)) {
        HX_CHECK(line.len > 1 && line.ptr[line.len - 1] == '\r');
        HX_CHECK(memchr(line.ptr, '\r', line.len - 1) == NULL && memchr(line.ptr, '\0', line.len) == NULL);
        HX_CHECK(hx_slice_find(line, ':') != SIZE_MAX);
    }
}

static void read_act(hx_slice text, uint8_t choice, hx_arena *arena)
{
    hx_operator_act act = {.kind = (choice & 1) != 0 ? HX_OPERATOR_ACT_RESOLVE : HX_OPERATOR_ACT_FORGET,
                           .is_bulk = (choice & 2) != 0};
    if (hx_operator_act_read(&act, text, arena, HX_DAY)) return;
    HX_CHECK(act.preview || act.why.len > 0);
    HX_CHECK(act.to == HX_ABSENT ? act.answer.status == 0 : act.answer.status >= 200 && act.answer.status < 600);
    check_lines(act.answer.headers);
    HX_CHECK(hx_operator_act_reason(HX_LIT("fuzz (uid 1)"), act.why, arena).len <= HX_RECORD_TEXT_MAX);
}

static void read_filter(hx_slice text, bool is_query, hx_arena *arena)
{
    static const uint8_t secret[HX_SECRET_BYTES] = {1};
    static hx_mac *mac;
    if (!mac) mac = hx_mac_new(secret);
    hx_filter_reader reader = {.arena = arena, .mac = mac, .now = 20000 * HX_DAY};
    hx_store_page page = {.route = HX_EMPTY, .reason = HX_EMPTY, .records_max = HX_FILTER_LIMIT};
    hx_slice object;
    const char *wrong = NULL;
    if (is_query)
        wrong = hx_filter_query(&reader, text, &page);
    else if (hx_json_pointer(text, HX_EMPTY, &object))
        wrong = hx_filter_json(&reader, object, &page);
    if (wrong) return;
    HX_CHECK(page.records_max >= 1 && page.records_max <= HX_STORE_PAGE_MAX);
    HX_CHECK(page.route.len <= HX_RECORD_TEXT_MAX && page.reason.len <= HX_RECORD_TEXT_MAX);
    HX_CHECK((page.states & (1u << HX_ABSENT)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    hx_arena arena = {0};
    hx_slice text = {(const char *)data + 1, size - 1};
    if (data[0] < '4')
        read_act(text, data[0], &arena);
    else
        read_filter(text, data[0] == '4', &arena);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
