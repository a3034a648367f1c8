# SPDX-License-Identifier: Apache-2.0
"""`cors`: pages of other origins can read the gateway's own answers and its headers; whether they may read the
application's is the application's word."""
import pytest

from harness import answer, numbered

APP, SHOP, EVIL = "https://app.example.com", "https://shop.example.com", "https://evil.example"
LISTED = f"""
    cors: {{origins: ["{APP}", "{SHOP}"], credentials: true}}
    routes:
      - {{name: refunds, match: POST /refunds}}
      - {{name: once, match: POST /once, on_duplicate: noop}}
    """
ANY = """
    cors: {origins: ["*"]}
    routes:
      - {name: refunds, match: POST /refunds}
    """
OURS = {"idempotency-status", "idempotent-replayed", "idempotency-expires", "original-request-time", "error-code",
        "retry-after", "x-correlation-id"}


def cors_of(response):
    return {name.lower(): value for name, value in response.headers if name.lower().startswith("access-control-")}


def exposed(response):
    names = ", ".join(response.all("Access-Control-Expose-Headers"))
    return {name.strip().lower() for name in names.split(",") if name.strip()}


def echo_origin(exchange):
    """An application that allows whoever asks, as many do."""
    exchange.read_body()
    number = exchange.execute()
    origin = exchange.request.header("Origin", "null")
    exchange.answer(201, {"effect": number}, [("Access-Control-Allow-Origin", origin), ("Vary", "Origin"),
                                              ("Access-Control-Allow-Credentials", "true"),
                                              ("Access-Control-Expose-Headers", "X-Total")])


def test_error_of_ours_can_be_read_by_a_listed_origin(start_gateway, upstream):
    gateway = start_gateway(LISTED)
    refused = gateway.post("/refunds", json={}, headers={"Origin": SHOP})
    refused.refuses(400, "VALIDATION.idempotency_key_missing")
    assert refused.header("Access-Control-Allow-Origin") == SHOP
    assert refused.header("Access-Control-Allow-Credentials") == "true"
    assert refused.all("Vary") == ["Origin"]
    assert OURS <= exposed(refused)
    assert upstream.requests == []


@pytest.mark.parametrize("origin", [EVIL, "null", "HTTPS://APP.EXAMPLE.COM", APP + "/", APP + ".evil.example",
                                    "http://app.example.com", f"{APP}, {SHOP}", ""])
def test_error_of_ours_is_kept_from_any_other_origin(start_gateway, upstream, origin):
    gateway = start_gateway(LISTED)
    refused = gateway.post("/refunds", json={}, headers={"Origin": origin})
    refused.refuses(400, "VALIDATION.idempotency_key_missing")
    assert cors_of(refused) == {}
    assert refused.all("Vary") == ["Origin"]
    assert upstream.requests == []


def test_error_of_ours_varies_for_those_without_an_origin_too(start_gateway, upstream):
    refused = start_gateway(LISTED).post("/refunds", json={})
    assert cors_of(refused) == {} and refused.all("Vary") == ["Origin"]
    assert upstream.requests == []


def test_nothing_is_added_where_cors_is_not_configured(gateway, upstream, key):
    refused = gateway.post("/refunds", key="short", json={}, headers={"Origin": APP})
    first = gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    assert cors_of(refused) == cors_of(first) == {}
    assert refused.all("Vary") == first.all("Vary") == []
    assert upstream.effects("/refunds") == 1


def test_star_allows_any_origin_and_no_credentials(start_gateway, upstream):
    refused = start_gateway(ANY).post("/refunds", json={}, headers={"Origin": EVIL})
    assert refused.header("Access-Control-Allow-Origin") == "*"
    assert refused.all("Access-Control-Allow-Credentials") == refused.all("Vary") == []
    assert OURS <= exposed(refused)
    assert upstream.requests == []


def test_noop_is_an_answer_of_ours(start_gateway, upstream, key):
    gateway = start_gateway(LISTED)
    gateway.post("/once", key=key, json={}, headers={"Origin": APP})
    noop = gateway.post("/once", key=key, json={}, headers={"Origin": APP})
    assert (noop.status, noop.body) == (200, b"{}")
    assert noop.header("Access-Control-Allow-Origin") == APP
    assert upstream.effects("/once") == 1


def test_malformed_request_of_a_page_gets_a_readable_error(start_gateway, upstream):
    gateway = start_gateway(LISTED)
    head = f"POST /refunds HTTP/1.1\r\nHost: x\r\nOrigin: {APP}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
    refused = gateway.raw(head.encode())
    assert refused.status == 400
    assert refused.header("Access-Control-Allow-Origin") in (APP, None)  # as far as its head could be read
    assert refused.all("Vary") == ["Origin"]
    assert upstream.requests == []


def test_answer_of_an_application_that_allows_nobody_is_opened_to_nobody(start_gateway, upstream, key):
    gateway = start_gateway(LISTED)
    first = gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    replay = gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    assert cors_of(first) == cors_of(replay) == {}
    assert replay.idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_application_that_allows_an_origin_exposes_our_headers_too(start_gateway, upstream, key):
    gateway = start_gateway(LISTED)
    upstream.on("/refunds", echo_origin)
    first = gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    replay = gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    for response in (first, replay):
        assert response.all("Access-Control-Allow-Origin") == [APP]
        assert response.all("Access-Control-Allow-Credentials") == ["true"]
        assert OURS | {"x-total"} <= exposed(response)
        assert response.all("Vary") == ["Origin"]
    assert upstream.effects("/refunds") == 1


def test_replay_to_another_listed_origin_names_that_one(start_gateway, upstream, key):
    gateway = start_gateway(LISTED)
    upstream.on("/refunds", echo_origin)
    first = gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    replay = gateway.post("/refunds", key=key, json={}, headers={"Origin": SHOP})
    assert first.all("Access-Control-Allow-Origin") == [APP]
    assert replay.idempotency == "replayed"
    assert replay.all("Access-Control-Allow-Origin") == [SHOP]
    assert replay.all("Access-Control-Allow-Credentials") == ["true"]
    assert "Origin" in ", ".join(replay.all("Vary"))
    assert OURS | {"x-total"} <= exposed(replay)
    assert replay.body == first.body
    assert upstream.effects("/refunds") == 1


def test_replay_takes_no_credentials_along_to_an_origin_that_may_not_send_them(start_gateway, upstream, key):
    gateway = start_gateway(LISTED.replace("credentials: true", "credentials: false"))
    upstream.on("/refunds", echo_origin)
    gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    replay = gateway.post("/refunds", key=key, json={}, headers={"Origin": SHOP})
    assert replay.all("Access-Control-Allow-Origin") == [SHOP]
    assert replay.all("Access-Control-Allow-Credentials") == []
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("origin", [EVIL, None])
def test_replay_to_an_origin_that_is_not_listed_is_the_stored_one(start_gateway, upstream, key, origin):
    gateway = start_gateway(LISTED)
    upstream.on("/refunds", echo_origin)
    gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    replay = gateway.post("/refunds", key=key, json={}, headers={"Origin": origin} if origin else {})
    assert replay.all("Access-Control-Allow-Origin") == [APP]  # which that page's browser keeps from it
    assert replay.all("Access-Control-Expose-Headers") == ["X-Total"]
    assert upstream.effects("/refunds") == 1


def test_waiter_of_another_origin_gets_its_own_name(start_gateway, upstream, key):
    gateway = start_gateway(LISTED)
    released = answer(403, "no", [("Access-Control-Allow-Origin", APP)], effect=False)
    upstream.on("/refunds", echo_origin)
    with upstream.hold("/refunds"):
        first = gateway.post_later("/refunds", key=key, json={}, headers={"Origin": APP})
        second = gateway.post_later("/refunds", key=key, json={}, headers={"Origin": SHOP})
    assert first.header("Access-Control-Allow-Origin") == APP
    assert second.header("Access-Control-Allow-Origin") == SHOP
    assert upstream.effects("/refunds") == 1
    upstream.on("/refunds", released)
    assert gateway.post("/refunds", key=key + "-2", json={}, headers={"Origin": SHOP}).header(
        "Access-Control-Allow-Origin") == APP  # its own answer is as the application gave it
    assert upstream.effects("/refunds") == 1


def test_star_replays_to_anyone_without_naming_the_first(start_gateway, upstream, key):
    gateway = start_gateway(ANY)
    upstream.on("/refunds", echo_origin)
    gateway.post("/refunds", key=key, json={}, headers={"Origin": APP})
    replay = gateway.post("/refunds", key=key, json={}, headers={"Origin": EVIL})
    assert replay.all("Access-Control-Allow-Origin") == ["*"]
    assert replay.all("Access-Control-Allow-Credentials") == []
    assert upstream.effects("/refunds") == 1


def preflight(gateway, target, method="POST", names="idempotency-key,content-type", origin=APP):
    return gateway.request("OPTIONS", target, headers={"Origin": origin, "Access-Control-Request-Method": method,
                                                       "Access-Control-Request-Headers": names})


@pytest.mark.parametrize("names, allowed", [("idempotency-key,content-type", "idempotency-key,content-type"),
                                            ("authorization, content-type",
                                             "authorization, content-type, Idempotency-Key"),
                                            ("not a name", "Idempotency-Key")])
def test_preflight_of_a_protected_route_is_answered(start_gateway, upstream, names, allowed):
    gateway = start_gateway(LISTED)
    response = preflight(gateway, "/refunds", names=names)
    assert (response.status, response.body) == (204, b"")
    assert response.header("Access-Control-Allow-Origin") == APP
    assert response.header("Access-Control-Allow-Credentials") == "true"
    assert response.header("Access-Control-Allow-Methods") == "POST"
    assert response.header("Access-Control-Allow-Headers") == allowed
    assert "Origin" in response.all("Vary")
    keyed = preflight(gateway, "/unwritten", method="PATCH")  # with a key every path is protected
    assert (keyed.status, keyed.header("Access-Control-Allow-Methods")) == (204, "PATCH")
    assert upstream.requests == []


def test_preflight_that_concerns_no_protected_request_goes_to_the_application(start_gateway, upstream):
    gateway = start_gateway(LISTED + "  - {match: POST /free, mode: pass, because: a test}\n    ")
    upstream.on("/", answer(204, effect=False))
    asked = [preflight(gateway, "/refunds", origin=EVIL), preflight(gateway, "/refunds", method="GET"),
             preflight(gateway, "/free"), preflight(gateway, "/unwritten", names="content-type"),
             gateway.request("OPTIONS", "/refunds", headers={"Origin": APP}), gateway.request("OPTIONS", "/refunds")]
    assert len(upstream.requests) == len(asked)
    assert all("Access-Control-Allow-Headers" not in dict(response.headers) for response in asked)


def test_preflight_goes_to_the_application_without_cors(start_gateway, upstream):
    gateway = start_gateway("routes: [{match: POST /refunds}]")
    allowed = [("Access-Control-Allow-Origin", APP), ("Access-Control-Allow-Methods", "POST"),
               ("Access-Control-Allow-Headers", "Idempotency-Key, Content-Type"), ("Access-Control-Max-Age", "600")]
    upstream.on("/refunds", answer(204, b"", allowed, effect=False))
    response = preflight(gateway, "/refunds", names="idempotency-key")
    assert response.status == 204
    assert [(name, value) for name, value in response.headers if name.startswith("Access-Control")] == allowed
    assert upstream.last().method == "OPTIONS"
    assert upstream.last().header("Access-Control-Request-Headers") == "idempotency-key"
    assert upstream.effects() == 0


def test_unprotected_answers_are_left_alone(start_gateway, upstream):
    gateway = start_gateway(LISTED)
    upstream.on("/thing", answer(200, "{}", [("Access-Control-Allow-Origin", "*")], effect=False))
    response = gateway.get("/thing", headers={"Origin": APP})
    assert cors_of(response) == {"access-control-allow-origin": "*"}
    upstream.on("/thing", numbered)
    assert cors_of(gateway.get("/thing", headers={"Origin": APP})) == {}
    assert upstream.effects() == 0
