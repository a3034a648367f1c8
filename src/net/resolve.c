/* SPDX-License-Identifier: Apache-2.0 */
#include "net/resolve.h"

#include <stdio.h>
#include <string.h>

static bool refuse(hx_error_text error, const char *sentence, hx_slice url)
{
    return hx_fail(error, "%s: \"%.*s\"", sentence, url.len < 120 ? (int)url.len : 120, url.ptr);
}

static bool copy(char *out, size_t room, hx_slice bytes)
{
    if (bytes.len >= room || hx_slice_find(bytes, '\0') != SIZE_MAX) return false;
    memcpy(out, bytes.ptr, bytes.len);
    out[bytes.len] = '\0';
    return true;
}

static bool parse_unix(hx_target *target, hx_slice url, hx_error_text error)
{
    hx_slice path = hx_slice_from(url, sizeof "unix:" - 1);
    target->is_unix = true;
    if (path.len == 0 || path.ptr[0] != '/') return refuse(error, "a unix socket's path must start with a slash", url);
    target->address.sun_family = AF_UNIX;
    if (!copy(target->address.sun_path, sizeof target->address.sun_path, path))
        return refuse(error, "a unix socket's path must be shorter than 108 bytes", url);
    (void)copy(target->authority, sizeof target->authority, HX_LIT("localhost"));
    return true;
}

static bool is_host_byte(char c, bool in_brackets)
{
    if ((c >= '0' && c <= '9') || (hx_lower(c) >= 'a' && hx_lower(c) <= 'z')) return true;
    if (in_brackets) return c == ':' || c == '.' || c == '%';
    return c == '-' || c == '.' || c == '_';
}

static bool parse_host(hx_target *target, hx_slice *authority)
{
    hx_slice host, after;
    bool in_brackets = authority->len > 0 && authority->ptr[0] == '[';
    if (in_brackets) {
        size_t end = hx_slice_find(*authority, ']');
        if (end == SIZE_MAX) return false;
        host = hx_slice_from(hx_slice_first(*authority, end), 1);
        after = hx_slice_from(*authority, end + 1);
    } else {
        size_t end = hx_slice_find(*authority, ':');
        host = hx_slice_first(*authority, end);
        after = hx_slice_from(*authority, host.len);
    }
    if (host.len == 0 || !copy(target->host, sizeof target->host, host)) return false;
    for (size_t i = 0; i < host.len; i++)
        if (!is_host_byte(host.ptr[i], in_brackets)) return false;
    *authority = after;
    return true;
}

bool hx_target_parse(hx_target *target, hx_slice url, hx_error_text error)
{
    *target = (hx_target){0};
    if (hx_slice_starts_nocase(url, HX_LIT("unix:"))) return parse_unix(target, url, error);
    if (hx_slice_starts_nocase(url, HX_LIT("https:")))
        return refuse(error, "an upstream is reached by http:// or unix:, not yet by https://", url);
    if (!hx_slice_starts_nocase(url, HX_LIT("http://")))
        return refuse(error, "an upstream's URL starts with http:// or unix:", url);
    hx_slice authority = hx_slice_from(url, sizeof "http://" - 1);
    if (hx_slice_ends(authority, HX_LIT("/"))) authority.len--;
    if (hx_slice_find(authority, '/') != SIZE_MAX || hx_slice_find(authority, '?') != SIZE_MAX)
        return refuse(error, "an upstream's URL has no path: requests keep their own", url);
    if (!copy(target->authority, sizeof target->authority, authority))
        return refuse(error, "an upstream's URL is too long", url);
    if (!parse_host(target, &authority)) return refuse(error, "an upstream's URL needs a host", url);
    uint64_t port = 80;
    if (authority.len > 0) {
        bool good = authority.ptr[0] == ':' && hx_slice_to_u64(hx_slice_from(authority, 1), &port);
        if (!good || port == 0 || port > 65535) return refuse(error, "an upstream's port is from 1 to 65535", url);
    }
    (void)snprintf(target->port, sizeof target->port, "%u", (unsigned)port);
    return true;
}

static void keep(hx_resolver *resolver, const struct addrinfo *found)
{
    unsigned count = 0;
    for (const struct addrinfo *a = found; a && count < HX_TARGET_ADDRESSES_MAX; a = a->ai_next) {
        if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || a->ai_addrlen > sizeof resolver->addresses[0])
            continue;
        memset(&resolver->addresses[count], 0, sizeof resolver->addresses[count]);
        memcpy(&resolver->addresses[count++], a->ai_addr, a->ai_addrlen);
    }
    if (count == 0) return;
    resolver->count = count;
    resolver->preferred = 0;
}

void hx_resolver_init(hx_resolver *resolver, uv_loop_t *loop, const hx_target *target,
                      void (*done)(hx_resolver *resolver))
{
    *resolver = (hx_resolver){.target = target, .loop = loop, .done = done, .is_stale = true};
    resolver->request.data = resolver;
    if (target->is_unix) return;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(target->host, target->port, &hints, &found) != 0) return; /* a name: no lookup happens here */
    keep(resolver, found);
    freeaddrinfo(found);
    resolver->is_literal = resolver->count > 0;
}

bool hx_resolver_ready(const hx_resolver *resolver)
{
    return resolver->is_literal || (resolver->count > 0 && !resolver->is_stale);
}

static void looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    hx_resolver *resolver = request->data;
    resolver->is_busy = false;
    if (status == 0) keep(resolver, found);
    resolver->error = status < 0 ? status : UV_EAI_NONAME; /* all addresses found may be of other families */
    uv_freeaddrinfo(found);
    /* After a failed lookup the old addresses are better than none; the next failed connection looks up again. */
    resolver->is_stale = resolver->count == 0;
    resolver->done(resolver);
}

bool hx_resolver_look_up(hx_resolver *resolver)
{
    if (resolver->is_busy) return true;
    struct addrinfo hints = {.ai_flags = AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    int result = uv_getaddrinfo(resolver->loop, &resolver->request, looked_up, resolver->target->host,
                                resolver->target->port, &hints);
    resolver->is_busy = result == 0;
    return result == 0;
}

void hx_resolver_distrust(hx_resolver *resolver)
{
    resolver->is_stale = true;
}
