/* SPDX-License-Identifier: Apache-2.0 */
#include "store/transfer/unfinished.h"

#include "base/check.h"
#include "base/log.h"
#include "core/operation/policy.h"
#include "store/sync.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEPT_FOR (50 * 365 * HX_DAY)
#define WARNED_FOR (30 * HX_DAY)

static const hx_op note_op; /* zeros: a MAC of 128 bits that no request will ever have */
static const char *const routes[] = {"hapax store copy", "hapax store restore", "hapax store salvage"};
#define BY_AT strlen("hapax store ")

bool hx_unfinished_is(const hx_op *op)
{
    return hx_op_eq(op, &note_op);
}

/* The note's result is "GENERATION TAKEN_AT". Its created_at can't say when the backup was taken, because some stores
 * keep the one that came with the claim. */
static void read_generation(hx_slice text, hx_unfinished *out)
{
    uint64_t taken_at;
    size_t space = hx_slice_find(text, ' ');
    if (space == SIZE_MAX || !hx_slice_to_u64(hx_slice_first(text, space), &out->generation) ||
        !hx_slice_to_u64(hx_slice_from(text, space + 1), &taken_at))
        out->generation = 0;
    else
        out->taken_at = (hx_ms)taken_at;
}

bool hx_unfinished_read(hx_store *store, hx_loop *loop, hx_unfinished *out)
{
    hx_arena arena = {0};
    hx_awaited read;
    *out = (hx_unfinished){0};
    hx_await_begin(&read, loop, &arena);
    hx_store_read(store, &read.call, &note_op);
    bool asked = hx_await(&read) == HX_STORE_OK;
    const hx_record *found = &read.call.found;
    if (asked && found->state != HX_ABSENT) {
        *out = (hx_unfinished){.is_there = true,
                               .unfinished = found->state == HX_UNKNOWN || found->state == HX_PROCESSING,
                               .processing = found->state == HX_PROCESSING,
                               .by = "copy",
                               .epoch = found->epoch,
                               .restored_at = found->changed_at};
        for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
            if (hx_slice_eq(found->route, hx_slice_of(routes[i]))) out->by = routes[i] + BY_AT;
        read_generation(found->result, out);
    }
    hx_arena_free(&arena);
    return asked;
}

static hx_record note_of(const char *by, uint64_t epoch)
{
    hx_ms now = hx_clock_now();
    const char *route = routes[0];
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strcmp(routes[i] + BY_AT, by) == 0) route = routes[i];
    return (hx_record){.op = note_op,
                       .epoch = epoch,
                       .created_at = now,
                       .changed_at = now,
                       .rule_version = HX_RULE_SHADOW,
                       .route = hx_slice_of(route),
                       .correlation = HX_EMPTY,
                       .reason = HX_EMPTY,
                       .result = HX_EMPTY,
                       .answer = {.headers = HX_EMPTY, .body = HX_EMPTY}};
}

hx_record hx_unfinished_record(const char *by, uint64_t epoch)
{
    hx_record note = note_of(by, epoch);
    note.state = HX_UNKNOWN;
    note.reason = HX_LIT("not finished");
    return note;
}

hx_store_result hx_unfinished_begin(hx_store *store, hx_loop *loop, const char *by, uint64_t epoch, hx_unfinished *out)
{
    hx_arena arena = {0};
    hx_awaited import;
    hx_record note = hx_unfinished_record(by, epoch);
    hx_await_begin(&import, loop, &arena);
    hx_store_import(store, &import.call, &note);
    hx_store_result result = hx_await(&import);
    hx_arena_free(&arena);
    if (result == HX_STORE_OK && !hx_unfinished_read(store, loop, out)) result = HX_STORE_UNAVAILABLE;
    return result;
}

static hx_store_result settle_as_unfinished(hx_store *store, hx_loop *loop, const char *by, uint64_t epoch)
{
    hx_arena arena = {0};
    hx_awaited settle;
    hx_record note = hx_unfinished_record(by, epoch);
    note.from_state = HX_PROCESSING;
    hx_await_begin(&settle, loop, &arena);
    hx_store_settle(store, &settle.call, &note);
    hx_store_result result = hx_await(&settle);
    hx_arena_free(&arena);
    return result;
}

static hx_store_result claim_note(hx_store *store, hx_loop *loop, hx_unfinished *note)
{
    hx_arena arena = {0};
    hx_awaited claim;
    hx_record record = note_of(note->by, 0);
    record.state = HX_PROCESSING;
    record.owner = hx_store_about(store)->owner;
    hx_await_begin(&claim, loop, &arena);
    hx_store_claim(store, &claim.call, &record, note->epoch);
    hx_store_result result = hx_await(&claim);
    if (result == HX_STORE_EXISTS) result = HX_STORE_STALE;
    if (result == HX_STORE_OK) note->epoch = record.epoch;
    hx_arena_free(&arena);
    return result;
}

hx_store_result hx_unfinished_take_over(hx_store *store, hx_loop *loop, hx_unfinished *note)
{
    hx_store_result result = HX_STORE_OK;
    if (note->processing) result = settle_as_unfinished(store, loop, note->by, note->epoch); /* killed right here */
    if (result == HX_STORE_OK) result = claim_note(store, loop, note);
    if (result == HX_STORE_OK) result = settle_as_unfinished(store, loop, note->by, note->epoch);
    note->processing = false;
    return result;
}

hx_store_result hx_unfinished_end(hx_store *store, hx_loop *loop, const hx_unfinished *unfinished,
                                  const hx_unfinished *origin)
{
    hx_arena arena = {0};
    hx_awaited settle;
    bool is_kept = origin->generation > 0;
    hx_record note = note_of(is_kept ? origin->by : unfinished->by, unfinished->epoch);
    note.from_state = HX_UNKNOWN;
    note.state = HX_ABSENT;
    if (is_kept) {
        char taken[HX_RFC3339_BYTES];
        note.state = HX_COMPLETED;
        note.changed_at = origin->restored_at;
        note.expires_at = note.changed_at + KEPT_FOR;
        note.result = hx_arena_printf(&arena, "%" PRIu64 " %lld", origin->generation, (long long)origin->taken_at);
        note.reason = hx_arena_printf(&arena,
                                      strcmp(origin->by, "salvage") == 0 ? "salvaged with losses, last change %.*s"
                                                                         : "restored from a backup of %.*s",
                                      HX_FMT(hx_rfc3339(origin->taken_at, taken)));
    }
    hx_await_begin(&settle, loop, &arena);
    hx_store_settle(store, &settle.call, &note);
    hx_store_result result = hx_await(&settle);
    hx_arena_free(&arena);
    return result;
}

static void log_origin(const hx_store *store, const hx_unfinished *note)
{
    char taken[HX_RFC3339_BYTES], restored[HX_RFC3339_BYTES];
    bool lately = hx_store_about(store)->now() - note->restored_at < WARNED_FOR;
    bool is_salvaged = strcmp(note->by, "salvage") == 0;
    if (is_salvaged)
        hx_log_begin(lately ? HX_EVENT_store_salvaged : HX_EVENT_store_salvaged_earlier);
    else
        hx_log_begin(lately ? HX_EVENT_store_restored : HX_EVENT_store_restored_earlier);
    hx_log_int("generation", (int64_t)note->generation);
    hx_log_str(is_salvaged ? "last_change" : "backup_at", hx_rfc3339(note->taken_at, taken));
    hx_log_str(is_salvaged ? "salvaged_at" : "restored_at", hx_rfc3339(note->restored_at, restored));
    hx_log_text("hint", is_salvaged ? "operations whose records were lost are not known here: their keys run again"
                                    : "outcomes acknowledged between the two are not known here: their keys run again");
    hx_log_end();
}

int hx_unfinished_admit(hx_store *store, hx_loop *loop)
{
    hx_unfinished note;
    if (!hx_unfinished_read(store, loop, &note)) {
        (void)fprintf(stderr, "hapax: the store became unreachable while it was opened; start again when it is back\n");
        return HX_EXIT_STORE;
    }
    if (note.unfinished) {
        (void)fprintf(stderr,
                      "hapax: this store is not whole: the `hapax store %s` that fills it has not ended. Run the same "
                      "command again%s\n",
                      note.by,
                      strcmp(note.by, "salvage") == 0 ? ", with --accept-loss if you accept the losses that it reports"
                                                      : ": it starts from the beginning");
        return HX_EXIT_STORE;
    }
    if (note.is_there && note.generation > 0) log_origin(store, &note);
    return HX_EXIT_OK;
}
