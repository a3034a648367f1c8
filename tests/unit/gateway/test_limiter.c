/* SPDX-License-Identifier: Apache-2.0 */
/* `rate` and `quota` of one principal on one route: exact where that is promised, on the careful side where it isn't,
 * and bounded whatever comes. */
#include "gateway/parts/limiter.h"

#include "base/rand.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define START ((hx_ms)1771502400123)
#define FIFTY_A_SECOND ((hx_rate){.count = 50, .per = HX_SECOND})
#define THREADS 4

static hx_party party_number(uint64_t number)
{
    hx_digest principal = {0};
    memcpy(principal.bytes, &number, sizeof number);
    memcpy(principal.bytes + 8, &number, sizeof number);
    return hx_limiter_party(HX_LIT("refunds"), &principal);
}

/* Begins and claims an operation that nobody else has. */
static bool begin_or_wait(hx_limiter *limiter, hx_party party, uint32_t quota, hx_ms now, hx_ms *wait)
{
    static _Atomic uint64_t drawn;
    uint64_t number = atomic_fetch_add(&drawn, 1);
    hx_op op = {0};
    memcpy(op.bytes, &number, sizeof number);
    if (!hx_limiter_begin(limiter, party, &op, quota, now, wait)) return false;
    hx_limiter_claimed(limiter, party, &op, true, now);
    return true;
}

static bool begin(hx_limiter *limiter, hx_party party, uint32_t quota, hx_ms now)
{
    hx_ms wait = 0;
    return begin_or_wait(limiter, party, quota, now, &wait);
}

static unsigned take_all(hx_limiter *limiter, hx_party party, hx_rate rate, hx_ms now, hx_ms *retry_after)
{
    unsigned taken = 0;
    while (hx_limiter_take(limiter, party, rate, now, retry_after)) taken++;
    return taken;
}

static void fifty_a_second_are_fifty_at_once_and_one_every_20_ms(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_party party = party_number(1);
    hx_ms retry_after = 0;
    assert_int_equal(take_all(limiter, party, FIFTY_A_SECOND, START, &retry_after), 50);
    assert_int_equal(retry_after, 20);
    assert_int_equal(take_all(limiter, party, FIFTY_A_SECOND, START + 19, &retry_after), 0);
    assert_int_equal(retry_after, 1);
    assert_int_equal(take_all(limiter, party, FIFTY_A_SECOND, START + 20, &retry_after), 1);
    unsigned taken = 0;
    for (hx_ms at = 21; at <= 100020; at++) taken += take_all(limiter, party, FIFTY_A_SECOND, START + at, &retry_after);
    assert_int_equal(taken, 5000); /* not one lost or won in a hundred seconds of asking */
    assert_int_equal(take_all(limiter, party, FIFTY_A_SECOND, START + HX_HOUR, &retry_after), 50);
    hx_limiter_free(&limiter);
}

static void retry_after_is_when_the_next_one_is_let_in(void **state)
{
    (void)state;
    static const hx_rate rates[] = {{1, HX_SECOND},   {3, HX_SECOND},      {7, HX_MINUTE},  {10, HX_HOUR},
                                    {1, 30 * HX_DAY}, {100000, HX_SECOND}, {UINT32_MAX, 1}, {999, 365 * HX_DAY}};
    hx_limiter *limiter = hx_limiter_new();
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        hx_party party = party_number(i);
        hx_ms now = START, wait = 0;
        for (unsigned k = 0; k < rates[i].count && k < 200000; k++)
            assert_true(hx_limiter_take(limiter, party, rates[i], now, &wait));
        if (rates[i].count > 200000) continue;
        for (unsigned k = 0; k < 20; k++) {
            if (hx_limiter_take(limiter, party, rates[i], now, &wait)) continue; /* several within one millisecond */
            assert_true(wait >= 1);
            if (wait > 1) assert_false(hx_limiter_take(limiter, party, rates[i], now + wait - 1, &(hx_ms){0}));
            now += wait;
            assert_true(hx_limiter_take(limiter, party, rates[i], now, &wait));
        }
    }
    hx_limiter_free(&limiter);
}

static void a_route_without_a_rate_is_never_limited(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_ms wait = 0;
    for (unsigned i = 0; i < 1000; i++)
        assert_true(hx_limiter_take(limiter, party_number(1), (hx_rate){0}, START, &wait));
    for (unsigned i = 0; i < 1000; i++)
        assert_true(hx_limiter_begin(limiter, party_number(1), &(hx_op){0}, 0, START, &wait));
    hx_limiter_free(&limiter);
}

static void principals_and_routes_do_not_share(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_digest one = {.bytes = {1}}, other = {.bytes = {2}};
    hx_party parties[] = {hx_limiter_party(HX_LIT("refunds"), &one), hx_limiter_party(HX_LIT("refunds"), &other),
                          hx_limiter_party(HX_LIT("charges"), &one), hx_limiter_party(HX_EMPTY, &one)};
    hx_ms wait = 0;
    for (size_t i = 0; i < 4; i++) assert_int_equal(take_all(limiter, parties[i], FIFTY_A_SECOND, START, &wait), 50);
    for (size_t i = 0; i < 4; i++) {
        assert_true(begin(limiter, parties[i], 1, START));
        assert_false(begin(limiter, parties[i], 1, START));
    }
    hx_limiter_free(&limiter);
}

static void a_record_names_the_same_party_as_its_request(void **state)
{
    (void)state;
    hx_digest principal;
    hx_rand_bytes(principal.bytes, sizeof principal.bytes);
    char name[400];
    memset(name, 'n', sizeof name);
    hx_slice route = {name, sizeof name};
    hx_record named = {.route = hx_slice_first(route, HX_RECORD_TEXT_MAX),
                       .principal = principal,
                       .rule_version = HX_RULE_NAMED | 77};
    hx_party asked = hx_limiter_party(route, &principal), kept = hx_limiter_party_of(&named);
    assert_memory_equal(&asked, &kept, sizeof asked);
    hx_record unnamed = {.route = HX_LIT("POST /any/path"), .principal = principal, .rule_version = 77};
    asked = hx_limiter_party(HX_EMPTY, &principal);
    kept = hx_limiter_party_of(&unnamed);
    assert_memory_equal(&asked, &kept, sizeof asked);
}

static void a_changed_rate_begins_anew(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_rate slow = {.count = 1, .per = HX_DAY};
    hx_ms wait = 0;
    assert_int_equal(take_all(limiter, party_number(1), slow, START, &wait), 1);
    assert_int_equal(take_all(limiter, party_number(1), FIFTY_A_SECOND, START, &wait), 50);
    assert_int_equal(take_all(limiter, party_number(1), slow, START, &wait), 0);
    hx_limiter_free(&limiter);
}

/* Far more principals than there are slots: those who are known keep their limit, the others are refused. */
static void a_full_table_refuses_and_forgets_nobody(void **state)
{
    (void)state;
    enum { MANY = 200000 };
    hx_limiter *limiter = hx_limiter_new();
    hx_rate rate = {.count = 2, .per = HX_HOUR};
    hx_limiter_counts counts;
    bool *known = calloc(MANY, sizeof *known);
    unsigned let_in = 0;
    hx_ms wait = 0;
    assert_non_null(known);
    for (unsigned i = 0; i < MANY; i++) {
        known[i] = hx_limiter_take(limiter, party_number(i), rate, START, &wait);
        let_in += known[i];
        if (!known[i]) assert_true(wait >= 1 && wait <= HX_HOUR);
    }
    assert_true(let_in > 60000 && let_in <= 65536);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(take_all(limiter, party_number(i), rate, START, &wait), known[i] ? 1 : 0);
    hx_limiter_count(limiter, &counts);
    assert_int_equal(counts.rate_crowded, 2 * (MANY - let_in));
    assert_int_equal(counts.rate_refused, counts.rate_crowded + let_in);
    /* An hour later every slot is anybody's. */
    let_in = 0;
    for (unsigned i = MANY; i < MANY + 20000; i++)
        let_in += hx_limiter_take(limiter, party_number(i), rate, START + HX_HOUR, &wait);
    assert_int_equal(let_in, 20000);
    free(known);
    hx_limiter_free(&limiter);
}

typedef struct {
    hx_limiter *limiter;
    _Atomic unsigned *granted; /* by party */
    unsigned parties;
    unsigned asks;
    hx_rate rate;
    _Atomic hx_ms *now;
} crowd;

static void *ask_as_everyone(void *argument)
{
    crowd *c = argument;
    hx_ms wait;
    for (unsigned i = 0; i < c->asks; i++) {
        unsigned party = (unsigned)hx_rand_below(c->parties);
        hx_ms now = atomic_load(c->now);
        if (hx_limiter_take(c->limiter, party_number(party), c->rate, now, &wait))
            atomic_fetch_add(&c->granted[party], 1);
    }
    return NULL;
}

static void run_threads(void *(*run)(void *), void *argument)
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, run, argument), 0);
    for (unsigned i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void workers_share_one_allowance(void **state)
{
    (void)state;
    enum { PARTIES = 3 };
    _Atomic unsigned granted[PARTIES] = {0};
    _Atomic hx_ms now = START;
    crowd c = {.limiter = hx_limiter_new(),
               .granted = granted,
               .parties = PARTIES,
               .asks = 20000,
               .rate = {.count = 1000, .per = HX_SECOND},
               .now = &now};
    for (unsigned second = 0; second < 5; second++) {
        run_threads(ask_as_everyone, &c);
        for (unsigned i = 0; i < PARTIES; i++) assert_int_equal(granted[i], 1000 * (second + 1));
        atomic_fetch_add(&now, HX_SECOND);
    }
    hx_limiter_free(&c.limiter);
}

/* Slots change hands all the time, on all threads: nobody gets more than its rate, but for the race that limiter.c
 * tells of, which costs a request a thread. */
static void slots_that_change_hands_grant_nobody_more(void **state)
{
    (void)state;
    enum { PARTIES = 100000, ROUNDS = 8 };
    _Atomic unsigned *granted = calloc(PARTIES, sizeof *granted);
    _Atomic hx_ms now = START;
    assert_non_null(granted);
    crowd c = {.limiter = hx_limiter_new(),
               .granted = granted,
               .parties = PARTIES,
               .asks = 100000,
               .rate = {.count = 1, .per = HX_SECOND},
               .now = &now};
    for (unsigned round = 0; round < ROUNDS; round++) {
        run_threads(ask_as_everyone, &c);
        atomic_fetch_add(&now, HX_SECOND);
    }
    uint64_t sum = 0;
    unsigned too_many = 0;
    for (unsigned i = 0; i < PARTIES; i++) {
        sum += granted[i];
        assert_true(granted[i] <= ROUNDS + THREADS - 1);
        too_many += granted[i] > ROUNDS;
    }
    assert_true(too_many <= PARTIES / 1000);
    assert_true(sum > (uint64_t)ROUNDS * 60000);
    free(granted);
    hx_limiter_free(&c.limiter);
}

/* How many more keys the party may have; asks and gives back. */
static unsigned room(hx_limiter *limiter, hx_party party, uint32_t quota, hx_ms now)
{
    unsigned free_keys = 0;
    while (begin(limiter, party, quota, now)) free_keys++;
    for (unsigned i = 0; i < free_keys; i++) hx_limiter_settled(limiter, party, HX_ABSENT, 0, now);
    return free_keys;
}

static void a_quota_counts_keys_until_they_are_over(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_party party = party_number(1);
    hx_ms now = START, wait = 0;
    for (unsigned i = 0; i < 10; i++) assert_true(begin(limiter, party, 10, now));
    assert_false(begin(limiter, party, 10, now));
    hx_limiter_settled(limiter, party, HX_ABSENT, 0, now); /* released: there is room again */
    assert_int_equal(room(limiter, party, 10, now), 1);
    for (unsigned i = 0; i < 9; i++) hx_limiter_settled(limiter, party, HX_COMPLETED, now + 10 * HX_SECOND, now);
    assert_int_equal(room(limiter, party, 10, now), 1);
    assert_true(begin(limiter, party, 10, now));
    assert_false(begin_or_wait(limiter, party, 10, now, &wait));
    assert_true(wait >= 10 * HX_SECOND && wait < 11 * HX_SECOND);
    assert_int_equal(room(limiter, party, 10, now + 10 * HX_SECOND - 1), 0);
    assert_int_equal(room(limiter, party, 10, now + wait - 1), 0);
    assert_int_equal(room(limiter, party, 10, now + wait), 9); /* the tenth is in flight still, or unknown */
    assert_int_equal(room(limiter, party, 10, now + 365 * HX_DAY), 9);
    hx_limiter_free(&limiter);
}

static void what_is_in_flight_has_no_known_end(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_ms wait = 0;
    assert_true(begin(limiter, party_number(1), 1, START));
    assert_false(begin_or_wait(limiter, party_number(1), 1, START, &wait));
    assert_int_equal(wait, 10 * HX_SECOND);
    hx_limiter_free(&limiter);
}

static void duplicates_at_once_take_one_place(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_party party = party_number(1);
    hx_op one = {.bytes = {1}}, other = {.bytes = {2}};
    hx_ms wait = 0;
    for (unsigned i = 0; i < 10; i++) assert_true(hx_limiter_begin(limiter, party, &one, 2, START, &wait));
    assert_true(hx_limiter_begin(limiter, party, &other, 2, START, &wait));
    assert_false(hx_limiter_begin(limiter, party, &(hx_op){0}, 2, START, &wait));
    for (unsigned i = 0; i < 10; i++) hx_limiter_claimed(limiter, party, &one, i == 3, START);
    assert_int_equal(room(limiter, party, 2, START), 0);
    hx_limiter_claimed(limiter, party, &other, false, START); /* the store had no room: nobody has it */
    assert_int_equal(room(limiter, party, 2, START), 1);
    hx_limiter_settled(limiter, party, HX_ABSENT, 0, START);
    assert_int_equal(room(limiter, party, 2, START), 2);
    hx_limiter_free(&limiter);
}

/* The first winner is through, and releases it, before the second one's claim is decided: that takes a place too. */
static void one_operation_can_be_won_twice(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_party party = party_number(1);
    hx_op op = {.bytes = {1}};
    hx_ms wait = 0;
    for (unsigned i = 0; i < 3; i++) assert_true(hx_limiter_begin(limiter, party, &op, 2, START, &wait));
    hx_limiter_claimed(limiter, party, &op, true, START);
    hx_limiter_settled(limiter, party, HX_ABSENT, 0, START);
    assert_int_equal(room(limiter, party, 2, START), 2);
    hx_limiter_claimed(limiter, party, &op, true, START);
    assert_int_equal(room(limiter, party, 2, START), 1);
    hx_limiter_claimed(limiter, party, &op, false, START);
    assert_int_equal(room(limiter, party, 2, START), 1);
    assert_true(hx_limiter_begin(limiter, party, &op, 2, START, &wait));
    hx_limiter_forget_keys(limiter); /* in the middle of a claim */
    hx_limiter_claimed(limiter, party, &op, true, START);
    hx_limiter_settled(limiter, party, HX_COMPLETED, START + HX_DAY, START);
    assert_int_equal(room(limiter, party, 2, START), 1);
    hx_limiter_free(&limiter);
}

/* Against a plain list of all keys, over lifetimes from seconds to months and leaps of the clock. */
static void counts_err_by_a_bucket_and_never_downwards(void **state)
{
    (void)state;
    enum { KEYS = 1000 };
    static const hx_ms lifetimes[] = {HX_SECOND, 30 * HX_SECOND, 10 * HX_MINUTE, HX_HOUR, HX_DAY, 30 * HX_DAY};
    for (size_t l = 0; l < sizeof lifetimes / sizeof *lifetimes; l++) {
        hx_ms lifetime = lifetimes[l], now = START, ends[KEYS];
        hx_limiter *limiter = hx_limiter_new();
        hx_rand_seed(l + 1);
        for (unsigned k = 0; k < KEYS; k++) {
            now += (hx_ms)hx_rand_below((uint64_t)lifetime / (hx_rand_below(10) == 0 ? 2 : 50) + 1);
            unsigned live = 0, maybe = 0;
            for (unsigned i = 0; i < k; i++) {
                hx_ms slack = lifetime / 32 > HX_SECOND ? lifetime / 32 : HX_SECOND;
                live += ends[i] > now;
                maybe += ends[i] + slack > now;
            }
            unsigned counted = KEYS - room(limiter, party_number(1), KEYS, now);
            assert_true(counted >= live && counted <= maybe);
            assert_true(begin(limiter, party_number(1), KEYS, now));
            ends[k] = now + lifetime;
            hx_limiter_settled(limiter, party_number(1), HX_COMPLETED, ends[k], now);
        }
        hx_limiter_free(&limiter);
    }
}

static void an_operator_makes_room_by_forgetting(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_party party = party_number(1);
    hx_ms ends[3] = {START + 5 * HX_SECOND, START + HX_HOUR, START + HX_DAY};
    for (unsigned i = 0; i < 3; i++) {
        assert_true(begin(limiter, party, 3, START));
        hx_limiter_settled(limiter, party, HX_COMPLETED, ends[i], START);
    }
    assert_int_equal(room(limiter, party, 3, START), 0);
    for (unsigned i = 0; i < 3; i++) {
        hx_limiter_forgotten(limiter, party, HX_FAILED, ends[i], START);
        assert_int_equal(room(limiter, party, 3, START), i + 1);
    }
    hx_limiter_forgotten(limiter, party, HX_FAILED, ends[0], START); /* nothing is left to forget */
    assert_int_equal(room(limiter, party, 3, START), 3);
    hx_limiter_free(&limiter);
}

static hx_record kept(hx_state status, hx_ms created_at, hx_ms changed_at, hx_ms expires_at)
{
    hx_record record = {.state = status,
                        .created_at = created_at,
                        .changed_at = changed_at,
                        .expires_at = expires_at,
                        .route = HX_LIT("refunds"),
                        .rule_version = HX_RULE_NAMED};
    memcpy(record.principal.bytes, &(uint64_t[2]){1, 1}, 16);
    return record;
}

static void keys_of_an_earlier_start_are_found(void **state)
{
    (void)state;
    hx_limiter *limiter = hx_limiter_new();
    hx_party party = party_number(1);
    hx_ms since = START, day = START + HX_DAY, now = START + 50;
    const hx_record records[] = {
        kept(HX_COMPLETED, since - 100, since - 50, day),
        kept(HX_FAILED, since - 100, since - 50, day),
        kept(HX_UNKNOWN, since - 100, since + 1, 0), /* an orphan, which the start itself made unknown */
        kept(HX_PROCESSING, since - 100, since - 50, 0),
    };
    const hx_record others[] = {
        kept(HX_EXPIRED, since - 100, since - 50, since - 10), /* a bare key is not live */
        kept(HX_COMPLETED, since - 100, since - 50, now),      /* over */
        kept(HX_PROCESSING, since, since, 0),                  /* counted by begin */
        kept(HX_COMPLETED, since - 100, since + 1, day),       /* counted by settled */
    };
    for (size_t i = 0; i < 4; i++) hx_limiter_found(limiter, &others[i], since, now);
    assert_int_equal(room(limiter, party, 10, now), 10);
    for (size_t i = 0; i < 4; i++) hx_limiter_found(limiter, &records[i], since, now);
    assert_int_equal(room(limiter, party, 10, now), 6);
    hx_limiter_settled(limiter, party, HX_COMPLETED, day, now); /* the unknown one is settled: still one key */
    hx_limiter_settled(limiter, party, HX_ABSENT, 0, now);      /* the one in flight is released */
    assert_int_equal(room(limiter, party, 10, now), 7);
    hx_limiter_settled(limiter, party, HX_COMPLETED, day, now); /* one that the list hadn't come to */
    assert_int_equal(room(limiter, party, 10, now), 6);
    hx_limiter_forget_keys(limiter);
    assert_int_equal(room(limiter, party, 10, now), 10);
    /* Found under way, and settled under the rules that it began with, which had no quota. */
    hx_limiter_found(limiter, &records[3], since, now);
    assert_int_equal(room(limiter, party, 10, now), 9);
    hx_record settled = kept(HX_COMPLETED, since - 100, now, now + HX_MINUTE);
    hx_limiter_settled_unlimited(limiter, &settled, now);
    assert_int_equal(room(limiter, party, 10, now), 9);
    hx_limiter_settled_unlimited(limiter, &records[0], now); /* one that was never counted */
    assert_int_equal(room(limiter, party, 10, now), 9);
    assert_int_equal(room(limiter, party, 10, now + HX_HOUR), 10);
    hx_limiter_free(&limiter);
}

/* Principals with live keys keep their places; those without give theirs up. */
static void a_full_table_of_keys_refuses_and_forgets_nobody(void **state)
{
    (void)state;
    enum { MANY = 400000 };
    hx_limiter *limiter = hx_limiter_new();
    hx_limiter_counts counts;
    bool *known = calloc(MANY, sizeof *known);
    unsigned let_in = 0;
    assert_non_null(known);
    for (unsigned i = 0; i < MANY; i++) {
        known[i] = begin(limiter, party_number(i), 1, START);
        if (known[i] && i % 2) hx_limiter_settled(limiter, party_number(i), HX_COMPLETED, START + HX_MINUTE, START);
        let_in += known[i];
    }
    assert_true(let_in > 230000 && let_in <= 262144);
    for (unsigned i = 0; i < MANY; i++) assert_false(begin(limiter, party_number(i), 1, START));
    hx_limiter_count(limiter, &counts);
    assert_int_equal(counts.quota_crowded, 2 * (MANY - let_in));
    assert_int_equal(counts.quota_refused, counts.quota_crowded + let_in);
    /* A minute later half of them have none; newcomers get their places, and nobody else's. */
    hx_ms later = START + HX_MINUTE + HX_SECOND;
    unsigned fresh = 0;
    for (unsigned i = MANY; i < MANY + 10000; i++) fresh += begin(limiter, party_number(i), 1, later);
    assert_int_equal(fresh, 10000);
    for (unsigned i = 0; i < MANY; i += 2)
        if (known[i]) assert_false(begin(limiter, party_number(i), 1, later));
    free(known);
    hx_limiter_free(&limiter);
}

typedef struct {
    hx_limiter *limiter;
    _Atomic int live;
    _Atomic int most;
} holders;

static void *hold_and_let_go(void *argument)
{
    holders *h = argument;
    for (unsigned i = 0; i < 20000; i++) {
        hx_ms now = START + i / 100 * HX_SECOND;
        if (!begin(h->limiter, party_number(7), 3, now)) continue;
        int live = atomic_fetch_add(&h->live, 1) + 1, most = atomic_load(&h->most);
        while (live > most && !atomic_compare_exchange_weak(&h->most, &most, live)) {}
        atomic_fetch_sub(&h->live, 1);
        if (i % 7 == 0)
            hx_limiter_settled(h->limiter, party_number(7), HX_COMPLETED, now + HX_SECOND, now);
        else
            hx_limiter_settled(h->limiter, party_number(7), HX_ABSENT, 0, now);
    }
    return NULL;
}

static void workers_share_one_quota(void **state)
{
    (void)state;
    holders h = {.limiter = hx_limiter_new()};
    run_threads(hold_and_let_go, &h);
    assert_true(h.most >= 1 && h.most <= 3);
    assert_int_equal(room(h.limiter, party_number(7), 3, START + HX_DAY), 3); /* nothing was left behind */
    hx_limiter_free(&h.limiter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fifty_a_second_are_fifty_at_once_and_one_every_20_ms),
        cmocka_unit_test(retry_after_is_when_the_next_one_is_let_in),
        cmocka_unit_test(a_route_without_a_rate_is_never_limited),
        cmocka_unit_test(principals_and_routes_do_not_share),
        cmocka_unit_test(a_record_names_the_same_party_as_its_request),
        cmocka_unit_test(a_changed_rate_begins_anew),
        cmocka_unit_test(a_full_table_refuses_and_forgets_nobody),
        cmocka_unit_test(workers_share_one_allowance),
        cmocka_unit_test(slots_that_change_hands_grant_nobody_more),
        cmocka_unit_test(a_quota_counts_keys_until_they_are_over),
        cmocka_unit_test(what_is_in_flight_has_no_known_end),
        cmocka_unit_test(duplicates_at_once_take_one_place),
        cmocka_unit_test(one_operation_can_be_won_twice),
        cmocka_unit_test(counts_err_by_a_bucket_and_never_downwards),
        cmocka_unit_test(an_operator_makes_room_by_forgetting),
        cmocka_unit_test(keys_of_an_earlier_start_are_found),
        cmocka_unit_test(a_full_table_of_keys_refuses_and_forgets_nobody),
        cmocka_unit_test(workers_share_one_quota),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
