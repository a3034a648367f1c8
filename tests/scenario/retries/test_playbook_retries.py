# SPDX-License-Identifier: Apache-2.0
"""The playbook's client log, word for word: a time-out, then a proxy's 502, then 201. The refund service deduplicates
by the key, its route says so, and the money is moved once."""
import csv
import io
import time

import pytest

from harness import answer, quick_retries

CLIENT_LOG = """\
attempt,delay_ms,status,code,notes
1,0,timeout,,initial timeout
2,137,5xx,502,proxy error
3,281,200,201,success
"""
SCHEDULE_MS = [(100, 200), (200, 400), (400, 800), (800, 1600)]  # the playbook's delays before attempts 2 to 5
REFUND = {"charge_id": "ch_9ab", "amount": 1000}
UPSTREAM_TIMEOUT_MS = 1000


class Refunds:
    """Pays once for each key, and answers each request as the log has it."""

    def __init__(self, upstream, rows):
        self.upstream = upstream
        self.rows = list(rows)
        self.refunds = {}
        self.ledger = []
        upstream.on("POST /refunds", self.create)
        upstream.on("GET /ledger", lambda exchange: exchange.answer(200, self.ledger))

    def create(self, exchange):
        wanted = exchange.read_body() and exchange.request.json()
        key = exchange.request.key
        if key not in self.refunds:
            self.refunds[key] = {"id": f"rf_{len(self.refunds) + 123}", **wanted}
            self.ledger.append({"refund": self.refunds[key]["id"], "amount": -wanted["amount"]})
            exchange.execute()
        row = self.rows.pop(0) if self.rows else {"status": "200", "code": "201"}
        if row["status"] == "timeout":
            exchange.wait_for_peer_to_leave()
        elif row["status"] == "5xx":
            answer(int(row["code"]), row["notes"], effect=False)(exchange)
        else:
            exchange.answer(int(row["code"]), self.refunds[key], [("Content-Type", "application/json")])


@pytest.fixture
def rows():
    return list(csv.DictReader(io.StringIO(CLIENT_LOG)))


def test_the_playbooks_client_log_pays_once(start_gateway, upstream, key, rows):
    gateway = start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            guarantee: idempotent
            upstream_timeout: {UPSTREAM_TIMEOUT_MS}ms
        """)
    service = Refunds(upstream, rows)
    began = time.monotonic()
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (201, "stored")
    assert first.json() == {"id": "rf_123", **REFUND}

    requests = upstream.received("/refunds")
    assert [request.header("Hapax-Attempt") for request in requests] == [row["attempt"] for row in rows]
    assert {request.key for request in requests} == {key}
    assert gateway.get("/ledger").json() == service.ledger == [{"refund": "rf_123", "amount": -1000}]
    assert upstream.effects("/refunds") == 1

    retries = gateway.wait_events("retry_scheduled", 2)
    assert [retry["attempt"] for retry in retries] == [1, 2]
    assert retries[0]["error"] == "no response in time"
    assert retries[1]["status"] == 502
    for retry, row, (least, most) in zip(retries, rows[1:], SCHEDULE_MS):
        assert least <= retry["delay_ms"] <= most, retry
        assert least <= int(row["delay_ms"]) <= most, "the playbook keeps its own schedule"
    _, bad_gateway, success = requests
    assert bad_gateway.at - began >= (UPSTREAM_TIMEOUT_MS + retries[0]["delay_ms"]) / 1000
    assert success.at - bad_gateway.answered_at >= retries[1]["delay_ms"] / 1000

    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.body, again.idempotency) == (201, first.body, "replayed")
    assert len(upstream.received("/refunds")) == 3


def test_the_playbooks_schedule_from_beginning_to_end(start_gateway, upstream, key):
    """Five attempts, as its table has them (the class `user` stops after four)."""
    gateway = start_gateway(quick_retries(retry="{profile: playbook}"))
    upstream.on("/refunds", answer(429, "too many", effect=False))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (429, "released")
    requests = upstream.received("/refunds")
    gateway.wait_events("request")  # the last line about it
    delays = [retry["delay_ms"] for retry in gateway.events("retry_scheduled")]
    assert len(requests) == 5
    assert len(delays) == 4
    for delay, (least, most), earlier, later in zip(delays, SCHEDULE_MS, requests, requests[1:]):
        assert least <= delay <= most, delays
        assert later.at - earlier.answered_at >= delay / 1000
    assert [event["because"] for event in gateway.events("retry_exhausted")] == ["attempts"]
    assert upstream.effects("/refunds") == 0


def test_the_playbooks_client_log_without_a_service_that_deduplicates_stops_at_the_time_out(start_gateway, upstream,
                                                                                            key, rows):
    gateway = start_gateway(quick_retries(upstream_timeout=f"{UPSTREAM_TIMEOUT_MS}ms"))
    service = Refunds(upstream, rows)
    first = gateway.post("/refunds", key=key, json=REFUND)
    first.refuses(504, "DEPENDENCY.timeout")
    assert first.idempotency == "unknown"
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, "CONFLICT.idempotency.outcome_unknown")
    assert len(service.ledger) == len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1
