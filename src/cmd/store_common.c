/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/store_common.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "store/transfer/unfinished.h"
#include "config/address.h"
#include "core/json/json.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define EPOCH_ZERO_MS ((hx_ms)1577836800000) /* 2020, as the journal has it */
#define SPAN_AT_LEAST (10 * HX_SECOND)
#define NS_A_MS INT64_C(1000000)

int hx_cmd_store_refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fflush(stdout); /* what was reported comes before why it ended */
    (void)fprintf(stderr, "hapax store: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    return HX_EXIT_STORE;
}

uint64_t hx_epoch_by_clock(hx_ms now)
{
    return now > EPOCH_ZERO_MS ? (uint64_t)(now - EPOCH_ZERO_MS) * HX_EPOCHS_A_MS : 0;
}

uint64_t hx_epoch_of_next_generation(uint64_t last_epoch, hx_ms known_until)
{
    hx_ms now = hx_clock_now();
    uint64_t since = now > known_until ? (uint64_t)(now - known_until) : 0;
    uint64_t drawn = last_epoch + since * HX_EPOCHS_A_MS, by_clock = hx_epoch_by_clock(now);
    return (drawn > by_clock ? drawn : by_clock) + HX_GENERATION_EPOCHS;
}

int hx_place_check(hx_place *place, const char *url, hx_arena *arena)
{
    *place = (hx_place){.url = hx_slice_of(url)};
    place->shown = hx_arena_terminated(arena, hx_address_shown(place->url, arena));
    const char *wrong = hx_address_check_store(place->url, arena);
    if (wrong) return hx_cmd_misused("store", "a store %s", wrong);
    if (hx_slice_eq(place->url, HX_LIT("memory:")))
        return hx_cmd_misused("store", "memory: is gone with the process that has it, so nothing can be moved to it or "
                                       "from it");
    return -1;
}

/* The path that the URL names; NULL: it names none. */
static const char *path_of(hx_slice url)
{
    static const char *const kinds[] = {"journal:", "sqlite:"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (hx_slice_starts(url, hx_slice_of(kinds[i]))) return url.ptr + strlen(kinds[i]); /* it is terminated */
    return NULL;
}

bool hx_place_is_same(const hx_place *a, const hx_place *b)
{
    char real[2][PATH_MAX];
    const char *paths[2] = {path_of(a->url), path_of(b->url)};
    if (hx_slice_eq(a->url, b->url)) return true;
    return paths[0] && paths[1] && realpath(paths[0], real[0]) && realpath(paths[1], real[1]) &&
           strcmp(real[0], real[1]) == 0;
}

static bool is_journal(const hx_place *place)
{
    return hx_slice_starts(place->url, HX_LIT("journal:"));
}

/* A name in a journal's directory. */
static int open_in(const hx_place *place, const char *name)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", path_of(place->url), name);
    return length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static bool is_there(const hx_place *place)
{
    const char *path = path_of(place->url);
    if (!path || access(path, F_OK) == 0) {
        if (!is_journal(place)) return true;
        int fd = open_in(place, "FORMAT");
        if (fd >= 0) close(fd);
        return fd >= 0;
    }
    return false;
}

static bool is_in_use(const hx_place *place)
{
    int fd = is_journal(place) ? open_in(place, "lock") : -1;
    bool in_use = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0;
    if (fd >= 0) close(fd);
    return in_use;
}

static int look_at_source(const hx_place *place, hx_loop *loop, const hx_store_flags *flags)
{
    char error[HX_MOVE_ERROR_BYTES];
    hx_unfinished mark;
    uint64_t leased = 0;
    if (!hx_unfinished_read(place->store, loop, &mark)) return hx_cmd_store_refuse("%s can't be reached", place->shown);
    if (mark.unfinished)
        return hx_cmd_store_refuse("%s is not whole: the `hapax store %s` that makes it has not ended", place->shown,
                                   mark.by);
    if (!hx_store_about(place->store)->shared) return HX_EXIT_OK;
    if (!hx_move_leased(loop, place->store, &leased, error)) return hx_cmd_store_refuse("%s", error);
    if (leased > 0 && !flags->live)
        return hx_cmd_store_refuse(
            "a gateway is at work on %s: %" PRIu64
            " of its operations are under way. Stop all its gateways first; with --live it is done "
            "all the same, without what they do from now on",
            place->shown, leased);
    if (flags->live)
        (void)fprintf(stderr,
                      "hapax store: %s may be in use. What its gateways do from now on may be missing, and what is "
                      "under way is unknown in what is made here: let no gateway use both\n",
                      place->shown);
    return HX_EXIT_OK;
}

int hx_place_open_source(hx_place *place, hx_loop *loop, const hx_store_flags *flags, hx_salvage *salvage)
{
    char error[HX_STORE_ERROR_BYTES];
    if (salvage) salvage->moves_clock = true;
    if (!salvage && !is_there(place)) return hx_cmd_store_refuse("there is no store at %s", place->shown);
    if (is_in_use(place))
        return hx_cmd_store_refuse(
            "%s is in use: a gateway has it open, and nobody else can read it then. Stop the gateway "
            "first; or take a snapshot of the file system, and give a copy of the directory in it",
            place->shown);
    place->store = salvage ? hx_journal_salvage(hx_slice_of(path_of(place->url)), salvage, error)
                           : hx_store_open(place->url, &(hx_store_options){.moves_clock = true}, error);
    if (!place->store) return hx_cmd_store_refuse("%s", error);
    hx_store_attach(place->store, loop);
    return look_at_source(place, loop, flags);
}

int hx_place_open_target(hx_place *place, hx_loop *loop, const uint8_t secret[HX_SECRET_BYTES], const char *by,
                         uint64_t mark_epoch)
{
    char error[HX_STORE_ERROR_BYTES], trouble[HX_MOVE_ERROR_BYTES];
    hx_record mark = hx_unfinished_text(by, mark_epoch, NULL, NULL);
    hx_store_options options = {.moves_clock = true, .secret = secret, .mark = &mark};
    uint64_t leased = 0;
    place->store = hx_store_open(place->url, &options, error);
    if (!place->store) return hx_cmd_store_refuse("%s", error);
    hx_store_attach(place->store, loop);
    if (memcmp(hx_store_about(place->store)->secret, secret, HX_SECRET_BYTES) != 0)
        return hx_cmd_store_refuse(
            "%s has another secret, so it knows keys and callers by other names; give a new store", place->shown);
    if (!hx_store_about(place->store)->shared) return HX_EXIT_OK;
    if (!hx_move_leased(loop, place->store, &leased, trouble)) return hx_cmd_store_refuse("%s", trouble);
    if (leased > 0)
        return hx_cmd_store_refuse("a gateway is at work on %s: %" PRIu64
                                   " of its operations are under way; stop it first",
                                   place->shown, leased);
    return HX_EXIT_OK;
}

bool hx_cmd_store_tally(hx_tally *had, hx_tally *got, hx_loop *loop, hx_store *from, hx_backup_reader *file,
                        hx_store *to, int64_t took_ns, char error[HX_MOVE_ERROR_BYTES])
{
    hx_ms (*now)(void) = hx_store_about(to)->now;
    for (hx_ms span = SPAN_AT_LEAST + 4 * (took_ns / NS_A_MS);; span *= 2) {
        had->from = got->from = now();
        had->to = got->to = had->from + span;
        if (!hx_tally_run(had, loop, from, file, error) || !hx_tally_run(got, loop, to, NULL, error)) return false;
        if (now() < had->to) return true;
    }
}

bool hx_cmd_store_tally_is_same(const hx_tally *had, const hx_tally *got)
{
    return memcmp(had->states, got->states, sizeof had->states) == 0;
}

void hx_cmd_store_print_tally(const hx_tally *had, const hx_tally *got, const char *had_name, const char *got_name)
{
    int widths[2] = {(int)strlen(had_name), (int)strlen(got_name)};
    for (int i = 0; i < 2; i++)
        if (widths[i] < 12) widths[i] = 12;
    (void)printf("%-12s  %*s  %*s\n", "", widths[0], had_name, widths[1], got_name);
    for (hx_state state = HX_COMPLETED; state <= HX_EXPIRED; state++)
        (void)printf("%-12s  %*" PRIu64 "  %*" PRIu64 "%s\n", hx_state_name(state), widths[0], had->states[state],
                     widths[1], got->states[state], had->states[state] == got->states[state] ? "" : "  <- differs");
    if (had->ending > 0)
        (void)printf("%" PRIu64 " more end by themselves about now, and are not compared.\n", had->ending);
}

void hx_cmd_store_json_tally(const hx_tally *had, const hx_tally *got)
{
    for (hx_state state = HX_COMPLETED; state <= HX_EXPIRED; state++)
        (void)printf("%s\"%s\":{\"from\":%" PRIu64 ",\"to\":%" PRIu64 "}", state == HX_COMPLETED ? "" : ",",
                     hx_state_name(state), had->states[state], got->states[state]);
}

void hx_cmd_store_json_text(const char *text)
{
    hx_buf literal;
    hx_buf_init(&literal, NULL, 6 * strlen(text) + 3);
    bool fits = hx_json_escape(&literal, hx_slice_of(text));
    HX_CHECK(fits);
    (void)fwrite(literal.data, 1, literal.len, stdout);
    hx_buf_free(&literal);
}
