/* SPDX-License-Identifier: Apache-2.0 */
#include "events/recipient.h"

#include "base/check.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define LOOK_AGAIN HX_SECOND   /* after the store could not be read */
#define GRACE (10 * HX_SECOND) /* after its first failure a recipient keeps its turn among the NEW */

static void look(hx_recipient *recipient);

static hx_slice name_of(hx_slice tenant, hx_slice id, hx_arena *arena)
{
    return hx_arena_printf(arena, "%.*s/%.*s", HX_FMT(tenant), HX_FMT(id));
}

hx_recipient *hx_recipient_find(const hx_engine *engine, hx_slice tenant, hx_slice id)
{
    hx_arena arena = {0};
    hx_recipient *recipient = hx_map_get(engine->recipients, name_of(tenant, id, &arena));
    hx_arena_free(&arena);
    return recipient;
}

static void join_tenant(hx_recipient *recipient, hx_slice name)
{
    hx_engine *engine = recipient->engine;
    hx_recipient_tenant *tenant = hx_map_get(engine->tenants, name);
    if (!tenant) {
        tenant = calloc(1, sizeof *tenant + name.len);
        if (!tenant) hx_fatal(HX_EXIT_BUG, "out of memory");
        if (name.len > 0) memcpy(tenant->name, name.ptr, name.len);
        tenant->name_len = name.len;
        hx_list_init(&tenant->recipients);
        (void)hx_map_put(engine->tenants, (hx_slice){tenant->name, name.len}, tenant);
    }
    tenant->count++;
    recipient->tenant = tenant;
    hx_list_append(&tenant->recipients, &recipient->of_tenant);
}

static void leave_tenant(hx_recipient *recipient)
{
    hx_recipient_tenant *tenant = recipient->tenant;
    hx_list_remove(&recipient->of_tenant);
    if (--tenant->count > 0) return;
    (void)hx_map_remove(recipient->engine->tenants, (hx_slice){tenant->name, tenant->name_len});
    free(tenant);
}

/* Copies the endpoint into the recipient's own arena, by way of its stored form. */
static void copy_endpoint(hx_recipient *recipient, const hx_endpoint *endpoint)
{
    hx_arena arena = {0};
    hx_buf meta;
    hx_buf_init(&meta, &arena, HX_ENDPOINT_META_MAX);
    hx_endpoint_encode(endpoint, &meta);
    bool is_whole = hx_endpoint_decode(hx_buf_slice(&meta), &arena, &recipient->endpoint);
    HX_CHECK(is_whole);
    hx_arena_free(&recipient->arena);
    recipient->arena = arena;
}

hx_recipient *hx_recipient_put(hx_engine *engine, const hx_endpoint *endpoint, uint64_t version)
{
    hx_recipient *recipient = hx_recipient_find(engine, endpoint->tenant, endpoint->id);
    if (!recipient) {
        recipient = calloc(1, sizeof *recipient);
        if (!recipient) hx_fatal(HX_EXIT_BUG, "out of memory");
        recipient->engine = engine;
        recipient->class = endpoint->failing_since > 0 ? HX_RECIPIENT_FAILING : HX_RECIPIENT_NEW;
        hx_list_init(&recipient->link);
        hx_list_init(&recipient->active);
        join_tenant(recipient, endpoint->tenant);
    } else {
        (void)hx_map_remove(engine->recipients, recipient->name);
    }
    hx_ms failing_since = recipient->endpoint.failing_since;
    copy_endpoint(recipient, endpoint);
    if (recipient->endpoint.configured) { /* the store has neither its secrets nor its headers */
        const hx_endpoint *given = hx_configured_find(engine, &recipient->endpoint);
        recipient->is_elsewhere = given == NULL;
        recipient->endpoint.secrets = given ? given->secrets : (hx_texts){0};
        recipient->endpoint.headers = given ? given->headers : (hx_texts){0};
    }
    if (recipient->failing_changed) recipient->endpoint.failing_since = failing_since;
    recipient->version = version;
    recipient->read = engine->nodes.reads;
    recipient->name = name_of(recipient->endpoint.tenant, recipient->endpoint.id, &recipient->arena);
    (void)hx_map_put(engine->recipients, recipient->name, recipient);
    return recipient;
}

void hx_recipient_remove(hx_recipient **owned)
{
    hx_recipient *recipient = *owned;
    *owned = NULL;
    HX_CHECK(recipient->attempts == 0 && recipient->state != HX_RECIPIENT_LOOKING);
    (void)hx_map_remove(recipient->engine->recipients, recipient->name);
    hx_list_remove(&recipient->link);
    hx_list_remove(&recipient->active);
    leave_tenant(recipient);
    hx_timer_stop(recipient->engine->needs.loop, &recipient->timer);
    hx_arena_free(&recipient->look.arena);
    hx_arena_free(&recipient->arena);
    free(recipient);
}

static bool has_work(const hx_recipient *recipient)
{
    return recipient->state == HX_RECIPIENT_HAS_WORK && recipient->look.at < recipient->look.page.count;
}

static bool may_begin(const hx_recipient *recipient)
{
    unsigned most = recipient->class == HX_RECIPIENT_PROVEN ? (unsigned)recipient->endpoint.concurrency : 1;
    return !recipient->endpoint.disabled && !recipient->is_elsewhere && recipient->endpoint.deleted_at == 0 &&
           recipient->attempts < most && recipient->not_before <= hx_engine_now(recipient->engine);
}

static void wake_at(hx_recipient *recipient, hx_ms at);

void hx_recipient_list(hx_recipient *recipient)
{
    bool wanted = has_work(recipient) && may_begin(recipient);
    if (has_work(recipient) && recipient->not_before > hx_engine_now(recipient->engine))
        wake_at(recipient, recipient->not_before);
    if (wanted == recipient->is_listed) return;
    recipient->is_listed = wanted;
    recipient->listed_at = hx_engine_now(recipient->engine);
    if (wanted)
        hx_list_append(&recipient->engine->listed[recipient->class], &recipient->link);
    else
        hx_list_remove(&recipient->link);
    if (wanted) hx_engine_pump(recipient->engine);
}

static void timer_due(hx_timer *timer)
{
    hx_recipient *recipient = HX_OWNER(timer, hx_recipient, timer);
    if (!has_work(recipient)) look(recipient); /* once more, if it is looking: the scan may be older than what is due */
    hx_recipient_list(recipient);
}

static void wake_at(hx_recipient *recipient, hx_ms at)
{
    hx_ms delay = at - hx_engine_now(recipient->engine);
    if (hx_timer_running(&recipient->timer) &&
        recipient->timer.due <= hx_loop_now(recipient->engine->needs.loop) + delay)
        return;
    hx_timer_start(recipient->engine->needs.loop, &recipient->timer, delay > 0 ? delay : 0, timer_due);
}

void hx_recipient_looked(hx_recipient *recipient, size_t due)
{
    hx_ms now = hx_engine_now(recipient->engine), next_due = recipient->look.next_due;
    bool has_failed = recipient->look.call.result != HX_STORE_OK;
    recipient->state = due > 0 ? HX_RECIPIENT_HAS_WORK : HX_RECIPIENT_IDLE;
    recipient->look.at = 0;
    recipient->look.page.count = due;
    if (has_failed || next_due > 0) wake_at(recipient, has_failed ? now + LOOK_AGAIN : next_due);
    bool again = recipient->look_again && due == 0;
    recipient->look_again = false;
    if (again && !recipient->engine->stopping) look(recipient);
    hx_recipient_list(recipient);
}

/* What is due comes first; of the rest only the first is looked at, for its time. */
static void look_done(hx_store_call *call)
{
    hx_recipient *recipient = HX_OWNER(call, hx_recipient, look.call);
    hx_engine *engine = recipient->engine;
    const hx_item_page *page = &recipient->look.page;
    size_t due = 0, count = call->result == HX_STORE_OK ? page->count : 0;
    while (due < count && page->items[due].due <= hx_engine_now(engine)) due++;
    recipient->look.next_due = due < count ? page->items[due].due : 0;
    hx_recipient_looked(recipient, due);
    hx_engine_end_call(engine);
}

static void look(hx_recipient *recipient)
{
    hx_engine *engine = recipient->engine;
    if (recipient->state == HX_RECIPIENT_LOOKING || recipient->unleased > 0 || engine->stopping) {
        recipient->look_again = true;
        return;
    }
    if (recipient->endpoint.disabled || recipient->endpoint.deleted_at > 0) return;
    recipient->state = HX_RECIPIENT_LOOKING;
    hx_list_remove(&recipient->link);
    recipient->is_listed = false;
    if (recipient->endpoint.ordered) {
        hx_ordered_look(recipient);
        return;
    }
    hx_arena_free(&recipient->look.arena);
    hx_delivery pending = {.tenant = recipient->endpoint.tenant, .endpoint = recipient->endpoint.id};
    recipient->look.page = (hx_item_page){.by_queue = true,
                                          .with_bodies = true,
                                          .prefix = hx_delivery_queue(&pending, &recipient->look.arena),
                                          .items_max = HX_RECIPIENT_PAGE};
    hx_engine_begin_call(engine, &recipient->look.call, &recipient->look.arena, look_done);
    hx_store_scan(engine->needs.store, &recipient->look.call, &recipient->look.page);
}

void hx_recipient_nudge(hx_recipient *recipient, hx_ms due)
{
    if (!recipient->engine->started || has_work(recipient)) return; /* it looks again when it has done that */
    if (due > hx_engine_now(recipient->engine))
        wake_at(recipient, due);
    else
        look(recipient);
}

const hx_item *hx_recipient_take(hx_recipient *recipient)
{
    const hx_item *item = &recipient->look.page.items[recipient->look.at++];
    HX_CHECK(recipient->look.at <= recipient->look.page.count);
    if (recipient->endpoint.rate > 0) {
        hx_ms now = hx_engine_now(recipient->engine), gap = HX_SECOND / (hx_ms)recipient->endpoint.rate;
        recipient->not_before = (recipient->not_before > now ? recipient->not_before : now) + (gap > 0 ? gap : 1);
    }
    return item;
}

void hx_recipient_leased(hx_recipient *recipient)
{
    recipient->unleased--;
    if (recipient->unleased == 0 && !has_work(recipient)) look(recipient);
}

unsigned hx_recipient_places(const hx_engine *engine, hx_recipient_class class)
{
    static const unsigned parts[HX_RECIPIENT_CLASSES] = {
        [HX_RECIPIENT_PROVEN] = 2, [HX_RECIPIENT_NEW] = 16, [HX_RECIPIENT_LATE] = 16, [HX_RECIPIENT_FAILING] = 4};
    return engine->needs.settings.attempts_max / parts[class] + 1;
}

void hx_recipient_classify(hx_recipient *recipient, hx_recipient_class class)
{
    if (recipient->class == class) return;
    recipient->engine->places[recipient->class] -= recipient->attempts;
    recipient->engine->places[class] += recipient->attempts;
    hx_list_remove(&recipient->link);
    recipient->is_listed = false;
    recipient->class = class;
    hx_recipient_list(recipient);
    hx_engine_pump(recipient->engine);
}

/* One that fails for once doesn't queue up behind those that never answer. */
static hx_recipient_class class_after_failure(const hx_recipient *recipient)
{
    bool is_short = hx_engine_now(recipient->engine) - recipient->endpoint.failing_since < GRACE;
    return is_short && recipient->class != HX_RECIPIENT_FAILING ? HX_RECIPIENT_NEW : HX_RECIPIENT_FAILING;
}

void hx_recipient_told(hx_recipient *recipient, const hx_attempt_result *result)
{
    if (result->retry_after <= 0 || (result->status != 429 && result->status != 503)) return;
    hx_ms pause = result->retry_after < HX_DAY ? result->retry_after : HX_DAY;
    recipient->not_before = hx_engine_now(recipient->engine) + pause + 1;
    hx_recipient_list(recipient);
}

void hx_recipient_tried(hx_recipient *recipient, const hx_attempt_result *result)
{
    hx_engine *engine = recipient->engine;
    bool is_success = result->status >= 200 && result->status < 300;
    recipient->attempts--;
    engine->places[recipient->class]--;
    engine->attempts--;
    if (recipient->attempts == 0) hx_list_remove(&recipient->active);
    if (is_success == (recipient->endpoint.failing_since > 0)) {
        recipient->endpoint.failing_since = is_success ? 0 : hx_engine_now(engine);
        recipient->failing_changed = true;
    }
    hx_recipient_classify(recipient, is_success ? HX_RECIPIENT_PROVEN : class_after_failure(recipient));
    /* Once more, if it is looking: the scan may have been before the result. */
    if (!has_work(recipient)) look(recipient);
    hx_recipient_list(recipient);
    hx_engine_pump(engine);
}
