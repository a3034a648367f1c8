# SPDX-License-Identifier: Apache-2.0
"""Keys of tokens come into force like a configuration does: read again at a reload, refetched from a URL, and always
as a whole generation of the rules."""
import base64
import json
import socket
import textwrap
from concurrent.futures import ThreadPoolExecutor

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from harness import EXIT_CONFIG, Connection, answer, bearer, eventually, fresh_key

REFUND = {"charge_id": "ch_1", "amount": 1000}
INVALID = "AUTH.token_invalid"


def token(secret, **claims):
    return bearer(jwt.encode({"iss": "https://id.example", "sub": "alice", **claims}, secret, algorithm="HS256"))


def about(gateway):
    with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
        return connection.request("GET", "/v1/counts").json()


@pytest.fixture
def secret_file(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(b"a" * 32)
    return file


@pytest.fixture
def gateway(start_gateway, secret_file):
    return start_gateway(config=textwrap.dedent(f"""
        routes:
          - name: refunds
            match: POST /refunds
            jwt: {{secret: {secret_file}}}
        """), workers=2)


def test_a_key_file_is_read_again(gateway, upstream, hapax, secret_file, key):
    old, new = token(b"a" * 32), token(b"b" * 32)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=old)
    assert first.idempotency == "stored", first
    gateway.post("/refunds", key=key, json=REFUND, auth=new).refuses(401, INVALID)
    secret_file.write_bytes(b"b" * 32)
    assert hapax("reload", "--store", gateway.store_url).code == 0
    again = gateway.post("/refunds", key=key, json=REFUND, auth=new)
    assert (again.body, again.idempotency) == (first.body, "replayed")
    gateway.post("/refunds", key=key, json=REFUND, auth=old).refuses(401, INVALID)
    assert upstream.effects("/refunds") == 1


def test_a_key_file_that_is_no_use_changes_nothing(gateway, upstream, hapax, secret_file, key):
    secret_file.unlink()
    result = hapax("reload", "--store", gateway.store_url)
    assert result.code == EXIT_CONFIG and str(secret_file) in result.stderr, result
    assert gateway.post("/refunds", key=key, json=REFUND, auth=token(b"a" * 32)).idempotency == "stored"
    assert about(gateway)["generation"] == 1
    assert upstream.effects("/refunds") == 1


def coordinate(number):
    """In its full 32 bytes, as RFC 7518 has it; PyJWT leaves zeros in front away, for one key in 128."""
    return base64.urlsafe_b64encode(number.to_bytes(32, "big")).rstrip(b"=").decode()


def published(*keys):
    """A JWKS document of these private keys' public halves, by their numbers."""
    halves = [(number, key.public_key().public_numbers()) for number, key in keys]
    return json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "x": coordinate(half.x), "y": coordinate(half.y),
                                 "kid": str(number), "use": "sig"} for number, half in halves]})


def signed(number, key):
    claims = {"iss": "https://id.example", "sub": "alice"}
    return bearer(jwt.encode(claims, key, algorithm="ES256", headers={"kid": str(number)}))


def test_keys_of_a_url_are_renewed_while_requests_come(start_gateway, start_upstream, upstream, key):
    keys = [(number, ec.generate_private_key(ec.SECP256R1())) for number in range(2)]
    provider = start_upstream()
    provider.on("/keys", answer(200, published(keys[0]), effect=False))
    gateway = start_gateway(config=textwrap.dedent(f"""
        routes:
          - name: refunds
            match: POST /refunds
            jwt: {{jwks_url: {provider.url}/keys, refresh: 1s}}
        """), workers=2)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=signed(*keys[0]))
    assert first.idempotency == "stored", first
    gateway.post("/refunds", key=key, json=REFUND, auth=signed(*keys[1])).refuses(401, INVALID)
    provider.on("/keys", answer(200, published(*keys), effect=False))
    gateway.wait_events("jwks_in_use")
    for number in (1, 0):
        again = gateway.post("/refunds", key=key, json=REFUND, auth=signed(*keys[number]))
        assert (again.body, again.idempotency) == (first.body, "replayed"), number
    assert about(gateway)["generation"] == 2
    eventually(lambda: about(gateway)["generations_in_use"] == 1, "the generation before being let go")
    assert upstream.effects("/refunds") == 1


def test_fresh_keys_after_a_refused_reload_are_only_keys(start_gateway, start_upstream, upstream, hapax, key):
    """What the reload would have retired stays in force, though the first rules are still used when the keys come."""
    keys = [(number, ec.generate_private_key(ec.SECP256R1())) for number in range(2)]
    provider = start_upstream()
    provider.on("/keys", answer(200, published(keys[0]), effect=False))
    config = textwrap.dedent(f"""
        routes:
          - name: orders
            match: POST /orders
            jwt: {{jwks_url: {provider.url}/keys, refresh: 1s}}
          - name: refunds
            match: POST /refunds
        """)
    gateway = start_gateway(config=config)
    gateway.config.write_text(config + "    forward_key: scoped\nstore_max: 1MiB\n", encoding="utf-8")
    with upstream.hold("/slow") as held:
        slow = gateway.post_later("/slow", key=fresh_key(), json=REFUND)
        held.wait_arrived()
        assert "store_max is too small" in hapax("reload", "--store", gateway.store_url).stderr
        provider.on("/keys", answer(200, published(keys[1]), effect=False))
        gateway.wait_events("jwks_in_use")
        assert "store_max is too small" in hapax("reload", "--store", gateway.store_url).stderr
        assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert slow.status == 201
    assert upstream.effects("/refunds") == 1


@pytest.fixture
def reload_later(hapax):
    with ThreadPoolExecutor(1) as pool:
        yield lambda gateway: pool.submit(hapax, "reload", "--store", gateway.store_url)


def with_keys_of(provider):
    return f"""
routes:
  - name: refunds
    match: POST /refunds
    jwt: {{jwks_url: {provider.url}/keys}}
"""


def test_operators_are_answered_while_a_reload_fetches_keys(start_gateway, start_upstream, upstream, reload_later, key):
    provider, signer = start_upstream(), (0, ec.generate_private_key(ec.SECP256R1()))
    provider.on("/keys", answer(200, published(signer), effect=False))
    gateway = start_gateway(config="routes: []\n")
    gateway.config.write_text(with_keys_of(provider), encoding="utf-8")
    with provider.hold("/keys") as held:
        reload = reload_later(gateway)
        held.wait_arrived()
        assert about(gateway)["generation"] == 1
        assert not reload.done()
    assert reload.result().code == 0, reload.result()
    assert gateway.post("/refunds", key=key, json=REFUND, auth=signed(*signer)).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


def test_a_stop_ends_a_reload_that_fetches_keys(start_gateway, start_upstream, reload_later):
    provider = start_upstream()
    gateway = start_gateway(config="drain: 3s\n")
    gateway.config.write_text("drain: 3s" + with_keys_of(provider), encoding="utf-8")
    with provider.hold("/keys") as held:
        reload = reload_later(gateway)
        held.wait_arrived()
        gateway.terminate()
        assert "the daemon is stopping" in reload.result().stderr, reload.result()
        assert gateway.wait_exit() == 0
