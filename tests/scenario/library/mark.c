/* SPDX-License-Identifier: Apache-2.0 */
/* An application behind a gateway, on a route with `guarantee: transactional`: mark DATABASE HAPAX_OPERATION KEY.
 * Commits its effect, a row in refunds, together with the mark. */
#include <hapax.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const char body[] = "{\"refund\":\"by its mark\"}";
    sqlite3 *db;
    char *effect = NULL;
    hapax_claim claim = {.size = sizeof claim};
    hapax_result result = {.size = sizeof result, .status = 201, .body = body, .body_bytes = strlen(body)};
    if (argc != 4 || sqlite3_open(argv[1], &db) != SQLITE_OK) return 2;
    sqlite3_busy_timeout(db, 20000);
    effect = sqlite3_mprintf("INSERT INTO refunds VALUES (%Q)", argv[3]);
    int code = hapax_sqlite_claim(argv[2], &claim);
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return 3;
    if (sqlite3_exec(db, effect, NULL, NULL, NULL) != SQLITE_OK) return 3;
    if (code == HAPAX_OK) code = hapax_sqlite_complete(db, &claim, &result, NULL);
    if (code != HAPAX_OK) fprintf(stderr, "%s: %s\n", hapax_code_name(code), hapax_message());
    int is_done = code == HAPAX_OK && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_free(effect);
    sqlite3_close(db);
    return is_done ? 0 : 1;
}
