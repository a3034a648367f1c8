/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, in the order of the overview. */
#include "cmd/cli/client_commands.h"

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

static const hx_cmd_flag tokens_flags[] = {
    {"scope", "SCOPES", "create: what it may do, separated by commas: publish, consume, operate, view", 0},
    {"tenant", "NAME", "create: the only tenant in which it may do that; none by default, which is all", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"admin", "unix:PATH", "the daemon's admin socket", 0},
    {"config", "FILE", "the daemon's configuration file, to find its admin socket", 'c'},
    {"store", "STORE", "the daemon's store, to find its admin socket", 's'},
    {0},
};

static const hx_cmd_flag events_flags[] = {
    {"source", "NAME", "list, show: what the inbox received from it; publish: who says it", 0},
    {"tenant", "NAME", "the tenant of the event; none by default", 0},
    {"limit", "N", "list, dead: at most N (100); redrive: at most N deliveries; tail: end after N", 0},
    {"data", "JSON", "publish: what happened; @FILE reads a file", 'd'},
    {"id", "ID", "publish: the event's id, so that it can be repeated; random by default", 0},
    {"correlation-id", "ID", "publish: goes along with every delivery", 0},
    {"deliver-at", "TIME", "publish: not before then: 2026-02-19T12:00:00Z", 0},
    {"key", "KEY", "publish: an Idempotency-Key, so that the command can be repeated", 0},
    {"stream", "NAME", "publish, tail: the stream", 0},
    {"expected-version", "N", "publish: only if the stream's last position is N", 0},
    {"after", "N", "tail: begin behind this position; 0: with the first event; by default with new ones", 0},
    {"consumer", "NAME", "tail: begin behind what this consumer has acknowledged; tail itself acknowledges nothing", 0},
    {"endpoint", "ID", "dead, redrive: only deliveries to it; in_SOURCE is the application behind a source", 0},
    {"state", "STATE", "dead: dead, held, unknown, pending or sending; redrive: the first three, or paused (dead)", 0},
    {"all", NULL, "redrive: deliveries to all endpoints", 0},
    {"again", NULL, "redrive: those that were delivered", 0},
    {"from", "TIME", "redrive: made at this time or later: 2026-02-19T12:00:00Z, or an age such as 2h", 0},
    {"before", "TIME", "redrive: made before this time", 0},
    {"rate", "N/s", "redrive: so many a second; all at once by default", 0},
    {"stop-after", "N", "redrive: stop when N deliveries have failed again; never by default", 0},
    {"why", "TEXT", "redrive, stop, pause: the reason, for others who ask", 0},
    {"detach", NULL, "redrive: don't wait for the end", 0},
    {"yes", NULL, "redrive, resume: don't ask", 'y'},
    {"json", NULL, "print the result as JSON", 0},
    {"admin", "unix:PATH", "the daemon's admin socket", 0},
    {"config", "FILE", "the daemon's configuration file, to find its admin socket", 'c'},
    {"store", "STORE", "the daemon's store, to find its admin socket", 's'},
    {0},
};

static const hx_cmd_flag consumers_flags[] = {
    {"stream", "NAME", "list: consumers of this stream only; seek: the stream", 0},
    {"tenant", "NAME", "the tenant of the stream; none by default", 0},
    {"limit", "N", "list: at most N (1000)", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"admin", "unix:PATH", "the daemon's admin socket", 0},
    {"config", "FILE", "the daemon's configuration file, to find its admin socket", 'c'},
    {"store", "STORE", "the daemon's store, to find its admin socket", 's'},
    {0},
};

static const hx_cmd_flag endpoints_flags[] = {
    {"type", "TYPES", "types that it gets, with commas: refund.created, refund.*; '' for all", 0},
    {"filter", "/P=VALUE", "only events with this value at this JSON pointer of their data; may be repeated", 0},
    {"header", "'N: V'", "a header of each delivery; may be repeated, and replaces those that it has", 'H'},
    {"rate", "N", "at most N attempts a second; 0 for no limit; recover: so many events a second", 0},
    {"concurrency", "N", "at most N attempts at a time (16)", 0},
    {"timeout", "TIME", "of an attempt, 1s to 60s (20s)", 0},
    {"on-client-error", "WORD", "after a 4xx: retry, or dead (retry)", 0},
    {"ordered", NULL, "add: send the events of a stream one at a time, and stop at one that fails", 0},
    {"description", "TEXT", "for people", 0},
    {"url", "URL", "change: where its deliveries go", 0},
    {"tenant", "NAME", "the tenant whose events it gets; none by default", 0},
    {"since", "TIME", "recover: events accepted at this time or later: 2026-02-19T12:00:00Z, or an age such as 2h", 0},
    {"limit", "N", "recover: at most N events", 0},
    {"stop-after", "N", "recover: stop when N deliveries have failed; never by default", 0},
    {"detach", NULL, "recover: don't wait for the end", 0},
    {"yes", NULL, "recover: don't ask", 'y'},
    {"why", "TEXT", "disable, recover: the reason, for others who ask", 0},
    {"overlap", "TIME", "rotate: how long the old secret signs along, up to 30d (24h)", 0},
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

static const hx_cmd_flag audit_flags[] = {
    {"since", "TIME", "list, export: changes since 2026-02-19T12:00:00Z, or an age such as 2h", 0},
    {"before", "TIME", "list, export: changes before then", 0},
    {"route", "NAME", "list, export: changes of operations of this route", 0},
    {"operation", "ID", "list, export: changes of one operation, by the id that `hapax keys` shows", 0},
    {"csv", "TABLE", "export: attempts (of one operation), outcomes, or inbox (of one source)", 0},
    {"source", "NAME", "export: the source of the events in the inbox", 0},
    {"anchor", "ANCHOR", "verify: what an earlier verify has printed, and must still be true", 0},
    {"json", NULL, "list: JSON lines; verify: the result as JSON", 0},
    {"store", "STORE", "the store; by default, the one in the state directory", 's'},
    {"config", "FILE", "the daemon's configuration file, to find its store", 'c'},
    {"admin", "unix:PATH", "the daemon's admin socket, for --csv inbox", 0},
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

static const hx_cmd_flag verify_flags[] = {
    HX_CMD_WEBHOOK_FLAGS,
    {"header", "'N: V'", "a header of the request; may be repeated", 'H'},
    {"at", "TIME", "verify as of then: 2026-02-19T12:00:00Z, seconds since 1970, or an age such as 2h", 0},
    {"sign", NULL, "standard, svix: print the headers of a request with this body, to send it", 0},
    {"id", "ID", "with --sign: the event's id; random by default", 0},
    {"json", NULL, "print the result as JSON", 0},
    {0},
};

static const hx_cmd_flag listen_flags[] = {
    {"listen", "ADDRESS", "where to listen; 127.0.0.1:8090 by default, and port 0 is any that is free", 'l'},
    HX_CMD_WEBHOOK_FLAGS,
    {"status", "CODE", "answer with this status (200)", 0},
    {"fail", "N", "answer the first N deliveries of each event id with 503", 0},
    {"delay", "TIME", "answer so much later: 500ms, 2s", 0},
    {"count", "N", "end after N requests", 0},
    {"body-max", "SIZE", "refuse longer bodies with 413 (1MiB)", 0},
    {"bodies", NULL, "show the bodies", 0},
    {"json", NULL, "print one JSON object a line", 0},
    {0},
};

static const hx_cmd_entry serve_examples[] = {
    {"hapax serve --upstream http://127.0.0.1:3000", "protect an application without a file"},
    {"hapax serve --config /etc/hapax/hapax.yaml", "with the routes and rules of a file"},
    {"hapax serve --dev -u http://127.0.0.1:3000 -l 127.0.0.1:9000", "for development, on another port"},
    {0},
};
static const hx_cmd_entry serve_exits[] = {
    {"0", "done"},
    {"2", "usage or configuration"},
    {"3", "store"},
    {"4", "address in use"},
    {"70", "a bug in Hapax"},
    {"75", "ended with requests in flight, which are now unknown"},
    {0},
};

static const hx_cmd_entry demo_exits[] = {
    {"0", "done"},
    {"3", "no temporary directory can be made"},
    {"4", "no port is free"},
    {"70", "the application or the gateway can't be started"},
    {0},
};

static const hx_cmd_entry check_examples[] = {
    {"hapax check --strict hapax.yaml", "before the file is deployed"},
    {"hapax check --diff hapax.yaml new.yaml", "before the file is replaced by new.yaml and reloaded"},
    {0},
};
static const hx_cmd_entry check_exits[] = {
    {"0", "the configuration is valid; with --diff: and a reload accepts it, whatever operations OLD has left"},
    {"2", "it is not, with a line for each mistake on standard error, such as "
          "hapax.yaml:3:5: unknown option \"lifetme\", did you mean \"lifetime\"?"},
    {0},
};

static const hx_cmd_entry explain_examples[] = {
    {"hapax explain -X POST /refunds -H 'Idempotency-Key: k1' -d @body.json",
     "a request to a gateway without a configuration file"},
    {"hapax explain -c hapax.yaml --listen 127.0.0.1:8090",
     "point a real client there: it gets the explanation of exactly what it sent"},
    {0},
};
static const hx_cmd_entry explain_exits[] = {
    {"0", "explained, whatever the verdict"},
    {"2", "usage or configuration"},
    {"4", "address in use"},
    {0},
};

static const hx_cmd_entry listen_examples[] = {
    {"hapax listen --scheme stripe --secret-file secret.txt --bodies", "verify and show what Stripe sends"},
    {"hapax listen --fail 2", "watch a sender try again: two deliveries of each event fail"},
    {"hapax listen --listen 127.0.0.1:0 --count 3 --json", "in a script: three requests, then the verdict"},
    {0},
};
static const hx_cmd_entry listen_exits[] = {
    {"0", "ended by a signal; with --count: N requests were received, and with --scheme all of them verified"},
    {"1", "with --count: a request was refused or not verified, or a signal came before the last one"},
    {"2", "usage"},
    {"4", "address in use"},
    {0},
};

static const hx_cmd_entry store_actions[] = {
    {"copy", "copies every operation into a new or empty store"},
    {"backup", "writes every operation, and the store's secret, into one file"},
    {"restore", "makes a new store from such a file, after verifying it to the last byte. Operations that were in "
                "flight are unknown, and epochs start a generation later."},
    {"migrate", "brings a database to this program's schema. It can be repeated, and run on several nodes at once. "
                "Restart the gateways afterwards."},
    {"salvage", "copies every readable record of a damaged journal into a new store, and changes nothing in DIR. It "
                "lists what is lost; no gateway starts on TO until you accept that with --accept-loss."},
    {0},
};
static const hx_cmd_entry store_examples[] = {
    {"hapax store copy journal:/var/lib/hapax sqlite:/srv/hapax.db", "move to another kind of store"},
    {"hapax store backup hapax.backup", "of the default store"},
    {"hapax store migrate --store postgres://db.example.com/shop", "before the gateways are updated"},
    {0},
};
static const hx_cmd_entry store_exits[] = {
    {"0", "done"},
    {"2", "usage"},
    {"3", "refused or failed"},
    {0},
};

static const hx_cmd_entry sql_examples[] = {
    {"hapax sql postgres | psql -1 -v ON_ERROR_STOP=1 postgres://…", "apply it in one transaction"},
    {0},
};
static const hx_cmd_entry simple_exits[] = {
    {"0", "done"},
    {"2", "usage"},
    {0},
};

static const hx_cmd_entry keys_actions[] = {
    {"list", "lists operations, the latest change first"},
    {"show", "shows the history of one operation"},
    {"resolve", "records the outcome of an unknown operation, and the response that its clients get"},
    {"forget", "removes an operation, whatever its outcome; the next request with its key runs"},
    {0},
};
static const hx_cmd_entry keys_examples[] = {
    {"hapax keys list --state unknown --since 2h", "what needs an operator"},
    {"hapax keys show KEY", "everything that happened to it"},
    {"hapax keys resolve KEY --completed --status 201 --body @answer.json", "it happened, and this is its response"},
    {"hapax keys resolve KEY --release --why 'not in the ledger'", "it did not happen"},
    {0},
};
static const hx_cmd_entry keys_exits[] = {
    {"0", "done"},
    {"2", "usage, or refused by the daemon"},
    {"3", "the daemon or its store can't be reached"},
    {0},
};

static const hx_cmd_entry audit_actions[] = {
    {"list", "lists every change of an operation's state, oldest first"},
    {"verify", "checks that no row was changed, removed or moved, and prints an anchor"},
    {"export", "writes JSON lines, or with --csv a table"},
    {0},
};
static const hx_cmd_entry audit_examples[] = {
    {"hapax audit list --since 2h", "what has happened"},
    {"hapax audit verify --anchor $(cat anchor)", "and nothing was cut off since"},
    {"hapax audit export --csv outcomes >outcomes.csv", "for a spreadsheet"},
    {0},
};
static const hx_cmd_entry audit_exits[] = {
    {"0", "done; verify: the chain is whole"},
    {"1", "the chain is broken"},
    {"2", "usage"},
    {"3", "the store can't be read"},
    {0},
};

static const hx_cmd_entry tokens_actions[] = {
    {"create", "makes a token and prints it, once: only its MAC is stored"},
    {"list", "lists the tokens, by name and age"},
    {"revoke", "revokes one token, or all of a name: gateways refuse it within 5 seconds"},
    {0},
};
static const hx_cmd_entry tokens_examples[] = {
    {"hapax tokens create shop --scope publish --tenant acme >token", "a token for one tenant's events"},
    {"hapax tokens create shop --scope publish --tenant acme >new", "to rotate it: both are valid for now"},
    {"hapax tokens revoke 3f9a0c51d2e8", "the old one, by its id, once nobody uses it"},
    {0},
};

static const hx_cmd_entry events_actions[] = {
    {"list", "lists events, the newest first"},
    {"show", "shows an event, its data, and every attempt of each of its deliveries"},
    {"publish", "publishes an event and prints its id, once it is durable"},
    {"tail", "prints the events of a stream as they come, one a line, over restarts of the daemon, too"},
    {"cancel", "cancels the deliveries of an event that are not sent yet"},
    {"dead", "lists deliveries that were given up, or those of another --state"},
    {"redrive",
     "sends deliveries again, under the same event id: counts them, asks, and sends the oldest first. That is "
     "a job of the daemon, which goes on when this command or the daemon is interrupted."},
    {"redrives", "lists these jobs with how far they got, or shows one"},
    {"stop", "stops a job; what it has armed is sent"},
    {"pause", "pauses all deliveries; events are accepted as before"},
    {"resume", "shows what would be sent, asks, and lets deliveries go on. A store that was restored or copied starts "
               "paused."},
    {0},
};
static const hx_cmd_entry events_examples[] = {
    {"hapax events publish refund.created --data '{\"amount\": 100}'", "to all endpoints that subscribe to it"},
    {"hapax events publish refund.created --key KEY - <refund.json", "the data from standard input, repeatable"},
    {"hapax events tail --stream orders-17 --after 0 --json", "all events of a stream, and those that come"},
    {"hapax events dead --endpoint ep_5f0c", "what an endpoint missed"},
    {"hapax events redrive --endpoint ep_5f0c --rate 20/s --yes", "send it again, once the endpoint works"},
    {0},
};

static const hx_cmd_entry consumers_actions[] = {
    {"list", "lists consumers with their positions, and how far they are behind"},
    {"seek", "moves a consumer to a position, a number, oldest or newest, and begins a new generation: what was read "
             "before can't be acknowledged any more"},
    {0},
};
static const hx_cmd_entry consumers_examples[] = {
    {"hapax consumers list --stream orders-17", "who has processed what"},
    {"hapax consumers seek billing 120 --stream orders-17", "billing reads 121 next"},
    {"hapax consumers seek billing oldest --stream orders-17", "everything that is kept, again"},
    {0},
};

static const hx_cmd_entry endpoints_actions[] = {
    {"list", "lists the endpoints of all tenants, or of one"},
    {"show", "shows one endpoint, without its secrets and headers"},
    {"add", "adds an endpoint, and prints its secret, once. It gets the events that are published from now on."},
    {"change", "changes what the flags name, and leaves the rest"},
    {"delete", "deletes it and cancels the deliveries that wait for it"},
    {"enable", "lets its deliveries go on, where they were"},
    {"disable", "pauses its deliveries, for up to five days"},
    {"rotate", "gives it a new secret, and prints it, once"},
    {"recover", "delivers to it the events since a time that it has not got, the oldest first: counts them, and asks"},
    {"why", "says since when it fails or why it is disabled, what its last deliveries met, how many wait, "
            "and which streams of an ordered one are stopped"},
    {"test", "sends it an event hapax.test, and says what it answered: exit code 0 for a 2xx, else 1"},
    {"skip", "gives up an event that stops its stream, or waits, so that the next one follows"},
    {0},
};
static const hx_cmd_entry endpoints_exits[] = {
    {"0", "done"},
    {"1", "test: the endpoint didn't answer with 2xx"},
    {"2", "usage, or refused by the daemon"},
    {"3", "the daemon or its store can't be reached"},
    {0},
};
static const hx_cmd_entry endpoints_examples[] = {
    {"hapax endpoints add https://example.com/hooks --type 'refund.*'", "all events about refunds"},
    {"hapax endpoints change ep_5f0c --filter /currency=EUR --rate 10", "fewer, and slower"},
    {"hapax endpoints test ep_5f0c", "does it answer?"},
    {"hapax endpoints why ep_5f0c", "if its deliveries fail"},
    {"hapax endpoints rotate ep_5f0c --overlap 7d >secret", "both secrets sign for a week"},
    {0},
};

static const hx_cmd_entry reload_examples[] = {
    {"hapax reload", "the daemon on the default store"},
    {"hapax reload --config /etc/hapax/hapax.yaml", "the daemon that was started with this file"},
    {0},
};
static const hx_cmd_entry reload_exits[] = {
    {"0", "done"},
    {"2", "usage, or refused by the daemon"},
    {"3", "the daemon can't be reached"},
    {0},
};

static const hx_cmd_entry verify_examples[] = {
    {"hapax verify --scheme stripe --secret-file F -H \"$SIGNATURE\" BODY",
     "a request that was kept: SIGNATURE is its header, 'Stripe-Signature: t=…,v1=…', BODY its body"},
    {"hapax verify --scheme shopify --secret-env S -H \"$SIGNATURE\" - <BODY",
     "the secret from the environment, the body from standard input"},
    {"hapax verify --sign --scheme standard --secret-file F BODY >headers",
     "sign a request, to be sent by curl -H @headers --data-binary @BODY URL"},
    {0},
};
static const hx_cmd_entry verify_exits[] = {
    {"0", "verified, or signed"},
    {"1", "not verified"},
    {"2", "usage, or a secret or file that can't be used"},
    {0},
};

static const hx_cmd_entry files[] = {
    {"/var/lib/hapax", "default store of a daemon that root runs, a journal, with its admin socket"},
    {"$XDG_STATE_HOME/hapax", "the same for other users; ~/.local/state/hapax if that variable is not set"},
    {"hapax.yaml", "the configuration, wherever --config says: see hapax.yaml(5)"},
    {0},
};
static const hx_cmd_entry environment[] = {
    {"STATE_DIRECTORY", "directory of the default store, as systemd sets it, instead of those under Files"},
    {"XDG_STATE_HOME", "where the default store of users other than root is: see Files"},
    {"TMPDIR", "directory for large bodies while they are in use; /tmp by default"},
    {"TZDIR", "directory of time zones; /usr/share/zoneinfo by default"},
    {"SSL_CERT_FILE", "certificate authorities that are trusted when keys are fetched from jwt.jwks_url"},
    {"PGPASSWORD, …", "everything that libpq reads, for stores in PostgreSQL"},
    {"NO_COLOR", "if it is set and not empty, output has no colours"},
    {0},
};

const hx_cmd hx_cmd_program = {
    .summary = "give any HTTP service exactly-once effects",
    .usage = "hapax COMMAND [FLAGS]",
    .details = "A gateway in front of the service runs each request with an Idempotency-Key once, and answers every "
               "retry with the first response. For more about a command: `hapax help COMMAND` or `man hapax-COMMAND`.",
    .exits = serve_exits,
    .files = files,
    .environment = environment,
};

static const hx_cmd commands[] = {
    {
        .name = "serve",
        .run = hx_cmd_serve,
        .summary = "run the gateway in front of an application",
        .usage = "hapax serve --upstream URL [FLAGS]\nhapax serve --config FILE [FLAGS]",
        .details = "Without a file, every request with an Idempotency-Key is protected (but GET, HEAD, OPTIONS and "
                   "TRACE), and all others pass through. SIGHUP reloads the file, like `hapax reload`. SIGTERM and "
                   "SIGINT end it, after the requests in flight.",
        .flags = serve_flags,
        .examples = serve_examples,
        .exits = serve_exits,
    },
    {
        .name = "demo",
        .run = hx_cmd_demo,
        .summary = "run a refund service behind the gateway, with seven things to try",
        .usage = "hapax demo",
        .details = "It prints what to try, as curl commands for another terminal, and starts the gateway again when it "
                   "is killed. The store is a temporary directory, which is removed at the end. SIGINT ends it.",
        .exits = demo_exits,
    },
    {
        .name = "check",
        .run = hx_cmd_check,
        .summary = "check a configuration, and show what protects each route",
        .usage = "hapax check FILE [--strict] [--json] [--diff OLD]",
        .details = "If the daemon is started with more flags, give those too.",
        .flags = check_flags,
        .examples = check_examples,
        .exits = check_exits,
    },
    {
        .name = "explain",
        .run = hx_cmd_explain,
        .summary = "show what the gateway does with a request, and why",
        .usage = "hapax explain [-c FILE] [-X METHOD] [-H 'N: V'] [-d TEXT] URL|PATH\n"
                 "hapax explain [-c FILE] --request-file FILE\n"
                 "hapax explain [-c FILE] --listen ADDRESS",
        .details = "Nothing is forwarded, and no store is opened. Of credentials only the beginning is shown. With "
                   "--listen, a client gets JSON if it sends Accept: application/json; SIGINT ends it.",
        .flags = explain_flags,
        .examples = explain_examples,
        .exits = explain_exits,
    },
    {
        .name = "listen",
        .run = hx_cmd_listen,
        .summary = "receive webhooks for development: print, verify and answer them",
        .usage = "hapax listen [--scheme NAME --secret-file FILE] [FLAGS]",
        .details =
            "Every request is answered with --status, whatever the verdict on its signature, and nothing is "
            "forwarded or stored. It is shown with its event id, how often that id has come, and the headers of "
            "a gateway: Idempotency-Key, Hapax-Attempt, X-Correlation-Id, traceparent. A delivery is a duplicate "
            "if an earlier one of its id was answered with 2xx; the last 10,000 ids are remembered. Control "
            "characters are shown escaped. SIGINT and SIGTERM end it with a summary.",
        .flags = listen_flags,
        .examples = listen_examples,
        .exits = listen_exits,
    },
    {
        .name = "store",
        .run = hx_cmd_store,
        .summary = "copy, back up, restore or salvage a store that no gateway uses",
        .usage = "hapax store copy FROM TO\nhapax store backup FILE\nhapax store restore FILE TO\n"
                 "hapax store migrate --store STORE\nhapax store salvage DIR TO",
        .details = "Stop all gateways of these stores first. If copy, restore or salvage is interrupted, no gateway "
                   "starts on TO: run the same command again, and it starts from the beginning.",
        .actions = store_actions,
        .flags = store_flags,
        .examples = store_examples,
        .exits = store_exits,
    },
    {
        .name = "sql",
        .run = hx_cmd_sql,
        .summary = "print the database schema, to apply it with other tools",
        .usage = "hapax sql postgres [--from VERSION]\nhapax sql outbox",
        .details = "`hapax store migrate` does the same. `outbox` is the transactional outbox alone, for an "
                   "application's database that is not the store. No superuser and no extension is needed; comments in "
                   "it say how roles get their rights.",
        .flags = sql_flags,
        .examples = sql_examples,
        .exits = simple_exits,
    },
    {
        .name = "keys",
        .run = hx_cmd_keys,
        .summary = "list operations, and resolve those whose outcome is unknown",
        .usage = "hapax keys list [FILTER]\nhapax keys show KEY|ID\n"
                 "hapax keys resolve KEY|ID|FILTER --completed|--failed|--release\nhapax keys forget KEY|ID|FILTER",
        .details = "A FILTER is any of --state, --route, --reason, --since and --before. With one instead of KEY, "
                   "resolve and forget list the operations that match, and change them with --yes. The command asks "
                   "the running daemon on its admin socket, so run it as the daemon's user or root. The socket is in "
                   "the default state directory, or where --admin, --config or --store say.",
        .actions = keys_actions,
        .flags = keys_flags,
        .examples = keys_examples,
        .exits = keys_exits,
    },
    {
        .name = "audit",
        .run = hx_cmd_audit,
        .summary = "list, verify and export every change of state",
        .usage = "hapax audit list [FILTER]\nhapax audit verify [--anchor ANCHOR]\n"
                 "hapax audit export [FILTER] [--csv TABLE]",
        .details = "The store is read as it is, whether a gateway uses it or not, so run the command as the daemon's "
                   "user or root. A FILTER is any of --since, --before, --route and --operation. Keys, callers and "
                   "payloads are shown as their MACs.",
        .actions = audit_actions,
        .flags = audit_flags,
        .examples = audit_examples,
        .exits = audit_exits,
    },
    {
        .name = "tokens",
        .run = hx_cmd_tokens,
        .summary = "make, list and revoke the tokens of the API",
        .usage = "hapax tokens create NAME --scope SCOPES [--tenant TENANT]\nhapax tokens list\n"
                 "hapax tokens revoke ID|NAME",
        .details = "Programs use the API (option api.listen) with a token, as `Authorization: Bearer TOKEN`. Several "
                   "tokens may have the same name, which is the one that logs and histories show. The command asks the "
                   "running daemon on its admin socket, so run it as the daemon's user or root.",
        .actions = tokens_actions,
        .flags = tokens_flags,
        .examples = tokens_examples,
        .exits = keys_exits,
    },
    {
        .name = "events",
        .run = hx_cmd_events,
        .summary = "publish and show events, and send deliveries again",
        .usage = "hapax events list [--source NAME] [--tenant NAME] [--limit N]\n"
                 "hapax events show ID\n"
                 "hapax events publish TYPE --data JSON|@FILE [FLAGS]\n"
                 "hapax events publish TYPE - [FLAGS]\n"
                 "hapax events tail --stream NAME [--after N|--consumer NAME] [--limit N]\n"
                 "hapax events cancel ID\nhapax events dead [--endpoint ID] [--state STATE]\n"
                 "hapax events redrive ID [--endpoint ID]\n"
                 "hapax events redrive --endpoint ID|--all [--rate N/s] [--yes] [--detach]\n"
                 "hapax events redrives [ID]\nhapax events stop ID [--why TEXT]\n"
                 "hapax events pause [--why TEXT]\nhapax events resume [--yes]",
        .details = "Times are relative; --json has the exact ones, and whole responses. Without a terminal, redrive of "
                   "several deliveries only counts them unless --yes is given. The command asks the running daemon on "
                   "its admin socket, so run it as the daemon's user or root.",
        .actions = events_actions,
        .flags = events_flags,
        .examples = events_examples,
        .exits = keys_exits,
    },
    {
        .name = "consumers",
        .run = hx_cmd_consumers,
        .summary = "list the consumers of streams, and move them",
        .usage = "hapax consumers list [--stream NAME] [--tenant NAME] [--limit N]\n"
                 "hapax consumers seek CONSUMER POSITION --stream NAME [--tenant NAME]",
        .details = "A consumer is a position in a stream: the last event that a program has processed. The program "
                   "moves it forward by the API; only seek moves it back. The command asks the running daemon on its "
                   "admin socket, so run it as the daemon's user or root.",
        .actions = consumers_actions,
        .flags = consumers_flags,
        .examples = consumers_examples,
        .exits = keys_exits,
    },
    {
        .name = "endpoints",
        .run = hx_cmd_endpoints,
        .summary = "add, change and diagnose the endpoints that get events",
        .usage = "hapax endpoints list [--tenant NAME]\nhapax endpoints add URL [FLAGS]\n"
                 "hapax endpoints change ID [FLAGS]\nhapax endpoints disable ID --why TEXT\n"
                 "hapax endpoints rotate ID [--overlap TIME]\nhapax endpoints show|enable|delete|why ID\n"
                 "hapax endpoints test ID\nhapax endpoints skip ID EVENT\n"
                 "hapax endpoints recover ID --since TIME [--rate N] [--yes] [--detach]",
        .details = "Deliveries are signed by Standard Webhooks; `hapax verify` and `hapax listen` check that. An "
                   "endpoint of a tenant is found with --tenant. The command asks the running daemon on its admin "
                   "socket, so run it as the daemon's user or root.",
        .actions = endpoints_actions,
        .flags = endpoints_flags,
        .examples = endpoints_examples,
        .exits = endpoints_exits,
    },
    {
        .name = "prove",
        .run = hx_cmd_prove,
        .summary = "try what retries do to an API, directly and behind Hapax",
        .usage = "hapax prove URL [-d BODY] [-H 'N: V'] [--id POINTER | --count URL] [FLAGS]",
        .details =
            "Sends the same request twice, ten times at once, with another body, again after a dropped connection, and "
            "again after a crash of the gateway, which it starts itself on this machine with a store that is removed "
            "at the end. It first says what it will send, and asks; without a terminal it needs --yes. Responses alone "
            "don't show how often something was done: without --id or --count it can't tell in many cases.",
        .flags = hx_prove_flags,
        .examples = hx_prove_examples,
        .exits = hx_prove_exits,
    },
    {
        .name = "reload",
        .run = hx_cmd_reload,
        .summary = "make a running daemon reload its configuration",
        .usage = "hapax reload [--accept-rescope] [--admin unix:PATH | -c FILE | -s STORE]",
        .details = "Requests in flight keep the rules they started with. The command ends when every worker uses the "
                   "new ones. A reload is refused, and changes nothing, if the file has a mistake, if it changes an "
                   "option that needs a restart (listen, upstream, store, workers, admin, api.listen), or if a "
                   "route would no longer recognise its live operations because its name, principal, key or "
                   "fingerprint rules have changed. Flags that the daemon was started with still override the file.",
        .flags = reload_flags,
        .examples = reload_examples,
        .exits = reload_exits,
    },
    {
        .name = "run",
        .run = hx_cmd_run,
        .summary = "run a command once for its key, from cron, timers and scripts",
        .usage = "hapax run --key KEY [FLAGS] -- COMMAND [ARGUMENT...]\n"
                 "hapax run --status --key KEY\n"
                 "hapax run --resolve done|failed|release --key KEY",
        .details =
            "The first call with a key runs the command, and keeps its output and exit code; later calls print the "
            "same output and exit with the same code, and calls that come meanwhile wait for it. If the command is "
            "killed, or leaves processes behind that left its session, nobody can know what it did: that is unknown, "
            "and it is not run again before somebody says how it ended. Everything that the command has started is "
            "killed when this process ends or loses its claim.",
        .flags = hx_run_flags,
        .examples = hx_run_examples,
        .exits = hx_run_exits,
        .files = hx_run_files,
        .environment = hx_run_environment,
    },
    {
        .name = "send",
        .run = hx_cmd_send,
        .summary = "send a request that takes effect once, whatever fails",
        .usage = "hapax send METHOD URL [-d BODY] [-H 'N: V'] [--key KEY | --for NAME] [FLAGS]\n"
                 "hapax send --resume [NAME|KEY]\n"
                 "hapax send --status|--forget NAME|KEY\n"
                 "hapax send --list",
        .details =
            "The request and its key are written down, and synced, before the first attempt; every attempt, and "
            "every later call with the same name or key, uses the same ones. Connect errors, timeouts, 429 and 5xx "
            "are retried, Retry-After is obeyed, and a response that is marked as stored or replayed is final. "
            "The response goes to standard output, everything else to standard error.",
        .flags = hx_send_flags,
        .examples = hx_send_examples,
        .exits = hx_send_exits,
        .files = hx_send_files,
    },
    {
        .name = "mcp",
        .run = hx_cmd_mcp,
        .summary = "let agents send requests and run commands that take effect once",
        .usage = "hapax mcp --config FILE",
        .details = "A server of the Model Context Protocol on standard input and output, which an agent's client "
                   "starts. An agent names each operation by an intent; the same intent is the same operation, across "
                   "errors, timeouts and restarts. What agents may do is listed in the configuration. Credentials are "
                   "added here, and no agent sees them.",
        .actions = hx_mcp_tools_help,
        .flags = hx_mcp_flags,
        .examples = hx_mcp_examples,
        .exits = hx_mcp_exits,
        .files = hx_mcp_files,
    },
    {
        .name = "verify",
        .run = hx_cmd_verify,
        .summary = "check the signature of a webhook, and say what is wrong with it",
        .usage = "hapax verify --scheme NAME --secret-file FILE -H 'N: V' BODY\n"
                 "hapax verify --sign --scheme standard --secret-file FILE BODY",
        .details = "BODY is a file with the body as it was received, to the byte; - reads standard input. If no "
                   "signature matches, the usual mistakes are undone one by one: line ends that were changed, a secret "
                   "that was not decoded, or decoded where it must not be, another encoding. Neither the secret nor "
                   "the right signature is ever shown.",
        .flags = verify_flags,
        .examples = verify_examples,
        .exits = verify_exits,
    },
    {
        .name = "version",
        .run = hx_cmd_version,
        .summary = "print the version",
        .usage = "hapax version",
        .exits = simple_exits,
    },
    {
        .name = "help",
        .run = hx_cmd_help,
        .summary = "show the help of a command",
        .usage = "hapax help [COMMAND]",
        .exits = simple_exits,
    },
    {
        .name = "reference",
        .run = hx_cmd_reference,
        .summary = "print a page of the reference",
        .usage = "hapax reference options|errors|events|metrics|admin|commands",
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
