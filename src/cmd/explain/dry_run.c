/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/explain/dry_run.h"

#include "base/check.h"
#include "net/h1/body_framing.h"

#include <stdlib.h>

#define KEYS_WAIT (5 * HX_SECOND)
#define BODY_BYTES_MAX (128u * 1024u * 1024u)
#define FRAMING_BYTES_MAX 65536u
#define TOO_LARGE "The body is too large to be explained."

static bool refuse_bytes(hx_dry_run *r, unsigned status, const char *detail)
{
    r->fault = (hx_h1_fault){.status = status, .detail = detail};
    return false;
}

static bool read_body(hx_dry_run *r, hx_slice rest)
{
    hx_h1_body framing;
    hx_buf content;
    hx_slice piece;
    hx_buf_init(&content, &r->stream.arena, BODY_BYTES_MAX);
    hx_h1_body_init(&framing, &r->stream.request, FRAMING_BYTES_MAX, FRAMING_BYTES_MAX);
    for (;;) {
        switch (hx_h1_body_next(&framing, &rest, &piece, &r->fault)) {
        case HX_H1_BODY_PIECE:
            if (!hx_buf_append(&content, piece)) return refuse_bytes(r, 413, TOO_LARGE);
            break;
        case HX_H1_BODY_END:
            if (rest.len > 0) return refuse_bytes(r, 400, "More bytes follow the end of the body.");
            if (content.len > 0) r->body = hx_buf_slice(&content);
            return true;
        case HX_H1_BODY_BAD: return false;
        default: return refuse_bytes(r, 400, "The body is shorter than its head says.");
        }
    }
}

static bool read_request(hx_dry_run *r, const hx_config *config, hx_slice bytes)
{
    hx_h1_scan scan = {0};
    hx_slice copy = hx_arena_copy(&r->stream.arena, bytes);
    hx_h1_result result = hx_h1_scan_head(&scan, copy, config->limits.head_bytes, &r->fault);
    if (result == HX_H1_MORE) return refuse_bytes(r, 400, "The head is not complete: an empty line must end it.");
    if (result == HX_H1_BAD) return false;
    hx_slice head = hx_slice_first(copy, scan.at);
    if (!hx_h1_parse_request(&r->stream.request, &r->stream.arena, head, scan.lines, config->limits.headers, &r->fault))
        return false;
    hx_slice rest = hx_slice_from(copy, scan.at);
    if (r->stream.request.has_body) return read_body(r, rest);
    return rest.len == 0 || refuse_bytes(r, 400, "A body follows, but the head has no Content-Length.");
}

bool hx_dry_run_open_keys(const hx_config *config, hx_jwks **jwks, hx_error_text error)
{
    *jwks = NULL;
    if (config->jwt_source_count == 0) return true;
    *jwks = hx_jwks_open(config->jwt_sources, config->jwt_source_count, NULL, KEYS_WAIT, error);
    return *jwks != NULL;
}

static void make_request(hx_dry_run *r)
{
    static const uint8_t no_secret[HX_SECRET_BYTES];
    hx_worker_init(&r->worker, &r->gateway, r->loop, &r->rules);
    hx_mac_free(&r->worker.mac);
    r->worker.tokens.mac = r->worker.mac = hx_mac_new(no_secret);
    hx_request *q = r->request = hx_request_new(&r->worker, &r->stream);
    /* The body is complete: without has_body, admit doesn't read it from the stream. */
    hx_body_init(&q->body, q->arena, BODY_BYTES_MAX, BODY_BYTES_MAX, "");
    hx_body_result kept = r->body.len > 0 ? hx_body_append(&q->body, r->body) : HX_BODY_OK;
    HX_CHECK(kept == HX_BODY_OK);
    r->stream.request.has_body = false;
}

/* The gateway checks the length while it reads the body, so before it looks for parts of a natural key in it. */
static bool is_too_large(const hx_request *q)
{
    bool reads_body = q->step != HX_STEP_reply || q->error == HX_ERROR_KEY_PART_MISSING;
    return reads_body && q->step != HX_STEP_pass && q->step != HX_STEP_publish && q->step != HX_STEP_ask &&
           q->body.len > q->policy->body_bytes_max;
}

static hx_dry_run_end end_of(hx_dry_run *r)
{
    hx_request *q = r->request;
    if (is_too_large(q)) {
        q->error = HX_ERROR_BODY_TOO_LARGE;
        q->reply_status = hx_error_about(q->error)->status;
        q->error_detail = hx_arena_printf(q->arena, "The body is longer than %llu bytes.",
                                          (unsigned long long)q->policy->body_bytes_max);
        return HX_DRY_REFUSED;
    }
    switch (q->step) {
    case HX_STEP_pass: return HX_DRY_PASSED;
    case HX_STEP_ask:
    case HX_STEP_publish: return HX_DRY_PUBLISHED;
    case HX_STEP_shadow: return HX_DRY_SHADOWED;
    case HX_STEP_locate:
    case HX_STEP_claim: return q->policy->mode == HX_MODE_SHADOW ? HX_DRY_SHADOWED : HX_DRY_PROTECTED;
    default: return q->reply_kind == HX_REPLY_ANSWER ? HX_DRY_PREFLIGHT : HX_DRY_REFUSED;
    }
}

static void run_admit(hx_dry_run *r)
{
    hx_request *q = r->request;
    const hx_fields *fields = &r->stream.request.fields;
    (void)hx_step_admit(q);
    r->end = end_of(r);
    if (!q->policy || (r->end != HX_DRY_REFUSED && r->end != HX_DRY_PROTECTED && r->end != HX_DRY_SHADOWED)) return;
    r->caller_result = hx_caller_find(q->policy, &r->rules, NULL, fields, hx_clock_wall(), q->arena, &r->caller);
    bool has_content = q->fingerprint_input.rules != NULL; /* admit read the body */
    if (!q->natural || !has_content) return;
    hx_natural_request natural = hx_natural_of(q);
    r->has_values = true;
    r->has_key = hx_natural_show(&natural, q->key_at, &r->values);
}

static hx_dry_run *new_dry_run(const hx_config *config, hx_jwks *jwks)
{
    hx_dry_run *r = calloc(1, sizeof *r);
    HX_CHECK(r != NULL);
    r->end = HX_DRY_MALFORMED;
    r->body = HX_EMPTY;
    r->rules = (hx_rules){.config = config, .policies = &config->policies, .generation = 1};
    atomic_init(&r->rules.users, 1);
    for (size_t i = 0; jwks && i < config->jwt_source_count; i++)
        r->rules.jwt_keys[i] = r->keys[i] = hx_jwks_keys(jwks, i);
    r->loop = hx_loop_new();
    r->gateway = (hx_gateway){.store = hx_store_memory_open(&(hx_store_options){0}),
                              .limiter = hx_limiter_new(),
                              .worker_count = 1,
                              .dev = config->dev,
                              .spool_bytes = BODY_BYTES_MAX,
                              .spool_directory = ""};
    return r;
}

hx_dry_run *hx_dry_run_bytes(const hx_config *config, hx_jwks *jwks, hx_slice bytes)
{
    hx_dry_run *r = new_dry_run(config, jwks);
    if (read_request(r, config, bytes)) {
        make_request(r);
        run_admit(r);
    }
    return r;
}

hx_dry_run *hx_dry_run_parsed(const hx_config *config, hx_jwks *jwks, const hx_request_head *head, hx_slice body)
{
    hx_dry_run *r = new_dry_run(config, jwks);
    r->stream.request = *head;
    r->body = body;
    if (body.len <= BODY_BYTES_MAX || refuse_bytes(r, 413, TOO_LARGE)) {
        make_request(r);
        run_admit(r);
    }
    return r;
}

hx_dry_run *hx_dry_run_malformed(const hx_config *config, hx_h1_fault fault)
{
    hx_dry_run *r = new_dry_run(config, NULL);
    r->fault = fault;
    return r;
}

size_t hx_dry_run_body_max(const hx_config *config)
{
    uint64_t longest = config->policies.defaults.body_bytes_max;
    for (size_t i = 0; i < config->policies.count; i++)
        if (config->policies.routes[i].body_bytes_max > longest) longest = config->policies.routes[i].body_bytes_max;
    return (longest < BODY_BYTES_MAX ? (size_t)longest : BODY_BYTES_MAX) + 1;
}

void hx_dry_run_free(hx_dry_run **owned)
{
    hx_dry_run *r = *owned;
    if (!r) return;
    if (r->request) {
        hx_body_free(&r->request->body);
        hx_worker_clear(&r->worker);
    }
    hx_limiter_free(&r->gateway.limiter);
    hx_store_close(&r->gateway.store);
    hx_loop_free(&r->loop);
    for (size_t i = 0; i < HX_JWT_SOURCES_MAX; i++) hx_jwt_keys_free(&r->keys[i]);
    hx_arena_free(&r->stream.arena);
    free(r);
    *owned = NULL;
}
