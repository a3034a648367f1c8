/* SPDX-License-Identifier: Apache-2.0 */
/* `api` and --api: where the API listens, by which names it is known, and that tokens don't leave the machine. */
#include "fixture.h"

#define UP "upstream: http://127.0.0.1:3000\nstore: memory\n"
#define EXPOSED                                                                                                        \
    "must be a loopback address such as 127.0.0.1:8081, because tokens would cross the network unencrypted. Put a "    \
    "proxy with TLS in front of it, or write \"insecure: true\" under \"api\"\n"

static void there_is_no_api_unless_it_is_asked_for(void **state)
{
    (void)state;
    static const char *const files[] = {UP, UP "api: {}\n", UP "api: {hosts: [a.test]}\n"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        hx_config *config = fixture_load(files[i]);
        assert_int_equal(config->api.listen_count, 0);
        assert_int_equal(config->api.connections, 1000);
        hx_config_free(&config);
    }
}

static void it_listens_where_only_this_machine_can_reach_it(void **state)
{
    (void)state;
    hx_config *config =
        fixture_load(UP "listen: 127.0.0.1:0\napi:\n  listen: [127.0.0.1:0, \"[::1]:81\", 127.9.9.9:5, unix:/run/a]\n"
                        "  hosts: [hapax.example.com, api]\n  connections: 7\n");
    assert_int_equal(config->api.listen_count, 4);
    fixture_assert_text(config->api.listen[1], "[::1]:81");
    assert_int_equal(config->api.host_count, 2);
    fixture_assert_text(config->api.hosts[0], "hapax.example.com");
    assert_int_equal(config->api.connections, 7);
    assert_int_equal(config->listen_count, 1);
    assert_int_equal(config->notes.len, 0);
    hx_config_free(&config);
    static const fixture_row exposed[] = {
        {UP "api: {listen: 0.0.0.0:8081}\n", "f:3:15: \"listen\" " EXPOSED},
        {UP "api: {listen: [127.0.0.1:1, \"[::]:8081\"]}\n", "f:3:29: \"listen\" " EXPOSED},
        {UP "api: {listen: 10.0.0.1:8081, insecure: false}\n", "f:3:15: \"listen\" " EXPOSED},
    };
    FIXTURE_REFUSED(exposed);
}

static void who_insists_is_warned(void **state)
{
    (void)state;
    static const fixture_row insecure[] = {
        {UP "api: {listen: 0.0.0.0:8081, insecure: true}\n",
         "f:3:15: the API on 0.0.0.0:8081 is not encrypted: whoever sees its traffic has the tokens\n"},
    };
    FIXTURE_NOTED(insecure);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const fixture_row rows[] = {
        {UP "api: 127.0.0.1:8081\n", "f:3:6: \"api\" must be a map of options, not text\n"},
        {UP "api: {listen: []}\n", "f:3:15: \"listen\" must not be empty\n"},
        {UP "api: {listen: [127.0.0.1:1, 127.0.0.1:1]}\n", "f:3:29: \"listen\" names the same address twice\n"},
        {UP "listen: 127.0.0.1:1\napi: {listen: 127.0.0.1:1}\n",
         "f:4:15: \"listen\" names an address that clients of the gateway connect to; the API needs another one\n"},
        {UP "admin: {listen: unix:/run/a}\napi: {listen: unix:/run/a}\n",
         "f:4:15: \"listen\" names the socket of \"admin\"; the API needs another one\n"},
        {UP "api: {hosts: [\"a.test:80\"]}\n",
         "f:3:15: \"hosts\" must list host names without a port, such as hapax.example.com, not \"a.test:80\"\n"},
        {UP "api: {hosts: [10.0.0.1]}\n",
         "f:3:15: \"hosts\" must list host names without a port, such as hapax.example.com, not \"10.0.0.1\"\n"},
        {UP "api: {hosts: a.test}\n",
         "f:3:14: \"hosts\" must be a list of host names, such as [hapax.example.com], not text\n"},
        {UP "api: {connections: 0}\n", "f:3:20: \"connections\" must be 1 to 100000, not \"0\"\n"},
        {UP "api: {origins: []}\n", "f:3:7: unknown option \"origins\" here; it belongs under \"cors\"\n"},
    };
    FIXTURE_REFUSED(rows);
}

static void the_flag_comes_before_the_file(void **state)
{
    (void)state;
    const hx_config_overrides flags = {.api = "127.0.0.1:99"}, exposed = {.api = "0.0.0.0:99"};
    hx_config *config = fixture_load_with(UP "api: {listen: [0.0.0.0:1, 127.0.0.1:2], hosts: [a.test]}\n", &flags);
    assert_int_equal(config->api.listen_count, 1);
    fixture_assert_text(config->api.listen[0], "127.0.0.1:99");
    assert_int_equal(config->api.host_count, 1);
    hx_config_free(&config);
    hx_buf errors;
    hx_buf_init(&errors, NULL, 4096);
    assert_null(hx_config_parse("f", HX_LIT(UP "api: {listen: 127.0.0.1:2}\n"), &exposed, &errors));
    fixture_assert_text(hx_buf_slice(&errors), "--api " EXPOSED);
    hx_buf_free(&errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_no_api_unless_it_is_asked_for),
        cmocka_unit_test(it_listens_where_only_this_machine_can_reach_it),
        cmocka_unit_test(who_insists_is_warned),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(the_flag_comes_before_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
