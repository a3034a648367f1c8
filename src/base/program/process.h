/* SPDX-License-Identifier: Apache-2.0 */
/* The host of our own programs: fatal failures end the process, and the log goes to standard error. A library leaves
 * both to the program that uses it (base/check.h, base/log.h), so nothing of libhapax calls this. */
#ifndef HX_BASE_PROGRAM_PROCESS_H
#define HX_BASE_PROGRAM_PROCESS_H

/* Call it first in main(). From then on a failed assertion or hx_fatal prints its message (for our own bugs with a
 * backtrace), writes the log's last lines and ends the process with its exit code. */
void hx_process_init(void);

#endif
