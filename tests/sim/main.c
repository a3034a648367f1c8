/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's command line: many runs on several processes, or one run printed event by event. */
#include "base/check.h"
#include "base/rand.h"
#include "coverage.h"
#include "run.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 64u
#define BUCKETS 512u /* of events a run, 8 each */

static const char usage[] =
    "usage: hxsim [--runs N] [--first SEED] [--jobs N] [--seconds N] [--keep-going] [--twice] [--json]\n"
    "       hxsim --seed SEED [--shrink] [--save FILE]\n"
    "       hxsim --choices FILE [--shrink] [--save FILE]\n"
    "\n"
    "  --runs N       so many runs, one for each seed (10000)\n"
    "  --first SEED   the first seed; the others follow it (drawn, and printed)\n"
    "  --jobs N       so many processes at once (as many as there are processors)\n"
    "  --seconds N    no more runs after so long\n"
    "  --keep-going   go on after a failure, and count\n"
    "  --twice        make each run twice and compare: a run is a function of its seed\n"
    "  --json         the report as JSON\n"
    "  --seed SEED    one run, with everything that happens in it\n"
    "  --shrink       make a failing run smaller, then show it\n"
    "  --save FILE    keep its choices\n"
    "  --choices FILE one run by choices that were kept\n"
    "\n"
    "Exit code: 0 when every promise held, 1 when one was broken, 2 for wrong use.\n";

typedef struct {
    uint64_t runs, first, jobs, seconds;
    uint64_t seed;
    bool one, has_first, keep_going, twice, json, shrink;
    const char *choices, *save;
} options;

/* What a process tells while it works. */
typedef struct {
    uint64_t seed; /* under way */
    uint64_t runs, events, failures;
    hx_ms simulated;
    uint64_t failed_seed;
    char failure[2048];
    uint32_t events_of_runs[BUCKETS];
    sim_coverage coverage;
} share;

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void note_failure(share *s, uint64_t seed, const char *failure)
{
    if (s->failures++ > 0) return;
    s->failed_seed = seed;
    (void)snprintf(s->failure, sizeof s->failure, "%s", failure);
}

static void run_seed(const options *o, share *s, uint64_t seed)
{
    sim_result result, again;
    s->seed = seed;
    sim_setup setup = {.seed = seed};
    sim_run(&setup, &result);
    if (o->twice && !result.failed) {
        sim_run(&setup, &again);
        if (again.hash != result.hash || again.events != result.events)
            note_failure(s, seed, "a run is a function of its seed: it went another way the second time");
    }
    if (result.failed) note_failure(s, seed, result.failure);
    if (result.failed && o->keep_going) fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, result.failure);
    s->runs++;
    s->events += result.events;
    s->simulated += result.simulated;
    s->events_of_runs[result.events / 8 < BUCKETS ? result.events / 8 : BUCKETS - 1]++;
}

static void work(const options *o, share *s, uint64_t at, double until)
{
    sim_coverage_here = &s->coverage;
    for (; at < o->runs; at += o->jobs) {
        run_seed(o, s, o->first + at);
        if (s->failures > 0 && !o->keep_going) break;
        if (s->runs % 16 == 0 && until > 0 && seconds_now() > until) break;
    }
}

static void show_progress(const options *o, const share *shares, double began)
{
    uint64_t runs = 0;
    for (uint64_t i = 0; i < o->jobs; i++) runs += shares[i].runs;
    double spent = seconds_now() - began, part = (double)runs / (double)o->runs;
    if (o->seconds > 0 && spent / (double)o->seconds > part) part = spent / (double)o->seconds;
    if (part > 1) part = 1;
    int bar = (int)(part * 40);
    fprintf(stderr, "\r[%.*s%*s] %3d %%  %" PRIu64 " runs, %.0f a second ", bar,
            "########################################", 40 - bar, "", (int)(part * 100), runs,
            (double)runs / (spent > 0 ? spent : 1));
}

/* Ends with all processes; one that died of a signal leaves the seed that it was at. */
static void wait_for_all(const options *o, share *shares, const pid_t *children, double began)
{
    bool tty = isatty(STDERR_FILENO);
    uint64_t left = o->jobs;
    while (left > 0) {
        int status;
        pid_t ended = waitpid(-1, &status, tty ? WNOHANG : 0);
        if (ended == 0) {
            show_progress(o, shares, began);
            nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
            continue;
        }
        if (ended < 0) break;
        left--;
        bool failed = false;
        for (uint64_t i = 0; i < o->jobs; i++) {
            if (children[i] == ended && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
                note_failure(&shares[i], shares[i].seed, "the process lives: it ended in the middle of a run");
            failed = failed || shares[i].failures > 0;
        }
        for (uint64_t i = 0; failed && !o->keep_going && i < o->jobs; i++)
            if (children[i] != ended) (void)kill(children[i], SIGUSR1);
    }
    if (tty) fprintf(stderr, "\r%80s\r", "");
}

static uint64_t median_events(const share *sum)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++)
        if ((seen += sum->events_of_runs[i]) * 2 >= sum->runs) return (uint64_t)i * 8 + 4;
    return 0;
}

static void add_up(share *sum, const share *shares, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const share *s = &shares[i];
        if (s->failures > 0 && sum->failures == 0) {
            sum->failed_seed = s->failed_seed;
            memcpy(sum->failure, s->failure, sizeof sum->failure);
        }
        sum->runs += s->runs;
        sum->events += s->events;
        sum->failures += s->failures;
        sum->simulated += s->simulated;
        for (unsigned k = 0; k < BUCKETS; k++) sum->events_of_runs[k] += s->events_of_runs[k];
        sim_coverage_add(&sum->coverage, &s->coverage);
    }
}

static void print_json(const options *o, const share *sum, double spent)
{
    printf("{\n  \"first\": %" PRIu64 ", \"runs\": %" PRIu64 ", \"failures\": %" PRIu64 ",\n", o->first, sum->runs,
           sum->failures);
    if (sum->failures > 0) {
        printf("  \"failed_seed\": %" PRIu64 ", \"failure\": \"", sum->failed_seed);
        for (const char *c = sum->failure; *c; c++) {
            if (*c == '"' || *c == '\\') printf("\\");
            printf("%c", *c < ' ' ? ' ' : *c);
        }
        printf("\",\n");
    }
    printf("  \"seconds\": %.3f, \"runs_a_second\": %.1f, \"median_events\": %" PRIu64 ", \"events\": %" PRIu64 ",\n",
           spent, (double)sum->runs / spent, median_events(sum), sum->events);
    sim_coverage_json(&sum->coverage);
    printf("}\n");
}

static void print_report(const options *o, const share *sum, double spent)
{
    printf("%" PRIu64 " runs from seed %" PRIu64 " in %.1f s: %.0f a second on %" PRIu64
           " processes; median of %" PRIu64 " events, %.0f hours simulated\n",
           sum->runs, o->first, spent, (double)sum->runs / spent, o->jobs, median_events(sum),
           (double)sum->simulated / (double)HX_HOUR);
    sim_coverage_print(&sum->coverage);
    if (sum->failures == 0) {
        printf("\nevery promise held\n");
        return;
    }
    printf("\nFAILED %" PRIu64 " times; first with seed %" PRIu64 ":\n  %s\n\n  %s --seed %" PRIu64
           "            shows it\n  %s --seed %" PRIu64 " --shrink   makes it smaller\n",
           sum->failures, sum->failed_seed, sum->failure, sim_command, sum->failed_seed, sim_command, sum->failed_seed);
}

static void stop_early(int number)
{
    (void)number;
    _exit(0);
}

static int run_many(options *o)
{
    size_t bytes = sizeof(share) * (o->jobs + 1);
    share *shares = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shares == MAP_FAILED) hx_fatal(HX_EXIT_BUG, "no memory to share");
    pid_t children[JOBS_MAX];
    double began = seconds_now(), until = o->seconds > 0 ? began + (double)o->seconds : 0;
    fflush(NULL);
    signal(SIGUSR1, SIG_IGN);
    for (uint64_t i = 0; i < o->jobs; i++) {
        children[i] = fork();
        if (children[i] < 0) hx_fatal(HX_EXIT_BUG, "can't fork");
        if (children[i] == 0) {
            signal(SIGUSR1, stop_early);
            work(o, &shares[i], i, until);
            _exit(0);
        }
    }
    wait_for_all(o, shares, children, began);
    share *sum = &shares[o->jobs];
    add_up(sum, shares, o->jobs);
    double spent = seconds_now() - began;
    if (o->json)
        print_json(o, sum, spent);
    else
        print_report(o, sum, spent);
    return sum->failures > 0 ? 1 : 0;
}

static int run_one(const options *o)
{
    static sim_coverage coverage;
    static sim_choices choices, made;
    sim_result result;
    uint64_t seed = o->seed;
    sim_coverage_here = &coverage;
    if (o->choices && !sim_choices_load(o->choices, &seed, &choices)) {
        fprintf(stderr, "hxsim: can't read %s: %s\n", o->choices, strerror(errno));
        return 2;
    }
    sim_setup setup = {.seed = seed, .choices = o->choices ? &choices : NULL, .trace = !o->shrink};
    sim_run_apart(&setup, &result, &made);
    if (o->shrink && result.failed && sim_choices_count(&made) > 0) {
        uint64_t before = sim_choices_count(&made);
        sim_shrink(seed, &made, &result);
        sim_run_apart(&(sim_setup){.seed = seed, .choices = &made, .trace = true}, &result, NULL);
        printf("\n%" PRIu64 " choices are left of %" PRIu64 "\n", sim_choices_count(&made), before);
    }
    if (o->save && !sim_choices_save(o->save, seed, &made)) fprintf(stderr, "hxsim: can't write %s\n", o->save);
    printf("\nseed %" PRIu64 ": %u events in %.1f simulated seconds, hash %016" PRIx64 "\n%s%s\n", seed, result.events,
           (double)result.simulated / 1000, result.hash, result.failed ? "FAILED: " : "every promise held",
           result.failed ? result.failure : "");
    return result.failed ? 1 : 0;
}

static bool number_of(const char *text, uint64_t *out)
{
    return hx_slice_to_u64(hx_slice_of(text), out);
}

static bool read_options(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        {"runs", required_argument, NULL, 'r'},
        {"first", required_argument, NULL, 'f'},
        {"jobs", required_argument, NULL, 'j'},
        {"seconds", required_argument, NULL, 't'},
        {"seed", required_argument, NULL, 's'},
        {"choices", required_argument, NULL, 'c'},
        {"save", required_argument, NULL, 'o'},
        {"keep-going", no_argument, NULL, 'k'},
        {"twice", no_argument, NULL, '2'},
        {"json", no_argument, NULL, 'J'},
        {"shrink", no_argument, NULL, 'S'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    bool good = true;
    for (int c; good && (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (c) {
        case 'r': good = number_of(optarg, &o->runs) && o->runs > 0; break;
        case 'f': good = o->has_first = number_of(optarg, &o->first); break;
        case 'j': good = number_of(optarg, &o->jobs) && o->jobs > 0 && o->jobs <= JOBS_MAX; break;
        case 't': good = number_of(optarg, &o->seconds) && o->seconds > 0; break;
        case 's': good = o->one = number_of(optarg, &o->seed); break;
        case 'c': o->choices = optarg; break;
        case 'o': o->save = optarg; break;
        case 'k': o->keep_going = true; break;
        case '2': o->twice = true; break;
        case 'J': o->json = true; break;
        case 'S': o->shrink = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: good = false;
        }
    }
    return good && optind == argc;
}

int main(int argc, char **argv)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    options o = {.runs = 10000, .jobs = processors > 0 && processors < (long)JOBS_MAX ? (uint64_t)processors : 1};
    if (!read_options(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!o.has_first) o.first = hx_rand_u64() >> 20;
    return o.one || o.choices ? run_one(&o) : run_many(&o);
}
