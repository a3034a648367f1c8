# SPDX-License-Identifier: Apache-2.0
"""`hapax listen` receives what real clients send, and says what it received: how often each event came, and nothing
that a terminal would obey."""
import base64
import contextlib
import hashlib
import hmac
import json
import re
import signal
import subprocess
import time
import unicodedata

import httpx
import pytest

from harness import (EXIT_ADDRESS, EXIT_CONFIG, HANG_S, Connection, Listening, chunk, quick_retries,
                     request_bytes)

EXIT_UNVERIFIED = 1
OUR_COLOURS = re.compile("\033\\[(0|1|31|32|33)m")
BODY_MAX = 1 << 20


class Receiver(Listening):
    """`hapax listen`, and a client of it."""

    def __init__(self, *flags, **options):
        super().__init__("listen", *flags, **options)

    def post(self, body=b"{}", target="/hooks", **headers):
        """A whole request on a connection of its own, by a client that is not ours."""
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.post(self.url + target, content=body, headers=headers, trust_env=False, timeout=HANG_S)

    def raw(self, data):
        with Connection(("127.0.0.1", self.port)) as connection:
            connection.send(data)
            return connection.receive("POST")

    def requests(self, count):
        """The next ones that it tells of, with --json."""
        seen = [json.loads(self.line()) for _ in range(count)]
        assert all(each["type"] == "request" for each in seen), seen
        return seen

    def summary(self, text):
        last = json.loads(text.splitlines()[-1])
        assert last.pop("type") == "summary"
        return {name: count for name, count in last.items() if count}


@pytest.fixture
def listen():
    started = []

    def start(*flags, **options):
        started.append(Receiver(*flags, **options))
        return started[-1]

    yield start
    for each in started:
        each.finish()


def test_every_request_is_answered_and_told(listen):
    receiver = listen("--json")
    done = receiver.post(b'{"id": "evt_1"}', "/hooks?a=b", Content_Type="application/json")
    assert (done.status_code, done.json()) == (200, {"received": True})
    assert receiver.post(iter([b"a=", b"b"]), Content_Type="text/plain").status_code == 200
    assert httpx.get(receiver.url + "/up", trust_env=False, timeout=HANG_S).status_code == 200
    curl = subprocess.run(["curl", "-sS", "--noproxy", "*", "-X", "PUT", "-d", "x", receiver.url], check=True,
                          capture_output=True, timeout=HANG_S)
    assert json.loads(curl.stdout) == {"received": True}
    first, second, third, fourth = receiver.requests(4)
    assert (first["method"], first["target"], first["content_type"]) == ("POST", "/hooks?a=b", "application/json")
    assert (first["event_id"], first["attempt"], first["duplicate"], first["bytes"]) == ("evt_1", 1, False, 15)
    assert (first["status"], first["verified"], "body" in first) == (200, None, False)
    assert (second["event_id"], second["attempt"], second["bytes"]) == (None, 0, 3)
    assert (third["method"], third["bytes"], fourth["method"]) == ("GET", 0, "PUT")
    assert receiver.summary(receiver.end()) == {"requests": 4, "event_ids": 1}


@pytest.mark.parametrize("where", ["webhook-id", "svix-id", "X-GitHub-Delivery", "X-Shopify-Webhook-Id",
                                   "Idempotency-Key", "/id", "/event_id", "/eventId"])
def test_an_event_that_comes_again_is_a_duplicate(listen, where):
    receiver = listen("--json", "--bodies")
    for name in ("evt_1", "evt_2", "evt_1"):
        if where.startswith("/"):
            receiver.post(json.dumps({where[1:]: name}))
        else:
            receiver.post(b"no JSON", **{where: name})
    seen = [(each["event_id"], each["attempt"], each["duplicate"]) for each in receiver.requests(3)]
    assert seen == [("evt_1", 1, False), ("evt_2", 1, False), ("evt_1", 2, True)]
    assert receiver.summary(receiver.end()) == {"requests": 3, "event_ids": 2, "duplicates": 1}


def test_deliveries_fail_as_often_as_asked_and_then_succeed(listen):
    receiver = listen("--json", "--fail", 2, "--status", 202)
    sent = ["one", "two", "one", "one", "two", "two", "one"]
    assert [receiver.post(webhook_id=each).status_code for each in sent] == [503, 503, 503, 202, 503, 202, 202]
    assert receiver.post(b"without an id").status_code == 202
    seen = receiver.requests(8)
    assert [each["attempt"] for each in seen] == [1, 1, 2, 3, 2, 3, 4, 0]
    assert [each["duplicate"] for each in seen] == [False] * 6 + [True, False]  # a retry of what failed is none


def test_a_gateway_tries_again_until_the_listener_accepts(listen, start_gateway, key):
    receiver = listen("--json", "--bodies", "--fail", 2)
    gateway = start_gateway(quick_retries(guarantee="idempotent"), upstream=receiver.url)
    first = gateway.post("/refunds", key=key, json={"amount": 1}, headers={"X-Correlation-Id": "order-7"})
    again = gateway.post("/refunds", key=key, json={"amount": 1})
    assert [(each.status, each.idempotency) for each in (first, again)] == [(200, "stored"), (200, "replayed")]
    seen = receiver.requests(3)
    assert [(each["status"], each["event_id"], each["attempt"]) for each in seen] == \
        [(503, key, 1), (503, key, 2), (200, key, 3)]
    carried = [{each["name"].lower(): each["value"] for each in request["headers"]} for request in seen]
    assert [each["hapax-attempt"] for each in carried] == ["1", "2", "3"]
    assert {each["idempotency-key"] for each in carried} == {key}
    assert {each["x-correlation-id"] for each in carried} == {"order-7"}
    assert all("hapax-operation" in each and "traceparent" in each for each in carried)
    assert {json.loads(each["body"])["amount"] for each in seen} == {1}
    assert receiver.summary(receiver.end()) == {"requests": 3, "event_ids": 1}


def test_late_answers_come(listen):
    receiver = listen("--json", "--delay", "300ms")
    assert receiver.post(webhook_id="one").elapsed.total_seconds() > 0.298  # its clock has whole milliseconds
    told, = receiver.requests(1)
    assert (told["event_id"], told["attempt"], told["duplicate"], told["status"]) == ("one", 1, False, 200)


def test_a_sender_that_leaves_before_a_late_answer_has_none(listen):
    receiver = listen("--json", "--delay", "1h")
    for _ in range(2):
        with Connection(("127.0.0.1", receiver.port)) as connection:
            connection.send(request_bytes("POST", "/hooks", {"webhook-id": "one"}))
            connection.wait_read()
            connection.reset()
    seen = [(each["attempt"], each["duplicate"], each["status"]) for each in receiver.requests(2)]
    assert seen == [(1, False, None), (2, False, None)]  # what was never acknowledged has no duplicates


def test_it_ends_after_as_many_requests_as_it_was_asked_for(listen):
    receiver = listen("--json", "--count", 2)
    with httpx.Client(base_url=receiver.url, trust_env=False, timeout=HANG_S) as client:
        assert client.post("/a").headers.get("connection") is None
        assert client.post("/b").headers["connection"] == "close"
        assert receiver.summary(receiver.rest()) == {"requests": 2}


@pytest.mark.parametrize("how", ["refused", "interrupted"])
def test_a_count_that_was_not_reached_in_good_order_is_no_success(listen, how):
    receiver = listen("--json", "--count", 2)
    receiver.post()
    if how == "refused":
        assert receiver.raw(b"GARBAGE\r\n\r\n").status == 400
        assert receiver.summary(receiver.rest(EXIT_UNVERIFIED)) == {"requests": 2, "refused": 1}
    else:
        assert receiver.summary(receiver.end(signal.SIGTERM, EXIT_UNVERIFIED)) == {"requests": 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_summary(listen, number):
    receiver = listen("--delay", "1h")
    with Connection(("127.0.0.1", receiver.port)) as connection:
        connection.send(request_bytes("POST", "/hooks", {"webhook-id": "one"}))
        connection.wait_read()
        text = receiver.end(number)
    assert "not answered" in text
    assert text.splitlines()[-1] == "requests: 1, event ids: 1, duplicates: 0, verified: 0, not verified: 0, refused: 0"


def test_bodies_have_a_limit(listen):
    receiver = listen("--json")
    assert receiver.post(b"x" * BODY_MAX).status_code == 200
    assert receiver.post(b"x" * (BODY_MAX + 1)).status_code == 413
    head = b"POST /hooks HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert receiver.raw(head + chunk(b"x" * (BODY_MAX + 1))).status == 413
    fits, announced, chunked = receiver.requests(3)
    assert (fits["bytes"], fits["status"], fits["error"]) == (BODY_MAX, 200, None)
    for each in (announced, chunked):
        assert (each["status"], each["error"]) == (413, "refused") and "limit" in each["detail"]
    small = listen("--json", "--body-max", "10B")
    assert [small.post(b"x" * count).status_code for count in (10, 11)] == [200, 413]


def test_all_bodies_together_have_a_limit(listen):
    receiver = listen("--json", "--delay", "1h")
    data = request_bytes("POST", "/", body=b"x" * BODY_MAX)
    with contextlib.ExitStack() as senders:
        for _ in range(64):
            sender = Connection(("127.0.0.1", receiver.port))
            senders.callback(sender.reset)
            sender.send(data)
            sender.wait_read()
        assert receiver.raw(data).status == 503
    assert sorted(each["status"] or 0 for each in receiver.requests(65)) == [0] * 64 + [503]
    with Connection(("127.0.0.1", receiver.port)) as sender:
        sender.send(data)
        sender.wait_read()
        assert receiver.summary(receiver.end()) == {"requests": 66, "refused": 1}


@pytest.mark.parametrize("sent, status", [
    (b"GARBAGE\r\n\r\n", 400),
    (b"POST /\x1b[31m HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: h\r\nX: \x1b[31m\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", 431),
])
def test_what_is_not_a_request_is_refused_and_told(listen, sent, status):
    receiver = listen("--json")
    assert receiver.raw(sent).status == status
    told, = receiver.requests(1)
    assert (told["status"], told["error"]) == (status, "refused") and told["detail"]
    assert receiver.post().status_code == 200


def test_a_sender_that_leaves_in_the_middle_of_its_body_is_told(listen):
    receiver = listen("--json")
    with Connection(("127.0.0.1", receiver.port)) as connection:
        connection.send(b"POST /half HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf")
        connection.wait_read()
    told, = receiver.requests(1)
    assert (told["target"], told["status"], told["error"]) == ("/half", None, "refused")


HOSTILE = "\x1b]0;owned\x07 \x1b[35m \x08\x7f \x9b35m \u202egnp.exe \u2028 \u2066 ü"


@pytest.mark.parametrize("flags", [["--bodies"], ["--bodies", "--json"]])
def test_nothing_from_the_network_is_obeyed_by_a_terminal(listen, flags):
    receiver = listen(*flags, terminal=True)
    bodies = [HOSTILE.encode(), b"\x9b35m\xff\x00 raw bytes", json.dumps({"id": HOSTILE}).encode(),
              json.dumps({"id": "\x7f\x9b\u202e"}, ensure_ascii=False).encode(),
              b"a\r\n12:00:00.000Z  POST /forged  answered with 200\n\tb"]
    for body in bodies:
        assert receiver.post(body, Content_Type="text/\xc2\x9b35m".encode("latin-1")).status_code == 200
    for field in (b"Idempotency-Key: k\xc2\x9b35m\xe2\x80\xae", b"Hapax-Attempt: \x9b35m\xff",
                  b"X-Correlation-Id: a\tb"):
        assert receiver.raw(b"POST /%1b%5b35m HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n" + field +
                            b"\r\n\r\n").status == 200
    for head in (b"P\x1b[35mT / HTTP/1.1", b"POST /\x1b[35m\xc2\x9b HTTP/1.1", b"\x1b[35m"):
        assert receiver.raw(head + b"\r\nHost: h\r\n\r\n").status == 400
    text = receiver.end()
    shown = OUR_COLOURS.sub("", text.replace("\r\n", "\n"))
    wrong = {c for c in shown if c != "\n" and (unicodedata.category(c) in ("Cc", "Zl", "Zp") or
                                                unicodedata.bidirectional(c) in ("RLO", "LRO", "RLI", "LRI"))}
    assert not wrong
    assert "\\u001b]0;owned\\u0007" in shown and "\\u202egnp.exe" in shown and "ü" in shown
    assert "\n12:00:00.000Z  POST /forged" not in shown and "POST /forged" in shown
    assert ("\033[" in text) == ("--json" not in flags)


def test_json_bodies_are_laid_out_and_others_shown_as_they_are(listen):
    receiver = listen("--bodies")
    receiver.post(b'{"id":"evt_1","list":[1.50,{"a":[]},"}\\""],"none":{}}', Content_Type="application/json")
    receiver.post(b"one\ntwo")
    receiver.post(b"x" * 20_000)
    text = receiver.end()
    assert """
    {
      "id": "evt_1",
      "list": [
        1.50,
        {
          "a": []
        },
        "}\\""
      ],
      "none": {}
    }
""" in text
    assert "\n    one\n    two\n" in text
    assert "x" * 16_384 + "\n    … and 3616 bytes more\n" in text and "x" * 16_385 not in text
    assert "\033" not in text


def test_json_has_every_byte_of_a_body(listen):
    receiver = listen("--json", "--bodies")
    receiver.post("ü \x1b \u202e".encode())
    receiver.post(b"\xff\x00")
    text, binary = receiver.requests(2)
    assert text["body"] == "ü \x1b \u202e"
    assert (binary["body_hex"], "body" in binary) == ("ff00", False)


def test_only_so_many_event_ids_are_remembered(listen):
    receiver = listen("--json")
    with Connection(("127.0.0.1", receiver.port)) as connection:
        for batch in range(101):
            connection.send(b"".join(request_bytes("POST", "/", {"webhook-id": f"{batch}-{number}"})
                                     for number in range(100)))
            for _ in range(100):
                assert connection.receive("POST").status == 200
                receiver.line()
    for name in ("0-0", "100-99"):
        receiver.post(webhook_id=name)
    forgotten, known = receiver.requests(2)
    assert (forgotten["attempt"], known["attempt"]) == (1, 2)


SECRET = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"id": "evt_1", "event_id": "evt_1"}'


def mac(*parts, key=SECRET.encode()):
    return hmac.new(key, b"".join(parts), hashlib.sha256)


def base64_of(digest):
    return base64.b64encode(digest.digest()).decode()


def signed(scheme, body, seconds_ago=0):
    """The flags of a scheme, and the headers that its senders send."""
    now = str(int(time.time()) - seconds_ago)
    stamp = now.encode()
    standard = mac(b"evt_1.", stamp, b".", body, key=base64.b64decode(SECRET))
    return {
        "standard": ([], {"webhook-id": "evt_1", "webhook-timestamp": now,
                          "webhook-signature": "v1," + base64_of(standard)}),
        "stripe": ([], {"Stripe-Signature": f"t={now},v1={mac(stamp, b'.', body).hexdigest()}"}),
        "github": ([], {"X-GitHub-Delivery": "evt_1", "X-Hub-Signature-256": "sha256=" + mac(body).hexdigest()}),
        "shopify": ([], {"X-Shopify-Webhook-Id": "evt_1", "X-Shopify-Hmac-SHA256": base64_of(mac(body))}),
        "slack": ([], {"X-Slack-Request-Timestamp": now,
                       "X-Slack-Signature": "v0=" + mac(b"v0:", stamp, b":", body).hexdigest()}),
        "hmac": (["--signature-header", "X-Sign", "--prefix", "mac="], {"X-Sign": "mac=" + mac(body).hexdigest()}),
    }[scheme]


@pytest.fixture
def secret_file(tmp_path):
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n", encoding="ascii")
    return file


@pytest.mark.parametrize("scheme", ["standard", "stripe", "github", "shopify", "slack", "hmac"])
def test_signatures_are_verified_and_failures_named(listen, secret_file, scheme):
    flags, headers = signed(scheme, BODY)
    receiver = listen("--json", "--scheme", scheme, "--secret-file", secret_file, *flags)
    sent = [(BODY, headers), (BODY.replace(b"1", b"2"), headers), (BODY, {}), (BODY + b"\n", headers)]
    assert [receiver.post(body, **fields).status_code for body, fields in sent] == [200] * 4  # whatever the verdict
    seen = receiver.requests(4)
    assert [(each["scheme"], each["verified"]) for each in seen] == [(scheme, True)] + [(scheme, False)] * 3
    good, forged, bare, longer = seen
    assert (good["event_id"], good["error"], good["detail"]) == ("evt_1", None, None)
    assert (forged["error"], bare["error"], longer["error"]) == ("no_match", "header_missing", "no_match")
    assert any(name in bare["detail"] for name in headers)
    assert "line" in longer["detail"] and longer["detail"] != forged["detail"]
    assert receiver.summary(receiver.end())["verified"] == 1


def test_a_signature_of_another_day_is_stale(listen, secret_file):
    receiver = listen("--scheme", "stripe", "--secret-file", secret_file, terminal=True)
    receiver.post(BODY, **signed("stripe", BODY)[1])
    receiver.post(BODY, **signed("stripe", BODY, seconds_ago=86_400)[1])
    text = receiver.end()
    assert "\033[32mverified" in text and "\033[31mnot verified: " in text
    assert "older than the tolerance" in text
    assert int(re.search(r"(\d+) s behind", text)[1]) >= 86_400


@pytest.mark.parametrize("second, code", [(BODY, 0), (BODY + b" ", EXIT_UNVERIFIED)])
def test_a_count_succeeds_only_if_all_were_verified(listen, secret_file, second, code):
    receiver = listen("--json", "--scheme", "github", "--secret-file", secret_file, "--count", 2)
    headers = signed("github", BODY)[1]
    receiver.post(BODY, **headers)
    receiver.post(second, **headers)
    verified = {"verified": 2} if code == 0 else {"verified": 1, "not_verified": 1}
    assert receiver.summary(receiver.rest(code)) == {"requests": 2, "event_ids": 1, "duplicates": 1, **verified}


def test_an_address_in_use_is_named_with_what_to_do(listen, hapax):
    receiver = listen()
    result = hapax("listen", "--listen", f"127.0.0.1:{receiver.port}")
    assert result.code == EXIT_ADDRESS and result.stdout == ""
    assert f"127.0.0.1:{receiver.port}" in result.stderr and "another port with --listen" in result.stderr


@pytest.mark.parametrize("words, part", [
    (["--status", "99"], "--status must be 200 to 599"),
    (["--status", "ok"], "--status must be"),
    (["--fail", "-1"], "--fail must be"),
    (["--delay", "2"], "needs a unit"),
    (["--count", "0"], "--count must be 1 to"),
    (["--body-max", "1TB"], "--body-max must be"),
    (["--scheme", "strip", "--secret-file", "-"], "stripe"),
    (["--scheme", "stripe"], "--secret-file"),
    (["--secret-file", "-"], "--scheme"),
    (["--scheme", "stripe", "--secret-file", "/no/such/file"], "/no/such/file"),
    (["/hooks"], '"/hooks"'),
    (["--bodys"], "did you mean --bodies?"),
    (["--listen", "nowhere"], "nowhere"),
])
def test_what_is_wrong_is_named(hapax, words, part):
    result = hapax("listen", *words)
    assert result.code in (EXIT_CONFIG, EXIT_ADDRESS) and result.stdout == ""
    assert part in result.stderr
