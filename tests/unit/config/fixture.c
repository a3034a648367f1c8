/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#define ERRORS_BYTES_MAX 65536u
#define ROUNDS 20000
#define REFUSED_MIN 1000
#define TAKEN_MIN 100

hx_config *fixture_load(const char *yaml)
{
    return fixture_load_with(yaml, NULL);
}

hx_config *fixture_load_with(const char *yaml, const hx_config_overrides *flags)
{
    hx_buf errors;
    hx_buf_init(&errors, NULL, ERRORS_BYTES_MAX);
    hx_config *config = hx_config_parse("f", hx_slice_of(yaml), flags, &errors);
    if (!config) fail_msg("for\n%s\ngot\n%.*s", yaml, HX_FMT(hx_buf_slice(&errors)));
    hx_buf_free(&errors);
    return config;
}

void fixture_assert_text(hx_slice text, const char *expected)
{
    if (!hx_slice_eq(text, hx_slice_of(expected))) fail_msg("\"%.*s\" is not \"%s\"", HX_FMT(text), expected);
}

void fixture_check(const fixture_row *rows, size_t count, bool refused)
{
    for (size_t i = 0; i < count; i++) {
        hx_buf errors;
        hx_buf_init(&errors, NULL, ERRORS_BYTES_MAX);
        hx_config *config = hx_config_parse("f", hx_slice_of(rows[i].yaml), NULL, &errors);
        hx_slice got = config ? config->notes : hx_buf_slice(&errors);
        if ((config == NULL) != refused || !hx_slice_eq(got, hx_slice_of(rows[i].said)))
            fail_msg("for\n%s\nexpected\n%s\ngot\n%.*s", rows[i].yaml, rows[i].said, HX_FMT(got));
        hx_config_free(&config);
        hx_buf_free(&errors);
    }
}

static uint32_t next(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

void fixture_break(const char *good, uint32_t seed)
{
    static const char odd[] = "\n\t :-?[]{},&*!|>'\"%@`#\\~<=./0aZ\r\x01\x80\xc3\xff";
    size_t whole = strlen(good);
    uint32_t random = seed;
    int refused = 0, taken = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t len = round % 4 == 0 ? next(&random) % whole + 1 : whole;
        char *text = malloc(len); /* of just its size, so that a sanitizer sees a step too far */
        assert_non_null(text);
        memcpy(text, good, len);
        for (int change = 0; change < 1 + round % 3; change++) {
            size_t at = next(&random) % len;
            text[at] = odd[next(&random) % (sizeof odd - 1)];
        }
        hx_buf errors;
        hx_buf_init(&errors, NULL, ERRORS_BYTES_MAX);
        hx_config *config = hx_config_parse("f", (hx_slice){text, len}, NULL, &errors);
        assert_int_equal(config == NULL, errors.len > 0);
        if (config && config->policies.count > 0) assert_non_null(config->policies.tree);
        refused += config == NULL;
        taken += config != NULL;
        hx_config_free(&config);
        hx_buf_free(&errors);
        free(text);
    }
    if (refused < REFUSED_MIN || taken < TAKEN_MIN) fail_msg("%d refused, %d taken", refused, taken);
}

int fixture_drain(void **state)
{
    (void)state;
    hx_arena_pool_drain();
    return 0;
}
