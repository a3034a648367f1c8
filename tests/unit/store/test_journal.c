/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal does with its files: refusing, cutting torn tails, telling damage, hints, dropping. */
#include "journal_files.h"

#include "store/journal/segment.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

static atomic_bool sync_fails;

/* Instead of libc's. */
int fsync(int fd)
{
    if (sync_fails) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

/* Instead of libc's. The wall clock is an hour ahead of the one by which the kernel ends waits: as if it were set back
 * by that in the middle of each. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    int result = (int)syscall(SYS_clock_gettime, clock_id, tp);
    if (clock_id == CLOCK_REALTIME) tp->tv_sec += 3600;
    return result;
}

static void zero_from(const bench *b, const char *name, off_t from, off_t to)
{
    int fd = open(path_in(b, name), O_RDWR);
    for (off_t at = from; at < to; at++) assert_int_equal(pwrite(fd, "", 1, at), 1);
    close(fd);
}

static void refused_stores_are_named_and_left_alone(void **state)
{
    (void)state;
    bench b, broken;
    bench_begin(&b, "journal", small);
    complete(&b, 1, HX_COMPLETED, HX_DAY);
    does_not_open(&b, "in use by another process, process "); /* which goes on writing meanwhile */
    complete(&b, 2, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    static const struct {
        const char *file, *text, *words;
    } cases[] = {
        {"FORMAT", "hapax journal 4\nfuture\n", "format 4, from a newer hapax"},
        {"FORMAT", "hapax journal 2\n", "format 2, from an older hapax"},
        {"FORMAT", "hapax jour", "FORMAT file can't be understood"},
        {"FORMAT", NULL, "FORMAT file is missing"},
        {"secret", "short", "secret is damaged"},
        {"secret", NULL, "secret is missing"},
        {"segments", NULL, "`segments` is missing"},
        {"segments", "first 00000001\nlast 00000002\ncheck 00000000\n", "`segments` can't be understood"},
        {"00000001.seg", NULL, "`hapax store salvage"},
        {"00000001.seg", "", "cut short"},
        {"00000001.seg", "garbage", "`hapax store salvage"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        broken = b;
        new_directory(broken.directory);
        copy_directory(b.directory, broken.directory);
        if (cases[i].text)
            write_text(&broken, cases[i].file, cases[i].text);
        else
            assert_int_equal(unlink(path_in(&broken, cases[i].file)), 0);
        refuses(&broken, cases[i].words);
        remove_directory(broken.directory);
    }
    remove_directory(b.directory);
    (void)mkdir(b.directory, 0700);
    write_text(&b, "letter.txt", "not ours");
    refuses(&b, "holds no store");
    remove_directory(b.directory);
    FILE *f = fopen(b.directory, "w");
    (void)fclose(f);
    char url[128];
    hx_error_text error;
    (void)snprintf(url, sizeof url, "journal:%s", b.directory);
    assert_null(hx_store_open(hx_slice_of(url), &b.options, error));
    assert_non_null(strstr(error, "is not a directory"));
    (void)unlink(b.directory);
    hx_arena_free(&b.arena);
}

static void files_are_private_and_the_secret_stays(void **state)
{
    (void)state;
    bench b;
    struct stat st;
    uint8_t secret[32];
    bench_begin(&b, "journal", small);
    const hx_store_facts *facts = hx_store_about(b.store);
    memcpy(secret, facts->secret, sizeof secret);
    uint64_t owner = facts->owner;
    assert_true(facts->durable);
    assert_int_equal(stat(b.directory, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    const char *files[] = {"secret", "FORMAT", "lock", "segments", "00000001.seg"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(stat(path_in(&b, files[i]), &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    bench_restart(&b);
    assert_memory_equal(hx_store_about(b.store)->secret, secret, sizeof secret);
    assert_true(hx_store_about(b.store)->owner != owner);
    bench_end(&b);
}

/* A store as a crash leaves it: copied while it is open and idle. `end` is where the log ends. */
static void crash_image(bench *image, uint64_t operations, off_t *end)
{
    bench b;
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = SEGMENT});
    for (uint64_t i = 0; i < operations; i++) complete(&b, i, HX_COMPLETED, 100 * HX_DAY);
    *image = (bench){.backend = "journal", .options = b.options};
    new_directory(image->directory);
    copy_directory(b.directory, image->directory);
    bench_end(&b);
    int fd = open(path_in(image, "00000001.seg"), O_RDONLY);
    hx_scan scan;
    bool ok = hx_scan_begin(&scan, fd, 1, 0);
    assert_true(ok);
    *end = (off_t)hx_scan_content_end(&scan, 0);
    char byte;
    while (*end > 0 && pread(fd, &byte, 1, *end - 1) == 1 && byte == 0) --*end;
    hx_scan_end(&scan);
    close(fd);
}

static void a_torn_tail_is_cut_and_all_before_it_stands(void **state)
{
    (void)state;
    bench image, torn;
    off_t end;
    crash_image(&image, 3, &end);
    /* the last commit begins somewhere in the last 900 bytes: whatever part of it is missing */
    for (off_t cut = end - 400; cut < end; cut += 9) {
        torn = image;
        new_directory(torn.directory);
        copy_directory(image.directory, torn.directory);
        zero_from(&torn, "00000001.seg", cut, end);
        bench_open(&torn);
        for (uint64_t i = 0; i < 2; i++) assert_int_equal(peek(&torn, op_of(i), NULL), HX_COMPLETED);
        hx_state last = peek(&torn, op_of(2), NULL);
        assert_true(last == HX_COMPLETED || last == HX_UNKNOWN);
        complete(&torn, 50, HX_COMPLETED, HX_DAY);
        bench_restart(&torn);
        assert_int_equal(peek(&torn, op_of(2), NULL), last);
        assert_int_equal(peek(&torn, op_of(50), NULL), HX_COMPLETED);
        bench_end(&torn);
    }
    remove_directory(image.directory);
}

static void every_flipped_byte_is_harmless_or_refused_by_name(void **state)
{
    (void)state;
    bench image, hurt;
    off_t end;
    unsigned refused = 0, harmless = 0;
    char url[128];
    hx_error_text error;
    crash_image(&image, 3, &end);
    hx_log_threshold(HX_LOG_ERROR + 1);
    hurt = image;
    new_directory(hurt.directory);
    for (off_t at = 0; at < end + 64; at++) {
        remove_directory(hurt.directory); /* a hint would keep the start from reading the segment */
        copy_directory(image.directory, hurt.directory);
        flip(&hurt, "00000001.seg", at, (unsigned char)(1u << (at % 8)));
        (void)snprintf(url, sizeof url, "journal:%s", hurt.directory);
        hurt.store = hx_store_open(hx_slice_of(url), &hurt.options, error);
        if (!hurt.store) {
            assert_non_null(strstr(error, "hapax store salvage"));
            refused++;
            continue;
        }
        harmless++;
        hurt.loop = hx_loop_new();
        hx_store_attach(hurt.store, hurt.loop);
        for (uint64_t i = 0; i < 3; i++) {
            hx_record found;
            if (peek(&hurt, op_of(i), &found) != HX_COMPLETED || !hx_slice_eq(found.answer.body, HX_LIT("an answer")))
                fail_msg("byte %ld: operation %d is lost or wrong", (long)at, (int)i);
        }
        bench_close(&hurt);
        hx_arena_free(&hurt.arena);
    }
    hx_log_threshold(HX_LOG_INFO);
    print_message("%u refused, %u harmless\n", refused, harmless);
    assert_true(refused > (unsigned)end * 9 / 10);
    remove_directory(hurt.directory);
    remove_directory(image.directory);
}

static void a_record_that_rots_while_open_is_unknown(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    bench_begin(&b, "journal", small);
    hx_record r = complete(&b, 1, HX_COMPLETED, HX_DAY);
    hx_log_threshold(HX_LOG_ERROR + 1);
    for (off_t at = 128; at < SEGMENT; at += 16) flip(&b, "00000001.seg", at, 0xff);
    assert_int_equal(peek(&b, r.op, &found), HX_UNKNOWN);
    hx_log_threshold(HX_LOG_INFO);
    assert_int_equal(found.epoch, r.epoch);
    bench_end(&b);
}

static uint64_t bytes_of(const bench *b, const char *suffix)
{
    uint64_t bytes = 0;
    struct stat st;
    DIR *dir = opendir(b->directory);
    for (struct dirent *item; (item = readdir(dir));)
        if (hx_slice_ends(hx_slice_of(item->d_name), hx_slice_of(suffix)) &&
            fstatat(dirfd(dir), item->d_name, &st, 0) == 0)
            bytes += (uint64_t)st.st_size;
    closedir(dir);
    return bytes;
}

static void hints_may_be_lost_or_damaged(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 100; i++) complete(&b, i, i % 5 ? HX_COMPLETED : HX_UNKNOWN, HX_DAY);
    for (uint64_t i = 0; i < 100; i += 10) assert_int_equal(forget(&b, op_of(i), 0, NULL), HX_STORE_OK);
    for (int round = 0; round < 3; round++) {
        bench_close(&b);
        assert_true(count_files(&b, ".hint") >= 6);
        if (round == 1) remove_files(&b, ".hint");
        for (off_t at = 20; round == 2 && at < 400; at += 40) flip(&b, "00000002.hint", at, 0x10);
        bench_open(&b);
        for (uint64_t i = 0; i < 100; i++)
            assert_int_equal(peek(&b, op_of(i), NULL), i % 10 == 0 ? HX_ABSENT : i % 5 ? HX_COMPLETED : HX_UNKNOWN);
        hx_store_counts counts;
        hx_store_count(b.store, &counts);
        assert_int_equal(counts.live, 90);
        assert_int_equal(counts.unknown, 10);
    }
    bench_end(&b);
}

/* An earlier version's hint is whole, but says something else. */
static void hints_of_another_version_are_made_anew(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 100; i++) complete(&b, i, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    char head[128];
    uint32_t older = 2, crc;
    for (int round = 0; round < 2; round++) {
        int fd = open(path_in(&b, "00000002.hint"), O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, head, sizeof head, 0), sizeof head);
        assert_int_equal(head[8], 3); /* the second time: it was made again */
        memcpy(head + 8, &older, sizeof older);
        crc = hx_crc32c(0, (hx_slice){head, 124});
        memcpy(head + 124, &crc, sizeof crc);
        assert_int_equal(pwrite(fd, head, sizeof head, 0), sizeof head);
        (void)close(fd);
        bench_open(&b);
        for (uint64_t i = 0; i < 100; i++) assert_int_equal(peek(&b, op_of(i), NULL), HX_COMPLETED);
        hx_store_rules rules;
        hx_store_rules_of(b.store, &b.arena, &rules);
        assert_int_equal(rules.count, 1);
        assert_int_equal(rules.rules[0].live, 100);
        bench_close(&b);
    }
    bench_open(&b);
    bench_end(&b);
}

static void reseal_hint(const bench *b, const char *name)
{
    static char bytes[1 << 20];
    int fd = open(path_in(b, name), O_RDWR | O_CLOEXEC);
    ssize_t len = pread(fd, bytes, sizeof bytes, 0);
    assert_true(len > 128);
    uint32_t crc = hx_crc32c(0, (hx_slice){bytes + 128, (size_t)len - 128});
    memcpy(bytes + 108, &crc, sizeof crc);
    crc = hx_crc32c(0, (hx_slice){bytes, 124});
    memcpy(bytes + 124, &crc, sizeof crc);
    assert_int_equal(pwrite(fd, bytes, 128, 0), 128);
    (void)close(fd);
}

/* A hint is optional: what can't be so is not believed, and ends nothing. */
static void hints_whose_checksums_fit_nonsense_are_not_believed(void **state)
{
    (void)state;
    bench b, odd;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 60; i++) complete(&b, i, HX_COMPLETED, 100 * HX_DAY);
    bench_close(&b);
    hx_log_threshold(HX_LOG_ERROR + 1);
    odd = (bench){.backend = b.backend, .options = b.options};
    new_directory(odd.directory);
    const char *names[] = {"00000002.hint", "00000004.hint"}; /* one in the middle, and the last */
    assert_int_equal(access(path_in(&b, names[1]), F_OK), 0);
    for (int which = 0; which < 2; which++) {
        for (off_t at = 12; at < 128 + 7 + 40 * 3; at++) {
            if (at >= 108 && at < 128) continue;
            for (unsigned char mask = 1; mask; mask = mask == 1 ? 0x80 : 0) {
                remove_directory(odd.directory);
                copy_directory(b.directory, odd.directory);
                flip(&odd, names[which], at, mask);
                reseal_hint(&odd, names[which]);
                bench_open(&odd);
                unsigned found = 0;
                for (uint64_t i = 0; i < 60; i++) found += peek(&odd, op_of(i), NULL) == HX_COMPLETED;
                /* of what no check can see, an operation's own name, epoch or time, it is one operation's */
                assert_true(found >= 59);
                bench_close(&odd);
                hx_arena_free(&odd.arena);
            }
        }
    }
    remove_directory(odd.directory);
    bench_open(&b);
    bench_end(&b);
    hx_log_threshold(HX_LOG_INFO);
}

/* Where a place lies behind all records, every operation is found: from the segment itself. */
static void a_hint_that_leads_behind_its_end_is_not_believed(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 60; i++) complete(&b, i, HX_COMPLETED, 100 * HX_DAY);
    bench_close(&b);
    int fd = open(path_in(&b, "00000002.hint"), O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "\xff\xff", 2, 128 + 7 + 16 + 2), 2); /* of the first entry's place */
    (void)close(fd);
    reseal_hint(&b, "00000002.hint");
    bench_open(&b);
    for (uint64_t i = 0; i < 60; i++) assert_int_equal(peek(&b, op_of(i), NULL), HX_COMPLETED);
    bench_end(&b);
}

/* With the checksums of a frame that was meant so. */
static void a_frame_that_says_what_cannot_be_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        uint64_t value;
    } cases[] = {{offsetof(hx_frame_head, epoch), UINT64_C(1) << 48},
                 {offsetof(hx_frame_head, epoch), UINT64_MAX},
                 {offsetof(hx_frame_head, stamp), INT64_MAX}};
    bench image, odd;
    bench_begin(&image, "journal", small);
    bench_close(&image);
    remove_files(&image, ".hint"); /* with it the start wouldn't read the frame */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        odd = image;
        new_directory(odd.directory);
        copy_directory(image.directory, odd.directory);
        int fd = open(path_in(&odd, "00000001.seg"), O_RDWR | O_CLOEXEC);
        hx_segment_head head;
        hx_frame_head frame;
        char owner[8];
        assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
        assert_int_equal(pread(fd, &frame, sizeof frame, sizeof head), sizeof frame);
        assert_int_equal(pread(fd, owner, sizeof owner, sizeof head + sizeof frame), sizeof owner);
        assert_int_equal(frame.kind, HX_FRAME_START);
        memcpy((char *)&frame + cases[i].at, &cases[i].value, 8);
        hx_frame_seal(&frame, head.generation, (hx_slice){owner, sizeof owner});
        assert_int_equal(pwrite(fd, &frame, sizeof frame, sizeof head), sizeof frame);
        close(fd);
        refuses(&odd, "says what no store writes");
        remove_directory(odd.directory);
    }
    remove_directory(image.directory);
}

static void is_in_file(const hx_record *found, hx_slice body)
{
    static char bytes[1 << 16];
    assert_non_null(found->body_file);
    assert_int_equal(found->body_file->len, body.len);
    assert_true(hx_extent_read(found->body_file, bytes, body.len));
    assert_memory_equal(bytes, body.ptr, body.len);
}

static void a_large_answer_is_read_from_its_segment_even_after_that_is_dropped(void **state)
{
    (void)state;
    bench b;
    static char large[20000];
    hx_arena arena = {0};
    hx_record found, r = record_of(1);
    bench_begin(&b, "journal", small);
    for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 7 + i / 251);
    assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_OK);
    r.answer =
        (hx_answer){.status = 201, .retained = true, .headers = HX_LIT("A: b\r\n"), .body = {large, sizeof large}};
    r.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), HX_STORE_OK);
    assert_int_equal(peek(&b, r.op, &found), HX_COMPLETED);
    assert_true(!found.body_file && hx_slice_eq(found.answer.body, r.answer.body));
    assert_int_equal(hx_store_peek_large(b.store, &r.op, &arena, sizeof large, &found), HX_PEEK_FOUND);
    assert_true(!found.body_file && hx_slice_eq(found.answer.body, r.answer.body));
    assert_int_equal(hx_store_peek_large(b.store, &r.op, &arena, sizeof large / 2, &found), HX_PEEK_FOUND);
    assert_true(hx_slice_eq(found.answer.headers, r.answer.headers));
    is_in_file(&found, r.answer.body);
    struct stat file = {.st_nlink = 1};
    for (uint64_t i = 100; file.st_nlink > 0 && i < 10000; i++) { /* until the segment has no name any more */
        (void)complete(&b, i, HX_COMPLETED, HX_DAY);
        test_now += HX_DAY / 50;
        (void)sweep(&b);
        assert_int_equal(fstat(found.body_file->fd, &file), 0);
    }
    assert_int_equal(file.st_nlink, 0);
    assert_int_equal(peek(&b, r.op, NULL), HX_ABSENT);
    is_in_file(&found, r.answer.body);
    bench_end(&b);
    is_in_file(&found, r.answer.body);
    hx_arena_free(&arena);
}

static void a_large_answer_that_the_disk_has_changed_is_unknown(void **state)
{
    (void)state;
    bench b;
    static char large[20000];
    hx_arena arena = {0};
    hx_record found, r = record_of(1);
    bench_begin(&b, "journal", small);
    memset(large, 'x', sizeof large);
    assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_OK);
    r.answer = (hx_answer){.status = 201, .retained = true, .headers = HX_EMPTY, .body = {large, sizeof large}};
    r.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), HX_STORE_OK);
    assert_int_equal(hx_store_peek_large(b.store, &r.op, &arena, 1, &found), HX_PEEK_FOUND);
    assert_int_equal(pwrite(found.body_file->fd, "y", 1, (off_t)(found.body_file->at + sizeof large - 1)), 1);
    assert_int_equal(hx_store_peek_large(b.store, &r.op, &arena, 1, &found), HX_PEEK_FOUND);
    assert_int_equal(found.state, HX_UNKNOWN);
    assert_null(found.body_file);
    hx_arena_free(&arena);
    bench_end(&b);
}

static void expired_segments_go_into_the_archive_and_long_lived_records_move(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    bench_begin(&b, "journal", small);
    hx_record held = complete(&b, 1000, HX_UNKNOWN, 0), old = complete(&b, 1001, HX_COMPLETED, 900 * HX_DAY);
    hx_record buried = record_of(1002), running = record_of(1003);
    assert_int_equal(claim(&b, &buried, 0, NULL), HX_STORE_OK);
    buried.answer = (hx_answer){200, true, HX_LIT("A: b\r\n"), HX_LIT("gone soon")};
    buried.expires_at = test_now + HX_HOUR;
    buried.tombstone_until = test_now + 900 * HX_DAY;
    assert_int_equal(settle(&b, &buried, HX_COMPLETED, NULL), HX_STORE_OK);
    running.lease_until = test_now + 900 * HX_DAY;
    assert_int_equal(claim(&b, &running, 0, NULL), HX_STORE_OK);
    uint64_t drawn = 0;
    for (int day = 0; day < 4; day++) {
        for (uint64_t i = 0; i < 60; i++) drawn = complete(&b, i, HX_COMPLETED, HX_DAY).epoch;
        test_now += 2 * HX_DAY;
        assert_int_equal(sweep(&b), 60);
        assert_int_equal(peek(&b, held.op, NULL), HX_UNKNOWN);
        assert_int_equal(peek(&b, old.op, &found), HX_COMPLETED);
        assert_true(hx_slice_eq(found.answer.body, HX_LIT("an answer")));
        assert_int_equal(peek(&b, buried.op, NULL), HX_EXPIRED);
        assert_int_equal(peek(&b, running.op, NULL), HX_PROCESSING);
    }
    hx_store_counts counts;
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.live, 3);
    for (int round = 0; round < 2; round++) {
        bench_close(&b); /* the background thread has archived by then */
        assert_true(count_files(&b, ".audit") >= 8);
        assert_true(count_files(&b, ".seg") <= 4);
        if (round == 1) remove_files(&b, ".hint");
        bench_open(&b);
        hx_store_count(b.store, &counts);
        uint64_t archived = bytes_of(&b, ".audit");
        assert_true(archived > 0);
        assert_true(counts.bytes >= archived + SEGMENT); /* the archive counts */
        assert_true(counts.bytes - archived <= 7 * SEGMENT);
        assert_int_equal(peek(&b, held.op, NULL), HX_UNKNOWN);
        assert_int_equal(peek(&b, old.op, &found), HX_COMPLETED);
        assert_true(hx_slice_eq(found.answer.body, HX_LIT("an answer")));
        assert_int_equal(peek(&b, buried.op, &found), HX_EXPIRED);
        assert_int_equal(peek(&b, running.op, &found), HX_UNKNOWN);
        assert_memory_equal(&found.fingerprint, &running.fingerprint, sizeof found.fingerprint);
        for (uint64_t i = 0; i < 60; i++) assert_int_equal(peek(&b, op_of(i), NULL), HX_ABSENT);
        hx_record next = record_of(2000 + (uint64_t)round);
        assert_int_equal(claim(&b, &next, 0, NULL), HX_STORE_OK);
        assert_true(next.epoch > drawn); /* G4, though the segments that drew it are gone */
    }
    uint32_t last = 0;
    for (char name[HX_SEGMENT_NAME_BYTES];
         hx_segment_name(name, last + 1, ".seg"),
         access(path_in(&b, name), F_OK) == 0 || last < 3 || count_files(&b, ".audit") > last;)
        last++;
    assert_true(verify_chain(&b, last) > 400);
    bench_end(&b);
}

/* As a copy does it: first the epochs, then records of lower ones, which end at last. */
static void epochs_stay_raised_when_what_raised_them_is_gone(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    hx_record nothing = record_of(1000);
    nothing.state = HX_ABSENT;
    nothing.epoch = last_epoch(&b) + (UINT64_C(1) << 36);
    for (uint64_t i = 0; i <= 120; i++) {
        hx_record r = i == 0 ? nothing : record_of(i);
        if (i > 0) {
            r.state = HX_COMPLETED;
            r.epoch = i;
            r.lease_until = 0;
            r.expires_at = test_now + HX_HOUR;
            r.answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), HX_LIT("an answer")};
        }
        waited w;
        wait_start(&b, &w);
        hx_store_import(b.store, &w.call, &r);
        wait_for(&b, &w);
        assert_int_equal(w.call.result, HX_STORE_OK);
    }
    test_now += 2 * HX_HOUR;
    assert_int_equal(sweep(&b), 120);
    bench_close(&b);
    assert_int_equal(access(path_in(&b, "00000001.seg"), F_OK), -1);
    bench_open(&b);
    hx_record next = record_of(2000);
    assert_int_equal(claim(&b, &next, 0, NULL), HX_STORE_OK);
    assert_true(next.epoch > nothing.epoch);
    bench_end(&b);
}

static void full_stores_refuse_claims_only_and_recover(void **state)
{
    (void)state;
    bench b;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = SEGMENT, .bytes_max = 3 * SEGMENT});
    hx_record running = record_of(9999);
    running.lease_until = test_now + 9 * HX_DAY;
    assert_int_equal(claim(&b, &running, 0, NULL), HX_STORE_OK);
    hx_store_result result = HX_STORE_OK;
    uint64_t made = 0;
    for (; result == HX_STORE_OK && made < 1000; made++) {
        hx_record r = record_of(made);
        result = claim(&b, &r, 0, NULL);
        if (result != HX_STORE_OK) break;
        r.expires_at = test_now + HX_HOUR;
        assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), HX_STORE_OK);
    }
    assert_int_equal(result, HX_STORE_FULL);
    assert_true(made > 10);
    hx_record known = record_of(0), found;
    assert_int_equal(claim(&b, &known, 0, &found), HX_STORE_EXISTS); /* what is there is still served */
    running.expires_at = test_now + HX_HOUR;
    assert_int_equal(settle(&b, &running, HX_COMPLETED, NULL), HX_STORE_OK);
    test_now += HX_DAY;
    assert_int_equal(sweep(&b), made + 1);
    hx_record again = record_of(5);
    while ((result = claim(&b, &again, 0, NULL)) == HX_STORE_FULL) hx_loop_turn(b.loop, 50);
    assert_int_equal(result, HX_STORE_OK);
    bench_end(&b);
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = SEGMENT, .free_bytes_floor = UINT64_MAX});
    assert_int_equal(claim(&b, &again, 0, NULL), HX_STORE_FULL);
    bench_end(&b);
    hx_log_threshold(HX_LOG_INFO);
}

static void parents_are_made_only_where_that_is_asked_for(void **state)
{
    (void)state;
    bench b = {.backend = "journal", .options = {.segment_bytes = SEGMENT, .now = test_clock}};
    char home[64], parent[128];
    struct stat st;
    new_directory(home);
    (void)mkdir(home, 0700);
    (void)snprintf(parent, sizeof parent, "%.30s/.local", home);
    (void)snprintf(b.directory, sizeof b.directory, "%.30s/.local/state/hapax", home);
    does_not_open(&b, parent);
    does_not_open(&b, ".local doesn't exist");
    assert_int_equal(access(parent, F_OK), -1);
    b.options.make_parents = true;
    bench_open(&b);
    complete(&b, 1, HX_COMPLETED, HX_DAY);
    assert_int_equal(stat(parent, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    bench_end(&b);
    remove_directory(home);
}

static void a_start_that_cannot_sync_what_it_read_is_refused(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    complete(&b, 1, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    sync_fails = true;
    refuses(&b, "can't sync");
    sync_fails = false;
    bench_open(&b);
    assert_int_equal(peek(&b, op_of(1), NULL), HX_COMPLETED);
    bench_end(&b);
}

/* Zeros that go through the page cache are written out when they are synced, all at once, and commits wait for that. */
static void the_next_segment_is_prepared_past_the_page_cache(void **state)
{
    (void)state;
    bench b;
    const size_t bytes = 4 << 20;
    struct statfs fs;
    (void)setenv("TMPDIR", "/var/tmp", 1); /* on a disk, most likely */
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = (uint32_t)bytes});
    (void)unsetenv("TMPDIR");
    int fd = -1;
    for (int i = 0; i < 60000 && (fd = open(path_in(&b, "00000002.seg"), O_RDWR)) < 0; i++) (void)usleep(1000);
    assert_int_equal(fstatfs(fd, &fs), 0);
    if (fs.f_type != TMPFS_MAGIC && fcntl(fd, F_SETFL, O_DIRECT) == 0) {
        unsigned char resident[(4 << 20) / 4096];
        void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        assert_true(map != MAP_FAILED);
        assert_int_equal(mincore(map, bytes, resident), 0);
        for (size_t i = 0; i < sizeof resident; i++) assert_int_equal(resident[i] & 1, 0);
        (void)munmap(map, bytes);
    }
    close(fd);
    bench_end(&b);
}

static void a_segment_that_is_half_prepared_is_gone_with_the_store(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = 64 << 20});
    for (uint64_t i = 0; i < 3; i++) {
        complete(&b, i, HX_COMPLETED, HX_DAY);
        bench_close(&b);
        assert_int_equal(bytes_of(&b, ".new"), 0);
        bench_open(&b);
    }
    for (uint64_t i = 0; i < 3; i++) assert_int_equal(peek(&b, op_of(i), NULL), HX_COMPLETED);
    bench_end(&b);
}

static void orphans_are_counted(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 3; i++) {
        hx_record r = record_of(i);
        r.lease_until = test_now + HX_DAY;
        assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_OK);
    }
    assert_int_equal(hx_store_about(b.store)->orphans, 0);
    bench_restart(&b);
    assert_int_equal(hx_store_about(b.store)->orphans, 3);
    bench_restart(&b);
    assert_int_equal(hx_store_about(b.store)->orphans, 0);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_stores_are_named_and_left_alone),
        cmocka_unit_test(files_are_private_and_the_secret_stays),
        cmocka_unit_test(a_torn_tail_is_cut_and_all_before_it_stands),
        cmocka_unit_test(every_flipped_byte_is_harmless_or_refused_by_name),
        cmocka_unit_test(a_record_that_rots_while_open_is_unknown),
        cmocka_unit_test(hints_may_be_lost_or_damaged),
        cmocka_unit_test(hints_of_another_version_are_made_anew),
        cmocka_unit_test(a_large_answer_is_read_from_its_segment_even_after_that_is_dropped),
        cmocka_unit_test(a_large_answer_that_the_disk_has_changed_is_unknown),
        cmocka_unit_test(hints_whose_checksums_fit_nonsense_are_not_believed),
        cmocka_unit_test(a_hint_that_leads_behind_its_end_is_not_believed),
        cmocka_unit_test(epochs_stay_raised_when_what_raised_them_is_gone),
        cmocka_unit_test(a_frame_that_says_what_cannot_be_is_refused_by_name),
        cmocka_unit_test(expired_segments_go_into_the_archive_and_long_lived_records_move),
        cmocka_unit_test(full_stores_refuse_claims_only_and_recover),
        cmocka_unit_test(parents_are_made_only_where_that_is_asked_for),
        cmocka_unit_test(a_start_that_cannot_sync_what_it_read_is_refused),
        cmocka_unit_test(the_next_segment_is_prepared_past_the_page_cache),
        cmocka_unit_test(a_segment_that_is_half_prepared_is_gone_with_the_store),
        cmocka_unit_test(orphans_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
