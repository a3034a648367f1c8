/* SPDX-License-Identifier: Apache-2.0 */
/* hapax verify: checks the signature of a webhook that was kept, and says what is wrong with it; or, with --sign, makes
 * the headers of one to send. */
#include "admin/filter.h"
#include "base/check.h"
#include "base/program/read_file.h"
#include "base/rand.h"
#include "base/text.h"
#include "cmd/cli/cmd.h"
#include "cmd/webhook/report.h"
#include "config/problems.h"

#include <string.h>

#define BODY_BYTES_MAX (32u * 1024u * 1024u) /* GitHub sends up to 25 MB */
#define HEADERS_MAX 256u

typedef struct {
    hx_verify_flags flags;
    hx_arena *arena;
    const char *at, *id, *body_file;
    bool sign, json;
    hx_text_header headers[HEADERS_MAX];
    size_t header_count;
    hx_slice error; /* the first mistake, a sentence */
} arguments;

static void take_header(arguments *given, const char *value)
{
    hx_text_header pair;
    if (!hx_text_split_header(hx_slice_of(value), &pair) || pair.name.len == 0)
        given->error = hx_arena_printf(given->arena, "-H %s is not 'Name: value'.",
                                       hx_quoted(given->arena, hx_slice_of(value)));
    else if (given->header_count == HEADERS_MAX)
        given->error = HX_LIT("-H is given more than 256 times.");
    else
        given->headers[given->header_count++] = pair;
}

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    if (given->error.len > 0 || hx_verify_take(&given->flags, flag, value)) return;
    if (strcmp(flag, "header") == 0)
        take_header(given, value);
    else if (strcmp(flag, "at") == 0)
        given->at = value;
    else if (strcmp(flag, "id") == 0)
        given->id = value;
    else if (strcmp(flag, "sign") == 0)
        given->sign = true;
    else
        given->json = true;
}

static size_t find_header(const void *user, hx_slice name, hx_slice *value)
{
    const arguments *given = user;
    size_t lines = 0;
    for (size_t i = 0; i < given->header_count; i++) {
        if (!hx_slice_eq_nocase(name, given->headers[i].name)) continue;
        if (lines++ == 0) *value = given->headers[i].value;
    }
    return lines;
}

/* Seconds since 1970, as headers have them, or what `hapax keys --since` takes. */
static bool read_at(arguments *given, hx_ms *at)
{
    uint64_t seconds;
    *at = hx_clock_wall();
    if (!given->at) return true;
    if (hx_slice_to_u64(hx_slice_of(given->at), &seconds) && seconds <= (uint64_t)(36500 * HX_DAY / HX_SECOND)) {
        *at = (hx_ms)seconds * HX_SECOND;
        return true;
    }
    if (hx_filter_time(hx_slice_of(given->at), *at, at)) return true;
    given->error =
        HX_LIT("--at must be a time such as 2026-02-19T12:00:00Z, seconds since 1970, or an age such as 2h.");
    return false;
}

/* Prints the headers, for `curl -H @FILE`; returns an exit code, or -1 with given->error. */
static int sign(arguments *given, const hx_verify_settings *settings, hx_slice body, hx_ms at)
{
    const hx_webhook_scheme *scheme = &settings->scheme;
    uint8_t random[16];
    hx_rand_bytes(random, sizeof random);
    hx_buf made;
    hx_buf_init(&made, given->arena, 64);
    hx_buf_puts(&made, "msg_");
    hx_buf_put_hex(&made, random, sizeof random);
    hx_slice id = given->id ? hx_slice_of(given->id) : hx_buf_slice(&made), value;
    if (scheme->form != HX_WEBHOOK_VERSIONS)
        given->error = HX_LIT("--sign is for --scheme standard and svix.");
    else if (given->json || given->header_count > 0)
        given->error = HX_LIT("--sign makes headers: it takes neither -H nor --json.");
    else if (!hx_webhook_is_id(id))
        given->error = HX_LIT("--id must be 1 to 255 visible ASCII characters without a dot.");
    else if (!hx_webhook_sign(settings->secrets, settings->secret_count, id, at / HX_SECOND, body, given->arena,
                              &value))
        given->error = HX_LIT("whpk_ is a public key, which can't sign: give whsec_ or whsk_.");
    if (given->error.len > 0) return -1;
    (void)printf("%s: %.*s\n%s: %lld\n%s: %.*s\n", scheme->id_header, HX_FMT(id), scheme->timestamp_header,
                 (long long)(at / HX_SECOND), scheme->signature_header, HX_FMT(value));
    return HX_EXIT_OK;
}

static int verify(const arguments *given, const hx_verify_settings *settings, hx_slice body, hx_ms at)
{
    hx_webhook_request request = {.find_header = find_header, .user = given, .body = body};
    hx_webhook_rules rules = hx_verify_rules(settings);
    hx_webhook_result result;
    hx_verify_diagnosis diagnosis;
    hx_verify_report report = {.settings = settings, .request = &request, .result = &result};
    if (hx_webhook_verify(&rules, &request, at, given->arena, &result) != HX_WEBHOOK_OK) {
        hx_verify_diagnose(settings, &request, &result, given->arena, &diagnosis);
        report.diagnosis = &diagnosis;
    }
    if (given->json)
        hx_verify_print_json(&report, stdout, given->arena);
    else
        hx_verify_print_text(&report, stdout, given->arena);
    return result.error == HX_WEBHOOK_OK ? HX_EXIT_OK : HX_EXIT_NO;
}

/* Returns an exit code, or -1 with given->error. */
static int run(arguments *given)
{
    hx_verify_settings settings;
    hx_slice body;
    hx_ms at;
    bool body_is_stdin = given->body_file && strcmp(given->body_file, "-") == 0;
    for (size_t i = 0; i < given->flags.secret_count && body_is_stdin; i++)
        if (!given->flags.secrets[i].is_variable && hx_slice_eq(given->flags.secrets[i].name, HX_LIT("-")))
            given->error = HX_LIT("Standard input can't be both the secret and the body.");
    if (!given->body_file) given->error = HX_LIT("Which body? Give its file, or - for standard input.");
    if (given->id && !given->sign) given->error = HX_LIT("--id is for --sign.");
    if (given->error.len > 0 || !read_at(given, &at)) return -1;
    if (!hx_verify_read(&given->flags, given->arena, &settings, &given->error)) return -1;
    if (!hx_read_file(given->body_file, BODY_BYTES_MAX, given->arena, &body, &given->error)) return -1;
    return given->sign ? sign(given, &settings, body, at) : verify(given, &settings, body, at);
}

int hx_cmd_verify(int argc, char **argv)
{
    hx_arena arena = {0};
    arguments given = {.arena = &arena, .error = HX_EMPTY};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, take, &given, &operands);
    if (code < 0) {
        if (operands < argc) given.body_file = argv[operands];
        if (given.error.len == 0) code = run(&given);
        if (code < 0) code = hx_cmd_misused(argv[0], "%.*s", HX_FMT(given.error));
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
