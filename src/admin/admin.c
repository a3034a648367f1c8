/* SPDX-License-Identifier: Apache-2.0 */
/* The servers of the admin socket and of the API, the form of their responses, and the reference page. */
#include "admin/admin.h"

#include "admin/call.h"
#include "admin/views.h"
#include "base/check.h"
#include "core/json/json_writer.h"

#include <stdlib.h>
#include <sys/un.h>

#define LINES_BYTES_MAX 512u
#define PROBLEM_BYTES_MAX (16u * 1024u + HX_VIEW_RECORD_BYTES)

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
    bool is_over = admin->socket.is_drained && admin->api.is_drained && admin->under_way == 0;
    if (!admin->stopping || !is_over || !admin->stopped) return;
    void (*stopped)(void *context) = admin->stopped;
    admin->stopped = NULL;
    stopped(admin->context);
}

void hx_admin_end(hx_admin_call *call)
{
    hx_admin *admin = call->admin;
    call->entrance->body_bytes -= call->body.len;
    hx_stream_release(call->stream); /* and the call with it */
    admin->under_way--;
    check_stopped(admin);
}

void hx_admin_answer_with(hx_admin_call *call, unsigned status, hx_slice header_lines, hx_slice json)
{
    hx_slice lines = hx_arena_printf(call->arena, "Content-Type: application/json\r\n%.*s", HX_FMT(header_lines));
    hx_stream_answer(call->stream, status, HX_EMPTY, lines, json, true);
    hx_admin_end(call);
}

void hx_admin_answer(hx_admin_call *call, hx_slice json)
{
    hx_admin_answer_with(call, 200, HX_EMPTY, json);
}

static void answer_problem(hx_stream *stream, hx_admin_problem problem, unsigned status, hx_slice detail,
                           const hx_record *found, hx_slice lines, hx_slice errors, hx_slice members)
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
    if (status == 503 && lines.len == 0) hx_buf_puts(&head, "Retry-After: 5\r\n");
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
    if (members.len > 0) hx_buf_puts(&body, ",");
    hx_buf_put(&body, members);
    hx_buf_puts(&body, "}\n");
    hx_stream_answer(stream, status, HX_EMPTY, hx_buf_slice(&head), hx_buf_slice(&body), true);
}

void hx_admin_refuse(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, const hx_record *found)
{
    answer_problem(call->stream, problem, 0, detail, found, HX_EMPTY, HX_EMPTY, HX_EMPTY);
    hx_admin_end(call);
}

void hx_admin_refuse_with(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, hx_slice header_lines)
{
    answer_problem(call->stream, problem, 0, detail, NULL, header_lines, HX_EMPTY, HX_EMPTY);
    hx_admin_end(call);
}

void hx_admin_refuse_telling(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, hx_slice members)
{
    answer_problem(call->stream, problem, 0, detail, NULL, HX_EMPTY, HX_EMPTY, members);
    hx_admin_end(call);
}

void hx_admin_refuse_lines(hx_admin_call *call, hx_admin_problem problem, hx_slice errors)
{
    answer_problem(call->stream, problem, 0, HX_EMPTY, NULL, HX_EMPTY, errors, HX_EMPTY);
    hx_admin_end(call);
}

bool hx_admin_committed(hx_admin_call *call, hx_store_result result)
{
    if (result != HX_STORE_OK)
        hx_admin_refuse(call, result == HX_STORE_FULL ? HX_ADMIN_FULL : HX_ADMIN_STORE, HX_EMPTY, NULL);
    return result == HX_STORE_OK;
}

void hx_admin_answer_malformed(hx_stream *stream, unsigned status, const char *detail)
{
    answer_problem(stream, HX_ADMIN_MALFORMED, status, hx_slice_of(detail), NULL, HX_EMPTY, HX_EMPTY, HX_EMPTY);
}

static void open_entrance(hx_admin *admin, hx_admin_entrance *entrance, const hx_server_limits *limits)
{
    static const hx_server_handler handler = {.request = hx_admin_request, .malformed = hx_admin_malformed};
    entrance->admin = admin;
    entrance->server = hx_server_new(admin->needs.loop, limits, &handler, entrance);
}

hx_admin *hx_admin_new(const hx_admin_needs *needs)
{
    hx_server_limits limits = {.connections_max = 64,
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
    hx_list_init(&admin->followers);
    admin->mac = hx_mac_new(hx_store_about(needs->store)->secret);
    open_entrance(admin, &admin->socket, &limits);
    limits.connections_max = needs->api_connections;
    open_entrance(admin, &admin->api, &limits);
    admin->api.needs_token = true;
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
    hx_server_accept(admin->socket.server, descriptor, hx_slice_of(bound));
    return true;
}

bool hx_admin_listen_api(hx_admin *admin, hx_slice address, char bound[HX_ADDRESS_BYTES], hx_error_text error)
{
    int descriptor = hx_listen(address, bound, error);
    if (descriptor >= 0) hx_server_accept(admin->api.server, descriptor, hx_slice_of(bound));
    return descriptor >= 0;
}

static void server_drained(void *app)
{
    hx_admin_entrance *entrance = app;
    entrance->is_drained = true;
    check_stopped(entrance->admin);
}

void hx_admin_stop(hx_admin *admin, void (*stopped)(void *context), void *context)
{
    admin->stopping = true;
    admin->stopped = stopped;
    admin->context = context;
    hx_admin_stop_followers(admin);
    hx_server_drain(admin->socket.server, server_drained);
    hx_server_drain(admin->api.server, server_drained);
}

void hx_admin_free(hx_admin **owned)
{
    hx_admin *admin = *owned;
    if (!admin) return;
    *owned = NULL;
    hx_server_free(&admin->socket.server);
    hx_server_free(&admin->api.server);
    hx_mac_free(&admin->mac);
    free(admin);
}

void hx_admin_reference(hx_buf *out)
{
    hx_arena arena = {0};
    size_t count;
    const hx_admin_route *routes = hx_admin_routes(&count);
    hx_buf_puts(
        out, "# The admin socket and the API\n\n"
             "HTTP/1.1 with JSON, by two ways. This page is written by `hapax reference admin`; the "
             "[guide](../guide/api.md) shows how to use the API.\n\n"
             "**The admin socket** is a unix socket with mode 0600, for the user who runs the daemon and for root. It "
             "is `admin.sock` in the journal's directory, `FILE-admin.sock` beside an SQLite file, `admin-….sock` in "
             "the state directory for a PostgreSQL store, or where the option `admin.listen` says; the daemon logs it "
             "as `admin_listening` when it starts. `hapax keys`, `hapax tokens` and `hapax reload` use it, and `curl "
             "--unix-socket` can. A user who can open the socket may make every request.\n\n"
             "**The API** listens where the option `api.listen` says, which the daemon logs as `api_listening`. Every "
             "request needs a token, as `Authorization: Bearer TOKEN`, and the token the scope of the request:\n\n"
             "| scope | allows to |\n|---|---|\n");
#define X(id, bit, name, text) hx_buf_puts(out, "| `" name "` | " text " |\n");
#include "core/event/scopes.def"
#undef X
    hx_buf_puts(
        out,
        "\nA request with the scope *socket* is for the admin socket only. A token may be bound to a tenant. It then "
        "acts in this tenant alone, and can't make requests that are about the whole *store*: those get 403.\n\n"
        "| request | scope | about | what it does |\n|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        bool is_of_tenant = routes[i].reach == HX_REACH_TENANT;
        hx_buf_put(out, hx_arena_printf(&arena, "| `%s %s` | %s | %s | %s |\n", routes[i].method, routes[i].path,
                                        hx_admin_scope_name(routes[i].scope), is_of_tenant ? "tenant" : "store",
                                        routes[i].text));
    }
    hx_buf_puts(
        out, "\nAn operation's id has 32 hexadecimal digits. `key` and `principal` in a response are their MACs under "
             "the store's secret, as in the log. A request that changes an operation needs `why`; the operation's "
             "history shows it as `operator NAME (uid N): WHY`, with the user at the other end of the socket, or as "
             "`operator token NAME: WHY`.\n\n"
             "The API answers requests whose `Host` is an address, `localhost`, or listed in the option `api.hosts`, "
             "and whose `Origin`, if there is one, is that of the API itself. Otherwise a page in somebody's browser "
             "could reach it, by a name that leads to this machine.\n\n"
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
