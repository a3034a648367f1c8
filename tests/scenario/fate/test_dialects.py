# SPDX-License-Identifier: Apache-2.0
"""Dialects: the same calls against three routes, and what each answers them with. Whatever the dialect says, effects
are counted the same way: one for each operation.

The points of draft-ietf-httpapi-idempotency-key-header are tested one by one; of Stripe's API what its own clients act
on: the status, the `error` object, `Stripe-Should-Retry` and `Idempotent-Replayed`."""
import pytest

from harness import EXIT_CONFIG, answer, basic, drop_after_effect, fresh_key, quoted

ROUTES = """
    error_docs: https://docs.example/errors/
    routes:
      - {name: plain, match: POST /plain, dialect: plain}
      - {name: seeds, match: POST /seeds, dialect: seeds}
      - {name: draft, match: POST /ietf, dialect: ietf, wait: 1h}
      - {name: cards, match: POST /stripe, dialect: stripe, wait: 1h}
    """
QUICK = """
    defaults: {retry: {attempts: 2, base: 10ms, cap: 20ms}}
    """
DIALECTS = ("seeds", "ietf", "stripe")
MISMATCH = {"seeds": 409, "ietf": 422, "stripe": 400}


@pytest.fixture
def gateway(start_gateway):
    return start_gateway(ROUTES)


def code_of(response):
    return response.header("Error-Code")


def stripe_error(response):
    assert response.header("Content-Type") == "application/json", response
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"type", "code", "message", "doc_url"}, body
    assert body["error"]["doc_url"] == f"https://docs.example/errors/{code_of(response)}"
    assert response.header("Request-Id") == response.header("X-Correlation-Id")
    assert response.header("Stripe-Should-Retry") in ("true", "false")
    return body["error"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_repetition_is_replayed_in_every_dialect(gateway, upstream, key, dialect):
    first = gateway.post(f"/{dialect}", key=key, json={"amount": 1})
    second = gateway.post(f"/{dialect}", key=key, json={"amount": 1})
    assert first.idempotency == "stored"
    assert second.header("Idempotent-Replayed") == "true"
    assert (second.status, second.body) == (first.status, first.body)
    assert upstream.effects(f"/{dialect}") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_other_payload_is_refused_in_the_words_of_the_dialect(gateway, upstream, key, dialect):
    gateway.post(f"/{dialect}", key=key, json={"amount": 1})
    other = gateway.post(f"/{dialect}", key=key, json={"amount": 2})
    assert other.status == MISMATCH[dialect]
    assert code_of(other) == "CONFLICT.idempotency.payload_mismatch"
    if dialect == "stripe":
        error = stripe_error(other)
        assert error["type"] == "idempotency_error"
        assert "body" in error["message"]
        assert other.header("Stripe-Should-Retry") == "false"
    else:
        assert other.problem()["retryable"] is False
    assert upstream.effects(f"/{dialect}") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_connection_lives_on_after_a_mismatch(gateway, upstream, key, dialect):
    with gateway.connect() as connection:
        head = {"Idempotency-Key": key}
        assert connection.request("POST", f"/{dialect}", head, b"1").status == 201
        assert connection.request("POST", f"/{dialect}", head, b"2").status == MISMATCH[dialect]
        assert connection.request("POST", f"/{dialect}", head, b"1").status == 201
    assert upstream.effects(f"/{dialect}") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_missing_key_is_refused(gateway, upstream, dialect):
    refused = gateway.post(f"/{dialect}", json={})
    assert refused.status == 400
    assert code_of(refused) == "VALIDATION.idempotency_key_missing"
    if dialect == "stripe":
        assert stripe_error(refused)["type"] == "invalid_request_error"
        assert refused.header("Stripe-Should-Retry") == "false"
    else:
        assert refused.problem()["title"] == "Idempotency-Key is missing"
    assert upstream.requests == []


@pytest.mark.parametrize("dialect", ("ietf", "stripe"))
def test_request_in_flight_is_refused_at_once(gateway, upstream, key, dialect):
    with upstream.hold(f"/{dialect}"):
        first = gateway.post_later(f"/{dialect}", key=key, json={})
        second = gateway.post(f"/{dialect}", key=key, json={})  # answered while the first is still held
        assert second.status == 409
        assert code_of(second) == "CONFLICT.idempotency.in_flight"
        assert second.header("Retry-After") == "1"
    assert first.status == 201
    if dialect == "stripe":
        error = stripe_error(second)
        assert (error["type"], error["code"]) == ("idempotency_error", "idempotency_key_in_use")
        assert second.header("Stripe-Should-Retry") == "true"
    else:
        assert second.problem()["retryable"] is True
    assert gateway.post(f"/{dialect}", key=key, json={}).idempotency == "replayed"
    assert upstream.effects(f"/{dialect}") == 1


def test_request_in_flight_is_waited_for_by_default(gateway, upstream, key):
    with upstream.hold("/seeds"):
        first, second = gateway.post_together("/seeds", key=key, times=2)
    assert first.body == second.body
    assert sorted([first.idempotency, second.idempotency]) == ["replayed", "stored"]
    assert upstream.effects("/seeds") == 1


@pytest.mark.parametrize("dialect", DIALECTS)
def test_outcome_that_is_not_known_stays_so(start_gateway, upstream, key, dialect):
    gateway = start_gateway(ROUTES + QUICK)
    upstream.on(f"/{dialect}", drop_after_effect())
    first = gateway.post(f"/{dialect}", key=key, json={})
    second = gateway.post(f"/{dialect}", key=key, json={})
    assert (first.status, first.idempotency) == (502, "unknown")
    assert (second.status, code_of(second)) == (409, "CONFLICT.idempotency.outcome_unknown")
    if dialect == "stripe":
        assert stripe_error(first)["type"] == "api_error"
        assert stripe_error(second)["type"] == "idempotency_error"
        assert first.header("Stripe-Should-Retry") == second.header("Stripe-Should-Retry") == "true"
    assert upstream.effects(f"/{dialect}") == 1


# The IETF draft, point by point.


@pytest.mark.parametrize("spelled", ['"{key}"', '"{key}";a=1', '"{key}"; version="2";x', "{key}"])
def test_draft_key_is_a_string_with_parameters_that_do_not_count(gateway, upstream, key, spelled):
    first = gateway.post("/ietf", key=quoted(key), json={})
    second = gateway.post("/ietf", key=spelled.format(key=key), json={})
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert upstream.effects("/ietf") == 1


def test_draft_string_may_hold_spaces_and_escapes(gateway, upstream):
    spelled = r'"an order of \"nuts\" \\ bolts"'
    assert gateway.post("/ietf", key=spelled, json={}).idempotency == "stored"
    assert gateway.post("/ietf", key=spelled, json={}).idempotency == "replayed"
    assert upstream.last().header("Idempotency-Key") == spelled
    assert upstream.effects("/ietf") == 1


@pytest.mark.parametrize("spelled", ['"unbalanced-0123456789', '"a-0123456789abcdef" "b-0123456789abcdef"', '""',
                                     r'"escaped\n-0123456789"', '"tab\tinside-0123456789"', '"caf\xe9-0123456789abc"',
                                     "two words-0123456789", "a-0123456789,b-0123456789"])
def test_draft_refuses_what_is_no_string(gateway, upstream, spelled):
    refused = gateway.post("/ietf", key=spelled, json={})
    refused.refuses(400, "VALIDATION.idempotency_key_invalid")
    assert upstream.requests == []


def test_draft_refuses_two_keys(gateway, upstream):
    refused = gateway.post("/ietf", json={}, headers=[("Idempotency-Key", quoted(fresh_key())),
                                                      ("Idempotency-Key", quoted(fresh_key()))])
    refused.refuses(400, "VALIDATION.idempotency_key_invalid")
    assert upstream.requests == []


def test_draft_upstream_gets_the_string_as_it_came(gateway, upstream, key):
    gateway.post("/ietf", key=quoted(key) + ";v=1", json={})
    assert upstream.last().header("Idempotency-Key") == quoted(key) + ";v=1"
    assert upstream.effects("/ietf") == 1


def test_draft_errors_are_problems_that_link_to_their_documentation(gateway, upstream, key):
    missing = gateway.post("/ietf", json={})
    invalid = gateway.post("/ietf", key="short", json={})
    gateway.post("/ietf", key=key, json={"amount": 1})
    reused = gateway.post("/ietf", key=key, json={"amount": 2})
    with upstream.hold("/ietf"):
        outstanding_key = fresh_key()
        first = gateway.post_later("/ietf", key=outstanding_key, json={})
        outstanding = gateway.post("/ietf", key=outstanding_key, json={})
    assert first.status == 201
    for response, status in ((missing, 400), (invalid, 400), (reused, 422), (outstanding, 409)):
        problem = response.problem()
        assert (response.status, problem["status"]) == (status, status)
        assert problem["type"] == f"https://docs.example/errors/{code_of(response)}"
        assert response.header("Link") == f'<{problem["type"]}>; rel="describedby"'
        assert response.header("Content-Language") == "en"
    assert upstream.effects("/ietf") == 2


def test_link_is_on_no_answer_of_the_application(gateway, upstream, key):
    upstream.on("/ietf", answer(422, {"errors": []}, [("Link", "</help>; rel=help")]))
    first = gateway.post("/ietf", key=key, json={})
    second = gateway.post("/ietf", key=key, json={})
    assert first.all("Link") == second.all("Link") == ["</help>; rel=help"]
    assert (second.status, second.idempotency) == (422, "replayed")
    assert upstream.effects("/ietf") == 1


def test_link_is_on_no_error_of_another_dialect(gateway, upstream):
    assert gateway.post("/seeds", json={}).all("Link") == gateway.post("/stripe", json={}).all("Link") == []
    assert upstream.requests == []


@pytest.mark.parametrize("url", ["https://docs.example/<code>", "https://docs.example/>; rel=x", "docs.example"])
def test_documentation_that_would_break_the_link_is_refused_at_load(hapax, upstream, tmp_path, url):
    file = tmp_path / "hapax.yaml"
    file.write_text(f"upstream: {upstream.url}\nerror_docs: '{url}'\n")
    checked = hapax("check", file)
    assert checked.code == EXIT_CONFIG
    assert 'hapax.yaml:2:13: "error_docs" must be a URL' in checked.stderr
    assert upstream.requests == []


# Stripe's way of telling its clients whether to try again.


@pytest.mark.parametrize("status", (402, 404, 500))
def test_stripe_failure_that_is_stored_is_not_worth_a_retry(gateway, upstream, key, status):
    upstream.on("/stripe", answer(status, {"error": {}}, [("Stripe-Should-Retry", "true")]))
    first = gateway.post("/stripe", key=key, json={})
    second = gateway.post("/stripe", key=key, json={})
    assert (first.idempotency, second.idempotency) == ("stored", "replayed")
    assert first.all("Stripe-Should-Retry") == second.all("Stripe-Should-Retry") == ["false"]
    assert upstream.effects("/stripe") == 1


@pytest.mark.parametrize("status, headers, retry", [(401, (), "false"), (403, (), "false"),
                                                    (429, (("Retry-After", "60"),), "true"),
                                                    (503, (("Retry-After", "60"),), "true")])
def test_stripe_failure_that_did_nothing_is_worth_one_unless_it_is_the_callers(gateway, upstream, key, status, headers,
                                                                              retry):
    upstream.on("/stripe", answer(status, "no", headers, effect=False))
    response = gateway.post("/stripe", key=key, json={})
    assert (response.status, response.idempotency) == (status, "released")
    assert response.header("Stripe-Should-Retry") == retry
    assert upstream.effects("/stripe") == 0


def test_stripe_success_says_nothing_of_retries(gateway, upstream, key):
    first = gateway.post("/stripe", key=key, json={})
    second = gateway.post("/stripe", key=key, json={})
    assert first.all("Stripe-Should-Retry") == second.all("Stripe-Should-Retry") == []
    assert second.header("Idempotent-Replayed") == "true"
    assert upstream.effects("/stripe") == 1


def test_stripe_says_so_when_the_application_is_away(start_gateway, start_upstream, upstream, key):
    away = start_upstream(listening=False)
    gateway = start_gateway(ROUTES + QUICK, upstream=away)
    response = gateway.post("/stripe", key=key, json={})
    assert (response.status, response.idempotency) == (502, "released")
    assert stripe_error(response)["type"] == "api_error"
    assert response.header("Stripe-Should-Retry") == "true"
    assert away.requests == upstream.requests == []


@pytest.mark.parametrize("limit", ["rate: 1/d", "quota: 1"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_caller_who_asks_too_much_is_told_when_to_come_back(start_gateway, upstream, key, dialect, limit):
    gateway = start_gateway(f"""
        error_docs: https://docs.example/errors/
        routes: [{{name: limited, match: POST /limited, dialect: {dialect}, {limit}}}]
        """)
    assert gateway.post("/limited", key=key, json={}).status == 201
    refused = gateway.post("/limited", key=fresh_key(), json={})
    assert (refused.status, code_of(refused)) == (429, "RATE_LIMIT.exceeded")
    assert int(refused.header("Retry-After")) > 0
    if dialect == "stripe":
        error = stripe_error(refused)
        assert (error["type"], error["code"]) == ("invalid_request_error", "rate_limit")
        assert "perator" not in error["message"] and "`" not in error["message"]
        assert refused.header("Stripe-Should-Retry") == "true"
    else:
        assert "perator" not in refused.problem()["hint"]
    line = gateway.wait_events("request", 2)[1]  # what operators can change is in the log
    assert f"`{limit.split(':')[0]}`" in line["remedy"]
    assert upstream.effects("/limited") == 1


def test_the_log_names_the_options_that_would_help(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - {name: refunds, match: POST /refunds}
          - {name: named, match: POST /named, require_principal: true}
        """)
    gateway.post("/refunds", key=key, json={}, auth=basic("ann", "1"))
    other = gateway.post("/refunds", key=key, json={}, auth=basic("ann", "2"))
    other.refuses(403, "AUTH.replay_not_authorized")
    remedy = gateway.wait_events("request", 2)[1]["remedy"]  # for operators: a client can't change options
    assert all(option in remedy for option in ("`jwt`", "`authorize`"))
    gateway.post("/named", key=key, json={}).refuses(401, "AUTH.principal_missing")
    remedy = gateway.wait_events("request", 3)[2]["remedy"]
    assert all(option in remedy for option in ("`principal`", "header:NAME", "cookie:NAME", "jwt:CLAIM"))
    assert (upstream.effects("/refunds"), upstream.effects("/named")) == (1, 0)


def test_other_dialects_say_nothing_to_stripes_clients(start_gateway, upstream, key):
    gateway = start_gateway(ROUTES + QUICK)
    upstream.on("/seeds", answer(429, "later", [("Retry-After", "99")], effect=False))  # longer than anybody waits
    with upstream.hold("/seeds"):
        everyone = gateway.post_together("/seeds", key=key, times=3)
    assert {response.status for response in everyone} == {429}
    assert all(response.all("Stripe-Should-Retry") == response.all("Request-Id") == [] for response in everyone)
    assert upstream.effects("/seeds") == 0
