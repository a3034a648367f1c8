/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgres/names.h"

#include "base/check.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESSES_OF_A_NAME_MAX 4u

static bool is_name(hx_slice host)
{
    char text[256];
    struct in6_addr address;
    if (host.len == 0 || host.len >= sizeof text || host.ptr[0] == '/' || host.ptr[0] == '@') return false;
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    return inet_pton(AF_INET, text, &address) != 1 && inet_pton(AF_INET6, text, &address) != 1;
}

/* An item of a list with commas; a list of one item has it at every place. */
static hx_slice item(const char *list, size_t number)
{
    hx_slice rest = hx_slice_of(list);
    if (hx_slice_find(rest, ',') == SIZE_MAX) return number == 0 || rest.len > 0 ? rest : HX_EMPTY;
    for (;; number--) {
        size_t comma = hx_slice_find(rest, ',');
        if (number == 0) return comma == SIZE_MAX ? rest : hx_slice_first(rest, comma);
        if (comma == SIZE_MAX) return HX_EMPTY;
        rest = hx_slice_from(rest, comma + 1);
    }
}

static size_t items(const char *list)
{
    size_t count = 1;
    for (; *list; list++) count += *list == ',';
    return count;
}

bool hx_names_include_one(const char *hosts)
{
    for (size_t i = 0; i < items(hosts); i++)
        if (is_name(item(hosts, i))) return true;
    return false;
}

static void put(char list[HX_NAMES_BYTES], bool is_first, hx_slice text)
{
    size_t len = strlen(list);
    (void)snprintf(list + len, HX_NAMES_BYTES - len, "%s%.*s", is_first ? "" : ",", HX_FMT(text));
}

const char *hx_names_rotate(const char *list, size_t by, char out[HX_NAMES_BYTES])
{
    if (strlen(list) >= HX_NAMES_BYTES) return list;
    size_t count = items(list);
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) put(out, i == 0, item(list, (i + by) % count));
    return out;
}

static bool fits_in(const char list[HX_NAMES_BYTES], size_t bytes)
{
    return strlen(list) + bytes + 2 < HX_NAMES_BYTES;
}

/* Adds to all three lists or to none, so that they keep the same length. */
static void add(hx_names *names, size_t *count, hx_slice host, const char *address, hx_slice port)
{
    bool fits = fits_in(names->host, host.len) && fits_in(names->hostaddr, strlen(address)) &&
                fits_in(names->port, port.len);
    if (!fits) return;
    bool is_first = (*count)++ == 0;
    put(names->host, is_first, host);
    put(names->hostaddr, is_first, hx_slice_of(address));
    put(names->port, is_first, port);
}

static void look_up(hx_names *found, size_t *count, hx_slice host, hx_slice port)
{
    char name[256], address[NI_MAXHOST];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    (void)snprintf(name, sizeof name, "%.*s", HX_FMT(host));
    if (!is_name(host) || getaddrinfo(name, NULL, &hints, &list) != 0) {
        add(found, count, host, is_name(host) || host.len == 0 || host.ptr[0] == '/' || host.ptr[0] == '@' ? "" : name,
            port);
        return;
    }
    unsigned taken = 0;
    for (const struct addrinfo *a = list; a && taken < ADDRESSES_OF_A_NAME_MAX; a = a->ai_next, taken++)
        if (getnameinfo(a->ai_addr, a->ai_addrlen, address, sizeof address, NULL, 0, NI_NUMERICHOST) == 0)
            add(found, count, host, address, port);
    freeaddrinfo(list);
}

static void look_up_all(void *memory)
{
    hx_names *names = memory, asked = *names;
    size_t count = 0;
    *names = (hx_names){0};
    for (size_t i = 0; i < items(asked.host); i++) look_up(names, &count, item(asked.host, i), item(asked.port, i));
}

hx_offload *hx_names_look_up(hx_loop *loop, const char *hosts, const char *ports,
                             void (*done)(void *context, void *found), void *context)
{
    hx_names *names = calloc(1, sizeof *names);
    if (!names) hx_fatal(HX_EXIT_BUG, "out of memory");
    (void)snprintf(names->host, sizeof names->host, "%s", hosts);
    (void)snprintf(names->port, sizeof names->port, "%s", ports);
    return hx_offload_start(loop, names, look_up_all, done, context);
}
