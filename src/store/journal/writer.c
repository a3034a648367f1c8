/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: the one thread that decides. It takes everything that waits, decides call by call (G2, G3, G5), writes
 * what follows from it with one gathered write and one fdatasync, shows it in the index, and tells the loops; while it
 * syncs, the next batch gathers.
 *
 * What was decided in this batch but is not durable yet stands in `opened`, beside the operations in processing; the
 * index shows only what is durable (G1). A failed write or sync ends the process: what the disk then holds is not
 * known, and trying again would only hide that. */
#include "store/journal/journal.h"

#include "base/check.h"
#include "base/log.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_FROM 4u /* calls: below, waiting gains nothing */
#define PATIENCE_NS 1000000
#define PATIENCE_IN_VAIN_MAX 8u
#define MARK_LATER_FROM 8u /* calls of one commit */
#define MARK_AFTER_NS 5000000

static void count(_Atomic uint64_t *counter, int64_t by) /* one thread writes them, others only read */
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed) + (uint64_t)by;
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

/* What stands there by now, decided or durable. */
typedef struct {
    hx_stored stored;
    hx_open *open;
    hx_index_entry entry;
} standing;

static hx_state state_when_over(hx_journal *j, const hx_index_entry *entry)
{
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    if (!entry->entombed) return HX_ABSENT;
    if (!hx_journal_read_head(j, entry, bytes, &record)) return entry->state; /* damaged: it never becomes free */
    return hx_store_state_at(&record, j->batch.now);
}

static standing look(hx_journal *j, const hx_op *op)
{
    standing s = {.open = hx_map_get(j->opened, hx_journal_op_key(op))};
    if (s.open) {
        s.stored = (hx_stored){s.open->state, s.open->epoch};
    } else if (hx_index_find(j->index, op, &s.entry)) {
        hx_state state = hx_entry_is_over(&s.entry, j->batch.now) ? state_when_over(j, &s.entry) : s.entry.state;
        s.stored = (hx_stored){state, s.entry.epoch};
    }
    return s;
}

static hx_open *open_for(hx_journal *j, const standing *s, const hx_op *op)
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
    count(state == HX_PROCESSING ? &j->counts.processing : &j->counts.live, by);
    if (state == HX_UNKNOWN) count(&j->counts.unknown, by);
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

/* Segments are prepared past the page cache. A page that is written as a whole needn't be read first: so the zeros up
 * to its end are written once more. */
static void commit(hx_journal *j)
{
    static char zeros[HX_PAGE_BYTES];
    hx_batch *b = &j->batch;
    uint64_t free_bytes = j->active->size - j->tail.offset, rest = -j->tail.offset % HX_PAGE_BYTES;
    if (rest > 0) b->pieces[b->piece_count++] = (struct iovec){zeros, rest < free_bytes ? rest : free_bytes};
    struct iovec *piece = b->pieces;
    int left = b->piece_count;
    uint64_t at = b->offset;
    while (left > 0) {
        ssize_t n = pwritev(j->active->fd, piece, left, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) hx_fatal(HX_EXIT_STORE, "can't write to the store in %s: %s; stopping", j->path, strerror(errno));
        at += (uint64_t)n;
        for (; left > 0 && (size_t)n >= piece->iov_len; piece++, left--) n -= (ssize_t)piece->iov_len;
        if (left > 0) *piece = (struct iovec){(char *)piece->iov_base + n, piece->iov_len - (size_t)n};
    }
    b->piece_count = 0;
    b->staged = 0;
    b->frames = 0;
}

static void sync_active(hx_journal *j)
{
    if (fdatasync(j->active->fd) != 0)
        hx_fatal(HX_EXIT_STORE, "can't sync the store in %s: %s; stopping, because what the disk holds is not known",
                 j->path, strerror(errno));
    j->durable = j->tail.sequence;
    atomic_store_explicit(&j->keeper.taken, j->tail.offset, memory_order_relaxed);
    count(&j->counts.commits, 1);
}

static void deliver(hx_journal *j)
{
    unsigned ports = atomic_load_explicit(&j->port_count, memory_order_acquire);
    for (unsigned i = 0; i < ports; i++) {
        hx_port *port = atomic_load_explicit(&j->ports[i], memory_order_relaxed);
        if (!port->ended) continue;
        bool was_empty;
        uintptr_t newest = port->ended, oldest = port->ended_oldest;
        port->ended = port->ended_oldest = 0;
        hx_mailbox_put(&port->to_loop, newest, oldest, &was_empty);
        if (was_empty) hx_loop_post(port->loop, &port->wake);
    }
}

void hx_journal_flush(hx_journal *j)
{
    hx_batch *b = &j->batch;
    if (b->frames > 0) {
        commit(j);
        sync_active(j);
        j->unmarked = true;
    }
    for (unsigned i = 0; i < b->change_count; i++) {
        hx_change *c = &b->changes[i];
        hx_journal_apply(j, &c->entry);
        if (c->open && --c->open->changes == 0 && c->open->state != HX_PROCESSING) recycle(j, c->open);
    }
    b->change_count = 0;
    deliver(j);
    hx_reclaim_run(j->readers);
}

static void stage(hx_batch *b, const void *bytes, size_t len)
{
    char *to = b->stage + b->staged;
    if (len > 0) memcpy(to, bytes, len);
    b->staged += len;
    struct iovec *last = b->piece_count > 0 ? &b->pieces[b->piece_count - 1] : NULL;
    if (last && (char *)last->iov_base + last->iov_len == to)
        last->iov_len += len;
    else if (len > 0)
        b->pieces[b->piece_count++] = (struct iovec){to, len};
}

static void refer(hx_batch *b, hx_slice bytes)
{
    if (bytes.len == 0) return;
    /* NOLINTNEXTLINE(performance-no-int-to-ptr): writev never writes there */
    b->pieces[b->piece_count++] = (struct iovec){(void *)(uintptr_t)bytes.ptr, bytes.len};
}

/* Only the first frame of a segment can make it longer than it was prepared. */
static void stage_segment_head(hx_journal *j, uint64_t first_frame)
{
    uint64_t least = sizeof(hx_segment_head) + hx_frame_padded(first_frame);
    hx_segment_head head = {.segment = j->active->number,
                            .generation = j->generation,
                            .sequence = j->tail.sequence,
                            .epoch = j->tail.epoch,
                            .stamp = j->tail.stamp,
                            .previous = j->tail.hash,
                            .size = j->active->size > least ? j->active->size : least};
    hx_segment_seal(&head);
    stage(&j->batch, &head, sizeof head);
    j->tail.offset += sizeof head;
}

/* Goes on in the next segment. What the old one holds is durable before a byte of the new one is written. */
static bool next_segment(hx_journal *j)
{
    hx_segment *next = hx_background_take_spare(j);
    if (!next) return false;
    if (hx_lock_is_others(next->fd))
        hx_fatal(HX_EXIT_STORE, "another process has locked %08u.seg of the store in %s; stopping", next->number,
                 j->path);
    if (j->durable != j->tail.sequence) sync_active(j); /* a mark */
    j->active->end = j->tail.offset;
    hx_background_want(j, j->active->number, false);
    atomic_store(&j->segments[next->number % HX_SEGMENTS_MAX], next);
    j->active = next;
    j->tail.segment = next->number;
    j->tail.offset = 0;
    return true;
}

static bool batch_is_full(const hx_batch *b)
{
    return b->frames >= HX_BATCH_FRAMES_MAX || b->change_count >= HX_BATCH_FRAMES_MAX ||
           b->piece_count + 6 > (int)HX_BATCH_PIECES_MAX ||
           b->staged + HX_INLINE_BYTES + 2 * HX_RECORD_HEAD_MAX > HX_STAGE_BYTES;
}

/* Too long for any segment: it gets one of its own, which grows. */
static bool segment_is_full(const hx_journal *j, uint64_t length)
{
    uint64_t at = j->tail.offset ? j->tail.offset : sizeof(hx_segment_head);
    return at + hx_frame_padded(length) > j->active->size && at > sizeof(hx_segment_head);
}

static bool make_room(hx_journal *j, uint64_t length)
{
    hx_batch *b = &j->batch;
    if (batch_is_full(b)) hx_journal_flush(j);
    if (segment_is_full(j, length)) {
        hx_journal_flush(j);
        if (!next_segment(j)) return false;
    }
    if (b->piece_count == 0) b->offset = j->tail.offset;
    if (j->tail.offset == 0) stage_segment_head(j, length);
    return true;
}

/* Head and record's head are staged; `answer` follows. Moves the tail. */
static void add_frame(hx_journal *j, hx_frame_head *frame, hx_slice head, const hx_answer *answer)
{
    hx_batch *b = &j->batch;
    static const char zeros[HX_FRAME_ALIGN];
    frame->sequence = j->tail.sequence;
    frame->synced = j->durable;
    frame->stamp = b->now;
    frame->segment = j->active->number;
    frame->previous = j->tail.hash;
    hx_frame_seal(frame, j->generation, head);
    stage(b, frame, sizeof *frame);
    stage(b, head.ptr, head.len);
    if (answer) {
        bool small = answer->headers.len + answer->body.len <= HX_INLINE_BYTES;
        if (small) {
            stage(b, answer->headers.ptr, answer->headers.len);
            stage(b, answer->body.ptr, answer->body.len);
        } else {
            refer(b, answer->headers);
            refer(b, answer->body);
        }
    }
    uint64_t padded = hx_frame_padded(frame->length);
    stage(b, zeros, padded - frame->length);
    j->tail.hash = hx_frame_hash(frame, head);
    j->tail.sequence++;
    j->tail.offset += padded;
    if (b->now > j->tail.stamp) j->tail.stamp = b->now;
    if (j->tail.offset > j->active->size) j->active->size = j->tail.offset;
    b->frames++;
}

bool hx_journal_append(hx_journal *j, hx_frame_kind kind, const hx_index_entry *entry, hx_open *open, hx_slice head,
                       const hx_answer *answer)
{
    uint64_t length = sizeof(hx_frame_head) + head.len + (answer ? answer->headers.len + answer->body.len : 0);
    HX_CHECK(length <= hx_class_bytes(15));
    if (!make_room(j, length)) return false;
    hx_change *c = &j->batch.changes[j->batch.change_count++];
    *c = (hx_change){.entry = *entry, .open = open};
    c->entry.segment = j->active->number;
    c->entry.unit = (uint32_t)(j->tail.offset / HX_PLACE_UNIT);
    c->entry.size_class = hx_size_class(length);
    if (open) open->changes++;
    hx_frame_head frame = {.length = (uint32_t)length, .kind = (uint8_t)kind, .epoch = entry->epoch};
    add_frame(j, &frame, head, answer);
    return true;
}

void hx_journal_append_mark(hx_journal *j, hx_frame_kind kind, hx_slice payload)
{
    uint32_t length = (uint32_t)(sizeof(hx_frame_head) + payload.len);
    if (!make_room(j, length)) hx_fatal(HX_EXIT_STORE, "no room left for the store in %s", j->path);
    hx_frame_head frame = {.length = length, .kind = (uint8_t)kind};
    add_frame(j, &frame, payload, NULL);
}

/* Written when there is nothing else to do, and not synced for its own sake: a later start can tell by it that what
 * stands before it was acknowledged, and so that a bad byte there is damage and not a torn tail. */
static void mark(hx_journal *j)
{
    if (!j->unmarked) return;
    j->unmarked = false;
    if (j->tail.offset + sizeof(hx_frame_head) > j->active->size) return;
    j->batch.now = j->store.facts.now();
    hx_journal_append_mark(j, HX_FRAME_MARK, HX_EMPTY);
    commit(j);
}

void hx_journal_end_call(hx_store_call *call, hx_store_result result)
{
    hx_port *port = call->own.journal.port;
    call->result = result;
    call->own.journal.next[0] = port->ended;
    port->ended = (uintptr_t)call;
    if (!port->ended_oldest) port->ended_oldest = port->ended;
}

static void end_cancel(hx_store_call *call)
{
    hx_port *port = call->own.journal.port;
    call->own.journal.next[1] = port->ended;
    port->ended = (uintptr_t)call | 1;
    if (!port->ended_oldest) port->ended_oldest = port->ended;
}

/* Ends the call where the rules refuse it. */
static bool is_refused(hx_journal *j, hx_store_call *call, const standing *s)
{
    hx_store_result result = hx_store_decide(call, s->stored);
    if (result == HX_STORE_OK) return false;
    if (result == HX_STORE_STALE && call->verb != HX_STORE_CLAIM) count(&j->counts.stale_writes, 1);
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

/* Makes room for a frame about `op`, whose standing was looked up: again, if the batch had to end for it. */
static bool make_room_for(hx_journal *j, uint64_t length, const hx_op *op, standing *s)
{
    bool as_it_is = !batch_is_full(&j->batch) && !segment_is_full(j, length);
    if (!make_room(j, length)) return false;
    if (!as_it_is) *s = look(j, op);
    return true;
}

static void claim(hx_journal *j, hx_store_call *call)
{
    standing s = look(j, &call->op);
    if (is_refused(j, call, &s)) return;
    if (hx_store_is_retired(j->retired, call->record)) {
        hx_journal_end_call(call, HX_STORE_RETIRED);
        return;
    }
    uint64_t length = sizeof(hx_frame_head) + call->own.journal.head.len;
    bool room = !j->refusing && hx_journal_may_append(j, length, HX_BARE_BYTES + j->options.segment_bytes / 2);
    if (!room || j->displaced) {
        hx_journal_end_call(call, j->displaced ? HX_STORE_UNAVAILABLE : HX_STORE_FULL);
        return;
    }
    uint64_t epoch = j->tail.epoch + 1;
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
    bool fits = hx_journal_append(j, HX_FRAME_RECORD, &entry, o, call->own.journal.head, NULL);
    HX_CHECK(fits);
    j->tail.epoch = epoch;
    call->own.journal.epoch = epoch;
    hx_journal_end_call(call, HX_STORE_OK);
}

static uint64_t frame_length(hx_slice head, const hx_answer *kept)
{
    return sizeof(hx_frame_head) + head.len + kept->headers.len + kept->body.len;
}

/* Writes `record` as what follows on what stands there, and ends the watches. The end of a claim has its room. */
static bool become(hx_journal *j, standing *s, const hx_record *record, hx_slice head, const hx_answer *kept)
{
    hx_index_entry entry;
    hx_entry_of(&entry, record, 0, 0, 0);
    entry.rule = hx_journal_rule(j, record);
    uint64_t length = frame_length(head, kept);
    if (s->stored.state != HX_PROCESSING && !hx_journal_may_append(j, length, 0)) return false;
    if (!make_room_for(j, length, &record->op, s)) return false;
    hx_open *o = open_for(j, s, &record->op);
    o->state = record->state;
    o->epoch = record->epoch;
    bool fits = hx_journal_append(j, HX_FRAME_RECORD, &entry, o, head, kept);
    HX_CHECK(fits);
    end_watches(j, o, record->state == HX_ABSENT ? record : NULL);
    return true;
}

static const hx_answer nothing;

/* There is no room for the answer any more, but for the rest. */
static bool become_without_answer(hx_journal *j, standing *s, const hx_record *record)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record bare = *record;
    bare.answer = (hx_answer){.status = record->answer.status};
    hx_record_encode(&bare, &buf);
    if (!j->short_of_room) {
        hx_log_begin(HX_EVENT_responses_not_stored);
        hx_log_text("store", j->path);
        hx_log_end();
    }
    j->short_of_room = true;
    bool written = become(j, s, &bare, hx_buf_slice(&buf), &nothing);
    if (written) count(&j->counts.unretained, 1);
    return written;
}

static void settle(hx_journal *j, hx_store_call *call)
{
    standing s = look(j, &call->op);
    if (is_refused(j, call, &s)) return;
    const hx_answer *kept = call->record->state == HX_ABSENT ? &nothing : &call->record->answer;
    bool bare = kept->headers.len + kept->body.len == 0, written;
    call->unretained = !bare && !hx_journal_may_append(j, frame_length(call->own.journal.head, kept), 0);
    if (call->unretained)
        written = become_without_answer(j, &s, call->record);
    else
        written = become(j, &s, call->record, call->own.journal.head, kept);
    hx_journal_end_call(call, written ? HX_STORE_OK : HX_STORE_UNAVAILABLE);
}

/* A lease lives in memory only: it never outlives its process here, because the next start makes it unknown. */
static void renew(hx_journal *j, hx_store_call *call)
{
    standing s = look(j, &call->op);
    if (is_refused(j, call, &s)) return;
    s.open->lease_until = call->lease_until;
    hx_index_renew(j->index, &call->op, call->lease_until);
    hx_journal_end_call(call, HX_STORE_OK);
}

static void watch(hx_journal *j, hx_store_call *call)
{
    standing s = look(j, &call->op);
    if (hx_lifecycle_renew(s.stored, call->epoch) != HX_TRANSITION_WRITE) {
        call->own.journal.epoch = 0;
        hx_journal_end_call(call, HX_STORE_OK);
    } else if (hx_waiters_may_add(&j->waiters, &call->op)) {
        hx_waiters_add(&j->waiters, call);
    } else {
        hx_journal_end_call(call, HX_STORE_FULL);
    }
}

static void cancel(hx_journal *j, hx_store_call *call)
{
    if (hx_waiters_remove(&j->waiters, call)) hx_journal_end_call(call, HX_STORE_CANCELLED);
    end_cancel(call);
}

/* Epochs are drawn above this one from now on, and after every restart: a frame about nothing carries it. */
static bool raise_epoch(hx_journal *j, uint64_t epoch)
{
    const uint64_t *owner = &j->store.facts.owner;
    hx_frame_head frame = {.length = sizeof frame + sizeof *owner, .kind = HX_FRAME_START, .epoch = epoch};
    if (epoch <= j->tail.epoch) return true;
    if (!hx_journal_may_append(j, frame.length, 0) || !make_room(j, frame.length)) return false;
    add_frame(j, &frame, (hx_slice){(const char *)owner, sizeof *owner}, NULL);
    j->tail.epoch = epoch;
    return true;
}

/* A record of another store, as it is. It is new here, so it gets no more room than a claim does. */
static void import(hx_journal *j, hx_store_call *call)
{
    const hx_record *record = call->record;
    standing s = look(j, &call->op);
    HX_CHECK(record->epoch > 0 && record->epoch <= HX_EPOCH_MAX);
    hx_store_result result = hx_store_decide(call, s.stored);
    if (record->state == HX_ABSENT || result != HX_STORE_OK) {
        hx_journal_end_call(call, raise_epoch(j, record->epoch) ? result : HX_STORE_FULL);
        return;
    }
    uint64_t length = frame_length(call->own.journal.head, &record->answer);
    bool room = !j->refusing && hx_journal_may_append(j, length, HX_BARE_BYTES + j->options.segment_bytes / 2);
    if (!room || !become(j, &s, record, call->own.journal.head, &record->answer)) {
        hx_journal_end_call(call, HX_STORE_FULL);
        return;
    }
    if (record->epoch > j->tail.epoch) j->tail.epoch = record->epoch;
    if (record->state == HX_PROCESSING) {
        hx_open *o = hx_map_get(j->opened, hx_journal_op_key(&call->op));
        o->lease_until = record->lease_until;
    }
    hx_journal_end_call(call, HX_STORE_OK);
}

/* Writes a change that no caller brings a record for: the record on disk, in another state. */
static bool rewrite(hx_journal *j, hx_record *record, hx_state to, hx_slice reason)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_lifecycle_change(record, to, reason, j->batch.now);
    record->answer = nothing;
    hx_record_encode(record, &buf);
    standing s = look(j, &record->op);
    return become(j, &s, record, hx_buf_slice(&buf), &nothing);
}

bool hx_journal_put(hx_journal *j, const hx_record *record)
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record_encode(record, &buf);
    standing s = look(j, &record->op);
    if (s.stored.state != HX_ABSENT) return true;
    if (!become(j, &s, record, hx_buf_slice(&buf), &nothing)) return false;
    if (record->epoch > j->tail.epoch) j->tail.epoch = record->epoch;
    hx_journal_flush(j);
    return true;
}

static void forget(hx_journal *j, hx_store_call *call)
{
    standing s = look(j, &call->op);
    if (s.open && s.stored.state != HX_PROCESSING) { /* decided in this batch: it can be read once that is durable */
        hx_journal_flush(j);
        s = look(j, &call->op);
    }
    if (is_refused(j, call, &s)) return;
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    if (!hx_journal_read_head(j, &s.entry, bytes, &record)) /* damaged: an operator may well want to be rid of it */
        record = (hx_record){.op = call->op, .epoch = s.stored.epoch};
    record.state = s.stored.state;
    bool written = rewrite(j, &record, HX_ABSENT, call->reason);
    hx_journal_end_call(call, written ? HX_STORE_OK : HX_STORE_UNAVAILABLE);
}

/* A claim that can't be read back: it is unknown from now on, in memory, and whoever looks is told. Its record stays
 * as it is, because one with nothing in it would hide that. */
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
    if (!hx_index_find(j->index, op, &entry)) return true;
    bool runs = entry.state == HX_PROCESSING, is_over = entry.entombed && hx_entry_is_over(&entry, j->batch.now);
    if (to == HX_UNKNOWN ? !runs : !is_over) return true; /* it has gone on since it was looked at */
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    if (hx_journal_read_head(j, &entry, bytes, &record)) return rewrite(j, &record, to, reason);
    if (runs) lapse_unreadable(j, &entry);
    return true;
}

static void handle(hx_journal *j, uintptr_t mail)
{
    hx_store_call *call = hx_mail_call(mail);
    if (mail & 1) {
        cancel(j, call);
        return;
    }
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
    case HX_STORE_LIST:
    case HX_STORE_HISTORY:
    case HX_STORE_READ:
    case HX_STORE_ENFORCE:
        HX_CHECK(false); /* they never come here */
        break;
    }
}

static bool mail_waits(hx_journal *j)
{
    unsigned ports = atomic_load(&j->port_count);
    for (unsigned i = 0; i < ports; i++)
        if (atomic_load(&atomic_load(&j->ports[i])->to_writer)) return true;
    return false;
}

/* Until so many calls wait, for at most `ns`; 0: as long as it takes. False: the time is over. */
static bool sleep_until(hx_journal *j, uint32_t calls, long ns)
{
    const struct timespec most = {.tv_nsec = ns};
    atomic_store(&j->asleep, calls);
    bool enough = calls == 1 ? mail_waits(j) : atomic_load(&j->waiting) >= calls;
    if (enough || atomic_load(&j->stop)) {
        atomic_store(&j->asleep, 0);
        return true;
    }
    while (atomic_load(&j->asleep)) {
        long result = syscall(SYS_futex, &j->asleep, FUTEX_WAIT_PRIVATE, calls, ns ? &most : NULL, NULL, 0);
        if (result < 0 && errno == ETIMEDOUT) return atomic_exchange(&j->asleep, 0) == 0;
    }
    return true;
}

/* The mark behind the last commit is made at once, but for a large one: more is on its way then, and the next commit
 * will say as much. If it doesn't come, the mark follows. */
static void sleep_until_woken(hx_journal *j)
{
    if (j->patience.recent < MARK_LATER_FROM) mark(j);
    if (j->unmarked) {
        if (sleep_until(j, 1, MARK_AFTER_NS)) return;
        mark(j);
    }
    (void)sleep_until(j, 1, 0);
}

/* All whose calls have just ended may come back, beside those who wait already. */
static void expect_back(hx_journal *j, uint32_t ended)
{
    uint32_t waiting = atomic_load_explicit(&j->waiting, memory_order_relaxed);
    j->patience.recent = ended;
    j->patience.goal = (ended + waiting) * 9 / 10;
    j->patience.fresh = true;
}

/* A commit costs the same for one record as for sixty. Those whose calls the last commit ended come back soon, a claim
 * with its outcome and a client with its next request, so a commit that would be small waits a moment for most of them,
 * and the loop that brings the last of these wakes the writer. A few clients never wait: nobody else is coming. Where
 * they don't come in time, because the application is slow, the writer stops waiting for them for a while, and tries
 * again later. */
static void wait_for_more(hx_journal *j)
{
    uint32_t waiting = atomic_load_explicit(&j->waiting, memory_order_relaxed), goal = j->patience.goal;
    bool first = j->patience.fresh && j->patience.recent >= MARK_LATER_FROM; /* since the commit; the mark can wait */
    j->patience.fresh = false;
    if (waiting >= goal || goal < PATIENCE_FROM || (waiting == 0 && !first)) return;
    if (j->patience.skip > 0) {
        if (waiting > 0) j->patience.skip--;
        return;
    }
    if (sleep_until(j, goal, PATIENCE_NS)) {
        j->patience.in_vain = 0;
        return;
    }
    if (atomic_load_explicit(&j->waiting, memory_order_relaxed) == 0) return; /* it starts with the first to come */
    if (j->patience.in_vain < PATIENCE_IN_VAIN_MAX) j->patience.in_vain++;
    j->patience.skip = (1u << j->patience.in_vain) - 1;
}

void *hx_journal_writer(void *journal)
{
    hx_journal *j = journal;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* so that a moment is one */
    for (;;) {
        bool stopping = atomic_load(&j->stop);
        uint32_t taken = 0;
        wait_for_more(j);
        j->batch.now = j->store.facts.now();
        j->refusing = !hx_background_has_room(j);
        j->short_of_room &= j->refusing;
        unsigned ports = atomic_load_explicit(&j->port_count, memory_order_acquire);
        for (unsigned i = 0; i < ports; i++) {
            hx_port *port = atomic_load_explicit(&j->ports[i], memory_order_relaxed);
            uintptr_t first = hx_mailbox_take(&port->to_writer);
            for (uintptr_t mail = first; mail; mail = *hx_mail_next(mail))
                hx_index_prefetch(j->index, &hx_mail_call(mail)->op);
            for (uintptr_t mail = first, next; mail; mail = next, taken++) {
                next = *hx_mail_next(mail);
                handle(j, mail);
            }
        }
        atomic_fetch_sub_explicit(&j->waiting, taken, memory_order_relaxed);
        bool any = hx_journal_sweep_step(j) || taken > 0;
        hx_journal_flush(j);
        if (taken > 0) expect_back(j, taken);
        if (any) continue;
        if (stopping) break;
        sleep_until_woken(j);
    }
    mark(j);
    if (j->durable != j->tail.sequence) sync_active(j);
    hx_arena_pool_drain();
    return NULL;
}
