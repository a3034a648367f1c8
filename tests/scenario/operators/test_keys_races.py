# SPDX-License-Identifier: Apache-2.0
"""hapax keys, and what happens between an operator's look and the act: it is done to what was seen, or not at all."""
import json
import socket

import pytest

from harness import Connection, SlowDisk, drop_after_effect, eventually, fresh_key


def lists_as_if(database, change, states="$4"):
    """From now on a list says what stood there before something changed."""
    (arguments,), = database.ask("SELECT pg_get_function_identity_arguments('hapax.list'::regproc)")
    database.ask("ALTER FUNCTION hapax.list RENAME TO list_now")
    places = ", ".join(states if number == 4 else f"${number}" for number in range(1, len(arguments.split(",")) + 1))
    database.ask(f"""
        CREATE FUNCTION hapax.list({arguments}) RETURNS SETOF hapax.verdict LANGUAGE plpgsql AS $$
        DECLARE v hapax.verdict;
        BEGIN
            FOR v IN SELECT * FROM hapax.list_now({places}) LOOP {change}; RETURN NEXT v; END LOOP;
        END $$
        """)


@pytest.mark.parametrize("words", [("resolve", "--release"), ("resolve", "--completed"), ("forget",)])
def test_many_leave_alone_a_later_run_of_what_was_listed(database, start_node, upstream, hapax, key, words):
    """Between the list and the change the operation was sent again, and is unknown again: of that run the operator has
    seen nothing. The list of this story is older than what stands there."""
    node = start_node(database.url, "defaults:\n  guarantee: idempotent\n  retry: {attempts: 1}\n")
    upstream.on("/refunds", drop_after_effect())
    for _ in range(2):
        assert node.post("/refunds", key=key, json={}).idempotency == "unknown"
    (epoch,), = database.ask("SELECT epoch FROM hapax.operations")
    lists_as_if(database, "v.epoch := v.epoch - 1")
    done = hapax("keys", *words, "--state", "unknown", "--yes", "--why", "seen in the list", "--json",
                 "--admin", f"unix:{node.store}/admin.sock")
    counted = json.loads(done.stdout)
    assert (counted["changed"], counted["skipped"]) == (0, 1), done
    assert database.ask("SELECT epoch, state FROM hapax.operations") == [(epoch, 4)]


def test_many_leave_alone_an_answer_that_came_since_they_were_listed(database, start_node, upstream, hapax, key):
    """In the list it was unknown. To forget it now would be to run it twice."""
    node = start_node(database.url)
    assert node.post("/refunds", key=key, json={}).idempotency == "stored"
    lists_as_if(database, "v.state := 4", states="1 << 2")
    done = hapax("keys", "forget", "--state", "unknown", "--yes", "--why", "seen in the list", "--json",
                 "--admin", f"unix:{node.store}/admin.sock")
    counted = json.loads(done.stdout)
    assert (counted["changed"], counted["skipped"]) == (0, 1), done
    assert node.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_stop_waits_for_an_act_on_many_though_nobody_waits_for_its_answer(start_gateway, upstream, tmp_path):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(env=disk.env)
    lost = [fresh_key() for _ in range(100)]  # more than are under way at once
    upstream.on("/refunds", drop_after_effect())
    for key in lost:
        assert gateway.post("/refunds", key=key, json={}).idempotency == "unknown"
    with disk.held():
        with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
            connection.request("POST", "/v1/operations/resolve",
                               body='{"outcome":"completed","body":"1","why":"seen","filter":{"state":"unknown"}}')
            disk.wait_for_commit()
        gateway.terminate()
        eventually(lambda: not (gateway.store / "admin.sock").exists(), "the end of the admin socket")
    assert gateway.wait_exit() == 0
    gateway.start()
    assert [gateway.post("/refunds", key=key, json={}).body for key in lost] == [b"1"] * len(lost)
    assert upstream.effects("/refunds") == len(lost)
