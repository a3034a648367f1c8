/* SPDX-License-Identifier: Apache-2.0 */
/* hapax serve: the gateway as a daemon. */
#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "daemon/daemon.h"

#include <string.h>
#include <unistd.h>

typedef struct {
    hx_cmd_config config;
    bool accept_rescope;
    bool accept_clock;
} arguments;

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    if (strcmp(flag, "accept-rescope") == 0) {
        given->accept_rescope = true;
        return;
    }
    if (strcmp(flag, "accept-clock") == 0) {
        given->accept_clock = true;
        return;
    }
    bool known = hx_cmd_config_take(&given->config, flag, value);
    HX_CHECK(known);
}

/* Makes the path absolute, so that a reload finds the file after a change of directory. Links are not resolved: a
 * reload reads the file to which a link then points. */
static const char *absolute(const char *file, hx_arena *arena)
{
    char here[4096];
    if (!file || file[0] == '/' || !getcwd(here, sizeof here)) return file;
    return hx_arena_terminated(arena, hx_arena_printf(arena, "%s/%s", here, file));
}

int hx_cmd_serve(int argc, char **argv)
{
    arguments given = {0};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, take, &given, &operands);
    if (code >= 0) return code;
    hx_config *config = hx_cmd_config_load("serve", &given.config);
    if (!config) return HX_EXIT_USAGE;
    hx_arena arena = {0};
    hx_daemon_source source = {.file = absolute(given.config.file, &arena),
                               .flags = given.config.overrides,
                               .accept_rescope = given.accept_rescope,
                               .accept_clock = given.accept_clock};
    hx_daemon *daemon = NULL;
    code = hx_daemon_open(config, &source, &daemon);
    if (code == HX_EXIT_OK) code = hx_daemon_run(daemon);
    hx_daemon_close(&daemon);
    hx_arena_free(&arena);
    return code;
}
