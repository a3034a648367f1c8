/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program/libcurl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static hx_libcurl calls;
static hx_error_text failure;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    hx_dynlib library = {.file = "libcurl.so.4", .package = "libcurl4"};
    if (!hx_dynlib_load(&library, failure)) return;
#define X(name)                                                                                                        \
    if (!hx_dynlib_find(&library, "curl_" #name, &calls.name, failure)) return;
    HX_CURL_CALLS(X)
#undef X
    if (calls.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        (void)snprintf(failure, sizeof failure, "libcurl can't be initialised");
}

const hx_libcurl *hx_libcurl_load(hx_error_text error)
{
    (void)pthread_once(&once, load);
    if (failure[0] == '\0') return &calls;
    memcpy(error, failure, sizeof failure);
    return NULL;
}
