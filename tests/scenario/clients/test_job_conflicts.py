# SPDX-License-Identifier: Apache-2.0
"""`scheduler_job_conflict`: jobs that were not run because their key was taken are counted in the store, by whoever
did not run them."""
import os
import uuid

import pytest

from harness import EXIT_CONFIG, EXIT_UNKNOWN, HANG_S, eventually, fresh_key

CONFIG = """
    routes:
      - {name: nightly, match: POST /nightly, class: scheduled}
      - {name: refunds, match: POST /refunds}
"""


@pytest.fixture(params=["sqlite", "journal", "postgres"])
def store(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("database").url
    return f"{request.param}:{tmp_path}/conflicts"


def counted(api):
    return api.gateway.counts("store")["scheduler_job_conflict"]


def claim(api, token, key, **more):
    return api.call("POST", "/v1/operations/claim", token, body={"key": key, "claimant": str(uuid.uuid4()), **more})


def test_routes_and_claims_that_ran_nothing_are_counted_for_good(start_api, upstream, store):
    api = start_api(CONFIG, store=store)
    keys = {path: fresh_key() for path in ("/nightly", "/refunds")}
    for path, key in keys.items():
        for body in ({}, {}, {}, {"other": 1}):
            api.gateway.post(path, key=key, json=body)
    assert counted(api) == 2, "two replays of the timer's job; a mismatch is none, and a route of people neither"

    token, key = api.token("publish"), fresh_key()
    first = claim(api, token, key).json()
    assert claim(api, token, key).status == 409 and counted(api) == 3
    api.call("POST", "/v1/operations/complete", token, body={"id": first["id"], "epoch": first["epoch"], "result": 1})
    assert claim(api, token, key).status == 200 and counted(api) == 4
    assert claim(api, token, key, wait="1s").status == 200 and counted(api) == 5
    api.gateway.restart("drain")
    eventually(lambda: counted(api) == 5, "the number that was kept")


def test_runs_that_ran_nothing_are_counted_in_their_store(jobs, start_api):
    api = start_api(store=jobs.store)
    gate = jobs.folder / "gate"
    os.mkfifo(gate)
    words = ["sh", "-c", f"echo ran >> {jobs.log}; cat {gate}"]
    first = jobs.start(*words)
    eventually(jobs.effects, "the command runs")
    assert jobs(*words, flags=["--no-wait"]).code == EXIT_UNKNOWN
    waiting = [jobs.start(*words) for _ in range(8)]
    gate.write_text("go\n")
    assert {process.communicate(timeout=HANG_S)[0] for process in (first, *waiting)} == {b"go\n"}
    assert jobs("true").code == EXIT_CONFIG  # another command line: refused, and not counted
    eventually(lambda: counted(api) == 9, "one that did not wait, and eight that did")
    jobs.store = f"unix:{api.gateway.store}/admin.sock"
    assert [jobs("true").code for _ in range(3)] == [0, 0, 0]
    eventually(lambda: counted(api) == 11, "two more at the daemon")
