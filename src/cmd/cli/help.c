/* SPDX-License-Identifier: Apache-2.0 */
/* hapax help, and hapax without a command. */
#include "cmd/cli/cmd.h"

#include "base/check.h"
#include "config/problems.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool hx_cmd_colours(FILE *out)
{
    const char *no_color = getenv("NO_COLOR");
    return isatty(fileno(out)) && !(no_color && no_color[0] != '\0');
}

void hx_cmd_overview(FILE *out)
{
    size_t count;
    const hx_cmd *all = hx_cmd_all(&count);
    const char *bold = hx_cmd_colours(out) ? "\033[1m" : "", *plain = hx_cmd_colours(out) ? "\033[0m" : "";
    (void)fprintf(
        out,
        "%shapax%s gives any HTTP service exactly-once effects: a gateway in front of it runs each request with\n"
        "an Idempotency-Key once, and answers every retry with the first response.\n\n"
        "  hapax COMMAND [flags]\n\n",
        bold, plain);
    for (size_t i = 0; i < count; i++)
        if (!all[i].hidden) (void)fprintf(out, "  %s%-9s%s %s\n", bold, all[i].name, plain, all[i].summary);
    (void)fprintf(out, "\nFor more about a command: `hapax help COMMAND` or `hapax COMMAND --help`.\n"
                       "Exit codes: 0 done, 2 usage or configuration, 3 store, 4 address in use, 70 a bug in Hapax.\n");
}

static size_t flag_width(const hx_cmd_flag *flag)
{
    return strlen(flag->name) + (flag->argument ? 1 + strlen(flag->argument) : 0);
}

void hx_cmd_page(FILE *out, const hx_cmd *cmd)
{
    const char *bold = hx_cmd_colours(out) ? "\033[1m" : "", *plain = hx_cmd_colours(out) ? "\033[0m" : "";
    (void)fprintf(out, "  %s%s%s\n\n%c%s.\n", bold, cmd->usage, plain, cmd->summary[0] - ('a' - 'A'), cmd->summary + 1);
    if (cmd->details) (void)fprintf(out, "%s\n", cmd->details);
    if (!cmd->flags) return;
    size_t widest = 0;
    for (const hx_cmd_flag *flag = cmd->flags; flag->name; flag++)
        if (flag_width(flag) > widest) widest = flag_width(flag);
    (void)fprintf(out, "\n");
    for (const hx_cmd_flag *flag = cmd->flags; flag->name; flag++) {
        char letter[] = {flag->letter ? '-' : ' ', flag->letter ? (char)flag->letter : ' ', flag->letter ? ',' : ' ',
                         0};
        (void)fprintf(out, "  %s --%s%s%s%*s  %s\n", letter, flag->name, flag->argument ? " " : "",
                      flag->argument ? flag->argument : "", (int)(widest - flag_width(flag)), "", flag->text);
    }
}

int hx_cmd_help(int argc, char **argv)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, NULL, NULL, &operands);
    if (code >= 0) return code;
    if (operands == argc) {
        hx_cmd_overview(stdout);
        return HX_EXIT_OK;
    }
    const hx_cmd *cmd = hx_cmd_find(argv[operands]);
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
