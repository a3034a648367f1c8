/* SPDX-License-Identifier: Apache-2.0 */
/* hapax explain: what the gateway would do with a request, and why. The request comes as -X, -H, -d and a URL, as a
 * file of its bytes, or from a real client (explain/listen.c). Nothing is forwarded, and no store is opened. */
#include "base/check.h"
#include "base/log.h"
#include "base/program/read_file.h"
#include "base/text.h"
#include "cmd/cli/cmd.h"
#include "cmd/explain/listen.h"

#include <string.h>

#define BODY_BYTES_MAX (64u * 1024u * 1024u)
#define REQUEST_BYTES_MAX (BODY_BYTES_MAX + 1024u * 1024u)
#define HEADERS_MAX 256u

typedef struct {
    hx_cmd_config config;
    hx_arena *arena;
    bool json;
    const char *listen, *request_file;
    const char *url, *method;
    hx_slice headers[HEADERS_MAX];
    size_t header_count;
    hx_buf body;
    bool has_body;
    hx_slice error; /* the first mistake, a sentence */
} arguments;

/* As curl does it: several -d are joined by &, and a file loses its line ends. */
static void take_data(arguments *given, const char *value)
{
    hx_slice bytes = hx_slice_of(value);
    if (value[0] == '@') {
        if (!hx_read_file(value + 1, BODY_BYTES_MAX, given->arena, &bytes, &given->error)) return;
        char *kept = hx_arena_alloc(given->arena, bytes.len + 1);
        size_t len = 0;
        for (size_t i = 0; i < bytes.len; i++)
            if (bytes.ptr[i] != '\r' && bytes.ptr[i] != '\n' && bytes.ptr[i] != '\0') kept[len++] = bytes.ptr[i];
        bytes = (hx_slice){kept, len};
    }
    bool fits = (!given->has_body || hx_buf_byte(&given->body, '&')) && hx_buf_append(&given->body, bytes);
    if (!fits) given->error = HX_LIT("The body is longer than 64 MiB.");
    given->has_body = true;
}

static void take_header(arguments *given, const char *value)
{
    hx_slice header = hx_slice_of(value);
    hx_text_header pair;
    if (!hx_text_split_header(header, &pair) || pair.name.len == 0)
        given->error = hx_arena_printf(given->arena, "-H \"%.100s\" is not 'Name: value'.", value);
    else if (given->header_count == HEADERS_MAX)
        given->error = HX_LIT("-H is given more than 256 times.");
    else
        given->headers[given->header_count++] = header;
}

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    if (given->error.len > 0) return;
    if (strcmp(flag, "json") == 0)
        given->json = true;
    else if (strcmp(flag, "listen") == 0)
        given->listen = value;
    else if (strcmp(flag, "request-file") == 0)
        given->request_file = value;
    else if (strcmp(flag, "request") == 0)
        given->method = value;
    else if (strcmp(flag, "header") == 0)
        take_header(given, value);
    else if (strcmp(flag, "data") == 0)
        take_data(given, value);
    else
        (void)hx_cmd_config_take(&given->config, flag, value);
}

/* Takes a URL apart, "http://host:80/path?query#fragment" or "/path". */
static bool split_url(arguments *given, hx_slice *host, hx_slice *target)
{
    hx_slice url = hx_slice_of(given->url ? given->url : "");
    url = hx_slice_first(url, hx_slice_find(url, '#'));
    *host = HX_LIT("localhost");
    *target = url;
    if (hx_slice_starts(url, HX_LIT("/"))) return true;
    bool is_https = hx_slice_starts_nocase(url, HX_LIT("https://"));
    if (!is_https && !hx_slice_starts_nocase(url, HX_LIT("http://"))) {
        given->error = url.len == 0 ? HX_LIT("Which URL? Give it, or a path such as /refunds.")
                                    : hx_arena_printf(given->arena,
                                                      "\"%.100s\" is not a URL: give http://…, https://… or a path "
                                                      "such as /refunds.",
                                                      given->url);
        return false;
    }
    hx_slice rest = hx_slice_from(url, is_https ? 8 : 7);
    size_t slash = hx_slice_find(rest, '/'), query = hx_slice_find(rest, '?');
    *host = hx_slice_first(rest, slash < query ? slash : query);
    *target = hx_slice_from(rest, host->len);
    if (!hx_slice_starts(*target, HX_LIT("/"))) *target = hx_arena_printf(given->arena, "/%.*s", HX_FMT(*target));
    if (hx_slice_find(*host, '@') == SIZE_MAX) return true;
    given->error = HX_LIT("The URL has a user: give -H 'Authorization: …' instead.");
    return false;
}

static bool has_header(const arguments *given, const char *name)
{
    for (size_t i = 0; i < given->header_count; i++) {
        hx_text_header header;
        bool is_pair = hx_text_split_header(given->headers[i], &header);
        if (is_pair && hx_slice_eq_nocase(header.name, hx_slice_of(name))) return true;
    }
    return false;
}

/* The request of the flags as bytes; false: given->error. */
static bool write_request(arguments *given, hx_slice *bytes)
{
    hx_slice host, target;
    hx_buf out;
    if (!split_url(given, &host, &target)) return false;
    hx_buf_init(&out, given->arena, SIZE_MAX / 2); /* its parts are bounded */
    hx_buf_puts(&out, given->method ? given->method : given->has_body ? "POST" : "GET");
    hx_buf_puts(&out, " ");
    hx_buf_put(&out, target);
    hx_buf_puts(&out, " HTTP/1.1\r\n");
    if (!has_header(given, "Host")) hx_buf_put(&out, hx_arena_printf(given->arena, "Host: %.*s\r\n", HX_FMT(host)));
    for (size_t i = 0; i < given->header_count; i++) {
        hx_buf_put(&out, given->headers[i]);
        hx_buf_puts(&out, "\r\n");
    }
    if (given->has_body && !has_header(given, "Content-Type"))
        hx_buf_puts(&out, "Content-Type: application/x-www-form-urlencoded\r\n");
    if (given->has_body && !has_header(given, "Content-Length") && !has_header(given, "Transfer-Encoding"))
        hx_buf_put(&out, hx_arena_printf(given->arena, "Content-Length: %zu\r\n", given->body.len));
    hx_buf_puts(&out, "\r\n");
    if (given->body.len > 0) hx_buf_put(&out, hx_buf_slice(&given->body));
    *bytes = hx_buf_slice(&out);
    return true;
}

/* A file written by hand has bare line feeds in its head, and no Content-Length: both are mended. */
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

/* The bytes to explain; false: given->error. */
static bool read_request(arguments *given, hx_slice *bytes)
{
    if (!given->request_file) return write_request(given, bytes);
    if (!hx_read_file(given->request_file, REQUEST_BYTES_MAX, given->arena, bytes, &given->error)) return false;
    *bytes = mended(*bytes, given->arena);
    return true;
}

static int explain(const hx_config *config, hx_slice bytes, bool as_json)
{
    hx_error_text error;
    hx_explanation explanation;
    hx_jwks *jwks;
    if (!hx_dry_run_open_keys(config, &jwks, error)) {
        (void)fprintf(stderr, "hapax explain: %s\n", error);
        return HX_EXIT_USAGE;
    }
    hx_dry_run *run = hx_dry_run_bytes(config, jwks, bytes);
    hx_explain(run, &explanation);
    if (as_json) {
        hx_buf json;
        hx_buf_init(&json, NULL, hx_explain_json_max(config));
        hx_explain_json(run, &explanation, &json);
        (void)fwrite(json.data, 1, json.len, stdout);
        hx_buf_free(&json);
    } else {
        hx_explain_text(run, &explanation, stdout);
    }
    hx_dry_run_free(&run);
    hx_jwks_free(&jwks);
    return HX_EXIT_OK;
}

static int run(int argc, char **argv, arguments *given)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, take, given, &operands);
    if (code >= 0) return code;
    if (given->error.len > 0) return hx_cmd_misused(argv[0], "%.*s", HX_FMT(given->error));
    if (operands < argc) given->url = argv[operands];
    bool has_flags = given->url || given->method || given->header_count > 0 || given->has_body;
    if ((given->listen != NULL) + (given->request_file != NULL) + has_flags > 1)
        return hx_cmd_misused(argv[0], "give the request by flags, by --request-file or to --listen: only one of them");
    hx_slice bytes = HX_EMPTY;
    if (!given->listen && !read_request(given, &bytes)) return hx_cmd_misused(argv[0], "%.*s", HX_FMT(given->error));
    if (!given->config.file && !given->config.overrides.upstream)
        given->config.overrides.upstream = "http://127.0.0.1:3000"; /* required by the loader; never connected to */
    hx_log_threshold(HX_LOG_ERROR);
    hx_config *config = hx_cmd_config_load(argv[0], &given->config);
    if (!config) return HX_EXIT_USAGE;
    code = given->listen ? hx_explain_listen(config, given->listen, given->json) : explain(config, bytes, given->json);
    hx_config_free(&config);
    return code;
}

int hx_cmd_explain(int argc, char **argv)
{
    hx_arena arena = {0};
    arguments given = {.arena = &arena, .error = HX_EMPTY};
    hx_buf_init(&given.body, &arena, BODY_BYTES_MAX);
    int code = run(argc, argv, &given);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
