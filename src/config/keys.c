/* SPDX-License-Identifier: Apache-2.0 */
/* `key`: which keys a route takes, or what it makes them of, and what follows from that. */
#include "config/loader.h"
#include "core/template.h"

#define UUID_BYTES 36u

void hx_keys_template(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_key_rules *key)
{
    hx_arena *arena = &loader->config->arena;
    hx_slice text;
    const char *wrong = "";
    if (!hx_loader_text(loader, option, node, &text)) return;
    loader->unknown_zone = HX_EMPTY;
    const hx_template *from = hx_template_compile(text, hx_zones_find, loader, arena, &wrong);
    if (!from) {
        const char *hint = loader->unknown_zone.len > 0 ? hx_zones_hint(loader->unknown_zone, arena) : "";
        hx_problem_at(&loader->problems, node->line, node->column, "\"from\" can't be used: %s%s", wrong, hint);
        return;
    }
    key->from = from;
}

void hx_keys_read(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
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
        hx_problem_at(&loader->problems, at->line, at->column, "no key fits: \"min\" is %u, \"max\" is %u",
                      key->len_min, key->len_max);
    else if (key->format != HX_KEY_ANY && (key->len_min > UUID_BYTES || key->len_max < UUID_BYTES))
        hx_problem_at(&loader->problems, at->line, at->column,
                      "no key fits: a UUID has %u characters, \"min\" is %u, \"max\" is %u", UUID_BYTES, key->len_min,
                      key->len_max);
}

/* `node` says it in so many words, but people who can't be told apart would then share their operations. */
static void check_shared(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    const hx_yaml *said = hx_yaml_get(node, "require_principal");
    if (!said || policy->require_principal || policy->key.shared) return;
    hx_problem_at(&loader->problems, said->line, said->column,
                  "a key made by \"from\" would let callers who can't be told apart share an operation; where that is "
                  "meant, write \"shared: true\" under \"key\"");
}

static void check_parts(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    hx_arena *arena = &loader->config->arena;
    const hx_yaml *at = hx_yaml_get(hx_yaml_get(node, "key"), "from");
    if (!at) at = hx_yaml_get(node, "match"); /* `from` is the group's */
    if (!at || policy->path.len == 0) return;
    const hx_template_part *stray = hx_template_stray_path(policy->key.from, policy->path);
    if (stray)
        hx_problem_at(&loader->problems, at->line, at->column, "\"from\" has %s, but %s has no {%.*s} in it",
                      hx_quoted(arena, stray->text), hx_quoted(arena, policy->path), HX_FMT(stray->argument));
}

void hx_keys_finish(hx_loader *loader, const hx_yaml *node, hx_policy *policy)
{
    if (policy->key.overlap == HX_OVERLAP_UNSAID) policy->key.overlap = policy->lease + policy->retry.total;
    if (!policy->key.from) return;
    check_shared(loader, node, policy);
    check_parts(loader, node, policy);
    /* Nobody is one caller, so all of them would share what one of them did. */
    if (!policy->key.shared) policy->require_principal = true;
    if (!policy->fingerprint_said) policy->fingerprint = (hx_fingerprint_rules){.body = HX_FINGERPRINT_KEY};
    policy->release_4xx = true;
}
