/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of `hapax store`, and what they share. Each returns an exit code. */
#ifndef HX_CMD_STORE_COMMON_H
#define HX_CMD_STORE_COMMON_H

#include "store/transfer/transfer.h"
#include "store/transfer/unfinished.h"

typedef struct {
    const char *store; /* NULL: the default one */
    bool live;
    bool json;
    bool accept_loss;
} hx_store_flags;

int hx_cmd_store_copy(const hx_store_flags *flags, const char *from, const char *to);
int hx_cmd_store_salvage(const hx_store_flags *flags, const char *directory, const char *to);
int hx_cmd_store_backup(const hx_store_flags *flags, const char *file);
int hx_cmd_store_restore(const hx_store_flags *flags, const char *file, const char *to);

/* "hapax store: SENTENCE" on standard error; returns HX_EXIT_STORE. */
int hx_cmd_store_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A store that a command reads or fills, alone on its loop. */
typedef struct {
    hx_slice url;
    const char *shown; /* without its password */
    hx_store *store;
} hx_place;

/* Checks that the words name a store: -1, or an exit code after a message. */
int hx_place_check(hx_place *place, const char *url, hx_arena *arena);
bool hx_place_is_same(const hx_place *a, const hx_place *b);
/* Opens an existing store to read all of it, and says of it what a backup would, but for the counts. `note` gets where
 * its contents come from. With `salvage` the store may be a damaged journal. HX_EXIT_OK, or an exit code. */
int hx_place_open_source(hx_place *place, hx_loop *loop, const hx_store_flags *flags, hx_salvage *salvage,
                         hx_backup_about *about, hx_unfinished *note);
/* Opens a store to fill it: a new one, an empty one, or one that an earlier run of `by` has left unfinished, which is
 * emptied. Anything else is refused before it is changed. From then on *note says that it is unfinished. */
int hx_place_open_target(hx_place *place, hx_loop *loop, const hx_store_flags *flags,
                         const uint8_t secret[HX_SECRET_BYTES], const char *by, uint64_t epoch, hx_unfinished *note);

/* Counts source and target, in a span of time that outlasts the counting. Where `from` is NULL `file` is counted. */
bool hx_cmd_store_tally(hx_tally *had, hx_tally *got, hx_loop *loop, hx_store *from, hx_backup_reader *file,
                        hx_store *to, int64_t took_ns, char error[HX_TRANSFER_ERROR_BYTES]) HX_MUST_USE;
void hx_cmd_store_print_tally(const hx_tally *had, const hx_tally *got, const char *had_name, const char *got_name);
/* Closes the JSON object, prints it on standard output and frees the buffer. */
void hx_cmd_store_print_json(hx_buf *object);
#define HX_STORE_JSON_MAX (256u * 1024u) /* three names of files or stores, each byte escaped as six, and numbers */

#endif
