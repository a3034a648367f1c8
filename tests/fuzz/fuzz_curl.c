/* SPDX-License-Identifier: Apache-2.0 */
/* A command line is split, or there is a sentence about it; its words, quoted again, are the same words. What they say
 * is a request or a sentence. */
#include "base/check.h"
#include "cmd/explain/curl_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static hx_slice quoted(const hx_slice *words, size_t count, hx_arena *arena)
{
    hx_buf line;
    hx_buf_init(&line, arena, HX_CURL_LINE_BYTES_MAX);
    for (size_t i = 0; i < count; i++) {
        hx_buf_puts(&line, i > 0 ? " '" : "'");
        for (size_t k = 0; k < words[i].len; k++) {
            if (words[i].ptr[k] == '\'')
                hx_buf_puts(&line, "'\\''");
            else
                hx_buf_put(&line, (hx_slice){words[i].ptr + k, 1});
        }
        hx_buf_puts(&line, "'");
    }
    return hx_buf_slice(&line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hx_slice line = {(const char *)data, size}, *words, *again, error;
    size_t count, count_again;
    hx_arena arena = {0};
    hx_curl curl;
    hx_buf out;
    hx_curl_init(&curl, &arena);
    hx_buf_init(&out, &arena, HX_CURL_BODY_BYTES_MAX);
    curl.stdin_used = true;
    /* -T, --upload-file, @file and <file, which may also be written $'\x40'. */
    bool reads_files = false;
    if (!hx_shell_split(line, &arena, &words, &count, &error)) {
        HX_CHECK(error.len > 0);
    } else {
        bool ok = hx_shell_split(quoted(words, count, &arena), &arena, &again, &count_again, &error);
        HX_CHECK(ok && count == count_again);
        for (size_t i = 0; i < count; i++) {
            HX_CHECK(hx_slice_eq(words[i], again[i]));
            for (size_t k = 0; k < words[i].len; k++)
                reads_files = reads_files || (words[i].ptr[k] != '\0' && strchr("@<T", words[i].ptr[k]) != NULL);
            reads_files = reads_files || hx_slice_eq(words[i], HX_LIT("--upload-file"));
        }
        if (!reads_files) {
            ok = hx_curl_take_words(&curl, words, count) && hx_curl_write(&curl, &out);
            HX_CHECK(ok == (curl.error.len == 0));
        }
    }
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return 0;
}
