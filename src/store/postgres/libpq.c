/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/libpq.h"

#include "base/program/dynlib.h"
#include "base/slice.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static hx_libpq calls;
static hx_error_text failure;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    hx_dynlib library = {.file = "libpq.so.5", .package = "libpq5"};
    if (!hx_dynlib_load(&library, failure)) return;
#define X(name)                                                                                                        \
    if (!hx_dynlib_find(&library, "PQ" #name, &calls.name, failure)) return;
    HX_LIBPQ_CALLS(X)
#undef X
}

const hx_libpq *hx_libpq_load(hx_error_text error)
{
    (void)pthread_once(&once, load);
    if (failure[0] == '\0') return &calls;
    memcpy(error, failure, sizeof failure);
    return NULL;
}

/* Only the message about an unknown parameter is safe to show: the others may quote the URL with its password. */
void hx_libpq_explain_url(const hx_libpq *pq, char *message, char *out, size_t bytes)
{
    const hx_slice unknown = HX_LIT("invalid URI query parameter: \"");
    hx_slice said = message ? hx_slice_of(message) : HX_EMPTY;
    if (hx_slice_starts(said, unknown)) {
        hx_slice name = hx_slice_from(said, unknown.len);
        name = hx_slice_first(name, hx_slice_find(name, '"'));
        (void)snprintf(out, bytes, "the store's URL has a parameter that libpq doesn't know: \"%.*s\"", HX_FMT(name));
    } else {
        (void)snprintf(out, bytes,
                       "the store's URL can't be read; it is postgres://USER@HOST:PORT/DATABASE?PARAMETERS, "
                       "with special characters written as %%XX");
    }
    if (message) pq->freemem(message);
}
