/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §4, "Scope". */
#include "core/operation/identity.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

static void identifies(const char *value, const char *kind, hx_slice principal)
{
    hx_arena arena = {0};
    hx_identity who;
    hx_identity_of_authorization(hx_slice_of(value), &arena, &who);
    if (strcmp(who.kind, kind) != 0) fail_msg("%s is %s, not %s", value, who.kind, kind);
    if (!hx_slice_eq(who.principal, principal)) fail_msg("%s is %.*s", value, HX_FMT(who.principal));
    assert_true(hx_slice_eq(who.proof, hx_slice_trim(hx_slice_of(value))));
    hx_arena_free(&arena);
}

static void is_taken_whole(const char *value)
{
    hx_arena arena = {0};
    hx_slice trimmed = hx_slice_trim(hx_slice_of(value));
    hx_slice principal = hx_arena_printf(&arena, "whole.%.*s", HX_FMT(trimmed));
    ((char *)principal.ptr)[5] = '\0';
    identifies(value, "whole", principal);
    hx_arena_free(&arena);
}

static void basic_is_its_user(void **state)
{
    (void)state;
    identifies("Basic YWxpY2U6czNjcjN0", "basic", HX_LIT("basic\0alice"));     /* alice:s3cr3t */
    identifies("basic  YWxpY2U6b3RoZXI= ", "basic", HX_LIT("basic\0alice"));   /* alice:other */
    identifies("BASIC YWxpY2U6YTpi", "basic", HX_LIT("basic\0alice"));         /* alice:a:b */
    identifies("Basic c2tfbGl2ZV8xOg==", "basic", HX_LIT("basic\0sk_live_1")); /* sk_live_1: */
    identifies("Basic c2tfbGl2ZV8xOg", "basic", HX_LIT("basic\0sk_live_1"));
    is_taken_whole("Basic YWxpY2U=");     /* no colon */
    is_taken_whole("Basic OnRva2Vu");     /* :token is nobody's name */
    is_taken_whole("Basic YWxpY2U6cw!!"); /* not base64 */
    is_taken_whole("Basic YWxpY2U6c");    /* a digit too few */
    is_taken_whole("Basic ====");
    is_taken_whole("Basic");
}

static void digest_is_its_username(void **state)
{
    (void)state;
    identifies("Digest username=\"Mufasa\", realm=\"http-auth@example.org\", uri=\"/dir/index.html\", nonce=\"7ypf\","
               " nc=00000001, qop=auth, response=\"8ca5\"",
               "digest", HX_LIT("digest\0Mufasa"));
    identifies("digest nonce=\"username nobody\",USERNAME = \"Mufasa\"", "digest", HX_LIT("digest\0Mufasa"));
    is_taken_whole("digest nonce=\"other, username=nobody\",USERNAME = \"Mufasa\""); /* two readers, two names */
    identifies("Digest username=\"a\\\"b\\\\\"", "digest", HX_LIT("digest\0a\"b\\"));
    identifies("Digest username=Mufasa,,nc=1", "digest", HX_LIT("digest\0Mufasa"));
    is_taken_whole("Digest realm=\"x\"");
    is_taken_whole("Digest username=\"\"");
    is_taken_whole("Digest username=\"Mufasa");
    is_taken_whole("Digest username=\"Mufasa\\");
    is_taken_whole("Digest username=\"Mufasa\" realm=\"x\"");
    is_taken_whole("Digest username=\"Mufasa\", username=\"Simba\"");
    is_taken_whole("Digest username=\"Mufasa\", garbage");
}

/* The payloads: {"iss":"joe","sub":"alice","exp":1}, the same with exp 2 and another order, and so on. */
static void a_jwt_is_its_issuer_and_subject(void **state)
{
    (void)state;
    const char *first = "Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLCJzdWIiOiJhbGljZSIsImV4cCI6MX0.c2ln";
    const char *rotated = "bearer eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjIsInN1YiI6ImFsaWNlIiwiaXNzIjoiam9lIn0.b3RoZXI";
    identifies(first, "jwt", HX_LIT("jwt\0003:joe5:alice"));
    identifies(rotated, "jwt", HX_LIT("jwt\0003:joe5:alice"));
    /* {"sub":"al\u0069ce"} */
    identifies("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbFx1MDA2OWNlIn0.x", "jwt", HX_LIT("jwt\0000:5:alice"));
    /* {"iss":"jo","sub":"ealice"}: the same letters, another pair */
    identifies("Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqbyIsInN1YiI6ImVhbGljZSJ9.x", "jwt",
               HX_LIT("jwt\0002:jo6:ealice"));
    /* an unsigned one, its third part empty */
    identifies("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.", "jwt", HX_LIT("jwt\0000:1:a"));
}

static void a_bearer_token_that_is_no_jwt_is_taken_whole(void **state)
{
    (void)state;
    is_taken_whole("Bearer sk_live_51H8");
    is_taken_whole("Bearer a.b");
    is_taken_whole("Bearer a.b.c");
    is_taken_whole("Bearer ..");
    is_taken_whole("Bearer");
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UifQ.x");                         /* no sub */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOjd9.x");                               /* sub is 7 */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIifQ.x");                             /* sub is empty */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOjEsInN1YiI6ImEifQ.x");                 /* iss is 1 */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIiwic3ViIjoiYiJ9.x");               /* sub twice */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJhIiwiaXNzIjoiYiIsInN1YiI6ImEifQ.x"); /* iss twice */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.WyJzdWIiXQ.x");                                 /* an array */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIg.x");                             /* cut short */
    is_taken_whole("Bearer e30.eyJzdWIiOiJhIn0.x");                      /* a header without alg */
    is_taken_whole("Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.x.y.z"); /* encrypted: five parts */
}

static void signed_requests_are_their_key_ids(void **state)
{
    (void)state;
    identifies("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
               "SignedHeaders=host;range;x-amz-date, Signature=fe5f80",
               "sigv4", HX_LIT("sigv4\0AKIAIOSFODNN7EXAMPLE"));
    identifies("aws4-hmac-sha256 Signature=0,SignedHeaders=host,Credential=AKIAIOSFODNN7EXAMPLE/20990101/x", "sigv4",
               HX_LIT("sigv4\0AKIAIOSFODNN7EXAMPLE"));
    identifies("AWS4-ECDSA-P256-SHA256 Credential=AK/20130524/s3/aws4_request, SignedHeaders=host, Signature=1",
               "sigv4", HX_LIT("sigv4\0AK"));
    is_taken_whole("AWS4-HMAC-SHA256 Credential=AKIA, Signature=1");
    is_taken_whole("AWS4-HMAC-SHA256 Credential=/x/y, Signature=1");
    is_taken_whole("AWS4-HMAC-SHA256 SignedHeaders=host");
    /* What another reader might take for another key's. */
    is_taken_whole("AWS4-HMAC-SHA256 Credential=A/1, X=\"a, Credential=B/1, SignedHeaders=h, Signature=1, Z=\"");
    is_taken_whole("AWS4-HMAC-SHA256 Credential=A/1, Credential=B/1, SignedHeaders=h, Signature=1");
    is_taken_whole("AWS4-HMAC-SHA256 Credential=A/1, SignedHeaders=h, Signature=1, More=2");
    is_taken_whole("Hawk id=\"a\", ext=\"x, id=b\", mac=\"1\"");
    identifies("Hawk id=\"dh37fgj492je\", ts=\"1353832234\", nonce=\"j4h3g2\", mac=\"6R4r\"", "hawk",
               HX_LIT("hawk\0dh37fgj492je"));
    is_taken_whole("Hawk ts=\"1353832234\"");
    identifies("Signature keyId=\"rsa-key-1\",algorithm=\"hs2019\",headers=\"(request-target) date\",signature=\"Rq\"",
               "signature", HX_LIT("signature\0rsa-key-1"));
    is_taken_whole("Signature algorithm=\"hs2019\"");
}

static void oauth_1_is_its_consumer_and_token(void **state)
{
    (void)state;
    identifies("OAuth realm=\"Photos\", oauth_consumer_key=\"dpf43f3p2l4k3l03\", oauth_token=\"nnch734d00sl2jdk\","
               " oauth_nonce=\"kllo\", oauth_signature=\"tR3%2BTy\"",
               "oauth1", HX_LIT("oauth1\00016:dpf43f3p2l4k3l0316:nnch734d00sl2jdk"));
    identifies("OAuth oauth_consumer_key=\"c\",oauth_nonce=\"n\"", "oauth1", HX_LIT("oauth1\0001:c0:"));
    identifies("OAuth oauth_consumer_key=\"c\",oauth_token=\"\"", "oauth1", HX_LIT("oauth1\0001:c0:"));
    is_taken_whole("OAuth oauth_token=\"t\"");
    is_taken_whole("OAuth oauth_consumer_key=\"c\",oauth_token=\"a\",oauth_token=\"b\"");
    is_taken_whole("OAuth 2.0-looking-token");
}

static void anything_else_is_taken_whole(void **state)
{
    (void)state;
    is_taken_whole("Token abc");
    is_taken_whole("  GoogleLogin auth=x  ");
    is_taken_whole("\xff\xfe garbage = \"");
    is_taken_whole("Negotiate YII=");
}

static void nothing_is_nobody(void **state)
{
    (void)state;
    identifies("", "none", HX_EMPTY);
    identifies(" \t", "none", HX_EMPTY);
}

static void schemes_never_share_a_principal(void **state)
{
    (void)state;
    static const char *const alices[] = {
        "Basic YWxpY2U6eA==",
        "Digest username=alice",
        "Hawk id=alice",
        "Signature keyId=alice",
        "AWS4-HMAC-SHA256 Credential=alice/1",
        "OAuth oauth_consumer_key=alice",
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.x",
        "alice",
    };
    hx_arena arena = {0};
    hx_identity who[sizeof alices / sizeof *alices];
    for (size_t i = 0; i < sizeof alices / sizeof *alices; i++) {
        hx_identity_of_authorization(hx_slice_of(alices[i]), &arena, &who[i]);
        for (size_t j = 0; j < i; j++) assert_false(hx_slice_eq(who[i].principal, who[j].principal));
    }
    hx_arena_free(&arena);
}

/* Every credential above, cut at every length, and with every byte changed in turn: no crash, and always a proof. */
static void garbage_is_survived(void **state)
{
    (void)state;
    static const char *const values[] = {
        "Basic YWxpY2U6czNjcjN0",
        "Digest username=\"a\\\"b\\\\\", realm=\"x\\y\", nc=1",
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLCJzdWIiOiJhbGljZSIsImV4cCI6MX0.c2ln",
        "AWS4-HMAC-SHA256 Credential=AK/1/s3, SignedHeaders=host, Signature=1",
        "OAuth oauth_consumer_key=\"c\",oauth_token=\"t\"",
    };
    static const unsigned char bytes[] = {0, ' ', '"', '\\', ',', '=', '.', ':', 0x80, 0xff};
    hx_arena arena = {0};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        hx_slice whole = hx_slice_of(values[v]);
        for (size_t at = 0; at < whole.len; at++) {
            hx_identity who;
            char *copy = malloc(whole.len); /* of exactly this size, so that a sanitizer sees what lies behind */
            assert_non_null(copy);
            memcpy(copy, whole.ptr, whole.len);
            for (size_t b = 0; b < sizeof bytes; b++) {
                copy[at] = (char)bytes[b];
                hx_identity_of_authorization((hx_slice){copy, whole.len}, &arena, &who);
                assert_true(who.proof.len > 0 && who.principal.len > 0);
            }
            free(copy);
            copy = malloc(at + 1);
            assert_non_null(copy);
            memcpy(copy, whole.ptr, at + 1);
            hx_identity_of_authorization((hx_slice){copy, at + 1}, &arena, &who);
            assert_true(who.proof.len > 0 && who.principal.len > 0);
            free(copy);
        }
    }
    hx_arena_free(&arena);
}

static void claims(const char *payload, const char *claim, hx_slice principal)
{
    hx_arena arena = {0};
    hx_identity who;
    if (!hx_identity_of_claim(hx_slice_of(payload), hx_slice_of(claim), &arena, &who))
        fail_msg("%s has no %s", payload, claim);
    assert_string_equal(who.kind, "claim");
    if (!hx_slice_eq(who.principal, principal)) fail_msg("%s is %.*s", payload, HX_FMT(who.principal));
    assert_int_equal(who.proof.len, 0);
    hx_arena_free(&arena);
}

static void claims_nobody(const char *payload, const char *claim)
{
    hx_arena arena = {0};
    hx_identity who;
    if (hx_identity_of_claim(hx_slice_of(payload), hx_slice_of(claim), &arena, &who))
        fail_msg("%s is %.*s", payload, HX_FMT(who.principal));
    assert_string_equal(who.kind, "none");
    assert_int_equal(who.principal.len, 0);
    hx_arena_free(&arena);
}

static void a_claim_is_named_with_its_issuer_its_name_and_its_type(void **state)
{
    (void)state;
    const hx_slice seven = HX_LIT("claim\0003:joe3:uid6:number1:7");
    claims("{\"iss\":\"joe\",\"email\":\"a@b\"}", "email", HX_LIT("claim\0003:joe5:email6:string3:a@b"));
    claims("{\"email\":\"a@b\"}", "email", HX_LIT("claim\0000:5:email6:string3:a@b"));
    claims("{\"iss\":\"joe\",\"uid\":\"7\"}", "uid", HX_LIT("claim\0003:joe3:uid6:string1:7"));
    claims("{\"iss\":\"joe\",\"uid\":7}", "uid", seven);
    claims("{\"iss\":\"joe\",\"uid\":7.0}", "uid", seven);
    claims("{\"uid\":70e-1 , \"iss\":\"j\\u006fe\"}", "uid", seven);
    claims("{\"uid\":-12345678901234567890}", "uid", HX_LIT("claim\0000:3:uid6:number21:-12345678901234567890"));
    claims("{\"https://a.b/c~d\":\"x\"}", "https://a.b/c~d", HX_LIT("claim\0000:15:https://a.b/c~d6:string1:x"));
    claims("{\"iss\":\"joe\"}", "iss", HX_LIT("claim\0003:joe3:iss6:string3:joe"));
}

static void what_is_no_clear_claim_is_nobody(void **state)
{
    (void)state;
    claims_nobody("{\"iss\":\"joe\"}", "email");
    claims_nobody("{\"email\":\"\"}", "email");
    claims_nobody("{\"email\":\"a\",\"email\":\"b\"}", "email");
    claims_nobody("{\"email\":\"a\",\"e\\u006dail\":\"b\"}", "email");
    claims_nobody("{\"email\":\"a\",\"iss\":\"b\",\"iss\":\"c\"}", "email");
    claims_nobody("{\"email\":\"a\",\"iss\":7}", "email");
    claims_nobody("{\"uid\":7.5}", "uid");
    claims_nobody("{\"uid\":1e30}", "uid");
    claims_nobody("{\"uid\":1e99999999999999999999}", "uid");
    claims_nobody("{\"uid\":true}", "uid");
    claims_nobody("{\"uid\":null}", "uid");
    claims_nobody("{\"uid\":[\"a\"]}", "uid");
    claims_nobody("{\"uid\":{\"a\":1}}", "uid");
    claims_nobody("{\"a\":{\"uid\":1}}", "uid");
    claims_nobody("{\"a\":{\"uid\":1}}", "a/uid");
    claims_nobody("{\"\":\"a\"}", "");
    claims_nobody("[\"alice\"]", "0");
    claims_nobody("\"alice\"", "0");
    claims_nobody("{\"uid\":7", "uid");
    claims_nobody("", "uid");
}

static void cookies_are_found_by_their_exact_name(void **state)
{
    (void)state;
    const hx_slice header = HX_LIT("theme=dark; sid=abc=def==;SID=other; q=\"x\"; sid=second; empty=; flag");
    hx_slice value;
    assert_true(hx_cookie_value(header, HX_LIT("sid"), &value) && hx_slice_eq(value, HX_LIT("abc=def==")));
    assert_true(hx_cookie_value(header, HX_LIT("SID"), &value) && hx_slice_eq(value, HX_LIT("other")));
    assert_true(hx_cookie_value(header, HX_LIT("theme"), &value) && hx_slice_eq(value, HX_LIT("dark")));
    assert_true(hx_cookie_value(header, HX_LIT("q"), &value) && hx_slice_eq(value, HX_LIT("\"x\"")));
    assert_true(hx_cookie_value(header, HX_LIT("empty"), &value) && value.len == 0);
    assert_false(hx_cookie_value(header, HX_LIT("flag"), &value));
    assert_false(hx_cookie_value(header, HX_LIT("si"), &value));
    assert_false(hx_cookie_value(HX_EMPTY, HX_LIT("sid"), &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(basic_is_its_user),
        cmocka_unit_test(digest_is_its_username),
        cmocka_unit_test(a_jwt_is_its_issuer_and_subject),
        cmocka_unit_test(a_bearer_token_that_is_no_jwt_is_taken_whole),
        cmocka_unit_test(signed_requests_are_their_key_ids),
        cmocka_unit_test(oauth_1_is_its_consumer_and_token),
        cmocka_unit_test(anything_else_is_taken_whole),
        cmocka_unit_test(nothing_is_nobody),
        cmocka_unit_test(schemes_never_share_a_principal),
        cmocka_unit_test(garbage_is_survived),
        cmocka_unit_test(a_claim_is_named_with_its_issuer_its_name_and_its_type),
        cmocka_unit_test(what_is_no_clear_claim_is_nobody),
        cmocka_unit_test(cookies_are_found_by_their_exact_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
