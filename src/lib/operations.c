/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a store, whichever it is: checks what the host gives, and waits. */
#include "base/clock.h"
#include "base/rand.h"
#include "lib/stores.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TYPES_MAX 16u
#define POLL_MIN 2
#define POLL_MAX 64
#define SETTLE_TRIES 5u

static const hapax_store_type *const own_types[] = {&hx_lib_sqlite, &hx_lib_unix, &hx_lib_http};
static const hapax_store_type *registered[TYPES_MAX];
static atomic_size_t registered_count;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

const char *hapax_version(void)
{
    return HAPAX_VERSION;
}

const char *hapax_code_name(int code)
{
    static const char *const outcomes[] = {"HAPAX_OK",       "HAPAX_DONE",    "HAPAX_IN_FLIGHT", "HAPAX_UNKNOWN",
                                           "HAPAX_MISMATCH", "HAPAX_EXPIRED", "HAPAX_ABSENT",    "HAPAX_FENCED"};
    static const char *const failures[] = {"",
                                           "HAPAX_INVALID",
                                           "HAPAX_UNSUPPORTED",
                                           "HAPAX_UNAVAILABLE",
                                           "HAPAX_BUSY",
                                           "HAPAX_FULL",
                                           "HAPAX_DENIED",
                                           "HAPAX_DAMAGED",
                                           "HAPAX_NOT_PREPARED",
                                           "HAPAX_FORKED",
                                           "HAPAX_NO_MEMORY",
                                           "HAPAX_INTERNAL"};
    if (code >= HAPAX_OK && code <= HAPAX_FENCED) return outcomes[code];
    return code < HAPAX_OK && code >= HAPAX_INTERNAL ? failures[-code] : "?";
}

/* Opening */

static const hapax_store_type *type_of(hx_slice scheme)
{
    for (size_t i = 0; i < sizeof own_types / sizeof own_types[0]; i++)
        if (hx_slice_eq(scheme, hx_slice_of(own_types[i]->scheme))) return own_types[i];
    for (size_t i = 0; i < registered_count; i++)
        if (hx_slice_eq(scheme, hx_slice_of(registered[i]->scheme))) return registered[i];
    return NULL;
}

int hapax_register_store(const hapax_store_type *type)
{
    if (!HX_STRUCT_IS_FIT(type, hapax_store_type)) return HAPAX_INVALID;
    if (!type->scheme || !type->open || !type->close || !type->begin || !type->settle || !type->renew || !type->find)
        return hx_guest_fail(HAPAX_INVALID, "a store needs a scheme and all of its functions");
    int code = HAPAX_OK;
    (void)pthread_mutex_lock(&registering);
    if (type_of(hx_slice_of(type->scheme)))
        code = hx_guest_fail(HAPAX_INVALID, "there is a store for %s: already", type->scheme);
    else if (registered_count == TYPES_MAX)
        code = hx_guest_fail(HAPAX_INVALID, "there are %u types of stores already", TYPES_MAX);
    else
        registered[registered_count] = type; /* before it is counted: readers take no lock */
    if (code == HAPAX_OK) registered_count++;
    (void)pthread_mutex_unlock(&registering);
    return code;
}

/* Why there is no store for a URL, and which to use. */
static int explain_scheme(const char *url, hx_slice scheme)
{
    static const char *const plugins[] = {"postgres", "postgresql", "redis", "redis+cluster"};
    if (hx_slice_eq(scheme, HX_LIT("journal")))
        return hx_guest_fail(HAPAX_UNSUPPORTED,
                             "a journal is its daemon's alone: open the daemon's socket, as unix:%s/admin.sock",
                             url + scheme.len + 1);
    if (hx_slice_eq(scheme, HX_LIT("https")))
        return hx_guest_fail(HAPAX_UNSUPPORTED,
                             "the library speaks no TLS: use http: on this machine, or the daemon's unix: socket");
    for (size_t i = 0; i < sizeof plugins / sizeof plugins[0]; i++)
        if (hx_slice_eq(scheme, hx_slice_of(plugins[i])))
            return hx_guest_fail(HAPAX_UNSUPPORTED,
                                 "%s: needs a plug-in, and none is registered: see hapax_register_store(), or open the "
                                 "socket of a daemon that uses that store",
                                 plugins[i]);
    return hx_guest_fail(HAPAX_UNSUPPORTED, "\"%.100s\" is no store: use sqlite:PATH, unix:SOCKET or http://HOST:PORT",
                         url);
}

typedef struct {
    const char *url;
    hapax_options options;
    hapax *store;
} opening;

static int open_body(hx_guest *call, void *arguments)
{
    opening *o = arguments;
    call->store = o->store; /* for its log; it isn't used otherwise yet */
    return o->store->type->open(o->url, &o->options, &o->store->inner, hx_guest_message());
}

int hapax_open(const char *url, const hapax_options *options, hapax **store)
{
    opening o = {.url = url};
    if (!store) return hx_guest_fail(HAPAX_INVALID, "store is NULL");
    *store = NULL;
    if (!url) return hx_guest_fail(HAPAX_INVALID, "the URL is NULL");
    if (options && !HX_STRUCT_TAKE(&o.options, options, hapax_options)) return HAPAX_INVALID;
    hx_slice text = hx_slice_of(url), scheme = hx_slice_first(text, hx_slice_find(text, ':'));
    const hapax_store_type *type = hx_slice_find(text, ':') == SIZE_MAX ? NULL : type_of(scheme);
    if (!type) return explain_scheme(url, scheme);
    o.options.size = sizeof o.options;
    o.store = calloc(1, sizeof *o.store);
    if (!o.store) return hx_guest_fail(HAPAX_NO_MEMORY, "out of memory");
    *o.store = (hapax){.type = type,
                       .process = hx_guest_process(),
                       .log = o.options.log,
                       .log_context = o.options.log_context};
    int code = hx_guest_run(NULL, open_body, &o);
    if (code == HAPAX_OK)
        *store = o.store;
    else
        free(o.store);
    return code;
}

static int close_body(hx_guest *call, void *arguments)
{
    hapax *store = arguments;
    (void)call;
    store->type->close(store->inner);
    return HAPAX_OK;
}

void hapax_close(hapax **owned)
{
    hapax *store = owned ? *owned : NULL;
    if (!store) return;
    *owned = NULL;
    if (store->process != hx_guest_process()) return; /* the files, and so the memory, are its parent's */
    (void)hx_guest_run(NULL, close_body, store);
    free(store);
}

/* Beginning and finding, which may wait */

typedef struct {
    const hapax_request *given;
    hapax_claim *claim; /* NULL: it is only looked for */
    hapax_record *record;
} asking;

static void pause_for(int64_t ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&left, NULL);
}

static int ask_body(hx_guest *call, void *arguments)
{
    asking *a = arguments;
    const hapax_store_type *type = call->store->type;
    hapax_request request;
    if (!hx_struct_take_request(&request, a->given)) return HAPAX_INVALID;
    int64_t began = hx_clock_mono_ns(), whole = request.wait, delay = POLL_MIN;
    for (;;) {
        hapax_record_clear(a->record);
        char *error = hx_guest_message();
        int code = a->claim ? type->begin(call->store->inner, &request, a->claim, a->record, error)
                            : type->find(call->store->inner, &request, a->record, error);
        request.wait = whole - (hx_clock_mono_ns() - began) / 1000000;
        if (code != HAPAX_IN_FLIGHT || request.wait <= 0) return code;
        pause_for(delay < request.wait ? delay : request.wait);
        delay = 2 * delay < POLL_MAX ? 2 * delay : POLL_MAX;
        hx_arena_free(&call->arena);
    }
}

/* The host's record, or ours where it wants none. */
static hapax_record *record_or(hapax_record *given, hapax_record *own)
{
    *own = (hapax_record){.size = sizeof *own};
    return given ? given : own;
}

static int ask(hapax *store, const hapax_request *request, hapax_claim *claim, hapax_record *given)
{
    hapax_record own, *record = record_or(given, &own);
    asking a = {request, claim, record};
    if (!store) return hx_guest_fail(HAPAX_INVALID, "the store is NULL");
    if (!HX_STRUCT_IS_FIT(record, hapax_record)) return HAPAX_INVALID;
    int code = hx_guest_run(store, ask_body, &a);
    hapax_record_clear(&own);
    return code;
}

int hapax_begin(hapax *store, const hapax_request *request, hapax_claim *claim, hapax_record *record)
{
    return HX_STRUCT_IS_FIT(claim, hapax_claim) ? ask(store, request, claim, record) : HAPAX_INVALID;
}

int hapax_find(hapax *store, const hapax_request *request, hapax_record *record)
{
    return ask(store, request, NULL, record);
}

/* Ending and renewing */

typedef struct {
    const hapax_claim *claim;
    const hapax_result *result;
    const char *reason;
    hapax_record *record;
    int state; /* PROCESSING: renew */
    int64_t lease;
} ending;

static int end_body(hx_guest *call, void *arguments)
{
    ending *e = arguments;
    void *inner = call->store->inner;
    char *error = hx_guest_message();
    hapax_claim claim;
    hapax_result result = {.size = sizeof result};
    if (!HX_STRUCT_TAKE(&claim, e->claim, hapax_claim)) return HAPAX_INVALID;
    if (e->result && !HX_STRUCT_TAKE(&result, e->result, hapax_result)) return HAPAX_INVALID;
    hapax_record_clear(e->record);
    if (e->state == HAPAX_STATE_PROCESSING) return call->store->type->renew(inner, &claim, e->lease, e->record, error);
    if (result.status == 0) result.status = e->state == HAPAX_STATE_COMPLETED ? 200 : 500;
    if (!result.content_type) result.content_type = "application/json";
    return call->store->type->settle(inner, &claim, e->state, &result, e->reason, e->record, error);
}

static int end(hapax *store, ending e)
{
    hapax_record own;
    e.record = record_or(e.record, &own);
    if (!store) return hx_guest_fail(HAPAX_INVALID, "the store is NULL");
    if (!HX_STRUCT_IS_FIT(e.record, hapax_record)) return HAPAX_INVALID;
    int code = hx_guest_run(store, end_body, &e);
    hapax_record_clear(&own);
    return code;
}

int hapax_complete(hapax *store, const hapax_claim *claim, const hapax_result *result, hapax_record *record)
{
    ending e = {.claim = claim, .result = result, .record = record, .state = HAPAX_STATE_COMPLETED};
    return end(store, e);
}

int hapax_fail(hapax *store, const hapax_claim *claim, const hapax_result *result, hapax_record *record)
{
    ending e = {.claim = claim, .result = result, .record = record, .state = HAPAX_STATE_FAILED};
    return end(store, e);
}

int hapax_release(hapax *store, const hapax_claim *claim, const char *reason, hapax_record *record)
{
    ending e = {.claim = claim, .reason = reason, .record = record, .state = HAPAX_STATE_ABSENT};
    return end(store, e);
}

int hapax_renew(hapax *store, const hapax_claim *claim, int64_t lease, hapax_record *record)
{
    ending e = {.claim = claim, .record = record, .state = HAPAX_STATE_PROCESSING, .lease = lease};
    return end(store, e);
}

/* An outcome that isn't recorded is unknown to everybody, so a store that is away for a moment is asked again. */
static int end_for_sure(hapax *store, const hapax_claim *claim, int state, const hapax_result *result,
                        hapax_record *outcome)
{
    for (unsigned i = 1;; i++) {
        ending e = {.claim = claim, .result = result, .record = outcome, .state = state};
        if (state == HAPAX_STATE_ABSENT) e.reason = "the operation was not executed";
        int code = end(store, e);
        bool may_change = code == HAPAX_UNAVAILABLE || code == HAPAX_BUSY || code == HAPAX_FULL;
        if (!may_change || i == SETTLE_TRIES) return code;
        pause_for(INT64_C(50) << i);
    }
}

int hapax_execute(hapax *store, const hapax_request *request, hapax_operation *operation, void *context,
                  hapax_record *outcome)
{
    hapax_claim claim = {.size = sizeof claim};
    hapax_result result = {.size = sizeof result};
    if (!operation) return hx_guest_fail(HAPAX_INVALID, "operation is NULL");
    int code = hapax_begin(store, request, &claim, outcome);
    if (code != HAPAX_OK) return code;
    int state = operation(context, &claim, &result);
    if (state == HAPAX_STATE_COMPLETED || state == HAPAX_STATE_FAILED || state == HAPAX_STATE_ABSENT)
        return end_for_sure(store, &claim, state, state == HAPAX_STATE_ABSENT ? NULL : &result, outcome);
    if (outcome) outcome->state = HAPAX_STATE_UNKNOWN;
    return hx_guest_fail(HAPAX_UNKNOWN, "the operation may have been executed: it is unknown once its lease lapses");
}

static int key_body(hx_guest *call, void *arguments)
{
    uint8_t b[16];
    hx_rand_bytes(b, sizeof b);
    uint64_t ms = (uint64_t)hx_clock_wall();
    for (int i = 0; i < 6; i++) b[i] = (uint8_t)(ms >> (40 - 8 * i));
    b[6] = (uint8_t)(0x70 | (b[6] & 0x0f));
    b[8] = (uint8_t)(0x80 | (b[8] & 0x3f));
    (void)call;
    (void)snprintf(arguments, HAPAX_KEY_BYTES, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
                   b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
                   b[15]);
    return HAPAX_OK;
}

int hapax_new_key(char key[HAPAX_KEY_BYTES])
{
    return key ? hx_guest_run(NULL, key_body, key) : hx_guest_fail(HAPAX_INVALID, "key is NULL");
}
