/* SPDX-License-Identifier: Apache-2.0 */
/* One request on the admin socket, as the files of this folder share it. A call lives in its stream's arena until it is
 * answered, which happens exactly once, whether its client is still connected or not. */
#ifndef HX_ADMIN_CALL_H
#define HX_ADMIN_CALL_H

#include "admin/operator_act.h"
#include "admin/admin.h"
#include "admin/filter.h"

typedef enum {
#define X(id, code, status, title, hint) HX_ADMIN_##id,
#include "admin/problems.def"
#undef X
    HX_ADMIN_PROBLEM_COUNT
} hx_admin_problem;

/* The permission that a request needs. The socket's mode grants all of them; other listeners may grant less. */
typedef enum { HX_ADMIN_READ, HX_ADMIN_ACT, HX_ADMIN_ADMINISTER } hx_admin_permission;

struct hx_admin {
    hx_admin_needs needs;
    hx_server *server;
    hx_mac *mac;
    unsigned under_way; /* calls that are not answered yet */
    bool stopping;
    bool server_drained;
    void (*stopped)(void *context);
    void *context;
};

/* The user at the other end of the socket, by the kernel's word. */
typedef struct {
    uint32_t uid;
    int32_t pid;
    char name[64]; /* empty: the user has no name */
} hx_admin_user;

typedef struct hx_admin_call {
    hx_admin *admin;
    hx_stream *stream;
    hx_arena *arena; /* belongs to the stream */
    void (*handle)(struct hx_admin_call *call);
    hx_admin_permission permission;
    bool overfull;
    hx_buf body;
    hx_op op; /* the operation that {id} names */
    hx_admin_user who;
    hx_operator_act act;
    hx_slice reason;
    hx_store_call store;
    hx_store_page page;
    hx_record record;
    hx_admin_reload reload;
} hx_admin_call;

hx_ms hx_admin_now(const hx_admin *admin);
hx_filter_reader hx_admin_reader(hx_admin_call *call);
/* A store call on the admin's loop; `done` finds its hx_admin_call with HX_OWNER. */
hx_store_call hx_admin_store_call(const hx_admin *admin, hx_arena *arena, void (*done)(hx_store_call *call));

/* Answers 200 with JSON that lives in the call's arena; the call is over. */
void hx_admin_answer(hx_admin_call *call, hx_slice json);
/* Answers with a problem; `detail` empty: the row's title. `found`, when given, is the operation as it is stored. */
void hx_admin_refuse(hx_admin_call *call, hx_admin_problem problem, hx_slice detail, const hx_record *found);

/* The same with the lines of `errors` as an array. */
void hx_admin_refuse_lines(hx_admin_call *call, hx_admin_problem problem, hx_slice errors);

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

/* The handlers of routes.def: operations.c, bulk.c for those of many, reload.c. */
#define X(method, path, handler, permission, text) void hx_admin_##handler(hx_admin_call *call);
#include "admin/routes.def"
#undef X

#endif
