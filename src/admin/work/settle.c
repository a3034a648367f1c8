/* SPDX-License-Identifier: Apache-2.0 */
/* What the claimant of an operation says of it: that it is still working, how far it is, and how it ended. */
#include "admin/events/common.h"
#include "admin/work/work.h"
#include "base/log.h"
#include "core/json/json.h"
#include "core/json/json_walk.h"
#include "core/json/json_writer.h"

#include <string.h>

#define LEASE_BY_DEFAULT (60 * HX_SECOND)
#define LEASE_MAX HX_HOUR
#define LIFETIME_BY_DEFAULT HX_DAY
#define LIFETIME_MAX (36500 * HX_DAY)
#define RESULT_BYTES_MAX (11u << 20) /* 8 MiB of bytes as base64 */

static const char json_type[] = "Content-Type: application/json\r\n";

/* The operation of a request, which must name its id and its epoch. NULL: the call was answered. */
static hx_work *begin(hx_admin_call *call, const char *const *members)
{
    hx_work *work = hx_work_begin(call, members);
    if (!work) return NULL;
    if (work->given.id.len > 0 && work->given.epoch > 0) return work;
    hx_admin_refuse_malformed(call, "\"id\" and \"epoch\" are missing: they are in the response to the claim");
    return NULL;
}

/* The operation is no longer the caller's, or was settled otherwise: says what it is. */
static void answer_fenced(hx_work *work)
{
    hx_admin_refuse(work->call, HX_ADMIN_WORK_FENCED, HX_EMPTY, &work->record);
}

/* Whether the record that was read is in the caller's epoch. False: the call was answered. */
static bool is_current(hx_work *work)
{
    if (!hx_work_was_read(work)) return false;
    if (work->record.epoch == work->given.epoch) return true;
    answer_fenced(work);
    return false;
}

/* Renewing */

static void put_progress(hx_work *work)
{
    work->notes.progress = work->given.progress;
}

/* The lease was renewed, whatever became of the progress text. */
static void renew_noted(hx_work *work)
{
    hx_work_answer(work, 200);
}

static void renew_done(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    if (store->result == HX_STORE_OK) {
        work->record.lease_until = store->lease_until;
    } else if (store->result == HX_STORE_STALE) {
        work->record = store->found;
        if (work->record.epoch != work->given.epoch || work->record.state != HX_UNKNOWN) {
            answer_fenced(work);
            return;
        }
    } else {
        hx_admin_refuse(work->call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL);
        return;
    }
    hx_work_note(work, work->given.progress.len > 0 ? put_progress : NULL, renew_noted);
}

static void renew_if_in_time(hx_work *work)
{
    hx_admin_call *call = work->call;
    hx_ms now = hx_admin_now(call->admin);
    if (work->notes.deadline > 0 && now >= work->notes.deadline) {
        hx_admin_refuse(call, HX_ADMIN_WORK_DEADLINE, HX_EMPTY, NULL);
        return;
    }
    work->store = hx_admin_store_call(call->admin, call->arena, renew_done);
    hx_store_renew(call->admin->needs.store, &work->store, &work->record.op, work->given.epoch,
                   now + work->given.lease);
}

static void renew_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    if (is_current(work)) hx_work_note(work, NULL, renew_if_in_time);
}

void hx_admin_renew_work(hx_admin_call *call)
{
    static const char *const members[] = {"id", "epoch", "lease", "progress", "tenant", NULL};
    hx_work *work = begin(call, members);
    if (!work) return;
    if (work->given.lease == 0) work->given.lease = LEASE_BY_DEFAULT;
    if (work->given.lease < HX_SECOND || work->given.lease > LEASE_MAX)
        hx_admin_refuse_malformed(call, "\"lease\" must be 1s to 1h");
    else
        hx_work_read(work, renew_read);
}

/* Checkpoints */

/* Replaces, or adds, one member of the object. */
static void put_checkpoint(hx_work *work)
{
    hx_arena *arena = work->call->arena;
    hx_slice old = work->notes.checkpoints, raw_name, value, name;
    hx_buf out;
    hx_buf_init(&out, arena, old.len + work->given.value.len + 4096);
    hx_json_open(&out, NULL, '{');
    hx_json_walk walk = hx_json_walk_over(old.len > 0 ? old : HX_LIT("{}"));
    while (hx_json_walk_next(&walk, &raw_name, &value)) {
        if (!hx_json_string(raw_name, arena, &name) || hx_slice_eq(name, work->given.name)) continue;
        hx_json_put_text(&out, NULL, name);
        hx_buf_puts(&out, ":");
        hx_buf_put(&out, value);
    }
    hx_json_put_text(&out, NULL, work->given.name);
    hx_buf_puts(&out, ":");
    hx_buf_put(&out, work->given.value);
    hx_json_close(&out, '}');
    if (out.len <= HX_WORK_CHECKPOINTS_BYTES) work->notes.checkpoints = hx_buf_slice(&out);
    work->is_new = out.len <= HX_WORK_CHECKPOINTS_BYTES;
}

static void answer_if_written(hx_work *work)
{
    if (work->store.result != HX_STORE_OK)
        hx_admin_refuse(work->call, work->store.result == HX_STORE_FULL ? HX_ADMIN_FULL : HX_ADMIN_IN_DOUBT, HX_EMPTY,
                        NULL);
    else
        hx_work_answer(work, 200);
}

static void checkpoint_noted(hx_work *work)
{
    if (work->is_new)
        answer_if_written(work);
    else
        hx_admin_refuse(work->call, HX_ADMIN_TOO_LARGE, HX_LIT("The checkpoints of an operation have up to 64 KiB."),
                        NULL);
}

static void checkpoint_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    if (!is_current(work)) return;
    if (work->record.state == HX_COMPLETED || work->record.state == HX_FAILED)
        answer_fenced(work);
    else
        hx_work_note(work, put_checkpoint, checkpoint_noted);
}

void hx_admin_checkpoint_work(hx_admin_call *call)
{
    static const char *const members[] = {"id", "epoch", "name", "value", "tenant", NULL};
    hx_work *work = begin(call, members);
    if (!work) return;
    if (work->given.name.len == 0 || work->given.value.len == 0)
        hx_admin_refuse_malformed(call, "\"name\" and \"value\" are missing");
    else
        hx_work_read(work, checkpoint_read);
}

/* Outcomes */

static bool is_same_outcome(const hx_work *work, const hx_record *found)
{
    return found->epoch == work->given.epoch && found->state == work->record.state &&
           hx_slice_eq(found->answer.body, work->record.answer.body);
}

static void log_outcome(const hx_work *work)
{
    hx_log_begin(HX_EVENT_work_settled);
    hx_log_hex("operation", work->record.op.bytes, sizeof work->record.op.bytes);
    hx_log_int("epoch", (int64_t)work->record.epoch);
    hx_log_str("operation_type", work->record.route);
    hx_log_text("to_state", hx_state_name(work->record.state));
    if (work->record.correlation.len > 0) hx_log_str("correlation_id", work->record.correlation);
    hx_admin_log_caller(&work->call->who);
    hx_log_end();
}

static void settled(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    switch (store->result) {
    case HX_STORE_OK:
        log_outcome(work);
        work->is_new = true;
        work->record.answer.retained = work->record.answer.retained && !store->unretained;
        hx_work_answer(work, 200);
        return;
    case HX_STORE_STALE: {
        bool is_same = is_same_outcome(work, &store->found);
        work->record = store->found;
        if (is_same)
            hx_work_answer(work, 200);
        else
            answer_fenced(work);
        return;
    }
    default: hx_admin_refuse(work->call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); return;
    }
}

static void settle(hx_work *work, hx_state to, hx_slice body)
{
    hx_admin_call *call = work->call;
    hx_record *record = &work->record;
    bool is_ended = to == HX_COMPLETED || to == HX_FAILED;
    hx_slice reason = is_ended ? HX_EMPTY : work->given.reason;
    hx_lifecycle_change(record, to, reason, hx_admin_now(call->admin));
    record->answer = (hx_answer){.status = to == HX_COMPLETED ? 200
                                           : to == HX_FAILED  ? 500
                                                              : 0,
                                 .retained = is_ended,
                                 .headers = is_ended ? hx_slice_of(json_type) : HX_EMPTY,
                                 .body = body};
    hx_lifecycle_end_after(record, work->given.lifetime, 0);
    work->store = hx_admin_store_call(call->admin, call->arena, settled);
    hx_store_settle(call->admin->needs.store, &work->store, record);
}

/* A call that is repeated after its response was lost gets the same response. */
static void settle_read(hx_work *work, hx_state to, hx_slice body)
{
    if (!is_current(work)) return;
    if (work->record.state == to && hx_slice_eq(work->record.answer.body, body)) {
        hx_work_answer(work, 200);
        return;
    }
    if (work->record.state == HX_COMPLETED || work->record.state == HX_FAILED)
        answer_fenced(work);
    else
        settle(work, to, body);
}

static void complete_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    settle_read(work, HX_COMPLETED, work->given.result);
}

static void fail_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    settle_read(work, HX_FAILED, work->given.error);
}

static void abandon_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    settle_read(work, HX_UNKNOWN, HX_EMPTY);
}

/* An operation that is absent was released before: by this call, if its response was lost. */
static void release_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    if (store->result == HX_STORE_OK && store->found.state == HX_ABSENT) {
        work->record = (hx_record){.op = work->record.op, .epoch = work->given.epoch};
        hx_work_answer(work, 200);
        return;
    }
    if (!is_current(work)) return;
    if (work->record.state == HX_COMPLETED || work->record.state == HX_FAILED)
        answer_fenced(work);
    else
        settle(work, HX_ABSENT, HX_EMPTY);
}

static void end_work(hx_admin_call *call, const char *const *members, void (*read)(hx_store_call *store))
{
    hx_work *work = begin(call, members);
    if (!work) return;
    hx_work_given *given = &work->given;
    if (given->lifetime == 0) given->lifetime = LIFETIME_BY_DEFAULT;
    if (given->lifetime > LIFETIME_MAX)
        hx_admin_refuse_malformed(call, "\"lifetime\" must be up to 100 years");
    else if (given->result.len > RESULT_BYTES_MAX || given->error.len > RESULT_BYTES_MAX)
        hx_admin_refuse(call, HX_ADMIN_TOO_LARGE, HX_LIT("A result has up to 11 MiB."), NULL);
    else
        hx_work_read(work, read);
}

void hx_admin_complete_work(hx_admin_call *call)
{
    static const char *const members[] = {"id", "epoch", "result", "lifetime", "tenant", NULL};
    end_work(call, members, complete_read);
}

void hx_admin_fail_work(hx_admin_call *call)
{
    static const char *const members[] = {"id", "epoch", "error", "lifetime", "tenant", NULL};
    end_work(call, members, fail_read);
}

static const char *const reason_members[] = {"id", "epoch", "reason", "tenant", NULL};

void hx_admin_release_work(hx_admin_call *call)
{
    end_work(call, reason_members, release_read);
}

void hx_admin_abandon_work(hx_admin_call *call)
{
    end_work(call, reason_members, abandon_read);
}

/* Somebody wants it to end: the claimant is told when it renews. */

static void put_cancel(hx_work *work)
{
    work->notes.cancel = work->given.reason;
}

static void cancel_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    if (!hx_work_was_read(work)) return;
    if (work->record.state != HX_PROCESSING && work->record.state != HX_UNKNOWN)
        answer_fenced(work);
    else
        hx_work_note(work, put_cancel, answer_if_written);
}

void hx_admin_cancel_work(hx_admin_call *call)
{
    static const char *const members[] = {"id", "reason", "tenant", NULL};
    hx_work *work = hx_work_begin(call, members);
    if (!work) return;
    if (work->given.id.len == 0 || work->given.reason.len == 0)
        hx_admin_refuse_malformed(call, "\"id\" and \"reason\" are missing");
    else
        hx_work_read(work, cancel_read);
}
