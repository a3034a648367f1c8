/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP towards an upstream: exchanges over a pool of keep-alive connections, on one worker's loop. A response that is
 * not well-formed is HX_UPSTREAM_BROKEN.
 *
 * What may have happened upstream depends on how much was sent, so exchange->bytes_sent is exact: the number of bytes
 * of this request that the kernel has taken on this connection. Zero means that not one byte left.
 *
 * All functions belong to the loop's thread. Events are never called from inside a function of this header, but for
 * hx_upstream_free. */
#ifndef HX_NET_UPSTREAM_H
#define HX_NET_UPSTREAM_H

#include "base/fail.h"
#include "base/memory/list.h"
#include "base/loop/loop.h"
#include "net/http/message.h"

typedef struct hx_upstream hx_upstream;
typedef struct hx_exchange hx_exchange;
typedef struct hx_wire_protocol hx_wire_protocol; /* the version of HTTP that the upstream speaks; see pool.h */

#define HX_UPSTREAM_ERRORS(X)                                                                                          \
    X(UNREACHABLE, "no connection could be made")                                                                      \
    X(CONNECT_TIMEOUT, "no connection was made in time")                                                               \
    X(RESET, "the connection was cut")                                                                                 \
    X(BROKEN, "the response is not well-formed HTTP")                                                                  \
    X(CUT_SHORT, "the response ended before it was complete")                                                          \
    X(TOO_LARGE, "the head of the response has more than 64KiB, or more lines than limits.answer_headers allows")      \
    X(CANCELLED, "the request was cancelled")

typedef enum {
#define X(name, text) HX_UPSTREAM_##name,
    HX_UPSTREAM_ERRORS(X)
#undef X
} hx_upstream_error;

const char *hx_upstream_error_text(hx_upstream_error error);

typedef struct {
    hx_ms connect_timeout;    /* 5 s */
    hx_ms idle_timeout;       /* a pooled connection is closed after it; 60 s */
    uint32_t idle_max;        /* pooled connections kept; 256 */
    uint32_t connections_max; /* in all; further exchanges wait in line for one */
    uint32_t waiting_max;     /* exchanges in that line; beyond it UNREACHABLE */
    uint32_t head_bytes_max;  /* of a response; 64 KiB */
    uint16_t fields_max;      /* 200 */
} hx_upstream_limits;

/* `url`: "http://127.0.0.1:3000", "http://[::1]:3000", "http://name:3000", "unix:/run/app.sock". Names are looked up
 * outside the loop's thread and again when connections fail. Returns NULL with a sentence in `error` for a bad URL. */
hx_upstream *hx_upstream_new(hx_loop *loop, hx_slice url, const hx_upstream_limits *limits, hx_error_text error);
/* The new limits hold from now on; timeouts that are running are kept. */
void hx_upstream_set_limits(hx_upstream *upstream, const hx_upstream_limits *limits);
/* Cancels the exchanges in flight: failed(CANCELLED) is called for each, inside this call. Afterwards the loop must run
 * on or be freed, which returns the memory that libuv still uses. */
void hx_upstream_free(hx_upstream **owned);
hx_slice hx_upstream_host(const hx_upstream *upstream); /* "127.0.0.1:3000": for Host when a client sent none */

typedef struct {
    /* The head of the response; interim responses (1xx but for 101) are dropped. The head lives in exchange->arena. */
    void (*head)(hx_exchange *exchange, const hx_answer_head *head);
    /* A piece of the response's body. The bytes live during the call only. */
    void (*body)(hx_exchange *exchange, hx_slice piece);
    /* The response is complete: the last event of a good exchange. The connection is back in the pool or closed. */
    void (*end)(hx_exchange *exchange);
    /* The last event of a failed exchange. */
    void (*failed)(hx_exchange *exchange, hx_upstream_error error);
    /* The caller may write on, after hx_exchange_write returned false. May be NULL where no body is streamed. */
    void (*drained)(hx_exchange *exchange);
} hx_exchange_events;

/* Whether an upstream may leave a request's body unread: that it was sent doesn't mean that it was read. */
typedef enum {
    HX_REQUEST_BODY_NONE,
    HX_REQUEST_BODY_USUAL,  /* of POST, PUT and PATCH: applications read it unless they refuse the request */
    HX_REQUEST_BODY_UNUSUAL /* of any other method: it may not be read */
} hx_request_body;

typedef enum { HX_FRAMING_NONE, HX_FRAMING_LENGTH, HX_FRAMING_CHUNKED } hx_framing;

struct hx_exchange {
    /* Set by the caller before hx_exchange_start; the memory lives until `end` or `failed`. */
    hx_arena *arena;
    const hx_exchange_events *events;
    void *user;
    hx_slice method;
    hx_slice target;       /* path and query */
    hx_slice header_lines; /* each "Name: value\r\n", Host too; the lines of framing and of the connection are added */
    hx_slice upgrade;      /* the protocol to switch to; empty: none */
    hx_framing framing;
    uint64_t content_length;   /* HX_FRAMING_LENGTH */
    hx_slice body;             /* a whole body; empty when there is none or it is streamed */
    hx_request_body body_kind; /* whichever way it is sent */
    bool body_streamed;        /* hx_exchange_write follows, then hx_exchange_finish */
    bool close;                /* the upstream is asked to close the connection after its response */
    bool answer_has_no_body;   /* HEAD */
    bool repeatable;           /* no effect, no streamed body: sent again when a pooled connection turns out stale */
    hx_ms pooled_idle_max;     /* use a pooled connection only if it was idle for at most this; 0: only a new one */
    /* Results. */
    uint64_t bytes_sent;
    uint64_t bytes_all; /* of the request; of a streamed one, of its head. Known once a connection carries it */
    bool reused;        /* the connection came from the pool */
    uint64_t connect_failures;
    const char *reason; /* of a failure, the system's text (static), or NULL */
    /* Used inside net only; all zero at first. */
    struct {
        hx_upstream *upstream;
        const hx_wire_protocol *protocol;
        void *connection;
        hx_slice head; /* as the protocol writes it; empty before the first connection */
        hx_buf *held;  /* what was written of a streamed body before there was a connection */
        hx_link link;
        uint32_t flags;
        hx_upstream_error error;
        bool is_tunnel;
    } own;
};

void hx_exchange_start(hx_upstream *upstream, hx_exchange *exchange);
/* Sends a piece of a streamed body, copying what the kernel doesn't take now. False: write no more until `drained`. */
bool hx_exchange_write(hx_exchange *exchange, hx_slice bytes);
void hx_exchange_finish(hx_exchange *exchange);
/* Starts a failed exchange again, with all that was written of its body. Only one that no connection ever carried; it
 * can be written to and finished between `failed` and this call, too. */
bool hx_exchange_may_repeat(const hx_exchange *exchange);
void hx_exchange_repeat(hx_upstream *upstream, hx_exchange *exchange);
/* Back-pressure on the response: nothing more is read. What was read already (64 KiB at most) still comes. */
void hx_exchange_pause(hx_exchange *exchange);
void hx_exchange_resume(hx_exchange *exchange);
/* Called inside `head` with status 101: from then on bytes pass unframed. `body` brings the upstream's bytes, `end` its
 * end of file; hx_exchange_write sends, hx_exchange_finish closes our side. Without this call the head ends a 101. */
void hx_exchange_tunnel(hx_exchange *exchange);
/* Closes the connection; failed(CANCELLED) follows from the loop, and no other event before it. */
void hx_exchange_cancel(hx_exchange *exchange);

#endif
