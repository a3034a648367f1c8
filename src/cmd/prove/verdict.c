/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/prove/verdict.h"

#include <inttypes.h>

static const struct {
    const char *name, *done, *expected;
} cases[] = {
#define X(id, name, done, expected) {name, done, expected},
    HX_PROVE_CASES(X)
#undef X
};

const char *hx_prove_case_name(hx_prove_case which)
{
    return cases[which].name;
}

const char *hx_prove_case_done(hx_prove_case which)
{
    return cases[which].done;
}

const char *hx_prove_case_expected(hx_prove_case which)
{
    return cases[which].expected;
}

const char *hx_prove_word_text(hx_prove_word word)
{
    static const char *const texts[] = {[HX_PROVE_HOLDS] = "holds",
                                        [HX_PROVE_SAFE] = "safe",
                                        [HX_PROVE_UNCLEAR] = "cannot tell",
                                        [HX_PROVE_BROKEN] = "broken",
                                        [HX_PROVE_NOT_RUN] = "not run"};
    return texts[word];
}

static bool is_success(const hx_prove_response *response)
{
    return response->status >= 200 && response->status < 300;
}

/* Whether it says that the first request with this key is still in progress. */
static bool is_in_flight(const hx_prove_response *response)
{
    return response->status == 409 || response->status == 425 || response->status == 429;
}

typedef struct {
    unsigned successes, different; /* responses that say yes, and how many of them differ from each other */
    unsigned with_id, ids;
    unsigned in_flight;
} counts;

static counts count(const hx_prove_seen *seen)
{
    counts c = {0};
    for (size_t i = 0; i < seen->count; i++) {
        const hx_prove_response *r = &seen->responses[i];
        bool is_new = true, is_new_id = r->id.len > 0;
        c.in_flight += is_in_flight(r);
        if (!is_success(r)) continue;
        for (size_t j = 0; j < i; j++) {
            const hx_prove_response *other = &seen->responses[j];
            if (!is_success(other)) continue;
            if (r->status == other->status && hx_slice_eq(r->body, other->body)) is_new = false;
            if (hx_slice_eq(r->id, other->id)) is_new_id = false;
        }
        c.successes++;
        c.different += is_new;
        c.with_id += r->id.len > 0;
        c.ids += is_new_id;
    }
    return c;
}

bool hx_prove_ids_differ(const hx_prove_seen *seen)
{
    return count(seen).ids == 2;
}

#define SAY(word, ...) ((hx_prove_verdict){HX_PROVE_##word, hx_arena_printf(arena, __VA_ARGS__)})

static hx_slice answer_of(const hx_prove_response *response, hx_arena *arena)
{
    if (response->status == 0) return hx_arena_printf(arena, "no response (%.*s)", HX_FMT(response->failure));
    return hx_arena_printf(arena, "%u%s%.*s", response->status, response->code.len > 0 ? " " : "",
                           HX_FMT(response->code));
}

static hx_prove_verdict judge_new_key(const hx_prove_seen *seen, bool ids_differ, hx_arena *arena)
{
    counts c = count(seen);
    for (size_t i = 0; i < seen->count; i++)
        if (!is_success(&seen->responses[i]))
            return SAY(UNCLEAR, "%s got %.*s", i == 0 ? "a first request" : "the second key",
                       HX_FMT(answer_of(&seen->responses[i], arena)));
    if (seen->effects == 2) return SAY(HOLDS, "two effects");
    if (seen->effects == 0) return SAY(UNCLEAR, "the count did not change: does it count these effects?");
    if (seen->effects > 0)
        return SAY(BROKEN, "two keys, and %" PRId64 " effect%s", seen->effects, seen->effects == 1 ? "" : "s");
    if (seen->reached == 2) return SAY(HOLDS, "both reached the API");
    if (ids_differ) return SAY(HOLDS, "two ids");
    if (c.with_id == 2) return SAY(UNCLEAR, "two keys got the same id: it may not tell effects apart");
    return SAY(UNCLEAR, "the responses %s, and effects were not counted", c.different == 1 ? "are equal" : "differ");
}

static hx_prove_verdict judge_mismatch(const hx_prove_seen *seen, hx_arena *arena)
{
    const hx_prove_response *first = &seen->responses[0], *second = &seen->responses[1];
    hx_slice answer = answer_of(second, arena);
    if (!is_success(first)) return SAY(UNCLEAR, "a first request got %.*s", HX_FMT(answer_of(first, arena)));
    if (seen->effects > 1) return SAY(BROKEN, "%" PRId64 " effects, and %.*s", seen->effects, HX_FMT(answer));
    if (is_success(second))
        return SAY(BROKEN, "accepted with %.*s%s", HX_FMT(answer),
                   hx_slice_eq(first->body, second->body) ? ", the first response" : "");
    if (second->status == 409 || second->status == 422) return SAY(HOLDS, "refused with %.*s", HX_FMT(answer));
    return SAY(UNCLEAR, "%.*s, perhaps because of the body itself", HX_FMT(answer));
}

static hx_prove_verdict judge_once(hx_prove_case which, const hx_prove_seen *seen, bool ids_differ, hx_arena *arena)
{
    counts c = count(seen);
    const hx_prove_response *last = &seen->responses[seen->count - 1];
    bool is_dropped = which == HX_PROVE_TIMEOUT || which == HX_PROVE_CRASH; /* nobody reads the first response */
    bool is_retried = is_dropped || which == HX_PROVE_RESTART || which == HX_PROVE_DUPLICATE;
    if (seen->effects > 1) return SAY(BROKEN, "%" PRId64 " effects", seen->effects);
    if (c.ids > 1) return SAY(BROKEN, "%u different ids for one key", c.ids);
    if (c.different > 1) return SAY(BROKEN, "%u different responses for one key", c.different);
    bool is_told = is_retried ? is_success(last) : c.successes > 0 && c.successes + c.in_flight == seen->count;
    if (c.successes == 0 && (!is_dropped || (seen->effects < 1 && seen->reached < 1)))
        return SAY(UNCLEAR, "no request succeeded: %.*s", HX_FMT(answer_of(last, arena)));
    if (c.successes > 0 && seen->effects == 0)
        return SAY(UNCLEAR, "the count did not change: does it count these effects?");
    if (seen->effects >= 0 || seen->reached == 1) {
        const char *effects = seen->effects == 0  ? "no effect"
                              : seen->effects > 0 ? "one effect"
                                                  : "it reached the API once";
        if (is_told) return SAY(HOLDS, "%s", effects);
        for (size_t i = 0; i < seen->count && !is_retried; i++)
            if (!is_success(&seen->responses[i]) && !is_in_flight(&seen->responses[i])) last = &seen->responses[i];
        return SAY(SAFE, "%s, but %s got %.*s", effects, is_retried ? "the retry" : "one",
                   HX_FMT(answer_of(last, arena)));
    }
    if (seen->reached > 1)
        return SAY(UNCLEAR, "it reached the API %" PRId64 " times; effects were not counted", seen->reached);
    if (ids_differ && c.with_id > 1 && is_told) return SAY(HOLDS, "the same id each time");
    if (is_dropped) return SAY(UNCLEAR, "nobody saw the first response, and effects were not counted");
    return SAY(UNCLEAR, "%s, and effects were not counted",
               is_told ? "the responses are equal" : "some requests were refused");
}

hx_prove_verdict hx_prove_judge(hx_prove_case which, const hx_prove_seen *seen, bool ids_differ, hx_arena *arena)
{
    if (seen->not_run) return (hx_prove_verdict){HX_PROVE_NOT_RUN, hx_slice_of(seen->not_run)};
    if (which == HX_PROVE_NEW_KEY) return judge_new_key(seen, ids_differ, arena);
    if (which == HX_PROVE_MISMATCH) return judge_mismatch(seen, arena);
    return judge_once(which, seen, ids_differ, arena);
}
