/* SPDX-License-Identifier: Apache-2.0 */
/* hapax endpoints: adds, changes and shows the endpoints of a running daemon, and says why one gets nothing. */
#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/events/redrive.h"
#include "cmd/events/view.h"
#include "cmd/keys.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"

#include <string.h>
#include <time.h>

#define ENDPOINTS_MAX 10000u
#define FAILURES_SHOWN 5u
#define BODY_BYTES_MAX (HX_CALL_FLAGS_MAX * (6u * HX_CALL_TEXT_MAX + 64u))
#define TEST_PAUSE_MS 100u
#define TEST_WAIT_MAX_MS 90000u /* beyond the longest time-out of an endpoint */
/* The flags of add and change. */
#define SETTINGS " type filter header rate concurrency timeout on-client-error description "

typedef enum { ACTIVE, FAILING, DISABLED } endpoint_state;

static const char *const state_names[] = {[ACTIVE] = "active", [FAILING] = "failing", [DISABLED] = "disabled"};

static endpoint_state state_of(hx_slice endpoint, hx_arena *arena)
{
    if (strcmp(hx_keys_member(endpoint, "disabled", arena), "true") == 0) return DISABLED;
    return hx_keys_member(endpoint, "failing_since", arena)[0] ? FAILING : ACTIVE;
}

/* When the endpoint got into its state. */
static const char *since(hx_slice endpoint, endpoint_state state, hx_arena *arena)
{
    static const char *const members[] = {
        [ACTIVE] = "created_at", [FAILING] = "failing_since", [DISABLED] = "disabled_at"};
    return hx_relative_time(endpoint, members[state], arena);
}

static int list(hx_call *call)
{
    hx_call_list all;
    hx_arena *arena = &call->arena;
    hx_slice target = hx_call_target(call, "tenant", "endpoints", NULL);
    int code = hx_call_list_read(call, target, "endpoints", ENDPOINTS_MAX, &all);
    if (code >= 0) return code;
    if (call->json) {
        hx_call_list_put(&all, "endpoints");
        return HX_EXIT_OK;
    }
    hx_table_row *rows = hx_arena_zalloc(arena, (all.count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"ID", "STATE", "SINCE", "TENANT", "TYPES", "URL", "DESCRIPTION"}};
    for (size_t i = 0; i < all.count; i++) {
        endpoint_state state = state_of(all.items[i], arena);
        const char *types = hx_keys_texts(all.items[i], "/types", arena);
        rows[i + 1] = (hx_table_row){.cells = {hx_cell(all.items[i], "id", arena), state_names[state],
                                               since(all.items[i], state, arena),
                                               hx_cell(all.items[i], "tenant", arena), types[0] ? types : "*",
                                               hx_cell(all.items[i], "url", arena),
                                               hx_cell(all.items[i], "description", arena)},
                                     .colour = hx_print_colour(state_names[state])};
    }
    if (all.count > 0) hx_table_print(rows, all.count + 1, 7);
    (void)fflush(stdout);
    if (all.count == 0) (void)fprintf(stderr, "There are no endpoints.\n");
    if (all.more) (void)fprintf(stderr, "These are the first %u: use --tenant to see others.\n", ENDPOINTS_MAX);
    return HX_EXIT_OK;
}

static void print_endpoint(hx_slice endpoint, hx_arena *arena)
{
    endpoint_state state = state_of(endpoint, arena);
    const char *types = hx_keys_texts(endpoint, "/types", arena);
    const char *rate = hx_keys_member(endpoint, "rate", arena);
    hx_table_fact("endpoint", hx_keys_member(endpoint, "id", arena));
    hx_table_fact("url", hx_keys_member(endpoint, "url", arena));
    hx_table_fact("tenant", hx_keys_member(endpoint, "tenant", arena));
    hx_table_fact("description", hx_keys_member(endpoint, "description", arena));
    hx_table_fact("state", hx_arena_printf(arena, "%s (%s)", state_names[state], since(endpoint, state, arena)).ptr);
    hx_table_fact("reason", hx_keys_member(endpoint, "disabled_reason", arena));
    hx_table_fact("types", types[0] ? types : "*");
    hx_table_fact("filters", hx_keys_member(endpoint, "filters", arena));
    hx_table_fact("rate", strcmp(rate, "0") == 0 ? "" : hx_arena_printf(arena, "%s a second", rate).ptr);
    hx_table_fact("concurrency", hx_keys_member(endpoint, "concurrency", arena));
    hx_table_fact("timeout", hx_keys_member(endpoint, "timeout", arena));
    hx_table_fact("on 4xx", hx_keys_member(endpoint, "on_client_error", arena));
    if (strcmp(hx_keys_member(endpoint, "ordered", arena), "true") == 0)
        hx_table_fact("order", "one at a time per stream");
}

/* Sends a request about the endpoint of the operand. -1 to go on. */
static int ask(hx_call *call, const char *method, hx_slice body, hx_admin_reply *reply)
{
    return hx_call_ask(call, method, hx_call_target(call, "tenant", "endpoints", call->operands[0], NULL), body, reply);
}

static int show(hx_call *call)
{
    hx_admin_reply reply;
    int code = ask(call, "GET", HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    print_endpoint(reply.body, &call->arena);
    return HX_EXIT_OK;
}

/* A list member of every value of a flag; '' adds nothing, and so clears the list. */
static void put_list(hx_call *call, hx_buf *body, const char *flag, const char *member, bool has_commas)
{
    hx_slice item;
    if (!hx_call_flag(call, flag)) return;
    hx_json_open(body, member, '[');
    for (size_t i = 0; i < call->flag_count; i++) {
        hx_slice rest = hx_slice_of(call->flags[i].value);
        if (strcmp(call->flags[i].name, flag) != 0) continue;
        while (rest.len > 0 && hx_slice_next(&rest, has_commas ? ',' : '\n', &item))
            if (hx_slice_trim(item).len > 0) hx_json_put_text(body, NULL, hx_slice_trim(item));
    }
    hx_json_close(body, ']');
}

/* {"/pointer": value}: a value that is JSON as it is, such as 100 or true, any other as a text. -1 to go on. */
static int put_filters(hx_call *call, hx_buf *body)
{
    if (!hx_call_flag(call, "filter")) return -1;
    hx_json_open(body, "filters", '{');
    for (size_t i = 0; i < call->flag_count; i++) {
        hx_slice given = hx_slice_of(call->flags[i].value), value;
        hx_buf canonical;
        if (strcmp(call->flags[i].name, "filter") != 0 || given.len == 0) continue;
        hx_slice pointer = hx_slice_first(given, hx_slice_find(given, '='));
        if (pointer.len == given.len || given.ptr[0] != '/')
            return hx_cmd_misused("endpoints", "--filter must be a JSON pointer and a value, such as /currency=EUR");
        value = hx_slice_from(given, pointer.len + 1);
        hx_json_put_text(body, NULL, pointer);
        hx_buf_puts(body, ":");
        hx_buf_init(&canonical, &call->arena, HX_JSON_CANONICAL_BYTES(value.len));
        if (hx_json_canonical(value, &call->arena, &canonical))
            hx_buf_put(body, hx_buf_slice(&canonical));
        else if (!hx_json_escape(body, value))
            return hx_cmd_misused("endpoints", "the filters are too long");
    }
    hx_json_close(body, '}');
    return -1;
}

/* The members that the flags name, without the closing brace. -1 to go on. */
static int put_settings(hx_call *call, hx_buf *body)
{
    static const struct {
        const char *flag, *member;
        bool is_number;
    } members[] = {{"url", "url", false},         {"description", "description", false},
                   {"timeout", "timeout", false}, {"on-client-error", "on_client_error", false},
                   {"rate", "rate", true},        {"concurrency", "concurrency", true}};
    hx_buf_init(body, &call->arena, BODY_BYTES_MAX);
    hx_json_open(body, NULL, '{');
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const char *text = hx_call_flag(call, members[i].flag);
        uint64_t number;
        if (!text) continue;
        if (!members[i].is_number)
            hx_json_put_text(body, members[i].member, hx_slice_of(text));
        else if (hx_slice_to_u64(hx_slice_of(text), &number))
            hx_json_put_number(body, members[i].member, number);
        else
            return hx_cmd_misused("endpoints", "--%s must be a number", members[i].flag);
    }
    put_list(call, body, "type", "types", true);
    put_list(call, body, "header", "headers", false);
    return put_filters(call, body);
}

static void say_once(const char *what)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "The %s is not shown again: give it to the receiver, and keep it as a secret.\n", what);
}

static int add(hx_call *call)
{
    hx_buf body;
    hx_admin_reply reply;
    const char *tenant = hx_call_flag(call, "tenant");
    int code = put_settings(call, &body);
    if (code >= 0) return code;
    hx_json_put_text(&body, "url", hx_slice_of(call->operands[0]));
    if (tenant) hx_json_put_text(&body, "tenant", hx_slice_of(tenant));
    if (hx_call_flag(call, "ordered")) hx_json_put_bool(&body, "ordered", true);
    hx_json_close(&body, '}');
    code = hx_call_ask(call, "POST", HX_LIT("/v1/endpoints"), hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    print_endpoint(reply.body, &call->arena);
    hx_table_fact("secret", hx_keys_member(reply.body, "secret", &call->arena));
    say_once("secret");
    return HX_EXIT_OK;
}

static int change(hx_call *call)
{
    hx_buf body;
    hx_admin_reply reply;
    int code = put_settings(call, &body);
    if (code >= 0) return code;
    if (body.len == 1) return hx_cmd_misused("endpoints", "what is to change? Give --url, --type, --rate or another");
    hx_json_close(&body, '}');
    code = ask(call, "PATCH", hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    print_endpoint(reply.body, &call->arena);
    return HX_EXIT_OK;
}

/* Sends POST …/ID/VERB with the flag's text as a member of the same name. -1 to go on. */
static int act(hx_call *call, const char *flag, hx_admin_reply *reply)
{
    hx_buf body;
    const char *text = hx_call_flag(call, flag);
    hx_buf_init(&body, &call->arena, 6 * HX_CALL_TEXT_MAX + 64);
    hx_json_open(&body, NULL, '{');
    if (text) hx_json_put_text(&body, flag, hx_slice_of(text));
    hx_json_close(&body, '}');
    hx_slice target = hx_call_target(call, "tenant", "endpoints", call->operands[0], call->verb, NULL);
    return hx_call_ask(call, "POST", target, hx_buf_slice(&body), reply);
}

/* enable, disable and delete. */
static int change_state(hx_call *call)
{
    hx_admin_reply reply;
    bool is_delete = strcmp(call->verb, "delete") == 0, is_disable = strcmp(call->verb, "disable") == 0;
    if (is_disable && !hx_call_flag(call, "why"))
        return hx_cmd_misused("endpoints", "--why is missing: give the reason, for others who ask");
    int code = is_delete ? ask(call, "DELETE", HX_EMPTY, &reply) : act(call, "why", &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("%s is %s\n", hx_keys_clean(hx_slice_of(call->operands[0]), &call->arena),
                 is_delete    ? "deleted. The deliveries that wait for it are cancelled."
                 : is_disable ? "disabled. Its deliveries wait for up to 5 days."
                              : "enabled. Its deliveries go on.");
    return HX_EXIT_OK;
}

static int rotate(hx_call *call)
{
    hx_admin_reply reply;
    const char *overlap = hx_call_flag(call, "overlap");
    int code = act(call, "overlap", &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("%s\n", hx_keys_member(reply.body, "secret", &call->arena));
    say_once("new secret");
    (void)fprintf(stderr, "The old one signs along for %s.\n", overlap ? overlap : "24h");
    return HX_EXIT_OK;
}

typedef struct {
    hx_slice endpoint;
    hx_call_list failed[2]; /* dead, and pending after a failure */
    uint64_t waiting, dead;
    bool more_waiting, more_dead;
} diagnosis;

/* -1 to go on. */
static int diagnose(hx_call *call, diagnosis *d)
{
    static const char *const states[] = {"dead", "pending"};
    const char *id = call->operands[0], *tenant = hx_call_flag(call, "tenant");
    hx_admin_reply reply;
    int code = ask(call, "GET", HX_EMPTY, &reply);
    d->endpoint = reply.body;
    if (code < 0) code = hx_count_deliveries(call, "pending", id, &d->waiting, &d->more_waiting);
    if (code < 0) code = hx_count_deliveries(call, "dead", id, &d->dead, &d->more_dead);
    for (size_t i = 0; i < 2 && code < 0; i++) {
        hx_slice target = hx_call_target(call, "tenant", "deliveries", NULL);
        target = hx_arena_printf(&call->arena, "%.*s%sstate=%s&endpoint=%s", HX_FMT(target), tenant ? "&" : "?",
                                 states[i], hx_keys_member(d->endpoint, "id", &call->arena));
        code = hx_call_list_read(call, target, "deliveries", FAILURES_SHOWN, &d->failed[i]);
    }
    return code;
}

/* The streams of an ordered endpoint that go no further. */
static void print_stopped(hx_slice endpoint, const char *id, hx_arena *arena)
{
    size_t count;
    const hx_slice *stopped = hx_keys_records(endpoint, "/stopped", arena, &count);
    for (size_t i = 0; i < count; i++) {
        const char *stream = hx_keys_member(stopped[i], "stream", arena);
        const char *event = hx_keys_member(stopped[i], "event", arena);
        (void)printf("%s%s stopped %s, at the event %s, which is %s.\n", stream[0] ? "The stream " : "Its order",
                     stream[0] ? stream : " is", hx_relative_time(stopped[i], "since", arena), event,
                     hx_keys_member(stopped[i], "state", arena));
        (void)
            printf("To send it again: hapax events redrive %s --endpoint %s. To go on without it: hapax endpoints skip "
                   "%s %s\n",
                   event, id, id, event);
    }
}

static int skip(hx_call *call)
{
    hx_admin_reply reply;
    hx_slice target = hx_call_target(call, "tenant", "deliveries", call->operands[0], call->operands[1], "skip", NULL);
    int code = hx_call_ask(call, "POST", target, HX_LIT("{}"), &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("%s is not sent to %s any more.\n", hx_keys_clean(hx_slice_of(call->operands[1]), &call->arena),
                 hx_keys_clean(hx_slice_of(call->operands[0]), &call->arena));
    return HX_EXIT_OK;
}

/* Waits until the delivery has been tried, or can't be. -1 to go on. */
static int wait_tried(hx_call *call, hx_slice target, hx_admin_reply *reply, hx_slice *attempt)
{
    const struct timespec pause = {.tv_nsec = TEST_PAUSE_MS * 1000000L};
    for (unsigned waited = 0; waited < TEST_WAIT_MAX_MS; waited += TEST_PAUSE_MS) {
        size_t count;
        int code = hx_call_ask(call, "GET", target, HX_EMPTY, reply);
        if (code >= 0) return code;
        const hx_slice *tries = hx_keys_records(reply->body, "/tries", &call->arena, &count);
        if (count > 0) {
            *attempt = tries[0];
            return -1;
        }
        (void)nanosleep(&pause, NULL);
    }
    (void)fprintf(stderr, "hapax: the event was not sent within %u s: the gateway is busy, or was stopped\n",
                  TEST_WAIT_MAX_MS / 1000);
    return HX_EXIT_NO;
}

/* Sends an event to the endpoint, and says what it answered. What it didn't take is not sent again. */
static int test(hx_call *call)
{
    hx_admin_reply reply, skipped;
    hx_slice attempt;
    hx_arena *arena = &call->arena;
    const char *id = call->operands[0];
    int code = hx_call_ask(call, "POST", hx_call_target(call, "tenant", "endpoints", id, "test", NULL), HX_LIT("{}"),
                           &reply);
    if (code >= 0) return code;
    const char *event = hx_keys_member(reply.body, "event", arena);
    code = wait_tried(call, hx_call_target(call, "tenant", "deliveries", id, event, NULL), &reply, &attempt);
    if (code >= 0) return code;
    bool is_well = strcmp(hx_keys_member(reply.body, "state", arena), "delivered") == 0;
    if (!is_well) { /* it may be over already */
        hx_slice skip_target = hx_call_target(call, "tenant", "deliveries", id, event, "skip", NULL);
        if (strcmp(hx_keys_member(reply.body, "state", arena), "pending") == 0)
            (void)!hx_call_ask(call, "POST", skip_target, HX_LIT("{}"), &skipped);
    }
    if (call->json) {
        (void)hx_call_put(&reply);
        return is_well ? HX_EXIT_OK : HX_EXIT_NO;
    }
    const char *status = hx_keys_member(attempt, "status", arena);
    hx_table_fact("event", event);
    hx_table_fact("answer", status[0] ? status : hx_keys_member(attempt, "error", arena));
    hx_table_fact("took", hx_arena_printf(arena, "%s ms", hx_keys_member(attempt, "ms", arena)).ptr);
    hx_table_fact("response", hx_keys_member(attempt, "response", arena));
    return is_well ? HX_EXIT_OK : HX_EXIT_NO;
}

static int why(hx_call *call)
{
    hx_arena *arena = &call->arena;
    diagnosis d;
    int code = diagnose(call, &d);
    if (code >= 0) return code;
    hx_slice shown[2 * FAILURES_SHOWN];
    size_t count = 0, tries;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < d.failed[i].count; k++) {
            (void)hx_keys_records(d.failed[i].items[k], "/tries", arena, &tries);
            if (tries > 0) shown[count++] = d.failed[i].items[k];
        }
    if (call->json) {
        (void)fputs("{\"endpoint\":", stdout);
        hx_cmd_put_json(stdout, hx_slice_trim(d.endpoint));
        (void)printf(",\"waiting\":%llu,\"more_waiting\":%s,\"dead\":%llu,\"more_dead\":%s,\"failed\":",
                     (unsigned long long)d.waiting, d.more_waiting ? "true" : "false", (unsigned long long)d.dead,
                     d.more_dead ? "true" : "false");
        hx_call_list_put(&(hx_call_list){shown, count, d.failed[0].more || d.failed[1].more}, "deliveries");
        (void)puts("}");
        return HX_EXIT_OK;
    }
    endpoint_state state = state_of(d.endpoint, arena);
    const char *reason = hx_keys_member(d.endpoint, "disabled_reason", arena);
    const char *id = hx_keys_member(d.endpoint, "id", arena), *when = since(d.endpoint, state, arena);
    if (state == DISABLED)
        (void)printf("%s was disabled %s: %s.\nTo let its deliveries go on: hapax endpoints enable %s\n", id, when,
                     reason[0] ? reason : "no reason was given", id);
    else if (state == FAILING)
        (void)printf("%s fails: the first failure in a row was %s.\n", id, when);
    else
        (void)printf("%s does not fail: its last delivery succeeded, or there was none.\n", id);
    (void)printf("Deliveries that wait: %s%llu. Dead: %s%llu.\n", d.more_waiting ? "more than " : "",
                 (unsigned long long)d.waiting, d.more_dead ? "more than " : "", (unsigned long long)d.dead);
    print_stopped(d.endpoint, id, arena);
    if (count > 0) (void)printf("\n");
    if (count > 0) hx_print_deliveries(shown, count, arena);
    return HX_EXIT_OK;
}

int hx_cmd_endpoints(int argc, char **argv)
{
    static const hx_action actions[] = {
        {"list", {NULL}, " tenant ", list},
        {"show", {"ID"}, " tenant ", show},
        {"add", {"URL"}, SETTINGS "tenant ordered ", add},
        {"change", {"ID"}, SETTINGS "tenant url ", change},
        {"delete", {"ID"}, " tenant ", change_state},
        {"enable", {"ID"}, " tenant ", change_state},
        {"disable", {"ID"}, " tenant why ", change_state},
        {"rotate", {"ID"}, " tenant overlap ", rotate},
        {"recover", {"ID"}, " tenant since limit rate stop-after why yes detach ", hx_events_recover},
        {"why", {"ID"}, " tenant ", why},
        {"skip", {"ID", "EVENT"}, " tenant ", skip},
        {"test", {"ID"}, " tenant ", test},
        {0}};
    return hx_actions_run(argc, argv, actions);
}
