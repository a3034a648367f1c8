/* SPDX-License-Identifier: Apache-2.0 */
/* Which changes of the rules would let keys run again: every case against the live operations that it is about. */
#include "daemon/rule_changes.h"

#include "config/config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <setjmp.h>
#include <cmocka.h>

#define HEAD "upstream: http://127.0.0.1:1\nstore: \"memory:\"\n"

typedef struct {
    hx_config *config;
    const hx_policy_set *set;
} rules;

static rules rules_of(const char *yaml)
{
    hx_buf errors, text;
    hx_buf_init(&errors, NULL, 1 << 16);
    hx_buf_init(&text, NULL, 1 << 16);
    hx_buf_puts(&text, HEAD);
    hx_buf_puts(&text, yaml);
    hx_config *config = hx_config_parse("test", hx_buf_slice(&text), NULL, &errors);
    if (!config) print_error("%.*s", (int)errors.len, errors.data);
    assert_non_null(config);
    hx_buf_free(&errors);
    hx_buf_free(&text);
    return (rules){config, &config->policies};
}

static const hx_policy *route(const rules *r, const char *name)
{
    for (size_t i = 0; i < r->set->count; i++)
        if (hx_slice_eq(r->set->routes[i].name, hx_slice_of(name))) return &r->set->routes[i];
    return &r->set->defaults;
}

/* What live operations under `before` would be called in the store. */
static hx_store_rule live(const rules *before, const char *name, uint64_t count)
{
    const hx_policy *policy = route(before, name);
    return (hx_store_rule){policy->name.len > 0 ? hx_policy_identity(policy) : HX_EMPTY, policy->rule_version, count};
}

static char said[1 << 16];

static size_t check(const rules *next, const hx_store_rule *rule, const hx_store_rule *on_path)
{
    hx_buf problems;
    hx_buf_init(&problems, NULL, sizeof said - 1);
    hx_store_rule one = *rule, other = on_path ? *on_path : *rule;
    hx_store_rules all = {.rules = &one, .count = 1}, paths = {.rules = &other, .count = on_path ? 1 : 0};
    hx_arena arena = {0};
    hx_changes_memory memory = {.arena = &arena};
    size_t count = hx_changes_check(next->set, &all, &paths, &memory, &problems);
    hx_arena_free(&arena);
    memcpy(said, problems.len > 0 ? problems.data : "", problems.len);
    said[problems.len] = '\0';
    hx_buf_free(&problems);
    return count;
}

#define REFUNDS "routes:\n- {name: refunds, match: POST /refunds}\n"
#define PAY "routes:\n- {name: pay, match: \"POST /{v}/pay\"}\n"
#define USERS "principal: [\"header:X-User\"]"

static const struct {
    const char *before, *name, *after;
    const char *expected; /* a part of the sentence; NULL: nothing is wrong */
} changes[] = {
    {REFUNDS, "refunds", REFUNDS, NULL},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, lifetime: 48h, on_duplicate: reject}\n",
     NULL},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /v2/refunds}\n",
     "under other rules (which requests match it"},
    {REFUNDS, "refunds", "routes:\n- {name: all, match: \"POST /{what}\", formerly: [charges, refunds]}\n", NULL},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, forward_key: scoped}\n",
     "under other rules (forward_key):"},
    {REFUNDS, "refunds", "routes:\n- {name: other, match: POST /others}\n- {name: refunds, match: POST /refunds}\n",
     NULL},
    {REFUNDS, "refunds", REFUNDS "- {name: any, match: \"POST /{what}\"}\n", NULL},
    {"routes:\n- {name: back, match: POST /refunds, formerly: [refunds]}\n", "back",
     "routes:\n- {name: back, match: POST /v2/refunds, formerly: [refunds]}\n", "under other rules"},
    {PAY, "pay", "routes:\n- {name: two, match: POST /v2/pay}\n- {name: pay, match: \"POST /{v}/pay\"}\n",
     "under other rules"},
    {PAY, "pay", "routes:\n- {match: POST /v2/pay, mode: pass, because: x}\n- {name: pay, match: \"POST /{v}/pay\"}\n",
     "under other rules"},
    {PAY, "pay", "routes:\n- {name: pay, match: \"POST /{version}/pay\"}\n",
     NULL}, /* a parameter's name says nothing */
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, key: {min: 1}}\n", NULL},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, " USERS "}\n",
     "route \"refunds\" has 12 live operations under other rules (principal):"},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, fingerprint: {body: raw}}\n",
     "under other rules (fingerprint):"},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, scope: route}\n",
     "under other rules (scope):"},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, key: {from: \"{principal}\"}}\n",
     "under other rules (key.from):"},
    {"routes:\n- {name: refunds, match: POST /refunds, scope: host}\n", "refunds", REFUNDS,
     "under other rules (scope):"},
    /* neither can be found when two have changed, nor a value that could be anything */
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, scope: route, " USERS "}\n", "OLD NEW"},
    {"routes:\n- {name: refunds, match: POST /refunds, " USERS "}\n", "refunds", REFUNDS, "OLD NEW"},
    {REFUNDS, "refunds", "defaults: {" USERS "}\n" REFUNDS, "under other rules"},
    {REFUNDS, "refunds", "routes:\n- {name: returns, match: POST /refunds}\n",
     "route \"refunds\" has 12 live operations and is not there any more"},
    {REFUNDS, "refunds", "routes:\n- {name: returns, match: POST /refunds, formerly: [refunds]}\n", NULL},
    {REFUNDS, "refunds", "routes:\n- {name: returns, match: POST /refunds, formerly: [older, refunds]}\n", NULL},
    {REFUNDS, "refunds", "routes:\n- {name: returns, match: POST /refunds, formerly: [refunds], " USERS "}\n",
     "under other rules"},
    {REFUNDS, "refunds", "defaults: {lifetime: 24h}\n", "is not there any more"},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, mode: pass, because: x}\n",
     "and is not protected now"},
    {REFUNDS, "refunds", "routes:\n- {name: refunds, match: POST /refunds, mode: shadow}\n",
     "and is not protected now"},
    {"routes:\n- {match: POST /refunds}\n", "POST /refunds", "defaults: {lifetime: 24h}\n", NULL},
    {"routes:\n- {match: POST /refunds}\n", "POST /refunds", "defaults: {" USERS "}\n", "under other rules"},
    {"routes:\n- {match: POST /refunds}\n", "POST /refunds", REFUNDS, "is not there any more"},
    {"routes:\n- {match: \"POST /refunds/{id}\"}\n", "POST /refunds/{id}", "defaults: {lifetime: 24h}\n",
     "is not there any more"},
    /* another spelling of the same match is another name, and nothing else */
    {"routes:\n- {match: \"POST /refunds/{id}\"}\n", "POST /refunds/{id}",
     "routes:\n- {match: \"POST /refunds/{no}\", formerly: [\"POST /refunds/{id}\"]}\n", NULL},
    {"routes:\n- {match: \"POST,PUT /refunds\"}\n", "POST,PUT /refunds",
     "routes:\n- {match: \"PUT,POST /refunds\", formerly: [\"POST,PUT /refunds\"]}\n", NULL},
    /* these are not what the defaults call them */
    {"routes:\n- {match: \"POST,PUT /refunds\"}\n", "POST,PUT /refunds", "defaults: {lifetime: 24h}\n",
     "is not there any more"},
    {"routes:\n- {name: POST /refunds, match: POST /v2/refunds}\n", "POST /refunds", "defaults: {lifetime: 24h}\n",
     "under other rules"},
    {"routes:\n- {match: POST /%72efunds}\n", "POST /%72efunds", "defaults: {lifetime: 24h}\n", "under other rules"},
    {"defaults: {lifetime: 24h}\n", "", "defaults: {lifetime: 48h}\n" REFUNDS, NULL},
    {"defaults: {lifetime: 24h}\n", "", "defaults: {" USERS "}\n",
     "what matches no route has 12 live operations under other rules (principal) than the defaults"},
    {"defaults: {lifetime: 24h}\n", "", "defaults: {mode: pass, because: x}\n", "the defaults protect nothing now"},
};

static void every_change_is_told_or_let_through(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        rules before = rules_of(changes[i].before), after = rules_of(changes[i].after);
        hx_store_rule rule = live(&before, changes[i].name, 12);
        size_t count = check(&after, &rule, NULL);
        if (count != (changes[i].expected ? 1 : 0)) print_error("change %zu: %s", i, said);
        assert_int_equal(count, changes[i].expected ? 1 : 0);
        if (changes[i].expected && !strstr(said, changes[i].expected)) print_error("change %zu: %s", i, said);
        if (changes[i].expected) assert_non_null(strstr(said, changes[i].expected));
        if (changes[i].expected) assert_non_null(strstr(said, "--accept-rescope"));
        hx_config_free(&before.config);
        hx_config_free(&after.config);
    }
}

static const struct {
    const char *after, *expected;
} takeovers[] = {
    {REFUNDS, "route \"refunds\" takes over POST /refunds, which has 5 live operations under the defaults"},
    {"routes:\n- {name: refunds, match: POST /refunds, formerly: [\"POST /refunds\"]}\n", NULL},
    {"routes:\n- {match: POST /refunds}\n", NULL},
    {"routes:\n- {match: POST /refunds, " USERS "}\n", "route \"POST /refunds\" has 5 live operations under other"},
    {"routes:\n- {match: POST /refunds, mode: pass, because: x}\n", "does not protect it now"},
    /* the others change, and those on the path don't */
    {"defaults: {" USERS "}\nroutes:\n- {match: POST /refunds, principal: [authorization]}\n",
     "what matches no route has 7 live operations"},
};

static void a_path_is_taken_over_by_a_route_that_was_called_so(void **state)
{
    (void)state;
    rules before = rules_of("defaults: {lifetime: 24h}\n");
    for (size_t i = 0; i < sizeof takeovers / sizeof takeovers[0]; i++) {
        rules after = rules_of(takeovers[i].after);
        hx_store_rule all = live(&before, "", 12);
        hx_store_rule path = {HX_LIT("POST /refunds"), all.version, 5};
        size_t count = check(&after, &all, &path);
        if (takeovers[i].expected && !strstr(said, takeovers[i].expected)) print_error("takeover %zu: %s", i, said);
        assert_int_equal(count, takeovers[i].expected ? 1 : 0);
        if (takeovers[i].expected) assert_non_null(strstr(said, takeovers[i].expected));
        hx_config_free(&after.config);
    }
    hx_config_free(&before.config);
}

static void rules_that_nobody_can_tell_apart_are_a_problem(void **state)
{
    (void)state;
    rules next = rules_of(REFUNDS);
    hx_buf problems;
    hx_buf_init(&problems, NULL, 4096);
    hx_store_rules all = {.others = 3}, none = {0};
    hx_changes_memory memory = {0};
    assert_int_equal(hx_changes_check(next.set, &all, &none, &memory, &problems), 1);
    hx_buf_free(&problems);
    hx_config_free(&next.config);
}

static void what_was_accepted_is_that_and_nothing_else(void **state)
{
    (void)state;
    rules before =
        rules_of("routes:\n- {name: refunds, match: POST /refunds}\n- {name: orders, match: POST /orders}\n");
    rules next = rules_of("defaults: {lifetime: 24h}\n");
    hx_buf problems;
    hx_buf_init(&problems, NULL, 4096);
    hx_store_rule both[] = {live(&before, "refunds", 1), live(&before, "orders", 1)}, known = both[0];
    hx_store_rules all = {.rules = both, .count = 2}, none = {0};
    hx_arena arena = {0};
    hx_changes_memory memory = {.arena = &arena, .accepted = {.rules = &known, .count = 1}};
    assert_int_equal(hx_changes_check(next.set, &all, &none, &memory, &problems), 1);
    assert_true(hx_slice_starts(hx_buf_slice(&problems), HX_LIT("route \"orders\"")));
    assert_int_equal(memory.wrong.count, 1);
    assert_true(hx_slice_eq(memory.wrong.rules[0].route, HX_LIT("orders")));
    hx_arena_free(&arena);
    hx_buf_free(&problems);
    hx_config_free(&before.config);
    hx_config_free(&next.config);
}

/* Even where there is no room to say so. */
static void nothing_is_lost_in_a_full_buffer(void **state)
{
    (void)state;
    rules before = rules_of(REFUNDS), next = rules_of("defaults: {lifetime: 24h}\n");
    hx_buf problems;
    hx_buf_init(&problems, NULL, 100);
    hx_store_rule one = live(&before, "refunds", 1);
    hx_store_rules all = {.rules = &one, .count = 1}, none = {0};
    hx_arena arena = {0};
    hx_changes_memory memory = {.arena = &arena};
    for (int i = 0; i < 3; i++) assert_int_equal(hx_changes_check(next.set, &all, &none, &memory, &problems), 1);
    hx_arena_free(&arena);
    hx_buf_free(&problems);
    hx_config_free(&before.config);
    hx_config_free(&next.config);
}

static void paths_are_those_that_a_route_really_gets(void **state)
{
    (void)state;
    hx_arena arena = {0};
    rules r = rules_of("routes:\n"
                       "- {name: a, match: \"GET,POST /refunds\"}\n"
                       "- {name: b, match: \"/refunds\"}\n"
                       "- {name: c, match: \"POST /refunds/{id}\"}\n");
    static const char *const expected[] = {"POST /refunds", "PUT /refunds", "PATCH /refunds", "DELETE /refunds"};
    size_t count;
    hx_changes_path *paths = hx_changes_paths(r.set, &arena, &count);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_true(hx_slice_eq(paths[i].text, hx_slice_of(expected[i])));
        assert_ptr_equal(paths[i].route, route(&r, i == 0 ? "a" : "b"));
    }
    hx_arena_free(&arena);
    hx_config_free(&r.config);
}

static const struct {
    const char *running, *next;
    size_t problems;
} joins[] = {
    {REFUNDS, REFUNDS, 0},
    {REFUNDS, "routes:\n- {name: returns, match: POST /refunds, formerly: [refunds]}\n", 0},
    {REFUNDS, "routes:\n- {name: returns, match: POST /refunds, formerly: [refunds, older]}\n", 0},
    {REFUNDS, "routes:\n- {name: returns, match: POST /refunds, formerly: [older, refunds]}\n", 1},
    {REFUNDS, "routes:\n- {name: refunds, match: POST /refunds, formerly: [older]}\n", 1},
    {"routes:\n- {name: a, match: POST /a}\n- {name: b, match: POST /b}\n",
     "routes:\n- {name: c, match: \"/{x}\", formerly: [a, b]}\n", 1},
    /* was one already */
    {"routes:\n- {name: c, match: POST /a, formerly: [a, b]}\n",
     "routes:\n- {name: d, match: POST /a, formerly: [a, b, c]}\n", 0},
    {"defaults: {lifetime: 24h}\n", "routes:\n- {name: refunds, match: POST /refunds, formerly: [\"POST /refunds\"]}\n",
     0},
    {"defaults: {lifetime: 24h}\n",
     "routes:\n- {name: refunds, match: POST /refunds, formerly: [older, \"POST /refunds\"]}\n", 1},
    /* the path had a route before, so nothing runs under the defaults there */
    {REFUNDS, "routes:\n- {match: POST /refunds, formerly: [refunds]}\n", 0},
};

static void routes_that_become_one_need_a_restart(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof joins / sizeof joins[0]; i++) {
        rules running = rules_of(joins[i].running), next = rules_of(joins[i].next);
        hx_buf problems;
        hx_buf_init(&problems, NULL, 4096);
        size_t count = hx_changes_check_joined(running.set, next.set, &problems);
        if (count != joins[i].problems) print_error("case %zu: %.*s", i, (int)problems.len, problems.data);
        assert_int_equal(count, joins[i].problems);
        hx_buf_free(&problems);
        hx_config_free(&running.config);
        hx_config_free(&next.config);
    }
}

static const struct {
    const char *running, *next;
    const char *retired[3]; /* "": all that matches no route */
} retirements[] = {
    {REFUNDS, REFUNDS, {NULL}},
    {REFUNDS, "routes:\n- {name: returns, match: POST /refunds, formerly: [refunds]}\n", {NULL}},
    {REFUNDS, "routes:\n- {name: returns, match: POST /refunds}\n", {"refunds"}},
    {REFUNDS, "routes:\n- {name: refunds, match: POST /refunds, " USERS "}\n", {"refunds"}},
    {REFUNDS, "routes:\n- {name: refunds, match: POST /refunds, mode: pass, because: x}\n", {"refunds"}},
    {REFUNDS, "defaults: {" USERS "}\n", {"refunds", ""}},
    {"defaults: {lifetime: 24h}\n", REFUNDS, {"POST /refunds"}},
    {"defaults: {lifetime: 24h}\n",
     "routes:\n- {name: refunds, match: POST /refunds, formerly: [\"POST /refunds\"]}\n",
     {NULL}},
    {"defaults: {lifetime: 24h}\n", "routes:\n- {match: POST /refunds}\n", {NULL}},
    {"routes:\n- {match: POST /refunds}\n", "defaults: {lifetime: 24h}\n", {NULL}},
    {"defaults: {mode: pass, because: x}\n", REFUNDS, {NULL}},
};

static void rules_that_go_are_retired(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof retirements / sizeof retirements[0]; i++) {
        rules running = rules_of(retirements[i].running), next = rules_of(retirements[i].next);
        hx_arena arena = {0};
        hx_store_rules out = {0};
        hx_changes_retired(running.set, next.set, &arena, &out);
        size_t expected = 0;
        while (expected < 3 && retirements[i].retired[expected]) expected++;
        if (out.count != expected) print_error("case %zu\n", i);
        assert_int_equal(out.count, expected);
        for (size_t k = 0; k < expected; k++) {
            assert_true(hx_slice_eq(out.rules[k].route, hx_slice_of(retirements[i].retired[k])));
            const hx_policy *was = route(&running, retirements[i].retired[k]);
            assert_int_equal(out.rules[k].version, was->rule_version);
        }
        hx_arena_free(&arena);
        hx_config_free(&running.config);
        hx_config_free(&next.config);
    }
}

/* One route, "a", with that match and principal. */
static void set_up(hx_policy_set *set, hx_arena *arena, const char *match, hx_slice header)
{
    const char *error = NULL;
    hx_policy *a = set->routes = hx_arena_alloc(arena, sizeof *a);
    set->defaults = *a = hx_policy_default();
    set->count = 1;
    a->name = HX_LIT("a");
    assert_true(hx_policy_match(hx_slice_of(match), arena, a, &error));
    if (header.len > 0) a->principals[0] = (hx_principal_source){HX_PRINCIPAL_HEADER, header};
    hx_policy_version_all(set);
    hx_policy_compile(set, arena);
}

/* A version has 31 bits: sooner or later two rules have the same one. */
static void rules_of_one_version_by_chance_are_told_apart_at_a_reload(void **state)
{
    (void)state;
    for (int by_match = 0; by_match < 2; by_match++) {
        hx_arena arena = {0}, other = {0};
        hx_policy_set running = {0}, next = {0};
        hx_store_rules out = {0};
        hx_buf problems;
        hx_buf_init(&problems, NULL, 4096);
        set_up(&running, &arena, "POST /0", by_match ? HX_EMPTY : HX_LIT("x-0"));
        assert_int_equal(hx_changes_check_joined(&running, &running, &problems), 0);
        unsigned i = 1;
        for (; i < 2000000 && next.routes == NULL; i++) {
            hx_slice number = hx_arena_printf(&other, "x-%u", i);
            hx_slice match = hx_arena_printf(&other, "POST /%u", i);
            set_up(&next, &other, by_match ? match.ptr : "POST /0", by_match ? HX_EMPTY : number);
            if (next.routes->rule_version == running.routes->rule_version) break;
            next.routes = NULL;
            hx_arena_free(&other);
        }
        assert_non_null(next.routes);
        hx_changes_retired(&running, &next, &arena, &out);
        for (size_t k = 0; k < out.count; k++) /* to the store they are the same */
            assert_false(hx_slice_eq(out.rules[k].route, HX_LIT("a")));
        assert_int_equal(hx_changes_check_joined(&running, &next, &problems), 1);
        assert_int_equal(hx_changes_check_joined(&next, &next, &problems), 0);
        hx_buf_free(&problems);
        hx_arena_free(&arena);
        hx_arena_free(&other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_change_is_told_or_let_through),
        cmocka_unit_test(a_path_is_taken_over_by_a_route_that_was_called_so),
        cmocka_unit_test(rules_that_nobody_can_tell_apart_are_a_problem),
        cmocka_unit_test(what_was_accepted_is_that_and_nothing_else),
        cmocka_unit_test(nothing_is_lost_in_a_full_buffer),
        cmocka_unit_test(paths_are_those_that_a_route_really_gets),
        cmocka_unit_test(routes_that_become_one_need_a_restart),
        cmocka_unit_test(rules_that_go_are_retired),
        cmocka_unit_test(rules_of_one_version_by_chance_are_told_apart_at_a_reload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
