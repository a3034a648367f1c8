/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that come in pieces: a message must mean the same however it is cut. An input's first two bytes say how. */
#ifndef HX_FUZZ_CUTS_H
#define HX_FUZZ_CUTS_H

#include "base/slice.h"

typedef enum { HX_CUT_NOWHERE, HX_CUT_ANYWHERE, HX_CUT_EVERYWHERE } hx_cutting;

typedef struct {
    hx_cutting how;
    uint32_t seed;
} hx_cuts;

/* How many of the bytes that are left come next. */
static inline size_t hx_cuts_next(hx_cuts *cuts, size_t left)
{
    if (cuts->how == HX_CUT_NOWHERE || left == 0) return left;
    if (cuts->how == HX_CUT_EVERYWHERE) return 1;
    cuts->seed = cuts->seed * 1664525u + 1013904223u;
    size_t bytes = 1 + (cuts->seed >> 16) % 40;
    return bytes < left ? bytes : left;
}

#endif
