# SPDX-License-Identifier: Apache-2.0
"""One JSON line a request, with what an operator looks for, and nothing that isn't so."""
import json
import time

import pytest

from harness import HANG_S, answer_raw, eventually, fresh_key, quick_retries, request_bytes

FIELDS = ("time", "method", "path", "status", "operation_type", "idempotency_key", "principal", "result", "attempt",
          "correlation_id")


def request_lines(gateway, count):
    def enough():
        lines = [json.loads(line) for line in list(gateway.output) if line.startswith("{")]
        lines = [line for line in lines if line["event"] == "request"]
        return lines if len(lines) >= count else None
    return eventually(enough, f"{count} lines in the log")


def test_every_keyed_request_has_its_line(gateway, upstream, key):
    headers = {"X-Correlation-Id": "order-17"}
    for _ in range(2):
        gateway.post("/refunds", key=key, json={}, headers=headers)
    first, second = request_lines(gateway, 2)
    for line in (first, second):
        assert [name for name in FIELDS if name not in line] == [], line
        assert (line["method"], line["path"], line["status"]) == ("POST", "/refunds", 201)
        assert line["correlation_id"] == "order-17"
        assert not line.get("error_code"), line
    assert (first["result"], second["result"]) == ("stored", "replayed")
    assert (first["epoch"], first["attempt"]) == (second["epoch"], second["attempt"]) and first["epoch"] > 0
    assert (first["idempotency_key"], first["principal"]) == (second["idempotency_key"], second["principal"])
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("length", [1000, 2000, 4000, 7900, 8000, 9000, 20000])
def test_a_long_path_hides_nothing_of_its_request(gateway, upstream, key, length):
    path = "/" + "x" * length
    assert gateway.post(path, key=key, json={}).status == 201
    line, = request_lines(gateway, 1)
    lacking = [name for name in FIELDS if name not in line]
    assert lacking in ([], ["operation_type"], ["path", "operation_type"]), line
    assert line.get("path", path) == path and ("truncated" in line) == bool(lacking)
    assert (line["status"], line["result"]) == (201, "stored")


def test_line_says_how_long_each_step_took(gateway, upstream, key):
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json={})
        held.wait_arrived()
        second = gateway.post_later("/refunds", key=key, json={})
        gateway.wait_waiting(1)
        time.sleep(0.1)
    assert (first.status, second.status) == (201, 201)
    asked, waited = sorted(request_lines(gateway, 2), key=lambda line: "wait_ms" in line)
    assert asked["forward_ms"] >= 90 and waited["wait_ms"] >= 90
    assert not any(name in asked for name in ("wait_ms", "replay_ms")) and "forward_ms" not in waited
    for line in (asked, waited):
        steps = [value for name, value in line.items() if name.endswith("_ms") and name != "duration_ms"]
        assert sum(steps) == line["duration_ms"] and 0 not in steps, line
    assert upstream.effects("/refunds") == 1


def test_request_that_passes_has_a_line_without_an_error(gateway, upstream):
    gateway.get("/thing")
    gateway.post("/thing", json={})
    for line in request_lines(gateway, 2):
        assert line["status"] in (200, 201)
        assert not line.get("error_code"), line
    assert upstream.effects("/thing") == 1


def test_refusal_has_a_line_with_its_code(gateway, upstream):
    gateway.post("/refunds", key="short", json={})
    line = request_lines(gateway, 1)[0]
    assert (line["status"], line["error_code"]) == (400, "VALIDATION.idempotency_key_invalid")
    assert upstream.requests == []


@pytest.mark.parametrize("sent, status, code", [
    (b"nonsense\r\n\r\n", 400, "VALIDATION.request_malformed"),
    (request_bytes("GET", "/x", {"Cookie": "c" * 40_000}), 431, "VALIDATION.request_malformed"),
    (b"GET / HT", 408, "TRANSIENT.request_timeout"),
], ids=["malformed", "too large", "too slow"])
def test_what_is_no_request_has_a_line_too(start_gateway, upstream, sent, status, code):
    gateway = start_gateway("limits: {head_timeout: 300ms}\n")
    connection = gateway.connect()
    connection.send(sent)
    response = connection.receive()
    problem = response.refuses(status, code)
    assert problem["retryable"] == (status == 408)
    line = request_lines(gateway, 1)[0]
    assert (line["status"], line["error_code"], line["error"]) == (status, code, problem["detail"])
    assert (line["correlation_id"], line["peer"]) == (response.header("X-Correlation-Id"), "127.0.0.1")
    assert upstream.requests == []


def test_unreachable_upstream_is_named_with_the_reason(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.close()
    hint = gateway.post("/unkeyed", json={}).refuses(502, "DEPENDENCY.unavailable")["hint"]
    assert "the same key if it has one" in hint
    gateway.post("/refunds", key=key, json={}).refuses(502, "DEPENDENCY.unavailable")
    for line in request_lines(gateway, 2) + gateway.wait_events("retry_scheduled"):
        assert (line["upstream"], line["error"], line["reason"]) == (
            upstream.url, "no connection could be made", "connection refused"), line


def test_unusable_answer_is_told_with_its_upstream(gateway, upstream, key):
    upstream.on("/refunds", answer_raw(b"HTTP/1.1 999 What\r\n\r\n"))
    problem = gateway.post("/refunds", key=key, json={}).refuses(502, "DEPENDENCY.unavailable")
    assert problem["title"] == "The upstream gave no usable response"
    line = request_lines(gateway, 1)[0]
    assert (line["upstream"], line["error"]) == (upstream.url, "the response is not well-formed HTTP")
    assert upstream.effects("/refunds") == 1


def test_log_reader_that_stalls_holds_no_request_up_and_learns_what_it_missed(start_gateway, upstream):
    gateway = start_gateway(workers=2)
    long = "/thing/" + "x" * 3000
    with gateway.log.changed:  # the thread that reads the log waits for this
        for _ in range(600):
            assert gateway.get(long).status == 200
        keyed = gateway.post("/refunds", key=fresh_key(), json={})
        assert keyed.status == 201
        dropped = gateway.counts("log")["dropped_lines"]
        assert dropped > 0
    told = gateway.wait_events("log_lines_dropped")
    assert sum(line["lines"] for line in told) == dropped
    assert len(gateway.events("request")) + dropped == 601
    assert upstream.effects("/refunds") == 1


def test_stalled_log_reader_keeps_no_process_from_ending(start_gateway, upstream):
    gateway = start_gateway()
    with gateway.log.changed:
        for _ in range(600):
            assert gateway.get("/thing/" + "x" * 3000).status == 200
        gateway.terminate()
        assert gateway.process.wait(timeout=HANG_S) == 0


def test_log_of_requests_can_be_switched_off(start_gateway, upstream, key):
    gateway = start_gateway("access_log: off\n")
    gateway.post("/refunds", key=key, json={})
    connection = gateway.connect()
    connection.send(b"nonsense\r\n\r\n")
    connection.receive().refuses(400, "VALIDATION.request_malformed")
    connection.close()  # else the stop gives it the 5 s that a client has to read its answer
    gateway.terminate()
    assert gateway.wait_exit() == 0
    assert not any('"event":"request"' in line for line in gateway.output)
    assert upstream.effects("/refunds") == 1
