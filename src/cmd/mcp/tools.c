/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/mcp/tools.h"

#include "base/hex.h"
#include "base/program/read_file.h"
#include "base/text.h"
#include "cmd/mcp/allow.h"
#include "core/crypto/mac.h"
#include "core/json/json_writer.h"

#include <stdio.h>
#include <string.h>

#define CREDENTIALS_MAX (24u << 10)
#define SECRET_MIN 8u /* shorter ones would be found everywhere */
#define KEY_BYTES 16u

#define INTENT_SCHEMA                                                                                                  \
    "\"intent\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":100,\"pattern\":\"^[!-~]+$\",\"description\":"      \
    "\"A short name for the operation, such as refund-order-17. The same intent is the same operation: it takes "      \
    "effect once.\"}"

const hx_mcp_tool hx_mcp_tools[] = {
    {.name = "send_once",
     .title = "Send an HTTP request once",
     .description =
         "Sends an HTTP request that takes effect once, however often it is repeated. Repeat a call with the same "
         "intent and the same arguments after any error: what was done is not done again, and its response is "
         "returned. "
         "Credentials are added by the server; don't ask for any.",
     .schema = "{\"type\":\"object\",\"properties\":{" INTENT_SCHEMA
               ",\"method\":{\"type\":\"string\",\"description\":\"POST, PUT, PATCH, DELETE or GET\"},"
               "\"url\":{\"type\":\"string\",\"description\":\"The whole URL, with its query\"},"
               "\"headers\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"},\"description\":"
               "\"Accept, Content-Type, and others if they are allowed\"},"
               "\"body\":{\"description\":\"A JSON value, sent as application/json; or a text, sent as it is\"}},"
               "\"required\":[\"intent\",\"method\",\"url\"],\"additionalProperties\":false}",
     .annotations = "{\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":true,\"openWorldHint\":true}",
     .run = hx_mcp_send_once,
     .allowed = hx_mcp_allowed_requests},
    {.name = "run_once",
     .title = "Run a command once",
     .description =
         "Runs a command once, however often the call is repeated, and returns its exit code and output. Repeat a call "
         "with the same intent and the same command after any error: a command that has ended is not run again, and "
         "one that is running is waited for.",
     .schema = "{\"type\":\"object\",\"properties\":{" INTENT_SCHEMA
               ",\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1,\"description\":"
               "\"The program's whole path and its arguments; there is no shell\"}},"
               "\"required\":[\"intent\",\"command\"],\"additionalProperties\":false}",
     .annotations = "{\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":true,\"openWorldHint\":true}",
     .run = hx_mcp_run_once,
     .allowed = hx_mcp_allowed_commands},
    {.name = "did_it_go_through",
     .title = "Did it go through?",
     .description = "Says what became of an intent: done, refused, failed, unknown, running, not done, or never begun. "
                    "Nothing is sent or run.",
     .schema = "{\"type\":\"object\",\"properties\":{" INTENT_SCHEMA
               "},\"required\":[\"intent\"],\"additionalProperties\":false}",
     .annotations = "{\"readOnlyHint\":true,\"openWorldHint\":false}",
     .run = hx_mcp_did_it_go_through},
    {.name = "list_unknown",
     .title = "List what has no known outcome",
     .description = "Lists every intent that was begun and has no outcome: it may have been done, is running, or was "
                    "not done. Nothing is sent or run.",
     .schema = "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}",
     .annotations = "{\"readOnlyHint\":true,\"openWorldHint\":false}",
     .run = hx_mcp_list_unknown},
};
const size_t hx_mcp_tool_count = sizeof hx_mcp_tools / sizeof hx_mcp_tools[0];

static bool is_intent(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < '!' || text.ptr[i] > '~') return false;
    return text.len > 0 && text.len <= HX_MCP_INTENT_MAX;
}

bool hx_mcp_read(hx_mcp_call *call, const hx_json_shape *shape, hx_mcp_arguments *arguments)
{
    hx_error_text error;
    *arguments = (hx_mcp_arguments){
        .intent = HX_EMPTY, .method = HX_EMPTY, .url = HX_EMPTY, .headers = HX_EMPTY, .body = HX_EMPTY};
    bool good = hx_json_read(shape, HX_JSON_GIVEN, call->arguments, &call->arena, arguments, error);
    if (good && shape->count > 0 && !is_intent(arguments->intent))
        good = hx_fail(error, "\"intent\" must be 1 to %u letters, digits and signs, without spaces",
                       HX_MCP_INTENT_MAX);
    if (good && shape->count > 0) hx_mcp_name(call, arguments->intent);
    if (!good)
        hx_mcp_say(call, "invalid", true,
                   hx_arena_printf(&call->arena, "The arguments are wrong: %s. Nothing was done.", error),
                   "Correct the arguments and call again.");
    return good;
}

/* Credentials */

static void add_secret(hx_texts *secrets, hx_slice value, hx_arena *arena)
{
    if (value.len < SECRET_MIN) return;
    secrets->items = hx_arena_grow(arena, secrets->items, secrets->count * sizeof *secrets->items,
                                   (secrets->count + 1) * sizeof *secrets->items);
    secrets->items[secrets->count++] = value;
}

/* The values of all headers, and of "Bearer …" and "Basic …" what follows the word. */
static void read_secrets(hx_mcp_call *call)
{
    const hx_config_mcp *mcp = call->server->config;
    hx_slice text, why, line;
    call->secrets.items = hx_arena_alloc(&call->arena, sizeof *call->secrets.items);
    for (size_t i = 0; i < mcp->host_count; i++) {
        hx_slice file = mcp->hosts[i].credentials;
        if (file.len == 0 ||
            !hx_read_file(hx_arena_terminated(&call->arena, file), CREDENTIALS_MAX, &call->arena, &text, &why))
            continue; /* the attempt that needs it says so */
        while (hx_slice_next(&text, '\n', &line)) {
            hx_text_header header;
            if (!hx_text_split_header(hx_slice_trim(line), &header)) continue;
            size_t space = hx_slice_find(header.value, ' ');
            add_secret(&call->secrets, header.value, &call->arena);
            if (space != SIZE_MAX) add_secret(&call->secrets, hx_slice_from(header.value, space + 1), &call->arena);
        }
    }
}

hx_slice hx_mcp_redact(hx_mcp_call *call, hx_slice text)
{
    static const char shown[] = "[credential]";
    if (!call->secrets.items) read_secrets(call);
    for (size_t i = 0; i < call->secrets.count; i++) {
        hx_slice secret = call->secrets.items[i];
        hx_buf out;
        hx_buf_init(&out, &call->arena, 2 * text.len + sizeof shown); /* a secret has at least SECRET_MIN bytes */
        for (const char *found; text.len > 0 && (found = memmem(text.ptr, text.len, secret.ptr, secret.len));) {
            hx_buf_put(&out, hx_slice_first(text, (size_t)(found - text.ptr)));
            hx_buf_puts(&out, shown);
            text = hx_slice_from(text, (size_t)(found - text.ptr) + secret.len);
        }
        if (out.len == 0) continue;
        hx_buf_put(&out, text);
        text = hx_buf_slice(&out);
    }
    return text;
}

/* Intents */

hx_slice hx_mcp_intent_name(const hx_mcp_call *call, hx_slice intent)
{
    return hx_arena_printf((hx_arena *)&call->arena, "%.*s/%.*s", HX_FMT(call->server->config->name), HX_FMT(intent));
}

static hx_slice key_of(const hx_mcp_call *call, const hx_intents *intents, hx_arena *arena)
{
    const hx_slice line = HX_LIT("\n"); /* none of the parts has one */
    const hx_slice parts[] = {call->server->config->name, line, hx_slice_of(call->tool->name), line, call->intent};
    hx_digest digest = hx_mac_plain((hx_slice){(const char *)intents->secret, sizeof intents->secret}, parts, 5);
    char *digits = hx_arena_alloc(arena, 2 * KEY_BYTES);
    hx_hex_write(digits, digest.bytes, KEY_BYTES);
    return (hx_slice){digits, 2 * KEY_BYTES};
}

void hx_mcp_say_unusable(hx_mcp_call *call, const char *why)
{
    fprintf(stderr, "hapax mcp: %s.\n", why);
    hx_mcp_say(call, "server_error", true,
               HX_LIT("The server can't read or write what it needs for this operation, or its configuration is "
                      "incomplete; its log has the reason. Nothing was done by this call."),
               "Ask the operator of this server to look at its log. Don't use another intent: what an earlier call did "
               "is not known.");
}

bool hx_mcp_open_folder(hx_mcp_call *call, const char *directory, hx_intents *intents)
{
    hx_error_text error;
    if (hx_intents_open(directory, intents, error)) return true;
    hx_mcp_say_unusable(call, error);
    return false;
}

/* Opens the intent, or makes it; waits for calls of this server that have it open. */
static hx_intent_error open_or_create(hx_mcp_call *call, hx_intents *intents, const hx_intent_request *request,
                                      hx_intent **intent, hx_error_text error)
{
    hx_slice file = hx_intent_file(request->name, request->key, &call->arena);
    bool was_busy = false;
    for (;;) {
        hx_intent_error result = hx_intent_open(intents, file, true, intent, error);
        if (result == HX_INTENT_ABSENT) result = hx_intent_create(intents, request, intent, error);
        if (result == HX_INTENT_EXISTS || (result == HX_INTENT_BUSY && hx_mcp_wait_for_other(call))) continue;
        if (result != HX_INTENT_BUSY || was_busy) return result;
        was_busy = true; /* its call may have ended just now */
    }
}

static void say_mismatch(hx_mcp_call *call, const char *differs, bool is_command)
{
    if (is_command) differs = strcmp(differs, "URL") == 0 ? "program" : "list of arguments";
    hx_mcp_say(
        call, "mismatch", true,
        hx_arena_printf(&call->arena,
                        "This intent was first used with another %s. Nothing was %s: an intent is one operation.",
                        differs, is_command ? "run" : "sent"),
        "If you mean the same operation, repeat the call with its first arguments; did_it_go_through says what "
        "became of it. If you mean another operation, choose a new intent.");
    hx_json_put_text(&call->result, "differs", hx_slice_of(differs));
}

hx_intent *hx_mcp_open(hx_mcp_call *call, hx_intents *intents, hx_intent_request *request)
{
    hx_intent *intent;
    hx_error_text error;
    request->name = hx_mcp_intent_name(call, call->intent);
    request->key = key_of(call, intents, &call->arena);
    request->created_at = hx_clock_wall();
    hx_intent_digest(intents, request, &call->arena);
    hx_intent_error result = open_or_create(call, intents, request, &intent, error);
    if (result == HX_INTENT_BUSY)
        hx_mcp_say(call, "running", true, HX_LIT("Another process is working on this intent. Nothing was done here."),
                   "Call again later with the same intent and arguments, or ask did_it_go_through.");
    else if (result != HX_INTENT_OK)
        hx_mcp_say_unusable(call, error);
    if (result != HX_INTENT_OK) return NULL;
    const char *differs = hx_intent_difference(&intent->request, request);
    if (!differs) return intent;
    say_mismatch(call, differs, call->tool->run == hx_mcp_run_once);
    hx_intent_close(&intent);
    return NULL;
}
