/* SPDX-License-Identifier: Apache-2.0 */
/* Contract §5 as tables, every status under every guarantee; and the rows of the source documents' tables that say what
 * is retried. A failure names its row. */
#include "core/operation/outcome.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define STATUSES 700u

enum { NO, YES, EITHER };

typedef struct {
    const char *row, *statuses; /* "200-299,301" */
    int retry_after, is_delete;
    const char *none, *atomic, *idempotent; /* the verdicts, as text() writes them */
} rule_row;

/* The first attempt, or all before it were provably not executed. */
static const rule_row first_table[] = {
    {"2xx, 301-303", "200-299,301-303", EITHER, EITHER, "completed", "completed", "completed"},
    {"4xx but for those below", "400,402,404-407,409-420,422-424,426-428,430-499", EITHER, EITHER, "failed", "failed",
     "failed"},
    {"5xx but for those below", "506-599", EITHER, EITHER, "failed", "failed", "failed repeat"},
    {"5xx that speak of the request, not of the moment", "501,505", EITHER, EITHER, "failed", "failed", "failed"},
    {"500, which atomic retries too", "500", EITHER, EITHER, "failed", "not_executed repeat", "failed repeat"},
    {"401, 403, 300, 304, 305, 307, 308", "401,403,300,304,305,307,308", EITHER, EITHER, "released", "released",
     "released"},
    {"redirects that nobody has defined", "306,309-399", EITHER, EITHER, "released", "released", "released"},
    {"408, at once", "408", EITHER, EITHER, "not_executed repeat at_once", "not_executed repeat at_once",
     "not_executed repeat at_once"},
    {"421, 425, 429", "421,425,429", EITHER, EITHER, "not_executed repeat", "not_executed repeat",
     "not_executed repeat"},
    {"503 with Retry-After", "503", YES, EITHER, "not_executed repeat", "not_executed repeat", "not_executed repeat"},
    {"503 without Retry-After", "503", NO, EITHER, "unknown", "not_executed repeat", "unknown repeat"},
    {"502, 504", "502,504", EITHER, EITHER, "unknown", "unknown", "unknown repeat"},
    {"no final answer", "0-199,600-699", EITHER, EITHER, "unknown", "unknown", "unknown repeat"},
};

/* An attempt before it may have been executed: nothing frees the key any more. */
static const rule_row later_table[] = {
    {"2xx, 301-303", "200-299,301-303", EITHER, EITHER, "completed", "completed", "completed"},
    {"409 and 423 are retried, then unknown", "409,423", EITHER, EITHER, "unknown repeat", "unknown repeat",
     "unknown repeat"},
    {"404 on DELETE goes to the probe", "404", EITHER, YES, "unknown probe", "unknown probe", "unknown probe"},
    {"404 on anything else", "404", EITHER, NO, "failed", "failed", "failed"},
    {"412 goes to the probe", "412", EITHER, EITHER, "unknown probe", "unknown probe", "unknown probe"},
    {"other 4xx", "400,402,405-407,410,411,413-420,422,424,426-428,430-499", EITHER, EITHER, "failed", "failed",
     "failed"},
    {"other 5xx", "506-599", EITHER, EITHER, "failed", "failed", "failed repeat"},
    {"501, 505", "501,505", EITHER, EITHER, "failed", "failed", "failed"},
    {"500", "500", EITHER, EITHER, "failed", "unknown repeat", "failed repeat"},
    {"401, 403 and redirects", "401,403,300,304-399", EITHER, EITHER, "unknown", "unknown", "unknown"},
    {"408", "408", EITHER, EITHER, "unknown repeat at_once", "unknown repeat at_once", "unknown repeat at_once"},
    {"421, 425, 429", "421,425,429", EITHER, EITHER, "unknown repeat", "unknown repeat", "unknown repeat"},
    {"503 with Retry-After", "503", YES, EITHER, "unknown repeat", "unknown repeat", "unknown repeat"},
    {"503 without Retry-After", "503", NO, EITHER, "unknown", "unknown repeat", "unknown repeat"},
    {"502, 504", "502,504", EITHER, EITHER, "unknown", "unknown", "unknown repeat"},
    {"no final answer", "0-199,600-699", EITHER, EITHER, "unknown", "unknown", "unknown repeat"},
};

static const hx_guarantee guarantees[] = {HX_GUARANTEE_NONE, HX_GUARANTEE_ATOMIC, HX_GUARANTEE_IDEMPOTENT};

static const char *text(hx_verdict verdict, char room[64])
{
    (void)snprintf(room, 64, "%s%s%s%s", hx_outcome_name(verdict.outcome), verdict.repeat ? " repeat" : "",
                   verdict.at_once ? " at_once" : "", verdict.probe_tells ? " probe" : "");
    return room;
}

static void expect(const char *row, unsigned status, hx_verdict verdict, const char *expected)
{
    char room[64];
    if (strcmp(text(verdict, room), expected) != 0) fail_msg("%s: %u is %s, not %s", row, status, room, expected);
}

static bool lists(const char *statuses, unsigned status)
{
    hx_slice rest = hx_slice_of(statuses), part;
    while (hx_slice_next(&rest, ',', &part)) {
        uint64_t low = 0, high = 0;
        size_t dash = hx_slice_find(part, '-');
        assert_true(hx_slice_to_u64(hx_slice_first(part, dash), &low));
        high = low;
        if (dash != SIZE_MAX) assert_true(hx_slice_to_u64(hx_slice_from(part, dash + 1), &high));
        if (status >= low && status <= high) return true;
    }
    return false;
}

static bool fits(int wanted, bool is)
{
    return wanted == EITHER || (wanted == YES) == is;
}

static const char *verdict_of(const rule_row *row, hx_guarantee guarantee)
{
    return guarantee == HX_GUARANTEE_NONE     ? row->none
           : guarantee == HX_GUARANTEE_ATOMIC ? row->atomic
                                              : row->idempotent;
}

/* Every status meets one row, and that row's verdict. */
static void check_table(const rule_row *table, size_t count, const hx_outcome_input *like)
{
    for (unsigned status = 0; status < STATUSES; status++) {
        hx_outcome_input answer = *like;
        const rule_row *row = NULL;
        answer.status = status;
        for (size_t i = 0; i < count; i++) {
            if (!lists(table[i].statuses, status) || !fits(table[i].retry_after, answer.has_retry_after) ||
                !fits(table[i].is_delete, answer.is_delete))
                continue;
            if (row) fail_msg("%u stands in two rows: %s, %s", status, row->row, table[i].row);
            row = &table[i];
        }
        if (!row) fail_msg("%u stands in no row", status);
        expect(row->row, status, hx_outcome_of_answer(&answer), verdict_of(row, answer.guarantee));
    }
}

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static void every_status_means_what_the_table_says(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 12; bits++) {
        hx_outcome_input like = {.has_retry_after = bits & 1, .is_delete = bits & 2, .guarantee = guarantees[bits / 4]};
        check_table(first_table, COUNT(first_table), &like);
    }
}

static void after_silence_nothing_frees_the_key_and_conflicts_are_no_outcomes(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 12; bits++) {
        hx_outcome_input like = {.has_retry_after = bits & 1,
                                 .is_delete = bits & 2,
                                 .guarantee = guarantees[bits / 4],
                                 .after_silence = true};
        check_table(later_table, COUNT(later_table), &like);
    }
}

static void silence_is_unknown_once_a_byte_was_sent(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(guarantees); i++) {
        hx_guarantee guarantee = guarantees[i];
        bool again = guarantee == HX_GUARANTEE_IDEMPOTENT;
        expect("connect refused, DNS, TLS", 0, hx_outcome_of_silence(false, false, guarantee), "not_executed repeat");
        expect("the same after silence", 0, hx_outcome_of_silence(false, true, guarantee), "unknown repeat");
        expect("a time-out, a reset or a broken answer", 0, hx_outcome_of_silence(true, false, guarantee),
               again ? "unknown repeat" : "unknown");
        expect("the same after silence", 0, hx_outcome_of_silence(true, true, guarantee),
               again ? "unknown repeat" : "unknown");
    }
}

static hx_outcome_word word_of(const char *name)
{
    hx_outcome_word word = HX_WORD_NONE;
    assert_true(hx_outcome_word_parse(hx_slice_of(name), &word));
    return word;
}

static void only_three_words_are_known(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",       "Release",      "STORE",          "store ",    " store", "stor",
                                        "stored", "not_executed", "store, unknown", "\"store\"", "none"};
    assert_int_equal(word_of("store"), HX_WORD_STORE);
    assert_int_equal(word_of("release"), HX_WORD_RELEASE);
    assert_int_equal(word_of("unknown"), HX_WORD_UNKNOWN);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        hx_outcome_word word = HX_WORD_STORE;
        if (hx_outcome_word_parse(hx_slice_of(wrong[i]), &word)) fail_msg("\"%s\" is taken", wrong[i]);
        assert_int_equal(word, HX_WORD_STORE);
    }
}

/* Hapax-Outcome, under every guarantee, after silence or not. */
static void the_application_may_overrule_but_not_undo_a_success(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 12; bits++)
        for (unsigned status = 0; status < STATUSES; status++) {
            hx_outcome_input answer = {.status = status,
                                       .guarantee = guarantees[bits / 4],
                                       .after_silence = bits & 1,
                                       .is_delete = bits & 2};
            hx_verdict table = hx_outcome_of_answer(&answer);
            char room[64];
            bool is_final = status >= 200 && status < 600;
            bool again = answer.guarantee == HX_GUARANTEE_IDEMPOTENT;
            const char *otherwise = text(table, room);
            answer.word = HX_WORD_STORE;
            expect("Hapax-Outcome: store", status, hx_outcome_of_answer(&answer),
                   !is_final      ? otherwise
                   : status < 400 ? "completed"
                                  : "failed");
            answer.word = HX_WORD_RELEASE;
            expect("Hapax-Outcome: release", status, hx_outcome_of_answer(&answer),
                   is_final && status >= 300 ? "released" : otherwise);
            answer.word = HX_WORD_UNKNOWN;
            expect("Hapax-Outcome: unknown", status, hx_outcome_of_answer(&answer),
                   !is_final ? otherwise
                   : again   ? "unknown repeat"
                             : "unknown");
        }
}

static void a_route_may_overrule_the_table(void **state)
{
    (void)state;
    static const hx_outcome_rule rules[] = {
        {302, HX_WORD_RELEASE},      {500, HX_WORD_STORE},        {429, HX_WORD_STORE},   {418, HX_WORD_UNKNOWN},
        {503, HX_WORD_NOT_EXECUTED}, {408, HX_WORD_NOT_EXECUTED}, {200, HX_WORD_RELEASE}, {202, HX_WORD_UNKNOWN},
        {204, HX_WORD_NOT_EXECUTED}, {409, HX_WORD_STORE},        {101, HX_WORD_STORE},
    };
    static const struct {
        unsigned status;
        const char *first, *after_silence;
    } cases[] = {
        {302, "released", "unknown"},
        {500, "failed", "failed"},
        {429, "failed", "failed"},
        {418, "unknown", "unknown"},
        {503, "not_executed repeat", "unknown repeat"},
        {408, "not_executed repeat at_once", "unknown repeat at_once"},
        {200, "completed", "completed"}, /* it happened */
        {204, "completed", "completed"},
        {202, "unknown", "unknown"},
        {409, "failed", "failed"}, /* in so many words: this 409 is an outcome, whatever was before */
        {423, "failed", "unknown repeat"},
        {502, "unknown", "unknown"},
        {101, "unknown", "unknown"}, /* no answer at all */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        hx_outcome_input answer = {.status = cases[i].status, .rules = rules, .rule_count = COUNT(rules)};
        expect("outcome", cases[i].status, hx_outcome_of_answer(&answer), cases[i].first);
        answer.after_silence = true;
        expect("outcome, after silence", cases[i].status, hx_outcome_of_answer(&answer), cases[i].after_silence);
    }
    hx_outcome_input told = {.status = 500, .word = HX_WORD_RELEASE, .rules = rules, .rule_count = COUNT(rules)};
    expect("the answer itself knows better than the route", 500, hx_outcome_of_answer(&told), "released");
    hx_outcome_input again = {.status = 418,
                              .guarantee = HX_GUARANTEE_IDEMPOTENT,
                              .rules = rules,
                              .rule_count = COUNT(rules)};
    expect("unknown is sent again", 418, hx_outcome_of_answer(&again), "unknown repeat");
}

static void on_a_laptop_server_errors_free_the_key(void **state)
{
    (void)state;
    for (unsigned status = 0; status < STATUSES; status++) {
        hx_outcome_input answer = {.status = status};
        hx_verdict usual = hx_outcome_of_answer(&answer);
        char room[64];
        const char *expected = text(usual, room);
        answer.releases_5xx = true;
        bool is_freed = status >= 500 && status < 600;
        expect("--dev", status, hx_outcome_of_answer(&answer), is_freed ? "released" : expected);
        answer.after_silence = true;
        if (is_freed) expect("--dev, after silence", status, hx_outcome_of_answer(&answer), "unknown");
    }
}

/* Statuses; 0 stands for a time-out or reset after bytes were sent, 1 for a connection that couldn't be made. */
typedef struct {
    const char *row;
    unsigned status;
    bool retried;           /* where the application deduplicates */
    bool retried_elsewhere; /* with guarantee none, where nothing is sent twice that may have happened */
} document_row;

static const document_row documents[] = {
    {"000 when to retry: 429 is retryable", 429, true, true},
    {"000 when to retry: 5xx is retryable (500)", 500, true, false},
    {"000 when to retry: 5xx is retryable (502)", 502, true, false},
    {"000 when to retry: 5xx is retryable (503)", 503, true, false},
    {"000 when to retry: 5xx is retryable (507)", 507, true, false},
    {"000 when to retry: network timeouts and connection resets are retryable", 0, true, false},
    {"000 when to retry: 4xx other than 429 are not: validation", 422, false, false},
    {"000 when to retry: 4xx other than 429 are not: auth", 401, false, false},
    {"000 when to retry: 4xx other than 429 are not: policy", 403, false, false},
    {"000 error taxonomy: VALIDATION", 400, false, false},
    {"000 error taxonomy: AUTH", 401, false, false},
    {"000 error taxonomy: RATE_LIMIT.exceeded", 429, true, true},
    {"000 error taxonomy: DEPENDENCY.timeout (504)", 504, true, false},
    {"000 error taxonomy: DEPENDENCY.timeout (time-out)", 0, true, false},
    {"000 error taxonomy: DEPENDENCY.unavailable", 503, true, false},
    {"000 error taxonomy: PROVIDER.duplicate", 409, false, false},
    {"001 when to retry: 2xx Success", 200, false, false},
    {"001 when to retry: 4xx Client Error", 422, false, false},
    {"001 when to retry: 400 Bad Request", 400, false, false},
    {"001 when to retry: 401/403 Auth Error (401)", 401, false, false},
    {"001 when to retry: 401/403 Auth Error (403)", 403, false, false},
    {"001 when to retry: 404 Not Found", 404, false, false},
    {"001 when to retry: 409 Conflict (nothing was sent before)", 409, false, false},
    {"001 when to retry: 429 Rate Limited", 429, true, true},
    {"001 when to retry: 5xx Server Error", 500, true, false},
    {"001 when to retry: Timeout", 0, true, false},
    {"001 when to retry: Connection Error", 1, true, true},
    {"003 INV-5: only transient errors (5xx)", 502, true, false},
    {"003 INV-5: only transient errors (network)", 1, true, true},
    {"003 INV-5: permanent errors (4xx, validation) not retried", 422, false, false},
    {"003 INV-5: permanent errors not retried (501)", 501, false, false},
    {"004 retryable errors: 408 Request Timeout", 408, true, true},
    {"004 retryable errors: 429 Rate Limited", 429, true, true},
    {"004 retryable errors: 500 Internal Error", 500, true, false},
    {"004 retryable errors: 502 Bad Gateway", 502, true, false},
    {"004 retryable errors: 503 Service Unavailable", 503, true, false},
    {"004 retryable errors: 504 Gateway Timeout", 504, true, false},
    {"004 retryable errors: 400 Bad Request", 400, false, false},
    {"004 retryable errors: 401 Unauthorized", 401, false, false},
    {"004 retryable errors: 403 Forbidden", 403, false, false},
    {"004 retryable errors: 404 Not Found", 404, false, false},
    {"004 retryable errors: 409 Conflict", 409, false, false},
};

static bool is_repeated(unsigned status, hx_guarantee guarantee, bool retry_after)
{
    if (status <= 1) return hx_outcome_of_silence(status == 0, false, guarantee).repeat;
    hx_outcome_input answer = {.status = status, .guarantee = guarantee, .has_retry_after = retry_after};
    return hx_outcome_of_answer(&answer).repeat;
}

static void the_documents_rows_hold_where_repeating_is_safe_and_no_further(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(documents); i++) {
        const document_row *row = &documents[i];
        if (is_repeated(row->status, HX_GUARANTEE_IDEMPOTENT, false) != row->retried) fail_msg("%s", row->row);
        if (is_repeated(row->status, HX_GUARANTEE_NONE, false) != row->retried_elsewhere)
            fail_msg("%s, with guarantee none", row->row);
    }
    assert_true(is_repeated(503, HX_GUARANTEE_NONE, true)); /* 004: 503, Honor Retry-After */
    hx_outcome_input at_once = {.status = 408};
    assert_true(hx_outcome_of_answer(&at_once).at_once); /* 004: 408, Immediate retry */
    /* 001, always: treat timeout as "unknown", not "failed" */
    assert_int_equal(hx_outcome_of_silence(true, false, HX_GUARANTEE_NONE).outcome, HX_OUTCOME_UNKNOWN);
    /* 001, method safety: on DELETE a 404 on subsequent calls is success, so never a failure of its own */
    hx_outcome_input gone = {.status = 404, .is_delete = true, .after_silence = true};
    assert_int_equal(hx_outcome_of_answer(&gone).outcome, HX_OUTCOME_UNKNOWN);
    /* 002, mistake 3: failed operations are stored, and the same error is returned on a retry */
    hx_outcome_input refused = {.status = 422};
    assert_int_equal(hx_outcome_of_answer(&refused).outcome, HX_OUTCOME_FAILED);
}

/* Whatever is said and whatever came before: what may have happened is sent again only where the application declared
 * that safe, or where this attempt was no execution of its own. */
static void what_may_have_happened_is_never_repeated_unasked(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 32; bits++)
        for (unsigned status = 0; status < STATUSES; status++) {
            hx_outcome_input answer = {.status = status,
                                       .has_retry_after = bits & 1,
                                       .is_delete = bits & 2,
                                       .releases_5xx = bits & 4,
                                       .guarantee = bits & 8 ? HX_GUARANTEE_ATOMIC : HX_GUARANTEE_NONE,
                                       .word = bits & 16 ? HX_WORD_UNKNOWN : HX_WORD_NONE};
            hx_verdict verdict = hx_outcome_of_answer(&answer);
            if (verdict.repeat && verdict.outcome != HX_OUTCOME_NOT_EXECUTED)
                fail_msg("%u is repeated, though it may have happened", status);
            answer.after_silence = true;
            hx_outcome later = hx_outcome_of_answer(&answer).outcome;
            if (later == HX_OUTCOME_RELEASED || later == HX_OUTCOME_NOT_EXECUTED)
                fail_msg("%u frees the key, though an earlier attempt may have happened", status);
        }
}

/* The mark tells what success is; an error answer means what it always does; silence is followed by a new epoch. */
static void transactional_is_none_but_for_the_unknown(void **state)
{
    (void)state;
    for (unsigned status = 0; status < STATUSES; status++) {
        for (int retry_after = 0; retry_after < 2; retry_after++) {
            hx_outcome_input answer = {.status = status, .has_retry_after = retry_after != 0};
            hx_verdict none = hx_outcome_of_answer(&answer);
            answer.guarantee = HX_GUARANTEE_TRANSACTIONAL;
            hx_verdict verdict = hx_outcome_of_answer(&answer);
            bool repeats = none.repeat || none.outcome == HX_OUTCOME_UNKNOWN;
            if (verdict.outcome != none.outcome || verdict.repeat != repeats || verdict.probe_tells != none.probe_tells)
                fail_msg("%u is %s%s", status, hx_outcome_name(verdict.outcome), verdict.repeat ? ", repeated" : "");
        }
    }
    hx_verdict sent = hx_outcome_of_silence(true, false, HX_GUARANTEE_TRANSACTIONAL);
    hx_verdict unsent = hx_outcome_of_silence(false, false, HX_GUARANTEE_TRANSACTIONAL);
    assert_int_equal(sent.outcome, HX_OUTCOME_UNKNOWN);
    assert_true(sent.repeat);
    assert_int_equal(unsent.outcome, HX_OUTCOME_NOT_EXECUTED);
    assert_true(unsent.repeat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transactional_is_none_but_for_the_unknown),
        cmocka_unit_test(every_status_means_what_the_table_says),
        cmocka_unit_test(after_silence_nothing_frees_the_key_and_conflicts_are_no_outcomes),
        cmocka_unit_test(silence_is_unknown_once_a_byte_was_sent),
        cmocka_unit_test(only_three_words_are_known),
        cmocka_unit_test(the_application_may_overrule_but_not_undo_a_success),
        cmocka_unit_test(a_route_may_overrule_the_table),
        cmocka_unit_test(on_a_laptop_server_errors_free_the_key),
        cmocka_unit_test(the_documents_rows_hold_where_repeating_is_safe_and_no_further),
        cmocka_unit_test(what_may_have_happened_is_never_repeated_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
