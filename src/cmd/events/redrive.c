/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/events/redrive.h"

#include "base/check.h"
#include "base/program/progress.h"
#include "cmd/cli/cmd.h"
#include "cmd/keys.h"
#include "core/json/json_writer.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE 1000u /* deliveries in one request */
#define LIMIT_MAX 1000000u

typedef struct {
    const char *state;
    const char *endpoint; /* NULL: of all */
    uint64_t limit;
    bool is_preview;
} portion;

static int ask(hx_call *call, const portion *p, hx_admin_reply *reply)
{
    hx_buf body;
    const char *tenant = hx_call_flag(call, "tenant");
    hx_buf_init(&body, &call->arena, 4 * 6 * HX_CALL_TEXT_MAX);
    hx_json_open(&body, NULL, '{');
    hx_json_put_text(&body, "state", hx_slice_of(p->state));
    if (p->endpoint) hx_json_put_text(&body, "endpoint", hx_slice_of(p->endpoint));
    if (tenant) hx_json_put_text(&body, "tenant", hx_slice_of(tenant));
    hx_json_put_number(&body, "limit", p->limit);
    hx_json_put_bool(&body, "preview", p->is_preview);
    hx_json_close(&body, '}');
    return hx_call_ask(call, "POST", HX_LIT("/v1/deliveries/redrive"), hx_buf_slice(&body), reply);
}

static uint64_t number_of(hx_call *call, const hx_admin_reply *reply, const char *name)
{
    uint64_t number = 0;
    bool is_number = hx_slice_to_u64(hx_slice_of(hx_keys_member(reply->body, name, &call->arena)), &number);
    return is_number ? number : 0;
}

static bool has_more(hx_call *call, const hx_admin_reply *reply)
{
    return strcmp(hx_keys_member(reply->body, "more", &call->arena), "true") == 0;
}

int hx_count_deliveries(hx_call *call, const char *state, const char *endpoint, uint64_t *count, bool *more)
{
    hx_admin_reply reply;
    portion all = {.state = state, .endpoint = endpoint, .limit = AT_ONCE, .is_preview = true};
    int code = ask(call, &all, &reply);
    if (code >= 0) return code;
    *count = number_of(call, &reply, "would_redrive");
    *more = has_more(call, &reply);
    return -1;
}

static int redrive_one(hx_call *call)
{
    hx_admin_reply reply;
    const char *endpoint = hx_call_flag(call, "endpoint");
    if (!endpoint || hx_call_flag(call, "all"))
        return hx_cmd_misused("events", "one delivery is named by ID and --endpoint");
    hx_slice target = hx_call_target(call, "tenant", "deliveries", endpoint, call->operands[0], "redrive", NULL);
    int code = hx_call_ask(call, "POST", target, HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("It is sent again now, and retried on a new schedule if that fails.\n");
    return HX_EXIT_OK;
}

/* "10/s", or "10". -1 to go on; *rate stays 0 where there is none. */
static int read_rate(const hx_call *call, uint64_t *rate)
{
    const char *text = hx_call_flag(call, "rate");
    *rate = 0;
    if (!text) return -1;
    hx_slice number = hx_slice_of(text);
    if (hx_slice_ends(number, HX_LIT("/s"))) number.len -= 2;
    if (hx_slice_to_u64(number, rate) && *rate >= 1 && *rate <= AT_ONCE) return -1;
    return hx_cmd_misused("events", "--rate must be between 1/s and %u/s", AT_ONCE);
}

/* Whether to go on: --yes, or yes on a terminal. */
static bool is_confirmed(const hx_call *call)
{
    char answer[16] = "";
    if (hx_call_flag(call, "yes")) return true;
    if (call->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return false;
    (void)printf("Send them again? [y/N] ");
    (void)fflush(stdout);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

/* Sends up to `total`, in portions of a second where there is a rate. Those that fail again meanwhile may come back:
 * `total` bounds the run. */
static int redrive_many(hx_call *call, portion p, uint64_t total, uint64_t rate)
{
    hx_progress_bar progress;
    hx_admin_reply reply;
    uint64_t redriven = 0, skipped = 0, passed = 1;
    bool more = true;
    int code = -1;
    hx_progress_begin(&progress, "re-driving", total, call->json);
    while (more && passed > 0 && redriven + skipped < total && code < 0) {
        uint64_t left = total - redriven - skipped, most = rate > 0 ? rate : AT_ONCE;
        if (redriven + skipped > 0 && rate > 0) (void)nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
        p.limit = left < most ? left : most;
        code = ask(call, &p, &reply);
        if (code >= 0) break;
        passed = number_of(call, &reply, "redriven") + number_of(call, &reply, "skipped");
        redriven += number_of(call, &reply, "redriven");
        skipped += number_of(call, &reply, "skipped");
        more = has_more(call, &reply);
        hx_progress_at(&progress, redriven + skipped);
    }
    hx_progress_end(&progress);
    if (call->json) {
        (void)printf("{\"redriven\":%llu,\"skipped\":%llu,\"more\":%s}\n", (unsigned long long)redriven,
                     (unsigned long long)skipped, more ? "true" : "false");
        return code < 0 ? HX_EXIT_OK : code;
    }
    (void)printf("Deliveries sent again: %llu.\n", (unsigned long long)redriven);
    if (skipped > 0) (void)printf("%llu have changed meanwhile and were left alone.\n", (unsigned long long)skipped);
    if (more && code < 0) (void)printf("There are more: run the command again, or use --limit.\n");
    return code < 0 ? HX_EXIT_OK : code;
}

int hx_redrive(hx_call *call)
{
    const char *state = hx_call_flag(call, "state"), *endpoint = hx_call_flag(call, "endpoint");
    uint64_t limit = AT_ONCE, rate, count;
    bool more;
    if (call->operands[0]) return redrive_one(call);
    if ((endpoint != NULL) == (hx_call_flag(call, "all") != NULL))
        return hx_cmd_misused("events", "which deliveries? Give ID and --endpoint, or --endpoint, or --all");
    portion p = {.state = state ? state : "dead", .endpoint = endpoint};
    if (strcmp(p.state, "dead") != 0 && strcmp(p.state, "held") != 0 && strcmp(p.state, "unknown") != 0)
        return hx_cmd_misused("events", "--state must be dead, held or unknown: others are not sent again");
    int code = hx_call_number(call, "limit", LIMIT_MAX, &limit);
    if (code < 0) code = read_rate(call, &rate);
    if (code < 0) code = hx_count_deliveries(call, p.state, endpoint, &count, &more);
    if (code >= 0) return code;
    bool is_cut = limit < count || (more && limit > count);
    uint64_t total = more || limit < count ? limit : count;
    if (!call->json)
        (void)printf("%s deliveries: %s%llu.%s\n", p.state, more ? "more than " : "", (unsigned long long)count,
                     is_cut ? hx_arena_printf(&call->arena, " This sends up to %llu.", (unsigned long long)limit).ptr
                            : "");
    if (total > 0 && is_confirmed(call)) return redrive_many(call, p, total, rate);
    if (call->json)
        (void)printf("{\"would_redrive\":%llu,\"more\":%s}\n", (unsigned long long)(limit < count ? limit : count),
                     more ? "true" : "false");
    else if (total > 0)
        (void)printf("Nothing was sent. Add --yes to send them again.\n");
    return HX_EXIT_OK;
}
