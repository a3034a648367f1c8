/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's server: its limits, listeners and connections, draining and freeing. */
#include "net/listener.h"

#include "base/check.h"

#include <stdlib.h>
#include <sys/resource.h>

/* Descriptors for other uses: the store's files, upstream connections, the loop. */
#define OTHER_DESCRIPTORS 64u

static void call_drained(hx_task *task);

static void take_limits(hx_server *server, const hx_server_limits *limits)
{
    server->limits = *limits;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
        rlim_t most = files.rlim_cur > 2 * OTHER_DESCRIPTORS ? files.rlim_cur - OTHER_DESCRIPTORS : files.rlim_cur / 2;
        if (server->limits.connections_max > most) server->limits.connections_max = (uint32_t)most;
    }
    if (server->limits.head_bytes_max > HX_HELD_BYTES) server->limits.head_bytes_max = HX_HELD_BYTES;
}

hx_server *hx_server_new(hx_loop *loop, const hx_server_limits *limits, const hx_server_handler *handler, void *app)
{
    hx_server *server = malloc(sizeof *server);
    if (!server) hx_fatal(HX_EXIT_BUG, "out of memory (a server)");
    *server = (hx_server){.loop = loop, .handler = *handler, .app = app};
    take_limits(server, limits);
    server->drained_task.run = call_drained;
    hx_list_init(&server->connections);
    hx_list_init(&server->listeners);
    return server;
}

void hx_server_accept(hx_server *server, int listening_descriptor, hx_slice address)
{
    hx_listener_open(server, listening_descriptor, address);
}

void hx_server_pause_accepting(hx_server *server)
{
    server->accepting_paused = true;
    HX_EACH(link, &server->listeners) hx_listener_pause(HX_OWNER(link, hx_listener, link));
}

static void resume_accepting(hx_server *server)
{
    server->accepting_paused = false;
    HX_EACH(link, &server->listeners) hx_listener_resume(HX_OWNER(link, hx_listener, link));
}

void hx_server_set_limits(hx_server *server, const hx_server_limits *limits)
{
    take_limits(server, limits);
    bool waits = server->accepting_paused && !server->draining;
    if (waits && server->count < server->limits.connections_max) resume_accepting(server);
}

static void free_now(hx_server *server)
{
    HX_EACH(link, &server->listeners) free(HX_OWNER(link, hx_listener, link));
    free(server);
}

void hx_server_gone(hx_server *server)
{
    bool nothing_left = server->count == 0 && server->open_listeners == 0;
    if (server->freed) {
        if (nothing_left && !server->drained_queued) free_now(server);
        return;
    }
    if (server->draining) {
        if (!nothing_left || !server->drained || server->drained_queued) return;
        server->drained_queued = true;
        hx_loop_defer(server->loop, &server->drained_task);
        return;
    }
    if (server->accepting_paused && server->count < server->limits.connections_max) resume_accepting(server);
}

static void call_drained(hx_task *task)
{
    hx_server *server = HX_OWNER(task, hx_server, drained_task);
    server->drained_queued = false;
    void (*drained)(void *app) = server->drained;
    server->drained = NULL;
    if (server->freed)
        hx_server_gone(server);
    else if (drained)
        drained(server->app);
}

void hx_server_drain(hx_server *server, void (*done)(void *app))
{
    if (server->draining) return;
    hx_timer_stop(server->loop, &server->retry_accept);
    HX_EACH(link, &server->listeners) hx_listener_close_dry(HX_OWNER(link, hx_listener, link));
    server->draining = true;
    server->drained = done;
    HX_EACH(each, &server->connections)
    {
        hx_connection *connection = HX_OWNER(each, hx_connection, link);
        connection->protocol->close_if_idle(connection);
    }
    hx_server_gone(server);
}

void hx_server_cut(hx_server *server)
{
    HX_EACH(each, &server->connections)
    {
        hx_connection *connection = HX_OWNER(each, hx_connection, link);
        connection->protocol->lose(connection, true);
    }
}

uint32_t hx_server_connections(const hx_server *server)
{
    return server->count;
}

void hx_server_free(hx_server **owned)
{
    hx_server *server = *owned;
    if (!server) return;
    *owned = NULL;
    server->freed = true;
    hx_timer_stop(server->loop, &server->retry_accept);
    HX_EACH(link, &server->listeners) hx_listener_close(HX_OWNER(link, hx_listener, link));
    HX_EACH(each, &server->connections)
    {
        hx_connection *connection = HX_OWNER(each, hx_connection, link);
        connection->protocol->abandon(connection);
    }
    if (server->count == 0 && server->open_listeners == 0 && !server->drained_queued) free_now(server);
}
