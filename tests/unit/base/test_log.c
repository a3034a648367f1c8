/* SPDX-License-Identifier: Apache-2.0 */
/* What a line looks like, whatever is in it. Standard error is a file meanwhile. */
#include "base/program/log_writer.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static FILE *file;
static int terminal;

static int redirect(void **state)
{
    (void)state;
    file = tmpfile();
    terminal = dup(STDERR_FILENO);
    hx_log_to_stderr();
    return file && terminal >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0 ? 0 : -1;
}

static int restore(void **state)
{
    (void)state;
    hx_log_readable(false);
    hx_log_threshold(HX_LOG_INFO);
    int restored = dup2(terminal, STDERR_FILENO);
    (void)close(terminal);
    (void)fclose(file);
    return restored >= 0 ? 0 : -1;
}

/* What is said of a failure is to be seen. */
#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        (void)dup2(terminal, STDERR_FILENO);                                                                           \
        fail_msg(__VA_ARGS__);                                                                                         \
    } while (0)

/* All that was logged since it was asked before, terminated. */
static const char *logged(void)
{
    static char text[32768];
    rewind(file);
    size_t len = fread(text, 1, sizeof text - 1, file);
    assert_in_range(len, 0, sizeof text - 2);
    text[len] = '\0';
    assert_int_equal(ftruncate(fileno(file), 0), 0);
    rewind(file);
    return text;
}

static void log_value(hx_slice value)
{
    hx_log_begin(HX_EVENT_request);
    hx_log_str("value", value);
    hx_log_end();
}

static void every_value_stays_valid_json(void **state)
{
    (void)state;
    static const struct {
        hx_slice value;
        const char *written;
    } rows[] = {
        {{"", 0}, ""},
        {{"plain ~", 7}, "plain ~"},
        {{"a\"b\\c", 5}, "a\\\"b\\\\c"},
        {{"\0\n\x1b[2J\x7f", 7}, "\\u0000\\u000a\\u001b[2J\\u007f"},
        {{"Zürich ☂ 𝄞", 16}, "Zürich ☂ 𝄞"},
        {{"\xc2\xa0\xdf\xbf\xe0\xa0\x80\xf4\x8f\xbf\xbf", 11}, "\xc2\xa0\xdf\xbf\xe0\xa0\x80\xf4\x8f\xbf\xbf"},
        {{"\xc2\x80\xc2\x9b"
          "2J",
          6},
         "\\u0080\\u009b2J"}, /* terminals obey U+009B as they do ESC [ */
        {{"\xe2\x80\xa7\xe2\x80\xa8\xe2\x80\xae\xe2\x80\xac\xe2\x80\xaf", 15},
         "\xe2\x80\xa7\\u2028\\u202e\\u202c\xe2\x80\xaf"},
        {{"\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", 12}, "\xe2\x81\xa5\\u2066\\u2069\xe2\x81\xaa"},
        {{"\xff\xc3(\xc0\xaf\xed\xa0\x80", 8}, "\\u00ff\\u00c3(\\u00c0\\u00af\\u00ed\\u00a0\\u0080"}, /* no UTF-8 */
        {{"ab\xc3", 3}, "ab\\u00c3"},
        {{"\xe2\x82", 2}, "\\u00e2\\u0082"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char expected[256];
        char *copy = malloc(rows[i].value.len + 1); /* of just its size, so that a sanitizer sees a step too far */
        assert_non_null(copy);
        memcpy(copy, rows[i].value.ptr, rows[i].value.len);
        copy = realloc(copy, rows[i].value.len > 0 ? rows[i].value.len : 1);
        assert_non_null(copy);
        log_value((hx_slice){copy, rows[i].value.len});
        free(copy);
        (void)snprintf(expected, sizeof expected, "\"level\":\"info\",\"event\":\"request\",\"value\":\"%s\"}\n",
                       rows[i].written);
        const char *line = logged();
        if (strncmp(line, "{\"time\":\"", 9) != 0 || !strstr(line, expected)) FAIL("%s lacks %s", line, expected);
    }
}

static void every_byte_is_escaped_at_every_place(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 256; c++) {
        for (size_t place = 0; place < 17; place++) {
            char value[] = "abcdefgh ~ijklmno", written[8], expected[64];
            value[place] = (char)c;
            bool is_coded = c < 0x20 || c >= 0x7f, is_quoted = c == '"' || c == '\\';
            (void)snprintf(written, sizeof written, is_coded ? "\\u%04x" : is_quoted ? "\\%c" : "%c", c);
            (void)snprintf(expected, sizeof expected, ":\"%.*s%s%s\"}\n", (int)place, value, written,
                           value + place + 1);
            log_value((hx_slice){value, sizeof value - 1});
            const char *line = logged();
            if (!strstr(line, expected)) FAIL("%s lacks %s", line, expected);
        }
    }
}

static void a_field_that_does_not_fit_is_left_out_whole(void **state)
{
    (void)state;
    static char large[9000];
    for (size_t i = 0; i < sizeof large; i++) large[i] = i % 2 == 0 ? '\xc3' : '\xa9'; /* é */
    hx_log_begin(HX_EVENT_request);
    hx_log_int("least", INT64_MIN);
    hx_log_int("none", 0);
    hx_log_int("before", -5);
    hx_log_str("large", (hx_slice){large, sizeof large});
    hx_log_text("behind", "x");
    hx_log_end();
    const char *line = logged();
    if (!strstr(line, "\"event\":\"request\",\"least\":-9223372036854775808,\"none\":0,\"before\":-5,\"behind\":\"x\","
                      "\"truncated\":1}\n"))
        FAIL("%s", line);
    for (size_t len = 8000; len < 8200; len++) { /* never half a character, and never more than a line has */
        log_value((hx_slice){large, len});
        line = logged();
        size_t bytes = strlen(line);
        assert_in_range(bytes, 1, 8192);
        bool is_whole = strstr(line, "\"}\n") != NULL, is_cut = strstr(line, "\"request\",\"truncated\":1}\n") != NULL;
        if (is_whole == is_cut) FAIL("%zu: %s", len, line);
    }
}

static void people_get_text_and_only_what_they_asked_for(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0, 0xab, 0xff};
    hx_log_threshold(HX_LOG_WARN);
    log_value(HX_LIT("x"));
    assert_string_equal(logged(), "");
    hx_log_threshold(HX_LOG_DEBUG);
    hx_log_readable(true);
    hx_log_begin(HX_EVENT_request);
    hx_log_text("one", "Zürich");
    hx_log_text("two", "a b");
    hx_log_text("none", "");
    hx_log_hex("hex", bytes, sizeof bytes);
    hx_log_end();
    const char *line = logged();
    assert_string_equal(strlen(line) > 12 ? line + 12 : line,
                        " info  request  one=Zürich  two=\"a b\"  none=\"\"  hex=00abff\n");
    hx_log(HX_EVENT_configuration_reloaded);
    line = logged();
    assert_string_equal(strlen(line) > 12 ? line + 12 : line, " info  configuration reloaded\n");
}

static void an_event_has_an_id_to_alert_on_and_a_message_to_read(void **state)
{
    (void)state;
    hx_log(HX_EVENT_credential_not_named);
    const char *line = logged();
    if (!strstr(line, "\"level\":\"warn\",\"event\":\"credential_not_named\",\"message\":\"a keyed request carries"))
        FAIL("%s", line);
    for (int i = 0; i < HX_EVENT_COUNT; i++) {
        const hx_log_event_row *row = hx_log_about((hx_log_event)i);
        if (strspn(row->id, "abcdefghijklmnopqrstuvwxyz_") != strlen(row->id)) FAIL("%s is not an id", row->id);
        size_t len = strlen(row->message);
        bool is_sentence = row->message[0] != ' ' && len > 0 && !strchr(".:; ", row->message[len - 1]);
        if (i != HX_EVENT_request && !is_sentence) FAIL("the message of %s: \"%s\"", row->id, row->message);
    }
}

static int stalled[2]; /* a pipe that nobody reads */

static int redirect_to_pipe(void **state)
{
    int failed = redirect(state);
    return failed == 0 && pipe(stalled) == 0 && dup2(stalled[1], STDERR_FILENO) >= 0 ? 0 : -1;
}

/* Reads into `room` until the text has come. */
static void read_until(const char *text, char *room, size_t most)
{
    size_t len = 0;
    while (len < most - 1) {
        ssize_t got = read(stalled[0], room + len, most - 1 - len);
        if (got <= 0) FAIL("the pipe ended");
        len += (size_t)got;
        room[len] = '\0';
        if (strstr(room + (len > 4096 ? len - 4096 : 0), text)) return;
    }
    FAIL("too much was written");
}

static void a_reader_that_stalls_holds_nobody_up_and_is_told_what_it_missed(void **state)
{
    (void)state;
    enum { LINES = 6000, ROOM = 4 * 1024 * 1024 };
    static char filler[1000];
    char *room = malloc(ROOM);
    assert_non_null(room);
    memset(filler, 'x', sizeof filler - 1);
    hx_log_start();
    for (int i = 0; i < LINES; i++) {
        hx_log_begin(HX_EVENT_request);
        hx_log_text("filler", filler);
        hx_log_int("number", i);
        hx_log_end();
    }
    hx_log(HX_EVENT_response_cut);
    if (hx_log_flush(1)) FAIL("nobody has read, but all is written");
    uint64_t dropped = hx_log_dropped();
    assert_in_range(dropped, LINES / 2, LINES);
    read_until("were dropped", room, ROOM);
    assert_non_null(strstr(room, "response_cut"));
    hx_log_stop(10000);
    uint64_t whole = 0;
    for (const char *at = room; (at = strstr(at, "\"event\":\"request\"")); at++) whole++;
    assert_int_equal(whole + dropped, LINES);
    hx_log(HX_EVENT_stopped);
    read_until("stopped", room, ROOM);
    free(room);
    (void)close(stalled[0]);
    (void)close(stalled[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_value_stays_valid_json, redirect, restore),
        cmocka_unit_test_setup_teardown(every_byte_is_escaped_at_every_place, redirect, restore),
        cmocka_unit_test_setup_teardown(a_field_that_does_not_fit_is_left_out_whole, redirect, restore),
        cmocka_unit_test_setup_teardown(people_get_text_and_only_what_they_asked_for, redirect, restore),
        cmocka_unit_test_setup_teardown(an_event_has_an_id_to_alert_on_and_a_message_to_read, redirect, restore),
        cmocka_unit_test_setup_teardown(a_reader_that_stalls_holds_nobody_up_and_is_told_what_it_missed,
                                        redirect_to_pipe, restore),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
