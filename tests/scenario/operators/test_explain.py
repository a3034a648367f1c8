# SPDX-License-Identifier: Apache-2.0
"""`hapax explain` says what the gateway would do with a request. Here each request is explained, then sent by the real
curl with the very same flags: what was said must be what happens. With `--listen` the client itself is explained."""
import base64
import hashlib
import hmac
import json
import re
import signal
import socket
import subprocess

import httpx
import pytest

from harness import HANG_S, Listening, basic, fresh_key, jwt

CONFIG = """
    defaults:
      principal: [authorization, "header:X-Api-Key", "cookie:session"]
    routes:
      - name: charges
        match: POST /charges
        rate: 1000/s
        quota: 1000
      - name: refund
        match: PATCH,PUT /refunds/{id}
        require: key-or-if-match
      - name: refunds
        match: POST /refunds
        require_principal: true
        fingerprint: {ignore: ["/note", "query:trace"]}
      - name: report
        match: POST /safety/report
        key: {from: "{body:/reporterId}:{body:/subjectId}:{window:1h}", shared: true}
        on_duplicate: reject
        lifetime: 1h
      - name: tenant
        match: POST /tenants/{tenant}/orders
        key: {from: "{path:tenant}:{header:X-Order}:{principal}"}
      - name: uuids
        match: POST /uuids
        key: {format: uuid4}
        dialect: ietf
      - name: refresh
        match: POST /auth/refresh
        mode: pass
        because: a token is good for one use
      - name: tried
        match: POST /tried
        mode: shadow
      - name: small
        match: POST /small
        body_max: 100
      - name: rest
        match: POST /{anything}
    """
KEY = "0123456789abcdef-key"
KEYED = ["-H", f"Idempotency-Key: {KEY}"]
JSON = ["-H", "Content-Type: application/json"]
ME = ["-H", "Authorization: " + basic("alice", "secret")]
FORM = '--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\n'

REQUESTS = {
    "a keyed POST": ["/charges", *KEYED, *JSON, "-d", '{"amount": 1}'],
    "by a user": ["/refunds", *KEYED, *ME, *JSON, "-d", '{"amount": 1}'],
    "by nobody, where someone is asked for": ["/refunds", *KEYED, *JSON, "-d", '{"amount": 1}'],
    "no key where it is required": ["/charges", "-d", "a=b"],
    "no key where there is no route": ["/elsewhere/1", "-d", "a=b"],
    "a key where there is no route": ["/elsewhere/1", *KEYED, "-d", "a=b"],
    "a short key": ["/charges", "-H", "Idempotency-Key: short", "-d", "a=b"],
    "a quoted key": ["/charges", "-H", f'Idempotency-Key: "{KEY}"', "-d", "a=b"],
    "a broken key": ["/charges", "-H", 'Idempotency-Key: "0123456789abcdef', "-d", "a=b"],
    "two keys": ["/charges", *KEYED, *KEYED, "-d", "a=b"],
    "not a uuid": ["/uuids", *KEYED, "-d", "a=b"],
    "a uuid": ["/uuids", "-H", "Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324", "-d", "a=b"],
    "a GET": ["/charges", *KEYED],
    "a HEAD": ["-X", "HEAD", "/charges"],
    "a conditional PATCH": ["-X", "PATCH", "/refunds/7", "-H", 'If-Match: "1"', "-d", "a=b"],
    "an unconditional PATCH": ["-X", "PATCH", "/refunds/7", "-d", "a=b"],
    "a keyed PUT": ["-X", "PUT", "/refunds/7", *KEYED, "-d", "a=b"],
    "a natural key": ["/safety/report", *JSON, "-d", '{"reporterId": "u1", "subjectId": 7}'],
    "a natural key that lacks a part": ["/safety/report", *JSON, "-d", '{"reporterId": "u1"}'],
    "a natural key of no JSON": ["/safety/report", "-d", "reporterId=u1"],
    "a natural key by a caller": ["/tenants/acme/orders", "-H", "X-Order: 12", *ME, "-d", "x"],
    "a natural key by nobody": ["/tenants/acme/orders", "-H", "X-Order: 12", "-d", "x"],
    "a route that passes": ["/auth/refresh", *KEYED, "-d", "a=b"],
    "a shadowed one": ["/tried", *KEYED, "-d", "a=b"],
    "a shadowed one without a key": ["/tried", "-d", "a=b"],
    "a body that is too large": ["/small", *KEYED, "-d", "x" * 101],
    "a body that just fits": ["/small", *KEYED, "-d", "x" * 100],
    "a multipart form": ["/charges", *KEYED, "-H", "Content-Type: multipart/form-data; boundary=b", "-d", FORM],
    "an api key": ["/refunds", *KEYED, "-H", "X-Api-Key: secret-of-alice", "-d", "a=b"],
    "a cookie": ["/refunds", *KEYED, "-H", "Cookie: theme=dark; session=secret-session", "-d", "a=b"],
    "two credentials": ["/charges", *KEYED, "-H", "Authorization: Bearer a", "-H", "Authorization: Bearer b", "-d",
                        "x"],
    "an encoded slash": ["/charges%2f1", *KEYED, "-d", "a=b"],
    "another spelling of the path": ["--path-as-is", "/x/../%63harges", *KEYED, "-d", "a=b"],
    "a URL with a query": ["/charges?a=b", *KEYED, "-d", "a=b", "-d", "c=d"],
}


class Curl:
    """The real curl's answer."""

    def __init__(self, gateway, flags):
        url = f"http://{gateway.address[0]}:{gateway.address[1]}"
        words = [url + word if word.startswith("/") else word for word in flags]
        words = ["-I", *words] if "HEAD" in words else words  # with -X alone curl would wait for a body
        done = subprocess.run(["curl", "-sS", "-i", "--noproxy", "*", *words], capture_output=True, timeout=HANG_S,
                              check=True)
        head, _, self.body = done.stdout.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}


@pytest.fixture
def explain(hapax, tmp_path):
    file = tmp_path / "explained.yaml"
    file.write_text(CONFIG, encoding="utf-8")

    def run(*flags, config=file):
        result = hapax("explain", "--json", "--config", config, "--upstream", "http://127.0.0.1:1", *flags)
        assert result.code == 0, result
        return json.loads(result.stdout)

    return run


def without_curls_own(flags):
    return [flag for flag in flags if flag != "--path-as-is"]


@pytest.mark.parametrize("name", REQUESTS)
def test_what_is_explained_is_what_happens(start_gateway, upstream, explain, name):
    gateway = start_gateway(CONFIG)
    flags = REQUESTS[name]
    said = explain(*without_curls_own(flags))
    done = Curl(gateway, flags)
    verdict = said["verdict"]
    if verdict == "refuses":
        assert (done.status, done.headers["error-code"]) == (said["error"]["status"], said["error"]["code"])
        assert json.loads(done.body)["detail"] == said["error"]["detail"]
        assert upstream.requests == []
    elif verdict == "protects":
        assert (done.status, done.headers["idempotency-status"]) == (201, "stored")
        assert upstream.effects() == 1
        again = Curl(gateway, flags)
        rejects = said["on_duplicate"] == "reject"
        assert again.status == (409 if rejects else 201)
        assert ("rejected with 409" in said["why"]) == rejects
        assert again.headers.get("idempotency-status") == (None if rejects else "replayed")
        assert upstream.effects() == 1
        logged = gateway.wait_events("request")[0]
        assert logged["operation_type"] == said["route"]["name"] or said["route"]["name"] is None
    else:
        assert verdict == ("shadows" if said["mode"] == "shadow" else "passes")
        assert "idempotency-status" not in done.headers
        assert ("hapax-shadow" in done.headers) == (verdict == "shadows")
        assert len(upstream.requests) == 1
        Curl(gateway, flags)
        assert len(upstream.requests) == 2


def test_every_verdict_is_among_those(explain):
    verdicts = {explain(*without_curls_own(flags))["verdict"] for flags in REQUESTS.values()}
    assert verdicts == {"protects", "passes", "refuses", "shadows"}


ALIKE = [
    ["/refunds", *KEYED, *ME, *JSON, "-d", '{"amount": 1, "note": "a"}'],
    ["/refunds?trace=7", *KEYED, *ME, *JSON, "-d", '{"note": "b", "amount": 1.0}'],
    ["/refunds", *KEYED, *ME, *JSON, "-d", '{"amount": 2}'],
    ["/refunds", *KEYED, "-H", "Authorization: " + basic("bob", "secret"), *JSON, "-d", '{"amount": 1}'],
    ["/charges", *KEYED, *ME, *JSON, "-d", '{"amount": 1}'],
    ["/charges", *KEYED, *ME, *JSON, "-d", '{ "amount": 1 }'],
    ["/charges", "-H", f'Idempotency-Key: "{KEY}";a=1', *ME, *JSON, "-d", '{"amount":1}'],
    ["/charges", "-H", f"Idempotency-Key: {KEY}2", *ME, *JSON, "-d", '{"amount":1}'],
    ["/safety/report", *ME, *JSON, "-d", '{"reporterId": "u1", "subjectId": 7}'],
    ["/safety/report", *ME, *JSON, "-d", '{"reporterId": "u1", "subjectId": "7"}'],
    ["/safety/report", *ME, *JSON, "-d", '{"reporterId": "u1", "subjectId": 7.0, "more": 1}'],
]


def test_operations_and_fingerprints_are_the_same_where_the_gateway_says_so(start_gateway, upstream, explain):
    gateway = start_gateway(CONFIG)
    said = [explain(*flags) for flags in ALIKE]
    first, same, other = {}, 0, 0
    for number, (flags, words) in enumerate(zip(ALIKE, said)):
        operation, fingerprint = words["operation"]["under_no_secret"], words["fingerprint"]["under_no_secret"]
        before = upstream.effects()
        done = Curl(gateway, flags)
        if operation not in first:
            first[operation] = fingerprint
            assert done.headers["idempotency-status"] == "stored", number
            assert upstream.effects() == before + 1
            continue
        assert upstream.effects() == before
        if first[operation] == fingerprint:
            same += 1
            was_seen = "CONFLICT.idempotency.duplicate_rejected" if words["on_duplicate"] == "reject" else "replayed"
            assert was_seen in (done.headers.get("error-code"), done.headers.get("idempotency-status")), number
        else:
            other += 1
            assert done.headers["error-code"] == "CONFLICT.idempotency.payload_mismatch", number
    assert (len(first), same, other) == (6, 4, 1)


def whys(routes):
    return {each["name"]: each["why"] for each in routes}


def test_the_route_and_those_that_come_close_are_named(explain):
    said = explain("/refunds", *KEYED, *ME, "-d", "x")["route"]
    assert (said["name"], said["number"], said["match"]) == ("refunds", 3, "POST /refunds")
    assert whys(said["near"]) == {}
    assert list(whys(said["behind"])) == ["rest"]
    said = explain("/refunds/7", *KEYED, *ME, "-d", "x")["route"]
    assert said["name"] is None
    assert whys(said["near"]) == {"refund": "the method is POST", "refunds": 'the path goes on with "/7"'}
    said = explain("/Charges", *KEYED, "-d", "x")["route"]
    assert said["name"] == "rest"
    assert whys(said["near"]) == {"charges": 'the path has "Charges", not "charges": capitals count'}
    said = explain("/refund", *KEYED, *ME, "-X", "PUT", "-d", "x")["route"]
    assert whys(said["near"]) == {"rest": "the method is PUT"}
    said = explain("/refunds", *KEYED, *ME, "-X", "PUT", "-d", "x")["route"]
    assert whys(said["near"]) == {"refund": 'the path has nothing for "{id}"', "refunds": "the method is PUT",
                                  "rest": "the method is PUT"}


def test_callers_are_told_and_their_secrets_are_not(explain, hapax, tmp_path):
    secrets = ["secret-of-alice", "secret-session", "opaque-token-of-alice", basic("alice", "hidden").split()[1]]
    callers = {
        "basic": ["-H", "Authorization: " + basic("alice", "hidden")],
        "whole": ["-H", "Authorization: Bearer opaque-token-of-alice"],
        "header": ["-H", "X-Api-Key: secret-of-alice"],
        "cookie": ["-H", "Cookie: session=secret-session"],
        "jwt": ["-H", "Authorization: " + jwt({"iss": "https://id.example", "sub": "user-7"})],
        "none": [],
    }
    file = tmp_path / "explained.yaml"
    for kind, flags in callers.items():
        said = explain("/charges", *KEYED, *flags, "-d", "x")
        assert said["principal"]["kind"] == kind
        assert said["principal"]["verified"] is False
        text = hapax("explain", "--config", file, "--upstream", "http://h", "/charges", *KEYED, *flags, "-d", "x")
        for shown in (text.stdout, json.dumps(said)):
            assert not any(secret in shown for secret in secrets), shown
    assert said["principal"]["who"].startswith("unauthenticated")
    assert explain("/charges", *KEYED, *callers["basic"], "-d", "x")["principal"]["who"] == "alice"
    assert explain("/charges", *KEYED, *callers["jwt"], "-d", "x")["principal"]["who"] == \
        "iss https://id.example, sub user-7"


def test_tokens_are_verified_as_the_gateway_does(start_gateway, upstream, explain, tmp_path):
    (tmp_path / "secret").write_bytes(b"a shared secret of many bytes, for a test")

    def signed(claims, secret=b"a shared secret of many bytes, for a test"):
        def part(data):
            return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
        text = part(b'{"alg":"HS256","typ":"JWT"}') + "." + part(json.dumps(claims).encode())
        return "Bearer " + text + "." + part(hmac.new(secret, text.encode(), hashlib.sha256).digest())

    config = f"""
        routes:
          - name: refunds
            match: POST /refunds
            principal: ["jwt:sub"]
            require_principal: true
            jwt: {{secret: {tmp_path / "secret"}, issuer: us}}
        """
    file = tmp_path / "tokens.yaml"
    file.write_text(config, encoding="utf-8")
    gateway = start_gateway(config)
    tokens = {
        "good": signed({"iss": "us", "sub": "alice"}),
        "forged": signed({"iss": "us", "sub": "alice"}, b"another secret of many bytes, for a test"),
        "foreign": signed({"iss": "them", "sub": "alice"}),
        "expired": signed({"iss": "us", "sub": "alice", "exp": 1}),
        "opaque": "Bearer opaque",
    }
    for name, token in tokens.items():
        flags = ["/refunds", "-H", f"Idempotency-Key: {fresh_key()}", "-H", f"Authorization: {token}", "-d", "x"]
        said = explain(*flags, config=file)
        done = Curl(gateway, flags)
        assert said["principal"]["verified"] == (name == "good")
        if name == "good":
            assert (said["verdict"], done.status) == ("protects", 201)
            assert "alice" in said["principal"]["who"] and str(tmp_path) in said["principal"]["keys"]
        else:
            assert said["verdict"] == "refuses"
            assert (done.status, done.headers["error-code"]) == (said["error"]["status"], said["error"]["code"])
            assert json.loads(done.body)["detail"] == said["error"]["detail"]
    assert upstream.effects() == 1


def test_natural_keys_show_their_parts(explain):
    said = explain("/safety/report", *JSON, "-d", '{"reporterId": "u1", "subjectId": 7}')["key"]
    assert (said["from"], said["valid"]) == ("template", True)
    assert [each["part"] for each in said["parts"]] == ["{body:/reporterId}", "{body:/subjectId}", "{window:1h}"]
    assert [each["value"] for each in said["parts"]][:2] == ["u1", "7"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00(\.000)?Z", said["parts"][2]["value"])
    lacking = explain("/safety/report", *JSON, "-d", '{"reporterId": "u1"}')
    assert lacking["key"]["valid"] is False
    assert "{body:/subjectId}" in lacking["error"]["detail"]


@pytest.mark.parametrize("header", ["Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token",
                                    "X-Access-Token", "X-Caller"])
def test_a_key_made_of_a_credential_shows_none(explain, hapax, tmp_path, header):
    file = tmp_path / "credential.yaml"
    file.write_text(f"""
defaults: {{principal: ["header:X-Caller"]}}
routes:
  - match: POST /orders
    key: {{from: "{{header:{header}}}:{{header:X-Order}}", shared: true}}
""", encoding="utf-8")
    flags = ["/orders", "-H", f"{header}: a-secret-of-many-bytes", "-H", "X-Order: 12", "-d", "x"]
    said = explain(*flags, config=file)
    assert said["key"]["valid"] is True
    assert said["key"]["parts"][1]["value"] == "12"
    text = hapax("explain", "--config", file, "--upstream", "http://h", *flags)
    for shown in (text.stdout, json.dumps(said)):
        assert "of-many-bytes" not in shown, shown


FLAGS_FOR_CURL = [
    ["/a?b=c#f"],
    ["-d", "a=b", "-d", "c=d e", "/a"],
    ["-d", "@FILE", "-H", "Content-Type: text/plain", "/a"],
    ["-X", "PATCH", "-H", "X-One: 1", "-d", "", "/a"],
    ["-XDELETE", "-H", "Host: other", "/a"],
    ["-X", "POST", "/a"],
]


@pytest.fixture
def explainer(tmp_path):
    file = tmp_path / "listening.yaml"
    started = []

    def start(*flags, config=CONFIG):
        file.write_text(config, encoding="utf-8")
        started.append(Listening("explain", "--config", file, "--upstream", "http://127.0.0.1:1", *flags))
        return started[-1]

    yield start
    for each in started:
        each.finish()


@pytest.mark.parametrize("number", range(len(FLAGS_FOR_CURL)))
def test_the_flags_mean_what_they_mean_to_curl(explain, explainer, tmp_path, number):
    """A request given by flags has the fingerprint of what curl sends for the same flags."""
    file = tmp_path / "body.txt"
    file.write_bytes(b"one\r\ntwo\n\xc3\xa4 three")
    listener = explainer("--json")
    flags = [flag.replace("FILE", str(file)) for flag in FLAGS_FOR_CURL[number]] + KEYED
    words = [listener.url + word if word.startswith("/a") else word for word in flags]
    sent = subprocess.run(["curl", "-sS", "--noproxy", "*", *words], check=True, capture_output=True, timeout=HANG_S)
    said = explain(*words)
    assert said["verdict"] == ("passes" if said["method"] == "GET" else "protects")
    assert json.loads(sent.stdout) == said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_real_client_is_answered_with_its_explanation(explainer, number):
    listener = explainer()
    assert "nothing is forwarded" in listener.said and "nothing is stored" in listener.said
    with httpx.Client(base_url=listener.url, trust_env=False, timeout=HANG_S) as client:
        for _ in range(2):  # not a replay: nothing is kept
            text = client.post("/refunds", json={"amount": 1}, auth=("alice", "secret"),
                               headers={"Idempotency-Key": KEY})
            assert (text.status_code, text.headers["content-type"]) == (200, "text/plain; charset=utf-8")
            assert text.text.startswith("verdict     protects") and "basic: alice" in text.text
            assert "idempotency-status" not in text.headers
        said = client.post("/charges", files={"f": ("a.txt", b"abc")},
                           headers={"Accept": "application/json", "Idempotency-Key": KEY})
        assert said.headers["content-type"] == "application/json"
        assert said.json()["fingerprint"]["body_as"].startswith("the parts of multipart")
        chunked = client.post("/safety/report", content=iter([b'{"reporterId": "u1",', b' "subjectId": 7}']),
                              headers={"Accept": "text/html, application/json;q=0.9",
                                       "Content-Type": "application/json"})
        assert [part["value"] for part in chunked.json()["key"]["parts"]][:2] == ["u1", "7"]
        refused = client.post("/charges", json={"amount": 1}, headers={"Accept": "application/json"})
        assert (refused.status_code, refused.json()["error"]["status"]) == (200, 400)
        assert client.head("/charges").content == b""
    out = listener.end(number)
    assert "POST /refunds: protects" in out and "HEAD /charges: passes" in out


def test_the_listener_says_what_is_said_about_the_same_flags(explain, explainer):
    listener = explainer("--json")
    for name, flags in REQUESTS.items():
        words = [listener.url + word if word.startswith("/") else word for word in flags]
        if "HEAD" in words:
            continue  # its answer has no body
        before = explain(*without_curls_own(words))
        sent = subprocess.run(["curl", "-sS", "--noproxy", "*", *words], check=True, capture_output=True,
                              timeout=HANG_S)
        said = json.loads(sent.stdout)
        assert said in (before, explain(*without_curls_own(words))), name  # a window may end in between


def test_bodies_that_are_too_long_are_read_and_explained(explainer):
    listener = explainer("--json")
    with httpx.Client(base_url=listener.url, trust_env=False, timeout=HANG_S) as client:
        said = client.post("/charges", content=b"x" * 5_000_000, headers={"Idempotency-Key": KEY}).json()
        assert (said["verdict"], said["error"]["status"]) == ("refuses", 413)
        said = client.post("/auth/refresh", content=b"x" * 5_000_000).json()
        assert said["verdict"] == "passes"
        long = client.post("/safety/report", json={"reporterId": "\x01" * 150_000, "subjectId": 1}).json()
        assert (long["verdict"], len(long["key"]["parts"][0]["value"])) == ("protects", 1024)


def test_what_is_not_a_request_gets_the_gateways_status(explainer):
    listener = explainer(config="    limits: {head_bytes: 1KiB}" + CONFIG)
    for sent, status in ((b"GARBAGE\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 2000, 431),
                         (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", 400)):
        with socket.create_connection(("127.0.0.1", listener.port), timeout=HANG_S) as connection:
            connection.sendall(sent)
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 %d " % status), sent
        assert b"verdict     refuses" in answer


def test_a_preflight_is_explained(explainer):
    listener = explainer("--json", config="    cors: {origins: [https://app.example]}" + CONFIG)
    said = httpx.options(listener.url + "/charges", trust_env=False, timeout=HANG_S, headers={
        "Origin": "https://app.example", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "idempotency-key"}).json()
    assert (said["verdict"], said["error"]) == ("answers", None)


def test_it_ends_in_mid_request_and_leaves_its_address(explainer, hapax):
    listener = explainer()
    with socket.create_connection(("127.0.0.1", listener.port), timeout=HANG_S) as connection:
        connection.sendall(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")  # it reads the body
        result = hapax("explain", "--listen", "127.0.0.1:1x")
        assert result.code in (2, 4) and "127.0.0.1:1x" in result.stderr
        listener.end(signal.SIGTERM)


def test_a_file_that_people_wrote_is_a_request_too(explain, tmp_path):
    file = tmp_path / "request.http"
    file.write_bytes(b"POST /charges HTTP/1.1\nHost: h\nIdempotency-Key: " + KEY.encode() +
                     b"\nContent-Type: application/json\n\n{\"amount\": 1}")
    said = explain("--request-file", file)
    assert said["verdict"] == "protects"
    by_flags = explain("/charges", *KEYED, *JSON, "-H", "Host: h", "-d", '{"amount":1}')
    assert said["fingerprint"]["under_no_secret"] == by_flags["fingerprint"]["under_no_secret"]
    file.write_bytes(b"POST /charges HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n0\r\n\r\n")
    assert explain("--request-file", file)["error"]["code"] == "VALIDATION.idempotency_key_missing"
    file.write_bytes(b"POST /charges HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\na=b")
    said = explain("--request-file", file)
    assert (said["verdict"], said["error"]["status"]) == ("refuses", 400)
    assert "shorter" in said["error"]["detail"]


@pytest.mark.parametrize("words, part", [
    (["--request-file", "-", "/b"], "only one of them"),
    (["--listen", "127.0.0.1:0", "/b"], "only one of them"),
    (["--listen", "127.0.0.1:0", "-H", "nothing"], "'Name: value'"),
    (["ftp://h/a"], "ftp://h/a"),
    (["http://me:secret@h/a"], "Authorization"),
    (["/a", "-u", "alice:secret"], "-u"),
    (["--request-file", "/no/such/file"], "/no/such/file"),
    (["-X", "POST"], "Which URL"),
    (["/a", "-d", "@/no/such/file"], "/no/such/file"),
    (["/a", "/b"], '"/b"'),
    (["/a", "--frobnicate"], "--frobnicate"),
    (["/a", "--config", "/no/such/file"], "/no/such/file"),
])
def test_what_is_wrong_is_named(hapax, words, part):
    result = hapax("explain", *words)
    assert result.code == 2
    assert part in result.stderr
    assert result.stdout == ""


def test_without_a_file_the_defaults_are_explained(hapax, explain):
    result = hapax("explain", "/refunds", *KEYED, "-d", "a=b")
    assert result.code == 0
    assert "none of 0 matches" in result.stdout and "\033" not in result.stdout
    assert hapax("explain", "/refunds", "--require-key", "-d", "a=b").stdout.startswith("verdict     refuses")


def test_what_a_request_holds_does_not_draw_on_the_terminal(hapax):
    result = hapax("explain", "/refunds", *KEYED, "-d", "a\x1b[31mb\x07c\x9b31md")
    assert result.code == 0
    assert not set("\x1b\x07\x9b") & set(result.stdout)


def test_a_long_body_is_cut_once_and_between_characters(hapax):
    result = hapax("explain", "/refunds", *KEYED, "-d", "a" + "ü" * 300)
    shown = next(line.strip() for line in result.stdout.splitlines() if "aüü" in line)
    assert shown == "a" + "ü" * 99 + "…"
