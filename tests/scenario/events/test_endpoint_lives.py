# SPDX-License-Identifier: Apache-2.0
"""What becomes of deliveries while their endpoint answers oddly, is changed, paused or deleted."""
import pytest

from harness import answer, eventually, in_turn, is_signed


def tried(hooks, endpoint, event, times=1):
    eventually(lambda: hooks.delivery(endpoint, event).get("attempts") == times
               and hooks.delivery(endpoint, event)["state"] != "sending", f"{times} attempts")
    return hooks.delivery(endpoint, event)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 304])
def test_a_redirect_is_a_failure_and_is_not_followed(hooks, upstream, status):
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", answer(status, headers=[("Location", upstream.url + "/elsewhere")]))
    event = hooks.publish().json()["id"]
    failed = tried(hooks, endpoint, event)
    assert (failed["state"], failed["tries"][0]["status"]) == ("pending", status)
    assert upstream.received("/elsewhere") == []


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_every_2xx_is_a_success(hooks, upstream, status):
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", answer(status))
    event = hooks.publish().json()["id"]
    assert hooks.wait_state(endpoint, event, "delivered")["tries"][0]["status"] == status


@pytest.mark.slow
def test_retry_after_holds_back_every_delivery_to_that_endpoint(hooks, upstream):
    endpoint = hooks.endpoint("/busy", types=["a"])["id"]
    other = hooks.endpoint("/other", types=["a"])["id"]
    upstream.on("/busy", in_turn(answer(503, headers=[("Retry-After", "7")]), answer(200)))
    first = hooks.publish("a").json()["id"]
    tried(hooks, endpoint, first)
    second = hooks.publish("a").json()["id"]
    hooks.wait_state(other, second, "delivered")  # others are not concerned
    assert hooks.delivery(endpoint, second)["attempts"] == 0
    for event in (first, second):
        hooks.wait_state(endpoint, event, "delivered")
    refused, *later = upstream.received("/busy")
    assert len(later) == 2 and all(request.at - refused.at >= 7 for request in later)


def test_an_attempt_under_way_ends_and_is_recorded_although_its_endpoint_is_deleted(hooks, upstream):
    endpoint = hooks.endpoint("/hook")["id"]
    with upstream.hold("/hook"):
        event = hooks.publish().json()["id"]
        upstream.wait_requests(1)
        waiting = hooks.publish().json()["id"]  # an endpoint that was never tried gets one at a time
        assert hooks.call("DELETE", f"/v1/endpoints/{endpoint}").status == 200
        hooks.wait_state(endpoint, waiting, "cancelled")
        assert hooks.delivery(endpoint, event)["state"] == "sending"
    recorded = hooks.wait_state(endpoint, event, "delivered")
    assert recorded["tries"][0]["status"] == 201
    assert len(upstream.received("/hook")) == 1


@pytest.mark.slow
def test_each_attempt_uses_the_url_the_headers_and_the_secrets_of_its_moment(hooks, upstream):
    made = hooks.endpoint("/old", headers=["X-Version: 1"])
    upstream.on("/old", answer(500))
    event = hooks.publish().json()["id"]
    tried(hooks, made["id"], event)
    change = {"url": upstream.url + "/new", "headers": ["X-Version: 2"]}
    assert hooks.call("PATCH", f"/v1/endpoints/{made['id']}", change).status == 200
    fresh = hooks.call("POST", f"/v1/endpoints/{made['id']}/rotate", {}).json()["secret"]
    hooks.wait_state(made["id"], event, "delivered")
    (old,), (new,) = upstream.received("/old"), upstream.received("/new")
    assert (old.header("X-Version"), new.header("X-Version")) == ("1", "2")
    assert old.header("webhook-id") == new.header("webhook-id") == event
    assert is_signed(old, made["secret"]) and not is_signed(old, fresh)
    assert is_signed(new, made["secret"]) and is_signed(new, fresh)  # the receiver may have either


def test_after_the_overlap_only_the_new_secret_signs(hooks, upstream):
    made = hooks.endpoint("/hook")
    fresh = hooks.call("POST", f"/v1/endpoints/{made['id']}/rotate", {"overlap": "1s"}).json()["secret"]

    def old_is_retired():
        hooks.wait_state(made["id"], hooks.publish().json()["id"], "delivered")
        got = upstream.received("/hook")[-1]
        assert is_signed(got, fresh)
        return not is_signed(got, made["secret"])

    eventually(old_is_retired, "the old secret signs no more")


def test_a_disabled_endpoint_costs_no_attempts_and_begins_a_new_row_when_enabled(hooks, upstream):
    endpoint = hooks.endpoint("/hook")["id"]
    upstream.on("/hook", answer(500))
    failed = hooks.publish().json()["id"]
    tried(hooks, endpoint, failed)
    eventually(lambda: hooks.call("GET", "/v1/endpoints").json()["endpoints"][0]["failing_since"], "the row is noted")
    assert hooks.call("POST", f"/v1/endpoints/{endpoint}/disable", {"why": "maintenance"}).status == 200
    waiting = hooks.publish().json()["id"]
    upstream.on("/hook", answer(200))
    hooks.restart("kill")
    paused = hooks.call("GET", f"/v1/endpoints/{endpoint}").json()
    assert (paused["disabled"], paused["disabled_reason"]) == (True, "maintenance")
    assert [hooks.delivery(endpoint, event)["attempts"] for event in (failed, waiting)] == [1, 0]
    enabled = hooks.call("POST", f"/v1/endpoints/{endpoint}/enable").json()
    assert not enabled["disabled"] and not enabled["failing_since"]
    hooks.wait_state(endpoint, waiting, "delivered")
