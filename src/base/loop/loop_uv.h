/* SPDX-License-Identifier: Apache-2.0 */
/* For net/ alone: the libuv loop under an hx_loop. */
#ifndef HX_BASE_LOOP_LOOP_UV_H
#define HX_BASE_LOOP_LOOP_UV_H

#include "base/loop/loop.h"

struct uv_loop_s;
struct uv_loop_s *hx_loop_uv(hx_loop *loop);
/* The number of this turn, from 1. */
uint64_t hx_loop_turns(const hx_loop *loop);

#endif
