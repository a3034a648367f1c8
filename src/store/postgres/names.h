/* SPDX-License-Identifier: Apache-2.0 */
/* DNS lookup of the hosts of a connection. libpq's own lookup blocks, which on a loop would delay every request. So the
 * names are looked up on a thread of their own, which ends with the lookup. */
#ifndef HX_STORE_POSTGRES_NAMES_H
#define HX_STORE_POSTGRES_NAMES_H

#include "base/loop/offload.h"

#define HX_NAMES_BYTES 1024u

/* Values of libpq's parameters host, hostaddr and port: lists with commas, of the same length. */
typedef struct {
    char host[HX_NAMES_BYTES];
    char hostaddr[HX_NAMES_BYTES];
    char port[HX_NAMES_BYTES];
} hx_names;

/* Whether any of these hosts is a name, not an address or the directory of a socket. */
bool hx_names_include_one(const char *hosts);
/* Rotates a list by so many items, into `out`; returns `out`, or the list itself where it is too long. */
const char *hx_names_rotate(const char *list, size_t by, char out[HX_NAMES_BYTES]);
/* Calls `done` on the loop with an hx_names, the addresses that were found; a name without one is left as it is. NULL:
 * no thread can be started. */
hx_offload *hx_names_look_up(hx_loop *loop, const char *hosts, const char *ports,
                             void (*done)(void *context, void *found), void *context);

#endif
