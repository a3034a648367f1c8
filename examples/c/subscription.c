/* SPDX-License-Identifier: Apache-2.0 */
/* Begins a subscription in several steps, each of which takes a while:
 *
 *     ./subscription unix:/run/hapax/admin.sock user-5:pro pro 4242 /var/lib/shop/subscriptions
 *
 * It calls begin, renew and complete itself, so that it can keep its claim while it works, and stop when it was lost.
 * A card of "0000" is declined for good: every later call says so, without asking again. */
#include <hapax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEASE 5000

static int fail(const char *what, int code)
{
    fprintf(stderr, "subscription: %s: %s: %s\n", what, hapax_code_name(code), hapax_message());
    return code == HAPAX_UNKNOWN || code == HAPAX_FENCED ? 75 : 3;
}

/* The effect: a line in a file. */
static int subscribe(const char *file, const char *key, const char *plan)
{
    FILE *out = fopen(file, "a");
    if (!out) return 0;
    fprintf(out, "%s %s\n", key, plan);
    return fclose(out) == 0;
}

static int work(hapax *store, const hapax_claim *claim, char **argv, hapax_record *record)
{
    char text[200];
    hapax_result result = {.size = sizeof result, .body = text};
    int is_declined = strcmp(argv[4], "0000") == 0;
    /* Check the card, which may take long … and tell the store that this process is still there. */
    int code = hapax_renew(store, claim, LEASE, record);
    if (code != HAPAX_OK || record->cancel_requested) {
        if (code == HAPAX_OK) code = hapax_release(store, claim, "cancelled", record);
        return fail("renew", code);
    }
    if (is_declined) {
        result.body_bytes = (size_t)snprintf(text, sizeof text, "{\"error\": \"card declined\"}");
        code = hapax_fail(store, claim, &result, record);
    } else if (!subscribe(argv[5], argv[2], argv[3])) {
        code = hapax_release(store, claim, "the file can't be written", record);
    } else {
        result.body_bytes = (size_t)snprintf(text, sizeof text, "{\"plan\": \"%s\"}", argv[3]);
        code = hapax_complete(store, claim, &result, record);
    }
    if (code != HAPAX_OK) return fail("end", code);
    printf("%.*s\n", (int)record->body_bytes, (const char *)record->body);
    return is_declined ? 1 : 0;
}

int main(int argc, char **argv)
{
    hapax *store;
    hapax_options options = {.size = sizeof options, .token = getenv("SHOP_TOKEN")};
    hapax_claim claim = {.size = sizeof claim};
    hapax_record record = {.size = sizeof record};
    if (argc != 6) {
        fprintf(stderr, "usage: subscription STORE KEY PLAN CARD FILE\n");
        return 2;
    }
    int code = hapax_open(argv[1], &options, &store), status;
    if (code != HAPAX_OK) return fail(argv[1], code);
    hapax_request request = {.size = sizeof request,
                             .name = "subscriptions",
                             .key = argv[2],
                             .payload = argv[3],
                             .payload_bytes = strlen(argv[3]),
                             .lease = LEASE,
                             .lifetime = INT64_C(30) * 24 * 3600 * 1000,
                             .wait = 10000};
    code = hapax_begin(store, &request, &claim, &record);
    if (code == HAPAX_OK) {
        status = work(store, &claim, argv, &record);
    } else if (code == HAPAX_DONE) {
        printf("before: %.*s\n", (int)record.body_bytes, (const char *)record.body);
        status = record.failed_before ? 1 : 0;
    } else {
        status = fail("begin", code);
    }
    hapax_record_clear(&record);
    hapax_close(&store);
    return status;
}
