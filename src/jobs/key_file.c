/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/key_file.h"

#include "base/log.h"
#include "base/text.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

/* Returns NULL, or why the file can't be read. */
static const char *read_file(const char *path, hx_buf *out)
{
    FILE *file = fopen(path, "re");
    if (!file) return strerror(errno); // NOLINT(concurrency-mt-unsafe): glibc's is per thread
    const char *wrong = NULL;
    char chunk[4096];
    for (size_t got; !wrong && (got = fread(chunk, 1, sizeof chunk, file)) > 0;)
        if (!hx_buf_append(out, (hx_slice){chunk, got})) wrong = "it has more than 1 MiB";
    if (!wrong && ferror(file)) wrong = strerror(errno); // NOLINT(concurrency-mt-unsafe)
    OPENSSL_cleanse(chunk, sizeof chunk);
    (void)fclose(file);
    return wrong;
}

static hx_jwt_keys *parse(const hx_jwt_source *from, hx_slice text, hx_error_text why)
{
    if (from->kind == HX_JWT_KEY_FILE) return hx_jwt_keys_from_pem(text, why);
    if (from->kind == HX_JWT_SECRET_FILE) return hx_jwt_keys_from_secret(hx_text_without_line_end(text), why);
    return hx_jwt_keys_from_jwks(text, why);
}

hx_jwt_keys *hx_jwks_file_read(const hx_jwt_source *from, hx_error_text error)
{
    static const char *const names[] = {
        [HX_JWT_KEY_FILE] = "key", [HX_JWT_SECRET_FILE] = "secret", [HX_JWT_JWKS_FILE] = "jwks"};
    hx_error_text why;
    hx_arena arena = {0};
    hx_buf text;
    hx_jwt_keys *keys = NULL;
    hx_buf_init(&text, NULL, HX_JWKS_BYTES_MAX);
    const char *wrong = read_file(hx_arena_terminated(&arena, from->where), &text);
    if (wrong) {
        (void)hx_fail(error, "jwt: the %s file %.*s can't be read: %s", names[from->kind], HX_FMT(from->where), wrong);
    } else if (!(keys = parse(from, hx_buf_slice(&text), why))) {
        (void)hx_fail(error, "jwt: the %s file %.*s %s", names[from->kind], HX_FMT(from->where), why);
    }
    if (text.data) OPENSSL_cleanse(text.data, text.cap);
    hx_buf_free(&text);
    hx_arena_free(&arena);
    return keys;
}

static bool is_this_machine(hx_slice host)
{
    hx_slice name = hx_slice_first(host, hx_slice_find(host, ':'));
    if (hx_slice_starts(host, HX_LIT("[::1]")) || hx_slice_eq_nocase(name, HX_LIT("localhost"))) return true;
    for (size_t i = 0; i < name.len; i++)
        if ((name.ptr[i] < '0' || name.ptr[i] > '9') && name.ptr[i] != '.') return false;
    return hx_slice_starts(name, HX_LIT("127."));
}

bool hx_jwks_url_check(hx_slice url, hx_error_text error)
{
    bool is_plain = hx_slice_starts_nocase(url, HX_LIT("http://"));
    size_t scheme = is_plain ? 7 : 8;
    hx_slice host = hx_slice_from(url, scheme);
    host = hx_slice_first(host, hx_slice_find(host, '/'));
    if ((!is_plain && !hx_slice_starts_nocase(url, HX_LIT("https://"))) || host.len == 0)
        return hx_fail(error, "jwt: jwks_url %.*s must be https://HOST/… (or http://)", HX_FMT(url));
    if (hx_slice_find(host, '@') != SIZE_MAX) return hx_fail(error, "jwt: jwks_url must not contain a user name");
    if (is_plain && !is_this_machine(host)) {
        hx_log_begin(HX_EVENT_jwks_insecure);
        hx_log_str("url", url);
        hx_log_end();
    }
    return true;
}
