/* SPDX-License-Identifier: Apache-2.0 */
/* hapax keys: lists the operations of a running daemon, and resolves those whose outcome is unknown. */
#include "cmd/keys.h"

#include "admin/filter.h"
#include "base/check.h"
#include "base/log.h"
#include "base/program/read_file.h"
#include "base/text.h"
#include "cmd/cli/ask_daemon.h"
#include "cmd/cli/cmd.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"

#include <string.h>

#define HEADERS_MAX 100u
#define BODY_BYTES_MAX (15u * 1024u * 1024u)
#define REQUEST_BYTES_MAX (6u * BODY_BYTES_MAX + 64u * 1024u)
#define TARGET_BYTES_MAX (16u * 1024u)
#define LIST_LIMIT 100u
#define PAGE_TEXT "1000" /* HX_STORE_PAGE_MAX */
#define CURSOR_BYTES 64u
#define RECORDS_MAX 1000000u

typedef struct {
    hx_admin_whereabouts where;
    const char *state, *route, *reason, *since, *before; /* which operations */
    const char *limit, *epoch;
    const char *status, *body, *why; /* what becomes of them */
    const char *headers[HEADERS_MAX];
    size_t header_count;
    bool completed, failed, release, yes, json, too_many_headers;
    const char *verb;
    const char *operand; /* KEY or ID; NULL: none */
    hx_slice address;
    hx_buf records;     /* of hx_slice, on the heap: those of all pages */
    const char *cursor; /* NULL: there is no page yet */
    hx_arena arena;
} keys;

static void take(void *user, const char *flag, const char *value)
{
    keys *k = user;
    const struct {
        const char *name;
        const char **text;
        bool *given;
    } flags[] = {
        {"admin", &k->where.admin, NULL}, {"config", &k->where.config, NULL},
        {"store", &k->where.store, NULL}, {"state", &k->state, NULL},
        {"route", &k->route, NULL},       {"reason", &k->reason, NULL},
        {"since", &k->since, NULL},       {"before", &k->before, NULL},
        {"limit", &k->limit, NULL},       {"epoch", &k->epoch, NULL},
        {"status", &k->status, NULL},     {"body", &k->body, NULL},
        {"why", &k->why, NULL},           {"completed", NULL, &k->completed},
        {"failed", NULL, &k->failed},     {"release", NULL, &k->release},
        {"yes", NULL, &k->yes},           {"json", NULL, &k->json},
    };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(flags[i].name, flag) != 0) continue;
        if (flags[i].text)
            *flags[i].text = value;
        else if (flags[i].given)
            *flags[i].given = true;
        return;
    }
    HX_CHECK(strcmp(flag, "header") == 0);
    if (k->header_count < HEADERS_MAX)
        k->headers[k->header_count++] = value;
    else
        k->too_many_headers = true;
}

static int complain(const char *sentence, int code)
{
    (void)fflush(stdout);
    (void)fprintf(stderr, "hapax keys: %s\n", sentence);
    return code;
}

/* Sends a request to the daemon. -1: the reply is there. Else the exit code, after a message. */
static int ask(keys *k, const char *method, hx_slice target, hx_slice body, hx_admin_reply *reply)
{
    hx_error_text error;
    hx_admin_request request = {.method = method, .target = target, .body = body};
    if (!hx_ask_daemon(k->address, &request, &k->arena, reply, error)) return complain(error, HX_EXIT_STORE);
    return -1;
}

static int refused(keys *k, const hx_admin_reply *reply)
{
    const char *detail = hx_keys_member(reply->body, "detail", &k->arena);
    const char *hint = hx_keys_member(reply->body, "hint", &k->arena);
    hx_slice operation;
    (void)fflush(stdout);
    (void)fprintf(stderr, "hapax keys: %s (%u)\n", detail[0] ? detail : "the daemon refused", reply->status);
    if (hx_json_pointer(reply->body, HX_LIT("/operation"), &operation))
        (void)fprintf(stderr, "It is %s, epoch %s, since %s. %s\n", hx_keys_member(operation, "state", &k->arena),
                      hx_keys_member(operation, "epoch", &k->arena), hx_keys_member(operation, "changed_at", &k->arena),
                      hx_keys_member(operation, "reason", &k->arena));
    if (hint[0]) (void)fprintf(stderr, "%s\n", hint);
    return reply->status >= 500 ? HX_EXIT_STORE : HX_EXIT_USAGE;
}

static void put_query(hx_buf *out, const char *name, const char *value)
{
    if (!value) return;
    hx_buf_puts(out, hx_slice_find(hx_buf_slice(out), '?') == SIZE_MAX ? "?" : "&");
    hx_buf_puts(out, name);
    hx_buf_puts(out, "=");
    hx_text_percent_put(out, hx_slice_of(value));
}

/* All filters together are bounded, so that they always fit into a target. */
static bool is_too_long(const keys *k)
{
    const char *const texts[] = {k->state, k->route, k->reason, k->since, k->before, k->operand, k->epoch, k->limit};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i] && strlen(texts[i]) > 500) return true;
    return false;
}

static hx_buf list_target(keys *k, const char *key, const char *limit, const char *cursor)
{
    hx_buf target;
    hx_buf_init(&target, &k->arena, TARGET_BYTES_MAX);
    hx_buf_puts(&target, "/v1/operations");
    put_query(&target, "state", k->state);
    put_query(&target, "route", k->route);
    put_query(&target, "reason", k->reason);
    put_query(&target, "from", k->since);
    put_query(&target, "before", k->before);
    put_query(&target, "key", key);
    put_query(&target, "limit", limit);
    put_query(&target, "cursor", cursor);
    return target;
}

/* Collects a page's records in k->records; k->cursor is where the next page begins, "" after the last. */
static size_t take_page(keys *k, hx_slice answer, const char *pointer)
{
    size_t count;
    const hx_slice *records = hx_keys_records(answer, pointer, &k->arena, &count);
    k->cursor = hx_keys_member(answer, "cursor", &k->arena);
    hx_buf_put(&k->records, (hx_slice){(const char *)records, count * sizeof *records});
    return k->records.len / sizeof *records;
}

static const hx_slice *all_records(const keys *k)
{
    return (const hx_slice *)(const void *)k->records.data;
}

static void print_array(const keys *k, size_t count)
{
    for (size_t i = 0; i < count; i++) (void)printf("%s%.*s", i > 0 ? ",\n" : "", HX_FMT(all_records(k)[i]));
}

static void print_more(const keys *k)
{
    (void)printf("\"more\":%s}\n", k->cursor[0] ? "true" : "false");
}

/* Adds one page to the newest. The daemon lists operations in no order, so every page is read; only the newest keep
 * their bytes. -1 to go on, with the next page's cursor. */
static int list_page(keys *k, hx_newest *newest, char cursor[CURSOR_BYTES])
{
    hx_admin_reply reply;
    hx_buf target = list_target(k, NULL, PAGE_TEXT, cursor[0] ? cursor : NULL);
    int code = ask(k, "GET", hx_buf_slice(&target), HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (reply.status != 200) return refused(k, &reply);
    size_t count;
    const hx_slice *records = hx_keys_records(reply.body, "/operations", &k->arena, &count);
    for (size_t i = 0; i < count; i++)
        hx_newest_add(newest, hx_keys_member(records[i], "changed_at", &k->arena), records[i]);
    (void)snprintf(cursor, CURSOR_BYTES, "%s", hx_keys_member(reply.body, "cursor", &k->arena));
    return -1;
}

static void print_newest(keys *k, const hx_newest *newest)
{
    bool more = newest->total > newest->count;
    if (k->json) {
        (void)printf("{\"operations\":[");
        for (size_t i = 0; i < newest->count; i++)
            (void)printf("%s%.*s", i > 0 ? ",\n" : "", HX_FMT(newest->items[i].record));
        (void)printf("],\"count\":%zu,\"more\":%s}\n", newest->count, more ? "true" : "false");
        return;
    }
    for (size_t i = 0; i < newest->count; i++)
        hx_buf_put(&k->records, (hx_slice){(const char *)&newest->items[i].record, sizeof(hx_slice)});
    if (newest->count > 0) hx_keys_print_list(all_records(k), newest->count, &k->arena);
    (void)fflush(stdout);
    if (newest->count == 0) (void)fprintf(stderr, "No operations match.\n");
    if (more)
        (void)fprintf(stderr, "These are the newest of %llu operations. Use --limit or a filter to see others.\n",
                      (unsigned long long)newest->total);
}

/* A line for each state in which requests are refused right now. -1 to go on. */
static int print_refusing(keys *k)
{
    static const struct {
        const char *pointer;
        hx_log_event event;
    } states[] = {
#define X(id, begins, ends) {"/refusing/" #begins, HX_EVENT_##begins},
#include "gateway/parts/store_health_states.def"
#undef X
    };
    hx_admin_reply reply;
    hx_slice value;
    int code = ask(k, "GET", HX_LIT("/v1/counts"), HX_EMPTY, &reply);
    if (code >= 0) return code;
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (hx_json_pointer(reply.body, hx_slice_of(states[i].pointer), &value) && hx_slice_eq(value, HX_LIT("true")))
            (void)fprintf(stderr, "Requests are refused: %s.\n", hx_log_about(states[i].event)->message);
    return -1;
}

static int list(keys *k)
{
    uint64_t limit = LIST_LIMIT;
    if (k->limit && (!hx_slice_to_u64(hx_slice_of(k->limit), &limit) || limit == 0 || limit > RECORDS_MAX))
        return hx_cmd_misused("keys", "--limit must be 1 to %u", RECORDS_MAX);
    hx_newest newest = {.max = (size_t)limit};
    char cursor[CURSOR_BYTES] = "";
    int code = print_refusing(k);
    if (code >= 0) return code;
    do {
        hx_arena whole = k->arena;
        k->arena = (hx_arena){0};
        code = list_page(k, &newest, cursor);
        hx_arena_free(&k->arena);
        k->arena = whole;
    } while (code < 0 && cursor[0]);
    hx_newest_sort(&newest);
    if (code < 0) print_newest(k, &newest);
    hx_newest_free(&newest);
    return code < 0 ? HX_EXIT_OK : code;
}

/* Reads the next page of a history. */
static int history_of(keys *k, const char *id, hx_admin_reply *reply)
{
    hx_buf target;
    hx_buf_init(&target, &k->arena, TARGET_BYTES_MAX);
    hx_buf_put(&target, hx_arena_printf(&k->arena, "/v1/operations/%s/history", id));
    put_query(&target, "cursor", k->cursor);
    return ask(k, "GET", hx_buf_slice(&target), HX_EMPTY, reply);
}

/* The operations that have the key. -1 to go on. */
static int list_by_key(keys *k, const hx_slice **found, size_t *count)
{
    hx_admin_reply reply;
    hx_buf target = list_target(k, k->operand, "1000", NULL);
    int code = ask(k, "GET", hx_buf_slice(&target), HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (reply.status != 200) return refused(k, &reply);
    *found = hx_keys_records(reply.body, "/operations", &k->arena, count);
    return -1;
}

/* Puts a later version in the place of an earlier one of its operation. */
static void add_version(keys *k, hx_slice *found, size_t *count, hx_slice record)
{
    const char *id = hx_keys_member(record, "id", &k->arena);
    if (k->route && strcmp(k->route, hx_keys_member(record, "route", &k->arena)) != 0) return;
    size_t i = *count;
    while (i > 0 && strcmp(hx_keys_member(found[i - 1], "id", &k->arena), id) != 0) i--;
    if (i > 0)
        found[i - 1] = record;
    else if (*count < HX_STORE_PAGE_MAX)
        found[(*count)++] = record;
}

/* Operations that had the key and are gone, in their last state: histories are kept longer. -1 to go on. */
static int list_gone(keys *k, const hx_slice **found, size_t *count)
{
    hx_slice *last = hx_arena_alloc(&k->arena, HX_STORE_PAGE_MAX * sizeof *last);
    const char *cursor = NULL;
    *found = last;
    *count = 0;
    do {
        hx_admin_reply reply;
        hx_buf target;
        hx_buf_init(&target, &k->arena, TARGET_BYTES_MAX);
        hx_buf_puts(&target, "/v1/history");
        put_query(&target, "key", k->operand);
        put_query(&target, "cursor", cursor);
        int code = ask(k, "GET", hx_buf_slice(&target), HX_EMPTY, &reply);
        if (code >= 0) return code;
        if (reply.status != 200) return refused(k, &reply);
        size_t versions;
        const hx_slice *records = hx_keys_records(reply.body, "/history", &k->arena, &versions);
        for (size_t i = 0; i < versions; i++) add_version(k, last, count, records[i]);
        cursor = hx_keys_member(reply.body, "cursor", &k->arena);
    } while (cursor[0]);
    return -1;
}

/* Takes the only operation that was found. -1 to go on. */
static int take_only(keys *k, const hx_slice *found, size_t count, hx_slice *operation)
{
    if (count == 0)
        return complain("no operation has this key or id. It was never used with this daemon's store, was released or "
                        "forgotten, or has expired",
                        HX_EXIT_USAGE);
    if (count > 1) {
        hx_keys_print_list(found, count, &k->arena);
        return complain("several routes or callers have used this key: give the id of the operation that you mean",
                        HX_EXIT_USAGE);
    }
    *operation = found[0];
    return -1;
}

static int find_by_key(keys *k, hx_slice *operation)
{
    const hx_slice *found = NULL;
    size_t count = 0;
    int code = list_by_key(k, &found, &count);
    return code >= 0 ? code : take_only(k, found, count, operation);
}

/* Finds an operation by its id, then by its key, because a key may look like an id. */
static int find_operation(keys *k, hx_slice *operation)
{
    hx_op op;
    hx_admin_reply reply;
    if (!hx_op_read(hx_slice_of(k->operand), &op)) return find_by_key(k, operation);
    int code = ask(k, "GET", hx_arena_printf(&k->arena, "/v1/operations/%s", k->operand), HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (reply.status == 404) return find_by_key(k, operation);
    if (reply.status != 200) return refused(k, &reply);
    if (hx_json_pointer(reply.body, HX_LIT("/operation"), operation)) return -1;
    return complain("the daemon's response can't be read", HX_EXIT_STORE);
}

/* Finds a history by id, then by key. An operation that is gone still has one. */
static int find_history(keys *k, hx_admin_reply *reply)
{
    hx_op op;
    hx_slice operation = HX_EMPTY;
    int code;
    if (hx_op_read(hx_slice_of(k->operand), &op)) {
        code = history_of(k, k->operand, reply);
        if (code >= 0 || reply->status != 404) return code;
    }
    const hx_slice *found = NULL;
    size_t count = 0;
    bool may_be_gone = !k->state && !k->reason && !k->since && !k->before; /* these select by the current state */
    code = list_by_key(k, &found, &count);
    if (code < 0 && count == 0 && may_be_gone) code = list_gone(k, &found, &count);
    if (code < 0) code = take_only(k, found, count, &operation);
    return code >= 0 ? code : history_of(k, hx_keys_member(operation, "id", &k->arena), reply);
}

static int show(keys *k)
{
    hx_admin_reply reply;
    int code = find_history(k, &reply);
    const char *id = NULL;
    size_t count = 0;
    while (code < 0) {
        if (reply.status != 200) return refused(k, &reply);
        if (!id) id = hx_keys_member(reply.body, "id", &k->arena);
        count = take_page(k, reply.body, "/history");
        if (!k->cursor[0] || count + HX_STORE_PAGE_MAX > RECORDS_MAX) break;
        code = history_of(k, id, &reply);
    }
    if (code >= 0) return code;
    if (k->json) {
        (void)printf("{\"id\":\"%s\",\"history\":[", id);
        print_array(k, count);
        (void)printf("],");
        print_more(k);
        return HX_EXIT_OK;
    }
    hx_keys_print_history(all_records(k), count, &k->arena);
    if (k->cursor[0]) return complain("the history is too long: later changes are not shown", HX_EXIT_STORE);
    return HX_EXIT_OK;
}

/* --body TEXT, @FILE or @- for standard input. */
static bool read_body(keys *k, hx_slice *body, hx_slice *error)
{
    *body = k->body ? hx_slice_of(k->body) : HX_EMPTY;
    if (!k->body || k->body[0] != '@') return true;
    return hx_read_file(k->body + 1, BODY_BYTES_MAX, &k->arena, body, error);
}

static void put_optional(hx_buf *out, const char *name, const char *text)
{
    if (text) hx_json_put_text(out, name, hx_slice_of(text));
}

/* Writes the members of the outcome. -1 to go on. */
static int put_outcome(keys *k, hx_buf *out)
{
    hx_slice body, decoded, error = HX_EMPTY;
    uint64_t status;
    hx_json_put_text(out, "outcome",
                     k->completed ? HX_LIT("completed")
                     : k->failed  ? HX_LIT("failed")
                                  : HX_LIT("released"));
    if (!read_body(k, &body, &error)) return complain(hx_arena_terminated(&k->arena, error), HX_EXIT_USAGE);
    if (k->body) {
        size_t before = out->len;
        hx_json_put_text(out, "body", body);
        hx_slice raw = hx_slice_from(hx_buf_slice(out), before + strlen(",\"body\":"));
        if (!hx_json_string(raw, &k->arena, &decoded) || !hx_slice_eq(decoded, body))
            return complain("--body must be UTF-8 text", HX_EXIT_USAGE);
    }
    if (k->status && !hx_slice_to_u64(hx_slice_of(k->status), &status))
        return hx_cmd_misused("keys", "--status must be a number such as 201");
    bool fits = !k->status || hx_buf_printf(out, ",\"status\":%llu", (unsigned long long)status);
    fits = fits && (k->header_count == 0 || hx_buf_printf(out, ",\"headers\":["));
    for (size_t i = 0; fits && i < k->header_count; i++)
        fits = (i == 0 || hx_buf_byte(out, ',')) && hx_json_escape(out, hx_slice_of(k->headers[i]));
    fits = fits && (k->header_count == 0 || hx_buf_byte(out, ']'));
    return fits ? -1 : complain("the response is too large", HX_EXIT_USAGE);
}

static const char *becomes(const keys *k)
{
    if (strcmp(k->verb, "forget") == 0) return "forgotten";
    return k->completed ? "completed" : k->failed ? "failed" : "released";
}

static int act_on_one(keys *k, hx_buf *body)
{
    uint64_t number;
    hx_slice operation;
    hx_admin_reply reply;
    int code = find_operation(k, &operation);
    if (code >= 0) return code;
    const char *id = hx_keys_member(operation, "id", &k->arena);
    const char *epoch = k->epoch ? k->epoch : hx_keys_member(operation, "epoch", &k->arena);
    if (!hx_slice_to_u64(hx_slice_of(epoch), &number))
        return hx_cmd_misused("keys", "--epoch must be a number, as shown by `hapax keys show`");
    hx_json_put_number(body, "epoch", number);
    hx_json_close(body, '}');
    code = ask(k, "POST", hx_arena_printf(&k->arena, "/v1/operations/%s/%s", id, k->verb), hx_buf_slice(body), &reply);
    if (code >= 0) return code;
    if (reply.status != 200) return refused(k, &reply);
    if (k->json || !hx_json_pointer(reply.body, HX_LIT("/operation"), &operation)) {
        (void)fwrite(reply.body.ptr, 1, reply.body.len, stdout);
        return HX_EXIT_OK;
    }
    (void)printf("%s is %s. ", id, becomes(k));
    if (k->completed || k->failed)
        (void)printf("Every request with its key gets %s until %s.\n", hx_keys_member(operation, "status", &k->arena),
                     hx_keys_member(operation, "expires_at", &k->arena));
    else
        (void)printf("The next request with its key runs.\n");
    return HX_EXIT_OK;
}

static void report_many(keys *k, hx_slice answer)
{
    hx_arena *arena = &k->arena;
    size_t shown;
    const hx_slice *rows = hx_keys_records(answer, "/operations", arena, &shown);
    const char *matched = hx_keys_member(answer, "matched", arena), *changed = hx_keys_member(answer, "changed", arena);
    const char *skipped = hx_keys_member(answer, "skipped", arena), *failed = hx_keys_member(answer, "failed", arena);
    bool more = strcmp(hx_keys_member(answer, "more", arena), "true") == 0;
    uint64_t total = 0;
    bool is_number = hx_slice_to_u64(hx_slice_of(matched), &total);
    if (k->yes) {
        (void)printf("%s of %s are %s.\n", changed, matched, becomes(k));
        if (strcmp(skipped, "0") != 0) (void)printf("%s have changed meanwhile and were left alone.\n", skipped);
        if (strcmp(failed, "0") != 0) (void)printf("%s could not be changed: see the daemon's log.\n", failed);
        if (more) (void)printf("There are more: run the command again.\n");
        return;
    }
    if (shown > 0) hx_keys_print_list(rows, shown, arena);
    if (is_number && total > shown) (void)printf("and %llu more\n", (unsigned long long)(total - shown));
    (void)printf("%s%s%s would be %s. Nothing was changed.\n", total > 0 ? "\n" : "", matched,
                 more ? " and more, in several runs," : "", becomes(k));
    if (total > 0)
        (void)printf("Add --yes to do it; --before %s leaves out what changes meanwhile.\n",
                     hx_keys_member(answer, "as_of", arena));
}

static int act_on_many(keys *k, hx_buf *body)
{
    if (k->epoch) return hx_cmd_misused("keys", "--epoch is for one operation, not for a filter");
    hx_json_put_bool(body, "preview", !k->yes);
    hx_json_open(body, "filter", '{');
    put_optional(body, "state", k->state);
    put_optional(body, "route", k->route);
    put_optional(body, "reason", k->reason);
    put_optional(body, "from", k->since);
    put_optional(body, "before", k->before);
    hx_json_close(body, '}');
    hx_json_close(body, '}');
    hx_admin_reply reply;
    int code = ask(k, "POST", hx_arena_printf(&k->arena, "/v1/operations/%s", k->verb), hx_buf_slice(body), &reply);
    if (code >= 0) return code;
    if (reply.status != 200) return refused(k, &reply);
    if (k->json)
        (void)fwrite(reply.body.ptr, 1, reply.body.len, stdout);
    else
        report_many(k, reply.body);
    return strcmp(hx_keys_member(reply.body, "failed", &k->arena), "0") == 0 ? HX_EXIT_OK : HX_EXIT_STORE;
}

static int act(keys *k)
{
    bool is_resolve = strcmp(k->verb, "resolve") == 0, is_bulk = k->operand == NULL;
    bool has_filter = k->state || k->route || k->reason || k->since || k->before;
    int outcomes = k->completed + k->failed + k->release;
    if (is_resolve && outcomes != 1)
        return hx_cmd_misused("keys", "resolve needs the outcome: --completed, --failed or --release");
    if (is_bulk && !has_filter)
        return hx_cmd_misused("keys",
                              "which operations? Give KEY or ID, or --state, --route, --reason, --since or --before");
    if (!k->why && (!is_bulk || k->yes))
        return hx_cmd_misused("keys", "--why is missing: give the reason, for the operation's history");
    if (k->too_many_headers) return hx_cmd_misused("keys", "--header is given more than %u times", HEADERS_MAX);
    hx_buf body;
    hx_buf_init(&body, &k->arena, REQUEST_BYTES_MAX);
    hx_buf_puts(&body, "{");
    put_optional(&body, "why", k->why);
    int code = is_resolve ? put_outcome(k, &body) : -1;
    if (code >= 0) return code;
    return is_bulk ? act_on_many(k, &body) : act_on_one(k, &body);
}

/* The error for a flag that this verb does not use; NULL: none. */
static const char *misplaced(const keys *k)
{
    bool acts = strcmp(k->verb, "resolve") == 0 || strcmp(k->verb, "forget") == 0;
    bool has_answer = k->status || k->body || k->header_count > 0;
    if ((k->completed || k->failed || k->release || has_answer) && strcmp(k->verb, "resolve") != 0)
        return "--completed, --failed, --release, --status, --header and --body are for resolve";
    if (has_answer && k->release) return "a released operation has no response: remove --status, --header and --body";
    if ((k->why || k->epoch || k->yes) && !acts) return "--why, --epoch and --yes are for resolve and forget";
    if (k->limit && strcmp(k->verb, "list") != 0) return "--limit is for list";
    if (k->yes && k->operand) return "--yes is for a filter without KEY or ID";
    if (k->failed && !k->status) return "--failed needs --status, the error that clients get, such as 422";
    return is_too_long(k) ? "a filter, key or number has at most 500 bytes" : NULL;
}

static bool is_time(const char *text)
{
    hx_ms at;
    return !text || hx_filter_time(hx_slice_of(text), hx_clock_now(), &at);
}

static int run_verb(keys *k)
{
    static const struct {
        const char *name;
        int (*run)(keys *k);
        bool needs_operand, takes_operand;
    } verbs[] = {{"list", list, false, false},
                 {"show", show, true, true},
                 {"resolve", act, false, true},
                 {"forget", act, false, true}};
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        if (strcmp(verbs[i].name, k->verb) != 0) continue;
        if (verbs[i].needs_operand && !k->operand) return hx_cmd_misused("keys", "%s needs KEY or ID", k->verb);
        if (!verbs[i].takes_operand && k->operand)
            return hx_cmd_misused("keys", "unexpected argument \"%s\"; did you mean `hapax keys show %s`?", k->operand,
                                  k->operand);
        const char *wrong = misplaced(k);
        if (wrong) return hx_cmd_misused("keys", "%s", wrong);
        if (!is_time(k->since) || !is_time(k->before))
            return hx_cmd_misused("keys", "--since and --before take an age such as 30m, 2h or 7d, or a time such as "
                                          "2026-02-19T12:00:00Z");
        int code = hx_find_daemon("keys", &k->where, &k->arena, &k->address);
        return code >= 0 ? code : verbs[i].run(k);
    }
    return hx_cmd_misused("keys", "unknown command \"%s\": use list, show, resolve or forget", k->verb);
}

int hx_cmd_keys(int argc, char **argv)
{
    keys k = {0};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 2, take, &k, &operands);
    if (code >= 0) return code;
    if (operands == argc) return hx_cmd_misused(argv[0], "a command is missing: list, show, resolve or forget");
    k.verb = argv[operands];
    k.operand = operands + 1 < argc ? argv[operands + 1] : NULL;
    hx_buf_init(&k.records, NULL, RECORDS_MAX * sizeof(hx_slice));
    code = run_verb(&k);
    hx_buf_free(&k.records);
    hx_arena_free(&k.arena);
    return code;
}
