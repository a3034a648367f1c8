/* SPDX-License-Identifier: Apache-2.0 */
/* hapax store restore: a backup becomes a store again. The file is read to its end before anything is made of it.
 *
 * What happened to the old store after the backup is not in it. So that nothing of that time can be taken for
 * something of the new store, its epochs begin a generation later: 2^36 above all that the old one can have drawn
 * since, at 64,000 claims a second. They grow with the time of the restore, so that a second one of the same backup
 * draws others than the first. The index has room for 2^48, which is thousands of restores one after the other. */
#include "cmd/store_common.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "store/transfer/unfinished.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    const hx_store_flags *flags;
    const char *file;
    hx_arena arena;
    hx_place to;
    hx_loop *loop;
    hx_backup_reader *reader;
    hx_backup_about about;
    hx_unfinished mark;
    uint64_t epoch; /* all later ones are above it */
    hx_progress_bar progress;
    hx_move move;
    hx_tally had, got;
} restoring;

/* All of it, before anything is changed. */
static int verify(restoring *r)
{
    char *error = r->move.error;
    r->reader = hx_backup_open(r->file, &r->about, error);
    if (!r->reader) return hx_cmd_store_refuse("%s. Nothing was restored", error);
    hx_backup_step step = HX_BACKUP_RECORD;
    hx_record record;
    hx_progress_begin(&r->progress, "verifying", r->about.count, r->flags->json);
    for (uint64_t read = 0; step == HX_BACKUP_RECORD; hx_progress_at(&r->progress, ++read)) {
        hx_arena arena = {0};
        step = hx_backup_next(r->reader, &arena, &record, error);
        hx_arena_free(&arena);
    }
    hx_progress_end(&r->progress);
    if (step != HX_BACKUP_END) return hx_cmd_store_refuse("%s. Nothing was restored", error);
    r->epoch = hx_epoch_of_next_generation(r->about.last_epoch, r->about.taken_at);
    if (r->epoch > HX_EPOCH_MAX - HX_GENERATION_EPOCHS)
        return hx_cmd_store_refuse("%s has no epochs left for another generation. Nothing was restored", r->file);
    return HX_EXIT_OK;
}

static int open_empty(restoring *r)
{
    bool empty = false;
    int code = hx_place_open_target(&r->to, r->loop, r->about.secret, "restore", r->epoch);
    if (code != HX_EXIT_OK) return code;
    if (!hx_unfinished_read(r->to.store, r->loop, &r->mark))
        return hx_cmd_store_refuse("%s can't be reached", r->to.shown);
    if (r->mark.unfinished && strcmp(r->mark.by, "restore") == 0 && r->mark.epoch == r->epoch)
        return HX_EXIT_OK; /* it was made now */
    if (r->mark.unfinished)
        return hx_cmd_store_refuse("%s is the beginning of a %s that has not ended. Remove it, or give a new store",
                                   r->to.shown, r->mark.by);
    if (!hx_move_is_empty(r->loop, r->to.store, &empty, r->move.error)) return hx_cmd_store_refuse("%s", r->move.error);
    if (!empty || r->mark.is_there)
        return hx_cmd_store_refuse("%s is not empty, and nothing in it was changed; give a new store", r->to.shown);
    if (hx_unfinished_begin(r->to.store, r->loop, "restore", r->epoch, &r->mark) != HX_STORE_OK)
        return hx_cmd_store_refuse("%s can't be written to", r->to.shown);
    return HX_EXIT_OK;
}

static void never(void *context, const hx_record *had, const hx_record *found)
{
    (void)context, (void)had, (void)found;
}

static int fill(restoring *r)
{
    hx_move *move = &r->move;
    int64_t began = hx_clock_mono_ns();
    hx_progress_begin(&r->progress, "restoring", r->about.count, r->flags->json);
    *move = (hx_move){.file = r->reader,
                      .to = r->to.store,
                      .loop = r->loop,
                      .why = HX_LIT("restored"),
                      .progress = &r->progress,
                      .differs = never};
    if (!hx_backup_rewind(r->reader, move->error) || !hx_move_run(move) ||
        !hx_move_raise(r->loop, r->to.store, r->epoch, move->error) ||
        !hx_cmd_store_tally(&r->had, &r->got, r->loop, NULL, r->reader, r->to.store, hx_clock_mono_ns() - began,
                            move->error))
        return hx_cmd_store_refuse("%s. %s is not whole, and no gateway starts on it; restore into a new store",
                                   move->error, r->to.shown);
    if (move->there + move->differing > 0 || !hx_cmd_store_tally_is_same(&r->had, &r->got)) {
        hx_cmd_store_print_tally(&r->had, &r->got, r->file, r->to.shown);
        return hx_cmd_store_refuse(
            "the counts differ: %s was written to by somebody else, and no gateway starts on it. "
            "Restore into a new store",
            r->to.shown);
    }
    return HX_EXIT_OK;
}

static void report_json(const restoring *r, hx_slice taken, hx_slice restored)
{
    (void)printf("{\"file\":");
    hx_cmd_store_json_text(r->file);
    (void)printf(",\"to\":");
    hx_cmd_store_json_text(r->to.shown);
    (void)printf(",\"source\":");
    hx_cmd_store_json_text(r->about.source);
    (void)printf(",\"backup_at\":\"%.*s\",\"restored_at\":\"%.*s\",\"generation\":%" PRIu64 ",\"epochs_above\":%" PRIu64
                 ",\"restored\":%" PRIu64 ",\"ended\":%" PRIu64 ",\"made_unknown\":%" PRIu64 ",\"states\":{",
                 HX_FMT(taken), HX_FMT(restored), r->about.generation + 1, r->epoch, r->move.moved, r->move.ended,
                 r->move.unsettled);
    hx_cmd_store_json_tally(&r->had, &r->got);
    (void)printf("}}\n");
}

static void report(const restoring *r, hx_ms now)
{
    char taken[HX_RFC3339_BYTES], restored[HX_RFC3339_BYTES];
    hx_slice from = hx_rfc3339(r->about.taken_at, taken), until = hx_rfc3339(now, restored);
    if (r->flags->json) {
        report_json(r, from, until);
        return;
    }
    (void)printf("%" PRIu64 " operations were restored", r->move.moved);
    if (r->move.ended > 0) (void)printf("; %" PRIu64 " have ended since the backup", r->move.ended);
    (void)printf(".\n");
    if (r->move.unsettled > 0)
        (void)printf("%" PRIu64 " were under way at the backup, and are unknown now.\n", r->move.unsettled);
    hx_cmd_store_print_tally(&r->had, &r->got, r->file, r->to.shown);
    (void)printf("%s is generation %" PRIu64 " of %s, and draws epochs above %" PRIu64 ".\n\n"
                 "The backup is of %.*s. What was acknowledged after that is not known to this store: a key that was\n"
                 "first used since then runs again when its client repeats it. Before a gateway starts on it,\n"
                 "  - let no gateway use the old store any more;\n"
                 "  - where the application knows what it did since then, compare, and tell clients not to repeat it;\n"
                 "  - or refuse repetitions until the longest time for which clients repeat is over.\n",
                 r->to.shown, r->about.generation + 1, r->about.source, r->epoch, HX_FMT(from));
}

static int end(restoring *r)
{
    hx_unfinished restored = {.is_there = true,
                              .by = "restore",
                              .generation = r->about.generation + 1,
                              .taken_at = r->about.taken_at,
                              .restored_at = hx_store_about(r->to.store)->now()};
    if (hx_unfinished_end(r->to.store, r->loop, &r->mark, &restored) != HX_STORE_OK)
        return hx_cmd_store_refuse("%s can't be written to, and is not whole; restore into a new store", r->to.shown);
    report(r, restored.restored_at);
    return HX_EXIT_OK;
}

int hx_cmd_store_restore(const hx_store_flags *flags, const char *file, const char *to)
{
    restoring r = {.flags = flags, .file = file};
    int code = hx_place_check(&r.to, to, &r.arena);
    if (code < 0) {
        r.loop = hx_loop_new();
        code = verify(&r);
        if (code == HX_EXIT_OK) code = open_empty(&r);
        if (code == HX_EXIT_OK) code = fill(&r);
        if (code == HX_EXIT_OK) code = end(&r);
        hx_backup_close(&r.reader);
        hx_store_close(&r.to.store);
        hx_loop_free(&r.loop);
    }
    hx_arena_free(&r.arena);
    hx_arena_pool_drain();
    return code;
}
