/* SPDX-License-Identifier: Apache-2.0 */
/* hapax events: publishes, lists and shows the events of a running daemon, and sends deliveries again. */
#include "base/check.h"
#include "base/program/read_file.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/events/pause.h"
#include "cmd/events/redrive.h"
#include "cmd/events/tail.h"
#include "cmd/events/view.h"
#include "cmd/keys.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"

#include <string.h>

#define LIST_LIMIT 100u
#define LIST_LIMIT_MAX 10000u
#define DATA_BYTES_MAX (16u << 20)
#define KEY_BYTES_MAX 255u

/* Lists the records of a target, as JSON or as a table. */
static int list_records(hx_call *call, hx_slice target, const char *name,
                        void (*print)(const hx_slice *records, size_t count, hx_arena *arena))
{
    hx_call_list found;
    uint64_t limit = LIST_LIMIT;
    int code = hx_call_number(call, "limit", LIST_LIMIT_MAX, &limit);
    if (code < 0) code = hx_call_list_read(call, target, name, limit, &found);
    if (code >= 0) return code;
    if (call->json) {
        hx_call_list_put(&found, name);
        return HX_EXIT_OK;
    }
    if (found.count > 0) print(found.items, found.count, &call->arena);
    (void)fflush(stdout);
    if (found.count == 0) (void)fprintf(stderr, "No %s match.\n", name);
    if (found.more) (void)fprintf(stderr, "There are more: use --limit to see them.\n");
    return HX_EXIT_OK;
}

static int list(hx_call *call)
{
    return list_records(call, hx_call_target(call, "source tenant", "events", NULL), "events", hx_print_events);
}

static int dead(hx_call *call)
{
    hx_slice target = hx_call_target(call, "state=dead endpoint tenant", "deliveries", NULL);
    return list_records(call, target, "deliveries", hx_print_deliveries);
}

static int show(hx_call *call)
{
    static const struct {
        const char *name, *member;
        const char *(*text)(hx_slice record, const char *name, hx_arena *arena);
    } facts[] = {{"event", "id", hx_keys_member},
                 {"type", "type", hx_keys_member},
                 {"tenant", "tenant", hx_keys_member},
                 {"source", "source", hx_keys_member},
                 {"stream", "stream", hx_keys_member},
                 {"position", "position", hx_keys_member},
                 {"correlation", "correlation_id", hx_keys_member},
                 {"accepted", "accepted_at", hx_relative_time},
                 {"deliver at", "deliver_at", hx_relative_time}};
    hx_arena *arena = &call->arena;
    hx_admin_reply reply;
    hx_slice data;
    hx_slice target = hx_call_target(call, "tenant source", "events", call->operands[0], NULL);
    int code = hx_call_ask(call, "GET", target, HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        hx_table_fact(facts[i].name, facts[i].text(reply.body, facts[i].member, arena));
    if (hx_json_pointer(reply.body, HX_LIT("/data"), &data)) {
        (void)printf("\n");
        hx_cmd_put_json(stdout, data);
        (void)printf("\n");
    }
    if (hx_json_pointer(reply.body, HX_LIT("/body"), &data) && hx_json_string(data, arena, &data)) {
        (void)printf("\n");
        hx_cmd_put_text(stdout, data);
        (void)printf("\n");
    }
    size_t count, named;
    const hx_slice *deliveries = hx_keys_records(reply.body, "/deliveries", arena, &count);
    const hx_slice *recipients = hx_keys_records(reply.body, "/recipients", arena, &named);
    for (size_t i = 0; i < count && i < named; i++) {
        hx_slice recipient = recipients[i];
        if (!hx_json_string(recipients[i], arena, &recipient)) continue;
        bool is_received = hx_call_flag(call, "source") != NULL;
        hx_print_delivery(deliveries[i], is_received ? "the application" : hx_keys_clean(recipient, arena), arena);
    }
    if (count == 0) (void)printf("\nNo endpoint has subscribed to it.\n");
    return HX_EXIT_OK;
}

/* --data JSON, --data @FILE, or - for standard input. -1 to go on. */
static int read_data(hx_call *call, hx_slice *data)
{
    const char *given = hx_call_flag(call, "data"), *extra = call->operands[1];
    hx_slice error;
    hx_buf canonical;
    if (extra && (given || strcmp(extra, "-") != 0))
        return hx_cmd_misused("events", "unexpected argument \"%s\": give --data, or - to read it", extra);
    if (!extra && !given) return hx_cmd_misused("events", "publish needs --data, or - to read it from standard input");
    *data = given ? hx_slice_of(given) : HX_EMPTY;
    if ((extra || given[0] == '@') &&
        !hx_read_file(extra ? extra : given + 1, DATA_BYTES_MAX, &call->arena, data, &error)) {
        (void)fprintf(stderr, "hapax events: %.*s\n", HX_FMT(error));
        return HX_EXIT_USAGE;
    }
    hx_buf_init(&canonical, &call->arena, HX_JSON_CANONICAL_BYTES(data->len));
    if (!hx_json_canonical(*data, &call->arena, &canonical))
        return hx_cmd_misused("events", "the data must be JSON, such as '{\"amount\": 100}' or '\"a text\"'");
    return -1;
}

static bool is_key(const char *key)
{
    for (const char *at = key; at && *at; at++)
        if (*at <= ' ' || *at > '~') return false;
    return !key || (key[0] != '\0' && strlen(key) <= KEY_BYTES_MAX);
}

static int publish(hx_call *call)
{
    static const struct {
        const char *flag, *member;
    } members[] = {{"id", "id"},
                   {"tenant", "tenant"},
                   {"source", "source"},
                   {"correlation-id", "correlation_id"},
                   {"deliver-at", "deliver_at"},
                   {"stream", "stream"}};
    hx_slice data = HX_EMPTY;
    hx_buf body;
    hx_admin_reply reply;
    const char *version = hx_call_flag(call, "expected-version");
    uint64_t number = 0;
    if (version && !hx_slice_to_u64(hx_slice_of(version), &number))
        return hx_cmd_misused("events", "--expected-version must be a number, 0 for a stream without events");
    if (!is_key(hx_call_flag(call, "key")))
        return hx_cmd_misused("events", "--key must have 1 to %u visible ASCII characters", KEY_BYTES_MAX);
    int code = read_data(call, &data);
    if (code >= 0) return code;
    hx_buf_init(&body, &call->arena, data.len + 10 * 6 * HX_CALL_TEXT_MAX);
    hx_json_open(&body, NULL, '{');
    hx_json_put_text(&body, "type", hx_slice_of(call->operands[0]));
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        const char *value = hx_call_flag(call, members[i].flag);
        if (value) hx_json_put_text(&body, members[i].member, hx_slice_of(value));
    }
    if (version) hx_json_put_number(&body, "expected_version", number);
    hx_json_put_raw(&body, "data", data);
    hx_json_close(&body, '}');
    code = hx_call_ask(call, "POST", HX_LIT("/v1/events"), hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("%s\n", hx_keys_member(reply.body, "id", &call->arena));
    (void)fflush(stdout);
    if (reply.status == 200)
        (void)fprintf(stderr, "It was published before: nothing was published again.\n");
    else
        (void)fprintf(stderr, "Published. Endpoints that get it: %s.\n",
                      hx_keys_member(reply.body, "recipients", &call->arena));
    return HX_EXIT_OK;
}

static int cancel(hx_call *call)
{
    hx_admin_reply reply;
    int code = hx_call_ask(call, "DELETE", hx_call_target(call, "tenant", "events", call->operands[0], NULL), HX_EMPTY,
                           &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("Deliveries cancelled: %s. Already sent, being sent or ended: %s.\n",
                 hx_keys_member(reply.body, "cancelled", &call->arena),
                 hx_keys_member(reply.body, "not_cancelled", &call->arena));
    return HX_EXIT_OK;
}

int hx_cmd_events(int argc, char **argv)
{
    static const hx_action actions[] = {
        {"list", {NULL}, " source tenant limit ", list},
        {"show", {"ID"}, " tenant source ", show},
        {"publish",
         {"TYPE", "[-]"},
         " data id tenant source correlation-id deliver-at key stream expected-version ",
         publish},
        {"tail", {NULL}, " stream after consumer tenant limit ", hx_tail},
        {"cancel", {"ID"}, " tenant ", cancel},
        {"dead", {NULL}, " endpoint state tenant limit ", dead},
        {"redrive",
         {"[ID]"},
         " endpoint all state again from before tenant limit rate stop-after why yes detach ",
         hx_events_redrive},
        {"redrives", {"[ID]"}, " tenant ", hx_events_redrives},
        {"pause", {NULL}, " why ", hx_events_pause},
        {"resume", {NULL}, " yes ", hx_events_resume},
        {"stop", {"ID"}, " tenant why ", hx_events_stop},
        {0}};
    return hx_actions_run(argc, argv, actions);
}
