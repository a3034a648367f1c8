/* SPDX-License-Identifier: Apache-2.0 */
/* One JSON object a line (or, with hx_log_readable, a line for people): what happened, by a row of observe/events.def,
 * and its fields. A line is put together in a buffer of the thread and handed to the host's sink whole, so lines of
 * several threads never mix. Without a sink nothing is logged: a library is silent until its host gives one.
 * base/program/log_writer.h is the sink of our own programs. */
#ifndef HX_BASE_LOG_H
#define HX_BASE_LOG_H

#include "base/clock.h"
#include "base/slice.h"

typedef enum { HX_LOG_DEBUG, HX_LOG_INFO, HX_LOG_WARN, HX_LOG_ERROR } hx_log_level;

typedef enum {
#define X(id, level, message) HX_EVENT_##id,
#include "observe/events.def"
#undef X
    HX_EVENT_COUNT
} hx_log_event;

typedef struct {
    const char *id;
    hx_log_level level;
    const char *message;
} hx_log_event_row;

const hx_log_event_row *hx_log_about(hx_log_event event);
const char *hx_log_level_name(hx_log_level level);

void hx_log_readable(bool on);
void hx_log_threshold(hx_log_level least);

/* Takes a whole line, newline included, on the thread that logs it. */
typedef void hx_log_sink(const char *line, size_t len, hx_log_level level);
/* NULL: no lines. Call it before other threads exist. */
void hx_log_to(hx_log_sink *to);

/* hx_log_begin(HX_EVENT_listening); hx_log_str("address", a); hx_log_int("workers", n); hx_log_end();
 * Fields past the line's limit (8 KiB) are left out and the line says "truncated". UTF-8 is written as it is; bytes
 * that aren't, and characters that a terminal would obey, are escaped one by one. */
void hx_log_begin(hx_log_event event);
void hx_log_str(const char *name, hx_slice value);
void hx_log_text(const char *name, const char *terminated);
void hx_log_int(const char *name, int64_t value);
void hx_log_hex(const char *name, const void *bytes, size_t len);
void hx_log_end(void);

/* A line without fields. */
void hx_log(hx_log_event event);

#endif
