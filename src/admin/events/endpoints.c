/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of endpoints. */
#include "admin/events/common.h"
#include "admin/events/views.h"
#include "admin/query.h"
#include "base/check.h"
#include "base/rand.h"
#include "core/json/json_writer.h"
#include "core/webhook/webhook.h"
#include "events/engine.h"

#define SECRET_BYTES 32u
#define OVERLAP_BY_DEFAULT HX_DAY
#define OVERLAP_MAX (30 * HX_DAY)
#define STOPPED_MAX 100u
#define STOPPED_BYTES 1024u /* of JSON, for each */

typedef struct {
    hx_admin_call *call;
    hx_store_call store;
    hx_item_page page;
    hx_endpoint_change change;
    hx_item item, *marked;
    hx_publish publish;
    hx_slice shown_secret; /* a new one, which is shown once; empty: none */
} job;

/* NULL: there is no engine, and the call was answered. */
static job *new_job(hx_admin_call *call)
{
    if (!hx_admin_has_engine(call)) return NULL;
    job *j = hx_arena_zalloc(call->arena, sizeof *j);
    j->call = call;
    return j;
}

static void change_done(hx_endpoint_change *change)
{
    job *j = HX_OWNER(change, job, change);
    hx_admin_call *call = j->call;
    switch (change->result) {
    case HX_CHANGE_DONE: break;
    case HX_CHANGE_ABSENT: hx_admin_refuse(call, HX_ADMIN_NO_ENDPOINT, HX_EMPTY, NULL); return;
    case HX_CHANGE_REFUSED: hx_admin_refuse_malformed(call, change->detail); return;
    case HX_CHANGE_CONFIGURED: hx_admin_refuse(call, HX_ADMIN_ENDPOINT_CONFIGURED, HX_EMPTY, NULL); return;
    case HX_CHANGE_FULL: hx_admin_refuse(call, HX_ADMIN_FULL, HX_EMPTY, NULL); return;
    default: hx_admin_refuse(call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); return;
    }
    hx_buf out;
    hx_buf_init(&out, call->arena, HX_VIEW_ENDPOINT_BYTES);
    hx_json_open(&out, NULL, '{');
    hx_view_endpoint(&out, &change->endpoint);
    if (j->shown_secret.len > 0) hx_json_put_text(&out, "secret", j->shown_secret);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer_with(call, change->act == HX_ENDPOINT_CREATE ? 201 : 200, HX_EMPTY, hx_buf_slice(&out));
}

static hx_slice new_secret(hx_arena *arena)
{
    uint8_t random[SECRET_BYTES];
    hx_rand_bytes(random, sizeof random);
    return hx_webhook_secret_write(random, sizeof random, arena);
}

static void begin_change(job *j, hx_endpoint_act act)
{
    j->change.arena = j->call->arena;
    j->change.act = act;
    j->change.done = change_done;
    hx_engine_change_endpoint(j->call->admin->needs.engine, &j->change);
}

/* The endpoint that the path names, in the tenant that the query names. False: the call was answered. */
static bool find_name(hx_admin_call *call, job *j)
{
    hx_slice named;
    const hx_admin_word words[] = {{"tenant", &named}};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 1);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return false;
    }
    j->change.id = call->parameters[0];
    return hx_admin_tenant(call, named, &j->change.tenant);
}

void hx_admin_create_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    hx_error_text error;
    hx_slice tenant;
    if (!j) return;
    j->change.endpoint = hx_endpoint_new;
    if (!hx_endpoint_read(hx_buf_slice(&call->body), call->arena, &j->change.endpoint, error)) {
        hx_admin_refuse_malformed(call, error);
        return;
    }
    if (!hx_admin_tenant(call, j->change.endpoint.tenant, &tenant)) return;
    j->change.endpoint.tenant = tenant;
    if (j->change.endpoint.secrets.count == 0) {
        hx_slice *secret = hx_arena_alloc(call->arena, sizeof *secret);
        *secret = j->shown_secret = new_secret(call->arena);
        j->change.endpoint.secrets = (hx_texts){secret, 1};
    }
    begin_change(j, HX_ENDPOINT_CREATE);
}

void hx_admin_change_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    if (!j) return;
    j->change.given = hx_buf_slice(&call->body);
    if (find_name(call, j)) begin_change(j, HX_ENDPOINT_REPLACE);
}

void hx_admin_delete_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    if (!j) return;
    if (find_name(call, j)) begin_change(j, HX_ENDPOINT_DELETE);
}

void hx_admin_enable_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    if (!j) return;
    if (find_name(call, j)) begin_change(j, HX_ENDPOINT_ENABLE);
}

typedef struct {
    hx_ms overlap;
    hx_slice secret;
} said;

static const hx_json_field said_fields[] = {HX_JSON_FIELD(said, overlap, SPAN, HX_JSON_GIVEN),
                                            HX_JSON_FIELD(said, secret, TEXT, HX_JSON_GIVEN)};
static const hx_json_shape said_shape = HX_JSON_SHAPE(said_fields);

static bool read_said(hx_admin_call *call, said *out)
{
    hx_error_text error;
    *out = (said){.overlap = OVERLAP_BY_DEFAULT, .secret = HX_EMPTY};
    if (call->body.len == 0) return true;
    if (hx_json_read(&said_shape, HX_JSON_GIVEN, hx_buf_slice(&call->body), call->arena, out, error)) return true;
    hx_admin_refuse_malformed(call, error);
    return false;
}

void hx_admin_disable_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    hx_error_text error;
    if (!j) return;
    if (!find_name(call, j)) return;
    j->change.reason = HX_EMPTY;
    if (!hx_admin_read_why(call, &j->change.reason, error)) {
        hx_admin_refuse_malformed(call, error);
        return;
    }
    if (j->change.reason.len == 0 || j->change.reason.len > 200) {
        hx_admin_refuse_malformed(call, "\"why\" must say in 1 to 200 bytes why the endpoint is disabled");
        return;
    }
    begin_change(j, HX_ENDPOINT_DISABLE);
}

void hx_admin_rotate_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    said given;
    if (!j) return;
    if (!find_name(call, j) || !read_said(call, &given)) return;
    if (given.overlap > OVERLAP_MAX) {
        hx_admin_refuse_malformed(call, "\"overlap\" must be up to 30d");
        return;
    }
    hx_endpoint like = hx_endpoint_new;
    hx_error_text error;
    if (given.secret.len == 0) {
        given.secret = j->shown_secret = new_secret(call->arena);
    } else { /* checked as in an endpoint */
        hx_buf json;
        hx_buf_init(&json, call->arena, 6 * given.secret.len + 64);
        hx_json_open(&json, NULL, '{');
        hx_json_put_text(&json, "url", HX_LIT("https://example.com"));
        hx_json_put_list(&json, "secrets", &given.secret, 1);
        hx_json_close(&json, '}');
        if (!hx_endpoint_read(hx_buf_slice(&json), call->arena, &like, error)) {
            hx_admin_refuse_malformed(call, error);
            return;
        }
    }
    j->change.secret = given.secret;
    j->change.retire_at = hx_admin_now(call->admin) + given.overlap;
    begin_change(j, HX_ENDPOINT_ROTATE);
}

/* The streams of an ordered endpoint that go no further, each with the delivery that stops it. */
static void put_stopped(hx_buf *out, job *j)
{
    hx_json_open(out, "stopped", '[');
    for (size_t i = 0; i < j->page.count; i++) {
        hx_delivery delivery;
        const hx_item *item = &j->marked[i];
        if (item->version == 0 || !hx_delivery_decode(item->meta, item->body, j->call->arena, &delivery)) continue;
        if (delivery.state != HX_DELIVERY_DEAD && delivery.state != HX_DELIVERY_UNKNOWN) continue;
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "stream", delivery.stream);
        hx_json_put_text(out, "event", hx_view_event_id(delivery.event));
        hx_json_put_text(out, "state", hx_slice_of(hx_delivery_states[delivery.state].name));
        hx_json_put_time(out, "since", delivery.settled_at);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    if (j->page.more) hx_json_put_bool(out, "more_stopped", true);
}

static void show(job *j)
{
    hx_buf out;
    const hx_endpoint *known = hx_engine_endpoint(j->call->admin->needs.engine, j->change.tenant, j->change.id);
    if (known) j->change.endpoint.failing_since = known->failing_since; /* it is noted in the store a little later */
    hx_buf_init(&out, j->call->arena, HX_VIEW_ENDPOINT_BYTES + STOPPED_MAX * STOPPED_BYTES);
    hx_json_open(&out, NULL, '{');
    hx_view_endpoint(&out, &j->change.endpoint);
    if (j->change.endpoint.ordered) put_stopped(&out, j);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(j->call, hx_buf_slice(&out));
}

static void marked_read(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    if (store->result == HX_STORE_OK)
        show(j);
    else
        hx_admin_refuse(j->call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
}

static void marks_read(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    if (j->page.count == 0) {
        show(j);
        return;
    }
    j->marked = hx_arena_alloc(call->arena, j->page.count * sizeof *j->marked);
    for (size_t i = 0; i < j->page.count; i++) j->marked[i] = (hx_item){.key = j->page.items[i].meta};
    j->store = hx_admin_store_call(call->admin, call->arena, marked_read);
    hx_store_get(call->admin->needs.store, &j->store, j->marked, j->page.count);
}

static void endpoint_read(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    hx_endpoint *endpoint = &j->change.endpoint;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
    } else if (j->item.version == 0 || !hx_endpoint_decode(j->item.meta, call->arena, endpoint) ||
               endpoint->deleted_at > 0) {
        hx_admin_refuse(call, HX_ADMIN_NO_ENDPOINT, HX_EMPTY, NULL);
    } else if (!endpoint->ordered) {
        show(j);
    } else {
        hx_slice prefix = hx_arena_printf(call->arena, HX_DELIVERY_MARKS "%.*s/%.*s/", HX_FMT(endpoint->tenant),
                                          HX_FMT(endpoint->id));
        j->page = (hx_item_page){.prefix = prefix, .items_max = STOPPED_MAX};
        j->store = hx_admin_store_call(call->admin, call->arena, marks_read);
        hx_store_scan(call->admin->needs.store, &j->store, &j->page);
    }
}

/* It is read from the store: another node may have changed it a moment ago. */
void hx_admin_show_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    if (!j) return;
    if (!find_name(call, j)) return;
    j->item = (hx_item){.key = hx_endpoint_key(j->change.tenant, j->change.id, call->arena)};
    if (j->item.key.len > HX_ITEM_KEY_MAX) {
        hx_admin_refuse(call, HX_ADMIN_NO_ENDPOINT, HX_EMPTY, NULL);
        return;
    }
    j->store = hx_admin_store_call(call->admin, call->arena, endpoint_read);
    hx_store_get(call->admin->needs.store, &j->store, &j->item, 1);
}

static void test_published(hx_publish *publish)
{
    job *j = HX_OWNER(publish, job, publish);
    switch (publish->result) {
    case HX_PUBLISHED: break;
    case HX_PUBLISH_FULL: hx_admin_refuse(j->call, HX_ADMIN_FULL, HX_EMPTY, NULL); return;
    default: hx_admin_refuse(j->call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); return;
    }
    hx_slice body = hx_arena_printf(j->call->arena, "{\"event\":\"%.*s\"}\n", HX_FMT(publish->events[0].id));
    hx_admin_answer_with(j->call, 202, HX_EMPTY, body);
}

/* An event for this endpoint only, which is delivered as any other, beside the order of its streams. Its death is not
 * told: its id is one of ours. */
void hx_admin_test_endpoint(hx_admin_call *call)
{
    job *j = new_job(call);
    hx_error_text error;
    if (!j) return;
    if (!find_name(call, j)) return;
    const hx_endpoint *endpoint = hx_engine_endpoint(call->admin->needs.engine, j->change.tenant, j->change.id);
    if (!endpoint || hx_slice_starts(j->change.id, HX_LIT("in_"))) {
        hx_admin_refuse(call, HX_ADMIN_NO_ENDPOINT, HX_EMPTY, NULL);
        return;
    }
    if (endpoint->disabled) {
        hx_admin_refuse(call, HX_ADMIN_ENDPOINT_DISABLED, HX_EMPTY, NULL);
        return;
    }
    hx_event *event = hx_arena_alloc(call->arena, sizeof *event);
    bool is_read = hx_event_read(HX_LIT("{\"type\":\"hapax.test\",\"data\":{\"test\":true}}"), call->arena, event,
                                 error);
    HX_CHECK(is_read);
    event->id = hx_arena_printf(call->arena, HX_EVENT_OWN "test_%016llx%016llx", (unsigned long long)hx_rand_u64(),
                                (unsigned long long)hx_rand_u64());
    event->tenant = j->change.tenant;
    event->source = HX_LIT("hapax");
    j->publish = (hx_publish){.arena = call->arena,
                              .events = event,
                              .count = 1,
                              .principal = HX_EMPTY,
                              .key = HX_EMPTY,
                              .only = j->change.id,
                              .done = test_published};
    hx_engine_publish(call->admin->needs.engine, &j->publish);
}

void hx_admin_list_endpoints(hx_admin_call *call)
{
    hx_slice named, tenant, limit, cursor;
    const hx_admin_word words[] = {{"tenant", &named}, {"limit", &limit}, {"cursor", &cursor}};
    job *j = new_job(call);
    if (!j) return;
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 3);
    if (!wrong) {
        if (!hx_admin_tenant(call, named, &tenant)) return;
        /* Users of the socket, and tokens without a tenant, see all of them unless they name one. */
        bool all = tenant.len == 0 && call->who.tenant.len == 0;
        j->page = (hx_item_page){.prefix = all ? HX_LIT("n/") : hx_endpoint_key(tenant, HX_EMPTY, call->arena)};
        wrong = hx_admin_page(limit, cursor, call->arena, &j->page);
    }
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    hx_admin_list *list = hx_arena_alloc(call->arena, sizeof *list);
    *list = (hx_admin_list){.call = call,
                            .name = "endpoints",
                            .bytes = hx_view_endpoint_bytes,
                            .write = hx_view_endpoint_item,
                            .page = j->page};
    hx_admin_answer_list(list);
}
