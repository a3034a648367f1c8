/* SPDX-License-Identifier: Apache-2.0 */
/* The schema: the rows of options.def, and reading, checking and writing of values that need only their row. */
#ifndef HX_CONFIG_OPTIONS_H
#define HX_CONFIG_OPTIONS_H

#include "config/problems.h"

/* Places of options: place, the struct of the values, its description in messages, its title in the reference. */
#define HX_OPTION_PLACES(X)                                                                                            \
    X(TOP, hx_config, "at the top of the file", "At the top of the file")                                              \
    X(ADMIN, hx_config, "under \"admin\"", "Under `admin`")                                                            \
    X(API, hx_config, "under \"api\"", "Under `api`")                                                                  \
    X(LIMITS, hx_limits, "under \"limits\"", "Under `limits`")                                                         \
    X(CORS, hx_config, "under \"cors\"", "Under `cors`")                                                               \
    X(ROUTE, hx_policy, "in a route or under \"defaults\"", "In a route, in a group and under `defaults`")             \
    X(KEY, hx_key_rules, "under \"key\"", "Under `key`, in a route or in `defaults`")                                  \
    X(JWT, hx_jwt_said, "under \"jwt\"", "Under `jwt`, in a route or in `defaults`")                                   \
    X(FINGERPRINT, hx_fingerprint_rules, "under \"fingerprint\"", "Under `fingerprint`, in a route or in `defaults`")  \
    X(RETRY, hx_retry_overrides, "under \"retry\"", "Under `retry`, in a route or in `defaults`")                      \
    X(PROBE, hx_probe, "under \"probe\"", "Under `probe`, in a route or in `defaults`")                                \
    X(FOUND, hx_probe, "under \"found\" of a \"probe\"", "Under `found` of a `probe`")                                 \
    X(ABSENT, hx_probe, "under \"absent\" of a \"probe\"", "Under `absent` of a `probe`")                              \
    X(ANSWER, hx_probe, "under \"answer\" of a \"probe\"", "Under `answer` of a `probe`")                              \
    X(DUPLICATE, hx_provider_duplicate, "under \"provider_duplicate\"",                                                \
      "Under `provider_duplicate`, in a route or in `defaults`")                                                       \
    X(INBOX, hx_config, "under \"inbox\"", "Under `inbox`")                                                            \
    X(SOURCE, hx_source_said, "in a source", "In a source, one of the list `sources`")                                 \
    X(EVENTS, hx_config_events, "under \"events\"", "Under `events`")                                                  \
    X(MCP, hx_config_mcp, "under \"mcp\"", "Under `mcp`")                                                              \
    X(AGENT_HOST, hx_agent_host, "in one of \"hosts\" of \"mcp\"", "In one of the list `hosts` under `mcp`")           \
    X(STREAM, hx_stream_rule, "under \"streams\" of \"events\"", "In one of the list `streams` under `events`")        \
    X(OUTBOX, hx_config_outbox, "in an outbox", "In an outbox, one of the list `outbox`")

typedef enum {
#define X(place, ...) HX_PLACE_##place,
    HX_OPTION_PLACES(X)
#undef X
} hx_option_place;

/* Types, and their names in the reference. Those up to INTEGER are one scalar that becomes one number. */
#define HX_OPTION_TYPES(X)                                                                                             \
    X(BOOL, "true or false")                                                                                           \
    X(ENUM, "a word")                                                                                                  \
    X(DURATION, "a duration")                                                                                          \
    X(BYTES, "a size")                                                                                                 \
    X(INTEGER, "a number")                                                                                             \
    X(TEXT, "text")                                                                                                    \
    X(NAME, "text")                                                                                                    \
    X(STORE, "a store")                                                                                                \
    X(LISTEN, "an address, or a list")                                                                                 \
    X(UPSTREAMS, "a URL, or a map")                                                                                    \
    X(UPSTREAM, "a name")                                                                                              \
    X(MATCH, "methods and a path")                                                                                     \
    X(REQUEST, "a method and a path")                                                                                  \
    X(ASK, "a method and a path, or off")                                                                              \
    X(POINTER, "a JSON pointer")                                                                                       \
    X(TEMPLATE, "text with parts in braces")                                                                           \
    X(RATE, "a number per time, or off")                                                                               \
    X(NAMES, "a list of names")                                                                                        \
    X(COUNTED, "canonical, raw, or a list of JSON pointers")                                                           \
    X(IGNORED, "a list of JSON pointers and query:NAME")                                                               \
    X(ORIGINS, "a list of origins")                                                                                    \
    X(HOSTS, "a list of host names")                                                                                   \
    X(NETWORKS, "a list of addresses and networks")                                                                    \
    X(PROTOCOLS, "a list of protocols")                                                                                \
    X(GROUP, "a name")                                                                                                 \
    X(SOCKET, "a unix socket, or off")                                                                                 \
    X(OUTCOMES, "a map of statuses to words")                                                                          \
    X(STATUSES, "a list of statuses")                                                                                  \
    X(PRINCIPALS, "a list")                                                                                            \
    X(ADMIN, "a map")                                                                                                  \
    X(API, "a map")                                                                                                    \
    X(LIMITS, "a map")                                                                                                 \
    X(CORS, "a map")                                                                                                   \
    X(KEY, "a map")                                                                                                    \
    X(JWT, "a map, or off")                                                                                            \
    X(FINGERPRINT, "a map")                                                                                            \
    X(RETRY, "a map")                                                                                                  \
    X(PROBE, "a map")                                                                                                  \
    X(FOUND, "a map")                                                                                                  \
    X(ABSENT, "a map")                                                                                                 \
    X(ANSWER, "a map")                                                                                                 \
    X(DUPLICATE, "a map")                                                                                              \
    X(DEFAULTS, "a map")                                                                                               \
    X(GROUPS, "a map of maps")                                                                                         \
    X(ROUTES, "a list of maps")                                                                                        \
    X(INBOX, "a map")                                                                                                  \
    X(SOURCES, "a list of maps")                                                                                       \
    X(ENDPOINTS, "a list of maps")                                                                                     \
    X(EVENTS, "a map")                                                                                                 \
    X(STREAMS, "a list of maps")                                                                                       \
    X(OUTBOXES, "store, or a list of maps")                                                                            \
    X(MCP, "a map")                                                                                                    \
    X(AGENT_HOSTS, "a list of maps")                                                                                   \
    X(MATCHES, "a list of methods and paths")                                                                          \
    X(COMMANDS, "a list of lists of words")                                                                            \
    X(SECRETS, "text, or a list")                                                                                      \
    X(URL, "a URL")

typedef enum {
#define X(name, text) HX_OPTION_##name,
    HX_OPTION_TYPES(X)
#undef X
} hx_option_type;

enum { HX_OPTION_RELOAD = 1, HX_OPTION_ALONE = 2 };

typedef struct {
    const char *name;
    hx_option_place place;
    hx_option_type type;
    size_t offset; /* offset of the field in the struct of its place */
    size_t bytes;
    uint64_t low, high;
    const char *words; /* "replay|reject|noop" */
    const char *fallback;
    const char *text;
    unsigned flags;
} hx_option;

const hx_option *hx_options(size_t *count);
/* Returns NULL if there is no such option. */
const hx_option *hx_option_find(hx_option_place place, hx_slice name);
/* The end of a sentence about an unknown name: `, did you mean "lifetime"?` or empty. */
const char *hx_option_hint(hx_option_place place, hx_slice name, hx_arena *arena);

/* Reads a BOOL, ENUM, DURATION, BYTES or INTEGER. Returns NULL, or a predicate that follows the option's name:
 * `must be 1 to 64, not 99`. */
const char *hx_option_read(const hx_option *option, hx_slice text, hx_arena *arena, uint64_t *value) HX_MUST_USE;
/* A predicate for a value of the wrong kind: `must be a duration such as 10s, 5m, 24h or 7d`. */
const char *hx_option_expects(const hx_option *option, hx_arena *arena);
/* The word of an ENUM's value, or of `outcome`; empty: it can't be written. */
hx_slice hx_option_word(const hx_option *option, uint64_t value);
/* A DURATION, BYTES or INTEGER as it would be written: "24h". */
const char *hx_option_write(const hx_option *option, uint64_t value, hx_arena *arena);
/* Writes the number into `owner`, the struct of its place. */
void hx_option_store(const hx_option *option, void *owner, uint64_t value);
/* Sets every option of `place` that has a default and is a number. */
void hx_option_defaults(hx_option_place place, void *owner);

/* docs/reference/options.md */
void hx_options_reference(hx_buf *out);

#endif
