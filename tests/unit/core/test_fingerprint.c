/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §4, "Fingerprint". Two requests are compared in all three ways: the digest, the parts, and which part is
 * said to differ. */
#include "core/fingerprint.h"

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
        cmocka_unit_test(json_is_known_by_its_type_and_coding),
        cmocka_unit_test(the_secret_decides_the_digest),
        cmocka_unit_test(parts_have_names_for_people),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
