/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the secrets of sources from where they are kept. No error contains one. */
#ifndef HX_EVENTS_INBOX_SOURCE_SECRETS_H
#define HX_EVENTS_INBOX_SOURCE_SECRETS_H

#include "core/event/source.h"

/* Reads a secret as its scheme has it; *text is the secret as it is written, without the line end of a file. Returns
 * NULL, or a sentence about what is wrong. All of it is in the arena, or points into the environment. */
const char *hx_source_secret(const hx_webhook_scheme *scheme, const hx_webhook_secret_place *place, hx_arena *arena,
                             hx_slice *text, hx_webhook_secret *secret) HX_MUST_USE;

/* Reads all secrets of a source. False with a sentence in `error` that names the source, and the file or variable. */
bool hx_source_open(hx_source *source, hx_arena *arena, hx_error_text error) HX_MUST_USE;

#endif
