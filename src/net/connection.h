/* SPDX-License-Identifier: Apache-2.0 */
/* Inside net only: what server.c, listener.c and stream.c know about a client's connection and its streams, whatever
 * version of HTTP it speaks. A version implements hx_connection_protocol and hx_stream_protocol (h1/ is the only one so
 * far), calls the server's handler for each request, and the stream's events after it. */
#ifndef HX_NET_CONNECTION_H
#define HX_NET_CONNECTION_H

#include "base/memory/list.h"
#include "net/server.h"
#include "net/transport.h"

/* Input that a connection holds until it can be used; a request's head must fit. */
#define HX_HELD_BYTES (64u * 1024u)
/* A body in a file is read in pieces of this size. */
#define HX_FILE_PIECE_BYTES (32u * 1024u)

typedef struct hx_connection hx_connection;
typedef struct hx_listener hx_listener;

typedef struct {
    /* Drain: closes a connection on which no request is under way or waits to be read. */
    void (*close_if_idle)(hx_connection *connection);
    /* Closes the connection now; its streams hear of it later in this turn. With `reset` the client can't take what it
     * got for a whole response. */
    void (*lose)(hx_connection *connection, bool reset);
    /* The server is being freed: closes the connection, and no stream hears of it. */
    void (*abandon)(hx_connection *connection);
} hx_connection_protocol;

struct hx_connection {
    hx_transport transport;
    const hx_connection_protocol *protocol;
    hx_server *server;
    hx_listener *listener;
    hx_link link; /* in server->connections */
    hx_peer peer;
};

typedef enum { HX_RESPONSE_WHOLE, HX_RESPONSE_FILE, HX_RESPONSE_PIECES } hx_response_kind;

/* A response as a handler gives it: its body is here, in a file, or comes in pieces. */
typedef struct {
    hx_response_kind kind;
    unsigned status;
    hx_slice reason;
    hx_slice header_lines;
    hx_slice body;          /* WHOLE */
    hx_extent file;         /* FILE */
    int64_t content_length; /* PIECES; -1: not known */
    bool date;
} hx_response;

/* The functions of server.h with the same names say what each does. None is called after release; respond is called
 * once, write and end after it. */
struct hx_stream_protocol {
    void (*read)(hx_stream *stream);
    void (*pause)(hx_stream *stream, bool is_paused);
    void (*respond)(hx_stream *stream, const hx_response *response);
    bool (*write)(hx_stream *stream, hx_slice bytes);
    void (*end)(hx_stream *stream);
    void (*abort)(hx_stream *stream);
    void (*tunnel)(hx_stream *stream);
    void (*release)(hx_stream *stream);
};

struct hx_server {
    hx_loop *loop;
    hx_server_limits limits;
    hx_server_handler handler;
    void *app;
    hx_link connections;
    hx_link listeners;
    uint32_t count;
    uint32_t open_listeners;
    bool draining;
    bool freed;
    bool accepting_paused;
    void (*drained)(void *app);
    hx_task drained_task;
    bool drained_queued;
    hx_timer retry_accept;
    hx_ms warned_at;
    hx_ms date_second; /* when `date` was made */
    char date[HX_HTTP_DATE_BYTES];
    char file_buffer[HX_FILE_PIECE_BYTES];
};

/* In h1/conn.c: a client has connected. Takes the descriptor. */
void hx_h1_conn_open(hx_server *server, hx_listener *listener, int descriptor, const hx_peer *peer);

hx_slice hx_listener_address(const hx_listener *listener);
void hx_server_pause_accepting(hx_server *server);
void hx_server_gone(hx_server *server); /* a connection or a listener has closed for good */

#endif
