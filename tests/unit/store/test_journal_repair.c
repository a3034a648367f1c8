/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are missing, damage that is repaired: nothing opens in silence that has lost something, and what a repair
 * says is true. */
#include "journal_files.h"

#include "base/check.h"
#include "base/log.h"

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

static bool repair(const bench *b, sentences *s)
{
    char error[HX_STORE_ERROR_BYTES] = "";
    s->text[0] = '\0';
    bool ok = hx_journal_repair(hx_slice_of(b->directory), note, s, error);
    if (!ok) print_message("%s\n", error);
    return ok;
}

static void a_repair_skips_what_is_damaged_and_says_so(void **state)
{
    (void)state;
    bench b;
    sentences s;
    bench_begin(&b, "journal", small);
    for (uint64_t i = 0; i < 100; i++) complete(&b, i, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    assert_true(repair(&b, &s));
    assert_non_null(strstr(s.text, "no record is lost"));
    remove_files(&b, ".hint");
    for (int i = 0; i < 40; i++) flip(&b, "00000002.seg", 5000 + 16 * i, 0x80); /* a few records in the middle */
    flip(&b, "00000004.seg", 30, 0x01);                                         /* a head */
    assert_int_equal(unlink(path_in(&b, "00000006.seg")), 0);                   /* a whole segment */
    refuses(&b, "`hapax store repair");
    assert_true(repair(&b, &s));
    assert_non_null(strstr(s.text, "records are lost in 2 places"));
    assert_non_null(strstr(s.text, "00000006.seg is missing"));
    assert_non_null(strstr(s.text, "damaged/00000002.seg.1 is a copy"));
    assert_int_equal(access(path_in(&b, "damaged/00000002.seg.1"), F_OK), 0);
    for (int round = 0; round < 2; round++) {
        bench_open(&b);
        unsigned kept = 0;
        for (uint64_t i = 0; i < 100; i++) {
            hx_state found = peek(&b, op_of(i), NULL);
            assert_true(found == HX_COMPLETED || found == HX_UNKNOWN || found == HX_ABSENT);
            kept += found == HX_COMPLETED;
        }
        assert_true(kept > 70 && kept < 100);
        complete(&b, 500 + (uint64_t)round, HX_COMPLETED, HX_DAY);
        bench_close(&b);
    }
    assert_true(repair(&b, &s));
    assert_int_equal(unlink(path_in(&b, "FORMAT")), 0);
    assert_true(repair(&b, &s));
    bench_open(&b);
    assert_int_equal(peek(&b, op_of(501), NULL), HX_COMPLETED);
    bench_end(&b);
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

/* What a repair says of lost records is what a start finds; and what it calls openable, opens. */
static void a_repair_tells_the_truth(bench *b, uint64_t count)
{
    sentences s;
    assert_true(repair(b, &s));
    bench_open(b);
    bool all = count_known(b, count) == count;
    if (!all) assert_null(strstr(s.text, "no record is lost"));
    if (!all) assert_non_null(strstr(s.text, "those keys may run again"));
    uint64_t epoch = complete(b, 5000, HX_COMPLETED, HX_DAY).epoch;
    bench_restart(b);
    assert_int_equal(peek(b, op_of(5000), NULL), HX_COMPLETED);
    assert_true(complete(b, 5001, HX_COMPLETED, HX_DAY).epoch > epoch);
    bench_close(b);
}

static void a_file_that_is_removed_is_named_or_harmless(void **state)
{
    (void)state;
    enum { KEYS = 60, FILES = 64 };
    static char names[FILES][32];
    bench b, hurt;
    char url[128], error[HX_STORE_ERROR_BYTES];
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
            if (strcmp(names[i], "secret") != 0) a_repair_tells_the_truth(&hurt, KEYS);
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

/* Names of the lowest and the highest segment. */
static void find_ends(const bench *b, char first[32], char last[32])
{
    char names[64][32];
    size_t files = list_files(b, names, 64);
    first[0] = last[0] = '\0';
    for (size_t i = 0; i < files; i++) {
        if (!hx_slice_ends(hx_slice_of(names[i]), HX_LIT(".seg"))) continue;
        if (!first[0] || strcmp(names[i], first) < 0) (void)snprintf(first, 32, "%s", names[i]);
        if (strcmp(names[i], last) > 0) (void)snprintf(last, 32, "%s", names[i]);
    }
}

static void make_old_format(const bench *b)
{
    FILE *f = fopen(path_in(b, "FORMAT"), "r+");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)strlen("hapax journal "), SEEK_SET), 0);
    (void)fputc('1', f);
    (void)fclose(f);
    assert_int_equal(unlink(path_in(b, "segments")), 0);
}

static void stores_of_the_old_format_open_unless_a_segment_is_seen_to_be_missing(void **state)
{
    (void)state;
    bench b, hurt;
    char first[32], last[32];
    make_aged(&b, 60);
    make_old_format(&b);
    hurt = (bench){.backend = b.backend, .options = b.options};
    new_directory(hurt.directory);
    copy_directory(b.directory, hurt.directory);
    find_ends(&hurt, first, last);
    assert_int_equal(unlink(path_in(&hurt, first)), 0); /* .audit tells */
    refuses(&hurt, first);
    a_repair_tells_the_truth(&hurt, 60);
    remove_directory(hurt.directory);
    copy_directory(b.directory, hurt.directory);
    assert_int_equal(unlink(path_in(&hurt, last)), 0); /* a spare */
    find_ends(&hurt, first, last);
    assert_int_equal(unlink(path_in(&hurt, last)), 0); /* the one in use, whose hint tells */
    refuses(&hurt, last);
    a_repair_tells_the_truth(&hurt, 60);
    remove_directory(hurt.directory);
    hx_arena_free(&hurt.arena);
    for (int round = 0; round < 2; round++) {
        bench_open(&b);
        assert_int_equal(count_known(&b, 60), 60);
        bench_close(&b);
    }
    assert_int_equal(access(path_in(&b, "segments"), F_OK), 0);
    find_ends(&b, first, last);
    assert_int_equal(unlink(path_in(&b, last)), 0);
    refuses(&b, last);
    remove_directory(b.directory);
    hx_arena_free(&b.arena);
}

static void a_young_store_without_its_first_segment_can_be_repaired(void **state)
{
    (void)state;
    sentences s;
    for (int old = 0; old < 2; old++) {
        bench b;
        bench_begin(&b, "journal", small);
        complete(&b, 1, HX_COMPLETED, HX_DAY);
        while (access(path_in(&b, "00000002.seg"), F_OK) != 0) hx_loop_turn(b.loop, 10); /* the keeper makes it */
        bench_close(&b);
        if (old) make_old_format(&b);
        remove_files(&b, ".hint");
        assert_int_equal(unlink(path_in(&b, "00000001.seg")), 0);
        refuses(&b, "`hapax store repair");
        assert_true(repair(&b, &s));
        assert_non_null(strstr(s.text, "00000001.seg is missing"));
        assert_null(strstr(s.text, "no record is lost"));
        bench_open(&b);
        assert_int_equal(peek(&b, op_of(1), NULL), HX_ABSENT);
        complete(&b, 1, HX_COMPLETED, HX_DAY);
        bench_restart(&b);
        assert_int_equal(peek(&b, op_of(1), NULL), HX_COMPLETED);
        bench_end(&b);
    }
}

static void a_path_is_not_taken_for_a_newer_format(void **state)
{
    (void)state;
    bench b;
    sentences s;
    bench_begin(&b, "journal", small);
    complete(&b, 1, HX_COMPLETED, HX_DAY);
    bench_close(&b);
    char moved[64];
    (void)snprintf(moved, sizeof moved, "%.50s.newer", b.directory);
    assert_int_equal(rename(b.directory, moved), 0);
    memcpy(b.directory, moved, sizeof moved);
    assert_int_equal(unlink(path_in(&b, "FORMAT")), 0);
    assert_true(repair(&b, &s));
    bench_open(&b);
    assert_int_equal(peek(&b, op_of(1), NULL), HX_COMPLETED);
    bench_close(&b);
    write_text(&b, "FORMAT", "hapax journal 3\nfuture\n");
    assert_false(repair(&b, &s));
    remove_directory(b.directory);
    hx_arena_free(&b.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repair_skips_what_is_damaged_and_says_so),
        cmocka_unit_test(a_file_that_is_removed_is_named_or_harmless),
        cmocka_unit_test(stores_of_the_old_format_open_unless_a_segment_is_seen_to_be_missing),
        cmocka_unit_test(a_young_store_without_its_first_segment_can_be_repaired),
        cmocka_unit_test(a_path_is_not_taken_for_a_newer_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
