# SPDX-License-Identifier: Apache-2.0
"""Several gateways on one store: each knows the endpoints of all, and what one leaves undone another does."""
import datetime

import pytest

from harness import answer, eventually, in_turn, never_answer


@pytest.fixture(params=["sqlite", "postgres"])
def nodes(request, start_hooks, tmp_path):
    """Two gateways on one store."""
    url = request.getfixturevalue("database").url if request.param == "postgres" else f"sqlite:{tmp_path}/events"
    first = start_hooks(store=url)
    second = start_hooks(store=url)
    second.token = first.token
    return first, second


def test_an_endpoint_gets_what_another_gateway_accepts_right_after_it_was_created(nodes, upstream):
    first, second = nodes
    for number in range(5):
        here, there = (first, second) if number % 2 == 0 else (second, first)
        endpoint = here.endpoint(f"/hook-{number}", types=[f"t.{number}"])["id"]
        published = there.publish(f"t.{number}", id=f"e-{number}")
        assert published.json()["recipients"] == 1, published
        here.wait_state(endpoint, f"e-{number}", "delivered")
    assert sorted(request.path for request in upstream.received()) == [f"/hook-{number}" for number in range(5)]


def test_what_is_changed_at_one_gateway_holds_at_the_other(nodes, upstream):
    first, second = nodes
    endpoint = first.endpoint("/old")["id"]
    eventually(lambda: second.call("GET", f"/v1/endpoints/{endpoint}").status == 200, "the other one knows it")
    url, types = {"url": upstream.url + "/new"}, {"types": ["mine"]}
    assert first.call("PATCH", f"/v1/endpoints/{endpoint}", url).status == 200
    changed = second.call("PATCH", f"/v1/endpoints/{endpoint}", types).json()
    assert (changed["url"], changed["types"]) == (url["url"], ["mine"])  # neither change undoes the other
    assert first.publish("theirs").json()["recipients"] == 0
    event = first.publish("mine").json()["id"]
    first.wait_state(endpoint, event, "delivered")
    assert [request.path for request in upstream.received()] == ["/new"]
    assert first.call("DELETE", f"/v1/endpoints/{endpoint}").status == 200
    assert second.publish("mine").json()["recipients"] == 0


def test_disabling_at_one_gateway_stops_the_other(nodes, upstream):
    first, second = nodes
    endpoint = first.endpoint("/hook")["id"]
    event = second.publish().json()["id"]
    first.wait_state(endpoint, event, "delivered")
    assert first.call("POST", f"/v1/endpoints/{endpoint}/disable", {"why": "maintenance"}).status == 200
    later = second.publish().json()["id"]  # it is told of the change by this at the latest
    before = len(upstream.received("/hook"))
    assert second.call("GET", f"/v1/endpoints/{endpoint}").json()["disabled"]
    assert second.delivery(endpoint, later)["state"] == "pending"
    assert second.call("POST", f"/v1/endpoints/{endpoint}/enable").status == 200
    first.wait_state(endpoint, later, "delivered")
    assert (before, len(upstream.received("/hook"))) == (1, 2)


@pytest.mark.slow
def test_what_a_killed_gateway_has_accepted_is_delivered_by_the_other(nodes, upstream):
    first, second = nodes
    endpoint = first.endpoint("/hook", timeout="1s")["id"]
    upstream.on("/hook", never_answer)
    held = first.publish(id="held").json()["id"]
    upstream.wait_requests(1)
    events = [first.publish(id=f"e-{number}").json()["id"] for number in range(20)]
    first.gateway.kill()
    upstream.on("/hook", answer(200))
    for event in events:
        second.wait_state(endpoint, event, "delivered")
    interrupted = second.wait_state(endpoint, held, "delivered")
    assert interrupted["tries"][0]["error"] == "interrupted"
    got = [request.header("webhook-id") for request in upstream.received("/hook")]
    assert sorted(set(got)) == sorted(events + [held])


@pytest.mark.slow
def test_a_delivery_that_failed_at_a_gateway_is_repeated_by_another_when_it_died(nodes, upstream):
    first, second = nodes
    endpoint = first.endpoint("/hook")["id"]
    upstream.on("/hook", in_turn(answer(500), answer(200)))
    event = first.publish().json()["id"]
    eventually(lambda: second.delivery(endpoint, event).get("attempts") == 1, "one attempt")
    first.wait_state(endpoint, event, "pending")
    first.gateway.kill()
    second.wait_state(endpoint, event, "delivered")
    assert len(upstream.received("/hook")) == 2


def test_an_event_for_later_is_sent_although_the_gateway_that_took_it_died(nodes, upstream):
    first, second = nodes
    endpoint = first.endpoint("/hook")["id"]
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=2)
    first.publish(id="later", deliver_at=at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    first.gateway.kill()
    second.wait_state(endpoint, "later", "delivered")
    assert upstream.effects("/hook") == 1
