/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/cors.h"

/* Every header that we may add to an answer, and Retry-After, Age and Link, which scripts don't see by themselves. */
static const char expose_line[] =
    "Access-Control-Expose-Headers: Idempotency-Status, Idempotent-Replayed, Idempotency-Expires, "
    "Original-Request-Time, Error-Code, Retry-After, Age, Link, X-Correlation-Id, Request-Id, Stripe-Should-Retry, "
    "Hapax-Mode, Hapax-Shadow\r\n";

static bool allows_any(const hx_config *config)
{
    return config->cors.origin_count == 1 && hx_slice_eq(config->cors.origins[0], HX_LIT("*"));
}

/* The origin that asks, if it is listed. Compared to the byte, as browsers write it. */
static bool is_listed(const hx_config *config, const hx_fields *request, hx_slice *origin)
{
    const hx_field *field = hx_fields_find(request, HX_LIT("Origin"));
    if (!field) return false;
    *origin = field->value;
    for (size_t i = 0; i < config->cors.origin_count; i++)
        if (hx_slice_eq(config->cors.origins[i], *origin)) return true;
    return allows_any(config);
}

void hx_cors_allow(const hx_config *config, const hx_fields *request, hx_buf *lines)
{
    hx_slice origin;
    if (config->cors.origin_count == 0) return;
    if (allows_any(config)) {
        hx_buf_puts(lines, "Access-Control-Allow-Origin: *\r\n");
        hx_buf_puts(lines, expose_line);
        return;
    }
    hx_buf_puts(lines, "Vary: Origin\r\n"); /* to whoever asks: a cache must not give one origin's answer to another */
    if (!is_listed(config, request, &origin)) return;
    hx_field_write(lines, HX_LIT("Access-Control-Allow-Origin"), origin);
    if (config->cors.credentials) hx_buf_puts(lines, "Access-Control-Allow-Credentials: true\r\n");
    hx_buf_puts(lines, expose_line);
}

static const hx_slice allow_origin = {"access-control-allow-origin:", sizeof "access-control-allow-origin:" - 1};

/* The origin that an answer's lines allow; empty where they allow none. */
static hx_slice allowed_by(hx_slice lines)
{
    while (lines.len > 0) {
        size_t end = hx_slice_find(lines, '\n');
        hx_slice line = end == SIZE_MAX ? lines : hx_slice_first(lines, end);
        if (hx_slice_starts_nocase(line, allow_origin)) {
            if (hx_slice_ends(line, HX_LIT("\r"))) line.len--;
            return hx_slice_trim(hx_slice_from(line, allow_origin.len));
        }
        lines = hx_slice_from(lines, end == SIZE_MAX ? lines.len : end + 1);
    }
    return HX_EMPTY;
}

void hx_cors_expose(const hx_config *config, const hx_fields *request, hx_buf *lines)
{
    hx_slice origin;
    if (config->cors.origin_count == 0 || !is_listed(config, request, &origin)) return;
    /* A second line of it is one list with the application's own. */
    if (allowed_by(hx_buf_slice(lines)).len > 0) hx_buf_puts(lines, expose_line);
}

bool hx_cors_replaces(const hx_config *config, const hx_fields *request, hx_slice kept_lines)
{
    hx_slice origin;
    if (config->cors.origin_count == 0 || !is_listed(config, request, &origin)) return false;
    hx_slice allowed = allowed_by(kept_lines);
    return allowed.len > 0 && !hx_slice_eq(allowed, HX_LIT("*")) && !hx_slice_eq(allowed, origin);
}

/* Credentials too: that the first origin may send them says nothing of this one. */
bool hx_cors_is_replaced(hx_slice line)
{
    return hx_slice_starts_nocase(line, allow_origin) ||
           hx_slice_starts_nocase(line, HX_LIT("access-control-allow-credentials:"));
}
