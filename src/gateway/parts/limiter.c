/* SPDX-License-Identifier: Apache-2.0 */
/* Two tables of fixed size, one for each limit.
 *
 * rates: GCRA. A slot holds whose it is (`tag`) and when its allowance is whole again (`full_at`, nanoseconds). A slot
 * whose time has come equals one that was never used, so it is anybody's. A party's slot is one of a small window. What
 * must hold, so that no lock is needed:
 *   1. full_at of a slot only grows, but for the moment in which it is TAKEN. So a compare-and-set on it fails whenever
 *      anything has happened to the slot since it was read, a change of its owner too.
 *   2. The tag changes only while full_at is TAKEN, and is read after full_at: if full_at is still the same later on,
 *      the tag was its owner's.
 * Two first requests of one party that race while other slots of its window change hands may end in two slots: one
 * request too many. The slot that is found first counts from then on; the other is free when its time has come.
 *
 * keys: how many live keys a party has. Those in flight, or unknown, are a number (and those whose claim is not decided
 * yet are known by name, so that ten duplicates at once take one place); those that are completed are counted by when
 * they end, in a ring of buckets:
 *
 *      base        base+1      base+2            base+64         (times width = moments, from 1970)
 *     --+-----------+-----------+--- ... ---------+-->
 *   over|  ring[(base+1) % 64]  |                                a key is in the bucket at whose end it is over
 *       now
 *
 * The width begins at a second, which is as exact as the store is, and is doubled when a key would lie beyond the ring:
 * the ends of the wide buckets are ends of narrow ones too, so that a key is counted at most one width longer than it
 * lives, and never shorter. */
#include "gateway/parts/limiter.h"

#include "base/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define RATE_SLOTS 65536u
#define RATE_WINDOW 16u
#define TAKEN INT64_MAX /* its owner is being changed: two stores from now it is not */
#define TAKEN_LOOKS 64u
#define NS_PER_MS INT64_C(1000000)

#define KEY_SHARDS 64u
#define KEY_SLOTS 4096u /* of a shard */
#define KEY_WINDOW 32u
#define BUCKETS 64
#define OPEN_RETRY_AFTER (10 * HX_SECOND) /* no one knows when a key that is in flight or unknown is freed */
#define COUNTERS_A_SLAB 32u
#define ATTEMPTS_A_SLAB 32u

typedef struct {
    _Atomic uint64_t tag;
    _Atomic int64_t full_at;
} rate_slot;

/* Claims of one operation that are on their way to the store. */
typedef struct attempts {
    hx_op op;
    uint32_t count;
    bool has_place; /* counted in `open` for the one of them that wins */
    struct attempts *next;
} attempts;

typedef struct counter {
    uint32_t open;   /* in flight, or unknown */
    uint32_t closed; /* the sum of the ring */
    hx_ms width;
    int64_t base;
    uint32_t ring[BUCKETS];
    attempts *claims;
    struct counter *next_free;
} counter;

typedef struct slab {
    struct slab *next;
    counter counters[COUNTERS_A_SLAB];
    attempts attempts[ATTEMPTS_A_SLAB];
} slab;

typedef struct {
    uint64_t tag;
    counter *counter; /* NULL: free */
} key_slot;

typedef struct {
    pthread_mutex_t mutex;
    key_slot *slots; /* NULL: none was ever used */
    counter *spare;
    attempts *spare_attempts; /* as many as there were claims under way at one time */
    slab *slabs;
} shard;

struct hx_limiter {
    rate_slot *rates;
    shard shards[KEY_SHARDS];
    atomic_bool found_running; /* operations that were counted while they were under way, perhaps without a quota */
    struct {
#define LIMITER(name, ...) _Atomic uint64_t name;
#include "observe/metrics.def"
    } counts;
};

static void *zeroed(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (!memory) hx_fatal(HX_EXIT_BUG, "out of memory");
    return memory;
}

hx_limiter *hx_limiter_new(void)
{
    hx_limiter *limiter = zeroed(1, sizeof *limiter);
    limiter->rates = zeroed(RATE_SLOTS, sizeof *limiter->rates); /* the kernel gives its pages when they are used */
    for (size_t i = 0; i < KEY_SHARDS; i++) pthread_mutex_init(&limiter->shards[i].mutex, NULL);
    return limiter;
}

void hx_limiter_free(hx_limiter **owned)
{
    hx_limiter *limiter = *owned;
    if (!limiter) return;
    for (size_t i = 0; i < KEY_SHARDS; i++) {
        shard *s = &limiter->shards[i];
        for (slab *each = s->slabs, *next; each; each = next) {
            next = each->next;
            free(each);
        }
        free(s->slots);
        pthread_mutex_destroy(&s->mutex);
    }
    free(limiter->rates);
    free(limiter);
    *owned = NULL;
}

static void count(_Atomic uint64_t *events)
{
    atomic_fetch_add_explicit(events, 1, memory_order_relaxed);
}

/* The last step of MurmurHash3: every bit of the number decides every bit of the result. */
static uint64_t mixed(uint64_t number)
{
    number = (number ^ number >> 33) * UINT64_C(0xff51afd7ed558ccd);
    number = (number ^ number >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return number ^ number >> 33;
}

/* The principal's MAC can't be foreseen by anyone outside, so parties can't be chosen to collide; the route is the
 * operator's. */
hx_party hx_limiter_party(hx_slice route, const hx_digest *principal)
{
    hx_party party;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);      /* FNV-1a */
    route = hx_slice_first(route, HX_RECORD_TEXT_MAX); /* as much as a record keeps */
    for (size_t i = 0; i < route.len; i++) hash = (hash ^ (unsigned char)route.ptr[i]) * UINT64_C(0x100000001b3);
    memcpy(party.words, principal->bytes, sizeof party.words);
    party.words[0] = mixed(party.words[0] ^ mixed(hash));
    party.words[1] = mixed(party.words[1] ^ mixed(~hash));
    return party;
}

hx_party hx_limiter_party_of(const hx_record *record)
{
    bool is_named = (record->rule_version & HX_RULE_NAMED) != 0;
    return hx_limiter_party(is_named ? record->route : HX_EMPTY, &record->principal);
}

/* The interval between two requests at `rate`, in nanoseconds. */
typedef struct {
    int64_t now;
    int64_t interval; /* what one request costs */
    int64_t burst;    /* how far ahead of now full_at may be */
} gauge;

static gauge gauge_of(hx_rate rate, hx_ms now)
{
    int64_t per = rate.per < HX_DAY * 36500 ? rate.per * NS_PER_MS : HX_DAY * 36500 * NS_PER_MS;
    int64_t interval = per / rate.count > 0 ? per / rate.count : 1;
    return (gauge){.now = now * NS_PER_MS, .interval = interval, .burst = interval * rate.count};
}

typedef enum { GRANTED, REFUSED, LOST } attempt;

/* Whether the slot seems to be this party's; *full_at is as it was just before that. */
static bool looks_owned(rate_slot *slot, uint64_t tag, int64_t *full_at)
{
    *full_at = atomic_load_explicit(&slot->full_at, memory_order_acquire);
    for (unsigned looks = 0; *full_at == TAKEN && looks < TAKEN_LOOKS; looks++) {
        sched_yield();
        *full_at = atomic_load_explicit(&slot->full_at, memory_order_acquire);
    }
    return *full_at != TAKEN && atomic_load_explicit(&slot->tag, memory_order_acquire) == tag;
}

/* LOST: the slot has changed since it was looked at, its owner perhaps too. */
static attempt spend(rate_slot *slot, int64_t full_at, const gauge *g, int64_t *wait)
{
    int64_t from = full_at > g->now ? full_at : g->now;
    *wait = from + g->interval - g->now - g->burst;
    if (*wait > 0) return atomic_load_explicit(&slot->full_at, memory_order_relaxed) == full_at ? REFUSED : LOST;
    bool is_ours = atomic_compare_exchange_strong_explicit(&slot->full_at, &full_at, from + g->interval,
                                                           memory_order_acq_rel, memory_order_relaxed);
    return is_ours ? GRANTED : LOST;
}

static attempt take_over(rate_slot *slot, uint64_t tag, int64_t full_at, const gauge *g)
{
    if (!atomic_compare_exchange_strong_explicit(&slot->full_at, &full_at, TAKEN, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return LOST;
    atomic_store_explicit(&slot->tag, tag, memory_order_release);
    atomic_store_explicit(&slot->full_at, g->now + g->interval, memory_order_release);
    return GRANTED;
}

/* LOST: something changed meanwhile, and the window is to be looked at again. */
static attempt try_window(hx_limiter *limiter, uint64_t home, uint64_t tag, const gauge *g, int64_t *wait,
                          bool *crowded)
{
    rate_slot *idle = NULL;
    int64_t idle_full_at = 0, first_free = INT64_MAX;
    *crowded = false;
    for (unsigned i = 0; i < RATE_WINDOW; i++) {
        rate_slot *slot = &limiter->rates[(home + i) % RATE_SLOTS];
        int64_t full_at;
        if (looks_owned(slot, tag, &full_at)) return spend(slot, full_at, g, wait);
        if (full_at < first_free) first_free = full_at;
        if (idle || full_at > g->now) continue;
        idle = slot;
        idle_full_at = full_at;
    }
    if (idle) return take_over(idle, tag, idle_full_at, g);
    *crowded = true;
    *wait = first_free == TAKEN ? NS_PER_MS : first_free - g->now;
    return REFUSED;
}

bool hx_limiter_take(hx_limiter *limiter, hx_party party, hx_rate rate, hx_ms now, hx_ms *retry_after)
{
    if (rate.count == 0 || rate.per <= 0) return true;
    gauge g = gauge_of(rate, now);
    /* One owner's allowance is counted in one rate's intervals. */
    uint64_t tag = party.words[1] ^ mixed((uint64_t)rate.per << 32 ^ rate.count);
    int64_t wait = 0;
    bool crowded = false;
    attempt end;
    do end = try_window(limiter, party.words[0], tag, &g, &wait, &crowded);
    while (end == LOST);
    if (end == GRANTED) return true;
    count(&limiter->counts.rate_refused);
    if (crowded) count(&limiter->counts.rate_crowded);
    *retry_after = (wait + NS_PER_MS - 1) / NS_PER_MS;
    return false;
}

/* Drops what is over. */
static void advance(counter *c, hx_ms now)
{
    int64_t base = now / c->width;
    if (base <= c->base) return; /* a worker whose turn began earlier */
    for (int64_t n = c->base + 1; c->closed > 0 && n <= base && n <= c->base + BUCKETS; n++) {
        c->closed -= c->ring[n % BUCKETS];
        c->ring[n % BUCKETS] = 0;
    }
    c->base = base;
    if (c->closed == 0) {
        c->width = HX_SECOND;
        c->base = now / HX_SECOND;
    }
}

/* Each bucket goes into the one that ends with it or next after it; the ring then reaches twice as far. */
static void widen(counter *c)
{
    uint32_t narrow[BUCKETS];
    memcpy(narrow, c->ring, sizeof narrow);
    memset(c->ring, 0, sizeof c->ring);
    int64_t first = c->base + 1;
    c->width *= 2;
    c->base /= 2;
    for (int64_t n = first; n < first + BUCKETS; n++) c->ring[(n + 1) / 2 % BUCKETS] += narrow[n % BUCKETS];
}

/* The bucket at whose end a key that lives until then is over; it is in the ring, and later than now. */
static int64_t bucket_of(counter *c, hx_ms until, hx_ms now)
{
    if (until <= now) until = now + 1;
    while ((until + c->width - 1) / c->width > c->base + BUCKETS) widen(c);
    int64_t n = (until + c->width - 1) / c->width;
    return n > c->base ? n : c->base + 1; /* a worker whose turn began earlier */
}

static bool is_idle(const counter *c)
{
    return c->open == 0 && c->closed == 0 && !c->claims;
}

static void drop_attempts(shard *s, attempts **place)
{
    attempts *gone = *place;
    *place = gone->next;
    gone->next = s->spare_attempts;
    s->spare_attempts = gone;
}

static void release(shard *s, key_slot *slot)
{
    while (slot->counter->claims) drop_attempts(s, &slot->counter->claims);
    slot->counter->next_free = s->spare;
    s->spare = slot->counter;
    *slot = (key_slot){0};
}

static void add_slab(shard *s)
{
    slab *more = zeroed(1, sizeof *more);
    more->next = s->slabs;
    s->slabs = more;
    for (size_t i = 0; i < COUNTERS_A_SLAB; i++) {
        more->counters[i].next_free = s->spare;
        s->spare = &more->counters[i];
    }
    for (size_t i = 0; i < ATTEMPTS_A_SLAB; i++) {
        more->attempts[i].next = s->spare_attempts;
        s->spare_attempts = &more->attempts[i];
    }
}

static counter *new_counter(shard *s, hx_ms now)
{
    if (!s->spare) add_slab(s);
    counter *c = s->spare;
    s->spare = c->next_free;
    *c = (counter){.width = HX_SECOND, .base = now / HX_SECOND};
    return c;
}

static void add_attempts(shard *s, counter *c, const hx_op *op)
{
    if (!s->spare_attempts) add_slab(s);
    attempts *more = s->spare_attempts;
    s->spare_attempts = more->next;
    *more = (attempts){.op = *op, .count = 1, .has_place = true, .next = c->claims};
    c->claims = more;
}

static attempts **find_attempts(counter *c, const hx_op *op)
{
    attempts **place = &c->claims;
    while (*place && !hx_op_eq(&(*place)->op, op)) place = &(*place)->next;
    return place;
}

static shard *lock(hx_limiter *limiter, hx_party party)
{
    shard *s = &limiter->shards[party.words[0] % KEY_SHARDS];
    pthread_mutex_lock(&s->mutex);
    return s;
}

static key_slot *slot_at(shard *s, hx_party party, unsigned i)
{
    return &s->slots[(party.words[0] / KEY_SHARDS + i) % KEY_SLOTS];
}

/* The party's slot, up to date; NULL: it has no live key. */
static key_slot *find(shard *s, hx_party party, hx_ms now)
{
    for (unsigned i = 0; s->slots && i < KEY_WINDOW; i++) {
        key_slot *slot = slot_at(s, party, i);
        if (!slot->counter || slot->tag != party.words[1]) continue;
        advance(slot->counter, now);
        return slot;
    }
    return NULL;
}

/* NULL: every place that it could have is another's, who has live keys. */
static key_slot *find_or_add(shard *s, hx_party party, hx_ms now)
{
    key_slot *slot = find(s, party, now);
    if (!s->slots) s->slots = zeroed(KEY_SLOTS, sizeof *s->slots);
    for (unsigned i = 0; !slot && i < KEY_WINDOW; i++) {
        key_slot *other = slot_at(s, party, i);
        if (other->counter) {
            advance(other->counter, now);
            if (is_idle(other->counter)) release(s, other);
        }
        if (other->counter) continue;
        *other = (key_slot){.tag = party.words[1], .counter = new_counter(s, now)};
        slot = other;
    }
    return slot;
}

/* How long until the next key is over. */
static hx_ms next_end(const counter *c, hx_ms now)
{
    for (int64_t n = c->base + 1; c->closed > 0 && n <= c->base + BUCKETS; n++)
        if (c->ring[n % BUCKETS] > 0) return n * c->width - now;
    return OPEN_RETRY_AFTER;
}

bool hx_limiter_begin(hx_limiter *limiter, hx_party party, const hx_op *op, uint32_t quota, hx_ms now,
                      hx_ms *retry_after)
{
    if (quota == 0) return true;
    shard *s = lock(limiter, party);
    key_slot *slot = find_or_add(s, party, now);
    counter *c = slot ? slot->counter : NULL;
    attempts *others = c ? *find_attempts(c, op) : NULL;
    bool is_free = c && (others || (uint64_t)c->open + c->closed < quota);
    if (others) {
        others->count++;
    } else if (is_free) {
        add_attempts(s, c, op);
        c->open++;
    } else {
        *retry_after = c ? next_end(c, now) : OPEN_RETRY_AFTER;
    }
    pthread_mutex_unlock(&s->mutex);
    if (!is_free) count(&limiter->counts.quota_refused);
    if (!c) count(&limiter->counts.quota_crowded);
    return is_free;
}

void hx_limiter_claimed(hx_limiter *limiter, hx_party party, const hx_op *op, bool won, hx_ms now)
{
    shard *s = lock(limiter, party);
    key_slot *slot = find(s, party, now);
    counter *c = slot ? slot->counter : NULL;
    attempts **place = c ? find_attempts(c, op) : NULL;
    if (place && *place) { /* else everything was forgotten meanwhile, and is counted again */
        attempts *a = *place;
        if (won && !a->has_place) c->open++; /* the first winner released it before this one came */
        if (won) a->has_place = false;
        if (--a->count == 0) {
            if (a->has_place) c->open--;
            drop_attempts(s, place);
        }
        if (is_idle(c)) release(s, slot);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* Counts one more key that ends then; false: the table is full. */
static bool add_closed(shard *s, hx_party party, hx_ms until, hx_ms now, bool was_open)
{
    key_slot *slot = find_or_add(s, party, now);
    if (!slot) return false;
    counter *c = slot->counter;
    /* One that was never counted, because it began before the counting, is counted from here on. */
    if (was_open && c->open > 0) c->open--;
    c->ring[bucket_of(c, until, now) % BUCKETS]++;
    c->closed++;
    return true;
}

static void close_key(hx_limiter *limiter, hx_party party, hx_ms until, hx_ms now)
{
    shard *s = lock(limiter, party);
    bool has_room = add_closed(s, party, until, now, true);
    pthread_mutex_unlock(&s->mutex);
    if (!has_room) count(&limiter->counts.found_crowded);
}

static void drop_open(hx_limiter *limiter, hx_party party, hx_ms now)
{
    shard *s = lock(limiter, party);
    key_slot *slot = find(s, party, now);
    if (slot && slot->counter->open > 0) slot->counter->open--;
    if (slot && is_idle(slot->counter)) release(s, slot);
    pthread_mutex_unlock(&s->mutex);
}

static void drop_closed(hx_limiter *limiter, hx_party party, hx_ms until, hx_ms now)
{
    shard *s = lock(limiter, party);
    key_slot *slot = find(s, party, now);
    counter *c = slot ? slot->counter : NULL;
    int64_t n = c ? (until + c->width - 1) / c->width : 0;
    if (c && n > c->base && n <= c->base + BUCKETS && c->ring[n % BUCKETS] > 0) {
        c->ring[n % BUCKETS]--;
        c->closed--;
    }
    if (c && is_idle(c)) release(s, slot);
    pthread_mutex_unlock(&s->mutex);
}

void hx_limiter_settled(hx_limiter *limiter, hx_party party, hx_state state, hx_ms expires_at, hx_ms now)
{
    if (state == HX_ABSENT)
        drop_open(limiter, party, now);
    else if (state == HX_COMPLETED || state == HX_FAILED)
        close_key(limiter, party, expires_at, now);
}

static bool has_open(hx_limiter *limiter, hx_party party, hx_ms now)
{
    shard *s = lock(limiter, party);
    key_slot *slot = find(s, party, now);
    bool has_one = slot && slot->counter->open > 0;
    pthread_mutex_unlock(&s->mutex);
    return has_one;
}

void hx_limiter_settled_unlimited(hx_limiter *limiter, const hx_record *record, hx_ms now)
{
    if (!limiter || !atomic_load_explicit(&limiter->found_running, memory_order_relaxed)) return;
    hx_party party = hx_limiter_party_of(record);
    if (has_open(limiter, party, now)) hx_limiter_settled(limiter, party, record->state, record->expires_at, now);
}

void hx_limiter_forgotten(hx_limiter *limiter, hx_party party, hx_state state, hx_ms expires_at, hx_ms now)
{
    if (state == HX_UNKNOWN)
        drop_open(limiter, party, now);
    else if (state == HX_COMPLETED || state == HX_FAILED)
        drop_closed(limiter, party, expires_at, now);
}

void hx_limiter_found(hx_limiter *limiter, const hx_record *record, hx_ms since, hx_ms now)
{
    hx_party party = hx_limiter_party_of(record);
    bool is_open = record->state == HX_PROCESSING || record->state == HX_UNKNOWN;
    bool is_closed = record->state == HX_COMPLETED || record->state == HX_FAILED;
    if (record->created_at >= since || (is_closed && (record->changed_at >= since || record->expires_at <= now)))
        return;
    if (!is_open && !is_closed) return;
    if (record->state == HX_PROCESSING) atomic_store_explicit(&limiter->found_running, true, memory_order_relaxed);
    shard *s = lock(limiter, party);
    bool has_room;
    if (is_closed) {
        has_room = add_closed(s, party, record->expires_at, now, false);
    } else {
        key_slot *slot = find_or_add(s, party, now);
        has_room = slot != NULL;
        if (slot) slot->counter->open++;
    }
    pthread_mutex_unlock(&s->mutex);
    if (!has_room) count(&limiter->counts.found_crowded);
}

void hx_limiter_forget_keys(hx_limiter *limiter)
{
    for (size_t i = 0; i < KEY_SHARDS; i++) {
        shard *s = &limiter->shards[i];
        pthread_mutex_lock(&s->mutex);
        for (size_t k = 0; s->slots && k < KEY_SLOTS; k++)
            if (s->slots[k].counter) release(s, &s->slots[k]);
        pthread_mutex_unlock(&s->mutex);
    }
}

void hx_limiter_count(const hx_limiter *limiter, hx_limiter_counts *out)
{
    *out = (hx_limiter_counts){
#define LIMITER(name, ...) .name = atomic_load_explicit(&limiter->counts.name, memory_order_relaxed),
#include "observe/metrics.def"
    };
}
