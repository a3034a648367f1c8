/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the endpoints, at the start and whenever another node on the same store has changed one.
 *
 * On a shared store an item, the generation, gets another version with every change of an endpoint, in the same commit.
 * A commit that fixes recipients checks it: it takes effect only if it was decided on all endpoints that were
 * acknowledged before. Every second a node looks at the generation, and at deliveries that nobody has begun although
 * they are due, since the node that wrote them may have died.
 *
 *     look ──get: generation──► read ──scan: endpoints──► share ──scan: due──► rest
 *                 └── the same as before ────────────────►┘ */
#include "base/log.h"
#include "base/rand.h"
#include "events/recipient.h"

#define INTERVAL HX_SECOND
#define READ_ANYWAY HX_MINUTE /* failing_since is noted without another generation */
#define LATE (HX_SECOND / 2)  /* a node begins its own deliveries before they are that late */
#define ORDERED_AT_ONCE 64u
#define GENERATION "g/endpoints"

static void look_due(hx_timer *timer);
static void look(hx_engine *engine);
static void read_endpoints(hx_engine *engine);
static void share(hx_engine *engine);

static bool is_shared(const hx_engine *engine)
{
    return hx_store_about(engine->needs.store)->shared;
}

size_t hx_nodes_add(const hx_engine *engine, hx_item_act act, hx_item *out)
{
    if (!is_shared(engine)) return 0;
    *out = (hx_item){.key = HX_LIT(GENERATION),
                     .version = engine->nodes.generation,
                     .act = act,
                     .queue = HX_EMPTY,
                     .meta = HX_LIT("{}"),
                     .body = HX_EMPTY};
    return 1;
}

bool hx_nodes_went_ahead(const hx_store_call *commit)
{
    return commit->result == HX_STORE_STALE && hx_slice_eq(commit->stale->key, HX_LIT(GENERATION));
}

static void end_waits(hx_engine *engine, bool is_read)
{
    hx_link waiting;
    hx_list_init(&waiting);
    hx_list_splice(&waiting, &engine->nodes.waiting);
    for (hx_link *link = hx_list_take(&waiting); link; link = hx_list_take(&waiting)) {
        hx_nodes_wait *wait = HX_OWNER(link, hx_nodes_wait, link);
        wait->done(wait, is_read);
    }
}

/* The work of this turn is over; what waits needs another one. */
static void rest(hx_engine *engine)
{
    engine->nodes.is_busy = false;
    hx_arena_free(&engine->nodes.arena);
    if (engine->stopping) end_waits(engine, false);
    if (engine->stopping || (engine->started && !is_shared(engine))) return;
    hx_ms jitter = (hx_ms)hx_rand_below(INTERVAL / 2);
    bool at_once = !hx_list_empty(&engine->nodes.waiting);
    hx_timer_start(engine->needs.loop, &engine->nodes.timer, at_once ? 0 : INTERVAL * 3 / 4 + jitter, look_due);
}

static void failed(hx_engine *engine)
{
    end_waits(engine, false);
    rest(engine);
}

/* Finds the recipient that a queue belongs to: "due/TENANT/ENDPOINT/…". */
static hx_recipient *recipient_of(const hx_engine *engine, hx_slice queue)
{
    hx_slice rest_of = hx_slice_from(queue, sizeof "due/" - 1);
    size_t end = hx_slice_find(rest_of, '/');
    if (end == SIZE_MAX) return NULL;
    hx_slice tenant = hx_slice_first(rest_of, end), id = hx_slice_from(rest_of, end + 1);
    end = hx_slice_find(id, '/');
    return end == SIZE_MAX ? NULL : hx_recipient_find(engine, tenant, hx_slice_first(id, end));
}

static void share_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, nodes.call);
    hx_item_page *page = &engine->nodes.page;
    for (size_t i = 0; call->result == HX_STORE_OK && i < page->count; i++) {
        hx_recipient *recipient = recipient_of(engine, page->items[i].queue);
        if (recipient) hx_recipient_nudge(recipient, page->items[i].due);
    }
    if (call->result == HX_STORE_OK && page->more && page->count > 0 && !engine->stopping) {
        page->after = page->items[page->count - 1];
        share(engine);
    } else {
        rest(engine);
    }
    hx_engine_end_call(engine);
}

static void share(hx_engine *engine)
{
    hx_engine_begin_call(engine, &engine->nodes.call, &engine->nodes.arena, share_done);
    hx_store_scan(engine->needs.store, &engine->nodes.call, &engine->nodes.page);
}

/* The places of ordered deliveries say nothing of the time, so their recipients look themselves, some each time. */
static void share_ordered(hx_engine *engine)
{
    hx_slice name;
    void *value;
    unsigned left = ORDERED_AT_ONCE;
    while (left > 0 && hx_map_next(engine->recipients, &engine->nodes.cursor, &name, &value)) {
        hx_recipient *recipient = value;
        if (!recipient->endpoint.ordered) continue;
        hx_recipient_nudge(recipient, hx_engine_now(engine));
        left--;
    }
    if (left > 0) engine->nodes.cursor = 0;
}

static void begin_share(hx_engine *engine)
{
    hx_fan_out_nudge(engine, hx_engine_now(engine));
    share_ordered(engine);
    engine->nodes.page = (hx_item_page){.by_queue = true,
                                        .one_per_queue = true,
                                        .prefix = HX_LIT("due/"),
                                        .due_until = hx_engine_now(engine) - LATE,
                                        .items_max = HX_ITEM_PAGE_MAX};
    share(engine);
}

/* Another node has removed it from the store: nothing waits for it any more. */
static void drop_absent(hx_engine *engine)
{
    hx_slice name;
    void *value;
    for (size_t cursor = 0; hx_map_next(engine->recipients, &cursor, &name, &value);) {
        hx_recipient *recipient = value;
        if (recipient->source || recipient->read == engine->nodes.reads || recipient->endpoint.deleted_at > 0) continue;
        recipient->endpoint.deleted_at = hx_engine_now(engine);
        hx_recipient_list(recipient);
    }
}

static void take(hx_engine *engine, const hx_item *item)
{
    hx_endpoint endpoint;
    if (!hx_endpoint_decode(item->meta, &engine->nodes.arena, &endpoint)) {
        hx_log_begin(HX_EVENT_event_item_malformed);
        hx_log_str("key", item->key);
        hx_log_end();
        return;
    }
    hx_recipient *recipient = hx_recipient_find(engine, endpoint.tenant, endpoint.id);
    if (recipient && recipient->version >= item->version) {
        recipient->read = engine->nodes.reads;
        return;
    }
    recipient = hx_recipient_put(engine, &endpoint, item->version);
    hx_recipient_list(recipient);
    hx_recipient_nudge(recipient, hx_engine_now(engine));
}

static void read_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, nodes.call);
    hx_item_page *page = &engine->nodes.page;
    for (size_t i = 0; call->result == HX_STORE_OK && i < page->count; i++) take(engine, &page->items[i]);
    if (call->result != HX_STORE_OK || engine->stopping) {
        failed(engine);
    } else if (page->more) {
        page->after = page->items[page->count - 1];
        read_endpoints(engine);
    } else {
        drop_absent(engine);
        engine->nodes.generation = engine->nodes.item.version;
        engine->nodes.read_at = hx_engine_now(engine);
        if (!engine->started) hx_engine_begin_deliveries(engine);
        end_waits(engine, true);
        if (is_shared(engine))
            begin_share(engine);
        else
            rest(engine);
    }
    hx_engine_end_call(engine);
}

static void read_endpoints(hx_engine *engine)
{
    hx_engine_begin_call(engine, &engine->nodes.call, &engine->nodes.arena, read_done);
    hx_store_scan(engine->needs.store, &engine->nodes.call, &engine->nodes.page);
}

/* The generation is read before the endpoints: what changes in between makes a commit fail, and they are read again. */
static void begin_read(hx_engine *engine)
{
    engine->nodes.reads++;
    engine->nodes.page = (hx_item_page){.prefix = HX_LIT("n/"), .items_max = HX_ITEM_PAGE_MAX};
    read_endpoints(engine);
}

static void make_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, nodes.call);
    if (call->result == HX_STORE_OK || call->result == HX_STORE_STALE)
        look(engine);
    else
        failed(engine);
    hx_engine_end_call(engine);
}

static void look_done(hx_store_call *call)
{
    hx_engine *engine = HX_OWNER(call, hx_engine, nodes.call);
    uint64_t found = engine->nodes.item.version;
    if (call->result != HX_STORE_OK || engine->stopping) {
        failed(engine);
    } else if (found == 0) { /* a new store */
        engine->nodes.generation = 0;
        (void)hx_nodes_add(engine, HX_ITEM_PUT, &engine->nodes.item);
        hx_engine_begin_call(engine, &engine->nodes.call, &engine->nodes.arena, make_done);
        hx_store_commit(engine->needs.store, &engine->nodes.call, &engine->nodes.item, 1, true);
    } else if (found != engine->nodes.generation || hx_engine_now(engine) - engine->nodes.read_at >= READ_ANYWAY) {
        begin_read(engine);
    } else {
        end_waits(engine, true);
        begin_share(engine);
    }
    hx_engine_end_call(engine);
}

static void look(hx_engine *engine)
{
    engine->nodes.is_busy = true;
    engine->nodes.item = (hx_item){.key = HX_LIT(GENERATION)};
    if (!is_shared(engine)) {
        begin_read(engine);
        return;
    }
    hx_engine_begin_call(engine, &engine->nodes.call, &engine->nodes.arena, look_done);
    hx_store_get(engine->needs.store, &engine->nodes.call, &engine->nodes.item, 1);
}

static void look_due(hx_timer *timer)
{
    look(HX_OWNER(timer, hx_engine, nodes.timer));
}

void hx_nodes_read_again(hx_engine *engine, hx_nodes_wait *wait, void (*done)(hx_nodes_wait *wait, bool is_read))
{
    wait->done = done;
    hx_list_append(&engine->nodes.waiting, &wait->link);
    if (!engine->nodes.is_busy) hx_timer_start(engine->needs.loop, &engine->nodes.timer, 0, look_due);
}

void hx_nodes_start(hx_engine *engine)
{
    look(engine);
}

void hx_nodes_stop(hx_engine *engine)
{
    hx_timer_stop(engine->needs.loop, &engine->nodes.timer);
    if (!engine->nodes.is_busy) end_waits(engine, false);
}
