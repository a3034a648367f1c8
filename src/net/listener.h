/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket on one worker's loop. It is polled and accepted from here, because libuv's own listening can
 * neither pause (when connections_max is reached or descriptors run out, it would accept and drop) nor report that the
 * queue is empty, which must be known before a listener that shares its port is closed: closing it resets the
 * connections that are still in its queue. */
#ifndef HX_NET_LISTENER_H
#define HX_NET_LISTENER_H

#include "net/connection.h"

struct hx_listener {
    uv_poll_t poll;
    hx_link link;
    hx_server *server;
    int descriptor;
    bool closing;
    size_t address_len;
    char address[HX_ADDRESS_BYTES];
};

void hx_listener_open(hx_server *server, int descriptor, hx_slice address);
void hx_listener_pause(hx_listener *listener);
void hx_listener_resume(hx_listener *listener);
/* Accepts every connection in the queue, then closes. */
void hx_listener_close_dry(hx_listener *listener);
void hx_listener_close(hx_listener *listener);

#endif
