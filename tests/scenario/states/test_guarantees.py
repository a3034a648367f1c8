# SPDX-License-Identifier: Apache-2.0
"""What an application declares of itself decides what may be sent again: `atomic`, that its errors mean "nothing
happened"; `idempotent`, that it deduplicates by the key."""
import pytest

from harness import (Deduplicating, answer, answer_raw, drop_after_effect, eventually, in_turn, never_answer, numbered,
                     quick_retries)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
ATTEMPTS = 4
GARBAGE = b"no HTTP at all\r\n\r\n"
TRUNCATED = b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n12345"


def assert_held(response):
    problem = response.refuses(409, UNKNOWN)
    assert int(response.header("Retry-After")) > 0
    assert problem["retryable"] is True
    assert "new key" in problem["hint"]


@pytest.fixture
def atomic(start_gateway):
    return start_gateway(quick_retries(guarantee="atomic", upstream_timeout="1500ms"), store="memory:")


@pytest.fixture
def idempotent(start_gateway):
    return start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="1500ms"), store="memory:")


@pytest.mark.parametrize("status", [500, 503])
def test_atomic_applications_errors_are_tried_again(atomic, upstream, key, status):
    upstream.on("/refunds", in_turn(answer(status, "rolled back", effect=False), numbered))
    first = atomic.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (201, "stored")
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [500, 503])
def test_atomic_applications_errors_release_in_the_end(atomic, upstream, key, status):
    upstream.on("/refunds", answer(status, "rolled back", effect=False))
    first = atomic.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.body) == (status, "released", b"rolled back")
    assert len(upstream.received("/refunds")) == ATTEMPTS

    upstream.on("/refunds", numbered)
    assert atomic.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [400, 404, 409, 422, 501])
def test_atomic_applications_refusal_is_an_outcome(atomic, upstream, key, status):
    upstream.on("/refunds", answer(status, "no"))
    assert atomic.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert atomic.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("behaviour, status", [
    (drop_after_effect(), 502), (drop_after_effect(reset=True), 502), (never_answer, 504),
    (answer(502, "balancer"), 502), (answer(504, "balancer"), 504), (answer_raw(GARBAGE), 502),
    (answer_raw(TRUNCATED), 502),
], ids=["closed", "reset", "silence", "502", "504", "garbage", "half a body"])
def test_atomic_application_that_gave_no_answer_of_its_own_is_unknown(atomic, upstream, key, behaviour, status):
    upstream.on("/refunds", behaviour)
    first = atomic.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "unknown")
    upstream.on("/refunds", numbered)
    for _ in range(3):
        assert_held(atomic.post("/refunds", key=key, json=REFUND))
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("guarantee", ["none", "atomic"])
def test_drop_after_effect_has_exactly_one_effect(start_gateway, upstream, key, guarantee):
    gateway = start_gateway(quick_retries(guarantee=guarantee))
    upstream.on("/refunds", in_turn(drop_after_effect(), numbered))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    for _ in range(3):
        assert_held(gateway.post("/refunds", key=key, json=REFUND))
    gateway.restart("kill")
    assert_held(gateway.post("/refunds", key=key, json=REFUND))
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_atomic_error_after_which_the_connection_breaks_is_unknown(atomic, upstream, key):
    upstream.on("/refunds", in_turn(answer(500, "rolled back", effect=False), drop_after_effect(), numbered))
    assert atomic.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    assert_held(atomic.post("/refunds", key=key, json=REFUND))
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("fault", ["close", "reset", "silence", 502, 503, 504, GARBAGE, TRUNCATED],
                         ids=["closed", "reset", "silence", "502", "503", "504", "garbage", "half a body"])
def test_idempotent_application_is_asked_again_after_anything_transient(idempotent, upstream, key, fault):
    upstream.on("/refunds", Deduplicating(fault))
    first = idempotent.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.json()["effect"]) == (201, "stored", 1)
    assert [request.header("Hapax-Attempt") for request in upstream.received("/refunds")] == ["1", "2"]
    assert len({request.header("Hapax-Operation") for request in upstream.received("/refunds")}) == 1

    assert idempotent.post("/refunds", key=key, json=REFUND).body == first.body
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("fault, status", [("close", 502), ("silence", 504), (502, 502), (503, 503), (504, 504)])
def test_idempotent_applications_silence_is_unknown_in_the_end(start_gateway, upstream, key, fault, status):
    gateway = start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="300ms"))
    upstream.on("/refunds", Deduplicating(*[fault] * ATTEMPTS))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "unknown")
    assert len(upstream.received("/refunds")) == ATTEMPTS

    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1


def test_idempotent_applications_500_is_tried_again_and_then_kept(idempotent, upstream, key):
    upstream.on("/refunds", answer(500, "broken", effect=False))
    first = idempotent.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (500, "stored")
    assert idempotent.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert len(upstream.received("/refunds")) == ATTEMPTS
    assert upstream.effects("/refunds") == 0


@pytest.mark.parametrize("status", [400, 404, 409, 410, 412, 422, 423])
def test_idempotent_applications_refusal_is_an_outcome(idempotent, upstream, key, status):
    upstream.on("/refunds", answer(status, "no"))
    assert idempotent.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert idempotent.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_duplicates_wait_while_an_idempotent_application_is_asked_again(idempotent, upstream, key):
    upstream.on("/refunds", Deduplicating("close", 502))
    with upstream.hold("/refunds") as held:
        everyone = idempotent.post_together("/refunds", key=key, times=10, json=REFUND)
        held.wait_arrived()
    assert {(response.status, response.body) for response in everyone} == {(201, b'{"id": "rf_1", "effect": 1}')}
    assert len(upstream.received("/refunds")) == 3
    assert upstream.effects("/refunds") == 1


def test_each_route_has_its_own_guarantee(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          retry: {base: 10ms, cap: 40ms}
        routes:
          - {match: POST /none}
          - {match: POST /atomic, guarantee: atomic}
          - {match: POST /idempotent, guarantee: idempotent}
        """)
    for path, attempts in (("/none", 1), ("/atomic", 1), ("/idempotent", 2)):
        upstream.on(path, Deduplicating("reset"))
        gateway.post(path, key=key, json=REFUND)
        assert len(upstream.received(path)) == attempts
        assert upstream.effects(path) == 1


def test_slow_answer_of_an_earlier_attempt_is_not_mixed_up_with_a_later_ones(start_gateway, upstream, key):
    """The first attempt's answer comes after its time, while the second attempt is under way or done: whichever is
    recorded first stays, and every client sees the same."""
    gateway = start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="300ms"))
    service = Deduplicating()
    upstream.on("/refunds", service)
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived(2)
    assert (pending.status, pending.idempotency) == (201, "stored")
    eventually(lambda: upstream._idle >= set(upstream._open), "all answers being sent")
    for _ in range(3):
        assert gateway.post("/refunds", key=key, json=REFUND).body == pending.body
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("first, later", [('{}', '"{}"'), ('"{}"', '{}'), ('"{}";a=1', '{}'), ('{}', '"{}";a=1'),
                                          ('"{}";v="1;2"; b', '"{}";v=3')])
@pytest.mark.parametrize("how", ["at once", "after a kill", "without a disk", "in SQLite"])
def test_what_is_sent_again_carries_the_key_as_it_was_first_spelled(start_gateway, upstream, key, first, later, how,
                                                                    tmp_path):
    """The application deduplicates by the bytes that it gets."""
    store = {"without a disk": {"store": "memory:"}, "in SQLite": {"store": f"sqlite:{tmp_path}/keys.db"}}.get(how, {})
    gateway = start_gateway("defaults: {guarantee: idempotent, retry: {attempts: 1}}", **store)
    upstream.on("/refunds", in_turn(answer(503), answer(503), answer(201)))
    assert gateway.post("/refunds", key=first.format(key), json={}).idempotency == "unknown"
    if how == "after a kill":
        gateway.restart("kill")
    assert gateway.post("/refunds", key=later.format(key), json={}).idempotency == "unknown"
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    sent = [request.header("Idempotency-Key") for request in upstream.requests]
    assert sent == [first.format(key)] * 3
    assert gateway.post("/refunds", key=later.format(key), json={}).idempotency == "replayed"


def test_parameters_that_cannot_be_kept_are_refused(gateway, upstream, key):
    gateway.post("/refunds", key=f'"{key}";v=' + "a" * 253, json={}).refuses(400, "VALIDATION.idempotency_key_invalid")
    assert gateway.post("/refunds", key=f'"{key}";v=' + "a" * 252, json={}).status == 201
    assert upstream.effects("/refunds") == 1
