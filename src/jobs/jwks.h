/* SPDX-License-Identifier: Apache-2.0 */
/* The keys by which tokens are verified, from where the configuration says they are. Files are read once, when a
 * configuration is loaded; a URL is fetched again and again by a thread of its own, so that keys can be rotated. What
 * has been fetched stays until something better comes: an answer that fails, is garbage or too large changes nothing.
 *
 *     next = hx_jwks_open(sources, count, before, wait, error)   NULL: nothing has changed
 *     hx_jwks_on_tried(next, tried, context)                     on a loop, instead of waiting
 *     rules->jwt_keys[i] = hx_jwks_keys(next, i)                 a share of the set, or NULL
 *     hx_jwks_start(next, changed, context)                      from now on `changed` is called
 *     hx_jwks_stop(before), hx_jwks_free(&before)                at a reload; at the end, the last one
 *
 * Redirects aren't followed, proxies of the environment are ignored, TLS is verified against the system's authorities
 * (or the file in SSL_CERT_FILE). A set from a URL that holds a shared secret (`oct`) is refused: who can read it could
 * sign. libcurl is loaded when the first URL is (docs/decisions/0010). */
#ifndef HX_JOBS_JWKS_H
#define HX_JOBS_JWKS_H

#include "config/config.h"
#include "core/token/jwt.h"

typedef struct hx_jwks hx_jwks;

#define HX_JWKS_ERROR_BYTES 512
#define HX_JWKS_BYTES_MAX (1024u * 1024u)   /* of a file or an answer */
#define HX_JWKS_TIMEOUT (10 * HX_SECOND)    /* of a fetch, all in all */
#define HX_JWKS_WANT_GAP (10 * HX_SECOND)   /* between fetches on demand */
#define HX_JWKS_BACKOFF_MAX (5 * HX_MINUTE) /* between attempts that fail, or the source's `refresh` if that is less */

/* Reads the files, and begins to fetch the URLs, all at once, waiting for them at most `wait`. Keys, ETag and schedule
 * of a URL that `before` (NULL: none) has too are taken over, and such a URL isn't waited for. NULL with a sentence in
 * `error` that names the file and the reason; a URL that can't be had is logged, tried again later, and has no keys
 * meanwhile. Nothing of `sources` is kept. */
hx_jwks *hx_jwks_open(const hx_jwt_source *sources, size_t count, hx_jwks *before, hx_ms wait,
                      char error[HX_JWKS_ERROR_BYTES]) HX_MUST_USE;

/* Whether the first fetch of every URL is over, with or without success. Any thread. */
bool hx_jwks_are_tried(hx_jwks *jwks) HX_MUST_USE;
/* Calls `tried` once, on the fetching thread, when hx_jwks_are_tried is true; it may only hand over to another thread.
 * Never called where there are only files, nor after hx_jwks_stop has returned. */
void hx_jwks_on_tried(hx_jwks *jwks, void (*tried)(void *context), void *context);

/* A share of the newest keys of source `i`, for the caller to free; NULL when there are none yet. Any thread. */
hx_jwt_keys *hx_jwks_keys(hx_jwks *jwks, size_t i) HX_MUST_USE;

/* `changed` is called on the fetching thread, without a lock, whenever source `i` has keys that hx_jwks_keys hasn't
 * given yet; at once for those that came before this call. It may call hx_jwks_keys and hx_jwks_want, hand over to
 * another thread, but not stop or free. */
void hx_jwks_start(hx_jwks *jwks, void (*changed)(void *context, size_t i), void *context);

/* A token named a key that source `i` hasn't got: fetched anew, at most every HX_JWKS_WANT_GAP. Any thread, until
 * hx_jwks_free; costs no more than an atomic read while it is already wanted. Nothing for files, an `i` out of range,
 * or after hx_jwks_stop. */
void hx_jwks_want(hx_jwks *jwks, size_t i);

/* Ends the thread, in the middle of a fetch too; when it returns, `changed` is not running and never called again. Keys
 * and hx_jwks_want stay usable. Stopping twice is once. */
void hx_jwks_stop(hx_jwks *jwks);

/* After it was stopped. */
void hx_jwks_free(hx_jwks **owned);

#endif
