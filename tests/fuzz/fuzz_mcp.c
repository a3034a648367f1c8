/* SPDX-License-Identifier: Apache-2.0 */
/* What agents say: a first byte that chooses, then a message, a URL or the words of a command. A message that is taken
 * has its limits; a URL that is allowed begins with its host and has no other spelling of its path; a command that is
 * allowed is the one of the list. */
#include "base/check.h"
#include "cmd/mcp/allow.h"
#include "cmd/mcp/rpc.h"
#include "core/json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_message(hx_slice text, hx_arena *arena)
{
    hx_rpc_message message;
    hx_buf line;
    hx_rpc_kind kind = hx_rpc_read(text, arena, &message);
    HX_CHECK(message.id.len <= HX_RPC_ID_MAX && message.params.ptr[0] == '{');
    HX_CHECK((kind == HX_RPC_WRONG) == (message.why != NULL));
    hx_buf_init(&line, arena, 4096);
    hx_rpc_put_error(&line, message.id, message.code, message.why ? message.why : "");
    HX_CHECK(hx_slice_find(hx_buf_slice(&line), '\n') == line.len - 1);
    line.len--;
    HX_CHECK(hx_json_is_clean_object(hx_buf_slice(&line), arena));
}

static void ask_for_url(hx_slice url, hx_arena *arena)
{
    hx_slice post = HX_LIT("POST");
    hx_policy match = {.methods = &post, .method_count = 1, .path = HX_LIT("/refunds/{id}")};
    hx_agent_host host = {.url = HX_LIT("https://a.example"), .matches = &match, .match_count = 1};
    hx_config_mcp mcp = {.hosts = &host, .host_count = 1};
    hx_error_text error;
    if (!hx_mcp_allowed_host(&mcp, post, url, arena, error)) return;
    hx_slice start = HX_LIT("https://a.example/refunds/");
    HX_CHECK(hx_slice_starts(url, start));
    hx_slice id = hx_slice_from(url, start.len);
    id = hx_slice_first(id, hx_slice_find(id, '?'));
    HX_CHECK(id.len > 0 && hx_slice_find(id, '/') == SIZE_MAX && !hx_slice_eq(id, HX_LIT("..")));
}

static void ask_for_command(hx_slice text, hx_arena *arena)
{
    hx_slice rule[] = {HX_LIT("/bin/a"), HX_LIT("b"), HX_LIT("*")}, words[64];
    hx_texts allowed = {rule, 3}, command = {words, 0};
    hx_config_mcp mcp = {.commands = &allowed, .command_count = 1};
    (void)arena;
    while (command.count < 64 && hx_slice_next(&text, ' ', &words[command.count])) command.count++;
    if (!hx_mcp_allows_command(&mcp, &command)) return;
    HX_CHECK(command.count == 3 && hx_slice_eq(words[0], rule[0]) && hx_slice_eq(words[1], rule[1]));
    HX_CHECK(!hx_slice_starts(words[2], HX_LIT("-")));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const ways[])(hx_slice text, hx_arena * arena) = {read_message, ask_for_url, ask_for_command};
    hx_arena arena = {0};
    if (size == 0) return 0;
    ways[data[0] % 3]((hx_slice){(const char *)data + 1, size - 1}, &arena);
    hx_arena_free(&arena);
    return 0;
}
