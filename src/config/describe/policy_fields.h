/* SPDX-License-Identifier: Apache-2.0 */
/* Every field of a route's policy, in one table. `hapax check` prints it in words or as JSON, --diff compares it,
 * `hapax explain` and the published rules print the parts of it that concern a client. */
#ifndef HX_CONFIG_DESCRIBE_POLICY_FIELDS_H
#define HX_CONFIG_DESCRIBE_POLICY_FIELDS_H

#include "base/memory/buf.h"
#include "config/config.h"

typedef void hx_describe_write(const hx_config *config, const hx_policy *route, hx_buf *out);

typedef struct {
    const char *name;         /* "lifetime_ms"; "key.from" is the member "from" of the object "key" */
    bool identifies;          /* part of an operation's identity: changing it makes every key a new one */
    bool published;           /* in the rules that clients can read, under the same name and with the same value */
    hx_describe_write *value; /* writes it as JSON */
    hx_describe_write *words; /* writes a line of text, with the fields that belong to it, unless all are at their
                             * defaults; NULL: never */
} hx_describe_field;

const hx_describe_field *hx_describe_fields(size_t *count);
/* The value for people: "7d" of "lifetime_ms". Terminated. */
const char *hx_describe_value(const hx_describe_field *field, const hx_config *config, const hx_policy *route,
                              hx_arena *arena);

/* Lines of text, separated by line feeds, for the fields that are not at their defaults. Terminated. */
const char *hx_describe_text(const hx_config *config, const hx_policy *route, hx_arena *arena);
/* All fields as members of a JSON object, each after a comma. */
void hx_describe_json(const hx_config *config, const hx_policy *route, hx_buf *out);

/* Values as a configuration file has them: a word of a route's option, "7d", "50/s" (empty: no rate), "authorization"
 * or "header:X-User", "POST,PUT /refunds" (terminated), the kind of a token's keys ("jwks_url"). */
hx_slice hx_describe_word(const char *option, unsigned value);
const char *hx_describe_duration(hx_ms span, hx_arena *arena);
hx_slice hx_describe_rate(const hx_rate *rate, hx_arena *arena);
hx_slice hx_describe_principal(const hx_principal_source *source, hx_arena *arena);
hx_slice hx_describe_match(const hx_policy *route, hx_arena *arena);
const char *hx_describe_keys(const hx_jwt_source *source);

#endif
