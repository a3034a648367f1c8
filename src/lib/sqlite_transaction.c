/* SPDX-License-Identifier: Apache-2.0 */
/* Operations inside the host's own SQLite transaction (store/sqlite/in_transaction.h), and what the store in a SQLite
 * file shares with them. */
#include "core/event/event.h"
#include "core/json/json_writer.h"
#include "lib/stores.h"
#include "store/sqlite/tables.h"

#include <stdio.h>
#include <string.h>

hx_in_transaction_request hx_lib_request(const hapax_request *request, hx_arena *arena)
{
    return (hx_in_transaction_request){.route = hx_struct_text(request->name),
                                       .principal = hx_struct_text(request->caller),
                                       .key = hx_slice_of(request->key),
                                       .payload = hx_struct_payload(request, arena),
                                       .lease = request->lease,
                                       .lifetime = request->lifetime,
                                       .redo = (request->flags & HAPAX_REPEATABLE) != 0};
}

bool hx_lib_operation(const hapax_claim *claim, hx_in_transaction_operation *out)
{
    *out = (hx_in_transaction_operation){.epoch = claim->epoch, .owner = claim->owner};
    return hx_struct_op(claim, &out->op);
}

/* Whether SQLite said that the disk is full. */
static bool is_full(const hx_record *found)
{
    return hx_slice_eq(found->reason, hx_slice_of(sqlite3_errstr(SQLITE_FULL)));
}

int hx_lib_tell(hx_in_transaction_result result, const hx_record *found, hapax_record *record, char *error)
{
    static const struct {
        int code;
        const char *text;
    } meanings[] = {
        [HX_IN_TRANSACTION_OK] = {HAPAX_OK, ""},
        [HX_IN_TRANSACTION_DONE] = {HAPAX_DONE, "the operation has ended before: the record has its outcome"},
        [HX_IN_TRANSACTION_RUNNING] = {HAPAX_IN_FLIGHT, "somebody else is executing this operation"},
        [HX_IN_TRANSACTION_UNKNOWN] = {HAPAX_UNKNOWN, "the operation may have been executed, and has no outcome: find "
                                                      "out, don't use a new key"},
        [HX_IN_TRANSACTION_EXPIRED] = {HAPAX_EXPIRED, "the operation was executed; its outcome has expired"},
        [HX_IN_TRANSACTION_MISMATCH] = {HAPAX_MISMATCH, "the key was used with another payload"},
        [HX_IN_TRANSACTION_STALE] = {HAPAX_FENCED, "the claim was lost: the record has what the operation is now"},
        [HX_IN_TRANSACTION_DAMAGED] = {HAPAX_DAMAGED, "the record of the operation can't be read"},
        [HX_IN_TRANSACTION_OUTSIDE] = {HAPAX_INVALID, "no transaction is open: begin one with BEGIN IMMEDIATE"},
        [HX_IN_TRANSACTION_INVALID] = {HAPAX_INVALID, "a text, a time span or a result is too long"},
        [HX_IN_TRANSACTION_NO_TABLES] = {HAPAX_NOT_PREPARED,
                                         "the database has no tables of this version of Hapax: call "
                                         "hapax_sqlite_prepare()"},
        [HX_IN_TRANSACTION_BUSY] = {HAPAX_BUSY, "another connection writes: roll back, and begin the transaction again "
                                                "with BEGIN IMMEDIATE"},
        [HX_IN_TRANSACTION_ERROR] = {HAPAX_UNAVAILABLE, "SQLite"},
    };
    int code = meanings[result].code;
    if (result == HX_IN_TRANSACTION_ERROR) {
        (void)hx_fail(error, "SQLite: %.*s", HX_FMT(found->reason));
        return is_full(found) ? HAPAX_FULL : code;
    }
    (void)hx_fail(error, "%s", meanings[result].text);
    if (code < HAPAX_OK && code != HAPAX_DAMAGED) return code;
    return hx_struct_put_record(record, found, code != HAPAX_OK) ? code : HAPAX_NO_MEMORY;
}

static int step(sqlite3 *db, const char *sql)
{
    int code = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (code == SQLITE_OK) return HAPAX_OK;
    return hx_guest_fail(code == SQLITE_BUSY ? HAPAX_BUSY : HAPAX_UNAVAILABLE, "SQLite: %s", sqlite3_errmsg(db));
}

/* Of several processes that find no tables one makes them: a transaction that has read before may not be able to
 * write. */
int hx_lib_prepare(sqlite3 *db, char *error)
{
    bool is_own = sqlite3_get_autocommit(db) != 0;
    int code = is_own ? step(db, "BEGIN IMMEDIATE") : HAPAX_OK;
    if (code != HAPAX_OK) return code;
    if (!hx_sqlite_prepare(db, error)) code = HAPAX_UNAVAILABLE;
    if (is_own && code == HAPAX_OK) code = step(db, "COMMIT");
    if (is_own && !sqlite3_get_autocommit(db)) (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return code;
}

int hx_lib_begin(sqlite3 *db, const hapax_request *request, hapax_claim *claim, hapax_record *record, char *error)
{
    hx_arena *arena = &hx_guest_call()->arena;
    hx_in_transaction_request asked = hx_lib_request(request, arena);
    hx_in_transaction_operation operation;
    hx_record found;
    hx_in_transaction_result result = hx_sqlite_begin(db, &asked, arena, &operation, &found);
    if (result == HX_IN_TRANSACTION_OK)
        hx_struct_put_claim(claim, &operation.op, operation.epoch, operation.owner, request->lifetime);
    return hx_lib_tell(result, &found, record, error);
}

/* Whether the operation is already as this call would leave it: its response was lost, and it is repeated. */
static bool is_repeated(const hx_in_transaction_operation *operation, hx_state to, const hx_answer *answer,
                        const hx_record *found)
{
    if (to == HX_ABSENT) return found->state == HX_ABSENT;
    bool is_same_claim = found->epoch == operation->epoch &&
                         (operation->owner == 0 || found->owner == operation->owner);
    return is_same_claim && found->state == to && found->answer.status == answer->status &&
           hx_slice_eq(found->answer.body, answer->body);
}

int hx_lib_settle(sqlite3 *db, const hapax_claim *claim, int state, const hapax_result *result, const char *reason,
                  hapax_record *record, char *error)
{
    hx_arena *arena = &hx_guest_call()->arena;
    hx_in_transaction_operation operation;
    hx_record found;
    hx_state to = (hx_state)state;
    if (!hx_lib_operation(claim, &operation)) return HAPAX_INVALID;
    if (result->status < 100 || result->status > 999 || (!result->body && result->body_bytes > 0))
        return hx_guest_fail(HAPAX_INVALID, "the result must have a status of 100 to 999, and a body or none");
    if (strpbrk(result->content_type, "\r\n")) return hx_guest_fail(HAPAX_INVALID, "content_type has a line end");
    hx_answer answer = {.status = (uint16_t)result->status,
                        .headers = hx_arena_printf(arena, "Content-Type: %s\r\n", result->content_type),
                        .body = {result->body, result->body_bytes}};
    hx_in_transaction_result code = to == HX_COMPLETED ? hx_sqlite_complete(db, &operation, &answer, arena, &found)
                                    : to == HX_FAILED
                                        ? hx_sqlite_fail(db, &operation, &answer, arena, &found)
                                        : hx_sqlite_release(db, &operation, hx_struct_text(reason), arena, &found);
    if (code == HX_IN_TRANSACTION_STALE && is_repeated(&operation, to, &answer, &found)) code = HX_IN_TRANSACTION_OK;
    return hx_lib_tell(code, &found, record, error);
}

/* The public functions */

typedef struct {
    sqlite3 *db;
    const hapax_request *request;
    hapax_claim *claim; /* given, or to be filled in */
    const hapax_result *result;
    const char *reason;
    hapax_record *record;
    int state;
} work;

static int prepare_body(hx_guest *call, void *arguments)
{
    (void)call;
    return hx_lib_prepare(arguments, hx_guest_message());
}

int hapax_sqlite_prepare(sqlite3 *db)
{
    return db ? hx_guest_run(NULL, prepare_body, db) : hx_guest_fail(HAPAX_INVALID, "db is NULL");
}

static int begin_body(hx_guest *call, void *arguments)
{
    work *w = arguments;
    hapax_request request;
    (void)call;
    if (!hx_struct_take_request(&request, w->request)) return HAPAX_INVALID;
    return hx_lib_begin(w->db, &request, w->claim, w->record, hx_guest_message());
}

static int settle_body(hx_guest *call, void *arguments)
{
    work *w = arguments;
    hapax_claim claim;
    hapax_result result = {.size = sizeof result};
    (void)call;
    if (!HX_STRUCT_TAKE(&claim, w->claim, hapax_claim)) return HAPAX_INVALID;
    if (w->result && !HX_STRUCT_TAKE(&result, w->result, hapax_result)) return HAPAX_INVALID;
    if (result.status == 0) result.status = w->state == HAPAX_STATE_COMPLETED ? 200 : 500;
    if (!result.content_type) result.content_type = "application/json";
    return hx_lib_settle(w->db, &claim, w->state, &result, w->reason, w->record, hx_guest_message());
}

static int run(work w, hx_guest_body *body)
{
    hapax_record own = {.size = sizeof own};
    if (!w.record) w.record = &own;
    if (!w.db) return hx_guest_fail(HAPAX_INVALID, "db is NULL");
    if (!HX_STRUCT_IS_FIT(w.record, hapax_record) || !HX_STRUCT_IS_FIT(w.claim, hapax_claim)) return HAPAX_INVALID;
    hapax_record_clear(w.record);
    int code = hx_guest_run(NULL, body, &w);
    hapax_record_clear(&own);
    return code;
}

int hapax_sqlite_begin(sqlite3 *db, const hapax_request *request, hapax_claim *claim, hapax_record *record)
{
    work w = {.db = db, .request = request, .claim = claim, .record = record};
    return run(w, begin_body);
}

static int settle(sqlite3 *db, const hapax_claim *claim, int state, const hapax_result *result, const char *reason,
                  hapax_record *record)
{
    work w = {
        .db = db, .claim = (hapax_claim *)claim, .result = result, .reason = reason, .record = record, .state = state};
    return run(w, settle_body);
}

int hapax_sqlite_complete(sqlite3 *db, const hapax_claim *claim, const hapax_result *result, hapax_record *record)
{
    return settle(db, claim, HAPAX_STATE_COMPLETED, result, NULL, record);
}

int hapax_sqlite_fail(sqlite3 *db, const hapax_claim *claim, const hapax_result *result, hapax_record *record)
{
    return settle(db, claim, HAPAX_STATE_FAILED, result, NULL, record);
}

int hapax_sqlite_release(sqlite3 *db, const hapax_claim *claim, const char *reason, hapax_record *record)
{
    return settle(db, claim, HAPAX_STATE_ABSENT, NULL, reason, record);
}

int hapax_sqlite_execute(sqlite3 *db, const hapax_request *request, hapax_operation *operation, void *context,
                         hapax_record *outcome)
{
    hapax_claim claim = {.size = sizeof claim};
    hapax_result result = {.size = sizeof result};
    hapax_request repeatable;
    if (!operation) return hx_guest_fail(HAPAX_INVALID, "operation is NULL");
    if (!HX_STRUCT_TAKE(&repeatable, request, hapax_request)) return HAPAX_INVALID;
    repeatable.size = sizeof repeatable;
    repeatable.flags |= HAPAX_REPEATABLE;
    int code = hapax_sqlite_begin(db, &repeatable, &claim, outcome);
    if (code == HAPAX_OK) code = step(db, "SAVEPOINT hapax_effect");
    if (code != HAPAX_OK) return code;
    int state = operation(context, &claim, &result);
    if (state != HAPAX_STATE_COMPLETED) code = step(db, "ROLLBACK TO hapax_effect");
    if (code == HAPAX_OK) code = step(db, "RELEASE hapax_effect");
    if (code != HAPAX_OK) return code;
    switch (state) {
    case HAPAX_STATE_COMPLETED: return hapax_sqlite_complete(db, &claim, &result, outcome);
    case HAPAX_STATE_FAILED: return hapax_sqlite_fail(db, &claim, &result, outcome);
    default: return hapax_sqlite_release(db, &claim, "the operation was not executed", outcome);
    }
}

int hapax_sqlite_claim(const char *header, hapax_claim *claim)
{
    hx_in_transaction_operation operation;
    if (!HX_STRUCT_IS_FIT(claim, hapax_claim)) return HAPAX_INVALID;
    if (!header || !hx_sqlite_operation_of(hx_slice_of(header), &operation))
        return hx_guest_fail(HAPAX_INVALID, "this is no value of Hapax-Operation");
    hx_struct_put_claim(claim, &operation.op, operation.epoch, 0, 0);
    return HAPAX_OK;
}

typedef struct {
    sqlite3 *db;
    unsigned max, *cleaned;
} cleaning;

static int clean_body(hx_guest *call, void *arguments)
{
    cleaning *c = arguments;
    hx_record nothing = {.reason = HX_LIT("can't remove expired operations")};
    hapax_record unused = {.size = sizeof unused};
    (void)call;
    int code = hx_lib_tell(hx_sqlite_clean(c->db, c->max, c->cleaned), &nothing, &unused, hx_guest_message());
    hapax_record_clear(&unused);
    return code;
}

int hapax_sqlite_clean(sqlite3 *db, unsigned int max, unsigned int *cleaned)
{
    unsigned unused;
    if (!db) return hx_guest_fail(HAPAX_INVALID, "db is NULL");
    return hx_guest_run(NULL, clean_body, &(cleaning){db, max, cleaned ? cleaned : &unused});
}

/* Publishing */

typedef struct {
    sqlite3 *db;
    const hapax_event *given;
} publishing;

static void put_member(hx_buf *out, const char *name, const char *text)
{
    if (text) hx_json_put_text(out, name, hx_slice_of(text));
}

/* The event as the API takes it, checked as there. */
static bool write_event(const hapax_event *given, hx_arena *arena, hx_slice *out)
{
    char id[HAPAX_KEY_BYTES];
    hx_buf buf;
    hx_event read;
    hx_slice data = hx_struct_text(given->data);
    if (!given->type || data.len == 0) return hx_fail(hx_guest_message(), "an event needs a type, and data");
    if (!given->id && hapax_new_key(id) != HAPAX_OK) return false;
    size_t texts = hx_struct_text(given->id).len + hx_struct_text(given->type).len + hx_struct_text(given->tenant).len +
                   hx_struct_text(given->stream).len + hx_struct_text(given->correlation_id).len;
    hx_buf_init(&buf, arena, data.len + 6 * texts + 1024);
    hx_json_open(&buf, NULL, '{');
    put_member(&buf, "id", given->id ? given->id : id);
    put_member(&buf, "type", given->type);
    put_member(&buf, "tenant", given->tenant);
    put_member(&buf, "stream", given->stream);
    put_member(&buf, "correlation_id", given->correlation_id);
    if (given->deliver_at > 0) hx_json_put_time(&buf, "deliver_at", given->deliver_at);
    hx_json_put_raw(&buf, "data", data);
    hx_json_close(&buf, '}');
    *out = hx_buf_slice(&buf);
    return hx_event_read(*out, arena, &read, hx_guest_message());
}

static int publish_body(hx_guest *call, void *arguments)
{
    publishing *p = arguments;
    hapax_event given;
    hx_slice event = HX_EMPTY;
    hx_record found;
    hapax_record unused = {.size = sizeof unused};
    if (!HX_STRUCT_TAKE(&given, p->given, hapax_event) || !write_event(&given, &call->arena, &event))
        return HAPAX_INVALID;
    int code = hx_lib_tell(hx_sqlite_publish(p->db, event, &call->arena, &found), &found, &unused, hx_guest_message());
    hapax_record_clear(&unused);
    return code;
}

int hapax_sqlite_publish(sqlite3 *db, const hapax_event *event)
{
    if (!db) return hx_guest_fail(HAPAX_INVALID, "db is NULL");
    return hx_guest_run(NULL, publish_body, &(publishing){db, event});
}
