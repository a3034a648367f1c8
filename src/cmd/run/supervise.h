/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor: a process between us and the command, which sees to it that nothing of the command outlives us.
 *
 *     hapax run  <--socket-->  supervisor  <-->  command (in a session of its own)  <-->  its descendants
 *
 * It is a child subreaper, so descendants whose parents end come to it, and it ends when none is left. When the socket
 * closes, because we died, or when it is told to, it kills all of them. What has left the session when the command ends
 * (a daemon) is killed and named. If the supervisor itself is killed the command dies with it (PR_SET_PDEATHSIG), and
 * other descendants come to us, who are a subreaper, too. */
#ifndef HX_CMD_RUN_SUPERVISE_H
#define HX_CMD_RUN_SUPERVISE_H

#include <stdbool.h>
#include <sys/types.h>

/* The only message from the supervisor, when the last descendant has ended. */
typedef struct {
    int start_error; /* 0, or the errno of starting the command */
    int status;      /* of the command, as waitpid gives it */
    char left[256];  /* the names of descendants that had left the session; "" for none */
} hx_supervised;

typedef struct {
    pid_t pid;
    int socket;      /* readable when the supervisor has ended: one hx_supervised, or its end */
    int output[2];   /* what the command writes to standard output and standard error */
    bool has_others; /* this process has children that aren't the supervisor's: nothing of it is killed from here */
} hx_supervisor;

/* Starts the supervisor, and it the command. 0, or an errno. */
int hx_supervisor_start(hx_supervisor *s, char *const argv[]);
/* Passes a signal on to the command's process group. SIGKILL is for every descendant. */
void hx_supervisor_signal(const hx_supervisor *s, int number);
/* Reads the message, when the socket is readable. False: the supervisor was killed; what it had is killed now. */
bool hx_supervisor_end(hx_supervisor *s, hx_supervised *end);

#endif
