# SPDX-License-Identifier: Apache-2.0
"""Answers that come after their time: the first client is told that the outcome is unknown, and the answer is taken
all the same, for every later request."""
import json
import select
import time

import pytest

from harness import SlowDisk, answer, eventually, fresh_key, in_time

IMPATIENT = """
    defaults:
      upstream_timeout: 300ms
      answer_max: 4KiB
    """
TIMEOUT_S = 0.3


def unknown_waits_for(disk, client):
    """True once the mark of unknown waits for the disk; False where it was durable before the disk was held, so that
    the client has its answer."""
    eventually(lambda: disk.holds_a_commit() or select.select([client.connection.sock], [], [], 0)[0], "the time-out")
    return disk.holds_a_commit()


@pytest.mark.parametrize("behaviour, then", [
    (answer(201, "done"), (201, "replayed", None)),
    (answer(201, b"x" * 5000), (409, None, "CONFLICT.idempotency.response_not_retained")),
    (answer(404, "no"), (404, "replayed", None)),
    (answer(502, "bad"), (409, "unknown", "CONFLICT.idempotency.outcome_unknown")),
], ids=["kept", "too large", "failed", "says nothing"])
def test_answer_that_comes_while_unknown_is_being_recorded(start_gateway, upstream, tmp_path, behaviour, then):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(IMPATIENT, env=disk.env)
    upstream.on("/refunds", behaviour)

    def story():
        key = fresh_key()
        with upstream.hold("/refunds") as held:
            first = gateway.post_later("/refunds", key=key)
            held.wait_arrived()
            with disk.held():
                is_in_time = unknown_waits_for(disk, first)
                if is_in_time:
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
        assert upstream.effects_by_key[key] == 1
        return is_in_time  # and where it wasn't, nothing of it is left to be written when it is told again
    in_time(story)


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


@pytest.mark.slow
def test_waiters_on_unknown_are_told_so_even_if_it_is_released_right_after(start_gateway, upstream, tmp_path):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(IMPATIENT, workers=2, env=disk.env)
    upstream.on("/refunds", answer(429, "later", effect=False))
    requests = 0

    def story():
        nonlocal requests
        key = fresh_key()
        with upstream.hold("/refunds") as held:
            sent_at = time.monotonic()
            first = gateway.post_later("/refunds", key=key)
            held.wait_arrived()
            waiters = gateway.post_together("/refunds", key=key, times=40)
            all_wait = time.monotonic() - sent_at < TIMEOUT_S * 2 / 3  # and did so for a while before the time-out
            with disk.held():
                all_wait = unknown_waits_for(disk, first) and all_wait
                if all_wait:
                    held.release()
                    upstream.wait(lambda: upstream._idle >= set(upstream._open), "the late answer being sent")
        first.refuses(504, "DEPENDENCY.timeout")
        for waiter in waiters:
            assert waiter.response and not all_wait or waiter.refuses(409, "CONFLICT.idempotency.outcome_unknown")
        requests += 1 + len(waiters)
        gateway.wait_events("request", requests)  # each is over: the next commit is the next story's
        return all_wait
    for _ in range(10):
        in_time(story)
    assert upstream.effects() == 0


def test_history_shows_that_an_answer_came_late(start_gateway, upstream, key, hapax):
    gateway = start_gateway(IMPATIENT)
    with upstream.hold("/refunds") as held:
        assert gateway.post("/refunds", key=key).idempotency == "unknown"
        held.release()
        eventually(lambda: gateway.post("/refunds", key=key).idempotency == "replayed", "the late answer")
    shown = hapax("keys", "show", key, "--json", "--store", gateway.store_url)
    changes = [(change["from_state"], change["state"]) for change in json.loads(shown.stdout)["history"]]
    assert changes[1:] == [("processing", "unknown"), ("unknown", "completed")]
    assert upstream.effects("/refunds") == 1
