# SPDX-License-Identifier: Apache-2.0
"""Memory has a budget: `limits.memory` bounds what a worker's keyed requests hold, whatever clients, applications and
stores do. What doesn't fit goes to files, or is refused before anything is claimed; nothing is refused afterwards."""
import hashlib
import time

import pytest

from harness import Connection, answer, chunk, chunked, eventually, fresh_key, lasting, request_bytes, sanitized

MIB = 1 << 20
BUDGET = 16 * MIB
AT_REST = 48 * MIB  # of the program with its store, before it has anything to do, and what malloc keeps
SMALL_BUDGET = """
    limits:
      memory: 16MiB
      send_timeout: 10m
    """


def assert_bounded(gateway, budget=BUDGET):
    if sanitized():
        return  # a sanitizer's own memory would be measured
    peak = gateway.peak_rss_bytes()
    assert peak <= budget + AT_REST, f"{peak / MIB:.0f} MiB at peak"


def large_body(size=8 * MIB - 1024):
    """Bytes in which every piece is told from every other."""
    block = b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(1024))
    return (block * (size // len(block) + 1))[:size - 8] + b"the end."


def slow_readers(gateway, target, keys):
    """Clients that ask together, have the heads of their answers, and take next to nothing of the rest."""
    readers = [Connection(gateway.address, receive_bytes=4096) for _ in keys]
    gateway.connections += readers
    for reader, key in zip(readers, keys):
        reader.send(request_bytes("POST", target, {"Idempotency-Key": key}))
    for reader in readers:
        reader.fields = reader.receive_head()[2]
    return readers


def rest_of(connection):
    return b"".join(connection.reader.body_pieces(connection.fields, 200))


def answer_large(upstream, body):
    upstream.on("/large", answer(200, body, {"Content-Type": "application/octet-stream"}))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["journal", "sqlite"])
def test_many_slow_readers_of_one_stored_answer(start_gateway, upstream, tmp_path, key, store):
    where = {} if store == "journal" else {"store": f"sqlite:{tmp_path}/store.sqlite"}
    gateway = start_gateway(SMALL_BUDGET, **where)
    body = large_body()
    answer_large(upstream, body)
    assert gateway.post("/large", key=key).body == body
    readers = slow_readers(gateway, "/large", 150 * [key])
    assert_bounded(gateway)
    assert gateway.post("/refunds", key=fresh_key(), json={}).status == 201
    for reader in readers[::50]:
        assert rest_of(reader) == body
    assert upstream.effects("/large") == 1


@pytest.mark.slow
def test_many_slow_readers_of_first_answers(start_gateway, upstream):
    gateway = start_gateway(SMALL_BUDGET)
    body = large_body(3 * MIB)
    answer_large(upstream, body)
    keys = [fresh_key() for _ in range(24)]
    readers = slow_readers(gateway, "/large", keys)
    assert_bounded(gateway)
    assert rest_of(readers[0]) == rest_of(readers[-1]) == body
    assert gateway.post("/large", key=keys[5]).body == body
    assert upstream.effects("/large") == 24


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_many_uploads_that_stall(start_gateway, upstream, framing):
    gateway = start_gateway("limits: {memory: 64MiB, body_rate_min: 0}\n")
    size = 240 * 1024
    head = {"Content-Length": str(size)} if framing == "length" else {"Transfer-Encoding": "chunked"}
    connections = []
    for _ in range(600):
        connection = gateway.connect()
        piece = bytes(size - 1)
        connection.send(request_bytes("POST", "/file", {**head, "Idempotency-Key": fresh_key()}) +
                        (piece if framing == "length" else chunk(piece)))
        connections.append(connection)
    for connection in connections:
        connection.wait_read()
    assert_bounded(gateway, 64 * MIB)
    connections[-1].send(b"x" if framing == "length" else b"0\r\n\r\n")
    assert connections[-1].receive("POST").status == 201
    assert upstream.effects("/file") == 1


@pytest.mark.slow
def test_replays_from_postgres(database, start_node, upstream, key):
    gateway = start_node(database.url, SMALL_BUDGET)
    body = large_body()
    answer_large(upstream, body)
    assert gateway.post("/large", key=key).body == body
    readers = slow_readers(gateway, "/large", 24 * [key])
    assert_bounded(gateway)
    assert rest_of(readers[0]) == rest_of(readers[-1]) == body
    assert upstream.effects("/large") == 1


def test_request_beyond_the_budget_is_refused_before_it_is_claimed(start_gateway, upstream, key):
    gateway = start_gateway("limits: {memory: 1MiB}\n")
    with upstream.hold("/slow") as held:
        inside = [gateway.send("POST", "/slow", key=fresh_key(), json={}) for _ in range(32)]
        held.wait_arrived(32)
        for _ in range(3):
            refused = gateway.post("/refunds", key=key, json={})
            problem = refused.refuses(503, "TRANSIENT.overloaded")
            assert problem["detail"] == "No memory is left for further requests."
            assert refused.header("Retry-After") == "1"
        assert upstream.effects("/refunds") == 0
        assert gateway.get("/up").status == 200  # what holds nothing is not refused
    assert [pending.status for pending in inside] == [201] * 32
    (said,) = gateway.wait_events("memory_exhausted")
    assert (said["limit"], gateway.counts()["refused_for_memory"]) == (MIB, 3)
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"  # it had never been claimed
    assert (upstream.effects("/slow"), upstream.effects("/refunds")) == (32, 1)


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_answer_beyond_its_reservation_is_recorded_and_answered(start_gateway, upstream, key, framing):
    gateway = start_gateway("limits: {memory: 1MiB}\n")
    body = large_body(4 * MIB)
    pieces = [body[at:at + 50_000] for at in range(0, len(body), 50_000)]
    upstream.on("/large", answer(200, body) if framing == "length" else chunked(pieces))
    first, second = gateway.post("/large", key=key), gateway.post("/large", key=key)
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert first.body == second.body == body
    assert lasting(first) == lasting(second)
    assert upstream.effects("/large") == 1


def test_answer_that_finds_no_room_is_answered_and_not_retained(start_gateway, upstream, tmp_path, key):
    gateway = start_gateway(env={"TMPDIR": str(tmp_path / "missing")})
    body = large_body(4 * MIB)
    answer_large(upstream, body)
    first = gateway.post("/large", key=key)
    assert (first.status, first.idempotency, first.body) == (200, "not-retained", body)
    gateway.post("/large", key=key).refuses(409, "CONFLICT.idempotency.response_not_retained")
    assert upstream.effects("/large") == 1


def test_waiters_for_a_large_answer_share_it(start_gateway, upstream, key):
    gateway = start_gateway(SMALL_BUDGET)
    body = large_body()
    upstream.on("/large", answer(307, body))  # released: handed to who waits, and not kept
    with upstream.hold("/large") as held:
        first = gateway.send("POST", "/large", key=key)
        held.wait_arrived()
        waiting = [gateway.send("POST", "/large", key=key) for _ in range(40)]
        gateway.wait_waiting(40)
    assert [first.idempotency] + [pending.idempotency for pending in waiting] == ["released"] * 41
    assert all(pending.body == body for pending in waiting)
    assert_bounded(gateway)
    assert upstream.effects("/large") == 1


@pytest.mark.slow
def test_steady_but_too_slow_reader_is_cut_and_the_answer_stays(start_gateway, upstream, key):
    gateway = start_gateway("limits: {send_timeout: 1s, send_rate_min: 1MiB}\n")
    body = large_body()
    answer_large(upstream, body)
    assert gateway.post("/large", key=key).body == body
    (reader,) = slow_readers(gateway, "/large", [key])
    got = len(reader.reader.buffer)
    with pytest.raises((ConnectionResetError, EOFError)):
        while piece := reader.sock.recv(1024):  # it never stands still, so that only its rate tells
            got += len(piece)
            time.sleep(0.01)
        raise EOFError
    assert got < len(body)
    assert gateway.post("/large", key=key).body == body
    assert upstream.effects("/large") == 1


@pytest.mark.slow
def test_steady_reader_that_is_fast_enough_gets_all_of_it(start_gateway, upstream, key):
    gateway = start_gateway("limits: {send_timeout: 1s, send_rate_min: 1KiB}\n")
    body = large_body(4 * MIB)
    answer_large(upstream, body)
    assert gateway.post("/large", key=key).body == body
    (reader,) = slow_readers(gateway, "/large", [key])
    for _ in range(300):  # 3 s of some 100 KiB each: far less than what the kernel holds for it
        reader.reader.buffer += reader.sock.recv(1024)
        time.sleep(0.01)
    assert rest_of(reader) == body
    assert upstream.effects("/large") == 1


@pytest.mark.slow
def test_replay_that_is_read_slowly_outlives_its_segment(start_gateway, upstream, key):
    gateway = start_gateway("""
        limits: {send_timeout: 10m}
        defaults: {lease: 1s, upstream_timeout: 1s, retry: {total: 1s}, lifetime: 3s}
        """)
    body = large_body()
    answer_large(upstream, body)
    first = gateway.post("/large", key=key)
    (reader,) = slow_readers(gateway, "/large", [key])
    assert first.body == body
    for _ in range(3):  # until the first segment is full
        assert gateway.post("/large", key=fresh_key()).body == body
    segment = sorted(gateway.store.glob("*.seg"))[0]

    def is_dropped():
        gateway.post("/refunds", key=fresh_key(), json={})
        return not segment.exists()
    eventually(is_dropped, "the segment of the answer being dropped")
    assert rest_of(reader) == body
    assert gateway.post("/large", key=key).idempotency == "stored"  # a new operation by now
    assert upstream.effects("/large") == 5


def test_large_answer_of_a_balancer_is_shown_whole(start_gateway, upstream, key):
    """An unknown outcome keeps no answer, but its first client sees what came."""
    gateway = start_gateway()
    body = large_body(MIB)
    upstream.on("/large", answer(502, body))
    first = gateway.post("/large", key=key)
    assert (first.status, first.idempotency, first.body) == (502, "unknown", body)
    gateway.post("/large", key=key).refuses(409, "CONFLICT.idempotency.outcome_unknown")
    assert upstream.effects("/large") == 1
