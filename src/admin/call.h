/* SPDX-License-Identifier: Apache-2.0 */
/* One request, as the files of this folder share it. A call lives in its stream's arena until it is answered, which
 * happens exactly once, whether its client is still connected or not.
 *
 *     hx_admin_request ──► hx_admin_authenticate ──► hx_admin_route_call ──► body ──► handler ──► hx_admin_answer
 *       API: Host, Origin, token; socket: the user     the row, and rights                        hx_admin_refuse */
#ifndef HX_ADMIN_CALL_H
#define HX_ADMIN_CALL_H

#include "admin/admin.h"
#include "admin/filter.h"
#include "admin/operator_act.h"
#include "admin/routes.h"
#include "core/event/event.h"

#define HX_ADMIN_KNOWN_TOKENS 256u

/* A token that was found in the store lately. */
typedef struct {
    hx_ms until; /* by the loop's clock; 0: none */
    unsigned scopes;
    uint8_t name_len, tenant_len;
    char key[HX_API_TOKEN_KEY_BYTES], name[HX_API_TOKEN_NAME_MAX], tenant[HX_TENANT_MAX];
} hx_admin_known;

/* The unix socket, or the listeners of the API. */
typedef struct {
    hx_admin *admin;
    hx_server *server;
    bool needs_token;
    bool is_drained;
    size_t body_bytes; /* of all calls under way */
} hx_admin_entrance;

struct hx_admin {
    hx_admin_needs needs;
    hx_admin_entrance socket, api;
    hx_mac *mac;
    hx_admin_known known[HX_ADMIN_KNOWN_TOKENS]; /* by the first digits of the key; a newer one replaces an older */
    struct {
        hx_ms logged_at; /* 0: never */
        uint64_t count;  /* since then */
    } refused;           /* tokens */
    unsigned under_way;  /* calls that are not answered yet */
    hx_link followers;   /* events/followers.c */
    unsigned follower_count;
    bool stopping;
    void (*stopped)(void *context);
    void *context;
};

typedef struct hx_admin_call {
    hx_admin *admin;
    hx_admin_entrance *entrance;
    hx_stream *stream;
    hx_arena *arena; /* belongs to the stream */
    const hx_admin_route *route;
    bool is_gone; /* the client is, before the body was read */
    hx_buf body;
    hx_op op;                                     /* the operation that {id} names */
    hx_slice parameters[HX_ADMIN_PARAMETERS_MAX]; /* what the other segments in braces are */
    hx_admin_caller who;
    hx_operator_act act;
    hx_slice reason;
    hx_store_call store;
    hx_store_page page;
    hx_item item; /* of the token */
    hx_record record;
    hx_admin_reload reload;
    void *follower; /* events/followers.c; NULL: it is none */
} hx_admin_call;

hx_ms hx_admin_now(const hx_admin *admin);
hx_filter_reader hx_admin_reader(hx_admin_call *call);
/* A store call on the admin's loop; `done` finds its hx_admin_call with HX_OWNER. */
hx_store_call hx_admin_store_call(const hx_admin *admin, hx_arena *arena, void (*done)(hx_store_call *call));

/* dispatch.c */
void hx_admin_request(void *entrance, hx_stream *stream);
void hx_admin_malformed(void *entrance, hx_stream *stream, unsigned status, const char *detail);
/* The caller is known: finds the route, reads the body and calls the handler, or refuses. */
void hx_admin_route_call(hx_admin_call *call);
/* The tenant in which the call acts: the one that its token is bound to, else `named`, a member or a parameter of the
 * request; empty: none. False: the token is bound to another one, or it is no name, and the call was answered. */
bool hx_admin_tenant(hx_admin_call *call, hx_slice named, hx_slice *tenant) HX_MUST_USE;

/* access.c: finds out who makes the call; hx_admin_route_call or a refusal follows, perhaps at once. */
void hx_admin_authenticate(hx_admin_call *call);
/* Fills in the name of a user of the socket. That may take a network request, so it is for requests that change
 * something. */
void hx_admin_find_name(hx_admin_call *call);
/* Tokens are looked up in the store again from now on. */
void hx_admin_forget_tokens(hx_admin *admin);
/* Adds who it was to a log line. */
void hx_admin_log_caller(const hx_admin_caller *who);

/* events/followers.c: ends the responses that have no end. */
void hx_admin_stop_followers(hx_admin *admin);

/* Whether a commit that ended with `result` succeeded. False: the call was answered. */
bool hx_admin_committed(hx_admin_call *call, hx_store_result result) HX_MUST_USE;

/* Answers 200 with JSON that lives in the call's arena; the call is over. */
void hx_admin_answer(hx_admin_call *call, hx_slice json);
/* The same with another status and more header lines. */
void hx_admin_answer_with(hx_admin_call *call, unsigned status, hx_slice header_lines, hx_slice json);
/* Answers with a problem; `detail` empty: the row's title. `found`, when given, is the operation as it is stored. */
void hx_admin_refuse(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, const hx_record *found);
/* The same with more header lines. */
void hx_admin_refuse_with(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, hx_slice header_lines);
/* The same with more members, as they are written: "oldest":17 */
void hx_admin_refuse_telling(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, hx_slice members);
/* The same with the lines of `errors` as an array. */
void hx_admin_refuse_lines(hx_admin_call *call, hx_admin_problem problem, hx_slice errors);
/* Ends a call whose client is gone. */
void hx_admin_end(hx_admin_call *call);
/* Answers a request that can't be read, with this status. */
void hx_admin_answer_malformed(hx_stream *stream, unsigned status, const char *detail);

/* Why the act can't be done to the operation `found`, or HX_ADMIN_PROBLEM_COUNT when it can. */
hx_admin_problem hx_admin_objection(const hx_operator_act *act, uint64_t epoch, const hx_record *found);
/* Whether the response that the act gives is small enough for the route of `found`. */
bool hx_admin_fits(const hx_admin_call *call, const hx_record *found);
/* Starts the act, which ends with `store->done`. `record` is `found`, in memory that lives until then. */
void hx_admin_perform(const hx_admin_call *call, hx_store_call *store, hx_record *record);
/* After the act: updates how the key counts for its route's quota. `record` is as a resolve made it; for a forget, as
 * it was before. */
void hx_admin_count_key(const hx_admin_call *call, hx_party party, const hx_record *record);
/* Begins the log line of the act; the caller may add fields, and ends it. */
void hx_admin_begin_log(const hx_admin_call *call, const hx_record *from);

/* The handlers of routes.def: operations.c, bulk.c for those of many, reload.c, tokens.c, events/. */
#define X(method, path, handler, scope, reach, text) void hx_admin_##handler(hx_admin_call *call);
#include "admin/routes.def"
#undef X

#endif
