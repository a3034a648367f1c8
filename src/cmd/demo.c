/* SPDX-License-Identifier: Apache-2.0 */
/* hapax demo: a refund application behind a gateway, each in its own process, so that the gateway can be killed while a
 * request is in flight. It is started again on the same store, and the refund is still made once. */
#include "base/check.h"
#include "base/log.h"
#include "cmd/cli/cmd.h"
#include "daemon/daemon.h"
#include "examples/refunds/app.h"
#include "net/server.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    char store[64]; /* "journal:DIR" */
    char address[HX_ADDRESS_BYTES];
    char upstream[HX_ADDRESS_BYTES + 8];
    pid_t application;
    pid_t gateway;
    sigset_t signals;
} demo;

static void become_child(const demo *d)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_UNBLOCK, &d->signals, NULL);
}

/* Starts the application and waits until it says where it listens. */
static bool start_application(demo *d)
{
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return false;
    d->application = fork();
    if (d->application == 0) {
        close(pipe_ends[0]);
        become_child(d);
        exit(hx_refunds_serve(HX_LIT("127.0.0.1:0"), pipe_ends[1]));
    }
    close(pipe_ends[1]);
    char address[HX_ADDRESS_BYTES] = "";
    FILE *announced = fdopen(pipe_ends[0], "r");
    bool ok = d->application > 0 && announced && fgets(address, sizeof address, announced);
    if (announced) fclose(announced);
    if (!ok) return false;
    address[strcspn(address, "\n")] = '\0';
    (void)snprintf(d->upstream, sizeof d->upstream, "http://%s", address);
    return true;
}

/* `ready` gets a byte when the gateway listens. */
static int serve_gateway(const demo *d, int ready)
{
    const char *listen[] = {d->address};
    hx_config_overrides flags = {
        .upstream = d->upstream, .listen = listen, .listen_count = 1, .store = d->store, .workers = "2"};
    hx_buf errors;
    hx_buf_init(&errors, NULL, 4096);
    hx_config *config =
        hx_config_parse("demo",
                        HX_LIT("log_format: readable\n"
                               "routes:\n"
                               "  - {match: POST /payouts, guarantee: idempotent, upstream_timeout: 1s}\n"),
                        &flags, &errors);
    if (!config) {
        fprintf(stderr, "%.*s", HX_FMT(hx_buf_slice(&errors)));
        return HX_EXIT_BUG;
    }
    hx_log_readable(true);
    hx_daemon *daemon = NULL;
    const hx_daemon_source source = {0};
    int code = hx_daemon_open(config, &source, &daemon);
    if (code == HX_EXIT_OK && write(ready, "+", 1) != 1) code = HX_EXIT_BUG;
    close(ready);
    if (code == HX_EXIT_OK) code = hx_daemon_run(daemon);
    hx_daemon_close(&daemon);
    hx_buf_free(&errors);
    return code;
}

/* True once it listens. */
static bool start_gateway(demo *d)
{
    int pipe_ends[2];
    char byte;
    if (pipe(pipe_ends) != 0) return false;
    d->gateway = fork();
    if (d->gateway == 0) {
        close(pipe_ends[0]);
        become_child(d);
        exit(serve_gateway(d, pipe_ends[1]));
    }
    close(pipe_ends[1]);
    bool listens = read(pipe_ends[0], &byte, 1) == 1;
    close(pipe_ends[0]);
    return listens;
}

static bool is_taken(const char *address)
{
    char bound[HX_ADDRESS_BYTES];
    hx_error_text error;
    int descriptor = hx_listen(hx_slice_of(address), bound, error);
    if (descriptor >= 0) hx_unlisten(descriptor);
    return descriptor < 0;
}

/* Chooses a free port, which every start of the gateway uses again. */
static bool choose_port(demo *d)
{
    hx_error_text error;
    int descriptor = hx_listen(HX_LIT("127.0.0.1:0"), d->address, error);
    if (descriptor >= 0) hx_unlisten(descriptor);
    return descriptor >= 0;
}

/* Starts the gateway on 127.0.0.1:8080, or on another port if that one is in use. Returns an exit code. */
static int find_place(demo *d)
{
    (void)snprintf(d->address, sizeof d->address, "127.0.0.1:8080");
    for (int tries = 0; tries < 5; tries++) {
        int status = 0;
        if ((tries > 0 || is_taken(d->address)) && !choose_port(d)) break;
        if (start_gateway(d)) return HX_EXIT_OK;
        if (d->gateway <= 0 || waitpid(d->gateway, &status, 0) != d->gateway) {
            fprintf(stderr, "hapax demo: can't start the gateway\n");
            return HX_EXIT_BUG;
        }
        d->gateway = 0; /* it has printed the reason */
        if (!WIFEXITED(status) || WEXITSTATUS(status) != HX_EXIT_ADDRESS)
            return WIFEXITED(status) ? WEXITSTATUS(status) : HX_EXIT_BUG;
    }
    fprintf(stderr, "hapax demo: no port is free on 127.0.0.1\n");
    return HX_EXIT_ADDRESS;
}

/* Prints how an operator resolves the unknown operation. */
static void explain_keys(const demo *d, const char *strong, const char *plain)
{
    char program[512];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    program[len > 0 ? len : 0] = '\0';
    const char *hapax = len > 0 ? program : "hapax";
    printf("%s5. An operator checks with the application and resolves it.%s Then run 4 again:\n", strong, plain);
    printf("  %s keys list --state unknown --store %s\n", hapax, d->store);
    printf("  curl 'http://%s/refunds?idempotency_key=refund-ch_1-dropped'\n", d->address);
    printf("  %s keys resolve refund-ch_1-dropped --store %s --completed --status 201 "
           "--body '{\"status\":\"succeeded\"}' --why 'it is in the ledger'\n\n",
           hapax, d->store);
}

static void explain(const demo *d)
{
    bool colours = hx_cmd_colours(stdout);
    const char *strong = colours ? "\033[1m" : "", *plain = colours ? "\033[0m" : "";
    const char *post = "-H 'Content-Type: application/json' -d '{\"charge_id\":\"ch_1\",\"amount\":1000}'";
    printf("%sHapax demo%s: a refund service that does not deduplicate, behind a gateway that does.\n\n", strong,
           plain);
    printf("  gateway      http://%s  (process %d)\n", d->address, (int)d->gateway);
    printf("  application  %s\n", d->upstream);
    printf("  store        %s  (removed at the end)\n\n", d->store);
    printf("%s1. Refund 10.00 twice: two equal responses, one refund.%s Run it twice:\n", strong, plain);
    printf("  curl -i http://%s/refunds -H 'Idempotency-Key: refund-ch_1-first' %s\n\n", d->address, post);
    printf("%s2. The same key with another amount: 409, with what differs.%s\n", strong, plain);
    printf("  curl -i http://%s/refunds -H 'Idempotency-Key: refund-ch_1-first' "
           "-H 'Content-Type: application/json' -d '{\"charge_id\":\"ch_1\",\"amount\":2000}'\n\n",
           d->address);
    printf("%s3. Kill the gateway while a request is in flight, and retry: it never runs twice.%s\n", strong, plain);
    printf("  curl -i http://%s/refunds -H 'Idempotency-Key: refund-ch_1-killed' -H 'Demo-Fault: delay=3000ms' %s &\n"
           "  sleep 1; kill -9 %d; sleep 4\n"
           "  curl -i http://%s/refunds -H 'Idempotency-Key: refund-ch_1-killed' %s\n\n",
           d->address, post, (int)d->gateway, d->address, post);
    printf("%s4. The application makes the refund and drops the connection: unknown, so it is not run again.%s Run it "
           "twice:\n",
           strong, plain);
    printf("  curl -i http://%s/refunds -H 'Idempotency-Key: refund-ch_1-dropped' "
           "-H 'Demo-Fault: drop-after-effect' %s\n\n",
           d->address, post);
    explain_keys(d, strong, plain);
    printf("%s6. A service that deduplicates gets retries: a timeout, 502, then 201.%s\n", strong, plain);
    printf("  curl -i http://%s/payouts -H 'Idempotency-Key: payout-ch_1-retried' "
           "-H 'Demo-Fault: 1:hang,2:status-after=502' %s\n\n",
           d->address, post);
    printf("%s7. The ledger has every refund above once.%s\n", strong, plain);
    printf("  curl http://%s/ledger\n\n", d->address);
    printf("Ctrl-C ends it.\n\n");
    fflush(stdout);
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where)
{
    (void)about;
    (void)type;
    (void)where;
    return remove(path);
}

static void end_child(pid_t child)
{
    if (child <= 0) return;
    kill(child, SIGTERM);
    waitpid(child, NULL, 0);
}

/* Runs until a signal. Restarts a gateway that was killed; one that exited by itself ends the demo. */
static int supervise(demo *d)
{
    for (;;) {
        int number = 0, status = 0;
        if (sigwait(&d->signals, &number) != 0) continue;
        if (number != SIGCHLD) return HX_EXIT_OK;
        for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;) {
            if (ended == d->application) {
                fprintf(stderr, "hapax demo: the application ended\n");
                d->application = 0;
                return HX_EXIT_BUG;
            }
            d->gateway = 0;
            if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
            if (!start_gateway(d)) return HX_EXIT_ADDRESS;
            printf("\nThe gateway was killed by signal %d; started again on the same store (process %d).\n\n",
                   WTERMSIG(status), (int)d->gateway);
            fflush(stdout);
        }
    }
}

int hx_cmd_demo(int argc, char **argv)
{
    demo d = {.store = "journal:/tmp/hapax-demo-XXXXXX"};
    int operands = 0;
    int code = hx_cmd_flags(argc, argv, 0, NULL, NULL, &operands);
    if (code >= 0) return code;
    char *directory = d.store + strlen("journal:");
    sigemptyset(&d.signals);
    sigaddset(&d.signals, SIGTERM);
    sigaddset(&d.signals, SIGINT);
    sigaddset(&d.signals, SIGHUP); /* its terminal was closed */
    sigaddset(&d.signals, SIGQUIT);
    sigaddset(&d.signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &d.signals, NULL);
    if (!mkdtemp(directory)) {
        fprintf(stderr, "hapax demo: can't make a directory under /tmp\n");
        return HX_EXIT_STORE;
    }
    code = start_application(&d) ? find_place(&d) : HX_EXIT_BUG;
    if (code == HX_EXIT_OK) {
        explain(&d);
        code = supervise(&d);
    }
    end_child(d.gateway);
    end_child(d.application);
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return code;
}
