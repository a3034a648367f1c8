/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/access_log.h"

#include "base/log.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static char logged[4096];

static void keep(const char *line, size_t len, hx_log_level level)
{
    assert_int_equal(level, HX_LOG_INFO);
    (void)snprintf(logged, sizeof logged, "%.*s", (int)len, line);
}

/* The line from its event on: the time before it is another one each time. */
static void expect(const hx_summary *summary, const char *line)
{
    hx_log_to(keep);
    hx_access_log_line(summary);
    const char *event = strstr(logged, "\"event\":");
    assert_non_null(event);
    assert_string_equal(event, line);
}

static void what_a_request_does_not_have_is_left_out(void **state)
{
    (void)state;
    expect(&(hx_summary){.status = 400,
                         .error_code = "VALIDATION.request_malformed",
                         .error_detail = "no such method",
                         .peer = HX_LIT("192.0.2.7"),
                         .correlation = HX_LIT("c1")},
           "\"event\":\"request\",\"status\":400,\"error_code\":\"VALIDATION.request_malformed\",\"error\":\"no such "
           "method\",\"peer\":\"192.0.2.7\",\"correlation_id\":\"c1\"}\n");
}

static void a_keyed_request_has_its_operation_and_the_steps_that_took_time(void **state)
{
    (void)state;
    static const char *const names[] = {"admit_ms", "claim_ms", "forward_ms"};
    static const uint32_t spent[] = {0, 2, 30};
    static const hx_op op = {.bytes = {0xab}};
    static const hx_record record = {.epoch = 7, .attempt = 2};
    expect(&(hx_summary){.method = HX_LIT("POST"),
                         .path = HX_LIT("/refunds"),
                         .status = 201,
                         .is_timed = true,
                         .duration = 32,
                         .step_ms = spent,
                         .step_names = names,
                         .step_count = 3,
                         .route = HX_LIT("refunds"),
                         .op = &op,
                         .key = {.bytes = {1}},
                         .principal = {.bytes = {2}},
                         .result = "stored",
                         .record = &record,
                         .result_id = HX_LIT("rf_17"),
                         .correlation = HX_LIT("c2")},
           "\"event\":\"request\",\"method\":\"POST\",\"path\":\"/refunds\",\"status\":201,\"duration_ms\":32,"
           "\"claim_ms\":2,\"forward_ms\":30,\"operation_type\":\"refunds\","
           "\"operation\":\"ab000000000000000000000000000000\",\"idempotency_key\":\"0100000000000000\","
           "\"principal\":\"0200000000000000\",\"result\":\"stored\",\"epoch\":7,\"attempt\":2,\"result_id\":\"rf_17\","
           "\"correlation_id\":\"c2\"}\n");
}

static void a_failed_exchange_is_named_with_its_upstream(void **state)
{
    (void)state;
    expect(
        &(hx_summary){.status = 502,
                      .error_code = "DEPENDENCY.unavailable",
                      .failure = {HX_LIT("http://127.0.0.1:1"), "no connection could be made", NULL},
                      .shadow = "would-refuse",
                      .shadow_error_code = "VALIDATION.idempotency_key_missing",
                      .correlation = HX_LIT("c3")},
        "\"event\":\"request\",\"status\":502,\"shadow\":\"would-refuse\","
        "\"shadow_error_code\":\"VALIDATION.idempotency_key_missing\",\"error_code\":\"DEPENDENCY.unavailable\","
        "\"upstream\":\"http://127.0.0.1:1\",\"error\":\"no connection could be made\",\"correlation_id\":\"c3\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_request_does_not_have_is_left_out),
        cmocka_unit_test(a_keyed_request_has_its_operation_and_the_steps_that_took_time),
        cmocka_unit_test(a_failed_exchange_is_named_with_its_upstream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
