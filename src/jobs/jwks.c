/* SPDX-License-Identifier: Apache-2.0 */
/* One thread fetches all sources concurrently, so that a slow one delays no other. It sleeps in curl_multi_poll until a
 * transfer makes progress, a source is due, or curl_multi_wakeup reports that keys are wanted or that it has to end.
 *
 * `lock` guards what other threads read: keys, fresh, tried, and what hx_jwks_open copies from `before`. Only the
 * fetching thread writes those, always under the lock, so it may read them without; except `fresh`, which hx_jwks_keys
 * clears. */
#include "jobs/jwks.h"

#include "base/check.h"
#include "base/log.h"
#include "base/rand.h"
#include "base/program/libcurl.h"
#include "base/text.h"
#include "jobs/key_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ETAG_BYTES_MAX 1024u
#define FIRST_RETRY HX_SECOND
#define SLEEP_MAX (10 * HX_MINUTE)

typedef struct {
    struct hx_jwks *jwks;
    char *url; /* NULL: a file, which is not read again */
    hx_ms refresh;
    hx_jwt_keys *keys;
    bool fresh; /* hx_jwks_keys hasn't returned them yet */
    bool tried; /* the first fetch is over */
    hx_buf body;
    char etag[ETAG_BYTES_MAX]; /* of `body`; empty: none */
    hx_ms begun;               /* start of the last fetch, by the monotonic clock, like `due` */
    hx_ms due;
    unsigned failures; /* in a row */
    _Atomic bool wanted;
    struct { /* used by the fetching thread only */
        CURL *handle;
        struct curl_slist *fields;
        hx_buf body;
        char etag[ETAG_BYTES_MAX];
        char error[CURL_ERROR_SIZE];
    } fetch;
} source;

struct hx_jwks {
    _Atomic bool stopping;
    const hx_libcurl *curl; /* NULL: all sources are files */
    CURLM *multi;
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t one_tried;
    void (*changed)(void *context, size_t i);
    void *context;
    void (*tried)(void *context); /* NULL: none is waiting, or it was called */
    void *tried_context;
    size_t count;
    source sources[HX_JWT_SOURCES_MAX];
};

static hx_ms monotonic_now(void)
{
    return hx_clock_mono_ns() / 1000000;
}

/* The fetch */

static size_t body_came(char *bytes, size_t size, size_t count, void *context)
{
    source *s = context;
    return hx_buf_append(&s->fetch.body, (hx_slice){bytes, size * count}) ? size * count : 0;
}

static size_t field_came(char *bytes, size_t size, size_t count, void *context)
{
    source *s = context;
    hx_text_header header;
    bool is_pair = hx_text_split_header((hx_slice){bytes, size * count}, &header);
    if (is_pair && hx_slice_eq_nocase(header.name, HX_LIT("etag")) && header.value.len < sizeof s->fetch.etag) {
        memcpy(s->fetch.etag, header.value.ptr, header.value.len);
        s->fetch.etag[header.value.len] = '\0';
    }
    return size * count;
}

static bool add_field(source *s, const char *line)
{
    struct curl_slist *longer = s->jwks->curl->slist_append(s->fetch.fields, line);
    if (longer) s->fetch.fields = longer;
    return longer != NULL;
}

static bool add_fields(source *s)
{
    char line[ETAG_BYTES_MAX + 32];
    if (!add_field(s, "Accept: application/jwk-set+json, application/json")) return false;
    if (s->etag[0] == '\0') return true;
    (void)snprintf(line, sizeof line, "If-None-Match: %s", s->etag);
    return add_field(s, line);
}

/* False if this libcurl doesn't know an option: without one of these limits nothing is fetched. */
static bool set_options(source *s)
{
    const hx_libcurl *curl = s->jwks->curl;
    CURL *h = s->fetch.handle;
    const char *authorities =
        getenv("SSL_CERT_FILE"); // NOLINT(concurrency-mt-unsafe): the environment is never changed
    const CURLcode results[] = {
        curl->easy_setopt(h, CURLOPT_URL, s->url),
        curl->easy_setopt(h, CURLOPT_PRIVATE, s),
        curl->easy_setopt(h, CURLOPT_ERRORBUFFER, s->fetch.error),
        curl->easy_setopt(h, CURLOPT_HTTPHEADER, s->fetch.fields),
        curl->easy_setopt(h, CURLOPT_USERAGENT, "hapax/" HAPAX_VERSION),
        curl->easy_setopt(h, CURLOPT_WRITEFUNCTION, body_came),
        curl->easy_setopt(h, CURLOPT_WRITEDATA, s),
        curl->easy_setopt(h, CURLOPT_HEADERFUNCTION, field_came),
        curl->easy_setopt(h, CURLOPT_HEADERDATA, s),
        curl->easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https"),
        curl->easy_setopt(h, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L),
        curl->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L),
        curl->easy_setopt(h, CURLOPT_PROXY, ""),
        curl->easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)HX_JWKS_TIMEOUT),
        curl->easy_setopt(h, CURLOPT_MAXFILESIZE, (long)HX_JWKS_BYTES_MAX),
        curl->easy_setopt(h, CURLOPT_NOSIGNAL, 1L),
        curl->easy_setopt(h, CURLOPT_FORBID_REUSE, 1L),
        curl->easy_setopt(h, CURLOPT_SSL_VERIFYPEER, 1L),
        curl->easy_setopt(h, CURLOPT_SSL_VERIFYHOST, 2L),
        /* Leaves a DNS lookup in progress to end by itself, so that a stop doesn't wait for it. */
        curl->easy_setopt(h, CURLOPT_QUICK_EXIT, 1L),
        authorities ? curl->easy_setopt(h, CURLOPT_CAINFO, authorities) : CURLE_OK,
    };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        if (results[i] != CURLE_OK) return false;
    return true;
}

static void fetch_clear(source *s)
{
    const hx_libcurl *curl = s->jwks->curl;
    if (s->fetch.handle) {
        (void)curl->multi_remove_handle(s->jwks->multi, s->fetch.handle);
        curl->easy_cleanup(s->fetch.handle);
    }
    curl->slist_free_all(s->fetch.fields);
    hx_buf_free(&s->fetch.body);
    memset(&s->fetch, 0, sizeof s->fetch);
}

static hx_ms jittered(hx_ms span)
{
    return span + (hx_ms)hx_rand_below((uint64_t)span / 10 + 1);
}

/* The delay until the next attempt, after `failures` in a row. */
static hx_ms backoff(const source *s)
{
    hx_ms limit = s->refresh < HX_JWKS_BACKOFF_MAX ? s->refresh : HX_JWKS_BACKOFF_MAX;
    hx_ms delay = FIRST_RETRY << (s->failures < 10 ? s->failures - 1 : 9);
    return jittered(delay < limit ? delay : limit);
}

static void fetch_failed(source *s, const char *reason)
{
    hx_jwks *jwks = s->jwks;
    (void)pthread_mutex_lock(&jwks->lock);
    s->failures++;
    hx_ms delay = backoff(s);
    s->due = monotonic_now() + delay;
    s->tried = true;
    bool has_keys = s->keys != NULL;
    (void)pthread_cond_broadcast(&jwks->one_tried);
    (void)pthread_mutex_unlock(&jwks->lock);

    hx_log_begin(has_keys ? HX_EVENT_jwks_refresh_failed : HX_EVENT_jwks_fetch_failed);
    hx_log_text("url", s->url);
    hx_log_text("reason", reason);
    hx_log_int("next_attempt_in_ms", delay);
    hx_log_end();
}

/* `keys` is NULL if they are the same as before. */
static void fetch_succeeded(source *s, hx_jwt_keys *keys)
{
    hx_jwks *jwks = s->jwks;
    hx_jwt_keys *old = NULL;
    if (keys) {
        hx_log_begin(s->keys ? HX_EVENT_jwks_changed : HX_EVENT_jwks_fetched);
        hx_log_text("url", s->url);
        hx_log_int("keys", (int64_t)hx_jwt_keys_count(keys));
        hx_log_end();
    } else if (s->failures > 0) {
        hx_log_begin(HX_EVENT_jwks_recovered);
        hx_log_text("url", s->url);
        hx_log_end();
    }
    (void)pthread_mutex_lock(&jwks->lock);
    s->failures = 0;
    s->due = monotonic_now() + jittered(s->refresh);
    s->tried = true;
    if (keys) {
        old = s->keys;
        s->keys = keys;
        s->fresh = true;
        hx_buf_free(&s->body);
        s->body = s->fetch.body;
        memset(&s->fetch.body, 0, sizeof s->fetch.body);
    }
    if (s->fetch.etag[0] != '\0' || keys) memcpy(s->etag, s->fetch.etag, sizeof s->etag);
    (void)pthread_cond_broadcast(&jwks->one_tried);
    (void)pthread_mutex_unlock(&jwks->lock);
    hx_jwt_keys_free(&old);
}

static void response_came(source *s)
{
    hx_error_text reason, why;
    hx_slice body = hx_buf_slice(&s->fetch.body);
    if (s->keys && hx_slice_eq(body, hx_buf_slice(&s->body))) {
        fetch_succeeded(s, NULL);
        return;
    }
    hx_jwt_keys *keys = hx_jwt_keys_from_jwks(body, why);
    if (!keys) {
        (void)hx_fail(reason, "the response %s", why);
        fetch_failed(s, reason);
    } else if (hx_jwt_keys_have_secret(keys)) {
        hx_jwt_keys_free(&keys);
        fetch_failed(s,
                     "the response contains a shared secret (kty oct), with which everyone who can read it could sign: "
                     "use a file");
    } else {
        fetch_succeeded(s, keys);
    }
}

static void fetch_ended(source *s, CURLcode code)
{
    const hx_libcurl *curl = s->jwks->curl;
    char reason[CURL_ERROR_SIZE + 64];
    long status = 0;
    (void)curl->easy_getinfo(s->fetch.handle, CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_FILESIZE_EXCEEDED || code == CURLE_WRITE_ERROR) {
        (void)snprintf(reason, sizeof reason, "the response has more than %u bytes", HX_JWKS_BYTES_MAX);
        fetch_failed(s, reason);
    } else if (code != CURLE_OK) {
        fetch_failed(s, s->fetch.error[0] != '\0' ? s->fetch.error : curl->easy_strerror(code));
    } else if (status == 200) {
        response_came(s);
    } else if (status == 304 && s->etag[0] != '\0' && s->keys) {
        fetch_succeeded(s, NULL);
    } else {
        (void)snprintf(reason, sizeof reason, "the response is %ld%s", status,
                       status >= 300 && status < 400 ? ", and redirects are not followed" : "");
        fetch_failed(s, reason);
    }
    fetch_clear(s);
}

static void fetch_begin(source *s)
{
    hx_jwks *jwks = s->jwks;
    atomic_store(&s->wanted, false);
    (void)pthread_mutex_lock(&jwks->lock);
    s->begun = monotonic_now();
    (void)pthread_mutex_unlock(&jwks->lock);
    hx_buf_init(&s->fetch.body, NULL, HX_JWKS_BYTES_MAX);
    s->fetch.handle = jwks->curl->easy_init();
    HX_CHECK(s->fetch.handle != NULL);
    if (add_fields(s) && set_options(s) && jwks->curl->multi_add_handle(jwks->multi, s->fetch.handle) == CURLM_OK)
        return;
    fetch_failed(s, "libcurl refuses the options: it is too old");
    fetch_clear(s);
}

/* The thread */

/* Begins the fetches that are due; returns the time until the next one is. */
static hx_ms begin_due(hx_jwks *jwks)
{
    hx_ms sleep = SLEEP_MAX, now = monotonic_now();
    for (size_t i = 0; i < jwks->count; i++) {
        source *s = &jwks->sources[i];
        if (!s->url || s->fetch.handle) continue;
        hx_ms due = s->due;
        if (atomic_load(&s->wanted) && s->begun + HX_JWKS_WANT_GAP < due) due = s->begun + HX_JWKS_WANT_GAP;
        if (due <= now) {
            fetch_begin(s);
        } else if (due - now < sleep) {
            sleep = due - now;
        }
    }
    return sleep;
}

static void end_finished(hx_jwks *jwks)
{
    int left;
    for (CURLMsg *message; (message = jwks->curl->multi_info_read(jwks->multi, &left)) != NULL;) {
        source *s = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        CURLcode code = message->data.result;
        (void)jwks->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&s);
        HX_CHECK(s != NULL);
        fetch_ended(s, code);
    }
}

static void report_changes(hx_jwks *jwks)
{
    for (size_t i = 0; i < jwks->count; i++) {
        source *s = &jwks->sources[i];
        (void)pthread_mutex_lock(&jwks->lock);
        void (*changed)(void *context, size_t i) = s->fresh ? jwks->changed : NULL;
        if (changed) s->fresh = false;
        (void)pthread_mutex_unlock(&jwks->lock);
        if (changed && !atomic_load(&jwks->stopping)) changed(jwks->context, i);
    }
}

static bool all_tried(const hx_jwks *jwks)
{
    for (size_t i = 0; i < jwks->count; i++)
        if (jwks->sources[i].url && !jwks->sources[i].tried) return false;
    return true;
}

static void report_tried(hx_jwks *jwks)
{
    (void)pthread_mutex_lock(&jwks->lock);
    void (*tried)(void *context) = all_tried(jwks) ? jwks->tried : NULL;
    void *context = jwks->tried_context;
    if (tried) jwks->tried = NULL;
    (void)pthread_mutex_unlock(&jwks->lock);
    if (tried) tried(context);
}

static void *fetch_all(void *context)
{
    hx_jwks *jwks = context;
    while (!atomic_load(&jwks->stopping)) {
        int running, ready;
        (void)jwks->curl->multi_perform(jwks->multi, &running);
        end_finished(jwks);
        report_tried(jwks);
        report_changes(jwks);
        hx_ms sleep = begin_due(jwks);
        (void)jwks->curl->multi_poll(jwks->multi, NULL, 0, (int)sleep, &ready);
    }
    for (size_t i = 0; i < jwks->count; i++)
        if (jwks->sources[i].url) fetch_clear(&jwks->sources[i]);
    hx_arena_pool_drain();
    return NULL;
}

/* Opening and closing */

static bool copy_source(hx_jwks *jwks, const hx_jwt_source *from, source *s, hx_error_text error)
{
    hx_error_text why;
    s->jwks = jwks;
    if (from->kind != HX_JWT_JWKS_URL) {
        s->keys = hx_jwks_file_read(from, error);
        return s->keys != NULL;
    }
    if (!hx_jwks_url_check(from->where, error)) return false;
    if (!jwks->curl && !(jwks->curl = hx_libcurl_load(why)))
        return hx_fail(error, "%.*s can't be fetched: %s", HX_FMT(from->where), why);
    s->url = strndup(from->where.ptr, from->where.len);
    HX_CHECK(s->url != NULL);
    s->refresh = from->refresh > 0 ? from->refresh : 5 * HX_MINUTE;
    s->due = monotonic_now();
    s->begun = s->due - HX_JWKS_WANT_GAP;
    return true;
}

/* Copies keys, ETag and schedule from `before`, if it has the same URL. */
static void copy_state(source *s, hx_jwks *before)
{
    (void)pthread_mutex_lock(&before->lock);
    for (size_t i = 0; i < before->count; i++) {
        const source *old = &before->sources[i];
        if (!old->url || !old->keys || strcmp(old->url, s->url) != 0) continue;
        hx_ms soonest = old->begun + s->refresh;
        s->keys = hx_jwt_keys_share(old->keys);
        s->begun = old->begun;
        s->due = old->due < soonest ? old->due : soonest;
        s->failures = old->failures;
        s->tried = true;
        memcpy(s->etag, old->etag, sizeof s->etag);
        hx_buf_init(&s->body, NULL, HX_JWKS_BYTES_MAX);
        hx_buf_put(&s->body, hx_buf_slice(&old->body));
        break;
    }
    (void)pthread_mutex_unlock(&before->lock);
}

static void wait_for_first(hx_jwks *jwks, hx_ms wait)
{
    int64_t until_ns = hx_clock_mono_ns() + wait * 1000000;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    (void)pthread_mutex_lock(&jwks->lock);
    while (!all_tried(jwks))
        if (pthread_cond_timedwait(&jwks->one_tried, &jwks->lock, &until) == ETIMEDOUT) break;
    (void)pthread_mutex_unlock(&jwks->lock);
}

static void start_thread(hx_jwks *jwks)
{
    sigset_t all, old;
    jwks->multi = jwks->curl->multi_init();
    HX_CHECK(jwks->multi != NULL);
    (void)sigfillset(&all); /* signals go to the thread that waits for them */
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    int failed = pthread_create(&jwks->thread, NULL, fetch_all, jwks);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    HX_CHECK(failed == 0);
    jwks->has_thread = true;
}

hx_jwks *hx_jwks_open(const hx_jwt_source *sources, size_t count, hx_jwks *before, hx_ms wait, hx_error_text error)
{
    pthread_condattr_t attributes;
    HX_CHECK(count <= HX_JWT_SOURCES_MAX);
    hx_jwks *jwks = calloc(1, sizeof *jwks);
    HX_CHECK(jwks != NULL);
    (void)pthread_mutex_init(&jwks->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&jwks->one_tried, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    for (size_t i = 0; i < count; i++) {
        source *s = &jwks->sources[jwks->count++];
        if (!copy_source(jwks, &sources[i], s, error)) {
            hx_jwks_free(&jwks);
            return NULL;
        }
        if (s->url && before) copy_state(s, before);
    }
    if (jwks->curl) {
        start_thread(jwks);
        wait_for_first(jwks, wait);
    }
    return jwks;
}

bool hx_jwks_are_tried(hx_jwks *jwks)
{
    (void)pthread_mutex_lock(&jwks->lock);
    bool all = all_tried(jwks);
    (void)pthread_mutex_unlock(&jwks->lock);
    return all;
}

void hx_jwks_on_tried(hx_jwks *jwks, void (*tried)(void *context), void *context)
{
    (void)pthread_mutex_lock(&jwks->lock);
    jwks->tried = tried;
    jwks->tried_context = context;
    (void)pthread_mutex_unlock(&jwks->lock);
    if (jwks->has_thread) (void)jwks->curl->multi_wakeup(jwks->multi);
}

hx_jwt_keys *hx_jwks_keys(hx_jwks *jwks, size_t i)
{
    HX_CHECK(i < jwks->count);
    source *s = &jwks->sources[i];
    (void)pthread_mutex_lock(&jwks->lock);
    s->fresh = false;
    hx_jwt_keys *share = s->keys ? hx_jwt_keys_share(s->keys) : NULL;
    (void)pthread_mutex_unlock(&jwks->lock);
    return share;
}

void hx_jwks_start(hx_jwks *jwks, void (*changed)(void *context, size_t i), void *context)
{
    (void)pthread_mutex_lock(&jwks->lock);
    jwks->changed = changed;
    jwks->context = context;
    (void)pthread_mutex_unlock(&jwks->lock);
    if (jwks->has_thread) (void)jwks->curl->multi_wakeup(jwks->multi);
}

void hx_jwks_want(hx_jwks *jwks, size_t i)
{
    if (i >= jwks->count || !jwks->sources[i].url) return;
    _Atomic bool *wanted = &jwks->sources[i].wanted;
    if (atomic_load_explicit(wanted, memory_order_relaxed) || atomic_exchange(wanted, true)) return;
    (void)jwks->curl->multi_wakeup(jwks->multi);
}

void hx_jwks_stop(hx_jwks *jwks)
{
    atomic_store(&jwks->stopping, true);
    if (!jwks->has_thread) return;
    (void)jwks->curl->multi_wakeup(jwks->multi);
    (void)pthread_join(jwks->thread, NULL);
    jwks->has_thread = false;
}

void hx_jwks_free(hx_jwks **owned)
{
    hx_jwks *jwks = *owned;
    *owned = NULL;
    if (!jwks) return;
    hx_jwks_stop(jwks);
    for (size_t i = 0; i < jwks->count; i++) {
        hx_jwt_keys_free(&jwks->sources[i].keys);
        hx_buf_free(&jwks->sources[i].body);
        free(jwks->sources[i].url);
    }
    if (jwks->multi) (void)jwks->curl->multi_cleanup(jwks->multi);
    (void)pthread_cond_destroy(&jwks->one_tried);
    (void)pthread_mutex_destroy(&jwks->lock);
    free(jwks);
}
