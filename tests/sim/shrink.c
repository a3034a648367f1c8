/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHOICES_MAX (1u << 20)
#define ATTEMPTS_MAX 20000u

/* What a process that runs apart leaves behind. */
typedef struct {
    sim_result result;
    uint32_t counts[SIM_LISTS];
    uint32_t values[CHOICES_MAX]; /* list after list */
} report;

static report *shared_report(void)
{
    static report *shared;
    if (shared) return shared;
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) hx_fatal(HX_EXIT_BUG, "no memory to share");
    shared = memory;
    return shared;
}

static void put_choices(report *shared, const sim_choices *made)
{
    uint32_t *to = shared->values;
    if (sim_choices_count(made) > CHOICES_MAX) return;
    for (unsigned i = 0; i < SIM_LISTS; i++) {
        const sim_list *list = &made->lists[i];
        shared->counts[i] = list->count;
        if (list->count > 0) memcpy(to, list->values, list->count * sizeof *to);
        to += list->count;
    }
}

static void take_choices(const report *shared, sim_choices *made)
{
    const uint32_t *from = shared->values;
    for (unsigned i = 0; i < SIM_LISTS; i++) {
        made->lists[i].count = 0;
        for (uint32_t k = 0; k < shared->counts[i]; k++) sim_list_append(&made->lists[i], *from++);
    }
}

void sim_run_apart(const sim_setup *setup, sim_result *result, sim_choices *made)
{
    report *shared = shared_report();
    memset(shared->counts, 0, sizeof shared->counts);
    shared->result = (sim_result){.failed = true};
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) hx_fatal(HX_EXIT_BUG, "can't fork");
    if (child == 0) {
        sim_run(setup, &shared->result);
        put_choices(shared, sim_choices_made());
        fflush(NULL);
        _exit(0);
    }
    int status;
    (void)waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        shared->result.failed = true;
        (void)snprintf(shared->result.failure, sizeof shared->result.failure, "the process lives: %s %d",
                       WIFSIGNALED(status) ? "signal" : "exit code",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    *result = shared->result;
    if (made) take_choices(shared, made);
}

/* The promise is what stands before the colon. */
static bool same_promise(const char *a, const char *b)
{
    size_t len = strcspn(a, ":");
    return strncmp(a, b, len + 1) == 0;
}

typedef struct {
    uint64_t seed;
    sim_choices *choices;
    sim_result *result;
    unsigned attempts;
} search;

static bool still_fails(search *s)
{
    sim_result result;
    if (s->attempts >= ATTEMPTS_MAX) return false;
    s->attempts++;
    sim_run_apart(&(sim_setup){.seed = s->seed, .choices = s->choices}, &result, NULL);
    if (!result.failed || !same_promise(s->result->failure, result.failure)) return false;
    *s->result = result;
    return true;
}

/* As few choices of this list as will do: none, or by halves. */
static bool shorten(search *s, sim_list *list)
{
    uint32_t whole = list->count, good = list->count, too_few = 0;
    if (whole == 0) return false;
    list->count = 0;
    if (still_fails(s)) return true;
    while (good - too_few > 1) {
        list->count = too_few + (good - too_few) / 2;
        if (still_fails(s))
            good = list->count;
        else
            too_few = list->count;
    }
    list->count = good;
    return good < whole;
}

/* Sets blocks of `len` choices to the quietest. */
static bool quieten(search *s, sim_list *list, uint32_t len)
{
    uint32_t kept[64];
    bool any = false;
    for (uint32_t at = 0; at < list->count; at += len) {
        uint32_t count = list->count - at < len ? list->count - at : len;
        bool matters = false;
        for (uint32_t i = 0; i < count; i++) matters = matters || list->values[at + i] != 0;
        if (!matters) continue;
        memcpy(kept, list->values + at, count * sizeof *kept);
        memset(list->values + at, 0, count * sizeof *kept);
        if (still_fails(s))
            any = true;
        else
            memcpy(list->values + at, kept, count * sizeof *kept);
    }
    return any;
}

void sim_shrink(uint64_t seed, sim_choices *choices, sim_result *result)
{
    search s = {.seed = seed, .choices = choices, .result = result};
    for (bool any = true; any && s.attempts < ATTEMPTS_MAX;) {
        any = false;
        for (unsigned i = SIM_LISTS; i-- > 0;) any = shorten(&s, &choices->lists[i]) || any;
        for (uint32_t len = 64; len > 0; len /= 4)
            for (unsigned i = 0; i < SIM_LISTS; i++) any = quieten(&s, &choices->lists[i], len) || any;
    }
}

bool sim_choices_save(const char *file, uint64_t seed, const sim_choices *choices)
{
    FILE *out = fopen(file, "we");
    if (!out) return false;
    fprintf(out, "seed %" PRIu64 "\n", seed);
    for (unsigned i = 0; i < SIM_LISTS; i++) {
        const sim_list *list = &choices->lists[i];
        if (list->count == 0) continue;
        fprintf(out, "list %u", i);
        for (uint32_t k = 0; k < list->count; k++)
            fprintf(out, "%s%" PRIu32, k % 24 == 23 ? "\n  " : " ", list->values[k]);
        fprintf(out, "\n");
    }
    return fclose(out) == 0;
}

bool sim_choices_load(const char *file, uint64_t *seed, sim_choices *choices)
{
    char word[32];
    uint64_t number;
    bool good = true;
    sim_list *list = NULL;
    FILE *in = fopen(file, "re");
    if (!in) return false;
    while (good && fscanf(in, "%31s", word) == 1) {
        bool is_list = strcmp(word, "list") == 0, is_seed = strcmp(word, "seed") == 0;
        if (is_list || is_seed) good = fscanf(in, "%31s", word) == 1;
        good = good && hx_slice_to_u64(hx_slice_of(word), &number) && (!is_list || number < SIM_LISTS);
        if (!good) break;
        if (is_seed)
            *seed = number;
        else if (is_list)
            list = &choices->lists[number];
        else if (list)
            sim_list_append(list, (uint32_t)number);
    }
    (void)fclose(in);
    return good;
}
