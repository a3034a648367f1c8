/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers that list and show deliveries, and send them again. */
#include "admin/events/common.h"
#include "admin/events/views.h"
#include "admin/query.h"
#include "events/engine.h"

typedef struct {
    hx_admin_call *call;
    hx_store_call store;
    hx_item item;
    hx_item_page page;
    hx_delivery_change change;
} job;

/* NULL: there is no engine, and the call was answered. */
static job *new_job(hx_admin_call *call)
{
    if (!hx_admin_has_engine(call)) return NULL;
    job *j = hx_arena_zalloc(call->arena, sizeof *j);
    j->call = call;
    return j;
}

/* The delivery that the path names; false: the call was answered. */
static bool find_key(hx_admin_call *call, hx_slice *key)
{
    hx_slice named, tenant;
    const hx_admin_word words[] = {{"tenant", &named}};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 1);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return false;
    }
    if (!hx_admin_tenant(call, named, &tenant)) return false;
    *key = hx_delivery_key(tenant, call->parameters[0],
                           hx_admin_event_key(call->arena, tenant, call->parameters[0], call->parameters[1]),
                           call->arena);
    if (key->len <= HX_ITEM_KEY_MAX) return true;
    hx_admin_refuse(call, HX_ADMIN_NO_DELIVERY, HX_EMPTY, NULL);
    return false;
}

static void show_done(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    if (store->result != HX_STORE_OK || j->item.version == 0) {
        hx_admin_refuse(call, store->result == HX_STORE_OK ? HX_ADMIN_NO_DELIVERY : HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    hx_buf out;
    hx_buf_init(&out, call->arena, hx_view_delivery_bytes(&j->item));
    hx_view_delivery_item(&out, &j->item, call->arena);
    hx_buf_puts(&out, "\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

void hx_admin_show_delivery(hx_admin_call *call)
{
    job *j = new_job(call);
    if (!j) return;
    if (!find_key(call, &j->item.key)) return;
    j->store = hx_admin_store_call(call->admin, call->arena, show_done);
    hx_store_get(call->admin->needs.store, &j->store, &j->item, 1);
}

static void redrive_done(hx_delivery_change *change)
{
    job *j = HX_OWNER(change, job, change);
    hx_admin_call *call = j->call;
    bool is_skip = change->act == HX_DELIVERY_ACT_SKIP;
    switch (change->result) {
    case HX_CHANGE_DONE:
        hx_admin_answer(call, is_skip ? HX_LIT("{\"skipped\": 1}\n") : HX_LIT("{\"redriven\": 1}\n"));
        return;
    case HX_CHANGE_ABSENT: hx_admin_refuse(call, HX_ADMIN_NO_DELIVERY, HX_EMPTY, NULL); return;
    case HX_CHANGE_REFUSED:
        hx_admin_refuse(call, HX_ADMIN_DELIVERY_STATE, hx_slice_of(change->detail ? change->detail : ""), NULL);
        return;
    case HX_CHANGE_FULL: hx_admin_refuse(call, HX_ADMIN_FULL, HX_EMPTY, NULL); return;
    default: hx_admin_refuse(call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); return;
    }
}

static void change_delivery(hx_admin_call *call, hx_delivery_act act)
{
    job *j = new_job(call);
    if (!j) return;
    if (!find_key(call, &j->change.key)) return;
    j->change.arena = call->arena;
    j->change.act = act;
    j->change.reason = HX_LIT("skipped");
    j->change.done = redrive_done;
    hx_engine_change_delivery(call->admin->needs.engine, &j->change);
}

void hx_admin_redrive_delivery(hx_admin_call *call)
{
    change_delivery(call, HX_DELIVERY_ACT_REARM);
}

void hx_admin_skip_delivery(hx_admin_call *call)
{
    change_delivery(call, HX_DELIVERY_ACT_SKIP);
}

/* Where deliveries of a state are: in its queue, or, for a state without one, among all of an endpoint. */
static const char *choose_page(job *j, hx_slice tenant, hx_slice endpoint, hx_slice state)
{
    hx_arena *arena = j->call->arena;
    hx_delivery like = {.tenant = tenant, .endpoint = endpoint};
    j->page = (hx_item_page){.with_bodies = true, .backwards = true};
    if (state.len == 0) {
        if (endpoint.len == 0) return "name an \"endpoint\", or a \"state\" such as dead, pending, held or unknown";
        j->page.prefix = hx_delivery_key(tenant, endpoint, HX_EMPTY, arena);
        return NULL;
    }
    if (!hx_delivery_state_named(state, &like.state) || hx_delivery_states[like.state].queue[0] == '\0')
        return "\"state\" must be pending, sending, dead, held or unknown";
    j->page.by_queue = true;
    const char *queue = hx_delivery_states[like.state].queue;
    j->page.prefix = endpoint.len > 0 ? hx_delivery_queue(&like, arena)
                                      : hx_arena_printf(arena, "%s/%.*s/", queue, HX_FMT(tenant));
    return NULL;
}

void hx_admin_list_deliveries(hx_admin_call *call)
{
    hx_slice named, tenant, endpoint, state, limit, cursor;
    const hx_admin_word words[] = {
        {"tenant", &named}, {"endpoint", &endpoint}, {"state", &state}, {"limit", &limit}, {"cursor", &cursor}};
    job *j = new_job(call);
    if (!j) return;
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 5);
    if (!wrong) {
        if (!hx_admin_tenant(call, named, &tenant)) return;
        wrong = choose_page(j, tenant, endpoint, state);
    }
    if (!wrong) wrong = hx_admin_page(limit, cursor, call->arena, &j->page);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    hx_admin_list *list = hx_arena_alloc(call->arena, sizeof *list);
    *list = (hx_admin_list){.call = call,
                            .name = "deliveries",
                            .bytes = hx_view_delivery_bytes,
                            .write = hx_view_delivery_item,
                            .page = j->page};
    hx_admin_answer_list(list);
}
