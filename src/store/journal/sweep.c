/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep, done by the writer between commits in steps that are too small to delay them.
 *
 * One pass: operations whose leases have run out become unknown; entries and items whose lifetime is over leave their
 * index (without a frame: their record has the time); then the oldest segments are removed, in order only. If a segment
 * were removed before an older one, a record in the older one could come back at the next start, because the one that
 * replaced it would be gone. So when few records in the oldest segment are live, or most of the log is dead, they are
 * copied forward. Last, archives that are older than the retention are given up (archive.c).
 *
 * Unknown and processing operations never expire; their records are copied forward. */
#include "store/journal/journal.h"

#include "base/check.h"
#include "base/log.h"

#include <stdlib.h>
#include <unistd.h>

#define LAPSES_A_STEP 64u
#define ENTRIES_A_STEP 16384u
#define ENTRIES_A_SECOND 100000u
#define MOVES_A_STEP 64u
#define FRAMES_A_STEP 4096u
#define LIVE_SHARE 4u /* a segment is emptied when less than a quarter of it is live */

/* False: no lease is left to lapse. */
static bool lapse_leases(hx_journal *j)
{
    hx_op lapsed[LAPSES_A_STEP];
    unsigned count = 0;
    hx_slice key;
    void *value;
    hx_journal_flush(j); /* so that claims of this batch can be read */
    for (size_t cursor = 0; count < LAPSES_A_STEP && hx_map_next(j->opened, &cursor, &key, &value);) {
        const hx_open *o = value;
        if (hx_lifecycle_lease_is_over(o->lease_until, j->now)) lapsed[count++] = o->op;
    }
    for (unsigned i = 0; i < count; i++)
        if (!hx_journal_lapse(j, &lapsed[i], HX_UNKNOWN, HX_LIT("lease"))) return false;
    return count == LAPSES_A_STEP;
}

static bool tombstone_is_over(hx_journal *j, const hx_index_entry *entry)
{
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    return hx_journal_read_head(j, entry, bytes, &record) && hx_store_state_at(&record, j->now) == HX_ABSENT;
}

/* Where the route keeps tombstones, an expired outcome is replaced by one: a small record, so that the segment with the
 * response can be removed. */
static bool expire_entries(hx_journal *j)
{
    hx_sweeping *w = &j->sweep;
    hx_op buried[LAPSES_A_STEP];
    unsigned count = 0;
    uint32_t steps = ENTRIES_A_STEP;
    hx_index_entry entry;
    while (count < LAPSES_A_STEP && hx_index_next(j->index, &w->cursor, &steps, &entry)) {
        bool is_buried = hx_entry_is_over(&entry, j->now) && entry.entombed && !tombstone_is_over(j, &entry);
        if (is_buried) buried[count++] = entry.op;
        if (is_buried || !hx_entry_is_over(&entry, j->now)) {
            if (entry.until_s < w->earliest_seen) w->earliest_seen = entry.until_s;
            continue;
        }
        entry.state = HX_ABSENT;
        hx_journal_apply(j, &entry);
        w->cleaned++;
        atomic_fetch_add_explicit(&j->counts.cleaned, 1, memory_order_relaxed);
    }
    if (count > 0) hx_journal_flush(j); /* so that changes of this batch count */
    for (unsigned i = 0; i < count && hx_journal_may_append(j, HX_BARE_BYTES, HX_RESERVE_SWEEP); i++)
        if (!hx_journal_lapse(j, &buried[i], HX_EXPIRED, HX_LIT("lifetime"))) break;
    if (!hx_index_at_end(j->index, w->cursor)) return true;
    w->earliest = w->earliest_seen;
    w->walked_at = j->now;
    return false;
}

/* A walk of the index takes time in proportion to its size, and evicts everything else from the processor's caches. So
 * it waits until something has expired, and longer in a large index. Expired entries are not visible meanwhile. */
static bool is_time_to_walk(hx_journal *j)
{
    hx_sweeping *w = &j->sweep;
    hx_ms pause = (hx_ms)(hx_index_count(j->index) / ENTRIES_A_SECOND) * HX_SECOND;
    if (j->now - hx_clock_held() < (hx_ms)w->earliest * HX_SECOND || j->now - w->walked_at < pause) return false;
    w->cursor = 0;
    w->earliest_seen = HX_UNTIL_NEVER;
    return true;
}

static void drop_oldest(hx_journal *j, hx_segment *s)
{
    atomic_store(&j->segments[s->number % HX_SEGMENTS_MAX], NULL);
    atomic_store(&j->first_segment, s->number + 1);
    hx_background_want(j, HX_JOB_ARCHIVE, s->number);
    hx_reclaim_retire(j->readers, s, hx_segment_drop);
    j->sweep.emptied = (hx_tail){0};
}

static bool mostly_dead(hx_journal *j)
{
    uint64_t live = 0, all = 0;
    for (uint32_t n = atomic_load(&j->first_segment); n < j->log.active->number; n++) {
        const hx_segment *s = hx_journal_segment(j, n);
        live += s->live_bytes;
        all += s->end;
    }
    return all > 4 * (uint64_t)j->options.segment_bytes && live < all / 2;
}

/* Copies some live records of the oldest segment forward. False: it can't continue. */
static bool move_some(hx_journal *j, const hx_segment *s)
{
    hx_scan scan;
    hx_frame frame;
    hx_index_entry entry;
    hx_tail *at = &j->sweep.emptied;
    bool going = hx_scan_begin(&scan, s->fd, s->number, j->log.generation);
    if (at->segment != s->number) *at = (hx_tail){.segment = s->number, .offset = sizeof(hx_segment_head)};
    unsigned moves = 0;
    for (unsigned frames = 0; going && moves < MOVES_A_STEP && frames < FRAMES_A_STEP; frames++) {
        if (at->offset >= s->end) break;
        if (!hx_scan_at(&scan, at->offset, &frame)) {
            hx_log_begin(HX_EVENT_segment_unreadable);
            hx_log_text("store", j->path);
            hx_log_int("segment", s->number);
            hx_log_int("offset", (int64_t)at->offset);
            hx_log_end();
            going = false;
            break;
        }
        hx_frame_kind moved_as = frame.traits->moved_as;
        if (frame.traits->payload == HX_PAYLOAD_ITEMS) {
            bool any = false;
            going = hx_items_move(j, &frame, &any);
            moves += any;
        } else if (moved_as && hx_index_get(j->index, &frame.record.op, &entry) && entry.segment == s->number &&
                   (uint64_t)entry.unit * HX_PLACE_UNIT == at->offset) {
            going = hx_journal_may_append(j, frame.head.length, HX_RESERVE_SWEEP) &&
                    hx_journal_append(j, moved_as, &entry, NULL, frame.record_head, &frame.record.answer);
            if (frame.bytes.len > HX_INLINE_BYTES) hx_journal_flush(j); /* before the window moves */
            moves++;
        }
        if (going) at->offset += hx_frame_padded(frame.head.length);
    }
    hx_journal_flush(j);
    if (going && at->offset >= s->end && s->live > 0) going = false; /* a live record that can't be found */
    hx_scan_end(&scan);
    return going;
}

static bool clean_segments(hx_journal *j)
{
    hx_journal_flush(j); /* from here on a batch has only moved records */
    hx_segment *s = hx_journal_segment(j, atomic_load(&j->first_segment));
    if (s == j->log.active) return false;
    if (s->live == 0) {
        drop_oldest(j, s);
        return true;
    }
    if (s->live_bytes >= s->end / LIVE_SHARE && !mostly_dead(j)) return false;
    if (j->refuses_claims && !hx_journal_may_append(j, s->live_bytes, HX_RESERVE_SWEEP))
        return false; /* a segment that is emptied in part can't be removed */
    return move_some(j, s);
}

static void begin_pass(hx_journal *j)
{
    hx_sweeping *w = &j->sweep;
    hx_list_splice(&w->served, &w->waiting);
    w->phase = HX_SWEEP_LEASES;
    w->cleaned = 0;
    hx_background_check_limits(j);
    hx_dir_check_place(j);
}

static void end_pass(hx_journal *j)
{
    hx_sweeping *w = &j->sweep;
    for (hx_link *link; (link = hx_list_take(&w->served));) {
        hx_store_call *call = HX_OWNER(link, hx_store_call, own.link);
        call->count = w->cleaned;
        hx_journal_end_call(call, HX_STORE_OK);
    }
    w->phase = HX_SWEEP_IDLE;
}

static bool expire_items(hx_journal *j)
{
    uint64_t removed = 0;
    bool more = hx_items_expire(j, &removed);
    j->sweep.cleaned += removed;
    atomic_fetch_add_explicit(&j->counts.cleaned, removed, memory_order_relaxed);
    return more;
}

static hx_sweep_phase after_operations(hx_journal *j)
{
    return hx_items_time_to_walk(j) ? HX_SWEEP_ITEMS : HX_SWEEP_SEGMENTS;
}

bool hx_journal_sweep_step(hx_journal *j)
{
    hx_sweeping *w = &j->sweep;
    switch (w->phase) {
    case HX_SWEEP_IDLE:
        if (hx_list_empty(&w->waiting)) return false;
        begin_pass(j);
        break;
    case HX_SWEEP_LEASES:
        if (!lapse_leases(j)) w->phase = is_time_to_walk(j) ? HX_SWEEP_EXPIRY : after_operations(j);
        break;
    case HX_SWEEP_EXPIRY:
        if (!expire_entries(j)) w->phase = after_operations(j);
        break;
    case HX_SWEEP_ITEMS:
        if (!expire_items(j)) w->phase = HX_SWEEP_SEGMENTS;
        break;
    case HX_SWEEP_SEGMENTS:
        if (!clean_segments(j) && !hx_archive_retire(j)) end_pass(j);
        break;
    }
    return true;
}
