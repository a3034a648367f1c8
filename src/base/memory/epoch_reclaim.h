/* SPDX-License-Identifier: Apache-2.0 */
/* Lets many threads read what one thread replaces, without locks. A reader says when it enters and leaves; what the
 * writer has taken out of sight is retired, and given back once every reader that may still see it has left. */
#ifndef HX_BASE_MEMORY_EPOCH_RECLAIM_H
#define HX_BASE_MEMORY_EPOCH_RECLAIM_H

typedef struct hx_readers hx_readers;

hx_readers *hx_readers_new(void);
void hx_readers_free(hx_readers **owned); /* nobody reads any more */

/* Any thread; not nested. */
void hx_readers_enter(hx_readers *readers);
void hx_readers_leave(hx_readers *readers);

/* The writer only. `free` is called with `memory` by a later hx_readers_reclaim, or at the end. */
void hx_readers_retire(hx_readers *readers, void *memory, void (*give_back)(void *memory));
void hx_readers_reclaim(hx_readers *readers);

#endif
