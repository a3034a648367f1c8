/* SPDX-License-Identifier: Apache-2.0 */
#include "choices.h"

#include "base/check.h"

#include <stdlib.h>

static struct {
    sim_choices made;
    uint64_t count;
    uint64_t states[SIM_LISTS];
    const sim_choices *given;
    enum { DRAWING, REPLAYING, CALM } mode;
} source;

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void forget_made(void)
{
    for (unsigned i = 0; i < SIM_LISTS; i++) source.made.lists[i].count = 0;
    source.count = 0;
}

void sim_choices_draw(uint64_t seed)
{
    forget_made();
    source.mode = DRAWING;
    for (unsigned i = 0; i < SIM_LISTS; i++) source.states[i] = next_random(&seed);
}

void sim_choices_replay(const sim_choices *choices)
{
    forget_made();
    source.mode = REPLAYING;
    source.given = choices;
}

const sim_choices *sim_choices_made(void)
{
    return &source.made;
}

uint64_t sim_choices_count(const sim_choices *choices)
{
    if (choices == &source.made) return source.count;
    uint64_t count = 0;
    for (unsigned i = 0; i < SIM_LISTS; i++) count += choices->lists[i].count;
    return count;
}

void sim_choices_calm(void)
{
    source.mode = CALM;
}

void sim_list_append(sim_list *list, uint32_t value)
{
    if (list->count == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 64;
        list->values = realloc(list->values, list->cap * sizeof *list->values);
        if (!list->values) hx_fatal(HX_EXIT_BUG, "out of memory");
    }
    list->values[list->count++] = value;
}

uint32_t sim_choose(unsigned by, uint32_t bound)
{
    HX_CHECK(bound > 0 && by < SIM_LISTS);
    uint32_t value = 0;
    sim_list *made = &source.made.lists[by];
    switch (source.mode) {
    case CALM: return 0;
    case DRAWING: value = (uint32_t)(((next_random(&source.states[by]) >> 32) * bound) >> 32); break;
    case REPLAYING:
        if (made->count < source.given->lists[by].count) value = source.given->lists[by].values[made->count] % bound;
        break;
    }
    sim_list_append(made, value);
    source.count++;
    return value;
}

bool sim_chance(unsigned by, unsigned per_mille)
{
    return per_mille > 0 && sim_choose(by, 1000) >= 1000 - per_mille;
}

hx_ms sim_span(unsigned by, hx_ms from, hx_ms to)
{
    HX_CHECK(from <= to);
    unsigned doublings = 0;
    while (((to - from) >> doublings) > 0) doublings++;
    hx_ms most = ((hx_ms)1 << sim_choose(by, doublings + 1)) - 1;
    if (most > to - from) most = to - from;
    return from + (hx_ms)sim_choose(by, (uint32_t)most + 1);
}

unsigned sim_rate(unsigned much)
{
    unsigned of_four = sim_choose(SIM_BY_WORLD, 4);
    return of_four == 0 ? 0 : of_four == 3 ? much : much / 5;
}
