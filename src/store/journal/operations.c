/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on top of the log: decides the calls that change an operation, one after the other (G2, G3, G5), and
 * writes the result of each as a record frame. Called by the writer's thread, and by hx_journal_open before that is
 * started.
 *
 * Changes of the current batch, which are not durable yet, are in `opened`, together with all processing operations.
 * The index has only what is durable (G1). */
#include "store/journal/journal.h"

#include "base/check.h"
#include "base/log.h"

#include <stdlib.h>

static const hx_answer nothing;

static uint64_t frame_length(hx_slice head, const hx_answer *kept)
{
    return sizeof(hx_frame_head) + head.len + kept->headers.len + kept->body.len;
}

/* The current state of an operation: as decided in this batch, processing, or as in the index. */
typedef struct {
    hx_stored stored;
    hx_open *open;
    hx_index_entry entry;
} current;

static hx_state state_when_over(hx_journal *j, const hx_index_entry *entry)
{
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    if (!entry->entombed) return HX_ABSENT;
    if (!hx_journal_read_head(j, entry, bytes, &record)) return entry->state; /* damaged: the key is never free */
    return hx_store_state_at(&record, j->now);
}

static current find_current(hx_journal *j, const hx_op *op)
{
    current s = {.open = hx_map_get(j->opened, hx_journal_op_key(op))};
    if (s.open) {
        s.stored = (hx_stored){s.open->state, s.open->epoch};
    } else if (hx_index_get(j->index, op, &s.entry)) {
        hx_state state = hx_entry_is_over(&s.entry, j->now) ? state_when_over(j, &s.entry) : s.entry.state;
        s.stored = (hx_stored){state, s.entry.epoch};
    }
    return s;
}

static hx_open *open_for(hx_journal *j, const current *s, const hx_op *op)
{
    if (s->open) return s->open;
    hx_open *o = j->open_free;
    if (o) {
        j->open_free = o->next_free;
    } else {
        o = malloc(sizeof *o);
        if (!o) hx_fatal(HX_EXIT_BUG, "out of memory");
    }
    *o = (hx_open){.op = *op};
    hx_map_put(j->opened, hx_journal_op_key(&o->op), o);
    return o;
}

static void recycle(hx_journal *j, hx_open *o)
{
    HX_CHECK(!hx_waiters_of(&j->waiters, &o->op));
    hx_map_remove(j->opened, hx_journal_op_key(&o->op));
    o->next_free = j->open_free;
    j->open_free = o;
}

static void count_state(hx_journal *j, hx_state state, int64_t by)
{
    if (state == HX_ABSENT) return;
    hx_journal_count_by(state == HX_PROCESSING ? &j->counts.processing : &j->counts.live, by);
    if (state == HX_UNKNOWN) hx_journal_count_by(&j->counts.unknown, by);
}

uint16_t hx_journal_rule(hx_journal *j, const hx_record *record)
{
    hx_route_ids_row row = hx_route_ids_row_of(record->route, record->rule_version);
    return hx_route_ids_number(j->rules, &row);
}

void hx_journal_apply(hx_journal *j, const hx_index_entry *entry)
{
    hx_index_entry before;
    if (entry->state == HX_ABSENT)
        hx_index_remove(j->index, &entry->op, &before);
    else
        hx_index_put(j->index, entry, &before);
    count_state(j, before.state, -1);
    count_state(j, entry->state, 1);
    if (before.state != HX_ABSENT) {
        hx_segment *s = hx_journal_segment(j, before.segment);
        hx_route_ids_count(j->rules, before.rule, -1);
        s->live--;
        s->live_bytes -= hx_class_bytes(before.size_class);
    }
    if (entry->state != HX_ABSENT) {
        hx_segment *s = hx_journal_segment(j, entry->segment);
        hx_route_ids_count(j->rules, entry->rule, 1);
        s->live++;
        s->live_bytes += hx_class_bytes(entry->size_class);
        if (entry->until_s < j->sweep.earliest) j->sweep.earliest = entry->until_s;
        if (entry->until_s < j->sweep.earliest_seen) j->sweep.earliest_seen = entry->until_s;
    }
}

void hx_journal_flush(hx_journal *j)
{
    hx_frame_log_commit(&j->log);
    atomic_store_explicit(&j->background.taken, j->log.tail.offset, memory_order_relaxed);
    for (unsigned i = 0; i < j->change_count; i++) {
        hx_change *c = &j->changes[i];
        hx_journal_apply(j, &c->entry);
        if (c->open && --c->open->changes == 0 && c->open->state != HX_PROCESSING) recycle(j, c->open);
    }
    j->change_count = 0;
    if (j->items.pending.by_key.root) hx_items_flush(j);
    hx_journal_deliver(j);
    hx_reclaim_run(j->readers);
}

static bool next_segment(hx_journal *j)
{
    hx_segment *next = hx_background_take_spare(j);
    if (!next) return false;
    if (hx_lock_is_others(next->fd))
        hx_fatal(HX_EXIT_STORE, "another process has locked %08u.seg of the store in %s; stopping", next->number,
                 j->path);
    uint32_t full = j->log.active->number;
    hx_frame_log_continue_in(&j->log, next);
    hx_background_want(j, HX_JOB_HINT, full);
    atomic_store(&j->segments[next->number % HX_SEGMENTS_MAX], next);
    return true;
}

static bool batch_is_full(const hx_journal *j)
{
    return j->change_count >= HX_BATCH_FRAMES_MAX || hx_frame_log_batch_is_full(&j->log);
}

bool hx_journal_make_room(hx_journal *j, uint64_t length)
{
    if (batch_is_full(j)) hx_journal_flush(j);
    if (hx_frame_log_segment_is_full(&j->log, length)) {
        hx_journal_flush(j);
        if (!next_segment(j)) return false;
    }
    hx_frame_log_begin_frame(&j->log, length);
    return true;
}

bool hx_journal_append(hx_journal *j, hx_frame_kind kind, const hx_index_entry *entry, hx_open *open, hx_slice head,
                       const hx_answer *answer)
{
    hx_frame_draft draft = {
        .kind = kind, .epoch = entry->epoch, .stamp = j->now, .head = head, .rest = {answer->headers, answer->body}};
    uint64_t length = hx_frame_draft_length(&draft);
    HX_CHECK(length <= hx_class_bytes(15));
    if (!hx_journal_make_room(j, length)) return false;
    hx_change *c = &j->changes[j->change_count++];
    *c = (hx_change){.entry = *entry, .open = open};
    c->entry.segment = j->log.active->number;
    c->entry.unit = (uint32_t)(j->log.tail.offset / HX_PLACE_UNIT);
    c->entry.size_class = hx_size_class(length);
    if (open) open->changes++;
    hx_frame_log_append(&j->log, &draft);
    return true;
}

bool hx_journal_append_start(hx_journal *j, uint64_t epoch)
{
    const uint64_t *owner = &j->store.facts.owner;
    hx_frame_draft start = {.kind = HX_FRAME_START,
                            .epoch = epoch,
                            .stamp = j->now,
                            .head = {(const char *)owner, sizeof *owner}};
    if (!hx_journal_make_room(j, hx_frame_draft_length(&start))) return false;
    hx_frame_log_append(&j->log, &start);
    return true;
}

/* Ends the call if the lifecycle refuses it. */
static bool is_refused(hx_journal *j, hx_store_call *call, const current *s)
{
    hx_store_result result = hx_store_decide(call, s->stored);
    if (result == HX_STORE_OK) return false;
    if (result == HX_STORE_STALE && call->verb != HX_STORE_CLAIM) hx_journal_count_by(&j->counts.stale_writes, 1);
    hx_journal_end_call(call, result);
    return true;
}

static void end_watches(hx_journal *j, const hx_open *o, const hx_record *released)
{
    hx_link taken;
    hx_waiters_take(&j->waiters, &o->op, 0, &taken);
    if (hx_list_empty(&taken)) return;
    hx_shared_record *shared = released ? hx_shared_record_of(released) : NULL;
    for (hx_store_call *call; (call = hx_waiters_next(&taken));) {
        call->own.journal.epoch = o->epoch;
        call->own.journal.state = o->state;
        call->own.shown = shared ? hx_shared_record_hold(shared) : NULL;
        hx_journal_end_call(call, HX_STORE_OK);
    }
    hx_shared_record_drop(&shared);
}

/* Makes space for a frame about `op`. If that ends the batch, *s is looked up again. */
static bool make_room_for(hx_journal *j, uint64_t length, const hx_op *op, current *s)
{
    bool as_it_is = !batch_is_full(j) && !hx_frame_log_segment_is_full(&j->log, length);
    if (!hx_journal_make_room(j, length)) return false;
    if (!as_it_is) *s = find_current(j, op);
    return true;
}

static void claim(hx_journal *j, hx_store_call *call)
{
    current s = find_current(j, &call->op);
    if (is_refused(j, call, &s)) return;
    if (hx_store_is_retired(j->retired, call->record)) {
        hx_journal_end_call(call, HX_STORE_RETIRED);
        return;
    }
    uint64_t length = frame_length(call->own.journal.head, &nothing);
    bool has_space = !j->refuses_claims && hx_journal_may_append(j, length, HX_RESERVE_CLAIM);
    if (!has_space || j->has_moved) {
        hx_journal_end_call(call, j->has_moved ? HX_STORE_UNAVAILABLE : HX_STORE_FULL);
        return;
    }
    uint64_t epoch = j->log.tail.epoch + 1;
    HX_CHECK(epoch <= HX_EPOCH_MAX);
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): the head was made for us */
    hx_record_seal((char *)(uintptr_t)call->own.journal.head.ptr, call->own.journal.head.len, epoch);
    hx_index_entry entry;
    hx_entry_of(&entry, call->record, 0, 0, 0);
    entry.epoch = epoch;
    entry.rule = hx_journal_rule(j, call->record);
    if (!make_room_for(j, length, &call->op, &s)) {
        hx_journal_end_call(call, HX_STORE_FULL);
        return;
    }
    hx_open *o = open_for(j, &s, &call->op);
    o->state = HX_PROCESSING;
    o->epoch = epoch;
    o->lease_until = call->record->lease_until;
    bool fits = hx_journal_append(j, HX_FRAME_RECORD, &entry, o, call->own.journal.head, &nothing);
    HX_CHECK(fits);
    j->log.tail.epoch = epoch;
    call->own.journal.epoch = epoch;
    hx_journal_end_call(call, HX_STORE_OK);
}

/* Writes `record` as the next version of the operation, and ends its watches. The reserve has space for settling. */
static bool write_change(hx_journal *j, current *s, const hx_record *record, hx_slice head, const hx_answer *kept)
{
    hx_index_entry entry;
    hx_entry_of(&entry, record, 0, 0, 0);
    entry.rule = hx_journal_rule(j, record);
    uint64_t length = frame_length(head, kept);
    if (s->stored.state != HX_PROCESSING && !hx_journal_may_append(j, length, HX_RESERVE_RESPONSE)) return false;
    if (!make_room_for(j, length, &record->op, s)) return false;
    hx_open *o = open_for(j, s, &record->op);
    o->state = record->state;
    o->epoch = record->epoch;
    bool fits = hx_journal_append(j, HX_FRAME_RECORD, &entry, o, head, kept);
    HX_CHECK(fits);
    end_watches(j, o, record->state == HX_ABSENT ? record : NULL);
    return true;
}

/* Writes the outcome without its response, for which there is no space. */
static bool write_without_answer(hx_journal *j, current *s, const hx_record *record)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record bare = *record;
    bare.answer = (hx_answer){.status = record->answer.status};
    hx_record_encode(&bare, &buf);
    if (!j->lacks_space_logged) {
        hx_log_begin(HX_EVENT_responses_not_stored);
        hx_log_text("store", j->path);
        hx_log_end();
    }
    j->lacks_space_logged = true;
    bool written = write_change(j, s, &bare, hx_buf_slice(&buf), &nothing);
    if (written) hx_journal_count_by(&j->counts.unretained, 1);
    return written;
}

static void settle(hx_journal *j, hx_store_call *call)
{
    current s = find_current(j, &call->op);
    if (is_refused(j, call, &s)) return;
    const hx_answer *kept = call->record->state == HX_ABSENT ? &nothing : &call->record->answer;
    bool bare = kept->headers.len + kept->body.len == 0, written;
    call->unretained = !bare &&
                       !hx_journal_may_append(j, frame_length(call->own.journal.head, kept), HX_RESERVE_RESPONSE);
    if (call->unretained)
        written = write_without_answer(j, &s, call->record);
    else
        written = write_change(j, &s, call->record, call->own.journal.head, kept);
    hx_journal_end_call(call, written ? HX_STORE_OK : HX_STORE_UNAVAILABLE);
}

/* Renews in memory only: a lease never outlives its process, because the next start makes the operation unknown. */
static void renew(hx_journal *j, hx_store_call *call)
{
    current s = find_current(j, &call->op);
    if (is_refused(j, call, &s)) return;
    s.open->lease_until = call->lease_until;
    hx_index_renew(j->index, &call->op, call->lease_until);
    hx_journal_end_call(call, HX_STORE_OK);
}

static void watch(hx_journal *j, hx_store_call *call)
{
    current s = find_current(j, &call->op);
    if (hx_lifecycle_renew(s.stored, call->epoch) != HX_TRANSITION_WRITE) {
        call->own.journal.epoch = 0;
        hx_journal_end_call(call, HX_STORE_OK);
    } else if (hx_waiters_may_add(&j->waiters, &call->op)) {
        hx_waiters_add(&j->waiters, call);
    } else {
        hx_journal_end_call(call, HX_STORE_FULL);
    }
}

/* Makes all later epochs greater than this one, also after a restart: a frame without an operation carries it. */
static bool raise_epoch(hx_journal *j, uint64_t epoch)
{
    if (epoch <= j->log.tail.epoch) return true;
    if (!hx_journal_may_append(j, sizeof(hx_frame_head) + sizeof(uint64_t), HX_RESERVE_RESPONSE) ||
        !hx_journal_append_start(j, epoch))
        return false;
    j->log.tail.epoch = epoch;
    return true;
}

/* Writes a record of another store unchanged. It is new here, so it needs as much free space as a claim. */
static void import(hx_journal *j, hx_store_call *call)
{
    const hx_record *record = call->record;
    current s = find_current(j, &call->op);
    HX_CHECK(record->epoch > 0 && record->epoch <= HX_EPOCH_MAX);
    hx_store_result result = hx_store_decide(call, s.stored);
    if (record->state == HX_ABSENT || result != HX_STORE_OK) {
        hx_journal_end_call(call, raise_epoch(j, record->epoch) ? result : HX_STORE_FULL);
        return;
    }
    uint64_t length = frame_length(call->own.journal.head, &record->answer);
    bool has_space = !j->refuses_claims && hx_journal_may_append(j, length, HX_RESERVE_CLAIM);
    if (!has_space || !write_change(j, &s, record, call->own.journal.head, &record->answer)) {
        hx_journal_end_call(call, HX_STORE_FULL);
        return;
    }
    if (record->epoch > j->log.tail.epoch) j->log.tail.epoch = record->epoch;
    if (record->state == HX_PROCESSING) {
        hx_open *o = hx_map_get(j->opened, hx_journal_op_key(&call->op));
        o->lease_until = record->lease_until;
    }
    hx_journal_end_call(call, HX_STORE_OK);
}

/* Writes a change for which no caller has a record: the record on disk, in another state. */
static bool rewrite(hx_journal *j, hx_record *record, hx_state to, hx_slice reason)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_lifecycle_change(record, to, reason, j->now);
    record->answer = nothing;
    hx_record_encode(record, &buf);
    current s = find_current(j, &record->op);
    return write_change(j, &s, record, hx_buf_slice(&buf), &nothing);
}

bool hx_journal_put(hx_journal *j, const hx_record *record)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record_encode(record, &buf);
    current s = find_current(j, &record->op);
    if (s.stored.state != HX_ABSENT) return true;
    if (!write_change(j, &s, record, hx_buf_slice(&buf), &nothing)) return false;
    if (record->epoch > j->log.tail.epoch) j->log.tail.epoch = record->epoch;
    hx_journal_flush(j);
    return true;
}

static void forget(hx_journal *j, hx_store_call *call)
{
    current s = find_current(j, &call->op);
    if (s.open && s.stored.state != HX_PROCESSING) { /* changed in this batch: it can be read once that is durable */
        hx_journal_flush(j);
        s = find_current(j, &call->op);
    }
    if (is_refused(j, call, &s)) return;
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    if (!hx_journal_read_head(j, &s.entry, bytes, &record)) /* damaged: an operator may want to remove it */
        record = (hx_record){.op = call->op, .epoch = s.stored.epoch};
    record.state = s.stored.state;
    bool written = rewrite(j, &record, HX_ABSENT, call->reason);
    hx_journal_end_call(call, written ? HX_STORE_OK : HX_STORE_UNAVAILABLE);
}

/* Makes a claim that can't be read back unknown, in memory only: it is found as unreadable. The record on disk is not
 * replaced, because an empty one would hide the damage. */
static void lapse_unreadable(hx_journal *j, hx_index_entry *entry)
{
    hx_open *o = hx_map_get(j->opened, hx_journal_op_key(&entry->op));
    hx_journal_report_unreadable(j, entry);
    entry->state = HX_UNKNOWN;
    entry->until_s = HX_UNTIL_NEVER;
    hx_journal_apply(j, entry);
    if (!o) return;
    o->state = HX_UNKNOWN;
    end_watches(j, o, NULL);
    recycle(j, o);
}

bool hx_journal_lapse(hx_journal *j, const hx_op *op, hx_state to, hx_slice reason)
{
    hx_index_entry entry;
    if (!hx_index_get(j->index, op, &entry)) return true;
    bool runs = entry.state == HX_PROCESSING, is_over = entry.entombed && hx_entry_is_over(&entry, j->now);
    if (to == HX_UNKNOWN ? !runs : !is_over) return true; /* the operation has changed since the sweep selected it */
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    if (hx_journal_read_head(j, &entry, bytes, &record)) return rewrite(j, &record, to, reason);
    if (runs) lapse_unreadable(j, &entry);
    return true;
}

void hx_journal_perform(hx_journal *j, hx_store_call *call)
{
    switch (call->verb) {
    case HX_STORE_CLAIM: claim(j, call); break;
    case HX_STORE_SETTLE: settle(j, call); break;
    case HX_STORE_RENEW: renew(j, call); break;
    case HX_STORE_WATCH: watch(j, call); break;
    case HX_STORE_FORGET: forget(j, call); break;
    case HX_STORE_SWEEP: hx_list_append(&j->sweep.waiting, &call->own.link); break;
    case HX_STORE_RETIRE:
        j->retired = call->rules;
        hx_journal_end_call(call, HX_STORE_OK);
        break;
    case HX_STORE_IMPORT: import(j, call); break;
    case HX_STORE_COMMIT: hx_items_commit(j, call); break;
    case HX_STORE_LIST:
    case HX_STORE_HISTORY:
    case HX_STORE_READ:
    case HX_STORE_ENFORCE:
    case HX_STORE_GET:
    case HX_STORE_SCAN:
        HX_CHECK(false); /* other kinds are not sent to the writer */
        break;
    }
}
