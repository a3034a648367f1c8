/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/run/supervise.h"

#include "cmd/run/descendants.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often descendants that outlive the command are looked at: they may leave the session without a signal to us. */
#define LOOK_EVERY_MS 250

/* In the supervisor's process */

typedef struct {
    int socket, children; /* children: a descriptor for SIGCHLD */
    pid_t command;
    bool has_ended; /* the command */
    hx_supervised end;
} supervisor;

static void note(void *user, pid_t pid, int status)
{
    supervisor *s = user;
    if (pid != s->command) return;
    s->has_ended = true;
    s->end.status = status;
}

/* Runs in the new process, between fork and exec. */
static void become_command(char *const argv[], const int output[2], int report, const sigset_t *mask, pid_t parent)
{
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it died before it could be asked for */
    if (dup2(output[0], STDOUT_FILENO) >= 0 && dup2(output[1], STDERR_FILENO) >= 0) {
        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        (void)execvp(argv[0], argv);
    }
    int why = errno;
    (void)!write(report, &why, sizeof why);
    _exit(127);
}

/* 0, or the errno of fork or exec. */
static int start_command(supervisor *s, char *const argv[], const int output[2], const sigset_t *mask)
{
    int report[2], why = 0;
    if (pipe2(report, O_CLOEXEC) != 0) return errno;
    pid_t self = getpid();
    s->command = fork();
    if (s->command < 0) return errno;
    if (s->command == 0) become_command(argv, output, report[1], mask, self);
    (void)close(report[1]);
    ssize_t got;
    while ((got = read(report[0], &why, sizeof why)) < 0 && errno == EINTR) {}
    (void)close(report[0]);
    return got == (ssize_t)sizeof why ? why : 0;
}

/* The supervisor keeps nothing open that others wait for the end of. */
static void close_others(const supervisor *s)
{
    unsigned low = (unsigned)(s->socket < s->children ? s->socket : s->children);
    unsigned high = (unsigned)(s->socket + s->children) - low;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++) (void)dup2(null, fd);
    if (low > 3) (void)close_range(3, low - 1, 0);
    if (high > low + 1) (void)close_range(low + 1, high - 1, 0);
    (void)close_range(high + 1, ~0u, 0);
}

static void pass_on(const supervisor *s, int number)
{
    if (!s->has_ended && kill(-s->command, number) != 0) (void)kill(s->command, number);
}

/* False: no descendant is left. */
static bool reap(supervisor *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) note(s, pid, status);
    if (pid < 0 && errno == ECHILD) return false;
    if (s->has_ended) (void)hx_descendants_kill(s->command, s->end.left, sizeof s->end.left);
    return true;
}

static void supervise(supervisor *s)
{
    struct signalfd_siginfo unused;
    struct pollfd ready[2] = {{.fd = s->socket, .events = POLLIN}, {.fd = s->children, .events = POLLIN}};
    while (reap(s)) {
        unsigned char number;
        if (poll(ready, 2, s->has_ended ? LOOK_EVERY_MS : -1) <= 0) continue;
        if (ready[1].revents) (void)!read(s->children, &unused, sizeof unused);
        if (!ready[0].revents) continue;
        ssize_t got = recv(s->socket, &number, 1, 0);
        if (got == 1)
            pass_on(s, number);
        else if (got == 0 || (errno != EINTR && errno != EAGAIN))
            hx_descendants_end(note, s);
    }
    (void)send(s->socket, &s->end, sizeof s->end, MSG_NOSIGNAL);
}

static void become_supervisor(int socket, char *const argv[], const int output[2], const sigset_t *mask)
{
    supervisor s = {.socket = socket};
    sigset_t children;
    (void)prctl(PR_SET_NAME, "hapax-run");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)sigemptyset(&children);
    (void)sigaddset(&children, SIGCHLD);
    s.children = signalfd(-1, &children, SFD_CLOEXEC);
    s.end.start_error = s.children < 0 ? errno : start_command(&s, argv, output, mask);
    if (s.children >= 0) {
        close_others(&s);
        supervise(&s);
    } else {
        (void)send(s.socket, &s.end, sizeof s.end, MSG_NOSIGNAL);
    }
    _exit(0);
}

/* In ours */

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fds[i] >= 0) (void)close(fds[i]);
}

int hx_supervisor_start(hx_supervisor *s, char *const argv[])
{
    int fds[6] = {-1, -1, -1, -1, -1, -1}; /* the socket, standard output, standard error: ours and theirs */
    sigset_t all, mask;
    siginfo_t child;
    int why = 0;
    s->has_others = waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0 || pipe2(fds + 2, O_CLOEXEC) != 0 ||
        pipe2(fds + 4, O_CLOEXEC) != 0 || (!s->has_others && prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)) {
        why = errno;
        close_all(fds, 6);
        return why;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &mask);
    s->pid = fork();
    if (s->pid == 0) {
        close_all((const int[]){fds[0], fds[2], fds[4]}, 3);
        become_supervisor(fds[1], argv, (const int[]){fds[3], fds[5]}, &mask);
    }
    why = s->pid < 0 ? errno : 0;
    (void)pthread_sigmask(SIG_SETMASK, &mask, NULL);
    close_all((const int[]){fds[1], fds[3], fds[5]}, 3);
    if (why != 0) close_all((const int[]){fds[0], fds[2], fds[4]}, 3);
    s->socket = fds[0];
    s->output[0] = fds[2];
    s->output[1] = fds[4];
    return why;
}

void hx_supervisor_signal(const hx_supervisor *s, int number)
{
    unsigned char byte = (unsigned char)number;
    if (number == SIGKILL)
        (void)shutdown(s->socket, SHUT_WR); /* as if we had died: that can't be lost in a full queue */
    else
        (void)send(s->socket, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool hx_supervisor_end(hx_supervisor *s, hx_supervised *end)
{
    ssize_t got = recv(s->socket, end, sizeof *end, 0);
    bool is_whole = got == (ssize_t)sizeof *end;
    (void)close(s->socket);
    if (is_whole || s->has_others)
        (void)waitpid(s->pid, NULL, 0);
    else
        hx_descendants_end(NULL, NULL);
    return is_whole;
}
