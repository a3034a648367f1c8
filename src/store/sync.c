/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sync.h"

#include "base/memory/list.h"

static void call_done(hx_store_call *call)
{
    HX_OWNER(call, hx_awaited, call)->done = true;
    hx_loop_stop(call->loop);
}

void hx_await_begin(hx_awaited *awaited, hx_loop *loop, hx_arena *arena)
{
    *awaited = (hx_awaited){.call = {.loop = loop, .arena = arena, .done = call_done}};
}

hx_store_result hx_await(hx_awaited *awaited)
{
    while (!awaited->done) hx_loop_run(awaited->call.loop);
    return awaited->call.result;
}
