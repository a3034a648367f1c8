/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/events/pause.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/events/view.h"
#include "cmd/keys.h"
#include "core/json/json_writer.h"

#include <string.h>

int hx_events_pause(hx_call *call)
{
    hx_admin_reply reply;
    hx_buf body;
    const char *why = hx_call_flag(call, "why");
    hx_buf_init(&body, &call->arena, 6 * HX_CALL_TEXT_MAX + 64);
    hx_json_open(&body, NULL, '{');
    if (why) hx_json_put_text(&body, "why", hx_slice_of(why));
    hx_json_close(&body, '}');
    int code = hx_call_ask(call, "POST", HX_LIT("/v1/deliveries/pause"), hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    if (call->json) return hx_call_put(&reply);
    (void)printf("Deliveries are paused. To let them go on: hapax events resume\n");
    return HX_EXIT_OK;
}

static void print_waiting(hx_call *call, hx_slice paused)
{
    size_t count;
    hx_arena *arena = &call->arena;
    const hx_slice *waiting = hx_keys_records(paused, "/waiting", arena, &count);
    hx_table_row *rows = hx_arena_zalloc(arena, (count + 1) * sizeof *rows);
    (void)printf("Deliveries are paused since %s: %s.\n", hx_relative_time(paused, "since", arena),
                 hx_keys_member(paused, "reason", arena));
    rows[0] = (hx_table_row){.cells = {"ENDPOINT", "TENANT", "DUE", "INTERRUPTED", "LATER", "HELD", "UNKNOWN"}};
    for (size_t i = 0; i < count; i++)
        rows[i + 1] = (hx_table_row){.cells = {hx_cell(waiting[i], "endpoint", arena),
                                               hx_cell(waiting[i], "tenant", arena), hx_cell(waiting[i], "due", arena),
                                               hx_cell(waiting[i], "interrupted", arena),
                                               hx_cell(waiting[i], "later", arena), hx_cell(waiting[i], "held", arena),
                                               hx_cell(waiting[i], "unknown", arena)}};
    if (count > 0) (void)printf("\n");
    if (count > 0) hx_table_print(rows, count + 1, 7);
    if (strcmp(hx_keys_member(paused, "more", arena), "true") == 0) (void)printf("And more, which were not counted.\n");
    (void)printf(
        "%sWhat is due or was interrupted is sent at once, under the ids that it had. Held and unknown deliveries "
        "stay as they are.\n",
        count > 0 ? "\n" : "");
}

int hx_events_resume(hx_call *call)
{
    hx_admin_reply reply;
    int code = hx_call_ask(call, "GET", HX_LIT("/v1/deliveries/paused"), HX_EMPTY, &reply);
    if (code >= 0) return code;
    bool is_paused = strcmp(hx_keys_member(reply.body, "paused", &call->arena), "true") == 0;
    if (is_paused && !call->json) print_waiting(call, reply.body);
    if (is_paused && hx_call_confirmed(call, "Let them go on?")) {
        code = hx_call_ask(call, "POST", HX_LIT("/v1/deliveries/resume"), HX_EMPTY, &reply);
        if (code >= 0) return code;
        if (!call->json) (void)printf("Deliveries go on.\n");
    } else if (!call->json) {
        (void)printf("%s\n",
                     is_paused ? "Nothing was sent. Add --yes to let them go on." : "Deliveries are not paused.");
    }
    return call->json ? hx_call_put(&reply) : HX_EXIT_OK;
}
