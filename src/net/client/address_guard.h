/* SPDX-License-Identifier: Apache-2.0 */
/* The guard against server-side request forgery: requests to URLs that others chose go to globally routable unicast
 * addresses only. It judges the address that is dialled, never a name or a URL, whose spellings are endless. An address
 * in which an IPv4 address is embedded (IPv4-mapped, NAT64, 6to4) is judged by that one. */
#ifndef HX_NET_CLIENT_ADDRESS_GUARD_H
#define HX_NET_CLIENT_ADDRESS_GUARD_H

#include "base/network.h"

#include <sys/socket.h>

typedef struct {
    const hx_network *allowed; /* addresses that may be dialled all the same; but for those with a zone */
    size_t allowed_count;
} hx_address_guard;

/* Whether this address may be dialled. False with a sentence: which address, and why not. */
bool hx_guard_allows(const hx_address_guard *guard, const struct sockaddr *address, hx_error_text error) HX_MUST_USE;

#endif
