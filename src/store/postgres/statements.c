/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of statement is given, and what its result means for the calls in it. */
#include "store/postgres/wire.h"

#include "base/check.h"
#include "base/log.h"

#include <string.h>

const char *const hx_postgres_sql[] = {
    [HX_STATEMENT_CLAIM] = "SELECT * FROM hapax.claim_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
                           "$14)",
    [HX_STATEMENT_RENEW] = "SELECT * FROM hapax.renew_many($1, $2, $3)",
    [HX_STATEMENT_SETTLE] = "SELECT * FROM hapax.settle_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
                            "$14, $15)",
    [HX_STATEMENT_IMPORT] = "SELECT * FROM hapax.import_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
                            "$14, $15, $16, $17, $18, $19, $20)",
    [HX_STATEMENT_READ] = "SELECT * FROM hapax.read_many($1)",
    [HX_STATEMENT_FORGET] = "SELECT * FROM hapax.forget($1, $2, $3, $4, $5, $6)",
    [HX_STATEMENT_LIST] = "SELECT * FROM hapax.list($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
    [HX_STATEMENT_HISTORY] = "SELECT * FROM hapax.history($1, $2, $3)",
    [HX_STATEMENT_HISTORY_OF_KEY] = "SELECT * FROM hapax.history_of_key($1, $2, $3)",
    [HX_STATEMENT_SWEEP] = "SELECT * FROM hapax.sweep($1, $2)",
    [HX_STATEMENT_COUNT] = "SELECT * FROM hapax.counts()",
    [HX_STATEMENT_ENFORCE] = "SELECT hapax.enforce($1, $2)",
    [HX_STATEMENT_RETIRE] = "SELECT hapax.retire($1, $2, $3, $4, $5)",
    [HX_STATEMENT_RULES] = "SELECT * FROM hapax.rules_of($1)",
    [HX_STATEMENT_ABANDON] = "SELECT * FROM hapax.abandon_many($1, $2)",
    [HX_STATEMENT_SETUP] = "SELECT version, " HX_POSTGRES_FORGETS
                           ", CASE WHEN $1 = 1 THEN set_config('tcp_keepalives_idle', '10', false) || "
                           "set_config('tcp_keepalives_interval', '5', false) || "
                           "set_config('tcp_keepalives_count', '3', false) || "
                           "set_config('client_min_messages', 'warning', false) END FROM hapax.store",
    [HX_STATEMENT_LISTEN] = "LISTEN hapax",
    [HX_STATEMENT_AWAIT] = "SELECT hapax.await_many($1)",
    [HX_STATEMENT_TELL] = "SELECT hapax.tell_many($1)",
    [HX_STATEMENT_LOOK] = "SELECT * FROM hapax.read_many($1)",
};

#define RETIRED_FOR (HX_MINUTE)
#define SWEEP_ROWS 500

static int64_t ticket_of(const hx_store_call *call)
{
    return (int64_t)call->own.remote.ticket;
}

static hx_slice op_of(const hx_store_call *call)
{
    return (hx_slice){(const char *)call->op.bytes, sizeof call->op.bytes};
}

static int64_t epoch_of(const hx_store_call *call)
{
    return (int64_t)call->epoch;
}

static int64_t new_lease_of(const hx_store_call *call)
{
    return call->lease_until;
}

#define FIELD(type, name, expression)                                                                                  \
    static type name(const hx_store_call *call)                                                                        \
    {                                                                                                                  \
        const hx_record *r = call->record;                                                                             \
        return expression;                                                                                             \
    }
FIELD(int64_t, changed_of, r->changed_at)
FIELD(int64_t, lease_of, r->lease_until)
FIELD(int64_t, expiry_of, r->expires_at)
FIELD(int64_t, tombstone_end_of, r->tombstone_until)
FIELD(int64_t, lifetime_of, r->lifetime)
FIELD(int64_t, tombstone_of, r->tombstone)
FIELD(int32_t, version_of, (int32_t)r->rule_version)
FIELD(int32_t, attempt_of, r->attempt)
FIELD(int16_t, state_of, (int16_t)r->state)
FIELD(int16_t, from_state_of, (int16_t)r->from_state)
FIELD(int16_t, status_of, (int16_t)r->answer.status)
FIELD(bool, retained_of, r->answer.retained)
FIELD(hx_slice, route_of, r->route)
FIELD(hx_slice, reason_of, r->reason)
FIELD(hx_slice, result_of, r->result)
/* What is released keeps no answer. */
FIELD(hx_slice, headers_of, r->state == HX_ABSENT ? HX_EMPTY : r->answer.headers)
FIELD(hx_slice, body_of, r->state == HX_ABSENT ? HX_EMPTY : r->answer.body)
#undef FIELD

/* The server's own time, unless a test brings its own. */
static void put_now(const hx_lane *lane, hx_parameters *p)
{
    if (lane->store->has_own_time)
        hx_put_i64(p, lane->store->store.facts.now());
    else
        hx_put_null(p, HX_OID_INT8);
}

static void fill_claim(const hx_lane *lane, const hx_statement *s, hx_parameters *p)
{
    put_now(lane, p);
    hx_ms ahead = atomic_load(&lane->store->server_ahead);
    hx_put_i64(p, lane->store->store.facts.now() + ahead + HX_CLAIM_IS_LATE);
    hx_put_bytes_of(p, s, op_of);
    hx_put_i64_of(p, s, ticket_of);
    hx_put_i64_of(p, s, epoch_of);
    hx_put_i64_of(p, s, changed_of);
    hx_put_times_of(p, s, lease_of, ahead);
    hx_put_i64_of(p, s, lifetime_of);
    hx_put_i64_of(p, s, tombstone_of);
    hx_put_i32_of(p, s, version_of);
    hx_put_i16_of(p, s, from_state_of);
    hx_put_i32_of(p, s, attempt_of);
    hx_put_text_of(p, s, route_of);
    hx_put_head_of(p, s);
}

static void fill_settle(const hx_statement *s, hx_parameters *p)
{
    hx_put_bytes_of(p, s, op_of);
    hx_put_i64_of(p, s, epoch_of);
    hx_put_i64_of(p, s, ticket_of);
    hx_put_i64_of(p, s, changed_of);
    hx_put_i64_of(p, s, expiry_of);
    hx_put_i64_of(p, s, tombstone_end_of);
    hx_put_i16_of(p, s, state_of);
    hx_put_i16_of(p, s, from_state_of);
    hx_put_i32_of(p, s, attempt_of);
    hx_put_i16_of(p, s, status_of);
    hx_put_bool_of(p, s, retained_of);
    hx_put_text_of(p, s, reason_of);
    hx_put_text_of(p, s, result_of);
    hx_put_bytes_of(p, s, headers_of);
    hx_put_bytes_of(p, s, body_of);
}

static void fill_import(const hx_lane *lane, const hx_statement *s, hx_parameters *p)
{
    put_now(lane, p);
    hx_put_bytes_of(p, s, op_of);
    hx_put_i64_of(p, s, epoch_of);
    hx_put_i64_of(p, s, ticket_of);
    hx_put_i64_of(p, s, changed_of);
    hx_put_i64_of(p, s, lease_of);
    hx_put_i64_of(p, s, expiry_of);
    hx_put_i64_of(p, s, tombstone_end_of);
    hx_put_i32_of(p, s, version_of);
    hx_put_i16_of(p, s, state_of);
    hx_put_i16_of(p, s, from_state_of);
    hx_put_i32_of(p, s, attempt_of);
    hx_put_i16_of(p, s, status_of);
    hx_put_bool_of(p, s, retained_of);
    hx_put_text_of(p, s, route_of);
    hx_put_text_of(p, s, reason_of);
    hx_put_text_of(p, s, result_of);
    hx_put_head_of(p, s);
    hx_put_bytes_of(p, s, headers_of);
    hx_put_bytes_of(p, s, body_of);
}

/* A cursor is how an operation's bytes begin. */
static hx_slice key_of(const hx_store_page *page)
{
    return (hx_slice){(const char *)page->key.bytes, sizeof page->key.bytes};
}

static void fill_list(const hx_lane *lane, const hx_store_page *page, hx_parameters *p)
{
    uint8_t after[8];
    for (size_t i = 0; i < sizeof after; i++) after[i] = (uint8_t)(page->cursor >> (56 - 8 * i));
    put_now(lane, p);
    hx_put_bytes(p, (hx_slice){(const char *)after, sizeof after});
    hx_put_i32(p, (int32_t)page->records_max + 1);
    hx_put_i32(p, (int32_t)page->states);
    hx_put_text(p, page->route);
    hx_put_text(p, page->reason);
    hx_put_i64(p, page->changed_from);
    hx_put_i64(p, page->changed_before);
    if (page->has_key)
        hx_put_bytes(p, key_of(page));
    else
        hx_put_null(p, HX_OID_BYTEA);
    if (page->path_count > 0)
        hx_put_texts(p, page->paths, page->path_count);
    else
        hx_put_null(p, HX_OID_TEXTS);
}

static void put_rules(hx_parameters *p, const hx_store_rules *rules)
{
    hx_arena arena = {0};
    size_t count = rules ? rules->count : 0;
    hx_slice *routes = hx_arena_zalloc(&arena, (count + 1) * sizeof *routes);
    int32_t *versions = hx_arena_zalloc(&arena, (count + 1) * sizeof *versions);
    for (size_t i = 0; i < count; i++) {
        routes[i] = rules->rules[i].route.len > 0 ? rules->rules[i].route : HX_EMPTY;
        versions[i] = (int32_t)rules->rules[i].version;
    }
    hx_put_texts(p, routes, count);
    hx_put_i32s(p, versions, count);
    hx_arena_free(&arena);
}

void hx_statement_fill(hx_lane *lane, const hx_statement *s)
{
    hx_parameters *p = lane->parameters;
    static const hx_store_call none;
    const hx_store_call *call = s->count > 0 ? s->calls[0] : &none;
    p->count = 0;
    switch (s->kind) {
    case HX_STATEMENT_RENEW:
        hx_put_bytes_of(p, s, op_of);
        hx_put_i64_of(p, s, epoch_of);
        hx_put_times_of(p, s, new_lease_of, atomic_load(&lane->store->server_ahead));
        break;
    case HX_STATEMENT_SETTLE: fill_settle(s, p); break;
    case HX_STATEMENT_CLAIM: fill_claim(lane, s, p); break;
    case HX_STATEMENT_IMPORT: fill_import(lane, s, p); break;
    case HX_STATEMENT_READ: hx_put_bytes_of(p, s, op_of); break;
    case HX_STATEMENT_FORGET:
        put_now(lane, p);
        hx_put_i64(p, ticket_of(call));
        hx_put_bytes(p, op_of(call));
        hx_put_i64(p, epoch_of(call));
        hx_put_i32(p, (int32_t)call->states);
        hx_put_text(p, call->reason);
        break;
    case HX_STATEMENT_LIST: fill_list(lane, call->page, p); break;
    case HX_STATEMENT_HISTORY:
    case HX_STATEMENT_HISTORY_OF_KEY:
        hx_put_bytes(p, call->page->has_key ? key_of(call->page) : op_of(call));
        hx_put_i64(p, (int64_t)call->page->cursor);
        hx_put_i32(p, (int32_t)call->page->records_max + 1);
        break;
    case HX_STATEMENT_SWEEP:
        put_now(lane, p);
        hx_put_i32(p, SWEEP_ROWS);
        break;
    case HX_STATEMENT_ENFORCE: put_rules(p, call->rules); break;
    case HX_STATEMENT_RETIRE:
        put_now(lane, p);
        hx_put_i64(p, (int64_t)lane->store->store.facts.owner);
        hx_put_i64(p, RETIRED_FOR);
        put_rules(p, call->rules);
        break;
    case HX_STATEMENT_RULES: put_now(lane, p); break;
    case HX_STATEMENT_ABANDON: hx_put_abandoned(p, lane->abandoned, lane->round.abandoned); break;
    case HX_STATEMENT_LOOK: hx_put_ops(p, lane->round.looks, lane->round.look_count); break;
    case HX_STATEMENT_TELL: hx_put_ops(p, lane->told, lane->round.told); break;
    case HX_STATEMENT_AWAIT: hx_put_ops(p, lane->awaited, lane->round.awaited); break;
    case HX_STATEMENT_SETUP: hx_put_i32(p, !lane->store->is_pooled); break;
    case HX_STATEMENT_LISTEN:
    case HX_STATEMENT_COUNT:
    case HX_STATEMENT_KINDS: break;
    }
}

/* False: the record's bytes can't be read, and the operation is as good as unknown. */
static bool show(const hx_lane *lane, const hx_statement *s, int row, hx_store_call *call)
{
    const hx_libpq *pq = lane->store->pq;
    call->found = (hx_record){.op = call->op};
    if (!hx_verdict_has_record(pq, s->result, row)) return true;
    if (hx_verdict_show(pq, s->result, row, lane->store->store.facts.now(), call->arena, &call->found)) return true;
    hx_log_begin(HX_EVENT_record_unreadable);
    hx_log_hex("operation", call->op.bytes, sizeof call->op.bytes);
    hx_log_end();
    call->found = (hx_record){.op = call->op, .state = HX_UNKNOWN};
    return false;
}

static void end_write(hx_lane *lane, const hx_statement *s, int row, hx_store_call *call)
{
    hx_postgres *p = lane->store;
    hx_store_result result = (hx_store_result)hx_verdict_of(p->pq, s->result, row);
    if (result == HX_STORE_OK) {
        if (s->kind == HX_STATEMENT_CLAIM) call->record->epoch = hx_verdict_epoch(p->pq, s->result, row);
        if (s->kind == HX_STATEMENT_SETTLE) {
            hx_pg_waiters_tell(p, call->record);
            if (hx_verdict_epoch(p->pq, s->result, row) == 1 && !hx_verdict_has_record(p->pq, s->result, row))
                hx_lane_tell(lane, &call->op);
        }
    } else {
        (void)show(lane, s, row, call);
        if (result == HX_STORE_STALE && s->kind != HX_STATEMENT_CLAIM) atomic_fetch_add(&p->stale_writes, 1);
    }
    hx_call_end(call, result);
}

static void end_read(hx_lane *lane, const hx_statement *s, int row, hx_store_call *call)
{
    if (row < 0)
        call->found = (hx_record){.op = call->op};
    else
        (void)show(lane, s, row, call);
    bool is_open = call->found.state == HX_PROCESSING && call->found.epoch == call->epoch;
    if (call->own.remote.is_cancelled)
        hx_call_end(call, HX_STORE_CANCELLED);
    else if (call->verb != HX_STORE_WATCH || !is_open)
        hx_call_end(call, HX_STORE_OK);
    else if (hx_pg_waiters_enter(lane->store, call))
        hx_lane_watch(lane, call);
    else
        hx_call_end(call, HX_STORE_FULL);
}

static void end_look(hx_lane *lane, const hx_statement *s)
{
    const hx_libpq *pq = lane->store->pq;
    hx_arena arena = {0};
    hx_record stands[HX_ROUND_CALLS_MAX];
    bool is_excess[HX_ROUND_CALLS_MAX] = {false};
    for (size_t i = 0; i < lane->round.look_count; i++) stands[i] = (hx_record){.op = lane->round.looks[i]};
    for (int row = 0; row < pq->ntuples(s->result); row++) {
        size_t place = hx_verdict_place(pq, s->result, row);
        if (place >= lane->round.look_count) continue;
        is_excess[place] = hx_verdict_of(pq, s->result, row) == HX_VERDICT_EXCESS;
        if (!is_excess[place] &&
            !hx_verdict_show(pq, s->result, row, lane->store->store.facts.now(), &arena, &stands[place]))
            stands[place] = (hx_record){.op = lane->round.looks[place], .state = HX_UNKNOWN};
    }
    for (size_t i = 0; i < lane->round.look_count; i++) {
        if (!is_excess[i]) hx_pg_waiters_tell(lane->store, &stands[i]);
        lane->will_look |= is_excess[i];
    }
    hx_arena_free(&arena);
}

/* Which row speaks of which call; -1: none does. */
static void end_each(hx_lane *lane, hx_statement *s)
{
    const hx_libpq *pq = lane->store->pq;
    int rows[HX_ROUND_CALLS_MAX];
    const size_t count = s->count;
    for (size_t i = 0; i < count; i++) rows[i] = -1;
    for (int row = 0; row < pq->ntuples(s->result); row++) {
        size_t place = hx_verdict_place(pq, s->result, row);
        if (place < count) rows[place] = row;
    }
    for (size_t i = 0; i < count; i++) {
        if (rows[i] >= 0 && hx_verdict_of(pq, s->result, rows[i]) == HX_VERDICT_EXCESS)
            hx_lane_ask_again(lane, s->calls[i]);
        else if (s->kind == HX_STATEMENT_READ)
            end_read(lane, s, rows[i], s->calls[i]);
        else if (rows[i] >= 0)
            end_write(lane, s, rows[i], s->calls[i]);
        else
            hx_lane_try_later(lane, s->calls[i]);
    }
}

static void end_page(hx_lane *lane, const hx_statement *s, hx_store_call *call)
{
    const hx_libpq *pq = lane->store->pq;
    hx_store_page *page = call->page;
    bool is_history = s->kind != HX_STATEMENT_LIST;
    uint64_t began = page->cursor;
    int rows = pq->ntuples(s->result);
    page->cursor = 0;
    for (int row = 0; row < rows; row++) {
        hx_record record;
        if (!hx_verdict_show(pq, s->result, row, is_history ? 0 : lane->store->store.facts.now(), call->arena, &record))
            continue;
        page->more = page->count == page->records_max;
        if (!page->more) {
            hx_store_page_add(page, call->arena, &record);
            continue;
        }
        for (size_t i = 0; i < 8; i++) page->cursor = page->cursor << 8 | record.op.bytes[i];
        if (is_history) page->cursor = began + page->records_max;
        break;
    }
    hx_call_end(call, HX_STORE_OK);
}

static void end_sweep(hx_lane *lane, const hx_statement *s, hx_store_call *call)
{
    const hx_libpq *pq = lane->store->pq;
    uint64_t gone = (uint64_t)hx_get_i64(pq, s->result, 0, 1);
    call->count += gone;
    atomic_fetch_add(&lane->store->cleaned, gone);
    call->own.remote.has_more = hx_get_i64(pq, s->result, 0, 0) == SWEEP_ROWS;
}

/* Leases end by the server's clock, which may be set, or be another server's by now. */
static void follow_clock(hx_postgres *p, hx_ms theirs)
{
    hx_ms ahead = theirs - hx_clock_now(), moved = ahead - atomic_load(&p->server_ahead);
    if (p->has_own_time || (moved < HX_SKEW_WORTH_SAYING && moved > -HX_SKEW_WORTH_SAYING)) return;
    atomic_store(&p->server_ahead, ahead);
    hx_log_begin(HX_EVENT_store_clock_set);
    hx_log_int("milliseconds", moved);
    hx_log_end();
}

static void take_counts(hx_postgres *p, const PGresult *result)
{
    follow_clock(p, hx_get_i64(p->pq, result, 0, 4));
    _Atomic uint64_t *const to[] = {&p->counted.live, &p->counted.processing, &p->counted.unknown, &p->counted.bytes};
    for (int i = 0; i < 4; i++) {
        int64_t number = hx_get_i64(p->pq, result, 0, i);
        atomic_store(to[i], number > 0 ? (uint64_t)number : 0);
    }
}

static void drop_first(hx_op *ops, size_t *count, size_t done)
{
    *count -= done;
    memmove(ops, ops + done, *count * sizeof *ops);
}

/* Those that were released are done with, and those whose statement can't come any more. */
static void end_abandon(hx_lane *lane, const hx_statement *s)
{
    const hx_libpq *pq = lane->store->pq;
    hx_ms now = hx_loop_now(lane->loop);
    size_t kept = 0;
    for (int row = 0; row < pq->ntuples(s->result); row++) {
        size_t place = hx_verdict_place(pq, s->result, row);
        if (place < lane->round.abandoned) lane->abandoned[place].until = 0;
    }
    for (size_t i = 0; i < lane->abandoned_count; i++)
        if (lane->abandoned[i].until > now) lane->abandoned[kept++] = lane->abandoned[i];
    lane->abandoned_count = kept;
    if (kept > 0) hx_lane_abandon_later(lane);
}

void hx_errand_failed(hx_lane *lane, const hx_statement *s)
{
    if (s->kind == HX_STATEMENT_ABANDON) hx_lane_abandon_later(lane);
    if (s->kind == HX_STATEMENT_TELL) lane->told_count = 0;
    if (s->kind == HX_STATEMENT_AWAIT) lane->awaited_count = 0;
    if (s->kind == HX_STATEMENT_LISTEN) lane->will_listen = false;
    if (s->kind == HX_STATEMENT_LOOK) lane->will_look = false; /* its timer brings the next */
}

void hx_statement_end(hx_lane *lane, hx_statement *s)
{
    switch (s->kind) {
    case HX_STATEMENT_RENEW:
    case HX_STATEMENT_SETTLE:
    case HX_STATEMENT_CLAIM:
    case HX_STATEMENT_IMPORT:
    case HX_STATEMENT_FORGET:
    case HX_STATEMENT_READ: end_each(lane, s); break;
    case HX_STATEMENT_LIST:
    case HX_STATEMENT_HISTORY:
    case HX_STATEMENT_HISTORY_OF_KEY: end_page(lane, s, s->calls[0]); break;
    case HX_STATEMENT_SWEEP: end_sweep(lane, s, s->calls[0]); break;
    case HX_STATEMENT_ENFORCE: hx_call_end(s->calls[0], HX_STORE_OK); break;
    case HX_STATEMENT_RETIRE: break; /* it ends with the count that follows */
    case HX_STATEMENT_RULES:
        hx_postgres_take_rules(lane->store, s->result);
        hx_call_end(s->calls[0], HX_STORE_OK);
        break;
    case HX_STATEMENT_COUNT:
        take_counts(lane->store, s->result);
        if (s->calls[0]->own.remote.has_more)
            hx_lane_submit(lane, s->calls[0]);
        else
            hx_call_end(s->calls[0], HX_STORE_OK);
        break;
    case HX_STATEMENT_ABANDON: end_abandon(lane, s); break;
    case HX_STATEMENT_TELL: drop_first(lane->told, &lane->told_count, lane->round.told); break;
    case HX_STATEMENT_AWAIT: drop_first(lane->awaited, &lane->awaited_count, lane->round.awaited); break;
    case HX_STATEMENT_SETUP:
        lane->will_set_up = false;
        hx_lane_say_that_it_works(lane);
        break;
    case HX_STATEMENT_LISTEN: lane->will_listen = false; break;
    case HX_STATEMENT_LOOK: end_look(lane, s); break;
    case HX_STATEMENT_KINDS: break;
    }
}
