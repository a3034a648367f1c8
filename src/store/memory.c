/* SPDX-License-Identifier: Apache-2.0 */
/* The reference: the contract of store.h in the simplest code that keeps it. One mutex, one map, nothing on disk, so a
 * restart forgets everything (it is for tests, and says so). Other backends are compared with it step by step.
 *
 * A version of a record is kept as its bytes in a counted block that never changes (store/shared_record): who shall see
 * it, also later and on another thread, holds a reference and makes a copy in an arena of its own.
 *
 * Lists go by the bytes of the operations, so that a cursor means the same whatever changes meanwhile. */
#include "store/backend.h"

#include "base/check.h"
#include "base/memory/map.h"
#include "base/rand.h"
#include "core/operation/policy.h"
#include "store/item_table.h"
#include "store/shared_record.h"
#include "store/waiters.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    hx_op op;
    uint64_t epoch;
    hx_state state;
    hx_ms lease_until, expires_at, tombstone_until;
    hx_shared_record *version;
} operation;

#define HISTORY_MAX 4096u

typedef struct {
    hx_store store;
    pthread_mutex_t mutex;
    hx_map *operations;
    hx_shared_record *history[HISTORY_MAX]; /* the latest of all operations, without answers: by number, modulo */
    uint64_t history_count;
    uint64_t epoch;
    hx_store_counts counts;
    const hx_store_rules *retired;
    hx_waiters waiters;
    hx_item_table items;
} memory;

static hx_slice key_of(const hx_op *op)
{
    return (hx_slice){(const char *)op->bytes, sizeof op->bytes};
}

static void show(hx_shared_record *v, hx_state state, hx_ms lease_until, hx_arena *arena, hx_record *out)
{
    hx_shared_record_show(v, arena, out);
    out->state = state;
    if (state == HX_PROCESSING) out->lease_until = lease_until;
    if (state == HX_EXPIRED) out->answer = (hx_answer){0};
}

static void done(hx_task *task)
{
    hx_store_call *call = HX_OWNER(task, hx_store_call, own.task);
    hx_shared_record *v = call->own.shown;
    if (v) {
        show(v, call->own.memory.state, call->own.memory.lease_until, call->arena, &call->found);
        hx_shared_record_drop(&v);
    } else {
        call->found.op = call->op;
    }
    call->done(call);
}

/* `v` NULL: the operation is absent. */
static void finish(hx_store_call *call, hx_store_result result, hx_shared_record *v, hx_state state, hx_ms lease_until)
{
    call->result = result;
    call->own.shown = v ? hx_shared_record_hold(v) : NULL;
    call->own.memory.state = state;
    call->own.memory.lease_until = lease_until;
    call->own.task.run = done;
    hx_loop_post(call->loop, &call->own.task);
}

static hx_record times_of(const operation *o)
{
    return (hx_record){.state = o->state,
                       .lease_until = o->lease_until,
                       .expires_at = o->expires_at,
                       .tombstone_until = o->tombstone_until};
}

static hx_state state_at(const operation *o, hx_ms now)
{
    hx_record times = times_of(o);
    return hx_store_state_at(&times, now);
}

static hx_stored stored_of(const operation *o, hx_ms now)
{
    return o ? (hx_stored){state_at(o, now), o->epoch} : (hx_stored){0};
}

static void remember(memory *m, const hx_record *record)
{
    hx_record bare = *record;
    bare.answer.headers = bare.answer.body = HX_EMPTY;
    hx_shared_record **place = &m->history[m->history_count++ % HISTORY_MAX];
    hx_shared_record_drop(place);
    *place = hx_shared_record_of(&bare);
}

static uint64_t *counter(memory *m, hx_state state)
{
    return state == HX_PROCESSING ? &m->counts.processing : &m->counts.live;
}

static void forget(memory *m, operation *o)
{
    HX_CHECK(!hx_waiters_of(&m->waiters, &o->op));
    --*counter(m, o->state);
    if (o->state == HX_UNKNOWN) m->counts.unknown--;
    hx_map_remove(m->operations, key_of(&o->op));
    hx_shared_record_drop(&o->version);
    free(o);
}

/* The operation as it is now, or NULL; one whose time is over is removed. */
static operation *find(memory *m, const hx_op *op, hx_ms now)
{
    operation *o = hx_map_get(m->operations, key_of(op));
    if (!o || state_at(o, now) != HX_ABSENT) return o;
    forget(m, o);
    m->counts.cleaned++;
    return NULL;
}

static void finish_with(hx_store_call *call, hx_store_result result, const operation *o, hx_ms now)
{
    finish(call, result, o ? o->version : NULL, o ? state_at(o, now) : HX_ABSENT, o ? o->lease_until : 0);
}

/* The one place where a record changes. */
static void write_record(memory *m, operation *o, const hx_record *record)
{
    if (o->version) {
        --*counter(m, o->state);
        if (o->state == HX_UNKNOWN) m->counts.unknown--;
    }
    hx_shared_record_drop(&o->version);
    o->version = hx_shared_record_of(record);
    o->epoch = record->epoch;
    o->state = record->state;
    o->lease_until = record->lease_until;
    o->expires_at = record->expires_at;
    o->tombstone_until = record->tombstone_until;
    ++*counter(m, o->state);
    if (o->state == HX_UNKNOWN) m->counts.unknown++;
    m->counts.commits++;
    remember(m, record);
}

static void end_watches(memory *m, const hx_op *op, hx_shared_record *v, hx_state state)
{
    hx_link taken;
    hx_waiters_take(&m->waiters, op, 0, &taken);
    for (hx_store_call *call; (call = hx_waiters_next(&taken));) finish(call, HX_STORE_OK, v, state, 0);
}

static operation *new_operation(memory *m, const hx_op *op)
{
    operation *o = calloc(1, sizeof *o);
    if (!o) hx_fatal(HX_EXIT_BUG, "out of memory");
    o->op = *op;
    hx_map_put(m->operations, key_of(&o->op), o);
    return o;
}

static void claim(memory *m, hx_store_call *call, operation *o)
{
    if (hx_store_is_retired(m->retired, call->record)) {
        finish(call, HX_STORE_RETIRED, NULL, HX_ABSENT, 0);
        return;
    }
    if (!o) o = new_operation(m, &call->op);
    call->record->epoch = ++m->epoch;
    write_record(m, o, call->record);
    finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
}

static void settle(memory *m, hx_store_call *call, operation *o)
{
    if (call->record->state == HX_ABSENT) {
        hx_shared_record *last_words = hx_shared_record_of(call->record);
        end_watches(m, &o->op, last_words, HX_ABSENT);
        hx_shared_record_drop(&last_words);
        forget(m, o);
        remember(m, call->record);
        m->counts.commits++;
    } else {
        write_record(m, o, call->record);
        end_watches(m, &o->op, o->version, o->state);
    }
    finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
}

static void renew(hx_store_call *call, operation *o)
{
    o->lease_until = call->lease_until;
    finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
}

static void watch(memory *m, hx_store_call *call, hx_ms now)
{
    operation *o = find(m, &call->op, now);
    if (hx_lifecycle_renew(stored_of(o, now), call->epoch) != HX_TRANSITION_WRITE) {
        finish_with(call, HX_STORE_OK, o, now);
    } else if (hx_waiters_may_add(&m->waiters, &call->op)) {
        hx_waiters_add(&m->waiters, call);
    } else {
        finish(call, HX_STORE_FULL, NULL, HX_ABSENT, 0);
    }
}

static void forget_by_word(memory *m, hx_store_call *call, operation *o, hx_ms now)
{
    hx_arena arena = {0};
    hx_record record;
    show(o->version, state_at(o, now), 0, &arena, &record);
    hx_lifecycle_change(&record, HX_ABSENT, call->reason, now);
    forget(m, o);
    remember(m, &record);
    hx_arena_free(&arena);
    m->counts.commits++;
    finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
}

/* A lease or a lifetime is over. */
static void lapse(memory *m, operation *o, hx_state to, hx_slice reason, hx_ms now)
{
    hx_arena arena = {0};
    hx_record record;
    show(o->version, o->state, 0, &arena, &record);
    hx_lifecycle_change(&record, to, reason, now);
    write_record(m, o, &record);
    end_watches(m, &o->op, o->version, to);
    hx_arena_free(&arena);
}

static hx_state lapse_of(const operation *o, hx_ms now)
{
    hx_record times = times_of(o);
    return hx_lifecycle_lapse(&times, now, hx_clock_held());
}

static bool find_lapsed(memory *m, hx_ms now, operation **out)
{
    hx_slice key;
    void *value;
    for (size_t cursor = 0; hx_map_next(m->operations, &cursor, &key, &value);) {
        *out = value;
        if (lapse_of(*out, now) != (*out)->state) return true;
    }
    return false;
}

static void sweep(memory *m, hx_store_call *call, hx_ms now)
{
    uint64_t before = m->counts.cleaned;
    for (operation *o; find_lapsed(m, now, &o);) {
        hx_state to = lapse_of(o, now);
        if (to == HX_ABSENT)
            (void)find(m, &o->op, now);
        else
            lapse(m, o, to, to == HX_UNKNOWN ? HX_LIT("lease") : HX_LIT("lifetime"), now);
    }
    m->counts.cleaned += hx_item_table_sweep(&m->items, now);
    call->count = m->counts.cleaned - before;
    finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
}

static uint64_t rank_of(const hx_op *op)
{
    uint64_t rank = 0;
    for (size_t i = 0; i < sizeof rank; i++) rank = rank << 8 | op->bytes[i];
    return rank;
}

static int by_rank(const void *a, const void *b)
{
    const operation *const *one = a, *const *other = b;
    return memcmp(&(*one)->op, &(*other)->op, sizeof(hx_op));
}

/* The current record, in the version's own bytes; false: absent by now, or not wanted. */
static bool wanted(const operation *o, const hx_store_page *page, hx_ms now, hx_record *out)
{
    hx_record_error error = hx_record_decode(hx_shared_record_bytes(o->version), out);
    HX_CHECK(error == HX_RECORD_OK);
    out->state = state_at(o, now);
    if (out->state == HX_PROCESSING) out->lease_until = o->lease_until;
    if (out->state == HX_EXPIRED) out->answer = (hx_answer){0};
    return out->state != HX_ABSENT && hx_store_page_wants(page, out);
}

static void list(memory *m, hx_store_call *call, hx_ms now)
{
    hx_store_page *page = call->page;
    size_t count = 0;
    const operation **all = malloc((hx_map_count(m->operations) + 1) * sizeof(operation *));
    if (!all) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_slice key;
    void *value;
    hx_record record;
    for (size_t cursor = 0; hx_map_next(m->operations, &cursor, &key, &value);)
        if (rank_of(&((operation *)value)->op) >= page->cursor && wanted(value, page, now, &record))
            all[count++] = value;
    qsort(all, count, sizeof(operation *), by_rank);
    page->more = count > page->records_max;
    page->cursor = page->more ? rank_of(&all[page->records_max]->op) : 0;
    for (size_t i = 0; i < count && i < page->records_max; i++)
        if (wanted(all[i], page, now, &record)) hx_store_page_add(page, call->arena, &record);
    free(all);
    finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
}

static void history(memory *m, hx_store_call *call)
{
    hx_store_page *page = call->page;
    uint64_t first = m->history_count > HISTORY_MAX ? m->history_count - HISTORY_MAX : 0;
    if (page->cursor > first) first = page->cursor;
    page->cursor = 0;
    for (uint64_t i = first; i < m->history_count && !page->more; i++) {
        const hx_shared_record *v = m->history[i % HISTORY_MAX];
        hx_record record;
        hx_record_error error = hx_record_decode(hx_shared_record_bytes(v), &record);
        HX_CHECK(error == HX_RECORD_OK);
        if (!hx_store_history_wants(call, &record)) continue;
        hx_store_page_offer(page, call->arena, &record, i);
    }
    finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
}

static void read_one(memory *m, hx_store_call *call, hx_ms now)
{
    finish_with(call, HX_STORE_OK, find(m, &call->op, now), now);
}

/* A call that changes an operation, where the rules allow it. */
static void change(memory *m, hx_store_call *call, hx_ms now)
{
    operation *o = find(m, &call->op, now);
    hx_store_result result = hx_store_decide(call, stored_of(o, now));
    if (call->verb == HX_STORE_IMPORT && call->record->epoch > m->epoch) m->epoch = call->record->epoch;
    if (result != HX_STORE_OK) {
        m->counts.stale_writes += result == HX_STORE_STALE && call->verb != HX_STORE_CLAIM;
        finish_with(call, result, o, now);
        return;
    }
    switch (call->verb) {
    case HX_STORE_CLAIM: claim(m, call, o); break;
    case HX_STORE_SETTLE: settle(m, call, o); break;
    case HX_STORE_RENEW: renew(call, o); break;
    case HX_STORE_FORGET: forget_by_word(m, call, o, now); break;
    default:
        if (call->record->state != HX_ABSENT) write_record(m, new_operation(m, &call->op), call->record);
        finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
    }
}

static void memory_submit(hx_store *store, hx_store_call *call)
{
    memory *m = (memory *)store;
    pthread_mutex_lock(&m->mutex);
    hx_ms now = store->facts.now();
    switch (call->verb) {
    case HX_STORE_CLAIM:
    case HX_STORE_SETTLE:
    case HX_STORE_RENEW:
    case HX_STORE_FORGET:
    case HX_STORE_IMPORT: change(m, call, now); break;
    case HX_STORE_WATCH: watch(m, call, now); break;
    case HX_STORE_SWEEP: sweep(m, call, now); break;
    case HX_STORE_LIST: list(m, call, now); break;
    case HX_STORE_HISTORY: history(m, call); break;
    case HX_STORE_READ: read_one(m, call, now); break;
    case HX_STORE_ENFORCE: HX_CHECK(!"this store is not shared"); break;
    case HX_STORE_COMMIT:
    case HX_STORE_GET:
    case HX_STORE_SCAN: finish(call, hx_item_table_perform(&m->items, call, now), NULL, HX_ABSENT, 0); break;
    case HX_STORE_RETIRE:
        m->retired = call->rules;
        finish(call, HX_STORE_OK, NULL, HX_ABSENT, 0);
        break;
    }
    pthread_mutex_unlock(&m->mutex);
}

static void memory_cancel(hx_store *store, hx_store_call *call)
{
    memory *m = (memory *)store;
    pthread_mutex_lock(&m->mutex);
    if (hx_waiters_remove(&m->waiters, call)) finish(call, HX_STORE_CANCELLED, NULL, HX_ABSENT, 0);
    pthread_mutex_unlock(&m->mutex);
}

static hx_peek memory_peek(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found)
{
    (void)whole_max; /* the bytes are shared, not copied */
    memory *m = (memory *)store;
    hx_ms now = store->facts.now();
    pthread_mutex_lock(&m->mutex);
    operation *o = hx_map_get(m->operations, key_of(op));
    hx_state state = o ? state_at(o, now) : HX_ABSENT;
    if (state != HX_ABSENT) show(o->version, state, o->lease_until, arena, found);
    pthread_mutex_unlock(&m->mutex);
    return state != HX_ABSENT ? HX_PEEK_FOUND : HX_PEEK_ABSENT;
}

static void memory_attach(hx_store *store, hx_loop *loop)
{
    (void)store;
    (void)loop;
}

static void memory_count(hx_store *store, hx_store_counts *out)
{
    memory *m = (memory *)store;
    pthread_mutex_lock(&m->mutex);
    *out = m->counts;
    out->watchers = atomic_load(&m->waiters.count);
    pthread_mutex_unlock(&m->mutex);
}

/* The rules of a live operation; false: it is over. */
static bool rules_at(const operation *o, hx_ms now, hx_record *out)
{
    hx_record_error error = hx_record_decode(hx_shared_record_bytes(o->version), out);
    HX_CHECK(error == HX_RECORD_OK);
    return state_at(o, now) != HX_ABSENT;
}

static void memory_rules(hx_store *store, hx_arena *arena, hx_store_rules *out)
{
    memory *m = (memory *)store;
    hx_slice key;
    void *value;
    hx_record record;
    *out = (hx_store_rules){0};
    pthread_mutex_lock(&m->mutex);
    for (size_t cursor = 0; hx_map_next(m->operations, &cursor, &key, &value);)
        if (rules_at(value, store->facts.now(), &record))
            hx_store_rules_add(out, arena, record.rule_version & HX_RULE_NAMED ? record.route : HX_EMPTY,
                               record.rule_version, 1);
    pthread_mutex_unlock(&m->mutex);
}

static uint64_t memory_live_at_most(hx_store *store, hx_slice route)
{
    memory *m = (memory *)store;
    hx_slice key;
    void *value;
    hx_record record;
    uint64_t live = 0;
    pthread_mutex_lock(&m->mutex);
    for (size_t cursor = 0; hx_map_next(m->operations, &cursor, &key, &value);)
        if (rules_at(value, store->facts.now(), &record))
            live += !(record.rule_version & HX_RULE_NAMED) && hx_slice_eq(record.route, route);
    pthread_mutex_unlock(&m->mutex);
    return live;
}

static bool memory_limit(hx_store *store, const hx_store_options *options, hx_error_text error)
{
    memory *m = (memory *)store;
    (void)error;
    hx_waiters_limit(&m->waiters, options);
    return true;
}

static bool memory_last_epoch(hx_store *store, uint64_t *epoch, hx_error_text error)
{
    (void)error;
    *epoch = ((memory *)store)->epoch;
    return true;
}

static void memory_close(hx_store *store)
{
    memory *m = (memory *)store;
    hx_slice key;
    void *value;
    for (size_t cursor = 0; hx_map_next(m->operations, &cursor, &key, &value);) {
        operation *o = value;
        hx_shared_record_drop(&o->version);
        free(o);
    }
    for (size_t i = 0; i < HISTORY_MAX; i++) hx_shared_record_drop(&m->history[i]);
    hx_map_free(&m->operations);
    hx_waiters_free(&m->waiters);
    hx_item_table_free(&m->items);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

hx_store *hx_store_memory_open(const hx_store_options *options)
{
    static const hx_store_ops ops = {memory_attach, memory_submit,    memory_cancel, memory_peek,
                                     memory_count,  memory_close,     memory_rules,  memory_live_at_most,
                                     memory_limit,  memory_last_epoch};
    memory *m = calloc(1, sizeof *m);
    if (!m) hx_fatal(HX_EXIT_BUG, "out of memory");
    m->store = (hx_store){.ops = &ops,
                          .facts = {.name = "memory",
                                    .keeps_items = true,
                                    .owner = hx_rand_u64(),
                                    .now = options->now ? options->now : hx_clock_now}};
    if (options->secret)
        memcpy(m->store.facts.secret, options->secret, sizeof m->store.facts.secret);
    else
        hx_rand_bytes(m->store.facts.secret, sizeof m->store.facts.secret);
    pthread_mutex_init(&m->mutex, NULL);
    m->operations = hx_map_new();
    hx_waiters_init(&m->waiters, options);
    hx_item_table_init(&m->items);
    return &m->store;
}
