/* SPDX-License-Identifier: Apache-2.0 */
/* `inbox`, `sources` and `events`: what is read, what depends on other options, and each mistake with its place. */
#include "fixture.h"

#include "core/operation/template.h"

#include <string.h>

#define UP "upstream: http://127.0.0.1:3000\n"
#define ONE UP "sources:\n  - {name: a, deliver: http://h/p, "
#define SIGNED ONE "secret_env: S, scheme: "
#define HMAC SIGNED "hmac, id_pointer: /id, "

static void a_source_is_read_with_its_defaults(void **state)
{
    (void)state;
    hx_config *config = fixture_load(ONE "scheme: stripe, secret_file: [/etc/new, /etc/old], secret_env: SECRET}\n");
    const hx_source *source = &config->sources[0];
    assert_int_equal(config->source_count, 1);
    fixture_assert_text(config->inbox.listen[0], "127.0.0.1:8090");
    assert_int_equal(config->inbox.listen_count, 1);
    fixture_assert_text(source->name, "a");
    fixture_assert_text(source->deliver, "http://h/p");
    fixture_assert_text(source->tenant, "");
    assert_string_equal(source->scheme.name, "stripe");
    assert_int_equal(source->place_count, 3);
    assert_int_equal(source->secret_count, 0); /* they are read by who opens the source */
    fixture_assert_text(source->places[1].name, "/etc/old");
    assert_false(source->places[1].is_variable);
    fixture_assert_text(source->places[2].name, "SECRET");
    assert_true(source->places[2].is_variable);
    assert_int_equal(source->timeout, 20 * HX_SECOND);
    assert_int_equal(source->concurrency, 16);
    assert_int_equal(source->body_bytes_max, 256 * 1024);
    assert_int_equal(source->tolerance, 5 * HX_MINUTE);
    assert_int_equal(source->window, 7 * HX_DAY);
    assert_int_equal(source->replay_guard, 0);
    assert_false(source->waits || source->is_once || source->is_strict);
    assert_int_equal(config->notes.len, 0);
    hx_config_free(&config);
}

static void a_source_is_read_with_all_that_it_says(void **state)
{
    (void)state;
    hx_config *config = fixture_load(
        UP "inbox: {listen: [127.0.0.1:1, 'unix:/run/inbox.sock']}\n"
           "sources:\n"
           "  - {name: A_b-1, deliver: 'https://h:8443/p?q=1', tenant: t, scheme: hmac, signature_header: X-Sig,\n"
           "     encoding: base64, prefix: 'v0=', timestamp_header: X-Time, signed: 'v0:{timestamp}:{body}',\n"
           "     secret_env: S, timeout: 60s, concurrency: 1000, body_max: 4MiB, tolerance: 1m,\n"
           "     id_header: X-Id, ack: processed, guarantee: none, strict: true, window: 1d, replay_guard: 2h}\n"
           "  - {name: b, deliver: http://h/, scheme: svix, secret_env: S, dedupe_key: '{body:/a}:{window:1h}'}\n");
    const hx_source *source = &config->sources[0];
    assert_int_equal(config->inbox.listen_count, 2);
    fixture_assert_text(config->inbox.listen[1], "unix:/run/inbox.sock");
    assert_string_equal(source->scheme.signature_header, "X-Sig");
    assert_string_equal(source->scheme.timestamp_header, "X-Time");
    assert_string_equal(source->scheme.prefix, "v0=");
    assert_string_equal(source->scheme.signed_text, "v0:{timestamp}:{body}");
    assert_int_equal(source->scheme.encoding, HX_WEBHOOK_BASE64);
    assert_null(hx_webhook_scheme_mistake(&source->scheme));
    fixture_assert_text(source->tenant, "t");
    fixture_assert_text(source->id_header, "X-Id");
    assert_int_equal(source->timeout, HX_MINUTE);
    assert_int_equal(source->concurrency, 1000);
    assert_int_equal(source->body_bytes_max, 4 << 20);
    assert_int_equal(source->window, HX_DAY);
    assert_int_equal(source->replay_guard, 2 * HX_HOUR);
    assert_true(source->waits && source->is_once && source->is_strict);
    fixture_assert_text(config->sources[1].dedupe_key->text, "{body:/a}:{window:1h}");
    hx_config_free(&config);
}

/* A captured request can come again under another id where nobody has signed the id. */
static void ids_that_are_not_signed_are_guarded(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        hx_ms guard;
    } cases[] = {
        {SIGNED "github}\n", HX_HOUR},
        {SIGNED "shopify}\n", HX_HOUR},
        {SIGNED "stripe, id_header: X-Id}\n", HX_HOUR},
        {SIGNED "github, replay_guard: 5m}\n", 5 * HX_MINUTE},
        {SIGNED "github, replay_guard: 0}\n", 0},
        {SIGNED "github, replay_guard: off}\n", 0},
        {SIGNED "stripe, replay_guard: off}\n", 0},
        {SIGNED "github, id_pointer: /id}\n", 0},
        {SIGNED "github, dedupe_key: '{sha256:body}'}\n", 0},
        {SIGNED "standard}\n", 0},
        {SIGNED "slack}\n", 0},
        {ONE "scheme: none, id_header: X-Id}\n", 0},
        {ONE "scheme: none, id_header: X-Id, replay_guard: 1m}\n", HX_MINUTE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hx_config *config = fixture_load(cases[i].yaml);
        if (config->sources[0].replay_guard != cases[i].guard)
            fail_msg("%s: %lld", cases[i].yaml, (long long)config->sources[0].replay_guard);
        hx_config_free(&config);
    }
}

static void events_are_read(void **state)
{
    (void)state;
    hx_config *config = fixture_load(UP);
    assert_false(config->events_given);
    assert_int_equal(config->events.attempts, 512);
    assert_int_equal(config->events.retention, 7 * HX_DAY);
    assert_int_equal(config->events.dead_retention, 30 * HX_DAY);
    assert_int_equal(config->events.disable_after, 5 * HX_DAY);
    assert_int_equal(config->events.pause_max, 5 * HX_DAY);
    assert_int_equal(config->events.payload_bytes_max, 256 * 1024);
    assert_int_equal(config->events.response_bytes_max, 4096);
    assert_int_equal(config->events.allow_count, 0);
    assert_int_equal(config->inbox.listen_count, 0); /* there are no sources */
    hx_config_free(&config);
    config = fixture_load(UP "trusted_proxies: [192.0.2.1]\n"
                             "events: {attempts: 9, disable_after: off, allow: [10.0.0.0/8, '::1'], ca_file: /etc/ca,\n"
                             "  streams: [{match: orders-9, retention: 30d}, {match: '*', retention: forever}]}\n");
    assert_true(config->events_given);
    assert_int_equal(config->events.attempts, 9);
    assert_int_equal(config->events.disable_after, 0);
    assert_int_equal(config->events.allow_count, 2);
    assert_int_equal(config->events.allow[0].bits, 96 + 8);
    assert_int_equal(config->events.allow[1].bits, 128);
    assert_int_equal(config->trusted_proxy_count, 1);
    fixture_assert_text(config->events.ca_file, "/etc/ca");
    assert_int_equal(config->events.stream_count, 2);
    fixture_assert_text(config->events.streams[0].match, "orders-9");
    assert_int_equal(config->events.streams[0].retention, 30 * HX_DAY);
    assert_int_equal(config->events.streams[1].retention, HX_STREAM_FOREVER);
    hx_config_free(&config);
}

static void files_go_by_the_place_of_the_configuration(void **state)
{
    (void)state;
    hx_buf errors;
    hx_buf_init(&errors, NULL, 65536);
    const char *yaml = SIGNED "stripe, secret_file: keys/s}\nevents: {ca_file: ca.pem}\n";
    hx_config *config = hx_config_parse("/etc/hapax/f", hx_slice_of(yaml), NULL, &errors);
    assert_non_null(config);
    fixture_assert_text(config->sources[0].places[0].name, "S");
    fixture_assert_text(config->sources[0].places[1].name, "/etc/hapax/keys/s");
    fixture_assert_text(config->events.ca_file, "/etc/hapax/ca.pem");
    hx_config_free(&config);
    hx_buf_free(&errors);
}

static const fixture_row of_sources[] = {
    {UP "sources: {name: a}\n", "f:2:10: \"sources\" must be a list of sources, not a map\n"},
    {UP "sources: [a]\n", "f:2:11: a source is a map of options, such as {name: stripe, scheme: stripe, …}\n"},
    {UP "sources:\n  - tenant: t\n", "f:3:5: this source has no \"name\"\n"
                                     "f:3:5: this source has no \"deliver\", the URL of the application's handler\n"
                                     "f:3:5: this source has no \"scheme\": how does the sender sign its requests?\n"},
    {UP "sources:\n  - {name: a/b, deliver: http://h/p, scheme: stripe, secret_env: S, tenant: ü}\n",
     "f:3:12: \"name\" must be letters, digits, \"-\" and \"_\", not \"a/b\"\n"
     "f:3:77: \"tenant\" must be letters, digits, \"-\" and \"_\", not \"ü\"\n"},
    {SIGNED "stripe}\n  - {name: a, deliver: http://h/q, secret_env: S, scheme: github}\n",
     "f:4:12: source \"a\" is given twice; it is also on line 3\n"},
    {SIGNED "strip}\n", "f:3:59: \"scheme\" must be standard, svix, stripe, github, shopify, slack, hmac or none, not "
                        "\"strip\", did you mean \"stripe\"?\n"},
    {SIGNED "stripe, secret: x}\n", "f:3:67: unknown option \"secret\" here; it belongs under \"jwt\"\n"},
    {SIGNED "stripe, timout: 1s}\n", "f:3:67: unknown option \"timout\", did you mean \"timeout\"?\n"},
    {SIGNED "stripe, timeout: 2m}\n", "f:3:76: \"timeout\" must be 1s to 1m, not \"2m\"\n"},
    {SIGNED "stripe, concurrency: 1001}\n", "f:3:80: \"concurrency\" must be 1 to 1000, not \"1001\"\n"},
    {SIGNED "stripe, body_max: 5MiB}\n", "f:3:77: \"body_max\" must be 1B to 4MiB, not \"5MiB\"\n"},
    {SIGNED "stripe, ack: now}\n", "f:3:72: \"ack\" must be durable or processed, not \"now\"\n"},
    {SIGNED "github, replay_guard: never}\n",
     "f:3:81: \"replay_guard\" must be a duration such as 500ms, 10s, 5m, 24h or 7d, or off, not \"never\"\n"},
};

static const fixture_row of_signatures[] = {
    {ONE "scheme: stripe}\n",
     "f:3:5: this source has no \"secret_file\" or \"secret_env\", so that its requests can be verified\n"},
    {ONE "scheme: stripe, secret_file: []}\n", "f:3:65: \"secret_file\" must not be empty\n"},
    {ONE "scheme: stripe, secret_file: ['']}\n",
     "f:3:66: \"secret_file\" must be the name of a file or an environment variable\n"},
    {ONE "scheme: stripe, secret_env: whsec_abc}\n",
     "f:3:64: \"secret_env\" must be the name of an environment variable: capitals, digits and \"_\"\n"},
    {ONE "scheme: stripe, secret_env: [A, B, A]}\n", "f:3:71: \"secret_env\" lists the same secret twice\n"},
    {ONE "scheme: stripe, secret_file: [a, b, c, d, e, f, g], secret_env: [H, I]}\n",
     "f:3:104: \"secret_env\" is one too many: a source has up to 8 secrets\n"},
    {ONE "scheme: none, id_pointer: /id, secret_env: S}\n",
     "f:3:67: \"secret_env\" does nothing with \"scheme: none\"\n"},
    {SIGNED "stripe, prefix: a, signed: '{body}'}\n", "f:3:67: \"prefix\" is for \"scheme: hmac\"\n"
                                                      "f:3:78: \"signed\" is for \"scheme: hmac\"\n"},
    {SIGNED "hmac, id_pointer: /id}\n",
     "f:3:5: this source has no \"signature_header\", which \"scheme: hmac\" needs\n"},
    {HMAC "signature_header: a b}\n", "f:3:100: \"signature_header\" must be the name of a header, not \"a b\"\n"},
    {HMAC "signature_header: S, encoding: hec}\n",
     "f:3:113: \"encoding\" must be hex or base64, not \"hec\", did you mean \"hex\"?\n"},
    {HMAC "signature_header: S, signed: x}\n",
     "f:3:111: \"signed\" can't be used. What is signed must have {body} in it, once.\n"},
    {HMAC "signature_header: S, timestamp_header: T}\n",
     "f:3:121: \"timestamp_header\" can't be used. A timestamp needs both its header and a {timestamp} in what is "
     "signed: without the latter, anyone can change it.\n"},
    {SIGNED "github, tolerance: 1m}\n",
     "f:3:67: \"tolerance\" does nothing: this source's requests have no timestamp\n"},
};

static const fixture_row of_ids[] = {
    {SIGNED "hmac, signature_header: S}\n",
     "f:3:5: this source has no \"dedupe_key\", \"id_header\" or \"id_pointer\": where is an event's id?\n"},
    {SIGNED "stripe, id_header: X, id_pointer: /id}\n",
     "f:3:81: \"id_pointer\" can't be used beside \"id_header\": an event has one id\n"},
    {SIGNED "stripe, id_header: 'a b'}\n", "f:3:78: \"id_header\" must be the name of a header, not \"a b\"\n"},
    {SIGNED "stripe, id_pointer: id}\n",
     "f:3:79: \"id_pointer\" must be a JSON pointer such as /data/0, not \"id\", did you mean \"/id\"?\n"},
    {SIGNED "stripe, dedupe_key: '{principal}:{path:id}:{body:/id}'}\n",
     "f:3:79: \"dedupe_key\" can't be used: \"{principal}\": is for keys of routes: use header, body, query, sha256, "
     "date or window here\n"
     "f:3:79: \"dedupe_key\" can't be used: \"{path:id}\": is for keys of routes: use header, body, query, sha256, "
     "date "
     "or window here\n"},
    {SIGNED "stripe, replay_guard: 1h}\n",
     "f:3:67: \"replay_guard\" is for events whose id isn't signed: those of github and shopify, or with "
     "\"id_header\"\n"},
};

static const fixture_row of_targets[] = {
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: http://h}\n",
     "f:3:55: \"deliver\" must be a URL such as http://127.0.0.1:3000/webhooks, not \"http://h\": the path is "
     "missing\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: h:80/p}\n",
     "f:3:55: \"deliver\" must be a URL such as http://127.0.0.1:3000/webhooks, not \"h:80/p\", did you mean "
     "\"http://h:80/p\"?\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: ftp://h/p}\n",
     "f:3:55: \"deliver\" must be a URL such as http://127.0.0.1:3000/webhooks, not \"ftp://h/p\"\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: http://h:0/p}\n",
     "f:3:55: \"deliver\" must have a port, 1 to 65535, not \"0\"\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: 'http://u:secret@h/p'}\n",
     "f:3:55: \"deliver\" must not contain a user or password\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: 'http://h/p#x'}\n",
     "f:3:55: \"deliver\" must be a URL such as http://127.0.0.1:3000/webhooks, not \"http://h/p#x\"\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: http://localhost:8090/p}\n",
     "f:3:55: \"deliver\" leads to the inbox itself (127.0.0.1:8090), not to the application\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: http://127.0.0.1:8080/p}\n",
     "f:3:55: \"deliver\" leads to this gateway, and \"lifetime\" under \"defaults\" is 24h: it must be at least the "
     "\"window\" of the source, 7d\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: 'http://127.0.0.1:8080/b/../p/7?x=/'}\n"
        "routes: [{match: POST /q, lifetime: 7d}, {match: 'POST /p/{id}', lifetime: 6d}]\ndefaults: {lifetime: 7d}\n",
     "f:3:55: \"deliver\" leads to this gateway, and \"lifetime\" of route \"POST /p/{id}\" is 6d: it must be at least "
     "the \"window\" of the source, 7d\n"},
};

static const fixture_row of_listeners[] = {
    {UP "inbox: {listen: 8090}\n", "f:2:17: \"listen\" must be an address such as 127.0.0.1:8080, [::1]:8080 or "
                                   "unix:/run/hapax.sock, not \"8090\", did you mean \"127.0.0.1:8090\"?\n"},
    {UP "inbox: {listn: 127.0.0.1:1}\n", "f:2:9: unknown option \"listn\", did you mean \"listen\"?\n"},
    {UP "inbox: {listen: [127.0.0.1:1, 127.0.0.1:1]}\n", "f:2:31: \"listen\" names the same address twice\n"},
    {SIGNED "stripe}\ninbox: {listen: 127.0.0.1:8080}\n",
     "f:4:17: the inbox can't listen on 127.0.0.1:8080: another listener has that address\n"},
    {SIGNED "stripe}\nlisten: 127.0.0.1:8090\n",
     "f:3:3: the inbox can't listen on 127.0.0.1:8090: another listener has that address\n"},
    {UP "events: {attempts: 0}\n", "f:2:20: \"attempts\" must be 1 to 100000, not \"0\"\n"},
    {UP "events: {response_max: 5KiB}\n", "f:2:24: \"response_max\" must be 0 to 4KiB, not \"5KiB\"\n"},
    {UP "events: {retention: off}\n", "f:2:21: \"retention\" must be a duration such as 500ms, 10s, 5m, 24h or 7d, not "
                                      "\"off\"\n"},
    {UP "events: {streams: {match: a}}\n",
     "f:2:19: \"streams\" must be a list such as [{match: \"orders-*\", retention: 30d}], not a map\n"},
    {UP "events: {streams: [{match: a}]}\n", "f:2:20: each of \"streams\" needs \"match\" and \"retention\"\n"},
    {UP "events: {streams: [{match: 'a b', retention: 1d}]}\n",
     "f:2:28: \"match\" must be a stream's name: letters, digits, \"-\", \"_\" and \".\"\n"},
    {UP "events: {streams: [{match: a, retention: never}]}\n",
     "f:2:42: \"retention\" must be a duration such as 500ms, 10s, 5m, 24h or 7d, or forever, not \"never\"\n"},
    {UP "events: {streams: [{match: a, retention: 0s}]}\n", "f:2:42: \"retention\" must be 1h to 3650d, not \"0s\"\n"},
    {UP "events: {allow: [0.0.0.0/0]}\n",
     "f:2:18: \"allow\" must not list \"0.0.0.0/0\": every address could be reached\n"},
    {UP "events: {allow: 10.0.0.0/8}\n", "f:2:17: \"allow\" must be a list of addresses and networks, such as "
                                         "[127.0.0.1, 10.0.0.0/8], not text\n"},
};

static const fixture_row noted[] = {
    {ONE "scheme: none, id_pointer: /id}\n",
     "f:3:44: \"scheme: none\" verifies nothing: whoever can reach the inbox may send these events\n"},
    {UP "inbox: {listen: 127.0.0.1:1}\n", "f:2:1: there are no \"sources\", so the inbox is not opened\n"},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: http://127.0.0.1:8080/p}\n"
        "routes: [{match: POST /p, lifetime: 7d}]\n",
     ""},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: http://127.0.0.1:8080/p}\n"
        "routes: [{match: POST /p, mode: pass}]\n",
     ""},
    {UP "sources:\n  - {name: a, scheme: stripe, secret_env: S, deliver: https://127.0.0.1:8080/p}\n", ""},
    {UP "listen: 127.0.0.1:0\ninbox: {listen: 127.0.0.1:0}\n"
        "sources: [{name: a, scheme: stripe, secret_env: S, deliver: http://h/p}]\n",
     ""},
};

static void mistakes_are_told_with_their_place(void **state)
{
    (void)state;
    FIXTURE_REFUSED(of_sources);
    FIXTURE_REFUSED(of_signatures);
    FIXTURE_REFUSED(of_ids);
    FIXTURE_REFUSED(of_targets);
    FIXTURE_REFUSED(of_listeners);
    FIXTURE_NOTED(noted);
}

static void strict_refuses_what_anyone_may_send(void **state)
{
    (void)state;
    const hx_config_overrides strict = {.strict = true, .require_key = true};
    hx_buf errors;
    hx_buf_init(&errors, NULL, 65536);
    const char *yaml = ONE "scheme: none, id_pointer: /id}\n";
    assert_null(hx_config_parse("f", hx_slice_of(yaml), &strict, &errors));
    fixture_assert_text(
        hx_buf_slice(&errors),
        "f:3:44: \"scheme: none\" verifies nothing: whoever can reach the inbox may send these events\n");
    hx_buf_free(&errors);
    hx_config *config = fixture_load_with(SIGNED "stripe}\n", &strict);
    hx_config_free(&config);
}

static void more_sources_than_possible_are_refused(void **state)
{
    (void)state;
    hx_buf yaml, errors;
    hx_buf_init(&yaml, NULL, 1u << 20);
    hx_buf_init(&errors, NULL, 65536);
    hx_buf_puts(&yaml, UP "sources:\n");
    for (unsigned i = 0; i < HX_SOURCES_MAX + 1; i++)
        assert_true(hx_buf_printf(&yaml, " - {name: s%u, scheme: github, secret_env: S, deliver: http://h/p}\n", i));
    assert_null(hx_config_parse("f", hx_buf_slice(&yaml), NULL, &errors));
    fixture_assert_text(hx_buf_slice(&errors), "f:3:2: \"sources\" has 65 sources; up to 64 are possible\n");
    hx_buf_free(&yaml);
    hx_buf_free(&errors);
}

static void broken_bytes_do_no_worse(void **state)
{
    (void)state;
    fixture_break(UP "inbox: {listen: 127.0.0.1:1}\nevents: {allow: [10.0.0.0/8], disable_after: off}\n"
                     "sources:\n  - {name: a, scheme: stripe, secret_file: [a, b], deliver: http://127.0.0.1:8080/p}\n"
                     "  - {name: b, scheme: hmac, signature_header: S, timestamp_header: T,\n"
                     "     signed: '{timestamp}.{body}', secret_env: S, deliver: http://h/p, id_pointer: /id}\n"
                     "  - {name: c, scheme: none, dedupe_key: '{body:/a}', deliver: http://h/p}\n"
                     "defaults: {lifetime: 7d}\n",
                  12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_source_is_read_with_its_defaults),
        cmocka_unit_test(a_source_is_read_with_all_that_it_says),
        cmocka_unit_test(ids_that_are_not_signed_are_guarded),
        cmocka_unit_test(events_are_read),
        cmocka_unit_test(files_go_by_the_place_of_the_configuration),
        cmocka_unit_test(mistakes_are_told_with_their_place),
        cmocka_unit_test(strict_refuses_what_anyone_may_send),
        cmocka_unit_test(more_sources_than_possible_are_refused),
        cmocka_unit_test(broken_bytes_do_no_worse),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
