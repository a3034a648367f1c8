# SPDX-License-Identifier: Apache-2.0
"""How the daemon ends: what is under way ends first, what never ends by itself holds nothing up, and only what may
have happened is called unknown."""
import signal

import pytest

from harness import EXIT_UNKNOWN, Stream, echo_after_upgrade, eventually, request_bytes

UPGRADE = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
LONG = "drain: 1h\n"  # whatever ends does so by itself
UNKNOWN = "CONFLICT.idempotency.outcome_unknown"


def open_tunnel(gateway, upstream):
    upstream.on("/socket", echo_after_upgrade)
    connection = gateway.connect()
    connection.send(request_bytes("GET", "/socket", UPGRADE))
    assert connection.receive_head()[0] == 101
    connection.send(b"hello")
    assert b"".join(connection.reader.exactly(5)) == b"hello"
    return connection


def test_open_tunnel_does_not_hold_a_stop_up(start_gateway, upstream, key):
    gateway = start_gateway(LONG, workers=2)
    tunnels = [open_tunnel(gateway, upstream) for _ in range(3)]
    assert gateway.post("/refunds", key=key, json={}).status == 201
    gateway.terminate()
    assert gateway.wait_exit() == 0
    assert all(tunnel.at_end() for tunnel in tunnels)
    gateway.start()
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_exchange_beside_a_tunnel_is_still_waited_for(start_gateway, upstream, key):
    gateway = start_gateway(LONG)
    open_tunnel(gateway, upstream)
    with upstream.hold("/refunds") as held:
        under_way = gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        gateway.terminate()
        gateway.wait_events("draining")
    assert under_way.status == 201
    assert gateway.wait_exit() == 0
    assert upstream.effects("/refunds") == 1


def test_answer_that_never_ends_is_cut_off_without_a_false_unknown(start_gateway, upstream):
    gateway = start_gateway("drain: 200ms\n")
    stream = Stream()
    upstream.on("/events", stream)
    reading = gateway.connect()
    reading.send(request_bytes("GET", "/events"))
    assert reading.receive_head()[0] == 200
    gateway.terminate()
    assert gateway.wait_exit() == 0
    assert len(gateway.events("clients_cut")) == 1
    assert not any("unknown" in line for line in gateway.output)
    stream.end()


def test_operation_that_outlasts_the_drain_is_unknown(start_gateway, upstream, key):
    gateway = start_gateway("drain: 200ms\n")
    gateway.expected_exits.add(EXIT_UNKNOWN)
    with upstream.hold("/refunds") as held:
        gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        gateway.terminate()
        assert gateway.wait_exit() == EXIT_UNKNOWN
    gateway.start()
    gateway.post("/refunds", key=key, json={}).refuses(409, UNKNOWN)
    assert eventually(lambda: upstream.effects("/refunds"), "its effect") == 1


def test_quit_signal_drains(start_gateway, upstream, key):
    gateway = start_gateway(LONG)
    with upstream.hold("/refunds") as held:
        under_way = gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        gateway.signal(signal.SIGQUIT)
        gateway.wait_events("draining")
    assert under_way.status == 201
    assert gateway.wait_exit() == 0
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_that_other_daemons_know_do_not_kill(gateway, upstream, key, number):
    gateway.signal(number)
    assert gateway.post("/refunds", key=key, json={}).status == 201
    gateway.terminate()
    assert gateway.wait_exit() == 0
    assert upstream.effects("/refunds") == 1
