# SPDX-License-Identifier: Apache-2.0
"""The tools of the stories, tried on each other without a gateway between them: a count that can't be trusted proves
nothing."""
import socket

import pytest

from harness import (Connection, Disconnected, Stream, answer, answer_raw, chunked, directory_hash, drop_after_effect,
                     in_turn, never_answer, numbered, request_bytes, reset_before_reading, until_close)
from harness import wire
from harness.wire import Malformed

KEY = {"Idempotency-Key": '"0123456789abcdef"'}


@pytest.fixture
def direct(upstream):
    """A connection straight to the upstream."""
    connections = []

    def connect():
        connections.append(Connection(("127.0.0.1", upstream.port)))
        return connections[-1]
    yield connect
    for connection in connections:
        connection.close()


def test_upstream_counts_effects_by_path_and_key(upstream, direct):
    connection = direct()
    for path in ("/refunds", "/refunds", "/charges"):
        assert connection.request("POST", path, KEY, b"{}").status == 201
    assert connection.request("GET", "/refunds").status == 200
    assert (upstream.effects("/refunds"), upstream.effects("/charges"), upstream.effects()) == (2, 1, 3)
    assert upstream.effects_by_key == {"0123456789abcdef": 3}
    assert [request.method for request in upstream.requests] == ["POST", "POST", "POST", "GET"]
    assert upstream.connections == 1


def test_no_two_executions_are_answered_alike(direct):
    connection = direct()
    assert len({connection.request("POST", "/refunds", KEY).body for _ in range(10)}) == 10


def test_hold_executes_and_withholds(upstream, direct):
    with upstream.hold("/refunds") as held:
        pendings = [direct().request("POST", "/refunds", KEY) for _ in range(3)]
        held.wait_arrived(3)
        assert upstream.effects("/refunds") == 3
        pendings[0].connection.sock.settimeout(0.05)
        with pytest.raises(socket.timeout):
            pendings[0].connection.receive()
        pendings[0].connection.sock.settimeout(30)
    assert {pending.status for pending in pendings} == {201}


def test_upstream_serves_five_hundred_connections_at_once(upstream, direct):
    with upstream.hold("/refunds") as held:
        pendings = [direct().request("POST", "/refunds", KEY) for _ in range(500)]
        held.wait_arrived(500)
    assert {pending.status for pending in pendings} == {201}
    assert upstream.effects("/refunds") == 500


@pytest.mark.parametrize("behaviour, effects", [
    (drop_after_effect(), 1), (drop_after_effect(reset=True), 1), (reset_before_reading, 0),
    (answer_raw(b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n12345"), 1),
])
def test_upstream_breaks_as_it_is_told(upstream, direct, behaviour, effects):
    upstream.on("/refunds", behaviour)
    with pytest.raises((Disconnected, ConnectionResetError)):
        direct().request("POST", "/refunds", KEY, b"{}").response
    upstream.wait_requests(1)
    assert upstream.effects("/refunds") == effects


def test_client_refuses_what_is_not_http(upstream, direct):
    for broken in (b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
                   b"HTTP/1.1 200 OK\r\nA B: c\r\n\r\n"):
        upstream.on("*", answer_raw(broken))
        with pytest.raises(Malformed):
            direct().request("GET", "/").response


def test_client_keeps_header_order_and_spelling(upstream, direct):
    headers = [("X-b", "1"), ("x-A", "2"), ("X-B", "caf\xe9"), ("Empty", "")]
    upstream.on("*", answer(200, "body", headers))
    response = direct().request("GET", "/").response
    assert response.headers == headers + [("Content-Length", "4")]
    assert (response.all("x-b"), response.body) == (["1", "caf\xe9"], b"body")
    with pytest.raises(AssertionError):
        response.header("X-B")


def test_every_framing_is_read_whole(upstream, direct):
    for behaviour in (chunked(["a", "bc"], trailers=[("T", "1")]), until_close("abc"), answer(200, "abc")):
        upstream.on("/any", behaviour)
        assert direct().request("POST", "/any").body == b"abc"
    upstream.on("/any", answer(200, "abc"))
    assert direct().request("HEAD", "/any").body == b""


def test_behaviours_in_turn(upstream, direct):
    upstream.on("/any", in_turn(answer(401, effect=False), answer(503), numbered))
    connection = direct()
    assert [connection.request("POST", "/any").status for _ in range(4)] == [401, 503, 201, 201]
    assert upstream.effects("/any") == 3


def test_stream_is_written_by_the_story(upstream, direct):
    stream = upstream.on("/events", Stream())
    connection = direct()
    connection.send(request_bytes("GET", "/events"))
    stream.wait_started()
    status, _, fields = connection.receive_head()
    pieces = connection.reader.body_pieces(fields, status)
    stream.send("one")
    assert next(pieces) == b"one"
    stream.end()
    assert list(pieces) == []


def test_idle_connections_are_closed_and_busy_ones_counted(upstream, direct):
    connections = [direct() for _ in range(3)]
    for connection in connections:
        assert connection.request("GET", "/").status == 200
    assert upstream.open_connections() == 3
    assert upstream.close_idle() == 3
    assert all(connection.at_end() for connection in connections)
    assert upstream.open_connections() == 0


def test_silence_lasts_until_the_peer_leaves(upstream, direct):
    upstream.on("/any", never_answer)
    connection = direct()
    connection.request("POST", "/any")
    upstream.wait_effects(1)
    assert upstream.open_connections() == 1
    connection.close()
    upstream.wait(lambda: not upstream._open, "the connection ending")


def test_bytes_are_counted_even_where_no_request_came(upstream, direct):
    connection = direct()
    connection.send(b"GET / HT")
    connection.close()
    upstream.wait(lambda: upstream.bytes_received == 8, "eight bytes")
    assert upstream.requests == []


def test_directory_hash_sees_every_change(tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    seen = {directory_hash(tmp_path)}
    (tmp_path / "a").write_bytes(b"onf")
    seen.add(directory_hash(tmp_path))
    (tmp_path / "b").mkdir()
    seen.add(directory_hash(tmp_path))
    (tmp_path / "a").chmod(0o400)
    seen.add(directory_hash(tmp_path))
    assert len(seen) == 4


@pytest.mark.parametrize("way", ["asked", "listed"])
def test_bytes_that_the_peer_has_not_read_are_seen(monkeypatch, way):
    if way == "listed":
        monkeypatch.setattr(wire, "diagnosed", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as listener, Connection(listener.getsockname()) as connection:
        assert wire.unread_by_peer(connection.sock) == 0
        connection.send(b"abc")
        assert wire.unread_by_peer(connection.sock) == 3
        peer, _ = listener.accept()
        with peer:
            assert wire.unread_by_peer(connection.sock) == 3
            peer.recv(2)
            assert wire.unread_by_peer(connection.sock) == 1
            peer.recv(1)
            assert wire.unread_by_peer(connection.sock) == 0
            connection.send(b"d")
        assert wire.unread_by_peer(connection.sock) == 0
