/* SPDX-License-Identifier: Apache-2.0 */
/*    hx_client_start --> WAITING --[dispatch]--> ACTIVE --[end]--> OVER --[deliver]--> done()
 *                        WAITING --time over, cancelled, no address [end]--> OVER
 *
 * `done` is called in one place, deliver(), from a timer: never inside a function of the client or a callback of
 * libcurl, and so it may start and cancel requests as it likes. A handle is taken from dispatch() until after `done`,
 * which reads the response from it. */
#include "net/client/client.h"

#include "base/check.h"
#include "base/memory/map.h"
#include "net/client/handle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One host and port, while there are requests for it. */
typedef struct hx_client_host {
    hx_client *client;
    char key[HX_LOOKUP_NAME_BYTES + 8];
    hx_client_address address;
    hx_link line;      /* WAITING requests */
    hx_link ready;     /* in client->ready: a request could be sent */
    uint32_t requests; /* in all states */
    uint32_t active;
    bool is_looking_up;
    hx_lookup_waiter waiter;
} host;

struct hx_client {
    hx_loop *loop;
    const hx_libcurl *curl;
    const hx_guard *guard;
    hx_client_limits limits;
    hx_multi *multi;
    hx_lookup *lookup;
    hx_map *hosts;
    hx_link ready;   /* hosts, the next first */
    hx_link all;     /* requests */
    hx_link over;    /* requests whose `done` is due */
    hx_link handles; /* that have no request */
    uint32_t active, waiting;
    hx_timer soon; /* runs advance() */
};

const char *hx_client_error_text(hx_client_error error)
{
    static const char *const texts[] = {
#define X(name, text) text,
        HX_CLIENT_ERRORS(X)
#undef X
    };
    return texts[error];
}

static void advance(hx_timer *timer);

static void wake(hx_client *client)
{
    if (!hx_timer_running(&client->soon)) hx_timer_start(client->loop, &client->soon, 0, advance);
}

/* Called after each change of what the answer depends on. */
static void update_ready(host *h)
{
    hx_client *client = h->client;
    bool was_ready = !hx_list_empty(&h->ready);
    bool is_ready = !hx_list_empty(&h->line) && !h->is_looking_up && h->active < client->limits.requests_per_host_max;
    if (is_ready && !was_ready) hx_list_append(&client->ready, &h->ready);
    if (!is_ready && was_ready) hx_list_remove(&h->ready);
}

static void end(hx_client_request *request, hx_client_error error, const char *reason)
{
    hx_client *client = request->own.client;
    if (request->own.state == HX_CLIENT_OVER) return;
    HX_CHECK((request->own.state == HX_CLIENT_ACTIVE) == (request->own.handle != NULL));
    if (request->own.handle)
        hx_multi_remove(client->multi, request->own.handle->easy);
    else
        client->waiting--;
    hx_timer_stop(client->loop, &request->own.timer);
    hx_list_remove(&request->own.link);
    hx_list_append(&client->over, &request->own.link);
    if (request->own.host) update_ready(request->own.host);
    request->own.state = HX_CLIENT_OVER;
    request->own.error = error;
    request->own.reason = reason;
    wake(client);
}

static void transfer_ended(void *context, CURL *easy, CURLcode code)
{
    const hx_client *client = context;
    hx_handle *handle = NULL;
    const char *reason;
    (void)client->curl->easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&handle);
    HX_CHECK(handle && handle->request);
    hx_client_error error = hx_handle_judge(handle, code, &reason);
    end(handle->request, error, reason);
}

static void time_over(hx_timer *timer)
{
    hx_client_request *request = HX_OWNER(timer, hx_client_request, own.timer);
    const hx_handle *handle = request->own.handle;
    end(request, HX_CLIENT_TIMEOUT,
        !handle                ? "no connection was free in time"
        : handle->is_connected ? "no complete response came in time"
                               : "no connection was made in time");
}

static void fail_line(host *h, const char *reason)
{
    HX_EACH(link, &h->line)
    {
        end(HX_OWNER(link, hx_client_request, own.link), HX_CLIENT_UNRESOLVED, reason);
    }
}

static void look_up_done(hx_lookup_waiter *waiter, const hx_lookup_answer *answer)
{
    host *h = HX_OWNER(waiter, host, waiter);
    h->is_looking_up = false;
    if (!answer->addresses) fail_line(h, answer->reason);
    update_ready(h);
    wake(h->client);
}

static hx_handle *take_handle(hx_client *client)
{
    hx_link *link = hx_list_take(&client->handles);
    hx_handle *handle = link ? HX_OWNER(link, hx_handle, link) : NULL;
    if (!handle) handle = hx_handle_new(client->curl, client->multi, client->guard, &client->limits);
    HX_CHECK(handle != NULL); /* the first one was made by hx_client_new */
    return handle;
}

/* Sends the first request in the line of a host. */
static void send_first(host *h, const char *addresses)
{
    hx_client *client = h->client;
    hx_client_request *request = HX_OWNER(h->line.next, hx_client_request, own.link);
    hx_handle *handle = take_handle(client);
    const char *wrong = hx_handle_take(handle, request, &h->address, addresses);
    if (!wrong && !hx_multi_add(client->multi, handle->easy)) wrong = "libcurl refuses the request";
    if (wrong) {
        hx_list_append(&client->handles, &handle->link);
        end(request, HX_CLIENT_INVALID, wrong);
        return;
    }
    hx_list_remove(&request->own.link);
    request->own.state = HX_CLIENT_ACTIVE;
    request->own.handle = handle;
    request->own.began_ns = hx_clock_mono_ns();
    client->waiting--;
    client->active++;
    h->active++;
}

static void dispatch(hx_client *client)
{
    bool any = false;
    while (client->active < client->limits.connections_max && !hx_list_empty(&client->ready)) {
        host *h = HX_OWNER(hx_list_take(&client->ready), host, ready);
        hx_slice name = hx_slice_of(h->address.name);
        hx_lookup_answer answer = {0};
        if (h->address.is_name && !hx_lookup_find(client->lookup, name, &answer)) {
            h->is_looking_up = true;
            hx_lookup_wait(client->lookup, name, client->limits.lookup_timeout, &h->waiter);
        } else if (h->address.is_name && !answer.addresses) {
            fail_line(h, answer.reason);
        } else {
            send_first(h, answer.addresses);
            any = true;
        }
        update_ready(h);
    }
    if (any) hx_multi_run(client->multi);
}

/* One of its requests is gone. */
static void let_go(host *h)
{
    update_ready(h);
    if (--h->requests > 0) return;
    if (h->is_looking_up) hx_lookup_leave(&h->waiter);
    (void)hx_map_remove(h->client->hosts, hx_slice_of(h->key));
    free(h);
}

static void deliver(hx_client *client)
{
    for (hx_link *link; (link = hx_list_take(&client->over));) {
        hx_client_request *request = HX_OWNER(link, hx_client_request, own.link);
        hx_handle *handle = request->own.handle;
        host *h = request->own.host;
        hx_client_result result = {.error = request->own.error, .reason = request->own.reason};
        if (handle) {
            hx_handle_report(handle, &result);
            result.duration = (hx_clock_mono_ns() - request->own.began_ns) / 1000000;
        }
        if (!result.reason) result.reason = hx_client_error_text(result.error);
        client->curl->url_cleanup(request->own.url);
        hx_list_remove(&request->own.all);
        request->done(request, &result);
        if (handle) {
            handle->request = NULL;
            hx_list_append(&client->handles, &handle->link);
            /* libcurl counts its retries over the life of a handle, and fails the sixth. */
            if (handle->sends > 1) hx_handle_renew(handle, &client->limits);
            client->active--;
            h->active--;
        }
        if (h) let_go(h);
    }
}

static void advance(hx_timer *timer)
{
    hx_client *client = HX_OWNER(timer, hx_client, soon);
    deliver(client);
    dispatch(client);
}

static host *host_of(hx_client *client, const hx_client_address *address)
{
    char key[sizeof((host *)NULL)->key];
    int len = snprintf(key, sizeof key, "%s %u", address->name, address->port);
    host *h = hx_map_get(client->hosts, (hx_slice){key, (size_t)len});
    if (h) return h;
    h = calloc(1, sizeof *h);
    if (!h) hx_fatal(HX_EXIT_BUG, "out of memory");
    memcpy(h->key, key, sizeof key);
    h->client = client;
    h->address = *address;
    h->waiter.done = look_up_done;
    hx_list_init(&h->line);
    hx_list_init(&h->ready);
    (void)hx_map_put(client->hosts, hx_slice_of(h->key), h);
    return h;
}

void hx_client_start(hx_client *client, hx_client_request *request)
{
    hx_client_address address;
    const char *reason = NULL;
    memset(&request->own, 0, sizeof request->own);
    request->own.client = client;
    hx_list_append(&client->all, &request->own.all);
    hx_list_init(&request->own.link);
    client->waiting++;
    if (client->waiting > client->limits.waiting_max) {
        end(request, HX_CLIENT_BUSY, NULL);
        return;
    }
    request->own.url = hx_handle_parse(client->curl, request->url, &address, &reason);
    if (!request->own.url) {
        end(request, HX_CLIENT_INVALID, reason);
        return;
    }
    host *h = host_of(client, &address);
    request->own.host = h;
    h->requests++;
    hx_list_append(&h->line, &request->own.link);
    hx_timer_start(client->loop, &request->own.timer, request->timeout, time_over);
    update_ready(h);
    wake(client);
}

void hx_client_cancel(hx_client_request *request)
{
    end(request, HX_CLIENT_CANCELLED, NULL);
}

bool hx_client_is_sent(const hx_client_request *request)
{
    hx_client_result result = {0};
    if (request->own.handle) hx_handle_report(request->own.handle, &result);
    return result.bytes_sent > 0;
}

hx_client *hx_client_new(hx_loop *loop, const hx_client_limits *limits, const hx_guard *guard, hx_error_text error)
{
    const hx_libcurl *curl = hx_libcurl_load(error);
    if (!curl) return NULL;
    hx_client *client = calloc(1, sizeof *client);
    if (!client) hx_fatal(HX_EXIT_BUG, "out of memory");
    client->loop = loop;
    client->curl = curl;
    client->guard = guard;
    client->limits = *limits;
    hx_list_init(&client->ready);
    hx_list_init(&client->all);
    hx_list_init(&client->over);
    hx_list_init(&client->handles);
    client->hosts = hx_map_new();
    client->lookup = hx_lookup_new(loop);
    client->multi = hx_multi_new(loop, curl, limits->connections_max, transfer_ended, client, error);
    hx_handle *first = client->multi ? hx_handle_new(curl, client->multi, guard, limits) : NULL;
    if (first) {
        hx_list_append(&client->handles, &first->link);
        return client;
    }
    if (client->multi) (void)hx_fail(error, "libcurl refuses the options: it is too old");
    hx_client_free(&client);
    return NULL;
}

void hx_client_free(hx_client **owned)
{
    hx_client *client = *owned;
    if (!client) return;
    HX_EACH(link, &client->all)
    {
        hx_client_cancel(HX_OWNER(link, hx_client_request, own.all));
    }
    deliver(client);
    HX_CHECK(hx_list_empty(&client->all));
    hx_timer_stop(client->loop, &client->soon);
    hx_multi_free(&client->multi);
    for (hx_link *link; (link = hx_list_take(&client->handles));) {
        hx_handle *handle = HX_OWNER(link, hx_handle, link);
        hx_handle_free(&handle);
    }
    hx_lookup_free(&client->lookup);
    hx_map_free(&client->hosts);
    free(client);
    *owned = NULL;
}
