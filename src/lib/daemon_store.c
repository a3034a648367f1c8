/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon as a store, by its operations API (docs/guide/operations.md). Every call may be repeated when its response
 * is lost: a claim carries a claimant that is drawn before its first attempt, and an outcome that is told twice is the
 * same. So each is tried again on a new connection, a few times, before it is said to be unavailable. */
#include "base/rand.h"
#include "core/json/json.h"
#include "core/json/json_fields.h"
#include "core/json/json_writer.h"
#include "lib/http.h"
#include "lib/stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRIES 3u
#define WAIT_MAX (25 * HX_SECOND) /* in one request; the daemon allows 30 s */
#define TIMEOUT_DEFAULT (30 * HX_SECOND)
#define MEMBERS_BYTES 8192u

typedef struct {
    char *url, *token, *tenant;
    hx_lib_http_address address;
} daemon_store;

/* What the API answers. */
typedef struct {
    hx_slice id, state, result, error, cancel_reason, error_code, detail, operation;
    uint64_t epoch, attempt;
    hx_ms original_time, expires_at, lease_until;
    bool is_retry, cancel_requested;
} reply;

#define FIELD(member, kind) HX_JSON_FIELD(reply, member, kind, HX_JSON_SHOWN)
static const hx_json_field fields[] = {
    FIELD(id, TEXT),          FIELD(state, TEXT),         FIELD(result, RAW),
    FIELD(error, RAW),        FIELD(cancel_reason, TEXT), FIELD(error_code, TEXT),
    FIELD(detail, TEXT),      FIELD(operation, RAW),      FIELD(epoch, NUMBER),
    FIELD(attempt, NUMBER),   FIELD(original_time, TIME), FIELD(expires_at, TIME),
    FIELD(lease_until, TIME), FIELD(is_retry, BOOL),      FIELD(cancel_requested, BOOL)};
static const hx_json_shape shape = HX_JSON_SHAPE(fields);

/* Of the operation in a problem, as operators see it: without its result. */
#define VIEWED(name, member, kind)                                                                                     \
    {                                                                                                                  \
        name, HX_JSON_##kind, offsetof(reply, member), HX_JSON_SHOWN                                                   \
    }
static const hx_json_field viewed_fields[] = {VIEWED("id", id, TEXT),
                                              VIEWED("epoch", epoch, NUMBER),
                                              VIEWED("state", state, TEXT),
                                              VIEWED("attempt", attempt, NUMBER),
                                              VIEWED("created_at", original_time, TIME),
                                              VIEWED("expires_at", expires_at, TIME),
                                              VIEWED("lease_until", lease_until, TIME),
                                              VIEWED("reason", cancel_reason, TEXT)};
static const hx_json_shape viewed = HX_JSON_SHAPE(viewed_fields);

static const struct {
    const char *code;
    int result;
} problems[] = {{"CONFLICT.idempotency.payload_mismatch", HAPAX_MISMATCH},
                {"CONFLICT.idempotency.in_flight", HAPAX_IN_FLIGHT},
                {"CONFLICT.idempotency.outcome_unknown", HAPAX_UNKNOWN},
                {"CONFLICT.idempotency.expired", HAPAX_EXPIRED},
                {"CONFLICT.operation.fenced", HAPAX_FENCED},
                {"CONFLICT.operation.deadline", HAPAX_FENCED},
                {"OPERATION.not_found", HAPAX_ABSENT},
                {"OPERATION.unreadable", HAPAX_DAMAGED},
                {"STORE.keeps_no_items", HAPAX_UNSUPPORTED},
                {"TRANSIENT.overloaded", HAPAX_FULL}};

static int code_of(const reply *r, unsigned status)
{
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++)
        if (hx_slice_eq(r->error_code, hx_slice_of(problems[i].code))) return problems[i].result;
    if (status == 401 || status == 403) return HAPAX_DENIED;
    return status >= 500 ? HAPAX_UNAVAILABLE : HAPAX_INVALID;
}

/* Sends the members of a request and reads the response. HAPAX_OK: status 2xx. */
static int ask(const daemon_store *s, const char *target, hx_buf *members, hx_ms wait, reply *out, char *error)
{
    hx_arena *arena = &hx_guest_call()->arena;
    hx_lib_http_address address = s->address;
    hx_lib_http_response response;
    bool is_answered = false;
    address.timeout += wait;
    if (s->tenant) hx_json_put_text(members, "tenant", hx_slice_of(s->tenant));
    hx_json_close(members, '}');
    hx_slice head = s->token ? hx_arena_printf(arena, "Authorization: Bearer %s\r\n", s->token) : HX_EMPTY;
    for (unsigned i = 0; i < TRIES && !is_answered; i++)
        is_answered = hx_lib_http_post(&address, hx_slice_of(target), head, hx_buf_slice(members), arena, &response,
                                       error);
    if (!is_answered) return HAPAX_UNAVAILABLE;
    *out = (reply){.id = HX_EMPTY};
    hx_error_text unread;
    if (!hx_json_read(&shape, HX_JSON_SHOWN, response.body, arena, out, unread))
        return hx_guest_fail(HAPAX_UNAVAILABLE, "what answers at %s is no daemon: %s", s->url, unread);
    if (response.status / 100 == 2) return HAPAX_OK;
    (void)hx_fail(error, "%.*s", HX_FMT(out->detail.len > 0 ? out->detail : out->error_code));
    return code_of(out, response.status);
}

static int state_of(hx_slice name)
{
    for (int i = HAPAX_STATE_ABSENT; i <= HAPAX_STATE_EXPIRED; i++)
        if (hx_slice_eq(name, hx_slice_of(hx_state_name((hx_state)i)))) return i;
    return HAPAX_STATE_ABSENT; /* "released" */
}

/* Fills in the record, and returns `code`. */
static int tell(int code, const reply *r, hapax_record *record)
{
    bool is_completed = hx_slice_eq(r->state, HX_LIT("completed")), is_failed = hx_slice_eq(r->state, HX_LIT("failed"));
    record->state = state_of(r->state);
    if (code == HAPAX_UNKNOWN) record->state = HAPAX_STATE_UNKNOWN;
    if (code == HAPAX_IN_FLIGHT) record->state = HAPAX_STATE_PROCESSING;
    record->is_retry = r->is_retry;
    record->failed_before = r->is_retry && is_failed;
    record->cancel_requested = r->cancel_requested;
    record->attempt = (unsigned)r->attempt;
    record->original_time = r->original_time;
    record->expires_at = r->expires_at;
    record->lease_until = r->lease_until;
    record->epoch = r->epoch;
    record->status = is_completed ? 200 : is_failed ? 500 : 0;
    if (r->id.len == sizeof record->id - 1) memcpy(record->id, r->id.ptr, r->id.len);
    hx_slice body = is_completed ? r->result : is_failed ? r->error : HX_EMPTY;
    if (hx_slice_eq(body, HX_LIT("null"))) body = HX_EMPTY;
    bool is_told = hx_struct_put_texts(record, body, body.len > 0 ? HX_LIT("application/json") : HX_EMPTY,
                                       r->cancel_reason);
    return is_told ? code : HAPAX_NO_MEMORY;
}

static void put_span(hx_buf *out, const char *name, hx_ms span)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%lldms", (long long)span);
    if (span > 0) hx_json_put_text(out, name, hx_slice_of(text));
}

static void open_members(hx_buf *out, size_t more)
{
    hx_buf_init(out, &hx_guest_call()->arena, MEMBERS_BYTES + more);
    hx_json_open(out, NULL, '{');
}

/* JSON by its meaning, as the API compares it; anything else by its digest. */
static void put_input(hx_buf *out, const hapax_request *request)
{
    hx_arena *arena = &hx_guest_call()->arena;
    hx_slice payload = {request->payload, request->payload_bytes};
    hx_buf canonical;
    if (payload.len == 0) return;
    hx_buf_init(&canonical, arena, HX_JSON_CANONICAL_BYTES(payload.len));
    if (hx_json_canonical(payload, arena, &canonical)) {
        hx_json_put_raw(out, "input", payload);
        return;
    }
    hx_digest digest = hx_mac_plain(HX_LIT("hapax"), &payload, 1);
    hx_json_put_hex(out, "input", digest.bytes, sizeof digest.bytes);
}

static int begin(void *store, const hapax_request *request, hapax_claim *claim, hapax_record *record, char *error)
{
    uint8_t claimant[16];
    hx_op op;
    reply r;
    hx_buf members;
    hx_ms wait = request->wait < WAIT_MAX ? request->wait : WAIT_MAX;
    hx_rand_bytes(claimant, sizeof claimant);
    open_members(&members, request->payload_bytes);
    hx_json_put_text(&members, "key", hx_slice_of(request->key));
    if (request->name) hx_json_put_text(&members, "name", hx_slice_of(request->name));
    hx_json_put_hex(&members, "claimant", claimant, sizeof claimant);
    put_input(&members, request);
    put_span(&members, "lease", request->lease);
    put_span(&members, "wait", wait);
    if (request->flags & HAPAX_REPEATABLE) hx_json_put_bool(&members, "repeats_safely", true);
    int code = ask(store, "/v1/operations/claim", &members, wait, &r, error);
    if (code != HAPAX_OK) return code > HAPAX_OK ? tell(code, &r, record) : code;
    bool has_ended = hx_slice_eq(r.state, HX_LIT("completed")) || hx_slice_eq(r.state, HX_LIT("failed"));
    if (has_ended) {
        (void)hx_fail(error, "the operation has ended before: the record has its outcome");
        return tell(HAPAX_DONE, &r, record);
    }
    if (!hx_op_read(r.id, &op) || r.epoch == 0) return hx_guest_fail(HAPAX_UNAVAILABLE, "the daemon names no claim");
    hx_struct_put_claim(claim, &op, r.epoch, 0, request->lifetime);
    r.is_retry = false; /* where the response to a first attempt was lost */
    return tell(HAPAX_OK, &r, record);
}

static void put_claim(hx_buf *out, const hapax_claim *claim)
{
    hx_json_put_text(out, "id", hx_slice_of(claim->id));
    hx_json_put_number(out, "epoch", claim->epoch);
}

/* The record of a fenced operation is in the problem. */
static int tell_fenced(const reply *problem, hapax_record *record)
{
    reply found = {.state = HX_EMPTY, .result = HX_EMPTY, .error = HX_EMPTY, .cancel_reason = HX_EMPTY};
    hx_error_text unread;
    if (problem->operation.len > 0 &&
        !hx_json_read(&viewed, HX_JSON_SHOWN, problem->operation, &hx_guest_call()->arena, &found, unread))
        return hx_guest_fail(HAPAX_UNAVAILABLE, "the daemon's response can't be read: %s", unread);
    found.is_retry = true;
    return tell(HAPAX_FENCED, &found, record);
}

static int settle(void *store, const hapax_claim *claim, int state, const hapax_result *result, const char *reason,
                  hapax_record *record, char *error)
{
    hx_slice body = {result->body, result->body_bytes};
    hx_arena *arena = &hx_guest_call()->arena;
    hx_op op;
    hx_buf members, canonical;
    reply r;
    bool is_release = state == HAPAX_STATE_ABSENT;
    if (!hx_struct_op(claim, &op)) return HAPAX_INVALID;
    hx_buf_init(&canonical, arena, HX_JSON_CANONICAL_BYTES(body.len));
    if (!is_release && body.len > 0 && !hx_json_canonical(body, arena, &canonical))
        return hx_guest_fail(HAPAX_INVALID, "a daemon keeps results that are JSON, and this isn't");
    open_members(&members, body.len);
    put_claim(&members, claim);
    if (is_release && reason) hx_json_put_text(&members, "reason", hx_slice_of(reason));
    if (!is_release && body.len > 0)
        hx_json_put_raw(&members, state == HAPAX_STATE_COMPLETED ? "result" : "error", body);
    if (!is_release) put_span(&members, "lifetime", claim->lifetime);
    int code = ask(store,
                   state == HAPAX_STATE_COMPLETED ? "/v1/operations/complete"
                   : state == HAPAX_STATE_FAILED  ? "/v1/operations/fail"
                                                  : "/v1/operations/release",
                   &members, 0, &r, error);
    if (code == HAPAX_FENCED || code == HAPAX_ABSENT) return tell_fenced(&r, record);
    if (code != HAPAX_OK) return code;
    r.is_retry = false;
    return tell(HAPAX_OK, &r, record);
}

static int renew(void *store, const hapax_claim *claim, int64_t lease, hapax_record *record, char *error)
{
    hx_op op;
    hx_buf members;
    reply r;
    if (!hx_struct_op(claim, &op)) return HAPAX_INVALID;
    if (lease <= 0) return hx_guest_fail(HAPAX_INVALID, "the lease must be 1 s to 1 h");
    open_members(&members, 0);
    put_claim(&members, claim);
    put_span(&members, "lease", lease);
    int code = ask(store, "/v1/operations/renew", &members, 0, &r, error);
    if (code == HAPAX_FENCED || code == HAPAX_ABSENT) return tell_fenced(&r, record);
    if (code != HAPAX_OK) return code;
    if (hx_slice_eq(r.state, HX_LIT("processing"))) return tell(HAPAX_OK, &r, record);
    (void)hx_fail(error, "the lease has lapsed, and the operation is unknown: it can still be completed");
    return tell(HAPAX_FENCED, &r, record);
}

static int find(void *store, const hapax_request *request, hapax_record *record, char *error)
{
    hx_buf members;
    reply r;
    hx_ms wait = request->wait < WAIT_MAX ? request->wait : WAIT_MAX;
    open_members(&members, 0);
    hx_json_put_text(&members, "key", hx_slice_of(request->key));
    if (request->name) hx_json_put_text(&members, "name", hx_slice_of(request->name));
    put_span(&members, "wait", wait);
    int code = ask(store, "/v1/operations/find", &members, wait, &r, error);
    if (code != HAPAX_OK) return code;
    static const int codes[] = {[HAPAX_STATE_ABSENT] = HAPAX_ABSENT,   [HAPAX_STATE_PROCESSING] = HAPAX_IN_FLIGHT,
                                [HAPAX_STATE_COMPLETED] = HAPAX_DONE,  [HAPAX_STATE_FAILED] = HAPAX_DONE,
                                [HAPAX_STATE_UNKNOWN] = HAPAX_UNKNOWN, [HAPAX_STATE_EXPIRED] = HAPAX_EXPIRED};
    (void)hx_fail(error, "the operation is %.*s", HX_FMT(r.state));
    return tell(codes[state_of(r.state)], &r, record);
}

static void daemon_close(void *store)
{
    daemon_store *s = store;
    if (s->token) explicit_bzero(s->token, strlen(s->token));
    free(s->url);
    free(s->token);
    free(s->tenant);
    free(s);
}

static bool copy_text(char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

static int daemon_open(const char *url, const hapax_options *options, void **store, char *error)
{
    daemon_store *s = calloc(1, sizeof *s);
    int code = HAPAX_OK;
    if (options->token && strpbrk(options->token, "\r\n ")) {
        free(s);
        return hx_guest_fail(HAPAX_INVALID, "the token has white space in it");
    }
    if (!s) return hx_guest_fail(HAPAX_NO_MEMORY, "out of memory");
    if (!copy_text(&s->url, url) || !copy_text(&s->token, options->token) || !copy_text(&s->tenant, options->tenant))
        code = hx_guest_fail(HAPAX_NO_MEMORY, "out of memory");
    else if (!hx_lib_http_address_read(hx_slice_of(s->url), &s->address, error))
        code = HAPAX_INVALID;
    s->address.timeout = options->timeout > 0 ? options->timeout : TIMEOUT_DEFAULT;
    if (code == HAPAX_OK)
        *store = s;
    else
        daemon_close(s);
    return code;
}

#define DAEMON(url_scheme)                                                                                             \
    {                                                                                                                  \
        .size = sizeof(hapax_store_type), .scheme = (url_scheme), .open = daemon_open, .close = daemon_close,          \
        .begin = begin, .settle = settle, .renew = renew, .find = find                                                 \
    }
const hapax_store_type hx_lib_unix = DAEMON("unix"), hx_lib_http = DAEMON("http");
