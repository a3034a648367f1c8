/* SPDX-License-Identifier: Apache-2.0 */
/* hapax store migrate: brings a database to the schema that this program is made for. */
#include "cmd/store_migrate.h"

#include "base/check.h"
#include "cmd/cmd.h"
#include "store/postgres_schema.h"

static void report(void *context, const char *sentence)
{
    (void)context;
    (void)printf("%s\n", sentence);
}

static bool is_postgres(hx_slice url)
{
    return hx_slice_starts(url, HX_LIT("postgres://")) || hx_slice_starts(url, HX_LIT("postgresql://"));
}

int hx_store_migrate(const char *command, const char *store)
{
    char error[HX_STORE_ERROR_BYTES] = "";
    if (!store) return hx_cmd_misused(command, "migrate which store? Give --store postgres://…");
    if (!is_postgres(hx_slice_of(store)))
        return hx_cmd_misused(command, "only a database has a schema to migrate: give --store postgres://…");
    if (hx_postgres_migrate(store, report, NULL, error)) return HX_EXIT_OK;
    (void)fflush(stdout); /* what was done comes before why it ended */
    (void)fprintf(stderr, "hapax store: %s\n", error);
    return HX_EXIT_STORE;
}
