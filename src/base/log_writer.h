/* SPDX-License-Identifier: Apache-2.0 */
/* Between base/log, which makes lines, and the thread that writes them. */
#ifndef HX_BASE_LOG_WRITER_H
#define HX_BASE_LOG_WRITER_H

#include "base/log.h"

#define HX_LOG_LINE_BYTES 8192u

/* Takes a copy of a whole line, or drops and counts it. False: no writer runs, so the caller has to write it. An
 * important line finds room that others leave free. Never waits. */
bool hx_log_writer_take(const char *line, size_t len, bool important) HX_MUST_USE;

#endif
