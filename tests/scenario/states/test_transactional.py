# SPDX-License-Identifier: Apache-2.0
"""guarantee: transactional. The application commits its effect and its mark in one transaction, and whatever it says or
doesn't say over HTTP, there is one effect for a key, and what was committed is what everyone is told. Effects are rows
of a table of the application's own, counted there."""
import contextlib
import json
import threading

import psycopg2
import pytest

from harness import HANG_S, eventually, quick_retries

REFUND = {"amount": 1000}
UNKNOWN = "CONFLICT.idempotency.outcome_unknown"


class Application:
    """Behaviours for the fake upstream, over a table in the store's database."""

    def __init__(self, database):
        self.database = database
        database.ask("CREATE TABLE refunds (key text)")

    @contextlib.contextmanager
    def transaction(self):
        connection = self.database.connect()
        try:
            with connection, connection.cursor() as cursor:
                yield cursor
        finally:
            connection.close()

    def refund(self, cursor, exchange):
        cursor.execute("INSERT INTO refunds VALUES (%s)", (exchange.request.key,))

    def mark(self, cursor, exchange, status=201, body=None, function="complete"):
        cursor.execute(f"SELECT hapax.{function}(%s, %s, %s, %s::json)",
                       (exchange.request.header("Hapax-Operation"), status, json.dumps({"X-From": "mark"}),
                        json.dumps(body or {"refund": exchange.request.header("Hapax-Attempt")})))

    def commit(self, exchange):
        exchange.read_body()
        with self.transaction() as cursor:
            self.refund(cursor, exchange)
            self.mark(cursor, exchange)

    def effects(self, key):
        return self.database.ask("SELECT count(*) FROM refunds WHERE key = %s", key)[0][0]


@pytest.fixture
def application(database):
    return Application(database)


@pytest.fixture
def start_node(start_gateway, database):
    def start(**options):
        return start_gateway(quick_retries(guarantee="transactional", **options), store=database.url)
    return start


def behaves(upstream, *behaviours):
    """The first request is handled by the first of them, and so on; the last one stays."""
    left = list(behaviours)
    lock = threading.Lock()

    def behave(exchange):
        with lock:
            behaviour = left.pop(0) if len(left) > 1 else left[0]
        behaviour(exchange)

    upstream.on("/refunds", behave)


def epochs(upstream):
    return [int(request.header("Hapax-Operation").rsplit(".", 1)[1]) for request in upstream.received("/refunds")]


def is_mark(response, attempt="1"):
    return response.status == 201 and response.json() == {"refund": attempt} and response.header("X-From") == "mark"


def test_the_mark_is_the_answer_whatever_was_said(start_node, upstream, application, key):
    def behave(exchange):
        application.commit(exchange)
        exchange.answer(200, b"something else", [("Set-Cookie", "a=b"), ("X-From", "answer")])

    behaves(upstream, behave)
    gateway = start_node()
    first, second = (gateway.post("/refunds", key=key, json=REFUND) for _ in range(2))
    assert is_mark(first) and first.idempotency == "stored" and first.header("Set-Cookie") == "a=b"
    assert is_mark(second) and second.idempotency == "replayed" and second.header("Set-Cookie") is None
    assert application.effects(key) == 1 and len(epochs(upstream)) == 1


@pytest.mark.parametrize("how", ["close", "reset", "error", "hang"])
def test_what_was_committed_is_told_though_the_answer_is_lost(start_node, upstream, application, key, how):
    def behave(exchange):
        application.commit(exchange)
        if how == "error":
            exchange.answer(500, b"rendering failed")
        elif how == "hang":
            exchange.wait_for_peer_to_leave()
        else:
            getattr(exchange, how)()

    behaves(upstream, behave)
    gateway = start_node(upstream_timeout="1s")
    assert is_mark(gateway.post("/refunds", key=key, json=REFUND))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert application.effects(key) == 1 and len(epochs(upstream)) == 1


@pytest.mark.parametrize("how", ["close", "reset", "hang", "502", "503", "504"])
def test_after_silence_it_is_sent_again_with_another_epoch(start_node, upstream, application, key, how):
    def silent(exchange):
        exchange.read_body()
        if how.isdigit():
            exchange.answer(int(how), b"from a balancer")
        elif how == "hang":
            exchange.wait_for_peer_to_leave()
        else:
            getattr(exchange, how)()

    def good(exchange):
        application.commit(exchange)
        exchange.answer(201, b"")

    behaves(upstream, silent, silent, good)
    gateway = start_node(upstream_timeout="1s")
    answer = gateway.post("/refunds", key=key, json=REFUND)
    assert is_mark(answer, "3") and answer.idempotency == "stored"
    seen = epochs(upstream)
    assert len(seen) == 3 and seen == sorted(set(seen))
    assert application.effects(key) == 1


def test_a_transaction_of_an_old_epoch_is_rolled_back(start_node, upstream, application, key):
    given_up, refused = threading.Event(), []

    def late(exchange):
        exchange.read_body()
        with contextlib.suppress(psycopg2.Error):
            with application.transaction() as cursor:
                application.refund(cursor, exchange)
                assert given_up.wait(HANG_S)
                try:
                    application.mark(cursor, exchange)
                except psycopg2.Error as error:
                    refused.append(error.pgcode)
                    raise
        exchange.close()

    def good(exchange):
        application.commit(exchange)
        exchange.answer(201, b"")

    behaves(upstream, late, good)
    gateway = start_node(upstream_timeout="1s")
    assert is_mark(gateway.post("/refunds", key=key, json=REFUND), "2")
    given_up.set()
    eventually(lambda: refused, "the end of the late transaction")
    assert refused == ["HX001"]
    assert application.effects(key) == 1


def test_success_without_a_mark_is_unknown_and_not_sent_again(start_node, upstream, application, key):
    def forgets(exchange):
        exchange.read_body()
        exchange.answer(201, b"done, believe me")

    behaves(upstream, forgets)
    gateway = start_node()
    first, second = (gateway.post("/refunds", key=key, json=REFUND) for _ in range(2))
    assert (first.status, first.idempotency) == (502, "unknown")
    assert "hapax" not in first.json()["hint"] and "201" in first.json()["detail"]
    assert "hapax.complete" in gateway.wait_events("request")[0]["remedy"]
    assert (second.status, second.header("Error-Code"), second.header("Retry-After")) == (409, UNKNOWN, "5")
    assert len(epochs(upstream)) == 1 and application.effects(key) == 0


def test_a_mark_that_comes_after_the_answer_is_taken(start_node, upstream, application, key):
    told = threading.Event()
    committed = threading.Event()

    def early(exchange):
        exchange.read_body()
        exchange.answer(202, b"accepted")
        assert told.wait(HANG_S)
        application.commit(exchange)
        committed.set()

    behaves(upstream, early)
    gateway = start_node()
    assert gateway.post("/refunds", key=key, json=REFUND).status == 502
    told.set()
    assert committed.wait(HANG_S)
    answer = gateway.post("/refunds", key=key, json=REFUND)
    assert is_mark(answer) and answer.idempotency == "replayed"
    assert application.effects(key) == 1


def test_error_answers_mean_what_they_always_do(start_node, upstream, application, key):
    def refuses(exchange):
        exchange.read_body()
        exchange.answer(401 if len(upstream.received("/refunds")) == 1 else 422, b"no")

    behaves(upstream, refuses)
    gateway = start_node()
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "released"
    stored = gateway.post("/refunds", key=key, json=REFUND)
    assert (stored.status, stored.idempotency) == (422, "stored")
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert application.effects(key) == 0 and len(epochs(upstream)) == 2


def test_what_the_application_fails_or_releases_itself(start_node, upstream, application, key):
    def releases(exchange):
        exchange.read_body()
        with application.transaction() as cursor:
            cursor.execute("SELECT hapax.release(%s)", (exchange.request.header("Hapax-Operation"),))
        exchange.answer(409, b"not yet")

    def fails(exchange):
        exchange.read_body()
        with application.transaction() as cursor:
            application.mark(cursor, exchange, 422, {"why": "too much"}, "fail")
        exchange.close()

    behaves(upstream, releases, fails)
    gateway = start_node()
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (409, "released")
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.json(), second.idempotency) == (422, {"why": "too much"}, "stored")
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert application.effects(key) == 0


@pytest.mark.parametrize("commits", [True, False])
def test_a_gateway_killed_in_the_middle_leaves_nothing_unknown(start_node, upstream, application, key, commits):
    arrived, go_on = threading.Event(), threading.Event()

    def first(exchange):
        exchange.read_body()
        arrived.set()
        assert go_on.wait(HANG_S)
        if commits:
            application.commit(exchange)
        exchange.close()

    def good(exchange):
        application.commit(exchange)
        exchange.answer(201, b"")

    behaves(upstream, first, good)
    gateway = start_node(lease="1s")
    gateway.send("POST", "/refunds", key=key, json=REFUND)
    assert arrived.wait(HANG_S)
    gateway.kill()
    go_on.set()
    if commits:
        eventually(lambda: application.effects(key) == 1, "the commit")
    gateway.start()
    answer = eventually(lambda: (found := gateway.post("/refunds", key=key, json=REFUND)).status == 201 and found,
                        "the outcome")
    assert is_mark(answer, "1" if commits else "2")
    assert application.effects(key) == 1


def test_two_nodes_at_once_have_one_effect_and_one_answer(start_node, upstream, application):
    def behave(exchange):
        application.commit(exchange)
        exchange.answer(201, b"")

    behaves(upstream, behave)
    nodes = [start_node(), start_node()]
    for number in range(40):
        key = f"two-nodes-at-once-{number:04}"
        pending = [node.send("POST", "/refunds", key=key, json=REFUND) for node in nodes for _ in range(2)]
        answers = [one.response for one in pending]
        assert {answer.status for answer in answers} == {201}
        assert len({answer.body for answer in answers}) == 1
        assert sorted(answer.idempotency for answer in answers) == ["replayed"] * 3 + ["stored"]
        assert application.effects(key) == 1
