/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration: flags override the file, and the file overrides the defaults of options.def. An hx_config is
 * complete, checked and immutable. Every mistake is reported, on a line of its own with file, line and column.
 *
 * Only the file itself and the time zones that it names are opened here: an address that is in use, or a store or a key
 * file that can't be opened, is reported by the code that opens it. */
#ifndef HX_CONFIG_CONFIG_H
#define HX_CONFIG_CONFIG_H

#include "base/memory/buf.h"
#include "base/network.h"
#include "core/event/endpoint.h"
#include "core/event/sequence.h"
#include "core/event/source.h"
#include "core/json/json_fields.h"
#include "core/operation/policy.h"

#define HX_CONFIG_FILE_BYTES_MAX (1024u * 1024u)
#define HX_LISTEN_MAX 16u
#define HX_UPSTREAMS_MAX 64u
#define HX_ROUTES_MAX 1000u
#define HX_GROUPS_MAX 100u

typedef enum { HX_ACCESS_LOG_STDERR, HX_ACCESS_LOG_OFF } hx_access_log;

/* `limits:` in the file. */
typedef struct {
    uint32_t connections; /* open connections per worker; others wait in the kernel's queue */
    uint32_t head_bytes;  /* largest head of a request */
    uint16_t headers;
    hx_ms head_timeout;
    hx_ms idle_timeout;
    uint32_t body_rate_min; /* bytes per second; 0: no minimum */
    hx_ms send_timeout;
    uint32_t send_rate_min; /* bytes per second of a response; 0: no minimum */
    uint64_t memory;        /* bytes per worker, for its keyed requests */
    hx_ms connect_timeout;
    hx_ms upstream_idle_timeout;
    uint16_t answer_headers; /* most headers of an upstream's response */
    uint32_t waiters;        /* waiters of all operations together */
    uint32_t waiters_per_operation;
} hx_limits;

typedef struct {
    hx_slice name; /* empty: the only upstream, without a name */
    hx_slice url;  /* "http://127.0.0.1:3000", "unix:/run/app.sock"; without a trailing slash; well-formed */
} hx_config_upstream;

/* A source of keys that verify tokens. */
typedef struct {
    enum { HX_JWT_KEY_FILE, HX_JWT_SECRET_FILE, HX_JWT_JWKS_FILE, HX_JWT_JWKS_URL } kind;
    hx_slice where;
    hx_ms refresh; /* JWKS_URL: the interval between fetches */
} hx_jwt_source;

#define HX_JWT_SOURCES_MAX 16u
#define HX_CORS_ORIGINS_MAX 64u
#define HX_TRUSTED_PROXIES_MAX 64u
#define HX_UPGRADES_MAX 8u
#define HX_API_HOSTS_MAX 16u

#define HX_EVENTS_ALLOW_MAX 64u
#define HX_STREAM_RULES_MAX 64u
#define HX_CONFIG_ENDPOINTS_MAX 256u

/* One of `events.endpoints`, without its secrets. */
typedef struct {
    hx_slice name;
    hx_endpoint endpoint;
    hx_webhook_secret_place places[HX_ENDPOINT_SECRETS_MAX];
    size_t place_count;
    hx_slice given; /* its members, as JSON */
} hx_config_endpoint;

/* `events:` in the file. */
typedef struct {
    uint32_t attempts; /* under way at a time */
    uint32_t payload_bytes_max;
    hx_ms retention;
    hx_ms dead_retention;
    hx_ms disable_after; /* 0: never */
    hx_ms pause_max;
    hx_ms schedule_max;
    uint32_t response_bytes_max;
    uint32_t allow_count;
    hx_network allow[HX_EVENTS_ALLOW_MAX]; /* networks that deliveries may go to although they aren't public */
    hx_slice ca_file;                      /* empty: the system's certificates */
    hx_stream_rule *streams;               /* the first that matches a stream applies */
    size_t stream_count;
    hx_config_endpoint *endpoints;
    size_t endpoint_count;
} hx_config_events;

/* One of `outbox`. */
typedef struct {
    hx_slice name;
    hx_slice database; /* a URL: "postgres://…" */
} hx_config_outbox;

#define HX_OUTBOXES_MAX 16u

#define HX_AGENT_HOSTS_MAX 64u
#define HX_AGENT_MATCHES_MAX 64u
#define HX_AGENT_COMMANDS_MAX 64u
#define HX_AGENT_WORDS_MAX 64u

/* One of `mcp.hosts`. */
typedef struct {
    hx_slice url;       /* "https://api.example.com": scheme, host and port alone */
    hx_policy *matches; /* methods and paths of the requests that agents may send */
    size_t match_count;
    hx_slice credentials; /* a file of header lines that are added; empty: none */
    hx_slice *headers;    /* names, in lower case, of headers that agents may set beside Accept and Content-Type */
    size_t header_count;
} hx_agent_host;

/* `mcp:` in the file: what `hapax mcp` lets agents do. */
typedef struct {
    hx_slice name; /* of the server; a part of every key */
    hx_agent_host *hosts;
    size_t host_count;
    hx_texts *commands; /* words of an argument list; "*" is any one that isn't an option, "**" at the end any more */
    size_t command_count;
    hx_network allow[HX_EVENTS_ALLOW_MAX]; /* networks that requests may go to although they aren't public */
    uint32_t allow_count;
    hx_ms timeout;    /* of one attempt */
    hx_ms budget;     /* of one call, for all its attempts */
    hx_slice intents; /* a folder; empty: that of `hapax send` */
    hx_slice store;   /* of commands; empty: that of `hapax run` */
    hx_slice ca_file; /* empty: the system's certificates */
} hx_config_mcp;

typedef struct {
    hx_arena arena;   /* everything below lives here */
    const char *file; /* the path as it was given; NULL: no file */
    hx_slice *listen; /* "127.0.0.1:8080", "[::1]:8080", "unix:/run/hapax.sock": well-formed, at least one */
    size_t listen_count;
    hx_config_upstream *upstreams; /* hx_policy.upstream is an index here; requests that match no route
                                    * go to policies.defaults.upstream */
    size_t upstream_count;
    hx_slice store;        /* a URL: "journal:DIR", "postgres://…" */
    hx_slice admin_listen; /* "unix:/run/hapax/admin.sock"; empty: not given */
    bool admin_off;        /* `admin: {listen: off}`: no admin socket */
    struct {               /* `api`, where requests need tokens */
        hx_slice *listen;  /* well-formed; loopback addresses and unix sockets, unless `insecure` */
        size_t listen_count;
        hx_slice hosts[HX_API_HOSTS_MAX]; /* names that it is known by, beside localhost */
        size_t host_count;
        uint32_t connections;
        uint32_t readers_max;
        bool insecure;
    } api;
    uint32_t workers;
    bool require_key; /* the same as policies.require_key */
    bool dev;         /* short keys, readable logs, released 5xx; every response says so in a header */
    hx_access_log access_log;
    hx_slice error_docs; /* a URL, to which the code of an error is appended */
    bool log_readable;
    hx_ms drain;
    bool core_dumps;
    uint64_t store_bytes_max; /* 0: no limit */
    hx_ms audit_retention;    /* 0: for ever */
    hx_limits limits;
    hx_jwt_source jwt_sources[HX_JWT_SOURCES_MAX];
    size_t jwt_source_count;
    struct {               /* `cors`, for Hapax's own responses */
        hx_slice *origins; /* "https://app.example.com", or "*" alone */
        size_t origin_count;
        bool credentials;
    } cors;
    hx_network trusted_proxies[HX_TRUSTED_PROXIES_MAX];
    size_t trusted_proxy_count;
    hx_slice upgrades[HX_UPGRADES_MAX]; /* protocols, in lower case */
    size_t upgrade_count;
    bool upstream_keepalive;
    bool publish_policy; /* GET /.well-known/idempotency */
    hx_policy_set policies;
    struct {
        hx_slice *listen; /* as `listen` above */
        size_t listen_count;
        hx_slice path; /* on the gateway's listeners; empty: it isn't there */
    } inbox;
    hx_source *sources; /* without their secrets: hx_source_open reads those */
    size_t source_count;
    hx_config_outbox outboxes[HX_OUTBOXES_MAX];
    size_t outbox_count;
    hx_config_events events;
    bool events_given; /* the configuration has `events` */
    hx_config_mcp mcp;
    bool mcp_given;
    bool connections_given; /* the configuration sets limits.connections */
    hx_slice notes;         /* warnings: lines "FILE:LINE:COLUMN: text" */
} hx_config;

/* Flags as they were typed; NULL or false: not given. */
typedef struct {
    const char *upstream;
    const char *const *listen;
    size_t listen_count;
    const char *api;
    const char *store;
    const char *workers;
    bool require_key;
    bool dev;
    bool strict;      /* refuse unprotected unsafe methods without `because` */
    bool agents_only; /* a file with `mcp` needs no upstream */
} hx_config_overrides;

/* Returns NULL if something is wrong, with a line for each mistake in `errors`, as far as they fit ("… and 7 more").
 * `file` NULL: flags and defaults only. `flags` NULL: file and defaults only. */
hx_config *hx_config_load(const char *file, const hx_config_overrides *flags, hx_buf *errors) HX_MUST_USE;
/* The same for a text in memory; messages call it `name`. */
hx_config *hx_config_parse(const char *name, hx_slice text, const hx_config_overrides *flags,
                           hx_buf *errors) HX_MUST_USE;
void hx_config_free(hx_config **owned);

struct hx_zone; /* core/time/zone.h */
/* Reads a time zone of the machine's database into the arena; NULL: it has none of that name. A hx_zone_finder. */
const struct hx_zone *hx_config_zone(void *arena, hx_slice name);

#endif
