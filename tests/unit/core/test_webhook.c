/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures that others have made (the examples of Standard Webhooks, GitHub and Slack; the rest by Python's hmac and
 * cryptography), and everything that may be wrong with a request. tests/webhooks has the senders' own libraries. */
#include "core/webhook/webhook.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define AT (1731705121 * HX_SECOND)
#define PING "{\"event_type\":\"ping\",\"data\":{\"success\":true}}"
#define WHSEC "whsec_plJ3nmyCDGBKInavdOK15jsl"
#define V1 "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="
#define WHSK "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define WHSK_LONG "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8DoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA=="
#define WHPK "whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="
#define V1A "v1a,72BzTrExfhGFUdJv1A30uL9zd7T9aPFuElKNBSNPqTOwLqBjBc+jRVg+94CgCT8ljRuY72fPbHNbxvi8+WEgDA=="
#define PING_ID "msg_loFOjxBNrRLzqYUf"
#define EVENT "{\"id\":\"evt_1\",\"object\":\"event\"}"
#define EVENT_MAC "93176d4ff8edbfcc8f70b06177841e79ba76c8442592914c398600b0913bac8e"
#define EVENT_MAC_OLD "9907092684295d3b2de078eabec4e120a4924cd99e4d33a1469fd829b521ba80"
#define HELLO_MAC "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

typedef struct {
    const char *scheme;
    const char *headers[8]; /* name, value, name, value … */
    const char *body;
    const char *secrets[HX_WEBHOOK_SECRETS_MAX];
    hx_ms now;
} story;

static const story standard = {
    "standard", {"Webhook-Id", PING_ID, "webhook-timestamp", "1731705121", "WEBHOOK-SIGNATURE", V1}, PING, {WHSEC}, AT};
static const story stripe = {
    "stripe", {"Stripe-Signature", "t=1731705121,v1=" EVENT_MAC}, EVENT, {"whsec_test_secret"}, AT};
static const story github = {"github",
                             {"X-Hub-Signature-256", "sha256=" HELLO_MAC, "X-GitHub-Delivery", "72d3162e"},
                             "Hello, World!",
                             {"It's a Secret to Everybody"},
                             AT};
static const story shopify = {"shopify",
                              {"x-shopify-hmac-sha256",
                               "VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY=", "X-Shopify-Webhook-Id", "b54557e4"},
                              "{\"id\":1}",
                              {"hush"},
                              AT};
static const story slack = {
    "slack",
    {"X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
     "X-Slack-Request-Timestamp", "1531420618"},
    "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&"
    "user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    "%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id="
    "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    {"8f742231b10e8888abcd99yyyzzz85a5"},
    1531420618 * HX_SECOND};

static size_t find_header(const void *user, hx_slice name, hx_slice *value)
{
    const story *s = user;
    size_t lines = 0;
    for (size_t i = 0; i + 1 < 8 && s->headers[i]; i += 2) {
        if (!hx_slice_eq_nocase(name, hx_slice_of(s->headers[i]))) continue;
        if (lines++ == 0) *value = hx_slice_of(s->headers[i + 1]);
    }
    return lines;
}

static hx_webhook_error verify_by(const hx_webhook_scheme *scheme, const story *s, hx_arena *arena,
                                  hx_webhook_result *result)
{
    hx_webhook_secret secrets[HX_WEBHOOK_SECRETS_MAX];
    hx_webhook_rules rules = {.scheme = scheme, .secrets = secrets, .tolerance = HX_WEBHOOK_TOLERANCE};
    for (; rules.secret_count < HX_WEBHOOK_SECRETS_MAX && s->secrets[rules.secret_count]; rules.secret_count++) {
        hx_slice text = hx_slice_of(s->secrets[rules.secret_count]);
        assert_int_equal(hx_webhook_secret_read(scheme, text, arena, &secrets[rules.secret_count]), HX_WEBHOOK_OK);
    }
    hx_webhook_request request = {.find_header = find_header, .user = s, .body = hx_slice_of(s->body)};
    return hx_webhook_verify(&rules, &request, s->now, arena, result);
}

/* The outcome must be this one, and about this header. */
static void comes_out(story s, hx_webhook_error expected, const char *header)
{
    hx_arena arena = {0};
    hx_webhook_result result;
    hx_webhook_error error = verify_by(hx_webhook_scheme_named(hx_slice_of(s.scheme)), &s, &arena, &result);
    if (error != expected) fail_msg("%s, not %s", hx_webhook_error_word(error), hx_webhook_error_word(expected));
    assert_int_equal(result.error, expected);
    if (header)
        assert_string_equal(result.header, header);
    else
        assert_null(result.header);
    hx_arena_free(&arena);
}

static story with(story s, size_t header, const char *value)
{
    s.headers[header] = value;
    return s;
}

static void known_signatures_are_valid(void **state)
{
    (void)state;
    comes_out(standard, HX_WEBHOOK_OK, NULL);
    comes_out(with(standard, 5, V1A), HX_WEBHOOK_NO_SECRET, "webhook-signature");
    comes_out(stripe, HX_WEBHOOK_OK, NULL);
    comes_out(github, HX_WEBHOOK_OK, NULL);
    comes_out(shopify, HX_WEBHOOK_OK, NULL);
    comes_out(slack, HX_WEBHOOK_OK, NULL);
    story svix = with(with(with(standard, 0, "svix-id"), 2, "svix-timestamp"), 4, "svix-signature");
    svix.scheme = "svix";
    comes_out(svix, HX_WEBHOOK_OK, NULL);
    story asymmetric = with(standard, 5, V1A);
    static const char *const keys[] = {WHPK, WHSK, WHSK_LONG};
    for (size_t i = 0; i < 3; i++) {
        asymmetric.secrets[0] = keys[i];
        comes_out(asymmetric, HX_WEBHOOK_OK, NULL);
    }
    comes_out(with(asymmetric, 5, V1), HX_WEBHOOK_NO_SECRET, "webhook-signature");
}

/* Each part that is signed counts. */
static void what_was_changed_has_no_signature(void **state)
{
    (void)state;
    const story all[] = {standard, stripe, github, shopify, slack, with(standard, 5, V1A)};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        story other_body = all[i], other_secret = all[i];
        if (i == 5) other_body.secrets[0] = WHPK;
        other_body.body = hx_slice_eq(hx_slice_of(all[i].body), HX_LIT(PING)) ? PING "\n" : "";
        comes_out(other_body, HX_WEBHOOK_NO_MATCH, NULL);
        other_secret.secrets[0] = i == 5 ? "whpk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=" : "c2VjcmV0";
        comes_out(other_secret, HX_WEBHOOK_NO_MATCH, NULL);
    }
    comes_out(with(standard, 1, "msg_other"), HX_WEBHOOK_NO_MATCH, NULL);
    comes_out(with(standard, 3, "1731705120"), HX_WEBHOOK_NO_MATCH, NULL);
    comes_out(with(stripe, 1, "t=1731705120,v1=" EVENT_MAC), HX_WEBHOOK_NO_MATCH, NULL);
    comes_out(with(slack, 3, "1531420617"), HX_WEBHOOK_NO_MATCH, NULL);
}

static void any_secret_and_any_signature_may_match(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_webhook_result result;
    story s = with(stripe, 1, "t=1731705121,v0=" ZEROS ",v1=" ZEROS ",v1=" EVENT_MAC_OLD);
    comes_out(s, HX_WEBHOOK_NO_MATCH, NULL);
    s.secrets[1] = "whsec_old_secret";
    assert_int_equal(verify_by(hx_webhook_scheme_named(HX_LIT("stripe")), &s, &arena, &result), HX_WEBHOOK_OK);
    assert_int_equal(result.secret, 1);
    story mixed = with(standard, 5, "v2,AAAA v1,AAAA v1,short " V1A " v1");
    comes_out(mixed, HX_WEBHOOK_HEADER_MALFORMED, "webhook-signature"); /* no v1 can be decoded to a MAC's length */
    mixed.secrets[1] = WHPK;
    comes_out(mixed, HX_WEBHOOK_OK, NULL);
    hx_arena_free(&arena);
}

static void signatures_beyond_the_limit_are_not_looked_at(void **state)
{
    (void)state;
    hx_arena arena = {0};
    for (size_t before = HX_WEBHOOK_SIGNATURES_MAX - 1; before <= HX_WEBHOOK_SIGNATURES_MAX; before++) {
        hx_slice value = HX_LIT("t=1731705121");
        for (size_t i = 0; i < before; i++) value = hx_arena_printf(&arena, "%.*s,v1=" ZEROS, HX_FMT(value));
        value = hx_arena_printf(&arena, "%.*s,v1=" EVENT_MAC, HX_FMT(value));
        bool within = before < HX_WEBHOOK_SIGNATURES_MAX;
        comes_out(with(stripe, 1, value.ptr), within ? HX_WEBHOOK_OK : HX_WEBHOOK_NO_MATCH, NULL);
    }
    hx_arena_free(&arena);
}

static void the_tolerance_ends_to_the_millisecond(void **state)
{
    (void)state;
    story s = standard;
    const struct {
        hx_ms now;
        hx_webhook_error error;
    } rows[] = {{AT + HX_WEBHOOK_TOLERANCE, HX_WEBHOOK_OK},
                {AT + HX_WEBHOOK_TOLERANCE + 1, HX_WEBHOOK_STALE},
                {AT - HX_WEBHOOK_TOLERANCE, HX_WEBHOOK_OK},
                {AT - HX_WEBHOOK_TOLERANCE - 1, HX_WEBHOOK_FUTURE},
                {0, HX_WEBHOOK_FUTURE},
                {INT64_MAX, HX_WEBHOOK_STALE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hx_arena arena = {0};
        hx_webhook_result result;
        s.now = rows[i].now;
        comes_out(s, rows[i].error, rows[i].error == HX_WEBHOOK_OK ? NULL : "webhook-timestamp");
        (void)verify_by(hx_webhook_scheme_named(HX_LIT("standard")), &s, &arena, &result);
        assert_true(result.has_timestamp && result.timestamp == AT && result.age == rows[i].now - AT);
        hx_arena_free(&arena);
    }
    story late = stripe;
    late.now = AT + HX_DAY;
    comes_out(late, HX_WEBHOOK_STALE, "Stripe-Signature");
    story years_later = github;
    years_later.now = INT64_MAX; /* has no timestamp */
    comes_out(years_later, HX_WEBHOOK_OK, NULL);
}

static void headers_that_lack_or_come_twice_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < 6; i += 2) {
        static const char *const names[] = {"webhook-id", "webhook-timestamp", "webhook-signature"};
        comes_out(with(standard, i, "other"), HX_WEBHOOK_HEADER_MISSING, names[i / 2]);
        comes_out(with(with(standard, 6, names[i / 2]), 7, "1"), HX_WEBHOOK_HEADER_REPEATED, names[i / 2]);
        comes_out(with(standard, i + 1, ""), HX_WEBHOOK_HEADER_MALFORMED, names[i / 2]);
    }
    comes_out(with(github, 0, "X-Hub-Signature"), HX_WEBHOOK_HEADER_MISSING, "X-Hub-Signature-256");
}

static void hostile_headers_are_refused(void **state)
{
    (void)state;
    static const char *const timestamps[] = {
        "x", "-1", "1731705121 ", "1.7e9", "0x67", "9223372036854775", "18446744073709551616"};
    for (size_t i = 0; i < sizeof timestamps / sizeof *timestamps; i++)
        comes_out(with(standard, 3, timestamps[i]), HX_WEBHOOK_HEADER_MALFORMED, "webhook-timestamp");
    static const char *const ids[] = {"a.1731705121", "a b", "caf\xc3\xa9", "a\x01"};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        comes_out(with(standard, 1, ids[i]), HX_WEBHOOK_HEADER_MALFORMED, "webhook-id");
    static const char *const lists[] = {"v1", "v1=x", "   ", "v1,", "v1,====", "v1,AA AA", "v1,\xff"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        comes_out(with(standard, 5, lists[i]), HX_WEBHOOK_HEADER_MALFORMED, "webhook-signature");
    comes_out(with(standard, 5, "v2,AAAA V1,AAAA"), HX_WEBHOOK_NO_VERSION, "webhook-signature");
    static const char *const pairs[] = {"t=1731705121",
                                        "v1=" EVENT_MAC,
                                        "t=1731705121,t=1731705121,v1=" EVENT_MAC,
                                        "t=,v1=" EVENT_MAC,
                                        "t=1731705121,v1=",
                                        "t=1731705121,v1=" EVENT_MAC "0",
                                        "t=1731705121,v1=" EVENT_MAC "00",
                                        ",,,",
                                        "="};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        comes_out(with(stripe, 1, pairs[i]), i == 0 ? HX_WEBHOOK_NO_VERSION : HX_WEBHOOK_HEADER_MALFORMED,
                  "Stripe-Signature");
    comes_out(with(github, 1, "sha1=" HELLO_MAC), HX_WEBHOOK_NO_VERSION, "X-Hub-Signature-256");
    comes_out(with(github, 1, HELLO_MAC), HX_WEBHOOK_NO_VERSION, "X-Hub-Signature-256");
    char *large = calloc(1, HX_WEBHOOK_HEADER_BYTES_MAX + 2);
    assert_non_null(large);
    memset(large, 'a', HX_WEBHOOK_HEADER_BYTES_MAX + 1);
    comes_out(with(github, 1, large), HX_WEBHOOK_HEADER_MALFORMED, "X-Hub-Signature-256");
    memset(large, 'v', HX_WEBHOOK_ID_BYTES_MAX + 1);
    large[HX_WEBHOOK_ID_BYTES_MAX + 1] = '\0';
    comes_out(with(standard, 1, large), HX_WEBHOOK_HEADER_MALFORMED, "webhook-id");
    free(large);
}

static void secrets_are_read_as_the_scheme_has_them(void **state)
{
    (void)state;
    static const struct {
        const char *scheme, *text;
        hx_webhook_error error;
    } rows[] = {{"standard", "plJ3nmyCDGBKInavdOK15jsl", HX_WEBHOOK_OK},
                {"standard", "", HX_WEBHOOK_SECRET_EMPTY},
                {"standard", "whsec_", HX_WEBHOOK_SECRET_EMPTY},
                {"standard", WHSEC "\n", HX_WEBHOOK_SECRET_BASE64},
                {"standard", "whsec_not base64", HX_WEBHOOK_SECRET_BASE64},
                {"standard", "sk_live_4eC39HqLyjWDarjtT1", HX_WEBHOOK_SECRET_KIND},
                {"standard", "whpk_AAAA", HX_WEBHOOK_SECRET_KEY},
                {"standard", "whsk_AAAA", HX_WEBHOOK_SECRET_KEY},
                {"standard",
                 "whsk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8EoQe/884Qvh1w3RjnS8CZZ+TWMJulDV8d3IZkElUxuA==",
                 HX_WEBHOOK_SECRET_KEY}, /* the public half of another key */
                {"stripe", "sk_test_4eC39HqLyjWDarjtT1", HX_WEBHOOK_SECRET_KIND},
                {"stripe", WHPK, HX_WEBHOOK_SECRET_KIND},
                {"slack", "xoxb-1-2", HX_WEBHOOK_SECRET_KIND},
                {"github", "sk_whatever its owner has chosen", HX_WEBHOOK_OK},
                {"hmac", "whsk_of_a_sender_who_means_text", HX_WEBHOOK_OK},
                {"hmac", "", HX_WEBHOOK_SECRET_EMPTY}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hx_arena arena = {0};
        hx_webhook_secret secret;
        hx_webhook_error error = hx_webhook_secret_read(hx_webhook_scheme_named(hx_slice_of(rows[i].scheme)),
                                                        hx_slice_of(rows[i].text), &arena, &secret);
        if (error != rows[i].error) fail_msg("%s: %s", rows[i].text, hx_webhook_error_word(error));
        hx_arena_free(&arena);
    }
}

static void other_senders_are_described(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_webhook_result result;
    hx_webhook_scheme scheme = *hx_webhook_scheme_named(HX_LIT("hmac"));
    assert_non_null(hx_webhook_scheme_mistake(&scheme)); /* no header */
    scheme.signature_header = "X-Signature";
    assert_null(hx_webhook_scheme_mistake(&scheme));
    scheme.prefix = "hmac-sha256 ";
    scheme.timestamp_header = "X-Time";
    assert_non_null(hx_webhook_scheme_mistake(&scheme)); /* a timestamp that isn't signed */
    scheme.signed_text = "{timestamp}:{body}!";
    assert_null(hx_webhook_scheme_mistake(&scheme));
    story s = {"hmac",
               {"X-Signature", "hmac-sha256 0678E98EA4e790bd30721be90bfcf7fa81e262b7ddb16328cebb4a8f5d3476de", "x-time",
                "1731705121"},
               "body",
               {"k"},
               AT};
    assert_int_equal(verify_by(&scheme, &s, &arena, &result), HX_WEBHOOK_OK);
    assert_true(hx_slice_eq(result.before, HX_LIT("1731705121:")) && hx_slice_eq(result.after, HX_LIT("!")));
    static const char *const refused[] = {
        "", "{timestamp}", "{body}{body}{timestamp}", "{timestamp}{body", "{id}{body}", "{timestamp}.{body}}"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        scheme.signed_text = refused[i];
        if (!hx_webhook_scheme_mistake(&scheme)) fail_msg("%s is taken", refused[i]);
    }
    scheme.timestamp_header = NULL;
    scheme.signed_text = "{timestamp}.{body}";
    assert_non_null(hx_webhook_scheme_mistake(&scheme)); /* no header to take it from */
    scheme.signed_text = "{body}";
    scheme.signature_header = "X Signature";
    assert_non_null(hx_webhook_scheme_mistake(&scheme));
    hx_arena_free(&arena);
}

static void events_have_ids(void **state)
{
    (void)state;
    const struct {
        story s;
        const char *id; /* NULL: none */
        bool is_signed;
    } rows[] = {{standard, PING_ID, true},
                {stripe, "evt_1", true},
                {github, "72d3162e", false},
                {shopify, "b54557e4", false},
                {slack, NULL, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hx_arena arena = {0};
        hx_slice id;
        bool is_signed;
        hx_webhook_request request = {.find_header = find_header,
                                      .user = &rows[i].s,
                                      .body = hx_slice_of(rows[i].s.body)};
        const hx_webhook_scheme *scheme = hx_webhook_scheme_named(hx_slice_of(rows[i].s.scheme));
        bool found = hx_webhook_event_id(scheme, &request, &arena, &id, &is_signed);
        assert_int_equal(found, rows[i].id != NULL);
        if (found) assert_true(hx_slice_eq(id, hx_slice_of(rows[i].id)));
        assert_int_equal(is_signed, rows[i].is_signed);
        hx_arena_free(&arena);
    }
}

static void ours_are_those_of_the_specification(void **state)
{
    (void)state;
    hx_arena arena = {0};
    hx_webhook_secret secrets[3];
    hx_slice value;
    static const char *const texts[] = {WHSEC, WHSK, WHPK};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(hx_webhook_secret_read(hx_webhook_scheme_named(HX_LIT("standard")), hx_slice_of(texts[i]),
                                                &arena, &secrets[i]),
                         HX_WEBHOOK_OK);
    assert_true(hx_webhook_sign(secrets, 2, HX_LIT(PING_ID), AT / HX_SECOND, HX_LIT(PING), &arena, &value));
    assert_true(hx_slice_eq(value, HX_LIT(V1 " " V1A)));
    /* A public key can't sign. */
    assert_false(hx_webhook_sign(secrets, 3, HX_LIT(PING_ID), AT / HX_SECOND, HX_LIT(PING), &arena, &value));
    hx_arena_free(&arena);
}

static int drain(void **state)
{
    (void)state;
    hx_arena_pool_drain();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_signatures_are_valid),
        cmocka_unit_test(what_was_changed_has_no_signature),
        cmocka_unit_test(any_secret_and_any_signature_may_match),
        cmocka_unit_test(signatures_beyond_the_limit_are_not_looked_at),
        cmocka_unit_test(the_tolerance_ends_to_the_millisecond),
        cmocka_unit_test(headers_that_lack_or_come_twice_are_named),
        cmocka_unit_test(hostile_headers_are_refused),
        cmocka_unit_test(secrets_are_read_as_the_scheme_has_them),
        cmocka_unit_test(other_senders_are_described),
        cmocka_unit_test(events_have_ids),
        cmocka_unit_test(ours_are_those_of_the_specification),
    };
    return cmocka_run_group_tests(tests, NULL, drain);
}
