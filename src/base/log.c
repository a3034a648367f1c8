/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/hex.h"
#include "base/utf8.h"

#include <stdatomic.h>
#include <string.h>

#define LINE_BYTES 8192u
#define TAIL_BYTES 32u /* reserved for the end of a truncated line */

static hx_log_sink *sink;
static atomic_bool readable;
static atomic_int threshold = HX_LOG_INFO;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

static const hx_log_event_row events[] = {
#define X(id, level, message) {#id, HX_LOG_##level, message},
#include "observe/events.def"
#undef X
};

const hx_log_event_row *hx_log_about(hx_log_event event)
{
    return &events[event];
}

const char *hx_log_level_name(hx_log_level level)
{
    return level_names[level];
}

static _Thread_local struct {
    char text[LINE_BYTES];
    size_t len;
    hx_log_level level;
    bool skipped;
    bool overflows; /* the field that is being written doesn't fit */
    bool truncated; /* such a field was removed */
} line;

void hx_log_to(hx_log_sink *to)
{
    sink = to;
}

void hx_log_readable(bool on)
{
    atomic_store(&readable, on);
}

void hx_log_threshold(hx_log_level least)
{
    atomic_store(&threshold, (int)least);
}

static bool put(const char *bytes, size_t len)
{
    if (line.skipped || line.overflows) return false;
    if (line.len + len + TAIL_BYTES > LINE_BYTES) {
        line.overflows = true;
        return false;
    }
    memcpy(line.text + line.len, bytes, len);
    line.len += len;
    return true;
}

static bool puts_(const char *text)
{
    return put(text, strlen(text));
}

static void put_code(unsigned code)
{
    char text[6] = "\\u";
    hx_hex_write(text + 2, (uint8_t[]){(uint8_t)(code >> 8), (uint8_t)code}, 2);
    put(text, sizeof text);
}

/* Escapes a value so that the line stays valid JSON and changes nothing on a terminal. A byte that isn't UTF-8 is
 * written as the character with its number. */
static void put_escaped(hx_slice value)
{
    if (value.len == 0) return; /* an empty slice may have no address */
    const char *end = value.ptr + value.len;
    for (const char *at = value.ptr; at < end;) {
        size_t len = hx_utf8_plain_bytes(at, end);
        if (len > 0) {
            put(at, len);
            at += len;
            continue;
        }
        unsigned char c = (unsigned char)*at;
        len = hx_utf8_bytes(at, end);
        unsigned code = hx_utf8_harmful(at, len);
        if (len == 0 || c < 0x20 || c == 0x7f) {
            put_code(c);
        } else if (code != 0) {
            put_code(code);
        } else {
            if (c == '"' || c == '\\') puts_("\\");
            put(at, len);
        }
        at += len > 0 ? len : 1;
    }
}

void hx_log_begin(hx_log_event event)
{
    const hx_log_event_row *row = &events[event];
    char stamp[HX_RFC3339_BYTES];
    line.len = 0;
    line.level = row->level;
    line.overflows = line.truncated = false;
    line.skipped = !sink || (int)row->level < atomic_load_explicit(&threshold, memory_order_relaxed);
    if (line.skipped) return;
    hx_slice time = hx_rfc3339(hx_clock_wall(), stamp);
    if (atomic_load_explicit(&readable, memory_order_relaxed)) {
        put(time.ptr + 11, 12);
        puts_(" ");
        puts_(level_names[row->level]);
        puts_("  ");
        puts_(*row->message ? row->message : row->id);
        return;
    }
    puts_("{\"time\":\"");
    put(time.ptr, time.len);
    puts_("\",\"level\":\"");
    puts_(level_names[row->level]);
    puts_("\",\"event\":\"");
    puts_(row->id);
    puts_("\"");
    if (*row->message) hx_log_text("message", row->message);
}

/* A field that doesn't fit whole is removed, so that the line stays well-formed. Those behind it are not: else a client
 * could hide what became of its request behind a long path. */
static size_t field_begin(const char *name)
{
    size_t start = line.len;
    bool plain = atomic_load_explicit(&readable, memory_order_relaxed);
    puts_(plain ? "  " : ",\"");
    puts_(name);
    puts_(plain ? "=" : "\":");
    return start;
}

static void field_end(size_t start)
{
    if (!line.overflows) return;
    line.len = start;
    line.overflows = false;
    line.truncated = true;
}

void hx_log_str(const char *name, hx_slice value)
{
    if (line.skipped) return;
    size_t start = field_begin(name);
    bool quote = !atomic_load_explicit(&readable, memory_order_relaxed) || value.len == 0 ||
                 hx_slice_find(value, ' ') != SIZE_MAX;
    if (quote) puts_("\"");
    put_escaped(value);
    if (quote) puts_("\"");
    field_end(start);
}

void hx_log_text(const char *name, const char *terminated)
{
    hx_log_str(name, hx_slice_of(terminated));
}

void hx_log_int(const char *name, int64_t value)
{
    if (line.skipped) return;
    size_t start = field_begin(name);
    char digits[20], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0) *--at = '-';
    put(at, (size_t)(digits + sizeof digits - at));
    field_end(start);
}

void hx_log_hex(const char *name, const void *bytes, size_t len)
{
    char text[128];
    if (len > sizeof text / 2) len = sizeof text / 2;
    hx_hex_write(text, bytes, len);
    hx_log_str(name, (hx_slice){text, 2 * len});
}

void hx_log_end(void)
{
    if (line.skipped) return;
    bool plain = atomic_load_explicit(&readable, memory_order_relaxed);
    const char *tail = line.truncated ? (plain ? "  (truncated)\n" : ",\"truncated\":1}\n") : (plain ? "\n" : "}\n");
    size_t len = strlen(tail);
    memcpy(line.text + line.len, tail, len);
    sink(line.text, line.len + len, line.level);
}

void hx_log(hx_log_event event)
{
    hx_log_begin(event);
    hx_log_end();
}
