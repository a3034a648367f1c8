/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of configurations share: one that must be good, tables of those that aren't, and one that is broken at
 * random. */
#ifndef HX_TESTS_CONFIG_FIXTURE_H
#define HX_TESTS_CONFIG_FIXTURE_H

#include "config/config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

/* The file is called "f". The test fails, with all that is wrong, where it isn't taken. */
hx_config *fixture_load(const char *yaml);
hx_config *fixture_load_with(const char *yaml, const hx_config_overrides *flags);
void fixture_assert_text(hx_slice text, const char *expected);

/* A file, and what is said of it. */
typedef struct {
    const char *yaml, *said;
} fixture_row;

/* Whether each is refused with these problems, or is taken with these notes. */
void fixture_check(const fixture_row *rows, size_t count, bool refused);
#define FIXTURE_REFUSED(rows) fixture_check(rows, sizeof(rows) / sizeof(rows)[0], true)
#define FIXTURE_NOTED(rows) fixture_check(rows, sizeof(rows) / sizeof(rows)[0], false)

/* Broken in a few bytes, or cut off, 20,000 times: it is refused with a problem, or taken without one. Seeded, so that
 * a failure comes back; what matters is that sanitizers see no wrong step on the way. */
void fixture_break(const char *good, uint32_t seed);

/* For the end of a group: frees what arenas keep too, so that a sanitizer sees leaks. */
int fixture_drain(void **state);

#endif
