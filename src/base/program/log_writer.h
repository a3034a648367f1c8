/* SPDX-License-Identifier: Apache-2.0 */
/* The log of our own programs, on standard error. Between hx_log_start and hx_log_stop a thread of its own writes the
 * lines, so that a thread that logs never waits for the reader of standard error; before and after, each thread writes
 * its own. Past a bound lines are dropped and counted, and when the reader reads again a line says how many. */
#ifndef HX_BASE_PROGRAM_LOG_WRITER_H
#define HX_BASE_PROGRAM_LOG_WRITER_H

#include "base/log.h"

void hx_log_to_stderr(void);
void hx_log_start(void);
/* Waits until all lines so far are written, at most this long. False: the reader doesn't read. */
bool hx_log_flush(hx_ms most);
/* Flushes, and ends the thread. A thread whose reader doesn't read is left behind: the process is about to end. */
void hx_log_stop(hx_ms most);
/* Counts the lines dropped since the start of the process. */
uint64_t hx_log_dropped(void);

#endif
