# SPDX-License-Identifier: Apache-2.0
"""What an upstream's answer means: stored and replayed as it was, released, or unknown."""
import pytest

from harness import answer, drop_after_effect, eventually, in_turn, never_answer, numbered, reset_before_reading

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
LATER = [("Retry-After", "120")]


def assert_held_as_unknown(response):
    problem = response.refuses(409, UNKNOWN)
    assert int(response.header("Retry-After")) > 0
    assert problem["retryable"] is True
    assert "new key" in problem["hint"].lower(), problem


@pytest.mark.parametrize("status", [200, 201, 202, 301, 302, 303, 400, 404, 409, 410, 422, 500, 501])
def test_answer_is_stored_and_replayed_as_it_was(gateway, upstream, key, status):
    headers = [("Content-Type", "application/json"), ("Location", "/refunds/rf_1"), ("ETag", '"v1"')]
    upstream.on("/refunds", answer(status, {"status": status}, headers))
    first = gateway.post("/refunds", key=key, json=REFUND)
    second = gateway.post("/refunds", key=key, json=REFUND)

    assert (first.status, first.idempotency) == (status, "stored")
    assert (second.status, second.idempotency) == (status, "replayed")
    assert first.body == second.body == b'{"status": %d}' % status
    assert second.header("Location") == "/refunds/rf_1"
    assert second.header("ETag") == '"v1"'
    assert upstream.effects("/refunds") == 1


def test_answer_without_a_body_is_replayed_without_one(gateway, upstream, key):
    upstream.on("/refunds/rf_1", answer(204, headers=[("ETag", '"v2"')]))
    first = gateway.request("DELETE", "/refunds/rf_1", key=key)
    second = gateway.request("DELETE", "/refunds/rf_1", key=key)
    for response in (first, second):
        assert (response.status, response.body, response.header("ETag")) == (204, b"", '"v2"')
        assert response.header("Content-Length") is None
        assert response.header("Transfer-Encoding") is None
    assert second.idempotency == "replayed"
    assert upstream.effects("/refunds/rf_1") == 1


@pytest.mark.parametrize("status", [401, 403, 300, 304, 305, 307, 308])
def test_answer_releases_the_key(gateway, upstream, key, status):
    upstream.on("/refunds", in_turn(answer(status, headers=[("X-Why", "no")], effect=False), numbered))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.header("X-Why")) == (status, "released", "no")

    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1
    assert len(upstream.received("/refunds")) == 2


def test_released_key_may_carry_another_request(gateway, upstream, key):
    upstream.on("/refunds", in_turn(answer(403, effect=False), numbered))
    assert gateway.post("/refunds", key=key, json={"amount": 1}).idempotency == "released"
    assert gateway.post("/refunds", key=key, json={"amount": 2}).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [408, 421, 425, 429, 503])
def test_not_executed_is_handed_to_the_client_and_released(gateway, upstream, key, status):
    upstream.on("/refunds", answer(status, {"busy": True}, LATER, effect=False))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "released")
    assert first.header("Retry-After") == "120"
    assert first.json() == {"busy": True}

    upstream.on("/refunds", numbered)
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [502, 503, 504])
def test_answer_of_a_balancer_leaves_the_outcome_unknown(gateway, upstream, key, status):
    upstream.on("/refunds", answer(status, "the balancer's own words", [("Content-Type", "text/plain")]))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "unknown")
    assert first.body == b"the balancer's own words"

    upstream.on("/refunds", numbered)
    for _ in range(3):
        assert_held_as_unknown(gateway.post("/refunds", key=key, json=REFUND))
    assert upstream.effects("/refunds") == 1


def test_refused_connection_is_released_and_the_retry_runs(start_gateway, start_upstream, key):
    application = start_upstream(listening=False)
    gateway = start_gateway(upstream=application)
    first = gateway.post("/refunds", key=key, json=REFUND)
    first.refuses(502, "DEPENDENCY.unavailable")
    assert first.idempotency == "released"
    assert application.effects() == 0

    application.listen()
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.idempotency) == (201, "stored")
    assert application.effects("/refunds") == 1


def test_refused_connection_to_a_socket_that_is_not_there(start_gateway, tmp_path, upstream, key):
    gateway = start_gateway(upstream=f"unix:{tmp_path}/nobody.sock")
    first = gateway.post("/refunds", key=key, json=REFUND)
    first.refuses(502, "DEPENDENCY.unavailable")
    assert first.idempotency == "released"
    assert upstream.requests == []


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
def test_connection_lost_after_the_request_leaves_the_outcome_unknown(gateway, upstream, key, reset):
    upstream.on("/refunds", drop_after_effect(reset=reset))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert first.status == 502
    assert first.problem()["error_code"].startswith("DEPENDENCY.")
    assert first.idempotency == "unknown"

    upstream.on("/refunds", numbered)
    for _ in range(3):
        assert_held_as_unknown(gateway.post("/refunds", key=key, json=REFUND))
    assert upstream.effects("/refunds") == 1


def test_reset_while_the_request_is_read_leaves_the_outcome_unknown(gateway, upstream, key):
    upstream.on("/refunds", reset_before_reading)
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    upstream.on("/refunds", numbered)
    assert_held_as_unknown(gateway.post("/refunds", key=key, json=REFUND))
    assert upstream.effects("/refunds") == 0
    assert len(upstream.received("/refunds")) == 1


def test_connection_reset_before_it_was_read_is_never_taken_for_success(gateway, upstream, key):
    with upstream.resetting_every_connection():
        first = gateway.post("/refunds", key=key, json=REFUND)
    assert first.status == 502
    assert first.idempotency in ("released", "unknown")
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert second.status == (201 if first.idempotency == "released" else 409)
    assert upstream.effects("/refunds") == (1 if first.idempotency == "released" else 0)


def test_timeout_then_retry_replays_the_late_answer(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 200ms
        """)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        first.refuses(504, "DEPENDENCY.timeout")
        assert first.idempotency == "unknown"
        assert_held_as_unknown(gateway.post("/refunds", key=key, json=REFUND))

    def replay():
        response = gateway.post("/refunds", key=key, json=REFUND)
        return response if response.status != 409 else assert_held_as_unknown(response)
    late = eventually(replay, "the late answer being stored")
    assert (late.status, late.idempotency) == (201, "replayed")
    assert upstream.effects("/refunds") == 1
    assert len(upstream.received("/refunds")) == 1


def test_late_failure_is_stored_too(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 200ms
        """)
    upstream.on("/refunds", answer(422, {"error": "too late"}))
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        assert first.status == 504
    late = eventually(lambda: gateway.post("/refunds", key=key, json=REFUND).status == 422)
    assert late
    assert upstream.effects("/refunds") == 1


def test_upstream_that_never_answers_stays_unknown_after_the_grace(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 200ms
          grace: 200ms
        """)
    upstream.on("/refunds", never_answer)
    first = gateway.post("/refunds", key=key, json=REFUND)
    first.refuses(504, "DEPENDENCY.timeout")
    upstream.wait_effects(1)
    eventually(lambda: upstream.open_connections() == 0, "the gateway giving the exchange up")
    assert_held_as_unknown(gateway.post("/refunds", key=key, json=REFUND))
    assert upstream.effects("/refunds") == 1


def test_budget_of_the_client_ends_its_waiting_but_not_the_exchange(gateway, upstream, key):
    budget = {"X-Request-Timeout": "300ms"}
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND, headers=budget)
        held.wait_arrived()
        first.refuses(504, "DEPENDENCY.timeout")
    retry = eventually(lambda: is_201(gateway.post("/refunds", key=key, json=REFUND)), "the operation going on")
    assert retry.idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def is_201(response):
    return response if response.status == 201 else None


def test_upstream_overrules_with_a_header_that_the_client_never_sees(gateway, upstream, key):
    upstream.on("/refunds", in_turn(answer(422, headers=[("Hapax-Outcome", "release")], effect=False), numbered))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.header("Hapax-Outcome")) == (422, "released", None)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_release_of_a_success_is_ignored(gateway, upstream, key):
    upstream.on("/refunds", answer(201, headers=[("Hapax-Outcome", "release")]))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status,told", [(201, 502), (302, 502), (409, 502), (500, 500), (504, 504)])
def test_upstream_may_say_that_it_does_not_know(gateway, upstream, key, status, told):
    """What can't be replayed is no success, nor a refusal, to the first client either."""
    upstream.on("/refunds", answer(status, headers=[("Hapax-Outcome", "unknown")]))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (told, "unknown")
    assert status == told or f"answered {status}" in first.json()["detail"]
    assert_held_as_unknown(gateway.post("/refunds", key=key, json=REFUND))
    assert upstream.effects("/refunds") == 1
