# SPDX-License-Identifier: Apache-2.0
"""A store that can't be reached: requests are refused, unless their route lets them pass unrecorded."""
import contextlib
import textwrap

import pytest

from harness import answer, basic, drop_after_effect, fresh_key

UNAVAILABLE = "DEPENDENCY.unavailable"
LETS_PASS = "store_down_passes"
ROUTES = """
    routes:
      - {name: refunds, match: POST /refunds}
      - {name: likes, match: POST /likes, on_store_down: pass}
      - {name: otp, match: POST /otp, on_store_down: pass, key: {from: "{body:/phone}", shared: true}}
      - {name: again, match: POST /again, on_store_down: pass, guarantee: idempotent, upstream_timeout: 100ms,
         retry: {attempts: 1}}
    """


@pytest.fixture
def shared(start_gateway, tmp_path):
    gateway = start_gateway(f"admin: {{listen: unix:{tmp_path}/admin.sock}}" + textwrap.dedent(ROUTES),
                            store=f"sqlite:{tmp_path}/keys.db")
    gateway.store, gateway.database = tmp_path, tmp_path / "keys.db"
    return gateway


@contextlib.contextmanager
def down(gateway):
    """The store's file is away, which every write notices at once; a file that is locked is waited for."""
    away = gateway.database.with_suffix(".away")
    gateway.database.rename(away)
    try:
        yield
    finally:
        away.rename(gateway.database)


def test_new_key_passes_unrecorded_where_the_route_says_so(shared, upstream, key):
    with down(shared):
        refused = shared.post_later("/refunds", key=fresh_key(), json={})
        passed = shared.post("/likes", key=key, json={"of": 1})
        refused.response.refuses(503, UNAVAILABLE)
        assert (passed.status, passed.idempotency) == (201, "bypassed")
    seen = upstream.received("/likes")[0]
    assert (seen.key, seen.body) == (key, b'{"of": 1}')
    assert (upstream.effects("/refunds"), upstream.effects("/likes")) == (0, 1)
    assert shared.counts()["bypassed"] == 1
    assert "bypassed" in [event.get("result") for event in shared.wait_events("request", 2)]
    # It was not recorded, as the documentation says.
    assert shared.post("/likes", key=key, json={"of": 1}).idempotency == "stored"


def test_key_of_ours_goes_along(shared, upstream):
    assert shared.post("/otp", json={"phone": 1}).idempotency == "stored"
    usual = upstream.last().key
    with down(shared):
        known = shared.post_later("/otp", json={"phone": 1})
        assert shared.post("/otp", json={"phone": 2}).idempotency == "bypassed"
        known = known.response
    assert known.idempotency in ("replayed", "bypassed")
    sent = {request.key for request in upstream.received("/otp")}
    assert len(sent) == 2 and {len(name) for name in sent} == {len(usual)}


def test_what_is_unknown_is_not_let_through(shared, upstream, key):
    upstream.on("/again", drop_after_effect())
    assert shared.post("/again", key=key, json={}).idempotency == "unknown"
    with down(shared):
        response = shared.post("/again", key=key, json={})
        assert response.status in (409, 503) and response.idempotency != "bypassed"
    assert upstream.effects("/again") == 1


def test_an_application_that_fails_meanwhile_is_said_to_have(shared, upstream, key):
    upstream.on("/likes", drop_after_effect())
    with down(shared):
        response = shared.post("/likes", key=key, json={})
    problem = response.refuses(502, UNAVAILABLE)
    assert response.idempotency is None and "store was down" in problem["hint"]
    upstream.on("/likes", answer(201))
    assert upstream.effects("/likes") == 1


def test_a_route_that_lets_keys_pass_is_named_at_start(shared):
    assert [event["route"] for event in shared.events(LETS_PASS)] == ["likes", "otp", "again"]


def test_defaults_that_let_keys_pass_are_named_at_start(start_gateway):
    gateway = start_gateway("""
        defaults: {on_store_down: pass}
        routes:
          - {match: POST /refunds, on_store_down: refuse}
        """)
    assert [event["route"] for event in gateway.events(LETS_PASS)] == ["defaults"]


def test_what_was_found_before_the_store_went_down_is_not_executed_again(start_postgres, start_node, upstream, key):
    """The store vanishes while the application is asked about the caller's new password."""
    server = start_postgres()
    node = start_node(server.create_database().url, """
        routes:
          - {name: likes, match: POST /likes, on_store_down: pass, authorize: GET /me}
        """)

    def vouch_and_lose_the_store(exchange):
        server.kill()
        exchange.answer(204)

    upstream.on("/me", vouch_and_lose_the_store)
    assert node.post("/likes", key=key, json={}, auth=basic("ann", "first")).idempotency == "stored"
    node.post("/likes", key=key, json={}, auth=basic("ann", "second")).refuses(503, UNAVAILABLE)
    assert upstream.effects("/likes") == 1
