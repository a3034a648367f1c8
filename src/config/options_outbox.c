/* SPDX-License-Identifier: Apache-2.0 */
/* `outbox`. */
#include "config/address.h"
#include "config/loader.h"

static void wrong_at(hx_loader *loader, const hx_yaml *node, const char *what)
{
    hx_config_problem_at(&loader->problems, node->line, node->column, "%s", what);
}

static void read_outbox(hx_loader *loader, const hx_yaml *node, hx_config_outbox *outbox)
{
    hx_arena *arena = &loader->config->arena;
    *outbox = (hx_config_outbox){HX_EMPTY, HX_EMPTY};
    if (node->refused) return;
    if (node->kind != HX_YAML_MAP) {
        wrong_at(loader, node, "an outbox is a map of options, such as {name: shop, database: postgres://…}");
        return;
    }
    hx_loader_options(loader, node, HX_PLACE_OUTBOX, NULL, outbox);
    const hx_yaml *name = hx_yaml_get(node, "name"), *database = hx_yaml_get(node, "database");
    if (!name && loader->whole) wrong_at(loader, node, "this outbox has no \"name\"");
    if (!database && loader->whole) wrong_at(loader, node, "this outbox has no \"database\"");
    if (name && outbox->name.len > 0 && !hx_is_tenant(outbox->name))
        hx_loader_wrong(loader, name, "name",
                        hx_arena_printf(arena, "must be letters, digits, \"-\" and \"_\", not %s",
                                        hx_quoted(arena, outbox->name))
                            .ptr);
    if (database && outbox->database.len > 0 && !hx_address_is_postgres(outbox->database))
        hx_loader_wrong(loader, database, "database", "must be the URL of a PostgreSQL database, postgres://…");
}

static void refuse_twice(hx_loader *loader, const hx_yaml *node, size_t number)
{
    const hx_config_outbox *all = loader->config->outboxes, *outbox = &all[number];
    for (size_t i = 0; i < number; i++) {
        if (outbox->name.len > 0 && hx_slice_eq(all[i].name, outbox->name))
            hx_loader_wrong(loader, hx_yaml_get(node, "name"), "name", "is the name of an earlier outbox");
        if (outbox->database.len > 0 && hx_slice_eq(all[i].database, outbox->database))
            hx_loader_wrong(loader, hx_yaml_get(node, "database"), "database", "is that of an earlier outbox");
    }
}

void hx_options_outbox_read(hx_loader *loader, const hx_yaml *root)
{
    hx_config *config = loader->config;
    const hx_yaml *list = hx_yaml_get(root, "outbox");
    const hx_option *option = hx_option_find(HX_PLACE_TOP, HX_LIT("outbox"));
    if (!list || list->refused) return;
    if (list->kind == HX_YAML_TEXT && hx_slice_eq(list->text, HX_LIT("store"))) {
        if (!hx_address_is_postgres(config->store))
            hx_loader_wrong(loader, list, "outbox",
                            "can't be \"store\": the store is not in PostgreSQL. Give the application's database, as "
                            "[{name: shop, database: postgres://…}]");
        config->outboxes[config->outbox_count++] = (hx_config_outbox){HX_LIT("store"), config->store};
        return;
    }
    if (!hx_loader_is(loader, option, list, HX_YAML_LIST)) return;
    if (list->count > HX_OUTBOXES_MAX) {
        hx_config_problem_at(&loader->problems, list->line, list->column,
                             "\"outbox\" has %zu outboxes; up to %u are possible", list->count, HX_OUTBOXES_MAX);
        return;
    }
    for (const hx_yaml *node = list->first; node; node = node->next) {
        read_outbox(loader, node, &config->outboxes[config->outbox_count]);
        refuse_twice(loader, node, config->outbox_count++);
    }
}
