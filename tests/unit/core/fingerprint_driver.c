/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the fingerprint of one request a line, for test_fingerprint_properties.py. A line has these words, in
 * hexadecimal and with one space between them: method, path, query, media type, coding, If-Match, If-None-Match,
 * If-Unmodified-Since, body, natural key; then `?` or `-` for whether there is a query; then C, R, P or K for what of
 * the body counts; then five lists, each a number and a comma before every item: pointers, ignored pointers, ignored
 * query names, header names, header values.
 * The answer has the digest, the MAC of each part, the body's kind, 1 or 0 for whether it is JSON by its type, and `M`
 * or `=` for whether what a natural key hashes is the digest of parts or the body. */
#include "base/check.h"
#include "base/hex.h"
#include "core/operation/fingerprint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELDS 11
#define LISTS 5
#define WORDS_MAX (FIELDS + LISTS * HX_FINGERPRINT_LIST_MAX)

typedef struct {
    char *memory[WORDS_MAX]; /* each word has memory of just its size, so that a sanitizer sees a step too far */
    size_t count;
    hx_slice fields[FIELDS];
    hx_slice lists[LISTS][HX_FINGERPRINT_LIST_MAX];
    size_t lens[LISTS];
} question;

static hx_slice decode(question *q, hx_slice hex)
{
    size_t len = hex.len / 2;
    char *bytes = malloc(len > 0 ? len : 1);
    HX_CHECK(bytes != NULL && q->count < WORDS_MAX);
    for (size_t i = 0; i < len; i++) bytes[i] = (char)hx_hex_byte(hex.ptr + 2 * i);
    q->memory[q->count++] = bytes;
    return (hx_slice){bytes, len};
}

static hx_slice word(hx_slice *rest)
{
    hx_slice next = HX_EMPTY;
    bool there = hx_slice_next(rest, ' ', &next);
    HX_CHECK(there);
    return next;
}

static void read_list(question *q, hx_slice text, size_t list)
{
    hx_slice item;
    uint64_t count;
    bool there = hx_slice_next(&text, ',', &item) && hx_slice_to_u64(item, &count);
    HX_CHECK(there && count <= HX_FINGERPRINT_LIST_MAX);
    for (q->lens[list] = 0; q->lens[list] < count; q->lens[list]++) {
        there = hx_slice_next(&text, ',', &item);
        HX_CHECK(there);
        q->lists[list][q->lens[list]] = decode(q, item);
    }
}

static void put_hex(const void *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) (void)printf("%02x", ((const unsigned char *)bytes)[i]);
    (void)putchar(' ');
}

static void answer(hx_mac *mac, question *q, char query, char body)
{
    static const char kinds[] = "CRPK";
    const char *kind = strchr(kinds, body);
    HX_CHECK(kind != NULL && q->lens[3] == q->lens[4]);
    hx_fingerprint_rules rules = {
        .body = (hx_fingerprint_body)(kind - kinds),
        .pointers = q->lists[0],
        .pointer_count = q->lens[0],
        .ignored_pointers = q->lists[1],
        .ignored_pointer_count = q->lens[1],
        .ignored_query = q->lists[2],
        .ignored_query_count = q->lens[2],
        .headers = q->lists[3],
        .header_count = q->lens[3],
    };
    hx_fingerprint_input in = {
        .method = q->fields[0],
        .path = q->fields[1],
        .query = q->fields[2],
        .content_type = q->fields[3],
        .content_encoding = q->fields[4],
        .if_match = q->fields[5],
        .if_none_match = q->fields[6],
        .if_unmodified_since = q->fields[7],
        .body = q->fields[8],
        .key = q->fields[9],
        .host = q->fields[10],
        .has_query = query == '?',
        .rules = &rules,
        .headers = q->lists[4],
    };
    hx_arena arena = {0};
    uint64_t parts[HX_PART_COUNT];
    bool json = hx_fingerprint_is_json(&in, &arena);
    hx_slice hashed = hx_fingerprint_body_hashed(mac, &in, &arena);
    hx_digest digest = hx_fingerprint(mac, &in, &arena);
    hx_fingerprint_parts(mac, &in, &arena, parts);
    put_hex(digest.bytes, sizeof digest.bytes);
    for (size_t i = 0; i < HX_PART_COUNT; i++) put_hex(&parts[i], sizeof parts[i]);
    (void)printf("%c %d %c\n", in.normal.body_kind ? in.normal.body_kind : '-', json,
                 hashed.ptr == in.body.ptr && hashed.len == in.body.len ? '=' : 'M');
    hx_arena_free(&arena);
}

int main(void)
{
    static const uint8_t secret[HX_SECRET_BYTES] = "a secret of thirty-two bytes....";
    static question q;
    hx_mac *mac = hx_mac_new(secret);
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        hx_slice rest = {line, (size_t)len - 1};
        q.count = 0;
        for (size_t i = 0; i < FIELDS; i++) q.fields[i] = decode(&q, word(&rest));
        char query = word(&rest).ptr[0], body = word(&rest).ptr[0];
        for (size_t i = 0; i < LISTS; i++) read_list(&q, word(&rest), i);
        answer(mac, &q, query, body);
        if (fflush(stdout) != 0) return 1;
        for (size_t i = 0; i < q.count; i++) free(q.memory[i]);
    }
    free(line);
    hx_mac_free(&mac);
    hx_arena_pool_drain();
    return ferror(stdin);
}
