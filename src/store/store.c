/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in calls, checks what callers promise, and hands them to the backend. */
#include "store/backend.h"

#include "base/check.h"
#include "base/log.h"
#include "core/operation/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void submit(hx_store *store, hx_store_call *call, hx_store_verb verb, const hx_op *op, uint64_t epoch)
{
    HX_CHECK(call->loop != NULL && call->done != NULL);
    HX_CHECK(call->arena != NULL || verb == HX_STORE_SWEEP || verb == HX_STORE_RETIRE || verb == HX_STORE_ENFORCE);
    call->verb = verb;
    if (op) call->op = *op;
    call->epoch = epoch;
    call->found = (hx_record){0};
    call->count = 0;
    call->own.waiter.group = NULL;
    store->ops->submit(store, call);
}

void hx_store_claim(hx_store *store, hx_store_call *call, hx_record *record, uint64_t take_over)
{
    HX_CHECK(record->state == HX_PROCESSING);
    call->record = record;
    submit(store, call, HX_STORE_CLAIM, &record->op, take_over);
}

void hx_store_settle(hx_store *store, hx_store_call *call, hx_record *record)
{
    HX_CHECK(record->state != HX_PROCESSING && record->state != HX_EXPIRED);
    HX_CHECK(record->answer.headers.len + record->answer.body.len <= HX_STORE_ANSWER_MAX);
    call->record = record;
    call->unretained = false;
    submit(store, call, HX_STORE_SETTLE, &record->op, record->epoch);
}

void hx_store_renew(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch, hx_ms lease_until)
{
    call->lease_until = lease_until;
    submit(store, call, HX_STORE_RENEW, op, epoch);
}

void hx_store_watch(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch)
{
    submit(store, call, HX_STORE_WATCH, op, epoch);
}

/* Its first bytes that fit a record, with no character cut in two. */
static hx_slice cut_reason(hx_slice reason)
{
    if (reason.len <= HX_RECORD_TEXT_MAX) return reason;
    size_t len = HX_RECORD_TEXT_MAX;
    while (len > 0 && ((unsigned char)reason.ptr[len] & 0xc0) == 0x80) len--;
    return hx_slice_first(reason, len);
}

void hx_store_forget(hx_store *store, hx_store_call *call, const hx_op *op, uint64_t epoch, hx_slice reason)
{
    call->reason = reason.len > 0 ? cut_reason(reason) : HX_LIT("forgotten");
    submit(store, call, HX_STORE_FORGET, op, epoch);
}

static void submit_page(hx_store *store, hx_store_call *call, hx_store_verb verb, const hx_op *op, hx_store_page *page)
{
    HX_CHECK(page->records_max > 0 && page->records_max <= HX_STORE_PAGE_MAX);
    page->records = NULL;
    page->count = 0;
    page->more = false;
    call->page = page;
    submit(store, call, verb, op, 0);
}

void hx_store_list(hx_store *store, hx_store_call *call, hx_store_page *page)
{
    submit_page(store, call, HX_STORE_LIST, NULL, page);
}

void hx_store_history(hx_store *store, hx_store_call *call, const hx_op *op, hx_store_page *page)
{
    HX_CHECK(page->has_key == !op);
    submit_page(store, call, HX_STORE_HISTORY, op, page);
}

static bool is_on_path(const hx_store_page *page, const hx_record *record)
{
    if (record->rule_version & HX_RULE_NAMED) return false;
    for (size_t i = 0; i < page->path_count; i++)
        if (hx_slice_eq(page->paths[i], record->route)) return true;
    return false;
}

static bool has_key(const hx_store_page *page, const hx_record *record)
{
    return memcmp(&record->key, &page->key, sizeof page->key) == 0;
}

bool hx_store_history_wants(const hx_store_call *call, const hx_record *record)
{
    return call->page->has_key ? has_key(call->page, record) : hx_op_eq(&record->op, &call->op);
}

bool hx_store_page_wants(const hx_store_page *page, const hx_record *record)
{
    if (page->states != 0 && !(page->states >> record->state & 1)) return false;
    if (page->route.len > 0 && !hx_slice_eq(record->route, page->route)) return false;
    if (page->path_count > 0 && !is_on_path(page, record)) return false;
    if (page->reason.len > 0 && !hx_slice_starts(record->reason, page->reason)) return false;
    if (record->changed_at < page->changed_from) return false;
    if (page->changed_before > 0 && record->changed_at >= page->changed_before) return false;
    return !page->has_key || has_key(page, record);
}

void hx_store_rules_add(hx_store_rules *rules, hx_arena *arena, hx_slice route, uint32_t version, uint64_t live)
{
    for (size_t i = 0; i < rules->count; i++) {
        hx_store_rule *known = &rules->rules[i];
        if (known->version != version || !hx_slice_eq(known->route, route)) continue;
        known->live += live;
        return;
    }
    if (rules->count == rules->cap) {
        size_t cap = rules->cap > 0 ? rules->cap * 2 : 16;
        hx_store_rule *wider = hx_arena_alloc(arena, cap * sizeof *wider);
        if (rules->count > 0) memcpy(wider, rules->rules, rules->count * sizeof *wider);
        rules->rules = wider;
        rules->cap = cap;
    }
    rules->rules[rules->count++] = (hx_store_rule){hx_arena_copy(arena, route), version, live};
}

bool hx_store_is_retired(const hx_store_rules *rules, const hx_record *record)
{
    for (size_t i = 0; rules && i < rules->count; i++) {
        const hx_store_rule *rule = &rules->rules[i];
        bool any = rule->route.len == 0 && !(rule->version & HX_RULE_NAMED);
        if (rule->version == record->rule_version && (any || hx_slice_eq(rule->route, record->route))) return true;
    }
    return false;
}

void hx_store_page_add(hx_store_page *page, hx_arena *arena, const hx_record *record)
{
    HX_CHECK(page->count < page->records_max);
    if (!page->records) page->records = hx_arena_alloc(arena, page->records_max * sizeof *page->records);
    hx_record *to = &page->records[page->count++];
    *to = *record;
    to->route = hx_arena_copy(arena, record->route);
    to->correlation = hx_arena_copy(arena, record->correlation);
    to->key_parameters = hx_arena_copy(arena, record->key_parameters);
    to->reason = hx_arena_copy(arena, record->reason);
    to->result = hx_arena_copy(arena, record->result);
    to->answer.headers = to->answer.body = HX_EMPTY;
}

void hx_store_page_offer(hx_store_page *page, hx_arena *arena, const hx_record *record, uint64_t cursor)
{
    page->more = page->count == page->records_max;
    if (page->more)
        page->cursor = cursor;
    else
        hx_store_page_add(page, arena, record);
}

#define CLOCK_AHEAD_MAX (400 * HX_DAY)

/* A stop of weeks and a wrong clock look the same: nothing is forgotten before the clock is known to be right. */
static void say_clock(hx_log_event event, hx_ms by)
{
    hx_log_begin(event);
    hx_log_int("hours", by / HX_HOUR);
    hx_log_end();
}

bool hx_store_follow_wall(const hx_store_options *options, hx_ms stamp, hx_error_text error)
{
    hx_ms ahead = stamp > 0 ? hx_clock_wall() - stamp : 0;
    bool is_far = ahead > CLOCK_AHEAD_MAX, is_trusted = hx_clock_is_synchronised();
    if (is_far && options->check_clock)
        return hx_fail(error,
                       "the clock is %lld days ahead of the last change in the store: set it right, or start with "
                       "--accept-clock if so much time has really passed",
                       (long long)(ahead / HX_DAY));
    if (ahead > HX_DAY && options->check_clock) {
        say_clock(is_trusted ? HX_EVENT_clock_ahead : HX_EVENT_clock_ahead_unproven, ahead);
        if (!is_trusted && options->moves_clock) hx_clock_hold(ahead, false);
    } else if (ahead < -HX_DAY) {
        /* An earlier start had a wrong clock. What was answered before it keeps its lifetime by the right one. */
        bool is_held = is_trusted && ahead >= -CLOCK_AHEAD_MAX;
        say_clock(is_held ? HX_EVENT_clock_behind_held : HX_EVENT_clock_behind, -ahead);
        if (is_held && options->moves_clock) hx_clock_hold(-ahead, true);
    }
    if (options->moves_clock) hx_clock_raise(stamp);
    return true;
}

static hx_transition transition_of(const hx_store_call *call, hx_stored stored)
{
    switch (call->verb) {
    case HX_STORE_CLAIM: return hx_lifecycle_claim(stored, call->epoch);
    case HX_STORE_SETTLE: return hx_lifecycle_settle(stored, call->epoch, call->record->state);
    case HX_STORE_RENEW: return hx_lifecycle_renew(stored, call->epoch);
    case HX_STORE_FORGET: return hx_lifecycle_forget(stored, call->epoch, call->states);
    case HX_STORE_IMPORT: return hx_lifecycle_import(stored);
    default: hx_check_failed(__FILE__, __LINE__, "a call that changes an operation");
    }
}

hx_store_result hx_store_decide(const hx_store_call *call, hx_stored stored)
{
    static const hx_store_result results[] = {[HX_TRANSITION_WRITE] = HX_STORE_OK,
                                              [HX_TRANSITION_EXISTS] = HX_STORE_EXISTS,
                                              [HX_TRANSITION_STALE] = HX_STORE_STALE};
    return results[transition_of(call, stored)];
}

void hx_store_sweep(hx_store *store, hx_store_call *call)
{
    submit(store, call, HX_STORE_SWEEP, NULL, 0);
}

void hx_store_retire(hx_store *store, hx_store_call *call, const hx_store_rules *rules)
{
    call->rules = rules;
    submit(store, call, HX_STORE_RETIRE, NULL, 0);
}

static void done_here(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    call->done(call);
}

/* Ends a call for which the backend isn't needed; not inside the call that started it. */
static void end_here(hx_store_call *call, hx_store_verb verb)
{
    HX_CHECK(call->loop != NULL && call->done != NULL);
    call->verb = verb;
    call->result = HX_STORE_OK;
    call->own.task.run = done_here;
    hx_loop_defer(call->loop, &call->own.task);
}

void hx_store_read(hx_store *store, hx_store_call *call, const hx_op *op)
{
    call->found = (hx_record){.op = *op};
    switch (hx_store_peek_large(store, op, call->arena, call->whole_max, &call->found)) {
    case HX_PEEK_FOUND: end_here(call, HX_STORE_READ); return;
    case HX_PEEK_ABSENT:
        call->found = (hx_record){.op = *op};
        end_here(call, HX_STORE_READ);
        return;
    case HX_PEEK_ASK: submit(store, call, HX_STORE_READ, op, 0); return;
    }
}

void hx_store_enforce(hx_store *store, hx_store_call *call, const hx_store_rules *rules)
{
    call->rules = rules;
    if (store->facts.shared)
        submit(store, call, HX_STORE_ENFORCE, NULL, 0);
    else
        end_here(call, HX_STORE_ENFORCE);
}

void hx_store_import(hx_store *store, hx_store_call *call, hx_record *record)
{
    call->record = record;
    submit(store, call, HX_STORE_IMPORT, &record->op, record->epoch);
}

bool hx_store_last_epoch(hx_store *store, uint64_t *epoch, hx_error_text error)
{
    return store->ops->last_epoch(store, epoch, error);
}

static int by_key(const void *a, const void *b)
{
    const hx_item *one = a, *other = b;
    return hx_slice_compare(one->key, other->key);
}

void hx_store_commit(hx_store *store, hx_store_call *call, hx_item *items, size_t count, bool urgent)
{
    size_t bytes = 0;
    HX_CHECK(store->facts.keeps_items && count > 0 && count <= HX_COMMIT_ITEMS_MAX);
    qsort(items, count, sizeof *items, by_key);
    for (size_t i = 0; i < count; i++) {
        const hx_item *item = &items[i];
        HX_CHECK(item->key.len > 0 && item->key.len <= HX_ITEM_KEY_MAX && item->queue.len <= HX_ITEM_QUEUE_MAX);
        HX_CHECK(item->meta.len <= HX_ITEM_META_MAX && item->body.len <= HX_ITEM_BODY_MAX && item->due >= 0);
        HX_CHECK(i == 0 || !hx_slice_eq(item->key, items[i - 1].key));
        bytes += item->key.len + item->queue.len + item->meta.len + item->body.len;
    }
    HX_CHECK(bytes <= HX_COMMIT_BYTES_MAX);
    call->items = items;
    call->item_count = count;
    call->urgent = urgent;
    call->version = 0;
    call->stale = NULL;
    submit(store, call, HX_STORE_COMMIT, NULL, 0);
}

void hx_store_get(hx_store *store, hx_store_call *call, hx_item *items, size_t count)
{
    HX_CHECK(store->facts.keeps_items && count > 0 && count <= HX_COMMIT_ITEMS_MAX);
    call->items = items;
    call->item_count = count;
    submit(store, call, HX_STORE_GET, NULL, 0);
}

void hx_store_scan(hx_store *store, hx_store_call *call, hx_item_page *page)
{
    HX_CHECK(store->facts.keeps_items && page->items_max > 0 && page->items_max <= HX_ITEM_PAGE_MAX);
    HX_CHECK(!page->one_per_queue || (page->by_queue && !page->backwards));
    page->items = NULL;
    page->count = page->bytes = 0;
    page->more = false;
    call->item_page = page;
    submit(store, call, HX_STORE_SCAN, NULL, 0);
}

hx_item *hx_item_page_add(hx_item_page *page, hx_arena *arena, size_t bytes)
{
    page->more = page->count == page->items_max || (page->count > 0 && page->bytes + bytes > HX_ITEM_PAGE_BYTES);
    if (page->more) return NULL;
    if (!page->items) page->items = hx_arena_alloc(arena, page->items_max * sizeof *page->items);
    page->bytes += bytes;
    hx_item *item = &page->items[page->count++];
    *item = (hx_item){.key = HX_EMPTY, .queue = HX_EMPTY, .meta = HX_EMPTY, .body = HX_EMPTY};
    return item;
}

void hx_store_cancel(hx_store *store, hx_store_call *call)
{
    if (call->verb == HX_STORE_WATCH) store->ops->cancel(store, call);
}

hx_peek hx_store_peek(hx_store *store, const hx_op *op, hx_arena *arena, hx_record *found)
{
    return store->ops->peek(store, op, arena, 0, found);
}

hx_peek hx_store_peek_large(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found)
{
    return store->ops->peek(store, op, arena, whole_max, found);
}

void hx_store_attach(hx_store *store, hx_loop *loop)
{
    store->ops->attach(store, loop);
}

const hx_store_facts *hx_store_about(const hx_store *store)
{
    return &store->facts;
}

void hx_store_count(hx_store *store, hx_store_counts *out)
{
    store->ops->count(store, out);
    out->job_conflicts = store->conflicts_kept + store->conflicts_new;
}

void hx_store_note_conflict(hx_store *store)
{
    store->conflicts_new++;
}

uint64_t hx_store_new_conflicts(hx_store *store)
{
    return store->conflicts_new;
}

void hx_store_keep_conflicts(hx_store *store, uint64_t kept, uint64_t added)
{
    store->conflicts_kept = kept;
    store->conflicts_new -= added;
}

void hx_store_rules_of(hx_store *store, hx_arena *arena, hx_store_rules *out)
{
    store->ops->rules(store, arena, out);
}

uint64_t hx_store_live_at_most(hx_store *store, hx_slice route)
{
    return store->ops->live_at_most(store, route);
}

bool hx_store_limit(hx_store *store, const hx_store_options *options, hx_error_text error)
{
    return store->ops->limit(store, options, error);
}

void hx_store_close(hx_store **owned)
{
    if (!*owned) return;
    (*owned)->ops->close(*owned);
    *owned = NULL;
}
