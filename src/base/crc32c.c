/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

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
/* The instruction takes three cycles, and a new one can start in each: a longer input is cut into three streams that
 * run side by side. Combining their results shifts a CRC over zeros, which is a multiplication by a power of x. */
#define LANE_WORDS_MIN 4u
#define LANE_WORDS_MAX 64u
static uint32_t over_words[2 * LANE_WORDS_MAX + 1]; /* [n] is x^(64n - 33) modulo the polynomial, reflected */

__attribute__((target("sse4.2"))) static void fill_over_words(void)
{
    over_words[1] = 1; /* x^31 */
    for (size_t n = 1; n < 2 * LANE_WORDS_MAX; n++)
        over_words[n + 1] = (uint32_t)__builtin_ia32_crc32di(over_words[n], 0);
}

static inline uint64_t word_at(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t product(uint64_t crc, uint32_t power)
{
    __m128i wide = _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)crc), _mm_cvtsi32_si128((int32_t)power), 0);
    return (uint64_t)_mm_cvtsi128_si64(wide);
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, hx_slice bytes)
{
    uint64_t wide = crc;
    size_t i = 0;
    for (; i + 8 <= bytes.len; i += 8) wide = __builtin_ia32_crc32di(wide, word_at(bytes.ptr + i));
    crc = (uint32_t)wide;
    for (; i < bytes.len; i++) crc = __builtin_ia32_crc32qi(crc, (unsigned char)bytes.ptr[i]);
    return crc;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t by_three(uint32_t crc, hx_slice bytes)
{
    uint64_t first = crc;
    while (bytes.len >= 24 * LANE_WORDS_MIN) {
        size_t words = bytes.len / 24 < LANE_WORDS_MAX ? bytes.len / 24 : LANE_WORDS_MAX;
        const char *at = bytes.ptr, *end = at + 8 * words;
        uint64_t second = 0, third = 0;
        for (; at < end; at += 8) {
            first = __builtin_ia32_crc32di(first, word_at(at));
            second = __builtin_ia32_crc32di(second, word_at(at + 8 * words));
            third = __builtin_ia32_crc32di(third, word_at(at + 16 * words));
        }
        uint64_t shifted = product(first, over_words[2 * words]) ^ product(second, over_words[words]);
        first = __builtin_ia32_crc32di(0, shifted) ^ third;
        bytes = (hx_slice){bytes.ptr + 24 * words, bytes.len - 24 * words};
    }
    return by_instruction((uint32_t)first, bytes);
}

static crc_function best(void)
{
    if (!__builtin_cpu_supports("sse4.2")) return by_table;
    if (!__builtin_cpu_supports("pclmul")) return by_instruction;
    fill_over_words();
    return by_three;
}
#else
static crc_function best(void)
{
    return by_table;
}
#endif

static _Atomic(crc_function) chosen;

static void choose(void)
{
    atomic_store_explicit(&chosen, best(), memory_order_release);
}

uint32_t hx_crc32c(uint32_t crc, hx_slice bytes)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    crc_function function = atomic_load_explicit(&chosen, memory_order_acquire);
    if (!function) {
        (void)pthread_once(&once, choose);
        function = atomic_load_explicit(&chosen, memory_order_acquire);
    }
    return ~function(~crc, bytes);
}
