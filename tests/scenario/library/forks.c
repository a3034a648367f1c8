/* SPDX-License-Identifier: Apache-2.0 */
/* A handle is its process's: forks STORE. A child gets HAPAX_FORKED from every call, and changes nothing; with a handle
 * of its own it works, and so does the parent afterwards. */
#include <hapax.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAME(found, wanted)                                                                                            \
    do {                                                                                                               \
        if ((found) == (wanted)) break;                                                                                \
        printf("line %d: " #found " is not " #wanted ": %s\n", __LINE__, hapax_message());                             \
        failures++;                                                                                                    \
    } while (0)

static int failures;

static int never(void *context, const hapax_claim *claim, hapax_result *result)
{
    (void)context, (void)claim, (void)result;
    failures++;
    return HAPAX_STATE_COMPLETED;
}

static void be_child(hapax *inherited, const char *url, const hapax_claim *claim, int told)
{
    hapax_request request = {.size = sizeof request, .key = "begun"}, own = {.size = sizeof own, .key = "of-the-child"};
    hapax_claim mine = {.size = sizeof mine};
    hapax_record record = {.size = sizeof record};
    hapax *store, *copy = inherited;
    char key[HAPAX_KEY_BYTES];
    SAME(hapax_new_key(key), HAPAX_OK);
    if (write(told, key, sizeof key) != (ssize_t)sizeof key) failures++;
    SAME(hapax_begin(inherited, &own, &mine, &record), HAPAX_FORKED);
    SAME(hapax_find(inherited, &request, &record), HAPAX_FORKED);
    SAME(hapax_renew(inherited, claim, 1000, &record), HAPAX_FORKED);
    SAME(hapax_complete(inherited, claim, NULL, &record), HAPAX_FORKED);
    SAME(hapax_fail(inherited, claim, NULL, &record), HAPAX_FORKED);
    SAME(hapax_release(inherited, claim, "no", &record), HAPAX_FORKED);
    SAME(hapax_execute(inherited, &own, never, NULL, &record), HAPAX_FORKED);
    hapax_close(&copy);
    SAME(hapax_open(url, NULL, &store), HAPAX_OK);
    SAME(hapax_find(store, &request, &record), HAPAX_IN_FLIGHT); /* nothing of the above was done */
    SAME(hapax_begin(store, &own, &mine, &record), HAPAX_OK);
    SAME(hapax_complete(store, &mine, NULL, &record), HAPAX_OK);
    hapax_record_clear(&record);
    hapax_close(&store);
}

int main(int argc, char **argv)
{
    hapax_request request = {.size = sizeof request, .key = "begun"},
                  childs = {.size = sizeof childs, .key = "of-the-child"};
    hapax_claim claim = {.size = sizeof claim};
    hapax_record record = {.size = sizeof record};
    char key[HAPAX_KEY_BYTES], of_child[HAPAX_KEY_BYTES];
    hapax *store;
    int status, told[2];
    if (argc != 2 || pipe(told) != 0 || hapax_open(argv[1], NULL, &store) != HAPAX_OK) return 2;
    SAME(hapax_begin(store, &request, &claim, NULL), HAPAX_OK);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        be_child(store, argv[1], &claim, told[1]);
        fflush(stdout);
        _exit(failures > 0);
    }
    SAME(hapax_new_key(key), HAPAX_OK);
    if (waitpid(child, &status, 0) != child || status != 0) failures++;
    SAME(hapax_complete(store, &claim, NULL, &record), HAPAX_OK);
    SAME(hapax_find(store, &childs, &record), HAPAX_DONE);
    SAME(read(told[0], of_child, sizeof of_child), (ssize_t)sizeof of_child);
    SAME(strcmp(key + 15, of_child + 15) != 0, 1); /* behind the time: they don't draw the same numbers */
    hapax_record_clear(&record);
    hapax_close(&store);
    return failures > 0;
}
