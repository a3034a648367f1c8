# SPDX-License-Identifier: Apache-2.0
"""Bounds: memory stays bounded whatever passes through, slow and idle clients are let go, and nothing spins."""
import resource
import select
import threading
import time

import pytest

from harness import (EXIT_CONFIG, Connection, Disconnected, Zeros, answer, cpu_seconds, eventually, fresh_key,
                     raise_open_files, request_bytes, reset_before_reading, sanitized, sink)

MIB = 1 << 20
RESIDENT_MAX = 100 * MIB


class Resident:
    """Samples a gateway's resident memory while something goes on."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.samples = []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self):
        while not self.over.wait(0.02):
            self.samples.append(self.gateway.rss_bytes())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.samples.append(self.gateway.rss_bytes())

    def assert_bounded(self):
        if sanitized():
            return  # a sanitizer's shadow memory would be measured, not ours
        assert max(self.samples) <= RESIDENT_MAX, f"{max(self.samples) / MIB:.1f} MiB resident"
        assert self.gateway.peak_rss_bytes() <= RESIDENT_MAX, f"{self.gateway.peak_rss_bytes() / MIB:.1f} MiB at peak"


def stream_bytes():
    return 256 * MIB if sanitized() else 2048 * MIB


@pytest.mark.slow
def test_two_gibibytes_down_in_bounded_memory(gateway, upstream):
    total = stream_bytes()
    upstream.on("/file", Zeros(total))
    connection = gateway.connect()
    with Resident(gateway) as resident:
        connection.send(request_bytes("GET", "/file"))
        status, _, fields = connection.receive_head()
        assert (status, int(dict(fields)["Content-Length"])) == (200, total)
        left = total - len(connection.reader.buffer)
        scratch = bytearray(MIB)
        while left > 0:
            count = connection.sock.recv_into(scratch, min(left, MIB))
            assert count, f"the download ended {left} bytes early"
            left -= count
    resident.assert_bounded()
    assert upstream.effects() == 0


@pytest.mark.slow
def test_two_gibibytes_up_in_bounded_memory(gateway, upstream):
    total = stream_bytes()
    upstream.on("/file", sink)
    connection = gateway.connect()
    with Resident(gateway) as resident:
        connection.send(request_bytes("POST", "/file", {"Content-Length": str(total)}))
        piece = bytes(MIB)
        for _ in range(total // MIB):
            connection.send(piece)
        response = connection.receive("POST")
    assert response.json() == {"bytes": total}
    resident.assert_bounded()
    assert upstream.effects("/file") == 1


def test_client_that_does_not_read_holds_the_upstream_back(gateway, upstream):
    zeros = upstream.on("/file", Zeros(1024 * MIB))
    connection = gateway.connect()
    connection.send(request_bytes("GET", "/file"))
    connection.receive_head()
    last = [-1]

    def stands_still():
        before, last[0] = last[0], zeros.sent
        time.sleep(0.1)
        return before == zeros.sent
    eventually(stands_still, "the upstream being held back")
    assert zeros.sent < 64 * MIB
    if not sanitized():
        assert gateway.peak_rss_bytes() <= RESIDENT_MAX
    connection.reset()
    eventually(lambda: upstream.open_connections() == 0, "the exchange being given up")
    assert upstream.effects() == 0


def test_upstream_that_does_not_read_holds_the_client_back(gateway, upstream):
    with upstream.hold("/file") as held:
        upstream.on("/file", reset_before_reading)
        connection = gateway.connect()
        connection.send(request_bytes("POST", "/file", {"Content-Length": str(1024 * MIB)}))
        held.wait_arrived()
        connection.sock.setblocking(False)
        sent = 0
        piece = bytes(MIB)
        while select.select([], [connection.sock], [], 0.5)[1]:
            sent += connection.sock.send(piece)
            assert sent < 128 * MIB, "the gateway takes more than it can hand on"
        if not sanitized():
            assert gateway.peak_rss_bytes() <= RESIDENT_MAX
        connection.reset()
    assert upstream.effects() == 0


@pytest.mark.slow
def test_ten_thousand_idle_connections_in_bounded_memory(start_gateway, upstream, key):
    wanted = 10_000
    allowed = raise_open_files()
    if allowed < wanted + 500:
        pytest.skip(f"NOT TESTED: RLIMIT_NOFILE allows {allowed} open files and {wanted + 500} are needed")
    gateway = start_gateway("""
        workers: 2
        access_log: off
        limits:
          connections: 11000
          idle_timeout: 10m
        """)
    connections = []
    for _ in range(wanted // 100):
        batch = [gateway.connect() for _ in range(100)]
        for connection in batch:
            connection.send(request_bytes("GET", "/up"))
        for connection in batch:
            assert connection.receive().status == 200
        connections += batch
    assert len(connections) == wanted
    resident = gateway.rss_bytes()
    print(f"{wanted} idle connections: {resident / MIB:.1f} MiB resident")
    if not sanitized():
        assert resident <= RESIDENT_MAX, f"{resident / MIB:.1f} MiB resident"
    for connection in connections[::1000]:
        assert connection.request("GET", "/up").status == 200
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 1


def test_out_of_descriptors_nothing_spins_and_service_comes_back(start_gateway, upstream, key):
    gateway = start_gateway("limits: {connections: 9000}\n", started=False)
    gateway.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    connections = [gateway.connect() for _ in range(400)]
    served = 0
    for connection in connections:
        connection.send(request_bytes("GET", "/up"))
    for connection in connections[:10]:
        try:
            served += connection.receive().status == 200
        except (Disconnected, ConnectionError):
            pass
    used = cpu_seconds(gateway.pid)
    time.sleep(1)  # measures what an idle process uses: there is no event to wait for
    assert cpu_seconds(gateway.pid) - used < 0.5, "the gateway spins"
    for connection in connections:
        connection.close()
    eventually(lambda: answers(gateway, key), "the gateway serving again")
    limited = gateway.events("connections_limited")
    assert [(line["connections"], line["wanted"]) for line in limited] == [(144, 9000)]
    assert [line["connections"] for line in gateway.wait_events("connections_exhausted")] == [144]
    assert served > 0
    assert upstream.effects("/refunds") == 1


def test_start_with_the_default_says_nothing_of_fewer_connections(start_gateway, upstream):
    gateway = start_gateway(started=False)
    gateway.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256)))
    assert gateway.get("/up").status == 200
    assert [line for line in gateway.output if "connections" in line] == []


def answers(gateway, key):
    try:
        return gateway.post("/refunds", key=key, json={}).status == 201
    except (Disconnected, ConnectionError):
        return False


def test_large_body_goes_where_tmpdir_says_and_the_log_says_why_it_cannot(start_gateway, upstream, tmp_path):
    spool = tmp_path / "spool"
    gateway = start_gateway(env={"TMPDIR": str(spool)})
    large = b"x" * 300_000
    gateway.post("/refunds", key=fresh_key(), body=large).refuses(503, "TRANSIENT.overloaded")
    (said,) = gateway.wait_events("body_file_failed")
    assert (said["directory"], said["error"]) == (str(spool), "No such file or directory")
    assert gateway.post("/refunds", key=fresh_key(), body=b"x").status == 201
    spool.mkdir()
    assert gateway.post("/refunds", key=fresh_key(), body=large).status == 201
    assert upstream.effects("/refunds") == 2


def test_head_that_takes_too_long_is_given_up(start_gateway, upstream, key):
    gateway = start_gateway("""
        limits:
          head_timeout: 300ms
        """)
    connection = gateway.connect()
    connection.send(b"POST /refunds HTTP/1.1\r\nHost: a\r\n")
    assert_let_go(connection)
    assert upstream.requests == []
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 1


def assert_let_go(connection):
    """408 and the end of the connection, or just its end."""
    try:
        assert connection.receive().status == 408
        assert connection.at_end()
    except (Disconnected, ConnectionResetError):
        pass


def test_answer_with_many_headers_needs_a_limit_that_allows_them(start_gateway, upstream, key):
    upstream.on("/refunds", answer(201, {}, [(f"X-{number}", "1") for number in range(250)]))
    problem = start_gateway().post("/refunds", key=key, json={}).refuses(502, "DEPENDENCY.unavailable")
    assert "limits.answer_headers" in problem["detail"]
    gateway = start_gateway("limits: {answer_headers: 300}\n")
    for idempotency in ("stored", "replayed"):
        response = gateway.post("/refunds", key=key, json={})
        assert (response.status, response.idempotency, response.header("X-249")) == (201, idempotency, "1")
    assert upstream.effects("/refunds") == 2  # one for each gateway: they have stores of their own


def test_idle_connection_is_closed(start_gateway, upstream):
    gateway = start_gateway("""
        limits:
          idle_timeout: 300ms
        """)
    connection = gateway.connect()
    assert connection.request("GET", "/up").status == 200
    assert connection.at_end()
    assert len(upstream.requests) == 1


@pytest.mark.slow
def test_body_that_comes_too_slowly_is_given_up_and_never_sent(start_gateway, upstream, key):
    gateway = start_gateway("""
        limits:
          body_rate_min: 1MiB
        """)
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/refunds", {"Idempotency-Key": key, "Content-Length": "1000"}, b"x"))
    assert_let_go(connection)
    assert upstream.requests == []
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_connections_beyond_the_limit_do_not_harm_the_others(start_gateway, upstream):
    gateway = start_gateway("""
        limits:
          connections: 20
        """)
    inside = [gateway.connect() for _ in range(20)]
    for connection in inside:
        assert connection.request("GET", "/up").status == 200
    outside = [gateway.connect() for _ in range(20)]
    for connection in inside:
        assert connection.request("POST", "/refunds", {"Idempotency-Key": fresh_key()}, b"{}").status == 201
    for connection in outside + inside[10:]:
        connection.close()
    eventually(lambda: answers(gateway, fresh_key()), "room for new connections")
    for connection in inside[:10]:
        assert connection.request("GET", "/up").status == 200
    assert set(upstream.effects_by_key.values()) == {1}


def test_limits_out_of_bounds_are_refused(hapax, tmp_path):
    file = tmp_path / "hapax.yaml"
    file.write_text("upstream: http://127.0.0.1:3000\nlimits:\n  connections: 0\n  headers: -1\n")
    result = hapax("check", file)
    assert result.code == EXIT_CONFIG
    assert "hapax.yaml:3:" in result.stdout + result.stderr
    assert "hapax.yaml:4:" in result.stdout + result.stderr


@pytest.mark.slow
def test_slow_reader_of_a_replay_is_let_go(start_gateway, upstream, key):
    gateway = start_gateway("""
        limits:
          send_timeout: 500ms
        """)
    upstream.on("/big", lambda exchange: (exchange.read_body(), exchange.execute(),
                                          exchange.answer(200, bytes(8 * MIB - 1024))))
    assert len(gateway.post("/big", key=key).body) == 8 * MIB - 1024
    slow = Connection(gateway.address)
    for _ in range(8):  # more than the kernel's buffers take
        slow.send(request_bytes("POST", "/big", {"Idempotency-Key": key}))
    slow.receive_head()
    slow.wait_let_go()
    slow.at_end()
    assert len(slow.reader.buffer) < 8 * 8 * MIB - MIB, "all of it came"
    slow.close()
    assert gateway.post("/big", key=key).idempotency == "replayed"
    assert upstream.effects("/big") == 1
