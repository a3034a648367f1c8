/* SPDX-License-Identifier: Apache-2.0 */
/* hapax version. */
#include "cmd/cmd.h"

#include "base/check.h"

static void take(void *user, const char *flag, const char *value)
{
    (void)user, (void)flag, (void)value;
}

int hx_cmd_version(int argc, char **argv)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, take, NULL, &operands);
    if (code >= 0) return code;
    (void)printf("hapax %s\n", HAPAX_VERSION);
    return HX_EXIT_OK;
}
