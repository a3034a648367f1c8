/* SPDX-License-Identifier: Apache-2.0 */
/* A connection as a stream of bytes in each direction: one read path and one send queue, under the server and under
 * upstreams, whatever protocol is spoken above.
 *
 *    (all zero) --hx_transport_connect--> connecting --[connected]--> open
 *    (all zero) --hx_transport_open--> open
 *    connecting or open --hx_transport_close--> closing --[closed]--> (the owner's memory)
 *
 * What must hold:
 *   T1. `sent` is the number of bytes that the kernel has taken: it grows in the same call in which the kernel takes
 *       them, never before and never later. What is queued is not in it.
 *   T2. Bytes leave in the order in which they were handed over.
 *   T3. Events are called from the loop, never from inside a function of this header.
 *   T4. After hx_transport_close only `closed` is called, and memory that was handed over is not touched.
 *
 * Errors are libuv's (negative). All functions belong to the loop's thread. */
#ifndef HX_NET_TRANSPORT_H
#define HX_NET_TRANSPORT_H

#include "base/loop/loop.h"
#include "base/memory/buf.h"

#include <sys/socket.h>
#include <uv.h>

/* The most that one receive brings. */
#define HX_TRANSPORT_READ_BYTES (64u * 1024u)
/* The send queue's limit; back-pressure begins far below. */
#define HX_TRANSPORT_QUEUE_BYTES_MAX (64u * 1024u * 1024u)
#define HX_TRANSPORT_PIECES_MAX 4u

typedef struct hx_transport hx_transport;

typedef struct {
    /* The connection was made (0), or could not be made. NULL where none is made by hx_transport_connect. */
    void (*connected)(hx_transport *transport, int error);
    /* Bytes came. They live during the call only. */
    void (*received)(hx_transport *transport, hx_slice bytes);
    /* Nothing more comes: UV_EOF when the peer has closed its side, else what went wrong. Called at most once. */
    void (*ended)(hx_transport *transport, int error);
    /* The kernel took bytes out of the queue (0), or refuses them (the queue has been dropped). */
    void (*sent)(hx_transport *transport, int error);
    /* The transport's memory is the owner's again. */
    void (*closed)(hx_transport *transport);
} hx_transport_events;

/* The seam under the queue: how bytes reach the socket. Plain sockets have the only implementation so far; one with TLS
 * encrypts here, does its handshake before `connected`, and counts a byte as sent no later than the kernel takes the
 * first byte of the record that carries it. */
typedef struct {
    /* How many bytes came; 0: none now; UV_EOF or another error: none ever. */
    ssize_t (*receive)(hx_transport *transport, char *into, size_t bytes);
    /* How many bytes were taken; UV_EAGAIN: none now. */
    ssize_t (*send)(hx_transport *transport, const hx_slice *pieces, unsigned count);
    /* Closes our side. */
    void (*shut)(hx_transport *transport);
    bool is_encrypted;
} hx_transport_io;

struct hx_transport {
    uv_poll_t poll;
    const hx_transport_events *events;
    const hx_transport_io *io;
    uint64_t sent;   /* bytes that the kernel took */
    size_t unsent;   /* bytes in the queue */
    size_t read_max; /* 0: reading is paused */
    int send_error;  /* nothing more can be sent */
    int descriptor;
    uint8_t watched; /* UV_READABLE, UV_WRITABLE */
    bool is_open;    /* from connect or open to close */
    bool is_connecting;
    bool has_ended;
    bool wants_shut; /* as soon as the queue is empty */
    bool is_shut;
    uint8_t piece_count;
    hx_slice pieces[HX_TRANSPORT_PIECES_MAX]; /* the head of the queue: bytes in the owner's memory */
    hx_buf queue;                             /* the rest of it: bytes that were copied */
    size_t queue_at;                          /* bytes of `queue` that were sent */
};

/* Begins to connect; `connected` follows. On an error nothing follows, and the transport is as it was before. */
int hx_transport_connect(hx_transport *transport, hx_loop *loop, const hx_transport_events *events,
                         const struct sockaddr *address) HX_MUST_USE;
/* Takes a connected socket, unless it returns an error. */
int hx_transport_open(hx_transport *transport, hx_loop *loop, const hx_transport_events *events,
                      int descriptor) HX_MUST_USE;

/* Back-pressure on reading: the next `received` brings at most `bytes_max` bytes; 0: none comes. At first none does. */
void hx_transport_read(hx_transport *transport, size_t bytes_max);
/* Whether anything could be received now, without receiving it: > 0 bytes, 0 nothing, < 0 the end or an error. */
int hx_transport_peek(const hx_transport *transport);

#define HX_SEND_STAYS 1u /* the bytes stay where they are until they are sent or the transport is closed */
#define HX_SEND_NOW 2u /* UV_EAGAIN, and nothing is queued, when the kernel takes no byte at once; for an empty queue */
/* Sends what the kernel takes now, and queues the rest: copied, unless it stays. The pieces themselves are changed.
 * After any error but UV_EAGAIN nothing can be sent any more; UV_ENOBUFS: the queue was full. */
int hx_transport_send(hx_transport *transport, hx_slice *pieces, unsigned count, unsigned how) HX_MUST_USE;
/* Closes our side, once the queue is empty. */
void hx_transport_shut(hx_transport *transport);
/* Bytes whose arrival the peer's kernel has confirmed; all that were sent where this can't be known. */
uint64_t hx_transport_confirmed(const hx_transport *transport);
/* Drops the queue and closes; `closed` follows. With `reset` the peer can't take what it got for all there was; a unix
 * socket has no reset. */
void hx_transport_close(hx_transport *transport, bool reset);

#endif
