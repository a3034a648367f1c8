/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, in the order of the overview. */
#include "cmd/cli/cmd.h"

#include <string.h>

static const hx_cmd_flag check_flags[] = {
    {"strict", NULL, "also refuse unsafe methods that pass unprotected without a \"because\"", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"diff", "OLD", "what FILE changes about the routes of OLD, and what a reload would refuse", 0},
    HX_CMD_CONFIG_FLAGS,
    {0},
};

static const hx_cmd_flag serve_flags[] = {
    HX_CMD_CONFIG_FLAGS,
    {"accept-rescope", NULL, "start although live operations are under other rules: their keys will run again", 0},
    {"accept-clock", NULL, "believe a clock that is years ahead of the store, or before this program was made", 0},
    {0},
};

static const hx_cmd_flag reload_flags[] = {
    {"accept-rescope", NULL, "although live operations are under other rules: their keys will run again", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"admin", "unix:PATH", "the daemon's admin socket", 0},
    {"config", "FILE", "the daemon's configuration, which says where that is", 'c'},
    {"store", "STORE", "the daemon's journal:DIR, in which it is", 's'},
    {0},
};

static const hx_cmd_flag keys_flags[] = {
    {"state", "STATE", "processing, completed, failed, unknown or expired; several with commas", 0},
    {"route", "NAME", "of this route only", 0},
    {"reason", "TEXT", "whose reason begins so", 0},
    {"since", "TIME", "changed from then on: 2h, 30m, 7d, or 2026-02-19T12:00:00Z", 0},
    {"before", "TIME", "changed before then", 0},
    {"limit", "N", "list so many, 100 by default", 0},
    {"completed", NULL, "resolve: it happened; every later request gets this answer", 0},
    {"failed", NULL, "resolve: it was refused; every later request gets this answer", 0},
    {"release", NULL, "resolve: it did not happen; the next request runs", 0},
    {"status", "CODE", "of the answer: 200 by default for --completed", 0},
    {"header", "'N: V'", "of the answer, may be repeated; Content-Type is application/json by default", 0},
    {"body", "TEXT", "of the answer; @FILE reads it from there, @- from standard input", 0},
    {"why", "TEXT", "for the history: why this is right", 0},
    {"epoch", "N", "only if it still has this epoch", 0},
    {"yes", NULL, "do it to all that match; without it they are only shown", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"admin", "unix:PATH", "the daemon's admin socket", 0},
    {"config", "FILE", "the daemon's configuration, which says where that is", 'c'},
    {"store", "STORE", "the daemon's journal:DIR, in which it is", 's'},
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
    {"from", "VERSION", "only what comes after this version of the schema", 0},
    {0},
};

/* The request's flags have curl's names and meaning. */
static const hx_cmd_flag explain_flags[] = {
    {"request", "METHOD", "the method; POST if there is a body, else GET", 'X'},
    {"header", "'N: V'", "a header; may be repeated", 'H'},
    {"data", "TEXT", "the body; @FILE reads it from there, @- from standard input; several are joined by &", 'd'},
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
        .summary = "stand in front of an application and keep the Idempotency-Key contract",
        .usage = "hapax serve --upstream URL | --config FILE",
        .details = "Without a file every keyed request but GET, HEAD, OPTIONS and TRACE is protected, and the\n"
                   "others pass. Reads its file again on SIGHUP, as `hapax reload` does. Ends on SIGTERM or SIGINT,\n"
                   "after what is under way. Exit codes: 0 done, 2 usage or configuration, 3 store, 4 address in\n"
                   "use, 70 a bug of ours, 75 it ended before requests under way did, which are unknown now.",
        .flags = serve_flags,
    },
    {
        .name = "demo",
        .run = hx_cmd_demo,
        .summary = "a refund service that does not deduplicate, behind a gateway that does: seven things to try",
        .usage = "hapax demo",
    },
    {
        .name = "check",
        .run = hx_cmd_check,
        .summary = "read a configuration, tell every mistake, and show what protects each route",
        .usage = "hapax check FILE [--strict] [--json] [--diff OLD]",
        .details = "Exits with 0 when the configuration is valid. Otherwise with 2, and each mistake is a line on\n"
                   "standard error: hapax.yaml:3:5: unknown option \"lifetme\", did you mean \"lifetime\"?\n"
                   "Give the flags of `hapax serve` too where they complete the file. With --diff it exits with 0\n"
                   "only when a reload would take FILE, whatever operations live under OLD.",
        .flags = check_flags,
    },
    {
        .name = "explain",
        .run = hx_cmd_explain,
        .summary = "say what the gateway does with a request: its route, key, caller and fingerprint, and why",
        .usage = "hapax explain [--config FILE] [-X METHOD] [-H 'N: V'] [-d TEXT] URL|PATH | --request-file FILE | "
                 "--listen ADDRESS",
        .details =
            "hapax explain -c hapax.yaml -X POST /refunds -H 'Idempotency-Key: …' -d @body.json\n"
            "hapax explain -c hapax.yaml --listen 127.0.0.1:8090, then point a real client at it: it gets the\n"
            "explanation of exactly what it sent, as JSON with Accept: application/json. SIGINT ends it.\n"
            "The gateway's own first step decides; nothing is forwarded, and no store is opened. Of credentials\n"
            "only the beginning is shown. Exit codes: 0 explained, whatever the verdict; 2 usage or\n"
            "configuration; 4 the address is in use.",
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
        .summary = "print the schema that a database needs, for those who apply it by their own tools",
        .usage = "hapax sql postgres [--from VERSION]",
        .details = "hapax sql postgres | psql -1 -v ON_ERROR_STOP=1 postgres://…\n"
                   "`hapax store migrate` does the same. No superuser and no extension is needed; comments in it say\n"
                   "how roles get their rights.",
        .flags = sql_flags,
    },
    {
        .name = "keys",
        .run = hx_cmd_keys,
        .summary = "look at operations, and decide about those whose outcome is unknown",
        .usage = "hapax keys list|show|resolve|forget [KEY|ID]",
        .details =
            "list     operations, the newest change first: hapax keys list --state unknown --since 2h\n"
            "show     one operation's whole history, gone or not: hapax keys show KEY\n"
            "resolve  say what became of an unknown one, and what its clients get from now on:\n"
            "           hapax keys resolve KEY --completed --status 201 --body @answer.json --why 'in the ledger'\n"
            "           hapax keys resolve KEY --release --why 'not in the ledger'\n"
            "forget   remove one, whatever became of it; the next request with its key runs\n"
            "With a filter in place of KEY, resolve and forget show what they would touch, and do it with\n"
            "--yes; beside KEY it narrows the search. Asks the running daemon on its admin socket, as its user\n"
            "or root: in the default state directory, or where --admin, --config or --store say. Exit codes:\n"
            "0 done, 2 usage, or refused by the daemon, 3 the daemon can't be asked, or its store is in\n"
            "trouble.",
        .flags = keys_flags,
    },
    {
        .name = "reload",
        .run = hx_cmd_reload,
        .summary = "have a running daemon read its configuration again",
        .usage = "hapax reload [--accept-rescope] [--admin unix:PATH | --config FILE | --store STORE]",
        .details =
            "Requests under way keep the rules they began with, later ones get the new; done when every worker\n"
            "has them. A file with a mistake changes nothing, and every mistake is named. So is an option that\n"
            "can't change while running (listen, upstream, store, workers, admin), and a route whose live\n"
            "operations would not be known any more: its name, principal, key or fingerprint rules changed.\n"
            "Flags that the daemon was started with keep overriding the file. Exit codes: 0 done, 2 refused, or\n"
            "usage, 3 the daemon can't be asked.",
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
        .summary = "say more about a command",
        .usage = "hapax help [COMMAND]",
    },
    {
        .name = "reference",
        .run = hx_cmd_reference,
        .summary = "print a page of the reference, made from the tables in this program",
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
