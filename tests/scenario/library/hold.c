/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into examples/c/reservation.c: stops it inside its transaction, between the effect and the commit. */
#include <hapax.h>
#include <stdio.h>
#include <unistd.h>

int hapax_sqlite_publish(struct sqlite3 *db, const hapax_event *event)
{
    (void)db;
    (void)event;
    puts("held");
    fflush(stdout);
    for (;;) pause();
}
