/* SPDX-License-Identifier: Apache-2.0 */
/* The SQL of each statement, and its parameters. */
#include "store/postgres/migrate.h"
#include "store/postgres/postgres.h"

#include <stdlib.h>

const char *const hx_postgres_sql[] = {
    /* NOLINTNEXTLINE(bugprone-suspicious-missing-comma) */
    [HX_STATEMENT_CLAIM] = "SELECT * FROM hapax.claim_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
                           "$14)",
    [HX_STATEMENT_RENEW] = "SELECT * FROM hapax.renew_many($1, $2, $3)",
    [HX_STATEMENT_SETTLE] = "SELECT * FROM hapax.settle_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
                            "$14, $15)",
    [HX_STATEMENT_IMPORT] = "SELECT * FROM hapax.import_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
                            "$14, $15, $16, $17, $18, $19, $20)",
    [HX_STATEMENT_READ] = "SELECT * FROM hapax.read_many($1)",
    [HX_STATEMENT_COMMIT] = "SELECT * FROM hapax.commit_many($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    [HX_STATEMENT_GET] = "SELECT * FROM hapax.get_many($1, $2, $3)",
    [HX_STATEMENT_SCAN] = "SELECT * FROM hapax.scan($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
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
    [HX_STATEMENT_SETUP] = "SELECT version, " HX_POSTGRES_FORGETS ", " HX_POSTGRES_DIGEST
                           ", CASE WHEN $1 = 1 THEN set_config('tcp_keepalives_idle', '10', false) || "
                           "set_config('tcp_keepalives_interval', '5', false) || "
                           "set_config('tcp_keepalives_count', '3', false) || "
                           "set_config('client_min_messages', 'warning', false) END FROM hapax.store s",
    [HX_STATEMENT_LISTEN] = "LISTEN hapax",
    [HX_STATEMENT_AWAIT] = "SELECT hapax.await_many($1)",
    [HX_STATEMENT_ANNOUNCE] = "SELECT hapax.tell_many($1)",
    [HX_STATEMENT_RECHECK] = "SELECT * FROM hapax.read_many($1)",
};

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
/* A release keeps no response. */
FIELD(hx_slice, headers_of, r->state == HX_ABSENT ? HX_EMPTY : r->answer.headers)
FIELD(hx_slice, body_of, r->state == HX_ABSENT ? HX_EMPTY : r->answer.body)
#undef FIELD

/* NULL: the server's own time. A test brings its own. */
static void put_now(const hx_lane *lane, hx_parameters *p)
{
    if (lane->store->has_own_time)
        hx_put_i64(p, lane->store->store.facts.now());
    else
        hx_put_null(p, HX_OID_INT8);
}

/* The time after which the server refuses the statement. */
static void put_not_after(const hx_lane *lane, hx_parameters *p)
{
    hx_ms ahead = atomic_load(&lane->store->server_ahead);
    hx_put_i64(p, lane->store->store.facts.now() + ahead + HX_CLAIM_IS_LATE);
}

static void fill_claim(const hx_lane *lane, const hx_statement *s, hx_parameters *p)
{
    put_now(lane, p);
    put_not_after(lane, p);
    hx_put_bytes_of(p, s, op_of);
    hx_put_i64_of(p, s, ticket_of);
    hx_put_i64_of(p, s, epoch_of);
    hx_put_i64_of(p, s, changed_of);
    hx_put_times_of(p, s, lease_of, atomic_load(&lane->store->server_ahead));
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

#define FIELD(type, name, expression)                                                                                  \
    static type name(const hx_item *item)                                                                              \
    {                                                                                                                  \
        return expression;                                                                                             \
    }
FIELD(hx_slice, item_key_of, item->key)
FIELD(hx_slice, queue_of, item->queue)
FIELD(hx_slice, meta_of, item->meta)
FIELD(hx_slice, item_body_of, item->body)
FIELD(int64_t, item_version_of, (int64_t)item->version)
FIELD(int64_t, act_of, item->act)
FIELD(int64_t, due_of, item->due)
FIELD(int64_t, item_expiry_of, item->expires_at)
#undef FIELD

typedef struct {
    const hx_item *item;
    int32_t call; /* its place in the statement, from 1 */
} placed_item;

static int by_key(const void *a, const void *b)
{
    return hx_slice_compare(((const placed_item *)a)->item->key, ((const placed_item *)b)->item->key);
}

/* Puts the places of the calls, and returns their items, in the same order: as they come, or sorted by key. */
static const hx_item **put_places(const hx_statement *s, bool is_sorted, hx_arena *arena, hx_parameters *p,
                                  size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < s->count; i++) *count += s->calls[i]->item_count;
    placed_item *placed = hx_arena_alloc(arena, *count * sizeof *placed), *next = placed;
    for (size_t i = 0; i < s->count; i++)
        for (size_t k = 0; k < s->calls[i]->item_count; k++)
            *next++ = (placed_item){&s->calls[i]->items[k], (int32_t)i + 1};
    if (is_sorted && s->count > 1) qsort(placed, *count, sizeof *placed, by_key);
    const hx_item **items = hx_arena_alloc(arena, *count * sizeof(const hx_item *));
    int32_t *calls = hx_arena_alloc(arena, *count * sizeof *calls);
    for (size_t i = 0; i < *count; i++) {
        items[i] = placed[i].item;
        calls[i] = placed[i].call;
    }
    hx_put_i32s(p, calls, *count);
    return items;
}

static void fill_commit(const hx_lane *lane, const hx_statement *s, hx_parameters *p)
{
    hx_arena arena = {0};
    size_t count;
    put_now(lane, p);
    put_not_after(lane, p);
    hx_put_i64_of(p, s, ticket_of);
    const hx_item **items = put_places(s, true, &arena, p, &count);
    hx_put_bytes_of_items(p, items, count, item_key_of);
    hx_put_i64_of_items(p, items, count, item_version_of);
    hx_put_i64_of_items(p, items, count, act_of);
    hx_put_bytes_of_items(p, items, count, queue_of);
    hx_put_i64_of_items(p, items, count, due_of);
    hx_put_i64_of_items(p, items, count, item_expiry_of);
    hx_put_text_of_items(p, items, count, meta_of);
    hx_put_bytes_of_items(p, items, count, item_body_of);
    hx_arena_free(&arena);
}

static void fill_get(const hx_lane *lane, const hx_statement *s, hx_parameters *p)
{
    hx_arena arena = {0};
    size_t count;
    put_now(lane, p);
    const hx_item **items = put_places(s, false, &arena, p, &count);
    hx_put_bytes_of_items(p, items, count, item_key_of);
    hx_arena_free(&arena);
}

static void fill_scan(const hx_lane *lane, const hx_item_page *page, hx_parameters *p)
{
    put_now(lane, p);
    hx_put_i32(p, (int32_t)page->items_max);
    hx_put_bool(p, page->by_queue);
    hx_put_bool(p, page->backwards);
    hx_put_bool(p, page->one_per_queue);
    hx_put_bool(p, page->with_bodies);
    hx_put_bytes(p, page->prefix);
    hx_put_i64(p, page->due_until);
    if (page->after.key.len > 0) {
        hx_put_bytes(p, page->after.queue);
        hx_put_i64(p, page->after.due);
        hx_put_bytes(p, page->after.key);
    } else {
        hx_put_null(p, HX_OID_BYTEA);
        hx_put_null(p, HX_OID_INT8);
        hx_put_null(p, HX_OID_BYTEA);
    }
}

static hx_slice key_of(const hx_store_page *page)
{
    return (hx_slice){(const char *)page->key.bytes, sizeof page->key.bytes};
}

static void fill_list(const hx_lane *lane, const hx_store_page *page, hx_parameters *p)
{
    uint8_t after[8]; /* a cursor is the first bytes of an operation */
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

void hx_postgres_fill(const hx_lane *lane, const hx_statement *s, hx_parameters *p)
{
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
    case HX_STATEMENT_COMMIT: fill_commit(lane, s, p); break;
    case HX_STATEMENT_GET: fill_get(lane, s, p); break;
    case HX_STATEMENT_SCAN: fill_scan(lane, call->item_page, p); break;
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
        hx_put_i32(p, HX_SWEEP_ROWS);
        break;
    case HX_STATEMENT_ENFORCE: put_rules(p, call->rules); break;
    case HX_STATEMENT_RETIRE:
        put_now(lane, p);
        hx_put_i64(p, (int64_t)lane->store->store.facts.owner);
        hx_put_i64(p, HX_RETIRED_FOR);
        put_rules(p, call->rules);
        break;
    case HX_STATEMENT_RULES: put_now(lane, p); break;
    case HX_STATEMENT_ABANDON: hx_put_abandoned(p, lane->abandoned, lane->round.abandoned); break;
    case HX_STATEMENT_RECHECK: hx_put_ops(p, lane->round.rechecks, lane->round.recheck_count); break;
    case HX_STATEMENT_ANNOUNCE: hx_put_ops(p, lane->announcements, lane->round.announced); break;
    case HX_STATEMENT_AWAIT: hx_put_ops(p, lane->awaited, lane->round.awaited); break;
    case HX_STATEMENT_SETUP: hx_put_i32(p, !lane->store->is_pooled); break;
    case HX_STATEMENT_LISTEN:
    case HX_STATEMENT_COUNT:
    case HX_STATEMENT_KINDS: break;
    }
}
