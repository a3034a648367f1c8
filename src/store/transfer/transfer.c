/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation has a slot while it is on its way, with an arena for its answer. How many there are at once follows
 * from how large the answers were lately, so that large ones don't take all memory. */
#include "store/transfer/transfer.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "store/transfer/unfinished.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MAX 256u
#define SLOTS_AT_FIRST 16u
#define BYTES_AT_ONCE (64u << 20)

typedef struct course course;

typedef struct slot {
    struct slot *next;
    course *course;
    hx_store_call call;
    hx_record record;
    bool was_processing;
    hx_arena arena;
} slot;

struct course {
    hx_move *move;
    slot slots[SLOTS_MAX];
    slot *free;
    unsigned on_the_way;
    size_t recent_bytes; /* of the largest answer lately */
    uint64_t seen;
    bool failed, at_end;
    /* a list of the store */
    hx_store_call list;
    hx_store_page page;
    hx_arena page_arena;
    size_t next;
    bool listing;
};

static const char *why_not(hx_store_result result)
{
    return result == HX_STORE_FULL ? "there is no room left in it" : "it can't be reached";
}

static void fail(course *c, const char *which, hx_store_result result)
{
    if (!c->failed) (void)snprintf(c->move->error, sizeof c->move->error, "the store %s: %s", which, why_not(result));
    c->failed = true;
}

static void go_on(course *c);

static void give_back(slot *s)
{
    course *c = s->course;
    hx_arena_free(&s->arena);
    s->next = c->free;
    c->free = s;
    c->on_the_way--;
    hx_progress_at(c->move->progress, ++c->seen);
}

static bool is_same(const hx_record *had, const hx_record *found, hx_ms now)
{
    return had->epoch == found->epoch && hx_store_state_at(had, now) == hx_store_state_at(found, now);
}

static void imported(hx_store_call *call)
{
    slot *s = HX_OWNER(call, slot, call);
    hx_move *move = s->course->move;
    if (call->result == HX_STORE_OK) {
        move->moved++;
        move->unsettled += s->was_processing;
    } else if (call->result != HX_STORE_EXISTS) {
        fail(s->course, "that is written to", call->result);
    } else if (is_same(&s->record, &call->found, hx_store_about(move->to)->now())) {
        move->there++;
    } else {
        move->differing++;
        move->differs(move->context, &s->record, &call->found);
    }
    give_back(s);
    go_on(s->course);
}

/* The outcome of what was under way elsewhere will never be known here. */
static void settle_as_unknown(hx_move *move, hx_record *record)
{
    record->from_state = HX_PROCESSING;
    record->state = HX_UNKNOWN;
    record->changed_at = hx_store_about(move->to)->now();
    record->lease_until = 0;
    record->reason = move->why;
}

static void bring(slot *s)
{
    course *c = s->course;
    hx_move *move = c->move;
    size_t bytes = s->record.answer.headers.len + s->record.answer.body.len, faded = c->recent_bytes / 16 * 15;
    c->recent_bytes = bytes > faded ? bytes : faded;
    if (s->record.epoch > move->epoch) move->epoch = s->record.epoch;
    if (move->backup) {
        if (!c->failed && !hx_backup_add(move->backup, &s->record, move->error)) c->failed = true;
        move->moved++;
        give_back(s);
        return;
    }
    s->was_processing = s->record.state == HX_PROCESSING;
    if (s->was_processing) settle_as_unknown(move, &s->record);
    s->call = (hx_store_call){.loop = move->loop, .arena = &s->arena, .done = imported};
    hx_store_import(move->to, &s->call, &s->record);
}

/* The disk gave other bytes than were written, and the store knows no more than that there was an operation. Moved as
 * it is, that would look like one whose outcome is unknown, and nobody would look for the rest. */
static void refuse_unreadable(course *c, const hx_record *record)
{
    char id[2 * sizeof record->op.bytes];
    hx_buf hex = {.data = id, .cap = sizeof id, .max = sizeof id};
    bool is_readable = record->state != HX_UNKNOWN || record->created_at > 0;
    if (is_readable || c->failed) return;
    hx_buf_put_hex(&hex, record->op.bytes, sizeof record->op.bytes);
    (void)snprintf(c->move->error, sizeof c->move->error,
                   "operation %.*s can't be read: the disk gave other bytes than were written. `hapax store "
                   "salvage` saves what can be",
                   HX_FMT(hx_buf_slice(&hex)));
    c->failed = true;
}

static void was_read(hx_store_call *call)
{
    slot *s = HX_OWNER(call, slot, call);
    s->record = call->found;
    if (call->result != HX_STORE_OK) fail(s->course, "that is read", call->result);
    refuse_unreadable(s->course, &s->record);
    bool is_over = s->record.state == HX_ABSENT;
    s->course->move->ended += is_over;
    if (is_over || s->course->failed)
        give_back(s);
    else
        bring(s);
    go_on(s->course);
}

static void listed(hx_store_call *call)
{
    course *c = HX_OWNER(call, course, list);
    c->listing = false;
    c->next = 0;
    if (call->result != HX_STORE_OK) fail(c, "that is read", call->result);
    go_on(c);
}

static void list_more(course *c)
{
    bool first = c->page.records_max == 0;
    if (!first && !c->page.more) {
        c->at_end = true;
        return;
    }
    if (first) c->page = (hx_store_page){.route = HX_EMPTY, .reason = HX_EMPTY, .records_max = HX_STORE_PAGE_MAX};
    hx_arena_free(&c->page_arena);
    c->list = (hx_store_call){.loop = c->move->loop, .arena = &c->page_arena, .done = listed};
    c->listing = true;
    hx_store_list(c->move->from, &c->list, &c->page);
}

static slot *take_slot(course *c)
{
    slot *s = c->free;
    c->free = s->next;
    c->on_the_way++;
    return s;
}

static void take_from_file(course *c)
{
    slot *s = take_slot(c);
    hx_move *move = c->move;
    hx_backup_step step = hx_backup_next(move->file, &s->arena, &s->record, move->error);
    if (step == HX_BACKUP_RECORD && hx_store_state_at(&s->record, hx_store_about(move->to)->now()) != HX_ABSENT) {
        bring(s);
        return;
    }
    move->ended += step == HX_BACKUP_RECORD;
    c->at_end = step == HX_BACKUP_END;
    c->failed |= step == HX_BACKUP_DAMAGED;
    give_back(s);
}

static void was_compared(hx_store_call *call)
{
    slot *s = HX_OWNER(call, slot, call);
    hx_move *move = s->course->move;
    hx_record had = call->found;
    hx_ms now = hx_store_about(move->from)->now();
    had.op = s->record.op;
    if (had.state == HX_PROCESSING) had.state = HX_UNKNOWN; /* as it would be here */
    if (call->result != HX_STORE_OK) {
        fail(s->course, "that is read", call->result);
    } else if (hx_store_state_at(&s->record, now) == HX_ABSENT) {
        move->ended++;
    } else if (is_same(&had, &s->record, now)) {
        move->there++;
    } else {
        move->differing++;
        move->differs(move->context, &had, &s->record);
    }
    give_back(s);
    go_on(s->course);
}

static void take_from_page(course *c)
{
    const hx_record *record = &c->page.records[c->next++];
    hx_store *against = c->move->against;
    if (hx_unfinished_is(&record->op)) return;
    slot *s = take_slot(c);
    s->record = *record; /* its texts are gone with the page */
    s->call = (hx_store_call){.loop = c->move->loop, .arena = &s->arena, .done = against ? was_compared : was_read};
    hx_store_read(against ? against : c->move->from, &s->call, &record->op);
}

static unsigned slots_now(const course *c)
{
    if (c->seen < SLOTS_AT_FIRST) return SLOTS_AT_FIRST;
    size_t fit = BYTES_AT_ONCE / (c->recent_bytes + 1);
    return fit < 1 ? 1 : fit > SLOTS_MAX ? SLOTS_MAX : (unsigned)fit;
}

static void go_on(course *c)
{
    while (!c->failed && !c->at_end && c->free && c->on_the_way < slots_now(c) && !c->listing) {
        if (c->move->file)
            take_from_file(c);
        else if (c->next < c->page.count)
            take_from_page(c);
        else
            list_more(c);
    }
    if (c->on_the_way == 0 && !c->listing && (c->failed || c->at_end)) hx_loop_stop(c->move->loop);
}

typedef struct {
    hx_task task;
    course *course;
} beginning;

static void begin(hx_task *task)
{
    go_on(HX_OWNER(task, beginning, task)->course);
}

bool hx_move_run(hx_move *move)
{
    course *c = calloc(1, sizeof *c);
    if (!c) hx_fatal(HX_EXIT_BUG, "out of memory");
    c->move = move;
    for (size_t i = 0; i < SLOTS_MAX; i++) {
        c->slots[i].course = c;
        c->slots[i].next = c->free;
        c->free = &c->slots[i];
    }
    beginning first = {.task.run = begin, .course = c};
    hx_loop_post(move->loop, &first.task);
    do hx_loop_run(move->loop);
    while (c->on_the_way > 0 || c->listing || !(c->failed || c->at_end));
    bool moved = !c->failed;
    hx_arena_free(&c->page_arena);
    free(c);
    hx_progress_end(move->progress);
    return moved;
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

static bool tally_file(hx_tally *tally, hx_backup_reader *file, char error[HX_MOVE_ERROR_BYTES])
{
    hx_record record;
    hx_backup_step step = HX_BACKUP_DAMAGED;
    if (!hx_backup_rewind(file, error)) return false;
    do {
        hx_arena arena = {0};
        step = hx_backup_next(file, &arena, &record, error);
        if (step == HX_BACKUP_RECORD) count_one(tally, &record);
        hx_arena_free(&arena);
    } while (step == HX_BACKUP_RECORD);
    return step == HX_BACKUP_END;
}

/* Shows every record of the page's filter to `see`, until that has seen enough. */
static bool look_through(hx_loop *loop, hx_store *store, hx_store_page *page,
                         bool (*see)(void *user, const hx_record *), void *user, char error[HX_MOVE_ERROR_BYTES])
{
    bool more = true;
    while (more) {
        hx_arena arena = {0};
        hx_awaited list;
        hx_await_begin(&list, loop, &arena);
        hx_store_list(store, &list.call, page);
        hx_store_result result = hx_await(&list);
        if (result != HX_STORE_OK)
            (void)snprintf(error, HX_MOVE_ERROR_BYTES, "the %s store: %s", hx_store_about(store)->name,
                           why_not(result));
        more = result == HX_STORE_OK && page->more;
        for (size_t i = 0; result == HX_STORE_OK && i < page->count; i++)
            if (!see(user, &page->records[i])) more = false;
        hx_arena_free(&arena);
        if (result != HX_STORE_OK) return false;
    }
    return true;
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

bool hx_tally_run(hx_tally *tally, hx_loop *loop, hx_store *store, hx_backup_reader *file,
                  char error[HX_MOVE_ERROR_BYTES])
{
    hx_store_page page = page_of(0);
    memset(tally->states, 0, sizeof tally->states);
    tally->ending = 0;
    return store ? look_through(loop, store, &page, see_for_tally, tally, error) : tally_file(tally, file, error);
}

static bool see_whether_any(void *user, const hx_record *record)
{
    bool *empty = user;
    if (!hx_unfinished_is(&record->op)) *empty = false;
    return *empty;
}

bool hx_move_is_empty(hx_loop *loop, hx_store *store, bool *empty, char error[HX_MOVE_ERROR_BYTES])
{
    hx_store_page page = page_of(0);
    page.records_max = 2;
    *empty = true;
    return look_through(loop, store, &page, see_whether_any, empty, error);
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

bool hx_move_leased(hx_loop *loop, hx_store *store, uint64_t *count, char error[HX_MOVE_ERROR_BYTES])
{
    hx_store_page page = page_of(1u << HX_PROCESSING);
    leased found = {.now = hx_store_about(store)->now()};
    bool looked = look_through(loop, store, &page, see_for_lease, &found, error);
    *count = found.count;
    return looked;
}

bool hx_move_raise(hx_loop *loop, hx_store *store, uint64_t epoch, char error[HX_MOVE_ERROR_BYTES])
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
    memset(nothing.op.bytes, 0xff, sizeof nothing.op.bytes); /* no request's either */
    hx_await_begin(&import, loop, &arena);
    if (epoch > 0) hx_store_import(store, &import.call, &nothing);
    hx_store_result result = epoch > 0 ? hx_await(&import) : HX_STORE_OK;
    hx_arena_free(&arena);
    if (result == HX_STORE_OK) return true;
    (void)snprintf(error, HX_MOVE_ERROR_BYTES, "the %s store: %s", hx_store_about(store)->name, why_not(result));
    return false;
}
