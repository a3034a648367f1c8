# SPDX-License-Identifier: Apache-2.0
"""The playbook's worked example, word for word: a refund service that pays once for every request that reaches it."""
import pytest

from harness import eventually, fresh_key

REFUND = {"charge_id": "ch_9ab", "amount": 1000}


class Refunds:
    """Careless, as services are: it deduplicates nothing, and writes a ledger entry for every refund."""

    def __init__(self, upstream):
        self.refunds = []
        self.ledger = []
        upstream.on("POST /refunds", self.create)
        upstream.on("GET /ledger", lambda exchange: exchange.answer(200, self.ledger))

    def create(self, exchange):
        wanted = exchange.read_body() and exchange.request.json()
        refund = {"id": f"rf_{len(self.refunds) + 1}", **wanted}
        self.refunds.append(refund)
        self.ledger.append({"refund": refund["id"], "amount": -refund["amount"]})
        exchange.execute()
        exchange.answer(201, refund, [("Content-Type", "application/json"), ("Location", f"/refunds/{refund['id']}")])


@pytest.fixture
def service(upstream):
    return Refunds(upstream)


def test_same_key_twice_gives_the_same_refund_and_one_ledger_entry(gateway, upstream, service, key):
    first = gateway.post("/refunds", key=key, json=REFUND)
    second = gateway.post("/refunds", key=key, json=REFUND)

    assert (first.status, first.idempotency) == (201, "stored")
    assert (second.status, second.idempotency) == (201, "replayed")
    assert first.json()["id"] == second.json()["id"] == "rf_1"
    assert first.body == second.body
    assert gateway.get("/ledger").json() == [{"refund": "rf_1", "amount": -1000}]
    assert upstream.effects("/refunds") == 1


def test_different_key_with_the_same_payload_is_a_new_refund(gateway, upstream, service):
    first = gateway.post("/refunds", key=fresh_key(), json=REFUND)
    second = gateway.post("/refunds", key=fresh_key(), json=REFUND)

    assert [first.json()["id"], second.json()["id"]] == ["rf_1", "rf_2"]
    assert len(gateway.get("/ledger").json()) == 2
    assert upstream.effects("/refunds") == 2


def test_gateway_timeout_then_retry_with_the_same_key_pays_once(start_gateway, upstream, service, key):
    gateway = start_gateway("""
        defaults:
          upstream_timeout: 300ms
        """)
    with upstream.hold("/refunds") as held:
        impatient = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        impatient.refuses(504, "DEPENDENCY.timeout")
        assert impatient.idempotency == "unknown"
        too_early = gateway.post("/refunds", key=key, json=REFUND)
        too_early.refuses(409, "CONFLICT.idempotency.outcome_unknown")

    retry = eventually(lambda: replayed_or_none(gateway, key), "the late answer being harvested")
    assert retry.json() == service.refunds[0]
    assert gateway.get("/ledger").json() == [{"refund": "rf_1", "amount": -1000}]
    assert upstream.effects("/refunds") == 1


def replayed_or_none(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    if response.status == 201:
        assert response.idempotency == "replayed"
        return response
    response.refuses(409, "CONFLICT.idempotency.outcome_unknown")
    return None


def test_replay_with_another_amount_under_the_same_key_is_a_mismatch(gateway, upstream, service, key):
    gateway.post("/refunds", key=key, json=REFUND)
    greedy = gateway.post("/refunds", key=key, json={**REFUND, "amount": 2000})

    greedy.refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert len(service.ledger) == 1
    assert upstream.effects("/refunds") == 1


def test_the_playbooks_own_key_is_a_good_key(gateway, upstream, service):
    key = "refund:ch_9ab:1000:6f6c3c1e"
    assert gateway.post("/refunds", key=key, json=REFUND).status == 201
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1
