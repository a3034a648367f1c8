/* SPDX-License-Identifier: Apache-2.0 */
/* Handles a webhook once: reads a request's header lines, an empty line and its body from standard input, as a CGI
 * program or an inetd service would.
 *
 *     ./webhook sqlite:/var/lib/shop/webhooks.db whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw /var/lib/shop/handled < request
 *
 * Prints the status of its response: 200 handled, now or before; 401 not genuine; 503 come again later. */
#include <hapax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *file, *id;
} handler;

/* The effect: a line in a file. Returns after it is done, and never runs again for this event. */
static int handle(void *context, const hapax_claim *claim, hapax_result *result)
{
    const handler *h = context;
    FILE *out = fopen(h->file, "a");
    (void)claim;
    if (!out) return HAPAX_STATE_ABSENT; /* nothing has happened: the sender's next attempt will do it */
    fprintf(out, "%s\n", h->id);
    if (fclose(out) != 0) return HAPAX_STATE_UNKNOWN;
    result->body = "{\"processed\": true}";
    result->body_bytes = strlen(result->body);
    return HAPAX_STATE_COMPLETED;
}

static int answer(int status, const char *why)
{
    printf("%d %s\n", status, why);
    return status == 200 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static char request[64 * 1024];
    char id[256];
    hapax *store;
    if (argc != 4) {
        fprintf(stderr, "usage: webhook STORE SECRETS FILE\n");
        return 2;
    }
    size_t len = fread(request, 1, sizeof request - 1, stdin);
    char *body = strstr(request, "\r\n\r\n");
    if (!body) return answer(400, "this is no request");
    body[2] = '\0'; /* the header lines end here */
    body += 4;
    hapax_webhook webhook = {.size = sizeof webhook,
                             .secrets = argv[2],
                             .head = request,
                             .body = body,
                             .body_bytes = len - (size_t)(body - request)};
    if (hapax_webhook_verify(&webhook, id) != HAPAX_OK) return answer(401, hapax_message());
    if (hapax_open(argv[1], NULL, &store) != HAPAX_OK) return answer(503, hapax_message());
    handler h = {.file = argv[3], .id = id};
    hapax_request once = {.size = sizeof once,
                          .name = "webhooks",
                          .key = id,
                          .payload = body,
                          .payload_bytes = webhook.body_bytes,
                          .lifetime = INT64_C(7) * 24 * 3600 * 1000,
                          .wait = 5000};
    int code = hapax_execute(store, &once, handle, &h, NULL);
    hapax_close(&store);
    if (code == HAPAX_OK || code == HAPAX_DONE) return answer(200, code == HAPAX_OK ? "handled" : "handled before");
    return answer(503, hapax_message());
}
