/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/explain/collect.h"

#include "base/hex.h"
#include "cmd/explain/near_misses.h"
#include "config/describe/policy_fields.h"
#include "core/crypto/sha256.h"
#include "gateway/messages/problem.h"

#include <string.h>

#define BODY_SHOWN 400u
#define VALUE_SHOWN 1024u /* of a part of a natural key, which can be as long as the body */

/* At most `max` bytes, without cutting a UTF-8 character. */
static hx_slice beginning(hx_slice text, size_t max)
{
    size_t len = text.len < max ? text.len : max;
    while (len > 0 && len < text.len && ((unsigned char)text.ptr[len] & 0xc0) == 0x80) len--;
    return hx_slice_first(text, len);
}

/* The beginning of a secret, never more than a third of it, and its length. */
static hx_slice masked(hx_slice secret, hx_arena *arena)
{
    hx_slice shown = beginning(secret, secret.len / 3 < 6 ? secret.len / 3 : 6);
    return hx_arena_printf(arena, "%.*s… (%zu characters)", HX_FMT(shown), secret.len);
}

/* Takes `length:text` off the front. */
static hx_slice take_named(hx_slice *rest)
{
    size_t colon = hx_slice_find(*rest, ':');
    uint64_t len = 0;
    if (colon == SIZE_MAX || !hx_slice_to_u64(hx_slice_first(*rest, colon), &len)) return HX_EMPTY;
    hx_slice text = hx_slice_first(hx_slice_from(*rest, colon + 1), (size_t)len);
    *rest = hx_slice_from(*rest, colon + 1 + (size_t)len);
    return text;
}

/* A principal as text; core/operation/identity.c and gateway/parts/caller.c define its bytes. */
static hx_slice principal_text(const hx_identity *who, hx_arena *arena)
{
    size_t nul = hx_slice_find(who->principal, '\0');
    hx_slice rest = nul == SIZE_MAX ? who->principal : hx_slice_from(who->principal, nul + 1);
    hx_slice kind = hx_slice_of(who->kind);
    if (hx_slice_eq(kind, HX_LIT("jwt"))) {
        hx_slice iss = take_named(&rest), sub = take_named(&rest);
        return hx_arena_printf(arena, "iss %.*s, sub %.*s", HX_FMT(iss), HX_FMT(sub));
    }
    if (hx_slice_eq(kind, HX_LIT("claim"))) {
        hx_slice iss = take_named(&rest), name = take_named(&rest);
        (void)take_named(&rest); /* its type */
        hx_slice value = take_named(&rest);
        return hx_arena_printf(arena, "iss %.*s, %.*s %.*s", HX_FMT(iss), HX_FMT(name), HX_FMT(value));
    }
    if (hx_slice_eq(kind, HX_LIT("oauth1"))) {
        hx_slice consumer = take_named(&rest), token = take_named(&rest);
        return hx_arena_printf(arena, "consumer %.*s, token %.*s", HX_FMT(consumer), HX_FMT(masked(token, arena)));
    }
    if (hx_slice_eq(kind, HX_LIT("header")) || hx_slice_eq(kind, HX_LIT("cookie"))) {
        rest = hx_slice_from(rest, kind.len + 1);
        hx_slice name = hx_slice_first(rest, hx_slice_find(rest, ':'));
        return hx_arena_printf(arena, "%.*s = %.*s", HX_FMT(name),
                               HX_FMT(masked(hx_slice_from(rest, name.len + 1), arena)));
    }
    if (hx_slice_eq(kind, HX_LIT("whole"))) return masked(who->proof, arena);
    return rest;
}

static hx_slice sources_text(const hx_policy *policy, hx_arena *arena)
{
    hx_slice text = HX_EMPTY;
    for (size_t i = 0; i < policy->principal_count; i++)
        text = hx_arena_printf(arena, "%.*s%s%.*s", HX_FMT(text), i > 0 ? ", " : "",
                               HX_FMT(hx_describe_principal(&policy->principals[i], arena)));
    return text;
}

static void explain_caller(const hx_dry_run *r, hx_explanation *out)
{
    const hx_policy *policy = r->request->policy;
    hx_arena *arena = r->request->arena;
    bool is_found = r->caller_result == HX_CALLER_FOUND;
    out->principal_kind = is_found ? r->caller.who.kind : "none";
    out->verified = r->caller.verified;
    if (is_found)
        out->principal = principal_text(&r->caller.who, arena);
    else if (r->caller_result == HX_CALLER_NOBODY)
        out->principal = hx_arena_printf(arena, "unauthenticated: the request has none of %.*s",
                                         HX_FMT(sources_text(policy, arena)));
    else
        out->principal = r->caller.why;
    if (policy->jwt.given) {
        const hx_jwt_source *source = &r->rules.config->jwt_sources[policy->jwt.source];
        const hx_jwt_keys *keys = r->rules.jwt_keys[policy->jwt.source];
        out->verified_by = hx_arena_printf(arena, "%.*s (%zu keys)", HX_FMT(source->where),
                                           keys ? hx_jwt_keys_count(keys) : 0);
    }
    bool is_shared = r->request->natural || r->caller_result != HX_CALLER_NOBODY;
    bool has_other = !is_shared && r->caller.who.proof.len > 0;
    bool has_authorization = r->stream.request.fields.lines[HX_FIELD_AUTHORIZATION] > 0;
    bool is_other = is_found &&
                    (strcmp(out->principal_kind, "header") == 0 || strcmp(out->principal_kind, "cookie") == 0);
    out->has_proof = is_other || has_authorization || has_other;
    if (is_other)
        out->proof = hx_arena_printf(arena, "the %s above%s", out->principal_kind,
                                     has_authorization ? " and the Authorization header" : "");
    else if (has_other)
        out->proof = HX_LIT("every header that looks like a credential (Authorization, Cookie, X-Api-Key, …)");
    else
        out->proof = has_authorization ? HX_LIT("the whole Authorization header") : HX_LIT("none");
}

static hx_slice key_rule(const hx_policy *policy, hx_arena *arena)
{
    static const char *const formats[] = {
        [HX_KEY_ANY] = "", [HX_KEY_UUID] = ", a UUID", [HX_KEY_UUID4] = ", a UUID of version 4"};
    if (policy->key.from) return policy->key.from->text;
    return hx_arena_printf(arena, "%u to %u characters%s", (unsigned)policy->key.len_min, (unsigned)policy->key.len_max,
                           formats[policy->key.format]);
}

static bool is_credential(const hx_policy *policy, const hx_template_part *part)
{
    if (part->kind == HX_TEMPLATE_PRINCIPAL) return true;
    if (part->kind != HX_TEMPLATE_HEADER) return false;
    static const char *const names[] = {"authorization", "cookie",       "proxy-authorization", "x-api-key",
                                        "api-key",       "x-auth-token", "x-access-token"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (hx_slice_eq_nocase(part->argument, hx_slice_of(names[i]))) return true;
    for (size_t i = 0; i < policy->principal_count; i++)
        if (policy->principals[i].kind == HX_PRINCIPAL_HEADER &&
            hx_slice_eq_nocase(part->argument, policy->principals[i].name))
            return true;
    return false;
}

static void explain_parts(const hx_dry_run *r, hx_explanation *out)
{
    const hx_template *template = r->request->policy->key.from;
    for (size_t i = 0, k = 0; i < template->count && k < r->values.value_count; i++) {
        const hx_template_part *part = &template->parts[i];
        if (part->kind == HX_TEMPLATE_LITERAL) continue;
        const hx_template_value *value = &r->values.values[k++];
        hx_slice shown = value->value;
        if (part->kind == HX_TEMPLATE_PRINCIPAL && r->caller_result == HX_CALLER_FOUND)
            shown = out->principal;
        else if (is_credential(r->request->policy, part))
            shown = masked(shown, r->request->arena);
        out->parts[out->part_count++] = (hx_key_part){value->text, beginning(shown, VALUE_SHOWN)};
    }
}

static void explain_key(const hx_dry_run *r, hx_explanation *out)
{
    const hx_request *q = r->request;
    bool has_header = r->stream.request.fields.lines[HX_FIELD_IDEMPOTENCY_KEY] > 0;
    out->key_from = q->natural ? "template" : has_header ? "header" : "none";
    out->key_rule = key_rule(q->policy, q->arena);
    out->key = q->key.len > 0 ? q->key : q->header_key;
    if (out->key.len == 0 && has_header && !q->natural)
        out->key = hx_fields_get(&r->stream.request.fields, HX_FIELD_IDEMPOTENCY_KEY);
    if (r->has_values) explain_parts(r, out);
}

static void put_hex(char *out, const uint8_t *bytes, size_t len)
{
    hx_hex_write(out, bytes, len);
    out[2 * len] = '\0';
}

/* The parts of the request that the fingerprint covers. */
static hx_slice counted_text(const hx_request *q)
{
    const hx_fingerprint_rules *rules = &q->policy->fingerprint;
    hx_arena *arena = q->arena;
    if (rules->body == HX_FINGERPRINT_KEY) return HX_LIT("the parts of the key only");
    hx_slice text = q->policy->scope == HX_SCOPE_HOST
                        ? HX_LIT("method, path, query, media type, content encoding, preconditions, body")
                        : HX_LIT("method, host, path, query, media type, content encoding, preconditions, body");
    for (size_t i = 0; i < rules->pointer_count; i++)
        text = hx_arena_printf(arena, "%.*s%s%.*s", HX_FMT(text), i > 0 ? ", " : " at ", HX_FMT(rules->pointers[i]));
    for (size_t i = 0; i < rules->header_count; i++)
        text = hx_arena_printf(arena, "%.*s, header %.*s", HX_FMT(text), HX_FMT(rules->headers[i]));
    for (size_t i = 0; i < rules->ignored_pointer_count; i++)
        text = hx_arena_printf(arena, "%.*s%s%.*s", HX_FMT(text), i > 0 ? ", " : "; without ",
                               HX_FMT(rules->ignored_pointers[i]));
    for (size_t i = 0; i < rules->ignored_query_count; i++)
        text = hx_arena_printf(arena, "%.*s%squery:%.*s", HX_FMT(text),
                               i + rules->ignored_pointer_count > 0 ? ", " : "; without ",
                               HX_FMT(rules->ignored_query[i]));
    return text;
}

static const char *body_kind(char kind, const hx_request *q)
{
    if (q->policy->fingerprint.body == HX_FINGERPRINT_KEY) return "not counted";
    switch (kind) {
    case 'J': return "canonical JSON";
    case 'V': return "chosen values of JSON";
    case 'M': return "the parts of multipart, without their boundary";
    default: return "raw bytes";
    }
}

static void explain_fingerprint(const hx_dry_run *r, hx_explanation *out)
{
    const hx_request *q = r->request;
    const hx_fingerprint_input *in = &q->fingerprint_input;
    out->has_fingerprint = q->key.len > 0;
    if (!out->has_fingerprint) return;
    bool shows_canonical = in->normal.done && (in->normal.body_kind == 'J' || in->normal.body_kind == 'V');
    hx_slice shown = shows_canonical ? in->normal.body : r->body;
    put_hex(out->fingerprint, q->claimant.fingerprint.bytes, 32);
    put_hex(out->operation, q->op.bytes, sizeof q->op.bytes);
    out->counted = counted_text(q);
    out->body_as = r->body.len == 0 ? "empty" : body_kind(in->normal.body_kind, q);
    out->body = beginning(shown, BODY_SHOWN);
    out->body_len = shown.len;
    hx_slice hashed = in->normal.done && in->normal.body_kind == 'M' ? in->normal.body : shown; /* no boundary */
    uint8_t *copy = hx_arena_alloc(q->arena, hashed.len + HX_SHA256_ROOM);
    if (hashed.len > 0) memcpy(copy, hashed.ptr, hashed.len);
    hx_digest digest = hx_sha256_end(NULL, 0, copy, hashed.len);
    put_hex(out->body_sha256, digest.bytes, sizeof digest.bytes);
}

static void explain_error(const hx_request *q, hx_error error, unsigned status, hx_slice detail, hx_explanation *out)
{
    out->has_error = true;
    out->error = hx_error_about(error);
    out->status = status > 0 ? status
                             : hx_problem_status(error, q && q->policy ? q->policy->dialect : HX_DIALECT_PLAIN);
    out->detail = detail.len > 0 ? detail : hx_slice_of(out->error->title);
}

static hx_slice why_passed(const hx_dry_run *r)
{
    const hx_request *q = r->request;
    hx_slice method = r->stream.request.method;
    if (hx_method_is_safe(method))
        return hx_arena_printf(q->arena, "%.*s is a safe method: it needs no key and is streamed through",
                               HX_FMT(method));
    if (q->policy->mode == HX_MODE_PASS)
        return hx_arena_printf(q->arena, "the route has `mode: pass`%s%.*s",
                               q->policy->because.len > 0 ? ", because " : "", HX_FMT(q->policy->because));
    return HX_LIT("no Idempotency-Key, and none is required: not protected");
}

static hx_slice why_shadowed(const hx_request *q)
{
    static const char *const would[] = {[HX_WOULD_FORWARD] = "forward it",
                                        [HX_WOULD_REPLAY] = "replay the stored response",
                                        [HX_WOULD_WAIT] = "wait for the one in flight",
                                        [HX_WOULD_ASK] = "probe the upstream",
                                        [HX_WOULD_REFUSE] = "refuse it"};
    return hx_arena_printf(q->arena, "the route has `mode: shadow`: forwarded unprotected; protection would %s",
                           would[q->shadow.would]);
}

static hx_slice why_protected(const hx_request *q)
{
    static const char *const repeated[] = {[HX_DUPLICATE_REPLAY] = "every retry gets the stored response",
                                           [HX_DUPLICATE_REJECT] = "after success every retry is rejected with 409",
                                           [HX_DUPLICATE_NOOP] = "after success every retry gets 200 {}"};
    return hx_arena_printf(q->arena, "the operation is executed once; %s", repeated[q->policy->on_duplicate]);
}

static void explain_end(const hx_dry_run *r, hx_explanation *out)
{
    const hx_request *q = r->request;
    switch (r->end) {
    case HX_DRY_MALFORMED:
        out->does = "refuses";
        out->why = HX_LIT("not an HTTP request that is served");
        explain_error(NULL, HX_ERROR_MALFORMED, r->fault.status, hx_slice_of(r->fault.detail), out);
        break;
    case HX_DRY_REFUSED:
        out->does = "refuses";
        out->why = HX_LIT("nothing is sent to the upstream");
        explain_error(q, q->error, q->error == HX_ERROR_MALFORMED ? q->reply_status : 0, q->error_detail, out);
        break;
    case HX_DRY_PASSED:
        out->does = "passes";
        out->why = why_passed(r);
        break;
    case HX_DRY_PREFLIGHT:
        out->does = "answers";
        out->why = HX_LIT("`cors` answers this preflight request; nothing is sent to the upstream");
        break;
    case HX_DRY_PUBLISHED:
        out->does = "publishes";
        out->why = HX_LIT("`publish_policy` answers with the rules of the routes");
        break;
    case HX_DRY_SHADOWED:
        out->does = "shadows";
        out->why = why_shadowed(q);
        if (q->shadow.would == HX_WOULD_REFUSE) explain_error(q, q->shadow.error, 0, HX_EMPTY, out);
        break;
    case HX_DRY_PROTECTED:
        out->does = "protects";
        out->why = why_protected(q);
        break;
    }
}

void hx_explain(hx_dry_run *r, hx_explanation *out)
{
    const hx_request *q = r->request;
    *out = (hx_explanation){.key_from = "none",
                            .principal_kind = "none",
                            .body_as = "",
                            .count = r->rules.policies->count};
    out->method = r->stream.request.method;
    explain_end(r, out);
    if (!q || !q->policy || r->end == HX_DRY_PUBLISHED) return;
    out->path = q->path;
    hx_near_misses_of(r->rules.policies, q->policy, out->method, q->path, &r->stream.arena, out);
    if (r->end == HX_DRY_PASSED || r->end == HX_DRY_PREFLIGHT) return;
    explain_caller(r, out);
    explain_key(r, out);
    explain_fingerprint(r, out);
}
