# SPDX-License-Identifier: Apache-2.0
"""`mode: shadow`: every request goes to the application, exactly once and as it came, and its answer back as it came;
a header, a count and the log say what protecting it would have done."""
import signal
import socket

import pytest

from harness import (Connection, SlowDisk, answer, basic, chunk, drop_after_effect, eventually, fill, fresh_key,
                     numbered, request_bytes, sink)

SHADOW = """
    routes:
      - {name: refunds, match: POST /refunds, mode: shadow, body_max: 1KiB}
      - {name: draft, match: POST /draft, mode: shadow, dialect: ietf}
      - {name: once, match: POST /once, mode: shadow, on_duplicate: reject}
      - {name: noop, match: POST /noop, mode: shadow, on_duplicate: noop}
      - {name: small, match: POST /small, mode: shadow, answer_max: 10B}
      - {name: named, match: POST /named, mode: shadow, require_principal: true}
      - {name: sure, match: POST /sure, mode: shadow, guarantee: idempotent}
      - {name: vouched, match: POST /vouched, mode: shadow, authorize: GET /auth/check}
      - {name: protected, match: POST /protected}
    """


@pytest.fixture
def gateway(start_gateway):
    return start_gateway(SHADOW)


def report(response):
    return response.header("Hapax-Shadow")


def refused(code):
    return f"would-refuse; error_code={code}"


def settled(gateway, count):
    """The log line of a request is written when all of it is over, its record too."""
    return gateway.wait_events("request", count)


def post(gateway, target, **what):
    """Sends, and returns once the outcome is recorded, so that the next request finds it."""
    before = len(gateway.events("request"))
    response = gateway.post(target, **what)
    settled(gateway, before + 1)
    return response


def states(gateway):
    with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
        return [row["state"] for row in connection.request("GET", "/v1/operations").json()["operations"]]


def test_duplicate_is_executed_again_and_reported(gateway, upstream, key):
    first = post(gateway, "/refunds", key=key, json={"amount": 1})
    second = post(gateway, "/refunds", key=key, json={"amount": 1})
    assert (first.status, report(first)) == (201, "would-forward")
    assert (second.status, report(second)) == (201, "would-replay")
    assert first.json() == {"id": "rf_1", "effect": 1}
    assert second.json() == {"id": "rf_2", "effect": 2}
    for response in (first, second):
        assert response.idempotency is None
        assert response.header("Idempotent-Replayed") is None
    assert upstream.effects("/refunds") == 2


def test_application_sees_what_the_client_sent(gateway, upstream, key):
    wishes = [("Accept-Encoding", "gzip"), ("Range", "bytes=0-1"), ("X-Request-Timeout", "5s"), ("Cookie", "a=b")]
    gateway.post("/refunds", key=f'"{key}";v=1', body=b"  {}", headers=wishes)
    seen = upstream.last()
    assert seen.header("Idempotency-Key") == f'"{key}";v=1'
    assert [(name, value) for name, value in seen.headers if name in dict(wishes)] == wishes
    assert seen.all("Hapax-Operation") == seen.all("Hapax-Attempt") == []
    assert seen.body == b"  {}"
    assert upstream.effects("/refunds") == 1


def test_client_gets_what_the_application_answered(gateway, upstream, key):
    headers = [("Date", "Thu, 19 Feb 2026 12:00:00 GMT"), ("Set-Cookie", "a=1"), ("Content-Encoding", "gzip"),
               ("X-Empty", "")]
    upstream.on("/refunds", answer(200, b"\x1f\x8b\0\xff", headers))
    for _ in range(2):
        response = post(gateway, "/refunds", key=key, json={})
        assert [pair for pair in response.headers if pair[0] in dict(headers)] == headers
        assert response.body == b"\x1f\x8b\0\xff"
    assert upstream.effects("/refunds") == 2


def test_other_payload_goes_through(gateway, upstream, key):
    post(gateway, "/refunds", key=key, json={"amount": 1})
    post(gateway, "/draft", key=key, json={"amount": 1})
    assert report(post(gateway, "/refunds", key=key, json={"amount": 2})) == refused(
        "CONFLICT.idempotency.payload_mismatch")
    assert report(post(gateway, "/draft", key=key, json={"amount": 2})) == refused(
        "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects() == 4


@pytest.mark.parametrize("headers, code", [
    ([], "VALIDATION.idempotency_key_missing"),
    ([("Idempotency-Key", "short")], "VALIDATION.idempotency_key_invalid"),
    ([("Idempotency-Key", '"unbalanced-0123456789')], "VALIDATION.idempotency_key_invalid"),
    ([("Idempotency-Key", "a" * 20), ("Authorization", "Basic YTpi"), ("Authorization", "Basic YzpkCg==")],
     "VALIDATION.request_malformed")])
def test_request_that_would_be_refused_goes_through(gateway, upstream, headers, code):
    for _ in range(2):
        response = gateway.post("/refunds", json={"amount": 1}, headers=headers)
        assert (response.status, report(response)) == (201, refused(code))
        assert response.all("Error-Code") == []
        assert upstream.last().body == b'{"amount": 1}' or upstream.last().body == b'{"amount":1}'
    assert upstream.effects("/refunds") == 2


def test_request_with_two_keys_goes_through_as_it_came(gateway, upstream):
    upstream.on("/refunds", answer(200, "both", effect=False))
    keys = [("Idempotency-Key", "a" * 20), ("Idempotency-Key", "b" * 20)]
    response = gateway.post("/refunds", json={}, headers=keys)
    assert (response.status, report(response)) == (200, refused("VALIDATION.idempotency_key_invalid"))
    assert upstream.last().all("Idempotency-Key") == ["a" * 20, "b" * 20]
    assert len(upstream.received("/refunds")) == 1


def test_connection_lives_on_after_what_would_be_refused(gateway, upstream):
    with gateway.connect() as connection:
        for _ in range(3):
            assert connection.request("POST", "/refunds", {"Idempotency-Key": "short"}, b"1").status == 201
    assert upstream.effects("/refunds") == 3


def test_nobody_goes_through_where_somebody_is_asked_for(gateway, upstream, key):
    assert report(post(gateway, "/named", key=key, json={})) == refused("AUTH.principal_missing")
    assert report(post(gateway, "/named", key=key, json={}, auth=basic("ann", "1"))) == "would-forward"
    assert report(post(gateway, "/named", key=key, json={}, auth=basic("ann", "2"))) == refused(
        "AUTH.replay_not_authorized")
    assert upstream.effects("/named") == 3


@pytest.mark.parametrize("target, said", [("/refunds", "would-wait"),
                                          ("/draft", refused("CONFLICT.idempotency.in_flight"))])
def test_request_in_flight_holds_up_nobody(gateway, upstream, key, target, said):
    with upstream.hold(target):
        pending = [gateway.post_later(target, key=key, json={}) for _ in range(3)]
        eventually(lambda: upstream.effects(target) == 3, "all of them at the application at once")
    assert sorted(report(response) for response in pending) == sorted(["would-forward", said, said])
    assert upstream.effects(target) == 3


def test_ways_to_treat_duplicates_are_told_apart(gateway, upstream, key):
    for target, said in (("/once", refused("CONFLICT.idempotency.duplicate_rejected")), ("/noop", "would-replay"),
                         ("/small", refused("CONFLICT.idempotency.response_not_retained"))):
        assert report(post(gateway, target, key=key, json={})) == "would-forward"
        second = post(gateway, target, key=key, json={})
        assert (second.status, report(second)) == (201, said)
        assert upstream.effects(target) == 2


@pytest.mark.parametrize("target, said", [("/refunds", refused("AUTH.replay_not_authorized")),
                                          ("/vouched", "would-ask")])
def test_another_credential_of_the_caller_would_not_be_shown_the_answer(gateway, upstream, key, target, said):
    assert report(post(gateway, target, key=key, json={}, auth=basic("alice", "one"))) == "would-forward"
    for json in ({}, {"amount": 2}):  # nor told that the payloads differ
        assert report(post(gateway, target, key=key, json=json, auth=basic("alice", "two"))) == said
    assert report(post(gateway, target, key=key, json={}, auth=basic("alice", "one"))) == "would-replay"
    assert upstream.received("/auth/check") == []
    assert upstream.effects(target) == 4


def test_failed_outcome_would_be_replayed_and_a_released_one_forwarded(gateway, upstream, key):
    upstream.on("/refunds", answer(500, "oops"))
    assert report(post(gateway, "/refunds", key=key, json={})) == "would-forward"
    assert report(post(gateway, "/refunds", key=key, json={})) == "would-replay"
    upstream.on("/refunds", answer(403, "no"))
    other = fresh_key()
    for _ in range(3):
        response = post(gateway, "/refunds", key=other, json={})
        assert (response.status, report(response)) == (403, "would-forward")
    assert upstream.effects("/refunds") == 5


def test_word_of_the_application_counts_here_too(gateway, upstream, key):
    upstream.on("/refunds", answer(422, "no", [("Hapax-Outcome", "release")]))
    for _ in range(2):
        response = post(gateway, "/refunds", key=key, json={})
        assert report(response) == "would-forward"
        assert response.all("Hapax-Outcome") == []
    assert upstream.effects("/refunds") == 2


def test_broken_answer_would_make_it_unknown(gateway, upstream, key):
    for target, said in (("/refunds", refused("CONFLICT.idempotency.outcome_unknown")), ("/sure", "would-forward")):
        upstream.on(target, drop_after_effect())
        first = post(gateway, target, key=key, json={})
        assert (first.status, report(first)) == (502, "would-forward")
        upstream.on(target, numbered)
        second = post(gateway, target, key=key, json={})
        assert (second.status, report(second)) == (201, said)
        assert upstream.effects(target) == 2


def test_nothing_is_sent_twice(start_gateway, upstream, key):
    """Not even where protecting it would retry."""
    gateway = start_gateway("""
        routes:
          - match: PUT,POST /refunds
            mode: shadow
            guarantee: idempotent
            retry_safe: true
        """)
    for method in ("POST", "PUT"):
        upstream.on("/refunds", answer(503, "busy", [("Retry-After", "0")]))
        assert gateway.request(method, "/refunds", key=fresh_key(), body=b"1").status == 503
        upstream.on("/refunds", drop_after_effect(reset=True))
        assert gateway.request(method, "/refunds", key=fresh_key(), body=b"1").status == 502
    assert upstream.effects("/refunds") == len(upstream.received("/refunds")) == 4


def test_application_that_is_away_leaves_the_key_free(start_gateway, start_upstream, upstream, key):
    away = start_upstream(listening=False)
    gateway = start_gateway(SHADOW, upstream=away)
    for _ in range(2):
        response = post(gateway, "/refunds", key=key, json={})
        assert (response.status, report(response)) == (502, "would-forward")
    assert away.requests == upstream.requests == []


def test_long_body_is_streamed_through(gateway, upstream, key):
    upstream.on("/refunds", sink)
    response = gateway.post("/refunds", key=key, body=b"x" * 5000)
    assert (response.json(), report(response)) == ({"bytes": 5000}, refused("VALIDATION.body_too_large"))
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("sizes", [(100, 2000, 30), (1024, 1), (1, 300000, 7), (2000,)])
def test_long_body_of_unknown_length_arrives_whole_and_in_order(gateway, upstream, key, sizes):
    pieces = [bytes([97 + n]) * size for n, size in enumerate(sizes)]
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/refunds", [("Idempotency-Key", key), ("Transfer-Encoding", "chunked")]))
    for piece in pieces:
        connection.send(chunk(piece))
        connection.wait_read()
    connection.send(b"0\r\n\r\n")
    response = connection.receive("POST")
    assert (response.status, report(response)) == (201, refused("VALIDATION.body_too_large"))
    assert upstream.last().body == b"".join(pieces)
    assert upstream.effects("/refunds") == 1


def test_body_that_is_spooled_arrives_whole(gateway, upstream, key):
    body = bytes(range(256)) * 2400  # 600 KiB: more than is kept in memory
    for said in ("would-forward", "would-replay"):
        response = post(gateway, "/draft", key=key, body=body)
        assert (response.status, report(response)) == (201, said)
        assert upstream.last().body == body
    assert upstream.effects("/draft") == 2


def test_body_that_outgrows_the_spool_arrives_whole(gateway, upstream, key):
    pieces = [bytes([97 + n]) * 400_000 for n in range(4)]  # the third is the one that doesn't fit 1 MiB
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/draft", [("Idempotency-Key", key), ("Transfer-Encoding", "chunked")]))
    for piece in pieces:
        connection.send(chunk(piece))
    connection.send(b"0\r\n\r\n")
    response = connection.receive("POST")
    assert (response.status, report(response)) == (201, refused("VALIDATION.body_too_large"))
    assert upstream.last().body == b"".join(pieces)
    assert upstream.effects("/draft") == 1


def test_short_body_of_unknown_length_arrives_whole(gateway, upstream, key):
    for said in ("would-forward", "would-replay"):
        with gateway.connect() as connection:
            connection.send(request_bytes("POST", "/refunds", [("Idempotency-Key", key),
                                                               ("Transfer-Encoding", "chunked")]))
            connection.send(chunk(b"one ") + chunk(b"two") + b"0\r\n\r\n")
            assert report(connection.receive("POST")) == said
        settled(gateway, upstream.effects("/refunds"))
        assert upstream.last().body == b"one two"
    assert upstream.effects("/refunds") == 2


def test_records_are_kept_apart_from_those_that_protect(start_gateway, upstream, key):
    """What was seen in shadow mode is no reason not to execute when the route is protected, nor the other way round."""
    gateway = start_gateway("routes: [{name: refunds, match: POST /refunds, mode: shadow}]\n")
    assert report(post(gateway, "/refunds", key=key, json={})) == "would-forward"
    shadow = gateway.config.read_text()
    gateway.config.write_text(shadow.replace("mode: shadow", "mode: protect"))
    gateway.restart("drain")
    protected = gateway.post("/refunds", key=key, json={})
    assert (protected.idempotency, report(protected)) == ("stored", None)
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 2


def test_crash_in_between_is_seen_after_the_restart(gateway, upstream, key):
    with upstream.hold("/refunds"):
        gateway.post_later("/refunds", key=key, json={})
        eventually(lambda: upstream.effects("/refunds") == 1, "the first request at the application")
        eventually(lambda: states(gateway) == ["processing"], "its claim in the store")
        gateway.kill()
    gateway.start()
    response = post(gateway, "/refunds", key=key, json={})
    assert (response.status, report(response)) == (201, refused("CONFLICT.idempotency.outcome_unknown"))
    assert upstream.effects("/refunds") == 2


def test_what_was_seen_before_a_crash_is_remembered(gateway, upstream, key):
    post(gateway, "/refunds", key=key, json={})
    gateway.restart()
    assert report(post(gateway, "/refunds", key=key, json={})) == "would-replay"
    assert upstream.effects("/refunds") == 2


def test_answers_are_not_kept(gateway, upstream, key):
    upstream.on("/refunds", answer(201, "5up3r-53cr3t-body"))
    post(gateway, "/refunds", key=key, body=b"5up3r-53cr3t-question")
    stored = b"".join(path.read_bytes() for path in gateway.store.rglob("*") if path.is_file())
    assert b"shadow:refunds" in stored
    assert b"5up3r-53cr3t" not in stored
    assert upstream.effects("/refunds") == 1


def test_store_that_takes_nothing_holds_up_nothing(start_gateway, upstream, small_disk):
    gateway = start_gateway(SHADOW, directory=small_disk / "gateway")
    fill(small_disk)

    def is_full():
        assert post(gateway, "/refunds", key=fresh_key(), json={}).status == 201
        return gateway.events("request")[-1].get("shadow_error_code") == "TRANSIENT.overloaded"

    eventually(is_full, "the store noticing that there is no room")
    told = refused("TRANSIENT.overloaded")  # where the store says so before the application has answered
    eventually(lambda: report(post(gateway, "/refunds", key=fresh_key(), json={})) == told, "an answer that says so")
    assert upstream.effects("/refunds") == len(gateway.events("request"))


def test_store_that_is_slow_holds_up_nobody(start_gateway, upstream, key, tmp_path):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(SHADOW, env=disk.env)
    with disk.held():
        responses = [gateway.post("/refunds", key=key, json={}) for _ in range(2)]  # answered before it is durable
        assert gateway.events("request") == []
    said = sorted(line["shadow"] for line in settled(gateway, 2))
    assert said[0] == "would-forward" and said[1] in ("would-wait", "would-replay")  # of two claims one came first
    assert [response.status for response in responses] == [201, 201]
    assert upstream.effects("/refunds") == 2


def test_client_that_leaves_is_no_reason_to_stop(gateway, upstream, key):
    """As on a route that passes, what it asked for is called off where nobody waits for it; the gateway lives on."""
    with upstream.hold("/refunds"):
        pending = gateway.post_later("/refunds", key=key, json={})
        pending.abandon()
    settled(gateway, 1)
    assert gateway.post("/protected", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 1


def test_start_says_that_nothing_is_protected_there(start_gateway, upstream):
    watching = start_gateway(SHADOW)
    told = watching.events("routes_in_shadow")
    assert [(line["level"], line["routes"], line["first"]) for line in told] == [("warn", 8, "refunds")]
    protecting = start_gateway("routes: [{name: refunds, match: POST /refunds}]\n")
    assert protecting.events("routes_in_shadow") == []
    assert upstream.requests == []


def test_reload_turns_watching_into_protecting(gateway, upstream, key):
    post(gateway, "/refunds", key=key, json={})
    gateway.config.write_text(gateway.config.read_text().replace("mode: shadow", "mode: protect"))
    gateway.signal(signal.SIGHUP)
    gateway.wait_events("configuration_reloaded")
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 2


def test_counts_and_log_tell_the_same(gateway, upstream, key):
    post(gateway, "/refunds", key=key, json={})
    post(gateway, "/refunds", key=key, json={})
    post(gateway, "/refunds", json={})
    lines = settled(gateway, 3)
    assert [line["shadow"] for line in lines] == ["would-forward", "would-replay", "would-refuse"]
    assert [line.get("shadow_error_code") for line in lines] == [None, None, "VALIDATION.idempotency_key_missing"]
    counts = gateway.counts()
    assert (counts["shadow_would_forward"], counts["shadow_would_replay"], counts["shadow_would_refuse"]) == (1, 1, 1)
    assert upstream.effects("/refunds") == 3


def test_natural_key_is_seen_too(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - {match: POST /natural, mode: shadow, key: {from: "{body:/id}", shared: true}}
        """)
    assert report(post(gateway, "/natural", json={"id": 1})) == "would-forward"
    assert report(post(gateway, "/natural", json={"id": 1})) == "would-replay"
    assert report(post(gateway, "/natural", json={"id": 2})) == "would-forward"
    assert report(post(gateway, "/natural", json={})) == refused("VALIDATION.request_malformed")
    assert upstream.last().body in (b"{}",)
    assert upstream.last().all("Idempotency-Key") == []
    assert upstream.effects("/natural") == 4


def test_reading_is_no_business_of_it(gateway, upstream, key):
    assert report(gateway.get("/refunds", key=key)) is None
    assert upstream.effects() == 0


def test_other_routes_report_nothing(gateway, upstream, key):
    assert report(gateway.post("/protected", key=key, json={})) is None
    assert report(gateway.post("/elsewhere", json={})) is None
    assert upstream.effects() == 2


@pytest.mark.slow
def test_upload_beyond_a_large_limit_goes_on_in_pieces(start_gateway, upstream, key):
    """What was kept of it is far more than the buffers of a connection hold."""
    gateway = start_gateway("routes: [{match: POST /file, mode: shadow, body_max: 70MiB}]\n")
    upstream.on("/file", sink)

    def upload():
        connection = gateway.connect()
        connection.send(request_bytes("POST", "/file", {"Idempotency-Key": key, "Transfer-Encoding": "chunked"}))
        for _ in range(72):
            connection.send(chunk(bytes(1 << 20)))
        connection.send(b"0\r\n\r\n")
        return connection.receive("POST")
    response = upload()
    assert (response.json(), report(response)) == ({"bytes": 72 << 20}, refused("VALIDATION.body_too_large"))
    assert upstream.effects("/file") == 1
    upstream.stop_listening()
    upstream.close_idle()
    upload().refuses(502, "DEPENDENCY.unavailable")
    assert upstream.effects("/file") == 1
