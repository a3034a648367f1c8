# SPDX-License-Identifier: Apache-2.0
"""Webhooks are stored before their senders get 200, and processed once however often they come."""
import contextlib
import sqlite3
import time

import pytest

from harness import Connection, answer, eventually, in_turn, never_answer


def test_a_webhook_is_delivered_once_however_often_it_comes(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    first = hooks.github("d-1")
    assert (first.status, first.json()) == (200, {"received": True})
    assert first.header("Idempotency-Status") == "stored"
    upstream.wait_requests(1)
    for _ in range(3):
        again = hooks.github("d-1")
        assert (again.status, again.header("Idempotency-Status")) == (200, "replayed")
    assert hooks.github("d-2", b'{"a": 2}').status == 200
    hooks.wait_state("in_github", "d-2", "delivered")
    hooks.wait_state("in_github", "d-1", "delivered")
    one, two = upstream.received("/app/github")
    assert one.body == b'{"a": 1}' and one.header("X-GitHub-Event") == "push"
    assert one.header("Hapax-Event-Id") == "d-1" and one.header("Hapax-Received-At")
    assert one.key and one.key != two.key
    assert upstream.effects() == 2


def test_the_inbox_is_exported_as_a_table(hooks, hapax):
    assert hooks.github("d-1").status == 200
    hooks.wait_state("in_github", "d-1", "delivered")
    socket = f"unix:{hooks.gateway.store / 'admin.sock'}"
    done = hapax("audit", "export", "--csv", "inbox", "--source", "github", "--admin", socket)
    assert done.code == 0, done
    head, row = done.stdout.splitlines()
    assert head == "event_id,source,first_seen,processed,result"
    event, source, first_seen, processed, result = row.split(",")
    assert (event, source, result) == ("d-1", "github", "ok") and first_seen <= processed


def test_the_inbox_is_a_view_in_sqlite(start_hooks, tmp_path):
    hooks = start_hooks(store=f"sqlite:{tmp_path / 'inbox.db'}")
    assert hooks.github("d-1").status == 200
    hooks.wait_state("in_github", "d-1", "delivered")
    with contextlib.closing(sqlite3.connect(tmp_path / "inbox.db")) as database:
        query = database.execute("SELECT * FROM hapax_inbox_events")
        columns = [column[0] for column in query.description]
        assert columns == ["event_id", "source", "payload_hash", "received_at", "processed_at", "result"]
        (event, source, payload_hash, received_at, processed_at, result), = query.fetchall()
    assert (event, source, result) == ("d-1", "github", "delivered")
    assert payload_hash and received_at <= processed_at and processed_at.endswith("Z")


@pytest.mark.slow
def test_a_webhook_that_was_acknowledged_survives_a_kill(start_hooks, upstream, store):
    hooks = start_hooks(store=store)
    with upstream.hold("/app/github") as held:
        assert hooks.github("d-1").status == 200
        held.wait_arrived()
        hooks.gateway.kill()
    hooks.restart()
    hooks.wait_state("in_github", "d-1", "delivered")
    assert {request.key for request in upstream.received()} == {upstream.last().key}
    assert hooks.github("d-1").header("Idempotency-Status") == "replayed"


@pytest.mark.parametrize("send, why", [
    (lambda hooks: hooks.github("d-1", secret="another"), "No signature"),
    (lambda hooks: hooks.standard("strict", "m-1", at=1_700_000_000), "older"),
    (lambda hooks: hooks.send("github", b"{}", []), "missing"),
    (lambda hooks: hooks.send("strict", b"{}", [("webhook-id", "x")]), "missing")])
def test_what_is_not_signed_right_is_refused_with_the_check_that_failed(hooks, upstream, send, why):
    refused = send(hooks)
    assert refused.status == 401 and why in refused.json()["detail"], refused
    assert refused.json()["error_code"] == "AUTH.signature_invalid"
    assert hooks.gateway.log.wait_event("webhook_refused")["error_code"] == "AUTH.signature_invalid"
    assert hooks.call("GET", "/v1/events?source=github").json()["events"] == []
    assert upstream.received() == []


def test_another_payload_under_a_known_id_is_held_and_can_be_sent_by_hand(hooks, upstream):
    assert hooks.github("d-1").status == 200
    hooks.wait_state("in_github", "d-1", "delivered")
    assert hooks.github("d-1", b'{"a": 2}').status == 200
    assert hooks.standard("strict", "m-1").status == 200
    refused = hooks.standard("strict", "m-1", b'{"a": 2}')
    assert (refused.status, refused.json()["error_code"]) == (409, "CONFLICT.event.payload_mismatch")
    hooks.wait_state("in_strict", "m-1", "delivered")
    held = hooks.call("GET", "/v1/deliveries?state=held&endpoint=in_github").json()["deliveries"]
    assert len(held) == 1 and "another payload" in held[0]["reason"]
    assert upstream.effects() == 2
    listed = hooks.call("GET", "/v1/events?source=github").json()["events"]
    assert [one["id"] for one in listed] == [held[0]["event"], "d-1"]  # each by the id that finds it
    assert [one["recipients"] for one in listed] == [["in_github"]] * 2
    event = held[0]["event"].replace("~", "%7E")
    shown = hooks.call("GET", f"/v1/events/{event}?source=github").json()
    assert (shown["id"], shown["body"], shown["deliveries"][0]["state"]) == (held[0]["event"], '{"a": 2}', "held")
    assert hooks.call("POST", f"/v1/deliveries/in_github/{event}/redrive").status == 200
    eventually(lambda: upstream.effects() == 3, "the held event was delivered")
    assert upstream.last().body == b'{"a": 2}'


def test_a_captured_webhook_under_another_id_is_held(hooks, upstream):
    assert hooks.github("d-1").status == 200
    assert hooks.github("d-2").status == 200  # the same payload, and GitHub doesn't sign the id
    hooks.wait_state("in_github", "d-2", "held")
    hooks.wait_state("in_github", "d-1", "delivered")
    assert upstream.effects() == 1


def test_a_source_that_waits_gets_the_handlers_response(hooks, upstream):
    upstream.on("/app/waits", in_turn(answer(500, "not yet"), answer(200, "done")))
    failed = hooks.standard("waits", "m-1")
    assert (failed.status, failed.body) == (500, b"not yet")
    assert (hooks.standard("waits", "m-1").status, upstream.effects()) == (200, 2)
    again = hooks.standard("waits", "m-1")
    assert (again.status, again.header("Idempotency-Status")) == (200, "replayed")
    assert upstream.effects() == 2


def test_where_nothing_may_be_repeated_a_lost_answer_is_unknown(hooks, upstream):
    upstream.on("/app/once", never_answer)
    assert hooks.standard("once", "m-1").status == 200
    hooks.wait_state("in_once", "m-1", "unknown")
    assert hooks.standard("once", "m-1").header("Idempotency-Status") == "replayed"
    assert len(upstream.received("/app/once")) == 1
    listed = hooks.call("GET", "/v1/deliveries?state=unknown").json()["deliveries"]
    assert [delivery["event"] for delivery in listed] == ["m-1"]
    counts = hooks.call("GET", "/v1/counts").json()["events"]
    assert (counts["webhook_delivery_unknown"], counts["webhook_delivery_failure"]) == (1, 0)
    assert hooks.call("POST", "/v1/deliveries/in_once/m-1/redrive").status == 200
    changed = hooks.gateway.log.wait_event("delivery_changed")
    assert {name: changed[name] for name in ("event_id", "source", "from_state", "to_state", "attempt")} == {
        "event_id": "m-1", "source": "once", "from_state": "unknown", "to_state": "pending", "attempt": 1}


def test_a_tenant_sees_nothing_of_the_sources_of_others(hooks):
    assert hooks.github("d-1").status == 200
    hooks.wait_state("in_github", "d-1", "delivered")
    theirs = hooks.api.token("operate", "view", tenant="rival")
    assert hooks.call("GET", "/v1/events?source=github", token=theirs).json()["events"] == []
    assert hooks.call("GET", "/v1/deliveries?endpoint=in_github", token=theirs).json()["deliveries"] == []
    for method, target in [("GET", "/v1/deliveries/in_github/d-1"), ("POST", "/v1/deliveries/in_github/d-1/redrive")]:
        assert hooks.call(method, target, None if method == "GET" else {}, token=theirs).status == 404
    assert [event["id"] for event in hooks.call("GET", "/v1/events?source=github").json()["events"]] == ["d-1"]


def test_bad_requests_are_told_what_is_wrong(hooks):
    assert hooks.send("nobody", b"{}", []).status == 404
    too_large = hooks.send("github", b"x" * 300_000, [])
    assert (too_large.status, too_large.json()["error_code"]) == (413, "VALIDATION.body_too_large")
    no_id = hooks.github("")
    assert (no_id.status, no_id.json()["error_code"]) == (400, "VALIDATION.event_id_missing")
    future = hooks.standard("strict", "m-1", at=time.time() + 3600)
    assert future.status == 401 and "future" in future.json()["detail"]
    assert hooks.call("GET", "/v1/counts").json()["events"]["inbox_refused"] == 4


def test_a_body_whose_length_is_too_much_is_refused_before_it_comes(hooks):
    head = b"POST /inbox/github HTTP/1.1\r\nHost: hapax.test\r\nContent-Length: 300000\r\n\r\n"
    with Connection(hooks.inbox) as connection:
        connection.send(head)
        refused = connection.receive("POST")
    assert (refused.status, refused.json()["error_code"]) == (413, "VALIDATION.body_too_large")
