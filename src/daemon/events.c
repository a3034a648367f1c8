/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/events.h"

#include "base/check.h"
#include "base/log.h"
#include "events/client_sender.h"
#include "events/inbox/inbox_server.h"
#include "events/relay.h"
#include "events/inbox/source_secrets.h"

#include <stdio.h>
#include <stdlib.h>

#define PER_HOST_MAX 256u
#define WAITING_MAX 65536u
#define LOOKUP_TIMEOUT (5 * HX_SECOND)
#define IDLE_TIMEOUT (30 * HX_SECOND)

struct hx_daemon_events {
    hx_daemon_events_needs needs;
    hx_arena arena;
    hx_guard guard;    /* of endpoints, whose URLs others choose */
    hx_guard no_guard; /* of applications, whose URLs are the operator's */
    hx_network everything[2];
    hx_client *endpoints, *applications;
    hx_engine *engine;
    hx_source *sources;
    hx_endpoint *configured;
    hx_inbox_server *inbox; /* NULL: there are no sources */
    hx_relay *relays[HX_OUTBOXES_MAX];
    size_t relay_count;
    size_t running; /* of them, that have not been stopped */
    void (*stopped)(void *context);
    void *stopped_context;
};

static int fail(const char *what, const char *why, int code)
{
    fprintf(stderr, "hapax: %s: %s\n", what, why);
    return code;
}

static hx_client *new_client(const hx_daemon_events *events, const hx_guard *guard, hx_error_text error)
{
    const hx_config_events *config = &events->needs.config->events;
    hx_client_limits limits = {.connections_max = events->needs.connections_max,
                               .requests_per_host_max = PER_HOST_MAX,
                               .waiting_max = WAITING_MAX,
                               .lookup_timeout = LOOKUP_TIMEOUT,
                               .idle_timeout = IDLE_TIMEOUT};
    if (config->ca_file.len > 0) limits.ca_file = hx_arena_terminated((hx_arena *)&events->arena, config->ca_file);
    return hx_client_new(events->needs.loop, &limits, guard, error);
}

static int open_clients(hx_daemon_events *events)
{
    const hx_config_events *config = &events->needs.config->events;
    hx_error_text error;
    events->everything[0].bits = 0; /* ::/0 */
    bool is_network = hx_network_parse(HX_LIT("0.0.0.0/0"), &events->everything[1], error);
    HX_CHECK(is_network);
    events->guard = (hx_guard){.allowed = config->allow, .allowed_count = config->allow_count};
    events->no_guard = (hx_guard){.allowed = events->everything, .allowed_count = 2};
    events->endpoints = new_client(events, &events->guard, error);
    if (events->endpoints) events->applications = new_client(events, &events->no_guard, error);
    return events->applications ? 0 : fail("events", error, HX_EXIT_USAGE);
}

static int open_inbox(hx_daemon_events *events)
{
    const hx_config *config = events->needs.config;
    hx_error_text error;
    char bound[HX_ADDRESS_BYTES];
    if (config->source_count == 0) return 0;
    events->sources = hx_arena_alloc(&events->arena, config->source_count * sizeof *events->sources);
    for (size_t i = 0; i < config->source_count; i++) {
        events->sources[i] = config->sources[i];
        if (!hx_source_open(&events->sources[i], &events->arena, error)) return fail("inbox", error, HX_EXIT_USAGE);
    }
    events->inbox = hx_inbox_server_new(events->needs.loop, events->engine, events->sources, config->source_count);
    if (config->inbox.path.len > 0)
        hx_inbox_server_set_path(events->inbox, hx_arena_printf(&events->arena, "%.*s/", HX_FMT(config->inbox.path)));
    for (size_t i = 0; i < config->inbox.listen_count; i++) {
        if (!hx_inbox_server_listen(events->inbox, config->inbox.listen[i], bound, error))
            return fail("inbox", error, HX_EXIT_ADDRESS);
        hx_log_begin(HX_EVENT_inbox_listening);
        hx_log_text("address", bound);
        hx_log_end();
    }
    return 0;
}

static int open_relays(hx_daemon_events *events)
{
    const hx_config *config = events->needs.config;
    hx_error_text error;
    for (size_t i = 0; i < config->outbox_count; i++) {
        hx_relay_needs needs = {.loop = events->needs.loop,
                                .engine = events->engine,
                                .name = config->outboxes[i].name,
                                .url = config->outboxes[i].database};
        events->relays[i] = hx_relay_new(&needs, error);
        if (!events->relays[i]) return fail("outbox", error, HX_EXIT_USAGE);
        events->relay_count++;
    }
    return 0;
}

/* Reads the secrets of the endpoints of the configuration. */
static int open_endpoints(hx_daemon_events *events)
{
    const hx_config_events *config = &events->needs.config->events;
    const hx_webhook_scheme *scheme = hx_webhook_scheme_named(HX_LIT("standard"));
    hx_arena *arena = &events->arena;
    events->configured = hx_arena_alloc(arena, (config->endpoint_count + 1) * sizeof *events->configured);
    for (size_t i = 0; i < config->endpoint_count; i++) {
        const hx_config_endpoint *given = &config->endpoints[i];
        hx_endpoint *endpoint = &events->configured[i];
        *endpoint = given->endpoint;
        endpoint->id = hx_arena_printf(arena, "cfg_%.*s", HX_FMT(given->name));
        endpoint->configured = true;
        endpoint->secrets.items = hx_arena_alloc(arena, (given->place_count + 1) * sizeof *endpoint->secrets.items);
        endpoint->secrets.count = given->place_count;
        for (size_t k = 0; k < given->place_count; k++) {
            hx_webhook_secret secret;
            const char *wrong = hx_source_secret(scheme, &given->places[k], arena, &endpoint->secrets.items[k],
                                                 &secret);
            if (!wrong) wrong = hx_endpoint_secret_error(endpoint->secrets.items[k], arena);
            if (wrong)
                return fail(hx_arena_printf(arena, "endpoint %.*s", HX_FMT(given->name)).ptr, wrong, HX_EXIT_USAGE);
        }
    }
    return 0;
}

static hx_engine *new_engine(const hx_daemon_events *events)
{
    const hx_config_events *config = &events->needs.config->events;
    return hx_engine_new(&(hx_engine_needs){.loop = events->needs.loop,
                                            .store = events->needs.store,
                                            .endpoints = hx_sender_by_client(events->endpoints),
                                            .applications = hx_sender_by_client(events->applications),
                                            .configured = events->configured,
                                            .configured_count = config->endpoint_count,
                                            .settings = {.attempts_max = config->attempts,
                                                         .retention = config->retention,
                                                         .dead_retention = config->dead_retention,
                                                         .disable_after = config->disable_after,
                                                         .pause_max = config->pause_max,
                                                         .payload_bytes_max = config->payload_bytes_max,
                                                         .streams = config->streams,
                                                         .stream_count = config->stream_count,
                                                         .response_bytes_max = config->response_bytes_max}});
}

int hx_daemon_events_open(const hx_daemon_events_needs *needs, hx_daemon_events **out)
{
    const hx_config *config = needs->config;
    *out = NULL;
    if (config->api.listen_count == 0 && config->source_count == 0 && config->outbox_count == 0) return 0;
    if (!hx_store_about(needs->store)->keeps_items)
        return fail("events", "this store keeps no events: use a journal, SQLite or PostgreSQL", HX_EXIT_USAGE);
    hx_daemon_events *events = calloc(1, sizeof *events);
    HX_CHECK(events != NULL);
    *out = events;
    events->needs = *needs;
    int code = open_clients(events);
    if (code == 0) code = open_endpoints(events);
    if (code != 0) return code;
    events->engine = new_engine(events);
    code = open_relays(events);
    return code != 0 ? code : open_inbox(events);
}

hx_engine *hx_daemon_events_engine(const hx_daemon_events *events)
{
    return events ? events->engine : NULL;
}

hx_inbox_server *hx_daemon_events_inbox(const hx_daemon_events *events)
{
    return events ? events->inbox : NULL;
}

void hx_daemon_events_start(hx_daemon_events *events)
{
    if (!events) return;
    hx_engine_start(events->engine);
    for (size_t i = 0; i < events->relay_count; i++) hx_relay_start(events->relays[i]);
    events->running = events->relay_count;
}

void hx_daemon_events_stop_inbox(hx_daemon_events *events, void (*stopped)(void *context), void *context)
{
    if (events && events->inbox)
        hx_inbox_server_stop(events->inbox, stopped, context);
    else
        stopped(context);
}

static void stop_next(void *context)
{
    hx_daemon_events *events = context;
    if (events->running > 0)
        hx_relay_stop(events->relays[--events->running], stop_next, events);
    else
        hx_engine_stop(events->engine, events->stopped, events->stopped_context);
}

void hx_daemon_events_stop(hx_daemon_events *events, void (*stopped)(void *context), void *context)
{
    if (!events) {
        stopped(context);
        return;
    }
    events->stopped = stopped;
    events->stopped_context = context;
    stop_next(events);
}

void hx_daemon_events_free(hx_daemon_events **owned)
{
    hx_daemon_events *events = *owned;
    if (!events) return;
    *owned = NULL;
    hx_inbox_server_free(&events->inbox);
    for (size_t i = 0; i < events->relay_count; i++) hx_relay_free(&events->relays[i]);
    if (events->endpoints) hx_client_free(&events->endpoints);
    if (events->applications) hx_client_free(&events->applications);
    hx_engine_free(&events->engine);
    hx_arena_free(&events->arena);
    free(events);
}
