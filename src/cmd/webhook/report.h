/* SPDX-License-Identifier: Apache-2.0 */
/* What came of verifying a webhook, for people and for programs. Neither ever shows a secret or the right signature:
 * with the latter, anyone who can have a request verified could forge one. */
#ifndef HX_CMD_WEBHOOK_REPORT_H
#define HX_CMD_WEBHOOK_REPORT_H

#include "cmd/webhook/mistakes.h"

#include <stdio.h>

typedef struct {
    const hx_verify_settings *settings;
    const hx_webhook_request *request;
    const hx_webhook_result *result;
    const hx_verify_diagnosis *diagnosis; /* of a failure, else NULL */
} hx_verify_report;

void hx_verify_print_text(const hx_verify_report *report, FILE *out, hx_arena *arena);
void hx_verify_print_json(const hx_verify_report *report, FILE *out, hx_arena *arena);

#endif
