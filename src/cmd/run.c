/* SPDX-License-Identifier: Apache-2.0 */
/* hapax run: a command that runs once for its key, from cron, a timer or a script. The key is claimed in a store that
 * all callers share; the command's output and exit code are kept there, and later callers get them. */
#include "base/check.h"
#include "base/hex.h"
#include "base/program/read_file.h"
#include "base/rand.h"
#include "cmd/cli/ask_daemon.h"
#include "cmd/cli/cmd.h"
#include "cmd/run/runner.h"
#include "cmd/send/key_text.h"
#include "config/address.h"
#include "config/options.h"
#include "core/json/json_writer.h"
#include "core/operation/key.h"
#include "core/retry/backoff.h"
#include "core/retry/request_timeout.h"
#include "core/retry/retry_after.h"
#include "core/time/rfc3339.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAUSE (200 * INT64_C(1000000)) /* ns between attempts to reach the store */
#define SETTLE_FOR (30 * HX_SECOND)

typedef struct {
    hx_arena *arena;
    char **argv; /* the command; NULL: there is none */
    const char *key, *store, *config, *token_file, *at, *class, *retry_on, *on_failure, *outcome_file, *resolve;
    bool no_wait, no_store_output, plain_codes, status;
    uint64_t wait, lifetime, output_max;
    hx_slice full_key; /* with its parts filled in */
    hx_slice token;    /* for a daemon; empty: none */
    hx_retry_policy policy;
    hx_exit_rules rules;
    hx_error_text error;
} arguments;

/* One call of the command. */
typedef struct {
    arguments *given;
    hx_loop *loop;
    hx_run_claim *claim; /* NULL: the store can't be opened */
    unsigned attempt;    /* of the last start */
    bool is_replayed;
} job;

/* Reading the flags */

static const hx_option numbers[] = {
#define X(name_, field_, type_, low_, high_)                                                                           \
    {.name = (name_),                                                                                                  \
     .type = HX_OPTION_##type_,                                                                                        \
     .offset = offsetof(arguments, field_),                                                                            \
     .bytes = sizeof(uint64_t),                                                                                        \
     .low = (low_),                                                                                                    \
     .high = (high_)},
    X("wait", wait, DURATION, 0, HX_DAY) X("lifetime", lifetime, DURATION, HX_SECOND, 36500 * HX_DAY)
        X("output-max", output_max, BYTES, 1, HX_OUTPUT_MAX)
#undef X
};

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    const hx_cmd_target targets[] = {
        {"key", &given->key, NULL},
        {"store", &given->store, NULL},
        {"config", &given->config, NULL},
        {"token-file", &given->token_file, NULL},
        {"at", &given->at, NULL},
        {"class", &given->class, NULL},
        {"retry-on", &given->retry_on, NULL},
        {"on-failure", &given->on_failure, NULL},
        {"outcome-file", &given->outcome_file, NULL},
        {"resolve", &given->resolve, NULL},
        {"no-wait", NULL, &given->no_wait},
        {"no-store-output", NULL, &given->no_store_output},
        {"plain-codes", NULL, &given->plain_codes},
        {"status", NULL, &given->status},
        {0},
    };
    hx_cmd_take(targets, flag, value);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t number;
        if (strcmp(flag, numbers[i].name) != 0) continue;
        const char *wrong = hx_option_read(&numbers[i], hx_slice_of(value), given->arena, &number);
        if (wrong)
            (void)hx_fail(given->error, "--%s %s", flag, wrong);
        else
            hx_option_store(&numbers[i], given, number);
    }
}

static bool read_key(arguments *given)
{
    static const hx_key_rules any = {.format = HX_KEY_ANY, .len_min = 1, .len_max = 255};
    hx_ms at = hx_clock_wall();
    hx_slice text;
    if (!given->key) return hx_fail(given->error, "--key is missing: what is the command done once for?");
    if (given->at && !hx_rfc3339_read(hx_slice_of(given->at), &at))
        return hx_fail(given->error, "--at must be a time such as 2026-02-19T12:00:00Z");
    if (!hx_send_key(hx_slice_of(given->key), HX_EMPTY, at, given->arena, &text, given->error)) return false;
    hx_key_error wrong = hx_key_parse(text, &any, given->arena, &given->full_key);
    if (wrong != HX_KEY_OK) return hx_fail(given->error, "--key: %s", hx_key_error_text(wrong));
    return true;
}

static bool read_rules(arguments *given)
{
    hx_retry_class class = HX_CLASS_USER;
    if (given->class && (!hx_retry_class_parse(hx_slice_of(given->class), &class) || class == HX_CLASS_WEBHOOK))
        return hx_fail(given->error, "--class must be user, background or scheduled");
    given->policy = hx_retry_policy_of_class(class);
    given->rules.plain_codes = given->plain_codes;
    given->rules.releases_failures = class == HX_CLASS_SCHEDULED;
    if (given->on_failure) given->rules.releases_failures = strcmp(given->on_failure, "release") == 0;
    if (given->on_failure && !given->rules.releases_failures && strcmp(given->on_failure, "store") != 0)
        return hx_fail(given->error, "--on-failure must be store or release");
    if (!given->retry_on) return true;
    if (!hx_exit_codes_read(hx_slice_of(given->retry_on), &given->rules.retry_on))
        return hx_fail(given->error, "--retry-on must be exit codes from 1 to 255, such as 75,100-110");
    for (unsigned code = 1; code < 256; code++)
        if (hx_exit_is_signal(code) && !given->plain_codes && hx_exit_codes_has(&given->rules.retry_on, code))
            return hx_fail(given->error,
                           "--retry-on %u: by this code a shell says that a signal killed the command, which may have "
                           "done its work; with --plain-codes it is a code like all others",
                           code);
    return true;
}

/* A SQLite file of the user's own. */
static bool use_own_store(arguments *given)
{
    const char *unit = getenv("STATE_DIRECTORY"), *place = hx_address_default_store(false, given->arena);
    if (!place) return hx_fail(given->error, "there is no state directory: give --store sqlite:FILE");
    hx_slice path = hx_arena_printf(given->arena, "%s%crun.sqlite", place + strlen("journal:"), unit ? '/' : '-');
    for (size_t i = 1; i < path.len; i++)
        if (path.ptr[i] == '/') (void)mkdir(hx_arena_terminated(given->arena, hx_slice_first(path, i)), 0700);
    given->store = hx_arena_printf(given->arena, "sqlite:%s", path.ptr).ptr;
    return true;
}

static bool is_daemon(hx_slice url)
{
    return hx_slice_starts(url, HX_LIT("unix:")) || hx_slice_starts(url, HX_LIT("http://"));
}

/* The token is not for the command, which gets our environment. */
static bool read_token(arguments *given)
{
    const char *token = getenv("HAPAX_TOKEN");
    hx_slice why;
    given->token = hx_arena_copy(given->arena, hx_slice_of(token ? token : ""));
    (void)unsetenv("HAPAX_TOKEN");
    if (given->token_file && !hx_read_file(given->token_file, 4096, given->arena, &given->token, &why))
        return hx_fail(given->error, "--token-file: %.*s", HX_FMT(why));
    while (given->token.len > 0 && given->token.ptr[given->token.len - 1] == '\n') given->token.len--;
    for (size_t i = 0; i < given->token.len; i++)
        if (given->token.ptr[i] <= ' ' || given->token.ptr[i] > '~')
            return hx_fail(given->error, "the token must be visible ASCII characters");
    return true;
}

/* The store is what was configured, whether it answers or not: else a job would run once in each. */
static bool read_store(arguments *given)
{
    if (!given->store) given->store = getenv("HAPAX_STORE");
    if (!read_token(given)) return false;
    bool is_given = given->store && given->store[0];
    if (!is_given && given->config) {
        hx_slice url;
        if (hx_find_store_or_daemon("run", given->config, given->arena, &url) >= 0)
            return hx_fail(given->error, "--config: %s can't be used", given->config);
        given->store = hx_arena_terminated(given->arena, url);
    } else if (!is_given && !use_own_store(given)) {
        return false;
    }
    hx_slice url = hx_slice_of(given->store);
    if (hx_slice_starts(url, HX_LIT("unix:")) && !hx_slice_starts(url, HX_LIT("unix:/")))
        return hx_fail(given->error, "the socket's path must be absolute, as in --store unix:/run/hapax/admin.sock");
    if (is_daemon(url)) return true;
    const char *wrong = hx_address_check_store(url, given->arena);
    if (wrong) return hx_fail(given->error, "the store %s", wrong);
    if (hx_slice_starts(url, HX_LIT("journal:")))
        return hx_fail(given->error,
                       "a journal belongs to its daemon alone: ask the daemon, with --store unix:%s/admin.sock",
                       given->store + strlen("journal:"));
    if (hx_slice_eq(url, HX_LIT("memory:")))
        return hx_fail(given->error, "memory: ends with this process, so nobody would know that the command ran");
    return true;
}

/* What others are told */

/* Ends the call with `code`; `outcome` and the operation go to the file that was asked for. */
static int end(const job *j, const char *outcome, int exit_code, int code)
{
    const arguments *given = j->given;
    hx_buf json;
    if (!given->outcome_file) return code;
    hx_buf_init(&json, given->arena, 4096);
    hx_json_open(&json, NULL, '{');
    hx_json_put_text(&json, "outcome", hx_slice_of(outcome));
    if (exit_code >= 0)
        hx_json_put_number(&json, "exit_code", (uint64_t)exit_code);
    else
        hx_json_put_null(&json, "exit_code");
    hx_json_put_bool(&json, "replayed", j->is_replayed);
    hx_json_put_number(&json, "attempt", j->attempt);
    hx_json_put_text(&json, "key", given->full_key);
    if (j->claim)
        hx_json_put_hex(&json, "operation", j->claim->record.op.bytes, sizeof(hx_op));
    else
        hx_json_put_null(&json, "operation");
    hx_json_close(&json, '}');
    hx_buf_puts(&json, "\n");
    FILE *file = fopen(given->outcome_file, "w");
    bool is_written = file && fwrite(json.data, 1, json.len, file) == json.len;
    if (file && fclose(file) != 0) is_written = false;
    if (!is_written) fprintf(stderr, "hapax run: can't write %s: %s.\n", given->outcome_file, strerror(errno));
    return code;
}

static int end_unknown(const job *j, const char *why)
{
    fprintf(stderr,
            "hapax run: %s: the command may have done its work, or a part of it, and is not run again. Find out, then "
            "use `hapax run --resolve done|failed|release --key '%.*s'`.\n",
            why, HX_FMT(j->given->full_key));
    return end(j, "unknown", -1, HX_EXIT_UNKNOWN);
}

static int end_without_store(const job *j, const char *why)
{
    fprintf(stderr, "hapax run: %s.%s\n", why, j->given->argv ? " The command was not run." : "");
    return end(j, j->given->argv ? "not_run" : "unreachable", -1, HX_EXIT_STORE);
}

/* The operation */

static void pause_for(int64_t ns)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Writes the outcome in the claim's record; retried while the store can't be reached. */
static hx_store_result settle(job *j, hx_state state, const char *reason)
{
    hx_record *record = &j->claim->record, found;
    int64_t until = hx_clock_mono_ns() + SETTLE_FOR * 1000000;
    bool is_repeated = false;
    record->from_state = record->state;
    record->state = state;
    record->changed_at = j->claim->now();
    record->attempt = (uint16_t)j->attempt;
    record->reason = hx_slice_of(reason);
    hx_lifecycle_end_after(record, (hx_ms)j->given->lifetime, 0);
    for (;; is_repeated = true) {
        hx_store_result result = j->claim->ops->settle(j->claim, &found);
        if (result == HX_STORE_STALE && is_repeated && found.epoch == record->epoch && found.state == state)
            return HX_STORE_OK; /* the answer to an earlier try was lost */
        if (result == HX_STORE_OK || result == HX_STORE_STALE || hx_clock_mono_ns() >= until) return result;
        pause_for(PAUSE);
    }
}

/* Executing */

static void set_environment(const job *j)
{
    hx_arena *arena = j->given->arena;
    char digits[2 * sizeof(hx_op)];
    hx_hex_write(digits, j->claim->record.op.bytes, sizeof(hx_op));
    hx_slice operation = hx_arena_printf(arena, "%.*s.%" PRIu64, (int)sizeof digits, digits, j->claim->record.epoch);
    (void)setenv("HAPAX_KEY", hx_arena_terminated(arena, j->given->full_key), 1);
    (void)setenv("HAPAX_OPERATION", operation.ptr, 1);
    (void)setenv("HAPAX_ATTEMPT", hx_arena_printf(arena, "%u", j->attempt).ptr, 1);
}

/* Runs the command, again where its exit code allows it. */
static hx_exit_verdict execute(job *j, hx_runner *runner, hx_exit_report *report)
{
    hx_exit_verdict verdict;
    int64_t began = hx_clock_mono_ns();
    j->attempt = j->claim->ops->attempts(j->claim);
    for (unsigned attempts = 1;; attempts++) {
        j->attempt++;
        set_environment(j);
        hx_runner_run(runner, report);
        verdict = hx_exit_judge(&j->given->rules, report);
        if (verdict.outcome != HX_EXITED_AGAIN) return verdict;
        const hx_retry_question question = {.attempts = attempts,
                                            .elapsed = (hx_clock_mono_ns() - began) / 1000000,
                                            .retry_after = HX_RETRY_AFTER_NONE,
                                            .client_left = HX_TIMEOUT_NONE};
        hx_retry_answer answer = hx_retry_next(&j->given->policy, &question, hx_rand_u64());
        if (answer.verdict != HX_RETRY_AGAIN) return verdict;
        fprintf(stderr, "hapax run: exit code %u; it is run again in %.1f s.\n", report->code,
                (double)answer.delay / 1000);
        if (hx_runner_pause(runner, answer.delay)) continue;
        report->is_lost = runner->is_lost;
        return hx_exit_judge(&j->given->rules, report);
    }
}

static const char *why_unknown(job *j, const hx_runner *runner, const hx_exit_report *report)
{
    hx_arena *arena = j->given->arena;
    if (report->is_lost) return "the claim was lost while the command ran, and the command was killed";
    if (report->is_orphan) return "the command's supervisor was killed, and the command with it";
    if (report->has_left)
        return hx_arena_printf(arena, "processes had left the command's session and were killed: %s", runner->left).ptr;
    if (report->signal != 0) return hx_arena_printf(arena, "signal %d killed the command", report->signal).ptr;
    return hx_arena_printf(arena, "the command's exit code %u stands for a signal (or use --plain-codes)", report->code)
        .ptr;
}

static hx_answer answer_of(uint16_t status, hx_output *output)
{
    hx_answer answer = {.status = status};
    answer.retained = hx_output_record(output, &answer.body);
    if (!answer.retained) answer.body = HX_EMPTY;
    return answer;
}

/* Records the outcome; returns the exit code. */
static int conclude(job *j, const hx_runner *runner, const hx_exit_report *report, hx_exit_verdict verdict)
{
    hx_arena *arena = j->given->arena;
    hx_store_result result;
    if (verdict.outcome == HX_EXITED_UNKNOWN) {
        (void)settle(j, HX_UNKNOWN, verdict.reason); /* one that is not written ends with its lease, to the same */
        return end_unknown(j, why_unknown(j, runner, report));
    }
    if (report->start_error != 0)
        fprintf(stderr, "hapax run: %s can't be started: %s.\n", j->given->argv[0], strerror(report->start_error));
    if (verdict.outcome == HX_EXITED_COMPLETED || verdict.outcome == HX_EXITED_FAILED) {
        bool is_completed = verdict.outcome == HX_EXITED_COMPLETED;
        j->claim->record.result = hx_arena_printf(arena, "%u", verdict.code);
        j->claim->record.answer = answer_of(is_completed ? 200 : 500, runner->output);
        result = settle(j, is_completed ? HX_COMPLETED : HX_FAILED, "");
    } else {
        j->claim->ops->note_attempts(j->claim, j->attempt);
        result = settle(j, HX_ABSENT, verdict.reason);
    }
    if (result != HX_STORE_OK)
        return end_unknown(j, result == HX_STORE_STALE ? "the claim ended before the outcome was recorded"
                                                       : "the outcome could not be recorded");
    return end(j, hx_exit_outcome_name(verdict.outcome), (int)verdict.code, (int)verdict.code);
}

static int run_claimed(job *j)
{
    hx_output output;
    hx_exit_report report;
    hx_runner runner = {.loop = j->loop, .claim = j->claim, .argv = j->given->argv, .output = &output};
    hx_output_init(&output, j->given->no_store_output ? 0 : (size_t)j->given->output_max);
    hx_runner_begin(&runner);
    hx_exit_verdict verdict = execute(j, &runner, &report);
    hx_runner_end(&runner);
    int code = conclude(j, &runner, &report, verdict);
    hx_output_free(&output);
    return code;
}

/* Others have the key */

static int replay(job *j, const hx_record *found)
{
    uint64_t code;
    j->is_replayed = true;
    j->attempt = found->attempt;
    if (!hx_slice_to_u64(found->result, &code) || code > 255)
        return end_unknown(j, "the record of an earlier run can't be read");
    if (!found->answer.retained)
        fprintf(stderr, "hapax run: the command ran before; its output was not kept, its exit code was %u.\n",
                (unsigned)code);
    else if (!hx_output_replay(found->answer.body))
        return end_unknown(j, "the record of an earlier run can't be read");
    return end(j, found->state == HX_COMPLETED ? "completed" : "failed", (int)code, (int)code);
}

static int refuse_mismatch(const job *j, const hx_record *found)
{
    char first[17] = {0}, now[17] = {0};
    hx_hex_write(first, found->fingerprint.bytes, 8);
    hx_hex_write(now, j->claim->record.fingerprint.bytes, 8);
    fprintf(stderr,
            "hapax run: this key was first used for another command line (fingerprint %s, now %s). Nothing was run: "
            "repeat the first command line as it was, or use another key.\n",
            first, now);
    return end(j, "mismatch", -1, HX_EXIT_USAGE);
}

/* An exit code; -1: the key may be free now. */
static int meet(job *j, const hx_record *found)
{
    hx_run_claim *claim = j->claim;
    if (found->unreadable) return end_unknown(j, "the record of an earlier run can't be read");
    if (!hx_digest_eq(&found->fingerprint, &claim->record.fingerprint)) return refuse_mismatch(j, found);
    j->attempt = found->attempt;
    if (found->state == HX_PROCESSING && (!claim->no_wait || found->lease_until <= claim->now())) {
        claim->ops->await(claim, found);
        return -1;
    }
    if (found->state == HX_ABSENT || found->state == HX_EXPIRED) return -1;
    claim->ops->note_skip(claim);
    if (found->state == HX_COMPLETED || found->state == HX_FAILED) return replay(j, found);
    if (found->state == HX_UNKNOWN) return end_unknown(j, "how an earlier run ended is not known");
    fprintf(stderr, "hapax run: the command runs elsewhere, and --no-wait was given. Nothing was run.\n");
    return end(j, "running", -1, HX_EXIT_UNKNOWN);
}

/* The store can't be reached, or has no space: false when --wait is over. */
static bool try_again(const job *j, int64_t since)
{
    if (j->claim->is_refused || hx_clock_mono_ns() - since >= (int64_t)j->given->wait * 1000000) return false;
    pause_for(PAUSE);
    return true;
}

static int end_unreached(const job *j)
{
    return end_without_store(j, j->claim->error[0] ? j->claim->error : "the store can't be reached");
}

static int run(job *j)
{
    int64_t since = hx_clock_mono_ns();
    for (;;) {
        hx_record found;
        hx_store_result result = j->claim->ops->claim(j->claim, &found);
        if (result == HX_STORE_OK) return run_claimed(j);
        if (result == HX_STORE_EXISTS) {
            int code = meet(j, &found);
            if (code >= 0) return code;
        } else if (!try_again(j, since)) {
            return end_unreached(j);
        }
    }
}

/* Reads what the key is, as often as --wait allows. */
static bool read_operation(job *j, hx_record *found)
{
    int64_t since = hx_clock_mono_ns();
    while (j->claim->ops->read(j->claim, found) != HX_STORE_OK)
        if (!try_again(j, since)) return false;
    return true;
}

/* hapax run --status: did that run? */
static int show_status(job *j)
{
    hx_record found;
    if (!read_operation(j, &found)) return end_unreached(j);
    j->attempt = found.attempt;
    switch (found.unreadable ? HX_UNKNOWN : found.state) {
    case HX_COMPLETED:
    case HX_FAILED: return replay(j, &found);
    case HX_UNKNOWN: return end_unknown(j, "how an earlier run ended is not known");
    case HX_PROCESSING:
        fprintf(stderr, "hapax run: the command is running.\n");
        return end(j, "running", -1, HX_EXIT_UNKNOWN);
    default: break;
    }
    fprintf(stderr, "hapax run: no command has run for this key.\n");
    return end(j, "absent", -1, HX_EXIT_NO);
}

/* hapax run --resolve: somebody has found out */
static int resolve(job *j)
{
    static const struct {
        const char *word;
        hx_state state;
        uint16_t status;
        const char *code, *said;
    } words[] = {{"done", HX_COMPLETED, 200, "0", "completed"},
                 {"failed", HX_FAILED, 500, "1", "failed"},
                 {"release", HX_ABSENT, 0, "", "released: the next call runs the command"}};
    size_t i = 0;
    while (i < 3 && strcmp(words[i].word, j->given->resolve) != 0) i++;
    if (i == 3) return hx_cmd_misused("run", "--resolve must be done, failed or release");
    hx_record *record = &j->claim->record, found;
    if (!read_operation(j, &found)) return end_unreached(j);
    if (found.state != HX_UNKNOWN) {
        fprintf(stderr, "hapax run: this key is %s, not unknown: there is nothing to resolve.\n",
                hx_state_name(found.state));
        return end(j, hx_state_name(found.state), -1, HX_EXIT_USAGE);
    }
    *record = found;
    unsigned before = j->claim->ops->attempts(j->claim);
    j->attempt = found.attempt > before ? found.attempt : before + 1;
    record->answer = (hx_answer){.status = words[i].status};
    record->result = hx_slice_of(words[i].code);
    if (words[i].state == HX_ABSENT) j->claim->ops->note_attempts(j->claim, j->attempt);
    if (settle(j, words[i].state, "operator") != HX_STORE_OK)
        return end_unknown(j, "the key has changed meanwhile, or the store can't be written to");
    fprintf(stderr, "hapax run: '%.*s' is %s.\n", HX_FMT(j->given->full_key), words[i].said);
    return end(j, words[i].state == HX_ABSENT ? "released" : words[i].said, -1, HX_EXIT_OK);
}

static hx_run_claim *open_claim(const arguments *given, hx_loop *loop, hx_error_text error)
{
    const hx_run_claim wanted = {.loop = loop,
                                 .arena = given->arena,
                                 .key = given->full_key,
                                 .argv = given->argv,
                                 .lifetime = (hx_ms)given->lifetime,
                                 .no_wait = given->no_wait};
    hx_slice url = hx_slice_of(given->store);
    return is_daemon(url) ? hx_run_claim_at_daemon(&wanted, url, given->token, error)
                          : hx_run_claim_in_store(&wanted, url, error);
}

static int with_store(arguments *given)
{
    job j = {.given = given, .loop = hx_loop_new()};
    int64_t until = hx_clock_mono_ns() + (int64_t)given->wait * 1000000;
    for (;;) {
        j.claim = open_claim(given, j.loop, given->error);
        if (j.claim || is_daemon(hx_slice_of(given->store)) || hx_clock_mono_ns() >= until) break;
        pause_for(PAUSE);
    }
    int code = !j.claim         ? end_without_store(&j, given->error)
               : given->resolve ? resolve(&j)
               : given->status  ? show_status(&j)
                                : run(&j);
    hx_run_claim_close(&j.claim);
    hx_loop_free(&j.loop);
    return code;
}

/* Descriptors 0 to 2 are never those of a pipe or a store, even where the caller has closed them. */
static void fill_standard_streams(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO) {}
    if (fd >= 0) (void)close(fd);
}

int hx_cmd_run(int argc, char **argv)
{
    hx_arena arena = {0};
    arguments given = {.arena = &arena, .wait = 10 * HX_SECOND, .lifetime = HX_DAY, .output_max = 1u << 20};
    int first = 0;
    fill_standard_streams();
    int code = hx_cmd_flags(argc, argv, INT_MAX, take, &given, &first);
    if (code < 0) {
        if (first < argc) given.argv = argv + first;
        if (given.argv && strcmp(argv[first - 1], "--") != 0)
            code = hx_cmd_misused("run", "the command comes after --, as in `hapax run --key K -- command`");
        else if (given.resolve && given.status)
            code = hx_cmd_misused("run", "--resolve and --status exclude each other");
        else if (!given.argv == !(given.resolve || given.status))
            code = hx_cmd_misused("run", given.argv ? "--resolve and --status run no command"
                                                    : "there is no command after --");
        else if (given.error[0] || !read_key(&given) || !read_rules(&given) || !read_store(&given))
            code = hx_cmd_misused("run", "%s", given.error);
        else
            code = with_store(&given);
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
