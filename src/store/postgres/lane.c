/* SPDX-License-Identifier: Apache-2.0 */
/* One connection and what waits for it.
 *
 * A round takes what waits, in order, one call for each operation (reads aside), and sends it as at most one statement
 * of each kind. Renewals, outcomes and claims are one transaction; everything else has one of its own. Nothing is told
 * to a caller before the sync point behind its statement has come back: only then has it been committed.
 *
 * What can go wrong with a round, and what becomes of its calls:
 *
 *     the connection breaks, or nothing moves for too long    sent once more on the next connection (tickets tell what
 *                                                              was done already), until they are too old
 *     the server gave up waiting for its standby               the same: what is not durable has not happened
 *     a transaction fails                                      each of its calls is sent alone, once more
 *     a call fails alone                                       it ends: FULL on a full disk, else UNAVAILABLE
 *     a new connection leads to a schema of another version    it is given up, like one that can't be made
 *     the server says nothing of a call (its row is locked)    asked again a little later
 *
 * A claim that ends so may still be found to have been committed, or be committed yet: a server that hung
 * goes on with what it had read. Nothing was sent under it, so it is remembered, and given up whenever it is found. */
#include "store/postgres/postgres.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "store/postgres/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MAX (5 * HX_SECOND)
#define ROUND_MAX (5 * HX_SECOND) /* without a byte of it */
#define ROUND_LONG HX_MINUTE      /* with whatever bytes */
#define CALL_MAX (10 * HX_SECOND) /* how long a call may be in doubt before its caller is told so */
#define SLOW ((hx_ms)300)         /* when a round has taken so long, what is new takes another lane */
#define DOWN_MAX (2 * HX_SECOND)  /* how long a call waits for a connection */
#define RECONNECT_FIRST ((hx_ms)100)
#define RECONNECT_MAX (5 * HX_SECOND)
#define AGAIN_DELAY ((hx_ms)10)
#define COMPLAINT_EVERY (10 * HX_SECOND)
#define COLUMN_BYTES_KEPT (1u << 20)

static void connect_lane(hx_lane *lane);
static void begin_round(hx_task *task);

const hx_statement_properties hx_statements[] = {
#define X(name, calls, operation, transaction, next)                                                                   \
    {HX_CALLS_##calls, HX_OPERATION_##operation, HX_TRANSACTION_##transaction, HX_STATEMENT_##next},
#include "store/remote/statements.def"
#undef X
};

void hx_call_end(hx_store_call *call, hx_store_result result)
{
    call->result = result;
    call->done(call);
}

void hx_lane_schedule(hx_lane *lane)
{
    if (lane->will_begin || lane->round.is_open || lane->state != HX_LANE_READY) return;
    lane->will_begin = true;
    lane->begin.run = begin_round;
    hx_loop_defer(lane->loop, &lane->begin);
}

static hx_ms age_of(const hx_lane *lane, const hx_store_call *call)
{
    return hx_loop_now(lane->loop) - call->own.remote.since;
}

/* Nobody waits for it any more, but it may have been committed. */
static void abandon(hx_lane *lane, const hx_store_call *call)
{
    if (lane->abandoned_count == HX_ABANDONED_MAX) return; /* it lapses into unknown with its lease */
    lane->abandoned[lane->abandoned_count++] = (hx_abandoned){call->op, call->own.remote.ticket,
                                                              hx_loop_now(lane->loop) + HX_CLAIM_IS_LATE + ROUND_MAX};
    lane->will_abandon = true;
}

static bool is_cancelled(const hx_store_call *call)
{
    return call->own.remote.is_cancelled;
}

static void give_up(hx_lane *lane, hx_store_call *call, hx_store_result result)
{
    bool may_stand = call->verb == HX_STORE_CLAIM && call->own.remote.was_sent;
    if (may_stand) abandon(lane, call);
    hx_call_end(call, is_cancelled(call) ? HX_STORE_CANCELLED : result);
}

/* In turns that follow on this one: an end may bring new calls. */
static void give_up_old(hx_lane *lane, hx_ms age)
{
    hx_link old;
    hx_list_init(&old);
    HX_EACH(link, &lane->waiting)
    {
        hx_store_call *call = HX_OWNER(link, hx_store_call, own.link);
        if (age_of(lane, call) < age && !is_cancelled(call)) continue;
        hx_list_remove(link);
        hx_list_append(&old, link);
    }
    for (hx_link *link; (link = hx_list_take(&old));)
        give_up(lane, HX_OWNER(link, hx_store_call, own.link), HX_STORE_UNAVAILABLE);
}

/* The connection */

/* What was in the round waits again, in front and in its order; what has ended is NULL. */
static void take_back_round(hx_lane *lane)
{
    for (size_t i = lane->round.call_count; i > 0; i--) {
        hx_store_call *call = lane->round.calls[i - 1];
        if (!call) continue;
        call->own.remote.was_sent = true;
        call->own.link = (hx_link){&call->own.link, &call->own.link};
        hx_list_append(lane->waiting.next, &call->own.link); /* before the first */
    }
    for (size_t i = 0; i < lane->round.count; i++) lane->store->pq->clear(lane->round.statements[i].result);
    lane->round.count = lane->round.at = lane->round.call_count = lane->round.look_count = 0;
    lane->round.abandoned = 0;
    lane->round.is_open = false;
}

static void time_to_connect(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, timer);
    connect_lane(lane);
    if (lane->failures > 0) give_up_old(lane, DOWN_MAX);
}

static void disconnect(hx_lane *lane)
{
    hx_timer_stop(lane->loop, &lane->timer);
    hx_names_forget(&lane->names);
    hx_poll_free(&lane->poll);
    if (lane->conn) lane->store->pq->finish(lane->conn);
    lane->conn = NULL;
    lane->state = HX_LANE_DOWN;
    lane->is_undurable = lane->is_fresh = false;
}

/* `why` may lie in the connection. */
static void fail(hx_lane *lane, const char *why)
{
    if (lane->state == HX_LANE_CONNECTING || lane->is_fresh) lane->failures++;
    hx_lane_say(lane, why);
    disconnect(lane);
    take_back_round(lane);
    hx_ms delay = RECONNECT_FIRST;
    for (unsigned i = 0; i < lane->failures && delay < RECONNECT_MAX; i++) delay *= 2;
    if (delay > RECONNECT_MAX) delay = RECONNECT_MAX;
    delay = lane->failures == 0 ? 0 : delay / 2 + (hx_ms)(hx_rand_u64() % (uint64_t)(delay / 2 + 1));
    hx_timer_start(lane->loop, &lane->timer, delay, time_to_connect);
    give_up_old(lane, lane->failures > 0 ? DOWN_MAX : CALL_MAX);
}

static void took_too_long(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, timer);
    bool was_connecting = lane->state == HX_LANE_CONNECTING || lane->will_set_up;
    if (was_connecting) lane->turns++;
    fail(lane, was_connecting ? "connecting took too long" : "a statement took too long");
}

/* The server's own warning that a commit is not on its standby. It is a notice, and says nothing in its result. */
static void noticed(void *context, const PGresult *notice)
{
    hx_lane *lane = context;
    const hx_libpq *pq = lane->store->pq;
    const char *message = pq->resultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY); /* in whatever language */
    const char *from = pq->resultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    bool is_told = from && strcmp(from, "SyncRepWaitForLSN") == 0;
    if (is_told || (message && strstr(message, "synchronous replication"))) lane->is_undurable = true;
    hx_log_begin(HX_EVENT_server_notice);
    hx_log_text("notice", message ? message : "");
    hx_log_end();
}

static void flush(hx_lane *lane)
{
    int left = lane->store->pq->flush(lane->conn);
    if (left < 0)
        fail(lane, lane->store->pq->errorMessage(lane->conn));
    else
        hx_poll_for(lane->poll, HX_POLL_READ | (left > 0 ? HX_POLL_WRITE : 0));
}

static void receive(hx_lane *lane);

static void connected(hx_lane *lane)
{
    const hx_libpq *pq = lane->store->pq;
    hx_timer_stop(lane->loop, &lane->timer);
    if (pq->setnonblocking(lane->conn, 1) != 0 || pq->enterPipelineMode(lane->conn) != 1) {
        fail(lane, pq->errorMessage(lane->conn));
        return;
    }
    lane->state = HX_LANE_READY;
    lane->is_fresh = true;
    lane->will_listen = lane->listens;
    lane->will_set_up = true;
    lane->will_abandon = lane->abandoned_count > 0;
    hx_poll_for(lane->poll, HX_POLL_READ);
    hx_lane_schedule(lane);
}

static void ready(void *context, unsigned events)
{
    hx_lane *lane = context;
    const hx_libpq *pq = lane->store->pq;
    if (lane->state == HX_LANE_READY) {
        bool may_go_on = lane->round.is_open && hx_loop_now(lane->loop) - lane->round.since < ROUND_LONG;
        if (may_go_on) hx_timer_start(lane->loop, &lane->timer, ROUND_MAX, took_too_long);
        if (events & HX_POLL_WRITE) flush(lane);
        if (lane->state == HX_LANE_READY && events & HX_POLL_READ) receive(lane);
        return;
    }
    PostgresPollingStatusType next = pq->connectPoll(lane->conn);
    /* libpq may have gone on to another address, and so to another socket. */
    hx_poll_free(&lane->poll);
    if (next == PGRES_POLLING_FAILED || pq->socket(lane->conn) < 0) {
        fail(lane, pq->errorMessage(lane->conn));
        return;
    }
    lane->poll = hx_poll_new(lane->loop, pq->socket(lane->conn), ready, lane);
    if (next == PGRES_POLLING_OK)
        connected(lane);
    else
        hx_poll_for(lane->poll, next == PGRES_POLLING_READING ? HX_POLL_READ : HX_POLL_WRITE);
}

static void start_connecting(hx_lane *lane, const hx_names *found)
{
    const hx_libpq *pq = lane->store->pq;
    lane->conn = hx_lane_connect(lane, found);
    if (pq->status(lane->conn) == CONNECTION_BAD || pq->socket(lane->conn) < 0) {
        fail(lane, pq->errorMessage(lane->conn));
        return;
    }
    (void)pq->setNoticeReceiver(lane->conn, noticed, lane);
    lane->poll = hx_poll_new(lane->loop, pq->socket(lane->conn), ready, lane);
    hx_poll_for(lane->poll, HX_POLL_WRITE);
}

static void names_found(void *context, const hx_names *found)
{
    hx_lane *lane = context;
    start_connecting(lane, found);
    hx_names_forget(&lane->names);
}

static void connect_lane(hx_lane *lane)
{
    const hx_postgres *p = lane->store;
    lane->state = HX_LANE_CONNECTING;
    hx_timer_start(lane->loop, &lane->timer, CONNECT_MAX, took_too_long);
    if (!p->hosts) {
        start_connecting(lane, NULL);
        return;
    }
    lane->names = hx_names_look_up(lane->loop, p->hosts, p->ports, names_found, lane);
    if (!lane->names) fail(lane, "no thread can be started to look up the server's name");
}

/* A round */

static hx_statement_kind kind_of(const hx_store_call *call)
{
    switch (call->verb) {
    case HX_STORE_CLAIM: return HX_STATEMENT_CLAIM;
    case HX_STORE_SETTLE: return HX_STATEMENT_SETTLE;
    case HX_STORE_RENEW: return HX_STATEMENT_RENEW;
    case HX_STORE_WATCH:
    case HX_STORE_READ: return HX_STATEMENT_READ;
    case HX_STORE_FORGET: return HX_STATEMENT_FORGET;
    case HX_STORE_SWEEP: return HX_STATEMENT_SWEEP;
    case HX_STORE_LIST: return HX_STATEMENT_LIST;
    case HX_STORE_HISTORY: return call->page->has_key ? HX_STATEMENT_HISTORY_OF_KEY : HX_STATEMENT_HISTORY;
    case HX_STORE_RETIRE: return HX_STATEMENT_RETIRE;
    case HX_STORE_ENFORCE: return HX_STATEMENT_ENFORCE;
    case HX_STORE_IMPORT: return HX_STATEMENT_IMPORT;
    }
    HX_CHECK(!"every verb has a statement");
    return HX_STATEMENT_KINDS;
}

/* Which operations are in the round already, and whether anything but a read is. */
typedef struct {
    struct {
        const hx_op *op;
        bool only_read;
    } slots[4 * HX_ROUND_CALLS_MAX];
} op_set;

static bool may_join(op_set *set, const hx_op *op, bool is_read)
{
    size_t hash;
    memcpy(&hash, op->bytes, sizeof hash);
    for (size_t i = hash;; i++) {
        size_t at = i % (sizeof set->slots / sizeof *set->slots);
        if (!set->slots[at].op) {
            set->slots[at].op = op;
            set->slots[at].only_read = is_read;
            return true;
        }
        if (hx_op_eq(set->slots[at].op, op)) return is_read && set->slots[at].only_read;
    }
}

static size_t bytes_of(const hx_store_call *call)
{
    bool has_answer = call->verb == HX_STORE_SETTLE || call->verb == HX_STORE_IMPORT;
    return has_answer ? call->record->answer.headers.len + call->record->answer.body.len : 0;
}

static hx_statement *add_statement(hx_lane *lane, hx_statement_kind kind)
{
    HX_CHECK(lane->round.count < HX_STATEMENTS_MAX);
    hx_statement *s = &lane->round.statements[lane->round.count++];
    *s = (hx_statement){.kind = kind, .calls = &lane->round.calls[lane->round.call_count], .ends_transaction = true};
    return s;
}

/* Moves the calls that may go together out of `waiting` into an array. What can't go yet stays where it is, and so does
 * everything about the same operation behind it. */
static size_t choose(hx_lane *lane, hx_store_call *chosen[HX_ROUND_CALLS_MAX])
{
    op_set set = {0};
    size_t count = 0, bytes = 0, single = 0;
    HX_EACH(link, &lane->waiting)
    {
        hx_store_call *call = HX_OWNER(link, hx_store_call, own.link);
        const hx_statement_properties *of = &hx_statements[kind_of(call)];
        bool is_alone = of->calls != HX_CALLS_MANY || call->own.remote.is_alone;
        if (count == HX_ROUND_CALLS_MAX || (is_alone && single == HX_STATEMENTS_MAX / 4)) break;
        bool only_reads = of->operation == HX_OPERATION_READ;
        if (of->operation != HX_OPERATION_ANY && !may_join(&set, &call->op, only_reads)) continue;
        if (count > 0 && bytes + bytes_of(call) > HX_ROUND_BYTES_MAX) break;
        bytes += bytes_of(call);
        single += is_alone;
        hx_list_remove(link);
        chosen[count++] = call;
    }
    return count;
}

static void add_one(hx_lane *lane, hx_store_call *call)
{
    hx_statement *s = add_statement(lane, kind_of(call));
    lane->round.calls[lane->round.call_count++] = call;
    s->count = 1;
    if (hx_statements[s->kind].next == HX_STATEMENT_NOTHING) return;
    hx_statement *next = add_statement(lane, hx_statements[s->kind].next);
    next->calls = s->calls;
    next->count = 1;
}

static void compose(hx_lane *lane, hx_store_call **chosen, size_t count)
{
    hx_statement *last = NULL;
    for (hx_statement_kind kind = 0; kind < HX_STATEMENT_KINDS; kind++) {
        if (hx_statements[kind].calls != HX_CALLS_MANY) continue;
        hx_statement *s = NULL;
        for (size_t i = 0; i < count; i++) {
            if (!chosen[i] || kind_of(chosen[i]) != kind || chosen[i]->own.remote.is_alone) continue;
            if (!s) s = add_statement(lane, kind);
            lane->round.calls[lane->round.call_count++] = chosen[i];
            s->count++;
            chosen[i] = NULL;
        }
        if (s && hx_statements[kind].transaction == HX_TRANSACTION_SHARED) {
            if (last) last->ends_transaction = false;
            last = s;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (chosen[i]) add_one(lane, chosen[i]);
    if (lane->will_abandon && lane->abandoned_count > 0) {
        lane->round.abandoned = lane->abandoned_count;
        (void)add_statement(lane, HX_STATEMENT_ABANDON);
    }
    lane->will_abandon = false;
    if (lane->will_listen) (void)add_statement(lane, HX_STATEMENT_LISTEN);
    lane->round.awaited = lane->awaited_count;
    if (lane->awaited_count > 0) (void)add_statement(lane, HX_STATEMENT_AWAIT);
    lane->round.told = lane->told_count;
    if (lane->told_count > 0) (void)add_statement(lane, HX_STATEMENT_TELL);
    if (lane->round.look_count > 0) (void)add_statement(lane, HX_STATEMENT_LOOK);
}

/* Beside calls. */
static bool has_errands(const hx_lane *lane)
{
    return lane->will_abandon || lane->told_count > 0 || lane->awaited_count > 0 || lane->will_look ||
           lane->will_listen || lane->will_set_up;
}

static bool send_statement(hx_lane *lane, const hx_statement *s)
{
    const hx_libpq *pq = lane->store->pq;
    hx_parameters *p = lane->parameters;
    hx_statement_fill(lane, s);
    return pq->sendQueryParams(lane->conn, hx_postgres_sql[s->kind], p->count, p->types, p->values, p->lengths,
                               p->formats, 1) &&
           (!s->ends_transaction || pq->pipelineSync(lane->conn));
}

/* Everything, or up to the next sync point: a pooler may take a client that has gone in the middle for one that has had
 * its answer, and give the rest of them to the next one. */
static void send_more(hx_lane *lane)
{
    bool has_synced = false;
    while (lane->round.sent < lane->round.count && !(has_synced && lane->store->is_pooled)) {
        const hx_statement *s = &lane->round.statements[lane->round.sent++];
        has_synced = s->ends_transaction;
        if (!send_statement(lane, s)) {
            fail(lane, lane->store->pq->errorMessage(lane->conn));
            return;
        }
    }
    flush(lane);
}

/* All that were there when it began, in as many rounds as that takes: who was looked at goes to the end. */
static void gather_looks(hx_lane *lane)
{
    if (!lane->will_look) return;
    op_set set = {0};
    if (lane->look_left == 0) {
        HX_EACH(link, &lane->watching) lane->look_left++;
        lane->look_size = lane->look_left;
    }
    for (; lane->look_left > 0 && lane->round.look_count < HX_ROUND_CALLS_MAX; lane->look_left--) {
        hx_link *link = hx_list_take(&lane->watching);
        if (!link) break;
        hx_list_append(&lane->watching, link);
        const hx_op *op = &HX_OWNER(link, hx_store_call, own.link)->op;
        if (may_join(&set, op, false)) lane->round.looks[lane->round.look_count++] = *op;
    }
    if (hx_list_empty(&lane->watching)) lane->look_left = 0;
    lane->will_look = lane->look_left > 0;
}

static void begin_round(hx_task *task)
{
    hx_lane *lane = HX_OWNER(task, hx_lane, begin);
    lane->will_begin = false;
    if (lane->state != HX_LANE_READY || lane->round.is_open) return;
    hx_store_call *chosen[HX_ROUND_CALLS_MAX];
    lane->round.look_count = lane->round.count = lane->round.at = lane->round.call_count = 0;
    if (lane->will_set_up) { /* first of all, and alone: what it says decides about the rest */
        (void)add_statement(lane, HX_STATEMENT_SETUP);
    } else {
        gather_looks(lane);
        compose(lane, chosen, choose(lane, chosen));
    }
    if (lane->round.count == 0) return; /* nobody watches any more what was to be looked at: nothing would end it */
    lane->round.is_open = true;
    lane->round.since = hx_loop_now(lane->loop);
    hx_timer_start(lane->loop, &lane->timer, ROUND_MAX, took_too_long);
    lane->round.sent = 0;
    send_more(lane);
}

/* Its end may bring new calls, so the statement's own are taken out of the round first. */
static void forget_calls(hx_lane *lane, const hx_statement *s)
{
    for (size_t i = 0; i < s->count; i++) lane->round.calls[(size_t)(s->calls - lane->round.calls) + i] = NULL;
}

static bool is_state(const PGresult *result, const hx_libpq *pq, const char *code)
{
    const char *found = result ? pq->resultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    return found && strncmp(found, code, strlen(code)) == 0;
}

/* What a server that is going down, starting, or not the primary says. */
static bool is_wrong_server(const PGresult *result, const hx_libpq *pq)
{
    return is_state(result, pq, "57P") || is_state(result, pq, "25006") || is_state(result, pq, "08");
}

static const char *advice_for(const PGresult *result, const hx_libpq *pq)
{
    if (is_state(result, pq, "42P01") || is_state(result, pq, "42883") || is_state(result, pq, "3F000"))
        return "the schema is missing or older than this program: run hapax store migrate";
    if (is_state(result, pq, "42501")) return "this role lacks rights on the schema hapax: see hapax sql postgres";
    if (is_state(result, pq, "53100")) return "the server's disk is full";
    return "see the server's log";
}

/* Once in a while, not for each request. */
static void complain(hx_lane *lane, const PGresult *error)
{
    const hx_libpq *pq = lane->store->pq;
    hx_ms now = hx_loop_now(lane->loop), last = atomic_load(&lane->store->complained_at);
    if (now - last < COMPLAINT_EVERY) return;
    if (!atomic_compare_exchange_strong(&lane->store->complained_at, &last, now)) return;
    const char *message = error ? pq->resultErrorField(error, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    hx_log_begin(HX_EVENT_server_refused);
    hx_log_text("reason", message ? message : "the transaction was aborted");
    hx_log_text("hint", advice_for(error, pq));
    hx_log_end();
}

static void end_alone(hx_lane *lane, hx_store_call *call, const PGresult *error)
{
    const hx_libpq *pq = lane->store->pq;
    if (is_state(error, pq, "55P03") || is_state(error, pq, "40")) { /* somebody is in the way: not for long */
        hx_lane_try_later(lane, call);
        return;
    }
    complain(lane, error);
    give_up(lane, call,
            is_state(error, pq, "53100") && call->verb == HX_STORE_CLAIM ? HX_STORE_FULL : HX_STORE_UNAVAILABLE);
}

/* The statements from `first` on were one transaction, which is over; of the others that failed with it nothing else is
 * known than that they were not committed. */
static void end_transaction(hx_lane *lane, size_t first, size_t after)
{
    hx_statement *const statements = lane->round.statements;
    const PGresult *error = NULL;
    size_t calls = 0;
    bool failed = false;
    for (size_t i = first; i < after; i++) {
        failed |= statements[i].failed;
        calls += statements[i].count;
        if (statements[i].failed && !error) error = statements[i].result;
    }
    if (!failed) atomic_fetch_add(&lane->store->commits, 1);
    for (size_t i = first; i < after; i++) {
        hx_store_call *own[HX_ROUND_CALLS_MAX];
        hx_statement s = statements[i];
        for (size_t k = 0; k < s.count; k++) own[k] = s.calls[k];
        bool ends_later = hx_statements[s.kind].next != HX_STATEMENT_NOTHING;
        if (ends_later)
            statements[i + 1].failed = failed;
        else
            forget_calls(lane, &s);
        s.calls = own;
        if (!failed) {
            hx_statement_end(lane, &s);
            continue;
        }
        if (ends_later || s.count == 0) complain(lane, error);
        if (s.count == 0) hx_errand_failed(lane, &s);
        for (size_t k = 0; k < s.count && !ends_later && own[k]; k++) {
            if (calls == 1) {
                end_alone(lane, own[k], error);
            } else {
                own[k]->own.remote.is_alone = true;
                hx_list_append(&lane->waiting, &own[k]->own.link);
            }
        }
    }
    for (size_t i = first; i < after; i++) {
        lane->store->pq->clear(statements[i].result);
        statements[i].result = NULL;
    }
}

static void end_round(hx_lane *lane)
{
    bool was_set_up = lane->round.statements[0].kind == HX_STATEMENT_SETUP;
    hx_timer_stop(lane->loop, &lane->timer);
    lane->round.is_open = false;
    lane->round.count = lane->round.at = lane->round.call_count = lane->round.look_count = 0;
    lane->round.abandoned = 0;
    if (!was_set_up) {
        lane->failures = 0;
        lane->is_fresh = false;
    }
    for (size_t i = 0; i < HX_PARAMETERS_MAX; i++) /* what one large answer took is not kept */
        if (lane->parameters->columns[i].cap > COLUMN_BYTES_KEPT) hx_buf_free(&lane->parameters->columns[i]);
    if (!hx_list_empty(&lane->waiting) || has_errands(lane)) hx_lane_schedule(lane);
}

static size_t first_of_transaction(const hx_lane *lane, size_t last)
{
    size_t first = last;
    while (first > 0 && !lane->round.statements[first - 1].ends_transaction) first--;
    return first;
}

/* What a connection is good for: a failover may have led to a server with other settings, a migration to another
 * schema. False: for nothing. */
static bool take_set_up(hx_lane *lane, PGresult *result)
{
    const hx_libpq *pq = lane->store->pq;
    char why[HX_STORE_ERROR_BYTES];
    const char *message = pq->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    bool is_good = false;
    if (pq->resultStatus(result) != PGRES_TUPLES_OK)
        (void)snprintf(why, sizeof why, "%s: %s", message ? message : "it can't be set up", advice_for(result, pq));
    else if (pq->ntuples(result) != 1)
        (void)snprintf(why, sizeof why, "the table hapax.store is damaged: it must have one row");
    else
        is_good = hx_postgres_fits_schema(hx_get_i64(pq, result, 0, 0), why);
    if (is_good) {
        hx_postgres_take_durability(lane->store, hx_get_bytes(pq, result, 0, 1));
        return true;
    }
    pq->clear(result);
    fail(lane, why);
    return false;
}

/* False: the connection is no longer good. */
static bool take_result(hx_lane *lane, PGresult *result)
{
    const hx_libpq *pq = lane->store->pq;
    ExecStatusType status = pq->resultStatus(result);
    hx_statement *s = &lane->round.statements[lane->round.at];
    if (status == PGRES_PIPELINE_SYNC) {
        pq->clear(result);
        if (lane->is_undurable) {
            fail(lane, "a commit did not reach the synchronous standby");
            return false;
        }
        size_t last = lane->round.at++;
        end_transaction(lane, first_of_transaction(lane, last), last + 1);
        if (lane->round.is_open && lane->round.at == lane->round.count)
            end_round(lane);
        else if (lane->round.is_open && lane->round.sent < lane->round.count)
            send_more(lane);
        return lane->state == HX_LANE_READY;
    }
    if (s->kind == HX_STATEMENT_SETUP && !take_set_up(lane, result)) return false;
    if ((status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) && !s->failed) {
        s->result = result;
        return true;
    }
    if (is_wrong_server(result, pq)) {
        char why[256];
        (void)snprintf(why, sizeof why, "%s", pq->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
        pq->clear(result);
        fail(lane, why);
        return false;
    }
    s->failed = true;
    pq->clear(s->result);
    s->result = result;
    return true;
}

static void receive(hx_lane *lane)
{
    const hx_libpq *pq = lane->store->pq;
    if (!pq->consumeInput(lane->conn)) {
        fail(lane, pq->errorMessage(lane->conn));
        return;
    }
    bool was_end = false;
    while (lane->state == HX_LANE_READY && lane->round.is_open && !pq->isBusy(lane->conn)) {
        PGresult *result = pq->getResult(lane->conn);
        hx_statement *s = &lane->round.statements[lane->round.at];
        if (!result) { /* of one statement; a sync point, or the next one, follows */
            /* Twice: libpq expects nothing more, though we do. The connection is ending. */
            if (was_end || pq->status(lane->conn) == CONNECTION_BAD) {
                fail(lane, pq->errorMessage(lane->conn));
                return;
            }
            was_end = true;
            if (s->result && !s->ends_transaction) lane->round.at++;
            continue;
        }
        was_end = false;
        if (!take_result(lane, result)) return;
    }
    for (PGnotify *note; lane->state == HX_LANE_READY && (note = pq->notifies(lane->conn));) {
        hx_lane_hear(lane, note->extra);
        pq->freemem(note);
    }
    if (lane->state == HX_LANE_READY && pq->status(lane->conn) == CONNECTION_BAD)
        fail(lane, pq->errorMessage(lane->conn));
}

/* Calls */

static void refuse(hx_task *task)
{
    hx_lane *lane = HX_OWNER(task, hx_lane, begin);
    lane->will_begin = false;
    if (lane->state == HX_LANE_READY)
        hx_lane_schedule(lane);
    else
        give_up_old(lane, 0);
}

/* Where the last try to connect has failed nobody is kept waiting for the next one. */
void hx_lane_submit(hx_lane *lane, hx_store_call *call)
{
    hx_list_append(&lane->waiting, &call->own.link);
    if (lane->failures == 0 || lane->will_begin) {
        hx_lane_schedule(lane);
        return;
    }
    lane->will_begin = true;
    lane->begin.run = refuse;
    hx_loop_defer(lane->loop, &lane->begin);
}

static void time_to_try(hx_timer *timer)
{
    hx_lane *lane = HX_OWNER(timer, hx_lane, again);
    hx_list_splice(&lane->waiting, &lane->later);
    hx_lane_schedule(lane);
}

void hx_lane_try_later(hx_lane *lane, hx_store_call *call)
{
    if (age_of(lane, call) > CALL_MAX) {
        give_up(lane, call, HX_STORE_UNAVAILABLE);
        return;
    }
    hx_list_append(&lane->later, &call->own.link);
    if (!hx_timer_running(&lane->again)) hx_timer_start(lane->loop, &lane->again, AGAIN_DELAY, time_to_try);
}

/* It is not in doubt, however long its turn takes to come. */
void hx_lane_ask_again(hx_lane *lane, hx_store_call *call)
{
    call->own.remote.since = hx_loop_now(lane->loop);
    hx_list_append(&lane->waiting, &call->own.link);
}

bool hx_lane_is_well(const hx_lane *lane)
{
    if (lane->state != HX_LANE_READY || lane->will_set_up) return false;
    return !lane->round.is_open || hx_loop_now(lane->loop) - lane->round.since < SLOW;
}

void hx_lane_init(hx_lane *lane, hx_postgres *p, hx_loop *loop)
{
    lane->store = p;
    lane->loop = loop;
    lane->parameters = calloc(1, sizeof *lane->parameters);
    lane->abandoned = calloc(HX_ABANDONED_MAX, sizeof *lane->abandoned);
    lane->told = calloc(HX_ROUND_CALLS_MAX, sizeof *lane->told);
    lane->awaited = calloc(HX_ROUND_CALLS_MAX, sizeof *lane->awaited);
    if (!lane->parameters || !lane->abandoned || !lane->told || !lane->awaited) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_list_init(&lane->waiting);
    hx_list_init(&lane->later);
    hx_list_init(&lane->watching);
    hx_timer_start(loop, &lane->timer, 0, time_to_connect);
}

void hx_lane_free(hx_lane *lane)
{
    HX_CHECK(hx_list_empty(&lane->waiting) && hx_list_empty(&lane->later) && hx_list_empty(&lane->watching));
    disconnect(lane);
    hx_timer_stop(lane->loop, &lane->again);
    hx_timer_stop(lane->loop, &lane->look);
    hx_timer_stop(lane->loop, &lane->abandon_again);
    for (size_t i = 0; i < HX_PARAMETERS_MAX; i++) hx_buf_free(&lane->parameters->columns[i]);
    free(lane->parameters);
    free(lane->abandoned);
    free(lane->told);
    free(lane->awaited);
}
