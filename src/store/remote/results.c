/* SPDX-License-Identifier: Apache-2.0 */
/* What the results of committed statements mean for their calls, and for the lane. */
#include "store/remote/lane.h"

#include "base/log.h"

#include <string.h>

/* False: the record's bytes are damaged, and its operation counts as unknown. */
static bool show(const hx_lane *lane, const hx_statement *s, size_t row, bool has_record, hx_store_call *call)
{
    call->found = (hx_record){.op = call->op};
    if (!has_record) return true;
    hx_ms now = lane->store->store.facts.now();
    if (lane->store->driver->record(lane, s->result, row, now, call->arena, &call->found)) return true;
    hx_log_begin(HX_EVENT_record_unreadable);
    hx_log_hex("operation", call->op.bytes, sizeof call->op.bytes);
    hx_log_end();
    call->found = hx_record_unreadable(&call->op, 0);
    return false;
}

static void end_write(hx_lane *lane, const hx_statement *s, size_t row, const hx_remote_verdict *v, hx_store_call *call)
{
    if (v->result == HX_STORE_OK) {
        if (s->kind == HX_STATEMENT_CLAIM) call->record->epoch = v->epoch;
        if (s->kind == HX_STATEMENT_SETTLE) {
            hx_remote_waiters_notify(lane->store, call->record);
            if (v->epoch == 1 && !v->has_record) hx_upkeep_announce(lane, &call->op);
        }
    } else {
        (void)show(lane, s, row, v->has_record, call);
        bool is_stale = v->result == HX_STORE_STALE && s->kind != HX_STATEMENT_CLAIM;
        if (is_stale) atomic_fetch_add(&lane->store->stale_writes, 1);
    }
    hx_remote_end(call, v->result);
}

static void end_read(hx_lane *lane, hx_store_call *call)
{
    bool is_open = call->found.state == HX_PROCESSING && call->found.epoch == call->epoch;
    if (call->own.remote.is_cancelled)
        hx_remote_end(call, HX_STORE_CANCELLED);
    else if (call->verb != HX_STORE_WATCH || !is_open)
        hx_remote_end(call, HX_STORE_OK);
    else if (hx_remote_waiters_add(lane->store, call))
        hx_upkeep_watch(lane, call);
    else
        hx_remote_end(call, HX_STORE_FULL);
}

/* A call without a row: of a read, nothing is there; of a write, its row is locked and nothing was decided. */
static void end_each(hx_lane *lane, const hx_statement *s)
{
    const hx_driver *driver = lane->store->driver;
    size_t rows[HX_ROUND_CALLS_MAX];
    hx_link excess;
    hx_list_init(&excess);
    for (size_t i = 0; i < s->count; i++) rows[i] = SIZE_MAX;
    for (size_t row = 0; row < driver->row_count(lane, s->result); row++) {
        size_t place = driver->verdict(lane, s->result, row).place;
        if (place < s->count) rows[place] = row;
    }
    for (size_t i = 0; i < s->count; i++) {
        hx_store_call *call = s->calls[i];
        bool is_found = rows[i] != SIZE_MAX;
        hx_remote_verdict v = is_found ? driver->verdict(lane, s->result, rows[i]) : (hx_remote_verdict){0};
        if (v.is_excess) {
            call->own.remote.since = hx_loop_now(lane->loop); /* it is not in doubt, however long its turn takes */
            hx_list_append(&excess, &call->own.link);
        } else if (s->kind == HX_STATEMENT_READ) {
            (void)show(lane, s, rows[i], v.has_record, call);
            end_read(lane, call);
        } else if (is_found) {
            end_write(lane, s, rows[i], &v, call);
        } else {
            hx_lane_delay(lane, call);
        }
    }
    hx_lane_put_first(lane, &excess);
}

static void end_recheck(hx_lane *lane, const hx_statement *s)
{
    const hx_driver *driver = lane->store->driver;
    const hx_round *round = &lane->round;
    hx_arena arena = {0};
    hx_record found[HX_ROUND_CALLS_MAX];
    bool is_excess[HX_ROUND_CALLS_MAX] = {false};
    for (size_t i = 0; i < round->recheck_count; i++) found[i] = (hx_record){.op = round->rechecks[i]};
    for (size_t row = 0; row < driver->row_count(lane, s->result); row++) {
        hx_remote_verdict v = driver->verdict(lane, s->result, row);
        if (v.place >= round->recheck_count) continue;
        is_excess[v.place] = v.is_excess;
        hx_ms now = lane->store->store.facts.now();
        if (!v.is_excess && !driver->record(lane, s->result, row, now, &arena, &found[v.place]))
            found[v.place] = hx_record_unreadable(&round->rechecks[v.place], 0);
    }
    for (size_t i = 0; i < round->recheck_count; i++) {
        if (!is_excess[i]) hx_remote_waiters_notify(lane->store, &found[i]);
        lane->recheck_is_due |= is_excess[i];
    }
    hx_arena_free(&arena);
}

static void end_page(hx_lane *lane, const hx_statement *s, hx_store_call *call)
{
    const hx_driver *driver = lane->store->driver;
    hx_store_page *page = call->page;
    bool is_history = s->kind != HX_STATEMENT_LIST;
    hx_ms now = is_history ? 0 : lane->store->store.facts.now();
    uint64_t began = page->cursor;
    page->cursor = 0;
    for (size_t row = 0; row < driver->row_count(lane, s->result); row++) {
        hx_record record;
        if (!driver->record(lane, s->result, row, now, call->arena, &record)) continue;
        page->more = page->count == page->records_max;
        if (!page->more) {
            hx_store_page_add(page, call->arena, &record);
            continue;
        }
        for (size_t i = 0; i < 8; i++) page->cursor = page->cursor << 8 | record.op.bytes[i];
        if (is_history) page->cursor = began + page->records_max;
        break;
    }
    hx_remote_end(call, HX_STORE_OK);
}

/* Columns: the rows that it looked at, the operations and items that it removed. */
static void end_sweep(hx_lane *lane, const hx_statement *s, hx_store_call *call)
{
    const hx_driver *driver = lane->store->driver;
    uint64_t removed = (uint64_t)driver->number(lane, s->result, 0, 1);
    call->count += removed;
    atomic_fetch_add(&lane->store->cleaned, removed);
    call->own.remote.has_more = driver->number(lane, s->result, 0, 0) == HX_SWEEP_ROWS;
}

/* Leases end by the server's clock, which may be set, or be another server's after a failover. */
static void follow_clock(hx_remote *r, hx_ms theirs)
{
    hx_ms ahead = theirs - hx_clock_now(), moved = ahead - atomic_load(&r->server_ahead);
    if (r->has_own_time || (moved < HX_SKEW_WORTH_SAYING && moved > -HX_SKEW_WORTH_SAYING)) return;
    atomic_store(&r->server_ahead, ahead);
    hx_log_begin(HX_EVENT_store_clock_set);
    hx_log_int("milliseconds", moved);
    hx_log_end();
}

/* Columns: live, processing, unknown, bytes, the server's time. */
static void end_count(hx_lane *lane, const hx_statement *s, hx_store_call *call)
{
    hx_remote *r = lane->store;
    follow_clock(r, r->driver->number(lane, s->result, 0, 4));
    _Atomic uint64_t *const to[] = {&r->counted.live, &r->counted.processing, &r->counted.unknown, &r->counted.bytes};
    for (unsigned i = 0; i < 4; i++) {
        int64_t number = r->driver->number(lane, s->result, 0, i);
        atomic_store(to[i], number > 0 ? (uint64_t)number : 0);
    }
    if (call->own.remote.has_more)
        hx_lane_submit(lane, call);
    else
        hx_remote_end(call, HX_STORE_OK);
}

/* Columns: route, version, live. */
static void end_rules(hx_lane *lane, const hx_statement *s, hx_store_call *call)
{
    const hx_driver *driver = lane->store->driver;
    hx_arena arena = {0};
    hx_store_rules rules = {0};
    for (size_t row = 0; row < driver->row_count(lane, s->result); row++)
        hx_store_rules_add(&rules, &arena, driver->text(lane, s->result, row, 0),
                           (uint32_t)driver->number(lane, s->result, row, 1),
                           (uint64_t)driver->number(lane, s->result, row, 2));
    hx_remote_set_rules(lane->store, arena, rules);
    hx_remote_end(call, HX_STORE_OK);
}

/* Column: the place, from 1, of a claim that was released. The others are kept until their statements can't arrive any
 * more. */
static void end_abandon(hx_lane *lane, const hx_statement *s)
{
    const hx_driver *driver = lane->store->driver;
    hx_ms now = hx_loop_now(lane->loop);
    size_t kept = 0;
    for (size_t row = 0; row < driver->row_count(lane, s->result); row++) {
        size_t place = (size_t)driver->number(lane, s->result, row, 0) - 1;
        if (place < lane->round.abandoned) lane->abandoned[place].until = 0;
    }
    for (size_t i = 0; i < lane->abandoned_count; i++)
        if (lane->abandoned[i].until > now) lane->abandoned[kept++] = lane->abandoned[i];
    lane->abandoned_count = kept;
    if (kept > 0) hx_upkeep_abandon_again(lane);
}

static void drop_first(hx_op *ops, size_t *count, size_t done)
{
    *count -= done;
    memmove(ops, ops + done, *count * sizeof *ops);
}

void hx_result_apply(hx_lane *lane, const hx_statement *s)
{
    switch (s->kind) {
    case HX_STATEMENT_CLAIM:
    case HX_STATEMENT_RENEW:
    case HX_STATEMENT_SETTLE:
    case HX_STATEMENT_IMPORT:
    case HX_STATEMENT_FORGET:
    case HX_STATEMENT_READ: end_each(lane, s); break;
    case HX_STATEMENT_COMMIT: hx_items_end_commits(lane, s); break;
    case HX_STATEMENT_GET: hx_items_end_gets(lane, s); break;
    case HX_STATEMENT_SCAN: hx_items_end_scan(lane, s); break;
    case HX_STATEMENT_LIST:
    case HX_STATEMENT_HISTORY:
    case HX_STATEMENT_HISTORY_OF_KEY: end_page(lane, s, s->calls[0]); break;
    case HX_STATEMENT_SWEEP: end_sweep(lane, s, s->calls[0]); break;
    case HX_STATEMENT_COUNT: end_count(lane, s, s->calls[0]); break;
    case HX_STATEMENT_ENFORCE: hx_remote_end(s->calls[0], HX_STORE_OK); break;
    case HX_STATEMENT_RETIRE: break; /* RULES ends its call */
    case HX_STATEMENT_RULES: end_rules(lane, s, s->calls[0]); break;
    case HX_STATEMENT_ABANDON: end_abandon(lane, s); break;
    case HX_STATEMENT_ANNOUNCE:
        drop_first(lane->announcements, &lane->announcement_count, lane->round.announced);
        break;
    case HX_STATEMENT_AWAIT: drop_first(lane->awaited, &lane->awaited_count, lane->round.awaited); break;
    case HX_STATEMENT_SETUP: hx_lane_works(lane); break;
    case HX_STATEMENT_LISTEN: lane->needs_listen = false; break;
    case HX_STATEMENT_RECHECK: end_recheck(lane, s); break;
    case HX_STATEMENT_KINDS: break;
    }
}
