/* SPDX-License-Identifier: Apache-2.0 */
/* A hint, NNNNNNNN.hint, has the index entries of a segment, so that a start needn't read the segment:
 *
 *     0    8  "hapaxhnt"                     88   8  bytes in gaps
 *     8    4  version: 4 with items, else 3  96   8  number of entries
 *    12    4  segment number                104   4  number of rules
 *    16    8  generation of the store       108   4  CRC-32C of all from byte 128 on
 *    24    8  offset of the segment's end   112   8  number of items
 *    32    8  sequence of the next frame    120   4  zeros
 *    40    8  highest epoch                 124   4  CRC-32C of bytes 0 to 124
 *    48    8  latest stamp                  128   …  rules: version (4), bucket (2), length (1), name of the route
 *    56   32  hash of the last frame          …   …  entries: operation (16), the three words of index.c, whose rule
 *                                                    is a number in this file, from 1 on
 *                                             …   …  items: unit of the frame (4), head (store/item_bytes.h) with the
 *                                                    version; that of one that was removed is 0
 *
 * An entry has the last state of an operation in this segment, also `absent`: an older segment may have a record of it.
 * So has an item.
 * A hint is made by reading the segment, so entries are derived from frames in one place only. If it is missing,
 * doesn't match its segment or has another version, the segment is read instead, and a new hint is made. A checksum
 * proves that a file is as it was written, not that its values are valid: every value that is used as an offset, a
 * count or a size of memory is checked before the first entry is applied. */
#include "store/journal/journal.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "core/operation/policy.h"
#include "store/journal/item_frame.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 3u
#define VERSION_WITH_ITEMS 4u
#define UNIT_BYTES 4u
#define RULE_BYTES 7u /* without the name, which follows */
static const char magic[8] = {'h', 'a', 'p', 'a', 'x', 'h', 'n', 't'};

typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t segment;
    uint64_t generation;
    uint64_t end;
    uint64_t sequence;
    uint64_t epoch;
    hx_ms stamp;
    hx_digest hash;
    uint64_t lost;
    uint64_t count;
    uint32_t rule_count;
    uint32_t rest_crc;
    uint64_t item_count;
    uint8_t zero[4];
    uint32_t crc;
} hint_head;

typedef struct {
    hx_op op;
    uint64_t words[3];
} hint_entry;

_Static_assert(sizeof(hint_head) == 128 && sizeof(hint_entry) == 40, "written as they stand in memory");

typedef struct {
    hint_entry *entries;
    size_t count, cap;
    uint32_t *table; /* hash table of indexes in `entries`, from 1 on; has twice as many slots as `cap` */
    hx_route_ids *rules;
    hx_item_index items; /* version 0: removed */
} collection;

static uint16_t local_rule(const collection *c, const hx_record *record)
{
    hx_route_ids_row row = hx_route_ids_row_of(record->route, record->rule_version);
    return hx_route_ids_number(c->rules, &row);
}

static void write_rules(const hx_route_ids *rules, hx_buf *out)
{
    for (uint32_t i = 1; i < hx_route_ids_size(rules); i++) {
        hx_route_ids_row row = hx_route_ids_row_at(rules, (uint16_t)i);
        bool fits = hx_buf_append(out, (hx_slice){(const char *)&row.version, sizeof row.version}) &&
                    hx_buf_append(out, (hx_slice){(const char *)&row.bucket, sizeof row.bucket}) &&
                    hx_buf_byte(out, (char)row.name.len) && hx_buf_append(out, row.name);
        HX_CHECK(fits);
    }
}

/* Returns the number of bytes read. */
static size_t read_rule(const char *bytes, hx_route_ids_row *row)
{
    memcpy(&row->version, bytes, sizeof row->version);
    memcpy(&row->bucket, bytes + 4, sizeof row->bucket);
    row->name = (hx_slice){bytes + RULE_BYTES, (unsigned char)bytes[6]};
    return RULE_BYTES + row->name.len;
}

/* Finds the slot of the operation, or the empty one for it. Operations are MACs, so any of their bytes are a hash. */
static uint32_t *slot_for(collection *c, const hx_op *op)
{
    uint64_t hash;
    memcpy(&hash, op->bytes, sizeof hash);
    size_t mask = 2 * c->cap - 1, at = hash & mask;
    while (c->table[at] > 0 && !hx_op_eq(&c->entries[c->table[at] - 1].op, op)) at = (at + 1) & mask;
    return &c->table[at];
}

static void make_room(collection *c)
{
    if (c->count < c->cap) return;
    c->cap = c->cap ? c->cap * 2 : 1024;
    free(c->table);
    c->table = calloc(2 * c->cap, sizeof *c->table);
    if (!c->table) hx_fatal(HX_EXIT_BUG, "out of memory for a hint");
    hint_entry *entries = realloc(c->entries, c->cap * sizeof *entries);
    if (!entries) hx_fatal(HX_EXIT_BUG, "out of memory for a hint");
    c->entries = entries;
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): `entries` is the collection's now */
    for (size_t i = 0; i < c->count; i++) *slot_for(c, &c->entries[i].op) = (uint32_t)i + 1;
}

static void collect_items(collection *c, const hx_frame *frame)
{
    hx_slice rest = hx_item_table_heads(frame->record_head);
    for (hx_item_head head; hx_item_head_take(&rest, &head);)
        free(hx_item_index_put(&c->items,
                               hx_items_indexed(&head, frame->head.segment, frame->offset, frame->head.sequence)));
}

/* Keeps the last record of each operation and the last state of each item; frames come in the order of the log. */
static void collect(collection *c, const hx_frame *frame, uint32_t segment)
{
    if (!frame->traits->is_indexed) return;
    if (frame->traits->payload == HX_PAYLOAD_ITEMS) {
        collect_items(c, frame);
        return;
    }
    hx_index_entry entry;
    hx_entry_of(&entry, &frame->record, segment, frame->offset, frame->head.length);
    entry.rule = local_rule(c, &frame->record);
    make_room(c);
    uint32_t *slot = slot_for(c, &entry.op);
    if (*slot == 0) *slot = (uint32_t)++c->count;
    hint_entry *to = &c->entries[*slot - 1];
    to->op = entry.op;
    hx_index_pack(&entry, to->words);
}

static void write_items(const hx_item_index *items, hx_buf *out)
{
    for (hx_tree_node *node = hx_tree_first(&items->by_key); node; node = hx_tree_next(node)) {
        const hx_indexed_item *item = HX_OWNER(node, hx_indexed_item, by_key);
        hx_item_head head = {.item = {.key = hx_indexed_key(item),
                                      .version = item->version,
                                      .act = item->version > 0 ? HX_ITEM_PUT : HX_ITEM_REMOVE,
                                      .queue = hx_indexed_queue(item),
                                      .due = item->due,
                                      .expires_at = item->expires_at,
                                      .meta = {NULL, item->meta_len},
                                      .body = {NULL, item->body_len}},
                             .meta_crc = item->place.meta_crc,
                             .body_crc = item->place.body_crc,
                             .at = item->place.at};
        hx_buf_put(out, (hx_slice){(const char *)&item->place.unit, UNIT_BYTES});
        hx_item_head_put(&head, out);
    }
}

static int write_hint(hx_journal *j, const hx_tail *tail, const collection *c)
{
    char making[HX_SEGMENT_NAME_BYTES], name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(making, tail->segment, ".hint.new");
    hx_segment_name(name, tail->segment, ".hint");
    hx_slice entries = {(const char *)c->entries, c->count * sizeof c->entries[0]};
    hx_buf rules, items;
    hx_buf_init(&rules, NULL, HX_ROUTE_IDS_ROWS * (RULE_BYTES + HX_RECORD_TEXT_MAX));
    hx_buf_init(&items, NULL, c->items.by_key.count * (UNIT_BYTES + HX_ITEM_HEAD_MAX));
    write_rules(c->rules, &rules);
    write_items(&c->items, &items);
    uint32_t crc = hx_crc32c(hx_crc32c(0, hx_buf_slice(&rules)), entries);
    hint_head head = {.version = items.len > 0 ? VERSION_WITH_ITEMS : VERSION,
                      .segment = tail->segment,
                      .generation = j->log.generation,
                      .end = tail->offset,
                      .sequence = tail->sequence,
                      .epoch = tail->epoch,
                      .stamp = tail->stamp,
                      .hash = tail->hash,
                      .count = c->count,
                      .rule_count = hx_route_ids_size(c->rules) - 1,
                      .item_count = c->items.by_key.count,
                      .rest_crc = hx_crc32c(crc, hx_buf_slice(&items))};
    memcpy(head.magic, magic, sizeof magic);
    head.crc = hx_crc32c(0, (hx_slice){(const char *)&head, offsetof(hint_head, crc)});
    int fd = openat(j->dir_fd, making, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int error = fd < 0 ? errno : hx_write_all(fd, &head, sizeof head);
    if (!error) error = hx_write_all(fd, rules.data, rules.len);
    if (!error) error = hx_write_all(fd, entries.ptr, entries.len);
    if (!error) error = hx_write_all(fd, items.data, items.len);
    hx_buf_free(&rules);
    hx_buf_free(&items);
    if (fd < 0) return error;
    if (!error) error = hx_sync(j, fd);
    close(fd);
    if (!error && renameat(j->dir_fd, making, j->dir_fd, name) != 0) error = errno;
    if (error) (void)unlinkat(j->dir_fd, making, 0);
    return error ? error : hx_sync(j, j->dir_fd);
}

int hx_background_write_hint(hx_journal *j, uint32_t segment)
{
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, segment, ".seg");
    int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC), error = 0;
    if (fd < 0) return errno;
    hx_scan scan;
    hx_segment_head head;
    const char *bytes = NULL;
    collection c = {.rules = hx_route_ids_new()};
    hx_item_index_init(&c.items);
    if (hx_scan_begin(&scan, fd, segment, j->log.generation)) bytes = hx_scan_bytes(&scan, 0, sizeof head);
    if (bytes) memcpy(&head, bytes, sizeof head);
    if (bytes && hx_segment_valid(&head, j->log.generation, segment)) {
        hx_tail tail = {.segment = segment,
                        .offset = sizeof head,
                        .sequence = head.sequence,
                        .epoch = head.epoch,
                        .stamp = head.stamp,
                        .hash = head.previous};
        hx_frame frame;
        hx_scan_step step;
        uint64_t last = 0;
        scan.trusted = true; /* this process has written or checked the segment */
        for (; (step = hx_scan_next(&scan, &tail, &frame)) == HX_SCAN_FRAME; last = frame.offset)
            collect(&c, &frame, segment);
        if (last > 0) tail.hash = hx_scan_last_hash(&scan, last);
        error = step != HX_SCAN_END ? EIO : write_hint(j, &tail, &c);
    } else {
        error = scan.error ? scan.error : EINVAL; /* nothing was written to the segment yet */
    }
    hx_scan_end(&scan);
    close(fd);
    free(c.entries);
    free(c.table);
    hx_route_ids_free(&c.rules);
    hx_item_index_free(&c.items);
    return error;
}

/* Checks the counts against the segment's size: every entry has a frame in it. */
static bool has_plausible_head(hx_journal *j, const hint_head *head)
{
    const hx_segment *s = hx_journal_segment(j, head->segment);
    return s && head->end >= sizeof(hx_segment_head) && head->end <= s->size && head->end % HX_FRAME_ALIGN == 0 &&
           head->epoch <= HX_EPOCH_READ_MAX && head->stamp <= HX_STAMP_MAX && head->rule_count < HX_ROUTE_IDS_ROWS &&
           head->count <= s->size / sizeof(hx_frame_head) && head->item_count <= s->size / HX_ITEM_HEAD_BYTES &&
           head->version == (head->item_count > 0 ? VERSION_WITH_ITEMS : VERSION);
}

static bool read_head(hx_journal *j, uint32_t segment, int fd, hint_head *head)
{
    if (read(fd, head, sizeof *head) != (ssize_t)sizeof *head) return false;
    uint32_t crc = hx_crc32c(0, (hx_slice){(const char *)head, offsetof(hint_head, crc)});
    return memcmp(head->magic, magic, sizeof magic) == 0 && head->crc == crc && head->segment == segment &&
           head->generation == j->log.generation && has_plausible_head(j, head);
}

static int open_hint(hx_journal *j, uint32_t segment, hint_head *head)
{
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, segment, ".hint");
    int fd = openat(j->dir_fd, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (read_head(j, segment, fd, head)) return fd;
    close(fd);
    return -1;
}

uint64_t hx_hint_count(hx_journal *j, uint32_t segment)
{
    hint_head head;
    int fd = open_hint(j, segment, &head);
    if (fd < 0) return 0;
    close(fd);
    return head.count;
}

/* Reads rules, entries and items. NULL: the length or the checksum is wrong. */
static char *read_rest(int fd, const hint_head *head, size_t *len)
{
    off_t size = lseek(fd, 0, SEEK_END);
    uint64_t most = sizeof *head + head->rule_count * (RULE_BYTES + (uint64_t)UINT8_MAX) +
                    head->count * sizeof(hint_entry) + head->item_count * (UNIT_BYTES + HX_ITEM_HEAD_MAX);
    if (size < (off_t)sizeof *head || (uint64_t)size > most || lseek(fd, sizeof *head, SEEK_SET) < 0) return NULL;
    *len = (size_t)size - sizeof *head;
    char *rest = malloc(*len ? *len : 1);
    if (!rest) hx_fatal(HX_EXIT_BUG, "out of memory for a hint");
    size_t got = 0;
    for (ssize_t n; got < *len && (n = read(fd, rest + got, *len - got)) > 0;) got += (size_t)n;
    if (got == *len && hx_crc32c(0, (hx_slice){rest, *len}) == head->rest_crc) return rest;
    free(rest);
    return NULL;
}

static void read_entry(const char *entries, uint64_t number, hx_index_entry *out)
{
    hint_entry from;
    memcpy(&from, entries + number * sizeof from, sizeof from);
    out->op = from.op;
    hx_index_unpack(from.words, out);
}

/* Takes an item off the front of *rest. False: there is none, or a value is invalid. */
static bool take_item(const hint_head *head, hx_slice *rest, hx_item_head *out, uint32_t *unit)
{
    if (rest->len < UNIT_BYTES) return false;
    memcpy(unit, rest->ptr, UNIT_BYTES);
    *rest = hx_slice_from(*rest, UNIT_BYTES);
    if (!hx_item_head_take(rest, out)) return false;
    const hx_item *item = &out->item;
    uint64_t at = (uint64_t)*unit * HX_PLACE_UNIT, end = at + out->at + item->meta.len + item->body.len;
    bool has_version = item->act == HX_ITEM_REMOVE || (item->version > 0 && item->version < head->sequence);
    return has_version && at >= sizeof(hx_segment_head) && end <= head->end;
}

/* Returns the first entry. NULL: a value is invalid. */
static const char *check_rest(const hint_head *head, const char *rest, size_t len)
{
    for (uint32_t i = 0; i < head->rule_count; i++) {
        hx_route_ids_row row;
        if (len < RULE_BYTES || len < RULE_BYTES + (size_t)(unsigned char)rest[6]) return NULL;
        size_t taken = read_rule(rest, &row);
        bool named = row.version & HX_RULE_NAMED;
        if (named ? row.bucket != 0 : row.name.len > 0 || row.bucket >= HX_ROUTE_IDS_BUCKETS) return NULL;
        rest += taken;
        len -= taken;
    }
    if (len < head->count * sizeof(hint_entry)) return NULL;
    for (uint64_t i = 0; i < head->count; i++) {
        hx_index_entry entry;
        read_entry(rest, i, &entry);
        uint64_t at = (uint64_t)entry.unit * HX_PLACE_UNIT;
        if (entry.segment != head->segment || entry.state > HX_EXPIRED || entry.epoch > head->epoch ||
            entry.rule > head->rule_count || at < sizeof(hx_segment_head) || at >= head->end)
            return NULL;
    }
    hx_slice items = hx_slice_from((hx_slice){rest, len}, head->count * sizeof(hint_entry));
    hx_item_head item;
    uint32_t unit;
    for (uint64_t i = 0; i < head->item_count; i++)
        if (!take_item(head, &items, &item, &unit)) return NULL;
    return items.len == 0 ? rest : NULL;
}

static void apply_all(hx_journal *j, const hint_head *head, const char *rest, size_t len, const char *entries)
{
    hx_slice items = hx_slice_from((hx_slice){rest, len}, (size_t)(entries - rest) + head->count * sizeof(hint_entry));
    hx_item_head item;
    uint32_t unit;
    uint16_t *rules = calloc(1 + head->rule_count, sizeof *rules);
    if (!rules) hx_fatal(HX_EXIT_BUG, "out of memory for a hint");
    for (uint32_t i = 0; i < head->rule_count; i++) {
        hx_route_ids_row row;
        rest += read_rule(rest, &row);
        rules[i + 1] = hx_route_ids_number(j->rules, &row);
    }
    for (uint64_t i = 0; i < head->count; i++) {
        hx_index_entry entry;
        read_entry(entries, i, &entry);
        entry.rule = rules[entry.rule];
        hx_journal_apply(j, &entry);
    }
    while (take_item(head, &items, &item, &unit))
        hx_items_apply(j, hx_items_indexed(&item, head->segment, (uint64_t)unit * HX_PLACE_UNIT, 0));
    free(rules);
}

/* Whether the end in the hint matches what follows it: the next segment, the next frame, or nothing yet. */
static bool fits(const hint_head *head, const hx_segment *s, const hx_segment_head *next)
{
    static const hx_frame_head nothing;
    hx_frame_head frame = {0};
    if (next) return head->sequence == next->sequence && memcmp(&head->hash, &next->previous, sizeof head->hash) == 0;
    ssize_t got = pread(s->fd, &frame, sizeof frame, (off_t)head->end);
    if (got != (ssize_t)sizeof frame) return got >= 0 && head->end + sizeof frame > s->size;
    return memcmp(&frame, &nothing, sizeof frame) == 0 ||
           (frame.sequence == head->sequence && memcmp(&frame.previous, &head->hash, sizeof head->hash) == 0);
}

bool hx_hint_load(hx_journal *j, uint32_t segment, const hx_segment_head *next, hx_tail *tail)
{
    hint_head head;
    size_t len = 0;
    int fd = open_hint(j, segment, &head);
    if (fd < 0) return false;
    char *rest = fits(&head, hx_journal_segment(j, segment), next) ? read_rest(fd, &head, &len) : NULL;
    close(fd);
    const char *entries = rest ? check_rest(&head, rest, len) : NULL;
    if (entries) apply_all(j, &head, rest, len, entries);
    free(rest);
    if (!entries) return false;
    tail->offset = head.end;
    tail->sequence = head.sequence;
    tail->hash = head.hash;
    if (head.epoch > tail->epoch) tail->epoch = head.epoch;
    if (head.stamp > tail->stamp) tail->stamp = head.stamp;
    return true;
}
