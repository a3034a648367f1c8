/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of consumers. A change is decided on the consumer and its stream as they are in the store, and decided
 * again when somebody else was faster. */
#include "admin/events/common.h"
#include "admin/events/streams.h"
#include "admin/query.h"
#include "core/json/json_writer.h"

#define TRIES_MAX 8u
#define ANSWER_BYTES_MAX 2048u

typedef struct {
    hx_slice stream, tenant;
    hx_slice position; /* as JSON */
    uint64_t generation;
} said;

static const hx_json_field said_fields[] = {HX_JSON_FIELD(said, stream, TEXT, HX_JSON_GIVEN),
                                            HX_JSON_FIELD(said, tenant, TEXT, HX_JSON_GIVEN),
                                            HX_JSON_FIELD(said, position, RAW, HX_JSON_GIVEN),
                                            HX_JSON_FIELD(said, generation, NUMBER, HX_JSON_GIVEN)};
static const hx_json_shape ack_shape = HX_JSON_SHAPE(said_fields);
static const hx_json_shape seek_shape = {said_fields, sizeof said_fields / sizeof said_fields[0] - 1};

typedef struct job {
    hx_admin_call *call;
    hx_slice tenant, stream, name;
    said given;
    bool is_seek, is_oldest, is_newest;
    uint64_t position;
    hx_store_call store;
    hx_item items[2];  /* the consumer's and the stream's */
    hx_item_page page; /* seek to the oldest */
    hx_consumer consumer;
    hx_sequence sequence;
    unsigned tries;
} job;

static void put_consumer(hx_buf *out, hx_slice name, hx_slice stream, const hx_consumer *consumer)
{
    hx_json_put_text(out, "consumer", name);
    hx_json_put_text(out, "stream", stream);
    hx_json_put_number(out, "position", consumer->position);
    hx_json_put_number(out, "generation", consumer->generation);
}

static void answer(job *j)
{
    hx_buf out;
    hx_buf_init(&out, j->call->arena, ANSWER_BYTES_MAX);
    hx_json_open(&out, NULL, '{');
    put_consumer(&out, j->name, j->stream, &j->consumer);
    hx_json_put_number(&out, "version", j->sequence.last);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(j->call, hx_buf_slice(&out));
}

static void refuse(job *j, hx_admin_problem problem, const char *why)
{
    hx_arena *arena = j->call->arena;
    hx_slice members = hx_arena_printf(arena, "\"position\":%llu,\"generation\":%llu,\"version\":%llu",
                                       (unsigned long long)j->consumer.position,
                                       (unsigned long long)j->consumer.generation,
                                       (unsigned long long)j->sequence.last);
    hx_admin_refuse_telling(j->call, problem, hx_slice_of(why), members);
}

static void look(job *j);

static void committed(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    if (store->result == HX_STORE_STALE && j->tries++ < TRIES_MAX)
        look(j);
    else if (hx_admin_committed(j->call, store->result))
        answer(j);
}

static void commit(job *j)
{
    hx_admin_call *call = j->call;
    hx_ms now = hx_admin_now(call->admin);
    bool has_stream = j->items[1].version > 0;
    j->items[0].act = HX_ITEM_PUT;
    j->items[0].queue = j->items[0].body = HX_EMPTY;
    j->items[0].expires_at = has_stream ? j->items[1].expires_at : now + HX_STREAM_OUTLIVES;
    j->items[0].meta = hx_consumer_encode(&j->consumer, call->arena);
    j->store = hx_admin_store_call(call->admin, call->arena, committed);
    hx_store_commit(call->admin->needs.store, &j->store, j->items, 1, false);
}

static void ack(job *j)
{
    hx_consumer before = j->consumer;
    switch (hx_consumer_ack(&j->consumer, j->sequence.last, j->position, j->given.generation,
                            hx_admin_now(j->call->admin))) {
    case HX_ACK_BACK: refuse(j, HX_ADMIN_CONSUMER_POSITION, "the consumer is further, and never moves back"); return;
    case HX_ACK_BEYOND: refuse(j, HX_ADMIN_CONSUMER_POSITION, "the stream has no such position yet"); return;
    case HX_ACK_GENERATION: refuse(j, HX_ADMIN_CONSUMER_GENERATION, "the consumer has another generation"); return;
    case HX_ACK_DONE: break;
    }
    if (j->items[0].version > 0 && before.position == j->position)
        answer(j);
    else
        commit(j);
}

static void seek(job *j)
{
    if (j->is_newest) j->position = j->sequence.last;
    if (j->is_oldest && j->page.count == 0) j->position = j->sequence.last;
    if (j->is_oldest && j->page.count > 0) j->position = hx_sequence_entry_position(j->page.items[0].key) - 1;
    if (hx_consumer_seek(&j->consumer, j->sequence.last, j->position, hx_admin_now(j->call->admin)))
        commit(j);
    else
        refuse(j, HX_ADMIN_CONSUMER_POSITION, "the stream has no such position yet");
}

static void looked(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_arena *arena = j->call->arena;
    bool is_read = store->result == HX_STORE_OK &&
                   hx_consumer_decode(j->items[0].version > 0 ? j->items[0].meta : HX_EMPTY, arena, &j->consumer) &&
                   hx_sequence_decode(j->items[1].version > 0 ? j->items[1].meta : HX_EMPTY, arena, &j->sequence);
    if (!is_read)
        hx_admin_refuse(j->call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
    else if (j->is_seek)
        seek(j);
    else
        ack(j);
}

static void look(job *j)
{
    hx_admin_call *call = j->call;
    j->items[0] = (hx_item){.key = hx_consumer_key(j->tenant, j->stream, j->name, call->arena)};
    j->items[1] = (hx_item){.key = hx_sequence_key(j->tenant, j->stream, call->arena)};
    j->store = hx_admin_store_call(call->admin, call->arena, looked);
    hx_store_get(call->admin->needs.store, &j->store, j->items, 2);
}

static void oldest_found(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    if (store->result == HX_STORE_OK)
        look(j);
    else
        hx_admin_refuse(j->call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
}

static const char *names_mistake(hx_slice stream, hx_slice consumer)
{
    if (!hx_is_stream(stream)) return "stream must have 1 to 128 letters, digits, -, _ and .";
    return hx_is_stream(consumer) ? NULL : "a consumer's name must have 1 to 128 letters, digits, -, _ and .";
}

static const char *read_change(job *j)
{
    hx_error_text error;
    if (!hx_json_read(j->is_seek ? &seek_shape : &ack_shape, HX_JSON_GIVEN, hx_buf_slice(&j->call->body),
                      j->call->arena, &j->given, error))
        return hx_arena_printf(j->call->arena, "%s", error).ptr;
    const char *wrong = names_mistake(j->given.stream, j->name);
    if (wrong) return wrong;
    j->is_oldest = j->is_seek && hx_slice_eq(j->given.position, HX_LIT("\"oldest\""));
    j->is_newest = j->is_seek && hx_slice_eq(j->given.position, HX_LIT("\"newest\""));
    if (!j->is_oldest && !j->is_newest && !hx_admin_position(j->given.position, &j->position))
        return j->is_seek ? "\"position\" must be a number, \"oldest\" or \"newest\"" : "\"position\" must be a number";
    if (!j->is_seek && j->given.generation == 0)
        return "\"generation\" is missing: the one that reading with this consumer gave";
    return NULL;
}

static job *new_job(hx_admin_call *call)
{
    if (!hx_admin_has_engine(call)) return NULL;
    job *j = hx_arena_zalloc(call->arena, sizeof *j);
    j->call = call;
    j->name = call->parameters[0];
    j->given.stream = j->given.tenant = j->given.position = HX_EMPTY;
    return j;
}

static void change(hx_admin_call *call, bool is_seek)
{
    job *j = new_job(call);
    if (!j) return;
    j->is_seek = is_seek;
    const char *wrong = read_change(j);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    if (!hx_admin_tenant(call, j->given.tenant, &j->tenant)) return;
    j->stream = j->given.stream;
    if (!j->is_oldest) {
        look(j);
        return;
    }
    j->page = (hx_item_page){.prefix = hx_sequence_entry_prefix(j->tenant, j->stream, call->arena), .items_max = 1};
    j->store = hx_admin_store_call(call->admin, call->arena, oldest_found);
    hx_store_scan(call->admin->needs.store, &j->store, &j->page);
}

void hx_admin_ack_consumer(hx_admin_call *call)
{
    change(call, false);
}

void hx_admin_seek_consumer(hx_admin_call *call)
{
    change(call, true);
}

static void removed(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    if (store->result == HX_STORE_STALE)
        hx_admin_refuse(j->call, HX_ADMIN_NO_CONSUMER, HX_EMPTY, NULL);
    else if (hx_admin_committed(j->call, store->result))
        answer(j);
}

static void found(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    if (store->result != HX_STORE_OK || !hx_consumer_decode(j->items[0].meta, call->arena, &j->consumer)) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    if (j->items[0].version == 0) {
        hx_admin_refuse(call, HX_ADMIN_NO_CONSUMER, HX_EMPTY, NULL);
        return;
    }
    j->items[0].act = HX_ITEM_REMOVE;
    j->store = hx_admin_store_call(call->admin, call->arena, removed);
    hx_store_commit(call->admin->needs.store, &j->store, j->items, 1, false);
}

void hx_admin_delete_consumer(hx_admin_call *call)
{
    hx_slice named;
    job *j = new_job(call);
    if (!j) return;
    const hx_admin_word words[] = {{"stream", &j->stream}, {"tenant", &named}};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 2);
    if (!wrong) wrong = names_mistake(j->stream, j->name);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    if (!hx_admin_tenant(call, named, &j->tenant)) return;
    j->items[0].key = hx_consumer_key(j->tenant, j->stream, j->name, call->arena);
    j->store = hx_admin_store_call(call->admin, call->arena, found);
    hx_store_get(call->admin->needs.store, &j->store, j->items, 1);
}

typedef struct {
    hx_admin_call *call;
    hx_store_call store;
    hx_slice tenant;
    hx_item_page page;
    hx_item *streams; /* of the consumers of the page */
} listing;

/* c/TENANT/STREAM/NAME */
static void split_key(hx_slice key, hx_slice *stream, hx_slice *name)
{
    hx_slice part;
    *stream = HX_EMPTY;
    for (size_t i = 0; i < 3 && hx_slice_next(&key, '/', &part); i++) *stream = part;
    *name = key;
}

static void list_done(hx_store_call *store)
{
    listing *l = HX_OWNER(store, listing, store);
    hx_admin_call *call = l->call;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    hx_buf out;
    hx_buf_init(&out, call->arena, 256 + HX_ADMIN_CURSOR_BYTES + l->page.count * (512 + HX_ITEM_KEY_MAX));
    hx_json_open(&out, NULL, '{');
    hx_json_open(&out, "consumers", '[');
    for (size_t i = 0; i < l->page.count; i++) {
        hx_slice stream, name;
        hx_consumer consumer;
        hx_sequence sequence;
        split_key(l->page.items[i].key, &stream, &name);
        if (!hx_consumer_decode(l->page.items[i].meta, call->arena, &consumer)) continue;
        if (!hx_sequence_decode(l->streams[i].version > 0 ? l->streams[i].meta : HX_EMPTY, call->arena, &sequence))
            continue;
        hx_json_open(&out, NULL, '{');
        put_consumer(&out, name, stream, &consumer);
        hx_json_put_number(&out, "version", sequence.last);
        hx_json_put_time(&out, "changed_at", consumer.changed_at);
        hx_json_close(&out, '}');
    }
    hx_json_close(&out, ']');
    hx_admin_put_cursor(&out, &l->page);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

static void list_streams(hx_store_call *store)
{
    listing *l = HX_OWNER(store, listing, store);
    hx_admin_call *call = l->call;
    if (store->result != HX_STORE_OK || l->page.count == 0) {
        list_done(store);
        return;
    }
    l->streams = hx_arena_zalloc(call->arena, l->page.count * sizeof *l->streams);
    for (size_t i = 0; i < l->page.count; i++) {
        hx_slice stream, name;
        split_key(l->page.items[i].key, &stream, &name);
        l->streams[i].key = hx_sequence_key(l->tenant, stream, call->arena);
    }
    l->store = hx_admin_store_call(call->admin, call->arena, list_done);
    hx_store_get(call->admin->needs.store, &l->store, l->streams, l->page.count);
}

void hx_admin_list_consumers(hx_admin_call *call)
{
    hx_slice named, stream, limit, cursor;
    const hx_admin_word words[] = {{"stream", &stream}, {"tenant", &named}, {"limit", &limit}, {"cursor", &cursor}};
    if (!hx_admin_has_engine(call)) return;
    listing *l = hx_arena_zalloc(call->arena, sizeof *l);
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 4);
    if (!wrong) wrong = hx_admin_page(limit, cursor, call->arena, &l->page);
    if (!wrong && stream.len > 0) wrong = names_mistake(stream, stream);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    if (!hx_admin_tenant(call, named, &l->tenant)) return;
    l->call = call;
    l->page.prefix = hx_consumer_prefix(l->tenant, stream, call->arena);
    l->store = hx_admin_store_call(call->admin, call->arena, list_streams);
    hx_store_scan(call->admin->needs.store, &l->store, &l->page);
}
