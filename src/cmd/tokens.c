/* SPDX-License-Identifier: Apache-2.0 */
/* hapax tokens: makes, lists and revokes the tokens of a running daemon's API. */
#include "base/check.h"
#include "base/text.h"
#include "cmd/cli/ask_daemon.h"
#include "cmd/cli/cmd.h"
#include "cmd/cli/table.h"
#include "cmd/keys.h"
#include "core/json/json_writer.h"

#include <string.h>

#define WORDS_BYTES_MAX 4096u
#define TOKENS_BYTES_MAX (64u * 1024u * 1024u)

typedef struct {
    hx_admin_whereabouts where;
    const char *scope, *tenant;
    bool json;
    const char *operand; /* NULL: none */
    hx_slice address;
    hx_arena arena;
} arguments;

static void take(void *user, const char *flag, const char *value)
{
    arguments *given = user;
    const struct {
        const char *name;
        const char **text;
    } flags[] = {{"admin", &given->where.admin},
                 {"config", &given->where.config},
                 {"store", &given->where.store},
                 {"scope", &given->scope},
                 {"tenant", &given->tenant}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(flags[i].name, flag) == 0) *flags[i].text = value;
    if (strcmp(flag, "json") == 0) given->json = true;
}

static int ask(arguments *given, const char *method, hx_slice target, hx_slice body, hx_admin_reply *reply)
{
    hx_admin_request request = {.method = method, .target = target, .body = body};
    return hx_ask_daemon_well("tokens", given->address, &request, &given->arena, reply);
}

static int create(arguments *given)
{
    hx_buf body;
    hx_admin_reply reply;
    if (!given->scope)
        return hx_cmd_misused("tokens", "create needs --scope: publish, consume, operate, view, or several of them");
    hx_slice rest = hx_slice_of(given->scope), scope;
    hx_buf_init(&body, &given->arena, 3 * WORDS_BYTES_MAX * 6 + 1024);
    hx_json_open(&body, NULL, '{');
    hx_json_put_text(&body, "name", hx_slice_of(given->operand));
    hx_json_open(&body, "scopes", '[');
    while (hx_slice_next(&rest, ',', &scope)) hx_json_put_text(&body, NULL, hx_slice_trim(scope));
    hx_json_close(&body, ']');
    if (given->tenant) hx_json_put_text(&body, "tenant", hx_slice_of(given->tenant));
    hx_json_close(&body, '}');
    int code = ask(given, "POST", HX_LIT("/v1/tokens"), hx_buf_slice(&body), &reply);
    if (code >= 0) return code;
    if (given->json) {
        (void)fwrite(reply.body.ptr, 1, reply.body.len, stdout);
        return HX_EXIT_OK;
    }
    (void)printf("%s\n", hx_keys_member(reply.body, "token", &given->arena));
    (void)fflush(stdout);
    (void)fprintf(stderr, "This is the token \"%s\", id %s. It is not shown again: keep it as a secret.\n",
                  given->operand, hx_keys_member(reply.body, "id", &given->arena));
    return HX_EXIT_OK;
}

static void print_table(const hx_slice *tokens, size_t count, hx_arena *arena)
{
    hx_table_row *rows = hx_arena_zalloc(arena, (count + 1) * sizeof *rows);
    rows[0] = (hx_table_row){.cells = {"ID", "NAME", "SCOPES", "TENANT", "CREATED", "BY"}};
    for (size_t i = 0; i < count; i++) {
        const char *tenant = hx_keys_member(tokens[i], "tenant", arena);
        rows[i + 1] = (hx_table_row){
            .cells = {hx_keys_member(tokens[i], "id", arena), hx_keys_member(tokens[i], "name", arena),
                      hx_keys_texts(tokens[i], "/scopes", arena), tenant[0] ? tenant : "-",
                      hx_keys_member(tokens[i], "created_at", arena), hx_keys_member(tokens[i], "created_by", arena)}};
    }
    hx_table_print(rows, count + 1, 6);
}

/* Reads all pages first: the columns are as wide as their widest cell. */
static int list(arguments *given)
{
    hx_buf tokens;
    const char *cursor = "";
    hx_buf_init(&tokens, &given->arena, TOKENS_BYTES_MAX);
    do {
        size_t count;
        hx_admin_reply reply;
        hx_slice target = hx_arena_printf(&given->arena, "/v1/tokens?limit=1000&cursor=%s", cursor);
        int code = ask(given, "GET", target, HX_EMPTY, &reply);
        if (code >= 0) return code;
        const hx_slice *page = hx_keys_records(reply.body, "/tokens", &given->arena, &count);
        hx_buf_put(&tokens, (hx_slice){(const char *)page, count * sizeof *page});
        cursor = hx_keys_member(reply.body, "cursor", &given->arena);
    } while (cursor[0]);
    const hx_slice *all = (const hx_slice *)(const void *)tokens.data;
    size_t count = tokens.len / sizeof *all;
    if (given->json) {
        (void)printf("{\"tokens\":[");
        for (size_t i = 0; i < count; i++) (void)printf("%s%.*s", i > 0 ? ",\n" : "", HX_FMT(all[i]));
        (void)printf("]}\n");
    } else if (count > 0) {
        print_table(all, count, &given->arena);
    } else {
        (void)fprintf(stderr, "There are no tokens.\n");
    }
    return HX_EXIT_OK;
}

static int revoke(arguments *given)
{
    hx_buf target;
    hx_admin_reply reply;
    hx_buf_init(&target, &given->arena, 3 * WORDS_BYTES_MAX + 64);
    hx_buf_puts(&target, "/v1/tokens/");
    hx_text_percent_put(&target, hx_slice_of(given->operand));
    int code = ask(given, "DELETE", hx_buf_slice(&target), HX_EMPTY, &reply);
    if (code >= 0) return code;
    if (given->json)
        (void)fwrite(reply.body.ptr, 1, reply.body.len, stdout);
    else
        (void)printf("Tokens revoked: %s. Other gateways on the same store refuse them within 5 seconds.\n",
                     hx_keys_member(reply.body, "revoked", &given->arena));
    return HX_EXIT_OK;
}

int hx_cmd_tokens(int argc, char **argv)
{
    static const struct {
        const char *name, *operand;
        int (*run)(arguments *given);
    } actions[] = {{"create", "NAME", create}, {"list", NULL, list}, {"revoke", "ID or NAME", revoke}};
    arguments given = {0};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 2, take, &given, &operands);
    if (code >= 0) return code;
    if (operands == argc) return hx_cmd_misused(argv[0], "a command is missing: create, list or revoke");
    const char *verb = argv[operands];
    given.operand = operands + 1 < argc ? argv[operands + 1] : NULL;
    size_t i = 0;
    while (i < 3 && strcmp(actions[i].name, verb) != 0) i++;
    if (i == 3) return hx_cmd_misused(argv[0], "unknown command \"%s\": use create, list or revoke", verb);
    if ((given.operand != NULL) != (actions[i].operand != NULL))
        return hx_cmd_misused(argv[0], actions[i].operand ? "%s needs %s" : "unexpected argument \"%s\"",
                              actions[i].operand ? verb : given.operand, actions[i].operand);
    if (strcmp(verb, "create") != 0 && (given.scope || given.tenant))
        return hx_cmd_misused(argv[0], "--scope and --tenant are for create");
    const char *const texts[] = {given.operand, given.scope, given.tenant};
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++)
        if (texts[k] && strlen(texts[k]) > WORDS_BYTES_MAX) return hx_cmd_misused(argv[0], "an argument is too long");
    code = hx_find_daemon(argv[0], &given.where, &given.arena, &given.address);
    if (code < 0) code = actions[i].run(&given);
    hx_arena_free(&given.arena);
    return code;
}
