/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry/backoff.h"

#include "base/check.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"

#define DOUBLED_MAX ((hx_ms)1 << 50) /* far above every cap, and twice it is far below overflow */
#define ADDITIVE_MAX HX_SECOND
#define FIXED_MOMENT_PART 10 /* a fixed moment is only ever delayed, by up to a tenth */

/* A capped Retry-After lies past every total, so that it ends the retries and is never obeyed early. */
_Static_assert(HX_RETRY_AFTER_MAX > HX_RETRY_SPAN_MAX, "a capped Retry-After must not be waited for");

static const hx_ms delivery_schedule[HX_RETRY_STEPS] = {
    0,       5 * HX_SECOND, 30 * HX_SECOND, 2 * HX_MINUTE, 10 * HX_MINUTE, 30 * HX_MINUTE,
    HX_HOUR, 6 * HX_HOUR,   12 * HX_HOUR,   HX_DAY,
};

#define X(id, name, ...) name,
static const char *const class_names[] = {HX_RETRY_CLASSES(X)};
static const char *const profile_names[] = {"unset", HX_RETRY_PROFILES(X)};
static const char *const jitter_names[] = {"unset", HX_JITTERS(X)};
static const char *const verdict_names[] = {HX_RETRY_VERDICTS(X)};
#undef X
#define X(id, name, text) text,
static const char *const verdict_texts[] = {HX_RETRY_VERDICTS(X)};
#undef X

#define X(id, name, attempts_, total_, base_, cap_, jitter_, on_schedule)                                              \
    {.attempts = (attempts_),                                                                                          \
     .total = (total_),                                                                                                \
     .base = (base_),                                                                                                  \
     .cap = (cap_),                                                                                                    \
     .jitter = HX_JITTER_##jitter_,                                                                                    \
     .schedule = (on_schedule) ? delivery_schedule : NULL},
static const hx_retry_policy classes[] = {HX_RETRY_CLASSES(X)};
#undef X

#define X(id, name, attempts_, base_, cap_, jitter_)                                                                   \
    {.attempts = (attempts_), .base = (base_), .cap = (cap_), .jitter = HX_JITTER_##jitter_},
static const hx_retry_policy profiles[] = {{0}, HX_RETRY_PROFILES(X)};
#undef X

/* The position of `name` from `first` on; `count` when it is missing. */
static unsigned find_name(const char *const *names, unsigned first, unsigned count, hx_slice name)
{
    unsigned i = first;
    while (i < count && !hx_slice_eq(hx_slice_of(names[i]), name)) i++;
    return i;
}

bool hx_retry_class_parse(hx_slice name, hx_retry_class *out)
{
    unsigned found = find_name(class_names, 0, HX_CLASS_COUNT, name);
    if (found < HX_CLASS_COUNT) *out = (hx_retry_class)found;
    return found < HX_CLASS_COUNT;
}

bool hx_retry_profile_parse(hx_slice name, hx_retry_profile *out)
{
    unsigned found = find_name(profile_names, HX_PROFILE_UNSET + 1, HX_PROFILE_COUNT, name);
    if (found < HX_PROFILE_COUNT) *out = (hx_retry_profile)found;
    return found < HX_PROFILE_COUNT;
}

bool hx_jitter_parse(hx_slice name, hx_jitter *out)
{
    unsigned found = find_name(jitter_names, HX_JITTER_UNSET + 1, HX_JITTER_COUNT, name);
    if (found < HX_JITTER_COUNT) *out = (hx_jitter)found;
    return found < HX_JITTER_COUNT;
}

const char *hx_retry_class_name(hx_retry_class class)
{
    HX_CHECK(class < HX_CLASS_COUNT);
    return class_names[class];
}

const char *hx_retry_profile_name(hx_retry_profile profile)
{
    HX_CHECK(profile < HX_PROFILE_COUNT);
    return profile_names[profile];
}

const char *hx_jitter_name(hx_jitter jitter)
{
    HX_CHECK(jitter < HX_JITTER_COUNT);
    return jitter_names[jitter];
}

const char *hx_retry_verdict_name(hx_retry_verdict verdict)
{
    HX_CHECK(verdict < HX_RETRY_VERDICT_COUNT);
    return verdict_names[verdict];
}

const char *hx_retry_verdict_text(hx_retry_verdict verdict)
{
    HX_CHECK(verdict < HX_RETRY_VERDICT_COUNT);
    return verdict_texts[verdict];
}

hx_retry_policy hx_retry_policy_of_class(hx_retry_class class)
{
    HX_CHECK(class < HX_CLASS_COUNT);
    return classes[class];
}

static bool span_fits(hx_ms span)
{
    return span >= 1 && span <= HX_RETRY_SPAN_MAX;
}

static const char *find_contradiction(const hx_retry_policy *policy, const hx_retry_overrides *overrides)
{
    if (policy->attempts < 1 || policy->attempts > HX_RETRY_ATTEMPTS_MAX) return "attempts must be from 1 to 100";
    if (!span_fits(policy->total)) return "total must be from 1ms to 30d";
    if (!span_fits(policy->base)) return "base must be from 1ms to 30d";
    if (!span_fits(policy->cap)) return "cap must be from 1ms to 30d";
    if (!policy->schedule)
        return policy->base > policy->cap ? "base is above cap, so that every delay would be the cap" : NULL;
    if (policy->attempts > HX_RETRY_STEPS)
        return "the webhook schedule has 10 attempts: give a base, or a profile, for more";
    if (overrides->cap != 0) return "the webhook schedule has no cap: give a base, or a profile, with it";
    if (policy->jitter != HX_JITTER_ADDITIVE && policy->jitter != HX_JITTER_NONE)
        return "on the webhook schedule jitter only adds: additive or none";
    return NULL;
}

bool hx_retry_policy_make(hx_retry_class class, const hx_retry_overrides *overrides, hx_retry_policy *policy,
                          const char **error)
{
    HX_CHECK(overrides->profile < HX_PROFILE_COUNT && overrides->jitter < HX_JITTER_COUNT);
    hx_retry_policy made = hx_retry_policy_of_class(class);
    if (made.schedule && (overrides->base != 0 || overrides->profile != HX_PROFILE_UNSET)) {
        made.schedule = NULL;
        made.jitter = HX_JITTER_SPREAD; /* the default of delays that double */
    }
    if (overrides->profile != HX_PROFILE_UNSET) {
        const hx_retry_policy *profile = &profiles[overrides->profile];
        made.attempts = profile->attempts;
        made.base = profile->base;
        made.cap = profile->cap;
        made.jitter = profile->jitter;
    }
    if (overrides->attempts != 0) made.attempts = overrides->attempts;
    if (overrides->total != 0) made.total = overrides->total;
    if (overrides->base != 0) made.base = overrides->base;
    if (overrides->cap != 0) made.cap = overrides->cap;
    if (overrides->jitter != HX_JITTER_UNSET) made.jitter = overrides->jitter;
    const char *wrong = find_contradiction(&made, overrides);
    if (wrong)
        *error = wrong;
    else
        *policy = made;
    return wrong == NULL;
}

/* Both ends included. The modulo's bias is below 2^-13 for the longest span there is. */
static hx_ms uniform(hx_ms low, hx_ms high, uint64_t random)
{
    return low + (hx_ms)(random % ((uint64_t)(high - low) + 1));
}

static hx_ms doubled(hx_ms base, unsigned times)
{
    return times < 50 && base <= DOUBLED_MAX >> times ? base << times : DOUBLED_MAX;
}

static hx_ms jittered(hx_jitter jitter, hx_ms d, uint64_t random)
{
    switch (jitter) {
    case HX_JITTER_SPREAD: return uniform(d, 2 * d, random);
    case HX_JITTER_FULL: return uniform(0, d, random);
    case HX_JITTER_HALF: return uniform(d - d / 2, d + d / 2, random); /* rounded inwards */
    case HX_JITTER_ADDITIVE: return uniform(d, d + ADDITIVE_MAX, random);
    default: return d;
    }
}

/* Later by up to a tenth of `span`, but not so late that it would miss its time: what the jitter adds must never be
 * what ends the retries. */
static hx_ms never_early(const hx_retry_policy *policy, hx_ms delay, hx_ms span, hx_ms time_left, uint64_t random)
{
    hx_ms most = policy->jitter == HX_JITTER_NONE ? 0 : span / FIXED_MOMENT_PART;
    if (most > time_left - delay) most = time_left - delay;
    return most > 0 ? delay + uniform(0, most, random) : delay;
}

/* A step whose moment has passed, because attempts were slow, Retry-After was long or the sender was down, follows
 * after the schedule's first step: catching up must not burn the attempts that are left within a second. */
static hx_ms scheduled(const hx_retry_policy *policy, const hx_retry_question *question, hx_ms elapsed, uint64_t random)
{
    hx_ms offset = policy->schedule[question->attempts], first_step = policy->schedule[1];
    hx_ms time_left = policy->total - elapsed;
    if (offset <= elapsed) return never_early(policy, first_step, first_step, time_left, random);
    return never_early(policy, offset - elapsed, offset, time_left, random);
}

static hx_ms own_delay(const hx_retry_policy *policy, const hx_retry_question *question, hx_ms elapsed, uint64_t random)
{
    if (question->at_once) return 0;
    if (policy->schedule) return scheduled(policy, question, elapsed, random);
    hx_ms d = doubled(policy->base, question->attempts - 1);
    /* `half` is jittered after the cap, so that clients at the cap stay spread. */
    if (policy->jitter == HX_JITTER_HALF) return jittered(HX_JITTER_HALF, d < policy->cap ? d : policy->cap, random);
    hx_ms delay = jittered(policy->jitter, d, random);
    return delay < policy->cap ? delay : policy->cap;
}

hx_retry_answer hx_retry_next(const hx_retry_policy *policy, const hx_retry_question *question, uint64_t random)
{
    HX_CHECK(question->attempts >= 1);
    hx_ms elapsed = question->elapsed > 0 ? question->elapsed : 0;
    hx_ms time_left = policy->total - elapsed;
    hx_ms client_left = question->client_left == HX_TIMEOUT_NONE ? INT64_MAX : question->client_left;
    if (question->attempts >= policy->attempts) return (hx_retry_answer){.verdict = HX_RETRY_NO_ATTEMPTS};
    hx_ms delay = own_delay(policy, question, elapsed, random);
    if (question->retry_after >= 0) {
        /* One more, since a clock that counts whole milliseconds may be almost one behind when it is read. */
        hx_ms told = question->retry_after + 1;
        if (told > time_left || told >= client_left)
            return (hx_retry_answer){.verdict = HX_RETRY_TOLD_LATER, .delay = question->retry_after};
        /* All clients got the same Retry-After: they should not come back at once. */
        hx_ms latest = time_left < client_left ? time_left : client_left - 1;
        if (told > delay) delay = never_early(policy, told, told, latest, random);
    }
    if (delay > time_left) return (hx_retry_answer){.verdict = HX_RETRY_NO_TIME};
    if (delay >= client_left) return (hx_retry_answer){.verdict = HX_RETRY_NO_PATIENCE};
    return (hx_retry_answer){.verdict = HX_RETRY_AGAIN, .delay = delay};
}

static hx_ms offset_of(unsigned step)
{
    const hx_ms *schedule = classes[HX_CLASS_WEBHOOK].schedule;
    if (step < HX_RETRY_STEPS) return schedule[step];
    hx_ms last_gap = schedule[HX_RETRY_STEPS - 1] - schedule[HX_RETRY_STEPS - 2];
    return schedule[HX_RETRY_STEPS - 1] + (hx_ms)(step - HX_RETRY_STEPS + 1) * last_gap;
}

hx_retry_step hx_retry_scheduled(const hx_retry_steps *failed, uint64_t random)
{
    hx_retry_step next = {.step = failed->step + 1};
    hx_ms planned = offset_of(failed->step), gap = offset_of(next.step) - planned;
    bool was_late = failed->last_at > failed->first_at + planned + planned / FIXED_MOMENT_PART;
    hx_ms due = was_late ? failed->last_at + gap : failed->first_at + offset_of(next.step);
    due += uniform(0, (was_late ? gap : offset_of(next.step)) / FIXED_MOMENT_PART, random);
    if (failed->retry_after >= 0) {
        hx_ms told = failed->now + failed->retry_after + 1;
        if (told > due) due = told + uniform(0, failed->retry_after / FIXED_MOMENT_PART, random);
        while (next.step + 1 < HX_RETRY_STEPS && failed->first_at + offset_of(next.step + 1) <= due) next.step++;
    }
    next.due = due > failed->now ? due : failed->now;
    return next;
}

hx_repeat hx_retry_client(const hx_client_answer *answer)
{
    if (answer->is_final) return HX_REPEAT_NEVER;
    switch (answer->status) {
    case 0: return HX_REPEAT_LATER;
    case 408: return HX_REPEAT_AT_ONCE;
    case 409: return answer->says_retry ? HX_REPEAT_LATER : HX_REPEAT_NEVER;
    case 429: return HX_REPEAT_LATER;
    default: return answer->status >= 500 && answer->status < 600 ? HX_REPEAT_LATER : HX_REPEAT_NEVER;
    }
}

hx_repeat hx_retry_delivery(unsigned status, bool dead_on_client_error)
{
    if ((status >= 200 && status < 300) || status == 410) return HX_REPEAT_NEVER;
    bool momentary = status == 408 || status == 425 || status == 429;
    if (dead_on_client_error && status >= 400 && status < 500 && !momentary) return HX_REPEAT_NEVER;
    return HX_REPEAT_LATER; /* 408 too: "at once" would burn a schedule's attempts within a second */
}
