# SPDX-License-Identifier: Apache-2.0
"""Rules are part of the key: a route that is renamed, or knows its callers, keys or payloads by other rules, would run
the keys of its live operations again. That is refused at a start and at a reload, unless the route says what it was
called, or the operator accepts it."""
import contextlib
import signal
import textwrap

import pytest

from harness import (EXIT_CONFIG, Run, answer, basic, drop_after_effect, eventually, fresh_key, hours_ahead, in_turn,
                     numbered)

ALICE = basic("alice", "pw")
REFUND = {"charge_id": "ch_1", "amount": 1000}
REFUNDS = """
    routes:
      - name: refunds
        match: POST /refunds
    """
RENAMED = """
    routes:
      - name: reimbursements
        match: POST /refunds
    """
FORMERLY = """
    routes:
      - name: reimbursements
        formerly: [refunds]
        match: POST /refunds
    """
BY_HEADER = """
    routes:
      - name: refunds
        match: POST /refunds
        principal: ["header:X-User"]
    """
WITHOUT_AMOUNT = """
    routes:
      - name: refunds
        match: POST /refunds
        fingerprint: {ignore: [/amount]}
    """
BY_SCOPE = """
    routes:
      - name: refunds
        match: POST /refunds
        scope: principal
    """
PASSED = """
    routes:
      - name: refunds
        match: POST /refunds
        mode: pass
        because: it has its own keys
    """
NOTHING = """
    defaults:
      lifetime: 24h
    """
CHANGES = {"renamed": RENAMED, "principal": BY_HEADER, "fingerprint": WITHOUT_AMOUNT, "scope": BY_SCOPE,
           "passed": PASSED, "removed": NOTHING}


class Changing:
    """A gateway whose configuration changes, by a restart or by a reload."""

    def __init__(self, gateway, how):
        self.gateway, self.how = gateway, how

    def change(self, config, *flags):
        """Whether it was taken, and what was said. What isn't leaves everything as it was."""
        before = self.gateway.config.read_text(encoding="utf-8")
        self.gateway.config.write_text(textwrap.dedent(config), encoding="utf-8")
        taken, said = self.reload(flags) if self.how == "reload" else self.restart(flags)
        if not taken:
            self.gateway.config.write_text(before, encoding="utf-8")
            if self.how == "restart":
                self.gateway.start()
        return taken, said

    def reload(self, flags):
        result = Run(["reload", "--store", self.gateway.store_url, *flags])
        assert result.code in (0, EXIT_CONFIG), result
        return result.code == 0, result.stdout + result.stderr

    def restart(self, flags):
        self.gateway.terminate()
        assert self.gateway.wait_exit() == 0
        given, self.gateway.flags = self.gateway.flags, [*self.gateway.flags, *flags]
        first = len(self.gateway.output)
        with contextlib.suppress(AssertionError):
            self.gateway.start()
        self.gateway.flags = given
        taken = self.gateway.is_running()
        assert taken or self.gateway.wait_exit() == EXIT_CONFIG, self.gateway.shown_output()
        return taken, "\n".join(self.gateway.output[first:]).replace(chr(92) + chr(34), chr(34))  # as it is in JSON


@pytest.fixture(params=["restart", "reload"])
def changing(request, start_gateway):
    return lambda config: Changing(start_gateway(config=config, workers=2), request.param)


@pytest.mark.parametrize("change", CHANGES)
def test_rules_of_a_route_with_live_operations_stay_as_they_are(changing, upstream, key, change):
    c = changing(REFUNDS)
    first = c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    taken, said = c.change(CHANGES[change])
    assert not taken
    assert 'route "refunds" has 1 live operation' in said and "--accept-rescope" in said, said
    assert ("formerly" in said) == (change in ("renamed", "removed"))
    again = c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    assert (again.status, again.body, again.idempotency) == (201, first.body, "replayed")
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("change", CHANGES)
def test_rules_of_a_route_without_live_operations_may_change(changing, upstream, key, change):
    c = changing(REFUNDS)
    upstream.on("/refunds", in_turn(answer(401), numbered))  # released: nothing is kept
    assert c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE).status == 401
    taken, said = c.change(CHANGES[change])
    assert taken, said
    assert c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE).status == 201
    assert upstream.effects("/refunds") == 2


def test_a_renamed_route_that_says_so_knows_its_operations(changing, upstream, key):
    c = changing(REFUNDS)
    first = c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    taken, said = c.change(FORMERLY)
    assert taken, said
    later = fresh_key()
    second = c.gateway.post("/refunds", key=later, json=REFUND, auth=ALICE)
    for name, config in (("once more", FORMERLY), ("again as before", REFUNDS)):
        for stored, known in ((first, key), (second, later)):
            again = c.gateway.post("/refunds", key=known, json=REFUND, auth=ALICE)
            assert (again.body, again.idempotency) == (stored.body, "replayed"), name
        taken, said = c.change(config)
        assert taken, said
    assert upstream.effects("/refunds") == 2


def test_the_operator_may_accept_that_keys_run_again(changing, upstream, key):
    c = changing(REFUNDS)
    c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    taken, said = c.change(BY_HEADER, "--accept-rescope")
    assert taken and 'route "refunds" has 1 live operation' in said, said
    again = c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    assert again.idempotency == "stored"
    assert upstream.effects("/refunds") == 2


def come_up(gateway, config, *flags):
    """A start with that file; whether it serves."""
    gateway.config.write_text(textwrap.dedent(config), encoding="utf-8")
    given, gateway.flags = gateway.flags, [*gateway.flags, *flags]
    with contextlib.suppress(AssertionError):
        gateway.start()
    gateway.flags = given
    if gateway.is_running():
        return True
    assert gateway.wait_exit() == EXIT_CONFIG, gateway.shown_output()
    return False


def stop(gateway):
    gateway.terminate()
    assert gateway.wait_exit() == 0


@pytest.fixture(params=["journal", "sqlite", "postgres"])
def kind(request, tmp_path):
    """A store, by its URL: what one gateway has accepted is there for the next."""
    if request.param == "postgres":
        return request.getfixturevalue("database").url
    return f"{request.param}:{tmp_path}/kept"


@pytest.mark.parametrize("before, after", [(REFUNDS, BY_HEADER), (REFUNDS, PASSED), (REFUNDS, NOTHING),
                                           (NOTHING, REFUNDS)], ids=["rules", "passed", "removed", "taken over"])
def test_what_was_accepted_is_remembered_by_the_store(kind, start_gateway, upstream, key, before, after):
    """An operation that is unknown never expires: it must not keep a gateway from ever starting again."""
    gateway = start_gateway(before, store=kind)
    upstream.on("/refunds", in_turn(drop_after_effect(), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND, auth=ALICE).idempotency == "unknown"
    assert gateway.post("/refunds", key=fresh_key(), json=REFUND, auth=ALICE).idempotency == "stored"
    stop(gateway)
    assert not come_up(gateway, after)
    assert come_up(gateway, after, "--accept-rescope")
    for _ in range(2):
        stop(gateway)
        assert come_up(gateway, after), gateway.shown_output()
        gateway.signal(signal.SIGHUP)
        assert gateway.wait_events("configuration_reloaded")
    assert upstream.effects("/refunds") == 2


def test_rules_that_were_given_up_and_come_back_are_refused_anew(kind, start_gateway, upstream, key):
    """What is done under them then was never accepted to be given up."""
    gateway = start_gateway(REFUNDS, store=kind)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    stop(gateway)
    assert come_up(gateway, BY_HEADER, "--accept-rescope")
    stop(gateway)
    assert come_up(gateway, REFUNDS)  # nothing was done under the others
    again = gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    assert (again.body, again.idempotency) == (first.body, "replayed")
    stop(gateway)
    assert not come_up(gateway, BY_HEADER)
    assert come_up(gateway, REFUNDS)
    assert upstream.effects("/refunds") == 1


def test_another_node_needs_not_accept_it_again(start_node, database, upstream, key, hapax):
    one, other = (start_node(database.url, REFUNDS) for _ in range(2))
    assert one.post("/refunds", key=key, json=REFUND, auth=ALICE).status == 201
    for node, flags in ((one, ["--accept-rescope"]), (other, [])):
        config = node.config.read_text(encoding="utf-8")
        node.config.write_text(config + "    principal: [\"header:X-User\"]\n", encoding="utf-8")
        if flags:
            assert hapax("reload", "--config", node.config).code == EXIT_CONFIG
        done = hapax("reload", "--config", node.config, *flags)
        assert done.code == 0, done
    for node in (one, other):
        assert node.post("/refunds", key=key, json=REFUND, headers=[("X-User", "ann")]).status == 201
    stop(other)
    other.start()
    assert other.post("/refunds", key=key, json=REFUND, headers=[("X-User", "ann")]).idempotency == "replayed"
    assert upstream.effects("/refunds") == 2


def test_what_was_accepted_comes_along_in_a_copy(start_gateway, upstream, key, hapax, tmp_path):
    gateway = start_gateway(REFUNDS)
    assert gateway.post("/refunds", key=key, json=REFUND, auth=ALICE).status == 201
    stop(gateway)
    assert come_up(gateway, BY_HEADER, "--accept-rescope")
    stop(gateway)
    copy = f"sqlite:{tmp_path}/copy.db"
    assert hapax("store", "copy", gateway.store_url, copy).code == 0
    assert start_gateway(BY_HEADER, store=copy).is_running()


def test_operations_under_the_defaults_count_too(changing, upstream, key):
    c = changing(NOTHING)
    first = c.gateway.post("/orders/17", key=key, json=REFUND, auth=ALICE)
    taken, said = c.change("""
        defaults:
          principal: ["header:X-User"]
        """)
    assert not taken and "what matches no route has 1 live operation" in said, said
    taken, said = c.change("""
        defaults:
          lifetime: 48h
          on_unknown: hold
        """)
    assert taken, said
    again = c.gateway.post("/orders/17", key=key, json=REFUND, auth=ALICE)
    assert (again.body, again.idempotency) == (first.body, "replayed")
    assert upstream.effects("/orders/17") == 1


def test_a_route_does_not_quietly_take_over_a_path_from_the_defaults(changing, upstream, key):
    c = changing(NOTHING)
    first = c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    c.gateway.post("/orders", key=key, json=REFUND, auth=ALICE)
    taken, said = c.change(REFUNDS)
    assert not taken and 'route "refunds" takes over POST /refunds, which has 1 live operation' in said, said
    assert "formerly: ['POST /refunds']" in said
    for config in ("""
                   routes:
                     - name: refunds
                       formerly: ["POST /refunds"]
                       match: POST /refunds
                   """, """
                   routes:
                     - match: POST /refunds
                   """, NOTHING):  # the last two: its name is that text by default, and so is the defaults' own
        taken, said = c.change(config)
        assert taken, said
        again = c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
        assert (again.body, again.idempotency) == (first.body, "replayed"), config
    assert (upstream.effects("/refunds"), upstream.effects("/orders")) == (1, 1)


def test_unknown_operations_hold_the_rules_as_long_as_they_live(changing, upstream, key, hapax):
    c = changing(REFUNDS)
    upstream.on("/refunds", in_turn(drop_after_effect(), numbered))
    assert c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE).idempotency == "unknown"
    taken, said = c.change(RENAMED)
    assert not taken, said
    where = ("--store", c.gateway.store_url)
    assert hapax("keys", "forget", key, "--why", "it never happened", *where).code == 0
    taken, said = c.change(RENAMED)
    assert taken, said
    assert upstream.effects("/refunds") == 1


@pytest.mark.slow
def test_what_has_expired_holds_nothing(changing, upstream, key):
    c = changing("""
        routes:
          - name: refunds
            match: POST /refunds
            lifetime: 6s
            lease: 1s
            upstream_timeout: 2s
            retry: {attempts: 1, total: 1ms}
        """)
    c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    taken, said = c.change(RENAMED)
    assert not taken, said
    eventually(lambda: c.change(RENAMED)[0], "the operation expired")
    assert c.gateway.post("/refunds", key=key, json=REFUND, auth=ALICE).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


def test_what_expired_while_the_gateway_was_down_holds_nothing(start_gateway, upstream, key):
    """Nothing has swept since: the tombstone still stands in the store."""
    gateway = start_gateway(config=REFUNDS.rstrip(" ") + "        tombstone: 1h\n")
    gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    gateway.terminate()
    assert gateway.wait_exit() == 0
    gateway.config.write_text(textwrap.dedent(RENAMED), encoding="utf-8")
    gateway.start(env=hours_ahead(48))
    assert gateway.post("/refunds", key=key, json=REFUND, auth=ALICE).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


def test_two_routes_become_one_at_a_start_only(start_gateway, upstream, key):
    gateway = start_gateway(config="""
        routes:
          - {name: refunds, match: POST /refunds}
          - {name: returns, match: POST /returns}
        """)
    joined = """
        routes:
          - {name: refunds, match: "POST /refunds", formerly: [returns]}
          - {name: other, match: POST /returns}
        """
    first = gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    by_reload, by_start = Changing(gateway, "reload"), Changing(gateway, "restart")
    taken, said = by_reload.change(joined)
    assert not taken and "needs a restart" in said, said
    taken, said = by_start.change(joined)
    assert taken, said
    again = gateway.post("/refunds", key=key, json=REFUND, auth=ALICE)
    assert (again.body, again.idempotency) == (first.body, "replayed")
    assert upstream.effects("/refunds") == 1


def test_a_refused_change_names_the_rule_that_changed(changing, upstream, key):
    changed = changing(REFUNDS)
    assert changed.gateway.post("/refunds", key=key, json={}).status == 201
    taken, said = changed.change(BY_HEADER)
    assert not taken
    assert "(principal)" in said and "fingerprint" not in said and "forward_key" not in said, said
    assert upstream.effects("/refunds") == 1
