/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), by the processor's own instruction where it has one. */
#ifndef HX_BASE_CRC32C_H
#define HX_BASE_CRC32C_H

#include "base/slice.h"

/* Start with 0; feed the result back to go on over several pieces. */
uint32_t hx_crc32c(uint32_t crc, hx_slice bytes);

#endif
