# SPDX-License-Identifier: Apache-2.0
"""What a route says about headers and keys: which of an answer's are not kept (`deny_headers`), which key the
application gets (`forward_key`), where the result's id is (`result`); and whose word counts on where a request came
from (`trusted_proxies`)."""
import re
import socket

import pytest

from harness import (Connection, answer, basic, drop_after_effect, fresh_key, numbered, quoted,
                     unix_socket_path)

DATE = ("Date", "Thu, 19 Feb 2026 12:00:00 GMT")


def names_of(response):
    return {name.lower() for name, _ in response.headers}


# deny_headers

DENY = """
    routes:
      - {name: login, match: POST /login, deny_headers: [X-Session-Token, x-trace, Date]}
    """
DENIED = [DATE, ("X-Session-Token", "secret"), ("X-Kept", "1"), ("X-TRACE", "a"), ("x-trace", "b"),
          ("Set-Cookie", "session=1")]


def test_denied_headers_go_to_the_first_client_only(start_gateway, upstream, key):
    gateway = start_gateway(DENY)
    upstream.on("/login", answer(200, "welcome", DENIED))
    first = gateway.post("/login", key=key, json={})
    second = gateway.post("/login", key=key, json={})
    assert first.header("X-Session-Token") == "secret"
    assert [value for name, value in first.headers if name.lower() == "x-trace"] == ["a", "b"]
    assert first.header("Date") == DATE[1]
    assert second.idempotency == "replayed"
    assert second.header("X-Kept") == "1"
    assert not {"x-session-token", "x-trace", "set-cookie"} & names_of(second)
    assert second.header("Date") != DATE[1]  # an answer has one (RFC 9110, 6.6.1): ours, of when it was stored
    assert upstream.effects("/login") == 1


def test_denied_headers_are_nowhere_in_the_store(start_gateway, upstream, key):
    gateway = start_gateway(DENY)
    upstream.on("/login", answer(200, "welcome", [("X-Session-Token", "cafe-5e55-1017")]))
    assert gateway.post("/login", key=key, json={}).header("X-Session-Token") == "cafe-5e55-1017"
    stored = b"".join(path.read_bytes() for path in gateway.store.rglob("*") if path.is_file())
    assert b"welcome" in stored
    assert b"cafe-5e55-1017" not in stored
    assert upstream.effects("/login") == 1


def test_denied_headers_go_to_no_waiter_and_survive_no_restart(start_gateway, upstream, key):
    gateway = start_gateway(DENY)
    upstream.on("/login", answer(200, "welcome", DENIED))
    with upstream.hold("/login"):
        everyone = gateway.post_together("/login", key=key, times=4)
    assert sum("x-session-token" in names_of(response) for response in everyone) == 1
    gateway.restart()
    assert "x-session-token" not in names_of(gateway.post("/login", key=key, json=None))
    assert upstream.effects("/login") == 1


def test_what_another_route_denies_is_kept(start_gateway, upstream, key):
    gateway = start_gateway(DENY)
    upstream.on("/refunds", answer(200, "", [("X-Session-Token", "1")]))
    gateway.post("/refunds", key=key, json={})
    assert gateway.post("/refunds", key=key, json={}).header("X-Session-Token") == "1"
    assert upstream.effects("/refunds") == 1


# forward_key

SCOPED = """
    routes:
      - {name: refunds, match: POST /refunds, forward_key: scoped}
      - {name: draft, match: POST /draft, forward_key: scoped, dialect: ietf}
      - name: asked
        match: POST /asked
        forward_key: scoped
        on_unknown: probe
        probe: {request: "GET /asked?key={key}", found: {status: 200, pointer: /id}, settle: 1ms}
    """


def test_scoped_key_is_one_of_the_operation(start_gateway, upstream, key):
    gateway = start_gateway(SCOPED)
    gateway.post("/refunds", key=key, json={}, auth=basic("ann", "1"))
    gateway.post("/refunds", key=key, json={}, auth=basic("bob", "2"))
    ann, bob = (request.header("Idempotency-Key") for request in upstream.received("/refunds"))
    assert ann != bob
    for scoped in (ann, bob):
        assert re.fullmatch("[0-9a-f]{32}", scoped) and key not in scoped
    operations = [request.header("Hapax-Operation").split(".")[0] for request in upstream.received("/refunds")]
    assert [ann, bob] == operations
    assert upstream.effects("/refunds") == 2


def test_scoped_key_is_the_same_on_every_attempt_and_spelling(start_gateway, upstream, key):
    gateway = start_gateway(SCOPED)
    upstream.on("/refunds", answer(403, effect=False))
    gateway.post("/refunds", key=key, json={})
    gateway.restart()
    upstream.on("/refunds", numbered)
    gateway.post("/refunds", key=quoted(key), json={})
    one, two = (request.all("Idempotency-Key") for request in upstream.received("/refunds"))
    assert len(one) == 1 and one == two
    assert upstream.effects("/refunds") == 1


def test_scoped_key_is_a_string_where_the_dialect_wants_one(start_gateway, upstream, key):
    gateway = start_gateway(SCOPED)
    gateway.post("/draft", key=quoted(key), json={})
    assert re.fullmatch('"[0-9a-f]{32}"', upstream.last().header("Idempotency-Key"))
    assert upstream.effects("/draft") == 1


def test_probe_asks_by_the_key_that_the_application_got(start_gateway, upstream, key):
    gateway = start_gateway(SCOPED)

    def application(exchange):
        exchange.read_body()
        if exchange.request.method == "GET":
            exchange.answer(200, {"id": "rf_7"}, [("Content-Type", "application/json")])
        else:
            exchange.execute()
            exchange.close()

    upstream.on("/asked", application)
    assert gateway.post("/asked", key=key, json={}).status == 502
    found = gateway.post("/asked", key=key, json={})
    sent, asked = upstream.received("/asked")
    assert (found.status, found.json()) == (200, {"id": "rf_7"})
    assert asked.query == "key=" + sent.header("Idempotency-Key")
    assert upstream.effects("/asked") == 1


def test_key_goes_up_as_it_came_by_default(gateway, upstream, key):
    gateway.post("/refunds", key=quoted(key) + ";v=1", json={})
    assert upstream.last().header("Idempotency-Key") == quoted(key) + ";v=1"
    assert upstream.effects("/refunds") == 1


# result

RESULT = """
    routes:
      - {name: refunds, match: POST /refunds, result: /data/id}
    """


@pytest.mark.parametrize("body, found", [
    ({"data": {"id": "rf_1"}}, "rf_1"), ({"data": {"id": 12345678901234567890}}, "12345678901234567890"),
    ({"data": {}}, None), ({"data": {"id": None}}, None),
    ({"data": {"id": {"a": 1}}}, None), ({"data": {"id": ""}}, None), ({"data": {"id": "x" * 256}}, None),
    ({"data": {"id": "two\nlines"}}, None), ("not json", None), ("", None)])
def test_result_is_in_the_log_of_the_first_request_and_of_a_replay(start_gateway, upstream, key, body, found):
    gateway = start_gateway(RESULT)
    upstream.on("/refunds", answer(201, body, [("Content-Type", "application/json")]))
    gateway.post("/refunds", key=key, json={})
    gateway.post("/refunds", key=key, json={})
    lines = gateway.wait_events("request", 2)
    assert [line.get("result_id") for line in lines] == [found, found]
    assert [line["result"] for line in lines] == ["stored", "replayed"]
    assert upstream.effects("/refunds") == 1


def test_result_survives_a_restart(start_gateway, upstream, key):
    gateway = start_gateway(RESULT)
    upstream.on("/refunds", answer(201, {"data": {"id": "rf_9"}}))
    gateway.post("/refunds", key=key, json={})
    gateway.wait_events("request", 1)
    gateway.restart()
    gateway.post("/refunds", key=key, json={})
    assert [line.get("result_id") for line in gateway.wait_events("request", 2)] == ["rf_9", "rf_9"]
    assert upstream.effects("/refunds") == 1


def test_what_was_released_or_is_unknown_has_no_result(start_gateway, upstream, key):
    gateway = start_gateway(RESULT)
    upstream.on("/refunds", answer(403, {"data": {"id": "rf_1"}}, effect=False))
    gateway.post("/refunds", key=key, json={})
    upstream.on("/refunds", drop_after_effect())
    gateway.post("/refunds", key=key, json={})
    assert [line.get("result_id") for line in gateway.wait_events("request", 2)] == [None, None]
    assert upstream.effects("/refunds") == 1


# trusted_proxies

CLAIMS = [("Forwarded", "for=203.0.113.9;proto=https"), ("Forwarded", 'for="[2001:db8::1]"'),
          ("X-Forwarded-For", "203.0.113.9, 10.1.1.1"), ("X-Forwarded-Host", "shop.example"),
          ("X-Forwarded-Proto", "https"), ("X-Forwarded-Port", "443"), ("X-Forwarded-Prefix", "/api")]


def trusting(*networks):
    return "trusted_proxies: [" + ", ".join(f'"{network}"' for network in networks) + "]\n"


@pytest.mark.parametrize("network", ["127.0.0.1", "127.0.0.0/8", "127.0.0.0/31", "::ffff:127.0.0.1", "64.0.0.0/2"])
@pytest.mark.parametrize("keyed", [True, False])
def test_word_of_a_trusted_proxy_is_kept_and_ours_added(start_gateway, upstream, network, keyed):
    gateway = start_gateway(trusting("192.0.2.0/24", network))
    gateway.post("/refunds", key=fresh_key() if keyed else None, json={}, headers=[("Host", "inner"), *CLAIMS])
    seen = upstream.last()
    assert seen.header("X-Forwarded-For") == "203.0.113.9, 10.1.1.1, 127.0.0.1"
    assert seen.header("Forwarded") == ('for=203.0.113.9;proto=https, for="[2001:db8::1]", '
                                        'for=127.0.0.1;host="inner";proto=http')
    assert seen.header("X-Forwarded-Host") == "shop.example"
    assert seen.header("X-Forwarded-Proto") == "https"
    assert seen.header("X-Forwarded-Port") == "443"
    assert seen.header("X-Forwarded-Prefix") == "/api"
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("networks", [(), ("10.0.0.0/8",), ("127.0.0.2",), ("128.0.0.0/1",), ("126.0.0.0/8",), ("::1",),
                                      ("::7f00:1",), ("127.128.0.0/9",), ("127.0.0.4/30",)])
@pytest.mark.parametrize("keyed", [True, False])
def test_word_of_anybody_else_counts_for_nothing(start_gateway, upstream, networks, keyed):
    gateway = start_gateway(trusting(*networks))
    gateway.post("/refunds", key=fresh_key() if keyed else None, json={}, headers=[("Host", "inner"), *CLAIMS])
    seen = upstream.last()
    assert seen.header("X-Forwarded-For") == "127.0.0.1"
    assert seen.header("Forwarded") == 'for=127.0.0.1;host="inner";proto=http'
    assert (seen.header("X-Forwarded-Host"), seen.header("X-Forwarded-Proto")) == ("inner", "http")
    assert (seen.header("X-Forwarded-Port"), seen.header("X-Forwarded-Prefix")) == (None, None)
    assert upstream.effects("/refunds") == 1


def test_trusted_proxy_that_says_nothing_is_spoken_for(start_gateway, upstream, key):
    gateway = start_gateway(trusting("127.0.0.0/8"))
    gateway.post("/refunds", key=key, json={}, headers={"Host": "inner"})
    seen = upstream.last()
    assert seen.header("X-Forwarded-For") == "127.0.0.1"
    assert (seen.header("X-Forwarded-Host"), seen.header("X-Forwarded-Proto")) == ("inner", "http")
    assert upstream.effects("/refunds") == 1


def test_address_in_a_header_makes_nobody_trusted(start_gateway, upstream, key):
    """What is compared is the address of the connection, never one that the client wrote down."""
    gateway = start_gateway(trusting("203.0.113.0/24", "10.0.0.0/8"))
    gateway.post("/refunds", key=key, json={}, headers=CLAIMS)
    assert upstream.last().header("X-Forwarded-For") == "127.0.0.1"
    assert upstream.effects("/refunds") == 1


def test_trusted_proxy_over_ipv6(start_gateway, upstream, key):
    gateway = start_gateway(trusting("::1"), listen="[::1]:0")
    gateway.post("/refunds", key=key, json={}, headers=CLAIMS)
    assert upstream.last().header("X-Forwarded-For") == "203.0.113.9, 10.1.1.1, ::1"
    assert upstream.last().header("Forwarded").endswith('proto=http') and 'for="[::1]"' in upstream.last().header(
        "Forwarded")
    assert upstream.effects("/refunds") == 1


def test_client_on_a_unix_socket_is_no_trusted_proxy(start_gateway, upstream, key):
    path = unix_socket_path()
    start_gateway(trusting("0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"), flags=["--listen", f"unix:{path}"])
    with Connection(path, socket.AF_UNIX) as connection:
        head = [("Idempotency-Key", key), *CLAIMS]
        assert connection.request("POST", "/refunds", head, b"").status == 201
    assert upstream.last().header("X-Forwarded-For") == "unknown"
    assert upstream.effects("/refunds") == 1


def test_operation_is_the_same_through_any_proxy(start_gateway, upstream, key):
    """Where a request came from is no part of what it asks."""
    gateway = start_gateway(trusting("127.0.0.0/8"))
    first = gateway.post("/refunds", key=key, json={}, headers={"X-Forwarded-For": "203.0.113.9"})
    second = gateway.post("/refunds", key=key, json={}, headers={"X-Forwarded-For": "203.0.113.10"})
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert upstream.effects("/refunds") == 1
