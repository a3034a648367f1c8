/* SPDX-License-Identifier: Apache-2.0 */
/* Which store a URL means. In a file of its own, so that what brings its own store links none of these. */
#include "base/program/read_file.h"
#include "store/backend.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MACHINE_ID_BYTES 64u
#define BUILD_MARGIN (7 * HX_DAY) /* clocks differ; one that lost its battery is years behind */

/* The machine's id and the path. A container may have no id: then its paths are its own all the same. */
static void find_home(hx_store *store, hx_slice path)
{
    hx_arena arena = {0};
    hx_slice machine, error;
    char real[PATH_MAX];
    if (store && realpath(hx_arena_terminated(&arena, path), real)) {
        if (!hx_read_file("/etc/machine-id", 4096, &arena, &machine, &error)) machine = HX_EMPTY;
        machine = hx_slice_first(hx_slice_trim(machine), MACHINE_ID_BYTES);
        size_t len = strlen(real), most = HX_STORE_HOME_BYTES - MACHINE_ID_BYTES - 2;
        (void)snprintf(store->facts.home, HX_STORE_HOME_BYTES, "%.*s:%s", HX_FMT(machine),
                       real + (len > most ? len - most : 0));
    }
    hx_arena_free(&arena);
}

static hx_store *open_file(hx_store *(*open)(hx_slice path, const hx_store_options *options, hx_error_text error),
                           hx_slice path, const hx_store_options *options, hx_error_text error)
{
    hx_store *store = open(path, options, error);
    find_home(store, path);
    return store;
}

hx_store *hx_store_open(hx_slice url, const hx_store_options *options, hx_error_text error)
{
    static const hx_store_options defaults;
    if (!options) options = &defaults;
    if (options->check_clock && hx_clock_wall() < hx_clock_built_at() - BUILD_MARGIN) {
        char now[HX_RFC3339_BYTES];
        (void)hx_fail(error,
                      "the clock says %.*s, which is before this program was made: set it right, or start with "
                      "--accept-clock",
                      HX_FMT(hx_rfc3339(hx_clock_wall(), now)));
        return NULL;
    }
    const hx_slice journal = HX_LIT("journal:"), sqlite = HX_LIT("sqlite:");
    if (hx_slice_eq(url, HX_LIT("memory:"))) return hx_store_memory_open(options);
    if (hx_slice_starts(url, journal))
        return open_file(hx_journal_open, hx_slice_from(url, journal.len), options, error);
    if (hx_slice_starts(url, sqlite)) return open_file(hx_sqlite_open, hx_slice_from(url, sqlite.len), options, error);
    if (hx_slice_starts(url, HX_LIT("postgres://")) || hx_slice_starts(url, HX_LIT("postgresql://")))
        return hx_postgres_open(url, options, error);
    (void)hx_fail(error,
                  "\"%.*s\" is no store that this program knows; use journal:DIR, sqlite:FILE, postgres://…, or "
                  "memory: for tests",
                  HX_FMT(url));
    return NULL;
}

uint64_t hx_store_bytes_least(hx_slice url)
{
    if (hx_slice_starts(url, HX_LIT("journal:"))) return HX_JOURNAL_BYTES_LEAST;
    return hx_slice_starts(url, HX_LIT("sqlite:")) ? HX_SQLITE_BYTES_LEAST : 0;
}
