/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/events/streams.h"

#include "admin/events/common.h"
#include "admin/events/views.h"
#include "admin/query.h"
#include "core/json/json_writer.h"

#define PAGE_BYTES_MAX (4u << 20)        /* of data */
#define POSITION_MAX (UINT64_C(1) << 53) /* that every reader of JSON takes exactly */

typedef struct {
    hx_admin_call *call;
    hx_admin_place place;
    bool is_followed;
    hx_store_call store;
    hx_item item; /* the consumer's */
    hx_reading reading;
} job;

bool hx_admin_position(hx_slice text, uint64_t *out)
{
    return hx_slice_to_u64(text, out) && *out <= POSITION_MAX;
}

void hx_admin_refuse_reading(hx_admin_call *call, const hx_reading *reading)
{
    if (reading->result != HX_READING_GONE) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    hx_slice detail = hx_arena_printf(call->arena, "position %llu of the stream %.*s is not kept; %llu is the next",
                                      (unsigned long long)reading->after + 1, HX_FMT(reading->stream),
                                      (unsigned long long)reading->oldest);
    hx_admin_refuse_telling(call, HX_ADMIN_STREAM_GONE, detail,
                            hx_arena_printf(call->arena, "\"oldest\":%llu,\"version\":%llu",
                                            (unsigned long long)reading->oldest, (unsigned long long)reading->last));
}

static void page_read(hx_reading *reading)
{
    job *j = HX_OWNER(reading, job, reading);
    hx_admin_call *call = j->call;
    size_t bytes = 2048;
    if (reading->result != HX_READING_DONE) {
        hx_admin_refuse_reading(call, reading);
        return;
    }
    for (size_t i = 0; i < reading->count; i++) bytes += hx_view_event_bytes(&reading->items[i]);
    hx_buf out;
    hx_buf_init(&out, call->arena, bytes);
    hx_json_open(&out, NULL, '{');
    hx_json_put_text(&out, "stream", reading->stream);
    if (j->place.consumer.len > 0) {
        hx_json_put_text(&out, "consumer", j->place.consumer);
        hx_json_put_number(&out, "generation", j->place.generation);
    }
    hx_json_open(&out, "events", '[');
    for (size_t i = 0; i < reading->count; i++) {
        hx_json_open(&out, NULL, '{');
        hx_view_event(&out, &reading->events[i], true);
        hx_json_close(&out, '}');
    }
    hx_json_close(&out, ']');
    hx_json_put_number(&out, "after", reading->after + reading->count);
    hx_json_put_number(&out, "version", reading->last);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

static void begin(job *j)
{
    if (j->is_followed) {
        hx_admin_follow(j->call, &j->place);
        return;
    }
    j->reading.arena = j->call->arena;
    j->reading.tenant = j->place.tenant;
    j->reading.stream = j->place.stream;
    j->reading.after = j->place.after;
    j->reading.bytes_max = PAGE_BYTES_MAX;
    j->reading.done = page_read;
    hx_engine_read_stream(j->call->admin->needs.engine, &j->reading);
}

static void consumer_read(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_consumer consumer;
    hx_slice meta = j->item.version > 0 ? j->item.meta : HX_EMPTY;
    if (store->result != HX_STORE_OK || !hx_consumer_decode(meta, j->call->arena, &consumer)) {
        hx_admin_refuse(j->call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    if (j->place.after < consumer.position) j->place.after = consumer.position;
    j->place.generation = consumer.generation;
    begin(j);
}

static bool wants_events(const hx_fields *fields)
{
    const hx_field *accept = hx_fields_find(fields, HX_LIT("Accept"));
    hx_slice rest = accept ? accept->value : HX_EMPTY, part;
    while (rest.len > 0 && hx_slice_next(&rest, ',', &part))
        if (hx_slice_eq_nocase(hx_slice_trim(hx_slice_first(part, hx_slice_find(part, ';'))),
                               HX_LIT("text/event-stream")))
            return true;
    return false;
}

/* Last-Event-ID comes from a client that reads on, and so says more than `after`. NULL, or what is wrong. */
static const char *read_place(job *j, hx_slice after, hx_slice consumer)
{
    const hx_field *seen = hx_fields_find(&j->call->stream->request.fields, HX_LIT("Last-Event-ID"));
    if (!hx_is_stream(j->place.stream)) return "stream must have 1 to 128 letters, digits, -, _ and .";
    if (consumer.len > 0 && !hx_is_stream(consumer)) return "consumer must have 1 to 128 letters, digits, -, _ and .";
    if (consumer.len > 0 && after.len > 0) return "a consumer has a position of its own: leave out after";
    if (after.len > 0 && !hx_admin_position(after, &j->place.after)) return "after must be a position";
    if (j->is_followed && seen && seen->value.len > 0 && !hx_admin_position(seen->value, &j->place.after))
        return "Last-Event-ID must be a position";
    return NULL;
}

void hx_admin_read_stream(hx_admin_call *call)
{
    hx_slice named, after, limit;
    hx_item_page page = {0};
    if (!hx_admin_has_engine(call)) return;
    job *j = hx_arena_zalloc(call->arena, sizeof *j);
    j->call = call;
    j->is_followed = wants_events(&call->stream->request.fields);
    const hx_admin_word words[] = {{"stream", &j->place.stream},
                                   {"after", &after},
                                   {"consumer", &j->place.consumer},
                                   {"limit", &limit},
                                   {"tenant", &named}};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 5);
    if (!wrong) wrong = hx_admin_page(limit, HX_EMPTY, call->arena, &page);
    if (!wrong) wrong = read_place(j, after, j->place.consumer);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    if (!hx_admin_tenant(call, named, &j->place.tenant)) return;
    j->reading.events_max = page.items_max;
    if (j->place.consumer.len == 0) {
        begin(j);
        return;
    }
    j->item.key = hx_consumer_key(j->place.tenant, j->place.stream, j->place.consumer, call->arena);
    j->store = hx_admin_store_call(call->admin, call->arena, consumer_read);
    hx_store_get(call->admin->needs.store, &j->store, &j->item, 1);
}
