# SPDX-License-Identifier: Apache-2.0
"""clients/typescript/hapax.ts against a daemon: a function runs once for a key; and what it has beside the other
careful clients: stores for browsers, tabs that share them, and types. test_careful_clients has the rest."""
import concurrent.futures
import json
import subprocess
import uuid

import pytest

from harness import Deduplicating, answer, drop_after_effect, eventually, fresh_key, in_turn
from harness.node import FOLDER, MODULES, Node, installed

pytestmark = pytest.mark.slow  # it has to be compiled
STORED = [("Idempotency-Status", "stored")]


@pytest.fixture
def start_node_client():
    started = []

    def start():
        started.append(Node())
        return started[-1]

    yield start
    for one in started:
        one.close()


class Daemon:
    def __init__(self, node, api):
        self.node, self.api = node, api
        self.place = {"url": f"http://{api.address}", "token": api.token("publish")}

    def begin(self, key, does, **options):
        return self.node.begin("once", key=key, does=does, options=options, **self.place)

    def once(self, key, does, **options):
        told = self.begin(key, does, **options).result(60)
        return told.get("answer", told)

    def find(self, key, **options):
        return self.node("find", key=key, options=options, **self.place)

    def runs(self, key):
        return self.node("runs", key=key)


@pytest.fixture
def daemon(start_api, start_node_client, tmp_path):
    return Daemon(start_node_client(), start_api(store=f"sqlite:{tmp_path}/operations"))


def test_a_function_runs_once_and_everybody_gets_its_result(daemon):
    key, does = fresh_key(), {"result": {"refund": 1}}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: daemon.once(key, does), range(8)))
    done.append(daemon.once(key, does))
    assert [set(one) for one in done] == [{"result", "isRetry", "originalTimestamp"}] * 9
    assert daemon.runs(key) == 1 and {json.dumps(one["result"]) for one in done} == {'{"refund": 1}'}
    assert sorted(one["isRetry"] for one in done) == [False] + [True] * 8
    assert len({one["originalTimestamp"] for one in done}) == 1


def test_failures_are_kept_and_what_was_not_done_is_tried_again(daemon):
    failed, tried = fresh_key(), fresh_key()
    for _ in range(2):
        told = daemon.once(failed, {"fails": {"code": "card_declined"}})
        assert (told["error"], told["detail"]) == ("Failed", {"code": "card_declined"})
    assert daemon.runs(failed) == 1
    assert daemon.once(tried, {"checkpoint": 3, "notDone": True})["error"] == "NotDone"
    told = daemon.once(tried, {"tells": True})
    assert (told["result"]["attempt"], told["result"]["checkpoints"]) == (2, {"page": 3})
    assert told["result"]["token"] > 0 and not told["isRetry"]


def test_what_becomes_of_an_error_is_the_callers_choice(daemon):
    released, failed, unknown = fresh_key(), fresh_key(), fresh_key()
    assert daemon.once(released, {"throws": "boom"}, onError="release")["error"] == "RangeError"
    assert daemon.once(released, {"result": 1})["result"] == 1
    assert daemon.once(failed, {"throws": "boom"}, onError="fail")["error"] == "RangeError"
    assert daemon.once(failed, {"result": 1})["error"] == "Failed"
    assert daemon.once(unknown, {"throws": "boom"}, leaseMs=1000)["error"] == "RangeError"
    assert daemon.once(unknown, {"result": 1}, waitMs=10_000)["error"] == "Unknown"
    assert (daemon.runs(released), daemon.runs(failed), daemon.runs(unknown)) == (2, 1, 1)


def test_other_input_is_refused(daemon):
    key = fresh_key()
    assert daemon.once(key, {"result": 1}, input={"amount": 5})["result"] == 1
    assert daemon.once(key, {"result": 2}, input={"amount": 6})["error"] == "Mismatch"


def test_the_lease_is_renewed_while_the_function_runs_and_a_cancellation_is_seen(daemon):
    key = fresh_key()
    assert daemon.find(key) is None
    running = daemon.begin(key, {"gate": key, "tells": True}, leaseMs=1000)
    eventually(lambda: key in daemon.node("gates"))
    first = daemon.find(key)
    wish = {"id": first["id"], "reason": "enough"}
    daemon.api.call("POST", "/v1/operations/cancel", daemon.place["token"], body=wish)
    eventually(lambda: daemon.find(key)["lease_until"] > first["lease_until"])
    assert daemon.find(key)["state"] == "processing"
    assert daemon.once(key, {"result": 2}, waitMs=1)["error"] == "InFlight"
    daemon.node("open", gate=key)
    assert running.result(60)["answer"]["result"]["cancelReason"] == "enough"
    assert daemon.find(key, waitMs=5000)["state"] == "completed"


def test_a_claimant_that_was_replaced_is_told_and_fenced_off(daemon):
    """Its lease lapsed, because another claimant took the operation over; the signal says so, and its result counts
    for nothing."""
    key = fresh_key()
    running = daemon.begin(key, {"untilLost": True, "result": "old"}, leaseMs=1500)
    eventually(lambda: daemon.find(key))
    found = daemon.find(key)
    done = daemon.api.call("POST", "/v1/operations/complete", daemon.place["token"],
                           body={"id": found["id"], "epoch": found["epoch"], "result": "new"})
    assert done.status == 200
    assert running.result(60)["error"] == "Fenced"
    assert daemon.once(key, {"result": "newer"})["result"] == "new"


def test_a_lost_response_to_a_claim_is_asked_for_again(daemon):
    """The same claimant gets the same epoch, as if the first response had come."""
    key, claimant = fresh_key(), str(uuid.uuid4())
    body = {"key": key, "claimant": claimant, "name": ""}
    assert daemon.api.call("POST", "/v1/operations/claim", daemon.place["token"], body=body).status == 201
    assert daemon.once(key, {"result": 1}, claimant=claimant)["isRetry"] is False
    assert daemon.once(key, {"result": 2})["result"] == 1


# Where intents are kept

@pytest.fixture(params=["file", "local", "indexed"])
def store(request, tmp_path):
    return {request.param: str(tmp_path / "intents")}


@pytest.fixture(scope="module")
def shared_node():
    node = Node()
    yield node
    node.close()


def test_each_store_keeps_the_key_and_the_response(shared_node, upstream, store):
    upstream.on("/refunds", in_turn(drop_after_effect(), Deduplicating()))
    ask = {"store": store, "operation": "pay/17 ü.", "url": upstream.url + "/refunds",
           "init": {"method": "POST", "body": {"amount": 5}}}
    assert shared_node("fetch", options={"attempts": 1}, **ask)["error"] == "Unknown"
    assert shared_node("unfinished", store=store) == ["pay/17 ü."]
    told = [shared_node("fetch", resume=resume, **ask) for resume in (True, False)]
    assert [one["status"] for one in told] == [201, 201] and told[0]["body"] == told[1]["body"]
    assert len({request.key for request in upstream.received("/refunds")}) == 1
    assert len(upstream.received("/refunds")) == 2 and shared_node("unfinished", store=store) == []
    changed = {**ask, "init": {"method": "POST", "body": {"amount": 6}}}
    assert shared_node("fetch", **changed)["error"] == "Mismatch"
    shared_node("forget", **ask)
    assert shared_node("status", **ask) is None
    assert shared_node("fetch", **changed)["status"] == 201
    assert len({request.key for request in upstream.received("/refunds")}) == 2


def test_another_process_waits_for_its_turn_and_a_dead_ones_lock_holds_nobody(start_node_client, shared_node, upstream,
                                                                              tmp_path):
    """Killed between the request and its answer, a client leaves key, request and lock behind."""
    upstream.on("/refunds", Deduplicating())
    first, store = start_node_client(), {"file": str(tmp_path / "intents")}
    ask = {"store": store, "operation": "order-17", "url": upstream.url + "/refunds",
           "init": {"method": "POST", "body": {"amount": 5}}}
    with upstream.hold("/refunds") as held:
        first.begin("fetch", **ask)
        held.wait_arrived()
        assert shared_node("fetch", **ask)["error"] == "InFlight"
        first.kill()
    assert shared_node("status", **ask) == "unknown"
    assert shared_node("fetch", resume=True, **ask)["status"] == 201
    assert len({request.key for request in upstream.received("/refunds")}) == 1 and upstream.effects("/refunds") == 1


def test_intents_are_private_and_forget_what_was_sent(shared_node, upstream, tmp_path):
    upstream.on("/refunds", answer(201, b"ok", STORED))
    ask = {"store": {"file": str(tmp_path / "intents")}, "operation": "o", "url": upstream.url + "/refunds",
           "init": {"method": "POST", "body": {"card": "4242"}, "headers": {"Authorization": "Bearer s3cret"}}}
    assert shared_node("fetch", **ask)["status"] == 201
    file, = (tmp_path / "intents").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    assert "4242" not in file.read_text() and "s3cret" not in file.read_text()
    assert upstream.last().header("Authorization") == "Bearer s3cret"
    file.write_text('{"key": "cut o')
    assert shared_node("fetch", **ask)["error"] == "HapaxError" and len(upstream.received("/refunds")) == 1


def test_the_server_is_told_how_much_time_is_left(shared_node, upstream, tmp_path):
    upstream.on("/refunds", answer(201, b"ok", STORED))
    ask = {"store": {"file": str(tmp_path / "intents")}, "operation": "o", "url": upstream.url + "/refunds"}
    assert shared_node("fetch", options={"budgetMs": 5000}, **ask)["status"] == 201
    assert 4000 < int(upstream.last().header("X-Request-Timeout").removesuffix("ms")) <= 5000


# Types

WRONG = {"once(1, () => 2)": "number", "once('k', () => 2, {leese: 1})": "leese",
         "once('k', () => 2).then((done) => done.result.length)": "length"}


def test_wrong_uses_do_not_compile(tmp_path):
    """The client itself is compiled strictly before any story here runs."""
    lines = "\n".join(f"void daemon.{use};" for use in WRONG)
    (tmp_path / "wrong.ts").write_text(
        f'import {{Hapax}} from "{FOLDER.parents[1]}/clients/typescript/hapax.js";\n'
        f'const daemon = new Hapax("http://127.0.0.1", "token");\n{lines}\n')
    config = json.loads((FOLDER / "tsconfig.json").read_text())
    config["compilerOptions"] |= {"rootDir": "/", "noEmit": True}
    (tmp_path / "tsconfig.json").write_text(json.dumps({**config, "files": ["wrong.ts"]}))
    with installed():
        pass
    ran = subprocess.run([MODULES / ".bin" / "tsc", "-p", tmp_path], capture_output=True, text=True, check=False)
    errors = [line for line in ran.stdout.splitlines() if line.startswith(("wrong.ts", "../"))]
    assert len(errors) == len(WRONG), ran.stdout
    for error, word in zip(errors, WRONG.values()):
        assert word in error
