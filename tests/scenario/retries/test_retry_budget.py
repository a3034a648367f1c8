# SPDX-License-Identifier: Apache-2.0
"""The retry budget: a failing application is not hammered by everybody's retries at once. Attempts are counted where
they arrive."""
import threading
import time

import pytest

from harness import Connection, answer, drop_after_effect, fresh_key, quick_retries, sanitized

CLIENTS = 8
REQUESTS = 800 if sanitized() else 1200  # of all clients together
FLOOR_A_SECOND = 10


def hammer(gateway, requests):
    """Sends that many operations, each with a key of its own, from several clients at once."""
    def client(count):
        with Connection(gateway.address) as connection:
            for _ in range(count):
                answered = connection.request("POST", "/refunds", [("Idempotency-Key", fresh_key())], b"{}")
                assert answered.status in (429, 502), answered
    failures = []

    def guarded(count):
        try:
            client(count)
        except BaseException as failure:
            failures.append(failure)
    threads = [threading.Thread(target=guarded, args=(requests // CLIENTS,)) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("guarantee, behaviour", [
    ("none", answer(429, "too many", effect=False)),
    ("idempotent", drop_after_effect(reset=True)),
], ids=["429", "resets"])
def test_failing_application_gets_a_fifth_more_and_the_floor(start_gateway, upstream, workers, guarantee, behaviour):
    began = time.monotonic()
    gateway = start_gateway(quick_retries(guarantee=guarantee, retry="{base: 1ms, cap: 2ms}"), workers=workers)
    upstream.on("/refunds", behaviour)
    hammer(gateway, REQUESTS)
    arrivals = upstream.received("/refunds")
    seconds = arrivals[-1].at - began
    allowed = 1.2 * REQUESTS + FLOOR_A_SECOND * (seconds + 1)
    print(f"{len(arrivals)} attempts for {REQUESTS} requests in {seconds:.1f} s, {allowed:.0f} allowed")
    assert len({request.key for request in arrivals}) == REQUESTS
    assert REQUESTS < len(arrivals) <= allowed
    assert len(arrivals) >= 1.1 * REQUESTS, "the fifth was not used"
    counts = gateway.counts()
    assert counts["attempts"] == len(arrivals)
    assert counts["retry_attempts"] == len(arrivals) - REQUESTS
    assert counts["retries_over_budget"] > 0


def test_few_requests_have_all_their_retries(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", answer(429, effect=False))
    for _ in range(3):
        gateway.post("/refunds", key=fresh_key(), json={})
    assert len(upstream.received("/refunds")) == 3 * 4
    assert upstream.effects("/refunds") == 0


def test_request_without_a_retry_left_is_answered_as_if_it_were_the_last(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(retry="{base: 1ms, cap: 2ms, attempts: 60}"))
    upstream.on("/refunds", answer(429, "too many", effect=False))
    first = gateway.post("/refunds", key=key, json={})
    assert (first.status, first.idempotency, first.body) == (429, "released", b"too many")
    assert len(upstream.received("/refunds")) < 60
    assert upstream.effects("/refunds") == 0


def test_one_failing_application_does_not_use_up_anothers_retries(start_gateway, upstream, start_upstream, key):
    other = start_upstream()
    gateway = start_gateway(f"""
        upstream: {{first: "{upstream.url}", second: "{other.url}"}}
        defaults:
          retry: {{base: 1ms, cap: 2ms, attempts: 60}}
        routes:
          - {{match: POST /refunds, upstream: first}}
          - {{match: POST /charges, upstream: second, retry: {{attempts: 4}}}}
        """, upstream=None)
    upstream.on("/refunds", answer(429, effect=False))
    other.on("/charges", answer(429, effect=False))
    for _ in range(3):
        gateway.post("/refunds", key=fresh_key(), json={})
    assert gateway.post("/charges", key=key, json={}).status == 429
    assert len(other.received("/charges")) == 4
