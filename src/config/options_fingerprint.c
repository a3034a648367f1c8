/* SPDX-License-Identifier: Apache-2.0 */
/* Options that are lists of names and pointers: `fingerprint`, `deny_headers` and `formerly`. Lists whose order has
 * no meaning are sorted, so that two files which mean the same have the same rules. */
#include "base/check.h"
#include "config/loader.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#define ITEM_BYTES_MAX 1000u

typedef struct {
    hx_slice *items;
    size_t count;
} list;

static list new_list(hx_loader *loader, size_t max)
{
    return (list){.items = hx_arena_alloc(&loader->config->arena, (max + 1) * sizeof(hx_slice))};
}

/* Adds an item, unless it is a duplicate or one too many. */
static void add(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice item, list *to, size_t in_all)
{
    hx_arena *arena = &loader->config->arena;
    const char *wrong = NULL;
    for (size_t i = 0; i < to->count; i++)
        if (hx_slice_eq(to->items[i], item))
            wrong = hx_arena_printf(arena, "lists %s twice", hx_quoted(arena, item)).ptr;
    if (!wrong && item.len > ITEM_BYTES_MAX)
        wrong =
            hx_arena_printf(arena, "lists a name of %zu bytes; up to %u are possible", item.len, ITEM_BYTES_MAX).ptr;
    if (!wrong && in_all >= option->high)
        wrong = hx_arena_printf(arena, "lists too many: up to %llu are possible", (unsigned long long)option->high).ptr;
    if (wrong)
        hx_loader_wrong(loader, node, option->name, wrong);
    else
        to->items[to->count++] = item;
}

static int by_bytes(const void *left, const void *right)
{
    return hx_slice_compare(*(const hx_slice *)left, *(const hx_slice *)right);
}

static void sort(list *l)
{
    qsort(l->items, l->count, sizeof *l->items, by_bytes);
}

/* Reads the name of a header, in lower case. False, after reporting it: it is none. */
static bool read_header(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *name)
{
    hx_arena *arena = &loader->config->arena;
    hx_slice text;
    if (!hx_loader_text(loader, option, node, &text)) return false;
    if (!hx_slice_is_token(text)) {
        hx_loader_wrong(loader, node, option->name,
                        hx_arena_printf(arena, "must list names of headers, not %s", hx_quoted(arena, text)).ptr);
        return false;
    }
    *name = hx_text_lower(text, arena);
    const char *unseen = option->place == HX_PLACE_FINGERPRINT ? hx_options_callers_unseen(loader, *name) : NULL;
    if (unseen)
        hx_loader_wrong(loader, node, option->name,
                        hx_arena_printf(arena, "can't list %s: that header %s", hx_quoted(arena, text), unseen).ptr);
    return !unseen;
}

/* Reads a former name of a route, which is checked like `name`. */
static bool read_route_name(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice *name)
{
    hx_option row = *hx_option_find(HX_PLACE_ROUTE, HX_LIT("name"));
    *name = (hx_slice){NULL, 0};
    row.name = option->name;
    hx_loader_bounded_text(loader, &row, node, name);
    return name->ptr != NULL;
}

void hx_options_fingerprint_names(hx_loader *loader, const hx_option *option, const hx_yaml *node, void *owner)
{
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    list names = new_list(loader, node->count);
    bool of_routes = strcmp(option->name, "formerly") == 0;
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice name;
        bool good = of_routes ? read_route_name(loader, option, item, &name) : read_header(loader, option, item, &name);
        if (good) add(loader, option, item, name, &names, names.count);
    }
    if (!of_routes) sort(&names); /* the oldest name is the first one */
    if (option->place == HX_PLACE_FINGERPRINT) {
        hx_fingerprint_rules *rules = owner;
        rules->headers = names.items;
        rules->header_count = names.count;
    } else if (option->place == HX_PLACE_AGENT_HOST) {
        hx_agent_host *host = owner;
        host->headers = names.items;
        host->header_count = names.count;
    } else if (of_routes) {
        hx_policy *policy = owner;
        policy->formerly = names.items;
        policy->formerly_count = names.count;
    } else {
        hx_policy *policy = owner;
        policy->deny_headers = names.items;
        policy->deny_header_count = names.count;
    }
}

static bool read_pointer(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_slice text)
{
    hx_arena *arena = &loader->config->arena;
    const char *hint = text.len == 0 ? ": that is the whole body" : hx_options_answers_not_a_pointer(text, arena);
    if (hint)
        hx_loader_wrong(loader, node, option->name,
                        hx_arena_printf(arena, "must list JSON pointers%s, not %s%s",
                                        option->type == HX_OPTION_IGNORED ? " and query:NAME" : "",
                                        hx_quoted(arena, text), hint)
                            .ptr);
    return !hint;
}

void hx_options_fingerprint_counted(hx_loader *loader, const hx_option *option, const hx_yaml *node,
                                    hx_fingerprint_rules *rules)
{
    hx_arena *arena = &loader->config->arena;
    rules->pointers = NULL;
    rules->pointer_count = 0;
    if (node->kind != HX_YAML_LIST) {
        hx_option words = *option;
        uint64_t value = 0;
        words.type = HX_OPTION_ENUM;
        words.words = "canonical|raw";
        if (!hx_loader_is(loader, option, node, HX_YAML_TEXT)) return;
        const char *wrong = hx_option_read(&words, node->text, arena, &value);
        if (wrong)
            hx_loader_wrong(loader, node, option->name,
                            hx_arena_printf(arena, "%s, not %s", hx_option_expects(option, arena),
                                            hx_quoted(arena, node->text))
                                .ptr);
        else
            rules->body = value == 0 ? HX_FINGERPRINT_CANONICAL : HX_FINGERPRINT_RAW;
        return;
    }
    if (!node->first) {
        hx_loader_wrong(loader, node, option->name,
                        "must not be an empty list: requests with different bodies would be taken for the same");
        return;
    }
    list pointers = new_list(loader, node->count);
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice text;
        if (hx_loader_text(loader, option, item, &text) && read_pointer(loader, option, item, text))
            add(loader, option, item, text, &pointers, pointers.count);
    }
    sort(&pointers);
    rules->body = HX_FINGERPRINT_POINTERS;
    rules->pointers = pointers.items;
    rules->pointer_count = pointers.count;
}

void hx_options_fingerprint_ignored(hx_loader *loader, const hx_option *option, const hx_yaml *node,
                                    hx_fingerprint_rules *rules)
{
    static const char prefix[] = "query:";
    if (!hx_loader_is(loader, option, node, HX_YAML_LIST)) return;
    list pointers = new_list(loader, node->count), query = new_list(loader, node->count);
    for (const hx_yaml *item = node->first; item; item = item->next) {
        hx_slice text;
        size_t in_all = pointers.count + query.count;
        if (!hx_loader_text(loader, option, item, &text)) continue;
        if (hx_slice_starts(text, HX_LIT(prefix)) && text.len > strlen(prefix))
            add(loader, option, item, hx_slice_from(text, strlen(prefix)), &query, in_all);
        else if (read_pointer(loader, option, item, text))
            add(loader, option, item, text, &pointers, in_all);
    }
    sort(&pointers);
    sort(&query);
    rules->ignored_pointers = pointers.items;
    rules->ignored_pointer_count = pointers.count;
    rules->ignored_query = query.items;
    rules->ignored_query_count = query.count;
}

/* Reports values that are both counted and ignored: requests that differ in them would be the same. */
static void refuse_nothing_left(hx_loader *loader, const hx_yaml *at, const hx_fingerprint_rules *rules)
{
    hx_arena *arena = &loader->config->arena;
    for (size_t i = 0; i < rules->pointer_count; i++)
        for (size_t k = 0; k < rules->ignored_pointer_count; k++) {
            hx_slice counted = rules->pointers[i], ignored = rules->ignored_pointers[k];
            bool is_within = hx_slice_starts(counted, ignored) &&
                             (counted.len == ignored.len || counted.ptr[ignored.len] == '/');
            if (is_within)
                hx_config_problem_at(&loader->problems, at->line, at->column,
                                     "%s can't be counted (\"body\") and left out (%s in \"ignore\") at once",
                                     hx_quoted(arena, counted), hx_quoted(arena, ignored));
        }
}

void hx_options_fingerprint_read(hx_loader *loader, const hx_option *option, const hx_yaml *node, hx_policy *policy)
{
    hx_loader_map(loader, option, node, HX_PLACE_FINGERPRINT, &policy->fingerprint);
    policy->fingerprint_said = true;
    const hx_yaml *at = hx_yaml_get(node, "ignore");
    if (!at) at = hx_yaml_get(node, "body");
    if (at && policy->fingerprint.body == HX_FINGERPRINT_RAW && policy->fingerprint.ignored_pointer_count > 0)
        hx_config_problem_at(
            &loader->problems, at->line, at->column,
            "a body that counts byte by byte (\"body: raw\") has nothing that a pointer in \"ignore\" could "
            "leave out");
    if (at) refuse_nothing_left(loader, at, &policy->fingerprint);
}
