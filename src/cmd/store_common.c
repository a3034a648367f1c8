/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/store_common.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "config/address.h"
#include "core/json/json_writer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define SPAN_AT_LEAST (10 * HX_SECOND)
#define NS_A_MS INT64_C(1000000)

int hx_cmd_store_refuse(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fflush(stdout); /* the report comes before the error */
    (void)fprintf(stderr, "hapax store: ");
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
    return HX_EXIT_STORE;
}

int hx_place_check(hx_place *place, const char *url, hx_arena *arena)
{
    *place = (hx_place){.url = hx_slice_of(url)};
    place->shown = hx_arena_terminated(arena, hx_address_shown(place->url, arena));
    const char *wrong = hx_address_check_store(place->url, arena);
    if (wrong) return hx_cmd_misused("store", "a store %s", wrong);
    if (hx_slice_eq(place->url, HX_LIT("memory:")))
        return hx_cmd_misused("store",
                              "memory: is gone when its process ends, so nothing can be moved to it or from it");
    return -1;
}

/* The path in the URL, NULL for a database server. The URL ends with a NUL. */
static const char *path_of(hx_slice url)
{
    static const char *const kinds[] = {"journal:", "sqlite:"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (hx_slice_starts(url, hx_slice_of(kinds[i]))) return url.ptr + strlen(kinds[i]);
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

/* Opens a file of a journal's directory. */
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

static int check_source(const hx_place *place, hx_loop *loop, const hx_store_flags *flags)
{
    char error[HX_TRANSFER_ERROR_BYTES];
    uint64_t leased = 0;
    if (!hx_store_about(place->store)->shared) return HX_EXIT_OK;
    if (!hx_transfer_leased(loop, place->store, &leased, error)) return hx_cmd_store_refuse("%s", error);
    if (leased > 0 && !flags->live)
        return hx_cmd_store_refuse("%s is in use: %" PRIu64 " of its operations are in flight. Stop all its gateways "
                                   "first, or use --live to go on without what they do from now on",
                                   place->shown, leased);
    if (flags->live)
        (void)fprintf(stderr,
                      "hapax store: %s may be in use. What its gateways do from now on may be missing, and operations "
                      "in flight become unknown. Never let gateways use both stores\n",
                      place->shown);
    return HX_EXIT_OK;
}

int hx_place_open_source(hx_place *place, hx_loop *loop, const hx_store_flags *flags, hx_salvage *salvage,
                         hx_backup_about *about, hx_unfinished *note)
{
    hx_error_text error;
    if (salvage) salvage->moves_clock = true;
    if (!salvage && !is_there(place)) return hx_cmd_store_refuse("there is no store at %s", place->shown);
    if (is_in_use(place))
        return hx_cmd_store_refuse("%s is in use: a gateway has it open. Stop the gateway first, or take a snapshot of "
                                   "the file system and give the directory in it",
                                   place->shown);
    place->store = salvage ? hx_journal_salvage(hx_slice_of(path_of(place->url)), salvage, error)
                           : hx_store_open(place->url, &(hx_store_options){.moves_clock = true}, error);
    if (!place->store) return hx_cmd_store_refuse("%s", error);
    hx_store_attach(place->store, loop);
    if (!hx_unfinished_read(place->store, loop, note)) return hx_cmd_store_refuse("%s can't be reached", place->shown);
    if (note->unfinished)
        return hx_cmd_store_refuse("%s is not whole: the `hapax store %s` that fills it has not ended. Run that again "
                                   "first",
                                   place->shown, note->by);
    uint64_t last_epoch;
    if (!hx_store_last_epoch(place->store, &last_epoch, error)) return hx_cmd_store_refuse("%s", error);
    hx_store_counts counts;
    hx_store_count(place->store, &counts);
    *about = (hx_backup_about){.taken_at = hx_store_about(place->store)->now(),
                               .last_epoch = last_epoch,
                               .generation = note->generation,
                               .count = counts.live + counts.processing - note->is_there};
    memcpy(about->secret, hx_store_about(place->store)->secret, sizeof about->secret);
    (void)snprintf(about->source, sizeof about->source, "%s", place->shown);
    return check_source(place, loop, flags);
}

/* Whether the store can be filled by `by`: HX_EXIT_OK, or an exit code after a message. */
static int check_target(const hx_place *place, hx_loop *loop, const uint8_t secret[HX_SECRET_BYTES], const char *by,
                        hx_unfinished *note)
{
    char error[HX_TRANSFER_ERROR_BYTES];
    bool empty = false;
    if (memcmp(hx_store_about(place->store)->secret, secret, HX_SECRET_BYTES) != 0)
        return hx_cmd_store_refuse("%s is another store: it has another secret. Give a new store", place->shown);
    if (!hx_unfinished_read(place->store, loop, note)) return hx_cmd_store_refuse("%s can't be reached", place->shown);
    if (note->unfinished)
        return strcmp(note->by, by) == 0
                   ? HX_EXIT_OK
                   : hx_cmd_store_refuse(
                         "%s is the beginning of a %s that has not ended. Remove it, or give a new store", place->shown,
                         note->by);
    if (!hx_transfer_is_empty(loop, place->store, &empty, error)) return hx_cmd_store_refuse("%s", error);
    return empty && !note->is_there
               ? HX_EXIT_OK
               : hx_cmd_store_refuse("%s is not empty, and nothing in it was changed. Give a new store", place->shown);
}

static void ignore(void *context, const char *sentence)
{
    (void)context, (void)sentence;
}

/* A journal that is opened appends to its log, so an existing one is first opened to be read only. */
static int check_journal(hx_place *place, hx_loop *loop, const uint8_t secret[HX_SECRET_BYTES], const char *by,
                         hx_unfinished *note)
{
    hx_error_text error;
    hx_salvage found = {.report = ignore, .moves_clock = true};
    place->store = hx_journal_salvage(hx_slice_of(path_of(place->url)), &found, error);
    if (!place->store) return hx_cmd_store_refuse("%s", error);
    hx_store_attach(place->store, loop);
    int code = check_target(place, loop, secret, by, note);
    hx_store_close(&place->store);
    return code;
}

int hx_place_open_target(hx_place *place, hx_loop *loop, const hx_store_flags *flags,
                         const uint8_t secret[HX_SECRET_BYTES], const char *by, uint64_t epoch, hx_unfinished *note)
{
    char trouble[HX_TRANSFER_ERROR_BYTES];
    hx_error_text error;
    hx_record unfinished = hx_unfinished_record(by, epoch);
    hx_store_options options = {.secret = secret, .unfinished = &unfinished, .moves_clock = true};
    int code = is_journal(place) && is_there(place) ? check_journal(place, loop, secret, by, note) : HX_EXIT_OK;
    if (code != HX_EXIT_OK) return code;
    place->store = hx_store_open(place->url, &options, error);
    if (!place->store) return hx_cmd_store_refuse("%s", error);
    hx_store_attach(place->store, loop);
    code = check_target(place, loop, secret, by, note);
    if (code != HX_EXIT_OK) return code;
    hx_store_result result = note->unfinished ? hx_unfinished_take_over(place->store, loop, note)
                                              : hx_unfinished_begin(place->store, loop, by, epoch, note);
    if (result == HX_STORE_STALE || result == HX_STORE_EXISTS)
        return hx_cmd_store_refuse("another process fills %s, too: wait until it has ended", place->shown);
    if (result != HX_STORE_OK) return hx_cmd_store_refuse("%s can't be written to", place->shown);
    hx_progress_bar progress;
    hx_progress_begin(&progress, "clearing", 0, flags->json);
    if (!hx_transfer_clear(place->store, loop, &progress, trouble) ||
        !hx_transfer_raise(loop, place->store, epoch, trouble))
        return hx_cmd_store_refuse("%s. %s is not whole, and no gateway starts on it: run the same command again",
                                   trouble, place->shown);
    return HX_EXIT_OK;
}

bool hx_cmd_store_tally(hx_tally *had, hx_tally *got, hx_loop *loop, hx_store *from, hx_backup_reader *file,
                        hx_store *to, int64_t took_ns, char error[HX_TRANSFER_ERROR_BYTES])
{
    hx_ms (*now)(void) = hx_store_about(to)->now;
    for (hx_ms span = SPAN_AT_LEAST + 4 * (took_ns / NS_A_MS);; span *= 2) {
        had->from = got->from = now();
        had->to = got->to = had->from + span;
        if (!hx_tally_run(had, loop, from, file, error) || !hx_tally_run(got, loop, to, NULL, error)) return false;
        if (now() < had->to) return true;
    }
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
    if (had->items + got->items > 0)
        (void)printf("%-12s  %*" PRIu64 "  %*" PRIu64 "%s\n", "items", widths[0], had->items, widths[1], got->items,
                     had->items == got->items ? "" : "  <- differs");
    if (had->ending > 0) (void)printf("%" PRIu64 " more expire about now, and are not compared.\n", had->ending);
}

void hx_cmd_store_print_json(hx_buf *object)
{
    hx_json_close(object, '}');
    (void)fwrite(object->data, 1, object->len, stdout);
    (void)fputc('\n', stdout);
    hx_buf_free(object);
}
