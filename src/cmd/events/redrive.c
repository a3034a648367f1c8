/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/events/redrive.h"

#include "base/check.h"
#include "base/program/progress.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/events/view.h"
#include "cmd/keys.h"
#include "core/json/json_writer.h"

#include <string.h>
#include <time.h>

#define LIMIT_MAX 1000000u
#define RATE_MAX 1000u
#define JOBS_SHOWN 100u
#define LOOK_INTERVAL_NS 200000000

/* What is asked for. */
typedef struct {
    hx_slice target;
    hx_slice members; /* of the body */
    uint64_t limit;   /* 0: none */
} wish;

static bool is_recovery(const hx_call *call)
{
    return strcmp(call->verb, "recover") == 0;
}

static uint64_t number_of(hx_call *call, hx_slice record, const char *name)
{
    uint64_t number = 0;
    bool is_number = hx_slice_to_u64(hx_slice_of(hx_keys_member(record, name, &call->arena)), &number);
    return is_number ? number : 0;
}

static bool is_true(hx_call *call, hx_slice record, const char *name)
{
    return strcmp(hx_keys_member(record, name, &call->arena), "true") == 0;
}

static int ask(hx_call *call, const wish *w, const char *more, hx_admin_reply *reply)
{
    hx_slice body = hx_arena_printf(&call->arena, "{%.*s%s%s}", HX_FMT(w->members), w->members.len > 0 ? "," : "",
                                    more);
    return hx_call_ask(call, "POST", w->target, body, reply);
}

int hx_count_deliveries(hx_call *call, const char *state, const char *endpoint, uint64_t *count, bool *more)
{
    hx_admin_reply reply;
    hx_buf body;
    const char *tenant = hx_call_flag(call, "tenant");
    hx_buf_init(&body, &call->arena, 4 * 6 * HX_CALL_TEXT_MAX);
    hx_json_open(&body, NULL, '{');
    hx_json_put_text(&body, "state", hx_slice_of(state));
    hx_json_put_text(&body, "endpoint", hx_slice_of(endpoint));
    if (tenant) hx_json_put_text(&body, "tenant", hx_slice_of(tenant));
    hx_json_put_bool(&body, "past_window", true);
    hx_json_put_bool(&body, "preview", true);
    hx_json_close(&body, '}');
    int code = hx_call_ask(call, "POST", HX_LIT("/v1/redrives"), hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    *count = number_of(call, reply.body, "would_redrive");
    *more = is_true(call, reply.body, "more");
    return -1;
}

static int redrive_one(hx_call *call, const char *endpoint)
{
    hx_admin_reply reply;
    hx_slice target = hx_call_target(call, "tenant", "deliveries", endpoint, call->operands[0], "redrive", NULL);
    int code = hx_call_ask(call, "POST", target, HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("It is sent again now, and retried on a new schedule if that fails.\n");
    return HX_EXIT_OK;
}

/* "10/s", or "10". -1 to go on. */
static int put_rate(const hx_call *call, hx_buf *body)
{
    const char *text = hx_call_flag(call, "rate");
    uint64_t rate;
    if (!text) return -1;
    hx_slice number = hx_slice_of(text);
    if (hx_slice_ends(number, HX_LIT("/s"))) number.len -= 2;
    if (!hx_slice_to_u64(number, &rate) || rate < 1 || rate > RATE_MAX)
        return hx_cmd_misused(call->command, "--rate must be between 1/s and %u/s", RATE_MAX);
    hx_json_put_number(body, "rate", rate);
    return -1;
}

/* The members that the flags name; without the braces. -1 to go on. */
static int put_members(hx_call *call, const char *const *texts, size_t count, wish *w)
{
    hx_buf body;
    uint64_t stop_after = 0;
    hx_buf_init(&body, &call->arena, 12 * 6 * HX_CALL_TEXT_MAX);
    hx_buf_puts(&body, "{");
    for (size_t i = 0; i < count; i++) {
        const char *value = hx_call_flag(call, texts[i]);
        if (value) hx_json_put_text(&body, texts[i], hx_slice_of(value));
    }
    int code = put_rate(call, &body);
    if (code < 0) code = hx_call_number(call, "stop-after", LIMIT_MAX, &stop_after);
    if (code < 0) code = hx_call_number(call, "limit", LIMIT_MAX, &w->limit);
    if (code >= 0) return code;
    if (stop_after > 0) hx_json_put_number(&body, "stop_after", stop_after);
    if (w->limit > 0) hx_json_put_number(&body, "limit", w->limit);
    if (hx_call_flag(call, "again")) hx_json_put_bool(&body, "again", true);
    if (call->operands[0] && strcmp(call->verb, "redrive") == 0)
        hx_json_put_text(&body, "event", hx_slice_of(call->operands[0]));
    w->members = hx_slice_from(hx_buf_slice(&body), 1);
    return -1;
}

static void print_outcome(hx_call *call, hx_slice job)
{
    static const struct {
        const char *member, *text;
    } rest[] = {{"skipped", "Pending or being sent, and left alone"},
                {"too_old", "Older than 7 days, and left alone"},
                {"gone", "Of endpoints that don't exist any more"},
                {"failed", "Failed again"}};
    (void)printf("Deliveries sent%s: %llu.\n", is_recovery(call) ? "" : " again",
                 (unsigned long long)number_of(call, job, "armed"));
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        if (number_of(call, job, rest[i].member) > 0)
            (void)printf("%s: %llu.\n", rest[i].text, (unsigned long long)number_of(call, job, rest[i].member));
    if (strcmp(hx_keys_member(job, "status", &call->arena), "stopped") == 0)
        (void)printf("It was stopped: %s.\n", hx_keys_member(job, "reason", &call->arena));
}

/* Shows the progress of a job until it has ended. */
static int follow(hx_call *call, hx_slice job, uint64_t total)
{
    hx_progress_bar progress;
    hx_admin_reply reply = {.body = job};
    const char *id = hx_keys_member(job, "id", &call->arena);
    int code = -1;
    if (hx_call_flag(call, "detach")) {
        if (call->json) return hx_call_put(&reply);
        (void)printf("%s\n", id);
        (void)fflush(stdout);
        (void)fprintf(stderr, "It goes on in the daemon. To look: hapax events redrives %s\n", id);
        return HX_EXIT_OK;
    }
    hx_progress_begin(&progress, "re-driving", total, call->json);
    while (code < 0 && strcmp(hx_keys_member(reply.body, "status", &call->arena), "running") == 0) {
        (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_INTERVAL_NS}, NULL);
        code = hx_call_ask(call, "GET", hx_call_target(call, "tenant", "redrives", id, NULL), HX_EMPTY, &reply);
        if (code < 0) hx_progress_at(&progress, number_of(call, reply.body, "armed"));
    }
    hx_progress_end(&progress);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    print_outcome(call, reply.body);
    return HX_EXIT_OK;
}

/* Counts, asks, and begins the job. `what` is what is counted: "dead deliveries". */
static int run_job(hx_call *call, const wish *w, const char *what)
{
    hx_admin_reply reply;
    int code = ask(call, w, "\"preview\":true", &reply);
    if (code >= 0) return code;
    uint64_t count = number_of(call, reply.body, "would_redrive"), old = number_of(call, reply.body, "too_old");
    bool more = is_true(call, reply.body, "more");
    uint64_t total = count + old;
    if (w->limit > 0 && w->limit < total) total = w->limit;
    if (!call->json) {
        (void)printf("%s: %s%llu.", what, more ? "more than " : "", (unsigned long long)(count + old));
        if (w->limit > 0 && (more || w->limit < count + old))
            (void)printf(" This sends up to %llu.", (unsigned long long)w->limit);
        if (old > 0)
            (void)printf("\n%llu are older than 7 days: receivers may have forgotten these events, and process them a "
                         "second time.",
                         (unsigned long long)old);
        (void)printf("\n");
    }
    bool is_wanted = total > 0 && hx_call_confirmed(call, is_recovery(call) ? "Send them?" : "Send them again?");
    if (!is_wanted && call->json) return hx_call_put(&reply);
    if (!is_wanted && total > 0) (void)printf("Nothing was sent. Add --yes to send them.\n");
    if (!is_wanted) return HX_EXIT_OK;
    code = ask(call, w, old > 0 ? "\"past_window\":true" : "\"preview\":false", &reply);
    return code < 0 ? follow(call, reply.body, total) : code;
}

int hx_events_redrive(hx_call *call)
{
    static const char *const texts[] = {"endpoint", "tenant", "from", "before", "why", "state"};
    const char *state = hx_call_flag(call, "state"), *endpoint = hx_call_flag(call, "endpoint");
    bool is_again = hx_call_flag(call, "again") != NULL, is_all = hx_call_flag(call, "all") != NULL;
    wish w = {.target = HX_LIT("/v1/redrives")};
    if (call->operands[0] && is_all) return hx_cmd_misused("events", "--all and ID exclude each other");
    if (call->operands[0] && endpoint) return redrive_one(call, endpoint);
    if (!call->operands[0] && (endpoint != NULL) == is_all)
        return hx_cmd_misused("events", "which deliveries? Give ID, --endpoint, both, or --all");
    if (!state) state = is_again ? "delivered" : "dead";
    if (strcmp(state, "dead") != 0 && strcmp(state, "held") != 0 && strcmp(state, "unknown") != 0 &&
        strcmp(state, "paused") != 0 && !(is_again && strcmp(state, "delivered") == 0))
        return hx_cmd_misused("events",
                              "--state must be dead, held, unknown or paused; --again sends what was delivered");
    int code = put_members(call, texts, sizeof texts / sizeof texts[0], &w);
    if (code >= 0) return code;
    if (is_again && !hx_call_flag(call, "state"))
        w.members = hx_arena_printf(&call->arena, "%.*s%s\"state\":\"delivered\"", HX_FMT(w.members),
                                    w.members.len > 0 ? "," : "");
    return run_job(call, &w, hx_arena_printf(&call->arena, "%s deliveries", state).ptr);
}

static int show_job(hx_call *call)
{
    static const char *const facts[] = {"id",      "kind",    "status", "reason",    "endpoint", "event",
                                        "state",   "by",      "why",    "rate",      "expected", "armed",
                                        "skipped", "too_old", "gone",   "delivered", "failed"};
    hx_admin_reply reply;
    hx_slice target = hx_call_target(call, "tenant", "redrives", call->operands[0], NULL);
    int code = hx_call_ask(call, "GET", target, HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        hx_table_fact(facts[i], hx_keys_member(reply.body, facts[i], &call->arena));
    hx_table_fact("started", hx_relative_time(reply.body, "started_at", &call->arena));
    hx_table_fact("ended", hx_relative_time(reply.body, "ended_at", &call->arena));
    return HX_EXIT_OK;
}

int hx_events_redrives(hx_call *call)
{
    hx_call_list jobs;
    hx_arena *arena = &call->arena;
    if (call->operands[0]) return show_job(call);
    int code = hx_call_list_read(call, hx_call_target(call, "tenant", "redrives", NULL), "redrives", JOBS_SHOWN, &jobs);
    if (code >= 0) return code;
    if (call->json) {
        hx_call_list_put(&jobs, "redrives");
        return HX_EXIT_OK;
    }
    hx_table_row *rows = hx_arena_zalloc(arena, (jobs.count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"ID", "STATUS", "STARTED", "KIND", "ENDPOINT", "ARMED", "FAILED", "BY"}};
    for (size_t i = 0; i < jobs.count; i++) {
        hx_slice job = jobs.items[i];
        const char *armed =
            hx_arena_printf(arena, "%s of %s", hx_cell(job, "armed", arena), hx_cell(job, "expected", arena)).ptr;
        rows[i + 1] = (hx_table_row){.cells = {hx_cell(job, "id", arena), hx_cell(job, "status", arena),
                                               hx_relative_time(job, "started_at", arena), hx_cell(job, "kind", arena),
                                               hx_cell(job, "endpoint", arena), armed, hx_cell(job, "failed", arena),
                                               hx_cell(job, "by", arena)}};
    }
    if (jobs.count > 0) hx_table_print(rows, jobs.count + 1, 8);
    (void)fflush(stdout);
    if (jobs.count == 0) (void)fprintf(stderr, "There are no jobs.\n");
    return HX_EXIT_OK;
}

int hx_events_stop(hx_call *call)
{
    hx_admin_reply reply;
    hx_buf body;
    const char *why = hx_call_flag(call, "why");
    hx_buf_init(&body, &call->arena, 6 * HX_CALL_TEXT_MAX + 64);
    hx_json_open(&body, NULL, '{');
    if (why) hx_json_put_text(&body, "why", hx_slice_of(why));
    hx_json_close(&body, '}');
    hx_slice target = hx_call_target(call, "tenant", "redrives", call->operands[0], "stop", NULL);
    int code = hx_call_ask(call, "POST", target, hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    print_outcome(call, reply.body);
    return HX_EXIT_OK;
}

int hx_events_recover(hx_call *call)
{
    static const char *const texts[] = {"since", "why"};
    wish w = {.target = hx_call_target(call, "tenant", "endpoints", call->operands[0], "recover", NULL)};
    if (!hx_call_flag(call, "since"))
        return hx_cmd_misused("endpoints", "--since is missing: from when on did it miss events?");
    int code = put_members(call, texts, sizeof texts / sizeof texts[0], &w);
    return code < 0 ? run_job(call, &w, "Events that it has not got") : code;
}
