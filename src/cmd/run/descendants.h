/* SPDX-License-Identifier: Apache-2.0 */
/* The descendants of this process, which must be a child subreaper: orphans among them come back to it. */
#ifndef HX_CMD_RUN_DESCENDANTS_H
#define HX_CMD_RUN_DESCENDANTS_H

#include <stddef.h>
#include <sys/types.h>

/* Kills every living descendant (SIGKILL); with a session only those that are in another one, and adds their names to
 * the text `names`, as in "sleep (4711), sh (4712)". Returns how many there were. */
unsigned hx_descendants_kill(pid_t session, char *names, size_t names_bytes);
/* Kills descendants until none is left; what can't be killed is waited for. `reaped`, which may be NULL, is told of
 * each that was a child. */
void hx_descendants_end(void (*reaped)(void *user, pid_t pid, int status), void *user);

#endif
