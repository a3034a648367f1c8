# SPDX-License-Identifier: Apache-2.0
"""Outages of the gateway and jumps of its clock burn no steps of a delivery's schedule: nothing is dead that was not
attempted ten times."""
import contextlib
import sqlite3

import pytest

from harness import WallClock, answer, eventually, hours_ahead

PLACES_S = [0, 5, 30, 120, 600, 1800, 3600, 6 * 3600, 12 * 3600, 24 * 3600]


def attempts(hooks, endpoint, event):
    return hooks.delivery(endpoint, event)["attempts"]


def wait_attempts(hooks, endpoint, event, count):
    eventually(lambda: attempts(hooks, endpoint, event) == count
               and hooks.delivery(endpoint, event)["state"] != "sending", f"{count} attempts")


@pytest.fixture
def restart_later(request, store):
    """restart_later(hooks, hours): kills the gateway, and starts it this long after its first start. On PostgreSQL the
    time is the server's, and moved there; a file of SQLite takes another wall clock only after a boot."""
    kind, _, place = store.partition(":")

    def restart(hooks, hours):
        hooks.gateway.kill()
        hooks.gateway.env.update(hours_ahead(hours))
        if kind == "sqlite":
            with contextlib.closing(sqlite3.connect(place)) as file, file:
                file.execute("UPDATE hapax_store SET boot = 'an earlier one'")
        elif kind != "journal":
            request.getfixturevalue("database").ask(
                "CREATE OR REPLACE FUNCTION hapax.now() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS "
                f"$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + {hours} * 3600000 $$")
        hooks.restart()

    return restart


@pytest.mark.slow
def test_a_day_of_outage_costs_one_attempt_and_no_more(start_hooks, upstream, store, restart_later):
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", answer(500))
    event = hooks.publish().json()["id"]
    wait_attempts(hooks, endpoint, event, 1)
    for days in (1, 2, 3):
        if days == 3:
            upstream.on("/hook", answer(200))
        restart_later(hooks, 24 * days)
        wait_attempts(hooks, endpoint, event, days + 1)
        assert hooks.delivery(endpoint, event)["state"] == ("delivered" if days == 3 else "pending")
    assert {request.header("webhook-id") for request in upstream.received("/hook")} == {event}


@pytest.mark.slow
def test_a_clock_that_is_set_while_the_gateway_runs_moves_no_attempt(start_hooks, upstream, tmp_path):
    clock = WallClock(tmp_path)
    hooks = start_hooks(store=f"journal:{tmp_path}/events", env_more=clock.env)
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", answer(500))
    event = hooks.publish().json()["id"]
    wait_attempts(hooks, endpoint, event, 1)
    for hours in (24, -24, 48):
        clock.set_ahead(hours)
    wait_attempts(hooks, endpoint, event, 2)
    first, second = upstream.received("/hook")
    assert 4 <= second.at - first.at < 25  # five seconds after the first began, which took a while to arrive
    assert hooks.delivery(endpoint, event)["state"] == "pending"


@pytest.mark.slow
def test_ten_steps_with_a_restart_between_all_of_them(start_hooks, upstream, store, restart_later):
    """Each start is as much later as the next step needs: not one attempt more, and none fewer."""
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", answer(500))
    event = hooks.publish().json()["id"]
    wait_attempts(hooks, endpoint, event, 1)
    ahead = 0
    for step in range(1, len(PLACES_S)):
        ahead += (PLACES_S[step] - PLACES_S[step - 1]) * 11 // 10 // 3600 + 1
        restart_later(hooks, ahead)
        wait_attempts(hooks, endpoint, event, step + 1)
        state = hooks.delivery(endpoint, event)["state"]
        assert state == ("dead" if step == len(PLACES_S) - 1 else "pending")
    numbers = [int(request.header("Hapax-Attempt")) for request in upstream.received("/hook")]
    assert numbers == list(range(1, 11))
    tries = hooks.delivery(endpoint, event)["tries"]
    assert [one["status"] for one in tries] == [500] * 10
