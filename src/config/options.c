/* SPDX-License-Identifier: Apache-2.0 */
#include "config/options.h"

#include "base/check.h"
#include "config/address.h"
#include "config/loader.h"
#include "core/event/delivery.h"
#include "core/event/endpoint.h"
#include "core/event/sequence.h"
#include "core/time/units.h"

#include <stdio.h>
#include <string.h>

#define HX_PIB ((uint64_t)1 << 50)
#define RELOAD HX_OPTION_RELOAD
#define ALONE HX_OPTION_ALONE

#define X(place, owner, home, title) typedef owner owner_##place;
HX_OPTION_PLACES(X)
#undef X

static const char schemes[] =
#define X(name, ...) name "|"
#include "core/webhook/schemes.def"
#undef X
    "none";

static const hx_option options[] = {
#define X(place_, name_, type_, field_, low_, high_, words_, default_, flags_, text_)                                  \
    {.place = HX_PLACE_##place_,                                                                                       \
     .name = #name_,                                                                                                   \
     .type = HX_OPTION_##type_,                                                                                        \
     .offset = offsetof(owner_##place_, field_),                                                                       \
     .bytes = sizeof(((owner_##place_ *)0)->field_),                                                                   \
     .low = (low_),                                                                                                    \
     .high = (high_),                                                                                                  \
     .words = (words_),                                                                                                \
     .fallback = (default_),                                                                                           \
     .flags = (flags_),                                                                                                \
     .text = (text_)},
#include "config/options.def"
#undef X
};

#define COUNT (sizeof options / sizeof options[0])

/* From large to small, like the units of time: a value is written in the first unit that divides it. */
static const hx_unit sizes[] = {{"GiB", 1u << 30}, {"MiB", 1u << 20}, {"KiB", 1u << 10}, {"B", 1}, {NULL, 0}};

const hx_option *hx_options(size_t *count)
{
    *count = COUNT;
    return options;
}

const hx_option *hx_option_find(hx_option_place place, hx_slice name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (options[i].place == place && hx_slice_eq(hx_slice_of(options[i].name), name)) return &options[i];
    return NULL;
}

static const char *name_at(size_t i, const void *place)
{
    return options[i].place == *(const hx_option_place *)place ? options[i].name : NULL;
}

const char *hx_option_hint(hx_option_place place, hx_slice name, hx_arena *arena)
{
    static const char *const homes[] = {
#define X(place, owner, home, title) home,
        HX_OPTION_PLACES(X)
#undef X
    };
    for (size_t i = 0; i < COUNT; i++)
        if (options[i].place != place && hx_slice_eq(hx_slice_of(options[i].name), name))
            return hx_arena_printf(arena, " here; it belongs %s", homes[options[i].place]).ptr;
    const char *nearest = hx_nearest(name, COUNT, name_at, &place);
    return nearest ? hx_arena_printf(arena, ", did you mean \"%s\"?", nearest).ptr : "";
}

static const char *write_unit(uint64_t value, const hx_unit *units, hx_arena *arena)
{
    if (value == 0) return "0";
    while (value % units->factor != 0 || (units == hx_time_units && value < 2 * units->factor))
        units++; /* 24h, not 1d */
    return hx_arena_printf(arena, "%llu%s", (unsigned long long)(value / units->factor), units->name).ptr;
}

const char *hx_option_write(const hx_option *option, uint64_t value, hx_arena *arena)
{
    if (option->type == HX_OPTION_DURATION) return write_unit(value, hx_time_units, arena);
    if (option->type == HX_OPTION_BYTES) return write_unit(value, sizes, arena);
    return hx_arena_printf(arena, "%llu", (unsigned long long)value).ptr;
}

hx_slice hx_option_word(const hx_option *option, uint64_t value)
{
    hx_slice rest = hx_slice_of(option->words), word;
    while (hx_slice_next(&rest, '|', &word))
        if (value-- == 0) return hx_slice_first(word, hx_slice_find(word, '='));
    return HX_EMPTY;
}

/* Lists the words of an ENUM: "replay, reject or noop". */
static const char *write_words(const char *words, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, 256);
    hx_slice rest = hx_slice_of(words), word;
    while (hx_slice_next(&rest, '|', &word)) {
        if (word.len == 0) continue;
        if (out.len > 0) hx_buf_puts(&out, rest.ptr ? ", " : " or ");
        hx_buf_put(&out, hx_slice_first(word, hx_slice_find(word, '=')));
    }
    return hx_arena_terminated(arena, hx_buf_slice(&out));
}

const char *hx_option_expects(const hx_option *option, hx_arena *arena)
{
    switch (option->type) {
    case HX_OPTION_BOOL: return "must be true or false";
    case HX_OPTION_ENUM: return hx_arena_printf(arena, "must be %s", write_words(option->words, arena)).ptr;
    case HX_OPTION_DURATION:
        return hx_arena_printf(arena, "must be a duration such as 500ms, 10s, 5m, 24h or 7d%s%s",
                               option->words ? ", or " : "", option->words ? option->words : "")
            .ptr;
    case HX_OPTION_BYTES: return "must be a size such as 512B, 64KiB, 8MiB or 2GiB";
    case HX_OPTION_INTEGER:
        return hx_arena_printf(arena, "must be a whole number, %llu to %llu", (unsigned long long)option->low,
                               (unsigned long long)option->high)
            .ptr;
    case HX_OPTION_TEXT:
    case HX_OPTION_NAME: return "must be text";
    case HX_OPTION_STORE: return HX_STORE_EXPECTED;
    case HX_OPTION_LISTEN: return "must be an address such as 127.0.0.1:8080, or a list of them";
    case HX_OPTION_UPSTREAMS:
        return "must be a URL such as http://127.0.0.1:3000 or unix:/run/app.sock, or a map of names to URLs";
    case HX_OPTION_UPSTREAM: return "must be the name of an upstream";
    case HX_OPTION_MATCH: return "must be methods and a path, such as POST /refunds";
    case HX_OPTION_REQUEST: return "must be GET or HEAD and a path, such as GET /refunds?idempotency_key={key}";
    case HX_OPTION_ASK: return "must be GET or HEAD and a path, such as GET /me, or off";
    case HX_OPTION_POINTER: return "must be a JSON pointer such as /data/0";
    case HX_OPTION_TEMPLATE: return "must be text with parts in braces, such as \"{body:/orderId}\"";
    case HX_OPTION_RATE: return "must be a number and a time, such as 50/s, 300/m, 1000/h or 10000/d, or off";
    case HX_OPTION_NAMES: return "must be a list of names";
    case HX_OPTION_COUNTED: return "must be canonical, raw, or a list of JSON pointers such as [/amount, /currency]";
    case HX_OPTION_IGNORED: return "must be a list of JSON pointers and query:NAME, such as [/sentAt, query:trace]";
    case HX_OPTION_ORIGINS: return "must be a list of origins such as https://app.example.com, or \"*\"";
    case HX_OPTION_HOSTS: return "must be a list of host names, such as [hapax.example.com]";
    case HX_OPTION_PROTOCOLS: return "must be a list of protocols, such as [websocket]";
    case HX_OPTION_NETWORKS: return "must be a list of addresses and networks, such as [127.0.0.1, 10.0.0.0/8]";
    case HX_OPTION_GROUP: return "must be the name of a group";
    case HX_OPTION_SOCKET: return "must be a unix socket such as unix:/run/hapax/admin.sock, or off";
    case HX_OPTION_OUTCOMES: return "must be a map of statuses to words, such as {\"302\": release}";
    case HX_OPTION_STATUSES: return "must be a list of statuses, such as [429, 503]";
    case HX_OPTION_PRINCIPALS: return "must be a list of authorization, header:NAME, cookie:NAME and jwt:CLAIM";
    case HX_OPTION_ADMIN:
    case HX_OPTION_API:
    case HX_OPTION_LIMITS:
    case HX_OPTION_CORS:
    case HX_OPTION_KEY:
    case HX_OPTION_FINGERPRINT:
    case HX_OPTION_RETRY:
    case HX_OPTION_PROBE:
    case HX_OPTION_FOUND:
    case HX_OPTION_ABSENT:
    case HX_OPTION_ANSWER:
    case HX_OPTION_DUPLICATE:
    case HX_OPTION_DEFAULTS: return "must be a map of options";
    case HX_OPTION_JWT: return "must be a map of options, or off";
    case HX_OPTION_GROUPS: return "must be a map of names to maps of options";
    case HX_OPTION_ROUTES: return "must be a list of routes";
    case HX_OPTION_INBOX:
    case HX_OPTION_MCP:
    case HX_OPTION_EVENTS: return "must be a map of options";
    case HX_OPTION_SOURCES: return "must be a list of sources";
    case HX_OPTION_STREAMS: return "must be a list such as [{match: \"orders-*\", retention: 30d}]";
    case HX_OPTION_OUTBOXES: return "must be \"store\", or a list of outboxes";
    case HX_OPTION_ENDPOINTS: return "must be a list of endpoints";
    case HX_OPTION_AGENT_HOSTS: return "must be a list such as [{url: https://a.example, match: [POST /b]}]";
    case HX_OPTION_MATCHES: return "must be a list of methods and paths, such as [POST /refunds]";
    case HX_OPTION_COMMANDS: return "must be a list of commands, such as [[/usr/local/bin/backup, \"*\"]]";
    case HX_OPTION_SECRETS: return "must be a name, or a list of names";
    case HX_OPTION_URL: return "must be a URL such as http://127.0.0.1:3000/webhooks";
    }
    hx_check_failed(__FILE__, __LINE__, "an option's type that is known");
}

static const char *unlike(const hx_option *option, hx_slice text, hx_arena *arena)
{
    return hx_arena_printf(arena, "%s, not %s", hx_option_expects(option, arena), hx_quoted(arena, text)).ptr;
}

static const char *read_bool(const hx_option *option, hx_slice text, hx_arena *arena, uint64_t *value)
{
    *value = hx_slice_eq(text, HX_LIT("true"));
    return *value || hx_slice_eq(text, HX_LIT("false")) ? NULL : unlike(option, text, arena);
}

typedef struct {
    const char *words[8];
    size_t count;
} word_list;

static const char *word_at(size_t i, const void *list)
{
    return ((const word_list *)list)->words[i];
}

/* Words that are known in other places and not allowed here, with the reason. */
static const char *out_of_place(const hx_option *option, hx_slice text)
{
    static const struct {
        const char *option, *word, *why;
    } rows[] = {
        {"class", "webhook", "must be user, background or scheduled on a route: \"webhook\" is for deliveries only"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].option, option->name) == 0 && hx_slice_eq(hx_slice_of(rows[i].word), text))
            return rows[i].why;
    return NULL;
}

static const char *read_word(const hx_option *option, hx_slice text, hx_arena *arena, uint64_t *value)
{
    word_list list = {0};
    hx_slice rest = hx_slice_of(option->words), word;
    while (hx_slice_next(&rest, '|', &word)) {
        size_t equals = hx_slice_find(word, '=');
        hx_slice alias = equals == SIZE_MAX ? word : hx_slice_from(word, equals + 1);
        word = hx_slice_first(word, equals);
        if (word.len > 0 && (hx_slice_eq(word, text) || hx_slice_eq(alias, text))) {
            *value = list.count;
            return NULL;
        }
        HX_CHECK(list.count < sizeof list.words / sizeof list.words[0]);
        list.words[list.count++] = word.len > 0 ? hx_arena_terminated(arena, word) : NULL;
    }
    const char *why = out_of_place(option, text);
    if (why) return why;
    const char *nearest = hx_nearest(text, list.count, word_at, &list), *wrong = unlike(option, text, arena);
    return nearest ? hx_arena_printf(arena, "%s, did you mean \"%s\"?", wrong, nearest).ptr : wrong;
}

/* 64KB and 64k are ambiguous: 1000 or 1024 bytes? */
static const char *hint_size(hx_slice digits, hx_slice suffix, hx_arena *arena)
{
    static const char large[] = "kmg";
    const char *found = suffix.len > 0 && suffix.len <= 3 ? strchr(large, hx_lower(suffix.ptr[0])) : NULL;
    if (!found || *found == '\0') return "";
    return hx_arena_printf(arena, ", did you mean \"%.*s%ciB\"?", HX_FMT(digits), *found - ('a' - 'A')).ptr;
}

static const char *read_united(const hx_option *option, hx_slice text, hx_arena *arena, uint64_t *value)
{
    bool timed = option->type == HX_OPTION_DURATION;
    size_t digits = 0;
    *value = 0;
    if (option->words && hx_slice_eq(text, hx_slice_of(option->words))) return NULL;
    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9') digits++;
    hx_slice number = hx_slice_first(text, digits), suffix = hx_slice_from(text, digits);
    if (digits == 0) return unlike(option, text, arena);
    uint64_t count = 0;
    bool fits = hx_slice_to_u64(number, &count);
    if (suffix.len == 0 && timed && !(fits && count == 0))
        return hx_arena_printf(arena, "%s: %.40s%s needs a unit, such as %.40ss", hx_option_expects(option, arena),
                               hx_arena_terminated(arena, number), digits > 40 ? "…" : "",
                               hx_arena_terminated(arena, number))
            .ptr;
    uint64_t factor = suffix.len == 0 ? 1 : 0;
    for (const hx_unit *u = timed ? hx_time_units : sizes; u->name; u++)
        if (hx_slice_eq(hx_slice_of(u->name), suffix)) factor = u->factor;
    if (factor == 0)
        return hx_arena_printf(arena, "%s%s", unlike(option, text, arena),
                               timed ? "" : hint_size(number, suffix, arena))
            .ptr;
    *value = fits && count <= UINT64_MAX / factor ? count * factor : UINT64_MAX;
    return NULL;
}

const char *hx_option_read(const hx_option *option, hx_slice text, hx_arena *arena, uint64_t *value)
{
    const char *wrong = NULL;
    switch (option->type) {
    case HX_OPTION_BOOL: return read_bool(option, text, arena, value);
    case HX_OPTION_ENUM: return read_word(option, text, arena, value);
    case HX_OPTION_DURATION:
    case HX_OPTION_BYTES: wrong = read_united(option, text, arena, value); break;
    default:
        HX_CHECK(option->type == HX_OPTION_INTEGER);
        if (!hx_slice_to_u64(text, value)) wrong = unlike(option, text, arena);
    }
    bool is_word = option->type == HX_OPTION_DURATION && option->words && hx_slice_eq(text, hx_slice_of(option->words));
    if (wrong || is_word || (*value >= option->low && *value <= option->high)) return wrong;
    return hx_arena_printf(arena, "must be %s to %s, not %s", hx_option_write(option, option->low, arena),
                           hx_option_write(option, option->high, arena), hx_quoted(arena, text))
        .ptr;
}

void hx_option_store(const hx_option *option, void *owner, uint64_t value)
{
    char *field = (char *)owner + option->offset;
    uint32_t four = (uint32_t)value;
    uint16_t two = (uint16_t)value;
    bool one = value != 0;
    switch (option->bytes) {
    case sizeof(uint64_t): memcpy(field, &value, sizeof value); break;
    case sizeof four: memcpy(field, &four, sizeof four); break;
    case sizeof two: memcpy(field, &two, sizeof two); break;
    default: HX_CHECK(option->bytes == sizeof one); memcpy(field, &one, sizeof one);
    }
}

void hx_option_defaults(hx_option_place place, void *owner)
{
    hx_arena arena = {0};
    for (size_t i = 0; i < COUNT; i++) {
        const hx_option *option = &options[i];
        if (option->place != place || option->type > HX_OPTION_INTEGER || !option->fallback) continue;
        uint64_t value = 0;
        const char *wrong = hx_option_read(option, hx_slice_of(option->fallback), &arena, &value);
        HX_CHECK(!wrong);
        hx_option_store(option, owner, value);
    }
    hx_arena_free(&arena);
}

static const char *type_text(const hx_option *option, hx_arena *arena)
{
    static const char *const texts[] = {
#define X(name, text) text,
        HX_OPTION_TYPES(X)
#undef X
    };
    switch (option->type) {
    case HX_OPTION_ENUM: return write_words(option->words, arena);
    case HX_OPTION_DURATION:
    case HX_OPTION_BYTES:
    case HX_OPTION_INTEGER:
        return hx_arena_printf(arena, "%s, %s to %s%s%s", texts[option->type],
                               hx_option_write(option, option->low, arena),
                               hx_option_write(option, option->high, arena), option->words ? ", or " : "",
                               option->words ? option->words : "")
            .ptr;
    default: return texts[option->type];
    }
}

void hx_options_reference(hx_buf *out)
{
    static const char *const titles[] = {
#define X(place, owner, home, title) title,
        HX_OPTION_PLACES(X)
#undef X
    };
    hx_arena arena = {0};
    hx_buf_puts(out, "# Options\n\n"
                     "Every option of the configuration file. This page is written by `hapax reference options`.\n\n"
                     "Durations have a unit: `500ms`, `10s`, `5m`, `24h`, `7d`. Sizes are bytes, or have one: `512`, "
                     "`512B`, `64KiB`, `8MiB`, `2GiB`. In YAML a value that starts with `{`, and one with `{` in it "
                     "inside `{…}` or `[…]`, needs quotes: `{match: \"POST /refunds/{id}\"}`.\n\n"
                     "```yaml\n"
                     "upstream: http://127.0.0.1:3000\n"
                     "defaults: {lifetime: 24h}\n"
                     "routes:\n"
                     "  - {match: POST /refunds, lifetime: 7d}\n"
                     "  - {match: \"PATCH /accounts/{id}\", require: key-or-if-match}\n"
                     "  - {match: POST /login, mode: pass, because: a repetition does no harm}\n"
                     "```\n");
    for (hx_option_place place = 0; place < sizeof titles / sizeof titles[0]; place++) {
        hx_buf_puts(out, hx_arena_printf(&arena, "\n## %s\n\n", titles[place]).ptr);
        if (place == HX_PLACE_ROUTE)
            hx_buf_puts(out,
                        "Under `defaults` and in a group, all of these except `name`, `match`, `formerly` and "
                        "`group`. Options that a route doesn't set come from its group, else from `defaults`; that "
                        "includes options under `key`, `jwt`, `fingerprint`, `retry` and `probe`.\n\n");
        hx_buf_puts(out, "| option | value | default | meaning |\n|---|---|---|---|\n");
        for (size_t i = 0; i < COUNT; i++) {
            const hx_option *option = &options[i];
            if (option->place != place) continue;
            const char *quote = option->fallback ? "`" : "";
            hx_buf_puts(out, hx_arena_printf(&arena, "| `%s` | %s | %s%s%s | %s |\n", option->name,
                                             type_text(option, &arena), quote, option->fallback ? option->fallback : "",
                                             quote, option->text)
                                 .ptr);
        }
    }
    hx_arena_free(&arena);
}
