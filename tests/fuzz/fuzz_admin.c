/* SPDX-License-Identifier: Apache-2.0 */
/* What a request may hold: a first byte that chooses, then a query, a filter, an act, or the path, host and token of a
 * request to the API. What is taken keeps its limits, and an answer's header lines are lines. */
#include "admin/filter.h"
#include "admin/operator_act.h"
#include "admin/query.h"
#include "admin/routes.h"
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

/* A path, a query, and what is wanted of an item's place; nothing of it is longer than a store takes. */
static void read_request(hx_slice text, hx_arena *arena)
{
    hx_slice path = hx_slice_first(text, hx_slice_find(text, '?')), query = hx_slice_from(text, path.len + 1);
    hx_slice limit, cursor, token;
    const hx_admin_word words[] = {{"limit", &limit}, {"cursor", &cursor}};
    hx_item_page page = {0};
    hx_admin_path found = {0};
    hx_buf allowed;
    hx_buf_init(&allowed, arena, HX_ADMIN_ALLOWED_BYTES);
    const hx_admin_route *route = hx_admin_find_route(HX_LIT("DELETE"), path, HX_EMPTY, arena, &found, &allowed);
    HX_CHECK(!route || (found.parameters[0].len > 0 && found.parameters[0].len <= HX_ADMIN_PARAMETER_BYTES));
    if (!hx_admin_query(query, arena, words, 2) && !hx_admin_page(limit, cursor, arena, &page)) {
        HX_CHECK(page.items_max >= 1 && page.items_max <= HX_ITEM_PAGE_MAX && page.after.due >= 0);
        HX_CHECK(page.after.key.len <= HX_ITEM_KEY_MAX && page.after.queue.len <= HX_ITEM_QUEUE_MAX);
    }
    HX_CHECK(!hx_api_token_find(text, &token) || token.len == HX_API_TOKEN_BYTES);
    (void)hx_admin_is_own_origin(path, query);
    (void)hx_admin_is_own_host(text, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    hx_arena arena = {0};
    hx_slice text = {(const char *)data + 1, size - 1};
    if (data[0] < '4')
        read_act(text, data[0], &arena);
    else if (data[0] == '6')
        read_request(text, &arena);
    else
        read_filter(text, data[0] == '4', &arena);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
