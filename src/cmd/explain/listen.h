/* SPDX-License-Identifier: Apache-2.0 */
/* hapax explain --listen: an HTTP listener that answers every request with its explanation. It has the limits of the
 * gateway's listener, forwards nothing and stores nothing. */
#ifndef HX_CMD_EXPLAIN_LISTEN_H
#define HX_CMD_EXPLAIN_LISTEN_H

#include "cmd/explain/collect.h"

/* Returns an exit code, after SIGINT or SIGTERM or when it can't listen. */
int hx_explain_listen(const hx_config *config, const char *address, bool as_json);

#endif
