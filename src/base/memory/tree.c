/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/tree.h"

#include "base/check.h"
#include "base/rand.h"

hx_tree_node *hx_tree_from(const hx_tree *tree, hx_slice key)
{
    hx_tree_node *best = NULL;
    for (hx_tree_node *at = tree->root; at;) {
        int order = hx_slice_compare(key, tree->key(at));
        if (order == 0) return at;
        if (order < 0) best = at;
        at = order < 0 ? at->left : at->right;
    }
    return best;
}

hx_tree_node *hx_tree_find(const hx_tree *tree, hx_slice key)
{
    hx_tree_node *node = hx_tree_from(tree, key);
    return node && hx_slice_eq(tree->key(node), key) ? node : NULL;
}

static hx_tree_node *leftmost(hx_tree_node *node)
{
    while (node && node->left) node = node->left;
    return node;
}

static hx_tree_node *rightmost(hx_tree_node *node)
{
    while (node && node->right) node = node->right;
    return node;
}

hx_tree_node *hx_tree_first(const hx_tree *tree)
{
    return leftmost(tree->root);
}

hx_tree_node *hx_tree_last(const hx_tree *tree)
{
    return rightmost(tree->root);
}

hx_tree_node *hx_tree_next(const hx_tree_node *node)
{
    if (node->right) return leftmost(node->right);
    while (node->parent && node == node->parent->right) node = node->parent;
    return node->parent;
}

hx_tree_node *hx_tree_prev(const hx_tree_node *node)
{
    if (node->left) return rightmost(node->left);
    while (node->parent && node == node->parent->left) node = node->parent;
    return node->parent;
}

/* The link that leads to `node`. */
static hx_tree_node **link_to(hx_tree *tree, const hx_tree_node *node)
{
    if (!node->parent) return &tree->root;
    return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

/* Puts `node` in the place of its parent, which becomes its child. */
static void rotate_up(hx_tree *tree, hx_tree_node *node)
{
    hx_tree_node *parent = node->parent, **place = link_to(tree, parent);
    hx_tree_node **mine = parent->left == node ? &node->right : &node->left;
    hx_tree_node **theirs = parent->left == node ? &parent->left : &parent->right;
    *theirs = *mine;
    if (*mine) (*mine)->parent = parent;
    *mine = parent;
    node->parent = parent->parent;
    parent->parent = node;
    *place = node;
}

void hx_tree_insert(hx_tree *tree, hx_tree_node *node)
{
    hx_tree_node *parent = NULL, **link = &tree->root;
    while (*link) {
        parent = *link;
        int order = hx_slice_compare(tree->key(node), tree->key(parent));
        HX_CHECK(order != 0);
        link = order < 0 ? &parent->left : &parent->right;
    }
    *node = (hx_tree_node){.parent = parent, .priority = (uint32_t)hx_rand_u64()};
    *link = node;
    while (node->parent && node->parent->priority < node->priority) rotate_up(tree, node);
    tree->count++;
}

void hx_tree_remove(hx_tree *tree, hx_tree_node *node)
{
    while (node->left && node->right)
        rotate_up(tree, node->left->priority > node->right->priority ? node->left : node->right);
    hx_tree_node *child = node->left ? node->left : node->right;
    *link_to(tree, node) = child;
    if (child) child->parent = node->parent;
    *node = (hx_tree_node){0};
    tree->count--;
}
