/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers that publish, show, list and cancel events. */
#include "admin/events/common.h"
#include "admin/events/views.h"
#include "admin/query.h"
#include "core/event/source.h"
#include "core/json/json.h"
#include "core/json/json_walk.h"
#include "core/json/json_writer.h"
#include "core/operation/key.h"
#include "events/fan_out.h"

/* A request of this file. */
typedef struct {
    hx_admin_call *call;
    hx_store_call store;
    hx_publish publish; /* publish */
    bool is_batch;
    hx_item item; /* show, cancel: the event's */
    hx_slice tenant;
    hx_event event;
    hx_item *deliveries;
    hx_item_page page; /* list */
    hx_delivery_change change;
    size_t at, cancelled, sent;
} job;

/* NULL: there is no engine, and the call was answered. */
static job *new_job(hx_admin_call *call)
{
    if (!hx_admin_has_engine(call)) return NULL;
    job *j = hx_arena_zalloc(call->arena, sizeof *j);
    j->call = call;
    return j;
}

static void publish_done(hx_publish *publish)
{
    job *j = HX_OWNER(publish, job, publish);
    hx_admin_call *call = j->call;
    switch (publish->result) {
    case HX_PUBLISHED:
    case HX_PUBLISHED_BEFORE: break;
    case HX_PUBLISH_CONFLICT: hx_admin_refuse(call, HX_ADMIN_EVENT_CONFLICT, publish->detail, NULL); return;
    case HX_PUBLISH_VERSION:
        hx_admin_refuse_telling(call, HX_ADMIN_STREAM_VERSION, publish->detail,
                                hx_arena_printf(call->arena, "\"version\":%llu", (unsigned long long)publish->version));
        return;
    case HX_PUBLISH_BUSY:
        hx_admin_refuse_with(call, HX_ADMIN_STREAM_BUSY, HX_EMPTY, HX_LIT("Retry-After: 1\r\n"));
        return;
    case HX_PUBLISH_TOO_MANY: hx_admin_refuse(call, HX_ADMIN_EVENT_TOO_LARGE, publish->detail, NULL); return;
    case HX_PUBLISH_FULL: hx_admin_refuse(call, HX_ADMIN_FULL, HX_EMPTY, NULL); return;
    case HX_PUBLISH_UNAVAILABLE: hx_admin_refuse(call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); return;
    }
    bool is_new = publish->result == HX_PUBLISHED;
    hx_buf out;
    hx_buf_init(&out, call->arena, publish->count * HX_EVENT_SUMMARY_BYTES + 256);
    if (j->is_batch) {
        hx_json_open(&out, NULL, '{');
        hx_json_open(&out, "events", '[');
    }
    for (size_t i = 0; i < publish->count; i++) hx_view_published(&out, &publish->events[i]);
    if (j->is_batch) {
        hx_json_close(&out, ']');
        hx_json_close(&out, '}');
    }
    hx_buf_puts(&out, "\n");
    hx_admin_answer_with(call, is_new ? 202 : 200,
                         is_new ? HX_LIT("Idempotency-Status: stored\r\n") : HX_LIT("Idempotency-Status: replayed\r\n"),
                         hx_buf_slice(&out));
}

/* A batch is its events and nothing else. NULL, or what is wrong. */
static const char *read_batch(hx_admin_call *call, hx_slice body, size_t *count)
{
    hx_slice whole, name, raw, list = HX_EMPTY;
    if (!hx_json_is_clean_object(body, call->arena) || !hx_json_pointer(body, HX_EMPTY, &whole))
        return "the body must be a JSON object";
    for (hx_json_walk walk = hx_json_walk_over(whole); hx_json_walk_next(&walk, &name, &raw); list = raw)
        if (!hx_slice_eq(name, HX_LIT("\"events\"")))
            return hx_arena_printf(call->arena, "there is no member %.*s beside \"events\"", HX_FMT(name)).ptr;
    *count = 0;
    for (hx_json_walk walk = hx_json_walk_over(list); hx_json_walk_next(&walk, &name, &raw);) (*count)++;
    return *count > 0 && *count <= HX_PUBLISH_MAX ? NULL : "\"events\" must have 1 to 1000 events";
}

/* The first event that has the id of one before it; SIZE_MAX: none has. A commit takes each key once. */
static size_t find_repeated(const hx_event *events, size_t count, hx_arena *arena)
{
    static const char seen;
    size_t found = SIZE_MAX;
    hx_map *keys = hx_map_new();
    for (size_t i = 0; i < count && found == SIZE_MAX; i++) {
        hx_slice key = hx_event_key(&events[i], arena);
        if (events[i].id.len == 0) continue;
        if (hx_map_get(keys, key)) found = i;
        (void)hx_map_put(keys, key, (void *)&seen);
    }
    hx_map_free(&keys);
    return found;
}

/* An event is kept until its time has come. NULL, or what is wrong. */
static const char *check_time(hx_admin_call *call, const hx_event *event)
{
    char text[HX_RFC3339_BYTES];
    hx_ms latest = hx_admin_now(call->admin) + call->admin->needs.schedule_max;
    if (event->deliver_at <= latest) return NULL;
    return hx_arena_printf(call->arena, "\"deliver_at\" must not be after %.*s (events.schedule_max)",
                           HX_FMT(hx_rfc3339(latest, text)))
        .ptr;
}

/* The events of the body: one object, or {"events": […]}. NULL, or what is wrong; "": it was refused. */
static const char *read_events(job *j, hx_slice body)
{
    hx_admin_call *call = j->call;
    hx_slice list, none, raw;
    hx_error_text error;
    size_t most = 1, count = 0;
    j->is_batch = hx_json_pointer(body, HX_LIT("/events"), &list) && list.ptr[0] == '[';
    if (j->is_batch) {
        const char *wrong = read_batch(call, body, &most);
        if (wrong) return wrong;
    }
    hx_event *events = hx_arena_alloc(call->arena, most * sizeof *events);
    hx_json_walk walk = hx_json_walk_over(list);
    while (count < most) {
        hx_slice tenant;
        if (j->is_batch && !hx_json_walk_next(&walk, &none, &raw)) break;
        hx_event *event = &events[count++];
        const char *wrong = hx_event_read(j->is_batch ? raw : body, call->arena, event, error) ? check_time(call, event)
                                                                                               : error;
        if (wrong)
            return j->is_batch ? hx_arena_printf(call->arena, "event %zu: %s", count, wrong).ptr
                               : hx_arena_printf(call->arena, "%s", wrong).ptr;
        if (event->data.len > call->admin->needs.payload_bytes_max) {
            hx_admin_refuse(call, HX_ADMIN_EVENT_TOO_LARGE,
                            hx_arena_printf(call->arena, "\"data\" must have up to %u bytes (events.payload_max)",
                                            call->admin->needs.payload_bytes_max),
                            NULL);
            return "";
        }
        if (!hx_admin_tenant(call, event->tenant, &tenant)) return "";
        event->tenant = tenant;
    }
    size_t repeated = find_repeated(events, count, call->arena);
    if (repeated < count)
        return hx_arena_printf(call->arena, "event %zu: its \"id\" is that of an event before it", repeated + 1).ptr;
    j->publish.events = events;
    j->publish.count = count;
    return NULL;
}

/* The Idempotency-Key of the request itself; empty: it has none. NULL, or what is wrong. */
static const char *read_key(job *j)
{
    static const hx_key_rules any = {.format = HX_KEY_ANY, .len_min = 1, .len_max = 255};
    const hx_fields *fields = &j->call->stream->request.fields;
    j->publish.key = HX_EMPTY;
    if (fields->lines[HX_FIELD_IDEMPOTENCY_KEY] == 0) return NULL;
    if (fields->lines[HX_FIELD_IDEMPOTENCY_KEY] > 1) return "the request has several Idempotency-Keys";
    hx_key_error wrong = hx_key_parse(hx_fields_get(fields, HX_FIELD_IDEMPOTENCY_KEY), &any, j->call->arena,
                                      &j->publish.key);
    return wrong == HX_KEY_OK ? NULL : hx_key_error_text(wrong);
}

void hx_admin_publish_events(hx_admin_call *call)
{
    job *j = new_job(call);
    if (!j) return;
    const char *wrong = read_key(j);
    if (!wrong) wrong = read_events(j, hx_buf_slice(&call->body));
    if (wrong) {
        if (*wrong) hx_admin_refuse_malformed(call, wrong); /* else it was refused */
        return;
    }
    j->publish.arena = call->arena;
    j->publish.principal = hx_admin_caller_text(&call->who, call->arena);
    j->publish.done = publish_done;
    hx_engine_publish(call->admin->needs.engine, &j->publish);
}

/* Reads the event that the path names, in the tenant that the query names; of a source, where it names one. */
static void find_event(hx_admin_call *call, void (*done)(hx_store_call *store))
{
    hx_slice named, tenant, source;
    const hx_admin_word words[] = {{"tenant", &named}, {"source", &source}};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 2);
    if (wrong || source.len > HX_SOURCE_NAME_MAX) {
        hx_admin_refuse_malformed(call, wrong ? wrong : "there is no such source");
        return;
    }
    if (!hx_admin_tenant(call, named, &tenant)) return;
    job *j = new_job(call);
    if (!j) return;
    j->tenant = tenant;
    hx_event event = {.id = call->parameters[0], .tenant = tenant, .source = source, .is_received = source.len > 0};
    j->item = (hx_item){.key = hx_event_key(&event, call->arena)};
    j->store = hx_admin_store_call(call->admin, call->arena, done);
    hx_store_get(call->admin->needs.store, &j->store, &j->item, 1);
}

/* The event of a find_event that has ended; false: the call was answered. */
static bool has_event(job *j)
{
    if (j->store.result == HX_STORE_OK && j->item.version > 0 &&
        hx_view_decode_event(&j->item, j->call->arena, &j->event) && hx_slice_eq(j->event.tenant, j->tenant)) {
        j->event.data = j->item.body;
        return true;
    }
    hx_admin_refuse(j->call, j->store.result == HX_STORE_OK ? HX_ADMIN_NO_EVENT : HX_ADMIN_UNREAD, HX_EMPTY, NULL);
    return false;
}

static void show_done(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    size_t count = j->event.recipients.count, bytes = 0;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    for (size_t i = 0; i < count; i++) bytes += hx_view_delivery_bytes(&j->deliveries[i]);
    hx_buf out;
    hx_buf_init(&out, call->arena, hx_view_event_bytes(&j->item) + bytes + 256);
    hx_json_open(&out, NULL, '{');
    hx_view_event(&out, &j->event, true);
    hx_json_open(&out, "deliveries", '[');
    for (size_t i = 0; i < count; i++) hx_view_delivery_item(&out, &j->deliveries[i], call->arena);
    hx_json_close(&out, ']');
    hx_json_close(&out, '}');
    hx_buf_puts(&out, "\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

static void read_deliveries(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    if (!has_event(j)) return;
    size_t count = j->event.recipients.count;
    j->deliveries = hx_arena_alloc(call->arena, (count + 1) * sizeof *j->deliveries);
    for (size_t i = 0; i < count; i++)
        j->deliveries[i] = (hx_item){
            .key = hx_delivery_key(j->event.tenant, j->event.recipients.items[i], j->item.key, call->arena)};
    j->store = hx_admin_store_call(call->admin, call->arena, show_done);
    if (count > 0)
        hx_store_get(call->admin->needs.store, &j->store, j->deliveries, count);
    else
        show_done(&j->store);
}

void hx_admin_show_event(hx_admin_call *call)
{
    find_event(call, read_deliveries);
}

void hx_admin_list_events(hx_admin_call *call)
{
    hx_slice named, tenant, source, limit, cursor;
    const hx_admin_word words[] = {{"tenant", &named}, {"source", &source}, {"limit", &limit}, {"cursor", &cursor}};
    job *j = new_job(call);
    if (!j) return;
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 4);
    if (!wrong) {
        if (!hx_admin_tenant(call, named, &tenant)) return;
        hx_event like = {.tenant = tenant, .source = source, .is_received = source.len > 0};
        j->page = (hx_item_page){.by_queue = true, .backwards = true, .prefix = hx_event_queue(&like, call->arena)};
        wrong = hx_admin_page(limit, cursor, call->arena, &j->page);
    }
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    hx_admin_list *list = hx_arena_alloc(call->arena, sizeof *list);
    *list = (hx_admin_list){
        .call = call, .name = "events", .bytes = hx_view_event_bytes, .write = hx_view_event_item, .page = j->page};
    hx_admin_answer_list(list);
}

static void cancel_next(job *j);

static void cancel_done(hx_delivery_change *change)
{
    job *j = HX_OWNER(change, job, change);
    if (change->result == HX_CHANGE_DONE)
        j->cancelled++;
    else
        j->sent++;
    j->at++;
    cancel_next(j);
}

static void cancel_next(job *j)
{
    hx_admin_call *call = j->call;
    if (j->at < j->event.recipients.count) {
        hx_slice endpoint = j->event.recipients.items[j->at];
        j->change = (hx_delivery_change){.arena = call->arena,
                                         .act = HX_DELIVERY_ACT_CANCEL,
                                         .key = hx_delivery_key(j->event.tenant, endpoint, j->item.key, call->arena),
                                         .reason = HX_LIT("the event was cancelled"),
                                         .done = cancel_done};
        hx_engine_change_delivery(call->admin->needs.engine, &j->change);
        return;
    }
    hx_buf out;
    hx_buf_init(&out, call->arena, 256);
    hx_json_open(&out, NULL, '{');
    hx_json_put_number(&out, "cancelled", j->cancelled);
    hx_json_put_number(&out, "not_cancelled", j->sent);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

static void unscheduled(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    if (store->result == HX_STORE_OK) { /* it was never fanned out: no delivery exists */
        j->cancelled = j->at = j->event.recipients.count;
        cancel_next(j);
    } else if (store->result == HX_STORE_STALE) {
        cancel_next(j);
    } else {
        hx_admin_refuse(j->call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL);
    }
}

static void schedule_read(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    if (j->deliveries[0].version == 0) {
        cancel_next(j);
        return;
    }
    j->deliveries[0].act = HX_ITEM_REMOVE;
    j->store = hx_admin_store_call(call->admin, call->arena, unscheduled);
    hx_store_commit(call->admin->needs.store, &j->store, j->deliveries, 1, false);
}

static void cancel_found(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    if (!has_event(j)) return;
    j->deliveries = hx_arena_zalloc(call->arena, sizeof *j->deliveries);
    j->deliveries[0].key = hx_fan_out_key(j->item.key, call->arena);
    j->store = hx_admin_store_call(call->admin, call->arena, schedule_read);
    hx_store_get(call->admin->needs.store, &j->store, j->deliveries, 1);
}

void hx_admin_cancel_event(hx_admin_call *call)
{
    find_event(call, cancel_found);
}
