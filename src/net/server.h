/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP towards clients: the listeners and connections of one worker. It parses strictly and knows nothing of
 * idempotency.
 *
 * A stream is one request and its response. It is made when a request's head is complete and well-formed, and it
 * outlives its client: its handler calls hx_stream_release once when done with it, and until then the stream, its arena
 * and its request stay. After the client is gone, writing to a stream is allowed and does nothing.
 *
 * All functions belong to the loop's thread. Events are never called from inside a function of this header. */
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
    uint32_t chunk_extension_bytes_max; /* in one body: 400 */
    hx_ms head_timeout;                 /* from a head's first byte to its last: 408 */
    hx_ms idle_timeout;                 /* between requests */
    uint32_t body_rate_min;             /* bytes a second, measured over 10 s while the body is wanted: 408 */
    hx_ms send_timeout;                 /* a client that reads no byte for so long is reset */
    uint32_t send_rate_min;             /* bytes a second over send_timeout; a client that reads less is reset */
} hx_server_limits;

/* Implemented by the server's owner. */
typedef struct {
    /* The head of a request is complete. Its body is not read until hx_stream_read. */
    void (*request)(void *app, hx_stream *stream);
    /* The request is malformed or not supported: the handler responds with this status (400, 408, 413, 417, 431, 501,
     * 505 …) by hx_stream_answer, then releases. `detail` is a sentence that says what is wrong. The connection is
     * closed afterwards; request.fields may be incomplete. Not called when the client left before its head was
     * complete. */
    void (*malformed)(void *app, hx_stream *stream, unsigned status, const char *detail);
} hx_server_handler;

/* Events of a stream, set in stream->events by its handler. Any may be NULL. */
typedef struct {
    /* A piece of the request's body; the last one may be empty. The bytes live during the call only. */
    void (*body)(hx_stream *stream, hx_slice piece, bool last);
    /* The body can't be read: with status 0 because the client is gone (closed does not follow), else because the
     * client was too slow or sent malformed chunks, and the handler responds with `status`. */
    void (*broken)(hx_stream *stream, unsigned status, const char *detail);
    /* The handler may write on, after hx_stream_write returned false. */
    void (*drained)(hx_stream *stream);
    /* The client is gone (reading or writing failed, or it read too slowly). Called at most once; not after broken with
     * 0, hx_stream_abort or hx_stream_release. A client that only closed its side still waits for its response. */
    void (*closed)(hx_stream *stream);
} hx_stream_events;

/* Who is at the other end of a connection, as the kernel noted it when the connection was made. */
typedef enum {
    HX_PEER_UNKNOWN,
    HX_PEER_ADDRESS, /* over TCP */
    HX_PEER_USER     /* over a unix socket */
} hx_peer_kind;

typedef struct {
    hx_peer_kind kind;
    uint8_t text_len;
    char text[47]; /* the address without its port; "unix:" for a peer that has none */
    union {
        uint8_t address[16]; /* IPv6; IPv4 as ::ffff:a.b.c.d */
        struct {
            uint32_t uid;
            int32_t pid;
        } user;
    };
} hx_peer;

static inline hx_slice hx_peer_text(const hx_peer *peer)
{
    return (hx_slice){peer->text, peer->text_len};
}

typedef struct hx_stream_protocol hx_stream_protocol;

struct hx_stream {
    const hx_stream_protocol *protocol; /* the version of HTTP that it came by; see connection.h */
    hx_arena arena;                     /* lives until the stream is released and its response sent */
    hx_request_head request;
    hx_stream_events events;
    void *user;
    hx_loop *loop;
    hx_slice scheme; /* "http", or "https" on an encrypted connection */
    hx_peer peer;
    hx_slice listener; /* the address that the client connected to */
    bool answered;     /* hx_stream_answer, hx_stream_answer_file or hx_stream_begin was called */
    bool close;        /* set by the handler before it responds: the connection is closed after the response */
};

hx_server *hx_server_new(hx_loop *loop, const hx_server_limits *limits, const hx_server_handler *handler, void *app);
/* The new limits hold from now on; timeouts that are running are kept. */
void hx_server_set_limits(hx_server *server, const hx_server_limits *limits);

/* Makes a listening socket; called once per worker for the same address (SO_REUSEPORT for TCP, one shared descriptor
 * for a unix socket). `address`: "127.0.0.1:8080", "[::1]:8080", "unix:/run/hapax.sock"; port 0 takes a free port. On
 * failure returns -1 with errno set and a sentence in `error`. `bound` gets the address with the real port. */
#define HX_ADDRESS_BYTES 128u
int hx_listen(hx_slice address, char bound[HX_ADDRESS_BYTES], hx_error_text error);
/* The same for a private unix socket: its file has mode 0600 from the moment that it exists, and an address that this
 * process listens on already is in use. */
int hx_listen_private(hx_slice address, char bound[HX_ADDRESS_BYTES], hx_error_text error);
/* Closes a socket of hx_listen that no server took; the last one of a unix socket removes its file. */
void hx_unlisten(int descriptor);
/* Takes the descriptor, which must come from hx_listen. */
void hx_server_accept(hx_server *server, int listening_descriptor, hx_slice address);

/* Closes the listeners after accepting what is in their queues. Idle connections are closed; others finish their
 * request with "Connection: close". `done` is called when no connection is left. */
void hx_server_drain(hx_server *server, void (*done)(void *app));
/* Resets every connection; `closed` or `broken` follows for each stream. */
void hx_server_cut(hx_server *server);
uint32_t hx_server_connections(const hx_server *server);
/* Closes all connections. No event follows; streams that are still held must be released. */
void hx_server_free(hx_server **owned);

/* Reads the body: events.body follows. Sends "100 Continue" first where the client waits for that. */
void hx_stream_read(hx_stream *stream);
/* Back-pressure: between these two no events.body is called, but for what was already read in this turn. */
void hx_stream_pause(hx_stream *stream);
void hx_stream_resume(hx_stream *stream);

/* Sends the whole response. `header_lines` are complete lines "Name: value\r\n"; Content-Length, Connection and, when
 * `date` is set, Date are added. The body is not copied: it must live in the stream's arena, which stays until the
 * client has read all of it, or be static. A request body that was not read is discarded, or the connection closed when
 * it is long. HEAD gets the length and no body. An empty reason becomes the usual one. */
void hx_stream_answer(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_slice body,
                      bool date);
/* The same with a body in a file, which is read as fast as the client reads. The file must stay open for as long as the
 * stream's arena lives. */
void hx_stream_answer_file(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines, hx_extent body,
                           bool date);
/* Begins a response whose body comes in pieces. content_length -1: chunked (or until close for HTTP/1.0). HEAD, 204 and
 * 304: no body is sent, and content_length, where given, is announced for HEAD and 304 only. 101 gets "Connection:
 * upgrade"; Upgrade itself is among the header lines. */
void hx_stream_begin(hx_stream *stream, unsigned status, hx_slice reason, hx_slice header_lines,
                     int64_t content_length);
/* Sends a piece; what the kernel doesn't take now is copied. False: write no more until events.drained. */
bool hx_stream_write(hx_stream *stream, hx_slice bytes);
void hx_stream_end(hx_stream *stream);
/* Resets the connection at once, so that the client can't take an incomplete response for a complete one. */
void hx_stream_abort(hx_stream *stream);
/* Called after hx_stream_begin with 101: from then on bytes pass unframed. events.body brings the client's bytes, with
 * `last` at its end of file; hx_stream_write sends; hx_stream_end closes our side. */
void hx_stream_tunnel(hx_stream *stream);
/* The handler is done with the stream. One without a complete response is aborted. */
void hx_stream_release(hx_stream *stream);

#endif
