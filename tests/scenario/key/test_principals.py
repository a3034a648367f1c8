# SPDX-License-Identifier: Apache-2.0
"""Principals: a key belongs to one principal on one route, and an answer is shown only to the proof that earned it."""
import pytest

from harness import basic, bearer, jwt

NOT_AUTHORIZED = "AUTH.replay_not_authorized"
REFUND = {"amount": 1000}

STRANGERS = {
    "two Basic users": (basic("alice", "secret"), basic("bob", "secret")),
    "two opaque tokens": (bearer("token-of-alice"), bearer("token-of-bob")),
    "two subjects of one issuer": (jwt({"iss": "i", "sub": "alice"}), jwt({"iss": "i", "sub": "bob"})),
    "one subject of two issuers": (jwt({"iss": "i", "sub": "alice"}), jwt({"iss": "j", "sub": "alice"})),
    "a user and nobody": (basic("alice", "secret"), None),
}

SAME_USER = {
    "another password": (basic("alice", "secret"), basic("alice", "guessed")),
    "a renewed token": (jwt({"iss": "i", "sub": "alice", "exp": 1}), jwt({"iss": "i", "sub": "alice", "exp": 2})),
    "a forged signature": (jwt({"iss": "i", "sub": "alice"}), jwt({"iss": "i", "sub": "alice"}, "forged")),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_same_key_by_two_principals_is_two_operations(gateway, upstream, key, who):
    one, other = STRANGERS[who]
    ones = gateway.post("/refunds", key=key, json=REFUND, auth=one)
    others = gateway.post("/refunds", key=key, json=REFUND, auth=other)
    assert (ones.idempotency, others.idempotency) == ("stored", "stored")
    assert ones.body != others.body
    assert gateway.post("/refunds", key=key, json=REFUND, auth=one).body == ones.body
    assert gateway.post("/refunds", key=key, json=REFUND, auth=other).body == others.body
    assert upstream.effects("/refunds") == 2


@pytest.mark.parametrize("who", SAME_USER)
def test_same_user_with_another_proof_sees_nothing_and_executes_nothing(gateway, upstream, key, who):
    proof, another = SAME_USER[who]
    first = gateway.post("/refunds", key=key, json=REFUND, auth=proof)
    stranger = gateway.post("/refunds", key=key, json=REFUND, auth=another)
    problem = stranger.refuses(403, NOT_AUTHORIZED)
    assert problem["retryable"] is False
    assert first.json()["id"].encode() not in stranger.body
    assert gateway.post("/refunds", key=key, json=REFUND, auth=proof).body == first.body
    assert upstream.effects("/refunds") == 1


def test_another_proof_may_not_wait_for_the_answer_either(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND, auth=basic("alice", "secret"))
        held.wait_arrived()
        stranger = gateway.post_later("/refunds", key=key, json=REFUND, auth=basic("alice", "guessed"))
        held.release()
        stranger.refuses(403, NOT_AUTHORIZED)
    assert first.status == 201
    assert upstream.effects("/refunds") == 1


def test_proof_is_still_asked_for_after_a_restart(gateway, upstream, key):
    first = gateway.post("/refunds", key=key, json=REFUND, auth=basic("alice", "secret"))
    gateway.restart()
    gateway.post("/refunds", key=key, json=REFUND, auth=basic("alice", "guessed")).refuses(403, NOT_AUTHORIZED)
    assert gateway.post("/refunds", key=key, json=REFUND, auth=basic("alice", "secret")).body == first.body
    assert upstream.effects("/refunds") == 1


def test_same_key_on_two_paths_is_two_operations(gateway, upstream, key):
    refund = gateway.post("/refunds", key=key, json=REFUND)
    charge = gateway.post("/charges", key=key, json=REFUND)
    assert (refund.idempotency, charge.idempotency) == ("stored", "stored")
    assert refund.body != charge.body
    assert (upstream.effects("/refunds"), upstream.effects("/charges")) == (1, 1)


def test_same_key_with_two_methods_is_two_operations(gateway, upstream, key):
    assert gateway.request("PUT", "/charges/1", key=key, json=REFUND).idempotency == "stored"
    assert gateway.request("PATCH", "/charges/1", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/charges/1") == 2


def test_same_key_on_two_written_routes_is_two_operations(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
          - name: charges
            match: POST /charges
        """)
    for path in ("/refunds", "/charges"):
        assert gateway.post(path, key=key, json=REFUND).idempotency == "stored"
        assert gateway.post(path, key=key, json=REFUND).idempotency == "replayed"
    assert (upstream.effects("/refunds"), upstream.effects("/charges")) == (1, 1)


@pytest.mark.parametrize("source, field, values", [
    ("header:X-Tenant", "X-Tenant", ("acme", "globex")),
    ("cookie:session", "Cookie", ("theme=dark; session=one", "theme=dark; session=two")),
])
def test_principal_comes_from_where_the_configuration_says(start_gateway, upstream, key, source, field, values):
    gateway = start_gateway(f"""
        defaults:
          principal: ["{source}"]
        """)
    for value in values:
        assert gateway.post("/refunds", key=key, json=REFUND, headers={field: value}).idempotency == "stored"
        assert gateway.post("/refunds", key=key, json=REFUND, headers={field: value}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 2


def test_principal_is_required_where_the_route_says_so(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          require_principal: true
        """)
    gateway.post("/refunds", key=key, json=REFUND).refuses(401, "AUTH.principal_missing")
    assert upstream.requests == []
    assert gateway.post("/refunds", key=key, json=REFUND, auth=basic("alice", "secret")).status == 201
    assert upstream.effects("/refunds") == 1


def test_anonymous_requests_share_one_principal(gateway, upstream, key):
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1
