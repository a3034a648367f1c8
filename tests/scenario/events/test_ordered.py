# SPDX-License-Identifier: Apache-2.0
"""An ordered endpoint gets the events of a stream one at a time, and none behind one that failed."""
import json

import pytest

from harness import answer, eventually, sanitized


def batch(hooks, *ids):
    """Publishes events whose ids are "stream-number"."""
    events = [{"id": name, "type": "t", "data": 1, "stream": name.rpartition("-")[0]} for name in ids]
    published = hooks.call("POST", "/v1/events", {"events": events})
    assert published.status == 202, published


def refuse(*ids):
    """Answers 400 to these events, and 200 to the others."""
    return lambda exchange: answer(400 if exchange.request.header("webhook-id") in ids else 200)(exchange)


def got(upstream, stream=""):
    return [request.header("webhook-id") for request in upstream.received("/hook")
            if request.header("webhook-id").startswith(stream)]


def stopped(hooks, endpoint):
    return hooks.call("GET", f"/v1/endpoints/{endpoint}").json()["stopped"]


def test_the_events_of_a_stream_come_in_order_and_one_at_a_time(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook", ordered=True)["id"]
    count = 10 if sanitized() else 40
    names = [f"{stream}-{number}" for number in range(count) for stream in ("a", "b", "")]
    under_way, overlaps = set(), []

    def alone(exchange):
        event = exchange.request.header("webhook-id")
        stream = event.rpartition("-")[0]
        if stream in under_way:
            overlaps.append(event)
        under_way.add(stream)
        exchange.read_body()
        under_way.discard(stream)
        answer(200)(exchange)

    upstream.on("/hook", alone)
    batch(hooks, *names[:len(names) // 2])
    batch(hooks, *names[len(names) // 2:])
    hooks.wait_state(endpoint, names[-1], "delivered")
    upstream.wait_requests(len(names))
    for stream in ("a", "b", ""):
        assert got(upstream, f"{stream}-") == [f"{stream}-{number}" for number in range(count)]
    assert overlaps == [] and len(got(upstream)) == len(names)


def test_a_stream_stops_visibly_at_a_failure_and_others_go_on(start_hooks, upstream, store, hapax):
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook", ordered=True, on_client_error="dead")["id"]
    upstream.on("/hook", refuse("a-2"))
    batch(hooks, "a-1", "a-2", "a-3", "b-1", "b-2")
    hooks.wait_state(endpoint, "a-2", "dead")
    hooks.wait_state(endpoint, "b-2", "delivered")
    batch(hooks, "a-4", "b-3")
    hooks.wait_state(endpoint, "b-3", "delivered")
    hooks.restart("kill")
    batch(hooks, "b-4")
    hooks.wait_state(endpoint, "b-4", "delivered")
    assert got(upstream, "a") == ["a-1", "a-2"]
    listed = stopped(hooks, endpoint)
    assert [(stop["stream"], stop["event"], stop["state"]) for stop in listed] == [("a", "a-2", "dead")]
    assert listed[0]["since"] == hooks.delivery(endpoint, "a-2")["settled_at"]
    pending = hooks.call("GET", f"/v1/deliveries?state=pending&endpoint={endpoint}").json()["deliveries"]
    assert sorted(delivery["event"] for delivery in pending) == ["a-3", "a-4"]
    told = hapax("endpoints", "why", endpoint, "--admin", f"unix:{hooks.gateway.store}/admin.sock").stdout
    assert "The stream a stopped" in told and f"hapax endpoints skip {endpoint} a-2" in told, told

    upstream.on("/hook", answer(200))
    assert hooks.call("POST", f"/v1/deliveries/{endpoint}/a-2/redrive").status == 200
    hooks.wait_state(endpoint, "a-4", "delivered")
    assert got(upstream, "a") == ["a-1", "a-2", "a-2", "a-3", "a-4"]
    assert stopped(hooks, endpoint) == []


def test_what_stops_a_stream_can_be_skipped(hooks, upstream, hapax):
    endpoint = hooks.endpoint("/hook", ordered=True, on_client_error="dead")["id"]
    upstream.on("/hook", refuse("a-1", "a-2"))
    batch(hooks, "a-1", "a-2", "a-3", "a-4")
    hooks.wait_state(endpoint, "a-1", "dead")
    assert hooks.call("POST", f"/v1/deliveries/{endpoint}/a-1/skip").json() == {"skipped": 1}
    hooks.wait_state(endpoint, "a-2", "dead")
    assert hooks.call("POST", f"/v1/deliveries/{endpoint}/a-3/skip").json() == {"skipped": 1}  # it was not sent yet
    place = ["--admin", f"unix:{hooks.gateway.store}/admin.sock"]
    assert json.loads(hapax("endpoints", "skip", endpoint, "a-2", "--json", *place).stdout) == {"skipped": 1}
    hooks.wait_state(endpoint, "a-4", "delivered")
    assert got(upstream) == ["a-1", "a-2", "a-4"]
    assert [hooks.delivery(endpoint, f"a-{number}")["state"] for number in (1, 2, 3)] == 3 * ["cancelled"]
    refused = hooks.call("POST", f"/v1/deliveries/{endpoint}/a-4/skip")
    assert (refused.status, refused.json()["error_code"]) == (409, "DELIVERY.state")


@pytest.mark.slow
def test_nothing_overtakes_an_event_that_waits_for_its_next_attempt(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook", ordered=True)["id"]
    failed = []

    def fail_once(exchange):
        first = exchange.request.header("webhook-id") == "a-1" and not failed
        if first:
            failed.append(exchange)
        answer(500 if first else 200)(exchange)

    upstream.on("/hook", fail_once)
    batch(hooks, "a-1", "a-2", "b-1")
    eventually(lambda: hooks.delivery(endpoint, "a-1").get("attempts") == 1, "one attempt")
    hooks.wait_state(endpoint, "b-1", "delivered")
    assert stopped(hooks, endpoint) == []  # it waits, and goes on by itself
    hooks.wait_state(endpoint, "a-2", "delivered")
    assert got(upstream, "a") == ["a-1", "a-1", "a-2"]


def test_a_deleted_ordered_endpoint_leaves_nothing_behind(hooks, upstream):
    sources = hooks.call("GET", "/v1/counts").json()["events"]["endpoints"]
    endpoint = hooks.endpoint("/hook", ordered=True, on_client_error="dead")["id"]
    upstream.on("/hook", answer(400))
    batch(hooks, "a-1", "a-2")
    hooks.wait_state(endpoint, "a-1", "dead")
    changed = hooks.call("PATCH", f"/v1/endpoints/{endpoint}", {"ordered": False})
    assert changed.status == 400 and "ordered" in changed.json()["detail"]
    assert hooks.call("DELETE", f"/v1/endpoints/{endpoint}").status == 200
    hooks.wait_state(endpoint, "a-2", "cancelled")
    eventually(lambda: hooks.call("GET", "/v1/counts").json()["events"]["endpoints"] == sources, "it is gone")
