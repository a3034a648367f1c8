/* SPDX-License-Identifier: Apache-2.0 */
/* How far a long command is: a bar on a terminal, a line now and then elsewhere, all on standard error. */
#ifndef HX_BASE_PROGRAM_PROGRESS_H
#define HX_BASE_PROGRAM_PROGRESS_H

#include "base/slice.h"

typedef struct {
    const char *doing; /* "copying" */
    uint64_t total;    /* about; 0: not known */
    bool quiet;        /* nothing is shown */
    /* its own */
    bool terminal, shown;
    int64_t began_ns, last_ns;
} hx_progress_bar;

void hx_progress_begin(hx_progress_bar *progress, const char *doing, uint64_t total, bool quiet);
void hx_progress_at(hx_progress_bar *progress, uint64_t done);
/* Clears the bar, so that whatever comes next has the line. */
void hx_progress_end(hx_progress_bar *progress);

#endif
