/* SPDX-License-Identifier: Apache-2.0 */
/* hapax help, and hapax without a command. */
#include "cmd/cli/cmd.h"

#include "base/check.h"
#include "config/problems.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMNS 80u
#define TERM_COLUMNS_MAX 30u
#define COMMANDS_MAX 32u

bool hx_cmd_colours(FILE *out)
{
    const char *no_color = getenv("NO_COLOR");
    return isatty(fileno(out)) && !(no_color && no_color[0] != '\0');
}

/* Columns of UTF-8 text: one for each character. */
static size_t width_of(const char *text, size_t bytes)
{
    size_t width = 0;
    for (size_t i = 0; i < bytes; i++) width += ((unsigned char)text[i] & 0xc0) != 0x80;
    return width;
}

/* Prints the text in lines of up to COLUMNS columns. The caller has printed the first line's indent. */
static void wrap(FILE *out, size_t indent, const char *text)
{
    for (size_t column = indent; *text;) {
        size_t bytes = strcspn(text, " "), width = width_of(text, bytes);
        if (column > indent && column + 1 + width > COLUMNS) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            (void)fputc(' ', out);
            column++;
        }
        (void)fprintf(out, "%.*s", (int)bytes, text);
        column += width;
        text += bytes + (text[bytes] == ' ');
    }
    (void)fputc('\n', out);
}

/* Prints a title and the entries, their texts beside the terms, or below them if a term is long. */
static void list(FILE *out, const char *title, const hx_cmd_entry *entries)
{
    const char *bold = hx_cmd_colours(out) ? "\033[1m" : "", *plain = hx_cmd_colours(out) ? "\033[0m" : "";
    size_t widest = 0;
    if (!entries || !entries[0].term) return;
    for (const hx_cmd_entry *entry = entries; entry->term; entry++) {
        size_t width = width_of(entry->term, strlen(entry->term));
        if (width > widest) widest = width;
    }
    bool below = widest > TERM_COLUMNS_MAX;
    size_t indent = below ? 6 : widest + 4;
    (void)fprintf(out, "\n%s%s:%s\n", bold, title, plain);
    for (const hx_cmd_entry *entry = entries; entry->term; entry++) {
        size_t gap = below ? indent : indent - 2 - width_of(entry->term, strlen(entry->term));
        (void)fprintf(out, "  %s%s%*s", entry->term, below ? "\n" : "", (int)gap, "");
        wrap(out, indent, entry->text);
    }
}

static void list_flags(FILE *out, const hx_cmd_flag *flags, hx_arena *arena)
{
    hx_cmd_entry entries[HX_CMD_FLAGS_MAX + 1] = {0};
    for (size_t i = 0; flags && flags[i].name; i++) {
        HX_CHECK(i < HX_CMD_FLAGS_MAX);
        const char *letter = flags[i].letter ? hx_arena_printf(arena, "-%c, ", flags[i].letter).ptr : "    ";
        const char *argument = flags[i].argument ? flags[i].argument : "";
        const char *space = flags[i].argument ? " " : "";
        entries[i].term = hx_arena_printf(arena, "%s--%s%s%s", letter, flags[i].name, space, argument).ptr;
        entries[i].text = flags[i].text;
    }
    list(out, "Flags", entries);
}

static void list_commands(FILE *out)
{
    size_t count, shown = 0;
    const hx_cmd *all = hx_cmd_all(&count);
    hx_cmd_entry entries[COMMANDS_MAX + 1] = {0};
    HX_CHECK(count <= COMMANDS_MAX);
    for (size_t i = 0; i < count; i++)
        if (!all[i].hidden) entries[shown++] = (hx_cmd_entry){all[i].name, all[i].summary};
    list(out, "Commands", entries);
}

void hx_cmd_page(FILE *out, const hx_cmd *cmd)
{
    const char *bold = hx_cmd_colours(out) ? "\033[1m" : "", *plain = hx_cmd_colours(out) ? "\033[0m" : "";
    const char *details = cmd->details ? cmd->details : "";
    hx_arena arena = {0};
    for (const char *line = cmd->usage, *end; *line; line = end + (*end == '\n')) {
        end = strchrnul(line, '\n');
        (void)fprintf(out, "  %s%.*s%s\n", bold, (int)(end - line), line, plain);
    }
    (void)fputc('\n', out);
    wrap(out, 0, hx_arena_printf(&arena, "%c%s. %s", cmd->summary[0] - ('a' - 'A'), cmd->summary + 1, details).ptr);
    if (!cmd->name) list_commands(out);
    list(out, "Actions", cmd->actions);
    list_flags(out, cmd->flags, &arena);
    list(out, "Examples", cmd->examples);
    list(out, "Exit codes", cmd->exits);
    list(out, "Files", cmd->files);
    list(out, "Environment", cmd->environment);
    hx_arena_free(&arena);
}

void hx_cmd_overview(FILE *out)
{
    hx_cmd brief = hx_cmd_program;
    brief.files = brief.environment = NULL;
    hx_cmd_page(out, &brief);
}

int hx_cmd_help(int argc, char **argv)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, NULL, NULL, &operands);
    if (code >= 0) return code;
    const hx_cmd *cmd = operands == argc ? &hx_cmd_program : hx_cmd_find(argv[operands]);
    if (!cmd) return hx_cmd_unknown(argv[operands]);
    hx_cmd_page(stdout, cmd);
    return HX_EXIT_OK;
}

static const char *visible_at(size_t i, const void *commands)
{
    const hx_cmd *cmd = &((const hx_cmd *)commands)[i];
    return cmd->hidden ? NULL : cmd->name;
}

int hx_cmd_unknown(const char *name)
{
    size_t count;
    const hx_cmd *all = hx_cmd_all(&count);
    const char *nearest = hx_nearest(hx_slice_of(name), count, visible_at, all);
    hx_arena arena = {0};
    const char *quoted = hx_quoted(&arena, hx_slice_of(name));
    if (nearest)
        (void)fprintf(stderr, "hapax: unknown command %s, did you mean \"%s\"?\n", quoted, nearest);
    else
        (void)fprintf(stderr, "hapax: unknown command %s\n", quoted);
    (void)fprintf(stderr, "Try `hapax help`.\n");
    hx_arena_free(&arena);
    return HX_EXIT_USAGE;
}
