/* SPDX-License-Identifier: Apache-2.0 */
/* The writer thread. It takes all calls that wait, runs them in their order inside one transaction, and ends them when
 * that is committed: so nothing that a call shows can be undone, and one sync serves all of them.
 *
 *     queue --take--> batch --decide each--> COMMIT --post--> loops
 *                       ^                      |
 *                       '--- less space <--- FULL      any other error: UNAVAILABLE, for all of them
 *
 * What a pass over the batch does outside the database (waiters added or notified, rules retired, counters) is undone
 * when its transaction is rolled back, so that the next pass finds everything as it was.
 *
 * Waiters of this process are notified with the commit that ends their operation. What other processes commit is found
 * by rechecking: PRAGMA data_version says whether the file has changed, and it is read only while there are waiters,
 * soon after a change and rarely when nothing happens. */
#include "store/sqlite/file.h"
#include "store/sqlite/links.h"
#include "store/sqlite/sqlite.h"

#include "base/check.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SWEEP_STEP 64u
#define PAST_STEP 512u
#define POLL_NS_MIN INT64_C(2000000)
#define POLL_NS_MAX INT64_C(128000000)
#define TAKING_STOCK_MAX HX_MINUTE
#define SMALL_ANSWER 2048u
#define SMALL_COMMIT (256u << 10)
#define ITEMS_STEP 256u
#define BATCH_BYTES (8u << 20)

/* Sets how a call ends when this pass is committed. */
static void decide(hx_store_call *call, hx_store_result result, hx_shared_record *shown)
{
    call->result = result;
    call->own.shown = shown;
}

/* NULL: the operation is absent. */
static hx_shared_record *show_row(const hx_sqlite_row *row)
{
    if (!row->there || row->record.state == HX_ABSENT) return NULL;
    hx_shared_record *shown = hx_shared_record_new(hx_sqlite_row_bytes(row));
    shown->state = row->record.state;
    shown->lease_until = row->record.lease_until;
    shown->epoch = row->record.epoch;
    hx_sqlite_row_copy(row, shown->bytes);
    return shown;
}

static bool exists(const hx_sqlite_row *row)
{
    return row->there && row->record.state != HX_ABSENT;
}

static hx_stored stored_of(const hx_sqlite_row *row)
{
    return exists(row) ? (hx_stored){row->record.state, row->record.epoch} : (hx_stored){0};
}

/* Watches */

static void park(hx_sqlite *s, hx_store_call *call)
{
    hx_waiters_add(&s->waiters, call);
    call->own.sqlite.is_notified = false;
    s->poll_ns = POLL_NS_MIN;
}

/* The watches of `op` in an epoch that is over will get `shown` with the commit; NULL: the operation is absent. */
static void notify(hx_sqlite *s, const hx_op *op, uint64_t epoch_in_processing, hx_shared_record *shown)
{
    hx_link taken;
    hx_waiters_take(&s->waiters, op, epoch_in_processing, &taken);
    HX_EACH(link, &taken)
    {
        hx_store_call *call = HX_OWNER(link, hx_store_call, own.waiter.link);
        decide(call, HX_STORE_OK, shown ? hx_shared_record_hold(shown) : NULL);
        call->own.sqlite.is_notified = true;
    }
    hx_list_splice(&s->notified, &taken);
}

static void notify_record(hx_sqlite *s, const hx_record *record)
{
    if (!hx_waiters_of(&s->waiters, &record->op)) return;
    hx_shared_record *shown = hx_shared_record_of(record);
    notify(s, &record->op, 0, shown);
    hx_shared_record_drop(&shown);
}

/* Ends the watches that were cancelled before what now waits in the queue was called. Under the mutex, so that a call
 * never ends while this looks at its cancellation. */
static void cancel(hx_sqlite *s)
{
    pthread_mutex_lock(&s->mutex);
    uint64_t next = hx_list_empty(&s->calls) ? UINT64_MAX
                                             : HX_OWNER(s->calls.next, hx_store_call, own.link)->own.sqlite.sequence;
    for (hx_store_call *call; (call = s->cancels) && call->own.sqlite.cancel_sequence < next;) {
        s->cancels = call->own.sqlite.next_cancel;
        if (hx_waiters_remove(&s->waiters, call)) hx_sqlite_post(call, HX_STORE_CANCELLED, NULL);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* The verbs; each returns SQLite's code */

static int draw_epoch(hx_sqlite *s, uint64_t *out)
{
    int rc = s->batch.epoch == 0 ? hx_sqlite_tables_epoch(&s->rows, &s->batch.epoch) : SQLITE_OK;
    if (rc != SQLITE_OK) return rc;
    s->batch.epoch = s->batch.raised_to = hx_sqlite_tables_next_epoch(s->batch.epoch, s->batch.now);
    *out = s->batch.epoch;
    return SQLITE_OK;
}

static bool is_closed_to_new(const hx_sqlite *s)
{
    return s->batch.space != HX_SPACE_FOR_ALL || s->is_over_limit || s->batch.begun >= s->new_max;
}

static int claim(hx_sqlite *s, hx_store_call *call, const hx_sqlite_row *row)
{
    bool is_old = hx_store_is_retired(s->retired, call->record);
    int rc = is_old
                 ? SQLITE_OK
                 : hx_sqlite_tables_not_in_force(&s->rows, call->record, s->store.facts.owner, s->batch.now, &is_old);
    if (rc != SQLITE_OK) return rc;
    if (is_old || is_closed_to_new(s)) {
        decide(call, is_old ? HX_STORE_RETIRED : HX_STORE_FULL, NULL);
        return SQLITE_OK;
    }
    rc = draw_epoch(s, &call->record->epoch);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_become(&s->rows, row, call->record);
    s->batch.begun++;
    s->batch.cleaned += row->there && !exists(row);
    decide(call, HX_STORE_OK, NULL);
    return rc;
}

static size_t answer_bytes_of(const hx_store_call *call)
{
    return call->record->answer.headers.len + call->record->answer.body.len;
}

static int settle(hx_sqlite *s, hx_store_call *call, const hx_sqlite_row *row)
{
    hx_record next = *call->record;
    decide(call, HX_STORE_OK, NULL);
    if (next.state == HX_ABSENT) {
        hx_record last = next;
        last.answer = (hx_answer){.status = next.answer.status};
        notify_record(s, &next);
        return hx_sqlite_tables_remove(&s->rows, row, &last);
    }
    size_t answer_bytes = answer_bytes_of(call);
    call->unretained = (s->batch.space == HX_SPACE_FOR_SMALL && answer_bytes > SMALL_ANSWER) ||
                       (s->batch.space == HX_SPACE_FOR_STATES && answer_bytes > 0);
    if (call->unretained) {
        next.answer = (hx_answer){.status = next.answer.status};
        s->batch.unretained++;
    }
    int rc = hx_sqlite_tables_become(&s->rows, row, &next);
    if (rc == SQLITE_OK) notify_record(s, &next);
    return rc;
}

static int renew(hx_sqlite *s, hx_store_call *call)
{
    decide(call, HX_STORE_OK, NULL);
    return hx_sqlite_tables_renew(&s->rows, &call->op, call->lease_until);
}

static int watch(hx_sqlite *s, hx_store_call *call, const hx_sqlite_row *row)
{
    if (hx_lifecycle_renew(stored_of(row), call->epoch) != HX_TRANSITION_WRITE)
        decide(call, HX_STORE_OK, show_row(row));
    else if (hx_waiters_may_add(&s->waiters, &call->op))
        park(s, call);
    else
        decide(call, HX_STORE_FULL, NULL);
    return SQLITE_OK;
}

static int forget(hx_sqlite *s, hx_store_call *call, const hx_sqlite_row *row)
{
    hx_record last = row->record;
    hx_lifecycle_change(&last, HX_ABSENT, call->reason, s->batch.now);
    decide(call, HX_STORE_OK, NULL);
    return hx_sqlite_tables_remove(&s->rows, row, &last);
}

/* Epochs that are drawn later, in this batch too, are greater than the imported one. */
static int raise_epoch(hx_sqlite *s, const hx_store_call *call)
{
    if (call->record->epoch > s->batch.raised_to) s->batch.raised_to = call->record->epoch;
    if (s->batch.epoch != 0 && call->record->epoch > s->batch.epoch) s->batch.epoch = call->record->epoch;
    return s->batch.epoch == 0 ? hx_sqlite_tables_set_epoch(&s->rows, call->record->epoch) : SQLITE_OK;
}

static int import(hx_sqlite *s, hx_store_call *call, const hx_sqlite_row *row)
{
    if (call->record->state != HX_ABSENT && is_closed_to_new(s)) {
        decide(call, HX_STORE_FULL, NULL);
        return SQLITE_OK;
    }
    s->batch.begun++;
    decide(call, HX_STORE_OK, NULL);
    return call->record->state != HX_ABSENT ? hx_sqlite_tables_become(&s->rows, row, call->record) : SQLITE_OK;
}

static int retire(hx_sqlite *s, hx_store_call *call)
{
    s->retired = call->rules;
    decide(call, HX_STORE_OK, NULL);
    return hx_sqlite_tables_retire(&s->rows, s->store.facts.owner, call->rules, s->batch.now,
                                   s->batch.now + TAKING_STOCK_MAX);
}

static int enforce(hx_sqlite *s, hx_store_call *call)
{
    decide(call, HX_STORE_OK, NULL);
    return hx_sqlite_tables_enforce(&s->rows, call->rules, s->batch.now);
}

/* Whether there is space for a commit of items: as for a claim, or, if it is urgent, as for an outcome. */
static bool may_commit(const hx_sqlite *s, const hx_store_call *call)
{
    if (!call->urgent) return !is_closed_to_new(s) && s->new_max - s->batch.begun >= hx_sqlite_claims_of(call);
    return s->batch.space < HX_SPACE_FOR_SMALL ||
           (s->batch.space == HX_SPACE_FOR_SMALL && hx_sqlite_item_bytes(call) <= SMALL_COMMIT);
}

static int commit(hx_sqlite *s, hx_store_call *call)
{
    call->version = 0;
    call->stale = NULL;
    int rc = hx_sqlite_items_compare(&s->rows, call, s->batch.now, s->items);
    if (rc != SQLITE_OK) return rc;
    bool may = may_commit(s, call);
    decide(call, call->stale ? HX_STORE_STALE : may ? HX_STORE_OK : HX_STORE_FULL, NULL);
    if (call->stale || !may) return SQLITE_OK;
    s->batch.begun += hx_sqlite_claims_of(call);
    rc = draw_epoch(s, &call->version);
    return rc == SQLITE_OK ? hx_sqlite_items_write(&s->rows, call, s->items) : rc;
}

/* Runs a call that changes an operation, where its state allows that. */
static int change(hx_sqlite *s, hx_store_call *call, const hx_sqlite_row *row)
{
    hx_stored stored = stored_of(row);
    bool is_damaged = row->there && row->head_len == 0;
    /* Its outcome replaces a damaged record. A claim takes over only what was unknown before: it may be a mark. */
    if (is_damaged && (call->verb == HX_STORE_SETTLE || call->verb == HX_STORE_CLAIM)) stored.state = row->stored;
    hx_store_result result = hx_store_decide(call, stored);
    int rc = call->verb == HX_STORE_IMPORT ? raise_epoch(s, call) : SQLITE_OK;
    if (rc != SQLITE_OK) return rc;
    if (result != HX_STORE_OK) {
        s->batch.stale += result == HX_STORE_STALE && call->verb != HX_STORE_CLAIM;
        decide(call, result, show_row(row));
        return SQLITE_OK;
    }
    switch (call->verb) {
    case HX_STORE_CLAIM: return claim(s, call, row);
    case HX_STORE_SETTLE: return settle(s, call, row);
    case HX_STORE_RENEW: return renew(s, call);
    case HX_STORE_FORGET: return forget(s, call, row);
    default: return import(s, call, row);
    }
}

static int run_call(hx_sqlite *s, hx_store_call *call)
{
    hx_sqlite_row row;
    if (call->verb == HX_STORE_RETIRE) return retire(s, call);
    if (call->verb == HX_STORE_ENFORCE) return enforce(s, call);
    if (call->verb == HX_STORE_COMMIT) return commit(s, call);
    if (call->verb == HX_STORE_GET || call->verb == HX_STORE_SCAN) {
        decide(call, HX_STORE_OK, NULL);
        return hx_sqlite_items_read(&s->rows, call, &call->own.sqlite.read, s->batch.now);
    }
    int rc = hx_sqlite_tables_find(&s->rows, &call->op, s->batch.now, &row);
    if (rc != SQLITE_OK) return rc;
    switch (call->verb) {
    case HX_STORE_WATCH: rc = watch(s, call, &row); break;
    case HX_STORE_READ: decide(call, HX_STORE_OK, show_row(&row)); break;
    default: rc = change(s, call, &row);
    }
    hx_sqlite_tables_release(&s->rows);
    return rc;
}

/* Batches */

static bool only_reads(const hx_store_call *call)
{
    return call->verb == HX_STORE_READ || call->verb == HX_STORE_WATCH || call->verb == HX_STORE_GET ||
           call->verb == HX_STORE_SCAN;
}

static void report(hx_sqlite *s, int rc)
{
    if (rc == s->last_error) return; /* each error once, until another result follows */
    s->last_error = rc;
    if (rc == SQLITE_OK) {
        hx_log_begin(HX_EVENT_sqlite_writable);
        hx_log_text("store", s->path);
        hx_log_end();
        return;
    }
    hx_error_text error;
    hx_sqlite_file_explain(s->path, rc, sqlite3_system_errno(s->rows.db), error);
    hx_log_begin(HX_EVENT_sqlite_write_failed);
    hx_log_text("detail", error);
    hx_log_text("sqlite", sqlite3_errstr(rc));
    hx_log_end();
}

static void begin_pass(hx_sqlite *s)
{
    s->batch.epoch = s->batch.raised_to = 0;
    s->batch.stale = s->batch.cleaned = s->batch.unretained = s->batch.begun = 0;
    s->batch.retired = s->retired;
    s->batch.now = s->store.facts.now();
}

static int end_pass(hx_sqlite *s)
{
    int rc = s->batch.raised_to > 0 ? hx_sqlite_tables_set_epoch(&s->rows, s->batch.raised_to) : SQLITE_OK;
    return rc == SQLITE_OK ? hx_sqlite_tables_run(&s->rows, HX_SQL_COMMIT) : rc;
}

static void drop_shown(hx_store_call *call)
{
    hx_shared_record *shown = call->own.shown;
    hx_shared_record_drop(&shown);
    call->own.shown = NULL;
}

/* Puts everything back as it was before the pass. */
static void undo_pass(hx_sqlite *s)
{
    hx_sqlite_tables_release(&s->rows);
    if (!sqlite3_get_autocommit(s->rows.db)) (void)hx_sqlite_tables_run(&s->rows, HX_SQL_ROLLBACK);
    s->retired = s->batch.retired;
    for (hx_store_call *call; (call = hx_waiters_next(&s->notified));) {
        drop_shown(call);
        park(s, call);
    }
    for (size_t i = 0; i < s->batch.count; i++) {
        hx_store_call *call = s->batch.calls[i];
        (void)hx_waiters_remove(&s->waiters, call);
        drop_shown(call);
        hx_arena_free(&call->own.sqlite.read);
        if (call->verb == HX_STORE_CLAIM) call->record->epoch = 0;
    }
    s->recheck_all = true;
}

/* A file that was moved or removed must not be written: the next process to open the store would not find it. */
static int check_place(const hx_sqlite *s)
{
    int moved = 0;
    int rc = sqlite3_file_control(s->rows.db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    return rc == SQLITE_OK && moved ? SQLITE_READONLY_DBMOVED : SQLITE_OK;
}

static int pass(hx_sqlite *s)
{
    bool reads = true;
    for (size_t i = 0; i < s->batch.count && reads; i++) reads = only_reads(s->batch.calls[i]);
    begin_pass(s);
    s->batch.reads = reads;
    int rc = reads ? SQLITE_OK : check_place(s);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_run(&s->rows, reads ? HX_SQL_BEGIN_READ : HX_SQL_BEGIN_WRITE);
    if (rc == SQLITE_OK && !reads) s->is_locked_out = false;
    for (size_t i = 0; i < s->batch.count && rc == SQLITE_OK; i++) rc = run_call(s, s->batch.calls[i]);
    if (rc == SQLITE_OK) rc = end_pass(s);
    if (rc == SQLITE_OK && !reads) s->commits++;
    if (rc != SQLITE_OK) undo_pass(s);
    return rc;
}

static void post_decided(hx_store_call *call)
{
    hx_shared_record *shown = call->own.shown;
    hx_sqlite_post(call, call->result, shown);
    hx_shared_record_drop(&shown);
}

static void post_notified(hx_sqlite *s)
{
    for (hx_store_call *call; (call = hx_waiters_next(&s->notified));) post_decided(call);
}

/* Ends the calls of the batch, after its commit. */
static void post_all(hx_sqlite *s)
{
    s->stale_writes += s->batch.stale;
    s->cleaned += s->batch.cleaned;
    s->unretained += s->batch.unretained;
    for (size_t i = 0; i < s->batch.count; i++) {
        hx_store_call *call = s->batch.calls[i];
        if (!call->own.waiter.group && !call->own.sqlite.is_notified) post_decided(call);
    }
    post_notified(s);
}

/* The disk is full: leaves more out of the batch, and at last uses the reserve, which is for outcomes and not for their
 * responses. False: nothing is left to try. */
static bool squeeze(hx_sqlite *s, bool *has_broken)
{
    s->is_tight = true;
    if (s->batch.space == HX_SPACE_FOR_ALL) {
        s->batch.space = HX_SPACE_FOR_ENDS;
    } else if (s->batch.space == HX_SPACE_FOR_ENDS) {
        s->batch.space = HX_SPACE_FOR_SMALL;
    } else if (!*has_broken) {
        *has_broken = true;
        (void)hx_sqlite_use_reserve(s);
    } else if (s->batch.space == HX_SPACE_FOR_SMALL) {
        s->batch.space = HX_SPACE_FOR_STATES;
    } else {
        return false;
    }
    hx_sqlite_shorten_log(s);
    return true;
}

/* What a batch may write, before anything is tried. */
static hx_sqlite_space space_for_batch(hx_sqlite *s)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->batch.count; i++) {
        const hx_store_call *call = s->batch.calls[i];
        if (call->verb == HX_STORE_SETTLE) bytes += answer_bytes_of(call);
        if (call->verb == HX_STORE_COMMIT && call->urgent) bytes += hx_sqlite_item_bytes(call);
    }
    if (s->is_reserve_used || (bytes > 0 && !hx_sqlite_has_space_for(s, bytes))) return HX_SPACE_FOR_SMALL;
    return s->is_tight ? HX_SPACE_FOR_ENDS : HX_SPACE_FOR_ALL;
}

static void run_batch(hx_sqlite *s)
{
    bool has_broken = false;
    s->batch.space = space_for_batch(s);
    int rc = pass(s);
    while ((rc & 0xff) == SQLITE_FULL && squeeze(s, &has_broken)) rc = pass(s);
    if (rc != SQLITE_OK || !s->batch.reads) report(s, rc); /* a read doesn't show whether the store can be written */
    if (rc == SQLITE_OK) {
        post_all(s);
    } else {
        for (size_t i = 0; i < s->batch.count; i++) hx_sqlite_post(s->batch.calls[i], HX_STORE_UNAVAILABLE, NULL);
    }
    s->batch.count = 0;
    if (s->is_tight || s->batch.space != HX_SPACE_FOR_ALL) hx_sqlite_shorten_log(s);
}

/* Sweeping: a few rows in each transaction, and waiting calls in between */

static int sweep_one(hx_sqlite *s, const hx_op *op, size_t *changed)
{
    hx_sqlite_row row;
    hx_record next;
    hx_lapsed lapsed;
    int rc = hx_sqlite_tables_sweep(&s->rows, op, s->batch.now, &row, &next, &lapsed);
    *changed += lapsed != HX_LAPSED_NOT;
    s->batch.cleaned += lapsed == HX_LAPSED_REMOVED;
    if (rc != SQLITE_OK || lapsed != HX_LAPSED_CHANGED || !hx_waiters_of(&s->waiters, op)) return rc;
    hx_shared_record *shown = row.head_len > 0 ? hx_shared_record_of(&next) : show_row(&row);
    notify(s, op, 0, shown);
    hx_shared_record_drop(&shown);
    return rc;
}

static void end_sweep(hx_store_call *call, hx_store_result result)
{
    hx_list_remove(&call->own.link);
    hx_sqlite_post(call, result, NULL);
}

static void sweep_step(hx_sqlite *s)
{
    if (hx_list_empty(&s->sweeps)) return;
    hx_store_call *call = HX_OWNER(s->sweeps.next, hx_store_call, own.link);
    hx_op due[SWEEP_STEP];
    size_t count = 0, changed = 0;
    begin_pass(s);
    int64_t past = 0, kept = 0;
    unsigned over = 0, dropped = 0;
    bool unlinked = false;
    int rc = hx_sqlite_tables_due(&s->rows, s->batch.now, due, SWEEP_STEP, &count);
    hx_ms kept_from = hx_store_audit_until(atomic_load(&s->audit_retention), s->batch.now);
    if (rc == SQLITE_OK) rc = hx_sqlite_tables_past(&s->rows, kept_from, PAST_STEP, &past);
    if (rc == SQLITE_OK) rc = hx_sqlite_items_over(&s->rows, s->batch.now, ITEMS_STEP, &over);
    if (rc == SQLITE_OK && !s->is_tight) rc = hx_sqlite_links_pending(&s->rows, &unlinked); /* it can wait */
    bool writes = count > 0 || past > 0 || over > 0 || unlinked;
    if (rc == SQLITE_OK && writes) {
        rc = hx_sqlite_tables_run(&s->rows, HX_SQL_BEGIN_WRITE);
        for (size_t i = 0; i < count && rc == SQLITE_OK; i++) rc = sweep_one(s, &due[i], &changed);
        if (rc == SQLITE_OK && past > 0) rc = hx_sqlite_links_drop(&s->rows, past, &kept);
        if (rc == SQLITE_OK && (unlinked || kept > 0)) rc = hx_sqlite_links_add(&s->rows, s->batch.now, kept);
        if (rc == SQLITE_OK && over > 0) rc = hx_sqlite_items_drop(&s->rows, s->batch.now, over, &dropped);
        s->batch.cleaned += dropped;
        if (rc == SQLITE_OK) rc = end_pass(s);
        if (rc != SQLITE_OK) undo_pass(s);
    }
    bool is_full = (rc & 0xff) == SQLITE_FULL; /* the next sweep tries again */
    if (is_full) {
        s->is_tight = true;
        hx_sqlite_shorten_log(s);
    }
    if (rc == SQLITE_OK && writes) {
        s->commits++;
        s->cleaned += s->batch.cleaned;
        call->count += s->batch.cleaned;
        post_notified(s);
    }
    bool may_be_more = kept > 0 || unlinked || dropped > 0 || (count == SWEEP_STEP && changed > 0);
    if (rc == SQLITE_OK && may_be_more) return;
    hx_sqlite_check_space(s, true);
    if (!is_full && (rc != SQLITE_OK || writes)) report(s, rc);
    end_sweep(call, rc == SQLITE_OK || is_full ? HX_STORE_OK : HX_STORE_UNAVAILABLE);
}

/* What other processes do */

static void recheck_watches(hx_sqlite *s)
{
    int64_t changes, began = hx_clock_mono_ns();
    if (hx_sqlite_tables_changes(&s->rows, &changes) != SQLITE_OK) return;
    if (changes == s->changes && !s->recheck_all) {
        s->poll_ns = s->poll_ns * 2 < POLL_NS_MAX ? s->poll_ns * 2 : POLL_NS_MAX;
        return;
    }
    hx_sqlite_row row;
    hx_ms now = s->store.facts.now();
    int rc = SQLITE_OK;
    HX_EACH(link, &s->waiters.all)
    {
        hx_op op = HX_OWNER(link, hx_waiter_group, link)->op;
        rc = hx_sqlite_tables_find(&s->rows, &op, now, &row);
        if (rc != SQLITE_OK) break;
        bool runs = exists(&row) && row.record.state == HX_PROCESSING;
        hx_shared_record *shown = show_row(&row);
        notify(s, &op, runs ? row.record.epoch : 0, shown);
        hx_shared_record_drop(&shown);
    }
    hx_sqlite_tables_release(&s->rows);
    post_notified(s);
    s->changes = changes;
    s->recheck_all = rc != SQLITE_OK;
    int64_t took = hx_clock_mono_ns() - began; /* takes at most a tenth of the time */
    s->poll_ns = took * 10 > POLL_NS_MIN ? took * 10 : POLL_NS_MIN;
}

/* The queue */

static void sleep_for(hx_sqlite *s, int64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec += (long)(ns % 1000000000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_clockwait(&s->wake, &s->mutex, CLOCK_MONOTONIC, &until);
}

/* A batch is bounded, because other processes wait for the lock while it is written. */
static void fill_batch(hx_sqlite *s)
{
    size_t bytes = 0;
    s->batch.has_claims = false;
    for (hx_link *link;
         s->batch.count < HX_SQLITE_BATCH_MAX && bytes < BATCH_BYTES && (link = hx_list_take(&s->calls));) {
        hx_store_call *call = HX_OWNER(link, hx_store_call, own.link);
        if (call->verb == HX_STORE_SWEEP) {
            hx_list_append(&s->sweeps, &call->own.link);
            continue;
        }
        bool commits = call->verb == HX_STORE_COMMIT;
        s->batch.has_claims |= call->verb == HX_STORE_CLAIM || call->verb == HX_STORE_IMPORT || commits;
        if (commits) bytes += hx_sqlite_item_bytes(call);
        if (call->verb == HX_STORE_SETTLE || call->verb == HX_STORE_IMPORT) bytes += answer_bytes_of(call);
        s->batch.calls[s->batch.count++] = call;
    }
}

/* Waits for calls, and fills the batch. False: the store is being closed. */
static bool take_batch(hx_sqlite *s)
{
    pthread_mutex_lock(&s->mutex);
    s->is_asleep = true;
    if (hx_list_empty(&s->calls) && !s->cancels && !s->stopping && hx_list_empty(&s->sweeps)) {
        if (hx_list_empty(&s->waiters.all))
            pthread_cond_wait(&s->wake, &s->mutex);
        else
            sleep_for(s, s->poll_ns);
    }
    s->is_asleep = false;
    bool goes_on = !s->stopping || !hx_list_empty(&s->calls) || s->cancels;
    fill_batch(s);
    pthread_mutex_unlock(&s->mutex);
    return goes_on;
}

void *hx_sqlite_writer(void *context)
{
    hx_sqlite *s = context;
    s->poll_ns = POLL_NS_MIN;
    while (take_batch(s)) {
        if (s->batch.has_claims) hx_sqlite_check_space(s, false);
        if (s->batch.count > 0) run_batch(s);
        cancel(s);
        sweep_step(s);
        if (!hx_list_empty(&s->waiters.all)) recheck_watches(s);
    }
    hx_arena_pool_drain(); /* of reads that were undone */
    return NULL;
}
