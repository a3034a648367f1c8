/* SPDX-License-Identifier: Apache-2.0 */
/* What agents may do: decided by the configuration alone, without I/O. Everything that no rule names is refused. A URL
 * is compared as it is written, byte by byte, so a spelling that some server might read as another one matches no rule:
 * escapes of letters, dot segments, backslashes, a user before the host. */
#ifndef HX_CMD_MCP_ALLOW_H
#define HX_CMD_MCP_ALLOW_H

#include "config/config.h"

/* The host whose rules allow the request. NULL with a sentence in `error`: what is not allowed about it. */
const hx_agent_host *hx_mcp_allowed_host(const hx_config_mcp *mcp, hx_slice method, hx_slice url, hx_arena *arena,
                                         hx_error_text error);
bool hx_mcp_allows_header(const hx_agent_host *host, hx_slice name);
bool hx_mcp_allows_command(const hx_config_mcp *mcp, const hx_texts *command);

/* All that is allowed, as sentences for agents, at most 4 KiB each. */
hx_slice hx_mcp_allowed_requests(const hx_config_mcp *mcp, hx_arena *arena);
hx_slice hx_mcp_allowed_commands(const hx_config_mcp *mcp, hx_arena *arena);

#endif
