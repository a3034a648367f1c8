/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, in the order of the overview. */
#include "cmd/cmd.h"

#include <string.h>

static const hx_cmd_flag check_flags[] = {
    {"strict", NULL, "also refuse unsafe methods that pass unprotected without a \"because\"", 0},
    {"json", NULL, "print the result as JSON", 0},
    HX_CMD_CONFIG_FLAGS,
    {0},
};

static const hx_cmd_flag serve_flags[] = {HX_CMD_CONFIG_FLAGS, {0}};

static const hx_cmd commands[] = {
    {
        .name = "serve",
        .run = hx_cmd_serve,
        .summary = "stand in front of an application and keep the Idempotency-Key contract",
        .usage = "hapax serve --upstream URL | --config FILE",
        .details = "Without a file every keyed request but GET, HEAD, OPTIONS and TRACE is protected, and the\n"
                   "others pass. Ends on SIGTERM or SIGINT, after what is under way. Exit codes: 0 done, 2 usage or\n"
                   "configuration, 3 store, 4 address in use, 70 a bug of ours.",
        .flags = serve_flags,
    },
    {
        .name = "demo",
        .run = hx_cmd_demo,
        .summary = "a refund service that does not deduplicate, behind a gateway that does: five requests to try",
        .usage = "hapax demo",
    },
    {
        .name = "check",
        .run = hx_cmd_check,
        .summary = "read a configuration, tell every mistake, and show what protects each route",
        .usage = "hapax check FILE [--strict] [--json]",
        .details = "Exits with 0 when the configuration is valid. Otherwise with 2, and each mistake is a line on\n"
                   "standard error: hapax.yaml:3:5: unknown option \"lifetme\", did you mean \"lifetime\"?\n"
                   "Give the flags of `hapax serve` too where they complete the file.",
        .flags = check_flags,
    },
    {
        .name = "store",
        .run = hx_cmd_store,
        .summary = "repair a damaged store",
        .usage = "hapax store repair DIR",
        .details = "The store must not be in use. What can't be read is copied to DIR/damaged and then skipped;\n"
                   "nothing is deleted, and each place is named with what is lost there. Exits with 3 when it\n"
                   "can't be done.",
    },
    {
        .name = "version",
        .run = hx_cmd_version,
        .summary = "print the version",
        .usage = "hapax version",
    },
    {
        .name = "help",
        .run = hx_cmd_help,
        .summary = "say more about a command",
        .usage = "hapax help [COMMAND]",
    },
    {
        .name = "reference",
        .run = hx_cmd_reference,
        .summary = "print a page of the reference, made from the tables in this program",
        .usage = "hapax reference options|errors",
        .hidden = true,
    },
};

const hx_cmd *hx_cmd_all(size_t *count)
{
    *count = sizeof commands / sizeof commands[0];
    return commands;
}

const hx_cmd *hx_cmd_find(const char *name)
{
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}
