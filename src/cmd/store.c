/* SPDX-License-Identifier: Apache-2.0 */
/* hapax store: the commands on stores that no gateway has open. */
#include "cmd/cli/cmd.h"

#include "base/check.h"
#include "cmd/store_common.h"
#include "config/address.h"
#include "store/postgres/migrate.h"

#include <string.h>

static void take(void *user, const char *flag, const char *value)
{
    hx_store_flags *flags = user;
    if (strcmp(flag, "store") == 0) flags->store = value;
    if (strcmp(flag, "live") == 0) flags->live = true;
    if (strcmp(flag, "accept-loss") == 0) flags->accept_loss = true;
    if (strcmp(flag, "json") == 0) flags->json = true;
}

static void report(void *context, const char *sentence)
{
    (void)context;
    (void)printf("%s\n", sentence);
}

static int copy(const hx_store_flags *flags, char **operands)
{
    return hx_cmd_store_copy(flags, operands[0], operands[1]);
}

static int salvage(const hx_store_flags *flags, char **operands)
{
    return hx_cmd_store_salvage(flags, operands[0], operands[1]);
}

static int backup(const hx_store_flags *flags, char **operands)
{
    return hx_cmd_store_backup(flags, operands[0]);
}

static int restore(const hx_store_flags *flags, char **operands)
{
    return hx_cmd_store_restore(flags, operands[0], operands[1]);
}

static int migrate(const hx_store_flags *flags, char **operands)
{
    (void)operands;
    hx_error_text error = "";
    if (!flags->store) return hx_cmd_misused("store", "migrate needs --store postgres://…");
    if (!hx_address_is_postgres(hx_slice_of(flags->store)))
        return hx_cmd_misused("store", "only PostgreSQL stores have a schema to migrate: give --store postgres://…");
    return hx_postgres_migrate(flags->store, report, NULL, error) ? HX_EXIT_OK : hx_cmd_store_refuse("%s", error);
}

typedef struct {
    const char *name;
    int operands;
    const char *missing; /* the error when there are fewer */
    int (*run)(const hx_store_flags *flags, char **operands);
    bool takes_store, takes_live, takes_json, takes_loss;
} act;

static const act acts[] = {
    {.name = "copy",
     .operands = 2,
     .missing = "copy needs two stores: FROM and TO",
     .run = copy,
     .takes_live = true,
     .takes_json = true},
    {.name = "backup",
     .operands = 1,
     .missing = "backup needs a FILE",
     .run = backup,
     .takes_store = true,
     .takes_live = true,
     .takes_json = true},
    {.name = "restore",
     .operands = 2,
     .missing = "restore needs a FILE and a store TO",
     .run = restore,
     .takes_json = true},
    {.name = "migrate", .run = migrate, .takes_store = true},
    {.name = "salvage",
     .operands = 2,
     .missing = "salvage needs a directory DIR and a store TO",
     .run = salvage,
     .takes_json = true,
     .takes_loss = true},
};
#define ACTS (sizeof acts / sizeof acts[0])

static int run(const act *a, const hx_store_flags *flags, int count, char **operands)
{
    if (count < a->operands) return hx_cmd_misused("store", "%s", a->missing);
    if (count > a->operands) return hx_cmd_misused("store", "unexpected argument \"%s\"", operands[a->operands]);
    const char *vain = flags->store && !a->takes_store        ? "store"
                       : flags->live && !a->takes_live        ? "live"
                       : flags->accept_loss && !a->takes_loss ? "accept-loss"
                       : flags->json && !a->takes_json        ? "json"
                                                              : NULL;
    if (vain) return hx_cmd_misused("store", "--%s is not a flag of %s", vain, a->name);
    return a->run(flags, operands);
}

int hx_cmd_store(int argc, char **argv)
{
    int operands = 0;
    hx_store_flags flags = {0};
    int code = hx_cmd_flags(argc, argv, 3, take, &flags, &operands);
    if (code >= 0) return code;
    if (operands == argc)
        return hx_cmd_misused(argv[0], "a command is missing: copy, backup, restore, migrate or salvage");
    for (size_t i = 0; i < ACTS; i++)
        if (strcmp(acts[i].name, argv[operands]) == 0)
            return run(&acts[i], &flags, argc - operands - 1, argv + operands + 1);
    return hx_cmd_misused(argv[0], "unknown command \"%s\": use copy, backup, restore, migrate or salvage",
                          argv[operands]);
}
