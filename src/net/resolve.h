/* SPDX-License-Identifier: Apache-2.0 */
/* The address of an upstream: its URL taken apart, and the addresses of its name. Names are looked up on libuv's own
 * threads, one lookup at a time; the addresses are kept until hx_resolver_distrust says that none responds. */
#ifndef HX_NET_RESOLVE_H
#define HX_NET_RESOLVE_H

#include "base/fail.h"
#include "base/slice.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <uv.h>

#define HX_TARGET_ADDRESSES_MAX 16u

typedef struct {
    bool is_unix;
    struct sockaddr_un address;                     /* of a unix socket */
    char host[NI_MAXHOST < 256 ? NI_MAXHOST : 256]; /* without brackets */
    char port[6];
    char authority[272]; /* for the Host field */
} hx_target;

/* "http://127.0.0.1:3000", "http://[::1]:3000", "http://name", "unix:/run/app.sock". False with a sentence. */
bool hx_target_parse(hx_target *target, hx_slice url, hx_error_text error) HX_MUST_USE;

typedef struct hx_resolver hx_resolver;
struct hx_resolver {
    const hx_target *target;
    uv_loop_t *loop;
    struct sockaddr_storage addresses[HX_TARGET_ADDRESSES_MAX];
    unsigned count;
    unsigned preferred; /* index of the address that was connected to last */
    bool is_literal;    /* the URL has an address, not a name: nothing is ever looked up */
    bool is_stale;      /* the name must be looked up before the next use */
    bool is_busy;       /* a lookup is under way */
    int error;          /* of the last lookup, libuv's */
    uv_getaddrinfo_t request;
    void (*done)(hx_resolver *resolver);
};

/* `done` is called after every hx_resolver_look_up, from the loop; `count` may still be 0. */
void hx_resolver_init(hx_resolver *resolver, uv_loop_t *loop, const hx_target *target,
                      void (*done)(hx_resolver *resolver));
bool hx_resolver_ready(const hx_resolver *resolver);
/* False when the lookup could not be started. Does nothing when one is under way. */
bool hx_resolver_look_up(hx_resolver *resolver) HX_MUST_USE;
/* No address responds: the name is looked up again before the next use. */
void hx_resolver_distrust(hx_resolver *resolver);

#endif
