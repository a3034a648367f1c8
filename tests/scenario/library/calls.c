/* SPDX-License-Identifier: Apache-2.0 */
/* What hapax.h says of each function, on the store that is given: calls STORE FOLDER [TOKEN]. Prints what doesn't hold,
 * and exits with 1. */
#include <hapax.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;
static hapax *store;
static const char *prefix; /* of keys, so that a second run has its own */

#define IS(found, wanted) is(__LINE__, #found, (long long)(found), (long long)(wanted))
static void is(int line, const char *what, long long found, long long wanted)
{
    if (found == wanted) return;
    printf("line %d: %s is %lld, not %lld: %s\n", line, what, found, wanted, hapax_message());
    failures++;
}

static hapax_request request_of(const char *name)
{
    static char keys[64][80];
    static unsigned at;
    char *key = keys[at++ % 64];
    snprintf(key, sizeof keys[0], "%s-%s", prefix, name);
    return (hapax_request){.size = sizeof(hapax_request), .name = "calls", .key = key};
}

static hapax_result result_of(const char *json)
{
    return (hapax_result){.size = sizeof(hapax_result), .body = json, .body_bytes = strlen(json)};
}

static int has_body(const hapax_record *record, const char *json)
{
    return record->body_bytes == strlen(json) && memcmp(record->body, json, record->body_bytes) == 0;
}

static void test_an_operation_is_executed_once(void)
{
    hapax_request request = request_of("once");
    hapax_claim claim = {.size = sizeof claim}, second = {.size = sizeof second};
    hapax_record record = {.size = sizeof record};
    hapax_result result = result_of("{\"id\":7}"), other = result_of("{\"id\":8}");
    request.payload = "{\"a\": 1, \"b\": 2}";
    request.payload_bytes = strlen(request.payload);
    IS(hapax_find(store, &request, &record), HAPAX_ABSENT);
    IS(hapax_begin(store, &request, &claim, &record), HAPAX_OK);
    IS(record.is_retry, 0);
    IS(record.state, HAPAX_STATE_PROCESSING);
    int64_t began = record.original_time;
    IS(hapax_begin(store, &request, &second, &record), HAPAX_IN_FLIGHT);
    IS(hapax_find(store, &request, &record), HAPAX_IN_FLIGHT);
    IS(hapax_renew(store, &claim, 30000, &record), HAPAX_OK);
    IS(hapax_complete(store, &claim, &result, &record), HAPAX_OK);
    IS(hapax_complete(store, &claim, &result, &record), HAPAX_OK); /* as if its response had been lost */
    IS(hapax_complete(store, &claim, &other, &record), HAPAX_FENCED);
    IS(record.state, HAPAX_STATE_COMPLETED);
    IS(hapax_release(store, &claim, "too late", &record), HAPAX_FENCED);
    IS(hapax_renew(store, &claim, 30000, NULL), HAPAX_FENCED);
    request.payload = "{ \"b\": 2.0, \"a\": 1}"; /* the same, written otherwise */
    request.payload_bytes = strlen(request.payload);
    IS(hapax_begin(store, &request, &second, &record), HAPAX_DONE);
    IS(record.is_retry, 1);
    IS(record.failed_before, 0);
    IS(record.original_time, began);
    IS(record.status, 200);
    IS(has_body(&record, "{\"id\":7}"), 1);
    IS(hapax_find(store, &request, &record), HAPAX_DONE);
    IS(has_body(&record, "{\"id\":7}"), 1);
    request.payload = "{\"a\":2}";
    request.payload_bytes = 7;
    IS(hapax_begin(store, &request, &second, NULL), HAPAX_MISMATCH);
    hapax_record_clear(&record);
}

static void test_failures_stay_and_releases_do_not(void)
{
    hapax_request request = request_of("failing"), released = request_of("released");
    hapax_claim claim = {.size = sizeof claim}, first = {.size = sizeof first};
    hapax_record record = {.size = sizeof record};
    hapax_result error = result_of("{\"error\":\"declined\"}");
    IS(hapax_begin(store, &request, &claim, NULL), HAPAX_OK);
    IS(hapax_fail(store, &claim, &error, &record), HAPAX_OK);
    IS(record.failed_before, 0);
    IS(hapax_begin(store, &request, &claim, &record), HAPAX_DONE);
    IS(record.failed_before, 1);
    IS(record.status, 500);
    IS(has_body(&record, "{\"error\":\"declined\"}"), 1);
    IS(hapax_begin(store, &released, &first, NULL), HAPAX_OK);
    IS(hapax_release(store, &first, "the bank was not reached", NULL), HAPAX_OK);
    IS(hapax_release(store, &first, "the bank was not reached", NULL), HAPAX_OK);
    IS(hapax_begin(store, &released, &claim, &record), HAPAX_OK);
    IS(claim.epoch > first.epoch, 1);
    IS(hapax_complete(store, &first, &error, &record), HAPAX_FENCED); /* the claim that was given back */
    IS(record.state, HAPAX_STATE_PROCESSING);
    IS(record.epoch, claim.epoch);
    IS(hapax_complete(store, &claim, NULL, &record), HAPAX_OK);
    IS(record.body_bytes, 0);
    hapax_record_clear(&record);
}

static void test_a_lapsed_lease_is_unknown_and_the_old_claim_is_fenced(void)
{
    hapax_request request = request_of("lapsed"), late = request_of("late");
    hapax_claim old = {.size = sizeof old}, claim = {.size = sizeof claim}, slow = {.size = sizeof slow};
    hapax_record record = {.size = sizeof record};
    hapax_result result = result_of("1");
    request.lease = late.lease = 1000;
    IS(hapax_begin(store, &request, &old, NULL), HAPAX_OK);
    IS(hapax_begin(store, &late, &slow, NULL), HAPAX_OK);
    request.wait = late.wait = 20000;
    IS(hapax_begin(store, &request, &claim, &record), HAPAX_UNKNOWN); /* waits until the lease is over */
    IS(record.state, HAPAX_STATE_UNKNOWN);
    IS(hapax_find(store, &late, NULL), HAPAX_UNKNOWN);
    IS(hapax_complete(store, &slow, &result, &record), HAPAX_OK); /* nobody else was given it */
    request.flags = HAPAX_REPEATABLE;
    IS(hapax_begin(store, &request, &claim, &record), HAPAX_OK);
    IS(claim.epoch > old.epoch, 1);
    IS(hapax_complete(store, &old, &result, &record), HAPAX_FENCED);
    IS(record.state, HAPAX_STATE_PROCESSING);
    IS(hapax_complete(store, &claim, &result, &record), HAPAX_OK);
    hapax_record_clear(&record);
}

static int count_effect(void *context, const hapax_claim *claim, hapax_result *result)
{
    (void)claim;
    result->body = "\"done\"";
    result->body_bytes = 6;
    return ++*(int *)context == 1 ? HAPAX_STATE_ABSENT : HAPAX_STATE_COMPLETED;
}

static void test_execute_runs_until_it_was_executed(void)
{
    hapax_request request = request_of("executed");
    hapax_record record = {.size = sizeof record};
    int calls = 0;
    IS(hapax_execute(store, &request, count_effect, &calls, &record), HAPAX_OK);
    IS(record.state, HAPAX_STATE_ABSENT); /* released */
    IS(hapax_execute(store, &request, count_effect, &calls, &record), HAPAX_OK);
    IS(record.state, HAPAX_STATE_COMPLETED);
    IS(hapax_execute(store, &request, count_effect, &calls, &record), HAPAX_DONE);
    IS(has_body(&record, "\"done\""), 1);
    IS(calls, 2);
    hapax_record_clear(&record);
}

static void test_wrong_arguments_are_said(void)
{
    hapax_request request = request_of("wrong"), empty = {.size = sizeof empty, .key = ""}, sizeless = {.key = "k"};
    hapax_claim claim = {.size = sizeof claim}, forged = {.size = sizeof forged, .id = "nonsense", .epoch = 1};
    struct {
        hapax_request known;
        long later;
    } newer = {.known = request};
    hapax *none;
    IS(hapax_begin(store, &empty, &claim, NULL), HAPAX_INVALID);
    IS(hapax_begin(store, &sizeless, &claim, NULL), HAPAX_INVALID);
    IS(hapax_begin(store, NULL, &claim, NULL), HAPAX_INVALID);
    IS(hapax_begin(store, &request, NULL, NULL), HAPAX_INVALID);
    IS(hapax_begin(NULL, &request, &claim, NULL), HAPAX_INVALID);
    IS(hapax_complete(store, &forged, NULL, NULL), HAPAX_INVALID);
    newer.known.size = sizeof newer;
    newer.later = 5; /* of a header that this library doesn't know */
    IS(hapax_find(store, &newer.known, NULL), HAPAX_INVALID);
    newer.later = 0;
    IS(hapax_find(store, &newer.known, NULL), HAPAX_ABSENT);
    IS(hapax_open("journal:/var/lib/hapax", NULL, &none), HAPAX_UNSUPPORTED);
    IS(strstr(hapax_message(), "unix:/var/lib/hapax/admin.sock") != NULL, 1);
    IS(hapax_open("postgres://db/shop", NULL, &none), HAPAX_UNSUPPORTED);
    IS(strstr(hapax_message(), "plug-in") != NULL, 1);
    IS(hapax_open("nonsense", NULL, &none), HAPAX_UNSUPPORTED);
    IS(hapax_open("http://nowhere/path", NULL, &none), HAPAX_INVALID);
    IS(hapax_open("unix:/nowhere.sock", NULL, &none), HAPAX_OK);
    IS(hapax_find(none, &request, NULL), HAPAX_UNAVAILABLE);
    hapax_close(&none);
    IS(none == NULL, 1);
    IS(strcmp(hapax_code_name(HAPAX_FENCED), "HAPAX_FENCED"), 0);
    IS(strcmp(hapax_code_name(HAPAX_INTERNAL), "HAPAX_INTERNAL"), 0);
    IS(strcmp(hapax_code_name(99), "?"), 0);
}

/* A plug-in that remembers one operation, of which it only knows that it is in flight. */
static int plug_open(const char *url, const hapax_options *options, void **out, char *error)
{
    (void)options;
    (void)error;
    *out = (void *)url;
    return HAPAX_OK;
}

static void plug_close(void *given)
{
    (void)given;
}

static int plug_begin(void *given, const hapax_request *request, hapax_claim *claim, hapax_record *record, char *error)
{
    (void)given;
    (void)claim;
    (void)request;
    record->state = HAPAX_STATE_PROCESSING;
    snprintf(error, 512, "the plug-in says so");
    return HAPAX_IN_FLIGHT;
}

static int plug_settle(void *given, const hapax_claim *claim, int state, const hapax_result *result, const char *reason,
                       hapax_record *record, char *error)
{
    (void)given, (void)claim, (void)state, (void)result, (void)reason, (void)record, (void)error;
    return HAPAX_FENCED;
}

static int plug_renew(void *given, const hapax_claim *claim, int64_t lease, hapax_record *record, char *error)
{
    (void)given, (void)claim, (void)lease, (void)record, (void)error;
    return HAPAX_FENCED;
}

static int plug_find(void *given, const hapax_request *request, hapax_record *record, char *error)
{
    (void)given, (void)request, (void)record, (void)error;
    return HAPAX_ABSENT;
}

static void test_other_stores_are_plug_ins(void)
{
    static const hapax_store_type plug = {.size = sizeof plug,
                                          .scheme = "redis",
                                          .open = plug_open,
                                          .close = plug_close,
                                          .begin = plug_begin,
                                          .settle = plug_settle,
                                          .renew = plug_renew,
                                          .find = plug_find};
    hapax_request request = request_of("plugged");
    hapax_claim claim = {.size = sizeof claim};
    hapax *plugged;
    IS(hapax_register_store(&plug), HAPAX_OK);
    IS(hapax_register_store(&plug), HAPAX_INVALID);
    IS(hapax_open("redis://localhost", NULL, &plugged), HAPAX_OK);
    request.wait = 20; /* asked again, until that is over */
    IS(hapax_begin(plugged, &request, &claim, NULL), HAPAX_IN_FLIGHT);
    IS(strcmp(hapax_message(), "the plug-in says so"), 0);
    hapax_close(&plugged);
}

static void test_retries_are_decided(void)
{
    hapax_retry quick = {.size = sizeof quick, .profile = "quick"}, wrong = {.size = sizeof wrong, .jitter = "much"};
    hapax_response response = {.size = sizeof response};
    int64_t delay = -1;
    int happened = -1;
    for (int i = 0; i < 100; i++) {
        IS(hapax_retry_next(&quick, 1, 0, NULL, &delay), HAPAX_OK);
        IS(delay >= 100 && delay <= 200, 1);
        IS(hapax_retry_next(&quick, 2, 0, NULL, &delay), HAPAX_OK);
        IS(delay >= 200 && delay <= 400, 1);
    }
    IS(hapax_retry_next(&quick, 1, 0, "3", &delay), HAPAX_OK);
    IS(delay >= 3000, 1);
    IS(hapax_retry_next(&quick, 5, 0, NULL, &delay), HAPAX_DONE);
    IS(hapax_retry_next(&wrong, 1, 0, NULL, &delay), HAPAX_INVALID);
    IS(hapax_classify("POST", &response, &happened), HAPAX_VERDICT_AGAIN);
    IS(happened, 1);
    response.nothing_sent = 1;
    IS(hapax_classify("POST", &response, &happened), HAPAX_VERDICT_AGAIN);
    IS(happened, 0);
    response = (hapax_response){.size = sizeof response, .status = 201};
    IS(hapax_classify("POST", &response, NULL), HAPAX_VERDICT_DONE);
    response.status = 422;
    IS(hapax_classify("POST", &response, NULL), HAPAX_VERDICT_REFUSED);
    response.status = 429;
    IS(hapax_classify("POST", &response, &happened), HAPAX_VERDICT_AGAIN);
    IS(happened, 0);
    response.status = 504;
    IS(hapax_classify("POST", &response, &happened), HAPAX_VERDICT_AGAIN);
    IS(happened, 1);
    response.head = "Idempotency-Status: stored\r\n"; /* final, whatever its status is */
    IS(hapax_classify("POST", &response, NULL), HAPAX_VERDICT_REFUSED);
}

static void test_fingerprints_and_signatures(void)
{
    static const unsigned char secret[32] = "a secret of thirty-two bytes ...";
    unsigned char first[32], second[32];
    char *canonical, signature[128], head[400], id[256];
    size_t bytes;
    hapax_http_request request = {.size = sizeof request,
                                  .method = "POST",
                                  .host = "shop.test",
                                  .path = "/refunds",
                                  .content_type = "application/json",
                                  .body = "{\"amount\": 19.990}",
                                  .body_bytes = 18};
    IS(hapax_fingerprint(&request, secret, first), HAPAX_OK);
    request.body = "{ \"amount\" :1.999e1}";
    request.body_bytes = strlen(request.body);
    IS(hapax_fingerprint(&request, secret, second), HAPAX_OK);
    IS(memcmp(first, second, 32), 0);
    request.path = "/refund";
    IS(hapax_fingerprint(&request, secret, second), HAPAX_OK);
    IS(memcmp(first, second, 32) != 0, 1);
    IS(hapax_canonical_json("{\"b\":1.0,\"a\":2}", 15, &canonical, &bytes), HAPAX_OK);
    IS(strcmp(canonical, "{\"a\":2,\"b\":1}"), 0);
    free(canonical);
    IS(hapax_canonical_json("{\"a\":1,\"a\":2}", 13, &canonical, &bytes), HAPAX_INVALID);
    const char *key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"; /* from the specification of Standard Webhooks */
    IS(hapax_webhook_sign(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, "{\"test\": 2432232314}", 20, signature,
                          sizeof signature),
       HAPAX_OK);
    IS(strcmp(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="), 0);
    snprintf(head, sizeof head,
             "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek\r\nwebhook-timestamp: 1614265330\r\nwebhook-signature: %s\r\n",
             signature);
    hapax_webhook webhook = {.size = sizeof webhook,
                             .secrets = key,
                             .head = head,
                             .body = "{\"test\": 2432232314}",
                             .body_bytes = 20,
                             .now = INT64_C(1614265330000)};
    IS(hapax_webhook_verify(&webhook, id), HAPAX_OK);
    IS(strcmp(id, "msg_p5jXN8AQM9LWM0D4loKWxJek"), 0);
    webhook.now += 6 * 60 * 1000;
    IS(hapax_webhook_verify(&webhook, NULL), HAPAX_DENIED);
    webhook.now = INT64_C(1614265330000);
    webhook.body_bytes = 19;
    IS(hapax_webhook_verify(&webhook, NULL), HAPAX_DENIED);
}

/* A server that does it at the second attempt; of the first it loses the response. */
typedef struct {
    int attempts;
    char keys[4][80];
} server;

static void serve(void *context, const char *method, const char *url, const char *const *headers, const void *body,
                  size_t body_bytes, hapax_response *response)
{
    server *s = context;
    (void)method, (void)url, (void)body, (void)body_bytes;
    for (; *headers; headers++)
        if (strncmp(*headers, "Idempotency-Key: ", 17) == 0)
            snprintf(s->keys[s->attempts % 4], sizeof s->keys[0], "%s", *headers + 17);
    if (++s->attempts == 1) return;
    response->status = 201;
    response->head = "Content-Type: application/json\r\nIdempotent-Replayed: true\r\n";
    response->body = "{\"id\":9}";
    response->body_bytes = 8;
}

static void test_a_request_is_sent_with_one_key(const char *folder)
{
    const char *const headers[] = {"Content-Type: application/json", NULL};
    server s = {0};
    hapax_request named = request_of("sent");
    hapax_intent intent = {.size = sizeof intent,
                           .name = named.key,
                           .method = "POST",
                           .url = "http://shop.test/refunds",
                           .headers = headers,
                           .body = "{\"amount\":5}",
                           .body_bytes = 12,
                           .retry = {.size = sizeof intent.retry, .base = 1, .cap = 2}};
    hapax_sent sent = {.size = sizeof sent};
    IS(hapax_send(folder, &intent, serve, &s, &sent), HAPAX_OK);
    IS(sent.verdict, HAPAX_VERDICT_DONE);
    IS(sent.attempts, 2);
    IS(sent.replayed, 1);
    IS(sent.body_bytes, 8);
    IS(strcmp(s.keys[0], s.keys[1]), 0);
    IS(strcmp(s.keys[0], sent.key), 0);
    IS(hapax_send(folder, &intent, serve, &s, &sent), HAPAX_OK); /* nothing is sent again */
    IS(sent.is_retry, 1);
    IS(sent.verdict, HAPAX_VERDICT_DONE);
    IS(s.attempts, 2);
    intent.body = "{\"amount\":6}";
    IS(hapax_send(folder, &intent, serve, &s, &sent), HAPAX_MISMATCH);
    IS(s.attempts, 2);
    hapax_sent_clear(&sent);
}

int main(int argc, char **argv)
{
    char key[HAPAX_KEY_BYTES];
    hapax_options options = {.size = sizeof options, .token = argc > 3 ? argv[3] : NULL};
    if (argc < 3) return 2;
    IS(hapax_new_key(key), HAPAX_OK);
    prefix = key;
    IS(hapax_open(argv[1], &options, &store), HAPAX_OK);
    if (failures == 0) {
        test_an_operation_is_executed_once();
        test_failures_stay_and_releases_do_not();
        test_a_lapsed_lease_is_unknown_and_the_old_claim_is_fenced();
        test_execute_runs_until_it_was_executed();
        test_wrong_arguments_are_said();
        test_other_stores_are_plug_ins();
        test_retries_are_decided();
        test_fingerprints_and_signatures();
        test_a_request_is_sent_with_one_key(argv[2]);
    }
    hapax_close(&store);
    return failures > 0;
}
