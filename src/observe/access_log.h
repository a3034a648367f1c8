/* SPDX-License-Identifier: Apache-2.0 */
/* The access log: one line for each request. */
#ifndef HX_OBSERVE_ACCESS_LOG_H
#define HX_OBSERVE_ACCESS_LOG_H

#include "observe/summary.h"

void hx_access_log_line(const hx_summary *s);
/* The fields of a failed exchange, on the line that is being written. */
void hx_access_log_failure(const hx_upstream_failure *failure);

#endif
