/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines: `=FILE` opens a time zone, and a moment in milliseconds asks it. Answers a moment with the offset in
 * seconds, the date, and the moment at which it began; and a file that isn't a time zone with `!`. test_zone.py
 * compares that with Python. */
#include "base/check.h"
#include "core/time/zone.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file has memory of just its size, so that a sanitizer sees a step too far. */
static char *read_file(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    HX_CHECK(file != NULL);
    static char room[HX_ZONE_FILE_BYTES_MAX];
    *len = fread(room, 1, sizeof room, file);
    HX_CHECK(feof(file) && fclose(file) == 0);
    char *bytes = malloc(*len > 0 ? *len : 1);
    HX_CHECK(bytes != NULL);
    if (*len > 0) memcpy(bytes, room, *len);
    return bytes;
}

static const hx_zone *open_zone(const char *path, hx_arena *arena)
{
    size_t len;
    char *bytes = read_file(path, &len);
    const hx_zone *zone = hx_zone_read(hx_slice_of(path), (hx_slice){bytes, len}, arena);
    free(bytes);
    return zone;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    hx_arena arena = {0};
    const hx_zone *zone = NULL;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        line[len - 1] = '\0';
        if (line[0] == '=') {
            hx_arena_free(&arena);
            zone = open_zone(line + 1, &arena);
            if (!zone) (void)puts("!");
            continue;
        }
        HX_CHECK(zone != NULL);
        hx_ms at = strtoll(line, NULL, 10);
        hx_date date = hx_zone_date(zone, at);
        (void)printf("%" PRId32 " %04" PRId32 "-%02u-%02u %" PRId64 "\n", hx_zone_offset(zone, at), date.year,
                     (unsigned)date.month, (unsigned)date.day, hx_zone_date_began(zone, at));
    }
    free(line);
    hx_arena_free(&arena);
    hx_arena_pool_drain();
    return ferror(stdin) || fflush(stdout) != 0;
}
