/* SPDX-License-Identifier: Apache-2.0 */
/* A full disk, and a store that has reached its limit: new claims are refused, operations in flight are settled, stored
 * ones are found, and when there is space again the store goes on by itself. Uses a small file system in memory, which
 * only root can mount: other users skip those cases. */
#include "store/harness.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define OK HX_STORE_OK
#define FULL HX_STORE_FULL
#define SEGMENT (256u << 10)
#define DISK_BYTES (8u << 20)
#define IN_FLIGHT 60u

static const char *backend = "journal";
static char disk[64]; /* where it is mounted; empty: nowhere */
static const hx_store_options on_disk = {.segment_bytes = SEGMENT};

static bool is_journal(void)
{
    return strcmp(backend, "journal") == 0;
}

static void need_disk(void)
{
    if (disk[0]) return;
    print_message("skipped: only root can mount a small file system\n");
    skip();
}

/* A mount that only this process sees, and that ends with it. */
static void mount_disk(void)
{
    char options[32];
    (void)snprintf(disk, sizeof disk, "/tmp/hapax-full-XXXXXX");
    (void)snprintf(options, sizeof options, "size=%u", DISK_BYTES);
    if (mkdtemp(disk) && unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount("hapax", disk, "tmpfs", 0, options) == 0 && setenv("TMPDIR", disk, 1) == 0)
        return;
    (void)rmdir(disk);
    disk[0] = '\0';
}

static const char *ballast(void)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/ballast", disk);
    return path;
}

/* Takes all the space that is left, but for so many bytes. */
static void fill_disk(uint64_t left)
{
    static const char block[4096];
    int fd = open(ballast(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) > 0) {}
    assert_int_equal(errno, ENOSPC);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    if ((uint64_t)st.st_size > left) assert_int_equal(ftruncate(fd, st.st_size - (off_t)left), 0);
    close(fd);
}

static uint64_t bytes_of(const bench *b, const char *suffix)
{
    uint64_t bytes = 0;
    struct stat st;
    DIR *dir = opendir(b->directory);
    for (struct dirent *item; (item = readdir(dir));)
        if (hx_slice_ends(hx_slice_of(item->d_name), hx_slice_of(suffix)) &&
            fstatat(dirfd(dir), item->d_name, &st, 0) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
    closedir(dir);
    return bytes;
}

static hx_store_result complete(bench *b, uint64_t number, size_t bytes, hx_ms lifetime)
{
    static char body[512 << 10];
    hx_record r = record_of(number);
    hx_store_result result = claim(b, &r, 0, NULL);
    if (result != OK) return result;
    r.answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), {body, bytes}};
    r.expires_at = test_now + lifetime;
    assert_int_equal(settle(b, &r, HX_COMPLETED, NULL), OK);
    hx_arena_free(&b->arena);
    return OK;
}

static uint64_t complete_until_full(bench *b, uint64_t first, size_t bytes, hx_ms lifetime)
{
    uint64_t number = first;
    while (complete(b, number, bytes, lifetime) == OK) number++;
    return number - first;
}

/* The background thread checks every second whether there is space. */
static void wait_until_claims_go(bench *b, uint64_t number)
{
    hx_store_result result;
    hx_record r;
    do {
        sweep(b);
        hx_loop_turn(b->loop, 20);
        r = record_of(number);
        result = claim(b, &r, 0, NULL);
    } while (result == FULL);
    assert_int_equal(result, OK);
}

static void what_is_in_flight_ends_on_a_full_disk(void **state)
{
    (void)state;
    need_disk();
    bench b;
    hx_record flying[IN_FLIGHT], found;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, on_disk);
    assert_int_equal(complete(&b, 5000, 1000, HX_DAY), OK);
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        flying[i] = record_of(i);
        flying[i].lease_until = test_now + HX_DAY;
        assert_int_equal(claim(&b, &flying[i], 0, NULL), OK);
    }
    fill_disk(0);
    uint64_t more = complete_until_full(&b, 6000, 3000, HX_DAY);
    hx_record refused = record_of(4000);
    assert_int_equal(claim(&b, &refused, 0, NULL), FULL);
    assert_int_equal(peek(&b, op_of(5000), &found), HX_COMPLETED); /* what is there is served */
    assert_int_equal(claim(&b, &(hx_record){.op = op_of(5000), .state = HX_PROCESSING}, 0, &found), HX_STORE_EXISTS);
    const hx_state ends[] = {HX_COMPLETED, HX_FAILED, HX_UNKNOWN, HX_ABSENT};
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        hx_state to = ends[i % 4];
        flying[i].answer = (hx_answer){200, true, HX_LIT("A: b\r\n"), HX_LIT("it arrived")};
        flying[i].expires_at = i % 4 < 2 ? test_now + HX_DAY : 0;
        assert_int_equal(settle(&b, &flying[i], to, NULL), OK);
        if (i == IN_FLIGHT / 2) sweep(&b);
    }
    for (int round = 0; round < 3; round++) {
        for (uint64_t i = 0; i < IN_FLIGHT; i++) {
            assert_int_equal(peek(&b, op_of(i), &found), ends[i % 4]);
            if (i % 4 < 2) assert_true(hx_slice_eq(found.answer.body, HX_LIT("it arrived")));
        }
        for (uint64_t i = 0; i < more; i++) assert_int_equal(peek(&b, op_of(6000 + i), NULL), HX_COMPLETED);
        if (round == 0) bench_restart(&b); /* on the full disk */
        if (round == 1) {
            assert_int_equal(unlink(ballast()), 0);
            wait_until_claims_go(&b, 4000); /* without a restart */
            bench_restart(&b);
        }
    }
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

#define BURST 3000u

static void a_burst_of_claims_leaves_room_for_all_their_ends(void **state)
{
    (void)state;
    need_disk();
    bench b;
    static waited calls[BURST];
    static hx_record records[BURST];
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, on_disk);
    fill_disk(is_journal() ? SEGMENT : 8 * SEGMENT);
    for (uint64_t i = 0; i < BURST; i++) { /* in one batch: nobody looks at the disk meanwhile */
        records[i] = record_of(i);
        wait_start(&b, &calls[i]);
        hx_store_claim(b.store, &calls[i].call, &records[i], 0);
    }
    uint64_t taken = 0;
    for (uint64_t i = 0; i < BURST; i++) {
        wait_for(&b, &calls[i]);
        assert_true(calls[i].call.result == OK || calls[i].call.result == FULL);
        taken += calls[i].call.result == OK;
    }
    assert_true(taken > 20 && taken < BURST);
    static char reason[HX_RECORD_TEXT_MAX], body[20000];
    hx_record found;
    uint64_t ended = 0, whole = 0;
    memset(reason, 'r', sizeof reason); /* as large as the end of a claim can be */
    for (uint64_t i = 0; i < BURST; i++) {
        if (calls[i].call.result != OK) continue;
        records[i].reason = records[i].correlation = records[i].result = (hx_slice){reason, sizeof reason};
        records[i].answer = (hx_answer){201, true, HX_EMPTY, {body, ended < 12 ? sizeof body : 0}};
        records[i].expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &records[i], HX_COMPLETED, NULL), OK);
        assert_int_equal(peek(&b, records[i].op, &found), HX_COMPLETED);
        whole += found.answer.body.len > 0;
        ended++;
    }
    assert_true(whole >= SEGMENT / 2 / (sizeof body + 2048)); /* half a segment is certain for answers */
    assert_int_equal(unlink(ballast()), 0);
    bench_restart(&b);
    for (uint64_t i = 0; i < BURST; i++)
        assert_int_equal(peek(&b, op_of(i), NULL), calls[i].call.result == OK ? HX_COMPLETED : HX_ABSENT);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

#define LATE 200u

/* Late answers have no reserve of their own: one that can't be written isn't counted as kept. */
static void late_answers_are_kept_or_refused(bench *b, hx_record late[LATE], hx_slice body)
{
    uint64_t kept = 0;
    hx_store_counts counts;
    for (hx_store_result result = OK; result == OK; kept += result == OK) {
        assert_true(kept < LATE);
        late[kept].answer = (hx_answer){201, true, HX_EMPTY, body};
        late[kept].expires_at = test_now + HX_DAY;
        result = settle(b, &late[kept], HX_COMPLETED, NULL);
        assert_true(result == OK || result == HX_STORE_UNAVAILABLE);
    }
    hx_store_count(b->store, &counts);
    assert_true(kept > 0);
    assert_int_equal(counts.unretained, kept); /* since the last start */
}

static void answers_that_find_no_room_are_left_out_and_nothing_else(void **state)
{
    (void)state;
    need_disk();
    bench b;
    hx_record flying[IN_FLIGHT], late[LATE], found;
    bool said_kept[IN_FLIGHT];
    const size_t bytes = is_journal() ? 40000 : 400000; /* far more than there is room for */
    char *body = calloc(1, bytes);
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, on_disk);
    for (uint64_t i = 0; i < LATE; i++) {
        late[i] = record_of(1000 + i);
        assert_int_equal(claim(&b, &late[i], 0, NULL), OK);
        assert_int_equal(settle(&b, &late[i], HX_UNKNOWN, NULL), OK);
    }
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        flying[i] = record_of(i);
        assert_int_equal(claim(&b, &flying[i], 0, NULL), OK);
    }
    fill_disk(0);
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        flying[i].answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), {body, bytes}};
        flying[i].expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &flying[i], HX_COMPLETED, NULL), OK);
        said_kept[i] = !b.unretained;
    }
    unsigned whole[2] = {0};
    hx_store_counts counts;
    hx_store_count(b.store, &counts);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        for (uint64_t i = 0; i < IN_FLIGHT; i++) {
            assert_int_equal(peek(&b, op_of(i), &found), HX_COMPLETED);
            assert_int_equal(found.answer.status, 201);
            assert_int_equal(found.answer.body.len, found.answer.retained ? bytes : 0);
            assert_int_equal(found.answer.retained, said_kept[i]);
            whole[round] += found.answer.retained;
        }
        hx_arena_free(&b.arena);
    }
    assert_int_equal(whole[0], whole[1]);
    if (is_journal()) assert_true(whole[0] >= SEGMENT / 2 / 41000); /* half a segment is certain */
    assert_true(counts.unretained > 0);
    assert_int_equal(counts.unretained, IN_FLIGHT - whole[0]);
    if (is_journal()) late_answers_are_kept_or_refused(&b, late, (hx_slice){body, bytes});
    assert_int_equal(unlink(ballast()), 0);
    wait_until_claims_go(&b, 4000);
    hx_log_threshold(HX_LOG_INFO);
    free(body);
    bench_end(&b);
}

/* The test ends here where the store keeps no items. */
static void need_items(bench *b)
{
    if (hx_store_about(b->store)->keeps_items) return;
    bench_end(b);
    hx_log_threshold(HX_LOG_INFO);
    skip();
}

static hx_store_result put_item(bench *b, const char *kind, uint64_t number, uint64_t *version, hx_slice body,
                                bool urgent)
{
    char key[32];
    (void)snprintf(key, sizeof key, "%s-%llu", kind, (unsigned long long)number);
    hx_item item = item_of(key, version ? *version : 0, "{\"attempts\":1,\"status\":200}");
    item.queue = HX_LIT("due/endpoint");
    item.body = body;
    uint64_t written;
    hx_store_result result = commit_items(b, &item, 1, urgent, &written);
    if (result == OK && version) *version = written;
    hx_arena_free(&b->arena);
    return result;
}

static void results_of_attempts_are_kept_on_a_full_disk(void **state)
{
    (void)state;
    need_disk();
    bench b;
    static const char body[3000];
    uint64_t versions[IN_FLIGHT] = {0}, more = 0;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, on_disk);
    need_items(&b);
    for (uint64_t i = 0; i < IN_FLIGHT; i++)
        assert_int_equal(put_item(&b, "attempt", i, &versions[i], HX_EMPTY, false), OK);
    fill_disk(0);
    while (put_item(&b, "event", more, NULL, (hx_slice){body, sizeof body}, false) == OK) more++;
    assert_int_equal(put_item(&b, "event", more, NULL, (hx_slice){body, sizeof body}, false), FULL);
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        assert_int_equal(put_item(&b, "attempt", i, &versions[i], HX_EMPTY, true), OK);
        if (i == IN_FLIGHT / 2) sweep(&b);
    }
    for (int round = 0; round < 3; round++) {
        hx_item found;
        char key[32];
        for (uint64_t i = 0; i < IN_FLIGHT; i++) {
            (void)snprintf(key, sizeof key, "attempt-%llu", (unsigned long long)i);
            assert_int_equal(get_item(&b, key, &found), OK);
            assert_int_equal(found.version, versions[i]);
        }
        (void)snprintf(key, sizeof key, "event-%llu", (unsigned long long)more);
        assert_int_equal(get_item(&b, key, &found), OK);
        assert_int_equal(found.version == 0, round < 2);
        if (round == 0) bench_restart(&b); /* on the full disk */
        if (round == 1) {
            assert_int_equal(unlink(ballast()), 0);
            while (put_item(&b, "event", more, NULL, HX_EMPTY, false) == FULL) { /* without a restart */
                sweep(&b);
                hx_loop_turn(b.loop, 20);
            }
        }
    }
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

static void responses_leave_space_for_results_of_attempts(void **state)
{
    (void)state;
    need_disk();
    bench b;
    hx_record flying[IN_FLIGHT];
    static char body[40000];
    uint64_t version = 0, kept = 0;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, on_disk);
    need_items(&b);
    assert_int_equal(put_item(&b, "attempt", 0, &version, HX_EMPTY, false), OK);
    for (uint64_t i = 0; i < IN_FLIGHT; i++) {
        flying[i] = record_of(i);
        assert_int_equal(claim(&b, &flying[i], 0, NULL), OK);
    }
    fill_disk(0);
    for (uint64_t i = 0; i < IN_FLIGHT / 2; i++) { /* far more than there is space for */
        flying[i].answer = (hx_answer){201, true, HX_EMPTY, {body, sizeof body}};
        flying[i].expires_at = test_now + HX_DAY;
        assert_int_equal(settle(&b, &flying[i], HX_COMPLETED, NULL), OK);
    }
    /* A store that writes in place never gets full by that. */
    while ((is_journal() || kept < IN_FLIGHT) && put_item(&b, "attempt", 0, &version, HX_EMPTY, true) == OK) kept++;
    assert_true(kept >= (is_journal() ? SEGMENT / 8 / 300 : IN_FLIGHT));
    for (uint64_t i = IN_FLIGHT / 2; i < IN_FLIGHT; i++) /* and they leave space for the ends of claims */
        assert_int_equal(settle(&b, &flying[i], HX_UNKNOWN, NULL), OK);
    bench_restart(&b);
    hx_item found;
    assert_int_equal(get_item(&b, "attempt-0", &found), OK);
    assert_int_equal(found.version, version);
    assert_int_equal(unlink(ballast()), 0);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

static void a_crash_on_a_full_disk_leaves_room_for_the_next_start(void **state)
{
    (void)state;
    need_disk();
    bench b;
    hx_record found;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, on_disk);
    bench_close(&b);
    for (uint64_t start = 0; start < 3; start++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            hx_store_result result = OK;
            bench_open(&b);
            for (uint64_t i = 0; i < IN_FLIGHT && result == OK; i++) {
                hx_record r = record_of(start * IN_FLIGHT + i);
                result = claim(&b, &r, 0, NULL);
            }
            _exit(result == OK || (result == FULL && start > 0) ? 0 : 1);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        fill_disk(0);
        bench_open(&b);
        hx_state left = hx_store_about(b.store)->shared ? HX_PROCESSING : HX_UNKNOWN; /* until its lease ends */
        for (uint64_t i = 0; i < IN_FLIGHT; i++) assert_int_equal(peek(&b, op_of(i), &found), left);
        hx_store_counts counts;
        hx_store_count(b.store, &counts);
        if (left == HX_UNKNOWN) assert_int_equal(counts.processing, 0);
        bench_close(&b);
    }
    assert_int_equal(unlink(ballast()), 0);
    bench_open(&b);
    wait_until_claims_go(&b, 4000);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

static void below_the_floor_claims_are_refused_until_space_returns(void **state)
{
    (void)state;
    need_disk();
    bench b;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, (hx_store_options){.segment_bytes = SEGMENT, .free_bytes_floor = 1 << 20});
    assert_int_equal(complete(&b, 1, 100, HX_DAY), OK);
    hx_record flying = record_of(2), refused = record_of(3);
    assert_int_equal(claim(&b, &flying, 0, NULL), OK);
    fill_disk(512 << 10);
    sweep(&b); /* which looks */
    assert_int_equal(claim(&b, &refused, 0, NULL), FULL);
    assert_int_equal(settle(&b, &flying, HX_UNKNOWN, NULL), OK);
    assert_int_equal(peek(&b, op_of(1), NULL), HX_COMPLETED);
    assert_int_equal(unlink(ballast()), 0);
    wait_until_claims_go(&b, 3);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

static hx_store_result put(bench *b, const char *key, size_t bytes, bool urgent)
{
    static char body[512 << 10];
    waited w;
    hx_item item = {.key = hx_slice_of(key), .queue = HX_LIT("q"), .meta = HX_LIT("{}"), .body = {body, bytes}};
    hx_item now = {.key = item.key};
    wait_start(b, &w);
    hx_store_get(b->store, &w.call, &now, 1);
    wait_for(b, &w);
    item.version = now.version;
    wait_start(b, &w);
    hx_store_commit(b->store, &w.call, &item, 1, urgent);
    wait_for(b, &w);
    hx_arena_free(&b->arena);
    return w.call.result;
}

static void on_a_full_disk_urgent_commits_of_items_are_kept_and_others_refused(void **state)
{
    (void)state;
    need_disk();
    bench b;
    char key[16];
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, on_disk);
    if (!hx_store_about(b.store)->keeps_items) {
        bench_end(&b);
        skip();
    }
    hx_record flying = record_of(1);
    flying.lease_until = test_now + HX_DAY;
    assert_int_equal(claim(&b, &flying, 0, NULL), OK);
    assert_int_equal(put(&b, "kept", 5000, false), OK);
    fill_disk(0);
    waited added, found;
    static char body[3000];
    int made = 0;
    do { /* both in one batch; the one that finds the disk full is tried several times */
        (void)snprintf(key, sizeof key, "k%d", made++);
        hx_item item = {.key = hx_slice_of(key), .queue = HX_EMPTY, .meta = HX_LIT("{}"), .body = {body, sizeof body}};
        hx_item kept = {.key = HX_LIT("kept")};
        wait_start(&b, &added);
        wait_start(&b, &found);
        hx_store_commit(b.store, &added.call, &item, 1, false);
        hx_store_get(b.store, &found.call, &kept, 1);
        wait_for(&b, &added);
        wait_for(&b, &found);
        assert_int_equal(found.call.result, OK);
        assert_int_equal(kept.body.len, 5000);
        hx_arena_free(&b.arena);
    } while (added.call.result == OK && made < 5000);
    assert_int_equal(added.call.result, FULL);
    assert_int_equal(put(&b, "refused", 10, false), FULL);
    for (int i = 0; i < 150; i++) { /* some 700 bytes each: half a segment is certain, and has space for 180 */
        (void)snprintf(key, sizeof key, "u%d", i % 20);
        assert_int_equal(put(&b, key, 500, true), OK);
    }
    hx_store_result large = put(&b, "large", 400000, true); /* may be more than the reserve has */
    assert_true(large == OK || large == FULL);
    assert_int_equal(settle(&b, &flying, HX_UNKNOWN, NULL), OK);
    for (int round = 0; round < 2; round++, bench_restart(&b)) {
        hx_item_page page = {.prefix = HX_LIT("u"), .items_max = 100};
        wait_start(&b, &found);
        hx_store_scan(b.store, &found.call, &page);
        wait_for(&b, &found);
        assert_int_equal(page.count, 20);
    }
    assert_int_equal(unlink(ballast()), 0);
    wait_until_claims_go(&b, 4000);
    assert_int_equal(put(&b, "refused", 3000, false), OK);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

#define LIMIT (12 * SEGMENT)

static void the_archive_counts_in_the_limit(void **state)
{
    (void)state;
    if (!is_journal()) skip(); /* others have none */
    bench b;
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, backend, (hx_store_options){.segment_bytes = SEGMENT, .bytes_max = LIMIT});
    uint64_t number = 0, round = 0;
    for (bool going = true; going && round < 100; round++) { /* everything expires, and its audit rows stay */
        uint64_t made = complete_until_full(&b, number, 2000, HX_SECOND);
        assert_true(bytes_of(&b, "") <= LIMIT);
        number += made;
        test_now += HX_MINUTE;
        going = made > 0;
        for (int i = 0; i < 30 && going; i++) { /* what can be cleaned is, and archived */
            sweep(&b);
            hx_loop_turn(b.loop, 100);
            hx_record r = record_of(1000000 + round);
            if (claim(&b, &r, 0, NULL) != OK) continue;
            assert_int_equal(settle(&b, &r, HX_ABSENT, NULL), OK);
            break;
        }
    }
    assert_true(round > 2 && round < 100);
    assert_true(bytes_of(&b, ".audit") > LIMIT / 2);
    DIR *dir = opendir(b.directory); /* an operator moves the archive away */
    for (struct dirent *item; (item = readdir(dir));)
        if (hx_slice_ends(hx_slice_of(item->d_name), HX_LIT(".audit")))
            assert_int_equal(unlinkat(dirfd(dir), item->d_name, 0), 0);
    closedir(dir);
    wait_until_claims_go(&b, 2000000);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

static void a_limit_that_is_too_small_is_refused(void **state)
{
    (void)state;
    if (!is_journal()) skip(); /* no segments */
    char url[128], path[64];
    hx_error_text error = "";
    new_directory(path);
    (void)snprintf(url, sizeof url, "journal:%s", path);
    hx_store *store = hx_store_open(hx_slice_of(url), &(hx_store_options){.bytes_max = 1 << 20}, error);
    assert_null(store);
    assert_non_null(strstr(error, "at least 48 MiB"));
    remove_directory(path);
}

int main(int argc, char **argv)
{
    if (argc > 1) backend = argv[1];
    mount_disk();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_in_flight_ends_on_a_full_disk),
        cmocka_unit_test(a_burst_of_claims_leaves_room_for_all_their_ends),
        cmocka_unit_test(answers_that_find_no_room_are_left_out_and_nothing_else),
        cmocka_unit_test(results_of_attempts_are_kept_on_a_full_disk),
        cmocka_unit_test(responses_leave_space_for_results_of_attempts),
        cmocka_unit_test(a_crash_on_a_full_disk_leaves_room_for_the_next_start),
        cmocka_unit_test(below_the_floor_claims_are_refused_until_space_returns),
        cmocka_unit_test(on_a_full_disk_urgent_commits_of_items_are_kept_and_others_refused),
        cmocka_unit_test(the_archive_counts_in_the_limit),
        cmocka_unit_test(a_limit_that_is_too_small_is_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (disk[0] && umount2(disk, MNT_DETACH) == 0) (void)rmdir(disk);
    return failed;
}
