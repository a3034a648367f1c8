/* SPDX-License-Identifier: Apache-2.0 */
/* Reads keys from files, and checks the URLs that keys are fetched from. */
#ifndef HX_JOBS_KEY_FILE_H
#define HX_JOBS_KEY_FILE_H

#include "jobs/jwks.h"

/* Reads the file of a source. Returns NULL with a sentence in `error` that names it. The line end of a secret is
 * removed if the secret is a line of text, not if it contains other bytes. */
hx_jwt_keys *hx_jwks_file_read(const hx_jwt_source *from, hx_error_text error) HX_MUST_USE;

/* Logs a warning for a URL without https to another machine. Returns false, with a sentence in `error`, if it is not a
 * URL that keys can be fetched from. */
bool hx_jwks_url_check(hx_slice url, hx_error_text error) HX_MUST_USE;

#endif
