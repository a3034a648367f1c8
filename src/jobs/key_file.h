/* SPDX-License-Identifier: Apache-2.0 */
/* Keys from files, and whether a URL is one that keys may be fetched from. */
#ifndef HX_JOBS_KEY_FILE_H
#define HX_JOBS_KEY_FILE_H

#include "jobs/jwks.h"

/* `from` is a file. NULL with a sentence in `error` that names it. A secret that is a line of text loses its line end;
 * one of other bytes is taken as it is. */
hx_jwt_keys *hx_jwks_file_read(const hx_jwt_source *from, char error[HX_JWKS_ERROR_BYTES]) HX_MUST_USE;

/* Warns of a URL that isn't https and leaves the machine. False with a sentence in `error` when it is none. */
bool hx_jwks_url_check(hx_slice url, char error[HX_JWKS_ERROR_BYTES]) HX_MUST_USE;

#endif
