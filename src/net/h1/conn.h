/* SPDX-License-Identifier: Apache-2.0 */
/* One client's connection, and what the files behind server.h share about it: conn.c reads and decides, stream.c
 * answers, listener.c makes connections, server.c counts them.
 *
 * Reading goes on all the time: what can't be used yet is held, up to HX_HELD_BYTES, and only then the socket is left
 * alone. Between requests a connection holds neither a stream nor a buffer.
 *
 *   reading:   HEAD → BODY → WHOLE → (answered) → HEAD …            [step_head, step_body, finish]
 *              BODY → DISCARD → HEAD      the answer was ready before the body       [hx_h1_conn_answer_ended]
 *              any → SINK                 what comes no longer matters: closing      [hx_h1_conn_sink]
 *              WHOLE → TUNNEL             after 101                                  [hx_stream_tunnel]
 */
#ifndef HX_NET_H1_CONN_H
#define HX_NET_H1_CONN_H

#include "net/connection.h"
#include "net/h1/body_framing.h"

/* What hx_stream_write lets wait: it says stop above the first, and go on below the second. */
#define HX_WAITING_HIGH (64u * 1024u)
#define HX_WAITING_LOW (16u * 1024u)
/* A body that nobody wants is read up to here, to keep the connection. */
#define HX_DISCARD_BYTES (64u * 1024u)

typedef struct hx_h1_conn hx_h1_conn;

typedef enum { HX_IN_HEAD, HX_IN_BODY, HX_IN_WHOLE, HX_IN_TUNNEL, HX_IN_DISCARD, HX_IN_SINK } hx_reading;

/* How the answer is framed; HX_OUT_ENDED once all of it was handed over. */
typedef enum {
    HX_OUT_NONE,
    HX_OUT_LENGTH,
    HX_OUT_CHUNKED,
    HX_OUT_TO_CLOSE,
    HX_OUT_BODILESS,
    HX_OUT_TUNNEL,
    HX_OUT_FILE, /* handed over, and still to be read from its file */
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

/* A stream with what is ours of it. Lives in its own arena. */
typedef struct {
    hx_stream pub;
    hx_h1_conn *conn; /* NULL: the answer is out, or the client gone */
    hx_buf cork;      /* what waits for the end of the turn, so that small pieces leave together */
    int64_t left;     /* of the announced length */
    hx_extent file;   /* what is still to be sent of it */
    hx_writing out;
    bool reading; /* hx_stream_read was called */
    bool paused;
    bool continued; /* 100 Continue was sent, or isn't needed any more */
    bool held_back; /* hx_stream_write said false: drained is owed */
    bool is_head;   /* the request's method is HEAD */
    bool aborted;   /* by the handler, who need not be told */
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
    uint8_t blank_lines; /* skipped before this head */
    uint8_t strikes;
    hx_reading in;
    hx_deadline deadline;
    bool eof;
    bool late;   /* the head's or the body's deadline has passed */
    bool close;  /* after the answer in hand */
    bool lost;   /* its transport is being closed */
    bool closed; /* its transport has been closed */
    bool running;
    bool queued_task;
    bool input_is_lent;
};

/* Takes the descriptor. */
void hx_h1_conn_open(hx_server *server, hx_listener *listener, int descriptor, hx_slice peer);
/* Closes the connection now; its stream hears of it later in this turn. With `reset` the client can't take what it got
 * for a whole answer. */
void hx_h1_conn_lose(hx_h1_conn *conn, bool reset);
/* Something changed: looks at the connection again later in this turn, or at once when it is being looked at. */
void hx_h1_conn_kick(hx_h1_conn *conn);
void hx_h1_conn_sink(hx_h1_conn *conn);
/* The whole answer was handed over: decides what becomes of the rest of the body. */
void hx_h1_conn_answer_ended(hx_h1_conn *conn);
/* Whether the connection must end after this answer. */
bool hx_h1_conn_must_close(const hx_h1_conn *conn);

/* Sends through the transport, `how` as it says; an error loses the connection. */
void hx_h1_conn_send(hx_h1_conn *conn, hx_slice *pieces, unsigned count, unsigned how);
void hx_h1_stream_flush(hx_h1_stream *stream);
/* Sends the next piece of an answer that lies in a file. */
void hx_h1_stream_send_file(hx_h1_stream *stream);
hx_h1_stream *hx_h1_stream_new(hx_h1_conn *conn);
void hx_h1_stream_detach(hx_h1_stream *stream);

#endif
