/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/survey.h"

#include "base/list.h"

static void look(hx_survey *survey);

static void end(hx_survey *survey)
{
    hx_arena_free(&survey->arena);
    survey->done(survey);
}

static void swept(hx_store_call *call)
{
    look(HX_OWNER(call, hx_survey, call));
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

static void next_path(hx_survey *survey);

static void listed(hx_store_call *call)
{
    hx_survey *survey = HX_OWNER(call, hx_survey, call);
    for (size_t i = 0; i < survey->page.count; i++) {
        const hx_record *record = &survey->page.records[i];
        if (!(record->rule_version & HX_RULE_NAMED) && record->rule_version != HX_RULE_SHADOW)
            hx_store_rules_add(&survey->by_path, &survey->arena, record->route, record->rule_version, 1);
    }
    hx_arena_free(&survey->page_arena);
    if (survey->page.more) {
        survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->page_arena, .done = listed};
        hx_store_list(survey->store, &survey->call, &survey->page);
        return;
    }
    survey->path_at++;
    next_path(survey);
}

static void next_path(hx_survey *survey)
{
    while (survey->path_at < survey->path_count &&
           hx_store_live_at_most(survey->store, survey->paths[survey->path_at].text) == 0)
        survey->path_at++;
    if (survey->path_at == survey->path_count) {
        judge(survey);
        return;
    }
    survey->page = (hx_store_page){.route = survey->paths[survey->path_at].text,
                                   .reason = HX_EMPTY,
                                   .records_max = 1000};
    survey->call = (hx_store_call){.loop = survey->loop, .arena = &survey->page_arena, .done = listed};
    hx_store_list(survey->store, &survey->call, &survey->page);
}

static bool has_unnamed(const hx_store_rules *live)
{
    for (size_t i = 0; i < live->count; i++)
        if (!(live->rules[i].version & HX_RULE_NAMED)) return true;
    return live->others > 0;
}

static void look(hx_survey *survey)
{
    survey->by_path = (hx_store_rules){0};
    survey->path_count = survey->path_at = 0;
    hx_store_rules_of(survey->store, &survey->arena, &survey->live);
    if (has_unnamed(&survey->live))
        survey->paths = hx_rescope_paths(survey->policies, &survey->arena, &survey->path_count);
    next_path(survey);
}

void hx_survey_start(hx_survey *survey)
{
    survey->problems_from = survey->problems->len;
    survey->count = 0;
    look(survey);
}
