/* SPDX-License-Identifier: Apache-2.0 */
/* What `hapax prove` prints: what it is about to send, and what each case showed. Everything that came from the API
 * goes through hx_cmd_put_text or hx_keys_clean. */
#ifndef HX_CMD_PROVE_VIEW_H
#define HX_CMD_PROVE_VIEW_H

#include "cmd/prove/prover.h"

typedef struct {
    hx_prove_seen seen[HX_PROVE_CASE_COUNT][HX_PROVE_WAYS];
    hx_prove_verdict verdicts[HX_PROVE_CASE_COUNT][HX_PROVE_WAYS];
    bool has_way[HX_PROVE_WAYS];
} hx_prove_results;

/* The worst verdict of one way: BROKEN, then UNCLEAR, then SAFE. Cases that were not run don't count. */
hx_prove_word hx_prove_summary(const hx_prove_results *results, hx_prove_way way);
/* On standard error. */
void hx_prove_show_plan(const hx_prove_plan *plan, bool is_bare);
void hx_prove_show(const hx_prove_plan *plan, const hx_prove_results *results, hx_arena *arena);
void hx_prove_show_json(const hx_prove_plan *plan, const hx_prove_results *results, hx_arena *arena);

#endif
