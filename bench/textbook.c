/* SPDX-License-Identifier: Apache-2.0 */
/* The peer of `./dev bench stores`: idempotency as a good engineer's middleware does it on PostgreSQL. A pool of
 * connections that are kept, each with its statements prepared, in the binary format, autocommit; and for each request
 *
 *     claim      INSERT … ON CONFLICT DO NOTHING RETURNING     committed before the application is asked
 *     read       SELECT of the row that stands there now
 *     complete   UPDATE with status, headers and body          committed before the client is answered
 *
 *     textbook URL threads | events | pipelined CONNECTIONS
 *
 * threads: one for each connection, blocking. events: two threads, each of which waits for all of its connections at
 * once. pipelined: the same, and claim and read share one round trip and one transaction. It connects and says `ready`;
 * then, for each line with a number that it reads, it makes that many requests, one at a time on each connection, and
 * says how long that took, its own CPU time, both in seconds, and how many transactions were committed that wrote. */
#include "base/check.h"
#include "base/clock.h"
#include "base/program/process.h"
#include "base/rand.h"

#include <inttypes.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONNECTIONS_MAX 1024u
#define EVENT_THREADS 2u
#define BYTEA 17u
#define INT2 21u

typedef enum { CLAIM, READ, COMPLETE, STEPS } step;

static const struct {
    const char *name, *sql;
    int parameters;
    Oid types[3];
} STATEMENTS[STEPS] = {
    [CLAIM] = {"claim",
               "INSERT INTO idempotency_keys (key, fingerprint) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING key",
               2,
               {BYTEA, BYTEA}},
    [READ] = {"read", "SELECT fingerprint, status, headers, body FROM idempotency_keys WHERE key = $1", 1, {BYTEA}},
    [COMPLETE] = {"complete",
                  "UPDATE idempotency_keys SET status = 201, headers = $2, body = $3 WHERE key = $1",
                  3,
                  {BYTEA, BYTEA, BYTEA}},
};

typedef struct {
    PGconn *conn;
    step at; /* whose result is awaited */
    char key[16];
} connection;

static const char FINGERPRINT[32] = "the MAC of what the client sent";
static const char HEADERS[] = "Content-Type: application/json\r\nLocation: /refunds/re_0001\r\n";
static char body[200];

static enum { THREADS, EVENTS, PIPELINED } way;
static connection connections[CONNECTIONS_MAX];
static unsigned connection_count;
static _Atomic int64_t left;

static double cpu_seconds(void)
{
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void must(bool holds, const connection *c, const char *what)
{
    if (!holds) hx_fatal(HX_EXIT_STORE, "textbook: %s: %s", what, PQerrorMessage(c->conn));
}

static void connect_and_prepare(connection *c, const char *url)
{
    c->conn = PQconnectdb(url);
    must(PQstatus(c->conn) == CONNECTION_OK, c, "connecting");
    for (step s = CLAIM; s < STEPS; s++) {
        PGresult *result = PQprepare(c->conn, STATEMENTS[s].name, STATEMENTS[s].sql, STATEMENTS[s].parameters,
                                     STATEMENTS[s].types);
        must(PQresultStatus(result) == PGRES_COMMAND_OK, c, STATEMENTS[s].name);
        PQclear(result);
    }
    if (way == THREADS) return;
    must(PQsetnonblocking(c->conn, 1) == 0, c, "non-blocking mode");
    if (way == PIPELINED) must(PQenterPipelineMode(c->conn) == 1, c, "pipeline mode");
}

/* False: the round has no more requests. */
static bool next_request(connection *c)
{
    if (atomic_fetch_sub(&left, 1) <= 0) return false;
    hx_rand_bytes(c->key, sizeof c->key);
    c->at = CLAIM;
    return true;
}

typedef struct {
    const char *values[3];
    int lengths[3];
} parameters;

static const int BINARY[3] = {1, 1, 1};

static parameters parameters_of(const connection *c, step s)
{
    parameters p = {{c->key}, {sizeof c->key}};
    if (s == CLAIM) {
        p.values[1] = FINGERPRINT;
        p.lengths[1] = sizeof FINGERPRINT;
    } else if (s == COMPLETE) {
        p.values[1] = HEADERS;
        p.lengths[1] = sizeof HEADERS - 1;
        p.values[2] = body;
        p.lengths[2] = sizeof body;
    }
    return p;
}

/* Every key is new: the claim wins, the row is there and has no answer, and the answer is taken. */
static void check(connection *c, PGresult *result)
{
    switch (c->at) {
    case CLAIM: must(PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1, c, "claim"); break;
    case READ:
        must(PQresultStatus(result) == PGRES_TUPLES_OK && PQntuples(result) == 1 && PQgetisnull(result, 0, 1), c,
             "read");
        must(memcmp(PQgetvalue(result, 0, 0), FINGERPRINT, sizeof FINGERPRINT) == 0, c, "fingerprint");
        break;
    default: must(PQresultStatus(result) == PGRES_COMMAND_OK && strcmp(PQcmdTuples(result), "1") == 0, c, "complete");
    }
    PQclear(result);
}

/* threads */

static void *block(void *context)
{
    connection *c = context;
    while (next_request(c)) {
        for (; c->at < STEPS; c->at++) {
            parameters p = parameters_of(c, c->at);
            check(c, PQexecPrepared(c->conn, STATEMENTS[c->at].name, STATEMENTS[c->at].parameters, p.values, p.lengths,
                                    BINARY, 1));
        }
    }
    return NULL;
}

/* events and pipelined */

static void flush(const connection *c)
{
    int unsent;
    while ((unsent = PQflush(c->conn)) > 0) continue; /* a kilobyte: the socket takes it */
    must(unsent == 0, c, "sending");
}

static void send_step(connection *c)
{
    step last = way == PIPELINED && c->at == CLAIM ? READ : c->at;
    for (step s = c->at; s <= last; s++) {
        parameters p = parameters_of(c, s);
        must(PQsendQueryPrepared(c->conn, STATEMENTS[s].name, STATEMENTS[s].parameters, p.values, p.lengths, BINARY,
                                 1) == 1,
             c, STATEMENTS[s].name);
    }
    if (way == PIPELINED) must(PQpipelineSync(c->conn) == 1, c, "sync");
    flush(c);
}

/* Takes what has come. True: all of this round trip has. */
static bool take_results(connection *c)
{
    must(PQconsumeInput(c->conn) == 1, c, "receiving");
    bool was_end = false;
    while (!PQisBusy(c->conn)) {
        PGresult *result = PQgetResult(c->conn);
        if (result && PQresultStatus(result) == PGRES_PIPELINE_SYNC) {
            PQclear(result);
            return true;
        }
        if (result) {
            check(c, result);
            c->at++;
        } else if (way == EVENTS || was_end) {
            return way == EVENTS;
        }
        was_end = !result;
    }
    return false;
}

/* The connections whose number leaves this rest. */
static void *wait_for_all(void *context)
{
    unsigned rest = *(const unsigned *)context, busy = 0;
    struct epoll_event events[CONNECTIONS_MAX];
    int poll = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = rest; i < connection_count; i += EVENT_THREADS) {
        connection *c = &connections[i];
        struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = c};
        HX_CHECK(epoll_ctl(poll, EPOLL_CTL_ADD, PQsocket(c->conn), &wanted) == 0);
        if (!next_request(c)) continue;
        send_step(c);
        busy++;
    }
    while (busy > 0) {
        int count = epoll_wait(poll, events, CONNECTIONS_MAX, -1);
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (!take_results(c)) continue;
            if (c->at < STEPS || next_request(c))
                send_step(c);
            else
                busy--;
        }
    }
    (void)close(poll);
    return NULL;
}

static void run(int64_t requests)
{
    pthread_t threads[CONNECTIONS_MAX];
    static const unsigned rests[EVENT_THREADS] = {0, 1};
    unsigned count = way == THREADS ? connection_count : EVENT_THREADS;
    atomic_store(&left, requests);
    double cpu = cpu_seconds();
    int64_t wall = hx_clock_mono_ns();
    for (unsigned i = 0; i < count; i++) {
        int failed = way == THREADS ? pthread_create(&threads[i], NULL, block, &connections[i])
                                    : pthread_create(&threads[i], NULL, wait_for_all, (void *)&rests[i]);
        HX_CHECK(failed == 0);
    }
    for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("%.6f %.6f %" PRId64 "\n", (double)(hx_clock_mono_ns() - wall) / 1e9, cpu_seconds() - cpu, 2 * requests);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    hx_process_init();
    static const char *const ways[] = {"threads", "events", "pipelined"};
    unsigned chosen = 0;
    while (argc == 4 && chosen < 3 && strcmp(argv[2], ways[chosen]) != 0) chosen++;
    if (argc != 4 || chosen == 3) hx_fatal(HX_EXIT_USAGE, "usage: textbook URL threads|events|pipelined CONNECTIONS");
    way = chosen;
    connection_count = (unsigned)strtoul(argv[3], NULL, 10);
    HX_CHECK(connection_count >= 1 && connection_count <= CONNECTIONS_MAX);
    memset(body, 'x', sizeof body);
    for (unsigned i = 0; i < connection_count; i++) connect_and_prepare(&connections[i], argv[1]);
    puts("ready");
    (void)fflush(stdout);
    for (char line[32]; fgets(line, sizeof line, stdin);) run(strtoll(line, NULL, 10));
    for (unsigned i = 0; i < connection_count; i++) PQfinish(connections[i].conn);
    return 0;
}
