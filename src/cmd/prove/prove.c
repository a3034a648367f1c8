/* SPDX-License-Identifier: Apache-2.0 */
/* hapax prove: tries on anybody's API what duplicates, races, changed bodies, dropped connections and crashes do to it,
 * directly and behind a gateway of its own. It sends nothing before it has said what, and was told to. */
#include "base/check.h"
#include "base/program/read_file.h"
#include "base/text.h"
#include "cmd/cli/cmd.h"
#include "cmd/prove/view.h"
#include "core/json/json.h"
#include "core/time/units.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BODY_BYTES_MAX (1u << 20)
#define HEADER_BYTES_MAX (32u << 10)
#define UNAVAILABLE 69 /* EX_UNAVAILABLE */

typedef struct {
    hx_arena *arena;
    hx_prove_plan plan;
    hx_buf lines;
    const char *url, *method, *data, *changed, *timeout;
    bool is_bare, is_confirmed, json;
    hx_error_text error;
} arguments;

static bool add_header(arguments *given, hx_slice line)
{
    static const char *const ours[] = {"idempotency-key", "content-length", "host", "connection", "transfer-encoding"};
    hx_text_header header;
    if (!hx_text_split_header(line, &header) || !hx_slice_is_token(header.name))
        return hx_fail(given->error, "-H '%.*s' is neither 'Name: value' nor @FILE", HX_FMT(line));
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (hx_slice_eq_nocase(header.name, hx_slice_of(ours[i])))
            return hx_fail(given->error, "-H %s is not for here: it is made for each request", ours[i]);
    return hx_buf_printf(&given->lines, "%.*s: %.*s\r\n", HX_FMT(header.name), HX_FMT(header.value)) ||
           hx_fail(given->error, "the headers are too long");
}

static bool add_headers(arguments *given, const char *value)
{
    hx_slice text, why, line;
    if (value[0] != '@') return add_header(given, hx_slice_of(value));
    if (!hx_read_file(value + 1, HEADER_BYTES_MAX, given->arena, &text, &why))
        return hx_fail(given->error, "%.*s", HX_FMT(why));
    while (hx_slice_next(&text, '\n', &line))
        if (hx_slice_trim(line).len > 0 && !add_header(given, hx_slice_trim(line))) return false;
    return true;
}

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    const struct {
        const char *name;
        const char **text;
        bool *is_set;
    } flags[] = {
        {"request", &given->method, NULL},
        {"data", &given->data, NULL},
        {"changed", &given->changed, NULL},
        {"id", &given->plan.id, NULL},
        {"count", &given->plan.count_url, NULL},
        {"count-pointer", &given->plan.count_at, NULL},
        {"guarantee", &given->plan.guarantee, NULL},
        {"crash", &given->plan.crash, NULL},
        {"timeout", &given->timeout, NULL},
        {"cacert", &given->plan.ca_file, NULL},
        {"bare", NULL, &given->is_bare},
        {"yes", NULL, &given->is_confirmed},
        {"json", NULL, &given->json},
    };
    if (strcmp(flag, "header") == 0 && given->error[0] == '\0') (void)add_headers(given, value);
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(flag, flags[i].name) != 0) continue;
        if (flags[i].text) *flags[i].text = value;
        if (flags[i].is_set) *flags[i].is_set = true;
    }
}

static bool read_body(arguments *given, const char *text, hx_slice *body)
{
    hx_slice why;
    *body = HX_EMPTY;
    if (text && text[0] != '@') *body = hx_slice_of(text);
    if (!text || text[0] != '@') return true;
    return hx_read_file(text + 1, BODY_BYTES_MAX, given->arena, body, &why) ||
           hx_fail(given->error, "%.*s", HX_FMT(why));
}

/* Another body that is as valid as the first: the last digit that is in no string is another one. Empty where there is
 * none. */
static hx_slice change_number(hx_slice body, hx_arena *arena)
{
    bool in_string = false;
    size_t last = body.len;
    for (size_t i = 0; i < body.len; i++) {
        char c = body.ptr[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string && c >= '0' && c <= '9')
            last = i;
    }
    if (last == body.len) return HX_EMPTY;
    char *text = hx_arena_terminated(arena, body);
    text[last] = text[last] == '9' ? '8' : (char)(text[last] + 1);
    return (hx_slice){text, body.len};
}

static bool read_url(arguments *given, hx_prove_plan *plan)
{
    plan->url = hx_slice_of(given->url);
    size_t scheme = hx_slice_starts(plan->url, HX_LIT("http://"))    ? sizeof "http://" - 1
                    : hx_slice_starts(plan->url, HX_LIT("https://")) ? sizeof "https://" - 1
                                                                     : 0;
    if (scheme == 0) return hx_fail(given->error, "the URL must start with http:// or https://");
    size_t host_len = strcspn(given->url + scheme, "/?");
    plan->origin = hx_slice_first(plan->url, scheme + host_len);
    plan->target = hx_slice_from(plan->url, scheme + host_len);
    if (plan->target.len == 0 || plan->target.ptr[0] == '?')
        plan->target = hx_arena_printf(given->arena, "/%.*s", HX_FMT(plan->target));
    return host_len > 0 || hx_fail(given->error, "the URL must have a host");
}

static bool read_method(arguments *given, hx_prove_plan *plan)
{
    static const char *const safe[] = {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"};
    plan->method = hx_slice_of(given->method ? given->method : "POST");
    if (!hx_slice_is_token(plan->method) || plan->method.len > 31)
        return hx_fail(given->error, "%s is not a method", given->method);
    for (size_t i = 0; i < sizeof safe / sizeof safe[0]; i++)
        if (hx_slice_eq(plan->method, hx_slice_of(safe[i])))
            return hx_fail(given->error, "there is nothing to prove of %s, which takes no key", safe[i]);
    return true;
}

static bool read_plan(arguments *given)
{
    hx_prove_plan *plan = &given->plan;
    static const char *const guarantees[] = {"none", "atomic", "idempotent"};
    bool is_known = !plan->guarantee;
    hx_buf unused;
    if (given->error[0]) return false; /* of a header */
    for (size_t i = 0; i < 3 && !is_known; i++) is_known = strcmp(plan->guarantee, guarantees[i]) == 0;
    if (!is_known) return hx_fail(given->error, "--guarantee must be none, atomic or idempotent");
    if (!plan->guarantee) plan->guarantee = "none";
    plan->timeout = 30 * HX_SECOND;
    if (given->timeout &&
        (!hx_unit_read(hx_slice_of(given->timeout), &plan->timeout) || plan->timeout < 10 || plan->timeout > HX_HOUR))
        return hx_fail(given->error, "--timeout must be a time between 10ms and 1h");
    if (plan->count_at && !plan->count_url) return hx_fail(given->error, "--count-pointer needs --count");
    if (!plan->count_at) plan->count_at = "";
    if ((plan->id && !hx_json_is_pointer(hx_slice_of(plan->id))) || !hx_json_is_pointer(hx_slice_of(plan->count_at)))
        return hx_fail(given->error, "--id and --count-pointer take JSON pointers such as /data/id");
    if (!read_url(given, plan) || !read_method(given, plan) || !read_body(given, given->data, &plan->body) ||
        !read_body(given, given->changed, &plan->changed))
        return false;
    if (!given->changed) plan->changed = change_number(plan->body, given->arena);
    if (hx_slice_eq(plan->changed, plan->body) && given->changed)
        return hx_fail(given->error, "--changed must differ from the body");
    hx_slice lines = hx_buf_slice(&given->lines);
    hx_text_header header;
    bool has_type = plan->body.len == 0;
    while (hx_text_next_header(&lines, &header))
        has_type = has_type || hx_slice_eq_nocase(header.name, HX_LIT("content-type"));
    hx_buf_init(&unused, given->arena, HX_JSON_CANONICAL_BYTES(plan->body.len));
    if (!has_type && !add_header(given, hx_json_canonical(plan->body, given->arena, &unused)
                                            ? HX_LIT("Content-Type: application/json")
                                            : HX_LIT("Content-Type: application/octet-stream")))
        return false;
    plan->header_lines = hx_buf_slice(&given->lines);
    return true;
}

static bool is_confirmed(const arguments *given)
{
    char line[16];
    if (given->is_confirmed) return true;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) {
        fprintf(stderr, "hapax prove: nothing was sent: there is no terminal to ask on. Add --yes to send this.\n");
        return false;
    }
    fprintf(stderr, "Send them? [y/N] ");
    bool is_yes = fgets(line, sizeof line, stdin) && (line[0] == 'y' || line[0] == 'Y');
    if (!is_yes) fprintf(stderr, "Nothing was sent.\n");
    return is_yes;
}

static int exit_of(hx_prove_word word)
{
    return word == HX_PROVE_BROKEN ? HX_EXIT_NO : word == HX_PROVE_UNCLEAR ? HX_EXIT_UNKNOWN : HX_EXIT_OK;
}

/* Whether no request of the first case got as far as the API. */
static bool is_unreachable(const hx_prove_seen *seen)
{
    for (size_t i = 0; i < seen->count; i++)
        if (seen->responses[i].status > 0) return false;
    return true;
}

static int failed(const char *error, int code)
{
    fputs("hapax prove: ", stderr);
    hx_cmd_put_text(stderr, hx_slice_of(error));
    fputs(".\n", stderr);
    return code;
}

static int prove(arguments *given, hx_prover *prover, hx_prove_results *results)
{
    bool ids_differ[HX_PROVE_WAYS] = {false}, shows = isatty(STDERR_FILENO);
    for (unsigned i = 0; i < HX_PROVE_CASE_COUNT; i++) {
        for (unsigned way = 0; way < HX_PROVE_WAYS; way++) {
            hx_prove_seen *seen = &results->seen[i][way];
            results->has_way[way] = way == HX_PROVE_BARE || !given->is_bare;
            if (!results->has_way[way]) continue;
            if (shows) fprintf(stderr, "\r\033[K%s …", hx_prove_case_name(i));
            bool good = hx_prover_run(prover, way, i, seen, given->error);
            if (shows) fputs("\r\033[K", stderr);
            if (!good) return failed(given->error, UNAVAILABLE);
            if (i == 0 && way == HX_PROVE_BARE && is_unreachable(seen))
                return failed(hx_arena_terminated(given->arena, seen->responses[0].failure), UNAVAILABLE);
            if (i == HX_PROVE_NEW_KEY) ids_differ[way] = hx_prove_ids_differ(seen);
            results->verdicts[i][way] = hx_prove_judge(i, seen, ids_differ[way], given->arena);
        }
    }
    if (given->json)
        hx_prove_show_json(&given->plan, results, given->arena);
    else
        hx_prove_show(&given->plan, results, given->arena);
    return exit_of(hx_prove_summary(results, given->is_bare ? HX_PROVE_BARE : HX_PROVE_HAPAX));
}

static int run(arguments *given)
{
    hx_prover prover = {.plan = &given->plan, .arena = given->arena};
    if (!given->url) return hx_cmd_misused("prove", "it needs the URL to send requests to");
    if (!read_plan(given)) return hx_cmd_misused("prove", "%s.", given->error);
    hx_prove_show_plan(&given->plan, given->is_bare);
    if (!is_confirmed(given)) return HX_EXIT_USAGE;
    int code = hx_prover_open(&prover, !given->is_bare, given->error)
                   ? prove(given, &prover, hx_arena_zalloc(given->arena, sizeof(hx_prove_results)))
                   : failed(given->error, HX_EXIT_STORE);
    hx_prover_close(&prover);
    return code;
}

int hx_cmd_prove(int argc, char **argv)
{
    hx_arena arena = {0};
    arguments given = {.arena = &arena};
    int first = 0;
    hx_buf_init(&given.lines, &arena, HEADER_BYTES_MAX);
    int code = hx_cmd_flags(argc, argv, 1, take, &given, &first);
    if (code < 0) {
        given.url = first < argc ? argv[first] : NULL;
        code = run(&given);
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
