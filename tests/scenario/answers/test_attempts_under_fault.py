# SPDX-License-Identifier: Apache-2.0
"""Attempts and probes when something goes wrong in their midst: an answer without end, a request that is read slowly,
a disk that hangs, a lease that is lost, a stop. Whatever it is, there is one effect, and no outcome that wasn't one."""
import contextlib
import threading
import time

import pytest

from harness import (HANG_S, Disconnected, SlowDisk, answer, answer_raw, chunk, drop_after_effect, eventually,
                     fresh_key, in_time, in_turn, numbered, request_bytes, unix_socket_path)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
JSON = [("Content-Type", "application/json")]
EVENTS = [("Content-Type", "text/event-stream")]
NOTHING = answer(200, {"data": []}, JSON, effect=False)
BUSY = answer(429, "busy", effect=False)
LEASE_S = 1  # the shortest that there is
SETTLE_S = 1


def probing(settle="1ms", guarantee="none", retry="{base: 10ms, cap: 10ms, jitter: none}", extra=""):
    return f"""
        defaults:
          upstream_timeout: 10s
        routes:
          - name: refunds
            match: POST,DELETE /refunds
            answer_max: 4KiB
            guarantee: {guarantee}
            retry: {retry}
            on_unknown: probe
            probe:
              request: GET /find?idempotency_key={{key}}
              found: {{status: 200, pointer: /data/0}}
              answer: {{status: 201, body: /data/0}}
              settle: {settle}
            {extra}
        """


def waiting(delay, more=""):
    return f"{{base: {delay}, cap: {delay}, total: 120s, jitter: none{more}}}"


def run(gateway, key, **what):
    """The operation's success, or None while it is unknown or another's."""
    response = gateway.post("/refunds", key=key, **(what or {"json": REFUND}))
    assert response.status in (201, 409), response
    return response if response.status == 201 else None


class Endless:
    """An answer that can't be kept, and goes on once it may."""

    def __init__(self, status, kind):
        self.status = status
        self.kind = kind
        self.may_go_on = threading.Event()
        self.over = threading.Event()

    def __call__(self, exchange):
        exchange.read_body()
        try:
            if self.kind == "events":
                exchange.send(b"HTTP/1.1 %d No\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                              % self.status + chunk(b"data: a\n\n"))
                self.may_go_on.wait(HANG_S)
                exchange.send(chunk(b"data: b\n\n") + b"0\r\n\r\n")
            else:
                exchange.send(b"HTTP/1.1 %d No\r\nContent-Length: 9000\r\n\r\n" % self.status + b"x" * 1000)
                self.may_go_on.wait(HANG_S)
                exchange.send(b"x" * 8000)
        finally:
            self.over.set()


@pytest.mark.parametrize("method, status, kind", [("POST", 412, "large"), ("DELETE", 404, "events")])
def test_answer_without_end_is_left_alone_while_the_probe_asks(start_gateway, upstream, key, method, status, kind):
    """It tells of an attempt that was lost, so the probe is asked; none of its bytes is taken for the probe's."""
    gateway = start_gateway(probing(guarantee="idempotent"), store="memory:")
    gone = Endless(status, kind)
    upstream.on("/refunds", in_turn(drop_after_effect(), gone))

    def find(exchange):
        gone.may_go_on.set()
        gone.over.wait(HANG_S)
        exchange.answer(200, {"data": [{"id": "rf_1"}]}, JSON)
    upstream.on("/find", find)
    first = gateway.request(method, "/refunds", key=key)
    assert (first.status, first.json(), first.idempotency) == (201, {"id": "rf_1"}, "stored")
    again = gateway.request(method, "/refunds", key=key)
    assert (again.status, again.body, again.idempotency) == (201, first.body, "replayed")
    assert len(upstream.received("/find")) == 1
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("said, told", [(b"", 504),
                                        (b"HTTP/1.1 502 Bad\r\nContent-Length: 9000\r\n\r\n" + b"x" * 1000, 502)],
                         ids=["silence", "an early 502"])
def test_request_that_was_sent_in_part_never_runs_after_it_was_freed(start_gateway, start_upstream, key, said, told):
    """The application reads the rest of it only when the probe has freed the operation, and it was run anew."""
    application = start_upstream(unix=unix_socket_path())  # whose buffers are smaller than the body
    gateway = start_gateway(probing(settle="100ms", extra="upstream_timeout: 300ms"), upstream=application)
    reads_on, over = threading.Event(), threading.Event()

    def slow(exchange):
        try:
            if said:
                exchange.send(said)
            reads_on.wait(HANG_S)
            exchange.read_body()
            exchange.execute()
        finally:
            over.set()
    application.on("/refunds", in_turn(slow, numbered))
    application.on("/find", NOTHING)
    body = b"y" * 1_000_000
    first = gateway.send("POST", "/refunds", key=key, body=body)
    assert first.connection.receive_head()[0] == told
    second = eventually(lambda: run(gateway, key, body=body), "the operation being free")
    assert second.idempotency == "stored"
    reads_on.set()
    assert over.wait(HANG_S)
    assert application.effects("/refunds") == 1


def test_not_found_is_believed_as_of_when_it_was_asked(start_gateway, upstream):
    """The application looks in vain, carries the operation out, and only then, long after, says that it saw nothing."""
    gateway = start_gateway(probing(settle="1s"))

    def story():
        key = fresh_key()
        asked, says, done = threading.Event(), threading.Event(), threading.Event()

        def create(exchange):
            exchange.read_body()
            exchange.close()
            asked.wait(HANG_S)
            exchange.execute()
            done.set()

        def find(exchange):
            asked.set()
            says.wait(HANG_S)
            exchange.answer(200, {"data": []}, JSON)
        upstream.on("/refunds", in_turn(create, numbered))
        upstream.on("/find", in_turn(find, answer(500, effect=False)))
        sent_at = time.monotonic()
        assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
        unknown_at = time.monotonic()
        second = gateway.post_later("/refunds", key=key, json=REFUND)
        assert done.wait(HANG_S)
        done_at = time.monotonic()
        time.sleep(max(0, unknown_at + SETTLE_S - done_at) + 0.01)
        says.set()
        if done_at - sent_at >= SETTLE_S:  # so late an effect is not what was configured
            return second.response and False
        second.refuses(409, UNKNOWN)
        assert upstream.effects_by_key[key] == 1
        return True
    in_time(story)


def test_lost_lease_ends_the_attempts(start_gateway, upstream, tmp_path):
    """Its renewals don't get through between two attempts, the operation becomes unknown and is run by another."""
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(probing(retry=waiting("2s"), extra="lease: 1s\n            wait: 1ms"), env=disk.env)
    upstream.on("/find", NOTHING)

    def story():
        key = fresh_key()
        upstream.on("/refunds", in_turn(BUSY, numbered))
        tried = len(gateway.events("retry_scheduled"))
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        gateway.wait_events("retry_scheduled", tried + 1)
        with disk.held():
            gateway.post_later("/other", key=fresh_key())
            disk.wait_for_commit()
            time.sleep(LEASE_S * 4 / 3 + 0.05)  # a third of it may pass before a renewal is sent
        second = eventually(lambda: run(gateway, key), "the operation being run")
        assert upstream.effects_by_key[key] == 1
        if first.idempotency == "stored":  # the first was tried again before its lease was lost
            return False
        assert second.idempotency == "stored"
        if first.status == 201:
            assert (first.body, first.idempotency) == (second.body, "replayed")
        else:
            first.refuses(409, UNKNOWN)
        assert gateway.post("/refunds", key=key, json=REFUND).body == second.body
        assert upstream.effects_by_key[key] == 1
        return True
    in_time(story)


def test_answer_that_was_let_go_is_no_outcome_when_the_lease_is_lost(start_gateway, upstream, tmp_path):
    """A 500 is to be asked again, and the renewal before that takes longer than the lease."""
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(probing(guarantee="idempotent", extra="lease: 1s"), env=disk.env)

    def story():
        key = fresh_key()
        upstream.on("/refunds", in_turn(answer(500, "mine"), answer(201, "done", effect=False)))
        tried = len(gateway.events("retry_scheduled"))
        with upstream.hold("/refunds") as held:
            first = gateway.post_later("/refunds", key=key, json=REFUND)
            held.wait_arrived()
            with disk.held():
                gateway.post_later("/other", key=fresh_key())
                disk.wait_for_commit()
                held.release()
                gateway.wait_events("retry_scheduled", tried + 1)
                time.sleep(LEASE_S + 0.1)
        if first.idempotency == "stored":  # the renewal was sent so late that it came in time
            assert first.body == b"done"
            return False
        assert first.idempotency == "unknown"
        again = gateway.post("/refunds", key=key, json=REFUND)
        assert (again.status, again.body, again.idempotency) == (201, b"done", "stored")
        assert upstream.effects_by_key[key] == 1
        return True
    in_time(story)


@pytest.mark.parametrize("behaviour", [answer(500, b"x" * 9000), answer(500, "data: x\n\n", EVENTS)],
                         ids=["large", "events"])
def test_answer_that_was_let_go_is_no_outcome_when_the_gateway_stops(start_gateway, upstream, key, behaviour):
    gateway = start_gateway(probing(guarantee="idempotent", retry=waiting("60s")))
    upstream.on("/refunds", in_turn(behaviour, answer(201, "done", effect=False)))
    first = gateway.post_later("/refunds", key=key, json=REFUND)
    gateway.wait_events("retry_scheduled")
    gateway.terminate()
    assert (first.status, first.idempotency) == (502, "unknown")
    assert gateway.wait_exit() == 0
    gateway.start()
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.body, again.idempotency) == (201, b"done", "stored")
    assert upstream.effects("/refunds") == 1


def test_stop_while_the_lease_is_renewed_for_an_attempt_makes_it_the_last(start_gateway, upstream, tmp_path, key):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(probing(), env=disk.env)
    upstream.on("/refunds", BUSY)
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        with disk.held():
            other = gateway.post_later("/other", key=fresh_key())
            disk.wait_for_commit()
            held.release()
            gateway.wait_events("retry_scheduled")
            time.sleep(0.05)  # the delay is 10 ms
            gateway.terminate()
            gateway.wait_events("draining")
    assert (first.status, first.body, first.idempotency) == (429, b"busy", "released")
    assert other.idempotency == "stored"
    assert gateway.wait_exit() == 0
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 0


def test_renewal_that_outlasts_the_total_time_ends_the_attempts(start_gateway, upstream, tmp_path, key):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(probing(retry="{base: 10ms, cap: 10ms, total: 2s}"), env=disk.env)
    upstream.on("/refunds", in_turn(BUSY, numbered))
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        with disk.held():
            other = gateway.post_later("/other", key=fresh_key())
            disk.wait_for_commit()
            held.release()
            gateway.wait_events("retry_scheduled")
            time.sleep(2.1)  # the total time is over, and the renewal not back
    assert (first.status, first.body, first.idempotency) == (429, b"busy", "released")
    assert other.idempotency == "stored"
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 0


def test_nothing_is_sent_for_a_client_whose_time_was_over_before_the_claim_was_durable(start_gateway, upstream,
                                                                                       tmp_path, key):
    disk = SlowDisk(tmp_path)
    gateway = start_gateway(probing(), env=disk.env)
    with disk.held():
        first = gateway.post_later("/refunds", key=key, json=REFUND, headers={"X-Request-Timeout": "100ms"})
        disk.wait_for_commit()
        first.refuses(504, "DEPENDENCY.timeout")
    line = gateway.wait_events("request")[0]  # written once the claim has been given back
    assert (line["status"], line["error_code"]) == (504, "DEPENDENCY.timeout")
    assert upstream.received("/refunds") == []
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    assert upstream.effects("/refunds") == 1


DUPLICATES = "provider_duplicate: {status: 409, pointer: /code, value: duplicate}"


@pytest.mark.parametrize("whose", ["a later request's", "the attempt's own"])
@pytest.mark.parametrize("how", ["stops", "leaves"])
def test_probe_is_finished_whoever_leaves(start_gateway, upstream, key, whose, how):
    """The gateway stops, or the client goes, while the application looks: what it finds is the outcome all the same."""
    gateway = start_gateway(probing(extra=DUPLICATES))
    upstream.on("/find", answer(200, {"data": [{"id": "rf_1"}]}, JSON, effect=False))
    if whose == "the attempt's own":
        upstream.on("/refunds", answer(409, {"code": "duplicate"}, JSON))
    else:
        upstream.on("/refunds", drop_after_effect())
        assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    with upstream.hold("/find") as held:
        asking = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        if how == "stops":
            gateway.terminate()
            gateway.wait_events("draining")
        else:
            asking.connection.reset()
            assert gateway.get("/other").status == 200
    if how == "leaves":
        requests = 2 if whose == "the attempt's own" else 3
        gateway.wait_events("request", requests)
    else:
        assert (asking.status, asking.json()) == (201, {"id": "rf_1"})
        assert gateway.wait_exit() == 0
        gateway.start()
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.json(), again.idempotency) == (201, {"id": "rf_1"}, "replayed")
    assert len(upstream.received("/find")) == 1
    assert upstream.effects("/refunds") == 1


def test_answer_before_the_request_was_read_does_not_shorten_the_next_attempt(start_gateway, start_upstream, key):
    application = start_upstream(unix=unix_socket_path())
    gateway = start_gateway(probing(), upstream=application)

    def hasty(exchange):
        exchange.answer(429, "busy", [("Connection", "close")])
        with contextlib.suppress(Disconnected, OSError):
            exchange.read_body()
        exchange.close()
    application.on("/refunds", in_turn(hasty, numbered))
    body = bytes(range(256)) * 4000
    assert gateway.post("/refunds", key=key, body=body).idempotency == "stored"
    assert application.last().body == body
    assert application.effects("/refunds") == 1


def test_request_behind_one_that_is_tried_again_waits_its_turn(start_gateway, upstream, key):
    gateway = start_gateway(probing(), store="memory:")
    upstream.on("/refunds", in_turn(BUSY, BUSY, numbered))
    mine = request_bytes("POST", "/refunds", [("Idempotency-Key", key)], b"abc")
    connection = gateway.connect()
    connection.send(mine + request_bytes("GET", "/other") + mine)
    first, other, again = (connection.receive(method) for method in ("POST", "GET", "POST"))
    assert first.idempotency == "stored"
    assert other.json() == {"path": "/other"}
    assert (again.body, again.idempotency) == (first.body, "replayed")
    assert upstream.effects("/refunds") == 1


def test_request_that_asked_before_it_sent_its_body_is_sent_whole_on_every_attempt(start_gateway, upstream, key):
    gateway = start_gateway(probing(), store="memory:")
    upstream.on("/refunds", in_turn(BUSY, numbered))
    connection = gateway.connect()
    connection.send(request_bytes("POST", "/refunds", [("Idempotency-Key", key), ("Expect", "100-continue"),
                                                       ("Content-Length", "3")]))
    assert connection.receive_head()[0] == 100
    connection.send(b"abc")
    assert connection.receive("POST").idempotency == "stored"
    assert [request.body for request in upstream.received("/refunds")] == [b"abc", b"abc"]
    assert upstream.effects("/refunds") == 1


def test_body_that_breaks_between_two_attempts_is_refused(start_gateway, start_upstream):
    application = start_upstream(listening=False)
    gateway = start_gateway(f"defaults: {{retry: {waiting('1s', ', attempts: 60')}}}\n", upstream=application)
    connection = gateway.connect()
    connection.send(b"PUT /things HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    gateway.wait_events("retry_scheduled")
    connection.send(b"zz\r\nnonsense\r\n")
    connection.wait_read()
    application.listen()
    assert connection.receive("PUT").status == 400
    assert application.effects() == 0


def test_body_that_nobody_reads_at_a_later_attempt_times_out(start_gateway, start_upstream):
    application = start_upstream(unix=unix_socket_path(), listening=False)
    gateway = start_gateway(f"defaults: {{upstream_timeout: 300ms, retry: {waiting('100ms', ', attempts: 100')}}}\n",
                            upstream=application)
    connection = gateway.connect()
    connection.send(b"PUT /things HTTP/1.1\r\nHost: a\r\nContent-Length: 20000000\r\n\r\n")
    connection.sock.setblocking(False)

    def takes_no_more():  # until the gateway holds back what it can't send
        tries = len(gateway.events("retry_scheduled"))
        with contextlib.suppress(BlockingIOError):
            while connection.sock.send(b"a" * 65536):
                tries = None
        return tries
    full_at = eventually(takes_no_more, "the gateway holding the body back")
    gateway.wait_events("retry_scheduled", full_at + 3)
    connection.sock.settimeout(HANG_S)
    application.listener.listen()  # and nobody ever reads
    assert connection.receive("PUT").status == 504


def test_applications_retry_after_is_said_once(start_gateway, upstream):
    gateway = start_gateway("routes:\n  - {match: GET /things, mode: pass, retry_safe: true}\n", store="memory:")
    upstream.on("/things", answer(503, "closed", [("Retry-After", "3600")], effect=False))
    response = gateway.get("/things")
    assert (response.status, response.body, response.all("Retry-After")) == (503, b"closed", ["3600"])
    assert len(upstream.received("/things")) == 1


def test_answers_to_head_have_no_body_to_wait_for_on_any_attempt(start_gateway, upstream):
    gateway = start_gateway(f"routes:\n  - {{match: HEAD /things, mode: pass, retry_safe: true, "
                            f"retry: {waiting('1ms')}}}\n", store="memory:")
    headless = answer_raw(b"HTTP/1.1 503 Busy\r\nContent-Length: 5\r\n\r\n", effect=False, then=None)
    upstream.on("/things", in_turn(headless, headless, answer(200, "yes", effect=False)))
    response = gateway.request("HEAD", "/things")
    assert (response.status, response.header("Content-Length")) == (200, "3")
    assert len(upstream.received("/things")) == 3
