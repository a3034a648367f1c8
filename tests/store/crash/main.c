/* SPDX-License-Identifier: Apache-2.0 */
/* hxcrash: runs the workload under the shim, lets it die, and checks what is left. Each try is a process of its own,
 * forked from this one, which never opens a store itself and so stays without threads.
 *
 *     hxcrash FOLDER labels                what each point of a clean run is, one a line
 *     hxcrash FOLDER serve                 tries, one a line from standard input; one line back for each
 *     hxcrash FOLDER try MODE@POINT@SEED…  one try; several crashes in a row when several are given
 *     hxcrash FOLDER flips …               see flips.h
 *
 * FOLDER is emptied and filled again by every try. `sqlite` after it makes the store one in SQLite, not a journal. */
#include "flips.h"
#include "workload.h"

#include "base/check.h"
#include "base/log.h"
#include "base/program/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHAIN_MAX 4u
#define EXIT_REFUSED 5    /* the store did not open, and said why */
#define HANG_SECONDS 120u /* a try takes a fraction of a second; a stuck one is a finding, not a slow machine */

static const char *const mode_names[] = {
#define X(name, text) text,
    CRASH_MODES(X)
#undef X
};

static crash_shim_arm_fn *shim_arm;
static crash_shim_space_fn *shim_space;
static crash_report *report;
static char folder[PATH_MAX - 32], watch[PATH_MAX], lost[PATH_MAX], stderr_path[PATH_MAX], store_path[PATH_MAX];

static void *share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) hx_fatal(HX_EXIT_BUG, "no shared memory: %s", strerror(errno));
    return memory;
}

static void setup(const char *where)
{
    snprintf(folder, sizeof folder, "%s", where);
    snprintf(watch, sizeof watch, "%s/w", folder);
    snprintf(lost, sizeof lost, "%s/lost", folder);
    snprintf(stderr_path, sizeof stderr_path, "%s/stderr", folder);
    snprintf(store_path, sizeof store_path, "%s/w/store", folder);
    *(void **)&shim_arm = dlsym(RTLD_DEFAULT, "crash_shim_arm");
    *(void **)&shim_space = dlsym(RTLD_DEFAULT, "crash_shim_space");
    report = share(sizeof *report);
    the_world = share(sizeof *the_world);
}

static void clean(void)
{
    flips_empty_folder(folder);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) hx_fatal(HX_EXIT_USAGE, "can't make %s", folder);
    if (mkdir(watch, 0700) != 0 || mkdir(lost, 0700) != 0) hx_fatal(HX_EXIT_USAGE, "can't make %s", watch);
    atomic_store(&the_world->entries, 0);
    atomic_store(&the_world->now, 0);
    atomic_store(&the_world->claims_refused, 0);
    atomic_store(&the_world->claims_after, 0);
    the_world->trouble[0] = 0;
    report->trouble[0] = 0;
}

static void stderr_to_file(void)
{
    int fd = open(stderr_path, O_CREAT | O_WRONLY | O_APPEND, 0600);
    if (fd >= 0) dup2(fd, STDERR_FILENO);
    hx_log_threshold(HX_LOG_WARN);
    alarm(HANG_SECONDS);
}

static workload whole(crash_mode mode)
{
    return (workload){.folder = store_path,
                      .segment_bytes = SEGMENT_BYTES,
                      .batches = world_leases ? BATCHES / 3 : BATCHES, /* whose commits are many more calls */
                      .body_max = BODY_MAX,
                      .shim = mode == CRASH_FULL || mode == CRASH_ERROR ? report : NULL,
                      .space = mode == CRASH_FULL ? shim_space : NULL};
}

static _Noreturn void work(const crash_plan *plan)
{
    stderr_to_file();
    workload w = whole(plan->mode);
    hx_error_text error = "";
    world_recall();
    shim_arm(plan, report);
    if (!workload_try_open(&w, error)) {
        snprintf(the_world->trouble, sizeof the_world->trouble, "the store does not open: %s", error);
        _exit(EXIT_REFUSED);
    }
    workload_reconcile();
    workload_run(&w);
    workload_close();
    _exit(0);
}

static _Noreturn void look(const crash_plan *plan)
{
    stderr_to_file();
    workload w = whole(CRASH_COUNT);
    world_recall();
    workload_open(&w);
    workload_reconcile();
    if (plan->seed % 2 == 0) workload_close();
    _exit(0);
}

static _Noreturn void look_again(void)
{
    stderr_to_file();
    workload w = whole(CRASH_COUNT);
    world_recall();
    workload_open(&w);
    workload_compare("at the second start");
    workload_probe();
    workload_close();
    workload_audit();
    workload_open(&w);
    workload_compare("after new claims and a restart");
    workload_outlive();
    workload_close();
    workload_audit();
    workload_open(&w);
    workload_compare("a month later, after a restart");
    workload_close();
    workload_audit();
    _exit(0);
}

static int await(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0) HX_CHECK(errno == EINTR);
    return status;
}

static pid_t start(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) hx_fatal(HX_EXIT_BUG, "fork: %s", strerror(errno));
    return child;
}

static void read_stderr(char *out, size_t room)
{
    int fd = open(stderr_path, O_RDONLY);
    ssize_t len = fd >= 0 ? read(fd, out, room - 1) : 0;
    if (fd >= 0) close(fd);
    if (len < 0) len = 0;
    out[len] = 0;
    for (ssize_t i = 0; i < len; i++)
        if (out[i] == '\n') out[i] = ' ';
}

/* MODE@POINT@SEED, POINT a number or LABEL#NUMBER: that one of the points with the label. */
static bool parse(const char *text, crash_plan *plan)
{
    char mode[16], point[CRASH_LABEL_BYTES + 24];
    *plan = (crash_plan){.mode = CRASH_MODE_COUNT};
    /* NOLINTNEXTLINE(cert-err34-c): a number out of bounds is a point that is never reached */
    if (sscanf(text, "%15[a-z]@%63[^@]@%" SCNu64, mode, point, &plan->seed) != 3) return false;
    char *number = strrchr(point, '#');
    if (number) *number++ = 0;
    /* NOLINTNEXTLINE(cert-err34-c) */
    if (sscanf(number ? number : point, "%" SCNu64, &plan->point) != 1) return false;
    if (number) snprintf(plan->label, sizeof plan->label, "%.*s", (int)sizeof plan->label - 1, point);
    for (unsigned i = 0; i < CRASH_MODE_COUNT; i++)
        if (strcmp(mode, mode_names[i]) == 0) plan->mode = (crash_mode)i;
    snprintf(plan->watch, sizeof plan->watch, "%s", watch);
    snprintf(plan->lost, sizeof plan->lost, "%s", lost);
    return plan->mode != CRASH_MODE_COUNT;
}

/* NULL if the workload's process ended as the plan lets it. */
static const char *wrong_end(const crash_plan *plan, int status)
{
    bool fired = atomic_load(&report->fired) > 0;
    bool fails = plan->mode == CRASH_ERROR || plan->mode == CRASH_FULL;
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == SIGALRM) return "it hangs";
        return fired && WTERMSIG(status) == SIGKILL && !fails ? NULL : "it was ended by a signal";
    }
    char text[2048];
    read_stderr(text, sizeof text);
    switch (WEXITSTATUS(status)) {
    case 0:
        return !world_leases && plan->mode == CRASH_ERROR && atomic_load(&report->failed_syncs)
                   ? "it survived a failed sync"
                   : NULL;
    case HX_EXIT_STORE:
        if (plan->mode != CRASH_ERROR || !fired) return "it gave up the store";
        return strstr(text, "hapax: ") && strstr(text, watch) ? NULL : "it does not say which file failed";
    case EXIT_REFUSED:
        if (!fails || !fired) return the_world->trouble;
        return strstr(the_world->trouble, watch) ? NULL : "the refusal does not name the folder";
    case 1: return the_world->trouble[0] ? the_world->trouble : "it ended with exit code 1";
    default: return "it ended with an exit code that it shouldn't";
    }
}

static const char *fired_label(void)
{
    uint64_t fired = atomic_load(&report->fired);
    return fired > 0 && fired <= CRASH_POINTS_MAX ? report->label[fired - 1] : "";
}

static void fail(const char *what, int status)
{
    char text[2048];
    read_stderr(text, sizeof text);
    printf("FAIL <%s> %s [wait status %x] %s | %s\n", fired_label(), what, (unsigned)status, report->trouble, text);
}

/* One try: the crashes of `line` in a row, each at the next start, then the looks. Says how it went in one line. */
static void try_line(char *line)
{
    crash_plan chain[CHAIN_MAX];
    unsigned count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
        if (count == CHAIN_MAX || !parse(word, &chain[count++])) {
            printf("FAIL can't read the plan %s\n", word);
            return;
        }
    if (count == 0) {
        printf("FAIL there is no plan\n");
        return;
    }
    clean();
    bool fired = false;
    for (unsigned i = 0; i < count; i++) {
        chain[i].goes_on = i + 1 < count;
        pid_t child = start();
        if (child == 0) work(&chain[i]);
        int status = await(child);
        fired = atomic_load(&report->fired) > 0;
        const char *wrong = wrong_end(&chain[i], status);
        if (wrong) {
            fail(wrong, status);
            return;
        }
        unlink(stderr_path);
    }
    for (unsigned i = 0; i < 2; i++) {
        pid_t child = start();
        if (child == 0) {
            if (i == 0) look(&chain[count - 1]);
            look_again();
        }
        int status = await(child);
        if (status != 0) {
            fail(WIFSIGNALED(status) ? "the check was ended by a signal" : the_world->trouble, status);
            return;
        }
    }
    printf("%s <%s> refused=%u through=%u\n", fired ? "ok" : "unreached", fired_label(),
           atomic_load(&the_world->claims_refused), atomic_load(&the_world->claims_after));
}

static int labels(void)
{
    crash_plan plan;
    clean();
    if (!parse("count@0@0", &plan)) return HX_EXIT_BUG;
    pid_t child = start();
    if (child == 0) work(&plan);
    int status = await(child);
    if (status != 0) {
        fail(the_world->trouble[0] ? the_world->trouble : "a clean run does not end well", status);
        return 1;
    }
    uint64_t points = atomic_load(&report->points);
    for (uint64_t i = 0; i < points && i < CRASH_POINTS_MAX; i++) printf("%s\n", report->label[i]);
    return 0;
}

int main(int argc, char **argv)
{
    hx_process_init();
    if (argc < 3) hx_fatal(HX_EXIT_USAGE, "hxcrash FOLDER labels | serve | try MODE@POINT@SEED… | flips …");
    setup(argv[1]);
    world_leases = strcmp(argv[2], "sqlite") == 0;
    if (world_leases) argv++, argc--;
    if (argc < 3) hx_fatal(HX_EXIT_USAGE, "hxcrash: what shall be tried?");
    if (strcmp(argv[2], "flips") == 0) return flips_main(folder, argc - 3, argv + 3);
    if (!shim_arm || !shim_space) hx_fatal(HX_EXIT_USAGE, "hxcrash runs with the shim in LD_PRELOAD only");
    if (strcmp(argv[2], "labels") == 0) return labels();
    char line[512] = "";
    if (strcmp(argv[2], "serve") == 0) {
        while (fgets(line, sizeof line, stdin)) {
            try_line(line);
            fflush(stdout);
        }
        return 0;
    }
    size_t len = 0;
    for (int i = 3; i < argc && len < sizeof line; i++)
        len += (size_t)snprintf(line + len, sizeof line - len, "%s ", argv[i]);
    try_line(line);
    return 0;
}
