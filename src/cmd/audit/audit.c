/* SPDX-License-Identifier: Apache-2.0 */
/* hapax audit: reads every change of state that a store keeps, out of the store itself, and checks its chain. */
#include "admin/filter.h"
#include "base/check.h"
#include "base/text.h"
#include "cmd/audit/tables.h"
#include "cmd/cli/ask_daemon.h"
#include "cmd/cli/cmd.h"
#include "cmd/keys.h"
#include "core/json/json_writer.h"
#include "store/audit/audit.h"

#include <inttypes.h>
#include <string.h>

#define LINE_BYTES_MAX (64u * 1024u)
#define INBOX_PAGE "1000"

typedef enum { LIST, JSON_LINES, ATTEMPTS, OUTCOMES, INBOX, VERIFY } form;

typedef struct {
    hx_admin_whereabouts where;
    const char *since, *before, *route, *operation, *csv, *source, *anchor;
    bool json;
    form form;
    hx_ms from, until; /* until 0: no end */
    hx_op op;
    hx_ms begun_at, ended_at; /* of the operation's attempts */
    hx_buf line;
    hx_arena arena;
} auditing;

static void take(void *user, const char *flag, const char *value)
{
    auditing *a = user;
    const struct {
        const char *name;
        const char **text;
    } flags[] = {{"admin", &a->where.admin},   {"config", &a->where.config},
                 {"store", &a->where.store},   {"since", &a->since},
                 {"before", &a->before},       {"route", &a->route},
                 {"operation", &a->operation}, {"csv", &a->csv},
                 {"source", &a->source},       {"anchor", &a->anchor}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(flags[i].name, flag) == 0) *flags[i].text = value;
    if (strcmp(flag, "json") == 0) a->json = true;
}

static bool is_wanted(const auditing *a, const hx_record *record)
{
    if (record->changed_at < a->from || (a->until > 0 && record->changed_at >= a->until)) return false;
    if (a->operation && !hx_op_eq(&record->op, &a->op)) return false;
    return !a->route || hx_slice_eq(record->route, hx_slice_of(a->route));
}

static void list_row(const hx_record *record)
{
    char at[HX_RFC3339_BYTES];
    (void)printf("%.*s  ", HX_FMT(hx_rfc3339(record->changed_at, at)));
    for (size_t i = 0; i < sizeof record->op; i++) (void)printf("%02x", record->op.bytes[i]);
    (void)printf("  %s -> %s  ", hx_state_name(record->from_state), hx_state_name(record->state));
    hx_cmd_put_text(stdout, record->route);
    if (record->answer.status > 0) (void)printf("  %u", record->answer.status);
    if (record->reason.len > 0) (void)printf("  ");
    hx_cmd_put_text(stdout, record->reason);
    (void)printf("\n");
}

static void attempt_row(auditing *a, const hx_record *record)
{
    char notes[HX_RECORD_TEXT_MAX + 1];
    hx_export_attempt attempt;
    if (record->state == HX_PROCESSING) a->begun_at = record->changed_at;
    if (!hx_export_attempt_of(record, a->ended_at, a->begun_at, notes, &attempt)) return;
    a->ended_at = record->changed_at;
    hx_export_put_attempt(&a->line, &attempt);
}

static void row(void *context, const hx_record *record, uint64_t sequence)
{
    auditing *a = context;
    char digits[4 * sizeof(hx_digest)];
    hx_export_outcome outcome;
    if (!is_wanted(a, record)) return;
    if (a->form == LIST)
        list_row(record);
    else if (a->form == JSON_LINES)
        hx_export_put_json(&a->line, record, sequence);
    else if (a->form == ATTEMPTS)
        attempt_row(a, record);
    else if (hx_export_outcome_of(record, digits, &outcome))
        hx_export_put_outcome(&a->line, &outcome);
    if (a->line.len > 0) (void)fwrite(a->line.data, 1, a->line.len, stdout);
    a->line.len = 0;
}

static void problem(void *context, const char *sentence)
{
    const auditing *a = context;
    if (a->form != VERIFY)
        (void)fprintf(stderr, "hapax audit: %s\n", sentence);
    else if (!a->json)
        (void)printf("broken: %s\n", sentence);
}

static int read_store(auditing *a, hx_audit *audit)
{
    hx_slice store;
    hx_error_text error;
    int code = hx_find_store("audit", &a->where, &a->arena, &store);
    if (code >= 0) return code;
    if (hx_audit_read(store, audit, error)) return fflush(stdout) == 0 ? -1 : HX_EXIT_STORE;
    (void)fflush(stdout);
    (void)fprintf(stderr, "hapax audit: %s\n", error);
    return HX_EXIT_STORE;
}

static int list(auditing *a)
{
    hx_audit audit = {.row = row, .problem = problem, .context = a};
    if (a->form == ATTEMPTS) (void)fputs(HX_EXPORT_ATTEMPTS, stdout);
    if (a->form == OUTCOMES) (void)fputs(HX_EXPORT_OUTCOMES, stdout);
    int code = read_store(a, &audit);
    if (code >= 0) return code;
    return audit.problems > 0 ? HX_EXIT_NO : HX_EXIT_OK;
}

static void print_verified(const auditing *a, const hx_audit *audit)
{
    char anchor[HX_AUDIT_ANCHOR_BYTES], first[HX_RFC3339_BYTES] = "", last[HX_RFC3339_BYTES] = "";
    hx_audit_anchor_text(&audit->head, anchor);
    hx_slice from = audit->rows > 0 ? hx_rfc3339(audit->first_at, first) : HX_EMPTY;
    hx_slice to = audit->rows > 0 ? hx_rfc3339(audit->last_at, last) : HX_EMPTY;
    if (a->json) {
        hx_buf out;
        hx_buf_init(&out, NULL, LINE_BYTES_MAX);
        hx_json_open(&out, NULL, '{');
        hx_json_put_bool(&out, "whole", audit->problems == 0);
        hx_json_put_number(&out, "problems", audit->problems);
        hx_json_put_number(&out, "changes", audit->rows);
        hx_json_put_number(&out, "records", audit->links);
        hx_json_put_number(&out, "unlinked", audit->unlinked);
        hx_json_put_number(&out, "kept_from", audit->kept_from);
        hx_json_put_text(&out, "first_at", from);
        hx_json_put_text(&out, "last_at", to);
        hx_json_put_text(&out, "anchor", hx_slice_of(anchor));
        hx_json_close(&out, '}');
        (void)printf("%.*s\n", (int)out.len, out.data);
        hx_buf_free(&out);
        return;
    }
    (void)printf("%" PRIu64 " changes of state in %" PRIu64 " records", audit->rows, audit->links);
    if (audit->rows > 0) (void)printf(", from %.*s to %.*s", HX_FMT(from), HX_FMT(to));
    (void)printf(".\n");
    if (audit->kept_from > 1)
        (void)printf("Records before %" PRIu64 " were removed by audit_retention.\n", audit->kept_from);
    if (audit->problems > 0)
        (void)printf("The chain is broken in %" PRIu64 " place%s.\n", audit->problems, audit->problems == 1 ? "" : "s");
    else
        (void)
            printf("The chain is whole. To show later that nothing of it was cut off or written anew, keep elsewhere:\n"
                   "anchor %s\n",
                   anchor);
}

static int verify(auditing *a)
{
    hx_audit_anchor anchor;
    hx_audit audit = {.problem = problem, .context = a};
    if (a->anchor && !hx_audit_anchor_read(hx_slice_of(a->anchor), &anchor))
        return hx_cmd_misused("audit", "--anchor must be what an earlier verify has printed: a number, a colon and 64 "
                                       "hexadecimal digits");
    if (a->anchor) audit.anchor = &anchor;
    int code = read_store(a, &audit);
    if (code >= 0) return code;
    print_verified(a, &audit);
    return audit.problems > 0 ? HX_EXIT_NO : HX_EXIT_OK;
}

static void put_event(auditing *a, hx_slice delivery)
{
    const char *state = hx_keys_member(delivery, "state", &a->arena);
    hx_export_event event = {.event_id = hx_slice_of(hx_keys_member(delivery, "event", &a->arena)),
                             .source = hx_slice_of(a->source),
                             .first_seen = hx_slice_of(hx_keys_member(delivery, "created_at", &a->arena)),
                             .processed = hx_slice_of(hx_keys_member(delivery, "settled_at", &a->arena)),
                             .result = strcmp(state, "delivered") == 0 ? HX_LIT("ok") : hx_slice_of(state)};
    hx_export_put_event(&a->line, &event);
    (void)fwrite(a->line.data, 1, a->line.len, stdout);
    a->line.len = 0;
}

/* Events are documents of the store and not in the audit: the daemon shows them. */
static int export_inbox(auditing *a)
{
    hx_slice address;
    const char *cursor = "";
    int code = hx_find_daemon("audit", &a->where, &a->arena, &address);
    if (code >= 0) return code;
    (void)fputs(HX_EXPORT_INBOX, stdout);
    do {
        hx_buf target;
        hx_admin_reply reply;
        hx_buf_init(&target, &a->arena, LINE_BYTES_MAX);
        hx_buf_puts(&target, "/v1/deliveries?limit=" INBOX_PAGE "&endpoint=in_");
        hx_text_percent_put(&target, hx_slice_of(a->source));
        if (cursor[0]) hx_buf_puts(&target, "&cursor=");
        hx_text_percent_put(&target, hx_slice_of(cursor));
        hx_admin_request request = {.method = "GET", .target = hx_buf_slice(&target)};
        code = hx_ask_daemon_well("audit", address, &request, &a->arena, &reply);
        if (code >= 0) return code;
        size_t count;
        const hx_slice *deliveries = hx_keys_records(reply.body, "/deliveries", &a->arena, &count);
        for (size_t i = 0; i < count; i++) put_event(a, deliveries[i]);
        cursor = hx_keys_member(reply.body, "cursor", &a->arena);
    } while (cursor[0]);
    return HX_EXIT_OK;
}

static int misused(auditing *a, const char *verb)
{
    hx_ms now = hx_clock_wall();
    static const struct {
        const char *word;
        form form;
    } tables[] = {{"attempts", ATTEMPTS}, {"outcomes", OUTCOMES}, {"inbox", INBOX}};
    const bool is_export = strcmp(verb, "export") == 0, is_verify = strcmp(verb, "verify") == 0;
    if (!is_export && !is_verify && strcmp(verb, "list") != 0)
        return hx_cmd_misused("audit", "unknown command \"%s\": use list, verify or export", verb);
    a->form = is_verify ? VERIFY : is_export || a->json ? JSON_LINES : LIST;
    for (size_t i = 0; a->csv && i < sizeof tables / sizeof tables[0]; i++)
        if (strcmp(a->csv, tables[i].word) == 0) a->form = tables[i].form;
    if (a->csv && (!is_export || a->form == JSON_LINES))
        return hx_cmd_misused("audit", "--csv is for export, and must be attempts, outcomes or inbox");
    if (a->anchor && !is_verify) return hx_cmd_misused("audit", "--anchor is for verify");
    if (is_verify && (a->since || a->before || a->route || a->operation))
        return hx_cmd_misused("audit",
                              "verify reads everything: it takes no --since, --before, --route or --operation");
    if (a->form == ATTEMPTS && !a->operation)
        return hx_cmd_misused("audit", "--csv attempts is about one operation: give --operation ID");
    if ((a->form == INBOX) != (a->source != NULL))
        return hx_cmd_misused("audit", "--csv inbox needs --source NAME, and nothing else does");
    if ((a->since && !hx_filter_time(hx_slice_of(a->since), now, &a->from)) ||
        (a->before && !hx_filter_time(hx_slice_of(a->before), now, &a->until)))
        return hx_cmd_misused("audit",
                              "--since and --before must be a time such as 2026-02-19T12:00:00Z, or an age such "
                              "as 2h");
    if (a->operation && !hx_op_read(hx_slice_of(a->operation), &a->op))
        return hx_cmd_misused("audit", "--operation must be an id of 32 hexadecimal digits, as `hapax keys` shows it");
    return -1;
}

int hx_cmd_audit(int argc, char **argv)
{
    int operands = 0;
    auditing a = {0};
    int code = hx_cmd_flags(argc, argv, 1, take, &a, &operands);
    if (code >= 0) return code;
    if (operands == argc) return hx_cmd_misused("audit", "a command is missing: list, verify or export");
    code = misused(&a, argv[operands]);
    if (code >= 0) return code;
    hx_buf_init(&a.line, NULL, LINE_BYTES_MAX);
    code = a.form == VERIFY ? verify(&a) : a.form == INBOX ? export_inbox(&a) : list(&a);
    hx_buf_free(&a.line);
    hx_arena_free(&a.arena);
    return code;
}
