/* SPDX-License-Identifier: Apache-2.0 */
/* The application: it executes what it gets, once it has the whole request, and answers in every way that contract §5
 * has a row for. It is honest: what it declares for a route is true. A route that is `atomic` answers errors of its own
 * only when nothing happened; one that is `idempotent` remembers the key for as long as the operation lives; one that
 * can be probed tells what it has done, and is done with what it was sent within SIM_SETTLE. Whoever hung up doesn't
 * stop it. One that is `transactional` commits its effect and its mark together, by the epoch that it was given; for
 * the rest it is as careless as can be: it answers before that, after it or without it, and says what it likes. */
#include "world.h"

#include "base/check.h"
#include "core/operation/lifecycle.h"

#include <stdio.h>

typedef enum { NEVER, MAYBE, ALWAYS } effect_rule;

typedef struct {
    unsigned status;
    effect_rule effect;
    bool retry_after;
} answer_row;

/* What the statuses mean when an honest application sends them. */
static const answer_row rows[] = {
    {201, ALWAYS, false}, {200, ALWAYS, false}, {204, ALWAYS, false}, {302, ALWAYS, false}, {400, NEVER, false},
    {404, NEVER, false},  {409, MAYBE, false},  {412, NEVER, false},  {422, MAYBE, false},  {423, NEVER, false},
    {401, NEVER, false},  {403, NEVER, false},  {307, NEVER, false},  {408, NEVER, false},  {421, NEVER, false},
    {425, NEVER, false},  {429, NEVER, false},  {429, NEVER, true},   {500, MAYBE, false},  {500, NEVER, false},
    {501, NEVER, false},  {502, MAYBE, false},  {503, MAYBE, false},  {503, NEVER, true},   {504, MAYBE, false},
};

typedef enum { ANSWERS, RESETS, CUTS, BREAKS, SILENT } manner;

struct sim_job {
    unsigned number;
    sim_request request;
    sim_wire *wire; /* NULL: nobody listens */
    sim_job *next;  /* of the same operation */
    bool decided;   /* it has happened, or never will */
    bool executes;
    bool duplicate; /* of what was done before: the same answer */
    enum { NO_TRANSACTION, WITH_ITS_WORK, AT_ITS_OWN_TIME, ENDED } transaction; /* of effect and mark */
    unsigned status;
    bool retry_after;
    const char *word; /* Hapax-Outcome; NULL: none */
    manner manner;
    sim_reply reply;
};

static unsigned by_app(const sim_job *job)
{
    return job->request.op ? SIM_BY_APP + sim_op_index(job->request.op) : SIM_BY_PASSING;
}

static bool is_route(const sim_job *job, unsigned route)
{
    return job->request.op->route == route;
}

bool sim_app_is_working(const sim_op *op, const sim_life *life)
{
    for (const sim_job *job = op->jobs; job; job = job->next)
        if ((!job->decided || job->transaction == AT_ITS_OWN_TIME) && (!life || job->request.life == life)) return true;
    return false;
}

bool sim_app_idle(void)
{
    for (size_t i = 0; i < SIM_OPS_MAX; i++)
        if (world.ops[i].used && sim_app_is_working(&world.ops[i], NULL)) return false;
    return true;
}

static hx_slice mark_of(const sim_job *job)
{
    const sim_request *request = &job->request;
    return hx_arena_printf(&world.arena,
                           "{\"job\":%u,\"route\":%u,\"principal\":%u,\"proof\":%u,\"key\":%u,\"payload\":%u}",
                           job->number, request->op->route, request->op->principal, request->proof, request->op->key,
                           request->payload);
}

bool sim_app_gave_cookie(const sim_op *op, unsigned number)
{
    for (const sim_job *job = op->jobs; job; job = job->next)
        if (job->number == number && sim_line(job->reply.lines, "Set-Cookie").len == 0) return false;
    return true; /* all that it answered under that number */
}

bool sim_app_said(const sim_op *op, unsigned number, hx_slice body)
{
    for (const sim_job *job = op->jobs; job; job = job->next)
        if (job->number == number && (hx_slice_eq(job->reply.body, body) || hx_slice_eq(mark_of(job), body)))
            return true;
    return false;
}

static void compose(sim_job *job)
{
    bool is_stream = job->status / 10 == 20 && job->status != 204 && sim_chance(by_app(job), world.rates.streams);
    char more[128] = "";
    if (job->retry_after) {
        int seconds = sim_chance(by_app(job), 100) ? 120 : (int)sim_choose(by_app(job), 4);
        (void)snprintf(more, sizeof more, "Retry-After: %d\r\n", seconds);
    }
    hx_slice lines = hx_arena_printf(&world.arena, "Content-Type: %s\r\nX-Job: %u\r\n%s%s%s%s%s",
                                     is_stream ? "text/event-stream" : "application/json", job->number, more,
                                     job->word ? "Hapax-Outcome: " : "", job->word ? job->word : "",
                                     job->word ? "\r\n" : "",
                                     sim_chance(by_app(job), 200) ? "Set-Cookie: a=b\r\n" : "");
    hx_slice body = job->status == 204 ? HX_EMPTY : mark_of(job);
    if (job->status == 409 && job->executes && is_route(job, SIM_ROUTE_PROBE))
        body = hx_arena_printf(&world.arena, "{\"code\":\"duplicate\",%.*s", HX_FMT(hx_slice_from(body, 1)));
    job->reply = (sim_reply){.status = job->status,
                             .lines = lines,
                             .body = body,
                             .is_stream = is_stream,
                             .retry_after = job->retry_after,
                             .word = job->word};
}

/* An application that overrules the table is honest too: it frees only what it did not do. */
static void choose_word(sim_job *job)
{
    static const char *const words[] = {"store", "unknown", "release", "nonsense"};
    if (!sim_chance(by_app(job), world.rates.words)) return;
    job->word = words[sim_choose(by_app(job), 4)];
    if (job->word != words[2] || job->status < 300) return;
    job->executes = false;
    if (sim_app_is_working(job->request.op, NULL) || job->request.life->effect) job->word = NULL;
}

static void choose_answer(sim_job *job)
{
    const answer_row *row = &rows[0];
    if (sim_chance(by_app(job), world.rates.error_answers))
        row = &rows[sim_choose(by_app(job), sizeof rows / sizeof rows[0])];
    job->status = row->status;
    job->retry_after = row->retry_after;
    job->executes = row->effect == ALWAYS || (row->effect == MAYBE && sim_chance(by_app(job), 500));
    bool own_error = row->status == 500 || row->status == 503;
    if (is_route(job, SIM_ROUTE_ATOMIC) && own_error) job->executes = false;
    choose_word(job);
}

static void choose_manner(sim_job *job)
{
    if (sim_chance(by_app(job), world.rates.reset))
        job->manner = RESETS;
    else if (sim_chance(by_app(job), world.rates.cut))
        job->manner = sim_chance(by_app(job), 300) ? BREAKS : CUTS;
    else if (sim_chance(by_app(job), world.rates.silent))
        job->manner = SILENT;
    /* Who never says anything may have done anything. */
    bool says_nothing = job->manner == RESETS || job->manner == BREAKS;
    if (says_nothing && !job->duplicate) job->executes = sim_chance(by_app(job), 700);
}

static void answer(void *subject)
{
    sim_job *job = subject;
    sim_wire *wire = job->wire;
    if (!wire) return;
    job->wire = NULL;
    switch (job->manner) {
    case ANSWERS:
    case SILENT: sim_wire_answer(wire, &job->reply); break;
    case CUTS: sim_wire_answer_cut(wire, &job->reply, HX_UPSTREAM_CUT_SHORT); break;
    case RESETS: sim_wire_fail(wire, HX_UPSTREAM_RESET); break;
    case BREAKS: sim_wire_fail(wire, sim_chance(by_app(job), 500) ? HX_UPSTREAM_BROKEN : HX_UPSTREAM_TOO_LARGE); break;
    }
}

static void execute(sim_job *job)
{
    sim_op *op = job->request.op;
    sim_life *life = job->request.life;
    SIM_TRACE("app: %s happens (job %u)", sim_op_name(op), job->number);
    if (!life->effect || !sim_may_repeat(op)) sim_oracle_effect(op, life);
    if (!life->effect) life->effect = job;
}

typedef struct {
    hx_store_call call;
    hx_record record;
    hx_arena arena;
} transaction;

static void transaction_done(hx_store_call *call)
{
    sim_model_effect(call, SIM_FATE_OK);
}

/* Effect and mark together, by the epoch that came with the request; or neither. */
static bool commit(sim_job *job)
{
    sim_op *op = job->request.op;
    transaction t = {.arena = {0}};
    bool is_success = job->status != 422;
    job->transaction = ENDED;
    hx_peek peek = world.state->ops->peek(world.state, &op->id, &t.arena, 0, &t.record);
    bool commits = peek == HX_PEEK_FOUND && t.record.state != HX_EXPIRED;
    if (commits) {
        t.record.epoch = job->request.epoch;
        t.record.from_state = t.record.state;
        t.record.state = is_success ? HX_COMPLETED : HX_FAILED;
        t.record.changed_at = sim_now();
        hx_lifecycle_set_end(&t.record, sim_policy(op));
        t.record.reason = HX_EMPTY;
        t.record.answer = (hx_answer){.status = is_success ? 201 : 422,
                                      .retained = true,
                                      .headers = hx_arena_printf(&t.arena,
                                                                 "Content-Type: application/json\r\nX-Job: %u\r\n",
                                                                 job->number),
                                      .body = mark_of(job)};
        t.call = (hx_store_call){.loop = world.store_loop, .arena = &t.arena, .done = transaction_done};
        hx_store_settle(world.state, &t.call, &t.record);
        sim_run_tasks(world.store_loop);
        commits = t.call.result == HX_STORE_OK;
    }
    SIM_TRACE("app: job %u's transaction under epoch %llu of %s %s", job->number,
              (unsigned long long)job->request.epoch, sim_op_name(op), commits ? "commits" : "is rolled back");
    if (commits && is_success) execute(job);
    hx_arena_free(&t.arena);
    return commits;
}

static void commit_late(void *subject)
{
    sim_job *job = subject;
    if (job->transaction == AT_ITS_OWN_TIME) (void)commit(job);
}

/* Before it answers. Where that fails it says so, or, being careless, doesn't look. */
static void finish_transaction(sim_job *job)
{
    bool commits = commit(job);
    if (commits || job->status >= 400 || sim_chance(by_app(job), 300)) return;
    job->status = 500;
    job->word = NULL;
    compose(job);
}

/* When effect and mark are committed, if ever: with its work, as it should be, or whenever, whatever is answered. */
static void plan_transaction(sim_job *job)
{
    if (!sim_is_marked(job->request.op)) return;
    if (!sim_chance(by_app(job), 300)) {
        job->transaction = job->executes ? WITH_ITS_WORK : NO_TRANSACTION;
    } else if (sim_chance(by_app(job), 600)) {
        job->transaction = AT_ITS_OWN_TIME;
        sim_after(sim_span(by_app(job), 0, 100 * HX_SECOND), commit_late, job);
    }
}

static void work(void *subject)
{
    sim_job *job = subject;
    if (job->decided) return;
    job->decided = true;
    if (job->transaction == WITH_ITS_WORK)
        finish_transaction(job);
    else if (job->executes && !job->duplicate && !sim_is_marked(job->request.op))
        execute(job);
    sim_after(job->manner == SILENT ? sim_span(by_app(job), HX_SECOND, 150 * HX_SECOND) : sim_span(by_app(job), 0, 200),
              answer, job);
}

static void look_at_earlier(sim_job *job)
{
    const sim_op *op = job->request.op;
    const sim_job *before = job->request.life->effect;
    if (op->route != SIM_ROUTE_IDEMPOTENT) return;
    if (before) {
        job->duplicate = true;
        job->executes = false;
        job->status = 201;
        job->retry_after = false;
        job->word = NULL;
        job->number = before->number;
        job->request.proof = before->request.proof;
        job->request.payload = before->request.payload;
    } else if (sim_app_is_working(op, NULL)) {
        job->duplicate = true; /* of what it is still at work on */
        job->executes = false;
        job->status = 409;
        job->retry_after = false;
        job->word = NULL;
    } else {
        return;
    }
    /* What stands before the application may not even let it see that. */
    static const unsigned refusals[] = {429, 408, 401, 503};
    if (!sim_chance(by_app(job), world.rates.error_answers / 2)) return;
    job->status = refusals[sim_choose(by_app(job), 4)];
    job->retry_after = job->status == 503;
}

static void answer_probe(void *subject)
{
    sim_job *job = subject;
    const sim_life *life = job->request.op ? job->request.op->life : NULL;
    const sim_job *done = life ? life->effect : NULL;
    if (!job->wire) return;
    hx_slice body = HX_LIT("{\"data\":[]}");
    if (done) body = hx_arena_printf(&world.arena, "{\"data\":[%.*s]}", HX_FMT(mark_of(done)));
    job->status = 200;
    if (sim_chance(by_app(job), world.rates.error_answers)) job->status = 500;
    if (sim_chance(by_app(job), world.rates.error_answers)) body = HX_LIT("{\"status\":\"maintenance\"}");
    job->reply = (sim_reply){.status = job->status,
                             .lines = HX_LIT("Content-Type: application/json\r\n"),
                             .body = body};
    answer(job);
}

static hx_ms time_to_work(const sim_job *job)
{
    if (!sim_chance(by_app(job), world.rates.slow_app)) return sim_span(by_app(job), 0, 300);
    return sim_span(by_app(job), HX_SECOND,
                    is_route(job, SIM_ROUTE_PROBE) ? SIM_SETTLE - 2 * HX_SECOND : 100 * HX_SECOND);
}

static sim_job *take(const sim_request *request, sim_wire *wire)
{
    sim_job *job = hx_arena_zalloc(&world.arena, sizeof *job);
    *job = (sim_job){.number = ++world.app.jobs, .request = *request, .wire = wire};
    choose_answer(job);
    look_at_earlier(job);
    choose_manner(job);
    job->next = request->op->jobs;
    request->op->jobs = job;
    compose(job);
    plan_transaction(job);
    static const sim_fault faults[] = {
        [RESETS] = SIM_FAULT_RESET, [CUTS] = SIM_FAULT_CUT, [BREAKS] = SIM_FAULT_CUT, [SILENT] = SIM_FAULT_SILENT};
    if (job->manner != ANSWERS && wire) sim_cover_wire(wire, faults[job->manner]);
    sim_after(time_to_work(job), work, job);
    return job;
}

static sim_job *take_question(const sim_request *request, sim_wire *wire)
{
    sim_job *job = hx_arena_zalloc(&world.arena, sizeof *job);
    *job = (sim_job){.number = ++world.app.jobs, .request = *request, .wire = wire, .decided = true};
    choose_manner(job);
    sim_after(sim_span(by_app(job), 0, 300), answer_probe, job);
    return job;
}

sim_job *sim_app_receive(const sim_request *request, sim_wire *wire)
{
    if (!request->op || request->is_probe) return take_question(request, wire);
    sim_job *job = take(request, wire);
    /* Something on the way sends it twice; who declares that this is harmless sees that they are the same. */
    bool is_doubled = sim_may_repeat(request->op) && job->executes && sim_chance(by_app(job), world.rates.doubled);
    if (is_doubled) (void)take(request, NULL);
    return job;
}

void sim_app_hang_up(sim_job *job)
{
    job->wire = NULL;
    if (!job->decided && sim_chance(by_app(job), 200)) job->decided = true; /* it noticed, and has not begun */
}

static void come_back(void *subject)
{
    (void)subject;
    SIM_TRACE("app: it is back");
    world.app.up = true;
}

void sim_app_crash(void)
{
    SIM_TRACE("app: it crashes");
    world.app.up = false;
    for (size_t i = 0; i < SIM_OPS_MAX; i++)
        for (sim_job *job = world.ops[i].jobs; job; job = job->next) {
            job->decided = true;
            job->wire = NULL;
            job->transaction = ENDED;
        }
    sim_upstream_reset_all();
    sim_after(sim_span(SIM_BY_TROUBLES, 0, 20 * HX_SECOND), come_back, NULL);
}
