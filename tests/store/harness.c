/* SPDX-License-Identifier: Apache-2.0 */
#include "store/harness.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "store/postgres/libpq.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

_Atomic hx_ms test_now = 1798761600000;

hx_ms test_clock(void)
{
    return test_now;
}

void remove_directory(const char *path) /* NOLINT(misc-no-recursion): one level deep */
{
    DIR *dir = opendir(path);
    if (!dir) return;
    for (struct dirent *item; (item = readdir(dir));) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0) continue;
        if (unlinkat(dirfd(dir), item->d_name, 0) == 0) continue;
        char inner[512];
        (void)snprintf(inner, sizeof inner, "%s/%s", path, item->d_name);
        remove_directory(inner);
    }
    closedir(dir);
    (void)rmdir(path);
}

#define ROOM_BYTES ((uint64_t)1 << 30) /* for all the tests that run at a time, and much more */

/* In memory where it fits: these tests are about what is written, not about a disk. */
void new_directory(char path[64])
{
    struct statvfs room;
    const char *tmp = getenv("TMPDIR"), *memory = "/dev/shm";
    bool roomy = access(memory, W_OK) == 0 && statvfs(memory, &room) == 0 &&
                 (uint64_t)room.f_bavail * room.f_bsize >= ROOM_BYTES;
    if (!tmp) tmp = roomy ? memory : "/tmp";
    (void)snprintf(path, 64, "%s/hapax-store-XXXXXX", tmp);
    if (!mkdtemp(path)) hx_fatal(1, "can't make a directory");
}

static const char *variable(const char *name)
{
    const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): nobody sets variables here
    if (!value) hx_fatal(2, "%s isn't set: run this by tests/store/with_postgres", name);
    return value;
}

/* A store that keeps nothing of the test before. */
static void empty_postgres(void)
{
    hx_error_text error;
    const hx_libpq *pq = hx_libpq_load(error);
    if (!pq) hx_fatal(1, "%s", error);
    const char *const keywords[] = {"dbname", NULL}, *const values[] = {variable("HAPAX_TEST_POSTGRES_DIRECT"), NULL};
    PGconn *conn = pq->connectdbParams(keywords, values, 1);
    PGresult *result = pq->exec(conn, "TRUNCATE hapax.operations, hapax.past, hapax.rules, hapax.retired");
    if (pq->resultStatus(result) != PGRES_COMMAND_OK) hx_fatal(1, "%s", pq->errorMessage(conn));
    pq->clear(result);
    pq->finish(conn);
}

void bench_open(bench *b)
{
    char url[256];
    hx_error_text error;
    if (strcmp(b->backend, "journal") == 0)
        (void)snprintf(url, sizeof url, "journal:%s", b->directory);
    else if (strcmp(b->backend, "postgres") == 0)
        (void)snprintf(url, sizeof url, "%s", variable("HAPAX_TEST_POSTGRES"));
    else if (strcmp(b->backend, "sqlite") == 0)
        (void)snprintf(url, sizeof url, "sqlite:%s/store.db", b->directory);
    else
        (void)snprintf(url, sizeof url, "%s:", b->backend);
    b->store = hx_store_open(hx_slice_of(url), &b->options, error);
    if (!b->store) hx_fatal(1, "can't open: %s", error);
    b->loop = hx_loop_new();
    hx_store_attach(b->store, b->loop);
}

void bench_begin(bench *b, const char *backend, hx_store_options options)
{
    *b = (bench){.backend = backend, .options = options};
    b->options.now = test_clock;
    if (b->options.free_bytes_floor == 0) b->options.free_bytes_floor = 1;
    new_directory(b->directory);
    if (strcmp(backend, "postgres") == 0) empty_postgres();
    bench_open(b);
}

void bench_close(bench *b)
{
    hx_store_close(&b->store);
    hx_loop_free(&b->loop);
}

void bench_restart(bench *b)
{
    if (strcmp(b->backend, "memory") == 0) return;
    bench_close(b);
    bench_open(b);
}

void bench_end(bench *b)
{
    bench_close(b);
    hx_arena_free(&b->arena);
    hx_arena_pool_drain();
    remove_directory(b->directory);
}

hx_op op_of(uint64_t number)
{
    hx_op op;
    uint64_t words[2] = {number, number * UINT64_C(0x9e3779b97f4a7c15)};
    memcpy(op.bytes, words, sizeof op.bytes);
    return op;
}

hx_record record_of(uint64_t number)
{
    hx_record r = {.op = op_of(number),
                   .state = HX_PROCESSING,
                   .created_at = test_now,
                   .changed_at = test_now,
                   .lease_until = test_now + HX_MINUTE,
                   .owner = 7,
                   .rule_version = 3,
                   .attempt = 1,
                   .route = HX_LIT("refunds"),
                   .correlation = HX_LIT("correlation-0001")};
    memset(r.fingerprint.bytes, (int)(number & 0xff), sizeof r.fingerprint.bytes);
    memset(r.principal.bytes, (int)(number >> 8 & 0xff), sizeof r.principal.bytes);
    memset(r.proof.bytes, 0x5a, sizeof r.proof.bytes);
    memcpy(r.key.bytes, &number, sizeof number);
    for (size_t i = 0; i < HX_PART_COUNT; i++) r.parts[i] = number + i;
    return r;
}

static void done(hx_store_call *call)
{
    HX_OWNER(call, waited, call)->done = true;
    hx_loop_stop(call->loop); /* the turn needn't wait for anything else */
}

void wait_start(bench *b, waited *w)
{
    *w = (waited){.call = {.loop = b->loop, .arena = &b->arena, .done = done}};
}

/* How long a call may take before it is taken to hang. */
static int64_t hang_ns(void)
{
    const char *seconds = getenv("HAPAX_HANG_S"); // NOLINT(concurrency-mt-unsafe)
    return (seconds ? strtoll(seconds, NULL, 10) : 120) * 1000000000;
}

void wait_for(bench *b, waited *w)
{
    int64_t latest = hx_clock_mono_ns() + hang_ns();
    while (!w->done) {
        hx_loop_turn(b->loop, 1000);
        if (!w->done && hx_clock_mono_ns() > latest) hx_fatal(HX_EXIT_BUG, "a call of the store has not ended");
    }
}

void wait_for_state(bench *b, hx_op op, hx_state state, hx_record *found)
{
    int64_t latest = hx_clock_mono_ns() + hang_ns();
    for (hx_state stands; (stands = peek(b, op, found)) != state; hx_loop_turn(b->loop, 20))
        if (hx_clock_mono_ns() > latest) hx_fatal(HX_EXIT_BUG, "it is still %s", hx_state_name(stands));
}

hx_store_result claim(bench *b, hx_record *record, uint64_t take_over, hx_record *found)
{
    waited w;
    wait_start(b, &w);
    hx_store_claim(b->store, &w.call, record, take_over);
    wait_for(b, &w);
    if (found) *found = w.call.found;
    return w.call.result;
}

hx_store_result settle(bench *b, hx_record *record, hx_state state, hx_record *found)
{
    waited w;
    wait_start(b, &w);
    record->from_state = record->state;
    record->state = state;
    record->changed_at = test_now;
    record->lease_until = 0;
    hx_store_settle(b->store, &w.call, record);
    wait_for(b, &w);
    b->unretained = w.call.unretained;
    if (found) *found = w.call.found;
    return w.call.result;
}

hx_store_result renew(bench *b, hx_op op, uint64_t epoch, hx_ms lease_until, hx_record *found)
{
    waited w;
    wait_start(b, &w);
    hx_store_renew(b->store, &w.call, &op, epoch, lease_until);
    wait_for(b, &w);
    if (found) *found = w.call.found;
    return w.call.result;
}

hx_store_result forget(bench *b, hx_op op, uint64_t epoch, hx_record *found)
{
    waited w;
    wait_start(b, &w);
    hx_store_forget(b->store, &w.call, &op, epoch, HX_LIT("by hand"));
    wait_for(b, &w);
    if (found) *found = w.call.found;
    return w.call.result;
}

uint64_t sweep(bench *b)
{
    waited w;
    wait_start(b, &w);
    hx_store_sweep(b->store, &w.call);
    wait_for(b, &w);
    HX_CHECK(w.call.result == HX_STORE_OK);
    return w.call.count;
}

uint64_t last_epoch(bench *b)
{
    uint64_t epoch;
    hx_error_text error;
    if (!hx_store_last_epoch(b->store, &epoch, error)) hx_fatal(1, "%s", error);
    return epoch;
}

hx_item item_of(const char *key, uint64_t version, const char *meta)
{
    return (hx_item){.key = hx_slice_of(key),
                     .version = version,
                     .act = meta ? HX_ITEM_PUT : HX_ITEM_REMOVE,
                     .queue = HX_EMPTY,
                     .meta = hx_slice_of(meta ? meta : ""),
                     .body = HX_EMPTY};
}

hx_store_result commit_items(bench *b, hx_item *items, size_t count, bool urgent, uint64_t *version)
{
    waited w;
    wait_start(b, &w);
    hx_store_commit(b->store, &w.call, items, count, urgent);
    wait_for(b, &w);
    if (version) *version = w.call.version;
    return w.call.result;
}

hx_store_result get_item(bench *b, const char *key, hx_item *found)
{
    waited w;
    *found = (hx_item){.key = hx_slice_of(key)};
    wait_start(b, &w);
    hx_store_get(b->store, &w.call, found, 1);
    wait_for(b, &w);
    return w.call.result;
}

hx_state peek(bench *b, hx_op op, hx_record *found)
{
    hx_record unused;
    if (!found) found = &unused;
    hx_peek result = hx_store_peek(b->store, &op, &b->arena, found);
    if (result != HX_PEEK_ASK) return result == HX_PEEK_FOUND ? found->state : HX_ABSENT;
    waited w;
    wait_start(b, &w);
    hx_store_read(b->store, &w.call, &op);
    wait_for(b, &w);
    HX_CHECK(w.call.result == HX_STORE_OK);
    *found = w.call.found;
    return found->state;
}
