/* SPDX-License-Identifier: Apache-2.0 */
/* What the handlers of events share. */
#ifndef HX_ADMIN_EVENTS_COMMON_H
#define HX_ADMIN_EVENTS_COMMON_H

#include "admin/call.h"

#define HX_ADMIN_WHY_MAX 500u

/* Whether events are on. False: the call was answered. */
bool hx_admin_has_engine(hx_admin_call *call) HX_MUST_USE;
/* Answers 400 with this sentence, which is copied. */
void hx_admin_refuse_malformed(hx_admin_call *call, const char *why);

/* Reads the body {"why": …}, up to 500 bytes, where there is one. False with a sentence in `error`. */
bool hx_admin_read_why(hx_admin_call *call, hx_slice *why, hx_error_text error) HX_MUST_USE;
/* The key of an event's item; of one that the inbox received, where `endpoint` is "in_SOURCE". */
hx_slice hx_admin_event_key(hx_arena *arena, hx_slice tenant, hx_slice endpoint, hx_slice event_id);

/* A page of items as a list of objects. */
typedef struct {
    hx_admin_call *call;
    const char *name;                                                 /* of the member that has the list */
    size_t (*bytes)(const hx_item *item);                             /* the most that one takes */
    void (*write)(hx_buf *out, const hx_item *item, hx_arena *arena); /* an object, or nothing */
    hx_item_page page;
    hx_store_call store;
} hx_admin_list;

/* Reads the page, and answers with it and the cursor of the next. The list is in the call's arena. */
void hx_admin_answer_list(hx_admin_list *list);

#endif
