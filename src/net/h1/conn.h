/* SPDX-License-Identifier: Apache-2.0 */
/* A client's HTTP/1 connection, shared by conn.c, which reads and decides, and stream.c, which responds.
 *
 * Reading goes on all the time: input that can't be used yet is held, and only when HX_HELD_BYTES are held reading
 * pauses. Between requests a connection holds neither a stream nor a buffer.
 *
 *   reading:   HEAD → BODY → WHOLE → (response sent) → HEAD …       [step_head, step_body, finish]
 *              BODY → DISCARD → HEAD      the response was complete before the body  [hx_h1_conn_answer_ended]
 *              any → SINK                 input is dropped until the close           [hx_h1_conn_sink]
 *              WHOLE → TUNNEL             after 101                                  [stream_tunnel]
 */
#ifndef HX_NET_H1_CONN_H
#define HX_NET_H1_CONN_H

#include "net/connection.h"
#include "net/h1/body_framing.h"

/* hx_stream_write returns false above the first; `drained` follows below the second. */
#define HX_WAITING_HIGH (64u * 1024u)
#define HX_WAITING_LOW (16u * 1024u)
/* A body that isn't wanted is read up to here, to keep the connection. */
#define HX_DISCARD_BYTES (64u * 1024u)

typedef struct hx_h1_conn hx_h1_conn;

typedef enum { HX_IN_HEAD, HX_IN_BODY, HX_IN_WHOLE, HX_IN_TUNNEL, HX_IN_DISCARD, HX_IN_SINK } hx_reading;

/* How the response is framed; HX_OUT_ENDED once all of it was handed to the transport. */
typedef enum {
    HX_OUT_NONE,
    HX_OUT_LENGTH,
    HX_OUT_CHUNKED,
    HX_OUT_TO_CLOSE,
    HX_OUT_BODILESS,
    HX_OUT_TUNNEL,
    HX_OUT_FILE, /* the head was sent; the body is still to be read from its file */
    HX_OUT_ENDED
} hx_writing;

typedef enum {
    HX_DEADLINE_NONE,
    HX_DEADLINE_IDLE,
    HX_DEADLINE_HEAD,
    HX_DEADLINE_BODY,
    HX_DEADLINE_SEND,
    HX_DEADLINE_DISCARD,
    HX_DEADLINE_LINGER
} hx_deadline;

/* A stream of HTTP/1. It lives in its own arena. */
typedef struct {
    hx_stream pub;
    hx_h1_conn *conn; /* NULL: the response was sent, or the client is gone */
    hx_buf cork;      /* small pieces, sent together at the end of the turn */
    int64_t left;     /* bytes that are missing of the announced length */
    hx_extent file;   /* the rest of the body that is to be sent */
    hx_writing out;
    bool reading; /* hx_stream_read was called */
    bool paused;
    bool continued; /* 100 Continue was sent or is no longer needed */
    bool held_back; /* hx_stream_write returned false: `drained` is due */
    bool is_head;   /* the request's method is HEAD */
    bool aborted;   /* by the handler: no event follows */
    bool released;
} hx_h1_stream;

struct hx_h1_conn {
    hx_connection base;
    hx_h1_stream *stream;
    hx_timer timer;
    hx_task task;
    hx_slice input; /* what was received and not used: lent by the transport during `received`, else in `held` */
    hx_buf held;
    hx_h1_scan scan;
    hx_h1_body body;
    uint64_t received;    /* bytes */
    uint64_t progress_at; /* `received`, or what the client had confirmed, when the deadline was set */
    uint32_t discarded;
    uint32_t requests;
    uint8_t blank_lines; /* that were skipped before this head */
    uint8_t strikes;
    hx_reading in;
    hx_deadline deadline;
    bool eof;
    bool late;   /* the deadline of the head or the body has passed */
    bool close;  /* the connection is closed after the current response */
    bool lost;   /* its transport is being closed */
    bool closed; /* its transport has been closed */
    bool running;
    bool queued_task;
    bool input_is_lent;
};

/* See hx_connection_protocol. */
void hx_h1_conn_lose(hx_h1_conn *conn, bool reset);
/* Something changed: runs the connection later in this turn, or goes on when it is running. */
void hx_h1_conn_kick(hx_h1_conn *conn);
void hx_h1_conn_sink(hx_h1_conn *conn);
/* The whole response was handed over: decides what to do with the rest of the request's body. */
void hx_h1_conn_answer_ended(hx_h1_conn *conn);
/* Whether the connection must be closed after this response. */
bool hx_h1_conn_must_close(const hx_h1_conn *conn);

/* hx_transport_send; an error closes the connection. */
void hx_h1_conn_send(hx_h1_conn *conn, hx_slice *pieces, unsigned count, unsigned how);
void hx_h1_stream_flush(hx_h1_stream *stream);
/* Sends the next piece of a body in a file. */
void hx_h1_stream_send_file(hx_h1_stream *stream);
hx_h1_stream *hx_h1_stream_new(hx_h1_conn *conn);
void hx_h1_stream_detach(hx_h1_stream *stream);

#endif
