# SPDX-License-Identifier: Apache-2.0
"""Death at every point of a request's life, for each guarantee: what the next request sees, and that nothing was done
twice. docs/STATES.md is the table of these."""
import urllib.parse

import pytest

from harness import (EXIT_STORE, BrokenDisk, Deduplicating, Disconnected, SlowDisk, answer, drop_after_effect,
                     eventually, fresh_key, in_turn, numbered, quick_retries)

UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
REFUND = {"amount": 1000}
LARGE = b"0123456789abcdef" * 300_000
JSON = [("Content-Type", "application/json")]
GUARANTEES = pytest.mark.parametrize("guarantee", ["none", "atomic", "idempotent"])


@pytest.fixture
def disk(tmp_path):
    return SlowDisk(tmp_path)


def start(start_gateway, guarantee, disk=None, **options):
    options = {"retry": "{attempts: 1}", **options}
    return start_gateway(quick_retries(guarantee=guarantee, **options), env=disk.env if disk else None)


def kill_while_recording(gateway, upstream, disk, key):
    """Sends a refund, kills the gateway while what came of it waits for the disk, and starts it again."""
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        with disk.held():
            held.release()
            disk.wait_for_commit()
            assert_not_answered(pending)
            gateway.kill()
    assert_lost(pending)
    gateway.start()


def assert_lost(pending):
    """Its client got not one byte."""
    with pytest.raises((Disconnected, ConnectionResetError)):
        print(pending.response)


def assert_not_answered(pending):
    pending.connection.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        pending.connection.sock.recv(1)
    pending.connection.sock.settimeout(60)


def settled_or_held(gateway, upstream, key, guarantee):
    """The next request gets an outcome or, without a guarantee to rely on, is told that it is not known; never more
    than one effect. Whatever it is, it stays."""
    first = gateway.post("/refunds", key=key, json=REFUND)
    if first.status == 409:
        assert guarantee != "idempotent"
        first.refuses(409, UNKNOWN)
        gateway.post("/refunds", key=key, json=REFUND).refuses(409, UNKNOWN)
        assert upstream.effects("/refunds") <= 1
    else:
        assert first.status == 201
        again = gateway.post("/refunds", key=key, json=REFUND)
        assert (again.status, again.body, again.idempotency) == (201, first.body, "replayed")
        assert upstream.effects("/refunds") == 1
    return first


@GUARANTEES
def test_kill_while_the_claim_is_being_recorded(start_gateway, upstream, key, disk, guarantee):
    """Nothing was sent; whether the claim is on disk decides between running and unknown."""
    gateway = start(start_gateway, guarantee, disk)
    with disk.held():
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        disk.wait_for_commit()
        assert upstream.received("/refunds") == []
        gateway.kill()
    assert_lost(pending)
    gateway.start()
    first = settled_or_held(gateway, upstream, key, guarantee)
    assert len(upstream.received("/refunds")) == (1 if first.status == 201 else 0)


@GUARANTEES
def test_kill_before_a_connection_could_be_made(start_gateway, start_upstream, key, guarantee):
    """The claim is durable and not one byte was sent: the next start can't tell that from one that was."""
    application = start_upstream(listening=False)
    gateway = start_gateway(quick_retries(guarantee=guarantee, retry="{base: 20s, cap: 20s, total: 60s}"),
                            upstream=application)
    pending = gateway.post_later("/refunds", key=key, json=REFUND)
    gateway.wait_events("retry_scheduled")
    gateway.kill()
    assert_lost(pending)
    application.listen()
    gateway.start()
    response = settled_or_held(gateway, application, key, guarantee)
    assert response.status == (201 if guarantee == "idempotent" else 409)
    assert application.effects("/refunds") == (1 if guarantee == "idempotent" else 0)


@GUARANTEES
def test_kill_while_the_application_is_at_work(start_gateway, upstream, key, guarantee):
    gateway = start(start_gateway, guarantee)
    upstream.on("/refunds", Deduplicating())
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.kill()
    assert_lost(pending)
    gateway.start()
    response = settled_or_held(gateway, upstream, key, guarantee)
    assert response.status == (201 if guarantee == "idempotent" else 409)
    assert len(upstream.received("/refunds")) == (2 if guarantee == "idempotent" else 1)
    assert upstream.effects("/refunds") == 1


@GUARANTEES
def test_kill_while_the_outcome_is_being_recorded(start_gateway, upstream, key, disk, guarantee):
    gateway = start(start_gateway, guarantee, disk)
    upstream.on("/refunds", Deduplicating())
    kill_while_recording(gateway, upstream, disk, key)
    settled_or_held(gateway, upstream, key, guarantee)
    assert len(upstream.received("/refunds")) <= (2 if guarantee == "idempotent" else 1)
    assert upstream.effects("/refunds") == 1


@GUARANTEES
def test_kill_while_unknown_is_being_recorded(start_gateway, upstream, key, disk, guarantee):
    gateway = start(start_gateway, guarantee, disk)
    upstream.on("/refunds", Deduplicating("close"))
    kill_while_recording(gateway, upstream, disk, key)
    response = settled_or_held(gateway, upstream, key, guarantee)
    assert response.status == (201 if guarantee == "idempotent" else 409)
    assert upstream.effects("/refunds") == 1


@GUARANTEES
def test_kill_while_a_release_is_being_recorded(start_gateway, upstream, key, disk, guarantee):
    gateway = start(start_gateway, guarantee, disk)
    upstream.on("/refunds", in_turn(answer(403, "no", effect=False), numbered))
    kill_while_recording(gateway, upstream, disk, key)
    settled_or_held(gateway, upstream, key, guarantee)


@GUARANTEES
def test_kill_while_a_late_answer_is_awaited(start_gateway, upstream, key, guarantee):
    gateway = start(start_gateway, guarantee, upstream_timeout="1s")
    upstream.on("/refunds", Deduplicating())
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        assert (pending.status, pending.idempotency) == (504, "unknown")
        gateway.kill()
    gateway.start()
    response = settled_or_held(gateway, upstream, key, guarantee)
    assert response.status == (201 if guarantee == "idempotent" else 409)
    assert upstream.effects("/refunds") == 1


@GUARANTEES
def test_kill_while_the_answer_is_being_sent(start_gateway, upstream, key, guarantee):
    gateway = start(start_gateway, guarantee)
    upstream.on("/refunds", answer(201, LARGE))
    pending = gateway.post_later("/refunds", key=key, json=REFUND)
    status, _, headers = pending.connection.receive_head()
    assert (status, dict(headers)["Idempotency-Status"]) == (201, "stored")
    gateway.restart("kill")
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.idempotency, again.body == LARGE) == (201, "replayed", True)
    assert len(upstream.received("/refunds")) == 1
    assert upstream.effects("/refunds") == 1


def test_kill_while_an_unknown_operation_is_sent_again(start_gateway, upstream, key):
    gateway = start(start_gateway, "idempotent")
    upstream.on("/refunds", Deduplicating("close"))
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.kill()
    assert_lost(pending)
    gateway.start()
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "stored"
    epochs = [int(request.header("Hapax-Operation").rsplit(".", 1)[1]) for request in upstream.received("/refunds")]
    assert len(epochs) == 3
    assert epochs == sorted(set(epochs))
    assert upstream.effects("/refunds") == 1


PROBING = """
    routes:
      - match: POST /refunds
        on_unknown: probe
        probe:
          request: GET /refunds?key={key}
          found: {status: 200, pointer: /data/0}
          answer: {status: 201, body: /data/0}
          settle: 1h
    """


@pytest.fixture
def refunds(upstream):
    """Drops the answers of its refunds, and tells what it has when asked."""
    def find(exchange):
        wanted = dict(urllib.parse.parse_qsl(exchange.request.query))["key"]
        found = [{"id": "rf_1"}] if upstream.effects_by_key[wanted] else []
        exchange.arrive()
        exchange.answer(200, {"data": found}, JSON)
    upstream.on("POST /refunds", drop_after_effect())
    upstream.on("GET /refunds", find)
    return upstream


def posts(upstream):
    return len([request for request in upstream.received("/refunds") if request.method == "POST"])


def test_kill_while_a_probe_is_asked(start_gateway, refunds, key):
    gateway = start_gateway(PROBING)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    with refunds.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.kill()
    assert_lost(pending)
    gateway.start()
    found = gateway.post("/refunds", key=key, json=REFUND)
    assert (found.status, found.json()) == (201, {"id": "rf_1"})
    assert posts(refunds) == refunds.effects("/refunds") == 1


def test_kill_while_what_the_probe_found_is_being_recorded(start_gateway, refunds, key, disk):
    gateway = start_gateway(PROBING, env=disk.env)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    kill_while_recording(gateway, refunds, disk, key)
    found = gateway.post("/refunds", key=key, json=REFUND)
    assert (found.status, found.json()) == (201, {"id": "rf_1"})
    assert posts(refunds) == refunds.effects("/refunds") == 1


def test_client_that_leaves_while_a_probe_is_asked(start_gateway, refunds, key):
    gateway = start_gateway(PROBING)
    assert gateway.post("/refunds", key=key, json=REFUND).idempotency == "unknown"
    with refunds.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        pending.connection.reset()
        gateway.get("/other")
    found = gateway.post("/refunds", key=key, json=REFUND)
    assert (found.status, found.json()) == (201, {"id": "rf_1"})
    assert posts(refunds) == refunds.effects("/refunds") == 1


def test_client_that_leaves_while_the_outcome_is_being_recorded(start_gateway, upstream, key, disk):
    gateway = start(start_gateway, "none", disk)
    with upstream.hold("/refunds") as held:
        pending = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        with disk.held():
            held.release()
            disk.wait_for_commit()
            pending.connection.reset()
            gateway.get("/other")
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.status, again.idempotency) == (201, "replayed")
    assert upstream.effects("/refunds") == 1


def test_client_that_leaves_while_its_answer_is_being_sent(start_gateway, upstream, key):
    gateway = start(start_gateway, "none")
    upstream.on("/refunds", answer(201, LARGE))
    pending = gateway.post_later("/refunds", key=key, json=REFUND)
    assert pending.connection.receive_head()[0] == 201
    pending.connection.reset()
    again = gateway.post("/refunds", key=key, json=REFUND)
    assert (again.idempotency, again.body == LARGE) == ("replayed", True)
    assert upstream.effects("/refunds") == 1


@GUARANTEES
@pytest.mark.parametrize("when", ["claim", "outcome"])
def test_failed_sync_stops_the_gateway_before_anyone_is_told(start_gateway, upstream, key, tmp_path, guarantee, when):
    disk = BrokenDisk(tmp_path)
    gateway = start(start_gateway, guarantee, disk)
    gateway.expected_exits.add(EXIT_STORE)
    upstream.on("/refunds", Deduplicating())
    with upstream.hold("/refunds") as held:
        if when == "claim":
            disk.breaks()
        pending = gateway.send("POST", "/refunds", key=key, json=REFUND)
        if when == "outcome":
            held.wait_arrived()
            disk.breaks()
            held.release()
        assert gateway.wait_exit() == EXIT_STORE
    assert_lost(pending)
    assert len(upstream.received("/refunds")) == (0 if when == "claim" else 1)
    disk.is_repaired()
    gateway.start()
    settled_or_held(gateway, upstream, key, guarantee)


@GUARANTEES
def test_stop_past_the_lease_shows_nobody_another_answer(start_gateway, upstream, guarantee):
    """Paused for longer than its lease, its claim may have lapsed. Whoever is told of a success is told of the one that
    stays; the application does not deduplicate here, so that two would differ."""
    gateway = start_gateway(quick_retries(guarantee=guarantee, lease="1s", wait="2s", upstream_timeout="10s",
                                          retry="{attempts: 1}"))
    key = fresh_key()
    with upstream.hold("/refunds") as held:
        first = gateway.post_later("/refunds", key=key, json=REFUND)
        held.wait_arrived()
        gateway.pause()
        second = gateway.send("POST", "/refunds", key=key, json=REFUND)
        held.released.wait(1.3)  # being stopped for longer than the lease is the point
        gateway.resume()
        second.wait_read()
        held.release()
        everyone = [first.response, second.response]
    final = eventually(lambda: replayed(gateway, key), "the operation being settled")
    for response in everyone:
        if response.status == 201:
            assert response.body == final.body
        else:
            assert response.status in (409, 504), response
    assert upstream.effects("/refunds") <= (2 if guarantee == "idempotent" else 1)


def replayed(gateway, key):
    response = gateway.post("/refunds", key=key, json=REFUND)
    return response if response.idempotency == "replayed" else None
