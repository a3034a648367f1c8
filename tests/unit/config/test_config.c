/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void refuse(const char *yaml, const hx_config_overrides *flags, const char *expected)
{
    hx_buf errors;
    hx_buf_init(&errors, NULL, 65536);
    hx_config *config = hx_config_parse(yaml ? "hapax.yaml" : NULL, hx_slice_of(yaml ? yaml : ""), flags, &errors);
    assert_null(config);
    if (!hx_slice_eq(hx_buf_slice(&errors), hx_slice_of(expected)))
        fail_msg("expected\n%s\ngot\n%.*s", expected, HX_FMT(hx_buf_slice(&errors)));
    hx_buf_free(&errors);
}

static void an_upstream_is_all_that_is_needed(void **state)
{
    (void)state;
    const hx_config_overrides flags = {.upstream = "http://127.0.0.1:3000"};
    assert_int_equal(setenv("STATE_DIRECTORY", "/run/one:/run/two", 1), 0);
    hx_buf errors;
    hx_buf_init(&errors, NULL, 1000);
    hx_config *config = hx_config_load(NULL, &flags, &errors);
    assert_non_null(config);
    assert_null(config->file);
    assert_int_equal(config->listen_count, 1);
    fixture_assert_text(config->listen[0], "127.0.0.1:8080");
    assert_int_equal(config->upstream_count, 1);
    fixture_assert_text(config->upstreams[0].url, "http://127.0.0.1:3000");
    fixture_assert_text(config->store, "journal:/run/one");
    assert_in_range(config->workers, 1, 4);
    assert_false(config->require_key);
    assert_false(config->dev);
    assert_false(config->log_readable);
    assert_int_equal(config->access_log, HX_ACCESS_LOG_STDERR);
    assert_int_equal(config->store_bytes_max, 0);
    assert_int_equal(config->limits.connections, 10000);
    assert_int_equal(config->limits.head_bytes, 32768);
    assert_int_equal(config->limits.headers, 100);
    assert_int_equal(config->limits.connect_timeout, 5000);
    assert_int_equal(config->limits.waiters_per_operation, 1000);
    assert_int_equal(config->policies.count, 0);
    const hx_policy *defaults = &config->policies.defaults;
    assert_false(defaults->require);
    assert_int_equal(defaults->lifetime, 24 * HX_HOUR);
    assert_int_equal(defaults->key.len_min, 16);
    assert_int_equal(defaults->principal_count, 1);
    assert_int_equal(defaults->rule_version, hx_policy_version(defaults));
    hx_config_free(&config);
    assert_null(config);
    hx_buf_free(&errors);
}

static void set(const char *name, const char *value)
{
    assert_int_equal(value ? setenv(name, value, 1) : unsetenv(name), 0);
}

static void the_store_is_in_the_state_directory(void **state)
{
    (void)state;
    static const struct {
        const char *systemd, *xdg, *home, *root, *others;
    } cases[] = {
        {"/s", "/x", "/h", "journal:/s", "journal:/s"},
        {"relative", "/x", "/h", "journal:/var/lib/hapax", "journal:/x/hapax"},
        {NULL, "/x", "/h", "journal:/var/lib/hapax", "journal:/x/hapax"},
        {NULL, "x", "/h", "journal:/var/lib/hapax", "journal:/h/.local/state/hapax"},
        {NULL, NULL, "/h", "journal:/var/lib/hapax", "journal:/h/.local/state/hapax"},
    };
    uid_t user = geteuid();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        set("STATE_DIRECTORY", cases[i].systemd);
        set("XDG_STATE_HOME", cases[i].xdg);
        set("HOME", cases[i].home);
        for (int as_another = 0; as_another <= 1; as_another++) { /* only root can try both */
            if (user == 0) assert_int_equal(seteuid(as_another ? 65534 : 0), 0);
            hx_config *config = fixture_load("upstream: http://a\n");
            fixture_assert_text(config->store, geteuid() == 0 ? cases[i].root : cases[i].others);
            hx_config_free(&config);
        }
    }
    set("HOME", NULL);
    refuse("upstream: http://a\n", NULL, "no place for the store: set HOME, or give --store journal:DIR\n");
    set("HOME", "/h");
    assert_int_equal(seteuid(user), 0);
}

static const char whole_file[] = "\xef\xbb\xbflisten: [\"127.0.0.1:0\", \"[::1]:8080\", unix:/run/h.sock]\r\n"
                                 "upstream: {main: http://app.internal:3000/, other: unix:/run/o.sock}\n"
                                 "store: journal:/var/lib/h\n"
                                 "store_max: 50GiB\n"
                                 "workers: '64'\n"
                                 "require_key: true\n"
                                 "access_log: off\n"
                                 "log_format: readable\n"
                                 "limits: {connections: 5, body_rate_min: 0, waiters: 1, headers: 1000}\n"
                                 "defaults: {lifetime: 7d, principal: \"header:X-User\", upstream: other}\n"
                                 "routes:\n"
                                 "  - name: refunds\n"
                                 "    match: POST /refunds/{id}\n"
                                 "    upstream: main\n"
                                 "    on_duplicate: noop\n"
                                 "    key: {min: 1, max: 36, format: uuid4}\n"
                                 "    principal: [authorization, \"cookie:Sid\"]\n"
                                 "    require_principal: true\n"
                                 "    lifetime: 1h\n"
                                 "    lease: 30s\n"
                                 "    wait: 0\n"
                                 "    grace: 0\n"
                                 "    upstream_timeout: 500ms\n"
                                 "    body_max: 4KiB\n"
                                 "    answer_max: 0\n"
                                 "  - match: POST,PUT /a\n"
                                 "    mode: pass\n"
                                 "    because: >\n"
                                 "      the last write\n"
                                 "      wins\n";

static void a_whole_file_is_read(void **state)
{
    (void)state;
    hx_config *config = fixture_load(whole_file);
    assert_int_equal(config->listen_count, 3);
    fixture_assert_text(config->listen[2], "unix:/run/h.sock");
    fixture_assert_text(config->upstreams[0].url, "http://app.internal:3000");
    fixture_assert_text(config->upstreams[1].name, "other");
    fixture_assert_text(config->store, "journal:/var/lib/h");
    assert_int_equal(config->store_bytes_max, (uint64_t)50 << 30);
    assert_int_equal(config->workers, 64);
    assert_true(config->require_key && config->policies.require_key && config->policies.defaults.require);
    assert_int_equal(config->access_log, HX_ACCESS_LOG_OFF);
    assert_true(config->log_readable);
    assert_int_equal(config->limits.connections, 5);
    assert_int_equal(config->limits.headers, 1000);
    assert_int_equal(config->limits.waiters, 1);
    assert_int_equal(config->limits.body_rate_min, 0);
    assert_int_equal(config->policies.defaults.upstream, 1);
    assert_int_equal(config->policies.count, 2);
    hx_config_free(&config);
}

static void routes_are_read_over_their_defaults(void **state)
{
    (void)state;
    hx_config *config = fixture_load(whole_file);
    const hx_policy *refunds = &config->policies.routes[0], *other = &config->policies.routes[1];
    fixture_assert_text(refunds->name, "refunds");
    fixture_assert_text(refunds->path, "/refunds/{id}");
    assert_int_equal(refunds->upstream, 0);
    assert_int_equal(refunds->on_duplicate, HX_DUPLICATE_NOOP);
    assert_true(refunds->key.len_min == 1 && refunds->key.len_max == 36 && refunds->key.format == HX_KEY_UUID4);
    assert_int_equal(refunds->principal_count, 2);
    assert_int_equal(refunds->principals[1].kind, HX_PRINCIPAL_COOKIE);
    fixture_assert_text(refunds->principals[1].name, "Sid");
    assert_true(refunds->require_principal);
    assert_int_equal(refunds->lifetime, HX_HOUR);
    assert_int_equal(refunds->lease, 30000);
    assert_int_equal(refunds->wait, 0);
    assert_int_equal(refunds->grace, 0);
    assert_int_equal(refunds->upstream_timeout, 500);
    assert_int_equal(refunds->body_bytes_max, 4096);
    assert_int_equal(refunds->answer_bytes_max, 0);
    assert_int_equal(refunds->mode, HX_MODE_PROTECT);
    assert_int_equal(refunds->rule_version & HX_RULE_IDENTITY, hx_policy_version(refunds) & HX_RULE_IDENTITY);
    fixture_assert_text(other->name, "POST,PUT /a");
    fixture_assert_text(other->because, "the last write wins");
    assert_int_equal(other->mode, HX_MODE_PASS);
    assert_int_equal(other->lifetime, 7 * HX_DAY);
    assert_int_equal(other->upstream, 1);
    fixture_assert_text(other->principals[0].name, "x-user"); /* however it is spelled */
    hx_config_free(&config);
}

static void put_requires_a_key_only_where_it_is_written(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        bool require, on_put;
    } cases[] = {
        {"routes: [{match: /a}]\n", true, false},
        {"routes: [{match: /a, require: true}]\n", true, true},
        {"routes: [{match: /a, require: false}]\n", false, false},
        {"defaults: {require: true}\nroutes: [{match: /a}]\n", true, true},
        {"defaults: {require: false}\nroutes: [{match: /a}]\n", false, false},
        {"defaults: {require: true}\nroutes: [{match: /a, require: false}]\n", false, false},
        {"defaults: {require: false}\nroutes: [{match: /a, require: true}]\n", true, true},
    };
    const hx_config_overrides flags = {.upstream = "http://a"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hx_config *config = fixture_load_with(cases[i].yaml, &flags);
        assert_int_equal(config->policies.routes[0].require, cases[i].require);
        assert_int_equal(config->policies.routes[0].require_on_put, cases[i].on_put);
        assert_false(config->policies.defaults.require);
        assert_false(config->policies.defaults.require_on_put);
        hx_config_free(&config);
    }
}

static void flags_override_the_file(void **state)
{
    (void)state;
    static const char *const listen[] = {"0.0.0.0:1", "[::]:2"};
    const hx_config_overrides flags = {
        .upstream = "unix:/a.sock",
        .listen = listen,
        .listen_count = 2,
        .store = "memory:",
        .workers = "3",
        .require_key = true,
    };
    hx_config *config = fixture_load_with("upstream: http://b\nlisten: 127.0.0.1:9\nstore: journal:/x\nworkers: 1\n",
                                          &flags);
    assert_int_equal(config->upstream_count, 1);
    fixture_assert_text(config->upstreams[0].url, "unix:/a.sock");
    assert_int_equal(config->listen_count, 2);
    fixture_assert_text(config->listen[1], "[::]:2");
    fixture_assert_text(config->store, "memory:");
    assert_int_equal(config->workers, 3);
    assert_true(config->policies.require_key);
    hx_config_free(&config);
}

static void wrong_flags_are_named(void **state)
{
    (void)state;
    static const char *const listen[] = {"nowhere", "127.0.0.1:1", "127.0.0.1:1"};
    const hx_config_overrides flags = {
        .upstream = "ftp://x", .listen = listen, .listen_count = 3, .store = "disk", .workers = "0"};
    refuse(NULL, &flags,
           "--workers must be 1 to 64, not \"0\"\n"
           "--upstream must be a URL such as http://127.0.0.1:3000 or unix:/run/app.sock, not \"ftp://x\"\n"
           "--listen must be an address such as 127.0.0.1:8080, [::1]:8080 or unix:/run/hapax.sock, not \"nowhere\"\n"
           "--listen names the same address twice\n"
           "--store must be journal:DIR, sqlite:FILE, postgres://… or memory:, not \"disk\"\n");
    refuse(NULL, NULL, "no upstream: give --upstream http://127.0.0.1:3000, or --config FILE\n");
    const hx_config_overrides one = {.upstream = "http://x"};
    refuse("upstream: {a: http://a}\nroutes: [{match: /a, upstream: a}]\n", &one,
           "--upstream can't replace the upstreams that hapax.yaml names; change them there\n");
}

static void dev_allows_short_keys_and_releases_server_errors(void **state)
{
    (void)state;
    const hx_config_overrides flags = {.upstream = "http://a", .dev = true};
    hx_config *config = fixture_load_with("routes: [{match: /a}, {match: /b, key: {min: 20}}]\n", &flags);
    assert_true(config->dev && config->log_readable);
    assert_int_equal(config->policies.defaults.key.len_min, 1);
    assert_int_equal(config->policies.routes[0].key.len_min, 1);
    assert_int_equal(config->policies.routes[1].key.len_min, 20);
    assert_true(config->policies.defaults.release_5xx && config->policies.routes[0].release_5xx);
    hx_config_free(&config);
    config = fixture_load_with("log_format: json\n", &flags);
    assert_false(config->log_readable);
    hx_config_free(&config);
    config = fixture_load("upstream: http://a\n");
    assert_false(config->policies.defaults.release_5xx);
    hx_config_free(&config);
}

static void strict_asks_why_an_unsafe_method_passes(void **state)
{
    (void)state;
    const hx_config_overrides strict = {.upstream = "http://a", .strict = true, .require_key = true};
    static const char yaml[] = "routes:\n"
                               "  - {match: POST /a, mode: pass}\n"
                               "  - {match: GET /a, mode: pass}\n"
                               "  - {match: POST /b, mode: pass, because: the last write wins}\n"
                               "  - {match: POST /c}\n";
    refuse(yaml, &strict, "hapax.yaml:2:28: an unsafe method passes unprotected here; say why: \"because: …\"\n");
    refuse("defaults: {mode: pass}\n", &strict,
           "hapax.yaml:1:18: an unsafe method passes unprotected here; say why: \"because: …\"\n");
    refuse("defaults: {require: false}\nroutes:\n"
           "  - {match: POST /a}\n"
           "  - {match: POST /b, require: true}\n"
           "  - {match: PUT /b, require: true}\n"
           "  - {match: GET /b}\n"
           "  - {match: PUT /c, require: false}\n"
           "  - {match: POST /d, because: nobody repeats it}\n"
           "  - {match: POST /e, key: {from: \"{body:/a}\"}}\n",
           &strict,
           "hapax.yaml:3:5: an unsafe method without a key passes unprotected here; say why: \"because: …\"\n"
           "hapax.yaml:7:30: an unsafe method without a key passes unprotected here; say why: \"because: …\"\n");
    const hx_config_overrides lenient = {.upstream = "http://a"};
    hx_config *config = fixture_load_with(yaml, &lenient);
    assert_int_equal(config->policies.count, 4);
    hx_config_free(&config);
}

static void assert_unreadable(const char *file, const char *says)
{
    hx_buf errors;
    hx_buf_init(&errors, NULL, 65536);
    assert_null(hx_config_load(file, NULL, &errors));
    assert_true(hx_buf_byte(&errors, '\0'));
    if (!strstr(errors.data, says)) fail_msg("%s", errors.data);
    hx_buf_free(&errors);
}

static void files_that_cannot_be_read_are_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/hapax-test-XXXXXX", file[64], lengthy[8192];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/large.yaml", folder);
    int descriptor = open(file, O_WRONLY | O_CREAT, 0600);
    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, HX_CONFIG_FILE_BYTES_MAX + 1), 0);
    assert_unreadable(file, "large.yaml: can't be read: it is larger than 1 MiB\n");
    assert_int_equal(ftruncate(descriptor, HX_CONFIG_FILE_BYTES_MAX), 0);
    assert_unreadable(file, "large.yaml:1:1: control byte 0x00: this is not a text file\n");
    assert_int_equal(close(descriptor), 0);
    assert_unreadable(folder, ": can't be read: Is a directory\n");
    assert_int_equal(unlink(file), 0);
    assert_unreadable(file, ": can't be read: No such file or directory\n");
    assert_int_equal(rmdir(folder), 0);
    memset(lengthy, 'a', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    assert_unreadable(lengthy, ": can't be read: File name too long\n");
}

static void a_thousand_routes_are_the_limit(void **state)
{
    (void)state;
    for (int extra = 0; extra <= 1; extra++) {
        hx_buf text, errors;
        hx_buf_init(&text, NULL, HX_CONFIG_FILE_BYTES_MAX);
        hx_buf_init(&errors, NULL, 1000);
        hx_buf_puts(&text, "upstream: http://a\nroutes:\n");
        for (int i = 0; i < 1000 + extra; i++) assert_true(hx_buf_printf(&text, "- match: POST /r%d/{x}\n", i));
        hx_config *config = hx_config_parse("f", hx_buf_slice(&text), NULL, &errors);
        assert_int_equal(config != NULL, extra == 0);
        if (config)
            assert_int_equal(config->policies.count, 1000);
        else
            fixture_assert_text(hx_buf_slice(&errors), "f:3:1: \"routes\" has 1001 routes; up to 1000 are possible\n");
        hx_config_free(&config);
        hx_buf_free(&text);
        hx_buf_free(&errors);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_upstream_is_all_that_is_needed),
        cmocka_unit_test(the_store_is_in_the_state_directory),
        cmocka_unit_test(a_whole_file_is_read),
        cmocka_unit_test(routes_are_read_over_their_defaults),
        cmocka_unit_test(put_requires_a_key_only_where_it_is_written),
        cmocka_unit_test(flags_override_the_file),
        cmocka_unit_test(wrong_flags_are_named),
        cmocka_unit_test(dev_allows_short_keys_and_releases_server_errors),
        cmocka_unit_test(strict_asks_why_an_unsafe_method_passes),
        cmocka_unit_test(files_that_cannot_be_read_are_refused),
        cmocka_unit_test(a_thousand_routes_are_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, fixture_drain);
}
