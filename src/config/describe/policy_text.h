/* SPDX-License-Identifier: Apache-2.0 */
/* What a route says, for `hapax check`: in words, as JSON, and one thing beside the other. */
#ifndef HX_CONFIG_DESCRIBE_POLICY_TEXT_H
#define HX_CONFIG_DESCRIBE_POLICY_TEXT_H

#include "base/memory/buf.h"
#include "config/config.h"

/* A line for each that isn't as it is by default, separated by line feeds; empty when all are. Terminated. */
const char *hx_describe_text(const hx_config *config, const hx_policy *route, hx_arena *arena);
/* Members of a JSON object, each behind a comma. */
void hx_describe_json(const hx_config *config, const hx_policy *route, hx_buf *out);

/* As it is written in a file: a word of a route's option, "7d", "50/s" (empty: there is none), "authorization" or
 * "header:X-User", "POST,PUT /refunds" (terminated). */
hx_slice hx_describe_word(const char *option, unsigned value);
const char *hx_describe_duration(hx_ms span, hx_arena *arena);
hx_slice hx_describe_rate(const hx_rate *rate, hx_arena *arena);
hx_slice hx_describe_principal(const hx_principal_source *source, hx_arena *arena);
hx_slice hx_describe_match(const hx_policy *route, hx_arena *arena);
/* Which kind of keys: "jwks_url". */
const char *hx_describe_keys(const hx_jwt_source *source);

/* One thing that can be said of a route. */
typedef struct {
    const char *name; /* "lifetime_ms"; "key.from" stands below "key" */
    void (*write)(const hx_config *config, const hx_policy *route, hx_buf *out); /* as a JSON value */
    bool is_part_of_the_key;                                                     /* operations are known by it */
} hx_rule_row;

const hx_rule_row *hx_describe_rows(size_t *count);
/* The value in words: "7d" of "lifetime_ms". Terminated. */
const char *hx_describe_value(const hx_rule_row *row, const hx_config *config, const hx_policy *route, hx_arena *arena);

#endif
