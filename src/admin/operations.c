/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers that show operations and counts, and those that resolve or forget one operation. */
#include "admin/call.h"
#include "admin/views.h"
#include "base/program/log_writer.h"
#include "core/json/json_writer.h"
#include "observe/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

#define COUNTS_BYTES_MAX (16u * 1024u)

/* Begins the answer with the page that was read. False: the store failed, and the call was answered. */
static bool begin_page(hx_admin_call *call, hx_buf *out)
{
    if (call->store.result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return false;
    }
    hx_buf_init(out, call->arena, call->page.count * (HX_VIEW_RECORD_BYTES + 2) + 512);
    hx_json_open(out, NULL, '{');
    return true;
}

static void answer_page(hx_admin_call *call, hx_buf *out)
{
    if (call->page.more) {
        char digits[24];
        (void)snprintf(digits, sizeof digits, "%" PRIu64, (uint64_t)call->page.cursor);
        hx_json_put_text(out, "cursor", hx_slice_of(digits));
    }
    hx_buf_puts(out, "}\n");
    hx_admin_answer(call, hx_buf_slice(out));
}

static void list_done(hx_store_call *store)
{
    hx_admin_call *call = HX_OWNER(store, hx_admin_call, store);
    hx_buf out;
    if (!begin_page(call, &out)) return;
    hx_view_records(&out, "operations", call->page.records, call->page.count);
    hx_json_put_number(&out, "count", call->page.count);
    answer_page(call, &out);
}

void hx_admin_list_operations(hx_admin_call *call)
{
    hx_filter_reader reader = hx_admin_reader(call);
    const char *wrong = hx_filter_query(&reader, call->stream->request.query, &call->page);
    if (wrong) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_slice_of(wrong), NULL);
        return;
    }
    call->store = hx_admin_store_call(call->admin, call->arena, list_done);
    hx_store_list(call->admin->needs.store, &call->store, &call->page);
}

static void answer_record(hx_admin_call *call)
{
    hx_buf out;
    hx_buf_init(&out, call->arena, HX_VIEW_RECORD_BYTES + 64);
    hx_json_open(&out, NULL, '{');
    hx_json_put_name(&out, "operation");
    hx_view_record(&out, &call->record);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

/* Puts the operation that was read into call->record. False: there is none, or the store failed, and the call was
 * answered. */
static bool was_read(hx_admin_call *call)
{
    bool is_read = call->store.result == HX_STORE_OK;
    call->record = call->store.found;
    if (is_read && call->record.state != HX_ABSENT) return true;
    hx_admin_refuse(call, is_read ? HX_ADMIN_NO_OPERATION : HX_ADMIN_UNREAD, HX_EMPTY, NULL);
    return false;
}

static void look(hx_admin_call *call, void (*done)(hx_store_call *store))
{
    call->store = hx_admin_store_call(call->admin, call->arena, done);
    hx_store_read(call->admin->needs.store, &call->store, &call->op);
}

static void show_read(hx_store_call *store)
{
    hx_admin_call *call = HX_OWNER(store, hx_admin_call, store);
    if (was_read(call)) answer_record(call);
}

void hx_admin_show_operation(hx_admin_call *call)
{
    look(call, show_read);
}

static void history_done(hx_store_call *store)
{
    hx_admin_call *call = HX_OWNER(store, hx_admin_call, store);
    bool by_key = call->page.has_key;
    hx_buf out;
    if (store->result == HX_STORE_OK && call->page.count == 0 && !by_key) {
        hx_admin_refuse(call, HX_ADMIN_NO_OPERATION, HX_EMPTY, NULL);
        return;
    }
    if (!begin_page(call, &out)) return;
    if (!by_key) hx_json_put_hex(&out, "id", call->op.bytes, sizeof call->op.bytes);
    hx_view_records(&out, "history", call->page.records, call->page.count);
    answer_page(call, &out);
}

static void show_history(hx_admin_call *call, bool by_key)
{
    hx_filter_reader reader = hx_admin_reader(call);
    call->page.records_max = HX_STORE_PAGE_MAX;
    const char *wrong = hx_filter_query(&reader, call->stream->request.query, &call->page);
    bool has_key = call->page.has_key;
    call->page.has_key = false;
    if (!wrong && by_key && !has_key) wrong = "key is missing";
    if (!wrong && (has_key != by_key || hx_filter_narrows(&call->page)))
        wrong = by_key ? "the history of a key takes key, limit and cursor" : "a history takes limit and cursor";
    if (wrong) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_slice_of(wrong), NULL);
        return;
    }
    call->page.has_key = by_key;
    call->store = hx_admin_store_call(call->admin, call->arena, history_done);
    hx_store_history(call->admin->needs.store, &call->store, by_key ? NULL : &call->op, &call->page);
}

void hx_admin_show_history(hx_admin_call *call)
{
    show_history(call, false);
}

void hx_admin_show_key_history(hx_admin_call *call)
{
    show_history(call, true);
}

hx_admin_problem hx_admin_objection(const hx_operator_act *act, uint64_t epoch, const hx_record *found)
{
    if (found->state == HX_ABSENT) return HX_ADMIN_NO_OPERATION;
    if (epoch != 0 && epoch != found->epoch) return HX_ADMIN_CHANGED;
    if (found->state == HX_PROCESSING) return HX_ADMIN_UNDER_WAY;
    if (act->kind == HX_OPERATOR_ACT_FORGET) return HX_ADMIN_PROBLEM_COUNT;
    if (found->state != HX_UNKNOWN) return HX_ADMIN_SETTLED;
    /* A record that can't be read is unknown without its request: no later request would match a response. */
    if (found->unreadable) return HX_ADMIN_UNREADABLE;
    return HX_ADMIN_PROBLEM_COUNT;
}

bool hx_admin_fits(const hx_admin_call *call, const hx_record *found)
{
    const hx_policy *policy = hx_operator_act_policy(call->admin->needs.rules->policies, found->route);
    return call->act.answer.body.len <= policy->answer_bytes_max;
}

void hx_admin_perform(const hx_admin_call *call, hx_store_call *store, hx_record *record)
{
    hx_store *where = call->admin->needs.store;
    if (call->act.kind == HX_OPERATOR_ACT_FORGET) {
        /* An unknown operation whose response has arrived meanwhile must not be forgotten. The state of a record that
         * can't be read is not known. */
        store->states = record->unreadable ? 0 : 1u << record->state;
        hx_store_forget(where, store, &record->op, record->epoch, call->reason);
        return;
    }
    const hx_policy *policy = hx_operator_act_policy(call->admin->needs.rules->policies, record->route);
    hx_operator_act_resolve(&call->act, policy, call->reason, hx_admin_now(call->admin), call->arena, record);
    hx_store_settle(where, store, record);
}

void hx_admin_count_key(const hx_admin_call *call, hx_party party, const hx_record *record)
{
    const hx_admin_needs *needs = &call->admin->needs;
    hx_ms now = hx_admin_now(call->admin);
    if (!needs->limiter) return;
    if (call->act.kind == HX_OPERATOR_ACT_FORGET)
        hx_limiter_forgotten(needs->limiter, party, record->state, record->expires_at, now);
    else if (hx_operator_act_policy(needs->rules->policies, record->route)->quota > 0)
        hx_limiter_settled(needs->limiter, party, record->state, record->expires_at, now);
}

void hx_admin_begin_log(const hx_admin_call *call, const hx_record *from)
{
    hx_log_begin(call->act.kind == HX_OPERATOR_ACT_FORGET ? HX_EVENT_operation_forgotten : HX_EVENT_operation_resolved);
    if (from) {
        hx_log_hex("operation", from->op.bytes, sizeof from->op.bytes);
        hx_log_int("epoch", (int64_t)from->epoch);
        hx_log_str("operation_type", from->route);
    }
    if (call->act.kind == HX_OPERATOR_ACT_RESOLVE) hx_log_text("to_state", hx_state_name(call->act.to));
    hx_admin_log_caller(&call->who);
    hx_log_str("why", call->act.why);
}

static void act_done(hx_store_call *store)
{
    hx_admin_call *call = HX_OWNER(store, hx_admin_call, store);
    if (store->result == HX_STORE_STALE) {
        bool is_gone = store->found.state == HX_ABSENT;
        hx_admin_refuse(call, is_gone ? HX_ADMIN_NO_OPERATION : HX_ADMIN_CHANGED, HX_EMPTY, &store->found);
        return;
    }
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_STORE, HX_EMPTY, NULL);
        return;
    }
    hx_admin_begin_log(call, &call->record);
    hx_log_end();
    hx_admin_count_key(call, hx_limiter_party_of(&call->record), &call->record);
    if (call->act.kind == HX_OPERATOR_ACT_FORGET) {
        call->record.state = HX_ABSENT;
        call->record.reason = call->reason;
    }
    answer_record(call);
}

static void decide_read(hx_store_call *store)
{
    hx_admin_call *call = HX_OWNER(store, hx_admin_call, store);
    if (!was_read(call)) return;
    hx_admin_problem objection = hx_admin_objection(&call->act, call->act.epoch, &call->record);
    if (objection == HX_ADMIN_PROBLEM_COUNT && !hx_admin_fits(call, &call->record)) objection = HX_ADMIN_TOO_LARGE;
    if (objection != HX_ADMIN_PROBLEM_COUNT) {
        hx_admin_refuse(call, objection, HX_EMPTY, &call->record);
        return;
    }
    call->store = hx_admin_store_call(call->admin, call->arena, act_done);
    hx_admin_perform(call, &call->store, &call->record);
}

static void decide_one(hx_admin_call *call, hx_operator_act_kind kind)
{
    hx_admin *admin = call->admin;
    call->act = (hx_operator_act){.kind = kind};
    const char *wrong = hx_operator_act_read(&call->act, hx_buf_slice(&call->body), call->arena, hx_admin_now(admin));
    if (wrong) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_slice_of(wrong), NULL);
        return;
    }
    hx_slice who = hx_admin_caller_text(&call->who, call->arena);
    call->reason = hx_operator_act_reason(who, call->act.why, call->arena);
    look(call, decide_read);
}

void hx_admin_resolve_operation(hx_admin_call *call)
{
    decide_one(call, HX_OPERATOR_ACT_RESOLVE);
}

void hx_admin_forget_operation(hx_admin_call *call)
{
    decide_one(call, HX_OPERATOR_ACT_FORGET);
}

/* The states of the store in which requests are refused now. */
static void put_outages(hx_buf *out, const hx_store_health *outage)
{
    static const char *const names[] = {
#define X(id, begins, ends) #begins,
#include "gateway/parts/store_health_states.def"
#undef X
    };
    hx_json_open(out, "refusing", '{');
    for (size_t id = 0; id < HX_STORE_HEALTH_END; id++)
        hx_json_put_bool(out, names[id], atomic_load(&outage->states[id].on));
    hx_json_close(out, '}');
}

void hx_admin_show_counts(hx_admin_call *call)
{
    const hx_admin_needs *needs = &call->admin->needs;
    hx_store_counts counts;
    hx_store_count(needs->store, &counts);
    hx_buf out;
    hx_buf_init(&out, call->arena, COUNTS_BYTES_MAX);
    hx_json_open(&out, NULL, '{');
    hx_json_put_number(&out, "generation", needs->rules->generation);
    hx_json_put_number(&out, "generations_in_use", needs->generations(needs->context));
    hx_metrics_json(&out, HX_METRICS_STORE, (const uint64_t *)&counts);
    if (needs->limiter) {
        hx_limiter_counts limited;
        hx_limiter_count(needs->limiter, &limited);
        hx_metrics_json(&out, HX_METRICS_LIMITS, (const uint64_t *)&limited);
    }
    if (needs->outage) put_outages(&out, needs->outage);
    uint64_t dropped = hx_log_dropped(), sums[HX_COUNT_END] = {0};
    for (size_t id = 0; id < HX_COUNT_END; id++)
        for (size_t i = 0; i < needs->worker_count; i++)
            sums[id] += atomic_load_explicit(&needs->workers[i]->counts[id], memory_order_relaxed);
    if (needs->engine) hx_metrics_json(&out, HX_METRICS_EVENTS, (const uint64_t *)hx_engine_count(needs->engine));
    hx_metrics_json(&out, HX_METRICS_LOG, &dropped);
    hx_metrics_json(&out, HX_METRICS_WORKERS, sums);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}
