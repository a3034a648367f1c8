/* SPDX-License-Identifier: Apache-2.0 */
/* Calls go out in batches, each on an operation of its own, and a batch is waited for: so a run has the same points
 * each time, as far as the store's own threads allow. Every answer is held against the model. */
#include "workload.h"

#include "base/check.h"
#include "store/audit/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BATCH_MAX 8u
#define FULL_BATCHES 16u /* how long the disk stays full: as much as the reserve must carry */
#define ROOM_WAIT_MS 20  /* between batches, until a claim has got through again */
#define BUSY_LOOKS_MAX 10000u
#define EPOCH_OF_TIME 1700000000000
#define AUDIT_RETENTION (40 * HX_SECOND)

typedef struct {
    hx_store_call call; /* first: completions cast back */
    hx_record record;
    hx_arena arena;
    uint32_t op;
    bool done;
    truth before;
} slot;

static hx_store *store;
static hx_loop *loop;
static slot slots[BATCH_MAX];
static unsigned slot_count;
static unsigned running;
static uint64_t epoch_floor; /* when this batch began */
static hx_store_call sweep_call;
static char store_url[PATH_MAX + 16];
static const crash_report *shim;
static bool room_again;
static bool broken; /* the disk is not full, but fails */
static uint32_t body_max;

static bool disk_is_full(void)
{
    return shim && atomic_load(&shim->fired) && !room_again;
}

/* The store may notice a while later that there is space. */
static bool may_refuse(void)
{
    return disk_is_full() || (room_again && atomic_load(&the_world->claims_after) == 0);
}

bool workload_try_open(const workload *w, hx_error_text error)
{
    char url[PATH_MAX + 16];
    snprintf(url, sizeof url, "%s:%s", world_leases ? "sqlite" : "journal", w->folder);
    if (world_now() == 0) world_note(&(entry){.kind = ENTRY_TIME, .number = EPOCH_OF_TIME});
    hx_store_options options = {.now = world_now,
                                .segment_bytes = w->segment_bytes,
                                .free_bytes_floor = 1,
                                .audit_retention = AUDIT_RETENTION};
    snprintf(store_url, sizeof store_url, "%s", url);
    body_max = w->body_max;
    shim = w->shim;
    broken = shim && !w->space;
    store = hx_store_open(hx_slice_of(url), &options, error);
    if (!store) return false;
    loop = hx_loop_new();
    hx_store_attach(store, loop);
    world_note(&(entry){.kind = ENTRY_OPENED});
    return true;
}

void workload_open(const workload *w)
{
    hx_error_text error = "";
    if (!workload_try_open(w, error)) world_wrong("the store does not open: %s", error);
}

static void audit_problem(void *context, const char *sentence)
{
    (void)context;
    world_wrong("the audit is broken: %s", sentence);
}

void workload_audit(void)
{
    hx_audit read = {.problem = audit_problem};
    hx_error_text error;
    if (!hx_audit_read(hx_slice_of(store_url), &read, error)) world_wrong("the audit can't be read: %s", error);
}

void workload_close(void)
{
    hx_store_close(&store);
    hx_loop_free(&loop);
}

static bool lapsed(const truth *t)
{
    return t->state == HX_PROCESSING && world_now() >= t->lease_until;
}

static const char *differs(uint32_t op, const truth *t, const hx_record *found)
{
    const char *what = record_differs(op, t, truth_state(t, world_now()), found);
    if (what && lapsed(t)) what = record_differs(op, t, HX_UNKNOWN, found);
    return what;
}

static void describe(char *out, size_t bytes, const truth *t)
{
    snprintf(out, bytes, "%s epoch %" PRIu64 " (claim %u, outcome %u of %u bytes, expires at %" PRId64 ", %s)",
             hx_state_name(truth_state(t, world_now())), t->epoch, t->claim_serial, t->outcome_serial, t->body_len,
             t->expires_at, t->asked ? "a change was asked for" : "nothing was asked for");
}

bool workload_peek(uint32_t op, hx_arena *arena, hx_record *found)
{
    hx_op name = op_of(op);
    *found = (hx_record){.state = HX_ABSENT};
    hx_peek result = hx_store_peek(store, &name, arena, found);
    for (unsigned i = 0; result == HX_PEEK_ASK && world_leases && i < BUSY_LOOKS_MAX; i++) {
        hx_loop_turn(loop, 1); /* a look doesn't wait for who holds the file; we do */
        result = hx_store_peek(store, &name, arena, found);
    }
    if (result == HX_PEEK_ASK) world_wrong("peek: the store can't tell");
    if (result == HX_PEEK_ABSENT) *found = (hx_record){.state = HX_ABSENT};
    return result == HX_PEEK_FOUND;
}

const char *workload_items_differ(const item_model *items, bool *unreadable)
{
    return hx_store_about(store)->keeps_items ? items_differ(store, loop, items, unreadable) : NULL;
}

const hx_store_facts *workload_facts(void)
{
    return hx_store_about(store);
}

static void peek_compare(uint32_t op, const char *when)
{
    hx_arena arena = {0};
    hx_record found;
    char want[256];
    workload_peek(op, &arena, &found);
    const truth *t = &the_model.op[op];
    const char *what = differs(op, t, &found);
    if (what) {
        describe(want, sizeof want, t);
        world_wrong("%s: operation %u: %s differs: found %s epoch %" PRIu64 " rule %u, not %s", when, op, what,
                    hx_state_name(found.state), found.epoch, found.rule_version, want);
    }
    hx_arena_free(&arena);
}

static void compare_items(const char *when)
{
    const char *what = workload_items_differ(&the_model.items, NULL);
    if (what) world_wrong("%s: %s", when, what);
}

void workload_compare(const char *when)
{
    for (uint32_t op = 0; op < OPS; op++) peek_compare(op, when);
    compare_items(when);
}

static void reconcile(uint32_t op)
{
    const truth *t = &the_model.op[op];
    hx_arena arena = {0};
    hx_record found;
    workload_peek(op, &arena, &found);
    const char *what = differs(op, t, &found);
    bool happened = false;
    if (what && t->asked) {
        bool claims = t->wanted.verb == HX_STORE_CLAIM;
        truth after = truth_after(t, claims ? found.epoch : t->wanted.epoch);
        if (after.state == HX_PROCESSING && !world_leases) after.state = HX_UNKNOWN;
        happened = record_differs(op, &after, truth_state(&after, world_now()), &found) == NULL;
        if (happened && claims && found.epoch <= epoch_floor)
            world_wrong("operation %u: the epoch %" PRIu64 " was used before", op, found.epoch);
    }
    if (what && !happened) {
        char want[256];
        describe(want, sizeof want, t);
        world_wrong("after the crash: operation %u: %s differs: found %s epoch %" PRIu64 " rule %u, not %s", op, what,
                    hx_state_name(found.state), found.epoch, found.rule_version, want);
    }
    if (t->asked)
        world_note(&(entry){.kind = ENTRY_RESOLVED,
                            .op = op,
                            .result = happened ? HX_STORE_OK : HX_STORE_UNAVAILABLE,
                            .number = happened && t->wanted.verb == HX_STORE_CLAIM ? found.epoch : t->epoch});
    hx_arena_free(&arena);
}

void workload_reconcile(void)
{
    epoch_floor = the_model.epoch_max;
    for (uint32_t op = 0; op < OPS; op++) reconcile(op);
    if (hx_store_about(store)->keeps_items) items_reconcile(store, loop, "after the crash");
}

static hx_store_result expected(const truth *t)
{
    const change *c = &t->wanted;
    hx_state state = truth_state(t, world_now());
    bool open = state == HX_PROCESSING || state == HX_UNKNOWN;
    switch (c->verb) {
    case HX_STORE_CLAIM:
        if (state == HX_ABSENT || (state == HX_UNKNOWN && c->epoch == t->epoch)) return HX_STORE_OK;
        return HX_STORE_EXISTS;
    case HX_STORE_SETTLE: return open && c->epoch == t->epoch ? HX_STORE_OK : HX_STORE_STALE;
    default: return HX_STORE_OK;
    }
}

static const char *const result_names[] = {"OK", "EXISTS", "STALE", "FULL", "UNAVAILABLE", "CANCELLED"};

static void ask_done(hx_store_call *call)
{
    slot *s = (slot *)(void *)call;
    const truth *t = &s->before;
    hx_store_result want = expected(t);
    bool full = want == HX_STORE_OK && may_refuse() &&
                (call->verb == HX_STORE_CLAIM ? call->result == HX_STORE_FULL
                                              : broken && call->result == HX_STORE_UNAVAILABLE);
    full |= world_leases && broken && may_refuse() && call->result == HX_STORE_UNAVAILABLE; /* all of a batch */
    if (full) atomic_fetch_add(&the_world->claims_refused, 1);
    HX_CHECK(!s->done);
    s->done = true;
    running--;
    if (call->result != want && !full) {
        char text[256];
        describe(text, sizeof text, t);
        world_wrong("batch %" PRIu64 ": verb %d to state %s with epoch %" PRIu64
                    " ended %s, not %s; operation %u is %s",
                    the_model.batch, (int)call->verb, hx_state_name(t->wanted.state), t->wanted.epoch,
                    result_names[call->result], result_names[want], s->op, text);
    }
    if (!full && (want == HX_STORE_EXISTS || want == HX_STORE_STALE)) {
        const char *what = differs(s->op, t, &call->found);
        if (what)
            world_wrong("batch %" PRIu64 ": operation %u: %s of what was found (%s epoch %" PRIu64 ") differs",
                        the_model.batch, s->op, what, hx_state_name(call->found.state), call->found.epoch);
    }
    uint64_t epoch = call->verb == HX_STORE_CLAIM ? s->record.epoch : t->epoch;
    if (call->verb == HX_STORE_CLAIM && call->result == HX_STORE_OK) {
        for (uint32_t op = 0; op < OPS; op++)
            if (the_model.op[op].epoch == epoch) world_wrong("the epoch %" PRIu64 " was given twice", epoch);
        if (epoch <= epoch_floor) world_wrong("the epoch %" PRIu64 " is not above %" PRIu64, epoch, epoch_floor);
        if (room_again) atomic_fetch_add(&the_world->claims_after, 1);
    }
    world_note(&(entry){.kind = ENTRY_ANSWERED, .op = s->op, .result = call->result, .number = epoch});
}

static void ask(uint32_t op, change c)
{
    HX_CHECK(slot_count < BATCH_MAX);
    slot *s = &slots[slot_count++];
    *s = (slot){.op = op};
    c.serial = the_model.serial + 1;
    c.at = world_now();
    world_note(&(entry){.kind = ENTRY_ASKED, .op = op, .change = c});
    s->before = the_model.op[op];
    s->call.loop = loop;
    s->call.arena = &s->arena;
    s->call.done = ask_done;
    running++;
    truth after = truth_after(&s->before, c.verb == HX_STORE_CLAIM ? 0 : c.epoch);
    hx_op name = op_of(op);
    switch (c.verb) {
    case HX_STORE_CLAIM:
        record_of(op, &after, HX_PROCESSING, &s->arena, &s->record);
        hx_store_claim(store, &s->call, &s->record, c.epoch);
        break;
    case HX_STORE_SETTLE:
        record_of(op, &after, c.state, &s->arena, &s->record);
        s->record.epoch = c.epoch;
        if (c.state == HX_UNKNOWN) s->record.reason = HX_LIT("DEPENDENCY.timeout");
        hx_store_settle(store, &s->call, &s->record);
        break;
    case HX_STORE_RENEW: hx_store_renew(store, &s->call, &name, c.epoch, c.lease_until); break;
    default: hx_store_forget(store, &s->call, &name, c.epoch, HX_LIT("by hand")); break;
    }
}

static void sweep_done(hx_store_call *call)
{
    running--;
    bool may_fail = world_leases && broken && disk_is_full();
    if (call->result != HX_STORE_OK && !may_fail) world_wrong("a sweep ended %s", result_names[call->result]);
}

static void sweep(void)
{
    sweep_call = (hx_store_call){.loop = loop, .done = sweep_done};
    running++;
    hx_store_sweep(store, &sweep_call);
}

static bool may_refuse_items(void)
{
    return may_refuse() && (broken || !the_model.items.wanted.is_small);
}

/* On a full disk it is small, and urgent: there must be space. */
static void ask_items(void)
{
    if (hx_store_about(store)->keeps_items)
        items_ask(store, loop, the_model.items.wanted.serial + 1, disk_is_full(), may_refuse_items);
}

static void finish_batch(void)
{
    while (running > 0 || !items_done()) hx_loop_turn(loop, HX_SECOND);
    const char *what = the_model.items.wanted.serial > 0 ? items_last_differ(store, loop) : NULL;
    if (the_model.items.asked)
        items_reconcile(store, loop, "after a failure");
    else if (what)
        world_wrong("after its answer: %s", what);
    for (unsigned i = 0; i < slot_count; i++) {
        peek_compare(slots[i].op, "after its answer");
        hx_arena_free(&slots[i].arena);
    }
    slot_count = 0;
    epoch_floor = the_model.epoch_max;
}

static uint64_t rng_state;

static uint32_t draw(uint32_t below)
{
    rng_state = mix(rng_state, 7);
    return (uint32_t)((rng_state >> 20) % below);
}

/* Times end in 5 and the clock in 0: nothing is due in the very millisecond in which it is looked at. */
static hx_ms later(uint32_t seconds_min, uint32_t seconds_spread)
{
    return world_now() + (hx_ms)(seconds_min + draw(seconds_spread)) * HX_SECOND + 5;
}

static change outcome(hx_state state, uint64_t epoch)
{
    change c = {.verb = HX_STORE_SETTLE, .state = state, .epoch = epoch};
    if (state != HX_COMPLETED && state != HX_FAILED) return c;
    uint32_t size = draw(100);
    c.body_len = size < 20 ? 0 : size < 60 ? draw(200) : size < 90 ? draw(body_max / 5) : draw(body_max);
    if (disk_is_full()) c.body_len = draw(200);
    c.expires_at = draw(10) == 0 ? later(3600, 3600) : later(5, 40);
    if (draw(4) == 0) c.tombstone_until = c.expires_at + (hx_ms)(5 + draw(30)) * HX_SECOND;
    return c;
}

static change claim(uint64_t take_over)
{
    return (change){.verb = HX_STORE_CLAIM, .epoch = take_over, .lease_until = later(15, 60)};
}

/* What to do with an operation in its current state; false: nothing. */
static bool choose(const truth *t, change *c)
{
    uint32_t dice = draw(100);
    switch (truth_state(t, world_now())) {
    case HX_ABSENT: *c = dice < 10 && t->epoch > 0 ? outcome(HX_COMPLETED, t->epoch) : claim(0); return true;
    case HX_PROCESSING:
        if (dice < 45)
            *c = outcome(HX_COMPLETED, t->epoch);
        else if (dice < 60)
            *c = outcome(HX_FAILED, t->epoch);
        else if (dice < 72 && !lapsed(t))
            *c = outcome(HX_UNKNOWN, t->epoch);
        else if (dice < 84)
            *c = outcome(HX_ABSENT, t->epoch);
        else if (dice < 90 && !lapsed(t))
            *c = (change){.verb = HX_STORE_RENEW, .epoch = t->epoch, .lease_until = later(20, 40)};
        else if (dice < 95)
            *c = claim(0);
        else
            *c = outcome(HX_COMPLETED, t->epoch - 1);
        return true;
    case HX_UNKNOWN:
        if (dice < 25)
            *c = outcome(HX_COMPLETED, t->epoch);
        else if (dice < 35)
            *c = outcome(HX_FAILED, t->epoch);
        else if (dice < 45)
            *c = outcome(HX_ABSENT, t->epoch);
        else if (dice < 60)
            *c = claim(t->epoch);
        else if (dice < 70)
            *c = claim(0);
        else if (dice < 75)
            *c = (change){.verb = HX_STORE_FORGET, .epoch = t->epoch};
        else
            return false;
        return true;
    default:
        if (dice < 25)
            *c = claim(0);
        else if (dice < 40)
            *c = outcome(HX_FAILED, t->epoch);
        else if (dice < 45)
            *c = (change){.verb = HX_STORE_FORGET};
        else
            return false;
        return true;
    }
}

static void pass_time(hx_ms span)
{
    world_note(&(entry){.kind = ENTRY_TIME, .number = (uint64_t)(world_now() + span)});
}

static void run_batch(uint64_t number)
{
    rng_state = mix(number, 5);
    world_note(&(entry){.kind = ENTRY_BATCH, .number = number});
    pass_time(number % 150 == 149 ? HX_MINUTE : (hx_ms)(1 + draw(60)) * 10);
    epoch_floor = the_model.epoch_max;
    unsigned wanted = draw(3) == 0 ? 1 : 1 + draw(BATCH_MAX);
    uint32_t op = draw(OPS);
    bool waiting = room_again && may_refuse(); /* for the store to notice: nothing but claims */
    for (unsigned i = 0; i < wanted; i++, op = (op + 1 + draw(OPS / BATCH_MAX - 1)) % OPS) {
        change c;
        if (the_model.op[op].asked) continue;
        if (waiting && truth_state(&the_model.op[op], world_now()) != HX_ABSENT) continue;
        if (choose(&the_model.op[op], &c))
            ask(op, c);
        else
            peek_compare(op, "at a look");
    }
    if (draw(3) > 0) ask_items();
    if (number % 12 == 0) sweep();
    finish_batch();
}

/* A full disk gets space again after a while, and claims must notice. */
static void watch_room(const workload *w, uint64_t *full_since)
{
    if (!w->space || !atomic_load(&shim->fired)) return;
    if (!room_again && ++*full_since >= FULL_BATCHES) {
        w->space();
        room_again = true;
    }
    if (room_again && may_refuse()) hx_loop_turn(loop, ROOM_WAIT_MS);
}

void workload_run(const workload *w)
{
    uint64_t full_since = 0;
    while (the_model.batch < w->batches || (room_again && may_refuse())) {
        run_batch(the_model.batch + 1);
        watch_room(w, &full_since);
        if (the_model.batch == w->batches / 3 || the_model.batch == 2 * w->batches / 3) {
            hx_error_text error = "";
            workload_close();
            if (!workload_try_open(w, error)) {
                if (!disk_is_full()) world_wrong("the store does not open again: %s", error);
                if (w->space) w->space(); /* it may say that there is no room, and must open once there is */
                room_again = true;
                workload_open(w);
            }
            workload_compare("after a reopening");
        }
    }
}

void workload_probe(void)
{
    epoch_floor = the_model.epoch_max;
    for (uint32_t op = 0; op < OPS; op++) {
        ask(op, claim(0));
        if (op % BATCH_MAX == 0) ask_items();
        if (op % BATCH_MAX == BATCH_MAX - 1) finish_batch();
    }
    finish_batch();
    for (uint32_t op = 0; op < OPS; op += 2) {
        if (the_model.op[op].state != HX_PROCESSING && the_model.op[op].state != HX_UNKNOWN) continue;
        ask(op, outcome(op % 4 == 0 ? HX_COMPLETED : HX_ABSENT, the_model.op[op].epoch));
        if (slot_count == BATCH_MAX) finish_batch();
    }
    finish_batch();
}

static void fresh_done(hx_store_call *call)
{
    running--;
    if (call->result != HX_STORE_OK) world_wrong("a claim of a new operation ended %s", result_names[call->result]);
}

uint64_t workload_fresh_epoch(void)
{
    slot *s = &slots[0];
    *s = (slot){.op = OPS};
    s->call.loop = loop;
    s->call.arena = &s->arena;
    s->call.done = fresh_done;
    truth t = {.lease_until = world_now() + HX_MINUTE, .created_at = world_now()};
    record_of(OPS, &t, HX_PROCESSING, &s->arena, &s->record);
    running++;
    hx_store_claim(store, &s->call, &s->record, 0);
    while (running > 0) hx_loop_turn(loop, HX_SECOND);
    hx_arena_free(&s->arena);
    return s->record.epoch;
}

void workload_outlive(void)
{
    pass_time(30 * HX_DAY);
    workload_compare("a month later");
    for (unsigned i = 0; i < 3; i++) {
        sweep();
        finish_batch();
    }
    workload_compare("a month later, after sweeps");
}
