/* SPDX-License-Identifier: Apache-2.0 */
/* A request is explained as soon as its body is complete, within one callback. */
#include "cmd/explain/listen.h"

#include "base/check.h"
#include "cmd/keys.h"
#include "cmd/receiver.h"

#include <stdlib.h>

#define PATH_SHOWN 200u

typedef struct {
    const hx_config *config;
    hx_jwks *jwks;
    bool as_json;
} listener;

static bool wants_json(const listener *l, const hx_fields *fields)
{
    if (l->as_json) return true;
    const hx_field *accept = hx_fields_find(fields, HX_LIT("Accept"));
    hx_slice rest = accept ? accept->value : HX_EMPTY, type;
    while (hx_slice_next(&rest, ',', &type))
        if (hx_slice_starts_nocase(hx_slice_trim(type), HX_LIT("application/json"))) return true;
    return false;
}

static hx_slice text_of(const hx_dry_run *run, const hx_explanation *explanation, hx_arena *arena)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    if (!out) hx_fatal(HX_EXIT_BUG, "out of memory (an explanation)");
    hx_explain_text(run, explanation, out);
    if (fclose(out) != 0) hx_fatal(HX_EXIT_BUG, "out of memory (an explanation)");
    hx_slice copy = hx_arena_copy(arena, (hx_slice){text, len});
    free(text);
    return copy;
}

/* One line on the terminal: a client may show its user nothing of the answer. */
static void print_summary(const hx_explanation *e, hx_slice path, hx_arena *arena)
{
    (void)printf("%s %s: %s: %.*s\n", e->method.len > 0 ? hx_keys_clean(e->method, arena) : "?",
                 hx_keys_clean(hx_slice_first(path, PATH_SHOWN), arena), e->does, HX_FMT(e->why));
    (void)fflush(stdout);
}

static void answer(listener *l, hx_stream *stream, unsigned status, hx_dry_run *run)
{
    hx_explanation explanation;
    hx_slice body, lines = HX_LIT("Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n");
    hx_explain(run, &explanation);
    if (wants_json(l, &stream->request.fields)) {
        hx_buf json;
        hx_buf_init(&json, &stream->arena, hx_explain_json_max(l->config));
        hx_explain_json(run, &explanation, &json);
        body = hx_buf_slice(&json);
        lines = HX_LIT("Content-Type: application/json\r\nCache-Control: no-store\r\n");
    } else {
        body = text_of(run, &explanation, &stream->arena);
    }
    print_summary(&explanation, stream->request.path, &stream->arena);
    hx_dry_run_free(&run);
    hx_stream_answer(stream, status, HX_EMPTY, lines, body, true);
    hx_stream_release(stream);
}

static void answer_request(void *app, hx_stream *stream, hx_slice body)
{
    listener *l = app;
    answer(l, stream, 200, hx_dry_run_parsed(l->config, l->jwks, &stream->request, body));
}

static void answer_refused(void *app, hx_stream *stream, unsigned status, const char *detail)
{
    listener *l = app;
    if (status == 0)
        hx_stream_release(stream); /* the client is gone */
    else
        answer(l, stream, status, hx_dry_run_malformed(l->config, (hx_h1_fault){.status = status, .detail = detail}));
}

int hx_explain_listen(const hx_config *config, const char *address, bool as_json)
{
    const hx_limits *limits = &config->limits;
    const hx_receiver_handler handler = {
        .limits = hx_worker_server_limits(limits, limits->connections),
        .body_max = hx_dry_run_body_max(config),
        .drops_rest = true, /* they change no explanation */
        .held_max = limits->memory,
        .request = answer_request,
        .refused = answer_refused,
    };
    listener l = {.config = config, .as_json = as_json};
    hx_error_text error;
    hx_receiver *receiver = hx_receiver_open("explain", address);
    if (!receiver) return HX_EXIT_ADDRESS;
    bool has_keys = hx_dry_run_open_keys(config, &l.jwks, error);
    if (has_keys) {
        (void)printf("Listening on %s: every request is answered with its explanation; nothing is forwarded, nothing "
                     "is stored. Ctrl-C ends it.\n",
                     hx_receiver_url(receiver));
        (void)fflush(stdout);
        hx_receiver_run(receiver, &handler, &l);
    } else {
        (void)fprintf(stderr, "hapax explain: %s\n", error);
    }
    hx_jwks_free(&l.jwks);
    hx_receiver_free(&receiver);
    return has_keys ? HX_EXIT_OK : HX_EXIT_USAGE;
}
