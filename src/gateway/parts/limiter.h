/* SPDX-License-Identifier: Apache-2.0 */
/* `rate` and `quota`: how much one principal may ask of one route. One limiter for all workers and for the whole life
 * of the process, whatever is reloaded; bounded in memory, whatever comes. Where there is no space to remember one more
 * principal, that one is refused and counted: what is remembered of the others is never given up for it. */
#ifndef HX_GATEWAY_PARTS_LIMITER_H
#define HX_GATEWAY_PARTS_LIMITER_H

#include "core/operation/policy.h"
#include "core/operation/record.h"

typedef struct hx_limiter hx_limiter;

hx_limiter *hx_limiter_new(void);
void hx_limiter_free(hx_limiter **owned);

/* One principal on one route. */
typedef struct {
    uint64_t words[2];
} hx_party;

/* `route` is hx_policy_identity: empty for the defaults, all of whose paths count as one route, so that no caller gets
 * more by asking for other paths. `principal` is the store's MAC. Callers without a principal are one party. */
hx_party hx_limiter_party(hx_slice route, const hx_digest *principal);
/* The same from what the store keeps. */
hx_party hx_limiter_party_of(const hx_record *record);

/* rate. Takes one request off what `rate` allows: `50/s` is up to 50 at once, and one more every 20 ms; never more than
 * 50 + 50 * seconds in any time. False: none is left, and *retry_after is how long until there is one. What is refused
 * costs nothing. Without a lock. A rate that is changed starts full. */
bool hx_limiter_take(hx_limiter *limiter, hx_party party, hx_rate rate, hx_ms now, hx_ms *retry_after) HX_MUST_USE;

/* quota. A key is live from its claim until it is released or forgotten, or its lifetime is over; a tombstone is not.
 * One that is completed is counted a little longer than it lives (up to 1/32 of its lifetime), never shorter. All of
 * these take a lock of a few principals, for less than a microsecond; they are for routes with a quota only.
 *
 * begin: before the claim of an operation that is absent (not when an unknown one is taken over: that one is counted
 * already). Counts one more, unless there are `quota` of them; then *retry_after is when the next of them is over.
 * Those who try to claim one operation at the same time have one place together. Every success is followed by one
 * `claimed`, when the claim has ended. */
bool hx_limiter_begin(hx_limiter *limiter, hx_party party, const hx_op *op, uint32_t quota, hx_ms now,
                      hx_ms *retry_after) HX_MUST_USE;
/* won: it is processing, by us. Otherwise it was another's claim, or the store was full. */
void hx_limiter_claimed(hx_limiter *limiter, hx_party party, const hx_op *op, bool won, hx_ms now);
/* Once for each operation that was processing or unknown, by the one who settled it: it is completed or failed, and
 * lives until then; or it is absent, because it was released. One that became unknown stays counted as it is. */
void hx_limiter_settled(hx_limiter *limiter, hx_party party, hx_state state, hx_ms expires_at, hx_ms now);
/* The same for a request whose rules had no quota: a reload may have given its route one meanwhile, and found it under
 * way. Costs nothing where that never happened. */
void hx_limiter_settled_unlimited(hx_limiter *limiter, const hx_record *record, hx_ms now);
/* An operator removed it; `state`: its state before. */
void hx_limiter_forgotten(hx_limiter *limiter, hx_party party, hx_state state, hx_ms expires_at, hx_ms now);

/* Counting from the store (jobs/recount): at the start, and when a reload gives a quota to a route that had none. Until
 * it is through, counts may be too low. `since` is when it began, after hx_limiter_forget_keys. What began or ended
 * later than that is counted by the calls above, and left out here. */
void hx_limiter_found(hx_limiter *limiter, const hx_record *record, hx_ms since, hx_ms now);
void hx_limiter_forget_keys(hx_limiter *limiter);

/* Counters since the start; observe/metrics.def says what each is. */
typedef struct {
#define LIMITER(name, ...) uint64_t name;
#include "observe/metrics.def"
} hx_limiter_counts;

void hx_limiter_count(const hx_limiter *limiter, hx_limiter_counts *out);

#endif
