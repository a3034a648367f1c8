/* SPDX-License-Identifier: Apache-2.0 */
/* Inside net/client only: one multi handle of libcurl, driven by our loop.
 *
 * libcurl 7.88 first closes a socket that it gave up connecting, and then asks to poll it no more, when its number may
 * belong to another thread's file. So its sockets are in an epoll instance of their own, from which the kernel removes
 * what is closed; the loop polls that instance. */
#ifndef HX_NET_CLIENT_MULTI_H
#define HX_NET_CLIENT_MULTI_H

#include "base/loop/loop.h"
#include "base/program/libcurl.h"

typedef struct hx_multi hx_multi;

/* `ended` is called from the loop and from hx_multi_run for every handle whose transfer is over; it removes the handle.
 * NULL with a sentence in `error`. */
hx_multi *hx_multi_new(hx_loop *loop, const hx_libcurl *curl, uint32_t connections_max,
                       void (*ended)(void *context, CURL *easy, CURLcode code), void *context, hx_error_text error);
/* All handles are removed before; connections are closed. */
void hx_multi_free(hx_multi **owned);
/* A handle whose sockets are opened and closed by the two functions below. False: libcurl refuses it. */
bool hx_multi_add(hx_multi *multi, CURL *easy) HX_MUST_USE;
void hx_multi_remove(hx_multi *multi, CURL *easy);
/* Starts the transfers of handles that were added. */
void hx_multi_run(hx_multi *multi);

/* For CURLOPT_OPENSOCKETFUNCTION; CURL_SOCKET_BAD: no descriptor is left, or `address` is NULL: it must not be dialled.
 */
curl_socket_t hx_multi_open_socket(hx_multi *multi, CURL *easy, const struct curl_sockaddr *address);
/* A curl_closesocket_callback whose context is the multi. */
int hx_multi_close_socket(void *context, curl_socket_t socket);

#endif
