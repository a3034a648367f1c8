# SPDX-License-Identifier: Apache-2.0
"""The same request more than once: one effect, and the same answer for everybody."""
import datetime
import time

import pytest

from harness import answer, fresh_key, quoted, wait_all_read

REFUND = {"charge": "ch_1", "amount": 1000}


def assert_all_alike(responses):
    assert len({response.body for response in responses}) == 1
    assert {response.status for response in responses} == {201}
    assert sorted(response.idempotency for response in responses) == ["replayed"] * (len(responses) - 1) + ["stored"]


def test_second_request_waits_for_the_first(gateway, upstream, key):
    with upstream.hold("/refunds"):
        first, second = gateway.post_together("/refunds", key=key, times=2)
    assert first.body == second.body
    assert upstream.effects("/refunds") == 1


def test_ten_duplicates_one_after_the_other(gateway, upstream, key):
    assert_all_alike([gateway.post("/refunds", key=key, json=REFUND) for _ in range(10)])
    assert upstream.effects("/refunds") == 1


def test_duplicates_on_one_connection(gateway, upstream, key):
    with gateway.connect() as connection:
        headers = {"Idempotency-Key": key}
        assert_all_alike([connection.request("POST", "/refunds", headers, REFUND).response for _ in range(3)])
    assert upstream.effects("/refunds") == 1


def test_different_keys_are_different_operations(gateway, upstream):
    bodies = {gateway.post("/refunds", key=fresh_key(), json=REFUND).body for _ in range(20)}
    assert len(bodies) == 20
    assert upstream.effects("/refunds") == 20


def test_ten_at_once_are_one_effect(start_gateway, upstream, key):
    gateway = start_gateway(workers=2)
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=10, json=REFUND)
        held.wait_arrived()
        assert upstream.effects("/refunds") == 1
    assert_all_alike(everyone)
    assert upstream.effects("/refunds") == 1


def test_ten_at_once_without_a_head_start(start_gateway, upstream):
    gateway = start_gateway(workers=2)
    for _ in range(20):
        assert_all_alike(gateway.post_together("/refunds", key=fresh_key(), times=10, json=REFUND))
    assert upstream.effects("/refunds") == 20
    assert set(upstream.effects_by_key.values()) == {1}


def test_five_hundred_at_once_across_two_workers_are_one_effect(start_gateway, upstream, key):
    gateway = start_gateway(workers=2)
    with upstream.hold("/refunds") as held:
        everyone = gateway.post_together("/refunds", key=key, times=500, json=REFUND)
        held.wait_arrived()
    assert_all_alike(everyone)
    assert upstream.effects("/refunds") == 1


def test_five_hundred_keys_at_once_are_five_hundred_effects(start_gateway, upstream):
    gateway = start_gateway(workers=2)
    with upstream.hold("/refunds") as held:
        everyone = [gateway.send("POST", "/refunds", key=fresh_key(), json=REFUND) for _ in range(500)]
        wait_all_read(everyone)
        held.wait_arrived(500)
    assert {response.status for response in everyone} == {201}
    assert len({response.body for response in everyone}) == 500
    assert set(upstream.effects_by_key.values()) == {1}


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_every_unsafe_method_is_protected(gateway, upstream, key, method):
    first = gateway.request(method, "/charges/ch_1", key=key, json=REFUND)
    second = gateway.request(method, "/charges/ch_1", key=key, json=REFUND)
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert first.body == second.body
    assert upstream.effects("/charges/ch_1") == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_safe_methods_are_never_stored(gateway, upstream, key, method):
    for _ in range(2):
        response = gateway.request(method, "/charges/ch_1", key=key)
        assert response.status == 200
        assert response.idempotency is None
    assert len(upstream.received("/charges/ch_1")) == 2


def test_duplicate_without_a_body(gateway, upstream, key):
    first = gateway.post("/charges/ch_1/void", key=key)
    second = gateway.post("/charges/ch_1/void", key=key)
    assert first.body == second.body
    assert upstream.effects("/charges/ch_1/void") == 1


def test_json_spelled_differently_is_the_same_request(gateway, upstream, key):
    spellings = ['{"amount":19.99,"charge":"ch_1"}', '{ "charge" : "ch_1",\n "amount" : 19.990 }',
                 '{"charge":"ch_\\u0031","amount":1.999e1}']
    responses = [gateway.post("/refunds", key=key, body=spelling, headers={"Content-Type": "application/json"})
                 for spelling in spellings]
    assert_all_alike(responses)
    assert upstream.effects("/refunds") == 1


def test_content_type_spelled_differently_is_the_same_request(gateway, upstream, key):
    for spelling in ("application/json", "Application/JSON", "application/json ;foo=bar"):
        assert gateway.post("/refunds", key=key, json=REFUND, headers={"Content-Type": spelling}).status == 201
    assert upstream.effects("/refunds") == 1


def test_multipart_is_compared_by_its_parts_and_not_by_its_boundary(gateway, upstream, key):
    def form(boundary):
        return (f'--{boundary}\r\nContent-Disposition: form-data; name="amount"\r\n\r\n1000\r\n--{boundary}--\r\n',
                {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    for boundary in ("first-boundary", "another-boundary"):
        body, headers = form(boundary)
        assert gateway.post("/refunds", key=key, body=body, headers=headers).status == 201
    assert upstream.effects("/refunds") == 1


def test_json_that_is_not_clean_is_compared_as_it_is(gateway, upstream, key):
    headers = {"Content-Type": "application/json"}
    for _ in range(2):
        assert gateway.post("/refunds", key=key, body='{"a":1,"a":2,', headers=headers).status == 201
    gateway.post("/refunds", key=key, body='{"a":1,"a":2, ', headers=headers).refuses(
        409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


def test_key_is_the_same_bare_and_quoted(gateway, upstream, key):
    spellings = [key, quoted(key), f"{quoted(key)};from=phone", quoted(key) + " "]
    responses = [gateway.post("/refunds", key=spelling, json=REFUND) for spelling in spellings]
    assert_all_alike(responses)
    assert upstream.effects("/refunds") == 1


def test_duplicate_is_rejected_where_the_route_says_so(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            on_duplicate: reject
        """)
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.duplicate_rejected")
    assert upstream.effects("/refunds") == 1


def test_duplicate_is_answered_emptily_where_the_route_says_so(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            on_duplicate: noop
        """)
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    duplicate = gateway.post("/refunds", key=key, json=REFUND)
    assert (duplicate.status, duplicate.json()) == (200, {})
    assert upstream.effects("/refunds") == 1


def test_failed_operation_is_replayed_even_where_duplicates_are_rejected(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            on_duplicate: reject
        """)
    upstream.on("/refunds", answer(422, {"error": "too late"}))
    first, second = (gateway.post("/refunds", key=key, json=REFUND) for _ in range(2))
    assert (first.status, second.status) == (422, 422)
    assert first.body == second.body
    assert upstream.effects("/refunds") == 1


def test_failed_operation_is_rejected_where_the_route_says_so(start_gateway, upstream, key):
    """Only what failed: a completed one is replayed, and neither is run again."""
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            on_failed: reject
        """)
    upstream.on("/refunds", answer(422, {"error": "too late"}))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (422, "stored")
    problem = gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.failed_before")
    when = datetime.datetime.fromisoformat(problem["original_time"].replace("Z", "+00:00"))
    assert abs(when.timestamp() - time.time()) < 3600
    assert "422" in problem["detail"] and problem["retryable"] is False
    gateway.restart()
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.failed_before")
    assert upstream.effects("/refunds") == 1
    upstream.on("/refunds", answer(201, {"id": 1}))
    other = fresh_key()
    assert gateway.post("/refunds", key=other, json=REFUND).status == 201
    assert gateway.post("/refunds", key=other, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 2


def test_route_that_passes_is_left_alone(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refresh
            match: POST /auth/refresh
            mode: pass
            because: a token may be refreshed as often as anyone likes
        """)
    responses = [gateway.post("/auth/refresh", key=key, json={}) for _ in range(2)]
    assert len({response.body for response in responses}) == 2
    assert {response.idempotency for response in responses} == {None}
    assert upstream.effects("/auth/refresh") == 2
