/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of a long command on standard error: a bar on a terminal, and otherwise a line now and then. */
#ifndef HX_BASE_PROGRAM_PROGRESS_H
#define HX_BASE_PROGRAM_PROGRESS_H

#include "base/slice.h"

typedef struct {
    const char *doing; /* "copying" */
    uint64_t total;    /* the expected total, about; 0: unknown */
    bool quiet;        /* show nothing */
    /* private */
    bool terminal, shown;
    int64_t began_ns, last_ns;
} hx_progress_bar;

void hx_progress_begin(hx_progress_bar *progress, const char *doing, uint64_t total, bool quiet);
void hx_progress_at(hx_progress_bar *progress, uint64_t done);
/* Clears the bar, so that the next output starts on an empty line. */
void hx_progress_end(hx_progress_bar *progress);

#endif
