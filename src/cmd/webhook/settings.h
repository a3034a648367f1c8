/* SPDX-License-Identifier: Apache-2.0 */
/* How webhooks are verified, as commands take it by flags: the scheme, the secrets and the tolerance. Secrets come from
 * files and environment variables, never from the command line, which everyone on the machine can read. */
#ifndef HX_CMD_WEBHOOK_SETTINGS_H
#define HX_CMD_WEBHOOK_SETTINGS_H

#include "core/webhook/webhook.h"

typedef struct {
    const char *scheme, *tolerance;
    const char *signature_header, *timestamp_header, *encoding, *prefix, *signed_text;
    hx_webhook_secret_place secrets[HX_WEBHOOK_SECRETS_MAX];
    size_t secret_count;
    bool too_many;
} hx_verify_flags;

/* Takes one of HX_CMD_WEBHOOK_FLAGS; false if `flag` is not one of them. */
bool hx_verify_take(hx_verify_flags *flags, const char *flag, const char *value);

typedef struct {
    hx_webhook_scheme scheme;
    hx_webhook_secret secrets[HX_WEBHOOK_SECRETS_MAX];
    hx_slice texts[HX_WEBHOOK_SECRETS_MAX]; /* the secrets as they were read */
    size_t secret_count;
    hx_ms tolerance;
} hx_verify_settings;

/* Reads the secrets. False: *error is a sentence. */
bool hx_verify_read(const hx_verify_flags *flags, hx_arena *arena, hx_verify_settings *out,
                    hx_slice *error) HX_MUST_USE;
hx_webhook_rules hx_verify_rules(const hx_verify_settings *settings);

#endif
