/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a transactional outbox (sql/postgres/0004_outbox.sql), for the relay of events. The outbox may be in any
 * database: that of the store, or the application's own.
 *
 * One call at a time. A call connects if there is no connection, and `done` is called once, from the loop, never inside
 * the call. A call that fails closes the connection; the next one makes another. No transaction is open between
 * calls, and nothing belongs to the session: it works through PgBouncer. */
#ifndef HX_STORE_POSTGRES_FEED_H
#define HX_STORE_POSTGRES_FEED_H

#include "base/loop/loop.h"
#include "base/fail.h"
#include "base/memory/arena.h"

typedef struct hx_feed hx_feed;

typedef struct {
    uint64_t xid; /* place of the row: its transaction, and a number in it */
    int64_t seq;
    hx_slice event;  /* JSON, as the API takes it */
    hx_slice reason; /* given by the caller: why it can't be published; empty: it was */
} hx_feed_row;

typedef enum {
    HX_FEED_OK,
    HX_FEED_ELSEWHERE,  /* another gateway's relay is at work */
    HX_FEED_FOREIGN,    /* the outbox belongs to another store */
    HX_FEED_UNUSABLE,   /* the server refuses: `why`; without an operator that will not change */
    HX_FEED_UNAVAILABLE /* it can't be reached, or doesn't answer: `why` */
} hx_feed_result;

/* Rows that were read together. They, and its texts, are valid until the feed's next call has ended. */
typedef struct {
    hx_feed_row *rows;
    size_t count;
    int64_t term;    /* of this gateway's lease */
    hx_slice window; /* the snapshot that they are visible in */
    bool ends;       /* no further row is */
} hx_feed_page;

typedef struct {
    hx_loop *loop;
    hx_slice url;
    hx_slice mark; /* of the store that takes the events: gateways with different stores can't share an outbox */
    void (*done)(void *context, hx_feed_result result);
    void *context;
} hx_feed_needs;

#define HX_FEED_ROWS_MAX 1000u

/* NULL with a sentence in `error`: the URL can't be read, or libpq is missing. Doesn't connect. */
hx_feed *hx_feed_new(const hx_feed_needs *needs, hx_error_text error) HX_MUST_USE;
void hx_feed_free(hx_feed **owned);
const char *hx_feed_why(const hx_feed *feed);
const hx_feed_page *hx_feed_read(const hx_feed *feed);

/* Records the page that was read as taken, if `take`, sets aside its rows that have a reason, and reads the next. */
void hx_feed_next(hx_feed *feed, bool take);
/* Rotates the outbox's tables, or truncates one, if it is time. */
void hx_feed_rotate(hx_feed *feed);
/* The call that is under way, if one is, has a second left. */
void hx_feed_hurry(hx_feed *feed);
/* Lets another gateway take over. Without a connection it only ends. */
void hx_feed_release(hx_feed *feed);

#endif
