/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of `hapax audit export --csv` are those of the playbook, byte for byte. */
#include "cmd/audit/tables.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <cmocka.h>

static hx_buf out;

static int begin(void **state)
{
    (void)state;
    hx_buf_init(&out, NULL, 1 << 16);
    return 0;
}

static int end(void **state)
{
    (void)state;
    hx_buf_free(&out);
    return 0;
}

static void is_golden(const char *name)
{
    char path[512], text[1024];
    (void)snprintf(path, sizeof path, "%s/%s", getenv("HAPAX_GOLDEN"), name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t len = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[len] = '\0';
    hx_buf_put(&out, (hx_slice){"", 1});
    assert_string_equal(out.data, text);
}

static void attempt(unsigned number, hx_ms delay, hx_state state, unsigned code, const char *reason)
{
    static hx_ms ended_at, begun_at;
    char notes[HX_RECORD_TEXT_MAX + 1];
    hx_export_attempt row;
    hx_record record = {.state = state,
                        .from_state = HX_PROCESSING,
                        .attempt = (uint16_t)number,
                        .answer = {.status = (uint16_t)code},
                        .reason = hx_slice_of(reason)};
    begun_at = (ended_at > 0 ? ended_at : 1000) + delay;
    assert_true(hx_export_attempt_of(&record, ended_at, begun_at, notes, &row));
    ended_at = begun_at + 60000;
    hx_export_put_attempt(&out, &row);
}

static void attempts_are_the_playbooks(void **state)
{
    (void)state;
    hx_export_attempt row;
    hx_record claim = {.state = HX_PROCESSING, .attempt = 1};
    hx_buf_puts(&out, HX_EXPORT_ATTEMPTS);
    assert_false(hx_export_attempt_of(&claim, 0, 0, NULL, &row));
    attempt(1, 0, HX_UNKNOWN, 0, "initial timeout");
    attempt(2, 137, HX_FAILED, 502, "proxy error");
    attempt(3, 281, HX_COMPLETED, 201, "");
    is_golden("attempts.csv");
}

static void outcomes_are_the_playbooks(void **state)
{
    (void)state;
    char digits[4 * sizeof(hx_digest)];
    hx_export_outcome row;
    hx_record record = {.state = HX_COMPLETED,
                        .from_state = HX_PROCESSING,
                        .answer = {.status = 201},
                        .result = HX_LIT("rf_123")};
    hx_buf_puts(&out, HX_EXPORT_OUTCOMES);
    assert_true(hx_export_outcome_of(&record, digits, &row));
    assert_true(row.key.len == 64 && row.payload_hash.len == 64);
    row.key = HX_LIT("k1");
    row.payload_hash = HX_LIT("abc");
    hx_export_put_outcome(&out, &row);
    row.notes = HX_LIT("replayed");
    hx_export_put_outcome(&out, &row);
    row = (hx_export_outcome){HX_LIT("k1"), HX_LIT("xyz"), HX_LIT("conflict"),
                              409,          HX_EMPTY,      HX_LIT("payload mismatch")};
    hx_export_put_outcome(&out, &row);
    is_golden("outcomes.csv");
}

static void events_are_the_playbooks(void **state)
{
    (void)state;
    hx_export_event event = {HX_LIT("ev_001"), HX_LIT("payments"), HX_LIT("2025-09-15T12:00:00Z"),
                             HX_LIT("2025-09-15T12:00:03Z"), HX_LIT("ok")};
    hx_buf_puts(&out, HX_EXPORT_INBOX);
    hx_export_put_event(&out, &event);
    event.first_seen = event.processed = HX_LIT("2025-09-15T12:00:05Z");
    event.result = HX_LIT("replayed");
    hx_export_put_event(&out, &event);
    is_golden("inbox.csv");
}

static void fields_with_commas_quotes_and_lines_are_quoted(void **state)
{
    (void)state;
    hx_export_event event = {HX_LIT("a,b"), HX_LIT("say \"so\""), HX_LIT("two\nlines"), HX_EMPTY, HX_LIT("ok")};
    hx_export_put_event(&out, &event);
    hx_buf_put(&out, (hx_slice){"", 1});
    assert_string_equal(out.data, "\"a,b\",\"say \"\"so\"\"\",\"two\nlines\",,ok\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(attempts_are_the_playbooks, begin, end),
        cmocka_unit_test_setup_teardown(outcomes_are_the_playbooks, begin, end),
        cmocka_unit_test_setup_teardown(events_are_the_playbooks, begin, end),
        cmocka_unit_test_setup_teardown(fields_with_commas_quotes_and_lines_are_quoted, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
