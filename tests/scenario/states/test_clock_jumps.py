# SPDX-License-Identifier: Apache-2.0
"""The wall clock is set back and forth by a day while the gateway runs: nothing expires early, no lease is lost, and
nothing is held for a day."""
import datetime
import email.utils
import sqlite3
import time

import jwt as pyjwt
import pytest

from harness import (EXIT_STORE, Deduplicating, Run, WallClock, answer, bearer, eventually, fresh_key, in_turn,
                     numbered, quick_retries)

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


SECRET = "a secret of more than thirty-two bytes"
VERIFIED = """
    defaults:
      jwt: {{secret: {file}}}
      require_principal: true
    """


def token(**claims):
    return bearer(pyjwt.encode({"sub": "alice", **claims}, SECRET, algorithm="HS256"))


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text(SECRET, encoding="ascii")
    return file


def test_tokens_go_by_the_wall_clock(start_gateway, clock, upstream, key, secret):
    gateway = start_gateway(VERIFIED.format(file=secret), env=clock.env)
    now = int(time.time())
    soon, later = token(exp=now + 3600), token(nbf=now + 11 * 3600, exp=now + 99 * 3600)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=soon)
    assert gateway.post("/refunds", key=key, json=REFUND, auth=later).status == 401
    clock.set_ahead(12)
    assert gateway.post("/refunds", key=key, json=REFUND, auth=soon).status == 401
    assert gateway.post("/refunds", key=key, json=REFUND, auth=later).body == first.body
    clock.set_ahead(0)  # and what was verified meanwhile is not taken for valid
    assert gateway.post("/refunds", key=key, json=REFUND, auth=later).status == 401
    assert gateway.post("/refunds", key=key, json=REFUND, auth=soon).body == first.body
    assert upstream.effects("/refunds") == 1


def test_tokens_outlive_a_start_that_was_years_ahead(start_gateway, clock, upstream, secret):
    clock.set_ahead(10 * 365 * 24)
    gateway = start_gateway(VERIFIED.format(file=secret), env=clock.env)
    assert gateway.post("/refunds", key=fresh_key(), json=REFUND, auth=token()).status == 201
    clock.set_ahead(0)
    gateway.restart()
    fresh, stale = token(exp=int(time.time()) + 60), token(exp=int(time.time()) - 3600)
    assert gateway.post("/refunds", key=fresh_key(), json=REFUND, auth=fresh).status == 201
    assert gateway.post("/refunds", key=fresh_key(), json=REFUND, auth=stale).status == 401
    assert upstream.effects("/refunds") == 2


@pytest.mark.parametrize("jump", [24, -24])
def test_dates_and_logs_go_by_the_wall_clock(start_gateway, clock, upstream, key, jump):
    gateway = start_gateway(env=clock.env)
    clock.set_ahead(jump)
    expected = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=jump)
    refused = gateway.post("/refunds", key="short", json=REFUND)
    upstream.on("/refunds", answer(201))
    answered = gateway.post("/refunds", key=key, json=REFUND)
    for said in (email.utils.parsedate_to_datetime(refused.header("Date")),
                 email.utils.parsedate_to_datetime(answered.header("Date")),
                 moment(gateway.wait_events("request", 2)[-1]["time"])):
        assert abs(said - expected) < datetime.timedelta(hours=1), said
    assert upstream.effects("/refunds") == 1


STORES = ["journal", "sqlite"]
AHEAD = "clock_ahead_unproven"


def url_of(store, tmp_path):
    return f"journal:{tmp_path}/store" if store == "journal" else f"sqlite:{tmp_path}/store.db"


def boot_again(store, tmp_path):
    """As if the machine had been started again: within one boot processes on SQLite go by one clock."""
    if store == "sqlite":
        with sqlite3.connect(tmp_path / "store.db") as database:
            database.execute("UPDATE hapax_store SET boot = 'another'")
        database.close()


def end(gateway, how):
    """A stop that is awaited leaves hints behind, which the next start of a journal goes by."""
    if how == "kill":
        gateway.kill()
    else:
        gateway.terminate()
        assert gateway.wait_exit() == 0, gateway.shown_output()


@pytest.mark.parametrize("how", ["kill", "drain"])
@pytest.mark.parametrize("store", STORES)
def test_nothing_expires_until_a_clock_that_is_ahead_is_known_to_be_right(start_gateway, clock, upstream, key, tmp_path,
                                                                         store, how):
    gateway = start_gateway(env=clock.env, store=url_of(store, tmp_path))
    first = gateway.post("/refunds", key=key, json=REFUND)
    end(gateway, how)
    boot_again(store, tmp_path)
    clock.set_ahead(24 * 30)
    gateway.start()
    assert gateway.wait_events(AHEAD)[0]["hours"] in (719, 720)
    for _ in range(3):
        assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    assert upstream.effects("/refunds") == 1
    clock.synchronise()
    gateway.wait_events("clock_trusted")
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


@pytest.mark.parametrize("how", ["kill", "drain"])
@pytest.mark.parametrize("store", STORES)
def test_nothing_is_lost_to_a_start_with_a_wrong_clock_that_is_set_right_later(start_gateway, clock, upstream, key,
                                                                              tmp_path, store, how):
    gateway = start_gateway(env=clock.env, store=url_of(store, tmp_path))
    first = gateway.post("/refunds", key=key, json=REFUND)
    end(gateway, how)
    boot_again(store, tmp_path)
    clock.set_ahead(24 * 30)
    gateway.start()
    assert gateway.post("/charges", key=key, json=REFUND).status == 201
    clock.set_ahead(0)
    clock.synchronise()
    gateway.wait_events("clock_set_back")
    assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    end(gateway, how)
    boot_again(store, tmp_path)
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    assert upstream.effects("/refunds") == 1


def test_a_day_ahead_is_no_matter(start_gateway, clock, upstream, key):
    gateway = start_gateway("""
        defaults: {lifetime: 2h}
        """, env=clock.env)
    gateway.post("/refunds", key=key, json=REFUND)
    clock.set_ahead(23)
    gateway.restart()
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert not gateway.events(AHEAD)
    assert upstream.effects("/refunds") == 2


def refused(gateway):
    """What a start says that ends before it serves."""
    run = Run(gateway.command()[1:], env=gateway.env)
    assert run.code == EXIT_STORE, run
    return run.stderr


@pytest.mark.parametrize("store", STORES)
def test_a_clock_that_is_years_ahead_has_to_be_accepted(start_gateway, clock, upstream, key, tmp_path, store):
    gateway = start_gateway(env=clock.env, store=url_of(store, tmp_path))
    first = gateway.post("/refunds", key=key, json=REFUND)
    gateway.kill()
    boot_again(store, tmp_path)
    clock.set_ahead(24 * 401)
    said = refused(gateway)
    assert "401 days ahead" in said and "--accept-clock" in said, said
    clock.set_ahead(0)  # nothing has changed
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    gateway.kill()
    boot_again(store, tmp_path)
    clock.set_ahead(24 * 401)
    gateway.flags.append("--accept-clock")
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


def test_a_clock_before_the_build_has_to_be_accepted(start_gateway, clock, upstream, key):
    gateway = start_gateway(env=clock.env)
    first = gateway.post("/refunds", key=key, json=REFUND)
    gateway.kill()
    clock.set_ahead(-24 * 365 * 5)
    said = refused(gateway)
    assert "before this program was made" in said and "--accept-clock" in said, said
    gateway.flags.append("--accept-clock")
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).body == first.body
    assert upstream.effects("/refunds") == 1
