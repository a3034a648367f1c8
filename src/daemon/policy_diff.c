/* SPDX-License-Identifier: Apache-2.0 */
/* Routes are paired by their names, also by those they had; of a pair every field of the policy is compared. What a
 * reload would refuse is decided by the reload's own code (rule_changes.c, restart_only.c), and only explained here. */
#include "daemon/policy_diff.h"

#include "base/check.h"
#include "daemon/restart_only.h"
#include "daemon/rule_changes.h"
#include "config/describe/policy_fields.h"
#include "core/json/json_writer.h"

#include <stdio.h>

#define PIECE_BYTES_MAX (16u * 1024u * 1024u)
#define LINES_BYTES_MAX (1024u * 1024u)

typedef struct {
    const hx_config *old, *now;
    hx_arena arena;
    hx_buf refused;      /* lines: what every reload would refuse */
    hx_buf refused_live; /* lines: what a reload would refuse while operations of those routes live */
} diff;

typedef struct {
    const char *kind;                /* new, gone, renamed, changed; NULL: unchanged */
    const hx_policy *before, *after; /* NULL: the route is new, or gone */
    const char *name, *match;        /* as printed */
    const char *was[64], *is[64];    /* values of fields that differ, else NULL; the last one is the match */
    size_t differences;
    bool changes_keys;
} change;

static const hx_describe_field *rows_of(size_t *count)
{
    const hx_describe_field *rows = hx_describe_fields(count);
    HX_CHECK(*count < sizeof((change *)0)->was / sizeof((change *)0)->was[0]);
    return rows;
}

static bool had_name(const hx_policy *route, hx_slice name)
{
    for (size_t i = 0; i < route->formerly_count; i++)
        if (hx_slice_eq(route->formerly[i], name)) return true;
    return false;
}

static const hx_policy *named(const hx_policy_set *set, hx_slice name)
{
    for (size_t i = 0; i < set->count; i++)
        if (hx_slice_eq(set->routes[i].name, name)) return &set->routes[i];
    return NULL;
}

/* Finds the old route that this one continues. */
static const hx_policy *before(const hx_config *old, const hx_policy *route)
{
    const hx_policy *found = named(&old->policies, route->name);
    for (size_t i = 0; i < route->formerly_count && !found; i++) found = named(&old->policies, route->formerly[i]);
    return found;
}

/* Finds the route that continues an old one. */
static const hx_policy *after(const hx_config *now, const hx_policy *route)
{
    const hx_policy *found = named(&now->policies, route->name);
    for (size_t i = 0; i < now->policies.count && !found; i++)
        if (had_name(&now->policies.routes[i], route->name)) found = &now->policies.routes[i];
    return found;
}

static const char *match_of(const hx_policy *route, hx_arena *arena)
{
    return hx_describe_match(route, arena).ptr; /* it is terminated */
}

static bool same_text(const char *a, const char *b)
{
    return hx_slice_eq(hx_slice_of(a), hx_slice_of(b));
}

/* Compares by name: a changed URL is no change of each of its routes. */
static bool same_upstream(const diff *d, const change *c)
{
    return hx_slice_eq(d->old->upstreams[c->before->upstream].name, d->now->upstreams[c->after->upstream].name);
}

static void compare(diff *d, change *c)
{
    size_t count;
    const hx_describe_field *rows = rows_of(&count);
    for (size_t i = 0; i <= count; i++) {
        if (i < count && same_text(rows[i].name, "upstream") && same_upstream(d, c)) continue;
        const char *was = i < count ? hx_describe_value(&rows[i], d->old, c->before, &d->arena)
                                    : match_of(c->before, &d->arena);
        const char *is = i < count ? hx_describe_value(&rows[i], d->now, c->after, &d->arena)
                                   : match_of(c->after, &d->arena);
        if (same_text(was, is)) continue;
        c->was[i] = was;
        c->is[i] = is;
        c->differences++;
        if (i < count && rows[i].identifies) c->changes_keys = true;
    }
}

/* Compares the old and the new version of a route; one of them may be NULL. */
static change change_of(diff *d, const hx_policy *old, const hx_policy *now)
{
    const hx_policy *route = now ? now : old;
    change c = {.before = old, .after = now, .kind = old ? now ? NULL : "gone" : "new"};
    c.name = hx_arena_terminated(&d->arena, route->name);
    c.match = match_of(route, &d->arena);
    if (!old || !now) return c;
    compare(d, &c);
    if (!hx_slice_eq(old->name, now->name)) {
        c.kind = "renamed";
        c.name = hx_arena_printf(&d->arena, "%.*s → %s", HX_FMT(old->name), c.name).ptr;
    } else if (c.differences > 0) {
        c.kind = "changed";
    }
    if (route->name.len == 0) {
        c.name = "(any other)";
        c.match = "what matches no route";
    }
    return c;
}

static const char *row_name(size_t row, hx_arena *arena)
{
    size_t count;
    const hx_describe_field *rows = rows_of(&count);
    if (row == count) return "match";
    hx_slice name = hx_slice_of(rows[row].name);
    if (hx_slice_ends(name, HX_LIT("_ms"))) name.len -= 3;
    return hx_arena_terminated(arena, name);
}

static bool row_is_key(size_t row)
{
    size_t count;
    const hx_describe_field *rows = rows_of(&count);
    return row < count && rows[row].identifies;
}

static void print_change(diff *d, const change *c)
{
    size_t count;
    (void)rows_of(&count);
    (void)printf("  %-8s %s  %s\n", c->kind, c->name, c->match);
    for (size_t i = 0; i <= count; i++)
        if (c->was[i])
            (void)printf("             %s: %s → %s%s\n", row_name(i, &d->arena), c->was[i], c->is[i],
                         row_is_key(i) ? " (part of every key)" : "");
}

/* Lists the options that changed: "principal, key.from". */
static const char *key_rows(const change *c, hx_arena *arena)
{
    hx_buf out;
    size_t count;
    hx_buf_init(&out, arena, 4096);
    (void)rows_of(&count);
    for (size_t i = 0; i < count; i++) {
        if (!c->was[i] || !row_is_key(i)) continue;
        if (out.len > 0) hx_buf_puts(&out, ", ");
        hx_buf_puts(&out, row_name(i, arena));
    }
    return hx_arena_terminated(arena, hx_buf_slice(&out));
}

/* A new route that has the match of one that is gone was probably renamed. */
static const hx_policy *successor(diff *d, const hx_policy *gone)
{
    for (size_t i = 0; i < d->now->policies.count; i++) {
        const hx_policy *route = &d->now->policies.routes[i];
        if (!before(d->old, route) && same_text(match_of(route, &d->arena), match_of(gone, &d->arena))) return route;
    }
    return NULL;
}

static const char *explain_route(diff *d, const hx_policy *old)
{
    hx_arena *arena = &d->arena;
    bool is_named = old->name.len > 0;
    const hx_policy *now = is_named ? after(d->now, old) : &d->now->policies.defaults;
    const char *who = is_named ? hx_arena_printf(arena, "route \"%.*s\"", HX_FMT(old->name)).ptr
                               : "what matches no route";
    if (is_named && !now) {
        const hx_policy *next = successor(d, old);
        if (next)
            return hx_arena_printf(arena,
                                   "%s is not there any more: if it is called \"%.*s\" now, write \"formerly: "
                                   "['%.*s']\" there",
                                   who, HX_FMT(next->name), HX_FMT(old->name))
                .ptr;
        return hx_arena_printf(arena,
                               "%s is not there any more: list its name in \"formerly\" of the route that takes "
                               "its place",
                               who)
            .ptr;
    }
    if (now->mode != HX_MODE_PROTECT) return hx_arena_printf(arena, "%s is not protected any more", who).ptr;
    change c = {.before = old, .after = now};
    compare(d, &c);
    bool is_same = ((now->rule_version ^ old->rule_version) & HX_RULE_IDENTITY) == 0;
    if (!is_same && c.changes_keys)
        return hx_arena_printf(arena, "%s is under other rules for its keys (%s): leave those as they were", who,
                               key_rows(&c, arena))
            .ptr;
    if (!is_same)
        return hx_arena_printf(arena, "%s has another dialect, and its keys are made here: leave that as it was", who)
            .ptr;
    if (!hx_slice_eq(hx_policy_identity(now), hx_policy_identity(old)))
        return hx_arena_printf(arena, "%s is known by another name: its oldest one goes first in \"formerly\"", who)
            .ptr;
    return hx_arena_printf(arena,
                           "%s has another match, or another route before it that takes some of its requests: leave "
                           "those as they were",
                           who)
        .ptr;
}

/* Explains a path like "POST /refunds" that matched no route and matches one now. */
static const char *explain_path(diff *d, hx_slice path)
{
    size_t space = hx_slice_find(path, ' ');
    HX_CHECK(space != SIZE_MAX);
    const hx_policy *route = hx_policy_find(&d->now->policies, hx_slice_first(path, space),
                                            hx_slice_from(path, space + 1));
    HX_CHECK(route != NULL);
    if (route->mode != HX_MODE_PROTECT)
        return hx_arena_printf(&d->arena, "route \"%.*s\" takes over %.*s and doesn't protect it", HX_FMT(route->name),
                               HX_FMT(path))
            .ptr;
    return hx_arena_printf(&d->arena,
                           "route \"%.*s\" takes over %.*s from what matches no route: write \"formerly: "
                           "['%.*s']\" there",
                           HX_FMT(route->name), HX_FMT(path), HX_FMT(path))
        .ptr;
}

/* Explains what hx_changes_retired found: a route by the name that its operations are known by, the defaults, or a path
 * of theirs that a route takes over. */
static void explain(diff *d, const hx_store_rule *rule)
{
    hx_arena *arena = &d->arena;
    const hx_policy *old = rule->route.len == 0 ? &d->old->policies.defaults : NULL;
    for (size_t i = 0; i < d->old->policies.count && !old; i++)
        if (hx_slice_eq(hx_policy_identity(&d->old->policies.routes[i]), rule->route))
            old = &d->old->policies.routes[i];
    const hx_policy *keeps = old ? old : &d->old->policies.defaults;
    const char *text = old ? explain_route(d, old) : explain_path(d, rule->route);
    bool fits = hx_buf_printf(&d->refused_live, "%s; its operations expire within %s\n", text,
                              hx_describe_duration(keeps->lifetime + keeps->tombstone, arena));
    HX_CHECK(fits);
}

static void judge_live(diff *d)
{
    hx_store_rules retired = {0};
    hx_changes_retired(&d->old->policies, &d->now->policies, &d->arena, &retired);
    for (size_t i = 0; i < retired.count; i++) explain(d, &retired.rules[i]);
}

static void judge(diff *d)
{
    (void)hx_restart_only_differ(d->old, d->now, &d->refused);
    (void)hx_changes_check_joined(&d->old->policies, &d->now->policies, &d->refused);
    judge_live(d);
}

void hx_diff_explain(const hx_config *old, const hx_config *now, hx_buf *lines)
{
    diff d = {.old = old, .now = now};
    hx_buf_init(&d.refused_live, NULL, LINES_BYTES_MAX);
    judge_live(&d);
    bool fits = hx_buf_append(lines, hx_buf_slice(&d.refused_live));
    (void)fits;
    hx_buf_free(&d.refused_live);
    hx_arena_free(&d.arena);
}

static void put_change(diff *d, const change *c, hx_buf *out)
{
    size_t count;
    const hx_describe_field *rows = rows_of(&count);
    hx_json_open(out, NULL, '{');
    hx_json_put_text(out, "change", hx_slice_of(c->kind));
    hx_json_put_text(out, "name", c->after ? c->after->name : c->before->name);
    hx_json_put_text(out, "was", c->before ? c->before->name : HX_EMPTY);
    hx_json_put_text(out, "match", hx_slice_of(c->match));
    hx_json_open(out, "differences", '[');
    for (size_t i = 0; i <= count; i++) {
        if (!c->was[i]) continue;
        bool is_field = i < count;
        hx_json_open(out, NULL, '{');
        hx_json_put_text(out, "rule", hx_slice_of(is_field ? rows[i].name : "match"));
        hx_json_put_name(out, "old");
        if (is_field)
            rows[i].value(d->old, c->before, out);
        else
            hx_json_put_text(out, NULL, hx_slice_of(c->was[i]));
        hx_json_put_name(out, "new");
        if (is_field)
            rows[i].value(d->now, c->after, out);
        else
            hx_json_put_text(out, NULL, hx_slice_of(c->is[i]));
        hx_json_put_bool(out, "part_of_every_key", row_is_key(i));
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
    hx_json_close(out, '}');
}

static void write_change(diff *d, const change *c, bool first)
{
    hx_buf out;
    hx_buf_init(&out, NULL, PIECE_BYTES_MAX);
    if (!first) hx_buf_puts(&out, ",");
    put_change(d, c, &out);
    (void)fwrite(out.data, 1, out.len, stdout);
    hx_buf_free(&out);
}

/* Prints every change: routes in the order of the new file, routes that are gone, the defaults. Returns how many. */
static size_t print_changes(diff *d, bool json)
{
    size_t printed = 0;
    const hx_policy_set *now = &d->now->policies, *old = &d->old->policies;
    for (size_t i = 0; i < now->count + old->count + 1; i++) {
        change c = {0};
        if (i < now->count) {
            c = change_of(d, before(d->old, &now->routes[i]), &now->routes[i]);
        } else if (i < now->count + old->count) {
            const hx_policy *route = &old->routes[i - now->count];
            if (after(d->now, route)) continue;
            c = change_of(d, route, NULL);
        } else {
            c = change_of(d, &old->defaults, &now->defaults);
        }
        if (!c.kind) continue;
        if (json)
            write_change(d, &c, printed == 0);
        else
            print_change(d, &c);
        printed++;
    }
    return printed;
}

static void print_lines(const char *title, hx_slice lines)
{
    hx_slice line;
    if (lines.len > 0) (void)printf("\n%s\n", title);
    while (lines.len > 0 && hx_slice_next(&lines, '\n', &line))
        if (line.len > 0) (void)printf("  %.*s\n", HX_FMT(line));
}

static void print_json(diff *d, bool taken)
{
    hx_buf out;
    (void)printf("{\"ok\":%s,\"errors\":[],\"routes\":[", taken ? "true" : "false");
    (void)print_changes(d, true);
    hx_buf_init(&out, NULL, PIECE_BYTES_MAX);
    hx_json_close(&out, ']');
    hx_json_put_lines(&out, "refused", hx_buf_slice(&d->refused));
    hx_json_put_lines(&out, "refused_while_operations_live", hx_buf_slice(&d->refused_live));
    hx_buf_puts(&out, "}\n");
    (void)fwrite(out.data, 1, out.len, stdout);
    hx_buf_free(&out);
}

int hx_diff_print(const hx_config *old, const hx_config *now, bool json)
{
    diff d = {.old = old, .now = now};
    hx_buf_init(&d.refused, NULL, LINES_BYTES_MAX);
    hx_buf_init(&d.refused_live, NULL, LINES_BYTES_MAX);
    judge(&d);
    bool taken = d.refused.len + d.refused_live.len == 0;
    if (json) {
        print_json(&d, taken);
    } else {
        (void)printf("%s → %s\n\n", old->file, now->file);
        if (print_changes(&d, false) == 0) (void)printf("  No route is changed.\n");
        print_lines("A reload would refuse this:", hx_buf_slice(&d.refused));
        print_lines("While operations live under the old rules, a reload would refuse this:",
                    hx_buf_slice(&d.refused_live));
        if (d.refused_live.len > 0)
            (void)printf("Do as it says, wait until they have expired, or accept with `hapax reload --accept-rescope` "
                         "that their\nkeys run again as new ones.\n");
        if (taken) (void)printf("\nA reload would take it.\n");
    }
    hx_buf_free(&d.refused);
    hx_buf_free(&d.refused_live);
    hx_arena_free(&d.arena);
    return taken ? HX_EXIT_OK : HX_EXIT_USAGE;
}
