/* SPDX-License-Identifier: Apache-2.0 */
/* hapax store backup: every operation and item of a store, and its secret, in one file. */
#include "cmd/store_common.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "config/address.h"
#include "core/json/json_writer.h"

#include <inttypes.h>
#include <string.h>

static int write_file(const hx_store_flags *flags, hx_place *place, hx_loop *loop, const char *file,
                      hx_backup_about *about)
{
    hx_progress_bar progress;
    hx_transfer transfer = {.from = place->store, .loop = loop, .progress = &progress};
    transfer.to_file = hx_backup_create(file, transfer.error);
    if (!transfer.to_file) return hx_cmd_store_refuse("%s", transfer.error);
    hx_progress_begin(&progress, "backing up", about->count, flags->json);
    /* The last epoch is read after the records: a live store has gone on. */
    bool written = hx_transfer_run(&transfer) && hx_store_last_epoch(place->store, &about->last_epoch, transfer.error);
    if (about->last_epoch < transfer.epoch) about->last_epoch = transfer.epoch;
    if (written)
        return hx_backup_finish(&transfer.to_file, about, transfer.error) ? HX_EXIT_OK
                                                                          : hx_cmd_store_refuse("%s", transfer.error);
    hx_backup_abandon(&transfer.to_file);
    return hx_cmd_store_refuse("%s. Nothing was backed up", transfer.error);
}

static void report(const hx_store_flags *flags, const hx_place *place, const char *file, const hx_backup_about *about)
{
    char taken[HX_RFC3339_BYTES];
    hx_slice at = hx_rfc3339(about->taken_at, taken);
    if (flags->json) {
        hx_buf out;
        hx_buf_init(&out, NULL, HX_STORE_JSON_MAX);
        hx_json_open(&out, NULL, '{');
        hx_json_put_text(&out, "file", hx_slice_of(file));
        hx_json_put_text(&out, "store", hx_slice_of(place->shown));
        hx_json_put_text(&out, "taken_at", at);
        hx_json_put_number(&out, "operations", about->count);
        hx_json_put_number(&out, "items", about->items);
        hx_json_put_number(&out, "bytes", about->bytes);
        hx_json_put_number(&out, "last_epoch", about->last_epoch);
        hx_json_put_number(&out, "generation", about->generation);
        hx_json_open(&out, "states", '{');
        for (hx_state state = HX_PROCESSING; state <= HX_EXPIRED; state++)
            hx_json_put_number(&out, hx_state_name(state), about->states[state]);
        hx_json_close(&out, '}');
        hx_cmd_store_print_json(&out);
        return;
    }
    (void)printf("%s has the %" PRIu64 " operations of %s as of %.*s, in %" PRIu64 " bytes:\n", file, about->count,
                 place->shown, HX_FMT(at), about->bytes);
    for (hx_state state = HX_PROCESSING; state <= HX_EXPIRED; state++)
        if (about->states[state] > 0 || state == HX_COMPLETED || state == HX_UNKNOWN)
            (void)printf("%-12s  %12" PRIu64 "\n", hx_state_name(state), about->states[state]);
    if (about->items > 0) (void)printf("%-12s  %12" PRIu64 "\n", "items", about->items);
    (void)printf("It contains the store's secret: protect it as you protect the store.\n");
}

int hx_cmd_store_backup(const hx_store_flags *flags, const char *file)
{
    hx_arena arena = {0};
    hx_place place;
    hx_backup_about about;
    hx_unfinished note;
    const char *url = flags->store ? flags->store : hx_address_default_store(false, &arena);
    if (!url || file[0] == '\0' || strcmp(file, "-") == 0) {
        hx_arena_free(&arena);
        return !url ? hx_cmd_misused("store", "backup needs --store: there is no default state directory")
                    : hx_cmd_misused("store", "backup needs the name of a file");
    }
    int code = hx_place_check(&place, url, &arena);
    if (code < 0) {
        hx_loop *loop = hx_loop_new();
        code = hx_place_open_source(&place, loop, flags, NULL, &about, &note);
        if (code == HX_EXIT_OK) code = write_file(flags, &place, loop, file, &about);
        if (code == HX_EXIT_OK) report(flags, &place, file, &about);
        hx_store_close(&place.store);
        hx_loop_free(&loop);
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
