# SPDX-License-Identifier: Apache-2.0
"""Expiry: an outcome lives as long as its route says and then its key is free; what is unknown never expires. The
gateway is started again with its wall clock ahead, instead of waiting for a day."""
import datetime

import pytest

from harness import answer, eventually, hours_ahead, numbered

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
SHORT = """
    routes:
      - name: refunds
        match: POST /refunds
        lifetime: 2h
      - name: charges
        match: POST /charges
    """


@pytest.mark.slow
def test_short_lease_is_renewed_beside_a_long_one(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: slow
            match: POST /slow
          - name: quick
            match: POST /quick
            lease: 1s
            wait: 2500ms
        """)
    with upstream.hold("/slow") as slow, upstream.hold("/quick") as quick:
        first_slow = gateway.post_later("/slow", key=key)
        slow.wait_arrived()
        first_quick = gateway.post_later("/quick", key=key)
        quick.wait_arrived()
        gateway.post("/quick", key=key).refuses(409, "CONFLICT.idempotency.in_flight")
    assert (first_slow.idempotency, first_quick.idempotency) == ("stored", "stored")
    assert (upstream.effects("/slow"), upstream.effects("/quick")) == (1, 1)


def test_key_is_free_after_its_lifetime(gateway, upstream, key):
    first = gateway.post("/refunds", key=key, json={})
    gateway.restart(env=hours_ahead(23))
    assert gateway.post("/refunds", key=key, json={}).body == first.body
    assert upstream.effects("/refunds") == 1

    gateway.restart(env=hours_ahead(25))
    second = gateway.post("/refunds", key=key, json={})
    assert second.idempotency == "stored"
    assert second.body != first.body
    assert gateway.post("/refunds", key=key, json={}).body == second.body
    assert upstream.effects("/refunds") == 2


def test_route_has_its_own_lifetime(start_gateway, upstream, key):
    gateway = start_gateway(SHORT)
    first = gateway.post("/refunds", key=key, json={})
    gateway.post("/charges", key=key, json={})
    expires = datetime.datetime.fromisoformat(first.header("Idempotency-Expires").replace("Z", "+00:00"))
    left = expires - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(minutes=118) < left < datetime.timedelta(minutes=122)

    gateway.restart(env=hours_ahead(3))
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert gateway.post("/charges", key=key, json={}).idempotency == "replayed"
    assert (upstream.effects("/refunds"), upstream.effects("/charges")) == (2, 1)


def test_failed_operation_expires_too(gateway, upstream, key):
    upstream.on("/refunds", answer(422, "no"))
    gateway.post("/refunds", key=key, json={})
    upstream.on("/refunds", numbered)
    gateway.restart(env=hours_ahead(25))
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 2


def test_expired_key_may_carry_another_request(gateway, upstream, key):
    gateway.post("/refunds", key=key, json={"amount": 1})
    gateway.restart(env=hours_ahead(25))
    assert gateway.post("/refunds", key=key, json={"amount": 2}).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


def test_unknown_outcome_never_expires(gateway, upstream, key):
    upstream.on("/refunds", answer(502))
    gateway.post("/refunds", key=key, json={})
    gateway.restart(env=hours_ahead(24 * 365))
    gateway.post("/refunds", key=key, json={}).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


def test_orphan_of_a_crash_never_expires(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        gateway.kill()
    gateway.start(env=hours_ahead(24 * 365))
    gateway.post("/refunds", key=key, json={}).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


def test_clock_set_back_frees_nothing(gateway, upstream, key):
    gateway.restart(env=hours_ahead(48))
    first = gateway.post("/refunds", key=key, json={})
    gateway.restart()
    assert gateway.post("/refunds", key=key, json={}).body == first.body
    assert upstream.effects("/refunds") == 1


def test_log_tells_how_many_operations_were_cleaned(start_node, upstream, key):
    gateway = start_node("memory:", """
        defaults: {lease: 1s, upstream_timeout: 500ms, retry: {total: 100ms}, lifetime: 2s}
        """)
    gateway.post("/refunds", key=key, json={})
    eventually(lambda: gateway.counts("store")["stored_keys"] == 0, "the expired operation cleaned")
    gateway.terminate()
    assert gateway.wait_exit() == 0
    told = gateway.events("operations_expired")
    assert [(line["level"], line["count"]) for line in told] == [("info", 1)]
    assert upstream.effects("/refunds") == 1
