/* SPDX-License-Identifier: Apache-2.0 */
/* The side that faces clients: listeners and connections of one worker. It speaks HTTP strictly and knows nothing of
 * idempotency.
 *
 * A stream is one request and its answer. It is made when a request's head has come whole and well-formed, and it
 * outlives its client: whoever handles it calls hx_stream_release once when done with it, and until then the stream,
 * its arena and its request stay. After the client is gone, writing to a stream is allowed and does nothing.
 *
 * All functions belong to the loop's thread. Callbacks are never made from inside a function of this header. */
#ifndef HX_NET_SERVER_H
#define HX_NET_SERVER_H

#include "base/fail.h"
#include "base/memory/extent.h"
#include "base/loop/loop.h"
#include "net/http/message.h"

typedef struct hx_server hx_server;
typedef struct hx_stream hx_stream;

typedef struct {
    uint32_t connections_max;           /* further ones wait in the kernel's queue; kept below RLIMIT_NOFILE */
    uint32_t head_bytes_max;            /* 32 KiB: 431 */
    uint16_t fields_max;                /* 100: 431 */
    uint32_t chunk_extension_bytes_max; /* of one whole body */
    hx_ms head_timeout;                 /* from a head's first byte to its last: 408 */
    hx_ms idle_timeout;                 /* between requests */
    uint32_t body_rate_min;             /* bytes a second, judged over 10 s while we are willing to read: 408 */
    hx_ms send_timeout;                 /* no byte taken by the client for so long: cut */
    uint32_t send_rate_min;             /* bytes a second that it must take, judged over send_timeout: cut */
} hx_server_limits;

/* What the handler hears. */
typedef struct {
    /* A request's head has come. Its body is not read until hx_stream_read. */
    void (*request)(void *app, hx_stream *stream);
    /* What came is not a request we serve: answer with this status (400, 408, 413, 417, 431, 501, 505 …) by
     * hx_stream_answer, then release. `detail` is a sentence that says what was wrong. The connection is closed
     * afterwards; request.fields may be incomplete. Not called when the client only left in mid-head. */
    void (*malformed)(void *app, hx_stream *stream, unsigned status, const char *detail);
} hx_server_handler;

/* What a stream's handler hears after the head, set by it in stream->events. Any may be NULL. */
typedef struct {
    /* A piece of the body; `last` with the final one, which may be empty. The bytes live during the call only. */
    void (*body)(hx_stream *stream, hx_slice piece, bool last);
    /* The body can't be had: the client left, was too slow, or sent broken chunks (then malformed is not called: answer
     * with `status` unless it is 0: the client is gone, and closed does not follow). */
    void (*broken)(hx_stream *stream, unsigned status, const char *detail);
    /* What hx_stream_write held back has gone out. */
    void (*drained)(hx_stream *stream);
    /* The client is gone (a failed read or write, or too slow a reader). Comes at most once; not after broken with 0,
     * hx_stream_abort or hx_stream_release. A client that only closed its side is not gone: it waits for its answer. */
    void (*closed)(hx_stream *stream);
} hx_stream_events;

/* The peer of a connection over a unix socket, which has no address. */
#define HX_PEER_UNIX HX_LIT("unix:")

typedef struct hx_stream_protocol hx_stream_protocol;

struct hx_stream {
    const hx_stream_protocol *protocol; /* the version of HTTP that it came by; see connection.h */
    hx_arena arena;                     /* lives until the stream is released and its answer written */
    hx_request_head request;
    hx_stream_events events;
    void *user;
    hx_loop *loop;
    hx_slice scheme;   /* "http", or "https" on an encrypted connection */
    hx_slice peer;     /* the client's address without its port, or HX_PEER_UNIX */
    hx_slice listener; /* the address that the client connected to */
    bool answered;     /* hx_stream_answer or hx_stream_begin was called */
    bool close;        /* set by the handler before it answers: the connection ends with this answer */
};

hx_server *hx_server_new(hx_loop *loop, const hx_server_limits *limits, const hx_server_handler *handler, void *app);
/* From now on, on the loop's thread; what is under way keeps the time-outs that run. */
void hx_server_set_limits(hx_server *server, const hx_server_limits *limits);

/* A socket that is bound and listening, made once per worker for the same address (SO_REUSEPORT for TCP, one shared
 * descriptor for a unix socket). `address`: "127.0.0.1:8080", "[::1]:8080", "unix:/run/hapax.sock"; port 0 takes a free
 * one. On failure returns -1 with errno set and a sentence in `error`. *bound gets the address with the real port. */
#define HX_ADDRESS_BYTES 128u
int hx_listen(hx_slice address, char bound[HX_ADDRESS_BYTES], hx_error_text error);
/* The same for a unix socket that is nobody else's: its file has mode 0600 from the moment that it exists, and an
 * address that this process listens on already is in use. */
int hx_listen_private(hx_slice address, char bound[HX_ADDRESS_BYTES], hx_error_text error);
/* Closes a socket of hx_listen that no server took; the last one of a unix socket removes its file. */
void hx_unlisten(int descriptor);
/* Takes the descriptor, which must come from hx_listen. */
void hx_server_accept(hx_server *server, int listening_descriptor, hx_slice address);

/* Takes no more connections, after accepting the listener dry; open ones finish what they have, with Connection: close,
 * idle ones are closed. `done` is called when none is left. */
void hx_server_drain(hx_server *server, void (*done)(void *app));
/* Cuts off every client, whatever it waits for: streams hear that theirs is gone. */
void hx_server_cut(hx_server *server);
uint32_t hx_server_connections(const hx_server *server);
/* Closes what is open; no callback comes any more, and streams still held are to be released. */
void hx_server_free(hx_server **owned);

/* Who is at the other end of a unix socket, by the kernel's word at the time of the connect. False for TCP, and once
 * the client is gone. */
bool hx_stream_peer_user(hx_stream *stream, uint32_t *uid, int32_t *pid) HX_MUST_USE;

/* Reads the body: events.body follows. Sends "100 Continue" first where the client waits for it. */
void hx_stream_read(hx_stream *stream);
/* Back-pressure: between these no events.body comes (but for what was already read in this turn). */
void hx_stream_pause(hx_stream *stream);
void hx_stream_resume(hx_stream *stream);

/* The whole answer. header_lines are complete lines "Name: value\r\n"; Content-Length, Connection and, when `date` is
 * set, Date are added here. The body is not copied: it lives in the stream's arena, which stays until the client has
 * taken it all, or for ever. A body that was not read is discarded, or the connection closed when it is long. HEAD gets
 * the length and no body. An empty reason stands for the usual one. */
void hx_stream_answer(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_slice body,
                      bool date);
/* The same with a body that lies in a file, and is read from there as the client takes it. The file stays open for as
 * long as the stream's arena lives. */
void hx_stream_answer_file(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_extent body,
                           bool date);
/* The answer in pieces. content_length -1: chunked (or until close for HTTP/1.0). HEAD, 204 and 304: no body is sent,
 * and content_length, where given, is announced for HEAD and 304 only. 101 gets "Connection: upgrade"; Upgrade itself
 * is among the header lines. */
void hx_stream_begin(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines,
                     int64_t content_length);
/* False: the client takes no more for now; go on after events.drained. The bytes are copied where they must wait. */
bool hx_stream_write(hx_stream *stream, hx_slice bytes);
void hx_stream_end(hx_stream *stream);
/* Ends the connection at once, so that the client can't take a broken-off answer for a whole one. */
void hx_stream_abort(hx_stream *stream);
/* After an answer of 101 by hx_stream_begin: from here on bytes pass unframed: events.body brings the client's, with
 * `last` at its end of file; hx_stream_write sends; hx_stream_end closes our side. */
void hx_stream_tunnel(hx_stream *stream);
/* The handler is done with the stream; an unanswered one is aborted. */
void hx_stream_release(hx_stream *stream);

#endif
