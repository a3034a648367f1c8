/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/prove/prover.h"

#include "base/check.h"
#include "base/rand.h"
#include "base/text.h"
#include "core/json/json.h"
#include "core/json/json_walk.h"
#include "core/retry/careful.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BODY_KEPT_MAX (1u << 20)
#define RETRIES 4u
#define RETRY_TOTAL_MIN (3 * HX_SECOND)
#define SETTLE_MIN 500 /* how long a late effect is waited for, at least */
#define SETTLE_MAX (10 * HX_SECOND)

typedef struct {
    hx_prover *prover;
    hx_client_request request;
    hx_prove_response *response;
    hx_careful_result result;
    bool is_over;
} call;

typedef struct {
    hx_prover *prover;
    hx_prove_way way;
    hx_prove_seen *seen;
    hx_slice keys[2];
} run;

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

/* One request */

static hx_slice field(hx_slice head, const char *name, hx_arena *arena)
{
    hx_text_header header;
    while (hx_text_next_header(&head, &header))
        if (hx_slice_eq_nocase(header.name, hx_slice_of(name))) return hx_arena_copy(arena, header.value);
    return HX_EMPTY;
}

static void call_done(hx_client_request *request, const hx_client_result *got)
{
    call *c = request->user;
    hx_arena *arena = c->prover->arena;
    hx_prove_response *response = c->response;
    hx_slice id;
    c->is_over = true;
    hx_loop_stop(c->prover->loop); /* no turn sleeps now */
    response->duration = got->duration;
    c->result = (hx_careful_result){.nothing_sent = got->bytes_sent == 0, .retry_after = HX_RETRY_AFTER_NONE};
    if (got->error != HX_CLIENT_NONE || got->status == 0) {
        const char *reason = got->reason && got->reason[0] ? got->reason : hx_client_error_text(got->error);
        response->failure = hx_arena_copy(arena, hx_slice_of(reason));
        return;
    }
    response->status = c->result.status = got->status;
    response->body = hx_arena_copy(arena, got->body);
    response->code = c->result.error_code = field(got->head, "error-code", arena);
    response->idempotency_status = c->result.idempotency_status = field(got->head, "idempotency-status", arena);
    if (got->retry_after.len > 0)
        c->result.retry_after = hx_retry_after(got->retry_after, hx_clock_wall(), HX_RETRY_AFTER_MAX);
    if (c->prover->plan->id && hx_json_pointer(response->body, hx_slice_of(c->prover->plan->id), &id))
        response->id = id;
    if (got->duration > c->prover->longest) c->prover->longest = got->duration;
}

static void start(run *r, call *c, hx_slice key, hx_slice body)
{
    hx_prover *p = r->prover;
    const hx_prove_plan *plan = p->plan;
    HX_CHECK(r->seen->count < HX_PROVE_RESPONSES_MAX);
    hx_slice url = r->way == HX_PROVE_BARE
                       ? plan->url
                       : hx_arena_printf(p->arena, "%.*s%.*s", HX_FMT(p->gateway.url), HX_FMT(plan->target));
    *c = (call){.prover = p, .response = &r->seen->responses[r->seen->count++]};
    *c->response = (hx_prove_response){
        .failure = HX_EMPTY, .body = HX_EMPTY, .code = HX_EMPTY, .idempotency_status = HX_EMPTY, .id = HX_EMPTY};
    c->request = (hx_client_request){.method = plan->method,
                                     .url = url,
                                     .header_lines = hx_arena_printf(p->arena, "%.*sIdempotency-Key: %.*s\r\n",
                                                                     HX_FMT(plan->header_lines), HX_FMT(key)),
                                     .body = body,
                                     .timeout = plan->timeout,
                                     .connect_timeout = plan->timeout,
                                     .body_kept_max = BODY_KEPT_MAX,
                                     .keeps_head = true,
                                     .user = c,
                                     .done = call_done};
    hx_client_start(p->client, &c->request);
}

/* Goes on with a request; after a signal, only to its end. */
static void turn(call *c)
{
    if (is_interrupted) hx_client_cancel(&c->request);
    hx_loop_turn(c->prover->loop, HX_SECOND);
}

static void finish(call *c)
{
    while (!c->is_over) turn(c);
}

static void send_one(run *r, hx_slice key, hx_slice body)
{
    call c;
    start(r, &c, key, body);
    finish(&c);
}

static void wait_ms(hx_loop *loop, hx_ms span)
{
    hx_ms began = hx_loop_now(loop), left;
    while (!is_interrupted && (left = span - (hx_loop_now(loop) - began)) > 0) hx_loop_turn(loop, left);
}

/* Sends the request again, as a careful client would, after an attempt without a response. */
static void retry(run *r, hx_slice key)
{
    hx_retry_policy policy = hx_retry_policy_of_class(HX_CLASS_USER);
    hx_careful_state state = {.method = r->prover->plan->method,
                              .has_key = true,
                              .in_doubt = true,
                              .attempts = 1,
                              .first_at = hx_clock_now(),
                              .key_ends_at = hx_clock_now() + HX_DAY,
                              .client_left = HX_TIMEOUT_NONE};
    hx_careful_result nothing = {.retry_after = HX_RETRY_AFTER_NONE};
    hx_careful_answer next = hx_careful_next(&policy, &state, &nothing, hx_clock_now(), hx_rand_u64());
    policy.attempts = RETRIES + 1;
    policy.total = 4 * r->prover->longest > RETRY_TOTAL_MIN ? 4 * r->prover->longest : RETRY_TOTAL_MIN;
    while (next.verdict == HX_CAREFUL_AGAIN && !is_interrupted) {
        call c;
        wait_ms(r->prover->loop, next.delay);
        start(r, &c, key, r->prover->plan->body);
        finish(&c);
        state.attempts++;
        next = hx_careful_next(&policy, &state, &c.result, hx_clock_now(), hx_rand_u64());
    }
}

/* Counting */

static bool count_one(hx_prover *p, hx_slice url, int64_t *total, hx_error_text error)
{
    hx_prove_response response = {0};
    call c = {.prover = p, .response = &response};
    uint64_t number = 0;
    hx_slice value, name, element;
    c.request = (hx_client_request){.method = HX_LIT("GET"),
                                    .url = url,
                                    .header_lines = p->plan->header_lines,
                                    .timeout = p->plan->timeout,
                                    .connect_timeout = p->plan->timeout,
                                    .body_kept_max = BODY_KEPT_MAX,
                                    .user = &c,
                                    .done = call_done};
    hx_client_start(p->client, &c.request);
    finish(&c);
    if (response.status != 200)
        return hx_fail(error, "can't count: %.*s answers %u %.*s", HX_FMT(url), response.status,
                       HX_FMT(response.failure));
    if (!hx_json_pointer(response.body, hx_slice_of(p->plan->count_at), &value))
        return hx_fail(error, "can't count: nothing is at \"%s\" in the response of %.*s", p->plan->count_at,
                       HX_FMT(url));
    if (value.ptr[0] == '[')
        for (hx_json_walk walk = hx_json_walk_over(value); hx_json_walk_next(&walk, &name, &element);) number++;
    else if (!hx_slice_to_u64(value, &number))
        return hx_fail(error, "can't count: what is at \"%s\" in the response of %.*s is neither a number nor an array",
                       p->plan->count_at, HX_FMT(url));
    *total += (int64_t)number;
    return true;
}

static bool count_effects(const run *r, int64_t *total, hx_error_text error)
{
    const char *url = r->prover->plan->count_url, *mark = url ? strstr(url, "{key}") : NULL;
    *total = 0;
    if (!url) return true;
    if (!mark) return count_one(r->prover, hx_slice_of(url), total, error);
    for (size_t i = 0; i < 2; i++) {
        hx_slice of_key = hx_arena_printf(r->prover->arena, "%.*s%.*s%s", (int)(mark - url), url, HX_FMT(r->keys[i]),
                                          mark + strlen("{key}"));
        if (!count_one(r->prover, of_key, total, error)) return false;
    }
    return true;
}

/* The cases */

/* Ends a turn before it sleeps when the request that is waited for was sent: or the response would come first. */
static void look_whether_sent(void *context)
{
    const hx_prover *p = context;
    if (p->awaited && hx_client_is_sent(p->awaited)) hx_loop_stop(p->loop);
}

/* Waits until the request is on its way to the API: sent, or received by the tap. */
static void wait_sent(const run *r, call *c)
{
    hx_prover *p = r->prover;
    unsigned before = p->tap.received;
    p->awaited = r->way == HX_PROVE_BARE ? &c->request : NULL;
    while (!c->is_over && (p->awaited ? !hx_client_is_sent(p->awaited) : p->tap.received == before)) turn(c);
    p->awaited = NULL;
}

static void run_timeout(run *r)
{
    call c;
    start(r, &c, r->keys[0], r->prover->plan->body);
    wait_sent(r, &c);
    if (!c.is_over) hx_client_cancel(&c.request);
    finish(&c);
    /* A response that came all the same is one that a client which had left would not have read. */
    c.response->status = 0;
    c.response->failure = HX_LIT("dropped");
    retry(r, r->keys[0]);
}

static bool crash_api(const hx_prover *p, hx_error_text error)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* standard output is for our result */
        (void)execl("/bin/sh", "sh", "-c", p->plan->crash, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        return hx_fail(error, "--crash: \"%s\" failed", p->plan->crash);
    return true;
}

static bool restart(run *r, hx_error_text error)
{
    if (r->way == HX_PROVE_BARE) return crash_api(r->prover, error);
    hx_prove_gateway_kill(&r->prover->gateway);
    return hx_prove_gateway_start(&r->prover->gateway, error);
}

static bool run_crash(run *r, hx_error_text error)
{
    hx_prover *p = r->prover;
    call c;
    p->tap.loses_next = r->way == HX_PROVE_HAPAX;
    start(r, &c, r->keys[0], p->plan->body);
    if (r->way == HX_PROVE_BARE) wait_sent(r, &c);
    while (r->way == HX_PROVE_HAPAX && !c.is_over && !p->tap.lost) turn(&c);
    p->tap.loses_next = false;
    bool good = restart(r, error);
    if (!c.is_over && good) hx_client_cancel(&c.request);
    finish(&c);
    c.response->status = 0;
    c.response->failure = HX_LIT("crashed");
    if (good) retry(r, r->keys[0]);
    return good;
}

static void run_at_once(run *r)
{
    call calls[HX_PROVE_TOGETHER];
    for (size_t i = 0; i < HX_PROVE_TOGETHER; i++) start(r, &calls[i], r->keys[0], r->prover->plan->body);
    for (size_t i = 0; i < HX_PROVE_TOGETHER; i++) finish(&calls[i]);
}

static bool run_requests(run *r, hx_prove_case which, hx_error_text error)
{
    hx_slice body = r->prover->plan->body;
    bool good = true;
    switch (which) {
    case HX_PROVE_AT_ONCE: run_at_once(r); return true;
    case HX_PROVE_TIMEOUT: run_timeout(r); return true;
    case HX_PROVE_CRASH: return run_crash(r, error);
    default: break;
    }
    send_one(r, r->keys[0], body);
    if (which == HX_PROVE_RESTART) good = restart(r, error);
    if (good)
        send_one(r, r->keys[which == HX_PROVE_NEW_KEY], which == HX_PROVE_MISMATCH ? r->prover->plan->changed : body);
    return good;
}

unsigned hx_prover_requests_max(hx_prove_case which)
{
    if (which == HX_PROVE_AT_ONCE) return HX_PROVE_TOGETHER;
    return which == HX_PROVE_TIMEOUT || which == HX_PROVE_CRASH ? 1 + RETRIES : 2;
}

/* A UUID of version 4, which every API that takes keys accepts. */
static hx_slice new_key(hx_arena *arena)
{
    uint64_t a = hx_rand_u64(), b = hx_rand_u64();
    return hx_arena_printf(arena, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32), (unsigned)(a >> 16) & 0xffff,
                           (unsigned)a & 0xfff, 0x8000 | ((unsigned)(b >> 48) & 0x3fff),
                           (unsigned long long)b & 0xffffffffffff);
}

bool hx_prover_run(hx_prover *p, hx_prove_way way, hx_prove_case which, hx_prove_seen *seen, hx_error_text error)
{
    run r = {.prover = p, .way = way, .seen = seen, .keys = {new_key(p->arena), new_key(p->arena)}};
    bool is_crash = which == HX_PROVE_CRASH || which == HX_PROVE_RESTART;
    int64_t before, after;
    unsigned received = p->tap.received;
    *seen = (hx_prove_seen){.effects = -1, .reached = -1};
    if (which == HX_PROVE_MISMATCH && p->plan->changed.len == 0) seen->not_run = "needs another body: --changed";
    if (is_crash && way == HX_PROVE_BARE && !p->plan->crash) seen->not_run = "needs --crash to kill the API itself";
    if (seen->not_run) return true;
    if (!count_effects(&r, &before, error) || !run_requests(&r, which, error)) return false;
    while (p->tap.in_flight > 0 && !is_interrupted) hx_loop_turn(p->loop, HX_SECOND);
    if (which == HX_PROVE_TIMEOUT ||
        which == HX_PROVE_CRASH) { /* the API may be at work on a request that nobody waits for */
        hx_ms settle = 2 * p->longest > SETTLE_MIN ? 2 * p->longest : SETTLE_MIN;
        wait_ms(p->loop, settle < SETTLE_MAX ? settle : SETTLE_MAX);
    }
    if (is_interrupted) return hx_fail(error, "interrupted");
    if (!count_effects(&r, &after, error)) return false;
    if (after < before) return hx_fail(error, "the count went down meanwhile: somebody else uses the API");
    if (p->plan->count_url) seen->effects = after - before;
    if (way == HX_PROVE_HAPAX) seen->reached = p->tap.received - received;
    return true;
}

/* Beginning and end */

bool hx_prover_open(hx_prover *p, bool with_gateway, hx_error_text error)
{
    hx_client_limits limits = {.connections_max = 64,
                               .requests_per_host_max = 16,
                               .waiting_max = 64,
                               .lookup_timeout = 5 * HX_SECOND,
                               .idle_timeout = HX_SECOND,
                               .ca_file = p->plan->ca_file};
    bool is_network = hx_network_parse(HX_LIT("0.0.0.0/0"), &p->everything[1], error);
    HX_CHECK(is_network);
    p->guard = (hx_guard){.allowed = p->everything, .allowed_count = 2}; /* the caller's own choice */
    const struct sigaction on_signal = {.sa_handler = interrupt};
    (void)sigaction(SIGINT, &on_signal, NULL);
    (void)sigaction(SIGTERM, &on_signal, NULL);
    (void)sigaction(SIGHUP, &on_signal, NULL);
    p->loop = hx_loop_new();
    hx_loop_each_turn(p->loop, look_whether_sent, p);
    p->client = hx_client_new(p->loop, &limits, &p->guard, error);
    if (!p->client) return false;
    if (!with_gateway) return true;
    const char *place = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    p->directory = mkdtemp(hx_arena_terminated(p->arena, hx_arena_printf(p->arena, "%s/hapax-prove-XXXXXX", place)));
    if (!p->directory) return hx_fail(error, "can't make a folder in %s: %s", place, strerror(errno));
    p->tap =
        (hx_prove_tap){.loop = p->loop, .client = p->client, .origin = p->plan->origin, .timeout = p->plan->timeout};
    p->gateway =
        (hx_prove_gateway){.loop = p->loop, .arena = p->arena, .directory = p->directory, .upstream = p->tap.url};
    return hx_prove_tap_open(&p->tap, error) &&
           hx_prove_gateway_configure(&p->gateway, p->plan->guarantee, p->plan->timeout, error) &&
           hx_prove_gateway_start(&p->gateway, error);
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

void hx_prover_close(hx_prover *p)
{
    hx_prove_gateway_kill(&p->gateway);
    if (p->client) hx_client_free(&p->client);
    hx_prove_tap_close(&p->tap);
    if (p->loop) hx_loop_free(&p->loop);
    if (p->directory) (void)nftw(p->directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
