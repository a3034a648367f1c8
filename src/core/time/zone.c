/* SPDX-License-Identifier: Apache-2.0 */
/* A TZif file of version 2 or later is twice the same: a header and a block with times of 4 bytes, for readers of
 * version 1, and a header and a block with times of 8 bytes; then a footer. Numbers are big-endian.
 *
 *     header   "TZif", version, 15 unused bytes, six counts of 4 bytes: isut, isstd, leap, time, type, char
 *     block    time × moment of a transition (ascending), time × the type that begins there (1 byte),
 *              type × (offset from UTC: 4 bytes, whether it is summer time: 1, place of its abbreviation: 1),
 *              char × byte of abbreviations, leap × leap second, isstd × 1 byte, isut × 1 byte
 *     footer   newline, a rule as in the variable TZ of POSIX, newline
 *
 * The table's last type holds until the rule's next change; from then on the rule does, if there is one. (By the RFC
 * both say the same at the last transition; a compiler of zones is known that wrote America/Ojinaga otherwise.) Offsets
 * are bounded when they are read, so that nothing below can overflow. */
#include "core/time/zone.h"

#include <string.h>

#define HEADER_BYTES 44u
#define TYPE_BYTES 6u
#define TYPES_MAX 256u
#define NAME_BYTES_MAX 64u

#define MINUTE 60
#define HOUR 3600
#define DAY INT64_C(86400)
#define OFFSET_MAX (26 * HOUR - 1)            /* RFC 9636, 3.2 */
#define MOMENT_MAX (INT64_C(1) << 59)         /* the same: nothing was before the universe */
#define SECONDS_MAX INT64_C(9000000000000000) /* within the range of hx_ms, with years to spare */
#define RULE_TIME_HOURS_MAX 167               /* RFC 9636, 3.3.2: a week, less an hour, to both sides */
#define RULE_OFFSET_HOURS_MAX 24

/* The day of a year on which clocks change, and when. */
typedef struct {
    enum {
        WITHOUT_LEAP_DAY, /* Jn: 1 to 365, and February 29th is never counted */
        WITH_LEAP_DAY,    /* n: 0 to 365 */
        WEEKDAY           /* Mm.w.d: the w-th day d of month m; the fifth is the last */
    } form;
    int32_t month, week, day;
    int32_t time; /* seconds after midnight, by the clock that is changed */
} change;

typedef struct {
    bool given;
    bool has_summer;
    int32_t standard, summer; /* offsets */
    change begin, end;        /* of summer time */
} rule;

struct hx_zone {
    hx_slice name;
    size_t count; /* of transitions */
    const int64_t *times;
    const int32_t *offsets; /* from that time on */
    int32_t offset_before;  /* the first transition */
    rule rule;              /* from the last transition on */
};

/* A stretch of time with one offset; the one before it may have the same. */
typedef struct {
    int64_t began; /* INT64_MIN: never */
    int32_t offset;
} span;

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static int64_t day_of_change(const change *c, int64_t year)
{
    int64_t first = hx_calendar_day(year, 1, 1);
    switch (c->form) {
    case WITHOUT_LEAP_DAY: return first + c->day - 1 + (c->day >= 60 && hx_calendar_is_leap(year));
    case WITH_LEAP_DAY: return first + c->day;
    case WEEKDAY: break;
    }
    int64_t month = hx_calendar_day(year, c->month, 1);
    int64_t day = month + (c->day - (int64_t)hx_calendar_weekday(month) + 7) % 7 + (c->week - 1) * 7;
    return day < month + hx_calendar_month_days(year, c->month) ? day : day - 7;
}

/* Moments at which summer time begins and ends by that year's dates; in the south it ends before it begins. */
static void changes_in(const rule *r, int64_t year, int64_t *begin, int64_t *end)
{
    *begin = day_of_change(&r->begin, year) * DAY + r->begin.time - r->standard;
    *end = day_of_change(&r->end, year) * DAY + r->end.time - r->summer;
}

/* A change may lie eight days outside its year, and summer time may reach into the next year, or last for ever: then
 * it begins again before it ends. */
static span span_by_rule(const rule *r, int64_t at)
{
    span found = {.began = INT64_MIN, .offset = r->standard};
    if (!r->has_summer) return found;
    int64_t year = hx_calendar_date(floor_div(at, DAY)).year - 2, begin, end;
    changes_in(r, year, &begin, &end);
    for (int i = 0; i < 4; i++) {
        int64_t next_begin, next_end;
        changes_in(r, year + i + 1, &next_begin, &next_end);
        if (begin <= at && at < (begin < end ? end : next_end)) found.offset = r->summer;
        if (begin <= at && begin > found.began) found.began = begin;
        if (end <= at && end > found.began) found.began = end;
        begin = next_begin;
        end = next_end;
    }
    return found;
}

static span span_at(const hx_zone *zone, int64_t at)
{
    if (zone->count > 0 && at < zone->times[0]) return (span){INT64_MIN, zone->offset_before};
    size_t low = 0, high = zone->count; /* how many transitions have been */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (zone->times[middle] <= at)
            low = middle + 1;
        else
            high = middle;
    }
    span found = {.began = INT64_MIN, .offset = zone->offset_before};
    if (low > 0) found = (span){zone->times[low - 1], zone->offsets[low - 1]};
    if (low < zone->count || !zone->rule.given) return found;
    span by_rule = span_by_rule(&zone->rule, at);
    return low == 0 || by_rule.began > found.began ? by_rule : found;
}

static int64_t seconds_of(hx_ms at)
{
    int64_t seconds = floor_div(at, 1000);
    if (seconds < -SECONDS_MAX) return -SECONDS_MAX;
    return seconds < SECONDS_MAX ? seconds : SECONDS_MAX;
}

/* Days since 1970 that a clock shows. */
static int64_t local_day(const hx_zone *zone, int64_t at)
{
    return floor_div(at + span_at(zone, at).offset, DAY);
}

hx_slice hx_zone_name(const hx_zone *zone)
{
    return zone->name;
}

int32_t hx_zone_offset(const hx_zone *zone, hx_ms at)
{
    return span_at(zone, seconds_of(at)).offset;
}

hx_date hx_zone_date(const hx_zone *zone, hx_ms at)
{
    return hx_calendar_date(local_day(zone, seconds_of(at)));
}

/* Goes back from span to span for as long as they show the same date. A date is shown within three days or four, so
 * that there are few of them. */
hx_ms hx_zone_date_began(const hx_zone *zone, hx_ms at)
{
    int64_t moment = seconds_of(at), day = local_day(zone, moment);
    for (;;) {
        span now = span_at(zone, moment);
        int64_t midnight = day * DAY - now.offset;
        if (midnight > now.began) return midnight * 1000; /* at its begin clocks may have gone back to midnight */
        if (local_day(zone, now.began - 1) != day) return now.began * 1000;
        moment = now.began - 1;
    }
}

static bool is_letter(char c)
{
    return hx_lower(c) >= 'a' && hx_lower(c) <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool hx_zone_is_name(hx_slice name)
{
    if (name.len == 0 || name.len > NAME_BYTES_MAX || name.ptr[name.len - 1] == '/') return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        bool begins = i == 0 || name.ptr[i - 1] == '/';
        if (begins ? !is_letter(c) : !is_letter(c) && !is_digit(c) && c != '/' && c != '_' && c != '+' && c != '-')
            return false;
    }
    return true;
}

/* The footer's rule is read from the front; `ok` goes false at the first byte that doesn't fit and stays so. */
typedef struct {
    hx_slice rest;
    bool ok;
} reader;

static char peek(const reader *in)
{
    return in->rest.len > 0 ? in->rest.ptr[0] : '\0';
}

static bool take(reader *in, char c)
{
    if (!in->ok || in->rest.len == 0 || in->rest.ptr[0] != c) return false;
    in->rest = hx_slice_from(in->rest, 1);
    return true;
}

static void expect(reader *in, char c)
{
    in->ok = take(in, c);
}

static int32_t read_number(reader *in, size_t digits_max, int32_t low, int32_t high)
{
    size_t digits = 0;
    int32_t value = 0;
    while (digits < digits_max && digits < in->rest.len && is_digit(in->rest.ptr[digits]))
        value = value * 10 + (in->rest.ptr[digits++] - '0');
    in->ok = in->ok && digits > 0 && value >= low && value <= high;
    in->rest = hx_slice_from(in->rest, digits);
    return in->ok ? value : 0;
}

/* "EST" or "<-03>". */
static void read_abbreviation(reader *in)
{
    bool quoted = take(in, '<');
    size_t len = 0;
    while (len < in->rest.len) {
        char c = in->rest.ptr[len];
        if (!is_letter(c) && !(quoted && (is_digit(c) || c == '+' || c == '-'))) break;
        len++;
    }
    in->ok = in->ok && len >= 3;
    in->rest = hx_slice_from(in->rest, len);
    if (quoted) expect(in, '>');
}

/* [+-]hours[:minutes[:seconds]] */
static int32_t read_time(reader *in, int32_t hours_max)
{
    bool negative = take(in, '-');
    if (!negative) (void)take(in, '+');
    int32_t seconds = read_number(in, 3, 0, hours_max) * HOUR;
    if (take(in, ':')) {
        seconds += read_number(in, 2, 0, 59) * MINUTE;
        if (take(in, ':')) seconds += read_number(in, 2, 0, 59);
    }
    return negative ? -seconds : seconds;
}

static change read_change(reader *in)
{
    change c = {.form = WITH_LEAP_DAY, .time = 2 * HOUR};
    if (take(in, 'M')) {
        c.form = WEEKDAY;
        c.month = read_number(in, 2, 1, 12);
        expect(in, '.');
        c.week = read_number(in, 1, 1, 5);
        expect(in, '.');
        c.day = read_number(in, 1, 0, 6);
    } else if (take(in, 'J')) {
        c.form = WITHOUT_LEAP_DAY;
        c.day = read_number(in, 3, 1, 365);
    } else {
        c.day = read_number(in, 3, 0, 365);
    }
    if (take(in, '/')) c.time = read_time(in, RULE_TIME_HOURS_MAX);
    return c;
}

/* POSIX counts offsets to the west. An empty rule is one that isn't given. */
static bool read_rule(hx_slice text, rule *out)
{
    *out = (rule){.given = text.len > 0};
    if (!out->given) return true;
    reader in = {.rest = text, .ok = true};
    read_abbreviation(&in);
    out->standard = -read_time(&in, RULE_OFFSET_HOURS_MAX);
    if (in.ok && in.rest.len > 0) {
        out->has_summer = true;
        read_abbreviation(&in);
        out->summer = peek(&in) == ',' ? out->standard + HOUR : -read_time(&in, RULE_OFFSET_HOURS_MAX);
        expect(&in, ',');
        out->begin = read_change(&in);
        expect(&in, ',');
        out->end = read_change(&in);
    }
    return in.ok && in.rest.len == 0;
}

typedef struct {
    char version;
    uint32_t isut, isstd, leap, time, type, chars;
} header;

static bool take_bytes(hx_slice *rest, uint64_t len, hx_slice *taken)
{
    if (len > rest->len) return false;
    *taken = hx_slice_first(*rest, (size_t)len);
    *rest = hx_slice_from(*rest, (size_t)len);
    return true;
}

static uint64_t big_endian(const char *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++) value = value << 8 | (uint8_t)at[i];
    return value;
}

static uint32_t count_at(const char *at)
{
    return (uint32_t)big_endian(at, 4);
}

static bool read_header(hx_slice *rest, header *out)
{
    hx_slice bytes;
    if (!take_bytes(rest, HEADER_BYTES, &bytes) || !hx_slice_starts(bytes, HX_LIT("TZif"))) return false;
    const char *counts = bytes.ptr + 20;
    *out = (header){.version = bytes.ptr[4],
                    .isut = count_at(counts),
                    .isstd = count_at(counts + 4),
                    .leap = count_at(counts + 8),
                    .time = count_at(counts + 12),
                    .type = count_at(counts + 16),
                    .chars = count_at(counts + 20)};
    return out->version >= '2';
}

static uint64_t block_bytes(const header *h, uint64_t time_bytes)
{
    return h->time * (time_bytes + 1) + h->type * (uint64_t)TYPE_BYTES + h->chars + h->leap * (time_bytes + 4) +
           h->isstd + h->isut;
}

static bool is_sane(const header *h)
{
    return h->type > 0 && h->type <= TYPES_MAX && h->chars > 0 && h->leap == 0 &&
           (h->isut == 0 || h->isut == h->type) && (h->isstd == 0 || h->isstd == h->type);
}

static bool read_types(hx_slice bytes, const header *h, int32_t offsets[TYPES_MAX])
{
    for (size_t i = 0; i < h->type; i++) {
        const char *type = bytes.ptr + i * TYPE_BYTES;
        int32_t offset = (int32_t)(uint32_t)big_endian(type, 4);
        if (offset < -OFFSET_MAX || offset > OFFSET_MAX) return false;
        if ((uint8_t)type[4] > 1 || (uint8_t)type[5] >= h->chars) return false;
        offsets[i] = offset;
    }
    return true;
}

/* The block with long times. */
static bool read_block(hx_slice *rest, const header *h, hx_zone *zone, hx_arena *arena)
{
    hx_slice times, types, descriptions, unused;
    uint64_t left = block_bytes(h, 8) - h->time * UINT64_C(9) - h->type * (uint64_t)TYPE_BYTES;
    if (!take_bytes(rest, h->time * UINT64_C(8), &times) || !take_bytes(rest, h->time, &types) ||
        !take_bytes(rest, h->type * (uint64_t)TYPE_BYTES, &descriptions) || !take_bytes(rest, left, &unused))
        return false;
    int32_t of_type[TYPES_MAX];
    if (!read_types(descriptions, h, of_type)) return false;

    int64_t *moments = hx_arena_alloc(arena, h->time * sizeof *moments);
    int32_t *offsets = hx_arena_alloc(arena, h->time * sizeof *offsets);
    for (size_t i = 0; i < h->time; i++) {
        moments[i] = (int64_t)big_endian(times.ptr + 8 * i, 8);
        uint8_t type = (uint8_t)types.ptr[i];
        if (moments[i] < -MOMENT_MAX || moments[i] > MOMENT_MAX || type >= h->type) return false;
        if (i > 0 && moments[i] <= moments[i - 1]) return false;
        offsets[i] = of_type[type];
    }
    zone->count = h->time;
    zone->times = moments;
    zone->offsets = offsets;
    zone->offset_before = of_type[0];
    return true;
}

/* Bytes after the footer are left to later versions of the format. */
static bool read_footer(hx_slice rest, rule *out)
{
    if (rest.len == 0 || rest.ptr[0] != '\n') return false;
    rest = hx_slice_from(rest, 1);
    size_t end = hx_slice_find(rest, '\n');
    return end != SIZE_MAX && read_rule(hx_slice_first(rest, end), out);
}

const hx_zone *hx_zone_read(hx_slice name, hx_slice bytes, hx_arena *arena)
{
    header for_old, h;
    hx_slice rest = bytes, unused;
    if (bytes.len > HX_ZONE_FILE_BYTES_MAX || !read_header(&rest, &for_old)) return NULL;
    if (!take_bytes(&rest, block_bytes(&for_old, 4), &unused) || !read_header(&rest, &h) || !is_sane(&h)) return NULL;
    hx_zone *zone = hx_arena_zalloc(arena, sizeof *zone);
    zone->name = hx_arena_copy(arena, name);
    if (!read_block(&rest, &h, zone, arena) || !read_footer(rest, &zone->rule)) return NULL;
    return zone;
}
