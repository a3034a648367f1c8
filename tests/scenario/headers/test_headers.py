# SPDX-License-Identifier: Apache-2.0
"""Headers: what a replay keeps, what the gateway adds for the client, and what it tells the upstream."""
import datetime
import re
import socket

import pytest

from harness import Connection, answer, answer_raw, numbered, quoted, unix_socket_path

OURS = {"idempotency-status", "idempotent-replayed", "original-request-time", "idempotency-expires", "error-code",
        "x-correlation-id", "traceparent", "age", "connection", "keep-alive", "content-length", "transfer-encoding"}
DATE = ("Date", "Thu, 19 Feb 2026 12:00:00 GMT")
EXACT = [
    ("date", "Thu, 19 Feb 2026 12:00:00 GMT"), ("X-Second", "2"), ("x-first", "1"), ("X-DUPLICATE", "b"),
    ("Location", "/refunds/rf_1"), ("x-duplicate", "a"), ("ETag", 'W/"v1"'), ("Content-Type", "text/plain; charset=x"),
    ("X-Empty", ""), ("X-Inner", "two  spaces,\tand a tab"), ("X-Latin", "caf\xe9"), ("Link", "</a>; rel=self"),
    ("Link", "</b>; rel=next"), ("Vary", "Accept"), ("Cache-Control", "no-store"),
    ("WWW-Authenticate", 'Basic realm="a"'),
]


def end_to_end(response):
    """What the application sent. Where it leaves Date out the gateway adds one (RFC 9110, 6.6.1)."""
    return [(name, value) for name, value in response.headers if name.lower() not in OURS]


def moment(text):
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", text), text
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_headers_are_replayed_in_order_and_to_the_byte(gateway, upstream, key):
    upstream.on("/refunds", answer(201, "body", EXACT))
    first = gateway.post("/refunds", key=key, json={})
    second = gateway.post("/refunds", key=key, json={})
    assert end_to_end(first) == EXACT
    assert end_to_end(second) == EXACT
    assert first.body == second.body == b"body"
    assert upstream.effects("/refunds") == 1


def test_headers_are_replayed_exactly_after_a_restart(gateway, upstream, key):
    upstream.on("/refunds", answer(201, b"\0\xff\r\n body", EXACT))
    first = gateway.post("/refunds", key=key, json={})
    gateway.restart()
    second = gateway.post("/refunds", key=key, json={})
    assert end_to_end(second) == EXACT
    assert first.body == second.body == b"\0\xff\r\n body"
    assert upstream.effects("/refunds") == 1


def test_cookies_go_to_the_first_client_only(gateway, upstream, key):
    cookies = [DATE, ("Set-Cookie", "session=1; HttpOnly"), ("X-Between", "yes"), ("set-cookie", "theme=dark")]
    upstream.on("/login", answer(200, "welcome", cookies))
    first = gateway.post("/login", key=key, json={})
    second = gateway.post("/login", key=key, json={})
    assert end_to_end(first) == cookies
    assert end_to_end(second) == [DATE, ("X-Between", "yes")]
    assert upstream.effects("/login") == 1


def test_cookies_go_to_no_waiter(gateway, upstream, key):
    upstream.on("/login", answer(200, "welcome", [("Set-Cookie", "session=1")]))
    with upstream.hold("/login"):
        everyone = gateway.post_together("/login", key=key, times=5)
    assert sum(len(response.all("Set-Cookie")) for response in everyone) == 1
    assert upstream.effects("/login") == 1


def test_hop_by_hop_headers_are_dropped(gateway, upstream, key):
    hops = [("Connection", "keep-alive, X-Private"), ("X-Private", "for you only"), ("Keep-Alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"), DATE, ("Trailer", "X-Sum"), ("Upgrade", "h2c")]
    upstream.on("*", answer(200, "ok", hops))
    responses = [gateway.post("/refunds", key=key, json={}), gateway.post("/refunds", key=key, json={}),
                 gateway.get("/refunds")]
    for response in responses:
        assert end_to_end(response) == [DATE], response
    assert len(upstream.received()) == 2


def test_first_answer_says_stored_and_until_when(gateway, upstream, key):
    before = datetime.datetime.now(datetime.timezone.utc)
    first = gateway.post("/refunds", key=key, json={})
    assert first.idempotency == "stored"
    assert first.header("Idempotent-Replayed") is None
    assert first.header("Error-Code") is None
    day = datetime.timedelta(hours=24)
    slack = datetime.timedelta(minutes=2)
    assert before + day - slack < moment(first.header("Idempotency-Expires")) < before + day + slack
    assert upstream.effects("/refunds") == 1


def test_replay_says_that_it_is_one(gateway, upstream, key):
    before = datetime.datetime.now(datetime.timezone.utc)
    first = gateway.post("/refunds", key=key, json={})
    replay = gateway.post("/refunds", key=key, json={})
    assert replay.idempotency == "replayed"
    assert replay.header("Idempotent-Replayed") == "true"
    slack = datetime.timedelta(minutes=2)
    assert before - slack < moment(replay.header("Original-Request-Time")) < before + slack
    assert replay.header("Idempotency-Expires") == first.header("Idempotency-Expires")
    assert replay.header("Age").isdigit()
    assert replay.header("Date") == first.header("Date") == "Thu, 19 Feb 2026 12:00:00 GMT"
    assert upstream.effects("/refunds") == 1


def test_age_is_added_to_what_the_upstream_said(gateway, upstream, key):
    upstream.on("/refunds", answer(201, "", [("Age", "1000")]))
    assert gateway.post("/refunds", key=key, json={}).header("Age") == "1000"
    assert 1000 <= int(gateway.post("/refunds", key=key, json={}).header("Age")) < 1100
    assert upstream.effects("/refunds") == 1


def test_our_names_from_the_upstream_are_replaced(gateway, upstream, key):
    lies = [("Idempotency-Status", "replayed"), ("Idempotent-Replayed", "true"), ("Error-Code", "LIE"),
            ("Original-Request-Time", "never"), ("Idempotency-Expires", "never"), ("Hapax-Anything", "x")]
    upstream.on("*", answer(200, "", lies))
    first = gateway.post("/refunds", key=key, json={})
    second = gateway.post("/refunds", key=key, json={})
    assert first.all("Idempotency-Status") == ["stored"]
    assert second.all("Idempotency-Status") == ["replayed"]
    for response in (first, second):
        assert response.all("Error-Code") == []
        assert "never" not in response.all("Original-Request-Time") + response.all("Idempotency-Expires")
    assert first.all("Idempotent-Replayed") == []
    assert upstream.effects("/refunds") == 1


def test_error_of_ours_carries_its_code_in_a_header(gateway, upstream):
    response = gateway.post("/refunds", key="short", json={})
    assert response.header("Error-Code") == "VALIDATION.idempotency_key_invalid"
    assert response.problem()["type"].startswith("http")
    assert upstream.requests == []


def test_upstream_learns_the_attempt_and_the_operation(gateway, upstream, key):
    gateway.post("/refunds", key=quoted(key), json={})
    seen = upstream.last()
    assert seen.header("Idempotency-Key") == quoted(key)
    assert seen.header("Hapax-Attempt") == "1"
    assert re.fullmatch(r"[0-9A-Za-z_-]+\.[0-9]+", seen.header("Hapax-Operation"))
    assert upstream.effects("/refunds") == 1


def test_operation_keeps_its_id_and_gets_a_new_epoch_after_a_release(gateway, upstream, key):
    upstream.on("/refunds", answer(403, effect=False))
    gateway.post("/refunds", key=key, json={})
    upstream.on("/refunds", numbered)
    gateway.post("/refunds", key=key, json={})
    (one, first), (two, second) = (request.header("Hapax-Operation").split(".") for request in upstream.received())
    assert one == two
    assert int(first) < int(second)
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("method, keyed", [("POST", True), ("POST", False), ("GET", False)])
def test_our_headers_from_a_client_never_reach_the_upstream(gateway, upstream, key, method, keyed):
    lies = [("Hapax-Operation", "forged.1"), ("hapax-attempt", "99"), ("Hapax-Outcome", "release"), ("Hapax-X", "y")]
    gateway.request(method, "/refunds", key=key if keyed else None, headers=lies)
    values = {value for name, value in upstream.last().headers if name.lower().startswith("hapax-")}
    assert not values & {"forged.1", "99", "release", "y"}
    assert len(upstream.received("/refunds")) == 1


def test_our_headers_are_removed_on_a_route_that_passes(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - {name: refresh, match: POST /refresh, mode: pass, because: harmless}
        """)
    gateway.post("/refresh", key=key, json={}, headers={"Hapax-Operation": "forged.1"})
    assert "forged.1" not in upstream.last().all("Hapax-Operation")
    assert upstream.effects("/refresh") == 1


def test_keyed_request_asks_for_an_answer_that_fits_everybody(gateway, upstream, key):
    wishes = {"Accept-Encoding": "br, gzip", "Range": "bytes=0-1", "If-Range": '"v1"', "Accept": "text/plain"}
    gateway.post("/refunds", key=key, json={}, headers=wishes)
    keyed = upstream.last()
    assert keyed.header("Accept-Encoding") == "identity"
    assert keyed.header("Range") is None
    assert keyed.header("If-Range") is None
    assert keyed.header("Accept") == "text/plain"

    gateway.get("/refunds", headers=wishes)
    plain = upstream.last()
    assert plain.header("Accept-Encoding") == "br, gzip"
    assert plain.header("Range") == "bytes=0-1"
    assert upstream.effects("/refunds") == 1


def test_hop_by_hop_headers_of_a_client_stay_here(gateway, upstream, key):
    hops = [("Connection", "X-Private"), ("X-Private", "1"), ("TE", "trailers"), ("Proxy-Authorization", "Basic eA=="),
            ("Keep-Alive", "timeout=5"), ("X-Public", "yes")]
    gateway.post("/refunds", key=key, json={}, headers=hops)
    seen = upstream.last()
    assert seen.header("X-Public") == "yes"
    for name in ("X-Private", "TE", "Keep-Alive"):
        assert seen.header(name) is None, name
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("method, keyed", [("POST", True), ("GET", False)])
def test_upstream_learns_where_the_request_came_from(gateway, upstream, key, method, keyed):
    lies = {"Host": "shop.example", "Forwarded": "for=6.6.6.6", "X-Forwarded-For": "6.6.6.6",
            "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "X-Forwarded-Port": "666",
            "x-forwarded-prefix": "/evil"}
    gateway.request(method, "/refunds", key=key if keyed else None, headers=lies)
    seen = upstream.last()
    assert seen.header("Host") == "shop.example"
    assert seen.header("X-Forwarded-For") == "127.0.0.1"
    assert seen.header("X-Forwarded-Proto") == "http"
    assert seen.header("X-Forwarded-Host") == "shop.example"
    assert (seen.header("X-Forwarded-Port"), seen.header("X-Forwarded-Prefix")) == (None, None)
    forwarded = seen.header("Forwarded")
    assert "6.6.6.6" not in forwarded
    assert re.search(r'for="?127\.0\.0\.1', forwarded, re.I), forwarded
    assert len(upstream.received("/refunds")) == 1


def test_client_on_a_unix_socket_has_no_address_to_forward(start_gateway, upstream, key):
    path = unix_socket_path()
    start_gateway(flags=["--listen", f"unix:{path}"])
    with Connection(path, socket.AF_UNIX) as connection:
        assert connection.request("POST", "/refunds", {"Idempotency-Key": key}, b"").status == 201
    assert upstream.last().header("Forwarded").startswith("for=unknown;")
    assert upstream.last().header("X-Forwarded-For") == "unknown"
    assert upstream.effects("/refunds") == 1


def test_correlation_id_with_quotes_does_not_break_a_problem(gateway, upstream, key):
    gateway.post("/refunds", key=key, body=b"1")
    wild = 'a"b\\c","status":200,"x":"'
    response = gateway.post("/refunds", key=key, body=b"2", headers={"X-Correlation-Id": wild})
    problem = response.refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert problem["instance"] == f"urn:hapax:request:{wild}"
    assert response.header("X-Correlation-Id") == wild
    assert upstream.effects("/refunds") == 1


def test_trace_of_the_client_is_continued(gateway, upstream, key):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    gateway.post("/refunds", key=key, json={}, headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    assert re.fullmatch(rf"00-{trace}-[0-9a-f]{{16}}-01", upstream.last().header("traceparent"))
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("bad", [None, "nonsense", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                                 "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                                 "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                                 "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-<x",
                                 "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0A",
                                 "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0\t",
                                 "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                                 "zz-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                                 "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"])
def test_trace_begins_here_where_the_client_has_none(gateway, upstream, key, bad):
    response = gateway.post("/refunds", key=key, json={}, headers={"traceparent": bad} if bad else {})
    seen = upstream.last()
    match = re.fullmatch(r"00-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}", seen.header("traceparent"))
    assert match and set(match[1]) != {"0"}, seen.headers
    assert seen.header("traceparent") != bad
    assert seen.header("X-Correlation-Id") == match[1] == response.header("X-Correlation-Id")
    assert upstream.effects("/refunds") == 1


def test_correlation_id_of_the_client_goes_both_ways(gateway, upstream, key):
    first = gateway.post("/refunds", key=key, json={}, headers={"X-Correlation-Id": "order-17"})
    assert upstream.last().header("X-Correlation-Id") == "order-17"
    assert first.header("X-Correlation-Id") == "order-17"
    replay = gateway.post("/refunds", key=key, json={}, headers={"X-Correlation-Id": "order-17-again"})
    assert replay.header("X-Correlation-Id") == "order-17-again"
    assert upstream.effects("/refunds") == 1


def test_correlation_id_goes_both_ways_without_a_key(gateway, upstream):
    response = gateway.get("/thing", headers={"X-Correlation-Id": "order-18"})
    assert upstream.last().header("X-Correlation-Id") == "order-18"
    assert response.header("X-Correlation-Id") == "order-18"
    invented = gateway.get("/thing").header("X-Correlation-Id")
    assert invented == upstream.last().header("X-Correlation-Id")
    assert upstream.effects() == 0


def test_what_is_left_of_the_budget_goes_upstream(gateway, upstream, key):
    gateway.post("/refunds", key=key, json={}, headers={"X-Request-Timeout": "30s"})
    left = upstream.last().header("X-Request-Timeout")
    number, unit = re.fullmatch(r"(\d+)(ms|s|)", left).groups()
    milliseconds = int(number) * (1000 if unit == "s" else 1)
    assert 1000 < milliseconds <= 30000
    assert upstream.effects("/refunds") == 1


def test_bare_answer_is_replayed_without_invented_headers(gateway, upstream, key):
    upstream.on("/refunds", answer_raw(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok", then=None))
    first = gateway.post("/refunds", key=key, json={})
    second = gateway.post("/refunds", key=key, json={})
    assert [name for name, _ in end_to_end(first)] in ([], ["Date"])
    assert end_to_end(first) == end_to_end(second)
    assert upstream.effects("/refunds") == 1


def as_variables(request):
    """A request's headers as CGI, WSGI and PHP name them."""
    return [re.sub("[^A-Z0-9]", "_", name.upper()) for name, _ in request.headers]


OWN = ["Transfer-Encoding", "Content-Length", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "HTTP2-Settings",
       "Content-Type", "Content-Encoding", "If-Match", "Idempotency-Key", "Hapax-Operation", "Hapax-Attempt",
       "Hapax-Anything", "X-Forwarded-For", "X-Forwarded-Prefix", "X-Request-Timeout", "X-Correlation-Id", "X-Api-Key"]


@pytest.mark.parametrize("method, keyed", [("POST", True), ("POST", False), ("GET", False)])
@pytest.mark.parametrize("other", ["_", ".", "!", "~"])
def test_other_spellings_of_headers_that_count_go_no_further(gateway, upstream, key, method, keyed, other):
    """Many applications can't tell `Content_Length` from `Content-Length`; Hapax did not go by it."""
    forged = [(name.replace("-", other), "666") for name in OWN] + [("client_id", "7"), ("X_Plain", "8")]
    plain = {"Content-Type": "application/json"}
    answer_ = gateway.request(method, "/refunds", key=key if keyed else None, body=b"{}",
                              headers=[*plain.items(), *forged])
    assert answer_.status in (200, 201)
    seen = upstream.last()
    assert "666" not in [value for _, value in seen.headers]
    assert len(set(as_variables(seen))) == len(seen.headers)
    assert (seen.header("client_id"), seen.header("X_Plain")) == ("7", "8")  # these are nobody else's
    assert upstream.effects("/refunds") == (method == "POST")


def test_another_spelling_of_a_header_that_the_route_goes_by_goes_no_further(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            principal: ["header:X-User"]
            fingerprint: {headers: [X-Currency]}
          - name: orders
            match: POST /orders
            key: {from: "{header:X-Order}"}
            principal: ["header:X-User"]
          - name: odd
            match: POST /odd
            principal: ["header:x_user"]
        """)
    forged = {"X_User": "eve", "X_Currency": "JPY", "X_Order": "2", "X_Free": "kept"}
    given = {"X-User": "ann", "X-Currency": "USD", "X-Order": "1"}
    for path, seen_too in (("/refunds", {"X_Order": "2"}), ("/orders", {"X_Currency": "JPY"})):
        assert gateway.post(path, key=key, json={}, headers={**forged, **given}).status == 201
        last = upstream.last()
        assert {name: last.header(name) for name in given} == given
        assert {name: last.header(name) for name in forged if last.header(name)} == {"X_Free": "kept", **seen_too}
    assert gateway.post("/odd", key=key, json={}, headers={"x_user": "ann", "X.User": "eve"}).status == 201
    assert upstream.last().header("x_user") == "ann" and upstream.last().header("X.User") is None
    assert upstream.effects() == 3


def test_state_of_a_trace_goes_with_its_trace(gateway, upstream):
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    gateway.get("/thing", headers={"traceparent": trace, "tracestate": "vendor=1"})
    assert upstream.last().header("tracestate") == "vendor=1"
    for headers in ({"traceparent": trace[:-2] + "xx"}, {}):
        gateway.get("/thing", headers={**headers, "tracestate": "vendor=1"})
        assert upstream.last().header("tracestate") is None
    assert upstream.effects() == 0
