# SPDX-License-Identifier: Apache-2.0
"""Applications that answer badly: the client gets 502 or 504, the outcome is unknown where bytes were sent, the
connection is closed and memory is bounded. Where the application deduplicates, the request is retried."""
import threading

import pytest

from harness import (Deduplicating, answer_raw, eventually, never_answer, numbered, quick_retries, sanitized)
from test_broken_answers import BROKEN

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
ATTEMPTS = 4


@pytest.mark.parametrize("name", BROKEN)
def test_broken_answer_of_an_idempotent_application_is_asked_for_again(start_gateway, upstream, key, name):
    gateway = start_gateway(quick_retries(guarantee="idempotent"), store="memory:")
    upstream.on("/refunds", Deduplicating(BROKEN[name], BROKEN[name]))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency, first.json()["effect"]) == (201, "stored", 1)
    assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    assert len(upstream.received("/refunds")) == 3
    assert upstream.effects("/refunds") == 1


def test_answer_that_stays_broken_is_unknown_in_the_end(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent"), store="memory:")
    upstream.on("/refunds", Deduplicating(*[BROKEN["garbage"]] * ATTEMPTS))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    assert len(upstream.received("/refunds")) == ATTEMPTS
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("guarantee", ["none", "atomic"])
@pytest.mark.parametrize("name", ["garbage", "two lengths", "half a body", "endless head"])
def test_broken_answer_without_a_guarantee_is_asked_for_once(start_gateway, upstream, key, name, guarantee):
    gateway = start_gateway(quick_retries(guarantee=guarantee), store="memory:")
    upstream.on("/refunds", answer_raw(BROKEN[name]))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    upstream.on("/refunds", numbered)
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("name", ["garbage", "two lengths", "length and chunks", "bad chunk size", "unknown coding",
                                  "folded header", "endless head", "another protocol's welcome"])
def test_connection_with_a_broken_answer_is_closed(start_gateway, upstream, key, name):
    """The application keeps it open, and nothing may be read from it any more."""
    gateway = start_gateway(quick_retries(), store="memory:")
    upstream.on("/refunds", answer_raw(BROKEN[name], then=None))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    eventually(lambda: upstream.open_connections() == 0, "the connection being closed")
    assert upstream.effects("/refunds") == 1


class Endless:
    """Sends the same piece for ever, and counts how much of it was taken."""

    def __init__(self, start, piece):
        self.start = start
        self.piece = piece
        self.sent = 0
        self.ended = threading.Event()

    def __call__(self, exchange):
        exchange.read_body()
        exchange.execute()
        try:
            exchange.send(self.start)
            while True:
                self.sent += exchange.send_some(self.piece)
        finally:
            self.ended.set()


@pytest.mark.parametrize("start, piece", [
    (b"HTTP/1.1 201 Created\r\n", b"X-Header: " + b"a" * 100 + b"\r\n"),
    (b"HTTP/1.1 201 Created\r\nX-Header: ", b"a" * 10000),
    (b"", b"a" * 10000),
    (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a" * 10000),
    (b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Trailer: " + b"a" * 100 + b"\r\n"),
    (b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
], ids=["headers", "one header", "first line", "chunk extension", "trailers", "interim answers"])
def test_answer_without_end_is_cut_off_in_bounded_memory(start_gateway, upstream, key, start, piece):
    gateway = start_gateway(quick_retries(upstream_timeout="2s", grace="100ms"), store="memory:")
    gateway.post("/warm", key="warm-" + key, json=REFUND)
    before = gateway.peak_rss_bytes()
    endless = upstream.on("/refunds", Endless(start, piece))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status in (502, 504), first.idempotency) == (True, "unknown")
    assert endless.ended.wait(60), "the connection was not closed"
    if not sanitized():
        assert gateway.peak_rss_bytes() - before < 16 << 20
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


def test_hundred_answers_without_end_at_once_stay_in_bounded_memory(start_gateway, upstream):
    gateway = start_gateway(quick_retries(guarantee="idempotent"), store="memory:")
    gateway.post("/warm", key="a-key-to-warm-it-up", json=REFUND)
    before = gateway.peak_rss_bytes()
    upstream.on("/refunds", Endless(b"HTTP/1.1 201 Created\r\n", (b"X-Header: " + b"a" * 100 + b"\r\n") * 100))
    pendings = [gateway.send("POST", "/refunds", key=f"a-key-of-its-own-{n}", json=REFUND) for n in range(100)]
    for pending in pendings:
        assert (pending.status, pending.idempotency) == (502, "unknown")
    if not sanitized():
        assert gateway.peak_rss_bytes() - before < 64 << 20
    assert gateway.get("/other").status == 200
    assert len(upstream.received("/refunds")) >= 100


def test_answer_that_never_comes_is_504_and_unknown(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(upstream_timeout="200ms", grace="100ms"), store="memory:")
    upstream.on("/refunds", never_answer)
    first = gateway.post("/refunds", key=key, json=REFUND)
    first.refuses(504, "DEPENDENCY.timeout")
    assert first.idempotency == "unknown"
    eventually(lambda: upstream.open_connections() == 0, "the connection being closed")
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1
