/* SPDX-License-Identifier: Apache-2.0 */
/* The admin socket: its server, the dispatch of requests to their handlers, and the form of errors. */
#include "admin/admin.h"

#include "admin/call.h"
#include "admin/views.h"
#include "base/check.h"
#include "core/json/json_writer.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

/* A stored response of the default size, with the escapes of a JSON string. */
#define BODY_BYTES_MAX (16u * 1024u * 1024u)
#define LINES_BYTES_MAX 512u
#define PROBLEM_BYTES_MAX (16u * 1024u + HX_VIEW_RECORD_BYTES)

typedef struct {
    const char *method;
    const char *path;
    void (*handle)(hx_admin_call *call);
    hx_admin_permission permission;
    const char *text;
} route_row;

static const route_row routes[] = {
#define X(method, path, handler, permission, text) {#method, path, hx_admin_##handler, HX_ADMIN_##permission, text},
#include "admin/routes.def"
#undef X
};

#define ROUTE_COUNT (sizeof routes / sizeof routes[0])

typedef struct {
    const char *code;
    unsigned status;
    const char *title;
    const char *hint;
} problem_row;

static const problem_row problems[] = {
#define X(id, code, status, title, hint) {code, status, title, hint},
#include "admin/problems.def"
#undef X
};

hx_ms hx_admin_now(const hx_admin *admin)
{
    return hx_store_about(admin->needs.store)->now();
}

hx_filter_reader hx_admin_reader(hx_admin_call *call)
{
    return (hx_filter_reader){.arena = call->arena, .mac = call->admin->mac, .now = hx_admin_now(call->admin)};
}

hx_store_call hx_admin_store_call(const hx_admin *admin, hx_arena *arena, void (*done)(hx_store_call *call))
{
    return (hx_store_call){.loop = admin->needs.loop, .arena = arena, .done = done};
}

static void check_stopped(hx_admin *admin)
{
    if (!admin->stopping || !admin->server_drained || admin->under_way > 0 || !admin->stopped) return;
    void (*stopped)(void *context) = admin->stopped;
    admin->stopped = NULL;
    stopped(admin->context);
}

static void end_call(hx_admin_call *call)
{
    hx_admin *admin = call->admin;
    hx_stream_release(call->stream); /* and the call with it */
    admin->under_way--;
    check_stopped(admin);
}

void hx_admin_answer(hx_admin_call *call, hx_slice json)
{
    hx_stream_answer(call->stream, 200, HX_EMPTY, HX_LIT("Content-Type: application/json\r\n"), json, true);
    end_call(call);
}

static void answer_problem(hx_stream *stream, hx_admin_problem problem, unsigned status, hx_slice detail,
                           const hx_record *found, hx_slice lines, hx_slice errors)
{
    const problem_row *row = &problems[problem];
    if (status == 0) status = row->status;
    hx_buf head, body;
    hx_buf_init(&head, &stream->arena, LINES_BYTES_MAX);
    hx_buf_init(&body, &stream->arena, PROBLEM_BYTES_MAX + HX_VIEW_LINES_BYTES(errors.len));
    hx_buf_puts(&head, "Content-Type: application/problem+json\r\nContent-Language: en\r\nError-Code: ");
    hx_buf_puts(&head, row->code);
    hx_buf_puts(&head, "\r\n");
    hx_buf_put(&head, lines);
    hx_json_open(&body, NULL, '{');
    hx_json_put_text(&body, "type", HX_LIT("about:blank"));
    hx_json_put_number(&body, "status", status);
    hx_json_put_text(&body, "title", hx_slice_of(row->title));
    hx_json_put_text(&body, "detail", detail.len > 0 ? hx_slice_first(detail, 1024) : hx_slice_of(row->title));
    hx_json_put_text(&body, "error_code", hx_slice_of(row->code));
    hx_json_put_text(&body, "hint", hx_slice_of(row->hint));
    if (found && found->state != HX_ABSENT) {
        hx_json_put_name(&body, "operation");
        hx_view_record(&body, found);
    }
    if (errors.len > 0) hx_json_put_lines(&body, "errors", errors);
    hx_buf_puts(&body, "}\n");
    hx_stream_answer(stream, status, HX_EMPTY, hx_buf_slice(&head), hx_buf_slice(&body), true);
}

void hx_admin_refuse(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, const hx_record *found)
{
    answer_problem(call->stream, problem, 0, detail, found, HX_EMPTY, HX_EMPTY);
    end_call(call);
}

void hx_admin_refuse_lines(hx_admin_call *call, hx_admin_problem problem, hx_slice errors)
{
    answer_problem(call->stream, problem, 0, HX_EMPTY, NULL, HX_EMPTY, errors);
    end_call(call);
}

/* Whether `path` matches the row's, segment by segment; an id is put into `op`. */
static bool is_path(const char *pattern, hx_slice path, hx_op *op)
{
    hx_slice wanted = hx_slice_of(pattern), part, given;
    while (hx_slice_next(&wanted, '/', &part)) {
        if (!hx_slice_next(&path, '/', &given)) return false;
        bool matches = hx_slice_eq(part, HX_LIT("{id}")) ? hx_op_read(given, op) : hx_slice_eq(part, given);
        if (!matches) return false;
    }
    return path.ptr == NULL;
}

static const route_row *find_route(hx_slice method, hx_slice path, hx_op *op, hx_buf *allowed)
{
    for (size_t i = 0; i < ROUTE_COUNT; i++) {
        if (!is_path(routes[i].path, path, op)) continue;
        if (hx_slice_eq(method, hx_slice_of(routes[i].method))) return &routes[i];
        hx_buf_puts(allowed, allowed->len > 0 ? ", " : "Allow: ");
        hx_buf_puts(allowed, routes[i].method);
    }
    if (allowed->len > 0) hx_buf_puts(allowed, "\r\n");
    return NULL;
}

/* Finding a user's name may take a network request, so it is done only for requests that change something. */
static bool find_user(hx_admin_call *call)
{
    struct passwd row, *found = NULL;
    char bytes[4096];
    hx_admin_user *who = &call->who;
    const hx_peer *peer = &call->stream->peer;
    if (peer->kind != HX_PEER_USER) return false;
    who->uid = peer->user.uid;
    who->pid = peer->user.pid;
    if (getpwuid_r(who->uid, &row, bytes, sizeof bytes, &found) == 0 && found)
        (void)snprintf(who->name, sizeof who->name, "%s", found->pw_name);
    return true;
}

static void handle(hx_admin_call *call)
{
    call->stream->events = (hx_stream_events){0};
    if (call->overfull)
        hx_admin_refuse(call, HX_ADMIN_TOO_LARGE, HX_EMPTY, NULL);
    else if (call->permission > HX_ADMIN_READ && !find_user(call))
        hx_admin_refuse(call, HX_ADMIN_MALFORMED,
                        HX_LIT("The user at the other end of the socket could not be identified."), NULL);
    else
        call->handle(call);
}

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    hx_admin_call *call = stream->user;
    if (!call->overfull && !hx_buf_append(&call->body, piece)) call->overfull = true;
    if (last || call->overfull) handle(call);
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    hx_admin_call *call = stream->user;
    if (status != 0) answer_problem(stream, HX_ADMIN_MALFORMED, status, hx_slice_of(detail), NULL, HX_EMPTY, HX_EMPTY);
    end_call(call);
}

static void request(void *app, hx_stream *stream)
{
    hx_admin *admin = app;
    hx_op op;
    hx_buf allowed;
    hx_buf_init(&allowed, &stream->arena, 128);
    const route_row *row = find_route(stream->request.method, stream->request.path, &op, &allowed);
    if (!row) {
        answer_problem(stream, allowed.len > 0 ? HX_ADMIN_NO_METHOD : HX_ADMIN_NO_ROUTE, 0, HX_EMPTY, NULL,
                       hx_buf_slice(&allowed), HX_EMPTY);
        hx_stream_release(stream);
        return;
    }
    hx_admin_call *call = hx_arena_zalloc(&stream->arena, sizeof *call);
    call->admin = admin;
    call->stream = stream;
    call->arena = &stream->arena;
    call->handle = row->handle;
    call->permission = row->permission;
    call->op = op;
    call->page = (hx_store_page){.route = HX_EMPTY, .reason = HX_EMPTY, .records_max = HX_FILTER_LIMIT};
    stream->user = call;
    admin->under_way++;
    hx_buf_init(&call->body, call->arena, BODY_BYTES_MAX);
    if (!stream->request.has_body) {
        handle(call);
        return;
    }
    stream->events = (hx_stream_events){.body = take_body, .broken = body_broken};
    hx_stream_read(stream);
}

static void malformed(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    (void)app;
    answer_problem(stream, HX_ADMIN_MALFORMED, status, hx_slice_of(detail), NULL, HX_EMPTY, HX_EMPTY);
    hx_stream_release(stream);
}

hx_admin *hx_admin_new(const hx_admin_needs *needs)
{
    static const hx_server_handler handler = {.request = request, .malformed = malformed};
    static const hx_server_limits limits = {.connections_max = 64,
                                            .head_bytes_max = 16u * 1024u,
                                            .fields_max = 100,
                                            .chunk_extension_bytes_max = 4096,
                                            .head_timeout = 10 * HX_SECOND,
                                            .idle_timeout = 60 * HX_SECOND,
                                            .body_rate_min = 1024,
                                            .send_timeout = 10 * HX_SECOND};
    hx_admin *admin = calloc(1, sizeof *admin);
    if (!admin) hx_fatal(HX_EXIT_BUG, "out of memory (the admin socket)");
    admin->needs = *needs;
    admin->mac = hx_mac_new(hx_store_about(needs->store)->secret);
    admin->server = hx_server_new(needs->loop, &limits, &handler, admin);
    return admin;
}

void hx_admin_use(hx_admin *admin, const hx_rules *rules)
{
    admin->needs.rules = rules;
}

bool hx_admin_listen(hx_admin *admin, hx_slice address, hx_error_text error)
{
    char bound[HX_ADDRESS_BYTES];
    hx_error_text why;
    size_t most = sizeof((struct sockaddr_un *)NULL)->sun_path - 1, path_len = address.len - sizeof("unix:") + 1;
    if (path_len > most)
        return hx_fail(error,
                       "the admin socket %.*s%s has a path of %zu bytes, and a socket's has up to %zu: name a shorter "
                       "one with the option admin.listen",
                       (int)(address.len < 200 ? address.len : 200), address.ptr, address.len < 200 ? "" : "...",
                       path_len, most);
    int descriptor = hx_listen_private(address, bound, why);
    if (descriptor < 0) return hx_fail(error, "the admin socket: %s (the option admin.listen names another)", why);
    hx_server_accept(admin->server, descriptor, hx_slice_of(bound));
    return true;
}

static void server_drained(void *app)
{
    hx_admin *admin = app;
    admin->server_drained = true;
    check_stopped(admin);
}

void hx_admin_stop(hx_admin *admin, void (*stopped)(void *context), void *context)
{
    admin->stopping = true;
    admin->stopped = stopped;
    admin->context = context;
    hx_server_drain(admin->server, server_drained);
}

void hx_admin_free(hx_admin **owned)
{
    hx_admin *admin = *owned;
    if (!admin) return;
    *owned = NULL;
    hx_server_free(&admin->server);
    hx_mac_free(&admin->mac);
    free(admin);
}

void hx_admin_reference(hx_buf *out)
{
    static const char *const permissions[] = {"read", "act", "administer"};
    hx_arena arena = {0};
    hx_buf_puts(
        out, "# The admin socket\n\n"
             "HTTP/1.1 on a unix socket with mode 0600, for the user who runs the daemon and for root. It is "
             "`admin.sock` in the journal's directory, `FILE-admin.sock` beside an SQLite file, `admin-….sock` in the "
             "state directory for a PostgreSQL store, or where the option `admin.listen` says; the daemon logs it as "
             "`admin_listening` when it starts. `hapax keys` and `hapax reload` use it, and `curl --unix-socket` can. "
             "This page is written by `hapax reference admin`.\n\n"
             "A user who can open the socket has every permission: `read` looks, `act` decides about operations, "
             "`administer` changes the daemon.\n\n"
             "| request | permission | what it does |\n|---|---|---|\n");
    for (size_t i = 0; i < ROUTE_COUNT; i++)
        hx_buf_put(out, hx_arena_printf(&arena, "| `%s %s` | %s | %s |\n", routes[i].method, routes[i].path,
                                        permissions[routes[i].permission], routes[i].text));
    hx_buf_puts(
        out, "\nAn operation's id has 32 hexadecimal digits. `key` and `principal` in a response are their MACs under "
             "the store's secret, as in the log. A request that changes an operation needs `why`; the operation's "
             "history shows it as `operator NAME (uid N): WHY`, with the user at the other end of the socket.\n\n"
             "Errors are `application/problem+json` with `hint`; those of status 409 have the operation as it is in "
             "the store as `operation`, and a rejected reload has every mistake as a line of `errors`.\n\n"
             "| status | error_code | title | hint |\n|---|---|---|---|\n");
    for (size_t i = 0; i < HX_ADMIN_PROBLEM_COUNT; i++)
        hx_buf_put(out, hx_arena_printf(&arena, "| %u | `%s` | %s | %s |\n", problems[i].status, problems[i].code,
                                        problems[i].title, problems[i].hint));
    hx_buf_puts(out,
                "\nIn `GET /v1/counts`, `generation` is how often the configuration, or a set of token keys, came into "
                "force, `refusing` says why requests are refused at this moment, and `store`, `limits`, `log` and "
                "`workers` (all of them together) are listed in [metrics.md](metrics.md).\n");
    hx_arena_free(&arena);
}
