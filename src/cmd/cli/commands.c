/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, in the order of the overview. */
#include "cmd/cli/cmd.h"

#include <string.h>

static const hx_cmd_flag check_flags[] = {
    {"strict", NULL, "also refuse unsafe methods that pass unprotected without a \"because\"", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"diff", "OLD", "show how the routes of FILE differ from those of OLD, and what a reload would refuse", 0},
    HX_CMD_CONFIG_FLAGS,
    {0},
};

static const hx_cmd_flag serve_flags[] = {
    HX_CMD_CONFIG_FLAGS,
    {"accept-rescope", NULL, "start although live operations were made under other rules: their keys run again", 0},
    {"accept-clock", NULL, "accept a clock that is years ahead of the store, or earlier than this program", 0},
    {0},
};

static const hx_cmd_flag reload_flags[] = {
    {"accept-rescope", NULL, "reload although live operations were made under other rules: their keys run again", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"admin", "unix:PATH", "the daemon's admin socket", 0},
    {"config", "FILE", "the daemon's configuration file, to find its admin socket", 'c'},
    {"store", "STORE", "the daemon's store, to find its admin socket", 's'},
    {0},
};

static const hx_cmd_flag keys_flags[] = {
    {"state", "STATE", "only these states, separated by commas: processing, completed, failed, unknown, expired", 0},
    {"route", "NAME", "only this route", 0},
    {"reason", "TEXT", "only reasons that begin with this", 0},
    {"since", "TIME", "only changes since: 30m, 2h, 7d ago, or 2026-02-19T12:00:00Z", 0},
    {"before", "TIME", "only changes before then", 0},
    {"limit", "N", "list at most N operations (100)", 0},
    {"completed", NULL, "resolve: it happened; every later request gets this response", 0},
    {"failed", NULL, "resolve: it was refused; every later request gets this response", 0},
    {"release", NULL, "resolve: it did not happen; the next request runs", 0},
    {"status", "CODE", "status of the response; --completed has 200 by default", 0},
    {"header", "'N: V'", "a header of the response, may be repeated; Content-Type is application/json by default", 0},
    {"body", "TEXT", "body of the response; @FILE reads a file, @- standard input", 0},
    {"why", "TEXT", "the reason, for the operation's history", 0},
    {"epoch", "N", "only if the operation still has this epoch", 0},
    {"yes", NULL, "change all operations that match; without it they are only shown", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"admin", "unix:PATH", "the daemon's admin socket", 0},
    {"config", "FILE", "the daemon's configuration file, to find its admin socket", 'c'},
    {"store", "STORE", "the daemon's store, to find its admin socket", 's'},
    {0},
};

static const hx_cmd_flag store_flags[] = {
    {"store", "STORE", "backup, migrate: the store; by default, backup takes the one in the state directory", 's'},
    {"live", NULL, "copy, backup: go on although gateways use the (shared) store", 0},
    {"accept-loss", NULL, "salvage: accept that keys whose records are lost run again", 0},
    {"json", NULL, "print the result as JSON", 0},
    {0},
};

static const hx_cmd_flag sql_flags[] = {
    {"from", "VERSION", "print only what comes after this version of the schema", 0},
    {0},
};

/* The request's flags have curl's names and meaning. */
static const hx_cmd_flag explain_flags[] = {
    {"request", "METHOD", "the method; POST if there is a body, else GET", 'X'},
    {"header", "'N: V'", "a header; may be repeated", 'H'},
    {"data", "TEXT", "the body; @FILE reads a file, @- standard input; several are joined by &", 'd'},
    {"request-file", "FILE", "a raw HTTP/1.1 request; - reads it from standard input", 0},
    {"listen", "ADDRESS", "answer every request that comes here with its explanation: 127.0.0.1:8090", 'l'},
    {"json", NULL, "print the explanation as JSON", 0},
    {"config", "FILE", "the rules", 'c'},
    {"upstream", "URL", "as for `hapax serve`", 0},
    {"require-key", NULL, "as for `hapax serve`", 0},
    {"dev", NULL, "as for `hapax serve`", 0},
    {0},
};

static const hx_cmd commands[] = {
    {
        .name = "serve",
        .run = hx_cmd_serve,
        .summary = "run the gateway in front of an application",
        .usage = "hapax serve --upstream URL | --config FILE",
        .details =
            "Without a file, every request with an Idempotency-Key is protected (but GET, HEAD, OPTIONS and\n"
            "TRACE), and all others pass through. SIGHUP reloads the file, like `hapax reload`. SIGTERM and\n"
            "SIGINT end it, after the requests in flight. Exit codes: 0 done, 2 usage or configuration, 3 store,\n"
            "4 address in use, 70 a bug in Hapax, 75 ended with requests in flight, which are now unknown.",
        .flags = serve_flags,
    },
    {
        .name = "demo",
        .run = hx_cmd_demo,
        .summary = "run a refund service behind the gateway, with seven things to try",
        .usage = "hapax demo",
    },
    {
        .name = "check",
        .run = hx_cmd_check,
        .summary = "check a configuration, and show what protects each route",
        .usage = "hapax check FILE [--strict] [--json] [--diff OLD]",
        .details = "Exit codes: 0 the configuration is valid, 2 it is not, with a line for each mistake on standard\n"
                   "error: hapax.yaml:3:5: unknown option \"lifetme\", did you mean \"lifetime\"?\n"
                   "If the daemon is started with more flags, give those too. With --diff, 0 means that a reload\n"
                   "accepts FILE, whatever operations OLD has left.",
        .flags = check_flags,
    },
    {
        .name = "explain",
        .run = hx_cmd_explain,
        .summary = "show what the gateway does with a request, and why",
        .usage = "hapax explain [--config FILE] [-X METHOD] [-H 'N: V'] [-d TEXT] URL|PATH | --request-file FILE | "
                 "--listen ADDRESS",
        .details = "hapax explain -c hapax.yaml -X POST /refunds -H 'Idempotency-Key: …' -d @body.json\n"
                   "hapax explain -c hapax.yaml --listen 127.0.0.1:8090, then point a real client at it: it gets the\n"
                   "explanation of exactly what it sent, as JSON with Accept: application/json. SIGINT ends it.\n"
                   "Nothing is forwarded, and no store is opened. Of credentials only the beginning is shown.\n"
                   "Exit codes: 0 explained, whatever the verdict, 2 usage or configuration, 4 address in use.",
        .flags = explain_flags,
    },
    {
        .name = "store",
        .run = hx_cmd_store,
        .summary = "copy, back up, restore or salvage a store that no gateway uses",
        .usage = "hapax store copy FROM TO | backup FILE | restore FILE TO | migrate | salvage DIR TO",
        .details =
            "copy     copies every operation into a new or empty store: hapax store copy journal:a sqlite:b.db\n"
            "backup   writes every operation, and the store's secret, into one file: hapax store backup FILE\n"
            "restore  makes a new store from such a file, after verifying it to the last byte. Operations that were "
            "in\n"
            "           flight are unknown, and epochs start a generation later.\n"
            "migrate  brings a database to this program's schema: hapax store migrate --store postgres://…\n"
            "           It can be repeated, and run on several nodes at once. Restart the gateways afterwards.\n"
            "salvage  copies every readable record of a damaged journal into a new store, and changes nothing in DIR.\n"
            "           It lists what is lost; no gateway starts on TO until you accept that with --accept-loss.\n"
            "Stop all gateways of these stores first. If copy, restore or salvage is interrupted, no gateway starts "
            "on\n"
            "TO: run the same command again, and it starts from the beginning. Exit codes: 0 done, 2 usage, 3 refused\n"
            "or failed.",
        .flags = store_flags,
    },
    {
        .name = "sql",
        .run = hx_cmd_sql,
        .summary = "print the database schema, to apply it with other tools",
        .usage = "hapax sql postgres [--from VERSION]",
        .details = "hapax sql postgres | psql -1 -v ON_ERROR_STOP=1 postgres://…\n"
                   "`hapax store migrate` does the same. No superuser and no extension is needed; comments in it say\n"
                   "how roles get their rights.",
        .flags = sql_flags,
    },
    {
        .name = "keys",
        .run = hx_cmd_keys,
        .summary = "list operations, and resolve those whose outcome is unknown",
        .usage = "hapax keys list|show|resolve|forget [KEY|ID]",
        .details =
            "list     lists operations, the latest change first: hapax keys list --state unknown --since 2h\n"
            "show     shows the history of one operation: hapax keys show KEY\n"
            "resolve  records the outcome of an unknown operation, and the response that its clients get:\n"
            "           hapax keys resolve KEY --completed --status 201 --body @answer.json --why 'in the ledger'\n"
            "           hapax keys resolve KEY --release --why 'not in the ledger'\n"
            "forget   removes an operation, whatever its outcome; the next request with its key runs\n"
            "With a filter instead of KEY, resolve and forget list the operations that match, and change them\n"
            "with --yes. The command asks the running daemon on its admin socket, so run it as the daemon's user\n"
            "or root. The socket is in the default state directory, or where --admin, --config or --store say.\n"
            "Exit codes: 0 done, 2 usage, or refused by the daemon, 3 the daemon or its store can't be reached.",
        .flags = keys_flags,
    },
    {
        .name = "reload",
        .run = hx_cmd_reload,
        .summary = "make a running daemon reload its configuration",
        .usage = "hapax reload [--accept-rescope] [--admin unix:PATH | --config FILE | --store STORE]",
        .details =
            "Requests in flight keep the rules they started with. The command ends when every worker uses the new\n"
            "ones. A reload is refused, and changes nothing, if the file has a mistake, if it changes an option that\n"
            "needs a restart (listen, upstream, store, workers, admin), or if a route would no longer recognise its\n"
            "live operations because its name, principal, key or fingerprint rules have changed. Flags that the\n"
            "daemon was started with still override the file. Exit codes: 0 done, 2 usage, or refused by the daemon,\n"
            "3 the daemon can't be reached.",
        .flags = reload_flags,
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
        .summary = "show the help of a command",
        .usage = "hapax help [COMMAND]",
    },
    {
        .name = "reference",
        .run = hx_cmd_reference,
        .summary = "print a page of the reference",
        .usage = "hapax reference options|errors|events|metrics|admin",
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
