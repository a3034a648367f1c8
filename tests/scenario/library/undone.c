/* SPDX-License-Identifier: Apache-2.0 */
/* An operation that writes, and then fails or gives up: undone DATABASE failed|absent. Commits what is left. */
#include <hapax.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    sqlite3 *db;
    int state;
} operation;

static int act(void *context, const hapax_claim *claim, hapax_result *result)
{
    operation *o = context;
    (void)claim;
    (void)result;
    sqlite3_exec(o->db, "UPDATE stock SET available = available - 1", NULL, NULL, NULL);
    return o->state;
}

int main(int argc, char **argv)
{
    operation o = {.state = argc > 2 && strcmp(argv[2], "failed") == 0 ? HAPAX_STATE_FAILED : HAPAX_STATE_ABSENT};
    hapax_request request = {.size = sizeof request, .key = argc > 2 ? argv[2] : NULL};
    hapax_record outcome = {.size = sizeof outcome};
    if (argc != 3 || sqlite3_open(argv[1], &o.db) != SQLITE_OK || hapax_sqlite_prepare(o.db) != HAPAX_OK) return 2;
    printf("%s ", hapax_code_name(hapax_sqlite_execute(o.db, &request, act, &o, &outcome))); /* no transaction */
    sqlite3_exec(o.db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    int code = hapax_sqlite_execute(o.db, &request, act, &o, &outcome);
    printf("%s %d %d\n", hapax_code_name(code), outcome.state, outcome.failed_before);
    int is_done = sqlite3_exec(o.db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    hapax_record_clear(&outcome);
    sqlite3_close(o.db);
    return is_done ? 0 : 1;
}
