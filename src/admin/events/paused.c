/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers that pause all deliveries, show what waits, and let it go on. */
#include "admin/events/common.h"
#include "base/memory/map.h"
#include "core/json/json_writer.h"
#include "events/engine.h"

#define COUNTED_MAX 100000u /* deliveries */
#define ROWS_MAX 1000u
#define ROW_BYTES 1024u

/* What waits for one endpoint. */
typedef struct {
    hx_slice name, tenant, endpoint; /* name: "TENANT/ENDPOINT/" */
    uint64_t due, interrupted, later, held, unknown;
} row;

typedef struct {
    hx_admin_call *call;
    hx_store_call store;
    hx_item_page page;
    hx_arena arena; /* of the page */
    hx_map *rows;
    row *list;
    size_t row_count, state;
    uint64_t seen;
    bool more;
    hx_pause_change change;
} asking;

/* NULL: there is no engine, and the call was answered. */
static asking *new_asking(hx_admin_call *call)
{
    if (!hx_admin_has_engine(call)) return NULL;
    asking *a = hx_arena_zalloc(call->arena, sizeof *a);
    a->call = call;
    return a;
}

static void put_home(hx_buf *out, const hx_home *home, bool is_paused)
{
    hx_home shown = *home;
    shown.paused = is_paused;
    hx_json_write(&hx_home_shape, HX_JSON_SHOWN, &shown, out);
}

static void answer(asking *a)
{
    const hx_engine *engine = a->call->admin->needs.engine;
    hx_buf out;
    hx_buf_init(&out, a->call->arena, 8192 + a->row_count * ROW_BYTES);
    hx_json_open(&out, NULL, '{');
    put_home(&out, hx_engine_home(engine), hx_engine_is_paused(engine));
    hx_json_open(&out, "waiting", '[');
    for (size_t i = 0; i < a->row_count; i++) {
        const row *r = &a->list[i];
        hx_json_open(&out, NULL, '{');
        hx_json_put_text(&out, "endpoint", r->endpoint);
        if (r->tenant.len > 0) hx_json_put_text(&out, "tenant", r->tenant);
        hx_json_put_number(&out, "due", r->due);
        hx_json_put_number(&out, "interrupted", r->interrupted);
        hx_json_put_number(&out, "later", r->later);
        hx_json_put_number(&out, "held", r->held);
        hx_json_put_number(&out, "unknown", r->unknown);
        hx_json_close(&out, '}');
    }
    hx_json_close(&out, ']');
    hx_json_put_bool(&out, "more", a->more);
    hx_buf_puts(&out, "}\n");
    hx_map_free(&a->rows);
    hx_arena_free(&a->arena);
    hx_admin_answer(a->call, hx_buf_slice(&out));
}

static row *row_of(asking *a, const hx_delivery *delivery)
{
    hx_slice name = hx_arena_printf(&a->arena, "%.*s/%.*s/", HX_FMT(delivery->tenant), HX_FMT(delivery->endpoint));
    row *found = hx_map_get(a->rows, name);
    if (found || a->row_count == ROWS_MAX) return found;
    found = &a->list[a->row_count++];
    *found = (row){.name = hx_arena_copy(a->call->arena, name),
                   .tenant = hx_arena_copy(a->call->arena, delivery->tenant),
                   .endpoint = hx_arena_copy(a->call->arena, delivery->endpoint)};
    (void)hx_map_put(a->rows, found->name, found);
    return found;
}

static void count_one(asking *a, const hx_item *item)
{
    hx_delivery delivery;
    hx_ms now = hx_admin_now(a->call->admin);
    if (!hx_delivery_decode(item->meta, item->body, &a->arena, &delivery)) return;
    row *r = row_of(a, &delivery);
    if (!r) {
        a->more = true;
        return;
    }
    bool was_interrupted = delivery.state == HX_DELIVERY_LEASED ||
                           (delivery.kept_count > 0 &&
                            hx_slice_eq(delivery.kept[delivery.kept_count - 1].error, HX_LIT("interrupted")));
    uint64_t *count = delivery.state == HX_DELIVERY_HELD      ? &r->held
                      : delivery.state == HX_DELIVERY_UNKNOWN ? &r->unknown
                      : was_interrupted                       ? &r->interrupted
                      : delivery.due <= now                   ? &r->due
                                                              : &r->later;
    ++*count;
}

static void read_page(asking *a);

static void page_read(hx_store_call *store)
{
    asking *a = HX_OWNER(store, asking, store);
    if (store->result != HX_STORE_OK) {
        hx_map_free(&a->rows);
        hx_arena_free(&a->arena);
        hx_admin_refuse(a->call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    for (size_t i = 0; i < a->page.count; i++) count_one(a, &a->page.items[i]);
    a->seen += a->page.count;
    if (a->page.more && a->page.count > 0) {
        const hx_item *last = &a->page.items[a->page.count - 1];
        a->page.after = (hx_item){.queue = hx_arena_copy(a->call->arena, last->queue),
                                  .due = last->due,
                                  .key = hx_arena_copy(a->call->arena, last->key)};
    } else {
        a->page.after = (hx_item){.key = HX_EMPTY};
        a->state++;
    }
    if (a->seen >= COUNTED_MAX) a->more = true;
    read_page(a);
}

static void read_page(asking *a)
{
    static const char *const queues[] = {"due/", "lease/", "held/", "unknown/"};
    if (a->state == sizeof queues / sizeof queues[0] || a->seen >= COUNTED_MAX) {
        answer(a);
        return;
    }
    hx_arena_free(&a->arena);
    a->page = (hx_item_page){.by_queue = true,
                             .with_bodies = true,
                             .prefix = hx_slice_of(queues[a->state]),
                             .after = a->page.after,
                             .items_max = HX_ITEM_PAGE_MAX};
    a->store = hx_admin_store_call(a->call->admin, &a->arena, page_read);
    hx_store_scan(a->call->admin->needs.store, &a->store, &a->page);
}

void hx_admin_show_paused(hx_admin_call *call)
{
    asking *a = new_asking(call);
    if (!a) return;
    a->rows = hx_map_new();
    a->list = hx_arena_alloc(call->arena, ROWS_MAX * sizeof *a->list);
    a->page.after = (hx_item){.key = HX_EMPTY};
    read_page(a);
}

static void change_done(hx_pause_change *change)
{
    asking *a = HX_OWNER(change, asking, change);
    if (change->result != HX_CHANGE_DONE) {
        hx_admin_refuse(a->call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL);
        return;
    }
    hx_buf out;
    hx_buf_init(&out, a->call->arena, 8192);
    hx_json_open(&out, NULL, '{');
    put_home(&out, &change->home, change->home.paused);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(a->call, hx_buf_slice(&out));
}

static void change(asking *a, bool is_paused)
{
    a->change.arena = a->call->arena;
    a->change.paused = is_paused;
    a->change.by = hx_admin_caller_text(&a->call->who, a->call->arena);
    a->change.done = change_done;
    hx_engine_change_pause(a->call->admin->needs.engine, &a->change);
}

void hx_admin_pause_deliveries(hx_admin_call *call)
{
    asking *a = new_asking(call);
    hx_error_text error;
    if (!a) return;
    a->change.reason = HX_LIT("an operator paused them");
    if (!hx_admin_read_why(call, &a->change.reason, error)) {
        hx_admin_refuse_malformed(call, error);
        return;
    }
    change(a, true);
}

void hx_admin_resume_deliveries(hx_admin_call *call)
{
    asking *a = new_asking(call);
    if (a) change(a, false);
}
