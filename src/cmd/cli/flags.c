/* SPDX-License-Identifier: Apache-2.0 */
/* Reads flags, the same way for every command. A message names the mistake and the help page. */
#include "cmd/cli/cmd.h"

#include "base/check.h"
#include "config/problems.h"

#include <getopt.h>
#include <stdarg.h>
#include <string.h>

#define FIRST_VALUE 256 /* above every letter */
#define HELP (FIRST_VALUE + (int)HX_CMD_FLAGS_MAX)
#define ERRORS_BYTES_MAX (256u * 1024u)

int hx_cmd_misused(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)fprintf(stderr, "hapax %s: ", command);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\nTry `hapax help %s`.\n", command);
    va_end(args);
    return HX_EXIT_USAGE;
}

static const char *flag_at(size_t i, const void *flags)
{
    return ((const hx_cmd_flag *)flags)[i].name;
}

static int unknown_flag(const hx_cmd *cmd, size_t count, const char *text)
{
    hx_slice name = hx_slice_of(text);
    while (name.len > 0 && name.ptr[0] == '-') name = hx_slice_from(name, 1);
    name = hx_slice_first(name, hx_slice_find(name, '='));
    const char *nearest = cmd->flags ? hx_nearest(name, count, flag_at, cmd->flags) : NULL;
    if (nearest) return hx_cmd_misused(cmd->name, "unknown flag %s, did you mean --%s?", text, nearest);
    return hx_cmd_misused(cmd->name, "unknown flag %s", text);
}

typedef struct {
    struct option longs[HX_CMD_FLAGS_MAX + 2];
    char letters[HX_CMD_FLAGS_MAX * 2 + 4];
    size_t count;
} grammar;

static void build(const hx_cmd *cmd, grammar *g)
{
    size_t letters = 0;
    *g = (grammar){0};
    g->letters[letters++] = ':'; /* getopt then returns ':' for a missing value */
    g->letters[letters++] = 'h';
    for (const hx_cmd_flag *flag = cmd->flags; flag && flag->name; flag++) {
        HX_CHECK(g->count < HX_CMD_FLAGS_MAX);
        int argument = flag->argument ? required_argument : no_argument;
        g->longs[g->count] = (struct option){flag->name, argument, NULL, FIRST_VALUE + (int)g->count};
        g->count++;
        if (flag->letter == 0) continue;
        g->letters[letters++] = (char)flag->letter;
        if (flag->argument) g->letters[letters++] = ':';
    }
    g->longs[g->count] = (struct option){"help", no_argument, NULL, HELP};
}

static const hx_cmd_flag *flag_of(const hx_cmd *cmd, const grammar *g, int found)
{
    if (found >= FIRST_VALUE && found < FIRST_VALUE + (int)g->count) return &cmd->flags[found - FIRST_VALUE];
    for (size_t i = 0; i < g->count; i++)
        if (cmd->flags[i].letter != 0 && cmd->flags[i].letter == found) return &cmd->flags[i];
    return NULL;
}

static int wrong_flag(const hx_cmd *cmd, const grammar *g, int found, char **argv)
{
    const hx_cmd_flag *flag = optopt != 0 ? flag_of(cmd, g, optopt) : NULL;
    if (found == ':' && flag) return hx_cmd_misused(cmd->name, "--%s needs a value: %s", flag->name, flag->argument);
    if (flag) return hx_cmd_misused(cmd->name, "--%s takes no value", flag->name);
    if (optopt == HELP) return hx_cmd_misused(cmd->name, "--help takes no value");
    if (optopt == 0) return unknown_flag(cmd, g->count, argv[optind - 1]);
    return hx_cmd_misused(cmd->name, "unknown flag -%c", optopt);
}

/* An operand too many, which may be the value of a flag whose name was left out. */
static int unexpected_argument(const hx_cmd *cmd, const char *text)
{
    hx_slice word = hx_slice_of(text);
    bool is_url = hx_slice_starts(word, HX_LIT("http://")) || hx_slice_starts(word, HX_LIT("https://"));
    const char *meant = is_url                                         ? "upstream"
                        : hx_slice_ends(word, HX_LIT(".yaml"))         ? "config"
                        : hx_slice_starts(word, HX_LIT("journal:"))    ? "store"
                        : hx_slice_starts(word, HX_LIT("postgres://")) ? "store"
                                                                       : "";
    for (const hx_cmd_flag *flag = cmd->flags; flag && flag->name; flag++)
        if (strcmp(flag->name, meant) == 0)
            return hx_cmd_misused(cmd->name, "unexpected argument \"%s\"; did you mean --%s %s?", text, meant, text);
    return hx_cmd_misused(cmd->name, "unexpected argument \"%s\"", text);
}

int hx_cmd_flags(int argc, char **argv, int operands_max, void (*take)(void *user, const char *flag, const char *value),
                 void *user, int *operands)
{
    const hx_cmd *cmd = hx_cmd_find(argv[0]);
    HX_CHECK(cmd);
    grammar g;
    build(cmd, &g);
    opterr = 0;
    optind = 0; /* glibc: start from the first argument again */
    for (;;) {
        int found = getopt_long(argc, argv, g.letters, g.longs, NULL);
        if (found == -1) break;
        if (found == HELP || found == 'h') {
            hx_cmd_page(stdout, cmd);
            return HX_EXIT_OK;
        }
        const hx_cmd_flag *flag = found == '?' || found == ':' ? NULL : flag_of(cmd, &g, found);
        if (!flag) return wrong_flag(cmd, &g, found, argv);
        take(user, flag->name, flag->argument ? optarg : NULL);
    }
    *operands = optind;
    if (argc - optind > operands_max) return unexpected_argument(cmd, argv[optind + operands_max]);
    return -1;
}

bool hx_cmd_config_take(hx_cmd_config *config, const char *flag, const char *value)
{
    hx_config_overrides *overrides = &config->overrides;
    if (strcmp(flag, "config") == 0)
        config->file = value;
    else if (strcmp(flag, "upstream") == 0)
        overrides->upstream = value;
    else if (strcmp(flag, "api") == 0)
        overrides->api = value;
    else if (strcmp(flag, "store") == 0)
        overrides->store = value;
    else if (strcmp(flag, "workers") == 0)
        overrides->workers = value;
    else if (strcmp(flag, "require-key") == 0)
        overrides->require_key = true;
    else if (strcmp(flag, "dev") == 0)
        overrides->dev = true;
    else if (strcmp(flag, "listen") != 0)
        return false;
    else if (overrides->listen_count == HX_LISTEN_MAX)
        config->too_many_listen = true;
    else
        config->listen[overrides->listen_count++] = value;
    overrides->listen = config->listen;
    return true;
}

hx_config *hx_cmd_config_load(const char *command, hx_cmd_config *config)
{
    if (config->too_many_listen) {
        (void)hx_cmd_misused(command, "--listen is given more than %u times", HX_LISTEN_MAX);
        return NULL;
    }
    hx_buf errors;
    hx_buf_init(&errors, NULL, ERRORS_BYTES_MAX);
    hx_config *loaded = hx_config_load(config->file, &config->overrides, &errors);
    if (!loaded) (void)fwrite(errors.data, 1, errors.len, stderr);
    hx_buf_free(&errors);
    return loaded;
}

void hx_cmd_take(const hx_cmd_target *targets, const char *flag, const char *value)
{
    for (; targets->name; targets++) {
        if (strcmp(flag, targets->name) != 0) continue;
        if (targets->text) *targets->text = value;
        if (targets->is_set) *targets->is_set = true;
    }
}
