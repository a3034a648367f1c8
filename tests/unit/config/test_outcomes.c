/* SPDX-License-Identifier: Apache-2.0 */
/* What a route says of its answers and attempts, and every mistake in it. */
#include "fixture.h"

#include <stdio.h>
#include <string.h>

#define UP "upstream: http://127.0.0.1:3000\nstore: \"memory:\"\n"
#define ROUTE UP "routes:\n  - match: POST /a\n" /* its options are on line 5 */
#define ASK "request: \"GET /a?key={key}\""
#define PROBE "{" ASK ", found: {status: 200}, settle: 30s}"

/* As the contract writes it down. */
static const char contract[] = "listen: 127.0.0.1:8080\n"
                               "upstream: http://127.0.0.1:3000\n"
                               "store: journal:/var/lib/hapax\n"
                               "workers: 2\n"
                               "admin:\n"
                               "  listen: unix:/run/hapax/admin.sock\n"
                               "defaults:\n"
                               "  lifetime: 24h\n"
                               "  class: user\n"
                               "  guarantee: none\n"
                               "  on_unknown: hold\n"
                               "  principal: [authorization]\n"
                               "routes:\n"
                               "  - name: refunds\n"
                               "    match: POST /refunds\n"
                               "    on_unknown: probe\n"
                               "    probe:\n"
                               "      request: GET /refunds?idempotency_key={key}\n"
                               "      found: {status: 200, pointer: /data/0}\n"
                               "      answer: {status: 201, body: /data/0}\n"
                               "      settle: 30s\n"
                               "    provider_duplicate: {status: 409, pointer: /code, value: duplicate}\n"
                               "    outcome: {\"302\": release}\n"
                               "    not_executed: [429, 503]\n"
                               "    tombstone: 30d\n"
                               "    retry_safe: true\n"
                               "  - {name: refresh, match: POST /auth/refresh, mode: pass}\n";

static void the_example_of_the_contract_is_read(void **state)
{
    (void)state;
    hx_config *config = fixture_load(contract);
    const hx_policy *refunds = &config->policies.routes[0], *refresh = &config->policies.routes[1];
    fixture_assert_text(config->admin_listen, "unix:/run/hapax/admin.sock");
    assert_false(config->admin_off);
    assert_int_equal(refunds->on_unknown, HX_ON_UNKNOWN_PROBE);
    fixture_assert_text(refunds->probe.method, "GET");
    fixture_assert_text(refunds->probe.target, "/refunds?idempotency_key={key}");
    assert_int_equal(refunds->probe.found_status, 200);
    fixture_assert_text(refunds->probe.found_pointer, "/data/0");
    assert_int_equal(refunds->probe.answer_status, 201);
    fixture_assert_text(refunds->probe.answer_body, "/data/0");
    assert_int_equal(refunds->probe.settle, 30 * HX_SECOND);
    assert_int_equal(refunds->provider_duplicate.status, 409);
    fixture_assert_text(refunds->provider_duplicate.pointer, "/code");
    fixture_assert_text(refunds->provider_duplicate.value, "duplicate");
    assert_int_equal(refunds->tombstone, 30 * HX_DAY);
    assert_true(refunds->retry_safe);
    assert_int_equal(refresh->on_unknown, HX_ON_UNKNOWN_HOLD);
    assert_int_equal(refresh->probe.method.len, 0);
    assert_int_equal(refresh->tombstone, 0);
    assert_false(refresh->retry_safe);
    /* None of it decides which operation a request is. */
    assert_int_equal(hx_policy_version(refunds), hx_policy_version(refresh));
    hx_config_free(&config);
}

static void assert_rules(const hx_policy *policy, const char *expected)
{
    static const char *const words[] = {"none", "store", "release", "unknown", "not_executed"};
    char text[1024] = "";
    size_t len = 0;
    for (size_t i = 0; i < policy->outcome_rule_count; i++) {
        const hx_outcome_rule *rule = &policy->outcome_rules[i];
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%u:%s", i > 0 ? " " : "", rule->status,
                                words[rule->word]);
    }
    assert_string_equal(text, expected);
}

static void statuses_are_read_and_inherited_one_by_one(void **state)
{
    (void)state;
    hx_config *config = fixture_load(UP "defaults: {outcome: {\"302\": release, 500: store, \"418\": unknown}, "
                                        "not_executed: [429, 503]}\n"
                                        "routes:\n"
                                        "  - {match: POST /a}\n"
                                        "  - {match: POST /b, outcome: {500: release, 599: store}}\n"
                                        "  - {match: POST /c, not_executed: [503]}\n"
                                        "  - {match: POST /d, not_executed: []}\n"
                                        "  - {match: POST /e, outcome: {\"503\": unknown}}\n"
                                        "  - {match: POST /f, not_executed: [500], outcome: {429: not_executed}}\n"
                                        "  - {match: POST /g, outcome: {}}\n");
    const hx_policy *routes = config->policies.routes;
    static const char shared[] = "302:release 500:store 418:unknown 429:not_executed 503:not_executed";
    assert_rules(&config->policies.defaults, shared);
    assert_rules(&routes[0], shared);
    assert_rules(&routes[1], "302:release 500:release 418:unknown 429:not_executed 503:not_executed 599:store");
    assert_rules(&routes[2], "302:release 500:store 418:unknown 503:not_executed");
    assert_rules(&routes[3], "302:release 500:store 418:unknown");
    assert_rules(&routes[4], "302:release 500:store 418:unknown 429:not_executed 503:unknown");
    assert_rules(&routes[5], "302:release 500:not_executed 418:unknown 429:not_executed");
    assert_rules(&routes[6], shared);
    hx_config_free(&config);
}

static void a_route_inherits_field_by_field(void **state)
{
    (void)state;
    hx_config *config =
        fixture_load(UP "defaults:\n"
                        "  guarantee: idempotent\n"
                        "  class: background\n"
                        "  tombstone: 7d\n"
                        "  retry: {attempts: 3, base: 1s}\n"
                        "  probe: {found: {status: 200, pointer: /a}, settle: 5s, answer: {body: /a}}\n"
                        "routes:\n"
                        "  - {match: POST /a}\n"
                        "  - {match: POST /b, guarantee: atomic, class: scheduled, retry: {total: 30s, cap: 5s}}\n"
                        "  - {match: POST /c, on_unknown: probe, tombstone: 0,\n"
                        "     probe: {request: \"HEAD /c/{key}\", found: {pointer: \"\"}, answer: {body: \"\", "
                        "status: 204}}}\n");
    const hx_policy *a = &config->policies.routes[0], *b = &config->policies.routes[1];
    const hx_policy *c = &config->policies.routes[2];
    assert_int_equal(config->policies.defaults.guarantee, HX_GUARANTEE_IDEMPOTENT);
    assert_int_equal(a->guarantee, HX_GUARANTEE_IDEMPOTENT);
    assert_int_equal(a->class, HX_CLASS_BACKGROUND);
    assert_int_equal(a->tombstone, 7 * HX_DAY);
    assert_true(a->retry.attempts == 3 && a->retry.base == HX_SECOND && a->retry.total == 5 * HX_MINUTE);
    assert_true(a->retry.cap == 64 * HX_SECOND && a->retry.jitter == HX_JITTER_SPREAD);
    assert_int_equal(a->probe.method.len, 0); /* what `defaults` say of a probe is none until something is asked */
    assert_int_equal(b->guarantee, HX_GUARANTEE_ATOMIC);
    assert_int_equal(b->class, HX_CLASS_SCHEDULED);
    assert_true(b->retry.attempts == 3 && b->retry.base == HX_SECOND); /* over the class's */
    assert_true(b->retry.total == 30 * HX_SECOND && b->retry.cap == 5 * HX_SECOND);
    fixture_assert_text(c->probe.method, "HEAD");
    fixture_assert_text(c->probe.target, "/c/{key}");
    assert_int_equal(c->probe.found_status, 200);
    assert_int_equal(c->probe.found_pointer.len, 0);
    assert_int_equal(c->probe.answer_status, 204);
    assert_int_equal(c->probe.settle, 5 * HX_SECOND);
    assert_int_equal(c->tombstone, 0);
    hx_config_free(&config);
}

static void retries_are_read_over_class_and_profile(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        unsigned attempts;
        hx_ms total, base, cap;
        hx_jitter jitter;
    } cases[] = {
        {"class: user", 4, 10000, 100, 2000, HX_JITTER_SPREAD},
        {"class: background", 6, 300000, 4000, 64000, HX_JITTER_SPREAD},
        {"class: scheduled", 4, 3600000, 60000, 900000, HX_JITTER_SPREAD},
        {"retry: {}", 4, 10000, 100, 2000, HX_JITTER_SPREAD},
        {"retry: {attempts: 1}", 1, 10000, 100, 2000, HX_JITTER_SPREAD},
        {"retry: {attempts: 100, total: 30s}", 100, 30000, 100, 2000, HX_JITTER_SPREAD},
        {"retry: {base: 1ms, cap: 1ms, jitter: none}", 4, 10000, 1, 1, HX_JITTER_NONE},
        {"retry: {jitter: full}", 4, 10000, 100, 2000, HX_JITTER_FULL},
        {"retry: {jitter: half}", 4, 10000, 100, 2000, HX_JITTER_HALF},
        {"retry: {jitter: additive}", 4, 10000, 100, 2000, HX_JITTER_ADDITIVE},
        {"retry: {profile: playbook}", 5, 10000, 100, 2000, HX_JITTER_SPREAD},
        {"retry: {profile: quick}", 5, 10000, 100, 2000, HX_JITTER_SPREAD},
        {"retry: {profile: patient}", 5, 10000, 1000, 30000, HX_JITTER_HALF},
        {"retry: {profile: mobile}", 4, 10000, 1000, 30000, HX_JITTER_ADDITIVE},
        {"retry: {profile: agent}", 5, 10000, 1000, 30000, HX_JITTER_HALF},
        {"retry: {profile: contract, jitter: spread}", 4, 10000, 1000, 30000, HX_JITTER_SPREAD},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char yaml[512];
        (void)snprintf(yaml, sizeof yaml, ROUTE "    %s\n", cases[i].options);
        hx_config *config = fixture_load(yaml);
        const hx_retry_policy *retry = &config->policies.routes[0].retry;
        if (retry->attempts != cases[i].attempts || retry->total != cases[i].total || retry->base != cases[i].base ||
            retry->cap != cases[i].cap || retry->jitter != cases[i].jitter || retry->schedule)
            fail_msg("%s", cases[i].options);
        hx_config_free(&config);
    }
}

static void a_lifetime_covers_the_time_for_retries(void **state)
{
    (void)state;
    hx_config *config = fixture_load(ROUTE "    lifetime: 130s\n");
    hx_config_free(&config);
    config = fixture_load(ROUTE "    lifetime: 121s\n    retry: {total: 1s}\n");
    hx_config_free(&config);
    config = fixture_load(ROUTE "    lifetime: 420s\n    class: background\n");
    hx_config_free(&config);
}

static void spaces_around_a_request_mean_nothing(void **state)
{
    (void)state;
    hx_config *config =
        fixture_load(ROUTE "    probe: {request: \" GET  /a%20b/{key}?x={key} \", found: {status: 200}, settle: 1s}\n");
    fixture_assert_text(config->policies.routes[0].probe.method, "GET");
    fixture_assert_text(config->policies.routes[0].probe.target, "/a%20b/{key}?x={key}");
    hx_config_free(&config);
}

static void the_admin_socket_is_given_switched_off_or_left_out(void **state)
{
    (void)state;
    hx_config *config = fixture_load(UP);
    assert_int_equal(config->admin_listen.len, 0);
    assert_false(config->admin_off);
    hx_config_free(&config);
    config = fixture_load(UP "admin: {listen: off}\n");
    assert_int_equal(config->admin_listen.len, 0);
    assert_true(config->admin_off);
    hx_config_free(&config);
    config = fixture_load(UP "admin: {}\n");
    assert_int_equal(config->admin_listen.len, 0);
    assert_false(config->admin_off);
    hx_config_free(&config);
}

static const fixture_row of_words[] = {
    {ROUTE "    guarantee: transactional\n",
     "f:5:16: \"guarantee\" can't be transactional with a store \"memory:\": the upstream completes its operations "
     "in "
     "a transaction of its own database, which must be the store (postgres://… or sqlite:…)\n"},
    {"upstream: http://127.0.0.1:3000\nstore: journal:/x\ndefaults: {guarantee: transactional}\n",
     "f:3:23: \"guarantee\" can't be transactional with a store \"journal:\": the upstream completes its operations "
     "in a transaction of its own database, which must be the store (postgres://… or sqlite:…)\n"},
    {ROUTE "    guarantee: idempotant\n",
     "f:5:16: \"guarantee\" must be none, atomic, idempotent or transactional, not \"idempotant\", did you mean "
     "\"idempotent\"?\n"},
    {ROUTE "    class: webhook\n",
     "f:5:12: \"class\" must be user, background or scheduled on a route: \"webhook\" is for deliveries only\n"},
    {UP "defaults: {class: webhook}\n",
     "f:3:19: \"class\" must be user, background or scheduled on a route: \"webhook\" is for deliveries only\n"},
    {ROUTE "    class: \"\"\n", "f:5:12: \"class\" must be user, background or scheduled, not \"\"\n"},
    {ROUTE "    class: usr\n",
     "f:5:12: \"class\" must be user, background or scheduled, not \"usr\", did you mean \"user\"?\n"},
    {ROUTE "    on_unknown: retry\n", "f:5:17: \"on_unknown\" must be hold or probe, not \"retry\"\n"},
    {ROUTE "    retry_safe: 1\n", "f:5:17: \"retry_safe\" must be true or false, not \"1\"\n"},
    {ROUTE "    tombstone: 30\n",
     "f:5:16: \"tombstone\" must be a duration such as 500ms, 10s, 5m, 24h or 7d: 30 needs a unit, such as 30s\n"},
    {ROUTE "    tombstone: 4000d\n", "f:5:16: \"tombstone\" must be 0 to 3650d, not \"4000d\"\n"},
    {ROUTE "    guarante: none\n", "f:5:5: unknown option \"guarante\", did you mean \"guarantee\"?\n"},
    {ROUTE "    attempts: 3\n", "f:5:5: unknown option \"attempts\" here; it belongs under \"retry\"\n"},
    {ROUTE "    settle: 3s\n", "f:5:5: unknown option \"settle\" here; it belongs under \"probe\"\n"},
    {UP "probe: " PROBE "\n", "f:3:1: unknown option \"probe\" here; it belongs in a route or under \"defaults\"\n"},
};

static const fixture_row of_retries[] = {
    {ROUTE "    retry: 3\n", "f:5:12: \"retry\" must be a map of options, not text\n"},
    {ROUTE "    retry:\n", "f:5:5: \"retry\" has no value; it must be a map of options\n"},
    {ROUTE "    retry: {attemps: 3}\n", "f:5:13: unknown option \"attemps\", did you mean \"attempts\"?\n"},
    {ROUTE "    retry: {attempts: 0}\n", "f:5:23: \"attempts\" must be 1 to 100, not \"0\"\n"},
    {ROUTE "    retry: {attempts: 101}\n", "f:5:23: \"attempts\" must be 1 to 100, not \"101\"\n"},
    {ROUTE "    retry: {total: 0}\n", "f:5:20: \"total\" must be 1ms to 30d, not \"0\"\n"},
    {ROUTE "    retry: {base: 31d}\n", "f:5:19: \"base\" must be 1ms to 30d, not \"31d\"\n"},
    {ROUTE "    retry: {cap: 1.5s}\n",
     "f:5:18: \"cap\" must be a duration such as 500ms, 10s, 5m, 24h or 7d, not \"1.5s\"\n"},
    {ROUTE "    retry: {jitter: unset}\n",
     "f:5:21: \"jitter\" must be spread, full, half, additive or none, not \"unset\"\n"},
    {ROUTE "    retry: {jitter: \"\"}\n",
     "f:5:21: \"jitter\" must be spread, full, half, additive or none, not \"\"\n"},
    {ROUTE "    retry: {profile: pateint}\n",
     "f:5:22: \"profile\" must be quick, patient or mobile, not \"pateint\", did you mean \"patient\"?\n"},
    {ROUTE "    retry: {base: 5s}\n",
     "f:5:19: \"retry\" can't be used: base is above cap, so that every delay would be the cap\n"},
    {ROUTE "    retry: {base: 5s, cap: 4s}\n",
     "f:5:28: \"retry\" can't be used: base is above cap, so that every delay would be the cap\n"},
    {UP "defaults: {retry: {cap: 3s}}\nroutes:\n  - match: POST /a\n  - {match: POST /b, class: scheduled}\n",
     "f:6:29: \"retry\" can't be used: base is above cap, so that every delay would be the cap\n"},
    {ROUTE "    lifetime: 129s\n",
     "f:5:15: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is 130s; it "
     "is 129s\n"},
    {ROUTE "    lifetime: 1h\n    class: scheduled\n",
     "f:5:15: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is 62m; it is "
     "1h\n"},
    {UP "defaults: {lifetime: 1h}\nroutes:\n  - match: POST /a\n  - {match: POST /b, retry: {total: 2h}}\n",
     "f:6:37: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is 122m; it "
     "is 1h\n"},
    {UP "defaults: {lifetime: 1h}\nroutes:\n  - match: POST /a\n  - {match: POST /b, class: scheduled}\n",
     "f:6:29: \"lifetime\" must be at least lease + upstream_timeout + the total time for retries, which is 62m; it is "
     "1h\n"},
    {ROUTE "    class: usr\n    retry: {base: 5s}\n", /* whether it fits depends on the class */
     "f:5:12: \"class\" must be user, background or scheduled, not \"usr\", did you mean \"user\"?\n"},
    {ROUTE "    lifetime: 1s\n    retry: {total: 1y}\n", /* one mistake, told once */
     "f:6:20: \"total\" must be a duration such as 500ms, 10s, 5m, 24h or 7d, not \"1y\"\n"},
};

static const fixture_row of_probes[] = {
    {ROUTE "    on_unknown: probe\n",
     "f:5:17: \"on_unknown\" can't be probe without a \"probe\" that says what to ask, such as {request: \"GET "
     "/refunds?idempotency_key={key}\", found: {status: 200}, settle: 30s}\n"},
    {UP "defaults: {on_unknown: probe}\n",
     "f:3:24: \"on_unknown\" can't be probe without a \"probe\" that says what to ask, such as {request: \"GET "
     "/refunds?idempotency_key={key}\", found: {status: 200}, settle: 30s}\n"},
    {UP "defaults: {probe: {settle: 1s}}\nroutes: [{match: POST /a, on_unknown: probe}]\n",
     "f:4:39: \"on_unknown\" can't be probe without a \"probe\" that says what to ask, such as {request: \"GET "
     "/refunds?idempotency_key={key}\", found: {status: 200}, settle: 30s}\n"},
    {UP "defaults: {on_unknown: probe, probe: {settle: 1s}}\n",
     "f:3:38: this \"probe\" has no \"request\", such as GET /refunds?idempotency_key={key}\n"
     "f:3:38: this \"probe\" has no \"found\" with a \"status\": when has it happened?\n"},
    {ROUTE "    probe: yes\n", "f:5:12: \"probe\" must be a map of options, not text\n"},
    {ROUTE "    on_unknown: probe\n    probe:\n", "f:6:5: \"probe\" has no value; it must be a map of options\n"},
    {ROUTE "    probe: {}\n",
     "f:5:12: this \"probe\" has no \"request\", such as GET /refunds?idempotency_key={key}\n"
     "f:5:12: this \"probe\" has no \"found\" with a \"status\": when has it happened?\n"
     "f:5:12: this \"probe\" has no \"settle\": how long may the upstream still be at work after the last byte was "
     "sent to it?\n"},
    {ROUTE "    probe: {" ASK ", found: {status: 200}}\n",
     "f:5:12: this \"probe\" has no \"settle\": how long may the upstream still be at work after the last byte was "
     "sent to it?\n"},
    {ROUTE "    probe: {" ASK ", found: {pointer: /a}, settle: 1s}\n",
     "f:5:12: this \"probe\" has no \"found\" with a \"status\": when has it happened?\n"},
    {ROUTE "    probe: {" ASK ", found: 200, settle: 0}\n", "f:5:49: \"found\" must be a map of options, not text\n"
                                                            "f:5:62: \"settle\" must be 1ms to 30d, not \"0\"\n"},
    {ROUTE "    probe: {" ASK ", found: {status: 600, poiner: /a}, settle: 1s, answer: {status: 101, banana: 1}}\n",
     "f:5:58: \"status\" must be 200 to 599, not \"600\"\n"
     "f:5:63: unknown option \"poiner\", did you mean \"pointer\"?\n"
     "f:5:105: \"status\" must be 200 to 599, not \"101\"\n"
     "f:5:110: unknown option \"banana\"\n"},
    {ROUTE "    probe: {" ASK ", found: {status: 200, pointer: data/0}, settle: 1s, answer: {body: /a~2}}\n",
     "f:5:72: \"pointer\" must be a JSON pointer such as /data/0, not \"data/0\", did you mean \"/data/0\"?\n"
     "f:5:108: \"body\" must be a JSON pointer such as /data/0, not \"/a~2\": a \"~\" in a name is written ~0, and a "
     "slash ~1\n"},
    {ROUTE "    probe: {request: \"HEAD /a/{key}\", found: {status: 200, pointer: /a}, settle: 1s}\n",
     "f:5:69: a response to HEAD has no body to point into; use GET\n"},
    {ROUTE "    probe: {request: \"HEAD /a/{key}\", found: {status: 200}, answer: {body: /a}, settle: 1s}\n",
     "f:5:76: a response to HEAD has no body to point into; use GET\n"},
    {UP "defaults: {probe: {found: {pointer: /a}}}\nroutes:\n"
        "  - {match: POST /a, probe: {request: \"HEAD /{key}\", found: {status: 200}, settle: 1s}}\n",
     "f:5:39: a response to HEAD has no body to point into; use GET\n"},
    {ROUTE "    probe: {" ASK ", found: {status: 200}, absent: {status: 200}, settle: 1s}\n",
     "f:5:12: \"found\" and \"absent\" of a probe can't have the same status: 200 can't mean both\n"},
    {ROUTE "    probe: {" ASK ", found: {status: 200}, absent: {}, settle: 1s}\n",
     "f:5:72: this \"absent\" has no \"status\", such as 404\n"},
    {ROUTE "    probe: {" ASK ", found: {status: 200}, absent: {status: 199}, settle: 1s}\n",
     "f:5:81: \"status\" must be 200 to 599, not \"199\"\n"},
    {UP "defaults: {probe: {absent: {status: 404}}}\nroutes:\n"
        "  - {match: POST /a, probe: {" ASK ", found: {status: 404}, settle: 1s}}\n",
     "f:5:29: \"found\" and \"absent\" of a probe can't have the same status: 404 can't mean both\n"},
};

#define ASKED(text) ROUTE "    probe: {request: \"" text "\", found: {status: 200}, settle: 1s}\n"

static const fixture_row of_requests[] = {
    {ASKED("POST /a/{key}"), "f:5:22: \"request\" must ask by GET or HEAD, as a probe changes nothing, not by "
                             "\"POST\"\n"},
    {ASKED("get /a/{key}"), "f:5:22: \"request\" must ask by GET or HEAD, as a probe changes nothing, not by "
                            "\"get\"\n"},
    {ASKED("OPTIONS /a/{key}"), "f:5:22: \"request\" must ask by GET or HEAD, as a probe changes nothing, not by "
                                "\"OPTIONS\"\n"},
    {ASKED("/a/{key}"), "f:5:22: \"request\" must be GET or HEAD and a path, such as GET "
                        "/refunds?idempotency_key={key}, not \"/a/{key}\"\n"},
    {ASKED("GET"), "f:5:22: \"request\" must be GET or HEAD and a path, such as GET /refunds?idempotency_key={key}, "
                   "not \"GET\"\n"},
    {ASKED(""), "f:5:22: \"request\" must be GET or HEAD and a path, such as GET /refunds?idempotency_key={key}, not "
                "\"\"\n"},
    {ASKED("GET http://x/{key}"), "f:5:22: \"request\" must have a path that begins with a slash, such as GET "
                                  "/refunds/{key}, not \"http://x/{key}\"\n"},
    {ASKED("GET a/{key}"), "f:5:22: \"request\" must have a path that begins with a slash, such as GET "
                           "/refunds/{key}, not \"a/{key}\"\n"},
    {ASKED("GET /a/{id}"), "f:5:22: \"request\" contains \"{id}\"; only {key} may be in braces\n"},
    {ASKED("GET /a/{key}/{body:/x}"), "f:5:22: \"request\" contains \"{body:/x}\"; only {key} may be in braces\n"},
    {ASKED("GET /a/{Key}"), "f:5:22: \"request\" contains \"{Key}\"; only {key} may be in braces\n"},
    {ASKED("GET /a/{}"), "f:5:22: \"request\" contains \"{}\"; only {key} may be in braces\n"},
    {ASKED("GET /a/{{key}}"), "f:5:22: \"request\" contains \"{{key}\"; only {key} may be in braces\n"},
    {ASKED("GET /a/{key"),
     "f:5:22: \"request\" contains a \"{\" without a \"}\" behind it; only {key} may be in braces\n"},
    {ASKED("GET /a/{key}}"),
     "f:5:22: \"request\" contains a \"}\" without a \"{\" before it; only {key} may be in braces\n"},
    {ASKED("GET /a"), "f:5:22: \"request\" must contain {key}, or every operation would get the same probe\n"},
    {ASKED("GET /a b/{key}"), "f:5:22: \"request\" contains a space or a byte that must be escaped, as in \"%20\"\n"},
    {ASKED("GET /\xc3\xa4/{key}"), "f:5:22: \"request\" contains a space or a byte that must be escaped, as in "
                                   "\"%20\"\n"},
    {ASKED("GET /a/{key}#x"), "f:5:22: \"request\" contains a \"#\", and a fragment never reaches a server\n"},
    {ASKED("GET /a/%2/{key}"), "f:5:22: \"request\" contains a \"%\" without two hexadecimal digits\n"},
    {ASKED("GET /a/{key}%4"), "f:5:22: \"request\" contains a \"%\" without two hexadecimal digits\n"},
    {ASKED("GET /a\\r\\nX: y/{key}"), "f:5:22: \"request\" must not contain control bytes or line ends\n"},
};

static const fixture_row of_duplicates[] = {
    {ROUTE "    provider_duplicate: {status: 409}\n",
     "f:5:5: \"provider_duplicate\" needs a \"probe\", which fetches what was already there\n"},
    {UP "defaults: {probe: {settle: 1s}, provider_duplicate: {status: 409}}\n",
     "f:3:33: \"provider_duplicate\" needs a \"probe\", which fetches what was already there\n"},
    {ROUTE "    provider_duplicate: 409\n    probe: " PROBE "\n",
     "f:5:25: \"provider_duplicate\" must be a map of options, not text\n"},
    {ROUTE "    provider_duplicate: {}\n    probe: " PROBE "\n",
     "f:5:25: this \"provider_duplicate\" has no \"status\"\n"},
    {ROUTE "    provider_duplicate: {status: 409, pointer: /code}\n    probe: " PROBE "\n",
     "f:5:25: this \"provider_duplicate\" has no \"value\": what does the pointer lead to?\n"},
    {ROUTE "    provider_duplicate: {status: 409, value: duplicate}\n    probe: " PROBE "\n",
     "f:5:25: this \"provider_duplicate\" has no \"pointer\": where is the value?\n"},
    {ROUTE "    provider_duplicate: {status: 40, pointer: code, value: [a], valeu: b}\n    probe: " PROBE "\n",
     "f:5:34: \"status\" must be 200 to 599, not \"40\"\n"
     "f:5:47: \"pointer\" must be a JSON pointer such as /data/0, not \"code\", did you mean \"/code\"?\n"
     "f:5:60: \"value\" must be text, not a list\n"
     "f:5:65: unknown option \"valeu\", did you mean \"value\"?\n"},
};

static const fixture_row of_statuses[] = {
    {ROUTE "    outcome: release\n",
     "f:5:14: \"outcome\" must be a map of statuses to words, such as {\"302\": release}, not text\n"},
    {ROUTE "    outcome: {\"302\": keep}\n",
     "f:5:22: \"outcome: 302\" must be store, release, unknown or not_executed, not \"keep\"\n"},
    {ROUTE "    outcome: {302: relase}\n",
     "f:5:20: \"outcome: 302\" must be store, release, unknown or not_executed, not \"relase\", did you mean "
     "\"release\"?\n"},
    {ROUTE "    outcome: {302: }\n",
     "f:5:15: \"outcome: 302\" has no value; it must be store, release, unknown or not_executed\n"},
    {ROUTE "    outcome: {302: [release]}\n",
     "f:5:20: \"outcome: 302\" must be store, release, unknown or not_executed, not a list\n"},
    {ROUTE "    outcome: {5xx: release, 199: store, 600: store, 0500: store, -500: store}\n",
     "f:5:15: \"outcome\" lists statuses, 200 to 599, not \"5xx\"\n"
     "f:5:29: \"outcome\" lists statuses, 200 to 599, not \"199\"\n"
     "f:5:41: \"outcome\" lists statuses, 200 to 599, not \"600\"\n"
     "f:5:53: \"outcome\" lists statuses, 200 to 599, not \"0500\"\n"
     "f:5:66: \"outcome\" lists statuses, 200 to 599, not \"-500\"\n"},
    {ROUTE "    outcome: {200: release, 204: not_executed}\n",
     "f:5:15: \"outcome\" can't free the key after 200: it says that the work was done\n"
     "f:5:29: \"outcome\" can't free the key after 204: it says that the work was done\n"},
    {ROUTE "    not_executed: [299]\n",
     "f:5:20: \"not_executed\" can't free the key after 299: it says that the work was done\n"},
    {ROUTE "    outcome: {500: store, \"500\": release}\n", "f:5:27: \"500\" is given twice; it is also on line 5\n"},
    {ROUTE "    not_executed: [503, 429, 503]\n", "f:5:30: \"not_executed\" lists 503, which is also on line 5\n"},
    {ROUTE "    not_executed: [503]\n    outcome: {503: unknown}\n",
     "f:6:15: \"outcome\" lists 503, which is also on line 5\n"},
    {ROUTE "    outcome: {503: not_executed}\n    not_executed:\n      - 503\n",
     "f:7:9: \"not_executed\" lists 503, which is also on line 5\n"},
    {ROUTE "    not_executed: 503\n",
     "f:5:19: \"not_executed\" must be a list of statuses, such as [429, 503], not text\n"},
    {ROUTE "    not_executed: [[503], ~, abc]\n",
     "f:5:20: \"not_executed\" must be a list of statuses, such as [429, 503], not a list\n"
     "f:5:27: \"not_executed\" has no value; it must be a list of statuses, such as [429, 503]\n"
     "f:5:30: \"not_executed\" lists statuses, 200 to 599, not \"abc\"\n"},
};

static const fixture_row of_admin[] = {
    {UP "admin: off\n", "f:3:8: \"admin\" must be a map of options, not text\n"},
    {UP "admin: {listen: 127.0.0.1:9000}\n",
     "f:3:17: \"listen\" must be a unix socket such as unix:/run/hapax/admin.sock, or off, not \"127.0.0.1:9000\"\n"},
    {UP "admin: {listen: /run/a.sock}\n", "f:3:17: \"listen\" must be a unix socket such as "
                                          "unix:/run/hapax/admin.sock, or off, not \"/run/a.sock\", did you "
                                          "mean \"unix:/run/a.sock\"?\n"},
    {UP "admin: {listen: unix:a.sock}\n",
     "f:3:17: \"listen\" must name a socket by its whole path, such as unix:/run/hapax.sock\n"},
    {UP "admin: {listen: }\n",
     "f:3:9: \"listen\" has no value; it must be a unix socket such as unix:/run/hapax/admin.sock, or off\n"},
    {UP "admin: {lisen: off}\n", "f:3:9: unknown option \"lisen\", did you mean \"listen\"?\n"},
    {UP "listen: unix:/run/a.sock\nadmin: {listen: unix:/run/a.sock}\n",
     "f:4:17: \"listen\" names a socket that clients connect to; the one of \"admin\" must be another\n"},
};

#define CHECKS(name, table)                                                                                            \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        FIXTURE_REFUSED(table);                                                                                        \
    }

CHECKS(wrong_words_are_refused_with_their_place, of_words)
CHECKS(wrong_retries_are_refused_with_their_place, of_retries)
CHECKS(wrong_probes_are_refused_with_their_place, of_probes)
CHECKS(what_a_probe_must_not_ask_is_refused_with_its_place, of_requests)
CHECKS(wrong_duplicates_are_refused_with_their_place, of_duplicates)
CHECKS(wrong_statuses_are_refused_with_their_place, of_statuses)
CHECKS(wrong_admin_sockets_are_refused_with_their_place, of_admin)

static void more_statuses_than_there_is_room_for_are_refused(void **state)
{
    (void)state;
    hx_buf text, errors;
    hx_buf_init(&text, NULL, 4096);
    hx_buf_init(&errors, NULL, 4096);
    hx_buf_puts(&text, UP "defaults:\n  not_executed:\n");
    for (unsigned i = 0; i < HX_OUTCOME_RULES_MAX; i++) assert_true(hx_buf_printf(&text, "    - %u\n", 400 + i));
    hx_config *config = hx_config_parse("f", hx_buf_slice(&text), NULL, &errors);
    assert_non_null(config);
    assert_int_equal(config->policies.defaults.outcome_rule_count, HX_OUTCOME_RULES_MAX);
    hx_config_free(&config);
    hx_buf_puts(&text, "    - 500\n");
    assert_null(hx_config_parse("f", hx_buf_slice(&text), NULL, &errors));
    fixture_assert_text(hx_buf_slice(&errors),
                        "f:37:7: \"not_executed\" lists too many: a route has up to 32 statuses\n");
    hx_buf_free(&text);
    hx_buf_free(&errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_of_the_contract_is_read),
        cmocka_unit_test(statuses_are_read_and_inherited_one_by_one),
        cmocka_unit_test(a_route_inherits_field_by_field),
        cmocka_unit_test(retries_are_read_over_class_and_profile),
        cmocka_unit_test(a_lifetime_covers_the_time_for_retries),
        cmocka_unit_test(spaces_around_a_request_mean_nothing),
        cmocka_unit_test(the_admin_socket_is_given_switched_off_or_left_out),
        cmocka_unit_test(wrong_words_are_refused_with_their_place),
        cmocka_unit_test(wrong_retries_are_refused_with_their_place),
        cmocka_unit_test(wrong_probes_are_refused_with_their_place),
        cmocka_unit_test(what_a_probe_must_not_ask_is_refused_with_its_place),
        cmocka_unit_test(wrong_duplicates_are_refused_with_their_place),
        cmocka_unit_test(wrong_statuses_are_refused_with_their_place),
        cmocka_unit_test(wrong_admin_sockets_are_refused_with_their_place),
        cmocka_unit_test(more_statuses_than_there_is_room_for_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
