/* SPDX-License-Identifier: Apache-2.0 */
/* What `hapax send` prints: the response on standard output as it came and what became of the request on standard
 * error; or all of it as JSON. */
#ifndef HX_CMD_SEND_VIEW_H
#define HX_CMD_SEND_VIEW_H

#include "client/intent.h"

#include <stdio.h>

typedef enum { HX_SEND_TEXT, HX_SEND_JSON } hx_send_form;

/* One intent as it is now. `verdict` and `why` are of a call that has just ended; the verdict of an intent that nobody
 * works on is hx_send_verdict_of. */
void hx_send_show(const hx_intent *intent, hx_careful_verdict verdict, hx_slice why, hx_send_form form);
/* A line of a list. */
void hx_send_show_line(const hx_intent *intent, hx_send_form form);
/* attempt,delay_ms,status,code,notes */
void hx_send_show_csv(const hx_intent *intent, FILE *out);
/* AGAIN: it has not ended, and can be resumed. */
hx_careful_verdict hx_send_verdict_of(const hx_intent *intent);

#endif
