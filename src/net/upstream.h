/* SPDX-License-Identifier: Apache-2.0 */
/* The side that faces the application: exchanges over a pool of keep-alive connections to one upstream, on one
 * worker's loop. Strict about what comes back: an answer that is not well-formed is HX_UPSTREAM_BROKEN.
 *
 * What may have happened upstream depends on which byte was sent, so exchange->bytes_sent is exact: it counts what the
 * kernel has taken of this request on this connection. Zero means that not one byte left.
 *
 * All functions belong to the loop's thread; callbacks are never made from inside a function of this header. */
#ifndef HX_NET_UPSTREAM_H
#define HX_NET_UPSTREAM_H

#include "base/fail.h"
#include "base/memory/list.h"
#include "base/loop/loop.h"
#include "net/http/message.h"

typedef struct hx_upstream hx_upstream;
typedef struct hx_exchange hx_exchange;

#define HX_UPSTREAM_ERRORS(X)                                                                                          \
    X(UNREACHABLE, "no connection could be made")                                                                      \
    X(CONNECT_TIMEOUT, "no connection was made in time")                                                               \
    X(RESET, "the connection was cut")                                                                                 \
    X(BROKEN, "what came back is not a well-formed HTTP answer")                                                       \
    X(CUT_SHORT, "the answer ended before it was whole")                                                               \
    X(TOO_LARGE, "the answer's head has more than 64KiB, or more lines than limits.answer_headers allows")             \
    X(CANCELLED, "it was called off")

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
    uint32_t waiting_max;     /* in that line; beyond it UNREACHABLE */
    uint32_t head_bytes_max;  /* of an answer; 64 KiB */
    uint16_t fields_max;      /* 200 */
} hx_upstream_limits;

/* `url`: "http://127.0.0.1:3000", "http://[::1]:3000", "http://name:3000", "unix:/run/app.sock". Names are looked up
 * outside the loop's thread and again when connections fail. Returns NULL with a sentence in `error` for a bad URL. */
hx_upstream *hx_upstream_new(hx_loop *loop, hx_slice url, const hx_upstream_limits *limits, hx_error_text error);
/* From now on, on the loop's thread; what is under way keeps the time-outs that run. */
void hx_upstream_set_limits(hx_upstream *upstream, const hx_upstream_limits *limits);
/* Exchanges in flight are called off: their failed(CANCELLED) fires first, inside this call and no other. The loop
 * goes on turning, or is freed, afterwards: what libuv still holds is given back there. */
void hx_upstream_free(hx_upstream **owned);
hx_slice hx_upstream_host(const hx_upstream *upstream); /* "127.0.0.1:3000": for Host when a client sent none */

typedef struct {
    /* An answer's head has come; interim answers (1xx but for 101) are dropped. The head lives in exchange->arena. */
    void (*head)(hx_exchange *exchange, const hx_answer_head *head);
    /* A piece of its body; the bytes live during the call only. */
    void (*body)(hx_exchange *exchange, hx_slice piece);
    /* The answer is whole. The last callback of a good exchange; the connection has gone back to the pool. */
    void (*end)(hx_exchange *exchange);
    /* The last callback of a failed one. */
    void (*failed)(hx_exchange *exchange, hx_upstream_error error);
    /* What hx_exchange_write held back has gone out. May be NULL for whole bodies. */
    void (*drained)(hx_exchange *exchange);
} hx_exchange_events;

/* What of a request's body the upstream may leave unread: see contract §12, "sent is not read". */
typedef enum {
    HX_REQUEST_BODY_NONE,
    HX_REQUEST_BODY_USUAL,  /* of POST, PUT and PATCH, which applications read unless they refuse the request */
    HX_REQUEST_BODY_UNUSUAL /* of any other method: nobody can count on its being read */
} hx_request_body;

typedef enum { HX_FRAMING_NONE, HX_FRAMING_LENGTH, HX_FRAMING_CHUNKED } hx_framing;

struct hx_exchange {
    /* given by the caller before hx_exchange_start; the memory lives until end or failed */
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
    bool repeatable; /* no effect and no streamed body: a pooled connection that ends without one byte of an answer
                           * was stale, and another is taken in its place */
    hx_ms pooled_idle_max; /* take a pooled connection only if it was idle for at most this; 0: always a new one */
    /* given back */
    uint64_t bytes_sent;
    uint64_t bytes_all; /* of the request; of a streamed one, of its head */
    bool reused;        /* on a pooled connection */
    uint64_t connect_failures;
    const char *reason; /* of a failure, in the system's words, where it has any; else NULL. It stays. */
    /* the engine's own; all zero at first */
    struct {
        hx_upstream *upstream;
        void *connection;
        hx_slice line, tail; /* of the head as it is sent: before and behind the header lines; a small body too */
        hx_buf *held;        /* of a streamed body, before there is a connection */
        hx_link link;
        uint32_t flags;
        hx_upstream_error error;
    } own;
};

void hx_exchange_start(hx_upstream *upstream, hx_exchange *exchange);
/* A piece of a streamed body; false: hold back until events.drained. Copied where it must wait. */
bool hx_exchange_write(hx_exchange *exchange, hx_slice bytes);
void hx_exchange_finish(hx_exchange *exchange);
/* Starts an exchange again that has failed, with all that was written of its body. Only one that no connection ever
 * carried; such a one can be written to and finished between failed and this call, too. */
bool hx_exchange_may_repeat(const hx_exchange *exchange);
void hx_exchange_repeat(hx_upstream *upstream, hx_exchange *exchange);
/* Back-pressure on the answer's body: nothing more is read. What was already read (64 KiB at most) still comes. */
void hx_exchange_pause(hx_exchange *exchange);
void hx_exchange_resume(hx_exchange *exchange);
/* Inside events.head with status 101: from here on bytes pass unframed; events.body brings the upstream's, end its end
 * of file; hx_exchange_write sends, hx_exchange_finish closes our side. Without it a 101 ends right after its head. */
void hx_exchange_tunnel(hx_exchange *exchange);
/* Calls the exchange off: the connection is closed; failed(CANCELLED) fires later. Nothing else fires in between. */
void hx_exchange_cancel(hx_exchange *exchange);

#endif
