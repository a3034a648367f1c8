# SPDX-License-Identifier: Apache-2.0
"""Events about ourselves: whoever names them learns what became of deliveries and endpoints, once."""
import pytest

from harness import answer, drop_after_effect, envelope, eventually, fresh_key

OWN = ["endpoint.*", "delivery.dead", "unknown.created"]


def told(upstream, path="/ops"):
    return [envelope(request) for request in upstream.received(path)]


def test_a_dead_delivery_and_a_disabled_endpoint_are_told_to_those_who_ask(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    hooks.endpoint("/ops", types=OWN)
    hooks.endpoint("/every")
    hooks.endpoint("/star", types=["*"])
    gone = hooks.endpoint("/gone", types=["refund.*", "endpoint.disabled"])["id"]
    upstream.on("/gone", answer(410))
    event = hooks.publish().json()["id"]
    eventually(lambda: len(told(upstream)) == 2, "both are told")
    by_type = {got["eventType"]: got for got in told(upstream)}
    dead, disabled = by_type["delivery.dead"]["data"], by_type["endpoint.disabled"]["data"]
    assert (dead["endpoint"], dead["event"], dead["reason"], dead["last_status"]) == (gone, event, "gone", 410)
    assert (disabled["endpoint"], disabled["reason"]) == (gone, "it has answered 410 Gone")
    assert [got["eventId"] for got in told(upstream, "/every")] == [event]  # no types: those of users only
    assert [got["eventId"] for got in told(upstream, "/star")] == [event]
    assert len(upstream.received("/gone")) == 1  # nothing about itself
    listed = {found["id"]: found for found in hooks.call("GET", "/v1/events").json()["events"]}
    assert all(listed[got["eventId"]]["source"] == "hapax" for got in told(upstream))


def test_the_death_of_an_event_about_ourselves_is_not_told(hooks, upstream):
    ops = hooks.endpoint("/ops", types=OWN, on_client_error="dead")["id"]
    bad = hooks.endpoint("/bad", types=["refund.*"], on_client_error="dead")["id"]
    upstream.on("/ops", answer(400))
    upstream.on("/bad", answer(400))
    event = hooks.publish().json()["id"]
    hooks.wait_state(bad, event, "dead")
    upstream.wait_requests(2)
    own = told(upstream)[0]["eventId"]
    hooks.wait_state(ops, own, "dead")
    assert hooks.call("POST", f"/v1/deliveries/{bad}/{event}/redrive").status == 200  # it dies again: that is new
    eventually(lambda: len(told(upstream)) == 2, "the second death")
    hooks.wait_state(ops, told(upstream)[1]["eventId"], "dead")
    assert len({got["eventId"] for got in told(upstream)}) == 2
    types = [found["type"] for found in hooks.call("GET", "/v1/events").json()["events"]]
    assert sorted(types) == ["delivery.dead", "delivery.dead", "refund.created"]
    mine = hooks.publish(id="hapax_1")
    assert mine.status == 400 and "hapax_" in mine.json()["detail"]


def test_a_webhook_that_may_have_been_processed_is_told(hooks, upstream):
    hooks.endpoint("/ops", types=["unknown.*"])
    upstream.on("/app/once", drop_after_effect())
    assert hooks.standard("once", "w-1").status == 200
    eventually(lambda: told(upstream), "it is told")
    (got,) = told(upstream)
    assert (got["eventType"], got["data"]["endpoint"], got["data"]["event"]) == ("unknown.created", "in_once", "w-1")
    assert hooks.delivery("in_once", "w-1")["state"] == "unknown"


@pytest.mark.slow
def test_what_is_true_after_a_kill_is_told_after_it(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    hooks.endpoint("/ops", types=["endpoint.disabled"])
    other = hooks.endpoint("/other")["id"]
    with upstream.hold("/ops"):
        assert hooks.call("POST", f"/v1/endpoints/{other}/disable", {"why": "moved"}).status == 200
        hooks.gateway.kill()
    hooks.gateway.start()
    upstream.wait(lambda: len(upstream.requests) >= 1, "it is told")
    assert {got["data"]["reason"] for got in told(upstream)} == {"moved"}
    assert len({got["eventId"] for got in told(upstream)}) == 1


def test_an_operation_whose_outcome_is_unknown_is_told_once(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    hooks.endpoint("/ops", types=["unknown.created"])
    hooks.endpoint("/all")
    upstream.on("/refunds", drop_after_effect())
    key = fresh_key()
    assert hooks.gateway.post("/refunds", key=key, json={}).idempotency == "unknown"
    upstream.wait(lambda: upstream.received("/ops"), "it is told")
    (got,) = told(upstream)
    assert got["eventType"] == "unknown.created" and len(got["data"]["operation"]) == 32
    hooks.restart()
    assert hooks.gateway.post("/refunds", key=fresh_key(), json={}).idempotency == "unknown"
    upstream.wait(lambda: len(upstream.received("/ops")) > 1, "the second is told")
    told_of = [got["data"]["operation"] for got in told(upstream)]
    assert len(told_of) == len(set(told_of)) == 2
    assert upstream.received("/all") == []
