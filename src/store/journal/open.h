/* SPDX-License-Identifier: Apache-2.0 */
/* What opening and salvaging the journal share. Functions that return bool say in `error` what went wrong. */
#ifndef HX_STORE_JOURNAL_OPEN_H
#define HX_STORE_JOURNAL_OPEN_H

#include "store/journal/journal.h"

#include <dirent.h>

#define HX_CUTS_MAX 4u

typedef struct {
    bool has_format;
    bool begun;                  /* FORMAT.begun exists */
    bool foreign;                /* has a file that isn't the journal's */
    bool written;                /* has a segment with data */
    uint32_t first, last, count; /* numbers of the first and last segment, and how many there are */
    uint32_t hinted, archived;   /* the highest numbers of hints and of .audit files; 0: there is none */
    uint32_t archive_first;      /* the lowest number of .audit files; 0: there is none */
} hx_directory;

typedef struct {
    hx_journal *journal;
    char *error;
    hx_tail tail;
    uint64_t unsure_from;  /* offset in the tail's segment: bytes from here on may not be on the disk */
    bool is_other_format;  /* FORMAT names another version */
    bool is_new;           /* this start created the store, and its first segment */
    uint64_t secret_check; /* hash of generation and secret in FORMAT; 0: not known */
    hx_directory dir;
    struct {
        hx_segment *segment;
        uint64_t from, to;
    } cuts[HX_CUTS_MAX]; /* torn tails, to be zeroed */
    unsigned cut_count;
} hx_opening;

/* Always false. */
bool hx_open_fail(hx_opening *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool hx_open_damaged(hx_opening *o, uint32_t segment, uint64_t offset, const char *what);
bool hx_open_unknown_kind(hx_opening *o, const hx_scan *scan);

hx_journal *hx_journal_new(hx_slice path, const hx_store_options *options);
bool hx_dir_open(hx_opening *o, bool make);
bool hx_dir_inspect(hx_opening *o);
/* Whether the file begins with anything but zeros; true if it can't be read. */
bool hx_dir_is_written(hx_journal *j, const char *name);
bool hx_dir_read_format(hx_opening *o);
bool hx_dir_lock(hx_opening *o);
/* Makes FORMAT.begun before anything else where a store is to be filled: no gateway starts on it from then on. */
bool hx_dir_begin(hx_opening *o);
/* Always false: says who has the store. */
bool hx_dir_in_use(hx_opening *o);
bool hx_dir_create(hx_opening *o);
bool hx_dir_read_secret(hx_opening *o);
bool hx_dir_write_format(hx_journal *j, uint64_t generation, const uint8_t secret[HX_SECRET_BYTES]);
/* FORMAT.begun becomes FORMAT. 0, or an errno. */
int hx_dir_end_format(hx_journal *j);
/* Which segments there must be: journal->row. When it fails, that is the best guess. */
bool hx_dir_read_row(hx_opening *o);
/* 0, or an errno. */
int hx_dir_write_range(hx_journal *j, hx_segment_range row);
/* The segments that are there are those that there must be, in the format of today. */
bool hx_dir_settle_row(hx_opening *o);
DIR *hx_dir_list(hx_journal *j);
bool hx_dir_read_head(hx_journal *j, const hx_segment *s, hx_segment_head *head);
/* Everything that a start reads once format and secret are known; changes nothing on disk. */
bool hx_open_read(hx_opening *o);

#endif
