# SPDX-License-Identifier: Apache-2.0
"""An application's hapax.begin and a gateway's claim of the same route, caller and key are one operation: the database
computes the very names and fingerprints that the program does."""
import contextlib
import json
import os
import pathlib
import random
import subprocess

import pytest

from harness import answer, basic, jwt
from harness.gateway import ROOT

ROUTES = """
    defaults: {on_unknown: hold}
    routes:
      - {name: refunds, match: POST /refunds, authorize: GET /me}
      - {name: by-header, match: POST /by-header, principal: ["header:X-User"]}
      - {name: whole-route, match: POST /whole-route, scope: route}
      - {name: whole-caller, match: POST /whole-caller, scope: principal}
      - {name: by-host, match: POST /by-host, scope: host}
"""
BODY = {"amount": 19.990, "currency": "EUR", "note": "\u00e9\U0001f600", "list": [1e30, -0.0, 12345678901234567890]}


@pytest.fixture
def shared(start_gateway, database):
    """A gateway on the database."""
    return start_gateway(ROUTES, store=database.url)


def begin(database, route, key, credential=None, principal=None, body=BODY, kind="jsonb", **options):
    """What an application is told in a transaction that it then rolls back; an answer's body as it is."""
    options.update({"credential": credential} if credential else {})
    with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
        payload = body if isinstance(body, str) else json.dumps(body)
        cursor.execute(f"SELECT verdict, operation, status, body FROM hapax.begin(%s, %s, %s, %s::{kind}, %s)",
                       (route, principal, key, payload, json.dumps(options)))
        verdict, operation, status, content = cursor.fetchone()
        connection.rollback()
    return verdict, operation, status, content and bytes(content)


def as_sent(path, **more):
    return {"method": "POST", "host": "Hapax.test:80", "path": path, "media_type": "application/json", **more}


def test_what_a_gateway_ran_is_a_replay_to_the_application(shared, database, upstream, key):
    first = shared.post("/refunds", key=key, auth=basic("alice", "secret"), json=BODY)
    assert first.status == 201
    asked = as_sent("/refunds", credential=["basic", "alice"])
    assert begin(database, "refunds", key, **asked) == ("replay", None, 201, first.body)
    assert begin(database, "refunds", key, **{**asked, "path": "/other"})[0] == "mismatch"
    assert begin(database, "refunds", key, **{**asked, "host": "other.test"})[0] == "mismatch"
    assert begin(database, "refunds", key, **{**asked, "body": {**BODY, "amount": 20}})[0] == "mismatch"
    for other in ({"credential": ["basic", "bob"]}, {"credential": ["digest", "alice"]}):
        assert begin(database, "refunds", key, **{**asked, **other})[0] == "run"
    assert begin(database, "charges", key, **asked)[0] == "run"
    assert begin(database, "refunds", key + "1", **asked)[0] == "run"
    assert upstream.effects() == 1


def test_every_kind_of_caller_and_scope_has_the_same_name_on_both_sides(shared, database, upstream, key):
    token = jwt({"iss": "https://login.example", "sub": "al\u00efce", "exp": 1})
    shared.post("/refunds", key=key, auth=token, json=BODY)
    shared.post("/by-header", key=key, headers=[("X-User", "42")], json=BODY)
    shared.post("/refunds", key=key, json=BODY)  # nobody
    shared.post("/whole-route", key=key, auth=basic("alice", "x"), json=BODY)
    shared.post("/whole-caller", key=key, auth=basic("alice", "x"), json=BODY)
    shared.post("/by-host", key=key, auth=basic("alice", "x"), json=BODY)
    shared.post("/refunds", key=key + "-raw", body=b'{"amount": 1}', headers=[("Content-Type", "text/plain")])
    alice = ["basic", "alice"]
    for found in (
            begin(database, "refunds", key, credential=["jwt", "https://login.example", "al\u00efce"],
                  **as_sent("/refunds")),
            begin(database, "by-header", key, principal="header:x-user:42", **as_sent("/by-header")),
            begin(database, "refunds", key, **as_sent("/refunds")),
            begin(database, "whole-route", key, credential=alice, scope="route", **as_sent("/whole-route")),
            begin(database, "anything", key, credential=alice, scope="principal", **as_sent("/whole-caller")),
            begin(database, "by-host", key, credential=alice, scope="host", **as_sent("/by-host")),
            begin(database, "refunds", key + "-raw", body='{"amount": 1}', kind="text", method="POST", path="/refunds",
                  host="hapax.test", media_type="text/plain")):
        assert found[0] == "replay", found
    assert begin(database, "whole-route", key, credential=["basic", "bob"], scope="route",
                 **as_sent("/whole-route"))[0] == "other_caller"
    elsewhere = as_sent("/by-host", host="other.test")
    assert begin(database, "by-host", key, credential=alice, scope="host", **elsewhere)[0] == "run"
    assert upstream.effects() == 7


@pytest.mark.parametrize("said", [
    "application/json", "Application/JSON", "application/json; charset=utf-8", 'application/json ;\tCharset="UTF-8"',
    "application/json; version=1; charset= UTF-8 ; x=y;", 'application/problem+json;a="b;c=\\"d";charset=utf8;;',
    "text/plain;charset=Latin1", "nonsense", "application/json; charset", "text/plain; charset=a; charset=b", ""])
def test_a_content_type_is_given_as_it_came(shared, database, upstream, key, said):
    """Whatever it says besides its type and charset, and however that is written."""
    is_json = said.lower().startswith("application/") and said != "application/json; charset"
    text = '{"amount":1}'
    sent = shared.post("/refunds", key=key, auth=basic("alice", "x"), body=text.encode(),
                       headers=[("Content-Type", said)])
    assert sent.idempotency == "stored"
    asked = {"credential": ["basic", "alice"], "body": text, "kind": "jsonb" if is_json else "text",
             "method": "POST", "path": "/refunds", "host": "hapax.test"}
    assert begin(database, "refunds", key, media_type=said, **asked)[0] == "replay"
    assert begin(database, "refunds", key, media_type=said + "x/y", **asked)[0] == "mismatch"
    assert begin(database, "refunds", key, media_type=f" {said}\t", content_encoding="Identity", **asked)[0] == "replay"
    assert upstream.effects("/refunds") == 1


def test_what_the_application_did_alone_a_gateway_never_runs_again(shared, database, upstream, key):
    with contextlib.closing(database.connect()) as connection, connection, connection.cursor() as cursor:
        cursor.execute("SELECT operation FROM hapax.begin('refunds', NULL, %s, %s::json, %s)", (
            key, json.dumps(BODY), json.dumps({"credential": ["basic", "alice"], **as_sent("/refunds")})))
        operation = cursor.fetchone()[0]
        cursor.execute("SELECT hapax.complete(%s, 201, %s, %s::json)", (operation, '{"Location": "/refunds/rf_7"}',
                                                                         '{"id":"rf_7"}'))
    upstream.on("/me", answer(401))
    asked = {"key": key, "auth": basic("alice", "secret"), "json": BODY}
    assert shared.post("/refunds", **asked).status == 403  # whom the application does not vouch for
    upstream.on("/me", answer(200))
    replayed = shared.post("/refunds", **asked)
    assert (replayed.status, replayed.body) == (201, b'{"id":"rf_7"}')
    assert replayed.header("Location") == "/refunds/rf_7"
    assert replayed.header("Idempotency-Status") == "replayed"
    assert shared.post("/refunds", **{**asked, "json": {"amount": 1}}).status == 409
    assert upstream.effects("/refunds") == 0


def random_value(rng, depth=0):
    kind = rng.randrange(7 if depth < 4 else 5)
    if kind == 0:
        return rng.choice([True, False, None])
    if kind == 1:
        return rng.choice([0, -1, 12.5, 1e30, 10**20, 10**21, 10**22, -0.0, 1e-6, 1e-7, 1.5e-9, 9007199254740993])
    if kind == 2:
        return rng.uniform(-1, 1) * 10 ** rng.randrange(-30, 30)
    if kind in (3, 4):
        return "".join(rng.choices('a\u00e9\U0001f600"\\\ufb33\ue000\x01\n\x7f/', k=rng.randrange(4)))
    if kind == 5:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    names = ["".join(rng.choices(["a", "\u00e9", "\U0001f600", "\ufb33"], k=rng.randrange(3))) for _ in range(5)]
    return {name: random_value(rng, depth + 1) for name in names[:rng.randrange(6)]}


def test_json_has_the_same_canonical_form_on_both_sides(database):
    seed = int(os.environ.get("HAPAX_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HAPAX_SEED={seed}")
    rng = random.Random(seed)
    texts = [json.dumps({"v": random_value(rng)}, ensure_ascii=rng.random() < 0.5) for _ in range(2000)]
    driver = pathlib.Path(os.environ.get("HAPAX_BUILD", ROOT / "build")) / "tests" / "canonical" / "canonical_driver"
    ours = subprocess.run([driver], input="\n".join(texts).encode() + b"\n", capture_output=True, check=True)
    theirs = database.ask("SELECT hapax.canonical(t::jsonb) FROM unnest(%s) WITH ORDINALITY u(t, i) ORDER BY i", texts)
    for text, one, other in zip(texts, ours.stdout.decode().split("\n"), theirs):
        assert one == other[0], text
    assert len(theirs) == len(texts)
