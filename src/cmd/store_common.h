/* SPDX-License-Identifier: Apache-2.0 */
/* What `hapax store` can do, and what those acts share. Each returns an exit code. */
#ifndef HX_CMD_STORE_COMMON_H
#define HX_CMD_STORE_COMMON_H

#include "store/transfer/transfer.h"

typedef struct {
    const char *store; /* NULL: the usual one */
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

/* The least epoch that a journal draws when it is opened now: they grow by so many a millisecond, as nobody claims.
 * Whatever is made at another time begins elsewhere. */
#define HX_EPOCHS_A_MS UINT64_C(64)
uint64_t hx_epoch_by_clock(hx_ms now);
/* Above all that a store can have drawn since then, of which nothing more is known (see cmd/store_restore.c). */
#define HX_GENERATION_EPOCHS (UINT64_C(1) << 36)
uint64_t hx_epoch_of_next_generation(uint64_t last_epoch, hx_ms known_until);

/* A store that is read or written by an act, alone on its loop. */
typedef struct {
    hx_slice url;
    const char *shown; /* without its password */
    hx_store *store;
} hx_place;

/* Whether the words name a store: -1, or an exit code after having said what is wrong. */
int hx_place_check(hx_place *place, const char *url, hx_arena *arena);
bool hx_place_is_same(const hx_place *a, const hx_place *b);
/* Opens a store that is there, for reading all of it: a damaged one where `salvage` is given, else NULL. HX_EXIT_OK, or
 * an exit code. */
int hx_place_open_source(hx_place *place, hx_loop *loop, const hx_store_flags *flags, hx_salvage *salvage);
/* Opens one to write to. Where it is made by this, or is empty and gets its secret by this, its mark has this epoch. */
int hx_place_open_target(hx_place *place, hx_loop *loop, const uint8_t secret[HX_SECRET_BYTES], const char *by,
                         uint64_t mark_epoch);

/* Counts both, in a span of time that outlasts the counting. False: see the error. `file` is counted where from is
 * NULL. */
bool hx_cmd_store_tally(hx_tally *had, hx_tally *got, hx_loop *loop, hx_store *from, hx_backup_reader *file,
                        hx_store *to, int64_t took_ns, char error[HX_MOVE_ERROR_BYTES]) HX_MUST_USE;
bool hx_cmd_store_tally_is_same(const hx_tally *had, const hx_tally *got);
void hx_cmd_store_print_tally(const hx_tally *had, const hx_tally *got, const char *had_name, const char *got_name);
/* Members of an object: "completed": {"from": 1, "to": 1}, … */
void hx_cmd_store_json_tally(const hx_tally *had, const hx_tally *got);
/* A string literal on standard output. */
void hx_cmd_store_json_text(const char *text);

#endif
