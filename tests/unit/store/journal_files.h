/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the journal's files share: a small store whose files are copied, damaged and removed. */
#ifndef HX_TESTS_JOURNAL_FILES_H
#define HX_TESTS_JOURNAL_FILES_H

#include "store/harness.h"

#include <stddef.h>
#include <sys/types.h>

#define SEGMENT (16u << 10)
static const hx_store_options small = {.segment_bytes = SEGMENT};

hx_record complete(bench *b, uint64_t number, hx_state state, hx_ms lifetime);
void copy_directory(const char *from, const char *to);
char *path_in(const bench *b, const char *name);
void write_text(const bench *b, const char *name, const char *text);
void flip(const bench *b, const char *name, off_t at, unsigned char mask);
uint64_t sum_directory(const char *path);
/* Opening fails with a message that has `words` in it. */
void does_not_open(const bench *b, const char *words);
/* That, and nothing has changed on disk. */
void refuses(const bench *b, const char *words);
unsigned count_files(const bench *b, const char *suffix);
/* Walks archive and segments in order and checks every link of the chain, for which neither answers nor contents are
 * needed. Returns the number of frames. */
unsigned verify_chain(const bench *b, uint32_t last);
void remove_files(const bench *b, const char *suffix);

#endif
