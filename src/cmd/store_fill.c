/* SPDX-License-Identifier: Apache-2.0 */
/* hapax store copy, restore and salvage: an empty store is filled with every operation of a source, as it is there, and
 * every item, under new versions.
 *
 *     command   source                 epochs of the new store
 *     copy      a store                above all that the source and its earlier copies can have drawn
 *     restore   a backup file          a generation later
 *     salvage   a damaged journal      a generation later
 *
 * Until everything is there the store has a note with which no gateway starts (store/transfer/unfinished.h). A run that
 * is cut short is run again from the beginning. A salvage with losses keeps the note until --accept-loss is given.
 *
 * What happened in the old store after a backup is not in it, and what is lost of a journal can't be known. So that
 * nothing of that time can be taken for something of the new store, its epochs begin a generation later: 2^36 above all
 * that the old one can have drawn since, at 64,000 claims a second. They also grow with the clock, so two stores that
 * are made of one source at different times draw different ones. Epochs have 48 bits: enough for thousands of
 * generations. */
#include "cmd/store_common.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "core/json/json_writer.h"

#include <inttypes.h>
#include <string.h>

#define EPOCH_ZERO_MS ((hx_ms)1577836800000) /* 2020, as in the journal, which draws epochs by the clock, too */
#define EPOCHS_A_MS UINT64_C(64)
#define GENERATION_EPOCHS (UINT64_C(1) << 36)

typedef struct {
    const hx_store_flags *flags;
    const char *by; /* "copy", "restore" or "salvage" */
    hx_arena arena;
    hx_loop *loop;
    hx_place from, to;      /* from.shown is the name of the file in a restore, which has no from.store */
    hx_salvage *salvage;    /* NULL but for a salvage */
    hx_backup_reader *file; /* NULL but for a restore */
    hx_backup_about about;  /* of the source, or as a backup of it would say */
    hx_unfinished origin;   /* the note that the new store keeps */
    hx_unfinished note;     /* in the new store, unfinished */
    uint64_t epoch;         /* the new store draws above it */
    hx_transfer transfer;
    hx_tally had, got;
} filling;

static bool is_lossy(const hx_salvage *salvage)
{
    return salvage && salvage->lost + salvage->places > 0;
}

/* Reads the whole file before anything is made of it. */
static int open_file(filling *f)
{
    char *error = f->transfer.error;
    hx_progress_bar progress;
    f->file = hx_backup_open(f->from.shown, &f->about, error);
    if (!f->file) return hx_cmd_store_refuse("%s. Nothing was restored", error);
    hx_backup_step step = HX_BACKUP_RECORD;
    hx_record record;
    hx_item item;
    hx_progress_begin(&progress, "verifying", f->about.count + f->about.items, f->flags->json);
    for (uint64_t read = 0; step <= HX_BACKUP_ITEM; hx_progress_at(&progress, ++read)) {
        hx_arena arena = {0};
        step = hx_backup_next(f->file, &arena, &record, &item, error);
        hx_arena_free(&arena);
    }
    hx_progress_end(&progress);
    if (step != HX_BACKUP_END) return hx_cmd_store_refuse("%s. Nothing was restored", error);
    f->origin = (hx_unfinished){.by = "restore", .generation = f->about.generation + 1, .taken_at = f->about.taken_at};
    return HX_EXIT_OK;
}

static int open_store(filling *f)
{
    int code = hx_place_open_source(&f->from, f->loop, f->flags, f->salvage, &f->about, &f->origin);
    if (code != HX_EXIT_OK || !f->salvage) return code;
    f->about.taken_at = f->salvage->stamp; /* the old store may have drawn epochs since then */
    if (is_lossy(f->salvage))
        f->origin = (hx_unfinished){.by = "salvage",
                                    .generation = f->about.generation + 1,
                                    .taken_at = f->salvage->stamp};
    return HX_EXIT_OK;
}

static int choose_epoch(filling *f)
{
    hx_ms now = hx_clock_now();
    uint64_t by_clock = now > EPOCH_ZERO_MS ? (uint64_t)(now - EPOCH_ZERO_MS) * EPOCHS_A_MS : 0;
    f->epoch = f->about.last_epoch + 1;
    if (f->file || f->salvage) {
        uint64_t since = now > f->about.taken_at ? (uint64_t)(now - f->about.taken_at) : 0;
        f->epoch += since * EPOCHS_A_MS + GENERATION_EPOCHS;
        by_clock += GENERATION_EPOCHS;
    }
    if (f->epoch < by_clock) f->epoch = by_clock;
    return f->epoch <= HX_EPOCH_MAX - GENERATION_EPOCHS
               ? HX_EXIT_OK
               : hx_cmd_store_refuse("%s has no epochs left for another %s", f->from.shown, f->by);
}

static int fill(filling *f)
{
    hx_transfer *t = &f->transfer;
    hx_progress_bar progress;
    int64_t began = hx_clock_mono_ns();
    bool is_copy = !f->file && !f->salvage;
    hx_progress_begin(&progress,
                      is_copy   ? "copying"
                      : f->file ? "restoring"
                                : "salvaging",
                      f->about.count, f->flags->json);
    *t = (hx_transfer){.from = f->from.store,
                       .from_file = f->file,
                       .to = f->to.store,
                       .loop = f->loop,
                       .reason = is_copy   ? HX_LIT("copied")
                                 : f->file ? HX_LIT("restored")
                                           : HX_LIT("salvaged"),
                       .progress = &progress};
    bool ok = (!f->file || hx_backup_rewind(f->file, t->error)) && hx_transfer_run(t);
    if (ok && f->from.store) { /* a live source has gone on */
        uint64_t last;
        ok = hx_store_last_epoch(f->from.store, &last, t->error) &&
             hx_transfer_raise(f->loop, f->to.store, last > t->epoch ? last : t->epoch, t->error);
    }
    ok = ok && hx_store_last_epoch(f->to.store, &f->epoch, t->error);
    ok = ok && hx_cmd_store_tally(&f->had, &f->got, f->loop, f->from.store, f->file, f->to.store,
                                  hx_clock_mono_ns() - began, t->error);
    return ok ? HX_EXIT_OK
              : hx_cmd_store_refuse("%s. %s is not whole, and no gateway starts on it. Run the same command again: it "
                                    "starts from the beginning",
                                    t->error, f->to.shown);
}

static void report_json(const filling *f, bool whole)
{
    const hx_transfer *t = &f->transfer;
    char taken[HX_RFC3339_BYTES], restored[HX_RFC3339_BYTES];
    hx_buf out;
    hx_buf_init(&out, NULL, HX_STORE_JSON_MAX);
    hx_json_open(&out, NULL, '{');
    hx_json_put_text(&out, f->file ? "file" : "from", hx_slice_of(f->from.shown));
    hx_json_put_text(&out, "to", hx_slice_of(f->to.shown));
    if (f->file) {
        hx_json_put_text(&out, "source", hx_slice_of(f->about.source));
        hx_json_put_text(&out, "backup_at", hx_rfc3339(f->origin.taken_at, taken));
        hx_json_put_text(&out, "restored_at", hx_rfc3339(f->origin.restored_at, restored));
        hx_json_put_number(&out, "generation", f->origin.generation);
    }
    hx_json_put_number(&out, f->file ? "restored" : "copied", t->moved);
    hx_json_put_number(&out, "items", t->items);
    hx_json_put_number(&out, "ended", t->ended);
    hx_json_put_number(&out, "made_unknown", t->made_unknown);
    hx_json_put_number(&out, "epochs_above", f->epoch);
    hx_json_open(&out, "states", '{');
    for (hx_state state = HX_COMPLETED; state <= HX_EXPIRED; state++) {
        hx_json_open(&out, hx_state_name(state), '{');
        hx_json_put_number(&out, "from", f->had.states[state]);
        hx_json_put_number(&out, "to", f->got.states[state]);
        hx_json_close(&out, '}');
    }
    hx_json_close(&out, '}');
    hx_json_put_number(&out, "ending", f->had.ending);
    hx_json_put_bool(&out, "whole", whole);
    if (f->salvage) {
        hx_json_put_number(&out, "records", f->salvage->records);
        hx_json_put_number(&out, "answers_lost", f->salvage->answers);
        hx_json_put_number(&out, "records_lost", f->salvage->lost);
        hx_json_put_number(&out, "places_not_known", f->salvage->places);
    }
    hx_cmd_store_print_json(&out);
}

static void print_losses(const hx_salvage *found)
{
    (void)printf("%" PRIu64 " records could be read", found->records);
    if (found->answers > 0)
        (void)printf(", %" PRIu64 " of them without their responses, which are not retained", found->answers);
    (void)printf(".\n");
    if (!is_lossy(found)) {
        (void)printf("No record is lost.\n");
        return;
    }
    if (found->lost > 0) (void)printf("Up to %" PRIu64 " records are lost.\n", found->lost);
    if (found->places > 0)
        (void)printf("In %" PRIu64 " places the number of lost records is not known.\n", found->places);
    (void)printf("Operations that were in flight, or were released before a loss, are unknown. Operations that were\n"
                 "claimed in lost records are not known: their keys run again.\n");
}

static void print_generation(const filling *f)
{
    char taken[HX_RFC3339_BYTES];
    (void)printf("%s is generation %" PRIu64 " of %s, and draws epochs above %" PRIu64 ".\n\n"
                 "The backup is of %.*s. What was acknowledged after that is not known to this store: a key that was\n"
                 "first used since then runs again when its client retries it. Before a gateway starts on it,\n"
                 "  - let no gateway use the old store any more;\n"
                 "  - where the application knows what it did since then, compare, and tell clients not to retry it;\n"
                 "  - or refuse retries until the longest time for which clients retry is over.\n",
                 f->to.shown, f->origin.generation, f->about.source, f->epoch,
                 HX_FMT(hx_rfc3339(f->origin.taken_at, taken)));
}

static void report(const filling *f, bool whole)
{
    const hx_transfer *t = &f->transfer;
    if (f->flags->json) {
        report_json(f, whole);
        return;
    }
    if (f->salvage) print_losses(f->salvage);
    (void)printf("%" PRIu64 " operations", t->moved);
    if (t->items > 0) (void)printf(" and %" PRIu64 " items of events", t->items);
    (void)printf(" were %s", f->file ? "restored" : "copied");
    if (t->ended > 0)
        (void)printf("; %" PRIu64 " have expired since %s", t->ended, f->file ? "the backup" : "it began");
    (void)printf(".\n");
    if (t->made_unknown > 0) (void)printf("%" PRIu64 " were in flight, and are unknown now.\n", t->made_unknown);
    hx_cmd_store_print_tally(&f->had, &f->got, f->from.shown, f->to.shown);
    if (f->file && whole)
        print_generation(f);
    else if (whole)
        (void)printf("%s has %s, and draws epochs above %" PRIu64 ".\n", f->to.shown,
                     f->salvage ? "everything that could be read" : "all of it", f->epoch);
}

static int end(filling *f)
{
    bool is_same = memcmp(f->had.states, f->got.states, sizeof f->had.states) == 0 && f->had.items == f->got.items;
    bool is_counted = is_same || f->flags->live;
    bool is_accepted = !is_lossy(f->salvage) || f->flags->accept_loss;
    bool is_whole = is_counted && is_accepted;
    if (f->file || is_lossy(f->salvage)) f->origin.restored_at = hx_store_about(f->to.store)->now();
    hx_store_result result = is_whole ? hx_unfinished_end(f->to.store, f->loop, &f->note, &f->origin) : HX_STORE_OK;
    if (result == HX_STORE_STALE)
        return hx_cmd_store_refuse("another process has begun to fill %s: wait until it has ended", f->to.shown);
    if (result != HX_STORE_OK)
        return hx_cmd_store_refuse("%s can't be written to, and is not whole. Run the same command again", f->to.shown);
    report(f, is_whole);
    if (!is_counted)
        return hx_cmd_store_refuse("the counts differ: another process has written to %s, and no gateway starts on it. "
                                   "Give a new store",
                                   f->to.shown);
    if (!is_accepted)
        return hx_cmd_store_refuse("no gateway starts on %s until the losses are accepted. Run the same command again "
                                   "with --accept-loss to do so",
                                   f->to.shown);
    return HX_EXIT_OK;
}

static int run(filling *f, const char *from, const char *to)
{
    bool is_restore = strcmp(f->by, "restore") == 0;
    f->from.shown = from;
    int code = is_restore ? -1 : hx_place_check(&f->from, from, &f->arena);
    if (code < 0) code = hx_place_check(&f->to, to, &f->arena);
    if (code < 0 && hx_place_is_same(&f->from, &f->to))
        code = hx_cmd_misused("store", "%s and %s are the same store", f->from.shown, f->to.shown);
    if (code < 0) {
        f->loop = hx_loop_new();
        code = is_restore ? open_file(f) : open_store(f);
        if (code == HX_EXIT_OK) code = choose_epoch(f);
        if (code == HX_EXIT_OK)
            code = hx_place_open_target(&f->to, f->loop, f->flags, f->about.secret, f->by, f->epoch, &f->note);
        if (code == HX_EXIT_OK) code = fill(f);
        if (code == HX_EXIT_OK) code = end(f);
        hx_backup_close(&f->file);
        hx_store_close(&f->from.store);
        hx_store_close(&f->to.store);
        hx_loop_free(&f->loop);
    }
    hx_arena_free(&f->arena);
    hx_arena_pool_drain();
    return code;
}

int hx_cmd_store_copy(const hx_store_flags *flags, const char *from, const char *to)
{
    filling f = {.flags = flags, .by = "copy"};
    return run(&f, from, to);
}

int hx_cmd_store_restore(const hx_store_flags *flags, const char *file, const char *to)
{
    filling f = {.flags = flags, .by = "restore"};
    return run(&f, file, to);
}

static void print_damage(void *context, const char *sentence)
{
    (void)fprintf(context, "%s\n", sentence);
}

int hx_cmd_store_salvage(const hx_store_flags *flags, const char *directory, const char *to)
{
    hx_arena arena = {0};
    hx_salvage found = {.report = print_damage, .context = flags->json ? stderr : stdout};
    filling f = {.flags = flags, .by = "salvage", .salvage = &found};
    hx_slice from = hx_slice_of(directory);
    if (!hx_slice_starts(from, HX_LIT("journal:"))) from = hx_arena_printf(&arena, "journal:%s", directory);
    int code = run(&f, hx_arena_terminated(&arena, from), to);
    hx_arena_free(&arena);
    return code;
}
