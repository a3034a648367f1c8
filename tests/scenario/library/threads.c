/* SPDX-License-Identifier: Apache-2.0 */
/* Eight threads on one handle: threads STORE KEYS. Each executes every key; each key has one effect, and all threads
 * get what that gave. Prints the number of effects. */
#include <hapax.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8

static hapax *store;
static int keys;
static atomic_int effects, failures;

typedef struct {
    char body[32];
} effect;

static int act(void *context, const hapax_claim *claim, hapax_result *result)
{
    effect *e = context;
    (void)claim;
    snprintf(e->body, sizeof e->body, "%d", atomic_fetch_add(&effects, 1) + 1);
    result->body = e->body;
    result->body_bytes = strlen(e->body);
    return HAPAX_STATE_COMPLETED;
}

static void *work(void *given)
{
    long *results = given;
    for (int i = 0; i < keys; i++) {
        char key[32], text[32] = "";
        effect e;
        snprintf(key, sizeof key, "key-%d", i);
        hapax_request request = {.size = sizeof request, .key = key, .wait = 60000};
        hapax_record record = {.size = sizeof record};
        int code = hapax_execute(store, &request, act, &e, &record);
        if ((code != HAPAX_OK && code != HAPAX_DONE) || record.body_bytes >= sizeof text) {
            printf("%s: %s\n", hapax_code_name(code), hapax_message());
            atomic_fetch_add(&failures, 1);
        } else {
            memcpy(text, record.body, record.body_bytes);
            results[i] = atol(text);
        }
        hapax_record_clear(&record);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    long *results[THREADS];
    if (argc != 3 || hapax_open(argv[1], NULL, &store) != HAPAX_OK) return 2;
    keys = (int)strtol(argv[2], NULL, 10);
    for (int i = 0; i < THREADS; i++) {
        results[i] = calloc((size_t)keys, sizeof *results[i]);
        if (pthread_create(&threads[i], NULL, work, results[i]) != 0) return 2;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        if (memcmp(results[i], results[0], (size_t)keys * sizeof *results[i]) != 0) atomic_fetch_add(&failures, 1);
        if (i > 0) free(results[i]);
    }
    free(results[0]);
    hapax_close(&store);
    printf("%d\n", effects);
    return failures > 0;
}
