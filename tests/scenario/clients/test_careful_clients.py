# SPDX-License-Identifier: Apache-2.0
"""What the source documents ask of clients, on each of ours: `hapax send`, the Python and the TypeScript client. The
key is there before the first attempt and goes with every one, what is transient is repeated by its class and nothing
else, and whoever asks is told done, refused, exhausted or unknown.

The clients for languages tell how long they would wait; `hapax send` waits."""
import concurrent.futures
import email.utils
import re
import sys
import time

import pytest

from harness import answer, drop_after_effect, fresh_key, in_turn, never_answer
from harness.gateway import ROOT
from harness.node import Node

sys.path.insert(0, str(ROOT / "clients" / "python"))
import hapax  # noqa: E402  pylint: disable=wrong-import-position

STORED = [("Idempotency-Status", "stored")]
OK = answer(201, b'{"id": 1}', STORED)
BODY = {"amount": 5}
USER_MS = [(100, 200), (200, 400), (400, 800)]  # between the attempts of the class `user`
BACKGROUND_MS = [(4000, 8000), (8000, 16000), (16000, 32000), (32000, 64000), (64000, 64000)]
ACTION = re.compile(r'^X\("([\w.]+)", (\w+), (\w+),', re.M)


class Told:
    def __init__(self, outcome, delays=(), status=None, body=None, replayed=False, original_time=""):
        self.outcome, self.delays = outcome, [float(delay) for delay in delays]
        self.status, self.body, self.replayed, self.original_time = status, body, replayed, original_time


class Command:
    """`hapax send`."""

    def __init__(self, send, node):
        self.send = send

    def __call__(self, operation, url, method="POST", body=None, attempts=None, timeout=None, key_lifetime=None,
                 token=None):
        flags = ["--attempts", str(attempts)] if attempts else []
        flags += ["--timeout", f"{int(timeout * 1000)}ms"] if timeout else []
        flags += ["--key-lifetime", f"{int(key_lifetime * 1000)}ms"] if key_lifetime else []
        flags += ["-H", f"Authorization: {token}"] if token else []
        data = ["-d", '{"amount":%d}' % (body or BODY)["amount"]] if method != "DELETE" else []
        code, said = self.send.json(method, url, *data, "--for", operation, *flags)
        outcome = {0: "done", 1: "refused", 2: "mismatch", 69: "exhausted", 75: "unknown"}[code]
        if said is None:
            return Told(outcome)
        return Told(outcome, [one["delay_ms"] for one in said["attempts"][1:]], said.get("status"), said.get("body"),
                    said.get("replayed"), said.get("original_time"))

    def status(self, operation):
        return {0: "done", 1: "refused", 69: "not sent", 75: "unknown", 2: None}[self.send("--status", operation).code]


class Python:
    def __init__(self, send, node):
        self.folder, self.delays = send.folder, []

    def sender(self, **options):
        return hapax.Sender(self.folder, sleep=lambda delay: self.delays.append(delay * 1000), **options)

    def __call__(self, operation, url, method="POST", body=None, token=None, **options):
        self.delays = []
        try:
            got = self.sender(**{name: value for name, value in options.items() if value is not None}).send(
                method, url, None if method == "DELETE" else body or BODY, operation=operation,
                headers={"Authorization": token} if token else None)
        except hapax.HapaxError as error:
            return Told(type(error).__name__.lower(), self.delays)
        return Told(got.outcome, self.delays, got.status, got.body.decode(), got.replayed, got.original_time)

    def status(self, operation):
        return self.sender().status(operation)


class TypeScript:
    def __init__(self, send, node):
        self.node, self.store = node, {"file": str(send.folder)}

    def __call__(self, operation, url, method="POST", body=None, token=None, timeout=None, key_lifetime=None,
                 attempts=None, retries=None):
        options = {"attempts": attempts, "class": retries, "timeoutMs": timeout and timeout * 1000,
                   "keyLifetimeMs": key_lifetime and key_lifetime * 1000}
        init = {"method": method, "headers": {"Authorization": token} if token else {}}
        if method != "DELETE":
            init["body"] = body or BODY
        got = self.node("fetch", store=self.store, operation=operation, url=url, init=init,
                        options={name: value for name, value in options.items() if value is not None})
        if "error" in got:
            return Told(got["error"].lower(), got.get("delays") or [])
        return Told(got["outcome"], got["delays"], got["status"], got["body"], got["isReplay"], got["originalTime"])

    def status(self, operation):
        return self.node("status", store=self.store, operation=operation)


TYPESCRIPT = pytest.param(TypeScript, id="typescript", marks=pytest.mark.slow)  # it has to be compiled


@pytest.fixture(scope="module")
def node():
    started = []

    def ask(*words, **question):
        if not started:
            started.append(Node())
        return started[0](*words, **question)

    yield ask
    for one in started:
        one.close()


@pytest.fixture(params=[pytest.param(Command, id="send"), pytest.param(Python, id="python"), TYPESCRIPT])
def client(request, send, node):
    return request.param(send, node)


def keys(upstream):
    return [request.key for request in upstream.received("/refunds")]


def within(delays, bounds):
    return len(delays) == len(bounds) and all(low <= delay <= high + 1 for delay, (low, high) in zip(delays, bounds))


def test_the_key_is_written_down_before_the_first_attempt(client, upstream, send):
    seen = []

    def look(exchange):
        files = [file for file in send.folder.iterdir() if file.suffix in (".intent", ".json")]
        seen.append([exchange.request.key.encode() in file.read_bytes() for file in files])
        OK(exchange)

    upstream.on("/refunds", look)
    assert client("order-17", upstream.url + "/refunds").outcome == "done"
    assert seen == [[True]]


def test_every_attempt_has_the_same_key_and_body(client, upstream):
    upstream.on("/refunds", in_turn(answer(500, effect=False), drop_after_effect(), OK))
    told = client("order-17", upstream.url + "/refunds")
    assert (told.outcome, told.status) == ("done", 201)
    assert len(keys(upstream)) == 3 and len(set(keys(upstream))) == 1 and len(keys(upstream)[0]) == 36
    assert len({request.body for request in upstream.received("/refunds")}) == 1


def test_a_later_call_finds_the_key_and_the_response(client, upstream):
    """The second call goes on with the key of the first, which could not know; the third sends nothing."""
    upstream.on("/refunds", in_turn(drop_after_effect(), OK))
    assert client("order-17", upstream.url + "/refunds", attempts=1).outcome == "unknown"
    assert client.status("order-17") == "unknown"
    told = [client("order-17", upstream.url + "/refunds") for _ in range(2)]
    assert [(one.outcome, one.body) for one in told] == [("done", '{"id": 1}')] * 2
    assert len(keys(upstream)) == 2 and len(set(keys(upstream))) == 1 and client.status("order-17") == "done"
    assert client("order-17", upstream.url + "/refunds", body={"amount": 6}).outcome == "mismatch"
    assert client("order-18", upstream.url + "/refunds").outcome == "done" and len(set(keys(upstream))) == 2


def test_no_client_error_is_retried(client, upstream):
    for status in (400, 401, 403, 404, 405, 409, 410, 415, 422, 451):
        upstream.on("/refunds", answer(status, b"no", effect=False))
        before = len(keys(upstream))
        told = client(f"order-{status}", upstream.url + "/refunds")
        assert (told.outcome, told.status, told.body) == ("refused", status, "no")
        assert len(keys(upstream)) == before + 1


def test_what_is_transient_is_retried(client, upstream):
    for fault in [answer(status, effect=False) for status in (408, 429, 500, 502, 503, 504, 599)] + [
            drop_after_effect(), drop_after_effect(reset=True)]:
        upstream.on("/refunds", in_turn(fault, OK))
        before = len(keys(upstream))
        assert client(fresh_key(), upstream.url + "/refunds").outcome == "done"
        assert len(keys(upstream)) == before + 2 and len(set(keys(upstream)[before:])) == 1


def test_a_408_is_retried_at_once(client, upstream):
    upstream.on("/refunds", in_turn(answer(408, effect=False), OK))
    assert client("order-17", upstream.url + "/refunds").delays[0] < 100


def test_a_timeout_is_unknown_and_is_retried_with_the_same_key(client, upstream):
    upstream.on("/refunds", in_turn(never_answer, answer(201, b"", [("Idempotency-Status", "replayed")], effect=False)))
    told = client("order-17", upstream.url + "/refunds", timeout=0.2, attempts=1)
    assert told.outcome == "unknown" and client.status("order-17") == "unknown"
    assert client("order-17", upstream.url + "/refunds").outcome == "done"
    assert len(set(keys(upstream))) == 1 and upstream.effects("/refunds") == 1


def test_nothing_listens_and_nothing_was_done(client, upstream):
    upstream.stop_listening()
    assert client("order-17", upstream.url + "/refunds").outcome == "exhausted"
    assert client.status("order-17") == "not sent"


def test_attempts_are_capped_and_then_it_is_escalated(client, upstream):
    """Delays double, and each is spread over its bounds, so that clients don't come back together."""
    first = []
    for number in range(2):
        upstream.on("/refunds", answer(429, effect=False))
        told = client(f"limited-{number}", upstream.url + "/refunds")
        assert told.outcome == "exhausted" and within(told.delays, USER_MS), told.delays
        first.append(told.delays[0])
    assert len(set(first)) > 1
    upstream.on("/refunds", answer(500, effect=False))
    before = len(keys(upstream))
    assert client("broken", upstream.url + "/refunds").outcome == "unknown"
    assert len(keys(upstream)) == before + 4 and upstream.effects("/refunds") == 0


@pytest.mark.parametrize("client", [pytest.param(Python, id="python"), TYPESCRIPT], indirect=True)
def test_each_class_has_its_retries(client, upstream):
    upstream.on("/refunds", answer(503, effect=False))
    told = client("background", upstream.url + "/refunds", retries="background")
    assert told.outcome == "unknown" and within(told.delays, BACKGROUND_MS), told.delays
    told = client("scheduled", upstream.url + "/refunds", retries="scheduled")
    assert within(told.delays, [(60e3, 120e3), (120e3, 240e3), (240e3, 480e3)]), told.delays


def test_retry_after_is_obeyed_and_never_early(client, upstream):
    in_two_seconds = email.utils.formatdate(time.time() + 2, usegmt=True)
    for told_to_wait, least in (("1", 1000), (in_two_seconds, 100)):
        upstream.on("/refunds", in_turn(answer(429, headers=[("Retry-After", told_to_wait)], effect=False), OK))
        told = client(fresh_key(), upstream.url + "/refunds")
        assert told.outcome == "done" and least <= told.delays[0] <= 2300, told.delays


def test_retry_after_beyond_the_time_there_is_ends_it(client, upstream):
    upstream.on("/refunds", answer(503, headers=[("Retry-After", "3600")], effect=False))
    told = client("order-17", upstream.url + "/refunds")
    assert (told.outcome, told.delays) == ("exhausted", []) and len(keys(upstream)) == 1


def problem(status, code, headers=()):
    return answer(status, b'{"error_code": "%s"}' % code.encode(),
                  [("Content-Type", "application/problem+json"), ("Error-Code", code), *headers], effect=False)


STATUSES = {"VALIDATION": 400, "AUTH": 401, "CONFLICT": 409, "RATE_LIMIT": 429, "DEPENDENCY": 503, "TRANSIENT": 503,
            "PROVIDER": 409}


def test_each_error_of_hapax_has_its_action(client, upstream):
    """409 above all: in flight and unknown are asked again, a mismatch and a failure before are not, and what was done
    before is done."""
    text = (ROOT / "src" / "core" / "retry" / "careful_actions.def").read_text()
    actions = ACTION.findall(text)
    assert len(actions) >= 20
    for code, action, _ in actions:
        status = STATUSES[code.partition(".")[0]]
        upstream.on("/refunds", problem(status, code))
        before = len(keys(upstream))
        told = client(code, upstream.url + "/refunds", attempts=2)
        wanted = ("unknown" if status == 409 else "exhausted") if action == "AGAIN" else action.lower()
        assert (told.outcome, len(keys(upstream)) - before) == (wanted, 2 if action == "AGAIN" else 1), code


def test_a_refusal_says_nothing_of_an_earlier_attempt(client, upstream):
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(422, effect=False)))
    assert client("order-17", upstream.url + "/refunds").outcome == "unknown"
    assert upstream.effects("/refunds") == 1 and client.status("order-17") == "unknown"


def test_a_deleted_thing_that_is_gone_was_deleted(client, upstream):
    upstream.on("/refunds", in_turn(drop_after_effect(), answer(404, effect=False)))
    assert client("delete-1", upstream.url + "/refunds", method="DELETE").outcome == "done"
    upstream.on("/refunds", answer(404, effect=False))
    assert client("delete-2", upstream.url + "/refunds", method="DELETE").outcome == "refused"


def test_a_stored_error_is_final_and_a_replay_says_so(client, upstream):
    upstream.on("/refunds", answer(500, b"broken", [
        ("Idempotency-Status", "replayed"), ("Idempotent-Replayed", "true"),
        ("Original-Request-Time", "2026-02-19T12:00:00Z")], effect=False))
    told = client("order-17", upstream.url + "/refunds")
    assert (told.outcome, told.status, told.replayed) == ("refused", 500, True)
    assert told.original_time == "2026-02-19T12:00:00Z" and len(keys(upstream)) == 1


def test_past_the_life_of_the_key_nothing_is_sent(client, upstream):
    upstream.on("/refunds", answer(500, headers=[("Idempotency-Expires", "2026-01-01T00:00:00Z")], effect=False))
    assert client("order-17", upstream.url + "/refunds", attempts=1).outcome == "unknown"
    assert client("order-17", upstream.url + "/refunds").outcome == "unknown"
    assert len(keys(upstream)) == 1


@pytest.mark.parametrize("client", [pytest.param(Python, id="python"), TYPESCRIPT], indirect=True)
def test_after_a_login_the_same_operation_goes_on(client, upstream):
    upstream.on("/refunds", in_turn(answer(401, effect=False), OK))
    assert client("order-17", upstream.url + "/refunds", token="old").outcome == "refused"
    assert client.status("order-17") == "not sent"
    assert client("order-17", upstream.url + "/refunds", token="new").outcome == "done"
    assert len(keys(upstream)) == 2 and len(set(keys(upstream))) == 1


def test_through_a_gateway_what_it_can_not_know_is_unknown_and_never_done_twice(client, gateway, upstream):
    through = f"http://127.0.0.1:{gateway.address[1]}/refunds"
    upstream.on("/refunds", in_turn(answer(201, b'{"id": 1}'), drop_after_effect()))
    assert client("order-17", through, token="Bearer me").outcome == "done"
    for _ in range(2):
        assert client("order-18", through, token="Bearer me", attempts=2).outcome == "unknown"
    assert upstream.effects("/refunds") == 2


@pytest.mark.parametrize("client", [TYPESCRIPT], indirect=True)
def test_ten_calls_at_once_are_one_request(client, upstream):
    upstream.on("/refunds", OK)
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        told = list(pool.map(lambda _: client("order-17", upstream.url + "/refunds"), range(10)))
    assert {(one.outcome, one.body) for one in told} == {("done", '{"id": 1}')}
    assert len(keys(upstream)) == 1
