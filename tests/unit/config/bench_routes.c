/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a route again and again, for bench/routes, which counts the instructions:
 *
 *     bench_routes FILE TIMES METHOD PATH
 *
 * Prints the route's name, or "-". */
#include "base/check.h"
#include "config/config.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    hx_buf errors;
    uint64_t times = 0;
    hx_buf_init(&errors, NULL, 65536);
    if (argc != 5 || !hx_slice_to_u64(hx_slice_of(argv[2]), &times)) {
        (void)fprintf(stderr, "usage: bench_routes FILE TIMES METHOD PATH\n");
        return HX_EXIT_USAGE;
    }
    hx_config *config = hx_config_load(argv[1], NULL, &errors);
    if (!config) {
        (void)fwrite(errors.data, 1, errors.len, stderr);
        return HX_EXIT_USAGE;
    }
    hx_slice method = hx_slice_of(argv[3]), path = hx_slice_of(argv[4]);
    const hx_policy *found = hx_policy_find(&config->policies, method, path);
    for (uint64_t i = 0; i < times; i++) {
        const hx_policy *again = hx_policy_find(&config->policies, method, path);
        HX_CHECK(again == found);
        __asm__ volatile("" ::"r"(&path) : "memory"); /* or the compiler would search once */
    }
    (void)printf("%.*s\n", HX_FMT(found ? found->name : HX_LIT("-")));
    hx_config_free(&config);
    hx_buf_free(&errors);
    return 0;
}
