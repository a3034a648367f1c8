/* SPDX-License-Identifier: Apache-2.0 */
/* The relay of one outbox. One page of rows at a time: it is read, published under the ids of its events, and recorded
 * as taken by the statement that reads the next. So a relay that ends in between, at whatever point, only makes the
 * next one publish the same events again, which the engine recognises.
 *
 *     WAITING ──[tick]──► ASKING ──[asked]──► PUBLISHING ──[published]──► WAITING, or ASKING where more is to be read
 *        ▲                  │  nothing to do, or trouble      │
 *        └──────────────────┘                                 └──[published: the store is full or away]──► RETRYING
 *
 * A page is published in parts, each all or none. A part that conflicts with what is stored is halved, until the row
 * that can't be published is alone: it is set aside with the reason, and delays no other.
 *
 * The outbox is polled. A NOTIFY would make all commits of the application wait for each other, because PostgreSQL
 * commits transactions that notify one after the other. */
#include "events/relay.h"

#include "base/check.h"
#include "base/log.h"
#include "core/crypto/mac.h"
#include "events/recipient.h"
#include "store/postgres/feed.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MIN ((hx_ms)15) /* between pages, so that rows gather meanwhile */
#define POLL_MAX ((hx_ms)100)
#define ELSEWHERE_POLL ((hx_ms)500)
#define TROUBLE_MIN ((hx_ms)100)
#define TROUBLE_MAX (5 * HX_SECOND)
#define RETRY_STORE ((hx_ms)500)
#define ROTATE_INTERVAL HX_SECOND
#define TAG_OUTBOX 'o'
#define MARK_BYTES 16u

typedef enum { WAITING, ASKING, ROTATING, PUBLISHING, RETRYING, RELEASING, STOPPED } relay_state;

struct hx_relay {
    hx_relay_needs needs;
    relay_state state;
    hx_feed *feed;
    hx_feed_result last; /* of the feed, as it was last logged */
    int64_t term;
    hx_digest mark;
    hx_timer timer;
    hx_ms delay;       /* until the next poll, or the next attempt to reach the database */
    hx_ms rotated_at;  /* when the tables were last looked at */
    bool is_published; /* the page was, and has yet to be recorded as taken */
    size_t at, part_end, part_max;
    size_t *places; /* in the page, of the events of the part */
    hx_arena part_arena, reasons;
    hx_publish publish;
    bool stopping;
    void (*stopped)(void *context);
    void *stopped_context;
};

static void tick(hx_timer *timer);
static void publish_part(hx_relay *relay);

static void wait_for(hx_relay *relay, hx_ms delay)
{
    relay->state = WAITING;
    hx_timer_start(relay->needs.loop, &relay->timer, delay, tick);
}

static void log_about(const hx_relay *relay, hx_log_event event, hx_slice reason)
{
    hx_log_begin(event);
    hx_log_str("outbox", relay->needs.name);
    if (reason.len > 0) hx_log_str("reason", reason);
    hx_log_end();
}

/* Each kind of trouble is logged when it begins, and its end. */
static void note(hx_relay *relay, hx_feed_result result)
{
    static const char foreign[] = "it belongs to another store: gateways that share an outbox share a store. To move "
                                  "it to this one: UPDATE hapax.outbox SET store = NULL";
    bool was_trouble = relay->last > HX_FEED_ELSEWHERE;
    if (result == relay->last) return;
    relay->last = result;
    if (result == HX_FEED_UNAVAILABLE)
        log_about(relay, HX_EVENT_outbox_unreachable, hx_slice_of(hx_feed_why(relay->feed)));
    else if (result > HX_FEED_ELSEWHERE)
        log_about(relay, HX_EVENT_outbox_unusable,
                  hx_slice_of(result == HX_FEED_FOREIGN ? foreign : hx_feed_why(relay->feed)));
    else if (was_trouble)
        log_about(relay, HX_EVENT_outbox_usable, HX_EMPTY);
}

static void ask_next(hx_relay *relay)
{
    relay->state = ASKING;
    hx_feed_next(relay->feed, relay->is_published);
}

static void finish(hx_relay *relay)
{
    relay->state = RELEASING;
    hx_feed_release(relay->feed);
}

/* Reading events out of rows */

static void refuse(hx_relay *relay, hx_feed_row *row, hx_slice id, hx_slice reason)
{
    row->reason = hx_arena_copy(&relay->reasons, reason);
    relay->needs.engine->counts.relay_refused++;
    hx_log_begin(HX_EVENT_outbox_row_refused);
    hx_log_str("outbox", relay->needs.name);
    hx_log_int("row", row->seq);
    if (id.len > 0) hx_log_str("event_id", id);
    hx_log_str("reason", reason);
    hx_log_end();
}

static bool read_row(hx_relay *relay, hx_feed_row *row, hx_event *event)
{
    hx_error_text error;
    uint32_t most = relay->needs.engine->needs.settings.payload_bytes_max;
    if (!hx_event_read(row->event, &relay->part_arena, event, error)) {
        refuse(relay, row, HX_EMPTY, hx_slice_of(error));
        return false;
    }
    if (event->id.len == 0) {
        refuse(relay, row, HX_EMPTY, HX_LIT("\"id\" is missing"));
        return false;
    }
    if (event->data.len <= most) return true;
    refuse(relay, row, event->id,
           hx_arena_printf(&relay->part_arena, "\"data\" must have up to %u bytes (events.payload_max)", most));
    return false;
}

/* Reads the next events, up to one whose id is among them already: it is published by itself, later. */
static size_t read_part(hx_relay *relay)
{
    const hx_feed_page *page = hx_feed_read(relay->feed);
    size_t count = 0, i = relay->at;
    hx_map *keys = hx_map_new();
    hx_arena_free(&relay->part_arena);
    relay->publish.events = hx_arena_alloc(&relay->part_arena, relay->part_max * sizeof *relay->publish.events);
    relay->places = hx_arena_alloc(&relay->part_arena, relay->part_max * sizeof *relay->places);
    for (; i < page->count && count < relay->part_max; i++) {
        hx_event *event = &relay->publish.events[count];
        if (page->rows[i].reason.len > 0 || !read_row(relay, &page->rows[i], event)) continue;
        hx_slice key = hx_event_key(event, &relay->part_arena);
        if (hx_map_get(keys, key)) break;
        (void)hx_map_put(keys, key, event);
        relay->places[count++] = i;
    }
    hx_map_free(&keys);
    relay->part_end = i;
    return count;
}

/* Publishing */

static void page_is_published(hx_relay *relay)
{
    bool ends = hx_feed_read(relay->feed)->ends;
    relay->is_published = true;
    if (relay->stopping)
        finish(relay);
    else if (ends)
        wait_for(relay, relay->delay = POLL_MIN);
    else
        ask_next(relay);
}

static void retry(hx_timer *timer)
{
    publish_part(HX_OWNER(timer, hx_relay, timer));
}

static void published(hx_publish *publish)
{
    hx_relay *relay = HX_OWNER(publish, hx_relay, publish);
    bool is_away = publish->result == HX_PUBLISH_FULL || publish->result == HX_PUBLISH_UNAVAILABLE;
    if (relay->stopping) {
        finish(relay);
        return;
    }
    if (is_away) {
        relay->state = RETRYING;
        hx_timer_start(relay->needs.loop, &relay->timer, RETRY_STORE, retry);
        return;
    }
    if (publish->result == HX_PUBLISHED || publish->result == HX_PUBLISHED_BEFORE) {
        if (publish->result == HX_PUBLISHED) relay->needs.engine->counts.relayed += publish->count;
        relay->at = relay->part_end;
        relay->part_max = relay->part_max < HX_PUBLISH_MAX / 2 ? 2 * relay->part_max : HX_PUBLISH_MAX;
    } else if (publish->count > 1) {
        relay->part_max = publish->count / 2;
    } else {
        refuse(relay, &hx_feed_read(relay->feed)->rows[relay->places[0]], publish->events[0].id, publish->detail);
        relay->at = relay->part_end;
    }
    publish_part(relay);
}

static void publish_part(hx_relay *relay)
{
    const hx_feed_page *page = hx_feed_read(relay->feed);
    hx_event *events;
    size_t count = 0;
    relay->state = PUBLISHING;
    while (relay->at < page->count && (count = read_part(relay)) == 0) relay->at = relay->part_end;
    if (relay->at == page->count) {
        page_is_published(relay);
        return;
    }
    events = relay->publish.events;
    relay->publish = (hx_publish){.arena = &relay->part_arena,
                                  .events = events,
                                  .count = count,
                                  .principal = HX_EMPTY,
                                  .key = HX_EMPTY,
                                  .done = published};
    hx_engine_publish(relay->needs.engine, &relay->publish);
}

/* Asking */

static void asked(hx_relay *relay, hx_feed_result result)
{
    const hx_feed_page *page = hx_feed_read(relay->feed);
    bool was_trouble = relay->last > HX_FEED_ELSEWHERE;
    note(relay, result);
    if (result > HX_FEED_ELSEWHERE) {
        relay->delay = !was_trouble ? TROUBLE_MIN : 2 * relay->delay < TROUBLE_MAX ? 2 * relay->delay : TROUBLE_MAX;
        wait_for(relay, relay->delay);
        return;
    }
    relay->is_published = false;
    if (result == HX_FEED_ELSEWHERE) {
        wait_for(relay, ELSEWHERE_POLL);
        return;
    }
    if (page->term != relay->term) log_about(relay, HX_EVENT_outbox_held, HX_EMPTY);
    relay->term = page->term;
    if (page->count == 0) {
        relay->delay = was_trouble || 2 * relay->delay > POLL_MAX ? POLL_MAX : 2 * relay->delay;
        wait_for(relay, relay->delay);
        return;
    }
    hx_arena_free(&relay->reasons);
    relay->at = 0;
    relay->part_max = HX_PUBLISH_MAX;
    publish_part(relay);
}

static void feed_done(void *context, hx_feed_result result)
{
    hx_relay *relay = context;
    if (relay->state == RELEASING) {
        relay->state = STOPPED;
        relay->stopped(relay->stopped_context);
    } else if (relay->stopping) {
        finish(relay);
    } else if (relay->state == ROTATING) {
        note(relay, result);
        ask_next(relay);
    } else {
        asked(relay, result);
    }
}

static void tick(hx_timer *timer)
{
    hx_relay *relay = HX_OWNER(timer, hx_relay, timer);
    hx_ms now = hx_loop_now(relay->needs.loop);
    if (!hx_engine_is_ready(relay->needs.engine) || hx_engine_is_paused(relay->needs.engine)) {
        wait_for(relay, POLL_MAX);
    } else if (relay->last == HX_FEED_OK && relay->term > 0 && now - relay->rotated_at >= ROTATE_INTERVAL) {
        relay->rotated_at = now;
        relay->state = ROTATING;
        hx_feed_rotate(relay->feed);
    } else {
        ask_next(relay);
    }
}

/* Gateways of one store have the same mark, and others don't. */
static hx_digest mark_of(const hx_engine *engine)
{
    hx_mac *mac = hx_engine_new_mac(engine);
    hx_mac_begin(mac, TAG_OUTBOX);
    hx_digest digest = hx_mac_end(mac);
    hx_mac_free(&mac);
    return digest;
}

hx_relay *hx_relay_new(const hx_relay_needs *needs, hx_error_text error)
{
    hx_relay *relay = calloc(1, sizeof *relay);
    if (!relay) hx_fatal(HX_EXIT_BUG, "out of memory");
    relay->needs = *needs;
    relay->delay = POLL_MIN;
    relay->mark = mark_of(needs->engine);
    relay->feed = hx_feed_new(&(hx_feed_needs){.loop = needs->loop,
                                               .url = needs->url,
                                               .mark = {(const char *)relay->mark.bytes, MARK_BYTES},
                                               .done = feed_done,
                                               .context = relay},
                              error);
    if (!relay->feed) hx_relay_free(&relay);
    return relay;
}

void hx_relay_start(hx_relay *relay)
{
    wait_for(relay, 0);
}

void hx_relay_stop(hx_relay *relay, void (*stopped)(void *context), void *context)
{
    relay->stopping = true;
    relay->stopped = stopped;
    relay->stopped_context = context;
    if (relay->state == WAITING || relay->state == RETRYING) {
        hx_timer_stop(relay->needs.loop, &relay->timer);
        finish(relay);
    } else if (relay->state != PUBLISHING) {
        hx_feed_hurry(relay->feed);
    }
}

void hx_relay_free(hx_relay **owned)
{
    hx_relay *relay = *owned;
    if (!relay) return;
    *owned = NULL;
    hx_timer_stop(relay->needs.loop, &relay->timer);
    hx_feed_free(&relay->feed);
    hx_arena_free(&relay->part_arena);
    hx_arena_free(&relay->reasons);
    free(relay);
}
