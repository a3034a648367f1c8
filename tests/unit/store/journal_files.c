/* SPDX-License-Identifier: Apache-2.0 */
#include "journal_files.h"

#include "store/journal/item_frame.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <setjmp.h>
#include <cmocka.h>

hx_record complete(bench *b, uint64_t number, hx_state state, hx_ms lifetime)
{
    hx_record r = record_of(number);
    assert_int_equal(claim(b, &r, 0, NULL), HX_STORE_OK);
    r.answer = (hx_answer){201, true, HX_LIT("A: b\r\n"), HX_LIT("an answer")};
    if (lifetime > 0) r.expires_at = test_now + lifetime;
    assert_int_equal(settle(b, &r, state, NULL), HX_STORE_OK);
    return r;
}

void copy_directory(const char *from, const char *to)
{
    char in[512], out[512];
    DIR *dir = opendir(from);
    assert_non_null(dir);
    (void)mkdir(to, 0700);
    for (struct dirent *item; (item = readdir(dir));) {
        if (item->d_type != DT_REG) continue;
        (void)snprintf(in, sizeof in, "%s/%s", from, item->d_name);
        (void)snprintf(out, sizeof out, "%s/%s", to, item->d_name);
        FILE *a = fopen(in, "rb"), *b = fopen(out, "wb");
        static char block[1 << 16];
        for (size_t n; a && b && (n = fread(block, 1, sizeof block, a)) > 0;)
            assert_int_equal(fwrite(block, 1, n, b), n);
        if (a) (void)fclose(a);
        if (b) (void)fclose(b);
    }
    closedir(dir);
}

char *path_in(const bench *b, const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", b->directory, name);
    return path;
}

void write_text(const bench *b, const char *name, const char *text)
{
    FILE *f = fopen(path_in(b, name), "w");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

void flip(const bench *b, const char *name, off_t at, unsigned char mask)
{
    unsigned char byte;
    int fd = open(path_in(b, name), O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= mask;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

uint64_t sum_directory(const char *path)
{
    char name[512];
    uint64_t sum = 0;
    DIR *dir = opendir(path);
    for (struct dirent *item; (item = readdir(dir));) {
        for (const char *c = item->d_name; *c; c++) sum += (unsigned char)*c * UINT64_C(1000003);
        (void)snprintf(name, sizeof name, "%s/%s", path, item->d_name);
        FILE *f = item->d_type == DT_REG ? fopen(name, "rb") : NULL;
        uint64_t place = 1;
        for (int c; f && (c = fgetc(f)) != EOF; place++)
            sum += (uint64_t)c * (place * UINT64_C(0x9e3779b97f4a7c15) | 1);
        if (f) (void)fclose(f);
    }
    closedir(dir);
    return sum;
}

void does_not_open(const bench *b, const char *words)
{
    char url[128], error[sizeof(hx_error_text)] = "";
    (void)snprintf(url, sizeof url, "journal:%s", b->directory);
    hx_store *store = hx_store_open(hx_slice_of(url), &b->options, error);
    assert_null(store);
    if (!strstr(error, words)) fail_msg("\"%s\" doesn't say \"%s\"", error, words);
    assert_true(strstr(error, b->directory) != NULL);
}

void refuses(const bench *b, const char *words)
{
    uint64_t before = sum_directory(b->directory);
    does_not_open(b, words);
    assert_true(sum_directory(b->directory) == before);
}

unsigned count_files(const bench *b, const char *suffix)
{
    unsigned count = 0;
    DIR *dir = opendir(b->directory);
    for (struct dirent *item; (item = readdir(dir));)
        if (hx_slice_ends(hx_slice_of(item->d_name), hx_slice_of(suffix))) count++;
    closedir(dir);
    return count;
}

void remove_files(const bench *b, const char *suffix)
{
    DIR *dir = opendir(b->directory);
    for (struct dirent *item; (item = readdir(dir));)
        if (hx_slice_ends(hx_slice_of(item->d_name), hx_slice_of(suffix))) (void)unlinkat(dirfd(dir), item->d_name, 0);
    closedir(dir);
}

unsigned verify_chain(const bench *b, uint32_t last)
{
    hx_digest hash = {0};
    uint64_t sequence = 0;
    unsigned frames = 0;
    for (uint32_t n = 1; n <= last; n++) {
        char name[HX_SEGMENT_NAME_BYTES];
        hx_segment_name(name, n, ".audit");
        bool bare = access(path_in(b, name), F_OK) == 0;
        if (!bare) hx_segment_name(name, n, ".seg");
        FILE *f = fopen(path_in(b, name), "rb");
        assert_non_null(f);
        static char bytes[1 << 20];
        size_t len = fread(bytes, 1, sizeof bytes, f);
        (void)fclose(f);
        for (size_t at = sizeof(hx_segment_head); at + sizeof(hx_frame_head) <= len;) {
            hx_frame_head head;
            memcpy(&head, bytes + at, sizeof head);
            if (head.length == 0) break;
            hx_slice rest = {bytes + at + sizeof head, head.length - sizeof head};
            hx_record record;
            size_t head_len = rest.len, answer_len = 0;
            if (head.kind == HX_FRAME_RECORD || head.kind == HX_FRAME_MOVED) {
                hx_record_error error = hx_record_decode_head(rest, &record, &head_len, &answer_len);
                assert_int_equal(error, HX_RECORD_OK);
            } else if (head.kind == HX_FRAME_ITEMS || head.kind == HX_FRAME_ITEMS_MOVED) {
                head_len = hx_item_frame_table_len(rest.ptr, rest.len);
                assert_true(head_len > 0);
            }
            if (frames > 0) assert_memory_equal(&head.previous, &hash, sizeof hash);
            if (frames > 0) assert_int_equal(head.sequence, sequence + 1);
            sequence = head.sequence;
            hash = hx_frame_hash(&head, hx_slice_first(rest, head_len));
            frames++;
            at += hx_frame_padded(bare ? sizeof head + head_len : head.length);
        }
    }
    return frames;
}
