# SPDX-License-Identifier: Apache-2.0
"""Signatures are exchanged with the libraries that senders and receivers use (npm: standardwebhooks, svix, stripe), and
for ed25519, which those lack, with Python's cryptography: what they sign, `hapax verify` verifies, what `--sign` signs,
they verify, and neither side takes what was changed on the way. A running gateway delivers what they verify, and its
inbox takes what they sign.

HAPAX names the program; else it is that of build/.
"""
import base64
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import subprocess
import threading
import time

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

HERE = pathlib.Path(__file__).resolve().parent
HAPAX = os.environ.get("HAPAX") or HERE.parent.parent / "build" / "src" / "hapax"
SCHEMES = {"standardwebhooks": "standard", "svix": "svix", "stripe": "stripe"}
BODIES = ["{}", '{"id":"evt_1","n":1.50,"e":"\\u00e9"}\n',
          '{"id": "é😀", "lines": "a\\r\\nb"}\r\n', '{"big":"' + "x" * 100_000 + '"}']


@pytest.fixture(scope="module")
def libraries():
    if not (HERE / "node_modules" / "stripe").exists():
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=HERE, check=True)

    def ask(questions):
        run = subprocess.run(["node", HERE / "libraries.js"], input=json.dumps(questions), capture_output=True,
                             text=True, check=False)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    return ask


def hapax(*flags, secrets, body):
    """Runs `hapax verify`; its exit code and what it printed."""
    named = {f"SECRET_{number}": secret for number, secret in enumerate(secrets)}
    words = [word for name in named for word in ("--secret-env", name)]
    run = subprocess.run([HAPAX, "verify", *words, *flags, "-"], input=body.encode(), capture_output=True, check=False,
                         env={"PATH": "/bin", **named})
    assert run.returncode in (0, 1), run.stderr
    return run.returncode, run.stdout.decode()


def verified(library, headers, secrets, body, *flags):
    lines = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    code, printed = hapax("--scheme", SCHEMES[library], "--json", *lines, *flags, secrets=secrets, body=body)
    result = json.loads(printed)
    assert result["verified"] == (code == 0)
    return result["verified"]


def signed(secrets, body, *flags, scheme="standard"):
    _, printed = hapax("--sign", "--scheme", scheme, *flags, secrets=secrets, body=body)
    return dict(line.split(": ", 1) for line in printed.splitlines())


def new_secret(library, rng):
    length = rng.choice([24, 32, 33, 64, 100])
    return ("whsec_" if library == "stripe" or rng.random() < 0.7 else "") + base64.b64encode(
        rng.randbytes(length)).decode()


def changed(text, rng):
    at = rng.randrange(len(text))
    return text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1:]


@pytest.mark.parametrize("library", SCHEMES)
def test_what_they_sign_is_verified(libraries, library):
    rng, now = random.Random(1), int(time.time())
    cases = [{"library": library, "do": "sign", "secret": new_secret(library, rng), "id": f"msg_{number}", "at": now,
              "body": body} for number, body in enumerate(BODIES)]
    for case, headers in zip(cases, libraries(cases)):
        secret, body = case["secret"], case["body"]
        other = new_secret(library, rng)
        assert verified(library, headers, [secret], body)
        assert verified(library, headers, [other, secret], body)
        assert not verified(library, headers, [other], body)
        assert not verified(library, headers, [secret], changed(body, rng))
        assert not verified(library, headers, [secret], body, "--at", str(now + 301))
        assert not verified(library, headers, [secret], body, "--at", str(now - 301))


@pytest.mark.parametrize("library", ["standardwebhooks", "svix"])
def test_what_is_signed_here_they_verify(libraries, library):
    rng = random.Random(2)
    questions, expected = [], []

    def asks(secret, headers, body, is_valid):
        questions.append({"library": library, "do": "verify", "secret": secret, "headers": headers, "body": body})
        expected.append(is_valid)

    for body in BODIES:
        old, new, other = (new_secret(library, rng) for _ in range(3))
        headers = signed([old, new], body, scheme=SCHEMES[library])
        assert verified(library, headers, [new], body)
        asks(old, headers, body, True)  # while secrets rotate, a receiver has either
        asks(new, headers, body, True)
        asks(other, headers, body, False)
        asks(new, headers, changed(body, rng), False)
        asks(new, signed([new], body, "--at", "10m", scheme=SCHEMES[library]), body, False)
    answers = libraries(questions)
    for question, answer, is_valid in zip(questions, answers, expected):
        # A body that is no longer JSON may be refused for that: then its signature was not, and the test is wrong.
        assert answer is True if is_valid else "JSON" not in str(answer) and answer is not True, (question, answer)


def test_both_sides_agree_on_stripes_headers(libraries):
    """Several signatures, other versions and the tolerance, as Stripe's own library judges them."""
    now, body, secret = int(time.time()), '{"id":"evt_1","object":"event"}', "whsec_test"
    ask = {"library": "stripe", "do": "sign", "secret": secret, "at": now, "body": body}
    fresh, old, early = (headers["Stripe-Signature"] for headers in libraries(
        [ask, {**ask, "at": now - 4000}, {**ask, "at": now - 200}]))
    signature = fresh.split("v1=")[1]
    values = [fresh, old, early, f"{fresh},v0={signature}", f"t={now},v1={'0' * 64},v1={signature}",
              f"t={now},v0={signature}", f"t={now}", f"v1={signature}", f"t={now},v1={signature[:-1]}",
              f"t={now + 1},v1={signature}", "", "nonsense"]
    answers = libraries([{"library": "stripe", "do": "verify", "secret": secret, "body": body,
                          "headers": {"Stripe-Signature": value}} for value in values])
    ours = [verified("stripe", {"Stripe-Signature": value}, [secret], body) for value in values]
    assert ours == [answer is True for answer in answers]
    assert ours == [True, False, True, True, True] + [False] * 7


def test_ed25519_is_that_of_another_implementation():
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    public = "whpk_" + base64.b64encode(raw).decode()
    private = "whsk_" + base64.b64encode(bytes(range(32)) + raw).decode()
    for body in BODIES:
        headers = signed([private], body)
        version, signature = headers["webhook-signature"].split(",")
        message = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{body}".encode()
        assert version == "v1a"
        key.public_key().verify(base64.b64decode(signature), message)
        with pytest.raises(InvalidSignature):
            key.public_key().verify(base64.b64decode(signature), message + b" ")
        theirs = {**headers, "webhook-signature": "v1a," + base64.b64encode(key.sign(message)).decode()}
        assert verified("standardwebhooks", theirs, [public], body)
        assert not verified("standardwebhooks", theirs, [public], body + " ")
        assert not verified("standardwebhooks", {**theirs, "webhook-id": "msg_other"}, [public], body)


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps what is delivered to it: (path, headers, body)."""

    def do_POST(self):
        self.server.got.append((self.path, dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.server.arrived.release()

    def log_request(self, code="-", size="-"):
        pass


@pytest.fixture
def receiver():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        server.got, server.arrived = [], threading.Semaphore(0)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield server
        server.shutdown()


@pytest.fixture
def gateway(tmp_path, receiver):
    """A running gateway: run("events", …) is a command to it, and `inbox` where its inbox listens."""
    config = tmp_path / "hapax.yaml"
    sources = "".join(f"  - {{name: {name}, scheme: {scheme}, secret_env: SECRET, deliver: '{receiver.url}/{name}'}}\n"
                      for name, scheme in SCHEMES.items())
    config.write_text(f"upstream: {receiver.url}\nlisten: 127.0.0.1:0\nstore: sqlite:{tmp_path}/store\n"
                      "api: {listen: 127.0.0.1:0}\nevents: {allow: [127.0.0.0/8]}\ninbox: {listen: 127.0.0.1:0}\n"
                      f"sources:\n{sources}")
    secret = "whsec_" + base64.b64encode(bytes(range(24))).decode()
    process = subprocess.Popen([HAPAX, "serve", "--config", config], stderr=subprocess.PIPE, text=True,
                               env={"PATH": "/bin", "SECRET": secret})
    try:
        said = ""
        while '"event":"listening"' not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        threading.Thread(target=process.stderr.read, daemon=True).start()

        def run(*words):
            done = subprocess.run([HAPAX, *words, "--config", config], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        run.secret = secret
        run.inbox = re.search(r'"inbox_listening".*"address":"([^"]+)"', said)[1]
        yield run
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("library", ["standardwebhooks", "svix"])
def test_what_a_gateway_delivers_they_verify(libraries, gateway, receiver, library):
    secret = re.search(r"whsec_\S+", gateway("endpoints", "add", receiver.url + "/hook"))[0]
    event = gateway("events", "publish", "refund.created", "--data", BODIES[2]).strip()
    assert receiver.arrived.acquire(timeout=60)
    _, headers, body = receiver.got[0]
    names = {name.lower(): value for name, value in headers.items()}
    prefix = "webhook" if library == "standardwebhooks" else "svix"
    given = {f"{prefix}-{part}": names[f"webhook-{part}"] for part in ("id", "timestamp", "signature")}
    ask = {"library": library, "do": "verify", "secret": secret, "headers": given, "body": body.decode()}
    answers = libraries([ask, {**ask, "body": body.decode().replace("refund", "charge")}])
    assert given[f"{prefix}-id"] == event
    assert answers[0] is True and answers[1] is not True


@pytest.mark.parametrize("library", SCHEMES)
def test_what_they_sign_an_inbox_takes(libraries, gateway, receiver, library):
    ask = {"library": library, "do": "sign", "secret": gateway.secret, "id": "evt_1", "at": int(time.time()),
           "body": BODIES[1]}
    headers = libraries([ask])[0]
    statuses = []
    for body in (BODIES[1], BODIES[1].replace("1.50", "1.51")):
        connection = http.client.HTTPConnection(gateway.inbox, timeout=60)
        connection.request("POST", f"/inbox/{library}", body, headers)
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses == [200, 401]
    assert receiver.arrived.acquire(timeout=60)
    path, _, body = receiver.got[0]
    assert (path, body.decode()) == (f"/{library}", BODIES[1])
