/* SPDX-License-Identifier: Apache-2.0 */
#include "store/transfer/unfinished.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "base/log.h"
#include "core/operation/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KEPT_FOR (50 * 365 * HX_DAY)
#define WARNED_FOR (30 * HX_DAY)

static const hx_op mark_op; /* zeros: a MAC of 128 bits that no request will ever have */
static const char *const routes[] = {"hapax store copy", "hapax store restore", "hapax store salvage"};
#define ACT_AT strlen("hapax store ")

static void awaited_done(hx_store_call *call)
{
    HX_OWNER(call, hx_awaited, call)->done = true;
    hx_loop_stop(call->loop);
}

void hx_await_begin(hx_awaited *awaited, hx_loop *loop, hx_arena *arena)
{
    *awaited = (hx_awaited){.call = {.loop = loop, .arena = arena, .done = awaited_done}};
}

hx_store_result hx_await(hx_awaited *awaited)
{
    while (!awaited->done) hx_loop_run(awaited->call.loop);
    return awaited->call.result;
}

bool hx_unfinished_is(const hx_op *op)
{
    return hx_op_eq(op, &mark_op);
}

/* "GENERATION TAKEN_AT": in the result, because a store may keep when a record was created as its claim said it. */
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
    hx_store_read(store, &read.call, &mark_op);
    bool asked = hx_await(&read) == HX_STORE_OK;
    const hx_record *found = &read.call.found;
    if (asked && found->state != HX_ABSENT) {
        *out = (hx_unfinished){.is_there = true,
                               .unfinished = found->state == HX_UNKNOWN,
                               .by = "copy",
                               .epoch = found->epoch,
                               .restored_at = found->changed_at};
        for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
            if (hx_slice_eq(found->route, hx_slice_of(routes[i]))) out->by = routes[i] + ACT_AT;
        read_generation(found->result, out);
    }
    hx_arena_free(&arena);
    return asked;
}

static hx_record mark_of(const char *by, uint64_t epoch)
{
    hx_ms now = hx_clock_now();
    const char *route = routes[0];
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strcmp(routes[i] + ACT_AT, by) == 0) route = routes[i];
    return (hx_record){.op = mark_op,
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

static void put_generation(hx_record *record, const hx_unfinished *mark, hx_arena *arena)
{
    record->changed_at = mark->restored_at;
    record->result = hx_arena_printf(arena, "%" PRIu64 " %lld", mark->generation, (long long)mark->taken_at);
}

hx_record hx_unfinished_text(const char *by, uint64_t epoch, const hx_unfinished *earlier, hx_arena *arena)
{
    hx_record mark = mark_of(by, epoch);
    mark.state = HX_UNKNOWN;
    mark.reason = HX_LIT("not finished");
    if (earlier && earlier->generation > 0) put_generation(&mark, earlier, arena);
    return mark;
}

hx_store_result hx_unfinished_begin(hx_store *store, hx_loop *loop, const char *by, uint64_t epoch, hx_unfinished *mark)
{
    hx_arena arena = {0};
    hx_awaited forget, import;
    hx_store_result result = HX_STORE_OK;
    hx_record record = hx_unfinished_text(by, epoch, mark, &arena);
    if (mark->is_there) {
        hx_await_begin(&forget, loop, &arena);
        hx_store_forget(store, &forget.call, &mark_op, mark->epoch, record.reason);
        result = hx_await(&forget);
    }
    if (result == HX_STORE_OK) {
        hx_await_begin(&import, loop, &arena);
        hx_store_import(store, &import.call, &record);
        result = hx_await(&import);
    }
    hx_arena_free(&arena);
    if (result == HX_STORE_OK && !hx_unfinished_read(store, loop, mark)) result = HX_STORE_UNAVAILABLE;
    return result;
}

hx_store_result hx_unfinished_end(hx_store *store, hx_loop *loop, const hx_unfinished *unfinished,
                                  const hx_unfinished *restored)
{
    hx_arena arena = {0};
    hx_awaited settle;
    bool is_kept = restored->generation > 0;
    hx_record mark = mark_of(!is_kept                               ? "copy"
                             : strcmp(restored->by, "salvage") == 0 ? "salvage"
                                                                    : "restore",
                             unfinished->epoch);
    mark.from_state = HX_UNKNOWN;
    mark.state = HX_ABSENT;
    if (is_kept) {
        char taken[HX_RFC3339_BYTES];
        put_generation(&mark, restored, &arena);
        mark.state = HX_COMPLETED;
        mark.expires_at = mark.changed_at + KEPT_FOR;
        bool is_salvaged = strcmp(restored->by, "salvage") == 0;
        mark.reason = hx_arena_printf(&arena,
                                      is_salvaged ? "salvaged with losses, last change %.*s"
                                                  : "restored from a backup of %.*s",
                                      HX_FMT(hx_rfc3339(restored->taken_at, taken)));
    }
    hx_await_begin(&settle, loop, &arena);
    hx_store_settle(store, &settle.call, &mark);
    hx_store_result result = hx_await(&settle);
    hx_arena_free(&arena);
    return result;
}

static void say_restored(const hx_store *store, const hx_unfinished *mark)
{
    char taken[HX_RFC3339_BYTES], restored[HX_RFC3339_BYTES];
    bool lately = hx_store_about(store)->now() - mark->restored_at < WARNED_FOR;
    bool is_salvaged = strcmp(mark->by, "salvage") == 0;
    if (is_salvaged)
        hx_log_begin(lately ? HX_EVENT_store_salvaged : HX_EVENT_store_salvaged_earlier);
    else
        hx_log_begin(lately ? HX_EVENT_store_restored : HX_EVENT_store_restored_earlier);
    hx_log_int("generation", (int64_t)mark->generation);
    hx_log_str(is_salvaged ? "last_change" : "backup_at", hx_rfc3339(mark->taken_at, taken));
    hx_log_str(is_salvaged ? "salvaged_at" : "restored_at", hx_rfc3339(mark->restored_at, restored));
    hx_log_text("hint", is_salvaged ? "operations whose records were lost are not known here, and their keys run again"
                                    : "outcomes that were acknowledged between the two are not known here, and their "
                                      "keys run again");
    hx_log_end();
}

int hx_unfinished_admit(hx_store *store, hx_loop *loop)
{
    hx_unfinished mark;
    if (!hx_unfinished_read(store, loop, &mark)) {
        (void)fprintf(stderr, "hapax: the store was lost while it was opened; start again when it can be reached\n");
        return HX_EXIT_STORE;
    }
    if (mark.unfinished) {
        (void)fprintf(stderr, "hapax: this store is not whole: the `hapax store %s` that makes it has not ended. %s\n",
                      mark.by,
                      strcmp(mark.by, "restore") == 0 ? "Remove it, and restore the backup again into a new one"
                      : strcmp(mark.by, "salvage") == 0
                          ? "Run that again, with --accept-loss if what it says is lost can be borne"
                          : "Run that again: it goes on where it was");
        return HX_EXIT_STORE;
    }
    if (mark.is_there && mark.generation > 0) say_restored(store, &mark);
    return HX_EXIT_OK;
}
