/* SPDX-License-Identifier: Apache-2.0 */
/* `publish_policy`: the routes' rules as JSON at a well-known place, for clients and their tests. It says what a client
 * can see of the rules anyway by trying, and nothing of what is behind: no upstream, no file, no probe. */
#ifndef HX_GATEWAY_STEPS_PUBLISH_H
#define HX_GATEWAY_STEPS_PUBLISH_H

#include "gateway/rules.h"

#define HX_PUBLISH_PATH "/.well-known/idempotency"
/* A thousand routes that differ in nothing but their names and paths take two. */
#define HX_PUBLISH_BYTES_MAX (16u * 1024u * 1024u)

/* Whether a request is for the document. `path` is normalised. */
static inline bool hx_publish_is_asked(const hx_config *config, hx_slice method, hx_slice path)
{
    return config->publish_policy && hx_slice_eq(path, HX_LIT(HX_PUBLISH_PATH)) &&
           (hx_slice_eq(method, HX_LIT("GET")) || hx_slice_eq(method, HX_LIT("HEAD")));
}
/* Writes the document; false when `out` is too small. */
bool hx_publish_write(const hx_config *config, hx_buf *out) HX_MUST_USE;

#endif
