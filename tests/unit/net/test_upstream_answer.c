/* SPDX-License-Identifier: Apache-2.0 */
/* What is an answer and what isn't: the parser alone, over tables, each row whole and split at every byte. */
#include "base/rand.h"
#include "net/h1/answer_parser.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    hx_answer_event last; /* END, BROKEN, TOO_LARGE, or MORE: it wants more */
    unsigned status;
    char body[256];
    size_t body_len;
    size_t extra; /* bytes left over after END */
    bool keep_alive, until_close, chunked, any_byte;
    int64_t length;
} reading;

static hx_arena arena;
static hx_h1_answer parser;

static bool feed(reading *r, hx_slice in)
{
    for (;;) {
        hx_slice piece = HX_EMPTY;
        r->last = hx_h1_answer_read(&parser, &in, &piece);
        r->any_byte = parser.any_byte;
        switch (r->last) {
        case HX_ANSWER_MORE: assert_int_equal(in.len, 0); return true;
        case HX_ANSWER_HEAD:
            r->status = parser.head->status;
            r->until_close = parser.head->until_close;
            r->chunked = parser.head->chunked;
            r->length = parser.head->content_length;
            break;
        case HX_ANSWER_BODY:
            assert_true(r->body_len + piece.len <= sizeof r->body);
            memcpy(r->body + r->body_len, piece.ptr, piece.len);
            r->body_len += piece.len;
            break;
        case HX_ANSWER_END:
            r->extra = in.len;
            r->keep_alive = parser.keep_alive;
            return false;
        case HX_ANSWER_BROKEN:
        case HX_ANSWER_TOO_LARGE: return false;
        }
    }
}

/* `step` bytes at a time, from memory of exactly that size, so that a read past its end is seen. */
static reading read_answer(hx_slice bytes, size_t step, size_t first, bool head_request, uint32_t limit)
{
    reading r;
    memset(&r, 0, sizeof r); /* padding too: two are compared as bytes */
    hx_h1_answer_begin(&parser, &arena, limit, 20, head_request);
    for (size_t at = 0, len = first; at < bytes.len; at += len, len = step) {
        if (len > bytes.len - at) len = bytes.len - at;
        char *copy = malloc(len);
        memcpy(copy, bytes.ptr + at, len);
        bool more = feed(&r, (hx_slice){copy, len});
        free(copy);
        if (!more) {
            r.extra += bytes.len - at - len;
            break;
        }
    }
    return r;
}

#define H "HTTP/1.1 200 OK\r\n"
#define C H "Transfer-Encoding: chunked\r\n\r\n"
#define ROW(why, text)                                                                                                 \
    {                                                                                                                  \
        why,                                                                                                           \
        {                                                                                                              \
            text, sizeof(text) - 1                                                                                     \
        }                                                                                                              \
    }

static const struct {
    const char *why;
    hx_slice bytes;
} hostile[] = {
    ROW("garbage", "garbage"),
    ROW("TLS", "\x15\x03\x01\x02\x02\x50"),
    ROW("an empty line first", "\r\n" H "\r\n"),
    ROW("a bare LF first", "\n" H "\r\n"),
    ROW("HTTP/2.0", "HTTP/2.0 200 OK\r\n\r\n"),
    ROW("HTTP/0.9", "HTTP/0.9 200 OK\r\n\r\n"),
    ROW("HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n"),
    ROW("HTTP/11.1", "HTTP/11.1 200 OK\r\n\r\n"),
    ROW("lower case", "http/1.1 200 OK\r\n\r\n"),
    ROW("two spaces", "HTTP/1.1  200 OK\r\n\r\n"),
    ROW("a tab", "HTTP/1.1\t200 OK\r\n\r\n"),
    ROW("no status", "HTTP/1.1 \r\n\r\n"),
    ROW("no status and no space", "HTTP/1.1\r\n\r\n"),
    ROW("two digits", "HTTP/1.1 20 OK\r\n\r\n"),
    ROW("four digits", "HTTP/1.1 2000 OK\r\n\r\n"),
    ROW("a sign", "HTTP/1.1 +20 OK\r\n\r\n"),
    ROW("hexadecimal", "HTTP/1.1 0x1 OK\r\n\r\n"),
    ROW("status 099", "HTTP/1.1 099 OK\r\n\r\n"),
    ROW("status 600", "HTTP/1.1 600 OK\r\n\r\n"),
    ROW("status 000", "HTTP/1.1 000 OK\r\n\r\n"),
    ROW("a tab after the status", "HTTP/1.1 200\tOK\r\n\r\n"),
    ROW("NUL in the reason", "HTTP/1.1 200 O\0K\r\n\r\n"),
    ROW("bare CR in the reason", "HTTP/1.1 200 O\rK\r\n\r\n"),
    ROW("an escape in the reason", "HTTP/1.1 200 \x1b[2J\r\n\r\n"),
    ROW("bare LF after the status line", "HTTP/1.1 200 OK\nA: b\r\n\r\n"),
    ROW("bare LF after a field", H "A: b\nC: d\r\n\r\n"),
    ROW("bare LF at the end", H "A: b\r\n\n"),
    ROW("bare CR in a value", H "A: b\rC: d\r\n\r\n"),
    ROW("bare CR before the end", H "A: b\r\r\n\r\n"),
    ROW("NUL in a value", H "A: b\0c\r\n\r\n"),
    ROW("DEL in a value", H "A: b\x7f\r\n\r\n"),
    ROW("NUL in a name", H "A\0B: c\r\n\r\n"),
    ROW("a fold with a space", H "A: b\r\n c\r\n\r\n"),
    ROW("a fold with a tab", H "A: b\r\n\tc\r\n\r\n"),
    ROW("a folded length", H "A: b\r\n Content-Length: 5\r\n\r\nhello"),
    ROW("a fold after the status line", H " A: b\r\n\r\n"),
    ROW("a fold of white space only", H "A: b\r\n \r\n\r\n"),
    ROW("a space before the colon", H "Content-Length : 0\r\n\r\n"),
    ROW("a tab before the colon", H "A\t: 0\r\n\r\n"),
    ROW("a space in a name", H "A B: c\r\n\r\n"),
    ROW("no colon", H "Abc\r\n\r\n"),
    ROW("an empty name", H ": b\r\n\r\n"),
    ROW("a name of UTF-8", H "\xc3\xa4: b\r\n\r\n"),
    ROW("two lengths", H "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok"),
    ROW("two different lengths", H "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"),
    ROW("a list of lengths", H "Content-Length: 2, 2\r\n\r\nok"),
    ROW("a negative length", H "Content-Length: -1\r\n\r\n"),
    ROW("a length with a sign", H "Content-Length: +2\r\n\r\nok"),
    ROW("a length in hexadecimal", H "Content-Length: 0x2\r\n\r\nok"),
    ROW("an empty length", H "Content-Length:\r\n\r\n"),
    ROW("a length with a space in it", H "Content-Length: 1 2\r\n\r\nok"),
    ROW("a length over 2^63", H "Content-Length: 9223372036854775808\r\n\r\n"),
    ROW("a length over 2^64", H "Content-Length: 18446744073709551618\r\n\r\n"),
    ROW("length and chunks", H "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("chunks and length", H "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"),
    ROW("chunked twice", H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("chunked, chunked", H "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ROW("gzip, chunked", H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ROW("chunked, gzip", H "Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    ROW("identity", H "Transfer-Encoding: identity\r\n\r\n"),
    ROW("xchunked", H "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ROW("quoted chunked", H "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    ROW("an empty coding", H "Transfer-Encoding:\r\n\r\n"),
    ROW("chunked;q=1", H "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
    ROW("chunks for HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW("a hop that must not be one", H "Connection: content-length\r\nContent-Length: 0\r\n\r\n"),
    ROW("Connection is no list of tokens", H "Connection: a b@\r\nContent-Length: 0\r\n\r\n"),
    ROW("chunks in an interim answer", "HTTP/1.1 100 Continue\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ROW("a length in an interim answer", "HTTP/1.1 103 Hints\r\nContent-Length: 5\r\n\r\n"),
    ROW("a length on 101", "HTTP/1.1 101 Switching\r\nContent-Length: 5\r\n\r\n"),
    ROW("a bad final head after an interim one", "HTTP/1.1 100 Continue\r\n\r\nHTTP/3.0 200 OK\r\n\r\n"),
    ROW("a chunk without a size", C "\r\n"),
    ROW("a chunk size that isn't one", C "xyz\r\n"),
    ROW("a negative chunk size", C "-1\r\n"),
    ROW("a chunk size with 0x", C "0x2\r\nok\r\n0\r\n\r\n"),
    ROW("a space before the chunk size", C " 2\r\nok\r\n0\r\n\r\n"),
    ROW("a space after the chunk size", C "2 \r\nok\r\n0\r\n\r\n"),
    ROW("a chunk size over 2^64", C "10000000000000002\r\nok\r\n0\r\n\r\n"),
    ROW("bare LF after the chunk size", C "2\nok\r\n0\r\n\r\n"),
    ROW("CR without LF after the chunk size", C "2\rok\r\n0\r\n\r\n"),
    ROW("a chunk longer than it said", C "2\r\noks\r\n0\r\n\r\n"),
    ROW("bare LF after the chunk", C "2\r\nok\n0\r\n\r\n"),
    ROW("bare LF at the end of chunks", C "2\r\nok\r\n0\r\n\n"),
    ROW("bare LF after the last size", C "2\r\nok\r\n0\n\r\n"),
    ROW("bare LF after a trailer", C "2\r\nok\r\n0\r\nA: b\n\r\n"),
    ROW("bare LF after the trailers", C "2\r\nok\r\n0\r\nA: b\r\n\n"),
    ROW("a trailer that is none", C "0\r\nnonsense\r\n\r\n"),
};

static void hostile_answers_are_broken_however_they_are_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        hx_slice bytes = hostile[i].bytes;
        for (size_t first = 1; first <= bytes.len; first++) {
            reading r = read_answer(bytes, bytes.len, first, false, 4096);
            if (r.last != HX_ANSWER_BROKEN) print_error("%s: event %d\n", hostile[i].why, (int)r.last);
            assert_int_equal(r.last, HX_ANSWER_BROKEN);
        }
        assert_int_equal(read_answer(bytes, 1, 1, false, 4096).last, HX_ANSWER_BROKEN);
        hx_arena_free(&arena);
    }
}

typedef struct {
    const char *bytes, *body;
    unsigned status;
    bool keep_alive, head_request;
    size_t extra;
} good_answer;

static const good_answer good[] = {
    {H "Content-Length: 2\r\n\r\nok", "ok", 200, true, false, 0},
    {H "content-length:2\r\n\r\nok", "ok", 200, true, false, 0},
    {H "Content-Length: 2 \r\n\r\nok", "ok", 200, true, false, 0},
    {H "Content-Length: 002\r\n\r\nok", "ok", 200, true, false, 0},
    {H "Content-Length: 2\r\n\r\nokHTTP/1.1", "ok", 200, true, false, 8},
    {H "Content-Length: 0\r\n\r\n", "", 200, true, false, 0},
    {"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "", 200, true, false, 0},
    {"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "", 200, true, false, 0},
    {"HTTP/1.1 599 \xc3\xa4\r\nContent-Length: 0\r\n\r\n", "", 599, true, false, 0},
    {H "A:\r\nB: \t \r\nContent-Length: 2\r\n\r\nok", "ok", 200, true, false, 0},
    {H "Connection: close\r\nContent-Length: 2\r\n\r\nok", "ok", 200, false, false, 0},
    {H "Connection: foo, CLOSE\r\nContent-Length: 2\r\n\r\nok", "ok", 200, false, false, 0},
    {H "Connection: foo\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "ok", 200, false, false, 0},
    {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 200, false, false, 0},
    {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", "ok", 200, true, false, 0},
    {C "2\r\nok\r\n0\r\n\r\n", "ok", 200, true, false, 0},
    {H "TRANSFER-encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "ok", 200, true, false, 0},
    {C "1\r\no\r\n1\r\nk\r\n0\r\n\r\nX", "ok", 200, true, false, 1},
    {C "1;a=b\r\no\r\n1;c=\"d; e\"\r\nk\r\n0;x;y\r\n\r\n", "ok", 200, true, false, 0},
    {C "0000002\r\nok\r\n000\r\nTrailer: dropped\r\nB: c\r\n\r\n", "ok", 200, true, false, 0},
    {C "A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n", "01234567890123456789", 200, true, false, 0},
    {"HTTP/1.1 204 No Content\r\n\r\n", "", 204, true, false, 0},
    {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", "", 204, false, false, 5},
    {"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", 204, false, false, 5},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "", 304, true, false, 0},
    {H "Content-Length: 5\r\n\r\n", "", 200, true, true, 0},
    {C "", "", 200, true, true, 0},
    {H "\r\n", "", 200, true, true, 0},
    {"HTTP/1.1 100 Continue\r\n\r\n" H "Content-Length: 2\r\n\r\nok", "ok", 200, true, false, 0},
    {"HTTP/1.1 100 Continue\r\nContent-Length: 0\r\n\r\nHTTP/1.1 103 Hints\r\nLink: a\r\n\r\n" H
     "Content-Length: 2\r\n\r\nok",
     "ok", 200, true, false, 0},
    {"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nraw", "", 101, true, false, 3},
    {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "", 101, true, false, 0},
};

static void good_answers_are_read_however_they_are_split(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        const good_answer *g = &good[i];
        hx_slice bytes = hx_slice_of(g->bytes);
        for (size_t first = 1; first <= bytes.len + 1; first++) {
            bool whole = first > bytes.len; /* the last round goes byte by byte */
            reading r = read_answer(bytes, whole ? 1 : bytes.len, whole ? 1 : first, g->head_request, 4096);
            if (r.last != HX_ANSWER_END) print_error("answer %zu split at %zu: event %d\n", i, first, (int)r.last);
            assert_int_equal(r.last, HX_ANSWER_END);
            assert_int_equal(r.status, g->status);
            assert_int_equal(r.body_len, strlen(g->body));
            assert_memory_equal(r.body, g->body, r.body_len);
            assert_int_equal(r.keep_alive, g->keep_alive);
            assert_int_equal(r.extra, g->extra);
        }
        hx_arena_free(&arena);
    }
}

static void every_proper_beginning_of_a_good_answer_wants_more(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        hx_slice bytes = hx_slice_of(good[i].bytes);
        for (size_t len = 1; len < bytes.len - good[i].extra; len++) {
            reading r = read_answer(hx_slice_first(bytes, len), len, len, good[i].head_request, 4096);
            assert_int_equal(r.last, HX_ANSWER_MORE);
            assert_false(hx_h1_answer_ends_with_connection(&parser));
        }
        hx_arena_free(&arena);
    }
}

static void an_answer_without_framing_ends_with_the_connection(void **state)
{
    (void)state;
    static const char *const heads[] = {H "\r\n", "HTTP/1.0 200 OK\r\n\r\n", H "Connection: keep-alive\r\n\r\n"};
    for (size_t i = 0; i < 3; i++) {
        char text[128];
        (void)snprintf(text, sizeof text, "%shello", heads[i]);
        reading r = read_answer(hx_slice_of(text), 1, 1, false, 4096);
        assert_int_equal(r.last, HX_ANSWER_MORE);
        assert_true(r.until_close && hx_h1_answer_ends_with_connection(&parser));
        assert_int_equal(r.length, -1);
        assert_memory_equal(r.body, "hello", 5);
        assert_false(parser.keep_alive);
    }
    hx_arena_free(&arena);
}

static void a_head_up_to_the_limit_is_taken_and_one_byte_more_is_too_large(void **state)
{
    (void)state;
    hx_slice head = HX_LIT(H "Content-Length: 0\r\nA: 0123456789\r\n\r\n");
    for (size_t step = 1; step <= head.len; step++) {
        assert_int_equal(read_answer(head, step, step, false, (uint32_t)head.len).last, HX_ANSWER_END);
        assert_int_equal(read_answer(head, step, step, false, (uint32_t)head.len - 1).last, HX_ANSWER_TOO_LARGE);
    }
    hx_slice twice = HX_LIT("HTTP/1.1 100 Continue\r\n\r\n" H "Content-Length: 0\r\n\r\n"); /* 25 + 38 */
    assert_int_equal(read_answer(twice, 7, 7, false, 63).last, HX_ANSWER_END);
    assert_int_equal(read_answer(twice, 7, 7, false, 62).last, HX_ANSWER_TOO_LARGE);
    hx_arena_free(&arena);
}

static void fields_interim_answers_and_chunk_overhead_are_bounded(void **state)
{
    (void)state;
    char text[8192];
    for (int count = 20; count <= 21; count++) {
        int len = snprintf(text, sizeof text, "%s", H);
        for (int i = 0; i < count - 1; i++) len += snprintf(text + len, sizeof text - (size_t)len, "A%d: b\r\n", i);
        len += snprintf(text + len, sizeof text - (size_t)len, "Content-Length: 0\r\n\r\n");
        reading r = read_answer(hx_slice_of(text), (size_t)len, (size_t)len, false, 4096);
        assert_int_equal(r.last, count == 20 ? HX_ANSWER_END : HX_ANSWER_TOO_LARGE);
    }
    for (int count = 32; count <= 33; count++) {
        int len = 0;
        for (int i = 0; i < count; i++)
            len += snprintf(text + len, sizeof text - (size_t)len, "HTTP/1.1 102 P\r\n\r\n");
        (void)snprintf(text + len, sizeof text - (size_t)len, H "Content-Length: 0\r\n\r\n");
        reading r = read_answer(hx_slice_of(text), 100, 100, false, 4096);
        assert_int_equal(r.last, count == 32 ? HX_ANSWER_END : HX_ANSWER_BROKEN);
    }
    static const char *const endless[] = {"0\r\nA: ", "0\r\nA:", "1;", "1;a=", "1;a=\"", "0"};
    for (size_t i = 0; i < sizeof endless / sizeof endless[0]; i++) {
        hx_h1_answer_begin(&parser, &arena, 256, 20, false);
        reading r = {0};
        assert_true(feed(&r, HX_LIT(C)));
        assert_true(feed(&r, hx_slice_of(endless[i])));
        char fill = endless[i][strlen(endless[i]) - 1];
        fill = fill == '0' ? '0' : fill == ':' ? ' ' : 'a';
        int fed = 0;
        while (fed < 1000 && feed(&r, (hx_slice){&fill, 1})) fed++;
        assert_int_equal(r.last, HX_ANSWER_BROKEN);
        assert_in_range(fed, 200, 300);
    }
    hx_arena_free(&arena);
}

static void many_small_chunks_are_not_overhead(void **state)
{
    (void)state;
    hx_h1_answer_begin(&parser, &arena, 256, 20, false);
    reading r = {0};
    assert_true(feed(&r, HX_LIT(C)));
    for (int i = 0; i < 10000; i++) {
        assert_true(feed(&r, HX_LIT("1\r\na\r\n")));
        r.body_len = 0;
    }
    assert_false(feed(&r, HX_LIT("0\r\n\r\n")));
    assert_int_equal(r.last, HX_ANSWER_END);
    hx_arena_free(&arena);
}

static void fields_are_kept_in_order_trimmed_and_hops_are_marked(void **state)
{
    (void)state;
    (void)read_answer(HX_LIT(H "Date:  x \t\r\nX-Hop: 1\r\nConnection: x-hop\r\nContent-Length: 0\r\nSet-Cookie: a\r\n"
                               "Set-Cookie: b\r\nEmpty:\r\nKeep-Alive: max=5, timeout=7\r\n\r\n"),
                      1, 1, false, 4096);
    const hx_fields *fields = &parser.head->fields;
    static const char *const names[] = {"Date",       "X-Hop",      "Connection", "Content-Length",
                                        "Set-Cookie", "Set-Cookie", "Empty",      "Keep-Alive"};
    assert_int_equal(fields->count, 8);
    for (size_t i = 0; i < 8; i++) assert_true(hx_slice_eq(fields->items[i].name, hx_slice_of(names[i])));
    assert_true(hx_slice_eq(fields->items[0].value, HX_LIT("x")));
    assert_true(fields->items[1].flags & HX_FIELD_HOP);
    assert_int_equal(fields->lines[HX_FIELD_SET_COOKIE], 2);
    assert_int_equal(fields->items[6].value.len, 0);
    assert_int_equal(parser.keep_alive_for, 7 * HX_SECOND);
    assert_true(hx_slice_eq(parser.head->reason, HX_LIT("OK")));
    hx_arena_free(&arena);
}

/* Changes, drops, doubles or inserts a few bytes. */
static size_t mutate(char *bytes, size_t len, size_t room)
{
    static const char liked[] = "\r\n :;,\t0123456789abcdefHTP/.\0\x7f\xff";
    for (uint64_t changes = 1 + hx_rand_below(4); changes > 0; changes--) {
        size_t at = (size_t)hx_rand_below(len);
        char byte = liked[hx_rand_below(sizeof liked)];
        uint64_t way = hx_rand_below(3);
        if (way == 0) {
            bytes[at] = byte;
        } else if (way == 1 && len > 1) {
            memmove(bytes + at, bytes + at + 1, --len - at);
        } else if (len < room) {
            memmove(bytes + at + 1, bytes + at, len++ - at);
            bytes[at] = byte;
        }
    }
    return len;
}

static void damaged_answers_mean_the_same_however_they_are_split(void **state)
{
    (void)state;
    hx_rand_seed(20260219);
    unsigned ends[HX_ANSWER_TOO_LARGE + 1] = {0};
    for (int round = 0; round < 50000; round++) {
        char bytes[512];
        hx_slice whole = hx_slice_of(good[hx_rand_below(sizeof good / sizeof good[0])].bytes);
        memcpy(bytes, whole.ptr, whole.len);
        hx_slice damaged = {bytes, mutate(bytes, whole.len, sizeof bytes)};
        bool head_request = hx_rand_below(8) == 0;
        size_t first = 1 + (size_t)hx_rand_below(damaged.len);
        reading one = read_answer(damaged, damaged.len, damaged.len, head_request, 4096);
        reading two = read_answer(damaged, damaged.len, first, head_request, 4096);
        reading many = read_answer(damaged, 1, 1, head_request, 4096);
        ends[one.last]++;
        /* A broken one may be seen to be broken before or after its head and first bytes were given out. */
        if (one.last == HX_ANSWER_BROKEN) {
            assert_int_equal(two.last, one.last);
            assert_int_equal(many.last, one.last);
        } else {
            assert_memory_equal(&one, &two, sizeof one);
            assert_memory_equal(&one, &many, sizeof one);
        }
        hx_arena_free(&arena);
    }
    assert_true(ends[HX_ANSWER_END] > 1000 && ends[HX_ANSWER_BROKEN] > 1000 && ends[HX_ANSWER_MORE] > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_answers_are_broken_however_they_are_split),
        cmocka_unit_test(good_answers_are_read_however_they_are_split),
        cmocka_unit_test(every_proper_beginning_of_a_good_answer_wants_more),
        cmocka_unit_test(an_answer_without_framing_ends_with_the_connection),
        cmocka_unit_test(a_head_up_to_the_limit_is_taken_and_one_byte_more_is_too_large),
        cmocka_unit_test(fields_interim_answers_and_chunk_overhead_are_bounded),
        cmocka_unit_test(many_small_chunks_are_not_overhead),
        cmocka_unit_test(fields_are_kept_in_order_trimmed_and_hops_are_marked),
        cmocka_unit_test(damaged_answers_mean_the_same_however_they_are_split),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hx_arena_pool_drain();
    return failed;
}
