/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of endpoints: read, decided, committed with the version that was read, and then in force. On a shared store
 * the commit gives the endpoints another generation, by which other nodes learn of it (recipients/nodes.c). */
#include "base/log.h"
#include "base/rand.h"
#include "events/recipient.h"

#define TRIES_MAX 5u

static void end_change(hx_endpoint_change *change, hx_change_result result, const char *detail)
{
    hx_engine *engine = change->engine;
    change->result = result;
    change->detail = detail;
    change->done(change);
    hx_engine_end_call(engine);
}

static void read_again(hx_endpoint_change *change);

static void log_change(const hx_endpoint_change *change)
{
    static const char *const acts[] = {
        [HX_ENDPOINT_CREATE] = "created",       [HX_ENDPOINT_REPLACE] = "changed",     [HX_ENDPOINT_ENABLE] = "enabled",
        [HX_ENDPOINT_DISABLE] = "disabled",     [HX_ENDPOINT_ROTATE] = "rotated",      [HX_ENDPOINT_DELETE] = "deleted",
        [HX_ENDPOINT_CONFIGURE] = "configured", [HX_ENDPOINT_UNCONFIGURE] = "deleted", [HX_ENDPOINT_NOTE] = NULL};
    if (!acts[change->act]) return;
    hx_log_begin(HX_EVENT_endpoint_changed);
    hx_log_str("endpoint", change->endpoint.id);
    if (change->endpoint.tenant.len > 0) hx_log_str("tenant", change->endpoint.tenant);
    hx_log_text("change", acts[change->act]);
    if (change->act == HX_ENDPOINT_DISABLE) hx_log_str("reason", change->reason);
    hx_log_end();
}

static void begin_change(hx_endpoint_change *change);

static void endpoints_read(hx_nodes_wait *wait, bool is_read)
{
    hx_endpoint_change *change = HX_OWNER(wait, hx_endpoint_change, wait);
    hx_engine *engine = change->engine;
    if (!is_read) {
        end_change(change, HX_CHANGE_UNAVAILABLE, NULL);
        return;
    }
    begin_change(change);
    hx_engine_end_call(engine);
}

static void commit_done(hx_store_call *call)
{
    hx_endpoint_change *change = HX_OWNER(call, hx_endpoint_change, call);
    hx_engine *engine = change->engine;
    if (hx_nodes_went_ahead(call) && ++change->tries < TRIES_MAX) {
        hx_nodes_read_again(engine, &change->wait, endpoints_read);
        return;
    }
    if (call->result == HX_STORE_STALE && change->act != HX_ENDPOINT_CREATE && ++change->tries < TRIES_MAX) {
        read_again(change);
        hx_engine_end_call(engine);
        return;
    }
    if (call->result != HX_STORE_OK) {
        end_change(change, call->result == HX_STORE_FULL ? HX_CHANGE_FULL : HX_CHANGE_UNAVAILABLE, NULL);
        return;
    }
    if (change->has_generation) engine->nodes.generation = call->version;
    if (change->act == HX_ENDPOINT_DISABLE) hx_fan_out_nudge(engine, hx_engine_now(engine));
    hx_recipient *recipient = hx_recipient_find(engine, change->endpoint.tenant, change->endpoint.id);
    if (recipient && change->act == HX_ENDPOINT_ENABLE) recipient->is_gone = recipient->failing_changed = false;
    recipient = hx_recipient_put(engine, &change->endpoint, call->version);
    log_change(change);
    hx_recipient_nudge(recipient, hx_engine_now(engine));
    hx_recipient_list(recipient); /* it may have work from before it was disabled */
    end_change(change, HX_CHANGE_DONE, NULL);
}

static void commit(hx_endpoint_change *change, uint64_t version)
{
    hx_engine *engine = change->engine;
    hx_buf meta;
    hx_buf_init(&meta, change->arena, HX_ENDPOINT_META_MAX);
    hx_endpoint stored = change->endpoint;
    if (stored.configured) stored.secrets = stored.headers = (hx_texts){0};
    hx_endpoint_encode(&stored, &meta);
    if (change->act == HX_ENDPOINT_CONFIGURE && version > 0 &&
        hx_slice_eq(change->items[0].meta, hx_buf_slice(&meta))) { /* nothing has changed since the last start */
        change->result = HX_CHANGE_DONE;
        change->done(change);
        return;
    }
    change->items[0] = (hx_item){.key = hx_endpoint_key(change->endpoint.tenant, change->endpoint.id, change->arena),
                                 .version = version,
                                 .queue = HX_EMPTY,
                                 .meta = hx_buf_slice(&meta),
                                 .body = HX_EMPTY};
    /* That it is failing concerns nobody who publishes. */
    size_t count = 1;
    if (change->act != HX_ENDPOINT_NOTE) count += hx_nodes_add(engine, HX_ITEM_PUT, &change->items[1]);
    change->has_generation = count > 1;
    if (change->act == HX_ENDPOINT_DISABLE)
        count += hx_own_event_of_endpoint(engine, &change->endpoint, &change->items[count], change->arena);
    hx_engine_begin_call(engine, &change->call, change->arena, commit_done);
    hx_store_commit(engine->needs.store, &change->call, change->items, count, false);
}

static void set_disabled(hx_endpoint *endpoint, bool disabled, hx_slice reason, hx_ms now)
{
    endpoint->disabled = disabled;
    endpoint->disabled_reason = disabled ? reason : HX_EMPTY;
    endpoint->disabled_at = disabled ? now : 0;
    if (!disabled) endpoint->failing_since = 0;
}

static void rotate(hx_endpoint_change *change, hx_endpoint *endpoint)
{
    hx_slice *secrets = hx_arena_alloc(change->arena, sizeof *secrets);
    *secrets = change->secret;
    endpoint->retiring = endpoint->secrets;
    endpoint->retire_at = change->retire_at;
    endpoint->secrets = (hx_texts){secrets, 1};
}

static bool is_of_api(hx_endpoint_act act)
{
    return act == HX_ENDPOINT_REPLACE || act == HX_ENDPOINT_ROTATE || act == HX_ENDPOINT_DELETE;
}

/* As it is configured, in the state that it has. Deliveries that exist have their places, or have none, so `ordered`
 * stays. */
static void configure(hx_endpoint_change *change, const hx_endpoint *stored)
{
    hx_endpoint *endpoint = &change->endpoint;
    *endpoint = *hx_configured_find(change->engine, endpoint);
    endpoint->created_at = stored ? stored->created_at : hx_engine_now(change->engine);
    if (!stored) return;
    endpoint->ordered = stored->ordered;
    endpoint->disabled = stored->disabled;
    endpoint->disabled_reason = stored->disabled_reason;
    endpoint->disabled_at = stored->disabled_at;
    endpoint->failing_since = stored->failing_since;
}

static void read_done(hx_store_call *call)
{
    hx_endpoint_change *change = HX_OWNER(call, hx_endpoint_change, call);
    hx_engine *engine = change->engine;
    hx_endpoint stored;
    hx_ms now = hx_engine_now(engine);
    const hx_item *item = &change->items[0];
    bool is_there = call->result == HX_STORE_OK && item->version > 0 &&
                    hx_endpoint_decode(item->meta, change->arena, &stored);
    if (is_there && stored.deleted_at > 0) { /* the end of the commit that deleted it may not have been known */
        (void)hx_recipient_put(engine, &stored, item->version);
        is_there = false;
    }
    if (call->result == HX_STORE_OK && change->act == HX_ENDPOINT_CONFIGURE) {
        configure(change, is_there ? &stored : NULL);
        commit(change, item->version);
        hx_engine_end_call(engine);
        return;
    }
    if (call->result != HX_STORE_OK || !is_there) {
        end_change(change, call->result == HX_STORE_OK ? HX_CHANGE_ABSENT : HX_CHANGE_UNAVAILABLE, NULL);
        return;
    }
    if (stored.configured && is_of_api(change->act)) {
        end_change(change, HX_CHANGE_CONFIGURED, NULL);
        return;
    }
    change->endpoint = stored;
    if (change->act == HX_ENDPOINT_REPLACE &&
        !hx_endpoint_read(change->given, change->arena, &change->endpoint, change->wrong)) {
        end_change(change, HX_CHANGE_REFUSED, change->wrong);
        return;
    }
    if (!hx_slice_eq(change->endpoint.tenant, stored.tenant)) { /* nor do its events, and it is found by its tenant */
        end_change(change, HX_CHANGE_REFUSED, "\"tenant\" can't be changed: add another endpoint");
        return;
    }
    if (change->endpoint.ordered != stored.ordered) { /* deliveries that exist have their places, or have none */
        end_change(change, HX_CHANGE_REFUSED, "\"ordered\" can't be changed: add another endpoint");
        return;
    }
    if (change->endpoint.secrets.count == 0) change->endpoint.secrets = stored.secrets;
    if (change->act == HX_ENDPOINT_NOTE) change->endpoint.failing_since = change->failing_since;
    if (change->act == HX_ENDPOINT_ENABLE) set_disabled(&change->endpoint, false, HX_EMPTY, now);
    if (change->act == HX_ENDPOINT_DISABLE) set_disabled(&change->endpoint, true, change->reason, now);
    if (change->act == HX_ENDPOINT_ROTATE) rotate(change, &change->endpoint);
    if (change->act == HX_ENDPOINT_DELETE || change->act == HX_ENDPOINT_UNCONFIGURE) change->endpoint.deleted_at = now;
    commit(change, item->version);
    hx_engine_end_call(engine);
}

static void read_again(hx_endpoint_change *change)
{
    change->items[0] = (hx_item){.key = hx_endpoint_key(change->tenant, change->id, change->arena)};
    hx_engine_begin_call(change->engine, &change->call, change->arena, read_done);
    hx_store_get(change->engine->needs.store, &change->call, change->items, 1);
}

static void begin_change(hx_endpoint_change *change)
{
    if (change->act != HX_ENDPOINT_CREATE) {
        read_again(change);
        return;
    }
    uint8_t random[12];
    hx_rand_bytes(random, sizeof random);
    hx_buf id;
    hx_buf_init(&id, change->arena, 64);
    hx_buf_puts(&id, "ep_");
    hx_buf_put_hex(&id, random, sizeof random);
    change->endpoint.id = hx_buf_slice(&id);
    change->endpoint.created_at = hx_engine_now(change->engine);
    commit(change, 0);
}

void hx_engine_change_endpoint(hx_engine *engine, hx_endpoint_change *change)
{
    change->engine = engine;
    change->tries = 0;
    begin_change(change);
}

const hx_endpoint *hx_engine_endpoint(const hx_engine *engine, hx_slice tenant, hx_slice id)
{
    const hx_recipient *recipient = hx_recipient_find(engine, tenant, id);
    return recipient && recipient->endpoint.deleted_at == 0 ? &recipient->endpoint : NULL;
}
