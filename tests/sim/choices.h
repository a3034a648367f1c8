/* SPDX-License-Identifier: Apache-2.0 */
/* Where every decision of a run comes from. A run is a function of its choices, and they follow from one 64-bit seed.
 * Whoever decides has a list of its own (a client, an operation at the store, the same operation at the application),
 * so that what is left out of one list changes nothing in the others. The lists are kept: a failure can be replayed,
 * and made smaller by shortening them and setting values to 0, which always means the quietest thing that could
 * happen; past the end of a list everything is 0. */
#ifndef HX_TESTS_SIM_CHOICES_H
#define HX_TESTS_SIM_CHOICES_H

#include "base/clock.h"

#define SIM_CLIENTS_MAX 12u
#define SIM_OPS_MAX 96u

/* Who decides. */
enum {
    SIM_BY_WORLD,    /* how many nodes, clients and keys there are, and which rates */
    SIM_BY_TROUBLES, /* what befalls everyone */
    SIM_BY_TIME,     /* what is first of two things at the same moment */
    SIM_BY_JOBS,     /* what the store does to the cleaning job's calls */
    SIM_BY_CLIENT,
    SIM_BY_STORE = SIM_BY_CLIENT + SIM_CLIENTS_MAX,
    SIM_BY_APP = SIM_BY_STORE + SIM_OPS_MAX,
    SIM_BY_PASSING = SIM_BY_APP + SIM_OPS_MAX, /* of what goes to the application unkeyed */
    SIM_LISTS
};

typedef struct {
    uint32_t *values;
    uint32_t count;
    uint32_t cap;
} sim_list;

typedef struct {
    sim_list lists[SIM_LISTS];
} sim_choices;

/* From here on choices follow from the seed, and are kept. */
void sim_choices_draw(uint64_t seed);
/* From here on they are these. */
void sim_choices_replay(const sim_choices *choices);
/* What was chosen since then, and how many that were. */
const sim_choices *sim_choices_made(void);
uint64_t sim_choices_count(const sim_choices *choices);
/* From here on nothing but the quietest is chosen, and nothing is kept. */
void sim_choices_calm(void);

void sim_list_append(sim_list *list, uint32_t value);

/* One of 0 … bound-1. */
uint32_t sim_choose(unsigned by, uint32_t bound);
/* True `per_mille` times in a thousand. */
bool sim_chance(unsigned by, unsigned per_mille);
/* from … to, where short spans are as likely as long ones; `from` is the quietest. */
hx_ms sim_span(unsigned by, hx_ms from, hx_ms to);
/* How often something goes wrong in this world: never in many, a fifth of `much` in most, `much` in some. */
unsigned sim_rate(unsigned much);

#endif
