/* SPDX-License-Identifier: Apache-2.0 */
#include "net/client/address_guard.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <setjmp.h>
#include <cmocka.h>

static const hx_address_guard nothing_allowed = {0};

/* Bytes as the guard sees them; what would overflow stays. */
static void step(struct sockaddr_storage *address, int by)
{
    bool is_v4 = address->ss_family == AF_INET;
    uint8_t *bytes = is_v4 ? (uint8_t *)&((struct sockaddr_in *)address)->sin_addr
                           : ((struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
    for (int i = is_v4 ? 3 : 15; i >= 0; i--) {
        bytes[i] = (uint8_t)(bytes[i] + by);
        if (bytes[i] != (by > 0 ? 0 : 0xff)) return;
    }
}

static struct sockaddr_storage numeric(const char *text)
{
    struct sockaddr_storage address = {0};
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *found = NULL;
    if (getaddrinfo(text, NULL, &hints, &found) != 0) fail_msg("%s is no address", text);
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return address;
}

static bool allows(const hx_address_guard *guard, const struct sockaddr_storage *address, hx_error_text error)
{
    return hx_guard_allows(guard, (const struct sockaddr *)address, error);
}

static void expect(const char *text, const struct sockaddr_storage *address, bool allowed, const char *what)
{
    hx_error_text error = "";
    if (allows(&nothing_allowed, address, error) != allowed)
        fail_msg("%s should be %s: %s", text, allowed ? "allowed" : "denied", error);
    if (!allowed && !strstr(error, what)) fail_msg("%s is denied, but not as \"%s\": %s", text, what, error);
}

/* A range, and whether its neighbours on both sides are public. */
static const struct {
    const char *first, *last, *what;
    bool public_before, public_after;
} ranges[] = {
    {"0.0.0.0", "0.255.255.255", "this network", false, true},
    {"10.0.0.0", "10.255.255.255", "private", true, true},
    {"100.64.0.0", "100.127.255.255", "NAT", true, true},
    {"127.0.0.0", "127.255.255.255", "loopback", true, true},
    {"168.63.129.16", "168.63.129.16", "host agent", true, true},
    {"169.254.0.0", "169.254.255.255", "link-local", true, true},
    {"172.16.0.0", "172.31.255.255", "private", true, true},
    {"192.0.0.0", "192.0.0.255", "IETF", true, true},
    {"192.0.2.0", "192.0.2.255", "documentation", true, true},
    {"192.88.99.0", "192.88.99.255", "6to4 relays", true, true},
    {"192.168.0.0", "192.168.255.255", "private", true, true},
    {"198.18.0.0", "198.19.255.255", "benchmarks", true, true},
    {"198.51.100.0", "198.51.100.255", "documentation", true, true},
    {"203.0.113.0", "203.0.113.255", "documentation", true, true},
    {"224.0.0.0", "239.255.255.255", "multicast", true, false},
    {"240.0.0.0", "255.255.255.254", "reserved", false, false},
    {"255.255.255.255", "255.255.255.255", "broadcast", false, false},
    {"::", "::", "unspecified", false, false},
    {"::1", "::1", "loopback", false, false},
    {"::7f00:0", "::7fff:ffff", "loopback", true, true}, /* IPv4-compatible */
    {"::a00:0", "::aff:ffff", "private", true, true},
    {"::ffff:10.0.0.0", "::ffff:10.255.255.255", "private", true, true}, /* IPv4-mapped */
    {"::ffff:0:10.0.0.0", "::ffff:0:10.255.255.255", "private", true, true},
    {"64:ff9b::10.0.0.0", "64:ff9b::10.255.255.255", "private", true, true},
    {"64:ff9b::169.254.0.0", "64:ff9b::169.254.255.255", "link-local", true, true},
    {"64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "local NAT64", false, false},
    {"100::", "100::ffff:ffff:ffff:ffff", "discard", false, false},
    {"101::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved", false, true},
    {"2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "Teredo", true, false},
    {"2001:2::", "2001:2:0:ffff:ffff:ffff:ffff:ffff", "benchmarks", false, false},
    {"2001:3::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "IETF", false, true},
    {"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation", true, true},
    {"2002:a00::", "2002:aff:ffff:ffff:ffff:ffff:ffff:ffff", "private", true, true}, /* 6to4 */
    {"2002:7f00::", "2002:7fff:ffff:ffff:ffff:ffff:ffff:ffff", "loopback", true, true},
    {"2002:e000::", "2002:ffff:fffe:ffff:ffff:ffff:ffff:ffff", "", true, false},
    {"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation", true, true},
    {"4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved", true, false},
    {"fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private", false, false},
    {"fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local", false, false},
    {"fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "site-local", false, false},
    {"ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast", false, false},
};

static void the_ends_of_every_range_are_denied_and_public_neighbours_are_not(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        struct sockaddr_storage first = numeric(ranges[i].first), last = numeric(ranges[i].last);
        char text[100];
        expect(ranges[i].first, &first, false, ranges[i].what);
        expect(ranges[i].last, &last, false, ranges[i].what);
        step(&first, -1);
        step(&last, 1);
        (void)snprintf(text, sizeof text, "the address before %s", ranges[i].first);
        expect(text, &first, ranges[i].public_before, "");
        (void)snprintf(text, sizeof text, "the address after %s", ranges[i].last);
        expect(text, &last, ranges[i].public_after, "");
    }
}

static void public_addresses_are_allowed(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "1.1.1.1",          "8.8.8.8",         "93.184.216.34",        "2606:2800:220:1:248:1893:25c8:1946",
        "2a00:1450::1",     "2001:200::1",     "2001:4860:4860::8888", "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8", "2002:808:808::1",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sockaddr_storage address = numeric(texts[i]);
        expect(texts[i], &address, true, "");
    }
}

/* getaddrinfo reads all of these; the guard never sees a spelling. */
static void odd_spellings_are_the_address_that_is_dialled(void **state)
{
    (void)state;
    static const char *const texts[] = {"127.1",         "2130706433",  "0177.0.0.1",
                                        "0x7f.1",        "0x7f000001",  "127.0.0.01",
                                        "017700000001",  "::1",         "::ffff:127.0.0.1",
                                        "::ffff:7f00:1", "::127.0.0.1", "0:0:0:0:0:0:0:1",
                                        "0000::0001"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct sockaddr_storage address = numeric(texts[i]);
        expect(texts[i], &address, false, "is a loopback address");
    }
}

static void zones_and_other_families_are_denied(void **state)
{
    (void)state;
    hx_network everything[2];
    hx_error_text error;
    assert_true(hx_network_parse(HX_LIT("::/0"), &everything[0], error));
    assert_true(hx_network_parse(HX_LIT("0.0.0.0/0"), &everything[1], error));
    hx_address_guard open = {.allowed = everything, .allowed_count = 2};
    struct sockaddr_storage address = numeric("fe80::1");
    assert_true(allows(&open, &address, error));
    ((struct sockaddr_in6 *)&address)->sin6_scope_id = 2;
    assert_false(allows(&open, &address, error));
    assert_non_null(strstr(error, "zone"));
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "/run/docker.sock"};
    assert_false(hx_guard_allows(&open, (struct sockaddr *)&path, error));
}

static void what_is_listed_is_allowed_and_nothing_else(void **state)
{
    (void)state;
    static const struct {
        const char *network, *address;
        bool allowed;
    } rows[] = {
        {"127.0.0.0/8", "127.0.0.1", true},
        {"127.0.0.0/8", "::ffff:127.0.0.1", true},
        {"127.0.0.0/8", "::1", false},
        {"127.0.0.0/8", "10.0.0.1", false},
        {"10.1.2.3", "10.1.2.3", true},
        {"10.1.2.3", "10.1.2.4", false},
        {"10.1.2.3", "64:ff9b::10.1.2.3", true},
        {"::1/128", "::1", true},
        {"::1", "127.0.0.1", false},
        {"fd00:1::/32", "fd00:1:2::3", true},
        {"fd00:1::/32", "fd00:2::3", false},
        {"::/0", "10.0.0.1", false},
        {"0.0.0.0/0", "10.0.0.1", true},
        {"0.0.0.0/0", "fd00::1", false},
        {"2002:a00::/24", "2002:a00:1::", true},
        {"172.16.0.0/13", "172.24.0.0", false},
        {"172.16.0.0/13", "172.23.255.255", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hx_network network;
        hx_error_text error;
        assert_true(hx_network_parse(hx_slice_of(rows[i].network), &network, error));
        hx_address_guard guard = {.allowed = &network, .allowed_count = 1};
        struct sockaddr_storage address = numeric(rows[i].address);
        if (allows(&guard, &address, error) != rows[i].allowed)
            fail_msg("%s with %s in the list", rows[i].address, rows[i].network);
    }
}

static void a_network_is_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wrong;
    } rows[] = {
        {"", "is neither"},
        {"localhost", "is neither"},
        {"10.0.0", "is neither"},
        {"127.1/8", "is neither"},
        {"010.0.0.0/8", "is neither"},
        {"[::1]", "is neither"},
        {"::1%lo", "is neither"},
        {" 10.0.0.0/8", "is neither"},
        {"10.0.0.0/", "from 0 to 32"},
        {"10.0.0.0/33", "0 to 32"},
        {"10.0.0.0/-1", "0 to 32"},
        {"10.0.0.0/08", "0 to 32"},
        {"10.0.0.0/8 ", "0 to 32"},
        {"10.0.0.0/8/8", "0 to 32"},
        {"fd00::/129", "0 to 128"},
        {"10.1.2.3/8", "\"10.0.0.0/8\""},
        {"fd00::1/8", "\"fd00::/8\""},
        {"0000:0000:0000:0000:0000:0000:0000:0000:0000:0000/8", "is neither"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        hx_network network;
        hx_error_text error = "";
        assert_false(hx_network_parse(hx_slice_of(rows[i].text), &network, error));
        if (!strstr(error, rows[i].wrong)) fail_msg("\"%s\" %s", rows[i].text, error);
    }
    static const char *const same[] = {"10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "fd00::/8", "::/0", "::1/128"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        hx_network network;
        hx_error_text error;
        char text[HX_NETWORK_TEXT_BYTES];
        assert_true(hx_network_parse(hx_slice_of(same[i]), &network, error));
        hx_network_text(&network, text);
        assert_string_equal(text, same[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ends_of_every_range_are_denied_and_public_neighbours_are_not),
        cmocka_unit_test(public_addresses_are_allowed),
        cmocka_unit_test(odd_spellings_are_the_address_that_is_dialled),
        cmocka_unit_test(zones_and_other_families_are_denied),
        cmocka_unit_test(what_is_listed_is_allowed_and_nothing_else),
        cmocka_unit_test(a_network_is_read_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
