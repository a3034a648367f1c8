/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers that make, list and revoke tokens of the API. core/event/api_token.h says how one is stored. */
#include "admin/call.h"
#include "admin/query.h"
#include "base/check.h"
#include "base/log.h"
#include "base/memory/list.h"
#include "base/rand.h"
#include "core/json/json_writer.h"

#include <string.h>

#define VIEW_BYTES 1024u /* the most that one token takes as JSON: it is made of plain ASCII */
#define REVOKED_AT_ONCE 1000u
#define REVOKE_ROUNDS_MAX 100u

/* A request of this file. */
typedef struct {
    hx_admin_call *call;
    hx_store_call store;
    hx_api_token token; /* create */
    char text[HX_API_TOKEN_BYTES];
    hx_item item;
    hx_item_page page; /* list, revoke */
    uint64_t revoked;
    unsigned rounds;
} job;

/* NULL: the store has no items, and the call was answered. */
static job *new_job(hx_admin_call *call)
{
    if (!hx_store_about(call->admin->needs.store)->keeps_items) {
        hx_admin_refuse(call, HX_ADMIN_NOT_KEPT, HX_EMPTY, NULL);
        return NULL;
    }
    job *made = hx_arena_zalloc(call->arena, sizeof *made);
    made->call = call;
    return made;
}

static void log_token(const hx_admin_call *call, hx_log_event event, const hx_api_token *token)
{
    hx_log_begin(event);
    hx_log_str("token", token->name);
    hx_log_str("token_id", token->id);
    if (token->tenant.len > 0) hx_log_str("tenant", token->tenant);
    hx_admin_log_caller(&call->who);
    hx_log_end();
}

static void create_done(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    hx_buf out;
    if (!hx_admin_committed(call, store->result)) return;
    log_token(call, HX_EVENT_token_created, &j->token);
    hx_buf_init(&out, call->arena, VIEW_BYTES);
    hx_json_open(&out, NULL, '{');
    hx_json_put_text(&out, "token", (hx_slice){j->text, sizeof j->text});
    hx_json_write(&hx_api_token_shape, HX_JSON_SHOWN, &j->token, &out);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

void hx_admin_create_token(hx_admin_call *call)
{
    uint8_t random[HX_API_TOKEN_RANDOM];
    hx_error_text error;
    hx_buf meta;
    job *j = new_job(call);
    if (!j) return;
    if (!hx_api_token_read(hx_buf_slice(&call->body), call->arena, &j->token, error)) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_arena_copy(call->arena, hx_slice_of(error)), NULL);
        return;
    }
    hx_rand_bytes(random, sizeof random);
    hx_api_token_write(random, j->text);
    hx_slice key = hx_api_token_key(call->admin->mac, (hx_slice){j->text, sizeof j->text}, call->arena);
    j->token.id = hx_api_token_id(key);
    j->token.created_at = hx_admin_now(call->admin);
    j->token.created_by = hx_admin_caller_text(&call->who, call->arena);
    hx_buf_init(&meta, call->arena, HX_API_TOKEN_META_MAX);
    hx_api_token_encode(&j->token, &meta);
    j->item = (hx_item){.key = key,
                        .queue = hx_api_token_queue(j->token.name, call->arena),
                        .due = j->token.created_at,
                        .meta = hx_buf_slice(&meta),
                        .body = HX_EMPTY};
    j->store = hx_admin_store_call(call->admin, call->arena, create_done);
    hx_store_commit(call->admin->needs.store, &j->store, &j->item, 1, false);
}

static void list_done(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    hx_api_token token;
    hx_buf out;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    hx_buf_init(&out, call->arena, (j->page.count + 1) * VIEW_BYTES + HX_ADMIN_CURSOR_BYTES);
    hx_json_open(&out, NULL, '{');
    hx_json_open(&out, "tokens", '[');
    for (size_t i = 0; i < j->page.count; i++) {
        if (!hx_api_token_decode(j->page.items[i].key, j->page.items[i].meta, call->arena, &token)) continue;
        hx_json_open(&out, NULL, '{');
        hx_json_write(&hx_api_token_shape, HX_JSON_SHOWN, &token, &out);
        hx_json_close(&out, '}');
    }
    hx_json_close(&out, ']');
    hx_admin_put_cursor(&out, &j->page);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

void hx_admin_list_tokens(hx_admin_call *call)
{
    hx_slice limit, cursor;
    const hx_admin_word words[] = {{"limit", &limit}, {"cursor", &cursor}};
    job *j = new_job(call);
    if (!j) return;
    j->page = (hx_item_page){.by_queue = true, .prefix = HX_LIT(HX_API_TOKEN_QUEUES)};
    const char *wrong = hx_admin_query(call->stream->request.query, call->arena, words, 2);
    if (!wrong) wrong = hx_admin_page(limit, cursor, call->arena, &j->page);
    if (wrong) {
        hx_admin_refuse(call, HX_ADMIN_MALFORMED, hx_slice_of(wrong), NULL);
        return;
    }
    j->store = hx_admin_store_call(call->admin, call->arena, list_done);
    hx_store_scan(call->admin->needs.store, &j->store, &j->page);
}

static void find_revoked(job *j);

static void revoke_done(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_api_token token;
    if (store->result != HX_STORE_STALE) { /* else others have revoked one of them meanwhile */
        if (!hx_admin_committed(j->call, store->result)) return;
        for (size_t i = 0; i < j->page.count; i++)
            if (hx_api_token_decode(j->page.items[i].key, j->page.items[i].meta, j->call->arena, &token))
                log_token(j->call, HX_EVENT_token_revoked, &token);
        j->revoked += j->page.count;
    }
    hx_admin_forget_tokens(j->call->admin);
    find_revoked(j);
}

static void revoked_found(hx_store_call *store)
{
    job *j = HX_OWNER(store, job, store);
    hx_admin_call *call = j->call;
    if (store->result != HX_STORE_OK || j->rounds++ == REVOKE_ROUNDS_MAX) {
        hx_admin_refuse(call, HX_ADMIN_STORE, HX_EMPTY, NULL);
        return;
    }
    if (j->page.count > 0) {
        /* Urgent: a token must be revocable on a full disk, too. */
        for (size_t i = 0; i < j->page.count; i++) j->page.items[i].act = HX_ITEM_REMOVE;
        j->store = hx_admin_store_call(call->admin, call->arena, revoke_done);
        hx_store_commit(call->admin->needs.store, &j->store, j->page.items, j->page.count, true);
        return;
    }
    if (j->revoked == 0) {
        hx_admin_refuse(call, HX_ADMIN_UNKNOWN_TOKEN, HX_EMPTY, NULL);
        return;
    }
    hx_buf out;
    hx_buf_init(&out, call->arena, VIEW_BYTES);
    hx_json_open(&out, NULL, '{');
    hx_json_put_number(&out, "revoked", j->revoked);
    hx_buf_puts(&out, "}\n");
    hx_admin_answer(call, hx_buf_slice(&out));
}

/* Finds what is still to be revoked, until there is nothing left. */
static void find_revoked(job *j)
{
    hx_admin_call *call = j->call;
    hx_slice named = call->parameters[0];
    bool is_id = hx_is_api_token_id(named);
    hx_slice prefix = is_id ? hx_api_token_keys(named, call->arena) : hx_api_token_queue(named, call->arena);
    j->page = (hx_item_page){.by_queue = !is_id, .prefix = prefix, .items_max = REVOKED_AT_ONCE};
    j->store = hx_admin_store_call(call->admin, call->arena, revoked_found);
    hx_store_scan(call->admin->needs.store, &j->store, &j->page);
}

void hx_admin_revoke_tokens(hx_admin_call *call)
{
    hx_slice named = call->parameters[0];
    job *j = new_job(call);
    if (!j) return;
    if (hx_is_api_token_id(named) || hx_is_api_token_name(named))
        find_revoked(j);
    else
        hx_admin_refuse(call, HX_ADMIN_UNKNOWN_TOKEN, HX_EMPTY, NULL);
}
