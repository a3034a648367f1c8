# SPDX-License-Identifier: Apache-2.0
"""Death and restart in every state: what was acknowledged is still there, what was under way is unknown, what was
released runs."""
import contextlib

import pytest

from harness import (EXIT_UNKNOWN, Deduplicating, Disconnected, answer, drop_after_effect, eventually, fresh_key,
                     numbered)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
HOW = pytest.mark.parametrize("how", ["kill", "drain"])
REFUND = {"amount": 1000}


@HOW
@pytest.mark.parametrize("status", [201, 404, 422, 500])
def test_settled_operation_is_replayed_after_a_restart(gateway, upstream, key, how, status):
    upstream.on("/refunds", answer(status, {"n": 1}, [("X-One", "1"), ("Location", "/r")]))
    first = gateway.post("/refunds", key=key, json=REFUND)
    gateway.restart(how)
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.body, again.idempotency) == (status, first.body, "replayed")
    assert again.header("X-One") == "1"
    assert upstream.effects("/refunds") == 1


@HOW
def test_unknown_operation_is_still_unknown_after_a_restart(gateway, upstream, key, how):
    upstream.on("/refunds", drop_after_effect())
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    gateway.restart(how)
    upstream.on("/refunds", numbered)
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


@HOW
def test_released_operation_runs_after_a_restart(gateway, upstream, key, how):
    upstream.on("/refunds", answer(401, effect=False))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "released"
    gateway.restart(how)
    upstream.on("/refunds", numbered)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


@HOW
def test_key_never_seen_runs_after_a_restart(gateway, upstream, key, how):
    gateway.restart(how)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_kill_in_the_middle_of_a_request_leaves_it_unknown(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        victim = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.kill()
        with pytest.raises((Disconnected, ConnectionResetError)):
            victim.response
    gateway.start()
    before, after = gateway.events("store_opened")
    assert ("became_unknown" in before, after["became_unknown"]) == (False, 1)
    for _ in range(3):
        gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("guarantee", ["none", "idempotent"])
def test_kill_while_many_wait_for_one(start_gateway, upstream, key, guarantee):
    gateway = start_gateway(f"defaults: {{guarantee: {guarantee}}}\n", workers=2)
    upstream.on("/refunds", Deduplicating("silence"))
    everyone = gateway.post_together("/refunds", key=key, times=50)
    eventually(lambda: upstream.effects("/refunds") == 1, "the effect")
    gateway.kill()
    for pending in everyone:
        with pytest.raises((Disconnected, ConnectionResetError)):
            pending.response
    gateway.start()
    for retry in gateway.post_together("/refunds", key=key, times=50):
        if guarantee == "none":
            retry.refuses(409, UNKNOWN)
        else:
            assert (retry.status, retry.json()["effect"]) == (201, 1)
    assert len(upstream.received("/refunds")) == (1 if guarantee == "none" else 2)
    assert upstream.effects("/refunds") == 1


def test_kill_after_a_late_answer_was_stored_keeps_it(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 200ms
        """)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        assert first.status == 504
    late = eventually(lambda: replay(gateway, key))
    gateway.restart()
    assert replay(gateway, key).body == late.body
    assert upstream.effects("/refunds") == 1


def replay(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    return response if response.idempotency == "replayed" else None


def test_twenty_kills_one_after_the_other_lose_nothing(gateway, upstream):
    answers = {}
    for _ in range(20):
        for _ in range(5):
            key = fresh_key()
            answers[key] = gateway.post("/refunds", key=key, json=REFUND).body
        gateway.restart("kill")
        for key, body in answers.items():
            assert gateway.post("/refunds", key=key, json=REFUND).body == body
    assert set(upstream.effects_by_key.values()) == {1}
    assert upstream.effects("/refunds") == 100


def test_kill_at_once_after_the_answer_keeps_it(gateway, upstream):
    for _ in range(10):
        key = fresh_key()
        pending = gateway.send("POST", "/refunds", key=key, json=REFUND)
        body = pending.body
        gateway.restart("kill")
        assert gateway.post("/refunds", key=key, json=REFUND).body == body
    assert set(upstream.effects_by_key.values()) == {1}


def test_terminate_drains_what_is_under_way(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        under_way = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.terminate()
        eventually(lambda: is_refused(gateway), "the listener closing")
        assert gateway.is_running()
        held.release()
        assert (under_way.status, under_way.idempotency) == (201, "stored")
    assert gateway.wait_exit() == 0
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).body == under_way.body
    assert upstream.effects("/refunds") == 1


def test_terminate_waits_for_the_last_of_many_workers(start_gateway, upstream):
    gateway = start_gateway(workers=16)  # so that the last is hardly ever the first one's
    paths = [f"/refunds/{number}" for number in range(6)]
    with contextlib.ExitStack() as holds:
        held = [holds.enter_context(upstream.hold(path)) for path in paths]
        under_way = [gateway.post_later(path, key=fresh_key(), json=REFUND) for path in paths]
        for hold in held:
            hold.wait_arrived()
        gateway.terminate()
        gateway.wait_events("draining")
        for hold, reply in zip(held[1:], under_way[1:], strict=True):
            hold.release()
            assert reply.idempotency == "stored"
        for _ in range(300):
            gateway.counts()  # operators are answered as long as something is under way
        held[0].release()
        assert under_way[0].idempotency == "stored"
    assert gateway.wait_exit() == 0


def test_second_signal_ends_it_at_once_and_says_that_something_is_unknown(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.terminate()
        gateway.wait_events("draining")
        gateway.terminate()
        gateway.expected_exits.add(EXIT_UNKNOWN)
        assert gateway.wait_exit() == EXIT_UNKNOWN
    gateway.start()
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert eventually(lambda: upstream.effects("/refunds"), "its effect") == 1


def is_refused(gateway):
    try:
        gateway.connect().close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        pass  # it came just as the listener closed
    return False


def test_terminate_closes_idle_connections(gateway, upstream):
    connections = [gateway.connect() for _ in range(10)]
    for connection in connections:
        assert connection.request("GET", "/up").status == 200
    gateway.terminate()
    for connection in connections:
        assert connection.at_end()
    assert gateway.wait_exit() == 0
    assert upstream.effects() == 0


def test_terminate_finishes_a_download(gateway, upstream):
    upstream.on("/file", answer(200, b"x" * 5_000_000, effect=False))
    with upstream.hold("/file") as held:
        download = gateway.send("GET", "/file").wait_read()
        held.wait_arrived()
        gateway.terminate()
        eventually(lambda: is_refused(gateway), "the listener closing")
    assert len(download.body) == 5_000_000
    assert gateway.wait_exit() == 0
    assert upstream.effects() == 0


def test_pause_and_resume_change_nothing(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.pause()
        held.release()
        retry = gateway.send("POST", "/refunds", key=key, json=REFUND)
        gateway.resume()
        assert pending.status == retry.status == 201
        assert pending.body == retry.body
    assert upstream.effects("/refunds") == 1
