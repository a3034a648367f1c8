/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §4, "Fingerprint". Two requests are compared in all three ways: the digest, the parts, and which part is
 * said to differ. */
#include "core/operation/fingerprint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static int setup(void **state)
{
    static const uint8_t secret[HX_SECRET_BYTES] = "a secret of thirty-two bytes....";
    *state = hx_mac_new(secret);
    return 0;
}

static int teardown(void **state)
{
    hx_mac *mac = *state;
    hx_mac_free(&mac);
    return 0;
}

#define NO_PART HX_PART_COUNT

static hx_fingerprint_input a_request(void)
{
    return (hx_fingerprint_input){
        .method = HX_LIT("POST"),
        .path = HX_LIT("/refunds"),
        .content_type = HX_LIT("application/json"),
        .body = HX_LIT("{\"amount\":19.99,\"charge\":\"ch_1\"}"),
    };
}

/* `differs` is the only part that tells them apart, or NO_PART when they are the same request. */
static void compare(hx_mac *mac, hx_fingerprint_input a, hx_fingerprint_input b, hx_fingerprint_part differs)
{
    hx_arena arena = {0};
    uint64_t parts_a[HX_PART_COUNT], parts_b[HX_PART_COUNT];
    hx_digest digest_a = hx_fingerprint(mac, &a, &arena);
    hx_fingerprint_parts(mac, &a, &arena, parts_a);
    hx_fingerprint_parts(mac, &b, &arena, parts_b); /* the other way round: either may come first */
    hx_digest digest_b = hx_fingerprint(mac, &b, &arena);
    assert_int_equal(hx_digest_eq(&digest_a, &digest_b), differs == NO_PART);
    for (int i = 0; i < HX_PART_COUNT; i++) {
        if ((parts_a[i] != parts_b[i]) != (i == (int)differs))
            fail_msg("%s: %.*s / %.*s", hx_fingerprint_part_text((hx_fingerprint_part)i), HX_FMT(a.body),
                     HX_FMT(b.body));
    }
    hx_arena_free(&arena);
}

static void bodies(hx_mac *mac, const char *type, const char *a, const char *b, bool same)
{
    hx_fingerprint_input first = a_request(), second;
    first.content_type = hx_slice_of(type);
    first.body = hx_slice_of(a);
    second = first;
    second.body = hx_slice_of(b);
    compare(mac, first, second, same ? NO_PART : HX_PART_BODY);
}

static void types(hx_mac *mac, const char *a, const char *b, bool same)
{
    hx_fingerprint_input first = a_request(), second;
    first.content_type = hx_slice_of(a);
    first.body = HX_LIT("plain");
    second = first;
    second.content_type = hx_slice_of(b);
    compare(mac, first, second, same ? NO_PART : HX_PART_MEDIA_TYPE);
}

static void every_field_counts_and_is_named(void **state)
{
    hx_fingerprint_input base = a_request(), other;
    compare(*state, base, base, NO_PART);
    other = base, other.method = HX_LIT("PUT");
    compare(*state, base, other, HX_PART_METHOD);
    other = base, other.host = HX_LIT("one.test");
    compare(*state, base, other, HX_PART_HOST);
    other = base, other.path = HX_LIT("/refunds/1");
    compare(*state, base, other, HX_PART_PATH);
    other = base, other.query = HX_LIT("a=1"), other.has_query = true;
    compare(*state, base, other, HX_PART_QUERY);
    other = base, other.has_query = true;
    compare(*state, base, other, HX_PART_QUERY);
    other = base, other.content_type = HX_LIT("application/vnd.api+json");
    compare(*state, base, other, HX_PART_MEDIA_TYPE);
    other = base, other.if_match = HX_LIT("\"v1\"");
    compare(*state, base, other, HX_PART_PRECONDITIONS);
    other = base, other.if_none_match = HX_LIT("*");
    compare(*state, base, other, HX_PART_PRECONDITIONS);
    other = base, other.if_unmodified_since = HX_LIT("Thu, 19 Feb 2026 12:00:00 GMT");
    compare(*state, base, other, HX_PART_PRECONDITIONS);
    other = base, other.body = HX_LIT("{\"amount\":19.98,\"charge\":\"ch_1\"}");
    compare(*state, base, other, HX_PART_BODY);
}

static void a_value_that_moves_between_fields_is_seen(void **state)
{
    hx_fingerprint_input a = a_request(), b = a_request();
    a.if_match = HX_LIT("\"v1\"");
    b.if_none_match = HX_LIT("\"v1\"");
    compare(*state, a, b, HX_PART_PRECONDITIONS);

    hx_arena arena = {0};
    a = b = a_request();
    a.path = HX_LIT("/ab"), a.query = HX_LIT("c"), a.has_query = true;
    b.path = HX_LIT("/a"), b.query = HX_LIT("bc"), b.has_query = true;
    hx_digest one = hx_fingerprint(*state, &a, &arena), two = hx_fingerprint(*state, &b, &arena);
    assert_false(hx_digest_eq(&one, &two));
    hx_arena_free(&arena);
}

static void json_is_compared_by_its_meaning(void **state)
{
    const char *json = "application/json";
    bodies(*state, json, "{\"a\":1,\"b\":2}", " {\"b\" : 2.0,\n\"a\":1e0}", true);
    bodies(*state, json, "19.99", "19.990", true);
    bodies(*state, json, "19.99", "1.999e1", true);
    bodies(*state, json, "\"\\u0061\"", "\"a\"", true);
    bodies(*state, json, "9007199254740993", "9007199254740992", false);
    bodies(*state, json, "[1,2]", "[2,1]", false);
    bodies(*state, json, "1", "\"1\"", false);
    bodies(*state, json, "null", "false", false);
    bodies(*state, "application/problem+json", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", true);
    bodies(*state, "Application/JSON; charset=\"UTF-8\"", "{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1}", true);
}

static void what_is_not_clean_json_is_compared_by_its_bytes(void **state)
{
    const char *json = "application/json";
    bodies(*state, json, "{\"a\":1,\"a\":2}", "{\"a\":1, \"a\":2}", false);
    bodies(*state, json, "{\"a\":1,\"a\":2}", "{\"a\":1,\"a\":2}", true);
    bodies(*state, json, "{broken", "{broken ", false);
    bodies(*state, json, "", " ", false);
    bodies(*state, json, "", "", true);
    bodies(*state, json, "1e9999999999999999999999", "10e9999999999999999999998", false);
    bodies(*state, "text/plain", "{\"a\":1}", "{\"a\": 1}", false);
    bodies(*state, "application/jsonl", "{\"a\":1}", "{\"a\": 1}", false);
    bodies(*state, "application/json; charset=utf-16", "{\"a\":1}", "{\"a\": 1}", false);
    bodies(*state, "", "{\"a\":1}", "{\"a\": 1}", false);
    bodies(*state, "+json", "{\"a\":1}", "{\"a\": 1}", false);
}

/* No request gets here: what is raw in one type isn't canonical in it. The tag keeps it so when a kind is added. */
static void raw_bytes_never_pass_for_canonical_ones(void **state)
{
    hx_arena arena = {0};
    hx_fingerprint_input json = a_request(), raw;
    (void)hx_fingerprint(*state, &json, &arena);
    assert_int_equal(json.normal.body_kind, 'J');
    raw = json;
    raw.normal.body_kind = 'R';
    compare(*state, json, raw, HX_PART_BODY);
    hx_arena_free(&arena);
}

static void a_coded_body_is_compared_by_its_bytes(void **state)
{
    hx_fingerprint_input a = a_request(), b;
    a.content_encoding = HX_LIT("GZIP");
    b = a;
    b.content_encoding = HX_LIT(" gzip ");
    compare(*state, a, b, NO_PART);
    b.body = HX_LIT("{\"charge\":\"ch_1\",\"amount\":19.99}");
    compare(*state, a, b, HX_PART_BODY);
    b = a;
    b.content_encoding = HX_LIT("br");
    compare(*state, a, b, HX_PART_CONTENT_ENCODING);
    a = b = a_request();
    b.content_encoding = HX_LIT("Identity");
    b.body = HX_LIT("{\"charge\":\"ch_1\",\"amount\":19.99}");
    compare(*state, a, b, NO_PART);
}

static void the_media_type_is_type_subtype_and_charset(void **state)
{
    types(*state, "text/plain", "Text/PLAIN", true);
    types(*state, "text/plain", " text/plain ; format=flowed;", true);
    types(*state, "text/plain; charset=utf-8", "TEXT/plain;format=flowed;Charset=\"UTF-8\"", true);
    types(*state, "text/plain; charset=utf-8", "text/plain; charset=\"ut\\f-8\"", true);
    types(*state, "text/plain; charset=utf-8", "text/plain", false);
    types(*state, "text/plain; charset=utf-8", "text/plain; charset=latin1", false);
    types(*state, "text/plain", "text/html", false);
    types(*state, "text/plain", "", false);
    types(*state, "text/plain; a=\"x;charset=utf-8\"", "text/plain", true);
}

static void what_is_no_media_type_is_taken_whole(void **state)
{
    types(*state, "text", "TEXT", false);
    types(*state, "text/plain; charset", "text/plain", false);
    types(*state, "text/plain; charset=", "text/plain", false);
    types(*state, "text/plain; charset=\"utf-8", "text/plain; charset=utf-8", false);
    types(*state, "text/plain; charset=a; charset=b", "text/plain; charset=a", false);
    types(*state, "text/plain; charset=b; charset=a", "text/plain; charset=a", false);
    types(*state, "text/plain, text/html", "text/plain", false);
    types(*state, "text/pl ain", "text/plain", false);
    types(*state, "text/plain; a=\"b\"c", "text/plain", false);
}

typedef struct {
    const char *type;
    const char *body;
} typed;

static void forms(hx_mac *mac, typed a, typed b, hx_fingerprint_part differs)
{
    hx_fingerprint_input first = a_request(), second = a_request();
    first.content_type = hx_slice_of(a.type);
    first.body = hx_slice_of(a.body);
    second.content_type = hx_slice_of(b.type);
    second.body = hx_slice_of(b.body);
    compare(mac, first, second, differs);
}

#define FIELD "Content-Disposition: form-data; name=\"a\"\r\n\r\n"
static const typed form = {"multipart/form-data; boundary=XX",
                           "--XX\r\n" FIELD "1\r\n--XX\r\n" FIELD "2\r\n--XX--\r\n"};

static void multipart_is_compared_by_its_parts(void **state)
{
    forms(*state, form,
          (typed){"Multipart/Form-Data; boundary=\"other one\"",
                  "--other one\r\n" FIELD "1\r\n--other one \t\r\n" FIELD "2\r\n--other one--\r\n"},
          NO_PART);
    forms(*state, form, (typed){form.type, "--XX\r\n" FIELD "1\r\n--XX\r\n" FIELD "3\r\n--XX--\r\n"}, HX_PART_BODY);
    forms(*state, form, (typed){form.type, "--XX\r\n" FIELD "2\r\n--XX\r\n" FIELD "1\r\n--XX--\r\n"}, HX_PART_BODY);
    forms(*state, form, (typed){form.type, "--XX\r\n" FIELD "1\r\n--XX--\r\n"}, HX_PART_BODY);
    forms(*state, form, (typed){form.type, "--XX\r\n\r\n1\r\n--XX\r\n" FIELD "2\r\n--XX--\r\n"}, HX_PART_BODY);
    forms(*state, form, (typed){form.type, "pre\r\n--XX\r\n" FIELD "1\r\n--XX\r\n" FIELD "2\r\n--XX--\r\n"},
          HX_PART_BODY);
    forms(*state, form, (typed){form.type, "--XX\r\n" FIELD "1\r\n--XX\r\n" FIELD "2\r\n--XX--\r\npost"}, HX_PART_BODY);
    /* A part's content that looks like another part of another boundary is content. */
    forms(*state, form, (typed){form.type, "--XX\r\n" FIELD "1\r\n--YY\r\n" FIELD "2\r\n--XX--\r\n"}, HX_PART_BODY);
    forms(*state, (typed){"multipart/mixed; boundary=XX", "--XX--"}, (typed){"multipart/mixed; boundary=Y", "--Y--"},
          NO_PART);
    forms(*state, (typed){"multipart/mixed; boundary=XX", form.body}, form, HX_PART_MEDIA_TYPE);
    forms(*state, (typed){"multipart/mixed; boundary=XX", "\r\n--XX\r\n\r\n\r\n--XX--"},
          (typed){"multipart/mixed; boundary=Z", "\r\n--Z\r\n\r\n\r\n--Z--"}, NO_PART);
}

static void headers_and_content_of_a_part_are_kept_apart(void **state)
{
    forms(*state, (typed){"multipart/mixed; boundary=XX", "--XX\r\nA: b\r\n\r\nc\r\n--XX--"},
          (typed){"multipart/mixed; boundary=XX", "--XX\r\n\r\nA: b\r\n\r\nc\r\n--XX--"}, HX_PART_BODY);
    forms(*state, (typed){"multipart/mixed; boundary=XX", "--XX\r\nA: b\r\n\r\n\r\n--XX--"},
          (typed){"multipart/mixed; boundary=XX", "--XX\r\n\r\nA: b\r\n--XX--"}, HX_PART_BODY);
}

static char kind_of(hx_mac *mac, typed request)
{
    hx_arena arena = {0};
    hx_fingerprint_input in = a_request();
    in.content_type = hx_slice_of(request.type);
    in.body = hx_slice_of(request.body);
    (void)hx_fingerprint(mac, &in, &arena);
    if (in.normal.body_kind == 'R') assert_true(hx_slice_eq(in.normal.media_type, in.content_type));
    hx_arena_free(&arena);
    return in.normal.body_kind;
}

/* Raw, and then with the whole type, for the meaning of the bytes hangs on the boundary. */
static void what_is_not_well_formed_multipart_is_compared_by_its_bytes(void **state)
{
    static const char *const broken[] = {
        "",
        "--XX",
        "--XX\r\n",
        "--XX\r\n--XX--",
        "--XX\r\nA: b\r\n--XX--",
        "--XX\r\nA: b\r\n\r\nc",
        "--XX\r\nA: b\r\n\r\nc\r\n--XX",
        "--XX\r\nA: b\r\n\r\nc\r\n--XXY\r\n\r\nd\r\n--XX--",
        "--XX\r\nA: b\r\n\r\nc\r\n--XX--garbage",
        "--XXYY\r\nA: b\r\n\r\nc\r\n--XX--",
        "--XX\nA: b\n\nc\n--XX--",
        "nothing of the kind",
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        typed request = {"multipart/form-data; boundary=XX", broken[i]};
        if (kind_of(*state, request) != 'R') fail_msg("%s was taken as multipart", broken[i]);
        forms(*state, request, (typed){"multipart/form-data; boundary=Y", broken[i]}, HX_PART_MEDIA_TYPE);
    }
    assert_int_equal(kind_of(*state, form), 'M');
    assert_int_equal(kind_of(*state, (typed){"multipart/form-data", form.body}), 'R');
    assert_int_equal(kind_of(*state, (typed){"multipart/form-data; boundary=\"\"", form.body}), 'R');
    assert_int_equal(kind_of(*state, (typed){"multipart/form-data; boundary=XX; boundary=XX", form.body}), 'R');
}

static void a_boundary_has_up_to_70_bytes(void **state)
{
    for (size_t len = 70; len <= 71; len++) {
        char boundary[72] = {0}, type[128], body[256];
        memset(boundary, 'b', len);
        (void)snprintf(type, sizeof type, "multipart/mixed; boundary=%s", boundary);
        (void)snprintf(body, sizeof body, "--%s\r\n\r\nx\r\n--%s--", boundary, boundary);
        assert_int_equal(kind_of(*state, (typed){type, body}), len == 70 ? 'M' : 'R');
    }
}

static void coded_multipart_is_compared_by_its_bytes(void **state)
{
    hx_fingerprint_input a = a_request(), b;
    a.content_type = hx_slice_of(form.type);
    a.body = hx_slice_of(form.body);
    a.content_encoding = HX_LIT("gzip");
    b = a;
    b.content_type = HX_LIT("multipart/form-data; boundary=\"XX\"");
    compare(*state, a, b, HX_PART_MEDIA_TYPE);
}

static hx_slice hashed(hx_mac *mac, typed request, hx_arena *arena)
{
    hx_fingerprint_input in = a_request();
    in.content_type = hx_slice_of(request.type);
    in.body = hx_slice_of(request.body);
    return hx_fingerprint_body_hashed(mac, &in, arena);
}

static void the_hash_of_a_body_knows_no_boundary(void **state)
{
    hx_arena arena = {0};
    hx_slice one = hashed(*state, form, &arena);
    hx_slice other = hashed(*state,
                            (typed){"multipart/form-data; boundary=YY",
                                    "--YY\r\n" FIELD "1\r\n--YY\r\n" FIELD "2\r\n--YY--\r\n"},
                            &arena);
    assert_int_equal(one.len, 32);
    assert_true(hx_slice_eq(one, other));
    other = hashed(*state, (typed){form.type, "--XX\r\n" FIELD "1\r\n--XX\r\n" FIELD "3\r\n--XX--\r\n"}, &arena);
    assert_int_equal(other.len, 32);
    assert_false(hx_slice_eq(one, other));

    static const typed whole[] = {
        {"application/json", "{\"a\": 1}"},
        {"", "any"},
        {"no type", "any"},
        {"multipart/form-data; boundary=XX", "not of that kind"},
        {"multipart/form-data", "--XX\r\n\r\n--XX--"},
        {"text/plain; boundary=XX", "--XX\r\n\r\nx\r\n--XX--"},
    };
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        assert_true(hx_slice_eq(hashed(*state, whole[i], &arena), hx_slice_of(whole[i].body)));

    hx_fingerprint_input coded = a_request(), in;
    coded.content_type = hx_slice_of(form.type);
    coded.body = hx_slice_of(form.body);
    in = coded;
    coded.content_encoding = HX_LIT("gzip");
    assert_true(hx_slice_eq(hx_fingerprint_body_hashed(*state, &coded, &arena), coded.body));

    /* Asked before or after the fingerprint, both say the same. */
    hx_fingerprint_input before = in, after = in;
    assert_true(hx_slice_eq(hx_fingerprint_body_hashed(*state, &before, &arena), one));
    hx_digest first = hx_fingerprint(*state, &before, &arena), second = hx_fingerprint(*state, &after, &arena);
    assert_true(hx_digest_eq(&first, &second));
    assert_true(hx_slice_eq(hx_fingerprint_body_hashed(*state, &after, &arena), one));
    hx_arena_free(&arena);
}

/* Of a form with two parts, of which this is the second. */
static bool is_same_form(hx_mac *mac, const char *part)
{
    hx_arena arena = {0};
    hx_slice body = hx_arena_printf(&arena, "--XX\r\n" FIELD "1\r\n--XX\r\n%s\r\n--XX--\r\n", part);
    const typed other = {form.type, hx_arena_terminated(&arena, body)};
    bool same = hx_slice_eq(hashed(mac, form, &arena), hashed(mac, other, &arena));
    hx_arena_free(&arena);
    return same;
}

static void the_hash_of_a_form_is_of_names_and_contents(void **state)
{
    static const char *const same[] = {
        FIELD "2",
        "Content-Disposition: form-data; name=\"a\"; filename=\"b.jpg\"\r\nContent-Type: image/jpeg\r\n\r\n2",
        "content-type: text/plain\r\ncontent-disposition:form-data;filename=\"a;name=b\" ;name=a\r\n\r\n2",
        "Content-Length: 1\r\n" FIELD "2",
    };
    static const char *const others[] = {
        FIELD "3",
        "Content-Disposition: form-data; name=\"b\"\r\n\r\n2",
        "Content-Disposition: form-data; filename=\"a\"\r\n\r\n2",
        "Content-Disposition: form-data; name=\"a\"; name=\"a\"\r\n\r\n2",
        "Content-Disposition: form-data; name=\"a\r\n\r\n2",
        "Content-Transfer-Encoding: base64\r\n" FIELD "2",
        FIELD "2\r\n--XX\r\n" FIELD "",
        "\r\n2",
        "\r\n" FIELD "2",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!is_same_form(*state, same[i])) fail_msg("another form: %s", same[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_same_form(*state, others[i])) fail_msg("the same form: %s", others[i]);

    hx_arena arena = {0};
    static const char type[] = "multipart/related; boundary=XX"; /* no form */
    hx_slice one = hashed(*state, (typed){type, "--XX\r\nContent-Type: a/b\r\n\r\n1\r\n--XX--"}, &arena);
    assert_false(hx_slice_eq(one, hashed(*state, (typed){type, "--XX\r\n\r\n1\r\n--XX--"}, &arena)));
    hx_arena_free(&arena);
}

static void json_is_known_by_its_type_and_coding(void **state)
{
    (void)state;
    static const struct {
        const char *type, *coding;
        bool json;
    } rows[] = {
        {"application/json", "", true},
        {" Application/JSON ; charset=\"UTF-8\"", " identity ", true},
        {"application/merge-patch+json", "", true},
        {"application/json", "gzip", false},
        {"application/json; charset=utf-16", "", false},
        {"application/json; charset=utf-8; charset=utf-8", "", false},
        {"application/jsonl", "", false},
        {"text/plain", "", false},
        {"", "", false},
        {"json", "", false},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hx_fingerprint_input in = {.content_type = hx_slice_of(rows[i].type),
                                   .content_encoding = hx_slice_of(rows[i].coding),
                                   .body = HX_LIT("{broken")};
        if (hx_fingerprint_is_json(&in, &arena) != rows[i].json) fail_msg("%s %s", rows[i].type, rows[i].coding);
    }
    hx_arena_free(&arena);
}

static void ruled_bodies(hx_mac *mac, const hx_fingerprint_rules *rules, const char *a, const char *b, bool same)
{
    hx_fingerprint_input first = a_request(), second;
    first.rules = rules;
    first.body = hx_slice_of(a);
    second = first;
    second.body = hx_slice_of(b);
    compare(mac, first, second, same ? NO_PART : HX_PART_BODY);
}

static void ignored_pointers_do_not_count(void **state)
{
    const hx_slice pointers[] = {HX_LIT("/sentAt"), HX_LIT("/meta/trace"), HX_LIT("/items/1"), HX_LIT("/meta/x/y"),
                                 HX_EMPTY};
    const hx_fingerprint_rules rules = {.ignored_pointers = pointers, .ignored_pointer_count = 5};
    const char *base = "{\"a\":1,\"sentAt\":1,\"meta\":{\"trace\":[1],\"k\":1},\"items\":[1,2,3]}";
    ruled_bodies(*state, &rules, base, base, true);
    ruled_bodies(*state, &rules, base,
                 "{\"items\":[1,{\"x\":null},3],\"meta\":{\"k\":1.0,\"trace\":{}},\"a\":1,\"sentAt\":\"later\"}", true);
    ruled_bodies(*state, &rules, base, "{\"a\":1,\"meta\":{\"k\":1},\"items\":[1,9,3]}", true);
    ruled_bodies(*state, &rules, base, "{\"a\":2,\"meta\":{\"k\":1},\"items\":[1,9,3]}", false);
    ruled_bodies(*state, &rules, base, "{\"a\":1,\"meta\":{\"k\":1},\"items\":[1,3]}", false);
    ruled_bodies(*state, &rules, base, "{\"a\":1,\"meta\":{\"k\":1,\"sentAt\":1},\"items\":[1,9,3]}", false);
    ruled_bodies(*state, &rules, base, "{\"a\":1,\"items\":[1,9,3]}", false);
    ruled_bodies(*state, &rules, "{\"items\":[1]}", "{\"items\":[1,2]}", false); /* its length counts */
    ruled_bodies(*state, &rules, "{\"items\":[1,\"?\"]}", "{\"items\":[1,null]}", true);
    /* What isn't clean is compared by its bytes, the ignored ones too. */
    ruled_bodies(*state, &rules, "{\"sentAt\":1,\"sentAt\":1}", "{\"sentAt\":1,\"sentAt\":2}", false);
    ruled_bodies(*state, &rules, "{\"sentAt\":01}", "{\"sentAt\":02}", false);
}

static void a_body_may_count_as_it_is(void **state)
{
    const hx_slice ignored = HX_LIT("/a");
    const hx_fingerprint_rules rules = {.body = HX_FINGERPRINT_RAW,
                                        .ignored_pointers = &ignored,
                                        .ignored_pointer_count = 1};
    ruled_bodies(*state, &rules, "{\"a\":1}", "{\"a\":1}", true);
    ruled_bodies(*state, &rules, "{\"a\":1}", "{\"a\": 1}", false);
    ruled_bodies(*state, &rules, "{\"a\":1}", "{\"a\":2}", false);

    hx_fingerprint_input a = a_request(), b;
    a.rules = &rules;
    b = a;
    b.content_type = HX_LIT("Application/JSON; v=1");
    compare(*state, a, b, NO_PART);
    b.content_type = HX_LIT("application/json; charset=utf-8");
    compare(*state, a, b, HX_PART_MEDIA_TYPE);
    /* The same bytes are other parts by another boundary. */
    a.content_type = hx_slice_of(form.type);
    a.body = hx_slice_of(form.body);
    b = a;
    b.content_type = HX_LIT("multipart/form-data; boundary=\"XX\"");
    compare(*state, a, b, HX_PART_MEDIA_TYPE);
    b = a;
    compare(*state, a, b, NO_PART);
}

static void chosen_values_are_all_that_counts_of_json(void **state)
{
    const hx_slice pointers[] = {HX_LIT("/a"), HX_LIT("/b/0"), HX_LIT("/c")};
    const hx_fingerprint_rules rules = {.body = HX_FINGERPRINT_POINTERS, .pointers = pointers, .pointer_count = 3};
    const char *base = "{\"a\":1.0,\"b\":[{\"y\":1,\"x\":2},5],\"d\":7}";
    ruled_bodies(*state, &rules, base, "{\"d\":8, \"b\":[{\"x\":2,\"y\":1}],\"a\":1}", true);
    ruled_bodies(*state, &rules, base, "{\"b\":[{\"x\":2,\"y\":1}],\"a\":2}", false);
    ruled_bodies(*state, &rules, base, "{\"b\":[{\"x\":2,\"y\":1}]}", false);
    ruled_bodies(*state, &rules, base, "{\"a\":1,\"b\":[{\"x\":2,\"y\":1}],\"c\":null}",
                 false); /* missing isn't null */
    ruled_bodies(*state, &rules, "{\"a\":1}", "{\"c\":1}", false);
    /* None of them leads anywhere: a typing error would make all requests the same. */
    ruled_bodies(*state, &rules, "{}", "[]", false);
    ruled_bodies(*state, &rules, "{\"d\":1}", "{\"d\":2}", false);
    ruled_bodies(*state, &rules, "{\"d\":1,\"e\":2}", "{\"e\":2, \"d\":1}", true);
    /* Without clean JSON there is nothing to choose from: all of it counts. */
    ruled_bodies(*state, &rules, "{\"a\":1,\"d\":1,\"d\":1}", "{\"a\":1,\"d\":1,\"d\":2}", false);
    ruled_bodies(*state, &rules, "", " ", false);
    ruled_bodies(*state, &rules, "{}", "", false);

    hx_fingerprint_input a = a_request(), b;
    a.rules = &rules;
    a.content_type = HX_LIT("text/plain");
    a.body = HX_LIT("{\"d\":1}");
    b = a;
    b.body = HX_LIT("{\"d\":2}");
    compare(*state, a, b, HX_PART_BODY);
    a.content_type = hx_slice_of(form.type);
    a.body = hx_slice_of(form.body);
    b = a;
    b.content_type = HX_LIT("multipart/form-data; boundary=Y");
    b.body = HX_LIT("--Y\r\n" FIELD "1\r\n--Y\r\n" FIELD "2\r\n--Y--\r\n");
    compare(*state, a, b, NO_PART);
    b.body = HX_LIT("--Y\r\n" FIELD "1\r\n--Y\r\n" FIELD "9\r\n--Y--\r\n");
    compare(*state, a, b, HX_PART_BODY);

    const hx_slice ignored[] = {HX_LIT("/b/0/x"), HX_LIT("/c")};
    hx_fingerprint_rules both = rules;
    both.ignored_pointers = ignored;
    both.ignored_pointer_count = 2;
    ruled_bodies(*state, &both, base, "{\"a\":1,\"b\":[{\"y\":1,\"x\":3}],\"c\":null}", true);
    ruled_bodies(*state, &both, base, "{\"a\":1,\"b\":[{\"y\":2,\"x\":2}]}", false);
}

/* Whoever knows the bytes that are hashed of another's body, and sends them as a body, has sent another one. */
static void bytes_that_are_hashed_do_not_pass_as_a_body(void **state)
{
    const hx_slice pointers[] = {HX_LIT("/0"), HX_LIT("/a")};
    const hx_fingerprint_rules rules[] = {
        {.ignored_pointers = pointers, .ignored_pointer_count = 2},
        {.body = HX_FINGERPRINT_POINTERS, .pointers = pointers, .pointer_count = 2},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < 2; i++) {
        hx_fingerprint_input a = a_request(), b;
        a.rules = &rules[i];
        a.body = HX_LIT("[1,2]");
        b = a;
        (void)hx_fingerprint(*state, &a, &arena);
        b.body = a.normal.body;
        compare(*state, a, b, HX_PART_BODY);
        assert_int_not_equal(a.normal.body_kind, 'R');
        (void)hx_fingerprint(*state, &b, &arena);
        assert_int_equal(b.normal.body_kind, 'R');
        assert_true(hx_slice_eq(a.normal.body, b.normal.body));
    }
    hx_arena_free(&arena);
}

static void queries(hx_mac *mac, const char *a, const char *b, bool same)
{
    const hx_slice names[] = {HX_LIT("utm"), HX_LIT("a b"), HX_LIT("\xc3\xa4"), HX_LIT("p%q")};
    const hx_fingerprint_rules rules = {.ignored_query = names, .ignored_query_count = 4};
    hx_fingerprint_input first = a_request(), second;
    first.rules = &rules;
    second = first;
    first.has_query = a != NULL;
    first.query = a ? hx_slice_of(a) : HX_EMPTY;
    second.has_query = b != NULL;
    second.query = b ? hx_slice_of(b) : HX_EMPTY;
    compare(mac, first, second, same ? NO_PART : HX_PART_QUERY);
}

static void ignored_query_names_do_not_count(void **state)
{
    queries(*state, "a=1", "a=1&utm=x", true);
    queries(*state, "a=1", "utm=x&a=1", true);
    queries(*state, "a=1&b=2", "utm&a=1&utm=y&b=2&utm=", true);
    queries(*state, "a=1", "a=1&%75%74m=x", true);
    queries(*state, "a=1", "a%20b=2&a=1&%C3%a4=3&p%25q=4&p%q=5", true);
    queries(*state, NULL, "utm=x", true);
    queries(*state, NULL, "utm=x&utm=y", true);
    queries(*state, NULL, "", false);
    queries(*state, "", "&utm=x", true); /* what is left is `?` and nothing */
    queries(*state, "a=1&b=2", "b=2&utm=1&a=1", false);
    queries(*state, "a=1", "a=2&utm=x", false);
    queries(*state, "a=1", "a=1&utm2=x", false);
    queries(*state, "a=1", "a=1&UTM=x", false);
    queries(*state, "a=1", "a=1&ut=m", false);
    queries(*state, "a=1", "a=1&a+b=2", false);
    queries(*state, "a=1", "a=1&utm%=2", false);
    queries(*state, "a=1", "a=1&utm%2=2", false);
    queries(*state, "a=1", "a=1&x=utm", false);
    queries(*state, "a=1&&b", "a=1&utm&&b", true);
    queries(*state, "a=1&b", "a=1&&b", false);
    queries(*state, "a=utm%3D1", "a=utm=1", false);
}

static void chosen_headers_count_and_are_named(void **state)
{
    const hx_slice names[] = {HX_LIT("x-version"), HX_LIT("x-tenant")};
    const hx_fingerprint_rules rules = {.headers = names, .header_count = 2};
    const hx_slice both[] = {HX_LIT("2"), HX_LIT("t")}, padded[] = {HX_LIT(" 2\t"), HX_LIT("t")};
    const hx_slice other[] = {HX_LIT("2"), HX_LIT("u")}, swapped[] = {HX_LIT("t"), HX_LIT("2")};
    const hx_slice one[] = {HX_LIT("2t"), HX_EMPTY}, none[] = {HX_EMPTY, HX_EMPTY}, moved[] = {HX_EMPTY, HX_LIT("2t")};
    hx_fingerprint_input a = a_request(), b;
    a.rules = &rules;
    b = a;
    a.headers = b.headers = both;
    compare(*state, a, b, NO_PART);
    b.headers = padded;
    compare(*state, a, b, NO_PART);
    const hx_slice *const others[] = {other, swapped, one, none};
    for (size_t i = 0; i < 4; i++) {
        b.headers = others[i];
        compare(*state, a, b, HX_PART_HEADERS);
    }
    a.headers = one;
    b.headers = moved;
    compare(*state, a, b, HX_PART_HEADERS);
    b = a;
    b.body = HX_LIT("{}");
    compare(*state, a, b, HX_PART_BODY);
    assert_string_equal(hx_fingerprint_part_text(HX_PART_HEADERS), "set of headers");
}

static void a_natural_key_may_say_it_all(void **state)
{
    const hx_fingerprint_rules rules = {.body = HX_FINGERPRINT_KEY};
    hx_fingerprint_input a = a_request(), b = {.method = HX_LIT("PUT"), .path = HX_LIT("/"), .body = HX_LIT("x")};
    a.rules = b.rules = &rules;
    a.key = b.key = HX_LIT("natural");
    compare(*state, a, b, NO_PART);
    hx_arena arena = {0};
    b.key = HX_LIT("another");
    hx_digest one = hx_fingerprint(*state, &a, &arena), two = hx_fingerprint(*state, &b, &arena);
    assert_false(hx_digest_eq(&one, &two));
    hx_arena_free(&arena);

    /* The client's own key was taken: the request counts, as it does by default. */
    a = b = a_request();
    a.rules = &rules;
    compare(*state, a, b, NO_PART);
    b.rules = &rules;
    b.body = HX_LIT("{}");
    compare(*state, a, b, HX_PART_BODY);
    /* A key that isn't asked for counts for nothing. */
    a = b = a_request();
    b.key = HX_LIT("natural");
    compare(*state, a, b, NO_PART);
}

/* Records outlive a release: what a request's digest was, it stays. */
static void digests_stay_as_they_were(void **state)
{
    static const hx_fingerprint_rules zeroed = {0};
    const struct {
        hx_fingerprint_input in;
        const char *digest;
        uint64_t body;
    } rows[] = {
        {{.method = HX_LIT("POST"),
          .path = HX_LIT("/refunds"),
          .content_type = HX_LIT("application/json"),
          .body = HX_LIT("{\"charge\":\"ch_1\", \"amount\":19.990}")},
         "68a4348f53a3f45c42f5ad955749fd7e900e77a6aaf2333b2a7edcc8f8718f0d",
         0x67a6bd207f0dfd5a},
        {{.method = HX_LIT("PATCH"),
          .host = HX_LIT("shop.example"),
          .path = HX_LIT("/a"),
          .has_query = true,
          .query = HX_LIT("b=1&utm=x"),
          .content_type = HX_LIT("text/plain; charset=UTF-8"),
          .content_encoding = HX_LIT("gzip"),
          .if_match = HX_LIT("\"v1\""),
          .if_unmodified_since = HX_LIT("Thu, 19 Feb 2026 12:00:00 GMT"),
          .body = HX_LIT("plain")},
         "27d16901204b3db576e41c57f58ebe17d5ff9a23655345b9364fc91bdca10504",
         0xe4d91ef09c82d414},
        {{.method = HX_LIT("POST"),
          .path = HX_LIT("/photos"),
          .content_type = HX_LIT("multipart/form-data; boundary=XX"),
          .body = HX_LIT("--XX\r\n" FIELD "1\r\n--XX--\r\n")},
         "243743eb1375cb1ea1dcecc9b263c1f75393d44e2561112e717a5988d362eadc",
         0x8f26e399a889e2b3},
        {{.method = HX_LIT("DELETE"), .path = HX_LIT("/a/1"), .has_query = true},
         "9f5de97b6d88de44394fbe6ebf0db8607768f2cb96da4679cd4ae0e179256d9d",
         0xbbe9a8205e3eb011},
    };
    hx_arena arena = {0};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        hx_fingerprint_input in = rows[i / 2].in;
        uint64_t parts[HX_PART_COUNT];
        in.rules = i % 2 == 0 ? NULL : &zeroed;
        hx_digest digest = hx_fingerprint(*state, &in, &arena);
        char hex[65];
        for (size_t k = 0; k < 32; k++) (void)snprintf(hex + 2 * k, 3, "%02x", digest.bytes[k]);
        assert_string_equal(hex, rows[i / 2].digest);
        hx_fingerprint_parts(*state, &in, &arena, parts);
        assert_true(parts[HX_PART_BODY] == rows[i / 2].body);
        assert_true(parts[HX_PART_PRECONDITIONS] == (i / 2 == 1 ? 0x9af0740357dea5a5 : 0x2d838fc6370107f9));
        assert_true(parts[HX_PART_HEADERS] == 0);
    }
    hx_arena_free(&arena);
}

static void the_secret_decides_the_digest(void **state)
{
    static const uint8_t zeros[HX_SECRET_BYTES] = {0};
    hx_arena arena = {0};
    hx_mac *other = hx_mac_new(zeros);
    hx_fingerprint_input a = a_request(), b = a_request();
    hx_digest one = hx_fingerprint(*state, &a, &arena), two = hx_fingerprint(other, &b, &arena);
    assert_false(hx_digest_eq(&one, &two));
    hx_mac_free(&other);
    hx_arena_free(&arena);
}

static void parts_have_names_for_people(void **state)
{
    (void)state;
    assert_string_equal(hx_fingerprint_part_text(HX_PART_MEDIA_TYPE), "media type");
    assert_string_equal(hx_fingerprint_part_text(HX_PART_BODY), "body");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_counts_and_is_named),
        cmocka_unit_test(a_value_that_moves_between_fields_is_seen),
        cmocka_unit_test(json_is_compared_by_its_meaning),
        cmocka_unit_test(what_is_not_clean_json_is_compared_by_its_bytes),
        cmocka_unit_test(raw_bytes_never_pass_for_canonical_ones),
        cmocka_unit_test(a_coded_body_is_compared_by_its_bytes),
        cmocka_unit_test(the_media_type_is_type_subtype_and_charset),
        cmocka_unit_test(what_is_no_media_type_is_taken_whole),
        cmocka_unit_test(multipart_is_compared_by_its_parts),
        cmocka_unit_test(headers_and_content_of_a_part_are_kept_apart),
        cmocka_unit_test(what_is_not_well_formed_multipart_is_compared_by_its_bytes),
        cmocka_unit_test(a_boundary_has_up_to_70_bytes),
        cmocka_unit_test(coded_multipart_is_compared_by_its_bytes),
        cmocka_unit_test(the_hash_of_a_body_knows_no_boundary),
        cmocka_unit_test(the_hash_of_a_form_is_of_names_and_contents),
        cmocka_unit_test(json_is_known_by_its_type_and_coding),
        cmocka_unit_test(ignored_pointers_do_not_count),
        cmocka_unit_test(a_body_may_count_as_it_is),
        cmocka_unit_test(chosen_values_are_all_that_counts_of_json),
        cmocka_unit_test(bytes_that_are_hashed_do_not_pass_as_a_body),
        cmocka_unit_test(ignored_query_names_do_not_count),
        cmocka_unit_test(chosen_headers_count_and_are_named),
        cmocka_unit_test(a_natural_key_may_say_it_all),
        cmocka_unit_test(digests_stay_as_they_were),
        cmocka_unit_test(the_secret_decides_the_digest),
        cmocka_unit_test(parts_have_names_for_people),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
