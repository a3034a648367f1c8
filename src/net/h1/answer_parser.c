/* SPDX-License-Identifier: Apache-2.0 */
#include "net/h1/answer_parser.h"

#include "base/check.h"

#include <string.h>

#define INTERIM_MAX 32u
/* Bytes of a chunk's size line and its two line ends that don't count against the limit of extensions and trailers:
 * sixteen digits, twice CR LF, and a few leading zeros. */
#define CHUNK_OVERHEAD_BYTES 24u

static int field_came(llhttp_t *parser, const char *at, size_t len)
{
    hx_h1_answer *answer = parser->data;
    answer->name = (hx_slice){at, len};
    answer->value = (hx_slice){at, 0};
    return 0;
}

static int value_came(llhttp_t *parser, const char *at, size_t len)
{
    hx_h1_answer *answer = parser->data;
    answer->value = (hx_slice){at, len};
    return 0;
}

static int field_complete(llhttp_t *parser)
{
    hx_h1_answer *answer = parser->data;
    if (answer->place != HX_ANSWER_IN_HEAD) return 0; /* a trailer: dropped */
    if (answer->name.len == 0) return HPE_USER;       /* llhttp lets ": value" through */
    if (hx_fields_add(&answer->head->fields, answer->arena, answer->fields_max, answer->name, answer->value)) return 0;
    answer->too_many_fields = true;
    return HPE_USER;
}

static int pause_parser(llhttp_t *parser)
{
    (void)parser;
    return HPE_PAUSED;
}

static int body_came(llhttp_t *parser, const char *at, size_t len)
{
    hx_h1_answer *answer = parser->data;
    answer->piece = (hx_slice){at, len};
    return HPE_PAUSED;
}

static int chunk_came(llhttp_t *parser)
{
    hx_h1_answer *answer = parser->data;
    answer->chunk_count++;
    return 0;
}

static int message_complete(llhttp_t *parser)
{
    hx_h1_answer *answer = parser->data;
    answer->place = HX_ANSWER_IS_OVER;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_header_field = field_came,
    .on_header_value = value_came,
    .on_header_value_complete = field_complete,
    .on_headers_complete = pause_parser,
    .on_body = body_came,
    .on_chunk_header = chunk_came,
    .on_message_complete = message_complete,
};

static void begin_head(hx_h1_answer *answer)
{
    answer->place = HX_ANSWER_IN_HEAD;
    answer->any_byte = false;
    answer->line_at = answer->scanned = 0;
    hx_buf_init(&answer->partial, answer->arena, answer->head_bytes_max);
}

void hx_h1_answer_begin(hx_h1_answer *answer, hx_arena *arena, uint32_t head_bytes_max, uint16_t fields_max,
                        bool request_was_head)
{
    answer->arena = arena;
    answer->head = NULL;
    answer->head_bytes_max = head_bytes_max;
    answer->fields_max = fields_max;
    answer->request_was_head = request_was_head;
    answer->keep_alive = false;
    answer->interim_count = 0;
    answer->head_bytes = 0;
    begin_head(answer);
}

/* Continues the search for the empty line. HEAD: *len is the length of the head. */
static hx_answer_event scan(hx_h1_answer *answer, const char *bytes, size_t available, size_t *len)
{
    static const char start[] = "HTTP/1.";
    size_t known = sizeof start - 1;
    if (answer->scanned < known && memcmp(bytes, start, available < known ? available : known) != 0)
        return HX_ANSWER_BROKEN;
    while (answer->scanned < available) {
        const char *lf = memchr(bytes + answer->scanned, '\n', available - answer->scanned);
        if (!lf) {
            answer->scanned = available;
            break;
        }
        size_t at = (size_t)(lf - bytes), line = answer->line_at;
        if (at == 0 || bytes[at - 1] != '\r') return HX_ANSWER_BROKEN;
        answer->scanned = answer->line_at = at + 1;
        if (at == line + 1) {
            *len = at + 1;
            return HX_ANSWER_HEAD;
        }
        if (line > 0 && (bytes[line] == ' ' || bytes[line] == '\t')) return HX_ANSWER_BROKEN; /* a fold */
    }
    return HX_ANSWER_MORE;
}

/* Parses "HTTP/1.1 200 OK": llhttp accepts other versions, one digit or none, and any byte in the reason. */
static bool read_status_line(hx_answer_head *head, hx_slice bytes, bool *is_http10)
{
    size_t lf = hx_slice_find(bytes, '\n'), after = sizeof "HTTP/1.1 200" - 1;
    if (lf == SIZE_MAX || lf < after + 1) return false;
    hx_slice line = hx_slice_first(bytes, lf - 1);
    char minor = line.ptr[7];
    if ((minor != '0' && minor != '1') || line.ptr[8] != ' ') return false;
    *is_http10 = minor == '0';
    uint64_t status;
    if (!hx_slice_to_u64((hx_slice){line.ptr + 9, 3}, &status) || status < 100 || status > 599) return false;
    head->status = (uint16_t)status;
    head->reason = HX_EMPTY;
    if (line.len == after) return true;
    if (line.ptr[after] != ' ') return false;
    head->reason = hx_slice_from(line, after + 1);
    for (size_t i = 0; i < head->reason.len; i++) {
        unsigned char c = (unsigned char)head->reason.ptr[i];
        if ((c < ' ' && c != '\t') || c == 127) return false;
    }
    return true;
}

static bool names_option(const hx_fields *fields, hx_slice wanted)
{
    if (fields->lines[HX_FIELD_CONNECTION] == 0) return false;
    for (size_t i = fields->first[HX_FIELD_CONNECTION]; i < fields->count; i++) {
        if (fields->items[i].id != HX_FIELD_CONNECTION) continue;
        hx_slice rest = fields->items[i].value, part;
        while (hx_slice_next(&rest, ',', &part))
            if (hx_slice_eq_nocase(hx_slice_trim(part), wanted)) return true;
    }
    return false;
}

static hx_ms keep_alive_time(const hx_fields *fields)
{
    hx_slice rest = hx_fields_get(fields, HX_FIELD_KEEP_ALIVE), part, name = HX_LIT("timeout=");
    while (hx_slice_next(&rest, ',', &part)) {
        hx_slice option = hx_slice_trim(part);
        uint64_t seconds;
        if (!hx_slice_starts_nocase(option, name)) continue;
        if (!hx_slice_to_u64(hx_slice_from(option, name.len), &seconds)) continue;
        return seconds > (uint64_t)(HX_DAY / HX_SECOND) ? HX_DAY : (hx_ms)seconds * HX_SECOND;
    }
    return -1;
}

/* Decides where the body ends, and refuses what another reader might decide otherwise. */
static bool read_framing(hx_h1_answer *answer, bool is_http10)
{
    hx_answer_head *head = answer->head;
    const hx_fields *fields = &head->fields;
    bool coded = fields->lines[HX_FIELD_TRANSFER_ENCODING] > 0;
    bool measured = fields->lines[HX_FIELD_CONTENT_LENGTH] > 0;
    head->content_length = -1;
    if (coded) {
        if (is_http10 || measured || fields->lines[HX_FIELD_TRANSFER_ENCODING] > 1) return false;
        if (!hx_slice_eq_nocase(hx_fields_get(fields, HX_FIELD_TRANSFER_ENCODING), HX_LIT("chunked"))) return false;
    }
    if (measured) {
        uint64_t length;
        if (fields->lines[HX_FIELD_CONTENT_LENGTH] > 1) return false;
        if (!hx_slice_to_u64(hx_fields_get(fields, HX_FIELD_CONTENT_LENGTH), &length)) return false;
        if (length > INT64_MAX) return false;
        head->content_length = (int64_t)length;
    }
    bool interim = head->status < 200, empty = interim || head->status == 204;
    if (interim && (coded || head->content_length > 0)) return false;
    if (empty && (coded || head->content_length > 0)) answer->keep_alive = false; /* it may send one all the same */
    if (empty || head->status == 304 || answer->request_was_head || head->content_length == 0) {
        answer->place = HX_ANSWER_IN_NOTHING;
    } else if (coded) {
        head->chunked = true;
        answer->place = HX_ANSWER_IN_CHUNKS;
        answer->overhead = answer->chunk_count = 0;
        answer->last_byte = '\n';
        llhttp_resume(&answer->parser);
    } else if (measured) {
        answer->place = HX_ANSWER_IN_LENGTH;
        answer->left = (uint64_t)head->content_length;
    } else {
        head->until_close = true;
        answer->keep_alive = false;
        answer->place = HX_ANSWER_UNTIL_CLOSE;
    }
    return true;
}

/* `bytes` is the whole head, in the arena. */
static hx_answer_event parse_head(hx_h1_answer *answer, hx_slice bytes)
{
    bool is_http10 = false;
    answer->head = hx_arena_zalloc(answer->arena, sizeof *answer->head);
    answer->too_many_fields = false;
    if (!read_status_line(answer->head, bytes, &is_http10)) return HX_ANSWER_BROKEN;
    llhttp_init(&answer->parser, HTTP_RESPONSE, &settings);
    answer->parser.data = answer;
    /* Only the pause in on_headers_complete is success: after all of the head, and nothing but it. */
    if (llhttp_execute(&answer->parser, bytes.ptr, bytes.len) != HPE_PAUSED)
        return answer->too_many_fields ? HX_ANSWER_TOO_LARGE : HX_ANSWER_BROKEN;
    hx_fields *fields = &answer->head->fields;
    if (!hx_fields_mark_hops(fields)) return HX_ANSWER_BROKEN;
    answer->keep_alive = !names_option(fields, HX_LIT("close")) &&
                         (!is_http10 || names_option(fields, HX_LIT("keep-alive")));
    answer->keep_alive_for = keep_alive_time(fields);
    if (!read_framing(answer, is_http10)) return HX_ANSWER_BROKEN;
    if (answer->head->status >= 200 || answer->head->status == 101) return HX_ANSWER_HEAD;
    if (++answer->interim_count > INTERIM_MAX) return HX_ANSWER_BROKEN;
    answer->head_bytes += bytes.len;
    begin_head(answer);
    return HX_ANSWER_MORE;
}

static hx_answer_event read_head(hx_h1_answer *answer, hx_slice *in)
{
    while (in->len > 0) {
        answer->any_byte = true;
        size_t before = answer->partial.len, room = answer->head_bytes_max - answer->head_bytes - before;
        size_t taken = in->len < room ? in->len : room, len = 0;
        const char *bytes = in->ptr;
        if (before > 0) { /* it comes in pieces */
            hx_buf_put(&answer->partial, hx_slice_first(*in, taken));
            bytes = answer->partial.data;
        }
        hx_answer_event event = scan(answer, bytes, before + taken, &len);
        if (event == HX_ANSWER_BROKEN) return event;
        if (event == HX_ANSWER_MORE) {
            if (taken == room) return HX_ANSWER_TOO_LARGE;
            if (before == 0) hx_buf_put(&answer->partial, *in);
            *in = hx_slice_from(*in, taken);
            return event;
        }
        *in = hx_slice_from(*in, len - before);
        hx_slice head = {bytes, len};
        event = parse_head(answer, before > 0 ? head : hx_arena_copy(answer->arena, head));
        if (event != HX_ANSWER_MORE) return event;
    }
    return HX_ANSWER_MORE;
}

static hx_answer_event read_chunks(hx_h1_answer *answer, hx_slice *in, hx_slice *piece)
{
    if (in->len == 0) return HX_ANSWER_MORE;
    answer->piece = HX_EMPTY;
    llhttp_errno_t result = llhttp_execute(&answer->parser, in->ptr, in->len);
    size_t used = in->len;
    if (result == HPE_PAUSED) {
        used = (size_t)(llhttp_get_error_pos(&answer->parser) - in->ptr);
        llhttp_resume(&answer->parser);
    } else if (result != HPE_OK) {
        return HX_ANSWER_BROKEN;
    }
    answer->overhead += used - answer->piece.len;
    if (answer->overhead > answer->head_bytes_max + answer->chunk_count * CHUNK_OVERHEAD_BYTES)
        return HX_ANSWER_BROKEN; /* endless extensions or trailers */
    if (answer->place == HX_ANSWER_IS_OVER) {
        /* llhttp takes a bare LF for the last line */
        char before_lf = used >= 2 ? in->ptr[used - 2] : answer->last_byte;
        if (before_lf != '\r') return HX_ANSWER_BROKEN;
        *in = hx_slice_from(*in, used);
        return HX_ANSWER_END;
    }
    if (used > 0) answer->last_byte = in->ptr[used - 1];
    *in = hx_slice_from(*in, used);
    *piece = answer->piece;
    return answer->piece.len > 0 ? HX_ANSWER_BODY : HX_ANSWER_MORE;
}

static hx_answer_event take(hx_slice *in, uint64_t most, hx_slice *piece)
{
    if (in->len == 0) return HX_ANSWER_MORE;
    *piece = hx_slice_first(*in, most < in->len ? (size_t)most : in->len);
    *in = hx_slice_from(*in, piece->len);
    return HX_ANSWER_BODY;
}

hx_answer_event hx_h1_answer_read(hx_h1_answer *answer, hx_slice *in, hx_slice *piece)
{
    hx_answer_event event;
    switch (answer->place) {
    case HX_ANSWER_IN_HEAD: return read_head(answer, in);
    case HX_ANSWER_IN_NOTHING: answer->place = HX_ANSWER_IS_OVER; return HX_ANSWER_END;
    case HX_ANSWER_IN_CHUNKS: return read_chunks(answer, in, piece);
    case HX_ANSWER_UNTIL_CLOSE: return take(in, UINT64_MAX, piece);
    case HX_ANSWER_IN_LENGTH:
        event = take(in, answer->left, piece);
        if (event == HX_ANSWER_BODY) answer->left -= piece->len;
        if (answer->left == 0) answer->place = HX_ANSWER_IN_NOTHING;
        return event;
    case HX_ANSWER_IS_OVER: break;
    }
    hx_check_failed(__FILE__, __LINE__, "a response is not read past its end");
}

bool hx_h1_answer_ends_with_connection(const hx_h1_answer *answer)
{
    return answer->place == HX_ANSWER_UNTIL_CLOSE;
}
