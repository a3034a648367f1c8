/* SPDX-License-Identifier: Apache-2.0 */
#include "store/libpq.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libpq.so.5"

static hx_libpq calls;
static char failure[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find(void *library, const char *name, void *call, size_t bytes)
{
    void *symbol = dlsym(library, name);
    if (symbol)
        memcpy(call, &symbol, bytes);
    else
        (void)snprintf(failure, sizeof failure, "%s has no %s: it is too old, version 14 is needed", LIBRARY, name);
    return symbol != NULL;
}

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        (void)snprintf(failure, sizeof failure, "libpq can't be loaded (%s): install the package libpq5", dlerror());
        return;
    }
#define X(name)                                                                                                        \
    if (!find(library, "PQ" #name, &calls.name, sizeof calls.name)) return;
    HX_LIBPQ_CALLS(X)
#undef X
}

const hx_libpq *hx_libpq_load(char error[256])
{
    (void)pthread_once(&once, load);
    if (failure[0] == '\0') return &calls;
    memcpy(error, failure, sizeof failure);
    return NULL;
}
