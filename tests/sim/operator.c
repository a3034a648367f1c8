/* SPDX-License-Identifier: Apache-2.0 */
/* An operator who looks at what is unknown and, by their own word, frees it or adopts an outcome. Their word is law: an
 * operation that they freed may run again, whatever became of it. */
#include "world.h"

#include "base/check.h"

typedef struct {
    hx_store_call call;
    hx_record record;
    hx_arena arena;
} act;

static void act_done(hx_store_call *call)
{
    sim_model_effect(call, SIM_FATE_OK);
}

static sim_op *choose_unknown(void)
{
    unsigned count = 0;
    for (size_t i = 0; i < SIM_OPS_MAX; i++) count += world.ops[i].used && world.ops[i].state == HX_UNKNOWN;
    if (count == 0) return NULL;
    unsigned chosen = sim_choose(SIM_BY_TROUBLES, count);
    for (size_t i = 0; i < SIM_OPS_MAX; i++)
        if (world.ops[i].used && world.ops[i].state == HX_UNKNOWN && chosen-- == 0) return &world.ops[i];
    return NULL;
}

void sim_operator_acts(void)
{
    sim_op *op = choose_unknown();
    if (!op) return;
    act a = {.arena = {0}};
    bool frees = sim_chance(SIM_BY_TROUBLES, 500);
    SIM_TRACE("an operator %s %s", frees ? "frees" : "adopts an outcome for", sim_op_name(op));
    a.call = (hx_store_call){.loop = world.store_loop, .arena = &a.arena, .done = act_done};
    if (frees) {
        hx_store_forget(world.state, &a.call, &op->id, op->epoch, HX_LIT("the operator says so"));
    } else {
        hx_peek peek = world.state->ops->peek(world.state, &op->id, &a.arena, 0, &a.record);
        HX_CHECK(peek == HX_PEEK_FOUND);
        a.record.from_state = HX_UNKNOWN;
        a.record.state = HX_COMPLETED;
        a.record.changed_at = sim_now();
        a.record.expires_at = sim_now() + sim_policy(op)->lifetime;
        a.record.reason = HX_LIT("the operator says so");
        a.record.answer = (hx_answer){.status = 200,
                                      .retained = true,
                                      .headers = HX_LIT("Content-Type: text/plain\r\n"),
                                      .body = HX_LIT("it was done")};
        op->life->adopted = true;
        hx_store_settle(world.state, &a.call, &a.record);
    }
    sim_run_tasks(world.store_loop);
    hx_arena_free(&a.arena);
}
