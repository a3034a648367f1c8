/* SPDX-License-Identifier: Apache-2.0 */
/* A follower is a call whose response has no end: the events of a stream as server-sent events. It holds one page at a
 * time, and reads the next only when its client has taken this one, so that a slow client costs no memory; one that
 * takes nothing for as long as the server's send_timeout is reset, and goes on with Last-Event-ID.
 *
 *     READING ──[page_read]──► WRITING ──[page is written]──► WAITING ──[woken, tick]──► READING …
 *                                 └─[drained]─┘                       a publish here; on a shared store every second */
#include "admin/events/streams.h"

#include "admin/events/views.h"

#define PAGE_EVENTS 100u
#define PAGE_BYTES_MAX (1u << 20) /* of data */
#define TICK HX_SECOND
#define HEARTBEAT (15 * HX_SECOND)
#define TOKEN_CHECK (3 * HX_SECOND)

typedef struct {
    hx_admin_call *call;
    hx_admin_place place; /* `after`: the last event that was written */
    hx_link link;
    hx_stream_watch watch;
    hx_timer timer;
    hx_arena arena; /* of the page */
    hx_reading reading;
    size_t at; /* the page's next event to be written */
    hx_ms spoke_at, checked_at;
    struct {
        hx_arena arena;
        hx_store_call store;
        hx_item item;
    } token;
    bool has_begun; /* its response */
    bool is_reading, is_checking;
    bool is_blocked; /* until the client has read */
    bool look_again; /* something may have come since the page was read */
    bool is_over, is_gone;
} follower;

static void read_page(follower *f);

/* False: a call of the store is under way, and will end the follower. */
static bool tear_down(follower *f)
{
    hx_admin *admin = f->call->admin;
    f->is_over = true;
    if (f->is_reading || f->is_checking) return false;
    f->call->stream->events = (hx_stream_events){0};
    hx_timer_stop(admin->needs.loop, &f->timer);
    hx_engine_unwatch(admin->needs.engine, &f->watch);
    hx_list_remove(&f->link);
    admin->follower_count--;
    hx_arena_free(&f->arena);
    hx_arena_free(&f->token.arena);
    return true;
}

static void end(follower *f)
{
    if (!tear_down(f)) return;
    if (f->is_blocked && !f->is_gone)
        hx_stream_abort(f->call->stream); /* a client that doesn't read would hold up the stop */
    else if (f->has_begun && !f->is_gone)
        hx_stream_end(f->call->stream);
    hx_admin_end(f->call);
}

static bool write_text(follower *f, hx_slice text)
{
    f->spoke_at = hx_loop_now(f->call->admin->needs.loop);
    f->is_blocked = !hx_stream_write(f->call->stream, text);
    return !f->is_blocked;
}

/* A line break in the data can only be white space between tokens of JSON. */
static bool write_event(follower *f, size_t number)
{
    const hx_event *event = &f->reading.events[number];
    hx_buf out;
    hx_buf_init(&out, &f->arena, hx_view_event_bytes(&f->reading.items[number]) + 512);
    hx_buf_put(&out, hx_arena_printf(&f->arena, "id: %llu\nevent: %.*s\ndata: ", (unsigned long long)event->position,
                                     HX_FMT(event->type)));
    size_t begin = out.len;
    hx_buf_puts(&out, "{");
    hx_view_event(&out, event, true);
    hx_buf_puts(&out, "}");
    for (size_t i = begin; i < out.len; i++)
        if (out.data[i] == '\n' || out.data[i] == '\r') out.data[i] = ' ';
    hx_buf_puts(&out, "\n\n");
    f->place.after = event->position;
    return write_text(f, hx_buf_slice(&out));
}

static void write_page(follower *f)
{
    while (f->at < f->reading.count)
        if (!write_event(f, f->at++)) return;
    bool has_more = f->reading.count > 0 && f->reading.last > f->place.after;
    f->at = f->reading.count = 0;
    hx_arena_free(&f->arena);
    if (has_more || f->look_again) read_page(f);
}

static void begin_response(follower *f)
{
    hx_slice generation = HX_EMPTY;
    if (f->place.consumer.len > 0)
        generation = hx_arena_printf(f->call->arena, "Hapax-Generation: %llu\r\n",
                                     (unsigned long long)f->place.generation);
    hx_slice lines = hx_arena_printf(f->call->arena,
                                     "Content-Type: text/event-stream\r\nCache-Control: no-store\r\n%.*s",
                                     HX_FMT(generation));
    f->has_begun = true;
    hx_stream_begin(f->call->stream, 200, HX_EMPTY, lines, -1);
    (void)write_text(f, HX_LIT(":\n\n")); /* so that the client knows it is connected */
}

static void page_read(hx_reading *reading)
{
    follower *f = HX_OWNER(reading, follower, reading);
    f->is_reading = false;
    bool is_gone = f->has_begun && reading->result == HX_READING_GONE; /* the client comes again, and is told */
    if (f->is_over || is_gone) {
        end(f);
    } else if (reading->result == HX_READING_DONE) {
        if (!f->has_begun) begin_response(f);
        if (!f->is_blocked) write_page(f);
    } else if (!f->has_begun) {
        hx_reading failed = {.result = reading->result,
                             .stream = f->place.stream,
                             .after = reading->after,
                             .oldest = reading->oldest,
                             .last = reading->last};
        if (tear_down(f)) hx_admin_refuse_reading(f->call, &failed);
    } else {
        f->look_again = true; /* at the next tick */
        hx_arena_free(&f->arena);
    }
}

static void read_page(follower *f)
{
    f->is_reading = true;
    f->look_again = false;
    f->reading = (hx_reading){.arena = &f->arena,
                              .tenant = f->place.tenant,
                              .stream = f->place.stream,
                              .after = f->place.after,
                              .events_max = PAGE_EVENTS,
                              .bytes_max = PAGE_BYTES_MAX,
                              .done = page_read};
    hx_engine_read_stream(f->call->admin->needs.engine, &f->reading);
}

static bool is_waiting(const follower *f)
{
    return !f->is_reading && !f->is_blocked && !f->is_over && f->has_begun;
}

static void woken(hx_stream_watch *watch)
{
    follower *f = HX_OWNER(watch, follower, watch);
    if (is_waiting(f))
        read_page(f);
    else
        f->look_again = true;
}

static void drained(hx_stream *stream)
{
    follower *f = ((hx_admin_call *)stream->user)->follower;
    f->is_blocked = false;
    if (is_waiting(f)) write_page(f);
}

static void closed(hx_stream *stream)
{
    follower *f = ((hx_admin_call *)stream->user)->follower;
    f->is_gone = true;
    end(f);
}

static void token_checked(hx_store_call *store)
{
    follower *f = HX_OWNER(store, follower, token.store);
    bool is_revoked = store->result == HX_STORE_OK && f->token.item.version == 0;
    f->is_checking = false;
    hx_arena_free(&f->token.arena);
    if (f->is_over || is_revoked) end(f);
}

static void check_token(follower *f)
{
    hx_admin *admin = f->call->admin;
    f->is_checking = true;
    f->checked_at = hx_loop_now(admin->needs.loop);
    f->token.item = (hx_item){.key = f->call->item.key};
    f->token.store = hx_admin_store_call(admin, &f->token.arena, token_checked);
    hx_store_get(admin->needs.store, &f->token.store, &f->token.item, 1);
}

static void tick(hx_timer *timer)
{
    follower *f = HX_OWNER(timer, follower, timer);
    hx_admin *admin = f->call->admin;
    hx_ms now = hx_loop_now(admin->needs.loop);
    hx_timer_start(admin->needs.loop, timer, TICK, tick);
    if (is_waiting(f) && now - f->spoke_at >= HEARTBEAT) (void)write_text(f, HX_LIT(":\n\n"));
    if (is_waiting(f) && (f->look_again || hx_store_about(admin->needs.store)->shared)) read_page(f);
    bool has_token = f->call->who.kind == HX_ADMIN_CALLER_TOKEN;
    if (has_token && !f->is_checking && now - f->checked_at >= TOKEN_CHECK) check_token(f);
}

void hx_admin_stop_followers(hx_admin *admin)
{
    HX_EACH(link, &admin->followers)
    {
        end(HX_OWNER(link, follower, link));
    }
}

void hx_admin_follow(hx_admin_call *call, const hx_admin_place *place)
{
    hx_admin *admin = call->admin;
    if (admin->stopping || admin->follower_count >= admin->needs.rules->config->api.readers_max) {
        hx_admin_refuse_with(call, HX_ADMIN_READERS, HX_EMPTY, HX_LIT("Retry-After: 5\r\n"));
        return;
    }
    follower *f = hx_arena_zalloc(call->arena, sizeof *f);
    f->call = call;
    f->place = *place;
    f->watch.woken = woken;
    f->spoke_at = f->checked_at = hx_loop_now(admin->needs.loop);
    call->follower = f;
    call->stream->events = (hx_stream_events){.drained = drained, .closed = closed};
    admin->follower_count++;
    hx_list_append(&admin->followers, &f->link);
    hx_engine_watch(admin->needs.engine, place->tenant, place->stream, &f->watch);
    hx_timer_start(admin->needs.loop, &f->timer, TICK, tick);
    read_page(f);
}
