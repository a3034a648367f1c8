/* SPDX-License-Identifier: Apache-2.0 */
/* Inside net/client only: one easy handle of libcurl, used for one request after another, because making one costs as
 * much as a request. */
#ifndef HX_NET_CLIENT_HANDLE_H
#define HX_NET_CLIENT_HANDLE_H

#include "base/memory/buf.h"
#include "net/client/client.h"
#include "net/client/lookup.h"
#include "net/client/multi.h"

#include <netinet/in.h>

/* The host of a URL. */
typedef struct {
    char name[HX_LOOKUP_NAME_BYTES]; /* in lower case; an IPv6 address has no brackets */
    uint16_t port;
    bool is_name; /* not an address */
} hx_client_address;

/* Parses a URL, by libcurl alone and once: what is returned is sent later. NULL with a static sentence. */
CURLU *hx_handle_parse(const hx_libcurl *curl, hx_slice url, hx_client_address *address, const char **reason);

typedef struct hx_handle {
    const hx_libcurl *curl;
    hx_multi *multi;
    const hx_guard *guard;
    hx_link link; /* its owner's */
    CURL *easy;
    struct curl_slist lines[HX_CLIENT_HEADER_LINES_MAX + 2];
    hx_buf text; /* of the lines */
    /* For CURLOPT_RESOLVE: the addresses of the host, after what removes those of the host before, so that libcurl's
     * cache has an entry for each handle at most. It never expires by time, for which libcurl would look at all of
     * them. */
    struct curl_slist resolved[2];
    char removed_text[HX_LOOKUP_NAME_BYTES + 8], resolved_text[HX_LOOKUP_NAME_BYTES + 512];
    hx_client_address last; /* of which libcurl's cache has the addresses */
    /* Of the request that it has, or had last; the rest is the response's. */
    hx_client_request *request;
    bool is_name; /* of the host: it was looked up by us */
    bool is_tls;
    unsigned sends;    /* times that libcurl was about to write the request */
    bool is_connected; /* the request was about to be written, and may have been */
    bool is_denied;    /* an address was; denied_text says why */
    bool is_resend;    /* libcurl wanted to send it a second time */
    bool has_head;     /* of the response, all of it */
    bool has_enough;   /* as much of the body came as is read */
    uint64_t head_bytes, body_bytes;
    hx_buf head; /* where the request wants it */
    hx_buf body;
    char retry_after[64], content_type[128], remote[INET6_ADDRSTRLEN + 16];
    char error_text[CURL_ERROR_SIZE];
    hx_error_text denied_text;
} hx_handle;

/* NULL: libcurl refuses the options. */
hx_handle *hx_handle_new(const hx_libcurl *curl, hx_multi *multi, const hx_guard *guard,
                         const hx_client_limits *limits);
void hx_handle_free(hx_handle **owned);
/* Replaces the easy handle, between two requests. */
void hx_handle_renew(hx_handle *handle, const hx_client_limits *limits);
/* Takes the request, whose own.url is parsed. `addresses` are those of a name. Returns NULL, or a static sentence: why
 * it can't be sent. */
const char *hx_handle_take(hx_handle *handle, hx_client_request *request, const hx_client_address *address,
                           const char *addresses);
/* The meaning of the code with which its transfer ended. */
hx_client_error hx_handle_judge(const hx_handle *handle, CURLcode code, const char **reason);
/* Fills all of a result but `error`, `reason` and `duration`. */
void hx_handle_report(const hx_handle *handle, hx_client_result *result);

#endif
