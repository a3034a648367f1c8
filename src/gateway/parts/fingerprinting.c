/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/fingerprinting.h"

#include "gateway/parts/caller.h"

#include <string.h>

/* The parts of a larger body's fingerprint are kept, so that what was made of the body for it is not. */
#define LARGE_BODY_BYTES (8u * 1024u)

/* For all values of a request's fields as one list. Its parts are put one behind the other: a list that was copied with
 * each of its lines would need the square of a head's size. */
static hx_buf list_buf(hx_request *r)
{
    const hx_fields *fields = &r->stream->request.fields;
    size_t bytes = 0;
    for (size_t i = 0; i < fields->count; i++) bytes += fields->items[i].value.len + 2;
    hx_buf list;
    hx_buf_init(&list, r->arena, bytes);
    return list;
}

static void put_line(hx_buf *list, bool is_first, hx_slice value)
{
    if (!is_first) hx_buf_puts(list, ", ");
    hx_buf_put(list, value);
}

/* All lines of a field as one value, as a list field means it. */
static hx_slice joined(hx_request *r, hx_field_id id)
{
    const hx_fields *fields = &r->stream->request.fields;
    if (fields->lines[id] < 2) return hx_fields_get(fields, id);
    hx_buf list = list_buf(r);
    for (size_t i = fields->first[id]; i < fields->count; i++)
        if (fields->items[i].id == id) put_line(&list, i == fields->first[id], fields->items[i].value);
    return hx_buf_slice(&list);
}

static hx_slice header_value(hx_request *r, hx_slice name)
{
    const hx_fields *fields = &r->stream->request.fields;
    hx_slice only = HX_EMPTY;
    hx_buf list;
    for (size_t i = 0, lines = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        if (!hx_field_goes_on(field) || !hx_slice_eq_nocase(field->name, name)) continue;
        if (lines == 0) {
            only = field->value;
        } else {
            if (lines == 1) {
                list = list_buf(r);
                put_line(&list, true, only);
            }
            put_line(&list, false, field->value);
            only = hx_buf_slice(&list);
        }
        lines++;
    }
    return only;
}

/* The values of the headers that the route's fingerprint counts. */
static const hx_slice *header_values(hx_request *r)
{
    const hx_fingerprint_rules *rules = &r->policy->fingerprint;
    if (rules->header_count == 0) return NULL;
    hx_slice *values = hx_arena_alloc(r->arena, rules->header_count * sizeof *values);
    for (size_t k = 0; k < rules->header_count; k++) values[k] = header_value(r, rules->headers[k]);
    return values;
}

void hx_fingerprinting_describe(hx_request *r, hx_slice body)
{
    const hx_request_head *head = &r->stream->request;
    r->fingerprint_input = (hx_fingerprint_input){
        .method = head->method,
        .path = r->path,
        .host = r->policy->scope == HX_SCOPE_HOST ? HX_EMPTY : r->host,
        .query = head->query,
        .has_query = head->has_query,
        .content_type = joined(r, HX_FIELD_CONTENT_TYPE),
        .content_encoding = joined(r, HX_FIELD_CONTENT_ENCODING),
        .if_match = joined(r, HX_FIELD_IF_MATCH),
        .if_none_match = joined(r, HX_FIELD_IF_NONE_MATCH),
        .if_unmodified_since = joined(r, HX_FIELD_IF_UNMODIFIED_SINCE),
        .body = body,
        .rules = &r->policy->fingerprint,
        .headers = header_values(r),
    };
}

static bool is_body_large(const hx_request *r)
{
    return r->fingerprint_input.body.len > LARGE_BODY_BYTES;
}

/* The canonical form of a large body is as large again, and is freed at once. */
static void fingerprint(hx_request *r)
{
    hx_fingerprint_input *in = &r->fingerprint_input;
    if (!is_body_large(r)) {
        r->claimant.fingerprint = hx_fingerprint(r->worker->mac, in, r->arena);
        return;
    }
    hx_arena scratch = {0};
    r->claimant.fingerprint = hx_fingerprint(r->worker->mac, in, &scratch);
    hx_fingerprint_parts(r->worker->mac, in, &scratch, r->parts);
    in->normal.done = false;
    hx_arena_free(&scratch);
    hx_body_unload(&r->body);
}

void hx_fingerprinting_parts(hx_request *r, uint64_t parts[HX_PART_COUNT])
{
    if (is_body_large(r))
        memcpy(parts, r->parts, sizeof r->parts);
    else
        hx_fingerprint_parts(r->worker->mac, &r->fingerprint_input, r->arena, parts);
}

void hx_fingerprinting_take_key(hx_request *r, hx_slice key)
{
    hx_operation_name name = {
        .route = r->identity, .principal = r->principal, .key = key, .host = r->host, .natural = r->natural};
    hx_fingerprint_input *in = &r->fingerprint_input;
    r->key = key;
    r->op = hx_operation_of(r->policy, &name, r->worker->mac);
    if (r->natural && r->policy->fingerprint.body == HX_FINGERPRINT_KEY) /* a header's key says nothing of the body */
        in->key = hx_arena_printf(r->arena, "%.*s %.*s", HX_FMT(key), HX_FMT(r->identity));
    fingerprint(r);
}
