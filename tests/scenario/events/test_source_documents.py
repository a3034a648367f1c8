# SPDX-License-Identifier: Apache-2.0
"""What the five source documents say about events, webhooks, inboxes and outboxes: each sentence has the tests that
show it, and the stories that no other file tells are here."""
import json

import pytest

from harness import Hooks, answer, eventually, in_turn
from harness.names import names_a_test

PLAYBOOK = "Idempotency & Retries (Contract + Playbook)"
REQUESTS = "Request Idempotency Patterns"
INVARIANTS = "Retries & Idempotency Invariants"
CONTRACT = "Yoked: Idempotency and Retries Contract"
PATTERNS = "Idempotency & Safe Retry Patterns"

HERE = "test_source_documents::"
LEDGER_ONCE = HERE + "test_duplicate_refund_succeeded_makes_one_ledger_entry"
INBOX_ROW = HERE + "test_what_the_inbox_keeps_of_an_event"
LOGGED = HERE + "test_each_change_of_an_event_is_logged"
OUT_OF_ORDER = HERE + "test_a_late_event_is_not_held_up_by_one_that_fails"
CLIENT_ERRORS = HERE + "test_a_client_error_is_final_where_the_endpoint_says_so"
COUNTED = HERE + "test_deliveries_that_succeed_are_counted"
REJECTED = HERE + "test_a_duplicate_event_is_rejected_at_write_and_the_stored_one_is_read"
SAGA = "test_saga::test_every_refund_is_in_the_ledger_once_whoever_is_killed"
RELAY = "test_relay::test_what_is_committed_is_delivered_once_and_what_is_rolled_back_never"
ONCE = "test_inbox::test_a_webhook_is_delivered_once_however_often_it_comes"
SURVIVES = "test_inbox::test_a_webhook_that_was_acknowledged_survives_a_kill"
WEBHOOKS = "test_webhooks_example::test_each_webhook_is_acknowledged_and_processed_once"
REACHES = "test_outbox::test_an_event_reaches_those_who_subscribed_signed_and_once"
REPEATED = "test_outbox::test_a_failed_attempt_is_repeated_five_seconds_later_under_the_same_id"
KILLED = "test_outbox::test_what_was_accepted_is_delivered_after_a_kill"
SAME_ID = "test_outbox::test_publishing_again_tells_the_first_answer_and_sends_nothing"
DEAD = "events/test_engine::a_dead_letter_keeps_its_event_and_can_be_sent_again"
SCHEDULE = "core/test_delivery::ten_attempts_come_at_their_places_and_then_it_is_dead"
STEPS = "core/test_backoff::the_webhook_delivery_attempts"
MATCHES = "test_yoked_matches::"

TABLE = [
    (PLAYBOOK, "Scope: webhooks/events (producer to consumer), outbox/inbox processing", [SAGA]),
    (PLAYBOOK, "Webhooks: event id: include unique id and source", [REACHES, SAGA]),
    (PLAYBOOK, "Webhooks: consumer must dedupe using {event_id}", [ONCE, LEDGER_ONCE]),
    (PLAYBOOK, "Webhooks: or a derived dedupe_key", [HERE + "test_an_event_without_an_id_is_known_by_its_dedupe_key"]),
    (PLAYBOOK, "Webhooks: inbox table {event_id PK, received_at, processed_at, result, payload_hash}", [INBOX_ROW]),
    (PLAYBOOK, "Webhooks: do not assume order; model state to handle out-of-order", [OUT_OF_ORDER, SAGA]),
    (PLAYBOOK, "Webhooks: backoff on transient consumer errors", [REPEATED, SCHEDULE]),
    (PLAYBOOK, "Webhooks: DLQ after N attempts", [SCHEDULE, DEAD]),
    (PLAYBOOK, "Webhooks: log event_id, from_state, to_state and correlation_id", [LOGGED]),
    (PLAYBOOK, "Outbox: domain change and outbox row in one transaction",
     [RELAY, SAGA, MATCHES + "test_match_that_is_taken_back_is_never_published"]),
    (PLAYBOOK, "Outbox: a delivery job sends events; retries until acknowledged", [REPEATED, KILLED, SAGA]),
    (PLAYBOOK, "Inbox: consumer writes inbox row before handling", [SURVIVES]),
    (PLAYBOOK, "Inbox: retries handler", [WEBHOOKS]),
    (PLAYBOOK, "Inbox: side-effects after inbox write", [SURVIVES, SAGA]),
    (PLAYBOOK, "Tests: 4. duplicate webhook refund.succeeded: consumer dedupes; one ledger entry", [LEDGER_ONCE]),
    (PLAYBOOK, "Anti-patterns: webhook consumers without an inbox/dedupe table", [ONCE, SAGA]),
    (PLAYBOOK, "Checklist: outbox/inboxes used; consumers dedupe by event_id", [SAGA]),
    (PLAYBOOK, "CSV seeds: consumer inbox: ev_001 ok, then replayed", [INBOX_ROW]),
    (REQUESTS, "Strategy 3: event ID = idempotency key", [SAME_ID, REJECTED]),
    (REQUESTS, "Strategy 3: duplicate events rejected at write", [REJECTED]),
    (REQUESTS, "Strategy 3: read from event store to get result", [REJECTED]),
    (REQUESTS, "Pattern 3: use webhook ID as idempotency key", [ONCE, WEBHOOKS]),
    (REQUESTS, "Pattern 3: process once", [WEBHOOKS]),
    (REQUESTS, "Pattern 3: res.json({ received: true })", [ONCE, WEBHOOKS]),
    (REQUESTS, "Pattern 3: even if processing fails, acknowledge receipt", [WEBHOOKS]),
    (INVARIANTS, "INV-4: maximum retry count prevents infinite retries", [SCHEDULE]),
    (INVARIANTS, "INV-5: retry only for transient errors", [CLIENT_ERRORS]),
    (PATTERNS, "Retry after timeout: with same idempotency key", [KILLED, SURVIVES]),
    (CONTRACT, "Maximum Retry Limits: webhook delivery, 10, 24 hours", [SCHEDULE, STEPS]),
    (CONTRACT, "Webhook Retry Policy: immediate, 5 s, 30 s, 2 min, 10 min, 30 min, 1 h, 6 h, 12 h, 24 h",
     [STEPS, SCHEDULE, "events/test_engine::a_failed_delivery_keeps_to_its_schedule_and_its_id"]),
    (CONTRACT, "Webhook Idempotency: each webhook includes an eventId: {eventId, eventType, timestamp, data}",
     [REACHES, REPEATED]),
    (CONTRACT, "Consumer: store processed eventId for 7 days",
     [MATCHES + "test_consumer_ignores_a_duplicate_for_seven_days_and_answers_200"]),
    (CONTRACT, "Consumer: ignore duplicate eventId within 7 days",
     [MATCHES + "test_consumer_ignores_a_duplicate_for_seven_days_and_answers_200"]),
    (CONTRACT, "Consumer: return 200 OK for processed events", [ONCE,
     MATCHES + "test_consumer_ignores_a_duplicate_for_seven_days_and_answers_200"]),
    (CONTRACT, "Example: match.created", [MATCHES + "test_mutual_accept_publishes_match_created_once"]),
    (CONTRACT, "Metrics: webhook_delivery_success", [COUNTED]),
    (CONTRACT, "Checklist: webhook retry queue with exponential backoff", [SCHEDULE, KILLED]),
]


@pytest.mark.parametrize("document, row, tests", TABLE, ids=[f"{document[:12]}: {row}" for document, row, _ in TABLE])
def test_row_has_the_tests_that_it_names(document, row, tests):
    assert tests
    missing = [name for name in tests if not names_a_test(name)]
    assert not missing, f"{document}, {row}: no such test: {missing}"


class Ledger:
    """Careless, as handlers are: an entry for every call."""

    def __init__(self, upstream, path):
        self.entries = []
        upstream.on(path, self.enter)

    def enter(self, exchange):
        event = json.loads(exchange.read_body())
        self.entries.append((event["type"], event["data"]["refund"]))
        exchange.execute()
        exchange.answer(200)


def test_duplicate_refund_succeeded_makes_one_ledger_entry(start_hooks, upstream, store):
    hooks, ledger = start_hooks(store=store), Ledger(upstream, "/app/strict")
    event = json.dumps({"type": "refund.succeeded", "data": {"refund": "rf_123"}}).encode()
    answers = [hooks.standard("strict", "ev_001", event) for _ in range(3)]
    hooks.wait_state("in_strict", "ev_001", "delivered")
    answers += [hooks.standard("strict", "ev_001", event) for _ in range(3)]
    assert [(got.status, got.json()) for got in answers] == [(200, {"received": True})] * 6
    assert [got.header("Idempotency-Status") for got in answers] == ["stored"] + 5 * ["replayed"]
    assert ledger.entries == [("refund.succeeded", "rf_123")]


def test_what_the_inbox_keeps_of_an_event(hooks):
    assert hooks.standard("strict", "ev_001").header("Idempotency-Status") == "stored"
    processed = hooks.wait_state("in_strict", "ev_001", "delivered")
    assert hooks.standard("strict", "ev_001").header("Idempotency-Status") == "replayed"
    events = hooks.call("GET", "/v1/events?source=strict").json()["events"]
    assert [(event["id"], event["source"]) for event in events] == [("ev_001", "strict")]
    assert len(events[0]["payload_hash"]) == 64
    assert events[0]["accepted_at"] <= processed["settled_at"]
    assert [attempt["status"] for attempt in processed["tries"]] == [201]


def test_an_event_without_an_id_is_known_by_its_dedupe_key(start_api, upstream, tmp_path):
    api = start_api(f"""
        inbox: {{listen: 127.0.0.1:0}}
        sources:
          - name: warehouse
            scheme: none
            dedupe_key: "{{body:/orderId}}:{{body:/status}}"
            deliver: {upstream.url}/app
        """, store=f"journal:{tmp_path}/events")
    hooks = Hooks(api, upstream)
    for body in ({"orderId": 7, "status": "sent", "at": 1}, {"orderId": 7, "status": "sent", "at": 1},
                 {"orderId": 7, "status": "delivered", "at": 2}):
        taken = hooks.send("warehouse", json.dumps(body).encode(), [("Content-Type", "application/json")])
        assert taken.status == 200, taken
    events = [event["id"] for event in hooks.call("GET", "/v1/events?source=warehouse").json()["events"]]
    assert len(events) == 2
    for event in events:
        hooks.wait_state("in_warehouse", event, "delivered")
    assert upstream.effects("/app") == 2


def test_a_late_event_is_not_held_up_by_one_that_fails(hooks, upstream):
    upstream.on("/app/strict", in_turn(answer(503), answer(200)))
    assert hooks.standard("strict", "ev_001").status == 200
    eventually(lambda: hooks.delivery("in_strict", "ev_001").get("tries"), "a first attempt that failed")
    assert hooks.standard("strict", "ev_002", b'{"a": 2}').status == 200
    hooks.wait_state("in_strict", "ev_002", "delivered")
    assert hooks.delivery("in_strict", "ev_001")["state"] == "pending"


def test_each_change_of_an_event_is_logged(hooks):
    endpoint = hooks.endpoint("/hook")["id"]
    event = hooks.publish(source="payments", correlation_id="c-1").json()["id"]
    hooks.wait_state(endpoint, event, "delivered")
    assert hooks.standard("strict", "ev_001").status == 200
    hooks.wait_state("in_strict", "ev_001", "delivered")
    lines = {line["event_id"]: line for line in hooks.gateway.wait_events("delivery_attempt", 2)}
    wanted = {"source": "payments", "from_state": "sending", "to_state": "delivered", "attempt": 1,
              "correlation_id": "c-1"}
    assert {name: lines[event].get(name) for name in wanted} == wanted
    received = lines["ev_001"]
    assert (received["source"], received["from_state"], received["to_state"]) == ("strict", "sending", "delivered")
    assert received["correlation_id"]


def test_a_client_error_is_final_where_the_endpoint_says_so(hooks, upstream):
    upstream.on("/final", answer(422))
    upstream.on("/usual", answer(422))
    final = hooks.endpoint("/final", on_client_error="dead")["id"]
    usual = hooks.endpoint("/usual")["id"]
    event = hooks.publish().json()["id"]
    assert hooks.wait_state(final, event, "dead")["attempts"] == 1
    eventually(lambda: hooks.delivery(usual, event).get("tries"), "an attempt")
    assert hooks.wait_state(usual, event, "pending")["attempts"] == 1


def test_deliveries_that_succeed_are_counted(hooks, upstream):
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", in_turn(answer(500), answer(200)))
    first, second = hooks.publish().json()["id"], hooks.publish().json()["id"]
    eventually(lambda: "delivered" in {hooks.delivery(endpoint, event)["state"] for event in (first, second)},
               "a delivery")
    eventually(lambda: hooks.gateway.counts("events")["webhook_delivery_failure"] == 1, "a failure")
    counts = hooks.gateway.counts("events")
    assert (counts["webhook_attempts"], counts["webhook_delivery_success"]) == (2, 1)


def test_a_duplicate_event_is_rejected_at_write_and_the_stored_one_is_read(start_hooks, store):
    hooks = start_hooks(store=store)
    assert hooks.publish(id="order-17-paid", data={"amount": 5}).status == 202
    rejected = hooks.publish(id="order-17-paid", data={"amount": 6})
    assert (rejected.status, rejected.json()["error_code"]) == (409, "CONFLICT.event.published_before")
    assert hooks.call("GET", "/v1/events/order-17-paid").json()["data"] == {"amount": 5}
    assert len(hooks.call("GET", "/v1/events").json()["events"]) == 1
