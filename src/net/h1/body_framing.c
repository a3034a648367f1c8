/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a chunked body, each named after what is read next:
 *
 *   SIZE → (EXTENSION →) SIZE_LF → DATA → DATA_CR → DATA_LF → SIZE …
 *                        SIZE_LF, after a size of 0 → LINE → NAME → VALUE → VALUE_LF → LINE …
 *                                                     LINE → LAST_LF → WHOLE
 *
 * An extension is ";name", ";name=token" or ";name="text"", as in RFC 9112 7.1.1 but without white space:
 *
 *   EXTENSION → EXTENSION_NAME → EXTENSION_VALUE → EXTENSION_TOKEN, or QUOTED (↔ ESCAPED) → QUOTED_END
 */
#include "net/h1/body_framing.h"

#include "base/check.h"
#include "base/hex.h"

#include <string.h>

enum {
    LENGTH,
    SIZE,
    EXTENSION,
    EXTENSION_NAME,
    EXTENSION_VALUE,
    EXTENSION_TOKEN,
    QUOTED,
    ESCAPED,
    QUOTED_END,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    LINE,
    NAME,
    VALUE,
    VALUE_LF,
    LAST_LF,
    WHOLE
};

#define SIZE_DIGITS_MAX 16u

void hx_h1_body_init(hx_h1_body *body, const hx_request_head *request, uint32_t extension_max, uint32_t trailer_max)
{
    *body = (hx_h1_body){.extension_left = extension_max, .trailer_left = trailer_max, .state = LENGTH};
    if (request->chunked)
        body->state = SIZE;
    else if (request->content_length > 0)
        body->left = (uint64_t)request->content_length;
}

bool hx_h1_body_whole(const hx_h1_body *body)
{
    return body->state == WHOLE || (body->state == LENGTH && body->left == 0);
}

uint64_t hx_h1_body_left(const hx_h1_body *body)
{
    if (body->state == WHOLE) return 0;
    return body->state == LENGTH ? body->left : UINT64_MAX;
}

static bool is_control(char c)
{
    return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f;
}

static const char *read_size(hx_h1_body *body, char c)
{
    int digit = hx_hex_digit(c);
    if (digit >= 0) {
        if (++body->digits > SIZE_DIGITS_MAX || body->left > (INT64_MAX >> 4)) return "A chunk's size is too large.";
        body->left = body->left * 16 + (uint64_t)digit;
        return NULL;
    }
    if (body->digits == 0 || (c != ';' && c != '\r')) return "A chunk's size is malformed.";
    body->state = c == ';' ? EXTENSION : SIZE_LF;
    return NULL;
}

static bool is_token_byte(char c)
{
    return hx_slice_is_token((hx_slice){&c, 1});
}

/* The state after a byte of an extension; 0 when the byte is not allowed there. */
static uint8_t after_extension_byte(uint8_t state, char c)
{
    switch (state) {
    case EXTENSION: return is_token_byte(c) ? EXTENSION_NAME : 0;
    case EXTENSION_VALUE: return c == '"' ? QUOTED : is_token_byte(c) ? EXTENSION_TOKEN : 0;
    case QUOTED: return is_control(c) ? 0 : c == '"' ? QUOTED_END : c == '\\' ? ESCAPED : QUOTED;
    case ESCAPED: return is_control(c) ? 0 : QUOTED;
    default: break; /* at the end of a name or a value, or inside them */
    }
    if (c == ';') return EXTENSION;
    if (c == '\r') return SIZE_LF;
    if (c == '=' && state == EXTENSION_NAME) return EXTENSION_VALUE;
    return state != QUOTED_END && is_token_byte(c) ? state : 0;
}

static const char *read_extension(hx_h1_body *body, char c)
{
    body->state = after_extension_byte(body->state, c);
    if (body->state == 0) return "A chunk extension is malformed.";
    return body->extension_left-- > 0 ? NULL : "The chunk extensions are too long.";
}

/* Reads one byte of framing; NULL when it is allowed there, else what is wrong. */
static const char *take_byte(hx_h1_body *body, char c)
{
    switch (body->state) {
    case SIZE: return read_size(body, c);
    case EXTENSION:
    case EXTENSION_NAME:
    case EXTENSION_VALUE:
    case EXTENSION_TOKEN:
    case QUOTED:
    case ESCAPED:
    case QUOTED_END: return read_extension(body, c);
    case SIZE_LF:
        body->state = body->left > 0 ? DATA : LINE;
        body->digits = 0;
        return c == '\n' ? NULL : "A chunk's size does not end with CR LF.";
    case DATA_CR: body->state = DATA_LF; return c == '\r' ? NULL : "A chunk is longer than its size.";
    case DATA_LF: body->state = SIZE; return c == '\n' ? NULL : "A chunk does not end with CR LF.";
    case LINE:
        body->state = c == '\r' ? LAST_LF : NAME;
        return c == '\r' || is_token_byte(c) ? NULL : "A trailer is malformed.";
    case NAME:
        if (c == ':') body->state = VALUE;
        return c == ':' || is_token_byte(c) ? NULL : "A trailer's name is malformed.";
    case VALUE:
        if (c == '\r') body->state = VALUE_LF;
        return c == '\r' || !is_control(c) ? NULL : "A trailer holds a control byte.";
    case VALUE_LF: body->state = LINE; return c == '\n' ? NULL : "A trailer does not end with CR LF.";
    case LAST_LF: body->state = WHOLE; return c == '\n' ? NULL : "The body does not end with CR LF.";
    default: HX_CHECK(false); /* content, which is not read byte by byte */
    }
    return NULL;
}

static bool in_trailer(const hx_h1_body *body)
{
    return body->state >= LINE && body->state <= LAST_LF;
}

static hx_h1_body_result take_piece(hx_h1_body *body, hx_slice *input, hx_slice *piece)
{
    *piece = hx_slice_first(*input, body->left < input->len ? (size_t)body->left : input->len);
    *input = hx_slice_from(*input, piece->len);
    body->left -= piece->len;
    if (body->left == 0 && body->state == DATA) body->state = DATA_CR;
    return HX_H1_BODY_PIECE;
}

hx_h1_body_result hx_h1_body_next(hx_h1_body *body, hx_slice *input, hx_slice *piece, hx_h1_fault *fault)
{
    while (!hx_h1_body_whole(body)) {
        if (input->len == 0) return HX_H1_BODY_MORE;
        if (body->state == LENGTH || body->state == DATA) return take_piece(body, input, piece);
        if (in_trailer(body) && body->trailer_left-- == 0) {
            *fault = (hx_h1_fault){431, "The trailers are too large."};
            return HX_H1_BODY_BAD;
        }
        const char *wrong = take_byte(body, input->ptr[0]);
        if (wrong) {
            *fault = (hx_h1_fault){400, wrong};
            return HX_H1_BODY_BAD;
        }
        *input = hx_slice_from(*input, 1);
    }
    return HX_H1_BODY_END;
}
