# SPDX-License-Identifier: Apache-2.0
"""Several gateways on one PostgreSQL, directly and through PgBouncer in transaction mode: whichever node a request
comes to, it is the same operation. What another node does is seen in the store alone, so every story here sends to one
node what it asks of another."""
import functools
import threading

import pytest

from harness import (HANG_S, answer, drop_after_effect, eventually, hours_ahead, lasting, numbered,
                     quick_retries)

IN_FLIGHT = "CONFLICT.idempotency.in_flight"
MISMATCH = "CONFLICT.idempotency.payload_mismatch"
UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
UNAUTHORIZED = "AUTH.replay_not_authorized"
REFUND = {"amount": 1000, "currency": "eur"}
PATIENT = """
    defaults:
      wait: 5m
    """
SHORT_LEASE = """
    defaults:
      lease: 1s
      wait: 5m
    """


@pytest.fixture(params=["direct", "pooled"])
def url(request, database):
    if request.param == "direct":
        return database.url
    return request.getfixturevalue("pooler").url(database.name)


@pytest.fixture
def start(url, start_node):
    """start(config, ...): one more gateway on the same store."""
    return functools.partial(start_node, url)


def epochs(upstream, path="/refunds"):
    operations = [request.header("Hapax-Operation").rsplit(".", 1) for request in upstream.received(path)]
    assert len({identity for identity, _ in operations}) == 1, operations
    return [int(epoch) for _, epoch in operations]


class LateFirst:
    """An application that deduplicates, and says in its answer which of its requests this is the answer to; that to
    the first one comes when it is let go."""

    def __init__(self):
        self.let_go = threading.Event()
        self.lock = threading.Lock()
        self.requests = 0

    def __call__(self, exchange):
        exchange.read_body()
        with self.lock:
            self.requests += 1
            number = self.requests
            if number == 1:
                exchange.upstream.record_effect(exchange.request)
        if number == 1:
            self.let_go.wait(HANG_S)
        exchange.answer(201, {"request": number}, [("Content-Type", "application/json")])


@pytest.mark.parametrize("status", [201, 404, 500])
def test_an_answer_is_replayed_by_every_other_node(start, upstream, key, status):
    one, other = start(), start()
    body = bytes(range(256)) * 40
    upstream.on("/refunds", answer(status, body, [("Content-Type", "application/octet-stream"), ("X-Twice", "a"),
                                                  ("x-twice", "b"), ("Location", "/refunds/rf_1")]))
    first = one.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.body, first.idempotency) == (status, body, "stored")
    late = start()  # the answer is older than this node
    for node in (other, one, late):
        again = node.post("/refunds", key=key, json=REFUND)
        assert lasting(again) == lasting(first)
        assert (again.idempotency, again.header("Idempotent-Replayed")) == ("replayed", "true")
    assert upstream.effects("/refunds") == 1


def test_an_answer_outlives_the_node_that_gave_it(start, upstream, key):
    one, other = start(), start()
    first = one.post("/refunds", key=key, json=REFUND)
    one.kill()
    assert lasting(other.post("/refunds", key=key, json=REFUND)) == lasting(first)
    one.start()
    assert lasting(one.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert upstream.effects("/refunds") == 1


def test_ten_at_once_over_two_nodes_are_one_execution_and_ten_identical_answers(start, upstream, key):
    nodes = [start(PATIENT, workers=2), start(PATIENT)]
    with upstream.hold("/refunds") as held:
        everyone = [nodes[number % 2].send("POST", "/refunds", key=key, json=REFUND) for number in range(10)]
        held.wait_arrived()
        eventually(lambda: sum(each.counts("store")["waiters"] for each in nodes) == 9, "nine requests that wait")
    assert len({repr(lasting(response)) for response in everyone}) == 1
    assert sorted(response.idempotency for response in everyone) == ["replayed"] * 9 + ["stored"]
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_many_keys_at_once_on_both_nodes_run_once_each(start, upstream):
    nodes = [start(PATIENT, workers=2), start(PATIENT, workers=2)]
    sent = {}
    for number in range(100):
        key = f"order-number-{number:06d}"
        sent[key] = [node.send("POST", "/refunds", key=key, json={"number": number}) for node in nodes]
    for key, (one, other) in sent.items():
        assert one.status == 201, one
        assert lasting(one) == lasting(other), key
        assert sorted((one.idempotency, other.idempotency)) == ["replayed", "stored"]
    assert upstream.effects("/refunds") == 100
    assert set(upstream.effects_by_key.values()) == {1}


def test_waiters_on_another_node_get_the_answer_when_it_comes(start, upstream, key):
    one, other = start(PATIENT), start(PATIENT, workers=2)
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        waiters = other.post_together("/refunds", key=key, times=10, json=REFUND)
        other.wait_waiting(10)
    assert (first.status, first.idempotency) == (201, "stored")
    for waiter in waiters:
        assert lasting(waiter) == lasting(first)
        assert waiter.idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_a_waiter_on_another_node_is_told_to_come_back(start, upstream, key):
    one, other = start(), start("""
        defaults:
          wait: 200ms
        """)
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        second = other.post("/refunds", key=key, json=REFUND)
        second.refuses(409, IN_FLIGHT)
        assert int(second.header("Retry-After")) >= 1
    assert first.status == 201
    assert lasting(other.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_release_is_told_here_and_means_come_back_there(start, upstream, key, status):
    one, other = start(PATIENT), start(PATIENT)
    upstream.on("/refunds", answer(status, "not now", [("Retry-After", "120")], effect=False))
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        here = one.post_together("/refunds", key=key, times=3, json=REFUND)
        there = other.post_together("/refunds", key=key, times=3, json=REFUND)
        one.wait_waiting(3)
        other.wait_waiting(3)
    assert {(response.status, response.body, response.idempotency) for response in (first, *here)} == {
        (status, b"not now", "released")}
    for waiter in there:
        waiter.refuses(409, IN_FLIGHT)
        assert waiter.header("Retry-After") == "1"
    assert len(upstream.received("/refunds")) == 1
    upstream.on("/refunds", numbered)
    assert other.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert one.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    before, after = epochs(upstream)
    assert after > before
    assert upstream.effects("/refunds") == 1


def test_a_waiter_whose_operation_was_released_and_swept_meanwhile_is_told_to_come_back(start, database, upstream, key):
    one, other = start(PATIENT), start(PATIENT)
    upstream.on("/refunds", answer(429, "not now", [("Retry-After", "120")], effect=False))
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        waiter = other.post_later("/refunds", key=key, json=REFUND)
        other.wait_waiting(1)
        other.pause()
    assert first.idempotency == "released"
    database.ask("SELECT hapax.sweep(hapax.now() + 61000, 10)")  # it stays for a minute
    assert database.ask("SELECT count(*) FROM hapax.operations") == [(0,)]
    other.resume()
    waiter.refuses(409, IN_FLIGHT)
    assert waiter.header("Retry-After") == "1"
    upstream.on("/refunds", numbered)
    assert other.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_another_payload_is_a_mismatch_on_every_node(start, upstream, key):
    one, other = start(), start()
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        other.post("/refunds", key=key, json={**REFUND, "amount": 1}).refuses(409, MISMATCH)
    assert first.status == 201
    other.post("/refunds", key=key, json={**REFUND, "amount": 1}).refuses(409, MISMATCH)
    assert lasting(other.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert upstream.effects("/refunds") == 1


def test_an_answer_is_shown_to_nobody_else_on_another_node(start, upstream, key):
    one, other = start(), start()
    first = one.post("/refunds", key=key, json=REFUND, auth="Basic dXNlcjpvbmU=")
    assert first.idempotency == "stored"
    other.post("/refunds", key=key, json=REFUND, auth="Basic dXNlcjp0d28=").refuses(403, UNAUTHORIZED)  # same user
    assert upstream.effects("/refunds") == 1
    stranger = other.post("/refunds", key=key, json=REFUND, auth="Basic ZWxzZTpvbmU=")
    assert (stranger.idempotency, upstream.effects("/refunds")) == ("stored", 2)  # another principal's own operation


def test_what_is_unknown_here_is_unknown_there(start, upstream, key):
    one, other = start(), start()
    upstream.on("/refunds", drop_after_effect())
    first = one.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    upstream.on("/refunds", numbered)
    for node in (other, one, other):
        node.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_a_late_answer_is_harvested_for_every_node(start, upstream, key):
    one, other = start("""
        defaults:
          upstream_timeout: 500ms
        """), start()
    with upstream.hold("/refunds") as held:
        first = one.post("/refunds", key=key, json=REFUND)
        assert (first.status, first.idempotency) == (504, "unknown")
        held.wait_arrived()
        other.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    second = eventually(lambda: answered(other, key), "the late answer on the other node")
    assert (second.status, second.idempotency) == (201, "replayed")
    assert upstream.effects("/refunds") == 1


def answered(node, key):
    response = node.post("/refunds", key=key, json=REFUND)
    return response if response.status == 201 else None


def test_the_operation_of_a_killed_node_is_unknown_after_its_lease_and_never_run_again(start, upstream, key):
    one, other = start(SHORT_LEASE), start(SHORT_LEASE)
    with upstream.hold("/refunds") as held:
        one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        waiter = other.post_later("/refunds", key=key, json=REFUND)
        other.wait_waiting(1)
        one.kill()
        waiter.refuses(409, UNKNOWN)
    for _ in range(3):
        other.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    one.start()
    one.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_the_operation_of_a_killed_node_is_sent_again_where_that_is_safe(start, upstream, key):
    config = quick_retries(guarantee="idempotent", lease="1s", wait="5m")
    one, other = start(config), start(config)
    application = upstream.on("/refunds", LateFirst())
    one.post_later("/refunds", key=key, json=REFUND)
    upstream.wait_effects(1)
    waiter = other.post_later("/refunds", key=key, json=REFUND)
    other.wait_waiting(1)
    one.kill()
    waiter.refuses(409, UNKNOWN)
    second = other.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.json(), second.idempotency) == (201, {"request": 2}, "stored")
    application.let_go.set()
    one.start()
    assert lasting(one.post("/refunds", key=key, json=REFUND)) == lasting(second)
    before, after = epochs(upstream)
    assert after > before
    assert upstream.effects("/refunds") == 1


def test_a_node_that_only_restarts_leaves_the_claims_of_others_alone(start, upstream, key):
    one, other = start(PATIENT), start(PATIENT)
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        other.restart("kill")
        waiter = other.post_later("/refunds", key=key, json=REFUND)
        other.wait_waiting(1)
    assert lasting(waiter) == lasting(first)
    assert (first.idempotency, waiter.idempotency) == ("stored", "replayed")
    assert upstream.effects("/refunds") == 1


def test_a_long_exchange_keeps_its_lease(start, upstream, key):
    """Renewed on the store's clock: no other node may take it for dead, though it lasts for several leases."""
    one, other = start(SHORT_LEASE), start(SHORT_LEASE)
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        waiter = other.post_later("/refunds", key=key, json=REFUND)
        other.wait_waiting(1)
        short = {"X-Request-Timeout": "1500ms"}
        for _ in range(2):  # each of them waits longer than the lease was at first
            other.post("/refunds", key=key, json=REFUND, headers=short).refuses(409, IN_FLIGHT)
    assert (first.status, first.idempotency) == (201, "stored")
    assert lasting(waiter) == lasting(first)
    assert upstream.effects("/refunds") == 1


def test_a_paused_node_is_fenced_and_its_client_gets_the_answer_of_who_took_over(start, upstream, key):
    config = quick_retries(guarantee="idempotent", lease="1s", wait="5m")
    one, other = start(config), start(config)
    application = upstream.on("/refunds", LateFirst())
    first = one.post_later("/refunds", key=key, json=REFUND)
    upstream.wait_effects(1)
    one.pause()
    other.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)  # once the lease has lapsed
    second = other.post("/refunds", key=key, json=REFUND)
    assert (second.json(), second.idempotency) == ({"request": 2}, "stored")
    application.let_go.set()
    one.resume()
    assert first.json() == {"request": 2}  # and not the answer to its own request, which nobody else ever sees
    assert (first.status, first.idempotency) == (201, "replayed")
    for node in (one, other):
        assert lasting(node.post("/refunds", key=key, json=REFUND)) == lasting(second)
    before, after = epochs(upstream)
    assert after > before
    assert upstream.effects("/refunds") == 1


def test_a_paused_node_brings_its_answer_if_nobody_took_over(start, upstream, key):
    one, other = start(SHORT_LEASE), start(SHORT_LEASE)
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        one.pause()
        other.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    one.resume()
    assert (first.status, first.idempotency) == (201, "stored")
    assert lasting(other.post("/refunds", key=key, json=REFUND)) == lasting(first)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_a_node_whose_clock_is_hours_off_counts_by_the_stores(start, upstream, key):
    one, ahead = start(SHORT_LEASE), start(SHORT_LEASE, env=hours_ahead(30))
    assert ahead.wait_events("store_clock_differs")
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        waiter = ahead.post_later("/refunds", key=key, json=REFUND)
        ahead.post("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "1500ms"}).refuses(409, IN_FLIGHT)
    assert (first.status, first.idempotency) == (201, "stored")
    assert lasting(waiter) == lasting(first)  # and not expired, though it is a day old by that clock
    assert upstream.effects("/refunds") == 1


def test_a_node_that_drains_ends_what_it_began(start, upstream, key):
    one, other = start(PATIENT), start(PATIENT)
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        waiter = other.post_later("/refunds", key=key, json=REFUND)
        other.wait_waiting(1)
        one.terminate()
    assert (first.status, first.idempotency) == (201, "stored")
    assert lasting(waiter) == lasting(first)
    assert one.wait_exit() == 0
    assert upstream.effects("/refunds") == 1
