/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one JSON text a line and writes its canonical form, or `!` for what isn't clean, so that other implementations
 * can be compared with ours. */
#include "core/json/json.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        hx_arena arena = {0};
        hx_buf out;
        hx_slice text = {line, (size_t)len - (line[len - 1] == '\n' ? 1 : 0)};
        hx_buf_init(&out, &arena, HX_JSON_CANONICAL_BYTES(text.len));
        bool clean = hx_json_canonical(text, &arena, &out);
        hx_slice result = clean ? hx_buf_slice(&out) : HX_LIT("!");
        (void)fwrite(result.ptr, 1, result.len, stdout);
        (void)putchar('\n');
        hx_arena_free(&arena);
    }
    free(line);
    hx_arena_pool_drain();
    return ferror(stdin) || fflush(stdout) != 0;
}
