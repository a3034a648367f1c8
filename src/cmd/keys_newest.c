/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the newest items of a list in no order: a heap whose first item is the oldest of them. */
#include "cmd/keys.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"

#include <stdlib.h>
#include <string.h>

/* RFC 3339 in UTC sorts as text. */
static int by_time(const void *a, const void *b)
{
    return strcmp(((const hx_newest_item *)b)->changed, ((const hx_newest_item *)a)->changed);
}

static bool is_older(const hx_newest *list, size_t a, size_t b)
{
    return strcmp(list->items[a].changed, list->items[b].changed) < 0;
}

static void swap(hx_newest *list, size_t a, size_t b)
{
    hx_newest_item item = list->items[a];
    list->items[a] = list->items[b];
    list->items[b] = item;
}

static void rise(hx_newest *list, size_t i)
{
    for (; i > 0 && is_older(list, i, (i - 1) / 2); i = (i - 1) / 2) swap(list, i, (i - 1) / 2);
}

static void sink(hx_newest *list)
{
    for (size_t i = 0, child; (child = 2 * i + 1) < list->count; i = child) {
        if (child + 1 < list->count && is_older(list, child + 1, child)) child++;
        if (!is_older(list, child, i)) return;
        swap(list, i, child);
    }
}

static hx_newest_item copy_of(const char *changed, hx_slice record)
{
    size_t len = strlen(changed) + 1;
    char *bytes = malloc(len + record.len + 1);
    if (!bytes) hx_fatal(HX_EXIT_BUG, "out of memory (a list of operations)");
    memcpy(bytes, changed, len);
    memcpy(bytes + len, record.ptr, record.len);
    return (hx_newest_item){.changed = bytes, .record = {bytes + len, record.len}};
}

void hx_newest_add(hx_newest *list, const char *changed, hx_slice record)
{
    list->total++;
    if (list->count == list->max && strcmp(changed, list->items[0].changed) <= 0) return;
    if (list->count == list->max) {
        free(list->items[0].changed);
        list->items[0] = copy_of(changed, record);
        sink(list);
        return;
    }
    if (list->count == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 128;
        list->items = realloc(list->items, list->cap * sizeof *list->items);
        if (!list->items) hx_fatal(HX_EXIT_BUG, "out of memory (a list of operations)");
    }
    list->items[list->count++] = copy_of(changed, record);
    rise(list, list->count - 1);
}

void hx_newest_sort(hx_newest *list)
{
    if (list->count > 0) qsort(list->items, list->count, sizeof *list->items, by_time);
}

void hx_newest_free(hx_newest *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->items[i].changed);
    free(list->items);
    *list = (hx_newest){0};
}
