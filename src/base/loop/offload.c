/* SPDX-License-Identifier: Apache-2.0 */
/* An offload has two owners, the caller and the thread, and the last one frees it. When the work is over, the posted
 * task inherits the thread's share. */
#include "base/loop/offload.h"

#include "base/check.h"
#include "base/memory/list.h"

#include <stdlib.h>

struct hx_offload {
    pthread_mutex_t mutex; /* `loop` and `references` */
    hx_loop *loop;         /* NULL: cancelled */
    unsigned references;
    hx_task task;
    void *memory;
    void (*work)(void *memory);
    void (*done)(void *context, void *memory);
    void *context;
};

static void drop(hx_offload *offload)
{
    pthread_mutex_lock(&offload->mutex);
    bool is_last = --offload->references == 0;
    pthread_mutex_unlock(&offload->mutex);
    if (!is_last) return;
    pthread_mutex_destroy(&offload->mutex);
    free(offload->memory);
    free(offload);
}

static void work_done(hx_task *task)
{
    hx_offload *offload = HX_OWNER(task, hx_offload, task);
    pthread_mutex_lock(&offload->mutex);
    bool is_wanted = offload->loop != NULL;
    pthread_mutex_unlock(&offload->mutex);
    if (is_wanted) offload->done(offload->context, offload->memory);
    drop(offload);
}

static void *run(void *context)
{
    hx_offload *offload = context;
    offload->work(offload->memory);
    offload->task.run = work_done;
    pthread_mutex_lock(&offload->mutex);
    bool is_wanted = offload->loop != NULL;
    if (is_wanted) hx_loop_post(offload->loop, &offload->task);
    pthread_mutex_unlock(&offload->mutex);
    if (!is_wanted) drop(offload);
    return NULL;
}

hx_offload *hx_offload_start(hx_loop *loop, void *memory, void (*work)(void *memory),
                             void (*done)(void *context, void *memory), void *context)
{
    hx_offload *offload = calloc(1, sizeof *offload);
    pthread_attr_t detached;
    pthread_t thread;
    if (!offload) hx_fatal(HX_EXIT_BUG, "out of memory");
    pthread_mutex_init(&offload->mutex, NULL);
    offload->loop = loop;
    offload->references = 2;
    offload->memory = memory;
    offload->work = work;
    offload->done = done;
    offload->context = context;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    bool works = pthread_create(&thread, &detached, run, offload) == 0;
    pthread_attr_destroy(&detached);
    if (works) return offload;
    offload->references = 1;
    drop(offload);
    return NULL;
}

void hx_offload_free(hx_offload **owned)
{
    if (!*owned) return;
    pthread_mutex_lock(&(*owned)->mutex);
    (*owned)->loop = NULL;
    pthread_mutex_unlock(&(*owned)->mutex);
    drop(*owned);
    *owned = NULL;
}
