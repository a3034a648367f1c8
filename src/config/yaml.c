/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a tree of libfyaml's events. The text is checked first, because libfyaml 0.7.12 silently ends a value at a byte
 * that is not UTF-8; its document interface is not used, because it takes 15 s for 20,000 keys. An event that is
 * refused (an alias, for example) leaves an empty text in the tree, so that the next mistake is found too. */
#include "config/yaml.h"

#include "base/check.h"
#include "base/memory/map.h"

#include <libfyaml.h>
#include <string.h>

#define SEARCHED_ONE_BY_ONE 16u

typedef struct {
    hx_problems *problems;
    hx_slice source;
    struct fy_parser *parser;
    hx_yaml *root;
    hx_yaml *open[HX_YAML_DEPTH_MAX]; /* maps and lists that are not closed yet, outermost first */
    hx_yaml *key[HX_YAML_DEPTH_MAX];  /* the key whose value comes next */
    size_t depth;
    size_t skipping;       /* inside a key that is itself a map or a list: refused, and its events are counted only */
    uint32_t line, column; /* of the last event that has a place */
    unsigned documents;
    bool stopped;
} reader;

/* Returns the length of the UTF-8 sequence at the start; 0: it is invalid (RFC 3629: no surrogates, not overlong). */
static size_t utf8_len(const unsigned char *s, size_t left)
{
    unsigned char c = s[0];
    if (c < 0x80) return 1;
    size_t len = c >= 0xc2 && c <= 0xdf ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (len == 0 || len > left) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (c == 0xe0 && s[1] < 0xa0) return 0;
    if (c == 0xed && s[1] > 0x9f) return 0;
    if (c == 0xf0 && s[1] < 0x90) return 0;
    if (c == 0xf4 && s[1] > 0x8f) return 0;
    return len;
}

static bool check_bytes(hx_slice text, hx_problems *problems)
{
    uint32_t line = 1, column = 1;
    for (size_t i = 0; i < text.len;) {
        unsigned char c = (unsigned char)text.ptr[i];
        size_t len = utf8_len((const unsigned char *)text.ptr + i, text.len - i);
        if (len == 0) {
            hx_config_problem_at(problems, line, column, "byte 0x%02x is not UTF-8; save the file as UTF-8 text", c);
            return false;
        }
        if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
            hx_config_problem_at(problems, line, column, "control byte 0x%02x: this is not a text file", c);
            return false;
        }
        bool ends_line = c == '\n' || (c == '\r' && (i + 1 == text.len || text.ptr[i + 1] != '\n'));
        column = ends_line ? 1 : column + 1;
        line += ends_line ? 1 : 0;
        i += len;
    }
    return true;
}

static void place(reader *r, const struct fy_mark *mark, uint32_t columns_before)
{
    if (!mark) return;
    r->line = (uint32_t)mark->line + 1;
    r->column = (uint32_t)mark->column + 1;
    if (r->column > columns_before) r->column -= columns_before;
}

static hx_yaml *new_node(reader *r, hx_yaml_kind kind)
{
    hx_yaml *node = hx_arena_zalloc(r->problems->arena, sizeof *node);
    node->kind = kind;
    node->text = HX_EMPTY;
    node->line = r->line;
    node->column = r->column;
    return node;
}

/* Adds a node to the tree: as a key, as the value of the key before it, as an item, or as the root. */
static void attach(reader *r, hx_yaml *node)
{
    if (r->depth == 0) {
        if (!r->root) r->root = node;
        return;
    }
    hx_yaml *parent = r->open[r->depth - 1];
    if (parent->kind == HX_YAML_MAP) {
        hx_yaml **key = &r->key[r->depth - 1];
        if (!*key) {
            *key = node;
            return;
        }
        node->key = *key;
        *key = NULL;
    }
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
    parent->count++;
}

static bool expects_key(const reader *r)
{
    return r->depth > 0 && r->open[r->depth - 1]->kind == HX_YAML_MAP && !r->key[r->depth - 1];
}

static void refuse(reader *r, const char *what, const char *instead)
{
    hx_config_problem_at(r->problems, r->line, r->column, "%s not allowed in a configuration: %s", what, instead);
}

static void refuse_decorations(reader *r, const struct fy_token *anchor, const struct fy_token *tag)
{
    if (anchor) refuse(r, "an anchor (&name) is", "what several routes share goes into \"defaults\"");
    if (tag) refuse(r, "a tag (!name) is", "write the bare value");
}

static void read_scalar(reader *r, const struct fy_event *event)
{
    struct fy_token *token = event->scalar.value;
    enum fy_scalar_style style = token ? fy_token_scalar_style(token) : FYSS_PLAIN;
    bool quoted = style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    if (token) place(r, fy_token_start_mark(token), quoted ? 1 : 0);
    refuse_decorations(r, event->scalar.anchor, event->scalar.tag);
    size_t len = 0;
    const char *text = token ? fy_token_get_text(token, &len) : NULL;
    bool is_key = expects_key(r);
    hx_yaml *node = new_node(r, HX_YAML_TEXT);
    if (text) node->text = (hx_slice){hx_arena_terminated(r->problems->arena, (hx_slice){text, len}), len};
    node->is_null = style == FYSS_PLAIN && (len == 0 || hx_slice_eq(node->text, HX_LIT("~")) ||
                                            hx_slice_eq_nocase(node->text, HX_LIT("null")));
    node->refused = is_key && !quoted && hx_slice_eq(node->text, HX_LIT("<<"));
    if (node->refused) refuse(r, "a merge key (<<) is", "what several routes share goes into \"defaults\"");
    attach(r, node);
}

static void read_alias(reader *r, const struct fy_event *event)
{
    place(r, fy_token_start_mark(event->alias.anchor), 1);
    refuse(r, "an alias (*name) is", "what several routes share goes into \"defaults\"");
    hx_yaml *node = new_node(r, HX_YAML_TEXT);
    node->refused = true;
    attach(r, node);
}

static void open_node(reader *r, hx_yaml_kind kind, struct fy_token *start, const struct fy_token *anchor,
                      const struct fy_token *tag)
{
    if (start) place(r, fy_token_start_mark(start), 0);
    refuse_decorations(r, anchor, tag);
    if (expects_key(r)) {
        hx_config_problem_at(r->problems, r->line, r->column, "a key must be a name, not a %s",
                             kind == HX_YAML_MAP ? "map" : "list");
        r->skipping = 1;
        hx_yaml *key = new_node(r, HX_YAML_TEXT);
        key->refused = true;
        attach(r, key);
        return;
    }
    if (r->depth == HX_YAML_DEPTH_MAX) {
        hx_config_problem_at(r->problems, r->line, r->column, "nested more than %u deep; no option is",
                             HX_YAML_DEPTH_MAX);
        r->stopped = true;
        return;
    }
    hx_yaml *node = new_node(r, kind);
    attach(r, node);
    r->open[r->depth] = node;
    r->key[r->depth] = NULL;
    r->depth++;
}

/* The second one is skipped, so that no list is read twice. */
static void report_twice(reader *r, const hx_yaml *first, hx_yaml *again)
{
    if (again->refused) return;
    again->refused = true;
    hx_config_problem_at(r->problems, again->line, again->column, "%s is given twice; it is also on line %u",
                         hx_quoted(r->problems->arena, again->text), first->line);
}

static void refuse_duplicates(reader *r, const hx_yaml *map)
{
    if (map->count <= SEARCHED_ONE_BY_ONE) {
        for (const hx_yaml *value = map->first; value; value = value->next)
            for (const hx_yaml *before = map->first; before != value; before = before->next)
                if (hx_slice_eq(before->key->text, value->key->text)) {
                    report_twice(r, before->key, value->key);
                    break;
                }
        return;
    }
    hx_map *seen = hx_map_new();
    for (const hx_yaml *value = map->first; value; value = value->next) {
        const hx_yaml *before = hx_map_get(seen, value->key->text);
        if (before)
            report_twice(r, before, value->key);
        else
            hx_map_put(seen, value->key->text, value->key);
    }
    hx_map_free(&seen);
}

static void close_node(reader *r)
{
    HX_CHECK(r->depth > 0);
    hx_yaml *node = r->open[--r->depth];
    if (node->kind == HX_YAML_MAP) refuse_duplicates(r, node);
}

static void begin_document(reader *r, struct fy_event *event)
{
    if (r->documents++ == 0) return;
    place(r, fy_event_start_mark(event), 0);
    refuse(r, "a second document (after \"---\") is", "a file is one configuration");
    r->stopped = true;
}

static void read_event(reader *r, struct fy_event *event)
{
    if (r->skipping > 0) {
        if (event->type == FYET_MAPPING_START || event->type == FYET_SEQUENCE_START) r->skipping++;
        if (event->type == FYET_MAPPING_END || event->type == FYET_SEQUENCE_END) r->skipping--;
        return;
    }
    switch (event->type) {
    case FYET_DOCUMENT_START: begin_document(r, event); break;
    case FYET_SCALAR: read_scalar(r, event); break;
    case FYET_ALIAS: read_alias(r, event); break;
    case FYET_MAPPING_START:
        open_node(r, HX_YAML_MAP, event->mapping_start.mapping_start, event->mapping_start.anchor,
                  event->mapping_start.tag);
        break;
    case FYET_SEQUENCE_START:
        open_node(r, HX_YAML_LIST, event->sequence_start.sequence_start, event->sequence_start.anchor,
                  event->sequence_start.tag);
        break;
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END: close_node(r); break;
    default: break;
    }
}

static bool line_has(hx_slice source, int number, char byte)
{
    hx_slice line;
    while (hx_slice_next(&source, '\n', &line))
        if (--number <= 0) return hx_slice_find(line, byte) != SIZE_MAX;
    return false;
}

static void report_syntax(reader *r, struct fy_diag *diag)
{
    void *cursor = NULL;
    const struct fy_diag_error *error = fy_diag_errors_iterate(diag, &cursor);
    if (!error || error->line <= 0) {
        hx_config_problem_at(r->problems, r->line, r->column, "this can't be read as YAML from here on");
        return;
    }
    const char *hint = line_has(r->source, error->line, '{') ? "; a value with \"{\" in it may need quotes" : "";
    hx_config_problem_at(r->problems, (uint32_t)error->line, error->column > 0 ? (uint32_t)error->column : 1,
                         "this is not well-formed YAML: %s%s", error->msg, hint);
}

static struct fy_diag *new_diag(void)
{
    struct fy_diag_cfg config;
    fy_diag_cfg_default(&config);
    config.fp = NULL;
    config.colorize = false;
    struct fy_diag *diag = fy_diag_create(&config);
    if (!diag) hx_fatal(HX_EXIT_BUG, "out of memory");
    fy_diag_set_collect_errors(diag, true);
    return diag;
}

static bool read_events(reader *r, struct fy_diag *diag)
{
    bool ended = false;
    while (!ended && !r->stopped) {
        struct fy_event *event = fy_parser_parse(r->parser);
        if (!event) break;
        ended = event->type == FYET_STREAM_END;
        read_event(r, event);
        fy_parser_event_free(r->parser, event);
    }
    if (!ended && !r->stopped) report_syntax(r, diag);
    return ended;
}

hx_yaml *hx_yaml_read(hx_slice text, hx_problems *problems, bool *whole)
{
    *whole = false;
    if (hx_slice_starts(text, HX_LIT("\xef\xbb\xbf"))) text = hx_slice_from(text, 3); /* a byte order mark */
    if (!check_bytes(text, problems)) return NULL;
    struct fy_diag *diag = new_diag();
    const struct fy_parse_cfg config = {
        .flags = FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE | FYPCF_ALLOW_DUPLICATE_KEYS,
        .diag = diag,
    };
    reader r = {.problems = problems, .source = text, .line = 1, .column = 1};
    r.parser = fy_parser_create(&config);
    if (!r.parser) hx_fatal(HX_EXIT_BUG, "out of memory");
    if (text.len == 0)
        *whole = true;
    else if (fy_parser_set_string(r.parser, text.ptr, text.len) != 0)
        hx_fatal(HX_EXIT_BUG, "out of memory");
    else
        *whole = read_events(&r, diag);
    fy_parser_destroy(r.parser);
    fy_diag_destroy(diag);
    return r.root;
}

hx_yaml *hx_yaml_get(const hx_yaml *map, const char *key)
{
    if (!map || map->kind != HX_YAML_MAP) return NULL;
    for (hx_yaml *value = map->first; value; value = value->next)
        if (hx_slice_eq(value->key->text, hx_slice_of(key))) return value;
    return NULL;
}
