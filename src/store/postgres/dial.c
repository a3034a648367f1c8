/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/dial.h"

#include "base/check.h"

#include <string.h>

/* For parameters that the URL leaves out. Keepalives notice a server that is gone without closing the connection. */
static const struct {
    const char *keyword, *value;
} DEFAULTS[] = {{"connect_timeout", "5"},     {"client_encoding", "UTF8"}, {"keepalives_idle", "10"},
                {"keepalives_interval", "5"}, {"keepalives_count", "3"},   {"tcp_user_timeout", "15000"}};
#define DEFAULT_COUNT (sizeof DEFAULTS / sizeof *DEFAULTS)
#define ADDED_COUNT 5 /* application_name, target_session_attrs, host, hostaddr, port */

static void add(hx_dial_target *t, size_t at, const char *keyword, const char *value)
{
    t->keywords[at] = keyword;
    t->values[at] = value;
}

bool hx_dial_read(hx_dial_target *t, hx_slice url, const char *application, hx_error_text error)
{
    char *message = NULL;
    t->pq = hx_libpq_load(error);
    if (!t->pq) return false;
    PQconninfoOption *options = t->pq->conninfoParse(hx_arena_terminated(&t->arena, url), &message);
    if (!options) {
        hx_libpq_explain_url(t->pq, message, error, sizeof(hx_error_text));
        return false;
    }
    size_t count = 0, cap = 1;
    for (const PQconninfoOption *o = options; o->keyword; o++) cap++;
    t->keywords = hx_arena_zalloc(&t->arena, (cap + DEFAULT_COUNT + ADDED_COUNT) * sizeof *t->keywords);
    t->values = hx_arena_zalloc(&t->arena, (cap + DEFAULT_COUNT + ADDED_COUNT) * sizeof *t->values);
    add(t, count++, "application_name", application);
    for (size_t i = 0; i < DEFAULT_COUNT; i++) add(t, count++, DEFAULTS[i].keyword, DEFAULTS[i].value);
    for (const PQconninfoOption *o = options; o->keyword; o++) /* of several values the last counts */
        if (o->val)
            add(t, count++, hx_arena_terminated(&t->arena, hx_slice_of(o->keyword)),
                hx_arena_terminated(&t->arena, hx_slice_of(o->val)));
    add(t, count, "target_session_attrs", "read-write"); /* never a standby, whatever the URL says */
    t->pq->conninfoFree(options);
    return true;
}

/* The effective value of a connection parameter; NULL: there is none. */
static const char *parameter(const hx_dial_target *t, const char *name)
{
    const char *value = NULL;
    for (size_t i = 0; t->keywords[i]; i++)
        if (strcmp(t->keywords[i], name) == 0) value = t->values[i];
    return value && value[0] ? value : NULL;
}

/* Names are looked up on a thread, and a host that hangs is passed over. */
void hx_dial_keep_hosts(hx_dial_target *t, PGconn *conn)
{
    PQconninfoOption *options = conn ? t->pq->conninfo(conn) : NULL;
    if (conn && !options) hx_fatal(HX_EXIT_BUG, "out of memory");
    size_t count = 0;
    while (t->keywords[count]) count++;
    for (const PQconninfoOption *o = options; o && o->keyword; o++) {
        bool is_where = strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0 ||
                        strcmp(o->keyword, "port") == 0;
        if (!is_where || !o->val || !o->val[0]) continue;
        add(t, count++, hx_arena_terminated(&t->arena, hx_slice_of(o->keyword)),
            hx_arena_terminated(&t->arena, hx_slice_of(o->val)));
    }
    if (options) t->pq->conninfoFree(options);
    const char *hosts = parameter(t, "host");
    bool has_names = hosts && !parameter(t, "hostaddr") && hx_names_include_one(hosts) &&
                     strlen(hosts) < HX_NAMES_BYTES / 4;
    if (has_names) {
        t->hosts = hosts;
        t->ports = parameter(t, "port") ? parameter(t, "port") : "";
    }
}

const char *hx_dial_advice(const char *why)
{
    if (strstr(why, "authentication"))
        return "give the user and password in the store's URL, or in libpq's environment or files";
    if (strstr(why, "read-only") || strstr(why, "standby"))
        return "this server is not a primary: name the primary, or both, in the store's URL, or promote this one";
    if (strstr(why, "does not exist")) return "correct the store's URL, or create the database or role that it names";
    if (strstr(why, "too many")) return "raise max_connections, or put a connection pooler before the server";
    return NULL;
}

static void fail(hx_dial *dial)
{
    dial->done(dial->context, dial->target->pq->errorMessage(dial->conn));
}

/* `found`: the hosts whose names were looked up; NULL: as they are in the parameters. */
static PGconn *begin_connection(const hx_dial *dial, const hx_names *found)
{
    const hx_dial_target *t = dial->target;
    const char *const names[] = {"host", "hostaddr", "port"};
    const char *const lists[] = {found ? found->host : parameter(t, names[0]),
                                 found ? found->hostaddr : parameter(t, names[1]),
                                 found ? found->port : parameter(t, names[2])};
    char turned[3][HX_NAMES_BYTES];
    hx_arena arena = {0};
    size_t count = 0;
    while (t->keywords[count]) count++;
    const char **keywords = hx_arena_zalloc(&arena, (count + 4) * sizeof *keywords);
    const char **values = hx_arena_zalloc(&arena, (count + 4) * sizeof *values);
    memcpy(keywords, t->keywords, count * sizeof *keywords);
    memcpy(values, t->values, count * sizeof *values);
    for (size_t i = 0; i < 3; i++) { /* of several parameters with one name the last counts */
        if (!lists[i]) continue;
        keywords[count] = names[i];
        values[count++] = hx_names_rotate(lists[i], dial->skip, turned[i]);
    }
    PGconn *conn = t->pq->connectStartParams(keywords, values, 0);
    if (!conn) hx_fatal(HX_EXIT_BUG, "out of memory");
    hx_arena_free(&arena);
    return conn;
}

static void socket_ready(void *context, unsigned events)
{
    (void)events;
    hx_dial *dial = context;
    const hx_libpq *pq = dial->target->pq;
    PostgresPollingStatusType next = pq->connectPoll(dial->conn);
    hx_poll_free(&dial->poll); /* libpq may have gone on to another address, with another socket */
    bool is_over = next == PGRES_POLLING_OK && pq->setnonblocking(dial->conn, 1) == 0;
    bool goes_on = next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING;
    if (goes_on && pq->socket(dial->conn) >= 0) {
        dial->poll = hx_poll_new(dial->loop, pq->socket(dial->conn), socket_ready, dial);
        hx_poll_for(dial->poll, next == PGRES_POLLING_READING ? HX_POLL_READ : HX_POLL_WRITE);
    } else if (is_over) {
        dial->done(dial->context, NULL);
    } else {
        fail(dial);
    }
}

static void start_connecting(hx_dial *dial, const hx_names *found)
{
    const hx_libpq *pq = dial->target->pq;
    dial->conn = begin_connection(dial, found);
    if (pq->status(dial->conn) == CONNECTION_BAD || pq->socket(dial->conn) < 0) {
        fail(dial);
        return;
    }
    dial->poll = hx_poll_new(dial->loop, pq->socket(dial->conn), socket_ready, dial);
    hx_poll_for(dial->poll, HX_POLL_WRITE);
}

static void look_up_done(void *context, void *found)
{
    hx_dial *dial = context;
    hx_offload *names = dial->names;
    dial->names = NULL;
    start_connecting(dial, found);
    hx_offload_free(&names); /* `found` is in it; `dial` may be stopped by now */
}

void hx_dial_start(hx_dial *dial)
{
    const hx_dial_target *t = dial->target;
    if (!t->hosts) {
        start_connecting(dial, NULL);
        return;
    }
    dial->names = hx_names_look_up(dial->loop, t->hosts, t->ports, look_up_done, dial);
    if (!dial->names) dial->done(dial->context, "no thread can be started to look up the server's name");
}

void hx_dial_stop(hx_dial *dial)
{
    hx_offload_free(&dial->names);
    hx_poll_free(&dial->poll);
    if (dial->conn) dial->target->pq->finish(dial->conn);
    dial->conn = NULL;
}
