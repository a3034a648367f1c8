/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/feed.h"

#include "base/check.h"
#include "base/rand.h"
#include "store/postgres/dial.h"
#include "store/postgres/wire.h"

#include <stdio.h>
#include <stdlib.h>

#define CALL_MAX (10 * HX_SECOND)
#define RELEASE_MAX HX_SECOND
#define LEASE (5 * HX_SECOND)
#define PAGE_BYTES_MAX (4 << 20)   /* of events; a larger one is alone */
#define GROWN_BYTES_MIN (16 << 20) /* of a table that is left for the other one */

enum { COLUMN_XID, COLUMN_SEQ, COLUMN_EVENT, COLUMN_NOTE };

struct hx_feed {
    hx_feed_needs needs;
    hx_dial_target target;
    hx_dial dial;
    PGconn *conn; /* NULL: not connected */
    hx_poll *poll;
    hx_timer timer;
    hx_task task;
    int64_t who;             /* this gateway, for as long as it runs */
    bool is_busy, has_ended; /* `done` has yet to be called; it is about to be */
    hx_feed_result result;
    hx_error_text why;
    const char *sql; /* of the call */
    hx_parameters parameters;
    PGresult *answer;
    hx_arena arena;
    hx_feed_page page;
    PGresult *page_rows; /* memory of the page */
};

static void disconnect(hx_feed *feed)
{
    hx_dial_stop(&feed->dial);
    hx_poll_free(&feed->poll);
    const hx_libpq *pq = feed->target.pq; /* NULL: it was never loaded */
    if (pq) pq->clear(feed->answer);
    if (pq && feed->conn) pq->finish(feed->conn);
    feed->answer = NULL;
    feed->conn = NULL;
}

static void end_later(hx_task *task)
{
    hx_feed *feed = HX_OWNER(task, hx_feed, task);
    hx_timer_stop(feed->needs.loop, &feed->timer);
    feed->is_busy = false;
    feed->needs.done(feed->needs.context, feed->result);
}

static void end(hx_feed *feed, hx_feed_result result)
{
    feed->result = result;
    feed->has_ended = true;
    feed->task.run = end_later;
    hx_loop_defer(feed->needs.loop, &feed->task);
}

/* Makes one line of a message. */
static void fail(hx_feed *feed, hx_feed_result result, const char *why)
{
    size_t len = 0;
    for (; *why && len < sizeof feed->why - 1; why++) {
        bool is_space = (unsigned char)*why <= ' ';
        if (!is_space || (len > 0 && feed->why[len - 1] != ' ')) feed->why[len++] = is_space ? ' ' : *why;
    }
    while (len > 0 && feed->why[len - 1] == ' ') len--;
    feed->why[len] = '\0';
    disconnect(feed);
    end(feed, result);
}

static void took_too_long(hx_timer *timer)
{
    hx_feed *feed = HX_OWNER(timer, hx_feed, timer);
    if (!feed->conn) feed->dial.skip++;
    fail(feed, HX_FEED_UNAVAILABLE, feed->conn ? "a statement took too long" : "connecting took too long");
}

/* Reads the rows of hapax.outbox_next, of which the last one is about the others. */
static void read_page(hx_feed *feed)
{
    const hx_libpq *pq = feed->target.pq;
    PGresult *rows = feed->answer;
    int last = pq->ntuples(rows) - 1;
    if (last < 0 || pq->getisnull(rows, last, COLUMN_SEQ)) {
        fail(feed, HX_FEED_UNUSABLE, "hapax.outbox_next returned no row");
        return;
    }
    pq->clear(feed->page_rows);
    feed->page_rows = rows;
    feed->answer = NULL;
    hx_arena_free(&feed->arena);
    hx_feed_page *page = &feed->page;
    *page = (hx_feed_page){.count = (size_t)last,
                           .term = hx_get_i64(pq, rows, last, COLUMN_SEQ),
                           .window = hx_get_bytes(pq, rows, last, COLUMN_NOTE),
                           .ends = last == 0};
    page->rows = hx_arena_alloc(&feed->arena, (page->count + 1) * sizeof *page->rows);
    for (int i = 0; i < last; i++)
        page->rows[i] = (hx_feed_row){.xid = (uint64_t)hx_get_i64(pq, rows, i, COLUMN_XID),
                                      .seq = hx_get_i64(pq, rows, i, COLUMN_SEQ),
                                      .event = hx_get_bytes(pq, rows, i, COLUMN_EVENT),
                                      .reason = HX_EMPTY};
    if (last > 0) page->ends = !pq->getisnull(rows, last - 1, COLUMN_NOTE);
    end(feed, page->term > 0 ? HX_FEED_OK : page->term == 0 ? HX_FEED_ELSEWHERE : HX_FEED_FOREIGN);
}

static bool is_state(const hx_libpq *pq, const PGresult *result, const char *code)
{
    const char *found = pq->resultErrorField(result, PG_DIAG_SQLSTATE);
    return found && strncmp(found, code, strlen(code)) == 0;
}

static void refused(hx_feed *feed)
{
    const hx_libpq *pq = feed->target.pq;
    const PGresult *error = feed->answer;
    hx_error_text why;
    bool is_missing = is_state(pq, error, "42P01") || is_state(pq, error, "42883") || is_state(pq, error, "3F000");
    bool is_forbidden = is_state(pq, error, "42501");
    const char *message = pq->resultErrorField(error, PG_DIAG_MESSAGE_PRIMARY);
    (void)snprintf(why, sizeof why, "%s%s", message ? message : pq->errorMessage(feed->conn),
                   is_missing     ? ". This database has no outbox: install it with hapax sql outbox"
                   : is_forbidden ? ". Its owner gives the right: SELECT hapax.grant_outbox('ROLE', 'relay')"
                                  : "");
    fail(feed, is_missing || is_forbidden ? HX_FEED_UNUSABLE : HX_FEED_UNAVAILABLE, why);
}

static void answered(hx_feed *feed)
{
    const hx_libpq *pq = feed->target.pq;
    if (!feed->answer || pq->resultStatus(feed->answer) != PGRES_TUPLES_OK)
        feed->answer ? refused(feed) : fail(feed, HX_FEED_UNAVAILABLE, "the connection was lost");
    else if (pq->nfields(feed->answer) > COLUMN_NOTE)
        read_page(feed);
    else
        end(feed, HX_FEED_OK);
    pq->clear(feed->answer);
    feed->answer = NULL;
}

static void flush(hx_feed *feed)
{
    int left = feed->target.pq->flush(feed->conn);
    if (left < 0)
        fail(feed, HX_FEED_UNAVAILABLE, feed->target.pq->errorMessage(feed->conn));
    else
        hx_poll_for(feed->poll, HX_POLL_READ | (left > 0 ? HX_POLL_WRITE : 0));
}

static void socket_ready(void *context, unsigned events)
{
    hx_feed *feed = context;
    const hx_libpq *pq = feed->target.pq;
    if (!feed->is_busy ||
        feed->has_ended) { /* between calls: the server has closed the connection, or says something */
        if (!pq->consumeInput(feed->conn) || pq->status(feed->conn) == CONNECTION_BAD) disconnect(feed);
        return;
    }
    if (events & HX_POLL_WRITE) flush(feed);
    if (!feed->conn || !(events & HX_POLL_READ)) return;
    if (!pq->consumeInput(feed->conn)) {
        fail(feed, HX_FEED_UNAVAILABLE, pq->errorMessage(feed->conn));
        return;
    }
    while (!pq->isBusy(feed->conn)) {
        PGresult *result = pq->getResult(feed->conn);
        if (!result) {
            answered(feed);
            return;
        }
        pq->clear(feed->answer);
        feed->answer = result;
    }
}

static void send_statement(hx_feed *feed)
{
    const hx_parameters *p = &feed->parameters;
    if (feed->target.pq->sendQueryParams(feed->conn, feed->sql, p->count, p->types, p->values, p->lengths, p->formats,
                                         1))
        flush(feed);
    else
        fail(feed, HX_FEED_UNAVAILABLE, feed->target.pq->errorMessage(feed->conn));
}

static void ignore_notice(void *context, const PGresult *notice)
{
    (void)context, (void)notice;
}

static void dial_done(void *context, const char *error)
{
    hx_feed *feed = context;
    if (error) {
        fail(feed, HX_FEED_UNAVAILABLE, error);
        return;
    }
    feed->conn = feed->dial.conn;
    feed->dial.conn = NULL;
    (void)feed->target.pq->setNoticeReceiver(feed->conn, ignore_notice, NULL);
    feed->poll = hx_poll_new(feed->needs.loop, feed->target.pq->socket(feed->conn), socket_ready, feed);
    send_statement(feed);
}

static void call(hx_feed *feed, const char *sql, hx_ms most)
{
    feed->sql = sql;
    hx_timer_start(feed->needs.loop, &feed->timer, most, took_too_long);
    if (feed->conn)
        send_statement(feed);
    else
        hx_dial_start(&feed->dial);
}

static void begin(hx_feed *feed)
{
    HX_CHECK(!feed->is_busy);
    feed->is_busy = true;
    feed->has_ended = false;
    feed->parameters.count = 0;
    hx_put_i64(&feed->parameters, feed->who);
}

void hx_feed_next(hx_feed *feed, bool take)
{
    const hx_feed_page *page = &feed->page;
    hx_parameters *p = &feed->parameters;
    size_t refused_count = 0;
    hx_arena arena = {0};
    take = take && page->count > 0;
    const hx_feed_row *last = take ? &page->rows[page->count - 1] : NULL;
    size_t most = take ? page->count : 0;
    hx_slice *xids = hx_arena_alloc(&arena, (most + 1) * sizeof *xids);
    hx_slice *seqs = hx_arena_alloc(&arena, (most + 1) * sizeof *seqs);
    hx_slice *reasons = hx_arena_alloc(&arena, (most + 1) * sizeof *reasons);
    for (size_t i = 0; i < most; i++) {
        if (page->rows[i].reason.len == 0) continue;
        xids[refused_count] = hx_arena_printf(&arena, "%llu", (unsigned long long)page->rows[i].xid);
        seqs[refused_count] = hx_arena_printf(&arena, "%lld", (long long)page->rows[i].seq);
        reasons[refused_count++] = page->rows[i].reason;
    }
    begin(feed);
    hx_put_bytes(p, feed->needs.mark);
    hx_put_i64(p, LEASE);
    hx_put_i64(p, take ? page->term : 0);
    hx_put_text(p, take ? page->window : HX_EMPTY);
    hx_put_bool(p, take && page->ends);
    hx_put_text(p, hx_arena_printf(&arena, "%llu", last ? (unsigned long long)last->xid : 0ULL));
    hx_put_i64(p, last ? last->seq : 0);
    hx_put_texts(p, xids, refused_count);
    hx_put_texts(p, seqs, refused_count);
    hx_put_texts(p, reasons, refused_count);
    hx_put_i32(p, HX_FEED_ROWS_MAX);
    hx_put_i64(p, PAGE_BYTES_MAX);
    hx_arena_free(&arena);
    call(feed, "SELECT * FROM hapax.outbox_next($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::bigint[], $11, $12, $13)",
         CALL_MAX);
}

void hx_feed_rotate(hx_feed *feed)
{
    begin(feed);
    hx_put_i64(&feed->parameters, GROWN_BYTES_MIN);
    call(feed, "SELECT * FROM hapax.outbox_rotate($1, $2)", CALL_MAX);
}

void hx_feed_release(hx_feed *feed)
{
    begin(feed);
    if (feed->conn)
        call(feed, "SELECT hapax.outbox_release($1)", RELEASE_MAX);
    else
        end(feed, HX_FEED_OK);
}

void hx_feed_hurry(hx_feed *feed)
{
    if (feed->is_busy && !feed->has_ended) hx_timer_start(feed->needs.loop, &feed->timer, RELEASE_MAX, took_too_long);
}

const char *hx_feed_why(const hx_feed *feed)
{
    return feed->why;
}

const hx_feed_page *hx_feed_read(const hx_feed *feed)
{
    return &feed->page;
}

hx_feed *hx_feed_new(const hx_feed_needs *needs, hx_error_text error)
{
    hx_feed *feed = calloc(1, sizeof *feed);
    if (!feed) hx_fatal(HX_EXIT_BUG, "out of memory");
    feed->needs = *needs;
    if (!hx_dial_read(&feed->target, needs->url, "hapax outbox", error)) {
        hx_feed_free(&feed);
        return NULL;
    }
    hx_dial_keep_hosts(&feed->target, NULL);
    feed->who = (int64_t)(hx_rand_u64() >> 1) + 1; /* 0: nobody */
    feed->dial = (hx_dial){.target = &feed->target, .loop = needs->loop, .done = dial_done, .context = feed};
    return feed;
}

void hx_feed_free(hx_feed **owned)
{
    hx_feed *feed = *owned;
    if (!feed) return;
    *owned = NULL;
    HX_CHECK(!feed->is_busy);
    disconnect(feed);
    if (feed->target.pq) feed->target.pq->clear(feed->page_rows);
    for (size_t i = 0; i < HX_PARAMETERS_MAX; i++) hx_buf_free(&feed->parameters.columns[i]);
    hx_arena_free(&feed->arena);
    hx_arena_free(&feed->target.arena);
    free(feed);
}
