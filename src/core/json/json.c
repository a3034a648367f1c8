/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical form is written in one pass: members go to the output in the order in which they come, and only an
 * object whose members came out of order is put right when it closes. A body that its writer had sorted costs no more
 * than reading and copying it. */
#include "core/json/json.h"

#include "base/check.h"
#include "base/hex.h"
#include "base/utf8.h"
#include "core/json/number.h"

#include <string.h>

#define MEMBERS_INLINE 32u
#define INSERTION_MAX 16u

typedef struct {
    const char *at;
    const char *end;
} reader;

/* Bytes of a string that need no thought: ASCII without controls, quote and backslash. */
static bool is_plain(char c)
{
    unsigned char byte = (unsigned char)c;
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

/* The byte under the reader; NUL at the end, which no grammar takes. */
static char peek(const reader *r)
{
    return r->at < r->end ? *r->at : '\0';
}

static bool take(reader *r, char c)
{
    if (r->at == r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool read_hex4(reader *r, uint32_t *unit)
{
    if (r->end - r->at < 4) return false;
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hx_hex_digit(*r->at++);
        if (digit < 0) return false;
        value = value << 4 | (uint32_t)digit;
    }
    *unit = value;
    return true;
}

/* Reads the escape after a backslash. */
static bool read_escape(reader *r, uint32_t *code)
{
    if (r->at == r->end) return false;
    switch (*r->at++) {
    case '"': *code = '"'; return true;
    case '\\': *code = '\\'; return true;
    case '/': *code = '/'; return true;
    case 'b': *code = '\b'; return true;
    case 'f': *code = '\f'; return true;
    case 'n': *code = '\n'; return true;
    case 'r': *code = '\r'; return true;
    case 't': *code = '\t'; return true;
    case 'u': break;
    default: return false;
    }
    if (!read_hex4(r, code)) return false;
    if (*code < 0xd800 || *code > 0xdfff) return true;
    uint32_t low;
    if (*code > 0xdbff || !take(r, '\\') || !take(r, 'u') || !read_hex4(r, &low)) return false;
    if (low < 0xdc00 || low > 0xdfff) return false;
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
}

/* A whole string literal; `escaped` says whether its bytes differ from its meaning. */
static bool read_string(reader *r, hx_slice *literal, bool *escaped)
{
    const char *start = r->at;
    *escaped = false;
    if (!take(r, '"')) return false;
    for (;;) {
        r->at += hx_utf8_plain_bytes(r->at, r->end);
        while (r->at < r->end && is_plain(*r->at)) r->at++;
        if (r->at == r->end) return false;
        if (*r->at == '"') break;
        if (*r->at == '\\') {
            uint32_t code;
            r->at++;
            *escaped = true;
            if (!read_escape(r, &code)) return false;
        } else {
            size_t bytes = hx_utf8_bytes(r->at, r->end);
            if (bytes < 2) return false; /* a control byte has one */
            r->at += bytes;
        }
    }
    r->at++;
    *literal = (hx_slice){start, (size_t)(r->at - start)};
    return true;
}

/* The next character of a literal that was read before; moves `*at` behind it. */
static size_t decode_one(const char **at, const char *end, char out[4])
{
    if (**at != '\\') {
        size_t bytes = hx_utf8_bytes(*at, end);
        HX_CHECK(bytes > 0);
        memcpy(out, *at, bytes);
        *at += bytes;
        return bytes;
    }
    reader r = {*at + 1, end};
    uint32_t code = 0;
    bool fine = read_escape(&r, &code);
    HX_CHECK(fine);
    *at = r.at;
    return hx_utf8_put(out, code);
}

static hx_slice unquoted(hx_slice literal)
{
    return (hx_slice){literal.ptr + 1, literal.len - 2};
}

static hx_slice decode(hx_slice literal, bool escaped, hx_arena *arena)
{
    hx_slice inside = unquoted(literal);
    if (!escaped) return inside;
    char *text = hx_arena_alloc(arena, inside.len); /* no escape is shorter than what it means */
    size_t len = 0;
    for (const char *at = inside.ptr, *end = at + inside.len; at < end;) {
        char bytes[4];
        size_t count = decode_one(&at, end, bytes);
        memcpy(text + len, bytes, count);
        len += count;
    }
    return (hx_slice){text, len};
}

static bool skip_digits(reader *r)
{
    const char *start = r->at;
    while (r->at < r->end && is_digit(*r->at)) r->at++;
    return r->at > start;
}

static bool read_number(reader *r, hx_slice *text)
{
    const char *start = r->at;
    (void)take(r, '-');
    if (!take(r, '0') && !skip_digits(r)) return false;
    if (take(r, '.') && !skip_digits(r)) return false;
    if (take(r, 'e') || take(r, 'E')) {
        if (!take(r, '+')) (void)take(r, '-');
        if (!skip_digits(r)) return false;
    }
    *text = (hx_slice){start, (size_t)(r->at - start)};
    return true;
}

static bool read_word(reader *r, hx_slice *word)
{
    hx_slice left = {r->at, (size_t)(r->end - r->at)};
    *word = peek(r) == 't' ? HX_LIT("true") : peek(r) == 'f' ? HX_LIT("false") : HX_LIT("null");
    if (!hx_slice_starts(left, *word)) return false;
    r->at += word->len;
    return true;
}

typedef struct {
    hx_slice name; /* unescaped */
    size_t start;  /* its text in the output */
    size_t end;
} member;

typedef struct {
    size_t start; /* in the output, behind the opening bracket */
    size_t members;
    bool is_object;
    bool in_order;
} frame;

/* A container's part in a selection: the pointers that lead into it, and where those lead that go on into the value
 * that is being written. */
typedef struct {
    uint64_t left_out, chosen;
    uint64_t left_out_below, chosen_below;
    uint64_t chosen_here;
    bool left_out_here;
    uint64_t filter;    /* of an object: which names may be on a pointer's way */
    uint64_t item;      /* of an array: the value's place */
    uint64_t next_item; /* and the next one that is on a pointer's way */
    size_t value_start; /* in the output */
} level;

typedef struct {
    reader in;
    hx_buf *out;
    hx_arena *arena;
    hx_buf scratch;
    member *members; /* of all open objects, the innermost last */
    size_t members_len;
    size_t members_cap;
    size_t depth;
    const hx_json_selection *selection; /* NULL: all of it counts, and `levels` is left alone */
    frame frames[HX_JSON_DEPTH_MAX];
    level levels[HX_JSON_DEPTH_MAX];
    member members_inline[MEMBERS_INLINE];
} writer;

/* By UTF-16 code units, as RFC 8785 wants it. UTF-8 sorts the same way, but for characters above U+FFFF: their
 * surrogates come before U+E000–U+FFFF, whose first byte is EE or EF. */
static int compare_names(hx_slice a, hx_slice b)
{
    size_t common = a.len < b.len ? a.len : b.len, i = 0;
    while (i < common && a.ptr[i] == b.ptr[i]) i++;
    if (i == common) return a.len < b.len ? -1 : a.len > b.len;
    unsigned char x = (unsigned char)a.ptr[i], y = (unsigned char)b.ptr[i];
    bool swapped = x >= 0xee && y >= 0xee && (x >= 0xf0) != (y >= 0xf0);
    return (x < y) != swapped ? -1 : 1;
}

static void sift_down(member *m, size_t root, size_t count)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare_names(m[child].name, m[child + 1].name) < 0) child++;
        if (compare_names(m[root].name, m[child].name) >= 0) return;
        member swap = m[root];
        m[root] = m[child];
        m[child] = swap;
    }
}

/* In place and with a bound on the worst case, which qsort promises neither. */
static void sort_members(member *m, size_t count)
{
    if (count > INSERTION_MAX) {
        for (size_t i = count / 2; i-- > 0;) sift_down(m, i, count);
        for (size_t last = count - 1; last > 0; last--) {
            member top = m[0];
            m[0] = m[last];
            m[last] = top;
            sift_down(m, 0, last);
        }
        return;
    }
    for (size_t i = 1; i < count; i++) {
        member moving = m[i];
        size_t at = i;
        for (; at > 0 && compare_names(m[at - 1].name, moving.name) > 0; at--) m[at] = m[at - 1];
        m[at] = moving;
    }
}

/* Puts the members of the object that closes in order. */
static bool reorder(writer *w, const frame *object)
{
    member *m = w->members + object->members;
    size_t count = w->members_len - object->members;
    sort_members(m, count);
    for (size_t i = 1; i < count; i++)
        if (compare_names(m[i - 1].name, m[i].name) == 0) return false;

    char *text = w->out->data + object->start;
    size_t len = w->out->len - object->start;
    w->scratch.len = 0;
    hx_buf_put(&w->scratch, (hx_slice){text, len});
    for (size_t i = 0; i < count; i++) {
        size_t bytes = m[i].end - m[i].start;
        if (bytes == 0) continue; /* left out */
        if (text > w->out->data + object->start) *text++ = ',';
        memcpy(text, w->scratch.data + (m[i].start - object->start), bytes);
        text += bytes;
    }
    return true;
}

/* The next item, from this one on, that a pointer leads to. */
static uint64_t next_item(const writer *w, const level *array)
{
    uint64_t left_out = hx_pointers_next_item(&w->selection->left_out, array->left_out, w->depth - 1, array->item);
    uint64_t chosen = hx_pointers_next_item(&w->selection->chosen, array->chosen, w->depth - 1, array->item);
    return left_out < chosen ? left_out : chosen;
}

static void select_container(writer *w)
{
    level *opened = &w->levels[w->depth - 1];
    const hx_json_selection *selection = w->selection;
    *opened = (level){.next_item = UINT64_MAX};
    if (w->depth == 1) {
        opened->left_out = hx_pointers_below_root(&selection->left_out);
        opened->chosen = hx_pointers_below_root(&selection->chosen);
    } else {
        opened->left_out = opened[-1].left_out_below;
        opened->chosen = opened[-1].chosen_below;
    }
    if ((opened->left_out | opened->chosen) == 0) return;
    if (w->frames[w->depth - 1].is_object) {
        opened->filter = hx_pointers_filter(&selection->left_out, opened->left_out, w->depth - 1) |
                         hx_pointers_filter(&selection->chosen, opened->chosen, w->depth - 1);
    } else {
        opened->next_item = next_item(w, opened);
    }
}

/* Before a value in a container; an array's items have no names. */
static void select_value(writer *w, hx_slice name)
{
    level *top = &w->levels[w->depth - 1];
    const hx_json_selection *selection = w->selection;
    uint64_t ends = 0;
    size_t depth = w->depth - 1;
    bool is_object = w->frames[depth].is_object;
    top->value_start = w->out->len;
    top->left_out_below = top->chosen_below = top->chosen_here = 0;
    top->left_out_here = false;
    if (is_object ? (top->filter & hx_pointers_bit_of(name)) == 0 : top->item != top->next_item) return;
    if (is_object) {
        top->left_out_below = hx_pointers_to_member(&selection->left_out, top->left_out, depth, name, &ends);
        top->chosen_below = hx_pointers_to_member(&selection->chosen, top->chosen, depth, name, &top->chosen_here);
    } else {
        top->left_out_below = hx_pointers_to_item(&selection->left_out, top->left_out, depth, top->item, &ends);
        top->chosen_below = hx_pointers_to_item(&selection->chosen, top->chosen, depth, top->item, &top->chosen_here);
    }
    top->left_out_here = ends != 0;
    if (top->left_out_here) top->left_out_below = top->chosen_below = top->chosen_here = 0;
}

static void keep_chosen(writer *w, uint64_t which, size_t value_start)
{
    if (which == 0) return;
    hx_slice value = {w->out->data + value_start, w->out->len - value_start};
    value = hx_arena_copy(w->arena, value);
    while (which != 0) w->selection->values[hx_pointers_take(&which)] = value;
}

/* Takes a value that was written back out of the output; its name stays known, so that it is still seen twice. */
static bool leave_out(writer *w, const level *top)
{
    const frame *container = &w->frames[w->depth - 1];
    if (!container->is_object) {
        w->out->len = top->value_start;
        return hx_buf_byte(w->out, '?');
    }
    member *last = &w->members[w->members_len - 1];
    w->out->len = last->start > container->start ? last->start - 1 : last->start; /* with the comma before it */
    last->start = last->end = w->out->len;
    return true;
}

static bool end_value(writer *w)
{
    if (w->frames[w->depth - 1].is_object) w->members[w->members_len - 1].end = w->out->len;
    if (!w->selection) return true;
    level *top = &w->levels[w->depth - 1];
    if (top->item++ == top->next_item) top->next_item = next_item(w, top);
    keep_chosen(w, top->chosen_here, top->value_start);
    return !top->left_out_here || leave_out(w, top);
}

static bool close_container(writer *w)
{
    frame *top = &w->frames[w->depth - 1];
    if (!take(&w->in, top->is_object ? '}' : ']')) return false;
    if (top->is_object && !top->in_order && !reorder(w, top)) return false;
    w->members_len = top->members;
    w->depth--;
    return hx_buf_byte(w->out, top->is_object ? '}' : ']');
}

static bool add_member(writer *w, hx_slice name)
{
    if (w->members_len == HX_JSON_MEMBERS_MAX) return false;
    if (w->members_len == w->members_cap) {
        member *more = hx_arena_alloc(w->arena, 2 * w->members_cap * sizeof *more);
        memcpy(more, w->members, w->members_len * sizeof *more);
        w->members = more;
        w->members_cap *= 2;
    }
    frame *object = &w->frames[w->depth - 1];
    if (object->in_order && w->members_len > object->members)
        object->in_order = compare_names(w->members[w->members_len - 1].name, name) < 0;
    w->members[w->members_len++] = (member){.name = name, .start = w->out->len};
    return true;
}

/* A literal without escapes is canonical already. */
static bool write_string(writer *w, hx_slice literal, bool escaped, hx_slice decoded)
{
    return escaped ? hx_json_escape(w->out, decoded) : hx_buf_append(w->out, literal);
}

static bool write_name(writer *w)
{
    hx_slice literal;
    bool escaped;
    skip_space(&w->in);
    if (!read_string(&w->in, &literal, &escaped)) return false;
    hx_slice name = decode(literal, escaped, w->arena);
    if (!add_member(w, name) || !write_string(w, literal, escaped, name)) return false;
    skip_space(&w->in);
    if (!take(&w->in, ':') || !hx_buf_byte(w->out, ':')) return false;
    if (w->selection) select_value(w, name);
    return true;
}

/* Writes what precedes a value in the innermost container. */
static bool begin_value(writer *w)
{
    if (w->frames[w->depth - 1].is_object) return write_name(w);
    if (w->selection) select_value(w, HX_EMPTY);
    return true;
}

static bool write_scalar(writer *w)
{
    hx_slice text;
    bool escaped;
    char c = peek(&w->in);
    if (c == '"') {
        return read_string(&w->in, &text, &escaped) && write_string(w, text, escaped, decode(text, escaped, w->arena));
    }
    if (c == '-' || is_digit(c)) return read_number(&w->in, &text) && hx_number_canonical(text, w->out);
    return read_word(&w->in, &text) && hx_buf_append(w->out, text);
}

static bool open_container(writer *w, bool is_object)
{
    if (w->depth == HX_JSON_DEPTH_MAX) return false;
    w->in.at++;
    if (!hx_buf_byte(w->out, is_object ? '{' : '[')) return false;
    w->frames[w->depth++] =
        (frame){.start = w->out->len, .members = w->members_len, .is_object = is_object, .in_order = true};
    if (w->selection) select_container(w);
    return true;
}

/* Behind a value: closes what closes, up to the next comma or the end of the outermost value. */
static bool write_after_value(writer *w)
{
    while (w->depth > 0) {
        if (!end_value(w)) return false;
        skip_space(&w->in);
        if (take(&w->in, ',')) {
            bool first = w->out->len == w->frames[w->depth - 1].start; /* all before it were left out */
            return (first || hx_buf_byte(w->out, ',')) && begin_value(w);
        }
        if (!close_container(w)) return false;
    }
    return true;
}

static bool write_document(writer *w)
{
    do {
        skip_space(&w->in);
        char c = peek(&w->in);
        if (c == '{' || c == '[') {
            if (!open_container(w, c == '{')) return false;
            skip_space(&w->in);
            if (peek(&w->in) != (c == '{' ? '}' : ']')) {
                if (!begin_value(w)) return false;
                continue;
            }
            if (!close_container(w)) return false;
        } else if (!write_scalar(w)) {
            return false;
        }
        if (!write_after_value(w)) return false;
    } while (w->depth > 0);
    skip_space(&w->in);
    return w->in.at == w->in.end;
}

static bool write_canonical(hx_slice text, const hx_json_selection *selection, hx_arena *arena, hx_buf *out)
{
    HX_UNINITIALIZED writer w; /* field by field: zeroing its arrays would cost more than most bodies */
    size_t len_before = out->len;
    if (text.len == 0) return false;
    w.in = (reader){text.ptr, text.ptr + text.len};
    w.out = out;
    w.arena = arena;
    hx_buf_init(&w.scratch, arena, out->max);
    w.members = w.members_inline;
    w.members_len = 0;
    w.members_cap = MEMBERS_INLINE;
    w.depth = 0;
    w.selection = selection;
    if (!write_document(&w)) {
        out->len = len_before;
        return false;
    }
    if (selection) keep_chosen(&w, hx_pointers_root(&selection->chosen), len_before);
    return true;
}

bool hx_json_canonical(hx_slice text, hx_arena *arena, hx_buf *out)
{
    return write_canonical(text, NULL, arena, out);
}

bool hx_json_canonical_of(hx_slice text, const hx_json_selection *selection, hx_arena *arena, hx_buf *out)
{
    for (size_t i = 0; i < selection->chosen.count; i++) selection->values[i] = (hx_slice){NULL, 0};
    return write_canonical(text, selection, arena, out);
}

static bool skip_name(reader *r)
{
    hx_slice literal;
    bool escaped;
    skip_space(r);
    if (!read_string(r, &literal, &escaped)) return false;
    skip_space(r);
    return take(r, ':');
}

static bool skip_scalar(reader *r)
{
    hx_slice text;
    bool escaped;
    char c = peek(r);
    if (c == '"') return read_string(r, &text, &escaped);
    if (c == '-' || is_digit(c)) return read_number(r, &text);
    return read_word(r, &text);
}

_Static_assert(HX_JSON_DEPTH_MAX <= 64, "skip_value keeps one bit a level");

/* Checks a whole value and moves behind it. */
static bool skip_value(reader *r)
{
    uint64_t objects = 0; /* the innermost container is bit 0 */
    unsigned depth = 0;
    for (;;) {
        skip_space(r);
        char c = peek(r);
        if (c == '{' || c == '[') {
            if (depth++ == HX_JSON_DEPTH_MAX) return false;
            objects = objects << 1 | (c == '{');
            r->at++;
            skip_space(r);
            if (peek(r) != (c == '{' ? '}' : ']')) {
                if (c == '{' && !skip_name(r)) return false;
                continue;
            }
        } else if (!skip_scalar(r)) {
            return false;
        }
        for (;;) {
            if (depth == 0) return true;
            skip_space(r);
            if (take(r, ',')) break;
            if (!take(r, (objects & 1) ? '}' : ']')) return false;
            objects >>= 1;
            depth--;
        }
        if ((objects & 1) && !skip_name(r)) return false;
    }
}

static bool read_value(reader *r, hx_slice *raw)
{
    skip_space(r);
    const char *start = r->at;
    if (!skip_value(r)) return false;
    *raw = (hx_slice){start, (size_t)(r->at - start)};
    return true;
}

/* Whether the literal of a name in a checked text equals a pointer's token, in which ~1 is / and ~0 is ~. */
static bool name_is(hx_slice literal, hx_slice token)
{
    hx_slice inside = unquoted(literal);
    const char *at = inside.ptr, *end = at + inside.len;
    size_t next = 0;
    while (at < end) {
        char bytes[4];
        size_t count = decode_one(&at, end, bytes);
        for (size_t i = 0; i < count; i++) {
            if (next == token.len) return false;
            char wanted = token.ptr[next++];
            if (wanted == '~') wanted = token.ptr[next++] == '1' ? '/' : '~';
            if (bytes[i] != wanted) return false;
        }
    }
    return next == token.len;
}

/* These two walk a text that was checked before. */

static hx_json_search find_member(hx_slice object, hx_slice token, hx_slice *value)
{
    reader r = {object.ptr + 1, object.ptr + object.len};
    hx_json_search result = HX_JSON_MISSING;
    skip_space(&r);
    if (take(&r, '}')) return HX_JSON_MISSING;
    do {
        hx_slice literal, candidate;
        bool escaped;
        skip_space(&r);
        if (!read_string(&r, &literal, &escaped)) return HX_JSON_MALFORMED;
        skip_space(&r);
        if (!take(&r, ':') || !read_value(&r, &candidate)) return HX_JSON_MALFORMED;
        if (name_is(literal, token)) {
            if (result == HX_JSON_FOUND) return HX_JSON_MALFORMED;
            result = HX_JSON_FOUND;
            *value = candidate;
        }
        skip_space(&r);
    } while (take(&r, ','));
    return result;
}

static hx_json_search find_item(hx_slice array, hx_slice token, hx_slice *value)
{
    uint64_t index;
    hx_slice item;
    if (!hx_slice_to_u64(token, &index) || (token.len > 1 && token.ptr[0] == '0')) return HX_JSON_MISSING;
    reader r = {array.ptr + 1, array.ptr + array.len};
    skip_space(&r);
    if (take(&r, ']')) return HX_JSON_MISSING;
    do {
        if (!read_value(&r, &item)) return HX_JSON_MALFORMED;
        if (index-- == 0) {
            *value = item;
            return HX_JSON_FOUND;
        }
        skip_space(&r);
    } while (take(&r, ','));
    return HX_JSON_MISSING;
}

static hx_json_search find_step(hx_slice container, hx_slice token, hx_slice *value)
{
    if (container.ptr[0] == '{') return find_member(container, token, value);
    return container.ptr[0] == '[' ? find_item(container, token, value) : HX_JSON_MISSING;
}

bool hx_json_is_pointer(hx_slice pointer)
{
    if (pointer.len > 0 && pointer.ptr[0] != '/') return false;
    for (size_t i = 0; i < pointer.len; i++) {
        if (pointer.ptr[i] != '~') continue;
        if (i + 1 == pointer.len || (pointer.ptr[i + 1] != '0' && pointer.ptr[i + 1] != '1')) return false;
    }
    return true;
}

hx_json_search hx_json_find(hx_slice text, hx_slice pointer, hx_slice *raw_value)
{
    hx_slice value;
    if (text.len == 0 || !hx_json_is_pointer(pointer)) return HX_JSON_MALFORMED;
    reader r = {text.ptr, text.ptr + text.len};
    if (!read_value(&r, &value)) return HX_JSON_MALFORMED;
    skip_space(&r);
    if (r.at != r.end) return HX_JSON_MALFORMED;
    if (pointer.len > 0) {
        hx_slice rest = hx_slice_from(pointer, 1), token;
        while (hx_slice_next(&rest, '/', &token)) {
            hx_json_search step = find_step(value, token, &value);
            if (step != HX_JSON_FOUND) return step;
        }
    }
    *raw_value = value;
    return HX_JSON_FOUND;
}

bool hx_json_pointer(hx_slice text, hx_slice pointer, hx_slice *raw_value)
{
    return hx_json_find(text, pointer, raw_value) == HX_JSON_FOUND;
}

static bool string_is(hx_slice literal, hx_slice wanted)
{
    hx_slice inside = unquoted(literal);
    const char *at = inside.ptr, *end = at + inside.len;
    size_t next = 0;
    while (at < end) {
        char bytes[4];
        size_t count = decode_one(&at, end, bytes);
        if (wanted.len - next < count || memcmp(bytes, wanted.ptr + next, count) != 0) return false;
        next += count;
    }
    return next == wanted.len;
}

bool hx_json_value_is(hx_slice raw, hx_slice wanted)
{
    if (raw.len == 0) return false;
    reader r = {raw.ptr, raw.ptr + raw.len};
    hx_slice literal, number;
    bool escaped;
    if (raw.ptr[0] == '"') return read_string(&r, &literal, &escaped) && r.at == r.end && string_is(literal, wanted);
    if (raw.ptr[0] != '-' && !is_digit(raw.ptr[0]))
        return read_word(&r, &literal) && r.at == r.end && hx_slice_eq(literal, wanted);
    if (wanted.len == 0 || !read_number(&r, &literal) || r.at != r.end) return false;
    reader w = {wanted.ptr, wanted.ptr + wanted.len};
    return read_number(&w, &number) && w.at == w.end && hx_number_same(literal, number);
}

bool hx_json_string(hx_slice raw, hx_arena *arena, hx_slice *decoded)
{
    hx_slice literal;
    bool escaped;
    if (raw.len == 0) return false;
    reader r = {raw.ptr, raw.ptr + raw.len};
    if (!read_string(&r, &literal, &escaped) || r.at != r.end) return false;
    *decoded = decode(literal, escaped, arena);
    return true;
}

/* The escape of RFC 8785 for a byte that a string can't contain. */
static hx_slice escape_of(char c, char room[6])
{
    switch (c) {
    case '"': return HX_LIT("\\\"");
    case '\\': return HX_LIT("\\\\");
    case '\b': return HX_LIT("\\b");
    case '\f': return HX_LIT("\\f");
    case '\n': return HX_LIT("\\n");
    case '\r': return HX_LIT("\\r");
    case '\t': return HX_LIT("\\t");
    default: break;
    }
    static const char start[4] = {'\\', 'u', '0', '0'};
    memcpy(room, start, sizeof start);
    hx_hex_write(room + 4, &c, 1);
    return (hx_slice){room, 6};
}

static bool write_escaped(hx_buf *out, hx_slice bytes)
{
    if (!hx_buf_byte(out, '"')) return false;
    const char *at = bytes.ptr, *end = bytes.len > 0 ? at + bytes.len : at;
    while (at < end) {
        const char *start = at;
        size_t length = 0;
        at += hx_utf8_plain_bytes(at, end);
        while (at < end && (is_plain(*at) || (length = hx_utf8_bytes(at, end)) > 1)) {
            at += is_plain(*at) ? 1 : length;
        }
        if (!hx_buf_append(out, (hx_slice){start, (size_t)(at - start)})) return false;
        if (at == end) break;
        char room[6];
        hx_slice instead = (unsigned char)*at < 0x80 ? escape_of(*at, room) : HX_LIT("\xef\xbf\xbd");
        at++;
        if (!hx_buf_append(out, instead)) return false;
    }
    return hx_buf_byte(out, '"');
}

bool hx_json_escape(hx_buf *out, hx_slice bytes)
{
    size_t len_before = out->len;
    if (write_escaped(out, bytes)) return true;
    out->len = len_before;
    return false;
}

bool hx_json_is_clean_object(hx_slice text, hx_arena *arena)
{
    hx_buf canonical;
    hx_buf_init(&canonical, arena, HX_JSON_CANONICAL_BYTES(text.len));
    return hx_json_canonical(text, arena, &canonical) && canonical.data[0] == '{';
}
