/* SPDX-License-Identifier: Apache-2.0 */
#include "client/intent.h"

#include "base/crc32c.h"
#include "base/hex.h"
#include "base/rand.h"
#include "base/text.h"
#include "core/crypto/seal.h"
#include "core/token/base64.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (16u << 20)
#define LINE_HEAD 11u /* "r 0123abcd " */
#define SUFFIX ".intent"
#define SECRET_FILE "secret"
#define NAME_BYTES 16u
#define REQUEST 'r'
#define ATTEMPT 'a'
#define OUTCOME 'o'

/* The first line: what may be shown is in the clear, the rest is sealed, or gone once the intent is finished. */
typedef struct {
    hx_slice method, shown, key, name, class, head_mac, body_mac, sealed;
    hx_ms created_at, key_lifetime;
} request_line;

/* What is sealed; the body follows behind a line end. */
typedef struct {
    hx_slice url;
    hx_texts headers;
} sealed_part;

typedef struct {
    hx_intent_attempt attempt;
    hx_ms key_ends_at;
} attempt_line;

#define FIELD(type, member, kind) HX_JSON_FIELD(type, member, kind, HX_JSON_STORED)
#define NESTED(member, kind)                                                                                           \
    {                                                                                                                  \
#member, HX_JSON_##kind, offsetof(attempt_line, attempt) + offsetof(hx_intent_attempt, member), HX_JSON_STORED \
    }

static const hx_json_field request_fields[] = {
    FIELD(request_line, method, TEXT),      FIELD(request_line, shown, TEXT),  FIELD(request_line, key, TEXT),
    FIELD(request_line, name, TEXT),        FIELD(request_line, class, TEXT),  FIELD(request_line, head_mac, TEXT),
    FIELD(request_line, body_mac, TEXT),    FIELD(request_line, sealed, TEXT), FIELD(request_line, created_at, TIME),
    FIELD(request_line, key_lifetime, SPAN)};
static const hx_json_field sealed_fields[] = {FIELD(sealed_part, url, TEXT), FIELD(sealed_part, headers, TEXTS)};
static const hx_json_field attempt_fields[] = {NESTED(number, NUMBER),
                                               NESTED(at, TIME),
                                               NESTED(has_result, BOOL),
                                               NESTED(nothing_sent, BOOL),
                                               NESTED(in_doubt, BOOL),
                                               NESTED(status, NUMBER),
                                               NESTED(ms, NUMBER),
                                               NESTED(delay, NUMBER),
                                               NESTED(code, TEXT),
                                               NESTED(note, TEXT),
                                               FIELD(attempt_line, key_ends_at, TIME)};
static const hx_json_field outcome_fields[] = {
    FIELD(hx_intent_outcome, verdict, TEXT),       FIELD(hx_intent_outcome, at, TIME),
    FIELD(hx_intent_outcome, status, NUMBER),      FIELD(hx_intent_outcome, replayed, BOOL),
    FIELD(hx_intent_outcome, original_time, TEXT), FIELD(hx_intent_outcome, content_type, TEXT),
    FIELD(hx_intent_outcome, note, TEXT),          FIELD(hx_intent_outcome, body, TEXT)};
static const hx_json_shape request_shape = HX_JSON_SHAPE(request_fields), sealed_shape = HX_JSON_SHAPE(sealed_fields),
                           attempt_shape = HX_JSON_SHAPE(attempt_fields), outcome_shape = HX_JSON_SHAPE(outcome_fields);

static bool fail_system(hx_error_text error, const char *what, hx_slice name)
{
    return hx_fail(error, "can't %s %.*s: %s", what, HX_FMT(name), strerror(errno));
}

static char *path_of(const hx_intents *intents, hx_slice file, hx_arena *arena)
{
    return hx_arena_terminated(arena, hx_arena_printf(arena, "%s/%.*s", intents->directory, HX_FMT(file)));
}

static bool sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return false;
    bool synced = fsync(fd) == 0;
    (void)close(fd);
    return synced;
}

static bool write_all(int fd, hx_slice bytes)
{
    while (bytes.len > 0) {
        ssize_t written = write(fd, bytes.ptr, bytes.len);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        bytes = hx_slice_from(bytes, (size_t)written);
    }
    return true;
}

/* A new private file with these bytes, synced, under a name that nothing looks at. -1: errno says why. */
static int write_aside(const hx_intents *intents, hx_slice bytes, hx_arena *arena, char **path)
{
    *path = path_of(intents, hx_arena_printf(arena, ".%016" PRIx64 ".tmp", hx_rand_u64()), arena);
    int fd = open(*path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (write_all(fd, bytes) && fsync(fd) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    int why = errno;
    (void)unlink(*path);
    (void)close(fd);
    errno = why;
    return -1;
}

/* Gives a new file its name, for which there must be none. The lock goes with the file. */
static int put_new(const hx_intents *intents, hx_slice file, hx_slice bytes, hx_arena *arena)
{
    char *aside;
    int fd = write_aside(intents, bytes, arena, &aside);
    if (fd < 0) return -1;
    bool linked = link(aside, path_of(intents, file, arena)) == 0;
    int why = errno;
    (void)unlink(aside);
    if (linked && sync_directory(intents->directory)) return fd;
    if (linked) why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

static bool read_fd(int fd, size_t bytes_max, hx_arena *arena, hx_slice *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0) return false;
    if ((uint64_t)st.st_size > bytes_max) {
        errno = EFBIG;
        return false;
    }
    char *bytes = hx_arena_alloc(arena, (size_t)st.st_size + 1);
    size_t len = 0;
    for (ssize_t got; len < (size_t)st.st_size; len += (size_t)got) {
        got = pread(fd, bytes + len, (size_t)st.st_size - len, (off_t)len);
        if (got < 0 && errno == EINTR)
            got = 0;
        else if (got <= 0)
            break;
    }
    *out = (hx_slice){bytes, len};
    return len == (size_t)st.st_size;
}

/* The folder */

static bool read_secret(hx_intents *intents, hx_error_text error)
{
    hx_slice name = HX_LIT(SECRET_FILE), text;
    for (int tries = 0; tries < 2; tries++) {
        int fd = open(path_of(intents, name, &intents->arena), O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            bool is_read = read_fd(fd, 256, &intents->arena, &text);
            (void)close(fd);
            text = hx_text_without_line_end(is_read ? text : HX_EMPTY);
            if (text.len == 2 * sizeof intents->secret &&
                hx_hex_read((char *)intents->secret, text.ptr, sizeof intents->secret))
                return true;
            return hx_fail(error, "%s/" SECRET_FILE " is damaged: intents that were written with it can't be read",
                           intents->directory);
        }
        if (errno != ENOENT) break;
        uint8_t secret[sizeof intents->secret];
        char digits[2 * sizeof secret + 1];
        hx_rand_bytes(secret, sizeof secret);
        hx_hex_write(digits, secret, sizeof secret);
        digits[sizeof digits - 1] = '\n';
        fd = put_new(intents, name, (hx_slice){digits, sizeof digits}, &intents->arena);
        if (fd < 0 && errno != EEXIST) break;
        if (fd >= 0) (void)close(fd);
    }
    return fail_system(error, "make", path_of(intents, name, &intents->arena) ? hx_slice_of(intents->directory) : name);
}

/* Makes the folder and those above it. */
/* Makes a folder unless there is one. A new one is synced in its parent, if that can be read: without it, a power cut
 * would take the first intent along, and its key. */
static bool make_folder(char *path)
{
    if (mkdir(path, 0700) != 0) return errno == EEXIST;
    char *slash = strrchr(path, '/');
    if (slash) *slash = '\0';
    (void)sync_directory(!slash ? "." : slash == path ? "/" : path);
    if (slash) *slash = '/';
    return true;
}

static bool make_directory(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        bool made = make_folder(path);
        *slash = '/';
        if (!made) return false;
    }
    return make_folder(path);
}

bool hx_intents_open(const char *directory, hx_intents *intents, hx_error_text error)
{
    struct stat st;
    *intents = (hx_intents){0};
    intents->directory = hx_arena_terminated(&intents->arena, hx_slice_of(directory));
    bool good = make_directory(intents->directory) && stat(directory, &st) == 0;
    if (!good)
        (void)fail_system(error, "make the folder", hx_slice_of(directory));
    else if (st.st_uid != geteuid() || (st.st_mode & 077) != 0)
        good = hx_fail(error, "%s must be yours alone: chmod 700 it, or choose another folder", directory);
    if (good && read_secret(intents, error)) return true;
    hx_intents_close(intents);
    return false;
}

void hx_intents_close(hx_intents *intents)
{
    hx_arena_free(&intents->arena);
    *intents = (hx_intents){0};
}

bool hx_intents_list(hx_intents *intents, hx_texts *files, hx_error_text error)
{
    DIR *dir = opendir(intents->directory);
    size_t cap = 0;
    *files = (hx_texts){0};
    if (!dir) return fail_system(error, "read", hx_slice_of(intents->directory));
    for (const struct dirent *entry; (entry = readdir(dir));) {
        hx_slice name = hx_slice_of(entry->d_name);
        if (!hx_slice_ends(name, HX_LIT(SUFFIX))) continue;
        if (files->count == cap) {
            cap = cap ? 2 * cap : 16;
            hx_slice *more = hx_arena_alloc(&intents->arena, cap * sizeof *more);
            if (files->count > 0) memcpy(more, files->items, files->count * sizeof *more);
            files->items = more;
        }
        files->items[files->count++] = hx_arena_copy(&intents->arena, name);
    }
    (void)closedir(dir);
    return true;
}

/* Lines */

static hx_slice mac_of(const hx_intents *intents, const hx_slice *parts, size_t count, hx_arena *arena)
{
    hx_digest digest = hx_mac_plain((hx_slice){(const char *)intents->secret, sizeof intents->secret}, parts, count);
    char *digits = hx_arena_alloc(arena, 2 * NAME_BYTES);
    hx_hex_write(digits, digest.bytes, NAME_BYTES);
    return (hx_slice){digits, 2 * NAME_BYTES};
}

hx_slice hx_intent_file(hx_slice name, hx_slice key, hx_arena *arena)
{
    const hx_slice parts[] = {name.len > 0 ? name : key};
    hx_digest digest = hx_mac_plain(name.len > 0 ? HX_LIT("name") : HX_LIT("key"), parts, 1);
    char digits[2 * NAME_BYTES];
    hx_hex_write(digits, digest.bytes, NAME_BYTES);
    return hx_arena_printf(arena, "%.*s" SUFFIX, (int)sizeof digits, digits);
}

static uint32_t checksum(char kind, hx_slice json)
{
    return hx_crc32c(hx_crc32c(0, (hx_slice){&kind, 1}), json);
}

static hx_slice make_line(char kind, const hx_json_shape *shape, const void *from, size_t bytes_max, hx_arena *arena)
{
    hx_buf json;
    hx_buf_init(&json, arena, bytes_max);
    hx_buf_puts(&json, "{");
    hx_json_write(shape, HX_JSON_STORED, from, &json);
    hx_buf_puts(&json, "}");
    hx_slice text = hx_buf_slice(&json);
    return hx_arena_printf(arena, "%c %08x %.*s\n", kind, (unsigned)checksum(kind, text), HX_FMT(text));
}

static hx_slice base64(hx_slice bytes, hx_arena *arena)
{
    size_t len = HX_BASE64URL_LEN(bytes.len);
    char *out = hx_arena_alloc(arena, len + 1);
    hx_base64url_encode(out, (const uint8_t *)bytes.ptr, bytes.len);
    return (hx_slice){out, len};
}

/* Credentials may be fresh each time, and are no part of what is compared. */
static bool is_credential(hx_slice header)
{
    static const char *const names[] = {"authorization:", "cookie:", "proxy-authorization:", "@"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (hx_slice_starts_nocase(header, hx_slice_of(names[i]))) return true;
    return false;
}

static hx_slice head_mac(const hx_intents *intents, const hx_intent_request *request, hx_arena *arena)
{
    const hx_texts *headers = &request->headers;
    hx_slice *parts = hx_arena_alloc(arena, (2 * headers->count + 2) * sizeof *parts);
    size_t count = 0;
    parts[count++] = request->url;
    parts[count++] = HX_LIT("\n");
    for (size_t i = 0; i < headers->count; i++) {
        if (is_credential(headers->items[i])) continue;
        parts[count++] = headers->items[i];
        parts[count++] = HX_LIT("\n");
    }
    return mac_of(intents, parts, count, arena);
}

/* "https://api.example.com/refunds", without what may be secret in a query. */
static hx_slice shown_url(hx_slice url)
{
    size_t end = 0;
    while (end < url.len && url.ptr[end] != '?') end++;
    return hx_slice_first(url, end);
}

static hx_slice seal_request(const hx_intents *intents, const hx_intent_request *request, hx_arena *arena)
{
    sealed_part part = {.url = request->url, .headers = request->headers};
    hx_buf plain;
    hx_buf_init(&plain, arena, FILE_BYTES_MAX);
    hx_buf_puts(&plain, "{");
    hx_json_write(&sealed_shape, HX_JSON_STORED, &part, &plain);
    hx_buf_puts(&plain, "}\n");
    hx_buf_put(&plain, request->body);
    return base64(hx_seal(intents->secret, HX_LIT("request"), hx_buf_slice(&plain), arena), arena);
}

static hx_slice line_of_request(const hx_intents *intents, const hx_intent_request *request, bool is_finished,
                                hx_arena *arena)
{
    request_line line = {.method = request->method,
                         .shown = shown_url(request->url),
                         .key = request->key,
                         .name = request->name,
                         .class = request->class,
                         .head_mac = request->head_mac,
                         .body_mac = request->body_mac,
                         .sealed = is_finished ? HX_EMPTY : seal_request(intents, request, arena),
                         .created_at = request->created_at,
                         .key_lifetime = request->key_lifetime};
    return make_line(REQUEST, &request_shape, &line, FILE_BYTES_MAX, arena);
}

static hx_slice line_of_attempt(const hx_intent_attempt *attempt, hx_ms key_ends_at, hx_arena *arena)
{
    attempt_line line = {.attempt = *attempt, .key_ends_at = key_ends_at};
    return make_line(ATTEMPT, &attempt_shape, &line, 16384, arena);
}

/* Reading */

static bool open_sealed(const hx_intents *intents, const request_line *line, hx_arena *arena,
                        hx_intent_request *request)
{
    hx_slice sealed, plain, json;
    sealed_part part = {.url = HX_EMPTY};
    hx_error_text error;
    request->url = line->shown;
    if (line->sealed.len == 0) return true;
    if (!hx_base64url_decode(line->sealed, arena, &sealed) ||
        !hx_seal_open(intents->secret, HX_LIT("request"), sealed, arena, &plain))
        return false;
    if (!hx_slice_next(&plain, '\n', &json) || !hx_json_read(&sealed_shape, HX_JSON_STORED, json, arena, &part, error))
        return false;
    request->url = part.url;
    request->headers = part.headers;
    request->body = plain;
    return true;
}

static bool read_request(hx_intent *intent, hx_slice json)
{
    hx_arena *arena = &intent->arena;
    request_line line = {.method = HX_EMPTY};
    hx_error_text error;
    if (!hx_json_read(&request_shape, HX_JSON_STORED, json, arena, &line, error)) return false;
    intent->request = (hx_intent_request){.method = line.method,
                                          .key = line.key,
                                          .name = line.name,
                                          .class = line.class,
                                          .body = HX_EMPTY,
                                          .head_mac = line.head_mac,
                                          .body_mac = line.body_mac,
                                          .created_at = line.created_at,
                                          .key_lifetime = line.key_lifetime};
    return open_sealed(intent->intents, &line, arena, &intent->request);
}

static bool read_attempt(hx_intent *intent, hx_slice json)
{
    attempt_line line = {0};
    hx_error_text error;
    if (!hx_json_read(&attempt_shape, HX_JSON_STORED, json, &intent->arena, &line, error)) return false;
    uint64_t number = line.attempt.number;
    if (number == 0 || number > HX_INTENT_ATTEMPTS_MAX || number > intent->attempt_count + 1) return false;
    intent->attempts[number - 1] = line.attempt;
    if (number > intent->attempt_count) intent->attempt_count = number;
    if (line.key_ends_at > 0) intent->key_ends_at = line.key_ends_at;
    return true;
}

static bool read_outcome(hx_intent *intent, hx_slice json)
{
    hx_slice sealed;
    hx_error_text error;
    hx_intent_outcome *outcome = &intent->outcome;
    return hx_json_read(&outcome_shape, HX_JSON_STORED, json, &intent->arena, outcome, error) &&
           hx_base64url_decode(outcome->body, &intent->arena, &sealed) &&
           hx_seal_open(intent->intents->secret, HX_LIT("response"), sealed, &intent->arena, &outcome->body);
}

static bool read_line(hx_intent *intent, hx_slice line)
{
    char crc[4];
    if (line.len <= LINE_HEAD || line.ptr[1] != ' ' || line.ptr[LINE_HEAD - 1] != ' ') return false;
    hx_slice json = hx_slice_from(line, LINE_HEAD);
    if (!hx_hex_read(crc, line.ptr + 2, sizeof crc)) return false;
    const uint8_t *bytes = (const uint8_t *)crc;
    uint32_t stored = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    if (stored != checksum(line.ptr[0], json)) return false;
    switch (line.ptr[0]) {
    case REQUEST: return read_request(intent, json);
    case ATTEMPT: return read_attempt(intent, json);
    case OUTCOME: return read_outcome(intent, json);
    default: return false;
    }
}

/* Reads all lines. A last one without its end was being written when its process died: it is cut off. */
static hx_intent_error read_lines(hx_intent *intent, bool cuts, hx_error_text error)
{
    hx_slice text;
    if (!read_fd(intent->fd, FILE_BYTES_MAX, &intent->arena, &text)) {
        (void)fail_system(error, "read the intent", intent->file);
        return HX_INTENT_FAILED;
    }
    size_t whole = text.len, number = 0;
    while (whole > 0 && text.ptr[whole - 1] != '\n') whole--;
    hx_slice rest = hx_slice_first(text, whole), line;
    while (hx_slice_next(&rest, '\n', &line)) {
        bool is_first = number++ == 0;
        if (line.len == 0 && rest.len == 0) break;
        if ((line.len > 0 && (line.ptr[0] == REQUEST) == is_first) && read_line(intent, line)) continue;
        (void)hx_fail(error,
                      "the intent %s/%.*s is damaged in line %zu. Nothing was sent. Find out at the server whether the "
                      "operation was done, then remove the file",
                      intent->intents->directory, HX_FMT(intent->file), number);
        return HX_INTENT_DAMAGED;
    }
    if (whole == 0) {
        (void)hx_fail(error, "the intent %s/%.*s is empty: something else has cut it. Nothing was sent",
                      intent->intents->directory, HX_FMT(intent->file));
        return HX_INTENT_DAMAGED;
    }
    if (cuts && whole < text.len && ftruncate(intent->fd, (off_t)whole) != 0) {
        (void)fail_system(error, "mend the intent", intent->file);
        return HX_INTENT_FAILED;
    }
    return HX_INTENT_OK;
}

static hx_intent *new_intent(hx_intents *intents, hx_slice file)
{
    hx_intent *intent = calloc(1, sizeof *intent);
    if (!intent) return NULL;
    intent->intents = intents;
    intent->file = hx_arena_copy(&intent->arena, file);
    intent->fd = -1;
    return intent;
}

/* Opens the file that has the name now, and locks it: one that was replaced meanwhile is another one. */
static hx_intent_error open_file(hx_intent *intent, bool locks, hx_error_text error)
{
    const char *path = path_of(intent->intents, intent->file, &intent->arena);
    for (;;) {
        struct stat mine, there;
        intent->fd = open(path, (locks ? O_RDWR | O_APPEND : O_RDONLY) | O_CLOEXEC);
        if (intent->fd < 0 && errno == ENOENT) return HX_INTENT_ABSENT;
        if (intent->fd < 0) break;
        if (!locks) return HX_INTENT_OK;
        if (flock(intent->fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) break;
            (void)hx_fail(error, "another process is working on this intent");
            return HX_INTENT_BUSY;
        }
        if (fstat(intent->fd, &mine) == 0 && stat(path, &there) == 0 && mine.st_ino == there.st_ino)
            return HX_INTENT_OK;
        (void)close(intent->fd);
    }
    (void)fail_system(error, "open the intent", intent->file);
    return HX_INTENT_FAILED;
}

hx_intent_error hx_intent_open(hx_intents *intents, hx_slice file, bool locks, hx_intent **out, hx_error_text error)
{
    hx_intent *intent = new_intent(intents, file);
    *out = NULL;
    if (!intent) {
        (void)hx_fail(error, "out of memory");
        return HX_INTENT_FAILED;
    }
    hx_intent_error result = open_file(intent, locks, error);
    if (result == HX_INTENT_OK) result = read_lines(intent, locks, error);
    if (result == HX_INTENT_OK)
        *out = intent;
    else
        hx_intent_close(&intent);
    return result;
}

hx_intent_error hx_intent_create(hx_intents *intents, const hx_intent_request *request, hx_intent **out,
                                 hx_error_text error)
{
    hx_arena arena = {0};
    hx_slice file = hx_intent_file(request->name, request->key, &arena);
    int fd = put_new(intents, file, line_of_request(intents, request, false, &arena), &arena);
    hx_intent_error result = HX_INTENT_OK;
    hx_intent *intent = fd < 0 ? NULL : new_intent(intents, file);
    *out = NULL;
    if (!intent) {
        result = fd < 0 && errno == EEXIST ? HX_INTENT_EXISTS : HX_INTENT_FAILED;
        (void)fail_system(error, "write the intent in", hx_slice_of(intents->directory));
        if (fd >= 0) (void)close(fd);
    } else {
        intent->fd = fd;
        result = read_lines(intent, false, error);
        if (result == HX_INTENT_OK)
            *out = intent;
        else
            hx_intent_close(&intent);
    }
    hx_arena_free(&arena);
    return result;
}

void hx_intent_close(hx_intent **owned)
{
    hx_intent *intent = *owned;
    if (!intent) return;
    *owned = NULL;
    if (intent->fd >= 0) (void)close(intent->fd);
    hx_arena_free(&intent->arena);
    free(intent);
}

/* Changes */

static bool append(hx_intent *intent, hx_slice line, hx_error_text error)
{
    struct stat st;
    bool known = fstat(intent->fd, &st) == 0;
    if (known && write_all(intent->fd, line) && fdatasync(intent->fd) == 0) return true;
    (void)fail_system(error, "write to the intent", intent->file);
    if (known && ftruncate(intent->fd, st.st_size) != 0) return false; /* a part of a line is cut at the next start */
    return false;
}

bool hx_intent_begin(hx_intent *intent, hx_ms now, hx_ms delay, hx_error_text error)
{
    if (intent->attempt_count == HX_INTENT_ATTEMPTS_MAX)
        return hx_fail(error, "%u attempts were made: no more can be noted", HX_INTENT_ATTEMPTS_MAX);
    hx_intent_attempt *attempt = &intent->attempts[intent->attempt_count];
    *attempt = (hx_intent_attempt){
        .number = intent->attempt_count + 1, .at = now, .delay = (uint64_t)delay, .code = HX_EMPTY, .note = HX_EMPTY};
    if (!append(intent, line_of_attempt(attempt, 0, &intent->arena), error)) return false;
    intent->attempt_count++;
    return true;
}

bool hx_intent_end(hx_intent *intent, hx_error_text error)
{
    hx_intent_attempt *attempt = &intent->attempts[intent->attempt_count - 1];
    attempt->has_result = true;
    return append(intent, line_of_attempt(attempt, intent->key_ends_at, &intent->arena), error);
}

static hx_slice finished_text(hx_intent *intent, const hx_intent_outcome *outcome)
{
    hx_arena *arena = &intent->arena;
    hx_intent_outcome sealed = *outcome;
    hx_slice body = hx_slice_first(outcome->body, HX_INTENT_RESPONSE_MAX);
    sealed.body = base64(hx_seal(intent->intents->secret, HX_LIT("response"), body, arena), arena);
    hx_buf text;
    hx_buf_init(&text, arena, FILE_BYTES_MAX);
    hx_buf_put(&text, line_of_request(intent->intents, &intent->request, true, arena));
    for (size_t i = 0; i < intent->attempt_count; i++)
        hx_buf_put(&text, line_of_attempt(&intent->attempts[i], intent->key_ends_at, arena));
    hx_buf_put(&text, make_line(OUTCOME, &outcome_shape, &sealed, FILE_BYTES_MAX / 2, arena));
    return hx_buf_slice(&text);
}

bool hx_intent_finish(hx_intent *intent, const hx_intent_outcome *outcome, hx_error_text error)
{
    char *aside;
    hx_arena *arena = &intent->arena;
    int fd = write_aside(intent->intents, finished_text(intent, outcome), arena, &aside);
    if (fd < 0) return fail_system(error, "write the outcome of", intent->file);
    if (rename(aside, path_of(intent->intents, intent->file, arena)) != 0 ||
        !sync_directory(intent->intents->directory)) {
        (void)fail_system(error, "write the outcome of", intent->file);
        (void)unlink(aside);
        (void)close(fd);
        return false;
    }
    (void)close(intent->fd);
    intent->fd = fd;
    intent->outcome = *outcome;
    return true;
}

bool hx_intent_remove(hx_intent *intent, hx_error_text error)
{
    if (unlink(path_of(intent->intents, intent->file, &intent->arena)) == 0 &&
        sync_directory(intent->intents->directory))
        return true;
    return fail_system(error, "remove the intent", intent->file);
}

bool hx_intent_in_doubt(const hx_intent *intent)
{
    if (intent->attempt_count == 0) return false;
    const hx_intent_attempt *last = &intent->attempts[intent->attempt_count - 1];
    return !last->has_result || last->in_doubt;
}

hx_ms hx_intent_key_end(const hx_intent *intent)
{
    if (intent->key_ends_at > 0) return intent->key_ends_at;
    return intent->attempt_count == 0 ? INT64_MAX : intent->attempts[0].at + intent->request.key_lifetime;
}

void hx_intent_digest(const hx_intents *intents, hx_intent_request *request, hx_arena *arena)
{
    request->head_mac = head_mac(intents, request, arena);
    request->body_mac = mac_of(intents, &request->body, 1, arena);
}

const char *hx_intent_difference(const hx_intent_request *stored, const hx_intent_request *given)
{
    if (!hx_slice_eq(stored->method, given->method)) return "method";
    if (!hx_slice_eq(shown_url(stored->url), shown_url(given->url))) return "URL";
    if (!hx_slice_eq(stored->body_mac, given->body_mac)) return "body";
    if (!hx_slice_eq(stored->head_mac, given->head_mac)) return "query or headers";
    if (given->key.len > 0 && !hx_slice_eq(stored->key, given->key)) return "key";
    return NULL;
}
