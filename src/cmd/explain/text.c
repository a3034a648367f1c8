/* SPDX-License-Identifier: Apache-2.0 */
/* The explanation as text: the verdict, then a line for each thing that decided, with its details indented below. */
#include "cmd/cli/cmd.h"
#include "cmd/explain/collect.h"
#include "cmd/keys.h"
#include "config/describe/policy_fields.h"

#include <stdarg.h>
#include <string.h>

#define VALUE_SHOWN 200u

typedef struct {
    FILE *out;
    const char *bold, *dim, *good, *bad, *plain;
} page;

static void line(const page *p, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void line(const page *p, const char *label, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(p->out, "%s%-11s%s ", p->bold, label, p->plain);
    (void)vfprintf(p->out, format, args);
    (void)fprintf(p->out, "\n");
    va_end(args);
}

static void more(const page *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void more(const page *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(p->out, "%12s%s", "", p->dim);
    (void)vfprintf(p->out, format, args);
    (void)fprintf(p->out, "%s\n", p->plain);
    va_end(args);
}

/* A value of the request: without control bytes, cut between characters. */
static hx_slice clean(hx_slice text, hx_arena *arena)
{
    size_t len = text.len < VALUE_SHOWN ? text.len : VALUE_SHOWN;
    while (len > 0 && len < text.len && ((unsigned char)text.ptr[len] & 0xc0) == 0x80) len--;
    const char *shown = hx_keys_clean(hx_slice_first(text, len), arena);
    return hx_arena_printf(arena, "%s%s", shown, len < text.len ? "…" : "");
}

static void show_verdict(const page *p, const hx_explanation *e, hx_arena *arena)
{
    bool is_bad = strcmp(e->does, "refuses") == 0;
    line(p, "verdict", "%s%s%s: %.*s", is_bad ? p->bad : p->good, e->does, p->plain, HX_FMT(e->why));
    if (!e->has_error) return;
    more(p, "%u %s", e->status, e->error->code);
    more(p, "%.*s", HX_FMT(clean(e->detail, arena)));
    more(p, "%s", e->error->hint);
    if (e->error->remedy[0]) more(p, "%s", e->error->remedy);
}

static void show_route(const page *p, const hx_explanation *e, hx_arena *arena)
{
    if (e->number > 0)
        line(p, "route", "%.*s, number %zu of %zu: %.*s", HX_FMT(e->route), e->number, e->count, HX_FMT(e->match));
    else
        line(p, "route", "none of %zu matches: the defaults apply, and the route is %.*s %.*s", e->count,
             HX_FMT(e->method), HX_FMT(clean(e->path, arena)));
    for (size_t i = 0; i < e->near_count; i++)
        more(p, "not %.*s (%.*s): %.*s", HX_FMT(e->near[i].name), HX_FMT(e->near[i].match),
             HX_FMT(clean(e->near[i].why, arena)));
    for (size_t i = 0; i < e->behind_count; i++)
        more(p, "%.*s (%.*s) matches too, but comes later", HX_FMT(e->behind[i].name), HX_FMT(e->behind[i].match));
}

static void show_key(const page *p, const hx_dry_run *r, const hx_explanation *e, hx_arena *arena)
{
    if (strcmp(e->key_from, "none") == 0) {
        line(p, "key", "none: the request has no Idempotency-Key (%.*s)", HX_FMT(e->key_rule));
        return;
    }
    if (strcmp(e->key_from, "header") == 0) {
        line(p, "key", "%.*s", HX_FMT(clean(e->key, arena)));
        more(p, "from the Idempotency-Key header: %.*s allowed", HX_FMT(e->key_rule));
        return;
    }
    line(p, "key", "from the request: %.*s", HX_FMT(e->key_rule));
    for (size_t i = 0; i < e->part_count; i++)
        more(p, "%.*s = %.*s", HX_FMT(e->parts[i].text), HX_FMT(clean(e->parts[i].value, arena)));
    if (r->has_values && !r->has_key) more(p, "%.*s: %s", HX_FMT(r->values.wrong), r->values.why);
    if (e->key.len > 0) more(p, "%.*s under an all-zero secret; the store's differs", HX_FMT(e->key));
}

static void show_caller(const page *p, const hx_dry_run *r, const hx_explanation *e, hx_arena *arena)
{
    const hx_policy *policy = r->request->policy;
    bool is_found = strcmp(e->principal_kind, "none") != 0;
    line(p, "principal", "%s%s%.*s", is_found ? e->principal_kind : "", is_found ? ": " : "",
         HX_FMT(clean(e->principal, arena)));
    if (e->verified)
        more(p, "verified with keys from %.*s", HX_FMT(e->verified_by));
    else if (is_found)
        more(p, "not verified%s: anyone can claim this name, but a stored response needs the proof below",
             policy->jwt.given ? " here" : "");
    if (!is_found && r->caller_result == HX_CALLER_NOBODY) more(p, "all unauthenticated callers share one scope");
    line(p, "proof", "%.*s", HX_FMT(e->proof));
    if (e->verified)
        more(p, "a new token of the same identity gets the stored response too");
    else if (policy->authorize_target.len > 0)
        more(p, "another one gets the stored response if %.*s %.*s answers it with 2xx",
             HX_FMT(policy->authorize_method), HX_FMT(policy->authorize_target));
    else if (!e->has_proof)
        more(p, "every caller without one gets the stored response");
    else
        more(p,
             "only a caller that sends it again gets the stored response; others get 403 AUTH.replay_not_authorized");
}

static void show_fingerprint(const page *p, const hx_explanation *e, hx_arena *arena)
{
    if (!e->has_fingerprint) return;
    line(p, "fingerprint", "%s", e->fingerprint);
    more(p, "of %.*s", HX_FMT(clean(e->counted, arena)));
    more(p, "body: %s, %zu bytes, sha256 %.16s…", e->body_as, e->body_len, e->body_sha256);
    if (e->body_len > 0) more(p, "%.*s", HX_FMT(clean(e->body, arena)));
    line(p, "operation", "%s", e->operation);
    more(p, "both under an all-zero secret: compare them with another `hapax explain`, not with the store");
}

static void show_rules(const page *p, const hx_dry_run *r, hx_arena *arena)
{
    const hx_policy *policy = r->request->policy;
    line(p, "scope", "%.*s", HX_FMT(hx_describe_word("scope", policy->scope)));
    line(p, "lifetime", "%s from its completion", hx_describe_duration(policy->lifetime, arena));
    if (policy->tombstone > 0) more(p, "then the bare key for %s", hx_describe_duration(policy->tombstone, arena));
    line(p, "duplicates", "%.*s", HX_FMT(hx_describe_word("on_duplicate", policy->on_duplicate)));
    line(p, "guarantee", "%.*s; when unknown: %.*s", HX_FMT(hx_describe_word("guarantee", policy->guarantee)),
         HX_FMT(hx_describe_word("on_unknown", policy->on_unknown)));
    line(p, "dialect", "%.*s", HX_FMT(hx_describe_word("dialect", policy->dialect)));
    hx_slice rate = hx_describe_rate(&policy->rate, arena);
    if (rate.len > 0) line(p, "rate", "%.*s for each principal", HX_FMT(rate));
    if (policy->quota > 0) line(p, "quota", "%u live keys for each principal", policy->quota);
}

void hx_explain_text(const hx_dry_run *r, const hx_explanation *e, FILE *out)
{
    bool colours = hx_cmd_colours(out);
    page p = {.out = out,
              .bold = colours ? "\033[1m" : "",
              .dim = colours ? "\033[2m" : "",
              .good = colours ? "\033[32m" : "",
              .bad = colours ? "\033[31m" : "",
              .plain = colours ? "\033[0m" : ""};
    hx_arena arena = {0};
    bool is_read = r->request && r->request->policy && r->end != HX_DRY_PUBLISHED;
    show_verdict(&p, e, &arena);
    if (is_read) {
        const hx_config_upstream *upstream = &r->rules.config->upstreams[r->request->policy->upstream];
        line(&p, "request", "%.*s %.*s", HX_FMT(e->method), HX_FMT(clean(e->path, &arena)));
        show_route(&p, e, &arena);
        line(&p, "upstream", "%.*s", HX_FMT(upstream->url));
    }
    if (is_read && r->end != HX_DRY_PASSED && r->end != HX_DRY_PREFLIGHT) {
        show_key(&p, r, e, &arena);
        show_caller(&p, r, e, &arena);
        show_rules(&p, r, &arena);
        show_fingerprint(&p, e, &arena);
    }
    hx_arena_free(&arena);
}
