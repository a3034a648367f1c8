/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of heads and bodies against random bytes that are almost right: where they cut must not matter, and what
 * they accept llhttp must accept too, with the same content and the same end. The seed is printed when a case fails. */
#include "net/h1/body_framing.h"

#include "base/rand.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include <llhttp.h>

#define ROUNDS 200000u
#define BYTES_MAX 512u

typedef struct {
    char bytes[BYTES_MAX];
    size_t len;
} text;

static void put(text *t, const char *piece)
{
    size_t len = strlen(piece);
    if (t->len + len > BYTES_MAX) return;
    memcpy(t->bytes + t->len, piece, len);
    t->len += len;
}

static const char *one_of(const char *const *choices, size_t count)
{
    return choices[hx_rand_below(count)];
}

#define ONE_OF(...)                                                                                                    \
    one_of((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* Changes a byte or two, mostly into one that means something. */
static void damage(text *t)
{
    static const char telling[] = "\r\n\t \0;:,0159afAFxZ\"\x7f\x80\xff";
    for (uint64_t times = hx_rand_below(3); times > 0 && t->len > 0; times--) {
        size_t at = hx_rand_below(t->len);
        char byte = hx_rand_below(4) ? telling[hx_rand_below(sizeof telling - 1)] : (char)hx_rand_below(256);
        switch (hx_rand_below(3)) {
        case 0: t->bytes[at] = byte; break;
        case 1:
            memmove(t->bytes + at, t->bytes + at + 1, t->len - at - 1);
            t->len--;
            break;
        default:
            if (t->len == BYTES_MAX) break;
            memmove(t->bytes + at + 1, t->bytes + at, t->len - at);
            t->bytes[at] = byte;
            t->len++;
        }
    }
}

typedef struct {
    hx_h1_body_result verdict; /* of the reader */
    size_t used;               /* bytes up to the end of the body, when it has one */
    text content;
} outcome;

static outcome read_body(const text *raw, bool in_pieces)
{
    const hx_request_head chunked = {.chunked = true, .has_body = true, .content_length = -1};
    hx_h1_body body;
    hx_h1_body_init(&body, &chunked, 64, 128);
    outcome result = {.verdict = HX_H1_BODY_MORE};
    size_t given = 0;
    while (result.verdict == HX_H1_BODY_MORE && given < raw->len) {
        size_t bytes = in_pieces ? 1 + hx_rand_below(raw->len - given) : raw->len - given;
        hx_slice input = {raw->bytes + given, bytes}, piece;
        given += bytes;
        hx_h1_fault fault;
        do {
            result.verdict = hx_h1_body_next(&body, &input, &piece, &fault);
            if (result.verdict != HX_H1_BODY_PIECE) break;
            memcpy(result.content.bytes + result.content.len, piece.ptr, piece.len);
            result.content.len += piece.len;
        } while (true);
        result.used = given - input.len;
    }
    return result;
}

static text theirs;
static bool they_are_done;

static int their_body(llhttp_t *parser, const char *at, size_t len)
{
    (void)parser;
    memcpy(theirs.bytes + theirs.len, at, len);
    theirs.len += len;
    return 0;
}

static int their_end(llhttp_t *parser)
{
    (void)parser;
    they_are_done = true;
    return HPE_PAUSED;
}

/* Where llhttp sees the end of the body, or SIZE_MAX. */
static size_t read_body_with_llhttp(const text *raw)
{
    static const char head[] = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    llhttp_settings_t settings = {.on_body = their_body, .on_message_complete = their_end};
    llhttp_t parser;
    theirs.len = 0;
    they_are_done = false;
    llhttp_init(&parser, HTTP_REQUEST, &settings);
    assert_int_equal(llhttp_execute(&parser, head, sizeof head - 1), HPE_OK);
    (void)llhttp_execute(&parser, raw->bytes, raw->len);
    if (!they_are_done) return SIZE_MAX;
    return (size_t)(llhttp_get_error_pos(&parser) - raw->bytes);
}

/* Without trailers named like framing fields: llhttp reads those as fields, where ours drops them all. */
static void make_body(text *t)
{
    for (uint64_t chunks = hx_rand_below(4); chunks > 0; chunks--)
        put(t, ONE_OF("1\r\nx\r\n", "003\r\nabc\r\n", "A;e=f\r\n0123456789\r\n", "5;\"q r\"\r\nhello\r\n",
                      "2;\r\n\r\n\r\n"));
    put(t, ONE_OF("0\r\n", "0\r\n", "0000;last\r\n"));
    for (uint64_t trailers = hx_rand_below(3); trailers > 0; trailers--)
        put(t, ONE_OF("X: y\r\n", "Trailing: 3\r\n", "Y:\r\n"));
    put(t, "\r\n");
    put(t, ONE_OF("", "", "GET / HTTP/1.1\r\n"));
}

static void chunks_are_read_the_same_however_cut_and_never_more_laxly_than_llhttp(void **state)
{
    (void)state;
    unsigned accepted = 0, refused = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        hx_rand_seed(seed);
        text raw = {.len = 0};
        make_body(&raw);
        damage(&raw);
        outcome whole = read_body(&raw, false), cut = read_body(&raw, true);
        bool same = whole.verdict == cut.verdict && whole.content.len == cut.content.len &&
                    memcmp(whole.content.bytes, cut.content.bytes, cut.content.len) == 0 &&
                    (whole.verdict != HX_H1_BODY_END || whole.used == cut.used);
        if (!same) fail_msg("seed %llu: the cut matters", (unsigned long long)seed);
        if (whole.verdict == HX_H1_BODY_BAD) refused++;
        if (whole.verdict != HX_H1_BODY_END) continue;
        accepted++;
        size_t their_used = read_body_with_llhttp(&raw);
        bool agreed = their_used == whole.used && theirs.len == whole.content.len &&
                      memcmp(theirs.bytes, whole.content.bytes, theirs.len) == 0;
        if (!agreed) fail_msg("seed %llu: llhttp reads it otherwise", (unsigned long long)seed);
    }
    assert_true(accepted > ROUNDS / 10 && refused > ROUNDS / 10);
}

static hx_h1_result scan(const text *raw, bool in_pieces, hx_h1_scan *found, hx_h1_fault *fault)
{
    hx_h1_result result = HX_H1_MORE;
    *found = (hx_h1_scan){0};
    *fault = (hx_h1_fault){0};
    for (size_t given = 0; result == HX_H1_MORE && given < raw->len;) {
        given += in_pieces ? 1 + hx_rand_below(raw->len - given) : raw->len - given;
        result = hx_h1_scan_head(found, (hx_slice){raw->bytes, given}, 300, fault);
    }
    return result;
}

static void make_head(text *t)
{
    put(t, ONE_OF("GET / HTTP/1.1\r\n", "POST /a?b HTTP/1.1\r\n", "GET http://h/x HTTP/1.1\r\n", "GET / HTTP/1.0\r\n"));
    put(t, "Host: a\r\n");
    for (uint64_t count = hx_rand_below(5); count > 0; count--)
        put(t,
            ONE_OF("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", "X: \t y \r\n", "Connection: close\r\n",
                   "Expect: 100-continue\r\n", "Y:\r\n", "Upgrade: z\r\nConnection: upgrade\r\n"));
    put(t, "\r\n");
    put(t, ONE_OF("", "hello"));
}

/* What must hold of every head that is accepted, whatever it looks like. */
static void assert_sound(const hx_request_head *request, uint64_t seed)
{
    const hx_fields *fields = &request->fields;
    bool sound = request->path.len > 0 && (request->path.ptr[0] == '/' || hx_slice_eq(request->path, HX_LIT("*")));
    sound = sound && fields->lines[HX_FIELD_HOST] <= 1 && fields->lines[HX_FIELD_CONTENT_LENGTH] <= 1;
    sound = sound && !(request->chunked && (request->content_length >= 0 || request->is_http10));
    sound = sound && request->chunked == (fields->lines[HX_FIELD_TRANSFER_ENCODING] == 1);
    sound = sound && (request->content_length >= 0) == (fields->lines[HX_FIELD_CONTENT_LENGTH] == 1);
    for (size_t i = 0; i < fields->count; i++) {
        sound = sound && hx_slice_is_token(fields->items[i].name);
        hx_slice value = fields->items[i].value;
        for (size_t c = 0; c < value.len; c++) {
            unsigned char byte = (unsigned char)value.ptr[c];
            sound = sound && (byte >= 0x20 || byte == '\t') && byte != 0x7f;
        }
    }
    if (!sound) fail_msg("seed %llu: accepted what it shouldn't", (unsigned long long)seed);
}

static void heads_are_read_the_same_however_cut_and_what_is_accepted_is_sound(void **state)
{
    (void)state;
    unsigned accepted = 0, refused = 0;
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        hx_rand_seed(seed);
        text raw = {.len = 0};
        make_head(&raw);
        damage(&raw);
        hx_h1_scan whole, cut;
        hx_h1_fault fault, cut_fault;
        hx_h1_result result = scan(&raw, false, &whole, &fault), cut_result = scan(&raw, true, &cut, &cut_fault);
        bool same = result == cut_result && fault.status == cut_fault.status && fault.detail == cut_fault.detail &&
                    (result != HX_H1_WHOLE || (whole.at == cut.at && whole.lines == cut.lines));
        if (!same) fail_msg("seed %llu: the cut matters", (unsigned long long)seed);
        if (result != HX_H1_WHOLE) continue;
        hx_arena arena = {0};
        hx_request_head request;
        hx_slice head = hx_arena_copy(&arena, (hx_slice){raw.bytes, whole.at});
        if (hx_h1_parse_request(&request, &arena, head, whole.lines, 100, &fault)) {
            accepted++;
            assert_sound(&request, seed);
        } else {
            refused++;
            assert_true(fault.status >= 400 && fault.status <= 505 && fault.detail);
        }
        hx_arena_free(&arena);
    }
    assert_true(accepted > ROUNDS / 10 && refused > ROUNDS / 10);
    hx_arena_pool_drain();
}

static void every_control_byte_is_found_at_every_place(void **state)
{
    (void)state;
    for (unsigned byte = 0; byte < 256; byte++) {
        for (size_t at = 0; at < 40; at++) {
            text raw = {.len = 0};
            put(&raw, "GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
            raw.bytes[at + 5] = (char)byte;
            hx_h1_scan found;
            hx_h1_fault fault;
            bool is_control = (byte < 0x20 && byte != '\t') || byte == 0x7f;
            assert_int_equal(scan(&raw, false, &found, &fault), is_control ? HX_H1_BAD : HX_H1_MORE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_read_the_same_however_cut_and_never_more_laxly_than_llhttp),
        cmocka_unit_test(heads_are_read_the_same_however_cut_and_what_is_accepted_is_sound),
        cmocka_unit_test(every_control_byte_is_found_at_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
