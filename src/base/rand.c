/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rand.h"

#include "base/check.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

static _Thread_local struct {
    unsigned char bytes[4096];
    size_t left;
    bool seeded;
    uint64_t state;
} pool;

static uint64_t next_seeded(void)
{
    uint64_t z = (pool.state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void refill(void)
{
    if (pool.seeded) {
        for (size_t i = 0; i < sizeof pool.bytes; i += 8) {
            uint64_t word = next_seeded();
            memcpy(pool.bytes + i, &word, 8);
        }
    } else {
        for (size_t got = 0; got < sizeof pool.bytes;) { /* a signal may cut a long draw short */
            ssize_t more = getrandom(pool.bytes + got, sizeof pool.bytes - got, 0);
            if (more < 0 && errno != EINTR) hx_fatal(HX_EXIT_BUG, "the kernel gives no random bytes");
            if (more > 0) got += (size_t)more;
        }
    }
    pool.left = sizeof pool.bytes;
}

void hx_rand_bytes(void *out, size_t bytes)
{
    unsigned char *to = out;
    while (bytes > 0) {
        if (pool.left == 0) refill();
        size_t take = bytes < pool.left ? bytes : pool.left;
        unsigned char *from = pool.bytes + sizeof pool.bytes - pool.left;
        memcpy(to, from, take);
        memset(from, 0, take); /* bytes that were handed out aren't kept */
        pool.left -= take;
        to += take;
        bytes -= take;
    }
}

uint64_t hx_rand_u64(void)
{
    uint64_t value;
    hx_rand_bytes(&value, sizeof value);
    return value;
}

uint64_t hx_rand_below(uint64_t bound)
{
    HX_CHECK(bound > 0);
    uint64_t floor = (0 - bound) % bound; /* values below it would favour small results */
    for (;;) {
        uint64_t value = hx_rand_u64();
        if (value >= floor) return value % bound;
    }
}

void hx_rand_forget(void)
{
    memset(pool.bytes, 0, sizeof pool.bytes);
    pool.left = 0;
}

void hx_rand_seed(uint64_t seed)
{
    pool.seeded = true;
    pool.state = seed;
    pool.left = 0;
}
