/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an application's answer: however they are cut, the same events come, with the same head and content, and
 * the same bytes are left behind its end. An answer that was broken off is never whole. */
#include "base/memory/buf.h"
#include "base/check.h"
#include "net/h1/answer_parser.h"
#include "cuts.h"

#define HEAD_MAX 2048u
#define FIELDS_MAX 40u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    hx_answer_event last;
    bool ends_with_connection, keep_alive;
    size_t used;
    hx_buf seen;
} reading;

static void note_head(hx_buf *out, const hx_answer_head *head)
{
    hx_buf_put_decimal(out, head->status);
    for (size_t i = 0; i < head->fields.count; i++) {
        hx_field_write(out, head->fields.items[i].name, head->fields.items[i].value);
    }
    HX_CHECK(head->status >= 100 && head->status <= 999 && head->fields.count <= FIELDS_MAX);
    HX_CHECK(!head->chunked || head->content_length < 0);
}

static reading read_answer(hx_slice raw, hx_cuts cuts, bool was_head, hx_arena *arena)
{
    hx_h1_answer *answer = hx_arena_zalloc(arena, sizeof *answer);
    reading r = {.last = HX_ANSWER_MORE};
    hx_buf_init(&r.seen, arena, 1u << 20);
    hx_h1_answer_begin(answer, arena, HEAD_MAX, FIELDS_MAX, was_head);
    while (r.used < raw.len) {
        size_t bytes = hx_cuts_next(&cuts, raw.len - r.used);
        /* What was read is another's once the call is over: the reader may not look at it later. */
        hx_slice given = hx_arena_copy(arena, (hx_slice){raw.ptr + r.used, bytes}), in = given, piece = HX_EMPTY;
        do {
            r.last = hx_h1_answer_read(answer, &in, &piece);
            if (r.last == HX_ANSWER_HEAD) note_head(&r.seen, answer->head);
            if (r.last == HX_ANSWER_BODY) hx_buf_put(&r.seen, piece);
        } while (r.last == HX_ANSWER_HEAD || r.last == HX_ANSWER_BODY);
        r.used += bytes - in.len;
        if (r.last != HX_ANSWER_MORE) break;
        HX_CHECK(in.len == 0);
    }
    r.ends_with_connection = r.last == HX_ANSWER_MORE && hx_h1_answer_ends_with_connection(answer);
    r.keep_alive = r.last == HX_ANSWER_END && answer->keep_alive;
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 8192) return 0;
    hx_slice raw = {(const char *)data + 2, size - 2};
    bool was_head = data[0] >= 0xf0;
    hx_arena arena = {0};
    reading whole = read_answer(raw, (hx_cuts){HX_CUT_NOWHERE, 0}, was_head, &arena);
    bool is_bad = whole.last == HX_ANSWER_BROKEN || whole.last == HX_ANSWER_TOO_LARGE;
    for (hx_cutting how = HX_CUT_ANYWHERE; how <= HX_CUT_EVERYWHERE; how++) {
        reading cut = read_answer(raw, (hx_cuts){how, (uint32_t)(data[0] << 8 | data[1])}, was_head, &arena);
        HX_CHECK(cut.last == whole.last);
        if (is_bad) continue;
        HX_CHECK(cut.used == whole.used && cut.keep_alive == whole.keep_alive);
        HX_CHECK(cut.ends_with_connection == whole.ends_with_connection);
        HX_CHECK(hx_slice_eq(hx_buf_slice(&cut.seen), hx_buf_slice(&whole.seen)));
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
