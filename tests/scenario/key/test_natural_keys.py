# SPDX-License-Identifier: Apache-2.0
"""Keys made of what a request says: the same report is one report, whoever sends no key at all."""
import threading
import time

import pytest

from harness import HANG_S, SlowDisk, WallClock, basic, fresh_key

REPORT = {"reporterId": "u1", "subjectId": "u2", "category": "spam"}
ROUTE = """
    routes:
      - name: report
        match: POST /safety/report
        key: {from: "{body:/reporterId}:{body:/subjectId}:{body:/category}:{window:1h}", shared: true}
        lifetime: 1h
    """


def test_the_same_parts_are_one_operation_and_other_parts_another(start_gateway, upstream):
    gateway = start_gateway(ROUTE)
    first = gateway.post("/safety/report", json=REPORT)
    again = gateway.post("/safety/report", json={**REPORT, "text": "and something else that is no part of the key"})
    other = gateway.post("/safety/report", json={**REPORT, "category": "abuse"})
    assert (first.idempotency, again.idempotency, other.idempotency) == ("stored", "replayed", "stored")
    assert again.body == first.body
    assert upstream.effects("/safety/report") == 2


def test_ten_at_once_are_one_execution(start_gateway, upstream):
    gateway = start_gateway(ROUTE, workers=2)
    with upstream.hold("/safety/report") as held:
        pending = [gateway.post_later("/safety/report", json=REPORT) for _ in range(10)]
        held.wait_arrived()
        held.release()
        assert len({answer.body for answer in pending}) == 1
    assert upstream.effects("/safety/report") == 1


def test_parts_never_run_into_each_other(start_gateway, upstream):
    gateway = start_gateway(ROUTE)
    for reporter, subject in (("a:b", "c"), ("a", "b:c"), ("a:b:c", "d"), (1, "c"), ("1", "c")):
        answer = gateway.post("/safety/report", json={**REPORT, "reporterId": reporter, "subjectId": subject})
        assert answer.idempotency == "stored", (reporter, subject)
    assert upstream.effects("/safety/report") == 5


@pytest.mark.parametrize("body, part", [
    ({"reporterId": "u1", "category": "spam"}, "{body:/subjectId}"),
    ({**REPORT, "subjectId": None}, "{body:/subjectId}"),
    ("not JSON", "{body:/reporterId}"),
])
def test_a_missing_part_is_refused_by_its_name(start_gateway, upstream, body, part):
    gateway = start_gateway(ROUTE)
    if isinstance(body, str):
        refused = gateway.post("/safety/report", body=body, headers={"Content-Type": "text/plain"})
    else:
        refused = gateway.post("/safety/report", json=body)
    assert part in refused.refuses(400, "VALIDATION.request_malformed")["detail"]
    assert upstream.requests == []


def test_a_part_that_the_application_does_not_get_is_missing(start_gateway, upstream):
    """What goes no further than this hop would make two operations of what is one request to the application."""
    gateway = start_gateway("""
        routes:
          - {name: orders, match: POST /orders, key: {from: "{header:X-Order}", shared: true}}
        """)
    for number in ("1", "2"):
        hidden = gateway.post("/orders", json={}, headers=[("X-Order", number), ("Connection", "x-order")])
        assert "{header:X-Order}" in hidden.refuses(400, "VALIDATION.request_malformed")["detail"]
    assert upstream.requests == []
    assert gateway.post("/orders", json={}, headers={"X-Order": "1"}).idempotency == "stored"
    assert upstream.effects("/orders") == 1


def test_the_application_gets_the_key_as_hexadecimal_and_never_the_clients(start_gateway, upstream):
    gateway = start_gateway(ROUTE)
    gateway.post("/safety/report", json=REPORT, key=fresh_key())
    gateway.post("/safety/report", json={**REPORT, "category": "abuse"})
    sent = [request.all("Idempotency-Key") for request in upstream.requests]
    assert all(len(keys) == 1 and len(keys[0]) == 64 and int(keys[0], 16) for keys in sent)
    assert sent[0] != sent[1]


def test_a_header_counts_instead_where_it_is_preferred(start_gateway, upstream):
    gateway = start_gateway(ROUTE.replace("shared: true", "shared: true, prefer: header"))
    one, two = fresh_key(), fresh_key()
    assert gateway.post("/safety/report", json=REPORT, key=one).idempotency == "stored"
    assert gateway.post("/safety/report", json=REPORT, key=two).idempotency == "stored"
    assert gateway.post("/safety/report", json=REPORT, key=one).idempotency == "replayed"
    assert gateway.post("/safety/report", json=REPORT).idempotency == "stored"
    assert gateway.post("/safety/report", json=REPORT).idempotency == "replayed"
    assert upstream.effects("/safety/report") == 3


def test_a_refusal_under_a_preferred_key_is_kept(start_gateway, upstream):
    """That 4xx free the key is for keys which say the same whenever the request does."""
    gateway = start_gateway(ROUTE.replace("shared: true", "shared: true, prefer: header"))
    upstream.on("/safety/report", lambda exchange: (exchange.read_body(), exchange.execute(), exchange.answer(422)))
    key = fresh_key()
    said = [gateway.post("/safety/report", json=REPORT, key=each).idempotency for each in (key, key, None, None)]
    assert said == ["stored", "replayed", "released", "released"]
    assert upstream.effects("/safety/report") == 3


def test_a_natural_key_never_meets_a_client_s(start_gateway, upstream):
    """A client that sends the hexadecimal text of a natural key as its own asks for another operation."""
    gateway = start_gateway(ROUTE.replace("shared: true", "shared: true, prefer: header"))
    gateway.post("/safety/report", json=REPORT)
    key = upstream.requests[0].header("Idempotency-Key")
    assert gateway.post("/safety/report", json=REPORT, key=key).idempotency == "stored"
    assert upstream.effects("/safety/report") == 2


def test_client_errors_are_released_and_may_be_mended(start_gateway, upstream):
    gateway = start_gateway(ROUTE)
    upstream.on("/safety/report", lambda exchange: (exchange.read_body(), exchange.execute(), exchange.answer(422)))
    assert gateway.post("/safety/report", json=REPORT).idempotency == "released"
    assert gateway.post("/safety/report", json=REPORT).idempotency == "released"
    assert upstream.effects("/safety/report") == 2


def test_callers_are_told_apart(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - name: messages
            match: POST /matches/{id}/messages
            require_principal: true
            key: {from: "{path:id}:{body:/clientMessageId}"}
        """)
    message = {"content": "Hello!", "clientMessageId": "m-1"}
    for who in ("alice", "bob"):
        for match in ("7", "8"):
            for expected in ("stored", "replayed"):
                answer = gateway.post(f"/matches/{match}/messages", json=message, auth=basic(who, "secret"))
                assert answer.idempotency == expected
    gateway.post("/matches/7/messages", json=message).refuses(401, "AUTH.principal_missing")
    assert len(upstream.effect_log) == 4


def test_photos_are_one_by_their_content_whatever_the_boundary(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - name: photos
            match: POST /photos
            require_principal: true
            key: {from: "{sha256:body}"}
            body_max: 4MiB
        """)

    def upload(content, boundary):
        body = (f'--{boundary}\r\nContent-Disposition: form-data; name="photo"; filename="a.jpg"\r\n\r\n'.encode()
                + content + f"\r\n--{boundary}--\r\n".encode())
        return gateway.post("/photos", body=body, auth=basic("alice", "secret"),
                            headers={"Content-Type": f"multipart/form-data; boundary={boundary}"})

    photo = bytes(range(256)) * (3 << 12)  # 3 MiB
    first = upload(photo, "one")
    again = upload(photo, "two")
    other = upload(photo[:-1] + b"!", "two")
    assert (first.idempotency, again.idempotency, other.idempotency) == ("stored", "replayed", "stored")
    assert again.body == first.body
    assert upstream.effects("/photos") == 2


def test_the_next_window_is_another_operation(start_gateway, upstream, tmp_path):
    clock = WallClock(tmp_path)
    gateway = start_gateway(ROUTE.replace("shared: true", "shared: true, overlap: 0s"), env=clock.env)
    first = gateway.post("/safety/report", json=REPORT)
    clock.set_ahead(1)
    gateway.restart()
    assert gateway.post("/safety/report", json=REPORT).body != first.body
    assert upstream.effects("/safety/report") == 2


def test_a_retry_just_after_the_boundary_finds_what_began_before_it(start_gateway, upstream):
    """Windows of a second make boundaries that come by themselves; the overlap is a minute, over many of them."""
    gateway = start_gateway("""
        routes:
          - name: tick
            match: POST /tick
            key: {from: "{body:/id}:{window:1s}", shared: true, overlap: 60s}
        """)
    first = gateway.post("/tick", json={"id": "a"})
    began = int(time.time())
    while int(time.time()) == began:
        again = gateway.post("/tick", json={"id": "a"})
        assert again.body == first.body
    assert gateway.post("/tick", json={"id": "a"}).body == first.body
    assert upstream.effects("/tick") == 1


def test_a_request_in_flight_across_the_boundary_is_waited_for(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - name: tick
            match: POST /tick
            key: {from: "{body:/id}:{window:1s}", shared: true, overlap: 60s}
        """)
    with upstream.hold("/tick") as held:
        first = gateway.post_later("/tick", json={"id": "a"})
        held.wait_arrived()
        began = int(time.time())
        while int(time.time()) == began:
            time.sleep(0.01)  # the boundary is an event of the clock's
        again = gateway.post_later("/tick", json={"id": "a"})
        again.wait_read()
        held.release()
        assert again.body == first.body
    assert upstream.effects("/tick") == 1


@pytest.mark.slow
def test_requests_on_both_sides_of_boundaries_never_both_execute(start_gateway, upstream):
    """Many pairs, sent as close to a boundary as can be, on two workers: one effect each, or a 409 to try again."""
    gateway = start_gateway("""
        routes:
          - name: tick
            match: POST /tick
            key: {from: "{body:/id}:{window:1s}", shared: true, overlap: 60s}
        """, workers=2)
    for boundary in range(6):
        target = int(time.time()) + 1
        ids = [f"{boundary}-{n}" for n in range(8)]
        while time.time() < target - 0.002:
            pass
        early = [gateway.post_later("/tick", json={"id": name}) for name in ids]
        late = [gateway.post_later("/tick", json={"id": name}) for name in ids]
        for pending in early + late:
            assert pending.status in (201, 409)
        for name in ids:
            executed = [request for request in upstream.requests if request.json() == {"id": name}]
            assert len(executed) <= 1, name


@pytest.mark.slow
def test_two_claims_of_one_commit_on_both_sides_of_a_boundary_are_one_execution_at_most(start_gateway, upstream,
                                                                                        tmp_path):
    """The disk holds both back, so that each sees the other when it is durable: both may give way, never none."""
    disk = SlowDisk(tmp_path)
    gateway = start_gateway("""
        routes:
          - name: tick
            match: POST /tick
            key: {from: "{body:/id}:{window:2s}", shared: true, overlap: 60s}
        """, env=disk.env)
    gateway.post("/other", key=fresh_key(), json={})
    boundary = (int(time.time()) // 2 + 2) * 2
    while time.time() < boundary - 0.3:
        time.sleep(0.001)  # the boundary is an event of the clock's
    with disk.held():
        gateway.post_later("/other", key=fresh_key(), json={})
        disk.wait_for_commit()
        before = gateway.post_later("/tick", json={"id": "a"})
        while time.time() < boundary + 0.05:
            time.sleep(0.001)
        after = gateway.post_later("/tick", json={"id": "a"})
    assert {before.status, after.status} <= {201, 409}
    assert upstream.effects("/tick") <= 1
    assert gateway.post("/tick", json={"id": "a"}).status == 201
    assert upstream.effects("/tick") == 1


def test_an_operation_of_the_bucket_before_that_is_gone_is_begun_in_its_own(start_gateway, upstream, hapax):
    """While the application is asked about a credential, an operator forgets what was adopted: others begin it in the
    bucket of now, and so must this one."""
    gateway = start_gateway("""
        routes:
          - name: pay
            match: POST /pay
            authorize: GET /check
            key: {from: "{body:/id}:{window:2s}", overlap: 60s}
        """)
    first = gateway.post("/pay", json={"id": "a"}, auth=basic("alice", "one"))
    began = int(time.time()) // 2
    while int(time.time()) // 2 == began:
        time.sleep(0.01)
    asked, go = threading.Event(), threading.Event()
    upstream.on("/check", lambda exchange: (asked.set(), go.wait(HANG_S), exchange.answer(204)))
    slow = gateway.post_later("/pay", json={"id": "a"}, auth=basic("alice", "two"))
    assert asked.wait(HANG_S)
    forgotten = hapax("keys", "forget", "--state", "completed", "--yes", "--why", "a test", "--store",
                      gateway.store_url)
    assert forgotten.code == 0, forgotten
    other = gateway.post("/pay", json={"id": "a"}, auth=basic("alice", "two"))
    go.set()
    assert other.idempotency == "stored" and other.body != first.body
    assert slow.body == other.body
    assert upstream.effects("/pay") == 2
