/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/live_check.h"

#include "base/crc32c.h"
#include "base/memory/list.h"

#include <inttypes.h>
#include <string.h>

#define KEPT_FOR (50 * 365 * HX_DAY)

static const hx_slice acceptance_route = {"hapax --accept-rescope", 22};

static void begin(hx_live_check *check);

static void end(hx_live_check *check)
{
    hx_arena_free(&check->arena);
    check->done(check);
}

static void fail(hx_live_check *check)
{
    check->failed = true;
    check->count++;
    hx_arena_free(&check->page_arena);
    bool fits = hx_buf_printf(check->problems,
                              "the store can't be reached for counting live operations: try again when "
                              "it can\n");
    (void)fits;
    end(check);
}

static void sweep_done(hx_store_call *call)
{
    hx_live_check *check = HX_OWNER(call, hx_live_check, call);
    if (call->result == HX_STORE_OK)
        begin(check);
    else
        fail(check);
}

static void judge(hx_live_check *check)
{
    check->count = hx_changes_check(check->policies, &check->live, &check->by_path, &check->memory, check->problems);
    if (check->count == 0 || check->swept) {
        end(check);
        return;
    }
    check->swept = true;
    check->problems->len = check->problems_from;
    hx_arena_free(&check->arena);
    check->call = (hx_store_call){.loop = check->loop, .done = sweep_done};
    hx_store_sweep(check->store, &check->call);
}

static void list(hx_live_check *check, void (*done)(hx_store_call *call))
{
    check->call = (hx_store_call){.loop = check->loop, .arena = &check->page_arena, .done = done};
    hx_store_list(check->store, &check->call, &check->page);
}

static void list_done(hx_store_call *call)
{
    hx_live_check *check = HX_OWNER(call, hx_live_check, call);
    if (call->result != HX_STORE_OK) {
        fail(check);
        return;
    }
    for (size_t i = 0; i < check->page.count; i++) {
        const hx_record *record = &check->page.records[i];
        if (record->rule_version != HX_RULE_SHADOW)
            hx_store_rules_add(&check->by_path, &check->arena, record->route, record->rule_version, 1);
    }
    hx_arena_free(&check->page_arena);
    if (check->page.more)
        list(check, list_done);
    else
        judge(check);
}

/* Finds the paths that a route takes over and that may have live operations. */
static size_t find_paths(hx_live_check *check, hx_slice **found)
{
    size_t count, kept = 0;
    const hx_changes_path *paths = hx_changes_paths(check->policies, &check->arena, &count);
    *found = hx_arena_alloc(&check->arena, (count + 1) * sizeof **found);
    for (size_t i = 0; i < count; i++)
        if (hx_store_live_at_most(check->store, paths[i].text) > 0) (*found)[kept++] = paths[i].text;
    return kept;
}

static bool has_unnamed(const hx_store_rules *live)
{
    for (size_t i = 0; i < live->count; i++)
        if (!(live->rules[i].version & HX_RULE_NAMED)) return true;
    return live->others > 0;
}

static void count_live(hx_live_check *check)
{
    hx_slice *paths = NULL;
    check->by_path = (hx_store_rules){0};
    hx_store_rules_of(check->store, &check->arena, &check->live);
    size_t count = has_unnamed(&check->live) ? find_paths(check, &paths) : 0;
    if (count == 0) {
        judge(check);
        return;
    }
    check->page = (hx_store_page){
        .route = HX_EMPTY, .reason = HX_EMPTY, .paths = paths, .path_count = count, .records_max = HX_STORE_PAGE_MAX};
    list(check, list_done);
}

/* Reads the rules from the result of an acceptance: "2147483661 refunds" is their version and their route. */
static void add_accepted(hx_live_check *check, const hx_record *record)
{
    uint64_t version;
    size_t space = hx_slice_find(record->result, ' ');
    if (space == SIZE_MAX || !hx_slice_to_u64(hx_slice_first(record->result, space), &version)) return;
    hx_store_rules_add(&check->memory.accepted, &check->memory_arena, hx_slice_from(record->result, space + 1),
                       (uint32_t)version, 0);
}

static void list_accepted_done(hx_store_call *call)
{
    hx_live_check *check = HX_OWNER(call, hx_live_check, call);
    if (call->result != HX_STORE_OK) {
        fail(check);
        return;
    }
    for (size_t i = 0; i < check->page.count; i++) add_accepted(check, &check->page.records[i]);
    hx_arena_free(&check->page_arena);
    if (check->page.more)
        list(check, list_accepted_done);
    else
        count_live(check);
}

static void begin(hx_live_check *check)
{
    hx_live_check_free(check);
    check->memory = (hx_changes_memory){.arena = &check->memory_arena};
    check->page = (hx_store_page){.route = acceptance_route,
                                  .reason = HX_EMPTY,
                                  .states = 1u << HX_COMPLETED,
                                  .records_max = HX_STORE_PAGE_MAX};
    list(check, list_accepted_done);
}

void hx_live_check_free(hx_live_check *check)
{
    hx_arena_free(&check->memory_arena);
    check->memory = (hx_changes_memory){0};
}

/* The operation under which an acceptance is recorded. Its bytes are no MAC, so no request can have it. */
static hx_op op_of(const hx_store_rule *rule)
{
    hx_op op = {{0}};
    const uint32_t numbers[] = {rule->version, hx_crc32c(0, rule->route), (uint32_t)rule->route.len};
    _Static_assert(sizeof numbers < sizeof op.bytes, "the numbers fit");
    memcpy(op.bytes + sizeof op.bytes - sizeof numbers, numbers, sizeof numbers);
    return op;
}

static void readmit_next(hx_live_check *check);

static void readmit_done(hx_store_call *call)
{
    hx_live_check *check = HX_OWNER(call, hx_live_check, call);
    check->failed = call->result != HX_STORE_OK &&
                    call->result != HX_STORE_STALE; /* STALE: another node did it first */
    check->at++;
    readmit_next(check);
}

static void readmit_next(hx_live_check *check)
{
    const hx_store_rules *accepted = &check->memory.accepted;
    while (check->at < accepted->count && accepted->rules[check->at].live > 0) check->at++;
    if (check->failed || check->at == accepted->count) {
        hx_arena_free(&check->arena);
        check->done(check);
        return;
    }
    hx_op op = op_of(&accepted->rules[check->at]);
    check->call = (hx_store_call){.loop = check->loop, .arena = &check->arena, .done = readmit_done};
    hx_store_forget(check->store, &check->call, &op, 0, HX_LIT("these rules are in force again"));
}

void hx_live_check_readmit(hx_live_check *check, void (*done)(hx_live_check *check))
{
    check->done = done;
    check->at = 0;
    check->failed = false;
    readmit_next(check);
}

static void accept_next(hx_live_check *check);

static void accept_one_done(hx_live_check *check, bool is_kept)
{
    check->failed = !is_kept;
    check->at++;
    accept_next(check);
}

/* Where several nodes accept the same rules, the first one records it. */
static void accept_settle_done(hx_store_call *call)
{
    bool is_kept = call->result == HX_STORE_OK || (call->result == HX_STORE_STALE && call->found.state == HX_COMPLETED);
    accept_one_done(HX_OWNER(call, hx_live_check, call), is_kept);
}

static void accept_claim_done(hx_store_call *call)
{
    hx_live_check *check = HX_OWNER(call, hx_live_check, call);
    bool is_there = call->result == HX_STORE_EXISTS;
    if (call->result != HX_STORE_OK && (!is_there || call->found.state == HX_COMPLETED)) {
        accept_one_done(check, is_there);
        return;
    }
    if (is_there) check->record.epoch = call->found.epoch; /* claimed by a node that ended before it settled */
    check->record.from_state = is_there ? call->found.state : HX_PROCESSING;
    check->record.state = HX_COMPLETED;
    check->record.expires_at = check->record.changed_at + KEPT_FOR;
    check->call = (hx_store_call){.loop = check->loop, .arena = &check->arena, .done = accept_settle_done};
    hx_store_settle(check->store, &check->call, &check->record);
}

static void accept_next(hx_live_check *check)
{
    const hx_store_rules *wrong = &check->memory.wrong;
    if (check->failed || check->at == wrong->count) {
        hx_arena_free(&check->arena);
        check->done(check);
        return;
    }
    const hx_store_rule *rule = &wrong->rules[check->at];
    hx_ms now = hx_store_about(check->store)->now();
    check->record = (hx_record){.op = op_of(rule),
                                .state = HX_PROCESSING,
                                .created_at = now,
                                .changed_at = now,
                                .lease_until = now + HX_MINUTE,
                                .owner = hx_store_about(check->store)->owner,
                                .attempt = 1,
                                .rule_version = HX_RULE_SHADOW,
                                .route = acceptance_route,
                                .correlation = HX_EMPTY,
                                .reason = HX_LIT("operations under these rules are given up"),
                                .result = hx_arena_printf(&check->arena, "%" PRIu32 " %.*s", rule->version,
                                                          HX_FMT(rule->route)),
                                .answer = {.headers = HX_EMPTY, .body = HX_EMPTY}};
    check->call = (hx_store_call){.loop = check->loop, .arena = &check->arena, .done = accept_claim_done};
    hx_store_claim(check->store, &check->call, &check->record, 0);
}

void hx_live_check_accept(hx_live_check *check, void (*done)(hx_live_check *check))
{
    check->done = done;
    check->at = 0;
    check->failed = false;
    accept_next(check);
}

void hx_live_check_start(hx_live_check *check)
{
    check->problems_from = check->problems->len;
    check->count = 0;
    check->failed = false;
    begin(check);
}
