/* SPDX-License-Identifier: Apache-2.0 */
/* A process of its own tries one offset after the other on a fresh copy of the files, and tells its parent how far it
 * is: should it die, the parent knows at which offset, and goes on behind it. */
#include "flips.h"

#include "workload.h"

#include "base/check.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES_MAX 64u
#define SMALL_SEGMENT_BYTES (16u * 1024u)
#define SMALL_BATCHES 24u
#define SMALL_BODY_MAX 1500u
#define HANG_SECONDS 60u
#define SHOWN_MAX 20u

#define VERDICTS(X)                                                                                                    \
    X(HARMLESS, "harmless")                                                                                            \
    X(REFUSED, "refused")                                                                                              \
    X(REPORTED, "reported as unreadable")                                                                              \
    X(CUT, "last commit cut silently")                                                                                 \
    X(WRONG, "wrong")

typedef enum {
#define X(name, text) name,
    VERDICTS(X)
#undef X
        VERDICT_COUNT
} verdict;

typedef struct {
    char path[PATH_MAX];
    unsigned char *bytes;
    size_t len;
} image_file;

typedef struct {
    _Atomic uint64_t next; /* the try that is being made */
    _Atomic uint64_t count[FILES_MAX][VERDICT_COUNT];
} progress;

static image_file image[FILES_MAX];
static size_t file_count;
static model model_after, model_before; /* the last commit */
static uint32_t entries_after;
static hx_ms now_after;
static uint8_t secret[32];
static progress *shared;
static bool cuts;
static unsigned char bits;
static uint64_t zeros_step;
static char store_path[PATH_MAX], stderr_path[PATH_MAX];
static workload small;

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)ftw;
    return kind == FTW_DP ? rmdir(path) : unlink(path);
}

void flips_empty_folder(const char *folder)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static int load_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)ftw;
    if (kind != FTW_F) return 0;
    HX_CHECK(file_count < FILES_MAX);
    image_file *f = &image[file_count++];
    snprintf(f->path, sizeof f->path, "%s", path);
    f->len = (size_t)st->st_size;
    f->bytes = malloc(f->len + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    HX_CHECK(f->bytes && fd >= 0 && read(fd, f->bytes, f->len) == (ssize_t)f->len);
    close(fd);
    return 0;
}

/* The files as they were, but for one of them: damaged at `at`. */
static void restore(const image_file *damaged, size_t at)
{
    flips_empty_folder(store_path);
    HX_CHECK(mkdir(store_path, 0700) == 0);
    for (size_t i = 0; i < file_count; i++) {
        image_file *f = &image[i];
        int fd = open(f->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        size_t len = f == damaged && cuts ? at : f->len;
        if (f == damaged && !cuts) f->bytes[at] ^= bits;
        HX_CHECK(fd >= 0 && write(fd, f->bytes, len) == (ssize_t)len);
        if (f == damaged && !cuts) f->bytes[at] ^= bits;
        close(fd);
    }
}

/* Whether a refused start has left all bytes where they were. */
static bool untouched(const image_file *damaged, size_t at)
{
    for (size_t i = 0; i < file_count; i++) {
        image_file *f = &image[i];
        size_t len = f == damaged && cuts ? at : f->len;
        int fd = open(f->path, O_RDONLY | O_CLOEXEC);
        char *now = malloc(f->len + 1);
        HX_CHECK(now);
        ssize_t got = fd >= 0 ? read(fd, now, f->len + 1) : -1;
        if (fd >= 0) close(fd);
        if (f == damaged && !cuts) f->bytes[at] ^= bits;
        bool same = got == (ssize_t)len && memcmp(now, f->bytes, len) == 0;
        if (f == damaged && !cuts) f->bytes[at] ^= bits;
        free(now);
        if (!same) return false;
    }
    return true;
}

static off_t stderr_size(void)
{
    struct stat st;
    return fstat(STDERR_FILENO, &st) == 0 ? st.st_size : 0;
}

/* NULL or what is wrong. A refusal names the folder, and the way out of it. */
static const char *refusal(const char *error, const image_file *f, size_t at)
{
    if (!untouched(f, at)) return "a refused start changed the files";
    if (!strstr(error, store_path)) return "the refusal does not name the folder";
    if (!strstr(error, "hapax store salvage") && !strstr(error, "from a copy") &&
        !strstr(error, "use the newer program") && !strstr(error, "use that program"))
        return "the refusal does not say what to do";
    return NULL;
}

static verdict verdict_of(uint32_t op, bool reported)
{
    hx_record found = {0};
    hx_arena arena = {0};
    if (!workload_peek(op, &arena, &found)) found.state = HX_ABSENT;
    const truth *t = &model_after.op[op];
    verdict v = WRONG;
    if (!record_differs(op, t, truth_state(t, now_after), &found))
        v = HARMLESS;
    else if (reported && found.state == HX_UNKNOWN)
        v = REPORTED;
    else if (!record_differs(op, &model_before.op[op], truth_state(&model_before.op[op], now_after), &found))
        v = CUT;
    hx_arena_free(&arena);
    return v;
}

/* A commit that was cut is gone with all its items. */
static verdict verdict_of_items(char why[static 256])
{
    bool unreadable = false;
    const char *what = workload_items_differ(&model_after.items, &unreadable);
    if (!what) return unreadable ? REPORTED : HARMLESS;
    snprintf(why, 256, "%s", what);
    return workload_items_differ(&model_before.items, NULL) ? WRONG : CUT;
}

static verdict try_one(const image_file *f, size_t at, char why[static 256])
{
    hx_error_text error = "";
    restore(f, at);
    atomic_store(&the_world->entries, entries_after);
    the_model = model_after;
    off_t said = stderr_size();
    if (!workload_try_open(&small, error)) {
        const char *wrong = refusal(error, f, at);
        snprintf(why, 256, "%s: %.180s", wrong ? wrong : "", error);
        return wrong ? WRONG : REFUSED;
    }
    verdict worst = HARMLESS;
    if (memcmp(workload_facts()->secret, secret, sizeof secret) != 0) {
        snprintf(why, 256, "the secret is another one");
        worst = WRONG;
    }
    for (uint32_t op = 0; op < OPS; op++) {
        verdict v = verdict_of(op, false);
        if (v == WRONG) v = verdict_of(op, stderr_size() > said);
        if (v > worst) {
            worst = v;
            snprintf(why, 256, "operation %u, which was %s", op, hx_state_name(model_after.op[op].state));
        }
    }
    char items_why[256] = "";
    verdict of_items = verdict_of_items(items_why);
    if (of_items > worst) {
        worst = of_items;
        snprintf(why, 256, "%s", items_why);
    }
    uint64_t epoch = workload_fresh_epoch();
    if (epoch <= (worst == CUT ? model_before : model_after).epoch_max && worst != WRONG) {
        worst = WRONG;
        snprintf(why, 256, "the epoch %" PRIu64 " was used before", epoch);
    }
    workload_close();
    return worst;
}

/* Which byte of which file a try is about; false: it is left out. */
static bool place_of(uint64_t number, image_file **f, size_t *at)
{
    for (size_t i = 0; i < file_count; i++) {
        if (number < image[i].len) {
            *f = &image[i];
            *at = (size_t)number;
            return image[i].bytes[number] != 0 || number % zeros_step == 0;
        }
        number -= image[i].len;
    }
    return false;
}

static uint64_t tries_in_all(void)
{
    uint64_t total = 0;
    for (size_t i = 0; i < file_count; i++) total += image[i].len;
    return total;
}

static const char *name_of(const image_file *f)
{
    return f->path + strlen(store_path) + 1;
}

static _Noreturn void try_from(uint64_t first, uint64_t step)
{
    int fd = open(stderr_path, O_CREAT | O_WRONLY | O_APPEND | O_TRUNC, 0600);
    if (fd >= 0) dup2(fd, STDERR_FILENO);
    hx_log_threshold(HX_LOG_WARN);
    unsigned shown = 0;
    for (uint64_t n = first; n < tries_in_all(); n += step) {
        image_file *f;
        size_t at;
        char why[256] = "";
        atomic_store(&shared->next, n);
        if (!place_of(n, &f, &at)) continue;
        alarm(HANG_SECONDS);
        verdict v = try_one(f, at, why);
        atomic_fetch_add(&shared->count[f - image][v], 1);
        if (v >= CUT && shown++ < SHOWN_MAX)
            printf("%s %s at %zu of %zu (it was %02x): %s\n", v == CUT ? "CUT" : "FAIL", name_of(f), at, f->len,
                   f->bytes[at], why);
    }
    fflush(stdout);
    _exit(0);
}

static void recall_until(uint32_t entries)
{
    atomic_store(&the_world->entries, entries);
    world_recall();
}

/* What was processing has become unknown by the time we look. */
static model looked_at_later(void)
{
    model m = the_model;
    for (uint32_t op = 0; op < OPS; op++)
        if (m.op[op].state == HX_PROCESSING) m.op[op].state = HX_UNKNOWN;
    return m;
}

static void remember_truth(void)
{
    entries_after = atomic_load(&the_world->entries);
    now_after = world_now();
    uint32_t last = entries_after - 1;
    while (!(the_world->entry[last].kind == ENTRY_ANSWERED && the_world->entry[last].result == HX_STORE_OK)) last--;
    while (the_world->entry[last].kind != ENTRY_BATCH) last--;
    recall_until(last);
    model_before = looked_at_later();
    recall_until(entries_after);
    model_after = looked_at_later();
}

static void make_image(bool closed)
{
    pid_t child = fork();
    HX_CHECK(child >= 0);
    if (child == 0) {
        workload_open(&small);
        workload_run(&small);
        memcpy(the_world->trouble, workload_facts()->secret, sizeof secret);
        if (closed) workload_close();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0) hx_fatal(HX_EXIT_BUG, "no small log: %s", the_world->trouble);
    memcpy(secret, the_world->trouble, sizeof secret);
    remember_truth();
    nftw(store_path, load_entry, 16, FTW_PHYS);
}

static int summary(void)
{
    static const char *const names[] = {
#define X(name, text) text,
        VERDICTS(X)
#undef X
    };
    int failed = 0;
    for (size_t i = 0; i < file_count; i++) {
        printf("COUNT %s (%zu bytes)", name_of(&image[i]), image[i].len);
        for (unsigned v = 0; v < VERDICT_COUNT; v++)
            if (shared->count[i][v] > 0) printf("; %s: %" PRIu64, names[v], atomic_load(&shared->count[i][v]));
        printf("\n");
        failed += shared->count[i][WRONG] > 0;
    }
    return failed > 0;
}

int flips_main(const char *folder, int argc, char **argv)
{
    if (argc != 6) hx_fatal(HX_EXIT_USAGE, "flips closed|killed flip|cut BITS PART PARTS STEP");
    snprintf(store_path, sizeof store_path, "%s/store", folder);
    snprintf(stderr_path, sizeof stderr_path, "%s/stderr", folder);
    cuts = strcmp(argv[1], "cut") == 0;
    bits = (unsigned char)strtoul(argv[2], NULL, 0);
    uint64_t part = strtoul(argv[3], NULL, 0), parts = strtoul(argv[4], NULL, 0);
    zeros_step = strtoul(argv[5], NULL, 0);
    if (parts == 0 || zeros_step == 0 || (bits == 0 && !cuts)) hx_fatal(HX_EXIT_USAGE, "numbers above 0, please");
    small = (workload){.folder = store_path,
                       .segment_bytes = SMALL_SEGMENT_BYTES,
                       .batches = SMALL_BATCHES,
                       .body_max = SMALL_BODY_MAX};
    flips_empty_folder(folder);
    if (mkdir(folder, 0700) != 0) hx_fatal(HX_EXIT_USAGE, "can't make %s: %s", folder, strerror(errno));
    make_image(strcmp(argv[0], "closed") == 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    HX_CHECK(shared != MAP_FAILED);
    for (uint64_t first = part; first < tries_in_all();) {
        fflush(stdout);
        pid_t child = fork();
        HX_CHECK(child >= 0);
        if (child == 0) try_from(first, parts);
        int status;
        waitpid(child, &status, 0);
        if (status == 0) break;
        image_file *f = image;
        size_t at = 0;
        uint64_t died_at = atomic_load(&shared->next);
        place_of(died_at, &f, &at);
        atomic_fetch_add(&shared->count[f - image][WRONG], 1);
        printf("FAIL %s at %zu of %zu: the process died, wait status %x\n", name_of(f), at, f->len, (unsigned)status);
        first = died_at + parts;
    }
    return summary();
}
