# SPDX-License-Identifier: Apache-2.0
"""Did it go through? A caller asks for its own operation by key, with its own credential, and may wait for it."""
import threading
import urllib.parse

import pytest

from harness import answer, drop_after_effect, eventually, fresh_key

ADA, BEN = "Bearer ada", "Bearer ben"
PATH = "/.well-known/idempotency/operation"


def ask(gateway, key, auth=ADA, path="/refunds", method="POST", headers=(), **more):
    query = urllib.parse.urlencode({"method": method, "path": path, **more}, quote_via=urllib.parse.quote)
    return gateway.request("GET", f"{PATH}?{query}", key=key, auth=auth, headers=headers)


def state(response):
    assert (response.status, response.header("Content-Type")) == (200, "application/json"), response
    return response.json()["state"]


def test_a_caller_is_told_what_became_of_its_operation_and_nobody_else(gateway, upstream):
    done, failed, lost, never = (fresh_key() for _ in range(4))
    upstream.on("/refunds", answer(201, b'{"id": "re_1"}'))
    first = gateway.post("/refunds", key=done, auth=ADA, json={"amount": 5})
    upstream.on("/refunds", answer(422, b"no", effect=False))
    gateway.post("/refunds", key=failed, auth=ADA, json={"amount": 5})
    upstream.on("/refunds", drop_after_effect())
    gateway.post("/refunds", key=lost, auth=ADA, json={"amount": 5})
    effects, seen = upstream.effects("/refunds"), len(upstream.received())

    told = ask(gateway, done)
    assert state(told) == "completed" and told.json()["status"] == 201
    assert told.header("Cache-Control") == "no-store" and first.status == 201
    assert (state(ask(gateway, failed)), ask(gateway, failed).json()["status"]) == ("failed", 422)
    assert (state(ask(gateway, lost)), state(ask(gateway, never))) == ("unknown", "absent")
    assert {state(ask(gateway, key, auth=BEN)) for key in (done, failed, lost)} == {"absent"}
    assert state(ask(gateway, done, path="/other")) == "absent"
    assert (upstream.effects("/refunds"), len(upstream.received())) == (effects, seen), "nothing is sent for a question"


def test_another_proof_of_the_same_principal_is_told_nothing(start_gateway, upstream):
    gateway = start_gateway("defaults: {principal: ['header:X-User']}")
    key = fresh_key()
    gateway.post("/refunds", key=key, headers=[("X-User", "ada"), ("Cookie", "s=1")], json={})
    told = ask(gateway, key, auth=None, headers=[("X-User", "ada"), ("Cookie", "s=1")])
    assert state(told) == "completed"
    other = ask(gateway, key, auth="Bearer stolen", headers=[("X-User", "ada"), ("Cookie", "s=1")])
    assert (other.status, other.json()["error_code"]) == (403, "AUTH.replay_not_authorized")


def test_who_waits_is_woken_when_it_has_ended(gateway, upstream):
    key, told = fresh_key(), []
    with upstream.hold("/refunds") as held:
        first = threading.Thread(target=lambda: gateway.post("/refunds", key=key, auth=ADA, json={}))
        first.start()
        held.wait_arrived()
        assert state(ask(gateway, key)) == "processing"
        assert state(ask(gateway, key, wait="10ms")) == "processing"
        asking = threading.Thread(target=lambda: told.append(ask(gateway, key, wait="30s")))
        asking.start()
        gateway.wait_waiting(1)
    first.join()
    asking.join()
    assert state(told[0]) == "completed"
    eventually(lambda: gateway.counts("store")["waiters"] == 0, "nobody waits any more")


def test_an_operation_of_a_renamed_route_is_found(start_gateway, upstream):
    gateway = start_gateway("routes: [{name: refund, match: POST /refunds}]")
    key = fresh_key()
    gateway.post("/refunds", key=key, auth=ADA, json={})
    renamed = "routes: [{name: refunds, formerly: [refund], match: POST /refunds}]\n"
    gateway.config.write_text("store_max: 128MiB\n" + renamed)
    gateway.restart("drain")
    assert state(ask(gateway, key)) == "completed"


@pytest.mark.parametrize("query, key, error", [
    ("", True, "request_malformed"), ("?method=POST", True, "request_malformed"),
    ("?method=POST&path=/refunds&other=1", True, "request_malformed"),
    ("?method=POST&path=/refunds&wait=1h", True, "request_malformed"),
    ("?method=POST&path=/open", True, "request_malformed"), ("?method=POST&path=/natural", True, "request_malformed"),
    ("?method=POST&path=refunds", True, "request_malformed"),
    ("?method=POST&path=/refunds%3Fx=1", True, "request_malformed"),
    ("?method=PO%20ST&path=/refunds", True, "request_malformed"), ("?method=GET&path=/x", True, "request_malformed"),
    ("?method=POST&path=/refunds", False, "idempotency_key_missing"),
])
def test_a_question_that_can_not_be_answered_says_why(start_gateway, upstream, query, key, error):
    gateway = start_gateway("""
        routes:
          - {name: open, match: POST /open, mode: pass, because: it may be repeated}
          - {name: natural, match: POST /natural, key: {from: "{body:/id}", shared: true}}
        """)
    told = gateway.request("GET", PATH + query, key=fresh_key() if key else None, auth=ADA)
    assert (told.status, told.json()["error_code"]) == (400, f"VALIDATION.{error}")
    assert upstream.received() == []
