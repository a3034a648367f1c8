/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of jobs that send deliveries again. */
#include "events/jobs/jobs.h"

#include "admin/events/common.h"
#include "admin/filter.h"
#include "admin/query.h"
#include "core/json/json_writer.h"

typedef struct {
    hx_admin_call *call;
    hx_store_call store;
    hx_item item;
    hx_job_call redrive;
} asking;

/* NULL: there is no engine, and the call was answered. */
static asking *new_asking(hx_admin_call *call)
{
    if (!hx_admin_has_engine(call)) return NULL;
    asking *j = hx_arena_zalloc(call->arena, sizeof *j);
    j->call = call;
    j->redrive.arena = call->arena;
    j->redrive.job = hx_redrive_new;
    return j;
}

static size_t bytes_of(const hx_item *item)
{
    return 2048 + 2 * item->meta.len;
}

static void put_job(hx_buf *out, const hx_redrive *shown)
{
    hx_redrive job = *shown;
    hx_slice part;
    (void)hx_slice_next(&job.event, '/', &part); /* "e/TENANT/ID" */
    (void)hx_slice_next(&job.event, '/', &part);
    if (!job.event.ptr) job.event = HX_EMPTY;
    hx_json_open(out, NULL, '{');
    hx_json_write(&hx_redrive_shape, HX_JSON_SHOWN, &job, out);
    hx_json_close(out, '}');
}

static void put_item(hx_buf *out, const hx_item *item, hx_arena *arena)
{
    hx_redrive job;
    if (hx_redrive_decode(item->meta, arena, &job)) put_job(out, &job);
}

static void answer_job(hx_admin_call *call, unsigned status, const hx_redrive *job)
{
    hx_buf out;
    hx_buf_init(&out, call->arena, HX_ITEM_META_MAX);
    put_job(&out, job);
    hx_buf_puts(&out, "\n");
    hx_admin_answer_with(call, status, HX_EMPTY, hx_buf_slice(&out));
}

static void redrive_done(hx_job_call *redrive)
{
    asking *j = HX_OWNER(redrive, asking, redrive);
    hx_admin_call *call = j->call;
    switch (redrive->result) {
    case HX_CHANGE_DONE: break;
    case HX_CHANGE_ABSENT: hx_admin_refuse(call, HX_ADMIN_NO_REDRIVE, HX_EMPTY, NULL); return;
    case HX_CHANGE_REFUSED: hx_admin_refuse(call, HX_ADMIN_TOO_MANY_REDRIVES, HX_EMPTY, NULL); return;
    case HX_CHANGE_FULL: hx_admin_refuse(call, HX_ADMIN_FULL, HX_EMPTY, NULL); return;
    default: hx_admin_refuse(call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); return;
    }
    if (redrive->act != HX_JOB_PREVIEW) {
        answer_job(call, redrive->act == HX_JOB_BEGIN ? 202 : 200, &redrive->job);
        return;
    }
    hx_buf out;
    hx_buf_init(&out, call->arena, 256);
    hx_json_open(&out, NULL, '{');
    hx_json_put_number(&out, "would_redrive", redrive->matched);
    hx_json_put_number(&out, "skipped", redrive->skipped);
    hx_json_put_number(&out, "too_old", redrive->too_old);
    hx_json_put_bool(&out, "more", redrive->more);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

typedef struct {
    hx_redrive job; /* its texts and numbers */
    hx_slice from, before;
    bool again, preview;
} said;

#define FIELD(name, kind)                                                                                              \
    {                                                                                                                  \
#name, HX_JSON_##kind, offsetof(said, job.name), HX_JSON_GIVEN                                                 \
    }
#define OWN(name, kind) HX_JSON_FIELD(said, name, kind, HX_JSON_GIVEN)
static const hx_json_field said_fields[] = {
    FIELD(tenant, TEXT),      FIELD(endpoint, TEXT), FIELD(state, TEXT),  FIELD(event, TEXT),
    FIELD(past_window, BOOL), FIELD(limit, NUMBER),  FIELD(rate, NUMBER), FIELD(stop_after, NUMBER),
    FIELD(why, TEXT),         OWN(from, TEXT),       OWN(before, TEXT),   OWN(again, BOOL),
    OWN(preview, BOOL),
};
static const hx_json_shape said_shape = HX_JSON_SHAPE(said_fields);

/* For a recovery. */
static const hx_json_field since_fields[] = {
    {"since", HX_JSON_TEXT, offsetof(said, from), HX_JSON_GIVEN},
    FIELD(limit, NUMBER),
    FIELD(rate, NUMBER),
    FIELD(stop_after, NUMBER),
    FIELD(why, TEXT),
    OWN(preview, BOOL),
};
#undef FIELD
#undef OWN
static const hx_json_shape since_shape = HX_JSON_SHAPE(since_fields);

static const char *check_state(const said *given)
{
    static const char *const words[] = {"dead", "held", "unknown", "paused", "delivered"};
    hx_delivery_state state;
    for (size_t i = 0; i < 5; i++)
        if (hx_slice_eq(given->job.state, hx_slice_of(words[i])))
            return i < 4 || given->again ? NULL : "deliveries that were delivered are sent again with \"again\": true";
    if (given->preview && hx_delivery_state_named(given->job.state, &state)) return NULL;
    return "\"state\" must be dead, held, unknown, paused or delivered";
}

/* What is the same for a re-drive and a recovery. NULL, or what is wrong. */
static const char *check_pace(hx_redrive *job)
{
    if (job->rate > HX_REDRIVE_RATE_MAX) return "\"rate\" must be up to 1000 a second; 0 is without a limit";
    if (job->why.len > HX_ADMIN_WHY_MAX) return "\"why\" must have up to 500 bytes";
    return NULL;
}

static const char *read_time(hx_admin_call *call, hx_slice text, hx_ms *at)
{
    if (text.len == 0 || hx_filter_time(text, hx_admin_now(call->admin), at)) return NULL;
    return "\"from\", \"before\" and \"since\" must be times such as 2026-02-19T12:00:00Z, or ages such as 2h";
}

static void begin(asking *j, const hx_redrive *job, bool preview)
{
    if (job->endpoint.len > 0 && !hx_engine_endpoint(j->call->admin->needs.engine, job->tenant, job->endpoint)) {
        hx_admin_refuse(j->call, HX_ADMIN_NO_ENDPOINT, HX_EMPTY, NULL);
        return;
    }
    j->redrive.job = *job;
    j->redrive.act = preview ? HX_JOB_PREVIEW : HX_JOB_BEGIN;
    j->redrive.job.by = hx_admin_caller_text(&j->call->who, j->call->arena);
    j->redrive.done = redrive_done;
    hx_job_do(j->call->admin->needs.engine, &j->redrive);
}

void hx_admin_begin_redrive(hx_admin_call *call)
{
    asking *j = new_asking(call);
    hx_error_text error;
    said given = {.job = hx_redrive_new, .from = HX_EMPTY, .before = HX_EMPTY};
    if (!j) return;
    given.job.state = HX_LIT("dead");
    given.job.kind = HX_LIT("redrive");
    if (!hx_json_read(&said_shape, HX_JSON_GIVEN, hx_buf_slice(&call->body), call->arena, &given, error)) {
        hx_admin_refuse_malformed(call, error);
        return;
    }
    hx_redrive *asked = &given.job;
    if (!hx_admin_tenant(call, asked->tenant, &asked->tenant)) return;
    const char *wrong = check_state(&given);
    if (!wrong) wrong = check_pace(asked);
    if (!wrong) wrong = read_time(call, given.from, &asked->from);
    if (!wrong) wrong = read_time(call, given.before, &asked->before);
    if (!wrong && asked->endpoint.len > HX_EVENT_NAME_MAX) wrong = "\"endpoint\" is too long";
    if (!wrong && asked->event.len > 0) {
        asked->event = hx_admin_event_key(call->arena, asked->tenant, asked->endpoint, asked->event);
        if (hx_delivery_key(asked->tenant, asked->endpoint, asked->event, call->arena).len > HX_ITEM_KEY_MAX)
            wrong = "\"event\" is too long";
    }
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    begin(j, asked, given.preview);
}

void hx_admin_list_redrives(hx_admin_call *call)
{
    hx_slice named, tenant, limit, cursor;
    const hx_admin_word words[] = {{"tenant", &named}, {"limit", &limit}, {"cursor", &cursor}};
    if (!hx_admin_has_engine(call)) return;
    hx_admin_list *list = hx_arena_zalloc(call->arena, sizeof *list);
    *list = (hx_admin_list){
        .call = call, .name = "redrives", .bytes = bytes_of, .write = put_item, .page = {.backwards = true}};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 3);
    if (!wrong) {
        if (!hx_admin_tenant(call, named, &tenant)) return;
        list->page.prefix = hx_redrive_key(tenant, HX_EMPTY, call->arena);
        wrong = hx_admin_page(limit, cursor, call->arena, &list->page);
    }
    if (wrong)
        hx_admin_refuse_malformed(call, wrong);
    else
        hx_admin_answer_list(list);
}

/* The tenant of the job that the path names; false: the call was answered. */
static bool find_tenant(hx_admin_call *call, hx_slice *tenant)
{
    hx_slice named;
    const hx_admin_word words[] = {{"tenant", &named}};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 1);
    if (wrong) hx_admin_refuse_malformed(call, wrong);
    if (wrong || !hx_admin_tenant(call, named, tenant)) return false;
    if (call->parameters[0].len <= HX_EVENT_NAME_MAX) return true;
    hx_admin_refuse(call, HX_ADMIN_NO_REDRIVE, HX_EMPTY, NULL);
    return false;
}

static void show_done(hx_store_call *store)
{
    asking *j = HX_OWNER(store, asking, store);
    hx_redrive shown;
    bool is_there = store->result == HX_STORE_OK && j->item.version > 0 &&
                    hx_redrive_decode(j->item.meta, j->call->arena, &shown);
    if (is_there)
        answer_job(j->call, 200, &shown);
    else
        hx_admin_refuse(j->call, store->result == HX_STORE_OK ? HX_ADMIN_NO_REDRIVE : HX_ADMIN_UNREAD, HX_EMPTY, NULL);
}

void hx_admin_show_redrive(hx_admin_call *call)
{
    asking *j = new_asking(call);
    hx_slice tenant;
    if (!j || !find_tenant(call, &tenant)) return;
    j->item = (hx_item){.key = hx_redrive_key(tenant, call->parameters[0], call->arena)};
    j->store = hx_admin_store_call(call->admin, call->arena, show_done);
    hx_store_get(call->admin->needs.store, &j->store, &j->item, 1);
}

void hx_admin_stop_redrive(hx_admin_call *call)
{
    asking *j = new_asking(call);
    hx_error_text error;
    if (!j || !find_tenant(call, &j->redrive.job.tenant)) return;
    j->redrive.why = HX_LIT("an operator stopped it");
    if (!hx_admin_read_why(call, &j->redrive.why, error)) {
        hx_admin_refuse_malformed(call, error);
        return;
    }
    j->redrive.act = HX_JOB_STOP;
    j->redrive.job.id = call->parameters[0];
    j->redrive.done = redrive_done;
    hx_job_do(call->admin->needs.engine, &j->redrive);
}

void hx_admin_recover_endpoint(hx_admin_call *call)
{
    asking *j = new_asking(call);
    hx_error_text error;
    said given = {.job = hx_redrive_new, .from = HX_EMPTY, .before = HX_EMPTY};
    hx_redrive *asked = &given.job;
    if (!j || !find_tenant(call, &asked->tenant)) return;
    if (!hx_json_read(&since_shape, HX_JSON_GIVEN, hx_buf_slice(&call->body), call->arena, &given, error)) {
        hx_admin_refuse_malformed(call, error);
        return;
    }
    const char *wrong = given.from.len > 0 ? NULL : "\"since\" is missing: from when on did it miss events?";
    if (!wrong) wrong = check_pace(asked);
    if (!wrong) wrong = read_time(call, given.from, &asked->from);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    asked->kind = HX_LIT("recover");
    asked->endpoint = call->parameters[0];
    begin(j, asked, given.preview);
}
