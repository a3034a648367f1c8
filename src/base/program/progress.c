/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program/progress.h"

#include "base/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define NS_A_SECOND INT64_C(1000000000)
#define DRAWN_EVERY_NS (NS_A_SECOND / 10)
#define SAID_EVERY_NS (5 * NS_A_SECOND)
#define BAR_WIDTH 30u

void hx_progress_begin(hx_progress_bar *progress, const char *doing, uint64_t total, bool quiet)
{
    int64_t now = hx_clock_mono_ns();
    bool terminal = isatty(STDERR_FILENO) == 1;
    *progress = (hx_progress_bar){.doing = doing,
                                  .total = total,
                                  .quiet = quiet,
                                  .terminal = terminal,
                                  .began_ns = now,
                                  .last_ns = terminal ? now - DRAWN_EVERY_NS : now}; /* a bar is seen at once */
}

static void draw(const hx_progress_bar *progress, uint64_t done, double seconds)
{
    char bar[BAR_WIDTH + 1];
    uint64_t filled = done >= progress->total ? BAR_WIDTH : done * BAR_WIDTH / progress->total;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    uint64_t left = rate > 0 && done < progress->total ? (uint64_t)((double)(progress->total - done) / rate) : 0;
    for (uint64_t i = 0; i < BAR_WIDTH; i++) bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
    bar[BAR_WIDTH] = '\0';
    (void)fprintf(stderr,
                  "\r%s [%s] %3" PRIu64 " %%  %" PRIu64 " of %" PRIu64 "  %.0f/s  %" PRIu64 ":%02" PRIu64 " left\033[K",
                  progress->doing, bar, filled * 100 / BAR_WIDTH, done, progress->total, rate, left / 60, left % 60);
    (void)fflush(stderr);
}

void hx_progress_at(hx_progress_bar *progress, uint64_t done)
{
    if (progress->quiet) return;
    int64_t now = hx_clock_mono_ns();
    if (now - progress->last_ns < (progress->terminal ? DRAWN_EVERY_NS : SAID_EVERY_NS)) return;
    progress->last_ns = now;
    if (progress->terminal && progress->total > 0)
        draw(progress, done, (double)(now - progress->began_ns) / (double)NS_A_SECOND);
    else
        (void)fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 "\n", progress->doing, done, progress->total);
    progress->shown = true;
}

void hx_progress_end(hx_progress_bar *progress)
{
    if (progress->shown && progress->terminal) (void)fputs("\r\033[K", stderr);
    progress->shown = false;
}
