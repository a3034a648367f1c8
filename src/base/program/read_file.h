/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_BASE_PROGRAM_READ_FILE_H
#define HX_BASE_PROGRAM_READ_FILE_H

#include "base/memory/arena.h"

/* Reads a whole file into the arena; "-" is standard input. False: *error is a sentence that names it. */
bool hx_read_file(const char *path, size_t bytes_max, hx_arena *arena, hx_slice *out, hx_slice *error) HX_MUST_USE;

#endif
