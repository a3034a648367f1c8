# SPDX-License-Identifier: Apache-2.0
"""Who may see a stored answer, where callers come back with another credential: a fresh token that our keys verify, a
request with a new signature that the application vouches for, a session cookie. And who may not, whatever they send."""
import hashlib
import hmac
import itertools
import json
import socket
import time

import jwt as pyjwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from harness import answer, basic, bearer, eventually, request_bytes

NOT_AUTHORIZED = "AUTH.replay_not_authorized"
REFUND = {"amount": 1000}


class Issuer:
    """Who signs tokens, and publishes its keys as a JWKS file."""

    def __init__(self, directory):
        self.file = directory / "jwks.json"
        self.keys = {}
        self.rotate("first")

    def rotate(self, name):
        self.keys[name] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.current = name
        published = []
        for kid, key in self.keys.items():
            jwk = json.loads(pyjwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
            published.append({**jwk, "kid": kid, "use": "sig", "alg": "RS256"})
        self.file.write_text(json.dumps({"keys": published}), encoding="ascii")

    def token(self, subject, key=None, **claims):
        claims = {"iss": "https://issuer.test", "sub": subject, "exp": int(time.time()) + 3600,
                  "jti": str(next(self.numbers)), **claims}
        name = self.current
        return bearer(pyjwt.encode(claims, key or self.keys[name], algorithm="RS256", headers={"kid": name}))

    numbers = itertools.count()


@pytest.fixture
def issuer(tmp_path):
    return Issuer(tmp_path)


@pytest.fixture
def verifying(start_gateway, issuer):
    return start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            require_principal: true
            jwt: {{jwks: {issuer.file}, issuer: "https://issuer.test"}}
        """)


def test_a_renewed_token_of_the_same_subject_gets_the_stored_answer(verifying, upstream, issuer, key):
    first = verifying.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
    again = verifying.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
    assert (first.idempotency, again.idempotency) == ("stored", "replayed")
    assert again.body == first.body
    assert upstream.effects("/refunds") == 1


def test_a_renewed_token_waits_for_the_first_one(verifying, upstream, issuer, key):
    with upstream.hold("/refunds") as held:
        first = verifying.post_later("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
        held.wait_arrived()
        again = verifying.post_later("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
        again.wait_read()
        held.release()
        assert again.body == first.body
    assert upstream.effects("/refunds") == 1


def test_a_token_of_another_subject_is_another_operation(verifying, upstream, issuer, key):
    first = verifying.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
    other = verifying.post("/refunds", key=key, json=REFUND, auth=issuer.token("bob"))
    assert other.idempotency == "stored" and other.body != first.body
    assert upstream.effects("/refunds") == 2


def forged_tokens(issuer):
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = issuer.keys[issuer.current].public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head, payload, signature = issuer.token("alice").removeprefix("Bearer ").split(".")
    _, other_payload, _ = issuer.token("bob").removeprefix("Bearer ").split(".")
    hs_head = pyjwt.utils.base64url_encode(json.dumps({"alg": "HS256", "kid": issuer.current}).encode()).decode()
    hs_mac = hmac.new(public, f"{hs_head}.{payload}".encode(), hashlib.sha256).digest()
    none_head = pyjwt.utils.base64url_encode(json.dumps({"alg": "none"}).encode()).decode()
    return {
        "signed by another key": issuer.token("alice", key=stranger),
        "another payload under the signature": bearer(f"{head}.{other_payload}.{signature}"),
        "no signature": bearer(f"{head}.{payload}."),
        "no algorithm": bearer(f"{none_head}.{payload}."),
        "the public key as a shared secret":
            bearer(f"{hs_head}.{payload}." + pyjwt.utils.base64url_encode(hs_mac).decode()),
        "expired": issuer.token("alice", exp=int(time.time()) - 3600),
        "of another issuer": issuer.token("alice", iss="https://evil.test"),
        "not a token at all": bearer("alice"),
    }


@pytest.mark.parametrize("forgery", ["signed by another key", "another payload under the signature", "no signature",
                                     "no algorithm", "the public key as a shared secret", "expired",
                                     "of another issuer", "not a token at all"])
def test_a_forged_token_sees_nothing_and_executes_nothing(verifying, upstream, issuer, key, forgery):
    first = verifying.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
    forged = verifying.post("/refunds", key=key, json=REFUND, auth=forged_tokens(issuer)[forgery])
    problem = forged.refuses(401, "AUTH.token_invalid")
    assert "token" in problem["detail"] or "JWT" in problem["detail"]
    assert first.json()["id"].encode() not in forged.body
    assert upstream.effects("/refunds") == 1


WRONG_DATES = {"exp": ({"exp": 1_000_000_000}, "The token has expired."),
               "nbf": ({"nbf": 9_000_000_000, "exp": 9_000_000_001}, "The token is not valid yet.")}


@pytest.mark.parametrize("claim", WRONG_DATES)
def test_a_token_out_of_its_time_is_told_as_what_it_is(verifying, upstream, issuer, key, claim):
    claims, why = WRONG_DATES[claim]
    refused = verifying.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice", **claims))
    assert refused.refuses(401, "AUTH.token_invalid")["detail"] == why
    challenge = f'Bearer realm="hapax", error="invalid_token", error_description="{why}"'
    assert refused.header("WWW-Authenticate") == challenge
    assert upstream.requests == []


@pytest.mark.parametrize("algorithm, enough", [("HS384", 48), ("HS512", 64)])
def test_a_secret_that_is_too_short_for_an_algorithm_is_called_so(start_gateway, upstream, tmp_path, key, algorithm,
                                                                  enough):
    for length, status in ((enough - 1, 401), (enough, 201)):
        secret = "s" * length
        (tmp_path / "secret").write_text(secret, encoding="ascii")
        gateway = start_gateway(f"""
            defaults: {{jwt: {{secret: {tmp_path}/secret}}}}
            """)
        auth = bearer(pyjwt.encode({"sub": "alice"}, secret, algorithm=algorithm))
        answered = gateway.post("/refunds", key=key, json=REFUND, auth=auth)
        assert answered.status == status
        if status == 401:
            why = answered.refuses(401, "AUTH.token_invalid")["detail"]
            assert "too short" in why and algorithm in why and str(enough) in why
    assert upstream.effects("/refunds") == 1


def test_nobody_is_refused_where_a_principal_is_required(verifying, upstream, issuer, key):
    verifying.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
    nobody = verifying.post("/refunds", key=key, json=REFUND)
    nobody.refuses(401, "AUTH.principal_missing")
    assert nobody.header("WWW-Authenticate") == 'Bearer realm="hapax"'
    assert upstream.effects("/refunds") == 1


@pytest.mark.slow
def test_keys_from_a_url_are_fetched_and_fetched_anew_when_they_rotate(start_gateway, start_upstream, upstream, issuer,
                                                                      key):
    server = start_upstream()
    server.on("/jwks", lambda exchange: exchange.answer(200, issuer.file.read_bytes(),
                                                        {"Content-Type": "application/json"}))
    gateway = start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            jwt: {{jwks_url: "{server.url}/jwks"}}
        """)

    def ask():
        answer = gateway.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
        assert answer.status in (201, 401, 503)
        return answer if answer.status == 201 else None

    first = eventually(ask, "the first keys")
    issuer.rotate("second")
    again = eventually(ask, "the second keys")
    assert again.idempotency == "replayed" and again.body == first.body
    assert upstream.effects("/refunds") == 1


def test_tokens_are_refused_with_503_as_long_as_there_are_no_keys(start_gateway, start_upstream, upstream, issuer, key):
    server = start_upstream()
    server.on("/jwks", lambda exchange: exchange.answer(500))
    gateway = start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            jwt: {{jwks_url: "{server.url}/jwks"}}
        """)
    refused = gateway.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice"))
    refused.refuses(503, "DEPENDENCY.unavailable")
    assert refused.header("Retry-After")
    assert upstream.effects("/refunds") == 0


def test_a_claim_of_the_token_is_the_principal(start_gateway, upstream, issuer, key):
    gateway = start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            principal: ["jwt:tenant"]
            jwt: {{jwks: {issuer.file}}}
        """)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice", tenant="acme"))
    colleague = gateway.post("/refunds", key=key, json=REFUND, auth=issuer.token("bob", tenant="acme"))
    stranger = gateway.post("/refunds", key=key, json=REFUND, auth=issuer.token("alice", tenant="globex"))
    assert colleague.idempotency == "replayed" and colleague.body == first.body
    assert stranger.idempotency == "stored"
    assert upstream.effects("/refunds") == 2


@pytest.mark.parametrize("verified", [True, False])
def test_a_token_without_the_claim_is_refused_and_says_so(start_gateway, upstream, issuer, key, verified):
    """It is not nobody's: nobody's requests share their keys."""
    gateway = start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            principal: ["jwt:tenant", "cookie:session"]
            {f"jwt: {{jwks: {issuer.file}}}" if verified else ""}
        """)
    for auth, why in ((issuer.token("alice"), '"tenant"'), ("Bearer garbage", "JWT")):
        is_invalid = verified and auth == "Bearer garbage"
        code = "AUTH.token_invalid" if is_invalid else "AUTH.principal_missing"
        problem = gateway.post("/refunds", key=key, json=REFUND, auth=auth).refuses(401, code)
        assert is_invalid or why in problem["detail"]
    assert upstream.requests == []
    headers = {"Authorization": issuer.token("alice"), "Cookie": "session=alice"}
    assert gateway.post("/refunds", key=key, json=REFUND, headers=headers).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


SIGV4_SECRETS = {"AKIDALICE": b"alice's secret", "AKIDBOB": b"bob's secret"}


OTHER_CREDENTIALS = ("cookie", "x-api-key", "api-key", "x-auth-token", "x-access-token", "x-user")


def sigv4(access_key, method, path, nonce, secret=None):
    """A signature over the whole request, in the manner of AWS; `nonce` stands for its date, fresh on every retry."""
    signed = f"{method}\n{path}\n{nonce}".encode()
    signature = hmac.new(secret or SIGV4_SECRETS[access_key], signed, hashlib.sha256).hexdigest()
    return {"X-Amz-Date": nonce,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={access_key}/20261115/eu/refunds/aws4_request, "
                             f"SignedHeaders=host;x-amz-date, Signature={signature}"}


def check_sigv4(exchange):
    """What the application does with the question: it checks the signature of the request that was asked."""
    request = exchange.request
    exchange.read_body()
    credential = request.header("Authorization", "").partition("Credential=")[2].partition("/")[0]
    expected = sigv4(credential, request.header("X-Original-Method"), request.header("X-Original-URI"),
                     request.header("X-Amz-Date")) if credential in SIGV4_SECRETS else {}
    ok = expected.get("Authorization") == request.header("Authorization")
    exchange.answer(204 if ok else 403)


@pytest.fixture
def vouching(start_gateway, upstream):
    upstream.on("/auth/check", check_sigv4)
    return start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            authorize: GET /auth/check
        """)


def test_a_request_signed_anew_gets_the_stored_answer_when_the_application_vouches(vouching, upstream, key):
    first = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "1"))
    again = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "2"))
    assert (first.idempotency, again.idempotency) == ("stored", "replayed")
    assert again.body == first.body
    assert upstream.effects("/refunds") == 1


def test_a_wrong_signature_sees_nothing(vouching, upstream, key):
    first = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "1"))
    forged = vouching.post("/refunds", key=key, json=REFUND,
                           headers=sigv4("AKIDALICE", "POST", "/refunds", "2", secret=b"guessed"))
    forged.refuses(403, NOT_AUTHORIZED)
    assert first.json()["id"].encode() not in forged.body
    assert upstream.effects("/refunds") == 1


def test_the_question_carries_no_credential_but_the_one_that_counts(vouching, upstream, key):
    """An application that goes by its cookies first would vouch for whoever the session is, not for who asks here."""
    def check_session(exchange):
        exchange.read_body()
        named = [name for name, _ in exchange.request.headers if name.lower() in OTHER_CREDENTIALS]
        exchange.answer(204 if named else 403)

    first = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "1"))
    upstream.on("/auth/check", check_session)
    for name in OTHER_CREDENTIALS:
        forged = sigv4("AKIDALICE", "POST", "/refunds", "2", secret=b"guessed")
        other = vouching.post("/refunds", key=key, json=REFUND, headers={**forged, name: "session=mallory"})
        other.refuses(403, NOT_AUTHORIZED)
        assert first.json()["id"].encode() not in other.body
    assert len(upstream.received("/auth/check")) == len(OTHER_CREDENTIALS)
    assert upstream.effects("/refunds") == 1


def test_a_client_cannot_say_itself_what_it_asked(vouching, upstream, key):
    """Its own X-Original-URI would have another request's signature checked."""
    vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "1"))
    stolen = sigv4("AKIDALICE", "GET", "/", "2")  # a signature seen elsewhere
    vouching.post("/refunds", key=key, json=REFUND,
                  headers={**stolen, "X-Original-Method": "GET", "X-Original-URI": "/"}).refuses(403, NOT_AUTHORIZED)
    assert upstream.effects("/refunds") == 1


def test_an_application_that_cannot_be_asked_shows_nothing_and_says_so(vouching, upstream, key):
    vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "1"))
    upstream.on("/auth/check", lambda exchange: exchange.answer(500))
    refused = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "2"))
    assert refused.refuses(502, "DEPENDENCY.unavailable")["retryable"] is True
    upstream.on("/auth/check", check_sigv4)
    again = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "3"))
    assert again.idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_the_application_is_not_asked_about_another_principal(vouching, upstream, key):
    vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "1"))
    other = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDBOB", "POST", "/refunds", "1"))
    assert other.idempotency == "stored"
    assert [request.path for request in upstream.requests].count("/auth/check") == 0
    assert upstream.effects("/refunds") == 2


def test_the_application_is_not_asked_about_nobody(start_gateway, upstream, key):
    """Two strangers without the configured source are nobody both; that the application knows one says nothing."""
    upstream.on("/me", lambda exchange: exchange.answer(200, {"user": "whoever asks"}))
    gateway = start_gateway("""
        defaults:
          principal: ["cookie:session"]
          authorize: GET /me
        """)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=basic("alice", "secret"))
    stranger = gateway.post("/refunds", key=key, json=REFUND, auth=basic("bob", "secret"))
    stranger.refuses(403, NOT_AUTHORIZED)
    assert first.json()["id"].encode() not in stranger.body
    assert upstream.effects("/refunds") == 1


AMBIGUOUS = {
    "two cookies of one name": ("cookie:session", [("Cookie", "session=alice; session=bob")]),
    "the first of two is empty": ("cookie:session", [("Cookie", "session=; session=bob")]),
    "two headers": ("header:X-User", [("X-User", "alice"), ("X-User", "bob")]),
    "the first of two headers is empty": ("header:X-User", [("X-User", ""), ("X-User", "bob")]),
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_of_two_credentials_none_counts(start_gateway, upstream, key, what):
    """One of them is what the application goes by, and nobody here can say which."""
    source, headers = AMBIGUOUS[what]
    gateway = start_gateway(f"""
        defaults:
          principal: ["{source}"]
        """)
    gateway.post("/refunds", key=key, json=REFUND, headers=headers).refuses(400, "VALIDATION.request_malformed")
    assert upstream.requests == []


def test_the_same_bytes_from_another_place_prove_nothing(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          scope: route
          principal: ["header:X-User", "cookie:session"]
        """)
    first = gateway.post("/refunds", key=key, json=REFUND, headers={"X-User": "alice"})
    forged = gateway.post("/refunds", key=key, json=REFUND, headers={"Cookie": "session=alice"})
    forged.refuses(403, NOT_AUTHORIZED)
    assert first.json()["id"].encode() not in forged.body
    assert upstream.effects("/refunds") == 1


def test_cookies_not_named_and_requests_without_a_route_are_counted(start_gateway, upstream, key):
    gateway = start_gateway()
    for session, status in (("alice", 201), ("bob", 403)):
        assert gateway.post("/refunds", key=key, json=REFUND, headers={"Cookie": f"session={session}"}).status == status
    assert gateway.post("/refunds", json=REFUND).status == 201
    gateway.request("GET", "/refunds")
    counts = gateway.counts()
    assert (counts["cookies_not_named"], counts["passed_without_route"]) == (2, 1)
    assert upstream.effects("/refunds") == 2


def ask_from(gateway, address, key, user):
    """A request from one of this machine's own addresses, and its whole answer."""
    headers = [("Idempotency-Key", key), ("X-Forwarded-User", user), ("Connection", "close")]
    with socket.create_connection(gateway.address, source_address=(address, 0)) as sock:
        sock.sendall(request_bytes("POST", "/refunds", headers, b"{}"))
        return b"".join(iter(lambda: sock.recv(65536), b""))


def test_a_header_that_the_application_does_not_get_names_nobody(start_gateway, upstream, key):
    """X-Forwarded-User goes on from trusted proxies alone: who comes past them can't be alice by saying so."""
    gateway = start_gateway("""
        trusted_proxies: [127.0.0.2]
        defaults:
          principal: ["header:X-Forwarded-User"]
          require_principal: true
        """)
    by_proxy = ask_from(gateway, "127.0.0.2", key, "alice")
    assert b" 201 " in by_proxy.partition(b"\r\n")[0] and b"rf_1" in by_proxy
    assert upstream.requests[0].header("X-Forwarded-User") == "alice"
    forged = ask_from(gateway, "127.0.0.1", key, "alice")
    assert b" 401 " in forged.partition(b"\r\n")[0] and b"rf_1" not in forged
    assert b"Idempotency-Status: replayed" in ask_from(gateway, "127.0.0.2", key, "alice")
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("credential", ["Bearer", "bearer  ", "Bearer\tnot.a.token"])
def test_a_bearer_without_a_token_is_refused_where_tokens_are_verified(verifying, upstream, key, credential):
    verifying.post("/refunds", key=key, json=REFUND, auth=credential).refuses(401, "AUTH.token_invalid")
    assert upstream.requests == []


def test_a_session_cookie_is_the_principal_where_it_is_configured(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults:
          principal: ["cookie:session"]
          require_principal: true
        """)
    mine, other = {"Cookie": "theme=dark; session=alice-1"}, {"Cookie": "session=bob-1"}
    first = gateway.post("/refunds", key=key, json=REFUND, headers=mine)
    again = gateway.post("/refunds", key=key, json=REFUND, headers={"Cookie": "session=alice-1; theme=light"})
    assert again.idempotency == "replayed" and again.body == first.body
    stranger = gateway.post("/refunds", key=key, json=REFUND, headers=other)
    assert stranger.idempotency == "stored" and stranger.body != first.body
    gateway.post("/refunds", key=key, json=REFUND).refuses(401, "AUTH.principal_missing")
    assert upstream.effects("/refunds") == 2


SCOPES = ["route+principal", "principal", "route"]
CREDENTIALS = {
    "nobody": {},
    "basic alice": {"Authorization": basic("alice", "secret")},
    "basic alice, another password": {"Authorization": basic("alice", "other")},
    "basic bob": {"Authorization": basic("bob", "secret")},
    "a token": {"Authorization": bearer("opaque")},
    "a token spelled otherwise": {"Authorization": "bearer  opaque"},
    "the user's name as a header": {"X-User": "alice"},
    "the other user's name as a header": {"X-User": "bob"},
    "a header for this hop only": {"X-User": "alice", "Connection": "X-User"},
    "a cookie": {"Cookie": "session=alice"},
    "another cookie": {"Cookie": "session=bob"},
    "alice's cookie and bob's password": {"Cookie": "session=alice", "Authorization": basic("bob", "secret")},
    "bob's name and alice's cookie": {"X-User": "bob", "Cookie": "session=alice"},
}
SOURCES = ["authorization", "header:X-User", "cookie:session", "authorization, cookie:session"]
PATHS = ["/refunds", "/%72efunds", "/x/../refunds"]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("sources", SOURCES)
def test_no_credential_shows_an_answer_that_another_earned(start_gateway, upstream, scope, sources):
    """Every credential asks first under a key of its own; then every other one asks for it, on every spelling of the
    path and of the key. Whoever gets its answer sent what the application would have taken for the same caller."""
    gateway = start_gateway(f"""
        routes:
          - name: refunds
            match: POST /refunds
            scope: {scope}
            principal: [{sources}]
        """)
    for number, (owner, credential) in enumerate(CREDENTIALS.items()):
        key = f"key-of-{number:02}-0123456789"
        first = gateway.post("/refunds", key=key, json=REFUND, headers=credential)
        assert first.status == 201, owner
        for other, another in CREDENTIALS.items():
            for path, spelled in itertools.product(PATHS, (key, f'"{key}"')):
                answer = gateway.post(path, key=spelled, json=REFUND, headers=another)
                if answer.body == first.body:
                    assert sees_the_same_caller(sources, credential, another), (owner, other, path)
                else:
                    assert first.json()["id"].encode() not in answer.body, (owner, other, path)


def sees_the_same_caller(sources, one, other):
    """By what the application gets: the configured source and Authorization are the same, as bytes but for case."""
    def seen(headers):
        headers = {name: value for name, value in headers.items() if headers.get("Connection") != name}
        values = [" ".join(headers.get("Authorization", "").split()).replace("bearer", "Bearer")]
        if "header:X-User" in sources:
            values.append(headers.get("X-User"))
        if "cookie:session" in sources and ("authorization" not in sources or not values[0]):
            values.append(headers.get("Cookie"))
        return values
    return seen(one) == seen(other)


VOUCHED = [200, 201, 202, 204, 206]
NOT_VOUCHED = [300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 409, 410, 418, 422, 429, 451]


@pytest.mark.parametrize("status", VOUCHED + NOT_VOUCHED + [500, 501, 502, 503, 504])
def test_only_2xx_of_the_application_vouches(vouching, upstream, key, status):
    """A login page (302) or a path that isn't there (404) is no yes."""
    first = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "1"))
    upstream.on("/auth/check", answer(status, headers={"Location": "/login"}, effect=False))
    again = vouching.post("/refunds", key=key, json=REFUND, headers=sigv4("AKIDALICE", "POST", "/refunds", "2"))
    if status in VOUCHED:
        assert (again.idempotency, again.body) == ("replayed", first.body)
    elif status in NOT_VOUCHED:
        again.refuses(403, NOT_AUTHORIZED)
    else:
        again.refuses(502, "DEPENDENCY.unavailable")
    assert (first.json()["id"].encode() in again.body) == (status in VOUCHED)
    assert len(upstream.received("/auth/check")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("difference", ["audience", "issuer"])
def test_a_token_verified_on_one_route_is_not_verified_on_another(start_gateway, upstream, issuer, key, difference):
    """What was verified before is remembered with the rules that verified it."""
    other = {"audience": "audience: refunds", "issuer": 'issuer: "https://other.test"'}[difference]
    gateway = start_gateway(f"""
        routes:
          - {{name: charges, match: POST /charges, jwt: {{jwks: {issuer.file}, audience: charges}}}}
          - {{name: refunds, match: POST /refunds, jwt: {{jwks: {issuer.file}, {other}}}}}
        """)
    token = issuer.token("alice", aud="charges")
    for _ in range(2):
        assert gateway.post("/charges", key=key, json=REFUND, auth=token).status == 201
        problem = gateway.post("/refunds", key=key, json=REFUND, auth=token).refuses(401, "AUTH.token_invalid")
        assert difference in problem["detail"]
    assert (upstream.effects("/charges"), upstream.effects("/refunds")) == (1, 0)


FENCED = {"another payload": ({"json": {"amount": 1}}, False),
          "another credential": ({"headers": {"X-Api-Key": "b"}}, False),
          "the same request": ({}, True)}


@pytest.mark.parametrize("what", FENCED)
def test_a_client_that_was_fenced_off_sees_only_what_is_its_own(start_gateway, upstream, hapax, tmp_path, key, what):
    """A gateway hangs with the answer in its hands. Meanwhile its lease ends, an operator frees the key, and somebody
    else uses it: what the first client is then told goes by payload and credential, as everywhere."""
    change, is_shown = FENCED[what]
    one, two = (start_gateway(f"""
        admin: {{listen: "unix:{tmp_path}/{name}.sock"}}
        defaults: {{lease: 1s, wait: 200ms}}
        """, store=f"sqlite:{tmp_path}/store.db") for name in ("one", "two"))
    mine = {"key": key, "json": REFUND, "headers": {"X-Api-Key": "a"}}
    with upstream.hold("/refunds") as held:
        first = one.post_later("/refunds", **mine)
        held.wait_arrived()
        one.pause()
        eventually(lambda: two.post("/refunds", **mine).json()["error_code"].endswith("outcome_unknown"),
                   "the lease's end")
    done = hapax("keys", "resolve", key, "--release", "--why", "a test", "--admin", f"unix:{tmp_path}/two.sock")
    assert done.code == 0, done
    second = two.post("/refunds", **{**mine, **change})
    assert second.idempotency == "stored"
    one.resume()
    if is_shown:
        assert (first.idempotency, first.response.body) == ("replayed", second.body)
    else:
        first.response.refuses(409, "CONFLICT.idempotency.outcome_unknown")
        assert second.json()["id"].encode() not in first.response.body
    assert upstream.effects("/refunds") == 2
