/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <stdatomic.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

typedef uint32_t (*crc_function)(uint32_t crc, hx_slice bytes);

static uint32_t by_table(uint32_t crc, hx_slice bytes)
{
    static _Thread_local uint32_t table[256];
    if (table[1] == 0) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++) c = (c >> 1) ^ ((c & 1) ? POLYNOMIAL : 0);
            table[i] = c;
        }
    }
    for (size_t i = 0; i < bytes.len; i++) crc = table[(crc ^ (unsigned char)bytes.ptr[i]) & 0xff] ^ (crc >> 8);
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, hx_slice bytes)
{
    uint64_t wide = crc;
    size_t i = 0;
    for (; i + 8 <= bytes.len; i += 8) {
        uint64_t word;
        memcpy(&word, bytes.ptr + i, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; i < bytes.len; i++) crc = __builtin_ia32_crc32qi(crc, (unsigned char)bytes.ptr[i]);
    return crc;
}

static crc_function choose(void)
{
    return __builtin_cpu_supports("sse4.2") ? by_instruction : by_table;
}
#else
static crc_function choose(void)
{
    return by_table;
}
#endif

uint32_t hx_crc32c(uint32_t crc, hx_slice bytes)
{
    static _Atomic(crc_function) chosen;
    crc_function function = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!function) {
        function = choose();
        atomic_store_explicit(&chosen, function, memory_order_relaxed);
    }
    return ~function(~crc, bytes);
}
