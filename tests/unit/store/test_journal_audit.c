/* SPDX-License-Identifier: Apache-2.0 */
/* The audit of a journal: what it shows, what it finds when someone has changed it, and what retention leaves. */
#include "journal_files.h"

#include "store/audit/audit.h"
#include "store/journal/segment.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define RETENTION (10 * HX_DAY)

static bench b;
static char first_problem[512];
static uint64_t rows_of_one;

static void problem(void *context, const char *sentence)
{
    (void)context;
    if (!first_problem[0]) (void)snprintf(first_problem, sizeof first_problem, "%s", sentence);
}

static void row(void *context, const hx_record *record, uint64_t sequence)
{
    (void)context;
    hx_op one = op_of(7);
    assert_true(sequence > 0 && record->changed_at > 0);
    if (hx_op_eq(&record->op, &one)) rows_of_one++;
}

static hx_audit audit(const hx_audit_anchor *anchor)
{
    hx_audit read = {.row = row, .problem = problem, .anchor = anchor};
    hx_error_text error;
    char url[256];
    (void)snprintf(url, sizeof url, "journal:%s", b.directory);
    first_problem[0] = '\0';
    rows_of_one = 0;
    if (!hx_audit_read(hx_slice_of(url), &read, error)) fail_msg("%s", error);
    return read;
}

static void is_whole(void)
{
    hx_audit read = audit(NULL);
    if (read.problems > 0) fail_msg("%s", first_problem);
}

/* The audit names one place, with these words. */
static void finds(const char *words, const hx_audit_anchor *anchor)
{
    hx_audit read = audit(anchor);
    if (!strstr(first_problem, words)) fail_msg("\"%s\" is not in \"%s\"", words, first_problem);
    assert_int_equal(read.problems, 1);
}

/* Six days on which 60 operations are executed; those of the first days are in the archive. */
static void fill(hx_ms retention, int days)
{
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = SEGMENT, .audit_retention = retention});
    for (int day = 0; day < days; day++) {
        for (uint64_t i = 0; i < 60; i++) (void)complete(&b, i, HX_COMPLETED, HX_DAY);
        test_now += 2 * HX_DAY;
        (void)sweep(&b);
    }
}

static char *read_whole(const char *name, size_t *len)
{
    FILE *f = fopen(path_in(&b, name), "rb");
    assert_non_null(f);
    char *bytes = malloc(1 << 20);
    *len = fread(bytes, 1, 1 << 20, f);
    (void)fclose(f);
    return bytes;
}

static void write_whole(const char *name, const char *bytes, size_t len)
{
    FILE *f = fopen(path_in(&b, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    (void)fclose(f);
}

/* Where the frames of an archive begin, with its end. */
static unsigned frames_of(const char *name, uint64_t offsets[], unsigned max)
{
    int fd = open(path_in(&b, name), O_RDONLY);
    hx_segment_head head;
    hx_scan scan;
    hx_frame frame;
    unsigned count = 0;
    assert_true(fd >= 0 && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head);
    assert_true(hx_scan_begin(&scan, fd, head.segment, head.generation));
    scan.trusted = scan.bare = true;
    hx_tail tail = {.offset = sizeof head, .sequence = head.sequence};
    do {
        assert_true(count < max);
        offsets[count++] = tail.offset;
    } while (hx_scan_next(&scan, &tail, &frame) == HX_SCAN_FRAME);
    hx_scan_end(&scan);
    close(fd);
    return count - 1;
}

static void every_change_of_state_is_a_row(void **state)
{
    (void)state;
    fill(HX_AUDIT_FOREVER, 6);
    hx_audit read = audit(NULL); /* while the store is open */
    assert_int_equal(read.problems, 0);
    assert_int_equal(read.rows, 2 * 6 * 60);
    assert_int_equal(rows_of_one, 2 * 6);
    assert_int_equal(read.kept_from, 1);
    assert_true(read.last_at > read.first_at + 9 * HX_DAY && read.last_at < test_now);
    bench_close(&b);
    assert_true(count_files(&b, ".audit") > 4);
    hx_audit closed = audit(&read.head);
    assert_int_equal(closed.problems, 0);
    assert_int_equal(closed.rows, read.rows);
    bench_open(&b);
    is_whole();
    bench_end(&b);
}

static void a_flipped_byte_is_named(void **state)
{
    (void)state;
    fill(HX_AUDIT_FOREVER, 6);
    bench_close(&b);
    size_t len;
    char *bytes = read_whole("00000002.audit", &len);
    for (size_t at = 0; at < len; at += 13) { /* a step that meets every field sooner or later */
        bytes[at] ^= 0x10;
        write_whole("00000002.audit", bytes, len);
        hx_audit read = audit(NULL);
        bool is_padding = read.problems == 0; /* zeros up to the next frame belong to no record */
        if (!is_padding && !strstr(first_problem, "00000002.audit")) fail_msg("byte %zu: %s", at, first_problem);
        if (is_padding) assert_true((bytes[at] ^ 0x10) == 0 && at % 16 != 0);
        bytes[at] ^= 0x10;
    }
    write_whole("00000002.audit", bytes, len);
    free(bytes);
    is_whole();
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, count_files(&b, ".audit") + 1, ".seg");
    bytes = read_whole(name, &len);
    char *body = memmem(bytes, len, "an answer", 9);
    assert_non_null(body);
    flip(&b, name, body - bytes, 1);
    finds("the response or contents", NULL);
    free(bytes);
    bench_open(&b);
    bench_end(&b);
}

/* A change with the right checksum shows in the chain. */
static void a_forged_record_is_named(void **state)
{
    (void)state;
    fill(HX_AUDIT_FOREVER, 6);
    bench_close(&b);
    uint64_t at[512];
    size_t len;
    unsigned count = frames_of("00000002.audit", at, 512);
    char *bytes = read_whole("00000002.audit", &len);
    hx_frame_head head;
    hx_segment_head segment;
    memcpy(&segment, bytes, sizeof segment);
    unsigned forged = count / 2;
    memcpy(&head, bytes + at[forged], sizeof head);
    while (head.kind != HX_FRAME_SYNCED) memcpy(&head, bytes + at[++forged], sizeof head);
    head.stamp -= HX_HOUR;
    hx_frame_seal(&head, segment.generation, HX_EMPTY);
    memcpy(bytes + at[forged], &head, sizeof head);
    write_whole("00000002.audit", bytes, len);
    finds("isn't the successor of the one before it", NULL);
    free(bytes);
    bench_open(&b);
    bench_end(&b);
}

static void removed_and_swapped_rows_are_named(void **state)
{
    (void)state;
    fill(HX_AUDIT_FOREVER, 6);
    bench_close(&b);
    uint64_t at[512];
    size_t len;
    char expected[64];
    unsigned count = frames_of("00000003.audit", at, 512);
    assert_true(count > 20);
    char *bytes = read_whole("00000003.audit", &len), *changed = malloc(len);
    hx_segment_head head;
    memcpy(&head, bytes, sizeof head);

    size_t removed = at[10] - at[9];
    memcpy(changed, bytes, at[9]);
    memcpy(changed + at[9], bytes + at[10], len - at[10]);
    write_whole("00000003.audit", changed, len - removed);
    (void)snprintf(expected, sizeof expected, "records %u to %u before it are missing", (unsigned)head.sequence + 9,
                   (unsigned)head.sequence + 9);
    finds(expected, NULL);

    size_t first = at[6] - at[5], second = at[7] - at[6];
    memcpy(changed, bytes, len);
    memcpy(changed + at[5], bytes + at[6], second);
    memcpy(changed + at[5] + second, bytes + at[5], first);
    write_whole("00000003.audit", changed, len);
    (void)snprintf(expected, sizeof expected, "records %u and %u are swapped", (unsigned)head.sequence + 5,
                   (unsigned)head.sequence + 6);
    finds(expected, NULL);

    write_whole("00000003.audit", bytes, at[count - 3]); /* its end, and the next file goes on */
    finds("00000004.audit: records", NULL);
    write_whole("00000003.audit", bytes, len);
    is_whole();
    free(bytes);
    free(changed);
    bench_open(&b);
    bench_end(&b);
}

static void removed_files_are_named(void **state)
{
    (void)state;
    fill(HX_AUDIT_FOREVER, 6);
    bench_close(&b);
    size_t len;
    const char *const names[] = {"00000001.audit", "00000003.audit"};
    for (size_t i = 0; i < 2; i++) {
        char *bytes = read_whole(names[i], &len);
        assert_int_equal(unlink(path_in(&b, names[i])), 0);
        finds("before it are missing", NULL);
        write_whole(names[i], bytes, len);
        free(bytes);
    }
    is_whole();
    uint32_t last = count_files(&b, ".audit") + count_files(&b, ".seg");
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, last, ".seg");
    assert_int_equal(unlink(path_in(&b, name)), 0);
    finds("the end of the log may be cut off", NULL);
    remove_files(&b, ".audit"); /* everything that happened before */
    (void)audit(NULL);
    assert_non_null(strstr(first_problem, "records 1 to"));
    hx_arena_free(&b.arena);
    remove_directory(b.directory);
}

static void a_tail_that_was_cut_off_differs_from_the_anchor(void **state)
{
    (void)state;
    char copy[64];
    fill(HX_AUDIT_FOREVER, 2);
    bench_close(&b);
    new_directory(copy);
    copy_directory(b.directory, copy);
    bench_open(&b);
    (void)complete(&b, 1000, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    hx_audit_anchor anchor = audit(NULL).head;
    hx_audit read = audit(&anchor);
    assert_int_equal(read.problems, 0);

    copy_directory(copy, b.directory); /* the state of before: by itself it is whole */
    is_whole();
    finds("its end was cut off", &anchor);
    for (int i = 0; i < 3; i++) { /* and after something else was done instead */
        bench_open(&b);
        (void)complete(&b, 2000, HX_COMPLETED, HX_SECOND);
        test_now += HX_DAY;
        (void)sweep(&b);
        bench_close(&b);
    }
    is_whole();
    finds("isn't the one of the anchor", &anchor);
    bench_open(&b);
    bench_end(&b);
    remove_directory(copy);
}

static void retention_leaves_a_checkpoint(void **state)
{
    (void)state;
    fill(RETENTION, 20);
    bench_close(&b);
    assert_int_equal(access(path_in(&b, "00000001.audit"), F_OK), -1);
    hx_audit read = audit(NULL);
    if (read.problems > 0) fail_msg("%s", first_problem);
    assert_true(read.kept_from > 100);
    assert_in_range(test_now - read.first_at, RETENTION, RETENTION + 6 * HX_DAY);
    hx_audit_anchor old = {.sequence = 1};
    finds("is no longer kept", &old);

    char name[HX_SEGMENT_NAME_BYTES]; /* what retention has not removed may not be missing */
    for (uint32_t n = 1;; n++) {
        hx_segment_name(name, n, ".audit");
        if (unlink(path_in(&b, name)) == 0) break;
    }
    finds("before it are missing", NULL);
    bench_open(&b);
    bench_end(&b);
}

/* A crash may come after the checkpoint and before, or while, the files are removed. */
static void files_that_a_crash_has_left_are_removed(void **state)
{
    (void)state;
    char copy[64];
    fill(HX_AUDIT_FOREVER, 20);
    bench_close(&b);
    unsigned before = count_files(&b, ".audit");
    new_directory(copy);
    copy_directory(b.directory, copy);
    b.options.audit_retention = RETENTION;
    bench_open(&b);
    (void)sweep(&b);
    bench_close(&b);
    is_whole();
    unsigned kept = count_files(&b, ".audit");
    assert_true(kept > 0 && kept < before);
    char from[128], to[128], name[HX_SEGMENT_NAME_BYTES];
    for (uint32_t n = 2; n < 8; n += 2) { /* some are still there, in no order */
        hx_segment_name(name, n, ".audit");
        (void)snprintf(from, sizeof from, "%s/%s", copy, name);
        (void)snprintf(to, sizeof to, "%s", path_in(&b, name));
        assert_int_equal(rename(from, to), 0);
    }
    is_whole();
    bench_open(&b);
    (void)sweep(&b);
    bench_close(&b);
    is_whole();
    assert_int_equal(count_files(&b, ".audit"), kept);
    bench_open(&b);
    bench_end(&b);
    remove_directory(copy);
}

static void archives_that_an_operator_moved_away_are_skipped(void **state)
{
    (void)state;
    fill(HX_AUDIT_FOREVER, 20);
    bench_close(&b);
    for (uint32_t n = 1; n < 6; n++) {
        char name[HX_SEGMENT_NAME_BYTES];
        hx_segment_name(name, n, ".audit");
        assert_int_equal(unlink(path_in(&b, name)), 0);
    }
    finds("records 1 to", NULL);
    b.options.audit_retention = RETENTION;
    bench_open(&b);
    (void)sweep(&b);
    bench_close(&b);
    is_whole(); /* they are older than the checkpoint */
    bench_open(&b);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_change_of_state_is_a_row),
        cmocka_unit_test(a_flipped_byte_is_named),
        cmocka_unit_test(a_forged_record_is_named),
        cmocka_unit_test(removed_and_swapped_rows_are_named),
        cmocka_unit_test(removed_files_are_named),
        cmocka_unit_test(a_tail_that_was_cut_off_differs_from_the_anchor),
        cmocka_unit_test(retention_leaves_a_checkpoint),
        cmocka_unit_test(files_that_a_crash_has_left_are_removed),
        cmocka_unit_test(archives_that_an_operator_moved_away_are_skipped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
