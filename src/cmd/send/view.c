/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/send/view.h"

#include "cmd/cli/cmd.h"
#include "core/json/json_writer.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

hx_careful_verdict hx_send_verdict_of(const hx_intent *intent)
{
    if (hx_slice_eq(intent->outcome.verdict, HX_LIT("done"))) return HX_CAREFUL_DONE;
    if (hx_slice_eq(intent->outcome.verdict, HX_LIT("refused"))) return HX_CAREFUL_REFUSED;
    return hx_intent_in_doubt(intent) ? HX_CAREFUL_UNKNOWN : HX_CAREFUL_AGAIN;
}

static const char *name_of(const hx_intent *intent, hx_careful_verdict verdict)
{
    if (verdict == HX_CAREFUL_AGAIN) return intent->attempt_count == 0 ? "not sent yet" : "not done yet";
    return hx_careful_verdict_name(verdict);
}

static void put_attempts(hx_buf *out, const hx_intent *intent)
{
    hx_json_open(out, "attempts", '[');
    for (size_t i = 0; i < intent->attempt_count; i++) {
        const hx_intent_attempt *attempt = &intent->attempts[i];
        hx_json_open(out, NULL, '{');
        hx_json_put_time(out, "at", attempt->at);
        hx_json_put_number(out, "delay_ms", attempt->delay);
        hx_json_put_number(out, "status", attempt->status);
        hx_json_put_number(out, "ms", attempt->ms);
        hx_json_put_bool(out, "may_have_happened", !attempt->has_result || attempt->in_doubt);
        hx_json_put_text(out, "code", attempt->code);
        hx_json_put_text(out, "note", attempt->has_result ? attempt->note : HX_LIT("interrupted"));
        hx_json_close(out, '}');
    }
    hx_json_close(out, ']');
}

static void show_json(const hx_intent *intent, hx_careful_verdict verdict, hx_slice why, bool with_body)
{
    hx_arena arena = {0};
    const hx_intent_outcome *outcome = &intent->outcome;
    hx_buf out;
    hx_buf_init(&out, &arena, 64u << 20);
    hx_json_open(&out, NULL, '{');
    hx_json_put_text(&out, "outcome", hx_slice_of(name_of(intent, verdict)));
    hx_json_put_text(&out, "why", why);
    hx_json_put_text(&out, "key", intent->request.key);
    if (intent->request.name.len > 0) hx_json_put_text(&out, "for", intent->request.name);
    hx_json_put_text(&out, "method", intent->request.method);
    hx_json_put_text(&out, "url", intent->request.url);
    hx_json_put_time(&out, "created_at", intent->request.created_at);
    if (intent->attempt_count > 0) hx_json_put_time(&out, "key_ends_at", hx_intent_key_end(intent));
    if (outcome->verdict.len > 0) {
        hx_json_put_number(&out, "status", outcome->status);
        hx_json_put_bool(&out, "replayed", outcome->replayed);
        if (outcome->original_time.len > 0) hx_json_put_text(&out, "original_time", outcome->original_time);
        hx_json_put_text(&out, "content_type", outcome->content_type);
        if (with_body) hx_json_put_text(&out, "body", outcome->body);
    }
    put_attempts(&out, intent);
    hx_json_close(&out, '}');
    hx_buf_puts(&out, "\n");
    hx_cmd_put_json(stdout, hx_buf_slice(&out));
    hx_arena_free(&arena);
}

static void show_next_step(const hx_intent *intent, hx_careful_verdict verdict)
{
    const hx_intent_request *request = &intent->request;
    hx_slice name = request->name.len > 0 ? request->name : request->key;
    if (name.len == 0) return;
    if (verdict == HX_CAREFUL_UNKNOWN && hx_clock_wall() >= hx_intent_key_end(intent))
        fprintf(stderr, "  The key is too old to ask with. Look at the server whether it was done; don't send it again "
                        "before.\n");
    else if (verdict == HX_CAREFUL_UNKNOWN)
        fprintf(stderr,
                "  It may have been done. Don't send it with a new key; ask again with the same one:\n"
                "    hapax send --resume '%.*s'\n",
                HX_FMT(name));
    else if (verdict == HX_CAREFUL_EXHAUSTED || verdict == HX_CAREFUL_AGAIN)
        fprintf(stderr, "  Nothing was done yet. To go on: hapax send --resume '%.*s'\n", HX_FMT(name));
}

void hx_send_show(const hx_intent *intent, hx_careful_verdict verdict, hx_slice why, hx_send_form form)
{
    const hx_intent_outcome *outcome = &intent->outcome;
    if (form == HX_SEND_JSON) {
        show_json(intent, verdict, why, true);
        return;
    }
    if (outcome->verdict.len > 0 && outcome->body.len > 0) {
        if (isatty(STDOUT_FILENO))
            hx_cmd_put_text(stdout, outcome->body);
        else
            (void)fwrite(outcome->body.ptr, 1, outcome->body.len, stdout);
        if (isatty(STDOUT_FILENO) && outcome->body.ptr[outcome->body.len - 1] != '\n') (void)putchar('\n');
        (void)fflush(stdout);
    }
    fprintf(stderr, "hapax send: %s", name_of(intent, verdict));
    if (outcome->status > 0) fprintf(stderr, ", %" PRIu64, outcome->status);
    if (outcome->replayed)
        fprintf(stderr, ", a replay of %.*s",
                HX_FMT(outcome->original_time.len > 0 ? outcome->original_time : HX_LIT("an earlier response")));
    fprintf(stderr, ", after %zu attempt%s", intent->attempt_count, intent->attempt_count == 1 ? "" : "s");
    if (why.len > 0) fprintf(stderr, ": %.*s", HX_FMT(why));
    fputs("\n", stderr);
    show_next_step(intent, verdict);
}

void hx_send_show_line(const hx_intent *intent, hx_send_form form)
{
    const hx_intent_request *request = &intent->request;
    hx_careful_verdict verdict = hx_send_verdict_of(intent);
    char created[HX_RFC3339_BYTES];
    if (form == HX_SEND_JSON) {
        show_json(intent, verdict, intent->outcome.note, false);
        return;
    }
    hx_slice when = hx_rfc3339(request->created_at, created);
    printf("%-12s  %.*s  %-7.*s %.*s  %.*s\n", name_of(intent, verdict), HX_FMT(when), HX_FMT(request->method),
           HX_FMT(request->url), HX_FMT(request->name.len > 0 ? request->name : request->key));
}

static void put_quoted(FILE *out, hx_slice text)
{
    fputc('"', out);
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == '"') fputc('"', out);
        fputc(text.ptr[i] == '\n' || text.ptr[i] == '\r' ? ' ' : text.ptr[i], out);
    }
    fputc('"', out);
}

void hx_send_show_csv(const hx_intent *intent, FILE *out)
{
    fputs("attempt,delay_ms,status,code,notes\n", out);
    for (size_t i = 0; i < intent->attempt_count; i++) {
        const hx_intent_attempt *attempt = &intent->attempts[i];
        fprintf(out, "%" PRIu64 ",%" PRIu64 ",", attempt->number, attempt->delay);
        if (attempt->status > 0) fprintf(out, "%" PRIu64, attempt->status);
        fprintf(out, ",%.*s,", HX_FMT(attempt->code));
        put_quoted(out, attempt->has_result ? attempt->note : HX_LIT("interrupted"));
        fputc('\n', out);
    }
}
