/* SPDX-License-Identifier: Apache-2.0 */
/* hapax serve: the gateway as a daemon. */
#include "base/check.h"
#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/daemon.h"

static void take(void *user, const char *flag, const char *value)
{
    bool known = hx_cmd_config_take(user, flag, value);
    HX_CHECK(known);
}

int hx_cmd_serve(int argc, char **argv)
{
    hx_cmd_config flags = {0};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, take, &flags, &operands);
    if (code >= 0) return code;
    hx_config *config = hx_cmd_config_load("serve", &flags);
    if (!config) return HX_EXIT_USAGE;
    hx_log_readable(config->log_readable);
    hx_daemon *daemon = NULL;
    code = hx_daemon_open(config, &daemon);
    if (code == HX_EXIT_OK) code = hx_daemon_run(daemon);
    hx_daemon_close(&daemon);
    hx_config_free(&config);
    return code;
}
