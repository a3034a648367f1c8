/* SPDX-License-Identifier: Apache-2.0 */
/* A request on its way to its handler: who makes it, which row of the table it is, whether its caller may make it, and
 * only then its body. Nothing is buffered for a caller without rights. */
#include "admin/call.h"

/* A stored response of the default size, with the escapes of a JSON string. */
#define BODY_BYTES_MAX (16u * 1024u * 1024u)
#define BODIES_BYTES_MAX (4u * BODY_BYTES_MAX) /* that one entrance holds at a time */

static void handle(hx_admin_call *call)
{
    call->stream->events = (hx_stream_events){0};
    call->route->handle(call);
}

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    hx_admin_call *call = stream->user;
    bool has_room = call->entrance->body_bytes + piece.len <= BODIES_BYTES_MAX;
    if (has_room && hx_buf_append(&call->body, piece)) {
        call->entrance->body_bytes += piece.len;
        if (last) handle(call);
        return;
    }
    hx_admin_refuse_with(call, has_room ? HX_ADMIN_TOO_LARGE : HX_ADMIN_OVERLOADED, HX_EMPTY,
                         has_room ? HX_EMPTY : HX_LIT("Retry-After: 1\r\n"));
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    if (status != 0) hx_admin_answer_malformed(stream, status, detail);
    hx_admin_end(stream->user);
}

static void closed(hx_stream *stream)
{
    hx_admin_end(stream->user);
}

/* RFC 6750: a client reads from it what its token lacks. */
static void refuse_scope(hx_admin_call *call)
{
    const char *scope = hx_admin_scope_name(call->route->scope);
    hx_slice line = hx_arena_printf(call->arena,
                                    "WWW-Authenticate: Bearer error=\"insufficient_scope\", scope=\"%s\"\r\n", scope);
    hx_admin_refuse_with(call, HX_ADMIN_NO_SCOPE,
                         hx_arena_printf(call->arena, "The token \"%.*s\" lacks the scope \"%s\".",
                                         HX_FMT(call->who.name), scope),
                         line);
}

/* Finds the row of the request, and whether its caller may make it. False: the call was answered. */
static bool find_route(hx_admin_call *call)
{
    const hx_request_head *request = &call->stream->request;
    hx_admin_path path;
    hx_buf allowed;
    hx_buf_init(&allowed, call->arena, HX_ADMIN_ALLOWED_BYTES);
    call->route = hx_admin_find_route(request->method, request->path, request->query, call->arena, &path, &allowed);
    if (!call->route) {
        hx_admin_refuse_with(call, allowed.len > 0 ? HX_ADMIN_NO_METHOD : HX_ADMIN_NO_ROUTE, HX_EMPTY,
                             hx_buf_slice(&allowed));
        return false;
    }
    call->op = path.op;
    memcpy(call->parameters, path.parameters, sizeof call->parameters);
    hx_admin_problem problem = hx_admin_permit(call->route, &call->who);
    if (problem == HX_ADMIN_PROBLEM_COUNT) return true;
    hx_slice nobody = HX_LIT("The user at the other end of the socket could not be identified.");
    if (problem == HX_ADMIN_NO_SCOPE)
        refuse_scope(call);
    else
        hx_admin_refuse(call, problem, call->who.kind == HX_ADMIN_CALLER_NOBODY ? nobody : HX_EMPTY, NULL);
    return false;
}

void hx_admin_route_call(hx_admin_call *call)
{
    hx_stream *stream = call->stream;
    stream->events = (hx_stream_events){0};
    if (call->is_gone) {
        hx_admin_end(call);
    } else if (find_route(call)) {
        if (call->route->scope != HX_SCOPE_VIEW) hx_admin_find_name(call);
        if (!stream->request.has_body) {
            handle(call);
            return;
        }
        stream->events = (hx_stream_events){.body = take_body, .broken = body_broken, .closed = closed};
        hx_stream_read(stream);
    }
}

void hx_admin_request(void *entrance, hx_stream *stream)
{
    hx_admin_entrance *from = entrance;
    hx_admin_call *call = hx_arena_zalloc(&stream->arena, sizeof *call);
    call->admin = from->admin;
    call->entrance = from;
    call->stream = stream;
    call->arena = &stream->arena;
    call->page = (hx_store_page){.route = HX_EMPTY, .reason = HX_EMPTY, .records_max = HX_FILTER_LIMIT};
    stream->user = call;
    from->admin->under_way++;
    hx_buf_init(&call->body, call->arena, BODY_BYTES_MAX);
    hx_admin_authenticate(call);
}

void hx_admin_malformed(void *entrance, hx_stream *stream, unsigned status, const char *detail)
{
    (void)entrance;
    hx_admin_answer_malformed(stream, status, detail);
    hx_stream_release(stream);
}

bool hx_admin_tenant(hx_admin_call *call, hx_slice named, hx_slice *tenant)
{
    hx_admin_problem problem = hx_admin_choose_tenant(&call->who, named, tenant);
    if (problem == HX_ADMIN_PROBLEM_COUNT) return true;
    hx_slice detail = HX_LIT("tenant must have 1 to 64 letters, digits, - and _");
    hx_admin_refuse(call, problem, problem == HX_ADMIN_MALFORMED ? detail : HX_EMPTY, NULL);
    return false;
}
