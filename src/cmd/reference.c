/* SPDX-License-Identifier: Apache-2.0 */
/* hapax reference: prints the pages of docs/reference/ from the tables that the program itself uses. A test checks that
 * the pages are up to date. */
#include "cmd/cli/cmd.h"

#include "admin/admin.h"
#include "base/check.h"
#include "base/log.h"
#include "config/options.h"
#include "core/operation/errors.h"
#include "observe/metrics.h"

#include <string.h>

#define PAGE_BYTES_MAX (256u * 1024u)

static void write_errors(hx_buf *out)
{
    hx_arena arena = {0};
    hx_buf_puts(out, "# Errors\n\n"
                     "Every error that Hapax itself answers with. This page is written by `hapax reference errors`.\n\n"
                     "They come as `application/problem+json` (RFC 9457) with these members besides `type`, `detail` "
                     "and `instance`, and with the header `Error-Code`. A response without that header is the "
                     "upstream's own. What operators can do is also in the log (`remedy`), never in a response. On "
                     "routes with `dialect: ietf` a payload_mismatch is 422; with `dialect: "
                     "stripe` it is 400, and all of them come in Stripe's shape "
                     "([guide](../guide/dialects.md)).\n\n"
                     "| status | error_code | title | retry? | hint | for operators |\n|---|---|---|---|---|---|\n");
    for (int i = 0; i < HX_ERROR_COUNT; i++) {
        const hx_error_row *row = hx_error_about((hx_error)i);
        hx_buf_put(out,
                   hx_arena_printf(&arena, "| %u | `%s` | %s | %s | %s | %s |\n", row->status, row->code, row->title,
                                   row->retryable ? "yes, with the same key" : "no", row->hint, row->remedy));
    }
    hx_arena_free(&arena);
}

static void write_events(hx_buf *out)
{
    hx_buf_puts(out,
                "# Log events\n\n"
                "Everything that Hapax logs. This page is written by `hapax reference events`.\n\n"
                "A line of the log is a JSON object with `time`, `level`, `event`, `message` and the fields of its "
                "event. Alert on `event`: an id keeps its meaning, while the message may be worded better at any "
                "time. `request` is the line of the access log, one for each request, and has no message.\n\n"
                "| event | level | message |\n|---|---|---|\n");
    for (int i = 0; i < HX_EVENT_COUNT; i++) {
        const hx_log_event_row *row = hx_log_about((hx_log_event)i);
        bool fits = hx_buf_printf(out, "| `%s` | %s | %s |\n", row->id, hx_log_level_name(row->level), row->message);
        HX_CHECK(fits);
    }
}

static void print_commands(void)
{
    size_t count;
    const hx_cmd *all = hx_cmd_all(&count);
    printf("# Commands\n\nThe help of every command. This page is written by `hapax reference commands`.\n\n"
           "## `hapax`\n\n```text\n");
    hx_cmd_page(stdout, &hx_cmd_program);
    for (size_t i = 0; i < count; i++) {
        if (all[i].hidden) continue;
        printf("```\n\n## `hapax %s`\n\n```text\n", all[i].name);
        hx_cmd_page(stdout, &all[i]);
    }
    printf("```\n");
}

int hx_cmd_reference(int argc, char **argv)
{
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 1, NULL, NULL, &operands);
    if (code >= 0) return code;
    if (operands == argc)
        return hx_cmd_misused(argv[0],
                              "reference needs a page: options, errors, events, metrics, admin, openapi or commands");
    hx_buf out;
    hx_buf_init(&out, NULL, PAGE_BYTES_MAX);
    if (strcmp(argv[operands], "options") == 0)
        hx_options_reference(&out);
    else if (strcmp(argv[operands], "errors") == 0)
        write_errors(&out);
    else if (strcmp(argv[operands], "events") == 0)
        write_events(&out);
    else if (strcmp(argv[operands], "metrics") == 0)
        hx_metrics_reference(&out);
    else if (strcmp(argv[operands], "admin") == 0)
        hx_admin_reference(&out);
    else if (strcmp(argv[operands], "openapi") == 0)
        hx_admin_openapi(&out);
    else if (strcmp(argv[operands], "commands") == 0)
        print_commands();
    else
        code = hx_cmd_misused(argv[0],
                              "unknown page \"%s\": use options, errors, events, metrics, admin, openapi or commands",
                              argv[operands]);
    bool is_written = out.len == 0 || fwrite(out.data, 1, out.len, stdout) == out.len; /* commands print themselves */
    if (code < 0) code = is_written ? HX_EXIT_OK : HX_EXIT_USAGE;
    hx_buf_free(&out);
    return code;
}
