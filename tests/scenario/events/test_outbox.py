# SPDX-License-Identifier: Apache-2.0
"""Events that are published reach every endpoint that wants them, under one id, however often anything dies."""
import pytest

from harness import answer, envelope, eventually, in_turn, is_signed, never_answer


def test_an_event_reaches_those_who_subscribed_signed_and_once(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    every = hooks.endpoint("/every")
    hooks.endpoint("/refunds", types=["refund.*"], filters={"/currency": "EUR"}, headers=["X-Team: payments"])
    hooks.endpoint("/orders", types=["order.created"])
    published = hooks.publish(data={"currency": "EUR", "amount": 5}, correlation_id="c-1")
    assert published.status == 202 and published.header("Idempotency-Status") == "stored"
    event = published.json()["id"]
    upstream.wait_requests(2)
    hooks.wait_state(every["id"], event, "delivered")
    got = {request.path: request for request in upstream.received()}
    assert sorted(got) == ["/every", "/refunds"]
    for request in got.values():
        assert request.header("webhook-id") == request.key == event
        assert request.header("X-Correlation-Id") == "c-1"
        assert envelope(request) == {"eventId": event, "eventType": "refund.created",
                                     "timestamp": published.json()["accepted_at"],
                                     "data": {"currency": "EUR", "amount": 5}}
    assert is_signed(got["/every"], every["secret"]) and not is_signed(got["/refunds"], every["secret"])
    assert got["/refunds"].header("X-Team") == "payments"


def test_publishing_again_tells_the_first_answer_and_sends_nothing(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook")["id"]
    first = hooks.publish(data={"a": 1, "b": 2}, key="order-17")
    again = hooks.publish(data={"b": 2.0, "a": 1}, key="order-17")
    assert (again.status, again.header("Idempotency-Status")) == (200, "replayed")
    assert again.json() == first.json()
    other = hooks.publish(data={"a": 2}, key="order-17")
    assert (other.status, other.json()["error_code"]) == (409, "CONFLICT.event.published_before")
    assert hooks.publish(id="mine").status == 202
    assert hooks.publish(id="mine").status == 200
    assert hooks.publish(id="mine", data={"x": 1}).status == 409
    hooks.wait_state(endpoint, "mine", "delivered")
    hooks.wait_state(endpoint, first.json()["id"], "delivered")
    assert upstream.effects("/hook") == 2


def test_a_batch_is_all_or_none(hooks, upstream):
    endpoint = hooks.endpoint("/hook")["id"]
    assert hooks.publish(id="taken").status == 202
    batch = [{"id": name, "type": "t", "data": 1} for name in ("new-1", "taken", "new-2")]
    refused = hooks.call("POST", "/v1/events", {"events": batch})
    assert refused.status == 409 and "taken" in refused.json()["detail"]
    assert hooks.call("GET", "/v1/events/new-1").status == 404
    batch[1]["id"] = "new-3"
    accepted = hooks.call("POST", "/v1/events", {"events": batch})
    assert accepted.status == 202 and len(accepted.json()["events"]) == 3
    for event in batch:
        hooks.wait_state(endpoint, event["id"], "delivered")
    assert upstream.effects("/hook") == 4


@pytest.mark.slow
def test_what_was_accepted_is_delivered_after_a_kill(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    endpoint = hooks.endpoint("/hook", timeout="1s")["id"]
    upstream.on("/hook", never_answer)
    event = hooks.publish().json()["id"]
    upstream.wait_requests(1)
    hooks.restart("kill")
    upstream.on("/hook", answer(200))
    delivered = hooks.wait_state(endpoint, event, "delivered")
    assert [attempt.get("error") for attempt in delivered["tries"]] == ["interrupted", None]
    assert {request.header("webhook-id") for request in upstream.received("/hook")} == {event}


@pytest.mark.slow
def test_a_failed_attempt_is_repeated_five_seconds_later_under_the_same_id(hooks, upstream):
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", in_turn(answer(500, "no luck"), answer(204)))
    event = hooks.publish().json()["id"]
    failed = hooks.wait_state(endpoint, event, "pending")
    eventually(lambda: hooks.delivery(endpoint, event)["attempts"] == 1, "one attempt")
    delivered = hooks.wait_state(endpoint, event, "delivered")
    assert [attempt["status"] for attempt in delivered["tries"]] == [500, 204]
    assert delivered["tries"][0]["response"] == "no luck"
    first, second = upstream.received("/hook")
    assert first.header("webhook-id") == second.header("webhook-id") == event
    assert second.at - first.at >= 5 and first.body == second.body
    assert (first.header("Hapax-Attempt"), second.header("Hapax-Attempt")) == ("1", "2")
    assert failed["endpoint"] == endpoint


def test_gone_disables_the_endpoint_and_a_dead_letter_can_be_sent_again(hooks, upstream):
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", answer(410))
    event = hooks.publish().json()["id"]
    hooks.wait_state(endpoint, event, "dead")
    eventually(lambda: hooks.call("GET", f"/v1/endpoints/{endpoint}").json()["disabled"], "the endpoint is disabled")
    later = hooks.publish().json()["id"]
    dead = hooks.call("GET", f"/v1/deliveries?state=dead&endpoint={endpoint}").json()["deliveries"]
    assert [delivery["event"] for delivery in dead] == [event]
    upstream.on("/hook", answer(200))
    assert hooks.call("POST", f"/v1/endpoints/{endpoint}/enable").status == 200
    hooks.wait_state(endpoint, later, "delivered")
    assert hooks.call("POST", f"/v1/deliveries/{endpoint}/{event}/redrive").json() == {"redriven": 1}
    assert hooks.wait_state(endpoint, event, "delivered")["round"] == 2
    refused = hooks.call("POST", f"/v1/deliveries/{endpoint}/{later}x/redrive")
    assert (refused.status, refused.json()["error_code"]) == (404, "DELIVERY.not_found")


def test_tenants_see_nothing_of_each_other(hooks, upstream):
    mine, theirs = (hooks.api.token("publish", "operate", "view", tenant=name) for name in ("acme", "rival"))
    endpoint = hooks.endpoint("/acme", token=mine)["id"]
    hooks.endpoint("/rival", token=theirs)
    event = hooks.publish(token=mine, id="e-1").json()["id"]
    upstream.wait_requests(1)
    for method, target in [("GET", f"/v1/endpoints/{endpoint}"), ("PATCH", f"/v1/endpoints/{endpoint}"),
                           ("DELETE", f"/v1/endpoints/{endpoint}"), ("POST", f"/v1/endpoints/{endpoint}/enable"),
                           ("POST", f"/v1/endpoints/{endpoint}/rotate"), ("GET", f"/v1/events/{event}"),
                           ("DELETE", f"/v1/events/{event}"), ("GET", f"/v1/deliveries/{endpoint}/{event}"),
                           ("POST", f"/v1/deliveries/{endpoint}/{event}/redrive")]:
        body = None if method == "GET" else {}
        assert hooks.call(method, target, body, token=theirs).status == 404, (method, target)
        assert hooks.call(method, f"{target}?tenant=acme", body, token=theirs).status == 403, (method, target)
    assert hooks.call("GET", "/v1/events", token=theirs).json()["events"] == []
    listed = hooks.call("GET", "/v1/endpoints", token=theirs).json()["endpoints"]
    assert [found["tenant"] for found in listed] == ["rival"]
    assert hooks.publish(token=theirs, id="e-1", data={"mine": False}).status == 202  # the same id is another event
    upstream.wait_requests(2)
    assert [request.path for request in upstream.received()] == ["/acme", "/rival"]


def test_an_address_inside_is_never_dialled(start_hooks, upstream):
    hooks = start_hooks(config="", store="memory:")
    port = upstream.url.rpartition(":")[2]
    for host in ("127.0.0.1", "127.1", "2130706433", "0177.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0"):
        made = hooks.call("POST", "/v1/endpoints", {"url": f"http://{host}:{port}/hook"})
        assert made.status == 201, made
        endpoint, event = made.json()["id"], f"e-{made.json()['id']}"
        hooks.publish(id=event)
        eventually(lambda: hooks.delivery(endpoint, event).get("tries"), f"an attempt to reach {host}")
        tried = hooks.delivery(endpoint, event)["tries"][0]
        assert "status" not in tried, (host, tried)
        hooks.call("DELETE", f"/v1/endpoints/{endpoint}")
    assert upstream.received() == []


@pytest.mark.parametrize("body, what", [
    ({}, "type"), ({"type": "t"}, "data"), ({"type": "t", "data": 1, "id": "a.b"}, "id"),
    ({"type": "t", "data": 1, "stream": "a b"}, "stream"), ({"type": 7, "data": 1}, "type"),
    ({"type": "t", "data": 1, "deliver_at": "tomorrow"}, "deliver_at"), ({"events": []}, "events"),
    ({"events": [{"type": "t", "data": 1, "deliver_at": "9999-12-31T00:00:00Z"}]}, 'event 1: "deliver_at" must not be'),
    ({"type": "t", "data": 1, "id": ""}, "id"), ({"events": [{"type": "t", "data": 1}], "type": "t"}, "beside"),
    ({"events": [{"type": "t", "data": n, "id": "e"} for n in (1, 2, 3)]}, "event 2: "),
    ({"type": "t", "data": 1, "tenant": "a b"}, "tenant")])
def test_a_malformed_event_is_refused_and_named(hooks, body, what):
    refused = hooks.call("POST", "/v1/events", body)
    assert refused.status == 400 and what in refused.json()["detail"], refused
    assert hooks.call("GET", "/v1/events").json()["events"] == []


def test_an_event_that_is_too_large_is_refused(hooks):
    refused = hooks.publish(data="x" * 300_000)
    assert (refused.status, refused.json()["error_code"]) == (413, "VALIDATION.events_too_large")
    assert "payload_max" in refused.json()["detail"]
    assert hooks.call("GET", "/v1/events").json()["events"] == []


@pytest.mark.parametrize("members, what", [
    ({"url": "ftp://example.com"}, "url"), ({"url": "http://"}, "url"), ({"url": "https://:443/"}, "url"),
    ({"url": "https://user:password@example.com/"}, "url"), ({"url": "https://example.com/#a"}, "url"),
    ({"types": ["a*b"]}, "types"), ({"headers": ["Host: x"]}, "Host"),
    ({"headers": ["no colon"]}, "headers"), ({"secrets": ["whsec_%"]}, "secrets"), ({"timeout": "5m"}, "timeout"),
    ({"secrets": ["abc"]}, "whsec_"), ({"secrets": ["whsec_c2hvcnQ="]}, "16 random bytes"),
    ({"filters": {"amount": 1}}, "filters"), ({"concurrency": 0}, "concurrency"), ({"colour": "red"}, "colour")])
def test_a_malformed_endpoint_is_refused_and_named(hooks, members, what):
    refused = hooks.call("POST", "/v1/endpoints", {"url": "https://example.com/", **members})
    assert refused.status == 400 and what in refused.json()["detail"], refused


def test_an_endpoint_stays_with_its_tenant(hooks):
    endpoint = hooks.endpoint("/hook")["id"]
    refused = hooks.call("PATCH", f"/v1/endpoints/{endpoint}", {"tenant": "acme"})
    assert refused.status == 400 and '"tenant" can\'t be changed' in refused.json()["detail"], refused
    assert hooks.call("PATCH", f"/v1/endpoints/{endpoint}", {"tenant": "", "rate": 5}).json()["rate"] == 5
