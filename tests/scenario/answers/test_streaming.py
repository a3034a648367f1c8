# SPDX-License-Identifier: Apache-2.0
"""HTTP as such: unkeyed traffic is streamed through, and every corner of HTTP/1.1 works with and without a key."""
import pytest

from harness import (Stream, answer, answer_raw, chunk, chunked, echo_after_upgrade, eventually, fresh_key, interim,
                     quoted, request_bytes, until_close)


def test_unkeyed_answer_flows_while_the_upstream_is_still_writing(gateway, upstream):
    stream = upstream.on("/feed", Stream(headers=[("Content-Type", "text/plain")], effect=False))
    connection = gateway.connect()
    connection.send(request_bytes("GET", "/feed"))
    stream.wait_started()
    status, _, fields = connection.receive_head()
    pieces = connection.reader.body_pieces(fields, status)
    for word in (b"one", b"two", b"three"):
        stream.send(word)
        assert next(pieces) == word
    stream.end()
    assert list(pieces) == []
    assert connection.request("GET", "/next").status == 200
    assert len(upstream.requests) == 2


def test_unkeyed_request_flows_while_the_client_is_still_writing(gateway, upstream):
    seen = []

    def behave(exchange):
        for piece in exchange.body_pieces():
            seen.append(piece)
            upstream.record_effect(exchange.request)
        exchange.answer(200, "thanks")
    upstream.on("/upload", behave)
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/upload", {"Transfer-Encoding": "chunked"}))
    for number, word in enumerate((b"one", b"two", b"three"), 1):
        connection.send(chunk(word))
        upstream.wait_effects(number)
    connection.send(b"0\r\n\r\n")
    assert connection.receive("POST").body == b"thanks"
    assert b"".join(seen) == b"onetwothree"
    assert upstream.effects("/upload") == 3


@pytest.mark.parametrize("status", [200, 404])
def test_head_has_the_length_and_no_body(gateway, upstream, status):
    upstream.on("/file", answer(status, b"x" * 1000, [("X-A", "1")], effect=False))
    connection = gateway.connect()
    response = connection.request("HEAD", "/file")
    assert (response.status, response.header("Content-Length"), response.body) == (status, "1000", b"")
    assert connection.request("GET", "/file").body == b"x" * 1000
    assert upstream.effects() == 0


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body(gateway, upstream, status):
    upstream.on("/file", answer(status, headers=[("ETag", '"v1"')], effect=False))
    connection = gateway.connect()
    for _ in range(2):
        response = connection.request("GET", "/file").response
        assert (response.status, response.header("ETag"), response.body) == (status, '"v1"', b"")
    assert connection.request("GET", "/other").status == 200
    assert upstream.effects() == 0


def test_not_modified_may_name_a_length(gateway, upstream):
    upstream.on("/file", answer(304, headers=[("Content-Length", "1000")], effect=False))
    connection = gateway.connect()
    assert connection.request("GET", "/file").status == 304
    assert connection.request("GET", "/other").json() == {"path": "/other"}
    assert upstream.effects() == 0


def test_pipelined_requests_are_answered_in_order(gateway, upstream, key):
    connection = gateway.connect()
    paths = ["/a", "/b", "/c", "/d"]
    connection.send(b"".join(request_bytes("GET", path) for path in paths))
    assert [connection.receive().json()["path"] for _ in paths] == paths
    assert len(upstream.requests) == 4


def test_pipelined_keyed_requests_are_each_executed_once(gateway, upstream):
    connection = gateway.connect()
    keys = [fresh_key() for _ in range(5)]
    sequence = [key for key in keys for _ in range(2)]
    connection.send(b"".join(request_bytes("POST", "/refunds", {"Idempotency-Key": key}, b"{}") for key in sequence))
    answers = [connection.receive("POST") for _ in sequence]
    assert [response.idempotency for response in answers] == ["stored", "replayed"] * 5
    assert [answers[at].body == answers[at + 1].body for at in range(0, 10, 2)] == [True] * 5
    assert set(upstream.effects_by_key.values()) == {1}


def test_pipelined_request_after_a_bad_one_is_not_served(gateway, upstream):
    connection = gateway.connect()
    connection.send(b"GET /a HTTP/1.1\r\nHost: a\r\nBad Header: 1\r\n\r\n" + request_bytes("GET", "/b"))
    assert connection.receive().status == 400
    assert connection.at_end()
    assert upstream.requests == []


@pytest.mark.parametrize("keyed", [True, False])
def test_expect_continue(gateway, upstream, key, keyed):
    connection = gateway.connect()
    headers = {"Expect": "100-continue", "Content-Length": "5"}
    if keyed:
        headers["Idempotency-Key"] = key
    connection.send(request_bytes("POST", "/refunds", headers))
    status, _, _ = connection.receive_head()
    assert status == 100
    connection.send(b"hello")
    assert connection.receive("POST").status == 201
    assert upstream.last().body == b"hello"
    assert upstream.effects("/refunds") == 1


def test_expect_continue_is_answered_by_a_refusal_before_the_body(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          body_max: 4KiB
        """)
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/refunds", {
        "Expect": "100-continue", "Content-Length": "5000", "Idempotency-Key": key}))
    response = connection.receive("POST")
    response.refuses(413, "VALIDATION.body_too_large")
    assert response.interim == []
    assert upstream.requests == []


@pytest.mark.parametrize("keyed", [True, False])
def test_chunks_both_ways(gateway, upstream, key, keyed):
    upstream.on("/echo", lambda exchange: chunked([exchange.read_body(), b" and ", b"back"], 200)(exchange))
    connection = gateway.connect()
    headers = {"Transfer-Encoding": "chunked", **({"Idempotency-Key": key} if keyed else {})}
    body = chunk(b"there") + b"3;ext=1\r\n!!!\r\n" + b"0\r\nX-Trailer: dropped\r\n\r\n"
    connection.send(request_bytes("POST", "/echo", headers, body))
    response = connection.receive("POST")
    assert response.body == b"there!!! and back"
    assert upstream.last().body == b"there!!!"
    assert upstream.last().header("X-Trailer") is None
    assert connection.request("GET", "/next").status == 200
    assert upstream.effects("/echo") == 1


def test_answer_that_ends_with_the_connection_is_passed_on(gateway, upstream):
    upstream.on("/old", until_close("from an old server"))
    connection = gateway.connect()
    assert connection.request("GET", "/old").body == b"from an old server"
    assert len(upstream.received("/old")) == 1


def test_old_client_gets_an_answer_it_understands(gateway, upstream, key):
    upstream.on("*", chunked(["one", "two"], 200))
    connection = gateway.connect()
    connection.send(b"GET /a HTTP/1.0\r\nHost: a\r\n\r\n")
    response = connection.receive()
    assert response.header("Transfer-Encoding") is None
    assert response.body == b"onetwo"
    assert connection.at_end()
    old = f"POST /b HTTP/1.0\r\nHost: a\r\nIdempotency-Key: {quoted(key)}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    for status in ("stored", "replayed"):
        response = gateway.raw(old)
        assert (response.body, response.idempotency) == (b"onetwo", status)
        assert response.header("Transfer-Encoding") is None
    assert upstream.effects("/b") == 1


def test_client_that_wants_to_close_is_closed(gateway, upstream, key):
    for headers in ({"Connection": "close"}, {"Connection": "close", "Idempotency-Key": key}):
        connection = gateway.connect()
        response = connection.request("POST", "/refunds", headers, b"{}")
        assert response.status == 201
        assert response.header("Connection").lower() == "close"
        assert connection.at_end()
    assert upstream.effects("/refunds") == 2


def test_interim_answers_reach_an_unkeyed_client_or_nobody(gateway, upstream):
    upstream.on("/page", interim(103, [("Link", "</a>")], then=answer(200, "page", effect=False)))
    response = gateway.get("/page")
    assert (response.status, response.body) == (200, b"page")
    assert response.interim in ([], [103])
    assert upstream.effects() == 0


UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}


def test_upgrade_is_tunnelled_on_an_unprotected_request(gateway, upstream):
    upstream.on("/socket", echo_after_upgrade)
    connection = gateway.connect()
    connection.send(request_bytes("GET", "/socket", UPGRADE))
    status, _, fields = connection.receive_head()
    assert status == 101
    assert dict(fields)["Upgrade"] == "websocket"
    for word in (b"hello", b"\x00\xff" * 5000, b"bye"):
        connection.send(word)
        assert b"".join(connection.reader.exactly(len(word))) == word
    connection.finish_sending()
    assert connection.at_end()
    assert upstream.effects() == 0


def test_upgrade_refused_by_the_upstream_is_an_ordinary_answer(gateway, upstream):
    upstream.on("/socket", answer(426, "no", effect=False))
    connection = gateway.connect()
    assert connection.request("GET", "/socket", UPGRADE).status == 426
    assert connection.request("GET", "/next").status == 200
    assert upstream.effects() == 0


def test_upgrade_is_not_asked_for_on_a_keyed_request(gateway, upstream, key):
    upstream.on("/socket", echo_after_upgrade)
    response = gateway.post("/socket", key=key, headers=UPGRADE)
    assert (response.status, response.idempotency) == (201, "stored")
    seen = upstream.last()
    assert seen.header("Upgrade") is None
    assert "upgrade" not in (seen.header("Connection") or "").lower()
    assert upstream.effects("/socket") == 1


def test_upstream_that_answers_before_it_has_read_the_body(gateway, upstream):
    def refuse_early(exchange):
        exchange.answer(413, "too much", [("Connection", "close")])
        exchange.close()
    upstream.on("/upload", refuse_early)
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/upload", {"Content-Length": "100000"}, b"x" * 1000))
    assert connection.receive("POST").status == 413
    assert upstream.effects() == 0


def test_absolute_form_names_the_same_resource(gateway, upstream, key):
    raw = f"POST http://hapax.test/refunds?a=1 HTTP/1.1\r\nHost: elsewhere.test\r\nIdempotency-Key: {key}\r\n" \
          "Content-Length: 2\r\n\r\n{}"
    first = gateway.raw(raw.encode())
    second = gateway.post("/refunds?a=1", key=key, body=b"{}")  # whose Host is hapax.test
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert upstream.last().path == "/refunds"
    assert upstream.effects("/refunds") == 1


def test_a_thousand_requests_on_one_connection(gateway, upstream):
    connection = gateway.connect()
    for number in range(500):
        assert connection.request("GET", f"/{number}").json() == {"path": f"/{number}"}
        assert connection.request("POST", "/refunds", {"Idempotency-Key": fresh_key()}, b"{}").status == 201
    assert upstream.effects("/refunds") == 500


def test_request_dribbled_byte_by_byte(gateway, upstream, key):
    connection = gateway.connect()
    for byte in request_bytes("POST", "/refunds", {"Idempotency-Key": key}, b'{"amount": 1}'):
        connection.send(bytes([byte]))
    assert connection.receive("POST").status == 201
    assert upstream.last().body == b'{"amount": 1}'
    assert upstream.effects("/refunds") == 1


IMPATIENT = """
    defaults:
      upstream_timeout: 300ms
    """


def test_upload_may_take_longer_than_the_answer(start_gateway, upstream):
    gateway = start_gateway(IMPATIENT)
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/upload", {"Content-Length": "10"}, b"12345"))
    with upstream.hold("/clock"):
        for _ in range(2):
            assert gateway.post("/clock").status == 504
    connection.send(b"67890")
    assert connection.receive("POST").status == 201
    assert [request.body for request in upstream.received("/upload")] == [b"1234567890"]
    assert upstream.effects("/upload") == 1


def test_request_whose_time_is_over_before_it_is_whole_is_not_sent(start_gateway, upstream, key):
    gateway = start_gateway(IMPATIENT)
    connection = gateway.connect()
    fields = {"Idempotency-Key": key, "X-Request-Timeout": "100ms", "Content-Length": "10"}
    connection.send(request_bytes("POST", "/refunds", fields, b"12345"))
    with upstream.hold("/clock"):
        for _ in range(2):
            assert gateway.post("/clock").status == 504
    connection.send(b"67890")
    connection.receive("POST").refuses(504, "DEPENDENCY.timeout")
    assert upstream.received("/refunds") == []
    assert gateway.post("/refunds", key=key, body=b"1234567890").idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_upstream_that_does_not_read_an_upload_is_not_waited_for(start_gateway, upstream):
    def never_read(exchange):
        exchange.arrive()
        exchange.reset()
    gateway = start_gateway(IMPATIENT)
    upstream.on("/upload", never_read)
    with upstream.hold("/upload"):
        connection = gateway.connect()
        connection.send(request_bytes("POST", "/upload", {"Content-Length": str(1 << 30)}))
        connection.sock.setblocking(False)
        answered = []

        def answer_comes():
            try:
                while connection.sock.send(bytes(1 << 20)):
                    pass
            except BlockingIOError:
                pass
            except ConnectionError:
                return True
            try:
                answered.append(connection.sock.recv(65536))
                return True
            except BlockingIOError:
                return False
        eventually(answer_comes, "the gateway giving up the upload")
        assert not answered or answered[0].startswith(b"HTTP/1.1 504 ")
        connection.close()
        eventually(lambda: upstream.open_connections() == 1, "only the held connection being left")
    assert upstream.effects() == 0


def test_upgrade_that_nobody_asked_for_is_a_broken_answer(gateway, upstream):
    upstream.on("/page", answer_raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"))
    gateway.get("/page").refuses(502, "DEPENDENCY.unavailable")
    assert gateway.get("/other").status == 200


def test_upgrade_inside_a_body_is_a_broken_answer_and_leaves_nothing_open(gateway, upstream):
    def upgrade_early(exchange):
        exchange.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        exchange.wait_for_peer_to_leave()
    upstream.on("/socket", upgrade_early)
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/socket", {**UPGRADE, "Content-Length": "100"}, b"half"))
    connection.receive("POST").refuses(502, "DEPENDENCY.unavailable")
    eventually(lambda: upstream.open_connections() == 0, "the upstream being left")
