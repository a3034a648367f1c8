# SPDX-License-Identifier: Apache-2.0
"""`hapax prove`: what it says of an API is what the API did, and it says so only where it has seen it."""
import json
import os
import pty
import re
import shlex
import signal
import socket
import ssl
import subprocess
import tempfile
import threading

import pytest

from harness import EXIT_CONFIG, EXIT_UNKNOWN, Run, binary
from harness.gateway import ROOT, environment

HOLDS, BROKEN, UNAVAILABLE = 0, 1, 69
REFUND = '{"charge": "ch_1", "amount": 5}'
BARE = ("new key", "duplicate", "ten at once", "mismatch", "timeout", "crash", "restart")


class Ledger:
    """An API that takes keys, and may be broken: `mistakes` are words for what it does wrong."""

    def __init__(self, upstream, *mistakes):
        self.upstream, self.mistakes = upstream, mistakes
        self.known, self.lock = {}, threading.Lock()
        upstream.on("POST /refunds", self)
        upstream.on("/count", self.count)
        upstream.on("/crash", self.crash)

    def count(self, exchange):
        exchange.answer(200, {"made": self.upstream.effects("/refunds")})

    def crash(self, exchange):
        if "keys in memory" in self.mistakes:
            self.known.clear()
        exchange.answer(200, {})

    def do(self, exchange):
        number = exchange.upstream.record_effect(exchange.request)
        return {"id": "rf" if "one id" in self.mistakes else f"rf_{number}"}

    def __call__(self, exchange):
        body = exchange.read_body()
        key = body if "by body" in self.mistakes else exchange.request.key
        if "refuses" in self.mistakes:
            return exchange.answer(403, {})
        if "no keys" in self.mistakes:
            return exchange.answer(201, self.do(exchange))
        with self.lock:
            first = self.known.get(key)
            if first is None:
                first = self.known[key] = (body, self.do(exchange))
                return exchange.answer(201, first[1])
        if "other body" in self.mistakes and body != first[0]:
            return exchange.answer(201, self.do(exchange))
        if body != first[0] and "any body" not in self.mistakes:
            return exchange.answer(400 if "vague" in self.mistakes else 422, {"error": "key_reused"})
        if "no replay" in self.mistakes:
            return exchange.answer(409, {"error": "duplicate"})
        return exchange.answer(200 if "other status" in self.mistakes else 201, first[1])


def prove(upstream, *words, counts=True, url=None):
    base = upstream.url
    counting = ["--count", f"{base}/count", "--count-pointer", "/made"] if counts else []
    ran = Run(["prove", url or f"{base}/refunds", "-d", REFUND, "--yes", "--json", *counting, *words])
    found = json.loads(ran.stdout) if ran.stdout else {"cases": []}
    return ran.code, {case["case"]: case for case in found["cases"]}


def verdicts(cases, way="bare"):
    return {name: case[way]["verdict"] for name, case in cases.items()}


def expected(*words):
    return dict(zip(BARE, words))


def test_an_api_without_keys_is_broken_and_hapax_mends_it(upstream):
    Ledger(upstream, "no keys")
    code, cases = prove(upstream)
    assert verdicts(cases) == expected("holds", *["broken"] * 4, "not run", "not run")
    assert verdicts(cases, "hapax") == expected(*["holds"] * 5, "safe", "holds")
    assert code == HOLDS
    assert [case["bare"]["effects"] for case in cases.values()] == [2, 2, 10, 2, 2, None, None]
    assert [case["hapax"]["effects"] for case in cases.values()] == [2, 1, 1, 1, 1, 1, 1]
    assert cases["crash"]["hapax"]["responses"][-1]["error_code"] == "CONFLICT.idempotency.outcome_unknown"
    assert upstream.effects("/refunds") == 18 + 8, "what it says is what the API did"
    keys = {request.key for request in upstream.received("/refunds")}
    assert len(keys) == 6 + 8, "each case has a key of its own, and the first has two"


def test_behind_hapax_each_request_that_reaches_the_api_is_seen_without_a_count(upstream):
    Ledger(upstream, "no keys")
    code, cases = prove(upstream, counts=False)
    assert code == HOLDS
    assert verdicts(cases, "hapax") == expected(*["holds"] * 5, "safe", "holds")
    assert {case["hapax"]["reached_api"] for case in cases.values()} == {1, 2}
    assert verdicts(cases)["timeout"] == "cannot tell"


def test_an_idempotent_api_gets_its_retry_after_a_crash(upstream):
    Ledger(upstream)
    code, cases = prove(upstream, "--guarantee", "idempotent")
    assert code == HOLDS and set(verdicts(cases, "hapax").values()) == {"holds"}
    assert cases["crash"]["hapax"]["reached_api"] == 2 and cases["crash"]["hapax"]["effects"] == 1


def test_an_api_behind_https_is_proved_too(upstream, tmp_path):
    """Through the gateway as well, which can't reach https by itself."""
    Ledger(upstream)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")

    def pipe(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def serve(listener):
        while True:
            try:
                client = context.wrap_socket(listener.accept()[0], server_side=True)
            except ssl.SSLError:
                continue
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", upstream.port))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pipe, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        url = f"https://localhost:{listener.getsockname()[1]}/refunds"
        code, cases = prove(upstream, "--cacert", tmp_path / "cert", "--guarantee", "idempotent", url=url)
        listener.shutdown(socket.SHUT_RDWR)
    assert code == HOLDS
    assert verdicts(cases) == expected(*["holds"] * 5, "not run", "not run")
    assert set(verdicts(cases, "hapax").values()) == {"holds"}


def test_the_guide_shows_what_the_demo_does():
    guide = (ROOT / "docs" / "guide" / "prove.md").read_text("utf-8")
    command, table = re.findall(r"```(?:sh)?\n(.*?)```", guide, re.S)[:2]
    demo = subprocess.Popen([binary(), "demo"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, env=environment())
    try:
        application = next(line.split()[1] for line in demo.stdout if line.strip().startswith("application"))
        words = shlex.split(command.replace("http://127.0.0.1:3000", application).replace("\\\n", " "))
        ran = Run([*words[1:], "--yes"])
    finally:
        demo.send_signal(signal.SIGINT)
        demo.communicate()
    assert ran.code == HOLDS and ran.stdout.startswith(table), "plain, in a pipe"


# Each verdict, both ways

@pytest.mark.parametrize("mistakes, code, changes", [
    ((), HOLDS, {}),
    (("no keys",), BROKEN, dict.fromkeys(BARE[1:], "broken")),
    (("by body",), BROKEN, {**dict.fromkeys(BARE, "cannot tell"), "new key": "broken", "mismatch": "broken"}),
    (("other status",), BROKEN, {"duplicate": "broken", "ten at once": "broken", "restart": "broken"}),
    (("no replay",), HOLDS, {"duplicate": "safe", "timeout": "safe", "crash": "safe", "restart": "safe"}),
    (("any body",), BROKEN, {"mismatch": "broken"}),
    (("other body",), BROKEN, {"mismatch": "broken"}),
    (("vague",), EXIT_UNKNOWN, {"mismatch": "cannot tell"}),
    (("keys in memory",), BROKEN, {"crash": "broken", "restart": "broken"}),
    (("refuses",), EXIT_UNKNOWN, dict.fromkeys(BARE, "cannot tell")),
], ids=lambda value: "-".join(value) if isinstance(value, tuple) else None)
def test_what_is_wrong_with_an_api_is_found(upstream, mistakes, code, changes):
    Ledger(upstream, *mistakes)
    crash = f"curl -sf {shlex.quote(upstream.url)}/crash"
    got, cases = prove(upstream, "--bare", "--crash", crash)
    assert (got, verdicts(cases)) == (code, {**expected(*["holds"] * 7), **changes})


@pytest.mark.parametrize("mistakes, words, told", [
    ((), ["--id", "/id"], expected("holds", "holds", "holds", "holds", "cannot tell", "not run", "not run")),
    ((), [], expected("cannot tell", "cannot tell", "cannot tell", "holds", "cannot tell", "not run", "not run")),
    (("no keys",), ["--id", "/id"], expected("holds", "broken", "broken", "broken", "cannot tell", *["not run"] * 2)),
    (("no keys", "one id"), ["--id", "/id"],
     expected("cannot tell", "cannot tell", "cannot tell", "broken", "cannot tell", "not run", "not run")),
    (("no replay",), ["--id", "/id"],
     expected("holds", "cannot tell", "cannot tell", "holds", "cannot tell", "not run", "not run")),
], ids=["ids", "responses alone", "ids of a broken one", "an id that tells nothing", "refused retries"])
def test_without_a_count_it_claims_no_more_than_it_saw(upstream, mistakes, words, told):
    Ledger(upstream, *mistakes)
    code, cases = prove(upstream, "--bare", *words, counts=False)
    assert verdicts(cases) == told
    assert code == (BROKEN if "broken" in told.values() else EXIT_UNKNOWN)


def test_effects_are_counted_by_key_and_by_the_length_of_an_array(upstream):
    ledger = Ledger(upstream)
    upstream.on("/of", lambda exchange: exchange.answer(200, {"rows": [
        key for _, key in upstream.effect_log if key == exchange.request.query.partition("=")[2]]}))
    code, cases = prove(upstream, "--bare", "--count", f"{upstream.url}/of?key={{key}}", "--count-pointer", "/rows",
                        counts=False)
    assert [case["bare"]["effects"] for case in cases.values()] == [2, 1, 1, 1, 1, None, None]
    assert code == HOLDS and len(ledger.known) == 6


def test_a_dropped_connection_is_dropped_after_the_request_and_before_the_response(upstream):
    Ledger(upstream)
    with upstream.hold("/slow"):  # nothing answers there
        ran = Run(["prove", f"{upstream.url}/slow", "-d", REFUND, "--bare", "--yes", "--timeout", "50ms"])
    assert ran.code == UNAVAILABLE and "hapax prove: " in ran.stderr
    code, cases = prove(upstream, "--bare")
    assert code == HOLDS and cases["timeout"]["bare"]["responses"][0]["failure"] == "dropped"
    dropped = [request for request in upstream.received("/refunds") if request.body == REFUND.encode()]
    assert len(dropped) == 2 + 2 + 10 + 1 + 2


# Nothing is sent that was not agreed to

def test_without_a_terminal_it_says_what_it_would_send_and_sends_nothing(upstream):
    ran = Run(["prove", f"{upstream.url}/refunds", "-d", REFUND, "-H", "Authorization: Bearer hush", "-H", "X-A: b",
               "--count", f"{upstream.url}/count"])
    assert ran.code == EXIT_CONFIG and upstream.received() == []
    for text in ("up to 49 requests", f"POST {upstream.url}/refunds", REFUND, '"amount": 6', "X-A: b", "--yes",
                 "Authorization: (hidden)", f"GET {upstream.url}/count"):
        assert text in ran.stderr
    assert "hush" not in ran.stderr


@pytest.mark.parametrize("reply, sent", [(b"n\n", False), (b"\n", False), (b"y\n", True)])
def test_on_a_terminal_it_asks(upstream, reply, sent):
    Ledger(upstream)
    ours, theirs = pty.openpty()
    words = [binary(), "prove", f"{upstream.url}/refunds", "-d", REFUND, "--bare", "--id", "/id"]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment())
    os.close(theirs)
    said = b""
    while b"[y/N]" not in said:
        said += os.read(ours, 65536)
    os.write(ours, reply)
    try:
        while data := os.read(ours, 65536):
            said += data
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait() == (EXIT_UNKNOWN if sent else EXIT_CONFIG)
    assert (upstream.effects("/refunds") > 0) == sent
    assert (b"\x1b[32mholds\x1b[0m" in said) == sent, "with colours"


def test_an_interrupt_leaves_nothing_behind(upstream):
    with tempfile.TemporaryDirectory() as folder, upstream.hold("/refunds") as hold:
        words = [binary(), "prove", f"{upstream.url}/refunds", "-d", REFUND, "--yes"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment({"TMPDIR": folder}))
        hold.wait_arrived()
        children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
        assert os.listdir(folder) == []
    assert process.returncode == UNAVAILABLE and b"interrupted" in said
    assert len(children) == 1 and not os.path.exists(f"/proc/{children[0]}"), "nor the gateway"


@pytest.mark.parametrize("words, message", [
    ([], "needs the URL"),
    (["ftp://a/b"], "must start with http"),
    (["http://"], "must have a host"),
    (["http://a/", "-X", "GET"], "nothing to prove of GET"),
    (["http://a/", "-H", "Idempotency-Key: k"], "made for each request"),
    (["http://a/", "-H", "nonsense"], "neither"),
    (["http://a/", "--id", "id"], "JSON pointers"),
    (["http://a/", "--count-pointer", "/n"], "needs --count"),
    (["http://a/", "--guarantee", "transactional"], "none, atomic or idempotent"),
    (["http://a/", "--timeout", "0s"], "between 10ms and 1h"),
    (["http://a/", "-d", "1", "--changed", "1"], "must differ"),
    (["http://a/", "-d", "@/nowhere"], "/nowhere"),
])
def test_what_it_is_asked_must_make_sense(words, message):
    ran = Run(["prove", *words])
    assert ran.code == EXIT_CONFIG and message in ran.stderr


def test_an_api_that_is_not_there_or_does_not_count_ends_it(upstream):
    Ledger(upstream)
    ran = Run(["prove", f"{upstream.url}/refunds", "-d", REFUND, "--bare", "--yes", "--count", f"{upstream.url}/count"])
    assert ran.code == UNAVAILABLE and "neither a number nor an array" in ran.stderr
    upstream.stop_listening()
    ran = Run(["prove", f"{upstream.url}/refunds", "-d", REFUND, "--yes"])
    assert ran.code == UNAVAILABLE and ran.stdout == ""


def test_without_another_body_the_mismatch_is_left_out(upstream):
    Ledger(upstream, "no keys")
    ran = Run(["prove", f"{upstream.url}/refunds", "-d", '{"charge": "ch_1"}', "--bare", "--yes", "--json"])
    found = json.loads(ran.stdout)["cases"][3]["bare"]
    assert (found["verdict"], found["responses"]) == ("not run", []) and "--changed" in found["why"]
