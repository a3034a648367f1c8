/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/rules.h"

#include "base/check.h"
#include "config/options.h"
#include "core/json.h"

#define TEXT_BYTES_MAX (16u * 1024u)

static const hx_option *option_of(hx_option_place place, const char *name)
{
    const hx_option *option = hx_option_find(place, hx_slice_of(name));
    HX_CHECK(option != NULL);
    return option;
}

/* A word as it would be written in the file. */
static hx_slice word(hx_option_place place, const char *name, unsigned value)
{
    return hx_option_word(option_of(place, name), value);
}

static const char *duration(hx_ms span, hx_arena *arena)
{
    return hx_option_write(option_of(HX_PLACE_ROUTE, "lifetime"), (uint64_t)span, arena);
}

static void put(hx_buf *out, hx_slice text)
{
    hx_buf_put(out, text);
}

static void begin_line(hx_buf *out)
{
    if (out->len > 0) hx_buf_puts(out, "\n");
}

static bool is_retried_as_usual(const hx_retry_policy *retry)
{
    hx_retry_policy usual = hx_retry_policy_of_class(HX_CLASS_USER);
    return retry->attempts == usual.attempts && retry->total == usual.total && retry->base == usual.base &&
           retry->cap == usual.cap && retry->jitter == usual.jitter;
}

static void put_retries(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    const hx_retry_policy *retry = &route->retry;
    begin_line(out);
    if (retry->attempts == 1)
        hx_buf_puts(out, "sent once only");
    else
        put(out, hx_arena_printf(arena, "up to %u attempts within %s, %s doubling to %s apart, jitter %.*s",
                                 retry->attempts, duration(retry->total, arena), duration(retry->base, arena),
                                 duration(retry->cap, arena), HX_FMT(word(HX_PLACE_RETRY, "jitter", retry->jitter))));
}

static void put_probe(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    const hx_probe *probe = &route->probe;
    begin_line(out);
    hx_buf_puts(out, route->on_unknown == HX_ON_UNKNOWN_PROBE ? "when unknown" : "probe");
    put(out, hx_arena_printf(arena, ": %.*s %.*s; found with %u%s%.*s, settled after %s", HX_FMT(probe->method),
                             HX_FMT(probe->target), probe->found_status, probe->found_pointer.len > 0 ? " and " : "",
                             HX_FMT(probe->found_pointer), duration(probe->settle, arena)));
}

static void put_duplicate(const hx_provider_duplicate *duplicate, hx_buf *out, hx_arena *arena)
{
    begin_line(out);
    put(out, hx_arena_printf(arena, "already applied: %u", duplicate->status));
    if (duplicate->value.len > 0)
        put(out,
            hx_arena_printf(arena, " with \"%.*s\" at %.*s", HX_FMT(duplicate->value), HX_FMT(duplicate->pointer)));
}

static void put_rules(const hx_policy *route, hx_buf *out, hx_arena *arena)
{
    begin_line(out);
    for (size_t i = 0; i < route->outcome_rule_count; i++) {
        const hx_outcome_rule *rule = &route->outcome_rules[i];
        put(out, hx_arena_printf(arena, "%s%u: %.*s", i > 0 ? ", " : "", rule->status,
                                 HX_FMT(word(HX_PLACE_ROUTE, "outcome", rule->word))));
    }
}

const char *hx_rules_text(const hx_policy *route, hx_arena *arena)
{
    hx_buf out;
    hx_buf_init(&out, arena, TEXT_BYTES_MAX);
    if (route->mode == HX_MODE_PROTECT) {
        if (route->guarantee != HX_GUARANTEE_NONE)
            put(&out,
                hx_arena_printf(arena, "guarantee %.*s", HX_FMT(word(HX_PLACE_ROUTE, "guarantee", route->guarantee))));
        if (!is_retried_as_usual(&route->retry)) put_retries(route, &out, arena);
        if (route->probe.method.len > 0) put_probe(route, &out, arena);
        if (route->provider_duplicate.status > 0) put_duplicate(&route->provider_duplicate, &out, arena);
        if (route->outcome_rule_count > 0) put_rules(route, &out, arena);
    }
    if (route->retry_safe) {
        begin_line(&out);
        hx_buf_puts(&out, "safe methods, and PUT and DELETE without a key, sent again after resets, 502, 503 and 504");
    }
    return hx_arena_terminated(arena, hx_buf_slice(&out));
}

static void put_literal(hx_buf *out, const char *name, hx_slice text)
{
    hx_buf_puts(out, name);
    bool fits = hx_json_escape(out, text);
    HX_CHECK(fits);
}

static void put_number(hx_buf *out, const char *name, long long number)
{
    hx_buf_puts(out, name);
    bool fits = hx_buf_printf(out, "%lld", number);
    HX_CHECK(fits);
}

static void probe_json(const hx_probe *probe, hx_buf *out)
{
    put_literal(out, ",\"probe\":{\"method\":", probe->method);
    put_literal(out, ",\"target\":", probe->target);
    put_number(out, ",\"found\":{\"status\":", probe->found_status);
    put_literal(out, ",\"pointer\":", probe->found_pointer);
    put_number(out, "},\"answer\":{\"status\":", probe->answer_status > 0 ? probe->answer_status : probe->found_status);
    put_literal(out, ",\"body\":", probe->answer_body);
    put_number(out, "},\"settle_ms\":", (long long)probe->settle);
    hx_buf_puts(out, "}");
}

void hx_rules_json(const hx_policy *route, hx_buf *out)
{
    put_number(out, ",\"tombstone_ms\":", (long long)route->tombstone);
    put_literal(out, ",\"guarantee\":", word(HX_PLACE_ROUTE, "guarantee", route->guarantee));
    put_literal(out, ",\"on_unknown\":", word(HX_PLACE_ROUTE, "on_unknown", route->on_unknown));
    put_literal(out, ",\"class\":", word(HX_PLACE_ROUTE, "class", route->class));
    put_number(out, ",\"retry\":{\"attempts\":", route->retry.attempts);
    put_number(out, ",\"total_ms\":", (long long)route->retry.total);
    put_number(out, ",\"base_ms\":", (long long)route->retry.base);
    put_number(out, ",\"cap_ms\":", (long long)route->retry.cap);
    put_literal(out, ",\"jitter\":", word(HX_PLACE_RETRY, "jitter", route->retry.jitter));
    hx_buf_puts(out, route->retry_safe ? "},\"retry_safe\":true" : "},\"retry_safe\":false");
    if (route->probe.method.len > 0)
        probe_json(&route->probe, out);
    else
        hx_buf_puts(out, ",\"probe\":null");
    if (route->provider_duplicate.status > 0) {
        put_number(out, ",\"provider_duplicate\":{\"status\":", route->provider_duplicate.status);
        put_literal(out, ",\"pointer\":", route->provider_duplicate.pointer);
        put_literal(out, ",\"value\":", route->provider_duplicate.value);
        hx_buf_puts(out, "}");
    } else {
        hx_buf_puts(out, ",\"provider_duplicate\":null");
    }
    hx_buf_puts(out, ",\"outcome\":{");
    for (size_t i = 0; i < route->outcome_rule_count; i++) {
        put_number(out, i > 0 ? ",\"" : "\"", route->outcome_rules[i].status);
        put_literal(out, "\":", word(HX_PLACE_ROUTE, "outcome", route->outcome_rules[i].word));
    }
    hx_buf_puts(out, "}");
}
