/* SPDX-License-Identifier: Apache-2.0 */
/* The handler that reloads the configuration. */
#include "admin/call.h"
#include "admin/views.h"
#include "base/memory/list.h"
#include "base/log.h"
#include "core/json/json.h"
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

/* Returns NULL, or what is wrong. The body may be empty. */
static const char *read_body(hx_slice body, bool *accept_rescope)
{
    hx_slice object, value;
    if (hx_slice_trim(body).len == 0) return NULL;
    if (hx_json_find(body, HX_EMPTY, &object) != HX_JSON_FOUND || object.ptr[0] != '{')
        return "the body must be a JSON object";
    if (!hx_json_pointer(body, HX_LIT("/accept_rescope"), &value)) return NULL;
    *accept_rescope = hx_slice_eq(value, HX_LIT("true"));
    return *accept_rescope || hx_slice_eq(value, HX_LIT("false")) ? NULL : "accept_rescope must be true or false";
}

void hx_admin_reload_rules(hx_admin_call *call)
{
    bool accept_rescope = false;
    const char *wrong = read_body(hx_buf_slice(&call->body), &accept_rescope);
    if (wrong) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_slice_of(wrong), NULL);
        return;
    }
    hx_log_begin(HX_EVENT_reload_requested);
    hx_admin_log_caller(&call->who);
    hx_log_end();
    call->reload = (hx_admin_reload){.accept_rescope = accept_rescope, .done = reload_done};
    call->admin->needs.reload(call->admin->needs.context, &call->reload);
}
