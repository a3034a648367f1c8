/* SPDX-License-Identifier: Apache-2.0 */
/* What the store in SQLite adds to the contract: which files it opens, two of them on one file, its limits, and damage.
 * The contract itself is tested in tests/store. */
#include "store/harness.h"

#include "base/check.h"
#include "base/log.h"
#include "core/operation/policy.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define OK HX_STORE_OK
#define NAMED HX_RULE_NAMED

static const hx_store_options plain = {0};

static const char *path_in(const char *directory)
{
    static char path[128];
    (void)snprintf(path, sizeof path, "%s/store.db", directory);
    return path;
}

static void run(const char *path, const char *sql)
{
    sqlite3 *db;
    char *error = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK) hx_fatal(1, "%s: %s", sql, error);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void write_file(const char *path, long offset, const char *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, offset), len);
    close(fd);
}

/* The store isn't opened, the sentence has these words, and the file is as before. */
static void refused(const char *path, const hx_store_options *options, const char *words)
{
    char url[256], error[sizeof(hx_error_text)] = "";
    struct stat before = {0}, after = {0};
    (void)stat(path, &before);
    (void)snprintf(url, sizeof url, "sqlite:%s", path);
    hx_store *store = hx_store_open(hx_slice_of(url), options, error);
    if (store || !strstr(error, words)) print_message("\"%s\" has no \"%s\"\n", error, words);
    assert_null(store);
    assert_non_null(strstr(error, words));
    (void)stat(path, &after);
    assert_int_equal(before.st_size, after.st_size);
    assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
}

static void files_that_are_no_store_are_refused_and_left_alone(void **state)
{
    (void)state;
    char directory[64], text[8192];
    new_directory(directory);
    const char *path = path_in(directory);
    memset(text, 'x', sizeof text);
    write_file(path, 0, text, sizeof text);
    refused(path, &plain, "is no SQLite database");
    assert_int_equal(unlink(path), 0);
    run(path, "CREATE TABLE orders (id INTEGER)");
    refused(path, &plain, "a database of another program");
    assert_int_equal(unlink(path), 0);
    refused(directory, &plain, "is not a file");
    char missing[128];
    (void)snprintf(missing, sizeof missing, "%s/none/store.db", directory);
    refused(missing, &plain, "No such file or directory");
    refused("", &plain, "needs a file");
    refused(":memory:", &plain, "needs a file");
    remove_directory(directory);
}

static void a_store_that_is_newer_damaged_or_another_is_refused(void **state)
{
    (void)state;
    bench b;
    uint8_t other[32] = {1};
    char junk[4096 - 200];
    bench_begin(&b, "sqlite", plain);
    bench_close(&b);
    const char *path = path_in(b.directory);
    refused(path, &(hx_store_options){.secret = other}, "another secret");
    refused(path, &(hx_store_options){.bytes_max = 1000}, "at least 1 MiB");
    run(path, "UPDATE hapax_store SET format = 5");
    refused(path, &plain, "a newer version of Hapax (format 5");
    run(path, "UPDATE hapax_store SET format = 1");
    refused(path, &plain, "an older version of Hapax (format 1");
    run(path, "UPDATE hapax_store SET format = 4, secret = x'00'");
    refused(path, &plain, "is damaged");
    run(path, "PRAGMA journal_mode = DELETE");
    memset(junk, 0xff, sizeof junk);
    write_file(path, 100, junk, sizeof junk);
    refused(path, &plain, "is damaged");
    write_file(path, 0, junk, sizeof junk);
    refused(path, &plain, "is no SQLite database");
    remove_directory(b.directory);
    hx_arena_free(&b.arena);
}

static void a_file_that_cannot_be_written_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0) skip(); /* only root can become somebody else */
    bench b;
    bench_begin(&b, "sqlite", plain);
    bench_close(&b);
    assert_int_equal(chmod(b.directory, 0755), 0);
    for (int round = 0; round < 2; round++) {
        const char *path = path_in(b.directory);
        assert_int_equal(chmod(path, round == 0 ? 0444 : 0666), 0); /* then it is the directory that can't be */
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            char url[256], error[sizeof(hx_error_text)] = "";
            (void)snprintf(url, sizeof url, "sqlite:%s", path);
            if (setresuid(65534, 65534, 65534) != 0) _exit(9);
            if (hx_store_open(hx_slice_of(url), &plain, error)) _exit(1);
            _exit(strstr(error, "the directory") || strstr(error, "its directory") ? 0 : 2);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    remove_directory(b.directory);
}

static void a_new_file_is_its_owners_alone_and_keeps_its_secret(void **state)
{
    (void)state;
    bench b;
    struct stat st;
    uint8_t secret[32];
    bench_begin(&b, "sqlite", plain);
    assert_int_equal(stat(path_in(b.directory), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    const hx_store_facts *facts = hx_store_about(b.store);
    assert_true(facts->durable && facts->shared);
    assert_string_equal(facts->name, "sqlite");
    memcpy(secret, facts->secret, sizeof secret);
    uint64_t owner = facts->owner;
    bench_restart(&b);
    assert_memory_equal(secret, hx_store_about(b.store)->secret, sizeof secret);
    assert_true(owner != hx_store_about(b.store)->owner);
    bench_end(&b);
}

/* A second store on the file of the first, as another process would have it. */
static void begin_two(bench two[2])
{
    bench_begin(&two[0], "sqlite", plain);
    two[1] = (bench){.backend = "sqlite", .options = two[0].options};
    memcpy(two[1].directory, two[0].directory, sizeof two[1].directory);
    bench_open(&two[1]);
}

static void end_two(bench two[2])
{
    bench_close(&two[1]);
    hx_arena_free(&two[1].arena);
    bench_end(&two[0]);
}

static void what_one_does_the_other_sees(void **state)
{
    (void)state;
    bench two[2];
    hx_record found;
    begin_two(two);
    uint64_t last = 0;
    for (uint64_t i = 0; i < 20; i++) {
        bench *one = &two[i % 2], *other = &two[1 - i % 2];
        hx_record r = record_of(i), second = record_of(i);
        assert_int_equal(claim(one, &r, 0, NULL), OK);
        assert_true(r.epoch > last);
        last = r.epoch;
        assert_int_equal(peek(other, r.op, NULL), HX_PROCESSING);
        assert_int_equal(claim(other, &second, 0, &found), HX_STORE_EXISTS);
        assert_int_equal(found.epoch, r.epoch);
        r.expires_at = test_now + HX_DAY;
        assert_int_equal(settle(other, &r, HX_COMPLETED, NULL), OK); /* whichever brings it */
        assert_int_equal(peek(one, r.op, NULL), HX_COMPLETED);
    }
    hx_store_counts counts;
    hx_store_count(two[0].store, &counts);
    assert_int_equal(counts.live, 20);
    assert_int_equal(last_epoch(&two[1]), last);
    end_two(two);
}

static void an_epoch_that_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    bench b;
    uint64_t epoch;
    hx_error_text error = "";
    bench_begin(&b, "sqlite", plain);
    run(path_in(b.directory), "ALTER TABLE hapax_store RENAME TO gone");
    assert_false(hx_store_last_epoch(b.store, &epoch, error));
    assert_non_null(strstr(error, "can't be read"));
    run(path_in(b.directory), "ALTER TABLE gone RENAME TO hapax_store");
    assert_true(hx_store_last_epoch(b.store, &epoch, error));
    bench_end(&b);
}

static void a_watch_ends_with_what_another_process_did(void **state)
{
    (void)state;
    bench two[2];
    begin_two(two);
    const hx_state ends[] = {HX_COMPLETED, HX_UNKNOWN, HX_ABSENT};
    for (uint64_t i = 0; i < 3; i++) {
        hx_record r = record_of(i), bystander = record_of(100 + i);
        waited w, stays;
        assert_int_equal(claim(&two[0], &r, 0, NULL), OK);
        assert_int_equal(claim(&two[0], &bystander, 0, NULL), OK);
        wait_start(&two[0], &w);
        wait_start(&two[0], &stays);
        hx_store_watch(two[0].store, &w.call, &r.op, r.epoch);
        hx_store_watch(two[0].store, &stays.call, &bystander.op, bystander.epoch);
        assert_int_equal(renew(&two[0], r.op, r.epoch, test_now + HX_HOUR, NULL), OK); /* both wait by now */
        r.answer = (hx_answer){200, true, HX_EMPTY, HX_LIT("from afar")};
        r.expires_at = ends[i] == HX_COMPLETED ? test_now + HX_DAY : 0;
        assert_int_equal(settle(&two[1], &r, ends[i], NULL), OK);
        wait_for(&two[0], &w);
        assert_int_equal(w.call.result, OK);
        assert_int_equal(w.call.found.state, ends[i]);
        if (ends[i] != HX_ABSENT) assert_true(hx_slice_eq(w.call.found.answer.body, HX_LIT("from afar")));
        assert_false(stays.done);
        hx_store_cancel(two[0].store, &stays.call);
        wait_for(&two[0], &stays);
        assert_int_equal(stays.call.result, HX_STORE_CANCELLED);
    }
    end_two(two);
}

static hx_store_result try(bench *b, uint64_t number, const char *route, uint32_t version)
{
    hx_record r = record_of(number);
    r.route = hx_slice_of(route);
    r.rule_version = version;
    return claim(b, &r, 0, NULL);
}

static void tell_rules(bench *b, const hx_store_rules *rules, bool enforced)
{
    waited w;
    wait_start(b, &w);
    if (enforced)
        hx_store_enforce(b->store, &w.call, rules);
    else
        hx_store_retire(b->store, &w.call, rules);
    wait_for(b, &w);
    assert_int_equal(w.call.result, OK);
}

static void rules_are_enforced_for_all(void **state)
{
    (void)state;
    bench two[2];
    begin_two(two);
    hx_store_rule old_rules[] = {{HX_LIT("refunds"), NAMED | 1, 0}, {HX_EMPTY, 5, 0}};
    hx_store_rule new_rules[] = {{HX_LIT("refunds"), NAMED | 2, 0}, {HX_EMPTY, 5, 0}};
    const hx_store_rules old = {.rules = old_rules, .count = 2}, newer = {.rules = new_rules, .count = 2};
    tell_rules(&two[0], &old, true);
    assert_int_equal(try(&two[1], 1, "refunds", NAMED | 1), OK);
    tell_rules(&two[1], &newer, true);
    assert_int_equal(try(&two[0], 2, "refunds", NAMED | 1), HX_STORE_RETIRED);
    assert_int_equal(try(&two[0], 1, "refunds", NAMED | 1), HX_STORE_EXISTS); /* the existing record is returned */
    assert_int_equal(try(&two[1], 2, "refunds", NAMED | 2), OK);
    assert_int_equal(try(&two[0], 3, "POST /any", 5), OK);
    assert_int_equal(try(&two[0], 4, "POST /any", 6), HX_STORE_RETIRED);
    assert_int_equal(try(&two[0], 4, "POST /any", HX_RULE_SHADOW), OK);
    assert_int_equal(try(&two[0], 5, "orders", NAMED | 9), OK); /* no rule is known for it */
    tell_rules(&two[0], &newer, true);
    assert_int_equal(try(&two[0], 6, "refunds", NAMED | 2), OK);
    end_two(two);
}

static void rules_that_one_takes_stock_of_are_not_claimed_under_by_others(void **state)
{
    (void)state;
    bench two[2];
    begin_two(two);
    hx_store_rule rules[] = {{HX_LIT("refunds"), NAMED | 1, 0}};
    const hx_store_rules gone = {.rules = rules, .count = 1};
    tell_rules(&two[0], &gone, false);
    assert_int_equal(try(&two[0], 1, "refunds", NAMED | 1), HX_STORE_RETIRED);
    assert_int_equal(try(&two[1], 1, "refunds", NAMED | 1), HX_STORE_RETIRED);
    assert_int_equal(try(&two[1], 1, "orders", NAMED | 1), OK);
    test_now += 2 * HX_MINUTE; /* it may have died over it */
    assert_int_equal(try(&two[1], 2, "refunds", NAMED | 1), OK);
    assert_int_equal(try(&two[0], 3, "refunds", NAMED | 1), HX_STORE_RETIRED);
    tell_rules(&two[0], &gone, false);
    tell_rules(&two[0], NULL, false);
    assert_int_equal(try(&two[1], 3, "refunds", NAMED | 1), OK);
    end_two(two);
}

static void rules_that_one_takes_stock_of_stay_so_when_another_enforces_its_own(void **state)
{
    (void)state;
    bench two[2];
    begin_two(two);
    hx_store_rule rules[] = {{HX_LIT("refunds"), NAMED | 1, 0}};
    const hx_store_rules both = {.rules = rules, .count = 1};
    tell_rules(&two[0], &both, false); /* it counts them, and will go on without them when there are none */
    tell_rules(&two[1], &both, true);
    assert_int_equal(try(&two[1], 1, "refunds", NAMED | 1), HX_STORE_RETIRED);
    tell_rules(&two[0], NULL, false);
    assert_int_equal(try(&two[1], 1, "refunds", NAMED | 1), OK);
    end_two(two);
}

static void counts_hold_for_whoever_removes_a_row(void **state)
{
    (void)state;
    bench b;
    hx_store_counts counts;
    hx_store_rules rules;
    bench_begin(&b, "sqlite", plain);
    for (uint64_t i = 0; i < 10; i++) assert_int_equal(try(&b, i, "refunds", NAMED | 1), OK);
    run(path_in(b.directory), "DELETE FROM hapax_operations WHERE id > 3");
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.processing, 3);
    run(path_in(b.directory), "DELETE FROM hapax_operations");
    hx_store_rules_of(b.store, &b.arena, &rules);
    assert_int_equal(rules.count + rules.others, 0);
    bench_end(&b);
}

static void a_lease_that_another_renewed_is_not_swept(void **state)
{
    (void)state;
    bench two[2];
    begin_two(two);
    hx_record kept = record_of(1), lapsed = record_of(2);
    assert_int_equal(claim(&two[0], &kept, 0, NULL), OK);
    assert_int_equal(claim(&two[0], &lapsed, 0, NULL), OK);
    test_now += 2 * HX_MINUTE;
    assert_int_equal(renew(&two[0], kept.op, kept.epoch, test_now + HX_MINUTE, NULL), OK);
    sweep(&two[1]);
    assert_int_equal(peek(&two[0], kept.op, NULL), HX_PROCESSING);
    assert_int_equal(peek(&two[0], lapsed.op, NULL), HX_UNKNOWN);
    end_two(two);
}

static void a_store_at_its_limit_refuses_what_is_new_until_something_expires(void **state)
{
    (void)state;
    bench b;
    static char body[8192];
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, "sqlite", (hx_store_options){.bytes_max = 2 << 20});
    hx_record flying = record_of(9999);
    assert_int_equal(claim(&b, &flying, 0, NULL), OK);
    assert_int_equal(renew(&b, flying.op, flying.epoch, test_now + HX_DAY, NULL), OK);
    uint64_t made = 0;
    for (hx_store_result result = OK; result == OK;) {
        assert_true(made < 1000);
        hx_record r = record_of(made);
        result = claim(&b, &r, 0, NULL);
        if (result == OK) {
            r.answer = (hx_answer){200, true, HX_EMPTY, {body, sizeof body}};
            r.expires_at = test_now + HX_MINUTE;
            assert_int_equal(settle(&b, &r, HX_COMPLETED, NULL), OK);
            if (++made % 20 == 0) sweep(&b); /* which looks at the limit */
        } else {
            assert_int_equal(result, HX_STORE_FULL);
        }
    }
    assert_true(made > 100);
    flying.expires_at = test_now + HX_DAY;
    assert_int_equal(settle(&b, &flying, HX_COMPLETED, NULL), OK);
    test_now += HX_HOUR;
    assert_int_equal(sweep(&b), made);
    hx_record again = record_of(5000);
    assert_int_equal(claim(&b, &again, 0, NULL), OK);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

static void a_damaged_record_is_unknown_and_nothing_else_is(void **state)
{
    (void)state;
    bench b;
    hx_record found, r[3];
    hx_log_threshold(HX_LOG_ERROR + 1);
    bench_begin(&b, "sqlite", plain);
    for (uint64_t i = 0; i < 3; i++) {
        r[i] = record_of(i);
        assert_int_equal(claim(&b, &r[i], 0, NULL), OK);
        r[i].answer = (hx_answer){200, true, HX_EMPTY, HX_LIT("a body")};
        r[i].expires_at = test_now + HX_MINUTE;
        assert_int_equal(settle(&b, &r[i], HX_COMPLETED, NULL), OK);
    }
    run(path_in(b.directory), "UPDATE hapax_operations SET head = zeroblob(400) WHERE id = 1;"
                              "UPDATE hapax_operations SET body = 'b body' WHERE id = 2");
    for (uint64_t i = 0; i < 2; i++) {
        assert_int_equal(peek(&b, r[i].op, &found), HX_UNKNOWN);
        assert_int_equal(found.epoch, r[i].epoch);
        hx_record again = record_of(i);
        assert_int_equal(claim(&b, &again, 0, &found), HX_STORE_EXISTS);
        assert_int_equal(found.state, HX_UNKNOWN);
        assert_int_equal(claim(&b, &again, r[i].epoch, &found),
                         HX_STORE_EXISTS); /* it was completed, and is not redone */
    }
    assert_int_equal(peek(&b, r[2].op, NULL), HX_COMPLETED);
    hx_record runs = record_of(3);
    waited w;
    assert_int_equal(claim(&b, &runs, 0, NULL), OK);
    wait_start(&b, &w);
    hx_store_watch(b.store, &w.call, &runs.op, runs.epoch);
    assert_int_equal(renew(&b, runs.op, runs.epoch, test_now + HX_MINUTE, NULL), OK); /* behind the watch */
    run(path_in(b.directory), "UPDATE hapax_operations SET head = zeroblob(400) WHERE id = 4");
    for (int round = 0; round < 2; round++) { /* the second sweep finds nothing to do */
        test_now += HX_HOUR;
        sweep(&b);
        assert_int_equal(peek(&b, r[0].op, &found), HX_UNKNOWN); /* nobody can say when it would expire */
        assert_true(found.unreadable); /* and nothing says that it can be compared with a request */
        assert_int_equal(found.epoch, r[0].epoch);
        assert_int_equal(peek(&b, r[2].op, NULL), HX_ABSENT);
    }
    wait_for(&b, &w);
    assert_int_equal(w.call.found.state, HX_UNKNOWN);
    assert_true(w.call.found.unreadable);
    assert_int_equal(peek(&b, runs.op, NULL), HX_UNKNOWN);
    runs.expires_at = test_now + HX_MINUTE;
    assert_int_equal(settle(&b, &runs, HX_COMPLETED, NULL), OK); /* its own late outcome takes the place */
    assert_int_equal(peek(&b, runs.op, &found), HX_COMPLETED);
    assert_false(found.unreadable);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

/* A file that can't grow: every write beyond its end fails, as on a disk that fails. */
static void let_files_grow(bool they_may)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = they_may ? limit.rlim_max : 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_failing_disk_is_said_to_be_unavailable_until_it_works_again(void **state)
{
    (void)state;
    bench b;
    hx_record found;
    hx_log_threshold(HX_LOG_ERROR + 1);
    (void)signal(SIGXFSZ, SIG_IGN);
    bench_begin(&b, "sqlite", plain);
    hx_record before = record_of(1), refused = record_of(2), waits = record_of(3);
    assert_int_equal(claim(&b, &before, 0, NULL), OK);
    assert_int_equal(claim(&b, &waits, 0, NULL), OK);
    waited w;
    wait_start(&b, &w);
    hx_store_watch(b.store, &w.call, &waits.op, waits.epoch);
    assert_int_equal(renew(&b, waits.op, waits.epoch, test_now + HX_DAY, NULL), OK);
    let_files_grow(false);
    hx_record ended = waits;
    ended.expires_at = test_now + HX_DAY;
    assert_int_equal(claim(&b, &refused, 0, NULL), HX_STORE_UNAVAILABLE);
    assert_int_equal(refused.epoch, 0);
    assert_int_equal(settle(&b, &ended, HX_COMPLETED, NULL), HX_STORE_UNAVAILABLE);
    assert_int_equal(peek(&b, before.op, &found), HX_PROCESSING); /* what is there is served */
    assert_int_equal(peek(&b, refused.op, NULL), HX_ABSENT);
    assert_false(w.done);
    let_files_grow(true);
    assert_int_equal(claim(&b, &refused, 0, NULL), OK);
    assert_true(refused.epoch > waits.epoch);
    assert_int_equal(settle(&b, &ended, HX_ABSENT, NULL), OK);
    wait_for(&b, &w);
    assert_int_equal(w.call.found.state, HX_ABSENT);
    hx_log_threshold(HX_LOG_INFO);
    bench_end(&b);
}

#define TOGETHER 400u

/* A program that keeps its transaction open: the first batch waits for it, those after it don't wait as long again. */
static void a_file_that_stays_locked_does_not_hold_up_each_batch(void **state)
{
    (void)state;
    bench b;
    sqlite3 *other;
    bench_begin(&b, "sqlite", plain);
    assert_int_equal(sqlite3_open(path_in(b.directory), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    int64_t began = hx_clock_mono_ns();
    hx_record r = record_of(0);
    assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_UNAVAILABLE);
    int64_t first = hx_clock_mono_ns() - began;
    for (uint64_t i = 1; i <= 4; i++) {
        r = record_of(i);
        assert_int_equal(claim(&b, &r, 0, NULL), HX_STORE_UNAVAILABLE);
    }
    assert_true(hx_clock_mono_ns() - began < 2 * first);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(claim(&b, &r, 0, NULL), OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    waited w;
    wait_start(&b, &w);
    hx_store_renew(b.store, &w.call, &r.op, r.epoch, test_now + HX_MINUTE); /* waits as the first one did */
    began = hx_clock_mono_ns();
    while (hx_clock_mono_ns() - began < INT64_C(1000000000)) hx_loop_turn(b.loop, 50);
    assert_false(w.done);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    wait_for(&b, &w);
    assert_int_equal(w.call.result, OK);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    bench_end(&b);
}

static void calls_that_wait_share_commits(void **state)
{
    (void)state;
    bench b;
    static waited calls[TOGETHER];
    static hx_record records[TOGETHER];
    hx_store_counts counts;
    bench_begin(&b, "sqlite", plain);
    char url[128], *error = NULL;
    sqlite3 *other; /* while another process writes, calls gather */
    (void)snprintf(url, sizeof url, "%s", path_in(b.directory));
    assert_int_equal(sqlite3_open(url, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, &error), SQLITE_OK);
    for (uint64_t i = 0; i < TOGETHER; i++) {
        records[i] = record_of(i);
        wait_start(&b, &calls[i]);
        hx_store_claim(b.store, &calls[i].call, &records[i], 0);
    }
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, &error), SQLITE_OK);
    for (uint64_t i = 0; i < TOGETHER; i++) {
        wait_for(&b, &calls[i]);
        assert_int_equal(calls[i].call.result, OK);
        assert_true(i == 0 || records[i].epoch > records[i - 1].epoch);
    }
    hx_store_count(b.store, &counts);
    assert_int_equal(counts.processing, TOGETHER);
    assert_true(counts.commits <= 2); /* one that was there first, and the rest */
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_no_store_are_refused_and_left_alone),
        cmocka_unit_test(a_store_that_is_newer_damaged_or_another_is_refused),
        cmocka_unit_test(a_file_that_cannot_be_written_is_refused),
        cmocka_unit_test(a_new_file_is_its_owners_alone_and_keeps_its_secret),
        cmocka_unit_test(what_one_does_the_other_sees),
        cmocka_unit_test(an_epoch_that_cannot_be_read_is_an_error),
        cmocka_unit_test(a_watch_ends_with_what_another_process_did),
        cmocka_unit_test(rules_are_enforced_for_all),
        cmocka_unit_test(rules_that_one_takes_stock_of_are_not_claimed_under_by_others),
        cmocka_unit_test(rules_that_one_takes_stock_of_stay_so_when_another_enforces_its_own),
        cmocka_unit_test(counts_hold_for_whoever_removes_a_row),
        cmocka_unit_test(a_lease_that_another_renewed_is_not_swept),
        cmocka_unit_test(a_store_at_its_limit_refuses_what_is_new_until_something_expires),
        cmocka_unit_test(a_damaged_record_is_unknown_and_nothing_else_is),
        cmocka_unit_test(a_failing_disk_is_said_to_be_unavailable_until_it_works_again),
        cmocka_unit_test(a_file_that_stays_locked_does_not_hold_up_each_batch),
        cmocka_unit_test(calls_that_wait_share_commits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
