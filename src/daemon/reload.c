/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/reload.h"

#include "base/check.h"
#include "base/log.h"
#include "daemon/generation.h"
#include "daemon/live_check.h"
#include "daemon/policy_diff.h"
#include "daemon/restart_only.h"
#include "jobs/jwks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_BYTES_MAX (1024u * 1024u)
#define KEYS_WAIT (5 * HX_SECOND) /* for a URL that is new in a reload */
#define ENFORCE_AGAIN HX_SECOND
#define LIFT_AGAIN HX_SECOND

typedef enum {
#define X(name, text, may_follow, undo) HX_RELOAD_##name,
#include "daemon/reload_steps.def"
#undef X
} reload_step;

typedef enum { START, RELOAD, NEW_KEYS } work_kind; /* NEW_KEYS: of tokens, for the same rules */

/* Rules under which no operation may begin, in memory that the store reads until it is given the next ones. */
typedef struct {
    hx_arena arena;
    hx_store_rules rules;
} retirement;

struct hx_reload {
    hx_reload_needs needs;
    hx_link generations; /* in use, the newest last */
    hx_generation *newest;
    hx_jwks *jwks;                  /* of the newest; NULL: no tokens are verified */
    hx_admin_reload *first, **last; /* reloads that wait for their turn */
    reload_step step;
    hx_task run;
    bool is_due; /* `run` is on its way */
    bool is_started;
    struct {
        work_kind kind;
        unsigned begun; /* steps, as bits: those that `undo` takes back */
        int exit_code;  /* HX_EXIT_OK: nothing has failed */
        reload_step failed_at;
        hx_admin_reload *request; /* RELOAD's */
        bool accept_rescope;
        hx_generation_config *config;
        hx_jwks *jwks;
        hx_live_check check;
        retirement *retirement; /* the one that replaces `retired`; NULL: none does */
    } work;
    hx_buf lines;                        /* what is wrong, or was accepted: one thing a line */
    retirement retirements[2], *retired; /* `retired`: what the store holds; NULL: nothing */
    hx_store_call call;                  /* of a retirement */
    bool is_unsure; /* the last such call failed: the store may read either of `retirements` until one succeeds */
    hx_timer lift_again;
    struct { /* the rules that a shared store holds all of its nodes to */
        hx_arena arena;
        hx_store_rules rules;
        hx_store_call call;
        hx_timer again;
        bool is_wanted; /* the store may hold others than the newest generation */
    } enforcement;
    struct {
        hx_timer wait;
        atomic_bool posted;
        hx_task task;
    } keys_tried;
    _Atomic unsigned awaited; /* workers that don't use the newest generation yet */
    hx_task all_use;
    struct {
        atomic_bool posted;
        hx_task task;
        bool waiting;
    } new_keys;
    struct {
        _Atomic uint32_t sources; /* bits */
        hx_task task;
    } wanted;
    bool keys_stopped;
    bool stopping;
    void (*stopped)(void *context);
    void *context;
};

/* The steps */

typedef struct {
    const char *name, *text;
    void (*run)(hx_reload *r);
    unsigned may_follow;
    /* NULL: there is nothing to take back. True: a store call is under way, which goes to `undo` again. */
    bool (*undo)(hx_reload *r);
} step_row;

#define X(name, text, may_follow, undo) static void step_##name(hx_reload *r);
#include "daemon/reload_steps.def"
#undef X
static bool undo_retire(hx_reload *r);
static bool undo_enforce(hx_reload *r);

#define STEP(name) 1u << HX_RELOAD_##name
#define nothing NULL

static const step_row rows[] = {
#define X(name, text, may_follow, undo) {#name, text, step_##name, may_follow, undo},
#include "daemon/reload_steps.def"
#undef X
};

#undef nothing
#undef STEP

/* The one place where the step changes. It runs later in this turn of the loop. */
static void go(hx_reload *r, reload_step next)
{
    HX_CHECK((rows[r->step].may_follow & 1u << next) != 0 && !r->is_due);
    r->step = next;
    r->work.begun |= 1u << next;
    r->is_due = true;
    hx_loop_defer(r->needs.loop, &r->run);
}

static void run_step(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, run);
    r->is_due = false;
    rows[r->step].run(r);
}

/* Looks for something to do, unless something is under way: that looks when it ends. */
static void wake(hx_reload *r)
{
    if (r->step != HX_RELOAD_idle || r->is_due) return;
    r->is_due = true;
    hx_loop_defer(r->needs.loop, &r->run);
}

static void fail(hx_reload *r, int exit_code)
{
    r->work.exit_code = exit_code;
    r->work.failed_at = r->step;
    go(r, HX_RELOAD_undo);
}

static void fail_because(hx_reload *r, const char *sentence)
{
    (void)!hx_buf_printf(&r->lines, "%s\n", sentence);
    fail(r, HX_EXIT_USAGE);
}

static void fail_at_store(hx_reload *r)
{
    (void)!hx_buf_printf(&r->lines, "the store can't be reached for %s: try again when it can\n", rows[r->step].text);
    fail(r, HX_EXIT_STORE);
}

/* read, compare */

static void step_read(hx_reload *r)
{
    const hx_daemon_source *source = r->needs.source;
    if (!source->file) {
        fail_because(r, "there is no configuration file to read again: the daemon was started with flags only");
        return;
    }
    hx_config *config = hx_config_load(source->file, &source->flags, &r->lines);
    if (!config) {
        fail(r, HX_EXIT_USAGE);
        return;
    }
    r->work.config = hx_generation_config_new(config);
    go(r, HX_RELOAD_compare);
}

/* Finds what no reload can change, and routes that become one, which needs a restart. */
static void step_compare(hx_reload *r)
{
    const hx_config *next = r->work.config->config;
    size_t wrong = hx_restart_only_differ(r->newest->rules.config, next, &r->lines);
    HX_EACH(link, &r->generations)
    wrong += hx_changes_check_joined(HX_OWNER(link, hx_generation, link)->rules.policies, &next->policies, &r->lines);
    if (wrong > 0)
        fail(r, HX_EXIT_USAGE);
    else
        go(r, HX_RELOAD_keys);
}

/* keys */

static void end_wait_for_keys(hx_timer *timer)
{
    hx_reload *r = HX_OWNER(timer, hx_reload, keys_tried.wait);
    hx_timer_stop(r->needs.loop, timer);
    go(r, HX_RELOAD_check);
}

/* An earlier reload's keys, which were not waited for to the end, may call too. */
static void keys_tried(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, keys_tried.task);
    atomic_store(&r->keys_tried.posted, false);
    if (hx_timer_running(&r->keys_tried.wait) && hx_jwks_are_tried(r->work.jwks))
        end_wait_for_keys(&r->keys_tried.wait);
}

/* On the fetching thread. */
static void post_keys_tried(void *context)
{
    hx_reload *r = context;
    if (!atomic_exchange(&r->keys_tried.posted, true)) hx_loop_post(r->needs.loop, &r->keys_tried.task);
}

static void step_keys(hx_reload *r)
{
    const hx_config *config = r->work.config->config;
    hx_error_text error;
    if (config->jwt_source_count == 0) {
        go(r, HX_RELOAD_check);
        return;
    }
    r->work.jwks = hx_jwks_open(config->jwt_sources, config->jwt_source_count, r->jwks, 0, error);
    if (!r->work.jwks) {
        fail_because(r, error);
        return;
    }
    hx_jwks_on_tried(r->work.jwks, post_keys_tried, r);
    if (hx_jwks_are_tried(r->work.jwks) || r->keys_stopped)
        go(r, HX_RELOAD_check);
    else
        hx_timer_start(r->needs.loop, &r->keys_tried.wait, r->work.kind == START ? HX_JWKS_TIMEOUT : KEYS_WAIT,
                       end_wait_for_keys);
}

/* check, retire, recheck */

static void start_check(hx_reload *r, bool sweeps, void (*done)(hx_live_check *check))
{
    r->lines.len = 0;
    hx_live_check_free(&r->work.check);
    r->work.check = (hx_live_check){.loop = r->needs.loop,
                                    .store = r->needs.store,
                                    .policies = &r->work.config->config->policies,
                                    .problems = &r->lines,
                                    .swept = !sweeps,
                                    .done = done};
    hx_live_check_start(&r->work.check);
}

/* True after having gone to `undo`, with the rules of each route that are the reason. */
static bool is_refused(hx_reload *r)
{
    const hx_live_check *check = &r->work.check;
    if (!check->failed && (check->count == 0 || r->work.accept_rescope)) return false;
    if (!check->failed && r->newest) hx_diff_explain(r->newest->rules.config, r->work.config->config, &r->lines);
    fail(r, check->failed ? HX_EXIT_STORE : HX_EXIT_USAGE);
    return true;
}

/* Collects the rules under which the next generation would not know an operation. False: there are none, and none have
 * to be replaced. */
static bool plan_retirement(hx_reload *r)
{
    retirement *next = r->retired == &r->retirements[0] ? &r->retirements[1] : &r->retirements[0];
    hx_arena_free(&next->arena);
    next->rules = (hx_store_rules){0};
    HX_EACH(link, &r->generations)
    hx_changes_retired(HX_OWNER(link, hx_generation, link)->rules.policies, &r->work.config->config->policies,
                       &next->arena, &next->rules);
    if (next->rules.count == 0 && !r->retired) return false;
    r->work.retirement = next;
    return true;
}

static void check_done(hx_live_check *check)
{
    hx_reload *r = HX_OWNER(check, hx_reload, work.check);
    if (is_refused(r)) return;
    if (r->is_unsure)
        fail_at_store(r); /* there is no memory for another retirement that the store doesn't read */
    else
        go(r, plan_retirement(r) ? HX_RELOAD_retire : HX_RELOAD_readmit);
}

static void step_check(hx_reload *r)
{
    start_check(r, true, check_done);
}

static void retire_done(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, call);
    if (call->result == HX_STORE_OK)
        go(r, HX_RELOAD_recheck);
    else
        fail_at_store(r);
}

/* From here on no request under an older generation begins an operation that the next one would not know. */
static void step_retire(hx_reload *r)
{
    r->call = (hx_store_call){.loop = r->needs.loop, .done = retire_done};
    hx_store_retire(r->needs.store, &r->call, &r->work.retirement->rules);
}

/* Gives the store what `retired` is by now. */
static void retire_again(hx_reload *r, void (*done)(hx_store_call *call))
{
    r->call = (hx_store_call){.loop = r->needs.loop, .done = done};
    hx_store_retire(r->needs.store, &r->call, r->retired ? &r->retired->rules : NULL);
}

static void undo_retire_done(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, call);
    r->is_unsure = call->result != HX_STORE_OK;
    go(r, HX_RELOAD_undo);
}

static bool undo_retire(hx_reload *r)
{
    retire_again(r, undo_retire_done);
    return true;
}

static void recheck_done(hx_live_check *check)
{
    hx_reload *r = HX_OWNER(check, hx_reload, work.check);
    if (!is_refused(r)) go(r, HX_RELOAD_readmit);
}

static void step_recheck(hx_reload *r)
{
    start_check(r, false, recheck_done);
}

/* readmit: operations under rules that were given up count again once the rules are in force again. If a later step
 * fails this is not taken back: the next start under the running rules asks for --accept-rescope once more. */

static void readmit_done(hx_live_check *check)
{
    hx_reload *r = HX_OWNER(check, hx_reload, work.check);
    if (check->failed)
        fail_at_store(r);
    else
        go(r, hx_store_about(r->needs.store)->shared ? HX_RELOAD_enforce : HX_RELOAD_hand_out);
}

static void step_readmit(hx_reload *r)
{
    hx_live_check_readmit(&r->work.check, readmit_done);
}

/* enforce: on a store that other nodes use too, no node may begin an operation under rules that the next ones don't
 * know. Their rules are older from here on, until they reload. */

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

/* Adds the routes that the newest rules don't have, so that a node which still has them begins nothing on them. */
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
        const hx_generation *g = HX_OWNER(link, hx_generation, link);
        if (g->rules.policies != policies) add_gone(r, g->rules.policies);
    }
    r->enforcement.call = (hx_store_call){.loop = r->needs.loop, .done = done};
    hx_timer_stop(r->needs.loop, &r->enforcement.again);
    hx_store_enforce(r->needs.store, &r->enforcement.call, &r->enforcement.rules);
}

/* A start goes on if the store can't be reached: `enforce_again` tells it later, and until then claims that need it are
 * refused anyway. */
static void enforce_done(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, enforcement.call);
    r->enforcement.is_wanted = call->result != HX_STORE_OK;
    if (call->result == HX_STORE_OK || r->work.kind == START)
        go(r, HX_RELOAD_hand_out);
    else
        fail_at_store(r);
}

static void step_enforce(hx_reload *r)
{
    enforce(r, &r->work.config->config->policies, enforce_done);
}

/* The store may have got the new rules: `enforce_again` gives it the running ones, however long that takes. */
static bool undo_enforce(hx_reload *r)
{
    r->enforcement.is_wanted = true;
    return false;
}

static void enforce_again_due(hx_timer *timer)
{
    wake(HX_OWNER(timer, hx_reload, enforcement.again));
}

static void enforce_again_done(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, enforcement.call);
    r->enforcement.is_wanted = call->result != HX_STORE_OK;
    if (r->enforcement.is_wanted && !r->stopping)
        hx_timer_start(r->needs.loop, &r->enforcement.again, ENFORCE_AGAIN, enforce_again_due);
    go(r, HX_RELOAD_idle);
}

static void step_enforce_again(hx_reload *r)
{
    enforce(r, r->newest->rules.policies, enforce_again_done);
}

/* hand_out */

static void keys_changed(void *context, size_t i)
{
    hx_reload *r = context;
    (void)i;
    if (!atomic_exchange(&r->new_keys.posted, true)) hx_loop_post(r->needs.loop, &r->new_keys.task);
}

static void generation_gone(hx_task *task)
{
    hx_generation *g = HX_OWNER(task, hx_generation, gone);
    hx_reload *r = g->owner;
    hx_generation_free(&g);
    wake(r);
}

/* On the thread of the worker that was the last to use it. */
static void generation_unused(hx_rules *rules)
{
    hx_generation *g = HX_OWNER(rules, hx_generation, rules);
    hx_reload *r = g->owner;
    g->gone.run = generation_gone;
    hx_loop_post(r->needs.loop, &g->gone);
}

/* False: the daemon is stopping, and nothing was handed out. */
static bool hand_out(hx_reload *r, hx_jwks *jwks)
{
    hx_generation *before = r->newest;
    hx_generation *next = hx_generation_new(r->work.config, jwks, before ? before->rules.generation + 1 : 1,
                                            r->needs.worker_count, &r->generations);
    next->owner = r;
    next->rules.unused = generation_unused;
    atomic_store(&r->awaited, r->needs.worker_count);
    if (r->work.kind != START && !r->needs.hand_out(r->needs.context, &next->rules)) {
        hx_generation_free(&next);
        return false;
    }
    /* `before` is freed by a task on this loop, so not before the next turn. */
    r->newest = next;
    r->needs.in_force(r->needs.context, before ? &before->rules : NULL, &next->rules);
    return true;
}

/* The rules are in force once this step has not failed. */
static void step_hand_out(hx_reload *r)
{
    const hx_config *config = r->work.config->config;
    const hx_store_options limits = {.bytes_max = config->store_bytes_max,
                                     .audit_retention = config->audit_retention > 0 ? config->audit_retention
                                                                                    : HX_AUDIT_FOREVER,
                                     .waiters_max = config->limits.waiters,
                                     .waiters_per_op_max = config->limits.waiters_per_operation};
    hx_error_text error;
    if (r->work.kind != START && !hx_store_limit(r->needs.store, &limits, error)) {
        fail_because(r, error);
        return;
    }
    if (!hand_out(r, r->work.kind == NEW_KEYS ? r->jwks : r->work.jwks)) {
        fail_because(r, "the daemon is stopping");
        return;
    }
    if (r->work.retirement) r->retired = r->work.retirement;
    if (r->work.kind != NEW_KEYS) {
        hx_jwks *old = r->jwks;
        r->jwks = r->work.jwks;
        r->work.jwks = NULL;
        if (r->jwks && r->is_started) hx_jwks_start(r->jwks, keys_changed, r);
        hx_jwks_free(&old);
    }
    if (r->work.kind == START) go(r, HX_RELOAD_accept); /* there are no workers yet, which would call all_use */
}

static void all_use(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, all_use);
    bool is_reload = r->work.kind == RELOAD;
    hx_log_begin(is_reload ? HX_EVENT_configuration_reloaded : HX_EVENT_jwks_in_use);
    hx_log_int("generation", (int64_t)r->newest->rules.generation);
    if (is_reload) hx_log_text("file", r->needs.source->file);
    hx_log_end();
    if (is_reload) hx_rules_say_weaker(r->newest->rules.config, hx_store_about(r->needs.store)->shared);
    go(r, HX_RELOAD_accept);
}

void hx_reload_used(hx_reload *r)
{
    if (atomic_fetch_sub(&r->awaited, 1) == 1) hx_loop_post(r->needs.loop, &r->all_use);
}

/* accept: only what holds is remembered, so that rules which were refused after all leave nothing behind. */

static void log_lines(hx_log_event event, const char *step, hx_slice lines)
{
    hx_slice line;
    while (hx_slice_next(&lines, '\n', &line)) {
        if (line.len == 0) continue;
        hx_log_begin(event);
        hx_log_text("step", step);
        hx_log_str("problem", line);
        hx_log_end();
    }
}

static void accept_done(hx_live_check *check)
{
    hx_reload *r = HX_OWNER(check, hx_reload, work.check);
    log_lines(HX_EVENT_operations_given_up, rows[r->step].name, hx_buf_slice(&r->lines));
    if (check->failed) hx_log(HX_EVENT_acceptance_not_recorded);
    go(r, HX_RELOAD_finish);
}

static void step_accept(hx_reload *r)
{
    hx_live_check_accept(&r->work.check, accept_done);
}

/* undo, finish */

static void step_undo(hx_reload *r)
{
    for (unsigned step = HX_RELOAD_undo; step-- > 0;) {
        if ((r->work.begun & 1u << step) == 0) continue;
        r->work.begun &= ~(1u << step);
        if (rows[step].undo && rows[step].undo(r)) return;
    }
    go(r, HX_RELOAD_finish);
}

static void print_lines(hx_slice lines)
{
    hx_slice line;
    while (hx_slice_next(&lines, '\n', &line))
        if (line.len > 0) (void)fprintf(stderr, "hapax: %.*s\n", HX_FMT(line));
}

static void step_finish(hx_reload *r)
{
    hx_admin_reload *request = r->work.request;
    bool is_in_force = r->work.exit_code == HX_EXIT_OK;
    hx_slice lines = hx_buf_slice(&r->lines);
    hx_live_check_free(&r->work.check);
    hx_generation_config_drop(&r->work.config);
    hx_jwks_free(&r->work.jwks);
    if (r->work.kind == START) {
        if (!is_in_force) print_lines(lines);
        hx_loop_stop(r->needs.loop);
    }
    if (request) {
        if (!is_in_force) log_lines(HX_EVENT_configuration_rejected, rows[r->work.failed_at].name, lines);
        request->is_in_force = is_in_force;
        request->generation = r->newest->rules.generation;
        request->lines = lines;
        request->done(request);
    }
    go(r, HX_RELOAD_idle);
}

/* idle, lift */

static bool is_newest_alone(const hx_reload *r)
{
    return r->generations.next == &r->newest->link;
}

static void lift_again_due(hx_timer *timer)
{
    wake(HX_OWNER(timer, hx_reload, lift_again));
}

static void lift_done(hx_store_call *call)
{
    hx_reload *r = HX_OWNER(call, hx_reload, call);
    r->is_unsure = call->result != HX_STORE_OK;
    if (r->is_unsure && !r->stopping) hx_timer_start(r->needs.loop, &r->lift_again, LIFT_AGAIN, lift_again_due);
    go(r, HX_RELOAD_idle);
}

static void step_lift(hx_reload *r)
{
    if (is_newest_alone(r)) r->retired = NULL;
    retire_again(r, lift_done);
}

static void begin_work(hx_reload *r, work_kind kind, hx_generation_config *config, reload_step first)
{
    r->lines.len = 0;
    memset(&r->work, 0, sizeof r->work);
    r->work.kind = kind;
    r->work.config = config;
    go(r, first);
}

/* Begins what waits, by its urgency. */
static void step_idle(hx_reload *r)
{
    if (!r->is_started) return;
    bool lifts = r->is_unsure ? !r->stopping && !hx_timer_running(&r->lift_again) : r->retired && is_newest_alone(r);
    if (r->first) {
        hx_admin_reload *request = r->first;
        r->first = request->next;
        if (!r->first) r->last = &r->first;
        begin_work(r, RELOAD, NULL, HX_RELOAD_read);
        r->work.request = request;
        r->work.accept_rescope = request->accept_rescope;
    } else if (r->new_keys.waiting && !r->stopping) {
        r->new_keys.waiting = false;
        begin_work(r, NEW_KEYS, hx_generation_config_use(r->newest->config), HX_RELOAD_hand_out);
    } else if (r->enforcement.is_wanted && !r->stopping && !hx_timer_running(&r->enforcement.again)) {
        go(r, HX_RELOAD_enforce_again);
    } else if (lifts) {
        go(r, HX_RELOAD_lift);
    } else if (r->stopped) {
        void (*stopped)(void *context) = r->stopped;
        r->stopped = NULL;
        stopped(r->context);
    }
}

/* Calls from other parts */

static void note_new_keys(hx_task *task)
{
    hx_reload *r = HX_OWNER(task, hx_reload, new_keys.task);
    atomic_store(&r->new_keys.posted, false);
    r->new_keys.waiting = true;
    wake(r);
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

hx_generation_config *hx_reload_hold_config(hx_reload *r)
{
    return hx_generation_config_use(r->newest->config);
}

void hx_reload_ask(hx_reload *r, hx_admin_reload *request)
{
    request->next = NULL;
    *r->last = request;
    r->last = &request->next;
    wake(r);
}

hx_reload *hx_reload_new(const hx_reload_needs *needs)
{
    hx_reload *r = calloc(1, sizeof *r);
    HX_CHECK(r != NULL);
    r->needs = *needs;
    r->last = &r->first;
    r->run.run = run_step;
    r->all_use.run = all_use;
    r->keys_tried.task.run = keys_tried;
    r->new_keys.task.run = note_new_keys;
    r->wanted.task.run = want_keys;
    hx_list_init(&r->generations);
    hx_buf_init(&r->lines, NULL, LINES_BYTES_MAX);
    return r;
}

int hx_reload_first(hx_reload *r, hx_config *config, hx_rules **rules)
{
    begin_work(r, START, hx_generation_config_new(config), HX_RELOAD_keys);
    r->work.accept_rescope = r->needs.source->accept_rescope;
    while (r->step != HX_RELOAD_idle) hx_loop_run(r->needs.loop);
    *rules = r->newest ? &r->newest->rules : NULL;
    return r->work.exit_code;
}

void hx_reload_start(hx_reload *r)
{
    r->is_started = true;
    if (r->jwks) hx_jwks_start(r->jwks, keys_changed, r);
    wake(r);
}

void hx_reload_stop_keys(hx_reload *r)
{
    r->keys_stopped = true;
    if (r->jwks) hx_jwks_stop(r->jwks);
    if (hx_timer_running(&r->keys_tried.wait)) end_wait_for_keys(&r->keys_tried.wait);
}

void hx_reload_stop(hx_reload *r, void (*stopped)(void *context), void *context)
{
    r->stopping = true;
    r->stopped = stopped;
    r->context = context;
    hx_timer_stop(r->needs.loop, &r->enforcement.again);
    hx_timer_stop(r->needs.loop, &r->lift_again);
    wake(r);
}

void hx_reload_let_go(hx_reload *r)
{
    HX_EACH(link, &r->generations) HX_OWNER(link, hx_generation, link)->rules.unused = NULL;
}

void hx_reload_free(hx_reload **owned)
{
    hx_reload *r = *owned;
    if (!r) return;
    *owned = NULL;
    while (!hx_list_empty(&r->generations)) {
        hx_generation *g = HX_OWNER(r->generations.next, hx_generation, link);
        hx_generation_free(&g);
    }
    hx_jwks_free(&r->jwks);
    hx_buf_free(&r->lines);
    for (int i = 0; i < 2; i++) hx_arena_free(&r->retirements[i].arena);
    hx_arena_free(&r->enforcement.arena);
    free(r);
}
