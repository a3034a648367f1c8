# SPDX-License-Identifier: Apache-2.0
"""`rate` and `quota`: how much one principal may ask of one route. A refused request has no effect, costs no other
principal anything, and says when to come back."""
import socket
import textwrap

import pytest

from harness import Connection, answer, basic, drop_after_effect, eventually, fresh_key, hours_ahead

EXCEEDED = "RATE_LIMIT.exceeded"
UNKNOWN = "CONFLICT.idempotency.outcome_unknown"
ALICE, BOB = basic("alice", "secret"), basic("bob", "secret")


def limited(**options):
    lines = "".join(f"            {name}: {value}\n" for name, value in options.items())
    return f"""
        routes:
          - name: refunds
            match: POST /refunds
{lines}
          - name: charges
            match: POST /charges
        """


def retry_after(response):
    return int(response.header("Retry-After"))


def test_requests_above_the_rate_are_refused_and_have_no_effect(start_gateway, upstream):
    gateway = start_gateway(limited(rate="5/h"))
    for _ in range(5):
        assert gateway.post("/refunds", key=fresh_key(), auth=ALICE).idempotency == "stored"
    for _ in range(3):
        refused = gateway.post("/refunds", key=fresh_key(), auth=ALICE)
        problem = refused.refuses(429, EXCEEDED)
        assert problem["retryable"] is True
        assert 700 <= retry_after(refused) <= 720  # a fifth of an hour, evenly
    assert upstream.effects() == len(upstream.requests) == 5


def test_operators_see_what_was_refused(start_gateway, upstream):
    gateway = start_gateway(limited(rate="2/h", quota=1))
    assert [gateway.post("/refunds", key=fresh_key()).status for _ in range(3)] == [201, 429, 429]
    with Connection(str(gateway.store / "admin.sock"), socket.AF_UNIX) as connection:
        limits = connection.request("GET", "/v1/counts").json()["limits"]
    assert limits == {"rate_refused": 1, "rate_crowded": 0, "quota_refused": 1, "quota_crowded": 0, "found_crowded": 0}
    assert upstream.effects() == 1


def test_two_principals_and_two_routes_do_not_share_a_rate(start_gateway, upstream):
    gateway = start_gateway(limited(rate="2/h"))
    for who in (ALICE, BOB, None):
        assert [gateway.post("/refunds", key=fresh_key(), auth=who).status for _ in range(3)] == [201, 201, 429]
    for _ in range(4):
        assert gateway.post("/charges", key=fresh_key(), auth=ALICE).status == 201
    assert (upstream.effects("/refunds"), upstream.effects("/charges")) == (6, 4)


def test_a_rate_refills_evenly(start_gateway, upstream):
    gateway = start_gateway(limited(rate="4/s"))
    answers = [gateway.post("/refunds", key=fresh_key(), auth=ALICE) for _ in range(40)]
    assert [response.status for response in answers[:4]] == [201] * 4
    assert 429 in [response.status for response in answers]
    eventually(lambda: gateway.post("/refunds", key=fresh_key(), auth=ALICE).status == 201, "a request let in again")
    assert upstream.effects() == len(upstream.requests)


def test_replays_count_against_the_rate(start_gateway, upstream, key):
    gateway = start_gateway(limited(rate="3/h"))
    first = gateway.post("/refunds", key=key, auth=ALICE)
    for _ in range(2):
        assert gateway.post("/refunds", key=key, auth=ALICE).body == first.body
    gateway.post("/refunds", key=key, auth=ALICE).refuses(429, EXCEEDED)
    assert upstream.effects() == 1


def test_a_request_above_the_rate_is_refused_before_its_body_is_read(start_gateway, upstream):
    gateway = start_gateway(limited(rate="1/h"))
    assert gateway.post("/refunds", key=fresh_key()).status == 201
    connection = gateway.connect()
    connection.send(b"POST /refunds HTTP/1.1\r\nHost: h\r\nIdempotency-Key: " + fresh_key().encode() +
                    b"\r\nContent-Length: 1000\r\n\r\n")
    connection.receive("POST").refuses(429, EXCEEDED)
    assert upstream.effects() == 1


def test_workers_share_one_rate(start_gateway, upstream):
    gateway = start_gateway(limited(rate="10/h"), workers=2)
    pending = [gateway.send("POST", "/refunds", key=fresh_key(), auth=ALICE) for _ in range(40)]
    statuses = sorted(each.response.status for each in pending)
    assert statuses == [201] * 10 + [429] * 30
    assert upstream.effects() == 10


def test_paths_without_a_route_share_one_rate(start_gateway, upstream):
    gateway = start_gateway("""
        defaults:
          rate: 3/h
        """)
    statuses = [gateway.post(f"/path/{number}", key=fresh_key(), auth=ALICE).status for number in range(5)]
    assert statuses == [201, 201, 201, 429, 429]
    assert upstream.effects() == 3


def test_keys_above_the_quota_are_refused_and_have_no_effect(start_gateway, upstream):
    gateway = start_gateway(limited(quota=3))
    keys = [fresh_key() for _ in range(3)]
    for each in keys:
        assert gateway.post("/refunds", key=each, auth=ALICE).idempotency == "stored"
    refused = gateway.post("/refunds", key=fresh_key(), auth=ALICE)
    refused.refuses(429, EXCEEDED)
    assert 86300 <= retry_after(refused) <= 86400 * 33 / 32 + 1  # when the first of them has lived its day
    for each in keys:  # those that are there are replayed as ever
        assert gateway.post("/refunds", key=each, auth=ALICE).idempotency == "replayed"
    assert gateway.post("/refunds", key=fresh_key(), auth=BOB).status == 201
    assert gateway.post("/charges", key=fresh_key(), auth=ALICE).status == 201
    assert (upstream.effects("/refunds"), upstream.effects("/charges")) == (4, 1)


def test_what_is_in_flight_counts_and_its_duplicates_do_not(start_gateway, upstream):
    gateway = start_gateway(limited(quota=2))
    keys = [fresh_key(), fresh_key()]
    with upstream.hold("/refunds") as held:
        first = [gateway.post_later("/refunds", key=each) for each in keys]
        held.wait_arrived(2)
        again = gateway.post_later("/refunds", key=keys[0])
        gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    assert [each.status for each in (*first, again)] == [201] * 3
    assert upstream.effects() == 2


def test_many_at_once_with_one_key_take_one_place(start_gateway, upstream, key):
    gateway = start_gateway(limited(quota=2), workers=2)
    with upstream.hold("/refunds") as held:
        pending = gateway.post_together("/refunds", key=key, times=10)
        held.wait_arrived()
    assert {each.response.status for each in pending} == {201}
    assert gateway.post("/refunds", key=fresh_key()).status == 201
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    assert upstream.effects() == 2


def test_what_is_released_gives_its_place_back(start_gateway, upstream):
    gateway = start_gateway(limited(quota=1))
    upstream.on("/refunds", answer(403, "no", effect=False))
    for _ in range(3):
        assert gateway.post("/refunds", key=fresh_key()).status == 403
    upstream.on("/refunds", answer(201, "yes"))
    assert gateway.post("/refunds", key=fresh_key()).idempotency == "stored"
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    assert upstream.effects() == 1


def test_what_failed_keeps_its_place(start_gateway, upstream):
    gateway = start_gateway(limited(quota=1))
    upstream.on("/refunds", answer(422, "no"))
    assert gateway.post("/refunds", key=fresh_key()).idempotency == "stored"
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    assert upstream.effects() == 1


def test_what_is_unknown_keeps_its_place_until_an_operator_settles_it(start_gateway, upstream, hapax, key):
    gateway = start_gateway(limited(quota=1))
    upstream.on("/refunds", drop_after_effect())
    assert gateway.post("/refunds", key=key).idempotency == "unknown"
    upstream.on("/refunds", answer(201, "yes"))
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    gateway.post("/refunds", key=key).refuses(409, UNKNOWN)
    resolved = hapax("keys", "resolve", key, "--release", "--why", "it is not in the books", "--store",
                     gateway.store_url)
    assert resolved.code == 0, resolved
    assert gateway.post("/refunds", key=fresh_key()).idempotency == "stored"
    assert upstream.effects() == 2


def test_what_an_operator_forgets_gives_its_place_back(start_gateway, upstream, hapax, key):
    gateway = start_gateway(limited(quota=1))
    assert gateway.post("/refunds", key=key).idempotency == "stored"
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    forgotten = hapax("keys", "forget", key, "--why", "a test", "--store", gateway.store_url)
    assert forgotten.code == 0, forgotten
    assert gateway.post("/refunds", key=fresh_key()).idempotency == "stored"
    assert upstream.effects() == 2


def counted(gateway, starts):
    """Returns once this start has found the keys of the earlier ones."""
    gateway.wait_events("quota_counted", starts)


@pytest.mark.parametrize("how", ["kill", "drain"])
def test_a_restart_forgets_no_quota(start_gateway, upstream, how):
    gateway = start_gateway(limited(quota=3))
    counted(gateway, 1)
    keys = [fresh_key() for _ in range(2)]
    for each in keys:
        assert gateway.post("/refunds", key=each, auth=ALICE).status == 201
    upstream.on("/refunds", drop_after_effect())
    assert gateway.post("/refunds", key=fresh_key(), auth=ALICE).idempotency == "unknown"
    upstream.on("/refunds", answer(201, "yes"))
    gateway.restart(how)
    counted(gateway, 2)
    gateway.post("/refunds", key=fresh_key(), auth=ALICE).refuses(429, EXCEEDED)
    assert gateway.post("/refunds", key=keys[0], auth=ALICE).idempotency == "replayed"
    assert gateway.post("/refunds", key=fresh_key(), auth=BOB).status == 201
    assert upstream.effects() == 4


def reload(gateway, hapax, config):
    gateway.config.write_text(textwrap.dedent(config), encoding="utf-8")
    result = hapax("reload", "--store", gateway.store_url)
    assert result.code == 0, result


def test_a_first_quota_counts_the_keys_that_are_there(start_gateway, upstream, hapax):
    gateway = start_gateway(limited(), workers=2)
    keys = [fresh_key() for _ in range(3)]
    for each in keys:
        assert gateway.post("/refunds", key=each).status == 201
    with upstream.hold("/refunds") as held:
        under_way = gateway.post_later("/refunds", key=fresh_key())
        held.wait_arrived()
        reload(gateway, hapax, limited(quota=5))
        counted(gateway, 1)
        assert gateway.post("/charges", key=fresh_key()).status == 201
    assert under_way.status == 201
    assert gateway.post("/refunds", key=fresh_key()).status == 201
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    assert gateway.post("/refunds", key=keys[0]).idempotency == "replayed"
    assert upstream.effects("/refunds") == 5


def test_a_changed_limit_holds_at_once(start_gateway, upstream, hapax):
    gateway = start_gateway(limited(quota=2, rate="1000/h"), workers=2)
    assert [gateway.post("/refunds", key=fresh_key()).status for _ in range(3)] == [201, 201, 429]
    reload(gateway, hapax, limited(quota=3, rate="1000/h"))
    assert [gateway.post("/refunds", key=fresh_key()).status for _ in range(2)] == [201, 429]
    reload(gateway, hapax, limited(rate="2/h"))
    assert [gateway.post("/refunds", key=fresh_key()).status for _ in range(3)] == [201, 201, 429]
    assert upstream.effects("/refunds") == 5


def test_keys_free_their_places_when_they_expire(start_gateway, upstream):
    gateway = start_gateway(limited(quota=2, lifetime="2h"))
    counted(gateway, 1)
    for _ in range(2):
        assert gateway.post("/refunds", key=fresh_key()).status == 201
    gateway.restart(env=hours_ahead(1))
    counted(gateway, 2)
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    gateway.restart(env=hours_ahead(3))
    counted(gateway, 3)
    assert [gateway.post("/refunds", key=fresh_key()).status for _ in range(3)] == [201, 201, 429]
    assert upstream.effects() == 4


@pytest.mark.slow
def test_keys_free_their_places_while_it_runs(start_gateway, upstream):
    gateway = start_gateway(limited(quota=1, lifetime="3s", lease="1s", upstream_timeout="1s",
                                    retry="{attempts: 1, total: 1s}"))
    assert gateway.post("/refunds", key=fresh_key()).status == 201
    refused = gateway.post("/refunds", key=fresh_key())
    refused.refuses(429, EXCEEDED)
    assert 3 <= retry_after(refused) <= 5
    eventually(lambda: gateway.post("/refunds", key=fresh_key()).status == 201, "a place that is free again")
    assert upstream.effects() == 2


def test_what_is_sent_again_is_one_key(start_gateway, upstream, key):
    gateway = start_gateway(limited(quota=2, guarantee="idempotent", retry="{attempts: 1}"))
    upstream.on("/refunds", drop_after_effect())
    assert gateway.post("/refunds", key=key).idempotency == "unknown"
    upstream.on("/refunds", answer(201, "yes"))
    assert gateway.post("/refunds", key=key).idempotency == "stored"  # taken over
    assert gateway.post("/refunds", key=fresh_key()).idempotency == "stored"
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    assert upstream.effects() == 3


def test_what_a_probe_frees_gives_its_place_back(start_gateway, upstream, key):
    gateway = start_gateway(limited(quota=1, on_unknown="probe", probe="{request: 'GET /found?key={key}', "
                                    "absent: {status: 404}, found: {status: 200}, settle: 10ms}"))
    upstream.on("/refunds", drop_after_effect())
    upstream.on("GET /found", answer(404, "no", effect=False))
    assert gateway.post("/refunds", key=key).idempotency == "unknown"
    upstream.on("/refunds", answer(403, "no", effect=False))
    eventually(lambda: gateway.post("/refunds", key=key).status == 403, "the probe to free it, and the release")
    upstream.on("/refunds", answer(201, "yes"))
    assert gateway.post("/refunds", key=fresh_key()).idempotency == "stored"
    gateway.post("/refunds", key=fresh_key()).refuses(429, EXCEEDED)
    assert upstream.effects() == 2


def test_what_an_operator_forgets_in_bulk_gives_its_places_back(start_gateway, upstream, hapax):
    gateway = start_gateway(limited(quota=3))
    for _ in range(3):
        assert gateway.post("/refunds", key=fresh_key()).idempotency == "stored"
    forgotten = hapax("keys", "forget", "--route", "refunds", "--yes", "--why", "a test", "--store",
                      gateway.store_url)
    assert forgotten.code == 0, forgotten
    assert [gateway.post("/refunds", key=fresh_key()).status for _ in range(4)] == [201, 201, 201, 429]
    assert upstream.effects() == 6


def test_workers_share_one_quota(start_gateway, upstream):
    gateway = start_gateway(limited(quota=7), workers=2)
    pending = [gateway.send("POST", "/refunds", key=fresh_key(), auth=ALICE) for _ in range(30)]
    assert sorted(each.response.status for each in pending) == [201] * 7 + [429] * 23
    assert upstream.effects() == 7
