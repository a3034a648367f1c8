/* SPDX-License-Identifier: Apache-2.0 */
/* Time zones, from the machine's database: $TZDIR, or /usr/share/zoneinfo. They are read once, when a configuration is
 * loaded, so that replacing the database changes no date until the next load. */
#include "config/loader.h"
#include "core/time/zone.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define USUAL_FOLDER "/usr/share/zoneinfo"
#define ZONE_BYTES_MAX (64u * 1024u)
#define INDEX_BYTES_MAX (512u * 1024u)
#define NAMES_MAX 1000u

static const char *folder(void)
{
    const char *given = getenv("TZDIR");
    return given && given[0] == '/' ? given : USUAL_FOLDER;
}

/* Reads a regular file into the arena; empty: it can't be read or has more than `most` bytes. */
static hx_slice read_file(const char *path, size_t most, hx_arena *arena)
{
    struct stat about;
    hx_slice bytes = HX_EMPTY;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0) return bytes;
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0 && (uint64_t)about.st_size <= most) {
        char *text = hx_arena_alloc(arena, (size_t)about.st_size);
        size_t len = 0;
        ssize_t got = 0;
        do {
            got = read(file, text + len, (size_t)about.st_size - len);
            if (got > 0) len += (size_t)got;
        } while ((got > 0 && len < (size_t)about.st_size) || (got < 0 && errno == EINTR));
        if (len == (size_t)about.st_size) bytes = (hx_slice){text, len};
    }
    (void)close(file);
    return bytes;
}

const struct hx_zone *hx_config_zone(void *arena, hx_slice name)
{
    if (!hx_zone_is_name(name)) return NULL; /* it stays inside the folder */
    const char *path = hx_arena_printf(arena, "%s/%.*s", folder(), HX_FMT(name)).ptr;
    hx_slice bytes = read_file(path, ZONE_BYTES_MAX, arena);
    return bytes.len > 0 ? hx_zone_read(hx_arena_copy(arena, name), bytes, arena) : NULL;
}

const struct hx_zone *hx_options_zones_find(void *user, hx_slice name)
{
    hx_loader *loader = user;
    hx_arena *arena = &loader->config->arena;
    for (const hx_known_zone *known = loader->zones; known; known = known->next)
        if (hx_slice_eq(known->name, name)) {
            if (!known->zone) loader->unknown_zone = known->name;
            return known->zone;
        }
    hx_known_zone *known = hx_arena_zalloc(arena, sizeof *known);
    known->name = hx_arena_copy(arena, name);
    known->zone = hx_config_zone(arena, known->name);
    known->next = loader->zones;
    loader->zones = known;
    if (!known->zone) loader->unknown_zone = known->name;
    return known->zone;
}

typedef struct {
    const char *names[NAMES_MAX];
    size_t count;
} name_list;

static const char *name_at(size_t i, const void *list)
{
    return ((const name_list *)list)->names[i];
}

/* From the database's own text form: "Z America/New_York …" for zones, "L America/New_York US/Eastern" for others. */
static void read_index(hx_slice text, hx_arena *arena, name_list *list)
{
    hx_slice line, word;
    while (hx_slice_next(&text, '\n', &line)) {
        bool is_zone = hx_slice_starts(line, HX_LIT("Z ")), is_link = hx_slice_starts(line, HX_LIT("L "));
        hx_slice rest = hx_slice_from(line, 2);
        if ((!is_zone && !is_link) || list->count == NAMES_MAX) continue;
        if (is_link && !hx_slice_next(&rest, ' ', &word)) continue;
        if (hx_slice_next(&rest, ' ', &word) && hx_slice_find(word, '/') != SIZE_MAX) /* not "Eire" */
            list->names[list->count++] = hx_arena_terminated(arena, word);
    }
}

const char *hx_options_zones_hint(hx_slice name, hx_arena *arena)
{
    struct stat about;
    if (stat(folder(), &about) != 0 || !S_ISDIR(about.st_mode))
        return hx_arena_printf(arena, "; there are no time zones in %s: install tzdata, or set TZDIR", folder()).ptr;
    hx_slice index = read_file(hx_arena_printf(arena, "%s/tzdata.zi", folder()).ptr, INDEX_BYTES_MAX, arena);
    name_list *list = hx_arena_zalloc(arena, sizeof *list);
    if (index.len > 0) read_index(index, arena, list);
    const char *nearest = hx_nearest(name, list->count, name_at, list);
    return nearest ? hx_arena_printf(arena, ", did you mean \"%s\"?", nearest).ptr
                   : "; names are as in America/New_York or UTC";
}
