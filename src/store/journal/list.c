/* SPDX-License-Identifier: Apache-2.0 */
/* Lists and histories for operators. Both run on the caller's loop, in steps with a pause after each, so that neither
 * the writer nor the loop's other work waits for them.
 *
 * A list walks the index in the order of its entries' places, which never change: a cursor is a place, and no operation
 * is listed twice. State, route and time are filtered by the index; only what matches is read from disk, without
 * responses.
 *
 * A history reads the log from its oldest archive to what is durable now. The files are opened by their names: the
 * archive of a segment is complete before the segment is removed, so one of the two always exists. */
#include "store/journal/open.h"

#include "base/check.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PAUSE_MS 1
#define PARTS_A_STEP 8u /* parts of up to HX_INDEX_PART_MAX entries each */
#define READS_A_STEP 256u
#define SCAN_BYTES_A_STEP (1u << 20)
#define SCAN_FRAMES_A_STEP 2048u

typedef struct {
    hx_timer timer;
    hx_journal *journal;
    hx_store_call *call;
    /* only for a list */
    hx_ms now;
    hx_route_ids_parts parts; /* parts that may hold operations on the page's paths */
    hx_index_placed part[HX_INDEX_PART_MAX];
} listing;

typedef struct {
    hx_timer timer;
    hx_journal *journal;
    hx_store_call *call;
    uint32_t segment, last; /* `segment`: the one that is being read; 0: none was opened yet */
    uint64_t from, to;      /* sequences of frames */
    int fd;                 /* -1: the next file must be opened */
    hx_scan scan;
    hx_tail tail;
} reading;

static void end(hx_store_call *call)
{
    call->result = HX_STORE_OK;
    call->done(call);
}

/* Compares by the minute, of which the index has 24 bits: enough for 16 years in both directions. */
static bool in_time(const hx_store_page *page, const hx_index_entry *entry, hx_ms now)
{
    int64_t minute = now / HX_MINUTE, ago = (minute - (int64_t)entry->changed_min) & 0xffffff;
    if (ago >= 0x800000) ago -= 0x1000000;
    hx_ms first = (minute - ago) * HX_MINUTE;
    return first + HX_MINUTE > page->changed_from && (page->changed_before == 0 || first < page->changed_before);
}

/* Whether the entry matches the filter, as far as the index can tell. */
static bool may_be_wanted(const listing *l, const hx_index_entry *entry)
{
    const hx_store_page *page = l->call->page;
    bool over = hx_entry_is_over(entry, l->now);
    if (over && !entry->entombed) return false;
    if (page->states != 0 && !(page->states >> (over ? HX_EXPIRED : entry->state) & 1)) return false;
    if (page->route.len > 0 && !hx_route_ids_may_be(l->journal->rules, entry->rule, page->route)) return false;
    if (page->path_count > 0 && !hx_route_ids_may_be_in(l->journal->rules, entry->rule, &l->parts)) return false;
    return entry->state == HX_PROCESSING || in_time(page, entry, l->now);
}

/* Reads the current record. False: it no longer exists. */
static bool read_now(hx_journal *j, hx_index_entry *entry, char bytes[HX_HEADS_BYTES], hx_arena *arena, hx_record *out)
{
    hx_index_entry again;
    while (!hx_journal_read_head(j, entry, bytes, out)) {
        if (!hx_index_find(j->index, &entry->op, &again)) return false;
        bool damaged = again.segment == entry->segment && again.unit == entry->unit;
        *entry = again;
        if (!damaged) continue; /* the record was moved or replaced meanwhile */
        if (j->salvaged && hx_salvage_read(j, entry, arena, out)) return true;
        hx_journal_report_unreadable(j, entry);
        *out = hx_record_unreadable(&entry->op, entry->epoch);
        out->route = hx_route_ids_row_at(j->rules, entry->rule).name;
        return true;
    }
    if (out->state == HX_PROCESSING) out->lease_until = entry->lease_until;
    return true;
}

static void list_one(const listing *l, hx_index_entry *entry)
{
    char bytes[HX_HEADS_BYTES];
    hx_record record;
    if (!read_now(l->journal, entry, bytes, l->call->arena, &record)) return;
    record.state = hx_store_state_at(&record, l->now);
    if (record.state == HX_EXPIRED) record.answer = (hx_answer){0};
    if (record.state == HX_ABSENT || !hx_store_page_wants(l->call->page, &record)) return;
    hx_store_page_add(l->call->page, l->call->arena, &record);
}

/* Lists one part of the index and moves the page's cursor behind it. False: that was the last, or the page is full. */
static bool list_part(listing *l, unsigned *reads)
{
    hx_store_page *page = l->call->page;
    uint64_t next;
    size_t count = hx_index_part(l->journal->index, page->cursor, l->part, &next);
    for (size_t i = 0; i < count; i++) {
        if (!may_be_wanted(l, &l->part[i].entry)) continue;
        page->more = page->count == page->records_max;
        if (page->more || *reads == 0) {
            page->cursor = l->part[i].place;
            return !page->more;
        }
        --*reads;
        list_one(l, &l->part[i].entry);
    }
    page->cursor = next;
    return next != 0;
}

static void list_step(hx_timer *timer)
{
    listing *l = HX_OWNER(timer, listing, timer);
    hx_journal *j = l->journal;
    unsigned reads = READS_A_STEP, parts = PARTS_A_STEP;
    bool going = true;
    l->now = j->store.facts.now();
    hx_reclaim_enter(j->readers);
    while (going && reads > 0 && parts-- > 0) going = list_part(l, &reads);
    hx_reclaim_leave(j->readers);
    if (going)
        hx_timer_start(l->call->loop, timer, PAUSE_MS, list_step);
    else
        end(l->call);
}

/* Finds the numbers of the first and the last file of the log. */
static bool find_files(hx_journal *j, uint32_t *first, uint32_t *last)
{
    DIR *dir = hx_dir_list(j);
    if (!dir) return false;
    *first = UINT32_MAX;
    *last = 0;
    for (struct dirent *item; (item = readdir(dir));) {
        uint32_t number;
        if (!hx_segment_number(item->d_name, ".seg", &number) && !hx_segment_number(item->d_name, ".audit", &number))
            continue;
        if (number < *first) *first = number;
        if (number > *last) *last = number;
    }
    closedir(dir);
    return *last > 0;
}

/* False: no file has that number, or it is empty. */
static bool open_file(reading *r)
{
    hx_journal *j = r->journal;
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, r->segment, ".seg");
    r->fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    bool archived = r->fd < 0 && errno == ENOENT;
    if (archived) {
        hx_segment_name(name, r->segment, ".audit");
        r->fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    }
    if (r->fd < 0) return false;
    hx_segment_head head;
    const char *bytes = NULL;
    if (hx_scan_begin(&r->scan, r->fd, r->segment, j->log.generation)) bytes = hx_scan_bytes(&r->scan, 0, sizeof head);
    if (bytes) memcpy(&head, bytes, sizeof head);
    if (!bytes || !hx_segment_valid(&head, j->log.generation, r->segment)) return false;
    r->scan.trusted = true;
    r->scan.bare = archived;
    r->tail = (hx_tail){.segment = r->segment, .offset = sizeof head, .sequence = head.sequence};
    return true;
}

static void close_file(reading *r)
{
    hx_scan_end(&r->scan);
    if (r->fd >= 0) close(r->fd);
    r->fd = -1;
}

/* Whether the frame is a copy that was moved forward and the page has its original; a copy whose original is lost
 * counts as a version. */
static bool is_known(const hx_store_page *page, const hx_frame *frame)
{
    if (!frame->traits->is_copy) return false;
    const hx_record *record = &frame->record;
    for (size_t i = page->count; i-- > 0;)
        if (page->records[i].epoch == record->epoch && page->records[i].state == record->state) return true;
    return false;
}

/* False: the page is full. */
static bool take_frame(const reading *r, const hx_frame *frame)
{
    hx_store_page *page = r->call->page;
    bool is_record = frame->traits->payload == HX_PAYLOAD_RECORD;
    if (!is_record || frame->head.sequence < r->from || !hx_store_history_wants(r->call, &frame->record)) return true;
    if (is_known(page, frame)) return true;
    hx_store_page_offer(page, r->call->arena, &frame->record, frame->head.sequence);
    return !page->more;
}

/* Reads some frames of the current file. False: everything was read. */
static bool read_some(reading *r)
{
    uint64_t stop = r->tail.offset + SCAN_BYTES_A_STEP;
    hx_frame frame;
    hx_scan_step step = HX_SCAN_FRAME;
    for (unsigned frames = SCAN_FRAMES_A_STEP; frames > 0 && r->tail.offset < stop; frames--) {
        if (r->tail.sequence >= r->to) return false;
        step = hx_scan_next(&r->scan, &r->tail, &frame);
        if (step != HX_SCAN_FRAME) break;
        if (!take_frame(r, &frame)) return false;
    }
    if (step == HX_SCAN_FRAME) return true;
    if (step != HX_SCAN_END) {
        hx_log_begin(HX_EVENT_history_unreadable);
        hx_log_text("store", r->journal->path);
        hx_log_int("segment", r->segment);
        hx_log_int("offset", (int64_t)r->tail.offset);
        hx_log_end();
    }
    close_file(r);
    return true;
}

static void history_step(hx_timer *timer)
{
    reading *r = HX_OWNER(timer, reading, timer);
    bool going = true;
    if (r->fd < 0) {
        going = r->segment < r->last;
        if (going && (r->segment++, !open_file(r))) close_file(r);
    } else {
        going = read_some(r);
    }
    if (going) {
        hx_timer_start(r->call->loop, timer, PAUSE_MS, history_step);
        return;
    }
    close_file(r);
    end(r->call);
}

void hx_journal_look_through(hx_journal *j, hx_store_call *call)
{
    if (call->verb == HX_STORE_LIST) {
        listing *l = hx_arena_zalloc(call->arena, sizeof *l);
        l->journal = j;
        l->call = call;
        for (size_t i = 0; i < call->page->path_count; i++) hx_route_ids_mark(&l->parts, call->page->paths[i]);
        hx_timer_start(call->loop, &l->timer, 0, list_step);
        return;
    }
    reading *r = hx_arena_zalloc(call->arena, sizeof *r);
    *r = (reading){.journal = j, .call = call, .from = call->page->cursor, .to = j->log.durable, .fd = -1};
    call->page->cursor = 0;
    if (find_files(j, &r->segment, &r->last)) r->segment--;
    hx_timer_start(call->loop, &r->timer, 0, history_step);
}
