/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the admin socket of a running daemon. */
#include "cmd/cli/ask_daemon.h"

#include "base/check.h"
#include "cmd/cli/cmd.h"
#include "config/address.h"

#include <unistd.h>

/* The configuration of the daemon; a file that relies on --upstream is accepted too. */
static hx_config *load(const char *file)
{
    hx_buf errors;
    hx_buf_init(&errors, NULL, 64u * 1024u);
    const hx_config_overrides any_upstream = {.upstream = "http://127.0.0.1:1"};
    hx_config *config = hx_config_load(file, NULL, &errors);
    if (!config) {
        hx_buf ignored;
        hx_buf_init(&ignored, NULL, 64u * 1024u);
        config = hx_config_load(file, &any_upstream, &ignored);
        hx_buf_free(&ignored);
    }
    if (!config) (void)fwrite(errors.data, 1, errors.len, stderr);
    hx_buf_free(&errors);
    return config;
}

/* Makes the path absolute: the client accepts no other. */
static hx_slice absolute(hx_slice address, hx_arena *arena)
{
    hx_slice path = hx_slice_from(address, sizeof("unix:") - 1);
    char here[4096];
    if (path.len == 0 || path.ptr[0] == '/' || !getcwd(here, sizeof here)) return address;
    return hx_arena_printf(arena, "unix:%s/%.*s", here, HX_FMT(path));
}

/* The state directory's; that of `--dev` where only a trial runs. */
static hx_slice usual_store(hx_arena *arena)
{
    const char *usual = hx_address_default_store(false, arena), *dev = hx_address_default_store(true, arena);
    if (!usual || !dev) return HX_EMPTY;
    const char *sockets[] = {usual, dev};
    for (size_t i = 0; i < 2; i++) {
        hx_slice address = hx_address_admin(HX_EMPTY, hx_slice_of(sockets[i]), arena);
        hx_slice path = hx_slice_from(address, sizeof("unix:") - 1);
        if (path.len > 0 && access(hx_arena_terminated(arena, path), F_OK) == 0) return hx_slice_of(sockets[i]);
    }
    return hx_slice_of(usual);
}

int hx_find_store(const char *command, const hx_admin_whereabouts *given, hx_arena *arena, hx_slice *store)
{
    if (given->store) {
        const char *wrong = hx_address_check_store(hx_slice_of(given->store), arena);
        *store = hx_slice_of(given->store);
        return wrong ? hx_cmd_misused(command, "--store %s", wrong) : -1;
    }
    if (!given->config) {
        *store = usual_store(arena);
        return store->len > 0 ? -1 : hx_cmd_misused(command, "there is no state directory: give --store");
    }
    hx_config *config = load(given->config);
    if (!config) return HX_EXIT_USAGE;
    *store = hx_arena_copy(arena, config->store);
    hx_config_free(&config);
    return -1;
}

int hx_find_daemon(const char *command, const hx_admin_whereabouts *given, hx_arena *arena, hx_slice *address)
{
    hx_slice configured = HX_EMPTY, store = HX_EMPTY;
    bool is_off = false;
    if (given->admin) {
        configured = hx_slice_of(given->admin);
        if (!hx_slice_starts(configured, HX_LIT("unix:"))) return hx_cmd_misused(command, "--admin must be unix:PATH");
    } else if (given->config) {
        hx_config *config = load(given->config);
        if (!config) return HX_EXIT_USAGE;
        configured = hx_arena_copy(arena, config->admin_listen);
        store = hx_arena_copy(arena, config->store);
        is_off = config->admin_off;
        hx_config_free(&config);
    }
    if (given->store) {
        const char *wrong = hx_address_check_store(hx_slice_of(given->store), arena);
        if (wrong) return hx_cmd_misused(command, "--store %s", wrong);
        store = hx_slice_of(given->store);
    } else if (!given->config && !given->admin) {
        store = usual_store(arena);
    }
    hx_slice found = is_off ? HX_EMPTY : hx_address_admin(configured, store, arena);
    if (found.len == 0) {
        (void)fflush(stdout);
        (void)fprintf(stderr,
                      "hapax %s: this daemon has no admin socket. Set admin.listen in its configuration, or use "
                      "--admin, --config or --store to name another daemon\n",
                      command);
        return HX_EXIT_USAGE;
    }
    *address = absolute(found, arena);
    return -1;
}

int hx_find_store_or_daemon(const char *command, const char *file, hx_arena *arena, hx_slice *url)
{
    const hx_admin_whereabouts where = {.config = file};
    int code = hx_find_store(command, &where, arena, url);
    bool is_shared = hx_slice_starts(*url, HX_LIT("sqlite:")) || hx_address_is_postgres(*url);
    return code >= 0 || is_shared ? code : hx_find_daemon(command, &where, arena, url);
}
