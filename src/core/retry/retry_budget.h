/* SPDX-License-Identifier: Apache-2.0 */
/* The retry budget of one upstream (contract §6): a failing upstream must not be flooded by the retries of all
 * requests. Two accounts, both in whole numbers, so that nothing drifts:
 *
 *     the share   every fifth request pays one retry in; what isn't used within 10 seconds is gone
 *     the floor   refills by 10 retries a second, up to 10
 *
 * A retry is reserved when it is scheduled, so that those that wait out their delay count; when it is settled, one that
 * was sent stays spent, whatever its answer, and one that was given up goes back. What must hold:
 * 1. in any window, retries reserved - given back <= a fifth of the requests in it and in the 10 s before it (and of
 *    up to four before those) + 10/s * the window + 10. Those sent may be as many more as were waiting when it began;
 *    over a whole run attempts are <= 1.2 * requests + the floor;
 * 2. whatever happened before, a second without retries is enough for 10 more.
 *
 * For one thread: each worker has its own budget and knows how many there are, so that all floors add up to 10 a
 * second. */
#ifndef HX_CORE_RETRY_RETRY_BUDGET_H
#define HX_CORE_RETRY_RETRY_BUDGET_H

#include "base/clock.h"

#define HX_RETRY_BUDGET_REQUESTS_A_RETRY 5u /* 20 % */
#define HX_RETRY_BUDGET_FLOOR_A_SECOND 10u
#define HX_RETRY_BUDGET_WINDOW_SECONDS 10u
#define HX_RETRY_BUDGET_PARTS_MAX 1024u

typedef struct {
    unsigned parts; /* of one floor: how many workers share it */
    unsigned begun; /* requests since the last retry was paid in, below HX_RETRY_BUDGET_REQUESTS_A_RETRY */
    hx_ms now;      /* the latest time seen; it never goes back */
    int64_t floor;  /* in thousandths of a retry, times parts: 10 for every millisecond */
    uint32_t share[HX_RETRY_BUDGET_WINDOW_SECONDS]; /* retries left of each second, at second modulo the window */
    uint64_t reserved;                              /* scheduled and not settled */
    uint64_t spent;                                 /* sent, since the start */
    uint64_t refused;                               /* asked for in vain, since the start */
} hx_retry_budget;

/* Kept with the retry until it is settled; all zero when nothing is reserved. */
typedef struct {
    enum { HX_RESERVED_NOTHING, HX_RESERVED_FLOOR, HX_RESERVED_SHARE } from;
    int64_t second; /* whose share it was */
} hx_reservation;

void hx_retry_budget_init(hx_retry_budget *budget, unsigned parts, hx_ms now);
/* At every operation's first attempt; never for a retry. */
void hx_retry_budget_request(hx_retry_budget *budget, hx_ms now);
/* False when there is none left: the retry must not be made. */
bool hx_retry_budget_reserve(hx_retry_budget *budget, hx_ms now, hx_reservation *reservation) HX_MUST_USE;
/* Exactly once for each reservation: `sent` when the retry was begun (when its first byte went out, or its connect
 * failed), false when it was given up before. Leaves *reservation empty, and does nothing for an empty one. */
void hx_retry_budget_settle(hx_retry_budget *budget, hx_ms now, hx_reservation *reservation, bool sent);
/* How many retries could be reserved now. */
uint64_t hx_retry_budget_left(hx_retry_budget *budget, hx_ms now);

#endif
