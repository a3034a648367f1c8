/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a key, under tag 'N', covers: for a literal, a date and a window its canonical form; for others the
 * canonical form, the type of its value (one byte) and the value. Canonical forms are "=text" for literals and
 * "word:argument" for the rest, so that they tell how many follow and what they are. Where there are dates or windows
 * that digest, and these three of each of them, go under tag 'B': so the other parts are read once for many moments.
 *
 * Both tags are this file's alone. Others are 'K' (mac.c), 'F', 'M', 'U' and 'n' (fingerprint.c), 'o', 's', 'p', 'q'
 * and 'k' (gateway/request.h) and 'T' (gateway/parts/token_cache.c); short MACs have a key of their own. So a natural
 * key never is the digest of a header's key.
 *
 * Types: 's' string, 'n' number by its exact decimal value, 'b' true or false, 'j' array or object in canonical form,
 * 't' the text of a header, parameter or path, 'p' principal, 'd' date, 'w' begin of a window, 'h' SHA-256. These
 * bytes decide which operation a request is, also after an upgrade: they can only change with RULES_SCHEME in
 * policy.c. */
#define OPENSSL_SUPPRESS_DEPRECATED /* SHA256_CTX: SHA256() looks its algorithm up, with a lock and an allocation */
#include "core/operation/template.h"

#include "base/memory/buf.h"
#include "base/check.h"
#include "core/json/json.h"
#include "core/json/number.h"
#include "core/operation/policy.h"
#include "base/text.h"
#include "core/time/units.h"
#include "core/time/zone.h"

#include <openssl/sha.h>

#include <inttypes.h>
#include <string.h>

#define TAG 'N'
#define TAG_BUCKETS 'B'

typedef struct {
    hx_template *template;
    hx_zone_finder find_zone;
    void *user;
    hx_arena *arena;
    const char *error; /* the first */
} compiler;

static const struct {
    hx_slice word;
    const char *argument;
} kinds[] = {
#define X(name, word, argument) {{word, sizeof(word) - 1}, argument},
    HX_TEMPLATE_KINDS(X)
#undef X
};

static void wrong(compiler *c, const hx_template_part *part, const char *what, hx_slice argument, const char *advice)
{
    if (c->error) return;
    c->error =
        hx_arena_printf(c->arena, "\"%.*s\": %s \"%.*s\"%s", HX_FMT(part->text), what, HX_FMT(argument), advice).ptr;
}

static void wrong_part(compiler *c, const hx_template_part *part, const char *what)
{
    if (!c->error) c->error = hx_arena_printf(c->arena, "\"%.*s\" %s", HX_FMT(part->text), what).ptr;
}

static int64_t floor_to(int64_t value, int64_t step)
{
    int64_t over = value % step;
    return value - over - (over < 0 ? step : 0);
}

static void compile_window(compiler *c, hx_template_part *part)
{
    if (!hx_unit_read(part->argument, &part->window)) {
        wrong(c, part, "not a duration:", part->argument, "; write one such as 30s, 15m, 1h or 7d");
        return;
    }
    if (part->window < HX_TEMPLATE_WINDOW_MIN || part->window > HX_TEMPLATE_WINDOW_MAX)
        wrong(c, part, "a window has 1s to 36500d, not", part->argument, "");
    hx_template *t = c->template;
    if (t->bucket_min == 0 || part->window < t->bucket_min) t->bucket_min = part->window;
    t->has_bucket = true;
    part->canonical = hx_arena_printf(c->arena, "window:%" PRId64, part->window);
}

static void compile_date(compiler *c, hx_template_part *part)
{
    if (!hx_zone_is_name(part->argument)) {
        wrong(c, part, "not the name of a time zone:", part->argument, "; write one such as America/New_York or UTC");
        return;
    }
    part->zone = c->find_zone(c->user, part->argument);
    if (!part->zone) wrong(c, part, "there is no time zone", part->argument, " on this machine");
    hx_template *t = c->template;
    if (t->bucket_min == 0 || HX_DAY < t->bucket_min) t->bucket_min = HX_DAY;
    t->has_bucket = true;
}

static void compile_header(compiler *c, hx_template_part *part)
{
    if (!hx_slice_is_token(part->argument)) {
        wrong(c, part, "not the name of a header:", part->argument, "");
        return;
    }
    part->argument = hx_text_lower(part->argument, c->arena);
    part->canonical = hx_arena_printf(c->arena, "header:%.*s", HX_FMT(part->argument));
}

static void compile_argument(compiler *c, hx_template_part *part)
{
    hx_template *t = c->template;
    switch (part->kind) {
    case HX_TEMPLATE_LITERAL: break;
    case HX_TEMPLATE_HEADER: compile_header(c, part); break;
    case HX_TEMPLATE_BODY:
        if (!hx_json_is_pointer(part->argument))
            wrong(c, part, "not a JSON pointer:", part->argument,
                  "; it begins with a slash, as in /items/0/id, and a ~ in a name is ~0");
        t->has_pointer = true;
        break;
    case HX_TEMPLATE_PATH:
        if (!hx_slice_is_token(part->argument))
            wrong(c, part, "not a name as in the path /refunds/{id}:", part->argument, "");
        break;
    case HX_TEMPLATE_QUERY: /* any bytes may be a parameter's name */
    case HX_TEMPLATE_PRINCIPAL: break;
    case HX_TEMPLATE_DATE: compile_date(c, part); break;
    case HX_TEMPLATE_WINDOW: compile_window(c, part); break;
    case HX_TEMPLATE_BODY_HASH:
        if (!hx_slice_eq(part->argument, HX_LIT("body")))
            wrong(c, part, "no digest is known of", part->argument, "; only {sha256:body}, the whole body");
        t->has_hash = true;
        break;
    }
}

/* "; the parts are {header:…}, … and {sha256:body}" */
static const char *known_parts(hx_arena *arena)
{
    const size_t count = sizeof kinds / sizeof *kinds;
    hx_buf text;
    hx_buf_init(&text, arena, 1024);
    for (size_t i = HX_TEMPLATE_LITERAL + 1; i < count; i++) {
        bool has_one = i == HX_TEMPLATE_BODY_HASH;
        hx_buf_puts(&text, i == HX_TEMPLATE_LITERAL + 1 ? "; the parts are {" : i + 1 < count ? ", {" : " and {");
        hx_buf_put(&text, kinds[i].word);
        if (kinds[i].argument[0] != '\0') hx_buf_puts(&text, has_one ? ":" : ":…");
        hx_buf_puts(&text, has_one ? kinds[i].argument : "");
        hx_buf_puts(&text, "}");
    }
    return hx_arena_terminated(arena, hx_buf_slice(&text));
}

/* Parses the text between two braces. */
static void compile_braces(compiler *c, hx_template_part *part)
{
    hx_slice inside = {part->text.ptr + 1, part->text.len - 2};
    size_t colon = hx_slice_find(inside, ':'), kind = 1, count = sizeof kinds / sizeof *kinds;
    hx_slice word = hx_slice_first(inside, colon);
    while (kind < count && !hx_slice_eq(kinds[kind].word, word)) kind++;
    if (kind == count) {
        wrong(c, part, "there is no part", word, known_parts(c->arena));
        return;
    }
    part->kind = (hx_template_kind)kind;
    part->canonical = inside;
    part->argument = colon == SIZE_MAX ? HX_EMPTY : hx_slice_from(inside, colon + 1);
    bool wants_one = kinds[kind].argument[0] != '\0';
    if (wants_one && part->argument.len == 0)
        wrong_part(c, part,
                   hx_arena_printf(c->arena, "lacks what follows a colon: %s%s", kinds[kind].argument,
                                   part->kind == HX_TEMPLATE_BODY ? "; the whole body is {sha256:body}" : "")
                       .ptr);
    else if (!wants_one && colon != SIZE_MAX)
        wrong_part(c, part, "has nothing behind its name: no colon either");
    else
        compile_argument(c, part);
    for (size_t i = 0; i + 1 < c->template->count; i++) {
        const hx_template_part *other = &c->template->parts[i];
        if (hx_slice_eq(other->canonical, part->canonical))
            wrong_part(c, part, hx_arena_printf(c->arena, "says again what \"%.*s\" says", HX_FMT(other->text)).ptr);
    }
}

static void compile_part(compiler *c, hx_slice text)
{
    hx_template *t = c->template;
    if (t->count == HX_TEMPLATE_PARTS_MAX) {
        c->error = "the template has more than 32 parts, counting the text between those in braces";
        return;
    }
    hx_template_part *part = &t->parts[t->count++];
    *part = (hx_template_part){.kind = HX_TEMPLATE_LITERAL, .text = text, .argument = text};
    if (text.ptr[0] == '{')
        compile_braces(c, part);
    else
        part->canonical = hx_arena_printf(c->arena, "=%.*s", HX_FMT(text));
}

/* How much of `rest` is the next part; 0 when braces don't match. */
static size_t part_len(compiler *c, hx_slice rest)
{
    size_t open = hx_slice_find(rest, '{'), close = hx_slice_find(rest, '}');
    if (open != 0) {
        if (close < open)
            c->error =
                hx_arena_printf(c->arena, "\"%.*s\" closes a brace that isn't open", (int)close + 1, rest.ptr).ptr;
        return c->error ? 0 : open < rest.len ? open : rest.len;
    }
    hx_slice inside = hx_slice_first(hx_slice_from(rest, 1), close == SIZE_MAX ? close : close - 1);
    if (close == SIZE_MAX || hx_slice_find(inside, '{') != SIZE_MAX) {
        c->error = hx_arena_printf(c->arena, "\"{%.*s\" opens a brace that isn't closed", HX_FMT(inside)).ptr;
        return 0;
    }
    return close + 1;
}

static bool is_of_the_request(const hx_template *t)
{
    for (size_t i = 0; i < t->count; i++) {
        hx_template_kind kind = t->parts[i].kind;
        if (kind != HX_TEMPLATE_LITERAL && kind != HX_TEMPLATE_DATE && kind != HX_TEMPLATE_WINDOW) return true;
    }
    return false;
}

const hx_template *hx_template_of_caller(hx_slice text, hx_zone_finder find_zone, void *user, hx_arena *arena,
                                         const char **error)
{
    hx_template *template = hx_arena_zalloc(arena, sizeof *template);
    compiler c = {.template = template, .find_zone = find_zone, .user = user, .arena = arena};
    template->text = hx_arena_copy(arena, text);
    if (text.len == 0) c.error = "the template is empty; write one such as {body:/orderId}";
    if (text.len > HX_TEMPLATE_BYTES_MAX) c.error = "the template has more than 1024 bytes";
    hx_slice rest = template->text;
    while (!c.error && rest.len > 0) {
        size_t len = part_len(&c, rest);
        if (len > 0) compile_part(&c, hx_slice_first(rest, len));
        rest = hx_slice_from(rest, len);
    }
    if (!c.error) return template;
    *error = c.error;
    return NULL;
}

const hx_template *hx_template_compile(hx_slice text, hx_zone_finder find_zone, void *user, hx_arena *arena,
                                       const char **error)
{
    const hx_template *template = hx_template_of_caller(text, find_zone, user, arena, error);
    if (!template || is_of_the_request(template)) return template;
    *error = "nothing of the request is in the template, so that all requests would have one key; add a part such as "
             "{body:/orderId} or {principal}";
    return NULL;
}

const hx_template_part *hx_template_stray_path(const hx_template *template, hx_slice path_template)
{
    for (size_t i = 0; i < template->count; i++) {
        const hx_template_part *part = &template->parts[i];
        hx_slice unused;
        if (part->kind == HX_TEMPLATE_PATH && !hx_path_parameter(path_template, path_template, part->argument, &unused))
            return part;
    }
    return NULL;
}

typedef struct {
    char type;
    hx_slice bytes;
} typed;

static typed text_value(hx_slice text)
{
    return (typed){.type = 't', .bytes = text};
}

/* These readers return NULL, or a sentence that says why there is no value. */

static const char *read_header(const hx_template_part *part, const hx_template_input *in, typed *out)
{
    hx_slice value = HX_EMPTY;
    unsigned lines = in->header(in->user, part->argument, &value);
    if (lines == 0) return "The request has no such header.";
    if (lines > 1) return "The header comes more than once, and it can't be told which one counts.";
    *out = text_value(hx_slice_trim(value));
    return out->bytes.len > 0 ? NULL : "The header is empty.";
}

static const char *read_path(const hx_template_part *part, const hx_template_input *in, hx_arena *arena, typed *out)
{
    hx_slice raw, value;
    if (!hx_path_parameter(in->path_template, in->path, part->argument, &raw))
        return "The path of the request's route has no such name.";
    if (!hx_text_percent_decode(raw, false, arena, &value)) return "It holds a \"%\" without two hexadecimal digits.";
    *out = text_value(value);
    return value.len > 0 ? NULL : "It is empty.";
}

static const char *read_query(const hx_template_part *part, const hx_template_input *in, hx_arena *arena, typed *out)
{
    hx_slice rest = in->query, pair, raw = HX_EMPTY, value;
    unsigned found = 0;
    while (rest.len > 0 && hx_slice_next(&rest, '&', &pair)) {
        size_t equals = hx_slice_find(pair, '=');
        hx_slice name;
        if (!hx_text_percent_decode(hx_slice_first(pair, equals), true, arena, &name) ||
            !hx_slice_eq(name, part->argument))
            continue;
        found++;
        raw = equals == SIZE_MAX ? HX_EMPTY : hx_slice_from(pair, equals + 1);
    }
    if (found == 0) return "The query has no such parameter.";
    if (found > 1) return "The parameter comes more than once, and it can't be told which one counts.";
    if (!hx_text_percent_decode(raw, true, arena, &value))
        return "Its value holds a \"%\" without two hexadecimal digits.";
    *out = text_value(value);
    return value.len > 0 ? NULL : "The parameter is empty.";
}

static const char *read_json(hx_slice raw, hx_arena *arena, typed *out)
{
    hx_buf text;
    switch (raw.ptr[0]) {
    case 'n': return "The value is null.";
    case 't':
    case 'f': *out = (typed){'b', raw}; return NULL;
    case '"':
        out->type = 's';
        if (!hx_json_string(raw, arena, &out->bytes)) return "The value is a malformed string.";
        return out->bytes.len > 0 ? NULL : "The value is an empty string.";
    case '[':
    case '{':
        out->type = 'j';
        hx_buf_init(&text, arena, HX_JSON_CANONICAL_BYTES(raw.len));
        if (!hx_json_canonical(raw, arena, &text))
            return "The value has a member twice, a number out of bounds or too deep a nesting.";
        break;
    default:
        out->type = 'n';
        hx_buf_init(&text, arena, raw.len + HX_NUMBER_GROWTH_BYTES);
        if (!hx_number_canonical(raw, &text)) return "The value is a number out of bounds.";
    }
    out->bytes = hx_buf_slice(&text);
    return NULL;
}

static const char *read_body(const hx_template_part *part, const hx_template_input *in, hx_arena *arena, typed *out)
{
    hx_slice raw;
    if (in->body.len == 0) return "The request has no body.";
    if (!in->body_is_json)
        return "The body isn't JSON by its Content-Type (application/json, in UTF-8), or it is compressed.";
    switch (hx_json_find(in->body, part->argument, &raw)) {
    case HX_JSON_FOUND: return read_json(raw, arena, out);
    case HX_JSON_MISSING: return "The body has no such value.";
    case HX_JSON_MALFORMED: break;
    }
    return "The body is malformed JSON, or has a member twice on the way to the value.";
}

static const char *read_body_hash(const hx_template_input *in, hx_arena *arena, typed *out)
{
    if (in->body.len == 0) return "The request has no body.";
    SHA256_CTX context;
    uint8_t *digest = hx_arena_alloc(arena, SHA256_DIGEST_LENGTH);
    int ok = SHA256_Init(&context) && SHA256_Update(&context, in->body_hashed.ptr, in->body_hashed.len) &&
             SHA256_Final(digest, &context);
    HX_CHECK(ok);
    *out = (typed){'h', {(const char *)digest, SHA256_DIGEST_LENGTH}};
    return NULL;
}

static const char *read_principal(const hx_template_input *in, typed *out)
{
    if (in->principal.len == 0)
        return "The request says nothing of who sends it: it has none of the credentials that `principal` lists.";
    *out = (typed){'p', in->principal};
    return NULL;
}

static char *put_digits(char *at, int32_t number, int count)
{
    for (int i = count - 1; i >= 0; i--, number /= 10) at[i] = (char)('0' + number % 10);
    return at + count;
}

static void read_date(const hx_template_part *part, hx_ms now, hx_arena *arena, typed *out)
{
    hx_date date = hx_zone_date(part->zone, now);
    char *text = hx_arena_alloc(arena, 10), *at = put_digits(text, date.year, 4);
    *at++ = '-';
    at = put_digits(at, date.month, 2);
    *at++ = '-';
    at = put_digits(at, date.day, 2);
    *out = (typed){'d', {text, (size_t)(at - text)}};
}

/* Windows are counted from 1970 in UTC. */
static void read_window(const hx_template_part *part, hx_ms now, hx_arena *arena, typed *out)
{
    hx_ms *began = hx_arena_alloc(arena, sizeof *began);
    *began = floor_to(now, part->window);
    *out = (typed){'w', {(const char *)began, sizeof *began}};
}

static const char *read_part(const hx_template_part *part, const hx_template_input *in, hx_arena *arena, typed *out)
{
    switch (part->kind) {
    case HX_TEMPLATE_HEADER: return read_header(part, in, out);
    case HX_TEMPLATE_BODY: return read_body(part, in, arena, out);
    case HX_TEMPLATE_PATH: return read_path(part, in, arena, out);
    case HX_TEMPLATE_QUERY: return read_query(part, in, arena, out);
    case HX_TEMPLATE_PRINCIPAL: return read_principal(in, out);
    case HX_TEMPLATE_BODY_HASH: return read_body_hash(in, arena, out);
    case HX_TEMPLATE_DATE: read_date(part, in->now, arena, out); return NULL;
    case HX_TEMPLATE_WINDOW: read_window(part, in->now, arena, out); return NULL;
    case HX_TEMPLATE_LITERAL: break;
    }
    hx_check_failed(__FILE__, __LINE__, "a part that has a value");
}

/* A date or window is always there; it is read by the moment that a key is for. */
static bool is_bucket(const hx_template_part *part)
{
    return part->kind == HX_TEMPLATE_DATE || part->kind == HX_TEMPLATE_WINDOW;
}

static void mac_value(hx_mac *mac, const hx_template_part *part, const typed *value)
{
    hx_mac_part(mac, part->canonical);
    hx_mac_part(mac, (hx_slice){&value->type, 1});
    hx_mac_part(mac, value->bytes);
}

bool hx_template_key(const hx_template *template, const hx_template_input *in, hx_mac *mac, hx_arena *arena,
                     hx_template_result *out)
{
    out->wrong = HX_EMPTY;
    out->why = NULL;
    hx_mac_begin(mac, TAG);
    for (size_t i = 0; i < template->count; i++) {
        const hx_template_part *part = &template->parts[i];
        typed value;
        if (part->kind == HX_TEMPLATE_LITERAL || is_bucket(part)) {
            hx_mac_part(mac, part->canonical);
            continue;
        }
        out->why = read_part(part, in, arena, &value);
        if (out->why) {
            out->wrong = part->text;
            return false;
        }
        mac_value(mac, part, &value);
    }
    out->fixed = hx_mac_end(mac);
    out->key = hx_template_key_at(template, &out->fixed, in->now, mac, arena);
    return true;
}

static hx_slice hex_of(hx_slice bytes, hx_arena *arena)
{
    hx_buf hex;
    hx_buf_init(&hex, arena, 2 * bytes.len);
    hx_buf_put_hex(&hex, (const uint8_t *)bytes.ptr, bytes.len);
    return hx_buf_slice(&hex);
}

static hx_slice moment_of(hx_slice bytes, hx_arena *arena)
{
    hx_ms at;
    memcpy(&at, bytes.ptr, sizeof at);
    char *text = hx_arena_alloc(arena, HX_RFC3339_BYTES);
    hx_slice moment = hx_rfc3339(at, text);
    if (hx_slice_ends(moment, HX_LIT(".000Z"))) {
        moment.len -= 4;
        text[moment.len - 1] = 'Z';
    }
    return moment;
}

static hx_slice shown(const typed *value, hx_arena *arena)
{
    switch (value->type) {
    case 'h': return hex_of(value->bytes, arena);
    case 'w': return moment_of(value->bytes, arena);
    case 'p': { /* its kind, a NUL and who, which may be a whole credential */
        size_t end = hx_slice_find(value->bytes, '\0');
        return end == SIZE_MAX ? HX_EMPTY : hx_slice_first(value->bytes, end);
    }
    default: return value->bytes;
    }
}

bool hx_template_show(const hx_template *template, const hx_template_input *in, hx_arena *arena,
                      hx_template_values *out)
{
    *out = (hx_template_values){.wrong = HX_EMPTY};
    for (size_t i = 0; i < template->count; i++) {
        const hx_template_part *part = &template->parts[i];
        typed value;
        if (part->kind == HX_TEMPLATE_LITERAL) continue;
        out->why = read_part(part, in, arena, &value);
        if (out->why) {
            out->wrong = part->text;
            return false;
        }
        out->values[out->value_count++] = (hx_template_value){part->text, shown(&value, arena)};
    }
    return true;
}

hx_digest hx_template_key_at(const hx_template *template, const hx_digest *fixed, hx_ms now, hx_mac *mac,
                             hx_arena *arena)
{
    if (!template->has_bucket) return *fixed;
    hx_mac_begin(mac, TAG_BUCKETS);
    hx_mac_part(mac, (hx_slice){(const char *)fixed->bytes, sizeof fixed->bytes});
    for (size_t i = 0; i < template->count; i++) {
        const hx_template_part *part = &template->parts[i];
        typed value;
        if (part->kind == HX_TEMPLATE_DATE)
            read_date(part, now, arena, &value);
        else if (part->kind == HX_TEMPLATE_WINDOW)
            read_window(part, now, arena, &value);
        else
            continue;
        mac_value(mac, part, &value);
    }
    return hx_mac_end(mac);
}

hx_ms hx_template_bucket_began(const hx_template *template, hx_ms now)
{
    HX_CHECK(template->has_bucket);
    hx_ms latest = INT64_MIN;
    for (size_t i = 0; i < template->count; i++) {
        const hx_template_part *part = &template->parts[i];
        hx_ms began = INT64_MIN;
        if (part->kind == HX_TEMPLATE_DATE) began = hx_zone_date_began(part->zone, now);
        if (part->kind == HX_TEMPLATE_WINDOW) began = floor_to(now, part->window);
        if (began > latest) latest = began;
    }
    return latest;
}
