/* SPDX-License-Identifier: Apache-2.0 */
#include "items.h"

#include "world.h"

#include "base/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define QUEUES 3u
#define BODY_OF_MANY 3000u
#define BODY_OF_ONE 40000u /* more than is copied into a batch */

typedef struct {
    hx_store_call call; /* first: completions cast back */
    bool done;
} awaited;

static awaited commit;
static hx_arena commit_arena;
static bool (*may_refuse)(void);

static uint64_t roll(const item_change *c, uint32_t item, uint32_t what)
{
    return mix(mix(c->serial, item + 1), what);
}

/* A few items change often, the others seldom: these are moved out of old segments. */
static unsigned choose(const item_change *c, uint32_t chosen[ITEMS_A_COMMIT])
{
    uint64_t dice = mix(c->serial, 3);
    unsigned count = c->is_small ? 1 : dice % 3 == 0 ? 1 : 1 + (unsigned)(dice >> 8) % ITEMS_A_COMMIT;
    uint32_t among = (dice >> 16) % 4 == 0 ? ITEMS : ITEMS / 4, first = (uint32_t)(dice >> 32) % among;
    for (unsigned i = 0; i < count; i++) chosen[i] = (first + i) % among;
    return count;
}

static hx_item_act act_of(const item_change *c, uint32_t item)
{
    uint64_t dice = roll(c, item, 1) % 10;
    return dice < 7 ? HX_ITEM_PUT : dice < 9 ? HX_ITEM_REMOVE : HX_ITEM_CHECK;
}

static hx_slice key_of(uint32_t item, hx_arena *arena)
{
    return hx_arena_printf(arena, "item/%02u/%0*u", item, (int)item * 3, item);
}

static hx_slice noise(uint64_t from, size_t len, hx_arena *arena)
{
    char *bytes = hx_arena_alloc(arena, len + 8);
    for (size_t i = 0; i < len; i += 8) {
        uint64_t word = from % 5 == 0 ? 0 : mix(from, i);
        memcpy(bytes + i, &word, sizeof word);
    }
    return (hx_slice){bytes, len};
}

/* When what the change writes has expired; 0: never. */
static hx_ms expiry_of(const item_change *c, uint32_t item)
{
    uint64_t dice = roll(c, item, 5);
    return dice % 4 == 0 ? c->at + (hx_ms)(5 + (dice >> 12) % 40) * HX_SECOND + 5 : 0;
}

static hx_slice queue_of(const item_change *c, uint32_t item, hx_arena *arena)
{
    uint64_t dice = roll(c, item, 6);
    return dice % 2 ? hx_arena_printf(arena, "queue-%u", (unsigned)(dice >> 5) % QUEUES) : HX_EMPTY;
}

/* The item as the change writes it. */
static hx_item written(const item_change *c, uint32_t item, hx_arena *arena)
{
    uint64_t dice = roll(c, item, 2);
    uint32_t chosen[ITEMS_A_COMMIT];
    uint64_t body_max = choose(c, chosen) == 1 ? BODY_OF_ONE : BODY_OF_MANY;
    size_t body = dice % 3 == 0 && !c->is_small ? (size_t)((dice >> 20) % body_max) : 0;
    return (hx_item){.key = key_of(item, arena),
                     .act = act_of(c, item),
                     .queue = queue_of(c, item, arena),
                     .due = (hx_ms)((dice >> 24) % 1000),
                     .expires_at = expiry_of(c, item),
                     .meta = noise(dice, c->is_small ? 20 : (size_t)(dice >> 40) % 300, arena),
                     .body = noise(dice + 1, body, arena)};
}

static bool is_there(const item_truth *t, uint32_t item)
{
    return t->version > 0 && !hx_item_is_over(expiry_of(&t->by, item), world_now());
}

void items_happen(item_model *known, uint64_t version)
{
    uint32_t chosen[ITEMS_A_COMMIT];
    unsigned count = choose(&known->wanted, chosen);
    for (unsigned i = 0; i < count; i++) {
        item_truth *t = &known->item[chosen[i]];
        hx_item_act act = act_of(&known->wanted, chosen[i]);
        if (act == HX_ITEM_PUT) *t = (item_truth){version, known->wanted};
        if (act == HX_ITEM_REMOVE) *t = (item_truth){0};
    }
    if (version > known->version_max) known->version_max = version;
    known->asked = false;
}

static void set_done(hx_store_call *call)
{
    ((awaited *)(void *)call)->done = true;
    hx_loop_stop(call->loop); /* the turn needn't wait for anything else */
}

static hx_store_result await(awaited *a, hx_loop *loop)
{
    while (!a->done) hx_loop_turn(loop, HX_SECOND);
    return a->call.result;
}

static bool is_meant_to_fail(const item_change *c)
{
    return mix(c->serial, 4) % 8 == 0;
}

static void commit_done(hx_store_call *call)
{
    const item_change *c = &the_model.items.wanted;
    hx_store_result want = is_meant_to_fail(c) ? HX_STORE_STALE : HX_STORE_OK;
    commit.done = true;
    bool refused = call->result == HX_STORE_FULL && may_refuse();
    if (call->result == HX_STORE_UNAVAILABLE && may_refuse()) return; /* it may have happened or not */
    if (call->result != want && !refused)
        world_wrong("commit %u of items ended %d, not %d", c->serial, (int)call->result, (int)want);
    if (call->result == HX_STORE_OK && call->version <= the_model.items.version_max)
        for (size_t i = 0; i < call->item_count; i++) /* a commit that writes nothing uses up no version */
            if (call->items[i].act != HX_ITEM_CHECK)
                world_wrong("commit %u of items: the version %" PRIu64 " is not above %" PRIu64, c->serial,
                            call->version, the_model.items.version_max);
    world_note(&(entry){.kind = ENTRY_ITEMS_ENDED, .result = call->result, .number = call->version});
}

void items_ask(hx_store *store, hx_loop *loop, uint32_t serial, bool is_small, bool (*refusal)(void))
{
    item_change c = {.serial = serial, .is_small = is_small, .at = world_now()};
    uint32_t chosen[ITEMS_A_COMMIT];
    unsigned count = choose(&c, chosen);
    may_refuse = refusal;
    commit = (awaited){.call = {.loop = loop, .arena = &commit_arena, .done = commit_done}};
    hx_item *items = hx_arena_alloc(&commit_arena, count * sizeof *items);
    for (unsigned i = 0; i < count; i++) {
        const item_truth *t = &the_model.items.item[chosen[i]];
        items[i] = written(&c, chosen[i], &commit_arena);
        items[i].version = is_there(t, chosen[i]) ? t->version : 0;
    }
    if (is_meant_to_fail(&c)) items[count - 1].version += items[count - 1].version ? -UINT64_C(1) : 1;
    world_note(&(entry){.kind = ENTRY_ITEMS_ASKED, .items = c});
    hx_store_commit(store, &commit.call, items, count, is_small);
}

bool items_done(void)
{
    if (commit.call.loop && !commit.done) return false;
    commit = (awaited){0};
    hx_arena_free(&commit_arena);
    return true;
}

static const char *item_differs(const item_truth *t, uint32_t item, const hx_item *found)
{
    hx_arena arena = {0};
    hx_item want = written(&t->by, item, &arena);
    const char *what = NULL;
    if (!is_there(t, item)) {
        what = found->version != 0 ? "it is there" : NULL;
    } else {
        if (found->version != t->version) what = "the version";
        if (found->due != want.due || found->expires_at != want.expires_at) what = "its times";
        if (!hx_slice_eq(found->queue, want.queue)) what = "the queue";
        if (!hx_slice_eq(found->meta, want.meta)) what = "the meta";
        if (!hx_slice_eq(found->body, want.body)) what = "the body";
        if (found->version == 0) what = "it is not there";
    }
    hx_arena_free(&arena);
    return what;
}

/* Whether pages show the items that are there, in their order. */
static const char *page_differs(hx_store *store, hx_loop *loop, const item_model *known, bool by_queue, hx_arena *arena)
{
    unsigned there = 0;
    for (uint32_t i = 0; i < ITEMS; i++)
        there += is_there(&known->item[i], i) && (!by_queue || queue_of(&known->item[i].by, i, arena).len > 0);
    hx_item_page page = {.by_queue = by_queue, .prefix = HX_EMPTY, .items_max = 2 * ITEMS};
    awaited scan = {.call = {.loop = loop, .arena = arena, .done = set_done}};
    hx_store_scan(store, &scan.call, &page);
    if (await(&scan, loop) != HX_STORE_OK) return NULL; /* something can't be read: the gets have told */
    for (size_t i = 1; i < page.count; i++) {
        const hx_item *a = &page.items[i - 1], *b = &page.items[i];
        int order = by_queue ? hx_slice_compare(a->queue, b->queue) : 0;
        if (order == 0 && by_queue) order = a->due < b->due ? -1 : a->due > b->due;
        if (order == 0) order = hx_slice_compare(a->key, b->key);
        if (order >= 0) return "the order of a page";
    }
    return page.count == there ? NULL : "the number of items in a page";
}

/* NULL if the item is as it must be. */
static const char *look(hx_store *store, hx_loop *loop, const item_model *known, uint32_t item, bool *unreadable)
{
    static char text[128];
    hx_arena arena = {0};
    awaited get = {.call = {.loop = loop, .arena = &arena, .done = set_done}};
    hx_item found = {.key = key_of(item, &arena)};
    hx_store_get(store, &get.call, &found, 1);
    bool is_read = await(&get, loop) == HX_STORE_OK;
    const char *what = is_read ? item_differs(&known->item[item], item, &found) : "it can't be read";
    if (!is_read && unreadable) {
        *unreadable = true;
        what = NULL;
    }
    if (what) snprintf(text, sizeof text, "item %u (version %" PRIu64 "): %s", item, found.version, what);
    hx_arena_free(&arena);
    return what ? text : NULL;
}

const char *items_differ(hx_store *store, hx_loop *loop, const item_model *known, bool *unreadable)
{
    const char *what = NULL;
    hx_arena arena = {0};
    for (uint32_t i = 0; i < ITEMS && !what; i++) what = look(store, loop, known, i, unreadable);
    for (int by_queue = 0; by_queue < 2 && !what; by_queue++)
        what = page_differs(store, loop, known, by_queue == 1, &arena);
    hx_arena_free(&arena);
    return what;
}

const char *items_last_differ(hx_store *store, hx_loop *loop)
{
    uint32_t chosen[ITEMS_A_COMMIT];
    unsigned count = choose(&the_model.items.wanted, chosen);
    const char *what = NULL;
    for (unsigned i = 0; i < count && !what; i++) what = look(store, loop, &the_model.items, chosen[i], NULL);
    return what;
}

/* The version of the items that the commit would have put; 0: none of them is there. */
static uint64_t version_put(hx_store *store, hx_loop *loop, const item_change *c)
{
    uint32_t chosen[ITEMS_A_COMMIT];
    unsigned count = choose(c, chosen);
    uint64_t version = 0;
    for (unsigned i = 0; i < count; i++) {
        hx_arena arena = {0};
        hx_item item = {.key = key_of(chosen[i], &arena)};
        awaited get = {.call = {.loop = loop, .arena = &arena, .done = set_done}};
        hx_store_get(store, &get.call, &item, 1);
        if (await(&get, loop) == HX_STORE_OK && act_of(c, chosen[i]) == HX_ITEM_PUT && item.version > version)
            version = item.version;
        hx_arena_free(&arena);
    }
    return version;
}

/* NULL if the store is as the commit that was asked for would have left it. */
static const char *differ_after(hx_store *store, hx_loop *loop, uint64_t *version)
{
    item_model after = the_model.items;
    *version = version_put(store, loop, &after.wanted);
    if (*version > 0 && *version <= after.version_max) return "the version was used before";
    items_happen(&after, *version);
    return items_differ(store, loop, &after, NULL);
}

void items_reconcile(hx_store *store, hx_loop *loop, const char *when)
{
    const item_model *m = &the_model.items;
    char before[128] = "";
    uint64_t version = 0;
    const char *what = items_differ(store, loop, m, NULL);
    bool happened = what != NULL;
    if (what) snprintf(before, sizeof before, "%s", what);
    if (what && m->asked && !is_meant_to_fail(&m->wanted)) what = differ_after(store, loop, &version);
    if (what)
        world_wrong("%s: %s; commit %u was %s: %s", when, before, m->wanted.serial, m->asked ? "asked for" : "answered",
                    what);
    if (m->asked)
        world_note(&(entry){.kind = ENTRY_ITEMS_ENDED,
                            .result = happened ? HX_STORE_OK : HX_STORE_UNAVAILABLE,
                            .number = version});
}
