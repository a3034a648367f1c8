# SPDX-License-Identifier: Apache-2.0
"""A tombstone keeps the bare key after its lifetime: 409 instead of running again."""
import pytest

from harness import answer, hours_ahead, numbered

EXPIRED = "CONFLICT.idempotency.expired"
UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
KEPT = """
    routes:
      - name: refunds
        match: POST /refunds
        lifetime: 2h
        tombstone: 30d
      - name: charges
        match: POST /charges
        lifetime: 2h
    """


@pytest.mark.parametrize("status", [201, 422])
def test_key_is_refused_after_its_lifetime_and_free_after_its_tombstone(start_gateway, upstream, key, status):
    gateway = start_gateway(KEPT)
    upstream.on("/refunds", answer(status, "once"))
    gateway.post("/refunds", key=key, json={"amount": 1})
    gateway.post("/charges", key=key, json={"amount": 1})
    upstream.on("/refunds", numbered)

    gateway.restart(env=hours_ahead(1))
    assert gateway.post("/refunds", key=key, json={"amount": 1}).status == status
    for hours in (3, 24, 24 * 29):
        gateway.restart(env=hours_ahead(hours))
        for amount in (1, 2):
            problem = gateway.post("/refunds", key=key, json={"amount": amount}).refuses(409, EXPIRED)
            assert problem["retryable"] is False
    assert upstream.effects("/refunds") == 1
    assert gateway.post("/charges", key=key, json={"amount": 1}).idempotency == "stored"
    assert upstream.effects("/charges") == 2

    gateway.restart(env=hours_ahead(24 * 31))
    second = gateway.post("/refunds", key=key, json={"amount": 1})
    assert (second.status, second.idempotency) == (201, "stored")
    assert upstream.effects("/refunds") == 2


def test_tombstone_tells_nobody_what_was_there(start_gateway, upstream, key):
    gateway = start_gateway(KEPT)
    upstream.on("/refunds", answer(201, "a secret"))
    gateway.post("/refunds", key=key, json={})
    gateway.restart(env=hours_ahead(3))
    refused = gateway.post("/refunds", key=key, json={})
    refused.refuses(409, EXPIRED)
    assert b"secret" not in refused.body
    assert refused.idempotency is None
    assert upstream.effects("/refunds") == 1


def test_unknown_has_no_tombstone_because_it_never_ends(start_gateway, upstream, key):
    gateway = start_gateway(KEPT)
    upstream.on("/refunds", answer(502))
    gateway.post("/refunds", key=key, json={})
    gateway.restart(env=hours_ahead(24 * 399))
    gateway.post("/refunds", key=key, json={}).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


def test_released_key_leaves_no_tombstone(start_gateway, upstream, key):
    gateway = start_gateway(KEPT)
    upstream.on("/refunds", answer(403, effect=False))
    gateway.post("/refunds", key=key, json={})
    upstream.on("/refunds", numbered)
    gateway.restart(env=hours_ahead(3))
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert upstream.effects("/refunds") == 1
