/* SPDX-License-Identifier: Apache-2.0 */
/* hapax events redrive: sends one delivery again, or many at a pace. */
#ifndef HX_CMD_EVENTS_REDRIVE_H
#define HX_CMD_EVENTS_REDRIVE_H

#include "cmd/events/actions.h"

/* Counts the deliveries of a state, up to 1,000, of an endpoint or, where it is NULL, of all; *more: there are more.
 * -1 to go on. */
int hx_count_deliveries(hx_call *call, const char *state, const char *endpoint, uint64_t *count,
                        bool *more) HX_MUST_USE;
int hx_redrive(hx_call *call);

#endif
