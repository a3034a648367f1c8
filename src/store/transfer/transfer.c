/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation or item has a slot while it is in flight, with an arena for its response. The number of slots in use
 * follows the size of recent responses, so that large ones don't take all memory. Items come after all operations. */
#include "store/transfer/transfer.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "store/sync.h"
#include "store/transfer/unfinished.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MAX 256u
#define SLOTS_AT_FIRST 16u
#define BYTES_AT_ONCE (64u << 20)

typedef struct engine engine;

typedef struct slot {
    struct slot *next;
    engine *engine;
    hx_store_call call;
    hx_record record;
    bool was_processing;
    hx_item item;
    hx_arena arena;
} slot;

struct engine {
    hx_transfer *transfer;
    hx_task begin;
    bool clears; /* what `from` has is removed instead of moved */
    bool in_items;
    slot slots[SLOTS_MAX];
    slot *free;
    unsigned in_flight;
    size_t recent_bytes; /* size of the largest recent response */
    uint64_t seen;
    bool failed, at_end;
    /* the list of operations in the source store */
    hx_store_call list;
    hx_store_page page;
    hx_arena page_arena;
    size_t next;
    bool listing;
    /* pages of its items, in the same arena; a page is read when all of the one before have been moved */
    hx_item_page items;
    char after[HX_ITEM_KEY_MAX];
};

/* True where the result is HX_STORE_OK, or a sentence in `error`. */
static bool is_ok(hx_store_result result, const char *which, hx_error_text error)
{
    return result == HX_STORE_OK || hx_fail(error, "the %s store can't be used: %s", which,
                                            result == HX_STORE_FULL ? "it is full" : "it can't be reached");
}

static void fail(engine *e, const char *which, hx_store_result result)
{
    if (!e->failed) (void)is_ok(result, which, e->transfer->error);
    e->failed = true;
}

static void fail_with(engine *e, const char *sentence)
{
    if (!e->failed) (void)snprintf(e->transfer->error, sizeof e->transfer->error, "%s", sentence);
    e->failed = true;
}

static void fail_at(engine *e, const hx_record *record, const char *what)
{
    char id[2 * sizeof record->op.bytes];
    hx_buf hex = {.data = id, .cap = sizeof id, .max = sizeof id};
    hx_buf_put_hex(&hex, record->op.bytes, sizeof record->op.bytes);
    if (!e->failed)
        (void)snprintf(e->transfer->error, sizeof e->transfer->error, "operation %.*s %s", HX_FMT(hx_buf_slice(&hex)),
                       what);
    e->failed = true;
}

static void advance(engine *e);

static void give_back(slot *s)
{
    engine *e = s->engine;
    hx_arena_free(&s->arena);
    s->next = e->free;
    e->free = s;
    e->in_flight--;
    e->seen++;
    /* Operations may still be on their way when the first item is read. Nobody knows how many items there are. */
    if (!e->in_items || e->seen <= e->transfer->progress->total) hx_progress_at(e->transfer->progress, e->seen);
}

static void import_done(hx_store_call *call)
{
    slot *s = HX_OWNER(call, slot, call);
    hx_transfer *t = s->engine->transfer;
    if (call->result == HX_STORE_OK) {
        t->moved++;
        t->made_unknown += s->was_processing;
    } else if (call->result == HX_STORE_EXISTS) {
        fail_at(s->engine, &s->record, "is in the target already: another process writes to it");
    } else {
        fail(s->engine, "target", call->result);
    }
    give_back(s);
    advance(s->engine);
}

static void expect_bytes(engine *e, size_t bytes)
{
    size_t faded = e->recent_bytes / 16 * 15;
    e->recent_bytes = bytes > faded ? bytes : faded;
}

static void write_one(slot *s)
{
    engine *e = s->engine;
    hx_transfer *t = e->transfer;
    expect_bytes(e, s->record.answer.headers.len + s->record.answer.body.len);
    if (s->record.epoch > t->epoch) t->epoch = s->record.epoch;
    if (t->to_file) {
        if (!e->failed && !hx_backup_add(t->to_file, &s->record, t->error)) e->failed = true;
        t->moved++;
        give_back(s);
        return;
    }
    s->was_processing = s->record.state == HX_PROCESSING;
    /* The gateway that works on it can't settle it in the target. */
    if (s->was_processing) hx_lifecycle_change(&s->record, HX_UNKNOWN, t->reason, hx_store_about(t->to)->now());
    s->call = (hx_store_call){.loop = t->loop, .arena = &s->arena, .done = import_done};
    hx_store_import(t->to, &s->call, &s->record);
}

static void commit_done(hx_store_call *call)
{
    slot *s = HX_OWNER(call, slot, call);
    engine *e = s->engine;
    if (call->result == HX_STORE_OK)
        e->transfer->items++;
    else if (call->result != HX_STORE_STALE)
        fail(e, "target", call->result);
    else if (!e->clears)
        fail_with(e, "an item is in the target already: another process writes to it");
    give_back(s);
    advance(e);
}

/* Writes s->item to the target, or removes it. */
static void write_item(slot *s)
{
    engine *e = s->engine;
    hx_transfer *t = e->transfer;
    hx_store *to = e->clears ? t->from : t->to;
    expect_bytes(e, s->item.meta.len + s->item.body.len);
    if (t->to_file && !e->failed && !hx_backup_add_item(t->to_file, &s->item, t->error)) e->failed = true;
    if (to && !hx_store_about(to)->keeps_items)
        fail_with(e, "the source has items, of events and their deliveries, which the target can't keep");
    if (t->to_file || e->failed) {
        t->items++;
        give_back(s);
        return;
    }
    if (hx_slice_eq(s->item.key, HX_LIT(HX_ITEM_HOME))) s->item.meta = HX_LIT("{}");
    s->item.act = e->clears ? HX_ITEM_REMOVE : HX_ITEM_PUT;
    if (!e->clears) s->item.version = 0;
    s->call = (hx_store_call){.loop = t->loop, .arena = &s->arena, .done = commit_done};
    hx_store_commit(to, &s->call, &s->item, 1, false);
}

static void read_done(hx_store_call *call)
{
    slot *s = HX_OWNER(call, slot, call);
    engine *e = s->engine;
    s->record = call->found;
    if (call->result != HX_STORE_OK) fail(e, "source", call->result);
    /* Moved as it is, a record that can't be read back would look like any other unknown operation. */
    if (s->record.unreadable)
        fail_at(
            e, &s->record,
            "can't be read: the disk returned other bytes than were written. Use `hapax store salvage`, which saves "
            "everything that can be read");
    bool is_over = s->record.state == HX_ABSENT;
    e->transfer->ended += is_over;
    if (is_over || e->failed)
        give_back(s);
    else
        write_one(s);
    advance(e);
}

static void forget_done(hx_store_call *call)
{
    slot *s = HX_OWNER(call, slot, call);
    if (call->result != HX_STORE_OK && call->result != HX_STORE_STALE) fail(s->engine, "target", call->result);
    give_back(s);
    advance(s->engine);
}

static void list_done(hx_store_call *call)
{
    engine *e = HX_OWNER(call, engine, list);
    e->listing = false;
    e->next = 0;
    if (call->result != HX_STORE_OK) fail(e, e->clears ? "target" : "source", call->result);
    advance(e);
}

static void list_more(engine *e)
{
    bool first = e->page.records_max == 0;
    if (!first && !e->page.more) {
        e->in_items = hx_store_about(e->transfer->from)->keeps_items;
        e->at_end = !e->in_items;
        return;
    }
    if (first) e->page = (hx_store_page){.route = HX_EMPTY, .reason = HX_EMPTY, .records_max = HX_STORE_PAGE_MAX};
    hx_arena_free(&e->page_arena);
    e->list = (hx_store_call){.loop = e->transfer->loop, .arena = &e->page_arena, .done = list_done};
    e->listing = true;
    hx_store_list(e->transfer->from, &e->list, &e->page);
}

static void scan_more(engine *e)
{
    bool first = e->items.items_max == 0;
    if (!first && !e->items.more) {
        e->at_end = true;
        return;
    }
    hx_slice after = first || e->items.count == 0 ? HX_EMPTY : e->items.items[e->items.count - 1].key;
    memcpy(e->after, after.ptr, after.len);
    hx_arena_free(&e->page_arena);
    e->items = (hx_item_page){.prefix = HX_EMPTY,
                              .with_bodies = !e->clears,
                              .after.key = {e->after, after.len},
                              .items_max = HX_ITEM_PAGE_MAX};
    e->list = (hx_store_call){.loop = e->transfer->loop, .arena = &e->page_arena, .done = list_done};
    e->listing = true;
    hx_store_scan(e->transfer->from, &e->list, &e->items);
}

static slot *take_slot(engine *e)
{
    slot *s = e->free;
    e->free = s->next;
    e->in_flight++;
    return s;
}

static void take_from_file(engine *e)
{
    slot *s = take_slot(e);
    hx_transfer *t = e->transfer;
    hx_backup_step step = hx_backup_next(t->from_file, &s->arena, &s->record, &s->item, t->error);
    hx_ms now = hx_store_about(t->to)->now();
    e->in_items = step == HX_BACKUP_ITEM;
    if (step == HX_BACKUP_RECORD && hx_store_state_at(&s->record, now) != HX_ABSENT) {
        write_one(s);
        return;
    }
    if (step == HX_BACKUP_ITEM && !hx_item_is_over(s->item.expires_at, now)) {
        write_item(s);
        return;
    }
    t->ended += step == HX_BACKUP_RECORD || step == HX_BACKUP_ITEM;
    e->at_end = step == HX_BACKUP_END;
    e->failed |= step == HX_BACKUP_DAMAGED;
    give_back(s);
}

static void take_from_page(engine *e)
{
    const hx_op *op = &e->page.records[e->next++].op;
    hx_store *from = e->transfer->from;
    if (hx_unfinished_is(op)) return;
    slot *s = take_slot(e);
    s->call = (hx_store_call){.loop = e->transfer->loop,
                              .arena = &s->arena,
                              .done = e->clears ? forget_done : read_done};
    if (e->clears)
        hx_store_forget(from, &s->call, op, 0, HX_LIT("unfinished, and filled from the beginning"));
    else
        hx_store_read(from, &s->call, op);
}

/* False: it waits for those in flight. */
static bool take_item(engine *e)
{
    if (e->next < e->items.count) {
        slot *s = take_slot(e);
        s->item = e->items.items[e->next++];
        write_item(s);
        return true;
    }
    if (e->in_flight > 0) return false;
    scan_more(e);
    return true;
}

static unsigned slots_now(const engine *e)
{
    if (e->seen < SLOTS_AT_FIRST) return SLOTS_AT_FIRST;
    size_t fit = BYTES_AT_ONCE / (e->recent_bytes + 1);
    return fit < 1 ? 1 : fit > SLOTS_MAX ? SLOTS_MAX : (unsigned)fit;
}

static void advance(engine *e)
{
    bool waits = false;
    while (!waits && !e->failed && !e->at_end && e->free && e->in_flight < slots_now(e) && !e->listing) {
        if (e->transfer->from_file)
            take_from_file(e);
        else if (e->in_items)
            waits = !take_item(e);
        else if (e->next < e->page.count)
            take_from_page(e);
        else
            list_more(e);
    }
    if (e->in_flight == 0 && !e->listing && (e->failed || e->at_end)) hx_loop_stop(e->transfer->loop);
}

static void begin(hx_task *task)
{
    advance(HX_OWNER(task, engine, begin));
}

static bool run(hx_transfer *transfer, bool clears)
{
    engine *e = calloc(1, sizeof *e);
    if (!e) hx_fatal(HX_EXIT_BUG, "out of memory");
    e->transfer = transfer;
    e->clears = clears;
    for (size_t i = 0; i < SLOTS_MAX; i++) {
        e->slots[i].engine = e;
        e->slots[i].next = e->free;
        e->free = &e->slots[i];
    }
    e->begin.run = begin;
    hx_loop_post(transfer->loop, &e->begin);
    do hx_loop_run(transfer->loop);
    while (e->in_flight > 0 || e->listing || !(e->failed || e->at_end));
    bool ok = !e->failed;
    hx_arena_free(&e->page_arena);
    free(e);
    hx_progress_end(transfer->progress);
    return ok;
}

bool hx_transfer_run(hx_transfer *transfer)
{
    return run(transfer, false);
}

bool hx_transfer_clear(hx_store *store, hx_loop *loop, hx_progress_bar *progress, char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_transfer transfer = {.from = store, .loop = loop, .progress = progress};
    bool cleared = run(&transfer, true);
    if (!cleared) memcpy(error, transfer.error, HX_TRANSFER_ERROR_BYTES);
    return cleared;
}

static bool lies_between(const hx_tally *tally, hx_ms at)
{
    return at > 0 && hx_store_lapsed(at, tally->to) && !hx_store_lapsed(at, tally->from);
}

static void count_one(hx_tally *tally, const hx_record *record)
{
    hx_state state = record->state == HX_PROCESSING ? HX_UNKNOWN : hx_store_state_at(record, tally->from);
    if (hx_unfinished_is(&record->op) || state == HX_ABSENT) return;
    if (state != HX_UNKNOWN &&
        (lies_between(tally, record->expires_at) || lies_between(tally, record->tombstone_until)))
        tally->ending++;
    else
        tally->states[state]++;
}

static void count_item(hx_tally *tally, const hx_item *item)
{
    if (hx_item_is_over(item->expires_at, tally->from)) return;
    if (lies_between(tally, item->expires_at))
        tally->ending++;
    else
        tally->items++;
}

static bool tally_file(hx_tally *tally, hx_backup_reader *file, char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_record record;
    hx_item item;
    hx_backup_step step = HX_BACKUP_DAMAGED;
    if (!hx_backup_rewind(file, error)) return false;
    do {
        hx_arena arena = {0};
        step = hx_backup_next(file, &arena, &record, &item, error);
        if (step == HX_BACKUP_RECORD) count_one(tally, &record);
        if (step == HX_BACKUP_ITEM) count_item(tally, &item);
        hx_arena_free(&arena);
    } while (step == HX_BACKUP_RECORD || step == HX_BACKUP_ITEM);
    return step == HX_BACKUP_END;
}

/* Calls `see` for every record that the page's filter selects, until it returns false. */
static bool look_through(hx_loop *loop, hx_store *store, hx_store_page *page,
                         bool (*see)(void *user, const hx_record *), void *user, char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_store_result result = HX_STORE_OK;
    bool more = true;
    while (more) {
        hx_arena arena = {0};
        hx_awaited list;
        hx_await_begin(&list, loop, &arena);
        hx_store_list(store, &list.call, page);
        result = hx_await(&list);
        more = result == HX_STORE_OK && page->more;
        for (size_t i = 0; result == HX_STORE_OK && i < page->count; i++)
            if (!see(user, &page->records[i])) more = false;
        hx_arena_free(&arena);
    }
    return is_ok(result, hx_store_about(store)->name, error);
}

/* The same for items, without their bodies. */
static bool look_through_items(hx_loop *loop, hx_store *store, bool (*see)(void *user, const hx_item *), void *user,
                               char error[HX_TRANSFER_ERROR_BYTES])
{
    char after[HX_ITEM_KEY_MAX];
    hx_item_page page = {.prefix = HX_EMPTY, .items_max = HX_ITEM_PAGE_MAX};
    hx_store_result result = HX_STORE_OK;
    for (bool more = hx_store_about(store)->keeps_items; more;) {
        hx_arena arena = {0};
        hx_awaited scan;
        hx_await_begin(&scan, loop, &arena);
        hx_store_scan(store, &scan.call, &page);
        result = hx_await(&scan);
        more = result == HX_STORE_OK && page.more;
        for (size_t i = 0; result == HX_STORE_OK && i < page.count; i++) {
            if (!see(user, &page.items[i])) more = false;
            page.after.key = (hx_slice){after, page.items[i].key.len};
        }
        if (more) memcpy(after, page.items[page.count - 1].key.ptr, page.after.key.len);
        hx_arena_free(&arena);
    }
    return is_ok(result, hx_store_about(store)->name, error);
}

static hx_store_page page_of(unsigned states)
{
    return (hx_store_page){.states = states, .route = HX_EMPTY, .reason = HX_EMPTY, .records_max = HX_STORE_PAGE_MAX};
}

static bool see_for_tally(void *user, const hx_record *record)
{
    count_one(user, record);
    return true;
}

static bool see_item_for_tally(void *user, const hx_item *item)
{
    count_item(user, item);
    return true;
}

bool hx_tally_run(hx_tally *tally, hx_loop *loop, hx_store *store, hx_backup_reader *file,
                  char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_store_page page = page_of(0);
    memset(tally->states, 0, sizeof tally->states);
    tally->items = tally->ending = 0;
    if (!store) return tally_file(tally, file, error);
    return look_through(loop, store, &page, see_for_tally, tally, error) &&
           look_through_items(loop, store, see_item_for_tally, tally, error);
}

static bool see_whether_any(void *user, const hx_record *record)
{
    bool *empty = user;
    if (!hx_unfinished_is(&record->op)) *empty = false;
    return *empty;
}

static bool see_any_item(void *user, const hx_item *item)
{
    (void)item;
    return *(bool *)user = false;
}

bool hx_transfer_is_empty(hx_loop *loop, hx_store *store, bool *empty, char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_store_page page = page_of(0);
    page.records_max = 2;
    *empty = true;
    return look_through(loop, store, &page, see_whether_any, empty, error) &&
           look_through_items(loop, store, see_any_item, empty, error);
}

typedef struct {
    hx_ms now;
    uint64_t count;
} leased;

static bool see_for_lease(void *user, const hx_record *record)
{
    leased *found = user;
    found->count += record->state == HX_PROCESSING && record->lease_until > found->now;
    return true;
}

bool hx_transfer_leased(hx_loop *loop, hx_store *store, uint64_t *count, char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_store_page page = page_of(1u << HX_PROCESSING);
    leased found = {.now = hx_store_about(store)->now()};
    bool looked = look_through(loop, store, &page, see_for_lease, &found, error);
    *count = found.count;
    return looked;
}

bool hx_transfer_raise(hx_loop *loop, hx_store *store, uint64_t epoch, char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_arena arena = {0};
    hx_awaited import;
    hx_record nothing = {.epoch = epoch,
                         .state = HX_ABSENT,
                         .route = HX_EMPTY,
                         .correlation = HX_EMPTY,
                         .reason = HX_EMPTY,
                         .result = HX_EMPTY,
                         .answer = {.headers = HX_EMPTY, .body = HX_EMPTY}};
    memset(nothing.op.bytes, 0xff, sizeof nothing.op.bytes); /* another operation that no request can have */
    hx_await_begin(&import, loop, &arena);
    if (epoch > 0) hx_store_import(store, &import.call, &nothing);
    hx_store_result result = epoch > 0 ? hx_await(&import) : HX_STORE_OK;
    hx_arena_free(&arena);
    return is_ok(result, hx_store_about(store)->name, error);
}
