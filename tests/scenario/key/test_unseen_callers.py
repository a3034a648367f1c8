# SPDX-License-Identifier: Apache-2.0
"""Callers whom no configured source tells apart: they share their keys, and never each other's answers. And one key on
two hosts."""
import json

import pytest

from harness import answer, basic, bearer, eventually, quick_retries

NOT_AUTHORIZED = "AUTH.replay_not_authorized"
MISMATCH = "CONFLICT.idempotency.payload_mismatch"
REFUND = {"amount": 1000}

# What an application may tell its users by, and the same of another user's.
CREDENTIALS = {
    "a cookie": ({"Cookie": "session=alice"}, {"Cookie": "session=bob"}),
    "one of several cookies": ({"Cookie": "theme=dark; sid=1"}, {"Cookie": "theme=dark; sid=2"}),
    "a second line of cookies": ([("Cookie", "a=1"), ("Cookie", "sid=1")], [("Cookie", "a=1"), ("Cookie", "sid=2")]),
    "an API key": ({"X-Api-Key": "key-of-alice"}, {"X-Api-Key": "key-of-bob"}),
    "an API key spelled otherwise": ({"x-API-key": "key-of-alice"}, {"X-Api-Key": "key-of-bob"}),
    "an API key without the X": ({"Api-Key": "key-of-alice"}, {"Api-Key": "key-of-bob"}),
    "a token in a header": ({"X-Auth-Token": "alice"}, {"X-Auth-Token": "bob"}),
    "an access token in a header": ({"X-Access-Token": "alice"}, {"X-Access-Token": "bob"}),
    "a proxy's credential": ({"Proxy-Authorization": basic("a", "b")}, {"Proxy-Authorization": basic("a", "c")}),
    "none at all": ({"X-Api-Key": "key-of-alice"}, {}),
    "a first one": ({}, {"Cookie": "session=bob"}),
    "the same bytes elsewhere": ({"X-Api-Key": "alice"}, {"Api-Key": "alice"}),
    "one more": ({"X-Api-Key": "alice"}, {"X-Api-Key": "alice", "Cookie": "session=alice"}),
    "two lines written as one": ([("Cookie", "x"), ("Cookie", "y")], {"Cookie": "xay"}),
    "bytes that moved to the next one": ({"X-Api-Key": "ab", "Api-Key": "c"}, {"X-Api-Key": "a", "Api-Key": "bc"}),
}


@pytest.mark.parametrize("what", CREDENTIALS)
def test_a_caller_with_another_credential_never_gets_the_answer(gateway, upstream, key, what):
    mine, another = CREDENTIALS[what]
    first = gateway.post("/refunds", key=key, json=REFUND, headers=mine)
    assert first.idempotency == "stored"
    stranger = gateway.post("/refunds", key=key, json=REFUND, headers=another)
    problem = stranger.refuses(403, NOT_AUTHORIZED)
    assert first.json()["id"].encode() not in stranger.body
    assert "not run again" in problem["hint"] and "Don't use a new key" in problem["hint"], problem
    again = gateway.post("/refunds", key=key, json=REFUND, headers=mine)
    assert (again.idempotency, again.body) == ("replayed", first.body)
    assert upstream.effects("/refunds") == 1


def test_authorization_that_no_source_uses_is_a_proof_too(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults: {principal: ["cookie:session"]}
        """)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=bearer("alice"))
    gateway.post("/refunds", key=key, json=REFUND, auth=bearer("bob")).refuses(403, NOT_AUTHORIZED)
    assert gateway.post("/refunds", key=key, json=REFUND, auth=bearer("alice")).body == first.body
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("source, mine", [
    ("cookie:session", ({"Cookie": "session=a; _ga=1"}, {"Cookie": "_ga=2; session=a", "X-Api-Key": "k"})),
    ("header:X-Api-Key", ({"X-Api-Key": "a", "Cookie": "_ga=1"}, {"X-Api-Key": "a", "Cookie": "_ga=2"})),
])
def test_cookies_that_change_by_themselves_are_no_matter_where_the_caller_is_named(start_gateway, upstream, key, source,
                                                                                  mine):
    gateway = start_gateway(f"""
        defaults: {{principal: ["{source}"]}}
        """)
    first, again = (gateway.post("/refunds", key=key, json=REFUND, headers=headers) for headers in mine)
    assert (again.idempotency, again.body) == ("replayed", first.body)
    assert upstream.effects("/refunds") == 1


def test_another_cookie_may_not_wait_nor_see_what_is_unknown(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries(upstream_timeout="300ms", on_unknown="hold"))
    mine, another = ({"Cookie": f"session={name}"} for name in ("alice", "bob"))
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND, headers=mine)
        held.wait_arrived()
        gateway.post("/refunds", key=key, json=REFUND, headers=another).refuses(403, NOT_AUTHORIZED)
        assert first.idempotency == "unknown"
        gateway.post("/refunds", key=key, json={"amount": 1}, headers=another).refuses(403, NOT_AUTHORIZED)
    eventually(lambda: gateway.post("/refunds", key=key, json=REFUND, headers=mine).idempotency == "replayed",
               "the late answer being taken")
    gateway.post("/refunds", key=key, json=REFUND, headers=another).refuses(403, NOT_AUTHORIZED)
    assert upstream.effects("/refunds") == 1


def test_another_cookie_is_refused_after_a_restart_too(gateway, upstream, key):
    first = gateway.post("/refunds", key=key, json=REFUND, headers={"Cookie": "session=alice"})
    gateway.restart()
    gateway.post("/refunds", key=key, json=REFUND, headers={"Cookie": "session=bob"}).refuses(403, NOT_AUTHORIZED)
    assert gateway.post("/refunds", key=key, json=REFUND, headers={"Cookie": "session=alice"}).body == first.body
    assert upstream.effects("/refunds") == 1


def test_log_names_the_option_that_helps(gateway, upstream, key):
    for name in ("alice", "bob"):
        gateway.post("/refunds", key=key, json=REFUND, headers={"Cookie": f"session={name}"})

    def refused():
        lines = [json.loads(line) for line in list(gateway.output) if line.startswith("{")]
        return [line for line in lines if line.get("error_code") == NOT_AUTHORIZED]
    line = eventually(refused, "the refusal's line")[0]
    assert "`principal`" in line["remedy"] and "cookie:NAME" in line["remedy"], line
    assert upstream.effects("/refunds") == 1


def test_natural_key_of_nobody_is_shared_only_where_the_route_says_so(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - {name: otp, match: POST /otp, key: {from: "{body:/phone}", shared: true}}
          - {name: sms, match: POST /sms, key: {from: "{body:/phone}"}}
        """)
    phone = {"phone": "+49 30 1"}
    first = gateway.post("/otp", json=phone, headers={"Cookie": "_ga=1"})
    again = gateway.post("/otp", json=phone, headers={"Cookie": "_ga=2"})
    assert (again.idempotency, again.body) == ("replayed", first.body)
    gateway.post("/sms", json=phone, headers={"Cookie": "_ga=1"}).refuses(401, "AUTH.principal_missing")
    assert (upstream.effects("/otp"), upstream.effects("/sms")) == (1, 0)


def on_host(host):
    return {"Host": host}


def test_one_key_on_two_hosts_is_a_mismatch(gateway, upstream, key):
    assert gateway.post("/refunds", key=key, json=REFUND, headers=on_host("one.test")).idempotency == "stored"
    problem = gateway.post("/refunds", key=key, json=REFUND, headers=on_host("two.test")).refuses(409, MISMATCH)
    assert problem["detail"].endswith("another host."), problem
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("spelled", ["ONE.test", "one.test:80", "One.Test:", "one.test:80"])
def test_a_host_is_the_same_however_it_is_spelled(gateway, upstream, key, spelled):
    first = gateway.post("/refunds", key=key, json=REFUND, headers=on_host("one.test"))
    again = gateway.post("/refunds", key=key, json=REFUND, headers=on_host(spelled))
    assert (again.idempotency, again.body) == ("replayed", first.body)
    gateway.post("/refunds", key=key, json=REFUND, headers=on_host("one.test:8080")).refuses(409, MISMATCH)
    assert upstream.effects("/refunds") == 1


def test_scope_host_gives_each_host_its_own_operations(start_gateway, upstream, key):
    gateway = start_gateway("""
        defaults: {scope: host}
        """)
    first, second = (gateway.post("/refunds", key=key, json=REFUND, headers=on_host(host))
                     for host in ("one.test", "two.test"))
    assert (first.idempotency, second.idempotency) == ("stored", "stored")
    assert gateway.post("/refunds", key=key, json=REFUND, headers=on_host("ONE.test:80")).body == first.body
    gateway.post("/refunds", key=key, json={"amount": 1}, headers=on_host("two.test")).refuses(409, MISMATCH)
    assert upstream.effects("/refunds") == 2


def test_natural_key_on_another_host_is_another_operation_where_the_scope_says_so(start_gateway, upstream):
    gateway = start_gateway("""
        defaults: {scope: host}
        routes:
          - {name: otp, match: POST /otp, key: {from: "{body:/phone}", shared: true}}
        """)
    for host, expected in (("one.test", "stored"), ("two.test", "stored"), ("one.test", "replayed")):
        assert gateway.post("/otp", json={"phone": "1"}, headers=on_host(host)).idempotency == expected
    assert upstream.effects("/otp") == 2


@pytest.mark.parametrize("headers, named", [
    ({"If-None-Match": "*"}, "preconditions"),
    ({"If-Unmodified-Since": "Thu, 19 Feb 2026 12:00:00 GMT"}, "preconditions"),
    ({"Content-Type": "application/json; charset=iso-8859-1"}, "media type"),
])
def test_what_else_counts_is_named(gateway, upstream, key, headers, named):
    upstream.on("/refunds", answer(201, "{}"))
    sent = {"Content-Type": "application/json"}
    assert gateway.post("/refunds", key=key, body=b"{}", headers=sent).idempotency == "stored"
    problem = gateway.post("/refunds", key=key, body=b"{}", headers={**sent, **headers}).refuses(409, MISMATCH)
    assert named in problem["detail"], problem
    assert upstream.effects("/refunds") == 1
