/* SPDX-License-Identifier: Apache-2.0 */
/* The explanation as one JSON object. */
#include "base/check.h"
#include "cmd/explain/collect.h"
#include "config/describe/policy_fields.h"
#include "core/json/json.h"

static void put_number(hx_buf *out, const char *prefix, uint64_t number)
{
    hx_buf_puts(out, prefix);
    hx_buf_put_decimal(out, number);
}

static void put_bool(hx_buf *out, const char *prefix, bool value)
{
    hx_buf_puts(out, prefix);
    hx_buf_puts(out, value ? "true" : "false");
}

static void put_routes(hx_buf *out, const char *prefix, const hx_near_route *routes, size_t count)
{
    hx_buf_puts(out, prefix);
    for (size_t i = 0; i < count; i++) {
        hx_json_put(out, i > 0 ? ",{\"name\":" : "{\"name\":", routes[i].name);
        hx_json_put(out, ",\"match\":", routes[i].match);
        hx_json_put(out, ",\"why\":", routes[i].why);
        hx_buf_puts(out, "}");
    }
    hx_buf_puts(out, "]");
}

static void put_verdict(hx_buf *out, const hx_explanation *e)
{
    hx_json_put(out, "{\"verdict\":", hx_slice_of(e->does));
    hx_json_put(out, ",\"why\":", e->why);
    if (!e->has_error) {
        hx_buf_puts(out, ",\"error\":null");
        return;
    }
    hx_json_put(out, ",\"error\":{\"code\":", hx_slice_of(e->error->code));
    put_number(out, ",\"status\":", e->status);
    hx_json_put(out, ",\"detail\":", e->detail);
    hx_json_put(out, ",\"hint\":", hx_slice_of(e->error->hint));
    hx_buf_puts(out, "}");
}

static void put_route(hx_buf *out, const hx_dry_run *r, const hx_explanation *e)
{
    hx_json_put(out, ",\"method\":", e->method);
    hx_json_put(out, ",\"path\":", e->path);
    if (e->number > 0) {
        hx_json_put(out, ",\"route\":{\"name\":", e->route);
        hx_json_put(out, ",\"match\":", e->match);
        put_number(out, ",\"number\":", e->number);
    } else {
        hx_buf_puts(out, ",\"route\":{\"name\":null,\"match\":null,\"number\":null");
    }
    put_routes(out, ",\"near\":[", e->near, e->near_count);
    put_routes(out, ",\"behind\":[", e->behind, e->behind_count);
    hx_json_put(out, "},\"upstream\":", r->rules.config->upstreams[r->request->policy->upstream].url);
    hx_json_put(out, ",\"mode\":", hx_describe_word("mode", r->request->policy->mode));
}

static void put_key(hx_buf *out, const hx_dry_run *r, const hx_explanation *e)
{
    hx_json_put(out, ",\"key\":{\"from\":", hx_slice_of(e->key_from));
    hx_json_put(out, ",\"key\":", e->key);
    hx_json_put(out, ",\"rule\":", e->key_rule);
    put_bool(out, ",\"valid\":", r->request->key.len > 0);
    hx_buf_puts(out, ",\"parts\":[");
    for (size_t i = 0; i < e->part_count; i++) {
        hx_json_put(out, i > 0 ? ",{\"part\":" : "{\"part\":", e->parts[i].text);
        hx_json_put(out, ",\"value\":", e->parts[i].value);
        hx_buf_puts(out, "}");
    }
    hx_buf_puts(out, "]}");
}

static void put_caller(hx_buf *out, const hx_dry_run *r, const hx_explanation *e)
{
    const hx_policy *policy = r->request->policy;
    hx_json_put(out, ",\"principal\":{\"kind\":", hx_slice_of(e->principal_kind));
    hx_json_put(out, ",\"who\":", e->principal);
    put_bool(out, ",\"verified\":", e->verified);
    hx_json_put(out, ",\"keys\":", e->verified_by);
    hx_json_put(out, "},\"proof\":{\"is\":", e->proof);
    hx_json_put(out, ",\"authorize\":",
                policy->authorize_target.len == 0
                    ? HX_EMPTY
                    : hx_arena_printf(r->request->arena, "%.*s %.*s", HX_FMT(policy->authorize_method),
                                      HX_FMT(policy->authorize_target)));
    hx_buf_puts(out, "}");
}

static void put_fingerprint(hx_buf *out, const hx_explanation *e)
{
    if (!e->has_fingerprint) {
        hx_buf_puts(out, ",\"fingerprint\":null,\"operation\":null");
        return;
    }
    hx_json_put(out, ",\"fingerprint\":{\"under_no_secret\":", hx_slice_of(e->fingerprint));
    hx_json_put(out, ",\"counts\":", e->counted);
    hx_json_put(out, ",\"body_as\":", hx_slice_of(e->body_as));
    put_number(out, ",\"body_bytes\":", e->body_len);
    hx_json_put(out, ",\"body_begins\":", e->body);
    hx_json_put(out, ",\"body_sha256\":", hx_slice_of(e->body_sha256));
    hx_json_put(out, "},\"operation\":{\"under_no_secret\":", hx_slice_of(e->operation));
    hx_buf_puts(out, "}");
}

static void put_rules(hx_buf *out, const hx_policy *policy, hx_arena *arena)
{
    hx_json_put(out, ",\"scope\":", hx_describe_word("scope", policy->scope));
    put_number(out, ",\"lifetime_ms\":", (uint64_t)policy->lifetime);
    put_number(out, ",\"tombstone_ms\":", (uint64_t)policy->tombstone);
    hx_json_put(out, ",\"on_duplicate\":", hx_describe_word("on_duplicate", policy->on_duplicate));
    hx_json_put(out, ",\"guarantee\":", hx_describe_word("guarantee", policy->guarantee));
    hx_json_put(out, ",\"on_unknown\":", hx_describe_word("on_unknown", policy->on_unknown));
    hx_json_put(out, ",\"dialect\":", hx_describe_word("dialect", policy->dialect));
    hx_json_put(out, ",\"rate\":", hx_describe_rate(&policy->rate, arena));
    put_number(out, ",\"quota\":", policy->quota);
}

/* What comes from a head is at most ten of its values, each byte escaped as six; everything else is short. */
size_t hx_explain_json_max(const hx_config *config)
{
    return 1024u * 1024u + 64u * (size_t)config->limits.head_bytes;
}

void hx_explain_json(const hx_dry_run *r, const hx_explanation *e, hx_buf *out)
{
    bool is_read = r->request && r->request->policy && r->end != HX_DRY_PUBLISHED;
    put_verdict(out, e);
    if (is_read) put_route(out, r, e);
    if (is_read && r->end != HX_DRY_PASSED && r->end != HX_DRY_PREFLIGHT) {
        put_key(out, r, e);
        put_caller(out, r, e);
        put_rules(out, r->request->policy, r->request->arena);
        put_fingerprint(out, e);
    }
    hx_buf_puts(out, "}\n");
}
