/* SPDX-License-Identifier: Apache-2.0 */
/* Where a job finds what it selects:
 *
 *     dead, held, unknown   the queue of the state, of one endpoint or of all
 *     paused                the queue of what is pending
 *     delivered             all deliveries, which are in no queue
 *     one event             the deliveries to its recipients, or to one endpoint
 *     recover               the events since a time: those without a delivery to the endpoint */
#include "events/recipient.h"
#include "events/jobs/jobs.h"

static void end(hx_job_page *page, hx_store_result result)
{
    hx_engine *engine = page->engine;
    page->result = result;
    page->done(page);
    hx_engine_end_call(engine);
}

static void add(hx_job_page *page, const hx_item *item, hx_slice queue, hx_ms due, hx_slice key)
{
    hx_job_candidate *c = &page->candidates[page->count++];
    *c = (hx_job_candidate){.item = *item, .queue = queue, .due = due, .key = key};
    c->is_sound = item->version > 0 && hx_delivery_decode(item->meta, item->body, page->arena, &c->delivery);
}

static void start_scan(hx_job_page *page, void (*done)(hx_store_call *call))
{
    const hx_redrive *job = page->job;
    page->scan.with_bodies = true;
    page->scan.items_max = page->items_max;
    page->scan.after = (hx_item){.queue = job->at_queue, .due = job->at_due, .key = job->at_key};
    hx_engine_begin_call(page->engine, &page->call, page->arena, done);
    hx_store_scan(page->engine->needs.store, &page->call, &page->scan);
}

static void start_get(hx_job_page *page, hx_item *items, size_t count, void (*done)(hx_store_call *call))
{
    hx_engine_begin_call(page->engine, &page->call, page->arena, done);
    hx_store_get(page->engine->needs.store, &page->call, items, count);
}

static void scanned(hx_store_call *call)
{
    hx_job_page *page = HX_OWNER(call, hx_job_page, call);
    if (call->result == HX_STORE_OK) {
        page->more = page->scan.more;
        page->candidates = hx_arena_alloc(page->arena, (page->scan.count + 1) * sizeof *page->candidates);
        for (size_t i = 0; i < page->scan.count; i++) {
            const hx_item *item = &page->scan.items[i];
            add(page, item, item->queue, item->due, item->key);
        }
    }
    end(page, call->result);
}

/* One event, to all of its recipients. */
static void recipients_read(hx_store_call *call)
{
    hx_job_page *page = HX_OWNER(call, hx_job_page, call);
    size_t count = page->count;
    page->count = 0;
    for (size_t i = 0; call->result == HX_STORE_OK && i < count; i++)
        add(page, &page->items[i], HX_EMPTY, page->first + (hx_ms)i + 1, page->items[i].key);
    end(page, call->result);
}

static void event_read(hx_store_call *call)
{
    hx_job_page *page = HX_OWNER(call, hx_job_page, call);
    hx_engine *engine = page->engine;
    hx_event event;
    bool is_there = call->result == HX_STORE_OK && page->event.version > 0 &&
                    hx_event_decode(page->event.meta, page->arena, &event);
    if (!is_there || (size_t)page->first >= event.recipients.count) {
        end(page, call->result);
        return;
    }
    size_t left = event.recipients.count - (size_t)page->first;
    page->more = left > page->items_max;
    page->count = page->more ? page->items_max : left;
    page->items = hx_arena_alloc(page->arena, page->count * sizeof *page->items);
    page->candidates = hx_arena_alloc(page->arena, page->count * sizeof *page->candidates);
    for (size_t i = 0; i < page->count; i++)
        page->items[i] = (hx_item){.key = hx_delivery_key(event.tenant, event.recipients.items[(size_t)page->first + i],
                                                          page->event.key, page->arena)};
    start_get(page, page->items, page->count, recipients_read);
    hx_engine_end_call(engine);
}

/* Of the events that were scanned, those without a delivery become new deliveries. */
static void missing_read(hx_store_call *call)
{
    hx_job_page *page = HX_OWNER(call, hx_job_page, call);
    hx_ms now = hx_engine_now(page->engine);
    size_t at = 0;
    for (size_t i = 0; call->result == HX_STORE_OK && i < page->count; i++) {
        hx_job_candidate *c = &page->candidates[i];
        if (!c->is_sound) continue; /* it isn't wanted */
        c->item = page->items[at++];
        c->is_sound = c->item.version == 0;
        hx_ms due = c->delivery.due > now ? c->delivery.due : now;
        c->delivery = hx_outbox_delivery(c->key, page->job->tenant, page->job->endpoint, now);
        c->delivery.due = due;
    }
    end(page, call->result);
}

static bool was_recipient(const hx_event *event, hx_slice endpoint)
{
    for (size_t i = 0; i < event->recipients.count; i++)
        if (hx_slice_eq(event->recipients.items[i], endpoint)) return true;
    return false;
}

static void events_scanned(hx_store_call *call)
{
    hx_job_page *page = HX_OWNER(call, hx_job_page, call);
    hx_engine *engine = page->engine;
    const hx_redrive *job = page->job;
    const hx_endpoint *endpoint = hx_engine_endpoint(engine, job->tenant, job->endpoint);
    size_t wanted = 0, scanned = page->scan.count;
    page->candidates = hx_arena_alloc(page->arena, (scanned + 1) * sizeof *page->candidates);
    page->items = hx_arena_alloc(page->arena, (scanned + 1) * sizeof *page->items);
    for (size_t i = 0; call->result == HX_STORE_OK && i < scanned; i++) {
        const hx_item *item = &page->scan.items[i];
        hx_job_candidate *c = &page->candidates[page->count++];
        hx_event event;
        *c = (hx_job_candidate){.queue = item->queue, .due = item->due, .key = item->key};
        c->is_sound = endpoint && hx_event_decode(item->meta, page->arena, &event) &&
                      !was_recipient(&event, job->endpoint) && hx_endpoint_wants(endpoint, event.type, item->body);
        if (!c->is_sound) continue;
        c->delivery.due = event.deliver_at;
        page->items[wanted++] = (hx_item){.key = hx_delivery_key(job->tenant, job->endpoint, item->key, page->arena)};
    }
    page->more = call->result == HX_STORE_OK && page->scan.more;
    if (wanted == 0) {
        end(page, call->result);
        return;
    }
    start_get(page, page->items, wanted, missing_read);
    hx_engine_end_call(engine);
}

/* Events since `from`, but for those that came when the job had begun: the endpoint was there by then. */
static void scan_events(hx_job_page *page)
{
    const hx_redrive *job = page->job;
    hx_event like = {.tenant = job->tenant};
    page->scan = (hx_item_page){.by_queue = true,
                                .prefix = hx_event_queue(&like, page->arena),
                                .due_until = job->started_at};
    start_scan(page, events_scanned);
}

void hx_job_page_read(hx_engine *engine, hx_job_page *page)
{
    const hx_redrive *job = page->job;
    hx_delivery like = {.tenant = job->tenant, .endpoint = job->endpoint};
    bool is_paused = hx_slice_eq(job->state, HX_LIT("paused"));
    bool has_queue = is_paused || (hx_delivery_state_named(job->state, &like.state) &&
                                   hx_delivery_states[like.state].queue[0] != '\0');
    page->engine = engine;
    page->count = 0;
    page->more = false;
    if (hx_redrive_is_recovery(job)) {
        scan_events(page);
        return;
    }
    page->scan = (hx_item_page){.by_queue = has_queue && job->event.len == 0};
    if (is_paused) like.state = HX_DELIVERY_PENDING;
    if (job->event.len > 0 && job->endpoint.len == 0) {
        page->first = job->at_due;
        page->event = (hx_item){.key = job->event};
        start_get(page, &page->event, 1, event_read);
        return;
    }
    if (!page->scan.by_queue)
        page->scan.prefix = job->endpoint.len > 0 ? hx_delivery_key(job->tenant, job->endpoint, job->event, page->arena)
                                                  : hx_arena_printf(page->arena, "d/%.*s/", HX_FMT(job->tenant));
    else
        page->scan.prefix = job->endpoint.len > 0
                                ? hx_delivery_queue(&like, page->arena)
                                : hx_arena_printf(page->arena, "%s/%.*s/", hx_delivery_states[like.state].queue,
                                                  HX_FMT(job->tenant));
    start_scan(page, scanned);
}

hx_redrive_verdict hx_job_page_judge(const hx_job_page *page, const hx_job_candidate *candidate, bool *gone)
{
    *gone = false;
    if (!candidate->is_sound) return HX_REDRIVE_OTHER;
    if (hx_redrive_is_recovery(page->job)) return HX_REDRIVE_ARM;
    const hx_delivery *delivery = &candidate->delivery;
    const hx_recipient *recipient = hx_recipient_find(page->engine, delivery->tenant, delivery->endpoint);
    hx_redrive_verdict verdict = hx_redrive_judge(page->job, delivery, recipient && recipient->endpoint.disabled,
                                                  hx_engine_now(page->engine));
    *gone = verdict == HX_REDRIVE_ARM && (!recipient || recipient->endpoint.deleted_at > 0);
    return verdict;
}
