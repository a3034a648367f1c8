/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a request or of a response, the same for every version of HTTP. Its slices live in the arena of the
 * stream or exchange that it belongs to. */
#ifndef HX_NET_HTTP_MESSAGE_H
#define HX_NET_HTTP_MESSAGE_H

#include "base/memory/buf.h"

enum {
    HX_FIELD_HOP = 1,
    HX_FIELD_FRAMING = 2,
    HX_FIELD_WITHHELD = 4, /* set by the gateway: the next hop gets no such field, or another in its place */
    HX_FIELD_ODD = 8       /* unknown, and its name has other bytes than letters, digits and hyphens */
};

typedef enum {
    HX_FIELD_OTHER = 0,
#define X(id, name, flags) HX_FIELD_##id,
#include "net/http/fields.def"
#undef X
    HX_FIELD_COUNT
} hx_field_id;

typedef struct {
    hx_slice name;  /* as it was spelled */
    hx_slice value; /* trimmed */
    hx_field_id id;
    uint8_t flags; /* HX_FIELD_HOP also when Connection names it */
} hx_field;

/* Whether the next hop sees the field, and sees it as it came. */
static inline bool hx_field_goes_on(const hx_field *field)
{
    return (field->flags & (HX_FIELD_HOP | HX_FIELD_WITHHELD)) == 0;
}

typedef struct {
    hx_field *items;
    uint16_t count;
    uint16_t cap;
    uint8_t lines[HX_FIELD_COUNT];  /* number of lines of each known field */
    uint16_t first[HX_FIELD_COUNT]; /* index of its first line, when lines[id] > 0 */
} hx_fields;

/* Appends a field, classified; false past `count_max`. */
bool hx_fields_add(hx_fields *fields, hx_arena *arena, uint16_t count_max, hx_slice name, hx_slice value) HX_MUST_USE;
/* Sets HX_FIELD_HOP on every field that a Connection field names. False when Connection is not a list of tokens, or
 * names a field that must not be hop-by-hop (Host, Content-Length, Transfer-Encoding, Authorization,
 * Idempotency-Key, Cookie, Content-Type, Date, Age …). */
bool hx_fields_mark_hops(hx_fields *fields) HX_MUST_USE;
/* The value of a known field: of its first line, or HX_EMPTY when it is missing (see lines[]). */
hx_slice hx_fields_get(const hx_fields *fields, hx_field_id id);
/* The first field of any name; NULL when it is missing. */
const hx_field *hx_fields_find(const hx_fields *fields, hx_slice name);
/* Whether two names become the same variable in CGI, WSGI and PHP, which turn every byte but letters and digits into an
 * underscore: `Transfer_Encoding` and `Transfer.Encoding` are Transfer-Encoding to them. */
bool hx_fields_named_alike(hx_slice one, hx_slice other);
/* The known field for which such an application takes an odd one; HX_FIELD_OTHER when there is none. */
hx_field_id hx_field_reads_as(const hx_field *field);
/* Writes "Name: value\r\n". */
void hx_field_write(hx_buf *out, hx_slice name, hx_slice value);

typedef struct {
    hx_slice method;
    hx_slice target; /* path and query, as received */
    hx_slice path;   /* the target up to '?' */
    hx_slice query;  /* after '?' */
    bool has_query;
    bool is_http10;
    bool keep_alive; /* the client may send another request on this connection */
    bool upgrade;    /* the client asks for Upgrade (Connection: upgrade) */
    bool expects_continue;
    bool chunked;
    bool has_body;          /* chunked, or content_length > 0 */
    int64_t content_length; /* -1: none given */
    hx_fields fields;
} hx_request_head;

typedef struct {
    uint16_t status;
    hx_slice reason;
    bool chunked;
    bool until_close;       /* the body ends with the connection */
    int64_t content_length; /* -1: none given */
    hx_fields fields;
} hx_answer_head;

/* "Created" for 201; "" for a status without a usual reason. */
hx_slice hx_status_reason(unsigned status);

#endif
