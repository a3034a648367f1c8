/* SPDX-License-Identifier: Apache-2.0 */
#include "core/event/delivery.h"

#include "base/check.h"
#include "base/crc32c.h"
#include "core/json/json_fields.h"
#include "core/json/json_walk.h"
#include "core/json/json_writer.h"
#include "core/retry/retry_after.h"

#include <string.h>

#define RETRY_AFTER_MAX HX_DAY
#define GONE 410u
#define LINE_NAME_MAX 90u

const hx_delivery_traits hx_delivery_states[HX_DELIVERY_STATES] = {
#define X(id, name, queue, has_ended, text) {name, queue, has_ended, text},
#include "core/event/states.def"
#undef X
};

bool hx_delivery_state_named(hx_slice name, hx_delivery_state *out)
{
    for (*out = 0; *out < HX_DELIVERY_STATES; ++*out)
        if (hx_slice_eq(name, hx_slice_of(hx_delivery_states[*out].name))) return true;
    return false;
}

typedef struct {
    hx_delivery delivery;
    hx_slice state;
    hx_slice tries;
} stored;

#define FIELD(name, kind)                                                                                              \
    {                                                                                                                  \
#name, HX_JSON_##kind, offsetof(stored, delivery.name), HX_JSON_STORED                                         \
    }
static const hx_json_field fields[] = {
    FIELD(event, TEXT),
    FIELD(endpoint, TEXT),
    FIELD(tenant, TEXT),
    {"state", HX_JSON_TEXT, offsetof(stored, state), HX_JSON_STORED},
    FIELD(created_at, TIME),
    FIELD(due, TIME),
    FIELD(lease, NUMBER),
    FIELD(attempts, NUMBER),
    FIELD(round, NUMBER),
    FIELD(round_attempts, NUMBER),
    FIELD(step, NUMBER),
    FIELD(first_at, TIME),
    FIELD(last_at, TIME),
    FIELD(settled_at, TIME),
    FIELD(stream, TEXT),
    FIELD(place, NUMBER),
    FIELD(reason, TEXT),
    FIELD(job, TEXT),
    {"tries", HX_JSON_RAW, offsetof(stored, tries), HX_JSON_STORED},
};
#undef FIELD
static const hx_json_shape shape = HX_JSON_SHAPE(fields);

#define FIELD(name, kind) HX_JSON_FIELD(hx_attempt, name, kind, HX_JSON_STORED)
static const hx_json_field attempt_fields[] = {FIELD(at, TIME), FIELD(ms, NUMBER), FIELD(status, NUMBER),
                                               FIELD(error, TEXT), FIELD(response, NUMBER)};
#undef FIELD
static const hx_json_shape attempt_shape = HX_JSON_SHAPE(attempt_fields);

void hx_delivery_encode(const hx_delivery *delivery, hx_buf *out)
{
    stored s = {.delivery = *delivery, .state = hx_slice_of(hx_delivery_states[delivery->state].name)};
    hx_json_open(out, NULL, '{');
    hx_json_write(&shape, HX_JSON_STORED, &s, out);
    if (delivery->kept_count > 0) {
        hx_json_open(out, "tries", '[');
        for (size_t i = 0; i < delivery->kept_count; i++) {
            hx_json_open(out, NULL, '{');
            hx_json_write(&attempt_shape, HX_JSON_STORED, &delivery->kept[i], out);
            hx_json_close(out, '}');
        }
        hx_json_close(out, ']');
    }
    hx_json_close(out, '}');
}

static bool decode_attempts(hx_slice tries, hx_arena *arena, hx_delivery *out)
{
    hx_slice none, raw;
    hx_error_text error;
    uint64_t bytes = 0;
    hx_json_walk walk = hx_json_walk_over(tries);
    while (hx_json_walk_next(&walk, &none, &raw)) {
        if (out->kept_count == HX_DELIVERY_ATTEMPTS_KEPT) return false;
        hx_attempt *attempt = &out->kept[out->kept_count++];
        *attempt = (hx_attempt){.error = HX_EMPTY};
        if (!hx_json_read(&attempt_shape, HX_JSON_STORED, raw, arena, attempt, error)) return false;
        if (attempt->response > out->responses.len - bytes) return false;
        bytes += attempt->response;
    }
    return true;
}

bool hx_delivery_decode(hx_slice meta, hx_slice body, hx_arena *arena, hx_delivery *out)
{
    hx_error_text error;
    stored s = {.delivery = {.event = HX_EMPTY,
                             .endpoint = HX_EMPTY,
                             .tenant = HX_EMPTY,
                             .stream = HX_EMPTY,
                             .reason = HX_EMPTY},
                .state = HX_EMPTY,
                .tries = HX_EMPTY};
    if (!hx_json_read(&shape, HX_JSON_STORED, meta, arena, &s, error)) return false;
    *out = s.delivery;
    out->responses = body;
    return hx_delivery_state_named(s.state, &out->state) && out->event.len > 0 && out->endpoint.len > 0 &&
           decode_attempts(s.tries, arena, out);
}

void hx_delivery_lease(hx_delivery *delivery, hx_ms now, hx_ms lease_ms, uint64_t lease)
{
    HX_CHECK(delivery->state == HX_DELIVERY_PENDING && delivery->due <= now);
    delivery->state = HX_DELIVERY_LEASED;
    delivery->due = now + lease_ms;
    delivery->lease = lease & ((UINT64_C(1) << 53) - 1);
    delivery->attempts++;
    delivery->round_attempts++;
    if (delivery->first_at == 0) delivery->first_at = now;
    delivery->last_at = now;
    delivery->reason = HX_EMPTY;
}

/* Forgets the oldest attempt, with its part of the responses. */
static void forget_oldest(hx_delivery *delivery)
{
    delivery->responses = hx_slice_from(delivery->responses, (size_t)delivery->kept[0].response);
    memmove(&delivery->kept[0], &delivery->kept[1], --delivery->kept_count * sizeof delivery->kept[0]);
}

static void keep_attempt(hx_delivery *delivery, const hx_attempt_result *result, hx_ms at, hx_arena *arena)
{
    if (delivery->kept_count == HX_DELIVERY_ATTEMPTS_KEPT) forget_oldest(delivery);
    hx_slice response = hx_slice_first(result->response, result->response.len < HX_DELIVERY_EXCERPT_MAX
                                                             ? result->response.len
                                                             : HX_DELIVERY_EXCERPT_MAX);
    hx_slice error = result->error ? hx_slice_of(result->error) : HX_EMPTY;
    if (error.len > HX_DELIVERY_ERROR_MAX) error.len = HX_DELIVERY_ERROR_MAX;
    delivery->kept[delivery->kept_count++] = (hx_attempt){.at = at,
                                                          .ms = result->ms > 0 ? (uint64_t)result->ms : 0,
                                                          .status = result->status,
                                                          .error = hx_arena_copy(arena, error),
                                                          .response = response.len};
    if (response.len == 0) return;
    char *all = hx_arena_alloc(arena, delivery->responses.len + response.len);
    if (delivery->responses.len > 0) memcpy(all, delivery->responses.ptr, delivery->responses.len);
    memcpy(all + delivery->responses.len, response.ptr, response.len);
    delivery->responses = (hx_slice){all, delivery->responses.len + response.len};
}

static void end(hx_delivery *delivery, hx_delivery_state state, hx_ms now, hx_slice reason)
{
    delivery->state = state;
    delivery->settled_at = now;
    delivery->due = now;
    delivery->lease = 0;
    delivery->reason = reason;
}

/* Back to the schedule, or dead. */
static void schedule(hx_delivery *delivery, const hx_delivery_rules *rules, hx_ms retry_after, hx_ms now,
                     uint64_t random)
{
    unsigned most = rules->attempts_max > 0 ? rules->attempts_max : HX_RETRY_STEPS;
    if (delivery->round_attempts >= most) {
        end(delivery, HX_DELIVERY_DEAD, now, HX_LIT("attempts"));
        return;
    }
    hx_retry_step next = hx_retry_scheduled(&(hx_retry_steps){.step = (unsigned)delivery->step,
                                                              .first_at = delivery->first_at,
                                                              .last_at = delivery->last_at,
                                                              .now = now,
                                                              .retry_after = retry_after > RETRY_AFTER_MAX
                                                                                 ? RETRY_AFTER_MAX
                                                                                 : retry_after},
                                            random);
    delivery->state = HX_DELIVERY_PENDING;
    delivery->due = next.due;
    delivery->step = next.step;
    delivery->lease = 0;
}

hx_delivery_settled hx_delivery_settle(hx_delivery *delivery, const hx_delivery_rules *rules, uint64_t lease,
                                       const hx_attempt_result *result, hx_ms now, uint64_t random, hx_arena *arena)
{
    bool is_success = result->status >= 200 && result->status < 300;
    bool is_own = delivery->state == HX_DELIVERY_LEASED && delivery->lease == lease;
    if (hx_delivery_states[delivery->state].has_ended && delivery->state != HX_DELIVERY_UNKNOWN)
        return HX_SETTLED_BEFORE;
    if (!is_own && !is_success) return HX_SETTLED_BEFORE;
    keep_attempt(delivery, result, now - (result->ms > 0 ? result->ms : 0), arena);
    if (is_success) {
        end(delivery, HX_DELIVERY_DELIVERED, now, HX_EMPTY);
    } else if (result->status == GONE) {
        end(delivery, HX_DELIVERY_DEAD, now, HX_LIT("gone"));
        return HX_SETTLED_DISABLES;
    } else if (result->status == 0 && !result->nothing_sent && !rules->repeats_safely) {
        end(delivery, HX_DELIVERY_UNKNOWN, now, HX_LIT("no response"));
    } else if (hx_retry_delivery(result->status, rules->dead_on_client_error) == HX_REPEAT_NEVER) {
        end(delivery, HX_DELIVERY_DEAD, now, HX_LIT("refused"));
    } else {
        schedule(delivery, rules, result->retry_after, now, random);
    }
    return HX_SETTLED;
}

bool hx_delivery_lapse(hx_delivery *delivery, const hx_delivery_rules *rules, hx_ms now, uint64_t random,
                       hx_arena *arena)
{
    if (delivery->state != HX_DELIVERY_LEASED || delivery->due > now) return false;
    hx_attempt_result interrupted = {.error = "interrupted", .response = HX_EMPTY};
    keep_attempt(delivery, &interrupted, delivery->last_at, arena);
    if (rules->repeats_safely)
        schedule(delivery, rules, HX_RETRY_AFTER_NONE, now, random);
    else
        end(delivery, HX_DELIVERY_UNKNOWN, now, HX_LIT("interrupted"));
    return true;
}

static void begin_round(hx_delivery *delivery, hx_ms now)
{
    delivery->state = HX_DELIVERY_PENDING;
    delivery->due = now;
    delivery->round++;
    delivery->round_attempts = delivery->step = 0;
    delivery->first_at = delivery->settled_at = 0;
    delivery->reason = HX_LIT("re-driven");
}

bool hx_delivery_rearm(hx_delivery *delivery, hx_ms now)
{
    if (!hx_delivery_states[delivery->state].has_ended) return false;
    begin_round(delivery, now);
    return true;
}

bool hx_delivery_rearm_paused(hx_delivery *delivery, hx_ms now)
{
    if (delivery->state != HX_DELIVERY_PENDING) return false;
    begin_round(delivery, now);
    return true;
}

bool hx_delivery_cancel(hx_delivery *delivery, hx_ms now, hx_slice reason)
{
    if (delivery->state == HX_DELIVERY_LEASED || hx_delivery_states[delivery->state].has_ended) return false;
    end(delivery, HX_DELIVERY_CANCELLED, now, reason);
    return true;
}

bool hx_delivery_skip(hx_delivery *delivery, hx_ms now, hx_slice reason)
{
    bool is_over = delivery->state == HX_DELIVERY_DELIVERED || delivery->state == HX_DELIVERY_CANCELLED;
    if (delivery->state == HX_DELIVERY_LEASED || is_over) return false;
    end(delivery, HX_DELIVERY_CANCELLED, now, reason);
    return true;
}

bool hx_delivery_give_up(hx_delivery *delivery, hx_ms now, hx_slice reason)
{
    if (delivery->state != HX_DELIVERY_PENDING) return false;
    end(delivery, HX_DELIVERY_DEAD, now, reason);
    delivery->place = 0; /* what waited behind it ends with it, so it needn't stop its stream */
    return true;
}

/* A stream's name, as it fits into the name of a queue. Long ones that are alike and have the same checksum share a
 * queue, and so wait for each other. */
static hx_slice line_of(const hx_delivery *delivery, hx_arena *arena)
{
    if (delivery->stream.len <= LINE_NAME_MAX) return delivery->stream;
    return hx_arena_printf(arena, "%.*s~%08x", HX_FMT(hx_slice_first(delivery->stream, LINE_NAME_MAX)),
                           hx_crc32c(0, delivery->stream));
}

hx_slice hx_delivery_queue(const hx_delivery *delivery, hx_arena *arena)
{
    const char *queue = hx_delivery_states[delivery->state].queue;
    if (queue[0] == '\0') return HX_EMPTY;
    bool is_in_line = delivery->place > 0 && delivery->state == HX_DELIVERY_PENDING;
    return hx_arena_printf(arena, "%s/%.*s/%.*s/%s%.*s%s", queue, HX_FMT(delivery->tenant), HX_FMT(delivery->endpoint),
                           is_in_line ? "=" : "", HX_FMT(is_in_line ? line_of(delivery, arena) : HX_EMPTY),
                           is_in_line ? "/" : "");
}

hx_slice hx_delivery_mark_key(const hx_delivery *delivery, hx_arena *arena)
{
    return hx_arena_printf(arena, HX_DELIVERY_MARKS "%.*s/%.*s/=%.*s", HX_FMT(delivery->tenant),
                           HX_FMT(delivery->endpoint), HX_FMT(line_of(delivery, arena)));
}
