/* SPDX-License-Identifier: Apache-2.0 */
/* Where an upstream is: its URL taken apart, and the addresses behind its name. Names are looked up on libuv's own
 * threads, one lookup at a time; what was found is kept until somebody says that it doesn't answer any more. */
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
    char authority[272]; /* as a Host field has it */
} hx_target;

/* "http://127.0.0.1:3000", "http://[::1]:3000", "http://name", "unix:/run/app.sock". False with a sentence. */
bool hx_target_parse(hx_target *target, hx_slice url, hx_error_text error) HX_MUST_USE;

typedef struct hx_resolver hx_resolver;
struct hx_resolver {
    const hx_target *target;
    uv_loop_t *loop;
    struct sockaddr_storage addresses[HX_TARGET_ADDRESSES_MAX];
    unsigned count;
    unsigned preferred; /* the one that answered last */
    bool is_literal;    /* the URL has the address itself: nothing to look up, ever */
    bool is_stale;      /* look again before the next use */
    bool is_busy;       /* a lookup is under way */
    int error;          /* libuv's, of the last lookup */
    uv_getaddrinfo_t request;
    void (*done)(hx_resolver *resolver);
};

/* `done` is called after every hx_resolver_look_up, from the loop; `count` may still be 0. */
void hx_resolver_init(hx_resolver *resolver, uv_loop_t *loop, const hx_target *target,
                      void (*done)(hx_resolver *resolver));
bool hx_resolver_ready(const hx_resolver *resolver);
/* False when the lookup couldn't even be started. Does nothing when one is under way. */
bool hx_resolver_look_up(hx_resolver *resolver) HX_MUST_USE;
/* None of the addresses answers. */
void hx_resolver_distrust(hx_resolver *resolver);

#endif
