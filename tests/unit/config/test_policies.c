/* SPDX-License-Identifier: Apache-2.0 */
/* What a route can say of its callers, keys and fingerprints; what it takes over from its group and the defaults; what
 * follows from that; and what is refused, with its place. */
#include "fixture.h"

#include "core/operation/template.h"
#include "core/time/zone.h"

#include <stdlib.h>
#include <string.h>

#define UP "upstream: http://127.0.0.1:3000\n"
#define ROUTES UP "routes:\n"

static void assert_texts(const hx_slice *texts, size_t count, const char *expected)
{
    hx_slice rest = hx_slice_of(expected), text;
    size_t i = 0;
    for (; rest.len > 0 && hx_slice_next(&rest, ' ', &text); i++)
        if (i >= count || !hx_slice_eq(texts[i], text)) fail_msg("\"%.*s\" is missing", HX_FMT(text));
    assert_int_equal(i, count);
}

static void everything_that_a_route_can_say_is_read(void **state)
{
    (void)state;
    hx_config *config =
        fixture_load(ROUTES "  - name: offers\n"
                            "    match: PUT /offers/{id}\n"
                            "    mode: shadow\n"
                            "    require: key-or-if-match\n"
                            "    scope: principal\n"
                            "    principal: [\"jwt:https://a/tenant\", authorization, cookie:sid]\n"
                            "    authorize: HEAD /me?x=1\n"
                            "    fingerprint: {body: [/b, /a], ignore: [/t, \"query:z\", \"query:a b\"], headers: "
                            "[X-Tenant, Accept]}\n"
                            "    dialect: stripe\n"
                            "    forward_key: scoped\n"
                            "    rate: 300/m\n"
                            "    quota: 10000\n"
                            "    result: /id\n"
                            "    formerly: [z, a]\n"
                            "    deny_headers: [X-Trace, Server]\n");
    const hx_policy *route = &config->policies.routes[0];
    assert_int_equal(route->mode, HX_MODE_SHADOW);
    assert_true(route->require && route->require_on_put && route->if_match_suffices);
    assert_int_equal(route->scope, HX_SCOPE_PRINCIPAL);
    assert_int_equal(route->principal_count, 3);
    assert_int_equal(route->principals[0].kind, HX_PRINCIPAL_JWT_CLAIM);
    fixture_assert_text(route->principals[0].name, "https://a/tenant");
    fixture_assert_text(route->authorize_method, "HEAD");
    fixture_assert_text(route->authorize_target, "/me?x=1");
    assert_int_equal(route->fingerprint.body, HX_FINGERPRINT_POINTERS);
    assert_texts(route->fingerprint.pointers, route->fingerprint.pointer_count, "/a /b");
    assert_texts(route->fingerprint.ignored_pointers, route->fingerprint.ignored_pointer_count, "/t");
    assert_int_equal(route->fingerprint.ignored_query_count, 2);
    fixture_assert_text(route->fingerprint.ignored_query[0], "a b");
    fixture_assert_text(route->fingerprint.ignored_query[1], "z");
    assert_texts(route->fingerprint.headers, route->fingerprint.header_count, "accept x-tenant");
    assert_int_equal(route->dialect, HX_DIALECT_STRIPE);
    assert_int_equal(route->forward_key, HX_FORWARD_KEY_SCOPED);
    assert_int_equal(route->rate.count, 300);
    assert_int_equal(route->rate.per, HX_MINUTE);
    assert_int_equal(route->quota, 10000);
    fixture_assert_text(route->result, "/id");
    assert_texts(route->formerly, route->formerly_count, "z a"); /* the oldest first */
    fixture_assert_text(hx_policy_identity(route), "z");
    assert_texts(route->deny_headers, route->deny_header_count, "server x-trace");
    assert_int_equal(route->rule_version & HX_RULE_IDENTITY, hx_policy_version(route) & HX_RULE_IDENTITY);
    assert_true(route->rule_version & HX_RULE_NAMED);
    assert_false(config->policies.defaults.rule_version & HX_RULE_NAMED);
    hx_config_free(&config);
}

static void rates_have_four_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t count;
        hx_ms per;
    } cases[] = {{"50/s", 50, HX_SECOND},
                 {"1 / m", 1, HX_MINUTE},
                 {"7/h", 7, HX_HOUR},
                 {"10000/d", 10000, HX_DAY},
                 {"off", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hx_arena arena = {0};
        hx_config *config =
            fixture_load(hx_arena_printf(&arena, "%sdefaults: {rate: 9/s}\nroutes: [{match: POST /a, rate: %s}]\n", UP,
                                         cases[i].text)
                             .ptr);
        assert_int_equal(config->policies.routes[0].rate.count, cases[i].count);
        assert_int_equal(config->policies.routes[0].rate.per, cases[i].per);
        hx_config_free(&config);
        hx_arena_free(&arena);
    }
}

static void a_route_takes_over_its_group_and_then_the_defaults(void **state)
{
    (void)state;
    hx_config *config = fixture_load(UP
                                     "defaults: {lifetime: 2d, wait: 1s, key: {min: 20, max: 40}, authorize: GET /me}\n"
                                     "groups:\n"
                                     "  payments: {lifetime: 7d, key: {min: 30}, outcome: {302: release}}\n"
                                     "  empty: {}\n"
                                     "routes:\n"
                                     "  - {match: POST /a, group: payments, key: {max: 50}, authorize: off}\n"
                                     "  - {match: POST /b}\n"
                                     "  - {match: POST /c, group: empty}\n");
    const hx_policy *a = &config->policies.routes[0], *b = a + 1, *c = a + 2;
    assert_int_equal(a->lifetime, 7 * HX_DAY);
    assert_int_equal(a->wait, HX_SECOND);
    assert_true(a->key.len_min == 30 && a->key.len_max == 50);
    assert_int_equal(a->outcome_rule_count, 1);
    assert_int_equal(a->authorize_method.len, 0);
    assert_int_equal(b->lifetime, 2 * HX_DAY);
    assert_true(b->key.len_min == 20 && b->key.len_max == 40);
    assert_int_equal(b->outcome_rule_count, 0);
    fixture_assert_text(b->authorize_target, "/me");
    assert_int_equal(c->lifetime, 2 * HX_DAY);
    assert_int_equal(config->policies.defaults.lifetime, 2 * HX_DAY);
    assert_int_equal(config->notes.len, 0);
    hx_config_free(&config);
}

static void routes_that_name_one_source_of_keys_share_it(void **state)
{
    (void)state;
    hx_config *config = fixture_load(UP "defaults: {jwt: {jwks_url: \"https://l/jwks\", issuer: me, leeway: 5s}}\n"
                                        "groups: {unused: {jwt: {key: /nobody/asks.pem}}}\n"
                                        "routes:\n"
                                        "  - {match: POST /a, jwt: {audience: x}}\n"
                                        "  - {match: POST /b, jwt: {secret: /s, issuer: you}}\n"
                                        "  - {match: POST /c, jwt: {jwks_url: \"https://l/jwks\", refresh: 5m}}\n"
                                        "  - {match: POST /d, jwt: {refresh: 10m}}\n"
                                        "  - {match: POST /e, jwt: off}\n"
                                        "  - {match: POST /f, jwt: {jwks: keys.json}}\n");
    const hx_policy *route = config->policies.routes, *defaults = &config->policies.defaults;
    assert_int_equal(config->jwt_source_count, 4);
    const hx_jwt_source *sources = config->jwt_sources;
    assert_true(defaults->jwt.given);
    assert_int_equal(sources[defaults->jwt.source].kind, HX_JWT_JWKS_URL);
    assert_int_equal(sources[defaults->jwt.source].refresh, 5 * HX_MINUTE);
    fixture_assert_text(sources[defaults->jwt.source].where, "https://l/jwks");
    assert_int_equal(route[0].jwt.source, defaults->jwt.source);
    fixture_assert_text(route[0].jwt.rules.issuer, "me");
    fixture_assert_text(route[0].jwt.rules.audience, "x");
    assert_int_equal(route[0].jwt.rules.leeway, 5 * HX_SECOND);
    assert_int_equal(sources[route[1].jwt.source].kind, HX_JWT_SECRET_FILE);
    fixture_assert_text(sources[route[1].jwt.source].where, "/s");
    fixture_assert_text(route[1].jwt.rules.issuer, "you");
    assert_int_equal(route[2].jwt.source, defaults->jwt.source);
    assert_int_equal(sources[route[3].jwt.source].refresh, 10 * HX_MINUTE);
    assert_false(route[4].jwt.given);
    assert_int_equal(sources[route[5].jwt.source].kind, HX_JWT_JWKS_FILE);
    hx_config_free(&config);
}

static void a_natural_key_brings_rules_of_its_own(void **state)
{
    (void)state;
    hx_config *config = fixture_load(
        UP "defaults: {fingerprint: {ignore: [/t]}, lease: 30s}\n"
           "groups: {daily: {key: {from: \"{body:/id}:{date:America/New_York}\"}}}\n"
           "routes:\n"
           "  - {match: POST /otp, key: {from: \"{body:/phone}\", shared: true}}\n"
           "  - {match: POST /report, key: {from: \"{body:/a}:{window:1h}\", prefer: header, overlap: 0}}\n"
           "  - {match: POST /daily, group: daily}\n"
           "  - {match: POST /own, group: daily, fingerprint: {body: raw, ignore: []}}\n"
           "  - {match: POST /plain}\n"
           "  - {match: \"POST /path/{id}\", key: {from: \"{path:id}\"}, require_principal: true}\n");
    const hx_policy *otp = config->policies.routes, *report = otp + 1, *daily = otp + 2, *own = otp + 3,
                    *plain = otp + 4;
    assert_non_null(otp->key.from);
    assert_int_equal(otp->fingerprint.body, HX_FINGERPRINT_KEY);
    assert_int_equal(otp->fingerprint.ignored_pointer_count, 0); /* what all routes share is not meant for it */
    assert_true(otp->key.shared && otp->release_4xx);
    assert_false(otp->require_principal);
    assert_int_equal(otp->key.overlap, 40 * HX_SECOND); /* lease + the total time of `user` */
    assert_true(report->require_principal && report->key.prefer_header && !report->key.shared);
    assert_int_equal(report->key.overlap, 0);
    assert_int_equal(report->key.from->parts[2].window, HX_HOUR);
    fixture_assert_text(hx_zone_name(daily->key.from->parts[2].zone), "America/New_York");
    assert_int_equal(daily->fingerprint.body, HX_FINGERPRINT_KEY);
    assert_ptr_equal(own->key.from, daily->key.from);
    assert_int_equal(own->fingerprint.body, HX_FINGERPRINT_RAW);
    assert_true(own->release_4xx);
    assert_null(plain->key.from);
    assert_false(plain->release_4xx || plain->require_principal);
    assert_int_equal(plain->fingerprint.body, HX_FINGERPRINT_CANONICAL);
    assert_int_equal(plain->fingerprint.ignored_pointer_count, 1);
    assert_null(config->policies.defaults.key.from);
    hx_config_free(&config);
}

static void the_order_of_a_list_changes_no_version(void **state)
{
    (void)state;
    hx_config *config =
        fixture_load(ROUTES "  - {match: POST /a, fingerprint: {ignore: [/a, /b, query:c, query:d], headers: [X, y]}}\n"
                            "  - {match: POST /b, fingerprint: {headers: [Y, x], ignore: [query:d, /b, query:c, /a]}}\n"
                            "  - {match: POST /c, fingerprint: {headers: [Y, x], ignore: [query:d, /b, query:c]}}\n"
                            "  - {match: POST /d, fingerprint: {body: canonical, headers: []}}\n"
                            "  - {match: POST /e}\n");
    const hx_policy *route = config->policies.routes;
    assert_int_equal(hx_policy_version(&route[0]), hx_policy_version(&route[1]));
    assert_int_not_equal(hx_policy_version(&route[1]), hx_policy_version(&route[2]));
    assert_int_equal(hx_policy_version(&route[3]), hx_policy_version(&route[4]));
    hx_config_free(&config);
}

static void who_comes_from_outside_is_read(void **state)
{
    (void)state;
    hx_config *config = fixture_load(UP "cors: {origins: [\"https://app.example.com\", \"http://localhost:65535\", "
                                        "\"http://[::1]:8080\"], credentials: true}\n"
                                        "trusted_proxies: [10.0.0.0/8, 192.0.2.7, \"fd00::/8\", \"::1\"]\n"
                                        "publish_policy: true\n");
    assert_texts(config->cors.origins, config->cors.origin_count,
                 "https://app.example.com http://localhost:65535 http://[::1]:8080");
    assert_true(config->cors.credentials && config->publish_policy);
    assert_int_equal(config->trusted_proxy_count, 4);
    static const uint8_t ten[16] = {[10] = 0xff, [11] = 0xff, [12] = 10};
    static const uint8_t one[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [13] = 0, [14] = 2, [15] = 7};
    assert_memory_equal(config->trusted_proxies[0].bytes, ten, 16);
    assert_int_equal(config->trusted_proxies[0].bits, 104);
    assert_memory_equal(config->trusted_proxies[1].bytes, one, 16);
    assert_int_equal(config->trusted_proxies[1].bits, 128);
    assert_int_equal(config->trusted_proxies[2].bytes[0], 0xfd);
    assert_int_equal(config->trusted_proxies[2].bits, 8);
    assert_int_equal(config->trusted_proxies[3].bits, 128);
    hx_config_free(&config);
    config = fixture_load(UP "cors: {origins: [\"*\"]}\n");
    assert_false(config->cors.credentials || config->publish_policy);
    assert_int_equal(config->cors.origin_count, 1);
    hx_config_free(&config);
}

static const fixture_row of_groups[] = {
    {UP "groups: [a]\n", "f:2:9: \"groups\" must be a map of names to maps of options, not a list\n"},
    {UP "groups: {a: b}\n", "f:2:13: \"groups\" must be a map of names to maps of options, not text\n"},
    {UP "groups: {\"a b\": {}}\n",
     "f:2:10: a group's name is a word of letters, digits, \"-\" and \"_\", not \"a b\"\n"},
    {UP "groups: {a: {name: x, match: POST /a, formerly: [y], group: b, lifetme: 1h}}\n",
     "f:2:14: \"name\" belongs to one route, not to a group\n"
     "f:2:23: \"match\" belongs to one route, not to a group\n"
     "f:2:39: \"formerly\" belongs to one route, not to a group\n"
     "f:2:54: \"group\" belongs to one route, not to a group\n"
     "f:2:64: unknown option \"lifetme\", did you mean \"lifetime\"?\n"},
    {UP "defaults: {formerly: [a], group: b}\n", "f:2:12: \"formerly\" belongs to one route, not to \"defaults\"\n"
                                                 "f:2:27: \"group\" belongs to one route, not to \"defaults\"\n"},
    {UP "groups: {payments: {}}\nroutes:\n  - {match: POST /a, group: paymnets}\n",
     "f:4:29: unknown group \"paymnets\", did you mean \"payments\"?\n"},
    {ROUTES "  - {match: POST /a, group: x}\n",
     "f:3:29: unknown group \"x\": routes refer to names in the map \"groups\" at the top of the file\n"},
    {UP "groups: {a: {lifetime: 1m}}\nroutes:\n  - {match: POST /a, group: a}\n",
     "f:2:24: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is 130s; it "
     "is "
     "1m\n"},
    {UP "groups: {a: {lifetime: 130s}}\nroutes:\n  - {match: POST /a, group: a, lease: 2m}\n",
     "f:4:39: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is 190s; it "
     "is "
     "130s\n"},
};

static const fixture_row of_keys[] = {
    {UP "defaults: {key: {from: \"{body:/a}\"}}\n", "f:2:18: \"from\" belongs to a route or a group, not to "
                                                    "\"defaults\": what matches no route has no key of its own\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{date:Europe/Pris}\"}}\n",
     "f:3:34: \"from\" can't be used: \"{date:Europe/Pris}\": there is no time zone \"Europe/Pris\" on this machine, "
     "did you mean \"Europe/Paris\"?\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{date:../../../etc/passwd}\"}}\n",
     "f:3:34: \"from\" can't be used: \"{date:../../../etc/passwd}\": not the name of a time zone: "
     "\"../../../etc/passwd\"; write one such as America/New_York or UTC\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{date:Europe}\"}}\n", /* a folder */
     "f:3:34: \"from\" can't be used: \"{date:Europe}\": there is no time zone \"Europe\" on this machine; names are "
     "as in America/New_York or UTC\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a\"}}\n",
     "f:3:34: \"from\" can't be used: \"{body:/a\" opens a brace that isn't closed\n"},
    {ROUTES "  - {match: POST /a, key: {from: [a]}}\n",
     "f:3:34: \"from\" must be text with parts in braces, such as \"{body:/orderId}\", not a list\n"},
    {ROUTES "  - {match: \"POST /a/{id}\", key: {from: \"{path:ix}\"}}\n",
     "f:3:41: \"from\" has \"{path:ix}\", but \"/a/{id}\" has no {ix} in it\n"},
    {ROUTES "  - {match: \"POST /a/{id}/b/{id}\", key: {from: \"{path:id}\"}}\n",
     "f:3:48: \"from\" has \"{path:id}\", but \"/a/{id}/b/{id}\" has {id} more than once: which one counts?\n"},
    {UP "groups: {a: {key: {from: \"{path:id}\"}}}\nroutes:\n  - {match: \"POST /a/{id}\", group: a}\n"
        "  - {match: POST /b, group: a}\n",
     "f:5:13: \"from\" has \"{path:id}\", but \"/b\" has no {id} in it\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}\"}, require_principal: false}\n",
     "f:3:67: a key made by \"from\" would let callers who can't be distinguished share an operation; where that is "
     "meant, "
     "write \"shared: true\" under \"key\"\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{window:1s}\", shared: true}}\n",
     "f:3:34: \"overlap\" is 70s, and a window lasts 1s: each request would look for its operation in more than 64 of "
     "them; make the window longer or the overlap shorter\n"},
    {ROUTES "  - {match: POST /a, key: {prefer: body, shared: yes, overlap: 40d}}\n",
     "f:3:36: \"prefer\" must be from or header, not \"body\"\n"
     "f:3:50: \"shared\" must be true or false, not \"yes\"\n"
     "f:3:64: \"overlap\" must be 0 to 30d, not \"40d\"\n"},
    {ROUTES "  - {match: POST /a, require: yes}\n",
     "f:3:31: \"require\" must be false, true or key-or-if-match, not \"yes\"\n"},
    {ROUTES "  - {match: POST /a, scope: principl}\n", "f:3:29: \"scope\" must be route+principal, principal, route or "
                                                       "host, not \"principl\", did you mean \"principal\"?\n"},
    {ROUTES "  - {match: POST /a, mode: shadw, dialect: iETF, forward_key: x}\n",
     "f:3:28: \"mode\" must be protect, pass or shadow, not \"shadw\", did you mean \"shadow\"?\n"
     "f:3:44: \"dialect\" must be plain, ietf or stripe, not \"iETF\", did you mean \"ietf\"?\n"
     "f:3:63: \"forward_key\" must be as_it_came or scoped, not \"x\"\n"},
};

static const fixture_row of_callers[] = {
    {ROUTES "  - {match: POST /a, jwt: {issuer: me}}\n",
     "f:3:27: \"jwt\" must have exactly one of \"key\", \"secret\", \"jwks\" and \"jwks_url\": where do the keys come "
     "from?\n"},
    {ROUTES "  - {match: POST /a, jwt: {key: /a, jwks: /b}}\n",
     "f:3:27: \"jwt\" must have exactly one of \"key\", \"secret\", \"jwks\" and \"jwks_url\": where do the keys come "
     "from?\n"},
    {ROUTES "  - {match: POST /a, jwt: {jwks_url: l/jwks}}\n",
     "f:3:38: \"jwks_url\" must be a URL such as https://login.example.com/.well-known/jwks.json\n"},
    {ROUTES "  - {match: POST /a, jwt: {key: /a, refresh: 5m}}\n",
     "f:3:46: \"refresh\" is for \"jwks_url\": a file is read again by `hapax reload`\n"},
    {ROUTES "  - {match: POST /a, jwt: {key: /a, leeway: 2h, kid: x}}\n",
     "f:3:45: \"leeway\" must be 0 to 1h, not \"2h\"\n"
     "f:3:49: unknown option \"kid\"\n"},
    {ROUTES "  - {match: POST /a, jwt: on}\n", "f:3:27: \"jwt\" must be a map of options, or off, not text\n"},
    {ROUTES "  - {match: POST /a, authorize: POST /me}\n",
     "f:3:33: \"authorize\" must ask by GET or HEAD, as this changes nothing, not by \"POST\"\n"},
    {ROUTES "  - {match: POST /a, authorize: \"GET /me/{key}\"}\n",
     "f:3:33: \"authorize\" contains a brace, but nothing is substituted in this request\n"},
    {ROUTES "  - {match: POST /a, authorize: GET}\n",
     "f:3:33: \"authorize\" must be GET or HEAD and a path, such as GET /me, or off, not \"GET\"\n"},
    {ROUTES "  - {match: POST /a, authorize: GET me}\n",
     "f:3:33: \"authorize\" must have a path that begins with a slash, such as GET /me, not \"me\"\n"},
    {ROUTES "  - {match: POST /a, rate: 50}\n",
     "f:3:28: \"rate\" must be a number and a time, such as 50/s, 300/m, 1000/h or 10000/d, or off, not \"50\"\n"},
    {ROUTES "  - {match: POST /a, rate: 50/w}\n",
     "f:3:28: \"rate\" must be a number and a time, such as 50/s, 300/m, 1000/h or 10000/d, or off, not \"50/w\"\n"},
    {ROUTES "  - {match: POST /a, rate: -1/s}\n",
     "f:3:28: \"rate\" must be a number and a time, such as 50/s, 300/m, 1000/h or 10000/d, or off, not \"-1/s\"\n"},
    {ROUTES "  - {match: POST /a, rate: 0/s}\n", "f:3:28: \"rate\" must allow 1 to 1000000000 requests, not \"0/s\"\n"},
    {ROUTES "  - {match: POST /a, quota: -1}\n",
     "f:3:29: \"quota\" must be a whole number, 0 to 4294967295, not \"-1\"\n"},
    {ROUTES "  - {match: POST /a, result: id}\n",
     "f:3:30: \"result\" must be a JSON pointer such as /data/0, not \"id\", did you mean \"/id\"?\n"},
    {UP "cors: {origins: []}\n", "f:2:17: \"origins\" must not be empty; leave out \"cors\" instead\n"},
    {UP "cors: {}\n", "f:2:7: this \"cors\" has no \"origins\", such as [\"https://app.example.com\"]\n"},
    {UP "cors: {origins: [\"*\"], credentials: true}\n",
     "f:2:37: \"credentials\" can't be true for every origin (\"*\"): any page could read a user's responses; list the "
     "origins\n"},
    {UP "cors: {origins: [\"https://a\", \"*\"]}\n",
     "f:2:31: \"origins\" can't list others beside \"*\", which is all of them\n"},
    {UP
     "cors: {origins: [a.example.com, \"https://a/\", \"https://A\", \"https://a:443\", \"null\", \"https://*.a\"]}\n",
     "f:2:18: \"origins\" must list origins such as https://app.example.com, not \"a.example.com\"\n"
     "f:2:33: \"origins\" must list origins such as https://app.example.com, not \"https://a/\": an origin ends after "
     "the "
     "host and port, \"https://a\"\n"
     "f:2:47: \"origins\" must list origins in lower case, as browsers send them, not \"https://A\"\n"
     "f:2:60: \"origins\" must list origins as browsers send them, without the scheme's own port, not "
     "\"https://a:443\"\n"
     "f:2:77: \"origins\" must list origins such as https://app.example.com, not \"null\"\n"
     "f:2:85: \"origins\" must list origins such as https://app.example.com, not \"https://*.a\"\n"},
    {UP "cors: {origins: [\"https://a:65536\", \"https://a:080\", \"https://[::1]:0\", \"https://a:\"]}\n",
     "f:2:18: \"origins\" must list origins such as https://app.example.com, not \"https://a:65536\": the port after "
     "the colon must be 1 to 65535\n"
     "f:2:37: \"origins\" must list origins such as https://app.example.com, not \"https://a:080\": the port after the "
     "colon must be 1 to 65535\n"
     "f:2:54: \"origins\" must list origins such as https://app.example.com, not \"https://[::1]:0\": the port after "
     "the colon must be 1 to 65535\n"
     "f:2:73: \"origins\" must list origins such as https://app.example.com, not \"https://a:\": the port after the "
     "colon must be 1 to 65535\n"},
    {UP "trusted_proxies: 10.0.0.0/8\n", "f:2:18: \"trusted_proxies\" must be a list of addresses and networks, such "
                                         "as [127.0.0.1, 10.0.0.0/8], not text\n"},
    {UP "trusted_proxies: [10.0.0.1/8, localhost, 10.0.0.0/33, \"fd00::1/8\", 0.0.0.0/0]\n",
     "f:2:19: \"trusted_proxies\" must list addresses and networks such as 10.0.0.0/8 or fd00::/8: \"10.0.0.1/8\" has "
     "bits behind the first 8, did you mean \"10.0.0.0/8\"?\n"
     "f:2:31: \"trusted_proxies\" must list addresses and networks such as 10.0.0.0/8 or fd00::/8: \"localhost\" is "
     "neither an address nor a network\n"
     "f:2:42: \"trusted_proxies\" must list addresses and networks such as 10.0.0.0/8 or fd00::/8: \"10.0.0.0/33\" "
     "needs a number from 0 to 32 after the slash\n"
     "f:2:55: \"trusted_proxies\" must list addresses and networks such as 10.0.0.0/8 or fd00::/8: \"fd00::1/8\" has "
     "bits behind the first 8, did you mean \"fd00::/8\"?\n"
     "f:2:68: \"trusted_proxies\" must not list \"0.0.0.0/0\": every client could claim any address\n"},
};

static const fixture_row of_safe_methods[] = {
    {ROUTES "  - {match: \"GET /a\", key: {from: \"{query:x}\"}, require_principal: true}\n",
     "f:3:35: \"from\" does nothing for GET: it needs no key, and is always streamed through\n"
     "f:3:68: \"require_principal\" does nothing for GET: it needs no key, and is always streamed through\n"},
    {ROUTES "  - {match: \"HEAD,OPTIONS /a\", require: true}\n",
     "f:3:41: \"require\" does nothing for HEAD: it needs no key, and is always streamed through\n"},
};

static const fixture_row of_headers[] = {
    {ROUTES "  - {match: POST /a, principal: [\"header:X-Forwarded-User\", \"header:Hapax-User\", \"header:X_A\"]}\n",
     "f:3:34: \"principal\" can't be \"header:X-Forwarded-User\": that header reaches the upstream from "
     "\"trusted_proxies\" only, and there are none\n"
     "f:3:61: \"principal\" can't be \"header:Hapax-User\": that header is removed or replaced by Hapax: the upstream "
     "never gets the client's value\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{header:X_Forwarded_Id}\"}}\n",
     "f:3:34: \"from\" can't be used: \"{header:X_Forwarded_Id}\": that header reaches the upstream from "
     "\"trusted_proxies\" only, and there are none\n"},
    {UP "trusted_proxies: [10.0.0.0/8]\n"
        "defaults: {principal: [\"header:X-Forwarded-User\", \"header:X-Forwarded-For\"]}\n",
     "f:3:51: \"principal\" can't be \"header:X-Forwarded-For\": that header is removed or replaced by Hapax: the "
     "upstream never gets the client's value\n"},
};

static const fixture_row of_lists[] = {
    {ROUTES "  - {match: POST /a, fingerprint: {body: []}}\n",
     "f:3:42: \"body\" must not be an empty list: requests with different bodies would be taken for the same\n"},
    {ROUTES "  - {match: POST /a, fingerprint: {body: canonicl}}\n",
     "f:3:42: \"body\" must be canonical, raw, or a list of JSON pointers such as [/amount, /currency], not "
     "\"canonicl\"\n"},
    {ROUTES "  - {match: POST /a, fingerprint: {body: [amount, /a~, /b, /b, \"\"]}}\n",
     "f:3:43: \"body\" must list JSON pointers, not \"amount\", did you mean \"/amount\"?\n"
     "f:3:51: \"body\" must list JSON pointers, not \"/a~\": a \"~\" in a name is written ~0, and a slash ~1\n"
     "f:3:60: \"body\" lists \"/b\" twice\n"
     "f:3:64: \"body\" must list JSON pointers, not \"\": that is the whole body\n"},
    {ROUTES "  - {match: POST /a, fingerprint: {ignore: [\"query:\", a, query:b, query:b]}}\n",
     "f:3:45: \"ignore\" must list JSON pointers and query:NAME, not \"query:\", did you mean \"/query:\"?\n"
     "f:3:55: \"ignore\" must list JSON pointers and query:NAME, not \"a\", did you mean \"/a\"?\n"
     "f:3:67: \"ignore\" lists \"b\" twice\n"},
    {ROUTES "  - {match: POST /a, fingerprint: {body: raw, ignore: [/a]}}\n",
     "f:3:55: a body that counts byte by byte (\"body: raw\") has nothing that a pointer in \"ignore\" could leave "
     "out\n"},
    {ROUTES "  - {match: POST /a, fingerprint: {body: [/a, /ab], ignore: [/a]}}\n",
     "f:3:61: \"/a\" can't be counted (\"body\") and left out (\"/a\" in \"ignore\") at once\n"},
    {UP "defaults: {fingerprint: {ignore: [/a]}}\n"
        "routes:\n  - {match: POST /a, fingerprint: {body: [/a/b, /c]}}\n",
     "f:4:42: \"/a/b\" can't be counted (\"body\") and left out (\"/a\" in \"ignore\") at once\n"},
    {ROUTES "  - {match: POST /a, fingerprint: {headers: [TE, X-A]}, deny_headers: [TE]}\n",
     "f:3:46: \"headers\" can't list \"TE\": that header is removed or replaced by Hapax: the upstream never gets the "
     "client's value\n"},
    {ROUTES "  - {match: POST /a, fingerprint: {headers: [a b, X, x]}}\n",
     "f:3:46: \"headers\" must list names of headers, not \"a b\"\n"
     "f:3:54: \"headers\" lists \"x\" twice\n"},
    {ROUTES "  - {match: POST /a, deny_headers: server}\n",
     "f:3:36: \"deny_headers\" must be a list of names, not text\n"},
    {ROUTES "  - {name: a, match: POST /a, formerly: [a]}\n",
     "f:3:42: \"formerly\" lists \"a\", which is the route's name now\n"},
    {ROUTES "  - {name: a, match: POST /a, formerly: [b]}\n  - {name: b, match: POST /b}\n",
     "f:3:42: \"formerly\" lists \"b\", which is the name of another route: its operations can't belong to both\n"},
    {ROUTES "  - {name: a, match: POST /a, formerly: [\"POST /b\"]}\n  - {match: POST /b}\n",
     "f:3:42: \"formerly\" lists \"POST /b\", which is the name of another route: its operations can't belong to "
     "both\n"},
    {ROUTES "  - {name: a, match: POST /a, formerly: [c]}\n  - {name: b, match: POST /b, formerly: [d, c]}\n",
     "f:4:45: \"formerly\" lists \"c\", as another route does on line 3: its operations can't belong to both\n"},
    {ROUTES "  - {name: a, match: POST /a, formerly: [c, d, c, \"\"]}\n",
     "f:3:48: \"formerly\" lists \"c\" twice\n"
     "f:3:51: \"formerly\" must have 1 to 255 bytes, not 0\n"},
};

static const fixture_row of_notes[] = {
    {UP "groups: {by_id: {key: {from: \"{query:x}\"}}}\n"
        "routes:\n  - {match: \"GET /a\", group: by_id, require: false}\n",
     ""},
    {ROUTES "  - {match: \"GET,POST /a\", require: true, require_principal: true}\n",
     "f:3:62: \"require_principal\" does nothing for GET: it needs no key, and is always streamed through\n"},
    {UP "groups: {a: {}}\n", "f:2:10: no route is in group \"a\"\n"},
    {ROUTES "  - match: \"POST /a/{x}/c\"\n  - match: \"POST /a/b/{y}\"\n",
     "f:4:12: some requests match both route \"POST /a/b/{y}\" and route \"POST /a/{x}/c\" before it, which gets "
     "them\n"},
    {ROUTES "  - match: \"POST /a/{x}\"\n  - match: \"POST,PUT /a/b\"\n",
     "f:4:12: some requests match both route \"POST,PUT /a/b\" and route \"POST /a/{x}\" before it, which gets them\n"},
    {ROUTES "  - match: POST /a/b\n  - match: \"/a/{x}\"\n", ""}, /* the special one first is what order is for */
    {ROUTES "  - match: \"POST /a/{x}/c\"\n  - match: \"PUT /a/b/{y}\"\n", ""},
    {ROUTES "  - match: \"POST /a/{x}/c\"\n  - match: \"POST /a/b/{y}/\"\n", ""},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{window:2h}\", shared: true}, lifetime: 1h}\n",
     "f:3:34: responses are kept for 1h, but a window lasts 2h: in one of them the same key can run again\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{date:UTC}\", shared: true}, lifetime: 12h}\n",
     "f:3:34: responses are kept for 12h, but a date lasts 25h at most: on one of them the same key can run again\n"},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{date:UTC}\", shared: true}, lifetime: 12h, tombstone: 2d}\n",
     ""},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{window:1m}\", shared: true}}\n", ""},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{window:25h}\", shared: true}}\n",
     "f:3:34: responses are kept for 24h, but a window lasts 25h: in one of them the same key can run again\n"},
    /* of several the shortest ends a key's time */
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{date:UTC}:{window:25h}\", shared: true}}\n", ""},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{date:UTC}:{window:2h}\", shared: true}, lifetime: 2h}\n",
     ""},
    {ROUTES "  - {match: POST /a, key: {from: \"{body:/a}:{date:UTC}:{window:30h}\", shared: true}, lifetime: 2h}\n",
     "f:3:34: responses are kept for 2h, but a date lasts 25h at most: on one of them the same key can run again\n"},
};

static void wrong_groups_are_refused_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_groups);
}

static void wrong_keys_are_refused_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_keys);
}

static void wrong_callers_are_refused_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_callers);
}

static void wrong_lists_are_refused_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_headers);
    FIXTURE_REFUSED(of_safe_methods);
    FIXTURE_REFUSED(of_lists);
}

static void what_is_worth_a_look_is_noted(void **state)
{
    (void)state;
    FIXTURE_NOTED(of_notes);
}

/* One line of YAML that lists `count` items, of which the last one is one too many. */
static void refuse_the_last(const char *before, const char *item, int count, const char *after, const char *says)
{
    hx_buf text, errors;
    hx_buf_init(&text, NULL, HX_CONFIG_FILE_BYTES_MAX);
    hx_buf_init(&errors, NULL, 65536);
    for (int most = count - 1; most <= count; most++) {
        text.len = errors.len = 0;
        hx_buf_puts(&text, before);
        for (int i = 1; i <= most; i++) {
            hx_slice rest = hx_slice_of(item), piece; /* "#" stands for the number */
            while (hx_slice_next(&rest, '#', &piece)) {
                hx_buf_put(&text, piece);
                if (rest.ptr) hx_buf_put_decimal(&text, (uint64_t)i);
            }
        }
        hx_buf_puts(&text, after);
        hx_config *config = hx_config_parse("f", hx_buf_slice(&text), NULL, &errors);
        if (most < count && !config) fail_msg("%.*s", HX_FMT(hx_buf_slice(&errors)));
        if (most == count) {
            hx_slice line = hx_buf_slice(&errors), wanted = hx_slice_of(says);
            if (config || line.len < wanted.len + 1 || !hx_slice_ends(hx_slice_first(line, line.len - 1), wanted))
                fail_msg("%.*s\nshould end with\n%s", HX_FMT(line), says);
        }
        hx_config_free(&config);
    }
    hx_buf_free(&text);
    hx_buf_free(&errors);
}

static void every_list_has_its_limit(void **state)
{
    (void)state;
    refuse_the_last(UP "cors: {origins: [", "\"http://a#\", ", 65, "]}\n", "\"origins\" must be up to 64 origins");
    refuse_the_last(UP "trusted_proxies: [", "10.0.0.#, ", 65, "]\n", "\"trusted_proxies\" must be up to 64 entries");
    refuse_the_last(UP "groups:\n", "  g#: {}\n", 101, "", "\"groups\" must be up to 100 groups");
    refuse_the_last(ROUTES, "  - {match: POST /#, jwt: {key: /k#}}\n", 17, "",
                    "\"jwt\" names one source of keys too many: a configuration has up to 16");
    refuse_the_last(UP "defaults: {fingerprint: {ignore: [", "/#, ", 65, "]}}\n",
                    "\"ignore\" lists too many: up to 64 are possible");
    refuse_the_last(UP "defaults: {fingerprint: {body: [", "/#, ", 65, "]}}\n",
                    "\"body\" lists too many: up to 64 are possible");
    refuse_the_last(UP "defaults: {deny_headers: [", "h#, ", 33, "]}\n",
                    "\"deny_headers\" lists too many: up to 32 are possible");
    refuse_the_last(ROUTES "  - {match: POST /a, formerly: [", "n#, ", 33, "]}\n",
                    "\"formerly\" lists too many: up to 32 are possible");
    refuse_the_last(UP "defaults: {deny_headers: [", "x", 1001, "]}\n",
                    "\"deny_headers\" lists a name of 1001 bytes; up to 1000 are possible");
    refuse_the_last(UP "defaults: {principal: \"jwt:", "x", 256, "\"}\n",
                    "\"principal\" has a name of 256 bytes; up to 255 are possible");
}

static void zones_come_from_where_the_environment_says(void **state)
{
    (void)state;
    static const char yaml[] = ROUTES "  - {match: POST /a, key: {from: \"{date:UTC}{body:/a}\", shared: true}}\n";
    static const fixture_row missing = {yaml, "f:3:34: \"from\" can't be used: \"{date:UTC}\": there is no time zone "
                                              "\"UTC\" on this machine; there are no time zones in /nowhere: install "
                                              "tzdata, or set TZDIR\n"};
    assert_int_equal(setenv("TZDIR", "/nowhere", 1), 0);
    fixture_check(&missing, 1, true);
    assert_int_equal(unsetenv("TZDIR"), 0);
    hx_config *config = fixture_load(yaml);
    hx_config_free(&config);
}

static void broken_policies_are_refused_and_never_worse(void **state)
{
    (void)state;
    static const char good[] = UP
        "cors: {origins: [\"https://a.b:1\"]}\ntrusted_proxies: [10.0.0.0/8]\n"
        "groups:\n  g: {key: {from: \"{path:id}:{date:UTC}:{window:1h}\", shared: true}, jwt: {jwks: /a, issuer: i}}\n"
        "routes:\n  - name: a\n    match: POST /a/{id}\n    group: g\n    formerly: [b, c]\n    rate: 5/s\n"
        "    authorize: GET /me\n    fingerprint: {body: [/a, /b], ignore: [query:c], headers: [d]}\n"
        "    deny_headers: [e]\n    principal: [\"jwt:sub\"]\n  - match: POST,PUT /a/{b}/c\n    formerly: [d]\n";
    fixture_break(good, 4711);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_that_a_route_can_say_is_read),
        cmocka_unit_test(rates_have_four_units),
        cmocka_unit_test(a_route_takes_over_its_group_and_then_the_defaults),
        cmocka_unit_test(routes_that_name_one_source_of_keys_share_it),
        cmocka_unit_test(a_natural_key_brings_rules_of_its_own),
        cmocka_unit_test(the_order_of_a_list_changes_no_version),
        cmocka_unit_test(who_comes_from_outside_is_read),
        cmocka_unit_test(wrong_groups_are_refused_with_their_place),
        cmocka_unit_test(wrong_keys_are_refused_with_their_place),
        cmocka_unit_test(wrong_callers_are_refused_with_their_place),
        cmocka_unit_test(wrong_lists_are_refused_with_their_place),
        cmocka_unit_test(what_is_worth_a_look_is_noted),
        cmocka_unit_test(every_list_has_its_limit),
        cmocka_unit_test(zones_come_from_where_the_environment_says),
        cmocka_unit_test(broken_policies_are_refused_and_never_worse),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
