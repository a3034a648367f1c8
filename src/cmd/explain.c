/* SPDX-License-Identifier: Apache-2.0 */
/* hapax explain: what the gateway would make of a request, and why. The request comes as curl's flags, as a whole curl
 * command line, or as the bytes of a raw one; nothing is sent, and no store is opened. */
#include "base/check.h"
#include "base/log.h"
#include "cmd/cli/cmd.h"
#include "cmd/explain/curl_line.h"
#include "cmd/explain/collect.h"

#include <string.h>

#define REQUEST_BYTES_MAX (HX_CURL_BODY_BYTES_MAX + 1024u * 1024u)
#define JSON_BYTES_MAX (1024u * 1024u)

typedef struct {
    hx_cmd_config config;
    bool json;
    const char *curl_line;
    const char *request_file;
    bool has_curl_flags;
    bool is_wrong; /* curl.error says what */
    hx_curl curl;
} arguments;

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    if (strcmp(flag, "json") == 0) {
        given->json = true;
    } else if (strcmp(flag, "curl") == 0) {
        given->curl_line = value;
    } else if (strcmp(flag, "request-file") == 0) {
        given->request_file = value;
    } else if (!hx_cmd_config_take(&given->config, flag, value)) {
        given->has_curl_flags = true;
        /* The first mistake is the one that is told. */
        if (!given->is_wrong)
            given->is_wrong = !hx_curl_take(&given->curl, hx_slice_of(flag), value ? hx_slice_of(value) : HX_EMPTY);
    }
}

/* A file that people wrote has bare line feeds in its head, and no Content-Length: it is meant as if it had. */
static hx_slice mended(hx_slice bytes, hx_arena *arena)
{
    size_t end = 0, gap = 0;
    for (size_t i = 0; i < bytes.len && gap == 0; i++) {
        if (bytes.ptr[i] == '\r') return bytes;
        if (bytes.ptr[i] != '\n' || (i + 1 < bytes.len && bytes.ptr[i + 1] != '\n')) continue;
        end = i;
        gap = i + 1 < bytes.len ? 2 : 1;
    }
    if (gap == 0) return bytes;
    hx_slice head = hx_slice_first(bytes, end), body = hx_slice_from(bytes, end + gap), row;
    hx_buf out;
    bool has_length = false;
    hx_buf_init(&out, arena, 2 * bytes.len + 64);
    while (hx_slice_next(&head, '\n', &row)) {
        has_length = has_length || hx_slice_starts_nocase(row, HX_LIT("content-length:")) ||
                     hx_slice_starts_nocase(row, HX_LIT("transfer-encoding:"));
        hx_buf_put(&out, row);
        hx_buf_puts(&out, "\r\n");
    }
    if (!has_length && body.len > 0) {
        hx_buf_puts(&out, "Content-Length: ");
        hx_buf_put_decimal(&out, body.len);
        hx_buf_puts(&out, "\r\n");
    }
    hx_buf_puts(&out, "\r\n");
    hx_buf_put(&out, body);
    return hx_buf_slice(&out);
}

/* The request of a command line, which may itself come from standard input. */
static bool read_curl_line(arguments *given, hx_arena *arena)
{
    hx_curl *curl = &given->curl;
    hx_slice line = hx_slice_of(given->curl_line), *words;
    size_t count;
    if (strcmp(given->curl_line, "-") == 0) {
        curl->stdin_used = true;
        if (!hx_cmd_read_file("-", HX_CURL_LINE_BYTES_MAX, arena, &line, &curl->error)) return false;
    }
    return hx_shell_split(line, arena, &words, &count, &curl->error) && hx_curl_take_words(curl, words, count);
}

/* The bytes to explain; false after a message. */
static bool read_request(arguments *given, hx_arena *arena, hx_slice *bytes)
{
    hx_curl *curl = &given->curl;
    if (given->request_file) {
        if (!hx_cmd_read_file(given->request_file, REQUEST_BYTES_MAX, arena, bytes, &curl->error)) return false;
        *bytes = mended(*bytes, arena);
        return true;
    }
    hx_buf out;
    hx_buf_init(&out, arena, REQUEST_BYTES_MAX);
    if (given->curl_line && !read_curl_line(given, arena)) return false;
    if (given->is_wrong || !hx_curl_write(curl, &out)) return false;
    *bytes = hx_buf_slice(&out);
    return true;
}

static int explain(const hx_config *config, hx_slice bytes, bool as_json)
{
    char error[HX_JWKS_ERROR_BYTES];
    hx_explanation explanation;
    hx_dry_run *rehearsal = hx_rehearse(config, bytes, error);
    if (!rehearsal) {
        (void)fprintf(stderr, "hapax explain: %s\n", error);
        return HX_EXIT_USAGE;
    }
    hx_explain(rehearsal, &explanation);
    if (as_json) {
        hx_buf json;
        hx_buf_init(&json, NULL, JSON_BYTES_MAX);
        hx_explain_json(rehearsal, &explanation, &json);
        (void)fwrite(json.data, 1, json.len, stdout);
        hx_buf_free(&json);
    } else {
        hx_explain_text(rehearsal, &explanation, stdout);
    }
    hx_dry_run_free(&rehearsal);
    return HX_EXIT_OK;
}

static int run(int argc, char **argv, arguments *given, hx_arena *arena)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, take, given, &operands);
    if (code >= 0) return code;
    bool has_flags = given->has_curl_flags || operands < argc;
    if ((given->curl_line != NULL) + (given->request_file != NULL) + has_flags > 1)
        return hx_cmd_misused(argv[0], "give the request by flags, by --curl or by --request-file, not by two of them");
    if (!given->is_wrong && operands < argc)
        given->is_wrong = !hx_curl_take(&given->curl, HX_LIT("url"), hx_slice_of(argv[operands]));
    hx_slice bytes;
    if (!read_request(given, arena, &bytes)) return hx_cmd_misused(argv[0], "%.*s", HX_FMT(given->curl.error));
    if (!given->config.file && !given->config.overrides.upstream)
        given->config.overrides.upstream = "http://127.0.0.1:3000"; /* what `serve` wants, and nobody is asked */
    hx_log_threshold(HX_LOG_ERROR);
    hx_config *config = hx_cmd_config_load(argv[0], &given->config);
    if (!config) return HX_EXIT_USAGE;
    code = explain(config, bytes, given->json);
    hx_config_free(&config);
    return code;
}

int hx_cmd_explain(int argc, char **argv)
{
    hx_arena arena = {0};
    arguments given = {0};
    hx_curl_init(&given.curl, &arena);
    int code = run(argc, argv, &given, &arena);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
