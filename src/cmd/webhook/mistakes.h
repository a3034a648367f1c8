/* SPDX-License-Identifier: Apache-2.0 */
/* Why a webhook that its receiver believes to be genuine is not verified: the usual mistakes are undone, one or two at
 * a time, and those after which the signature is valid explain it. */
#ifndef HX_CMD_WEBHOOK_MISTAKES_H
#define HX_CMD_WEBHOOK_MISTAKES_H

#include "cmd/webhook/settings.h"

typedef struct {
    const char *word;
    const char *text;
} hx_verify_mistake;

#define HX_VERIFY_HINTS_MAX 4u

typedef struct {
    const hx_verify_mistake *mistakes[4]; /* that explain the failure, together */
    size_t mistake_count;
    bool is_signed;                         /* but for the time, or these mistakes, the signature is valid */
    const char *hints[HX_VERIFY_HINTS_MAX]; /* what may be wrong or can be done, where nothing is proved */
    size_t hint_count;
} hx_verify_diagnosis;

/* `result` is that of hx_webhook_verify with these settings, and not OK. */
void hx_verify_diagnose(const hx_verify_settings *settings, const hx_webhook_request *request,
                        const hx_webhook_result *result, hx_arena *arena, hx_verify_diagnosis *out);

#endif
