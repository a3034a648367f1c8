/* SPDX-License-Identifier: Apache-2.0 */
/* Matching works on normalised paths, of requests and of templates alike: two spellings of one path must not fall under
 * two rules, or a required key could be gone round by writing %72efunds. */
#include "core/operation/policy.h"

#include "base/check.h"
#include "core/operation/template.h"

#include <string.h>

#define METHODS_MAX 16u
#define SEGMENTS_MAX 64u
#define METHOD_OTHER (1u << 8)
#define METHODS_UNSAFE 0x0fu /* those of method_bit() that aren't safe */
#define NO_ROUTE UINT32_MAX
#define HASH_STEP UINT64_C(0x9e3779b97f4a7c15)
#define RULES_SCHEME 3u /* version of how key, scope, proof and fingerprint are computed */

hx_policy hx_policy_default(void)
{
    return (hx_policy){
        .name = HX_EMPTY,
        .path = HX_EMPTY,
        .because = HX_EMPTY,
        .authorize_method = HX_EMPTY,
        .authorize_target = HX_EMPTY,
        .result = HX_EMPTY,
        .jwt = {.rules = {.issuer = HX_EMPTY, .audience = HX_EMPTY}},
        .mode = HX_MODE_PROTECT,
        .require = true,
        .on_duplicate = HX_DUPLICATE_REPLAY,
        .guarantee = HX_GUARANTEE_NONE,
        .on_unknown = HX_ON_UNKNOWN_HOLD,
        .class = HX_CLASS_USER,
        .retry = hx_retry_policy_of_class(HX_CLASS_USER),
        .key = HX_KEY_RULES_DEFAULT,
        .principals = {{.kind = HX_PRINCIPAL_AUTHORIZATION, .name = HX_EMPTY}},
        .principal_count = 1,
        .lifetime = 24 * HX_HOUR,
        .lease = 60 * HX_SECOND,
        .wait = 10 * HX_SECOND,
        .grace = 60 * HX_SECOND,
        .upstream_timeout = 60 * HX_SECOND,
        .body_bytes_max = 1024u * 1024u,
        .answer_bytes_max = 8u * 1024u * 1024u,
    };
}

/* FNV-1a: a configuration doesn't attack itself. */
static uint64_t mix_bytes(uint64_t hash, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t mix_number(uint64_t hash, uint64_t number)
{
    char bytes[8];
    for (unsigned i = 0; i < sizeof bytes; i++) bytes[i] = (char)(number >> 8 * i & 0xff);
    return mix_bytes(hash, bytes, sizeof bytes);
}

static uint64_t mix_text(uint64_t hash, hx_slice text)
{
    return mix_bytes(mix_number(hash, text.len), text.ptr, text.len);
}

/* Hashes a list whose order doesn't matter. */
static uint64_t mix_set(uint64_t hash, const hx_slice *items, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += mix_text(1, items[i]);
    return mix_number(mix_number(hash, count), sum);
}

static uint64_t mix_fingerprint(uint64_t hash, const hx_fingerprint_rules *rules)
{
    hash = mix_number(hash, (uint64_t)rules->body);
    if (rules->body == HX_FINGERPRINT_KEY) return hash; /* nothing else counts */
    hash = mix_set(hash, rules->pointers, rules->body == HX_FINGERPRINT_POINTERS ? rules->pointer_count : 0);
    hash = mix_set(hash, rules->ignored_pointers, rules->ignored_pointer_count);
    hash = mix_set(hash, rules->ignored_query, rules->ignored_query_count);
    return mix_set(hash, rules->headers, rules->header_count);
}

/* Every bit of a hash counts in each of these. */
static uint32_t folded(uint64_t hash)
{
    return (uint32_t)((hash ^ hash >> 32) * HASH_STEP >> 32);
}

/* Length and format of a key decide which keys are taken, not which operation a key stands for: they may change while
 * operations live. The same holds for how a principal is proved. How a key is written to the application counts: what
 * is sent again, or asked about, must be known there by the same. */
static uint64_t identity_of(const hx_policy *policy)
{
    uint64_t hash = mix_number(0, RULES_SCHEME);
    hash = mix_number(hash, policy->principal_count);
    for (size_t i = 0; i < policy->principal_count; i++) { /* the first that a request has counts */
        const hx_principal_source *source = &policy->principals[i];
        hash = mix_number(hash, (uint64_t)source->kind);
        hash = mix_text(hash, source->name);
    }
    hash = mix_number(hash, (uint64_t)policy->scope);
    hash = mix_number(hash, policy->key.from ? 1 : 0);
    if (policy->key.from) {
        hash = mix_number(hash, policy->key.prefer_header ? 1 : 0);
        for (size_t i = 0; i < policy->key.from->count; i++)
            hash = mix_text(hash, policy->key.from->parts[i].canonical);
    }
    hash = mix_fingerprint(hash, &policy->fingerprint);
    bool is_key_ours = policy->key.from || policy->forward_key == HX_FORWARD_KEY_SCOPED;
    hash = mix_number(hash, (uint64_t)policy->forward_key);
    return mix_number(hash, is_key_ours && policy->dialect == HX_DIALECT_IETF);
}

uint32_t hx_policy_version(const hx_policy *policy)
{
    uint32_t hash = folded(identity_of(policy)) & HX_RULE_IDENTITY;
    if (hash == 0) hash = 1; /* 0 means no version */
    return policy->name.len > 0 ? hash | HX_RULE_NAMED : hash;
}

bool hx_method_is_safe(hx_slice method)
{
    switch (method.len) {
    case 3: return memcmp(method.ptr, "GET", 3) == 0;
    case 4: return memcmp(method.ptr, "HEAD", 4) == 0;
    case 5: return memcmp(method.ptr, "TRACE", 5) == 0;
    case 7: return memcmp(method.ptr, "OPTIONS", 7) == 0;
    default: return false;
    }
}

bool hx_policy_is_safe(const hx_policy *policy)
{
    for (size_t i = 0; i < policy->method_count; i++)
        if (!hx_method_is_safe(policy->methods[i])) return false;
    return policy->method_count > 0;
}

bool hx_policy_is_exposed(const hx_policy *policy)
{
    return policy->mode != HX_MODE_PROTECT && !hx_policy_is_safe(policy);
}

bool hx_policy_requires_key(const hx_policy *policy, hx_slice method)
{
    if (!policy->require) return false;
    if (hx_slice_eq(method, HX_LIT("PUT"))) return policy->require_on_put || policy->if_match_suffices;
    return hx_slice_eq(method, HX_LIT("POST")) || hx_slice_eq(method, HX_LIT("PATCH")) ||
           hx_slice_eq(method, HX_LIT("DELETE"));
}

bool hx_policy_is_optional(const hx_policy *policy)
{
    if (policy->mode != HX_MODE_PROTECT || policy->key.from) return false;
    for (size_t i = 0; i < policy->method_count; i++)
        if (!hx_method_is_safe(policy->methods[i]) && !hx_policy_requires_key(policy, policy->methods[i])) return true;
    return policy->method_count == 0 && !hx_policy_requires_key(policy, HX_LIT("PUT")); /* the first that needs none */
}

/* Whether some path is matched by both. */
static bool paths_meet(hx_slice a, hx_slice b)
{
    hx_slice left, right;
    while (hx_slice_next(&a, '/', &left)) {
        if (!hx_slice_next(&b, '/', &right)) return false;
        bool left_any = left.len > 0 && left.ptr[0] == '{', right_any = right.len > 0 && right.ptr[0] == '{';
        bool meet = (left_any && right.len > 0) || (right_any && left.len > 0) || hx_slice_eq(left, right);
        if (!meet) return false;
    }
    return !hx_slice_next(&b, '/', &right);
}

bool hx_policy_takes(const hx_policy *route, hx_slice method)
{
    if (route->method_count == 0) return !hx_method_is_safe(method);
    for (size_t i = 0; i < route->method_count; i++)
        if (hx_slice_eq(route->methods[i], method)) return true;
    return false;
}

static bool methods_meet(const hx_policy *a, const hx_policy *b)
{
    if (a->method_count == 0 && b->method_count == 0) return true;
    const hx_policy *listed = a->method_count > 0 ? a : b, *other = listed == a ? b : a;
    for (size_t i = 0; i < listed->method_count; i++)
        if (hx_policy_takes(other, listed->methods[i])) return true;
    return false;
}

bool hx_policy_meets(const hx_policy *a, const hx_policy *b)
{
    return paths_meet(a->path, b->path) && methods_meet(a, b);
}

/* Names of parameters and the order of methods don't matter. */
static uint64_t mix_match(uint64_t hash, const hx_policy *route)
{
    hx_slice rest = route->path, segment;
    while (hx_slice_next(&rest, '/', &segment))
        hash = mix_text(hash, segment.len > 0 && segment.ptr[0] == '{' ? HX_LIT("{}") : segment);
    return mix_set(hash, route->methods, route->method_count);
}

/* Whether the route's operations are called as they would be without a route: by one method and a path without
 * parameters. Then they are found when it goes. */
static bool is_called_by_request(const hx_policy *route)
{
    hx_slice path = hx_policy_identity(route), method;
    return route->method_count == 1 && hx_slice_find(route->path, '{') == SIZE_MAX &&
           hx_slice_next(&path, ' ', &method) && hx_slice_eq(method, route->methods[0]) &&
           hx_slice_eq(path, route->path);
}

/* Whether a request of the route's is another operation than it would be under those defaults. */
static bool takes_from(const hx_policy *route, const hx_policy *defaults)
{
    return route->mode == HX_MODE_PROTECT &&
           !(is_called_by_request(route) && route->rule_identity == defaults->rule_identity);
}

static void set_version(hx_policy *policy)
{
    policy->rule_version = (folded(policy->rule_match) & HX_RULE_MATCH) | hx_policy_version(policy);
}

void hx_policy_version_all(hx_policy_set *set)
{
    hx_policy *defaults = &set->defaults;
    defaults->rule_identity = identity_of(defaults);
    defaults->rule_match = 0;
    for (size_t i = 0; i < set->count; i++) {
        hx_policy *route = &set->routes[i];
        route->rule_identity = identity_of(route);
        if (takes_from(route, defaults)) defaults->rule_match += mix_match(1, route); /* in whatever order */
        route->rule_match = is_called_by_request(route) ? 0 : mix_match(1, route);
        /* A request of this route goes to another route that is inserted before it. */
        for (size_t k = 0; k < i; k++)
            if (hx_policy_meets(&set->routes[k], route))
                route->rule_match = mix_match(route->rule_match, &set->routes[k]);
        set_version(route);
    }
    set_version(defaults);
}

/* Methods as bits, so that a route is asked by one instruction. What has no bit of its own is compared as text. */
static unsigned method_bit(hx_slice method)
{
    const char *m = method.ptr;
    switch (method.len) {
    case 3: return memcmp(m, "PUT", 3) == 0 ? 1u << 0 : memcmp(m, "GET", 3) == 0 ? 1u << 4 : METHOD_OTHER;
    case 4: return memcmp(m, "POST", 4) == 0 ? 1u << 1 : memcmp(m, "HEAD", 4) == 0 ? 1u << 5 : METHOD_OTHER;
    case 5: return memcmp(m, "PATCH", 5) == 0 ? 1u << 2 : memcmp(m, "TRACE", 5) == 0 ? 1u << 6 : METHOD_OTHER;
    case 6: return memcmp(m, "DELETE", 6) == 0 ? 1u << 3 : METHOD_OTHER;
    case 7: return memcmp(m, "OPTIONS", 7) == 0 ? 1u << 7 : METHOD_OTHER;
    default: return METHOD_OTHER;
    }
}

static unsigned methods_of(const hx_policy *route)
{
    unsigned mask = 0;
    if (route->method_count == 0) return METHOD_OTHER | METHODS_UNSAFE;
    for (size_t i = 0; i < route->method_count; i++) mask |= method_bit(route->methods[i]);
    return mask;
}

/* The compiled routes: a tree of segments. Its edges with a name are in one table, by the node above and a hash of the
 * name; the edge for any segment is in its node. A request may have to go down both, and of what it finds there the
 * route that was written first wins: so every node knows the first one below it, and is left alone when something
 * better was found. Nothing in here changes after it was made, so that no client can make a search longer. */
typedef struct {
    uint32_t any;   /* the node behind "{id}"; 0: there is none, as no edge leads to the root */
    uint32_t first; /* of all routes at and below this node */
    uint32_t leaf;  /* the first of its leaves */
    uint32_t leaf_end;
} node;

typedef struct {
    uint32_t route;
    uint32_t methods;
} leaf;

typedef struct {
    uint32_t hash;
    uint32_t parent;
    uint32_t child; /* 0: the slot is free */
    hx_slice name;
} edge;

struct hx_route_tree {
    node *nodes;
    size_t node_count;
    leaf *leaves;
    edge *edges;
    uint32_t edge_mask; /* their number less one; a power of two */
    size_t depth;       /* segments of the longest path */
};

static uint32_t edge_hash(uint32_t hash_of_name, uint32_t parent)
{
    uint32_t hash = hash_of_name ^ parent * UINT32_C(0x9e3779b1);
    return hash ^ hash >> 15; /* the table takes its low bits */
}

static uint64_t eight_bytes(const char *at)
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

/* Hashes eight bytes at a time, the last eight perhaps twice. It needs no secret: only the configuration fills the
 * table. */
static uint32_t name_hash(hx_slice name)
{
    const char *p = name.ptr;
    uint64_t hash = name.len * HASH_STEP;
    if (name.len >= 8) {
        for (size_t i = 0; i + 8 < name.len; i += 8) {
            hash = (hash ^ eight_bytes(p + i)) * HASH_STEP;
            hash ^= hash >> 32;
        }
        hash = (hash ^ eight_bytes(p + name.len - 8)) * HASH_STEP;
    } else {
        uint64_t bytes = 0;
        for (size_t i = 0; i < name.len; i++) bytes = bytes << 8 | (unsigned char)p[i];
        hash = (hash ^ bytes) * HASH_STEP;
    }
    return (uint32_t)(hash >> 32);
}

/* The slot of the edge, or the free slot where it belongs. */
static edge *find_edge(const struct hx_route_tree *tree, uint32_t parent, hx_slice name, uint32_t hash_of_name)
{
    uint32_t hash = edge_hash(hash_of_name, parent);
    for (uint32_t i = hash & tree->edge_mask;; i = (i + 1) & tree->edge_mask) {
        edge *e = &tree->edges[i];
        if (e->child == 0) return e;
        if (e->hash == hash && e->parent == parent && e->name.len == name.len &&
            memcmp(e->name.ptr, name.ptr, name.len) == 0)
            return e;
    }
}

static uint32_t add_node(struct hx_route_tree *tree, size_t route)
{
    tree->nodes[tree->node_count] = (node){.first = (uint32_t)route};
    return (uint32_t)tree->node_count++;
}

/* The node at the end of the route's path. */
static uint32_t add_path(struct hx_route_tree *tree, hx_slice path, size_t route)
{
    uint32_t at = 0;
    size_t depth = 0;
    hx_slice rest = hx_slice_from(path, 1), segment;
    while (hx_slice_next(&rest, '/', &segment)) {
        uint32_t next = 0;
        if (segment.len > 0 && segment.ptr[0] == '{') {
            next = tree->nodes[at].any;
            if (next == 0) next = tree->nodes[at].any = add_node(tree, route);
        } else {
            uint32_t hash = name_hash(segment);
            edge *e = find_edge(tree, at, segment, hash);
            if (e->child == 0)
                *e = (edge){.hash = edge_hash(hash, at), .parent = at, .child = add_node(tree, route), .name = segment};
            next = e->child;
        }
        at = next;
        depth++;
    }
    if (depth > tree->depth) tree->depth = depth;
    return at;
}

static size_t segments_of(hx_slice path)
{
    size_t count = 0;
    for (size_t i = 0; i < path.len; i++) count += path.ptr[i] == '/';
    return count;
}

static const struct hx_route_tree *grow_tree(const hx_policy_set *set, const hx_slice *paths, hx_arena *arena)
{
    struct hx_route_tree *tree = hx_arena_zalloc(arena, sizeof *tree);
    size_t nodes_max = 1, slots = 4;
    for (size_t i = 0; i < set->count; i++) nodes_max += segments_of(paths[i]);
    while (slots < 2 * nodes_max) slots *= 2;
    tree->nodes = hx_arena_alloc(arena, nodes_max * sizeof *tree->nodes);
    tree->edges = hx_arena_zalloc(arena, slots * sizeof *tree->edges);
    tree->edge_mask = (uint32_t)(slots - 1);
    tree->leaves = hx_arena_alloc(arena, (set->count + 1) * sizeof *tree->leaves);
    uint32_t *ends = hx_arena_alloc(arena, (set->count + 1) * sizeof *ends);
    (void)add_node(tree, 0);
    for (size_t i = 0; i < set->count; i++) { /* one without a path was refused; it has no end */
        ends[i] = paths[i].len > 0 ? add_path(tree, paths[i], i) : UINT32_MAX;
        if (ends[i] != UINT32_MAX) tree->nodes[ends[i]].leaf_end++;
    }
    HX_CHECK(tree->node_count <= nodes_max && tree->depth <= SEGMENTS_MAX);
    uint32_t begin = 0;
    for (size_t i = 0; i < tree->node_count; i++) { /* from counts of leaves to their positions */
        uint32_t count = tree->nodes[i].leaf_end;
        tree->nodes[i].leaf = tree->nodes[i].leaf_end = begin;
        begin += count;
    }
    for (size_t i = 0; i < set->count; i++)
        if (ends[i] != UINT32_MAX)
            tree->leaves[tree->nodes[ends[i]].leaf_end++] = (leaf){.route = (uint32_t)i,
                                                                   .methods = methods_of(&set->routes[i])};
    return tree;
}

void hx_policy_compile(hx_policy_set *set, hx_arena *arena)
{
    hx_slice *paths = hx_arena_alloc(arena, (set->count + 1) * sizeof *paths);
    for (size_t i = 0; i < set->count; i++) paths[i] = set->routes[i].path;
    set->tree = grow_tree(set, paths, arena);
    for (size_t i = 0; i < set->count; i++)
        if (paths[i].len > 0)
            paths[i] = hx_path_fold_template(paths[i], hx_arena_alloc(arena, HX_PATH_FOLD_BYTES(paths[i].len)));
    set->folded = grow_tree(set, paths, arena);
}

typedef struct {
    hx_slice name;
    uint32_t hash;
} hashed_segment;

/* Splits a path and hashes its segments. False when it has more than any route. */
static bool split(hx_slice path, size_t most, hashed_segment out[SEGMENTS_MAX], size_t *count)
{
    const char *p = path.ptr + 1, *end = path.ptr + path.len;
    for (size_t i = 0; i < most; i++) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        hx_slice name = {p, (size_t)((slash ? slash : end) - p)};
        out[i] = (hashed_segment){name, name_hash(name)};
        if (!slash) {
            *count = i + 1;
            return true;
        }
        p = slash + 1;
    }
    return false;
}

bool hx_policy_is_guarded(const hx_policy *route)
{
    return route->mode == HX_MODE_PROTECT && !route->path_exact;
}

typedef struct {
    const hx_policy_set *set;
    const struct hx_route_tree *tree; /* index in the set */
    hx_slice method;
    bool guarded_only;
} search;

/* The first of the node's routes that takes the method, if it comes before `best`. */
static uint32_t first_leaf(const search *wanted, const node *n, unsigned bit, uint32_t best)
{
    const hx_policy *routes = wanted->set->routes;
    for (uint32_t i = n->leaf; i < n->leaf_end; i++) {
        const leaf *l = &wanted->tree->leaves[i];
        if (l->route >= best) break;
        if (wanted->guarded_only && !hx_policy_is_guarded(&routes[l->route])) continue;
        if ((l->methods & bit) && (bit != METHOD_OTHER || hx_policy_takes(&routes[l->route], wanted->method)))
            return l->route;
    }
    return best;
}

static const hx_policy *find(const search *wanted, hx_slice path)
{
    const hx_policy_set *set = wanted->set;
    const struct hx_route_tree *tree = wanted->tree;
    HX_UNINITIALIZED hashed_segment segments[SEGMENTS_MAX];
    struct {
        uint32_t node;
        uint32_t depth;
    } todo[SEGMENTS_MAX + 1];
    size_t count = 0, left = 0;
    if (set->count == 0) return NULL;
    HX_CHECK(tree != NULL);
    if (path.len == 0 || path.ptr[0] != '/' || !split(path, tree->depth, segments, &count)) return NULL;
    unsigned bit = method_bit(wanted->method);
    uint32_t best = NO_ROUTE;
    todo[left].node = 0;
    todo[left++].depth = 0;
    while (left > 0) {
        left--;
        uint32_t at = todo[left].node, depth = todo[left].depth;
        const node *n = &tree->nodes[at];
        if (n->first >= best) continue;
        if (depth == count) {
            best = first_leaf(wanted, n, bit, best);
            continue;
        }
        const hashed_segment *s = &segments[depth];
        if (n->any != 0 && s->name.len > 0) {
            todo[left].node = n->any;
            todo[left++].depth = depth + 1;
        }
        uint32_t child = find_edge(tree, at, s->name, s->hash)->child;
        if (child != 0) {
            todo[left].node = child;
            todo[left++].depth = depth + 1;
        }
    }
    return best == NO_ROUTE ? NULL : &set->routes[best];
}

const hx_policy *hx_policy_find(const hx_policy_set *set, hx_slice method, hx_slice path)
{
    return find(&(search){.set = set, .tree = set->tree, .method = method}, path);
}

const hx_policy *hx_policy_find_near(const hx_policy_set *set, hx_slice method, hx_slice path, const hx_policy *route,
                                     hx_arena *arena)
{
    if (set->count == 0 || path.len == 0 || path.ptr[0] != '/') return NULL;
    search wanted = {.set = set, .tree = set->folded, .method = method, .guarded_only = route == NULL};
    char *room = hx_arena_alloc(arena, HX_PATH_FOLD_BYTES(path.len));
    unsigned possible = 0;
    for (unsigned reading = 0; reading < HX_READINGS; reading++) {
        if ((reading & ~possible) != 0) continue; /* nothing in the path is read differently */
        const hx_policy *found = find(&wanted, hx_path_fold(path, reading, room, &possible));
        if (found && found != route && hx_policy_is_guarded(found)) return found;
    }
    return NULL;
}

bool hx_path_parameter(hx_slice path_template, hx_slice path, hx_slice name, hx_slice *value)
{
    hx_slice left, right;
    while (hx_slice_next(&path_template, '/', &left) && hx_slice_next(&path, '/', &right)) {
        bool is_brace = left.len > 2 && left.ptr[0] == '{' && left.ptr[left.len - 1] == '}';
        if (!is_brace || !hx_slice_eq((hx_slice){left.ptr + 1, left.len - 2}, name)) continue;
        *value = right;
        return true;
    }
    return false;
}

static const char *check_method(hx_slice method, const hx_policy *policy)
{
    if (!hx_slice_is_token(method)) return "a method is missing or is not a word, as in \"POST,PATCH /refunds\"";
    for (size_t i = 0; i < method.len; i++)
        if (method.ptr[i] >= 'a' && method.ptr[i] <= 'z') return "methods are in upper case, as in \"POST /refunds\"";
    if (hx_slice_eq(method, HX_LIT("CONNECT"))) return "CONNECT has no path and can't be matched";
    for (size_t i = 0; i < policy->method_count; i++)
        if (hx_slice_eq(policy->methods[i], method)) return "a method is listed twice";
    if (policy->method_count == METHODS_MAX) return "more than 16 methods are listed";
    return NULL;
}

static const char *read_methods(hx_slice list, hx_arena *arena, hx_policy *policy)
{
    policy->methods = hx_arena_alloc(arena, METHODS_MAX * sizeof *policy->methods);
    hx_slice method;
    while (hx_slice_next(&list, ',', &method)) {
        const char *wrong = check_method(method, policy);
        if (wrong) return wrong;
        policy->methods[policy->method_count++] = hx_arena_copy(arena, method);
    }
    return NULL;
}

static const char *check_segment(hx_slice segment)
{
    size_t open = hx_slice_find(segment, '{'), close = hx_slice_find(segment, '}');
    if (segment.len > 1 && segment.ptr[0] == ':') return "a parameter is written \"{id}\", not \":id\"";
    if (open == SIZE_MAX && close == SIZE_MAX) return NULL;
    if (open != 0 || close != segment.len - 1)
        return "braces stand for one whole segment of a path, as in \"/refunds/{id}\"";
    hx_slice name = {segment.ptr + 1, segment.len - 2};
    if (hx_slice_ends(name, HX_LIT("...")))
        return "nothing stands for the rest of a path: \"{name}\" stands for one segment, so write one route for each "
               "depth";
    if (!hx_slice_is_token(name) || hx_slice_find(name, '.') != SIZE_MAX || hx_slice_find(name, '|') != SIZE_MAX)
        return "braces hold a name, as in \"/refunds/{id}\"";
    return NULL;
}

static const char *read_path(hx_slice path, hx_arena *arena, hx_policy *policy)
{
    if (path.len == 0) return "the path is missing, as in \"POST /refunds\"";
    static const char foreign[] = {'[', ']', '^', '|', '\\'};
    if (path.ptr[0] != '/') return "the path must begin with a slash, as in \"POST /refunds\"";
    for (size_t i = 0; i < path.len; i++) {
        if (path.ptr[i] == '?') return "a query can't be matched: leave out \"?\" and what follows";
        if (path.ptr[i] == '#') return "a fragment never reaches a server: leave out \"#\" and what follows";
        if (path.ptr[i] == '<' || path.ptr[i] == '>') return "a parameter is written \"{id}\", not \"<id>\"";
        if (memchr(foreign, path.ptr[i], sizeof foreign))
            return "a path is not a regular expression: \"{name}\" stands for one segment of it";
        if (path.ptr[i] == '*') return "\"*\" is not a wildcard; \"{name}\" stands for one segment of a path";
        if (path.ptr[i] <= ' ' || path.ptr[i] == 0x7f)
            return "the path holds a space or a byte that must be escaped, as in \"%20\"";
    }
    hx_path_error error = hx_path_normalize(path, arena, &policy->path);
    if (error != HX_PATH_OK) return hx_path_error_text(error);
    policy->path = hx_arena_copy(arena, policy->path);
    if (segments_of(policy->path) > SEGMENTS_MAX) return "the path has more than 64 segments";
    hx_slice rest = policy->path, segment;
    while (hx_slice_next(&rest, '/', &segment)) {
        const char *wrong = check_segment(segment);
        if (wrong) return wrong;
    }
    return NULL;
}

bool hx_policy_match(hx_slice match, hx_arena *arena, hx_policy *policy, const char **error)
{
    match = hx_slice_trim(match);
    policy->methods = NULL;
    policy->method_count = 0;
    policy->path = HX_EMPTY;
    size_t space = hx_slice_find(match, ' ');
    const char *wrong = NULL;
    if (match.len > 0 && match.ptr[0] == '/') {
        wrong = read_path(match, arena, policy);
    } else {
        wrong = read_methods(hx_slice_first(match, space), arena, policy);
        if (!wrong && space == SIZE_MAX) wrong = "the path is missing, as in \"POST /refunds\"";
        if (!wrong) wrong = read_path(hx_slice_trim(hx_slice_from(match, space)), arena, policy);
    }
    if (wrong) *error = wrong;
    return wrong == NULL;
}
