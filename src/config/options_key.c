/* SPDX-License-Identifier: Apache-2.0 */
/* `key`: which keys a route accepts, or what it makes them of, and defaults that depend on it. */
#include "config/loader.h"
#include "core/operation/template.h"

#define UUID_BYTES 36u
#define DATE_SPAN_MAX (25 * HX_HOUR) /* the day on which clocks are set back */

/* Returns NULL if the part can be used in this option; else the end of a sentence that begins with the part. */
static const char *unusable(const hx_loader *loader, const hx_option *option, const hx_template_part *part)
{
    if (option->place == HX_PLACE_SOURCE) {
        bool is_of_routes = part->kind == HX_TEMPLATE_PATH || part->kind == HX_TEMPLATE_PRINCIPAL;
        return is_of_routes ? "is for keys of routes: use header, body, query, sha256, date or window here" : NULL;
    }
    const char *unseen = part->kind == HX_TEMPLATE_HEADER ? hx_options_callers_unseen(loader, part->argument) : NULL;
    return unseen ? hx_arena_printf(&loader->config->arena, "that header %s", unseen).ptr : NULL;
}

void hx_options_key_template(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner)
{
    hx_arena *arena = &loader->config->arena;
    hx_slice text;
    const char *wrong = "";
    if (!hx_loader_text(loader, option, node, &text)) return;
    loader->unknown_zone = HX_EMPTY;
    const hx_template *from = hx_template_compile(text, hx_options_zones_find, loader, arena, &wrong);
    if (!from) {
        const char *hint = loader->unknown_zone.len > 0 ? hx_options_zones_hint(loader->unknown_zone, arena) : "";
        hx_config_problem_at(&loader->problems, node->line, node->column, "\"%s\" can't be used: %s%s", option->name,
                             wrong, hint);
        return;
    }
    *(const hx_template **)(void *)((char *)owner + option->offset) = from;
    for (size_t i = 0; i < from->count; i++) {
        const char *why = unusable(loader, option, &from->parts[i]);
        if (why)
            hx_config_problem_at(&loader->problems, node->line, node->column, "\"%s\" can't be used: %s: %s",
                                 option->name, hx_quoted(arena, from->parts[i].text), why);
    }
}

void hx_options_key_read(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_key_rules *key = &policy->key;
    hx_loader_map(loader, option, node, HX_PLACE_KEY, key);
    if (!hx_loader_is_well(loader, node, HX_PLACE_KEY, "min") ||
        !hx_loader_is_well(loader, node, HX_PLACE_KEY, "max") ||
        !hx_loader_is_well(loader, node, HX_PLACE_KEY, "format"))
        return;
    const hx_yaml *min = hx_yaml_get(node, "min"), *max = hx_yaml_get(node, "max");
    const hx_yaml *at = max ? max : min ? min : node;
    if (key->len_min > key->len_max)
        hx_config_problem_at(&loader->problems, at->line, at->column, "no key fits: \"min\" is %u, \"max\" is %u",
                             key->len_min, key->len_max);
    else if (key->format != HX_KEY_ANY && (key->len_min > UUID_BYTES || key->len_max < UUID_BYTES))
        hx_config_problem_at(&loader->problems, at->line, at->column,
                             "no key fits: a UUID has %u characters, \"min\" is %u, \"max\" is %u", UUID_BYTES,
                             key->len_min, key->len_max);
}

/* Reports `require_principal: false` with `from`: callers who can't be distinguished would share operations. */
static void check_shared(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    const hx_yaml *said = hx_yaml_get(node, "require_principal");
    if (!said || policy->require_principal || policy->key.shared) return;
    hx_config_problem_at(
        &loader->problems, said->line, said->column,
        "a key made by \"from\" would let callers who can't be distinguished share an operation; where that "
        "is meant, write \"shared: true\" under \"key\"");
}

/* Counts "{name}" in a path. */
static unsigned braces_of(hx_slice path, hx_slice name)
{
    hx_slice segment;
    unsigned count = 0;
    while (hx_slice_next(&path, '/', &segment))
        count += segment.len == name.len + 2 && segment.ptr[0] == '{' &&
                 hx_slice_eq((hx_slice){segment.ptr + 1, name.len}, name);
    return count;
}

static void check_parts(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    hx_arena *arena = &loader->config->arena;
    const hx_yaml *at = hx_yaml_get(hx_yaml_get(node, "key"), "from");
    if (!at) at = hx_yaml_get(node, "match"); /* the group has `from` */
    if (!at || policy->path.len == 0) return;
    const hx_template_part *stray = hx_template_stray_path(policy->key.from, policy->path);
    if (stray)
        hx_config_problem_at(&loader->problems, at->line, at->column, "\"from\" has %s, but %s has no {%.*s} in it",
                             hx_quoted(arena, stray->text), hx_quoted(arena, policy->path), HX_FMT(stray->argument));
    for (size_t i = 0; i < policy->key.from->count; i++) {
        const hx_template_part *part = &policy->key.from->parts[i];
        if (part->kind == HX_TEMPLATE_PATH && braces_of(policy->path, part->argument) > 1)
            hx_config_problem_at(&loader->problems, at->line, at->column,
                                 "\"from\" has %s, but %s has {%.*s} more than once: which one counts?",
                                 hx_quoted(arena, part->text), hx_quoted(arena, policy->path), HX_FMT(part->argument));
    }
}

static const char *written(hx_ms span, hx_arena *arena)
{
    return hx_option_write(hx_option_find(HX_PLACE_ROUTE, HX_LIT("lifetime")), (uint64_t)span, arena);
}

static const hx_yaml *place_of_from(const hx_yaml *node)
{
    const hx_yaml *at = hx_yaml_get(hx_yaml_get(node, "key"), "from");
    return at ? at : node; /* the group has `from` */
}

static void check_overlap(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    hx_arena *arena = &loader->config->arena;
    const hx_template *from = policy->key.from;
    const hx_yaml *at = place_of_from(node);
    if (policy->key.overlap / HX_KEY_BUCKETS_MAX < from->bucket_min) return;
    hx_config_problem_at(
        &loader->problems, at->line, at->column,
        "\"overlap\" is %s, and a window lasts %s: each request would look for its operation in more than "
        "%u of them; make the window longer or the overlap shorter",
        written(policy->key.overlap, arena), written(from->bucket_min, arena), HX_KEY_BUCKETS_MAX);
}

/* Warns if a key for "once a day" expires before the day is over. Of several dates and windows the shortest counts. */
static void note_forgotten(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    hx_arena *arena = &loader->config->arena;
    const hx_template *from = policy->key.from;
    const hx_yaml *at = place_of_from(node);
    hx_ms kept = policy->lifetime + policy->tombstone;
    bool is_window = false;
    if (kept >= from->bucket_min) return;
    for (size_t i = 0; i < from->count; i++)
        if (from->parts[i].kind == HX_TEMPLATE_WINDOW && from->parts[i].window == from->bucket_min) is_window = true;
    if (is_window)
        hx_config_problem_at(
            &loader->notes, at->line, at->column,
            "responses are kept for %s, but a window lasts %s: in one of them the same key can run again",
            written(kept, arena), written(from->bucket_min, arena));
    else
        hx_config_problem_at(
            &loader->notes, at->line, at->column,
            "responses are kept for %s, but a date lasts %s at most: on one of them the same key can run again",
            written(kept, arena), written(DATE_SPAN_MAX, arena));
}

void hx_options_key_finish(hx_loader *loader, const hx_yaml *node, hx_policy *policy)
{
    if (policy->key.overlap == HX_OVERLAP_UNSAID) policy->key.overlap = policy->lease + policy->retry.total;
    if (!policy->key.from) return;
    check_shared(loader, node, policy);
    check_parts(loader, node, policy);
    /* Unauthenticated requests are one caller, so all of them would share operations. */
    if (!policy->key.shared) policy->require_principal = true;
    if (!policy->fingerprint_said) policy->fingerprint = (hx_fingerprint_rules){.body = HX_FINGERPRINT_KEY};
    policy->release_4xx = true;
    if (!policy->key.from->has_bucket || policy->mode == HX_MODE_PASS) return;
    check_overlap(loader, node, policy);
    note_forgotten(loader, node, policy);
}
