/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets of sources come from files and the environment; what can't be used is named, and never shown. */
#include "events/inbox/source_secrets.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    char path[64];
    hx_arena arena;
    hx_source source;
    hx_error_text error;
} world;

static int begin(void **state)
{
    static world w;
    w = (world){.path = "/tmp/hapax_secret_XXXXXX"};
    int file = mkstemp(w.path);
    if (file < 0) return -1;
    (void)close(file);
    w.source = (hx_source){.name = HX_LIT("hooks"), .scheme = *hx_webhook_scheme_named(HX_LIT("standard"))};
    *state = &w;
    return 0;
}

static int end(void **state)
{
    world *w = *state;
    hx_arena_free(&w->arena);
    hx_arena_pool_drain();
    return unlink(w->path);
}

static void write_secret(const world *w, const char *text)
{
    FILE *file = fopen(w->path, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void place(world *w, const char *name, bool is_variable)
{
    w->source.places[w->source.place_count++] = (hx_webhook_secret_place){hx_slice_of(name), is_variable};
}

static void secrets_of_files_and_variables_are_read(void **state)
{
    world *w = *state;
    write_secret(w, "whsec_Zmlyc3Qgc2VjcmV0\n");
    assert_int_equal(setenv("HAPAX_TEST_SECRET", "c2Vjb25k", 1), 0);
    place(w, w->path, false);
    place(w, "HAPAX_TEST_SECRET", true);
    if (!hx_source_open(&w->source, &w->arena, w->error)) fail_msg("%s", w->error);
    assert_int_equal(w->source.secret_count, 2);
    assert_true(hx_slice_eq(w->source.secrets[0].key, HX_LIT("first secret")));
    assert_true(hx_slice_eq(w->source.secrets[1].key, HX_LIT("second")));
}

static void a_source_without_secrets_has_none_to_read(void **state)
{
    world *w = *state;
    assert_true(hx_source_open(&w->source, &w->arena, w->error));
    assert_int_equal(w->source.secret_count, 0);
}

/* A source with one wrong secret verifies nothing yet. */
static void assert_refused(world *w, const char *expected)
{
    assert_false(hx_source_open(&w->source, &w->arena, w->error));
    assert_int_equal(w->source.secret_count, 0);
    assert_string_equal(w->error, expected);
}

static void what_can_not_be_used_is_named_and_not_shown(void **state)
{
    world *w = *state;
    hx_error_text expected;
    place(w, "/no/such", false);
    assert_refused(w, "source hooks: /no/such can't be read: No such file or directory.");

    w->source.place_count = 0;
    place(w, "HAPAX_TEST_ABSENT", true);
    assert_refused(w, "source hooks: The environment has no variable HAPAX_TEST_ABSENT.");

    w->source.place_count = 0;
    place(w, "whsec_c2VjcmV0", true);
    assert_refused(w, "source hooks: The environment has no such variable. Give the variable's name, not the secret.");

    w->source.place_count = 0;
    place(w, w->path, false);
    write_secret(w, " whsec_c2VjcmV0");
    (void)
        snprintf(expected, sizeof expected,
                 "source hooks: %s: The secret is not base64, with or without whsec_, whpk_ or whsk_ before it. There "
                 "is white space around it.",
                 w->path);
    assert_refused(w, expected);

    write_secret(w, "sk_live_abc");
    (void)snprintf(expected, sizeof expected, "source hooks: %s: The secret's prefix is that of another kind of key.",
                   w->path);
    assert_refused(w, expected);

    write_secret(w, "");
    (void)snprintf(expected, sizeof expected, "source hooks: %s: The secret is empty.", w->path);
    assert_refused(w, expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(secrets_of_files_and_variables_are_read, begin, end),
        cmocka_unit_test_setup_teardown(a_source_without_secrets_has_none_to_read, begin, end),
        cmocka_unit_test_setup_teardown(what_can_not_be_used_is_named_and_not_shown, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
