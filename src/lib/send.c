/* SPDX-License-Identifier: Apache-2.0 */
/* hapax_send: `hapax send` with the host's own HTTP client. The intents are the same files. */
#include "base/rand.h"
#include "base/text.h"
#include "lib/retry.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HEADERS_MAX 60u
#define KEY_LIFETIME_DEFAULT (23 * HX_HOUR)

typedef struct {
    const char *folder;
    const hapax_intent *given;
    hapax_transport *transport;
    void *context;
    hapax_sent *sent;
    hx_arena *arena;
    hx_intents intents;
    hx_intent *intent;
    const char **headers; /* of the attempts, ended by NULL */
} work;

/* What must be given back whatever ends the call. */
static void drop_intents(void *what)
{
    work *w = what;
    hx_intent_close(&w->intent);
    hx_intents_close(&w->intents);
}

/* The request */

static bool take_headers(const hapax_intent *given, hx_arena *arena, hx_texts *out)
{
    hx_text_header header;
    out->items = hx_arena_alloc(arena, HEADERS_MAX * sizeof *out->items);
    for (const char *const *at = given->headers; at && *at; at++) {
        hx_slice line = hx_slice_of(*at);
        bool is_header = !strpbrk(*at, "\r\n") && hx_text_split_header(line, &header) && hx_slice_is_token(header.name);
        if (!is_header || out->count == HEADERS_MAX || hx_slice_eq_nocase(header.name, HX_LIT("idempotency-key")))
            return hx_fail(hx_guest_message(),
                           "headers must be up to %u lines \"Name: value\", without Idempotency-Key", HEADERS_MAX);
        out->items[out->count++] = line;
    }
    return true;
}

static bool take_request(work *w, hapax_intent *given, hx_intent_request *out)
{
    char *error = hx_guest_message();
    if (!HX_STRUCT_TAKE(given, w->given, hapax_intent)) return false;
    *out = (hx_intent_request){.method = hx_struct_text(given->method),
                               .url = hx_struct_text(given->url),
                               .body = {given->body ? given->body : "", given->body_bytes},
                               .key = hx_struct_text(given->key),
                               .name = hx_struct_text(given->name),
                               .class = HX_EMPTY,
                               .created_at = hx_clock_wall(),
                               .key_lifetime = given->key_lifetime > 0 ? given->key_lifetime : KEY_LIFETIME_DEFAULT};
    if (!hx_slice_is_token(out->method) || out->method.len > 31) return hx_fail(error, "the method isn't one");
    if (!hx_slice_starts(out->url, HX_LIT("http://")) && !hx_slice_starts(out->url, HX_LIT("https://")))
        return hx_fail(error, "the URL must start with http:// or https://");
    if (out->body.len > HX_INTENT_BODY_MAX || (!given->body && given->body_bytes > 0))
        return hx_fail(error, "the body must have up to %u bytes", HX_INTENT_BODY_MAX);
    if (out->name.len == 0 && out->key.len == 0)
        return hx_fail(error, "an intent needs a name or a key, by which it is found again after a crash");
    if (out->key.len > 255 || out->name.len > 255) return hx_fail(error, "name and key have up to 255 bytes");
    for (size_t i = 0; i < out->key.len; i++)
        if (out->key.ptr[i] <= ' ' || out->key.ptr[i] > '~')
            return hx_fail(error, "the key must be visible ASCII characters");
    return take_headers(given, w->arena, &out->headers);
}

static int code_of(hx_intent_error error)
{
    switch (error) {
    case HX_INTENT_OK: return HAPAX_OK;
    case HX_INTENT_BUSY: return HAPAX_BUSY;
    case HX_INTENT_DAMAGED: return HAPAX_DAMAGED;
    default: return HAPAX_UNAVAILABLE;
    }
}

/* Finds the intent that was written down, or writes it down. */
static int open_intent(work *w, hx_intent_request *request)
{
    char *error = hx_guest_message();
    char key[HAPAX_KEY_BYTES];
    hx_slice file = hx_intent_file(request->name, request->key, w->arena);
    hx_intent_digest(&w->intents, request, w->arena);
    hx_intent_error result = hx_intent_open(&w->intents, file, true, &w->intent, error);
    if (result == HX_INTENT_ABSENT) {
        if (request->key.len == 0) {
            int drawn = hapax_new_key(key);
            if (drawn != HAPAX_OK) return drawn;
            request->key = hx_arena_copy(w->arena, hx_slice_of(key));
        }
        result = hx_intent_create(&w->intents, request, &w->intent, error);
        if (result == HX_INTENT_OK) return HAPAX_OK;
        if (result == HX_INTENT_EXISTS) result = hx_intent_open(&w->intents, file, true, &w->intent, error);
    }
    if (result != HX_INTENT_OK) return code_of(result);
    w->sent->is_retry = 1;
    const char *differs = hx_intent_difference(&w->intent->request, request);
    if (!differs) return HAPAX_OK;
    return hx_guest_fail(HAPAX_MISMATCH, "this %s was used for a request with another %s: nothing was sent",
                         request->name.len > 0 ? "name" : "key", differs);
}

/* Attempts */

static bool prepare(void *user, hx_ms elapsed, hx_error_text error)
{
    work *w = user;
    const hx_intent_request *request = &w->intent->request;
    (void)elapsed;
    (void)error;
    w->headers = hx_arena_alloc(w->arena, (HEADERS_MAX + 2) * sizeof *w->headers);
    size_t count = 0;
    for (; count < request->headers.count && count < HEADERS_MAX; count++)
        w->headers[count] = hx_arena_terminated(w->arena, request->headers.items[count]);
    w->headers[count++] = hx_arena_printf(w->arena, "Idempotency-Key: %.*s", HX_FMT(request->key)).ptr;
    w->headers[count] = NULL;
    return true;
}

static void send_request(void *user, hx_attempt_reply *result)
{
    work *w = user;
    const hx_intent_request *request = &w->intent->request;
    hapax_response response = {.size = sizeof response};
    int64_t began = hx_clock_mono_ns();
    w->transport(w->context, hx_arena_terminated(w->arena, request->method),
                 hx_arena_terminated(w->arena, request->url), w->headers, request->body.ptr, request->body.len,
                 &response);
    if (!hx_lib_response(&response, result)) /* what it did is not known */
        *result = (hx_attempt_reply){.reason = "the transport gave no valid response",
                                     .head = HX_EMPTY,
                                     .body = HX_EMPTY};
    result->duration = (hx_clock_mono_ns() - began) / 1000000;
}

static bool wait_for(void *user, hx_ms delay, const char *why, unsigned attempts)
{
    struct timespec left = {delay / 1000, (long)(delay % 1000) * 1000000};
    (void)user;
    (void)why;
    (void)attempts;
    while (nanosleep(&left, &left) != 0) continue;
    return true;
}

static void put_text(char to[256], hx_slice from)
{
    size_t len = from.len < 255 ? from.len : 255;
    memcpy(to, from.ptr, len);
    to[len] = '\0';
}

static int tell(const work *w, hx_careful_verdict verdict, unsigned status, bool replayed, hx_slice body, hx_slice why)
{
    hapax_sent *sent = w->sent;
    sent->memory = malloc(body.len + 1);
    if (!sent->memory) return hx_guest_fail(HAPAX_NO_MEMORY, "out of memory");
    if (body.len > 0) memcpy(sent->memory, body.ptr, body.len);
    ((char *)sent->memory)[body.len] = '\0';
    sent->body = sent->memory;
    sent->body_bytes = body.len;
    sent->verdict = (int)verdict;
    sent->status = (int)status;
    sent->replayed = replayed;
    sent->attempts = (unsigned)w->intent->attempt_count;
    put_text(sent->key, w->intent->request.key);
    put_text(sent->why, why);
    return HAPAX_OK;
}

static int send_body(hx_guest *call, void *arguments)
{
    work *w = arguments;
    char *error = hx_guest_message();
    hx_intent_request request;
    hapax_intent given;
    hx_attempts_end end;
    hx_attempts how = {.prepare = prepare, .send = send_request, .wait = wait_for, .user = w};
    w->arena = &call->arena;
    if (!take_request(w, &given, &request)) return HAPAX_INVALID;
    if (!hx_lib_policy(given.retry.size > 0 ? &given.retry : NULL, &how.policy)) return HAPAX_INVALID;
    if (!hx_intents_open(w->folder, &w->intents, error)) return HAPAX_UNAVAILABLE;
    hx_arena_at_end(w->arena, drop_intents, w);
    int code = open_intent(w, &request);
    if (code != HAPAX_OK) return code;
    const hx_intent_outcome *outcome = &w->intent->outcome;
    if (outcome->verdict.len > 0) {
        bool is_done = hx_slice_eq(outcome->verdict, HX_LIT("done"));
        return tell(w, is_done ? HX_CAREFUL_DONE : HX_CAREFUL_REFUSED, (unsigned)outcome->status, outcome->replayed,
                    outcome->body, HX_LIT("it was sent before"));
    }
    if (!hx_attempts_perform(w->intent, &how, w->arena, &end, error)) return HAPAX_UNAVAILABLE;
    return tell(w, end.verdict, end.status, end.replayed, end.body, end.why);
}

int hapax_send(const char *folder, const hapax_intent *intent, hapax_transport *transport, void *context,
               hapax_sent *sent)
{
    work w = {.folder = folder, .given = intent, .transport = transport, .context = context, .sent = sent};
    if (!folder || !transport) return hx_guest_fail(HAPAX_INVALID, "folder or transport is NULL");
    if (!HX_STRUCT_IS_FIT(sent, hapax_sent)) return HAPAX_INVALID;
    hapax_sent_clear(sent);
    return hx_guest_run(NULL, send_body, &w);
}

void hapax_sent_clear(hapax_sent *sent)
{
    if (!sent || sent->size < sizeof *sent) return;
    free(sent->memory);
    *sent = (hapax_sent){.size = sent->size};
}
