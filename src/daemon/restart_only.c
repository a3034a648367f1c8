/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/restart_only.h"

#include "base/check.h"
#include "config/describe/source_fields.h"
#include "config/options.h"

#include <string.h>

#define SOURCES_BYTES_MAX (4u << 20) /* their options are bounded */

static bool addresses_differ(const hx_slice *a, size_t a_count, const hx_slice *b, size_t b_count)
{
    if (a_count != b_count) return true;
    for (size_t i = 0; i < a_count; i++)
        if (!hx_slice_eq(a[i], b[i])) return true;
    return false;
}

static bool listen_differs(const hx_config *a, const hx_config *b)
{
    return addresses_differ(a->listen, a->listen_count, b->listen, b->listen_count);
}

/* Its other options may change. */
static bool api_differs(const hx_config *a, const hx_config *b)
{
    return a->api.connections != b->api.connections ||
           addresses_differ(a->api.listen, a->api.listen_count, b->api.listen, b->api.listen_count);
}

static bool upstream_differs(const hx_config *a, const hx_config *b)
{
    if (a->upstream_count != b->upstream_count) return true;
    for (size_t i = 0; i < a->upstream_count; i++)
        if (!hx_slice_eq(a->upstreams[i].name, b->upstreams[i].name) ||
            !hx_slice_eq(a->upstreams[i].url, b->upstreams[i].url))
            return true;
    return false;
}

static bool store_differs(const hx_config *a, const hx_config *b)
{
    return !hx_slice_eq(a->store, b->store);
}

static bool workers_differ(const hx_config *a, const hx_config *b)
{
    return a->workers != b->workers;
}

static bool admin_differs(const hx_config *a, const hx_config *b)
{
    return a->admin_off != b->admin_off || !hx_slice_eq(a->admin_listen, b->admin_listen);
}

static bool core_dumps_differ(const hx_config *a, const hx_config *b)
{
    return a->core_dumps != b->core_dumps;
}

static bool inbox_differs(const hx_config *a, const hx_config *b)
{
    if (a->inbox.listen_count != b->inbox.listen_count || !hx_slice_eq(a->inbox.path, b->inbox.path)) return true;
    for (size_t i = 0; i < a->inbox.listen_count; i++)
        if (!hx_slice_eq(a->inbox.listen[i], b->inbox.listen[i])) return true;
    return false;
}

static hx_slice sources_text(const hx_config *config, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, SOURCES_BYTES_MAX);
    for (size_t i = 0; i < config->source_count; i++) hx_describe_source_json(&config->sources[i], &out);
    return out.len > 0 ? hx_buf_slice(&out) : HX_EMPTY;
}

static bool sources_differ(const hx_config *a, const hx_config *b)
{
    hx_arena arena = {0};
    bool differ = !hx_slice_eq(sources_text(a, &arena), sources_text(b, &arena));
    hx_arena_free(&arena);
    return differ;
}

static bool endpoints_differ(const hx_config_events *a, const hx_config_events *b)
{
    if (a->endpoint_count != b->endpoint_count) return true;
    for (size_t i = 0; i < a->endpoint_count; i++) {
        const hx_config_endpoint *one = &a->endpoints[i], *other = &b->endpoints[i];
        if (!hx_slice_eq(one->name, other->name) || !hx_slice_eq(one->given, other->given)) return true;
        if (one->place_count != other->place_count) return true;
        for (size_t k = 0; k < one->place_count; k++)
            if (!hx_slice_eq(one->places[k].name, other->places[k].name)) return true;
    }
    return false;
}

static bool events_differ(const hx_config *a, const hx_config *b)
{
    if (a->events.stream_count != b->events.stream_count) return true;
    for (size_t i = 0; i < a->events.stream_count; i++)
        if (!hx_slice_eq(a->events.streams[i].match, b->events.streams[i].match) ||
            a->events.streams[i].retention != b->events.streams[i].retention)
            return true;
    /* Up to ca_file there are only numbers. */
    return memcmp(&a->events, &b->events, offsetof(hx_config_events, ca_file)) != 0 ||
           !hx_slice_eq(a->events.ca_file, b->events.ca_file) || endpoints_differ(&a->events, &b->events);
}

static bool outbox_differs(const hx_config *a, const hx_config *b)
{
    if (a->outbox_count != b->outbox_count) return true;
    for (size_t i = 0; i < a->outbox_count; i++)
        if (!hx_slice_eq(a->outboxes[i].name, b->outboxes[i].name) ||
            !hx_slice_eq(a->outboxes[i].database, b->outboxes[i].database))
            return true;
    return false;
}

static const struct {
    const char *name;
    bool (*differs)(const hx_config *a, const hx_config *b);
} comparisons[] = {
    {"listen", listen_differs},        {"upstream", upstream_differs}, {"store", store_differs},
    {"workers", workers_differ},       {"admin", admin_differs},       {"api", api_differs},
    {"core_dumps", core_dumps_differ}, {"inbox", inbox_differs},       {"sources", sources_differ},
    {"events", events_differ},         {"outbox", outbox_differs},
};

static bool differs(const char *name, const hx_config *running, const hx_config *next)
{
    for (size_t i = 0; i < sizeof comparisons / sizeof comparisons[0]; i++)
        if (hx_slice_eq(hx_slice_of(name), hx_slice_of(comparisons[i].name)))
            return comparisons[i].differs(running, next);
    hx_check_failed(__FILE__, __LINE__, "every option that can't change while running is compared");
}

size_t hx_restart_only_differ(const hx_config *running, const hx_config *next, hx_buf *problems)
{
    size_t count = 0, option_count;
    const hx_option *options = hx_options(&option_count);
    for (size_t i = 0; i < option_count; i++) {
        const hx_option *option = &options[i];
        if (option->place != HX_PLACE_TOP || (option->flags & HX_OPTION_RELOAD) != 0) continue;
        if (!differs(option->name, running, next)) continue;
        bool fits = hx_buf_printf(problems, "%s: \"%s\" can't change while running: that needs a restart\n",
                                  next->file ? next->file : "hapax", option->name);
        (void)fits;
        count++;
    }
    return count;
}
