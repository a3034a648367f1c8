/* SPDX-License-Identifier: Apache-2.0 */
/* Work that blocks for as long as it likes, such as a DNS lookup, on a thread of its own that ends with it. A
 * cancellation never waits for it, and the loop may be gone when it ends. */
#ifndef HX_BASE_LOOP_OFFLOAD_H
#define HX_BASE_LOOP_OFFLOAD_H

#include "base/loop/loop.h"

typedef struct hx_offload hx_offload;

/* Calls `work` on a new thread, then `done` on the loop. `memory` is what they work on: a heap block, which belongs to
 * the offload from now on. NULL: no thread can be started, and `memory` was freed. */
hx_offload *hx_offload_start(hx_loop *loop, void *memory, void (*work)(void *memory),
                             void (*done)(void *context, void *memory), void *context);
/* Lets go of it, inside `done` or later; before that, cancels: `done` is not called any more. On the loop's thread, or
 * after the loop has ended; NULL is fine. */
void hx_offload_free(hx_offload **owned);

#endif
