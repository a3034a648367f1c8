/* SPDX-License-Identifier: Apache-2.0 */
/* Items in the journal's files: their bytes, and what torn, damaged, dropped and moved frames leave of them. */
#include "journal_files.h"

#include "store/journal/item_frame.h"

#include "base/crc32c.h"
#include "base/log.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define OK HX_STORE_OK
#define BODY "CONTENTS-OF-A-BODY"

static atomic_bool syncs_wait;
static atomic_uint syncs;

/* Instead of libc's: begins when it is let. */
int fdatasync(int fd)
{
    atomic_fetch_add(&syncs, 1);
    while (atomic_load(&syncs_wait)) (void)sched_yield();
    return (int)syscall(SYS_fdatasync, fd);
}

static uint64_t put(bench *b, const char *key, uint64_t version, const char *meta)
{
    uint64_t written;
    hx_item item = item_of(key, version, meta);
    item.body = HX_LIT(BODY);
    assert_int_equal(commit_items(b, &item, 1, false, &written), OK);
    return written;
}

static uint64_t version_of(bench *b, const char *key)
{
    hx_item found;
    assert_int_equal(get_item(b, key, &found), OK);
    return found.version;
}

static void assert_item(bench *b, const char *key, uint64_t version, const char *meta)
{
    hx_item found;
    assert_int_equal(get_item(b, key, &found), OK);
    assert_int_equal(found.version, version);
    assert_true(hx_slice_eq(found.meta, hx_slice_of(meta)));
    assert_true(hx_slice_eq(found.body, HX_LIT(BODY)));
}

/* Writes until so many segments were begun. */
static void fill_segments(bench *b, unsigned segments)
{
    static char body[4000];
    char name[HX_SEGMENT_NAME_BYTES];
    hx_segment_name(name, segments, ".seg");
    for (int i = 0; i < 1000; i++) {
        hx_item found, filler = item_of("filler", 0, "x");
        assert_int_equal(get_item(b, "filler", &found), OK);
        filler.version = found.version;
        filler.body = (hx_slice){body, sizeof body};
        assert_int_equal(commit_items(b, &filler, 1, false, NULL), OK);
        hx_segment_head head = {0};
        int fd = open(path_in(b, name), O_RDONLY | O_CLOEXEC);
        ssize_t got = fd < 0 ? 0 : pread(fd, &head, sizeof head, 0);
        if (fd >= 0) close(fd);
        hx_arena_free(&b->arena);
        if (got == (ssize_t)sizeof head && head.segment == segments) return;
    }
    fail_msg("the log doesn't grow");
}

static void reseal_table(char *payload, size_t table_len)
{
    uint32_t crc = hx_crc32c(0, (hx_slice){payload, table_len - 4});
    memcpy(payload + table_len - 4, &crc, sizeof crc);
}

static void what_was_changed_in_a_frame_is_noticed(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_item items[] = {item_of("a", 0, "meta of a"), item_of("b", 3, NULL), item_of("c", 0, ""), item_of("d", 9, "")};
    items[0].queue = HX_LIT("due/x");
    items[0].body = HX_LIT("a body");
    items[3].act = HX_ITEM_CHECK;
    hx_slice payload = hx_item_frame_encode(items, 4, false, &arena);
    size_t table_len = hx_item_frame_table_len(payload.ptr, payload.len);
    char *bytes = hx_arena_alloc(&arena, payload.len);
    hx_slice copy = {bytes, payload.len}, table = {bytes, table_len};
    hx_frame_head frame = {.length = (uint32_t)(sizeof frame + payload.len), .sequence = 7};
    assert_int_equal(hx_item_table_count(payload), 3);
    for (size_t at = 0; at <= payload.len; at++) {
        memcpy(bytes, payload.ptr, payload.len);
        if (at < payload.len) bytes[at] ^= 0x10;
        bool is_whole = hx_item_table_is_whole(table), is_possible = hx_item_table_is_possible(table, &frame, false);
        assert_int_equal(is_whole, at >= table_len);
        if (is_whole) assert_true(is_possible);
        if (is_whole) assert_int_equal(hx_item_contents_are_whole(copy, table_len), at == payload.len);
    }
    const struct {
        size_t at;
        char value;
    } impossible[] = {{4, 2},       {4, 4},       {8, 2},       {8 + 2, 0}, {8 + 20, 1},     {8 + 24, 1},
                      {8 + 39, -1}, {8 + 47, -1}, {8 + 4, 100}, {8 + 7, 1}, {8 + 48 + 6, 2}, {8 + 48 + 6 + 4, 1}};
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
        memcpy(bytes, payload.ptr, payload.len);
        bytes[impossible[i].at] = impossible[i].value;
        reseal_table(bytes, table_len);
        assert_true(hx_item_table_is_whole(table));
        if (hx_item_table_is_possible(table, &frame, false)) fail_msg("case %zu", i);
    }
    assert_false(hx_item_table_is_possible((hx_slice){payload.ptr, table_len}, &frame, true)); /* it has no versions */
    hx_arena_free(&arena);
}

/* So that it tells the frame from a torn one, and refuses the store. */
static void a_version_without_items_finds_the_checksum_where_it_looks(void **state)
{
    (void)state;
    static char body[5000], payload[HX_RECORD_HEAD_MAX];
    for (size_t len = 0; len <= sizeof body; len += sizeof body) {
        bench b;
        bench_begin(&b, "journal", small);
        hx_item item = item_of("key", 0, "meta");
        item.body = (hx_slice){body, len};
        assert_int_equal(commit_items(&b, &item, 1, false, NULL), OK);
        int fd = open(path_in(&b, "00000001.seg"), O_RDONLY | O_CLOEXEC);
        hx_segment_head head;
        hx_frame_head frame;
        off_t at = sizeof head;
        assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
        for (; pread(fd, &frame, sizeof frame, at) == sizeof frame && frame.kind != HX_FRAME_ITEMS;)
            at += (off_t)hx_frame_padded(frame.length);
        size_t rest = frame.length - sizeof frame, checked = rest < sizeof payload ? rest : sizeof payload;
        assert_int_equal(pread(fd, payload, checked, at + (off_t)sizeof frame), checked);
        hx_frame_head again = frame;
        hx_frame_seal(&again, head.generation, (hx_slice){payload, checked});
        assert_int_equal(again.crc, frame.crc);
        close(fd);
        bench_end(&b);
    }
}

static void a_torn_commit_is_gone_as_a_whole(void **state)
{
    (void)state;
    bench b, torn;
    bench_begin(&b, "journal", small);
    uint64_t before = put(&b, "a", 0, "before"), after = 0;
    hx_item items[] = {item_of("a", before, "after"), item_of("b", 0, "after"), item_of("c", 0, "after")};
    static char large[1500]; /* more together than the frame's own checksum covers */
    memset(large, 'x', sizeof large);
    for (int i = 0; i < 3; i++) items[i].body = (hx_slice){large, sizeof large};
    assert_int_equal(commit_items(&b, items, 3, false, &after), OK);
    torn = (bench){.backend = "journal", .options = b.options};
    unsigned gone = 0, whole = 0;
    static char zeros[SEGMENT];
    char copy[64];
    new_directory(copy);
    copy_directory(b.directory, copy);
    bench_end(&b);
    for (off_t cut = 128; cut < 6400; cut += 31) {
        new_directory(torn.directory);
        copy_directory(copy, torn.directory);
        int fd = open(path_in(&torn, "00000001.seg"), O_RDWR | O_CLOEXEC);
        assert_int_equal(pwrite(fd, zeros, (size_t)(SEGMENT - cut), cut), SEGMENT - cut);
        close(fd);
        bench_open(&torn);
        uint64_t version = version_of(&torn, "a");
        assert_true(version == 0 || version == before || version == after);
        assert_int_equal(version_of(&torn, "b"), version == after ? after : 0);
        assert_int_equal(version_of(&torn, "c"), version == after ? after : 0);
        gone += version == before;
        whole += version == after;
        uint64_t next = put(&torn, "a", version, "next");
        assert_true(next > version);
        bench_restart(&torn);
        assert_item(&torn, "a", next, "next");
        bench_end(&torn);
    }
    assert_true(gone > 20 && whole > 20);
    remove_directory(copy);
}

static void what_is_not_durable_yet_is_not_shown(void **state)
{
    (void)state;
    bench b;
    waited w;
    bench_begin(&b, "journal", small);
    uint64_t before = put(&b, "a", 0, "before");
    hx_item items[] = {item_of("a", before, "after"), item_of("b", 0, "after")};
    atomic_store(&syncs_wait, true);
    unsigned so_far = atomic_load(&syncs);
    wait_start(&b, &w);
    hx_store_commit(b.store, &w.call, items, 2, false);
    while (atomic_load(&syncs) == so_far) hx_loop_turn(b.loop, 1);
    uint64_t shown[] = {version_of(&b, "a"), version_of(&b, "b")};
    bool was_done = w.done;
    atomic_store(&syncs_wait, false);
    wait_for(&b, &w);
    assert_false(was_done);
    assert_int_equal(shown[0], before);
    assert_int_equal(shown[1], 0);
    assert_int_equal(w.call.result, OK);
    assert_int_equal(version_of(&b, "b"), w.call.version);
    bench_end(&b);
}

static void a_removal_holds_while_an_older_segment_has_the_item(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    static char large[SEGMENT / 2];
    hx_item stays = item_of("stays", 0, "so that the first segment does, too");
    stays.body = (hx_slice){large, sizeof large};
    assert_int_equal(commit_items(&b, &stays, 1, false, NULL), OK);
    uint64_t version = put(&b, "gone", 0, "m"), again = put(&b, "again", 0, "m");
    fill_segments(&b, 2);
    hx_item gone[] = {item_of("gone", version, NULL), item_of("again", again, NULL)};
    assert_int_equal(commit_items(&b, gone, 2, false, NULL), OK);
    again = put(&b, "again", 0, "anew");
    fill_segments(&b, 4);
    for (int round = 0; round < 3; round++) {
        (void)sweep(&b);
        assert_int_equal(version_of(&b, "gone"), 0);
        assert_item(&b, "again", again, "anew");
        bench_close(&b);
        assert_int_equal(access(path_in(&b, "00000001.seg"), F_OK), 0);
        if (round == 1) remove_files(&b, ".hint");
        bench_open(&b);
    }
    bench_end(&b);
}

/* Whether a file with that suffix has the text in it. */
static bool is_in_files(const bench *b, const char *suffix, const char *text)
{
    static char bytes[1 << 20];
    bool found = false;
    DIR *dir = opendir(b->directory);
    for (struct dirent *item; (item = readdir(dir));) {
        if (!hx_slice_ends(hx_slice_of(item->d_name), hx_slice_of(suffix))) continue;
        int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_CLOEXEC);
        ssize_t len = read(fd, bytes, sizeof bytes);
        found |= len > 0 && memmem(bytes, (size_t)len, text, strlen(text)) != NULL;
        close(fd);
    }
    closedir(dir);
    return found;
}

static void items_outlive_their_segment_under_their_versions(void **state)
{
    (void)state;
    enum { COMMITS = 70, EACH = 2 }; /* more than are moved in one step */
    bench b;
    bench_begin(&b, "journal", (hx_store_options){.segment_bytes = 4 * SEGMENT});
    char keys[COMMITS * EACH][16];
    uint64_t versions[COMMITS * EACH], highest = 0;
    for (size_t i = 0; i < COMMITS; i++) {
        hx_item items[EACH];
        for (size_t k = 0; k < EACH; k++) {
            (void)snprintf(keys[i * EACH + k], sizeof keys[0], "kept-%03zu", i * EACH + k);
            items[k] = item_of(keys[i * EACH + k], 0, "kept");
            items[k].queue = HX_LIT("queue");
            items[k].due = (hx_ms)(1000 - i * EACH - k);
            items[k].body = HX_LIT(BODY);
        }
        assert_int_equal(commit_items(&b, items, EACH, false, &highest), OK);
        for (size_t k = 0; k < EACH; k++) versions[i * EACH + k] = highest;
    }
    for (size_t i = 0; i < COMMITS; i++) versions[i * EACH] = put(&b, keys[i * EACH], versions[i * EACH], "anew");
    for (unsigned n = 2; n < 14; n++) {
        fill_segments(&b, n);
        (void)sweep(&b);
    }
    bench_close(&b); /* the background thread has archived by then */
    assert_true(count_files(&b, ".audit") >= 6 && count_files(&b, ".seg") <= 6);
    assert_true(is_in_files(&b, ".audit", "kept-000") && !is_in_files(&b, ".audit", BODY));
    for (int round = 0; round < 3; round++) {
        if (round == 1) remove_files(&b, ".hint");
        bench_open(&b);
        for (size_t i = 0; i < COMMITS * EACH; i++) assert_item(&b, keys[i], versions[i], i % EACH ? "kept" : "anew");
        hx_item_page page = {.by_queue = true, .items_max = 10, .prefix = HX_EMPTY};
        waited w;
        wait_start(&b, &w);
        hx_store_scan(b.store, &w.call, &page);
        wait_for(&b, &w);
        assert_int_equal(page.count, 10);
        assert_true(hx_slice_eq(page.items[0].key, HX_LIT("kept-139")));
        assert_int_equal(page.items[0].version, versions[139]);
        versions[1] = put(&b, keys[1], versions[1], "kept");
        assert_true(versions[1] > highest);
        highest = versions[1];
        bench_close(&b);
    }
    uint32_t last = count_files(&b, ".audit") + count_files(&b, ".seg");
    assert_true(verify_chain(&b, last) > 3 * COMMITS);
    bench_open(&b);
    bench_end(&b);
}

static void each_lifetime_ends_in_its_own_sweep(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, "journal", small);
    hx_item items[] = {item_of("a", 0, "m"), item_of("b", 0, "m"), item_of("c", 0, "stays")};
    items[0].expires_at = test_now + HX_DAY;
    items[1].expires_at = test_now + 3 * HX_DAY;
    assert_int_equal(commit_items(&b, items, 3, false, NULL), OK);
    for (int round = 0; round < 2; round++) { /* and nothing is written in between that could remind of the second */
        test_now += 2 * HX_DAY;
        assert_int_equal(sweep(&b), 1);
    }
    assert_int_equal(sweep(&b), 0);
    bench_end(&b);
}

static void an_item_that_cannot_be_read_is_not_absent(void **state)
{
    (void)state;
    bench b;
    hx_item found;
    bench_begin(&b, "journal", small);
    uint64_t version = put(&b, "a", 0, "meta");
    (void)put(&b, "b", 0, "meta");
    fill_segments(&b, 3);
    bench_close(&b);
    static char bytes[SEGMENT];
    int fd = open(path_in(&b, "00000001.seg"), O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
    const char *body = memmem(bytes, sizeof bytes, BODY, strlen(BODY));
    assert_non_null(body);
    assert_int_equal(pwrite(fd, "X", 1, body - bytes), 1);
    close(fd);
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_open(&b); /* with the hint: no body is read */
    assert_int_equal(get_item(&b, "a", &found), HX_STORE_UNAVAILABLE);
    assert_int_equal(get_item(&b, "b", &found), OK);
    for (int with_bodies = 0; with_bodies < 2; with_bodies++) {
        hx_item_page page = {.items_max = 10, .prefix = HX_EMPTY, .with_bodies = with_bodies == 1};
        waited w;
        wait_start(&b, &w);
        hx_store_scan(b.store, &w.call, &page);
        wait_for(&b, &w);
        assert_int_equal(w.call.result, with_bodies ? HX_STORE_UNAVAILABLE : OK);
        assert_int_equal(page.count, 3);
    }
    hx_item absent = item_of("a", 0, "new");
    assert_int_equal(commit_items(&b, &absent, 1, false, NULL), HX_STORE_STALE);
    version = put(&b, "a", version, "repaired");
    assert_item(&b, "a", version, "repaired");
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

static void the_largest_commits_read_back(void **state)
{
    (void)state;
    bench b;
    static hx_item items[HX_COMMIT_ITEMS_MAX];
    static char keys[HX_COMMIT_ITEMS_MAX][HX_ITEM_KEY_MAX], queue[HX_ITEM_QUEUE_MAX];
    uint64_t version, other;
    bench_begin(&b, "journal", small);
    memset(queue, 'q', sizeof queue);
    for (size_t i = 0; i < HX_COMMIT_ITEMS_MAX; i++) {
        memset(keys[i], 'k', sizeof keys[i]);
        (void)snprintf(keys[i], sizeof keys[i], "%08zu", i);
        items[i] = item_of("", 0, "0123456789");
        items[i].key = (hx_slice){keys[i], sizeof keys[i]};
        items[i].queue = (hx_slice){queue, sizeof queue};
    }
    assert_int_equal(commit_items(&b, items, HX_COMMIT_ITEMS_MAX, false, &version), OK);
    char *body = calloc(1, HX_ITEM_BODY_MAX);
    hx_item large = item_of("large", 0, "m");
    large.body = (hx_slice){body, HX_ITEM_BODY_MAX};
    assert_int_equal(commit_items(&b, &large, 1, false, &other), OK);
    for (int round = 0; round < 2; round++) {
        bench_close(&b);
        if (round == 0) remove_files(&b, ".hint");
        bench_open(&b);
        waited w;
        hx_item some[2] = {{.key = items[0].key}, {.key = items[HX_COMMIT_ITEMS_MAX - 1].key}}, found;
        wait_start(&b, &w);
        hx_store_get(b.store, &w.call, some, 2);
        wait_for(&b, &w);
        assert_int_equal(some[0].version, version);
        assert_int_equal(some[1].version, version);
        assert_true(hx_slice_eq(some[1].meta, HX_LIT("0123456789")));
        assert_int_equal(get_item(&b, "large", &found), OK);
        assert_int_equal(found.version, other);
        assert_true(hx_slice_eq(found.body, large.body));
    }
    free(body);
    bench_end(&b);
}

static atomic_bool stops;
static bench *read_by;

/* The two are always committed together, with the same meta. */
static void *read_on(void *unused)
{
    bench b = {.store = read_by->store, .loop = hx_loop_new()};
    (void)unused;
    hx_store_attach(b.store, b.loop);
    for (uint64_t last = 0; !atomic_load(&stops); hx_arena_free(&b.arena)) {
        hx_item both[2] = {{.key = HX_LIT("left")}, {.key = HX_LIT("right")}};
        waited w;
        wait_start(&b, &w);
        hx_store_get(b.store, &w.call, both, 2);
        wait_for(&b, &w);
        assert_int_equal(w.call.result, OK);
        assert_int_equal(both[0].version, both[1].version);
        assert_true(both[0].version >= last);
        assert_true(hx_slice_eq(both[0].meta, both[1].meta));
        last = both[0].version;
    }
    hx_arena_pool_drain();
    return b.loop;
}

static void readers_see_whole_commits_while_segments_go(void **state)
{
    (void)state;
    bench b;
    pthread_t thread;
    bench_begin(&b, "journal", small);
    read_by = &b;
    atomic_store(&stops, false);
    assert_int_equal(pthread_create(&thread, NULL, read_on, NULL), 0);
    uint64_t version = 0;
    for (unsigned n = 2; n < 12; n++) {
        char meta[32];
        for (unsigned i = 0; i < 4; i++) {
            (void)snprintf(meta, sizeof meta, "meta %u of %u", i, n);
            hx_item both[2] = {item_of("left", version, meta), item_of("right", version, meta)};
            assert_int_equal(commit_items(&b, both, 2, false, &version), OK);
        }
        fill_segments(&b, n);
        (void)sweep(&b);
    }
    atomic_store(&stops, true);
    void *loop;
    pthread_join(thread, &loop);
    hx_loop *other = loop;
    bench_end(&b);
    hx_loop_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_changed_in_a_frame_is_noticed),
        cmocka_unit_test(a_version_without_items_finds_the_checksum_where_it_looks),
        cmocka_unit_test(a_torn_commit_is_gone_as_a_whole),
        cmocka_unit_test(what_is_not_durable_yet_is_not_shown),
        cmocka_unit_test(a_removal_holds_while_an_older_segment_has_the_item),
        cmocka_unit_test(items_outlive_their_segment_under_their_versions),
        cmocka_unit_test(each_lifetime_ends_in_its_own_sweep),
        cmocka_unit_test(an_item_that_cannot_be_read_is_not_absent),
        cmocka_unit_test(the_largest_commits_read_back),
        cmocka_unit_test(readers_see_whole_commits_while_segments_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
