/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a record, version 3. Little-endian, no padding:
 *
 *     0   1  version            72  32  fingerprint
 *     1   1  state             104  64  MAC of each part
 *     2   1  from_state        168  32  principal
 *     3   1  flags             200  32  proof
 *     4   4  head length       232  32  key
 *     8   8  epoch             264   8  tombstone_until
 *    16  16  operation         272   4  rule version
 *    32   8  created_at        276   2  attempt
 *    40   8  changed_at        278   2  answer: status
 *    48   8  expires_at        280   4  answer: length of its headers
 *    56   8  lease_until       284   4  answer: length of its body
 *    64   8  owner             288   4  answer: CRC-32C of both
 *                              292   4  lengths of route, correlation, reason, result: one byte each
 *                              296   8  MAC of the host
 *   304   …  the four texts
 *     …   4  CRC-32C of the head up to here
 *     …   …  the answer's headers, then its body
 *
 * Flags: 1 = the answer is retained, 2 = the key was quoted, 4 = the last text is not the result but the key's
 * parameters, which matter only as long as there is no result. The head length counts all up to and with its CRC, so
 * the head is complete by itself: the audit's chain goes over heads, and stays whole when bodies are dropped. */
#include "core/operation/record.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hex.h"
#include "core/json/json.h"

#include <string.h>

#define VERSION 3
#define FLAG_RETAINED 1
#define FLAG_KEY_QUOTED 2
#define FLAG_KEY_PARAMETERS 4
#define FIXED_BYTES 304u
#define CRC_BYTES 4u
#define AT_EPOCH 8u

_Static_assert(HX_PART_COUNT == 9, "a new part of the fingerprint needs a new version of the record");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is written in the machine's order");
_Static_assert(FIXED_BYTES + 4 * HX_RECORD_TEXT_MAX + CRC_BYTES <= HX_RECORD_HEAD_MAX, "a head fits its limit");

bool hx_op_eq(const hx_op *a, const hx_op *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool hx_op_read(hx_slice text, hx_op *op)
{
    if (text.len != 2 * sizeof op->bytes) return false;
    for (size_t i = 0; i < sizeof op->bytes; i++) {
        int byte = hx_hex_byte(text.ptr + 2 * i);
        if (byte < 0) return false;
        op->bytes[i] = (uint8_t)byte;
    }
    return true;
}

const char *hx_state_name(hx_state state)
{
    switch (state) {
#define X(name, number, text)                                                                                          \
    case HX_##name: return text;
        HX_STATES(X)
#undef X
    }
    return "?";
}

/* Writing and reading visit the fixed fields in one order, so the layout is written down once. Inlined, each visit
 * becomes a few moves: records are encoded and decoded several times per request. */
typedef struct {
    char *at;
    bool writing;
} cursor;

HX_ALWAYS_INLINE void field(cursor *c, void *value, size_t bytes)
{
    if (c->writing)
        memcpy(c->at, value, bytes);
    else
        memcpy(value, c->at, bytes);
    c->at += bytes;
}

typedef struct {
    uint8_t version, state, from_state, flags;
    uint32_t head_len, headers_len, body_len, answer_crc;
    uint8_t text_len[4];
} frame;

HX_ALWAYS_INLINE void walk(cursor *c, frame *f, hx_record *r)
{
    field(c, &f->version, 1);
    field(c, &f->state, 1);
    field(c, &f->from_state, 1);
    field(c, &f->flags, 1);
    field(c, &f->head_len, 4);
    field(c, &r->epoch, 8);
    field(c, r->op.bytes, sizeof r->op.bytes);
    field(c, &r->created_at, 8);
    field(c, &r->changed_at, 8);
    field(c, &r->expires_at, 8);
    field(c, &r->lease_until, 8);
    field(c, &r->owner, 8);
    field(c, r->fingerprint.bytes, 32);
    field(c, r->parts, HX_PART_HOST * sizeof(uint64_t));
    field(c, r->principal.bytes, 32);
    field(c, r->proof.bytes, 32);
    field(c, r->key.bytes, 32);
    field(c, &r->tombstone_until, 8);
    field(c, &r->rule_version, 4);
    field(c, &r->attempt, 2);
    field(c, &r->answer.status, 2);
    field(c, &f->headers_len, 4);
    field(c, &f->body_len, 4);
    field(c, &f->answer_crc, 4);
    field(c, f->text_len, sizeof f->text_len);
    field(c, &r->parts[HX_PART_HOST], sizeof(uint64_t));
}

static uint32_t answer_crc(const hx_answer *answer)
{
    return hx_crc32c(hx_crc32c(0, answer->headers), answer->body);
}

void hx_record_encode(const hx_record *record, hx_buf *out)
{
    hx_record r = *record; /* walk() takes both directions, so it wants something writable */
    bool has_parameters = r.result.len == 0 && r.key_parameters.len > 0;
    const hx_slice texts[4] = {r.route, r.correlation, r.reason, has_parameters ? r.key_parameters : r.result};
    frame f = {.version = VERSION,
               .state = (uint8_t)r.state,
               .from_state = (uint8_t)r.from_state,
               .flags = (uint8_t)((r.answer.retained ? FLAG_RETAINED : 0) | (r.key_quoted ? FLAG_KEY_QUOTED : 0) |
                                  (has_parameters ? FLAG_KEY_PARAMETERS : 0)),
               .headers_len = (uint32_t)r.answer.headers.len,
               .body_len = (uint32_t)r.answer.body.len,
               .answer_crc = answer_crc(&r.answer)};
    HX_CHECK(r.answer.headers.len < UINT32_MAX && r.answer.body.len < UINT32_MAX);
    size_t head_len = FIXED_BYTES + CRC_BYTES;
    for (int i = 0; i < 4; i++) {
        HX_CHECK(texts[i].len <= HX_RECORD_TEXT_MAX);
        f.text_len[i] = (uint8_t)texts[i].len;
        head_len += texts[i].len;
    }
    f.head_len = (uint32_t)head_len;
    bool fits = hx_buf_reserve(out, head_len);
    HX_CHECK(fits);
    cursor c = {.at = out->data + out->len, .writing = true};
    walk(&c, &f, &r);
    for (int i = 0; i < 4; i++) {
        if (texts[i].len > 0) memcpy(c.at, texts[i].ptr, texts[i].len);
        c.at += texts[i].len;
    }
    if (r.epoch > 0) hx_record_seal(out->data + out->len, head_len, r.epoch);
    out->len += head_len;
}

void hx_record_seal(char *head, size_t head_len, uint64_t epoch)
{
    HX_CHECK(head_len >= FIXED_BYTES + CRC_BYTES);
    memcpy(head + AT_EPOCH, &epoch, sizeof epoch);
    uint32_t crc = hx_crc32c(0, (hx_slice){head, head_len - CRC_BYTES});
    memcpy(head + head_len - CRC_BYTES, &crc, CRC_BYTES);
}

void hx_record_hold_by_reason(hx_record *record)
{
    bool is_duplicate = hx_slice_starts(record->reason, HX_LIT("PROVIDER.duplicate"));
    bool is_unmarked = hx_slice_ends(record->reason, HX_LIT(" without its mark"));
    if (record->state != HX_UNKNOWN || record->answer.status != 0) return;
    if (is_duplicate) record->answer.status = 409;
    if (is_unmarked) record->answer.status = 200;
}

static hx_record_error decode_head(hx_slice bytes, hx_record *out, frame *f)
{
    *out = (hx_record){0};
    if (bytes.len == 0) return HX_RECORD_DAMAGED;
    uint8_t version = (uint8_t)bytes.ptr[0];
    if (version == 0 || bytes.len < FIXED_BYTES + CRC_BYTES) return HX_RECORD_DAMAGED;
    if (version != VERSION) return version > VERSION ? HX_RECORD_NEWER : HX_RECORD_OLDER;
    cursor c = {.at = (char *)bytes.ptr};
    walk(&c, f, out);
    size_t texts_len = (size_t)f->text_len[0] + f->text_len[1] + f->text_len[2] + f->text_len[3];
    if (f->head_len != FIXED_BYTES + texts_len + CRC_BYTES || f->head_len > bytes.len) return HX_RECORD_DAMAGED;
    uint32_t crc;
    memcpy(&crc, bytes.ptr + f->head_len - CRC_BYTES, CRC_BYTES);
    if (crc != hx_crc32c(0, hx_slice_first(bytes, f->head_len - CRC_BYTES))) return HX_RECORD_DAMAGED;
    if (f->state > HX_EXPIRED || f->from_state > HX_EXPIRED) return HX_RECORD_DAMAGED;
    out->state = (hx_state)f->state;
    out->from_state = (hx_state)f->from_state;
    out->answer.retained = (f->flags & FLAG_RETAINED) != 0;
    out->key_quoted = (f->flags & FLAG_KEY_QUOTED) != 0;
    hx_slice *texts[4] = {&out->route, &out->correlation, &out->reason, &out->result};
    for (int i = 0; i < 4; i++) {
        *texts[i] = (hx_slice){c.at, f->text_len[i]};
        c.at += f->text_len[i];
    }
    out->key_parameters = HX_EMPTY;
    if (f->flags & FLAG_KEY_PARAMETERS) {
        out->key_parameters = out->result;
        out->result = HX_EMPTY;
    }
    if (out->state == HX_UNKNOWN) hx_record_hold_by_reason(out);
    return HX_RECORD_OK;
}

hx_record_error hx_record_decode_head(hx_slice bytes, hx_record *out, size_t *head_len, size_t *answer_len)
{
    frame f;
    hx_record_error error = decode_head(bytes, out, &f);
    if (error != HX_RECORD_OK) return error;
    *head_len = f.head_len;
    *answer_len = (size_t)f.headers_len + f.body_len;
    return HX_RECORD_OK;
}

hx_record_error hx_record_decode_layout(hx_slice bytes, hx_record *out, hx_record_layout *layout)
{
    frame f;
    hx_record_error error = decode_head(bytes, out, &f);
    if (error == HX_RECORD_OK) *layout = (hx_record_layout){f.head_len, f.headers_len, f.body_len, f.answer_crc};
    return error;
}

hx_record_error hx_record_decode(hx_slice bytes, hx_record *out)
{
    frame f;
    hx_record_error error = decode_head(bytes, out, &f);
    if (error != HX_RECORD_OK) return error;
    if (bytes.len != (size_t)f.head_len + f.headers_len + f.body_len) return HX_RECORD_DAMAGED;
    out->answer.headers = (hx_slice){bytes.ptr + f.head_len, f.headers_len};
    out->answer.body = (hx_slice){bytes.ptr + f.head_len + f.headers_len, f.body_len};
    return f.answer_crc == answer_crc(&out->answer) ? HX_RECORD_OK : HX_RECORD_DAMAGED;
}

static bool is_id(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < 0x20 || text.ptr[i] == 0x7f) return false;
    return text.len > 0 && text.len <= HX_RECORD_TEXT_MAX;
}

hx_slice hx_record_result(hx_slice pointer, hx_slice body, hx_arena *arena)
{
    hx_slice raw, text;
    if (pointer.len == 0 || !hx_json_pointer(body, pointer, &raw)) return HX_EMPTY;
    bool is_number = raw.ptr[0] == '-' || (raw.ptr[0] >= '0' && raw.ptr[0] <= '9');
    if (is_number) return is_id(raw) ? raw : HX_EMPTY;
    return hx_json_string(raw, arena, &text) && is_id(text) ? text : HX_EMPTY;
}
