/* SPDX-License-Identifier: Apache-2.0 */
/* Reserves items of a shop's stock, exactly once: the reservation, its mark and its event are one transaction.
 *
 *     cc reservation.c $(pkg-config --cflags --libs hapax sqlite3) -o reservation
 *     ./reservation shop.db cart-5 keyboard 2
 *
 * If the program is killed, whenever that is, either all of it has happened or nothing, and running it again ends in
 * the same state. A daemon whose store is this database (`hapax serve --store sqlite:shop.db`) delivers the event. */
#include <hapax.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    sqlite3 *db;
    const char *key, *product;
    int quantity;
    char answer[200];
} cart;

/* The effect. What it writes is undone unless it returns HAPAX_STATE_COMPLETED. */
static int reserve(void *context, const hapax_claim *claim, hapax_result *result)
{
    cart *c = context;
    sqlite3_stmt *s = NULL;
    (void)claim;
    sqlite3_prepare_v2(c->db,
                       "UPDATE stock SET reserved = reserved + ?1, available = available - ?1"
                       " WHERE product = ?2 AND available >= ?1 RETURNING available",
                       -1, &s, NULL);
    sqlite3_bind_int(s, 1, c->quantity);
    sqlite3_bind_text(s, 2, c->product, -1, SQLITE_STATIC);
    int rc = sqlite3_step(s), left = rc == SQLITE_ROW ? sqlite3_column_int(s, 0) : 0;
    sqlite3_finalize(s);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE) return HAPAX_STATE_ABSENT; /* SQLite failed: nothing has happened */
    int is_enough = rc == SQLITE_ROW;
    snprintf(c->answer, sizeof c->answer,
             is_enough ? "{\"reserved\": true, \"remaining\": %d}" : "{\"reserved\": false}", left);
    result->status = is_enough ? 201 : 409;
    result->body = c->answer;
    result->body_bytes = strlen(c->answer);
    if (!is_enough) return HAPAX_STATE_FAILED; /* every later call with this key gets the same */
    hapax_event event = {.size = sizeof event, .id = c->key, .type = "stock.reserved", .data = c->answer};
    return hapax_sqlite_publish(c->db, &event) == HAPAX_OK ? HAPAX_STATE_COMPLETED : HAPAX_STATE_ABSENT;
}

/* One transaction: HAPAX_OK after its commit, or what else became of it. */
static int run(cart *c, hapax_record *outcome)
{
    hapax_request request = {.size = sizeof request,
                             .name = "reservations",
                             .key = c->key,
                             .payload = c->product,
                             .payload_bytes = strlen(c->product)};
    if (sqlite3_exec(c->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return HAPAX_BUSY;
    int code = hapax_sqlite_execute(c->db, &request, reserve, c, outcome);
    if (code == HAPAX_OK && sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL) == SQLITE_OK) return HAPAX_OK;
    sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    return code == HAPAX_OK ? HAPAX_UNAVAILABLE : code;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: reservation DATABASE KEY PRODUCT QUANTITY\n");
        return 2;
    }
    cart c = {.key = argv[2], .product = argv[3], .quantity = (int)strtol(argv[4], NULL, 10)};
    hapax_record outcome = {.size = sizeof outcome};
    if (sqlite3_open(argv[1], &c.db) != SQLITE_OK) return 3;
    sqlite3_busy_timeout(c.db, 10000);
    if (hapax_sqlite_prepare(c.db) != HAPAX_OK) {
        fprintf(stderr, "reservation: %s\n", hapax_message());
        return 3;
    }
    int code = run(&c, &outcome);
    if (code == HAPAX_OK || code == HAPAX_DONE)
        printf("%s%.*s\n", outcome.is_retry ? "before: " : "", (int)outcome.body_bytes, (const char *)outcome.body);
    else
        fprintf(stderr, "reservation: %s: %s\n", hapax_code_name(code), hapax_message());
    int is_reserved = outcome.state == HAPAX_STATE_COMPLETED;
    hapax_record_clear(&outcome);
    sqlite3_close(c.db);
    return code != HAPAX_OK && code != HAPAX_DONE ? 3 : is_reserved ? 0 : 1;
}
