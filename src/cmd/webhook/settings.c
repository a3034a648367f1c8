/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/webhook/settings.h"

#include "config/problems.h"
#include "core/time/units.h"
#include "events/inbox/source_secrets.h"

#include <string.h>

#define TOLERANCE_MAX (36500 * HX_DAY)

static void take_secret(hx_verify_flags *flags, const char *name, bool is_variable)
{
    flags->too_many = flags->secret_count == HX_WEBHOOK_SECRETS_MAX;
    if (flags->too_many) return;
    flags->secrets[flags->secret_count++] = (hx_webhook_secret_place){hx_slice_of(name), is_variable};
}

bool hx_verify_take(hx_verify_flags *flags, const char *flag, const char *value)
{
    const struct {
        const char *name, **value;
    } texts[] = {{"scheme", &flags->scheme},
                 {"tolerance", &flags->tolerance},
                 {"signature-header", &flags->signature_header},
                 {"timestamp-header", &flags->timestamp_header},
                 {"encoding", &flags->encoding},
                 {"prefix", &flags->prefix},
                 {"signed", &flags->signed_text}};
    bool is_file = strcmp(flag, "secret-file") == 0;
    if (is_file || strcmp(flag, "secret-env") == 0) {
        take_secret(flags, value, !is_file);
        return true;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(flag, texts[i].name) != 0) continue;
        *texts[i].value = value;
        return true;
    }
    return false;
}

static const char *scheme_at(size_t i, const void *schemes)
{
    return ((const hx_webhook_scheme *)schemes)[i].name;
}

/* Each returns NULL, or a sentence about what is wrong. */

static const char *read_scheme(const hx_verify_flags *flags, hx_arena *arena, hx_webhook_scheme *out)
{
    size_t count;
    const hx_webhook_scheme *all = hx_webhook_schemes(&count), *found;
    if (!flags->scheme)
        return "Which scheme? Give --scheme standard, svix, stripe, github, shopify, slack, or hmac for all others.";
    found = hx_webhook_scheme_named(hx_slice_of(flags->scheme));
    if (!found) {
        const char *nearest = hx_nearest(hx_slice_of(flags->scheme), count, scheme_at, all);
        return hx_arena_printf(arena, "unknown scheme %s%s%s%s", hx_quoted(arena, hx_slice_of(flags->scheme)),
                               nearest ? ", did you mean \"" : "; for a sender that is not listed there is hmac",
                               nearest ? nearest : "", nearest ? "\"?" : "")
            .ptr;
    }
    *out = *found;
    if (strcmp(found->name, "hmac") != 0) {
        bool is_given = flags->signature_header || flags->timestamp_header || flags->encoding || flags->prefix ||
                        flags->signed_text;
        if (!is_given) return NULL;
        return "--signature-header, --timestamp-header, --encoding, --prefix and --signed are for --scheme hmac.";
    }
    if (!flags->signature_header) return "--scheme hmac needs --signature-header, the header with the signature.";
    out->signature_header = flags->signature_header;
    out->timestamp_header = flags->timestamp_header;
    if (flags->prefix) out->prefix = flags->prefix;
    if (flags->signed_text) out->signed_text = flags->signed_text;
    if (!flags->encoding || strcmp(flags->encoding, "hex") == 0)
        out->encoding = HX_WEBHOOK_HEX;
    else if (strcmp(flags->encoding, "base64") == 0)
        out->encoding = HX_WEBHOOK_BASE64;
    else
        return "--encoding must be hex or base64.";
    return hx_webhook_scheme_mistake(out);
}

bool hx_verify_read(const hx_verify_flags *flags, hx_arena *arena, hx_verify_settings *out, hx_slice *error)
{
    *out = (hx_verify_settings){.secret_count = flags->secret_count, .tolerance = HX_WEBHOOK_TOLERANCE};
    const char *wrong = read_scheme(flags, arena, &out->scheme);
    if (!wrong && flags->tolerance &&
        (!hx_unit_read(hx_slice_of(flags->tolerance), &out->tolerance) || out->tolerance > TOLERANCE_MAX))
        wrong = "--tolerance must be a duration such as 30s, 5m, 1h or 7d.";
    if (!wrong && flags->secret_count == 0) wrong = "Which secret? Give --secret-file FILE or --secret-env NAME.";
    if (!wrong && flags->too_many) wrong = "More than 8 secrets are given.";
    for (size_t i = 0; i < flags->secret_count && !wrong; i++)
        wrong = hx_source_secret(&out->scheme, &flags->secrets[i], arena, &out->texts[i], &out->secrets[i]);
    if (wrong) *error = hx_slice_of(wrong);
    return !wrong;
}

hx_webhook_rules hx_verify_rules(const hx_verify_settings *settings)
{
    return (hx_webhook_rules){.scheme = &settings->scheme,
                              .secrets = settings->secrets,
                              .secret_count = settings->secret_count,
                              .tolerance = settings->tolerance};
}
