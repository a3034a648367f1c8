/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/parts/memory_budget.h"

#include "base/check.h"
#include "base/log.h"

/* The least that a request holds: blocks of its arena, and a small body and answer in them. */
#define REQUEST_BYTES (32u * 1024u)
#define SMALL_BYTES (8u * 1024u)
/* The part of a response sent from a file that waits in memory for a slow client. */
#define SENDING_BYTES (64u * 1024u)
/* A request waits at most this long for the store to write other responses before it records its own. */
#define RECORD_WAIT_MAX HX_SECOND

static uint64_t limit_of(const hx_request *r)
{
    return hx_request_rules(r)->config->limits.memory;
}

static bool take(hx_request *r, uint64_t bytes, uint64_t limit)
{
    if (r->worker->memory_used + bytes > limit) return false;
    r->worker->memory_used += bytes;
    r->memory += bytes;
    return true;
}

static void give_back(hx_request *r, uint64_t bytes)
{
    HX_CHECK(bytes <= r->memory && bytes <= r->worker->memory_used);
    r->memory -= bytes;
    r->worker->memory_used -= bytes;
}

static void end_recording(hx_request *r)
{
    r->worker->memory_recording -= r->memory_recording;
    r->memory_recording = 0;
}

/* The arena of its stream goes, and the request with it. */
static void end(void *request)
{
    hx_request *r = request;
    give_back(r, r->memory);
    end_recording(r);
    hx_body_free(&r->answer);
    hx_arena_free(&r->found_arena);
}

void hx_memory_complain(hx_request *r)
{
    hx_worker *worker = r->worker;
    hx_ms now = hx_loop_now(worker->loop);
    hx_worker_count(worker, HX_COUNT_REFUSED_FOR_MEMORY);
    if (worker->memory_complained_at > 0 && now - worker->memory_complained_at < HX_MINUTE) return;
    worker->memory_complained_at = now;
    hx_log_begin(HX_EVENT_memory_exhausted);
    hx_log_int("limit", (int64_t)limit_of(r));
    hx_log_int("requests", worker->request_count);
    hx_log_text("hint", "raise limits.memory, or add workers");
    hx_log_end();
}

bool hx_memory_admit(hx_request *r)
{
    if (!take(r, REQUEST_BYTES, limit_of(r))) return false;
    hx_arena_at_end(r->arena, end, r);
    return true;
}

/* How much of a body stays in memory. What is known to be too long for that goes to its file at once. */
static void reserve(hx_request *r, hx_body *body, int64_t length)
{
    uint64_t spool_from = r->worker->gateway->spool_bytes;
    uint64_t most = length >= 0 && (uint64_t)length < body->len_max ? (uint64_t)length : body->len_max;
    bool is_long = length >= 0 && (uint64_t)length > spool_from;
    uint64_t wanted = most < spool_from ? most : spool_from, limit = limit_of(r);
    uint64_t more = wanted > body->taken ? wanted - body->taken : 0;
    if (wanted > SMALL_BYTES && !is_long && more > 0 && take(r, more, limit / 2)) body->taken += more;
    uint64_t held = body->taken > SMALL_BYTES ? body->taken : SMALL_BYTES;
    body->memory.max = (size_t)(is_long ? body->memory.cap : held);
}

void hx_memory_begin_body(hx_request *r, int64_t length)
{
    hx_body_init(&r->body, r->arena, r->policy->body_bytes_max, 0, r->worker->gateway->spool_directory);
    reserve(r, &r->body, length);
}

void hx_memory_begin_answer(hx_request *r, int64_t length)
{
    if (r->answer.memory.arena)
        hx_body_reset(&r->answer); /* it may hold an earlier attempt's */
    else
        hx_body_init(&r->answer, r->arena, r->policy->answer_bytes_max, 0, r->worker->gateway->spool_directory);
    end_recording(r);
    r->waits_to_record_since = 0;
    r->answer_whole = HX_EMPTY;
    r->answer_rest.len = 0;
    reserve(r, &r->answer, length);
}

void hx_memory_end(hx_request *r, hx_body *body)
{
    uint64_t held = body->memory.cap > SMALL_BYTES ? body->memory.cap : 0;
    if (body->taken <= held) return;
    give_back(r, body->taken - held);
    body->taken = held;
}

bool hx_memory_answer(hx_request *r, hx_slice *whole)
{
    if (r->answer_whole.len == 0 && r->answer.len > 0 && !hx_body_whole(&r->answer, &r->answer_whole)) return false;
    *whole = r->answer_whole;
    return true;
}

bool hx_memory_may_record(hx_request *r)
{
    hx_worker *worker = r->worker;
    hx_ms now = hx_loop_now(worker->loop);
    uint64_t bytes = r->answer.file >= 0 && !r->answer_streamed && r->memory_recording == 0 ? r->answer.len : 0;
    bool is_crowded = worker->memory_recording > 0 && worker->memory_recording + bytes > limit_of(r) / 4;
    if (bytes == 0) return true;
    if (r->waits_to_record_since == 0) r->waits_to_record_since = now;
    if (is_crowded && now - r->waits_to_record_since < RECORD_WAIT_MAX) return false;
    worker->memory_recording += bytes;
    r->memory_recording = bytes;
    return true;
}

const hx_extent *hx_memory_send_answer(hx_request *r, hx_slice *body)
{
    *body = HX_EMPTY;
    if (r->answer.file < 0) {
        bool is_there = hx_memory_answer(r, body);
        HX_CHECK(is_there);
        return NULL;
    }
    hx_slice part = r->answer_whole; /* empty: the whole response, which was never mapped */
    hx_extent *file = hx_arena_alloc(r->arena, sizeof *file);
    *file = (hx_extent){.fd = r->answer.file, .len = r->answer.len};
    if (part.len > 0) {
        file->at = (uint64_t)(part.ptr - (const char *)r->answer.mapped);
        file->len = part.len;
    }
    hx_body_unmap(&r->answer);
    end_recording(r);
    r->answer_whole = r->record.answer.body = HX_EMPTY;
    return file;
}

hx_arena *hx_memory_for_found(hx_request *r)
{
    return hx_store_about(r->worker->gateway->store)->shared ? &r->found_arena : r->arena;
}

hx_peek hx_memory_peek(hx_request *r, const hx_op *op)
{
    return hx_store_peek_large(r->worker->gateway->store, op, hx_memory_for_found(r), HX_WHOLE_ANSWER_BYTES, &r->found);
}

static void free_body(void *body)
{
    hx_body_free(body);
}

/* Moves an answer out of memory that a store without files of its own has read it to. Where it can't be, it stays. What
 * many wait for together is held once for all of them. */
static void spool_found(hx_request *r, hx_record *found)
{
    hx_slice body = found->answer.body;
    bool is_apart = hx_memory_for_found(r) != r->arena && (!r->call || r->call->verb != HX_STORE_WATCH);
    if (!is_apart || body.len <= r->worker->gateway->spool_bytes) return;
    hx_body *spooled = hx_arena_alloc(r->arena, sizeof *spooled); /* beside r->answer, which may still be to come */
    hx_body_init(spooled, r->arena, body.len, 0, r->worker->gateway->spool_directory);
    if (hx_body_append(spooled, body) != HX_BODY_OK) {
        hx_body_free(spooled);
        return;
    }
    hx_arena_at_end(r->arena, free_body, spooled);
    hx_extent *file = hx_arena_alloc(r->arena, sizeof *file);
    *file = (hx_extent){.fd = spooled->file, .len = body.len};
    found->body_file = file;
    found->answer.headers = hx_arena_copy(r->arena, found->answer.headers);
    found->answer.body = HX_EMPTY;
    found->result = hx_arena_copy(r->arena, found->result);
    found->route = found->correlation = found->reason = HX_EMPTY;
    hx_arena_free(&r->found_arena);
}

bool hx_memory_load_found(hx_request *r, hx_record *found)
{
    uint64_t body = found->answer.body.len;
    if (!found->body_file) spool_found(r, found);
    if (found->body_file) return take(r, SENDING_BYTES, limit_of(r));
    return body <= HX_WHOLE_ANSWER_BYTES || hx_memory_for_found(r) == r->arena || take(r, body, limit_of(r));
}
