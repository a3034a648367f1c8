/* SPDX-License-Identifier: Apache-2.0 */
/* Items in copies, backups, restores and salvages of a store. Run with the kind of the store. */
#include "base/check.h"
#include "cmd/store_common.h"
#include "store/sync.h"
#include "store/transfer/unfinished.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

#define MANY 1200u /* more than a page */
#define LARGE_BYTES (3u << 20)
#define MARK "contents of the item that is damaged"

static const char *kind;
static const hx_store_flags flags = {.json = true};
static hx_store_flags of_from = {.json = true};

typedef struct {
    char folder[64], from[128], to[128], file[128];
    hx_loop *loop;
    hx_arena arena;
} world;

static void world_begin(world *w)
{
    *w = (world){0};
    (void)snprintf(w->folder, sizeof w->folder, "/tmp/hapax-items-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    (void)snprintf(w->from, sizeof w->from, "%s:%s/from", kind, w->folder);
    (void)snprintf(w->to, sizeof w->to, "%s:%s/to", kind, w->folder);
    (void)snprintf(w->file, sizeof w->file, "%s/file", w->folder);
    of_from.store = w->from;
    w->loop = hx_loop_new();
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)ftw;
    return type == FTW_DP ? rmdir(path) : unlink(path);
}

static void world_end(world *w)
{
    hx_loop_free(&w->loop);
    hx_arena_free(&w->arena);
    hx_arena_pool_drain();
    assert_int_equal(nftw(w->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static hx_store *open_at(world *w, const char *url, hx_store_options options)
{
    hx_error_text error = "";
    options.segment_bytes = 256 << 10;
    hx_store *store = hx_store_open(hx_slice_of(url), &options, error);
    if (!store) fail_msg("%s", error);
    hx_store_attach(store, w->loop);
    return store;
}

static void put(world *w, hx_store *store, hx_item item)
{
    hx_awaited call;
    hx_await_begin(&call, w->loop, &w->arena);
    hx_store_commit(store, &call.call, &item, 1, false);
    assert_int_equal(hx_await(&call), HX_STORE_OK);
}

static hx_item item_of(world *w, const char *prefix, unsigned number, size_t body_len)
{
    char *body = hx_arena_alloc(&w->arena, body_len);
    memset(body, 'a' + (int)number % 26, body_len);
    return (hx_item){.key = hx_arena_printf(&w->arena, "%s/%05u", prefix, number),
                     .queue = number % 2 ? hx_arena_printf(&w->arena, "due/%u", number % 7) : HX_EMPTY,
                     .due = (hx_ms)number,
                     .expires_at = number % 5 ? 0 : hx_clock_now() + HX_DAY,
                     .meta = hx_arena_printf(&w->arena, "meta of %u", number),
                     .body = {body, body_len}};
}

static void fill(world *w)
{
    hx_store *from = open_at(w, w->from, (hx_store_options){0});
    hx_item items[100];
    for (unsigned i = 0; i < MANY; i += 100) {
        for (unsigned k = 0; k < 100; k++) items[k] = item_of(w, "event", i + k, i == 0 ? 300 : 0);
        hx_awaited call;
        hx_await_begin(&call, w->loop, &w->arena);
        hx_store_commit(from, &call.call, items, 100, false);
        assert_int_equal(hx_await(&call), HX_STORE_OK);
    }
    for (unsigned i = 0; i < 3; i++) put(w, from, item_of(w, "large", i, LARGE_BYTES)); /* whose pages end early */
    hx_item gone = item_of(w, "gone", 5, 10);
    gone.expires_at = 1;
    put(w, from, gone);
    hx_store_close(&from);
}

/* All items of a store, in the arena. */
static hx_item_page read_all(world *w, const char *url, size_t *count, hx_item **out)
{
    hx_store *store = open_at(w, url, (hx_store_options){0});
    hx_item_page page = {.prefix = HX_EMPTY, .with_bodies = true, .items_max = HX_ITEM_PAGE_MAX};
    *out = hx_arena_alloc(&w->arena, 2 * MANY * sizeof **out);
    *count = 0;
    do {
        hx_awaited call;
        hx_await_begin(&call, w->loop, &w->arena);
        hx_store_scan(store, &call.call, &page);
        assert_int_equal(hx_await(&call), HX_STORE_OK);
        assert_true(*count + page.count <= 2 * MANY);
        for (size_t i = 0; i < page.count; i++) (*out)[(*count)++] = page.items[i];
        if (page.count > 0) page.after = page.items[page.count - 1];
    } while (page.more);
    hx_store_close(&store);
    return page;
}

static void assert_same(world *w)
{
    hx_item *had, *got;
    size_t had_count, got_count;
    (void)read_all(w, w->from, &had_count, &had);
    (void)read_all(w, w->to, &got_count, &got);
    assert_int_equal(had_count, MANY + 3);
    assert_int_equal(got_count, had_count);
    for (size_t i = 0; i < had_count; i++) {
        assert_true(hx_slice_eq(had[i].key, got[i].key));
        assert_true(hx_slice_eq(had[i].queue, got[i].queue));
        assert_true(hx_slice_eq(had[i].meta, got[i].meta));
        assert_true(hx_slice_eq(had[i].body, got[i].body));
        assert_int_equal(had[i].due, got[i].due);
        assert_int_equal(had[i].expires_at, got[i].expires_at);
        assert_true(got[i].version > 0);
    }
}

static void items_are_in_a_backup_and_in_what_is_restored_from_it(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    fill(&w);
    assert_int_equal(hx_cmd_store_backup(&of_from, w.file), HX_EXIT_OK);
    assert_int_equal(hx_cmd_store_restore(&flags, w.file, w.to), HX_EXIT_OK);
    assert_same(&w);
    assert_int_equal(hx_cmd_store_restore(&flags, w.file, w.to), HX_EXIT_STORE); /* it isn't empty any more */
    world_end(&w);
}

/* As a copy leaves its target that is killed in the middle. */
static void an_unfinished_copy_has_no_items_of_the_run_before(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    fill(&w);
    hx_store *from = open_at(&w, w.from, (hx_store_options){0});
    hx_record note = hx_unfinished_record("copy", 1);
    uint8_t secret[HX_SECRET_BYTES];
    memcpy(secret, hx_store_about(from)->secret, sizeof secret);
    hx_store_close(&from);
    hx_store *to = open_at(&w, w.to, (hx_store_options){.secret = secret, .unfinished = &note});
    for (unsigned i = 0; i < 30; i++) put(&w, to, item_of(&w, i % 2 ? "event" : "left", i, 10));
    hx_store_close(&to);
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_OK);
    assert_same(&w);
    world_end(&w);
}

static void a_store_with_nothing_but_an_item_is_not_empty(void **state)
{
    (void)state;
    world w;
    world_begin(&w);
    hx_store *from = open_at(&w, w.from, (hx_store_options){0});
    put(&w, from, item_of(&w, "event", 1, 1));
    hx_store_close(&from);
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_OK);
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), HX_EXIT_STORE);
    world_end(&w);
}

static void items_are_not_left_behind_silently(void **state)
{
    (void)state;
    world w;
    hx_error_text error;
    world_begin(&w);
    (void)snprintf(w.to, sizeof w.to, "sqlite:%s/to", w.folder);
    hx_store *to = hx_store_open(hx_slice_of(w.to), NULL, error);
    bool keeps_items = hx_store_about(to)->keeps_items;
    hx_store_close(&to);
    (void)snprintf(w.to, sizeof w.to, "sqlite:%s/other", w.folder);
    fill(&w);
    assert_int_equal(hx_cmd_store_copy(&flags, w.from, w.to), keeps_items ? HX_EXIT_OK : HX_EXIT_STORE);
    if (keeps_items) assert_same(&w);
    world_end(&w);
}

/* A commit with a damaged item is lost, and no other. */
static void what_can_be_read_of_a_damaged_journal_is_salvaged(void **state)
{
    (void)state;
    if (strcmp(kind, "journal") != 0) skip();
    world w;
    world_begin(&w);
    fill(&w);
    hx_store *from = open_at(&w, w.from, (hx_store_options){0});
    hx_item damaged = item_of(&w, "hurt", 1, 0);
    damaged.body = hx_arena_printf(&w.arena, "%05000d" MARK, 0); /* behind what the frame's own checksum covers */
    put(&w, from, damaged);
    hx_store_close(&from);
    char path[128];
    off_t at = -1;
    for (unsigned n = 1; at < 0 && n < 200; n++) { /* the segment that has it */
        static char bytes[4 << 20];
        (void)snprintf(path, sizeof path, "%s/from/%08u.seg", w.folder, n);
        int fd = open(path, O_RDWR);
        ssize_t len = fd >= 0 ? read(fd, bytes, sizeof bytes) : -1;
        const char *mark = len > 0 ? memmem(bytes, (size_t)len, MARK, strlen(MARK)) : NULL;
        if (mark) {
            at = mark - bytes;
            assert_int_equal(pwrite(fd, "X", 1, at), 1);
        }
        if (fd >= 0) close(fd);
    }
    assert_true(at > 0);
    const char *directory = strchr(w.from, ':') + 1;
    hx_store_flags accepted = {.json = true, .accept_loss = true};
    assert_int_equal(hx_cmd_store_salvage(&flags, directory, w.to), HX_EXIT_STORE);
    assert_int_equal(hx_cmd_store_salvage(&accepted, directory, w.to), HX_EXIT_OK);
    hx_item *got;
    size_t count;
    (void)read_all(&w, w.to, &count, &got);
    assert_int_equal(count, MANY + 3);
    for (size_t i = 0; i < count; i++) assert_false(hx_slice_starts(got[i].key, HX_LIT("hurt")));
    world_end(&w);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    kind = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_are_in_a_backup_and_in_what_is_restored_from_it),
        cmocka_unit_test(an_unfinished_copy_has_no_items_of_the_run_before),
        cmocka_unit_test(a_store_with_nothing_but_an_item_is_not_empty),
        cmocka_unit_test(items_are_not_left_behind_silently),
        cmocka_unit_test(what_can_be_read_of_a_damaged_journal_is_salvaged),
    };
    return cmocka_run_group_tests_name(kind, tests, NULL, NULL);
}
