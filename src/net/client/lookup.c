/* SPDX-License-Identifier: Apache-2.0 */
/* (none) --[hx_lookup_wait]--> QUEUED --[start_queued]--> RUNNING --[look_up_done]--> KNOWN
 *    KNOWN --too old [hx_lookup_find, hx_lookup_wait]--> QUEUED
 *
 * An entry keeps the addresses of its last good lookup in every state. One that has some goes to the front of the
 * queue: names that never resolve must not keep those waiting that do. */
#include "net/client/lookup.h"

#include "base/check.h"
#include "base/loop/offload.h"
#include "base/memory/map.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char name[HX_LOOKUP_NAME_BYTES];
    char addresses[HX_LOOKUP_ADDRESSES_MAX * (INET6_ADDRSTRLEN + 3)];
    int error; /* getaddrinfo's */
} result;

typedef struct {
    result last; /* the addresses are those of the last good one */
    enum { QUEUED, RUNNING, KNOWN } state;
    hx_lookup *lookup;
    hx_offload *offload; /* RUNNING */
    hx_ms fresh_until, usable_until;
    hx_link waiters;
    hx_link queue;  /* QUEUED */
    hx_link by_use; /* the least recently used first */
} entry;

struct hx_lookup {
    hx_loop *loop;
    hx_map *entries;
    hx_link queue;
    hx_link by_use;
    unsigned running;
};

static void look_up(void *memory)
{
    result *r = memory;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    r->error = getaddrinfo(r->name, NULL, &hints, &found);
    if (r->error != 0) return;
    unsigned count = 0;
    size_t len = 0;
    for (const struct addrinfo *a = found; a && count < HX_LOOKUP_ADDRESSES_MAX; a = a->ai_next) {
        char text[INET6_ADDRSTRLEN];
        bool is_v4 = a->ai_family == AF_INET;
        const void *bytes = is_v4 ? (const void *)&((const struct sockaddr_in *)(const void *)a->ai_addr)->sin_addr
                                  : &((const struct sockaddr_in6 *)(const void *)a->ai_addr)->sin6_addr;
        if ((!is_v4 && a->ai_family != AF_INET6) || !inet_ntop(a->ai_family, bytes, text, sizeof text)) continue;
        const char *format = is_v4 ? "%s%s" : "%s[%s]";
        len += (size_t)snprintf(r->addresses + len, sizeof r->addresses - len, format, count++ > 0 ? "," : "", text);
    }
    freeaddrinfo(found);
    if (count == 0) r->error = EAI_NODATA;
}

static hx_lookup_answer answer_of(const entry *e)
{
    bool has_addresses = e->last.addresses[0] != '\0' && hx_loop_now(e->lookup->loop) < e->usable_until;
    return (hx_lookup_answer){has_addresses ? e->last.addresses : NULL, gai_strerror(e->last.error)};
}

static void start_queued(hx_lookup *lookup);

static void look_up_done(void *context, void *memory)
{
    entry *e = context;
    const result *found = memory;
    hx_lookup *lookup = e->lookup;
    hx_ms now = hx_loop_now(lookup->loop);
    e->state = KNOWN;
    e->last.error = found->error;
    e->fresh_until = now + (found->error == 0 ? HX_LOOKUP_FOUND_FOR : HX_LOOKUP_FAILED_FOR);
    if (found->error == 0) {
        memcpy(e->last.addresses, found->addresses, sizeof found->addresses);
        e->usable_until = e->fresh_until + HX_LOOKUP_STALE_FOR;
    } else if (found->error == EAI_NONAME) {
        e->usable_until = 0;
    }
    hx_offload_free(&e->offload);
    lookup->running--;
    start_queued(lookup);
    /* Whoever is called may look up other names, for which this entry may be forgotten. */
    char addresses[sizeof e->last.addresses];
    hx_lookup_answer answer = answer_of(e);
    memcpy(addresses, e->last.addresses, sizeof addresses);
    if (answer.addresses) answer.addresses = addresses;
    hx_link waiters;
    hx_list_init(&waiters);
    hx_list_splice(&waiters, &e->waiters);
    for (hx_link *link; (link = hx_list_take(&waiters));) {
        hx_lookup_waiter *waiter = HX_OWNER(link, hx_lookup_waiter, link);
        hx_timer_stop(lookup->loop, &waiter->timer);
        waiter->done(waiter, &answer);
    }
}

static void start_queued(hx_lookup *lookup)
{
    while (lookup->running < HX_LOOKUP_RUNNING_MAX && !hx_list_empty(&lookup->queue)) {
        entry *e = HX_OWNER(lookup->queue.next, entry, queue);
        if (hx_list_empty(&e->waiters) && !answer_of(e).addresses) { /* nobody waits for it any more */
            hx_list_remove(&e->queue);
            e->state = KNOWN;
            continue;
        }
        result *r = calloc(1, sizeof *r);
        if (!r) hx_fatal(HX_EXIT_BUG, "out of memory");
        memcpy(r->name, e->last.name, sizeof r->name);
        e->offload = hx_offload_start(lookup->loop, r, look_up, look_up_done, e);
        if (!e->offload)
            return; /* no thread can be started now: it stays in the queue, and its waiters have their time */
        e->state = RUNNING;
        hx_list_remove(&e->queue);
        lookup->running++;
    }
}

static void enqueue(entry *e)
{
    if (e->state == KNOWN) {
        e->state = QUEUED;
        hx_list_append(answer_of(e).addresses ? e->lookup->queue.next : &e->lookup->queue, &e->queue);
    }
    start_queued(e->lookup);
}

static void forget(entry *e)
{
    hx_map_remove(e->lookup->entries, hx_slice_of(e->last.name));
    hx_list_remove(&e->by_use);
    free(e);
}

/* NULL: as many names as allowed are being looked up. */
static entry *entry_new(hx_lookup *lookup, hx_slice name)
{
    HX_EACH(link, &lookup->by_use)
    {
        if (hx_map_count(lookup->entries) < HX_LOOKUP_NAMES_MAX) break;
        entry *old = HX_OWNER(link, entry, by_use);
        if (old->state == KNOWN) forget(old);
    }
    if (hx_map_count(lookup->entries) >= HX_LOOKUP_NAMES_MAX) return NULL;
    entry *e = calloc(1, sizeof *e);
    if (!e) hx_fatal(HX_EXIT_BUG, "out of memory");
    HX_CHECK(name.len < sizeof e->last.name);
    memcpy(e->last.name, name.ptr, name.len);
    e->state = KNOWN;
    e->lookup = lookup;
    hx_list_init(&e->waiters);
    hx_list_append(&lookup->by_use, &e->by_use);
    (void)hx_map_put(lookup->entries, hx_slice_of(e->last.name), e);
    return e;
}

bool hx_lookup_find(hx_lookup *lookup, hx_slice name, hx_lookup_answer *answer)
{
    entry *e = hx_map_get(lookup->entries, name);
    if (!e) return false;
    hx_list_remove(&e->by_use);
    hx_list_append(&lookup->by_use, &e->by_use);
    *answer = answer_of(e);
    if (hx_loop_now(lookup->loop) < e->fresh_until) return true;
    if (answer->addresses) enqueue(e);
    return answer->addresses != NULL;
}

static void time_over(hx_timer *timer)
{
    hx_lookup_waiter *waiter = HX_OWNER(timer, hx_lookup_waiter, timer);
    bool was_asked = !hx_list_empty(&waiter->link);
    hx_lookup_answer none = {NULL,
                             was_asked ? "no name server answered in time" : "too many names are being looked up"};
    hx_list_remove(&waiter->link);
    waiter->done(waiter, &none);
}

void hx_lookup_wait(hx_lookup *lookup, hx_slice name, hx_ms time_max, hx_lookup_waiter *waiter)
{
    entry *e = hx_map_get(lookup->entries, name);
    if (!e) e = entry_new(lookup, name);
    waiter->lookup = lookup;
    hx_list_init(&waiter->link);
    if (e) {
        hx_list_append(&e->waiters, &waiter->link);
        enqueue(e);
    }
    hx_timer_start(lookup->loop, &waiter->timer, e ? time_max : 0, time_over);
}

void hx_lookup_leave(hx_lookup_waiter *waiter)
{
    hx_list_remove(&waiter->link);
    hx_timer_stop(waiter->lookup->loop, &waiter->timer);
}

hx_lookup *hx_lookup_new(hx_loop *loop)
{
    hx_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup) hx_fatal(HX_EXIT_BUG, "out of memory");
    lookup->loop = loop;
    lookup->entries = hx_map_new();
    hx_list_init(&lookup->queue);
    hx_list_init(&lookup->by_use);
    return lookup;
}

void hx_lookup_free(hx_lookup **owned)
{
    if (!*owned) return;
    HX_EACH(link, &(*owned)->by_use)
    {
        entry *e = HX_OWNER(link, entry, by_use);
        hx_offload_free(&e->offload);
        forget(e);
    }
    hx_map_free(&(*owned)->entries);
    free(*owned);
    *owned = NULL;
}
