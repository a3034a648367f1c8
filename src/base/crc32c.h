/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli), computed by the processor's own instruction where it has one. */
#ifndef HX_BASE_CRC32C_H
#define HX_BASE_CRC32C_H

#include "base/slice.h"

/* Pass 0 as `crc` for the first piece, and the result of one piece for the next. */
uint32_t hx_crc32c(uint32_t crc, hx_slice bytes);

#endif
