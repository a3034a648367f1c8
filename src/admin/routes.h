/* SPDX-License-Identifier: Apache-2.0 */
/* The table of requests (routes.def): which one a method and a path mean, and who may make it. Nothing here does
 * I/O. */
#ifndef HX_ADMIN_ROUTES_H
#define HX_ADMIN_ROUTES_H

#include "base/memory/buf.h"
#include "core/event/api_token.h"
#include "core/operation/record.h"

typedef enum {
#define X(id, code, status, title, hint) HX_ADMIN_##id,
#include "admin/problems.def"
#undef X
    HX_ADMIN_PROBLEM_COUNT
} hx_admin_problem;

typedef enum {
    HX_ADMIN_CALLER_NOBODY, /* not identified: has no rights */
    HX_ADMIN_CALLER_USER,   /* at the other end of the unix socket, by the kernel's word: has all rights */
    HX_ADMIN_CALLER_TOKEN   /* has the rights of its token */
} hx_admin_caller_kind;

/* Who made a request. */
typedef struct {
    hx_admin_caller_kind kind;
    hx_slice name; /* of the user, empty when there is none or the request changes nothing; of the token */
    uint32_t uid;  /* this and the next: of the user */
    int32_t pid;
    hx_slice token_id; /* this and the next two: of the token */
    unsigned scopes;
    hx_slice tenant; /* the only one it acts in; empty: any */
} hx_admin_caller;

/* "alice (uid 1000)", "(uid 1000)" or "token shop"; at most HX_ADMIN_CALLER_TEXT_MAX bytes, in the arena. */
hx_slice hx_admin_caller_text(const hx_admin_caller *who, hx_arena *arena);
#define HX_ADMIN_CALLER_TEXT_MAX 84u

#define HX_SCOPE_SOCKET 0u /* of a row: no token may make the request */
#define HX_SCOPE_ANY (HX_SCOPE_PUBLISH | HX_SCOPE_CONSUME | HX_SCOPE_OPERATE | HX_SCOPE_VIEW) /* of a row: every may */

/* What a request is about, and so whether a token that is bound to a tenant may make it. */
typedef enum {
    HX_REACH_STORE, /* everything in the store: only a token that is bound to no tenant */
    HX_REACH_TENANT /* one tenant: the handler asks hx_admin_tenant which */
} hx_admin_reach;

struct hx_admin_call;

typedef struct {
    const char *method;
    const char *path;
    void (*handle)(struct hx_admin_call *call);
    unsigned scope; /* that a token needs */
    hx_admin_reach reach;
    const char *text;
} hx_admin_route;

#define HX_ADMIN_PARAMETERS_MAX 3u
#define HX_ADMIN_PARAMETER_BYTES 512u

/* What stands in a path where its row has braces. */
typedef struct {
    hx_op op;                                     /* {id} */
    hx_slice parameters[HX_ADMIN_PARAMETERS_MAX]; /* all others, in their order: decoded, not empty */
} hx_admin_path;

const hx_admin_route *hx_admin_routes(size_t *count);
/* The first row with this method and path, and with the parameter that it names. NULL: there is none; `allowed` then
 * has the methods of rows with this path, as a header line, or nothing. */
const hx_admin_route *hx_admin_find_route(hx_slice method, hx_slice path, hx_slice query, hx_arena *arena,
                                          hx_admin_path *found, hx_buf *allowed);
#define HX_ADMIN_ALLOWED_BYTES 256u
/* HX_ADMIN_PROBLEM_COUNT when this caller may make the request; else what to answer. */
hx_admin_problem hx_admin_permit(const hx_admin_route *route, const hx_admin_caller *who);
/* The name of a row's scope: "view", "any", or "socket". */
const char *hx_admin_scope_name(unsigned scope);

/* The tenant in which `who` acts when a request names `named` (empty: none). HX_ADMIN_PROBLEM_COUNT, or what to
 * answer. */
hx_admin_problem hx_admin_choose_tenant(const hx_admin_caller *who, hx_slice named, hx_slice *tenant) HX_MUST_USE;

/* Against pages that a browser was led to (DNS rebinding): whether a Host field is an address, localhost or one of
 * these names. A name of somebody else's that leads here is neither. */
bool hx_admin_is_own_host(hx_slice host, const hx_slice *names, size_t count);
/* Whether an Origin field is that of a page from here: the scheme and the Host of this very request. */
bool hx_admin_is_own_origin(hx_slice origin, hx_slice host);

#endif
