/* SPDX-License-Identifier: Apache-2.0 */
/* The attempts of `hapax send`: client/attempts.h over libcurl. */
#ifndef HX_CMD_SEND_PERFORM_H
#define HX_CMD_SEND_PERFORM_H

#include "client/attempts.h"
#include "net/client/address_guard.h"

typedef struct {
    hx_retry_policy policy;
    hx_ms timeout; /* of an attempt */
    hx_ms budget;  /* for everything; 0: none */
    const char *ca_file;
    hx_texts credentials;  /* headers of this call that replace those of the same name; none: as written down */
    bool shows_progress;   /* on standard error */
    const hx_guard *guard; /* which addresses may be dialled; NULL: all */
    /* For callers that do other things meanwhile; each may be NULL. */
    void *user;
    void (*waits)(void *user, const char *why, unsigned attempt, hx_ms delay); /* the attempt is made after the delay */
    bool (*ends)(void *user); /* true: no further attempt is made; asked while waiting for one */
} hx_send_settings;

typedef hx_attempts_end hx_send_end;

/* The texts of `end` are in the arena. False with a sentence: the intent could not be written, or the request is not
 * one that can be sent; nothing is under way then. */
bool hx_send_perform(hx_intent *intent, const hx_send_settings *settings, hx_arena *arena, hx_send_end *end,
                     hx_error_text error) HX_MUST_USE;

/* Asks a Hapax gateway what became of the operation, and waits for its end as long as the budget allows; nothing is
 * executed. False: the server is none, can't be reached, or has no such operation. Else `end` has verdict and why. */
bool hx_send_ask(hx_intent *intent, const hx_send_settings *settings, hx_arena *arena, hx_send_end *end) HX_MUST_USE;

/* The folder of intents: HAPAX_INTENTS, or one in the state directory. NULL: the environment names none. */
const char *hx_send_directory(hx_arena *arena);

#endif
