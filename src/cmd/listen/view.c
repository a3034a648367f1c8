/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/listen/view.h"

#include "base/utf8.h"
#include "cmd/cli/cmd.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"

#define VALUE_SHOWN 300u           /* bytes of a header or a path */
#define BODY_SHOWN (16u * 1024u)   /* bytes of a body */
#define HEAD_JSON_BYTES (1u << 20) /* far above the largest head, every byte escaped */
#define TIME_OF_DAY 11u            /* where it begins in "2026-02-19T12:00:00.000Z" */

static void put_text(hx_slice text)
{
    hx_cmd_put_text(stdout, text);
}

/* At most `bytes_max`, cut between characters. Returns how many bytes are left out. */
static size_t put_beginning(hx_slice text, size_t bytes_max)
{
    size_t len = text.len < bytes_max ? text.len : bytes_max;
    while (len > 0 && len < text.len && ((unsigned char)text.ptr[len] & 0xc0) == 0x80) len--;
    put_text(hx_slice_first(text, len));
    return text.len - len;
}

static void put_value(hx_slice text)
{
    if (put_beginning(text, VALUE_SHOWN) > 0) (void)printf("…");
}

/* Headers by which a gateway and the sender's own tracing can be followed. */
static bool is_shown(const hx_field *field)
{
    return field->id == HX_FIELD_IDEMPOTENCY_KEY || field->id == HX_FIELD_X_CORRELATION_ID ||
           field->id == HX_FIELD_TRACEPARENT || hx_slice_starts_nocase(field->name, HX_LIT("hapax-"));
}

static void begin_line(unsigned depth)
{
    (void)printf("\n    %*s", (int)(2 * depth), "");
}

/* Well-formed JSON, with a line for each member and item. Strings and numbers stay as they were written. */
static void put_json(hx_slice text)
{
    unsigned depth = 0;
    char before = '\0'; /* the last byte that is no white space */
    for (size_t i = 0, len; i < text.len; i += len) {
        char c = text.ptr[i];
        len = 1;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') continue;
        bool ends = c == '}' || c == ']', follows_start = before == '{' || before == '[';
        if (ends) depth--;
        if (before == ',' || ends != follows_start) begin_line(depth);
        if (c == '"') {
            while (text.ptr[i + len] != '"') len += text.ptr[i + len] == '\\' ? 2 : 1;
            len++;
        }
        put_text((hx_slice){text.ptr + i, len});
        if (c == ':') (void)putchar(' ');
        if (c == '{' || c == '[') depth++;
        before = c;
    }
}

/* Indented, so that no line of it looks like one of ours. */
static void put_body(hx_slice body)
{
    hx_arena arena = {0};
    hx_buf canonical;
    hx_slice shown = hx_slice_first(body, BODY_SHOWN), line;
    hx_buf_init(&canonical, &arena, HX_JSON_CANONICAL_BYTES(shown.len));
    if (shown.len == body.len && hx_json_canonical(body, &arena, &canonical)) {
        begin_line(0);
        put_json(body);
    } else {
        while (hx_slice_next(&shown, '\n', &line)) {
            begin_line(0);
            put_text(hx_slice_ends(line, HX_LIT("\r")) ? hx_slice_first(line, line.len - 1) : line);
        }
    }
    if (body.len > BODY_SHOWN) (void)printf("\n    … and %zu bytes more", body.len - BODY_SHOWN);
    hx_arena_free(&arena);
}

static void show_text(const hx_received_view *view, const hx_received *r)
{
    bool colours = hx_cmd_colours(stdout);
    const char *strong = colours ? "\033[1m" : "", *good = colours ? "\033[32m" : "", *bad = colours ? "\033[31m" : "",
               *odd = colours ? "\033[33m" : "", *plain = colours ? "\033[0m" : "";
    char time[HX_RFC3339_BYTES];
    (void)printf("%.*s  %s", HX_FMT(hx_slice_from(hx_rfc3339(r->at, time), TIME_OF_DAY)), strong);
    put_value(r->head->method.len > 0 ? r->head->method : HX_LIT("?"));
    (void)putchar(' ');
    put_value(r->head->target);
    (void)printf(r->status > 0 ? "%s  answered with %u" : "%s  not answered: the connection was closed", plain,
                 r->status);
    if (r->is_refused) (void)printf("\n    %srefused%s    %s", bad, plain, r->detail);
    if (r->attempt > 0) {
        (void)printf("\n    event      ");
        put_value(r->id);
        (void)printf(", attempt %u", r->attempt);
        if (r->is_duplicate) (void)printf(", %sduplicate%s", odd, plain);
    } else if (!r->is_refused) {
        (void)printf("\n    event      no id");
    }
    if (r->body.len > 0) {
        hx_slice type = hx_fields_get(&r->head->fields, HX_FIELD_CONTENT_TYPE);
        (void)printf("\n    body       ");
        put_value(type.len > 0 ? type : HX_LIT("no content type"));
        (void)printf(", %zu bytes", r->body.len);
    }
    if (view->scheme && !r->is_refused)
        (void)printf("\n    signature  %s%s%s%s", r->error ? bad : good, r->error ? "not verified: " : "verified",
                     plain, r->error ? r->detail : "");
    for (size_t i = 0; i < r->head->fields.count; i++) {
        const hx_field *field = &r->head->fields.items[i];
        if (!is_shown(field)) continue;
        begin_line(0);
        put_value(field->name);
        (void)printf(": ");
        put_value(field->value);
    }
    if (view->bodies && r->body.len > 0) put_body(r->body);
    (void)putchar('\n');
}

static bool is_utf8(hx_slice text)
{
    const char *at = text.ptr, *end = text.ptr + text.len;
    for (size_t len; at < end; at += len)
        if ((len = hx_utf8_bytes(at, end)) == 0) return false;
    return true;
}

static void put_or_null(hx_buf *out, const char *name, hx_slice text)
{
    if (text.len > 0)
        hx_json_put_text(out, name, text);
    else
        hx_json_put_null(out, name);
}

static void put_headers(hx_buf *out, const hx_fields *fields)
{
    hx_json_open(out, "headers", '[');
    for (size_t i = 0; i < fields->count; i++) {
        if (!is_shown(&fields->items[i])) continue;
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "name", fields->items[i].name);
        hx_json_put_text(out, "value", fields->items[i].value);
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
}

static void put_members(const hx_received_view *view, const hx_received *r, hx_buf *out)
{
    char time[HX_RFC3339_BYTES];
    hx_json_put_text(out, "type", HX_LIT("request"));
    hx_json_put_text(out, "time", hx_rfc3339(r->at, time));
    put_or_null(out, "method", r->head->method);
    put_or_null(out, "target", r->head->target);
    put_or_null(out, "event_id", r->id);
    hx_json_put_number(out, "attempt", r->attempt);
    hx_json_put_bool(out, "duplicate", r->is_duplicate);
    put_or_null(out, "content_type", hx_fields_get(&r->head->fields, HX_FIELD_CONTENT_TYPE));
    hx_json_put_number(out, "bytes", r->body.len);
    put_or_null(out, "scheme", hx_slice_of(view->scheme ? view->scheme : ""));
    if (view->scheme && !r->is_refused)
        hx_json_put_bool(out, "verified", !r->error);
    else
        hx_json_put_null(out, "verified");
    put_or_null(out, "error", hx_slice_of(r->error ? r->error : ""));
    put_or_null(out, "detail", hx_slice_of(r->error ? r->detail : ""));
    put_headers(out, &r->head->fields);
    if (r->status > 0)
        hx_json_put_number(out, "status", r->status);
    else
        hx_json_put_null(out, "status");
    if (!view->bodies) return;
    if (is_utf8(r->body))
        hx_json_put_text(out, "body", r->body);
    else
        hx_json_put_hex(out, "body_hex", (const uint8_t *)r->body.ptr, r->body.len);
}

void hx_received_show(const hx_received_view *view, const hx_received *r)
{
    if (view->as_json) {
        hx_buf out;
        hx_buf_init(&out, NULL, HEAD_JSON_BYTES + 6 * r->body.len);
        hx_json_open(&out, NULL, '{');
        put_members(view, r, &out);
        hx_json_close(&out, '}');
        put_text(hx_buf_slice(&out));
        (void)putchar('\n');
        hx_buf_free(&out);
    } else {
        show_text(view, r);
    }
    (void)fflush(stdout);
}

void hx_received_begin(const hx_received_view *view, const char *url, unsigned status, unsigned fail)
{
    const char *scheme = view->scheme;
    if (view->as_json) {
        (void)printf("{\"type\":\"listening\",\"url\":\"%s\"}\n", url);
    } else {
        (void)printf("Listening on %s: every request is answered with %u", url, status);
        if (fail > 0) (void)printf(", but the first %u of each event id with 503", fail);
        (void)printf(". %s%s, and nothing is forwarded. Ctrl-C ends it.\n",
                     scheme ? "Signatures are verified by " : "No signatures are verified", scheme ? scheme : "");
    }
    (void)fflush(stdout);
}

void hx_received_end(const hx_received_view *view, const hx_received_counts *counts)
{
    const struct {
        const char *name, *text;
        uint64_t count;
    } rows[] = {
        {"requests", "requests", counts->requests},
        {"event_ids", "event ids", counts->ids},
        {"duplicates", "duplicates", counts->duplicates},
        {"verified", "verified", counts->verified},
        {"not_verified", "not verified", counts->not_verified},
        {"refused", "refused", counts->refused},
    };
    if (view->as_json) (void)printf("{\"type\":\"summary\"");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned long long count = rows[i].count;
        if (view->as_json)
            (void)printf(",\"%s\":%llu", rows[i].name, count);
        else
            (void)printf("%s%s: %llu", i > 0 ? ", " : "", rows[i].text, count);
    }
    (void)printf(view->as_json ? "}\n" : "\n");
    (void)fflush(stdout);
}
