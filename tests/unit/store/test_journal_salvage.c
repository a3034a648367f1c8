/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are missing, damage that is passed over: nothing opens in silence that has lost something, and what a
 * salvage says is true. */
#include "journal_files.h"

#include "base/check.h"
#include "base/log.h"
#include "store/journal/segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

typedef struct {
    char text[4096];
} sentences;

static void note(void *context, const char *sentence)
{
    sentences *s = context;
    size_t len = strlen(s->text);
    (void)snprintf(s->text + len, sizeof s->text - len, "%s\n", sentence);
}

/* To be read, until bench_close. */
static bool salvage(bench *b, sentences *s, hx_salvage *found)
{
    hx_error_text error = "";
    s->text[0] = '\0';
    *found = (hx_salvage){.report = note, .context = s};
    b->store = hx_journal_salvage(hx_slice_of(b->directory), found, error);
    if (!b->store) print_message("%s\n", error);
    if (!b->store) return false;
    b->loop = hx_loop_new();
    hx_store_attach(b->store, b->loop);
    return true;
}

static void what_is_damaged_is_passed_over_and_counted(void **state)
{
    (void)state;
    bench b;
    sentences s;
    hx_salvage found;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 100; i++) complete(&b, i, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    assert_true(salvage(&b, &s, &found));
    assert_int_equal(found.lost + found.places + found.answers, 0);
    uint64_t last = last_epoch(&b);
    bench_close(&b);
    remove_files(&b, ".hint");
    for (int i = 0; i < 40; i++) flip(&b, "00000002.seg", 5000 + 16 * i, 0x80); /* a few records in the middle */
    flip(&b, "00000004.seg", 30, 0x01);                                         /* a head */
    assert_int_equal(unlink(path_in(&b, "00000006.seg")), 0);                   /* a whole segment */
    refuses(&b, "`hapax store salvage");
    uint64_t before = sum_directory(b.directory);
    assert_true(salvage(&b, &s, &found));
    assert_non_null(strstr(s.text, "00000002.seg: "));
    assert_non_null(strstr(s.text, "00000006.seg is missing"));
    assert_null(strstr(s.text, "not known"));
    assert_true(found.lost > 2 && found.places == 0);
    unsigned kept = 0;
    for (uint64_t i = 0; i < 100; i++) {
        hx_state now = peek(&b, op_of(i), NULL);
        assert_true(now == HX_COMPLETED || now == HX_PROCESSING || now == HX_ABSENT);
        kept += now == HX_COMPLETED;
    }
    assert_true(kept > 70 && kept < 100);
    assert_true(last_epoch(&b) == last);
    bench_close(&b);
    assert_true(sum_directory(b.directory) == before);
    remove_directory(b.directory);
    hx_arena_free(&b.arena);
}

static void a_release_with_a_loss_behind_it_is_unknown(void **state)
{
    (void)state;
    bench b;
    sentences s;
    hx_salvage found;
    hx_record r, got;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 100; i++) {
        complete(&b, i, HX_COMPLETED, HX_DAY);
        if (i != 0 && i != 99) continue;
        r = record_of(1000 + i);
        assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_OK);
        assert_int_equal(settle(&b, &r, HX_ABSENT, NULL), HX_STORE_OK);
    }
    bench_close(&b);
    assert_true(salvage(&b, &s, &found));
    assert_int_equal(peek(&b, op_of(1000), NULL), HX_ABSENT);
    bench_close(&b);
    assert_int_equal(unlink(path_in(&b, "00000003.seg")), 0);
    assert_true(salvage(&b, &s, &found));
    assert_int_equal(peek(&b, op_of(1000), &got), HX_UNKNOWN); /* it may have been claimed again there */
    assert_true(got.created_at > 0 && hx_slice_eq(got.reason, HX_LIT("salvaged")));
    assert_int_equal(peek(&b, op_of(1099), NULL), HX_ABSENT);
    bench_close(&b);
    remove_directory(b.directory);
    hx_arena_free(&b.arena);
}

/* Keys from 0 to `count` - 1, of which the first are over and archived with their segments. */
static void make_aged(bench *b, uint64_t count)
{
    bench_begin(b, "journal", small);
    for (uint64_t i = 0; i < 60; i++) complete(b, 1000 + i, HX_COMPLETED, HX_HOUR);
    test_now += HX_DAY;
    assert_int_equal(sweep(b), 60);
    for (uint64_t i = 0; i < count; i++) complete(b, i, HX_COMPLETED, 100 * HX_DAY);
    bench_close(b);
    assert_true(count_files(b, ".audit") > 0 && count_files(b, ".hint") > 2 && count_files(b, ".seg") > 3);
}

static unsigned count_known(bench *b, uint64_t count)
{
    unsigned known = 0;
    for (uint64_t i = 0; i < count; i++) {
        hx_record found;
        hx_state now = peek(b, op_of(i), &found);
        assert_true(now == HX_COMPLETED || now == HX_UNKNOWN || now == HX_ABSENT);
        if (now == HX_COMPLETED) assert_true(hx_slice_eq(found.answer.body, HX_LIT("an answer")));
        known += now == HX_COMPLETED;
    }
    return known;
}

static size_t list_files(const bench *b, char names[][32], size_t max)
{
    size_t count = 0;
    DIR *dir = opendir(b->directory);
    for (struct dirent *item; (item = readdir(dir));) {
        if (item->d_type != DT_REG) continue;
        assert_true(count < max);
        (void)snprintf(names[count++], 32, "%.31s", item->d_name);
    }
    closedir(dir);
    return count;
}

/* What is lost is said, and nothing is changed. */
static void a_salvage_tells_the_truth(bench *b, uint64_t count)
{
    sentences s;
    hx_salvage found;
    uint64_t before = sum_directory(b->directory);
    assert_true(salvage(b, &s, &found));
    if (count_known(b, count) < count) assert_true(found.lost + found.places > 0 && s.text[0]);
    bench_close(b);
    assert_true(sum_directory(b->directory) == before);
}

static void a_file_that_is_removed_is_named_or_harmless(void **state)
{
    (void)state;
    enum { KEYS = 60, FILES = 64 };
    static char names[FILES][32];
    bench b, hurt;
    char url[128];
    hx_error_text error;
    make_aged(&b, KEYS);
    size_t files = list_files(&b, names, FILES);
    hurt = (bench){.backend = b.backend, .options = b.options};
    new_directory(hurt.directory);
    (void)snprintf(url, sizeof url, "journal:%s", hurt.directory);
    unsigned refused = 0;
    for (size_t i = 0; i < files; i++) {
        remove_directory(hurt.directory);
        copy_directory(b.directory, hurt.directory);
        assert_int_equal(unlink(path_in(&hurt, names[i])), 0);
        uint64_t before = sum_directory(hurt.directory);
        hurt.store = hx_store_open(hx_slice_of(url), &hurt.options, error);
        if (!hurt.store) {
            if (!strstr(error, names[i])) fail_msg("without %s: %s", names[i], error);
            assert_true(sum_directory(hurt.directory) == before);
            refused++;
            if (strcmp(names[i], "secret") != 0) a_salvage_tells_the_truth(&hurt, KEYS);
            continue;
        }
        assert_false(hx_slice_ends(hx_slice_of(names[i]), HX_LIT(".seg")));
        hurt.loop = hx_loop_new();
        hx_store_attach(hurt.store, hurt.loop);
        assert_int_equal(count_known(&hurt, KEYS), KEYS);
        bench_close(&hurt);
    }
    assert_int_equal(refused, count_files(&b, ".seg") + 3); /* FORMAT, secret, segments */
    hx_arena_free(&hurt.arena);
    remove_directory(hurt.directory);
    bench_open(&b);
    bench_end(&b);
}

static void a_young_store_without_its_first_segment_has_lost_it(void **state)
{
    (void)state;
    sentences s;
    hx_salvage found;
    for (int without = 0; without < 2; without++) {
        bench b;
        bench_begin(&b, "journal", small);
        complete(&b, 1, HX_COMPLETED, HX_DAY);
        while (access(path_in(&b, "00000002.seg"), F_OK) != 0) hx_loop_turn(b.loop, 10); /* in background */
        bench_close(&b);
        if (without) assert_int_equal(unlink(path_in(&b, "segments")), 0);
        remove_files(&b, ".hint");
        assert_int_equal(unlink(path_in(&b, "00000001.seg")), 0);
        refuses(&b, "`hapax store salvage");
        assert_true(salvage(&b, &s, &found));
        assert_non_null(strstr(s.text, "00000001.seg is missing"));
        assert_true(found.places > 0);
        assert_int_equal(peek(&b, op_of(1), NULL), HX_ABSENT);
        bench_close(&b);
        remove_directory(b.directory);
        hx_arena_free(&b.arena);
    }
}

static void a_path_is_not_taken_for_a_newer_format(void **state)
{
    (void)state;
    bench b;
    sentences s;
    hx_salvage found;
    bench_begin(&b, "journal", small);
    complete(&b, 1, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    char moved[64];
    (void)snprintf(moved, sizeof moved, "%.50s.newer", b.directory);
    assert_int_equal(rename(b.directory, moved), 0);
    memcpy(b.directory, moved, sizeof moved);
    assert_int_equal(unlink(path_in(&b, "FORMAT")), 0);
    assert_true(salvage(&b, &s, &found));
    assert_int_equal(found.lost + found.places, 0);
    assert_int_equal(peek(&b, op_of(1), NULL), HX_COMPLETED);
    bench_close(&b);
    write_text(&b, "FORMAT", "hapax journal 4\nfuture\n");
    assert_false(salvage(&b, &s, &found));
    remove_directory(b.directory);
    hx_arena_free(&b.arena);
}

/* Behind the last frame, where a frame that can't be read would pass for a torn one. */
static void append_frame(const bench *b, uint8_t kind, bool is_torn)
{
    static const char payload[24] = "of a later version";
    hx_scan scan;
    hx_frame last;
    hx_segment_head head;
    int fd = open(path_in(b, "00000001.seg"), O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
    hx_tail tail = {.segment = 1, .offset = sizeof head, .sequence = head.sequence, .hash = head.previous};
    assert_true(hx_scan_begin(&scan, fd, 1, head.generation));
    while (hx_scan_next(&scan, &tail, &last) == HX_SCAN_FRAME) {}
    hx_scan_end(&scan);
    hx_frame_head frame = {.length = sizeof frame + sizeof payload,
                           .sequence = tail.sequence,
                           .synced = tail.sequence,
                           .stamp = tail.stamp,
                           .segment = 1,
                           .kind = kind,
                           .previous = tail.hash};
    hx_frame_seal(&frame, head.generation, (hx_slice){payload, sizeof payload});
    frame.crc += is_torn;
    assert_int_equal(pwrite(fd, &frame, sizeof frame, (off_t)tail.offset), sizeof frame);
    assert_int_equal(pwrite(fd, payload, sizeof payload, (off_t)(tail.offset + sizeof frame)), sizeof payload);
    close(fd);
}

static void a_frame_of_an_unknown_kind_is_refused_by_name_and_a_torn_one_is_cut(void **state)
{
    (void)state;
    bench b;
    sentences s;
    hx_salvage found;
    bench_begin(&b, "journal", small);
    (void)complete(&b, 1, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    remove_files(&b, ".hint");
    append_frame(&b, 9, true);
    bench_open(&b);
    assert_int_equal(peek(&b, op_of(1), NULL), HX_COMPLETED);
    bench_close(&b);
    append_frame(&b, 9, false);
    refuses(&b, "a frame of kind 9");
    assert_false(salvage(&b, &s, &found));
    remove_directory(b.directory);
    hx_arena_free(&b.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_damaged_is_passed_over_and_counted),
        cmocka_unit_test(a_release_with_a_loss_behind_it_is_unknown),
        cmocka_unit_test(a_file_that_is_removed_is_named_or_harmless),
        cmocka_unit_test(a_young_store_without_its_first_segment_has_lost_it),
        cmocka_unit_test(a_path_is_not_taken_for_a_newer_format),
        cmocka_unit_test(a_frame_of_an_unknown_kind_is_refused_by_name_and_a_torn_one_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
