/* SPDX-License-Identifier: Apache-2.0 */
/* What makes two requests with one key the same request: a MAC over length-prefixed method, host, path, query, media
 * type, Content-Encoding, preconditions and body, and of the headers that the route's rules choose. JSON is
 * canonicalised, or only what some pointers lead to counts; multipart is taken by its parts without its boundary,
 * everything else as it is: each under a tag of its own, so that none can pass for another. Where a natural key says
 * it all, it is the MAC of that key alone. */
#ifndef HX_CORE_OPERATION_FINGERPRINT_H
#define HX_CORE_OPERATION_FINGERPRINT_H

#include "base/memory/arena.h"
#include "core/crypto/mac.h"

/* The parts that a mismatch can name. */
#define HX_FINGERPRINT_PARTS(X)                                                                                        \
    X(METHOD, "method")                                                                                                \
    X(PATH, "path")                                                                                                    \
    X(QUERY, "query")                                                                                                  \
    X(MEDIA_TYPE, "media type")                                                                                        \
    X(CONTENT_ENCODING, "content encoding")                                                                            \
    X(PRECONDITIONS, "preconditions")                                                                                  \
    X(BODY, "body")                                                                                                    \
    X(HEADERS, "set of headers")                                                                                       \
    X(HOST, "host")

typedef enum {
#define HX_PART_NAME(name, text) HX_PART_##name,
    HX_FINGERPRINT_PARTS(HX_PART_NAME)
#undef HX_PART_NAME
        HX_PART_COUNT
} hx_fingerprint_part;

/* What of a request's body counts. */
typedef enum {
    HX_FINGERPRINT_CANONICAL, /* JSON by its meaning, multipart by its parts, else as it is */
    HX_FINGERPRINT_RAW,       /* as it is. Of the type only type/subtype and charset count, but for multipart, whose
                                 bytes mean nothing without their boundary: there it is the whole type. */
    HX_FINGERPRINT_POINTERS,  /* of clean JSON what some pointers lead to; any other body, and one in which none of them
                                 leads anywhere, counts as if CANONICAL */
    HX_FINGERPRINT_KEY        /* nothing of the request: its natural key says it all. Where `key` is empty, because the
                                 client's own key was preferred, as CANONICAL. */
} hx_fingerprint_body;

/* `fingerprint`, as a route has it. Zeroed: the default. Each list has up to HX_FINGERPRINT_LIST_MAX, and each pointer
 * passes hx_json_is_pointer. With KEY none of them counts. */
typedef struct {
    hx_fingerprint_body body;
    const hx_slice *pointers; /* POINTERS: a value that isn't there is another than null */
    size_t pointer_count;
    /* Taken out of clean JSON (CANONICAL, POINTERS) before it is compared. A member is then as if it weren't there; an
     * array's item keeps its place, so that the others keep theirs and the array its length: only its value doesn't
     * count. The root can't be ignored, and what leads nowhere is fine. */
    const hx_slice *ignored_pointers;
    size_t ignored_pointer_count;
    const hx_slice *ignored_query; /* names, compared with percent-decoded ones; what is left keeps its order */
    size_t ignored_query_count;
    const hx_slice *headers; /* names, lower case: these count too */
    size_t header_count;
} hx_fingerprint_rules;

#define HX_FINGERPRINT_LIST_MAX 64u

const char *hx_fingerprint_part_text(hx_fingerprint_part part);

/* Fields that a request doesn't have are empty. */
typedef struct {
    hx_slice method, path, query, content_type, content_encoding, if_match, if_none_match, if_unmodified_since, body;
    hx_slice host;  /* as hx_text_host has it; empty where it is part of the operation's name instead */
    bool has_query; /* `/a?` is not `/a` */
    const hx_fingerprint_rules *rules; /* NULL: the default */
    const hx_slice *headers;           /* the values of rules->headers, all lines joined; empty where there are none */
    hx_slice key;                      /* HX_FINGERPRINT_KEY: the natural key */
    /* Filled in by the first of the calls below, so that the body is canonicalised once. Zero it to start with. */
    struct {
        bool done;
        bool has_query;
        char body_kind; /* 'J' canonical JSON, 'V' values chosen of it, 'M' a digest of multipart, 'R' raw */
        hx_slice body;
        hx_slice query;
        hx_slice media_type;
        hx_slice content_encoding;
    } normal;
} hx_fingerprint_input;

/* One `mac` for `in` from the first call on; what `normal` holds lives in `arena`. */
hx_digest hx_fingerprint(hx_mac *mac, hx_fingerprint_input *in, hx_arena *arena);
void hx_fingerprint_parts(hx_mac *mac, hx_fingerprint_input *in, hx_arena *arena, uint64_t parts[HX_PART_COUNT]);

/* What `{sha256:body}` of a natural key is made over, whatever the rules: the body as it came, or the digest of its
 * parts where it is multipart, so that a boundary drawn anew makes no other key. Of a form (multipart/form-data) only
 * the names and contents of its parts count, not what their files are called or said to be. */
hx_slice hx_fingerprint_body_hashed(hx_mac *mac, const hx_fingerprint_input *in, hx_arena *arena);
/* Whether the body is JSON by its media type, and not coded. It may still be broken. */
bool hx_fingerprint_is_json(const hx_fingerprint_input *in, hx_arena *arena);

#endif
