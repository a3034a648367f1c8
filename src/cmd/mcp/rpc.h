/* SPDX-License-Identifier: Apache-2.0 */
/* JSON-RPC 2.0 as the Model Context Protocol uses it: a message is a line. Nothing here reads or writes a stream. */
#ifndef HX_CMD_MCP_RPC_H
#define HX_CMD_MCP_RPC_H

#include "base/memory/buf.h"

#define HX_RPC_LINE_MAX (16u << 20)
#define HX_RPC_ID_MAX 200u

typedef enum {
    HX_RPC_REQUEST,
    HX_RPC_NOTIFICATION,
    HX_RPC_RESPONSE, /* to a request; this side makes none */
    HX_RPC_WRONG     /* `code` and `why` say what to answer */
} hx_rpc_kind;

enum {
    HX_RPC_PARSE_ERROR = -32700,
    HX_RPC_INVALID_REQUEST = -32600,
    HX_RPC_UNKNOWN_METHOD = -32601,
    HX_RPC_INVALID_PARAMS = -32602
};

typedef struct {
    hx_slice id; /* as it was written, a text or a number; "null" where none could be read */
    hx_slice method;
    hx_slice params; /* as written, an object; "{}" where there are none */
    int code;
    const char *why;
} hx_rpc_message;

/* The slices point into `line` or are in the arena. */
hx_rpc_kind hx_rpc_read(hx_slice line, hx_arena *arena, hx_rpc_message *message) HX_MUST_USE;
/* Each writes one line, with its end. */
void hx_rpc_put_result(hx_buf *out, hx_slice id, hx_slice result);
void hx_rpc_put_error(hx_buf *out, hx_slice id, int code, const char *why);
void hx_rpc_put_notification(hx_buf *out, const char *method, hx_slice params);

#endif
