# SPDX-License-Identifier: Apache-2.0
"""One key for two different requests: refused, naming the part that differs, and never executed."""
import re

import pytest

from harness import answer, fresh_key

CONFIG = """
    routes:
      - name: charge-refunds
        match: /charges/{id}/refunds
    """
FIRST = {"method": "POST", "target": "/charges/ch_1/refunds?currency=eur", "body": '{"amount":1000}',
         "headers": {"Content-Type": "application/json"}}

DIFFERENCES = {
    "body": ({"body": '{"amount":1001}'}, r"body"),
    "body is missing": ({"body": None}, r"body"),
    "query": ({"target": "/charges/ch_1/refunds?currency=usd"}, r"query"),
    "query is missing": ({"target": "/charges/ch_1/refunds"}, r"query"),
    "path": ({"target": "/charges/ch_2/refunds?currency=eur"}, r"path"),
    "method": ({"method": "PUT"}, r"method"),
    "media type": ({"headers": {"Content-Type": "application/vnd.refund+json"}}, r"(media|content)[ -]type"),
    "charset": ({"headers": {"Content-Type": "application/json; charset=utf-16"}}, r"(media|content)[ -]type|charset"),
    "content encoding": ({"headers": {"Content-Type": "application/json", "Content-Encoding": "gzip"}}, r"encoding"),
    "condition": ({"headers": {"Content-Type": "application/json", "If-Match": '"v1"'}}, r"if-match|condition"),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_mismatch_names_the_part_that_differs(start_gateway, upstream, key, difference):
    gateway = start_gateway(CONFIG)
    change, named = DIFFERENCES[difference]
    assert gateway.request(key=key, **FIRST).status == 201

    other = gateway.request(key=key, **{**FIRST, **change})

    problem = other.refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert re.search(named, problem["detail"], re.I), problem
    assert problem["retryable"] is False
    assert "new key" in problem["hint"].lower(), problem
    assert upstream.effects() == 1
    assert gateway.request(key=key, **FIRST).idempotency == "replayed"


@pytest.mark.parametrize("one, other", [
    ("9007199254740993", "9007199254740992"),
    ("1", '"1"'),
    ("null", "false"),
    ("[1,2]", "[2,1]"),
    ("0.1", "0.10000000000000001"),
])
def test_numbers_and_types_are_compared_exactly(gateway, upstream, key, one, other):
    headers = {"Content-Type": "application/json"}
    assert gateway.post("/refunds", key=key, body=f'{{"amount":{one}}}', headers=headers).status == 201
    gateway.post("/refunds", key=key, body=f'{{"amount":{other}}}', headers=headers).refuses(
        409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


def test_fields_do_not_run_into_each_other(gateway, upstream, key):
    text = {"Content-Type": "text/plain"}
    assert gateway.post("/refunds?a=b", key=key, body="c", headers=text).status == 201
    gateway.post("/refunds?a=", key=key, body="bc", headers=text).refuses(
        409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


def test_headers_that_mean_nothing_are_no_mismatch(gateway, upstream, key):
    for number in range(2):
        response = gateway.post("/refunds", key=key, json={}, headers={
            "User-Agent": f"phone/{number}", "X-Request-Id": fresh_key(), "Accept-Encoding": f"x-{number}"})
        assert response.status == 201
    assert upstream.effects("/refunds") == 1


def test_mismatch_while_the_first_is_under_way(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json={"amount": 1})
        held.wait_arrived()
        gateway.post("/refunds", key=key, json={"amount": 2}).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert first.status == 201
    assert upstream.effects("/refunds") == 1


def test_mismatch_with_an_unknown_outcome(gateway, upstream, key):
    upstream.on("/refunds", answer(502))
    assert gateway.post("/refunds", key=key, json={"amount": 1}).idempotency == "unknown"
    gateway.post("/refunds", key=key, json={"amount": 2}).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


def test_mismatch_survives_a_restart(gateway, upstream, key):
    gateway.post("/refunds", key=key, json={"amount": 1})
    gateway.restart()
    problem = gateway.post("/refunds", key=key, json={"amount": 2}).refuses(
        409, "CONFLICT.idempotency.payload_mismatch")
    assert "body" in problem["detail"].lower()
    assert upstream.effects("/refunds") == 1
