/* SPDX-License-Identifier: Apache-2.0 */
/* A round: what is sent together, in which transactions, and what follows when each of them ends. See lane.h. */
#include "store/remote/lane.h"

#include "base/check.h"
#include "base/log.h"

#include <string.h>

#define COMPLAINT_EVERY (10 * HX_SECOND)

const hx_statement_properties hx_statements[] = {
#define X(name, calls, operation, transaction, next)                                                                   \
    {HX_CALLS_##calls, HX_OPERATION_##operation, HX_TRANSACTION_##transaction, HX_STATEMENT_##next},
#include "store/remote/statements.def"
#undef X
};

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
    case HX_STORE_COMMIT: return HX_STATEMENT_COMMIT;
    case HX_STORE_GET: return HX_STATEMENT_GET;
    case HX_STORE_SCAN: return HX_STATEMENT_SCAN;
    }
    HX_CHECK(!"every verb has a statement");
    return HX_STATEMENT_KINDS;
}

/* The operations that are in the round already, and whether the round only reads them. */
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
    if (call->verb == HX_STORE_COMMIT) return hx_items_bytes(call);
    bool has_answer = call->verb == HX_STORE_SETTLE || call->verb == HX_STORE_IMPORT;
    return has_answer ? call->record->answer.headers.len + call->record->answer.body.len : 0;
}

static hx_statement *add_statement(hx_round *round, hx_statement_kind kind)
{
    HX_CHECK(round->count < HX_STATEMENTS_MAX);
    hx_statement *s = &round->statements[round->count++];
    *s = (hx_statement){.kind = kind, .calls = &round->calls[round->call_count], .ends_transaction = true};
    return s;
}

/* Moves the calls that may go together from `waiting` into an array. A call that can't go yet stays in its place, and
 * so does every later one about the same operation. */
static size_t choose(hx_lane *lane, hx_store_call *chosen[HX_ROUND_CALLS_MAX])
{
    op_set set = {0};
    hx_round_items items = {.is_closed = hx_lane_delays_items(lane)};
    size_t count = 0, bytes = 0, single = 0;
    HX_EACH(link, &lane->waiting)
    {
        hx_store_call *call = HX_OWNER(link, hx_store_call, own.link);
        const hx_statement_properties *of = &hx_statements[kind_of(call)];
        bool is_alone = of->calls != HX_CALLS_MANY || call->own.remote.is_alone;
        if (count == HX_ROUND_CALLS_MAX || (is_alone && single == HX_STATEMENTS_MAX / 4)) break;
        bool only_reads = of->operation == HX_OPERATION_READ;
        bool is_free = true;
        if (of->operation == HX_OPERATION_ITEMS)
            is_free = hx_items_may_join(&items, call);
        else if (of->operation != HX_OPERATION_ANY)
            is_free = !hx_lane_delays(lane, &call->op) && may_join(&set, &call->op, only_reads);
        if (!is_free) continue;
        if (count > 0 && bytes + bytes_of(call) > HX_ROUND_BYTES_MAX) break;
        bytes += bytes_of(call);
        single += is_alone;
        hx_list_remove(link);
        chosen[count++] = call;
    }
    return count;
}

static void add_one(hx_round *round, hx_store_call *call)
{
    hx_statement *s = add_statement(round, kind_of(call));
    round->calls[round->call_count++] = call;
    s->count = 1;
    if (hx_statements[s->kind].next == HX_STATEMENT_NOTHING) return;
    hx_statement *next = add_statement(round, hx_statements[s->kind].next);
    next->calls = s->calls;
    next->count = 1;
}

static void add_calls(hx_round *round, hx_store_call **chosen, size_t count)
{
    hx_statement *last = NULL;
    for (hx_statement_kind kind = 0; kind < HX_STATEMENT_KINDS; kind++) {
        if (hx_statements[kind].calls != HX_CALLS_MANY) continue;
        hx_statement *s = NULL;
        for (size_t i = 0; i < count; i++) {
            if (!chosen[i] || kind_of(chosen[i]) != kind || chosen[i]->own.remote.is_alone) continue;
            if (!s) s = add_statement(round, kind);
            round->calls[round->call_count++] = chosen[i];
            s->count++;
            chosen[i] = NULL;
        }
        if (s && hx_statements[kind].transaction == HX_TRANSACTION_SHARED) {
            if (last) last->ends_transaction = false;
            last = s;
        }
    }
    for (size_t i = 0; i < count; i++)
        if (chosen[i]) add_one(round, chosen[i]);
}

static void add_upkeep(hx_lane *lane)
{
    hx_round *round = &lane->round;
    if (lane->abandon_is_due && lane->abandoned_count > 0) {
        round->abandoned = lane->abandoned_count;
        (void)add_statement(round, HX_STATEMENT_ABANDON);
    }
    lane->abandon_is_due = false;
    if (lane->needs_listen) (void)add_statement(round, HX_STATEMENT_LISTEN);
    round->awaited = lane->awaited_count;
    if (lane->awaited_count > 0) (void)add_statement(round, HX_STATEMENT_AWAIT);
    round->announced = lane->announcement_count;
    if (lane->announcement_count > 0) (void)add_statement(round, HX_STATEMENT_ANNOUNCE);
    if (round->recheck_count > 0) (void)add_statement(round, HX_STATEMENT_RECHECK);
}

/* A recheck covers all watches that there were when it began, in as many rounds as that takes: each one that was taken
 * goes to the end of the list. */
static void choose_rechecks(hx_lane *lane)
{
    if (!lane->recheck_is_due) return;
    op_set set = {0};
    if (lane->recheck_left == 0) {
        HX_EACH(link, &lane->watching) lane->recheck_left++;
        lane->recheck_size = lane->recheck_left;
    }
    for (; lane->recheck_left > 0 && lane->round.recheck_count < HX_ROUND_CALLS_MAX; lane->recheck_left--) {
        hx_link *link = hx_list_take(&lane->watching);
        if (!link) break;
        hx_list_append(&lane->watching, link);
        const hx_op *op = &HX_OWNER(link, hx_store_call, own.link)->op;
        if (may_join(&set, op, false)) lane->round.rechecks[lane->round.recheck_count++] = *op;
    }
    if (hx_list_empty(&lane->watching)) lane->recheck_left = 0;
    lane->recheck_is_due = lane->recheck_left > 0;
}

/* Sends everything; behind a pooler, up to the next commit (hx_remote.is_pooled). */
static void send_more(hx_lane *lane)
{
    hx_round *round = &lane->round;
    size_t first = round->sent;
    bool has_commit = false;
    while (round->sent < round->count && !(has_commit && lane->store->is_pooled))
        has_commit = round->statements[round->sent++].ends_transaction;
    lane->store->driver->send(lane, &round->statements[first], round->sent - first);
}

static void empty(hx_round *round)
{
    round->count = round->sent = round->at = round->call_count = round->recheck_count = round->abandoned = 0;
    round->is_open = false;
}

void hx_round_begin(hx_task *begin)
{
    hx_lane *lane = HX_OWNER(begin, hx_lane, begin);
    hx_round *round = &lane->round;
    lane->is_scheduled = false;
    if (lane->state != HX_LANE_READY || round->is_open) return;
    hx_store_call *chosen[HX_ROUND_CALLS_MAX];
    empty(round);
    if (lane->needs_setup) {
        (void)add_statement(round, HX_STATEMENT_SETUP);
    } else {
        choose_rechecks(lane);
        add_calls(round, chosen, choose(lane, chosen));
        add_upkeep(lane);
    }
    if (round->count == 0) return; /* a recheck was due, and nothing is watched any more */
    round->is_open = true;
    round->since = hx_loop_now(lane->loop);
    hx_timer_start(lane->loop, &lane->timer, HX_ROUND_MAX, hx_lane_took_too_long);
    send_more(lane);
}

void hx_round_undo(hx_lane *lane)
{
    hx_round *round = &lane->round;
    for (size_t i = round->call_count; i > 0; i--) {
        hx_store_call *call = round->calls[i - 1];
        if (!call) continue;
        call->own.remote.was_sent = true;
        call->own.link = (hx_link){&call->own.link, &call->own.link};
        hx_list_append(lane->waiting.next, &call->own.link); /* before the first */
    }
    for (size_t i = 0; i < round->count; i++) lane->store->driver->free_result(lane, round->statements[i].result);
    empty(round);
}

/* Logs a refusal, once in a while and not for each request. */
static void complain(hx_lane *lane, const hx_remote_result *error)
{
    hx_ms now = hx_loop_now(lane->loop), last = atomic_load(&lane->store->complained_at);
    if (now - last < COMPLAINT_EVERY) return;
    if (!atomic_compare_exchange_strong(&lane->store->complained_at, &last, now)) return;
    hx_refusal refusal = lane->store->driver->classify(lane, error);
    hx_log_begin(HX_EVENT_server_refused);
    hx_log_text("reason", refusal.message);
    hx_log_text("hint", refusal.hint);
    hx_log_end();
}

/* A call was refused although it was alone in its transaction. */
static void end_refused(hx_lane *lane, hx_store_call *call, const hx_remote_result *error)
{
    hx_refusal refusal = lane->store->driver->classify(lane, error);
    if (refusal.kind == HX_REFUSED_FOR_NOW) {
        hx_lane_delay(lane, call);
        return;
    }
    complain(lane, error);
    bool was_made = call->own.remote.was_sent; /* perhaps, by an earlier try */
    bool may_be_full = call->verb == HX_STORE_CLAIM || (call->verb == HX_STORE_COMMIT && !call->urgent && !was_made);
    bool is_full = refusal.kind == HX_REFUSED_AS_FULL && may_be_full;
    hx_lane_give_up(lane, call, is_full ? HX_STORE_FULL : HX_STORE_UNAVAILABLE);
}

/* Ends the transaction of the statements from `first` to before `after`. Calls leave the round before they end, because
 * an end may submit new calls, and may fail the lane. */
static void end_transaction(hx_lane *lane, size_t first, size_t after)
{
    hx_statement *const statements = lane->round.statements;
    const hx_remote_result *error = NULL;
    size_t calls = 0;
    bool failed = false;
    hx_link again;
    hx_list_init(&again);
    for (size_t i = first; i < after; i++) {
        failed |= statements[i].failed;
        calls += statements[i].count;
        if (statements[i].failed && !error) error = statements[i].result;
    }
    if (!failed) atomic_fetch_add(&lane->store->commits, 1);
    for (size_t i = first; i < after; i++) {
        hx_store_call *own[HX_ROUND_CALLS_MAX] = {0};
        hx_statement s = statements[i];
        bool ends_later = hx_statements[s.kind].next != HX_STATEMENT_NOTHING;
        for (size_t k = 0; k < s.count; k++) {
            own[k] = s.calls[k];
            if (!ends_later) s.calls[k] = NULL;
        }
        if (ends_later) statements[i + 1].failed = failed;
        s.calls = own;
        if (!failed) {
            hx_result_apply(lane, &s);
            continue;
        }
        if (ends_later || s.count == 0) complain(lane, error);
        if (s.count == 0) hx_upkeep_failed(lane, s.kind);
        for (size_t k = 0; k < s.count && !ends_later && own[k]; k++) {
            if (calls == 1) {
                end_refused(lane, own[k], error);
            } else {
                own[k]->own.remote.is_alone = true;
                hx_list_append(&again, &own[k]->own.link);
            }
        }
    }
    hx_lane_put_first(lane, &again);
    for (size_t i = first; i < after; i++) {
        lane->store->driver->free_result(lane, statements[i].result);
        statements[i].result = NULL;
    }
}

static void end_round(hx_lane *lane)
{
    bool was_setup = lane->round.statements[0].kind == HX_STATEMENT_SETUP;
    hx_timer_stop(lane->loop, &lane->timer);
    empty(&lane->round);
    if (!was_setup) {
        lane->failures = 0;
        lane->is_new = false;
    }
    if (!hx_list_empty(&lane->waiting) || hx_upkeep_is_due(lane)) hx_lane_schedule(lane);
}

void hx_lane_result(hx_lane *lane, hx_remote_result *result, bool failed)
{
    hx_statement *s = &lane->round.statements[lane->round.at];
    s->failed |= failed;
    lane->store->driver->free_result(lane, s->result);
    s->result = result;
}

void hx_lane_statement_end(hx_lane *lane)
{
    const hx_statement *s = &lane->round.statements[lane->round.at];
    if (s->result && !s->ends_transaction) lane->round.at++;
}

void hx_lane_committed(hx_lane *lane)
{
    hx_round *round = &lane->round;
    size_t first = round->at, after = ++round->at;
    while (first > 0 && !round->statements[first - 1].ends_transaction) first--;
    end_transaction(lane, first, after);
    if (round->is_open && round->at == round->count)
        end_round(lane);
    else if (round->is_open && round->sent < round->count)
        send_more(lane);
}
