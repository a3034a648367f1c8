/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: the one thread that changes the journal. It takes everything that waits, has it decided call by call
 * (operations.c), commits what follows from it with one write and one fdatasync, shows it in the index, and ends the
 * calls; while it syncs, the next batch gathers. */
#include "store/journal/journal.h"

#include "base/check.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define WAIT_FROM 4u /* calls: below, waiting gains nothing */
#define WAIT_NS 1000000
#define WAITS_IN_VAIN_MAX 8u
#define CONFIRM_LATER_FROM 8u /* calls of one commit */
#define CONFIRM_AFTER_NS 5000000

void hx_journal_deliver(hx_journal *j)
{
    unsigned ports = atomic_load_explicit(&j->port_count, memory_order_acquire);
    for (unsigned i = 0; i < ports; i++) {
        hx_port *port = atomic_load_explicit(&j->ports[i], memory_order_relaxed);
        if (!port->ended) continue;
        bool was_empty;
        uintptr_t newest = port->ended, oldest = port->ended_oldest;
        port->ended = port->ended_oldest = 0;
        hx_mailbox_put(&port->to_loop, newest, oldest, &was_empty);
        if (was_empty) hx_loop_post(port->loop, &port->wake);
    }
}

void hx_journal_end_call(hx_store_call *call, hx_store_result result)
{
    hx_port *port = call->own.journal.port;
    call->result = result;
    call->own.journal.next[0] = port->ended;
    port->ended = (uintptr_t)call;
    if (!port->ended_oldest) port->ended_oldest = port->ended;
}

static void end_cancel(hx_store_call *call)
{
    hx_port *port = call->own.journal.port;
    call->own.journal.next[1] = port->ended;
    port->ended = (uintptr_t)call | 1;
    if (!port->ended_oldest) port->ended_oldest = port->ended;
}

static void cancel(hx_journal *j, hx_store_call *call)
{
    if (hx_waiters_remove(&j->waiters, call)) hx_journal_end_call(call, HX_STORE_CANCELLED);
    end_cancel(call);
}

static void confirm(hx_journal *j)
{
    if (j->log.unconfirmed) hx_frame_log_confirm(&j->log, j->store.facts.now());
}

static bool mail_waits(hx_journal *j)
{
    unsigned ports = atomic_load(&j->port_count);
    for (unsigned i = 0; i < ports; i++)
        if (atomic_load(&atomic_load(&j->ports[i])->to_writer)) return true;
    return false;
}

/* Until so many calls wait, for at most `ns`; 0: as long as it takes. False: the time is over. */
static bool sleep_until(hx_journal *j, uint32_t calls, long ns)
{
    const struct timespec most = {.tv_nsec = ns};
    atomic_store(&j->asleep, calls);
    bool enough = calls == 1 ? mail_waits(j) : atomic_load(&j->waiting) >= calls;
    if (enough || atomic_load(&j->stop)) {
        atomic_store(&j->asleep, 0);
        return true;
    }
    while (atomic_load(&j->asleep)) {
        long result = syscall(SYS_futex, &j->asleep, FUTEX_WAIT_PRIVATE, calls, ns ? &most : NULL, NULL, 0);
        if (result < 0 && errno == ETIMEDOUT) return atomic_exchange(&j->asleep, 0) == 0;
    }
    return true;
}

/* HX_FRAME_SYNCED follows a small commit at once. After a large one more calls are on their way, and the next commit
 * will say as much; if they don't come, it follows later. */
static void sleep_until_woken(hx_journal *j)
{
    if (j->pacing.recent < CONFIRM_LATER_FROM) confirm(j);
    if (j->log.unconfirmed) {
        if (sleep_until(j, 1, CONFIRM_AFTER_NS)) return;
        confirm(j);
    }
    (void)sleep_until(j, 1, 0);
}

/* All whose calls have just ended may come back, beside those who wait already. */
static void expect_back(hx_journal *j, uint32_t ended)
{
    uint32_t waiting = atomic_load_explicit(&j->waiting, memory_order_relaxed);
    j->pacing.recent = ended;
    j->pacing.goal = (ended + waiting) * 9 / 10;
    j->pacing.fresh = true;
}

/* A commit costs the same for one record as for sixty. Those whose calls the last commit ended come back soon, a claim
 * with its outcome and a client with its next request, so a commit that would be small waits a moment for most of them,
 * and the loop that brings the last of these wakes the writer. A few clients never wait: no others are coming. Where
 * they don't come in time, because the application is slow, the writer stops waiting for them for a while, and tries
 * again later. */
static void wait_for_more(hx_journal *j)
{
    uint32_t waiting = atomic_load_explicit(&j->waiting, memory_order_relaxed), goal = j->pacing.goal;
    bool first = j->pacing.fresh &&
                 j->pacing.recent >= CONFIRM_LATER_FROM; /* since the commit; HX_FRAME_SYNCED can wait */
    j->pacing.fresh = false;
    if (waiting >= goal || goal < WAIT_FROM || (waiting == 0 && !first)) return;
    if (j->pacing.skip > 0) {
        if (waiting > 0) j->pacing.skip--;
        return;
    }
    if (sleep_until(j, goal, WAIT_NS)) {
        j->pacing.in_vain = 0;
        return;
    }
    if (atomic_load_explicit(&j->waiting, memory_order_relaxed) == 0) return; /* it starts with the first to come */
    if (j->pacing.in_vain < WAITS_IN_VAIN_MAX) j->pacing.in_vain++;
    j->pacing.skip = (1u << j->pacing.in_vain) - 1;
}

void *hx_journal_writer(void *journal)
{
    hx_journal *j = journal;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* so that a moment is one */
    for (;;) {
        bool stopping = atomic_load(&j->stop);
        uint32_t taken = 0;
        wait_for_more(j);
        j->now = j->store.facts.now();
        j->refuses_claims = !hx_background_has_room(j);
        j->lacks_space_logged &= j->refuses_claims;
        unsigned ports = atomic_load_explicit(&j->port_count, memory_order_acquire);
        for (unsigned i = 0; i < ports; i++) {
            hx_port *port = atomic_load_explicit(&j->ports[i], memory_order_relaxed);
            uintptr_t first = hx_mailbox_take(&port->to_writer);
            for (uintptr_t mail = first; mail; mail = *hx_mail_next(mail))
                hx_index_prefetch(j->index, &hx_mail_call(mail)->op);
            for (uintptr_t mail = first, next; mail; mail = next, taken++) {
                next = *hx_mail_next(mail);
                if (mail & 1)
                    cancel(j, hx_mail_call(mail));
                else
                    hx_journal_perform(j, hx_mail_call(mail));
            }
        }
        atomic_fetch_sub_explicit(&j->waiting, taken, memory_order_relaxed);
        bool any = hx_journal_sweep_step(j) || taken > 0;
        hx_journal_flush(j);
        if (taken > 0) expect_back(j, taken);
        if (any) continue;
        if (stopping) break;
        sleep_until_woken(j);
    }
    confirm(j);
    hx_frame_log_sync(&j->log);
    hx_arena_pool_drain();
    return NULL;
}
