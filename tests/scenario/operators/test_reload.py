# SPDX-License-Identifier: Apache-2.0
"""Reload: SIGHUP and `hapax reload` put a new configuration in force while requests are under way. Those keep the rules
that they began with; a file that isn't right changes nothing and says why; and no request is lost or sees two sets of
rules."""
import contextlib
import json
import pathlib
import signal
import socket
import sqlite3
import textwrap
from datetime import datetime, timezone

import pytest

from harness import EXIT_CONFIG, EXIT_STORE, Connection, answer, binary, eventually, fresh_key, request_bytes

REFUND = {"charge_id": "ch_1", "amount": 1000}
REFUNDS = """\
routes:
  - name: refunds
    match: POST /refunds
"""
REJECTING = REFUNDS + "    on_duplicate: reject\n"


def write(gateway, config):
    """At once, as an editor or a deployment does it: no reader sees half of a file."""
    new = gateway.config.with_suffix(".new")
    new.write_text(textwrap.dedent(config), encoding="utf-8")
    new.replace(gateway.config)


def about(gateway):
    with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
        return connection.request("GET", "/v1/counts").json()


@pytest.fixture
def reload(hapax):
    """reload(gateway, config): what the command said about it."""

    def run(gateway, config=None, *words):
        if config is not None:
            write(gateway, config)
        return hapax("reload", "--store", gateway.store_url, *words)

    return run


@pytest.fixture
def gateway(start_gateway):
    return start_gateway(config=REFUNDS, workers=2)


def test_later_requests_get_the_new_rules(gateway, upstream, reload, key):
    gateway.post("/refunds", key=key, json=REFUND)
    result = reload(gateway, REJECTING)
    assert (result.code, result.stdout) == (0, "The configuration is in force: generation 2.\n"), result
    for _ in range(10):  # whichever worker they come to
        gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.duplicate_rejected")
    assert upstream.effects("/refunds") == 1
    told = gateway.wait_events("configuration_reloaded")[0]
    assert (told["generation"], told["file"]) == (2, str(gateway.config))
    assert about(gateway)["generation"] == 2


def test_a_reload_says_what_is_worth_a_look(gateway, upstream, reload):
    event = "configuration_warning"
    assert gateway.events(event) == []
    result = reload(gateway, REFUNDS + '  - {name: any, match: "POST /a/{id}"}\n  - {name: special, match: "/a/b"}\n')
    assert result.code == 0, result.stderr
    eventually(lambda: ["some requests match both" in told["note"] for told in gateway.events(event)] == [True],
               "the note in the log")


def test_sighup_reads_the_file_again(gateway, upstream, key):
    gateway.post("/refunds", key=key, json=REFUND)
    write(gateway, REJECTING)
    gateway.signal(signal.SIGHUP)
    gateway.wait_events("configuration_reloaded")
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.duplicate_rejected")
    assert upstream.effects("/refunds") == 1


def test_a_signal_that_comes_while_a_file_is_taken_over_counts(database, start_node):
    node = start_node(database.url, REFUNDS)
    config = node.config.read_text(encoding="utf-8")
    with contextlib.closing(database.connect()) as holder, holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLE hapax.rules IN ROW SHARE MODE")  # as a claim does: other rules wait for it
        write(node, config + "error_docs: https://example.org/first/\n")
        node.signal(signal.SIGHUP)
        eventually(lambda: database.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"), "the wait")
        write(node, config + "error_docs: https://example.org/last/\n")
        node.signal(signal.SIGHUP)
        for _ in range(20):
            node.counts()  # by the loop that takes the signal, too
    eventually(lambda: node.post("/refunds", json=REFUND).json()["type"].startswith("https://example.org/last/"),
               "the last file in force")


BROKEN = """
    routes:
      - name: refunds
        match: POST /refunds
        lifetme: 1h
      - name: refunds
        match: POST /orders
        wait: forever
    """


@pytest.mark.parametrize("how", ["command", "signal"])
def test_a_broken_file_changes_nothing_and_says_why(gateway, upstream, reload, key, how):
    first = gateway.post("/refunds", key=key, json=REFUND)
    mistakes = ['unknown option "lifetme"', "refunds", "wait"]
    if how == "command":
        result = reload(gateway, BROKEN)
        assert result.code == EXIT_CONFIG and "the old one is still active" in result.stderr, result
        assert all(mistake in result.stderr for mistake in mistakes), result
        assert str(gateway.config) + ":5:" in result.stderr, result
    else:
        write(gateway, BROKEN)
        gateway.signal(signal.SIGHUP)
    told = gateway.wait_events("configuration_rejected", len(mistakes))
    assert all(any(mistake in line["problem"] for line in told) for mistake in mistakes), told
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.body, again.idempotency) == (first.body, "replayed")
    assert upstream.effects("/refunds") == 1
    assert about(gateway)["generation"] == 1


def test_a_file_that_is_gone_changes_nothing(gateway, reload):
    gateway.config.unlink()
    result = reload(gateway)
    assert result.code == EXIT_CONFIG and str(gateway.config) in result.stderr, result
    assert about(gateway)["generation"] == 1


@pytest.mark.parametrize("option, line", [
    ("listen", "listen: 127.0.0.1:1"), ("upstream", "upstream: http://127.0.0.1:1"), ("store", "store: 'memory:'"),
    ("workers", "workers: 3"), ("admin", "admin: {listen: 'unix:/tmp/other.sock'}")])
def test_what_is_opened_once_cannot_change(start_gateway, upstream, reload, tmp_path, option, line):
    fixed = {"listen": "127.0.0.1:0", "upstream": upstream.url, "store": f"journal:{tmp_path}/s", "workers": "2",
             "admin": f"{{listen: 'unix:{tmp_path}/admin.sock'}}"}
    config = "".join(f"{name}: {value}\n" for name, value in fixed.items())
    gateway = start_gateway(config=config, started=False)
    gateway.command = lambda: [str(binary()), "serve", "--config", str(gateway.config)]
    gateway.start()
    changed = "".join(f"{name}: {value}\n" for name, value in fixed.items() if name != option) + line + "\n"
    write(gateway, changed)
    result = reload(gateway, None, "--admin", f"unix:{tmp_path}/admin.sock")
    assert result.code == EXIT_CONFIG and f'"{option}" can\'t change while running' in result.stderr, result
    assert result.stderr.count("can't change") == 1, result
    assert gateway.get("/up").status == 200


def test_flags_of_the_start_keep_overriding(start_gateway, reload):
    """--listen, --upstream and --store were given, so what the file says of them doesn't count."""
    gateway = start_gateway(config=REFUNDS)
    result = reload(gateway, REFUNDS + "listen: 127.0.0.1:1\nupstream: http://127.0.0.1:1\n")
    assert result.code == 0, result
    assert gateway.get("/up").status == 200


def test_without_a_file_there_is_nothing_to_reload(start_gateway, reload):
    gateway = start_gateway(flags_only=True)
    result = reload(gateway)
    assert result.code == EXIT_CONFIG and "started with flags only" in result.stderr, result
    gateway.signal(signal.SIGHUP)
    gateway.wait_events("configuration_rejected", 2)
    assert gateway.get("/up").status == 200


def test_the_file_is_found_from_anywhere(start_gateway, reload):
    gateway = start_gateway(config=REFUNDS, started=False)
    absolute, gateway.config = gateway.config, pathlib.Path("hapax.yaml")
    gateway.start(cwd=absolute.parent)
    gateway.config = absolute
    result = reload(gateway, REJECTING)
    assert result.code == 0, result
    told = gateway.wait_events("configuration_reloaded")[0]
    assert told["file"] == str(absolute)


def test_a_daemon_that_is_not_there_is_told_apart(hapax, tmp_path):
    result = hapax("reload", "--store", f"journal:{tmp_path}")
    assert result.code == EXIT_STORE and "there is no such socket" in result.stderr, result


def test_a_request_under_way_keeps_its_rules(gateway, upstream, reload, key):
    """Its answer is kept for as long as the rules said when it began."""
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        result = reload(gateway, REFUNDS + "    lifetime: 300h\n")
        assert result.code == 0, result
        assert about(gateway)["generations_in_use"] == 2
        other = fresh_key()
        second = gateway.post_later("/refunds", key=other, json=REFUND)
        held.wait_arrived(2)
    kept = [expires_in_hours(response) for response in (first, second)]
    assert kept == [pytest.approx(24, abs=1), pytest.approx(300, abs=1)]
    eventually(lambda: about(gateway)["generations_in_use"] == 1, "the first rules being let go")
    assert upstream.effects("/refunds") == 2


def expires_in_hours(response):
    expires = datetime.fromisoformat(response.header("Idempotency-Expires").replace("Z", "+00:00"))
    return (expires - datetime.now(timezone.utc)).total_seconds() / 3600


def test_a_request_under_way_holds_its_rules(gateway, upstream, reload, key):
    """It is a live operation: other rules for its route have to wait for it."""
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        result = reload(gateway, REFUNDS + "    scope: route\n")
        assert result.code == EXIT_CONFIG and 'route "refunds" has 1 live operation' in result.stderr, result
    assert first.status == 201
    assert upstream.effects("/refunds") == 1


def begin_slowly(gateway, key, path="/refunds"):
    """A request whose rules are decided, and whose operation isn't begun: the end of its body is missing."""
    body = json.dumps(REFUND).encode()
    connection = gateway.connect()
    whole = request_bytes("POST", path, [("Idempotency-Key", key), ("Content-Type", "application/json")], body)
    connection.send(whole[:-5])
    connection.wait_read()
    return connection, whole[-5:]


@pytest.mark.parametrize("before, after", [
    (REFUNDS, REFUNDS + "    scope: route\n"),
    (REFUNDS, REFUNDS.replace("name: refunds", "name: returns")),
    (REFUNDS, "defaults: {lifetime: 24h}\n"),
    ("defaults: {lifetime: 24h}\n", REFUNDS),
    ("defaults: {lifetime: 24h}\n", "defaults: {scope: route}\n"),
], ids=["rules", "name", "removed", "taken over", "defaults"])
def test_nothing_begins_under_rules_that_are_gone(start_gateway, upstream, reload, key, before, after):
    """A request may be under way when the last rules of its kind go: had it begun an operation under those, its
    repetition would not find it."""
    gateway = start_gateway(config=before, workers=2)
    connection, rest = begin_slowly(gateway, key)
    assert reload(gateway, after).code == 0
    connection.send(rest)
    late = connection.receive("POST")
    assert "configuration of this route changed" in late.refuses(503, "DEPENDENCY.unavailable")["detail"]
    assert late.header("Retry-After") == "1"
    assert upstream.effects("/refunds") == 0
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_rules_that_are_gone_may_come_back(gateway, upstream, reload, key):
    connection, rest = begin_slowly(gateway, key)
    assert reload(gateway, REFUNDS + "    scope: route\n").code == 0
    assert reload(gateway, REFUNDS).code == 0
    connection.send(rest)  # its rules are in force again
    assert connection.receive("POST").idempotency == "stored"
    eventually(lambda: about(gateway)["generations_in_use"] == 1, "the other generations being let go")
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert gateway.post("/refunds", key=fresh_key(), json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


def test_a_request_under_way_is_known_by_the_routes_new_name(gateway, upstream, reload, key):
    connection, rest = begin_slowly(gateway, key)
    assert reload(gateway, REFUNDS.replace("name: refunds", "name: returns\n    formerly: [refunds]")).code == 0
    connection.send(rest)
    first = connection.receive("POST")
    assert first.idempotency == "stored", first
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.body, again.idempotency) == (first.body, "replayed")
    assert upstream.effects("/refunds") == 1


def test_limits_take_effect(gateway, reload):
    long = "x" * 5000
    assert gateway.get("/up", headers=[("X-Long", long)]).status == 200
    assert reload(gateway, REFUNDS + "limits: {head_bytes: 4096}\n").code == 0
    for _ in range(6):
        assert gateway.get("/up", headers=[("X-Long", long)]).status == 431
    assert reload(gateway, REFUNDS).code == 0
    for _ in range(6):
        assert gateway.get("/up", headers=[("X-Long", long)]).status == 200


def test_a_full_store_that_may_grow_takes_keys_again(start_gateway, upstream, reload, hapax):
    small = "defaults: {answer_max: 8MiB}\nstore_max: 48MiB\n"
    gateway = start_gateway(config=small)
    upstream.on("/refunds", answer(201, b"x" * (4 << 20)))
    for tried in range(20):
        full = gateway.post("/refunds", key=fresh_key(), json=REFUND)
        if full.status != 201:
            break
    problem = full.refuses(503, "TRANSIENT.overloaded")
    assert problem["title"] == "The idempotency store is full"
    assert [name for name, is_on in gateway.counts("refusing").items() if is_on] == ["store_full"]
    told = hapax("keys", "list", "--state", "unknown", "--store", gateway.store_url)
    assert told.code == 0 and "Requests are refused: the store is full" in told.stderr, told
    assert [line["level"] for line in gateway.wait_events("store_full")] == ["error"]
    assert reload(gateway, small.replace("48MiB", "480MiB")).code == 0
    eventually(lambda: gateway.post("/refunds", key=fresh_key(), json=REFUND).status == 201, "room for a new key")
    assert upstream.effects("/refunds") == tried + 1
    upstream.on("/refunds", answer(201, b"x"))
    eventually(lambda: gateway.post("/refunds", key=fresh_key(), json=REFUND).status == 201 and
               gateway.events("store_not_full"), "the log saying that it is over")
    assert not any(gateway.counts("refusing").values())
    assert "refused" not in hapax("keys", "list", "--store", gateway.store_url).stderr


def test_a_store_max_that_is_too_small_is_refused(gateway, reload):
    result = reload(gateway, REFUNDS + "store_max: 1MiB\n")
    assert result.code == EXIT_CONFIG and "store_max is too small" in result.stderr, result
    assert reload(gateway, REFUNDS + "store_max: 10GiB\n").code == 0


@pytest.mark.parametrize("has_live", [False, True])
def test_a_reload_that_is_refused_at_its_end_holds_nothing_up(gateway, upstream, reload, has_live):
    """By then nothing begins any more under the rules that were to go."""
    if has_live:
        gateway.post("/refunds", key=fresh_key(), json=REFUND)
    result = reload(gateway, REFUNDS + "    principal: [header:X-User]\nstore_max: 1MiB\n", "--accept-rescope")
    assert result.code == EXIT_CONFIG and "store_max is too small" in result.stderr, result
    for _ in range(10):  # whichever worker they come to
        assert gateway.post("/refunds", key=fresh_key(), json=REFUND).idempotency == "stored"


def test_waiters_take_effect(gateway, upstream, reload, key):
    assert reload(gateway, REFUNDS + "limits: {waiters_per_operation: 1}\n").code == 0
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        second = gateway.post_later("/refunds", key=key, json=REFUND)
        gateway.wait_waiting(1)
        third = gateway.post("/refunds", key=key, json=REFUND)
        third.refuses(503, "TRANSIENT.overloaded")
        assert gateway.counts("refusing")["waiters_full"]
        gateway.wait_events("waiters_full")
    assert (first.status, second.status) == (201, 201)
    assert upstream.effects("/refunds") == 1


def test_the_log_changes_its_form(gateway, reload):
    assert reload(gateway, REFUNDS + "log_format: readable\naccess_log: off\n").code == 0
    lines = len(gateway.output)
    gateway.get("/up")
    assert reload(gateway, REFUNDS + "log_format: json\n").code == 0
    gateway.get("/up")
    eventually(lambda: any('"event":"request"' in line for line in gateway.output[lines:]), "a line in JSON again")
    between = [line for line in gateway.output[lines:] if not line.startswith("{")]
    assert between and not any("GET" in line for line in between), between


def test_a_reload_while_it_drains_is_no_reload(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.terminate()
        gateway.wait_events("draining")
        with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
            refused = connection.request("POST", "/v1/reload").json()
        assert refused["errors"] == ["the daemon is stopping"]
        gateway.signal(signal.SIGHUP)
    assert first.status == 201
    assert gateway.wait_exit() == 0
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("body, says", [(b"[]", "must be a JSON object"), (b"{", "must be a JSON object"),
                                        (b'{"accept_rescope": 1}', "must be true or false")])
def test_a_wish_that_makes_no_sense_is_refused(gateway, body, says):
    with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
        refused = connection.request("POST", "/v1/reload", body=body)
        assert refused.status == 400 and says in refused.json()["detail"]
    assert about(gateway)["generation"] == 1


def test_claims_are_allowed_again_when_the_store_is_there_again(start_gateway, upstream, reload, tmp_path):
    """The last request under the old rules ends while the store's file is away."""
    database, away = tmp_path / "keys.db", tmp_path / "keys.away"
    gateway = start_gateway(f"admin: {{listen: unix:{tmp_path}/admin.sock}}\n" + REFUNDS, store=f"sqlite:{database}")
    with upstream.hold("/held") as held:
        under_way = gateway.send("GET", "/held")
        held.wait_arrived()
        write(gateway, f"admin: {{listen: unix:{tmp_path}/admin.sock}}\n" + REFUNDS + "    scope: route\n")
        gateway.signal(signal.SIGHUP)
        gateway.wait_events("configuration_reloaded")
        with contextlib.closing(sqlite3.connect(database)) as store:
            retired = store.execute("SELECT route FROM hapax_retired").fetchall()
        database.rename(away)
        held.release()
        assert under_way.status == 200
        gateway.wait_events("sqlite_write_failed")
        away.rename(database)
    assert retired == [("refunds",)]
    with contextlib.closing(sqlite3.connect(database)) as store:
        eventually(lambda: not store.execute("SELECT route FROM hapax_retired").fetchall(), "the rules allowed again")
    assert gateway.post("/refunds", key=fresh_key(), json=REFUND).idempotency == "stored"
