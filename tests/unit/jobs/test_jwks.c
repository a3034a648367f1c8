/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that take keys and want new ones while sources are opened, stopped and freed; for the sanitizers. What is
 * fetched, and when, is in test_jwks.py. */
#include "jobs/jwks.h"

#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define THREADS 3
#define GENERATIONS 20

typedef struct {
    hx_jwks *jwks;
    _Atomic bool end;
    _Atomic unsigned turns;
    unsigned sources;
} user;

static void *use_often(void *context)
{
    user *u = context;
    while (!atomic_load(&u->end)) {
        for (size_t i = 0; i < u->sources; i++) {
            hx_jwt_keys *keys = hx_jwks_keys(u->jwks, i);
            hx_jwks_want(u->jwks, i);
            hx_jwt_keys_free(&keys);
        }
        atomic_fetch_add(&u->turns, 1);
    }
    return NULL;
}

static void never_changed(void *context, size_t i)
{
    (void)i;
    atomic_store((_Atomic bool *)context, true);
}

static void write_secret(char path[32])
{
    (void)snprintf(path, 32, "/tmp/hapax-jwks-XXXXXX");
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, "0123456789abcdef0123456789abcdef\n", 33), 33);
    assert_int_equal(close(file), 0);
}

static void generations_come_and_go_under_use(void **state)
{
    (void)state;
    char path[32];
    hx_error_text error;
    write_secret(path);
    /* Nobody listens on port 1: each fetch fails at once. */
    const hx_jwt_source sources[] = {
        {.kind = HX_JWT_SECRET_FILE, .where = hx_slice_of(path)},
        {.kind = HX_JWT_JWKS_URL, .where = HX_LIT("http://127.0.0.1:1/a"), .refresh = HX_SECOND},
        {.kind = HX_JWT_JWKS_URL, .where = HX_LIT("http://127.0.0.1:1/b"), .refresh = HX_HOUR},
    };
    _Atomic bool changed = false;
    hx_jwks *current = NULL;
    hx_log_threshold(HX_LOG_ERROR);
    for (unsigned generation = 0; generation < GENERATIONS; generation++) {
        user users[THREADS] = {0};
        pthread_t threads[THREADS];
        hx_jwks *next = hx_jwks_open(sources, 3, current, generation % 2 * HX_MINUTE, error);
        if (!next) fail_msg("%s", error);
        for (size_t i = 0; i < THREADS; i++) {
            users[i].jwks = next;
            users[i].sources = 3;
            assert_int_equal(pthread_create(&threads[i], NULL, use_often, &users[i]), 0);
        }
        hx_jwks_start(next, never_changed, &changed);
        if (current) hx_jwks_stop(current);
        hx_jwks_free(&current);
        current = next;
        for (size_t i = 0; i < THREADS; i++)
            while (atomic_load(&users[i].turns) < 10) (void)usleep(100);
        hx_jwks_stop(current);
        hx_jwks_stop(current);
        for (size_t i = 0; i < THREADS; i++) atomic_store(&users[i].end, true);
        for (size_t i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    hx_jwt_keys *keys = hx_jwks_keys(current, 0);
    assert_non_null(keys);
    hx_jwks_free(&current);
    assert_true(hx_jwt_keys_have_secret(keys)); /* a share outlives where it came from */
    hx_jwt_keys_free(&keys);
    assert_false(atomic_load(&changed));
    assert_int_equal(unlink(path), 0);
}

static void files_need_no_thread_and_no_library(void **state)
{
    (void)state;
    char path[32];
    hx_error_text error;
    write_secret(path);
    const hx_jwt_source source = {.kind = HX_JWT_SECRET_FILE, .where = hx_slice_of(path)};
    hx_jwks *jwks = hx_jwks_open(&source, 1, NULL, 0, error);
    assert_non_null(jwks);
    assert_true(hx_jwks_are_tried(jwks));
    hx_jwks_start(jwks, never_changed, NULL);
    hx_jwks_want(jwks, 0);
    hx_jwks_want(jwks, 1000);
    hx_jwks_free(&jwks); /* there is nothing to stop */
    assert_null(jwks);
    jwks = hx_jwks_open(NULL, 0, NULL, HX_MINUTE, error);
    assert_non_null(jwks);
    hx_jwks_stop(jwks);
    hx_jwks_free(&jwks);
    assert_int_equal(unlink(path), 0);
}

static void note_tried(void *context)
{
    atomic_fetch_add((_Atomic unsigned *)context, 1);
}

/* A failed fetch counts: the caller waits for an attempt, not for keys. */
static void a_url_that_fails_was_tried(void **state)
{
    (void)state;
    hx_error_text error;
    const hx_jwt_source source = {.kind = HX_JWT_JWKS_URL, .where = HX_LIT("http://127.0.0.1:1/a")};
    _Atomic unsigned calls = 0;
    hx_log_threshold(HX_LOG_ERROR);
    hx_jwks *jwks = hx_jwks_open(&source, 1, NULL, 0, error);
    assert_non_null(jwks);
    hx_jwks_on_tried(jwks, note_tried, &calls);
    while (atomic_load(&calls) == 0) (void)usleep(100);
    assert_true(hx_jwks_are_tried(jwks));
    hx_jwks_want(jwks, 0);
    hx_jwks_stop(jwks);
    assert_int_equal(atomic_load(&calls), 1);
    hx_jwks_free(&jwks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_need_no_thread_and_no_library),
        cmocka_unit_test(a_url_that_fails_was_tried),
        cmocka_unit_test(generations_come_and_go_under_use),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    hx_arena_pool_drain();
    return failed;
}
