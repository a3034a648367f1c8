# SPDX-License-Identifier: Apache-2.0
"""Connections to the upstream: of every family, kept alive, and closed by it whenever it likes."""
import time

import pytest

from harness import answer, eventually, fresh_key, numbered, quick_retries, unix_socket_path


def test_upstream_on_a_unix_socket(start_gateway, start_upstream, key):
    application = start_upstream(unix=unix_socket_path())
    gateway = start_gateway(upstream=application)
    assert gateway.get("/thing").json() == {"path": "/thing"}
    first = gateway.post("/refunds", key=key, json={})
    assert gateway.post("/refunds", key=key, json={}).body == first.body
    assert application.effects("/refunds") == 1


def test_upstream_on_ipv6(start_gateway, start_upstream, key):
    application = start_upstream(host="::1")
    gateway = start_gateway(upstream=application)
    assert gateway.get("/thing").json() == {"path": "/thing"}
    first = gateway.post("/refunds", key=key, json={})
    assert gateway.post("/refunds", key=key, json={}).body == first.body
    assert application.effects("/refunds") == 1


def test_listening_on_ipv6(start_gateway, upstream, key):
    gateway = start_gateway(listen="[::1]:0")
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.last().header("X-Forwarded-For") == "::1"
    assert upstream.effects("/refunds") == 1


def test_upstream_by_name(start_gateway, upstream, key):
    gateway = start_gateway(upstream=f"http://localhost:{upstream.port}")
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 1


def test_connections_are_kept_alive(gateway, upstream):
    for _ in range(50):
        assert gateway.get("/thing").status == 200
        assert gateway.post("/refunds", key=fresh_key(), json={}).status == 201
    assert upstream.connections <= 5
    assert upstream.effects("/refunds") == 50


def test_a_key_is_not_sent_on_a_connection_that_was_idle_for_a_second(gateway, upstream):
    """The application may be closing it at this moment, and what was sent into that would be unknown."""
    assert gateway.get("/thing").status == 200
    for opened in (2, 3):
        time.sleep(1.1)  # idle is all that it has to be
        assert gateway.post("/refunds", key=fresh_key(), json={}).idempotency == "stored"
        assert upstream.connections == opened
    time.sleep(1.1)
    assert gateway.get("/thing").status == 200  # which can be sent again
    assert upstream.connections == 3
    assert upstream.effects("/refunds") == 2


def test_idle_connections_closed_by_the_upstream_cause_no_error(gateway, upstream):
    closed = 0
    for _ in range(50):
        assert gateway.get("/thing").status == 200
        closed += upstream.close_idle()
        assert gateway.get("/thing").status == 200
        closed += upstream.close_idle()
        assert gateway.post("/refunds", key=fresh_key(), json={}).status == 201
        closed += upstream.close_idle()
        assert gateway.post("/refunds", key=fresh_key(), json={}).status == 201
    assert closed >= 100
    assert upstream.effects("/refunds") == 100


def test_upstream_that_says_close_is_believed(gateway, upstream):
    upstream.on("*", answer(200, "bye", [("Connection", "close")], then="close"))
    for _ in range(25):
        assert gateway.get("/thing").body == b"bye"
        assert gateway.post("/refunds", key=fresh_key(), json={}).status == 200
    assert upstream.effects("/refunds") == 25


def test_upstream_that_closes_without_a_word_causes_no_error_to_a_get(start_gateway, upstream):
    gateway = start_gateway(workers=2)
    upstream.on("/thing", answer(200, "bye", effect=False, then="close"))
    for _ in range(20):
        everyone = [gateway.send("GET", "/thing") for _ in range(10)]
        assert [response.body for response in everyone] == [b"bye"] * 10
    assert upstream.effects() == 0


def test_upstream_of_the_old_protocol(gateway, upstream, key):
    def old(exchange):
        exchange.read_body()
        exchange.execute()
        exchange.send(b"HTTP/1.0 201 Created\r\nContent-Type: text/plain\r\n\r\nold")
        exchange.close()
    upstream.on("/refunds", old)
    first, second = (gateway.post("/refunds", key=key, json={}) for _ in range(2))
    assert first.body == second.body == b"old"
    assert upstream.effects("/refunds") == 1


def test_upstream_that_restarts(start_gateway, start_upstream):
    first = start_upstream()
    gateway = start_gateway(quick_retries(), upstream=first)
    assert gateway.post("/refunds", key=fresh_key(), json={}).status == 201
    first.close()
    eventually(lambda: gateway.post("/refunds", key=fresh_key(), json={}).status == 502)
    assert gateway.get("/thing").status == 502
    assert first.effects("/refunds") == 1


@pytest.mark.parametrize("number", [100])
def test_many_upstream_connections_at_once(start_gateway, upstream, number):
    gateway = start_gateway(workers=2)
    upstream.on("/thing", numbered)
    with upstream.hold("/thing") as held:
        everyone = [gateway.send("GET", "/thing") for _ in range(number)]
        held.wait_arrived(number)
    assert [response.status for response in everyone] == [200] * number
    assert upstream.effects() == 0
