/* SPDX-License-Identifier: Apache-2.0 */
#include "store/libpq.h"

#include "base/library.h"

#include <pthread.h>
#include <string.h>

static hx_libpq calls;
static char failure[HX_LIBRARY_ERROR_BYTES];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    hx_library library = {.file = "libpq.so.5", .package = "libpq5"};
    if (!hx_library_load(&library, failure)) return;
#define X(name)                                                                                                        \
    if (!hx_library_find(&library, "PQ" #name, &calls.name, failure)) return;
    HX_LIBPQ_CALLS(X)
#undef X
}

const hx_libpq *hx_libpq_load(char error[HX_LIBRARY_ERROR_BYTES])
{
    (void)pthread_once(&once, load);
    if (failure[0] == '\0') return &calls;
    memcpy(error, failure, sizeof failure);
    return NULL;
}
