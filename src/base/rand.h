/* SPDX-License-Identifier: Apache-2.0 */
/* Unpredictable bytes from the kernel, drawn in blocks per thread. */
#ifndef HX_BASE_RAND_H
#define HX_BASE_RAND_H

#include <stddef.h>
#include <stdint.h>

void hx_rand_bytes(void *out, size_t bytes);
uint64_t hx_rand_u64(void);
/* Uniform in [0, bound); bound > 0. */
uint64_t hx_rand_below(uint64_t bound);

/* Drops what this thread has drawn and not used: after a fork parent and child have the same bytes. */
void hx_rand_forget(void);

/* For the simulator only: from now on the bytes of this thread are determined by `seed`. */
void hx_rand_seed(uint64_t seed);

#endif
