/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP towards servers that others chose, such as the receivers of events: http and https by libcurl, on one loop.
 * Redirects are not followed, proxies and credentials of the environment are not used, and only addresses that the
 * guard allows are dialled (address_guard.h).
 *
 * Requests wait for a connection in one line per host and port; the hosts take turns, and each has a limited number of
 * requests in flight. So a host that never answers delays nobody but itself, as long as there are more connections than
 * such hosts may use.
 *
 * All functions belong to the loop's thread. The process must ignore SIGPIPE. */
#ifndef HX_NET_CLIENT_CLIENT_H
#define HX_NET_CLIENT_CLIENT_H

#include "base/loop/loop.h"
#include "base/memory/list.h"
#include "net/client/address_guard.h"

typedef struct hx_client hx_client;
typedef struct hx_client_request hx_client_request;

#define HX_CLIENT_ERRORS(X)                                                                                            \
    X(NONE, "a response came")                                                                                         \
    X(INVALID, "the request can't be sent as it is")                                                                   \
    X(BUSY, "too many requests are waiting")                                                                           \
    X(UNRESOLVED, "the host name could not be resolved")                                                               \
    X(DENIED, "the address is not allowed")                                                                            \
    X(UNREACHABLE, "no connection could be made")                                                                      \
    X(TLS, "no TLS connection could be made")                                                                          \
    X(TIMEOUT, "no response came in time")                                                                             \
    X(RESET, "the connection was cut")                                                                                 \
    X(BROKEN, "the response is not well-formed HTTP")                                                                  \
    X(CANCELLED, "the request was cancelled")

typedef enum {
#define X(name, text) HX_CLIENT_##name,
    HX_CLIENT_ERRORS(X)
#undef X
} hx_client_error;

const char *hx_client_error_text(hx_client_error error);

#define HX_CLIENT_URL_BYTES_MAX 2048u
#define HX_CLIENT_HEADER_LINES_MAX 64u
#define HX_CLIENT_HEAD_BYTES_MAX (64u * 1024u)        /* of a response, interim ones included */
#define HX_CLIENT_DISCARDED_BYTES_MAX (1024u * 1024u) /* of a response's body, beyond what is kept */

typedef struct {
    uint32_t connections_max;       /* busy and idle ones */
    uint32_t requests_per_host_max; /* in flight with one host and port */
    uint32_t waiting_max;           /* requests in all lines together; beyond it BUSY */
    hx_ms lookup_timeout;
    hx_ms idle_timeout; /* a connection that was idle for longer is not used again; whole seconds */
    /* A file of trusted certificates, instead of the system's; NULL: those. The text lives as long as the client. */
    const char *ca_file;
} hx_client_limits;

/* Of a request that is over. The texts live during `done` only. */
typedef struct {
    hx_client_error error;
    const char *reason; /* of an error, a sentence for people */
    /* Of the request's first bytes, those that the kernel took. 0: provably none. Over TLS it is at least 1 once the
     * handshake is over and the request came next, because a record may be half-written. */
    uint64_t bytes_sent;
    uint16_t status;      /* 0: no head of a response came. Set after an error too, if one came before it */
    hx_slice retry_after; /* the fields' values, cut at 63 and 127 bytes; empty: none */
    hx_slice content_type;
    hx_slice head;    /* with keeps_head: the header lines of the response */
    hx_slice body;    /* its first bytes, up to body_kept_max */
    bool body_is_cut; /* the response's body was longer than `body`, or what came of it before the error */
    hx_slice remote;  /* "192.0.2.1:443", "[2001:db8::1]:443": the address that was dialled last; empty: none */
    hx_ms duration;   /* since a connection was free for it; 0: never */
} hx_client_result;

struct hx_client_request {
    /* Set by the caller before hx_client_start; all of it lives until `done`. */
    hx_slice method;
    hx_slice url;
    hx_slice header_lines; /* each "Name: value\r\n". Host, the lines of framing and of the connection are added */
    hx_slice body;
    hx_ms timeout;         /* for everything, waiting included */
    hx_ms connect_timeout; /* TCP and TLS together */
    size_t body_kept_max;
    bool keeps_head;
    void *user;
    void (*done)(hx_client_request *request, const hx_client_result *result);
    /* Used by client.c only. */
    struct {
        hx_client *client;
        enum { HX_CLIENT_WAITING, HX_CLIENT_ACTIVE, HX_CLIENT_OVER } state;
        struct hx_client_host *host;
        struct hx_handle *handle; /* ACTIVE, and OVER after that */
        void *url;                /* libcurl's */
        hx_client_error error;
        const char *reason;
        int64_t began_ns;
        hx_timer timer;
        hx_link link; /* in the host's line, or among those that are over */
        hx_link all;
    } own;
};

/* The guard is asked at every connection and every request: the caller may change it at any time, and frees it after
 * the client. NULL with a sentence in `error`: libcurl is missing or too old. */
hx_client *hx_client_new(hx_loop *loop, const hx_client_limits *limits, const hx_guard *guard, hx_error_text error);
/* Cancels what is in flight: `done` is called for each request, inside this call, and must not start another. Not from
 * inside `done`. */
void hx_client_free(hx_client **owned);
/* `done` follows from the loop, exactly once. */
void hx_client_start(hx_client *client, hx_client_request *request);
/* `done` follows from the loop with CANCELLED, unless it was about to with something else. */
void hx_client_cancel(hx_client_request *request);
/* Whether the kernel took bytes of it: bytes_sent of a request that is not over. */
bool hx_client_is_sent(const hx_client_request *request);

#endif
