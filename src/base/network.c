/* SPDX-License-Identifier: Apache-2.0 */
#include "base/network.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

bool hx_network_is_v4(const uint8_t address[16])
{
    return memcmp(address, mapped, sizeof mapped) == 0;
}

bool hx_network_contains(const hx_network *network, const uint8_t address[16])
{
    size_t whole = network->bits / 8u, rest = network->bits % 8u;
    if (memcmp(network->bytes, address, whole) != 0) return false;
    if (rest != 0 && ((network->bytes[whole] ^ address[whole]) >> (8u - rest)) != 0) return false;
    return network->bits >= HX_NETWORK_V4_BITS || !hx_network_is_v4(address);
}

void hx_network_text(const hx_network *network, char out[HX_NETWORK_TEXT_BYTES])
{
    char text[INET6_ADDRSTRLEN] = "";
    bool is_v4 = network->bits >= HX_NETWORK_V4_BITS && hx_network_is_v4(network->bytes);
    (void)inet_ntop(is_v4 ? AF_INET : AF_INET6, network->bytes + (is_v4 ? 12 : 0), text, sizeof text);
    (void)snprintf(out, HX_NETWORK_TEXT_BYTES, "%s/%u", text, network->bits - (is_v4 ? HX_NETWORK_V4_BITS : 0u));
}

bool hx_network_parse(hx_slice text, hx_network *network, hx_error_text error)
{
    size_t slash = hx_slice_find(text, '/');
    hx_slice address = hx_slice_first(text, slash);
    char terminated[INET6_ADDRSTRLEN];
    bool fits = address.len < sizeof terminated && hx_slice_find(address, '\0') == SIZE_MAX;
    (void)snprintf(terminated, sizeof terminated, "%.*s", fits ? (int)address.len : 0, address.ptr);
    *network = (hx_network){0};
    memcpy(network->bytes, mapped, sizeof mapped);
    bool is_v4 = inet_pton(AF_INET, terminated, network->bytes + sizeof mapped) == 1;
    if (!is_v4 && inet_pton(AF_INET6, terminated, network->bytes) != 1)
        return hx_fail(error, "is neither an address nor a network");
    uint64_t most = is_v4 ? 32 : 128, bits = most;
    hx_slice digits = hx_slice_from(text, slash == SIZE_MAX ? text.len : slash + 1);
    bool is_number = hx_slice_to_u64(digits, &bits) && bits <= most && (digits.ptr[0] != '0' || digits.len == 1);
    if (slash != SIZE_MAX && !is_number)
        return hx_fail(error, "needs a number from 0 to %u after the slash", (unsigned)most);
    network->bits = (uint8_t)(bits + (is_v4 ? HX_NETWORK_V4_BITS : 0));
    hx_network masked = *network;
    for (unsigned bit = masked.bits; bit < 128; bit++)
        masked.bytes[bit / 8] = (uint8_t)(masked.bytes[bit / 8] & ~(0x80 >> bit % 8));
    if (memcmp(masked.bytes, network->bytes, sizeof masked.bytes) == 0) return true;
    char right[HX_NETWORK_TEXT_BYTES];
    hx_network_text(&masked, right);
    return hx_fail(error, "has bits behind the first %u, did you mean \"%s\"?", (unsigned)bits, right);
}
