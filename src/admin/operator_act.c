/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/operator_act.h"

#include "core/json/json_walk.h"
#include "base/check.h"
#include "base/text.h"
#include "config/problems.h"
#include "core/json/json.h"
#include "core/operation/lifecycle.h"
#include "net/http/message.h"

#define HEADERS_MAX 100u
#define HEADERS_BYTES_MAX (32u * 1024u)
#define WHY_BYTES_MAX 160u /* with the operator's name it must fit into HX_RECORD_TEXT_MAX */

/* The members of a body as raw JSON; ptr NULL: not given. */
typedef struct {
    hx_slice epoch, outcome, status, headers, body, why, filter, preview;
} members;

enum { FOR_RESOLVE = 1, FOR_BULK = 2, FOR_ONE = 4 };

static const struct {
    const char *name;
    size_t offset;
    unsigned only; /* 0: for all */
} known[] = {
    {"epoch", offsetof(members, epoch), FOR_ONE},       {"outcome", offsetof(members, outcome), FOR_RESOLVE},
    {"status", offsetof(members, status), FOR_RESOLVE}, {"headers", offsetof(members, headers), FOR_RESOLVE},
    {"body", offsetof(members, body), FOR_RESOLVE},     {"why", offsetof(members, why), 0},
    {"filter", offsetof(members, filter), FOR_BULK},    {"preview", offsetof(members, preview), FOR_BULK},
};

static const char *find_members(const hx_operator_act *act, hx_slice text, hx_arena *arena, members *given)
{
    hx_slice object, raw_name, value, name;
    if (hx_json_find(text, HX_EMPTY, &object) != HX_JSON_FOUND || object.ptr[0] != '{')
        return "the body must be a JSON object";
    unsigned here = (act->kind == HX_OPERATOR_ACT_RESOLVE ? FOR_RESOLVE : 0u) | (act->is_bulk ? FOR_BULK : FOR_ONE);
    hx_json_walk walk = hx_json_walk_over(object);
    while (hx_json_walk_next(&walk, &raw_name, &value)) {
        if (!hx_json_string(raw_name, arena, &name)) return "the body must be a JSON object";
        hx_slice *place = NULL;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            if (hx_slice_eq(name, hx_slice_of(known[i].name)) && (known[i].only == 0 || (known[i].only & here) != 0))
                place = (hx_slice *)(void *)((char *)given + known[i].offset);
        if (!place) return hx_arena_printf(arena, "there is no member %s here", hx_quoted(arena, name)).ptr;
        if (place->ptr) return hx_arena_printf(arena, "%s is given twice", hx_quoted(arena, name)).ptr;
        *place = value;
    }
    return NULL;
}

static const char *read_why(hx_operator_act *act, const members *given, hx_arena *arena)
{
    hx_slice why;
    if (!given->why.ptr) return "why is missing: say in a few words why this is right; the history will show it";
    if (!hx_json_string(given->why, arena, &why)) return "why must be text";
    why = hx_slice_trim(why);
    if (why.len == 0) return "why must not be empty";
    if (why.len > WHY_BYTES_MAX) return "why must have up to 160 bytes: the operation's history shows it";
    for (size_t i = 0; i < why.len; i++)
        if ((unsigned char)why.ptr[i] < 0x20 || why.ptr[i] == 0x7f) return "why must not hold control characters";
    act->why = why;
    return NULL;
}

static const char *read_outcome(hx_operator_act *act, const members *given)
{
    static const struct {
        const char *raw;
        hx_state to;
    } words[] = {{"\"completed\"", HX_COMPLETED}, {"\"failed\"", HX_FAILED}, {"\"released\"", HX_ABSENT}};
    if (given->outcome.ptr)
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            if (hx_slice_eq(given->outcome, hx_slice_of(words[i].raw))) {
                act->to = words[i].to;
                return NULL;
            }
    return "outcome must be completed, failed or released";
}

/* The status must be one that would have had this outcome as the upstream's response. */
static const char *read_status(hx_operator_act *act, const members *given)
{
    uint64_t status = 200;
    if (!given->status.ptr && act->to == HX_FAILED)
        return "status is missing: the error that clients of the failed operation get, such as 422";
    if (given->status.ptr && !hx_slice_to_u64(given->status, &status)) return "status must be a number such as 201";
    bool is_success = (status >= 200 && status < 300) || (status >= 301 && status <= 303);
    if (act->to == HX_COMPLETED && !is_success)
        return "status of a completed operation must be 200 to 299, or 301 to 303";
    if (act->to == HX_FAILED && (status < 400 || status > 599))
        return "status of a failed operation must be 400 to 599";
    act->answer.status = (uint16_t)status;
    return NULL;
}

/* Headers that are written for every response, or belong to the connection. */
static bool is_not_kept(const hx_field *field)
{
    switch (field->id) {
    case HX_FIELD_SET_COOKIE:
    case HX_FIELD_AGE:
    case HX_FIELD_IDEMPOTENCY_STATUS:
    case HX_FIELD_IDEMPOTENCY_EXPIRES:
    case HX_FIELD_IDEMPOTENT_REPLAYED:
    case HX_FIELD_ORIGINAL_REQUEST_TIME:
    case HX_FIELD_ERROR_CODE:
    case HX_FIELD_X_CORRELATION_ID: return true;
    default:
        return (field->flags & (HX_FIELD_HOP | HX_FIELD_FRAMING)) != 0 ||
               hx_slice_starts_nocase(field->name, HX_LIT("hapax-"));
    }
}

static const char *read_line(hx_slice raw, hx_arena *arena, hx_fields *fields)
{
    hx_slice line;
    if (!hx_json_string(raw, arena, &line)) return "headers must be a list of texts such as \"Location: /refunds/1\"";
    hx_text_header header;
    bool is_pair = hx_text_split_header(line, &header);
    hx_slice name = header.name;
    if (!is_pair || !hx_slice_is_token(name))
        return hx_arena_printf(arena, "a header must be written \"Name: value\", not %s", hx_quoted(arena, line)).ptr;
    for (size_t i = name.len; i < line.len; i++)
        if (((unsigned char)line.ptr[i] < 0x20 && line.ptr[i] != '\t') || line.ptr[i] == 0x7f)
            return hx_arena_printf(arena, "the header %s holds a control byte", hx_quoted(arena, name)).ptr;
    if (!hx_fields_add(fields, arena, HEADERS_MAX, name, header.value)) return "headers must be 100 or fewer";
    if (is_not_kept(&fields->items[fields->count - 1]))
        return hx_arena_printf(arena, "the header %s can't be stored with a response: Hapax writes it, or drops it",
                               hx_quoted(arena, name))
            .ptr;
    return NULL;
}

static const char *read_headers(hx_operator_act *act, const members *given, hx_arena *arena, hx_ms now)
{
    hx_fields fields = {0};
    if (given->headers.ptr && given->headers.ptr[0] != '[')
        return "headers must be a list of texts such as \"Location: /refunds/1\"";
    hx_json_walk walk = hx_json_walk_over(given->headers.ptr ? given->headers : HX_LIT("[]"));
    hx_slice none, raw;
    while (hx_json_walk_next(&walk, &none, &raw)) {
        const char *wrong = read_line(raw, arena, &fields);
        if (wrong) return wrong;
    }
    hx_buf lines;
    hx_buf_init(&lines, arena, HEADERS_BYTES_MAX + 256);
    for (size_t i = 0; i < fields.count; i++) {
        if (lines.len + fields.items[i].name.len + fields.items[i].value.len + 4 > HEADERS_BYTES_MAX)
            return "headers must have up to 32 KiB";
        hx_field_write(&lines, fields.items[i].name, fields.items[i].value);
    }
    if (fields.lines[HX_FIELD_CONTENT_TYPE] == 0 && act->answer.body.len > 0)
        hx_buf_puts(&lines, "Content-Type: application/json\r\n");
    if (fields.lines[HX_FIELD_DATE] == 0) {
        char date[HX_HTTP_DATE_BYTES];
        hx_field_write(&lines, HX_LIT("Date"), hx_http_date(now, date));
    }
    act->answer.headers = hx_buf_slice(&lines);
    return NULL;
}

static const char *read_answer(hx_operator_act *act, const members *given, hx_arena *arena, hx_ms now)
{
    act->answer = (hx_answer){.headers = HX_EMPTY, .body = HX_EMPTY};
    if (act->to == HX_ABSENT) {
        bool has_answer = given->status.ptr || given->headers.ptr || given->body.ptr;
        return has_answer ? "a released operation has no response: leave status, headers and body out" : NULL;
    }
    const char *wrong = read_status(act, given);
    if (wrong) return wrong;
    if (given->body.ptr && !hx_json_string(given->body, arena, &act->answer.body))
        return "body must be text: the bytes that clients get, as a JSON string";
    if (act->answer.body.len > 0 && (act->answer.status == 204 || act->answer.status == 205))
        return "a response with status 204 or 205 has no body";
    act->answer.retained = true;
    return read_headers(act, given, arena, now);
}

static const char *read_bulk(hx_operator_act *act, const members *given)
{
    act->filter = given->filter.ptr ? given->filter : HX_EMPTY;
    act->preview = given->preview.ptr && hx_slice_eq(given->preview, HX_LIT("true"));
    bool is_word = act->preview || !given->preview.ptr || hx_slice_eq(given->preview, HX_LIT("false"));
    return is_word ? NULL : "preview must be true or false";
}

const char *hx_operator_act_read(hx_operator_act *act, hx_slice text, hx_arena *arena, hx_ms now)
{
    members given = {0};
    const char *wrong = find_members(act, text, arena, &given);
    act->to = HX_ABSENT;
    act->epoch = 0;
    if (!wrong && given.epoch.ptr && (!hx_slice_to_u64(given.epoch, &act->epoch) || act->epoch == 0))
        wrong = "epoch must be a number, as the list has it";
    if (!wrong) wrong = read_bulk(act, &given);
    if (!wrong && act->kind == HX_OPERATOR_ACT_RESOLVE) wrong = read_outcome(act, &given);
    if (!wrong) wrong = read_answer(act, &given, arena, now);
    act->why = HX_EMPTY;
    if (!wrong && !act->preview) wrong = read_why(act, &given, arena); /* a preview changes nothing */
    return wrong;
}

hx_slice hx_operator_act_reason(hx_slice who, hx_slice why, hx_arena *arena)
{
    hx_slice reason = hx_arena_printf(arena, "operator %.*s: %.*s", HX_FMT(who), HX_FMT(why));
    HX_CHECK(reason.len <= HX_RECORD_TEXT_MAX);
    return reason;
}

const hx_policy *hx_operator_act_policy(const hx_policy_set *policies, hx_slice route)
{
    for (size_t i = 0; i < policies->count; i++)
        if (hx_slice_eq(hx_policy_identity(&policies->routes[i]), route)) return &policies->routes[i];
    return &policies->defaults;
}

void hx_operator_act_resolve(const hx_operator_act *act, const hx_policy *policy, hx_slice reason, hx_ms now,
                             hx_arena *arena, hx_record *record)
{
    HX_CHECK(record->state == HX_UNKNOWN);
    record->from_state = HX_UNKNOWN;
    record->state = act->to;
    record->changed_at = now;
    hx_lifecycle_set_end(record, policy);
    record->reason = reason;
    record->answer = act->answer;
    if (act->to != HX_ABSENT) record->result = hx_record_result(policy->result, act->answer.body, arena);
}
