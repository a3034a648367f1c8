# SPDX-License-Identifier: Apache-2.0
"""clients/python/hapax.py against a daemon: a function runs once for a key, and a request is sent once."""
import signal
import subprocess
import sys
import threading

import pytest

from harness import Deduplicating, answer, drop_after_effect, eventually, fresh_key, in_turn
from harness.gateway import ROOT

sys.path.insert(0, str(ROOT / "clients" / "python"))
import hapax as client  # noqa: E402  pylint: disable=wrong-import-position

STORED = [("Idempotency-Status", "stored")]


@pytest.fixture
def daemon(start_api, tmp_path):
    api = start_api(store=f"sqlite:{tmp_path}/operations")
    return client.Hapax(f"http://{api.address}", api.token("publish"))


@pytest.fixture
def sender(tmp_path):
    return client.Sender(tmp_path / "intents", base=0.01)


def test_a_function_runs_once_and_everybody_gets_its_result(daemon):
    runs, done, key = [], [], fresh_key()

    def work(_):
        runs.append(1)
        return {"refund": len(runs)}

    everyone = [threading.Thread(target=lambda: done.append(daemon.once(key, work))) for _ in range(8)]
    for one in everyone:
        one.start()
    for one in everyone:
        one.join()
    done.append(daemon.once(key, work))
    assert len(runs) == 1 and [one.result for one in done] == [{"refund": 1}] * 9
    assert sorted(one.is_retry for one in done) == [False] + [True] * 8
    assert len({one.original_timestamp for one in done}) == 1


def test_a_failure_is_raised_for_everybody(daemon):
    key = fresh_key()

    def work(_):
        raise client.Failed({"code": "card_declined"})

    for _ in range(2):
        with pytest.raises(client.Failed) as failed:
            daemon.once(key, work)
        assert failed.value.detail == {"code": "card_declined"}


def test_what_was_not_done_is_tried_again_with_its_checkpoints(daemon):
    key = fresh_key()

    def first(work):
        work.checkpoint("page", 3)
        raise client.NotDone("the other service is away")

    with pytest.raises(client.NotDone):
        daemon.once(key, first)
    done = daemon.once(key, lambda work: [work.attempt, work.checkpoints["page"], work.fencing_token > 0])
    assert done.result == [2, 3, True] and not done.is_retry


def test_other_input_is_refused(daemon):
    key = fresh_key()
    daemon.once(key, lambda _: 1, input={"amount": 5})
    with pytest.raises(client.Mismatch):
        daemon.once(key, lambda _: 2, input={"amount": 6})


def test_an_exception_leaves_it_unknown_and_nobody_runs_it_again(daemon):
    key, runs = fresh_key(), []

    def work(_):
        runs.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        daemon.once(key, work, lease=1)
    with pytest.raises(client.Unknown):
        daemon.once(key, work, wait=10)
    assert len(runs) == 1


def test_the_lease_is_renewed_while_the_function_runs(daemon):
    key, go = fresh_key(), threading.Event()
    long = threading.Thread(target=lambda: daemon.once(key, lambda _: go.wait(60), lease=1))
    long.start()
    eventually(lambda: daemon.find(key))
    first = daemon.find(key)["lease_until"]
    eventually(lambda: daemon.find(key)["lease_until"] > first)
    assert daemon.find(key)["state"] == "processing"
    go.set()
    long.join()
    assert daemon.find(key, wait=5)["state"] == "completed"
    assert daemon.find(fresh_key()) is None


def test_a_request_is_sent_once_for_its_operation(sender, upstream):
    upstream.on("/refunds", in_turn(answer(500, effect=False), answer(201, b'{"id": 1}', STORED)))
    first = sender.send("POST", upstream.url + "/refunds", {"amount": 5}, operation="order-17")
    again = sender.send("POST", upstream.url + "/refunds", {"amount": 5}, operation="order-17")
    assert (first.status, first.json(), again.json()) == (201, {"id": 1}, {"id": 1})
    assert len({request.key for request in upstream.received("/refunds")}) == 1
    assert upstream.effects("/refunds") == 1 and sender.status("order-17") == "done"
    with pytest.raises(client.Mismatch):
        sender.send("POST", upstream.url + "/refunds", {"amount": 6}, operation="order-17")


def test_no_answer_is_unknown_and_a_refusal_does_not_undo_it(sender, upstream):
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(403, effect=False)))
    with pytest.raises(client.Unknown):
        sender.send("POST", upstream.url + "/refunds", {"amount": 5}, operation="o")
    assert upstream.effects("/refunds") == 1 and sender.status("o") == "unknown"


def test_nothing_listens_and_nothing_was_done(sender, upstream):
    upstream.stop_listening()
    with pytest.raises(client.HapaxError) as error:
        sender.send("POST", upstream.url + "/refunds", {}, operation="o")
    assert not isinstance(error.value, client.Unknown) and sender.status("o") == "not sent"


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import hapax
hapax.Sender(sys.argv[2]).send("POST", sys.argv[3], {"amount": 5}, operation="o")
"""


def test_killed_while_it_waits_for_the_answer_it_goes_on_with_the_same_key(sender, upstream, tmp_path):
    upstream.on("/refunds", Deduplicating())
    with upstream.hold("/refunds") as held:
        child = subprocess.Popen([sys.executable, "-c", SCRIPT, str(ROOT / "clients" / "python"), str(sender.folder),
                                  upstream.url + "/refunds"])
        held.wait_arrived()
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert sender.status("o") == "unknown"
    assert sender.send("POST", upstream.url + "/refunds", {"amount": 5}, operation="o").status == 201
    assert upstream.effects("/refunds") == 1


def test_what_was_interrupted_is_found_and_resumed_as_it_was_written_down(sender, upstream):
    upstream.on("/refunds", in_turn(drop_after_effect(), Deduplicating()))
    with pytest.raises(client.Unknown):
        client.Sender(sender.folder, attempts=1).send("POST", upstream.url + "/refunds", {"amount": 5}, operation="o")
    assert sender.unfinished() == ["o"]
    assert sender.resume("o", headers={"Authorization": "Bearer me"}).status == 201
    first, second = upstream.received("/refunds")
    assert (first.key, first.body) == (second.key, second.body) and second.header("Authorization") == "Bearer me"
    assert sender.unfinished() == [] and b"amount" not in b"".join(
        file.read_bytes() for file in sender.folder.glob("*.json"))
    sender.forget("o")
    assert sender.status("o") is None


def test_the_server_is_told_how_much_time_is_left(sender, upstream):
    upstream.on("/refunds", answer(201, b"", STORED))
    client.Sender(sender.folder, budget=5).send("POST", upstream.url + "/refunds", operation="o")
    assert 4000 < int(upstream.last().header("X-Request-Timeout").removesuffix("ms")) <= 5000


def test_a_claimant_that_was_replaced_is_fenced_off(daemon):
    key, go = fresh_key(), threading.Event()

    def work(mine):
        daemon.call("complete", id=mine.id, epoch=mine.epoch, result="new")
        eventually(lambda: mine.is_lost)
        return "old"

    with pytest.raises(client.Fenced):
        daemon.once(key, work, lease=1)
    assert daemon.once(key, lambda _: go.set()).result == "new" and not go.is_set()
