/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/messages/cors.h"

#include "base/text.h"

#define PREFLIGHT_NAMES_MAX 2048u /* of the headers that a page wants to send; browsers send a few dozen bytes */

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

/* The origin that an answer's lines allow; empty where they allow none. */
static hx_slice allowed_by(hx_slice lines)
{
    for (hx_text_header header; hx_text_next_header(&lines, &header);)
        if (hx_slice_eq_nocase(header.name, HX_LIT("access-control-allow-origin"))) return header.value;
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
bool hx_cors_is_replaced(hx_slice name)
{
    return hx_slice_eq_nocase(name, HX_LIT("access-control-allow-origin")) ||
           hx_slice_eq_nocase(name, HX_LIT("access-control-allow-credentials"));
}

static hx_slice value_of(const hx_fields *fields, hx_slice name)
{
    const hx_field *field = hx_fields_find(fields, name);
    return field ? field->value : HX_EMPTY;
}

/* Whether every name of a list is one; an empty list is none. */
static bool are_names(hx_slice list, bool *has_key)
{
    hx_slice name;
    *has_key = false;
    if (list.len == 0 || list.len > PREFLIGHT_NAMES_MAX) return false;
    while (hx_slice_next(&list, ',', &name)) {
        name = hx_slice_trim(name);
        if (!hx_slice_is_token(name)) return false;
        *has_key = *has_key || hx_slice_eq_nocase(name, HX_LIT("Idempotency-Key"));
    }
    return true;
}

bool hx_cors_preflight(const hx_config *config, const hx_policy_set *policies, const hx_request_head *head,
                       hx_slice path, hx_arena *arena, hx_buf *lines)
{
    hx_slice origin, method = value_of(&head->fields, HX_LIT("Access-Control-Request-Method"));
    hx_slice names = value_of(&head->fields, HX_LIT("Access-Control-Request-Headers"));
    bool has_key;
    if (config->cors.origin_count == 0 || !hx_slice_eq(head->method, HX_LIT("OPTIONS"))) return false;
    if (!is_listed(config, &head->fields, &origin) || !hx_slice_is_token(method) || hx_method_is_safe(method))
        return false;
    if (!are_names(names, &has_key)) names = HX_EMPTY;
    const hx_policy *route = hx_policy_find(policies, method, path);
    if (!route && !has_key) return false; /* without a key it passes, and so does the question */
    if ((route ? route : &policies->defaults)->mode != HX_MODE_PROTECT) return false;
    hx_buf_init(lines, arena, HX_CORS_LINES_MAX + PREFLIGHT_NAMES_MAX + 512 + method.len);
    hx_cors_allow(config, &head->fields, lines);
    hx_buf_puts(lines, "Vary: Access-Control-Request-Method, Access-Control-Request-Headers\r\n");
    hx_field_write(lines, HX_LIT("Access-Control-Allow-Methods"), method);
    hx_buf_puts(lines, "Access-Control-Allow-Headers: ");
    hx_buf_put(lines, names);
    if (!has_key) hx_buf_puts(lines, names.len > 0 ? ", Idempotency-Key" : "Idempotency-Key");
    hx_buf_puts(lines, "\r\nAccess-Control-Max-Age: 600\r\n");
    return true;
}
