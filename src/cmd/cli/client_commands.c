/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/cli/client_commands.h"

const hx_cmd_flag hx_send_flags[] = {
    {"header", "'N: V'", "a header, may be repeated; @FILE: lines of a file that is read at each attempt", 'H'},
    {"data", "TEXT", "the body; @FILE reads a file, @- standard input", 'd'},
    {"key", "KEY", "the Idempotency-Key; a random one by default. {date:ZONE}, {window:1h}, {body:/p} are filled in",
     'k'},
    {"for", "NAME", "your own name for the operation: the same name finds the same key again", 0},
    {"no-key", NULL, "send no key: a request that may have arrived is not repeated then, unless its method allows it",
     0},
    {"at", "TIME", "the time that {date} and {window} are made from; now by default", 0},
    {"class", "CLASS", "how often to retry: user, background or scheduled (user)", 0},
    {"attempts", "N", "at most N attempts, instead of the class's", 0},
    {"timeout", "TIME", "of one attempt (30s)", 0},
    {"budget", "TIME", "for all of it; the server is told what is left, in X-Request-Timeout", 0},
    {"key-lifetime", "TIME", "how long the server remembers keys, if it doesn't say so itself (23h)", 0},
    {"resume", NULL, "go on with the operation that is named, or with all that have not ended", 0},
    {"status", NULL,
     "say what became of the operation that is named. A Hapax gateway is asked, and waited for with --budget; the "
     "request is not sent",
     0},
    {"list", NULL, "list the operations, and remove what ended more than a week ago", 0},
    {"forget", NULL, "remove what is known of the operation that is named", 0},
    {"csv", "FILE", "write a line for each attempt: attempt,delay_ms,status,code,notes; - is standard output", 0},
    {"intents", "DIR", "where operations are written down", 0},
    {"cacert", "FILE", "trust these certificates instead of the system's", 0},
    {"json", NULL, "print the result as JSON", 0},
    {"quiet", NULL, "show no progress", 'q'},
    {0},
};

const hx_cmd_flag hx_run_flags[] = {
    {"key", "KEY", "what the command is done once for; {date:ZONE} and {window:1h} are filled in", 'k'},
    {"at", "TIME", "the time that {date} and {window} are made from; now by default", 0},
    {"store", "STORE",
     "sqlite:FILE, postgres://HOST/DATABASE, or a daemon: unix:PATH, http://HOST:PORT. HAPAX_STORE, --config, or a "
     "file in the state directory by default",
     's'},
    {"config", "FILE", "the store that this configuration names; if it is a journal, its daemon's socket", 'c'},
    {"token-file", "FILE", "the token for a daemon's API; HAPAX_TOKEN by default", 0},
    {"wait", "TIME", "how long to wait for the store (10s)", 0},
    {"no-wait", NULL, "don't wait for the same command that runs elsewhere: exit 75", 0},
    {"lifetime", "TIME", "how long the outcome is kept, and the command not run again (24h)", 0},
    {"retry-on", "CODES", "exit codes after which the command is run again: 75,100-110", 0},
    {"class", "CLASS", "how often to run it again: user, background or scheduled (user)", 0},
    {"on-failure", "WORD",
     "other exit codes: store, or release, so that the next call runs it again (store; with "
     "--class scheduled: release)",
     0},
    {"plain-codes", NULL, "exit codes 129 to 165 are like all others, and don't stand for signals", 0},
    {"output-max", "SIZE", "keep up to this much output, at most 8MiB (1MiB)", 0},
    {"no-store-output", NULL, "keep the exit code only", 0},
    {"outcome-file", "FILE", "write there, as JSON, what became of the operation", 0},
    {"status", NULL, "run nothing: print how the run of this key ended, and its output again", 0},
    {"resolve", "WORD", "say how a run ended that is unknown: done, failed, or release to run it again", 0},
    {0},
};

const hx_cmd_entry hx_send_examples[] = {
    {"hapax send POST https://api.example.com/refunds -d '{\"amount\": 5}'", "a new operation with a key of its own"},
    {"hapax send POST $URL -d @refund.json --for refund-order-17 -H @token.txt",
     "run it again as often as you like: it is sent once, or asked about with the same key"},
    {"hapax send POST $URL --key 'daily:{date:Europe/Berlin}:user-123'", "once for each day there"},
    {"hapax send --status refund-order-17", "did that go through?"},
    {"hapax send --resume", "after a crash: go on with everything that has not ended"},
    {0},
};

const hx_cmd_entry hx_send_exits[] = {
    {"0", "done"},
    {"1", "refused: the server said no, and nothing was done"},
    {"2", "usage, or the same name or key for another request; nothing was sent"},
    {"3", "the operation can't be written down or read, and nothing was done; where it may have been, it is 75"},
    {"69", "exhausted: nothing was done, and all attempts failed; --resume goes on"},
    {"75", "unknown: it may have been done; --resume asks again with the same key"},
    {0},
};

const hx_cmd_entry hx_send_files[] = {
    {"/var/lib/hapax-intents", "operations that root sent, one private file each; --intents or HAPAX_INTENTS say where "
                               "else"},
    {"$XDG_STATE_HOME/hapax-intents", "the same for other users; ~/.local/state/hapax-intents by default"},
    {"$STATE_DIRECTORY/intents", "the same in a systemd unit with StateDirectory="},
    {0},
};

const hx_cmd_entry hx_run_examples[] = {
    {"hapax run --key 'report:{date:Europe/Berlin}' -- ./report.sh", "once a day, however often it is called"},
    {"hapax run --key 'offers:{date:UTC}' --class scheduled -- ./offers.sh",
     "once a day, and after a failure again at the next call"},
    {"hapax run --key import-7 --retry-on 75 -- ./import.sh 7", "again after exit code 75"},
    {"hapax run --resolve done --key import-7", "after a crash: you looked, and it was done"},
    {0},
};

const hx_cmd_entry hx_run_exits[] = {
    {"0", "the command ended with 0, now or at its first run"},
    {"1-255", "the command's own code, of this run or of the first; --outcome-file tells it from these. With --status "
              "also 1: no command has run"},
    {"2", "usage, or the same key for another command line; nothing was run"},
    {"3", "the store can't be reached; nothing was run"},
    {"75", "unknown: the command was interrupted, now or in an earlier run, and may have done its work; or it runs "
           "elsewhere, with --no-wait"},
    {"126", "the command can't be started; the next call tries again"},
    {"127", "the command is not found; the next call tries again"},
    {0},
};

const hx_cmd_entry hx_run_files[] = {
    {"/var/lib/hapax-run.sqlite", "the store of commands that root runs; --store or HAPAX_STORE say where else"},
    {"$XDG_STATE_HOME/hapax-run.sqlite", "the same for other users; ~/.local/state/hapax-run.sqlite by default"},
    {"$STATE_DIRECTORY/run.sqlite", "the same in a systemd unit with StateDirectory="},
    {0},
};

const hx_cmd_entry hx_run_environment[] = {
    {"HAPAX_STORE", "the store, if --store is not given"},
    {"HAPAX_TOKEN", "the token for a daemon's API; the command doesn't get it"},
    {"HAPAX_KEY", "set for the command: the key, with its parts filled in"},
    {"HAPAX_OPERATION", "set for the command: the operation and its epoch, as in 0f3a….17, which grows with every "
                        "run: a fencing token"},
    {"HAPAX_ATTEMPT", "set for the command: 1, and one more for each time that it is run again"},
    {0},
};

const hx_cmd_flag hx_prove_flags[] = {
    {"request", "METHOD", "the method (POST)", 'X'},
    {"header", "'N: V'", "a header of every request, may be repeated; @FILE: lines of a file", 'H'},
    {"data", "TEXT", "the body; @FILE reads a file, @- standard input", 'd'},
    {"changed", "TEXT", "the body of the mismatch; by default the last number of the body, one higher", 0},
    {"id", "POINTER", "what identifies an effect in a response, such as /id", 0},
    {"count", "URL", "count effects by GET of this URL; {key} in it is replaced by the key", 0},
    {"count-pointer", "POINTER", "what is the count in its response: a number, or an array ('', all of it)", 0},
    {"guarantee", "WORD", "what the API promises, for the gateway: none, atomic or idempotent (none)", 0},
    {"crash", "COMMAND", "kills the API and starts it again; without it only the gateway is crashed", 0},
    {"bare", NULL, "directly only: for an API that is idempotent by itself", 0},
    {"timeout", "TIME", "of a request (30s)", 0},
    {"cacert", "FILE", "trust these certificates instead of the system's", 0},
    {"yes", NULL, "don't ask", 'y'},
    {"json", NULL, "print the result as JSON", 0},
    {0},
};

const hx_cmd_entry hx_prove_examples[] = {
    {"hapax prove http://127.0.0.1:3000/refunds -d '{\"amount\": 5}' --id /id", "compare the ids of responses"},
    {"hapax prove $URL -d @refund.json --count $LEDGER --count-pointer /refunds", "count the entries of a ledger"},
    {"hapax prove $URL -d @refund.json --bare --id /id --json --yes",
     "from a pipeline, for an API that claims to be idempotent"},
    {0},
};

const hx_cmd_entry hx_prove_exits[] = {
    {"0", "nothing is broken behind Hapax (with --bare: directly), and all of it could be seen"},
    {"1", "a case is broken there"},
    {"2", "usage, or it was not confirmed; nothing was sent"},
    {"3", "the gateway could not be started"},
    {"69", "the API can't be reached, or effects can't be counted"},
    {"75", "no case is broken there, and of at least one it can't be told"},
    {0},
};

const hx_cmd_flag hx_mcp_flags[] = {
    {"config", "FILE", "what agents may do, under `mcp`; everything else is refused", 'c'},
    {0},
};

const hx_cmd_entry hx_mcp_tools_help[] = {
    {"send_once", "send an HTTP request that takes effect once"},
    {"run_once", "run a command once, and return its exit code and output"},
    {"did_it_go_through", "say what became of an intent"},
    {"list_unknown", "list the intents that have no known outcome"},
    {0},
};

const hx_cmd_entry hx_mcp_examples[] = {
    {"hapax mcp --config /etc/hapax/agents.yaml", "as an MCP client starts it"},
    {"hapax check /etc/hapax/agents.yaml", "what agents may do by this file"},
    {0},
};

const hx_cmd_entry hx_mcp_exits[] = {
    {"0", "standard input has ended, and with it all calls"},
    {"2", "usage, or a mistake in the configuration"},
    {0},
};

const hx_cmd_entry hx_mcp_files[] = {
    {"$XDG_STATE_HOME/hapax-intents", "requests, as `hapax send` keeps them; `intents` under `mcp` says where else"},
    {"$XDG_STATE_HOME/hapax-intents/commands", "commands; their store is that of `hapax run`, or `store` under `mcp`"},
    {0},
};
