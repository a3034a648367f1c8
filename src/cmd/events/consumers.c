/* SPDX-License-Identifier: Apache-2.0 */
/* hapax consumers: lists the consumers of streams, and moves them. */
#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/events/actions.h"
#include "cmd/events/view.h"
#include "cmd/keys.h"
#include "core/json/json_writer.h"

#include <string.h>

#define LIST_LIMIT 1000u
#define LIST_LIMIT_MAX 10000u

static const char *behind(hx_slice consumer, hx_arena *arena)
{
    uint64_t version, position;
    bool is_known = hx_slice_to_u64(hx_slice_of(hx_keys_member(consumer, "version", arena)), &version) &&
                    hx_slice_to_u64(hx_slice_of(hx_keys_member(consumer, "position", arena)), &position) &&
                    version >= position;
    return is_known ? hx_arena_printf(arena, "%llu", (unsigned long long)(version - position)).ptr : "-";
}

static int list(hx_call *call)
{
    hx_call_list found;
    hx_arena *arena = &call->arena;
    uint64_t limit = LIST_LIMIT;
    int code = hx_call_number(call, "limit", LIST_LIMIT_MAX, &limit);
    if (code < 0)
        code = hx_call_list_read(call, hx_call_target(call, "stream tenant", "consumers", NULL), "consumers", limit,
                                 &found);
    if (code >= 0) return code;
    if (call->json) {
        hx_call_list_put(&found, "consumers");
        return HX_EXIT_OK;
    }
    hx_table_row *rows = hx_arena_zalloc(arena, (found.count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"STREAM", "CONSUMER", "POSITION", "BEHIND", "GENERATION", "MOVED"}};
    for (size_t i = 0; i < found.count; i++) {
        hx_slice each = found.items[i];
        rows[i + 1] = (hx_table_row){.cells = {hx_cell(each, "stream", arena), hx_cell(each, "consumer", arena),
                                               hx_cell(each, "position", arena), behind(each, arena),
                                               hx_cell(each, "generation", arena),
                                               hx_relative_time(each, "changed_at", arena)}};
    }
    if (found.count > 0) hx_table_print(rows, found.count + 1, 6);
    (void)fflush(stdout);
    if (found.count == 0) (void)fprintf(stderr, "No consumers match.\n");
    if (found.more) (void)fprintf(stderr, "There are more: use --limit to see them.\n");
    return HX_EXIT_OK;
}

static int seek(hx_call *call)
{
    hx_admin_reply reply;
    hx_buf body;
    uint64_t number;
    const char *stream = hx_call_flag(call, "stream"), *tenant = hx_call_flag(call, "tenant"), *to = call->operands[1];
    bool is_word = strcmp(to, "oldest") == 0 || strcmp(to, "newest") == 0;
    if (!stream) return hx_cmd_misused("consumers", "seek needs --stream");
    if (!is_word && !hx_slice_to_u64(hx_slice_of(to), &number))
        return hx_cmd_misused("consumers", "POSITION must be a number, oldest or newest, not \"%s\"", to);
    hx_buf_init(&body, &call->arena, 4 * 6 * HX_CALL_TEXT_MAX);
    hx_json_open(&body, NULL, '{');
    hx_json_put_text(&body, "stream", hx_slice_of(stream));
    if (tenant) hx_json_put_text(&body, "tenant", hx_slice_of(tenant));
    if (is_word)
        hx_json_put_text(&body, "position", hx_slice_of(to));
    else
        hx_json_put_number(&body, "position", number);
    hx_json_close(&body, '}');
    hx_slice target = hx_call_target(call, "", "consumers", call->operands[0], "seek", NULL);
    int code = hx_call_ask(call, "POST", target, hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("It has processed the stream up to %s of %s now, in generation %s.\n",
                 hx_keys_member(reply.body, "position", &call->arena),
                 hx_keys_member(reply.body, "version", &call->arena),
                 hx_keys_member(reply.body, "generation", &call->arena));
    return HX_EXIT_OK;
}

int hx_cmd_consumers(int argc, char **argv)
{
    static const hx_action actions[] = {{"list", {NULL}, " stream tenant limit ", list},
                                        {"seek", {"CONSUMER", "POSITION"}, " stream tenant ", seek},
                                        {0}};
    return hx_actions_run(argc, argv, actions);
}
