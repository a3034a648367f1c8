/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command and runs it. */
#include "base/check.h"
#include "cmd/cmd.h"

#include <string.h>

int main(int argc, char **argv)
{
    if (argc < 2) {
        hx_cmd_overview(stdout);
        return HX_EXIT_OK;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) name = "version";
    const hx_cmd *cmd = hx_cmd_find(name);
    if (!cmd) return hx_cmd_unknown(name);
    argv[1] = (char *)(uintptr_t)cmd->name;
    int code = cmd->run(argc - 1, argv + 1);
    /* A full disk behind a redirection must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        (void)fprintf(stderr, "hapax %s: standard output can't be written\n", cmd->name);
        return code == HX_EXIT_OK ? HX_EXIT_USAGE : code;
    }
    return code;
}
