/* SPDX-License-Identifier: Apache-2.0 */
/* Measures items: `bench_items URL [ITEMS [ITEMS_A_CALL [CALLS_IN_FLIGHT]]]` puts deliveries of 200 bytes in 50 queues,
 * moves each to another queue and due time, those of a call side by side and then far apart, and reads pages of the
 * first delivery of each queue. Prints what one commit, item and page took. */
#include "base/check.h"
#include "base/program/process.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define QUEUES 50u
#define IN_FLIGHT_MAX 64u
#define PAGES 1000u
#define KEY_BYTES 48u
#define STRIDE UINT64_C(2654435761) /* a prime: all items come once */

typedef struct {
    hx_store_call call;
    hx_arena arena;
    hx_item *items;
    char (*keys)[KEY_BYTES];
    char (*queues)[16];
    uint64_t *numbers;
} flight;

static hx_store *store;
static hx_loop *loop;
static uint64_t item_count = 102400, a_call = 256, in_flight = 4;
static uint64_t *versions;
static uint64_t next_call, calls_ended, round_number, stride;
static flight flights[IN_FLIGHT_MAX];
static char meta[201];

static double cpu_seconds(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void commit_next(flight *f);

static void commit_done(hx_store_call *call)
{
    flight *f = HX_OWNER(call, flight, call);
    HX_CHECK(call->result == HX_STORE_OK);
    for (uint64_t i = 0; i < a_call; i++) versions[f->numbers[i]] = call->version;
    hx_arena_free(&f->arena);
    if (++calls_ended == item_count / a_call)
        hx_loop_stop(loop);
    else if (next_call < item_count / a_call)
        commit_next(f);
}

static void commit_next(flight *f)
{
    for (uint64_t i = 0; i < a_call; i++) {
        uint64_t number = (next_call * a_call + i) * stride % item_count;
        f->numbers[i] = number;
        (void)snprintf(f->keys[i], KEY_BYTES, "dlv/evt_%020" PRIu64 "/ep_%02" PRIu64, number, number % QUEUES);
        (void)snprintf(f->queues[i], sizeof f->queues[i], "due/ep_%02" PRIu64, (number + round_number) % QUEUES);
        f->items[i] = (hx_item){.key = hx_slice_of(f->keys[i]),
                                .version = versions[number],
                                .queue = hx_slice_of(f->queues[i]),
                                .due = (hx_ms)(1000000 * round_number + next_call),
                                .expires_at = hx_clock_now() / HX_DAY * HX_DAY + 30 * HX_DAY + (hx_ms)number,
                                .meta = {meta, sizeof meta - 1},
                                .body = HX_EMPTY};
    }
    next_call++;
    f->call = (hx_store_call){.loop = loop, .arena = &f->arena, .done = commit_done};
    hx_store_commit(store, &f->call, f->items, a_call, false);
}

static void commit_all(const char *what)
{
    uint64_t calls = item_count / a_call;
    double cpu = cpu_seconds();
    int64_t wall = hx_clock_mono_ns();
    next_call = calls_ended = 0;
    for (uint64_t i = 0; i < in_flight && next_call < calls; i++) commit_next(&flights[i]);
    hx_loop_run(loop);
    double seconds = (double)(hx_clock_mono_ns() - wall) / 1e9;
    cpu = cpu_seconds() - cpu;
    printf("%-22s %7.0f commits/s %9.0f items/s %9.1f us CPU a commit %7.2f us an item\n", what,
           (double)calls / seconds, (double)item_count / seconds, cpu / (double)calls * 1e6,
           cpu / (double)item_count * 1e6);
    round_number++;
}

static void read_done(hx_store_call *call)
{
    HX_CHECK(call->result == HX_STORE_OK);
    hx_loop_stop(loop);
}

static void read_pages(void)
{
    hx_arena arena = {0};
    double cpu = cpu_seconds();
    for (unsigned i = 0; i < PAGES; i++) {
        hx_item_page page = {.by_queue = true, .one_per_queue = true, .prefix = HX_LIT("due/"), .items_max = QUEUES};
        hx_store_call call = {.loop = loop, .arena = &arena, .done = read_done};
        hx_store_scan(store, &call, &page);
        hx_loop_run(loop);
        HX_CHECK(page.count == QUEUES);
        hx_arena_free(&arena);
    }
    printf("%-22s %.1f us CPU\n", "page of 50 queues", (cpu_seconds() - cpu) / PAGES * 1e6);
}

int main(int argc, char **argv)
{
    hx_process_init();
    hx_error_text error;
    if (argc < 2) hx_fatal(HX_EXIT_USAGE, "usage: bench_items URL [ITEMS [ITEMS_A_CALL [CALLS_IN_FLIGHT]]]");
    if (argc > 2) item_count = strtoull(argv[2], NULL, 10);
    if (argc > 3) a_call = strtoull(argv[3], NULL, 10);
    if (argc > 4) in_flight = strtoull(argv[4], NULL, 10);
    if (a_call < 1 || a_call > HX_COMMIT_ITEMS_MAX || in_flight < 1 || in_flight > IN_FLIGHT_MAX ||
        item_count < QUEUES * a_call || item_count % a_call != 0)
        hx_fatal(HX_EXIT_USAGE, "bench_items: ITEMS must be a multiple of ITEMS_A_CALL, and at least 50 times as many");
    store = hx_store_open(hx_slice_of(argv[1]), NULL, error);
    if (!store) hx_fatal(HX_EXIT_STORE, "%s", error);
    if (!hx_store_about(store)->keeps_items) hx_fatal(HX_EXIT_USAGE, "%s keeps no items", argv[1]);
    loop = hx_loop_new();
    hx_store_attach(store, loop);
    memset(meta, 'm', sizeof meta - 1);
    versions = calloc(item_count, sizeof *versions);
    HX_CHECK(versions);
    for (uint64_t i = 0; i < in_flight; i++) {
        flight *f = &flights[i];
        f->items = calloc(a_call, sizeof *f->items);
        f->keys = calloc(a_call, sizeof *f->keys);
        f->queues = calloc(a_call, sizeof *f->queues);
        f->numbers = calloc(a_call, sizeof *f->numbers);
        HX_CHECK(f->items && f->keys && f->queues && f->numbers);
    }
    stride = 1;
    commit_all("put");
    commit_all("move, side by side");
    stride = STRIDE;
    commit_all("move, far apart");
    read_pages();
    hx_store_close(&store);
    hx_loop_free(&loop);
    return 0;
}
