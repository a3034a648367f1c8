/* SPDX-License-Identifier: Apache-2.0 */
/* hapax version. */
#include "cmd/cli/cmd.h"

#include "base/check.h"

int hx_cmd_version(int argc, char **argv)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, NULL, NULL, &operands);
    if (code >= 0) return code;
    (void)printf("hapax %s\n", HAPAX_VERSION);
    return HX_EXIT_OK;
}
