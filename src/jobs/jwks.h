/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that verify tokens, from the sources of the configuration. Files are read once, when a configuration is
 * loaded; URLs are fetched periodically by one thread, so that keys can be rotated. Keys are only replaced by valid
 * ones: a response that is an error, malformed or too large changes nothing.
 *
 *     next = hx_jwks_open(sources, count, before, wait, error)   NULL: nothing has changed
 *     hx_jwks_on_tried(next, tried, context)                     on a loop, instead of waiting
 *     rules->jwt_keys[i] = hx_jwks_keys(next, i)                 a share of the set, or NULL
 *     hx_jwks_start(next, changed, context)                      `changed` is called from now on
 *     hx_jwks_free(&before)                                      at a reload; at the end, the last one
 *
 * Redirects aren't followed, proxies of the environment are ignored, TLS is verified against the system's authorities
 * (or the file in SSL_CERT_FILE). A set from a URL that contains a shared secret (`oct`) is refused: everyone who can
 * read it could sign. libcurl is loaded with the first URL (docs/decisions/0010). */
#ifndef HX_JOBS_JWKS_H
#define HX_JOBS_JWKS_H

#include "base/fail.h"
#include "config/config.h"
#include "core/token/jwt.h"

typedef struct hx_jwks hx_jwks;

#define HX_JWKS_BYTES_MAX (1024u * 1024u)   /* largest file or response */
#define HX_JWKS_TIMEOUT (10 * HX_SECOND)    /* limit of a whole fetch */
#define HX_JWKS_WANT_GAP (10 * HX_SECOND)   /* least time between fetches on demand */
#define HX_JWKS_BACKOFF_MAX (5 * HX_MINUTE) /* most time between failed fetches; `refresh` where that is less */

/* Reads the files and begins to fetch all URLs; waits at most `wait` for them (0: not at all). Keys, ETag and schedule
 * of a URL that `before` (NULL: none) has too are copied, and such a URL isn't waited for. Returns NULL with a sentence
 * in `error` that names the file and the reason. A URL that can't be fetched is logged and tried again later, and has
 * no keys meanwhile. Keeps nothing of `sources`. */
hx_jwks *hx_jwks_open(const hx_jwt_source *sources, size_t count, hx_jwks *before, hx_ms wait,
                      hx_error_text error) HX_MUST_USE;

/* Whether the first fetch of every URL is over, with or without success. Any thread. */
bool hx_jwks_are_tried(hx_jwks *jwks) HX_MUST_USE;
/* Calls `tried` once, on the fetching thread, when hx_jwks_are_tried is true; it may only hand over to another thread.
 * Never called where there are only files, nor after hx_jwks_stop has returned. */
void hx_jwks_on_tried(hx_jwks *jwks, void (*tried)(void *context), void *context);

/* Returns a share of the newest keys of source `i`, for the caller to free; NULL: there are none yet. Any thread. */
hx_jwt_keys *hx_jwks_keys(hx_jwks *jwks, size_t i) HX_MUST_USE;

/* Calls `changed` on the fetching thread, without a lock, whenever source `i` has keys that hx_jwks_keys hasn't
 * returned yet, including those that came before this call. `changed` may call hx_jwks_keys and hx_jwks_want and hand
 * over to another thread, but not stop or free. */
void hx_jwks_start(hx_jwks *jwks, void (*changed)(void *context, size_t i), void *context);

/* Fetches source `i` again soon, because a token names a key that it doesn't have; at most every HX_JWKS_WANT_GAP. Any
 * thread, until hx_jwks_free; an atomic read while a fetch is already wanted. Does nothing for files, for an `i` out of
 * range, or after hx_jwks_stop. */
void hx_jwks_want(hx_jwks *jwks, size_t i);

/* Ends the thread, in the middle of a fetch too; when it returns, no callback is running or will be called. Keys and
 * hx_jwks_want stay usable. May be called twice. */
void hx_jwks_stop(hx_jwks *jwks);

/* Stops it first. */
void hx_jwks_free(hx_jwks **owned);

#endif
