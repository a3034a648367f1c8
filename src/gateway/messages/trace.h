/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_GATEWAY_MESSAGES_TRACE_H
#define HX_GATEWAY_MESSAGES_TRACE_H

#include "gateway/request.h"

/* Continues the client's trace, or begins a new one, and sets the correlation id. */
void hx_trace_choose(hx_request *r);

#endif
