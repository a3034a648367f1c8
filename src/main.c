/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the command and runs it. */
#include "base/check.h"
#include "base/program/process.h"
#include "cmd/cli/cmd.h"

int main(int argc, char **argv)
{
    hx_process_init();
    if (argc < 2) {
        hx_cmd_overview(stdout);
        return HX_EXIT_OK;
    }
    const hx_cmd *cmd = hx_cmd_find(argv[1]);
    if (!cmd) return hx_cmd_unknown(argv[1]);
    int code = cmd->run(argc - 1, argv + 1);
    /* A full disk behind a redirection must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        (void)fprintf(stderr, "hapax %s: standard output can't be written\n", cmd->name);
        return code == HX_EXIT_OK ? HX_EXIT_USAGE : code;
    }
    return code;
}
