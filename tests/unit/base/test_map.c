/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/map.h"
#include "base/rand.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>

#define KEYS 2000u

/* Random puts and removes, compared with a plain array after every step. */
static void it_behaves_as_an_array_of_flags(void **state)
{
    (void)state;
    static char names[KEYS][16];
    static void *expected[KEYS];
    hx_map *map = hx_map_new();
    size_t live = 0;
    for (unsigned i = 0; i < KEYS; i++) (void)snprintf(names[i], sizeof names[i], "key-%u", i);
    for (unsigned step = 0; step < 200000; step++) {
        unsigned i = (unsigned)hx_rand_below(KEYS);
        hx_slice key = hx_slice_of(names[i]);
        assert_ptr_equal(hx_map_get(map, key), expected[i]);
        if (hx_rand_below(2) == 0) {
            assert_ptr_equal(hx_map_put(map, key, &names[i]), expected[i]);
            live += expected[i] == NULL;
            expected[i] = &names[i];
        } else {
            assert_ptr_equal(hx_map_remove(map, key), expected[i]);
            live -= expected[i] != NULL;
            expected[i] = NULL;
        }
        assert_int_equal(hx_map_count(map), live);
    }
    size_t cursor = 0, walked = 0;
    hx_slice key;
    void *value;
    while (hx_map_next(map, &cursor, &key, &value)) walked++;
    assert_int_equal(walked, live);
    hx_map_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_behaves_as_an_array_of_flags)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
