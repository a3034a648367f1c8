/* SPDX-License-Identifier: Apache-2.0 */
/* Options about responses and attempts: `class`, `retry`, `outcome`, `not_executed`, `probe`, `provider_duplicate`,
 * `authorize` and `result`. Options that depend on each other, or are partly inherited, are checked when the whole
 * route has been read. */
#include "config/address.h"
#include "base/text.h"
#include "config/loader.h"
#include "core/json/json.h"

#include <string.h>

#define STATUS_MIN 200u
#define STATUS_MAX 599u
#define REQUEST_BYTES_MAX 2000u

/* Checks that {key} is in the target, and nothing else in braces. */
static const char *check_substitutions(hx_slice target, hx_arena *arena)
{
    static const char known[] = "{key}";
    bool has_key = false;
    for (size_t i = 0; i < target.len; i++) {
        if (target.ptr[i] == '}') return "contains a \"}\" without a \"{\" before it; only {key} may be in braces";
        if (target.ptr[i] != '{') continue;
        hx_slice rest = hx_slice_from(target, i);
        size_t end = hx_slice_find(rest, '}');
        if (end == SIZE_MAX) return "contains a \"{\" without a \"}\" behind it; only {key} may be in braces";
        hx_slice name = hx_slice_first(rest, end + 1);
        if (!hx_slice_eq(name, HX_LIT(known)))
            return hx_arena_printf(arena, "contains %s; only {key} may be in braces", hx_quoted(arena, name)).ptr;
        has_key = true;
        i += end;
    }
    return has_key ? NULL : "must contain {key}, or every operation would get the same probe";
}

static const char *check_target(hx_slice target, bool with_key, hx_arena *arena)
{
    if (target.len == 0 || target.ptr[0] != '/')
        return hx_arena_printf(arena, "must have a path that begins with a slash, such as %s, not %s",
                               with_key ? "GET /refunds/{key}" : "GET /me", hx_quoted(arena, target))
            .ptr;
    if (target.len > REQUEST_BYTES_MAX)
        return hx_arena_printf(arena, "must have up to %u bytes, not %zu", REQUEST_BYTES_MAX, target.len).ptr;
    for (size_t i = 0; i < target.len; i++) {
        char c = target.ptr[i];
        if (c <= ' ' || c >= 0x7f) return "contains a space or a byte that must be escaped, as in \"%20\"";
        if (c == '#') return "contains a \"#\", and a fragment never reaches a server";
        if (c == '%' && hx_text_percent_at(target, i) < 0) return "contains a \"%\" without two hexadecimal digits";
        if (!with_key && (c == '{' || c == '}')) return "contains a brace, but nothing is substituted in this request";
    }
    return with_key ? check_substitutions(target, arena) : NULL;
}

/* Reads a request like "GET /refunds?idempotency_key={key}". */
static void read_request(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *out_method,
                         hx_slice *out_target)
{
    bool with_key = option->type == HX_OPTION_REQUEST;
    hx_arena *arena = &loader->config->arena;
    hx_slice text;
    const char *wrong = NULL;
    if (!hx_loader_text(loader, option, node, &text)) return;
    text = hx_slice_trim(text);
    size_t space = hx_slice_find(text, ' ');
    hx_slice method = hx_slice_first(text, space), target = HX_EMPTY;
    if (space != SIZE_MAX) target = hx_slice_trim(hx_slice_from(text, space));
    if (!hx_slice_is_token(method) || target.len == 0)
        wrong = hx_arena_printf(arena, "%s, not %s", hx_option_expects(option, arena), hx_quoted(arena, text)).ptr;
    else if (!hx_slice_eq(method, HX_LIT("GET")) && !hx_slice_eq(method, HX_LIT("HEAD")))
        wrong = hx_arena_printf(arena, "must ask by GET or HEAD, as %s changes nothing, not by %s",
                                with_key ? "a probe" : "this", hx_quoted(arena, method))
                    .ptr;
    else
        wrong = check_target(target, with_key, arena);
    if (wrong) {
        hx_loader_wrong(loader, node, option->name, wrong);
        return;
    }
    *out_method = method;
    *out_target = target;
}

void hx_options_answers_request(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_probe *probe)
{
    read_request(loader, option, node, &probe->method, &probe->target);
}

void hx_options_answers_authorize(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    if (node->kind == HX_YAML_TEXT && hx_slice_eq(node->text, HX_LIT("off")))
        policy->authorize_method = policy->authorize_target = HX_EMPTY;
    else
        read_request(loader, option, node, &policy->authorize_method, &policy->authorize_target);
}

const char *hx_options_answers_not_a_pointer(hx_slice text, hx_arena *arena)
{
    if (hx_json_is_pointer(text)) return NULL;
    hx_slice meant = hx_arena_printf(arena, "/%.*s", HX_FMT(text));
    if (text.ptr[0] == '/') return ": a \"~\" in a name is written ~0, and a slash ~1";
    return hx_json_is_pointer(meant) ? hx_arena_printf(arena, ", did you mean %s?", hx_quoted(arena, meant)).ptr : "";
}

void hx_options_answers_pointer(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *pointer)
{
    hx_arena *arena = &loader->config->arena;
    hx_slice text = {NULL, 0};
    hx_loader_bounded_text(loader, option, node, &text);
    if (!text.ptr) return;
    const char *hint = hx_options_answers_not_a_pointer(text, arena);
    if (hint)
        hx_config_problem_at(&loader->problems, node->line, node->column, "\"%s\" %s, not %s%s", option->name,
                             hx_option_expects(option, arena), hx_quoted(arena, text), hint);
    else
        *pointer = text;
}

/* The outcome rules that one route, or `defaults`, sets itself. */
typedef struct {
    hx_loader *loader;
    hx_policy *policy;
    struct {
        const hx_option *option; /* NULL: not set yet */
        uint32_t line;
    } said[STATUS_MAX - STATUS_MIN + 1];
} rules;

static bool read_status(hx_slice text, uint16_t *status)
{
    uint64_t number = 0;
    if (text.len != 3 || !hx_slice_to_u64(text, &number) || number < STATUS_MIN || number > STATUS_MAX) return false;
    *status = (uint16_t)number;
    return true;
}

static void add_rule(rules *r, const hx_option *option, const hx_yaml *at, hx_slice text, hx_outcome_word word)
{
    hx_arena *arena = &r->loader->config->arena;
    hx_policy *policy = r->policy;
    uint16_t status = 0;
    const char *wrong = NULL;
    if (!read_status(text, &status)) {
        wrong = hx_arena_printf(arena, "lists statuses, 200 to 599, not %s", hx_quoted(arena, text)).ptr;
        hx_loader_wrong(r->loader, at, option->name, wrong);
        return;
    }
    const hx_option *said = r->said[status - STATUS_MIN].option;
    size_t i = 0;
    if (said == option && option->type == HX_OPTION_OUTCOMES) return; /* a duplicate key of a map is reported already */
    while (i < policy->outcome_rule_count && policy->outcome_rules[i].status != status) i++;
    if (said)
        wrong =
            hx_arena_printf(arena, "lists %u, which is also on line %u", status, r->said[status - STATUS_MIN].line).ptr;
    else if (status < 300 && (word == HX_WORD_RELEASE || word == HX_WORD_NOT_EXECUTED))
        wrong = hx_arena_printf(arena, "can't free the key after %u: it says that the work was done", status).ptr;
    else if (i == HX_OUTCOME_RULES_MAX)
        wrong = hx_arena_printf(arena, "lists too many: a route has up to %u statuses", HX_OUTCOME_RULES_MAX).ptr;
    if (wrong) {
        hx_loader_wrong(r->loader, at, option->name, wrong);
        return;
    }
    r->said[status - STATUS_MIN].option = option;
    r->said[status - STATUS_MIN].line = at->line;
    policy->outcome_rules[i] = (hx_outcome_rule){.status = status, .word = word};
    if (i == policy->outcome_rule_count) policy->outcome_rule_count++;
}

static void read_outcomes(rules *r, const hx_option *option, const hx_yaml *map)
{
    if (!hx_loader_is(r->loader, option, map, HX_YAML_MAP)) return;
    for (const hx_yaml *value = map->first; value; value = value->next) {
        hx_arena *arena = &r->loader->config->arena;
        hx_option word = *option;
        uint64_t number = 0;
        if (value->key->refused) continue;
        word.type = HX_OPTION_ENUM;
        word.name = hx_arena_printf(arena, "%s: %.20s", option->name, hx_arena_terminated(arena, value->key->text)).ptr;
        if (!hx_loader_is(r->loader, &word, value, HX_YAML_TEXT)) continue;
        const char *wrong = hx_option_read(&word, value->text, arena, &number);
        if (wrong)
            hx_loader_wrong(r->loader, value, word.name, wrong);
        else
            add_rule(r, option, value->key, value->key->text, (hx_outcome_word)number);
    }
}

static void read_statuses(rules *r, const hx_option *option, const hx_yaml *list)
{
    hx_slice text;
    if (!hx_loader_is(r->loader, option, list, HX_YAML_LIST)) return;
    for (const hx_yaml *item = list->first; item; item = item->next)
        if (hx_loader_text(r->loader, option, item, &text)) add_rule(r, option, item, text, HX_WORD_NOT_EXECUTED);
}

/* A route's own `not_executed` replaces the inherited statuses: repeating what may have been executed can't be undone.
 * */
static void drop_inherited(hx_policy *policy)
{
    size_t kept = 0;
    for (size_t i = 0; i < policy->outcome_rule_count; i++)
        if (policy->outcome_rules[i].word != HX_WORD_NOT_EXECUTED)
            policy->outcome_rules[kept++] = policy->outcome_rules[i];
    policy->outcome_rule_count = kept;
}

static void read_rules(hx_loader *loader, const hx_yaml *node, hx_policy *policy)
{
    rules r = {.loader = loader, .policy = policy};
    if (hx_yaml_get(node, "not_executed")) drop_inherited(policy);
    for (const hx_yaml *value = node->first; value; value = value->next) { /* in the order of the file */
        const hx_option *option = value->key->refused ? NULL : hx_option_find(HX_PLACE_ROUTE, value->key->text);
        if (option && option->type == HX_OPTION_OUTCOMES) read_outcomes(&r, option, value);
        if (option && option->type == HX_OPTION_STATUSES) read_statuses(&r, option, value);
    }
}

/* Reads the map `name` below `map`, if there is one. */
static void read_map(hx_loader *loader, const hx_yaml *map, hx_option_place place, const char *name,
                     hx_option_place below, void *owner)
{
    const hx_yaml *node = hx_yaml_get(map, name);
    if (node) hx_loader_map(loader, hx_option_find(place, hx_slice_of(name)), node, below, owner);
}

static void read_maps(hx_loader *loader, const hx_yaml *node, hx_policy *policy)
{
    const hx_yaml *probe = hx_yaml_get(node, "probe");
    read_map(loader, node, HX_PLACE_ROUTE, "retry", HX_PLACE_RETRY, &policy->retry_said);
    read_map(loader, node, HX_PLACE_ROUTE, "probe", HX_PLACE_PROBE, &policy->probe);
    read_map(loader, probe, HX_PLACE_PROBE, "found", HX_PLACE_FOUND, &policy->probe);
    read_map(loader, probe, HX_PLACE_PROBE, "absent", HX_PLACE_ABSENT, &policy->probe);
    read_map(loader, probe, HX_PLACE_PROBE, "answer", HX_PLACE_ANSWER, &policy->probe);
    read_map(loader, node, HX_PLACE_ROUTE, "provider_duplicate", HX_PLACE_DUPLICATE, &policy->provider_duplicate);
}

static void make_retry(hx_loader *loader, const hx_yaml *node, hx_policy *policy)
{
    static const char *const names[] = {"cap", "base", "profile", "attempts", "total", "jitter"};
    const hx_yaml *retry = hx_yaml_get(node, "retry"), *at = NULL;
    if (!hx_loader_is_well(loader, node, HX_PLACE_ROUTE, "class")) return;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!hx_loader_is_well(loader, retry, HX_PLACE_RETRY, names[i])) return;
        if (!at) at = hx_yaml_get(retry, names[i]);
    }
    if (!at) at = hx_yaml_get(node, "class");
    const char *wrong = NULL;
    if (!hx_retry_policy_make(policy->class, &policy->retry_said, &policy->retry, &wrong) && at)
        hx_config_problem_at(&loader->problems, at->line, at->column, "\"retry\" can't be used: %s", wrong);
}

/* Whether `name` is missing below `map`: neither inherited nor written, not even wrongly. */
static bool is_missing(const hx_yaml *map, const char *name, bool inherited)
{
    return !inherited && map && map->kind == HX_YAML_MAP && !map->refused && !hx_yaml_get(map, name);
}

static void lacks(hx_loader *loader, const hx_yaml *map, const char *owner, const char *what)
{
    hx_config_problem_at(&loader->problems, map->line, map->column, "this \"%s\" has no %s", owner, what);
}

static void check_pointers(hx_loader *loader, const hx_yaml *map, const hx_probe *probe)
{
    if (!hx_slice_eq(probe->method, HX_LIT("HEAD")) || (probe->found_pointer.len == 0 && probe->answer_body.len == 0))
        return;
    const hx_yaml *at = hx_yaml_get(hx_yaml_get(map, "found"), "pointer");
    if (!at) at = hx_yaml_get(hx_yaml_get(map, "answer"), "body");
    if (!at) at = hx_yaml_get(map, "request");
    if (!at) at = map;
    hx_config_problem_at(&loader->problems, at->line, at->column,
                         "a response to HEAD has no body to point into; use GET");
}

static void check_probe(hx_loader *loader, const hx_yaml *map, bool may_be_part, const hx_probe *probe)
{
    bool asks = probe->method.len > 0;
    if (may_be_part && !asks && is_missing(map, "request", false)) return; /* the routes set the request */
    if (is_missing(map, "request", asks))
        lacks(loader, map, "probe", "\"request\", such as GET /refunds?idempotency_key={key}");
    const hx_yaml *found = hx_yaml_get(map, "found");
    if (is_missing(map, "found", probe->found_status > 0) || is_missing(found, "status", probe->found_status > 0))
        lacks(loader, map, "probe", "\"found\" with a \"status\": when has it happened?");
    if (is_missing(map, "settle", probe->settle > 0))
        lacks(loader, map, "probe",
              "\"settle\": how long may the upstream still be at work after the last byte was sent to it?");
    const hx_yaml *absent = hx_yaml_get(map, "absent");
    if (is_missing(absent, "status", probe->absent_status > 0))
        lacks(loader, absent, "absent", "\"status\", such as 404");
    if (probe->absent_status > 0 && probe->absent_status == probe->found_status)
        hx_config_problem_at(&loader->problems, map->line, map->column,
                             "\"found\" and \"absent\" of a probe can't have the same status: %u can't mean both",
                             (unsigned)probe->found_status);
    check_pointers(loader, map, probe);
}

static void check_duplicate(hx_loader *loader, const hx_yaml *node, const hx_yaml *map, const hx_policy *policy)
{
    const hx_provider_duplicate *duplicate = &policy->provider_duplicate;
    const hx_yaml *at = map->key ? map->key : map, *probe = hx_yaml_get(node, "probe");
    if (map->refused) return;
    if (policy->probe.method.len == 0 && (!probe || is_missing(probe, "request", false)))
        hx_config_problem_at(&loader->problems, at->line, at->column,
                             "\"provider_duplicate\" needs a \"probe\", which fetches what was already there");
    if (is_missing(map, "status", duplicate->status > 0)) lacks(loader, map, "provider_duplicate", "\"status\"");
    bool has_value = duplicate->value.len > 0 || hx_yaml_get(map, "value");
    bool has_pointer = duplicate->pointer.len > 0 || hx_yaml_get(map, "pointer");
    if (is_missing(map, "pointer", has_pointer) && has_value)
        lacks(loader, map, "provider_duplicate", "\"pointer\": where is the value?");
    if (is_missing(map, "value", has_value) && has_pointer)
        lacks(loader, map, "provider_duplicate", "\"value\": what does the pointer lead to?");
}

/* A transaction of the upstream completes the operation, so its database must be the store. */
static void check_guarantee(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    const hx_yaml *at = hx_yaml_get(node, "guarantee");
    hx_slice store = loader->config->store;
    if (!at || policy->guarantee != HX_GUARANTEE_TRANSACTIONAL) return;
    if (hx_address_is_postgres(store) || hx_slice_starts(store, HX_LIT("sqlite:")) || store.len == 0) return;
    hx_slice kind = hx_slice_first(store, hx_slice_find(store, ':') + 1); /* the rest may contain a password */
    hx_config_problem_at(
        &loader->problems, at->line, at->column,
        "\"guarantee\" can't be transactional with a store %s: the upstream completes its operations in a "
        "transaction of its own database, which must be the store (postgres://… or sqlite:…)",
        hx_quoted(&loader->config->arena, kind));
}

void hx_options_answers_read(hx_loader *loader, const hx_yaml *node, bool shared, hx_policy *policy)
{
    const hx_yaml *probe = hx_yaml_get(node, "probe"), *duplicate = hx_yaml_get(node, "provider_duplicate");
    const hx_yaml *on_unknown = hx_yaml_get(node, "on_unknown");
    bool probes = policy->on_unknown == HX_ON_UNKNOWN_PROBE;
    read_maps(loader, node, policy);
    read_rules(loader, node, policy);
    make_retry(loader, node, policy);
    check_guarantee(loader, node, policy);
    if (probe) check_probe(loader, probe, shared && !probes, &policy->probe);
    if (duplicate) check_duplicate(loader, node, duplicate, policy);
    if (probes && on_unknown && !probe && policy->probe.method.len == 0)
        hx_config_problem_at(
            &loader->problems, on_unknown->line, on_unknown->column,
            "\"on_unknown\" can't be probe without a \"probe\" that says what to ask, such as {request: "
            "\"GET /refunds?idempotency_key={key}\", found: {status: 200}, settle: 30s}");
}
