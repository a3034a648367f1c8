/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/work/work.h"

#include "admin/events/common.h"
#include "core/json/json_fields.h"
#include "core/json/json_writer.h"
#include "core/operation/key.h"

#include <string.h>

#define TEXT_MAX 255u
#define NOTE_TRIES 3u
#define NOTES_KEPT (30 * HX_DAY)
#define VIEW_BYTES (16u << 10)

#define GIVEN(member, kind) HX_JSON_FIELD(hx_work_given, member, kind, HX_JSON_GIVEN)
static const hx_json_field given_fields[] = {GIVEN(id, TEXT),
                                             GIVEN(name, TEXT),
                                             GIVEN(key, TEXT),
                                             GIVEN(claimant, TEXT),
                                             GIVEN(reason, TEXT),
                                             GIVEN(input, RAW),
                                             GIVEN(correlation_id, TEXT),
                                             GIVEN(progress, TEXT),
                                             GIVEN(tenant, TEXT),
                                             GIVEN(result, RAW),
                                             GIVEN(error, RAW),
                                             GIVEN(value, RAW),
                                             GIVEN(epoch, NUMBER),
                                             GIVEN(lease, SPAN),
                                             GIVEN(wait, SPAN),
                                             GIVEN(lifetime, SPAN),
                                             GIVEN(deadline, SPAN),
                                             GIVEN(repeats_safely, BOOL)};

#define STORED(member, kind) HX_JSON_FIELD(hx_work_notes, member, kind, HX_JSON_STORED)
static const hx_json_field notes_fields[] = {STORED(attempts, NUMBER), STORED(deadline, TIME), STORED(progress, TEXT),
                                             STORED(cancel, TEXT)};
static const hx_json_shape notes_shape = HX_JSON_SHAPE(notes_fields);

/* Reading a request */

static bool is_member(const char *name, const char *const *members)
{
    for (; *members; members++)
        if (strcmp(*members, name) == 0) return true;
    return false;
}

static const char *check_text(hx_slice text, const char *name, hx_arena *arena)
{
    bool is_clean = text.len <= TEXT_MAX;
    for (size_t i = 0; i < text.len && is_clean; i++)
        is_clean = (unsigned char)text.ptr[i] >= 0x20 && text.ptr[i] != 0x7f;
    return is_clean
               ? NULL
               : hx_arena_printf(arena, "\"%s\" must have up to %u bytes without control characters", name, TEXT_MAX)
                     .ptr;
}

static const char *check_given(hx_work *work)
{
    const hx_work_given *given = &work->given;
    const struct {
        const char *name;
        hx_slice text;
    } texts[] = {{"name", given->name},     {"key", given->key},           {"claimant", given->claimant},
                 {"reason", given->reason}, {"progress", given->progress}, {"correlation_id", given->correlation_id}};
    hx_arena *arena = work->call->arena;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *wrong = check_text(texts[i].text, texts[i].name, arena);
        if (wrong) return wrong;
    }
    if (given->id.len > 0 && !hx_op_read(given->id, &work->record.op)) return "\"id\" must have 32 hexadecimal digits";
    return NULL;
}

hx_work *hx_work_begin(hx_admin_call *call, const char *const *members)
{
    hx_json_field fields[sizeof given_fields / sizeof given_fields[0]];
    hx_json_shape shape = {.fields = fields};
    hx_work *work = hx_arena_zalloc(call->arena, sizeof *work);
    hx_error_text error;
    hx_slice tenant;
    for (size_t i = 0; i < sizeof given_fields / sizeof given_fields[0]; i++)
        if (is_member(given_fields[i].name, members)) fields[shape.count++] = given_fields[i];
    work->call = call;
    if (!hx_json_read(&shape, HX_JSON_GIVEN, hx_buf_slice(&call->body), call->arena, &work->given, error)) {
        hx_admin_refuse_malformed(call, error);
        return NULL;
    }
    const char *wrong = check_given(work);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return NULL;
    }
    if (!hx_store_about(call->admin->needs.store)->keeps_items) {
        hx_admin_refuse(call, HX_ADMIN_NOT_KEPT, HX_EMPTY, NULL);
        return NULL;
    }
    if (!hx_admin_tenant(call, work->given.tenant, &tenant)) return NULL;
    work->principal = hx_arena_printf(call->arena, "%.*s/%.*s", HX_FMT(tenant),
                                      HX_FMT(hx_admin_caller_text(&call->who, call->arena)));
    return work;
}

hx_digest hx_work_mac(const hx_work *work, char tag, hx_slice text)
{
    hx_mac *mac = work->call->admin->mac;
    hx_mac_begin(mac, tag);
    hx_mac_part(mac, HX_LIT("work"));
    hx_mac_part(mac, text);
    return hx_mac_end(mac);
}

/* Notes */

static hx_slice notes_key(const hx_work *work)
{
    hx_buf key;
    hx_buf_init(&key, work->call->arena, 64);
    hx_buf_puts(&key, "w/");
    hx_buf_put_hex(&key, work->record.op.bytes, sizeof work->record.op.bytes);
    return hx_buf_slice(&key);
}

static void notes_written(hx_store_call *store);

static void notes_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    hx_error_text error;
    work->notes = (hx_work_notes){.progress = HX_EMPTY, .cancel = HX_EMPTY, .checkpoints = HX_EMPTY};
    if (store->result != HX_STORE_OK ||
        (work->item.version > 0 &&
         !hx_json_read(&notes_shape, HX_JSON_STORED, work->item.meta, work->call->arena, &work->notes, error))) {
        hx_admin_refuse(work->call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); /* no checkpoints would be another statement */
        return;
    }
    work->notes.checkpoints = work->item.body;
    if (!work->change) {
        work->noted(work);
        return;
    }
    work->change(work);
    hx_buf meta;
    hx_buf_init(&meta, work->call->arena, 8192);
    hx_buf_puts(&meta, "{");
    hx_json_write(&notes_shape, HX_JSON_STORED, &work->notes, &meta);
    hx_buf_puts(&meta, "}");
    work->item = (hx_item){.key = work->item.key,
                           .version = work->item.version,
                           .queue = HX_EMPTY,
                           .expires_at = hx_admin_now(work->call->admin) + NOTES_KEPT,
                           .meta = hx_buf_slice(&meta),
                           .body = work->notes.checkpoints};
    work->store = hx_admin_store_call(work->call->admin, work->call->arena, notes_written);
    hx_store_commit(work->call->admin->needs.store, &work->store, &work->item, 1, true);
}

static void read_notes(hx_work *work)
{
    work->item = (hx_item){.key = notes_key(work)};
    work->store = hx_admin_store_call(work->call->admin, work->call->arena, notes_read);
    hx_store_get(work->call->admin->needs.store, &work->store, &work->item, 1);
}

static void notes_written(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    if (store->result == HX_STORE_STALE && ++work->tries < NOTE_TRIES)
        read_notes(work);
    else
        work->noted(work);
}

void hx_work_note(hx_work *work, void (*change)(hx_work *work), void (*noted)(hx_work *work))
{
    work->tries = 0;
    work->change = change;
    work->noted = noted;
    read_notes(work);
}

/* An operation by its id */

void hx_work_read(hx_work *work, void (*done)(hx_store_call *store))
{
    work->store = hx_admin_store_call(work->call->admin, work->call->arena, done);
    hx_store_read(work->call->admin->needs.store, &work->store, &work->record.op);
}

bool hx_work_was_read(hx_work *work)
{
    hx_admin_call *call = work->call;
    hx_digest principal = hx_work_mac(work, HX_WORK_TAG_PRINCIPAL, work->principal);
    if (work->store.result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return false;
    }
    bool is_there = work->store.found.state != HX_ABSENT && work->store.found.state != HX_EXPIRED;
    if (!is_there || work->store.found.unreadable || !hx_digest_eq(&work->store.found.principal, &principal)) {
        hx_admin_refuse(call, HX_ADMIN_NO_WORK, HX_EMPTY, NULL);
        return false;
    }
    work->record = work->store.found;
    return true;
}

/* Answers */

static void put_result(hx_buf *out, const hx_record *record)
{
    const char *name = record->state == HX_COMPLETED ? "result" : "error";
    if (!record->answer.retained)
        hx_json_put_bool(out, "not_retained", true);
    else if (record->answer.body.len > 0)
        hx_json_put_raw(out, name, record->answer.body);
    else
        hx_json_put_null(out, name);
}

void hx_work_answer(hx_work *work, unsigned status)
{
    const hx_record *record = &work->record;
    const hx_work_notes *notes = &work->notes;
    bool has_ended = record->state == HX_COMPLETED || record->state == HX_FAILED;
    hx_buf out;
    hx_buf_init(&out, work->call->arena, VIEW_BYTES + record->answer.body.len + notes->checkpoints.len);
    hx_json_open(&out, NULL, '{');
    hx_json_put_hex(&out, "id", record->op.bytes, sizeof record->op.bytes);
    hx_json_put_number(&out, "epoch", record->epoch);
    hx_json_put_text(&out, "state",
                     hx_slice_of(record->state == HX_ABSENT ? "released" : hx_state_name(record->state)));
    hx_json_put_bool(&out, "is_retry", !work->is_new);
    hx_json_put_time(&out, "original_time", record->created_at);
    if (has_ended) {
        hx_json_put_time(&out, "expires_at", record->expires_at);
        put_result(&out, record);
    } else if (record->state != HX_ABSENT) {
        hx_json_put_time(&out, "lease_until", record->lease_until);
        hx_json_put_number(&out, "attempt", notes->attempts > 0 ? notes->attempts : 1);
        if (notes->deadline > 0) hx_json_put_time(&out, "deadline", notes->deadline);
        if (notes->progress.len > 0) hx_json_put_text(&out, "progress", notes->progress);
        hx_json_put_bool(&out, "cancel_requested", notes->cancel.len > 0);
        if (notes->cancel.len > 0) hx_json_put_text(&out, "cancel_reason", notes->cancel);
        hx_json_put_raw(&out, "checkpoints", notes->checkpoints.len > 0 ? notes->checkpoints : HX_LIT("{}"));
    }
    hx_json_close(&out, '}');
    hx_buf_puts(&out, "\n");
    hx_admin_answer_with(work->call, status,
                         work->is_new || !has_ended ? HX_EMPTY : HX_LIT("Idempotency-Status: replayed\r\n"),
                         hx_buf_slice(&out));
}
