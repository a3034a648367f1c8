/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/natural_key.h"

#include "base/memory/buf.h"
#include "gateway/request.h"

hx_natural_request hx_natural_of(hx_request *r)
{
    return (hx_natural_request){.policy = r->policy,
                                .head = &r->stream->request,
                                .path = r->path,
                                .principal = r->principal,
                                .content = &r->fingerprint_input,
                                .mac = r->worker->mac,
                                .arena = r->arena};
}

static unsigned header_of(const void *user, hx_slice name, hx_slice *value)
{
    const hx_fields *fields = user;
    unsigned lines = 0;
    for (size_t i = 0; i < fields->count; i++) {
        const hx_field *field = &fields->items[i];
        /* A field that is not forwarded must not count: the upstream doesn't see it. */
        if (!hx_field_goes_on(field) || !hx_slice_eq_nocase(field->name, name)) continue;
        if (lines++ == 0) *value = field->value;
    }
    return lines;
}

static hx_slice text_of(const hx_digest *key, hx_arena *arena)
{
    hx_buf text;
    hx_buf_init(&text, arena, HX_NATURAL_KEY_CHARS);
    hx_buf_put_hex(&text, key->bytes, sizeof key->bytes);
    return hx_buf_slice(&text);
}

static hx_template_input input_of(const hx_natural_request *request, hx_ms at)
{
    const hx_template *template = request->policy->key.from;
    return (hx_template_input){
        .header = header_of,
        .user = &request->head->fields,
        .path = request->path,
        .path_template = request->policy->path,
        .query = request->head->query,
        .principal = request->principal,
        .body = request->content->body,
        .body_is_json = template->has_pointer && hx_fingerprint_is_json(request->content, request->arena),
        .body_hashed = template->has_hash ? hx_fingerprint_body_hashed(request->mac, request->content, request->arena)
                                          : HX_EMPTY,
        .now = at,
    };
}

bool hx_natural_key(const hx_natural_request *request, hx_ms at, hx_template_result *result, hx_slice *key)
{
    hx_template_input in = input_of(request, at);
    if (!hx_template_key(request->policy->key.from, &in, request->mac, request->arena, result)) return false;
    *key = text_of(&result->key, request->arena);
    return true;
}

bool hx_natural_show(const hx_natural_request *request, hx_ms at, hx_template_values *values)
{
    hx_template_input in = input_of(request, at);
    return hx_template_show(request->policy->key.from, &in, request->arena, values);
}

hx_slice hx_natural_key_at(const hx_policy *policy, const hx_digest *fixed, hx_ms at, hx_mac *mac, hx_arena *arena)
{
    hx_digest key = hx_template_key_at(policy->key.from, fixed, at, mac, arena);
    return text_of(&key, arena);
}
