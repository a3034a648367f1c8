/* SPDX-License-Identifier: Apache-2.0 */
#include "config/address.h"

#include "base/crc32c.h"

#include "config/problems.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define HOST_BYTES_MAX 253u /* a name in the DNS */

static bool read_ip(int family, hx_slice text, void *address)
{
    char terminated[INET6_ADDRSTRLEN + 1];
    if (text.len == 0 || text.len >= sizeof terminated || hx_slice_find(text, '\0') != SIZE_MAX) return false;
    memcpy(terminated, text.ptr, text.len);
    terminated[text.len] = '\0';
    return inet_pton(family, terminated, address) == 1;
}

static bool is_ip(int family, hx_slice text)
{
    struct in6_addr address;
    return read_ip(family, text, &address);
}

static bool is_port(hx_slice text, uint64_t least)
{
    uint64_t port = 0;
    return text.len <= 5 && hx_slice_to_u64(text, &port) && port >= least && port <= UINT16_MAX;
}

static bool is_host_name(hx_slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = hx_lower(text.ptr[i]);
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_')) return false;
    }
    return text.len > 0 && text.len <= HOST_BYTES_MAX && text.ptr[0] != '.' && text.ptr[0] != '-';
}

/* Splits "host:port" and "[::1]:port"; `port` is empty if there is none. False: neither form. */
static bool split_port(hx_slice text, hx_slice *host, bool *is_v6, hx_slice *port)
{
    *is_v6 = text.len > 0 && text.ptr[0] == '[';
    *port = HX_EMPTY;
    size_t end = hx_slice_find(text, *is_v6 ? ']' : ':');
    if (*is_v6 && end == SIZE_MAX) return false;
    *host = *is_v6 ? (hx_slice){text.ptr + 1, end - 1} : hx_slice_first(text, end);
    hx_slice rest = end == SIZE_MAX ? HX_EMPTY : hx_slice_from(text, *is_v6 ? end + 1 : end);
    if (rest.len == 0) return true;
    if (rest.ptr[0] != ':' || rest.len == 1) return false;
    *port = hx_slice_from(rest, 1);
    return true;
}

/* The path of "unix:/run/app.sock". */
static const char *check_socket(hx_slice path, hx_arena *arena)
{
    size_t path_max = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (path.len == 0 || path.ptr[0] != '/')
        return hx_arena_printf(arena, "must name a socket by its whole path, such as unix:/run/hapax.sock").ptr;
    for (size_t i = 0; i < path.len; i++)
        if ((unsigned char)path.ptr[i] < 0x20) return "must not contain control bytes";
    if (path.len > path_max)
        return hx_arena_printf(arena, "has a path of %zu bytes; a socket's has up to %zu", path.len, path_max).ptr;
    return NULL;
}

const char *hx_address_check_listen(hx_slice text, hx_arena *arena)
{
    if (hx_slice_starts(text, HX_LIT("unix:"))) return check_socket(hx_slice_from(text, 5), arena);
    hx_slice host, port;
    bool is_v6;
    bool formed = split_port(text, &host, &is_v6, &port);
    if (formed && port.len > 0 && !is_port(port, 0))
        return hx_arena_printf(arena, "must have a port, 0 to 65535, not %s", hx_quoted(arena, port)).ptr;
    if (formed && port.len > 0 && is_ip(is_v6 ? AF_INET6 : AF_INET, host)) return NULL;
    const char *wrong = hx_arena_printf(arena,
                                        "must be an address such as 127.0.0.1:8080, [::1]:8080 or "
                                        "unix:/run/hapax.sock, not %s",
                                        hx_quoted(arena, text))
                            .ptr;
    const char *meant = NULL;
    if (formed && port.len > 0 && hx_slice_eq(host, HX_LIT("localhost"))) meant = "127.0.0.1";
    if (formed && port.len > 0 && (host.len == 0 || hx_slice_eq(host, HX_LIT("*")))) meant = "0.0.0.0";
    if (meant) return hx_arena_printf(arena, "%s, did you mean \"%s:%.*s\"?", wrong, meant, HX_FMT(port)).ptr;
    if (is_port(text, 1))
        return hx_arena_printf(arena, "%s, did you mean \"127.0.0.1:%.*s\"?", wrong, HX_FMT(text)).ptr;
    if (is_ip(AF_INET, text)) return hx_arena_printf(arena, "%s: the port is missing", wrong).ptr;
    if (is_ip(AF_INET6, text))
        return hx_arena_printf(arena, "%s, did you mean \"[%.*s]:8080\"?", wrong, HX_FMT(text)).ptr;
    return wrong;
}

const char *hx_address_check_host(hx_slice text, hx_arena *arena)
{
    if (is_host_name(text) && !is_ip(AF_INET, text)) return NULL;
    return hx_arena_printf(arena, "must list host names without a port, such as hapax.example.com, not %s",
                           hx_quoted(arena, text))
        .ptr;
}

const char *hx_address_check_admin(hx_slice text, hx_arena *arena)
{
    if (hx_slice_starts(text, HX_LIT("unix:"))) return check_socket(hx_slice_from(text, 5), arena);
    const char *wrong = hx_arena_printf(arena,
                                        "must be a unix socket such as unix:/run/hapax/admin.sock, or off, not %s",
                                        hx_quoted(arena, text))
                            .ptr;
    if (text.len == 0 || text.ptr[0] != '/') return wrong;
    return hx_arena_printf(arena, "%s, did you mean \"unix:%.*s\"?", wrong, HX_FMT(text)).ptr;
}

/* A host, perhaps with a port. */
static const char *check_authority(hx_slice authority, const char *wrong, hx_arena *arena)
{
    hx_slice host, port;
    bool is_v6;
    if (!split_port(authority, &host, &is_v6, &port)) return wrong;
    if (port.len > 0 && !is_port(port, 1))
        return hx_arena_printf(arena, "must have a port, 1 to 65535, not %s", hx_quoted(arena, port)).ptr;
    return (is_v6 ? is_ip(AF_INET6, host) : is_host_name(host)) ? NULL : wrong;
}

const char *hx_address_check_upstream(hx_slice text, hx_arena *arena, hx_slice *url)
{
    *url = text;
    if (hx_slice_starts(text, HX_LIT("unix:"))) return check_socket(hx_slice_from(text, 5), arena);
    const char *wrong = hx_arena_printf(arena,
                                        "must be a URL such as http://127.0.0.1:3000 or unix:/run/app.sock, not %s",
                                        hx_quoted(arena, text))
                            .ptr;
    if (hx_slice_starts_nocase(text, HX_LIT("https://")))
        return hx_arena_printf(arena, "%s: upstreams are reached by plain HTTP", wrong).ptr;
    hx_slice host, port;
    bool is_v6;
    if (!hx_slice_starts(text, HX_LIT("http://"))) {
        bool named = split_port(text, &host, &is_v6, &port) && port.len > 0 && is_port(port, 1) &&
                     (is_v6 ? is_ip(AF_INET6, host) : is_host_name(host));
        return named ? hx_arena_printf(arena, "%s, did you mean \"http://%.*s\"?", wrong, HX_FMT(text)).ptr : wrong;
    }
    if (text.ptr[text.len - 1] == '/' && text.len > 8) url->len = text.len - 1;
    hx_slice authority = hx_slice_from(*url, 7);
    if (hx_slice_find(authority, '@') != SIZE_MAX)
        return "must not contain a user or password; the upstream gets the client's own Authorization";
    size_t slash = hx_slice_find(authority, '/');
    if (slash != SIZE_MAX)
        return hx_arena_printf(arena,
                               "must end after the host and port, \"http://%.*s\": the request's own path is appended",
                               HX_FMT(hx_slice_first(authority, slash)))
            .ptr;
    return check_authority(authority, wrong, arena);
}

const char *hx_address_check_target(hx_slice text, hx_arena *arena)
{
    static const char expected[] = "must be a URL such as http://127.0.0.1:3000/webhooks";
    size_t scheme = hx_slice_starts(text, HX_LIT("http://")) ? 7 : hx_slice_starts(text, HX_LIT("https://")) ? 8 : 0;
    hx_slice rest = hx_slice_from(text, scheme);
    size_t slash = hx_slice_find(rest, '/');
    if (hx_slice_find(hx_slice_first(rest, slash), '@') != SIZE_MAX) return "must not contain a user or password";
    const char *wrong = hx_arena_printf(arena, "%s, not %s", expected, hx_quoted(arena, text)).ptr;
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] >= 0x7f || text.ptr[i] == '#') return wrong;
    const char *of_authority = check_authority(hx_slice_first(rest, slash), wrong, arena);
    if (of_authority) return of_authority;
    if (slash == SIZE_MAX) return hx_arena_printf(arena, "%s: the path is missing", wrong).ptr;
    return scheme > 0 ? NULL : hx_arena_printf(arena, "%s, did you mean \"http://%.*s\"?", wrong, HX_FMT(text)).ptr;
}

static bool is_loopback(int family, const void *address)
{
    if (family == AF_INET6) return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)address);
    return *(const unsigned char *)address == 127;
}

bool hx_address_is_local(hx_slice listen)
{
    hx_slice host, port;
    bool is_v6;
    struct in6_addr address;
    if (hx_slice_starts(listen, HX_LIT("unix:"))) return true;
    if (!split_port(listen, &host, &is_v6, &port)) return false;
    int family = is_v6 ? AF_INET6 : AF_INET;
    return read_ip(family, host, &address) && is_loopback(family, &address);
}

/* 0.0.0.0 and [::]: every address of the machine for a listener, the loopback address for a target. */
static bool is_any(int family, const void *address)
{
    static const struct in6_addr none;
    return memcmp(address, &none, family == AF_INET6 ? sizeof(struct in6_addr) : sizeof(struct in_addr)) == 0;
}

bool hx_address_leads_to(hx_slice upstream, hx_slice listen)
{
    if (hx_slice_starts(upstream, HX_LIT("unix:"))) return hx_slice_eq(upstream, listen);
    hx_slice to, to_port, at, at_port;
    bool to_v6, at_v6;
    uint64_t to_number = 80, at_number;
    struct in6_addr target, listener;
    if (!hx_slice_starts(upstream, HX_LIT("http://"))) return false;
    if (!split_port(hx_slice_from(upstream, 7), &to, &to_v6, &to_port) || !split_port(listen, &at, &at_v6, &at_port))
        return false;
    if (to_port.len > 0 && !hx_slice_to_u64(to_port, &to_number)) return false;
    if (!hx_slice_to_u64(at_port, &at_number) || to_number != at_number) return false;
    int family = at_v6 ? AF_INET6 : AF_INET;
    if (!read_ip(family, at, &listener)) return false;
    bool near = is_loopback(family, &listener) || is_any(family, &listener);
    if (hx_slice_eq_nocase(to, HX_LIT("localhost"))) return near;
    if (to_v6 != at_v6 || !read_ip(family, to, &target)) return false;
    if (memcmp(&target, &listener, at_v6 ? sizeof target : sizeof(struct in_addr)) == 0) return true;
    /* 127.0.0.2 is not 127.0.0.1, but a listener on 0.0.0.0 has both. */
    return near && (is_any(family, &listener) ? is_loopback(family, &target) : is_any(family, &target));
}

const char *hx_address_check_store(hx_slice text, hx_arena *arena)
{
    static const char expected[] = HX_STORE_EXPECTED;
    if (hx_slice_find(text, '\0') != SIZE_MAX) return "must not contain control bytes";
    if (hx_slice_eq(text, HX_LIT("memory:"))) return NULL;
    if (hx_slice_starts(text, HX_LIT("journal:"))) {
        if (text.len == strlen("journal:")) return "must name a directory, such as journal:/var/lib/hapax";
        return text.len < 4096 ? NULL : "names a directory whose path is too long";
    }
    if (hx_slice_eq(text, HX_LIT("sqlite:"))) return "must name a file, such as sqlite:/var/lib/hapax.db";
    /* Opening these stores reports what is wrong with the rest. */
    if (hx_slice_starts(text, HX_LIT("sqlite:")) || hx_address_is_postgres(text)) return NULL;
    if (text.len > 0 && (text.ptr[0] == '/' || text.ptr[0] == '.'))
        return hx_arena_printf(arena, "%s, not %s, did you mean %s?", expected, hx_quoted(arena, text),
                               hx_quoted(arena, hx_arena_printf(arena, "journal:%.*s", HX_FMT(text))))
            .ptr;
    return hx_arena_printf(arena, "%s, not %s%s", expected, hx_quoted(arena, text),
                           hx_slice_eq(text, HX_LIT("memory")) ? ", did you mean \"memory:\"?" : "")
        .ptr;
}

bool hx_address_is_postgres(hx_slice store)
{
    return hx_slice_starts(store, HX_LIT("postgres://")) || hx_slice_starts(store, HX_LIT("postgresql://"));
}

/* A password is between the first colon of the part before the last @ of the authority, and that @; or a parameter. */
hx_slice hx_address_shown(hx_slice store, hx_arena *arena)
{
    if (!hx_address_is_postgres(store)) return store;
    size_t begin = hx_slice_find(store, '/') + 2, end = begin, at = SIZE_MAX, colon = SIZE_MAX;
    while (end < store.len && store.ptr[end] != '/' && store.ptr[end] != '?') end++;
    for (size_t i = begin; i < end; i++)
        if (store.ptr[i] == '@') at = i;
    for (size_t i = begin; at != SIZE_MAX && i < at && colon == SIZE_MAX; i++)
        if (store.ptr[i] == ':') colon = i;
    size_t query = end;
    while (query < store.len && store.ptr[query] != '?') query++;
    hx_slice shown = hx_slice_first(store, query);
    if (colon == SIZE_MAX) return shown;
    return hx_arena_printf(arena, "%.*s:***%.*s", HX_FMT(hx_slice_first(store, colon)),
                           HX_FMT(hx_slice_from(shown, at)));
}

const char *hx_address_default_store(bool dev, hx_arena *arena)
{
    const char *end = dev ? "-dev" : ""; /* a store of its own: keys and 5xx of a trial never reach production */
    const char *given = getenv("STATE_DIRECTORY"); /* set by systemd; a list if the unit names several */
    if (given && given[0] == '/')
        return hx_arena_printf(arena, "journal:%.*s%s", (int)strcspn(given, ":"), given, end).ptr;
    if (geteuid() == 0) return hx_arena_printf(arena, "journal:/var/lib/hapax%s", end).ptr;
    const char *state = getenv("XDG_STATE_HOME");
    if (state && state[0] == '/') return hx_arena_printf(arena, "journal:%s/hapax%s", state, end).ptr;
    const char *home = getenv("HOME");
    if (home && home[0] == '/') return hx_arena_printf(arena, "journal:%s/.local/state/hapax%s", home, end).ptr;
    return NULL;
}

hx_slice hx_address_admin(hx_slice configured, hx_slice store, hx_arena *arena)
{
    const hx_slice journal = HX_LIT("journal:"), sqlite = HX_LIT("sqlite:");
    if (configured.len > 0) return configured;
    if (hx_slice_starts(store, sqlite))
        return hx_arena_printf(arena, "unix:%.*s-admin.sock", HX_FMT(hx_slice_from(store, sqlite.len)));
    if (hx_slice_starts(store, journal)) {
        hx_slice directory = hx_slice_from(store, journal.len);
        while (directory.len > 1 && directory.ptr[directory.len - 1] == '/') directory.len--;
        return hx_arena_printf(arena, "unix:%.*s/admin.sock", HX_FMT(directory));
    }
    const char *state = hx_address_is_postgres(store) ? hx_address_default_store(false, arena) : NULL;
    if (!state) return HX_EMPTY;
    return hx_arena_printf(arena, "unix:%s/admin-%08x.sock", state + journal.len,
                           (unsigned)hx_crc32c(0, hx_address_shown(store, arena)));
}
