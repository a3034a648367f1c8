# SPDX-License-Identifier: Apache-2.0
"""Every case of tests/vectors/hostile_requests.json: refused as it says, not one byte of it reaches the upstream, and
nothing is stored."""
import json
import pathlib
import re

import pytest

from harness import Disconnected, Gateway, Upstream

VECTORS = json.loads((pathlib.Path(__file__).parents[2] / "vectors" / "hostile_requests.json").read_text("utf-8"))
CASES = {case["name"]: case for case in VECTORS["cases"]}
GONE = (Disconnected, ConnectionResetError, BrokenPipeError)


@pytest.fixture(scope="module")
def upstream():
    server = Upstream()
    yield server
    server.close()
    assert not server.errors, server.errors


@pytest.fixture(scope="module")
def gateway(upstream, tmp_path_factory):
    process = Gateway(upstream, tmp_path_factory.mktemp("hostile")).start()
    yield process
    process.finish()


def bytes_of(case):
    text = case["raw"]
    if "pad" in case:
        text = text.replace("{pad}", case["pad"]["char"] * case["pad"]["times"])
    return text.encode("latin-1")


def send_ignoring_refusal(connection, data):
    try:
        connection.send(data)
    except GONE:
        pass  # it may be refused before it is whole


def key_of(case):
    match = re.search(r'Idempotency-Key: "(hostile-key-\d+)"', case["raw"])
    return match[1] if match else None


def assert_untouched(gateway, upstream, case, requests, received):
    """The next good request with the same key is the first that anyone has seen of it."""
    upstream.close_idle()
    assert len(upstream.requests) == requests, upstream.requests[requests:]
    assert upstream.bytes_received == received
    key = key_of(case)
    if key:
        first = gateway.post("/refunds", key=key, body=b"{}")
        assert (first.status, first.idempotency) == (201, "stored")
        assert upstream.effects_by_key[key] == 1
    else:
        assert gateway.get("/sentinel").status == 200


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"].startswith("reject-")])
def test_hostile_request_is_refused(gateway, upstream, name):
    case = CASES[name]
    upstream.close_idle()
    requests, received = len(upstream.requests), upstream.bytes_received
    connection = gateway.connect()
    send_ignoring_refusal(connection, bytes_of(case))
    allowed = case["expect"].split("-", 1)[1].split("-or-")
    try:
        response = connection.receive(case["raw"].split(" ")[0])
    except GONE:
        assert "close" in allowed, f"closed without one of {allowed}"
    else:
        assert str(response.status) in allowed, response
        response.problem()
        assert response.header("Connection").lower() == "close"
        assert connection.at_end()
    assert_untouched(gateway, upstream, case, requests, received)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"].startswith("close-")])
def test_hostile_request_that_ends_early_dispatches_nothing(gateway, upstream, name):
    case = CASES[name]
    upstream.close_idle()
    requests, received = len(upstream.requests), upstream.bytes_received
    connection = gateway.connect()
    connection.send(bytes_of(case))
    connection.finish_sending()
    try:
        assert connection.receive("POST").status == 400
    except GONE:
        pass
    assert_untouched(gateway, upstream, case, requests, received)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"] == "accept"])
def test_odd_but_harmless_request_is_served(gateway, upstream, name):
    case = CASES[name]
    connection = gateway.connect()
    connection.send(bytes_of(case))
    method = case["raw"].split(" ")[0]
    assert connection.receive(method).status == (200 if method == "GET" else 201)
    seen = upstream.last()
    assert seen.key == key_of(case)
    if "Transfer-Encoding" in case["raw"]:
        assert seen.body == b"{}"
        assert "50" not in seen.all("Content-Length")
    assert seen.target == case["raw"].split(" ")[1]
    if key_of(case):
        assert upstream.effects_by_key[key_of(case)] == 1


def test_every_case_is_told(gateway):
    kinds = {case["expect"].split("-")[0] for case in CASES.values()}
    assert kinds == {"reject", "close", "accept"}
    assert len(CASES) == len(VECTORS["cases"]) == 56
    assert gateway.get("/still-there").status == 200


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["expect"].startswith("reject-400")])
def test_hostile_request_split_anywhere_is_refused_the_same(gateway, upstream, name):
    """The same bytes in two pieces, cut in the middle of what is wrong with them."""
    case = CASES[name]
    upstream.close_idle()
    requests, received = len(upstream.requests), upstream.bytes_received
    data = bytes_of(case)
    for cut in sorted({len(data) // 3, len(data) // 2, len(data) - 3, len(data) - 1}):
        connection = gateway.connect()
        send_ignoring_refusal(connection, data[:cut])
        send_ignoring_refusal(connection, data[cut:])
        try:
            response = connection.receive("POST")
        except GONE:
            assert "close" in case["expect"]
        else:
            assert str(response.status) in case["expect"]
            assert connection.at_end()
    upstream.close_idle()
    assert len(upstream.requests) == requests
    assert upstream.bytes_received == received
