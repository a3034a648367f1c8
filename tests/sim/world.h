/* SPDX-License-Identifier: Apache-2.0 */
/* One simulated world: gateway nodes made of the daemon's own objects, and around them a clock, a network, a store, an
 * application and clients that are all played here. Everything happens in events on one queue; nothing reads a real
 * clock, and whatever is decided comes from choices.h. So a run is the same every time.
 *
 *     clients (client.c) --server.c--> hx_worker --upstream.c--> the application (app.c)
 *                                          |
 *                                        store.c: delays, loses, fails  -->  src/store/memory.c
 *
 * The oracle (oracle.c, with its own idea of the store in model.c) sees all sides at once and knows what really
 * happened; it ends the run by sim_fail when a promise of the contract is broken. */
#ifndef HX_TESTS_SIM_WORLD_H
#define HX_TESTS_SIM_WORLD_H

#include "store/backend.h"
#include "choices.h"
#include "gateway/gateway.h"
#include "jobs/sweep.h"

#include <setjmp.h>

#define SIM_NODES_MAX 2u
#define SIM_WORKERS_MAX 2u /* of a node */
#define SIM_KEYS_MAX 4u
#define SIM_PRINCIPALS 3u
#define SIM_PROOFS 2u /* of a principal: an old credential and a new one */
#define SIM_PAYLOADS 2u
#define SIM_ROUTES 8u
_Static_assert(SIM_OPS_MAX == SIM_ROUTES * SIM_PRINCIPALS * SIM_KEYS_MAX, "each operation has its list of choices");
#define SIM_HOUR INT64_C(1800000000000)   /* when one ends, by the clock of the nodes */
#define SIM_SETTLE (30 * HX_SECOND)       /* the longest that the application works on what can be probed */
#define SIM_STALL_MAX (90 * HX_SECOND)    /* of a call to the store */
#define SIM_EVENTS_MAX 20000u             /* a run that has more is going round in circles */
#define SIM_ANSWER_BOUND (15 * HX_MINUTE) /* in which whoever stays must have an answer */

/* What can go wrong, for the report. */
#define SIM_FAULTS(X)                                                                                                  \
    X(NODE_CRASH, "node crash")                                                                                        \
    X(CLIENT_LEFT, "client left")                                                                                      \
    X(APP_CRASH, "app crash")                                                                                          \
    X(REFUSED, "refused")                                                                                              \
    X(RESET, "reset")                                                                                                  \
    X(CUT, "cut answer")                                                                                               \
    X(SILENT, "no answer")                                                                                             \
    X(STORE_LOST, "store: lost")                                                                                       \
    X(STORE_DONE, "store: done")                                                                                       \
    X(STORE_FULL, "store: full")                                                                                       \
    X(STORE_STALL, "store: stall")                                                                                     \
    X(CLOCK_JUMP, "clock jump")

typedef enum {
#define X(id, text) SIM_FAULT_##id,
    SIM_FAULTS(X)
#undef X
        SIM_FAULT_COUNT
} sim_fault;

/* What became of a call to the store. */
#define SIM_FATES(X)                                                                                                   \
    X(OK, "told")                                                                                                      \
    X(STALL, "told late")                                                                                              \
    X(LOST, "lost")                                                                                                    \
    X(DONE, "told unavailable")                                                                                        \
    X(ORPHAN_LOST, "lost in a crash")                                                                                  \
    X(ORPHAN_DONE, "done, caller dead")

typedef enum {
#define X(id, text) SIM_FATE_##id,
    SIM_FATES(X)
#undef X
        SIM_FATE_COUNT
} sim_fate;

/* One life of an operation: from a claim that found nothing to the end of its lifetime, or to its release. */
typedef struct sim_life {
    struct sim_life *earlier;
    uint64_t first_epoch;
    unsigned effects;
    struct sim_job *effect; /* what the application remembers of it */
    bool dispatched;
    unsigned proof, payload; /* of who was dispatched first */
    struct {
        unsigned client; /* who asked for it; UINT_MAX: a dead node's */
        uint64_t epoch;
        unsigned number;    /* Hapax-Attempt */
        unsigned of_epoch;  /* how many there were under this epoch */
        hx_ms not_before;   /* an answer asked for patience */
        hx_state means;     /* what §5 makes of how it ended; HX_PROCESSING: it hasn't */
        bool after_silence; /* one before it ended without an answer that tells */
        bool after_failure; /* one before it was answered, with an error that was tried again */
        bool is_kept;       /* its answer is one that is kept */
        bool may_repeat;    /* it did nothing, and is one that is tried again */
        hx_ms first_at;     /* when the first of its epoch began */
    } attempt;              /* the newest */
    unsigned found_in;      /* the event in which a probe's answer reported it */
    hx_ms expires_at;
    hx_ms began_at;
    hx_ms created_at; /* by its record, which was made before that */
    hx_ms gone_at;    /* INT64_MAX while it lasts */
    bool has_outcome;
    bool adopted; /* by an operator's word */
    bool retained;
    bool released;
    hx_ms outcome_at;
    unsigned status; /* of the outcome, or of the answer it was released with */
    uint64_t lines_hash, body_hash;
} sim_life;

/* An operation, seen from outside: who asked for what with which key. With it, what must stand in the store. */
typedef struct {
    unsigned route, principal, key;
    hx_op id;     /* where it is, or was last */
    hx_op ids[2]; /* before its route was renamed, and since: one and the same for most */
    bool used;
    hx_state state;
    uint64_t epoch;
    hx_ms lease_until, expires_at, tombstone_until;
    hx_ms changed_at;      /* since when what a reader would see is as it is */
    hx_ms last_unknown_at; /* when it was last seen unknown */
    hx_ms last_stale_at;   /* when a settle was last refused */
    bool is_held;          /* unknown, because it was answered with success and had no mark */
    sim_life *life;        /* the newest; NULL: never claimed */
    struct sim_job *jobs;  /* requests for it that reached the application */
} sim_op;

typedef struct sim_client sim_client;
typedef struct sim_node sim_node;

typedef struct sim_store {
    hx_store store; /* the first member: the gateway sees only this */
    sim_node *node;
} sim_store;

struct sim_node {
    unsigned index;
    unsigned starts; /* how often it was started: what belongs to an earlier start is dead */
    bool up;
    bool draining;
    bool is_renamed; /* it was started with the newer rules */
    bool sweep_stopped;
    hx_loop *loops[SIM_WORKERS_MAX];
    hx_worker workers[SIM_WORKERS_MAX];
    bool drained[SIM_WORKERS_MAX];
    hx_config config;
    hx_rules rules;
    hx_gateway gateway;
    hx_sweep sweep;
    sim_store store;
};

/* Rates per mille of what may happen, chosen once for each run, so that runs differ in what they suffer from. */
typedef struct {
    unsigned store_lost, store_done, store_full, store_stall;
    unsigned refused, reset, doubled, cut, silent, slow_app, error_answers, words, streams;
    unsigned client_leaves, mismatches, other_proofs, impatient;
} sim_rates;

typedef struct {
    jmp_buf escape;
    char failure[2048];
    bool tracing;
    uint64_t seed;

    hx_ms boot;         /* milliseconds since the world began */
    hx_ms wall_offset;  /* what a wall clock shows, less that */
    hx_ms clock_offset; /* the same for the clock of the nodes and the store */
    uint64_t hash;      /* of everything that happened */
    unsigned events;
    unsigned crashes; /* of nodes */
    hx_arena arena;   /* of the run */

    bool shared;         /* several nodes share the store; else it is one node's own */
    bool calm;           /* nothing goes wrong any more */
    unsigned busy_route; /* that half of all requests are for */
    unsigned node_count, worker_count, client_count, key_count, principal_count;
    sim_node nodes[SIM_NODES_MAX];
    sim_rates rates;

    hx_policy routes[SIM_ROUTES], routes_before[SIM_ROUTES];
    hx_policy_set policies, policies_before;
    bool is_renamed; /* `policies` are the last that the store got; nodes that were not started since refuse */
    sim_op ops[SIM_OPS_MAX];
    uint8_t secret[32];
    hx_mac *mac;

    hx_store *state; /* the reference, behind every node's store */
    hx_loop *store_loop;
    struct {
        hx_ms slow_until, failing_until, full_until;
        uint64_t sequence;
        bool has_failed; /* or been slow, in this run */
        hx_link calls;   /* under way */
    } store;
    struct {
        bool up;
        unsigned jobs;
        unsigned lately; /* retries, without a pause between them */
        hx_ms lately_since;
        hx_link wires; /* exchanges under way */
    } app;
    hx_link streams; /* that nodes hold */
    sim_client *clients;
} sim_world;

extern sim_world world;

/* run.c */
_Noreturn void sim_fail(const char *promise, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SIM_TRACE(...)                                                                                                 \
    do {                                                                                                               \
        if (world.tracing) sim_trace(__VA_ARGS__);                                                                     \
    } while (0)
void sim_mix(uint64_t number);
uint64_t sim_hash(hx_slice bytes);

/* loop.c: the queue of events, and time */
typedef void (*sim_happening)(void *subject);
void sim_after(hx_ms delay, sim_happening fire, void *subject);
/* Lets the next thing happen; false when nothing is left that ever would. */
bool sim_step(void);
void sim_loop_reset(void);
/* When the next event is due, timers of loops apart; INT64_MAX: there is none. */
hx_ms sim_next_event(void);
/* Lets its timers fire, whatever their time is. */
void sim_loop_fire_all(hx_loop *loop);
hx_ms sim_now(void); /* by the clock of the nodes and the store */
void sim_run_tasks(hx_loop *loop);
/* Without its timers and tasks: their memory went with their node. */
void sim_loop_drop(hx_loop **owned);

/* node.c */
void sim_node_start(sim_node *node);
void sim_node_crash(sim_node *node);
void sim_node_drain(sim_node *node);
bool sim_node_drained(const sim_node *node);
void sim_node_stop(sim_node *node); /* after it has drained */
unsigned sim_node_requests(const sim_node *node);

/* operator.c */
void sim_operator_acts(void);

/* store.c */
void sim_store_open(sim_node *node);
void sim_store_crash(sim_node *node);
void sim_store_orphans(void); /* an exclusive store was opened: what was under way is unknown (G9) */
bool sim_store_idle(void);
void sim_store_reset(void);
void sim_store_check_watches(const sim_op *op); /* NULL: of all */

/* server.c */
typedef struct {
    sim_op *op;
    unsigned proof, payload;
    hx_ms patience; /* X-Request-Timeout; 0: none */
    bool unkeyed;
    bool malformed;
} sim_ask;

void sim_server_ask(hx_server *server, sim_client *client, const sim_ask *ask);
void sim_server_leave(void *subject); /* a stream, as sim_client_waits got it */
void sim_server_crash(sim_node *node);
void sim_server_check_waiting(void);
/* The request that holds this memory, or NULL. */
const struct hx_request *sim_request_around(const void *memory);
unsigned sim_client_around(const void *memory); /* whose that is, or UINT_MAX */
/* Whether a node is at work on this claim. */
bool sim_server_holds(const sim_op *op);

/* upstream.c: what the application's side calls */
typedef struct sim_wire sim_wire;
typedef struct {
    unsigned status;
    hx_slice lines; /* "Name: value\r\n" */
    hx_slice body;
    bool is_stream;
    bool retry_after;
    const char *word; /* Hapax-Outcome; NULL: none */
} sim_reply;

void sim_wire_answer(sim_wire *wire, const sim_reply *reply);
void sim_wire_answer_cut(sim_wire *wire, const sim_reply *reply, hx_upstream_error error);
void sim_wire_fail(sim_wire *wire, hx_upstream_error error);
void sim_upstream_crash(sim_node *node);
void sim_upstream_reset_all(void);

/* app.c */
typedef struct sim_job sim_job;
/* What the application was asked: read from the bytes that it got. */
typedef struct {
    sim_op *op; /* NULL: nothing keyed */
    uint64_t epoch;
    sim_life *life;
    unsigned proof, payload, attempt;
    bool is_probe;
} sim_request;

/* The application has the whole request. `wire` NULL: whoever sent it is gone. */
sim_job *sim_app_receive(const sim_request *request, sim_wire *wire);
void sim_app_hang_up(sim_job *job);
void sim_app_crash(void);
bool sim_app_is_working(const sim_op *op, const sim_life *life);
bool sim_app_idle(void);
/* Whether this is the body that it answered under that number, to a request or a probe. */
bool sim_app_gave_cookie(const sim_op *op, unsigned number);
bool sim_app_said(const sim_op *op, unsigned number, hx_slice body);

/* client.c */
void sim_clients_begin(void);
bool sim_clients_idle(void);
/* Everyone who was promised something asks once more. */
void sim_clients_verify(void);
unsigned sim_client_index(const sim_client *client);
/* What it waits for; NULL: nothing. */
void sim_client_waits(sim_client *client, void *stream);
void sim_client_cut(sim_client *client); /* the connection ended without a whole answer */
void sim_client_begin(sim_client *client, unsigned status, hx_slice lines);
void sim_client_answer(sim_client *client, unsigned status, hx_slice lines, hx_slice body);
void sim_client_piece(sim_client *client, hx_slice piece);
void sim_client_end(sim_client *client);
void sim_clients_check_waiting(void);

/* model.c: what must stand in the store */
sim_op *sim_op_at(unsigned route, unsigned principal, unsigned key);
sim_op *sim_op_of(const hx_op *id);
hx_state sim_op_state(const sim_op *op); /* as a reader sees it now */
sim_life *sim_life_of(const sim_op *op, uint64_t epoch);
/* A call took effect with this result: must it have? */
void sim_model_effect(const hx_store_call *call, sim_fate fate);
/* One never will; for the report. */
void sim_model_lost(const hx_store_call *call, sim_fate fate);
void sim_model_check(sim_op *op);
void sim_model_check_all(void);
const char *sim_op_name(const sim_op *op);
unsigned sim_op_index(const sim_op *op);

/* oracle.c: the promises */
void sim_oracle_dispatch(const sim_request *request, const hx_exchange *exchange);
/* An attempt has ended: with an answer, or (NULL) without one. */
void sim_oracle_attempt(const sim_request *request, const sim_reply *reply, bool any_byte_sent);
/* A probe's whole answer is handed over. */
void sim_oracle_probed(const sim_request *request, const sim_reply *reply);
void sim_oracle_cancel(const sim_request *request, hx_ms began_at);
/* A node has decided what became of an operation, and writes it. */
struct hx_request;
void sim_oracle_settle(const sim_op *op, const hx_record *record, const struct hx_request *r);
void sim_oracle_lapse(const sim_op *op);
void sim_oracle_effect(sim_op *op, sim_life *life);
void sim_oracle_release(sim_op *op, sim_life *life, hx_state from);
typedef struct {
    sim_op *op;
    unsigned client, proof, payload;
    hx_ms asked_at, patience;
    unsigned status;
    hx_slice lines;
    hx_slice body;
    bool has_body; /* false: an answer in pieces, of which only the head has come */
} sim_told;
void sim_oracle_told(const sim_told *told);
/* The value of a header line, or HX_EMPTY. */
hx_slice sim_line(hx_slice lines, const char *name);
/* Over what every client of an operation gets alike. */
uint64_t sim_lines_hash(hx_slice lines);

/* routes.c */
enum {
    SIM_ROUTE_NONE,
    SIM_ROUTE_ATOMIC,
    SIM_ROUTE_IDEMPOTENT,
    SIM_ROUTE_PROBE,
    SIM_ROUTE_RENAMED, /* known by another name from some moment on: `formerly` */
    SIM_ROUTE_WINDOW,  /* a natural key by the hour: its `key` is the hour, and all of a caller's are one operation */
    SIM_ROUTE_TRANSACTIONAL, /* the application completes it in the transaction of its effect */
    SIM_ROUTE_DEFAULT
};
void sim_routes_make(void);
const hx_policy *sim_policy(const sim_op *op);
hx_slice sim_route_path(unsigned route);
bool sim_is_hourly(const sim_op *op);
bool sim_may_repeat(const sim_op *op);
bool sim_is_marked(const sim_op *op); /* by the application, in its own transaction */

/* coverage.c */
const char *sim_fault_name(sim_fault fault);
void sim_cover_requests(const sim_node *node, sim_fault fault); /* NULL: of every node */
void sim_cover_stream(const hx_stream *stream, sim_fault fault);
void sim_cover_call(const hx_store_call *call, sim_fault fault);
void sim_cover_exchange(const hx_exchange *exchange, sim_fault fault);
void sim_cover_wire(const sim_wire *wire, sim_fault fault);
typedef enum {
#define X(id, text) SIM_CHANGE_##id,
#include "changes.def"
#undef X
    SIM_CHANGE_COUNT
} sim_change;
void sim_cover_change(sim_change change, sim_fate fate);

#endif
