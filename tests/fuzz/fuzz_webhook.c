/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte names a scheme; the rest is header lines, an empty line and the body; after 'S' it is a secret. Only
 * the seeds' body has a valid signature, and an error is about a header that the scheme has. */
#include "base/check.h"
#include "base/text.h"
#include "core/webhook/webhook.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t find_header(const void *user, hx_slice name, hx_slice *value)
{
    hx_slice block = *(const hx_slice *)user;
    hx_text_header header;
    size_t lines = 0;
    while (hx_text_next_header(&block, &header)) {
        if (!hx_slice_eq_nocase(header.name, name)) continue;
        if (lines++ == 0) *value = header.value;
    }
    return lines;
}

static bool is_one_of(const char *text, const hx_webhook_scheme *scheme)
{
    const char *const names[] = {scheme->signature_header, scheme->timestamp_header, scheme->id_header};
    for (size_t i = 0; i < 3; i++)
        if (names[i] && strcmp(names[i], text) == 0) return true;
    return false;
}

static void verify(const hx_webhook_scheme *scheme, hx_slice input, hx_arena *arena)
{
    hx_slice head = input;
    size_t end = 0;
    while (end + 1 < input.len && !(input.ptr[end] == '\n' && input.ptr[end + 1] == '\n')) end++;
    head = hx_slice_first(input, end + 1);
    hx_webhook_request request = {.find_header = find_header, .user = &head, .body = hx_slice_from(input, end + 2)};
    hx_webhook_secret secrets[2] = {{0}};
    hx_webhook_rules rules = {.scheme = scheme, .secrets = secrets, .secret_count = 1, .tolerance = INT64_MAX};
    hx_webhook_result result;
    hx_slice id;
    bool is_signed;
    HX_CHECK(hx_webhook_secret_read(scheme, HX_LIT("c2VjcmV0"), arena, &secrets[0]) == HX_WEBHOOK_OK);
    if (scheme->form == HX_WEBHOOK_VERSIONS) {
        hx_slice key = HX_LIT("whpk_A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=");
        HX_CHECK(hx_webhook_secret_read(scheme, key, arena, &secrets[rules.secret_count++]) == HX_WEBHOOK_OK);
    }
    hx_webhook_error error = hx_webhook_verify(&rules, &request, 0, arena, &result);
    HX_CHECK(error == result.error && hx_webhook_error_text(error)[0]);
    HX_CHECK((result.header != NULL) == (error != HX_WEBHOOK_OK && error != HX_WEBHOOK_NO_MATCH));
    if (result.header) HX_CHECK(is_one_of(result.header, scheme));
    if (error == HX_WEBHOOK_OK) HX_CHECK(result.secret < rules.secret_count && result.before.ptr);
    /* A forgery. */
    if (error == HX_WEBHOOK_OK) HX_CHECK(hx_slice_eq(request.body, HX_LIT("{\"id\":\"evt_1\"}")));
    if (hx_webhook_event_id(scheme, &request, arena, &id, &is_signed)) HX_CHECK(id.len > 0);
}

static void read_secret(hx_slice text, hx_arena *arena)
{
    size_t count;
    const hx_webhook_scheme *schemes = hx_webhook_schemes(&count);
    for (size_t i = 0; i < count; i++) {
        hx_webhook_secret secret;
        hx_webhook_error error = hx_webhook_secret_read(&schemes[i], text, arena, &secret);
        if (error != HX_WEBHOOK_OK) continue;
        HX_CHECK(secret.key.len > 0 && (!secret.is_ed25519 || secret.key.len == 32));
        HX_CHECK(secret.private_key.len == 0 || (secret.is_ed25519 && secret.private_key.len == 32));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char letters[] = "nvtgpkh"; /* in the order of the table */
    hx_arena arena = {0};
    size_t count;
    const hx_webhook_scheme *schemes = hx_webhook_schemes(&count);
    HX_CHECK(count == sizeof letters - 1);
    if (size == 0) return 0;
    hx_slice rest = {(const char *)data + 1, size - 1};
    if (data[0] == 'S') read_secret(rest, &arena);
    for (size_t i = 0; i < count; i++) {
        hx_webhook_scheme scheme = schemes[i];
        if ((char)data[0] != letters[i]) continue;
        if (!scheme.signature_header) {
            scheme.signature_header = "X-Sig";
            scheme.timestamp_header = "X-Time";
            scheme.signed_text = "{timestamp}|{body}|{timestamp}";
            scheme.prefix = "a=";
            HX_CHECK(!hx_webhook_scheme_mistake(&scheme));
        }
        verify(&scheme, rest, &arena);
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
