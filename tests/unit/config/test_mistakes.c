/* SPDX-License-Identifier: Apache-2.0 */
/* Every mistake has its message, with its place; and no bytes, however odd, do worse than that. */
#include "fixture.h"

#define UP "upstream: http://127.0.0.1:3000\n"

static const fixture_row of_yaml[] = {
    {UP "store: \xff\n", "f:2:8: byte 0xff is not UTF-8; save the file as UTF-8 text\n"},
    {UP "store: \xed\xa0\x80\n", "f:2:8: byte 0xed is not UTF-8; save the file as UTF-8 text\n"},
    {UP "store: \xc0\xaf\n", "f:2:8: byte 0xc0 is not UTF-8; save the file as UTF-8 text\n"},
    {UP "store: \xe2\x82", "f:2:8: byte 0xe2 is not UTF-8; save the file as UTF-8 text\n"},
    {UP "\xc3\xa4: \x01\n", "f:2:4: control byte 0x01: this is not a text file\n"},
    {UP "workers: 1\nworkers: 2\n", "f:3:1: \"workers\" is given twice; it is also on line 2\n"},
    {UP "workers: 1\nworkers: many\n", "f:3:1: \"workers\" is given twice; it is also on line 2\n"},
    {UP "cors: {origins: [https://a.test]}\ncors: {origins: [https://b.test, https://a.test]}\n",
     "f:3:1: \"cors\" is given twice; it is also on line 2\n"},
    {UP "cors: {origins: [https://a.test], origins: [https://a.test, '*']}\n",
     "f:2:35: \"origins\" is given twice; it is also on line 2\n"},
    {UP "listen: 127.0.0.1:1\nlisten: 127.0.0.1:1\n", "f:3:1: \"listen\" is given twice; it is also on line 2\n"},
    {UP "trusted_proxies: [10.0.0.1]\ntrusted_proxies: [x]\n",
     "f:3:1: \"trusted_proxies\" is given twice; it is also on line 2\n"},
    {UP "defaults: {principal: [\"header:A\"], principal: [\"header:A\"]}\n",
     "f:2:37: \"principal\" is given twice; it is also on line 2\n"},
    {UP "defaults: {lifetime: 1h}\ndefaults: {lifetime: no}\n",
     "f:3:1: \"defaults\" is given twice; it is also on line 2\n"},
    {UP "routes: [{match: POST /a}]\nroutes: [{match: POST /a}]\n",
     "f:3:1: \"routes\" is given twice; it is also on line 2\n"},
    {UP "workers: &n 1\n",
     "f:2:13: an anchor (&name) is not allowed in a configuration: what several routes share goes into \"defaults\"\n"},
    {UP "workers: *n\n",
     "f:2:10: an alias (*name) is not allowed in a configuration: what several routes share goes into \"defaults\"\n"},
    {UP "workers: !!int 1\n", "f:2:16: a tag (!name) is not allowed in a configuration: write the bare value\n"},
    {UP "<<: {workers: 1}\n",
     "f:2:1: a merge key (<<) is not allowed in a configuration: what several routes share goes into \"defaults\"\n"},
    {UP "---\nworkers: 1\n",
     "f:2:1: a second document (after \"---\") is not allowed in a configuration: a file is one configuration\n"},
    {UP "? [a, {b: c}]\n: 1\nworkers: 0\n", "f:2:3: a key must be a name, not a list\n"
                                            "f:4:10: \"workers\" must be 1 to 64, not \"0\"\n"},
    {UP "limits:\n\tx: 1\n", "f:3:1: this is not well-formed YAML: tab character may not be used as indentation\n"},
    {UP "routes: [\n", "f:3:1: this is not well-formed YAML: flow sequence without a closing bracket\n"},
    {UP "routes: [{match: POST /a/{id}}]\n",
     "f:2:26: this is not well-formed YAML: missing comma in flow mapping; a value with \"{\" in it may need quotes\n"},
    {UP "x: [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]\n", "f:2:1: unknown option \"x\"\n"
                                                      "f:2:19: nested more than 16 deep; no option is\n"},
    {"workers: 0\nworkers: \"a", "f:1:10: \"workers\" must be 1 to 64, not \"0\"\n"
                                 "f:2:11: this is not well-formed YAML: double-quoted scalar without closing quote\n"},
    {"just text\n",
     "f:1:1: a configuration is a map of options, such as \"upstream: http://127.0.0.1:3000\", not text\n"},
    {"- a\n", "f:1:1: a configuration is a map of options, such as \"upstream: http://127.0.0.1:3000\", not a list\n"},
    {"", "f: no upstream: write \"upstream: http://127.0.0.1:3000\", or give --upstream\n"},
    {"# nothing\n", "f: no upstream: write \"upstream: http://127.0.0.1:3000\", or give --upstream\n"},
};

static const fixture_row of_options[] = {
    {UP "defaults:\n    lifetme: 24h\n", "f:3:5: unknown option \"lifetme\", did you mean \"lifetime\"?\n"},
    {UP "banana: 1\n", "f:2:1: unknown option \"banana\"\n"},
    {UP "\"\": 1\n", "f:2:1: unknown option \"\"\n"},
    {UP "\"a\\e[2J\": 1\n", "f:2:1: unknown option \"a\\x1b[2J\"\n"},
    {UP "lifetime: 24h\n", "f:2:1: unknown option \"lifetime\" here; it belongs in a route or under \"defaults\"\n"},
    {UP "workers:\n", "f:2:1: \"workers\" has no value; it must be a whole number, 1 to 64\n"},
    {UP "workers: ~\n", "f:2:1: \"workers\" has no value; it must be a whole number, 1 to 64\n"},
    {UP "workers: 65\n", "f:2:10: \"workers\" must be 1 to 64, not \"65\"\n"},
    {UP "workers: two\n", "f:2:10: \"workers\" must be a whole number, 1 to 64, not \"two\"\n"},
    {UP "workers: [1]\n", "f:2:10: \"workers\" must be a whole number, 1 to 64, not a list\n"},
    {UP "require_key: on\n", "f:2:14: \"require_key\" must be true or false, not \"on\"\n"},
    {UP "access_log: of\n", "f:2:13: \"access_log\" must be stderr or off, not \"of\", did you mean \"off\"?\n"},
    {UP "limits: 5\n", "f:2:9: \"limits\" must be a map of options, not text\n"},
    {UP "limits: {head_bytes: 64KB}\n", "f:2:22: \"head_bytes\" must be a size such as 512B, 64KiB, 8MiB or 2GiB, not "
                                        "\"64KB\", did you mean \"64KiB\"?\n"},
    {UP "limits: {head_bytes: 65KiB}\n", "f:2:22: \"head_bytes\" must be 1KiB to 64KiB, not \"65KiB\"\n"},
    {UP "defaults: {wait: 10}\n",
     "f:2:18: \"wait\" must be a duration such as 500ms, 10s, 5m, 24h or 7d: 10 needs a unit, such as 10s\n"},
    {UP "defaults: {wait: 2h}\n", "f:2:18: \"wait\" must be 0 to 1h, not \"2h\"\n"},
    {UP "defaults: {match: POST /a}\n", "f:2:12: \"match\" belongs to one route, not to \"defaults\"\n"},
    {UP "defaults: [a]\n", "f:2:11: \"defaults\" must be a map of options, not a list\n"},
    {UP "defaults: {because: {body:/x}}\n",
     "f:2:21: \"because\" must be text, not a map; a value that starts with \"{\" needs quotes\n"},
    {UP "defaults: {because: \"a\\0b\"}\n", "f:2:21: \"because\" must not contain control bytes or line ends\n"},
    {UP "defaults: {because: \"\"}\n", "f:2:21: \"because\" must have 1 to 1000 bytes, not 0\n"},
};

static const fixture_row of_addresses[] = {
    {"upstream:\n", "f:1:1: \"upstream\" has no value; it must be a URL such as http://127.0.0.1:3000 or "
                    "unix:/run/app.sock, or a map of names to URLs\n"},
    {"upstream: [a]\n", "f:1:11: \"upstream\" must be a URL such as http://127.0.0.1:3000 or unix:/run/app.sock, or a "
                        "map of names to URLs, not a list\n"},
    {"upstream: {}\n", "f:1:11: \"upstream\" must not be empty\n"},
    {"upstream: 127.0.0.1:3000\n", "f:1:11: \"upstream\" must be a URL such as http://127.0.0.1:3000 or "
                                   "unix:/run/app.sock, not \"127.0.0.1:3000\", did you mean "
                                   "\"http://127.0.0.1:3000\"?\n"},
    {"upstream: https://a\n", "f:1:11: \"upstream\" must be a URL such as http://127.0.0.1:3000 or unix:/run/app.sock, "
                              "not \"https://a\": upstreams are reached by plain HTTP\n"},
    {"upstream: http://a/b/c\n",
     "f:1:11: \"upstream\" must end after the host and port, \"http://a\": the request's own path is appended\n"},
    {"upstream: http://u:p@a\n", "f:1:11: \"upstream\" must not contain a user or password; the upstream gets the "
                                 "client's own Authorization\n"},
    {"upstream: http://a:0\n", "f:1:11: \"upstream\" must have a port, 1 to 65535, not \"0\"\n"},
    {"upstream: http://\n", "f:1:11: \"upstream\" must be a URL such as http://127.0.0.1:3000 or unix:/run/app.sock, "
                            "not \"http://\"\n"},
    {"upstream: http://[::g]:1\n", "f:1:11: \"upstream\" must be a URL such as http://127.0.0.1:3000 or "
                                   "unix:/run/app.sock, not \"http://[::g]:1\"\n"},
    {"upstream: unix:app.sock\n",
     "f:1:11: \"upstream\" must name a socket by its whole path, such as unix:/run/hapax.sock\n"},
    {"upstream: {a: http://a, b c: http://b}\n",
     "f:1:25: an upstream's name is a word of letters, digits, \"-\" and \"_\", not \"b c\"\n"},
    {UP "listen: localhost:80\n", "f:2:9: \"listen\" must be an address such as 127.0.0.1:8080, [::1]:8080 or "
                                  "unix:/run/hapax.sock, not \"localhost:80\", did you mean \"127.0.0.1:80\"?\n"},
    {UP "listen: :80\n", "f:2:9: \"listen\" must be an address such as 127.0.0.1:8080, [::1]:8080 or "
                         "unix:/run/hapax.sock, not \":80\", did you mean \"0.0.0.0:80\"?\n"},
    {UP "listen: [127.0.0.1:1, 127.0.0.1:1]\n", "f:2:23: \"listen\" names the same address twice\n"},
    {UP "listen: 127.0.0.1:65536\n", "f:2:9: \"listen\" must have a port, 0 to 65535, not \"65536\"\n"},
    {UP "listen: []\n", "f:2:9: \"listen\" must not be empty\n"},
    {UP "listen: {address: x}\n",
     "f:2:9: \"listen\" must be an address such as 127.0.0.1:8080, or a list of them, not a "
     "map; a value that starts with \"{\" needs quotes\n"},
    {UP "store: /var/lib/x\n", "f:2:8: \"store\" must be journal:DIR, sqlite:FILE, postgres://… or memory:, not "
                               "\"/var/lib/x\", did you mean \"journal:/var/lib/x\"?\n"},
    {UP "store: mysql:x\n",
     "f:2:8: \"store\" must be journal:DIR, sqlite:FILE, postgres://… or memory:, not \"mysql:x\"\n"},
    {UP "store: \"journal:\"\n", "f:2:8: \"store\" must name a directory, such as journal:/var/lib/hapax\n"},
    {UP "store: \"sqlite:\"\n", "f:2:8: \"store\" must name a file, such as sqlite:/var/lib/hapax.db\n"},
};

static const fixture_row of_routes[] = {
    {UP "routes: {match: POST /a}\n", "f:2:9: \"routes\" must be a list of routes, not a map\n"},
    {UP "routes: [POST /a]\n", "f:2:10: a route is a map of options, such as {match: POST /refunds}\n"},
    {UP "routes:\n  - name: a\n", "f:3:5: this route has no \"match\"\n"},
    {UP "routes:\n  - match: post /a\n",
     "f:3:12: \"match\" \"post /a\" can't be used: methods are in upper case, as in \"POST /refunds\"\n"},
    {UP "routes:\n  - {match: POST /a, upstream: b}\n",
     "f:3:32: unknown upstream \"b\": routes refer to names in the map \"upstream\" at the top of the file\n"},
    {"upstream: {main: http://a}\nroutes:\n  - {match: POST /a, upstream: mian}\n",
     "f:3:32: unknown upstream \"mian\", did you mean \"main\"?\n"},
    {UP "routes:\n  - {name: a, match: POST /a}\n  - {name: a, match: POST /b}\n",
     "f:4:12: route \"a\" is given twice; it is also on line 3\n"},
    {UP "routes:\n  - {match: POST /a}\n  - {name: POST /a, match: POST /b}\n",
     "f:4:12: route \"POST /a\" is given twice; it is also on line 3\n"},
    {UP "routes:\n  - match: POST /a\n  - match: POST /a\n",
     "f:4:12: this route never matches, because route \"POST /a\" before it matches all of its requests\n"},
    {UP "routes:\n  - {name: any, match: \"/a/{x}\"}\n  - match: POST,PUT /a/b\n  - match: GET,POST /a/b\n",
     "f:4:12: this route never matches, because route \"any\" before it matches all of its requests\n"},
    {UP "routes:\n  - match: POST /a\n  - match: PUT /a\n  - match: PUT,POST /a\n",
     "f:5:12: this route never matches, because route \"PUT /a\" before it matches all of its requests\n"},
    {UP "routes:\n  - {match: POST /a, lifetime: 119s}\n",
     "f:3:32: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is "
     "130s; it is 119s\n"},
    {UP "routes:\n  - {match: POST /a, lifetime: 1m, lifetme: 1m, lease: 1s, upstream_timeout: 60s}\n",
     "f:3:32: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is "
     "71s; it is 1m\n"
     "f:3:36: unknown option \"lifetme\", did you mean \"lifetime\"?\n"},
    {UP "defaults: {lifetime: 130s}\nroutes:\n  - match: POST /a\n  - {match: POST /b, lease: 61s}\n",
     "f:5:29: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is "
     "131s; it is 130s\n"},
    {UP "routes:\n  - {match: POST /a, key: {min: 300, max: 10}}\n", "f:3:33: \"min\" must be 1 to 255, not \"300\"\n"},
    {UP "routes:\n  - {match: POST /a, key: {max: 10}}\n", "f:3:33: no key fits: \"min\" is 16, \"max\" is 10\n"},
    {UP "routes:\n  - {match: POST /a, key: {min: 37, format: uuid4}}\n",
     "f:3:33: no key fits: a UUID has 36 characters, \"min\" is 37, \"max\" is 255\n"},
    {UP "defaults: {principal: []}\n", "f:2:23: \"principal\" must not be empty: all callers would share their keys\n"},
    {UP "defaults: {principal: [\"header:\", \"jwt:\"]}\n",
     "f:2:24: \"principal\" must be authorization, header:NAME, cookie:NAME or jwt:CLAIM, not \"header:\"\n"
     "f:2:35: \"principal\" must be authorization, header:NAME, cookie:NAME or jwt:CLAIM, not \"jwt:\"\n"},
    {UP "defaults: {principal: \"mtls:subject\"}\n",
     "f:2:23: \"principal\" can't be taken from a client's certificate: that needs a TLS listener, which this version "
     "doesn't have; a proxy in front can pass it in a header, for header:NAME\n"},
    {UP "defaults: {principal: [\"header:X-A\", \"header:x-a\"]}\n",
     "f:2:38: \"principal\" lists the same source twice\n"},
};

static void utf_16_is_not_taken(void **state)
{
    (void)state;
    hx_buf errors;
    hx_buf_init(&errors, NULL, 1000);
    assert_null(hx_config_parse("f", HX_LIT("\xff\xfeu\0p\0"), NULL, &errors));
    fixture_assert_text(hx_buf_slice(&errors), "f:1:1: byte 0xff is not UTF-8; save the file as UTF-8 text\n");
    hx_buf_free(&errors);
}

static void what_is_not_our_yaml_is_refused_with_its_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_yaml);
}

static void wrong_options_and_values_are_refused_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_options);
}

static void wrong_addresses_are_refused_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_addresses);
}

#define ITSELF(address)                                                                                                \
    "\"upstream\" is an address on which Hapax itself listens (" address "): one of them needs another "               \
    "address\n"

static const fixture_row of_itself[] = {
    {"upstream: http://127.0.0.1:8080\n", "f:1:11: " ITSELF("127.0.0.1:8080")},
    {"upstream: http://localhost:8080/\n", "f:1:11: " ITSELF("127.0.0.1:8080")},
    {"listen: 127.0.0.1:80\nupstream: http://0.0.0.0\n", "f:2:11: " ITSELF("127.0.0.1:80")},
    {"listen: 0.0.0.0:81\nupstream: http://127.0.0.9:81\n", "f:2:11: " ITSELF("0.0.0.0:81")},
    {"listen: \"[::]:81\"\nupstream: http://LocalHost:81\n", "f:2:11: " ITSELF("[::]:81")},
    {"listen: \"[::]:81\"\nupstream: http://[0::1]:81\n", "f:2:11: " ITSELF("[::]:81")},
    {"listen: 10.0.0.1:81\nupstream: http://10.0.0.1:81\n", "f:2:11: " ITSELF("10.0.0.1:81")},
    {"listen: unix:/run/a\nupstream: unix:/run/a\n", "f:2:11: " ITSELF("unix:/run/a")},
    {"listen: [127.0.0.1:1, 127.0.0.1:2]\nupstream:\n  a: http://127.0.0.1:3\n  b: http://127.0.0.1:2\n",
     "f:4:6: " ITSELF("127.0.0.1:2")},
};

static void an_upstream_is_not_the_gateway_itself(void **state)
{
    (void)state;
    static const char *const others[] = {
        "listen: 127.0.0.1:81\nupstream: http://127.0.0.2:81\n", "listen: 127.0.0.1:81\nupstream: http://[::1]:81\n",
        "listen: 10.0.0.1:81\nupstream: http://localhost:81\n",  "listen: 127.0.0.1:0\nupstream: http://localhost\n",
        "listen: 0.0.0.0:81\nupstream: http://app:81\n",         "listen: unix:/run/a\nupstream: unix:/run/b\n",
    };
    FIXTURE_REFUSED(of_itself);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        hx_config *config = fixture_load(others[i]);
        hx_config_free(&config);
    }
}

static void wrong_routes_are_refused_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_routes);
}

static void many_keys_are_searched_for_duplicates_too(void **state)
{
    (void)state;
    hx_buf text, errors;
    hx_buf_init(&text, NULL, HX_CONFIG_FILE_BYTES_MAX);
    hx_buf_init(&errors, NULL, 65536);
    hx_buf_puts(&text, "upstream:\n");
    for (int i = 0; i < 40; i++) assert_true(hx_buf_printf(&text, "  name%d: http://a\n", i % 39));
    assert_null(hx_config_parse("f", hx_buf_slice(&text), NULL, &errors));
    assert_true(hx_slice_eq(hx_buf_slice(&errors), HX_LIT("f:41:3: \"name0\" is given twice; it is also on line 2\n")));
    hx_buf_free(&text);
    hx_buf_free(&errors);
}

static void broken_files_are_refused_and_never_worse(void **state)
{
    (void)state;
    static const char good[] = UP
        "listen: [127.0.0.1:8080, \"[::1]:0\"]\nlimits: {headers: 100}\ndefaults:\n  wait: 5s\n"
        "routes:\n  - name: a\n    match: POST /a/{id}\n    key: {min: 20, format: any}\n"
        "    outcome: {302: release}\n    not_executed: [503]\n    retry: {attempts: 3, base: 1s, cap: 2s}\n"
        "    probe:\n      request: GET /a?key={key}\n      found: {status: 200, pointer: /a~0}\n      settle: 1s\n"
        "    provider_duplicate: {status: 409, pointer: /c, value: d}\n"
        "    principal: [authorization, \"cookie:sid\"]\n    because: |\n      text\n";
    fixture_break(good, 12345);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_our_yaml_is_refused_with_its_place),
        cmocka_unit_test(utf_16_is_not_taken),
        cmocka_unit_test(wrong_options_and_values_are_refused_with_their_place),
        cmocka_unit_test(wrong_addresses_are_refused_with_their_place),
        cmocka_unit_test(an_upstream_is_not_the_gateway_itself),
        cmocka_unit_test(wrong_routes_are_refused_with_their_place),
        cmocka_unit_test(many_keys_are_searched_for_duplicates_too),
        cmocka_unit_test(broken_files_are_refused_and_never_worse),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
