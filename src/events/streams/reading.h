/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a page of a stream: the events behind a position, in order, each with its position. */
#ifndef HX_EVENTS_STREAMS_READING_H
#define HX_EVENTS_STREAMS_READING_H

#include "core/event/sequence.h"
#include "events/engine.h"

typedef enum {
    HX_READING_DONE,
    HX_READING_GONE,       /* the next position is not kept any more, or the stream has begun anew */
    HX_READING_UNAVAILABLE /* the store can't be read */
} hx_reading_result;

typedef struct hx_reading {
    /* given by the caller; lives until `done` */
    hx_arena *arena;
    hx_slice tenant, stream;
    uint64_t after;      /* 0: from the beginning */
    unsigned events_max; /* 1 to HX_ITEM_PAGE_MAX */
    size_t bytes_max;    /* of the events, about; one is read whatever it has */
    void (*done)(struct hx_reading *reading);
    /* given back */
    hx_reading_result result;
    hx_event *events; /* with `data` */
    size_t count;     /* 0: nothing is behind `after` at the moment */
    uint64_t last;    /* position of the stream's last event, or of a later one than those that were read */
    uint64_t oldest;  /* GONE: the next position that is kept, or will be given */
    /* the engine's own */
    hx_engine *engine;
    hx_store_call call;
    hx_item head;
    hx_item_page page;
    hx_item *items;
    size_t run; /* entries that follow on `after` without a gap */
} hx_reading;

void hx_engine_read_stream(hx_engine *engine, hx_reading *reading);

#endif
