# SPDX-License-Identifier: Apache-2.0
"""Several gateways on one PostgreSQL: rules that another node has replaced, keys with buckets that both claim at once,
and a server that goes away and comes back. Every story counts effects at the application."""
import signal
import socket

import pytest

from harness import Connection, basic, eventually, fresh_key

REFUND = {"amount": 1000}
UNAVAILABLE = "DEPENDENCY.unavailable"
OLDER = "rules_older"
SAME = "rules_current"
DOWN = "store_unavailable"
UP = "store_available"


def by(principal):
    return f"routes:\n  - name: refunds\n    match: POST /refunds\n    principal: [{principal}]\n"


def write(gateway, config):
    new = gateway.config.with_suffix(".new")
    new.write_text(config, encoding="utf-8")
    new.replace(gateway.config)


def test_a_node_with_older_rules_refuses_the_route_until_it_is_reloaded(start_gateway, database, upstream, hapax,
                                                                        tmp_path):
    admin = f"admin: {{listen: unix:{tmp_path}/admin.sock}}\n"
    old = start_gateway(admin + by("authorization"), store=database.url)
    old.store = tmp_path

    def refusing():
        return [name for name, is_on in old.counts("refusing").items() if is_on]

    assert old.post("/other", key=fresh_key(), json=REFUND).status == 201
    new = start_gateway(by("header:X-User"), store=database.url)
    for _ in range(3):
        refused = old.post("/refunds", key=fresh_key(), json=REFUND)
        refused.refuses(503, UNAVAILABLE)
        assert refused.header("Retry-After") == "1" and "an older configuration" in refused.json()["detail"]
    assert upstream.effects("/refunds") == 0
    assert [line["route"] for line in old.wait_events(OLDER)] == ["refunds"]
    assert old.post("/other", key=fresh_key(), json=REFUND).status == 201  # whose rules are the same
    assert refusing() == ["rules_older"]
    told = hapax("keys", "list", "--admin", f"unix:{tmp_path}/admin.sock")
    assert told.code == 0 and "Requests are refused: the store has newer rules" in told.stderr, told
    assert new.post("/refunds", key=fresh_key(), json=REFUND, headers=[("X-User", "ann")]).status == 201
    write(old, admin + by("header:X-User"))
    old.signal(signal.SIGHUP)
    old.wait_events("configuration_reloaded")
    assert (old.wait_events(SAME)[0]["failed_calls"], refusing()) == (3, [])
    assert old.post("/refunds", key=fresh_key(), json=REFUND, headers=[("X-User", "ann")]).status == 201
    assert new.post("/refunds", key=fresh_key(), json=REFUND, headers=[("X-User", "ann")]).status == 201
    assert len(old.events(OLDER)) == len(old.events(SAME)) == 1
    assert upstream.effects("/refunds") == 3


def test_a_node_whose_rules_become_the_stores_again_says_so_without_a_reload(start_gateway, database, upstream):
    old, new = (start_gateway(by("authorization"), store=database.url) for _ in range(2))
    write(new, by("header:X-User"))
    new.signal(signal.SIGHUP)
    new.wait_events("configuration_reloaded")
    old.post("/refunds", key=fresh_key(), json=REFUND).refuses(503, UNAVAILABLE)
    assert [line["route"] for line in old.wait_events(OLDER)] == ["refunds"]
    write(new, by("authorization"))
    new.signal(signal.SIGHUP)
    new.wait_events("configuration_reloaded", 2)
    served = []

    def is_said():
        served.append(old.post("/refunds", key=fresh_key(), json=REFUND).status)
        return old.events(SAME)

    assert eventually(is_said, "the end of it")[0]["duration_ms"] >= 5000
    assert set(served) == {201} and upstream.effects("/refunds") == len(served)


def test_a_node_that_still_has_a_route_which_is_gone_refuses_it(start_gateway, database, upstream):
    old, new = (start_gateway(by("authorization"), store=database.url) for _ in range(2))
    assert old.post("/refunds", key=fresh_key(), json=REFUND).status == 201
    database.ask("DELETE FROM hapax.operations")  # its lifetime is over
    write(new, "routes: [{name: payouts, match: POST /payouts}]\n")
    new.signal(signal.SIGHUP)
    new.wait_events("configuration_reloaded")
    old.post("/refunds", key=fresh_key(), json=REFUND).refuses(503, UNAVAILABLE)
    assert new.post("/refunds", key=fresh_key(), json=REFUND).status == 201  # under the defaults
    assert upstream.effects("/refunds") == 2


def test_a_node_on_which_a_path_is_no_route_yet_refuses_it(start_gateway, database, upstream, key):
    """On one node the path has become a route, so that its operations are others than those of the defaults: the node
    that still has the defaults for it must not run what that one has run."""
    config = "routes:\n  - {name: payouts, match: POST /payouts}\n"
    old, new = (start_gateway(config, store=database.url) for _ in range(2))
    config += "  - {name: refunds, match: 'POST /{any}'}\n"
    write(new, config)
    new.signal(signal.SIGHUP)
    new.wait_events("configuration_reloaded")
    assert new.post("/refunds", key=key, json=REFUND).status == 201
    old.post("/refunds", key=key, json=REFUND).refuses(503, UNAVAILABLE)
    assert old.post("/payouts", key=fresh_key(), json=REFUND).status == 201  # whose requests still come to it
    write(old, config)
    old.signal(signal.SIGHUP)
    old.wait_events("configuration_reloaded")
    assert old.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_what_is_only_watched_is_kept_on_a_shared_store_too(start_gateway, database, upstream, key):
    node = start_gateway(by("authorization") + "    mode: shadow\n", store=database.url)
    first, second = (node.post("/refunds", key=key, json=REFUND) for _ in range(2))
    assert (first.header("Hapax-Shadow"), second.status) == ("would-forward", 201)
    eventually(lambda: node.post("/refunds", key=key, json=REFUND).header("Hapax-Shadow") == "would-replay",
               "what protecting it would do")
    assert database.ask("SELECT route, state FROM hapax.operations") == [("shadow:refunds", 2)]
    assert upstream.effects("/refunds") >= 3


def test_a_key_begun_by_one_node_is_the_others_too(start_gateway, database, upstream, key):
    nodes = [start_gateway(by("authorization"), store=database.url) for _ in range(2)]
    with upstream.hold("/refunds") as hold:
        first = nodes[0].send("POST", "/refunds", key=key, json=REFUND)
        hold.wait_arrived()
        second = nodes[1].send("POST", "/refunds", key=key, json=REFUND)
        second.wait_read()
        hold.release()
        assert (first.status, first.idempotency) == (201, "stored")
        assert (second.status, second.idempotency, second.body) == (201, "replayed", first.body)
    assert upstream.effects() == 1


def test_who_waits_for_another_nodes_release_is_told_to_come_back(start_gateway, database, upstream, key, tmp_path):
    def refuse(exchange):
        exchange.read_body()
        exchange.arrive()
        exchange.answer(401, b"who are you")

    def waits():
        with Connection(str(tmp_path / "admin.sock"), socket.AF_UNIX) as connection:
            return connection.request("GET", "/v1/counts").json()["store"]["waiters"] == 1

    upstream.on("/refunds", refuse)
    first_node = start_gateway(by("authorization"), store=database.url)
    second_node = start_gateway(by("authorization") + f"admin: {{listen: 'unix:{tmp_path}/admin.sock'}}\n",
                                store=database.url)
    with upstream.hold("/refunds") as hold:
        first = first_node.send("POST", "/refunds", key=key, json=REFUND)
        hold.wait_arrived()
        second = second_node.send("POST", "/refunds", key=key, json=REFUND)
        eventually(waits, "the second request to wait")
        hold.release()
        assert (first.status, first.idempotency) == (401, "released")
        second.response.refuses(409, "CONFLICT.idempotency.in_flight")
        assert second.header("Retry-After") == "1"
    assert upstream.effects() == 0 and len(upstream.received("/refunds")) == 1


def test_windows_on_two_nodes_have_one_effect(start_gateway, database, upstream):
    """Where a window ends is where two nodes may each begin the same operation: short ones end all the time."""
    config = """
routes:
  - name: reports
    match: POST /reports
    lease: 1s
    upstream_timeout: 1s
    lifetime: 1h
    retry: {total: 1s}
    wait: 10s
    key: {from: "{body:/id}:{window:2s}", shared: true, overlap: 60s}
"""
    nodes = [start_gateway(config, store=database.url) for _ in range(2)]
    for number in range(60):
        pending = [node.send("POST", "/reports", json={"id": f"r{number}"}) for node in nodes for _ in range(2)]
        statuses = sorted(one.status for one in pending)
        assert set(statuses) <= {201, 409}, statuses  # both may give way to each other, and say so
        again = eventually(lambda n=number: (found := nodes[0].post("/reports", json={"id": f"r{n}"})).status == 201
                           and found, "an answer")
        assert again.header("Idempotency-Status") in ("replayed", "stored")
        assert upstream.effects("/reports") == number + 1


def test_a_former_name_is_looked_up_on_every_node(start_gateway, database, upstream, key):
    before = start_gateway(by("authorization"), store=database.url)
    first = before.post("/refunds", key=key, json=REFUND)
    renamed = by("authorization").replace("name: refunds", "name: payouts\n    formerly: [older, refunds]")
    before.terminate()
    before.wait_exit()
    after = start_gateway(renamed, store=database.url, flags=["--accept-rescope"])
    again = after.post("/refunds", key=key, json=REFUND)
    assert (again.idempotency, again.body) == ("replayed", first.body)
    other = fresh_key()
    assert after.post("/refunds", key=other, json=REFUND).idempotency == "stored"
    assert after.post("/refunds", key=other, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 2


def test_an_outage_is_503_said_once_and_over_by_itself(start_gateway, start_postgres, upstream):
    server = start_postgres()
    database = server.create_database()
    gateway = start_gateway(by("authorization"), store=database.url)
    key = fresh_key()
    kept = gateway.post("/refunds", key=key, json=REFUND)
    server.kill()
    for _ in range(5):
        refused = gateway.post("/refunds", key=fresh_key(), json=REFUND)
        refused.refuses(503, UNAVAILABLE)
        assert refused.header("Retry-After") == "1"
    assert gateway.get("/refunds").status == 200  # unprotected traffic goes on
    assert upstream.effects("/refunds") == 1
    server.start()
    eventually(lambda: gateway.post("/refunds", key=key, json=REFUND).status == 201, "the store")
    assert gateway.post("/refunds", key=key, json=REFUND).body == kept.body

    def is_said():
        gateway.post("/refunds", key=key, json=REFUND)
        return gateway.events(UP)

    assert eventually(is_said, "the end of the outage")[0]["failed_calls"] >= 5
    assert len(gateway.events(DOWN)) == 1 and len(gateway.events(UP)) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("credential", ["old", "new"])
def test_a_callers_other_credential_learns_nothing_on_another_node(start_gateway, database, upstream, key, credential):
    nodes = [start_gateway(by("authorization"), store=database.url) for _ in range(2)]
    nodes[0].post("/refunds", key=key, json=REFUND, auth=basic("ann", "old"))
    answer = nodes[1].post("/refunds", key=key, json=REFUND, auth=basic("ann", credential))
    assert answer.status == (201 if credential == "old" else 403)
    assert upstream.effects("/refunds") == 1
