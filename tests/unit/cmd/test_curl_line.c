/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines as people and browsers write them, and as they break them: what curl would send, or an error that names
 * what can't be told. */
#include "cmd/explain/curl_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static hx_arena arena;

static void expect_words(const char *line, const char *const *expected)
{
    hx_slice *words, error;
    size_t count;
    if (!hx_shell_split(hx_slice_of(line), &arena, &words, &count, &error)) fail_msg("%s: %.*s", line, HX_FMT(error));
    for (size_t i = 0; i < count; i++) {
        if (!expected[i]) fail_msg("%s: a word too many: %.*s", line, HX_FMT(words[i]));
        if (!hx_slice_eq(words[i], hx_slice_of(expected[i])))
            fail_msg("%s: %.*s, not %s", line, HX_FMT(words[i]), expected[i]);
    }
    if (expected[count]) fail_msg("%s: no word %s", line, expected[count]);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void words_are_split_as_a_shell_does(void **state)
{
    (void)state;
    expect_words("curl  -X\tPOST\n", WORDS("curl", "-X", "POST"));
    expect_words("  a \\\n  b \\\r\n c\\\nd", WORDS("a", "b", "cd"));
    expect_words("'a b'\"c d\"e\\ f", WORDS("a bc de f"));
    expect_words("'' \"\" x", WORDS("", "", "x"));
    expect_words("'it'\\''s' \"say \\\"hi\\\"\" 'no \\n here'", WORDS("it's", "say \"hi\"", "no \\n here"));
    expect_words("\"a\\nb\" \"a\\\\b\" \"a\\\nb\" \"cost: \\$5\" \"5$\" \"$ x\"",
                 WORDS("a\\nb", "a\\b", "ab", "cost: $5", "5$", "$ x"));
    expect_words("$'a\\nb\\t\\'c\\'\\\\ \\x41\\101\\u00e9\\u20ac\\U0001F600'",
                 WORDS("a\nb\t'c'\\ AA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"));
    expect_words("$'\\u0021{\"a\":1}'", WORDS("!{\"a\":1}")); /* as browsers write an exclamation mark */
    expect_words("http://h/a?b=1#f # a comment", WORDS("http://h/a?b=1#f"));
    expect_words("a # 'never closed\n\n", WORDS("a"));
    expect_words("{\"a\":[1,2]} *.c ~/x a=b", WORDS("{a:[1,2]}", "*.c", "~/x", "a=b"));
}

static void expect_split_error(const char *line, const char *part)
{
    hx_slice *words, error;
    size_t count;
    if (hx_shell_split(hx_slice_of(line), &arena, &words, &count, &error)) fail_msg("%s: no error", line);
    if (!strstr(hx_arena_terminated(&arena, error), part)) fail_msg("%s: %.*s", line, HX_FMT(error));
}

static void what_only_a_shell_can_do_is_named(void **state)
{
    (void)state;
    expect_split_error("curl 'a", "A ' is opened");
    expect_split_error("curl \"a\\\"", "A \" is opened");
    expect_split_error("curl $'a\\'", "A $' is opened");
    expect_split_error("curl $'a\\", "A $' is opened");
    expect_split_error("curl a\\", "ends with a backslash");
    expect_split_error("curl -H \"Authorization: Bearer $TOKEN\"", "$TOKEN is something");
    expect_split_error("curl ${HOST}/a", "only a shell");
    expect_split_error("curl \"$(cat token)\"", "only a shell");
    expect_split_error("curl `cat url`", "`…`");
    expect_split_error("curl \"`cat url`\"", "`…`");
    expect_split_error("curl http://h/a | jq .", "There is a |");
    expect_split_error("curl http://h/a?b=1&c=2", "There is a &");
    expect_split_error("curl http://h/a > out", "There is a >");
    expect_split_error("curl http://h/a; rm x", "There is a ;");
    expect_split_error("curl http://h/a\ncurl http://h/b", "more than one command");
    expect_split_error("curl \"http://h/a\" ^\n -H \"a: b\"", "Windows");
    expect_split_error("curl ^\"http://h/a^\"", "Windows");
    expect_split_error("$'\\q'", "backslash");
    expect_split_error("$'\\uD800'", "no character");
    expect_split_error("$'\\U00110000'", "no character");
    expect_split_error("$'\\x'", "backslash");
}

/* What the line would send; NULL with *error when it is refused. */
static const char *written(const char *line, const char **error)
{
    hx_slice *words, split_error;
    size_t count;
    hx_curl curl;
    hx_buf out;
    hx_buf_init(&out, &arena, HX_CURL_BODY_BYTES_MAX);
    if (!hx_shell_split(hx_slice_of(line), &arena, &words, &count, &split_error))
        fail_msg("%s: %.*s", line, HX_FMT(split_error));
    hx_curl_init(&curl, &arena);
    if (!hx_curl_take_words(&curl, words, count) || !hx_curl_write(&curl, &out)) {
        *error = hx_arena_terminated(&arena, curl.error);
        assert_true(curl.error.len > 0);
        return NULL;
    }
    assert_int_equal(curl.error.len, 0);
    return hx_arena_terminated(&arena, hx_buf_slice(&out));
}

static void expect_request(const char *line, const char *request)
{
    const char *error = NULL, *got = written(line, &error);
    if (!got) fail_msg("%s: %s", line, error);
    if (strcmp(got, request) != 0) fail_msg("%s:\n%s\nand not\n%s", line, got, request);
}

#define OWN "User-Agent: curl/8\r\nAccept: */*\r\n"
#define FORM "Content-Type: application/x-www-form-urlencoded\r\n"

static void a_line_becomes_the_request_that_curl_sends(void **state)
{
    (void)state;
    expect_request("curl http://h:81/a?b=c#f", "GET /a?b=c HTTP/1.1\r\nHost: h:81\r\n" OWN "\r\n");
    expect_request("/usr/bin/curl h", "GET / HTTP/1.1\r\nHost: h\r\n" OWN "\r\n");
    expect_request("curl 'https://h?x=1'", "GET /?x=1 HTTP/1.1\r\nHost: h\r\n" OWN "\r\n");
    expect_request("/refunds -XPOST", "POST /refunds HTTP/1.1\r\nHost: localhost\r\n" OWN "\r\n");
    expect_request("curl -sSfL -o out -w '%{http_code}' --compressed --max-time 3 -X DELETE -- http://h/a",
                   "DELETE /a HTTP/1.1\r\nHost: h\r\n" OWN "\r\n");
    expect_request("curl h/a -d x=1 --data y=2",
                   "POST /a HTTP/1.1\r\nHost: h\r\n" OWN FORM "Content-Length: 7\r\n\r\nx=1&y=2");
    expect_request("curl h/a -H 'Idempotency-Key: \"k\"' -H 'content-type: text/plain' --data-raw @x",
                   "POST /a HTTP/1.1\r\nHost: h\r\n" OWN "Idempotency-Key: \"k\"\r\ncontent-type: text/plain\r\n"
                   "Content-Length: 2\r\n\r\n@x");
    expect_request("curl h/a --json '{\"a\":' --json '1}'",
                   "POST /a HTTP/1.1\r\nHost: h\r\nUser-Agent: curl/8\r\nAccept: application/json\r\n"
                   "Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}");
    expect_request("curl -G h/a?z=1 -d x=1 --data-urlencode 'n=a b&c'",
                   "GET /a?z=1&x=1&n=a+b%26c HTTP/1.1\r\nHost: h\r\n" OWN "\r\n");
    expect_request("curl -I h/a", "HEAD /a HTTP/1.1\r\nHost: h\r\n" OWN "\r\n");
    expect_request("curl h -u me:secret -b a=1 -b 'c=2; d=3' -A agent -e http://r",
                   "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic bWU6c2VjcmV0\r\nUser-Agent: agent\r\nAccept: "
                   "*/*\r\nReferer: http://r\r\nCookie: a=1; c=2; d=3\r\n\r\n");
    expect_request("curl http://u:p@h/", "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Basic dTpw\r\n" OWN "\r\n");
    expect_request("curl h -u a:b -H 'Authorization: Bearer t'",
                   "GET / HTTP/1.1\r\nHost: h\r\n" OWN "Authorization: Bearer t\r\n\r\n");
    expect_request("curl h --oauth2-bearer t", "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n" OWN "\r\n");
    expect_request("curl h -H 'Accept:' -H 'User-Agent:' -H 'X-Empty;' -H 'Host: other'",
                   "GET / HTTP/1.1\r\nX-Empty: \r\nHost: other\r\n\r\n");
    expect_request("curl h -d '' -X PUT", "PUT / HTTP/1.1\r\nHost: h\r\n" OWN FORM "Content-Length: 0\r\n\r\n");
    expect_request("curl h -d abc -H 'Transfer-Encoding: chunked' -H 'Content-Length: 99'",
                   "POST / HTTP/1.1\r\nHost: h\r\n" OWN FORM "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    expect_request(
        "curl -F 'a=1' --form-string 'b=@x;y' h",
        "POST / HTTP/1.1\r\nHost: h\r\n" OWN
        "Content-Type: multipart/form-data; boundary=------------------------hapaxexplain\r\n"
        "Content-Length: 219\r\n\r\n"
        "--------------------------hapaxexplain\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n"
        "--------------------------hapaxexplain\r\nContent-Disposition: form-data; name=\"b\"\r\n\r\n@x;y\r\n"
        "--------------------------hapaxexplain--\r\n");
    expect_request("$ curl -g 'h/{a}[1]'", "GET /{a}[1] HTTP/1.1\r\nHost: h\r\n" OWN "\r\n");
}

static void files_are_read_as_curl_reads_them(void **state)
{
    (void)state;
    char path[] = "/tmp/hapax-curl-XXXXXX.txt";
    int file = mkstemps(path, 4);
    assert_true(file >= 0);
    assert_int_equal(write(file, "a\r\nb\n", 5), 5);
    assert_int_equal(close(file), 0);
    const char *name = strrchr(path, '/') + 1;
    hx_slice line = hx_arena_printf(&arena, "curl h -d @%s -H 'Content-Type: x/y'", path);
    expect_request(line.ptr, "POST / HTTP/1.1\r\nHost: h\r\n" OWN "Content-Type: x/y\r\nContent-Length: 2\r\n\r\nab");
    line = hx_arena_printf(&arena, "curl h --data-binary @%s", path);
    expect_request(line.ptr, "POST / HTTP/1.1\r\nHost: h\r\n" OWN FORM "Content-Length: 5\r\n\r\na\r\nb\n");
    line = hx_arena_printf(&arena, "curl h -T %s", path);
    expect_request(line.ptr, "PUT / HTTP/1.1\r\nHost: h\r\n" OWN "Content-Length: 5\r\n\r\na\r\nb\n");
    line = hx_arena_printf(&arena, "curl h -F 'f=@%s;filename=other.png;type=x/y' -F f=@%s", path, path);
    const char *error = NULL, *got = written(line.ptr, &error);
    assert_non_null(got);
    assert_non_null(strstr(got, "name=\"f\"; filename=\"other.png\"\r\nContent-Type: x/y\r\n\r\na\r\nb\n\r\n"));
    hx_slice second = hx_arena_printf(&arena,
                                      "name=\"f\"; filename=\"%s\"\r\nContent-Type: text/plain\r\n\r\na\r\nb\n\r\n",
                                      name);
    assert_non_null(strstr(got, second.ptr));
    (void)unlink(path);
}

static void expect_error(const char *line, const char *part)
{
    const char *error = NULL;
    if (written(line, &error)) fail_msg("%s: no error", line);
    if (!strstr(error, part)) fail_msg("%s: %s", line, error);
}

static void what_is_not_understood_is_named(void **state)
{
    (void)state;
    expect_error("curl", "empty");
    expect_error("curl -X POST", "Which URL");
    expect_error("curl h --frobnicate", "--frobnicate");
    expect_error("curl h -Q", "-Q");
    expect_error("curl h -sQ", "-Q");
    expect_error("curl h -H", "-H needs a value");
    expect_error("curl h --header", "--header needs a value");
    expect_error("curl h -H 'no colon'", "no colon");
    expect_error("curl h --digest -u a:b", "--digest");
    expect_error("curl h --aws-sigv4 aws:amz", "--aws-sigv4");
    expect_error("curl h -K file", "--config");
    expect_error("curl h --next k", "--next");
    expect_error("curl h k", "two URLs");
    expect_error("curl ftp://h/a", "Only http");
    expect_error("curl http:///a", "no host");
    expect_error("curl 'h/a b'", "space");
    expect_error("curl -G h -d 'a b'", "space");
    expect_error("curl 'h/{id}'", "pattern");
    expect_error("curl h -u me", "password");
    expect_error("curl h -b cookies.txt", "file of cookies");
    expect_error("curl h -d a -F b=c", "Only one of");
    expect_error("curl h -F b=c -T /dev/null", "Only one of");
    expect_error("curl h -F nothing", "-F needs name=content");
    expect_error("curl h -F 'a=b;what=c'", ";what=c");
    expect_error("curl h -d @/no/such/file", "/no/such/file can't be read");
    expect_error("curl h -H @file", "-H @FILE");
    expect_error("curl -I h -d a", "-I and a body");
    expect_error("curl ''", "URL is empty");
}

/* Whatever bytes come, there is a request or a sentence. */
static void any_line_ends_well(void **state)
{
    (void)state;
    static const char alphabet[] = "curl -XHdFub'\"\\$`@=;:/{}\n\tA0{[#&|";
    srandom(7);
    for (unsigned i = 0; i < 20000; i++) {
        char line[64];
        size_t len = (size_t)random() % (sizeof line - 1);
        for (size_t k = 0; k < len; k++) line[k] = alphabet[(size_t)random() % (sizeof alphabet - 1)];
        hx_arena scratch = {0};
        hx_slice *words, error;
        size_t count;
        if (hx_shell_split((hx_slice){line, len}, &scratch, &words, &count, &error)) {
            hx_curl curl;
            hx_buf out;
            hx_buf_init(&out, &scratch, HX_CURL_BODY_BYTES_MAX);
            hx_curl_init(&curl, &scratch);
            curl.stdin_used = true;
            bool ok = hx_curl_take_words(&curl, words, count) && hx_curl_write(&curl, &out);
            assert_int_equal(ok, curl.error.len == 0);
        } else {
            assert_true(error.len > 0);
        }
        hx_arena_free(&scratch);
    }
}

static int tear_down(void **state)
{
    (void)state;
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_split_as_a_shell_does),
        cmocka_unit_test(what_only_a_shell_can_do_is_named),
        cmocka_unit_test(a_line_becomes_the_request_that_curl_sends),
        cmocka_unit_test(files_are_read_as_curl_reads_them),
        cmocka_unit_test(what_is_not_understood_is_named),
        cmocka_unit_test(any_line_ends_well),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
