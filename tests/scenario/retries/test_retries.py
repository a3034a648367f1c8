# SPDX-License-Identifier: Apache-2.0
"""What is provably not executed is sent again, by the route's class, and then released. What may have happened is never
sent twice."""
import re
import socket

import pytest

from harness import (answer, answer_raw, drop_after_effect, eventually, fresh_key, in_turn, never_answer, numbered,
                     quick_retries, quoted)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
ATTEMPTS = 4  # of the class `user`: the first and three retries
NOT_EXECUTED = {
    408: answer(408, "slow", effect=False),
    421: answer(421, "elsewhere", effect=False),
    425: answer(425, "too early", effect=False),
    429: answer(429, "too many", effect=False),
    503: answer(503, "busy", [("Retry-After", "0")], effect=False),
}
MAY_HAVE_HAPPENED = {
    "502": (answer(502, "bad gateway"), 502),
    "503 without Retry-After": (answer(503, "gone"), 503),
    "504": (answer(504, "slow"), 504),
    "connection closed": (drop_after_effect(), 502),
    "connection reset": (drop_after_effect(reset=True), 502),
    "garbage": (answer_raw(b"no HTTP at all\r\n\r\n"), 502),
    "half a body": (answer_raw(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n12345"), 502),
    "silence": (never_answer, 504),
}


def gaps(requests):
    """From each answer to the next request, in seconds of one clock."""
    return [later.at - earlier.answered_at for earlier, later in zip(requests, requests[1:])]


@pytest.fixture
def gateway(start_gateway):
    """Its store is the quickest there is: these stories are about what is sent, and not about what is kept."""
    return start_gateway(quick_retries(upstream_timeout="1500ms"), store="memory:")


@pytest.mark.parametrize("status", NOT_EXECUTED)
def test_answer_that_says_not_executed_is_tried_again(gateway, upstream, key, status):
    upstream.on("/refunds", in_turn(NOT_EXECUTED[status], NOT_EXECUTED[status], numbered))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.json()["effect"]) == (201, "stored", 1)
    assert len(upstream.received("/refunds")) == 3

    assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    assert len(upstream.received("/refunds")) == 3
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", NOT_EXECUTED)
def test_retries_end_and_the_key_is_released(gateway, upstream, key, status):
    upstream.on("/refunds", NOT_EXECUTED[status])
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "released")
    assert len(upstream.received("/refunds")) == ATTEMPTS

    upstream.on("/refunds", numbered)
    second = gateway.post("/refunds", key=key, json={"amount": 2000})
    assert (second.status, second.idempotency) == (201, "stored")
    assert len(upstream.received("/refunds")) == ATTEMPTS + 1
    assert upstream.effects("/refunds") == 1


def test_408_is_sent_again_at_once(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 20s, cap: 20s, total: 60s}"))
    upstream.on("/refunds", in_turn(NOT_EXECUTED[408], numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    requests = upstream.received("/refunds")
    assert len(requests) == 2
    assert gaps(requests)[0] < 20
    assert upstream.effects("/refunds") == 1


def test_every_attempt_is_the_same_request_but_for_its_number(gateway, upstream, key):
    upstream.on("/refunds", in_turn(*[NOT_EXECUTED[429]] * 3, numbered))
    assert gateway.post("/refunds", key=quoted(key), json=REFUND, headers={"X-Colour": "blue"}).status == 201
    requests = upstream.received("/refunds")
    assert [request.header("Hapax-Attempt") for request in requests] == ["1", "2", "3", "4"]
    assert {request.header("Idempotency-Key") for request in requests} == {quoted(key)}
    assert {request.body for request in requests} == {b'{"amount": 1000}'}
    assert {request.header("X-Colour") for request in requests} == {"blue"}
    operations = {request.header("Hapax-Operation") for request in requests}
    assert len(operations) == 1
    assert re.fullmatch(r"[^.\s]+\.\d+", operations.pop())
    traces = {request.header("traceparent").split("-")[1] for request in requests}
    assert len(traces) == 1
    assert upstream.effects("/refunds") == 1


def test_next_operation_of_a_released_key_has_another_epoch(gateway, upstream, key):
    upstream.on("/refunds", in_turn(*[NOT_EXECUTED[429]] * ATTEMPTS, numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "released"
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    operations = [request.header("Hapax-Operation").split(".") for request in upstream.received("/refunds")]
    assert len({identity for identity, _ in operations}) == 1
    epochs = [int(epoch) for _, epoch in operations]
    assert epochs[:ATTEMPTS] == [epochs[0]] * ATTEMPTS
    assert epochs[ATTEMPTS] > epochs[0]
    assert upstream.received("/refunds")[-1].header("Hapax-Attempt") == "1"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("name", MAY_HAVE_HAPPENED)
def test_what_may_have_happened_is_never_sent_again(gateway, upstream, key, name):
    behaviour, status = MAY_HAVE_HAPPENED[name]
    upstream.on("/refunds", behaviour)
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "unknown")

    upstream.on("/refunds", numbered)
    for _ in range(3):
        held = gateway.post("/refunds", key=key, json=REFUND)
        problem = held.refuses(409, UNKNOWN)
        assert int(held.header("Retry-After")) > 0
        assert problem["retryable"] is True
        assert "new key" in problem["hint"]
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("name", MAY_HAVE_HAPPENED)
def test_what_may_have_happened_at_a_later_attempt_is_not_sent_again_either(gateway, upstream, key, name):
    behaviour, status = MAY_HAVE_HAPPENED[name]
    upstream.on("/refunds", in_turn(NOT_EXECUTED[429], behaviour))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "unknown")
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [200, 201, 301, 302, 303, 400, 404, 409, 410, 412, 422, 423, 500, 501])
def test_outcome_is_never_tried_again(gateway, upstream, key, status):
    upstream.on("/refunds", answer(status, {"status": status}))
    for _ in range(2):
        assert gateway.post("/refunds", key=key, json=REFUND).status == status
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [401, 403, 307, 308])
def test_refusal_that_only_the_client_can_cure_is_not_tried_again(gateway, upstream, key, status):
    upstream.on("/refunds", answer(status, effect=False))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, "released")
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 0


def test_refused_connection_is_tried_again_and_then_released(start_gateway, start_upstream, key):
    application = start_upstream(listening=False)
    gateway = start_gateway(quick_retries(), upstream=application)
    first = gateway.post("/refunds", key=key, json=REFUND)
    problem = first.refuses(502, "DEPENDENCY.unavailable")
    assert f"{ATTEMPTS} attempts" in problem["detail"]
    assert first.idempotency == "released"
    assert gateway.wait_events("request")[0]["attempt"] == ATTEMPTS

    application.listen()
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert application.effects("/refunds") == 1


def test_connection_that_is_never_accepted_is_released(start_gateway, key):
    """Not one byte was sent on it: the application's queue is full, and every new connection waits."""
    with socket.socket() as full, socket.socket() as one, socket.socket() as two:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (one, two):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        gateway = start_gateway(quick_retries(retry="{attempts: 2, base: 1ms}") + "limits: {connect_timeout: 200ms}\n",
                                upstream=f"http://127.0.0.1:{full.getsockname()[1]}")
        first = gateway.post("/refunds", key=key, json=REFUND)
        assert first.status in (502, 504)
        assert first.problem()["error_code"].startswith("DEPENDENCY.")
        assert first.idempotency == "released"
        assert gateway.wait_events("request")[0]["attempt"] == 2


def test_name_that_is_not_found_is_tried_again_and_then_released(start_gateway, key):
    gateway = start_gateway(quick_retries(), upstream="http://no-such-host.invalid:80")
    first = gateway.post("/refunds", key=key, json=REFUND)
    first.refuses(502, "DEPENDENCY.unavailable")
    assert first.idempotency == "released"
    assert gateway.wait_events("request")[0]["attempt"] == ATTEMPTS


def test_application_that_comes_up_between_two_attempts_is_reached(start_gateway, start_upstream, key):
    application = start_upstream(listening=False)
    gateway = start_gateway(quick_retries(retry="{base: 1s, cap: 1s, jitter: none, attempts: 60, total: 60s}"),
                            upstream=application)
    pending = gateway.post_later("/refunds", key=key, json=REFUND)
    gateway.wait_events("retry_scheduled")
    application.listen()
    assert (pending.status, pending.idempotency) == (201, "stored")
    assert int(application.last().header("Hapax-Attempt")) > 1
    assert application.effects("/refunds") == 1


def test_delays_double(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 100ms, jitter: none}"))
    upstream.on("/refunds", NOT_EXECUTED[429])
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "released"
    requests = upstream.received("/refunds")
    assert len(requests) == ATTEMPTS
    for gap, least in zip(gaps(requests), (0.1, 0.2, 0.4)):
        assert gap >= least, gaps(requests)
    assert upstream.effects("/refunds") == 0


def test_total_time_ends_new_attempts(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 200ms, jitter: none, attempts: 50, total: 1300ms}"))
    upstream.on("/refunds", NOT_EXECUTED[429])
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (429, "released")
    assert 1 < len(upstream.received("/refunds")) <= 3  # at 0, 200 and 600 ms; the next would come at 1,400
    assert upstream.effects("/refunds") == 0


def test_total_time_cuts_no_attempt_short(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 10ms, total: 100ms}"))
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.get("/other")
        held.released.wait(0.5)
    assert (pending.status, pending.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1


def test_route_that_allows_one_attempt_makes_one(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{attempts: 1}"))
    upstream.on("/refunds", NOT_EXECUTED[429])
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "released"
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 0


def test_each_class_has_its_number_of_attempts(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - {match: POST /user, class: user, retry: {base: 5ms, cap: 10ms}}
          - {match: POST /background, class: background, retry: {base: 5ms, cap: 10ms}}
        """)
    upstream.on("*", NOT_EXECUTED[429])
    for path, attempts in (("/user", 4), ("/background", 6)):
        assert gateway.post(path, key=key, json=REFUND).idempotency == "released"
        assert len(upstream.received(path)) == attempts
    assert upstream.effects() == 0


def test_application_that_means_its_503_says_so_in_the_configuration(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(not_executed="[429, 503]"))
    busy = answer(503, "busy", effect=False)
    upstream.on("/refunds", in_turn(busy, numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1

    upstream.on("/refunds", busy)
    other = "another-" + key[:20]
    first = gateway.post("/refunds", key=other, json=REFUND)
    assert (first.status, first.idempotency) == (503, "released")
    assert len([request for request in upstream.received("/refunds") if request.key == other]) == ATTEMPTS
    assert upstream.effects("/refunds") == 1


def test_log_of_an_ambiguous_503_names_the_option(gateway, upstream, key):
    upstream.on("/refunds", answer(503, "busy"))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert "`not_executed`" in gateway.wait_events("request", 2)[1]["remedy"]
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("rule, status, told, arrivals", [
    ('{"302": release}', 302, "released", 2),
    ('{"422": release}', 422, "released", 2),
    ('{"500": unknown}', 500, "unknown", 1),
    ('{"502": store}', 502, "stored", 1),
    ('{"401": store}', 401, "stored", 1),
])
def test_route_says_what_a_status_means(start_gateway, upstream, key, rule, status, told, arrivals):
    gateway = start_gateway(quick_retries(outcome=rule), store="memory:")
    upstream.on("/refunds", answer(status, "it"))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (status, told)
    second = gateway.post("/refunds", key=key, json=REFUND)
    expected = {"released": (status, "released"), "unknown": (409, "unknown"), "stored": (status, "replayed")}[told]
    assert (second.status, second.idempotency) == expected
    assert len(upstream.received("/refunds")) == arrivals
    assert upstream.effects("/refunds") == arrivals


def test_duplicates_wait_through_the_retries_and_share_the_answer(gateway, upstream, key):
    upstream.on("/refunds", in_turn(NOT_EXECUTED[429], NOT_EXECUTED[429], numbered))
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=10, json=REFUND)
        held.wait_arrived()
    assert {(response.status, response.body) for response in everyone} == {(201, b'{"id": "rf_1", "effect": 1}')}
    assert sorted(response.idempotency for response in everyone) == ["replayed"] * 9 + ["stored"]
    assert len(upstream.received("/refunds")) == 3
    assert upstream.effects("/refunds") == 1


def test_duplicates_at_another_worker_wait_through_the_retries_too(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(), workers=2)
    upstream.on("/refunds", in_turn(NOT_EXECUTED[429], NOT_EXECUTED[503], numbered))
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=30, json=REFUND)
        held.wait_arrived()
    assert {(response.status, response.body) for response in everyone} == {(201, b'{"id": "rf_1", "effect": 1}')}
    assert len(upstream.received("/refunds")) == 3
    assert upstream.effects("/refunds") == 1


def test_duplicates_that_waited_in_vain_get_the_last_answer(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", NOT_EXECUTED[429])
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=10, json=REFUND)
        held.wait_arrived()
        gateway.wait_waiting(9)
    assert {(r.status, r.body, r.idempotency) for r in everyone} == {(429, b"too many", "released")}
    assert len(upstream.received("/refunds")) == ATTEMPTS
    assert upstream.effects("/refunds") == 0


def test_large_request_is_sent_whole_on_every_attempt(gateway, upstream, key):
    upstream.on("/refunds", in_turn(NOT_EXECUTED[429], NOT_EXECUTED[503], numbered))
    body = bytes(range(256)) * 3000  # larger than what is kept in memory
    assert gateway.post("/refunds", key=key, body=body).status == 201
    assert [request.body == body for request in upstream.received("/refunds")] == [True] * 3
    assert upstream.effects("/refunds") == 1


def test_answer_too_large_to_keep_does_not_end_the_retries(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(answer_max="4KiB"), store="memory:")
    busy = answer(429, b"x" * 200_000, effect=False)
    upstream.on("/refunds", in_turn(busy, busy, numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert len(upstream.received("/refunds")) == 3

    upstream.on("/charges", busy)
    refused = gateway.post("/charges", key=key, json=REFUND)
    assert (refused.status, refused.idempotency, refused.body) == (429, "released", b"x" * 200_000)
    assert len(upstream.received("/charges")) == ATTEMPTS
    assert upstream.effects() == 1


def test_lease_is_kept_between_two_attempts(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(lease="1s", retry="{base: 1500ms, jitter: none}"))
    upstream.on("/refunds", in_turn(NOT_EXECUTED[429], numbered))
    first = gateway.post_later("/refunds", key=key, json=REFUND)
    gateway.wait_events("retry_scheduled")
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (201, "stored")
    assert (second.body, second.idempotency) == (first.body, "replayed")
    assert len({request.header("Hapax-Operation") for request in upstream.received("/refunds")}) == 1
    assert upstream.effects("/refunds") == 1


def test_client_that_leaves_between_two_attempts_harms_nothing(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 500ms, cap: 500ms, jitter: none}"))
    upstream.on("/refunds", in_turn(NOT_EXECUTED[429], numbered))
    pending = gateway.post_later("/refunds", key=key, json=REFUND)
    upstream.wait(lambda: [r for r in upstream.requests if r.answered_at], "the first answer")
    pending.connection.reset()
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("guarantee", ["none", "atomic"])
def test_kill_between_two_attempts_leaves_it_unknown(start_gateway, upstream, key, guarantee):
    gateway = start_gateway(quick_retries(guarantee=guarantee, retry="{base: 20s, cap: 20s, total: 60s}"))
    upstream.on("/refunds", NOT_EXECUTED[429])
    gateway.post_later("/refunds", key=key, json=REFUND)
    gateway.wait_events("retry_scheduled")
    gateway.restart("kill")
    upstream.on("/refunds", numbered)
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 0


def test_kill_between_two_attempts_of_an_idempotent_application(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent", retry="{base: 20s, cap: 20s, total: 60s}"))
    upstream.on("/refunds", NOT_EXECUTED[429])
    gateway.post_later("/refunds", key=key, json=REFUND)
    gateway.wait_events("retry_scheduled")
    gateway.restart("kill")
    upstream.on("/refunds", numbered)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_terminate_gives_up_what_waits_to_be_sent_again(start_gateway, upstream):
    gateway = start_gateway(quick_retries(retry="{base: 30s, cap: 30s, total: 120s}"))
    keys = [fresh_key() for _ in range(8)]
    upstream.on("/refunds", NOT_EXECUTED[429])
    pendings = [gateway.post_later("/refunds", key=key, json=REFUND) for key in keys]
    gateway.wait_events("retry_scheduled", len(keys))
    upstream.on("/refunds", numbered)
    gateway.terminate()
    for pending in pendings:
        assert (pending.status, pending.idempotency) == (429, "released")
    assert gateway.wait_exit() == 0
    gateway.start()
    for key in keys:
        assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert set(upstream.effects_by_key.values()) == {1}
    assert upstream.effects("/refunds") == len(keys)


def test_terminate_between_two_attempts_ends_in_good_order(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 1s, cap: 1s, jitter: none}"))
    upstream.on("/refunds", in_turn(NOT_EXECUTED[429], numbered))
    pending = gateway.post_later("/refunds", key=key, json=REFUND)
    gateway.wait_events("retry_scheduled")
    gateway.terminate()
    assert (pending.status, pending.idempotency) in [(201, "stored"), (429, "released")]
    assert gateway.wait_exit() == 0
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_safe_method_is_sent_again_when_nobody_listened(start_gateway, start_upstream, method):
    application = start_upstream(listening=False)
    gateway = start_gateway(quick_retries(retry="{base: 200ms, cap: 200ms, jitter: none, attempts: 50, total: 60s}"),
                            upstream=application)
    pending = gateway.send(method, "/refunds").wait_read()
    gateway.wait_events("retry_scheduled")
    application.listen()
    assert pending.status == 200
    assert len(application.received("/refunds")) == 1
    assert application.effects() == 0


def test_unkeyed_post_is_never_tried_again(start_gateway, upstream):
    gateway = start_gateway(quick_retries(retry_safe="true", require="false", guarantee="idempotent"))
    upstream.on("/refunds", drop_after_effect(reset=True))
    assert gateway.post("/refunds", json=REFUND).status == 502
    upstream.on("/refunds", answer(503))
    assert gateway.post("/refunds", json=REFUND).status == 503
    assert len(upstream.received("/refunds")) == 2
    assert upstream.effects("/refunds") == 2


def test_answer_that_has_begun_is_never_begun_again(start_gateway, upstream):
    gateway = start_gateway(quick_retries(retry_safe="true"))
    upstream.on("/file", answer_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 100000,
                                    effect=False, then="reset"))
    connection = gateway.connect()
    connection.send(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n")
    assert connection.receive_head()[0] in (200, 502)
    connection.at_end()
    eventually(lambda: upstream.open_connections() == 0, "the exchange ending")
    assert len(upstream.received("/file")) == 1
