/* SPDX-License-Identifier: Apache-2.0 */
/* The handler that reloads the configuration. */
#include "admin/call.h"
#include "admin/views.h"
#include "base/memory/list.h"
#include "base/log.h"
#include "core/json/json_fields.h"
#include "core/json/json_writer.h"

#define ANSWER_BYTES_MAX 256u

static void reload_done(hx_admin_reload *reload)
{
    hx_admin_call *call = HX_OWNER(reload, hx_admin_call, reload);
    if (!reload->is_in_force) {
        hx_admin_refuse_lines(call, HX_ADMIN_REFUSED, reload->lines);
        return;
    }
    hx_buf out;
    hx_buf_init(&out, call->arena, ANSWER_BYTES_MAX + HX_VIEW_LINES_BYTES(reload->lines.len));
    hx_json_open(&out, NULL, '{');
    hx_json_put_number(&out, "generation", reload->generation);
    hx_json_put_lines(&out, "accepted", reload->lines);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

/* The body may be empty. */
static bool read_body(hx_admin_call *call, bool *accept_rescope, hx_error_text error)
{
    static const hx_json_field field = {"accept_rescope", HX_JSON_BOOL, 0, HX_JSON_GIVEN};
    static const hx_json_shape shape = {&field, 1};
    hx_slice body = hx_buf_slice(&call->body);
    return hx_slice_trim(body).len == 0 ||
           hx_json_read(&shape, HX_JSON_GIVEN, body, call->arena, accept_rescope, error);
}

void hx_admin_reload_rules(hx_admin_call *call)
{
    bool accept_rescope = false;
    hx_error_text error;
    if (!read_body(call, &accept_rescope, error)) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_arena_copy(call->arena, hx_slice_of(error)), NULL);
        return;
    }
    hx_log_begin(HX_EVENT_reload_requested);
    hx_admin_log_caller(&call->who);
    hx_log_end();
    call->reload = (hx_admin_reload){.accept_rescope = accept_rescope, .done = reload_done};
    call->admin->needs.reload(call->admin->needs.context, &call->reload);
}
