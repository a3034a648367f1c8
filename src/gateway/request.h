/* SPDX-License-Identifier: Apache-2.0 */
/* One request's life: a table of steps and a loop that runs them until one parks. A new key takes the first of these
 * ways; the others leave it and come back to it. may_follow[] in request.c has every edge.
 *
 *     admit ──► claim ──► forward ──► judge ──► settle ──► reply ──► late_answer ──► finish
 *
 *     admit ──► pass ──► finish               no key. From claim: the store is down (`on_store_down: pass`)
 *     admit ──► shadow ──► pass ──► shadow    `mode: shadow` (steps/shadow.h)
 *     admit ──► locate ──► claim              there may be aliases. From claim: an adopted alias is read again
 *     claim ──► [wait ──►] replay ──► reply   settled; wait: in flight, claimed by another request
 *     claim ──► probe ──► claim               unknown, and the upstream can be asked. Also judge ──► probe ──► settle
 *     claim ──► authorize ──► claim           another credential of the same principal: the upstream is asked
 *     claim ──► yield ──► forward | locate    locate: our claim was released in favour of one in a neighbouring bucket
 *     judge ──► retry ──► forward             sent again. Without a claim pass ──► retry ──► pass
 *     claim | yield | forward ──► settle      the claim can't be used: it is given back
 *     settle ──► claim                        unknown: to be taken over under a new epoch (parts/transactional.h)
 *     settle ──► stream ──► finish            the response is not kept
 *     late_answer ──► judge ──► settle        a late response
 *     admit ──► ask ──► reply                 a question about an operation: nothing is claimed
 *     any ──► reply                           refused. Without a claim, finish follows
 *
 * A client that leaves ends only what is done for it alone: reading its body, waiting, passing. A claim goes on, even
 * one that isn't granted yet: it is forwarded and settled. A client that waits no longer, because its request timeout
 * is over or the outcome can't be recorded, is answered by hx_reply_early, which is no step. What was forwarded goes
 * on; a claim that is granted afterwards is given back, and a request whose claim isn't granted is finished.
 *
 * A step function returns HX_MORE to go on with the step that hx_request_go chose, or with itself; HX_PARKED when it
 * waits for a callback; HX_DONE once, from finish. Callbacks note what came and call hx_request_run; they never change
 * the step. What must hold between two steps is checked by check_invariants in request.c. A request belongs to its
 * worker's thread, and lives in its stream's arena until finish releases the stream, with or without a client. */
#ifndef HX_GATEWAY_REQUEST_H
#define HX_GATEWAY_REQUEST_H

#include "core/retry/request_timeout.h"
#include "core/operation/errors.h"
#include "core/operation/lifecycle.h"
#include "core/operation/outcome.h"
#include "core/operation/template.h"
#include "gateway/parts/request_body.h"
#include "gateway/gateway.h"
#include "observe/summary.h"

typedef enum {
#define X(name, text, test) HX_STEP_##name,
#include "gateway/steps.def"
#undef X
    HX_STEP_COUNT
} hx_step;

extern const char *const hx_step_times[]; /* "admit_ms": the log fields of r->step_ms */

typedef enum { HX_MORE, HX_PARKED, HX_DONE } hx_step_result;

/* Where r->call is. */
typedef enum {
    HX_CALL_IDLE,
    HX_CALL_BACK, /* it has come back, and its step has not looked at it yet */
    HX_CALL_PENDING,
    HX_CALL_CANCELLED /* a watch that was asked to end: still pending, and its result counts if it came first */
} hx_call_state;

/* How far r->exchange is: an attempt, a request that passes, a probe or an authorization. */
typedef enum {
    HX_EXCHANGE_NONE,
    HX_EXCHANGE_OPEN,      /* started, no head yet */
    HX_EXCHANGE_ANSWERING, /* the head has come */
    HX_EXCHANGE_CANCELLED, /* it was called off, and has not ended yet */
    HX_EXCHANGE_WHOLE,
    HX_EXCHANGE_FAILED
} hx_exchange_state;

/* How far this request has taken its operation. */
typedef enum {
    HX_OPERATION_NONE,       /* no claim is in use; in yield, one is durable already */
    HX_OPERATION_CLAIMED,    /* record.epoch is held, and its outcome is open */
    HX_OPERATION_SETTLING,   /* the outcome is decided, and being recorded */
    HX_OPERATION_RECLAIMING, /* being recorded as unknown, to be taken over under a new epoch */
    HX_OPERATION_SETTLED,    /* the claim has ended: its outcome or release is durable, or it was fenced */
    HX_OPERATION_RESETTLING, /* durable as unknown, and a late response is being recorded */
    HX_OPERATION_GIVEN_UP    /* the outcome could not be recorded: it becomes unknown when the lease ends */
} hx_operation_state;

/* Why an attempt was not sent although the claim is durable. */
typedef enum {
    HX_UNSENT_NOT,
    HX_UNSENT_LEASE_OVER,  /* the lease ended first, or yield could not ask the store */
    HX_UNSENT_TIMEOUT_OVER /* the client's request timeout ran out first */
} hx_unsent;

/* How a request passes unprotected. */
typedef enum {
    HX_PASS_STREAMED, /* also of a request that doesn't pass */
    HX_PASS_KEPT,     /* its body is kept whole, so that it can be sent again (`retry_safe`) */
    HX_PASS_BYPASS,   /* keyed; the store is down, and the route lets it pass unrecorded (`on_store_down: pass`) */
    HX_PASS_SHADOW    /* `mode: shadow` */
} hx_pass_kind;

/* The basis of the verdict on an attempt. */
typedef enum {
    HX_BASIS_SILENCE, /* no response, or none yet */
    HX_BASIS_RESPONSE,
    HX_BASIS_UNMARKED /* a response of success, without the mark that the application was to leave */
} hx_basis;

/* Whether earlier attempts may have had an effect. */
typedef enum {
    HX_EARLIER_NOTHING,  /* there were none, or they are known to have had no effect */
    HX_EARLIER_ANSWERED, /* they may have: one was answered, and not as without effect */
    HX_EARLIER_UNKNOWN   /* they may have: the outcome of one is unknown */
} hx_earlier;

/* The client's side of the request, which may end before the operation's does. */
typedef enum {
    HX_CLIENT_WAITING,
    HX_CLIENT_GONE,           /* its connection is closed, and its response not due yet */
    HX_CLIENT_ANSWERED_EARLY, /* it got an error because it waits no longer, or has gone; the operation goes on */
    HX_CLIENT_ANSWERED,       /* its response has begun */
    HX_CLIENT_ANSWERED_GONE   /* its connection is closed: its response may be cut off, or was not sent at all */
} hx_client_state;

/* Idempotency-Status. */
typedef enum {
    HX_IDEMPOTENCY_NOTHING,
    HX_IDEMPOTENCY_STORED,
    HX_IDEMPOTENCY_REPLAYED,
    HX_IDEMPOTENCY_RELEASED,
    HX_IDEMPOTENCY_UNKNOWN,
    HX_IDEMPOTENCY_NOT_RETAINED, /* executed and final, but a replay will not have this answer */
    HX_IDEMPOTENCY_BYPASSED
} hx_idempotency;

const char *hx_idempotency_text(hx_idempotency status);

/* The kind of response that the client gets. */
typedef enum {
    HX_REPLY_NOTHING, /* not chosen yet, or the response passes as it came */
    HX_REPLY_ERROR,   /* a problem of ours */
    HX_REPLY_ANSWER,  /* reply_answer: the upstream's response, now or from the store, or a preflight's */
    HX_REPLY_NOOP     /* 200 {} */
} hx_reply_kind;

/* Hapax-Shadow. */
typedef enum { HX_WOULD_FORWARD, HX_WOULD_REPLAY, HX_WOULD_WAIT, HX_WOULD_ASK, HX_WOULD_REFUSE } hx_would;

typedef struct hx_renewal hx_renewal; /* worker.c */

typedef struct hx_request {
    hx_worker *worker;
    hx_stream *stream;
    hx_arena *arena;   /* the stream's */
    hx_link link;      /* among the worker's requests */
    hx_rules_use *use; /* the generation of rules that the request began under */
    hx_step step;
    hx_ms started_at;
    hx_ms step_since;                /* when the step was chosen */
    uint32_t step_ms[HX_STEP_COUNT]; /* the time that each step took, over all its turns */

    /* admit */
    const hx_policy *policy;
    uint64_t memory;                   /* bytes reserved of the worker's memory: see parts/memory_budget.h */
    hx_arena found_arena;              /* holds `found` of a shared store; freed early if its body is moved to a file */
    hx_slice path;                     /* normalised */
    hx_slice host;                     /* of a keyed request, as hx_text_host normalises it */
    hx_slice route;                    /* the policy's name, or method and path */
    hx_slice identity;                 /* the name in the route's operation ids: its oldest name */
    hx_slice header_key;               /* the client's key, unquoted */
    bool natural;                      /* the key is made by the route's template, not by the client */
    hx_slice key;                      /* set once the body is whole; a natural key as hexadecimal text */
    hx_ms key_at;                      /* when the natural key was made */
    hx_digest key_fixed;               /* the part of the natural key that doesn't depend on the time */
    hx_slice principal;                /* as core/operation/identity.h has it; empty: unauthenticated */
    const hx_principal_source *source; /* where the principal was found; NULL: unauthenticated */
    hx_body body;
    enum { HX_BODY_UNREAD, HX_BODY_READING, HX_BODY_WHOLE, HX_BODY_BROKEN } body_state;
    unsigned body_error_status;
    const char *body_error_detail;
    hx_slice correlation;
    char traceparent[56];
    bool trace_continues;               /* the trace is the client's, not one that begins here */
    hx_request_timeout request_timeout; /* X-Request-Timeout */
    hx_op op;
    uint64_t parts[HX_PART_COUNT]; /* MACs of the fingerprint's parts, of a large body only */

    /* locate, yield */
    struct {
        enum {
            HX_ALIAS_OWN,     /* op and key are the request's own */
            HX_ALIAS_ADOPTED, /* the operation was found under an alias: op and key are that one's */
            HX_ALIAS_YIELDED  /* the same, and our own claim was released in its favour */
        } state;
        hx_ms bucket_at;    /* a moment in the bucket that is searched; 0: none is */
        size_t name;        /* which of the route's names is searched */
        hx_slice own_key;   /* the request's own key */
        hx_slice rival_key; /* of the claim in a neighbouring bucket */
        hx_op rival_op;
    } alias;

    /* claim, wait, settle */
    hx_operation_state operation;
    uint64_t taken_over_epoch; /* of the unknown operation that the claim replaces; 0: the operation is new */
    unsigned settle_tries;
    hx_ms settle_since;
    hx_call_state call_state;
    hx_link lease_link; /* among the worker's claims */
    hx_ms renew_at;
    hx_renewal *renewal; /* the renewal in flight, or NULL */
    hx_ms lease_until;   /* as granted, or as last renewed */
    hx_unsent unsent;

    /* forward */
    hx_exchange_state exchange_state;
    hx_upstream_error exchange_error;
    uint16_t answer_status;
    hx_ms answer_retry_after; /* HX_RETRY_AFTER_NONE: missing or invalid */
    hx_outcome_word answer_word;
    hx_ms answer_due;      /* when the upstream's time is up */
    bool answer_streamed;  /* the response is not kept: too large, endless, or can't be spooled */
    int64_t answer_length; /* Content-Length of the response, -1: none */
    hx_slice lines_first;  /* header lines for the first client, with Set-Cookie */
    hx_slice lines_kept;   /* header lines for the store and later clients */
    hx_body answer;
    hx_slice answer_whole;     /* the whole response body, once a step has looked at it */
    hx_buf answer_rest;        /* of a streamed response: bytes that came behind `answer` before the exchange paused */
    uint64_t memory_recording; /* bytes of `answer` that are in memory while the store writes them */
    hx_ms waits_to_record_since; /* for other requests' memory_recording; 0: it doesn't */
    uint64_t answer_shown;       /* bytes of `answer` and `answer_rest` that the client was sent */
    bool timed_out;              /* the upstream's time was up */

    /* judge, retry */
    hx_verdict verdict;
    hx_basis basis;
    unsigned attempts; /* made by this request, over all its claims */
    unsigned attempts_of_claim;
    hx_ms first_attempt_at;
    hx_earlier earlier;
    hx_retry_verdict no_retry_because; /* HX_RETRY_AGAIN: nothing speaks against a retry so far */
    hx_reservation reservation;        /* of the next attempt, in the retry budget */

    /* pass */
    hx_pass_kind pass_kind;
    hx_slice upgrade; /* the protocol that the upstream was asked to switch to; empty: none */
    struct {
        uint64_t bytes_up;
        uint64_t bytes_down;
        bool client_ended; /* the client has closed its side, and the application was told */
        bool is_held_back; /* the client takes no more for now */
    } tunnel;
    bool upload_held_back; /* the upstream takes no more of the body for now */

    /* shadow: what protection would have done */
    struct {
        hx_would would;
        hx_error error; /* HX_WOULD_REFUSE */
        enum { HX_SHADOW_IDLE, HX_SHADOW_CLAIMING, HX_SHADOW_CLAIMED, HX_SHADOW_SETTLING } claim;
        hx_slice kept; /* part of the body still to be forwarded before `rest` */
        hx_slice rest; /* the piece of the body that could not be kept, forwarded behind `kept` */
        enum { HX_REST_NONE, HX_REST_MORE_FOLLOWS, HX_REST_LAST } rest_state;
    } shadow;

    /* probe */
    enum { HX_PROBE_NONE, HX_PROBE_ASKING, HX_PROBE_SETTLING, HX_PROBE_DONE } probe_state;
    hx_ms probed_at;
    uint16_t probe_status;
    hx_slice probe_type;
    hx_slice probe_reason; /* the record's reason for the outcome that the probe found */

    /* authorize */
    enum { HX_AUTHORIZE_NONE, HX_AUTHORIZE_ASKING, HX_AUTHORIZE_DONE } authorize_state;
    uint16_t authorize_status;

    /* ask */
    hx_ms ask_wait; /* how long the caller waits for the operation to end */

    /* reply */
    hx_reply_kind reply_kind;
    hx_error error;
    hx_slice error_detail;
    hx_ms error_original_time; /* when the first request came, for errors that say it; 0: none */
    hx_idempotency idempotency;
    unsigned reply_status;
    hx_ms retry_after; /* 0: none */
    hx_answer reply_answer;
    const hx_extent *reply_file; /* the file that has the response's body; NULL: in memory */
    hx_ms reply_expires_at;
    hx_client_state client;

    hx_timer timer;
    bool timer_rang;

    hx_claimant claimant;
    hx_fingerprint_input fingerprint_input;
    hx_record record;    /* our claim, and later its outcome; without a claim, the outcome that a probe found */
    hx_record found;     /* the record that the store had when it was last read, of whichever request */
    hx_store_call *call; /* the last call of the store, or the pending one; NULL: the store was never called */
    hx_exchange exchange;
} hx_request;

/* The step functions. */
#define X(name, text, test) hx_step_result hx_step_##name(hx_request *r);
#include "gateway/steps.def"
#undef X

static inline const hx_rules *hx_request_rules(const hx_request *r)
{
    return r->use->rules;
}

/* A request at its first step, in the stream's arena. `hapax explain` calls it too. */
hx_request *hx_request_new(hx_worker *worker, hx_stream *stream);
/* The only function that changes r->step, and the one that notes how long each took. Returns HX_MORE. */
hx_step_result hx_request_go(hx_request *r, hx_step next);
/* Runs steps until one parks; for callbacks. finish frees r: it must not be touched after this call. */
void hx_request_run(hx_request *r);

/* The only function that changes r->operation. */
void hx_request_set_operation(hx_request *r, hx_operation_state next);
/* Whether a claim of this request came into use, be it settled by now. */
static inline bool hx_request_is_claimed(const hx_request *r)
{
    return r->operation != HX_OPERATION_NONE;
}
/* Whether the claim has ended, or was given up; true while a late response is recorded, too. */
static inline bool hx_request_is_settled(const hx_request *r)
{
    return r->operation >= HX_OPERATION_SETTLED;
}

/* Whether the client's response has begun, or would have if the client were still there. */
static inline bool hx_request_is_replied(const hx_request *r)
{
    return r->client >= HX_CLIENT_ANSWERED_EARLY;
}
/* Whether the connection is closed; not known of a client that was answered early, where it doesn't matter. */
static inline bool hx_request_client_is_gone(const hx_request *r)
{
    return r->client == HX_CLIENT_GONE || r->client == HX_CLIENT_ANSWERED_GONE;
}
/* The client's response begins, whether the client is still there or not. */
void hx_request_note_reply(hx_request *r);

/* Chooses the reply step with one of our errors; `detail` is in the arena, or HX_EMPTY for the row's own title. */
hx_step_result hx_request_refuse(hx_request *r, hx_error error, hx_slice detail);
void hx_request_set_error(hx_request *r, hx_error error, hx_slice detail);
hx_step_result hx_request_refuse_unknown(hx_request *r);
hx_step_result hx_request_refuse_in_flight(hx_request *r);

/* One timer per request: it serves the step that is under way, which runs with timer_rang set. */
void hx_request_start_timer(hx_request *r, hx_ms delay);
void hx_request_stop_timer(hx_request *r);

/* Tags that keep MACs over different things apart. */
enum { HX_TAG_OPERATION = 'o', HX_TAG_SHADOW = 's', HX_TAG_PRINCIPAL = 'p', HX_TAG_PROOF = 'q', HX_TAG_KEY = 'k' };
hx_digest hx_request_mac(hx_request *r, char tag, hx_slice bytes);

/* For hx_exchange_events: the exchange has ended, and the step looks at how. */
void hx_request_answer_whole(hx_exchange *exchange);
void hx_request_answer_failed(hx_exchange *exchange, hx_upstream_error error);
/* Calls the exchange off, unless it was already; answer_failed follows, with `why` as its error. */
void hx_request_call_off(hx_request *r, hx_upstream_error why);

/* Makes r->call ready for one call of the store, and returns it: zeroed but for loop, arena and `done`, which runs the
 * step. */
hx_store_call *hx_request_prepare_call(hx_request *r);
/* True once, after r->call has come back: the step looks at its result now. */
bool hx_request_take_result(hx_request *r);

/* worker.c: renews the claim's lease, until drop. If it lapses, an attempt that isn't sent whole is called off. */
void hx_worker_keep_lease(hx_request *r);
void hx_worker_drop_lease(hx_request *r);
void hx_worker_check_drained(hx_worker *worker);
/* Holds the worker's current rules from the request's beginning to its end. */
void hx_request_take_rules(hx_request *r);
void hx_request_drop_rules(hx_request *r);
/* The rest of the client's request timeout; HX_TIMEOUT_NONE if it set none. */
static inline hx_ms hx_request_time_left(const hx_request *r)
{
    return hx_timeout_left(r->request_timeout, hx_loop_now(r->worker->loop) - r->started_at);
}
/* There is an answer to go by: a whole one, or the head of one that isn't kept and still comes. */
static inline bool hx_request_is_answered(const hx_request *r)
{
    return r->exchange_state == HX_EXCHANGE_WHOLE || (r->answer_streamed && r->exchange_state == HX_EXCHANGE_ANSWERING);
}
static inline hx_retry_budget *hx_request_budget(const hx_request *r)
{
    return &r->worker->budgets[r->policy->upstream];
}

/* While r->call is pending: a timer for the request timeout of a client that still waits, and whether it has rung. */
void hx_request_start_client_timer(hx_request *r);
bool hx_request_client_timed_out(const hx_request *r);
/* Where a request goes once its client has its answer, or will never have one, and it holds no claim. */
static inline hx_step hx_request_end_step(const hx_request *r)
{
    return r->pass_kind == HX_PASS_SHADOW ? HX_STEP_shadow : HX_STEP_finish;
}
/* How the exchange that has just ended failed. */
hx_upstream_failure hx_request_failure(const hx_request *r);
#endif
