/* SPDX-License-Identifier: Apache-2.0 */
#include "core/retry/retry_budget.h"

#include "base/check.h"

#define SHARE_MAX (UINT32_MAX / 2)

static int64_t retry_cost(const hx_retry_budget *budget)
{
    return (int64_t)1000 * budget->parts;
}

/* A part never holds less than one retry, or it could never make any. */
static int64_t floor_max(const hx_retry_budget *budget)
{
    unsigned retries_of_all = budget->parts > HX_RETRY_BUDGET_FLOOR_A_SECOND ? budget->parts
                                                                             : HX_RETRY_BUDGET_FLOOR_A_SECOND;
    return (int64_t)1000 * retries_of_all;
}

static uint32_t *share_of(hx_retry_budget *budget, int64_t second)
{
    return &budget->share[second % HX_RETRY_BUDGET_WINDOW_SECONDS];
}

/* Refills the floor and drops old shares. A clock that stops or is set back changes nothing. */
static void advance(hx_retry_budget *budget, hx_ms now)
{
    if (now <= budget->now) return;
    int64_t full = floor_max(budget);
    hx_ms passed = now - budget->now < full ? now - budget->now : full; /* more can't matter, but could overflow */
    budget->floor += passed * HX_RETRY_BUDGET_FLOOR_A_SECOND;
    if (budget->floor > full) budget->floor = full;
    int64_t second = budget->now / HX_SECOND, second_now = now / HX_SECOND;
    if (second_now - second > HX_RETRY_BUDGET_WINDOW_SECONDS) second = second_now - HX_RETRY_BUDGET_WINDOW_SECONDS;
    while (second < second_now) *share_of(budget, ++second) = 0;
    budget->now = now;
}

void hx_retry_budget_init(hx_retry_budget *budget, unsigned parts, hx_ms now)
{
    HX_CHECK(parts >= 1 && parts <= HX_RETRY_BUDGET_PARTS_MAX && now >= 0);
    *budget = (hx_retry_budget){.parts = parts, .now = now};
    budget->floor = floor_max(budget);
}

void hx_retry_budget_request(hx_retry_budget *budget, hx_ms now)
{
    advance(budget, now);
    if (++budget->begun < HX_RETRY_BUDGET_REQUESTS_A_RETRY) return;
    budget->begun = 0;
    uint32_t *share = share_of(budget, budget->now / HX_SECOND);
    if (*share < SHARE_MAX) ++*share;
}

/* The floor goes first, since it refills by itself; then the share that would be gone soonest. */
static bool take(hx_retry_budget *budget, hx_reservation *taken)
{
    if (budget->floor >= retry_cost(budget)) {
        budget->floor -= retry_cost(budget);
        *taken = (hx_reservation){.from = HX_RESERVED_FLOOR};
        return true;
    }
    int64_t newest = budget->now / HX_SECOND, second = newest - (HX_RETRY_BUDGET_WINDOW_SECONDS - 1);
    if (second < 0) second = 0;
    for (; second <= newest; second++) {
        uint32_t *share = share_of(budget, second);
        if (*share == 0) continue;
        --*share;
        *taken = (hx_reservation){.from = HX_RESERVED_SHARE, .second = second};
        return true;
    }
    return false;
}

bool hx_retry_budget_reserve(hx_retry_budget *budget, hx_ms now, hx_reservation *reservation)
{
    advance(budget, now);
    bool taken = take(budget, reservation);
    if (taken) {
        budget->reserved++;
    } else {
        *reservation = (hx_reservation){.from = HX_RESERVED_NOTHING};
        budget->refused++;
    }
    return taken;
}

static void give_back(hx_retry_budget *budget, const hx_reservation *reservation)
{
    if (reservation->from == HX_RESERVED_FLOOR) {
        budget->floor += retry_cost(budget);
        if (budget->floor > floor_max(budget)) budget->floor = floor_max(budget);
    } else if (budget->now / HX_SECOND - reservation->second < HX_RETRY_BUDGET_WINDOW_SECONDS) {
        uint32_t *share = share_of(budget, reservation->second); /* an older one would be gone by now anyway */
        if (*share < SHARE_MAX) ++*share;
    }
}

void hx_retry_budget_settle(hx_retry_budget *budget, hx_ms now, hx_reservation *reservation, bool sent)
{
    advance(budget, now);
    if (reservation->from == HX_RESERVED_NOTHING) return;
    HX_CHECK(budget->reserved > 0);
    budget->reserved--;
    if (sent)
        budget->spent++;
    else
        give_back(budget, reservation);
    *reservation = (hx_reservation){.from = HX_RESERVED_NOTHING};
}

uint64_t hx_retry_budget_left(hx_retry_budget *budget, hx_ms now)
{
    advance(budget, now);
    uint64_t left = (uint64_t)(budget->floor / retry_cost(budget));
    for (unsigned i = 0; i < HX_RETRY_BUDGET_WINDOW_SECONDS; i++) left += budget->share[i];
    return left;
}
