/* SPDX-License-Identifier: Apache-2.0 */
/* The ranges are those of IANA's registries of special-purpose addresses that are not globally reachable, and what no
 * public server has: anything outside 2000::/3, and the metadata services of clouds. */
#include "net/client/address_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#define V4(a, b, c, d, length)                                                                                         \
    {                                                                                                                  \
        .bytes = {[10] = 0xff, [11] = 0xff, (a), (b), (c), (d)}, .bits = HX_NETWORK_V4_BITS + (length)                 \
    }
/* The first three groups of an IPv6 address; the others are zero. */
#define V6(a, b, c, length)                                                                                            \
    {                                                                                                                  \
        .bytes = {(a) >> 8, (a)&0xff, (b) >> 8, (b)&0xff, (c) >> 8, (c)&0xff}, .bits = (length)                        \
    }

static const struct {
    hx_network network;
    const char *what;
} denied[] = {
    {V4(0, 0, 0, 0, 8), "an address of \"this network\""},
    {V4(10, 0, 0, 0, 8), "a private address"},
    {V4(100, 64, 0, 0, 10), "an address behind a provider's NAT"},
    {V4(127, 0, 0, 0, 8), "a loopback address"},
    {V4(168, 63, 129, 16, 32), "the address of a cloud's host agent"}, /* Azure's, though it looks public */
    {V4(169, 254, 0, 0, 16), "a link-local address"},                  /* with the metadata services of most clouds */
    {V4(172, 16, 0, 0, 12), "a private address"},
    {V4(192, 0, 0, 0, 24), "an address of IETF protocols"},
    {V4(192, 0, 2, 0, 24), "an address for documentation"},
    {V4(192, 88, 99, 0, 24), "the address of 6to4 relays"},
    {V4(192, 168, 0, 0, 16), "a private address"},
    {V4(198, 18, 0, 0, 15), "an address for benchmarks"},
    {V4(198, 51, 100, 0, 24), "an address for documentation"},
    {V4(203, 0, 113, 0, 24), "an address for documentation"},
    {V4(224, 0, 0, 0, 4), "a multicast address"},
    {V4(255, 255, 255, 255, 32), "the broadcast address"},
    {V4(240, 0, 0, 0, 4), "a reserved address"},
    {V6(0, 0, 0, 128), "the unspecified address"},
    {{.bytes = {[15] = 1}, .bits = 128}, "a loopback address"},
    {V6(0x64, 0xff9b, 1, 48), "an address of a local NAT64"},
    {V6(0x100, 0, 0, 64), "an address of the discard prefix"},
    {V6(0x2001, 0, 0, 32), "a Teredo address"},
    {V6(0x2001, 2, 0, 48), "an address for benchmarks"},
    {V6(0x2001, 0, 0, 23), "an address of IETF protocols"},
    {V6(0x2001, 0xdb8, 0, 32), "an address for documentation"},
    {V6(0x3fff, 0, 0, 20), "an address for documentation"},
    {V6(0xfc00, 0, 0, 7), "a private address"},
    {V6(0xfe80, 0, 0, 10), "a link-local address"},
    {V6(0xfec0, 0, 0, 10), "a site-local address"},
    {V6(0xff00, 0, 0, 8), "a multicast address"},
};

/* Prefixes of IPv6 addresses with an IPv4 address inside, and where. */
static const struct {
    hx_network network;
    size_t offset;
} embedding[] = {
    {V6(0, 0, 0, 96), 12},                                 /* IPv4-compatible */
    {{.bytes = {[8] = 0xff, [9] = 0xff}, .bits = 96}, 12}, /* IPv4-translated */
    {V6(0x64, 0xff9b, 0, 96), 12},                         /* NAT64 */
    {V6(0x2002, 0, 0, 16), 2},                             /* 6to4 */
};

static const char *look_up(const uint8_t address[16])
{
    for (size_t i = 0; i < sizeof denied / sizeof denied[0]; i++)
        if (hx_network_contains(&denied[i].network, address)) return denied[i].what;
    return NULL;
}

static bool is_allowed(const hx_address_guard *guard, const uint8_t address[16])
{
    for (size_t i = 0; i < guard->allowed_count; i++)
        if (hx_network_contains(&guard->allowed[i], address)) return true;
    return false;
}

static bool unwrap(const uint8_t address[16], uint8_t embedded[16])
{
    for (size_t i = 0; i < sizeof embedding / sizeof embedding[0]; i++) {
        if (!hx_network_contains(&embedding[i].network, address)) continue;
        memset(embedded, 0, 10);
        memset(embedded + 10, 0xff, 2);
        memcpy(embedded + 12, address + embedding[i].offset, 4);
        return true;
    }
    return false;
}

static const char *judge(const hx_address_guard *guard, const uint8_t address[16])
{
    static const hx_network global_unicast = V6(0x2000, 0, 0, 3);
    uint8_t embedded[16];
    if (is_allowed(guard, address)) return NULL;
    const char *what = look_up(address);
    if (what) return what;
    if (unwrap(address, embedded)) return is_allowed(guard, embedded) ? NULL : look_up(embedded);
    bool is_global = hx_network_is_v4(address) || hx_network_contains(&global_unicast, address);
    return is_global ? NULL : "a reserved address";
}

bool hx_guard_allows(const hx_address_guard *guard, const struct sockaddr *address, hx_error_text error)
{
    uint8_t bytes[16] = {[10] = 0xff, [11] = 0xff};
    const char *what = NULL;
    char text[INET6_ADDRSTRLEN] = "";
    if (address->sa_family == AF_INET) {
        memcpy(bytes + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)address;
        memcpy(bytes, &v6->sin6_addr, sizeof bytes);
        if (v6->sin6_scope_id != 0) what = "an address with a zone";
    } else {
        return hx_fail(error, "the address is not one of IPv4 or IPv6");
    }
    if (!what) what = judge(guard, bytes);
    if (!what) return true;
    (void)inet_ntop(hx_network_is_v4(bytes) ? AF_INET : AF_INET6, bytes + (hx_network_is_v4(bytes) ? 12 : 0), text,
                    sizeof text);
    return hx_fail(error, "%s is %s: requests go to public addresses only, unless the allow-list has them", text, what);
}
