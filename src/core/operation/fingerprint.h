/* SPDX-License-Identifier: Apache-2.0 */
/* The fingerprint of a request: two requests with one key are the same request when their fingerprints are equal. It
 * is a MAC over length-prefixed method, host, path, query, media type, Content-Encoding, preconditions and body, and
 * over the headers that the route chooses. JSON is canonicalised, or reduced to the values of some pointers;
 * multipart is taken by its parts, without its boundary; any other body counts byte by byte. Each kind has a tag of
 * its own, so that none can pass for another. With `fingerprint: key` it is the MAC of the natural key alone. */
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

/* How the body of a request counts. */
typedef enum {
    HX_FINGERPRINT_CANONICAL, /* JSON by its meaning, multipart by its parts, anything else byte by byte */
    HX_FINGERPRINT_RAW,       /* byte by byte. Of the media type only type/subtype and charset count; multipart, whose
                                 bytes mean nothing without their boundary, counts with its whole type */
    HX_FINGERPRINT_POINTERS,  /* the values of some pointers in clean JSON; any other body, and one in which no pointer
                                 finds a value, counts as CANONICAL */
    HX_FINGERPRINT_KEY        /* the natural key alone. Where `key` is empty, because the client's own key was
                                 preferred, the body counts as CANONICAL */
} hx_fingerprint_body;

/* The option `fingerprint` of a route. All zero is the default. Each list has up to HX_FINGERPRINT_LIST_MAX items,
 * and each pointer passes hx_json_is_pointer. With HX_FINGERPRINT_KEY no list counts. */
typedef struct {
    hx_fingerprint_body body;
    const hx_slice *pointers; /* POINTERS: a missing value differs from null */
    size_t pointer_count;
    /* Values that are removed from clean JSON (CANONICAL, POINTERS) before it is compared. A member is removed as if
     * it had never been there; an item of an array keeps its place, and only its value is ignored. The root can't be
     * ignored, and a pointer that finds nothing changes nothing. */
    const hx_slice *ignored_pointers;
    size_t ignored_pointer_count;
    const hx_slice *ignored_query; /* names, compared after percent-decoding; the other parameters keep their order */
    size_t ignored_query_count;
    const hx_slice *headers; /* names in lower case, of headers that count, too */
    size_t header_count;
} hx_fingerprint_rules;

#define HX_FINGERPRINT_LIST_MAX 64u

const char *hx_fingerprint_part_text(hx_fingerprint_part part);

/* Fields that a request doesn't have are empty. */
typedef struct {
    hx_slice method, path, query, content_type, content_encoding, if_match, if_none_match, if_unmodified_since, body;
    hx_slice host;  /* as from hx_text_host; empty where the host is part of the operation's name instead */
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

/* Use the same `mac` for `in` in all calls; the slices of `normal` live in `arena`. */
hx_digest hx_fingerprint(hx_mac *mac, hx_fingerprint_input *in, hx_arena *arena);
void hx_fingerprint_parts(hx_mac *mac, hx_fingerprint_input *in, hx_arena *arena, uint64_t parts[HX_PART_COUNT]);

/* The bytes that `{sha256:body}` of a natural key hashes, whatever the rules: the body as it came, or the digest of
 * its parts where it is multipart, so that a new boundary makes no new key. Of a form (multipart/form-data) only the
 * names and contents of the parts count, not file names or types. */
hx_slice hx_fingerprint_body_hashed(hx_mac *mac, const hx_fingerprint_input *in, hx_arena *arena);
/* Whether the media type is JSON and there is no Content-Encoding. The body may still be malformed. */
bool hx_fingerprint_is_json(const hx_fingerprint_input *in, hx_arena *arena);

#endif
