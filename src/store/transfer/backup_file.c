/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a backup file, format 2, or 1 where there are no items. Little-endian, no padding.
 *
 *     header, 512 bytes                     record or item
 *     0    8  "hapaxbak"                     0  4  length of its bytes; of an item with the highest bit set
 *     8    4  format                         4  4  CRC-32C of the length and of them
 *    12    4  length of the source           8  …  the record's bytes (see core/operation/record.c), with its answer;
 *    16    8  when it was taken, ms                or the item's head (see store/item_bytes.h), meta and body
 *    24    8  highest epoch of the store    footer, 128 bytes
 *    32    8  generation of the store        0  4  0xffffffff, a length that no record has
 *    40    8  number of records              4  4  CRC-32C of bytes 8 to 128
 *    48    8  length of the file             8  8  "hapaxend"
 *    56   32  the store's secret            16 48  number of records in each state, absent first
 *    88  400  source, then zeros            64 32  zeros
 *   488    8  number of items               96 32  SHA-256 of all records and items, the header, bytes 8 to 96 of this
 *   496   12  zeros
 *   508    4  CRC-32C of bytes 0 to 508
 *
 * The header is written last, over zeros, so a file that was not finished is no backup. Every byte is covered by a CRC,
 * which locates damage, and by the digest. */
#include "store/transfer/backup_file.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "store/item_bytes.h"
#include "store/store.h"

#include <openssl/evp.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT 1u
#define FORMAT_WITH_ITEMS 2u
#define FOOTER_MARK UINT32_MAX
#define ITEM_BIT (UINT32_C(1) << 31) /* of a length */
#define WINDOW_BYTES (1u << 20)
#define RECORD_BYTES_MAX (HX_RECORD_HEAD_MAX + HX_STORE_ANSWER_MAX)

static const char magic[8] = {'h', 'a', 'p', 'a', 'x', 'b', 'a', 'k'};
static const char end_magic[8] = {'h', 'a', 'p', 'a', 'x', 'e', 'n', 'd'};

typedef struct {
    char magic[8];
    uint32_t format;
    uint32_t source_len;
    hx_ms taken_at;
    uint64_t last_epoch;
    uint64_t generation;
    uint64_t count;
    uint64_t bytes;
    uint8_t secret[HX_SECRET_BYTES];
    char source[HX_BACKUP_SOURCE_MAX];
    uint64_t items;
    uint8_t zero[12];
    uint32_t crc;
} header;

typedef struct {
    uint32_t length;
    uint32_t crc;
} frame;

typedef struct {
    frame frame;
    char magic[8];
    uint64_t states[HX_EXPIRED + 1];
    uint8_t zero[32];
    uint8_t digest[32];
} footer;

_Static_assert(sizeof(header) == 512 && sizeof(frame) == 8 && sizeof(footer) == 128, "written as they stand in memory");
_Static_assert(offsetof(footer, digest) == 96, "as described");

struct hx_backup_writer {
    FILE *file;
    char *path, *making;
    EVP_MD_CTX *digest;
    uint64_t count, items, bytes, states[HX_EXPIRED + 1];
};

struct hx_backup_reader {
    FILE *file;
    char *path;
    EVP_MD_CTX *digest;
    header header;
    uint64_t at, count, items, size, states[HX_EXPIRED + 1];
};

static bool fail(char error[HX_BACKUP_ERROR_BYTES], const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(char error[HX_BACKUP_ERROR_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error, HX_BACKUP_ERROR_BYTES, format, args);
    va_end(args);
    return false;
}

static char *copy_of(const char *text, const char *suffix)
{
    size_t bytes = strlen(text) + strlen(suffix) + 1;
    char *copy = malloc(bytes);
    if (!copy) hx_fatal(HX_EXIT_BUG, "out of memory");
    (void)snprintf(copy, bytes, "%s%s", text, suffix);
    return copy;
}

static void begin_digest(EVP_MD_CTX **digest)
{
    if (!*digest) *digest = EVP_MD_CTX_new();
    HX_CHECK(*digest && EVP_DigestInit_ex(*digest, EVP_sha256(), NULL) == 1);
}

static void digest_more(EVP_MD_CTX *digest, const void *bytes, size_t len)
{
    if (len > 0) HX_CHECK(EVP_DigestUpdate(digest, bytes, len) == 1);
}

/* The digest also covers the footer's counts. */
static void end_digest(EVP_MD_CTX *digest, const header *head, const footer *foot, uint8_t out[32])
{
    digest_more(digest, head, sizeof *head);
    digest_more(digest, (const char *)foot + sizeof foot->frame, offsetof(footer, digest) - sizeof foot->frame);
    HX_CHECK(EVP_DigestFinal_ex(digest, out, NULL) == 1);
}

static uint32_t header_crc(const header *head)
{
    return hx_crc32c(0, (hx_slice){(const char *)head, offsetof(header, crc)});
}

static uint32_t footer_crc(const footer *foot)
{
    return hx_crc32c(0, (hx_slice){(const char *)foot + sizeof foot->frame, sizeof *foot - sizeof foot->frame});
}

hx_backup_writer *hx_backup_create(const char *path, char error[HX_BACKUP_ERROR_BYTES])
{
    static const header unfinished;
    hx_backup_writer *w = calloc(1, sizeof *w);
    if (!w) hx_fatal(HX_EXIT_BUG, "out of memory");
    w->path = copy_of(path, "");
    w->making = copy_of(path, ".tmp");
    begin_digest(&w->digest);
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        (void)fail(error, "%s is not a regular file, and can't be replaced by a backup", path);
        free(w->making);
        w->making = NULL;
        hx_backup_abandon(&w);
        return NULL;
    }
    (void)unlink(w->making); /* left by an earlier run, perhaps with other permissions */
    int fd = open(w->making, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    w->file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!w->file || setvbuf(w->file, NULL, _IOFBF, WINDOW_BYTES) != 0 ||
        fwrite(&unfinished, sizeof unfinished, 1, w->file) != 1) {
        (void)fail(error, "can't write %s: %s", w->making, strerror(errno));
        if (fd >= 0 && !w->file) close(fd);
        hx_backup_abandon(&w);
        return NULL;
    }
    w->bytes = sizeof unfinished;
    return w;
}

static bool put(hx_backup_writer *w, const void *bytes, size_t len)
{
    if (len > 0 && fwrite(bytes, len, 1, w->file) != 1) return false;
    w->bytes += len;
    return true;
}

static bool add(hx_backup_writer *w, uint32_t bit, const hx_slice parts[3], char error[HX_BACKUP_ERROR_BYTES])
{
    frame f = {.length = (uint32_t)(parts[0].len + parts[1].len + parts[2].len) | bit};
    f.crc = hx_crc32c(0, (hx_slice){(const char *)&f.length, sizeof f.length});
    for (int i = 0; i < 3; i++) f.crc = hx_crc32c(f.crc, parts[i]);
    digest_more(w->digest, &f, sizeof f);
    bool written = put(w, &f, sizeof f);
    for (int i = 0; written && i < 3; i++) {
        digest_more(w->digest, parts[i].ptr, parts[i].len);
        written = put(w, parts[i].ptr, parts[i].len);
    }
    return written || fail(error, "can't write %s: %s", w->making, strerror(errno));
}

bool hx_backup_add(hx_backup_writer *w, const hx_record *record, char error[HX_BACKUP_ERROR_BYTES])
{
    char head[HX_RECORD_HEAD_MAX];
    hx_buf buf = {.data = head, .cap = sizeof head, .max = sizeof head};
    hx_record_encode(record, &buf);
    w->count++;
    w->states[record->state]++;
    return add(w, 0, (const hx_slice[]){hx_buf_slice(&buf), record->answer.headers, record->answer.body}, error);
}

bool hx_backup_add_item(hx_backup_writer *w, const hx_item *item, char error[HX_BACKUP_ERROR_BYTES])
{
    char bytes[HX_ITEM_HEAD_MAX];
    hx_buf buf = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    hx_item_head head = hx_item_head_of(item, item->version, 0);
    hx_item_head_put(&head, &buf);
    w->items++;
    return add(w, ITEM_BIT, (const hx_slice[]){hx_buf_slice(&buf), item->meta, item->body}, error);
}

/* Makes the file's name durable. */
static bool sync_directory(const char *path)
{
    char *copy = copy_of(path, "");
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    return synced;
}

static bool write_ends(hx_backup_writer *w, const hx_backup_about *about)
{
    header head = {.format = about->items > 0 ? FORMAT_WITH_ITEMS : FORMAT,
                   .source_len = (uint32_t)strlen(about->source),
                   .taken_at = about->taken_at,
                   .last_epoch = about->last_epoch,
                   .generation = about->generation,
                   .count = about->count,
                   .items = about->items,
                   .bytes = about->bytes};
    footer foot = {.frame.length = FOOTER_MARK};
    memcpy(head.magic, magic, sizeof magic);
    memcpy(head.secret, about->secret, sizeof head.secret);
    memcpy(head.source, about->source, head.source_len);
    head.crc = header_crc(&head);
    memcpy(foot.magic, end_magic, sizeof end_magic);
    memcpy(foot.states, about->states, sizeof foot.states);
    end_digest(w->digest, &head, &foot, foot.digest);
    foot.frame.crc = footer_crc(&foot);
    /* The header is written when all the rest is on disk. */
    if (!put(w, &foot, sizeof foot) || fflush(w->file) != 0 || fsync(fileno(w->file)) != 0) return false;
    return fseek(w->file, 0, SEEK_SET) == 0 && fwrite(&head, sizeof head, 1, w->file) == 1 && fflush(w->file) == 0 &&
           fsync(fileno(w->file)) == 0;
}

bool hx_backup_finish(hx_backup_writer **owned, hx_backup_about *about, char error[HX_BACKUP_ERROR_BYTES])
{
    hx_backup_writer *w = *owned;
    about->count = w->count;
    about->items = w->items;
    about->bytes = w->bytes + sizeof(footer);
    memcpy(about->states, w->states, sizeof about->states);
    bool whole = write_ends(w, about);
    if (!whole) (void)fail(error, "can't write %s: %s. Nothing was backed up", w->making, strerror(errno));
    if (whole && rename(w->making, w->path) != 0) {
        whole = false;
        (void)fail(error, "can't rename %s to %s: %s. Nothing was backed up", w->making, w->path, strerror(errno));
    }
    if (whole) {
        free(w->making);
        w->making = NULL; /* nothing to remove any more */
        whole = sync_directory(w->path) ||
                fail(error, "%s is written, but may be lost in a power cut: its directory can't be synced: %s", w->path,
                     strerror(errno));
    }
    hx_backup_abandon(owned);
    return whole;
}

void hx_backup_abandon(hx_backup_writer **owned)
{
    hx_backup_writer *w = *owned;
    if (!w) return;
    if (w->making) (void)unlink(w->making);
    if (w->file) (void)fclose(w->file);
    EVP_MD_CTX_free(w->digest);
    free(w->path);
    free(w->making);
    free(w);
    *owned = NULL;
}

static bool damaged(const hx_backup_reader *r, uint64_t at, char error[HX_BACKUP_ERROR_BYTES], const char *what)
{
    return fail(error, "%s is damaged at byte %" PRIu64 ": %s. Use another backup", r->path, at, what);
}

static bool check_header(hx_backup_reader *r, char error[HX_BACKUP_ERROR_BYTES])
{
    static const header unfinished;
    const header *head = &r->header;
    if (memcmp(head, &unfinished, sizeof *head) == 0)
        return fail(error, "%s is a backup that was not finished. Use another one", r->path);
    if (memcmp(head->magic, magic, sizeof magic) != 0) return fail(error, "%s is not a backup of hapax", r->path);
    if (head->format > FORMAT_WITH_ITEMS)
        return fail(error,
                    "%s has format %" PRIu32 ", from a newer hapax; this one reads formats up to %u. Use the newer "
                    "program",
                    r->path, head->format, FORMAT_WITH_ITEMS);
    bool sound = head->crc == header_crc(head) && head->format == (head->items > 0 ? FORMAT_WITH_ITEMS : FORMAT) &&
                 head->source_len <= HX_BACKUP_SOURCE_MAX && head->last_epoch <= HX_EPOCH_MAX && head->taken_at >= 0;
    if (!sound) return damaged(r, 0, error, "its header can't be read");
    if (r->size < head->bytes)
        return fail(error, "%s is cut short: it has %" PRIu64 " bytes of %" PRIu64 ". Use another backup", r->path,
                    r->size, head->bytes);
    if (r->size > head->bytes) return damaged(r, head->bytes, error, "it is longer than was written");
    return true;
}

static void describe(const hx_backup_reader *r, hx_backup_about *about)
{
    const header *head = &r->header;
    *about = (hx_backup_about){.taken_at = head->taken_at,
                               .last_epoch = head->last_epoch,
                               .generation = head->generation,
                               .count = head->count,
                               .items = head->items,
                               .bytes = head->bytes};
    memcpy(about->secret, head->secret, sizeof about->secret);
    memcpy(about->source, head->source, head->source_len);
}

hx_backup_reader *hx_backup_open(const char *path, hx_backup_about *about, char error[HX_BACKUP_ERROR_BYTES])
{
    hx_backup_reader *r = calloc(1, sizeof *r);
    if (!r) hx_fatal(HX_EXIT_BUG, "out of memory");
    r->path = copy_of(path, "");
    r->file = fopen(path, "re");
    struct stat st = {0};
    bool ok = true;
    if (!r->file || fstat(fileno(r->file), &st) != 0)
        ok = fail(error, "can't read %s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        ok = fail(error, "%s is not a backup of hapax: it is not a file", path);
    if (ok) {
        r->size = (uint64_t)st.st_size;
        (void)setvbuf(r->file, NULL, _IOFBF, WINDOW_BYTES);
        ok = hx_backup_rewind(r, error) && check_header(r, error);
    }
    if (ok)
        describe(r, about);
    else
        hx_backup_close(&r);
    return r;
}

/* Reads `len` bytes. False: the file ends before, or can't be read. */
static bool get(hx_backup_reader *r, void *to, size_t len, char error[HX_BACKUP_ERROR_BYTES])
{
    if (fread(to, len, 1, r->file) == 1) {
        r->at += len;
        return true;
    }
    if (ferror(r->file)) return fail(error, "can't read %s: %s", r->path, strerror(errno));
    return fail(error, "%s is cut short after %" PRIu64 " bytes. Use another backup", r->path, r->at);
}

bool hx_backup_rewind(hx_backup_reader *r, char error[HX_BACKUP_ERROR_BYTES])
{
    header head;
    if (fseek(r->file, 0, SEEK_SET) != 0) return fail(error, "can't read %s: %s", r->path, strerror(errno));
    bool again = r->at > 0;
    r->at = r->count = r->items = 0;
    memset(r->states, 0, sizeof r->states);
    begin_digest(&r->digest);
    if (r->size < sizeof head) return fail(error, "%s is not a backup of hapax", r->path);
    if (!get(r, &head, sizeof head, error)) return false;
    if (again && memcmp(&head, &r->header, sizeof head) != 0)
        return fail(error, "%s has changed while it was read", r->path);
    r->header = head;
    return true;
}

static bool check_footer(hx_backup_reader *r, const frame *f, char error[HX_BACKUP_ERROR_BYTES])
{
    uint64_t at = r->at - sizeof *f;
    footer foot = {.frame = *f};
    uint8_t digest[32];
    if (!get(r, (char *)&foot + sizeof *f, sizeof foot - sizeof *f, error)) return false;
    if (foot.frame.crc != footer_crc(&foot) || memcmp(foot.magic, end_magic, sizeof end_magic) != 0)
        return damaged(r, at, error, "its end can't be read");
    if (r->at != r->header.bytes) return damaged(r, r->at, error, "it ends before its end");
    if (r->count != r->header.count || r->items != r->header.items ||
        memcmp(foot.states, r->states, sizeof r->states) != 0)
        return damaged(r, at, error, "its number of records is not the one in its header");
    end_digest(r->digest, &r->header, &foot, digest);
    if (memcmp(digest, foot.digest, sizeof digest) != 0) return damaged(r, at, error, "its digest doesn't match");
    return true;
}

static bool check_record(hx_backup_reader *r, uint64_t at, hx_slice bytes, hx_record *out,
                         char error[HX_BACKUP_ERROR_BYTES])
{
    switch (hx_record_decode(bytes, out)) {
    case HX_RECORD_OK: break;
    case HX_RECORD_DAMAGED: return damaged(r, at, error, "the record there can't be read");
    case HX_RECORD_OLDER:
        return fail(error, "%s has records of a format before the first release, which this hapax can't read", r->path);
    case HX_RECORD_NEWER: return fail(error, "%s has records of a newer hapax. Use the newer program", r->path);
    }
    if (out->state == HX_ABSENT || out->epoch == 0 || out->epoch > r->header.last_epoch)
        return damaged(r, at, error, "the record there can't have been in a store");
    return true;
}

static bool check_item(const hx_backup_reader *r, uint64_t at, hx_slice bytes, hx_item *out,
                       char error[HX_BACKUP_ERROR_BYTES])
{
    hx_item_head head;
    bool is_whole = hx_item_head_take(&bytes, &head) && head.item.act == HX_ITEM_PUT &&
                    bytes.len == head.item.meta.len + head.item.body.len;
    if (!is_whole) return damaged(r, at, error, "the item there can't be read");
    *out = head.item;
    out->meta = hx_slice_first(bytes, head.item.meta.len);
    out->body = hx_slice_from(bytes, head.item.meta.len);
    return true;
}

hx_backup_step hx_backup_next(hx_backup_reader *r, hx_arena *arena, hx_record *record, hx_item *item,
                              char error[HX_BACKUP_ERROR_BYTES])
{
    uint64_t at = r->at;
    frame f;
    if (!get(r, &f, sizeof f, error)) return HX_BACKUP_DAMAGED;
    if (f.length == FOOTER_MARK) return check_footer(r, &f, error) ? HX_BACKUP_END : HX_BACKUP_DAMAGED;
    uint32_t length = f.length & ~ITEM_BIT;
    if (length > RECORD_BYTES_MAX || length > r->size - r->at) {
        (void)damaged(r, at, error, "the record there can't be read");
        return HX_BACKUP_DAMAGED;
    }
    char *bytes = hx_arena_alloc(arena, length + 1);
    if (length > 0 && !get(r, bytes, length, error)) return HX_BACKUP_DAMAGED;
    hx_slice content = {bytes, length};
    uint32_t crc = hx_crc32c(0, (hx_slice){(const char *)&f.length, sizeof f.length});
    if (hx_crc32c(crc, content) != f.crc) {
        (void)damaged(r, at, error, "the record there can't be read");
        return HX_BACKUP_DAMAGED;
    }
    digest_more(r->digest, &f, sizeof f);
    digest_more(r->digest, bytes, length);
    if (f.length & ITEM_BIT) {
        r->items++;
        return check_item(r, at, content, item, error) ? HX_BACKUP_ITEM : HX_BACKUP_DAMAGED;
    }
    if (!check_record(r, at, content, record, error)) return HX_BACKUP_DAMAGED;
    r->count++;
    r->states[record->state]++;
    return HX_BACKUP_RECORD;
}

void hx_backup_close(hx_backup_reader **owned)
{
    hx_backup_reader *r = *owned;
    if (!r) return;
    if (r->file) (void)fclose(r->file);
    EVP_MD_CTX_free(r->digest);
    free(r->path);
    free(r);
    *owned = NULL;
}
