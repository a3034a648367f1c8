/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "admin/admin.h"
#include "base/check.h"
#include "base/program/log_writer.h"
#include "daemon/background.h"
#include "daemon/events.h"
#include "daemon/reload.h"
#include "store/transfer/unfinished.h"
#include "config/address.h"
#include "gateway/parts/request_body.h"
#include "gateway/gateway.h"
#include "jobs/skipped_jobs.h"
#include "jobs/quota_recount.h"
#include "jobs/sweep.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORKERS_MAX 64u
#define SPOOL_BYTES (256u * 1024u)
#define CUT_WAIT HX_SECOND   /* after `drain`, for requests that end when their client is cut off */
#define DESCRIPTORS_KEPT 64u /* for the store, the listeners and the loops */
#define DESCRIPTORS_MIN 256u
#define API_SHARE 8u /* the API's connections get at most an eighth of the descriptors */
#define SWEEP_INTERVAL HX_SECOND
#define LAST_LINES_WAIT HX_SECOND /* at the end, for a log reader that has stalled */

typedef struct {
    hx_worker worker;
    hx_loop *loop;
    hx_task drain, cut;
    struct {
        hx_task task;
        hx_rules *rules;
    } use;
    hx_daemon *daemon;
    pthread_t thread;
} worker_thread;

struct hx_daemon {
    hx_config *config; /* until hx_daemon_open returns; then the first generation owns it */
    hx_store *store;
    hx_limiter *limiter;
    hx_store_health outage;
    hx_gateway gateway;
    uint64_t descriptors;
    uint32_t api_connections; /* 0: there is no API */
    worker_thread workers[WORKERS_MAX];
    unsigned worker_count;
    hx_jobs background;
    hx_sweep sweep;
    hx_skipped_jobs skipped_jobs;
    hx_quota_recount recount;
    hx_ms recounted_since;
    hx_reload *reload;
    hx_admin *admin;                    /* NULL: there is none */
    hx_daemon_events *events;           /* NULL: there are none */
    hx_generation_config *first_config; /* what `events` points into, also after a reload */
    struct {
        hx_task task;
        atomic_bool posted;
        bool waiting, again; /* a reload for a signal is under way; another signal came since */
        hx_admin_reload reload;
    } hangup;
    pthread_mutex_t handing_out;
    _Atomic hx_ms drain_max;               /* option `drain` of the rules in force */
    bool draining;                         /* under the mutex: no rules are handed to the workers any more */
    const hx_worker *counted[WORKERS_MAX]; /* the workers, for the admin socket */
    sigset_t signals, ends;                /* all that are waited for; those among them that end the daemon */
};

static uint64_t raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) (void)getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

static int open_store(hx_daemon *daemon, bool accept_clock)
{
    const hx_config *config = daemon->config;
    hx_error_text error;
    hx_arena arena = {0};
    const char *usual = hx_address_default_store(config->dev, &arena);
    bool is_usual = usual && hx_slice_eq(config->store, hx_slice_of(usual));
    hx_store_options options = {.check_clock = !accept_clock,
                                .moves_clock = true,
                                .bytes_max = config->store_bytes_max,
                                .audit_retention = config->audit_retention > 0 ? config->audit_retention
                                                                               : HX_AUDIT_FOREVER,
                                .make_parents = is_usual,
                                .waiters_max = config->limits.waiters,
                                .waiters_per_op_max = config->limits.waiters_per_operation};
    daemon->store = hx_store_open(config->store, &options, error);
    if (!daemon->store) {
        fprintf(stderr, "hapax: %s\n", error);
        hx_arena_free(&arena);
        return HX_EXIT_STORE;
    }
    uint64_t orphans = hx_store_about(daemon->store)->orphans;
    hx_log_begin(HX_EVENT_store_opened);
    hx_log_str("store", hx_address_shown(config->store, &arena));
    if (orphans > 0) hx_log_int("became_unknown", (int64_t)orphans);
    if (config->dev && is_usual) hx_log_text("hint", "--dev has a store of its own; without --dev another one is used");
    hx_log_end();
    hx_arena_free(&arena);
    if (hx_slice_eq(config->store, HX_LIT("memory:"))) hx_log(HX_EVENT_store_volatile);
    const hx_policy_set *set = &config->policies;
    for (size_t i = 0; i <= set->count; i++) {
        bool is_route = i < set->count;
        if (!(is_route ? &set->routes[i] : &set->defaults)->on_store_down_pass) continue;
        hx_log_begin(HX_EVENT_store_down_passes);
        hx_log_str("route", is_route ? set->routes[i].name : HX_LIT("defaults"));
        hx_log_end();
    }
    return HX_EXIT_OK;
}

/* Tokens and events are items of the store. */
static int admit_api(hx_daemon *daemon)
{
    const hx_config *config = daemon->config;
    const hx_store_facts *facts = hx_store_about(daemon->store);
    if (config->api.listen_count == 0) return HX_EXIT_OK;
    uint64_t most = daemon->descriptors / API_SHARE;
    daemon->api_connections = (uint32_t)(config->api.connections < most ? config->api.connections : most);
    if (facts->keeps_items) return HX_EXIT_OK;
    fprintf(
        stderr,
        "hapax: the API can't be used with this store: a store of the kind \"%s\" keeps no tokens and events. Leave "
        "out api.listen and --api, or use another store\n",
        facts->name);
    return HX_EXIT_USAGE;
}

/* Three quarters of a worker's share of the descriptors are for clients, the rest is for upstreams. */
static uint32_t share_of(const hx_daemon *daemon, unsigned quarters, uint32_t wanted)
{
    uint64_t left = daemon->descriptors - DESCRIPTORS_KEPT - daemon->api_connections;
    uint64_t share = left / daemon->worker_count * quarters / 4;
    return share < 1 ? 1 : (uint32_t)(wanted < share ? wanted : share);
}

static hx_server_limits server_limits(const hx_daemon *daemon, const hx_limits *limits)
{
    return hx_worker_server_limits(limits, share_of(daemon, 3, limits->connections));
}

static hx_upstream_limits upstream_limits(const hx_daemon *daemon, const hx_config *config)
{
    const hx_limits *limits = &config->limits;
    return (hx_upstream_limits){.connect_timeout = limits->connect_timeout,
                                .idle_timeout = limits->upstream_idle_timeout,
                                .idle_max = config->upstream_keepalive ? 256 : 0,
                                .connections_max = share_of(daemon, 1, 4096),
                                .waiting_max = 16384,
                                .head_bytes_max = 64u * 1024u,
                                .fields_max = limits->answer_headers};
}

static int make_worker(hx_daemon *daemon, worker_thread *w, hx_rules *rules)
{
    const hx_config *config = daemon->config;
    hx_server_limits for_clients = server_limits(daemon, &config->limits);
    hx_upstream_limits for_upstreams = upstream_limits(daemon, config);
    hx_error_text error;
    w->daemon = daemon;
    w->loop = hx_loop_new();
    hx_worker_init(&w->worker, &daemon->gateway, w->loop, rules);
    hx_store_attach(daemon->store, w->loop);
    w->worker.server = hx_server_new(w->loop, &for_clients, &hx_gateway_handler, &w->worker);
    for (size_t i = 0; i < config->upstream_count; i++) {
        w->worker.upstreams[i] = hx_upstream_new(w->loop, config->upstreams[i].url, &for_upstreams, error);
        if (w->worker.upstreams[i]) continue;
        fprintf(stderr, "hapax: upstream %.*s: %s\n", HX_FMT(config->upstreams[i].url), error);
        return HX_EXIT_USAGE;
    }
    return HX_EXIT_OK;
}

/* On the worker's own thread, between two requests. */
static void use_rules(hx_task *task)
{
    worker_thread *w = HX_OWNER(task, worker_thread, use.task);
    const hx_config *config = w->use.rules->config;
    hx_server_limits for_clients = server_limits(w->daemon, &config->limits);
    hx_upstream_limits for_upstreams = upstream_limits(w->daemon, config);
    hx_server_set_limits(w->worker.server, &for_clients);
    for (size_t i = 0; i < config->upstream_count; i++) hx_upstream_set_limits(w->worker.upstreams[i], &for_upstreams);
    hx_worker_use(&w->worker, w->use.rules);
    hx_reload_used(w->daemon->reload);
}

/* A worker's tasks run in the order in which they are posted, so it uses the rules before it drains. */
static bool hand_out(void *context, hx_rules *rules)
{
    hx_daemon *daemon = context;
    pthread_mutex_lock(&daemon->handing_out);
    bool goes = !daemon->draining;
    for (unsigned i = 0; goes && i < daemon->worker_count; i++) {
        worker_thread *w = &daemon->workers[i];
        w->use.rules = rules;
        w->use.task.run = use_rules;
        hx_loop_post(w->loop, &w->use.task);
    }
    pthread_mutex_unlock(&daemon->handing_out);
    return goes;
}

static void recounted(void *context, const hx_record *record)
{
    hx_daemon *daemon = context;
    hx_limiter_found(daemon->limiter, record, daemon->recounted_since, hx_loop_now(daemon->background.loop));
}

/* Logs that the limit of open files allows fewer connections than the configuration asks for. */
static void say_fewer_connections(const hx_daemon *daemon, const hx_rules *before, const hx_rules *rules)
{
    uint32_t wanted = rules->config->limits.connections, got = share_of(daemon, 3, wanted);
    bool was_said = before && before->config->limits.connections == wanted;
    if (got == wanted || was_said || !rules->config->connections_given) return;
    hx_log_begin(HX_EVENT_connections_limited);
    hx_log_int("connections", got);
    hx_log_int("wanted", wanted);
    hx_log_int("open_files", (int64_t)daemon->descriptors);
    hx_log_end();
}

static void in_force(void *context, const hx_rules *before, const hx_rules *rules)
{
    static const hx_policy_set none;
    hx_daemon *daemon = context;
    hx_log_readable(rules->config->log_readable);
    atomic_store(&daemon->drain_max, rules->config->drain);
    say_fewer_connections(daemon, before, rules);
    if (before && before->config != rules->config) /* new keys of tokens change no rules in the store */
        hx_health_over(&daemon->outage, HX_STORE_HEALTH_RULES, hx_loop_now(daemon->background.loop));
    if (daemon->admin) hx_admin_use(daemon->admin, rules);
    if (!hx_quota_recount_needed(before ? before->policies : &none, rules->policies)) return;
    hx_limiter_forget_keys(daemon->limiter);
    daemon->recounted_since = hx_loop_now(daemon->background.loop);
    hx_quota_recount_start(&daemon->recount, daemon->background.loop, daemon->store, rules->policies, recounted,
                           daemon);
}

static void want_keys(void *context, unsigned source)
{
    hx_daemon *daemon = context;
    hx_reload_want_keys(daemon->reload, source);
}

static unsigned generations(void *context)
{
    const hx_daemon *daemon = context;
    return hx_reload_generations(daemon->reload);
}

static void reload(void *context, hx_admin_reload *request)
{
    hx_daemon *daemon = context;
    hx_reload_ask(daemon->reload, request);
}

static int listen_on(hx_daemon *daemon, hx_slice address, char bound[HX_ADDRESS_BYTES])
{
    hx_error_text error;
    for (unsigned i = 0; i < daemon->worker_count; i++) {
        int descriptor = hx_listen(i == 0 ? address : hx_slice_of(bound), bound, error);
        if (descriptor < 0) {
            fprintf(stderr, "hapax: %s\n", error);
            return HX_EXIT_ADDRESS;
        }
        hx_server_accept(daemon->workers[i].worker.server, descriptor, hx_slice_of(bound));
    }
    return HX_EXIT_OK;
}

/* Logs the addresses once all of them are bound: a reader of the first line may connect to any. */
static int listen_on_all(hx_daemon *daemon)
{
    const hx_config *config = daemon->config;
    char bound[HX_LISTEN_MAX][HX_ADDRESS_BYTES];
    for (size_t i = 0; i < config->listen_count; i++) {
        int code = listen_on(daemon, config->listen[i], bound[i]);
        if (code != HX_EXIT_OK) return code;
    }
    hx_rules_say_weaker(config, hx_store_about(daemon->store)->shared);
    for (size_t i = 0; i < config->listen_count; i++) {
        hx_log_begin(HX_EVENT_listening);
        hx_log_text("address", bound[i]);
        hx_log_int("workers", daemon->worker_count);
        hx_log_end();
    }
    return HX_EXIT_OK;
}

/* Creates the directories above `path`. If that fails, binding the socket reports why. */
static void make_parents(hx_slice path, hx_arena *arena)
{
    for (size_t i = 1; i < path.len; i++)
        if (path.ptr[i] == '/') (void)mkdir(hx_arena_terminated(arena, hx_slice_first(path, i)), 0700);
}

/* Another gateway on the same store may have the usual socket, and knows as much of it. */
static int listen_for_operators(hx_daemon *daemon, hx_slice address, bool is_usual)
{
    hx_error_text error;
    bool listens = hx_admin_listen(daemon->admin, address, error);
    if (listens) {
        hx_log_begin(HX_EVENT_admin_listening);
        hx_log_str("address", address);
        hx_log_end();
    } else if (is_usual) {
        hx_log_begin(HX_EVENT_admin_unavailable);
        hx_log_text("reason", error);
        hx_log_end();
    } else {
        fprintf(stderr, "hapax: %s\n", error);
    }
    return listens || is_usual ? HX_EXIT_OK : HX_EXIT_ADDRESS;
}

static int listen_for_api(hx_daemon *daemon)
{
    const hx_config *config = daemon->config;
    char bound[HX_LISTEN_MAX][HX_ADDRESS_BYTES];
    hx_error_text error;
    for (size_t i = 0; i < config->api.listen_count; i++) {
        if (hx_admin_listen_api(daemon->admin, config->api.listen[i], bound[i], error)) continue;
        fprintf(stderr, "hapax: the API: %s\n", error);
        return HX_EXIT_ADDRESS;
    }
    for (size_t i = 0; i < config->api.listen_count; i++) {
        hx_log_begin(HX_EVENT_api_listening);
        hx_log_text("address", bound[i]);
        hx_log_end();
    }
    return HX_EXIT_OK;
}

static int open_admin(hx_daemon *daemon, const hx_rules *rules)
{
    const hx_config *config = daemon->config;
    hx_arena arena = {0};
    hx_slice address = config->admin_off ? HX_EMPTY : hx_address_admin(config->admin_listen, config->store, &arena);
    bool is_usual = config->admin_listen.len == 0 && !hx_slice_starts(config->store, HX_LIT("journal:"));
    if (address.len == 0 && daemon->api_connections == 0) return HX_EXIT_OK;
    for (unsigned i = 0; i < daemon->worker_count; i++) daemon->counted[i] = &daemon->workers[i].worker;
    hx_admin_needs needs = {.loop = daemon->background.loop,
                            .store = daemon->store,
                            .limiter = daemon->limiter,
                            .outage = &daemon->outage,
                            .rules = rules,
                            .reload = reload,
                            .generations = generations,
                            .context = daemon,
                            .workers = daemon->counted,
                            .worker_count = daemon->worker_count,
                            .api_connections = daemon->api_connections,
                            .engine = hx_daemon_events_engine(daemon->events),
                            .payload_bytes_max = config->events.payload_bytes_max,
                            .schedule_max = config->events.schedule_max};
    daemon->admin = hx_admin_new(&needs);
    int code = HX_EXIT_OK;
    if (address.len > 0) {
        if (is_usual) make_parents(hx_slice_from(address, sizeof("unix:") - 1), &arena);
        code = listen_for_operators(daemon, address, is_usual);
    }
    hx_arena_free(&arena);
    return code == HX_EXIT_OK ? listen_for_api(daemon) : code;
}

/* Blocks the signals. Every thread inherits the mask, so only hx_daemon_run receives them. */
static void take_signals(hx_daemon *daemon)
{
    sigemptyset(&daemon->ends);
    sigaddset(&daemon->ends, SIGTERM);
    sigaddset(&daemon->ends, SIGINT);
    sigaddset(&daemon->ends, SIGQUIT);
    daemon->signals = daemon->ends;
    sigaddset(&daemon->signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &daemon->signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN); /* other daemons reopen their logs, or dump their state */
    signal(SIGUSR2, SIG_IGN);
}

/* The directory for temporary files of large bodies. Without it large bodies are refused, others are not. */
static const char *spool_directory(void)
{
    const char *given = getenv("TMPDIR");
    const char *directory = given && given[0] == '/' ? given : "/tmp";
    if (!hx_body_can_spool(directory)) hx_body_say_no_room(directory);
    return directory;
}

static int open_workers(hx_daemon *daemon, hx_rules *rules)
{
    daemon->gateway = (hx_gateway){.store = daemon->store,
                                   .limiter = daemon->limiter,
                                   .outage = &daemon->outage,
                                   .want_keys = want_keys,
                                   .keys_context = daemon,
                                   .worker_count = daemon->worker_count,
                                   .dev = daemon->config->dev,
                                   .spool_bytes = SPOOL_BYTES,
                                   .spool_directory = spool_directory()};
    for (unsigned i = 0; i < daemon->worker_count; i++) {
        int code = make_worker(daemon, &daemon->workers[i], rules);
        if (code != HX_EXIT_OK) return code;
    }
    return HX_EXIT_OK;
}

/* Prevents core files, which would contain clients' data, and new privileges for child processes. */
static void drop_privileges(const hx_config *config)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (config->core_dumps) return;
    const struct rlimit none = {0};
    (void)setrlimit(RLIMIT_CORE, &none);
#if !defined(__SANITIZE_ADDRESS__) &&                                                                                  \
    !defined(__SANITIZE_THREAD__) /* the sanitizers' reports need to read the process */
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

static void start_sweep(void *context)
{
    hx_daemon *daemon = context;
    hx_sweep_start(&daemon->sweep, daemon->background.loop, daemon->store, SWEEP_INTERVAL);
}

static void stop_sweep(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    hx_sweep_stop(&daemon->sweep, stopped, of);
}

static void start_reload(void *context)
{
    hx_daemon *daemon = context;
    hx_reload_start(daemon->reload);
}

static void stop_reload(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    hx_reload_stop(daemon->reload, stopped, of);
}

static void stop_keys(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    hx_reload_stop_keys(daemon->reload);
    stopped(of);
}

static void stop_recount(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    hx_quota_recount_stop(&daemon->recount, stopped, of);
}

static void stop_admin(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    if (daemon->admin)
        hx_admin_stop(daemon->admin, stopped, of);
    else
        stopped(of);
}

static void start_events(void *context)
{
    hx_daemon *daemon = context;
    hx_daemon_events_start(daemon->events);
}

static void stop_events(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    hx_daemon_events_stop(daemon->events, stopped, of);
}

static void stop_inbox(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    hx_daemon_events_stop_inbox(daemon->events, stopped, of);
}

static void start_skipped_jobs(void *context)
{
    hx_daemon *daemon = context;
    hx_skipped_jobs_start(&daemon->skipped_jobs, daemon->background.loop, daemon->store);
}

static void stop_skipped_jobs(void *context, void (*stopped)(void *of), void *of)
{
    hx_daemon *daemon = context;
    hx_skipped_jobs_stop(&daemon->skipped_jobs, stopped, of);
}

static const hx_daemon_job jobs[] = {
    {"sweep", start_sweep, stop_sweep, HX_JOB_AFTER_DRAIN},
    {"skipped jobs", start_skipped_jobs, stop_skipped_jobs, HX_JOB_AFTER_DRAIN},
    {"reload", start_reload, stop_reload, HX_JOB_AFTER_DRAIN},
    {"events", start_events, stop_events, HX_JOB_AFTER_DRAIN},
    {"inbox", NULL, stop_inbox, HX_JOB_BEFORE_DRAIN},               /* listens from hx_daemon_open on */
    {"keys of tokens", NULL, stop_keys, HX_JOB_BEFORE_DRAIN},       /* fetched for each generation by `reload` */
    {"quota recount", NULL, stop_recount, HX_JOB_BEFORE_DRAIN},     /* begins when rules with quotas come into force */
    {"admin socket and API", NULL, stop_admin, HX_JOB_AFTER_DRAIN}, /* listen from hx_daemon_open on */
};

static int open_events(hx_daemon *daemon)
{
    daemon->first_config = hx_reload_hold_config(daemon->reload);
    hx_daemon_events_needs needs = {.loop = daemon->background.loop,
                                    .store = daemon->store,
                                    .config = daemon->first_config->config,
                                    .connections_max = share_of(daemon, 1, 4096)};
    int code = hx_daemon_events_open(&needs, &daemon->events);
    hx_inbox_server *inbox = hx_daemon_events_inbox(daemon->events);
    hx_slice path = needs.config->inbox.path;
    if (code != HX_EXIT_OK || !inbox || path.len == 0) return code;
    /* No worker serves a request yet. */
    daemon->gateway.aside.path = hx_inbox_server_path(inbox);
    daemon->gateway.aside.request = hx_inbox_server_take;
    daemon->gateway.aside.context = inbox;
    return HX_EXIT_OK;
}

static hx_daemon *new_daemon(hx_config *config)
{
    hx_daemon *daemon = calloc(1, sizeof *daemon);
    HX_CHECK(daemon != NULL);
    daemon->config = config;
    daemon->worker_count = config->workers < WORKERS_MAX ? config->workers : WORKERS_MAX;
    daemon->limiter = hx_limiter_new();
    hx_jobs_init(&daemon->background, jobs, sizeof jobs / sizeof *jobs, daemon);
    pthread_mutex_init(&daemon->handing_out, NULL);
    hx_log_readable(config->log_readable);
    take_signals(daemon);
    drop_privileges(config);
    return daemon;
}

int hx_daemon_open(hx_config *config, const hx_daemon_source *source, hx_daemon **out)
{
    hx_daemon *daemon = new_daemon(config);
    *out = daemon;
    daemon->descriptors = raise_descriptor_limit();
    if (daemon->descriptors < DESCRIPTORS_MIN) {
        fprintf(stderr,
                "hapax: the limit on open files is %llu and has to be %u or more: raise it (ulimit -n, or systemd's "
                "LimitNOFILE)\n",
                (unsigned long long)daemon->descriptors, DESCRIPTORS_MIN);
        return HX_EXIT_USAGE;
    }
    int code = open_store(daemon, source->accept_clock);
    if (code == HX_EXIT_OK) code = admit_api(daemon);
    if (code != HX_EXIT_OK) return code;
    hx_store_attach(daemon->store, daemon->background.loop);
    code = hx_unfinished_admit(daemon->store, daemon->background.loop);
    if (code != HX_EXIT_OK) return code;
    hx_reload_needs needs = {.source = source,
                             .loop = daemon->background.loop,
                             .store = daemon->store,
                             .worker_count = daemon->worker_count,
                             .hand_out = hand_out,
                             .in_force = in_force,
                             .context = daemon};
    hx_rules *rules = NULL;
    daemon->reload = hx_reload_new(&needs);
    code = hx_reload_first(daemon->reload, config, &rules);
    if (code == HX_EXIT_OK) code = open_workers(daemon, rules);
    if (code == HX_EXIT_OK) code = open_events(daemon);
    if (code == HX_EXIT_OK) code = open_admin(daemon, rules);
    if (code == HX_EXIT_OK) code = listen_on_all(daemon);
    if (code != HX_EXIT_OK) return code;
    daemon->config = NULL;
    return HX_EXIT_OK;
}

static void worker_drained(hx_worker *worker)
{
    hx_loop_stop(worker->loop);
}

static void drain_worker(hx_task *task)
{
    hx_worker_drain(&HX_OWNER(task, worker_thread, drain)->worker, worker_drained);
}

static void ask_for_hangup(hx_daemon *daemon);

static void hangup_done(hx_admin_reload *done)
{
    hx_daemon *daemon = HX_OWNER(done, hx_daemon, hangup.reload);
    daemon->hangup.waiting = false;
    if (!daemon->hangup.again) return;
    daemon->hangup.again = false;
    ask_for_hangup(daemon);
}

static void ask_for_hangup(hx_daemon *daemon)
{
    daemon->hangup.waiting = true;
    daemon->hangup.reload = (hx_admin_reload){.done = hangup_done};
    hx_reload_ask(daemon->reload, &daemon->hangup.reload);
}

/* A signal that comes during a reload may be about a newer file, so it asks for another reload. */
static void hangup_came(hx_task *task)
{
    hx_daemon *daemon = HX_OWNER(task, hx_daemon, hangup.task);
    atomic_store(&daemon->hangup.posted, false);
    if (daemon->hangup.waiting)
        daemon->hangup.again = true;
    else
        ask_for_hangup(daemon);
}

/* Ends the process at once: operations in flight are unknown at the next start. */
static _Noreturn void give_up(const char *why)
{
    hx_log_begin(HX_EVENT_drain_incomplete);
    hx_log_text("reason", why);
    hx_log_end();
    (void)hx_log_flush(LAST_LINES_WAIT);
    _exit(HX_EXIT_UNKNOWN);
}

static void cut_clients(hx_task *task)
{
    hx_server_cut(HX_OWNER(task, worker_thread, cut)->worker.server);
}

/* Joins a thread. Returns NULL, or the reason for not waiting any longer. */
static const char *join(const hx_daemon *daemon, pthread_t thread, hx_ms deadline)
{
    const struct timespec step = {.tv_nsec = 5000000};
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        if (sigtimedwait(&daemon->ends, NULL, &step) > 0) return "a second signal";
        if (hx_clock_now() > deadline) return "draining took too long";
    }
    return NULL;
}

/* Joins the workers from `first` on, and moves `first` along. Returns like join. */
static const char *join_workers(const hx_daemon *daemon, unsigned *first, hx_ms wait)
{
    hx_ms deadline = hx_clock_now() + wait;
    for (; *first < daemon->worker_count; *first += 1) {
        const char *why = join(daemon, daemon->workers[*first].thread, deadline);
        if (why) return why;
    }
    return NULL;
}

/* Waits until all requests have ended, then cuts clients off. An operation that the upstream has not answered by then
 * is unknown. */
static void drain_workers(hx_daemon *daemon)
{
    unsigned first = 0;
    for (unsigned i = 0; i < daemon->worker_count; i++)
        hx_loop_post(daemon->workers[i].loop, &daemon->workers[i].drain);
    const char *why = join_workers(daemon, &first, atomic_load(&daemon->drain_max));
    if (!why) return;
    for (unsigned i = first; i < daemon->worker_count; i++)
        hx_loop_post(daemon->workers[i].loop, &daemon->workers[i].cut);
    if (join_workers(daemon, &first, CUT_WAIT) != NULL) give_up(why);
    hx_log_begin(HX_EVENT_clients_cut);
    hx_log_text("reason", why);
    hx_log_end();
}

static void end_background(hx_daemon *daemon)
{
    hx_jobs_end(&daemon->background);
    const char *why = join(daemon, daemon->background.thread, hx_clock_now() + atomic_load(&daemon->drain_max));
    if (!why) return;
    const char *job = hx_jobs_stopping(&daemon->background);
    hx_log_begin(HX_EVENT_job_cut);
    hx_log_text("reason", why);
    hx_log_text("job", job ? job : "");
    hx_log_end();
    (void)hx_log_flush(LAST_LINES_WAIT);
    _exit(HX_EXIT_OK);
}

int hx_daemon_run(hx_daemon *daemon)
{
    hx_log_start();
    for (unsigned i = 0; i < daemon->worker_count; i++) {
        worker_thread *w = &daemon->workers[i];
        w->drain.run = drain_worker;
        w->cut.run = cut_clients;
        w->thread = hx_loop_start(w->loop);
    }
    daemon->hangup.task.run = hangup_came;
    hx_jobs_start(&daemon->background);

    for (int number = 0; sigismember(&daemon->ends, number) != 1;) {
        if (sigwait(&daemon->signals, &number) != 0) number = 0;
        if (number == SIGHUP && !atomic_exchange(&daemon->hangup.posted, true))
            hx_loop_post(daemon->background.loop, &daemon->hangup.task);
    }
    hx_log(HX_EVENT_draining);
    pthread_mutex_lock(&daemon->handing_out);
    daemon->draining = true;
    pthread_mutex_unlock(&daemon->handing_out);
    hx_jobs_drain(&daemon->background);
    drain_workers(daemon);
    end_background(daemon);
    hx_log(HX_EVENT_stopped);
    hx_log_stop(LAST_LINES_WAIT);
    return HX_EXIT_OK;
}

void hx_daemon_close(hx_daemon **owned)
{
    hx_daemon *daemon = *owned;
    if (!daemon) return;
    if (daemon->reload) hx_reload_let_go(daemon->reload);
    for (unsigned i = 0; i < daemon->worker_count; i++) {
        worker_thread *w = &daemon->workers[i];
        if (w->loop) hx_worker_clear(&w->worker);
    }
    hx_admin_free(&daemon->admin);
    hx_daemon_events_free(&daemon->events);
    hx_generation_config_drop(&daemon->first_config);
    if (!daemon->reload) hx_config_free(&daemon->config);
    hx_reload_free(&daemon->reload);
    if (daemon->store) hx_store_close(&daemon->store); /* before the loops, which its connections are on */
    for (unsigned i = 0; i < daemon->worker_count; i++) hx_loop_free(&daemon->workers[i].loop);
    hx_loop_free(&daemon->background.loop);
    hx_limiter_free(&daemon->limiter);
    pthread_mutex_destroy(&daemon->handing_out);
    hx_arena_pool_drain();
    free(daemon);
    *owned = NULL;
}
