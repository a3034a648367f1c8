/* SPDX-License-Identifier: Apache-2.0 */
/* Routes of the demo application, and the faults that it commits when asked to:
 *
 *   Demo-Fault: delay=500ms           waits, then goes on
 *   Demo-Fault: reset-before-effect   cuts the connection, nothing happened
 *   Demo-Fault: drop-after-effect     does it, then cuts the connection
 *   Demo-Fault: truncate              does it, then answers half and cuts the connection
 *   Demo-Fault: hang                  does it, and never answers
 *   Demo-Fault: status=503            answers that, nothing happened
 *   Demo-Fault: status-after=500      does it, and answers that
 * Several are separated by commas; "2:status=502" is for the second attempt alone, as Hapax-Attempt counts them. */
#include "examples/refunds/app.h"

#include "base/check.h"
#include "base/memory/list.h"
#include "core/json/json.h"
#include "examples/refunds/ledger.h"
#include "net/server.h"

#include <stdio.h>
#include <string.h>

#define BODY_BYTES_MAX (64u * 1024u)
#define ANSWER_BYTES_MAX (16u * 1024u * 1024u)

typedef struct {
    hx_loop *loop;
    hx_server *server;
    hx_ledger ledger;
} application;

typedef struct {
    application *app;
    hx_stream *stream;
    hx_buf body;
    bool too_large;
    hx_timer delay;
    struct {
        hx_ms delay;
        unsigned status, status_after;
        bool reset_before, drop_after, truncate, hang;
    } fault;
    /* the answer */
    unsigned status;
    hx_buf lines;
    hx_buf answer;
} call;

static void fail(call *c, unsigned status, const char *code, const char *message)
{
    c->status = status;
    c->answer.len = 0;
    bool fits = hx_buf_printf(&c->answer, "{\"error\":\"%s\",\"message\":\"%s\"}\n", code, message);
    HX_CHECK(fits);
}

static void put_etag(call *c, unsigned version)
{
    bool fits = hx_buf_printf(&c->lines, "ETag: \"%u\"\r\n", version);
    HX_CHECK(fits);
}

static void answer_charge(call *c, unsigned status, const hx_charge *charge)
{
    c->status = status;
    put_etag(c, charge->version);
    if (status == 201) {
        bool fits = hx_buf_printf(&c->lines, "Location: /charges/ch_%u\r\n", charge->number);
        HX_CHECK(fits);
    }
    hx_ledger_put_charge(&c->answer, charge);
    hx_buf_puts(&c->answer, "\n");
}

static void answer_refund(call *c, unsigned status, const hx_refund *refund)
{
    c->status = status;
    put_etag(c, refund->version);
    if (status == 201) {
        bool fits = hx_buf_printf(&c->lines, "Location: /refunds/rf_%u\r\n", refund->number);
        HX_CHECK(fits);
    }
    hx_ledger_put_refund(&c->answer, refund);
    hx_buf_puts(&c->answer, "\n");
}

static bool text_at(call *c, const char *pointer, hx_slice *value)
{
    hx_slice raw;
    return hx_json_pointer(hx_buf_slice(&c->body), hx_slice_of(pointer), &raw) &&
           hx_json_string(raw, &c->stream->arena, value);
}

static bool amount_at(call *c, int64_t *amount)
{
    hx_slice raw;
    uint64_t value;
    if (!hx_json_pointer(hx_buf_slice(&c->body), HX_LIT("/amount"), &raw)) return false;
    if (!hx_slice_to_u64(raw, &value) || value == 0 || value > INT32_MAX) return false;
    *amount = (int64_t)value;
    return true;
}

static void create_charge(call *c)
{
    int64_t amount;
    hx_slice currency = HX_LIT("USD");
    if (!amount_at(c, &amount)) {
        fail(c, 422, "amount_invalid", "amount has to be a whole number of cents, 1 or more");
        return;
    }
    hx_slice given;
    if (text_at(c, "/currency", &given) && given.len == 3 && hx_slice_is_token(given)) currency = given;
    hx_charge *charge = hx_ledger_charge(&c->app->ledger, amount, currency, hx_loop_now(c->app->loop));
    if (!charge)
        fail(c, 507, "books_full", "the demo keeps no more than 100000 rows: start it anew");
    else
        answer_charge(c, 201, charge);
}

/* The Idempotency-Key as the application sees it: without the quotes of its quoted form. */
static hx_slice key_of(const call *c)
{
    hx_slice key = hx_fields_get(&c->stream->request.fields, HX_FIELD_IDEMPOTENCY_KEY);
    if (key.len >= 2 && key.ptr[0] == '"' && key.ptr[key.len - 1] == '"') key = (hx_slice){key.ptr + 1, key.len - 2};
    return key;
}

/* POST /payouts: the same by a service that deduplicates. What its key has done before is answered, not done again. */
static bool answer_earlier(call *c)
{
    const hx_ledger *ledger = &c->app->ledger;
    hx_slice key = key_of(c);
    for (unsigned i = 0; i < ledger->refund_count; i++) {
        if (key.len == 0 || !hx_slice_eq(key, hx_slice_of(ledger->refunds[i].key))) continue;
        answer_refund(c, 201, &ledger->refunds[i]);
        return true;
    }
    return false;
}

static void create_refund(call *c)
{
    hx_slice id;
    int64_t amount;
    if (!text_at(c, "/charge_id", &id) || !amount_at(c, &amount)) {
        fail(c, 422, "refund_invalid", "a refund has a charge_id and an amount in cents");
        return;
    }
    hx_charge *charge = hx_ledger_find_charge(&c->app->ledger, id);
    if (!charge) {
        fail(c, 404, "charge_not_found", "there is no such charge");
    } else if (charge->voided || amount > charge->amount - charge->refunded) {
        fail(c, 422, "amount_too_large", "more than what is left of the charge");
    } else {
        hx_refund *refund = hx_ledger_refund(&c->app->ledger, charge, amount, key_of(c), hx_loop_now(c->app->loop));
        if (!refund)
            fail(c, 507, "books_full", "the demo keeps no more than 100000 rows: start it anew");
        else
            answer_refund(c, 201, refund);
    }
}

static void list_refunds(call *c)
{
    const hx_ledger *ledger = &c->app->ledger;
    hx_slice query = c->stream->request.query, wanted = HX_EMPTY;
    bool by_key = hx_slice_starts(query, HX_LIT("idempotency_key="));
    if (by_key) wanted = hx_slice_from(query, sizeof "idempotency_key=" - 1);
    bool first = true;
    c->status = 200;
    hx_buf_puts(&c->answer, "{\"data\":[");
    for (unsigned i = 0; i < ledger->refund_count; i++) {
        if (by_key && !hx_slice_eq(wanted, hx_slice_of(ledger->refunds[i].key))) continue;
        if (!first) hx_buf_puts(&c->answer, ",");
        first = false;
        hx_ledger_put_refund(&c->answer, &ledger->refunds[i]);
    }
    hx_buf_puts(&c->answer, "]}\n");
}

/* An update only against the version that the client has seen. */
static void update_charge(call *c, hx_charge *charge)
{
    char etag[16];
    (void)snprintf(etag, sizeof etag, "\"%u\"", charge->version);
    const hx_fields *fields = &c->stream->request.fields;
    hx_slice description;
    if (fields->lines[HX_FIELD_IF_MATCH] == 0) {
        fail(c, 428, "if_match_missing", "send If-Match with the ETag that you have seen");
    } else if (!hx_slice_eq(hx_fields_get(fields, HX_FIELD_IF_MATCH), hx_slice_of(etag))) {
        fail(c, 412, "changed_meanwhile", "the charge has another ETag now");
    } else if (!text_at(c, "/description", &description) || description.len >= sizeof charge->description) {
        fail(c, 422, "description_invalid", "description has to be a text of less than 128 bytes");
    } else {
        if (description.len > 0) memcpy(charge->description, description.ptr, description.len);
        charge->description[description.len] = '\0';
        charge->version++;
        answer_charge(c, 200, charge);
    }
}

static void on_charge(call *c, hx_slice id, hx_slice action)
{
    hx_charge *charge = hx_ledger_find_charge(&c->app->ledger, id);
    hx_slice method = c->stream->request.method;
    if (!charge) {
        fail(c, 404, "charge_not_found", "there is no such charge");
    } else if (hx_slice_eq(action, HX_LIT("void")) && hx_slice_eq(method, HX_LIT("POST"))) {
        if (hx_ledger_void_charge(&c->app->ledger, charge))
            answer_charge(c, 200, charge);
        else
            fail(c, 409, "cannot_void", "the charge is voided or refunded already");
    } else if (action.len == 0 && hx_slice_eq(method, HX_LIT("GET"))) {
        answer_charge(c, 200, charge);
    } else if (action.len == 0 && (hx_slice_eq(method, HX_LIT("PATCH")) || hx_slice_eq(method, HX_LIT("PUT")))) {
        update_charge(c, charge);
    } else {
        fail(c, 405, "method_not_allowed", "see the README");
    }
}

static void on_refund(call *c, hx_slice id, hx_slice action)
{
    hx_refund *refund = hx_ledger_find_refund(&c->app->ledger, id);
    hx_slice method = c->stream->request.method;
    if (!refund) {
        fail(c, 404, "refund_not_found", "there is no such refund");
    } else if (hx_slice_eq(action, HX_LIT("void")) && hx_slice_eq(method, HX_LIT("POST"))) {
        if (hx_ledger_void_refund(&c->app->ledger, refund))
            answer_refund(c, 200, refund);
        else
            fail(c, 409, "cannot_void", "the refund is voided already");
    } else if (action.len == 0 && hx_slice_eq(method, HX_LIT("GET"))) {
        answer_refund(c, 200, refund);
    } else {
        fail(c, 405, "method_not_allowed", "see the README");
    }
}

static void route(call *c)
{
    hx_slice rest = c->stream->request.path, root = HX_EMPTY, collection = HX_EMPTY, id = HX_EMPTY, action = HX_EMPTY;
    bool is_post = hx_slice_eq(c->stream->request.method, HX_LIT("POST"));
    bool is_get = hx_slice_eq(c->stream->request.method, HX_LIT("GET"));
    (void)(hx_slice_next(&rest, '/', &root) && hx_slice_next(&rest, '/', &collection) &&
           hx_slice_next(&rest, '/', &id) && hx_slice_next(&rest, '/', &action));
    if (hx_slice_eq(collection, HX_LIT("charges")) && id.len > 0) {
        on_charge(c, id, action);
    } else if (hx_slice_eq(collection, HX_LIT("refunds")) && id.len > 0) {
        on_refund(c, id, action);
    } else if (hx_slice_eq(collection, HX_LIT("charges")) && is_post) {
        create_charge(c);
    } else if (hx_slice_eq(collection, HX_LIT("refunds")) && is_post) {
        create_refund(c);
    } else if (hx_slice_eq(collection, HX_LIT("payouts")) && is_post) {
        if (!answer_earlier(c)) create_refund(c);
    } else if (hx_slice_eq(collection, HX_LIT("refunds")) && is_get) {
        list_refunds(c);
    } else if (hx_slice_eq(collection, HX_LIT("ledger")) && is_get) {
        c->status = 200;
        hx_ledger_put_entries(&c->answer, &c->app->ledger);
    } else {
        fail(c, 404, "not_found", "try /charges, /refunds, /payouts or /ledger");
    }
}

static void release(call *c)
{
    hx_timer_stop(c->app->loop, &c->delay);
    hx_stream_release(c->stream);
}

static void send_answer(call *c)
{
    hx_slice answer = hx_buf_slice(&c->answer), lines = hx_buf_slice(&c->lines);
    if (c->fault.truncate) {
        hx_stream_begin(c->stream, c->status, hx_status_reason(c->status), lines, (int64_t)answer.len);
        (void)hx_stream_write(c->stream, hx_slice_first(answer, answer.len / 2));
        hx_stream_abort(c->stream);
    } else {
        hx_stream_answer(c->stream, c->status, hx_status_reason(c->status), lines, answer, true);
    }
    release(c);
}

static void client_left(hx_stream *stream)
{
    release(stream->user);
}

static void act(hx_timer *timer)
{
    call *c = HX_OWNER(timer, call, delay);
    hx_buf_init(&c->lines, &c->stream->arena, 1024);
    hx_buf_init(&c->answer, &c->stream->arena, ANSWER_BYTES_MAX);
    hx_buf_puts(&c->lines, "Content-Type: application/json\r\n");
    if (c->fault.reset_before) {
        release(c); /* unanswered: the connection is cut */
        return;
    }
    if (c->fault.status)
        fail(c, c->fault.status, "demo_fault", "nothing happened");
    else if (c->too_large)
        fail(c, 413, "too_large", "the demo takes 64 KiB");
    else
        route(c);
    if (c->fault.status_after) fail(c, c->fault.status_after, "demo_fault", "it happened all the same");
    if (c->fault.drop_after)
        release(c);
    else if (c->fault.hang)
        c->stream->events.closed = client_left;
    else
        send_answer(c);
}

static bool fault_value(hx_slice fault, const char *name, uint64_t *value)
{
    hx_slice prefix = hx_slice_of(name);
    if (!hx_slice_starts(fault, prefix)) return false;
    hx_slice number = hx_slice_from(fault, prefix.len);
    if (hx_slice_ends(number, HX_LIT("ms"))) number.len -= 2;
    return hx_slice_to_u64(number, value);
}

/* Takes the attempt off the front of "2:status=502". False: it is meant for another attempt. */
static bool is_for_this_attempt(const call *c, hx_slice *fault)
{
    const hx_field *field = hx_fields_find(&c->stream->request.fields, HX_LIT("Hapax-Attempt"));
    size_t colon = hx_slice_find(*fault, ':');
    if (colon == SIZE_MAX) return true;
    hx_slice attempt = hx_slice_first(*fault, colon);
    *fault = hx_slice_from(*fault, colon + 1);
    return field && hx_slice_eq(field->value, attempt);
}

static void read_faults(call *c)
{
    const hx_field *field = hx_fields_find(&c->stream->request.fields, HX_LIT("Demo-Fault"));
    hx_slice rest = field ? field->value : (hx_slice){NULL, 0}, part;
    uint64_t value = 0;
    while (hx_slice_next(&rest, ',', &part)) {
        hx_slice fault = hx_slice_trim(part);
        if (!is_for_this_attempt(c, &fault)) continue;
        if (fault_value(fault, "delay=", &value)) c->fault.delay = (hx_ms)(value < 600000 ? value : 600000);
        if (fault_value(fault, "status=", &value) && value >= 200 && value < 600) c->fault.status = (unsigned)value;
        if (fault_value(fault, "status-after=", &value) && value >= 200 && value < 600)
            c->fault.status_after = (unsigned)value;
        c->fault.reset_before |= hx_slice_eq(fault, HX_LIT("reset-before-effect"));
        c->fault.drop_after |= hx_slice_eq(fault, HX_LIT("drop-after-effect"));
        c->fault.truncate |= hx_slice_eq(fault, HX_LIT("truncate"));
        c->fault.hang |= hx_slice_eq(fault, HX_LIT("hang"));
    }
}

static void begin_to_act(call *c)
{
    /* From here on the work is done whether its client stays or not, as in most applications. */
    c->stream->events = (hx_stream_events){0};
    hx_timer_start(c->app->loop, &c->delay, c->fault.delay, act);
}

static void take_body(hx_stream *stream, hx_slice piece, bool last)
{
    call *c = stream->user;
    if (!hx_buf_append(&c->body, piece)) c->too_large = true;
    if (last) begin_to_act(c);
}

static void body_broken(hx_stream *stream, unsigned status, const char *detail)
{
    (void)status;
    (void)detail;
    release(stream->user);
}

static void start(void *context, hx_stream *stream)
{
    call *c = hx_arena_zalloc(&stream->arena, sizeof *c);
    c->app = context;
    c->stream = stream;
    stream->user = c;
    hx_buf_init(&c->body, &stream->arena, BODY_BYTES_MAX);
    read_faults(c);
    if (!stream->request.has_body) {
        begin_to_act(c);
        return;
    }
    stream->events = (hx_stream_events){.body = take_body, .broken = body_broken};
    hx_stream_read(stream);
}

static void malformed(void *context, hx_stream *stream, unsigned status, const char *detail)
{
    (void)context;
    (void)detail;
    hx_stream_answer(stream, status, hx_status_reason(status), HX_EMPTY, HX_EMPTY, true);
    hx_stream_release(stream);
}

int hx_refunds_serve(hx_slice address, int announce)
{
    static const hx_server_handler handler = {.request = start, .malformed = malformed};
    const hx_server_limits limits = {.connections_max = 4096,
                                     .head_bytes_max = 64u * 1024u,
                                     .fields_max = 200,
                                     .chunk_extension_bytes_max = 4096,
                                     .head_timeout = 30 * HX_SECOND,
                                     .idle_timeout = HX_HOUR,
                                     .send_timeout = 30 * HX_SECOND};
    application app = {.loop = hx_loop_new()};
    char bound[HX_ADDRESS_BYTES];
    hx_error_text error;
    int descriptor = hx_listen(address, bound, error);
    if (descriptor < 0) {
        fprintf(stderr, "hapax demo: the application can't listen on %.*s: %s\n", HX_FMT(address), error);
        return HX_EXIT_ADDRESS;
    }
    (void)hx_ledger_charge(&app.ledger, 5000, HX_LIT("USD"), hx_clock_now());
    app.server = hx_server_new(app.loop, &limits, &handler, &app);
    hx_server_accept(app.server, descriptor, hx_slice_of(bound));
    dprintf(announce, "%s\n", bound);
    hx_loop_run(app.loop); /* until the signal that ends the process */
    return HX_EXIT_OK;
}
