/* SPDX-License-Identifier: Apache-2.0 */
/* An intent: a request that is to take effect once, written down and synced before its first attempt, with its key. A
 * program that dies, or runs again, finds it and goes on with the same key and the same bytes.
 *
 *     hx_intent_create ──► hx_intent_attempt ──(send)──► hx_intent_result ──► … ──► hx_intent_finish
 *        durable              durable                                                drops the request's secrets
 *
 * An intent is a private file of lines, each with its checksum: what is to be sent, then what happened. A line that was
 * cut by a crash at the end is dropped: whatever it would have said had not begun, or is then in doubt. Headers and
 * bodies are sealed under a secret of the folder (core/crypto/seal.h). A lock on the file keeps a second process off.
 *
 * Everything is synchronous, on the caller's thread. */
#ifndef HX_CLIENT_INTENT_H
#define HX_CLIENT_INTENT_H

#include "core/json/json_fields.h"
#include "core/retry/careful.h"

#define HX_INTENT_ATTEMPTS_MAX 200u
#define HX_INTENT_BODY_MAX (8u << 20)
#define HX_INTENT_RESPONSE_MAX (1u << 20)

/* What is to be sent. */
typedef struct {
    hx_slice method;
    hx_slice url;
    hx_texts headers; /* "Name: value", or "@FILE": lines of a file that is read at each attempt */
    hx_slice body;    /* any bytes */
    hx_slice key;     /* empty: it has none */
    hx_slice name;    /* the caller's own name for the operation; empty: none */
    hx_slice class;
    hx_ms created_at;
    hx_ms key_lifetime;          /* after the first attempt the server may forget the key */
    hx_slice head_mac, body_mac; /* hx_intent_digest: two requests are compared by them */
} hx_intent_request;

typedef struct {
    uint64_t number; /* from 1 */
    hx_ms at;
    bool has_result; /* false: the process died meanwhile, or it is under way */
    bool nothing_sent;
    bool in_doubt; /* this or an earlier attempt may have been executed */
    uint64_t status;
    uint64_t ms;
    uint64_t delay; /* before it, in milliseconds */
    hx_slice code;  /* Error-Code of the response */
    hx_slice note;  /* why there is no response, or what it means */
} hx_intent_attempt;

typedef struct {
    hx_slice verdict; /* a name of hx_careful_verdict; empty: it isn't finished */
    hx_ms at;
    uint64_t status;
    bool replayed;
    hx_slice original_time;
    hx_slice content_type;
    hx_slice note;
    hx_slice body; /* of the response, its first HX_INTENT_RESPONSE_MAX bytes */
} hx_intent_outcome;

typedef struct {
    hx_arena arena;
    char *directory;
    uint8_t secret[32];
} hx_intents;

typedef struct {
    hx_intents *intents;
    hx_arena arena;
    int fd; /* locked */
    hx_slice file;
    hx_intent_request request; /* of a finished one without headers and body */
    hx_intent_attempt attempts[HX_INTENT_ATTEMPTS_MAX];
    size_t attempt_count;
    hx_ms key_ends_at; /* by the server's word; 0: it has said nothing */
    hx_intent_outcome outcome;
} hx_intent;

typedef enum {
    HX_INTENT_OK,
    HX_INTENT_ABSENT,
    HX_INTENT_EXISTS,
    HX_INTENT_BUSY,    /* another process works on it */
    HX_INTENT_DAMAGED, /* `error` says what; nothing was changed */
    HX_INTENT_FAILED   /* it could not be read or written */
} hx_intent_error;

/* Opens the folder, and makes it if there is none. */
bool hx_intents_open(const char *directory, hx_intents *intents, hx_error_text error) HX_MUST_USE;
void hx_intents_close(hx_intents *intents);
/* The file names of all intents, in the arena. */
bool hx_intents_list(hx_intents *intents, hx_texts *files, hx_error_text error) HX_MUST_USE;

/* The file of an operation: by its name, or else by its key. */
hx_slice hx_intent_file(hx_slice name, hx_slice key, hx_arena *arena);
/* Writes the intent and its name in the folder, synced. */
hx_intent_error hx_intent_create(hx_intents *intents, const hx_intent_request *request, hx_intent **out,
                                 hx_error_text error) HX_MUST_USE;
/* Reads an intent; with `locks` for working on it, else only to look. */
hx_intent_error hx_intent_open(hx_intents *intents, hx_slice file, bool locks, hx_intent **out,
                               hx_error_text error) HX_MUST_USE;
void hx_intent_close(hx_intent **owned);

/* Appends the attempt that is about to begin, synced. False: nothing may be sent. */
bool hx_intent_begin(hx_intent *intent, hx_ms now, hx_ms delay, hx_error_text error) HX_MUST_USE;
/* Appends the result of the last attempt, from attempts[attempt_count - 1], and key_ends_at. */
bool hx_intent_end(hx_intent *intent, hx_error_text error) HX_MUST_USE;
/* Replaces the file by one with the outcome and without headers and body. */
bool hx_intent_finish(hx_intent *intent, const hx_intent_outcome *outcome, hx_error_text error) HX_MUST_USE;
bool hx_intent_remove(hx_intent *intent, hx_error_text error) HX_MUST_USE;

/* Whether an attempt may have been executed: one that has no result may have been. */
bool hx_intent_in_doubt(const hx_intent *intent);
/* When the server may forget the key; INT64_MAX: never begun. */
hx_ms hx_intent_key_end(const hx_intent *intent);
/* Fills in the MACs. */
void hx_intent_digest(const hx_intents *intents, hx_intent_request *request, hx_arena *arena);
/* What differs between two requests for one operation; NULL: nothing. */
const char *hx_intent_difference(const hx_intent_request *stored, const hx_intent_request *given);

#endif
