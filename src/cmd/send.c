/* SPDX-License-Identifier: Apache-2.0 */
/* hapax send: an HTTP request that takes effect once, from a shell, a job or a script. It is written down as an intent
 * before its first attempt; running the command again, or --resume, goes on with the same key. */
#include "base/check.h"
#include "base/program/read_file.h"
#include "base/rand.h"
#include "base/text.h"
#include "cmd/cli/cmd.h"
#include "cmd/send/key_text.h"
#include "cmd/send/perform.h"
#include "cmd/send/view.h"
#include "core/json/json.h"
#include "core/operation/key.h"
#include "core/time/rfc3339.h"
#include "core/time/units.h"

#include <errno.h>
#include <string.h>

#define HEADERS_MAX 60u
#define EXHAUSTED 69      /* EX_UNAVAILABLE */
#define KEPT (7 * HX_DAY) /* a finished intent, for --status */

typedef struct {
    hx_arena *arena;
    const char *method, *url, *operand;
    hx_slice headers[HEADERS_MAX];
    size_t header_count;
    const char *data, *key, *name, *class, *at, *csv, *directory, *ca_file;
    const char *attempts, *timeout, *budget, *key_lifetime;
    bool no_key, resume, status, list, forget, json, quiet;
    hx_error_text error;
} arguments;

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    const hx_cmd_target targets[] = {
        {"data", &given->data, NULL},
        {"key", &given->key, NULL},
        {"for", &given->name, NULL},
        {"class", &given->class, NULL},
        {"at", &given->at, NULL},
        {"csv", &given->csv, NULL},
        {"intents", &given->directory, NULL},
        {"cacert", &given->ca_file, NULL},
        {"attempts", &given->attempts, NULL},
        {"timeout", &given->timeout, NULL},
        {"budget", &given->budget, NULL},
        {"no-key", NULL, &given->no_key},
        {"resume", NULL, &given->resume},
        {"status", NULL, &given->status},
        {"list", NULL, &given->list},
        {"forget", NULL, &given->forget},
        {"json", NULL, &given->json},
        {"quiet", NULL, &given->quiet},
        {"key-lifetime", &given->key_lifetime, NULL},
        {0},
    };
    if (strcmp(flag, "header") == 0) {
        if (given->header_count < HEADERS_MAX)
            given->headers[given->header_count++] = hx_slice_of(value);
        else
            (void)hx_fail(given->error, "-H is given more than %u times", HEADERS_MAX);
    }
    hx_cmd_take(targets, flag, value);
}

static int exit_of(hx_careful_verdict verdict)
{
    switch (verdict) {
    case HX_CAREFUL_DONE: return HX_EXIT_OK;
    case HX_CAREFUL_REFUSED: return HX_EXIT_NO;
    case HX_CAREFUL_UNKNOWN: return HX_EXIT_UNKNOWN;
    case HX_CAREFUL_AGAIN:
    case HX_CAREFUL_EXHAUSTED: break;
    }
    return EXHAUSTED;
}

/* -1: the flags are wrong. */
static int failed(arguments *given, int code)
{
    if (code == HX_EXIT_USAGE) return hx_cmd_misused("send", "%s.", given->error);
    fprintf(stderr, "hapax send: %s.\n", given->error);
    return code;
}

/* Reading the flags */

static bool read_span(const arguments *given, const char *flag, const char *text, hx_ms most, hx_ms *out)
{
    if (!text) return true;
    if (hx_unit_read(hx_slice_of(text), out) && *out > 0 && *out <= most) return true;
    return hx_fail((char *)given->error, "--%s must be a time such as 30s or 15m", flag);
}

static bool read_settings(arguments *given, hx_slice stored_class, hx_send_settings *settings)
{
    hx_retry_class class = HX_CLASS_USER;
    hx_retry_overrides overrides = {0};
    const char *wrong;
    uint64_t attempts = 0;
    hx_slice name = given->class ? hx_slice_of(given->class) : stored_class;
    if (name.len > 0 && (!hx_retry_class_parse(name, &class) || class == HX_CLASS_WEBHOOK))
        return hx_fail(given->error, "--class must be user, background or scheduled");
    if (given->attempts && (!hx_slice_to_u64(hx_slice_of(given->attempts), &attempts) || attempts == 0 ||
                            attempts > HX_RETRY_ATTEMPTS_MAX))
        return hx_fail(given->error, "--attempts must be between 1 and %u", HX_RETRY_ATTEMPTS_MAX);
    overrides.attempts = (unsigned)attempts;
    if (!hx_retry_policy_make(class, &overrides, &settings->policy, &wrong))
        return hx_fail(given->error, "--attempts: %s", wrong);
    settings->timeout = 30 * HX_SECOND;
    settings->ca_file = given->ca_file;
    settings->shows_progress = !given->quiet;
    return read_span(given, "timeout", given->timeout, HX_HOUR, &settings->timeout) &&
           read_span(given, "budget", given->budget, HX_DAY, &settings->budget);
}

static bool check_header(arguments *given, hx_slice header)
{
    static const char *const ours[] = {"idempotency-key", "x-request-timeout", "content-length", "host"};
    hx_text_header pair;
    if (hx_slice_starts(header, HX_LIT("@")) && header.len > 1) return true;
    if (!hx_text_split_header(header, &pair) || !hx_slice_is_token(pair.name))
        return hx_fail(given->error, "-H '%.*s' is neither 'Name: value' nor @FILE", HX_FMT(header));
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (hx_slice_eq_nocase(pair.name, hx_slice_of(ours[i])))
            return hx_fail(given->error,
                           i == 0   ? "-H %s is not for here: use --key"
                           : i == 1 ? "-H %s is not for here: use --budget"
                                    : "-H %s is not for here: it is made from the URL and the body",
                           ours[i]);
    return true;
}

static bool read_body(arguments *given, hx_slice *body)
{
    hx_slice why;
    *body = HX_EMPTY;
    if (!given->data) return true;
    if (given->data[0] != '@') {
        *body = hx_slice_of(given->data);
        return true;
    }
    if (hx_read_file(given->data + 1, HX_INTENT_BODY_MAX, given->arena, body, &why)) return true;
    return hx_fail(given->error, "%.*s", HX_FMT(why));
}

static bool has_header(const arguments *given, const char *name)
{
    hx_text_header pair;
    for (size_t i = 0; i < given->header_count; i++)
        if (hx_text_split_header(given->headers[i], &pair) && hx_slice_eq_nocase(pair.name, hx_slice_of(name)))
            return true;
    return false;
}

static bool read_headers(arguments *given, hx_slice body, hx_texts *headers)
{
    static const char json[] = "Content-Type: application/json", bytes[] = "Content-Type: application/octet-stream";
    for (size_t i = 0; i < given->header_count; i++)
        if (!check_header(given, given->headers[i])) return false;
    headers->items = hx_arena_alloc(given->arena, (HEADERS_MAX + 1) * sizeof *headers->items);
    headers->count = given->header_count;
    if (given->header_count > 0) memcpy(headers->items, given->headers, given->header_count * sizeof *headers->items);
    hx_buf unused;
    hx_buf_init(&unused, given->arena, HX_JSON_CANONICAL_BYTES(body.len));
    if (body.len > 0 && !has_header(given, "content-type"))
        headers->items[headers->count++] = hx_slice_of(hx_json_canonical(body, given->arena, &unused) ? json : bytes);
    return true;
}

/* A UUID of version 7: keys of one machine sort by their time. */
static hx_slice new_key(hx_arena *arena)
{
    uint8_t b[16];
    hx_rand_bytes(b, sizeof b);
    uint64_t ms = (uint64_t)hx_clock_wall();
    for (int i = 0; i < 6; i++) b[i] = (uint8_t)(ms >> (40 - 8 * i));
    b[6] = (uint8_t)(0x70 | (b[6] & 0x0f));
    b[8] = (uint8_t)(0x80 | (b[8] & 0x3f));
    return hx_arena_printf(arena, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                           b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

static bool read_key(arguments *given, hx_slice body, hx_slice *key)
{
    static const hx_key_rules any = {.format = HX_KEY_ANY, .len_min = 1, .len_max = 255};
    hx_ms at = hx_clock_wall();
    hx_slice text, parsed;
    *key = HX_EMPTY;
    if (given->at && !hx_rfc3339_read(hx_slice_of(given->at), &at))
        return hx_fail(given->error, "--at must be a time such as 2026-02-19T12:00:00Z");
    if (!given->key) return true;
    if (given->no_key) return hx_fail(given->error, "--key and --no-key exclude each other");
    if (!hx_send_key(hx_slice_of(given->key), body, at, given->arena, &text, given->error)) return false;
    hx_key_error wrong = hx_key_parse(text, &any, given->arena, &parsed);
    if (wrong != HX_KEY_OK) return hx_fail(given->error, "--key: %s", hx_key_error_text(wrong));
    *key = parsed;
    return true;
}

static bool read_request(arguments *given, hx_intent_request *request)
{
    request->method = hx_slice_of(given->method);
    request->url = hx_slice_of(given->url);
    request->name = hx_slice_of(given->name ? given->name : "");
    request->class = hx_slice_of(given->class ? given->class : "");
    request->created_at = hx_clock_wall();
    request->key_lifetime = 23 * HX_HOUR;
    if (!hx_slice_is_token(request->method) || request->method.len > 31)
        return hx_fail(given->error, "%s is not a method", given->method);
    if (!hx_slice_starts(request->url, HX_LIT("http://")) && !hx_slice_starts(request->url, HX_LIT("https://")))
        return hx_fail(given->error, "the URL must start with http:// or https://");
    return read_span(given, "key-lifetime", given->key_lifetime, 36500 * HX_DAY, &request->key_lifetime) &&
           read_body(given, &request->body) && read_headers(given, request->body, &request->headers) &&
           read_key(given, request->body, &request->key);
}

/* Working on intents */

static void show_csv(const arguments *given, const hx_intent *intent)
{
    if (!given->csv) return;
    bool is_stdout = strcmp(given->csv, "-") == 0;
    FILE *out = is_stdout ? stdout : fopen(given->csv, "w");
    if (!out) {
        fprintf(stderr, "hapax send: can't write %s: %s.\n", given->csv, strerror(errno));
        return;
    }
    hx_send_show_csv(intent, out);
    if (!is_stdout) (void)fclose(out);
}

static int perform(arguments *given, hx_intent *intent, const hx_texts *credentials)
{
    hx_send_settings settings = {0};
    hx_send_end end;
    hx_send_form form = given->json ? HX_SEND_JSON : HX_SEND_TEXT;
    if (!read_settings(given, intent->request.class, &settings)) return failed(given, HX_EXIT_USAGE);
    if (credentials) settings.credentials = *credentials;
    bool is_finished = intent->outcome.verdict.len > 0;
    if (is_finished)
        end = (hx_send_end){.verdict = hx_send_verdict_of(intent), .why = intent->outcome.note};
    else if (!hx_send_perform(intent, &settings, given->arena, &end, given->error))
        return failed(given, hx_intent_in_doubt(intent) ? HX_EXIT_UNKNOWN : HX_EXIT_STORE);
    hx_send_show(intent, end.verdict, is_finished ? HX_LIT("it was sent before") : end.why, form);
    show_csv(given, intent);
    return exit_of(end.verdict);
}

/* Fresh credentials of this call are used in place of those that were written down. */
static hx_texts credentials_of(const arguments *given)
{
    hx_texts found = {.items = hx_arena_alloc(given->arena, HEADERS_MAX * sizeof *found.items)};
    for (size_t i = 0; i < given->header_count; i++)
        if (hx_slice_starts_nocase(given->headers[i], HX_LIT("authorization:")) ||
            hx_slice_starts_nocase(given->headers[i], HX_LIT("cookie:")))
            found.items[found.count++] = given->headers[i];
    return found;
}

/* Code of an error other than OK and ABSENT. */
static int intent_failed(arguments *given, hx_intent_error result)
{
    return failed(given, result == HX_INTENT_BUSY ? HX_EXIT_UNKNOWN : HX_EXIT_STORE);
}

static int send_known(arguments *given, hx_intents *intents, hx_slice file, const hx_intent_request *request)
{
    hx_intent *intent;
    hx_intent_error result = hx_intent_open(intents, file, true, &intent, given->error);
    if (result != HX_INTENT_OK) return intent_failed(given, result);
    const char *differs = hx_intent_difference(&intent->request, request);
    int code;
    if (differs) {
        (void)
            hx_fail(given->error,
                    "this %s was used for a request with another %s: nothing was sent. Repeat the first request as it "
                    "was, or give another %s for a new operation",
                    given->name ? "--for" : "--key", differs, given->name ? "--for" : "--key");
        code = failed(given, HX_EXIT_USAGE);
    } else {
        hx_texts credentials = credentials_of(given);
        code = perform(given, intent, &credentials);
    }
    hx_intent_close(&intent);
    return code;
}

static int send_new(arguments *given, hx_intents *intents)
{
    hx_intent_request request = {0};
    hx_intent *intent;
    hx_send_settings unused = {0};
    if (!read_request(given, &request) || !read_settings(given, HX_EMPTY, &unused)) return failed(given, HX_EXIT_USAGE);
    hx_intent_digest(intents, &request, given->arena);
    bool can_be_found = request.name.len > 0 || request.key.len > 0;
    bool is_safe = hx_slice_eq(request.method, HX_LIT("GET")) || hx_slice_eq(request.method, HX_LIT("HEAD"));
    hx_slice file = hx_intent_file(request.name, request.key, given->arena);
    if (can_be_found) {
        hx_intent_error there = hx_intent_open(intents, file, false, &intent, given->error);
        hx_intent_close(&intent);
        if (there != HX_INTENT_ABSENT) return send_known(given, intents, file, &request);
    }
    if (request.key.len == 0 && !given->no_key && !is_safe) request.key = new_key(given->arena);
    if (request.name.len == 0 && request.key.len == 0) request.name = new_key(given->arena); /* names the file */
    hx_intent_error result = hx_intent_create(intents, &request, &intent, given->error);
    if (result == HX_INTENT_EXISTS) return send_known(given, intents, file, &request);
    if (result != HX_INTENT_OK) return intent_failed(given, result);
    int code = perform(given, intent, NULL);
    hx_intent_close(&intent);
    return code;
}

/* The intent that an operand names, by its name or its key. */
static int open_named(arguments *given, hx_intents *intents, bool locks, hx_intent **intent)
{
    hx_slice text = hx_slice_of(given->operand);
    hx_intent_error result = hx_intent_open(intents, hx_intent_file(text, HX_EMPTY, given->arena), locks, intent,
                                            given->error);
    if (result == HX_INTENT_ABSENT)
        result = hx_intent_open(intents, hx_intent_file(HX_EMPTY, text, given->arena), locks, intent, given->error);
    if (result == HX_INTENT_OK) return -1;
    if (result != HX_INTENT_ABSENT) return intent_failed(given, result);
    (void)hx_fail(given->error, "there is no intent %s in %s: nothing is known of it here", given->operand,
                  intents->directory);
    return failed(given, HX_EXIT_USAGE);
}

static int resume_one(arguments *given, hx_intents *intents)
{
    hx_intent *intent;
    int code = open_named(given, intents, true, &intent);
    if (code >= 0) return code;
    hx_texts credentials = credentials_of(given);
    code = perform(given, intent, &credentials);
    hx_intent_close(&intent);
    return code;
}

static int show_status(arguments *given, hx_intents *intents)
{
    hx_intent *intent;
    int code = open_named(given, intents, false, &intent);
    if (code >= 0) return code;
    hx_send_settings settings = {0};
    hx_send_end end = {.verdict = hx_send_verdict_of(intent), .why = intent->outcome.note};
    if (!read_settings(given, intent->request.class, &settings)) {
        hx_intent_close(&intent);
        return failed(given, HX_EXIT_USAGE);
    }
    settings.credentials = credentials_of(given);
    hx_send_end heard;
    bool may_ask = intent->outcome.verdict.len == 0 && intent->attempt_count > 0 && intent->request.key.len > 0;
    if (may_ask && hx_send_ask(intent, &settings, given->arena, &heard)) end = heard;
    hx_send_show(intent, end.verdict, end.why, given->json ? HX_SEND_JSON : HX_SEND_TEXT);
    show_csv(given, intent);
    hx_intent_close(&intent);
    return exit_of(end.verdict);
}

static int forget_one(arguments *given, hx_intents *intents)
{
    hx_intent *intent;
    int code = open_named(given, intents, true, &intent);
    if (code >= 0) return code;
    bool removed = hx_intent_remove(intent, given->error);
    hx_intent_close(&intent);
    return removed ? HX_EXIT_OK : failed(given, HX_EXIT_STORE);
}

/* Calls `each` for every intent that can be read; returns the worst code. */
static int for_each(arguments *given, hx_intents *intents, bool locks, int (*each)(arguments *given, hx_intent *intent))
{
    hx_texts files;
    int worst = HX_EXIT_OK;
    if (!hx_intents_list(intents, &files, given->error)) return failed(given, HX_EXIT_STORE);
    for (size_t i = 0; i < files.count; i++) {
        hx_intent *intent;
        hx_intent_error result = hx_intent_open(intents, files.items[i], locks, &intent, given->error);
        if (result == HX_INTENT_ABSENT) continue;
        int code = result == HX_INTENT_OK ? each(given, intent) : intent_failed(given, result);
        hx_intent_close(&intent);
        if (code > worst) worst = code;
    }
    return worst;
}

static int list_one(arguments *given, hx_intent *intent)
{
    hx_send_show_line(intent, given->json ? HX_SEND_JSON : HX_SEND_TEXT);
    return HX_EXIT_OK;
}

static int resume_next(arguments *given, hx_intent *intent)
{
    return intent->outcome.verdict.len > 0 ? HX_EXIT_OK : perform(given, intent, NULL);
}

static int remove_old(arguments *given, hx_intent *intent)
{
    hx_ms ends = hx_intent_key_end(intent);
    bool is_old = intent->outcome.verdict.len > 0 && ends < INT64_MAX && hx_clock_wall() > ends &&
                  hx_clock_wall() > intent->outcome.at + KEPT;
    if (is_old && !hx_intent_remove(intent, given->error)) return HX_EXIT_STORE;
    return HX_EXIT_OK;
}

static int run(arguments *given, int operands)
{
    hx_intents intents;
    int actions = given->resume + given->status + given->list + given->forget, code;
    const char *directory = given->directory ? given->directory : hx_send_directory(given->arena);
    if (given->error[0]) return failed(given, HX_EXIT_USAGE);
    if (actions > 1 || (actions == 0 && operands != 2) || (actions == 1 && operands > 1) ||
        (operands == 0 && (given->status || given->forget)))
        return hx_cmd_misused("send", "Give METHOD and URL, or one of --resume, --status, --list and --forget.");
    if (!directory || directory[0] != '/')
        return hx_cmd_misused("send", "Where are intents kept? Give --intents with a whole path.");
    if (!hx_intents_open(directory, &intents, given->error)) return failed(given, HX_EXIT_STORE);
    if (given->status)
        code = show_status(given, &intents);
    else if (given->forget)
        code = forget_one(given, &intents);
    else if (given->list)
        code = for_each(given, &intents, false, list_one);
    else if (given->resume)
        code = given->operand ? resume_one(given, &intents) : for_each(given, &intents, true, resume_next);
    else
        code = send_new(given, &intents);
    if (given->list) (void)for_each(given, &intents, true, remove_old);
    hx_intents_close(&intents);
    return code;
}

int hx_cmd_send(int argc, char **argv)
{
    hx_arena arena = {0};
    arguments given = {.arena = &arena};
    int first = 0;
    int code = hx_cmd_flags(argc, argv, 2, take, &given, &first);
    if (code < 0) {
        int operands = argc - first;
        given.operand = given.method = operands > 0 ? argv[first] : NULL;
        given.url = operands > 1 ? argv[first + 1] : NULL;
        code = run(&given, operands);
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
