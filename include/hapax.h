/* SPDX-License-Identifier: Apache-2.0 */
/* hapax.h: operations that happen once.
 *
 * An operation (a payment, an order, the handling of a webhook) has a key, which its caller chooses before the first
 * attempt and repeats with every further one. The store remembers what became of it: whoever comes with the same key
 * gets the outcome of the first, and the operation is not executed again.
 *
 *     hapax *store;
 *     hapax_request request = {.size = sizeof request, .name = "payments", .key = order_id,
 *                              .payload = body, .payload_bytes = strlen(body)};
 *     hapax_record outcome = {.size = sizeof outcome};
 *
 *     if (hapax_open("sqlite:/var/lib/shop/hapax.db", NULL, &store)) fatal(hapax_message());
 *     switch (hapax_execute(store, &request, charge, &order, &outcome)) {
 *     case HAPAX_OK:        // charge() has run, and its result is durable
 *     case HAPAX_DONE:      // it ran before: outcome.body is what it gave then
 *     case HAPAX_UNKNOWN:   // it may have run, and nobody knows how it ended: ask the bank, don't repeat it
 *     case HAPAX_IN_FLIGHT: // somebody else is running it
 *     …
 *     }
 *     hapax_record_clear(&outcome);
 *     hapax_close(&store);
 *
 * The states of an operation, and the calls that change them:
 *
 *     absent ──[begin]──► processing ──[complete, fail]──► completed, failed ──lifetime over──► absent, or expired
 *                          │   ▲  │
 *                          │   │  └──[release]──► absent: nothing has happened, the key may be used again
 *                          │ [renew]
 *                          └──── the lease lapses ──► unknown: it may have happened
 *     unknown ──[complete, fail, release, by the claim that it had]──► completed, failed, absent
 *     unknown ──[begin with HAPAX_REPEATABLE]──► processing, under a new claim; the old one is fenced
 *
 * A good guest. The library starts no thread, takes no signal and writes to no standard stream; it never ends the
 * process, not even when memory runs out or it finds a bug of its own: every failure is a value, with a sentence from
 * hapax_message(). It links libc, SQLite and OpenSSL's libcrypto, and nothing else.
 *
 * Threads. Any number of threads may use one handle at the same time. A claim and a record belong to one thread at a
 * time. hapax_close() must be the last call with its handle.
 *
 * Forks. A handle is for the process that opened it. In a child every call with it returns HAPAX_FORKED and touches
 * nothing, neither files nor sockets nor memory; a child opens handles of its own.
 *
 * Structs begin with their size, which the caller sets: `= {.size = sizeof request}` with everything else zero is
 * valid for each of them. So a program that was compiled with an older header works with a newer library, which takes
 * what the program doesn't know for zero. A newer program on an older library gets HAPAX_INVALID if it sets a member
 * that the library doesn't know.
 *
 * Texts are UTF-8 and end with a NUL. Times are milliseconds since 1970 (UTC), time spans milliseconds. Functions that
 * return int return a code of `enum hapax_code`. */
#ifndef HAPAX_H
#define HAPAX_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; hapax_version() is that of the library. Within one major version the library keeps what
 * older headers say. */
#define HAPAX_VERSION_MAJOR 0
#define HAPAX_VERSION_MINOR 1
#define HAPAX_VERSION_PATCH 0

const char *hapax_version(void);

/* The results. 0 is success; positive ones say what became of an operation, negative ones why nothing could be done. */
enum hapax_code {
    HAPAX_OK = 0,

    /* The operation */
    HAPAX_DONE = 1,      /* it has ended before: the record has its outcome, completed or failed */
    HAPAX_IN_FLIGHT = 2, /* somebody else is executing it, until record.lease_until unless they renew */
    HAPAX_UNKNOWN = 3,   /* it may have been executed, and has no outcome. Find out, then complete or release it */
    HAPAX_MISMATCH = 4,  /* the key was used with another payload. Nothing was done; a new operation needs a new key */
    HAPAX_EXPIRED = 5,   /* it was executed; its outcome has expired */
    HAPAX_ABSENT = 6,    /* hapax_find: there is no such operation */
    HAPAX_FENCED = 7,    /* the claim was lost: the operation has another outcome or another claim. The record is what
                          * it is now. Nothing was changed; inside a transaction: roll back */

    /* The library and its store */
    HAPAX_INVALID = -1,      /* an argument is wrong: a bug of the caller. hapax_message() says which */
    HAPAX_UNSUPPORTED = -2,  /* this store, or this library, has no such thing */
    HAPAX_UNAVAILABLE = -3,  /* the store can't be reached, read or written. Whether a change was made is not known;
                              * the same call can be repeated */
    HAPAX_BUSY = -4,         /* another connection writes to the database. Inside a transaction: roll back, begin it
                              * again (with BEGIN IMMEDIATE) */
    HAPAX_FULL = -5,         /* no space: no new operation is begun. Those that were can still be ended */
    HAPAX_DENIED = -6,       /* the daemon refuses the token, or it lacks a scope */
    HAPAX_DAMAGED = -7,      /* the record can't be read. The operation stays unknown until an operator removes it */
    HAPAX_NOT_PREPARED = -8, /* the database has no tables of Hapax: call hapax_sqlite_prepare() */
    HAPAX_FORKED = -9,       /* the handle is another process's. Nothing was touched */
    HAPAX_NO_MEMORY = -10,
    HAPAX_INTERNAL = -11 /* a bug in Hapax, which was caught. The handle can only be closed */
};

/* The name of a code, as "HAPAX_FENCED"; "?" for what isn't one. */
const char *hapax_code_name(int code);
/* A sentence about the last call of this thread that returned anything but HAPAX_OK: what happened, why, and what to
 * do. Valid until the thread's next call. */
const char *hapax_message(void);

/* The store */

typedef struct hapax hapax;

/* Levels of log lines. */
enum { HAPAX_LOG_DEBUG, HAPAX_LOG_INFO, HAPAX_LOG_WARN, HAPAX_LOG_ERROR };

typedef struct hapax_options {
    size_t size;
    /* Called with each log line, a JSON object without a newline, on the thread whose call it is about, inside that
     * call: it must not use the handle. NULL: nothing is logged. */
    void (*log)(void *context, int level, const char *line);
    void *log_context;
    const char *token;  /* of a daemon's API listener, from `hapax tokens create`; NULL: none, as for its own socket */
    const char *tenant; /* of a daemon, for a token that belongs to no tenant; NULL: the token's */
    int64_t timeout;    /* how long a daemon may take to answer one request; 0: 30 s */
} hapax_options;

/* Opens a store:
 *
 *     sqlite:/var/lib/shop/hapax.db   a file, which is made if there is none. Any number of processes and daemons can
 *                                     use it at once. Calls work on the caller's thread, and return when their change
 *                                     is on the disk
 *     unix:/run/hapax/admin.sock      a daemon (`hapax serve`), whatever its store is: its admin socket,
 *     http://127.0.0.1:8081           or its API listener, with options.token
 *
 * `journal:` is the daemon's alone: use its socket. Other stores are plug-ins: see hapax_register_store(). Whether a
 * daemon can be reached is seen by the first call, not here. `options` may be NULL. */
int hapax_open(const char *url, const hapax_options *options, hapax **store);
/* Closes the store, and sets *owned to NULL. What is claimed stays claimed, until its lease lapses. NULL is ignored. */
void hapax_close(hapax **owned);

/* Operations */

enum hapax_state {
    HAPAX_STATE_ABSENT = 0,
    HAPAX_STATE_PROCESSING = 1,
    HAPAX_STATE_COMPLETED = 2,
    HAPAX_STATE_FAILED = 3,
    HAPAX_STATE_UNKNOWN = 4,
    HAPAX_STATE_EXPIRED = 5
};

/* Flags of a request. */
/* Executing the operation again does no harm: one that is unknown is begun again, under a new claim. */
#define HAPAX_REPEATABLE 1u

typedef struct hapax_request {
    size_t size;
    const char *name;   /* kind of operation, such as "payments": up to 255 bytes. The same key under another name is
                       * another operation. NULL: "" */
    const char *caller; /* whose operation it is: callers never see each other's. NULL: all share their keys. A daemon
                         * takes the caller from the token */
    const char *key;    /* the caller's key for this one operation: 1 to 255 visible ASCII characters */
    /* The content of the operation. With the same key it must be the same, or it is HAPAX_MISMATCH: JSON is compared
     * by its meaning, anything else byte by byte. NULL: not compared. */
    const void *payload;
    size_t payload_bytes;
    int64_t lease;      /* how long the claim is held unless it is renewed; 0: 60 s. A daemon: 1 s to 1 h */
    int64_t lifetime;   /* how long the outcome is kept; 0: 24 h */
    int64_t wait;       /* how long to wait for another's operation, on this thread; 0: not at all */
    unsigned int flags; /* HAPAX_REPEATABLE */
} hapax_request;

/* The right to end one execution of an operation. Plain bytes: it may be copied, written down and used by another
 * process, which then can complete what this one has begun. */
typedef struct hapax_claim {
    size_t size;
    char id[33];    /* names the operation; 32 hexadecimal digits */
    uint64_t epoch; /* grows with each claim of the store: a fencing token for other systems */
    uint64_t owner;
    int64_t lifetime; /* of the outcome, as in the request */
} hapax_claim;

/* What an operation gave. */
typedef struct hapax_result {
    size_t size;
    const void *body; /* up to 8 MiB. Daemons keep JSON only; elsewhere it is any bytes */
    size_t body_bytes;
    int status;               /* of the HTTP response that a gateway replays; 0: 200, or 500 with hapax_fail() */
    const char *content_type; /* of that response; NULL: application/json */
} hapax_result;

/* What the store knows of an operation. Each call that takes a record clears it first; hapax_record_clear() frees the
 * memory of the last one. */
typedef struct hapax_record {
    size_t size;
    int state;             /* of enum hapax_state */
    int is_retry;          /* an earlier call had begun it: what is here is the outcome of that one */
    int failed_before;     /* is_retry, and it has failed: it will not be executed again */
    int cancel_requested;  /* hapax_renew() on a daemon: somebody asks the claim's holder to stop; see `reason` */
    unsigned int attempt;  /* how often it was begun */
    int64_t original_time; /* when it was first begun */
    int64_t expires_at;    /* of an outcome */
    int64_t lease_until;   /* of a claim */
    uint64_t epoch;
    char id[33];
    int status; /* of the result; 0: there is none */
    const void *body;
    size_t body_bytes;
    const char *content_type; /* NULL: unknown */
    const char *reason;       /* why it is unknown or was released; NULL: not said */
    void *memory;             /* that the pointers point into; from malloc */
} hapax_record;

void hapax_record_clear(hapax_record *record);

/* Begins an operation: HAPAX_OK means that the claim is durable, and that nobody else executes it while the lease
 * lasts. End it with one of the three below. `record` may be NULL. HAPAX_DONE, HAPAX_IN_FLIGHT, HAPAX_UNKNOWN,
 * HAPAX_MISMATCH and HAPAX_EXPIRED say why it was not begun. */
int hapax_begin(hapax *store, const hapax_request *request, hapax_claim *claim, hapax_record *record);

/* End an operation that was begun. Complete: it was executed, with this result. Fail: it was executed and failed, or
 * never can succeed; later callers get this result and it isn't executed again. Release: it was provably not executed,
 * and the key may be used again.
 *
 * Each is durable when it returns HAPAX_OK, and may be repeated with the same arguments. They are accepted after the
 * lease has lapsed, too, as long as nobody else was given the operation: nobody renews behind the caller's back.
 * HAPAX_FENCED: the claim was lost, and `record` has what the operation is now (a daemon says it without its body,
 * which hapax_find() gets). `result`, `reason` and `record` may be NULL. */
int hapax_complete(hapax *store, const hapax_claim *claim, const hapax_result *result, hapax_record *record);
int hapax_fail(hapax *store, const hapax_claim *claim, const hapax_result *result, hapax_record *record);
int hapax_release(hapax *store, const hapax_claim *claim, const char *reason, hapax_record *record);
/* Renews a claim: it is held for `lease` from now on. HAPAX_FENCED: it was lost, or its lease has lapsed; it may
 * still be possible to complete it. */
int hapax_renew(hapax *store, const hapax_claim *claim, int64_t lease, hapax_record *record);

/* Asks whether an operation went through. HAPAX_DONE, HAPAX_IN_FLIGHT, HAPAX_UNKNOWN, HAPAX_EXPIRED, HAPAX_MISMATCH
 * or HAPAX_ABSENT. Changes nothing. request->wait is obeyed; the payload may be left out, and a daemon doesn't compare
 * it. */
int hapax_find(hapax *store, const hapax_request *request, hapax_record *record);

/* Executes the operation for hapax_execute(), and says how it ended:
 *
 *     HAPAX_STATE_COMPLETED   it was executed: *result is kept
 *     HAPAX_STATE_FAILED      it failed for good: *result, which may describe the error, is kept
 *     HAPAX_STATE_ABSENT      it was provably not executed: the key may be used again
 *     HAPAX_STATE_UNKNOWN     it may have been executed: it becomes unknown when the lease lapses
 *
 * What *result points to must live until hapax_execute() returns. It runs on the caller's thread, outside of any lock,
 * and may use the handle, to renew the claim for example. */
typedef int hapax_operation(void *context, const hapax_claim *claim, hapax_result *result);

/* Begins the operation, executes it and ends it. HAPAX_OK: it was executed now, and *outcome is what became of it.
 * HAPAX_DONE: it had ended before, and *outcome is what it gave then (see failed_before). HAPAX_FENCED: it was executed
 * now, and took longer than its lease: *outcome is what others have made of it. If the process dies in `operation`, the
 * operation becomes unknown when its lease lapses; with HAPAX_REPEATABLE the next call executes it again. */
int hapax_execute(hapax *store, const hapax_request *request, hapax_operation *operation, void *context,
                  hapax_record *outcome);

/* A key for a new operation: a UUID that sorts by its time. Write it down before its first use. */
#define HAPAX_KEY_BYTES 37
int hapax_new_key(char key[HAPAX_KEY_BYTES]);

/* Exactly once: inside the caller's own SQLite transaction
 *
 * The effect and the mark of the operation are in one database and commit together, or neither does. That is exactly
 * once, whatever happens to the process:
 *
 *     hapax_sqlite_prepare(db);                                 once: makes Hapax's tables, all named hapax_…
 *
 *     BEGIN IMMEDIATE
 *       hapax_sqlite_execute(db, &request, reserve, &cart, &outcome)
 *     COMMIT                                                    if it returned HAPAX_OK; else ROLLBACK
 *
 * Nothing here begins, commits or rolls back a transaction: each call is a savepoint, and one that fails leaves
 * nothing behind. What it has written counts when the caller commits, and is as durable as the caller's own settings
 * make it (PRAGMA synchronous). `db` must be a connection to SQLite as this process has loaded it. */

struct sqlite3;

/* Makes the tables where there are none, and brings older ones up to date. Afterwards the file is also a store that
 * hapax_open() and a daemon can use. */
int hapax_sqlite_prepare(struct sqlite3 *db);
/* The same as hapax_begin() and its kin, inside the open transaction. request->wait has no effect: nobody else writes
 * during the transaction. An operation that is begun in one transaction and ended in another can become unknown, as
 * elsewhere. */
int hapax_sqlite_begin(struct sqlite3 *db, const hapax_request *request, hapax_claim *claim, hapax_record *record);
int hapax_sqlite_complete(struct sqlite3 *db, const hapax_claim *claim, const hapax_result *result,
                          hapax_record *record);
int hapax_sqlite_fail(struct sqlite3 *db, const hapax_claim *claim, const hapax_result *result, hapax_record *record);
int hapax_sqlite_release(struct sqlite3 *db, const hapax_claim *claim, const char *reason, hapax_record *record);
/* Begins, executes and ends it in the open transaction. What `operation` has written to the database is undone unless
 * it returns HAPAX_STATE_COMPLETED. Since the effect is only ever committed together with its mark, an operation
 * without a mark has not happened, and HAPAX_REPEATABLE is implied. */
int hapax_sqlite_execute(struct sqlite3 *db, const hapax_request *request, hapax_operation *operation, void *context,
                         hapax_record *outcome);
/* Reads the claim of a request, the value of its header Hapax-Operation. The request came through a gateway whose
 * store is this database, on a route with `guarantee: transactional`: complete it in the transaction of the effect. */
int hapax_sqlite_claim(const char *hapax_operation_header, hapax_claim *claim);
/* Removes up to `max` operations whose time is over, for databases that no daemon uses. */
int hapax_sqlite_clean(struct sqlite3 *db, unsigned int max, unsigned int *cleaned);

/* An event, for hapax_sqlite_publish(). */
typedef struct hapax_event {
    size_t size;
    const char *id;   /* an event with this id is published once; up to 128 visible ASCII characters. NULL: a new one */
    const char *type; /* such as "order.paid" */
    const char *data; /* JSON */
    const char *tenant; /* NULL: none */
    const char *stream; /* NULL: none */
    int64_t deliver_at; /* 0: at once */
    const char *correlation_id;
} hapax_event;

/* Publishes an event in the open transaction: if that commits, a daemon whose store is this database delivers it; if it
 * is rolled back, the event never was. */
int hapax_sqlite_publish(struct sqlite3 *db, const hapax_event *event);

/* Retries: decisions only. Nothing here waits. */

typedef struct hapax_retry {
    size_t size;
    const char *work_class;   /* "user", "background", "scheduled" or "webhook"; NULL: "user" */
    const char *profile;      /* "quick", "patient" or "mobile"; NULL: the class's own delays */
    const char *jitter;       /* "spread", "full", "half", "additive" or "none"; NULL: the class's */
    unsigned int attempts;    /* the first included; 0: the class's */
    int64_t total, base, cap; /* 0: the class's */
} hapax_retry;

/* Decides when to try again. *delay is how long to wait before the next attempt, after `attempts` of them, the first
 * of which began `elapsed` ago. `retry_after` is the value of that header in the response, as it came, or NULL.
 * HAPAX_OK: *delay. HAPAX_DONE: there is no further attempt, and hapax_message() says why. */
int hapax_retry_next(const hapax_retry *retry, unsigned int attempts, int64_t elapsed, const char *retry_after,
                     int64_t *delay);

/* What a response says about a request. */
typedef struct hapax_response {
    size_t size;
    int status;       /* 0: no response */
    int nothing_sent; /* no byte of the request left this machine */
    const char *head; /* "Name: value\r\n" lines; NULL: none */
    const void *body;
    size_t body_bytes;
} hapax_response;

enum hapax_verdict {
    HAPAX_VERDICT_AGAIN = 0,    /* send it again, with the same key */
    HAPAX_VERDICT_DONE = 1,     /* the server did it */
    HAPAX_VERDICT_REFUSED = 2,  /* the server will not do it */
    HAPAX_VERDICT_UNKNOWN = 3,  /* it may have been executed */
    HAPAX_VERDICT_EXHAUSTED = 4 /* it was not executed, and there are no attempts left */
};

/* Judges a response to the first attempt of a keyed request as a careful client does: returns a verdict, and in
 * *may_have_happened (which may be NULL) whether this attempt may have been executed. -1: an argument is wrong. */
int hapax_classify(const char *method, const hapax_response *response, int *may_have_happened);

/* Sending a request once
 *
 * hapax_send() is `hapax send` without its HTTP client: the request and its key are written down, synced, before the
 * first attempt. A program that dies, and calls it again with the same name, goes on with the same key and the same
 * bytes. The caller brings what sends one attempt, such as a few lines over libcurl. */

typedef struct hapax_intent {
    size_t size;
    const char *name;           /* the caller's name for this operation: it finds the request again. NULL: by the key */
    const char *key;            /* NULL: a new one is drawn, and written down */
    const char *method;         /* "POST" */
    const char *url;            /* http:// or https:// */
    const char *const *headers; /* "Name: value", ended by NULL; without Idempotency-Key. NULL: none */
    const void *body;
    size_t body_bytes;
    hapax_retry retry;    /* size 0: the class "user" */
    int64_t key_lifetime; /* how long the server knows the key after the first attempt; 0: 23 h */
} hapax_intent;

/* Makes one attempt: sends the request, and fills in *response, whose memory must live until the next attempt or until
 * hapax_send() returns. `headers` are those of the request and Idempotency-Key. Redirects must not be followed. */
typedef void hapax_transport(void *context, const char *method, const char *url, const char *const *headers,
                             const void *body, size_t body_bytes, hapax_response *response);

typedef struct hapax_sent {
    size_t size;
    int verdict;  /* of enum hapax_verdict; never AGAIN */
    int is_retry; /* the request was written down by an earlier call */
    int replayed; /* the server says that it had answered it before */
    int status;
    unsigned int attempts; /* in all calls */
    char key[256];
    char why[256];
    const void *body;
    size_t body_bytes;
    void *memory;
} hapax_sent;

/* Sends it until it is done, refused, or there is nothing more to do now; waits on the caller's thread between
 * attempts. `folder` keeps the requests that are under way, as private files. HAPAX_OK: see sent->verdict.
 * HAPAX_MISMATCH: under this name another request was written down. HAPAX_BUSY: another process works on it. */
int hapax_send(const char *folder, const hapax_intent *intent, hapax_transport *transport, void *context,
               hapax_sent *sent);
void hapax_sent_clear(hapax_sent *sent);

/* Fingerprints and webhooks */

/* The canonical form of JSON (RFC 8785, with exact numbers), in memory for free(). HAPAX_INVALID: it is no clean
 * JSON. */
int hapax_canonical_json(const void *json, size_t bytes, char **canonical, size_t *canonical_bytes);

/* Parts of an HTTP request that make it this request and no other. */
typedef struct hapax_http_request {
    size_t size;
    const char *method;
    const char *host;
    const char *path;
    const char *query;        /* NULL: none, which is not the same as an empty one */
    const char *content_type; /* NULL: none */
    const void *body;
    size_t body_bytes;
} hapax_http_request;

/* The fingerprint of a request: two requests with equal fingerprints are the same request. A MAC under `secret`, so
 * that it tells nothing to those who don't have it. */
int hapax_fingerprint(const hapax_http_request *request, const unsigned char secret[32], unsigned char fingerprint[32]);

/* Signs a webhook: gives the value of the header webhook-signature of Standard Webhooks, for one secret ("whsec_…" or
 * "whsk_…") or several, separated by spaces, while they rotate. `signature` gets a text that ends with NUL; 128 bytes
 * for each secret are enough. */
int hapax_webhook_sign(const char *secrets, const char *id, int64_t seconds, const void *body, size_t body_bytes,
                       char *signature, size_t signature_bytes);

typedef struct hapax_webhook {
    size_t size;
    const char *scheme;  /* "standard", "stripe", "github", "shopify" or "slack"; NULL: "standard" */
    const char *secrets; /* one, or several separated by spaces: any of them may have signed */
    const char *head;    /* "Name: value\r\n" lines of the request */
    const void *body;    /* as it came: JSON that was parsed and written again has another signature */
    size_t body_bytes;
    int64_t tolerance; /* between the timestamp and now; 0: 5 minutes */
    int64_t now;       /* 0: the wall clock */
} hapax_webhook;

/* Verifies a webhook. HAPAX_OK: it is genuine, and `event_id` (256 bytes, or NULL) has its id, which is the key to
 * process it once; empty where the sender gives none. HAPAX_DENIED: it isn't, and hapax_message() says why. */
int hapax_webhook_verify(const hapax_webhook *webhook, char *event_id);

/* Other stores
 *
 * A plug-in implements these functions for URLs of one scheme, and registers them before hapax_open(). A call may come
 * on any thread, several at once. Each returns a code of enum hapax_code with a sentence in `error` (512 bytes) unless
 * it is HAPAX_OK, and fills in *record as this header says; its memory is from malloc. What must hold:
 *
 *  1. A change is durable when its call returns HAPAX_OK.
 *  2. begin makes an absent operation processing, atomically: of several callers one gets HAPAX_OK.
 *  3. Epochs grow through the whole store and are never used twice.
 *  4. settle takes effect only while the record carries the claim's epoch and is processing or unknown. Repeated with
 *     the same arguments it returns HAPAX_OK again; else HAPAX_FENCED.
 *  5. A lapsed lease makes an operation unknown, never absent. unknown never expires. */
typedef struct hapax_store_type {
    size_t size;
    const char *scheme; /* "redis": for redis:… */
    int (*open)(const char *url, const hapax_options *options, void **store, char *error);
    void (*close)(void *store);
    /* May return HAPAX_IN_FLIGHT at once, whatever request->wait is: the library then asks again. */
    int (*begin)(void *store, const hapax_request *request, hapax_claim *claim, hapax_record *record, char *error);
    /* `state` is HAPAX_STATE_COMPLETED, _FAILED or _ABSENT (release); `result` is NULL for the last. */
    int (*settle)(void *store, const hapax_claim *claim, int state, const hapax_result *result, const char *reason,
                  hapax_record *record, char *error);
    int (*renew)(void *store, const hapax_claim *claim, int64_t lease, hapax_record *record, char *error);
    int (*find)(void *store, const hapax_request *request, hapax_record *record, char *error);
} hapax_store_type;

/* Registers a type of store for this process; `type` must live as long as the process. HAPAX_INVALID: the scheme is
 * taken, or there are sixteen already. */
int hapax_register_store(const hapax_store_type *type);

#ifdef __cplusplus
}
#endif

#endif
