/* SPDX-License-Identifier: Apache-2.0 */
/* A backup: all operations and items of a store in one file, with its secret. backup_file.c describes the bytes. With
 * the secret, keys and callers of the store can be recognised, so only the file's owner may read it. */
#ifndef HX_STORE_TRANSFER_BACKUP_FILE_H
#define HX_STORE_TRANSFER_BACKUP_FILE_H

#include "core/operation/record.h"
#include "store/items.h"

#define HX_BACKUP_SOURCE_MAX 400u
#define HX_BACKUP_ERROR_BYTES 4608u /* a path, and a sentence about it */

typedef struct {
    uint8_t secret[HX_SECRET_BYTES];
    hx_ms taken_at;
    uint64_t last_epoch; /* last epoch that the store had drawn when the backup was taken */
    uint64_t generation; /* number of restores in the store's past */
    uint64_t count;      /* number of records; an estimate before the backup is written */
    uint64_t items;
    uint64_t states[HX_EXPIRED + 1];
    uint64_t bytes; /* size of the file */
    char source[HX_BACKUP_SOURCE_MAX + 1];
} hx_backup_about;

/* Writing. The file gets its name when it is whole and synced; until then it is FILE.tmp, with a header that no reader
 * accepts. A function that returns false or NULL has put a sentence into `error`; call only hx_backup_abandon then. */
typedef struct hx_backup_writer hx_backup_writer;
hx_backup_writer *hx_backup_create(const char *path, char error[HX_BACKUP_ERROR_BYTES]);
bool hx_backup_add(hx_backup_writer *writer, const hx_record *record, char error[HX_BACKUP_ERROR_BYTES]) HX_MUST_USE;
/* After all records. */
bool hx_backup_add_item(hx_backup_writer *writer, const hx_item *item, char error[HX_BACKUP_ERROR_BYTES]) HX_MUST_USE;
/* Writes `about`, in which it fills in the counts, states and bytes. Frees the writer, also when it fails. */
bool hx_backup_finish(hx_backup_writer **owned, hx_backup_about *about, char error[HX_BACKUP_ERROR_BYTES]) HX_MUST_USE;
void hx_backup_abandon(hx_backup_writer **owned); /* removes FILE.tmp */

/* Reading. */
typedef struct hx_backup_reader hx_backup_reader;
typedef enum { HX_BACKUP_RECORD, HX_BACKUP_ITEM, HX_BACKUP_END, HX_BACKUP_DAMAGED } hx_backup_step;
/* Reads the header alone. */
hx_backup_reader *hx_backup_open(const char *path, hx_backup_about *about, char error[HX_BACKUP_ERROR_BYTES]);
/* Reads the next record or item, with its bytes in `arena`. END: the file is as it was written, to the last byte. */
hx_backup_step hx_backup_next(hx_backup_reader *reader, hx_arena *arena, hx_record *record, hx_item *item,
                              char error[HX_BACKUP_ERROR_BYTES]);
bool hx_backup_rewind(hx_backup_reader *reader, char error[HX_BACKUP_ERROR_BYTES]) HX_MUST_USE;
void hx_backup_close(hx_backup_reader **owned);

#endif
