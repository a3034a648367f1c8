/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a store: `bench_store commit URL OPERATIONS IN_FLIGHT [LOOPS]` makes and completes operations and prints the
 * CPU of one; `bench_store start URL` opens it and prints what that took. `./dev bench store` runs both.
 * `bench_store rounds URL IN_FLIGHT [LOOPS]` says `ready` and, for each line with a number that it reads, makes and
 * completes that many operations and says how long that took, its own CPU time, both in seconds, and how many commits
 * it was: for `./dev bench stores`, which lets rounds of several programs take turns. */
#include "base/check.h"
#include "base/program/process.h"
#include "base/rand.h"
#include "core/operation/policy.h"
#include "store/store.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LOOPS_MAX 8
#define RULE_VERSION (HX_RULE_NAMED | 1u)

typedef struct client client;

typedef struct {
    hx_store *store;
    hx_loop *loop;
    client *clients;
    unsigned client_count;
    uint64_t begin_left, end_left;
    hx_task start, stop;
    pthread_t thread;
    sem_t *ended; /* a round */
} worker;

struct client {
    hx_store_call call;
    hx_arena arena;
    hx_record record;
    worker *worker;
};

static double cpu_seconds(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static uint64_t resident_kib(void)
{
    unsigned long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu %lu", &pages, &resident) != 2) resident = 0; /* NOLINT(cert-err34-c) */
    if (f) (void)fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
}

static void next_operation(client *c);

static void settled(hx_store_call *call)
{
    client *c = HX_OWNER(call, client, call);
    HX_CHECK(call->result == HX_STORE_OK);
    hx_arena_free(&c->arena);
    if (--c->worker->end_left == 0) sem_post(c->worker->ended);
    if (c->worker->begin_left > 0) next_operation(c);
}

static void claimed(hx_store_call *call)
{
    client *c = HX_OWNER(call, client, call);
    HX_CHECK(call->result == HX_STORE_OK);
    static char body[200], headers[] = "Content-Type: application/json\r\nLocation: /refunds/re_0001\r\n";
    memset(body, 'x', sizeof body);
    c->record.state = HX_COMPLETED;
    c->record.from_state = HX_PROCESSING;
    c->record.expires_at = c->record.created_at + 30 * HX_DAY;
    c->record.answer = (hx_answer){201, true, {headers, sizeof headers - 1}, {body, sizeof body}};
    call->done = settled;
    hx_store_settle(c->worker->store, call, &c->record);
}

static void next_operation(client *c)
{
    hx_ms now = hx_loop_now(c->worker->loop);
    c->worker->begin_left--;
    c->record = (hx_record){.state = HX_PROCESSING,
                            .created_at = now,
                            .changed_at = now,
                            .lease_until = now + HX_MINUTE,
                            .route = HX_LIT("refunds"),
                            .rule_version = RULE_VERSION,
                            .correlation = HX_LIT("4bf92f3577b34da6a3ce929d0e0e4736"),
                            .attempt = 1};
    hx_rand_bytes(c->record.op.bytes, sizeof c->record.op.bytes);
    c->call = (hx_store_call){.loop = c->worker->loop, .arena = &c->arena, .done = claimed};
    hx_store_claim(c->worker->store, &c->call, &c->record, 0);
}

static void *work(void *context)
{
    worker *w = context;
    hx_loop_run(w->loop);
    return NULL;
}

static hx_store *open_store(const char *url)
{
    hx_error_text error;
    double cpu = cpu_seconds();
    int64_t wall = hx_clock_mono_ns();
    hx_store *store = hx_store_open(hx_slice_of(url), NULL, error);
    if (!store) hx_fatal(HX_EXIT_STORE, "%s", error);
    hx_store_counts counts;
    hx_store_count(store, &counts);
    printf("start: %" PRIu64 " operations, %.2f s CPU, %.2f s, %" PRIu64 " MiB resident\n", counts.live,
           cpu_seconds() - cpu, (double)(hx_clock_mono_ns() - wall) / 1e9, resident_kib() / 1024);
    return store;
}

typedef struct {
    double wall_s, cpu_s;
    uint64_t commits;
} spent;

typedef struct {
    worker workers[LOOPS_MAX];
    unsigned loops;
    sem_t ended;
} crew;

static void gather(crew *all, hx_store *store, unsigned in_flight, unsigned loops)
{
    HX_CHECK(loops >= 1 && loops <= LOOPS_MAX && in_flight >= loops);
    all->loops = loops;
    sem_init(&all->ended, 0, 0);
    for (unsigned i = 0; i < loops; i++) {
        worker *w = &all->workers[i];
        *w = (worker){.store = store, .loop = hx_loop_new(), .client_count = in_flight / loops, .ended = &all->ended};
        hx_store_attach(store, w->loop);
        w->clients = calloc(w->client_count, sizeof *w->clients);
        HX_CHECK(w->clients);
        for (unsigned c = 0; c < w->client_count; c++) w->clients[c].worker = w;
    }
}

static void set_to_work(crew *all)
{
    for (unsigned i = 0; i < all->loops; i++)
        HX_CHECK(pthread_create(&all->workers[i].thread, NULL, work, &all->workers[i]) == 0);
}

static void start(hx_task *task)
{
    worker *w = HX_OWNER(task, worker, start);
    for (unsigned i = 0; i < w->client_count; i++) next_operation(&w->clients[i]);
}

static void stop(hx_task *task)
{
    hx_loop_stop(HX_OWNER(task, worker, stop)->loop);
}

static spent run(crew *all, hx_store *store, uint64_t operations)
{
    hx_store_counts before, after;
    hx_store_count(store, &before);
    double cpu = cpu_seconds();
    int64_t wall = hx_clock_mono_ns();
    for (unsigned i = 0; i < all->loops; i++) {
        worker *w = &all->workers[i];
        w->begin_left = w->end_left = operations / all->loops;
        HX_CHECK(w->begin_left >= w->client_count);
        w->start.run = start;
        hx_loop_post(w->loop, &w->start);
    }
    for (unsigned i = 0; i < all->loops; i++) sem_wait(&all->ended);
    hx_store_count(store, &after);
    return (spent){(double)(hx_clock_mono_ns() - wall) / 1e9, cpu_seconds() - cpu, after.commits - before.commits};
}

static void dismiss(crew *all)
{
    for (unsigned i = 0; i < all->loops; i++) {
        all->workers[i].stop.run = stop;
        hx_loop_post(all->workers[i].loop, &all->workers[i].stop);
    }
    for (unsigned i = 0; i < all->loops; i++) {
        pthread_join(all->workers[i].thread, NULL);
        free(all->workers[i].clients);
    }
    sem_destroy(&all->ended);
}

static void commit(hx_store *store, uint64_t operations, unsigned in_flight, unsigned loops)
{
    crew all = {0};
    hx_store_counts counts;
    gather(&all, store, in_flight, loops);
    set_to_work(&all);
    spent took = run(&all, store, operations);
    hx_store_count(store, &counts);
    printf("claim + settle: %" PRIu64 " operations, %u in flight, %u loops: %.2f us CPU each, %.0f a second, "
           "%.1f records a commit, %.0f us a commit, %" PRIu64 " live, %" PRIu64 " MiB resident\n",
           operations, in_flight, loops, took.cpu_s / (double)operations * 1e6, (double)operations / took.wall_s,
           2.0 * (double)operations / (double)took.commits, took.wall_s / (double)took.commits * 1e6, counts.live,
           resident_kib() / 1024);
    dismiss(&all);
}

static void enforced(hx_store_call *call)
{
    HX_CHECK(call->result == HX_STORE_OK);
    hx_loop_stop(call->loop);
}

/* As every gateway does: from then on a store that others use, too, looks at the rules of each claim. */
static void enforce(hx_store *store, hx_loop *loop)
{
    hx_arena arena = {0};
    hx_store_rule rule = {.route = HX_LIT("refunds"), .version = RULE_VERSION};
    hx_store_rules rules = {.rules = &rule, .count = 1, .cap = 1};
    hx_store_call call = {.loop = loop, .arena = &arena, .done = enforced};
    hx_store_enforce(store, &call, &rules);
    hx_loop_run(loop);
    hx_arena_free(&arena);
}

static void rounds(hx_store *store, unsigned in_flight, unsigned loops)
{
    crew all = {0};
    gather(&all, store, in_flight, loops);
    enforce(store, all.workers[0].loop);
    set_to_work(&all);
    puts("ready");
    (void)fflush(stdout);
    for (char line[32]; fgets(line, sizeof line, stdin);) {
        spent took = run(&all, store, strtoull(line, NULL, 10));
        printf("%.6f %.6f %" PRIu64 "\n", took.wall_s, took.cpu_s, took.commits);
        (void)fflush(stdout);
    }
    dismiss(&all);
}

static void looked(hx_store_call *call)
{
    hx_loop_stop(call->loop);
}

/* A page of a list or, with an operation, of its history. */
static void look(hx_store *store, hx_loop *loop, const char *what, const hx_op *op, hx_store_page page)
{
    hx_arena arena = {0};
    hx_store_call call = {.loop = loop, .arena = &arena, .done = looked};
    double cpu = cpu_seconds();
    int64_t wall = hx_clock_mono_ns();
    if (op)
        hx_store_history(store, &call, op, &page);
    else
        hx_store_list(store, &call, &page);
    hx_loop_run(loop);
    printf("%s: %zu records%s, %.0f ms CPU, %.0f ms\n", what, page.count, page.more ? " and more" : "",
           (cpu_seconds() - cpu) * 1e3, (double)(hx_clock_mono_ns() - wall) / 1e6);
    hx_arena_free(&arena);
}

static void look_around(hx_store *store)
{
    hx_loop *loop = hx_loop_new();
    hx_store_attach(store, loop);
    hx_op nothing = {{1}};
    look(store, loop, "list: a page of all", NULL, (hx_store_page){.records_max = HX_STORE_PAGE_MAX});
    look(store, loop, "list: nothing by state", NULL, (hx_store_page){.states = 1u << HX_UNKNOWN, .records_max = 100});
    look(store, loop, "list: nothing by key, all records read", NULL,
         (hx_store_page){.key = {{1}}, .has_key = true, .records_max = 1});
    look(store, loop, "history: the whole log read", &nothing, (hx_store_page){.records_max = 100});
    hx_store_close(&store);
    hx_loop_free(&loop);
}

int main(int argc, char **argv)
{
    hx_process_init();
    if (argc < 3)
        hx_fatal(HX_EXIT_USAGE, "usage: bench_store start URL | look URL | commit URL OPERATIONS IN_FLIGHT [LOOPS] | "
                                "rounds URL IN_FLIGHT [LOOPS]");
    hx_store *store = open_store(argv[2]);
    if (strcmp(argv[1], "commit") == 0 && argc >= 5)
        commit(store, strtoull(argv[3], NULL, 10), (unsigned)strtoul(argv[4], NULL, 10),
               argc > 5 ? (unsigned)strtoul(argv[5], NULL, 10) : 1);
    if (strcmp(argv[1], "rounds") == 0 && argc >= 4)
        rounds(store, (unsigned)strtoul(argv[3], NULL, 10), argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 1);
    if (strcmp(argv[1], "look") == 0)
        look_around(store); /* and closes it */
    else
        hx_store_close(&store);
    return 0;
}
