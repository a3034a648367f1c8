# SPDX-License-Identifier: Apache-2.0
"""`publish_policy`: the routes' rules as JSON at /.well-known/idempotency, for clients and their tests."""
import json
import signal

import pytest

from harness import fresh_key

PATH = "/.well-known/idempotency"
RULES = """
    publish_policy: true
    error_docs: https://docs.example/errors/
    defaults: {lifetime: 24h}
    routes:
      - name: refunds
        match: POST,PATCH /refunds/{id}
        lifetime: 7d
        tombstone: 30d
        dialect: ietf
        key: {format: uuid, min: 32, max: 64}
        principal: ["header:X-Tenant", "cookie:session", authorization]
        require_principal: true
        on_unknown: probe
        probe: {request: "GET /secret-probe?k={key}", found: {status: 200}, settle: 30s}
      - name: report
        match: POST /safety/report
        key: {from: "{body:/reporterId}:{body:/category}:{window:1h}", shared: true, overlap: 1h}
        on_duplicate: reject
        lifetime: 2h
      - {name: refresh, match: POST /auth/refresh, mode: pass, because: internal reasons}
      - {name: try, match: POST /try, mode: shadow, dialect: stripe, wait: 1500ms, rate: 50/s, quota: 7,
         fingerprint: {body: [/b, /a], ignore: [/a/t, "query:x"], headers: [X-A]}}
    """


@pytest.fixture
def gateway(start_gateway):
    return start_gateway(RULES)


def published(gateway, **what):
    response = gateway.get(PATH, **what)
    assert response.status == 200, response
    return response.json()


def test_every_route_is_told_in_its_order(gateway, upstream):
    policy = published(gateway)
    assert policy["version"] == 1
    assert [route["name"] for route in policy["routes"]] == ["refunds", "report", "refresh", "try"]
    assert [route["mode"] for route in policy["routes"]] == ["protect", "protect", "pass", "shadow"]
    assert policy["routes"][0]["methods"] == ["POST", "PATCH"]
    assert policy["routes"][0]["path"] == "/refunds/{id}"
    assert upstream.requests == []


def test_key_and_its_scope_are_told(gateway, upstream):
    refunds, report, refresh, shadow = published(gateway)["routes"]
    assert refunds["key"] == {"header": "Idempotency-Key", "required": True, "required_on_put": False,
                              "if_match_suffices": False, "format": "uuid", "min": 32, "max": 64}
    assert refunds["principal"] == ["header:x-tenant", "cookie:session", "authorization"]
    assert refunds["principal_required"] is True
    assert refunds["scope"] == "route+principal"
    assert report["key"] == {"from": "{body:/reporterId}:{body:/category}:{window:1h}", "shared": True,
                             "overlap_seconds": 3600}
    assert "key" not in refresh
    assert (shadow["rate"], shadow["quota"]) == ({"requests": 50, "seconds": 1}, 7)
    assert upstream.requests == []


def test_what_may_differ_between_two_attempts_is_told(gateway, upstream):
    refunds, report, refresh, shadow = published(gateway)["routes"]
    assert refunds["fingerprint"] == {"body": "canonical", "ignore": [], "headers": []}
    assert report["fingerprint"] == {"body": "key"}
    assert shadow["fingerprint"] == {"body": ["/a", "/b"], "ignore": ["/a/t", "query:x"], "headers": ["x-a"]}
    assert "fingerprint" not in refresh
    assert upstream.requests == []


def test_times_and_dialects_are_told(gateway, upstream):
    policy = published(gateway)
    refunds, report, _, shadow = policy["routes"]
    assert (refunds["lifetime_seconds"], refunds["tombstone_seconds"]) == (7 * 86400, 30 * 86400)
    assert (report["lifetime_seconds"], report["on_duplicate"]) == (7200, "reject")
    assert (refunds["dialect"], report["dialect"], shadow["dialect"]) == ("ietf", "plain", "stripe")
    assert refunds["statuses"] == {"key_missing": 400, "key_invalid": 400, "payload_mismatch": 422, "in_flight": 409}
    assert shadow["statuses"]["payload_mismatch"] == 400
    assert refunds["retry"]["duplicates_wait_seconds"] == 0
    assert report["retry"]["duplicates_wait_seconds"] == 10
    assert policy["defaults"]["key"]["required"] is False
    assert policy["defaults"]["lifetime_seconds"] == 86400
    assert upstream.requests == []


def test_errors_are_told_once_each(gateway, upstream):
    errors = published(gateway)["errors"]
    seen = [(error["error_code"], error["status"]) for error in errors]
    assert len(seen) == len(set(seen))
    assert ("CONFLICT.idempotency.in_flight", 409) in seen and ("RATE_LIMIT.exceeded", 429) in seen
    assert {error["error_code"]: error["retryable"] for error in errors}["CONFLICT.idempotency.expired"] is False
    assert upstream.requests == []


def test_published_statuses_are_those_that_are_answered(gateway, upstream):
    statuses = published(gateway)["routes"][0]["statuses"]
    key = fresh_key()
    who = {"X-Tenant": "t"}
    assert gateway.post("/refunds/1", json={}, headers=who).status == statuses["key_missing"]
    assert gateway.post("/refunds/1", key="no-uuid-0123456789abcdef0123456789", json={},
                        headers=who).status == statuses["key_invalid"]
    gateway.post("/refunds/1", key=key, json={"a": 1}, headers=who)
    assert gateway.post("/refunds/1", key=key, json={"a": 2}, headers=who).status == statuses["payload_mismatch"]
    assert upstream.effects("/refunds/1") == 1


def test_nothing_of_what_stands_behind_is_told(gateway, upstream):
    text = gateway.get(PATH).body.decode()
    for secret in (upstream.url, str(upstream.port), str(gateway.directory), "secret-probe", "probe", "journal",
                   "internal reasons", "upstream"):
        assert secret not in text, secret
    assert upstream.requests == []


def test_client_that_has_it_is_told_so(gateway, upstream):
    first = gateway.get(PATH)
    assert "max-age=" in first.header("Cache-Control")
    etag = first.header("ETag")
    assert gateway.get(PATH).header("ETag") == etag
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = gateway.get(PATH, headers={"If-None-Match": known})
        assert (again.status, again.body, again.header("ETag")) == (304, b"", etag)
    assert gateway.get(PATH, headers={"If-None-Match": '"other"'}).status == 200
    assert upstream.requests == []


def test_tag_outlives_a_restart_and_changes_with_the_rules(gateway, upstream):
    etag = gateway.get(PATH).header("ETag")
    gateway.restart()
    assert gateway.get(PATH).header("ETag") == etag
    gateway.config.write_text(gateway.config.read_text().replace("lifetime: 2h", "lifetime: 3h"))
    gateway.restart()
    assert gateway.get(PATH).header("ETag") != etag
    assert upstream.requests == []


def test_reload_changes_it(gateway, upstream):
    etag = gateway.get(PATH).header("ETag")
    gateway.config.write_text(gateway.config.read_text().replace("lifetime: 2h", "lifetime: 3h"))
    gateway.signal(signal.SIGHUP)
    gateway.wait_events("configuration_reloaded")
    again = gateway.get(PATH, headers={"If-None-Match": etag})
    assert again.status == 200
    assert again.json()["routes"][1]["lifetime_seconds"] == 3 * 3600
    assert upstream.requests == []


def test_tag_is_the_same_on_every_node_with_the_same_rules(start_gateway, upstream):
    one, two = start_gateway(RULES), start_gateway(RULES)
    assert one.get(PATH).header("ETag") == two.get(PATH).header("ETag")
    assert upstream.requests == []


def test_head_gets_no_body(gateway, upstream):
    response = gateway.request("HEAD", PATH)
    assert (response.status, response.body) == (200, b"")
    assert int(response.header("Content-Length")) == len(gateway.get(PATH).body)
    assert upstream.requests == []


def test_path_is_matched_as_any_other(gateway, upstream):
    assert "routes" in gateway.get("/.well-known/./%69dempotency").json()
    assert "routes" in gateway.get(PATH + "?pretty=1").json()
    assert upstream.requests == []


@pytest.mark.parametrize("method, path", [("POST", PATH), ("OPTIONS", PATH), ("GET", PATH + "/more"),
                                          ("GET", "/.well-known"), ("GET", "/.Well-Known/idempotency")])
def test_whatever_else_goes_to_the_application(gateway, upstream, method, path):
    gateway.request(method, path, body=b"" if method == "POST" else None)
    assert (upstream.last().method, upstream.last().path) == (method, path)
    assert upstream.effects() == (1 if method == "POST" else 0)


def test_it_is_off_unless_configured(start_gateway, upstream):
    response = start_gateway("routes: [{name: refunds, match: POST /refunds}]\n").get(PATH)
    assert response.json() == {"path": PATH}
    assert upstream.last().path == PATH


def test_pages_may_read_it_where_cors_lets_them(start_gateway, upstream):
    gateway = start_gateway('publish_policy: true\ncors: {origins: ["https://docs.example"]}\n')
    response = gateway.get(PATH, headers={"Origin": "https://docs.example"})
    assert response.header("Access-Control-Allow-Origin") == "https://docs.example"
    assert upstream.requests == []


def test_a_thousand_routes_fit(start_gateway, upstream):
    routes = [{"name": f"route-{n}", "match": f"POST /r{n}/{{id}}"} for n in range(1000)]
    gateway = start_gateway("publish_policy: true\nroutes: " + json.dumps(routes) + "\n")
    assert len(published(gateway)["routes"]) == 1000
    assert upstream.requests == []
