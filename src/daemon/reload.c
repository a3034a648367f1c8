/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reload.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "base/log.h"
#include "daemon/policy_diff.h"
#include "daemon/restart_only.h"
#include "daemon/live_check.h"
#include "jobs/jwks.h"

#include <stdio.h>
#include <stdlib.h>

#define LINES_BYTES_MAX (1024u * 1024u)
#define KEYS_WAIT (5 * HX_SECOND) /* for a URL that is new in a reload: operators are answered on the same loop */

typedef struct {
    hx_config *config;
    unsigned uses; /* generations */
} kept_config;

typedef struct {
    hx_rules rules;
    hx_reload *reloader;
    kept_config *kept;
    hx_jwt_keys *keys[HX_JWT_SOURCES_MAX];
    hx_link link;
    hx_task gone;
} generation;

/* What is retired, in memory that the store may look at until it has heard of the next. */
typedef struct {
    hx_arena arena;
    hx_store_rules rules;
} retirement;

struct hx_reload {
    hx_reload_needs needs;
    hx_link generations; /* that are in use, the newest last */
    generation *newest;
    hx_jwks *jwks; /* NULL: no tokens are verified */
    hx_admin_reload *first, **last;
    hx_task go_on;
    bool going_on; /* the task is on its way */
    bool busy;
    struct {
        hx_admin_reload *reload; /* NULL: fresh keys, for the same configuration */
        kept_config *kept;
        hx_jwks *jwks;
        hx_buf lines;
        hx_live_check survey;
        retirement *retirement; /* that takes the place of what is retired; NULL: nothing does */
        bool enforces;          /* what shall hold next may be what holds in the store */
    } work;
    retirement retirements[2], *retired; /* NULL: nothing is */
    hx_store_call call;                  /* of a retirement */
    struct {                             /* of a store that others use, too: what holds there */
        hx_arena arena;
        hx_store_rules rules;
        hx_store_call call;
        hx_timer again;
        bool is_wanted; /* what holds here may not be what holds there */
    } enforcement;
    _Atomic unsigned awaited; /* workers that don't use the newest yet */
    hx_task all_use;
    struct {
        atomic_bool posted;
        hx_task task;
        bool waiting;
    } fresh_keys;
    struct {
        _Atomic uint32_t sources; /* bits */
        hx_task task;
    } wanted;
    bool stopping;
    void (*stopped)(void *context);
    void *context;
};

#define ENFORCE_AGAIN HX_SECOND

static void add_enforced(hx_reload *r, hx_slice route, const hx_policy *policy)
{
    if (policy->mode == HX_MODE_PROTECT)
        hx_store_rules_add(&r->enforcement.rules, &r->enforcement.arena, route, policy->rule_version, 0);
}

static bool is_enforced(const hx_reload *r, hx_slice route)
{
    for (size_t i = 0; i < r->enforcement.rules.count; i++)
        if (hx_slice_eq(r->enforcement.rules.rules[i].route, route)) return true;
    return false;
}

/* Routes that are there no more: a node that still has them must not begin anything on them. */
static void add_gone(hx_reload *r, const hx_policy_set *running)
{
    for (size_t i = 0; i < running->count; i++) {
        hx_slice route = hx_policy_identity(&running->routes[i]);
        if (running->routes[i].mode == HX_MODE_PROTECT && !is_enforced(r, route))
            hx_store_rules_add(&r->enforcement.rules, &r->enforcement.arena, route, HX_RULE_NAMED, 0); /* no version */
    }
}

static void enforce(hx_reload *r, const hx_policy_set *policies, void (*done)(hx_store_call *call))
{
    hx_arena_free(&r->enforcement.arena);
    r->enforcement.rules = (hx_store_rules){0};
    for (size_t i = 0; i < policies->count; i++)
        add_enforced(r, hx_policy_identity(&policies->routes[i]), &policies->routes[i]);
    add_enforced(r, HX_EMPTY, &policies->defaults);
    HX_EACH(link, &r->generations)
    {
        const generation *g = HX_OWNER(link, generation, link);
        if (g->rules.policies != policies) add_gone(r, g->rules.policies);
    }
    r->enforcement.call = (hx_store_call){.loop = r->needs.loop, .done = done};
    hx_timer_stop(r->needs.loop, &r->enforcement.again);
    hx_store_enforce(r->needs.store, &r->enforcement.call, &r->enforcement.rules);
}

/* Later in this turn of the loop: what is next, if nothing is under way. */
static void go_on_soon(hx_reload *r)
{
    if (r->going_on) return;
    r->going_on = true;
    hx_loop_defer(r->needs.loop, &r->go_on);
}

static void drop_config(kept_config **owned)
{
    kept_config *kept = *owned;
    *owned = NULL;
    if (!kept || --kept->uses > 0) return;
    hx_config_free(&kept->config);
    free(kept);
}

static kept_config *keep(hx_config *config)
{
    kept_config *kept = malloc(sizeof *kept);
    if (!kept) hx_fatal(HX_EXIT_BUG, "out of memory (a configuration)");
    *kept = (kept_config){.config = config, .uses = 1};
    return kept;
}

static void free_generation(generation *g)
{
    hx_list_remove(&g->link);
    for (size_t i = 0; i < HX_JWT_SOURCES_MAX; i++)
        if (g->keys[i]) hx_jwt_keys_free(&g->keys[i]);
    drop_config(&g->kept);
    free(g);
}

static void generation_gone(hx_task *task)
{
    generation *g = HX_OWNER(task, generation, gone);
    hx_reload *r = g->reloader;
    free_generation(g);
    go_on_soon(r);
}

/* On the thread of the worker that was the last to use it. */
static void unused(hx_rules *rules)
{
    generation *g = HX_OWNER(rules, generation, rules);
    g->gone.run = generation_gone;
    hx_loop_post(g->reloader->needs.loop, &g->gone);
}

static generation *new_generation(hx_reload *r, kept_config *kept, hx_jwks *jwks)
{
    generation *g = calloc(1, sizeof *g);
    if (!g) hx_fatal(HX_EXIT_BUG, "out of memory (rules)");
    g->reloader = r;
    g->kept = kept;
    kept->uses++;
    g->rules.config = kept->config;
    g->rules.policies = &kept->config->policies;
    g->rules.generation = r->newest ? r->newest->rules.generation + 1 : 1;
    g->rules.unused = unused;
    atomic_init(&g->rules.users, r->needs.worker_count);
    for (size_t i = 0; jwks && i < kept->config->jwt_source_count; i++)
        g->rules.jwt_keys[i] = g->keys[i] = hx_jwks_keys(jwks, i);
    return g;
}

static void stop_keys(hx_jwks **owned)
{
    if (!*owned) return;
    hx_jwks_stop(*owned);
    hx_jwks_free(owned);
}

static void log_lines(hx_log_event event, hx_slice lines)
{
    hx_slice line;
    while (hx_slice_next(&lines, '\n', &line)) {
        if (line.len == 0) continue;
        hx_log_begin(event);
        hx_log_str("problem", line);
        hx_log_end();
    }
}

/* The reload at hand is over; what it has not given away is freed. */
static void finish(hx_reload *r, bool is_in_force)
{
    hx_admin_reload *reload = r->work.reload;
    hx_survey_free(&r->work.survey);
    r->work.reload = NULL;
    drop_config(&r->work.kept);
    stop_keys(&r->work.jwks);
    r->busy = false;
    if (reload) {
        reload->is_in_force = is_in_force;
        reload->generation = r->newest->rules.generation;
        reload->lines = hx_buf_slice(&r->work.lines);
        reload->done(reload);
    }
    r->work.lines.len = 0;
    r->work.retirement = NULL;
    r->work.enforces = false;
    go_on_soon(r);
}

static void refuse(hx_reload *r)
{
    if (r->work.reload) log_lines(HX_EVENT_configuration_rejected, hx_buf_slice(&r->work.lines));
    finish(r, false);
}

static void restored(hx_store_call *call)
{
    refuse(HX_OWNER(call, hx_reload, call));
}

/* Refused, but claims under the rules that should have gone may have been turned away meanwhile: no more. */
static void refuse_and_restore(hx_reload *r)
{
    r->enforcement.is_wanted = r->enforcement.is_wanted || r->work.enforces;
    if (!r->work.retirement) {
        refuse(r);
        return;
    }
    r->call = (hx_store_call){.loop = r->needs.loop, .done = restored};
    hx_store_retire(r->needs.store, &r->call, r->retired ? &r->retired->rules : NULL);
}

static void add_line(hx_reload *r, const char *sentence)
{
    bool fits = hx_buf_printf(&r->work.lines, "%s\n", sentence);
    (void)fits;
}

/* Only what holds is remembered: rules that were not taken over after all leave nothing behind. */
static void say_accepted(hx_reload *r)
{
    log_lines(HX_EVENT_operations_given_up, hx_buf_slice(&r->work.lines));
    if (r->work.survey.failed) hx_log(HX_EVENT_acceptance_not_recorded);
}

static void accepted(hx_live_check *survey)
{
    hx_reload *r = HX_OWNER(survey, hx_reload, work.survey);
    say_accepted(r);
    finish(r, true);
}

static void all_use(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, all_use);
    hx_log_begin(r->work.reload ? HX_EVENT_configuration_reloaded : HX_EVENT_jwks_in_use);
    hx_log_int("generation", (int64_t)r->newest->rules.generation);
    if (r->work.reload) hx_log_text("file", r->needs.source->file);
    hx_log_end();
    if (r->work.reload) hx_rules_say_weaker(r->newest->rules.config, hx_store_about(r->needs.store)->shared);
    hx_survey_accept(&r->work.survey, accepted);
}

void hx_reload_used(hx_reload *r)
{
    if (atomic_fetch_sub(&r->awaited, 1) == 1) hx_loop_post(r->needs.loop, &r->all_use);
}

static void keys_changed(void *context, size_t i)
{
    hx_reload *r = context;
    (void)i;
    if (!atomic_exchange(&r->fresh_keys.posted, true)) hx_loop_post(r->needs.loop, &r->fresh_keys.task);
}

/* The point of no return: what is handed out is in force. */
static void hand_out(hx_reload *r)
{
    const hx_config *config = r->work.kept->config;
    hx_store_options limits = {.bytes_max = config->store_bytes_max,
                               .waiters_max = config->limits.waiters,
                               .waiters_per_op_max = config->limits.waiters_per_operation};
    char error[HX_STORE_ERROR_BYTES];
    if (!hx_store_limit(r->needs.store, &limits, error)) {
        add_line(r, error);
        refuse_and_restore(r);
        return;
    }
    generation *before = r->newest, *g = new_generation(r, r->work.kept, r->work.reload ? r->work.jwks : r->jwks);
    hx_list_append(&r->generations, &g->link);
    atomic_store(&r->awaited, r->needs.worker_count);
    if (!r->needs.hand_out(r->needs.context, &g->rules)) {
        free_generation(g);
        add_line(r, "the daemon is stopping");
        refuse_and_restore(r);
        return;
    }
    /* The generation before can be gone from the next turn on, not sooner: that is told on this loop. */
    r->newest = g;
    r->needs.in_force(r->needs.context, &before->rules, &g->rules);
    if (r->work.retirement) r->retired = r->work.retirement;
    if (!r->work.reload) return;
    hx_jwks *old = r->jwks;
    r->jwks = r->work.jwks;
    r->work.jwks = NULL;
    if (r->jwks) hx_jwks_start(r->jwks, keys_changed, r);
    stop_keys(&old);
}

static void enforced(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, enforcement.call);
    if (call->result == HX_STORE_OK) {
        r->enforcement.is_wanted = false;
        hand_out(r);
        return;
    }
    add_line(r, "the store can't be told of the new rules, which other nodes have to know: try again when it can be "
                "reached");
    refuse_and_restore(r);
}

/* No node may begin an operation under rules that the next ones don't know. */
static void readmitted(hx_live_check *survey)
{
    hx_reload *r = HX_OWNER(survey, hx_reload, work.survey);
    if (survey->failed) {
        add_line(r, "the store can't be told which rules are in force again: try again when it can be reached");
        refuse_and_restore(r);
        return;
    }
    if (!hx_store_about(r->needs.store)->shared) {
        hand_out(r);
        return;
    }
    r->work.enforces = true;
    enforce(r, &r->work.kept->config->policies, enforced);
}

static void enforce_next(hx_reload *r)
{
    hx_survey_readmit(&r->work.survey, readmitted);
}

/* And says which rules of which routes are the reason. */
static bool is_refused(hx_reload *r)
{
    if (r->work.survey.failed) return true;
    if (r->work.survey.count == 0 || r->work.reload->accept_rescope) return false;
    hx_diff_explain(r->newest->rules.config, r->work.kept->config, &r->work.lines);
    return true;
}

static void surveyed_again(hx_live_check *survey)
{
    hx_reload *r = HX_OWNER(survey, hx_reload, work.survey);
    if (is_refused(r))
        refuse_and_restore(r);
    else
        enforce_next(r);
}

static void survey(hx_reload *r, bool sweeps, void (*done)(hx_live_check *survey))
{
    r->work.lines.len = 0;
    hx_survey_free(&r->work.survey);
    r->work.survey = (hx_live_check){.loop = r->needs.loop,
                                     .store = r->needs.store,
                                     .policies = &r->work.kept->config->policies,
                                     .problems = &r->work.lines,
                                     .swept = !sweeps,
                                     .done = done};
    hx_live_check_start(&r->work.survey);
}

/* From here on no request under an older generation begins what the next one wouldn't know. */
static void retired(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, call);
    if (call->result == HX_STORE_OK) {
        survey(r, false, surveyed_again);
        return;
    }
    add_line(r, "the store can't be told which rules go: try again when it can be reached");
    refuse_and_restore(r);
}

static void surveyed(hx_live_check *done)
{
    hx_reload *r = HX_OWNER(done, hx_reload, work.survey);
    if (is_refused(r)) {
        refuse(r);
        return;
    }
    retirement *next = r->retired == &r->retirements[0] ? &r->retirements[1] : &r->retirements[0];
    hx_arena_free(&next->arena);
    next->rules = (hx_store_rules){0};
    HX_EACH(link, &r->generations)
    hx_changes_retired(HX_OWNER(link, generation, link)->rules.policies, &r->work.kept->config->policies, &next->arena,
                       &next->rules);
    if (next->rules.count == 0 && !r->retired) {
        enforce_next(r);
        return;
    }
    r->work.retirement = next;
    r->call = (hx_store_call){.loop = r->needs.loop, .done = retired};
    hx_store_retire(r->needs.store, &r->call, &next->rules);
}

/* Whether the file is right by itself and beside what runs. */
static bool read_file(hx_reload *r)
{
    const hx_daemon_source *source = r->needs.source;
    if (!source->file) {
        add_line(r, "there is no configuration file to read again: the daemon was started with flags only");
        return false;
    }
    hx_config *config = hx_config_load(source->file, &source->flags, &r->work.lines);
    if (!config) return false;
    r->work.kept = keep(config);
    size_t wrong = hx_restart_only_differ(r->newest->rules.config, config, &r->work.lines);
    HX_EACH(link, &r->generations)
    wrong += hx_changes_check_joined(HX_OWNER(link, generation, link)->rules.policies, &config->policies,
                                     &r->work.lines);
    if (wrong > 0) return false;
    if (config->jwt_source_count == 0) return true;
    char error[HX_JWKS_ERROR_BYTES];
    r->work.jwks = hx_jwks_open(config->jwt_sources, config->jwt_source_count, r->jwks, KEYS_WAIT, error);
    if (!r->work.jwks) add_line(r, error);
    return r->work.jwks != NULL;
}

static void lifted(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, call);
    r->busy = false;
    go_on_soon(r);
}

static void enforce_again(hx_timer *timer)
{
    go_on_soon(HX_OWNER(timer, hx_reload, enforcement.again));
}

static void enforced_again(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, enforcement.call);
    r->busy = false;
    r->enforcement.is_wanted = call->result != HX_STORE_OK;
    if (r->enforcement.is_wanted) hx_timer_start(r->needs.loop, &r->enforcement.again, ENFORCE_AGAIN, enforce_again);
    go_on_soon(r);
}

static void go_on(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, go_on);
    r->going_on = false;
    if (r->busy) return;
    HX_CHECK(r->newest != NULL);
    bool is_alone = r->generations.next == &r->newest->link;
    r->busy = true;
    if (r->first) {
        r->work.reload = r->first;
        r->first = r->first->next;
        if (!r->first) r->last = &r->first;
        if (read_file(r))
            survey(r, true, surveyed);
        else
            refuse(r);
    } else if (r->fresh_keys.waiting && !r->stopping) {
        r->fresh_keys.waiting = false;
        r->work.kept = r->newest->kept;
        r->work.kept->uses++;
        hand_out(r);
    } else if (r->enforcement.is_wanted && !r->stopping && !hx_timer_running(&r->enforcement.again)) {
        enforce(r, r->newest->rules.policies, enforced_again);
    } else if (r->retired && is_alone) {
        r->retired = NULL;
        r->call = (hx_store_call){.loop = r->needs.loop, .done = lifted};
        hx_store_retire(r->needs.store, &r->call, NULL);
    } else {
        r->busy = false;
        void (*stopped)(void *context) = r->stopped;
        r->stopped = NULL;
        if (stopped) stopped(r->context);
    }
}

static void fresh_keys(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, fresh_keys.task);
    atomic_store(&r->fresh_keys.posted, false);
    r->fresh_keys.waiting = true;
    go_on_soon(r);
}

static void want_keys(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, wanted.task);
    uint32_t sources = atomic_exchange(&r->wanted.sources, 0);
    for (unsigned i = 0; r->jwks && i < HX_JWT_SOURCES_MAX; i++)
        if (sources >> i & 1) hx_jwks_want(r->jwks, i);
}

void hx_reload_want_keys(hx_reload *r, unsigned i)
{
    uint32_t bit = UINT32_C(1) << i;
    if (atomic_load_explicit(&r->wanted.sources, memory_order_relaxed) & bit) return;
    if (atomic_fetch_or(&r->wanted.sources, bit) == 0) hx_loop_post(r->needs.loop, &r->wanted.task);
}

unsigned hx_reload_generations(const hx_reload *r)
{
    unsigned count = 0;
    HX_EACH(link, &r->generations) count++;
    return count;
}

void hx_reload_ask(hx_reload *r, hx_admin_reload *reload)
{
    reload->next = NULL;
    *r->last = reload;
    r->last = &reload->next;
    go_on_soon(r);
}

hx_reload *hx_reload_new(const hx_reload_needs *needs)
{
    hx_reload *r = calloc(1, sizeof *r);
    if (!r) hx_fatal(HX_EXIT_BUG, "out of memory (the reloader)");
    r->needs = *needs;
    r->last = &r->first;
    r->all_use.run = all_use;
    r->go_on.run = go_on;
    r->fresh_keys.task.run = fresh_keys;
    r->wanted.task.run = want_keys;
    hx_list_init(&r->generations);
    hx_buf_init(&r->work.lines, NULL, LINES_BYTES_MAX);
    return r;
}

static void asked_at_start(hx_live_check *done)
{
    hx_reload *r = HX_OWNER(done, hx_reload, work.survey);
    r->busy = false;
    hx_loop_stop(r->needs.loop);
}

static void enforced_at_start(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, enforcement.call);
    r->busy = false;
    r->enforcement.is_wanted = call->result != HX_STORE_OK;
    hx_loop_stop(r->needs.loop);
}

/* A store that can't be told now is told as soon as it can be reached, until when it refuses what it must. */
static void enforce_at_start(hx_reload *r)
{
    if (!hx_store_about(r->needs.store)->shared) return;
    r->busy = true;
    enforce(r, &r->work.kept->config->policies, enforced_at_start);
    while (r->busy) hx_loop_run(r->needs.loop);
    if (r->enforcement.is_wanted) go_on_soon(r);
}

static void print_lines(hx_slice lines)
{
    hx_slice line;
    while (hx_slice_next(&lines, '\n', &line))
        if (line.len > 0) (void)fprintf(stderr, "hapax: %.*s\n", HX_FMT(line));
}

int hx_reload_begin(hx_reload *r, hx_config *config, hx_rules **rules)
{
    char error[HX_JWKS_ERROR_BYTES];
    r->work.kept = keep(config);
    if (config->jwt_source_count > 0) {
        r->jwks = hx_jwks_open(config->jwt_sources, config->jwt_source_count, NULL, HX_JWKS_TIMEOUT, error);
        if (!r->jwks) {
            (void)fprintf(stderr, "hapax: %s\n", error);
            return HX_EXIT_USAGE;
        }
    }
    r->busy = true;
    survey(r, true, asked_at_start);
    while (r->busy) hx_loop_run(r->needs.loop);
    hx_slice lines = hx_buf_slice(&r->work.lines);
    if (r->work.survey.failed || (r->work.survey.count > 0 && !r->needs.source->accept_rescope)) {
        print_lines(lines);
        return r->work.survey.failed ? HX_EXIT_STORE : HX_EXIT_USAGE;
    }
    r->busy = true;
    hx_survey_readmit(&r->work.survey, asked_at_start);
    while (r->busy) hx_loop_run(r->needs.loop);
    if (r->work.survey.failed) {
        (void)fprintf(stderr, "hapax: the store can't be told which rules are in force again: start again when it can "
                              "be reached\n");
        return HX_EXIT_STORE;
    }
    enforce_at_start(r);
    r->busy = true;
    hx_survey_accept(&r->work.survey, asked_at_start);
    while (r->busy) hx_loop_run(r->needs.loop);
    say_accepted(r);
    r->work.lines.len = 0;
    hx_survey_free(&r->work.survey);
    r->newest = new_generation(r, r->work.kept, r->jwks);
    hx_list_append(&r->generations, &r->newest->link);
    drop_config(&r->work.kept);
    r->needs.in_force(r->needs.context, NULL, &r->newest->rules);
    *rules = &r->newest->rules;
    return HX_EXIT_OK;
}

void hx_reload_start(hx_reload *r)
{
    if (r->jwks) hx_jwks_start(r->jwks, keys_changed, r);
}

void hx_reload_stop(hx_reload *r, void (*stopped)(void *context), void *context)
{
    r->stopping = true;
    r->stopped = stopped;
    r->context = context;
    if (r->jwks) hx_jwks_stop(r->jwks);
    hx_timer_stop(r->needs.loop, &r->enforcement.again);
    go_on_soon(r);
}

void hx_reload_let_go(hx_reload *r)
{
    HX_EACH(link, &r->generations) HX_OWNER(link, generation, link)->rules.unused = NULL;
}

void hx_reload_free(hx_reload **owned)
{
    hx_reload *r = *owned;
    if (!r) return;
    *owned = NULL;
    while (!hx_list_empty(&r->generations)) free_generation(HX_OWNER(r->generations.next, generation, link));
    drop_config(&r->work.kept);
    stop_keys(&r->jwks);
    hx_buf_free(&r->work.lines);
    hx_survey_free(&r->work.survey);
    for (int i = 0; i < 2; i++) hx_arena_free(&r->retirements[i].arena);
    hx_arena_free(&r->enforcement.arena);
    free(r);
}
