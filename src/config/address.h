/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, as a configuration may write them. Only their form is checked; no name is resolved. Each check returns
 * NULL if the address is well-formed, else a predicate that follows the option's name: `must be …, not "x"`. */
#ifndef HX_CONFIG_ADDRESS_H
#define HX_CONFIG_ADDRESS_H

#include "base/memory/arena.h"

/* "127.0.0.1:8080", "[::1]:8080", "unix:/run/hapax.sock" */
const char *hx_address_check_listen(hx_slice text, hx_arena *arena);
/* Whether a well-formed address to listen on can be reached from this machine only. */
bool hx_address_is_local(hx_slice listen);
/* "hapax.example.com" */
const char *hx_address_check_host(hx_slice text, hx_arena *arena);
/* "unix:/run/hapax/admin.sock" */
const char *hx_address_check_admin(hx_slice text, hx_arena *arena);
/* "http://127.0.0.1:3000", "http://[::1]:3000", "http://name:3000", "unix:/run/app.sock". *url is without a
 * trailing slash. */
const char *hx_address_check_upstream(hx_slice text, hx_arena *arena, hx_slice *url);
/* "http://127.0.0.1:3000/webhooks", "https://app.example.com/webhooks": a URL with a path. */
const char *hx_address_check_target(hx_slice text, hx_arena *arena);
/* Whether a well-formed upstream is the address of a listener, as far as the addresses themselves show it. Of names
 * only localhost is known. */
bool hx_address_leads_to(hx_slice upstream, hx_slice listen);
/* Checks the form that HX_STORE_EXPECTED describes. */
const char *hx_address_check_store(hx_slice text, hx_arena *arena);
#define HX_STORE_EXPECTED "must be journal:DIR, sqlite:FILE, postgres://… or memory:"
bool hx_address_is_postgres(hx_slice store);
/* The store for logs: without password and parameters, which may contain one. */
hx_slice hx_address_shown(hx_slice store, hx_arena *arena);
/* Address of the admin socket: `configured`, else a unix socket in the journal's directory, beside an SQLite file, or
 * in the state directory. Empty: there is none. */
hx_slice hx_address_admin(hx_slice configured, hx_slice store, hx_arena *arena);
/* "journal:DIR" in the state directory; NULL: the environment names no such directory. */
const char *hx_address_default_store(bool dev, hx_arena *arena);

#endif
