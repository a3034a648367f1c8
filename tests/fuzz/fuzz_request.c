/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a request, head and body: it is read, or refused with a status of HTTP's; and however its bytes are cut,
 * the verdict, the fields, the content and the end are the same. */
#include "base/memory/buf.h"
#include "base/check.h"
#include "net/h1/body_framing.h"
#include "cuts.h"

#include <string.h>

#define HEAD_MAX 2048u
#define FIELDS_MAX 40u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    hx_h1_result head;
    hx_h1_body_result body;
    hx_h1_fault fault;
    size_t used;
    hx_buf seen; /* what was understood, one after the other */
} reading;

static void note(hx_buf *out, hx_slice part)
{
    hx_buf_put_decimal(out, part.len);
    hx_buf_puts(out, ":");
    hx_buf_put(out, part);
}

static void note_head(hx_buf *out, const hx_request_head *head)
{
    note(out, head->method);
    note(out, head->target);
    for (size_t i = 0; i < head->fields.count; i++) {
        note(out, head->fields.items[i].name);
        note(out, head->fields.items[i].value);
    }
    HX_CHECK(!head->chunked || head->content_length < 0); /* never two ways to find the end */
    HX_CHECK(head->has_body == (head->chunked || head->content_length > 0));
    HX_CHECK(head->fields.count <= FIELDS_MAX && head->target.len > 0);
}

static void read_body(reading *r, const hx_request_head *head, hx_slice rest, hx_cuts *cuts)
{
    hx_h1_body body;
    hx_h1_body_init(&body, head, 64, 128);
    r->body = HX_H1_BODY_MORE;
    while (r->body == HX_H1_BODY_MORE) {
        size_t bytes = hx_cuts_next(cuts, rest.len);
        hx_slice input = {rest.ptr, bytes}, piece = HX_EMPTY;
        while ((r->body = hx_h1_body_next(&body, &input, &piece, &r->fault)) == HX_H1_BODY_PIECE) {
            HX_CHECK(piece.len > 0);
            hx_buf_put(&r->seen, piece);
        }
        HX_CHECK(r->body != HX_H1_BODY_MORE || input.len == 0);
        r->used += bytes - input.len;
        rest = hx_slice_from(rest, bytes);
        if (bytes == 0) return;
    }
}

static reading read_request(hx_slice raw, hx_cuts cuts, hx_arena *arena)
{
    reading r = {.head = HX_H1_MORE, .body = HX_H1_BODY_MORE};
    hx_h1_scan scan = {0};
    hx_request_head head = {0};
    size_t given = 0;
    hx_buf_init(&r.seen, arena, 1u << 20);
    while (r.head == HX_H1_MORE && given < raw.len) {
        given += hx_cuts_next(&cuts, raw.len - given);
        r.head = hx_h1_scan_head(&scan, hx_slice_first(raw, given), HEAD_MAX, &r.fault);
    }
    if (r.head != HX_H1_WHOLE) return r;
    r.used = scan.at;
    hx_slice kept = hx_arena_copy(arena, hx_slice_first(raw, scan.at));
    if (!hx_h1_parse_request(&head, arena, kept, scan.lines, FIELDS_MAX, &r.fault)) {
        r.head = HX_H1_BAD;
        return r;
    }
    note_head(&r.seen, &head);
    if (head.has_body) read_body(&r, &head, hx_slice_from(raw, r.used), &cuts);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 8192) return 0;
    hx_slice raw = {(const char *)data + 2, size - 2};
    hx_arena arena = {0};
    reading whole = read_request(raw, (hx_cuts){HX_CUT_NOWHERE, 0}, &arena);
    bool is_bad = whole.head == HX_H1_BAD || whole.body == HX_H1_BODY_BAD;
    HX_CHECK(!is_bad || (whole.fault.status >= 400 && whole.fault.status < 600 && whole.fault.detail));
    for (hx_cutting how = HX_CUT_ANYWHERE; how <= HX_CUT_EVERYWHERE; how++) {
        reading cut = read_request(raw, (hx_cuts){how, (uint32_t)(data[0] << 8 | data[1])}, &arena);
        HX_CHECK(cut.head == whole.head && cut.body == whole.body);
        HX_CHECK(!is_bad || cut.fault.status == whole.fault.status);
        HX_CHECK(is_bad || cut.used == whole.used);
        HX_CHECK(hx_slice_eq(hx_buf_slice(&cut.seen), hx_buf_slice(&whole.seen)));
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
