/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes at work on one store, some of which are killed in the middle of it: each operation is won once, no
 * epoch is drawn twice, each commit of items takes effect on the versions that it names, and what was acknowledged to
 * anybody is there in the end. Run with the backend's name, of those that processes share. */
#include "store/harness.h"

#include "base/check.h"
#include "base/rand.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define PROCESSES 4
#define OPERATIONS 600u
#define KILLS 24
#define WORDS_MAX 100000u

static const char *backend;

typedef enum { CLAIMED, COMPLETED, RELEASED, COUNTED } event;

/* What a process says once it was acknowledged. */
typedef struct {
    event what;
    uint32_t number;
    uint64_t epoch; /* COUNTED: the count */
} word;

/* Shared by all of them. */
typedef struct world {
    void (*try_one)(bench *b, struct world *w, int pipe, uint64_t number);
    atomic_uint effects[OPERATIONS];
    atomic_uint next;
} world;

static bool may_release(uint64_t number)
{
    return number % 4 == 0;
}

static void say(int pipe, event what, uint64_t number, uint64_t epoch)
{
    const word w = {.what = what, .number = (uint32_t)number, .epoch = epoch};
    if (write(pipe, &w, sizeof w) != sizeof w) _exit(10);
}

static void answer(char body[64], uint64_t number, uint64_t epoch)
{
    (void)snprintf(body, 64, "answer %llu of %llu", (unsigned long long)epoch, (unsigned long long)number);
}

static void try_operation(bench *b, world *w, int pipe, uint64_t number)
{
    char body[64];
    hx_record r = record_of(number), found;
    hx_store_result result = claim(b, &r, 0, &found);
    if (result == HX_STORE_EXISTS) {
        if (found.state == HX_COMPLETED) {
            answer(body, number, found.epoch);
            if (!hx_slice_eq(found.answer.body, hx_slice_of(body))) _exit(11);
        }
        return;
    }
    if (result != HX_STORE_OK) _exit(12);
    say(pipe, CLAIMED, number, r.epoch);
    bool releases = may_release(number) && hx_rand_below(3) > 0;
    if (!releases) w->effects[number]++;
    answer(body, number, r.epoch);
    r.answer = (hx_answer){201, true, HX_EMPTY, hx_slice_of(body)};
    r.expires_at = releases ? 0 : test_now + HX_DAY;
    if (settle(b, &r, releases ? HX_ABSENT : HX_COMPLETED, &found) != HX_STORE_OK) _exit(13);
    say(pipe, releases ? RELEASED : COMPLETED, number, r.epoch);
}

/* All walk over the same operations at about the same time, so that they meet. */
_Noreturn static void work(bench *b, world *w, int pipe)
{
    hx_rand_seed((uint64_t)getpid());
    bench_open(b);
    while (w->next < OPERATIONS * 8) {
        uint64_t at = w->next++ / 8, number = at + hx_rand_below(8);
        if (number < OPERATIONS) w->try_one(b, w, pipe, number);
        hx_arena_free(&b->arena);
    }
    bench_close(b);
    _exit(0);
}

static pid_t begin_one(bench *b, world *w, const int pipes[2])
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0) return child;
    close(pipes[0]);
    work(b, w, pipes[1]);
}

static unsigned end_all(pid_t children[PROCESSES])
{
    unsigned well = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        if (status != 0) print_message("a process ended with %x\n", (unsigned)status);
        well += status == 0;
    }
    return well;
}

/* Reads what they say, and kills one of them now and then, for which another comes. */
static size_t listen_and_kill(bench *b, world *w, const int pipes[2], pid_t children[PROCESSES], word *words)
{
    size_t count = 0;
    unsigned killed = 0;
    while (w->next < OPERATIONS * 8) {
        size_t until = count + 1 + hx_rand_below(2 * OPERATIONS / KILLS);
        while (count < until && w->next < OPERATIONS * 8) {
            struct pollfd ready = {.fd = pipes[0], .events = POLLIN};
            if (poll(&ready, 1, 20) == 0) continue; /* all may have ended meanwhile */
            assert_int_equal(read(pipes[0], &words[count], sizeof words[count]), sizeof words[count]);
            count++;
        }
        if (killed == KILLS) continue;
        pid_t *victim = &children[hx_rand_below(PROCESSES)];
        int status;
        assert_int_equal(kill(*victim, SIGKILL), 0);
        assert_int_equal(waitpid(*victim, &status, 0), *victim);
        assert_true(WIFSIGNALED(status) || status == 0);
        *victim = begin_one(b, w, pipes);
        killed++;
    }
    assert_true(killed > KILLS / 4);
    return count;
}

typedef struct {
    uint64_t epoch; /* of the last that was won */
    bool open;      /* and not released, as far as was said */
    bool completed;
} story;

static int by_epoch(const void *a, const void *b)
{
    const word *one = a, *other = b;
    if (one->epoch != other->epoch) return one->epoch < other->epoch ? -1 : 1;
    return (int)one->what - (int)other->what;
}

/* In the order of epochs: what was said must make sense. */
static void judge_words(word *words, size_t count, story stories[OPERATIONS])
{
    uint64_t last = 0;
    qsort(words, count, sizeof *words, by_epoch);
    for (size_t i = 0; i < count; i++) {
        story *s = &stories[words[i].number];
        if (words[i].what == CLAIMED) {
            assert_true(words[i].epoch > last); /* no epoch twice */
            last = words[i].epoch;
            assert_false(s->completed);
            assert_true(!s->open || may_release(words[i].number)); /* a release whose word was cut off */
            *s = (story){.epoch = words[i].epoch, .open = true};
        } else {
            assert_true(s->open && s->epoch == words[i].epoch);
            s->open = words[i].what == COMPLETED;
            s->completed = words[i].what == COMPLETED;
        }
    }
}

static void judge_store(bench *b, world *w, const story stories[OPERATIONS])
{
    char body[64];
    hx_record found;
    for (uint64_t i = 0; i < OPERATIONS; i++) {
        const story *s = &stories[i];
        hx_state state = peek(b, op_of(i), &found);
        if (!may_release(i)) assert_true(w->effects[i] <= 1);
        if (s->completed) assert_int_equal(state, HX_COMPLETED);
        if (s->completed) assert_int_equal(found.epoch, s->epoch);
        if (s->open && !may_release(i)) assert_true(state == HX_COMPLETED || state == HX_PROCESSING);
        if (state != HX_ABSENT) assert_true(found.epoch >= s->epoch);
        if (state != HX_COMPLETED) continue;
        answer(body, i, found.epoch);
        assert_true(hx_slice_eq(found.answer.body, hx_slice_of(body)));
        assert_int_equal(w->effects[i], 1);
    }
}

/* Lets processes work until all is done; the words that were said are the caller's to free. */
static word *race(bench *b, world *w, size_t *count)
{
    int pipes[2];
    pid_t children[PROCESSES];
    word *words = calloc(WORDS_MAX, sizeof *words);
    assert_non_null(words);
    assert_int_equal(pipe(pipes), 0);
    bench_begin(b, backend, (hx_store_options){0});
    bench_close(b);
    for (int i = 0; i < PROCESSES; i++) children[i] = begin_one(b, w, pipes);
    *count = listen_and_kill(b, w, pipes, children, words);
    close(pipes[1]);
    for (ssize_t n; *count < WORDS_MAX && (n = read(pipes[0], &words[*count], sizeof *words)) != 0; ++*count)
        assert_int_equal(n, sizeof *words);
    assert_int_equal(end_all(children), PROCESSES);
    close(pipes[0]);
    return words;
}

static world *new_world(void)
{
    world *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(w != MAP_FAILED);
    return w;
}

static void processes_race_and_die(void **state)
{
    (void)state;
    bench b;
    size_t count;
    static story stories[OPERATIONS];
    world *w = new_world();
    w->try_one = try_operation;
    word *words = race(&b, w, &count);
    assert_true(count > OPERATIONS / 2);
    judge_words(words, count, stories);
    bench_open(&b);
    judge_store(&b, w, stories);
    bench_end(&b);
    (void)munmap(w, sizeof *w);
    free(words);
}

#define COUNTERS 25u

static uint64_t read_count(bench *b, uint64_t number, hx_item *counter, char key[32])
{
    waited w;
    uint64_t count = 0;
    (void)snprintf(key, 32, "count/%llu", (unsigned long long)number);
    *counter = (hx_item){.key = hx_slice_of(key)};
    wait_start(b, &w);
    hx_store_get(b->store, &w.call, counter, 1);
    wait_for(b, &w);
    if (w.call.result != HX_STORE_OK) _exit(14);
    if (counter->version > 0 && !hx_slice_to_u64(counter->meta, &count)) _exit(15);
    return count;
}

/* Counts one of few counters up, and writes the new count down as an item of its own, in one commit. */
static void try_counter(bench *b, world *w, int pipe, uint64_t number)
{
    char key[32], entry[64], text[24];
    hx_item items[2];
    waited done;
    (void)w;
    number %= COUNTERS;
    uint64_t count = read_count(b, number, &items[0], key) + 1;
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)count);
    (void)snprintf(entry, sizeof entry, "entry/%llu/%s", (unsigned long long)number, text);
    items[0].meta = hx_slice_of(text);
    items[1] = (hx_item){.key = hx_slice_of(entry), .queue = HX_LIT("entries"), .meta = HX_EMPTY, .body = HX_EMPTY};
    wait_start(b, &done);
    hx_store_commit(b->store, &done.call, items, 2, false);
    wait_for(b, &done);
    if (done.call.result == HX_STORE_STALE) return; /* another was first */
    if (done.call.result != HX_STORE_OK) _exit(16);
    say(pipe, COUNTED, number, count);
}

static uint64_t count_entries(bench *b, uint64_t number)
{
    char prefix[32];
    uint64_t seen = 0;
    (void)snprintf(prefix, sizeof prefix, "entry/%llu/", (unsigned long long)number);
    hx_item_page page = {.prefix = hx_slice_of(prefix), .items_max = 100};
    do {
        waited w;
        wait_start(b, &w);
        hx_store_scan(b->store, &w.call, &page);
        wait_for(b, &w);
        assert_int_equal(w.call.result, HX_STORE_OK);
        seen += page.count;
        if (page.count > 0) page.after = page.items[page.count - 1];
    } while (page.more);
    return seen;
}

static int by_count(const void *a, const void *b)
{
    const word *one = a, *other = b;
    if (one->number != other->number) return one->number < other->number ? -1 : 1;
    return one->epoch < other->epoch ? -1 : one->epoch > other->epoch;
}

static void processes_that_commit_items_win_once_and_lose_nothing(void **state)
{
    (void)state;
    bench b;
    size_t count;
    world *w = new_world();
    w->try_one = try_counter;
    word *words = race(&b, w, &count);
    qsort(words, count, sizeof *words, by_count);
    bench_open(&b);
    uint64_t sum = 0, counts[COUNTERS];
    for (uint64_t i = 0; i < COUNTERS; i++) {
        char key[32];
        hx_item counter;
        counts[i] = read_count(&b, i, &counter, key);
        assert_int_equal(count_entries(&b, i), counts[i]); /* both items of a commit, or neither */
        sum += counts[i];
    }
    for (size_t i = 0; i < count; i++) {
        assert_true(words[i].epoch <= counts[words[i].number]);
        assert_true(i == 0 || by_count(&words[i - 1], &words[i]) < 0); /* no count was won twice */
    }
    assert_true(count > OPERATIONS);
    assert_true(sum >= count &&
                sum <= count + KILLS); /* a killed process has one commit at most that it has not told of */
    bench_end(&b);
    (void)munmap(w, sizeof *w);
    free(words);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_race_and_die),
                                       cmocka_unit_test(processes_that_commit_items_win_once_and_lose_nothing)};
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
