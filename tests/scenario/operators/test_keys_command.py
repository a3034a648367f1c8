# SPDX-License-Identifier: Apache-2.0
"""hapax keys: an operator finds what is unknown, sees its history, and says what became of it. Each act is fenced by
the operation's epoch and leaves who and why behind."""
import json
import os
import pty
import pwd
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from harness import (EXIT_ADDRESS, EXIT_CONFIG, EXIT_STORE, HANG_S, Connection, SlowDisk, answer, basic, binary,
                     drop_after_effect, eventually, fresh_key, hours_ahead, in_turn, numbered, request_bytes, sanitized)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"charge_id": "ch_1", "amount": 1000}
ME = f"operator {pwd.getpwuid(os.geteuid()).pw_name} (uid {os.geteuid()}): "
TWO_ROUTES = """
    routes:
      - name: refunds
        match: POST /refunds
        lifetime: 2h
      - name: orders
        match: POST /orders
    """


@pytest.fixture
def keys(hapax):
    """keys(gateway, "list", ...): a command of an operator's, with the store to find the daemon by."""
    return lambda gateway, *words, **options: hapax("keys", *words, "--store", gateway.store_url, **options)


@pytest.fixture
def unknown(gateway, upstream, key):
    """The key of an operation that happened, and whose answer never came."""
    return lose(gateway, upstream, key)


def lose(gateway, upstream, key, path="/refunds", **what):
    upstream.on(path, in_turn(drop_after_effect(), numbered))
    answer = gateway.post(path, key=key, json=REFUND, **what)
    assert (answer.status, answer.idempotency) == (502, "unknown"), answer
    return key


def listed(keys, gateway, *words):
    result = keys(gateway, "list", "--json", *words)
    assert result.code == 0, result
    return json.loads(result.stdout)["operations"]


def history(keys, gateway, name, *words):
    result = keys(gateway, "show", name, "--json", *words)
    assert result.code == 0, result
    return json.loads(result.stdout)["history"]


def admin(gateway):
    return Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX)


def call(gateway, method, target, body=None):
    with admin(gateway) as connection:
        return connection.request(method, target, body=body).response


def test_unknown_operation_is_listed(gateway, keys, unknown, upstream):
    gateway.post("/orders", key=fresh_key(), json={})
    operations = listed(keys, gateway, "--state", "unknown")
    assert [operation["route"] for operation in operations] == ["POST /refunds"]
    assert listed(keys, gateway, "--state", "pending") == []
    assert len(listed(keys, gateway, "--state", "complete")) == 1
    result = keys(gateway, "list", "--state", "unknown")
    assert result.code == 0, result
    title, row = result.stdout.splitlines()
    assert title.split() == ["CHANGED", "STATE", "ID", "ROUTE", "ATTEMPT", "STATUS", "REASON"]
    assert operations[0]["id"] in row and " unknown " in row and "DEPENDENCY.unavailable" in row, row
    assert len(listed(keys, gateway)) == 2
    assert listed(keys, gateway, "--route", "POST /refunds") == operations
    assert listed(keys, gateway, "--route", "POST /refund") == []
    assert unknown not in result.stdout, "a clear key is nowhere but in the operator's own hands"


def test_history_shows_every_change(gateway, keys, unknown, upstream):
    result = keys(gateway, "show", unknown)
    assert result.code == 0, result
    rows = result.stdout.splitlines()[-2:]
    assert "absent → processing" in rows[0] and "processing → unknown" in rows[1], result
    correlation = upstream.received("/refunds")[0].header("X-Correlation-Id")
    assert correlation in rows[0] and correlation in rows[1], result
    claimed, lost = history(keys, gateway, unknown)
    identity, epoch = upstream.received("/refunds")[0].header("Hapax-Operation").split(".")
    assert (claimed["id"], claimed["epoch"], claimed["attempt"]) == (identity, int(epoch), 1)
    assert (lost["from_state"], lost["state"], lost["reason"]) == ("processing", "unknown", "DEPENDENCY.unavailable")
    assert claimed["changed_at"] <= lost["changed_at"]
    assert history(keys, gateway, identity) == [claimed, lost]
    assert call(gateway, "GET", f"/v1/operations/{identity}").json() == {"operation": lost}


def test_an_operation_is_shown_with_its_result_and_its_payload(start_gateway, keys, upstream):
    gateway = start_gateway("routes: [{match: POST /refunds, result: /id}]")
    upstream.on("/refunds", answer(201, {"id": "rf_17"}))
    one, other = fresh_key(), fresh_key()
    for key, body in ((one, REFUND), (other, {"another": 1})):
        assert gateway.post("/refunds", key=key, json=body).status == 201
    claimed, done = history(keys, gateway, one)
    assert (claimed["result"], done["result"]) == ("", "rf_17")
    assert re.fullmatch("[0-9a-f]{64}", done["payload_hash"]) and claimed["payload_hash"] == done["payload_hash"]
    assert history(keys, gateway, other)[1]["payload_hash"] != done["payload_hash"]
    shown = keys(gateway, "show", one).stdout
    assert re.search("^result +rf_17$", shown, re.MULTILINE) and done["payload_hash"] in shown
    assert call(gateway, "GET", f"/v1/operations/{done['id']}").json()["operation"]["result"] == "rf_17"
    assert {row["result"] for row in listed(keys, gateway)} == {"rf_17"}
    assert upstream.effects("/refunds") == 2


def test_long_history_is_shown_to_its_end(gateway, keys, upstream, key):
    """More of it than one answer of the daemon's holds."""
    upstream.on("/refunds", in_turn(*[answer(401, effect=False)] * 500, numbered))
    with gateway.connect() as connection:
        for _ in range(501):
            last = connection.request("POST", "/refunds", [("Idempotency-Key", key)]).response
    assert last.status == 201, last
    changes = history(keys, gateway, key)
    assert [change["state"] for change in changes] == ["processing", "absent"] * 500 + ["processing", "completed"]
    identity = changes[0]["id"]
    page = call(gateway, "GET", f"/v1/operations/{identity}/history?limit=300").json()
    assert page["history"] == changes[:300]
    rest = call(gateway, "GET", f"/v1/operations/{identity}/history?cursor={page['cursor']}").json()
    assert (rest["history"], rest.get("cursor")) == (changes[300:], None)
    assert re.search("^state +completed$", keys(gateway, "show", key).stdout, re.MULTILINE)
    assert upstream.effects("/refunds") == 1


def test_completed_by_hand_is_replayed_exactly(gateway, keys, unknown, upstream):
    result = keys(gateway, "resolve", unknown, "--completed", "--status", "201", "--header", "Location: /refunds/rf_1",
                  "--header", "X-Note: ä", "--body", '{"id": "rf_1"}', "--why", "it is in the ledger")
    assert result.code == 0 and "201" in result.stdout, result
    for _ in range(2):
        answer = gateway.post("/refunds", key=unknown, json=REFUND)
        assert (answer.status, answer.idempotency, answer.body) == (201, "replayed", b'{"id": "rf_1"}')
        assert answer.header("Location") == "/refunds/rf_1"
        assert answer.header("Content-Type") == "application/json"
        assert answer.header("X-Note").encode("latin-1").decode() == "ä"
        assert answer.header("Date")
    assert upstream.effects("/refunds") == 1


def test_failed_by_hand_is_replayed_exactly(gateway, keys, unknown, upstream, tmp_path):
    text = "declined: ü\n" * 5000
    (tmp_path / "answer").write_text(text, encoding="utf-8")
    result = keys(gateway, "resolve", unknown, "--failed", "--status", "402", "--header", "Content-Type: text/plain",
                  "--body", f"@{tmp_path / 'answer'}", "--why", "the bank declined it")
    assert result.code == 0, result
    answer = gateway.post("/refunds", key=unknown, json=REFUND)
    assert (answer.status, answer.idempotency, answer.body.decode()) == (402, "replayed", text)
    assert answer.header("Content-Type") == "text/plain"
    assert upstream.effects("/refunds") == 1


def test_released_by_hand_runs_once_more(gateway, keys, unknown, upstream):
    gateway.post("/refunds", key=unknown, json=REFUND).refuses(409, UNKNOWN)
    result = keys(gateway, "resolve", unknown, "--release", "--why", "it is not in the ledger")
    assert result.code == 0, result
    answer = gateway.post("/refunds", key=unknown, json=REFUND)
    assert (answer.status, answer.idempotency) == (201, "stored")
    again = gateway.post("/refunds", key=unknown, json=REFUND)
    assert (again.idempotency, again.body) == ("replayed", answer.body)
    assert upstream.effects("/refunds") == 2


def test_forgotten_operation_runs_again(gateway, keys, key, upstream):
    first = gateway.post("/refunds", key=key, json=REFUND)
    identity = listed(keys, gateway)[0]["id"]
    result = keys(gateway, "forget", key, "--why", "a test in production")
    assert result.code == 0, result
    assert listed(keys, gateway) == []
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.idempotency, second.body != first.body) == ("stored", True)
    assert upstream.effects("/refunds") == 2
    changes = [(row["from_state"], row["state"], row["reason"]) for row in history(keys, gateway, identity)]
    assert ("completed", "absent", ME + "a test in production") in changes, changes


def test_tombstone_is_listed_and_forgotten(start_gateway, keys, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            lifetime: 2h
            tombstone: 30d
        """)
    lose(gateway, upstream, key)
    assert keys(gateway, "resolve", key, "--completed", "--why", "seen").code == 0
    gateway.restart("drain", env=hours_ahead(3))
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.expired")
    assert [operation["state"] for operation in listed(keys, gateway)] == ["expired"]
    assert listed(keys, gateway, "--state", "completed,unknown,failed") == []
    refused = keys(gateway, "resolve", key, "--release", "--why", "again")
    assert refused.code == EXIT_CONFIG and "expired" in refused.stderr, refused
    assert keys(gateway, "forget", key, "--why", "it is meant to happen again").code == 0
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


def test_record_that_can_not_be_read_is_forgotten(gateway, keys, upstream, key):
    upstream.on("/refunds", in_turn(answer(201, b"the first answer"), numbered))
    gateway.post("/refunds", key=key, json=REFUND)
    identity = listed(keys, gateway)[0]["id"]
    log = next(path for path in sorted(gateway.store.glob("*.seg")) if b"the first answer" in path.read_bytes())
    at = log.read_bytes().index(b"the first answer")
    with open(log, "r+b") as segment:  # while the daemon runs: the disk gives other bytes than were written
        segment.seek(at - 100)
        segment.write(b"\xff" * 150)
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    for outcome in ("--completed", "--release"):
        refused = keys(gateway, "resolve", identity, outcome, "--why", "seen")
        assert refused.code == EXIT_CONFIG and "can't be read" in refused.stderr and "forget" in refused.stderr, refused
    assert keys(gateway, "forget", identity, "--why", "not seen").code == 0
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"


def test_who_and_why_stay_in_the_history_over_a_crash(gateway, keys, unknown, upstream):
    why = "ticket 4711: „gebucht“, says the bank"
    assert keys(gateway, "resolve", unknown, "--completed", "--why", why).code == 0
    before = history(keys, gateway, unknown)
    assert [row["state"] for row in before] == ["processing", "unknown", "completed"]
    assert before[-1]["reason"] == ME + why
    assert before[-1]["status"] == 200
    said = gateway.wait_events("operation_resolved")[0]
    assert (said["uid"], said["operation"], said["why"][:12]) == (os.geteuid(), before[0]["id"], "ticket 4711:")
    gateway.restart("kill")
    assert history(keys, gateway, unknown) == before
    assert gateway.post("/refunds", key=unknown, json=REFUND).idempotency == "replayed"


def test_a_reason_is_kept_whole_or_refused(gateway, keys, unknown):
    refused = keys(gateway, "resolve", unknown, "--release", "--why", "ü" * 81)
    assert refused.code == EXIT_CONFIG and "up to 160 bytes" in refused.stderr, refused
    assert keys(gateway, "resolve", unknown, "--release", "--why", "ü" * 80).code == 0
    identity = gateway.wait_events("operation_resolved")[0]["operation"]
    assert history(keys, gateway, identity)[-1]["reason"] == ME + "ü" * 80


def test_lifetime_of_a_resolved_operation_is_its_routes(start_gateway, keys, upstream, key):
    gateway = start_gateway(TWO_ROUTES)
    lose(gateway, upstream, key)
    assert keys(gateway, "resolve", key, "--completed", "--why", "seen").code == 0
    result = json.loads(call(gateway, "GET", "/v1/operations").body)["operations"][0]
    assert result["route"] == "refunds"
    hour = {name: int(re.search(r"T(\d\d)", result[name])[1]) for name in ("changed_at", "expires_at")}
    assert (hour["expires_at"] - hour["changed_at"]) % 24 == 2, result


@pytest.mark.parametrize("words", [("resolve", "--release"), ("forget",)])
def test_wrong_epoch_changes_nothing(gateway, keys, unknown, upstream, words):
    before = history(keys, gateway, unknown)
    result = keys(gateway, *words, unknown, "--epoch", str(before[-1]["epoch"] - 1), "--why", "too late")
    assert result.code == EXIT_CONFIG, result
    assert str(before[-1]["epoch"]) in result.stderr and "unknown" in result.stderr, result
    assert history(keys, gateway, unknown) == before
    gateway.post("/refunds", key=unknown, json=REFUND).refuses(409, UNKNOWN)
    result = keys(gateway, *words, unknown, "--epoch", str(before[-1]["epoch"]), "--why", "in time")
    assert result.code == 0, result
    assert gateway.post("/refunds", key=unknown, json=REFUND).idempotency == "stored"


def test_known_outcome_is_not_resolved(gateway, keys, key, upstream):
    stored = gateway.post("/refunds", key=key, json=REFUND)
    for outcome in (("--completed",), ("--failed", "--status", "500"), ("--release",)):
        result = keys(gateway, "resolve", key, *outcome, "--why", "I know better")
        assert result.code == EXIT_CONFIG and "completed" in result.stderr and "forget" in result.stderr, result
    assert gateway.post("/refunds", key=key, json=REFUND).body == stored.body
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("words", [("resolve", "--release"), ("resolve", "--completed"), ("forget",)])
def test_operation_under_way_is_nobody_elses(gateway, keys, key, upstream, words):
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        result = keys(gateway, *words, key, "--why", "impatience")
        assert result.code == EXIT_CONFIG and "in flight" in result.stderr and "Wait" in result.stderr, result
    assert (pending.status, pending.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 1


def test_late_answer_does_not_overrule_the_operator(start_gateway, keys, upstream, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 200ms
          grace: 60s
        """)
    with upstream.hold("/refunds") as held:
        gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
        held.wait_arrived()
        assert keys(gateway, "resolve", key, "--completed", "--body", '"by hand"', "--why", "seen").code == 0
    eventually(lambda: gateway.counts()["stale_outcomes"] == 1, "the late answer being refused")
    answer = gateway.post("/refunds", key=key, json=REFUND)
    assert (answer.idempotency, answer.body) == ("replayed", b'"by hand"')
    assert [row["state"] for row in history(keys, gateway, key)] == ["processing", "unknown", "completed"]


def test_operator_does_not_overrule_the_late_answer(start_gateway, keys, upstream, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 200ms
          grace: 60s
        """)
    with upstream.hold("/refunds") as held:
        gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
        held.wait_arrived()
        epoch = listed(keys, gateway)[0]["epoch"]
    eventually(lambda: listed(keys, gateway)[0]["state"] == "completed", "the late answer")
    result = keys(gateway, "resolve", key, "--release", "--epoch", epoch, "--why", "not seen")
    assert result.code == EXIT_CONFIG and "completed" in result.stderr, result
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_many_are_previewed_and_then_resolved(start_gateway, keys, upstream):
    gateway = start_gateway(TWO_ROUTES)
    refunds = [lose(gateway, upstream, fresh_key()) for _ in range(25)]
    order = lose(gateway, upstream, fresh_key(), path="/orders")
    words = ("resolve", "--release", "--state", "unknown", "--route", "refunds", "--since", "1h",
             "--reason", "DEPENDENCY")
    preview = keys(gateway, *words)
    assert preview.code == 0 and "25 would be released" in preview.stdout and "--yes" in preview.stdout, preview
    assert len(re.findall(r" unknown ", preview.stdout)) == 20 and "and 5 more" in preview.stdout, preview
    assert keys(gateway, *words, "--yes").code == EXIT_CONFIG, "without a reason"
    assert len(listed(keys, gateway, "--state", "unknown")) == 26, "nothing was changed so far"
    done = keys(gateway, *words, "--yes", "--why", "outage: none of them is in the ledger")
    assert done.code == 0 and "25 of 25 are released" in done.stdout, done
    assert [operation["route"] for operation in listed(keys, gateway)] == ["orders"]
    upstream.on("/refunds", numbered)
    assert [gateway.post("/refunds", key=key, json=REFUND).idempotency for key in refunds] == ["stored"] * 25
    gateway.post("/orders", key=order, json=REFUND).refuses(409, UNKNOWN)


def test_many_are_forgotten_by_time(gateway, keys, upstream):
    early = [fresh_key() for _ in range(3)]
    for key in early:
        gateway.post("/refunds", key=key, json=REFUND)
    preview = keys(gateway, "forget", "--state", "completed", "--json")
    as_of = json.loads(preview.stdout)["as_of"]
    eventually(lambda: json.loads(keys(gateway, "forget", "--state", "completed", "--json").stdout)["as_of"] > as_of)
    late = fresh_key()
    gateway.post("/refunds", key=late, json=REFUND)
    done = keys(gateway, "forget", "--state", "completed", "--before", as_of, "--yes", "--why", "a drill", "--json")
    assert json.loads(done.stdout)["changed"] == 3, done
    assert gateway.post("/refunds", key=late, json=REFUND).idempotency == "replayed"
    assert gateway.post("/refunds", key=early[0], json=REFUND).idempotency == "stored"


def test_many_leave_alone_what_is_under_way(gateway, keys, upstream):
    done = fresh_key()
    gateway.post("/orders", key=done, json=REFUND)
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=fresh_key(), json=REFUND)
        held.wait_arrived()
        result = json.loads(keys(gateway, "forget", "--since", "1h", "--yes", "--why", "a drill", "--json").stdout)
        assert (result["matched"], result["changed"], result["skipped"]) == (1, 1, 0), result
        result = json.loads(keys(gateway, "resolve", "--since", "1h", "--release", "--json").stdout)
        assert (result["preview"], result["matched"]) == (True, 0), result
        assert [operation["state"] for operation in listed(keys, gateway)] == ["processing"]
        refused = keys(gateway, "forget", "--state", "processing", "--yes", "--why", "a drill")
        assert refused.code == EXIT_CONFIG and "in flight" in refused.stderr, refused
    assert pending.idempotency == "stored"


def test_key_of_several_callers_needs_an_id(gateway, keys, upstream, key):
    for user in ("alice", "bob"):
        lose(gateway, upstream, key, auth=basic(user, "secret"))
    result = keys(gateway, "resolve", key, "--release", "--why", "not booked")
    ids = [operation["id"] for operation in listed(keys, gateway)]
    assert result.code == EXIT_CONFIG and "give the id of the operation" in result.stderr, result
    assert all(identity in result.stdout for identity in ids) and len(ids) == 2, result
    assert keys(gateway, "resolve", ids[0], "--release", "--why", "not booked").code == 0
    states = [gateway.post("/refunds", key=key, json=REFUND, auth=basic(user, "secret")).status
              for user in ("alice", "bob")]
    assert sorted(states) == [201, 409]


def test_key_of_several_routes_is_narrowed_by_a_filter(start_gateway, keys, upstream, key):
    gateway = start_gateway(TWO_ROUTES)
    lose(gateway, upstream, key)
    lose(gateway, upstream, key, path="/orders")
    assert keys(gateway, "show", key).code == EXIT_CONFIG
    assert {row["route"] for row in history(keys, gateway, key, "--route", "orders")} == {"orders"}
    assert keys(gateway, "resolve", key, "--route", "orders", "--release", "--why", "not seen").code == 0
    assert [operation["route"] for operation in listed(keys, gateway)] == ["refunds"]
    gone = history(keys, gateway, key, "--route", "orders")
    assert ({row["route"] for row in gone}, gone[-1]["state"]) == ({"orders"}, "absent")
    assert keys(gateway, "show", key, "--route", "orders", "--state", "unknown").code == EXIT_CONFIG
    assert keys(gateway, "show", key, "--route", "payouts").code == EXIT_CONFIG


def test_key_is_found_in_either_spelling_and_when_it_looks_like_an_id(gateway, keys, upstream):
    key = fresh_key().replace("-", "")
    lose(gateway, upstream, key)
    assert history(keys, gateway, key) == history(keys, gateway, f'"{key}"')
    nobody = keys(gateway, "show", "0" * 32)
    assert nobody.code == EXIT_CONFIG and "no operation" in nobody.stderr, nobody


def test_list_shows_the_newest_first(gateway, keys, upstream):
    ids = []
    for number in range(12):
        gateway.post("/refunds", key=fresh_key(), json={"number": number})
        ids.append(upstream.last().header("Hapax-Operation").split(".")[0])
        time.sleep(0.002)  # so that no two have the same time
    assert [operation["id"] for operation in listed(keys, gateway)] == ids[::-1]
    assert [operation["id"] for operation in listed(keys, gateway, "--limit", "3")] == ids[:-4:-1]
    shown = keys(gateway, "list", "--limit", "3")
    assert [line.split()[3] for line in shown.stdout.splitlines()[1:]] == ids[:-4:-1]
    assert "newest of 12" in shown.stderr
    assert upstream.effects("/refunds") == 12


def test_list_goes_over_pages(gateway, keys, upstream):
    for _ in range(23):
        gateway.post("/refunds", key=fresh_key(), json=REFUND)
    part = keys(gateway, "list", "--limit", "7")
    assert len(part.stdout.splitlines()) == 8 and "newest of 23" in part.stderr, part
    seen, cursor = [], ""
    while cursor is not None:
        page = call(gateway, "GET", "/v1/operations?limit=5" + (f"&cursor={cursor}" if cursor else "")).json()
        seen += [operation["id"] for operation in page["operations"]]
        cursor = page.get("cursor")
    assert len(seen) == len(set(seen)) == 23
    times = [line.split()[1] for line in keys(gateway, "list").stdout.splitlines()[1:]]
    assert times == sorted(times, reverse=True) and len(times) == 23


def test_list_of_many_takes_the_memory_of_many(hapax, tmp_path):
    """A daemon with more operations than are asked for, a thousand in each answer."""
    count = 15 if sanitized() else 150  # thousands; a sanitizer is slow, and has memory of its own
    rows = ",".join(['{"id":"%032x","state":"unknown","changed_at":"2026-01-01T00:00:00Z"}' % 1] * 1000)
    pages = [f'{{"operations":[{rows}],"count":1000{more}}}'.encode() for more in [',"cursor":"1"'] * count + [""]]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "admin.sock"))
        listener.listen()

        def serve():
            for page in [b'{"refusing":{}}', *pages]:
                with listener.accept()[0] as client:
                    client.recv(65536)
                    client.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n"
                                   .encode() + page)

        threading.Thread(target=serve, daemon=True).start()
        limits = {} if sanitized() else {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (160 << 20,) * 2)}
        result = hapax("keys", "list", "--limit", f"{count}000", "--admin", f"unix:{tmp_path}/admin.sock", **limits)
    assert result.code == 0 and len(result.stdout.splitlines()) == count * 1000 + 1, result.stderr
    assert f"newest of {count + 1}000" in result.stderr


def test_socket_is_its_users_alone(gateway, keys):
    path = gateway.store / "admin.sock"
    status = path.stat()
    assert stat.S_ISSOCK(status.st_mode) and stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_can_not_connect(start_gateway, keys):
    directory = tempfile.mkdtemp(prefix="hapax-", dir="/tmp")
    os.chmod(directory, 0o755)  # the directory lets everyone through, so that the socket's own mode is what refuses
    try:
        path = f"{directory}/admin.sock"
        start_gateway(f"admin:\n  listen: unix:{path}\n")
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect({path!r})"
        mine = subprocess.run([sys.executable, "-c", connect], check=False, capture_output=True, timeout=HANG_S)
        other = subprocess.run([sys.executable, "-c", connect], check=False, capture_output=True, timeout=HANG_S,
                               user=65534, group=65534, extra_groups=[], cwd="/")
        assert mine.returncode == 0, mine
        assert other.returncode != 0 and b"PermissionError" in other.stderr, other
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("garbage", [
    b"\x00\x01\x02\xff" * 100, b"GET /v1/operations HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"\r\n" * 1000,
    b"GET /v1/operations HTTP/1.1\r\n\r\n", request_bytes("GET", "/" + "a" * 70000),
    b"POST /v1/operations/forget HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
], ids=["binary", "version", "short", "blank", "no host", "endless", "bad chunk"])
def test_garbage_on_the_socket_is_refused(gateway, keys, unknown, garbage):
    with admin(gateway) as connection:
        connection.send(garbage)
        connection.finish_sending()
        try:
            status = connection.receive_head()[0]
            assert 400 <= status < 600
        except AssertionError as nothing:
            assert "closed without an answer" in str(nothing)
    with admin(gateway) as half:
        half.send(b"POST /v1/operations/forget HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    assert [operation["state"] for operation in listed(keys, gateway)] == ["unknown"]


@pytest.mark.parametrize("method, target, body, status", [
    ("GET", "/v1/operations?state=lost", None, 400), ("GET", "/v1/operations?sate=unknown", None, 400),
    ("GET", "/v1/operations/x/history", None, 404), ("GET", f"/v1/operations/{'0' * 32}", None, 404),
    ("GET", f"/v1/operations/{'0' * 32}/history", None, 404),
    ("GET", f"/v1/operations/{'0' * 32}/history?state=unknown", None, 400),
    ("GET", "/", None, 404), ("GET", "/v1/operations/", None, 404), ("DELETE", "/v1/operations", None, 405),
    ("GET", "/v1/operations/forget", None, 405),
    ("POST", "/v1/operations/forget", None, 400), ("POST", "/v1/operations/forget", "{", 400),
    ("POST", "/v1/operations/forget", '{"why":"x"}', 400),
    ("POST", "/v1/operations/forget", '{"why":"x","filter":{}}', 400),
    ("POST", "/v1/operations/resolve", '{"why":"x","outcome":"released"}', 400),
    ("POST", "/v1/operations/resolve", '{"why":"x","outcome":"released","filter":{}}', 400),
    ("POST", "/v1/operations/resolve", '{"why":"x","outcome":"released","filter":{"state":"completed"}}', 400),
    ("POST", f"/v1/operations/{'0' * 32}/forget", '{"why":"x"}', 404),
    ("POST", f"/v1/operations/{'0' * 32}/resolve", '{"why":"x","outcome":"released","epohc":1}', 400),
])
def test_requests_that_make_no_sense_change_nothing(gateway, keys, unknown, method, target, body, status):
    answer = call(gateway, method, target, body)
    assert answer.status == status, answer
    problem = answer.json()
    assert answer.header("Content-Type") == "application/problem+json"
    assert problem["status"] == status and problem["hint"] and problem["detail"] and problem["error_code"], problem
    assert (answer.header("Allow") is not None) == (status == 405)
    assert [operation["state"] for operation in listed(keys, gateway)] == ["unknown"]


def test_body_over_the_limit_is_refused(start_gateway, keys, upstream, key):
    gateway = start_gateway("defaults:\n  answer_max: 4KiB\n")
    lose(gateway, upstream, key)
    result = keys(gateway, "resolve", key, "--completed", "--body", "x" * 5000, "--why", "seen")
    assert result.code == EXIT_CONFIG and "too large" in result.stderr, result
    with admin(gateway) as connection:
        connection.send(b"POST /v1/operations/forget HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n")
        for _ in range(17):  # the rest never comes
            connection.send(b" " * 1000000)
        assert connection.receive_head()[0] == 413
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)


def test_body_over_its_routes_limit_is_refused_for_many_too(start_gateway, keys, upstream):
    gateway = start_gateway("""
        defaults: {answer_max: 4KiB}
        routes:
          - {name: refunds, match: POST /refunds, answer_max: 1KiB}
          - {name: orders, match: POST /orders, answer_max: 64KiB}
        """)
    taken = {path: lose(gateway, upstream, fresh_key(), path) for path in ("/refunds", "/orders")}
    words = ("resolve", "--state", "unknown", "--completed", "--body", "x" * 5000, "--why", "seen")
    for yes in ((), ("--yes",)):
        result = keys(gateway, *words, *yes)
        assert result.code == EXIT_CONFIG and "too large" in result.stderr, result
    assert {operation["state"] for operation in listed(keys, gateway)} == {"unknown"}
    assert "1 of 1 are completed" in keys(gateway, *words, "--yes", "--route", "orders").stdout
    assert gateway.post("/orders", key=taken["/orders"], json=REFUND).body == b"x" * 5000
    gateway.post("/refunds", key=taken["/refunds"], json=REFUND).refuses(409, UNKNOWN)
    assert (upstream.effects("/refunds"), upstream.effects("/orders")) == (1, 1)


def test_body_that_is_not_text_is_refused(gateway, keys, unknown, tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    result = keys(gateway, "resolve", unknown, "--completed", "--body", f"@{tmp_path / 'bytes'}", "--why", "seen")
    assert result.code == EXIT_CONFIG and "UTF-8" in result.stderr, result
    gateway.post("/refunds", key=unknown, json=REFUND).refuses(409, UNKNOWN)


@pytest.mark.parametrize("words, said", [
    ((), "list, show, resolve or forget"), (("lst",), "list, show, resolve or forget"), (("show",), "KEY or ID"),
    (("list", "key"), "keys show"), (("resolve", "k", "--why", "x"), "--completed, --failed or --release"),
    (("resolve", "k", "--completed", "--release", "--why", "x"), "--completed, --failed or --release"),
    (("resolve", "k", "--failed", "--why", "x"), "--status"), (("resolve", "k", "--release"), "--why"),
    (("forget", "k"), "--why"), (("forget", "--why", "x"), "which operations"),
    (("list", "--since", "soon"), "--since"),
    (("resolve", "k", "--release", "--body", "x", "--why", "x"), "no response"), (("list", "--yes"), "--yes"),
    (("forget", "k", "--yes", "--why", "x"), "--yes"), (("list", "--limit", "0"), "--limit"),
    (("list", "--stat", "unknown"), "--state"), (("show", "k", "--epoch", "5"), "--epoch"),
])
def test_misuse_is_named(hapax, tmp_path, words, said):
    result = hapax("keys", *words, "--admin", f"unix:{tmp_path}/none.sock")
    assert result.code == EXIT_CONFIG and said in result.stderr and "hapax help keys" in result.stderr, result


def test_daemon_that_is_not_there(start_gateway, hapax, keys, key, tmp_path):
    gateway = start_gateway()
    gateway.post("/refunds", key=key, json=REFUND)
    gateway.kill()
    refused = keys(gateway, "list")
    assert refused.code == EXIT_STORE and "hapax serve" in refused.stderr, refused
    missing = hapax("keys", "list", "--store", f"journal:{tmp_path}/nowhere")
    assert missing.code == EXIT_STORE and "no such socket" in missing.stderr and "--store" in missing.stderr, missing
    memory = hapax("keys", "list", "--store", "memory:")
    assert memory.code == EXIT_CONFIG and "admin.listen" in memory.stderr, memory


def test_socket_goes_with_the_daemon_and_a_stale_one_is_replaced(gateway, keys, key):
    path = gateway.store / "admin.sock"
    gateway.kill()
    assert path.is_socket(), "a killed process leaves it behind"
    gateway.start()
    assert keys(gateway, "list").code == 0
    gateway.terminate()
    assert gateway.wait_exit() == 0
    assert not path.exists()


def test_store_with_a_stale_socket_is_salvaged_all_the_same(gateway, hapax, keys, key, tmp_path):
    gateway.post("/refunds", key=key, json=REFUND)
    gateway.kill()
    assert (gateway.store / "admin.sock").is_socket()
    result = hapax("store", "salvage", gateway.store, f"journal:{tmp_path / 'new'}")
    assert result.code == 0, result
    gateway.start()
    assert len(listed(keys, gateway)) == 1


def test_daemon_is_found_by_its_configuration_and_by_the_state_directory(start_gateway, hapax, upstream, tmp_path):
    path = tmp_path / "a.sock"
    gateway = start_gateway(f"admin:\n  listen: unix:{path}\n")
    assert path.is_socket() and not (gateway.store / "admin.sock").exists()
    assert hapax("keys", "list", "--config", gateway.config).code == 0
    assert hapax("keys", "list", "--admin", f"unix:{path}").code == 0
    assert hapax("keys", "list", "--admin", "unix:a.sock", cwd=tmp_path).code == 0
    other = start_gateway()
    assert hapax("keys", "list", env={"STATE_DIRECTORY": str(other.store)}).code == 0
    broken = tmp_path / "broken.yaml"
    broken.write_text("upstrem: http://127.0.0.1:1\n", encoding="utf-8")
    result = hapax("keys", "list", "--config", broken)
    assert result.code == EXIT_CONFIG and "upstrem" in result.stderr, result


def test_no_socket_where_none_is_wanted(start_gateway, hapax, tmp_path):
    gateway = start_gateway("admin:\n  listen: off\n")
    assert not (gateway.store / "admin.sock").exists()
    result = hapax("keys", "list", "--config", gateway.config)
    assert result.code == EXIT_CONFIG and "admin.listen" in result.stderr, result
    memory = start_gateway(f"admin:\n  listen: unix:{tmp_path}/m.sock\n", store="memory:")
    memory.post("/refunds", key=fresh_key(), json=REFUND)
    listing = hapax("keys", "list", "--admin", f"unix:{tmp_path}/m.sock", "--json")
    assert json.loads(listing.stdout)["count"] == 1, listing


def test_start_without_its_socket_is_refused(start_gateway, hapax, upstream, tmp_path):
    path = tmp_path / "a.sock"
    first = start_gateway(f"admin:\n  listen: unix:{path}\n")
    second = hapax("serve", "--config", first.config, "--listen", "127.0.0.1:0", "--upstream", upstream.url,
                   "--store", f"journal:{tmp_path}/second")
    assert second.code == EXIT_ADDRESS and "admin.listen" in second.stderr and str(path) in second.stderr, second
    assert hapax("keys", "list", "--admin", f"unix:{path}").code == 0, "the first one goes on"
    deep = tmp_path / ("d" * 100)
    long = hapax("serve", "--listen", "127.0.0.1:0", "--upstream", upstream.url, "--store", f"journal:{deep}")
    assert long.code == EXIT_ADDRESS and "admin.listen" in long.stderr and "107" in long.stderr, long
    shared = hapax("serve", "--listen", f"unix:{tmp_path}/third/admin.sock", "--upstream", upstream.url,
                   "--store", f"journal:{tmp_path}/third")
    assert shared.code == EXIT_ADDRESS and "this process listens" in shared.stderr, shared
    assert not (tmp_path / "third" / "admin.sock").exists(), "what was made is gone again"


def test_stop_does_not_wait_for_an_idle_operator(gateway, keys, unknown):
    with admin(gateway) as connection:
        assert connection.request("GET", "/v1/counts").status == 200
        gateway.terminate()
        assert gateway.wait_exit() == 0
        assert connection.at_end()
    assert not (gateway.store / "admin.sock").exists()


@pytest.mark.parametrize("stays", [True, False])
def test_stop_waits_for_an_act_under_way(start_gateway, keys, upstream, key, tmp_path, stays):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(env=disk.env)
    lose(gateway, upstream, key)
    identity = listed(keys, gateway)[0]["id"]
    with admin(gateway) as connection:
        with disk.held():
            pending = connection.request("POST", f"/v1/operations/{identity}/resolve",
                                         body='{"outcome":"completed","body":"1","why":"seen"}')
            disk.wait_for_commit()
            if not stays:
                connection.close()
            gateway.terminate()
            eventually(lambda: not (gateway.store / "admin.sock").exists(), "the end of the admin socket")
        assert not stays or pending.status == 200
    assert gateway.wait_exit() == 0
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).body == b"1"


def test_operators_are_answered_while_the_daemon_drains(gateway, keys, key, upstream):
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.terminate()
        eventually(lambda: any("draining" in line for line in gateway.output), "draining")
        assert [operation["state"] for operation in listed(keys, gateway)] == ["processing"]
    assert pending.status == 201
    assert gateway.wait_exit() == 0


def test_operators_work_while_64_connections_load_the_gateway(start_gateway, keys, upstream):
    gateway = start_gateway(workers=2)
    lost = [lose(gateway, upstream, fresh_key(), path="/lost") for _ in range(10)]
    stop, failures, served = threading.Event(), [], []

    def client():
        count = 0
        connection = gateway.connect()
        while not stop.is_set():
            answer = connection.request("POST", "/orders", [("Idempotency-Key", fresh_key())], b"{}")
            if (answer.status, answer.idempotency) != (201, "stored"):
                failures.append(repr(answer))
                return
            count += 1
        served.append(count)

    clients = [threading.Thread(target=client) for _ in range(64)]
    for thread in clients:
        thread.start()
    try:
        upstream.wait(lambda: upstream.effects("/orders") > 64, "the load being under way")
        for key in lost[:5]:
            assert keys(gateway, "resolve", key, "--completed", "--status", "201", "--why", "seen").code == 0
        result = keys(gateway, "resolve", "--state", "unknown", "--release", "--yes", "--why", "not seen", "--json")
        assert json.loads(result.stdout)["changed"] == 5, result
        assert len(listed(keys, gateway, "--limit", "1000")) > 64
    finally:
        stop.set()
        for thread in clients:
            thread.join()
    assert not failures, failures[0]
    assert len(served) == 64 and sum(served) == upstream.effects("/orders")
    upstream.on("/lost", numbered)
    told = [gateway.post("/lost", key=key, json=REFUND).idempotency for key in lost]
    assert told == ["replayed"] * 5 + ["stored"] * 5


def test_counts_are_the_stores_and_the_workers(gateway, keys, unknown):
    counts = call(gateway, "GET", "/v1/counts").json()
    assert (counts["store"]["idempotent_unknown"], counts["store"]["stored_keys"],
            counts["store"]["responses_not_stored"]) == (1, 1, 0)
    assert counts["workers"]["attempts"] == 1


def test_fates_of_keyed_requests_are_counted(gateway, upstream, key):
    for amount in (1, 1, 2):
        gateway.post("/refunds", key=key, json={"amount": amount})
    gateway.get("/refunds")
    gateway.wait_events("request", 4)
    names = ("idempotent_created", "idempotent_replayed", "idempotent_conflict", "idempotency_key_reuse_conflict")
    assert [gateway.counts()[name] for name in names] == [1, 1, 1, 1]
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=fresh_key(), json=REFUND)
        held.wait_arrived()
        assert gateway.counts("store")["idempotent_in_flight"] == 1
    assert first.status == 201
    assert upstream.effects("/refunds") == 2


def shown_on_a_terminal(words, env):
    """What a command prints where standard output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([str(binary()), *words], stdin=subprocess.DEVNULL, stdout=theirs,
                               stderr=subprocess.DEVNULL, env={**os.environ, **env})
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # the terminal's other end is closed
    os.close(ours)
    assert process.wait(timeout=HANG_S) == 0
    return shown.decode()


def test_colours_only_on_a_terminal(gateway, keys, unknown):
    words = ["keys", "list", "--store", gateway.store_url]
    assert "\x1b[33munknown\x1b[0m" in shown_on_a_terminal(words, {"NO_COLOR": ""})
    assert "\x1b" not in shown_on_a_terminal(words, {"NO_COLOR": "1"})
    assert "\x1b" not in keys(gateway, "list").stdout


def test_daemon_that_stands_still_answers_when_it_goes_on(gateway, keys, unknown):
    gateway.pause()
    process = subprocess.Popen([str(binary()), "keys", "list", "--json", "--store", gateway.store_url],
                               stdout=subprocess.PIPE)
    gateway.resume()
    out, _ = process.communicate(timeout=HANG_S)
    assert json.loads(out)["count"] == 1
