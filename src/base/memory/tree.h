/* SPDX-License-Identifier: Apache-2.0 */
/* An ordered tree (a treap) whose nodes are members of the structs that it orders: no allocation, and removal without
 * a search. Priorities are random, so no sequence of insertions makes it deep. One thread at a time. */
#ifndef HX_BASE_MEMORY_TREE_H
#define HX_BASE_MEMORY_TREE_H

#include "base/slice.h"

typedef struct hx_tree_node {
    struct hx_tree_node *parent, *left, *right;
    uint32_t priority; /* no child has a higher one than its parent */
} hx_tree_node;

typedef struct {
    hx_tree_node *root;
    size_t count;
    /* Bytes by which a node is ordered, as memcmp does. They don't change while the node is in the tree. */
    hx_slice (*key)(const hx_tree_node *node);
} hx_tree;

hx_tree_node *hx_tree_find(const hx_tree *tree, hx_slice key);
/* The first node whose key is not less than this one; NULL: there is none. */
hx_tree_node *hx_tree_from(const hx_tree *tree, hx_slice key);
hx_tree_node *hx_tree_first(const hx_tree *tree);
hx_tree_node *hx_tree_last(const hx_tree *tree);
hx_tree_node *hx_tree_next(const hx_tree_node *node);
hx_tree_node *hx_tree_prev(const hx_tree_node *node);
/* No node of the tree has the same key. */
void hx_tree_insert(hx_tree *tree, hx_tree_node *node);
void hx_tree_remove(hx_tree *tree, hx_tree_node *node);

#endif
