# SPDX-License-Identifier: Apache-2.0
"""Upgrades: the gateway can't see inside a tunnel, so only a protocol that carries no requests gets one."""
import threading

import pytest

from harness import HANG_S, answer_raw, echo_after_upgrade, eventually, in_time, request_bytes

H2C = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAoAAAAAIAAAAA"}
WEBSOCKET = {"Connection": "Upgrade", "Upgrade": "websocket"}
REFUND = request_bytes("POST", "/refunds", {"Content-Type": "application/json"}, {"amount": 1})


def assert_plain(request):
    """Nothing in it asks for another protocol."""
    assert request.header("Upgrade") is None and request.header("HTTP2-Settings") is None
    assert "upgrade" not in (request.header("Connection") or "").lower()


def switches_at_once(upstream):
    """An application that speaks HTTP/2 in the clear, and serves what comes inside it."""
    def behave(exchange):
        if exchange.request.header("Upgrade") is None:
            exchange.answer(200, "plain")
            return
        exchange.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        if exchange.reader.head():
            exchange.execute()
        exchange.close()
    upstream.on("/page", behave)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "OPTIONS"])
def test_no_request_reaches_the_application_through_h2c(gateway, upstream, method):
    switches_at_once(upstream)
    client = gateway.connect()
    client.send(request_bytes(method, "/page", H2C))
    first = client.receive(method)
    client.send(REFUND)
    client.receive("POST")
    assert (first.status, first.body) == (200, b"plain")
    assert_plain(upstream.received("/page")[0])
    assert upstream.effects("/page") == 0
    assert upstream.effects("/refunds") == 1  # through the gateway, as any other


SPELLINGS = {
    "h2c": [("Connection", "Upgrade"), ("Upgrade", "h2c")],
    "in capitals": [("Connection", "UPGRADE"), ("Upgrade", "H2C")],
    "another token": [("Connection", "upgrade"), ("Upgrade", "TLS/1.0")],
    "a token that begins alike": [("Connection", "upgrade"), ("Upgrade", "websockets")],
    "a version of it": [("Connection", "upgrade"), ("Upgrade", "websocket/13")],
    "settings that Connection doesn't name": [("HTTP2-Settings", "AAMAAABkAAQAoAAAAAIAAAAA")],
    "in two lines": [("Connection", "upgrade"), ("Upgrade", "h2c"), ("Upgrade", "h2")],
    "an upgrade that Connection doesn't name": [("Upgrade", "websocket")],
    "nothing": [("Connection", "upgrade"), ("Upgrade", "")],
}


@pytest.mark.parametrize("what", SPELLINGS)
def test_other_upgrades_are_dropped(gateway, upstream, what):
    assert gateway.get("/page", headers=SPELLINGS[what]).status == 200
    assert_plain(upstream.last())
    assert upstream.effects() == 0


@pytest.mark.parametrize("asked", ["h2c, websocket", "websocket, h2c", "H2C ,WebSocket"])
def test_of_several_protocols_only_the_allowed_one_is_asked_for(gateway, upstream, asked):
    upstream.on("/socket", echo_after_upgrade)
    client = gateway.connect()
    client.send(request_bytes("GET", "/socket", {**H2C, "Upgrade": asked}))
    status, _, fields = client.receive_head()
    assert (status, dict(fields)["Upgrade"]) == (101, "websocket")
    assert upstream.last().header("Upgrade") == "websocket"
    assert upstream.last().header("HTTP2-Settings") is None
    client.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
def test_a_websocket_begins_with_a_get(gateway, upstream, method):
    upstream.on("/socket", echo_after_upgrade)
    assert gateway.request(method, "/socket", headers=WEBSOCKET).status in (200, 201)
    assert_plain(upstream.last())


def test_a_get_with_a_body_is_not_upgraded(gateway, upstream):
    upstream.on("/socket", echo_after_upgrade)
    assert gateway.get("/socket", headers=WEBSOCKET, body=b"early").status == 200
    assert_plain(upstream.last())
    assert upstream.effects() == 0


def test_a_route_that_protects_is_never_upgraded(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - {name: guarded, match: "GET,POST /guarded"}
          - {name: passing, match: "GET /passing", mode: pass}
        """)
    for path in ("/guarded", "/passing"):
        upstream.on(path, echo_after_upgrade)
    assert gateway.get("/guarded", headers=WEBSOCKET).status == 200
    assert_plain(upstream.last())
    client = gateway.connect()
    client.send(request_bytes("GET", "/passing", WEBSOCKET))
    assert client.receive_head()[0] == 101
    client.close()
    assert upstream.effects() == 0


SWITCHES = {
    "to another protocol": b"Upgrade: h2c\r\n",
    "to a list": b"Upgrade: websocket, h2c\r\n",
    "in two lines": b"Upgrade: websocket\r\nUpgrade: websocket\r\n",
    "to nothing": b"",
}


@pytest.mark.parametrize("what", SWITCHES)
def test_a_switch_to_what_was_not_asked_for_is_a_broken_answer(gateway, upstream, what):
    upstream.on("/socket", answer_raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n" + SWITCHES[what]
                                      + b"\r\n", effect=False))
    gateway.get("/socket", headers=WEBSOCKET).refuses(502, "DEPENDENCY.unavailable")
    assert upstream.effects() == 0


def test_which_protocols_get_a_tunnel_is_configured(start_gateway, upstream):
    gateway = start_gateway("upgrade: [WebSocket, mqtt]")
    upstream.on("/socket", echo_after_upgrade)
    for protocol in ("mqtt", "websocket"):
        client = gateway.connect()
        client.send(request_bytes("GET", "/socket", {"Connection": "upgrade", "Upgrade": protocol}))
        assert client.receive_head()[0] == 101
        client.close()
    none = start_gateway("upgrade: []")
    assert none.get("/socket", headers=WEBSOCKET).status == 200
    assert_plain(upstream.last())
    assert upstream.effects() == 0


@pytest.mark.parametrize("protocol", ["h2c", "H2C", "h2", "HTTP/2.0", "http2"])
def test_a_protocol_that_carries_requests_cannot_be_allowed(hapax, tmp_path, protocol):
    (tmp_path / "hapax.yaml").write_text(f"upstream: http://127.0.0.1:3000\nupgrade: [websocket, {protocol}]\n",
                                         encoding="utf-8")
    checked = hapax("check", str(tmp_path / "hapax.yaml"))
    assert checked.code == 2 and "hapax.yaml:2:22: \"upgrade\"" in checked.stderr


def test_a_tunnel_is_logged_when_it_opens_and_when_it_ends(start_gateway, upstream):
    gateway = start_gateway("access_log: off")
    upstream.on("/socket", echo_after_upgrade)
    client = gateway.connect()
    client.send(request_bytes("GET", "/socket?token=secret", {**WEBSOCKET, "X-Correlation-Id": "chat-1"}))
    assert client.receive_head()[0] == 101
    opened = gateway.wait_events("tunnel_opened")[0]
    assert (opened["path"], opened["protocol"], opened["correlation_id"]) == ("/socket", "websocket", "chat-1")
    assert gateway.events("tunnel_closed") == []
    client.send(b"hello")
    assert b"".join(client.reader.exactly(5)) == b"hello"
    client.finish_sending()
    assert client.at_end()
    ended = gateway.wait_events("tunnel_closed")[0]
    assert ended["correlation_id"] == "chat-1"
    assert (ended["bytes_from_client"], ended["bytes_from_application"]) == (5, 5)
    assert upstream.effects() == 0


def test_a_tunnel_whose_client_vanishes_is_logged_too(gateway, upstream):
    upstream.on("/socket", echo_after_upgrade)
    client = gateway.connect()
    client.send(request_bytes("GET", "/socket", WEBSOCKET))
    assert client.receive_head()[0] == 101
    client.reset()
    gateway.wait_events("tunnel_closed")
    eventually(lambda: upstream.open_connections() == 0, "the tunnel being closed")


class Reluctant:
    """An application that switches protocols, and does not close its side when the client has closed his: until it is
    told to end, it is silent, or sends a byte many times a second."""

    def __init__(self, talks):
        self.talks = talks
        self.client_ended, self.end = threading.Event(), threading.Event()

    def __call__(self, exchange):
        exchange.arrive()
        exchange.send(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        while exchange.sock.recv(4096):
            pass
        self.client_ended.set()
        while self.talks and not self.end.wait(0.02):
            exchange.send(b".")
        self.end.wait(2 * HANG_S)
        exchange.close()


def open_tunnel(gateway):
    """None: the application was too late to answer within `upstream_timeout`."""
    client = gateway.connect()
    client.send(request_bytes("GET", "/socket", WEBSOCKET))
    status = client.receive_head()[0]
    assert status in (101, 504)
    return client if status == 101 else None


def half_closed_tunnel(gateway, upstream, application):
    upstream.on("/socket", application)
    client = open_tunnel(gateway)
    if client:
        client.finish_sending()
        assert application.client_ended.wait(HANG_S), "the application never learned that the client closed his side"
    return client


def wait_for_a_timeout(gateway, upstream):
    """As long as `upstream_timeout`, by the gateway's own clock."""
    with upstream.hold("/slow"):
        assert gateway.get("/slow").status == 504


def test_a_tunnel_whose_client_closed_his_side_ends_when_the_application_stays_silent(start_gateway, upstream):
    gateway = start_gateway("defaults: {upstream_timeout: 100ms}")

    def story():
        silent = Reluctant(talks=False)
        client = half_closed_tunnel(gateway, upstream, silent)
        try:
            ended = gateway.wait_events("tunnel_closed")[0] if client else None
        finally:
            silent.end.set()
        if client:
            assert (ended["bytes_from_client"], ended["bytes_from_application"]) == (0, 0)
            assert client.at_end()
        return client

    in_time(story)


def test_a_tunnel_whose_client_closed_his_side_lasts_while_the_application_talks(start_gateway, upstream):
    gateway = start_gateway("defaults: {upstream_timeout: 2s}")

    def story():
        talking = Reluctant(talks=True)
        client = half_closed_tunnel(gateway, upstream, talking)
        if not client:
            return False
        closed_before = len(gateway.events("tunnel_closed"))
        wait_for_a_timeout(gateway, upstream)
        lasted = len(gateway.events("tunnel_closed")) == closed_before
        talking.end.set()
        if not lasted:
            return False  # the application was silent for two seconds
        while client.reader.more():
            pass
        assert set(bytes(client.reader.buffer)) == set(b".")
        ended = gateway.wait_events("tunnel_closed", closed_before + 1)[-1]
        assert ended["bytes_from_application"] == len(client.reader.buffer)
        return True

    in_time(story)


def test_a_tunnel_that_is_open_on_both_sides_may_be_silent(start_gateway, upstream):
    gateway = start_gateway("defaults: {upstream_timeout: 50ms}")
    upstream.on("/socket", echo_after_upgrade)

    def story():
        client = open_tunnel(gateway)
        if not client:
            return False
        wait_for_a_timeout(gateway, upstream)
        client.send(b"still here")
        assert b"".join(client.reader.exactly(10)) == b"still here"
        client.close()
        return True

    in_time(story)


@pytest.mark.parametrize("line", ["TRACE /page", "TRACE *", "CONNECT app:80"])
def test_trace_and_connect_are_not_served(gateway, upstream, line):
    refused = gateway.raw(f"{line} HTTP/1.1\r\nHost: app:80\r\nCookie: secret=1\r\n\r\n".encode(), method="GET")
    refused.refuses(405, "VALIDATION.request_malformed")
    assert "TRACE" not in refused.header("Allow") and "POST" in refused.header("Allow")
    assert b"secret" not in refused.body
    assert upstream.received() == []
