/* SPDX-License-Identifier: Apache-2.0 */
/* `key`: which keys a route takes, or what it makes them of, and what follows from that. */
#include "config/loader.h"
#include "core/template.h"

#define UUID_BYTES 36u

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

static bool has_brace(hx_slice path, hx_slice name)
{
    hx_slice segment;
    while (hx_slice_next(&path, '/', &segment))
        if (segment.len == name.len + 2 && segment.ptr[0] == '{' &&
            hx_slice_eq((hx_slice){segment.ptr + 1, name.len}, name))
            return true;
    return false;
}

static void check_parts(hx_loader *loader, const hx_yaml *node, const hx_policy *policy)
{
    const hx_template *from = policy->key.from;
    const hx_yaml *at = hx_yaml_get(hx_yaml_get(node, "key"), "from");
    if (!at) at = hx_yaml_get(node, "match"); /* the group's */
    if (!at || policy->path.len == 0) return;
    for (size_t i = 0; i < from->count; i++) {
        const hx_template_part *part = &from->parts[i];
        if (part->kind == HX_TEMPLATE_PATH && !has_brace(policy->path, part->argument))
            hx_problem_at(&loader->problems, at->line, at->column, "\"from\" has %s, but %s has no {%.*s} in it",
                          hx_quoted(&loader->config->arena, part->text),
                          hx_quoted(&loader->config->arena, policy->path), HX_FMT(part->argument));
    }
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
