/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_CMD_SEND_KEY_TEXT_H
#define HX_CMD_SEND_KEY_TEXT_H

#include "base/clock.h"
#include "base/fail.h"
#include "base/memory/arena.h"

/* Fills in the parts of a key such as "daily:{date:America/New_York}:user-123", at the time `at`: {date:ZONE},
 * {window:1h}, {body:/pointer} and {sha256:body}. A key without braces is left as it is. False with a sentence. */
bool hx_send_key(hx_slice text, hx_slice body, hx_ms at, hx_arena *arena, hx_slice *key,
                 hx_error_text error) HX_MUST_USE;

#endif
