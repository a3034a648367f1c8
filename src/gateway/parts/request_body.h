/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a keyed request, or of its answer: bounded, whole before anything is decided, and beyond a size that
 * would crowd memory kept in an unlinked file that is mapped when it is complete. */
#ifndef HX_GATEWAY_PARTS_REQUEST_BODY_H
#define HX_GATEWAY_PARTS_REQUEST_BODY_H

#include "base/memory/buf.h"

typedef struct {
    hx_buf memory;  /* whose limit says from where on it is spooled */
    uint64_t taken; /* of the worker's memory, see memory.h */
    uint64_t len;
    uint64_t len_max;
    const char *spool_directory;
    int file; /* -1: all in memory */
    void *mapped;
} hx_body;

typedef enum { HX_BODY_OK, HX_BODY_TOO_LARGE, HX_BODY_NO_ROOM /* the spool directory can't take it */ } hx_body_result;

void hx_body_init(hx_body *body, hx_arena *arena, uint64_t len_max, uint64_t spool_from, const char *spool_directory);
hx_body_result hx_body_append(hx_body *body, hx_slice piece) HX_MUST_USE;
/* The whole body, once it is complete. False: the file can't be mapped. */
bool hx_body_whole(hx_body *body, hx_slice *whole) HX_MUST_USE;
/* Lets what was read of a file's mapping go; it is read again where somebody looks at it. */
void hx_body_unload(const hx_body *body);
/* Ends the mapping; the file stays. */
void hx_body_unmap(hx_body *body);
/* Empty again; what memory it has is kept. */
void hx_body_reset(hx_body *body);
void hx_body_free(hx_body *body);

/* Whether the directory takes files; errno says why not. */
bool hx_body_can_spool(const char *directory) HX_MUST_USE;
/* A warning with errno's reason, at most once a minute. hx_body_append gives it by itself. */
void hx_body_say_no_room(const char *directory);

#endif
