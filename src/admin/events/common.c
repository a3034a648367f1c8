/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/events/common.h"

#include "admin/query.h"
#include "core/json/json_writer.h"

bool hx_admin_has_engine(hx_admin_call *call)
{
    if (call->admin->needs.engine) return true;
    hx_admin_refuse(call, HX_ADMIN_EVENTS_OFF, HX_EMPTY, NULL);
    return false;
}

void hx_admin_refuse_malformed(hx_admin_call *call, const char *why)
{
    hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_arena_copy(call->arena, hx_slice_of(why)), NULL);
}

bool hx_admin_read_why(hx_admin_call *call, hx_slice *why, hx_error_text error)
{
    static const hx_json_field field = {"why", HX_JSON_TEXT, 0, HX_JSON_GIVEN};
    static const hx_json_shape shape = {&field, 1};
    if (call->body.len > 0 && !hx_json_read(&shape, HX_JSON_GIVEN, hx_buf_slice(&call->body), call->arena, why, error))
        return false;
    return why->len <= HX_ADMIN_WHY_MAX || hx_fail(error, "\"why\" must have up to %u bytes", HX_ADMIN_WHY_MAX);
}

hx_slice hx_admin_event_key(hx_arena *arena, hx_slice tenant, hx_slice endpoint, hx_slice event_id)
{
    hx_event event = {.id = event_id, .tenant = tenant};
    event.is_received = hx_slice_starts(endpoint, HX_LIT("in_"));
    if (event.is_received) event.source = hx_slice_from(endpoint, 3);
    return hx_event_key(&event, arena);
}

static void list_done(hx_store_call *store)
{
    hx_admin_list *list = HX_OWNER(store, hx_admin_list, store);
    hx_admin_call *call = list->call;
    const hx_item_page *page = &list->page;
    size_t bytes = 256 + HX_ADMIN_CURSOR_BYTES;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    for (size_t i = 0; i < page->count; i++) bytes += list->bytes(&page->items[i]);
    hx_buf out;
    hx_buf_init(&out, call->arena, bytes);
    hx_json_open(&out, NULL, '{');
    hx_json_open(&out, list->name, '[');
    for (size_t i = 0; i < page->count; i++) list->write(&out, &page->items[i], call->arena);
    hx_json_close(&out, ']');
    hx_admin_put_cursor(&out, page);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

void hx_admin_answer_list(hx_admin_list *list)
{
    list->store = hx_admin_store_call(list->call->admin, list->call->arena, list_done);
    hx_store_scan(list->call->admin->needs.store, &list->store, &list->page);
}
