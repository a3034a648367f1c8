/* SPDX-License-Identifier: Apache-2.0 */
/* Lets many threads read what one thread replaces, without locks. A reader says when it enters and leaves; what the
 * writer has taken out of sight is retired, and given back once every reader that may still see it has left. */
#ifndef HX_BASE_MEMORY_EPOCH_RECLAIM_H
#define HX_BASE_MEMORY_EPOCH_RECLAIM_H

#include <stdbool.h>

typedef struct hx_reclaim hx_reclaim;

hx_reclaim *hx_reclaim_new(void);
void hx_reclaim_free(hx_reclaim **owned); /* nobody reads any more */

/* Any thread; not nested. */
void hx_reclaim_enter(hx_reclaim *readers);
void hx_reclaim_leave(hx_reclaim *readers);
/* Whether this thread has entered: for checks, by whatever hands out what may be retired. */
bool hx_reclaim_is_entered(const hx_reclaim *readers);

/* The writer only. `free` is called with `memory` by a later hx_reclaim_run, or at the end. */
void hx_reclaim_retire(hx_reclaim *readers, void *memory, void (*give_back)(void *memory));
void hx_reclaim_run(hx_reclaim *readers);

#endif
