/* SPDX-License-Identifier: Apache-2.0 */
/* Times as RFC 3339 writes them; base/clock.h writes them. */
#ifndef HX_CORE_TIME_RFC3339_H
#define HX_CORE_TIME_RFC3339_H

#include "base/clock.h"

/* Reads "2026-02-19T12:00:00.5+01:00", from 1970 to 9999. */
bool hx_rfc3339_read(hx_slice text, hx_ms *at) HX_MUST_USE;

#endif
