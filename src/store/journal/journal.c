/* SPDX-License-Identifier: Apache-2.0 */
/* The loops' half of the journal: calls are gathered per loop and handed to the writer once a turn; their ends come
 * back in batches. Reading goes through the index without asking anyone.
 *
 * A call that ends EXISTS or STALE, and a watch, read the current record on their own loop, after the writer
 * has made their batch durable: so what they show can't be undone, and the writer never reads for them. */
#include "store/journal/journal.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_BYTES 8192u

hx_slice hx_journal_op_key(const hx_op *op)
{
    return (hx_slice){(const char *)op->bytes, sizeof op->bytes};
}

void hx_mailbox_put(hx_mailbox *box, uintptr_t newest, uintptr_t oldest, bool *was_empty)
{
    uintptr_t top = atomic_load_explicit(box, memory_order_relaxed);
    do {
        *hx_mail_next(oldest) = top;
    } while (!atomic_compare_exchange_weak(box, &top, newest));
    *was_empty = top == 0;
}

uintptr_t hx_mailbox_take(hx_mailbox *box)
{
    uintptr_t newest = atomic_exchange(box, 0), oldest = 0;
    while (newest) { /* turn the stack round */
        uintptr_t *next = hx_mail_next(newest);
        uintptr_t older = *next;
        *next = oldest;
        oldest = newest;
        newest = older;
    }
    return oldest;
}

/* If it sleeps for no more than `waiting` calls. */
static void wake_writer(hx_journal *j, uint32_t waiting)
{
    uint32_t wanted = atomic_load(&j->asleep);
    if (wanted == 0 || wanted > waiting || !atomic_exchange(&j->asleep, 0)) return;
    (void)syscall(SYS_futex, &j->asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Runs late in the turn, and once more behind all that was deferred meanwhile: one batch a turn. */
static void hand_over(hx_task *task)
{
    hx_port *port = HX_OWNER(task, hx_port, hand_over);
    if (!port->once_more) {
        port->once_more = true;
        hx_loop_defer(port->loop, task);
        return;
    }
    port->gathering = port->once_more = false;
    uintptr_t newest = port->gathered, oldest = port->gathered_oldest;
    port->gathered = port->gathered_oldest = 0;
    bool was_empty;
    uint32_t waiting = atomic_fetch_add(&port->journal->waiting, port->gathered_count) + port->gathered_count;
    port->gathered_count = 0;
    hx_mailbox_put(&port->to_writer, newest, oldest, &was_empty);
    wake_writer(port->journal, waiting);
}

static void gather(hx_port *port, uintptr_t mail)
{
    *hx_mail_next(mail) = port->gathered;
    port->gathered = mail;
    port->gathered_count++;
    if (!port->gathered_oldest) port->gathered_oldest = mail;
    if (port->gathering) return;
    port->gathering = true;
    hx_loop_defer(port->loop, &port->hand_over);
}

static hx_port *port_of(hx_journal *j, const hx_loop *loop)
{
    unsigned count = atomic_load_explicit(&j->port_count, memory_order_acquire);
    for (unsigned i = 0; i < count; i++) {
        hx_port *port = atomic_load_explicit(&j->ports[i], memory_order_relaxed);
        if (port->loop == loop) return port;
    }
    hx_check_failed(__FILE__, __LINE__, "the loop was attached to the store");
}

static void encode(hx_store_call *call)
{
    hx_buf head;
    hx_buf_init(&head, call->arena, HX_RECORD_HEAD_MAX);
    bool fits = hx_buf_reserve(&head, 512); /* most heads: no second allocation */
    HX_CHECK(fits);
    if (call->record->state == HX_ABSENT) {
        hx_record kept = *call->record; /* a released answer goes to watchers, not to the disk */
        kept.answer = (hx_answer){.status = kept.answer.status};
        hx_record_encode(&kept, &head);
    } else {
        hx_record_encode(call->record, &head);
    }
    call->own.journal.head = hx_buf_slice(&head);
}

static void journal_submit(hx_store *store, hx_store_call *call)
{
    hx_journal *j = (hx_journal *)store;
    hx_port *port = port_of(j, call->loop);
    switch (call->verb) {
    case HX_STORE_LIST:
    case HX_STORE_HISTORY: hx_journal_look_through(j, call); return;
    case HX_STORE_GET:
    case HX_STORE_SCAN: hx_items_read(j, call); return;
    case HX_STORE_CLAIM:
    case HX_STORE_SETTLE:
    case HX_STORE_IMPORT: encode(call); break;
    case HX_STORE_COMMIT: hx_items_encode(call); break;
    default: break;
    }
    call->own.journal.port = port;
    call->own.shown = NULL;
    call->own.journal.ends_awaited = 1;
    gather(port, (uintptr_t)call);
}

static void journal_cancel(hx_store *store, hx_store_call *call)
{
    (void)store;
    if (call->own.journal.ends_awaited != 1) return; /* cancelled before */
    call->own.journal.ends_awaited = 2;              /* its end, and the end of the cancelling */
    gather(call->own.journal.port, (uintptr_t)call | 1);
}

static hx_peek peek_for(hx_journal *j, hx_store_call *call)
{
    return hx_store_peek_large(&j->store, &call->op, call->arena, call->whole_max, &call->found);
}

/* Shows what a watch ended with. The record may have changed since: then only the state in which it left its epoch is
 * shown, and a response that has expired meanwhile as absent. */
static void show_watched(hx_journal *j, hx_store_call *call)
{
    hx_shared_record *shared = call->own.shown;
    if (shared) {
        hx_shared_record_show(shared, call->arena, &call->found);
        hx_shared_record_drop(&shared);
        return;
    }
    uint64_t epoch = call->own.journal.epoch;
    hx_state state = call->own.journal.state;
    bool found = peek_for(j, call) == HX_PEEK_FOUND;
    if (epoch == 0 || (found && call->found.epoch == epoch)) return; /* 0: it wasn't in the watched epoch anyway */
    call->found = state == HX_UNKNOWN ? hx_record_unreadable(&call->op, epoch)
                                      : (hx_record){.op = call->op, .epoch = epoch};
}

/* False: what was in the way has gone, and the call goes round once more. */
static bool show_end(hx_journal *j, hx_store_call *call)
{
    call->found.op = call->op;
    if (call->result == HX_STORE_OK && call->verb == HX_STORE_CLAIM) {
        call->record->epoch = call->own.journal.epoch;
    } else if (call->result == HX_STORE_OK && call->verb == HX_STORE_WATCH) {
        show_watched(j, call);
    } else if ((call->result == HX_STORE_EXISTS || call->result == HX_STORE_STALE) && call->verb != HX_STORE_COMMIT) {
        bool found = peek_for(j, call) == HX_PEEK_FOUND;
        if (!found) call->found = (hx_record){.op = call->op};
        return found || call->result == HX_STORE_STALE;
    }
    return true;
}

static void journal_done(hx_task *task)
{
    hx_port *port = HX_OWNER(task, hx_port, wake);
    uintptr_t mail = hx_mailbox_take(&port->to_loop);
    while (mail) {
        hx_store_call *call = hx_mail_call(mail);
        mail = *hx_mail_next(mail);
        if (--call->own.journal.ends_awaited > 0) continue;
        if (!show_end(port->journal, call))
            journal_submit(&port->journal->store, call);
        else
            call->done(call);
    }
}

static void journal_attach(hx_store *store, hx_loop *loop)
{
    hx_journal *j = (hx_journal *)store;
    hx_port *port = calloc(1, sizeof *port);
    if (!port) hx_fatal(HX_EXIT_BUG, "out of memory");
    *port = (hx_port){.journal = j, .loop = loop, .hand_over.run = hand_over, .wake.run = journal_done};
    pthread_mutex_lock(&j->attaching);
    unsigned count = atomic_load(&j->port_count);
    HX_CHECK(count < HX_PORTS_MAX);
    atomic_store(&j->ports[count], port);
    atomic_store_explicit(&j->port_count, count + 1, memory_order_release);
    pthread_mutex_unlock(&j->attaching);
}

hx_segment *hx_journal_segment(hx_journal *j, uint32_t number)
{
    hx_segment *s = atomic_load(&j->segments[number % HX_SEGMENTS_MAX]);
    return s && s->number == number ? s : NULL;
}

void hx_segment_drop(void *segment)
{
    hx_segment *s = segment;
    if (atomic_fetch_sub(&s->pins, 1) > 0) return; /* somebody still reads from it, and drops it at last */
    close(s->fd);
    free(s);
}

static bool is_whole(const hx_extent *body, uint32_t crc, uint32_t wanted)
{
    HX_UNINITIALIZED char piece[32u * 1024u];
    hx_extent rest = *body;
    while (rest.len > 0) {
        size_t len = rest.len < sizeof piece ? (size_t)rest.len : sizeof piece;
        if (!hx_extent_read(&rest, piece, len)) return false;
        crc = hx_crc32c(crc, (hx_slice){piece, len});
        rest.at += len;
        rest.len -= len;
    }
    return crc == wanted;
}

/* Reads all but the body, which is gone through piece by piece: it is what was written, to the last byte, before any of
 * it is shown. */
static bool read_around_body(hx_segment *s, uint64_t at, hx_slice first, hx_arena *arena, size_t whole_max,
                             hx_record *out)
{
    hx_record_layout layout;
    size_t head_max = first.len < HX_RECORD_HEAD_MAX ? first.len : HX_RECORD_HEAD_MAX;
    hx_slice head = hx_arena_copy(arena, hx_slice_first(first, head_max));
    if (hx_record_decode_layout(head, out, &layout) != HX_RECORD_OK || layout.body_len <= whole_max) return false;
    char *headers = hx_arena_alloc(arena, layout.headers_len);
    hx_extent lines = {s->fd, at + layout.head_len, layout.headers_len};
    if (!hx_extent_read(&lines, headers, layout.headers_len)) return false;
    out->answer.headers = (hx_slice){headers, layout.headers_len};
    hx_extent *body = hx_arena_alloc(arena, sizeof *body);
    *body = (hx_extent){s->fd, lines.at + lines.len, layout.body_len};
    if (!is_whole(body, hx_crc32c(0, out->answer.headers), layout.answer_crc)) return false;
    out->answer.body = HX_EMPTY;
    out->body_file = body;
    atomic_fetch_add(&s->pins, 1); /* before the readers are left: the journal's own hold is still there */
    hx_arena_at_end(arena, hx_segment_drop, s);
    return true;
}

static bool read_record(hx_segment *s, const hx_index_entry *entry, hx_arena *arena, size_t whole_max, hx_record *out)
{
    uint64_t at = (uint64_t)entry->unit * HX_PLACE_UNIT, most = hx_class_bytes(entry->size_class);
    HX_UNINITIALIZED char
        first[READ_BYTES]; /* so that the arena gets what the record needs, not what its class could have */
    ssize_t got;
    do got = pread(s->fd, first, most < sizeof first ? most : sizeof first, (off_t)at);
    while (got < 0 && errno == EINTR);
    hx_frame_head head;
    if (got < (ssize_t)sizeof head) return false;
    memcpy(&head, first, sizeof head);
    if (head.length < sizeof head || head.length > most || head.segment != entry->segment) return false;
    hx_slice read = {first + sizeof head, (size_t)got - sizeof head};
    bool is_large = whole_max > 0 && head.length > whole_max + HX_HEADS_BYTES;
    if (is_large && read_around_body(s, at + sizeof head, read, arena, whole_max, out)) return true;
    char *bytes = hx_arena_alloc(arena, head.length);
    size_t here = head.length < (uint64_t)got ? head.length : (size_t)got;
    memcpy(bytes, first, here);
    hx_extent rest = {s->fd, at + here, head.length - here};
    if (here < head.length && !hx_extent_read(&rest, bytes + here, head.length - here)) return false;
    hx_slice record = {bytes + sizeof head, head.length - sizeof head};
    return hx_record_decode(record, out) == HX_RECORD_OK;
}

bool hx_journal_read(hx_journal *j, const hx_index_entry *entry, hx_arena *arena, size_t whole_max, hx_record *out)
{
    HX_CHECK(hx_reclaim_is_entered(j->readers)); /* the segment may be retired */
    hx_segment *s = hx_journal_segment(j, entry->segment);
    return s && read_record(s, entry, arena, whole_max, out) && hx_op_eq(&out->op, &entry->op) &&
           out->epoch == entry->epoch && out->state == entry->state;
}

bool hx_journal_read_head(hx_journal *j, const hx_index_entry *entry, char bytes[HX_HEADS_BYTES], hx_record *out)
{
    const hx_segment *s = hx_journal_segment(j, entry->segment);
    if (!s) return false;
    uint64_t most = hx_class_bytes(entry->size_class);
    ssize_t got;
    do got = pread(s->fd, bytes, most < HX_HEADS_BYTES ? most : HX_HEADS_BYTES, (off_t)entry->unit * HX_PLACE_UNIT);
    while (got < 0 && errno == EINTR);
    hx_frame_head head;
    if (got < (ssize_t)sizeof head) return false;
    memcpy(&head, bytes, sizeof head);
    size_t head_len, answer_len;
    hx_slice record = {bytes + sizeof head, (size_t)got - sizeof head};
    return head.segment == entry->segment &&
           hx_record_decode_head(record, out, &head_len, &answer_len) == HX_RECORD_OK &&
           hx_op_eq(&out->op, &entry->op) && out->epoch == entry->epoch && out->state == entry->state;
}

void hx_journal_report_unreadable(const hx_journal *j, const hx_index_entry *entry)
{
    hx_log_begin(HX_EVENT_record_unreadable);
    hx_log_text("store", j->path);
    hx_log_hex("operation", entry->op.bytes, sizeof entry->op.bytes);
    hx_log_int("segment", entry->segment);
    hx_log_int("offset", (int64_t)entry->unit * HX_PLACE_UNIT);
    hx_log_text("hint", "the disk returned other bytes than were written; see `hapax store salvage`");
    hx_log_end();
}

static hx_peek journal_peek(hx_store *store, const hx_op *op, hx_arena *arena, size_t whole_max, hx_record *found)
{
    hx_journal *j = (hx_journal *)store;
    hx_ms now = store->facts.now();
    hx_index_entry entry, again;
    hx_reclaim_enter(j->readers);
    bool there = hx_index_find(j->index, op, &entry), readable = false;
    while (there) {
        if (hx_entry_is_over(&entry, now) && !entry.entombed) there = false;
        if (!there || (readable = hx_journal_read(j, &entry, arena, whole_max, found))) break;
        /* It may have been moved or replaced while we read; if it is still there, the disk is at fault. */
        there = hx_index_find(j->index, op, &again);
        if (there && again.segment == entry.segment && again.unit == entry.unit) break;
        entry = again;
    }
    hx_reclaim_leave(j->readers);
    if (!there) return HX_PEEK_ABSENT;
    if (!readable && !(j->salvaged && hx_salvage_read(j, &entry, arena, found))) {
        hx_journal_report_unreadable(j, &entry);
        *found = hx_record_unreadable(op, entry.epoch);
    }
    if (found->state == HX_PROCESSING) found->lease_until = entry.lease_until;
    found->state = hx_store_state_at(found, now);
    if (found->state == HX_EXPIRED) found->answer = (hx_answer){0}, found->body_file = NULL;
    return found->state != HX_ABSENT ? HX_PEEK_FOUND : HX_PEEK_ABSENT;
}

static void journal_count(hx_store *store, hx_store_counts *out)
{
    hx_journal *j = (hx_journal *)store;
    *out = (hx_store_counts){.live = atomic_load(&j->counts.live),
                             .processing = atomic_load(&j->counts.processing),
                             .unknown = atomic_load(&j->counts.unknown),
                             .bytes = atomic_load(&j->bytes),
                             .watchers = atomic_load(&j->waiters.count),
                             .commits = atomic_load(&j->log.commits),
                             .stale_writes = atomic_load(&j->counts.stale_writes),
                             .cleaned = atomic_load(&j->counts.cleaned),
                             .unretained = atomic_load(&j->counts.unretained)};
}

static void journal_rules(hx_store *store, hx_arena *arena, hx_store_rules *out)
{
    hx_route_ids_report(((hx_journal *)store)->rules, arena, out);
}

static uint64_t journal_live_at_most(hx_store *store, hx_slice route)
{
    return hx_route_ids_live_at_most(((hx_journal *)store)->rules, route);
}

/* Segments stay as large as they were made for the limit at the start. The next sweep sees whether claims are taken. */
static bool journal_limit(hx_store *store, const hx_store_options *options, hx_error_text error)
{
    hx_journal *j = (hx_journal *)store;
    uint64_t fewest = 3 * (uint64_t)j->options.segment_bytes;
    if (options->bytes_max > 0 && options->bytes_max < fewest)
        return hx_fail(error, "store_max is too small for this journal while it is open: it needs at least %llu MiB",
                       (unsigned long long)(fewest >> 20));
    atomic_store(&j->bytes_max, options->bytes_max);
    atomic_store(&j->audit_retention, options->audit_retention);
    hx_waiters_limit(&j->waiters, options);
    return true;
}

void hx_journal_free(hx_journal *j)
{
    for (uint32_t i = 0; i < HX_SEGMENTS_MAX; i++) {
        hx_segment *s = atomic_load(&j->segments[i]);
        if (s) hx_segment_drop(s);
    }
    for (unsigned i = 0; i < atomic_load(&j->port_count); i++) free(atomic_load(&j->ports[i]));
    hx_slice key;
    void *value;
    for (size_t cursor = 0; j->opened && hx_map_next(j->opened, &cursor, &key, &value);) free(value);
    for (hx_open *o = j->open_free, *next; o; o = next) {
        next = o->next_free;
        free(o);
    }
    hx_map_free(&j->opened);
    hx_waiters_free(&j->waiters);
    hx_reclaim_free(&j->readers);
    hx_index_free(&j->index);
    hx_items_free(&j->items);
    hx_route_ids_free(&j->rules);
    free(j->log.batch.stage);
    if (j->lock_fd >= 0) close(j->lock_fd); /* gives the lock back */
    if (j->dir_fd >= 0) close(j->dir_fd);
    pthread_mutex_destroy(&j->attaching);
    free(j->path);
    free(j);
}

static void journal_close(hx_store *store)
{
    hx_journal *j = (hx_journal *)store;
    if (j->salvaged) {
        hx_journal_free(j);
        return;
    }
    atomic_store(&j->stop, true);
    wake_writer(j, UINT32_MAX);
    pthread_join(j->writer, NULL);
    hx_background_stop(j);
    (void)hx_background_write_hint(j, j->log.active->number); /* a start without it only takes longer */
    hx_journal_free(j);
}

static bool journal_last_epoch(hx_store *store, uint64_t *epoch, hx_error_text error)
{
    (void)error;
    *epoch = ((hx_journal *)store)->log.tail.epoch;
    return true;
}

const hx_store_ops hx_journal_ops = {journal_attach, journal_submit,    journal_cancel, journal_peek,
                                     journal_count,  journal_close,     journal_rules,  journal_live_at_most,
                                     journal_limit,  journal_last_epoch};
