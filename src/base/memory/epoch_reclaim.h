/* SPDX-License-Identifier: Apache-2.0 */
/* Lets many threads read, without locks, memory that one thread replaces. Readers enter and leave; memory that the
 * writer has unlinked is retired, and freed once every reader that may still see it has left. */
#ifndef HX_BASE_MEMORY_EPOCH_RECLAIM_H
#define HX_BASE_MEMORY_EPOCH_RECLAIM_H

#include <stdbool.h>

typedef struct hx_reclaim hx_reclaim;

hx_reclaim *hx_reclaim_new(void);
void hx_reclaim_free(hx_reclaim **owned); /* no thread reads any more */

/* Begin and end reading, on any thread; not nested. */
void hx_reclaim_enter(hx_reclaim *readers);
void hx_reclaim_leave(hx_reclaim *readers);
/* Whether this thread has entered: for checks, by whatever hands out what may be retired. */
bool hx_reclaim_is_entered(const hx_reclaim *readers);

/* For the writer only: `free` is called with `memory` by a later hx_reclaim_run, or by hx_reclaim_free. */
void hx_reclaim_retire(hx_reclaim *readers, void *memory, void (*give_back)(void *memory));
void hx_reclaim_run(hx_reclaim *readers);

#endif
