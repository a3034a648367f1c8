/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/webhook/report.h"

#include "cmd/cli/cmd.h"
#include "cmd/keys.h"
#include "config/describe/policy_fields.h"
#include "core/json/json_writer.h"

#include <stdarg.h>

#define BEGINNING_BYTES 60u /* of what is signed */
#define VALUE_BYTES_MAX 200u
#define JSON_BYTES_MAX (64u * 1024u)
#define YEAR_10000 (INT64_C(253402300800) * HX_SECOND) /* from here on there is no RFC 3339 */

typedef struct {
    FILE *out;
    const char *bold, *dim, *good, *bad, *plain;
} page;

/* A line with its label; one without a label belongs to the one before. */
static void line(const page *p, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void line(const page *p, const char *label, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(p->out, "%s%-9s%s ", label[0] ? p->bold : p->dim, label, label[0] ? p->plain : "");
    (void)vfprintf(p->out, format, args);
    (void)fprintf(p->out, "%s\n", label[0] ? "" : p->plain);
    va_end(args);
}

/* The first bytes of what is signed, cut between characters. */
static hx_slice beginning(const hx_verify_report *r, hx_arena *arena, bool *is_cut)
{
    const hx_slice parts[] = {r->result->before, r->request->body, r->result->after};
    hx_buf out;
    hx_buf_init(&out, arena, BEGINNING_BYTES + 1);
    for (size_t i = 0; i < 3; i++) hx_buf_put(&out, hx_slice_first(parts[i], BEGINNING_BYTES + 1 - out.len));
    *is_cut = out.len > BEGINNING_BYTES;
    size_t len = *is_cut ? BEGINNING_BYTES : out.len;
    while (*is_cut && len > 0 && ((unsigned char)out.data[len] & 0xc0) == 0x80) len--;
    return len > 0 ? (hx_slice){out.data, len} : HX_EMPTY;
}

/* Control bytes become visible: line ends matter here. */
static const char *visible(hx_slice text, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, 2 * text.len + 1);
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '\n' || text.ptr[i] == '\r')
            hx_buf_puts(&out, text.ptr[i] == '\n' ? "\\n" : "\\r");
        else
            hx_buf_put(&out, (hx_slice){text.ptr + i, 1});
    }
    return hx_keys_clean(out.len > 0 ? hx_buf_slice(&out) : HX_EMPTY, arena);
}

/* How far a timestamp is away, in a unit of which it is several. */
static const char *distance(hx_ms age, hx_arena *arena)
{
    hx_ms span = age < 0 ? -age : age;
    hx_ms unit = span >= 2 * HX_DAY ? HX_DAY : span >= 2 * HX_HOUR ? HX_HOUR : span >= HX_HOUR ? HX_MINUTE : HX_SECOND;
    return hx_describe_duration(span / unit * unit, arena);
}

static void show_verdict(const page *p, const hx_verify_report *r)
{
    const hx_webhook_result *result = r->result;
    if (result->error == HX_WEBHOOK_OK) {
        line(p, "verdict", "%sverified%s: %s", p->good, p->plain, hx_webhook_error_text(result->error));
        if (r->settings->secret_count > 1)
            line(p, "", "It was made with secret %zu of %zu.", result->secret + 1, r->settings->secret_count);
        return;
    }
    line(p, "verdict", "%snot verified%s: %s", p->bad, p->plain, hx_webhook_error_text(result->error));
    if (result->header) line(p, "header", "%s", result->header);
}

static void show_diagnosis(const page *p, const hx_verify_diagnosis *diagnosis)
{
    if (!diagnosis) return;
    for (size_t i = 0; i < diagnosis->mistake_count; i++)
        line(p, i == 0 ? "cause" : "", "%s", diagnosis->mistakes[i]->text);
    if (diagnosis->is_signed && diagnosis->mistake_count > 0)
        line(p, "", "Without %s, the signature is valid.", diagnosis->mistake_count > 1 ? "these mistakes" : "that");
    for (size_t i = 0; i < diagnosis->hint_count; i++) line(p, i == 0 ? "hint" : "", "%s", diagnosis->hints[i]);
}

static void show_timestamp(const page *p, const hx_verify_report *r, hx_arena *arena)
{
    const hx_webhook_result *result = r->result;
    char text[HX_RFC3339_BYTES];
    if (!result->has_timestamp) return;
    hx_slice date = result->timestamp < YEAR_10000 ? hx_rfc3339(result->timestamp, text)
                                                   : HX_LIT("after the year 9999");
    line(p, "timestamp", "%lld, %.*s", (long long)(result->timestamp / HX_SECOND), HX_FMT(date));
    line(p, "", "%s %s; the tolerance is %s", distance(result->age, arena), result->age < 0 ? "in the future" : "ago",
         hx_describe_duration(r->settings->tolerance, arena));
}

static void show_event(const page *p, const hx_verify_report *r, hx_arena *arena)
{
    const hx_webhook_scheme *scheme = &r->settings->scheme;
    const char *source = scheme->id_header ? scheme->id_header : scheme->id_pointer;
    hx_slice id;
    bool is_signed;
    if (!hx_webhook_event_id(scheme, r->request, arena, &id, &is_signed)) return;
    line(p, "event", "%s", hx_keys_clean(hx_slice_first(id, VALUE_BYTES_MAX), arena));
    line(p, "", "its id, from %s%s; %s", scheme->id_header ? "" : "the body's ", source,
         is_signed ? "it is signed" : "it is not signed: a captured request can be sent again under another id");
}

void hx_verify_print_text(const hx_verify_report *r, FILE *out, hx_arena *arena)
{
    bool colours = hx_cmd_colours(out), is_cut;
    const hx_webhook_scheme *scheme = &r->settings->scheme;
    page p = {.out = out,
              .bold = colours ? "\033[1m" : "",
              .dim = colours ? "\033[2m" : "",
              .good = colours ? "\033[32m" : "",
              .bad = colours ? "\033[31m" : "",
              .plain = colours ? "\033[0m" : ""};
    show_verdict(&p, r);
    show_diagnosis(&p, r->diagnosis);
    line(&p, "scheme", "%s", scheme->name);
    if (scheme->form == HX_WEBHOOK_SINGLE)
        line(&p, "", "%s: %s%s", scheme->signature_header, scheme->prefix,
             scheme->encoding == HX_WEBHOOK_BASE64 ? "BASE64" : "HEX");
    else
        line(&p, "", "%s: %s", scheme->signature_header, scheme->written);
    show_timestamp(&p, r, arena);
    show_event(&p, r, arena);
    if (!r->result->before.ptr) return;
    hx_slice shown = beginning(r, arena, &is_cut);
    line(&p, "signed", "%s, %zu bytes, %zu of them the body", scheme->signed_text,
         r->result->before.len + r->request->body.len + r->result->after.len, r->request->body.len);
    line(&p, "", "%s%s", visible(shown, arena), is_cut ? "…" : "");
}

static void put_diagnosis(hx_buf *json, const hx_verify_diagnosis *diagnosis)
{
    hx_json_open(json, "causes", '[');
    for (size_t i = 0; diagnosis && i < diagnosis->mistake_count; i++) {
        hx_json_open(json, NULL, '{');
        hx_json_put_text(json, "cause", hx_slice_of(diagnosis->mistakes[i]->word));
        hx_json_put_text(json, "detail", hx_slice_of(diagnosis->mistakes[i]->text));
        hx_json_close(json, '}');
    }
    hx_json_close(json, ']');
    hx_json_open(json, "hints", '[');
    for (size_t i = 0; diagnosis && i < diagnosis->hint_count; i++)
        hx_json_put_text(json, NULL, hx_slice_of(diagnosis->hints[i]));
    hx_json_close(json, ']');
}

static void put_text_or_null(hx_buf *json, const char *name, const char *text)
{
    if (text)
        hx_json_put_text(json, name, hx_slice_of(text));
    else
        hx_json_put_null(json, name);
}

void hx_verify_print_json(const hx_verify_report *r, FILE *out, hx_arena *arena)
{
    const hx_webhook_result *result = r->result;
    char at[HX_RFC3339_BYTES];
    hx_slice id;
    bool is_signed, is_cut;
    hx_buf json;
    hx_buf_init(&json, arena, JSON_BYTES_MAX);
    hx_json_open(&json, NULL, '{');
    hx_json_put_bool(&json, "verified", result->error == HX_WEBHOOK_OK);
    hx_json_put_text(&json, "result", hx_slice_of(hx_webhook_error_word(result->error)));
    hx_json_put_text(&json, "detail", hx_slice_of(hx_webhook_error_text(result->error)));
    put_text_or_null(&json, "header", result->header);
    put_diagnosis(&json, r->diagnosis);
    hx_json_put_text(&json, "scheme", hx_slice_of(r->settings->scheme.name));
    if (result->error == HX_WEBHOOK_OK) hx_json_put_number(&json, "secret", result->secret + 1);
    if (result->has_timestamp) {
        if (result->timestamp < YEAR_10000) hx_json_put_text(&json, "timestamp", hx_rfc3339(result->timestamp, at));
        hx_json_put_raw(&json, "age_ms", hx_arena_printf(arena, "%lld", (long long)result->age));
    }
    if (hx_webhook_event_id(&r->settings->scheme, r->request, arena, &id, &is_signed)) {
        hx_json_put_text(&json, "event_id", hx_slice_first(id, VALUE_BYTES_MAX));
        hx_json_put_bool(&json, "event_id_signed", is_signed);
    }
    hx_json_put_text(&json, "signed", hx_slice_of(r->settings->scheme.signed_text));
    hx_json_put_number(&json, "body_bytes", r->request->body.len);
    if (result->before.ptr) {
        hx_json_put_number(&json, "signed_bytes", result->before.len + r->request->body.len + result->after.len);
        hx_json_put_text(&json, "signed_begins", beginning(r, arena, &is_cut));
    }
    hx_json_close(&json, '}');
    hx_cmd_put_text(out, hx_buf_slice(&json));
    (void)fputc('\n', out);
}
