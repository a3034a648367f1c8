# SPDX-License-Identifier: Apache-2.0
"""Applications that answer without having read a request's body. On a connection that goes on being used they take
what is left for the next request: somebody else's answer would be the answer to that."""
import pytest

from harness import answer, answer_unread, basic, eventually, fresh_key, in_turn, numbered, quick_retries, request_bytes

REFUND = {"charge_id": "ch_1", "amount": 100}
FORGED = request_bytes("POST", "/refunds", {"Hapax-Operation": "00" * 32 + ".1"}, REFUND)
PLANTED = request_bytes("GET", "/planted")
READS_NOT = ["GET", "HEAD", "OPTIONS", "DELETE"]


def settled(upstream, path):
    """Once the application has taken the body for a request, or its connection has ended."""
    upstream.wait(lambda: upstream.open_connections() == 0 or upstream.received(path), "an end")


@pytest.mark.parametrize("method", READS_NOT)
def test_a_body_is_not_executed_by_an_application_that_leaves_it_unread(gateway, upstream, method):
    upstream.on(f"{method} /thing", answer_unread())
    assert gateway.request(method, "/thing", body=FORGED).status == 200
    settled(upstream, "/refunds")
    assert upstream.effects("/refunds") == 0


def test_a_chunked_body_is_not_executed_either(gateway, upstream):
    upstream.on("GET /thing", answer_unread())
    client = gateway.connect()
    client.send(b"GET /thing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    assert client.receive().status == 200
    eventually(lambda: upstream.open_connections() == 0)
    assert [request.path for request in upstream.received()] == ["/thing"]


def plant(gateway, upstream, method="GET", status=200, target="/thing"):
    """An attacker's request whose body is a request itself; the application holds its answer to that back."""
    upstream.on("/planted", answer(200, "planted", effect=False))
    upstream.on(f"{method} {target}", answer_unread(status))
    assert gateway.request(method, target, body=PLANTED).status == status


POISONS = [(method, 200) for method in READS_NOT] + [
    ("POST", 400), ("POST", 401), ("POST", 404), ("PUT", 413), ("PATCH", 422), ("POST", 500), ("DELETE", 404)]


@pytest.mark.parametrize("method, status", POISONS)
def test_an_attackers_answer_is_never_stored_for_another_client(gateway, upstream, key, method, status):
    with upstream.hold("/planted") as held:
        plant(gateway, upstream, method, status)
        victim = gateway.post_later("/refunds", key=key, json=REFUND)
        held.release()
        assert victim.json()["effect"] == 1
    assert gateway.post("/refunds", key=key, json=REFUND).json() == victim.json()
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("method, status", [("GET", 200), ("POST", 401)])
def test_an_attacker_never_gets_another_clients_receipt(gateway, upstream, key, method, status):
    with upstream.hold("/planted") as planted, upstream.hold("/refunds") as refunds:
        plant(gateway, upstream, method, status)
        victim = gateway.post_later("/refunds", key=key, json=REFUND)
        planted.release()
        gateway.wait_inside([victim])
        curious = gateway.wait_inside([gateway.send("GET", "/mine")])[0]
        refunds.release()
        assert curious.json() == {"path": "/mine"}
    assert victim.json()["effect"] == 1
    assert upstream.effects("/refunds") == 1


def test_a_planted_answer_does_not_vouch_for_a_credential(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            authorize: GET /me
        """)
    upstream.on("/me", answer(403, effect=False))
    gateway.post("/refunds", key=key, json=REFUND, auth=basic("alice", "right"))
    with upstream.hold("/planted") as held:
        plant(gateway, upstream)
        forged = gateway.post_later("/refunds", key=key, json=REFUND, auth=basic("alice", "guessed"))
        held.release()
        forged.refuses(403, "AUTH.replay_not_authorized")
    assert upstream.effects("/refunds") == 1


def test_a_planted_answer_is_not_what_a_probe_finds(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            on_unknown: probe
            probe: {request: "GET /sought?key={key}", found: {status: 200}, settle: 1h}
        """)
    upstream.on("/sought", answer(500, effect=False))
    upstream.on("POST /refunds", answer(502))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    with upstream.hold("/planted") as held:
        plant(gateway, upstream)
        again = gateway.post_later("/refunds", key=key, json=REFUND)
        held.release()
        again.refuses(409, "CONFLICT.idempotency.outcome_unknown")
    assert upstream.effects("/refunds") == 1


def test_a_retry_does_not_follow_a_body_that_was_left_unread(start_gateway, upstream, key):
    gateway = start_gateway(quick_retries())
    upstream.on("/refunds", in_turn(answer_unread(429), numbered))
    assert gateway.post("/refunds", key=key, json=REFUND).json()["effect"] == 1
    first, second = upstream.received("/refunds")
    assert first.connection != second.connection
    assert upstream.effects("/refunds") == 1


def test_an_answer_before_the_whole_body_ends_the_connection(gateway, upstream, key):
    def answer_first(exchange):
        exchange.answer(200, "soon")
        exchange.discard_body()
    upstream.on("POST /thing", answer_first)
    client = gateway.connect()
    client.send(b"POST /thing HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf ")
    assert client.receive("POST").status == 200
    eventually(lambda: upstream.open_connections() == 0)
    assert gateway.post("/refunds", key=key, json=REFUND).json()["effect"] == 1
    assert upstream.effects("/refunds") == 1


def test_bodies_that_are_read_cost_no_connection(gateway, upstream):
    for _ in range(20):
        assert gateway.post("/refunds", key=fresh_key(), json=REFUND).status == 201
        assert gateway.request("PUT", "/thing", json=REFUND).status == 201
        assert gateway.get("/missing").status == 200
    assert upstream.connections <= 4
    assert upstream.effects("/refunds") == 20


def test_errors_without_a_body_cost_no_connection(gateway, upstream):
    upstream.on("/missing", answer(404, effect=False))
    for _ in range(20):
        assert gateway.get("/missing").status == 404
    assert upstream.connections <= 4
    assert upstream.effects() == 0


def test_an_application_that_never_reads_is_safe_without_keepalive(start_gateway, upstream, key):
    """Whether it has read a body can't be told from its answer: this is what the option is for."""
    gateway = start_gateway("upstream_keepalive: off")
    upstream.on("/thing", answer_unread(201))
    for method in ("POST", "PUT", "GET"):
        assert gateway.request(method, "/thing", body=FORGED).status == 201
    eventually(lambda: upstream.open_connections() == 0)
    assert upstream.effects("/refunds") == 0
    first = gateway.post("/refunds", key=key, json=REFUND)
    assert gateway.post("/refunds", key=key, json=REFUND).json() == first.json() == {"id": "rf_1", "effect": 1}
    assert len({request.connection for request in upstream.received()}) == len(upstream.received())
    assert upstream.effects("/refunds") == 1


def test_keepalive_can_be_turned_off_while_running(start_gateway, upstream):
    gateway = start_gateway("upstream_keepalive: on")
    assert [gateway.get("/thing").status for _ in range(5)] == [200] * 5
    assert upstream.connections <= 2
    gateway.config.write_text(gateway.config.read_text().replace("upstream_keepalive: on", "upstream_keepalive: off"))
    gateway.signal(1)
    gateway.wait_events("configuration_reloaded")
    before = upstream.connections
    assert [gateway.get("/thing").status for _ in range(5)] == [200] * 5
    assert upstream.connections == before + 5
    assert upstream.effects() == 0
