/* SPDX-License-Identifier: Apache-2.0 */
/* A model of a disk with a volatile cache, kept beside the real files: what has been written since the last sync can
 * be taken back, as a power cut would. All calls are made under the shim's lock, with absolute paths. */
#ifndef HX_TESTS_CRASH_DISK_H
#define HX_TESTS_CRASH_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Takes up what an earlier process of this machine left unsynced, if that was put into `lost_folder`. */
void disk_init(const char *lost_folder);
/* Puts there what is not synced: a process that is killed loses nothing, but the next one may see a power cut. */
void disk_hand_down(void);

/* Called before the change happens. */
void disk_will_write(int fd, off_t at, size_t len);
void disk_will_resize(int fd, off_t size);
void disk_will_unlink(const char *path);
void disk_will_rename(const char *from, const char *to);
/* Called after it has happened. */
void disk_did_create(const char *path);
void disk_did_mkdir(const char *path);
void disk_did_sync_file(int fd);
/* A sync that has failed: what it should have written stays readable, and later syncs take it for written. Only what is
 * written once more gets to the disk, by pages. */
void disk_did_fail(int fd);
void disk_did_sync_folder(const char *path);
void disk_did_sync_all(void);

/* Takes back everything that is not synced. */
void disk_drop(void);
/* Takes back a part of it: sectors of 512 bytes, sizes, and names, as `seed` says. A sector is never torn, and of
 * several writes to it any may be the one that is left. */
void disk_tear(uint64_t seed);
/* Takes back what is not synced in one file. */
void disk_drop_file(int fd);
/* Takes back what a failed sync left in one file, as when its pages are read again. */
void disk_drop_stale(int fd);

#endif
