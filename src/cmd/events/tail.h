/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_CMD_EVENTS_TAIL_H
#define HX_CMD_EVENTS_TAIL_H

#include "cmd/events/actions.h"

/* `hapax events tail`. */
int hx_tail(hx_call *call);

#endif
