# SPDX-License-Identifier: Apache-2.0
"""The wall clock is set back and forth by a day while the gateway runs: nothing expires early, no lease is lost, and
nothing is held for a day."""
import datetime
import time

import pytest

from harness import Deduplicating, WallClock, answer, eventually, fresh_key, in_turn, numbered, quick_retries

JUMPS = [24, -24, 48, 0, -48, 24]
REFUND = {"amount": 1000}


@pytest.fixture
def clock(tmp_path):
    return WallClock(tmp_path)


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_clock_really_moves(start_gateway, clock, upstream, key):
    """Else the other stories would prove nothing: a gateway that starts with the clock ahead says so."""
    clock.set_ahead(48)
    assert abs(clock.seen() - time.time() - 48 * 3600) < 3600
    gateway = start_gateway(env=clock.env)
    expires = moment(gateway.post("/refunds", key=key, json=REFUND).header("Idempotency-Expires"))
    left = expires - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(hours=71) < left < datetime.timedelta(hours=73)
    clock.set_ahead(-48)
    assert abs(clock.seen() - time.time() + 48 * 3600) < 3600
    assert upstream.effects("/refunds") == 1


def test_stored_answers_outlive_every_jump(start_gateway, clock, upstream):
    gateway = start_gateway("""
        defaults:
          lifetime: 2h
        """, env=clock.env)
    answers = {}
    for jump in JUMPS:
        key = fresh_key()
        answers[key] = gateway.post("/refunds", key=key, json=REFUND).body
        clock.set_ahead(jump)
        for known, body in answers.items():
            again = gateway.post("/refunds", key=known, json=REFUND)
            assert (again.body, again.idempotency) == (body, "replayed"), jump
    assert set(upstream.effects_by_key.values()) == {1}
    assert upstream.effects("/refunds") == len(JUMPS)


def test_restart_after_a_jump_back_frees_nothing(start_gateway, clock, upstream, key):
    gateway = start_gateway(env=clock.env)
    first = gateway.post("/refunds", key=key, json=REFUND)
    for jump in (-24, 12, -48):
        clock.set_ahead(jump)
        gateway.restart("kill")
        assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    assert upstream.effects("/refunds") == 1


@pytest.mark.slow
def test_lease_outlives_every_jump(start_gateway, clock, upstream, key):
    gateway = start_gateway("""
        defaults:
          lease: 1s
          wait: 400ms
        """, env=clock.env)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        for jump in JUMPS:
            clock.set_ahead(jump)
            gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.in_flight")
    assert (first.status, first.idempotency) == (201, "stored")
    assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    assert upstream.effects("/refunds") == 1


def test_unknown_stays_unknown_and_its_late_answer_is_taken(start_gateway, clock, upstream, key):
    gateway = start_gateway(quick_retries(upstream_timeout="300ms"), env=clock.env)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        assert first.idempotency == "unknown"
        for jump in JUMPS:
            clock.set_ahead(jump)
            gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.outcome_unknown")
    late = eventually(lambda: replayed(gateway, key), "the late answer being taken")
    assert late.status == 201
    assert upstream.effects("/refunds") == 1


def replayed(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    return response if response.idempotency == "replayed" else None


@pytest.mark.parametrize("jump", [24, -24])
def test_delays_between_attempts_do_not_follow_the_wall_clock(start_gateway, clock, upstream, key, jump):
    gateway = start_gateway(quick_retries(retry="{base: 500ms, jitter: none}"), env=clock.env)
    upstream.on("/refunds", in_turn(jumping(clock, jump), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    first, second = upstream.received("/refunds")
    assert second.at - first.answered_at >= 0.5
    assert upstream.effects("/refunds") == 1


def jumping(clock, jump):
    refuse = answer(429, effect=False)

    def behave(exchange):
        clock.set_ahead(jump)
        refuse(exchange)
    return behave


def test_idempotent_operation_survives_jumps_between_its_attempts(start_gateway, clock, upstream, key):
    gateway = start_gateway(quick_retries(guarantee="idempotent", lease="1s"), env=clock.env)
    service = Deduplicating("close", 502)

    def behave(exchange):
        clock.set_ahead(JUMPS[len(upstream.received("/refunds"))])
        service(exchange)
    upstream.on("/refunds", behave)
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (201, "stored")
    assert len({request.header("Hapax-Operation") for request in upstream.received("/refunds")}) == 1
    assert upstream.effects("/refunds") == 1
