/* SPDX-License-Identifier: Apache-2.0 */
/* hapax events redrive: sends one delivery again, or begins a job that does it for many, and shows how far it is. */
#ifndef HX_CMD_EVENTS_REDRIVE_H
#define HX_CMD_EVENTS_REDRIVE_H

#include "cmd/events/actions.h"

/* Counts the deliveries of a state of an endpoint; *more: there are more. -1 to go on. */
int hx_count_deliveries(hx_call *call, const char *state, const char *endpoint, uint64_t *count,
                        bool *more) HX_MUST_USE;
int hx_events_redrive(hx_call *call);
int hx_events_recover(hx_call *call);  /* of an endpoint */
int hx_events_redrives(hx_call *call); /* lists the jobs, or shows one */
int hx_events_stop(hx_call *call);

#endif
