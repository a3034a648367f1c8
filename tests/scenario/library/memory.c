/* SPDX-License-Identifier: Apache-2.0 */
/* A process that has no memory left gets a value, and goes on: memory STORE. */
#include <hapax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
    const size_t bytes = (size_t)48 << 20;
    hapax_request large = {.size = sizeof large, .key = "large"}, small = {.size = sizeof small, .key = "small"};
    hapax_claim claim = {.size = sizeof claim};
    hapax *store;
    char *payload = malloc(bytes);
    if (argc != 2 || !payload || hapax_open(argv[1], NULL, &store) != HAPAX_OK) return 2;
    memset(payload, 'x', bytes);
    payload[0] = payload[bytes - 1] = '"'; /* JSON, whose canonical form is as long */
    large.payload = payload;
    large.payload_bytes = bytes;
    struct rlimit limit = {(rlim_t)80 << 20, RLIM_INFINITY};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    int code = hapax_begin(store, &large, &claim, NULL);
    printf("%s: %s\n", hapax_code_name(code), hapax_message());
    int after = hapax_begin(store, &small, &claim, NULL); /* the handle can still be used */
    hapax_close(&store);
    free(payload);
    return code == HAPAX_NO_MEMORY && after == HAPAX_OK ? 0 : 1;
}
