/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcurl.so.4"

static hx_curl calls;
static char failure[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find(void *library, const char *name, void *call, size_t bytes)
{
    void *symbol = dlsym(library, name);
    if (symbol) {
        memcpy(call, &symbol, bytes);
    } else {
        (void)snprintf(failure, sizeof failure, "%s has no %s: it is too old", LIBRARY, name);
    }
    return symbol != NULL;
}

static void load(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        (void)snprintf(failure, sizeof failure, "libcurl can't be loaded (%s): install the package libcurl4",
                       dlerror());
        return;
    }
#define X(name)                                                                                                        \
    if (!find(library, "curl_" #name, &calls.name, sizeof calls.name)) return;
    HX_CURL_CALLS(X)
#undef X
    if (calls.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        (void)snprintf(failure, sizeof failure, "libcurl can't be initialised");
}

const hx_curl *hx_curl_load(char error[256])
{
    (void)pthread_once(&once, load);
    if (failure[0] == '\0') return &calls;
    memcpy(error, failure, sizeof failure);
    return NULL;
}
