/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_CMD_STORE_MIGRATE_H
#define HX_CMD_STORE_MIGRATE_H

/* `store`: its URL, or NULL where none was given. Says what it did and returns an exit code. */
int hx_store_migrate(const char *command, const char *store);

#endif
