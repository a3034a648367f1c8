/* SPDX-License-Identifier: Apache-2.0 */
/* Flags, examples and exit codes of the careful clients, for their rows in commands.c. */
#ifndef HX_CMD_CLI_CLIENT_COMMANDS_H
#define HX_CMD_CLI_CLIENT_COMMANDS_H

#include "cmd/cli/cmd.h"

extern const hx_cmd_flag hx_send_flags[];
extern const hx_cmd_flag hx_run_flags[];
extern const hx_cmd_flag hx_prove_flags[];
extern const hx_cmd_entry hx_prove_examples[];
extern const hx_cmd_entry hx_prove_exits[];
extern const hx_cmd_flag hx_mcp_flags[];
extern const hx_cmd_entry hx_mcp_tools_help[];
extern const hx_cmd_entry hx_mcp_examples[];
extern const hx_cmd_entry hx_mcp_exits[];
extern const hx_cmd_entry hx_mcp_files[];
extern const hx_cmd_entry hx_send_examples[];
extern const hx_cmd_entry hx_send_exits[];
extern const hx_cmd_entry hx_send_files[];
extern const hx_cmd_entry hx_run_examples[];
extern const hx_cmd_entry hx_run_exits[];
extern const hx_cmd_entry hx_run_files[];
extern const hx_cmd_entry hx_run_environment[];

#endif
