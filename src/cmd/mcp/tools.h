/* SPDX-License-Identifier: Apache-2.0 */
/* The tools, and what they share. */
#ifndef HX_CMD_MCP_TOOLS_H
#define HX_CMD_MCP_TOOLS_H

#include "client/intent.h"
#include "cmd/mcp/server.h"

#define HX_MCP_INTENT_MAX 100u

void hx_mcp_send_once(hx_mcp_call *call);
void hx_mcp_run_once(hx_mcp_call *call);
void hx_mcp_did_it_go_through(hx_mcp_call *call);
void hx_mcp_list_unknown(hx_mcp_call *call);

/* The arguments of all tools; a tool's shape has those that it takes. */
typedef struct {
    hx_slice intent;
    hx_slice method, url, headers, body; /* headers and body as they were written; empty: none */
    hx_texts command;
} hx_mcp_arguments;

/* Reads the arguments, and names the call's intent. False, after saying so: they are wrong. */
bool hx_mcp_read(hx_mcp_call *call, const hx_json_shape *shape, hx_mcp_arguments *arguments) HX_MUST_USE;
/* Without the credentials of all hosts, which a response or an output may repeat. */
hx_slice hx_mcp_redact(hx_mcp_call *call, hx_slice text);
/* The name of an intent in its folder: of one server only. */
hx_slice hx_mcp_intent_name(const hx_mcp_call *call, hx_slice intent);
/* Opens the folder of intents. False, after saying so: it can't be. */
bool hx_mcp_open_folder(hx_mcp_call *call, const char *directory, hx_intents *intents) HX_MUST_USE;
/* Says that an intent can't be read or written. */
void hx_mcp_say_unusable(hx_mcp_call *call, const char *why);
/* Opens the intent of the call, or writes it down with its key, which is a MAC of server, tool and intent. NULL, after
 * saying so: it was used for something else, another process works on it, or it can't be read or written. */
hx_intent *hx_mcp_open(hx_mcp_call *call, hx_intents *intents, hx_intent_request *request) HX_MUST_USE;

/* Each says what became of an operation, as the intent has it. */
void hx_mcp_tell_request(hx_mcp_call *call, const hx_intent *intent, hx_careful_verdict verdict, hx_slice why,
                         bool is_old);
/* `state` is a word of `hapax run --outcome-file`, or empty. */
void hx_mcp_tell_command(hx_mcp_call *call, const hx_intent *intent, hx_slice state, bool is_old);
/* Asks the store how the command of an unfinished intent, which is locked, ended, and writes the outcome down. Returns
 * the state as above. */
hx_slice hx_mcp_refresh_command(hx_mcp_call *call, hx_intent *intent);

#endif
