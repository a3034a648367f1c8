/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, as a configuration may write them. Only their form is checked here; nothing is looked up. Each returns
 * NULL when all is well; else what is wrong, to follow the option's name: `must be …, not "x"`. */
#ifndef HX_CONFIG_ADDRESS_H
#define HX_CONFIG_ADDRESS_H

#include "base/memory/arena.h"

/* "127.0.0.1:8080", "[::1]:8080", "unix:/run/hapax.sock" */
const char *hx_address_check_listen(hx_slice text, hx_arena *arena);
/* "unix:/run/hapax/admin.sock" */
const char *hx_address_check_admin(hx_slice text, hx_arena *arena);
/* "http://127.0.0.1:3000", "http://[::1]:3000", "http://name:3000", "unix:/run/app.sock". *url is without the slash at
 * the end that people copy along. */
const char *hx_address_check_upstream(hx_slice text, hx_arena *arena, hx_slice *url);
/* Whether a well-formed upstream is where one listens: as the addresses and their form tell; no name is looked up but
 * localhost. */
bool hx_address_leads_to(hx_slice upstream, hx_slice listen);
/* As HX_STORE_EXPECTED says. */
const char *hx_address_check_store(hx_slice text, hx_arena *arena);
#define HX_STORE_EXPECTED "must be journal:DIR, sqlite:FILE, postgres://… or memory:"
bool hx_address_is_postgres(hx_slice store);
/* For logs: without a password, and without the parameters, which may hold one. */
hx_slice hx_address_shown(hx_slice store, hx_arena *arena);
/* Where operators are answered: `configured`, else a unix socket whose place follows from the store: in the journal's
 * directory, beside an SQLite file, else in the state directory. Empty: nowhere. */
hx_slice hx_address_admin(hx_slice configured, hx_slice store, hx_arena *arena);
/* "journal:DIR" in the state directory; NULL when the environment names none. */
const char *hx_address_default_store(bool dev, hx_arena *arena);

#endif
