/* SPDX-License-Identifier: Apache-2.0 */
/* Claiming an operation, or finding out what became of it. */
#include "admin/events/common.h"
#include "admin/work/work.h"
#include "core/json/json.h"
#include "core/json/json_writer.h"
#include "core/operation/key.h"
#include "core/operation/policy.h"

#include <string.h>

#define TAG_OPERATION 'o'
#define TAG_KEY 'k'
#define TAG_INPUT 'i'
#define LEASE_BY_DEFAULT (60 * HX_SECOND)
#define LEASE_MAX HX_HOUR
#define WAIT_MAX (30 * HX_SECOND)
#define DEADLINE_MAX (30 * HX_DAY)

static void try_claim(hx_work *work);

static hx_digest hash_input(const hx_work *work)
{
    hx_slice input = work->given.input;
    hx_buf canonical;
    if (input.len == 0) return (hx_digest){0};
    hx_buf_init(&canonical, work->call->arena, HX_JSON_CANONICAL_BYTES(input.len));
    bool is_clean = hx_json_canonical(input, work->call->arena, &canonical);
    return hx_work_mac(work, TAG_INPUT, is_clean ? hx_buf_slice(&canonical) : input);
}

static void name_operation(hx_work *work)
{
    hx_mac *mac = work->call->admin->mac;
    hx_mac_begin(mac, TAG_OPERATION);
    hx_mac_part(mac, HX_LIT("work"));
    hx_mac_part(mac, work->principal);
    hx_mac_part(mac, work->given.name);
    hx_mac_part(mac, work->given.key);
    hx_digest digest = hx_mac_end(mac);
    memcpy(work->record.op.bytes, digest.bytes, sizeof work->record.op.bytes);
}

static void fill_record(hx_work *work, const hx_record *taken_over)
{
    const hx_work_given *given = &work->given;
    hx_ms now = hx_admin_now(work->call->admin);
    work->record = (hx_record){.op = work->record.op,
                               .state = HX_PROCESSING,
                               .from_state = taken_over ? HX_UNKNOWN : HX_ABSENT,
                               .created_at = taken_over ? taken_over->created_at : now,
                               .changed_at = now,
                               .lease_until = now + given->lease,
                               .owner = hx_store_about(work->call->admin->needs.store)->owner,
                               .fingerprint = hash_input(work),
                               .proof = hx_work_mac(work, HX_WORK_TAG_CLAIMANT, given->claimant),
                               .principal = hx_work_mac(work, HX_WORK_TAG_PRINCIPAL, work->principal),
                               .key = hx_work_mac(work, TAG_KEY, given->key),
                               .rule_version = HX_RULE_SHADOW, /* no route's rules apply to it */
                               .attempt = 1,
                               .key_parameters = HX_EMPTY,
                               .route = given->name.len > 0 ? given->name : HX_LIT("work"),
                               .correlation = given->correlation_id,
                               .reason = HX_EMPTY,
                               .result = HX_EMPTY,
                               .answer = {.headers = HX_EMPTY, .body = HX_EMPTY}};
}

static void count_attempt(hx_work *work)
{
    hx_ms deadline = work->given.deadline;
    work->notes.attempts++;
    work->notes.cancel = work->notes.progress = HX_EMPTY;
    if (deadline > 0) work->notes.deadline = hx_admin_now(work->call->admin) + deadline;
}

static void answer_claimed(hx_work *work)
{
    hx_work_answer(work, 201);
}

static void answer_found(hx_work *work)
{
    hx_work_answer(work, 200);
}

static void renewed(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    if (store->result == HX_STORE_OK)
        work->record.lease_until = store->lease_until;
    else if (store->result == HX_STORE_STALE)
        work->record = store->found;
    hx_work_note(work, NULL, answer_found);
}

static void watched(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    hx_timer_stop(work->call->admin->needs.loop, &work->timer);
    work->may_wait = false;
    try_claim(work);
}

static void wait_is_over(hx_timer *timer)
{
    hx_work *work = HX_OWNER(timer, hx_work, timer);
    hx_store_cancel(work->call->admin->needs.store, &work->store);
}

static void wait_for(hx_work *work, uint64_t epoch)
{
    hx_admin *admin = work->call->admin;
    work->store = hx_admin_store_call(admin, work->call->arena, watched);
    hx_store_watch(admin->needs.store, &work->store, &work->record.op, epoch);
    hx_timer_start(admin->needs.loop, &work->timer, work->given.wait, wait_is_over);
}

static bool is_mismatch(const hx_work *work, const hx_record *found)
{
    static const hx_digest none;
    return !hx_digest_eq(&found->fingerprint, &none) && !hx_digest_eq(&work->record.fingerprint, &none) &&
           !hx_digest_eq(&found->fingerprint, &work->record.fingerprint);
}

/* The caller is told both fingerprints. */
static void refuse_mismatch(const hx_work *work, const hx_record *found)
{
    hx_buf members;
    hx_buf_init(&members, work->call->arena, 256);
    hx_json_put_hex(&members, "fingerprint", found->fingerprint.bytes, sizeof found->fingerprint.bytes);
    hx_json_put_hex(&members, "given", work->record.fingerprint.bytes, sizeof work->record.fingerprint.bytes);
    hx_admin_refuse_telling(work->call, HX_ADMIN_WORK_MISMATCH, HX_EMPTY, hx_buf_slice(&members));
}

/* The operation exists. */
static void decide(hx_work *work, const hx_record *found)
{
    hx_admin_call *call = work->call;
    bool is_mine = hx_digest_eq(&found->proof, &work->record.proof);
    hx_ms lease = work->given.lease;
    if (is_mismatch(work, found)) {
        refuse_mismatch(work, found);
        return;
    }
    if (found->state == HX_PROCESSING && !is_mine) {
        if (work->given.wait == 0) hx_store_note_conflict(call->admin->needs.store); /* else the claim is repeated */
        if (work->may_wait)
            wait_for(work, found->epoch);
        else
            hx_admin_refuse_with(call, HX_ADMIN_WORK_IN_FLIGHT, HX_EMPTY, HX_LIT("Retry-After: 1\r\n"));
        return;
    }
    if (found->state != HX_PROCESSING && !is_mine) hx_store_note_conflict(call->admin->needs.store);
    if (found->state == HX_UNKNOWN && !is_mine) {
        hx_admin_refuse_with(call, HX_ADMIN_WORK_UNKNOWN, HX_EMPTY, HX_LIT("Retry-After: 10\r\n"));
        return;
    }
    work->record = *found;
    if (found->state != HX_PROCESSING) {
        hx_work_note(work, NULL, answer_found);
        return;
    }
    work->store = hx_admin_store_call(call->admin, call->arena, renewed);
    hx_store_renew(call->admin->needs.store, &work->store, &work->record.op, work->record.epoch,
                   hx_admin_now(call->admin) + lease);
}

static void claimed(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    hx_admin_call *call = work->call;
    const hx_record found = store->found;
    switch (store->result) {
    case HX_STORE_OK:
        work->is_new = true;
        hx_work_note(work, count_attempt, answer_claimed);
        return;
    case HX_STORE_EXISTS:
        if (found.state == HX_UNKNOWN && work->given.repeats_safely && !found.unreadable &&
            !is_mismatch(work, &found) && work->tries++ == 0) {
            fill_record(work, &found);
            work->store = hx_admin_store_call(call->admin, call->arena, claimed);
            hx_store_claim(call->admin->needs.store, &work->store, &work->record, found.epoch);
            return;
        }
        decide(work, &found);
        return;
    case HX_STORE_FULL: hx_admin_refuse(call, HX_ADMIN_FULL, HX_EMPTY, NULL); return;
    default: hx_admin_refuse(call, HX_ADMIN_IN_DOUBT, HX_EMPTY, NULL); return;
    }
}

static void try_claim(hx_work *work)
{
    fill_record(work, NULL);
    work->tries = 0;
    work->store = hx_admin_store_call(work->call->admin, work->call->arena, claimed);
    hx_store_claim(work->call->admin->needs.store, &work->store, &work->record, 0);
}

static const char *check_claim(hx_work *work)
{
    static const hx_key_rules any = {.format = HX_KEY_ANY, .len_min = 1, .len_max = 255};
    hx_work_given *given = &work->given;
    hx_slice key;
    hx_key_error wrong = hx_key_parse(given->key, &any, work->call->arena, &key);
    if (given->key.len == 0) return "\"key\" is missing: it names the operation";
    if (wrong != HX_KEY_OK) return hx_key_error_text(wrong);
    if (given->claimant.len == 0)
        return "\"claimant\" is missing: a random text that you draw before the first call, and repeat with it";
    if (given->lease == 0) given->lease = LEASE_BY_DEFAULT;
    if (given->lease < HX_SECOND || given->lease > LEASE_MAX) return "\"lease\" must be 1s to 1h";
    if (given->wait > WAIT_MAX) return "\"wait\" must be up to 30s";
    if (given->deadline > DEADLINE_MAX) return "\"deadline\" must be up to 30d";
    work->may_wait = given->wait > 0;
    return NULL;
}

void hx_admin_claim_work(hx_admin_call *call)
{
    static const char *const members[] = {"name",     "key",    "claimant",       "input",          "lease", "wait",
                                          "deadline", "tenant", "correlation_id", "repeats_safely", NULL};
    hx_work *work = hx_work_begin(call, members);
    if (!work) return;
    const char *wrong = check_claim(work);
    if (wrong) {
        hx_admin_refuse_malformed(call, wrong);
        return;
    }
    name_operation(work);
    try_claim(work);
}

/* Did it go through? */

static void find_next(hx_work *work);

static void find_noted(hx_work *work)
{
    hx_work_answer(work, 200);
}

static void find_watched(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    hx_timer_stop(work->call->admin->needs.loop, &work->timer);
    work->may_wait = false;
    find_next(work);
}

static void find_read(hx_store_call *store)
{
    hx_work *work = HX_OWNER(store, hx_work, store);
    hx_admin *admin = work->call->admin;
    if (!hx_work_was_read(work)) return;
    if (work->record.state != HX_PROCESSING || !work->may_wait) {
        hx_work_note(work, NULL, find_noted);
        return;
    }
    work->store = hx_admin_store_call(admin, work->call->arena, find_watched);
    hx_store_watch(admin->needs.store, &work->store, &work->record.op, work->record.epoch);
    hx_timer_start(admin->needs.loop, &work->timer, work->given.wait, wait_is_over);
}

static void find_next(hx_work *work)
{
    hx_work_read(work, find_read);
}

void hx_admin_find_work(hx_admin_call *call)
{
    static const char *const members[] = {"name", "key", "wait", "tenant", NULL};
    hx_work *work = hx_work_begin(call, members);
    if (!work) return;
    if (work->given.key.len == 0 || work->given.wait > WAIT_MAX) {
        hx_admin_refuse_malformed(call, work->given.key.len == 0 ? "\"key\" is missing: it names the operation"
                                                                 : "\"wait\" must be up to 30s");
        return;
    }
    work->may_wait = work->given.wait > 0;
    name_operation(work);
    find_next(work);
}
