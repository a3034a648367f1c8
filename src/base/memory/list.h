/* SPDX-License-Identifier: Apache-2.0 */
/* A circular doubly linked list whose links are members of the listed structs: no allocation, and removal without a
 * search. */
#ifndef HX_BASE_MEMORY_LIST_H
#define HX_BASE_MEMORY_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct hx_link {
    struct hx_link *next, *prev;
} hx_link;

/* The struct of type `type` whose member `member` is at `link`. */
#define HX_OWNER(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))
/* Iterates over a list; *link may be removed meanwhile. */
/* NOLINTBEGIN(bugprone-macro-parentheses): `link` is the name of a variable that is declared here */
#define HX_EACH(link, list)                                                                                            \
    for (hx_link *link = (list)->next, *link##_next = link->next; link != (list);                                      \
         link = link##_next, link##_next = link->next)
/* NOLINTEND(bugprone-macro-parentheses) */

static inline void hx_list_init(hx_link *list)
{
    list->next = list->prev = list;
}

static inline bool hx_list_empty(const hx_link *list)
{
    return list->next == list;
}

static inline void hx_list_append(hx_link *list, hx_link *link)
{
    link->prev = list->prev;
    link->next = list;
    list->prev->next = link;
    list->prev = link;
}

/* Safe to call twice: a removed link points to itself. */
static inline void hx_list_remove(hx_link *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = link;
}

/* Removes and returns the first link, or NULL. */
static inline hx_link *hx_list_take(hx_link *list)
{
    hx_link *first = list->next;
    if (first == list) return NULL;
    hx_list_remove(first);
    return first;
}

/* Moves everything in `from` to the end of `to`. */
static inline void hx_list_splice(hx_link *to, hx_link *from)
{
    if (hx_list_empty(from)) return;
    from->next->prev = to->prev;
    from->prev->next = to;
    to->prev->next = from->next;
    to->prev = from->prev;
    hx_list_init(from);
}

#endif
