/* SPDX-License-Identifier: Apache-2.0 */
/* hapax store copy: every operation of one store, as it is, into another. It can be run again: what is there already is
 * compared. Until all of it is there, TO carries a note with which no gateway starts (store/transfer/unfinished.h), an
 * older copy too. One that has what FROM doesn't have was used by somebody: it is left as it is, without a note.
 *
 * hapax store salvage is a copy of what can be read of a damaged journal (store/journal/salvage.c). Where anything is
 * lost the mark stays until somebody accepts that, and epochs begin a generation later, as after a restore: what the
 * old store drew last may be lost, too. */
#include "cmd/store_common.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "store/transfer/unfinished.h"
#include "store/journal/index.h"

#include <inttypes.h>
#include <string.h>

#define SHOWN_MAX 20u

typedef struct {
    const hx_store_flags *flags;
    const char *act; /* "copy" or "salvage" */
    hx_salvage *salvage;
    hx_arena arena;
    hx_place from, to;
    hx_loop *loop;
    hx_unfinished origin, mark; /* of from, of to */
    uint64_t last;              /* epochs of to begin above it */
    hx_progress_bar progress;
    hx_move move;
    hx_tally had, got;
    uint64_t shown;
} copying;

static void say_difference(void *context, const hx_record *had, const hx_record *found)
{
    copying *c = context;
    char id[2 * sizeof had->op.bytes + 1] = "";
    hx_buf hex = {.data = id, .cap = sizeof id, .max = sizeof id};
    if (c->shown++ == SHOWN_MAX) (void)fprintf(stderr, "hapax store: there are more that differ\n");
    if (c->shown > SHOWN_MAX) return;
    hx_progress_end(&c->progress);
    hx_buf_put_hex(&hex, had->op.bytes, sizeof had->op.bytes);
    (void)fprintf(stderr,
                  "hapax store: operation %.*s differs: %s with epoch %" PRIu64 " in %s, %s with epoch %" PRIu64
                  " in %s, which was left\n",
                  (int)hex.len, id, hx_state_name(had->state), had->epoch, c->from.shown, hx_state_name(found->state),
                  found->epoch, c->to.shown);
}

static int open_both(copying *c)
{
    int code = hx_place_open_source(&c->from, c->loop, c->flags, c->salvage);
    if (code != HX_EXIT_OK) return code;
    c->last = hx_store_last_epoch(c->from.store) + 1;
    uint64_t by_clock = hx_epoch_by_clock(hx_clock_now());
    if (c->last < by_clock) c->last = by_clock;
    if (c->salvage) c->last = hx_epoch_of_next_generation(c->last, c->salvage->stamp);
    if (c->last >= HX_EPOCH_MAX) return hx_cmd_store_refuse("%s has no epochs left", c->from.shown);
    code = hx_place_open_target(&c->to, c->loop, hx_store_about(c->from.store)->secret, c->act, c->last);
    if (code != HX_EXIT_OK) return code;
    if (!hx_unfinished_read(c->from.store, c->loop, &c->origin) || !hx_unfinished_read(c->to.store, c->loop, &c->mark))
        return hx_cmd_store_refuse("a store can't be reached");
    if (c->mark.unfinished && strcmp(c->mark.by, c->act) != 0)
        return hx_cmd_store_refuse("%s is the beginning of a %s that has not ended; give a new store", c->to.shown,
                                   c->mark.by);
    return HX_EXIT_OK;
}

static bool count_both(copying *c, int64_t began_ns)
{
    return hx_cmd_store_tally(&c->had, &c->got, c->loop, c->from.store, NULL, c->to.store,
                              hx_clock_mono_ns() - began_ns, c->move.error);
}

static int move_and_count(copying *c)
{
    hx_store_counts counts;
    char *error = c->move.error;
    int64_t began = hx_clock_mono_ns();
    hx_store_count(c->from.store, &counts);
    hx_progress_begin(&c->progress, c->salvage ? "salvaging" : "copying",
                      counts.live + counts.processing - c->origin.is_there, c->flags->json);
    c->move = (hx_move){.from = c->from.store,
                        .to = c->to.store,
                        .loop = c->loop,
                        .why = c->salvage ? HX_LIT("salvaged") : HX_LIT("copied"),
                        .progress = &c->progress,
                        .context = c,
                        .differs = say_difference};
    if (!hx_move_run(&c->move)) return hx_cmd_store_refuse("%s. Run this again: it goes on where it was", error);
    uint64_t last = hx_store_last_epoch(c->from.store);
    if (!hx_move_raise(c->loop, c->to.store, last > c->move.epoch ? last : c->move.epoch, error) ||
        !count_both(c, began))
        return hx_cmd_store_refuse("%s", error);
    return HX_EXIT_OK;
}

static bool is_lossy(const hx_salvage *salvage)
{
    return salvage && salvage->lost + salvage->places > 0;
}

static void report_salvage(const hx_salvage *found)
{
    (void)printf("%" PRIu64 " records could be read", found->records);
    if (found->answers > 0)
        (void)printf(", %" PRIu64 " of them but for their answers: those are not retained", found->answers);
    (void)printf(".\n");
    if (!is_lossy(found)) {
        (void)printf("No record is lost.\n");
        return;
    }
    if (found->lost > 0) (void)printf("Up to %" PRIu64 " records are lost.\n", found->lost);
    if (found->places > 0) (void)printf("In %" PRIu64 " places it is not known how many are lost.\n", found->places);
    (void)printf("Operations that were under way, or were released before something was lost, are unknown. Those that\n"
                 "were claimed in what is lost are not known: their keys run again.\n");
}

static void report(const copying *c, bool whole)
{
    const hx_move *move = &c->move;
    uint64_t epoch = hx_store_last_epoch(c->to.store);
    if (c->flags->json) {
        (void)printf("{\"from\":");
        hx_cmd_store_json_text(c->from.shown);
        (void)printf(",\"to\":");
        hx_cmd_store_json_text(c->to.shown);
        (void)printf(",\"copied\":%" PRIu64 ",\"there\":%" PRIu64 ",\"differ\":%" PRIu64 ",\"ended\":%" PRIu64
                     ",\"made_unknown\":%" PRIu64 ",\"epochs_above\":%" PRIu64 ",\"states\":{",
                     move->moved, move->there, move->differing, move->ended, move->unsettled, epoch);
        hx_cmd_store_json_tally(&c->had, &c->got);
        (void)printf("},\"ending\":%" PRIu64 ",\"whole\":%s", c->had.ending, whole ? "true" : "false");
        if (c->salvage)
            (void)printf(",\"records\":%" PRIu64 ",\"answers_lost\":%" PRIu64 ",\"records_lost\":%" PRIu64
                         ",\"places_not_known\":%" PRIu64,
                         c->salvage->records, c->salvage->answers, c->salvage->lost, c->salvage->places);
        (void)printf("}\n");
        return;
    }
    if (c->salvage) report_salvage(c->salvage);
    (void)printf("%" PRIu64 " operations were copied, %" PRIu64 " were there already", move->moved, move->there);
    if (move->differing > 0) (void)printf(", %" PRIu64 " differ", move->differing);
    if (move->ended > 0) (void)printf(", %" PRIu64 " ended meanwhile", move->ended);
    (void)printf(".\n");
    if (move->unsettled > 0)
        (void)printf("%" PRIu64 " were under way, and are unknown in the copy.\n", move->unsettled);
    hx_cmd_store_print_tally(&c->had, &c->got, c->from.shown, c->to.shown);
    if (whole)
        (void)printf("%s has all %s, and draws epochs above %" PRIu64 ".\n", c->to.shown,
                     c->salvage ? "that could be read" : "of it", epoch);
}

static int compare(copying *c)
{
    hx_store_counts counts;
    int64_t began = hx_clock_mono_ns();
    hx_store_count(c->to.store, &counts);
    hx_progress_begin(&c->progress, "comparing", counts.live + counts.processing, c->flags->json);
    c->move = (hx_move){.from = c->to.store,
                        .against = c->from.store,
                        .loop = c->loop,
                        .progress = &c->progress,
                        .context = c,
                        .differs = say_difference};
    if (!hx_move_run(&c->move)) return hx_cmd_store_refuse("%s", c->move.error);
    if (c->move.differing == 0) return HX_EXIT_OK;
    if (!count_both(c, began)) return hx_cmd_store_refuse("%s", c->move.error);
    report(c, false);
    return hx_cmd_store_refuse("%" PRIu64
                               " operations differ: %s was written to by somebody else, and nothing in it was "
                               "changed. Copy into a new store",
                               c->move.differing, c->to.shown);
}

/* The mark first, and epochs with it: whatever happens later, TO never draws one that FROM has drawn. */
static int prepare(copying *c)
{
    if (c->mark.unfinished)
        return hx_move_raise(c->loop, c->to.store, c->last, c->move.error) ? HX_EXIT_OK
                                                                           : hx_cmd_store_refuse("%s", c->move.error);
    int code = compare(c);
    if (code != HX_EXIT_OK) return code;
    if (hx_unfinished_begin(c->to.store, c->loop, c->act, c->last, &c->mark) != HX_STORE_OK)
        return hx_cmd_store_refuse("%s can't be written to", c->to.shown);
    return HX_EXIT_OK;
}

static int end(copying *c)
{
    bool counted = hx_cmd_store_tally_is_same(&c->had, &c->got);
    bool whole = c->move.differing == 0 && (counted || c->flags->live);
    bool is_accepted = !is_lossy(c->salvage) || c->flags->accept_loss;
    const hx_unfinished *latest = c->mark.generation > c->origin.generation ? &c->mark : &c->origin;
    hx_unfinished salvaged = {.generation = latest->generation + 1, .by = "salvage"};
    if (is_lossy(c->salvage)) {
        salvaged.taken_at = c->salvage->stamp;
        salvaged.restored_at = hx_store_about(c->to.store)->now();
        latest = &salvaged;
    }
    if (whole && !is_accepted) {
        report(c, false);
        return hx_cmd_store_refuse(
            "no gateway starts on %s as long as nobody has accepted what is lost. Run this again with "
            "--accept-loss to do so",
            c->to.shown);
    }
    if (whole && hx_unfinished_end(c->to.store, c->loop, &c->mark, latest) != HX_STORE_OK)
        return hx_cmd_store_refuse("%s can't be written to. Run this again", c->to.shown);
    report(c, whole);
    if (whole) return HX_EXIT_OK;
    if (c->move.differing > 0)
        return hx_cmd_store_refuse("%" PRIu64
                                   " operations differ: %s was written to by somebody else. Copy into a new store",
                                   c->move.differing, c->to.shown);
    return hx_cmd_store_refuse("the counts differ: %s has operations that %s has not. Copy into a new store",
                               c->to.shown, c->from.shown);
}

static int run(const hx_store_flags *flags, hx_salvage *salvage, const char *from, const char *to)
{
    copying c = {.flags = flags, .act = salvage ? "salvage" : "copy", .salvage = salvage};
    int code = hx_place_check(&c.from, from, &c.arena);
    if (code < 0) code = hx_place_check(&c.to, to, &c.arena);
    if (code < 0 && hx_place_is_same(&c.from, &c.to))
        code = hx_cmd_misused("store", "%s and %s are the same store", c.from.shown, c.to.shown);
    if (code < 0) {
        c.loop = hx_loop_new();
        code = open_both(&c);
        if (code == HX_EXIT_OK) code = prepare(&c);
        if (code == HX_EXIT_OK) code = move_and_count(&c);
        if (code == HX_EXIT_OK) code = end(&c);
        hx_store_close(&c.from.store);
        hx_store_close(&c.to.store);
        hx_loop_free(&c.loop);
    }
    hx_arena_free(&c.arena);
    hx_arena_pool_drain();
    return code;
}

int hx_cmd_store_copy(const hx_store_flags *flags, const char *from, const char *to)
{
    return run(flags, NULL, from, to);
}

static void say(void *context, const char *sentence)
{
    const hx_store_flags *flags = context;
    (void)fprintf(flags->json ? stderr : stdout, "%s\n", sentence);
}

int hx_cmd_store_salvage(const hx_store_flags *flags, const char *directory, const char *to)
{
    hx_arena arena = {0};
    hx_store_flags context = *flags;
    hx_salvage found = {.report = say, .context = &context};
    hx_slice from = hx_slice_of(directory);
    if (!hx_slice_starts(from, HX_LIT("journal:"))) from = hx_arena_printf(&arena, "journal:%s", directory);
    int code = run(flags, &found, hx_arena_terminated(&arena, from), to);
    hx_arena_free(&arena);
    return code;
}
