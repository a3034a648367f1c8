# SPDX-License-Identifier: Apache-2.0
"""Requests without a key: those that may be repeated by their method are sent again when they never reached the
application, and nothing else is, unless the route says `retry_safe`."""
import pytest

from harness import answer, in_turn, reset_before_reading

PATIENT = "defaults: {retry: {attempts: 50, total: 60s, base: 20ms, cap: 20ms, jitter: none}}\n"
SAFE = ("routes:\n  - {match: 'GET,HEAD,PUT,POST,DELETE /things', mode: pass, because: a test, retry_safe: true, "
        "retry: {attempts: 4, base: 1ms, cap: 1ms, jitter: none}}\n")


@pytest.mark.parametrize("method,length", [("GET", 0), ("HEAD", 0), ("DELETE", 0), ("PUT", 100), ("PUT", 200_000)])
def test_request_waits_for_an_application_that_is_being_started(start_gateway, start_upstream, method, length):
    body = b"a" * length or None
    application = start_upstream(listening=False)
    gateway = start_gateway(config=PATIENT, upstream=application)
    pending = gateway.send(method, "/things", body=body)
    gateway.wait_events("retry_scheduled", 2)
    application.listen()
    assert pending.status in (200, 201)
    assert len(application.received("/things")) == 1
    assert application.last().body == (body or b"")


def test_body_that_comes_while_nobody_listens_is_sent_whole(start_gateway, start_upstream):
    application = start_upstream(listening=False)
    gateway = start_gateway(config=PATIENT, upstream=application)
    connection = gateway.connect()
    connection.send(b"PUT /things HTTP/1.1\r\nHost: a\r\nContent-Length: 30\r\n\r\n" + b"1" * 10)
    gateway.wait_events("retry_scheduled", 1)
    connection.send(b"2" * 10)
    gateway.wait_events("retry_scheduled", 3)
    application.listen()
    connection.send(b"3" * 10)
    application.wait_requests(1)
    assert connection.receive("PUT").status in (200, 201)
    assert application.last().body == b"1" * 10 + b"2" * 10 + b"3" * 10


def test_post_without_a_key_is_not_sent_again(start_gateway, start_upstream):
    application = start_upstream(listening=False)
    gateway = start_gateway(config=PATIENT, upstream=application)
    response = gateway.post("/things", json={})
    assert response.status == 502
    assert response.json()["error_code"] == "DEPENDENCY.unavailable"
    gateway.wait_events("request")  # the last line about it
    assert gateway.events("retry_scheduled") == []
    assert application.effects() == 0


def test_connect_failures_end_with_the_attempts(start_gateway, start_upstream):
    application = start_upstream(listening=False)
    gateway = start_gateway(config="defaults: {retry: {attempts: 3, base: 1ms, cap: 1ms}}\n", upstream=application)
    assert gateway.get("/things").status == 502
    gateway.wait_events("request")
    assert len(gateway.events("retry_scheduled")) == 2
    assert [event["because"] for event in gateway.events("retry_exhausted")] == ["attempts"]


@pytest.mark.parametrize("status", [502, 503, 504])
def test_transient_answer_is_handed_on_by_default(gateway, upstream, status):
    upstream.on("/things", answer(status, "no", effect=False))
    assert gateway.get("/things").status == status
    assert len(upstream.received("/things")) == 1


@pytest.mark.parametrize("status", [502, 503, 504])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_transient_answer_is_asked_again_where_the_route_says_so(start_gateway, upstream, method, status):
    gateway = start_gateway(config=SAFE)
    upstream.on("/things", in_turn(answer(status, "no", effect=False), answer(status, "no", effect=False),
                                   answer(200, "yes")))
    response = gateway.request(method, "/things")
    assert (response.status, response.body) == (200, b"yes")
    assert len(upstream.received("/things")) == 3
    assert upstream.effects("/things") == 1


def test_last_transient_answer_is_handed_on(start_gateway, upstream):
    gateway = start_gateway(config=SAFE)
    upstream.on("/things", answer(503, "still no", effect=False))
    response = gateway.get("/things")
    assert (response.status, response.body) == (503, b"still no")
    assert len(upstream.received("/things")) == 4


def test_connection_that_is_cut_is_asked_again_where_the_route_says_so(start_gateway, upstream):
    gateway = start_gateway(config=SAFE)
    upstream.on("/things", in_turn(reset_before_reading, answer(200, "yes")))
    assert gateway.get("/things").body == b"yes"
    assert upstream.effects("/things") == 1


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("length", [1, 100_000, 900_000])
@pytest.mark.parametrize("first", [answer(503, "no", effect=False), reset_before_reading], ids=["503", "a reset"])
def test_body_that_can_be_kept_is_sent_again_where_the_route_says_so(start_gateway, upstream, method, length, first):
    gateway = start_gateway(config=SAFE)
    body = bytes(range(256)) * (length // 256) or b"x"
    upstream.on("/things", in_turn(first, answer(200, "yes")))
    assert gateway.request(method, "/things", body=body).body == b"yes"
    assert upstream.last().body == body
    assert upstream.effects("/things") == 1


def test_body_that_can_be_kept_is_not_sent_again_by_default(gateway, upstream):
    upstream.on("/things", answer(503, "no"))
    assert gateway.request("PUT", "/things", body=b"x").status == 503
    assert upstream.effects("/things") == 1


@pytest.mark.parametrize("method, head, body", [
    ("POST", "Content-Length: 1", b"x"), ("PUT", "Transfer-Encoding: chunked", b"1\r\nx\r\n0\r\n\r\n"),
    ("PUT", "Content-Length: 1100000", b"x" * 1_100_000)],
    ids=["POST", "of unknown length", "more than is kept"])
def test_body_that_was_streamed_is_not_sent_again(start_gateway, upstream, method, head, body):
    gateway = start_gateway(config=SAFE)
    upstream.on("/things", answer(503, "no"))
    with gateway.connect() as connection:
        connection.send(f"{method} /things HTTP/1.1\r\nHost: a\r\n{head}\r\n\r\n".encode() + body)
        assert connection.receive(method).status == 503
    assert upstream.effects("/things") == 1


def test_client_that_leaves_in_mid_body_leaves_nothing_behind(start_gateway, upstream):
    gateway = start_gateway(config=SAFE)
    with gateway.connect() as connection:
        connection.send(b"PUT /things HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345")
    gateway.wait_events("request", 1)
    assert gateway.get("/things").status == 200
    assert [request.method for request in upstream.requests] == ["GET"]
