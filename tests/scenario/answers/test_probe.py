# SPDX-License-Identifier: Apache-2.0
"""The probe: how the application is asked what became of an operation whose outcome is unknown, what is adopted, and
what frees nothing."""
import re
import threading
import time
import urllib.parse

import pytest

from harness import (HANG_S, answer, answer_raw, basic, bearer, drop_after_effect, eventually, fresh_key, in_turn,
                     never_answer, numbered, quoted)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"charge": "ch_1", "amount": 1000}
JSON = [("Content-Type", "application/json")]
SETTLED_S = 0.02  # longer than a `settle` of a millisecond
NOTHING = answer(200, {"data": []}, JSON, effect=False)


def probing(settle="1h", extra="", upstream_timeout="1s"):
    return f"""
        defaults:
          retry: {{base: 10ms, cap: 40ms}}
        routes:
          - name: refunds
            match: POST,DELETE /refunds
            upstream_timeout: {upstream_timeout}
            on_unknown: probe
            probe:
              request: GET /refunds?idempotency_key={{key}}
              found: {{status: 200, pointer: /data/0}}
              answer: {{status: 201, body: /data/0}}
              settle: {settle}
            {extra}
        """


class Refunds:
    """A refund service that can be asked for what it has under a key. `fails` is what becomes of the first POST after
    its effect; `hold` keeps it at work before its effect."""

    def __init__(self, upstream, fails=None):
        self.upstream = upstream
        self.fails = fails
        self.by_key = {}
        self.asked = 0
        self.lock = threading.Lock()
        upstream.on("POST /refunds", self.create)
        upstream.on("GET /refunds", self.find)

    def create(self, exchange):
        exchange.read_body()
        number = exchange.execute()
        with self.lock:
            fails, self.fails = self.fails, None
            self.by_key[exchange.request.key] = {"id": f"rf_{number}", "amount": 1000}
        if fails:
            fails(exchange)
        else:
            exchange.answer(201, self.by_key[exchange.request.key], JSON)

    def find(self, exchange):
        """Says each time how often it was asked, so that two adoptions could be told apart."""
        wanted = dict(urllib.parse.parse_qsl(exchange.request.query))["idempotency_key"]
        with self.lock:
            self.asked += 1
            found = [{**self.by_key[wanted], "asked": self.asked}] if wanted in self.by_key else []
        exchange.arrive()
        exchange.answer(200, {"data": found}, JSON)


def posts(upstream):
    return [request for request in upstream.received("/refunds") if request.method == "POST"]


def probes(upstream):
    return [request for request in upstream.received("/refunds") if request.method == "GET"]


def close(exchange):
    exchange.close()


def silence(exchange):
    exchange.wait_for_peer_to_leave()


@pytest.mark.parametrize("fails, told", [(close, 502), (silence, 504)], ids=["closed", "silence"])
def test_found_is_adopted_and_replayed_ever_after(start_gateway, upstream, key, fails, told):
    gateway = start_gateway(probing())
    Refunds(upstream, fails)
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (told, "unknown")

    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.json()) == (201, {"id": "rf_1", "amount": 1000, "asked": 1})
    assert second.idempotency in ("stored", "replayed")
    for _ in range(3):
        again = gateway.post("/refunds", key=key, json=REFUND)
        assert (again.status, again.body, again.idempotency) == (201, second.body, "replayed")
    gateway.restart("kill")
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.body, again.idempotency) == (201, second.body, "replayed")
    assert len(probes(upstream)) == 1
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


def test_found_after_a_kill_in_mid_flight_is_adopted(start_gateway, upstream, key):
    gateway = start_gateway(probing(upstream_timeout="60s"))
    Refunds(upstream, silence)
    gateway.post_later("/refunds", key=key, json=REFUND)
    upstream.wait_effects(1)
    eventually(lambda: gateway.get("/other").status == 200)
    gateway.restart("kill")
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.json()["id"]) == (201, "rf_1")
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


def test_not_found_while_the_application_is_at_work_frees_nothing(start_gateway, upstream, key):
    gateway = start_gateway(probing())
    service = Refunds(upstream)
    upstream.on("GET /refunds", NOTHING)
    with upstream.hold("/refunds") as held:
        upstream.on("GET /refunds", lambda exchange: exchange.answer(200, {"data": []}, JSON))
        gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
        held.wait_arrived()
        for _ in range(3):
            gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
        assert len(posts(upstream)) == 1
    late = eventually(lambda: replayed(gateway, key), "the late answer being taken")
    assert late.json() == service.by_key[key]
    assert len(probes(upstream)) >= 3
    assert upstream.effects("/refunds") == 1


def replayed(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    return response if response.idempotency == "replayed" else response.refuses(409, UNKNOWN) and None


def test_not_found_after_a_kill_frees_nothing_before_it_is_settled(start_gateway, upstream, key):
    """The connection died with the gateway, and the application may be at work all the same."""
    gateway = start_gateway(probing(upstream_timeout="60s"))
    upstream.on("GET /refunds", lambda exchange: exchange.answer(200, {"data": []}, JSON))
    with upstream.hold("/refunds") as held:
        gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.restart("kill")
        for _ in range(3):
            gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


def test_not_found_after_the_gateway_gave_up_frees_nothing_before_it_is_settled(start_gateway, upstream, key):
    gateway = start_gateway(probing(extra="grace: 100ms"))
    upstream.on("GET /refunds", NOTHING)
    upstream.on("POST /refunds", never_answer)
    gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    eventually(lambda: upstream._idle >= set(upstream._open), "the gateway giving the exchange up")
    for _ in range(3):
        gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("how", ["running", "killed"])
def test_not_found_frees_once_it_is_settled(start_gateway, upstream, key, how):
    gateway = start_gateway(probing(settle="1s", upstream_timeout="1s"))
    upstream.on("GET /refunds", NOTHING)
    upstream.on("POST /refunds", in_turn(answer_raw(b"", effect=False, then=None), numbered))
    began = time.monotonic()
    gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    if how == "killed":
        gateway.restart("kill")

    def run():
        response = gateway.post("/refunds", key=key, json=REFUND)
        return response if response.status == 201 else response.refuses(409, UNKNOWN) and None
    second = eventually(run, "the operation being free")
    assert second.idempotency == "stored"
    first_post, second_post = posts(upstream)
    assert second_post.at - began >= 1 + 1, "the application might still have been at work"
    before, after = (int(post.header("Hapax-Operation").rsplit(".", 1)[1]) for post in (first_post, second_post))
    assert after > before
    assert gateway.post("/refunds", key=key, json=REFUND).body == second.body
    assert upstream.effects("/refunds") == 1


def test_answer_that_comes_after_not_found_freed_it_is_refused(start_gateway, upstream, key):
    gateway = start_gateway(probing(settle="500ms"))
    upstream.on("GET /refunds", NOTHING)
    let_go = threading.Event()
    sent = threading.Event()

    def slow(exchange):
        exchange.read_body()
        let_go.wait(HANG_S)
        exchange.answer(201, {"too": "late"}, JSON)
        sent.set()
    upstream.on("POST /refunds", in_turn(slow, numbered))
    gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    second = eventually(lambda: free(gateway, key), "the operation being free")
    let_go.set()
    assert sent.wait(HANG_S)
    for _ in range(5):
        gateway.get("/other")
        assert gateway.post("/refunds", key=key, json=REFUND).body == second.body
    assert upstream.effects("/refunds") == 1


def free(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    return response if response.status == 201 else None


def test_not_found_after_the_application_hung_up_frees_too(start_gateway, upstream, key):
    gateway = start_gateway(probing(settle="200ms"))
    upstream.on("GET /refunds", NOTHING)
    upstream.on("POST /refunds", in_turn(answer_raw(b"", effect=False), numbered))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    second = eventually(lambda: free(gateway, key), "the operation being free")
    assert second.idempotency == "stored"
    assert len(posts(upstream)) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("behaviour", [NOTHING, answer(200, '{"data": [ \n] }', JSON, effect=False)],
                         ids=["an empty list", "with spaces in it"])
def test_an_empty_place_of_the_finding_is_not_found(start_gateway, upstream, key, behaviour):
    gateway = start_gateway(probing(settle="1ms"), store="memory:")
    upstream.on("GET /refunds", behaviour)
    upstream.on("POST /refunds", in_turn(answer_raw(b"", effect=False), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    assert eventually(lambda: free(gateway, key), "the operation being free").idempotency == "stored"
    assert len(posts(upstream)) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("behaviour", [
    answer(500, "broken", effect=False), answer(503, "busy", [("Retry-After", "0")], effect=False),
    answer(401, "who are you", effect=False), answer(429, "later", effect=False),
    answer(301, "", [("Location", "/elsewhere")], effect=False),
    answer_raw(b"no HTTP at all\r\n\r\n", effect=False), answer_raw(b"", effect=False),
    answer_raw(b"", effect=False, then="reset"),
    answer(200, '{"data": [{"id": "rf_1"', JSON, effect=False), answer(200, "<html>welcome</html>", effect=False),
    answer_raw(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"data": [', effect=False),
    answer_raw(b"", effect=False, then=None), answer(200, {"status": "maintenance"}, JSON, effect=False),
    answer(200, {"data": {"error": "busy"}}, JSON, effect=False), answer(200, {"data": "none"}, JSON, effect=False),
    answer(404, "no such refund", effect=False), answer(200, [], JSON, effect=False),
    answer(200, {"data": {}}, JSON, effect=False), answer(200, {}, JSON, effect=False),
    answer(200, {"data": None}, JSON, effect=False), answer(200, {"data": [None]}, JSON, effect=False),
], ids=["500", "503", "401", "429", "301", "garbage", "closed", "reset", "half a document", "no JSON", "half a body",
        "silence", "about something else", "no list", "a text", "404", "another list", "an object", "nothing at all",
        "null on the way", "null"])
def test_probe_that_says_nothing_leaves_it_unknown(start_gateway, upstream, key, behaviour):
    gateway = start_gateway(probing(settle="1ms"), store="memory:")
    upstream.on("POST /refunds", drop_after_effect())
    upstream.on("GET /refunds", behaviour)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    response = gateway.post("/refunds", key=key, json=REFUND)
    response.refuses(409, UNKNOWN)
    assert response.header("Retry-After")
    assert len(posts(upstream)) == 1

    Refunds(upstream).by_key[key] = {"id": "rf_1"}
    assert gateway.post("/refunds", key=key, json=REFUND).json()["id"] == "rf_1"
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_of_a_probe_that_was_cut_off_tells_nothing(start_gateway, upstream, key, status):
    """Neither half a body that would be adopted whatever is in it, nor the status that declares absence."""
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            on_unknown: probe
            probe: {request: "GET /refunds/{key}", found: {status: 200}, absent: {status: 404}, settle: 1ms}
        """, store="memory:")
    upstream.on("POST /refunds", drop_after_effect())
    upstream.on(f"GET /refunds/{key}", answer_raw(b"HTTP/1.1 %d So\r\nContent-Length: 100\r\n\r\n{" % status,
                                                  effect=False))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    time.sleep(SETTLED_S)
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


ABSENT = """
    routes:
      - match: POST /refunds
        on_unknown: probe
        probe:
          request: GET /refunds/{key}
          found: {status: 200, pointer: /refund/id}
          absent: {status: 404}
          settle: 1ms
    """


@pytest.mark.parametrize("behaviour", [answer(404, "no such refund", effect=False),
                                       answer(200, {"refund": {}}, JSON, effect=False)],
                         ids=["the status that was declared", "an empty object"])
def test_absence_that_is_declared_or_proven_frees(start_gateway, upstream, key, behaviour):
    gateway = start_gateway(ABSENT, store="memory:")
    upstream.on(f"GET /refunds/{key}", behaviour)
    upstream.on("POST /refunds", in_turn(answer_raw(b"", effect=False), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    assert eventually(lambda: free(gateway, key), "the operation being free").idempotency == "stored"
    assert len(posts(upstream)) == 2
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("behaviour", [answer(410, effect=False), answer(200, [], JSON, effect=False),
                                       answer(200, {"refund": []}, JSON, effect=False)],
                         ids=["another status", "a list", "a list in the place of an object"])
def test_absence_that_is_neither_declared_nor_proven_frees_nothing(start_gateway, upstream, key, behaviour):
    gateway = start_gateway(ABSENT, store="memory:")
    upstream.on(f"GET /refunds/{key}", behaviour)
    upstream.on("POST /refunds", drop_after_effect())
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    time.sleep(SETTLED_S)  # past `settle`: nothing but the answer keeps it
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == len(posts(upstream)) == 1


@pytest.mark.parametrize("status", [204, 206, 404, 410])
def test_status_that_nobody_declared_frees_nothing(start_gateway, upstream, key, status):
    """It may be that of a probe which is misspelt."""
    gateway = start_gateway(ABSENT.replace("          absent: {status: 404}\n", ""), store="memory:")
    upstream.on(f"GET /refunds/{key}", answer(status, effect=False))
    upstream.on("POST /refunds", drop_after_effect())
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    time.sleep(SETTLED_S)  # past `settle`: nothing but the answer keeps it
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == len(posts(upstream)) == 1


def test_finding_too_large_to_keep_leaves_it_unknown(start_gateway, upstream, key):
    gateway = start_gateway(probing(settle="1ms", extra="answer_max: 4KiB"), store="memory:")
    upstream.on("POST /refunds", drop_after_effect())
    upstream.on("GET /refunds", answer(200, {"data": [{"id": "rf_1", "note": "x" * 5000}]}, JSON, effect=False))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


def test_client_that_has_no_time_for_a_probe_is_told_so(start_gateway, upstream, key):
    gateway = start_gateway(probing(upstream_timeout="30s"))
    Refunds(upstream, close)
    gateway.post("/refunds", key=key, json=REFUND)
    with upstream.hold("/refunds") as held:
        hasty = gateway.post_later("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "500ms"})
        held.wait_arrived()
        assert hasty.status in (409, 504)
    assert eventually(lambda: free(gateway, key), "a patient one being told").json()["id"] == "rf_1"
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


def test_idempotent_route_is_sent_again_and_not_probed(start_gateway, upstream, key):
    gateway = start_gateway(probing(extra="guarantee: idempotent"), store="memory:")
    upstream.on("POST /refunds", in_turn(*[drop_after_effect()] * 4, answer(201, "done", effect=False)))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    assert gateway.post("/refunds", key=key, json=REFUND).body == b"done"
    assert probes(upstream) == []
    assert len(posts(upstream)) == 5


def test_probe_by_head_adopts_a_bare_status(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - match: POST /refunds
            on_unknown: probe
            probe:
              request: "HEAD /refunds/by-key/{key}"
              found: {status: 200}
              answer: {status: 204}
              settle: 1h
        """, store="memory:")
    upstream.on("POST /refunds", drop_after_effect())
    upstream.on(f"HEAD /refunds/by-key/{key}", answer(200, "never sent", effect=False))
    gateway.post("/refunds", key=key, json=REFUND)
    for _ in range(2):
        found = gateway.post("/refunds", key=key, json=REFUND)
        assert (found.status, found.body) == (204, b"")
    assert len(upstream.received(f"/refunds/by-key/{key}")) == 1
    assert upstream.effects("/refunds") == 1


def test_unreachable_application_leaves_it_unknown(start_gateway, upstream, key):
    gateway = start_gateway(probing(settle="1ms"))

    def last_words(exchange):
        upstream.stop_listening()
        drop_after_effect()(exchange)
    upstream.on("POST /refunds", last_words)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    assert upstream.effects("/refunds") == 1


AWKWARD = "refund/ch_1?a=1&b=2#frag%2F+;{key}:[x]|^~`<>\\"


@pytest.mark.parametrize("spelling", [AWKWARD, quoted(AWKWARD.replace("\\", "\\\\"))], ids=["bare", "quoted"])
def test_key_is_percent_encoded_in_the_probes_target(start_gateway, upstream, spelling):
    gateway = start_gateway(probing())
    service = Refunds(upstream, close)
    assert gateway.post("/refunds", key=spelling, json=REFUND).idempotency == "unknown"
    service.by_key[AWKWARD] = {"id": "rf_1"}
    assert gateway.post("/refunds", key=spelling, json=REFUND).json()["id"] == "rf_1"
    target = probes(upstream)[0].target
    assert re.fullmatch(r"/refunds\?idempotency_key=([A-Za-z0-9._~-]|%[0-9A-F]{2})+", target), target
    assert urllib.parse.unquote(target.partition("=")[2]) == AWKWARD
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("credentials", [bearer("a-token-of-mine"), basic("ada", "lovelace")], ids=["bearer", "basic"])
def test_probe_carries_the_asking_requests_credentials(start_gateway, upstream, key, credentials):
    gateway = start_gateway(probing(), store="memory:")
    Refunds(upstream, close)
    first = gateway.post("/refunds", key=key, json=REFUND, auth=credentials)
    assert first.idempotency == "unknown"
    cookie = {"Cookie": "session=17"}
    assert gateway.post("/refunds", key=key, json=REFUND, auth=credentials, headers=cookie).status == 201
    probe = probes(upstream)[0]
    assert probe.header("Authorization") == credentials
    assert probe.header("Cookie") == "session=17"
    assert probe.header("Idempotency-Key") is None
    assert probe.body == b""
    assert upstream.effects("/refunds") == 1


def test_probe_asks_for_the_whole_and_unconditionally(start_gateway, upstream, key):
    """What the request said of itself and of its body is not said of the question."""
    gateway = start_gateway(probing(), store="memory:")
    Refunds(upstream, close)
    own = {"If-Match": '"v1"', "If-None-Match": '"v2"', "If-Modified-Since": "Sun, 06 Nov 1994 08:49:37 GMT",
           "If-Unmodified-Since": "Sun, 06 Nov 1994 08:49:37 GMT", "Range": "bytes=0-1", "If-Range": '"v1"',
           "Content-Encoding": "x-none", "X-Request-Timeout": "30s", "Hapax-Attempt": "7"}
    assert gateway.post("/refunds", key=key, json=REFUND, headers=own).idempotency == "unknown"
    assert gateway.post("/refunds", key=key, json=REFUND, headers=own).status == 201
    probe = probes(upstream)[0]
    sent = {name for name in [*own, "Content-Type", "Content-Length", "Transfer-Encoding"] if probe.all(name)}
    assert sent <= {"X-Request-Timeout"}
    assert upstream.effects("/refunds") == 1


def test_another_credential_neither_probes_nor_learns(start_gateway, upstream, key):
    gateway = start_gateway(probing(), store="memory:")
    Refunds(upstream, close)
    gateway.post("/refunds", key=key, json=REFUND, auth=basic("ada", "lovelace"))
    stranger = gateway.post("/refunds", key=key, json=REFUND, auth=basic("ada", "wrong"))
    assert stranger.status in (403, 409)
    assert b"rf_1" not in stranger.body
    assert probes(upstream) == []
    assert gateway.post("/refunds", key=key, json=REFUND, auth=basic("ada", "lovelace")).status == 201
    stranger = gateway.post("/refunds", key=key, json=REFUND, auth=basic("ada", "wrong"))
    stranger.refuses(403, "AUTH.replay_not_authorized")
    assert upstream.effects("/refunds") == 1


def test_another_payload_does_not_probe(start_gateway, upstream, key):
    gateway = start_gateway(probing(), store="memory:")
    Refunds(upstream, close)
    gateway.post("/refunds", key=key, json=REFUND)
    gateway.post("/refunds", key=key, json={"amount": 1}).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert probes(upstream) == []
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"  # adopted
    gateway.post("/refunds", key=key, json={"amount": 1}).refuses(409, "CONFLICT.idempotency.payload_mismatch")
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_two_requests_that_probe_at_once_adopt_one_outcome(start_gateway, upstream, workers):
    gateway = start_gateway(probing(upstream_timeout="5s"), workers=workers)
    for _ in range(5):
        key = fresh_key()
        Refunds(upstream, close)
        assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
        with upstream.hold("/refunds") as held:
            everyone = gateway.post_together("/refunds", key=key, times=2 * workers, json=REFUND)
            held.wait_arrived()
        everyone = [response.response for response in everyone]
        assert {response.status for response in everyone} == {201}
        bodies = {response.body for response in everyone}
        assert len(bodies) == 1, bodies
        assert {gateway.post("/refunds", key=key, json=REFUND).body} == bodies
        assert upstream.effects_by_key[key] == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_two_requests_that_find_nothing_at_once_send_it_again_once(start_gateway, upstream, workers):
    gateway = start_gateway(probing(settle="1ms"), workers=workers)
    upstream.on("GET /refunds", NOTHING)
    for _ in range(5):
        key = fresh_key()
        upstream.on("POST /refunds", answer_raw(b"", effect=False))
        assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
        time.sleep(SETTLED_S)
        upstream.on("POST /refunds", numbered)
        with upstream.hold("/refunds") as held:
            everyone = gateway.post_together("/refunds", key=key, times=2 * workers, json=REFUND)
            held.wait_arrived()
        assert len({(response.status, response.body) for response in everyone}) == 1
        assert everyone[0].status == 201
        assert upstream.effects_by_key[key] == 1


@pytest.mark.parametrize("found", [True, False], ids=["found", "not found"])
def test_harvested_late_answer_wins_over_a_probe(start_gateway, upstream, key, found):
    """The probe was asked first, and the exchange's own answer is recorded before the probe's comes."""
    gateway = start_gateway(probing(settle="1ms", upstream_timeout="1s"))
    answer_now, probe_now, asked = threading.Event(), threading.Event(), threading.Event()

    def slow(exchange):
        exchange.read_body()
        exchange.execute()
        answer_now.wait(HANG_S)
        exchange.answer(201, {"id": "the exchange's own"}, JSON)

    def slow_probe(exchange):
        asked.set()
        probe_now.wait(HANG_S)
        exchange.answer(200, {"data": [{"id": "the probe's"}] if found else []}, JSON)
    upstream.on("POST /refunds", in_turn(slow, numbered))
    upstream.on("GET /refunds", in_turn(slow_probe, answer(500, effect=False)))
    gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    time.sleep(SETTLED_S)
    second = gateway.post_later("/refunds", key=key, json=REFUND)
    assert asked.wait(HANG_S)
    answer_now.set()
    harvested = eventually(lambda: free(gateway, key), "the late answer being recorded")
    assert harvested.json() == {"id": "the exchange's own"}
    probe_now.set()
    assert (second.status, second.body) == (201, harvested.body)
    assert gateway.post("/refunds", key=key, json=REFUND).body == harvested.body
    assert len(posts(upstream)) == 1
    assert upstream.effects("/refunds") == 1


def test_adopted_outcome_wins_over_a_later_answer(start_gateway, upstream, key):
    gateway = start_gateway(probing())
    let_go = threading.Event()

    def slow(exchange):
        exchange.read_body()
        exchange.execute()
        let_go.wait(HANG_S)
        exchange.answer(201, {"id": "too late"}, JSON)
    upstream.on("POST /refunds", slow)
    upstream.on("GET /refunds", answer(200, {"data": [{"id": "rf_1"}]}, JSON, effect=False))
    gateway.post("/refunds", key=key, json=REFUND).refuses(504, "DEPENDENCY.timeout")
    adopted = gateway.post("/refunds", key=key, json=REFUND)
    assert (adopted.status, adopted.json()) == (201, {"id": "rf_1"})
    let_go.set()
    eventually(lambda: upstream._idle >= set(upstream._open), "the late answer being sent")
    for _ in range(3):
        gateway.get("/other")
        assert gateway.post("/refunds", key=key, json=REFUND).body == adopted.body
    gateway.restart("kill")
    assert gateway.post("/refunds", key=key, json=REFUND).body == adopted.body
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("status", [404, 412])
def test_gone_after_a_lost_answer_goes_to_the_probe(start_gateway, upstream, key, status):
    gateway = start_gateway(probing(extra="guarantee: idempotent"))
    upstream.on("DELETE /refunds", in_turn(drop_after_effect(), answer(status, "not there", effect=False)))
    upstream.on("GET /refunds", answer(200, {"data": [{"id": "rf_1", "deleted": True}]}, JSON, effect=False))
    first = gateway.request("DELETE", "/refunds", key=key)
    assert (first.status, first.json()) == (201, {"id": "rf_1", "deleted": True})
    again = gateway.request("DELETE", "/refunds", key=key)
    assert (again.body, again.idempotency) == (first.body, "replayed")
    assert len(probes(upstream)) == 1
    assert upstream.effects("/refunds") == 1


DUPLICATES = "provider_duplicate: {status: 409, pointer: /code, value: duplicate}"


def test_providers_duplicate_is_answered_with_what_is_there(start_gateway, upstream, key):
    """It was applied before, by a request that this gateway never saw."""
    gateway = start_gateway(probing(extra=DUPLICATES), store="memory:")
    service = Refunds(upstream)
    service.by_key[key] = {"id": "rf_9", "amount": 1000}
    upstream.on("POST /refunds", answer(409, {"code": "duplicate"}, JSON, effect=False))
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.json()["id"], first.idempotency) == (201, "rf_9", "stored")
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.body, again.idempotency) == (201, first.body, "replayed")
    assert (len(posts(upstream)), len(probes(upstream))) == (1, 1)
    assert upstream.effects("/refunds") == 0


@pytest.mark.parametrize("behaviour", [
    answer(409, {"code": "limit_reached"}, JSON), answer(409, {"other": "duplicate"}, JSON), answer(409, "duplicate"),
    answer(422, {"code": "duplicate"}, JSON),
], ids=["another value", "another member", "no JSON", "another status"])
def test_another_conflict_of_the_provider_is_an_outcome(start_gateway, upstream, key, behaviour):
    gateway = start_gateway(probing(extra=DUPLICATES), store="memory:")
    upstream.on("POST /refunds", behaviour)
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status in (409, 422), first.idempotency) == (True, "stored")
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "replayed"
    assert (len(posts(upstream)), len(probes(upstream))) == (1, 0)
    assert upstream.effects("/refunds") == 1


def test_providers_duplicate_that_cannot_be_fetched_is_unknown(start_gateway, upstream, key):
    gateway = start_gateway(probing(settle="1h", extra=DUPLICATES))
    upstream.on("POST /refunds", answer(409, {"code": "duplicate"}, JSON, effect=False))
    upstream.on("GET /refunds", answer(500, effect=False))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
    Refunds(upstream).by_key[key] = {"id": "rf_9"}
    assert gateway.post("/refunds", key=key, json=REFUND).json()["id"] == "rf_9"
    assert len(posts(upstream)) == 1


def test_providers_duplicate_that_is_not_there_is_never_sent_again(start_gateway, upstream, key):
    """It says "already applied", and "nothing there": that is a contradiction, not a proof that nothing happened."""
    gateway = start_gateway(probing(settle="1ms", extra=DUPLICATES))
    upstream.on("POST /refunds", answer(409, {"code": "duplicate"}, JSON, effect=False))
    upstream.on("GET /refunds", NOTHING)
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert (first.status, first.idempotency) == (502, "unknown")
    time.sleep(SETTLED_S)
    for _ in range(2):  # asked again past `settle`, and after a restart
        gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
        gateway.restart()
        time.sleep(SETTLED_S)
    assert len(probes(upstream)) == 3
    assert len(posts(upstream)) == 1
    Refunds(upstream).by_key[key] = {"id": "rf_9"}  # it shows up at last
    assert gateway.post("/refunds", key=key, json=REFUND).json()["id"] == "rf_9"
    assert upstream.effects("/refunds") == 0


def test_answers_default_to_the_probes_own(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - match: POST /refunds
            on_unknown: probe
            probe: {request: "GET /refunds/by-key/{key}", found: {status: 200}, settle: 1h}
        """)
    upstream.on("POST /refunds", drop_after_effect())
    upstream.on(f"/refunds/by-key/{key}", answer(200, '{ "id" : 1.0 }', JSON + [("ETag", '"v1"')], effect=False))
    gateway.post("/refunds", key=key, json=REFUND)
    second = gateway.post("/refunds", key=key, json=REFUND)
    assert (second.status, second.body, second.header("Content-Type")) == (200, b'{ "id" : 1.0 }', "application/json")
    assert gateway.post("/refunds", key=key, json=REFUND).body == second.body
    assert upstream.effects("/refunds") == 1
