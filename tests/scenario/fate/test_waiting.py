# SPDX-License-Identifier: Apache-2.0
"""Duplicates that come while the first is under way: they wait, and learn what became of it."""
import pytest

from harness import answer, drop_after_effect, eventually, numbered

IN_FLIGHT = "CONFLICT.idempotency.in_flight"
UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
BRIEF = """
    defaults:
      wait: 200ms
    """


def split(everyone):
    """The one that executed, and the ones that waited."""
    firsts = [response for response in everyone if response.idempotency in ("stored", "unknown")]
    assert len(firsts) == 1, everyone
    return firsts[0], [response for response in everyone if response is not firsts[0]]


def test_waiter_is_told_to_come_back_when_the_wait_is_over(start_gateway, upstream, key):
    gateway = start_gateway(BRIEF)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        second = gateway.post("/refunds", key=key, json={})
        problem = second.refuses(409, IN_FLIGHT)
        assert int(second.header("Retry-After")) >= 1
        assert problem["retryable"] is True
    assert first.status == 201
    assert gateway.post("/refunds", key=key, json={}).body == first.body
    assert upstream.effects("/refunds") == 1


def test_waiters_budget_is_shorter_than_the_routes_wait(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          wait: 5m
        """)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        second = gateway.post("/refunds", key=key, json={}, headers={"X-Request-Timeout": "200"})
        second.refuses(409, IN_FLIGHT)
    assert first.status == 201
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [201, 404, 500])
def test_waiters_replay_the_outcome(start_gateway, upstream, key, status):
    gateway = start_gateway(workers=2)
    upstream.on("/refunds", answer(status, {"status": status}))
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=20)
        held.wait_arrived()
    first, waiters = split(everyone)
    assert {(response.status, response.body, response.idempotency) for response in waiters} == {
        (status, first.body, "replayed")}
    assert upstream.effects("/refunds") == 1


def test_waiters_on_an_unknown_outcome_are_told_so(start_gateway, upstream, key):
    gateway = start_gateway(workers=2)
    upstream.on("/refunds", drop_after_effect())
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=5)
        held.wait_arrived()
    firsts = [response for response in everyone if response.status == 502]
    assert [response.idempotency for response in firsts] == ["unknown"]
    for response in everyone:
        if response not in firsts:
            response.refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


def test_waiters_on_a_timeout_are_told_so(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 500ms
        """)
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=5)
        held.wait_arrived()
        assert sorted(response.status for response in everyone) == [409, 409, 409, 409, 504]
        for response in everyone:
            if response.status == 409:
                response.refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("status", [429, 503, 307])
def test_waiters_on_a_release_get_the_same_answer(start_gateway, upstream, key, status, workers):
    gateway = start_gateway(workers=workers)
    upstream.on("/refunds", answer(status, "not now", [("Retry-After", "120"), ("X-Why", "busy")], effect=False))
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=10)
        held.wait_arrived()
        gateway.wait_waiting(9)
    assert {(r.status, r.body, r.header("X-Why"), r.idempotency) for r in everyone} == {
        (status, b"not now", "busy", "released")}
    assert len(upstream.received("/refunds")) == 1
    upstream.on("/refunds", numbered)
    assert gateway.post("/refunds", key=key).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [401, 403])
def test_waiters_on_a_refused_credential_must_ask_themselves(gateway, upstream, key, status):
    upstream.on("/refunds", answer(status, "who are you?", effect=False))
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key)
        held.wait_arrived()
        waiters = gateway.post_together("/refunds", key=key, times=3)
        gateway.wait_waiting(3)
    assert (first.status, first.idempotency) == (status, "released")
    for waiter in waiters:
        waiter.refuses(409, IN_FLIGHT)
        assert waiter.header("Retry-After") == "1"
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 0


def test_waiters_on_a_refused_connection_get_the_same_answer(start_gateway, start_upstream, key):
    application = start_upstream(listening=False)
    gateway = start_gateway(upstream=application)
    everyone = gateway.post_together("/refunds", key=key, times=5)
    assert {response.status for response in everyone} == {502}
    assert {response.idempotency for response in everyone} == {"released"}
    assert {response.header("Retry-After") for response in everyone} == {"1"}
    assert all(response.header("Date") for response in everyone)
    assert application.effects() == 0


def test_other_requests_do_not_wait(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        assert gateway.post("/charges", key=key, json={}).status == 201
        assert gateway.get("/charges").status == 200
    assert first.status == 201
    assert (upstream.effects("/refunds"), upstream.effects("/charges")) == (1, 1)


def test_waiters_beyond_the_bound_are_shed(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key)
        held.wait_arrived()
        waiters = gateway.post_together("/refunds", key=key, times=1000)
        one_too_many = gateway.post("/refunds", key=key)
        one_too_many.refuses(503, "TRANSIENT.overloaded")
        assert int(one_too_many.header("Retry-After")) >= 1
    assert {waiter.body for waiter in waiters} == {first.body}
    assert upstream.effects("/refunds") == 1


def test_waiters_whose_connection_is_reset_give_their_places_back(start_gateway, upstream, key):
    gateway = start_gateway("defaults: {wait: 10m}")  # their places come back long before that
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key)
        held.wait_arrived()
        gone = [gateway.send("POST", "/refunds", key=key) for _ in range(20)]
        gateway.wait_waiting(20)
        for waiter in gone:
            waiter.connection.reset()
        eventually(lambda: gateway.counts("store")["waiters"] == 0, "the places of those that are gone")
        late = gateway.post_later("/refunds", key=key)
        gateway.wait_waiting(1)
    assert late.body == first.body
    assert upstream.effects("/refunds") == 1
