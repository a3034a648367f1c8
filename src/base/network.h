/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of IP addresses, such as 10.0.0.0/8. An IPv4 address is its IPv4-mapped IPv6 address here (::ffff:0:0/96),
 * so that every address has 16 bytes. */
#ifndef HX_BASE_NETWORK_H
#define HX_BASE_NETWORK_H

#include "base/fail.h"
#include "base/slice.h"

#define HX_NETWORK_V4_BITS 96u /* of the prefix of IPv4-mapped addresses */
#define HX_NETWORK_TEXT_BYTES 50u

typedef struct {
    uint8_t bytes[16];
    uint8_t bits;
} hx_network;

/* "10.0.0.0/8", "fd00::/8", or an address, which is a network of its own. False with the rest of a sentence that begins
 * with the text: `has bits behind the first 8, did you mean "10.0.0.0/8"?`. */
bool hx_network_parse(hx_slice text, hx_network *network, hx_error_text error) HX_MUST_USE;
/* "10.0.0.0/8" */
void hx_network_text(const hx_network *network, char out[HX_NETWORK_TEXT_BYTES]);
/* A network of IPv6 addresses, ::/0 too, contains no IPv4 address. */
bool hx_network_contains(const hx_network *network, const uint8_t address[16]);
bool hx_network_is_v4(const uint8_t address[16]);

#endif
