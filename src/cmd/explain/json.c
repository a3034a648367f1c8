/* SPDX-License-Identifier: Apache-2.0 */
/* The explanation as one JSON object. */
#include "base/check.h"
#include "cmd/explain/collect.h"
#include "config/describe/policy_fields.h"
#include "core/json/json_writer.h"

static void put_routes(hx_buf *out, const char *name, const hx_near_route *routes, size_t count)
{
    hx_json_open(out, name, '[');
    for (size_t i = 0; i < count; i++) {
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "name", routes[i].name);
        hx_json_put_text(out, "match", routes[i].match);
        hx_json_put_text(out, "why", routes[i].why);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
}

static void put_verdict(hx_buf *out, const hx_explanation *e)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "verdict", hx_slice_of(e->does));
    hx_json_put_text(out, "why", e->why);
    if (!e->has_error) {
        hx_json_put_null(out, "error");
        return;
    }
    hx_json_open(out, "error", '{');
    hx_json_put_text(out, "code", hx_slice_of(e->error->code));
    hx_json_put_number(out, "status", e->status);
    hx_json_put_text(out, "detail", e->detail);
    hx_json_put_text(out, "hint", hx_slice_of(e->error->hint));
    hx_json_put_text(out, "remedy", hx_slice_of(e->error->remedy));
    hx_json_close(out, '}');
}

static void put_route(hx_buf *out, const hx_dry_run *r, const hx_explanation *e)
{
    hx_json_put_text(out, "method", e->method);
    hx_json_put_text(out, "path", e->path);
    hx_json_open(out, "route", '{');
    if (e->number > 0) {
        hx_json_put_text(out, "name", e->route);
        hx_json_put_text(out, "match", e->match);
        hx_json_put_number(out, "number", e->number);
    } else {
        hx_json_put_null(out, "name");
        hx_json_put_null(out, "match");
        hx_json_put_null(out, "number");
    }
    put_routes(out, "near", e->near, e->near_count);
    put_routes(out, "behind", e->behind, e->behind_count);
    hx_json_close(out, '}');
    hx_json_put_text(out, "upstream", r->rules.config->upstreams[r->request->policy->upstream].url);
    hx_json_put_text(out, "mode", hx_describe_word("mode", r->request->policy->mode));
}

static void put_key(hx_buf *out, const hx_dry_run *r, const hx_explanation *e)
{
    hx_json_open(out, "key", '{');
    hx_json_put_text(out, "from", hx_slice_of(e->key_from));
    hx_json_put_text(out, "key", e->key);
    hx_json_put_text(out, "rule", e->key_rule);
    hx_json_put_bool(out, "valid", r->request->key.len > 0);
    hx_json_open(out, "parts", '[');
    for (size_t i = 0; i < e->part_count; i++) {
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "part", e->parts[i].text);
        hx_json_put_text(out, "value", e->parts[i].value);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

static void put_caller(hx_buf *out, const hx_dry_run *r, const hx_explanation *e)
{
    const hx_policy *policy = r->request->policy;
    hx_json_open(out, "principal", '{');
    hx_json_put_text(out, "kind", hx_slice_of(e->principal_kind));
    hx_json_put_text(out, "who", e->principal);
    hx_json_put_bool(out, "verified", e->verified);
    hx_json_put_text(out, "keys", e->verified_by);
    hx_json_close(out, '}');
    hx_json_open(out, "proof", '{');
    hx_json_put_text(out, "is", e->proof);
    hx_json_put_text(out, "authorize",
                     policy->authorize_target.len == 0
                         ? HX_EMPTY
                         : hx_arena_printf(r->request->arena, "%.*s %.*s", HX_FMT(policy->authorize_method),
                                           HX_FMT(policy->authorize_target)));
    hx_json_close(out, '}');
}

static void put_fingerprint(hx_buf *out, const hx_explanation *e)
{
    if (!e->has_fingerprint) {
        hx_json_put_null(out, "fingerprint");
        hx_json_put_null(out, "operation");
        return;
    }
    hx_json_open(out, "fingerprint", '{');
    hx_json_put_text(out, "under_no_secret", hx_slice_of(e->fingerprint));
    hx_json_put_text(out, "counts", e->counted);
    hx_json_put_text(out, "body_as", hx_slice_of(e->body_as));
    hx_json_put_number(out, "body_bytes", e->body_len);
    hx_json_put_text(out, "body_begins", e->body);
    hx_json_put_text(out, "body_sha256", hx_slice_of(e->body_sha256));
    hx_json_close(out, '}');
    hx_json_open(out, "operation", '{');
    hx_json_put_text(out, "under_no_secret", hx_slice_of(e->operation));
    hx_json_close(out, '}');
}

static void put_rules(hx_buf *out, const hx_policy *policy, hx_arena *arena)
{
    hx_json_put_text(out, "scope", hx_describe_word("scope", policy->scope));
    hx_json_put_number(out, "lifetime_ms", (uint64_t)policy->lifetime);
    hx_json_put_number(out, "tombstone_ms", (uint64_t)policy->tombstone);
    hx_json_put_text(out, "on_duplicate", hx_describe_word("on_duplicate", policy->on_duplicate));
    hx_json_put_text(out, "guarantee", hx_describe_word("guarantee", policy->guarantee));
    hx_json_put_text(out, "on_unknown", hx_describe_word("on_unknown", policy->on_unknown));
    hx_json_put_text(out, "dialect", hx_describe_word("dialect", policy->dialect));
    hx_json_put_text(out, "rate", hx_describe_rate(&policy->rate, arena));
    hx_json_put_number(out, "quota", policy->quota);
}

/* At most ten values come from the head, each byte escaped as six; everything else is short. */
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
