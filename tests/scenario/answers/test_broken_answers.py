# SPDX-License-Identifier: Apache-2.0
"""Upstreams that answer badly: the client gets 502, the outcome is unknown, and nothing runs twice."""
import pytest

from harness import answer, answer_raw, chunked, fresh_key, interim, numbered, until_close

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"

BROKEN = {
    "garbage": b"\x16\x03\x01 this is not HTTP\r\n\r\n",
    "nothing but a line": b"hello\n",
    "half a head": b"HTTP/1.1 201 Created\r\nContent-Type: text/pl",
    "half a body": b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n12345",
    "no body": b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n",
    "half a chunk": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n12345",
    "no last chunk": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
    "bad chunk size": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5x\r\n12345\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
    "length and chunks": b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": b"HTTP/1.1 201 Created\r\nContent-Length: -1\r\n\r\n",
    "unknown coding": b"HTTP/1.1 201 Created\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "status of five digits": b"HTTP/1.1 20100 Created\r\nContent-Length: 0\r\n\r\n",
    "status 600": b"HTTP/1.1 600 Created\r\nContent-Length: 0\r\n\r\n",
    "status 099": b"HTTP/1.1 099 Created\r\nContent-Length: 0\r\n\r\n",
    "another protocol": b"HTTP/3.7 201 Created\r\nContent-Length: 0\r\n\r\n",
    "NUL in a header": b"HTTP/1.1 201 Created\r\nX-A: a\0b\r\nContent-Length: 0\r\n\r\n",
    "folded header": b"HTTP/1.1 201 Created\r\nX-A: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "header without a name": b"HTTP/1.1 201 Created\r\n: a\r\nContent-Length: 0\r\n\r\n",
    "endless head": b"HTTP/1.1 201 Created\r\n" + b"X-A: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 40000 + b"\r\n",
    "another protocol's welcome": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_answer_is_502_and_unknown(gateway, upstream, key, name):
    upstream.on("/refunds", answer_raw(BROKEN[name]))
    first = gateway.post("/refunds", key=key, json={})
    assert first.status == 502
    assert first.problem()["error_code"].startswith("DEPENDENCY.")
    assert first.idempotency == "unknown"

    upstream.on("/refunds", numbered)
    gateway.post("/refunds", key=key, json={}).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


def test_body_cut_off_by_a_reset_is_unknown(gateway, upstream):
    """The reset may come together with the last bytes, and must not be taken for the end of the body then."""
    upstream.on("/refunds", until_close("half of it", reset=True))
    for _ in range(20):
        key = fresh_key()
        first = gateway.post("/refunds", key=key, json={})
        assert (first.status, first.idempotency) == (502, "unknown")
        gateway.post("/refunds", key=key, json={}).refuses(409, UNKNOWN)
        assert upstream.effects_by_key[key] == 1


@pytest.mark.parametrize("name", ["garbage", "half a head", "status 600", "two lengths"])
def test_broken_answer_to_an_unkeyed_request_is_502(gateway, upstream, name):
    upstream.on("/thing", answer_raw(BROKEN[name], effect=False))
    response = gateway.get("/thing")
    assert response.status == 502
    assert response.problem()["error_code"].startswith("DEPENDENCY.")
    assert response.idempotency is None
    assert gateway.get("/other").status == 200
    assert upstream.effects() == 0


def test_answer_that_ends_with_the_connection_is_whole(gateway, upstream, key):
    upstream.on("/refunds", until_close("all of it", 201))
    first = gateway.post("/refunds", key=key, json={})
    second = gateway.post("/refunds", key=key, json={})
    assert first.body == second.body == b"all of it"
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert second.header("Content-Length") == "9"
    assert upstream.effects("/refunds") == 1


def test_answer_in_chunks_is_replayed_in_a_framing_of_our_own(gateway, upstream, key):
    upstream.on("/refunds", chunked(["one ", "two ", "three"], 201, trailers=[("X-Sum", "abc")]))
    first = gateway.post("/refunds", key=key, json={})
    second = gateway.post("/refunds", key=key, json={})
    assert first.body == second.body == b"one two three"
    for response in (first, second):
        assert response.header("X-Sum") is None
    assert upstream.effects("/refunds") == 1


def test_interim_answers_are_dropped_on_a_keyed_request(gateway, upstream, key):
    upstream.on("/refunds", interim(103, [("Link", "</a>; rel=preload")], then=answer(201, "done")))
    first = gateway.post("/refunds", key=key, json={})
    second = gateway.post("/refunds", key=key, json={})
    for response in (first, second):
        assert (response.status, response.body, response.interim) == (201, b"done", [])
    assert upstream.effects("/refunds") == 1


def test_bytes_after_an_answer_are_never_taken_for_the_next_one(gateway, upstream, key):
    extra = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npoisoned"
    upstream.on("/refunds", answer_raw(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok" + extra, then=None))
    assert gateway.post("/refunds", key=key, json={}).body == b"ok"
    for _ in range(3):
        assert gateway.get("/other").json() == {"path": "/other"}
    assert gateway.post("/refunds", key=key, json={}).body == b"ok"
    assert upstream.effects("/refunds") == 1
