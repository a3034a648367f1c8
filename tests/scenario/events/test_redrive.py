# SPDX-License-Identifier: Apache-2.0
"""Deliveries are sent again by a job: once each, at its pace, however often the daemon dies, until it is stopped."""
from collections import Counter

import pytest

from harness import answer, eventually, never_answer


def dead_letters(hooks, upstream, count, path="/hook"):
    """An endpoint that has refused `count` events for good; returns its id and theirs."""
    upstream.on(path, answer(400))
    endpoint = hooks.endpoint(path, on_client_error="dead")["id"]
    events = [f"e-{number}" for number in range(count)]
    for first in range(0, count, 1000):
        batch = [{"id": event, "type": "t", "data": 1} for event in events[first:first + 1000]]
        assert hooks.call("POST", "/v1/events", {"events": batch}).status == 202
    eventually(lambda: preview(hooks)["would_redrive"] == count, "all are dead")
    upstream.on(path, answer(200))
    return endpoint, events


def preview(hooks, **members):
    return hooks.call("POST", "/v1/redrives", {"preview": True, **members}).json()


def begin(hooks, **members):
    begun = hooks.call("POST", "/v1/redrives", members)
    assert begun.status == 202 and begun.json()["status"] == "running", begun
    return begun.json()["id"]


def job(hooks, name):
    return hooks.call("GET", f"/v1/redrives/{name}").json()


def wait_end(hooks, name):
    eventually(lambda: job(hooks, name)["status"] != "running", "the job has ended")
    return job(hooks, name)


def sent_again(upstream, before, path="/hook"):
    return Counter(request.header("webhook-id") for request in upstream.received(path)[before:])


@pytest.mark.slow
def test_a_job_survives_a_kill_and_arms_each_dead_letter_once(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    endpoint, events = dead_letters(hooks, upstream, 120)
    before = len(upstream.received("/hook"))
    name = begin(hooks, endpoint=endpoint, rate=60, why="the receiver was repaired")
    for share in (30, 60):
        eventually(lambda: len(sent_again(upstream, before)) >= share, f"{share} are sent again")
        hooks.restart("kill")
        assert job(hooks, name)["status"] == "running"
    done = wait_end(hooks, name)
    assert (done["status"], done["armed"], done["expected"]) == ("done", 120, 120)
    assert done["why"] == "the receiver was repaired" and done["by"] == "token shop"
    for event in events:
        hooks.wait_state(endpoint, event, "delivered")
    assert {hooks.delivery(endpoint, event)["round"] for event in events} == {2}
    again = sent_again(upstream, before)
    interrupted = sum(hooks.delivery(endpoint, event)["attempts"] - 2 for event in events)
    assert set(again) == set(events) and sum(again.values()) <= 120 + interrupted


@pytest.mark.slow
def test_another_node_takes_over_the_job_of_one_that_died(start_hooks, upstream, database):
    first = start_hooks(store=database.url)
    endpoint, events = dead_letters(first, upstream, 60)
    before = len(upstream.received("/hook"))
    second = start_hooks(store=database.url)
    name = begin(first, endpoint=endpoint, rate=20)
    eventually(lambda: len(sent_again(upstream, before)) >= 10, "ten are sent again")
    assert job(second, name)["status"] == "running"
    first.gateway.kill()
    assert wait_end(second, name)["armed"] == 60
    for event in events:
        assert second.wait_state(endpoint, event, "delivered")["round"] == 2
    assert set(sent_again(upstream, before)) == set(events)


def test_a_job_keeps_its_pace_and_stops_when_told(hooks, upstream):
    endpoint, events = dead_letters(hooks, upstream, 40)
    before = len(upstream.received("/hook"))
    name = begin(hooks, endpoint=endpoint, rate=10)
    eventually(lambda: len(sent_again(upstream, before)) >= 5, "five are sent again")
    requests = upstream.received("/hook")[before:]
    assert requests[4].at - requests[0].at >= 0.2  # at most two at a time, and 200 ms until the next
    stopped = hooks.call("POST", f"/v1/redrives/{name}/stop", {"why": "enough"}).json()
    assert (stopped["status"], stopped["reason"]) == ("stopped", "enough") and stopped["armed"] < 40
    eventually(lambda: len(sent_again(upstream, before)) == stopped["armed"], "what was armed is sent")
    assert preview(hooks)["would_redrive"] == 40 - stopped["armed"]
    assert job(hooks, name)["armed"] == stopped["armed"]
    rest = wait_end(hooks, begin(hooks))
    assert rest["armed"] == 40 - stopped["armed"] and rest["status"] == "done"
    eventually(lambda: len(upstream.received("/hook")) == before + 40, "the rest is sent")
    assert set(sent_again(upstream, before).values()) == {1}
    listed = hooks.call("GET", "/v1/redrives").json()["redrives"]
    assert [found["status"] for found in listed] == ["done", "stopped"] and listed[1]["id"] == name
    assert events


def test_failures_stop_a_job_before_it_has_armed_everything(hooks, upstream):
    endpoint, _ = dead_letters(hooks, upstream, 60)
    upstream.on("/hook", answer(400))
    stopped = wait_end(hooks, begin(hooks, endpoint=endpoint, stop_after=3))
    assert (stopped["status"], stopped["reason"]) == ("stopped", "deliveries failed again")
    assert stopped["failed"] >= 3 and stopped["armed"] <= 32
    eventually(lambda: preview(hooks)["would_redrive"] == 60, "all are dead again")
    whole = wait_end(hooks, begin(hooks, endpoint=endpoint, rate=200))
    assert (whole["status"], whole["armed"]) == ("done", 60)  # those that die meanwhile are not taken again
    assert (whole["failed"], whole["delivered"]) == (60, 0)
    eventually(lambda: preview(hooks)["would_redrive"] == 60, "all are dead again")
    upstream.on("/hook", answer(200))
    done = wait_end(hooks, begin(hooks, endpoint=endpoint, stop_after=3))
    assert (done["status"], done["failed"]) == ("done", 0) and done["delivered"] == done["armed"] == 60


def test_what_is_pending_or_being_sent_is_skipped_and_counted(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    upstream.on("/slow", never_answer)
    slow, quick = hooks.endpoint("/slow", timeout="30s")["id"], hooks.endpoint("/quick")["id"]
    hooks.publish(id="e-1")
    hooks.wait_state(quick, "e-1", "delivered")
    hooks.wait_state(slow, "e-1", "sending")
    counted = preview(hooks, event="e-1", state="delivered", again=True)
    assert (counted["would_redrive"], counted["skipped"]) == (1, 1)
    done = wait_end(hooks, begin(hooks, event="e-1", state="delivered", again=True))
    assert (done["armed"], done["skipped"], done["event"]) == (1, 1, "e-1")
    eventually(lambda: hooks.delivery(quick, "e-1")["round"] == 2, "a new round")
    hooks.wait_state(quick, "e-1", "delivered")
    assert sent_again(upstream, 0, "/quick") == {"e-1": 2}
    everything = wait_end(hooks, begin(hooks, state="delivered", again=True))
    assert (everything["armed"], everything["skipped"]) == (1, 1)
    hooks.wait_state(quick, "e-1", "delivered")
    assert len(upstream.received("/slow")) == 1


def test_a_job_takes_only_what_it_selects(hooks, upstream):
    endpoint, _ = dead_letters(hooks, upstream, 3)
    other, _ = dead_letters_of_another(hooks, upstream)
    assert preview(hooks)["would_redrive"] == 4 and preview(hooks, endpoint=other)["would_redrive"] == 1
    assert preview(hooks, before="1h")["would_redrive"] == 0 and preview(hooks, **{"from": "1h"})["would_redrive"] == 4
    assert preview(hooks, event="e-1")["would_redrive"] == 1 and preview(hooks, state="held")["would_redrive"] == 0
    assert wait_end(hooks, begin(hooks, limit=2, endpoint=endpoint))["armed"] == 2
    assert preview(hooks)["would_redrive"] == 2
    theirs = hooks.api.token("operate", "view", tenant="rival")
    for method, target in [("GET", ""), ("POST", "/stop")]:
        name = hooks.call("GET", "/v1/redrives").json()["redrives"][0]["id"]
        assert hooks.call(method, f"/v1/redrives/{name}{target}", token=theirs).status == 404
    assert hooks.call("GET", "/v1/redrives", token=theirs).json()["redrives"] == []


def test_an_endpoint_recovers_what_came_before_it(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    upstream.on("/old", answer(200))
    old = hooks.endpoint("/old")["id"]
    for number in range(30):
        hooks.publish("wanted" if number % 3 else "other", id=f"e-{number}")
    late = hooks.endpoint("/late", types=["wanted"])["id"]
    hooks.publish("wanted", id="e-30")
    hooks.wait_state(late, "e-30", "delivered")
    wanted = [f"e-{number}" for number in range(30) if number % 3]
    counted = hooks.call("POST", f"/v1/endpoints/{late}/recover", {"since": "1h", "preview": True}).json()
    assert counted["would_redrive"] == len(wanted) == 20
    begun = hooks.call("POST", f"/v1/endpoints/{late}/recover", {"since": "1h", "rate": 20})
    assert (begun.status, begun.json()["kind"], begun.json()["expected"]) == (202, "recover", 20)
    eventually(lambda: len(sent_again(upstream, 0, "/late")) > 5, "some are recovered")
    hooks.restart("kill")
    assert wait_end(hooks, begun.json()["id"])["armed"] == 20
    for event in wanted:
        hooks.wait_state(late, event, "delivered")
        assert hooks.delivery(late, event)["round"] == 1
    assert set(sent_again(upstream, 0, "/late")) == {*wanted, "e-30"}
    again = hooks.call("POST", f"/v1/endpoints/{late}/recover", {"since": "1h", "preview": True}).json()
    assert again["would_redrive"] == 0 and len(upstream.received("/old")) == 31 and old
    refused = hooks.call("POST", f"/v1/endpoints/{late}/recover", {})
    assert refused.status == 400 and "since" in refused.json()["detail"]
    assert hooks.call("POST", "/v1/endpoints/ep_none/recover", {"since": "1h"}).status == 404


def dead_letters_of_another(hooks, upstream):
    upstream.on("/other", answer(410))
    endpoint = hooks.endpoint("/other", types=["other"])["id"]
    hooks.publish("other", id="o-1")
    hooks.wait_state(endpoint, "o-1", "dead")
    return endpoint, ["o-1"]


def test_paused_deliveries_begin_a_new_round_and_wait_for_their_endpoint(hooks, upstream):
    upstream.on("/hook", answer(500))
    endpoint = hooks.endpoint("/hook")["id"]
    hooks.publish(id="e-1")
    eventually(lambda: hooks.delivery(endpoint, "e-1")["tries"], "one attempt has failed")
    assert preview(hooks, state="paused")["skipped"] == 1
    assert hooks.call("POST", f"/v1/endpoints/{endpoint}/disable", {"why": "broken"}).status == 200
    assert wait_end(hooks, begin(hooks, state="paused"))["armed"] == 1
    upstream.on("/hook", answer(200))
    assert hooks.call("POST", f"/v1/endpoints/{endpoint}/enable").status == 200
    assert hooks.wait_state(endpoint, "e-1", "delivered")["round"] == 2


@pytest.mark.parametrize("members, what", [
    ({"state": "pending"}, "state"), ({"state": "delivered"}, "again"), ({"rate": 5000}, "rate"),
    ({"from": "yesterday"}, "from"), ({"colour": "red"}, "colour"), ({"why": "x" * 501}, "why")])
def test_a_malformed_job_is_refused_and_named(hooks, members, what):
    refused = hooks.call("POST", "/v1/redrives", members)
    assert refused.status == 400 and what in refused.json()["detail"], refused
    assert hooks.call("GET", "/v1/redrives").json()["redrives"] == []
    assert hooks.call("GET", "/v1/redrives/rd_none").status == 404


def test_a_job_for_an_endpoint_that_does_not_exist_is_refused(hooks, upstream):
    dead_letters(hooks, upstream, 1)
    for members in ({}, {"preview": True}, {"event": "e-0"}):
        refused = hooks.call("POST", "/v1/redrives", {"endpoint": "ep_none", **members})
        assert (refused.status, refused.json()["error_code"]) == (404, "ENDPOINT.not_found"), members
    assert hooks.call("GET", "/v1/redrives").json()["redrives"] == []
    assert preview(hooks, endpoint="in_github")["would_redrive"] == 0  # the application behind a source is there
