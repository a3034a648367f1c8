/* SPDX-License-Identifier: Apache-2.0 */
/* Natural keys: a key made of what the request says, by a template such as
 *
 *     {body:/reporterId}:{body:/subjectId}:{body:/category}:{window:1h}
 *
 * The key is a MAC over the typed, length-prefixed parts, so that `a:b` + `c` is never `a` + `b:c`, and the string "1"
 * is never the number 1; literal text between the parts is one of them. A part that the request hasn't got is an error
 * that names it. A template is compiled once, immutable, and owns nothing outside its arena. */
#ifndef HX_CORE_OPERATION_TEMPLATE_H
#define HX_CORE_OPERATION_TEMPLATE_H

#include "base/memory/arena.h"
#include "base/clock.h"
#include "core/crypto/mac.h"

struct hx_zone; /* core/time/zone.h */

#define HX_TEMPLATE_PARTS_MAX 32u
#define HX_TEMPLATE_BYTES_MAX 1024u
#define HX_TEMPLATE_WINDOW_MIN HX_SECOND
#define HX_TEMPLATE_WINDOW_MAX (36500 * HX_DAY)

/* Kinds of parts: identifier, the word in the braces, what follows the colon ("" where nothing may). */
#define HX_TEMPLATE_KINDS(X)                                                                                           \
    X(LITERAL, "", "")                                                                                                 \
    X(HEADER, "header", "the name of a header")                                                                        \
    X(BODY, "body", "a JSON pointer")                                                                                  \
    X(PATH, "path", "a name in braces in the route's path")                                                            \
    X(QUERY, "query", "the name of a query parameter")                                                                 \
    X(PRINCIPAL, "principal", "")                                                                                      \
    X(DATE, "date", "a time zone such as America/New_York")                                                            \
    X(WINDOW, "window", "a duration such as 1h")                                                                       \
    X(BODY_HASH, "sha256", "body")

typedef enum {
#define X(name, word, argument) HX_TEMPLATE_##name,
    HX_TEMPLATE_KINDS(X)
#undef X
} hx_template_kind;

typedef struct {
    hx_template_kind kind;
    hx_slice text;              /* the source text, braces included */
    hx_slice argument;          /* after the colon, a header's name in lower case; of a literal the text itself */
    hx_slice canonical;         /* canonical form in the MAC: the same for two spellings of a part */
    const struct hx_zone *zone; /* DATE */
    hx_ms window;               /* WINDOW */
} hx_template_part;

typedef struct hx_template {
    hx_slice text;
    hx_template_part parts[HX_TEMPLATE_PARTS_MAX];
    size_t count;
    bool has_pointer; /* a BODY: body_is_json is asked for */
    bool has_hash;    /* a BODY_HASH: body_hashed is asked for */
    bool has_bucket;  /* a DATE or WINDOW */
    hx_ms bucket_min; /* the shortest window, or a day where there are only dates; 0 where there is no bucket */
} hx_template;

/* Finds a time zone by its name; NULL when there is none. */
typedef const struct hx_zone *(*hx_zone_finder)(void *user, hx_slice name);

/* NULL with a sentence in *error that names the part; the sentence may live in `arena`. The finder is only asked for
 * what hx_zone_is_name() takes. At least one part is of the request: a key that all share is none. */
const hx_template *hx_template_compile(hx_slice text, hx_zone_finder find_zone, void *user, hx_arena *arena,
                                       const char **error) HX_MUST_USE;
/* The same for a caller's own key, which may well consist of a date and a text. */
const hx_template *hx_template_of_caller(hx_slice text, hx_zone_finder find_zone, void *user, hx_arena *arena,
                                         const char **error) HX_MUST_USE;

/* The first {path:name} for which a route's path has no "{name}"; NULL when it has them all. */
const hx_template_part *hx_template_stray_path(const hx_template *template, hx_slice path_template);

/* The parts of a request that a template can read. */
typedef struct {
    /* Counts the lines of that header; *value is the first, trimmed. */
    unsigned (*header)(const void *user, hx_slice name, hx_slice *value);
    const void *user;
    hx_slice path;          /* normalised */
    hx_slice path_template; /* of the route: "/matches/{id}/messages" */
    hx_slice query;
    hx_slice principal;   /* as from core/operation/identity.h; empty: unauthenticated */
    bool body_is_json;    /* its media type is JSON, and it has no Content-Encoding */
    hx_slice body;        /* as it came */
    hx_slice body_hashed; /* for {sha256:body}: the body, or the digest of its parts where it is multipart */
    hx_ms now;
} hx_template_input;

/* The value of one part, in the clear, for `hapax explain`. */
typedef struct {
    hx_slice text;  /* of the part */
    hx_slice value; /* "user-7", "2026-11-15", "2026-11-15T13:00:00Z"; of the principal only its kind */
} hx_template_value;

typedef struct {
    hx_template_value values[HX_TEMPLATE_PARTS_MAX]; /* of all parts but literals, up to the first that is missing */
    size_t value_count;
    hx_slice wrong; /* as in hx_template_result */
    const char *why;
} hx_template_values;

typedef struct {
    hx_digest key;
    hx_digest fixed; /* digest of the parts that don't depend on the time */
    hx_slice wrong;  /* the part that is missing or can't be used, as it is written */
    const char *why; /* a sentence about it; NULL: none is */
} hx_template_result;

/* False: `wrong` and `why` say what is missing. What is empty is missing too, and so is null: callers who left a part
 * blank must not share an operation. `mac` must not be between begin and end. */
bool hx_template_key(const hx_template *template, const hx_template_input *in, hx_mac *mac, hx_arena *arena,
                     hx_template_result *out) HX_MUST_USE;

/* Lists the values of the parts as text for people; false as above. The values live in the input and the arena. */
bool hx_template_show(const hx_template *template, const hx_template_input *in, hx_arena *arena,
                      hx_template_values *out) HX_MUST_USE;

/* The key of the same request at another time, without reading the request again. */
hx_digest hx_template_key_at(const hx_template *template, const hx_digest *fixed, hx_ms now, hx_mac *mac,
                             hx_arena *arena);

/* The latest moment at or before `now` at which a date or window of the template became another. A millisecond before
 * it lies the previous bucket; ask again with that moment for the one before. Only where has_bucket. */
hx_ms hx_template_bucket_began(const hx_template *template, hx_ms now);

#endif
