# SPDX-License-Identifier: Apache-2.0
"""Operations that programs run themselves, over the API: one claimant at a time, nothing done twice, and a response
that was lost can always be asked for again."""
import threading
import uuid

import pytest

from harness import Api, eventually, fresh_key


class Worker:
    """A program with a token. Each has its own claimant unless it is told to repeat one."""

    def __init__(self, api, token=None):
        self.api = api
        self.token = token or api.token("publish")

    def post(self, verb, **body):
        return self.api.call("POST", f"/v1/operations/{verb}", self.token, body=body)

    def claim(self, key, claimant=None, **more):
        return self.post("claim", key=key, claimant=claimant or str(uuid.uuid4()), **more)

    def end(self, verb, claimed, **more):
        made = claimed.json()
        return self.post(verb, id=made["id"], epoch=made["epoch"], **more)


def refused(answer, status, code):
    assert (answer.status, answer.json()["error_code"]) == (status, code), answer


@pytest.fixture(params=["journal", "sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("database").url
    return f"{request.param}:{tmp_path}/operations"


@pytest.fixture
def worker(start_api, store):
    return Worker(start_api(store=store))


def test_the_first_claim_runs_and_later_ones_get_its_result(worker):
    key = fresh_key()
    first = worker.claim(key, name="refund", input={"amount": 5})
    assert first.status == 201 and not first.json()["is_retry"]
    assert worker.end("complete", first, result={"id": "re_1"}).status == 200
    again = worker.claim(key, name="refund", input={"amount": 5.0})
    assert again.status == 200 and again.header("Idempotency-Status") == "replayed"
    assert (again.json()["state"], again.json()["result"]) == ("completed", {"id": "re_1"})
    assert again.json()["is_retry"] and again.json()["original_time"] == first.json()["original_time"]


def test_a_lost_claim_is_repeated_by_its_claimant_and_nobody_else(worker):
    key = fresh_key()
    first = worker.claim(key, claimant="me").json()
    again = worker.claim(key, claimant="me")
    assert (again.status, again.json()["epoch"], again.json()["id"]) == (200, first["epoch"], first["id"])
    assert again.json()["lease_until"] >= first["lease_until"]
    refused(worker.claim(key, claimant="somebody else"), 409, "CONFLICT.idempotency.in_flight")


def test_ten_at_once_one_wins_and_all_get_the_result(worker):
    key, answers = fresh_key(), []

    def work():
        claimed = worker.claim(key, wait="30s")
        if claimed.status == 201:
            worker.end("complete", claimed, result="only once")
        answers.append(claimed)

    everyone = [threading.Thread(target=work) for _ in range(10)]
    for one in everyone:
        one.start()
    for one in everyone:
        one.join()
    assert sorted(answer.status for answer in answers) == [200] * 9 + [201]
    assert {answer.json()["result"] for answer in answers if answer.status == 200} == {"only once"}


def test_what_its_claimant_abandons_is_unknown_at_once(worker):
    key = fresh_key()
    claimed = worker.claim(key, claimant="me")
    assert [worker.end("abandon", claimed, reason="killed").json()["state"] for _ in range(2)] == ["unknown"] * 2
    refused(worker.claim(key), 409, "CONFLICT.idempotency.outcome_unknown")
    assert worker.end("complete", claimed, result="found out").status == 200
    assert worker.claim(key).json()["result"] == "found out"
    refused(worker.end("abandon", claimed), 409, "CONFLICT.operation.fenced")


def test_outcomes_can_be_said_twice_and_not_changed(worker):
    claimed = worker.claim(fresh_key())
    first, again = (worker.end("complete", claimed, result=[1, 2]) for _ in range(2))
    assert (first.status, again.status) == (200, 200)
    refused(worker.end("complete", claimed, result=[3]), 409, "CONFLICT.operation.fenced")
    refused(worker.end("fail", claimed, error="no"), 409, "CONFLICT.operation.fenced")
    refused(worker.end("release", claimed), 409, "CONFLICT.operation.fenced")


def test_a_failure_is_replayed(worker):
    key = fresh_key()
    worker.end("fail", worker.claim(key), error={"code": "card_declined"})
    again = worker.claim(key).json()
    assert (again["state"], again["error"]) == ("failed", {"code": "card_declined"})


def test_what_was_released_runs_again_with_its_checkpoints(worker):
    key = fresh_key()
    first = worker.claim(key)
    assert first.json()["attempt"] == 1
    assert worker.end("checkpoint", first, name="page", value=7).status == 200
    worker.end("checkpoint", first, name="page", value=8)
    worker.end("checkpoint", first, name="rows", value=[1])
    assert worker.end("release", first, reason="try again later").status == 200
    assert worker.end("release", first).status == 200
    second = worker.claim(key)
    assert second.status == 201 and second.json()["epoch"] > first.json()["epoch"]
    assert (second.json()["attempt"], second.json()["checkpoints"]) == (2, {"page": 8, "rows": [1]})
    refused(worker.end("complete", first, result=1), 409, "CONFLICT.operation.fenced")


def test_other_input_is_refused(worker):
    key = fresh_key()
    worker.claim(key, input={"amount": 5})
    refused(worker.claim(key, input={"amount": 6}), 409, "CONFLICT.idempotency.payload_mismatch")


def test_a_lapsed_lease_is_unknown_and_its_claimant_can_still_complete_it(worker):
    key = fresh_key()
    claimed = worker.claim(key, claimant="me", lease="1s")
    eventually(lambda: worker.claim(key).json()["error_code"] == "CONFLICT.idempotency.outcome_unknown")
    renewed = worker.end("renew", claimed)
    assert (renewed.status, renewed.json()["state"]) == (200, "unknown")
    mine = worker.claim(key, claimant="me").json()
    assert (mine["state"], mine["epoch"]) == ("unknown", claimed.json()["epoch"])
    assert worker.end("complete", claimed, result="late").status == 200
    assert worker.claim(key).json()["result"] == "late"


def test_work_that_may_be_repeated_is_taken_over_and_the_old_claimant_is_fenced(worker):
    key = fresh_key()
    first = worker.claim(key, lease="1s")
    eventually(lambda: worker.claim(key).json()["error_code"] == "CONFLICT.idempotency.outcome_unknown")
    second = worker.claim(key, repeats_safely=True)
    assert second.status == 201 and second.json()["epoch"] > first.json()["epoch"]
    refused(worker.end("complete", first, result=1), 409, "CONFLICT.operation.fenced")
    assert worker.end("complete", second, result=2).status == 200


def test_renewing_shows_progress_and_a_request_to_cancel(worker):
    key = fresh_key()
    claimed = worker.claim(key, lease="1s")
    renewed = worker.end("renew", claimed, lease="1h", progress="half").json()
    assert renewed["lease_until"] > claimed.json()["lease_until"] and not renewed["cancel_requested"]
    assert worker.post("find", key=key).json()["progress"] == "half"
    assert worker.post("cancel", id=claimed.json()["id"], reason="the customer has left").status == 200
    renewed = worker.end("renew", claimed).json()
    assert (renewed["cancel_requested"], renewed["cancel_reason"]) == (True, "the customer has left")


def test_after_its_deadline_an_operation_is_not_renewed(worker):
    claimed = worker.claim(fresh_key(), deadline="1s", lease="1h")
    eventually(lambda: worker.end("renew", claimed).status == 409)
    refused(worker.end("renew", claimed), 409, "CONFLICT.operation.deadline")
    assert worker.end("complete", claimed, result=1).status == 200


def test_did_it_go_through(worker):
    key = fresh_key()
    refused(worker.post("find", key=key), 404, "OPERATION.not_found")
    claimed, found = worker.claim(key), []
    waiter = threading.Thread(target=lambda: found.append(worker.post("find", key=key, wait="30s")))
    waiter.start()
    worker.end("complete", claimed, result="yes")
    waiter.join()
    assert (found[0].json()["state"], found[0].json()["result"]) == ("completed", "yes")


def test_others_see_nothing_of_it(worker):
    key = fresh_key()
    claimed = worker.claim(key)
    for stranger in (Worker(worker.api, worker.api.token("publish", name="other")),
                     Worker(worker.api, worker.api.token("publish", tenant="acme"))):
        refused(stranger.post("find", key=key), 404, "OPERATION.not_found")
        for verb in ("renew", "complete", "fail"):
            refused(stranger.end(verb, claimed), 404, "OPERATION.not_found")
        assert stranger.claim(key).status == 201


def test_a_killed_daemon_forgets_no_claim(start_api, tmp_path):
    """On an embedded store a claim is unknown after a restart, because nobody renewed it meanwhile; its claimant still
    has it."""
    api = start_api(store=f"journal:{tmp_path}/operations")
    worker, key = Worker(api), fresh_key()
    claimed = worker.claim(key, claimant="me")
    worker.end("checkpoint", claimed, name="page", value=3)
    api.gateway.restart()
    worker.api = Api(api.gateway)
    refused(worker.claim(key), 409, "CONFLICT.idempotency.outcome_unknown")
    mine = worker.claim(key, claimant="me").json()
    assert (mine["epoch"], mine["checkpoints"]) == (claimed.json()["epoch"], {"page": 3})
    assert worker.end("complete", claimed, result="done").status == 200
    assert worker.claim(key).json()["result"] == "done"


@pytest.mark.parametrize("verb, body, says", [
    ("claim", {"claimant": "c"}, "key"), ("claim", {"key": "k"}, "claimant"),
    ("claim", {"key": "k", "claimant": "c", "lease": "2h"}, "lease"),
    ("claim", {"key": "k", "claimant": "c", "wait": "1h"}, "wait"),
    ("claim", {"key": "k", "claimant": "c", "extra": 1}, "extra"),
    ("claim", {"key": "k" * 300, "claimant": "c"}, "key"), ("renew", {"id": "x", "epoch": 1}, "id"),
    ("complete", {"id": "0" * 32}, "epoch"), ("checkpoint", {"id": "0" * 32, "epoch": 1}, "name"),
    ("find", {}, "key"), ("cancel", {"id": "0" * 32}, "reason"),
])
def test_bad_requests_name_what_is_wrong(start_api, tmp_path, verb, body, says):
    answer = Worker(start_api(store=f"journal:{tmp_path}/operations")).post(verb, **body)
    refused(answer, 400, "ADMIN.request_malformed")
    assert says in answer.json()["detail"]


def test_large_checkpoints_are_refused(start_api, tmp_path):
    worker = Worker(start_api(store=f"journal:{tmp_path}/operations"))
    claimed = worker.claim(fresh_key())
    refused(worker.end("checkpoint", claimed, name="big", value="x" * 70_000), 413, "ADMIN.body_too_large")
    assert worker.end("checkpoint", claimed, name="small", value="x").json()["checkpoints"] == {"small": "x"}
