/* SPDX-License-Identifier: Apache-2.0 */
/* Backups: what is written comes back, and no byte of it can be another one without being seen. */
#include "base/crc32c.h"
#include "cmd/store_common.h"
#include "store/transfer/unfinished.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define RECORDS 4u
#define ITEMS 2u

/* What a power cut may take: the bytes of a file since its last fsync, and the name of one in a directory since its
 * own. */
static struct {
    dev_t device;
    ino_t file;
    uint32_t bytes_crc;
    bool is_named, is_name_synced;
} synced;

static uint32_t crc_of(int fd)
{
    char bytes[4096];
    uint32_t crc = 0;
    ssize_t got;
    for (off_t at = 0; (got = pread(fd, bytes, sizeof bytes, at)) > 0; at += got)
        crc = hx_crc32c(crc, (hx_slice){bytes, (size_t)got});
    return crc;
}

/* Both stand before libc's. */
int fsync(int fd)
{
    struct stat st;
    char link[64];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? open(link, O_RDONLY | O_CLOEXEC) : -1;
    if (again >= 0) {
        synced.device = st.st_dev;
        synced.file = st.st_ino;
        synced.bytes_crc = crc_of(again);
        close(again);
    } else if (synced.is_named) {
        synced.is_name_synced = true;
    }
    return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
    struct stat st;
    int fd = open(from, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == synced.device && st.st_ino == synced.file)
        synced.is_named = crc_of(fd) == synced.bytes_crc;
    if (fd >= 0) close(fd);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static char folder[64], path[96];
static char error[HX_BACKUP_ERROR_BYTES];

static int begin(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/hapax-file-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/backup", folder);
    error[0] = '\0';
    return 0;
}

static void clear(const char *name) /* NOLINT(misc-no-recursion): one level deep */
{
    DIR *dir = opendir(name);
    if (!dir) return;
    for (struct dirent *item; (item = readdir(dir));) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(dir), item->d_name, 0) == 0) continue;
        char inner[512];
        (void)snprintf(inner, sizeof inner, "%s/%s", name, item->d_name);
        clear(inner);
    }
    closedir(dir);
    (void)rmdir(name);
}

static int end(void **state)
{
    (void)state;
    clear(folder);
    hx_arena_pool_drain();
    return 0;
}

static hx_record record_of(uint64_t number)
{
    static const hx_state states[RECORDS] = {HX_COMPLETED, HX_UNKNOWN, HX_PROCESSING, HX_FAILED};
    hx_record r = {.op = {{(uint8_t)(number + 1), 7}},
                   .epoch = 100 + number,
                   .state = states[number],
                   .created_at = 1000,
                   .changed_at = 2000,
                   .rule_version = 5,
                   .attempt = 1,
                   .route = HX_LIT("refunds"),
                   .correlation = HX_LIT("c"),
                   .reason = HX_EMPTY,
                   .result = HX_EMPTY};
    bool ended = r.state == HX_COMPLETED || r.state == HX_FAILED;
    r.answer = ended ? (hx_answer){201, true, HX_LIT("A: b\r\n"), HX_LIT("an answer")}
                     : (hx_answer){.headers = HX_EMPTY, .body = HX_EMPTY};
    if (ended) r.expires_at = INT64_C(4000000000000);
    if (r.state == HX_PROCESSING) r.lease_until = INT64_C(4000000000000);
    return r;
}

static hx_item item_at(size_t number)
{
    static const char *const keys[ITEMS] = {"event/1", "delivery/1"};
    return (hx_item){.key = hx_slice_of(keys[number]),
                     .version = 7 + number,
                     .queue = number ? HX_LIT("due/endpoint") : HX_EMPTY,
                     .due = number ? 1234 : 0,
                     .meta = HX_LIT("{\"attempts\":1}"),
                     .body = number ? HX_EMPTY : HX_LIT("a body")};
}

static hx_ms taken_at = 5000;
static size_t items_written = ITEMS;

static hx_backup_about write_backup(void)
{
    hx_backup_about about = {.taken_at = taken_at, .last_epoch = 200, .generation = 3, .source = "journal:/old"};
    memset(about.secret, 0x5a, sizeof about.secret);
    hx_backup_writer *writer = hx_backup_create(path, error);
    assert_non_null(writer);
    for (uint64_t i = 0; i < RECORDS; i++) {
        hx_record r = record_of(i);
        assert_true(hx_backup_add(writer, &r, error));
    }
    for (size_t i = 0; i < items_written; i++) {
        hx_item item = item_at(i);
        assert_true(hx_backup_add_item(writer, &item, error));
    }
    assert_int_equal(access(path, F_OK), -1); /* not before it is whole */
    assert_true(hx_backup_finish(&writer, &about, error));
    return about;
}

/* Reads it to its end; how many records there are, or SIZE_MAX with a sentence in `error`. */
static size_t read_backup(hx_backup_about *about)
{
    hx_arena arena = {0};
    hx_record r;
    hx_item item;
    size_t count = 0;
    hx_backup_reader *reader = hx_backup_open(path, about, error);
    if (!reader) return SIZE_MAX;
    hx_backup_step step;
    while ((step = hx_backup_next(reader, &arena, &r, &item, error)) <= HX_BACKUP_ITEM)
        count += step == HX_BACKUP_RECORD;
    hx_backup_close(&reader);
    hx_arena_free(&arena);
    return step == HX_BACKUP_END ? count : SIZE_MAX;
}

static void what_was_written_comes_back(void **state)
{
    (void)state;
    hx_backup_about wrote = write_backup(), read;
    hx_arena arena = {0};
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, wrote.bytes);
    hx_backup_reader *reader = hx_backup_open(path, &read, error);
    assert_non_null(reader);
    assert_int_equal(read.taken_at, 5000);
    assert_int_equal(read.last_epoch, 200);
    assert_int_equal(read.generation, 3);
    assert_int_equal(read.count, RECORDS);
    assert_int_equal(read.items, ITEMS);
    assert_string_equal(read.source, "journal:/old");
    assert_memory_equal(read.secret, wrote.secret, sizeof read.secret);
    for (int round = 0; round < 2; round++) {
        hx_item item;
        for (uint64_t i = 0; i < RECORDS; i++) {
            hx_record expected = record_of(i), found;
            assert_int_equal(hx_backup_next(reader, &arena, &found, &item, error), HX_BACKUP_RECORD);
            assert_true(hx_op_eq(&found.op, &expected.op));
            assert_int_equal(found.epoch, expected.epoch);
            assert_int_equal(found.state, expected.state);
            assert_int_equal(found.lease_until, expected.lease_until);
            assert_true(hx_slice_eq(found.route, expected.route));
            assert_true(hx_slice_eq(found.answer.headers, expected.answer.headers));
            assert_true(hx_slice_eq(found.answer.body, expected.answer.body));
        }
        hx_record none;
        for (size_t i = 0; i < ITEMS; i++) {
            hx_item expected = item_at(i);
            assert_int_equal(hx_backup_next(reader, &arena, &none, &item, error), HX_BACKUP_ITEM);
            assert_true(hx_slice_eq(item.key, expected.key));
            assert_true(hx_slice_eq(item.queue, expected.queue));
            assert_true(hx_slice_eq(item.meta, expected.meta));
            assert_true(hx_slice_eq(item.body, expected.body));
            assert_int_equal(item.due, expected.due);
            assert_int_equal(item.version, expected.version);
        }
        assert_int_equal(hx_backup_next(reader, &arena, &none, &item, error), HX_BACKUP_END);
        assert_true(hx_backup_rewind(reader, error));
    }
    hx_backup_close(&reader);
    hx_arena_free(&arena);
}

static void overwrite(off_t at, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
    close(fd);
}

static void every_flipped_bit_is_seen(void **state)
{
    (void)state;
    hx_backup_about about = write_backup(), read;
    char *bytes = malloc(about.bytes);
    int fd = open(path, O_RDONLY);
    assert_int_equal(pread(fd, bytes, about.bytes, 0), (ssize_t)about.bytes);
    close(fd);
    for (uint64_t at = 0; at < about.bytes; at++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            char other = (char)(bytes[at] ^ (1 << bit));
            error[0] = '\0';
            overwrite((off_t)at, &other, 1);
            assert_int_equal(read_backup(&read), SIZE_MAX);
            assert_non_null(strstr(error, path));
        }
        overwrite((off_t)at, &bytes[at], 1);
    }
    assert_int_equal(read_backup(&read), RECORDS);
    free(bytes);
}

/* As a version without items writes and reads it. */
static void a_backup_without_items_has_the_first_format(void **state)
{
    (void)state;
    hx_backup_about read;
    for (items_written = 0; items_written <= ITEMS; items_written += ITEMS) {
        (void)write_backup();
        unsigned char format = 0;
        int fd = open(path, O_RDONLY);
        assert_int_equal(pread(fd, &format, 1, 8), 1);
        close(fd);
        assert_int_equal(format, items_written > 0 ? 2 : 1);
        assert_int_equal(read_backup(&read), RECORDS);
        assert_int_equal(read.items, items_written);
        assert_int_equal(unlink(path), 0);
    }
    items_written = ITEMS;
}

static void every_length_but_its_own_is_seen(void **state)
{
    (void)state;
    hx_backup_about about = write_backup(), read;
    assert_int_equal(truncate(path, (off_t)about.bytes + 1), 0);
    assert_int_equal(read_backup(&read), SIZE_MAX);
    for (uint64_t length = about.bytes; length-- > 0;) {
        assert_int_equal(truncate(path, (off_t)length), 0);
        error[0] = '\0';
        assert_int_equal(read_backup(&read), SIZE_MAX);
        assert_non_null(strstr(error, path));
    }
}

/* The time since then is part of what a restore adds to the epochs. */
static void a_time_that_no_clock_shows_is_refused(void **state)
{
    (void)state;
    hx_backup_about read;
    taken_at = INT64_MIN;
    (void)write_backup();
    taken_at = 5000;
    assert_int_equal(read_backup(&read), SIZE_MAX);
    assert_non_null(strstr(error, "its header can't be read"));
}

static void it_has_its_name_when_all_of_it_is_on_disk(void **state)
{
    (void)state;
    memset(&synced, 0, sizeof synced);
    (void)write_backup();
    assert_true(synced.is_named);
    assert_true(synced.is_name_synced);
}

static void what_is_abandoned_leaves_nothing_and_the_one_before(void **state)
{
    (void)state;
    hx_backup_about about = write_backup(), read;
    hx_record r = record_of(0);
    char making[128];
    (void)snprintf(making, sizeof making, "%s.tmp", path);
    hx_backup_writer *writer = hx_backup_create(path, error);
    assert_true(hx_backup_add(writer, &r, error));
    assert_int_equal(access(making, F_OK), 0);
    hx_backup_abandon(&writer);
    assert_int_equal(access(making, F_OK), -1);
    assert_int_equal(read_backup(&read), RECORDS);
    assert_int_equal(read.bytes, about.bytes);
}

/* As a killed backup leaves it. */
static void what_was_not_finished_is_no_backup(void **state)
{
    (void)state;
    hx_backup_about about = write_backup(), read;
    static const char zeros[512];
    overwrite(0, zeros, sizeof zeros);
    assert_int_equal(read_backup(&read), SIZE_MAX);
    assert_non_null(strstr(error, "not finished"));
    assert_true(about.count == RECORDS);
}

/* Only a shared store has any in its backups. */
static void what_was_under_way_is_unknown_in_the_restored_store(void **state)
{
    (void)state;
    hx_backup_about about = write_backup();
    char url[128];
    hx_error_text store_error;
    (void)snprintf(url, sizeof url, "journal:%s/store", folder);
    const hx_store_flags flags = {.json = true};
    assert_int_equal(hx_cmd_store_restore(&flags, path, url), 0);
    hx_store *store = hx_store_open(hx_slice_of(url), NULL, store_error);
    assert_non_null(store);
    assert_memory_equal(hx_store_about(store)->secret, about.secret, sizeof about.secret);
    hx_arena arena = {0};
    for (uint64_t i = 0; i < RECORDS; i++) {
        hx_record expected = record_of(i), found;
        assert_int_equal(hx_store_peek(store, &expected.op, &arena, &found), HX_PEEK_FOUND);
        assert_int_equal(found.state, expected.state == HX_PROCESSING ? HX_UNKNOWN : expected.state);
        assert_int_equal(found.epoch, expected.epoch);
        if (expected.state == HX_PROCESSING) assert_true(hx_slice_eq(found.reason, HX_LIT("restored")));
    }
    uint64_t last;
    assert_true(hx_store_last_epoch(store, &last, store_error));
    assert_true(last >= about.last_epoch + (UINT64_C(1) << 36));
    hx_loop *loop = hx_loop_new();
    hx_store_attach(store, loop);
    hx_unfinished mark;
    assert_true(hx_unfinished_read(store, loop, &mark));
    assert_true(mark.is_there && !mark.unfinished);
    assert_int_equal(mark.generation, 4);
    assert_int_equal(mark.taken_at, 5000);
    hx_arena_free(&arena);
    hx_store_close(&store);
    hx_loop_free(&loop);
}

static void passwords_are_not_shown(void **state)
{
    (void)state;
    static const struct {
        const char *url, *shown;
    } rows[] = {
        {"postgres://host/db", "postgres://host/db"},
        {"postgres://me@host/db", "postgres://me@host/db"},
        {"postgres://me:secret@host:5432/db", "postgres://me:***@host:5432/db"},
        {"postgres://me:se@cret@host/db?password=other&sslmode=require", "postgres://me:***@host/db"},
        {"postgres://host/db?user=me&pass%77ord=secret", "postgres://host/db"},
        {"journal:/var/lib/hapax", "journal:/var/lib/hapax"},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hx_place place;
        (void)hx_place_check(&place, rows[i].url, &arena);
        assert_string_equal(place.shown, rows[i].shown);
    }
    hx_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_written_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(every_flipped_bit_is_seen, begin, end),
        cmocka_unit_test_setup_teardown(a_backup_without_items_has_the_first_format, begin, end),
        cmocka_unit_test_setup_teardown(every_length_but_its_own_is_seen, begin, end),
        cmocka_unit_test_setup_teardown(a_time_that_no_clock_shows_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(it_has_its_name_when_all_of_it_is_on_disk, begin, end),
        cmocka_unit_test_setup_teardown(what_is_abandoned_leaves_nothing_and_the_one_before, begin, end),
        cmocka_unit_test_setup_teardown(what_was_not_finished_is_no_backup, begin, end),
        cmocka_unit_test_setup_teardown(what_was_under_way_is_unknown_in_the_restored_store, begin, end),
        cmocka_unit_test(passwords_are_not_shown),
    };
    return cmocka_run_group_tests_name("store_file", tests, NULL, NULL);
}
