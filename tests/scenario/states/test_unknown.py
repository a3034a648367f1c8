# SPDX-License-Identifier: Apache-2.0
"""Unknown: how it is left again, what a later attempt's answer says of an earlier one, and that an old exchange never
overwrites a newer one."""
import threading

import pytest

from harness import (HANG_S, Deduplicating, answer, basic, drop_after_effect, eventually, in_turn, never_answer,
                     numbered, quick_retries)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
ATTEMPTS = 4


def epochs(upstream, path="/refunds"):
    operations = [request.header("Hapax-Operation").rsplit(".", 1) for request in upstream.received(path)]
    assert len({identity for identity, _ in operations}) == 1, operations
    return [int(epoch) for _, epoch in operations]


@pytest.fixture
def once(start_gateway):
    """An idempotent application, and one attempt a request."""
    return start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="1s", retry="{attempts: 1}"))


@pytest.fixture
def idempotent(start_gateway):
    return start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="2s"), store="memory:")


class LateFirst:
    """Answers every request with its own number, the first one not before it is let go. It does not deduplicate,
    so that the answers can be told apart."""

    def __init__(self):
        self.let_go = threading.Event()
        self.sent = threading.Event()

    def __call__(self, exchange):
        exchange.read_body()
        number = exchange.execute()
        if number == 1:
            self.let_go.wait(HANG_S)
        exchange.answer(201, {"effect": number})
        if number == 1:
            self.sent.set()


def test_unknown_is_sent_again_by_the_next_request_with_a_new_epoch(once, upstream, key):
    upstream.on("/refunds", Deduplicating("close"))
    first = once.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    second = once.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.idempotency) == (201, "stored")
    third = once.post("/refunds", key=key, json=REFUND)
    assert (third.body, third.idempotency) == (second.body, "replayed")

    before, after = epochs(upstream)
    assert after > before
    assert [request.header("Hapax-Attempt") for request in upstream.received("/refunds")] == ["1", "2"]
    assert once.counts()["unknown_sent_again"] == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("how", ["kill", "drain"])
def test_unknown_of_an_earlier_start_is_sent_again(once, upstream, key, how):
    upstream.on("/refunds", Deduplicating("close"))
    assert once.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    once.restart(how)
    assert once.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    before, after = epochs(upstream)
    assert after > before
    assert upstream.effects("/refunds") == 1


def test_kill_in_mid_flight_with_an_idempotent_application(once, upstream, key):
    upstream.on("/refunds", Deduplicating())
    with upstream.hold("/refunds") as held:
        once.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        once.kill()
    once.start()
    second = once.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.idempotency) == (201, "stored")
    assert once.post("/refunds", key=key, json=REFUND).body == second.body
    before, after = epochs(upstream)
    assert after > before
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("guarantee", ["none", "atomic"])
def test_kill_in_mid_flight_without_a_guarantee_to_rely_on(start_gateway, upstream, key, guarantee):
    gateway = start_gateway(quick_retries(guarantee=guarantee))
    with upstream.hold("/refunds") as held:
        gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.kill()
    gateway.start()
    for _ in range(3):
        gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_many_requests_for_an_unknown_operation_send_it_again_once(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent", retry="{attempts: 1}"), workers=2)
    upstream.on("/refunds", Deduplicating("close"))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=20, json=REFUND)
        held.wait_arrived()
    assert {(response.status, response.body) for response in everyone} == {(201, b'{"id": "rf_1", "effect": 1}')}
    assert sorted(response.idempotency for response in everyone) == ["replayed"] * 19 + ["stored"]
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


def test_unknown_is_not_sent_again_for_another_payload(once, upstream, key):
    upstream.on("/refunds", Deduplicating("close"))
    once.post("/refunds", key=key, json=REFUND)
    once.post("/refunds", key=key, json={"amount": 2}).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_unknown_is_not_sent_again_for_another_credential(once, upstream, key):
    upstream.on("/refunds", Deduplicating("close"))
    once.post("/refunds", key=key, json=REFUND, auth=basic("ada", "lovelace"))
    stranger = once.post("/refunds", key=key, json=REFUND, auth=basic("ada", "wrong"))
    assert stranger.status in (403, 409)
    assert len(upstream.received("/refunds")) == 1
    assert once.post("/refunds", key=key, json=REFUND, auth=basic("ada", "lovelace")).status == 201
    assert upstream.effects("/refunds") == 1


def test_late_answer_of_an_old_epoch_never_overwrites(once, upstream, key):
    late = upstream.on("/refunds", LateFirst())
    first = once.post("/refunds", key=key, json=REFUND)
    first.refuses(504, "DEPENDENCY.timeout")
    second = once.post("/refunds", key=key, json=REFUND)
    assert (second.json(), second.idempotency) == ({"effect": 2}, "stored")
    late.let_go.set()
    assert late.sent.wait(HANG_S)
    eventually(lambda: once.counts()["stale_outcomes"] == 1, "the late answer being refused")
    for _ in range(3):
        assert once.post("/refunds", key=key, json=REFUND).json() == {"effect": 2}
    once.restart("kill")
    assert once.post("/refunds", key=key, json=REFUND).json() == {"effect": 2}
    before, after = epochs(upstream)
    assert after > before


def test_late_answer_of_an_old_epoch_does_not_settle_a_newer_attempt(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="2s", retry="{attempts: 1}"))
    late = upstream.on("/refunds", LateFirst())
    gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    with upstream.hold("/refunds") as held:
        second = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        late.let_go.set()
        eventually(lambda: gateway.counts()["stale_outcomes"] == 1, "the late answer being refused")
    assert (second.json(), second.idempotency) == ({"effect": 2}, "stored")
    for _ in range(3):
        assert gateway.post("/refunds", key=key, json=REFUND).json() == {"effect": 2}
    before, after = epochs(upstream)
    assert after > before


def test_late_answer_is_taken_while_nobody_took_over(once, upstream, key):
    late = upstream.on("/refunds", LateFirst())
    once.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    late.let_go.set()
    assert late.sent.wait(HANG_S)
    answered = once.post("/refunds", key=key, json=REFUND)  # the late one, or its own if it was quicker
    assert answered.status == 201
    for _ in range(3):
        assert once.post("/refunds", key=key, json=REFUND).body == answered.body


def test_late_answer_of_an_earlier_attempt_changes_nothing(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="1s", retry="{attempts: 2}"))
    late = upstream.on("/refunds", LateFirst())
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.json()) == (201, {"effect": 2})
    late.let_go.set()
    assert late.sent.wait(HANG_S)
    for _ in range(3):
        assert gateway.post("/refunds", key=key, json=REFUND).json() == {"effect": 2}
    assert len(set(epochs(upstream))) == 1


@pytest.mark.parametrize("status", [409, 423])
def test_conflict_after_a_lost_answer_is_tried_again(idempotent, upstream, key, status):
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(status, "another is at it", effect=False),
                                    answer(201, "done", effect=False)))
    first = idempotent.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.body) == (201, "stored", b"done")
    assert len(upstream.received("/refunds")) == 3
    assert upstream.effects("/refunds") == 1


def assert_told_unknown(first, status):
    """What is said of an earlier attempt is no refusal to the first client either; a balancer's own error is shown."""
    told = 503 if status == 503 else 502
    assert (first.status, first.idempotency) == (told, "unknown")
    assert told == status or f"answered {status}" in first.refuses(502, "DEPENDENCY.unavailable")["detail"]


@pytest.mark.parametrize("status", [409, 423])
def test_conflict_after_a_lost_answer_is_unknown_in_the_end(idempotent, upstream, key, status):
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(status, "another is at it", effect=False)))
    first = idempotent.post("/refunds", key=key, json=REFUND)
    assert_told_unknown(first, status)
    assert len(upstream.received("/refunds")) == ATTEMPTS

    upstream.on("/refunds", answer(201, "done", effect=False))
    second = idempotent.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("method, status", [("DELETE", 404), ("DELETE", 412), ("PATCH", 412), ("POST", 412)])
def test_gone_after_a_lost_answer_is_no_outcome(idempotent, upstream, key, method, status):
    upstream.on("/refunds/rf_1", in_turn(drop_after_effect(), answer(status, "not there", effect=False)))
    first = idempotent.request(method, "/refunds/rf_1", key=key)
    assert_told_unknown(first, status)
    assert len(upstream.received("/refunds/rf_1")) == 2  # it would answer the same again
    assert upstream.effects("/refunds/rf_1") == 1


def test_gone_at_a_take_over_is_no_outcome_either(once, upstream, key):
    upstream.on("/refunds/rf_1", in_turn(drop_after_effect(), answer(404, "not there", effect=False)))
    assert once.request("DELETE", "/refunds/rf_1", key=key).idempotency == "unknown"
    second = once.request("DELETE", "/refunds/rf_1", key=key)
    assert second.idempotency == "unknown"
    assert len(upstream.received("/refunds/rf_1")) == 2
    assert upstream.effects("/refunds/rf_1") == 1


def test_404_of_a_post_after_a_lost_answer_is_an_outcome(idempotent, upstream, key):
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(404, "no such charge", effect=False)))
    first = idempotent.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (404, "stored")
    assert idempotent.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert len(upstream.received("/refunds")) == 2


@pytest.mark.parametrize("method, status", [("DELETE", 404), ("POST", 409), ("POST", 412), ("POST", 423)])
def test_first_attempts_own_refusal_is_an_outcome(idempotent, upstream, key, method, status):
    upstream.on("/refunds/rf_1", answer(status, "no", effect=False))
    assert idempotent.request(method, "/refunds/rf_1", key=key).idempotency == "stored"
    assert idempotent.request(method, "/refunds/rf_1", key=key).idempotency == "replayed"
    assert len(upstream.received("/refunds/rf_1")) == 1


@pytest.mark.parametrize("method, status", [("DELETE", 404), ("POST", 409), ("POST", 412), ("POST", 423)])
def test_refusal_after_an_answer_that_says_not_executed_is_an_outcome(idempotent, upstream, key, method, status):
    upstream.on("/refunds/rf_1", in_turn(answer(429, effect=False), answer(status, "no", effect=False)))
    first = idempotent.request(method, "/refunds/rf_1", key=key)
    assert (first.status, first.idempotency) == (status, "stored")
    assert len(upstream.received("/refunds/rf_1")) == 2


def test_conflict_after_a_balancers_502_is_no_outcome(idempotent, upstream, key):
    """A balancer that says 502 may have sent the request on: the conflict may speak of that one."""
    upstream.on("/refunds", in_turn(answer(502), answer(409, "duplicate", effect=False)))
    assert idempotent.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_refusal_after_a_lost_answer_frees_nothing(idempotent, upstream, key, status):
    headers = [("Retry-After", "0")] if status == 503 else []
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(status, "no", headers, effect=False)))
    first = idempotent.post("/refunds", key=key, json=REFUND)
    assert_told_unknown(first, status)
    idempotent.post("/refunds", key=key, json={"amount": 2}).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


def test_refused_connection_after_a_lost_answer_frees_nothing(idempotent, upstream, key):
    def last_words(exchange):
        upstream.stop_listening()
        drop_after_effect()(exchange)
    upstream.on("/refunds", last_words)
    first = idempotent.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    idempotent.post("/refunds", key=key, json={"amount": 2}).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


def test_hold_never_sends_again_however_often_it_is_asked(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(on_unknown="hold", upstream_timeout="200ms", grace="100ms"))
    upstream.on("/refunds", in_turn(never_answer, numbered))
    gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    for _ in range(3):
        for _ in range(5):
            gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
        gateway.restart("kill")
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1
