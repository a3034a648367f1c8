/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/mcp/rpc.h"

#include "core/json/json.h"
#include "core/json/json_writer.h"

#include <stdio.h>

static hx_rpc_kind wrong(hx_rpc_message *message, int code, const char *why)
{
    message->code = code;
    message->why = why;
    return HX_RPC_WRONG;
}

static bool is_id(hx_slice raw)
{
    return raw.len <= HX_RPC_ID_MAX &&
           (raw.ptr[0] == '"' || raw.ptr[0] == '-' || (raw.ptr[0] >= '0' && raw.ptr[0] <= '9'));
}

hx_rpc_kind hx_rpc_read(hx_slice line, hx_arena *arena, hx_rpc_message *message)
{
    hx_slice id, value;
    *message = (hx_rpc_message){.id = HX_LIT("null"), .method = HX_EMPTY, .params = HX_LIT("{}")};
    hx_buf canonical;
    hx_buf_init(&canonical, arena, HX_JSON_CANONICAL_BYTES(line.len));
    if (!hx_json_canonical(line, arena, &canonical))
        return wrong(message, HX_RPC_PARSE_ERROR,
                     "The line is not JSON: UTF-8, no member twice in an object, at most 64 levels deep.");
    if (canonical.data[0] == '[')
        return wrong(message, HX_RPC_INVALID_REQUEST, "Batches are not supported: send each message on its own line.");
    if (canonical.data[0] != '{') return wrong(message, HX_RPC_INVALID_REQUEST, "A message is a JSON object.");
    bool has_id = hx_json_pointer(line, HX_LIT("/id"), &id);
    if (has_id && !is_id(id))
        return wrong(message, HX_RPC_INVALID_REQUEST, "\"id\" must be a text or a number of at most 200 bytes.");
    if (has_id) message->id = id;
    if (!hx_json_pointer(line, HX_LIT("/jsonrpc"), &value) || !hx_slice_eq(value, HX_LIT("\"2.0\"")))
        return wrong(message, HX_RPC_INVALID_REQUEST, "\"jsonrpc\" must be \"2.0\".");
    if (!hx_json_pointer(line, HX_LIT("/method"), &value)) {
        bool is_response = hx_json_pointer(line, HX_LIT("/result"), &value) ||
                           hx_json_pointer(line, HX_LIT("/error"), &value);
        return is_response ? HX_RPC_RESPONSE : wrong(message, HX_RPC_INVALID_REQUEST, "\"method\" is missing.");
    }
    if (!hx_json_string(value, arena, &message->method))
        return wrong(message, HX_RPC_INVALID_REQUEST, "\"method\" must be a text.");
    if (hx_json_pointer(line, HX_LIT("/params"), &value)) {
        if (value.ptr[0] != '{') return wrong(message, HX_RPC_INVALID_PARAMS, "\"params\" must be an object.");
        message->params = value;
    }
    return has_id ? HX_RPC_REQUEST : HX_RPC_NOTIFICATION;
}

static void begin(hx_buf *out)
{
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "jsonrpc", HX_LIT("2.0"));
}

void hx_rpc_put_result(hx_buf *out, hx_slice id, hx_slice result)
{
    begin(out);
    hx_json_put_raw(out, "id", id);
    hx_json_put_raw(out, "result", result);
    hx_buf_puts(out, "}\n");
}

void hx_rpc_put_error(hx_buf *out, hx_slice id, int code, const char *why)
{
    char digits[16];
    int len = snprintf(digits, sizeof digits, "%d", code);
    begin(out);
    hx_json_put_raw(out, "id", id);
    hx_json_open(out, "error", '{');
    hx_json_put_raw(out, "code", (hx_slice){digits, (size_t)len});
    hx_json_put_text(out, "message", hx_slice_of(why));
    hx_buf_puts(out, "}}\n");
}

void hx_rpc_put_notification(hx_buf *out, const char *method, hx_slice params)
{
    begin(out);
    hx_json_put_text(out, "method", hx_slice_of(method));
    hx_json_put_raw(out, "params", params);
    hx_buf_puts(out, "}\n");
}
