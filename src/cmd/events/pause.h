/* SPDX-License-Identifier: Apache-2.0 */
/* hapax events pause and resume: of all deliveries. */
#ifndef HX_CMD_EVENTS_PAUSE_H
#define HX_CMD_EVENTS_PAUSE_H

#include "cmd/events/actions.h"

int hx_events_pause(hx_call *call);
int hx_events_resume(hx_call *call);

#endif
