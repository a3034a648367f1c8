/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §4, natural keys: which templates there are, and that two requests have one key exactly when every part of
 * them is the same. */
#include "core/operation/template.h"

#include "base/memory/buf.h"
#include "core/time/zone.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define NOON INT64_C(1771502400000) /* 2026-02-19T12:00:00Z */
#define ALL                                                                                                            \
    "r-{header:X-Tenant}:{body:/a/b}:{path:id}:{query:q}:{principal}:{date:Test/East}:{date:Test/West}:{window:1h}:"   \
    "{window:1d}:{sha256:body}"

typedef struct {
    hx_arena arena;
    hx_mac *mac;
    const hx_zone *east, *west;
} fixture;

/* A zone that is nothing but its rule. */
static const hx_zone *zone_of(const char *name, const char *rule, hx_arena *arena)
{
    static const char header[44] = "TZif2", second[44] = {'T', 'Z', 'i', 'f', '2', [39] = 1, [43] = 1};
    hx_buf bytes;
    hx_buf_init(&bytes, arena, 256);
    hx_buf_put(&bytes, (hx_slice){header, sizeof header});
    hx_buf_put(&bytes, (hx_slice){second, sizeof second});
    hx_buf_put(&bytes, (hx_slice){"\0\0\0\0\0\0\0", 7});
    hx_buf_puts(&bytes, "\n");
    hx_buf_puts(&bytes, rule);
    hx_buf_puts(&bytes, "\n");
    const hx_zone *zone = hx_zone_read(hx_slice_of(name), hx_buf_slice(&bytes), arena);
    assert_non_null(zone);
    return zone;
}

static int set_up(void **state)
{
    static const uint8_t secret[HX_SECRET_BYTES] = {1, 2, 3};
    fixture *f = calloc(1, sizeof *f);
    if (!f) return 1;
    f->mac = hx_mac_new(secret);
    f->east = zone_of("Test/East", "AAA-13", &f->arena);
    f->west = zone_of("Test/West", "EST5EDT,M3.2.0,M11.1.0", &f->arena);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    hx_mac_free(&f->mac);
    hx_arena_free(&f->arena);
    free(f);
    return 0;
}

static const hx_zone *find_zone(void *user, hx_slice name)
{
    fixture *f = user;
    if (hx_slice_eq(name, hx_zone_name(f->east))) return f->east;
    return hx_slice_eq(name, hx_zone_name(f->west)) ? f->west : NULL;
}

static const hx_template *compile(fixture *f, const char *text)
{
    const char *error = NULL;
    const hx_template *template = hx_template_compile(hx_slice_of(text), find_zone, f, &f->arena, &error);
    if (!template) fail_msg("%s: %s", text, error);
    return template;
}

static void refuses(fixture *f, const char *text, const char *because)
{
    const char *error = NULL;
    if (hx_template_compile(hx_slice_of(text), find_zone, f, &f->arena, &error)) fail_msg("%s is taken", text);
    if (!error || !strstr(error, because)) fail_msg("%s: %s", text, error ? error : "no error");
}

/* A request whose header lines are pairs of name and value, ended by NULL. */
typedef struct {
    const char *const *headers;
    const char *body;
    bool not_json;
    const char *path, *path_template, *query, *principal;
    hx_ms now;
} request;

static unsigned header_of(const void *user, hx_slice name, hx_slice *value)
{
    unsigned lines = 0;
    for (const char *const *line = user; line && line[0]; line += 2) {
        if (!hx_slice_eq(hx_slice_of(line[0]), name)) continue;
        if (lines++ == 0) *value = hx_slice_of(line[1]);
    }
    return lines;
}

static hx_slice or_empty(const char *text)
{
    return text ? hx_slice_of(text) : HX_EMPTY;
}

static hx_template_input input_of(const request *r)
{
    return (hx_template_input){.header = header_of,
                               .user = r->headers,
                               .path = or_empty(r->path),
                               .path_template = or_empty(r->path_template),
                               .query = or_empty(r->query),
                               .principal = or_empty(r->principal),
                               .body_is_json = !r->not_json,
                               .body = or_empty(r->body),
                               .body_hashed = or_empty(r->body),
                               .now = r->now};
}

static hx_template_result result_of(fixture *f, const hx_template *template, const request *r)
{
    hx_template_input in = input_of(r);
    hx_template_result result;
    if (!hx_template_key(template, &in, f->mac, &f->arena, &result))
        fail_msg("%.*s: %.*s: %s", HX_FMT(template->text), HX_FMT(result.wrong), result.why);
    assert_true(result.why == NULL);
    return result;
}

static hx_template_values values_of(fixture *f, const char *template, const hx_template_input *in)
{
    hx_template_values values;
    if (!hx_template_show(compile(f, template), in, &f->arena, &values))
        fail_msg("%s: %.*s: %s", template, HX_FMT(values.wrong), values.why);
    assert_true(values.why == NULL && values.wrong.len == 0);
    return values;
}

static hx_digest key_of(fixture *f, const hx_template *template, const request *r)
{
    return result_of(f, template, r).key;
}

static hx_digest key_of_body(fixture *f, const char *template, const char *body)
{
    return key_of(f, compile(f, template), &(request){.body = body, .now = NOON});
}

static void lacks(fixture *f, const char *text, const request *r, const char *part, const char *because)
{
    hx_template_input in = input_of(r);
    hx_template_result result;
    hx_template_values values;
    if (hx_template_key(compile(f, text), &in, f->mac, &f->arena, &result)) fail_msg("%s has a key", text);
    if (!hx_slice_eq(result.wrong, hx_slice_of(part)) || !strstr(result.why, because))
        fail_msg("%s: %.*s: %s", text, HX_FMT(result.wrong), result.why);
    if (hx_template_show(compile(f, text), &in, &f->arena, &values)) fail_msg("%s has values", text);
    if (!hx_slice_eq(values.wrong, result.wrong) || strcmp(values.why, result.why) != 0)
        fail_msg("%s: %.*s: %s", text, HX_FMT(values.wrong), values.why);
}

static void same(hx_digest a, hx_digest b, const char *what)
{
    if (!hx_digest_eq(&a, &b)) fail_msg("%s: the keys differ", what);
}

static void differ(hx_digest a, hx_digest b, const char *what)
{
    if (hx_digest_eq(&a, &b)) fail_msg("%s: the key is the same", what);
}

static void a_template_knows_what_it_is_made_of(void **state)
{
    fixture *f = *state;
    const hx_template *t = compile(f, ALL);
    assert_int_equal(t->count, 20);
    assert_true(t->has_bucket && t->has_pointer && t->has_hash);
    assert_int_equal(t->bucket_min, HX_HOUR);
    assert_int_equal(t->parts[0].kind, HX_TEMPLATE_LITERAL);
    assert_true(hx_slice_eq(t->parts[0].text, HX_LIT("r-")));
    assert_int_equal(t->parts[1].kind, HX_TEMPLATE_HEADER);
    assert_true(hx_slice_eq(t->parts[1].text, HX_LIT("{header:X-Tenant}")));
    assert_true(hx_slice_eq(t->parts[1].argument, HX_LIT("x-tenant")));
    assert_int_equal(t->parts[3].kind, HX_TEMPLATE_BODY);
    assert_true(hx_slice_eq(t->parts[3].argument, HX_LIT("/a/b")));
    assert_ptr_equal(t->parts[11].zone, f->east);
    assert_int_equal(t->parts[15].window, HX_HOUR);
    assert_int_equal(t->parts[19].kind, HX_TEMPLATE_BODY_HASH);

    t = compile(f, "{path:id}{query:a:b}");
    assert_false(t->has_bucket || t->has_pointer || t->has_hash);
    assert_int_equal(t->bucket_min, 0);
    assert_true(hx_slice_eq(t->parts[1].argument, HX_LIT("a:b")));
    assert_int_equal(compile(f, "{query:a}{date:Test/East}")->bucket_min, HX_DAY);
    assert_int_equal(compile(f, "{query:a}{window:7d}{date:Test/East}")->bucket_min, HX_DAY);
    assert_int_equal(compile(f, "{query:a}{window:1500ms}")->bucket_min, 1500);
    assert_null(hx_template_stray_path(t, HX_LIT("/matches/{id}/messages")));
    assert_true(hx_slice_eq(hx_template_stray_path(t, HX_LIT("/matches/{match}"))->text, HX_LIT("{path:id}")));
}

static void the_text_need_not_outlive_the_template_s_making(void **state)
{
    fixture *f = *state;
    char text[] = "{body:/a}:{header:X}";
    const hx_template *t = compile(f, text);
    memset(text, 'x', sizeof text - 1);
    assert_true(hx_slice_eq(t->text, HX_LIT("{body:/a}:{header:X}")));
    assert_true(hx_slice_eq(t->parts[0].argument, HX_LIT("/a")));
}

static void broken_templates_are_refused_with_their_part_named(void **state)
{
    fixture *f = *state;
    refuses(f, "", "empty");
    refuses(f, "{body:/a", "\"{body:/a\" opens a brace that isn't closed");
    refuses(f, "{body:/a}:{", "\"{\" opens a brace that isn't closed");
    refuses(f, "{body:/a{query:b}", "\"{body:/a{query:b\" opens a brace that isn't closed");
    refuses(f, "{{body:/a}}", "opens a brace that isn't closed");
    refuses(f, "a}b{body:/a}", "\"a}\" closes a brace that isn't open");
    refuses(f, "{body:/a}}", "\"}\" closes a brace that isn't open");
    refuses(f, "{body:/a}-}", "\"-}\" closes a brace that isn't open");
    refuses(f, "{}", "there is no part \"\"");
    refuses(f, "{boddy:/a}", "\"{boddy:/a}\": there is no part \"boddy\"; the parts are {header:…}, {body:…}");
    refuses(f, "{Body:/a}", "there is no part \"Body\"");
    refuses(f, "{ body:/a}", "there is no part \" body\"");
    refuses(f, "{:/a}", "there is no part \"\"");
    refuses(f, "{body}", "\"{body}\" lacks what follows a colon: a JSON pointer");
    refuses(f, "{body:}", "\"{body:}\" lacks what follows a colon: a JSON pointer; the whole body is {sha256:body}");
    refuses(f, "{header}", "the name of a header");
    refuses(f, "{query:}", "the name of a query parameter");
    refuses(f, "{path:}", "in braces in the route's path");
    refuses(f, "{date:}{query:a}", "a time zone");
    refuses(f, "{window}{query:a}", "a duration");
    refuses(f, "{principal:x}", "\"{principal:x}\" has nothing behind its name");
    refuses(f, "{principal:}", "has nothing behind its name");
    refuses(f, "{body:a}", "\"{body:a}\": not a JSON pointer: \"a\"");
    refuses(f, "{body:/a~2}", "not a JSON pointer: \"/a~2\"");
    refuses(f, "{header:X Y}", "not the name of a header: \"X Y\"");
    refuses(f, "{path:a/b}", "not a name as in the path /refunds/{id}: \"a/b\"");
    refuses(f, "{sha256:/a}", "no digest is known of \"/a\"; only {sha256:body}");
    refuses(f, "{sha256}", "lacks what follows a colon: body");
    refuses(f, "{query:a}{date:Test/North}", "\"{date:Test/North}\": there is no time zone \"Test/North\"");
    refuses(f, "{query:a}{date:../Test/East}", "not the name of a time zone: \"../Test/East\"");
    refuses(f, "{query:a}{date:test/east}", "there is no time zone \"test/east\"");
}

static void windows_have_a_duration_of_a_second_or_more(void **state)
{
    fixture *f = *state;
    static const char *const malformed[] = {"1", "h", "1 h", "-1h", "1.5h", "1w", "1H", "1h30m", "0x1h", "+1h", "1hh"};
    static const char *const unfit[] = {
        "0s", "0ms", "999ms", "36501d", "99999999999999999999d", "9223372036854775807h"};
    char text[64];
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        (void)snprintf(text, sizeof text, "{query:a}{window:%s}", malformed[i]);
        refuses(f, text, "not a duration");
    }
    for (size_t i = 0; i < sizeof unfit / sizeof *unfit; i++) {
        (void)snprintf(text, sizeof text, "{query:a}{window:%s}", unfit[i]);
        refuses(f, text, "a window has 1s to 36500d");
    }
    assert_int_equal(compile(f, "{query:a}{window:36500d}")->parts[1].window, 36500 * HX_DAY);
    assert_int_equal(compile(f, "{query:a}{window:1000ms}")->parts[1].window, HX_SECOND);
    assert_int_equal(compile(f, "{query:a}{window:90s}")->parts[1].window, 90 * HX_SECOND);
    assert_int_equal(compile(f, "{query:a}{window:015m}")->parts[1].window, 15 * HX_MINUTE);
}

static void a_template_that_all_requests_share_is_refused(void **state)
{
    fixture *f = *state;
    refuses(f, "daily", "nothing of the request");
    refuses(f, "{date:Test/East}", "nothing of the request");
    refuses(f, "report:{window:1h}:{date:Test/East}", "nothing of the request");
    (void)compile(f, "{principal}:{date:Test/East}");
}

static void the_same_part_twice_is_refused_in_any_spelling(void **state)
{
    fixture *f = *state;
    refuses(f, "{body:/a}:{body:/a}", "\"{body:/a}\" says again what \"{body:/a}\" says");
    refuses(f, "{header:X-A}{header:x-a}", "\"{header:x-a}\" says again what \"{header:X-A}\" says");
    refuses(f, "{query:a}{window:60m}{window:1h}", "\"{window:1h}\" says again what \"{window:60m}\" says");
    refuses(f, "{principal}{principal}", "says again");
    (void)compile(f, "{query:a}{query:A}{body:/a}{body:/A}::{window:1h}{window:1d}");
}

static void there_is_a_bound_to_parts_and_bytes(void **state)
{
    fixture *f = *state;
    char text[2048] = "";
    size_t len = 0;
    for (int i = 0; i < 32; i++) len += (size_t)snprintf(text + len, sizeof text - len, "{query:a%d}", i);
    assert_int_equal(compile(f, text)->count, HX_TEMPLATE_PARTS_MAX);
    text[len] = 'x';
    text[len + 1] = '\0';
    refuses(f, text, "more than 32 parts");
    memset(text, 'x', sizeof text - 1);
    memcpy(text, "{query:a}", 9);
    text[1024] = '\0';
    assert_int_equal(compile(f, text)->count, 2);
    text[1024] = 'x';
    text[1025] = '\0';
    refuses(f, text, "more than 1024 bytes");
}

static const char *const tenant_7[] = {"x-tenant", "7", NULL};

static request whole_request(void)
{
    return (request){.headers = tenant_7,
                     .body = "{\"a\":{\"b\":\"x\"},\"c\":1}",
                     .path = "/matches/m-1/messages",
                     .path_template = "/matches/{id}/messages",
                     .query = "p=0&q=z",
                     .principal = "basic",
                     .now = NOON};
}

static void any_part_that_changes_changes_the_key(void **state)
{
    fixture *f = *state;
    static const char *const tenant_8[] = {"x-tenant", "8", NULL};
    const hx_template *t = compile(f, ALL);
    request r = whole_request(), changed[12];
    hx_digest key = key_of(f, t, &r);
    same(key, key_of(f, t, &r), "the same request");
    for (size_t i = 0; i < 12; i++) changed[i] = r;
    changed[0].headers = tenant_8;
    changed[1].body = "{\"a\":{\"b\":\"y\"},\"c\":1}"; /* in what is pointed at, and in the whole */
    changed[2].body = "{\"a\":{\"b\":\"x\"},\"c\":2}"; /* only in the whole */
    changed[3].path = "/matches/m-2/messages";
    changed[4].query = "p=0&q=y";
    changed[5].principal = "basi";
    changed[6].now = NOON + HX_HOUR; /* another hour, another date in the east */
    changed[7].now = NOON - 1;
    changed[8].now = NOON + HX_DAY;
    changed[9].now = NOON - 8 * HX_HOUR; /* another date in the west */
    changed[10].now = NOON + 24 * HX_HOUR;
    changed[11].body = "{\"a\":{\"b\":\"x\"},\"c\":1} ";
    for (size_t i = 0; i < 12; i++) {
        hx_digest other = key_of(f, t, &changed[i]);
        if (hx_digest_eq(&key, &other)) fail_msg("change %zu makes no difference", i);
    }
}

static void what_is_not_a_part_changes_nothing(void **state)
{
    fixture *f = *state;
    static const char *const more[] = {"x-other", "1", "x-tenant", " 7 ", "x-tenant-2", "9", NULL};
    const hx_template *t = compile(f, "{header:X-Tenant}:{body:/a/b}:{path:id}:{query:q}:{date:Test/East}:{window:1h}");
    request r = whole_request(), other = r;
    other.headers = more;
    other.body = " { \"c\": [1, 2], \"a\": {\"d\": null, \"b\": \"\\u0078\"} } ";
    other.query = "q=%7a&p=&r";
    other.principal = "another";
    other.now = NOON + HX_HOUR - 1 - 2 * HX_HOUR; /* one o'clock in the east has begun at noon */
    differ(key_of(f, t, &r), key_of(f, t, &other), "the hour before");
    other.now = NOON;
    same(key_of(f, t, &r), key_of(f, t, &other), "what is not a part");
    t = compile(f, "{header:x-TENANT}:{body:/a/b}:{path:id}:{query:q}:{date:Test/East}:{window:3600s}");
    same(key_of(f, t, &r),
         key_of(f, compile(f, "{header:X-Tenant}:{body:/a/b}:{path:id}:{query:q}:{date:Test/East}:{window:60m}"), &r),
         "two spellings of one template");
}

static void bytes_that_move_between_parts_change_the_key(void **state)
{
    fixture *f = *state;
    const char *t = "{body:/a}:{body:/b}";
    differ(key_of_body(f, t, "{\"a\":\"a:b\",\"b\":\"c\"}"), key_of_body(f, t, "{\"a\":\"a\",\"b\":\"b:c\"}"), "a:b c");
    differ(key_of_body(f, t, "{\"a\":\"ab\",\"b\":\"c\"}"), key_of_body(f, t, "{\"a\":\"a\",\"b\":\"bc\"}"), "ab c");
    differ(key_of_body(f, t, "{\"a\":\"x\",\"b\":\"y\"}"), key_of_body(f, t, "{\"a\":\"y\",\"b\":\"x\"}"), "swapped");
    differ(key_of_body(f, "{body:/a}{body:/b}", "{\"a\":\"x\",\"b\":\"y\"}"),
           key_of_body(f, "{body:/b}{body:/a}", "{\"a\":\"x\",\"b\":\"y\"}"), "order of parts");
    differ(key_of_body(f, "{body:/a}{body:/b}", "{\"a\":\"x\",\"b\":\"x\"}"),
           key_of_body(f, "{body:/b}{body:/a}", "{\"a\":\"x\",\"b\":\"x\"}"), "order of equal parts");
    /* The same bytes from another place are another key. */
    request r = {.query = "a=x&b=x", .body = "{\"a\":\"x\"}", .path = "/x", .path_template = "/{a}", .now = NOON};
    hx_digest keys[] = {key_of(f, compile(f, "{query:a}"), &r), key_of(f, compile(f, "{query:b}"), &r),
                        key_of(f, compile(f, "{body:/a}"), &r), key_of(f, compile(f, "{path:a}"), &r)};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < i; k++) differ(keys[i], keys[k], "another place");
}

static void literal_text_counts_and_is_never_a_part(void **state)
{
    fixture *f = *state;
    const char *body = "{\"a\":\"x\"}";
    static const char *const templates[] = {"{body:/a}",   "r{body:/a}",       "{body:/a}r",       "s{body:/a}",
                                            "rr{body:/a}", "{body:/a}body:/a", "=body:/a{body:/a}"};
    enum { COUNT = sizeof templates / sizeof *templates };
    hx_digest keys[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        keys[i] = key_of_body(f, templates[i], body);
        for (size_t k = 0; k < i; k++) differ(keys[i], keys[k], templates[i]);
    }
}

static void values_of_json_are_told_apart_by_type_and_meaning(void **state)
{
    fixture *f = *state;
    static const char *const different[] = {
        "\"1\"",
        "1",
        "true",
        "\"true\"",
        "false",
        "[1]",
        "[\"1\"]",
        "{\"a\":1}",
        "[]",
        "{}",
        "\"[]\"",
        "9007199254740992",
        "9007199254740993",
        "1.00000000000000000001",
        "\"A\"",
        "\"a\"",
        "\"\\u00e9\"",
        "\"e\\u0301\"",
        "-1",
        "10",
        "[[1]]",
        "\" 1\"",
        "[1,2]",
        "[2,1]",
        "\"null\"",
        "[null]",
        "1e400",
        "\"1e400\"",
        "0",
        "[0]",
    };
    enum { COUNT = sizeof different / sizeof *different };
    hx_digest keys[COUNT];
    char body[128];
    for (size_t i = 0; i < COUNT; i++) {
        (void)snprintf(body, sizeof body, "{\"v\":%s}", different[i]);
        keys[i] = key_of_body(f, "{body:/v}", body);
        for (size_t k = 0; k < i; k++) differ(keys[i], keys[k], different[i]);
    }
    static const char *const pairs[][2] = {
        {"19.99", "1.9990e1"},
        {"\"a\"", "\"\\u0061\""},
        {"0", "-0"},
        {"[1,2.0]", " [ 1.0 , 2 ] "},
        {"100", "1e2"},
        {"{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}"},
        {"9007199254740993", "9007199254740993.0"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char other[128];
        (void)snprintf(body, sizeof body, "{\"v\":%s}", pairs[i][0]);
        (void)snprintf(other, sizeof other, "{\"v\":%s}", pairs[i][1]);
        same(key_of_body(f, "{body:/v}", body), key_of_body(f, "{body:/v}", other), pairs[i][0]);
    }
}

static void a_missing_part_is_named_with_the_reason(void **state)
{
    fixture *f = *state;
    const char *t = "k:{query:n}:{body:/a}";
    request r = {.query = "n=1", .body = "{\"a\":1}", .now = NOON};
    (void)key_of(f, compile(f, t), &r);
    static const struct {
        const char *body, *because;
    } bodies[] = {
        {"{\"b\":1}", "no such value"},
        {"{\"a\":null}", "null"},
        {"{\"a\":\"\"}", "empty string"},
        {"{\"a\":1", "malformed"},
        {"{\"a\":1}x", "malformed"},
        {"{\"a\":1,\"a\":2}", "twice"},
        {"{\"a\":1,\"\\u0061\":1}", "twice"},
        {"{\"a\":{\"b\":1,\"b\":1}}", "twice"},
        {"{\"a\":1e99999999999999999999}", "out of bounds"},
        {"[]", "no such value"},
        {"", "no body"},
        {NULL, "no body"},
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        r.body = bodies[i].body;
        lacks(f, t, &r, "{body:/a}", bodies[i].because);
    }
    r.body = "{\"a\":1}";
    r.not_json = true;
    lacks(f, t, &r, "{body:/a}", "Content-Type");
    r.query = NULL;
    lacks(f, t, &r, "{query:n}", "no such parameter"); /* the first that is missing */
    lacks(f, "{principal}", &r, "{principal}", "who sends it");
    lacks(f, "{header:X-A}", &r, "{header:X-A}", "no such header");
    lacks(f, "{path:id}", &r, "{path:id}", "no such name");
    r.body = "";
    lacks(f, "{sha256:body}", &r, "{sha256:body}", "no body");
}

static void headers_come_once_and_are_not_empty(void **state)
{
    fixture *f = *state;
    static const char *const twice[] = {"x-a", "1", "x-b", "2", "x-a", "1", NULL};
    static const char *const blank[] = {"x-a", " \t", NULL};
    request r = {.headers = twice, .now = NOON};
    lacks(f, "{header:X-A}", &r, "{header:X-A}", "more than once");
    (void)key_of(f, compile(f, "{header:X-B}"), &r);
    r.headers = blank;
    lacks(f, "{header:X-A}", &r, "{header:X-A}", "empty");
}

static hx_slice only_value(fixture *f, const char *template, const request *r)
{
    hx_template_input in = input_of(r);
    hx_template_values shown = values_of(f, template, &in);
    (void)result_of(f, compile(f, template), r);
    assert_int_equal(shown.value_count, 1);
    assert_true(hx_slice_eq(shown.values[0].text, hx_slice_of(template)));
    return shown.values[0].value;
}

static void check_query(fixture *f, const char *query, const char *value)
{
    hx_slice found = only_value(f, "{query:n m}", &(request){.query = query, .now = NOON});
    if (!hx_slice_eq(found, hx_slice_of(value))) fail_msg("%s: %.*s", query, HX_FMT(found));
}

static void parameters_are_decoded(void **state)
{
    fixture *f = *state;
    check_query(f, "n+m=1", "1");
    check_query(f, "n%20m=a+b%2Bc%3d%26", "a b+c=&");
    check_query(f, "&&x=%zz&n m=a=b&N m=3", "a=b");
    check_query(f, "n%zz=1&n%20%6D=%25", "%");
    check_query(f, "x%20n+m=1&n+m=%C3%A9", "é");
    static const struct {
        const char *query, *because;
    } bad[] = {
        {"n+m=1&n%20m=1", "more than once"},
        {"n+m=1&n+m", "more than once"},
        {"n+m", "empty"},
        {"n+m=", "empty"},
        {"n+m=%", "hexadecimal"},
        {"n+m=%4", "hexadecimal"},
        {"n+m=a%4g", "hexadecimal"},
        {"nm=1&n%2Bm=1", "no such parameter"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        lacks(f, "{query:n m}", &(request){.query = bad[i].query, .now = NOON}, "{query:n m}", bad[i].because);
    request r = {.path = "/u/a+b%20c%3A", .path_template = "/u/{id}", .now = NOON};
    assert_true(hx_slice_eq(only_value(f, "{path:id}", &r), HX_LIT("a+b c:")));
    r.path = "/u/%4";
    lacks(f, "{path:id}", &r, "{path:id}", "hexadecimal");
}

static void values_are_shown_for_people_but_no_credential(void **state)
{
    fixture *f = *state;
    request r = {.body = "{\"n\":1.50e1,\"s\":\"\\u00e9\"}", .now = NOON + 90 * HX_MINUTE};
    assert_true(hx_slice_eq(only_value(f, "{body:/n}", &r), HX_LIT("15")));
    assert_true(hx_slice_eq(only_value(f, "{body:/s}", &r), HX_LIT("é")));
    r.body = "abc";
    assert_true(hx_slice_eq(only_value(f, "{sha256:body}", &r),
                            HX_LIT("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")));
    hx_template_input in = input_of(&r);
    hx_template_result result;
    in.body = HX_LIT("--boundary …");
    assert_true(hx_template_key(compile(f, "{sha256:body}"), &in, f->mac, &f->arena, &result));
    same(result.key, key_of(f, compile(f, "{sha256:body}"), &r), "what stands for the body");
    in.query = HX_LIT("a=1");
    in.principal = (hx_slice){"whole\0s3cret", 12};
    static const char text[] = "{query:a}{date:Test/East}{date:Test/West}:{window:1h}{principal}";
    assert_true(hx_template_key(compile(f, text), &in, f->mac, &f->arena, &result));
    hx_template_values shown = values_of(f, text, &in);
    static const char *const values[] = {"1", "2026-02-20", "2026-02-19", "2026-02-19T13:00:00Z", "whole"};
    assert_int_equal(shown.value_count, 5);
    for (size_t i = 0; i < 5; i++)
        if (!hx_slice_eq(shown.values[i].value, hx_slice_of(values[i])))
            fail_msg("%.*s, not %s", HX_FMT(shown.values[i].value), values[i]);
    hx_digest key = result.key;
    in.principal = (hx_slice){"whole\0s3cre7", 12}; /* not shown, and counted all the same */
    assert_true(hx_template_key(compile(f, text), &in, f->mac, &f->arena, &result));
    differ(key, result.key, "another principal");
    in.principal = HX_EMPTY; /* what comes before what is missing is shown */
    assert_false(hx_template_show(compile(f, text), &in, &f->arena, &shown));
    assert_int_equal(shown.value_count, 4);
    assert_true(hx_slice_eq(shown.wrong, HX_LIT("{principal}")));
}

/* The key is the same from the begin of a bucket on, and another a moment before; over three days, by minutes. */
static void a_bucket_begins_where_the_key_changes(void **state)
{
    fixture *f = *state;
    static const char *const templates[] = {"{query:a}{window:1h}", "{query:a}{window:7m}", "{query:a}{date:Test/West}",
                                            "{query:a}{date:Test/East}{date:Test/West}{window:5h}"};
    hx_ms spring = INT64_C(1772950800000); /* 2026-03-08, when clocks in the west go forward, less an hour or so */
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        const hx_template *t = compile(f, templates[i]);
        request r = {.query = "a=1", .now = spring - 36 * HX_HOUR};
        hx_ms began = hx_template_bucket_began(t, r.now);
        hx_digest key = key_of(f, t, &r);
        unsigned changes = 0;
        for (; r.now < spring + 36 * HX_HOUR; r.now += HX_MINUTE) {
            hx_digest now = key_of(f, t, &r);
            hx_ms begins = hx_template_bucket_began(t, r.now);
            if (hx_digest_eq(&key, &now)) {
                assert_int_equal(begins, began);
            } else {
                assert_int_equal(begins, r.now); /* they all begin on a minute */
                request before = r;
                before.now = begins - 1;
                same(key, key_of(f, t, &before), "the previous bucket");
                changes++;
            }
            key = now;
            began = begins;
        }
        assert_true(changes >= 3);
    }
    request r = {.query = "a=1", .now = -1}; /* windows before 1970 begin where they should, too */
    assert_int_equal(hx_template_bucket_began(compile(f, templates[0]), -1), -HX_HOUR);
    differ(key_of(f, compile(f, templates[0]), &r), key_of(f, compile(f, templates[0]), &(request){.query = "a=1"}),
           "before 1970");
}

static void a_key_hangs_on_the_secret_and_is_no_digest_of_another_kind(void **state)
{
    fixture *f = *state;
    static const uint8_t other_secret[HX_SECRET_BYTES] = {9};
    const hx_template *t = compile(f, "{query:a}");
    request r = {.query = "a=1", .now = NOON};
    hx_digest key = key_of(f, t, &r);
    hx_mac *mine = f->mac;
    f->mac = hx_mac_new(other_secret);
    differ(key, key_of(f, t, &r), "another secret");
    hx_mac_free(&f->mac);
    f->mac = mine;
    for (int tag = 1; tag < 128; tag++) {
        if (tag == 'N') continue;
        hx_mac_begin(f->mac, (char)tag);
        hx_mac_part(f->mac, HX_LIT("query:a"));
        hx_mac_part(f->mac, HX_LIT("t"));
        hx_mac_part(f->mac, HX_LIT("1"));
        differ(key, hx_mac_end(f->mac), "another tag");
    }
    /* Stored operations are found by these bytes: an upgrade must not change them. */
    hx_mac_begin(f->mac, 'N');
    hx_mac_part(f->mac, HX_LIT("query:a"));
    hx_mac_part(f->mac, HX_LIT("t"));
    hx_mac_part(f->mac, HX_LIT("1"));
    same(key, hx_mac_end(f->mac), "the bytes that are digested");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_template_knows_what_it_is_made_of, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_text_need_not_outlive_the_template_s_making, set_up, tear_down),
        cmocka_unit_test_setup_teardown(broken_templates_are_refused_with_their_part_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(windows_have_a_duration_of_a_second_or_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_template_that_all_requests_share_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_same_part_twice_is_refused_in_any_spelling, set_up, tear_down),
        cmocka_unit_test_setup_teardown(there_is_a_bound_to_parts_and_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_part_that_changes_changes_the_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_a_part_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bytes_that_move_between_parts_change_the_key, set_up, tear_down),
        cmocka_unit_test_setup_teardown(literal_text_counts_and_is_never_a_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(values_of_json_are_told_apart_by_type_and_meaning, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_part_is_named_with_the_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(headers_come_once_and_are_not_empty, set_up, tear_down),
        cmocka_unit_test_setup_teardown(parameters_are_decoded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(values_are_shown_for_people_but_no_credential, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_bucket_begins_where_the_key_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_key_hangs_on_the_secret_and_is_no_digest_of_another_kind, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
