/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/prove/gateway.h"

#include "core/json/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_BYTES_MAX (64u << 10)

static const char *file_of(const hx_prove_gateway *gateway)
{
    return hx_arena_printf(gateway->arena, "%s/hapax.yaml", gateway->directory).ptr;
}

bool hx_prove_gateway_configure(hx_prove_gateway *gateway, const char *guarantee, hx_ms timeout, hx_error_text error)
{
    FILE *file = fopen(file_of(gateway), "we");
    if (!file) return hx_fail(error, "can't write in %s: %s", gateway->directory, strerror(errno));
    fprintf(file,
            "store: journal:%s/store\nstore_max: 128MiB\nworkers: 1\nupstream: %s\n"
            "access_log: off\ndefaults: {guarantee: %s, upstream_timeout: %" PRId64 "ms}\n",
            gateway->directory, gateway->upstream, guarantee, timeout);
    return fclose(file) == 0 || hx_fail(error, "can't write in %s: %s", gateway->directory, strerror(errno));
}

/* Looks for the line of the log that says where it listens. */
static void read_address(hx_prove_gateway *gateway)
{
    hx_slice rest = hx_buf_slice(&gateway->log_text), line, event, address;
    while (gateway->url.len == 0 && hx_slice_next(&rest, '\n', &line))
        if (hx_json_pointer(line, HX_LIT("/event"), &event) && hx_slice_eq(event, HX_LIT("\"listening\"")) &&
            hx_json_pointer(line, HX_LIT("/address"), &address) && hx_json_string(address, gateway->arena, &address))
            gateway->url = hx_arena_printf(gateway->arena, "http://%.*s", HX_FMT(address));
}

static void log_came(void *context, unsigned events)
{
    hx_prove_gateway *gateway = context;
    char bytes[4096];
    (void)events;
    ssize_t len = read(gateway->log, bytes, sizeof bytes);
    if (len < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (len <= 0)
        hx_poll_free(&gateway->poll); /* it has ended */
    else if (gateway->url.len == 0 && hx_buf_append(&gateway->log_text, (hx_slice){bytes, (size_t)len}))
        read_address(gateway);
}

bool hx_prove_gateway_start(hx_prove_gateway *gateway, hx_error_text error)
{
    int ends[2];
    const char *file = file_of(gateway);
    /* A key belongs to requests for one host and port, so every start has the same. */
    const char *listen = gateway->url.len > 0 ? gateway->url.ptr + strlen("http://") : "127.0.0.1:0";
    gateway->url = HX_EMPTY;
    hx_buf_init(&gateway->log_text, gateway->arena, LOG_BYTES_MAX);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return hx_fail(error, "can't make a pipe: %s", strerror(errno));
    gateway->pid = fork();
    if (gateway->pid == 0) {
        (void)setpgid(0, 0); /* Ctrl-C is for us */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)fcntl(ends[1], F_SETFL, 0);
        if (dup2(ends[1], STDOUT_FILENO) >= 0 && dup2(ends[1], STDERR_FILENO) >= 0)
            (void)execl("/proc/self/exe", "hapax", "serve", "--config", file, "--listen", listen, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    gateway->log = ends[0];
    gateway->poll = hx_poll_new(gateway->loop, gateway->log, log_came, gateway);
    hx_poll_for(gateway->poll, HX_POLL_READ);
    while (gateway->url.len == 0 && gateway->poll) hx_loop_turn(gateway->loop, HX_SECOND);
    if (gateway->url.len > 0) return true;
    return hx_fail(error, "the gateway did not start: %.*s", HX_FMT(hx_slice_trim(hx_buf_slice(&gateway->log_text))));
}

void hx_prove_gateway_kill(hx_prove_gateway *gateway)
{
    if (gateway->pid <= 0) return;
    (void)kill(gateway->pid, SIGKILL);
    (void)waitpid(gateway->pid, NULL, 0);
    gateway->pid = 0;
    if (gateway->poll) hx_poll_free(&gateway->poll);
    (void)close(gateway->log);
}
