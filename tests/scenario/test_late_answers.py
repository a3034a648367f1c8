# SPDX-License-Identifier: Apache-2.0
"""Answers that come after their time: the first client is told that the outcome is unknown, and the answer is taken
all the same, for every later request."""
import pytest

from harness import SlowDisk, answer, eventually, fresh_key

IMPATIENT = """
    defaults:
      upstream_timeout: 300ms
      answer_max: 4KiB
    """


@pytest.mark.parametrize("behaviour, then", [
    (answer(201, "done"), (201, "replayed", None)),
    (answer(201, b"x" * 5000), (409, "replayed", "CONFLICT.idempotency.response_not_retained")),
    (answer(404, "no"), (404, "replayed", None)),
    (answer(502, "bad"), (409, "unknown", "CONFLICT.idempotency.outcome_unknown")),
], ids=["kept", "too large", "failed", "says nothing"])
def test_answer_that_comes_while_unknown_is_being_recorded(start_gateway, upstream, key, tmp_path, behaviour, then):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(IMPATIENT, env=disk.env)
    upstream.on("/refunds", behaviour)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key)
        held.wait_arrived()
        with disk.held():
            disk.wait_for_commit()
            held.release()
            assert gateway.get("/other").status == 200
            upstream.wait(lambda: upstream._idle >= set(upstream._open), "the late answer being sent")
            assert gateway.get("/other").status == 200
    first.refuses(504, "DEPENDENCY.timeout")
    assert first.idempotency == "unknown"

    def settled():
        response = gateway.post("/refunds", key=key)
        return (response.status, response.idempotency, response.header("Error-Code")) == then
    eventually(settled, f"the late answer settling it as {then}")
    assert upstream.effects("/refunds") == 1


def test_client_that_leaves_while_the_claim_is_being_recorded(start_gateway, upstream, key, tmp_path):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(env=disk.env)
    with disk.held():
        pending = gateway.post_later("/refunds", key=key)
        disk.wait_for_commit()
        pending.connection.reset()
        assert gateway.get("/other").status == 200
        assert upstream.received("/refunds") == []
    assert gateway.post("/refunds", key=key).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_no_byte_of_an_answer_before_its_outcome_is_durable(start_gateway, upstream, key, tmp_path):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(env=disk.env)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key)
        held.wait_arrived()
        with disk.held():
            held.release()
            disk.wait_for_commit()
            assert gateway.get("/other").status == 200
            first.connection.sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                first.connection.sock.recv(1)
            first.connection.sock.setblocking(True)
    assert first.idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_waiters_on_unknown_are_told_so_even_if_it_is_released_right_after(start_gateway, upstream, tmp_path):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(IMPATIENT, workers=2, env=disk.env)
    upstream.on("/refunds", answer(429, "later", effect=False))
    for _ in range(10):
        key = fresh_key()
        with upstream.hold("/refunds") as held:
            first = gateway.post_later("/refunds", key=key)
            held.wait_arrived()
            waiters = gateway.post_together("/refunds", key=key, times=40)
            with disk.held():
                disk.wait_for_commit()
                held.release()
                upstream.wait(lambda: upstream._idle >= set(upstream._open), "the late answer being sent")
        first.refuses(504, "DEPENDENCY.timeout")
        for waiter in waiters:
            waiter.refuses(409, "CONFLICT.idempotency.outcome_unknown")
    assert upstream.effects() == 0
