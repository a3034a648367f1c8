/* SPDX-License-Identifier: Apache-2.0 */
#include "base/program/read_file.h"

#include "base/memory/buf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

bool hx_read_file(const char *path, size_t bytes_max, hx_arena *arena, hx_slice *out, hx_slice *error)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (!file) {
        *error = hx_arena_printf(arena, "%s can't be read: %s.", path, strerror(errno));
        return false;
    }
    hx_buf bytes;
    hx_buf_init(&bytes, arena, bytes_max);
    char piece[16384];
    bool fits = true;
    for (size_t got; fits && (got = fread(piece, 1, sizeof piece, file)) > 0;)
        fits = hx_buf_append(&bytes, (hx_slice){piece, got});
    bool failed = ferror(file) != 0;
    int number = errno;
    if (!is_stdin) (void)fclose(file);
    if (failed)
        *error = hx_arena_printf(arena, "%s can't be read: %s.", path, strerror(number));
    else if (!fits)
        *error = hx_arena_printf(arena, "%s has more than %zu MiB.", path, bytes_max >> 20);
    *out = bytes.len > 0 ? hx_buf_slice(&bytes) : HX_EMPTY;
    return fits && !failed;
}
