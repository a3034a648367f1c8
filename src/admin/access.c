/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes a request. On the unix socket it is the user whom the kernel names. On the API's listeners it is a token,
 * which is looked up in the store by its MAC, so that comparing it takes the same time whatever it is. What was found
 * is kept for KNOWN_MS: that is how long a token which another node revoked is still taken here. Tokens that are not
 * found are not kept, and there is no limit on trying: 256 random bits can't be guessed, and a limit would let one
 * client with an old token shut out others behind the same proxy. */
#include "admin/call.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/memory/list.h"

#include <pwd.h>

#define KNOWN_MS (5 * HX_SECOND)
#define REFUSALS_LOGGED_EVERY HX_SECOND

static hx_admin_known *place_of(hx_admin *admin, hx_slice key)
{
    return &admin->known[hx_hex_byte(key.ptr + 2)];
}

static void remember(hx_admin *admin, hx_slice key, const hx_admin_caller *who)
{
    hx_admin_known *known = place_of(admin, key);
    *known = (hx_admin_known){.until = hx_loop_now(admin->needs.loop) + KNOWN_MS,
                              .scopes = who->scopes,
                              .name_len = (uint8_t)who->name.len,
                              .tenant_len = (uint8_t)who->tenant.len};
    memcpy(known->key, key.ptr, sizeof known->key);
    memcpy(known->name, who->name.ptr, who->name.len);
    memcpy(known->tenant, who->tenant.ptr, who->tenant.len);
}

static bool recall(hx_admin_call *call)
{
    const hx_admin_known *known = place_of(call->admin, call->item.key);
    bool is_known = known->until > hx_loop_now(call->admin->needs.loop) &&
                    hx_slice_eq((hx_slice){known->key, sizeof known->key}, call->item.key);
    if (!is_known) return false;
    call->who = (hx_admin_caller){.kind = HX_ADMIN_CALLER_TOKEN,
                                  .name = hx_arena_copy(call->arena, (hx_slice){known->name, known->name_len}),
                                  .token_id = hx_api_token_id(call->item.key),
                                  .scopes = known->scopes,
                                  .tenant = hx_arena_copy(call->arena, (hx_slice){known->tenant, known->tenant_len})};
    return true;
}

void hx_admin_forget_tokens(hx_admin *admin)
{
    memset(admin->known, 0, sizeof admin->known);
}

/* An attacker can't fill the log. */
static void log_refusal(hx_admin_call *call)
{
    hx_admin *admin = call->admin;
    hx_ms now = hx_loop_now(admin->needs.loop);
    admin->refused.count++;
    if (admin->refused.logged_at != 0 && now - admin->refused.logged_at < REFUSALS_LOGGED_EVERY) return;
    hx_log_begin(HX_EVENT_token_refused);
    hx_log_str("client", hx_peer_text(&call->stream->peer));
    hx_log_int("refused", (int64_t)admin->refused.count);
    hx_log_end();
    admin->refused.logged_at = now;
    admin->refused.count = 0;
}

static void refuse_token(hx_admin_call *call, bool is_missing)
{
    if (!is_missing) log_refusal(call);
    hx_admin_refuse_with(call, is_missing ? HX_ADMIN_NO_TOKEN : HX_ADMIN_BAD_TOKEN, HX_EMPTY,
                         is_missing ? HX_LIT("WWW-Authenticate: Bearer\r\n")
                                    : HX_LIT("WWW-Authenticate: Bearer error=\"invalid_token\"\r\n"));
}

static void token_read(hx_store_call *store)
{
    hx_admin_call *call = HX_OWNER(store, hx_admin_call, store);
    hx_api_token token;
    if (store->result != HX_STORE_OK) {
        hx_admin_refuse(call, HX_ADMIN_UNREAD, HX_EMPTY, NULL);
        return;
    }
    if (call->item.version == 0 || !hx_api_token_decode(call->item.key, call->item.meta, call->arena, &token)) {
        refuse_token(call, false);
        return;
    }
    call->who = (hx_admin_caller){.kind = HX_ADMIN_CALLER_TOKEN,
                                  .name = token.name,
                                  .token_id = token.id,
                                  .scopes = hx_api_token_scopes(&token),
                                  .tenant = token.tenant};
    remember(call->admin, call->item.key, &call->who);
    hx_admin_route_call(call);
}

static void client_gone(hx_stream *stream)
{
    hx_admin_call *call = stream->user;
    call->is_gone = true;
}

static void check_token(hx_admin_call *call)
{
    const hx_fields *fields = &call->stream->request.fields;
    hx_slice token;
    unsigned lines = fields->lines[HX_FIELD_AUTHORIZATION];
    if (lines != 1 || !hx_api_token_find(hx_fields_get(fields, HX_FIELD_AUTHORIZATION), &token)) {
        refuse_token(call, lines == 0);
        return;
    }
    call->item.key = hx_api_token_key(call->admin->mac, token, call->arena);
    if (recall(call)) {
        hx_admin_route_call(call);
        return;
    }
    call->stream->events = (hx_stream_events){.closed = client_gone};
    call->store = hx_admin_store_call(call->admin, call->arena, token_read);
    hx_store_get(call->admin->needs.store, &call->store, &call->item, 1);
}

void hx_admin_authenticate(hx_admin_call *call)
{
    const hx_config *config = call->admin->needs.rules->config;
    const hx_fields *fields = &call->stream->request.fields;
    const hx_peer *peer = &call->stream->peer;
    if (!call->entrance->needs_token) {
        if (peer->kind == HX_PEER_USER)
            call->who = (hx_admin_caller){.kind = HX_ADMIN_CALLER_USER,
                                          .name = HX_EMPTY,
                                          .uid = peer->user.uid,
                                          .pid = peer->user.pid,
                                          .token_id = HX_EMPTY,
                                          .tenant = HX_EMPTY};
        hx_admin_route_call(call);
        return;
    }
    hx_slice host = hx_fields_get(fields, HX_FIELD_HOST);
    const hx_field *origin = hx_fields_find(fields, HX_LIT("Origin"));
    if (!hx_admin_is_own_host(host, config->api.hosts, config->api.host_count))
        hx_admin_refuse(call, HX_ADMIN_WRONG_HOST, HX_EMPTY, NULL);
    else if (origin && !hx_admin_is_own_origin(origin->value, host))
        hx_admin_refuse(call, HX_ADMIN_WRONG_ORIGIN, HX_EMPTY, NULL);
    else
        check_token(call);
}

void hx_admin_find_name(hx_admin_call *call)
{
    struct passwd row, *found = NULL;
    char bytes[4096];
    if (call->who.kind != HX_ADMIN_CALLER_USER) return;
    if (getpwuid_r(call->who.uid, &row, bytes, sizeof bytes, &found) == 0 && found)
        call->who.name = hx_arena_copy(call->arena, hx_slice_of(found->pw_name));
}

void hx_admin_log_caller(const hx_admin_caller *who)
{
    if (who->kind == HX_ADMIN_CALLER_TOKEN) {
        hx_log_str("token", who->name);
        hx_log_str("token_id", who->token_id);
        return;
    }
    hx_log_str("user", who->name);
    hx_log_int("uid", who->uid);
    hx_log_int("pid", who->pid);
}
