/* SPDX-License-Identifier: Apache-2.0 */
/* run_once: `hapax run` for agents. The command runs in a process of its own, `hapax run`, which claims the key in a
 * store, supervises the command and keeps its outcome; so it goes on when this server is killed, and the next call with
 * the same intent waits for it. The intent here has the name, the words and, once it has ended, the outcome. */
#include "base/program/read_file.h"
#include "cmd/mcp/allow.h"
#include "cmd/mcp/tools.h"
#include "core/json/json_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_MAX (80u << 10)  /* of each stream; as JSON, both fit into an intent */
#define LIFETIME (365 * HX_DAY) /* as --lifetime says it */
#define PROGRESS_EVERY 10000    /* ms */
#define OUTCOME_MAX 4096u
#define COMMAND_MAX (128u << 10)
#define OUR_WORDS 12u
#define EXECUTABLE "/proc/self/exe"

#define FIELD(member, kind) HX_JSON_FIELD(hx_mcp_arguments, member, kind, HX_JSON_GIVEN)
static const hx_json_field fields[] = {FIELD(intent, TEXT), FIELD(command, TEXTS)};
static const hx_json_shape shape = HX_JSON_SHAPE(fields);

/* What `hapax run --outcome-file` says; the state is empty where it has said nothing. */
typedef struct {
    hx_slice outcome;
    uint64_t exit_code;
    bool replayed;
} reported;

static const hx_json_field reported_fields[] = {HX_JSON_FIELD(reported, outcome, TEXT, HX_JSON_STORED),
                                                HX_JSON_FIELD(reported, exit_code, NUMBER, HX_JSON_STORED),
                                                HX_JSON_FIELD(reported, replayed, BOOL, HX_JSON_STORED)};
static const hx_json_shape reported_shape = HX_JSON_SHAPE(reported_fields);

typedef struct {
    hx_buf kept;
    bool is_cut;
} stream;

/* The process */

static bool start(char **words, pid_t *pid, int from[2])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t piped;
    int out[2] = {-1, -1}, err[2] = {-1, -1}, why = 0;
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) why = errno;
    (void)sigemptyset(&piped);
    (void)sigaddset(&piped, SIGPIPE); /* which this process ignores */
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setsigdefault(&attributes, &piped);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
    if (why == 0) why = posix_spawn(pid, EXECUTABLE, &actions, &attributes, words, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(out[1]);
    (void)close(err[1]);
    from[0] = out[0];
    from[1] = err[0];
    return why == 0;
}

/* Reads both streams to their ends, and keeps what fits. */
static void collect(hx_mcp_call *call, const int from[2], stream streams[2])
{
    struct pollfd ready[2] = {{.fd = from[0], .events = POLLIN}, {.fd = from[1], .events = POLLIN}};
    char bytes[8192];
    while (ready[0].fd >= 0 || ready[1].fd >= 0) {
        int count = poll(ready, 2, PROGRESS_EVERY);
        if (count == 0) hx_mcp_progress(call, HX_LIT("the command is running"));
        for (int i = 0; i < 2 && count > 0; i++) {
            if (ready[i].fd < 0 || !ready[i].revents) continue;
            ssize_t got = read(ready[i].fd, bytes, sizeof bytes);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) ready[i].fd = -1;
            size_t room = OUTPUT_MAX - streams[i].kept.len, take = got > 0 ? (size_t)got : 0;
            if (take > room) streams[i].is_cut = true;
            hx_buf_put(&streams[i].kept, (hx_slice){bytes, take < room ? take : room});
        }
    }
    (void)close(from[0]);
    (void)close(from[1]);
}

static reported read_report(hx_mcp_call *call, const char *file)
{
    reported report = {.outcome = HX_EMPTY};
    hx_slice text, why;
    hx_error_text error;
    if (!hx_read_file(file, OUTCOME_MAX, &call->arena, &text, &why) ||
        !hx_json_read(&reported_shape, HX_JSON_STORED, text, &call->arena, &report, error))
        report = (reported){.outcome = HX_EMPTY};
    (void)unlink(file);
    return report;
}

/* Runs `hapax run` for the intent, with its command or with --status. */
static reported run_hapax(hx_mcp_call *call, const hx_intent *intent, const hx_texts *command, stream streams[2])
{
    hx_arena *arena = &call->arena;
    hx_slice store = call->server->config->store;
    char **words = hx_arena_alloc(arena, (OUR_WORDS + (command ? command->count : 0) + 1) * sizeof *words);
    char *file = hx_arena_terminated(arena, hx_arena_printf(arena, "%s/%.*s.outcome", call->server->commands,
                                                            HX_FMT(intent->request.key)));
    char *const ours[] = {"hapax",      "run",  "--key",          hx_arena_terminated(arena, intent->request.key),
                          "--lifetime", "365d", "--outcome-file", file};
    size_t count = sizeof ours / sizeof ours[0];
    pid_t pid;
    int from[2];
    memcpy(words, ours, sizeof ours);
    if (store.len > 0) {
        words[count++] = "--store";
        words[count++] = hx_arena_terminated(arena, store);
    }
    words[count++] = command ? "--" : "--status";
    for (size_t i = 0; command && i < command->count; i++)
        words[count++] = hx_arena_terminated(arena, command->items[i]);
    words[count] = NULL;
    for (int i = 0; i < 2; i++) hx_buf_init(&streams[i].kept, arena, OUTPUT_MAX);
    (void)unlink(file);
    if (!start(words, &pid, from)) return (reported){.outcome = HX_LIT("not_run")};
    collect(call, from, streams);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
    return read_report(call, file);
}

/* The outcome */

static hx_slice output_json(hx_mcp_call *call, const stream streams[2])
{
    static const char *const names[] = {"stdout", "stderr"}, *const cut[] = {"stdout_is_cut", "stderr_is_cut"};
    hx_buf out;
    hx_buf_init(&out, &call->arena, HX_INTENT_RESPONSE_MAX);
    hx_json_open(&out, NULL, '{');
    for (int i = 0; i < 2; i++) {
        hx_slice text = hx_mcp_redact(call, streams[i].kept.len > 0 ? hx_buf_slice(&streams[i].kept) : HX_EMPTY);
        hx_json_put_text(&out, names[i], hx_slice_first(text, OUTPUT_MAX));
        hx_json_put_bool(&out, cut[i], streams[i].is_cut);
    }
    hx_json_close(&out, '}');
    return hx_buf_slice(&out);
}

/* Writes the outcome down, if it is one. */
static bool keep(hx_mcp_call *call, hx_intent *intent, const reported *report, const stream streams[2],
                 hx_error_text error)
{
    bool is_done = hx_slice_eq(report->outcome, HX_LIT("completed"));
    if (!is_done && !hx_slice_eq(report->outcome, HX_LIT("failed"))) return true;
    const hx_intent_outcome outcome = {.verdict = is_done ? HX_LIT("done") : HX_LIT("refused"),
                                       .at = hx_clock_wall(),
                                       .status = report->exit_code,
                                       .replayed = report->replayed,
                                       .original_time = HX_EMPTY,
                                       .content_type = HX_EMPTY,
                                       .note = HX_EMPTY,
                                       .body = output_json(call, streams)};
    return hx_intent_finish(intent, &outcome, error);
}

hx_slice hx_mcp_refresh_command(hx_mcp_call *call, hx_intent *intent)
{
    stream streams[2] = {0};
    hx_error_text error;
    if (intent->outcome.verdict.len > 0 || intent->attempt_count == 0) return HX_EMPTY;
    reported report = run_hapax(call, intent, NULL, streams);
    if (!keep(call, intent, &report, streams, error)) fprintf(stderr, "hapax mcp: %s.\n", error);
    return report.outcome;
}

static void tell_ended(hx_mcp_call *call, const hx_intent_outcome *outcome, bool is_old)
{
    char text[HX_RFC3339_BYTES];
    bool is_done = hx_slice_eq(outcome->verdict, HX_LIT("done"));
    hx_slice at = hx_rfc3339(outcome->at, text), message;
    if (is_old || outcome->replayed) /* replayed: by the store, which had it when this server asked */
        message = hx_arena_printf(&call->arena, "Already %s at %.*s%s, not repeated. This is its output.",
                                  is_done ? "done" : "run and failed", HX_FMT(at),
                                  outcome->replayed ? " or before" : "");
    else
        message = hx_slice_of(is_done ? "Done." : "The command ran and failed.");
    hx_mcp_say(call, is_done ? "done" : "failed", !is_done, message,
               is_done ? "Nothing more is to do. Only to run it a second time on purpose, choose a new intent."
                       : "It is not run again for this intent. Read its output; running it again on purpose needs a "
                         "new intent.");
    hx_json_put_number(&call->result, "exit_code", outcome->status);
    hx_json_put_time(&call->result, "at", outcome->at);
    hx_json_put_raw(&call->result, "output", outcome->body);
}

void hx_mcp_tell_command(hx_mcp_call *call, const hx_intent *intent, hx_slice state, bool is_old)
{
    if (intent->outcome.verdict.len > 0)
        tell_ended(call, &intent->outcome, is_old);
    else if (hx_slice_eq(state, HX_LIT("running")))
        hx_mcp_say(call, "running", true, HX_LIT("The command is running, or its process died less than a minute ago."),
                   "Call run_once again with the same intent and command: it waits for the end. Don't choose a new "
                   "intent.");
    else if (intent->attempt_count == 0 || hx_slice_eq(state, HX_LIT("absent")) ||
             hx_slice_eq(state, HX_LIT("released")) || hx_slice_eq(state, HX_LIT("not_run")))
        hx_mcp_say(call, "not_done", true,
                   HX_LIT("The command was not run: it, or the store of commands, can't be "
                          "used at the moment, or the server died before."),
                   "Call run_once again with the same intent and the same command.");
    else if (hx_slice_eq(state, HX_LIT("unreachable")) || state.len == 0)
        hx_mcp_say(call, "unknown", true, HX_LIT("Whether the command ran can't be found out now."),
                   "Ask did_it_go_through again in a minute. Don't choose a new intent.");
    else
        hx_mcp_say(call, "unknown", true,
                   HX_LIT("The command was interrupted, and may have done its work or a part of it. It is not run "
                          "again before somebody says how it ended."),
                   "Look whether its effect is there, and tell the operator, who settles it with the command in "
                   "\"resolve\". Don't choose a new intent before that.");
    hx_json_put_text(&call->result, "tool", HX_LIT("run_once"));
    hx_json_put_text(&call->result, "program", intent->request.url);
    if (strcmp(call->outcome, "unknown") == 0)
        hx_json_put_text(&call->result, "resolve",
                         hx_arena_printf(&call->arena, "hapax run --resolve done|failed|release --key %.*s",
                                         HX_FMT(intent->request.key)));
}

/* The call */

static void perform(hx_mcp_call *call, hx_intent *intent, const hx_texts *command)
{
    stream streams[2] = {0};
    hx_error_text error;
    if (intent->outcome.verdict.len > 0) {
        hx_mcp_tell_command(call, intent, HX_EMPTY, true);
        return;
    }
    if (hx_clock_wall() >= hx_intent_key_end(intent)) { /* the store may have forgotten it */
        hx_mcp_tell_command(call, intent, HX_LIT("unknown"), true);
        return;
    }
    if (!hx_intent_begin(intent, hx_clock_wall(), 0, error)) {
        hx_mcp_say_unusable(call, error);
        return;
    }
    reported report = run_hapax(call, intent, command, streams);
    hx_intent_attempt *attempt = &intent->attempts[intent->attempt_count - 1];
    attempt->note = hx_arena_copy(&intent->arena, report.outcome);
    attempt->nothing_sent = hx_slice_eq(report.outcome, HX_LIT("not_run")) ||
                            hx_slice_eq(report.outcome, HX_LIT("released"));
    attempt->in_doubt = !attempt->nothing_sent;
    if (!hx_intent_end(intent, error) || !keep(call, intent, &report, streams, error))
        fprintf(stderr, "hapax mcp: %s.\n", error); /* the store has the outcome */
    hx_mcp_tell_command(call, intent, report.outcome, false);
}

static bool read_command(hx_mcp_call *call, const hx_mcp_arguments *given, hx_intent_request *request)
{
    const hx_config_mcp *mcp = call->server->config;
    hx_buf words;
    if (call->arguments.len > COMMAND_MAX) return false;
    for (size_t i = 0; i < given->command.count; i++)
        if (memchr(given->command.items[i].ptr, '\0', given->command.items[i].len)) return false;
    if (!hx_mcp_allows_command(mcp, &given->command)) return false;
    hx_buf_init(&words, &call->arena, 6u * call->arguments.len + 64);
    hx_json_put_list(&words, NULL, given->command.items, given->command.count);
    *request = (hx_intent_request){.method = HX_LIT("RUN"),
                                   .url = given->command.items[0],
                                   .body = hx_buf_slice(&words),
                                   .class = HX_EMPTY,
                                   .key_lifetime = LIFETIME - HX_DAY};
    return true;
}

void hx_mcp_run_once(hx_mcp_call *call)
{
    hx_mcp_arguments given;
    hx_intent_request request;
    hx_intents intents;
    if (!hx_mcp_read(call, &shape, &given)) return;
    if (!read_command(call, &given, &request)) {
        hx_slice allowed = hx_mcp_allowed_commands(call->server->config, &call->arena);
        hx_mcp_say(call, "not_allowed", true,
                   hx_arena_printf(&call->arena,
                                   "Refused here: this command or one of its arguments is not allowed. Nothing was "
                                   "run. Allowed: %.*s. * is one argument that is no option, ** any others.",
                                   HX_FMT(allowed)),
                   "Use an allowed command, written as the list has it, or ask the operator of this server to allow "
                   "yours.");
        return;
    }
    if (!hx_mcp_open_folder(call, call->server->commands, &intents)) return;
    hx_intent *intent = hx_mcp_open(call, &intents, &request);
    if (intent) perform(call, intent, &given.command);
    hx_intent_close(&intent);
    hx_intents_close(&intents);
}
