/* SPDX-License-Identifier: Apache-2.0 */
/* The claim in a store of our own. Attempts are counted over releases in the item "r/OPERATION". */
#include "base/check.h"
#include "base/hex.h"
#include "cmd/run/claim.h"
#include "core/crypto/mac.h"
#include "gateway/request.h"
#include "store/sync.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TAG_RUN 'R' /* of MACs; see HX_TAG_OPERATION */
#define SKIP_TRIES 100u

typedef struct {
    hx_run_claim claim;
    hx_store *store;
    hx_store_call renewal;
} in_store;

static in_store *of(hx_run_claim *c)
{
    return HX_OWNER(c, in_store, claim);
}

static void begin(hx_run_claim *c, hx_awaited *call)
{
    hx_await_begin(call, c->loop, c->arena);
}

static void sweep(hx_run_claim *c)
{
    hx_awaited call;
    begin(c, &call);
    hx_store_sweep(of(c)->store, &call.call);
    (void)hx_await(&call);
}

static hx_digest mac_of(hx_mac *mac, char tag, hx_slice text)
{
    hx_mac_begin(mac, tag);
    hx_mac_part(mac, text);
    return hx_mac_end(mac);
}

static void fill(in_store *s)
{
    hx_run_claim *c = &s->claim;
    hx_record *record = &c->record;
    hx_mac *mac = hx_mac_new(hx_store_about(s->store)->secret);
    hx_slice user = hx_arena_printf(c->arena, "%lu", (unsigned long)getuid());
    hx_mac_begin(mac, TAG_RUN);
    hx_mac_part(mac, HX_LIT("run"));
    hx_mac_part(mac, user);
    hx_mac_part(mac, c->key);
    hx_digest op = hx_mac_end(mac);
    memcpy(record->op.bytes, op.bytes, sizeof record->op.bytes);
    hx_mac_begin(mac, TAG_RUN);
    hx_mac_part(mac, HX_LIT("arguments"));
    for (char *const *word = c->argv; word && *word; word++) hx_mac_part(mac, hx_slice_of(*word));
    record->fingerprint = hx_mac_end(mac);
    record->principal = record->proof = mac_of(mac, HX_TAG_PRINCIPAL, user);
    record->key = mac_of(mac, HX_TAG_KEY, c->key);
    record->route = HX_LIT(HX_RUN_ROUTE);
    record->rule_version = HX_RULE_SHADOW; /* no route's rules apply */
    record->owner = hx_store_about(s->store)->owner;
    record->lifetime = c->lifetime;
    hx_mac_free(&mac);
}

static hx_store_result claim(hx_run_claim *c, hx_record *found)
{
    hx_awaited call;
    hx_record *record = &c->record;
    record->state = HX_PROCESSING;
    record->created_at = record->changed_at = c->now();
    record->lease_until = record->created_at + HX_RUN_LEASE;
    record->attempt = 1;
    begin(c, &call);
    hx_store_claim(of(c)->store, &call.call, record, 0);
    hx_store_result result = hx_await(&call);
    *found = call.call.found;
    if (result == HX_STORE_FULL) (void)hx_fail(c->error, "the store is full");
    if (result != HX_STORE_EXISTS || found->state != HX_PROCESSING || found->owner != record->owner) return result;
    record->epoch = found->epoch; /* the answer to an earlier claim was lost */
    record->lease_until = found->lease_until;
    return HX_STORE_OK;
}

static hx_store_result read_now(hx_run_claim *c, hx_record *found)
{
    hx_awaited call;
    sweep(c);
    begin(c, &call);
    hx_store_read(of(c)->store, &call.call, &c->record.op);
    hx_store_result result = hx_await(&call);
    *found = call.call.found;
    return result;
}

typedef struct {
    hx_awaited watch;
    hx_timer timer;
    hx_store *store;
} watching;

static void watched_long_enough(hx_timer *timer)
{
    watching *w = HX_OWNER(timer, watching, timer);
    hx_store_cancel(w->store, &w->watch.call);
}

static void await(hx_run_claim *c, const hx_record *found)
{
    watching w = {.store = of(c)->store};
    hx_ms left = found->lease_until - c->now();
    if (left <= 0) {
        sweep(c);
        return;
    }
    begin(c, &w.watch);
    hx_store_watch(w.store, &w.watch.call, &found->op, found->epoch);
    hx_timer_start(c->loop, &w.timer, left + HX_SECOND, watched_long_enough);
    (void)hx_await(&w.watch);
    hx_timer_stop(c->loop, &w.timer);
}

static void renewal_done(hx_store_call *call)
{
    in_store *s = HX_OWNER(call, in_store, renewal);
    if (call->result == HX_STORE_OK) s->claim.record.lease_until = call->lease_until;
    s->claim.renewed(&s->claim, call->result);
}

static void renew(hx_run_claim *c)
{
    in_store *s = of(c);
    s->renewal = (hx_store_call){.loop = c->loop, .arena = c->arena, .done = renewal_done};
    hx_store_renew(s->store, &s->renewal, &c->record.op, c->record.epoch, c->now() + HX_RUN_LEASE);
}

static hx_store_result settle(hx_run_claim *c, hx_record *found)
{
    hx_awaited call;
    begin(c, &call);
    hx_store_settle(of(c)->store, &call.call, &c->record);
    hx_store_result result = hx_await(&call);
    *found = call.call.found;
    if (result == HX_STORE_OK) sweep(c);
    return result;
}

/* Counters are items whose metadata is a number. */

static uint64_t read_counter(hx_run_claim *c, hx_slice key, hx_item *counter)
{
    hx_awaited get;
    uint64_t number = 0;
    *counter = (hx_item){.key = key};
    begin(c, &get);
    hx_store_get(of(c)->store, &get.call, counter, 1);
    if (hx_await(&get) != HX_STORE_OK || counter->version == 0 || !hx_slice_to_u64(counter->meta, &number)) return 0;
    return number;
}

static hx_slice attempts_key(hx_run_claim *c)
{
    char digits[2 * sizeof c->record.op.bytes];
    hx_hex_write(digits, c->record.op.bytes, sizeof c->record.op.bytes);
    return hx_arena_printf(c->arena, "r/%.*s", (int)sizeof digits, digits);
}

static unsigned attempts(hx_run_claim *c)
{
    hx_item unused;
    uint64_t number = read_counter(c, attempts_key(c), &unused);
    return number < UINT16_MAX ? (unsigned)number : 0;
}

static void note_attempts(hx_run_claim *c, unsigned number)
{
    hx_awaited commit;
    hx_item counter;
    (void)read_counter(c, attempts_key(c), &counter);
    counter.meta = hx_arena_printf(c->arena, "%u", number);
    counter.expires_at = c->now() + c->lifetime;
    begin(c, &commit);
    hx_store_commit(of(c)->store, &commit.call, &counter, 1, true);
    (void)hx_await(&commit);
}

/* Others count there, too, and perhaps at the same moment. */
static void note_skip(hx_run_claim *c)
{
    hx_store_result result = HX_STORE_STALE;
    for (unsigned i = 0; i < SKIP_TRIES && result == HX_STORE_STALE; i++) {
        hx_item counter;
        hx_awaited commit;
        uint64_t before = read_counter(c, HX_LIT(HX_ITEM_JOB_CONFLICTS), &counter);
        counter.meta = hx_arena_printf(c->arena, "%" PRIu64, before + 1);
        begin(c, &commit);
        hx_store_commit(of(c)->store, &commit.call, &counter, 1, false);
        result = hx_await(&commit);
    }
}

static void close_store(hx_run_claim *c)
{
    in_store *s = of(c);
    hx_store_close(&s->store);
    free(s);
}

hx_run_claim *hx_run_claim_in_store(const hx_run_claim *given, hx_slice url, hx_error_text error)
{
    static const hx_run_claim_ops ops = {.claim = claim,
                                         .read = read_now,
                                         .await = await,
                                         .renew = renew,
                                         .settle = settle,
                                         .attempts = attempts,
                                         .note_attempts = note_attempts,
                                         .note_skip = note_skip,
                                         .close = close_store};
    hx_store *store = hx_store_open(url, &(hx_store_options){.moves_clock = true}, error);
    if (!store) return NULL;
    in_store *s = calloc(1, sizeof *s);
    if (!s) hx_fatal(HX_EXIT_BUG, "out of memory");
    s->claim = *given;
    s->claim.ops = &ops;
    s->claim.now = hx_store_about(store)->now;
    s->store = store;
    hx_store_attach(store, given->loop);
    fill(s);
    return &s->claim;
}

void hx_run_claim_close(hx_run_claim **owned)
{
    if (*owned) (*owned)->ops->close(*owned);
    *owned = NULL;
}
