/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/list.h"
#include "base/memory/tree.h"
#include "base/rand.h"

#include <stdarg.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define ITEMS 600u

typedef struct {
    hx_tree_node node;
    char name[8];
    bool is_in;
} item;

static item items[ITEMS]; /* in the order of their names */

static hx_slice name_of(const hx_tree_node *node)
{
    return hx_slice_of(HX_OWNER(node, item, node)->name);
}

static item *of(hx_tree_node *node)
{
    return node ? HX_OWNER(node, item, node) : NULL;
}

static item *neighbour(int from, int by)
{
    for (int i = from; i >= 0 && i < (int)ITEMS; i += by)
        if (items[i].is_in) return &items[i];
    return NULL;
}

static unsigned depth_of(const hx_tree_node *node) /* NOLINT(misc-no-recursion): as deep as the tree */
{
    if (!node) return 0;
    unsigned left = depth_of(node->left), right = depth_of(node->right);
    return 1 + (left > right ? left : right);
}

/* Random insertions and removals, compared with a sorted array of flags after every step. */
static void it_behaves_as_a_sorted_array(void **state)
{
    (void)state;
    hx_tree tree = {.key = name_of};
    size_t count = 0;
    for (unsigned i = 0; i < ITEMS; i++) (void)snprintf(items[i].name, sizeof items[i].name, "%05u", i);
    for (unsigned step = 0; step < 50000; step++) {
        int i = (int)hx_rand_below(ITEMS);
        item *it = &items[i];
        assert_ptr_equal(of(hx_tree_find(&tree, hx_slice_of(it->name))), it->is_in ? it : NULL);
        assert_ptr_equal(of(hx_tree_from(&tree, hx_slice_of(it->name))), neighbour(i, 1));
        if (it->is_in) {
            assert_ptr_equal(of(hx_tree_next(&it->node)), neighbour(i + 1, 1));
            assert_ptr_equal(of(hx_tree_prev(&it->node)), neighbour(i - 1, -1));
            hx_tree_remove(&tree, &it->node);
            count--;
        } else {
            hx_tree_insert(&tree, &it->node);
            count++;
        }
        it->is_in = !it->is_in;
        assert_int_equal(tree.count, count);
        assert_ptr_equal(of(hx_tree_first(&tree)), neighbour(0, 1));
        assert_ptr_equal(of(hx_tree_last(&tree)), neighbour(ITEMS - 1, -1));
    }
}

static void keys_in_their_order_do_not_make_it_deep(void **state)
{
    (void)state;
    hx_tree tree = {.key = name_of};
    for (unsigned i = 0; i < ITEMS; i++) {
        (void)snprintf(items[i].name, sizeof items[i].name, "%05u", i);
        hx_tree_insert(&tree, &items[i].node);
    }
    assert_in_range(depth_of(tree.root), 1, 60); /* about 22; one in a chain would be 600 deep */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_behaves_as_a_sorted_array),
        cmocka_unit_test(keys_in_their_order_do_not_make_it_deep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
