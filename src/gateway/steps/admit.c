/* SPDX-License-Identifier: Apache-2.0 */
/* The first step: which rules apply, is there a key and is it valid, who is the caller, and, once the body is whole,
 * what exactly is asked. Nothing here has an effect; a malformed key never runs unprotected. */
#include "gateway/request.h"

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "gateway/messages/trace.h"
#include "gateway/messages/upstream_head.h"
#include "gateway/parts/aliases.h"
#include "gateway/parts/fingerprinting.h"
#include "gateway/messages/cors.h"
#include "gateway/parts/memory_budget.h"
#include "gateway/parts/natural_key.h"
#include "gateway/parts/caller.h"
#include "gateway/messages/problem.h"
#include "gateway/steps/ask.h"
#include "gateway/steps/publish.h"
#include "gateway/steps/shadow.h"

#include <stdatomic.h>
#include <string.h>

/* The only way out of this step with an error of ours. */
static hx_step_result refuse(hx_request *r, hx_error error, hx_slice detail)
{
    if (hx_shadow_takes(r, error)) return hx_shadow_refuse(r, error);
    return hx_request_refuse(r, error, detail);
}

/* The keys that verify tokens may have changed since they were read. */
static void want_keys(const hx_request *r)
{
    const hx_gateway *gateway = r->worker->gateway;
    if (gateway->want_keys) gateway->want_keys(gateway->keys_context, r->policy->jwt.source);
}

/* `*`, or a list that begins with an entity tag; anything else makes no request conditional. */
static bool is_condition(hx_slice if_match)
{
    return hx_slice_eq(if_match, HX_LIT("*")) || hx_slice_starts(if_match, HX_LIT("\"")) ||
           hx_slice_starts(if_match, HX_LIT("W/\""));
}

static bool key_is_required(const hx_request *r)
{
    hx_slice method = r->stream->request.method;
    bool is_update = hx_slice_eq(method, HX_LIT("PUT")) || hx_slice_eq(method, HX_LIT("PATCH"));
    bool is_conditional = is_update && is_condition(hx_fields_get(&r->stream->request.fields, HX_FIELD_IF_MATCH));
    if (r->policy->if_match_suffices && is_conditional) return false;
    return hx_policy_requires_key(r->policy, method);
}

static void note_credential(const hx_request *r)
{
    static atomic_bool warned;
    if (!hx_caller_has_credential(&r->stream->request.fields)) return;
    if (r->stream->request.fields.lines[HX_FIELD_COOKIE] > 0) hx_worker_count(r->worker, HX_COUNT_COOKIES_NOT_NAMED);
    if (atomic_exchange(&warned, true)) return;
    hx_log_begin(HX_EVENT_credential_not_named);
    hx_log_str("path", r->path);
    hx_log_end();
}

static bool asked_last(const hx_worker *worker, const hx_identity *who, hx_slice authorization)
{
    if (!worker->last.known) return false;
    const char *at = worker->last.bytes;
    hx_slice principal = {at, worker->last.principal_len};
    hx_slice proof = {at + principal.len, worker->last.proof_len};
    hx_slice credential = {at + principal.len + proof.len, worker->last.authorization_len};
    return hx_secret_eq(principal, who->principal) && hx_secret_eq(proof, who->proof) &&
           hx_secret_eq(credential, authorization);
}

static void remember(hx_worker *worker, const hx_identity *who, hx_slice authorization)
{
    worker->last.known = who->principal.len + who->proof.len + authorization.len <= sizeof worker->last.bytes;
    if (!worker->last.known) return;
    hx_buf bytes = {.data = worker->last.bytes, .cap = sizeof worker->last.bytes, .max = sizeof worker->last.bytes};
    hx_buf_put(&bytes, who->principal);
    hx_buf_put(&bytes, who->proof);
    hx_buf_put(&bytes, authorization);
    worker->last.principal_len = who->principal.len;
    worker->last.proof_len = who->proof.len;
    worker->last.authorization_len = authorization.len;
}

/* Computes the MACs of the principal and of the proof. */
static void digest_identity(hx_request *r, const hx_identity *who)
{
    hx_worker *worker = r->worker;
    hx_slice authorization = hx_fields_get(&r->stream->request.fields, HX_FIELD_AUTHORIZATION);
    if (!asked_last(worker, who, authorization)) {
        worker->last.principal = hx_request_mac(r, HX_TAG_PRINCIPAL, who->principal);
        hx_mac_begin(worker->mac, HX_TAG_PROOF);
        hx_mac_part(worker->mac, who->principal); /* the same bytes in another place of a request prove nothing */
        hx_mac_part(worker->mac, who->proof);
        hx_mac_part(worker->mac, authorization);
        worker->last.proof = hx_mac_end(worker->mac);
        remember(worker, who, authorization);
    }
    r->claimant.principal = worker->last.principal;
    r->claimant.proof = worker->last.proof;
}

static bool goes_by_headers(const hx_policy *policy)
{
    for (size_t i = 0; i < policy->principal_count; i++)
        if (policy->principals[i].kind == HX_PRINCIPAL_HEADER) return true;
    return policy->key.from || policy->fingerprint.header_count > 0;
}

/* Identifies the caller; refuses the request if that fails and the route requires it. */
static hx_step_result identify(hx_request *r)
{
    const hx_policy *policy = r->policy;
    hx_caller caller;
    if (goes_by_headers(policy)) hx_head_mark_withheld(r);
    switch (hx_caller_find(policy, hx_request_rules(r), &r->worker->tokens, &r->stream->request.fields, hx_clock_wall(),
                           r->arena, &caller)) {
    case HX_CALLER_FOUND: break;
    case HX_CALLER_NOBODY:
        if (policy->require_principal || (r->natural && !policy->key.shared))
            return refuse(r, HX_ERROR_PRINCIPAL_MISSING, HX_EMPTY);
        note_credential(r);
        if (r->natural) caller.who.proof = HX_EMPTY; /* `shared`: of all who send the same parts */
        break;
    case HX_CALLER_AMBIGUOUS: return refuse(r, HX_ERROR_MALFORMED, caller.why);
    case HX_CALLER_REFUSED:
        if (caller.token_error == HX_JWT_NO_KEY) want_keys(r);
        return refuse(r, caller.token_error != HX_JWT_OK ? HX_ERROR_TOKEN_INVALID : HX_ERROR_PRINCIPAL_MISSING,
                      caller.why);
    case HX_CALLER_NO_KEYS:
        want_keys(r);
        r->retry_after = HX_SECOND;
        return refuse(r, HX_ERROR_KEYS_UNAVAILABLE, caller.why);
    }
    digest_identity(r, &caller.who);
    r->principal = caller.who.principal;
    r->source = caller.source;
    r->claimant.verified = caller.verified;
    return HX_MORE;
}

/* How much this caller may still ask, before its body is read. */
static hx_step_result check_rate(hx_request *r)
{
    const hx_policy *policy = r->policy;
    if (policy->rate.count == 0) return HX_MORE;
    hx_party party = hx_limiter_party(hx_policy_identity(policy), &r->claimant.principal);
    if (hx_limiter_take(r->worker->gateway->limiter, party, policy->rate, hx_loop_now(r->worker->loop),
                        &r->retry_after))
        return HX_MORE;
    return refuse(r, HX_ERROR_RATE_LIMITED, HX_EMPTY);
}

/* Before anything is read or claimed; afterwards nothing is refused for lack of it. */
static hx_step_result reserve_memory(hx_request *r)
{
    if (hx_memory_admit(r)) return HX_MORE;
    hx_memory_complain(r);
    r->retry_after = HX_SECOND;
    return refuse(r, HX_ERROR_OVERLOADED, HX_LIT("No memory is left for further requests."));
}

static hx_step_result check_key(hx_request *r)
{
    const hx_fields *fields = &r->stream->request.fields;
    if (fields->lines[HX_FIELD_IDEMPOTENCY_KEY] > 1)
        return refuse(r, HX_ERROR_KEY_INVALID, HX_LIT("The request has more than one Idempotency-Key header."));
    hx_slice field = hx_fields_get(fields, HX_FIELD_IDEMPOTENCY_KEY);
    hx_key_error error = hx_key_parse(field, &r->policy->key, r->arena, &r->header_key);
    if (error != HX_KEY_OK) {
        hx_slice detail = hx_slice_of(hx_key_error_text(error));
        if (error == HX_KEY_TOO_SHORT || error == HX_KEY_TOO_LONG)
            detail = hx_arena_printf(r->arena, "The key must be %u to %u characters long.",
                                     (unsigned)r->policy->key.len_min, (unsigned)r->policy->key.len_max);
        return refuse(r, HX_ERROR_KEY_INVALID, detail);
    }
    return HX_MORE;
}

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    hx_request *r = stream->user;
    if (r->body_state != HX_BODY_READING) return; /* refused already */
    hx_body_result result = piece.len > 0 ? hx_body_append(&r->body, piece) : HX_BODY_OK;
    if (result != HX_BODY_OK) {
        if (r->policy->mode == HX_MODE_SHADOW) hx_shadow_overflow(r, piece, last);
        r->body_state = HX_BODY_BROKEN;
        r->body_error_status = result == HX_BODY_TOO_LARGE ? 413 : 503;
        hx_request_run(r);
    } else if (last) {
        r->body_state = HX_BODY_WHOLE;
        hx_request_run(r);
    }
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    hx_request *r = stream->user;
    if (r->body_state != HX_BODY_READING) return;
    r->body_state = HX_BODY_BROKEN;
    r->body_error_status = status;
    r->body_error_detail = detail;
    hx_request_run(r);
}

static hx_step_result refuse_for_room(hx_request *r)
{
    r->retry_after = 5 * HX_SECOND;
    return refuse(r, HX_ERROR_OVERLOADED, HX_LIT("The body can't be stored until it is complete."));
}

static hx_step_result refuse_body(hx_request *r)
{
    switch (r->body_error_status) {
    case 0: return hx_request_go(r, HX_STEP_finish); /* the client left in mid-body: nothing was sent on */
    case 413:
        return refuse(r, HX_ERROR_BODY_TOO_LARGE,
                      hx_arena_printf(r->arena, "The body is longer than %llu bytes.",
                                      (unsigned long long)r->policy->body_bytes_max));
    case 503: return refuse_for_room(r);
    default: {
        unsigned status = r->body_error_status;
        hx_step_result progress = refuse(r, hx_problem_malformed(status), hx_slice_of(r->body_error_detail));
        r->reply_status = status;
        return progress;
    }
    }
}

static hx_step_result read_body(hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    if (!head->has_body) {
        r->body_state = HX_BODY_WHOLE;
        return HX_MORE;
    }
    if (head->content_length > 0 && (uint64_t)head->content_length > r->policy->body_bytes_max) {
        r->body_error_status = 413;
        return refuse_body(r);
    }
    hx_memory_begin_body(r, head->content_length);
    r->body_state = HX_BODY_READING;
    r->stream->events.body = take_body;
    r->stream->events.broken = body_broken;
    hx_stream_read(r->stream);
    return HX_PARKED;
}

/* The body is whole: what exactly is asked, and under which key. */
static hx_step_result conclude(hx_request *r)
{
    hx_slice body = HX_EMPTY, key = r->header_key;
    if (r->body.len > 0 && !hx_body_whole(&r->body, &body)) return refuse_for_room(r);
    hx_memory_end(r, &r->body);
    if (r->pass_kind == HX_PASS_KEPT) {
        r->fingerprint_input.body = body;
        return hx_request_go(r, HX_STEP_pass);
    }
    hx_fingerprinting_describe(r, body);
    if (r->natural) {
        hx_template_result result;
        hx_natural_request request = hx_natural_of(r);
        r->key_at = hx_loop_now(r->worker->loop);
        if (!hx_natural_key(&request, r->key_at, &result, &key))
            return refuse(r, HX_ERROR_KEY_PART_MISSING,
                          hx_arena_printf(r->arena, "%.*s: %s", HX_FMT(result.wrong), result.why));
        r->key_fixed = result.fixed;
    }
    r->alias.own_key = key;
    hx_fingerprinting_take_key(r, key);
    if (r->policy->mode == HX_MODE_SHADOW) return hx_request_go(r, HX_STEP_shadow);
    return hx_request_go(r, hx_aliases_exist(r) ? HX_STEP_locate : HX_STEP_claim);
}

/* The route name of a request that matches none: method and path. */
static hx_slice route_of(hx_request *r)
{
    hx_slice method = r->stream->request.method;
    hx_buf text;
    hx_buf_init(&text, r->arena, method.len + 1 + r->path.len);
    hx_buf_put(&text, method);
    hx_buf_puts(&text, " ");
    hx_buf_put(&text, r->path);
    return hx_buf_slice(&text);
}

static void read_timeout(hx_request *r)
{
    const hx_fields *fields = &r->stream->request.fields;
    r->request_timeout.span = HX_TIMEOUT_NONE;
    if (fields->lines[HX_FIELD_X_REQUEST_TIMEOUT] == 0 || r->policy->mode != HX_MODE_PROTECT) return;
    bool is_one = fields->lines[HX_FIELD_X_REQUEST_TIMEOUT] == 1;
    if (is_one && hx_timeout_parse(hx_fields_get(fields, HX_FIELD_X_REQUEST_TIMEOUT), &r->request_timeout)) return;
    hx_worker_count(r->worker, HX_COUNT_BAD_REQUEST_TIMEOUT);
    hx_log_begin(HX_EVENT_request_timeout_invalid);
    hx_log_str("value", hx_fields_get(fields, HX_FIELD_X_REQUEST_TIMEOUT));
    hx_log_end();
}

/* Whether the body is read whole before it passes, because the route repeats PUT and DELETE (`retry_safe`) and it is
 * known to fit. */
static bool is_body_kept(const hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    bool is_method = hx_slice_eq(head->method, HX_LIT("PUT")) || hx_slice_eq(head->method, HX_LIT("DELETE"));
    bool fits = head->content_length > 0 && (uint64_t)head->content_length <= r->policy->body_bytes_max;
    return r->policy->retry_safe && r->policy->mode != HX_MODE_SHADOW && is_method && fits && !head->upgrade;
}

static hx_step_result pass_unprotected(hx_request *r, const hx_policy *route)
{
    if (!route) hx_worker_count(r->worker, HX_COUNT_PASSED_WITHOUT_ROUTE);
    if (!is_body_kept(r) || !hx_memory_admit(r)) return hx_request_go(r, HX_STEP_pass);
    r->pass_kind = HX_PASS_KEPT;
    return HX_MORE;
}

/* A request without a key, on a route that makes none: refused or unprotected, as the route says. */
static hx_step_result admit_keyless(hx_request *r, const hx_policy *route)
{
    if (key_is_required(r)) return refuse(r, HX_ERROR_KEY_MISSING, HX_EMPTY);
    return pass_unprotected(r, route);
}

/* The protected route that this request would reach unprotected at an application which reads paths less strictly. A
 * path that matches another route as it is written is meant for that one, unless an escape makes it two things at once.
 * */
static const hx_policy *missed_route(const hx_request *r, const hx_policy *route, hx_path_error path_error)
{
    const hx_request_head *head = &r->stream->request;
    if (route && path_error == HX_PATH_OK && hx_slice_find(r->path, '%') == SIZE_MAX) return NULL;
    const hx_policy *near = hx_policy_find_near(hx_request_rules(r)->policies, head->method, head->path, route,
                                                r->arena);
    /* Empty segments were left out to find the route, so that it was not what the client wrote. */
    bool is_missed = route && path_error == HX_PATH_EMPTY_SEGMENT && hx_policy_is_guarded(route);
    return near || !is_missed ? near : route;
}

/* Whatever the defaults say of unwritten paths: the route that was meant is protected. */
static hx_step_result refuse_near_miss(hx_request *r, const hx_policy *missed)
{
    return hx_request_refuse(r, HX_ERROR_MALFORMED,
                             hx_arena_printf(r->arena,
                                             "The path is another spelling of route \"%.*s\", which is protected: "
                                             "write it as \"%.*s\".",
                                             HX_FMT(missed->name), HX_FMT(missed->path)));
}

/* A question about an operation: whose it is goes by the rules of the request that it names. */
static hx_step_result admit_question(hx_request *r)
{
    const hx_fields *fields = &r->stream->request.fields;
    const char *wrong = hx_question_read(r);
    if (wrong) return hx_request_refuse(r, HX_ERROR_MALFORMED, hx_slice_of(wrong));
    if (fields->lines[HX_FIELD_IDEMPOTENCY_KEY] == 0) return hx_request_refuse(r, HX_ERROR_KEY_MISSING, HX_EMPTY);
    r->host = hx_text_host(hx_fields_get(fields, HX_FIELD_HOST), HX_LIT("80"), r->arena);
    (void)check_key(r);
    if (r->step == HX_STEP_admit) (void)identify(r);
    if (r->step == HX_STEP_admit) (void)check_rate(r);
    return r->step == HX_STEP_admit ? hx_request_go(r, HX_STEP_ask) : HX_MORE;
}

/* Which rules, which key, who. Still in this step afterwards: go on with the body. */
static hx_step_result admit_head(hx_request *r)
{
    const hx_request_head *head = &r->stream->request;
    const hx_policy_set *policies = hx_request_rules(r)->policies;
    hx_path_error path_error = hx_path_normalize(head->path, r->arena, &r->path);
    const hx_policy *route = hx_policy_find(policies, head->method, r->path);
    bool keyed = head->fields.lines[HX_FIELD_IDEMPOTENCY_KEY] > 0;
    r->policy = route ? route : &policies->defaults;
    r->natural = r->policy->key.from && !(keyed && r->policy->key.prefer_header);
    keyed = keyed || r->natural;
    hx_trace_choose(r);
    read_timeout(r);
    if (hx_publish_is_asked(hx_request_rules(r)->config, head->method, r->path))
        return hx_request_go(r, HX_STEP_publish);
    if (hx_question_is_asked(head->method, r->path)) {
        r->natural = false;
        return admit_question(r);
    }
    bool is_safe = hx_method_is_safe(head->method);
    const hx_policy *missed = is_safe && !keyed ? NULL : missed_route(r, route, path_error);
    if (missed) return refuse_near_miss(r, missed);
    hx_buf lines;
    if (is_safe && hx_cors_preflight(hx_request_rules(r)->config, policies, head, r->path, r->arena, &lines)) {
        r->reply_kind = HX_REPLY_ANSWER;
        r->reply_answer = (hx_answer){.status = 204, .headers = hx_buf_slice(&lines), .body = HX_EMPTY};
        return hx_request_go(r, HX_STEP_reply);
    }
    if (is_safe) return hx_request_go(r, HX_STEP_pass);
    /* A path that can't be normalised may not be the one that passes. */
    if (r->policy->mode == HX_MODE_PASS && !(keyed && path_error != HX_PATH_OK)) return pass_unprotected(r, route);
    if (!keyed) return admit_keyless(r, route);
    r->route = route ? route->name : route_of(r);
    r->identity = route ? hx_policy_identity(route) : r->route;
    r->host = hx_text_host(hx_fields_get(&head->fields, HX_FIELD_HOST), HX_LIT("80"), r->arena);
    if (!r->natural) (void)check_key(r);
    if (r->step == HX_STEP_admit && path_error != HX_PATH_OK)
        return refuse(r, HX_ERROR_MALFORMED, hx_slice_of(hx_path_error_text(path_error)));
    if (r->step == HX_STEP_admit) (void)identify(r);
    if (r->step == HX_STEP_admit) (void)check_rate(r);
    if (r->step == HX_STEP_admit) (void)reserve_memory(r);
    return HX_MORE;
}

hx_step_result hx_step_admit(hx_request *r)
{
    if (r->body_state == HX_BODY_UNREAD) {
        hx_step_result progress = admit_head(r);
        if (r->step != HX_STEP_admit) return progress;
        progress = read_body(r);
        if (progress == HX_PARKED || r->step != HX_STEP_admit) return progress;
    }
    switch (r->body_state) {
    case HX_BODY_READING:
        /* A client that is gone sends no more; nothing was sent on. */
        return hx_request_client_is_gone(r) ? hx_request_go(r, HX_STEP_finish) : HX_PARKED;
    case HX_BODY_BROKEN: return refuse_body(r);
    default: return conclude(r);
    }
}
