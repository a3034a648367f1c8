/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h1/request_parser.h"

#include "base/check.h"

#include <llhttp.h>
#include <string.h>

#define BYTES_OF(b) (0x0101010101010101ull * (b))

/* False with the fault filled in, so that a check can end with `return refuse(…)`. */
static bool refuse(hx_h1_fault *fault, unsigned status, const char *detail)
{
    *fault = (hx_h1_fault){status, detail};
    return false;
}

static bool is_control(char c)
{
    return (unsigned char)c < 0x20 || c == 0x7f;
}

/* Position of the first byte from `at` on that is below 0x20 or DEL, or `end`. Eight bytes a step: a byte is below 0x20
 * when subtracting that borrows into its top bit, which it didn't have itself. A borrow may flag the bytes after the
 * first such one wrongly, so only the first counts. */
static size_t next_control(const char *bytes, size_t at, size_t end)
{
    for (; end - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof word);
        uint64_t del = word ^ BYTES_OF(0x7f);
        uint64_t low = (word - BYTES_OF(0x20)) & ~word;
        uint64_t zero = (del - BYTES_OF(0x01)) & ~del;
        uint64_t found = (low | zero) & BYTES_OF(0x80);
        if (!found) continue;
        at += (size_t)(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? __builtin_ctzll(found) / 8 : 0);
        break;
    }
    while (at < end && !is_control(bytes[at])) at++;
    return at;
}

static hx_h1_result scan_bad(hx_h1_fault *fault, unsigned status, const char *detail)
{
    *fault = (hx_h1_fault){status, detail};
    return HX_H1_BAD;
}

/* The bytes are used up: more must come, or the head is too long. */
static hx_h1_result scan_end(const hx_h1_scan *scan, bool at_limit, hx_h1_fault *fault)
{
    if (!at_limit) return HX_H1_MORE;
    return scan->line == 0 ? scan_bad(fault, 414, "The request line is too long.")
                           : scan_bad(fault, 431, "The header fields are too large.");
}

hx_h1_result hx_h1_scan_head(hx_h1_scan *scan, hx_slice bytes, uint32_t bytes_max, hx_h1_fault *fault)
{
    bool at_limit = bytes.len >= bytes_max;
    size_t end = at_limit ? bytes_max : bytes.len, at = scan->at;
    while (at < end) {
        if (at == scan->line && at > 0 && (bytes.ptr[at] == ' ' || bytes.ptr[at] == '\t'))
            return scan_bad(fault, 400, "A header line is folded or begins with white space.");
        at = next_control(bytes.ptr, at, end);
        scan->at = (uint32_t)at;
        if (at == end) break;
        char c = bytes.ptr[at];
        if (c == '\t') {
            at++;
            continue;
        }
        if (c == '\n') return scan_bad(fault, 400, "A line ends with a bare LF.");
        if (c != '\r') return scan_bad(fault, 400, "The head holds a control byte.");
        if (at + 1 == end) break; /* its LF has not come yet */
        if (bytes.ptr[at + 1] != '\n') return scan_bad(fault, 400, "The head holds a bare CR.");
        bool is_empty = at == scan->line;
        at += 2;
        scan->lines++;
        scan->at = scan->line = (uint32_t)at;
        if (is_empty) return HX_H1_WHOLE;
    }
    return scan_end(scan, at_limit, fault);
}

typedef struct {
    hx_request_head *request;
    hx_arena *arena;
    hx_slice name;
    hx_slice value;
    uint16_t fields_max;
    bool too_many;
    bool complete;
} parse;

/* Spans of one name or value are adjacent, because the whole head is parsed in one call. */
static void extend(hx_slice *slice, const char *at, size_t len)
{
    if (!slice->ptr) slice->ptr = at;
    slice->len = (size_t)(at + len - slice->ptr);
}

static int on_field(llhttp_t *parser, const char *at, size_t len)
{
    extend(&((parse *)parser->data)->name, at, len);
    return HPE_OK;
}

static int on_value(llhttp_t *parser, const char *at, size_t len)
{
    extend(&((parse *)parser->data)->value, at, len);
    return HPE_OK;
}

static int on_value_complete(llhttp_t *parser)
{
    parse *p = parser->data;
    hx_slice value = p->value.ptr ? p->value : HX_EMPTY;
    if (!hx_fields_add(&p->request->fields, p->arena, p->fields_max, p->name, value)) {
        p->too_many = true;
        return HPE_USER;
    }
    p->name = p->value = (hx_slice){NULL, 0};
    return HPE_OK;
}

static int on_headers_complete(llhttp_t *parser)
{
    ((parse *)parser->data)->complete = true;
    return HPE_PAUSED; /* body_framing.c reads the body */
}

static const llhttp_settings_t settings = {
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
};

static bool take_apart(hx_request_head *request, hx_arena *arena, hx_slice head, uint32_t lines, uint16_t fields_max,
                       hx_h1_fault *fault)
{
    parse p = {.request = request, .arena = arena, .fields_max = fields_max};
    llhttp_t parser;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    parser.data = &p;
    llhttp_errno_t error = llhttp_execute(&parser, head.ptr, head.len);
    if (p.too_many) return refuse(fault, 431, "There are too many header fields.");
    if (error == HPE_INVALID_METHOD) return refuse(fault, 501, "The method is not one that is known here.");
    if (error == HPE_INVALID_CONTENT_LENGTH || error == HPE_UNEXPECTED_CONTENT_LENGTH)
        return refuse(fault, 400, "Content-Length is malformed, repeated, or sent with Transfer-Encoding.");
    if (error == HPE_INVALID_HEADER_TOKEN) return refuse(fault, 400, "A header field is malformed.");
    if (error == HPE_INVALID_TRANSFER_ENCODING) return refuse(fault, 400, "Transfer-Encoding is not chunked.");
    if (error != HPE_PAUSED || !p.complete) return refuse(fault, 400, "The head is not well-formed HTTP/1.");
    if (request->fields.count + 2u != lines) return refuse(fault, 400, "The head can be read in two ways.");
    return true;
}

/* "METHOD SP target SP HTTP/1.1", one space each. */
static bool read_request_line(hx_request_head *request, hx_slice head, hx_h1_fault *fault)
{
    hx_slice rest = hx_slice_first(head, hx_slice_find(head, '\r')), method, target;
    if (!hx_slice_next(&rest, ' ', &method) || !hx_slice_is_token(method))
        return refuse(fault, 400, "The request line does not begin with a method.");
    request->method = method;
    if (!hx_slice_next(&rest, ' ', &target) || rest.ptr == NULL)
        return refuse(fault, 400, "The request line has no target or no version.");
    if (target.len == 0) return refuse(fault, 400, "The request line has a space too many.");
    request->target = target;
    bool is_version = rest.len == 8 && hx_slice_starts(rest, HX_LIT("HTTP/")) && rest.ptr[5] >= '0' &&
                      rest.ptr[5] <= '9' && rest.ptr[6] == '.' && rest.ptr[7] >= '0' && rest.ptr[7] <= '9';
    if (!is_version) return refuse(fault, 400, "The request line does not end with a version of HTTP.");
    request->is_http10 = hx_slice_eq(rest, HX_LIT("HTTP/1.0"));
    if (!request->is_http10 && !hx_slice_eq(rest, HX_LIT("HTTP/1.1")))
        return refuse(fault, 505, "Only HTTP/1.1 and HTTP/1.0 are spoken here.");
    return true;
}

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (hx_lower(c) >= 'a' && hx_lower(c) <= 'z');
}

static bool is_port(hx_slice s)
{
    uint64_t port = 0;
    if (s.len == 0) return true; /* "host:" is in the grammar */
    return s.len <= 5 && hx_slice_to_u64(s, &port) && port <= 65535;
}

/* host [":" port]: a name or an address of version 4, or one of version 6 in brackets. No user, no list, no escapes. */
static bool is_authority(hx_slice s)
{
    size_t at = 0;
    if (s.len > 0 && s.ptr[0] == '[') {
        for (at = 1; at < s.len && s.ptr[at] != ']'; at++) {
            char c = hx_lower(s.ptr[at]);
            if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f') && c != ':' && c != '.') return false;
        }
        if (at == s.len || at < 3) return false;
        at++;
    } else {
        while (at < s.len && (is_alnum(s.ptr[at]) || (s.ptr[at] != '\0' && strchr("-._~", s.ptr[at])))) at++;
        if (at == 0) return false;
    }
    return at == s.len || (s.ptr[at] == ':' && is_port(hx_slice_from(s, at + 1)));
}

/* RFC 9112 3.2.2: "GET http://host/path" means the same as "GET /path" with that Host, whatever Host says. */
static bool to_origin_form(hx_request_head *request, hx_arena *arena, hx_h1_fault *fault)
{
    hx_slice rest = hx_slice_from(request->target, sizeof("http://") - 1);
    size_t len = 0;
    while (len < rest.len && rest.ptr[len] != '/' && rest.ptr[len] != '?') len++;
    hx_slice authority = hx_slice_first(rest, len);
    if (!is_authority(authority)) return refuse(fault, 400, "The target's authority is malformed.");
    hx_slice target = hx_slice_from(rest, len);
    if (target.len == 0)
        target = hx_slice_eq(request->method, HX_LIT("OPTIONS")) ? HX_LIT("*") : HX_LIT("/");
    else if (target.ptr[0] == '?')
        target = hx_arena_printf(arena, "/%.*s", HX_FMT(target));
    request->target = target;
    hx_fields *fields = &request->fields;
    if (fields->lines[HX_FIELD_HOST] > 0)
        fields->items[fields->first[HX_FIELD_HOST]].value = authority;
    else if (!hx_fields_add(fields, arena, UINT16_MAX, HX_LIT("Host"), authority))
        return refuse(fault, 431, "There are too many header fields.");
    return true;
}

static bool read_host(hx_request_head *request, hx_h1_fault *fault)
{
    unsigned lines = request->fields.lines[HX_FIELD_HOST];
    if (lines == 0 && request->is_http10) return true;
    if (lines == 0) return refuse(fault, 400, "There is no Host field.");
    if (lines > 1) return refuse(fault, 400, "There is more than one Host field.");
    if (!is_authority(hx_fields_get(&request->fields, HX_FIELD_HOST)))
        return refuse(fault, 400, "The Host field is not a host and a port.");
    return true;
}

static bool read_target(hx_request_head *request, hx_arena *arena, hx_h1_fault *fault)
{
    hx_slice target = request->target;
    for (size_t i = 0; i < target.len; i++) {
        if (target.ptr[i] <= ' ' || target.ptr[i] >= 0x7f)
            return refuse(fault, 400, "The target holds a byte that must be escaped.");
        if (target.ptr[i] == '#') return refuse(fault, 400, "The target holds a fragment.");
    }
    if (hx_slice_eq(request->method, HX_LIT("CONNECT"))) return refuse(fault, 405, "CONNECT is not served here.");
    if (hx_slice_eq(request->method, HX_LIT("TRACE"))) return refuse(fault, 405, "TRACE is not served here.");
    if (hx_slice_starts_nocase(target, HX_LIT("http://"))) {
        if (!to_origin_form(request, arena, fault)) return false;
    } else if (hx_slice_eq(target, HX_LIT("*"))) {
        if (!hx_slice_eq(request->method, HX_LIT("OPTIONS"))) return refuse(fault, 400, "Only OPTIONS may ask for *.");
    } else if (target.ptr[0] != '/') {
        return refuse(fault, 400, "The target is neither a path nor an http URL.");
    }
    size_t mark = hx_slice_find(request->target, '?');
    request->has_query = mark != SIZE_MAX;
    request->path = hx_slice_first(request->target, mark);
    if (request->has_query) request->query = hx_slice_from(request->target, mark + 1);
    return true;
}

static bool read_framing(hx_request_head *request, hx_h1_fault *fault)
{
    const hx_fields *fields = &request->fields;
    unsigned lengths = fields->lines[HX_FIELD_CONTENT_LENGTH], encodings = fields->lines[HX_FIELD_TRANSFER_ENCODING];
    request->content_length = -1;
    if (lengths > 0 && encodings > 0) return refuse(fault, 400, "There are both Content-Length and Transfer-Encoding.");
    if (encodings > 0) {
        if (request->is_http10) return refuse(fault, 400, "HTTP/1.0 has no Transfer-Encoding.");
        hx_slice coding = hx_fields_get(fields, HX_FIELD_TRANSFER_ENCODING);
        if (encodings > 1 || !hx_slice_eq_nocase(coding, HX_LIT("chunked")))
            return refuse(fault, 400, "Transfer-Encoding is not exactly chunked.");
        request->chunked = request->has_body = true;
        return true;
    }
    if (lengths == 0) return true;
    uint64_t length = 0;
    if (lengths > 1) return refuse(fault, 400, "There is more than one Content-Length.");
    if (!hx_slice_to_u64(hx_fields_get(fields, HX_FIELD_CONTENT_LENGTH), &length) || length > INT64_MAX)
        return refuse(fault, 400, "Content-Length is not a length.");
    request->content_length = (int64_t)length;
    request->has_body = length > 0;
    return true;
}

static bool read_connection(hx_request_head *request, hx_h1_fault *fault)
{
    hx_fields *fields = &request->fields;
    request->keep_alive = !request->is_http10;
    if (fields->lines[HX_FIELD_CONNECTION] == 0) return true;
    if (!hx_fields_mark_hops(fields))
        return refuse(fault, 400, "Connection is malformed, or names a field that is not hop-by-hop.");
    bool close = false, keep_alive = false, upgrade = false;
    for (size_t i = fields->first[HX_FIELD_CONNECTION]; i < fields->count; i++) {
        if (fields->items[i].id != HX_FIELD_CONNECTION) continue;
        hx_slice rest = fields->items[i].value, part;
        while (hx_slice_next(&rest, ',', &part)) {
            hx_slice option = hx_slice_trim(part);
            if (hx_slice_eq_nocase(option, HX_LIT("close"))) close = true;
            if (hx_slice_eq_nocase(option, HX_LIT("keep-alive"))) keep_alive = true;
            if (hx_slice_eq_nocase(option, HX_LIT("upgrade"))) upgrade = true;
        }
    }
    request->keep_alive = !close && (keep_alive || !request->is_http10);
    request->upgrade = upgrade && !request->is_http10 && fields->lines[HX_FIELD_UPGRADE] > 0;
    return true;
}

static bool read_expect(hx_request_head *request, hx_h1_fault *fault)
{
    unsigned lines = request->fields.lines[HX_FIELD_EXPECT];
    if (lines == 0 || request->is_http10) return true; /* RFC 9110 10.1.1: HTTP/1.0 has no expectations */
    if (lines > 1 || !hx_slice_eq_nocase(hx_fields_get(&request->fields, HX_FIELD_EXPECT), HX_LIT("100-continue")))
        return refuse(fault, 417, "The only expectation that is met here is 100-continue.");
    request->expects_continue = request->has_body;
    return true;
}

static bool have_names(const hx_fields *fields, hx_h1_fault *fault)
{
    for (size_t i = 0; i < fields->count; i++)
        if (fields->items[i].name.len == 0) return refuse(fault, 400, "A header field has no name.");
    return true;
}

bool hx_h1_parse_request(hx_request_head *request, hx_arena *arena, hx_slice head, uint32_t lines, uint16_t fields_max,
                         hx_h1_fault *fault)
{
    *request = (hx_request_head){
        .method = HX_EMPTY, .target = HX_EMPTY, .path = HX_EMPTY, .query = HX_EMPTY, .content_length = -1};
    return read_request_line(request, head, fault) && take_apart(request, arena, head, lines, fields_max, fault) &&
           have_names(&request->fields, fault) && read_framing(request, fault) && read_host(request, fault) &&
           read_target(request, arena, fault) && read_connection(request, fault) && read_expect(request, fault);
}
