/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/run/descendants.h"

#include "base/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STAT_FIELDS 20u /* after the name: state, parent, group, session, …, threads, …, start time */

typedef struct {
    pid_t pid, parent, session;
    uint64_t started; /* with the pid it names a process for ever */
    char name[64];
    bool is_living;
    bool is_descendant;
} process;

typedef struct {
    process *items;
    size_t count, cap;
} processes;

/* Reads /proc/PID/stat: "PID (NAME) STATE PARENT GROUP SESSION …"; the name may have anything in it. */
static bool read_process(const char *pid, process *out)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t len = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (len <= 0) return false;
    text[len] = '\0';
    char *name = strchr(text, '('), *end = strrchr(text, ')');
    if (!name || !end || end[1] == '\0') return false;
    hx_slice field, rest = hx_slice_of(end + 2), fields[STAT_FIELDS];
    size_t count = 0;
    while (count < STAT_FIELDS && hx_slice_next(&rest, ' ', &field)) fields[count++] = field;
    uint64_t parent, session, threads, started;
    if (count < STAT_FIELDS || fields[0].len != 1 || !hx_slice_to_u64(fields[1], &parent) ||
        !hx_slice_to_u64(fields[3], &session) || !hx_slice_to_u64(fields[17], &threads) ||
        !hx_slice_to_u64(fields[19], &started))
        return false;
    bool is_dead = fields[0].ptr[0] == 'Z' || fields[0].ptr[0] == 'X';
    *out = (process){.pid = (pid_t)strtol(pid, NULL, 10),
                     .parent = (pid_t)parent,
                     .session = (pid_t)session,
                     .started = started,
                     .is_living = !is_dead || threads > 1}; /* a first thread may end before others */
    *end = '\0';
    (void)snprintf(out->name, sizeof out->name, "%s", name + 1);
    return true;
}

static void read_all(processes *all)
{
    DIR *directory = opendir("/proc");
    *all = (processes){0};
    if (!directory) hx_fatal(HX_EXIT_BUG, "/proc can't be read: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
        if (all->count == all->cap) {
            all->cap = all->cap > 0 ? 2 * all->cap : 256;
            process *more = realloc(all->items, all->cap * sizeof *more);
            if (!more) hx_fatal(HX_EXIT_BUG, "out of memory (%zu processes)", all->cap);
            all->items = more;
        }
        if (read_process(entry->d_name, &all->items[all->count])) all->count++;
    }
    (void)closedir(directory);
}

static bool is_parent_marked(const processes *all, pid_t parent)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].pid == parent) return all->items[i].is_descendant;
    return false;
}

static void mark(processes *all)
{
    pid_t self = getpid();
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < all->count; i++) {
            process *p = &all->items[i];
            if (p->is_descendant || (p->parent != self && !is_parent_marked(all, p->parent))) continue;
            p->is_descendant = changed = true;
        }
    }
}

/* The number may belong to another process by now: the start time is compared once the descriptor holds on to it. */
static void kill_process(const process *p)
{
    char pid[16];
    process now;
    int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (fd < 0 && errno == ENOSYS) (void)kill(p->pid, SIGKILL);
    if (fd < 0) return;
    (void)snprintf(pid, sizeof pid, "%d", (int)p->pid);
    if (read_process(pid, &now) && now.started == p->started)
        (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    (void)close(fd);
}

unsigned hx_descendants_kill(pid_t session, char *names, size_t names_bytes)
{
    processes all;
    unsigned count = 0;
    read_all(&all);
    mark(&all);
    for (size_t i = 0; i < all.count; i++) {
        const process *p = &all.items[i];
        if (!p->is_descendant || !p->is_living || (session > 0 && p->session == session)) continue;
        count++;
        kill_process(p);
        char number[16];
        (void)snprintf(number, sizeof number, "(%d)", (int)p->pid);
        if (!names || strstr(names, number)) continue; /* it may take until the next call to die */
        size_t used = strlen(names);
        (void)snprintf(names + used, names_bytes - used, "%s%s %s", used ? ", " : "", p->name, number);
    }
    free(all.items);
    return count;
}

/* A process that was created while /proc was read may be missed. Its creator then dies, by this pass or by itself, and
 * is reaped here, or by another descendant that is: each reaping is followed by another pass. */
void hx_descendants_end(void (*reaped)(void *user, pid_t pid, int status), void *user)
{
    for (;;) {
        int status;
        (void)hx_descendants_kill(0, NULL, 0);
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno == ECHILD) return;
        if (pid > 0 && reaped) reaped(user, pid, status);
    }
}
