/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/steps/ask.h"

#include "base/text.h"
#include "core/json/json_fields.h"
#include "core/json/json_writer.h"
#include "core/time/units.h"
#include "gateway/parts/caller.h"

#define WAIT_MAX (30 * HX_SECOND)
#define BODY_BYTES_MAX 1024u

/* Reading the question */

static const char *read_parameter(hx_request *r, hx_slice part, hx_slice *method, hx_slice *path)
{
    hx_slice name, value;
    if (!hx_slice_next(&part, '=', &name) || !hx_text_percent_decode(part, false, r->arena, &value))
        return "The query must have the parameters method and path, percent-encoded.";
    if (hx_slice_eq(name, HX_LIT("method")))
        *method = value;
    else if (hx_slice_eq(name, HX_LIT("path")))
        *path = value;
    else if (!hx_slice_eq(name, HX_LIT("wait")))
        return "The query has a parameter other than method, path and wait.";
    else if (!hx_unit_read(value, &r->ask_wait) || r->ask_wait < 0 || r->ask_wait > WAIT_MAX)
        return "The parameter wait must be a time such as 10s, up to 30s.";
    return NULL;
}

const char *hx_question_read(hx_request *r)
{
    const hx_policy_set *policies = hx_request_rules(r)->policies;
    hx_slice rest = r->stream->request.query, part, method = HX_EMPTY, path = HX_EMPTY, normal;
    while (rest.len > 0 && hx_slice_next(&rest, '&', &part)) {
        const char *wrong = read_parameter(r, part, &method, &path);
        if (wrong) return wrong;
    }
    if (method.len == 0 || path.len == 0) return "The query must have the parameters method and path.";
    if (!hx_slice_is_token(method)) return "The parameter method is no method.";
    if (path.ptr[0] != '/' || hx_slice_find(path, '?') != SIZE_MAX)
        return "The parameter path must begin with a slash, and have no query.";
    if (hx_path_normalize(path, r->arena, &normal) != HX_PATH_OK) return "The parameter path is no path.";
    const hx_policy *route = hx_policy_find(policies, method, normal);
    r->policy = route ? route : &policies->defaults;
    if (r->policy->mode != HX_MODE_PROTECT || (!route && hx_method_is_safe(method)))
        return "That request is not protected, so nothing is known of it.";
    if (r->policy->key.from && !r->policy->key.prefer_header)
        return "The key of that request is made from its parts: repeat the request itself.";
    r->route = route ? route->name : hx_arena_printf(r->arena, "%.*s %.*s", HX_FMT(method), HX_FMT(normal));
    r->identity = route ? hx_policy_identity(route) : r->route;
    return NULL;
}

/* Answering it */

static void put_outcome(hx_buf *out, const hx_record *found)
{
    hx_json_put_time(out, "original_time", found->created_at);
    if (found->state != HX_COMPLETED && found->state != HX_FAILED) return;
    hx_json_put_number(out, "status", found->answer.status);
    hx_json_put_bool(out, "retained", found->answer.retained);
    hx_json_put_time(out, "expires_at", found->expires_at);
}

/* Whether the operation is there, and was claimed with another proof than the caller's. */
static bool is_hidden(const hx_request *r, const hx_record *found)
{
    return found->state != HX_ABSENT && found->state != HX_EXPIRED && !found->unreadable &&
           !hx_lifecycle_is_proven(found, &r->claimant);
}

static hx_step_result answer(hx_request *r, const hx_record *found)
{
    if (is_hidden(r, found)) return hx_request_refuse(r, HX_ERROR_REPLAY_NOT_AUTHORIZED, HX_EMPTY);
    hx_state state = found->unreadable ? HX_UNKNOWN : found->state;
    hx_buf out;
    hx_buf_init(&out, r->arena, BODY_BYTES_MAX);
    hx_json_open(&out, NULL, '{');
    hx_json_put_text(&out, "state", hx_slice_of(hx_state_name(state)));
    if (state != HX_ABSENT && state != HX_EXPIRED && !found->unreadable) put_outcome(&out, found);
    hx_json_close(&out, '}');
    hx_buf_puts(&out, "\n");
    r->reply_kind = HX_REPLY_ANSWER;
    r->reply_answer = (hx_answer){.status = 200,
                                  .headers = HX_LIT("Content-Type: application/json\r\nCache-Control: no-store\r\n"),
                                  .body = hx_buf_slice(&out)};
    return hx_request_go(r, HX_STEP_reply);
}

static hx_step_result refuse_for_now(hx_request *r, hx_error error)
{
    r->retry_after = HX_SECOND;
    return hx_request_refuse(r, error, HX_EMPTY);
}

/* Under the route's names, the oldest first. */
static void read_next(hx_request *r)
{
    size_t number = r->alias.name++;
    bool is_former = number < r->policy->formerly_count;
    const hx_operation_name name = {.route = is_former ? r->policy->formerly[number] : r->route,
                                    .principal = r->principal,
                                    .key = r->header_key,
                                    .host = r->host};
    r->op = hx_operation_of(r->policy, &name, r->worker->mac);
    hx_store_read(r->worker->gateway->store, hx_request_prepare_call(r), &r->op);
}

static hx_step_result was_read(hx_request *r)
{
    if (r->call->result != HX_STORE_OK) return refuse_for_now(r, HX_ERROR_STORE_UNAVAILABLE);
    r->found = r->call->found;
    if (r->found.state == HX_ABSENT && r->alias.name <= r->policy->formerly_count) {
        read_next(r);
        return HX_PARKED;
    }
    if (r->found.state != HX_PROCESSING || r->ask_wait == 0 || is_hidden(r, &r->found)) return answer(r, &r->found);
    hx_store_watch(r->worker->gateway->store, hx_request_prepare_call(r), &r->op, r->found.epoch);
    hx_request_start_timer(r, r->ask_wait);
    return HX_PARKED;
}

static hx_step_result was_watched(hx_request *r)
{
    hx_request_stop_timer(r);
    switch (r->call->result) {
    case HX_STORE_OK: return answer(r, &r->call->found);
    case HX_STORE_FULL: return refuse_for_now(r, HX_ERROR_WAITERS_FULL);
    case HX_STORE_UNAVAILABLE: return refuse_for_now(r, HX_ERROR_STORE_UNAVAILABLE);
    default: return answer(r, &r->found);
    }
}

hx_step_result hx_step_ask(hx_request *r)
{
    if (hx_request_take_result(r)) return r->call->verb == HX_STORE_WATCH ? was_watched(r) : was_read(r);
    bool is_over = r->timer_rang || hx_request_client_is_gone(r);
    if (r->call_state == HX_CALL_IDLE) {
        read_next(r);
    } else if (is_over && r->call_state == HX_CALL_PENDING && r->call->verb == HX_STORE_WATCH) {
        r->call_state = HX_CALL_CANCELLED;
        hx_store_cancel(r->worker->gateway->store, r->call);
    }
    return HX_PARKED;
}
