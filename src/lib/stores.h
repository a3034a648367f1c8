/* SPDX-License-Identifier: Apache-2.0 */
/* The stores that are part of the library. They keep what hapax.h asks of plug-ins; their functions run inside a call
 * (lib/guard.h), whose arena they use. */
#ifndef HX_LIB_STORES_H
#define HX_LIB_STORES_H

#include "lib/structs.h"
#include "store/sqlite/in_transaction.h"

extern const hapax_store_type hx_lib_sqlite, hx_lib_unix, hx_lib_http;

/* What the files about SQLite share. `error` is where a sentence goes. */
hx_in_transaction_request hx_lib_request(const hapax_request *request, hx_arena *arena);
bool hx_lib_operation(const hapax_claim *claim, hx_in_transaction_operation *out) HX_MUST_USE;
/* Makes the tables, in the open transaction or one of its own. */
int hx_lib_prepare(sqlite3 *db, char *error);
/* Ends it, in the open transaction; `state` is COMPLETED, FAILED or ABSENT. */
int hx_lib_settle(sqlite3 *db, const hapax_claim *claim, int state, const hapax_result *result, const char *reason,
                  hapax_record *record, char *error);
/* Begins it, in the open transaction. */
int hx_lib_begin(sqlite3 *db, const hapax_request *request, hapax_claim *claim, hapax_record *record, char *error);
/* The code and the sentence for a result, and the record where one was found. */
int hx_lib_tell(hx_in_transaction_result result, const hx_record *found, hapax_record *record, char *error);

#endif
