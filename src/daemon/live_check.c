/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/live_check.h"

#include "base/crc32c.h"
#include "base/memory/list.h"

#include <inttypes.h>
#include <string.h>

#define KEPT_FOR (50 * 365 * HX_DAY)

static const hx_slice memory_route = {"hapax --accept-rescope", 22};

static void look(hx_live_check *survey);

static void end(hx_live_check *survey)
{
    hx_arena_free(&survey->arena);
    survey->done(survey);
}

static void fail(hx_live_check *survey)
{
    survey->failed = true;
    survey->count++;
    hx_arena_free(&survey->page_arena);
    bool fits = hx_buf_printf(survey->problems, "the store can't be asked which operations are live under other rules: "
                                                "try again when it can be reached\n");
    (void)fits;
    end(survey);
}

static void swept(hx_store_call *call)
{
    hx_live_check *survey = HX_OWNER(call, hx_live_check, call);
    if (call->result == HX_STORE_OK)
        look(survey);
    else
        fail(survey);
}

static void judge(hx_live_check *survey)
{
    survey->count = hx_changes_check(survey->policies, &survey->live, &survey->by_path, &survey->memory,
                                     survey->problems);
    if (survey->count == 0 || survey->swept) {
        end(survey);
        return;
    }
    survey->swept = true;
    survey->problems->len = survey->problems_from;
    hx_arena_free(&survey->arena);
    survey->call = (hx_store_call){.loop = survey->loop, .done = swept};
    hx_store_sweep(survey->store, &survey->call);
}

static void list(hx_live_check *survey);

static void listed(hx_store_call *call)
{
    hx_live_check *survey = HX_OWNER(call, hx_live_check, call);
    if (call->result != HX_STORE_OK) {
        fail(survey);
        return;
    }
    for (size_t i = 0; i < survey->page.count; i++) {
        const hx_record *record = &survey->page.records[i];
        if (record->rule_version != HX_RULE_SHADOW)
            hx_store_rules_add(&survey->by_path, &survey->arena, record->route, record->rule_version, 1);
    }
    hx_arena_free(&survey->page_arena);
    if (survey->page.more)
        list(survey);
    else
        judge(survey);
}

static void list(hx_live_check *survey)
{
    survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->page_arena, .done = listed};
    hx_store_list(survey->store, &survey->call, &survey->page);
}

/* The paths that a route takes over and that operations may have been made on. */
static size_t find_paths(hx_live_check *survey, hx_slice **found)
{
    size_t count, kept = 0;
    const hx_changes_path *paths = hx_changes_paths(survey->policies, &survey->arena, &count);
    *found = hx_arena_alloc(&survey->arena, (count + 1) * sizeof **found);
    for (size_t i = 0; i < count; i++)
        if (hx_store_live_at_most(survey->store, paths[i].text) > 0) (*found)[kept++] = paths[i].text;
    return kept;
}

static bool has_unnamed(const hx_store_rules *live)
{
    for (size_t i = 0; i < live->count; i++)
        if (!(live->rules[i].version & HX_RULE_NAMED)) return true;
    return live->others > 0;
}

static void count_live(hx_live_check *survey)
{
    hx_slice *paths = NULL;
    survey->by_path = (hx_store_rules){0};
    hx_store_rules_of(survey->store, &survey->arena, &survey->live);
    size_t count = has_unnamed(&survey->live) ? find_paths(survey, &paths) : 0;
    if (count == 0) {
        judge(survey);
        return;
    }
    survey->page = (hx_store_page){
        .route = HX_EMPTY, .reason = HX_EMPTY, .paths = paths, .path_count = count, .records_max = HX_STORE_PAGE_MAX};
    list(survey);
}

/* "2147483661 refunds": its result says which rules it is about. */
static void take_accepted(hx_live_check *survey, const hx_record *record)
{
    uint64_t version;
    size_t space = hx_slice_find(record->result, ' ');
    if (space == SIZE_MAX || !hx_slice_to_u64(hx_slice_first(record->result, space), &version)) return;
    hx_store_rules_add(&survey->memory.accepted, &survey->memory_arena, hx_slice_from(record->result, space + 1),
                       (uint32_t)version, 0);
}

static void list_accepted(hx_live_check *survey);

static void accepted_listed(hx_store_call *call)
{
    hx_live_check *survey = HX_OWNER(call, hx_live_check, call);
    if (call->result != HX_STORE_OK) {
        fail(survey);
        return;
    }
    for (size_t i = 0; i < survey->page.count; i++) take_accepted(survey, &survey->page.records[i]);
    hx_arena_free(&survey->page_arena);
    if (survey->page.more)
        list_accepted(survey);
    else
        count_live(survey);
}

static void list_accepted(hx_live_check *survey)
{
    survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->page_arena, .done = accepted_listed};
    hx_store_list(survey->store, &survey->call, &survey->page);
}

static void look(hx_live_check *survey)
{
    hx_survey_free(survey);
    survey->memory = (hx_changes_memory){.arena = &survey->memory_arena};
    survey->page = (hx_store_page){.route = memory_route,
                                   .reason = HX_EMPTY,
                                   .states = 1u << HX_COMPLETED,
                                   .records_max = HX_STORE_PAGE_MAX};
    list_accepted(survey);
}

void hx_survey_free(hx_live_check *survey)
{
    hx_arena_free(&survey->memory_arena);
    survey->memory = (hx_changes_memory){0};
}

/* No request has it: the half of a MAC would have to be these numbers. */
static hx_op op_of(const hx_store_rule *rule)
{
    hx_op op = {{0}};
    const uint32_t numbers[] = {rule->version, hx_crc32c(0, rule->route), (uint32_t)rule->route.len};
    _Static_assert(sizeof numbers < sizeof op.bytes, "there is room for them");
    memcpy(op.bytes + sizeof op.bytes - sizeof numbers, numbers, sizeof numbers);
    return op;
}

static void readmit_next(hx_live_check *survey);

static void readmitted(hx_store_call *call)
{
    hx_live_check *survey = HX_OWNER(call, hx_live_check, call);
    survey->failed = call->result != HX_STORE_OK && call->result != HX_STORE_STALE; /* stale: another node was faster */
    survey->at++;
    readmit_next(survey);
}

static void readmit_next(hx_live_check *survey)
{
    const hx_store_rules *accepted = &survey->memory.accepted;
    while (survey->at < accepted->count && accepted->rules[survey->at].live > 0) survey->at++;
    if (survey->failed || survey->at == accepted->count) {
        hx_arena_free(&survey->arena);
        survey->done(survey);
        return;
    }
    hx_op op = op_of(&accepted->rules[survey->at]);
    survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->arena, .done = readmitted};
    hx_store_forget(survey->store, &survey->call, &op, 0, HX_LIT("these rules are in force again"));
}

void hx_survey_readmit(hx_live_check *survey, void (*done)(hx_live_check *survey))
{
    survey->done = done;
    survey->at = 0;
    survey->failed = false;
    readmit_next(survey);
}

static void accept_next(hx_live_check *survey);

static void accepted(hx_live_check *survey, bool is_kept)
{
    survey->failed = !is_kept;
    survey->at++;
    accept_next(survey);
}

/* Of several nodes that accept the same the first one wins. */
static void acceptance_settled(hx_store_call *call)
{
    bool is_kept = call->result == HX_STORE_OK || (call->result == HX_STORE_STALE && call->found.state == HX_COMPLETED);
    accepted(HX_OWNER(call, hx_live_check, call), is_kept);
}

static void acceptance_claimed(hx_store_call *call)
{
    hx_live_check *survey = HX_OWNER(call, hx_live_check, call);
    bool is_there = call->result == HX_STORE_EXISTS;
    if (call->result != HX_STORE_OK && (!is_there || call->found.state == HX_COMPLETED)) {
        accepted(survey, is_there);
        return;
    }
    if (is_there) survey->record.epoch = call->found.epoch; /* of somebody who died before it was written */
    survey->record.from_state = is_there ? call->found.state : HX_PROCESSING;
    survey->record.state = HX_COMPLETED;
    survey->record.expires_at = survey->record.changed_at + KEPT_FOR;
    survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->arena, .done = acceptance_settled};
    hx_store_settle(survey->store, &survey->call, &survey->record);
}

static void accept_next(hx_live_check *survey)
{
    const hx_store_rules *wrong = &survey->memory.wrong;
    if (survey->failed || survey->at == wrong->count) {
        hx_arena_free(&survey->arena);
        survey->done(survey);
        return;
    }
    const hx_store_rule *rule = &wrong->rules[survey->at];
    hx_ms now = hx_store_about(survey->store)->now();
    survey->record = (hx_record){.op = op_of(rule),
                                 .state = HX_PROCESSING,
                                 .created_at = now,
                                 .changed_at = now,
                                 .lease_until = now + HX_MINUTE,
                                 .owner = hx_store_about(survey->store)->owner,
                                 .attempt = 1,
                                 .rule_version = HX_RULE_SHADOW,
                                 .route = memory_route,
                                 .correlation = HX_EMPTY,
                                 .reason = HX_LIT("operations under these rules are given up"),
                                 .result = hx_arena_printf(&survey->arena, "%" PRIu32 " %.*s", rule->version,
                                                           HX_FMT(rule->route)),
                                 .answer = {.headers = HX_EMPTY, .body = HX_EMPTY}};
    survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->arena, .done = acceptance_claimed};
    hx_store_claim(survey->store, &survey->call, &survey->record, 0);
}

void hx_survey_accept(hx_live_check *survey, void (*done)(hx_live_check *survey))
{
    survey->done = done;
    survey->at = 0;
    survey->failed = false;
    accept_next(survey);
}

void hx_live_check_start(hx_live_check *survey)
{
    survey->problems_from = survey->problems->len;
    survey->count = 0;
    survey->failed = false;
    look(survey);
}
