/* SPDX-License-Identifier: Apache-2.0 */
/* The schema in PostgreSQL, and its migrations, which are part of the program (sql/postgres, by tools/embed). Calls
 * block: they are for commands, never for a loop. */
#ifndef HX_STORE_POSTGRES_MIGRATE_H
#define HX_STORE_POSTGRES_MIGRATE_H

#include "store/store.h"

typedef struct {
    unsigned number; /* the version that it makes, from 1 on without a gap */
    const char *name;
    const char *text;
    const char *digest; /* digest of this migration and all before it; hapax.store has the schema's */
} hx_migration;

extern const hx_migration hx_postgres_migrations[];
extern const size_t hx_postgres_migrations_count;

/* The version that this program is made for. */
unsigned hx_postgres_schema_newest(void);
/* An expression over hapax.store AS s: the schema's digest, '' where it is older than that. */
#define HX_POSTGRES_DIGEST "coalesce(to_jsonb(s) ->> 'digest', '')"
/* Whether a schema of this version was made by the migrations of this program, not by another edit of them. False with
 * a sentence in `error`. */
bool hx_postgres_is_own_edit(unsigned version, hx_slice digest, hx_error_text error) HX_MUST_USE;

/* Applies what is missing, each migration in a transaction of its own, one process at a time: it may be called by all
 * nodes at once, and again. `report` gets a sentence for people about each. False, with what is wrong and what to do in
 * `error`: a server that can't be reached, a standby, a schema that is newer than this program, or an SQL error; what
 * was reported as applied stays. `url` as libpq has it. */
bool hx_postgres_migrate(const char *url, void (*report)(void *context, const char *sentence), void *context,
                         hx_error_text error) HX_MUST_USE;

#endif
