/* SPDX-License-Identifier: Apache-2.0 */
/* The way into libhapax: each public function runs its body here, so that whatever happens in it is a value to the
 * host. A fatal failure in code that the library shares with the daemon (no memory, a failed assertion) leaves the body
 * by longjmp: the call's memory is freed, the lock that it held is released, and it returns a code. */
#ifndef HX_LIB_GUARD_H
#define HX_LIB_GUARD_H

#include "base/fail.h"
#include "base/memory/arena.h"

#include <hapax.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>

struct hapax {
    const hapax_store_type *type;
    void *inner;
    uint64_t process; /* hx_guest_process() of the one that opened it */
    atomic_bool is_broken;
    void (*log)(void *context, int level, const char *line);
    void *log_context;
};

/* A call of the host that is under way on this thread. */
typedef struct hx_guest {
    hapax *store; /* NULL: the call has none */
    hx_arena arena;
    pthread_mutex_t *locked; /* released when the body is left */
    struct hx_guest *outer;  /* the call in whose log callback this one was made */
    int failure;
    jmp_buf out;
} hx_guest;

typedef int hx_guest_body(hx_guest *call, void *arguments);

/* Runs the body unless the store is another process's or broken. */
int hx_guest_run(hapax *store, hx_guest_body *body, void *arguments);
/* The call of this thread; only inside a body. */
hx_guest *hx_guest_call(void);
/* Locks until the body returns, or hx_guest_unlock(). */
void hx_guest_lock(hx_guest *call, pthread_mutex_t *mutex);
void hx_guest_unlock(hx_guest *call);
/* Differs in every process, children that were forked included. Never 0. */
uint64_t hx_guest_process(void);

/* The text of hapax_message(), to be written to. */
char *hx_guest_message(void);
/* Sets it, and returns the code. */
int hx_guest_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
