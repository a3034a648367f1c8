/* SPDX-License-Identifier: Apache-2.0 */
/* Several processes at work on one store, some of which are killed in the middle of it: each operation is won once, no
 * epoch is drawn twice, and what was acknowledged to anybody is there in the end. Run with the backend's name, of those
 * that processes share. */
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

typedef enum { CLAIMED, COMPLETED, RELEASED } event;

/* What a process says once it was acknowledged. */
typedef struct {
    event what;
    uint32_t number;
    uint64_t epoch;
} word;

/* Shared by all of them. */
typedef struct {
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

static void try_one(bench *b, world *w, int pipe, uint64_t number)
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
        if (number < OPERATIONS) try_one(b, w, pipe, number);
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

static void processes_race_and_die(void **state)
{
    (void)state;
    bench b;
    int pipes[2];
    pid_t children[PROCESSES];
    static story stories[OPERATIONS];
    word *words = calloc(WORDS_MAX, sizeof *words);
    world *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(words && w != MAP_FAILED);
    assert_int_equal(pipe(pipes), 0);
    bench_begin(&b, backend, (hx_store_options){0});
    bench_close(&b);
    for (int i = 0; i < PROCESSES; i++) children[i] = begin_one(&b, w, pipes);
    size_t count = listen_and_kill(&b, w, pipes, children, words);
    close(pipes[1]);
    for (ssize_t n; count < WORDS_MAX && (n = read(pipes[0], &words[count], sizeof *words)) != 0; count++)
        assert_int_equal(n, sizeof *words);
    assert_int_equal(end_all(children), PROCESSES);
    assert_true(count > OPERATIONS / 2);
    judge_words(words, count, stories);
    bench_open(&b);
    judge_store(&b, w, stories);
    bench_end(&b);
    close(pipes[0]);
    (void)munmap(w, sizeof *w);
    free(words);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    backend = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes_race_and_die)};
    return cmocka_run_group_tests_name(backend, tests, NULL, NULL);
}
