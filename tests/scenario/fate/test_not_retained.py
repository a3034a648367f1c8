# SPDX-License-Identifier: Apache-2.0
"""Answers that are too large to keep, or never end: the first client gets them, no client gets them twice, and the
operation never runs again. Requests that are too large are not taken at all."""
import hashlib

import pytest

from harness import Stream, answer, chunk, chunked, eventually, numbered, request_bytes, without_tmpfile

NOT_RETAINED = "CONFLICT.idempotency.response_not_retained"
SMALL = """
    defaults:
      answer_max: 4KiB
      body_max: 4KiB
    """
BIG = bytes(range(256)) * 4096


def assert_not_retained(response, status):
    problem = response.refuses(409, NOT_RETAINED)
    assert str(status) in problem["detail"], problem
    assert problem["retryable"] is False


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_answer_too_large_to_keep_is_streamed_once(start_gateway, upstream, key, framing):
    gateway = start_gateway(SMALL)
    pieces = [BIG[at:at + 10000] for at in range(0, len(BIG), 10000)]
    upstream.on("/export", answer(201, BIG) if framing == "length" else chunked(pieces, 201))
    first = gateway.post("/export", key=key, json={})
    assert (first.status, first.idempotency) == (201, "not-retained")
    assert first.body == BIG
    for _ in range(2):
        assert_not_retained(gateway.post("/export", key=key, json={}), 201)
    assert upstream.effects("/export") == 1


def test_answer_at_the_limit_is_kept(start_gateway, upstream, key):
    gateway = start_gateway(SMALL)
    upstream.on("/export", answer(200, b"x" * 4096))
    bodies = [gateway.post("/export", key=key, json={}).body for _ in range(2)]
    assert bodies == [b"x" * 4096] * 2
    assert upstream.effects("/export") == 1


def test_answer_of_some_megabytes_is_kept_by_default(gateway, upstream, key):
    upstream.on("/export", answer(200, BIG * 4))
    first, second = (gateway.post("/export", key=key, json={}) for _ in range(2))
    assert hashlib.sha256(second.body).digest() == hashlib.sha256(BIG * 4).digest()
    assert (first.body, second.idempotency) == (second.body, "replayed")
    assert upstream.effects("/export") == 1


def test_largest_answer_that_may_be_kept_is_kept(start_gateway, hapax, upstream, key, tmp_path):
    gateway = start_gateway("""
        defaults:
          answer_max: 14MiB
        """)
    upstream.on("/export", answer(200, BIG * 14, [("X-Long", "x" * 60000)]))
    bodies = {gateway.post("/export", key=key).body for _ in range(2)}
    assert bodies == {BIG * 14}
    assert upstream.effects("/export") == 1
    larger = tmp_path / "larger.yaml"
    larger.write_text(f"upstream: {upstream.url}\ndefaults:\n  answer_max: 15MiB\n", encoding="utf-8")
    assert "14MiB" in hapax("check", larger).stderr


def test_waiters_of_an_answer_too_large_to_keep_are_told(start_gateway, upstream, key):
    gateway = start_gateway(SMALL)
    upstream.on("/export", answer(200, BIG))
    with upstream.hold("/export"):
        everyone = gateway.post_together("/export", key=key, times=5)
    statuses = sorted(response.status for response in everyone)
    assert statuses == [200, 409, 409, 409, 409]
    assert upstream.effects("/export") == 1


def test_not_retained_is_still_so_after_a_restart(start_gateway, upstream, key):
    gateway = start_gateway(SMALL)
    upstream.on("/export", answer(202, BIG))
    gateway.post("/export", key=key, json={})
    gateway.restart()
    assert_not_retained(gateway.post("/export", key=key, json={}), 202)
    assert upstream.effects("/export") == 1


def test_event_stream_on_a_keyed_route_flows_and_is_never_run_again(gateway, upstream, key):
    stream = upstream.on("/ask", Stream())
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/ask", {"Idempotency-Key": key}, b"{}"))
    stream.wait_started()
    status, _, fields = connection.receive_head()
    assert (status, dict(fields)["Content-Type"]) == (200, "text/event-stream")

    events = connection.reader.body_pieces(fields, status)
    for number in range(3):
        event = b"data: %d\n\n" % number
        stream.send(event)
        assert next(events) == event
    assert_not_retained(gateway.post("/ask", key=key, body=b"{}"), 200)
    stream.end()
    assert b"".join(events) == b""
    assert_not_retained(gateway.post("/ask", key=key, body=b"{}"), 200)
    assert upstream.effects("/ask") == 1


def test_client_that_leaves_an_event_stream_leaves_it_recorded(gateway, upstream, key):
    stream = upstream.on("/ask", Stream())
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/ask", {"Idempotency-Key": key}, b"{}"))
    stream.wait_started()
    connection.receive_head()
    connection.reset()
    stream.end()
    assert_not_retained(gateway.post("/ask", key=key, body=b"{}"), 200)
    assert upstream.effects("/ask") == 1


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_request_too_large_is_refused_and_never_sent(start_gateway, upstream, key, framing):
    gateway = start_gateway(SMALL)
    body = b"x" * 4097
    if framing == "length":
        response = gateway.post("/refunds", key=key, body=body)
    else:
        response = gateway.raw(request_bytes("POST", "/refunds", {
            "Idempotency-Key": key, "Transfer-Encoding": "chunked"}, chunk(body) + b"0\r\n\r\n"))
    response.refuses(413, "VALIDATION.body_too_large")
    assert upstream.requests == []
    assert gateway.post("/refunds", key=key, body=b"x" * 4096).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("size", [1, 65535, 65536, 256 * 1024, 256 * 1024 + 1, 1024 * 1024])
def test_request_bodies_reach_the_upstream_whole(gateway, upstream, key, size):
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    upstream.on("/refunds", numbered)
    first = gateway.post("/refunds", key=key, body=body)
    assert first.status == 201
    assert upstream.last().body == body
    assert gateway.post("/refunds", key=key, body=body).idempotency == "replayed"
    changed = body[:-1] + bytes([body[-1] ^ 1])
    gateway.post("/refunds", key=key, body=changed).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


def test_unkeyed_request_of_any_size_passes(start_gateway, upstream):
    gateway = start_gateway(SMALL)
    body = BIG * 3
    assert gateway.post("/upload", body=body).status == 201
    assert upstream.last().body == body
    assert upstream.effects("/upload") == 1


def test_client_that_left_before_a_whole_event_stream_leaves_it_recorded(gateway, upstream, key):
    upstream.on("/ask", answer(200, "data: 1\n\n", [("Content-Type", "text/event-stream")]))
    with upstream.hold("/ask") as held:
        pending = gateway.post_later("/ask", key=key)
        held.wait_arrived()
        pending.connection.reset()
        eventually(lambda: gateway.get("/other").status == 200)
    assert_not_retained(gateway.post("/ask", key=key), 200)
    assert upstream.effects("/ask") == 1


def test_waiters_on_a_release_whose_answer_is_too_large_come_back_themselves(start_gateway, upstream, key):
    gateway = start_gateway(SMALL)
    upstream.on("/export", answer(429, BIG, effect=False))
    with upstream.hold("/export") as held:
        first = gateway.post_later("/export", key=key)
        held.wait_arrived()
        waiters = gateway.post_together("/export", key=key, times=3)
        gateway.wait_waiting(3)
    assert (first.status, first.idempotency, first.body) == (429, "released", BIG)
    for waiter in waiters:
        waiter.refuses(409, "CONFLICT.idempotency.in_flight")
        assert waiter.header("Retry-After") == "1"
    assert upstream.effects("/export") == 0


def test_large_request_is_spooled_where_unnamed_files_are_not_supported(start_gateway, upstream, key):
    gateway = start_gateway(env=without_tmpfile())
    body = bytes(range(256)) * 2048
    assert gateway.post("/refunds", key=key, body=body).status == 201
    assert upstream.last().body == body
    assert gateway.post("/refunds", key=key, body=body).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1
