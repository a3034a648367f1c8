/* SPDX-License-Identifier: Apache-2.0 */
/* Plays the daemon for test_jwks.py: each line on standard input is a call, each line on standard output its answer, or
 * `changed N` from the fetching thread.
 *
 *     open WAIT SOURCE...   `ok`, or `error` and why; a SOURCE is key=, secret=, jwks= or url=, and its place; behind a
 *                           URL ` @MS` its refresh. One that is open already becomes the one before, and is stopped.
 *     start   keys N   verify N TOKEN   want N   stop   free */
#include "base/check.h"
#include "base/program/process.h"
#include "jobs/jwks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static hx_jwks *current;

static void say(const char *word, size_t number)
{
    (void)printf("%s %zu\n", word, number);
    (void)fflush(stdout);
}

static void keys_changed(void *context, size_t i)
{
    HX_CHECK(context == &current);
    say("changed", i);
}

static size_t read_sources(hx_slice rest, hx_jwt_source sources[HX_JWT_SOURCES_MAX])
{
    static const char *const kinds[] = {"key", "secret", "jwks", "url"};
    size_t count = 0;
    hx_slice word;
    while (hx_slice_next(&rest, ' ', &word)) {
        if (word.ptr[0] == '@') {
            sources[count - 1].refresh = strtoll(word.ptr + 1, NULL, 10);
            continue;
        }
        size_t equals = hx_slice_find(word, '=');
        HX_CHECK(equals != SIZE_MAX && count < HX_JWT_SOURCES_MAX);
        hx_jwt_source *source = &sources[count++];
        *source = (hx_jwt_source){.where = hx_slice_from(word, equals + 1)};
        for (unsigned k = 0; k < 4; k++)
            if (hx_slice_eq(hx_slice_first(word, equals), hx_slice_of(kinds[k]))) source->kind = k;
    }
    return count;
}

static void open_sources(hx_slice rest)
{
    hx_jwt_source sources[HX_JWT_SOURCES_MAX];
    hx_error_text error;
    hx_slice wait;
    bool there = hx_slice_next(&rest, ' ', &wait);
    HX_CHECK(there);
    size_t count = read_sources(rest, sources);
    hx_jwks *next = hx_jwks_open(sources, count, current, strtoll(wait.ptr, NULL, 10), error);
    if (!next) {
        (void)printf("error %s\n", error);
        (void)fflush(stdout);
        return;
    }
    if (current) {
        hx_jwks_stop(current);
        hx_jwks_free(&current);
    }
    current = next;
    say("ok", count);
}

static void tell_keys(size_t i)
{
    hx_jwt_keys *keys = hx_jwks_keys(current, i);
    say("keys", keys ? hx_jwt_keys_count(keys) : 0);
    hx_jwt_keys_free(&keys);
}

static void verify(size_t i, hx_slice token)
{
    const hx_jwt_rules rules = {.issuer = HX_EMPTY, .audience = HX_EMPTY};
    hx_arena arena = {0};
    hx_slice payload;
    hx_jwt_keys *keys = hx_jwks_keys(current, i);
    (void)printf("%s\n", hx_jwt_error_text(hx_jwt_verify(token, keys, &rules, 0, &arena, &payload)));
    (void)fflush(stdout);
    hx_jwt_keys_free(&keys);
    hx_arena_free(&arena);
}

static void obey(hx_slice line)
{
    hx_slice rest = line, verb, number = HX_EMPTY;
    if (!hx_slice_next(&rest, ' ', &verb)) return;
    if (hx_slice_eq(verb, HX_LIT("open"))) {
        open_sources(rest);
        return;
    }
    size_t i = hx_slice_next(&rest, ' ', &number) ? strtoul(number.ptr, NULL, 10) : 0;
    if (hx_slice_eq(verb, HX_LIT("start"))) {
        hx_jwks_start(current, keys_changed, &current);
        say("started", 0);
    } else if (hx_slice_eq(verb, HX_LIT("keys"))) {
        tell_keys(i);
    } else if (hx_slice_eq(verb, HX_LIT("verify"))) {
        verify(i, rest);
    } else if (hx_slice_eq(verb, HX_LIT("want"))) {
        hx_jwks_want(current, i);
        say("wanted", i);
    } else if (hx_slice_eq(verb, HX_LIT("stop"))) {
        hx_jwks_stop(current);
        say("stopped", 0);
    } else {
        HX_CHECK(hx_slice_eq(verb, HX_LIT("free")));
        hx_jwks_free(&current);
        say("freed", 0);
    }
}

int main(void)
{
    hx_process_init();
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        line[len - 1] = '\0'; /* numbers end there */
        obey((hx_slice){line, (size_t)len - 1});
    }
    if (current) {
        hx_jwks_stop(current);
        hx_jwks_free(&current);
    }
    free(line);
    hx_arena_pool_drain();
    return 0;
}
