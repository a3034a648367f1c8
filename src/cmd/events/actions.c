/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/events/actions.h"

#include "base/check.h"
#include "base/text.h"
#include "cmd/cli/cmd.h"
#include "cmd/keys.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define TARGET_BYTES_MAX (8u * (3u * HX_CALL_TEXT_MAX + 64u))
#define LIST_BYTES_MAX (1u << 20)
#define PAGE_ITEMS 100u /* a delivery has up to 160 KiB of responses */

static void take(void *user, const char *flag, const char *value)
{
    hx_call *call = user;
    if (call->flag_count == HX_CALL_FLAGS_MAX) {
        call->too_many_flags = true;
        return;
    }
    call->flags[call->flag_count].name = flag;
    call->flags[call->flag_count++].value = value ? value : "";
}

const char *hx_call_flag(const hx_call *call, const char *name)
{
    for (size_t i = call->flag_count; i > 0; i--)
        if (strcmp(call->flags[i - 1].name, name) == 0) return call->flags[i - 1].value;
    return NULL;
}

int hx_call_number(const hx_call *call, const char *name, uint64_t most, uint64_t *out)
{
    const char *text = hx_call_flag(call, name);
    uint64_t number;
    if (!text) return -1;
    if (!hx_slice_to_u64(hx_slice_of(text), &number) || number == 0 || number > most)
        return hx_cmd_misused(call->command, "--%s must be between 1 and %llu", name, (unsigned long long)most);
    *out = number;
    return -1;
}

hx_slice hx_call_target(hx_call *call, const char *query, ...)
{
    hx_buf target;
    va_list segments;
    hx_slice rest = hx_slice_of(query), word;
    char separator = '?';
    hx_buf_init(&target, &call->arena, TARGET_BYTES_MAX);
    hx_buf_puts(&target, "/v1");
    va_start(segments, query);
    for (const char *segment = va_arg(segments, const char *); segment; segment = va_arg(segments, const char *)) {
        hx_buf_puts(&target, "/");
        hx_text_percent_put(&target, hx_slice_of(segment));
    }
    va_end(segments);
    while (hx_slice_next(&rest, ' ', &word)) {
        hx_slice name = hx_slice_first(word, hx_slice_find(word, '='));
        const char *value = hx_call_flag(call, hx_arena_terminated(&call->arena, name));
        if (!value && name.len == word.len) continue;
        hx_buf_put(&target, (hx_slice){&separator, 1});
        hx_buf_put(&target, name);
        hx_buf_puts(&target, "=");
        hx_text_percent_put(&target, value ? hx_slice_of(value) : hx_slice_from(word, name.len + 1));
        separator = '&';
    }
    return hx_buf_slice(&target);
}

int hx_call_ask(hx_call *call, const char *method, hx_slice target, hx_slice body, hx_admin_reply *reply)
{
    hx_admin_request request = {.method = method, .target = target, .body = body, .key = hx_call_flag(call, "key")};
    return hx_ask_daemon_well(call->command, call->address, &request, &call->arena, reply);
}

int hx_call_put(const hx_admin_reply *reply)
{
    hx_cmd_put_json(stdout, reply->body);
    return HX_EXIT_OK;
}

bool hx_call_confirmed(const hx_call *call, const char *question)
{
    char answer[16] = "";
    if (hx_call_flag(call, "yes")) return true;
    if (call->json || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)) return false;
    (void)printf("%s [y/N] ", question);
    (void)fflush(stdout);
    return fgets(answer, sizeof answer, stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

int hx_call_list_read(hx_call *call, hx_slice target, const char *name, uint64_t limit, hx_call_list *out)
{
    hx_buf records;
    const char *cursor = "";
    hx_slice pointer = hx_arena_printf(&call->arena, "/%s", name);
    const char *separator = hx_slice_find(target, '?') == SIZE_MAX ? "?" : "&";
    hx_buf_init(&records, &call->arena, LIST_BYTES_MAX);
    HX_CHECK(limit * sizeof(hx_slice) <= LIST_BYTES_MAX);
    do {
        size_t count;
        hx_admin_reply reply;
        uint64_t wanted = limit - records.len / sizeof(hx_slice);
        hx_slice page = hx_arena_printf(&call->arena, "%.*s%slimit=%llu%s%s", HX_FMT(target), separator,
                                        (unsigned long long)(wanted < PAGE_ITEMS ? wanted : PAGE_ITEMS),
                                        cursor[0] ? "&cursor=" : "", cursor);
        int code = hx_call_ask(call, "GET", page, HX_EMPTY, &reply);
        if (code >= 0) return code;
        const hx_slice *items = hx_keys_records(reply.body, pointer.ptr, &call->arena, &count);
        if (count > wanted) count = (size_t)wanted;
        hx_buf_put(&records, (hx_slice){(const char *)items, count * sizeof *items});
        cursor = hx_keys_member(reply.body, "cursor", &call->arena);
    } while (cursor[0] && records.len / sizeof(hx_slice) < limit);
    *out = (hx_call_list){(const hx_slice *)(const void *)records.data, records.len / sizeof(hx_slice), cursor[0] != 0};
    return -1;
}

void hx_call_list_put(const hx_call_list *list, const char *name)
{
    (void)printf("{\"%s\":[", name);
    for (size_t i = 0; i < list->count; i++) {
        (void)fputs(i > 0 ? ",\n" : "", stdout);
        hx_cmd_put_json(stdout, list->items[i]);
    }
    (void)printf("],\"count\":%zu,\"more\":%s}\n", list->count, list->more ? "true" : "false");
}

static bool has_word(const char *words, const char *word, hx_arena *arena)
{
    return strstr(words, hx_arena_printf(arena, " %s ", word).ptr) != NULL;
}

/* -1 to go on. */
static int check_flags(hx_call *call, const hx_action *action, const hx_action *actions)
{
    if (call->too_many_flags) return hx_cmd_misused(call->command, "more than %u flags are given", HX_CALL_FLAGS_MAX);
    for (size_t i = 0; i < call->flag_count; i++) {
        const char *name = call->flags[i].name;
        bool is_data = strcmp(name, "data") == 0;
        if (!is_data && strlen(call->flags[i].value) > HX_CALL_TEXT_MAX)
            return hx_cmd_misused(call->command, "--%s has more than %u bytes", name, HX_CALL_TEXT_MAX);
        if (has_word(" json admin config store ", name, &call->arena) || has_word(action->flags, name, &call->arena))
            continue;
        hx_slice verbs = HX_EMPTY;
        for (const hx_action *other = actions; other->verb; other++)
            if (has_word(other->flags, name, &call->arena))
                verbs = hx_arena_printf(&call->arena, "%.*s%s%s", HX_FMT(verbs), verbs.len > 0 ? ", " : "",
                                        other->verb);
        return hx_cmd_misused(call->command, "--%s is not for %s, but for %.*s", name, call->verb, HX_FMT(verbs));
    }
    return -1;
}

/* -1 to go on. */
static int check_operands(const hx_call *call, const hx_action *action)
{
    for (size_t i = 0; i < 2; i++) {
        const char *given = call->operands[i], *wanted = action->operands[i];
        if (given && !wanted) return hx_cmd_misused(call->command, "unexpected argument \"%s\"", given);
        if (!given && wanted && wanted[0] != '[')
            return hx_cmd_misused(call->command, "%s needs %s", call->verb, wanted);
        if (given && (given[0] == '\0' || strlen(given) > HX_CALL_TEXT_MAX))
            return hx_cmd_misused(call->command, "an argument must have 1 to %u bytes", HX_CALL_TEXT_MAX);
    }
    return -1;
}

static int run(hx_call *call, const hx_action *actions)
{
    const hx_action *action = actions;
    hx_slice verbs = HX_EMPTY;
    while (action->verb && !(call->verb && strcmp(action->verb, call->verb) == 0)) {
        const char *joint = action == actions ? "" : action[1].verb ? ", " : " or ";
        verbs = hx_arena_printf(&call->arena, "%.*s%s%s", HX_FMT(verbs), joint, action->verb);
        action++;
    }
    if (!call->verb) return hx_cmd_misused(call->command, "a command is missing: %.*s", HX_FMT(verbs));
    if (!action->verb)
        return hx_cmd_misused(call->command, "unknown command \"%s\": use %.*s", call->verb, HX_FMT(verbs));
    hx_admin_whereabouts where = {.admin = hx_call_flag(call, "admin"),
                                  .config = hx_call_flag(call, "config"),
                                  .store = hx_call_flag(call, "store")};
    int code = check_operands(call, action);
    if (code < 0) code = check_flags(call, action, actions);
    if (code < 0) code = hx_find_daemon(call->command, &where, &call->arena, &call->address);
    return code < 0 ? action->run(call) : code;
}

int hx_actions_run(int argc, char **argv, const hx_action *actions)
{
    hx_call call = {.command = argv[0]};
    int at = 0;
    int code = hx_cmd_flags(argc, argv, 3, take, &call, &at);
    if (code >= 0) return code;
    if (at < argc) call.verb = argv[at++];
    for (size_t i = 0; i < 2 && at < argc; i++) call.operands[i] = argv[at++];
    call.json = hx_call_flag(&call, "json") != NULL;
    code = run(&call, actions);
    hx_arena_free(&call.arena);
    return code;
}
