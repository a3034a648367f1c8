# SPDX-License-Identifier: Apache-2.0
"""Clients that go away: before the request is whole nothing is sent; after it was sent, it is finished and recorded."""
import pytest

from harness import Stream, answer, chunk, eventually, request_bytes, wait_all_read

LEAVE = pytest.mark.parametrize("leave", ["close", "reset"])


@LEAVE
def test_client_that_leaves_inside_its_body_causes_nothing(gateway, upstream, key, leave):
    connection = gateway.connect()
    whole = request_bytes("POST", "/refunds", {"Idempotency-Key": key}, b"x" * 100)
    connection.send(whole[:-50])
    connection.wait_read()
    getattr(connection, leave)()
    retry = gateway.post("/refunds", key=key, body=b"x" * 100)
    assert (retry.status, retry.idempotency) == (201, "stored")
    assert len(upstream.requests) == 1
    assert upstream.effects("/refunds") == 1


@LEAVE
def test_client_that_leaves_inside_its_chunks_causes_nothing(gateway, upstream, key, leave):
    connection = gateway.connect()
    head = request_bytes("POST", "/refunds", {"Idempotency-Key": key, "Transfer-Encoding": "chunked"})
    connection.send(head + chunk(b"x" * 100))
    connection.wait_read()
    getattr(connection, leave)()
    retry = gateway.post("/refunds", key=key, body=b"x" * 100)
    assert (retry.status, retry.idempotency) == (201, "stored")
    assert len(upstream.requests) == 1
    assert upstream.effects("/refunds") == 1


@LEAVE
def test_client_that_leaves_inside_its_head_causes_nothing(gateway, upstream, key, leave):
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/refunds", {"Idempotency-Key": key}, b"")[:-2])
    connection.wait_read()
    getattr(connection, leave)()
    assert gateway.post("/refunds", key=key, body=b"").idempotency == "stored"
    assert len(upstream.requests) == 1
    assert upstream.effects("/refunds") == 1


@LEAVE
def test_clients_that_leave_at_once_do_no_harm(gateway, upstream, key, leave):
    for sent in (b"", b"POST /refunds HTTP/1.1\r\n", request_bytes("GET", "/thing")):
        for _ in range(50):
            connection = gateway.connect()
            connection.send(sent)
            getattr(connection, leave)()
    assert gateway.post("/refunds", key=key, body=b"").idempotency == "stored"
    assert upstream.effects() == 1


@LEAVE
def test_client_that_leaves_after_the_request_was_sent_leaves_it_to_be_finished(gateway, upstream, key, leave):
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        getattr(pending.connection, leave)()
        eventually(lambda: gateway.get("/other").status == 200)
    retry = gateway.post("/refunds", key=key, json={})
    assert (retry.status, retry.idempotency) == (201, "replayed")
    assert upstream.effects("/refunds") == 1


def test_everyone_leaves_and_the_operation_is_finished_all_the_same(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        for pending in gateway.post_together("/refunds", key=key, times=10):
            pending.connection.reset()
        held.wait_arrived()
    assert gateway.post("/refunds", key=key).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_one_waiter_leaves_and_the_others_are_answered(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=10)
        held.wait_arrived()
        for pending in everyone[3:7]:
            pending.connection.reset()
    stayed = everyone[:3] + everyone[7:]
    assert len({response.body for response in stayed if response.status == 201}) == 1
    assert upstream.effects("/refunds") == 1


def test_client_that_half_closes_still_gets_its_answer(gateway, upstream, key):
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/refunds", {"Idempotency-Key": key}, b"{}"))
    connection.finish_sending()
    assert connection.receive("POST").status == 201
    assert upstream.effects("/refunds") == 1


@LEAVE
def test_client_that_leaves_a_download_frees_the_upstream(gateway, upstream, leave):
    stream = upstream.on("/feed", Stream(headers=[("Content-Type", "text/plain")], effect=False))
    connection = gateway.connect()
    connection.send(request_bytes("GET", "/feed"))
    stream.wait_started()
    stream.send("hello")
    connection.receive_head()
    getattr(connection, leave)()

    def upstream_was_left():
        stream.send("x" * 65536)
        return upstream.open_connections() == 0
    eventually(upstream_was_left, "the gateway giving up an exchange that nobody reads")
    assert upstream.effects() == 0


@LEAVE
def test_client_that_leaves_an_unkeyed_upload_ends_it_at_the_upstream(gateway, upstream, leave):
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/upload", {"Content-Length": "1000000"}, b"x" * 1000))
    upstream.wait_requests(1)
    getattr(connection, leave)()
    eventually(lambda: upstream.open_connections() == 0, "the upload ending at the upstream")
    assert upstream.effects("/upload") == 0


def test_client_that_leaves_between_claim_and_answer_many_times(gateway, upstream):
    """A thousand abandoned requests, each settled exactly once."""
    upstream.on("/refunds", answer(201, "done"))
    keys = [f"abandoned-request-{number:04}" for number in range(1000)]
    for batch in range(0, len(keys), 100):
        pendings = [gateway.send("POST", "/refunds", key=key) for key in keys[batch:batch + 100]]
        wait_all_read(pendings)
        for pending in pendings:
            pending.connection.reset()
    for key in keys:
        assert gateway.post("/refunds", key=key).status == 201
    assert set(upstream.effects_by_key.values()) == {1}
    assert upstream.effects("/refunds") == 1000
