/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses behind the hosts of a connection. libpq looks names up itself, and waits for the answer: on a loop that
 * would hold up every request. So they are looked up on a thread that lives as long as the question. */
#ifndef HX_STORE_POSTGRES_NAMES_H
#define HX_STORE_POSTGRES_NAMES_H

#include "base/loop/loop.h"

#define HX_NAMES_BYTES 1024u

/* As libpq's parameters host, hostaddr and port have them: lists of the same length. */
typedef struct {
    char host[HX_NAMES_BYTES];
    char hostaddr[HX_NAMES_BYTES];
    char port[HX_NAMES_BYTES];
} hx_names;

typedef struct hx_names_call hx_names_call;

/* Whether any of these hosts is a name, not an address or the directory of a socket. */
bool hx_names_are_in(const char *hosts);
/* The same list, beginning with the item after so many others: `out`, or the list itself where it is too long. */
const char *hx_names_turn(const char *list, size_t by, char out[HX_NAMES_BYTES]);
/* Calls `done` on the loop, with what was found: a name without an address is left as it is. NULL: no thread can be
 * started. */
hx_names_call *hx_names_look_up(hx_loop *loop, const char *hosts, const char *ports,
                                void (*done)(void *context, const hx_names *found), void *context);
/* `done` is not called any more. On the loop's thread, or after the loop has ended; NULL is fine. */
void hx_names_forget(hx_names_call **owned);

#endif
