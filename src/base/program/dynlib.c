/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program/dynlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool hx_dynlib_load(hx_dynlib *library, hx_error_text error)
{
    library->handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    if (library->handle) return true;
    const char *why = dlerror(); // NOLINT(concurrency-mt-unsafe): it is kept for each thread
    return hx_fail(error, "%s can't be loaded (%s): install the package %s", library->file, why ? why : "?",
                   library->package);
}

bool hx_dynlib_find(const hx_dynlib *library, const char *symbol, void *call, hx_error_text error)
{
    void *address = dlsym(library->handle, symbol);
    if (address)
        memcpy(call, &address, sizeof address);
    else
        (void)hx_fail(error, "%s has no %s: it is too old", library->file, symbol);
    return address != NULL;
}
