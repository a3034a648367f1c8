/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/prove/view.h"

#include "base/text.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/keys.h"
#include "core/json/json_writer.h"

#include <stdio.h>

#define SHOWN_BYTES_MAX 2000u
#define JSON_BYTES_MAX (64u << 20)

static const char *const way_names[] = {[HX_PROVE_BARE] = "bare", [HX_PROVE_HAPAX] = "hapax"};
static const char *const way_titles[] = {[HX_PROVE_BARE] = "bare", [HX_PROVE_HAPAX] = "behind Hapax"};

hx_prove_word hx_prove_summary(const hx_prove_results *results, hx_prove_way way)
{
    hx_prove_word worst = HX_PROVE_HOLDS;
    for (size_t i = 0; i < HX_PROVE_CASE_COUNT; i++) {
        hx_prove_word word = results->verdicts[i][way].word;
        if (word > worst && word != HX_PROVE_NOT_RUN) worst = word;
    }
    return worst;
}

/* The plan */

static bool is_left_out(const hx_prove_plan *plan, hx_prove_way way, hx_prove_case which)
{
    if (which == HX_PROVE_MISMATCH) return plan->changed.len == 0;
    return way == HX_PROVE_BARE && !plan->crash && (which == HX_PROVE_CRASH || which == HX_PROVE_RESTART);
}

static void show_body(hx_slice text)
{
    fputs("  ", stderr);
    hx_cmd_put_text(stderr, hx_slice_first(text, SHOWN_BYTES_MAX));
    if (text.len > SHOWN_BYTES_MAX) fprintf(stderr, " … (%zu bytes)", text.len);
    fputs("\n\n", stderr);
}

static void show_header(const hx_text_header *header)
{
    static const char *const secret[] = {"authorization", "cookie", "proxy-authorization", "x-api-key"};
    hx_slice value = header->value;
    for (size_t i = 0; i < sizeof secret / sizeof secret[0]; i++)
        if (hx_slice_eq_nocase(header->name, hx_slice_of(secret[i]))) value = HX_LIT("(hidden)");
    fprintf(stderr, "  %.*s: ", HX_FMT(header->name));
    hx_cmd_put_text(stderr, value);
    fputc('\n', stderr);
}

void hx_prove_show_plan(const hx_prove_plan *plan, bool is_bare)
{
    hx_slice lines = plan->header_lines;
    hx_text_header header;
    unsigned requests = 0;
    for (unsigned way = 0; way < (is_bare ? 1 : HX_PROVE_WAYS); way++)
        for (unsigned i = 0; i < HX_PROVE_CASE_COUNT; i++)
            if (!is_left_out(plan, way, i)) requests += hx_prover_requests_max(i);
    fprintf(stderr, "This sends to the API, %s, up to %u requests like this one:\n\n",
            is_bare ? "directly" : "directly and through a gateway on this machine", requests);
    fprintf(stderr, "  %.*s %.*s\n", HX_FMT(plan->method), HX_FMT(plan->url));
    while (hx_text_next_header(&lines, &header)) show_header(&header);
    fprintf(stderr, "  Idempotency-Key: (a new one for each case)\n\n");
    if (plan->body.len > 0) show_body(plan->body);
    if (plan->changed.len > 0) {
        fprintf(stderr, "The mismatch has this body instead, with a key that was used:\n\n");
        show_body(plan->changed);
    }
    if (plan->count_url) fprintf(stderr, "Before and after each case it asks GET %s\n", plan->count_url);
    if (plan->crash) fprintf(stderr, "Twice it runs, to kill the API and start it again: %s\n", plan->crash);
    fprintf(stderr, "Any of them may take effect: use an API and an account that are made for tests.\n");
}

/* The results */

static const char *colour_of(hx_prove_word word)
{
    switch (word) {
    case HX_PROVE_HOLDS: return "\033[32m";
    case HX_PROVE_BROKEN: return "\033[31m";
    case HX_PROVE_SAFE:
    case HX_PROVE_UNCLEAR: return "\033[33m";
    case HX_PROVE_NOT_RUN: break;
    }
    return "";
}

static hx_slice answer_of(const hx_prove_response *r, hx_arena *arena)
{
    hx_slice more = r->code.len > 0 ? r->code : r->idempotency_status;
    if (r->status == 0) return r->failure.len > 0 ? hx_slice_first(r->failure, 256) : HX_LIT("no response");
    return hx_arena_printf(arena, more.len > 0 ? "%u %.*s" : "%u", r->status, HX_FMT(hx_slice_first(more, 64)));
}

/* "201 stored, 201 replayed", "201 (10 times)": what came back, in the order of the requests. */
static const char *answers_of(const hx_prove_seen *seen, hx_arena *arena)
{
    hx_slice out = HX_EMPTY, texts[HX_PROVE_RESPONSES_MAX];
    for (size_t i = 0; i < seen->count; i++) texts[i] = answer_of(&seen->responses[i], arena);
    for (size_t i = 0, times; i < seen->count; i += times) {
        for (times = 1; i + times < seen->count && hx_slice_eq(texts[i], texts[i + times]);) times++;
        out = hx_arena_printf(arena, "%.*s%s%.*s", HX_FMT(out), i > 0 ? ", " : "", HX_FMT(texts[i]));
        if (times > 2) out = hx_arena_printf(arena, "%.*s (%zu times)", HX_FMT(out), times);
        if (times == 2) out = hx_arena_printf(arena, "%.*s, %.*s", HX_FMT(out), HX_FMT(texts[i]));
    }
    return hx_keys_clean(out, arena);
}

static void show_overview(const hx_prove_results *results)
{
    hx_table_row rows[HX_PROVE_CASE_COUNT + 1] = {{.cells = {"CASE", "BARE", "BEHIND HAPAX"}}};
    for (unsigned i = 0; i < HX_PROVE_CASE_COUNT; i++) {
        hx_prove_word bare = results->verdicts[i][HX_PROVE_BARE].word, ours = results->verdicts[i][HX_PROVE_HAPAX].word;
        rows[i + 1] = (hx_table_row){.cells = {hx_prove_case_name(i), hx_prove_word_text(bare),
                                               hx_prove_word_text(ours)},
                                     .colour = colour_of(bare),
                                     .next_colour = colour_of(ours)};
    }
    hx_table_print(rows, HX_PROVE_CASE_COUNT + 1, results->has_way[HX_PROVE_HAPAX] ? 3 : 2);
}

void hx_prove_show(const hx_prove_plan *plan, const hx_prove_results *results, hx_arena *arena)
{
    show_overview(results);
    for (unsigned i = 0; i < HX_PROVE_CASE_COUNT; i++) {
        printf("\n%s: %s\n", hx_prove_case_name(i), hx_prove_case_done(i));
        for (unsigned way = 0; way < HX_PROVE_WAYS; way++) {
            const hx_prove_verdict *verdict = &results->verdicts[i][way];
            if (!results->has_way[way]) continue;
            printf("  %-13s %s: %s", way_titles[way], hx_prove_word_text(verdict->word),
                   hx_keys_clean(verdict->why, arena));
            if (results->seen[i][way].count > 0) printf("; %s", answers_of(&results->seen[i][way], arena));
            printf("\n");
        }
    }
    if (!plan->count_url)
        printf("\nEffects were not counted. --count URL counts them, and so decides what is left open here.\n");
}

static void put_way(hx_buf *out, const hx_prove_seen *seen, const hx_prove_verdict *verdict, const char *name)
{
    hx_json_open(out, name, '{');
    hx_json_put_text(out, "verdict", hx_slice_of(hx_prove_word_text(verdict->word)));
    hx_json_put_text(out, "why", verdict->why);
    if (seen->effects >= 0)
        hx_json_put_number(out, "effects", (uint64_t)seen->effects);
    else
        hx_json_put_null(out, "effects");
    if (seen->reached >= 0)
        hx_json_put_number(out, "reached_api", (uint64_t)seen->reached);
    else
        hx_json_put_null(out, "reached_api");
    hx_json_open(out, "responses", '[');
    for (size_t i = 0; i < seen->count; i++) {
        const hx_prove_response *response = &seen->responses[i];
        hx_json_open(out, NULL, '{');
        hx_json_put_number(out, "status", response->status);
        hx_json_put_text(out, "failure", response->failure);
        hx_json_put_text(out, "error_code", response->code);
        hx_json_put_text(out, "idempotency_status", response->idempotency_status);
        hx_json_put_text(out, "id", response->id);
        hx_json_put_text(out, "body", hx_slice_first(response->body, SHOWN_BYTES_MAX));
        hx_json_put_number(out, "ms", (uint64_t)response->duration);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

void hx_prove_show_json(const hx_prove_plan *plan, const hx_prove_results *results, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, JSON_BYTES_MAX);
    hx_json_open(&out, NULL, '{');
    hx_json_put_text(&out, "method", plan->method);
    hx_json_put_text(&out, "url", plan->url);
    hx_json_put_bool(&out, "counted", plan->count_url != NULL);
    for (unsigned way = 0; way < HX_PROVE_WAYS; way++)
        if (results->has_way[way])
            hx_json_put_text(&out, way_names[way], hx_slice_of(hx_prove_word_text(hx_prove_summary(results, way))));
    hx_json_open(&out, "cases", '[');
    for (unsigned i = 0; i < HX_PROVE_CASE_COUNT; i++) {
        hx_json_open(&out, NULL, '{');
        hx_json_put_text(&out, "case", hx_slice_of(hx_prove_case_name(i)));
        hx_json_put_text(&out, "done", hx_slice_of(hx_prove_case_done(i)));
        hx_json_put_text(&out, "expected", hx_slice_of(hx_prove_case_expected(i)));
        for (unsigned way = 0; way < HX_PROVE_WAYS; way++)
            if (results->has_way[way])
                put_way(&out, &results->seen[i][way], &results->verdicts[i][way], way_names[way]);
        hx_json_close(&out, '}');
    }
    hx_json_close(&out, ']');
    hx_json_close(&out, '}');
    hx_buf_puts(&out, "\n");
    hx_cmd_put_json(stdout, hx_buf_slice(&out));
}
