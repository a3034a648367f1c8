# SPDX-License-Identifier: Apache-2.0
"""Other spellings of a protected path: many frameworks serve them as the path itself, so that they must not lead round
its protection."""
import pytest

from harness import fresh_key

MALFORMED = "VALIDATION.request_malformed"
MISSING = "VALIDATION.idempotency_key_missing"
OTP = """
    routes:
      - name: send-otp
        match: POST /auth/otp
        key: {from: "{body:/phone}", shared: true}
      - name: refunds
        match: POST /refunds/{id}
"""
SPELLINGS = ["/auth/otp/", "/AUTH/otp", "/auth/Otp", "/auth/otp;a", "/auth;v=1/otp", "/auth/otp%20", "/auth/otp%00",
             "/auth/otp.", "/auth/otp%2e", "/auth\\otp", "/auth%5Cotp", "/auth%2Fotp", "//auth/otp", "/auth//otp",
             "/auth/otp//", "/Auth/otp/;a", "/x/..;/auth/otp", "/auth/otp/%20", "/auth/otp%00.json", "/auth/OTP%20.;a/"]


@pytest.mark.parametrize("target", SPELLINGS)
def test_another_spelling_of_a_protected_path_reaches_nobody(start_gateway, upstream, target):
    gateway = start_gateway(OTP)
    assert gateway.post("/auth/otp", json={"phone": 1}).status == 201
    problem = gateway.post(target, json={"phone": 1}).refuses(400, MALFORMED)
    assert '"send-otp"' in problem["detail"] and '"/auth/otp"' in problem["detail"]
    gateway.post(target, key=fresh_key(), json={"phone": 1}).refuses(400, MALFORMED)
    assert upstream.effects() == len(upstream.requests) == 1


def test_an_escaped_slash_in_a_parameter_hides_nothing_either(start_gateway, upstream):
    gateway = start_gateway(OTP)
    gateway.post("/Refunds/a%2Fb", json={}).refuses(400, MALFORMED)
    gateway.post("/refunds%2Fa", json={}).refuses(400, MALFORMED)
    gateway.post("/refunds/a", json={}).refuses(400, MISSING)
    assert upstream.requests == []


def test_safe_requests_and_other_paths_are_not_concerned(start_gateway, upstream):
    gateway = start_gateway(OTP)
    for target in ("/auth/otp/", "/AUTH/otp", "/auth/otp;a"):
        assert gateway.get(target).status == 200
    for target in ("/auth", "/auth/otps", "/auth/otp/x", "/authotp", "/auth/otp%2", "/auth/o%20tp"):
        assert gateway.post(target, json={}).status == 201
    assert gateway.post("/auth/otp/resend", key=fresh_key(), json={}).idempotency == "stored"
    assert gateway.request("PUT", "/auth/otp/", json={}).status in (200, 201)  # a method that the route doesn't take
    assert upstream.effects() == 8


def test_exact_paths_leave_other_spellings_alone(start_gateway, upstream):
    gateway = start_gateway("""
        defaults:
          path: exact
        routes:
          - match: POST /auth/otp
          - {match: POST /refunds, path: guarded}
        """)
    assert gateway.post("/auth/otp/", json={}).status == 201
    assert gateway.post("/AUTH/otp", key=fresh_key(), json={}).idempotency == "stored"
    gateway.post("/auth/otp", json={}).refuses(400, MISSING)
    gateway.post("/Refunds", json={}).refuses(400, MALFORMED)
    assert upstream.effects() == len(upstream.requests) == 2


def test_a_path_that_is_a_route_itself_is_no_near_miss(start_gateway, upstream):
    gateway = start_gateway("""
        routes:
          - match: POST /reports
          - {match: POST /reports/, mode: pass, because: the old form counts by itself}
          - {match: POST /Reports, require: false}
        """)
    assert gateway.post("/reports/", json={}).status == 201
    assert gateway.post("/reports/", key=fresh_key(), json={}).status == 201
    assert gateway.post("/Reports", json={}).status == 201
    gateway.post("/REPORTS", json={}).refuses(400, MALFORMED)
    gateway.post("/reports", json={}).refuses(400, MISSING)
    assert upstream.effects() == len(upstream.requests) == 3


def test_a_path_that_passes_is_not_read_as_a_protected_one(start_gateway, upstream):
    """What matches a route that passes is meant for it, unless an escape makes it two paths at once."""
    gateway = start_gateway("""
        routes:
          - match: POST /refunds
          - {match: "POST /files/{name}", mode: pass, because: uploads}
          - match: POST /{a}/{b}
        """)
    assert gateway.post("/files/a%20b", json={}).status == 201
    gateway.post("/files/..%2Frefunds", json={}).refuses(400, MALFORMED)
    assert upstream.effects() == len(upstream.requests) == 1
