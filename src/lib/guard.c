/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/guard.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#define LINE_BYTES_MAX 8192u

static _Thread_local hx_guest *current;
static _Thread_local hx_error_text message;
static _Thread_local uint64_t seen_process;

/* Names the process. The kernel zeroes the page in a child, so that no fork is missed, whatever made it. */
static _Atomic uint64_t *process_page;
static pthread_once_t once = PTHREAD_ONCE_INIT;

char *hx_guest_message(void)
{
    return message;
}

const char *hapax_message(void)
{
    return message;
}

int hx_guest_fail(int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return code;
}

static void leave_body(int exit_code, const char *text)
{
    (void)exit_code;
    if (!current) return; /* no call is under way: this can't be, and check.c traps */
    bool is_memory = strncmp(text, "out of memory", sizeof("out of memory") - 1) == 0;
    current->failure = hx_guest_fail(is_memory ? HAPAX_NO_MEMORY : HAPAX_INTERNAL, "%s", text);
    longjmp(current->out, 1);
}

static void pass_log_line(const char *line, size_t len, hx_log_level level)
{
    char text[LINE_BYTES_MAX + 1];
    const hapax *store = current ? current->store : NULL;
    if (!store || !store->log) return;
    if (len > 0 && line[len - 1] == '\n') len--;
    if (len > LINE_BYTES_MAX) len = LINE_BYTES_MAX;
    memcpy(text, line, len);
    text[len] = '\0';
    store->log(store->log_context, (int)level, text);
}

static void start(void)
{
    long page = sysconf(_SC_PAGESIZE);
    void *memory = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED && madvise(memory, (size_t)page, MADV_WIPEONFORK) == 0) process_page = memory;
    hx_fatal_to(leave_body);
    hx_log_to(pass_log_line);
}

uint64_t hx_guest_process(void)
{
    (void)pthread_once(&once, start);
    if (!process_page) return (uint64_t)getpid();
    uint64_t process = atomic_load(process_page);
    if (process != 0) return process;
    uint64_t drawn = 0;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) drawn = (uint64_t)getpid();
    drawn |= 1;
    return atomic_compare_exchange_strong(process_page, &process, drawn) ? drawn : process;
}

hx_guest *hx_guest_call(void)
{
    return current;
}

void hx_guest_lock(hx_guest *call, pthread_mutex_t *mutex)
{
    (void)pthread_mutex_lock(mutex);
    call->locked = mutex;
}

void hx_guest_unlock(hx_guest *call)
{
    (void)pthread_mutex_unlock(call->locked);
    call->locked = NULL;
}

/* A function of its own, because the locals of one that calls setjmp are lost. */
static int enter(hx_guest *call, hx_guest_body *body, void *arguments)
{
    if (setjmp(call->out) != 0) return call->failure;
    return body(call, arguments);
}

int hx_guest_run(hapax *store, hx_guest_body *body, void *arguments)
{
    uint64_t process = hx_guest_process();
    if (store && store->process != process)
        return hx_guest_fail(HAPAX_FORKED, "the handle was opened by another process: open one after the fork");
    if (store && store->is_broken)
        return hx_guest_fail(HAPAX_INTERNAL, "an earlier call found a bug in Hapax: close this handle");
    if (seen_process != process) hx_rand_forget();
    seen_process = process;
    hx_guest call = {.store = store, .outer = current};
    current = &call;
    int code = enter(&call, body, arguments);
    if (call.failure == HAPAX_INTERNAL && store) store->is_broken = true;
    if (call.locked) hx_guest_unlock(&call);
    hx_arena_free(&call.arena);
    hx_arena_pool_drain();
    current = call.outer;
    return code;
}
