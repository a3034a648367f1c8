/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/survey.h"

#include "base/list.h"

static void look(hx_survey *survey);

static void end(hx_survey *survey)
{
    hx_arena_free(&survey->arena);
    survey->done(survey);
}

static void fail(hx_survey *survey)
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
    hx_survey *survey = HX_OWNER(call, hx_survey, call);
    if (call->result == HX_STORE_OK)
        look(survey);
    else
        fail(survey);
}

static void judge(hx_survey *survey)
{
    survey->count = hx_rescope_check(survey->policies, &survey->live, &survey->by_path, survey->problems);
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

static void list(hx_survey *survey);

static void listed(hx_store_call *call)
{
    hx_survey *survey = HX_OWNER(call, hx_survey, call);
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

static void list(hx_survey *survey)
{
    survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->page_arena, .done = listed};
    hx_store_list(survey->store, &survey->call, &survey->page);
}

/* The paths that a route takes over and that operations may have been made on. */
static size_t find_paths(hx_survey *survey, hx_slice **found)
{
    size_t count, kept = 0;
    const hx_rescope_path *paths = hx_rescope_paths(survey->policies, &survey->arena, &count);
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

static void look(hx_survey *survey)
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

void hx_survey_start(hx_survey *survey)
{
    survey->problems_from = survey->problems->len;
    survey->count = 0;
    survey->failed = false;
    look(survey);
}
