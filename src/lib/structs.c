/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/structs.h"

#include "base/text.h"
#include "core/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_BYTES_MAX 255u

bool hx_struct_is_fit(const void *to, size_t bytes, const char *type)
{
    size_t size;
    if (!to) return hx_fail(hx_guest_message(), "%s is NULL", type);
    memcpy(&size, to, sizeof size);
    return size >= bytes || hx_fail(hx_guest_message(), "%s.size must be sizeof(%s)", type, type);
}

bool hx_struct_take(void *to, size_t bytes, const void *from, const char *type)
{
    size_t size;
    if (!hx_struct_is_fit(from, bytes, type)) return false;
    memcpy(&size, from, sizeof size);
    for (size_t i = bytes; i < size; i++)
        if (((const char *)from)[i] != 0)
            return hx_fail(hx_guest_message(), "%s has members that this library, %s, doesn't know", type,
                           hapax_version());
    memcpy(to, from, bytes);
    return true;
}

hx_slice hx_struct_text(const char *text)
{
    return text ? hx_slice_of(text) : HX_EMPTY;
}

bool hx_struct_take_request(hapax_request *to, const hapax_request *from)
{
    char *error = hx_guest_message();
    if (!HX_STRUCT_TAKE(to, from, hapax_request)) return false;
    hx_slice key = hx_struct_text(to->key);
    if (key.len == 0 || key.len > KEY_BYTES_MAX)
        return hx_fail(error, "the key must have 1 to %u characters", KEY_BYTES_MAX);
    for (size_t i = 0; i < key.len; i++)
        if (key.ptr[i] <= ' ' || key.ptr[i] > '~') return hx_fail(error, "the key must be visible ASCII characters");
    if (hx_struct_text(to->name).len > HX_RECORD_TEXT_MAX)
        return hx_fail(error, "the name must have up to %u bytes", HX_RECORD_TEXT_MAX);
    if (!to->payload && to->payload_bytes > 0) return hx_fail(error, "payload is NULL, and payload_bytes isn't 0");
    if (to->flags & ~HAPAX_REPEATABLE) return hx_fail(error, "flags has bits that this library doesn't know");
    return (to->lease >= 0 && to->lifetime >= 0 && to->wait >= 0) || hx_fail(error, "a time span is negative");
}

hx_slice hx_struct_payload(const hapax_request *request, hx_arena *arena)
{
    hx_slice payload = {request->payload, request->payload_bytes};
    hx_buf canonical;
    if (payload.len == 0) return HX_EMPTY;
    hx_buf_init(&canonical, arena, HX_JSON_CANONICAL_BYTES(payload.len));
    return hx_json_canonical(payload, arena, &canonical) ? hx_buf_slice(&canonical) : payload;
}

bool hx_struct_op(const hapax_claim *claim, hx_op *op)
{
    hx_slice id = {claim->id, sizeof claim->id - 1};
    return (claim->id[id.len] == '\0' && claim->epoch > 0 && hx_op_read(id, op)) ||
           hx_fail(hx_guest_message(), "the claim isn't one: it comes from hapax_begin()");
}

static void put_id(char id[33], const hx_op *op)
{
    hx_buf buf = {.data = id, .cap = 32, .max = 32};
    hx_buf_put_hex(&buf, op->bytes, sizeof op->bytes);
    id[32] = '\0';
}

void hx_struct_put_claim(hapax_claim *claim, const hx_op *op, uint64_t epoch, uint64_t owner, int64_t lifetime)
{
    *claim = (hapax_claim){.size = claim->size, .epoch = epoch, .owner = owner, .lifetime = lifetime};
    put_id(claim->id, op);
}

static char *put_text(char *at, hx_slice text)
{
    if (text.len > 0) memcpy(at, text.ptr, text.len);
    at[text.len] = '\0';
    return at + text.len + 1;
}

bool hx_struct_put_texts(hapax_record *to, hx_slice body, hx_slice content_type, hx_slice reason)
{
    char *at = malloc(body.len + content_type.len + reason.len + 3);
    if (!at) return hx_fail(hx_guest_message(), "out of memory");
    to->memory = at;
    to->body = at;
    to->body_bytes = body.len;
    at = put_text(at, body);
    if (content_type.len > 0) to->content_type = at;
    at = put_text(at, content_type);
    if (reason.len > 0) to->reason = at;
    (void)put_text(at, reason);
    return true;
}

bool hx_struct_put_record(hapax_record *to, const hx_record *from, bool is_retry)
{
    hx_slice headers = from->answer.headers, content_type = HX_EMPTY;
    hx_text_header header;
    to->state = (int)from->state;
    to->is_retry = is_retry;
    to->failed_before = is_retry && from->state == HX_FAILED;
    to->attempt = from->attempt;
    to->original_time = from->created_at;
    to->expires_at = from->expires_at;
    to->lease_until = from->state == HX_PROCESSING ? from->lease_until : 0;
    to->epoch = from->epoch;
    to->status = from->answer.status;
    put_id(to->id, &from->op);
    while (hx_text_next_header(&headers, &header))
        if (hx_slice_eq_nocase(header.name, HX_LIT("content-type"))) content_type = header.value;
    return hx_struct_put_texts(to, from->answer.body, content_type, from->reason);
}

void hapax_record_clear(hapax_record *record)
{
    if (!record || record->size < sizeof *record) return;
    free(record->memory);
    size_t size = record->size;
    *record = (hapax_record){.size = size};
}
