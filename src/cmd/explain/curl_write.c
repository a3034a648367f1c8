/* SPDX-License-Identifier: Apache-2.0 */
/* What curl would write for the flags it was given: request line, headers in curl's order, body. */
#include "cmd/explain/curl_line.h"

static bool fail(hx_curl *curl, const char *sentence)
{
    curl->error = hx_slice_of(sentence);
    return false;
}

typedef struct {
    hx_slice host;
    hx_slice target;
    hx_slice user; /* before an @ in the URL */
} place;

static bool check_target(hx_curl *curl, hx_slice target)
{
    for (size_t i = 0; i < target.len; i++) {
        char c = target.ptr[i];
        if (c <= ' ' || c == 0x7f)
            return fail(curl, "The URL holds a space or a control byte: percent-encode it (%20).");
        if (!curl->globs_off && (c == '{' || c == '}' || c == '[' || c == ']'))
            return fail(curl, "The URL holds braces or brackets, which are a pattern to curl: put a value there, "
                              "percent-encode them, or add -g.");
    }
    return true;
}

/* "http://user@host:80/path?query#fragment", "host/path" or "/path". */
static bool find_place(hx_curl *curl, place *out)
{
    hx_slice rest = hx_slice_first(curl->url, hx_slice_find(curl->url, '#'));
    *out = (place){.host = HX_LIT("localhost"), .target = rest, .user = HX_EMPTY};
    if (curl->url.len == 0) return fail(curl, "Which URL? Give it, or a path such as /refunds.");
    if (rest.len == 0 || rest.ptr[0] != '/') {
        const hx_slice schemes[] = {HX_LIT("http://"), HX_LIT("https://")};
        bool has_scheme = false;
        for (size_t i = 0; i < 2 && !has_scheme; i++) {
            has_scheme = hx_slice_starts_nocase(rest, schemes[i]);
            if (has_scheme) rest = hx_slice_from(rest, schemes[i].len);
        }
        for (size_t i = 0; !has_scheme && i + 2 < rest.len && rest.ptr[i] != '/' && rest.ptr[i] != '?'; i++)
            if (rest.ptr[i] == ':' && rest.ptr[i + 1] == '/' && rest.ptr[i + 2] == '/')
                return fail(curl, "Only http:// and https:// URLs can be explained.");
        size_t end = 0;
        while (end < rest.len && rest.ptr[end] != '/' && rest.ptr[end] != '?') end++;
        out->host = hx_slice_first(rest, end);
        out->target = hx_slice_from(rest, end);
        for (size_t i = out->host.len; i > 0; i--)
            if (out->host.ptr[i - 1] == '@') {
                out->user = hx_slice_first(out->host, i - 1);
                out->host = hx_slice_from(out->host, i);
                break;
            }
        if (out->host.len == 0) return fail(curl, "The URL has no host.");
    }
    if (out->target.len == 0 || out->target.ptr[0] != '/')
        out->target = hx_arena_printf(curl->arena, "/%.*s", HX_FMT(out->target));
    return true;
}

static hx_slice header_name(hx_slice header)
{
    size_t colon = hx_slice_find(header, ':'), semicolon = hx_slice_find(header, ';');
    size_t end = colon < semicolon ? colon : semicolon;
    return hx_slice_first(header, end);
}

static bool is_given(const hx_curl *curl, const char *name)
{
    for (size_t i = 0; i < curl->header_count; i++)
        if (hx_slice_eq_nocase(header_name(curl->headers[i]), hx_slice_of(name))) return true;
    return false;
}

static bool put_line(hx_buf *out, const char *name, hx_slice value)
{
    return hx_buf_append(out, hx_slice_of(name)) && hx_buf_append(out, HX_LIT(": ")) && hx_buf_append(out, value) &&
           hx_buf_append(out, HX_LIT("\r\n"));
}

static hx_slice base64(hx_arena *arena, hx_slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = hx_arena_alloc(arena, (bytes.len + 2) / 3 * 4 + 1);
    size_t len = 0;
    for (size_t i = 0; i < bytes.len; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; k++) bits = bits << 8 | (i + k < bytes.len ? (unsigned char)bytes.ptr[i + k] : 0u);
        for (size_t k = 0; k < 4; k++) text[len++] = i + k > bytes.len ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    return (hx_slice){text, len};
}

/* Headers that curl adds by itself, unless a -H of that name was given. */
static bool put_own_headers(hx_curl *curl, const place *to, hx_buf *out)
{
    bool ok = true;
    hx_slice user = curl->user.len > 0 ? curl->user : to->user;
    if (user.len > 0 && hx_slice_find(user, ':') == SIZE_MAX)
        return curl->user.len > 0
                   ? fail(curl, "-u has no password, which curl would ask for: give it as user:password.")
                   : fail(curl, "The URL has a user without a password: give -u user:password.");
    if (!is_given(curl, "Host")) ok = put_line(out, "Host", to->host);
    if (ok && !is_given(curl, "Authorization") && curl->bearer.len > 0)
        ok = put_line(out, "Authorization", hx_arena_printf(curl->arena, "Bearer %.*s", HX_FMT(curl->bearer)));
    else if (ok && !is_given(curl, "Authorization") && user.len > 0)
        ok = put_line(out, "Authorization",
                      hx_arena_printf(curl->arena, "Basic %.*s", HX_FMT(base64(curl->arena, user))));
    if (ok && !is_given(curl, "User-Agent"))
        ok = put_line(out, "User-Agent", curl->agent.len > 0 ? curl->agent : HX_LIT("curl/8"));
    if (ok && !is_given(curl, "Accept"))
        ok = put_line(out, "Accept", curl->is_json ? HX_LIT("application/json") : HX_LIT("*/*"));
    if (ok && curl->referer.len > 0 && !is_given(curl, "Referer")) ok = put_line(out, "Referer", curl->referer);
    if (ok && curl->cookie.len > 0 && !is_given(curl, "Cookie")) ok = put_line(out, "Cookie", curl->cookie);
    bool types_itself = (curl->has_data || curl->is_form) && !curl->get;
    if (ok && types_itself && !is_given(curl, "Content-Type"))
        ok = put_line(out, "Content-Type",
                      curl->is_json   ? HX_LIT("application/json")
                      : curl->is_form ? HX_LIT("multipart/form-data; boundary=------------------------hapaxexplain")
                                      : HX_LIT("application/x-www-form-urlencoded"));
    return ok;
}

/* "Name: value" as it is, "Name;" is one without a value, "Name:" is none. */
static bool put_given_headers(hx_curl *curl, hx_buf *out)
{
    for (size_t i = 0; i < curl->header_count; i++) {
        hx_slice header = curl->headers[i], name = header_name(header);
        if (name.len == header.len) {
            curl->error = hx_arena_printf(curl->arena, "-H \"%.*s\" has no colon.",
                                          HX_FMT(hx_slice_first(header, 100)));
            return false;
        }
        hx_slice value = hx_slice_trim(hx_slice_from(header, name.len + 1));
        bool is_removal = header.ptr[name.len] == ':' && value.len == 0;
        if (hx_slice_eq_nocase(name, HX_LIT("Content-Length"))) continue; /* it is what it is */
        if (is_removal) continue;
        if (!hx_buf_append(out, name) || !put_line(out, "", value)) return false;
    }
    return true;
}

static hx_slice target_of(hx_curl *curl, const place *to)
{
    if (!curl->get || curl->data.len == 0) return to->target;
    return hx_arena_printf(curl->arena, "%.*s%c%.*s", HX_FMT(to->target),
                           hx_slice_find(to->target, '?') == SIZE_MAX ? '?' : '&', HX_FMT(hx_buf_slice(&curl->data)));
}

bool hx_curl_write(hx_curl *curl, hx_buf *out)
{
    place to;
    if (!find_place(curl, &to)) return false;
    if (curl->is_form && !hx_buf_append(&curl->data, HX_LIT("--------------------------hapaxexplain--\r\n")))
        return false;
    bool has_body = (curl->has_data || curl->is_form || curl->is_upload) && !curl->get;
    if (curl->head && has_body) return fail(curl, "-I and a body don't go together.");
    hx_slice method = curl->method;
    if (method.len == 0)
        method = curl->head        ? HX_LIT("HEAD")
                 : curl->is_upload ? HX_LIT("PUT")
                 : has_body        ? HX_LIT("POST")
                                   : HX_LIT("GET");
    hx_slice target = target_of(curl, &to);
    if (!check_target(curl, target)) return false;
    bool ok = hx_buf_append(out, method) && hx_buf_append(out, HX_LIT(" ")) && hx_buf_append(out, target) &&
              hx_buf_append(out, HX_LIT(" HTTP/1.1\r\n"));
    ok = ok && put_own_headers(curl, &to, out) && put_given_headers(curl, out);
    bool is_chunked = is_given(curl, "Transfer-Encoding");
    if (ok && has_body && !is_chunked) {
        char digits[32];
        hx_buf number = {.data = digits, .cap = sizeof digits, .max = sizeof digits};
        hx_buf_put_decimal(&number, curl->data.len);
        ok = put_line(out, "Content-Length", hx_buf_slice(&number));
    }
    ok = ok && hx_buf_append(out, HX_LIT("\r\n"));
    if (ok && has_body && is_chunked)
        ok = (curl->data.len == 0 ||
              (hx_buf_append(out, hx_arena_printf(curl->arena, "%zx\r\n", curl->data.len)) &&
               hx_buf_append(out, hx_buf_slice(&curl->data)) && hx_buf_append(out, HX_LIT("\r\n")))) &&
             hx_buf_append(out, HX_LIT("0\r\n\r\n"));
    else if (ok && has_body)
        ok = hx_buf_append(out, hx_buf_slice(&curl->data));
    if (!ok && curl->error.len == 0) return fail(curl, "The request is too large to be explained.");
    return ok;
}
