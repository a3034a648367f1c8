# SPDX-License-Identifier: Apache-2.0
"""X-Request-Timeout: the client's budget ends its waiting and new attempts, never an exchange that was sent."""
import re
import socket

import pytest

from harness import Deduplicating, SlowDisk, answer, drop_after_effect, eventually, in_turn, numbered, quick_retries

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}


def milliseconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s)?", text).groups()
    return int(number) * (1000 if unit == "s" else 1)


@pytest.mark.parametrize("budget", ["3000", "3000ms", "3s"])
def test_budget_ends_new_attempts(start_gateway, upstream, key, budget):
    gateway = start_gateway(quick_retries(retry="{base: 1s, jitter: none, cap: 10s, total: 60s, attempts: 9}"))
    upstream.on("/refunds", answer(429, "too many", effect=False))
    first = gateway.post("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": budget})
    assert (first.status, first.idempotency) == (429, "released")
    assert 1 <= len(upstream.received("/refunds")) <= 2  # at 0 and 1 s; the next would come at 3
    assert upstream.effects("/refunds") == 0


def test_what_is_left_goes_upstream_on_every_attempt(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 100ms, jitter: none}"))
    upstream.on("/refunds", in_turn(*[answer(429, effect=False)] * 3, numbered))
    first = gateway.post("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "9000ms"})
    assert first.status == 201
    left = [milliseconds(request.header("X-Request-Timeout")) for request in upstream.received("/refunds")]
    assert len(left) == 4
    assert 0 < left[0] <= 9000
    for earlier, later, delay in zip(left, left[1:], (100, 200, 400)):
        assert 0 < later <= earlier - delay, left
    assert upstream.effects("/refunds") == 1


def retry(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    return response if response.status == 201 else None


def test_budget_ends_a_wait_for_the_outcomes_record_and_it_is_kept(start_gateway, upstream, key, tmp_path):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(quick_retries(), env=disk.env)
    with upstream.hold("/refunds") as hold:
        first = gateway.send("POST", "/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "2s"})
        hold.wait_arrived()
        with disk.held():
            hold.release()
            disk.wait_for_commit()
            assert first.status in (503, 504) and first.idempotency == "unknown"
    assert eventually(lambda: retry(gateway, key), "the outcome").idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_budget_of_a_request_without_a_key_ends_its_attempts_too(start_gateway, start_upstream):
    application = start_upstream(listening=False)
    gateway = start_gateway(quick_retries(retry="{base: 1s, jitter: none, cap: 10s, total: 60s, attempts: 9}"),
                            upstream=application)
    assert gateway.get("/things", headers={"X-Request-Timeout": "500ms"}).status == 502
    gateway.wait_events("request")
    assert gateway.events("retry_scheduled") == []
    assert [event["because"] for event in gateway.events("retry_exhausted")] == ["client_budget"]


def test_budget_of_a_question_ends_its_wait(gateway, upstream):
    with upstream.hold("/things") as hold:
        answer_of = gateway.send("GET", "/things", headers={"X-Request-Timeout": "300ms"})
        hold.wait_arrived()
        answer_of.refuses(504, "DEPENDENCY.timeout")
        assert 0 < milliseconds(upstream.last().header("X-Request-Timeout")) <= 300
        hold.release()


def test_passing_routes_have_their_own_idea_of_that_header(start_gateway, upstream):
    gateway = start_gateway("routes: [{match: GET /things, mode: pass, because: a test}]\n")
    for value in ("30", "soon"):
        assert gateway.get("/things", headers={"X-Request-Timeout": value}).status == 200
        assert upstream.last().header("X-Request-Timeout") == value
    assert gateway.counts()["bad_request_timeout"] == 0


def test_operation_goes_on_after_the_client_was_told_504(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "500ms"})
        held.wait_arrived()
        first.refuses(504, "DEPENDENCY.timeout")
        patient = gateway.post_later("/refunds", key=key, json=REFUND)
    assert (patient.status, patient.idempotency) == (201, "replayed")
    assert gateway.post("/refunds", key=key, json=REFUND).body == patient.body
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("guarantee", ["none", "atomic"])
def test_exchange_that_breaks_after_the_client_was_told_504_is_unknown(start_gateway, upstream, key, guarantee):
    gateway = start_gateway(quick_retries(guarantee=guarantee))
    upstream.on("/refunds", in_turn(drop_after_effect(), numbered))
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "500ms"})
        held.wait_arrived()
        first.refuses(504, "DEPENDENCY.timeout")
        waiter = gateway.post_later("/refunds", key=key, json=REFUND)
    waiter.refuses(409, UNKNOWN)
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    lines = gateway.wait_events("request", 3)
    assert sorted(line["status"] for line in lines) == [409, 409, 504], "the log says what each client got"
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_no_new_attempt_after_the_client_was_told_504(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent"))
    upstream.on("/refunds", Deduplicating("close"))
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "500ms"})
        held.wait_arrived()
        first.refuses(504, "DEPENDENCY.timeout")
    eventually(lambda: upstream.open_connections() == 0, "the exchange ending")
    gateway.get("/other")
    assert len(upstream.received("/refunds")) == 1

    second = eventually(lambda: settled(gateway, key), "the operation being sent again")
    assert second.idempotency == "stored"
    assert gateway.post("/refunds", key=key, json=REFUND).body == second.body
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


def test_answer_that_says_not_executed_after_the_client_was_told_504_is_released(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", in_turn(answer(429, effect=False), numbered))
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "500ms"})
        held.wait_arrived()
        first.refuses(504, "DEPENDENCY.timeout")
    second = eventually(lambda: settled(gateway, key), "the operation being free")
    assert (second.status, second.idempotency) == (201, "stored")
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


def settled(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    return response if response.status == 201 else None


def test_budget_of_one_client_does_not_bind_another(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent", upstream_timeout="1s", retry="{attempts: 1}"))
    upstream.on("/refunds", Deduplicating("silence", "silence"))
    for _ in range(2):
        hasty = gateway.post("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "100ms"})
        assert hasty.status in (504, 409)
    patient = eventually(lambda: settled(gateway, key), "a patient client being answered")
    assert patient.json()["effect"] == 1
    assert upstream.effects("/refunds") == 1


def test_connection_of_a_client_that_was_told_504_serves_its_next_request(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    fields = [("Idempotency-Key", key), ("X-Request-Timeout", "500ms")]
    with upstream.hold("/refunds") as held, gateway.connect() as connection:
        assert connection.request("POST", "/refunds", fields, b"{}").status == 504
        held.wait_arrived()
        for number in range(3):
            assert connection.request("GET", f"/other/{number}").json() == {"path": f"/other/{number}"}
        other = connection.request("POST", "/charges", [("Idempotency-Key", key)], b"{}")
        assert other.idempotency == "stored"
    late = eventually(lambda: replay_of(gateway, key), "the operation being finished")
    assert late.status == 201
    assert (upstream.effects("/refunds"), upstream.effects("/charges")) == (1, 1)


def replay_of(gateway, key):
    response = gateway.post("/refunds", key=key, body=b"{}")
    return response if response.idempotency == "replayed" else None


def test_client_that_leaves_after_it_was_told_504_harms_nothing(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, body=b"{}", headers={"X-Request-Timeout": "3s"})
        held.wait_arrived()
        assert first.status == 504
        first.connection.close()
        assert gateway.get("/other").status == 200
    assert eventually(lambda: replay_of(gateway, key), "the operation being finished").status == 201
    assert upstream.effects("/refunds") == 1


def test_budget_that_ends_before_anything_was_sent_does_not_say_that_it_was(start_gateway, upstream, key):
    """A listener that takes no more connections: not one byte can be sent."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        gateway = start_gateway(upstream=f"http://127.0.0.1:{full.getsockname()[1]}")
        first = gateway.post("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "300"})
        problem = first.refuses(504, "DEPENDENCY.timeout")
        assert "may have been executed" not in problem["hint"] and "has not been sent" in problem["hint"], problem
        for client in waiting:
            client.close()
        gateway.kill()
    assert upstream.requests == []
