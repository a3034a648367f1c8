/* SPDX-License-Identifier: Apache-2.0 */
/* hapax reload: has a running daemon read its configuration again, and says what came of it. */
#include "base/check.h"
#include "cmd/cli/ask_daemon.h"
#include "cmd/cli/cmd.h"
#include "cmd/keys.h"
#include "core/json/json.h"

#include <string.h>

typedef struct {
    hx_admin_whereabouts where;
    bool accept_rescope;
    bool json;
} arguments;

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    if (strcmp(flag, "admin") == 0)
        given->where.admin = value;
    else if (strcmp(flag, "config") == 0)
        given->where.config = value;
    else if (strcmp(flag, "store") == 0)
        given->where.store = value;
    else if (strcmp(flag, "accept-rescope") == 0)
        given->accept_rescope = true;
    else
        given->json = true;
}

/* Each string of an array in the answer, on a line of its own. */
static void print_lines(FILE *out, const char *indent, hx_slice answer, const char *pointer, hx_arena *arena)
{
    size_t count;
    const hx_slice *lines = hx_keys_records(answer, pointer, arena, &count);
    for (size_t i = 0; i < count; i++) {
        hx_slice text;
        if (hx_json_string(lines[i], arena, &text)) (void)fprintf(out, "%s%s\n", indent, hx_keys_clean(text, arena));
    }
}

static int report(const hx_admin_reply *reply, hx_arena *arena)
{
    if (reply->status == 200) {
        (void)printf("The configuration is in force: generation %s.\n",
                     hx_keys_member(reply->body, "generation", arena));
        print_lines(stdout, "accepted: ", reply->body, "/accepted", arena);
        return HX_EXIT_OK;
    }
    (void)fprintf(stderr, "hapax reload: %s (%u)\n", hx_keys_member(reply->body, "detail", arena), reply->status);
    print_lines(stderr, "  ", reply->body, "/errors", arena);
    (void)fprintf(stderr, "%s\n", hx_keys_member(reply->body, "hint", arena));
    return reply->status >= 500 ? HX_EXIT_STORE : HX_EXIT_USAGE;
}

int hx_cmd_reload(int argc, char **argv)
{
    arguments given = {0};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, take, &given, &operands);
    if (code >= 0) return code;
    hx_arena arena = {0};
    hx_slice address = HX_EMPTY;
    hx_admin_reply reply;
    hx_error_text error;
    code = hx_find_daemon(argv[0], &given.where, &arena, &address);
    if (code < 0) {
        hx_admin_request request = {.method = "POST", .target = HX_LIT("/v1/reload")};
        request.body = given.accept_rescope ? HX_LIT("{\"accept_rescope\":true}") : HX_LIT("{}");
        if (!hx_ask_daemon(address, &request, &arena, &reply, error)) {
            (void)fprintf(stderr, "hapax reload: %s\n", error);
            code = HX_EXIT_STORE;
        } else if (given.json) {
            (void)fwrite(reply.body.ptr, 1, reply.body.len, stdout);
            code = reply.status == 200 ? HX_EXIT_OK : reply.status >= 500 ? HX_EXIT_STORE : HX_EXIT_USAGE;
        } else {
            code = report(&reply, &arena);
        }
    }
    hx_arena_free(&arena);
    return code;
}
