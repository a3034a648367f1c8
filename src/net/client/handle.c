/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl never sends a request a second time: it would, on a connection that was kept and is cut before a byte of the
 * response came, although the server may have acted on the request. It asks before each time (about_to_send).
 *
 * libcurl never looks up a name: the addresses that we found are put into its cache with every request, and its own
 * resolver is refused (resolver_started). */
#include "net/client/handle.h"

#include "base/check.h"
#include "base/text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECEIVE_BYTES 4096L
#define TLS_RECORD_BYTES 16384L

/* URLs */

/* Only what every parser of URLs reads alike is left to libcurl's. */
static const char *check_url(hx_slice url)
{
    bool is_http = hx_slice_starts_nocase(url, HX_LIT("http://"));
    if (!is_http && !hx_slice_starts_nocase(url, HX_LIT("https://")))
        return "the URL must start with http:// or https://";
    if (url.len > HX_CLIENT_URL_BYTES_MAX) return "the URL is too long";
    bool is_authority = true;
    size_t start = is_http ? sizeof "http://" - 1 : sizeof "https://" - 1;
    if (start == url.len || url.ptr[start] == '/') return "the URL must have a host";
    for (size_t i = start; i < url.len; i++) {
        char c = url.ptr[i];
        if (c <= ' ' || c > '~' || c == '\\') return "the URL has a byte that must be percent-encoded";
        if (c == '#') return "the URL must have no fragment";
        if (c == '/' || c == '?') is_authority = false;
        if (is_authority && c == '%') return "the host in the URL must not be percent-encoded";
    }
    return NULL;
}

/* A name as DNS has it. One whose last label is a number is an address that some parsers can't read. */
static const char *check_name(hx_slice name)
{
    static const char wrong[] = "the host in the URL is neither a name nor an address";
    if (name.len == 0 || name.len > 253) return wrong;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-' && c != '_' && c != '.') return wrong;
    }
    hx_slice rest = name, label = HX_EMPTY;
    uint64_t number;
    while (hx_slice_next(&rest, '.', &label))
        if (label.len == 0) return wrong;
    if (name.ptr[name.len - 1] == '.') return "the host in the URL must not end with a dot";
    return hx_slice_to_u64(label, &number) || hx_slice_starts(label, HX_LIT("0x")) ? wrong : NULL;
}

static const char *read_host(char *host, hx_client_address *address)
{
    struct in6_addr unused;
    size_t len = strlen(host);
    if (host[0] == '[' && len > 2) {
        host[len - 1] = '\0';
        host++;
    }
    for (len = 0; host[len] != '\0' && len < sizeof address->name - 1; len++) address->name[len] = hx_lower(host[len]);
    address->name[len] = '\0';
    if (host[len] != '\0') return "the host in the URL is too long";
    bool is_address = inet_pton(AF_INET, host, &unused) == 1 || inet_pton(AF_INET6, host, &unused) == 1;
    address->is_name = !is_address;
    return is_address ? NULL : check_name((hx_slice){address->name, len});
}

CURLU *hx_handle_parse(const hx_libcurl *curl, hx_slice url, hx_client_address *address, const char **reason)
{
    char text[HX_CLIENT_URL_BYTES_MAX + 1], *host = NULL, *port = NULL;
    uint64_t number = 0;
    *reason = check_url(url);
    if (*reason) return NULL;
    (void)snprintf(text, sizeof text, "%.*s", HX_FMT(url));
    CURLU *parsed = curl->url();
    if (!parsed) hx_fatal(HX_EXIT_BUG, "out of memory");
    CURLUcode code = curl->url_set(parsed, CURLUPART_URL, text, CURLU_DISALLOW_USER | CURLU_PATH_AS_IS);
    if (code == CURLUE_OK) code = curl->url_get(parsed, CURLUPART_HOST, &host, 0);
    if (code == CURLUE_OK) code = curl->url_get(parsed, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT);
    if (code != CURLUE_OK)
        *reason = curl->url_strerror(code);
    else if (!hx_slice_to_u64(hx_slice_of(port), &number) || number == 0 || number > 65535)
        *reason = "the port in the URL must be between 1 and 65535";
    else
        *reason = read_host(host, address);
    address->port = (uint16_t)number;
    curl->free(host);
    curl->free(port);
    if (!*reason) return parsed;
    curl->url_cleanup(parsed);
    return NULL;
}

/* Callbacks of libcurl. None of them calls anything of the client's. */

static int resolver_started(void *resolver, void *unused, void *context)
{
    const hx_handle *h = context;
    (void)resolver;
    (void)unused;
    return h->is_name; /* it reads an address by the same way */
}

static bool may_dial(hx_handle *h, const struct sockaddr *address)
{
    bool is_allowed = hx_guard_allows(h->guard, address, h->denied_text);
    h->is_denied = h->is_denied || !is_allowed;
    return is_allowed;
}

static void note_remote(hx_handle *h, const char *address, unsigned port)
{
    (void)snprintf(h->remote, sizeof h->remote, strchr(address, ':') ? "[%s]:%u" : "%s:%u", address, port);
}

static uint64_t bytes_sent(const hx_handle *h)
{
    long sent = 0;
    if (!h->is_connected) return 0;
    (void)h->curl->easy_getinfo(h->easy, CURLINFO_REQUEST_SIZE, &sent);
    return sent > 0 ? (uint64_t)sent : 0;
}

/* Whether what libcurl is about to do serves to send the request a second time. */
static bool is_resend(hx_handle *h)
{
    h->is_resend = h->is_connected && (h->is_tls || bytes_sent(h) > 0);
    return h->is_resend;
}

static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    hx_handle *h = context;
    char text[INET6_ADDRSTRLEN];
    if (purpose != CURLSOCKTYPE_IPCXN || is_resend(h)) return hx_multi_open_socket(h->multi, h->easy, NULL);
    h->is_connected = false;
    if (!may_dial(h, &address->addr)) return hx_multi_open_socket(h->multi, h->easy, NULL);
    const struct sockaddr_in *v4 = (const void *)&address->addr;
    const struct sockaddr_in6 *v6 = (const void *)&address->addr;
    bool is_v4 = address->family == AF_INET;
    if (inet_ntop(address->family, is_v4 ? (const void *)&v4->sin_addr : &v6->sin6_addr, text, sizeof text))
        note_remote(h, text, ntohs(is_v4 ? v4->sin_port : v6->sin6_port));
    return hx_multi_open_socket(h->multi, h->easy, address);
}

/* The connection is there, new or kept, and the request comes next. */
static int about_to_send(void *context, char *remote, char *local, int remote_port, int local_port)
{
    hx_handle *h = context;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    (void)local;
    (void)local_port;
    if (is_resend(h)) return CURL_PREREQFUNC_ABORT;
    h->is_connected = false;
    bool is_v4 = inet_pton(AF_INET, remote, &v4.sin_addr) == 1;
    if (!is_v4 && inet_pton(AF_INET6, remote, &v6.sin6_addr) != 1) return CURL_PREREQFUNC_ABORT;
    note_remote(h, remote, (unsigned)remote_port);
    if (!may_dial(h, is_v4 ? (const void *)&v4 : &v6)) return CURL_PREREQFUNC_ABORT;
    h->is_connected = true;
    h->sends++;
    return CURL_PREREQFUNC_OK;
}

static void copy(char *out, size_t size, hx_slice value)
{
    (void)snprintf(out, size, "%.*s", HX_FMT(hx_slice_first(value, size - 1)));
}

static size_t head_came(char *bytes, size_t size, size_t count, void *context)
{
    hx_handle *h = context;
    hx_slice line = {bytes, size * count};
    hx_text_header header;
    h->head_bytes += line.len;
    if (line.len == 0 || h->head_bytes > HX_CLIENT_HEAD_BYTES_MAX) return 0;
    if (hx_slice_starts(line, HX_LIT("HTTP/"))) {
        h->retry_after[0] = h->content_type[0] = '\0'; /* of an interim response */
        h->head.len = 0;
        h->has_head = false;
    } else if (line.ptr[0] == '\r' || line.ptr[0] == '\n') {
        h->has_head = true;
    } else if (hx_text_split_header(line, &header)) {
        if (hx_slice_eq_nocase(header.name, HX_LIT("retry-after")))
            copy(h->retry_after, sizeof h->retry_after, header.value);
        else if (hx_slice_eq_nocase(header.name, HX_LIT("content-type")))
            copy(h->content_type, sizeof h->content_type, header.value);
        if (h->request->keeps_head && !hx_buf_append(&h->head, line)) return 0;
    }
    return line.len;
}

static size_t body_came(char *bytes, size_t size, size_t count, void *context)
{
    hx_handle *h = context;
    hx_slice piece = {bytes, size * count};
    h->body_bytes += piece.len;
    hx_slice kept = hx_slice_first(piece, h->body.max - h->body.len);
    if (kept.len > 0 && !hx_buf_append(&h->body, kept)) return 0;
    h->has_enough = h->body_bytes - h->body.len > HX_CLIENT_DISCARDED_BYTES_MAX;
    return h->has_enough ? 0 : piece.len;
}

/* Requests */

static bool make_easy(hx_handle *h, const hx_client_limits *limits)
{
    bool good = true;
    h->easy = h->curl->easy_init();
    if (!h->easy) hx_fatal(HX_EXIT_BUG, "out of memory");
#define SET(option, value) good = good && h->curl->easy_setopt(h->easy, CURLOPT_##option, (value)) == CURLE_OK
    SET(PRIVATE, h);
    SET(HTTPHEADER, h->lines);
    SET(ERRORBUFFER, h->error_text);
    SET(USERAGENT, "Hapax/" HAPAX_VERSION);
    SET(RESOLVER_START_FUNCTION, resolver_started);
    SET(RESOLVER_START_DATA, h);
    SET(OPENSOCKETFUNCTION, open_socket);
    SET(OPENSOCKETDATA, h);
    SET(CLOSESOCKETFUNCTION, hx_multi_close_socket);
    SET(CLOSESOCKETDATA, h->multi);
    SET(PREREQFUNCTION, about_to_send);
    SET(PREREQDATA, h);
    SET(HEADERFUNCTION, head_came);
    SET(HEADERDATA, h);
    SET(WRITEFUNCTION, body_came);
    SET(WRITEDATA, h);
    SET(PROTOCOLS_STR, "http,https");
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(FOLLOWLOCATION, 0L);
    SET(PROXY, "");
    SET(NOPROXY, "*");
    SET(DNS_CACHE_TIMEOUT, -1L);
    SET(NETRC, (long)CURL_NETRC_IGNORED);
    SET(NOSIGNAL, 1L);
    SET(SSL_VERIFYPEER, 1L);
    SET(SSL_VERIFYHOST, 2L);
    SET(SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(MAXAGE_CONN, (long)((limits->idle_timeout + HX_SECOND - 1) / HX_SECOND));
    SET(BUFFERSIZE, RECEIVE_BYTES);
    SET(UPLOAD_BUFFERSIZE, TLS_RECORD_BYTES);
    if (limits->ca_file) SET(CAINFO, limits->ca_file);
    return good;
}

hx_handle *hx_handle_new(const hx_libcurl *curl, hx_multi *multi, const hx_guard *guard, const hx_client_limits *limits)
{
    hx_handle *h = calloc(1, sizeof *h);
    if (!h) hx_fatal(HX_EXIT_BUG, "out of memory");
    h->curl = curl;
    h->multi = multi;
    h->guard = guard;
    hx_list_init(&h->link);
    hx_buf_init(&h->text, NULL, HX_CLIENT_HEAD_BYTES_MAX);
    hx_buf_init(&h->head, NULL, HX_CLIENT_HEAD_BYTES_MAX);
    if (!make_easy(h, limits)) hx_handle_free(&h);
    return h;
}

void hx_handle_renew(hx_handle *h, const hx_client_limits *limits)
{
    h->curl->easy_cleanup(h->easy);
    bool good = make_easy(h, limits);
    HX_CHECK(good);
}

void hx_handle_free(hx_handle **owned)
{
    if (!*owned) return;
    (*owned)->curl->easy_cleanup((*owned)->easy);
    hx_buf_free(&(*owned)->text);
    hx_buf_free(&(*owned)->head);
    hx_buf_free(&(*owned)->body);
    free(*owned);
    *owned = NULL;
}

static bool is_ours(hx_slice name)
{
    static const char *const names[] = {"host", "content-length", "transfer-encoding", "connection", "expect",
                                        "te",   "upgrade"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (hx_slice_eq_nocase(name, hx_slice_of(names[i]))) return true;
    return false;
}

/* Splits the copy of the caller's lines into libcurl's list; a line that is empty but for its name would remove a line
 * of libcurl's own, and has another form there. */
static const char *put_lines(hx_handle *h, hx_slice lines)
{
    static const char malformed[] = "a header line is malformed";
    size_t count = 0;
    bool has_type = false;
    hx_text_header header;
    h->text.len = 0;
    if (!hx_buf_append(&h->text, lines) || !hx_buf_byte(&h->text, '\0')) return "the header lines are too long";
    h->lines[count++].data = "Expect:";
    for (hx_slice rest = {h->text.data, lines.len}; hx_text_next_header(&rest, &header);) {
        if (!hx_slice_is_token(header.name) || !hx_slice_ends(header.line, HX_LIT("\r\n"))) return malformed;
        if (is_ours(header.name)) return "a header line is one that only the client itself may send";
        if (count > HX_CLIENT_HEADER_LINES_MAX) return "there are too many header lines";
        char *line = h->text.data + (header.line.ptr - h->text.data);
        line[header.line.len - 2] = '\0';
        for (size_t i = 0; i < header.line.len - 2; i++)
            if ((line[i] >= 0 && line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f) return malformed;
        if (header.value.len == 0) memcpy(line + header.name.len, ";", sizeof ";");
        if (hx_slice_eq_nocase(header.name, HX_LIT("content-type"))) has_type = true;
        h->lines[count++].data = line;
    }
    if (!has_type) h->lines[count++].data = "Content-Type:"; /* or a body would be a form's */
    for (size_t i = 0; i < count; i++) h->lines[i].next = i + 1 < count ? &h->lines[i + 1] : NULL;
    return NULL;
}

static void put_addresses(hx_handle *h, const hx_client_address *address, const char *addresses)
{
    (void)snprintf(h->removed_text, sizeof h->removed_text, "-%s:%u", h->last.name, h->last.port);
    (void)snprintf(h->resolved_text, sizeof h->resolved_text, "%s:%u:%s", address->name, address->port, addresses);
    h->resolved[0] = (struct curl_slist){.data = h->removed_text, .next = &h->resolved[1]};
    h->resolved[1] = (struct curl_slist){.data = h->resolved_text};
    h->last = *address;
}

const char *hx_handle_take(hx_handle *h, hx_client_request *request, const hx_client_address *address,
                           const char *addresses)
{
    char method[32];
    bool good = hx_slice_is_token(request->method) && request->method.len < sizeof method;
    if (!good) return "the method is malformed";
    copy(method, sizeof method, request->method);
    const char *wrong = put_lines(h, request->header_lines);
    if (wrong) return wrong;
    h->request = request;
    h->is_name = address->is_name;
    h->is_tls = hx_slice_starts_nocase(request->url, HX_LIT("https:"));
    h->is_connected = h->is_denied = h->is_resend = h->has_head = h->has_enough = false;
    h->head_bytes = h->body_bytes = 0;
    h->sends = 0;
    h->retry_after[0] = h->content_type[0] = h->remote[0] = h->error_text[0] = '\0';
    h->body.max = request->body_kept_max;
    h->body.len = h->head.len = 0;
    if (address->is_name) put_addresses(h, address, addresses);
    bool is_head = hx_slice_eq(request->method, HX_LIT("HEAD")), has_body = request->body.len > 0;
    bool may_have_body = !is_head && !hx_slice_eq(request->method, HX_LIT("GET"));
    SET(URL, NULL); /* or the handle would remember the one before */
    SET(CURLU, request->own.url);
    SET(RESOLVE, address->is_name ? h->resolved : NULL);
    SET(CONNECTTIMEOUT_MS, (long)request->connect_timeout);
    SET(POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
    SET(POSTFIELDS, has_body ? request->body.ptr : "");
    if (!has_body && is_head)
        SET(NOBODY, 1L);
    else if (!has_body && !may_have_body)
        SET(HTTPGET, 1L);
    else
        SET(POST, 1L);
    SET(CUSTOMREQUEST, method);
#undef SET
    return good ? NULL : "libcurl refuses the request";
}

/* 0: no head of a final response came. libcurl is content with a part of one. */
static uint16_t status_of(const hx_handle *h)
{
    long status = 0;
    (void)h->curl->easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &status);
    return h->has_head && status >= 200 ? (uint16_t)status : 0;
}

hx_client_error hx_handle_judge(const hx_handle *h, CURLcode code, const char **reason)
{
    *reason = h->error_text[0] != '\0' ? h->error_text : h->curl->easy_strerror(code);
    if (code == CURLE_OK || h->has_enough) {
        if (status_of(h) >= 200) return HX_CLIENT_NONE;
        *reason = "the response ended before it was complete";
        return HX_CLIENT_RESET;
    }
    if (h->is_denied && !h->is_connected) {
        *reason = h->denied_text;
        return HX_CLIENT_DENIED;
    }
    if (h->head_bytes > HX_CLIENT_HEAD_BYTES_MAX) {
        *reason = "the head of the response has more than 64 KiB";
        return HX_CLIENT_BROKEN;
    }
    if (h->is_resend) {
        *reason = "the connection was cut before a response came";
        return HX_CLIENT_RESET;
    }
    switch (code) {
    case CURLE_OPERATION_TIMEDOUT: return HX_CLIENT_TIMEOUT;
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9 */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING: return HX_CLIENT_BROKEN;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT: return HX_CLIENT_UNREACHABLE;
    default: return h->is_connected ? HX_CLIENT_RESET : h->is_tls ? HX_CLIENT_TLS : HX_CLIENT_UNREACHABLE;
    }
}

void hx_handle_report(const hx_handle *h, hx_client_result *result)
{
    result->status = status_of(h);
    result->bytes_sent = bytes_sent(h);
    /* A record may be half-written, and what is written of it is not counted. */
    if (result->bytes_sent == 0 && h->is_tls && h->is_connected) result->bytes_sent = 1;
    result->retry_after = hx_slice_of(h->retry_after);
    result->content_type = hx_slice_of(h->content_type);
    result->head = hx_buf_slice(&h->head);
    result->body = hx_buf_slice(&h->body);
    result->body_is_cut = h->body_bytes > h->body.len;
    result->remote = hx_slice_of(h->remote);
}
