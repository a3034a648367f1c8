/* SPDX-License-Identifier: Apache-2.0 */
/* hapax sql: prints the database schema, to be applied with other tools. */
#include "cmd/cli/cmd.h"

#include "base/check.h"
#include "store/postgres/migrate.h"

#include <string.h>

static void take(void *user, const char *flag, const char *value)
{
    (void)flag; /* there is only --from */
    *(const char **)user = value;
}

static void print_after(uint64_t version)
{
    bool is_first = true;
    for (size_t i = 0; i < hx_postgres_migrations_count; i++) {
        if (hx_postgres_migrations[i].number <= version) continue;
        if (!is_first) (void)putchar('\n');
        (void)fputs(hx_postgres_migrations[i].text, stdout);
        is_first = false;
    }
}

/* The migration of the outbox, for a database that has no store: up to where it notes its version in the store. */
static int print_outbox(void)
{
    const char *end = NULL, *text = NULL;
    for (size_t i = 0; i < hx_postgres_migrations_count && !end; i++) {
        text = hx_postgres_migrations[i].text;
        if (strstr(hx_postgres_migrations[i].name, "_outbox")) end = strstr(text, "\nUPDATE hapax.store SET version");
    }
    HX_CHECK(end != NULL);
    (void)fputs(
        "DO $$ BEGIN IF to_regclass('hapax.store') IS NOT NULL THEN\n"
        "    RAISE EXCEPTION 'this database has a store of Hapax: hapax store migrate installs the outbox, too';\n"
        "END IF; END $$;\n\n",
        stdout);
    (void)fwrite(text, 1, (size_t)(end - text), stdout);
    return HX_EXIT_OK;
}

int hx_cmd_sql(int argc, char **argv)
{
    const char *from = NULL;
    uint64_t version = 0;
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, take, &from, &operands);
    if (code >= 0) return code;
    if (operands == argc) return hx_cmd_misused(argv[0], "sql needs what to print: postgres or outbox");
    if (strcmp(argv[operands], "outbox") == 0 && !from) return print_outbox();
    if (strcmp(argv[operands], "postgres") != 0)
        return hx_cmd_misused(argv[0], "%s \"%s\": use postgres, or outbox without --from", "can't print",
                              argv[operands]);
    if (from && (!hx_slice_to_u64(hx_slice_of(from), &version) || version > hx_postgres_schema_newest()))
        return hx_cmd_misused(argv[0], "--from must be between 0 and %u, not \"%s\"", hx_postgres_schema_newest(),
                              from);
    print_after(version);
    return HX_EXIT_OK;
}
