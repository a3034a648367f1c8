/* SPDX-License-Identifier: Apache-2.0 */
/* hapax mcp: the careful clients as tools of the Model Context Protocol, on standard input and output. */
#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "cmd/mcp/server.h"
#include "cmd/send/perform.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static void take(void *user, const char *flag, const char *value)
{
    (void)hx_cmd_config_take(user, flag, value);
}

/* Takes the protocol's streams away from everything else: what prints goes to standard error, and a command reads
 * nothing. */
static bool take_streams(hx_mcp_server *server)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    server->in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    server->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    return null >= 0 && server->in >= 0 && server->out >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
           dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

static int serve(const hx_config *config, hx_arena *arena)
{
    hx_mcp_server server = {.config = &config->mcp,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .call_ended = PTHREAD_COND_INITIALIZER,
                            .out_lock = PTHREAD_MUTEX_INITIALIZER};
    hx_slice intents = config->mcp.intents;
    server.requests = intents.len > 0 ? hx_arena_terminated(arena, intents) : hx_send_directory(arena);
    if (!server.requests || server.requests[0] != '/')
        return hx_cmd_misused("mcp", "Where are intents kept? Write \"intents\" with a whole path under \"mcp\".");
    server.commands = hx_arena_printf(arena, "%s/commands", server.requests).ptr;
    if (!take_streams(&server)) {
        fprintf(stderr, "hapax mcp: can't use standard input and output: %s.\n", strerror(errno));
        return HX_EXIT_USAGE;
    }
    (void)signal(SIGPIPE, SIG_IGN);
    fprintf(stderr, "hapax mcp: \"%.*s\" serves %zu hosts and %zu commands.\n", HX_FMT(config->mcp.name),
            config->mcp.host_count, config->mcp.command_count);
    hx_mcp_serve(&server);
    return HX_EXIT_OK;
}

int hx_cmd_mcp(int argc, char **argv)
{
    hx_arena arena = {0};
    hx_cmd_config given = {.overrides = {.agents_only = true}};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, take, &given, &operands);
    if (code >= 0) return code;
    if (!given.file) return hx_cmd_misused("mcp", "What may agents do? Give --config FILE, with \"mcp\" in it.");
    hx_config *config = hx_cmd_config_load("mcp", &given);
    if (!config) return HX_EXIT_USAGE;
    if (config->mcp_given)
        code = serve(config, &arena);
    else
        code = hx_cmd_misused("mcp", "%s has no \"mcp\": agents may do nothing. See docs/guide/agents.md.", given.file);
    hx_config_free(&config);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return code;
}
