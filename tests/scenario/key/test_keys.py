# SPDX-License-Identifier: Apache-2.0
"""Which keys are taken, which are refused, and where one is required."""
import pytest

from harness import fresh_key, quoted

MISSING = "VALIDATION.idempotency_key_missing"
INVALID = "VALIDATION.idempotency_key_invalid"
ROUTE = """
    routes:
      - name: charges
        match: "{methods} /charges/{{id}}"
    """

MALFORMED = {
    "empty": "",
    "empty string": '""',
    "unbalanced quote": '"0123456789abcdef0',
    "quote inside": '0123456789"abcdef0',
    "text after the string": '"0123456789abcdef0"x',
    "parameter without a name": '"0123456789abcdef0";=1',
    "space inside": "0123456789 abcdef0",
    "comma inside": "0123456789,abcdef0",
    "two strings": '"0123456789abcdef0", "0123456789abcdef1"',
    "tab inside": "0123456789\tabcdef0",
    "not ASCII": "0123456789abcd\xe9f0",
    "not ASCII in a string": '"0123456789abcd\xe9f0"',
    "unfinished escape": '"0123456789abcdef0\\"',
    "unknown escape": '"0123456789abcdef\\n0"',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_key_is_refused_and_never_runs_unprotected(gateway, upstream, name):
    problem = gateway.post("/refunds", key=MALFORMED[name], json={}).refuses(400, INVALID)
    assert problem["retryable"] is False
    assert upstream.requests == []


def test_two_key_lines_are_refused(gateway, upstream, key):
    for second in (key, fresh_key()):
        headers = [("Idempotency-Key", key), ("Idempotency-Key", second)]
        gateway.post("/refunds", json={}, headers=headers).refuses(400, INVALID)
    assert upstream.requests == []


@pytest.mark.parametrize("length, spelling", [(1, str), (15, str), (15, quoted), (256, str), (256, quoted),
                                              (4000, str)])
def test_keys_too_short_or_too_long_are_refused(gateway, upstream, length, spelling):
    gateway.post("/refunds", key=spelling("k" * length), json={}).refuses(400, INVALID)
    assert upstream.requests == []


@pytest.mark.parametrize("length, spelling", [(16, str), (16, quoted), (255, str), (255, quoted)])
def test_keys_at_the_limits_are_taken(gateway, upstream, length, spelling):
    key = spelling("k" * length)
    assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert gateway.post("/refunds", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_key_of_fifteen_bytes_is_taken_in_dev_mode_only(start_gateway, upstream):
    key = "fifteen-bytes-k"
    assert len(key) == 15
    start_gateway().post("/refunds", key=key, json={}).refuses(400, INVALID)
    assert upstream.requests == []
    assert start_gateway(flags=["--dev"]).post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 1


def test_escapes_in_a_string_are_undone_before_keys_are_compared(gateway, upstream):
    escaped = '"0123456789\\\\abcdef0"'
    assert gateway.post("/refunds", key=escaped, json={}).idempotency == "stored"
    assert gateway.post("/refunds", key="0123456789\\abcdef0", json={}).idempotency == "replayed"
    assert upstream.effects("/refunds") == 1


def test_keys_are_case_sensitive(gateway, upstream):
    for key in ("abcdefabcdefabcdef", "ABCDEFABCDEFABCDEF"):
        assert gateway.post("/refunds", key=key, json={}).idempotency == "stored"
    assert upstream.effects("/refunds") == 2


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_missing_key_is_refused_everywhere_with_require_key(start_gateway, upstream, method):
    gateway = start_gateway(flags=["--require-key"])
    problem = gateway.request(method, "/charges/ch_1", json={}).refuses(400, MISSING)
    assert "Idempotency-Key" in problem["hint"] + problem["detail"]
    assert upstream.requests == []


def test_require_key_in_the_file_does_the_same(start_gateway, upstream):
    start_gateway("require_key: true\n").post("/refunds", json={}).refuses(400, MISSING)
    assert upstream.requests == []


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT"])
def test_methods_that_need_no_key_pass_with_require_key(start_gateway, upstream, method):
    gateway = start_gateway(flags=["--require-key"])
    assert gateway.request(method, "/charges/ch_1").status in (200, 201)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_written_route_requires_its_key(start_gateway, upstream, method):
    gateway = start_gateway(ROUTE.format(methods=method))
    gateway.request(method, "/charges/ch_1", json={}).refuses(400, MISSING)
    assert upstream.requests == []
    assert gateway.request(method, "/elsewhere", json={}).status == 201
    assert upstream.effects("/elsewhere") == 1


def test_put_on_a_written_route_needs_no_key_but_is_protected_with_one(start_gateway, upstream, key):
    gateway = start_gateway(ROUTE.format(methods="PUT"))
    assert gateway.request("PUT", "/charges/ch_1", json={}).idempotency is None
    assert gateway.request("PUT", "/charges/ch_1", key=key, json={}).idempotency == "stored"
    assert gateway.request("PUT", "/charges/ch_1", key=key, json={}).idempotency == "replayed"
    assert upstream.effects("/charges/ch_1") == 2


def test_route_may_do_without_a_key(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            require: false
        """)
    for _ in range(2):
        assert gateway.post("/refunds", json={}).idempotency is None
    assert upstream.effects("/refunds") == 2


def test_unkeyed_request_passes_where_nothing_is_written(gateway, upstream):
    for _ in range(2):
        response = gateway.post("/refunds", json={})
        assert (response.status, response.idempotency) == (201, None)
    assert upstream.effects("/refunds") == 2


def test_route_has_its_own_limits_of_length(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            key: {min: 4, max: 8}
        """)
    for key in ("abc", "abcdefghi"):
        gateway.post("/refunds", key=key, json={}).refuses(400, INVALID)
    for key in ("abcd", "abcdefgh"):
        assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 2


def test_route_may_want_uuids(start_gateway, upstream, key):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
            key: {format: uuid}
        """)
    gateway.post("/refunds", key="not-a-uuid-but-long-enough", json={}).refuses(400, INVALID)
    assert upstream.requests == []
    assert gateway.post("/refunds", key=key, json={}).status == 201
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("target", ["/charges%2Fch_1", "/charges//ch_1"])
def test_ambiguous_path_is_refused_with_a_key(gateway, upstream, key, target):
    gateway.post(target, key=key, json={}).refuses(400, "VALIDATION.request_malformed")
    assert upstream.requests == []


def test_path_spelled_differently_is_the_same_route(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - name: refunds
            match: POST /refunds
        """)
    for target in ("/refunds", "/%72efunds", "/a/../refunds", "/./refunds"):
        gateway.post(target, json={}).refuses(400, MISSING)
    assert upstream.requests == []


@pytest.mark.parametrize("target", ["/users%2F%40me", "/users/%40me", "/x%2f..%2fusers/@me", "/users//%40me"])
def test_a_protected_route_is_not_gone_round_by_escapes_in_its_path(start_gateway, upstream, target):
    """Applications behind WSGI and CGI go by the decoded path."""
    gateway = start_gateway("""
        routes:
          - name: mine
            match: POST /users/@me
            key: {from: "{body:/id}", shared: true}
            on_duplicate: reject
        """)
    assert gateway.post("/users/@me", json={"id": 1}).status == 201
    gateway.post(target, json={"id": 1}).refuses(400, "VALIDATION.request_malformed")
    gateway.post(target, key=fresh_key(), json={"id": 1}).refuses(400, "VALIDATION.request_malformed")
    assert upstream.effects("/users/@me") == len(upstream.requests) == 1
    assert gateway.post("/files%2Fa%20b", json={}).status == 201  # nobody's route


def test_put_and_patch_do_without_a_key_only_where_they_are_conditional(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - name: charges
            match: PUT,PATCH /charges
            require: key-or-if-match
        """)
    for method in ("PUT", "PATCH"):
        for value in ("", "v1", ","):
            gateway.request(method, "/charges", json={}, headers={"If-Match": value}).refuses(400, MISSING)
        assert upstream.requests == []
        for value in ('"v1"', 'W/"v1"', "*"):
            assert gateway.request(method, "/charges", json={}, headers={"If-Match": value}).status in (200, 201)
        upstream.requests.clear()


def test_key_and_credentials_are_nowhere_in_clear(gateway, upstream, key):
    secret = "Bearer very-secret-token-0001"
    gateway.post("/refunds", key=key, json={}, auth=secret)
    gateway.post("/refunds", key=key, json={}, auth=secret)
    gateway.post("/refunds", key=key, json={"other": 1}, auth=secret)
    gateway.terminate()
    assert gateway.wait_exit() == 0
    written = b"".join(path.read_bytes() for path in gateway.store.rglob("*") if path.is_file())
    for word in (key, "very-secret-token-0001"):
        assert word not in gateway.shown_output(lines=100000)
        assert word.encode() not in written
    assert upstream.effects("/refunds") == 1


@pytest.mark.parametrize("path", ["/free//../../refunds", "/free/%2e%2e%2frefunds"])
def test_keyed_request_does_not_pass_by_a_path_that_cannot_be_read(start_gateway, upstream, key, path):
    gateway = start_gateway("""
        routes:
          - name: free
            match: POST /free
            mode: pass
          - name: below
            match: POST /free/{any}
            mode: pass
        """)
    gateway.post(path, key=key).refuses(400, "VALIDATION.request_malformed")
    assert upstream.requests == []
    assert gateway.post("/free", key=key).status == 201
    assert upstream.effects("/free") == 1


@pytest.mark.parametrize("least, most", [(4, 8), (20, 30)])
def test_hint_of_a_key_of_the_wrong_length_has_no_other_numbers(start_gateway, upstream, least, most):
    gateway = start_gateway(f"""
        defaults: {{key: {{min: {least}, max: {most}}}}}
        """)
    for length in (least - 1, most + 1):
        problem = gateway.post("/refunds", key="k" * length, json={}).refuses(400, "VALIDATION.idempotency_key_invalid")
        assert f"{least} to {most}" in problem["detail"]
        assert "16" not in problem["hint"] and "255" not in problem["hint"], problem
    assert upstream.requests == []
